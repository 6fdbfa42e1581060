//! What is known of all sessions that are watched. What an event means is decided by the fold alone, whether a live stream, a
//! journal or a pack has it; what the fold says is kept here.
//!
//! The state is a join of all its inputs: in any order, any number of times, with anything missing, the same lines
//! give the same state. Calls are kept in a bounded window, the newest by the time of their request; older ones are in
//! the files. Sessions are bounded too. What a call shows never depends on the window.

use super::{
    messages::Messages,
    protocol::{Chained, End, LiveLine, PackProgress, PackState, RunCard, SessionStreams, Stderr},
    row::{CallRow, Place, Totals},
};
use crate::{
    filter::Facts,
    model::{InvocationId, Outcome, OutcomeReason, RpcId, SessionId},
    record::broadcast::Streams,
};
use std::collections::{BTreeMap, HashMap};

/// Calls that are kept unless another number is asked for.
pub const WINDOW: usize = 10_000;
/// Lines of stderr that are kept of one session.
const STDERR: usize = 1000;
/// Sessions that are kept; those that have ended go first, the oldest first.
pub const SESSIONS: usize = 1000;

/// What is known about one session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionView {
    /// Its card, if it was seen live.
    pub card: Option<RunCard>,
    /// Cursor after the last event.
    pub cursor: u64,
    /// Hash of that event.
    pub head: Option<String>,
    /// Counts of its calls so far.
    pub totals: Totals,
    /// How the session ended; `None` while it runs.
    pub end: Option<End>,
    /// How far its pack is.
    pub pack: Option<PackProgress>,
    /// The last lines of its server's stderr, by number.
    pub stderr: BTreeMap<u64, Stderr>,
    /// Lines of stderr that its process lost up to now.
    pub stderr_lost: u64,
    /// Its open streams, as they were last told of.
    pub streams: Option<SessionStreams>,
    /// Events that did not parse, and why the last of them did not.
    pub unread: (u64, String),
}

impl SessionView {
    fn streams(&mut self, told: &SessionStreams) {
        if self.streams.as_ref().is_none_or(|known| told.seq > known.seq) {
            self.streams = Some(told.clone());
        }
    }

    /// The streams that are open, while it runs.
    #[must_use]
    pub fn open_streams(&self) -> Option<&Streams> {
        self.streams.as_ref().map(|told| &told.streams).filter(|s| s.total > 0 && self.end.is_none())
    }
}

/// Everything that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    window: usize,
    rows: BTreeMap<Place, CallRow>,
    places: HashMap<InvocationId, Place>,
    /// The newest place that has left the window.
    floor: Option<Place>,
    messages: Messages,
    sessions: BTreeMap<SessionId, SessionView>,
}

impl Default for State {
    fn default() -> Self {
        Self::new(WINDOW)
    }
}

impl State {
    /// Nothing yet; `window` calls will be kept.
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self {
            window: window.max(1),
            rows: BTreeMap::new(),
            places: HashMap::new(),
            floor: None,
            messages: Messages::new(window.saturating_mul(2)),
            sessions: BTreeMap::new(),
        }
    }

    /// The calls in the window, oldest first.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &CallRow> {
        self.rows.values()
    }

    /// A call in the window.
    #[must_use]
    pub fn row(&self, invocation: InvocationId) -> Option<&CallRow> {
        self.rows.get(self.places.get(&invocation)?)
    }

    /// Whether calls have left the window: they are in the files.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.floor.is_some()
    }

    /// The messages in their window: twice as many as calls.
    #[must_use]
    pub const fn messages(&self) -> &Messages {
        &self.messages
    }

    /// All sessions that are known, by id.
    #[must_use]
    pub const fn sessions(&self) -> &BTreeMap<SessionId, SessionView> {
        &self.sessions
    }

    /// Takes a line of the live protocol.
    pub fn apply(&mut self, line: &LiveLine) {
        self.take(line);
        while self.sessions.len() > SESSIONS {
            let age = |s: &SessionView| (s.end.is_none(), s.card.as_ref().map(|c| c.card.started_at));
            let Some(oldest) = self.sessions.iter().min_by_key(|(id, s)| (age(s), **id)).map(|(id, _)| *id) else {
                return;
            };
            self.sessions.remove(&oldest);
        }
    }

    fn take(&mut self, line: &LiveLine) {
        match line {
            LiveLine::Session(head) => {
                let card = &head.session;
                let s = self.sessions.entry(card.card.session_id).or_default();
                s.totals.join(head.totals);
                // Client and server are reported only once they are known.
                let known = |c: &RunCard| {
                    let who = [c.card.client_info.is_some(), c.card.server_info.is_some(), c.card.socket.is_some()];
                    (who.iter().filter(|k| **k).count(), serde_json::to_string(c).unwrap_or_default())
                };
                if s.card.as_ref().is_none_or(|old| known(card) > known(old)) {
                    s.card = Some(card.clone());
                }
                if let Some(streams) = &head.streams {
                    s.streams(streams);
                }
            }
            LiveLine::Streams(streams) => self.sessions.entry(streams.session_id).or_default().streams(streams),
            LiveLine::Stderr(stderr) => {
                let lines = &mut self.sessions.entry(stderr.session_id).or_default().stderr;
                lines.insert(stderr.seq, stderr.clone());
                while lines.len() > STDERR {
                    lines.pop_first();
                }
            }
            LiveLine::StderrLost(lost) => {
                let s = self.sessions.entry(lost.session_id).or_default();
                s.stderr_lost = s.stderr_lost.max(lost.lost);
            }
            LiveLine::Unread(u) => {
                let s = self.sessions.entry(u.session_id).or_default();
                s.unread = s.unread.clone().max((u.unread, u.why.clone()));
            }
            LiveLine::PackProgress(pack) => {
                let s = self.sessions.entry(pack.session_id).or_default();
                let rank = |p: &PackProgress| {
                    let state = match p.state {
                        PackState::Sealing => 0,
                        PackState::Built => 1,
                        PackState::Verified | PackState::None | PackState::Failed => 2,
                    };
                    (state, p.pack.clone(), p.problems.clone())
                };
                if s.pack.as_ref().is_none_or(|old| rank(pack) > rank(old)) {
                    s.pack = Some(pack.clone());
                }
            }
            LiveLine::Content(content) => self.messages.content_came(content),
            LiveLine::Hello(_)
            | LiveLine::Begun(_)
            | LiveLine::Ended(_)
            | LiveLine::Gap(_)
            | LiveLine::CaughtUp(_)
            | LiveLine::Error(_)
            | LiveLine::Unknown => {}
            _ => {
                if let Some(chained) = line.chained() {
                    self.chained(chained);
                }
            }
        }
    }

    fn chained(&mut self, c: &Chained) {
        let s = self.sessions.entry(c.session_id).or_default();
        s.totals.join(c.totals);
        if c.cursor >= s.cursor {
            s.cursor = c.cursor + 1;
            s.head = Some(c.hash.clone());
        }
        if let Some(end) = &c.end {
            let rank = |e: &End| (e.next, e.reason.clone());
            if s.end.as_ref().is_none_or(|old| rank(end) > rank(old)) {
                s.end = Some(end.clone());
            }
        }
        self.messages.event(c);
        if let Some(call) = &c.call {
            self.call(call.clone());
        }
    }

    /// Takes an account of a call.
    pub fn call(&mut self, row: CallRow) {
        let row = match self.places.get(&row.invocation_id).and_then(|place| self.rows.remove(place)) {
            Some(mut known) => {
                known.join(row);
                known
            }
            None => row,
        };
        let (place, invocation) = (row.place(), row.invocation_id);
        if self.floor.is_some_and(|floor| place <= floor) {
            self.places.remove(&invocation);
            return;
        }
        self.places.insert(invocation, place);
        self.rows.insert(place, row);
        while self.rows.len() > self.window {
            let Some((place, row)) = self.rows.pop_first() else { return };
            self.places.remove(&row.invocation_id);
            self.floor = self.floor.max(Some(place));
        }
    }

    /// The process of a session has ended, and everything that it wrote was read: calls of it that have no end never get one. They
    /// are given back.
    pub fn died(&mut self, session: SessionId) -> Vec<InvocationId> {
        let socket = |id: &SessionId| self.sessions.get(id)?.card.as_ref()?.card.socket.clone();
        let process = socket(&session);
        let is_of_it = |id: &SessionId| *id == session || process.is_some() && socket(id) == process;
        let running = self.rows.values().filter(|row| row.is_running() && is_of_it(&row.session_id));
        let over: Vec<(InvocationId, SessionId)> = running.map(|row| (row.invocation_id, row.session_id)).collect();
        for (invocation, began) in &over {
            let row = self.places.get(invocation).and_then(|place| self.rows.get_mut(place));
            if let Some(row) = row {
                row.outcome = Some(Outcome::Timeout);
                row.outcome_reason = Some(OutcomeReason::ProxyKilled.as_str().to_owned());
            }
            if let Some(view) = self.sessions.get_mut(began) {
                view.totals.ended(Outcome::Timeout);
            }
        }
        over.into_iter().map(|(invocation, _)| invocation).collect()
    }
}

/// A JSON-RPC id as a person types it.
#[must_use]
pub fn rpc_text(id: &RpcId) -> String {
    match id {
        RpcId::Null => "null".to_owned(),
        RpcId::Int(n) => n.to_string(),
        RpcId::Text(t) => t.clone(),
    }
}

/// What a filter looks at in a call.
#[must_use]
pub fn facts(row: &CallRow) -> Facts<'_> {
    let rpc = row.mcp_request_id.as_ref().map(rpc_text);
    let ids = [Some(row.invocation_id.to_string()), row.receipt_id.map(|r| r.to_string()), rpc];
    Facts {
        tool: row.tool_name.as_deref().unwrap_or_default(),
        server: row.server_id.as_deref().unwrap_or_default(),
        verdict: row.policy_verdict,
        outcome: row.outcome,
        ids: ids.into_iter().flatten().collect(),
        us: row.duration_ms.map(|d| d.0),
        ..Facts::default()
    }
}

#[cfg(test)]
mod tests;
