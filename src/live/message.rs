//! What an event tells of a message, for every list of messages.

use crate::model::{AuditEvent, Detail, Direction, EventKind, RpcId, http::InExchange, words::AnomalyKind};
use serde::{Deserialize, Serialize};

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A request, of either side.
    Request,
    /// An answer.
    Response,
    /// An answer that says that something failed.
    Error,
    /// A message that has no answer.
    Notification,
    /// What is not a JSON-RPC message.
    Junk,
    /// A message that a guard did not forward, and that is no request.
    Blocked,
    /// An answer to nothing, a second answer, a request beyond those that are followed.
    Unexpected,
    /// A message of which only the beginning is known, or that a later version tells of.
    #[serde(other)]
    Other,
}

/// What an event tells of the message that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The exchange over HTTP in which it crossed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<u64>,
    /// Its offset in its stream.
    pub offset: u64,
    /// Its JSON-RPC id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpc_id: Option<RpcId>,
    /// What it is.
    pub what: What,
    /// Its length in bytes, without its terminator.
    pub wire_bytes: u64,
}

impl Told {
    /// What an event tells of the message that it says was read; `None` for any other event.
    #[must_use]
    pub fn of(e: &AuditEvent) -> Option<Self> {
        let (anomaly, error) = match &e.detail {
            Detail::Anomaly(d) => (d.kind.known(), false),
            Detail::ResponseReceived(d) => (None, d.is_error == Some(true) || d.error_code.is_some()),
            _ => (None, false),
        };
        Some(Self {
            exchange: e.detail.exchange().and_then(InExchange::number),
            offset: e.detail.offset()?,
            rpc_id: e.rpc_id.clone().filter(|id| *id != RpcId::Null),
            what: What::of(e.event, anomaly, e.invocation_id.is_some(), error)?,
            wire_bytes: e.wire_bytes?,
        })
    }
}

impl What {
    /// What the message is that an event tells of, if it is the event that says that a message was read.
    /// `error`: the answer says that something failed; `of_request`: the event belongs to a request.
    #[must_use]
    pub fn of(kind: EventKind, anomaly: Option<AnomalyKind>, of_request: bool, error: bool) -> Option<Self> {
        Some(match kind {
            EventKind::RequestReceived => Self::Request,
            EventKind::ResponseReceived if error => Self::Error,
            EventKind::ResponseReceived => Self::Response,
            EventKind::Notification => Self::Notification,
            EventKind::Malformed | EventKind::MalformedLines => Self::Junk,
            // A request that was blocked has an event of its own before.
            EventKind::RequestBlocked if !of_request => Self::Blocked,
            EventKind::Anomaly => match anomaly? {
                AnomalyKind::LateResponse | AnomalyKind::UnmatchedResponse | AnomalyKind::NotFollowed => {
                    Self::Unexpected
                }
                _ => return None,
            },
            _ => return None,
        })
    }

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Error => "error",
            Self::Notification => "notification",
            Self::Junk => "junk",
            Self::Blocked => "blocked",
            Self::Unexpected => "unexpected",
            Self::Other => "message",
        }
    }

    /// Whether a person should look at it.
    #[must_use]
    pub const fn is_problem(self) -> bool {
        matches!(self, Self::Error | Self::Junk | Self::Blocked | Self::Unexpected)
    }
}

/// Where a message was: direction, number of its exchange over HTTP, offset in its stream.
pub type Crossing = (Direction, Option<u64>, u64);
