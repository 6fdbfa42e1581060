//! Files that people write: YAML of which every node knows its place, and errors that point at it.
//!
//! It reads events and no more, so that nothing is expanded, guessed or nested without bound: aliases, anchors, tags, tabs and
//! several documents are refused. A key that is there twice is an error. Scalars mean what the core schema of YAML 1.2 says,
//! so `yes` is a string. Who reads a file names every key that it knows ([`Source::unknown`]).

mod error;
mod near;
mod parse;
mod tree;
mod typed;

pub use error::Error;
pub use near::distance;
pub use parse::{MAX_DEPTH, Source};
pub use tree::{Kind, Node, Place, Scalar};
