//! The place of a message: its stream, and the offset of its first byte. Code from here on does not depend on the
//! transport.

use crate::model::{Direction, InvocationId, SessionId};

/// One stream of bytes in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamId {
    /// The server's stdin or stdout: one stream for the whole session.
    Stdio(Direction),
    /// One body of an HTTP exchange, which is a request and its answer.
    Exchange {
        /// Number of the exchange in its process, from 1.
        exchange: u64,
        /// Which of its two bodies: the request's, or the answer's.
        direction: Direction,
    },
}

/// Where an id of a JSON-RPC request is unique as long as the request is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// In the session: over stdio, and for what a server asks, whose answer comes in an exchange of its own.
    Session,
    /// In one exchange: two clients that share a session may use the same ids.
    Exchange(u64),
}

impl StreamId {
    /// Which way its bytes cross.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::Stdio(direction) | Self::Exchange { direction, .. } => direction,
        }
    }

    /// Where the ids of requests in this direction are unique; the answer to a request of the client comes in the same
    /// exchange.
    #[must_use]
    pub const fn scope(self, requests: Direction) -> Scope {
        match (self, requests) {
            (Self::Exchange { exchange, .. }, Direction::ClientToServer) => Scope::Exchange(exchange),
            _ => Scope::Session,
        }
    }
}

/// The place of a message's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePlace {
    /// The stream in which it came.
    pub stream: StreamId,
    /// Bytes of the stream before it.
    pub offset: u64,
}

impl MessagePlace {
    /// In one of the two streams of a session over stdio.
    #[must_use]
    pub const fn stdio(direction: Direction, offset: u64) -> Self {
        Self { stream: StreamId::Stdio(direction), offset }
    }

    /// The direction of the message.
    #[must_use]
    pub const fn direction(self) -> Direction {
        self.stream.direction()
    }

    /// The id of the request that begins here; of an element of a batch, by its index. Reading the same bytes again
    /// gives the same id.
    #[must_use]
    pub fn invocation(self, session: SessionId, element: Option<u64>) -> InvocationId {
        match self.stream {
            StreamId::Stdio(direction) => InvocationId::of_message(session, direction, self.offset, element),
            StreamId::Exchange { exchange, direction } => {
                InvocationId::of_exchange(session, exchange, direction, self.offset, element)
            }
        }
    }
}
