//! `br`.

use super::{Coding, Stage, Undecoded};
use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

type State = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// The largest window that RFC 7932 has, and tables.
const MEMORY: usize = (16 << 20) + (1 << 20);

/// Brotli's format as in RFC 7932: without the larger windows that some encoders can make.
pub(super) struct Brotli {
    state: Box<State>,
    over: bool,
}

impl Brotli {
    pub(super) fn new() -> Self {
        let alloc = StandardAlloc::default;
        Self { state: Box::new(State::new_strict(alloc(), alloc(), alloc())), over: false }
    }
}

impl Stage for Brotli {
    fn step(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Option<usize>, Undecoded> {
        if self.over {
            return Ok(None);
        }
        let (mut left, mut taken) = (input.len(), 0);
        let (mut room, mut given, mut total) = (out.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut taken,
            input,
            &mut room,
            &mut given,
            out,
            &mut total,
            &mut self.state,
        );
        match result {
            BrotliResult::ResultFailure => return Err(Undecoded::Damaged(Coding::Brotli)),
            BrotliResult::ResultSuccess => self.over = true,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
        }
        *input = &input[taken..];
        Ok((taken > 0 || given > 0 || self.over).then_some(given))
    }

    fn is_whole(&self) -> bool {
        self.over
    }

    fn memory(&self) -> usize {
        MEMORY
    }
}
