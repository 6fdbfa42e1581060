//! Which file a command names, and what was wrong with every candidate.

// Paths come from configuration files and are printed to terminals: escaped and quoted, not raw.
#![allow(clippy::unnecessary_debug_formatting)]

use rustix::fs::{Access, AtFlags};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// `PATH` where the environment has none, as `execvp` takes it.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// What is wrong with a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// There is no such file.
    Missing,
    /// It is a directory or something else that is not a file.
    NotAFile,
    /// We may not execute it.
    NotExecutable,
    /// It is a script, and the interpreter in its first line does not exist.
    BadInterpreter(PathBuf),
    /// It cannot be looked at.
    Unreachable(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no such file"),
            Self::NotAFile => f.write_str("not a file"),
            Self::NotExecutable => f.write_str("not executable"),
            Self::BadInterpreter(path) => {
                write!(f, "its first line names the interpreter {path:?}, which does not exist")?;
                if path.as_os_str().as_bytes().ends_with(b"\r") {
                    f.write_str("; the line ends in CR LF")?;
                }
                Ok(())
            }
            Self::Unreachable(why) => f.write_str(why),
        }
    }
}

/// A file that could have been the command, and why it is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// The file that was looked for.
    pub path: PathBuf,
    /// Why it will not do.
    pub why: Why,
}

/// A command that names nothing that can be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupError {
    /// The command as given.
    pub program: OsString,
    /// Everything that was looked at, in order.
    pub tried: Vec<Tried>,
    /// Whether it was looked for in the directories of `PATH` (else the command itself was a path).
    pub searched_path: bool,
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.searched_path {
            let why = self.tried.first().map_or(&Why::Missing, |tried| &tried.why);
            return write!(f, "cannot execute {:?}: {why}", self.program);
        }
        write!(f, "command {:?} not found in PATH; looked for", self.program)?;
        for (i, tried) in self.tried.iter().enumerate() {
            write!(f, "{} {:?} ({})", if i == 0 { "" } else { "," }, tried.path, tried.why)?;
        }
        if self.tried.is_empty() {
            f.write_str(" nothing (PATH is empty)")?;
        }
        Ok(())
    }
}

impl std::error::Error for LookupError {}

/// The file that `program` names: itself if it contains a slash, else the first in the directories of our `PATH` that
/// can be executed. The result is absolute or relative to the current directory, never searched again.
pub fn find_command(program: &OsStr) -> Result<PathBuf, LookupError> {
    find_in(program, &search_path(&[]))
}

/// Our `PATH` with these directories in front.
#[must_use]
pub fn search_path(front: &[PathBuf]) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut joined = OsString::new();
    for dir in front {
        joined.push(dir);
        joined.push(":");
    }
    joined.push(path);
    joined
}

/// As [`find_command`] with a given `PATH`.
///
/// # Errors
/// What was wrong with every candidate.
pub fn find_in(program: &OsStr, search: &OsStr) -> Result<PathBuf, LookupError> {
    let direct = program.as_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = if direct || program.is_empty() {
        vec![PathBuf::from(program)]
    } else {
        // An empty entry means the current directory.
        let entries = search.as_bytes().split(|&b| b == b':');
        entries.map(|dir| Path::new(OsStr::from_bytes(if dir.is_empty() { b"." } else { dir })).join(program)).collect()
    };
    let mut tried = Vec::new();
    for path in candidates {
        match check(&path) {
            None => return Ok(path),
            Some(why) => tried.push(Tried { path, why }),
        }
    }
    Err(LookupError { program: program.to_owned(), tried, searched_path: !direct && !program.is_empty() })
}

fn check(path: &Path) -> Option<Why> {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) => {
            return Some(match e.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Why::Missing,
                std::io::ErrorKind::PermissionDenied => Why::Unreachable("permission denied on the way".into()),
                _ => Why::Unreachable(e.to_string()),
            });
        }
    };
    if !meta.is_file() {
        return Some(Why::NotAFile);
    }
    if rustix::fs::accessat(rustix::fs::CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_err() {
        return Some(Why::NotExecutable);
    }
    let interpreter = interpreter(path)?;
    match std::fs::metadata(&interpreter) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some(Why::BadInterpreter(interpreter)),
        _ => None,
    }
}

/// The interpreter that a script's first line names.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut start = Vec::with_capacity(256);
    crate::files::named(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let name = line.split(|&b| b == b' ' || b == b'\t').find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(name.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn says_what_was_looked_for_and_where() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir_all(&a).unwrap();
        std::fs::create_dir_all(b.join("server")).unwrap();
        file(&a, "server", "#!/bin/sh\n", 0o644);
        let search = OsString::from(format!("{}:{}:/nowhere", a.display(), b.display()));
        let error = find_in(OsStr::new("server"), &search).unwrap_err();
        let text = error.to_string();
        assert_eq!(
            error.tried.iter().map(|t| t.why.clone()).collect::<Vec<_>>(),
            [Why::NotExecutable, Why::NotAFile, Why::Missing]
        );
        assert!(text.starts_with("command \"server\" not found in PATH; looked for \""), "{text}");
        assert!(text.contains("a/server\" (not executable), \""), "{text}");
        assert!(text.ends_with("\"/nowhere/server\" (no such file)"), "{text}");
    }

    #[test]
    fn the_first_that_can_be_executed_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir_all(&a).unwrap();
        std::fs::create_dir_all(&b).unwrap();
        file(&a, "server", "#!/no/such/interpreter -x\n", 0o755);
        let good = file(&b, "server", "#! /bin/sh\n", 0o755);
        let search = OsString::from(format!("{}:{}", a.display(), b.display()));
        assert_eq!(find_in(OsStr::new("server"), &search).unwrap(), good);
    }

    #[test]
    fn a_bad_interpreter_is_named_with_its_carriage_return() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path(), "s.sh", "#!/bin/sh\r\necho\r\n", 0o755);
        let text = find_in(path.as_os_str(), OsStr::new("")).unwrap_err().to_string();
        assert!(text.contains("\"/bin/sh\\r\", which does not exist; the line ends in CR LF"), "{text}");
    }

    #[test]
    fn a_path_is_not_searched_for() {
        let error = find_in(OsStr::new("./no-such-server"), OsStr::new("/bin")).unwrap_err();
        assert_eq!(error.to_string(), "cannot execute \"./no-such-server\": no such file");
        let error = find_in(OsStr::new(""), OsStr::new("/bin")).unwrap_err();
        assert_eq!(error.to_string(), "cannot execute \"\": no such file");
    }
}
