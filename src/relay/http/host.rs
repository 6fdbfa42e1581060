//! Requests that the listener answers by itself, beside those that go upstream.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use std::{io, pin::Pin, sync::Arc};

/// The body of an answer that a [`Host`] gives.
pub type Hosted = UnsyncBoxBody<Bytes, io::Error>;

/// An answer that a [`Host`] is about to give.
pub type Hosting = Pin<Box<dyn Future<Output = Response<Hosted>> + Send>>;

/// Who sent a request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address: `loopback`, another one, or `uid:N` over a Unix socket.
    pub address: Arc<str>,
    /// It came over a Unix socket, so it is this user.
    pub is_user: bool,
}

/// Answers requests by itself: nothing of them goes upstream, and they are in no recording.
pub trait Host: Send + Sync {
    /// Answers a request whose Host and Origin may use the listener. Whether the client has a right to an answer, the host
    /// finds out by itself: the listener's token is not asked for. The answer will have the id.
    fn answer(&self, request: Request<Incoming>, from: &Peer, id: &str) -> Hosting;

    /// The answer to a request that may not use the listener.
    fn refuse(&self, status: StatusCode, why: &'static str, id: &str) -> Response<Hosted>;
}
