//! HTTP across: the reverse proxy between clients and an upstream, and the connections to it.
//!
//! Must not know: evidence, policy files. What crosses goes into an [`ExchangeLog`](super::log::ExchangeLog), each piece
//! before it is passed on. A guard judges through [`review::Reviewer`].

pub mod access;
mod answer;
pub mod browser;
pub mod connect;
mod endpoint;
mod forward;
mod headers;
pub mod host;
pub mod listen;
mod metered;
mod post;
pub mod reduce;
pub mod review;
mod reviewed;
pub mod route;
mod socket;
mod source;
mod stop;
mod tap;
mod upstream;
pub mod witness;
