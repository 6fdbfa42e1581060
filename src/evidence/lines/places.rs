//! Single lines, and ends of files, looked for by offset.

use std::{fs::File, io, os::unix::fs::FileExt as _};

/// Longest line of a file of evidence, in bytes without its line feed. No recorder writes longer ones: what is stored of a
/// message is limited.
pub const MAX_LINE: usize = 64 << 20;
/// How much is read, hashed and parsed at a time, in bytes: small enough to stay in a core's cache between the three.
pub(super) const CHUNK: usize = 128 << 10;
/// Where the last line of most files begins, in bytes from their end.
const FIRST_REACH: u64 = 8 << 10;
/// Bytes after the last whole line of a file of payloads are never more: no message of that length is held.
const MAX_TORN_PAYLOAD: u64 = 4 << 30;
/// Bytes of such a file that are looked at at a time.
const PIECE: usize = 1 << 20;

/// The last line of a file that was written line by line, and where the good part ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoodTail {
    /// Byte offset just after the last good line.
    pub end: u64,
    /// That line, without its line feed; `None` for an empty file.
    pub last: Option<Vec<u8>>,
    /// Bytes after `end`: a torn write.
    pub torn: u64,
}

/// Reads once at an offset; 0 is the end of the file.
pub(super) fn read_some(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Fills a buffer from an offset on; it gives fewer bytes only at the end of the file.
///
/// # Errors
/// The system's error.
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match read_some(file, &mut buffer[have..], offset + have as u64)? {
            0 => break,
            n => have += n,
        }
    }
    Ok(have)
}

/// Offset of the first line feed at or after `offset`.
pub(super) fn next_end(file: &File, mut offset: u64) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let n = read_some(file, &mut buffer, offset)?;
        if let Some(at) = memchr::memchr(b'\n', &buffer[..n]) {
            return Ok(Some(offset + at as u64));
        }
        if n == 0 {
            return Ok(None);
        }
        offset += n as u64;
    }
}

/// The first `most` bytes of the line that begins at `offset`, without its line feed, and whether that is all of it.
///
/// # Errors
/// The system's error.
pub fn at(file: &File, offset: u64, most: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut line = Vec::new();
    loop {
        let have = line.len();
        line.resize(most.min(have + CHUNK), 0);
        let n = read_at(file, &mut line[have..], offset + have as u64)?;
        let end = memchr::memchr(b'\n', &line[have..have + n]).map(|at| have + at);
        let is_end = n < line.len() - have;
        line.truncate(end.unwrap_or(have + n));
        if end.is_some() || is_end {
            return Ok((line, true));
        }
        if line.len() == most {
            return Ok((line, false));
        }
    }
}

/// The last `most` bytes of the line that ends right before `offset`, without its line feed.
///
/// # Errors
/// The system's error.
pub fn before(file: &File, offset: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut reach = CHUNK.min(most + 1);
    loop {
        let from = offset.saturating_sub(reach as u64);
        let mut window = vec![0; usize::try_from(offset - from).map_err(io::Error::other)?];
        let n = read_at(file, &mut window, from)?;
        window.truncate(n);
        if window.last() == Some(&b'\n') {
            window.pop();
        }
        let start = memchr::memrchr(b'\n', &window);
        if start.is_none() && from > 0 && reach <= most {
            reach = (reach * 4).min(most + 1);
            continue;
        }
        let start = start.map_or(0, |at| at + 1).max(window.len().saturating_sub(most));
        return Ok(window.split_off(start));
    }
}

/// The last whole line of a file that `is_good`, and the torn bytes after it. Zeros at the end, as some file systems
/// leave them after a power cut, are torn too, as is a line that is not good although a line feed ends it.
///
/// # Errors
/// The system's error; or no good line within the length of a torn line and a whole one from the end.
pub fn good_tail(file: &File, is_good: &dyn Fn(&[u8]) -> bool) -> io::Result<GoodTail> {
    const MOST: u64 = 2 * MAX_LINE as u64;
    let mut reach = FIRST_REACH;
    loop {
        match tail_within(file, is_good, reach)? {
            Some(tail) => return Ok(tail),
            None if reach < MOST => reach = (reach * 8).min(MOST),
            None => return Err(io::Error::new(io::ErrorKind::InvalidData, "no whole line at the end of the file")),
        }
    }
}

/// [`good_tail`] if it is in the last `reach` bytes.
fn tail_within(file: &File, is_good: &dyn Fn(&[u8]) -> bool, reach: u64) -> io::Result<Option<GoodTail>> {
    let len = file.metadata()?.len();
    let start = len.saturating_sub(reach);
    let mut window = vec![0; usize::try_from(len - start).map_err(io::Error::other)?];
    file.read_exact_at(&mut window, start)?;
    let mut end = memchr::memrchr(b'\n', &window).map_or(0, |at| at + 1);
    while end > 0 {
        let line_start = match memchr::memrchr(b'\n', &window[..end - 1]) {
            Some(at) => at + 1,
            // Its beginning is further back.
            None if start > 0 => return Ok(None),
            None => 0,
        };
        let line = &window[line_start..end - 1];
        if is_good(line) {
            let torn = (window.len() - end) as u64;
            return Ok(Some(GoodTail { end: start + end as u64, last: Some(line.to_vec()), torn }));
        }
        end = line_start;
    }
    Ok((start == 0).then_some(GoodTail { end: 0, last: None, torn: len }))
}

/// As [`good_tail`], for objects of any size: the last whole line is the last one that ends as one, and it is not looked at.
///
/// # Errors
/// The system's error; or no such end in the last 4 GiB.
pub fn good_end(file: &File) -> io::Result<GoodTail> {
    let len = file.metadata()?.len();
    let mut window = vec![0; PIECE];
    let mut upto = len;
    while upto > 0 {
        if len - upto > MAX_TORN_PAYLOAD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no whole line in the last 4 GiB of the file"));
        }
        // One byte of the next piece is looked at again: an end has two bytes.
        let start = upto.saturating_sub(PIECE as u64);
        let window = &mut window[..usize::try_from(upto - start).map_err(io::Error::other)?];
        file.read_exact_at(window, start)?;
        if let Some(at) = memchr::memmem::rfind(window, b"}\n") {
            let end = start + at as u64 + 2;
            return Ok(GoodTail { end, last: None, torn: len - end });
        }
        upto = if start == 0 { 0 } else { start + 1 };
    }
    Ok(GoodTail { end: 0, last: None, torn: len })
}
