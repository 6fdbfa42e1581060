//! What proxies of protocol 1 say, which tell of one session at a time, in the words of this one. They may run for days yet.

use super::{
    protocol::{RunCard, SessionHead},
    row::Totals,
};
use crate::model::SessionId;
use serde::{Deserialize, Serialize};

/// Their first line, and the first of each session that follows in the same process.
#[derive(Debug, Deserialize)]
struct Hello {
    chain_head: Option<String>,
    cursor: u64,
    oldest: u64,
    protocol: u32,
    session: RunCard,
    totals: Totals,
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum LiveLine {
    Hello(Box<Hello>),
    #[serde(other)]
    Other,
}

/// Their request: tell again from this cursor on.
#[derive(Debug, Serialize)]
pub(super) struct Request {
    /// Cursor of the first event that is wanted.
    pub from: u64,
    pub session_id: SessionId,
}

/// The `hello` of protocol 1, if the line is one.
pub(super) fn hello(line: &[u8]) -> Option<SessionHead> {
    let Ok(LiveLine::Hello(hello)) = serde_json::from_slice(line) else { return None };
    let Hello { chain_head, cursor, oldest, protocol, session, totals } = *hello;
    (protocol == 1).then_some(SessionHead { chain_head, cursor, from: cursor, oldest, session, streams: None, totals })
}
