//! Finding the bytes of a string that need no attention: most of any message.

/// Longest run handled at once: small enough to still be in the cache when it is copied or hashed after it was looked at.
pub(super) const RUN: usize = 64 * 1024;

/// Bytes from some position on that need no escape.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Where the run ends: at a quote, a backslash, a control byte, the end of input, or after [`RUN`] bytes.
    pub end: usize,
    /// Whether it is all ASCII.
    pub ascii: bool,
}

const fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

pub(super) const HIGH: u64 = splat(0x80);

/// Marks, by their high bit, the bytes of `word` that end a run. Borrows can set bits above the lowest true one, so only
/// the lowest is meaningful.
#[inline]
const fn stops(word: u64) -> u64 {
    let ones = splat(1);
    let quote = word ^ splat(b'"');
    let slash = word ^ splat(b'\\');
    (quote.wrapping_sub(ones) & !quote
        | slash.wrapping_sub(ones) & !slash
        | word.wrapping_sub(splat(0x20)) & !word)
        & HIGH
}

/// Whether the block has a byte that ends a run, and the union of its bytes. Branch-free so that it becomes vector code.
#[inline]
fn survey(block: &[u8; 64]) -> (bool, u8) {
    let mut stop = 0u8;
    let mut union = 0u8;
    for &byte in block {
        stop |= u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\');
        union |= byte;
    }
    (stop != 0, union)
}

#[inline]
fn word(window: &[u8], at: usize) -> Option<u64> {
    window
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map(|word| u64::from_le_bytes(*word))
}

/// Four words at once: lines of text end within some of them, so vector code would look at most of them twice.
#[inline]
fn words(window: &[u8], at: usize) -> Option<[u64; 4]> {
    let block = window.get(at..).and_then(<[u8]>::first_chunk::<32>)?;
    let (words, _) = block.as_chunks::<8>();
    Some([words[0], words[1], words[2], words[3]].map(u64::from_le_bytes))
}

/// Runs longer than this are looked at in larger blocks.
const LINE: usize = 256;

/// The run that starts at `start`. A run cut for its length is cut between characters.
#[inline]
pub(super) fn run(bytes: &[u8], start: usize) -> Run {
    let window = bytes
        .get(start..bytes.len().min(start.saturating_add(RUN)))
        .unwrap_or_default();
    let mut at = 0;
    let mut high = 0u64;
    // Most names are short.
    if let Some(word) = word(window, at) {
        let found = stops(word);
        if found != 0 {
            return finish(start, at, word, found, high);
        }
        high |= word;
        at += 8;
    }
    while at < LINE
        && let Some(words) = words(window, at)
    {
        let found = words.map(stops);
        if found[0] | found[1] | found[2] | found[3] != 0 {
            for (word, found) in words.into_iter().zip(found) {
                if found != 0 {
                    return finish(start, at, word, found, high);
                }
                high |= word;
                at += 8;
            }
        }
        high |= words[0] | words[1] | words[2] | words[3];
        at += 32;
    }
    rest(bytes, start, window, at, high)
}

/// The end of a run that is long or close to the end of the input.
#[inline(never)]
fn rest(bytes: &[u8], start: usize, window: &[u8], mut at: usize, mut high: u64) -> Run {
    let mut union = 0u8;
    while let Some(block) = window.get(at..).and_then(<[u8]>::first_chunk) {
        let (stop, seen) = survey(block);
        if stop {
            break;
        }
        union |= seen;
        at += 64;
    }
    high |= u64::from(union);
    while let Some(word) = word(window, at) {
        let found = stops(word);
        if found != 0 {
            return finish(start, at, word, found, high);
        }
        high |= word;
        at += 8;
    }
    while let Some(&byte) = window.get(at) {
        if byte < 0x20 || byte == b'"' || byte == b'\\' {
            return Run {
                end: start + at,
                ascii: high & HIGH == 0,
            };
        }
        high |= u64::from(byte);
        at += 1;
    }
    let ascii = high & HIGH == 0;
    let end = if ascii {
        start + at
    } else {
        cut(bytes, start, start + at)
    };
    Run { end, ascii }
}

#[inline]
fn finish(start: usize, at: usize, word: u64, found: u64, high: u64) -> Run {
    let offset = (found.trailing_zeros() / 8) as usize;
    let before = word & ((1u64 << (offset * 8)) - 1);
    Run {
        end: start + at + offset,
        ascii: (high | before) & HIGH == 0,
    }
}

/// Moves a cut at `end` back so that it does not split a character.
fn cut(bytes: &[u8], start: usize, end: usize) -> usize {
    (0..4)
        .filter_map(|back| end.checked_sub(back))
        .take_while(|&at| at > start)
        .find(|&at| bytes.get(at).is_none_or(|byte| byte & 0xC0 != 0x80))
        .unwrap_or(end)
}
