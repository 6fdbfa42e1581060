//! Reading lines at any place of a file, with bounded memory.

use std::{fs::File, io, os::unix::fs::FileExt as _};

/// Read at once.
const CHUNK: usize = 256 << 10;
/// The longest line whose bytes are given, in bytes (as in the verifier).
pub const MAX_LINE: usize = 64 << 20;
/// Lines whose key cannot be read that bisection passes over.
const UNREADABLE: u32 = 16;

/// A whole line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineAt<'a> {
    /// Its number, from 0.
    pub number: u64,
    /// Offset of its first byte.
    pub offset: u64,
    /// Its length in bytes without its line feed.
    pub len: u64,
    /// Its bytes; `None` if it is longer than [`MAX_LINE`].
    pub bytes: Option<&'a [u8]>,
}

/// Gives the lines from `offset` on, where the line with this number begins, until `each` says that it is enough. Returns how
/// many bytes stand behind the last whole one, if the end was reached.
///
/// # Errors
/// What the system says.
pub fn read(
    file: &File,
    mut number: u64,
    mut offset: u64,
    each: &mut dyn FnMut(LineAt<'_>) -> bool,
) -> io::Result<Option<u64>> {
    let mut buffer = Vec::new();
    let mut size = CHUNK;
    loop {
        let got = fill(file, &mut buffer, size, offset)?;
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', got) {
            let line = LineAt {
                number,
                offset: offset + start as u64,
                len: (end - start) as u64,
                bytes: Some(&got[start..end]),
            };
            if !each(line) {
                return Ok(None);
            }
            number += 1;
            start = end + 1;
        }
        offset += start as u64;
        if start > 0 {
            if size > 4 * CHUNK {
                buffer = Vec::new();
            }
            size = CHUNK;
            continue;
        }
        if got.len() < size {
            return Ok(Some(got.len() as u64));
        }
        size *= 2;
        if size > MAX_LINE {
            buffer = Vec::new();
            let Some(end) = next_end(file, offset)? else {
                return Ok(Some(file.metadata()?.len().saturating_sub(offset)));
            };
            if !each(LineAt { number, offset, len: end - offset, bytes: None }) {
                return Ok(None);
            }
            number += 1;
            offset = end + 1;
            size = CHUNK;
        }
    }
}

/// Reads up to `size` bytes; fewer are the end of the file.
fn fill<'a>(file: &File, buffer: &'a mut Vec<u8>, size: usize, offset: u64) -> io::Result<&'a [u8]> {
    buffer.resize(buffer.len().max(size), 0);
    let mut have = 0;
    while have < size {
        match file.read_at(&mut buffer[have..size], offset + have as u64) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(&buffer[..have])
}

/// Offset of the first line feed at or behind `offset`.
fn next_end(file: &File, mut offset: u64) -> io::Result<Option<u64>> {
    let mut buffer = Vec::new();
    loop {
        let got = fill(file, &mut buffer, CHUNK, offset)?;
        if let Some(at) = memchr::memchr(b'\n', got) {
            return Ok(Some(offset + at as u64));
        }
        if got.len() < CHUNK {
            return Ok(None);
        }
        offset += CHUNK as u64;
    }
}

/// The last whole line of a file of `len` bytes, if it is not longer than [`MAX_LINE`].
pub fn last(file: &File, len: u64) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = Vec::new();
    let mut size = 4096;
    loop {
        let from = len.saturating_sub(size as u64);
        let want = usize::try_from(len - from).unwrap_or(size);
        let got = fill(file, &mut buffer, want, from)?;
        if let Some(end) = memchr::memrchr(b'\n', got) {
            match memchr::memrchr(b'\n', &got[..end]) {
                Some(before) => return Ok(Some(got[before + 1..end].to_vec())),
                None if from == 0 => return Ok(Some(got[..end].to_vec())),
                None => {}
            }
        }
        if from == 0 || size > MAX_LINE {
            return Ok(None);
        }
        size *= 4;
    }
}

/// Offset of a line at or shortly before the first whose key is not below `wanted`, in a file of `len` bytes whose lines are
/// ordered by their keys.
pub fn bisect<K: Ord>(file: &File, len: u64, key: &dyn Fn(&[u8]) -> Option<K>, wanted: &K) -> io::Result<u64> {
    let (mut low, mut high) = (0, len);
    while high - low > CHUNK as u64 {
        let middle = low + (high - low) / 2;
        let below = match next_end(file, middle)? {
            Some(end) if end + 1 < high => {
                let (mut found, mut tries) = (None, UNREADABLE);
                read(file, 0, end + 1, &mut |line| {
                    found = line.bytes.and_then(key).map(|k| (line.offset, k));
                    tries -= 1;
                    found.is_none() && tries > 0 && line.offset + line.len < high
                })?;
                found.filter(|(at, k)| *at < high && k < wanted).map(|(at, _)| at)
            }
            _ => None,
        };
        match below {
            Some(at) => low = at,
            None => high = middle,
        }
    }
    Ok(low)
}
