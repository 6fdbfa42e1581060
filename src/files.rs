//! How files and directories are opened that somebody else may have made: a cloned repository can bring an audit
//! directory of its own, with links, fifos, devices and files without end in it.
//!
//! | what is opened | with |
//! |---|---|
//! | anything below a directory that we keep | [`Tree`]: no link on the way, plain files, ours alone |
//! | a file in somebody's directory, to read | [`plain`]: no link, a plain file |
//! | a file that the user named | [`named`]: a plain file, wherever a link leads |
//! | a capture, which is under a name that we chose | [`open_own`]: no link, a plain file, ours alone |
//! | the file of another program, to change it | [`replace_kept`]: a plain file, its mode, owner and attributes stay |
//! | a directory for sockets and captures | [`exclusive_dir`]: no other user may even enter it |
//!
//! None of them waits for a writer of a fifo, and nothing is read without a limit.
//!
//! What is written appears whole or not at all: [`replace`] and [`place_new`] stage it and rename it, [`Tree::replace`]
//! does so below a directory that we keep. `tests/it/walls.rs` lists who else may make such calls.
//!
//! Directories are walked name by name rather than with `openat2`: on the way each of them is looked at, which that
//! would not do, and it is the same on every system.

mod kept;
mod lock;
mod ours;
mod place;
mod sync;
mod tree;

pub use assay_evidence::plain::{create_new, is_refusal, is_unsupported, named, plain, read_all, write_new};
pub use kept::{Kept, replace_kept};
pub use lock::{Lock, lock, patiently, try_lock, try_lock_shared};
pub use ours::{create_in, exclusive_dir, is_own_dir, open_dir, open_own};
pub use place::{make_dirs, new_dir, place_file, place_new, rename_noreplace, replace};
pub use sync::{has_room, sync_all, sync_data, sync_dir};
pub use tree::Tree;

use assay_evidence::plain::{LINK, refuse};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader},
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

/// The first line of a plain file without its line feed, if it is whole and within the first `limit` bytes.
#[must_use]
pub fn first_line(path: &Path, limit: u64) -> Option<Vec<u8>> {
    crate::lines::first(plain(path).ok()?, limit)
}

/// The real path of a directory that a user named or that is the default: below the working directory no link is
/// followed, because what is there may have come with a repository; elsewhere the user chose where links lead. What
/// does not exist yet is allowed.
///
/// # Errors
/// A refusal that names the link, or an I/O error.
pub fn reach(named: &Path) -> io::Result<PathBuf> {
    reach_from(named, &std::env::current_dir().unwrap_or_default())
}

/// As [`reach`], where links are not followed below `here`.
///
/// # Errors
/// As [`reach`].
pub fn reach_from(named: &Path, here: &Path) -> io::Result<PathBuf> {
    let gone = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => io::Error::new(e.kind(), "the working directory is gone"),
        _ => e,
    };
    let absolute = std::path::absolute(named).map_err(gone)?;
    let here = std::fs::canonicalize(here).ok();
    let is_here = |path: &Path| here.is_some() && std::fs::canonicalize(path).ok() == here;
    let mut real = PathBuf::new();
    let mut below = false;
    for part in absolute.components() {
        real.push(part);
        let link = std::fs::symlink_metadata(&real).is_ok_and(|m| m.is_symlink());
        if below && link {
            return Err(refuse(format!("{}: {LINK} below the working directory", real.display())));
        }
        if link || part == Component::ParentDir {
            real = std::fs::canonicalize(&real)?;
        }
        below = below || is_here(&real);
    }
    Ok(real)
}

/// Whether two files hold the same bytes.
///
/// # Errors
/// An I/O error.
pub fn same(one: File, other: File) -> io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (BufReader::with_capacity(1 << 16, one), BufReader::with_capacity(1 << 16, other));
    loop {
        let (a, b) = (one.fill_buf()?, other.fill_buf()?);
        let n = a.len().min(b.len());
        if a[..n] != b[..n] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(a.is_empty() && b.is_empty());
        }
        one.consume(n);
        other.consume(n);
    }
}

/// A path as text, for documents that hold text alone: bytes that are not UTF-8 are replaced.
#[must_use]
pub fn text(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode};
    use std::{
        io::Write as _,
        os::unix::fs::{PermissionsExt, symlink},
    };

    fn fifo(path: &Path) {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    #[test]
    fn what_is_ours_is_made_written_and_read() {
        let tmp = tempfile::tempdir().unwrap();
        let tree = Tree::at(tmp.path());
        let at = |name: &str| tmp.path().join(name);
        tree.make_dir(&at("a/b")).unwrap();
        assert_eq!(at("a/b").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        tree.create(&at("a/b/new")).unwrap().write_all(b"one").unwrap();
        assert_eq!(tree.create(&at("a/b/new")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        tree.append(&at("a/b/new")).unwrap().write_all(b" two").unwrap();
        assert_eq!(tree.read(&at("a/b/new"), 7).unwrap(), b"one two");
        assert!(is_refusal(&tree.read(&at("a/b/new"), 6).unwrap_err()));
        tree.replace(&at("a/b/staged"), &at("a/b/new"), b"three", true).unwrap();
        assert_eq!(tree.read(&at("a/b/new"), 99).unwrap(), b"three");
        assert_eq!(tree.names(&at("a/b")).unwrap(), ["new"]);
        tree.remove(&at("a/b/new")).unwrap();
        tree.remove(&at("a/b/new")).unwrap();
        assert!(!tree.exists(&at("a/b/new")) && tree.names(&at("nowhere")).unwrap().is_empty());
        for outside in [Path::new("/etc/passwd"), &at("../x"), &at("a/../../x")] {
            assert_eq!(tree.append(outside).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{outside:?}");
        }
        assert_eq!(Tree::refused(tmp.path(), "no").open(&at("x")).unwrap_err().to_string(), "no");
    }

    #[test]
    fn whatever_else_has_the_name_is_refused_at_once_and_left() {
        let (tmp, canary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tree = Tree::at(tmp.path());
        let at = |name: &str| tmp.path().join(name);
        let precious = canary.path().join("precious");
        std::fs::write(&precious, "precious").unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        fifo(&at("fifo"));
        symlink(&precious, at("link")).unwrap();
        symlink(canary.path().join("made"), at("dangling")).unwrap();
        std::fs::hard_link(&precious, at("hard")).unwrap();
        std::fs::write(at("open"), "x").unwrap();
        std::fs::set_permissions(at("open"), PermissionsExt::from_mode(0o666)).unwrap();
        drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
        for name in ["dir", "fifo", "link", "dangling", "hard", "open", "socket"] {
            for opened in [tree.open(&at(name)), tree.append(&at(name)), tree.append_existing(&at(name))] {
                assert!(is_refusal(&opened.unwrap_err()), "{name}");
            }
            assert!(tree.create(&at(name)).is_err(), "{name}");
            // For reading, who it belongs to does not matter.
            assert_eq!(plain(&at(name)).is_ok(), matches!(name, "hard" | "open"), "{name}");
            assert_eq!(named(&at(name)).is_ok(), matches!(name, "hard" | "open" | "link"), "{name}");
        }
        for device in ["/dev/zero", "/dev/tty", "/dev/null"] {
            assert!(plain(Path::new(device)).is_err() && named(Path::new(device)).is_err());
        }
        // A link is removed, not what it leads to; and a name is replaced, not what it leads to.
        tree.replace(&at("staged"), &at("hard"), b"x", false).unwrap();
        tree.replace(&at("dangling"), &at("link"), b"x", false).unwrap();
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(canary.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_directory_on_the_way_is_a_link_or_open_to_others() {
        let (tmp, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| tmp.path().join(name);
        std::fs::create_dir(elsewhere.path().join("sub")).unwrap();
        std::fs::write(elsewhere.path().join("sub/file"), "x").unwrap();
        symlink(elsewhere.path(), at("link")).unwrap();
        std::fs::create_dir_all(at("open/sub")).unwrap();
        std::fs::set_permissions(at("open"), PermissionsExt::from_mode(0o770)).unwrap();
        std::fs::write(at("file"), "x").unwrap();
        let tree = Tree::at(tmp.path());
        for path in ["link/sub/file", "link/file", "open/sub/file", "open/file", "file/file"] {
            let path = at(path);
            assert!(is_refusal(&tree.append(&path).unwrap_err()), "{path:?}");
            assert!(is_refusal(&tree.create(&path).unwrap_err()), "{path:?}");
            assert!(is_refusal(&tree.make_dir(&path).unwrap_err()), "{path:?}");
            assert!(is_refusal(&tree.remove(&path).unwrap_err()), "{path:?}");
            assert!(is_refusal(&tree.replace(&path, &path, b"", false).unwrap_err()), "{path:?}");
            assert!(is_refusal(&tree.names(path.parent().unwrap()).unwrap_err()), "{path:?}");
        }
        assert!(elsewhere.path().join("sub/file").exists());
        // The root may be reached through a link, and must be ours.
        let link = elsewhere.path().join("root");
        symlink(tmp.path(), &link).unwrap();
        assert!(is_own_dir(tmp.path()) && !is_own_dir(&link) && !is_own_dir(&at("open")) && !is_own_dir(&at("file")));
        assert!(Tree::at(&link).append(&link.join("made")).is_ok());
        std::fs::set_permissions(tmp.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(is_refusal(&tree.append(&at("made")).unwrap_err()));
    }

    #[test]
    fn the_same_bytes_are_the_same_and_nothing_else_is() {
        let tmp = tempfile::tempdir().unwrap();
        let long = vec![7; 200_000];
        let (mut other, mut longer) = (long.clone(), long.clone());
        other[199_999] = 8;
        longer.push(7);
        let open = |bytes: &[u8]| {
            std::fs::write(tmp.path().join("f"), bytes).unwrap();
            let file = File::open(tmp.path().join("f")).unwrap();
            std::fs::remove_file(tmp.path().join("f")).unwrap();
            file
        };
        assert!(same(open(&long), open(&long)).unwrap() && same(open(b""), open(b"")).unwrap());
        assert!(!same(open(&long), open(&other)).unwrap() && !same(open(&long), open(&longer)).unwrap());
    }

    #[test]
    fn a_file_that_never_ends_is_not_read() {
        let tmp = tempfile::tempdir().unwrap();
        let giant = tmp.path().join("giant");
        File::create(&giant).unwrap().set_len(1 << 40).unwrap();
        assert!(is_refusal(&Tree::at(tmp.path()).read(&giant, 1 << 20).unwrap_err()));
    }

    #[test]
    fn a_directory_that_others_may_enter_and_a_file_that_they_may_write_are_not_ours() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        let mode = |name: &str, mode| std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
        let dir = exclusive_dir(&at("run")).unwrap();
        exclusive_dir(&at("run")).unwrap();
        assert_eq!(at("run").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        create_in(&dir, "ring").unwrap();
        assert!(create_in(&dir, "ring").is_err());
        open_own(&at("run/ring")).unwrap();
        mode("run/ring", 0o620);
        symlink(at("run/ring"), at("link")).unwrap();
        fifo(&at("fifo"));
        for name in ["run/ring", "link", "fifo", "run"] {
            let e = open_own(&at(name)).unwrap_err();
            assert!(is_refusal(&e) || name == "run", "{name}: {e}");
        }
        mode("run", 0o710);
        assert!(is_refusal(&exclusive_dir(&at("run")).unwrap_err()));
        symlink(at("run"), at("way")).unwrap();
        assert!(exclusive_dir(&at("way")).is_err() && open_dir(&at("way")).is_err());
    }

    #[test]
    fn a_lock_is_waited_for_no_longer_than_was_said() {
        use std::time::Duration;
        let tmp = tempfile::tempdir().unwrap();
        let open = || open_dir(tmp.path()).unwrap();
        let (one, two) = (open(), open());
        assert_eq!(try_lock_shared(&one).unwrap(), Lock::Taken);
        assert_eq!(try_lock_shared(&two).unwrap(), Lock::Taken);
        assert_eq!(patiently(Duration::ZERO, || try_lock(&one)).unwrap(), Lock::Busy);
        let mut tries = 0;
        let freed = patiently(Duration::MAX, || {
            tries += 1;
            Ok(if tries < 3 { Lock::Busy } else { Lock::Taken })
        });
        assert_eq!((freed.unwrap(), tries), (Lock::Taken, 3));
    }
}
