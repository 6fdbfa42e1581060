//! Bytes across, and observations out: the relay threads, the capture ring and the child process.
//!
//! Must not know: JSON, policy files, receipts, packs, sockets of the dashboard. It is given a capture and, in guard
//! mode, a [`stdio::Inspector`].

pub mod capture;
pub mod child;
#[cfg(feature = "cli")]
pub mod family;
#[cfg(feature = "proxy")]
pub mod http;
pub mod log;
pub mod stdio;
pub mod waker;

pub use capture::{Capture, CaptureGap, Consumer, Direction, Placement, Producer};
pub use child::{Child, Exit, Group, LookupError};
pub use stdio::{RelayEnd, Stop, relay, relay_stderr};
pub use waker::{Pacer, Waker};
