//! `zstd`.
//!
//! The library's decoder reads whole blocks from a source, so blocks are collected here. It gives away only what is before its
//! window as long as a frame goes on: the rest follows with the last block of the frame.

use super::{Coding, Stage, Undecoded};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::Read as _;

/// The largest window that a reader must have (RFC 9659).
const MAX_WINDOW: u64 = 8 << 20;
/// The largest block (RFC 8878 §3.1.1.2.4).
const MAX_BLOCK: usize = 128 << 10;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

enum At {
    /// In the header of a frame.
    Header,
    /// In a frame that is passed over; so many bytes are left.
    Skipped(usize),
    Block,
    /// All blocks were read, not all of them given.
    Rest,
    /// What follows is no frame.
    Over,
}

/// Frames that follow each other.
pub(super) struct Zstd {
    at: At,
    first: bool,
    /// The beginning of a header or a block.
    held: Vec<u8>,
    /// Whether a check sum follows the last block.
    check: bool,
    window: u64,
    frame: FrameDecoder,
}

const DAMAGED: Undecoded = Undecoded::Damaged(Coding::Zstd);

impl Zstd {
    pub(super) fn new() -> Self {
        let (held, frame) = (Vec::new(), FrameDecoder::new());
        Self { at: At::Header, first: true, held, check: false, window: 0, frame }
    }

    /// Whether `len` bytes of a header or a block are here now.
    fn has(&mut self, len: usize, input: &mut &[u8]) -> bool {
        let missing = len.saturating_sub(self.held.len());
        let (more, rest) = input.split_at(missing.min(input.len()));
        self.held.extend_from_slice(more);
        *input = rest;
        self.held.len() >= len
    }

    fn header(&mut self, input: &mut &[u8]) -> Result<(), Undecoded> {
        // What can be no frame is not taken: it is behind the end.
        let seen = [&self.held[..], &input[..input.len().min(4)]].concat();
        let seen = &seen[..seen.len().min(4)];
        let skipped = |seen: &[u8]| {
            seen.iter()
                .zip([0x50, 0x2a, 0x4d, 0x18])
                .enumerate()
                .all(|(n, (byte, magic))| *byte == magic || (n == 0 && byte & 0xf0 == magic))
        };
        if !MAGIC.starts_with(seen) && !skipped(seen) {
            self.at = At::Over;
            return if self.first { Err(DAMAGED) } else { Ok(()) };
        }
        if !self.has(5, input) {
            return Ok(());
        }
        if self.held[0] != MAGIC[0] {
            if self.has(8, input) {
                let size = u32::from_le_bytes([self.held[4], self.held[5], self.held[6], self.held[7]]);
                self.at = At::Skipped(size as usize);
                self.held.clear();
            }
            return Ok(());
        }
        let descriptor = self.held[4];
        let single = descriptor & 0x20 != 0;
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size = match descriptor >> 6 {
            0 => usize::from(single),
            power => 1 << power,
        };
        let before = 5 + usize::from(!single) + dictionary;
        if !self.has(before + size, input) {
            return Ok(());
        }
        self.window = if single {
            let bytes = &self.held[before..];
            let value = bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
            if size == 2 { value + 256 } else { value }
        } else {
            let base = 1_u64 << (10 + (self.held[5] >> 3));
            base + base / 8 * u64::from(self.held[5] & 7)
        };
        if self.window > MAX_WINDOW {
            return Err(Undecoded::Window(Coding::Zstd));
        }
        self.check = descriptor & 4 != 0;
        self.frame.reset(&self.held[..]).map_err(|_| DAMAGED)?;
        self.held.clear();
        (self.at, self.first) = (At::Block, false);
        Ok(())
    }

    fn block(&mut self, input: &mut &[u8]) -> Result<(), Undecoded> {
        if !self.has(3, input) {
            return Ok(());
        }
        let header = u32::from_le_bytes([self.held[0], self.held[1], self.held[2], 0]);
        let (last, kind, size) = (header & 1 != 0, header >> 1 & 3, (header >> 3) as usize);
        if size > MAX_BLOCK {
            return Err(DAMAGED);
        }
        // A block of one byte that is repeated has this byte alone.
        let body = if kind == 1 { 1 } else { size };
        let check = if last && self.check { 4 } else { 0 };
        if !self.has(3 + body + check, input) {
            return Ok(());
        }
        self.frame.decode_blocks(&self.held[..], BlockDecodingStrategy::UptoBlocks(1)).map_err(|_| DAMAGED)?;
        self.held.clear();
        if last {
            self.at = At::Rest;
        }
        Ok(())
    }
}

impl Stage for Zstd {
    fn step(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Option<usize>, Undecoded> {
        if matches!(self.at, At::Block | At::Rest) {
            let given = self.frame.read(out).map_err(|_| DAMAGED)?;
            if given > 0 {
                return Ok(Some(given));
            }
        }
        let before = input.len();
        match &mut self.at {
            At::Over => return Ok(None),
            At::Header => self.header(input)?,
            At::Block => self.block(input)?,
            At::Skipped(0) => {
                (self.at, self.first) = (At::Header, false);
                return Ok(Some(0));
            }
            At::Skipped(left) => {
                let len = input.len().min(*left);
                (*input, *left) = (&input[len..], *left - len);
                return Ok((len > 0).then_some(0));
            }
            At::Rest => {
                if self.check && self.frame.get_checksum_from_data() != self.frame.get_calculated_checksum() {
                    return Err(DAMAGED);
                }
                self.at = At::Header;
                return Ok(Some(0));
            }
        }
        Ok((input.len() < before).then_some(0))
    }

    fn is_whole(&self) -> bool {
        match self.at {
            At::Header => !self.first && self.held.is_empty(),
            At::Over | At::Skipped(0) => true,
            At::Skipped(_) | At::Block | At::Rest => false,
        }
    }

    fn memory(&self) -> usize {
        self.held.capacity() + self.window as usize + MAX_BLOCK
    }
}
