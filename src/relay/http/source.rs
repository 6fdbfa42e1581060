//! Where the body of a request comes from.

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::{
    mem,
    pin::Pin,
    task::{Context, Poll},
};

/// The body of a request.
pub(super) enum Source {
    /// As the client sends it.
    Client(Incoming),
    /// It was held.
    Held(Bytes, Option<HeaderMap>),
}

impl Body for Source {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Client(body) => Pin::new(body).poll_frame(cx),
            Self::Held(bytes, _) if !bytes.is_empty() => Poll::Ready(Some(Ok(Frame::data(mem::take(bytes))))),
            Self::Held(_, trailers) => Poll::Ready(trailers.take().map(|t| Ok(Frame::trailers(t)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Client(body) => body.is_end_stream(),
            Self::Held(bytes, trailers) => bytes.is_empty() && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Client(body) => body.size_hint(),
            Self::Held(bytes, None) => SizeHint::with_exact(bytes.len() as u64),
            Self::Held(..) => SizeHint::default(),
        }
    }
}
