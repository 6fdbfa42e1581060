//! Which evidence session an exchange belongs to.
//!
//! A reducer over heads and first messages, without clock or files: reading the same log again gives the same sessions.
//! An MCP session is an evidence session. A client without session ids is told by its connection, its credentials and
//! how it names itself. What is no MCP belongs to the *base* session of the process.

use crate::{
    canon::Page,
    model::{SessionId, words::EndReason},
    record::{
        envelope::{self, MessageKind, Params},
        source::SessionKey,
    },
    relay::log::{RequestHead, ResponseHead},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, VecDeque};

/// How long a session that is over waits for what is still open in it, ns.
const GRACE_NS: u64 = 5_000_000_000;
/// Bytes of a client's name that tell it from others; of a longer one, its hash does.
const MAX_INFO: usize = 1024;
/// Ended sessions whose ids are remembered, for what comes back.
const REMEMBERED: usize = 4096;
/// The one session of a bridge.
pub const BRIDGE: SessionKey = SessionKey(0);

/// When sessions end by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Without an open stream and without traffic for this long, ns.
    pub idle_ns: u64,
    /// Open sessions; with one more, the longest idle ends.
    pub sessions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { idle_ns: 30 * 60 * 1_000_000_000, sessions: 1024 }
    }
}

/// Who sends a request, as far as anything tells.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClientKey {
    route: u32,
    peer: String,
    credential: Option<String>,
    agent: Option<String>,
}

impl ClientKey {
    /// The client that sent this.
    #[must_use]
    pub fn of(head: &RequestHead) -> Self {
        let agent = head.values.iter().find(|(name, _)| name == "user-agent").map(|(_, value)| value.clone());
        Self { route: head.route, peer: head.peer.clone(), credential: head.credential.clone(), agent }
    }

    /// Whether several people can have the same: nothing tells them apart but an address that many may share.
    fn may_be_shared(&self) -> bool {
        self.credential.is_none() && self.peer != "loopback" && !self.peer.starts_with("uid:")
    }

    /// `c` and 8 hex digits.
    #[must_use]
    pub fn name(&self) -> String {
        let mut hash = Sha256::new();
        for part in [Some(&self.peer), self.credential.as_ref(), self.agent.as_ref()] {
            hash.update(part.map_or(&b"-"[..], |text| text.as_bytes()));
            hash.update([0]);
        }
        format!("c{}", hex::encode(&hash.finalize()[..4]))
    }
}

/// What is known of the first message of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FirstMessage {
    /// It is a JSON-RPC message.
    pub is_rpc: bool,
    /// It asks for `initialize`.
    pub initialize: bool,
    /// How the client names itself in it: the exact JSON.
    pub client_info: Option<String>,
}

impl FirstMessage {
    /// What a client's message says.
    #[must_use]
    pub fn of(bytes: &[u8], page: Page<'_>) -> Self {
        if envelope::is_batch(bytes) {
            return Self { is_rpc: true, ..Self::default() };
        }
        let Ok(envelope) = envelope::parse(bytes, page) else { return Self::default() };
        let params = Params::of(&envelope);
        let initialize = envelope.kind == MessageKind::Request && envelope.method.as_deref() == Some("initialize");
        let info = if initialize { params.initialize.1 } else { params.meta.and_then(client_in_meta) };
        let client_info = info.map(|raw| match std::str::from_utf8(raw) {
            Ok(text) if text.len() <= MAX_INFO => text.to_owned(),
            _ => crate::canon::sha256_hex(raw),
        });
        Self { is_rpc: true, initialize, client_info }
    }
}

fn client_in_meta(meta: &[u8]) -> Option<&[u8]> {
    envelope::Fields::of(meta, ["io.modelcontextprotocol/clientInfo"]).ok()?.get(0)
}

/// How a session is known to have begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Begun {
    /// By `initialize`, by a first request, or by the stream of the old transport.
    FromTheStart,
    /// Its client had begun it before we saw it.
    JoinedMidway,
    /// What is no MCP.
    Base,
}

/// A session that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Its key in this process.
    pub key: SessionKey,
    /// Its id.
    pub id: SessionId,
    /// Where its requests go.
    pub route: u32,
    /// The session that it continues, which had been ended.
    pub continues: Option<SessionId>,
    /// How it began.
    pub begun: Begun,
    /// Digest of the MCP session id, if it is known already.
    pub mcp_session: Option<String>,
    /// The old transport, HTTP+SSE.
    pub old_sse: bool,
    /// Name of the client key.
    pub client: String,
    /// Several people may be the client: nothing tells them apart.
    pub client_may_be_shared: bool,
}

/// What a step of the map means for the recorder, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A session begins.
    Begins(Box<NewSession>),
    /// A session is over.
    Ends(SessionKey, EndReason),
    /// The MCP session of this exchange was used by another client than the one that began it.
    OtherClient {
        /// The session.
        key: SessionKey,
        /// The exchange.
        exchange: u64,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Bound {
    id: u64,
    route: u32,
    client: ClientKey,
    client_info: Option<String>,
    mcp_session: Option<String>,
    old_sse: bool,
    /// Anything was answered with success.
    succeeded: bool,
    /// An `initialize` waits for its answer.
    initializing: bool,
    last_ns: u64,
    open: u32,
    over: Option<(Over, u64)>,
}

/// Why a session that waits for its open exchanges is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Over {
    Deleted,
    Lost,
    StreamClosed,
}

impl Over {
    const fn reason(self) -> EndReason {
        match self {
            Self::Deleted => EndReason::SessionDeleted,
            Self::Lost => EndReason::SessionLost,
            Self::StreamClosed => EndReason::StreamClosed,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open {
    client: ClientKey,
    bound: Option<u64>,
    method: String,
    session: Option<String>,
    is_initialize: bool,
    /// It is the stream of an old session.
    carries: bool,
}

/// All sessions of a process, and what is open in them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionMap {
    process: u64,
    limits: Limits,
    next: u64,
    sessions: BTreeMap<u64, Bound>,
    by_digest: BTreeMap<(u32, String), u64>,
    by_endpoint: BTreeMap<(u32, String), u64>,
    base: Option<u64>,
    exchanges: BTreeMap<u64, Open>,
    /// MCP sessions that ended here, oldest first, with the evidence session of each.
    ended: VecDeque<((u32, String), u64)>,
    /// Every exchange is one of a bridge, whose session begins and ends with its client.
    #[serde(skip)]
    is_bridge: bool,
}

/// The id with which a session of a process begins.
#[must_use]
pub fn session_id(process: u64, key: SessionKey) -> SessionId {
    let mut hash = Sha256::new();
    hash.update(b"assay.http.session\0");
    hash.update(process.to_be_bytes());
    hash.update(key.0.to_be_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let mut bits = [0; 8];
    bits.copy_from_slice(&digest[..8]);
    SessionId::from_bits(u64::from_be_bytes(bits))
}

impl SessionMap {
    /// The map of a process, which has no sessions yet.
    #[must_use]
    pub fn new(process: u64, limits: Limits) -> Self {
        Self {
            process,
            limits,
            next: 0,
            sessions: BTreeMap::new(),
            by_digest: BTreeMap::new(),
            by_endpoint: BTreeMap::new(),
            base: None,
            exchanges: BTreeMap::new(),
            ended: VecDeque::new(),
            is_bridge: false,
        }
    }

    /// The map of a bridge: [`BRIDGE`] is its only session, which is neither begun nor ended here.
    #[must_use]
    pub fn of_bridge() -> Self {
        Self { is_bridge: true, ..Self::new(0, Limits::default()) }
    }

    /// Whether it is that of a bridge.
    #[must_use]
    pub const fn is_bridge(&self) -> bool {
        self.is_bridge
    }

    /// The same with what another process knew.
    #[must_use]
    pub fn restored(&self, state: Self) -> Self {
        Self { is_bridge: self.is_bridge, ..state }
    }

    /// The session of an exchange, once it is known.
    #[must_use]
    pub fn of(&self, exchange: u64) -> Option<SessionKey> {
        if self.is_bridge {
            return Some(BRIDGE);
        }
        self.exchanges.get(&exchange)?.bound.map(SessionKey)
    }

    /// Whether a message of the server in an exchange that is not bound would belong to a session that is there.
    #[must_use]
    pub fn would_join(&self, exchange: u64) -> bool {
        self.exchanges.get(&exchange).is_some_and(|open| {
            let joins = |s: &Bound| !s.old_sse && s.mcp_session.is_none() && s.over.is_none();
            open.session.is_some() || self.latest(&open.client, None, joins).is_some()
        })
    }

    /// Whether answers may come in another exchange than their requests: the session has an id, or is of the old
    /// transport.
    #[must_use]
    pub fn is_resumable(&self, key: SessionKey) -> bool {
        self.sessions.get(&key.0).is_some_and(|s| s.mcp_session.is_some() || s.old_sse)
    }

    /// Whether the session is of the old transport.
    #[must_use]
    pub fn is_old_sse(&self, key: SessionKey) -> bool {
        self.sessions.get(&key.0).is_some_and(|s| s.old_sse)
    }

    /// The id with which the session of this key began.
    #[must_use]
    pub fn id(&self, key: SessionKey) -> Option<SessionId> {
        self.sessions.get(&key.0).map(|s| SessionId::from_bits(s.id))
    }

    /// Number of open sessions, the base session among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether no session is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// A request begins.
    pub fn request(&mut self, exchange: u64, head: &RequestHead, ns: u64, changes: &mut Vec<Change>) {
        if self.is_bridge {
            return;
        }
        let client = ClientKey::of(head);
        let open = Open {
            client: client.clone(),
            bound: None,
            method: head.method.clone(),
            session: head.session.clone(),
            is_initialize: false,
            carries: false,
        };
        self.exchanges.insert(exchange, open);
        let endpoint = self.by_endpoint.get(&(head.route, head.target.digest.clone())).copied();
        if let Some(digest) = &head.session {
            // The body of another one may be an `initialize`, which begins a session whatever its head says.
            let known = self.by_digest.get(&(head.route, digest.clone())).copied();
            let Some(key) = known else { return };
            self.bind(exchange, key, ns);
            if self.sessions.get(&key).is_some_and(|s| is_other(&s.client, &client)) {
                changes.push(Change::OtherClient { key: SessionKey(key), exchange });
            }
        } else if let Some(key) = endpoint {
            self.bind(exchange, key, ns);
        } else if !head.endpoint {
            let base = self.base(head.route, ns, changes);
            self.bind(exchange, base, ns);
        }
    }

    /// A message of an exchange was read, or something else that has no message. It decides where an exchange belongs
    /// that is not bound yet.
    pub fn first(&mut self, exchange: u64, what: &FirstMessage, ns: u64, changes: &mut Vec<Change>) {
        let Some(open) = self.exchanges.get_mut(&exchange) else { return };
        open.is_initialize |= what.initialize;
        let client = open.client.clone();
        let is_bound = open.bound.is_some();
        if what.initialize {
            // A session id in it is not yet, or not any more, one of a session.
            let untried = self
                .latest(&client, None, |s| !s.succeeded && !s.initializing && s.mcp_session.is_none() && !s.old_sse);
            let old = open_old_sse(self, exchange);
            let key = match (old, untried) {
                (Some(key), _) | (None, Some(key)) => key,
                (None, None) => self.begin(client, Begun::FromTheStart, None, false, ns, changes),
            };
            if let Some(s) = self.sessions.get_mut(&key) {
                s.initializing = true;
                s.client_info = what.client_info.clone().or(s.client_info.take());
            }
            self.bind(exchange, key, ns);
            return;
        }
        if is_bound {
            return;
        }
        let name = open.session.clone().map(|digest| (client.route, digest));
        let key = if let Some(name) = name {
            match self.by_digest.get(&name) {
                Some(key) => *key,
                None => self.join(&name, client, ns, changes),
            }
        } else if what.is_rpc {
            let info = what.client_info.as_deref();
            // Whose server gives ids has them in its requests.
            match self.latest(&client, info, |s| !s.old_sse && s.mcp_session.is_none() && s.over.is_none()) {
                Some(key) => key,
                None => self.begin(client, Begun::FromTheStart, None, false, ns, changes),
            }
        } else {
            self.base(client.route, ns, changes)
        };
        if let (Some(s), Some(info)) = (self.sessions.get_mut(&key), &what.client_info) {
            s.client_info.get_or_insert_with(|| info.clone());
        }
        self.bind(exchange, key, ns);
    }

    /// An answer begins.
    pub fn response(&mut self, exchange: u64, head: &ResponseHead, ns: u64, changes: &mut Vec<Change>) {
        if self.exchanges.get(&exchange).is_some_and(|open| open.bound.is_none() && open.session.is_some()) {
            self.first(exchange, &FirstMessage::default(), ns, changes);
        }
        let Some(open) = self.exchanges.get(&exchange) else { return };
        let Some(key) = open.bound else { return };
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.last_ns = ns;
        let ok = (200..300).contains(&head.status);
        session.succeeded |= ok;
        session.initializing &= !open.is_initialize;
        if open.is_initialize
            && ok
            && let Some(digest) = &head.session
        {
            let name = (session.route, digest.clone());
            session.mcp_session = Some(digest.clone());
            self.by_digest.insert(name, key);
        } else if open.method == "DELETE" && ok && open.session.is_some() {
            session.over.get_or_insert((Over::Deleted, ns));
        } else if head.status == 404 && open.session.is_some() {
            session.over.get_or_insert((Over::Lost, ns));
        }
    }

    /// The stream of the old transport named where its client has to post; `target` is that digest.
    pub fn endpoint(&mut self, exchange: u64, target: &str, ns: u64, changes: &mut Vec<Change>) {
        let Some(open) = self.exchanges.get_mut(&exchange) else { return };
        if open.carries || open.method != "GET" {
            return;
        }
        open.carries = true;
        let (client, bound) = (open.client.clone(), open.bound);
        let route = client.route;
        let key = match bound {
            Some(key) => key,
            None => self.begin(client, Begun::FromTheStart, None, true, ns, changes),
        };
        if let Some(s) = self.sessions.get_mut(&key) {
            s.old_sse = true;
            s.succeeded = true;
        }
        self.by_endpoint.insert((route, target.to_owned()), key);
        self.bind(exchange, key, ns);
    }

    /// Both bodies of an exchange are over.
    pub fn over(&mut self, exchange: u64, ns: u64, changes: &mut Vec<Change>) {
        if self.of(exchange).is_none() {
            self.first(exchange, &FirstMessage::default(), ns, changes);
        }
        let Some(open) = self.exchanges.remove(&exchange) else { return };
        let Some(key) = open.bound else { return };
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.open = session.open.saturating_sub(1);
        session.last_ns = ns;
        if open.carries {
            session.over.get_or_insert((Over::StreamClosed, ns));
        }
        if let Some((over, _)) = session.over.filter(|_| session.open == 0) {
            self.end(key, over.reason(), changes);
        }
    }

    /// Ends what is over, and what has been idle for too long.
    pub fn tick(&mut self, ns: u64, changes: &mut Vec<Change>) {
        let idle = self.limits.idle_ns;
        let due = |s: &Bound, is_base: bool| match s.over {
            Some((over, since)) if s.open == 0 || ns.saturating_sub(since) > GRACE_NS => Some(over.reason()),
            None if !is_base && s.open == 0 && ns.saturating_sub(s.last_ns) > idle => Some(EndReason::Idle),
            _ => None,
        };
        let over: Vec<_> =
            self.sessions.iter().filter_map(|(key, s)| Some((*key, due(s, self.base == Some(*key))?))).collect();
        for (key, reason) in over {
            self.end(key, reason, changes);
        }
    }

    /// A session for what belongs to none in particular: one that is open, or the base session.
    pub fn any(&mut self, ns: u64, changes: &mut Vec<Change>) -> SessionKey {
        match self.sessions.keys().next() {
            _ if self.is_bridge => BRIDGE,
            Some(key) => SessionKey(*key),
            None => SessionKey(self.base(0, ns, changes)),
        }
    }

    fn end(&mut self, key: u64, reason: EndReason, changes: &mut Vec<Change>) {
        let Some(session) = self.sessions.remove(&key) else { return };
        self.by_digest.retain(|_, of| *of != key);
        self.by_endpoint.retain(|_, of| *of != key);
        if self.base == Some(key) {
            self.base = None;
        }
        for open in self.exchanges.values_mut().filter(|open| open.bound == Some(key)) {
            open.bound = None;
        }
        if let Some(digest) = session.mcp_session {
            if self.ended.len() == REMEMBERED {
                self.ended.pop_front();
            }
            self.ended.push_back(((session.route, digest), session.id));
        }
        changes.push(Change::Ends(SessionKey(key), reason));
    }

    /// Packs of the session that began with this key had rolled over: it ended as this one.
    pub fn ended_as(&mut self, key: SessionKey, last: SessionId) {
        let begun = session_id(self.process, key).bits();
        if let Some((_, id)) = self.ended.iter_mut().rfind(|(_, id)| *id == begun) {
            *id = last.bits();
        }
    }

    fn bind(&mut self, exchange: u64, key: u64, ns: u64) {
        let Some(open) = self.exchanges.get_mut(&exchange) else { return };
        let before = open.bound.replace(key);
        if before == Some(key) {
            return;
        }
        if let Some(old) = before.and_then(|old| self.sessions.get_mut(&old)) {
            old.open = old.open.saturating_sub(1);
        }
        if let Some(session) = self.sessions.get_mut(&key) {
            session.open += 1;
            session.last_ns = ns;
        }
    }

    /// The last session of this client that is open; one that names itself otherwise is another.
    fn latest(&self, client: &ClientKey, info: Option<&str>, take: impl Fn(&Bound) -> bool) -> Option<u64> {
        let same = |s: &Bound| {
            s.client == *client
                && match (info, &s.client_info) {
                    (Some(info), Some(known)) => info == known,
                    _ => true,
                }
        };
        let mut all = self.sessions.iter().filter(|(key, s)| Some(**key) != self.base && same(s) && take(s));
        all.next_back().map(|(key, _)| *key)
    }

    fn base(&mut self, route: u32, ns: u64, changes: &mut Vec<Change>) -> u64 {
        if let Some(base) = self.base {
            return base;
        }
        let client = ClientKey { route, peer: String::new(), credential: None, agent: None };
        let key = self.begin(client, Begun::Base, None, false, ns, changes);
        self.base = Some(key);
        key
    }

    fn join(&mut self, name: &(u32, String), client: ClientKey, ns: u64, changes: &mut Vec<Change>) -> u64 {
        let key = self.begin(client, Begun::JoinedMidway, Some(name.1.clone()), false, ns, changes);
        self.by_digest.insert(name.clone(), key);
        key
    }

    fn begin(
        &mut self,
        client: ClientKey,
        begun: Begun,
        mcp_session: Option<String>,
        old_sse: bool,
        ns: u64,
        changes: &mut Vec<Change>,
    ) -> u64 {
        while self.sessions.len() >= self.limits.sessions {
            let idle = self.sessions.iter().filter(|(key, _)| self.base != Some(**key));
            let Some(key) = idle.min_by_key(|(_, s)| (s.open > 0, s.last_ns)).map(|(key, _)| *key) else { break };
            self.end(key, EndReason::Evicted, changes);
        }
        let key = self.next;
        self.next += 1;
        let id = session_id(self.process, SessionKey(key));
        let name = mcp_session.as_ref().map(|digest| (client.route, digest.clone()));
        let continues = name.and_then(|name| self.ended.iter().rfind(|(ended, _)| *ended == name));
        changes.push(Change::Begins(Box::new(NewSession {
            key: SessionKey(key),
            id,
            route: client.route,
            continues: continues.map(|(_, id)| SessionId::from_bits(*id)),
            begun,
            mcp_session: mcp_session.clone(),
            old_sse,
            client: client.name(),
            client_may_be_shared: client.may_be_shared(),
        })));
        let session = Bound {
            id: id.bits(),
            route: client.route,
            client,
            client_info: None,
            mcp_session,
            old_sse,
            succeeded: false,
            initializing: false,
            last_ns: ns,
            open: 0,
            over: None,
        };
        self.sessions.insert(key, session);
        key
    }
}

/// The session of the old transport that an exchange was bound to by its target.
fn open_old_sse(map: &SessionMap, exchange: u64) -> Option<u64> {
    let key = map.exchanges.get(&exchange)?.bound?;
    map.sessions.get(&key)?.old_sse.then_some(key)
}

/// Another credential and another user agent or peer; a credential alone is renewed now and then.
fn is_other(began: &ClientKey, now: &ClientKey) -> bool {
    began.credential != now.credential && (began.agent != now.agent || began.peer != now.peer)
}

#[cfg(test)]
mod tests;
