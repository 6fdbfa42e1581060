//! Messages as a person watches them: those that the events of a chain tell of, in both directions, and, where a proxy sends
//! contents, those that leave no event too.
//!
//! As the calls, they are kept in a bounded window, the newest by the time at which they were read.

use super::{
    content::Content,
    message::{Crossing, What},
    protocol::{Chained, LiveLine},
};
use crate::model::{Direction, InvocationId, RpcId, SessionId, WallTime};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Bytes of contents that are kept.
const CONTENTS: usize = 16 << 20;

/// What names a message: its event, or where it crossed if it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageId {
    /// It left no event that is known.
    Crossed(SessionId, Crossing),
    /// Number of the event that says that it was read.
    Event(SessionId, u64),
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// When its last byte was read.
    pub at: WallTime,
    /// The call that it belongs to.
    pub call: Option<InvocationId>,
    /// Where it crossed, if that is known.
    pub crossing: Option<Crossing>,
    /// Which way it went.
    pub direction: Option<Direction>,
    /// What names it.
    pub id: MessageId,
    /// Its method; of an answer, that of the request.
    pub method: Option<String>,
    /// What is wrong with it.
    pub note: Option<String>,
    /// Its JSON-RPC id.
    pub rpc_id: Option<RpcId>,
    /// Id of the session.
    pub session_id: SessionId,
    /// The tool that is called.
    pub tool: Option<String>,
    /// What it is.
    pub what: What,
    /// Its length in bytes, without its terminator.
    pub wire_bytes: u64,
}

impl MessageRow {
    fn of(c: &Chained) -> Option<Self> {
        let told = c.message.as_deref()?;
        Some(Self {
            at: c.at,
            call: c.call.as_ref().map(|call| call.invocation_id),
            crossing: crossing(c),
            direction: c.direction,
            id: MessageId::Event(c.session_id, c.cursor),
            method: c.method.clone(),
            note: c.note.clone(),
            rpc_id: told.rpc_id.clone(),
            session_id: c.session_id,
            tool: c.call.as_ref().and_then(|call| call.tool_name.clone()),
            what: told.what,
            wire_bytes: told.wire_bytes,
        })
    }

    /// A message that left no event, as far as its content tells.
    fn of_content(c: &Content) -> Self {
        Self {
            at: c.at,
            call: None,
            crossing: Some(c.crossing()),
            direction: Some(c.direction),
            id: MessageId::Crossed(c.session_id, c.crossing()),
            method: c.said.method.clone(),
            note: None,
            rpc_id: c.said.id.clone(),
            session_id: c.session_id,
            tool: None,
            what: c.said.what,
            wire_bytes: c.wire_bytes,
        }
    }

    /// Its place in the list.
    #[must_use]
    pub const fn place(&self) -> (WallTime, MessageId) {
        (self.at, self.id)
    }
}

/// Which of the two messages of a call it is.
fn side(row: &MessageRow) -> usize {
    usize::from(row.what != What::Request)
}

fn crossing(c: &Chained) -> Option<Crossing> {
    let told = c.message.as_deref()?;
    Some((c.direction?, told.exchange, told.offset))
}

/// The messages that a line of the live protocol says something of.
#[must_use]
pub fn told_of(line: &LiveLine) -> [Option<MessageId>; 2] {
    match line {
        LiveLine::Content(c) => [Some(MessageId::Crossed(c.session_id, c.crossing())), None],
        line => match line.chained() {
            Some(c) => [
                Some(MessageId::Event(c.session_id, c.cursor)),
                crossing(c).map(|at| MessageId::Crossed(c.session_id, at)),
            ],
            None => [None; 2],
        },
    }
}

/// The messages that are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Messages {
    window: usize,
    rows: BTreeMap<(WallTime, MessageId), MessageRow>,
    times: HashMap<MessageId, WallTime>,
    /// The newest that has left the window.
    floor: Option<(WallTime, MessageId)>,
    /// The events of messages, by where those crossed.
    events: HashMap<(SessionId, Crossing), MessageId>,
    /// Where request and answer of a call crossed.
    calls: HashMap<InvocationId, [Option<Crossing>; 2]>,
    contents: BTreeMap<(WallTime, SessionId, Crossing), Arc<Content>>,
    content_times: HashMap<(SessionId, Crossing), WallTime>,
    content_bytes: usize,
}

impl Messages {
    /// Nothing yet; so many will be kept.
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self {
            window: window.max(1),
            rows: BTreeMap::new(),
            times: HashMap::new(),
            floor: None,
            events: HashMap::new(),
            calls: HashMap::new(),
            contents: BTreeMap::new(),
            content_times: HashMap::new(),
            content_bytes: 0,
        }
    }

    /// Those in the window, oldest first.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &MessageRow> {
        self.rows.values()
    }

    /// A message in the window.
    #[must_use]
    pub fn row(&self, id: MessageId) -> Option<&MessageRow> {
        self.rows.get(&(*self.times.get(&id)?, id))
    }

    /// Whether some have left the window.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.floor.is_some()
    }

    /// Whether contents came.
    #[must_use]
    pub fn has_contents(&self) -> bool {
        !self.contents.is_empty()
    }

    /// The content of a message, if it was sent.
    #[must_use]
    pub fn content(&self, row: &MessageRow) -> Option<&Arc<Content>> {
        self.content_at(row.session_id, row.crossing?)
    }

    /// The contents of a call's request and answer.
    #[must_use]
    pub fn contents_of(&self, session: SessionId, call: InvocationId) -> [Option<&Arc<Content>>; 2] {
        let at = self.calls.get(&call).copied().unwrap_or_default();
        at.map(|at| self.content_at(session, at?))
    }

    fn content_at(&self, session: SessionId, at: Crossing) -> Option<&Arc<Content>> {
        self.contents.get(&(*self.content_times.get(&(session, at))?, session, at))
    }

    /// Takes an event of the chain.
    pub(super) fn event(&mut self, c: &Chained) {
        let Some(row) = MessageRow::of(c) else { return };
        if let Some(at) = row.crossing {
            self.remove(MessageId::Crossed(row.session_id, at));
        }
        self.insert(row);
    }

    /// Takes the content of a message.
    pub(super) fn content_came(&mut self, c: &Content) {
        let key = (c.session_id, c.crossing());
        if self.content_times.insert(key, c.at).is_none() {
            self.content_bytes += c.text.len();
            self.contents.insert((c.at, key.0, key.1), Arc::new(c.clone()));
        }
        while self.content_bytes > CONTENTS {
            let Some(((_, session, at), old)) = self.contents.pop_first() else { break };
            self.content_bytes -= old.text.len();
            self.content_times.remove(&(session, at));
        }
        if !self.events.contains_key(&key) {
            self.insert(MessageRow::of_content(c));
        }
    }

    fn insert(&mut self, row: MessageRow) {
        if self.floor.is_some_and(|floor| row.place() <= floor) {
            return;
        }
        if let (MessageId::Event(session, _), Some(at)) = (row.id, row.crossing) {
            self.events.insert((session, at), row.id);
            if let Some(call) = row.call {
                self.calls.entry(call).or_default()[side(&row)] = Some(at);
            }
        }
        self.times.insert(row.id, row.at);
        self.rows.insert(row.place(), row);
        while self.rows.len() > self.window {
            let Some((place, row)) = self.rows.pop_first() else { return };
            self.floor = self.floor.max(Some(place));
            self.forget(&row);
        }
    }

    fn remove(&mut self, id: MessageId) {
        if let Some(row) = self.times.get(&id).and_then(|at| self.rows.remove(&(*at, id))) {
            self.forget(&row);
        }
    }

    fn forget(&mut self, row: &MessageRow) {
        self.times.remove(&row.id);
        if let (MessageId::Event(session, _), Some(at)) = (row.id, row.crossing) {
            self.events.remove(&(session, at));
        }
        if let Some(call) = row.call
            && let Some(sides) = self.calls.get_mut(&call)
        {
            sides[side(row)] = None;
            if *sides == [None; 2] {
                self.calls.remove(&call);
            }
        }
    }
}
