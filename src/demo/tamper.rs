//! A copy of a pack with one byte changed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The byte that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file in the copy.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: u64,
    /// Offset in the file, from 0.
    pub offset: u64,
    /// The text around the change.
    pub before: String,
    /// What is there now.
    pub after: String,
}

/// Copies the directory `from`, and all below it, to `to`, which must not exist.
///
/// # Errors
/// What the system says; anything but files and directories is refused.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &target)?;
        } else {
            let what = format!("{} is neither a file nor a directory", entry.path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    }
    Ok(())
}

/// Changes the first digit of the number member `member` in the first line of `file` that contains `marker`.
///
/// # Errors
/// What the system says; no such line or member.
pub fn change_digit(file: &Path, marker: &str, member: &str) -> io::Result<Change> {
    let mut bytes = fs::read(file)?;
    let missing = || io::Error::new(io::ErrorKind::InvalidData, format!("no line with {marker} and a number {member}"));
    let key = format!("\"{member}\":");
    let mut start = 0;
    for (index, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let end = start + line.len();
        let marked = memchr::memmem::find(line, marker.as_bytes()).is_some();
        let digit = memchr::memmem::find(line, key.as_bytes()).map(|at| start + at + key.len());
        if let Some(at) = digit.filter(|at| marked && *at < end && bytes[*at].is_ascii_digit()) {
            let shown = |bytes: &[u8]| {
                let rest = &bytes[at - key.len()..end];
                let len = rest.iter().position(|b| matches!(b, b',' | b'}')).unwrap_or(rest.len());
                String::from_utf8_lossy(&rest[..len]).into_owned()
            };
            let before = shown(&bytes);
            bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
            let after = shown(&bytes);
            fs::write(file, &bytes)?;
            return Ok(Change { file: file.to_owned(), line: index as u64 + 1, offset: at as u64, before, after });
        }
        start = end + 1;
    }
    Err(missing())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_is_changed_and_named() {
        let tmp = tempfile::tempdir().unwrap();
        let (from, to) = (tmp.path().join("a"), tmp.path().join("b"));
        fs::create_dir_all(from.join("sub")).unwrap();
        let text = "{\"duration_ms\":7,\"tool\":\"x\"}\n{\"duration_ms\":913.25,\"tool\":\"slow\"}\n";
        fs::write(from.join("r.jsonl"), text).unwrap();
        fs::write(from.join("sub/s"), "s").unwrap();
        copy(&from, &to).unwrap();
        assert!(copy(&from, &to).is_err(), "nothing is overwritten");
        let file = to.join("r.jsonl");
        let change = change_digit(&file, "\"tool\":\"slow\"", "duration_ms").unwrap();
        assert_eq!((change.line, change.offset), (2, 44));
        assert_eq!((&*change.before, &*change.after), ("\"duration_ms\":913.25", "\"duration_ms\":113.25"));
        let changed = fs::read(&file).unwrap();
        assert_eq!(text.bytes().zip(changed).filter(|(a, b)| a != b).count(), 1);
        assert_eq!(fs::read_to_string(from.join("r.jsonl")).unwrap(), text);
        assert_eq!(fs::read_to_string(to.join("sub/s")).unwrap(), "s");
        assert!(change_digit(&file, "\"tool\":\"none\"", "duration_ms").is_err());
        assert!(change_digit(&file, "\"tool\":\"slow\"", "tool").is_err());
    }
}
