//! Reading evidence files of a session that may still be growing: whole lines, up to where they are known to be good.

use super::lines;
use crate::model::{
    AuditEvent, ReceiptId, ToolCall,
    reading::{self, TooNew},
};
use std::{collections::BTreeSet, fs::File, io, os::unix::fs::FileExt as _, path::Path};

/// Read at once.
const CHUNK: usize = 256 << 10;
/// The longest line that is looked at; no recorder writes longer ones.
const MAX_LINE: usize = 64 << 20;

/// An evidence file, read line by line from any place.
#[derive(Debug)]
pub struct Lines {
    file: File,
    /// Offset of the first byte that was not given out.
    position: u64,
    buffer: Vec<u8>,
}

impl Lines {
    /// Opens a file at its beginning.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: crate::files::plain(path)?, position: 0, buffer: Vec::new() })
    }

    /// Length of the file in bytes now.
    ///
    /// # Errors
    /// What the system says.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Whether the file is empty now.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Offset of the next line.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Goes to the first line that begins at or behind `offset`.
    ///
    /// # Errors
    /// What the system says.
    pub fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.position = offset;
        if offset == 0 {
            return Ok(());
        }
        let mut at = offset - 1;
        let mut buffer = [0; 8192];
        loop {
            let n = self.file.read_at(&mut buffer, at)?;
            if let Some(end) = memchr::memchr(b'\n', &buffer[..n]) {
                self.position = at + end as u64 + 1;
                return Ok(());
            }
            at += n as u64;
            if n == 0 {
                self.position = at;
                return Ok(());
            }
        }
    }

    /// Gives the next lines before offset `limit`, a chunk of the file at most, without their line feeds. Returns whether
    /// there was any.
    ///
    /// # Errors
    /// What the system says; a line that is too long.
    pub fn next(&mut self, limit: u64, each: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let mut size = CHUNK;
        loop {
            let want = usize::try_from(limit.saturating_sub(self.position)).unwrap_or(usize::MAX).min(size);
            if want == 0 {
                return Ok(false);
            }
            self.buffer.resize(want, 0);
            let n = self.file.read_at(&mut self.buffer, self.position)?;
            if let Some(end) = memchr::memrchr(b'\n', &self.buffer[..n]) {
                let mut start = 0;
                for at in memchr::memchr_iter(b'\n', &self.buffer[..=end]) {
                    each(&self.buffer[start..at]);
                    start = at + 1;
                }
                self.position += end as u64 + 1;
                self.buffer.truncate(CHUNK);
                return Ok(true);
            }
            if n < size {
                return Ok(false);
            }
            size *= 2;
            if size > MAX_LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line of evidence is too long"));
            }
        }
    }

    /// Goes to the audit event with this `event_seq`, or the first behind it; the file's events are in order.
    ///
    /// # Errors
    /// What the system says.
    pub fn seek_event(&mut self, seq: u64) -> io::Result<()> {
        self.position = lines::bisect(&self.file, self.len()?, &event_seq, &seq)?;
        loop {
            let start = self.position;
            match self.peek()?.as_deref() {
                Some(line) if event_seq(line).is_some_and(|found| found < seq) => {
                    self.position = start + line.len() as u64 + 1;
                }
                _ => return Ok(()),
            }
        }
    }

    /// The next line, without going behind it.
    fn peek(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut size = 4096;
        loop {
            self.buffer.resize(size, 0);
            let n = self.file.read_at(&mut self.buffer, self.position)?;
            if let Some(end) = memchr::memchr(b'\n', &self.buffer[..n]) {
                return Ok(Some(self.buffer[..end].to_vec()));
            }
            if n < size || size > MAX_LINE {
                return Ok(None);
            }
            size *= 2;
        }
    }
}

/// `event_seq` of an audit event's line.
fn event_seq(line: &[u8]) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Seq {
        event_seq: u64,
    }
    serde_json::from_slice::<Seq>(line).ok().map(|s| s.event_seq)
}

/// Reads the audit events `from..to` of a segment, as far as they are there. Gives what there is to say of those that are of a
/// later version, which are passed over; what is damaged is for the verifier to name.
///
/// # Errors
/// What the system says.
pub fn events(path: &Path, from: u64, to: u64, each: &mut dyn FnMut(&AuditEvent)) -> io::Result<Option<TooNew>> {
    let mut too_new = None;
    let mut lines = Lines::open(path)?;
    lines.seek_event(from)?;
    let (limit, mut done) = (lines.len()?, false);
    while !done
        && lines.next(limit, &mut |line| {
            if done {
                return;
            }
            match serde_json::from_slice::<AuditEvent>(line) {
                Ok(e) if e.event_seq >= to => done = true,
                Ok(e) => each(&e),
                Err(_) => too_new = too_new.take().or_else(|| reading::newer::<AuditEvent>(line)),
            }
        })?
    {}
    Ok(too_new)
}

/// Reads the receipts of tool calls; of all, or of those in `wanted`. Receipts of a later version are passed over, as events are.
///
/// # Errors
/// What the system says.
pub fn calls(
    path: &Path,
    wanted: Option<&BTreeSet<ReceiptId>>,
    each: &mut dyn FnMut(&ToolCall),
) -> io::Result<Option<TooNew>> {
    let mut too_new = None;
    let mut lines = Lines::open(path)?;
    let limit = lines.len()?;
    while lines.next(limit, &mut |line| {
        if wanted.is_none_or(|w| receipt_id(line).is_none_or(|id| w.contains(&id))) {
            match serde_json::from_slice::<ToolCall>(line) {
                Ok(call) => each(&call),
                Err(_) => too_new = too_new.take().or_else(|| reading::newer_receipt(line)),
            }
        }
    })? {}
    Ok(too_new)
}

/// `receipt_id` of a receipt's canonical line, without parsing all of it; `None` if that is not sure.
fn receipt_id(line: &[u8]) -> Option<ReceiptId> {
    const MEMBER: &[u8] = b"\"receipt_id\":\"";
    let mut found = memchr::memmem::find_iter(line, MEMBER);
    let at = found.next()? + MEMBER.len();
    if found.next().is_some() {
        return None;
    }
    ReceiptId::parse(std::str::from_utf8(line.get(at..at + 20)?).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn only_whole_lines_before_the_limit_are_given() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one\ntwo\nthr").unwrap();
        let mut lines = Lines::open(file.path()).unwrap();
        let mut got = Vec::new();
        let mut take = |lines: &mut Lines, limit| {
            while lines.next(limit, &mut |l| got.push(String::from_utf8(l.to_vec()).unwrap())).unwrap() {}
            got.len()
        };
        assert_eq!(take(&mut lines, 6), 1);
        assert_eq!(take(&mut lines, u64::MAX), 2);
        file.write_all(b"ee\n").unwrap();
        assert_eq!(take(&mut lines, u64::MAX), 3);
        assert_eq!(got, ["one", "two", "three"]);
        lines.seek(1).unwrap();
        assert_eq!(lines.position(), 4);
        lines.seek(4).unwrap();
        assert_eq!(lines.position(), 4);
    }

    #[test]
    fn a_line_longer_than_a_chunk_is_given_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let long = "x".repeat(3 * CHUNK);
        file.write_all(format!("a\n{long}\nb\n").as_bytes()).unwrap();
        let mut lines = Lines::open(file.path()).unwrap();
        let mut got = Vec::new();
        while lines.next(u64::MAX, &mut |l| got.push(l.len())).unwrap() {}
        assert_eq!(got, [1, 3 * CHUNK, 1]);
    }

    #[test]
    fn any_event_is_found_by_its_number() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for seq in 0..20_000 {
            let pad = "p".repeat(seq % 300);
            file.write_all(format!("{{\"event_seq\":{seq},\"pad\":\"{pad}\"}}\n").as_bytes()).unwrap();
        }
        let mut lines = Lines::open(file.path()).unwrap();
        for seq in [0, 1, 17, 4_999, 10_000, 19_998, 19_999] {
            lines.seek_event(seq).unwrap();
            assert_eq!(lines.peek().unwrap().as_deref().and_then(event_seq), Some(seq));
        }
        lines.seek_event(20_000).unwrap();
        assert_eq!(lines.position(), lines.len().unwrap());
    }
}
