//! The only home of unsafe code: memory maps, process attributes, vector instructions, and a portable fallback beside each Linux call.
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
