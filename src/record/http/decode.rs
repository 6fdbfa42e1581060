//! Content codings (RFC 9110 §8.4.1): what a coded body says, piece by piece, as its reader decodes it.
//!
//! | coding | is decoded |
//! |---|---|
//! | `gzip`, `x-gzip` | as far as the bytes reach; members that follow each other are one body |
//! | `deflate` | the same; zlib's format, or bare deflate data, which some servers send |
//! | `br` | the same |
//! | `zstd` | block by block, but the last window of a frame (up to 8 MiB) only when the frame is whole |
//!
//! Only a copy is decoded, so whatever goes wrong here changes nothing for client and server.
//!
//! The inflating library takes a reference to before the beginning of the data as zeros, where zlib finds damage. Check sums of
//! `gzip` and zlib's format tell in the end; bare deflate data has none.

mod brotli;
mod inflate;
mod zstd;

use serde::{Deserialize, Serialize};
use std::panic::{self, AssertUnwindSafe};

/// A body has at most this many codings, one within the other.
pub const MAX_CODINGS: usize = 3;
/// A body is decoded up to this many bytes, 1 GiB; also what is between two of its codings.
pub const MAX_DECODED: u64 = 1 << 30;
/// Up to here, a body may expand as it likes. 1 MiB.
pub const FREE: u64 = 1 << 20;
/// Beyond that, at most this many bytes for each byte that crossed.
pub const MAX_EXPANSION: u64 = 100;

/// Bytes that one step of a decoder gives at most.
const STEP: usize = 16 << 10;

/// A coding of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, or RFC 1951 without it.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// The coding of this name in `Content-Encoding`.
    fn named(name: &str) -> Option<Self> {
        let names = [
            ("gzip", Self::Gzip),
            ("x-gzip", Self::Gzip),
            ("deflate", Self::Deflate),
            ("br", Self::Brotli),
            ("zstd", Self::Zstd),
        ];
        names.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, coding)| *coding)
    }

    /// Its name in `Content-Encoding`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// Why a body is not decoded, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Undecoded {
    /// Nobody here knows the coding.
    #[error("its coding {0:?} is not known")]
    Unknown(String),
    /// There are more than [`MAX_CODINGS`].
    #[error("it has more than {MAX_CODINGS} codings")]
    TooMany,
    /// The bytes are not what the coding demands.
    #[error("its {} data is damaged", .0.name())]
    Damaged(Coding),
    /// It needs more memory than a reader must have (RFC 9659).
    #[error("its {} data needs a window over 8 MiB", .0.name())]
    Window(Coding),
    /// More than [`MAX_EXPANSION`] bytes for each that crossed.
    #[error("it expands to more than {MAX_EXPANSION} times its size")]
    Expansion,
    /// More than [`MAX_DECODED`] bytes.
    #[error("it is over 1 GiB when it is decoded")]
    TooLarge,
    /// It ended before the coded data did. What came before the end was decoded.
    #[error("its coded data is cut off")]
    Truncated,
    /// Some of its bytes are not here: they crossed unrecorded, or before the recorder was started again.
    #[error("a part of it is missing")]
    Missing,
}

/// Undoes one coding.
trait Stage: Send {
    /// Takes bytes from the front of `input` and puts decoded ones into `out`; how many. `None`: nothing is left to do with
    /// this input; what is left of it is behind the end of the data.
    fn step(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Option<usize>, Undecoded>;

    /// Whether the data may end here.
    fn is_whole(&self) -> bool;

    /// Bytes of memory that it may hold.
    fn memory(&self) -> usize;
}

/// One coding of a body.
struct Layer {
    coding: Coding,
    stage: Box<dyn Stage>,
    buffer: Vec<u8>,
    decoded: u64,
}

impl Layer {
    fn new(coding: Coding) -> Self {
        let stage: Box<dyn Stage> = match coding {
            Coding::Gzip => Box::new(inflate::Gzip::new()),
            Coding::Deflate => Box::new(inflate::Deflate::new()),
            Coding::Brotli => Box::new(brotli::Brotli::new()),
            Coding::Zstd => Box::new(zstd::Zstd::new()),
        };
        Self { coding, stage, buffer: vec![0; STEP], decoded: 0 }
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<usize>, Undecoded> {
        // A fault of a library must not end the recorder.
        let step = panic::catch_unwind(AssertUnwindSafe(|| self.stage.step(input, &mut self.buffer)));
        step.unwrap_or(Err(Undecoded::Damaged(self.coding)))
    }
}

/// Decodes one body. It cannot be written down: nor can the libraries' decoders.
pub struct Decoder {
    /// The coding that was applied last is first.
    layers: Vec<Layer>,
    /// Bytes that crossed.
    bytes: u64,
    trailing: u64,
    failed: Option<Undecoded>,
}

impl Decoder {
    /// For a body with this `Content-Encoding`: a list of codings in the order in which they were applied, from all headers of
    /// this name. `None`: it has none.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub fn new(codings: &str) -> Result<Option<Self>, Undecoded> {
        let names = codings.split(',').map(str::trim);
        let names: Vec<&str> =
            names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity")).collect();
        if names.len() > MAX_CODINGS {
            return Err(Undecoded::TooMany);
        }
        let coding =
            |name: &str| Coding::named(name).ok_or_else(|| Undecoded::Unknown(name.chars().take(32).collect()));
        let codings: Vec<Coding> = names.into_iter().map(coding).collect::<Result<_, _>>()?;
        if codings.is_empty() {
            return Ok(None);
        }
        let layers = codings.into_iter().rev().map(Layer::new).collect();
        Ok(Some(Self { layers, bytes: 0, trailing: 0, failed: None }))
    }

    /// Takes the next piece as it crossed, and gives what can be decoded now.
    ///
    /// # Errors
    /// It cannot be decoded from here on, and says the same about every piece that follows.
    pub fn feed(&mut self, piece: &[u8], out: &mut dyn FnMut(&[u8])) -> Result<(), Undecoded> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        self.bytes += piece.len() as u64;
        let done = run(&mut self.layers, piece, self.bytes, &mut self.trailing, out);
        done.inspect_err(|e| self.fail(e.clone()))
    }

    /// Bytes of it are missing: it cannot be decoded any further.
    pub fn tear(&mut self) {
        if self.failed.is_none() {
            self.fail(Undecoded::Missing);
        }
    }

    /// The body has ended.
    ///
    /// # Errors
    /// It could not be decoded to its end. [`Undecoded::Truncated`]: what there is was decoded, and many readers take it.
    pub fn end(&self) -> Result<(), Undecoded> {
        match &self.failed {
            Some(failed) => Err(failed.clone()),
            // An answer to HEAD names the coding of a body that it does not have.
            None if self.bytes == 0 || self.layers.iter().all(|layer| layer.stage.is_whole()) => Ok(()),
            None => Err(Undecoded::Truncated),
        }
    }

    /// Bytes that it gave.
    #[must_use]
    pub fn decoded(&self) -> u64 {
        self.layers.last().map_or(0, |layer| layer.decoded)
    }

    /// Bytes behind the end of coded data, which readers pass over.
    #[must_use]
    pub const fn trailing(&self) -> u64 {
        self.trailing
    }

    /// Bytes of memory that it may hold.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.layers.iter().map(|layer| layer.buffer.len() + layer.stage.memory()).sum()
    }

    fn fail(&mut self, why: Undecoded) {
        self.failed = Some(why);
        for layer in &mut self.layers {
            layer.stage = Box::new(Nothing);
            layer.buffer = Vec::new();
        }
    }
}

/// In place of what failed.
struct Nothing;

impl Stage for Nothing {
    fn step(&mut self, _: &mut &[u8], _: &mut [u8]) -> Result<Option<usize>, Undecoded> {
        Ok(None)
    }

    fn is_whole(&self) -> bool {
        false
    }

    fn memory(&self) -> usize {
        0
    }
}

fn run(
    layers: &mut [Layer],
    mut input: &[u8],
    crossed: u64,
    trailing: &mut u64,
    out: &mut dyn FnMut(&[u8]),
) -> Result<(), Undecoded> {
    let Some((layer, rest)) = layers.split_first_mut() else {
        out(input);
        return Ok(());
    };
    while let Some(given) = layer.step(&mut input)? {
        layer.decoded += given as u64;
        if layer.decoded > MAX_DECODED {
            return Err(Undecoded::TooLarge);
        }
        if layer.decoded > FREE && layer.decoded > crossed.saturating_mul(MAX_EXPANSION) {
            return Err(Undecoded::Expansion);
        }
        if given > 0 {
            run(rest, &layer.buffer[..given], crossed, trailing, out)?;
        }
    }
    *trailing += input.len() as u64;
    Ok(())
}

#[cfg(test)]
mod tests;
