//! Finding the bytes of a string that can stay as they are: most of any message.

/// Longest section handled at once: small enough to still be in the cache when it is copied or hashed after it was looked
/// at, large enough not to matter otherwise.
pub(super) const SECTION: usize = 64 * 1024;

/// Stretches longer than this are looked at in larger blocks.
const LINE: usize = 256;

/// A part of a string that RFC 8785 §3.2.2.2 writes verbatim, if it is UTF-8: plain characters and minimal escapes.
#[derive(Clone, Copy)]
pub(super) struct Section {
    /// Where it ends: at a quote, a control byte, another escape, or the end of input, unless it was cut.
    pub end: usize,
    /// Whether it was cut, between characters, for its length alone.
    pub cut: bool,
    /// Whether it is all ASCII.
    pub ascii: bool,
    /// Whether it has escapes.
    pub escaped: bool,
}

const fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

pub(super) const HIGH: u64 = splat(0x80);

/// Marks, by their high bit, the bytes of `word` that are a quote, a backslash or a control. Borrows can set bits above the
/// lowest true one, so only the lowest is meaningful.
#[inline]
const fn stops(word: u64) -> u64 {
    let ones = splat(1);
    let quote = word ^ splat(b'"');
    let slash = word ^ splat(b'\\');
    (quote.wrapping_sub(ones) & !quote | slash.wrapping_sub(ones) & !slash | word.wrapping_sub(splat(0x20)) & !word)
        & HIGH
}

/// Whether the block has such a byte, and the union of its bytes. Branch-free so that it becomes vector code.
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
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|word| u64::from_le_bytes(*word))
}

/// Four words at once: lines of text end within some of them, where a larger block would be looked at twice.
#[inline]
fn words(bytes: &[u8], at: usize) -> Option<[u64; 4]> {
    let block = bytes.get(at..).and_then(<[u8]>::first_chunk::<32>)?;
    let (words, _) = block.as_chunks::<8>();
    Some([words[0], words[1], words[2], words[3]].map(u64::from_le_bytes))
}

/// A walk over plain bytes.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Union of the bytes passed, in any of its eight lanes.
    union: u64,
}

impl Walk<'_> {
    /// Stops at the lowest byte that is marked in `found`, inside of the word at the current position.
    #[inline]
    fn stop(&mut self, word: u64, found: u64) {
        let offset = (found.trailing_zeros() / 8) as usize;
        self.union |= word & ((1u64 << (offset * 8)) - 1);
        self.at += offset;
    }

    #[inline]
    fn by_word(&mut self, word: u64) -> bool {
        let found = stops(word);
        if found == 0 {
            self.union |= word;
            self.at += 8;
        } else {
            self.stop(word, found);
        }
        found != 0
    }

    /// Goes to the next quote, backslash or control, to the end of input, or somewhere after `limit`.
    #[inline]
    fn plain(&mut self, limit: usize) {
        // Escapes often follow each other closely.
        if let Some(word) = word(self.bytes, self.at)
            && self.by_word(word)
        {
            return;
        }
        let line = limit.min(self.at + LINE);
        while self.at < line
            && let Some(words) = words(self.bytes, self.at)
        {
            let found = words.map(stops);
            if found[0] | found[1] | found[2] | found[3] != 0 {
                for word in words {
                    if self.by_word(word) {
                        return;
                    }
                }
            }
            self.union |= words[0] | words[1] | words[2] | words[3];
            self.at += 32;
        }
        self.long(limit);
    }

    /// [`plain`](Self::plain) for what is long or close to the end of input.
    #[inline(never)]
    fn long(&mut self, limit: usize) {
        while self.at < limit
            && let Some(block) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk)
        {
            let (stop, union) = survey(block);
            if stop {
                break;
            }
            self.union |= u64::from(union);
            self.at += 64;
        }
        while self.at < limit
            && let Some(word) = word(self.bytes, self.at)
        {
            if self.by_word(word) {
                return;
            }
        }
        while self.at < limit
            && let Some(&byte) = self.bytes.get(self.at)
        {
            if byte < 0x20 || byte == b'"' || byte == b'\\' {
                return;
            }
            self.union |= u64::from(byte);
            self.at += 1;
        }
    }
}

/// The section that starts at `start`. Never empty where the byte at `start` belongs into one.
#[inline]
pub(super) fn section(bytes: &[u8], start: usize) -> Section {
    // Most names and many values end within a word, and escapes that are not minimal often follow each other.
    if let Some(word) = word(bytes, start) {
        let found = stops(word);
        let offset = found.trailing_zeros() / 8;
        if found != 0 && word >> (8 * offset) & 0xFF == u64::from(b'"') {
            let ascii = word & HIGH & ((1 << (8 * offset)) - 1) == 0;
            let end = start + offset as usize;
            return Section { end, cut: false, ascii, escaped: false };
        }
        if word & 0xFF == u64::from(b'\\') && minimal_escape(bytes, start).is_none() {
            return Section { end: start, cut: false, ascii: true, escaped: false };
        }
    }
    long_section(bytes, start)
}

fn long_section(bytes: &[u8], start: usize) -> Section {
    let limit = bytes.len().min(start.saturating_add(SECTION));
    let mut walk = Walk { bytes, at: start, union: 0 };
    let mut escaped = false;
    walk.plain(limit);
    while bytes.get(walk.at) == Some(&b'\\')
        && let Some(length) = minimal_escape(bytes, walk.at)
    {
        escaped = true;
        walk.at += length;
        if walk.at >= limit {
            break;
        }
        walk.plain(limit);
    }
    let ascii = walk.union & HIGH == 0;
    let end = if ascii { walk.at } else { between_characters(bytes, start, walk.at) };
    let cut = walk.at >= limit && walk.at < bytes.len();
    Section { end, cut, ascii, escaped }
}

/// The length of the escape at `at` if it is the one that RFC 8785 §3.2.2.2 writes for its character.
#[inline]
fn minimal_escape(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at + 1)? {
        b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => match bytes.get(at + 2..at + 6)? {
            [b'0', b'0', b'0', b'0'..=b'7' | b'b' | b'e' | b'f'] | [b'0', b'0', b'1', b'0'..=b'9' | b'a'..=b'f'] => {
                Some(6)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Moves an end back so that it does not split a character.
fn between_characters(bytes: &[u8], start: usize, end: usize) -> usize {
    (0..4)
        .filter_map(|back| end.checked_sub(back))
        .take_while(|&at| at > start)
        .find(|&at| bytes.get(at).is_none_or(|byte| byte & 0xC0 != 0x80))
        .unwrap_or(end)
}
