//! What programs do to files on their way, without anybody's intent: named, so that nobody looks for an attacker.

use crate::{report::VerifyReport, source::PackDir};
use std::{collections::BTreeSet, io::Read as _};

/// Bytes of a file that are looked at.
const HEAD: u64 = 64 << 10;

/// What became of a file, if its first bytes show it. No file of a pack looks so when it is built.
#[must_use]
pub fn spoiled(head: &[u8]) -> Option<&'static str> {
    if head.starts_with(b"version https://git-lfs.github.com/spec/") {
        Some("it is a Git LFS pointer, not the file itself: git lfs pull brings it")
    } else if head.starts_with(b"\xef\xbb\xbf") {
        Some("it begins with a byte order mark, which an editor or a shell has put there: get the original")
    } else if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        Some("it is UTF-16: a program has converted it; get the original")
    } else if head.windows(2).any(|pair| pair == b"\r\n") {
        Some(
            "its lines end in CR LF: a program has changed them, as Git does with core.autocrlf; get the original, and put `-text` for it into .gitattributes",
        )
    } else {
        None
    }
}

/// Says of the files in which something was found what became of them.
pub fn name(dir: &PackDir, report: &mut VerifyReport) {
    let files: BTreeSet<&str> = report.errors.iter().filter_map(|finding| finding.file.as_deref()).collect();
    let look = |file: &str| {
        let (file, _) = dir.open_file(file).ok()?;
        let mut head = Vec::new();
        file.take(HEAD).read_to_end(&mut head).ok()?;
        spoiled(&head)
    };
    let said: Vec<String> = files.into_iter().filter_map(|file| Some(format!("{file}: {}", look(file)?))).collect();
    report.warnings.extend(said);
}
