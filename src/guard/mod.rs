//! Guard mode: every message is judged before a byte of it passes on, and refused where the policy says so or where
//! servers could disagree on what it says.
//!
//! [`judge_message`] decides about one whole message of a [`Session`], and knows nothing of how it travels. [`stdio`] finds
//! messages in two streams, holds them until they were judged, and puts every decision into
//! [`record::judgement`](crate::record::judgement) before it takes effect.
//!
//! Must not know: policy files (it is given a [`Judge`]), receipts, packs.

pub mod folding;
pub mod inspect;
mod refusal;
mod replies;
mod ruling;
mod session;
pub mod stdio;

pub use refusal::Refusal;
pub use replies::{DENIED, INVALID, NO_JSON, SERVER_GONE};
pub use ruling::{Message, Ruling, judge_message};
pub use session::Session;
pub use stdio::{Gate, Outlet, Shared};

use crate::record::judgement::{Ruled, Subject};

/// Says what the policy says.
pub trait Judge: Send {
    /// The verdict on a call at this time (monotonic ns), and words for who asked. May wait, but not for long.
    fn judge(&mut self, subject: Subject<'_>, ns: u64) -> (Ruled, String);

    /// Takes up the newest policy, and judges by no other until this is asked again; its `sha256:`.
    fn begin(&mut self) -> String;
}
