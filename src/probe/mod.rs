//! Asks a server for its surface, as a client would, and goes away again.
//!
//! The server is a command that is started here, or a URL that a bridge speaks with. The recorder never asks anything; this is for
//! who wants to know what a server offers without a client: `assay surface snapshot` and `check`.

mod ask;
mod wire;

pub use ask::{Answered, Caller, Capabilities, Era, How, ask};
pub use wire::{Server, Wire};

use crate::relay::child::SpawnError;
use std::{io, time::Duration};

/// Why a server did not say what it offers.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] SpawnError),
    /// The system's error.
    #[error("the server cannot be spoken with: {0}")]
    Io(#[from] io::Error),
    /// It said nothing for too long.
    #[error("the server did not answer {method} within {} s", .limit.as_secs())]
    Silent {
        /// What it was asked.
        method: String,
        /// How long it had.
        limit: Duration,
    },
    /// It closed its output, or hung up.
    #[error("the server ended before it had answered {0}")]
    Ended(String),
    /// It answered with an error.
    #[error("the server answered {method} with error {code}: {message}")]
    Refused {
        /// What it was asked.
        method: String,
        /// Code of the JSON-RPC error.
        code: i64,
        /// Its message.
        message: String,
    },
    /// An answer that is none.
    #[error("the answer to {0} is no object")]
    NoObject(String),
}
