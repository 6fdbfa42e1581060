//! The source of sessions over HTTP: exchanges out of the log, into messages of sessions.

pub mod assemble;
pub mod decode;
pub mod demux;
pub mod exchange;
pub mod kept;
pub mod key;
pub mod replays;
pub mod run;
pub mod sessions;
pub mod source;
pub mod state;
mod streams;
