//! Guard mode: every message is judged before a byte of it passes on, and refused where the policy says so or where
//! servers could disagree on what it says.
//!
//! [`judge_message`] decides about one whole message of a [`Session`], and knows nothing of how it travels. [`stdio`] finds
//! messages in two streams, holds them until they were judged, and puts every decision into
//! [`record::rulings`](crate::record::rulings) before it takes effect. [`http`] looks at the headers beside a message, and
//! says what is answered in its place.
//!
//! Must not know: policy files (it is given a [`Judge`](crate::record::judge::Judge)), receipts, packs.

pub mod folding;
pub mod http;
pub mod inspect;
mod refusal;
mod replies;
mod ruling;
mod session;
pub mod stdio;
pub mod surface;

pub use refusal::Refusal;
pub use replies::{DENIED, HEADER_MISMATCH, INVALID, NO_JSON, SERVER_GONE};
pub use ruling::{Message, Ruling, judge_message};
pub use session::Session;
pub use stdio::{Gate, Outlet, StdioGuard};
