//! Why a message has no answer of the server, and what the client is told then.

use super::{answers, client::SendError};

/// Largest body of an error that is looked into, in bytes.
pub(super) const LARGEST_ERROR: usize = 1 << 20;
pub(super) const LOST: &str = "session lost: the server does not know it any more; start the client's session again";

/// Why a message has no answer of the server.
pub(super) struct Failed {
    pub(super) why: String,
    pub(super) status: Option<u16>,
    /// The server's own JSON-RPC error.
    pub(super) error: Option<String>,
}

impl Failed {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), status: None, error: None }
    }

    pub(super) fn line(&self, id: &str) -> Vec<u8> {
        match &self.error {
            Some(error) => answers::with_error(id, error),
            None => answers::own_error(id, &self.why, self.status),
        }
    }
}

impl From<SendError> for Failed {
    fn from(e: SendError) -> Self {
        let status = if let SendError::Redirected { status, .. } = &e { Some(*status) } else { None };
        Self { status, ..Self::new(e.to_string()) }
    }
}

/// Where the answers to a message come.
#[derive(PartialEq, Eq)]
pub(super) enum Place {
    Here,
    /// On the stream of the older transport.
    Stream,
}

/// Whether a status says that it may be otherwise in a moment.
pub(super) fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// What a status means, and what to do.
pub(super) fn refusal(status: u16) -> String {
    let said = match status {
        400 => "the server takes the request for a wrong one",
        401 => "the server wants to know who asks; give it a token with --header-env Authorization=VARIABLE",
        403 => "the server refuses; check what the token may do",
        404 => "the server has nothing at this path; check its URL",
        405 => "the server takes no messages at this path; check its URL",
        406 | 415 => "the server does not speak MCP at this path; check its URL",
        407 => "a proxy on the way wants to know who asks; check --proxy",
        408 => "the server waited too long for the request; try again",
        413 => "the request is larger than the server takes",
        429 => "the server gets too many requests; try again later",
        500..=599 => "the server failed; its own log says why",
        _ => "the server did not take the request",
    };
    format!("{said} (HTTP {status})")
}
