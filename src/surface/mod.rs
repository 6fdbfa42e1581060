//! The surface of a server as it is put together and compared: listings from pages ([`listing`]), differences
//! ([`diff`]), rules of what counts ([`rules`]), what of it a client may see and call ([`gate`],
//! [`cut`]), and the decisions for those who record it ([`feed`]). Its parts, its hashes, and decisions about it are in
//! [`crate::model::surface`].
//!
//! Nothing here reads or writes anything.

pub mod cut;
pub mod diff;
pub mod feed;
pub mod gate;
pub mod listing;
pub mod rules;
