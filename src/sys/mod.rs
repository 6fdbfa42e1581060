//! The home of unsafe code, but for the vector instructions of SHA-256 (`src/evidence/sha256.rs`): memory maps, process
//! attributes, and a portable fallback beside each Linux call.
//!
//! Everything public here is safe to call. Must not know: MCP, captures' meaning, files of the audit directory.

pub mod clock;
pub mod fd;
mod map;
pub mod peer;
pub mod process;
mod ring;
pub mod wait;

pub use map::FileMap;
pub use ring::{REGION_A_WORDS, RingMemory, RingReader, RingWriter, region_b_words, reserve};
