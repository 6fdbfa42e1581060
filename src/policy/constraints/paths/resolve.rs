//! Absolute paths without `.`, `..` and symbolic links.

use std::{
    ffi::OsString,
    io::ErrorKind,
    path::{Component, Path, PathBuf},
};

/// Most symbolic links on the way (Linux follows 40).
const MAX_LINKS: usize = 40;

/// An absolute path without `.` and `..`, by its text alone.
pub fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

/// Where an absolute path leads: as far as it exists its links are followed, the rest is taken as it is written.
///
/// # Errors
/// Why that cannot be known.
pub fn real(path: &Path) -> Result<PathBuf, String> {
    let mut todo: Vec<OsString> = parts(path);
    let mut out = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part == ".." {
            out.pop();
            continue;
        }
        out.push(&part);
        match std::fs::symlink_metadata(&out) {
            Ok(meta) if meta.file_type().is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Err("leads through too many symbolic links".to_owned());
                }
                let target = std::fs::read_link(&out).map_err(|_| "leads through a link that cannot be read")?;
                out.pop();
                if target.is_absolute() {
                    out = PathBuf::from("/");
                }
                todo.extend(parts(&target));
            }
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(_) => return Err("cannot be examined".to_owned()),
        }
    }
    Ok(out)
}

/// Names and `..`, last one first.
fn parts(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter_map(|c| match c {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}
