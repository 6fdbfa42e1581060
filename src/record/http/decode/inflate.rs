//! `gzip` and `deflate`.

use super::{Coding, Stage, Undecoded};
use flate2::{Crc, Decompress, FlushDecompress, Status};

/// A header of a gzip member that is longer is damaged: names and comments in it are a line each.
const MAX_HEADER: usize = 16 << 10;
/// What inflating needs.
const MEMORY: usize = 48 << 10;

/// Inflates; how many bytes were given (`None`: nothing happened), and whether the data ended.
fn inflate(
    data: &mut Decompress,
    input: &mut &[u8],
    out: &mut [u8],
) -> Result<(Option<usize>, bool), flate2::DecompressError> {
    let before = (data.total_in(), data.total_out());
    let ended = data.decompress(input, out, FlushDecompress::None)? == Status::StreamEnd;
    let (taken, given) = (data.total_in() - before.0, (data.total_out() - before.1) as usize);
    *input = &input[taken as usize..];
    Ok(((taken > 0 || given > 0 || ended).then_some(given), ended))
}

/// Where the reader of gzip data is.
enum At {
    /// In the header of a member.
    Header(Vec<u8>),
    Data,
    /// In the check sum and the length after the data.
    Check(Vec<u8>),
    /// What follows is no member.
    Over,
}

/// `gzip`: members that follow each other.
pub(super) struct Gzip {
    at: At,
    first: bool,
    data: Decompress,
    crc: Crc,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self { at: At::Header(Vec::new()), first: true, data: Decompress::new(false), crc: Crc::new() }
    }
}

const DAMAGED: Undecoded = Undecoded::Damaged(Coding::Gzip);

impl Stage for Gzip {
    fn step(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Option<usize>, Undecoded> {
        match &mut self.at {
            At::Over => return Ok(None),
            At::Header(_) | At::Check(_) if input.is_empty() => return Ok(None),
            At::Header(held) => {
                let before = held.len();
                held.extend_from_slice(&input[..input.len().min(MAX_HEADER - before)]);
                if !b"\x1f\x8b\x08".starts_with(&held[..held.len().min(3)]) {
                    if self.first {
                        return Err(DAMAGED);
                    }
                    self.at = At::Over;
                    return Ok(None);
                }
                match header(held) {
                    Some(len) => {
                        *input = &input[len - before..];
                        (self.at, self.first) = (At::Data, false);
                        self.data.reset(false);
                        self.crc.reset();
                    }
                    None if held.len() >= MAX_HEADER => return Err(DAMAGED),
                    None => *input = &[],
                }
            }
            At::Data => {
                let (given, ended) = inflate(&mut self.data, input, out).map_err(|_| DAMAGED)?;
                self.crc.update(&out[..given.unwrap_or(0)]);
                if ended {
                    self.at = At::Check(Vec::new());
                }
                return Ok(given);
            }
            At::Check(held) => {
                let (more, rest) = input.split_at(input.len().min(8 - held.len()));
                held.extend_from_slice(more);
                *input = rest;
                if held.len() == 8 {
                    let wanted = [self.crc.sum().to_le_bytes(), self.crc.amount().to_le_bytes()].concat();
                    if *held != wanted {
                        return Err(DAMAGED);
                    }
                    self.at = At::Header(Vec::new());
                }
            }
        }
        Ok(Some(0))
    }

    fn is_whole(&self) -> bool {
        match &self.at {
            At::Header(held) => !self.first && held.is_empty(),
            At::Over => true,
            At::Data | At::Check(_) => false,
        }
    }

    fn memory(&self) -> usize {
        MEMORY
    }
}

/// The length of the header that `held` begins with, if it is whole (RFC 1952 §2.3).
fn header(held: &[u8]) -> Option<usize> {
    const CHECK: u8 = 2;
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    let flags = *held.get(3)?;
    let mut len = 10;
    if flags & EXTRA != 0 {
        let size = held.get(len..len + 2)?;
        len += 2 + usize::from(u16::from_le_bytes([size[0], size[1]]));
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            len += memchr::memchr(0, held.get(len..)?)? + 1;
        }
    }
    if flags & CHECK != 0 {
        len += 2;
    }
    (held.len() >= len).then_some(len)
}

/// `deflate`: zlib's format; or bare deflate data, where the first two bytes cannot be a header of zlib's.
pub(super) struct Deflate {
    /// The first two bytes, until they were read.
    held: Vec<u8>,
    data: Option<Decompress>,
    over: bool,
}

impl Deflate {
    pub(super) fn new() -> Self {
        Self { held: Vec::new(), data: None, over: false }
    }
}

impl Stage for Deflate {
    fn step(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Option<usize>, Undecoded> {
        if self.over {
            return Ok(None);
        }
        let data = match &mut self.data {
            Some(data) => data,
            slot => {
                let (more, rest) = input.split_at(input.len().min(2 - self.held.len()));
                self.held.extend_from_slice(more);
                *input = rest;
                let [method, check] = self.held[..] else { return Ok(None) };
                let zlib = method & 15 == 8 && u16::from_be_bytes([method, check]).is_multiple_of(31);
                slot.insert(Decompress::new(zlib))
            }
        };
        let held = std::mem::take(&mut self.held);
        let mut first = &held[..];
        let done = if held.is_empty() { inflate(data, input, out) } else { inflate(data, &mut first, out) };
        let (given, ended) = done.map_err(|_| Undecoded::Damaged(Coding::Deflate))?;
        self.held = first.to_vec();
        self.over = ended;
        Ok(given)
    }

    fn is_whole(&self) -> bool {
        self.over
    }

    fn memory(&self) -> usize {
        MEMORY
    }
}
