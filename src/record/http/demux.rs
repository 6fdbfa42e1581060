//! From entries of the log to sessions, messages and exchanges.
//!
//! It has no file and no clock: the same entries give the same evidence.

use super::{
    assemble::{Assembly, Part, Parts},
    exchange::{Body, Delivery, Exchange, Undecided, side, stream},
    kept::{IN_MEMORY, SpoolPlace},
    replays::{Replay, Replays},
    sessions::{BRIDGE, Change, FirstMessage, NewSession, SessionMap},
    state::State,
};
use crate::{
    canon::sha256,
    model::{
        CallAnomaly, Direction, SessionId,
        words::{EndReason, ExchangeOrigin},
    },
    record::{
        envelope::{self, MessageKind},
        exchange::Exchange as Told,
        opening::Opening,
        recorder::{Ending, Message},
        rulings::RulingRecord,
        source::{Seen, SessionKey},
        stream::{MessagePlace, StreamId},
    },
    relay::log::{BodyEnd, Cause, Entry, Flow, NoteCode, Pulse, RequestHead, ResponseHead},
};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
};

/// Opens the session that begins; the time is when, monotonic ns.
pub type Open = Box<dyn FnMut(&NewSession, u64) -> Opening + Send>;
/// The digest, under the user's key, of a target: path and query.
pub type Digest = Box<dyn Fn(&[u8]) -> String + Send>;
/// Where a large message of a body is kept until it is whole.
pub type Spools = Box<dyn Fn(Flow) -> Option<SpoolPlace> + Send>;
/// Takes what is seen of a session.
pub type Take<'t> = &'t mut dyn FnMut(SessionKey, Seen<'_>);

/// What is done with an assembly, and where it puts the messages that it finds.
type Act<'t> = &'t mut dyn FnMut(&mut Assembly, Parts<'_>) -> io::Result<()>;

/// A longer message of an event stream does not wait for what a guard decides about it: that is an answer, which it does
/// not hold, or what was decided is known before its end. 4 MiB.
const MAX_UNDECIDED: usize = 4 << 20;
/// How long an exchange that is over waits for its delivery, ns.
const UNDELIVERED_NS: u64 = 2_000_000_000;
/// How often exchanges and sessions are looked at for what is over, in the time of the entries, ns.
const TICK_NS: u64 = 250_000_000;

/// Something that waits until the engine has begun a session.
enum Out {
    Begins(Box<Opening>),
    Message(Box<Whole>),
    Exchange(Box<Told>),
    Delivered(StreamId, Delivery),
    Ends(EndReason),
    Torn(u64, u64),
    Gap(u64, u64),
    Rolls(EndReason),
    /// The end of a body.
    Body(Flow, BodyEnd, u64),
}

/// A message with bytes of its own.
struct Whole {
    place: MessagePlace,
    end: u64,
    bytes: Vec<u8>,
    sha256: OnceCell<[u8; 32]>,
    facts: Facts,
}

/// What is said of a message beside its place and its bytes.
#[derive(Debug, Clone)]
struct Facts {
    ruling: Option<RulingRecord>,
    undecided: bool,
    resumable: bool,
    other: bool,
    replayed: bool,
    first_byte_ns: u64,
    read_ns: u64,
}

/// The exchanges and sessions of a process.
pub struct Demux {
    pub(super) map: SessionMap,
    pub(super) exchanges: BTreeMap<u64, Exchange>,
    /// The session that each key stands for now, where packs have rolled over.
    pub(super) ids: BTreeMap<SessionKey, SessionId>,
    open: Option<Open>,
    digest: Digest,
    spools: Spools,
    out: VecDeque<(SessionKey, Out)>,
    changes: Vec<Change>,
    /// Exchanges that are over, but for their delivery.
    undelivered: BTreeSet<u64>,
    /// Events that each session has seen.
    replays: BTreeMap<SessionKey, Replays>,
    pub(super) ticked_ns: u64,
    pub(super) errors: Vec<(SessionKey, &'static str, io::Error)>,
    /// A guard decides what passes.
    guarded: bool,
    /// Beats while one message is read.
    pub(super) pulse: Pulse,
}

impl Demux {
    /// The exchanges of a process, none of which is open. That of a bridge opens no sessions.
    #[must_use]
    pub fn new(map: SessionMap, open: Option<Open>, digest: Digest, spools: Spools, guarded: bool) -> Self {
        Self {
            guarded,
            pulse: Pulse::default(),
            map,
            exchanges: BTreeMap::new(),
            ids: BTreeMap::new(),
            open,
            digest,
            spools,
            out: VecDeque::new(),
            changes: Vec::new(),
            undelivered: BTreeSet::new(),
            replays: BTreeMap::new(),
            ticked_ns: 0,
            errors: Vec::new(),
        }
    }

    /// Whether anything waits to be handed out.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.out.is_empty()
    }

    /// Hands out what waits longest. `false`: nothing waits.
    pub fn hand_out(&mut self, take: Take<'_>) -> bool {
        let Some((key, out)) = self.out.pop_front() else { return false };
        match out {
            Out::Begins(opening) => take(key, Seen::Begins(opening)),
            Out::Message(m) => take(key, Seen::Message(&m.borrowed())),
            Out::Exchange(told) => take(key, Seen::Exchange(told)),
            Out::Delivered(stream, delivery) => {
                take(key, Seen::Delivered { stream, upto: delivery.upto(), when: &|offset| delivery.when(offset) });
            }
            Out::Ends(reason) => take(key, Seen::Ends(ending(reason))),
            Out::Rolls(reason) => take(key, Seen::Rolls(reason)),
            Out::Torn(bytes, read_ns) => take(key, Seen::Torn { bytes, read_ns }),
            Out::Gap(bytes, read_ns) => take(key, Seen::Gap { bytes, read_ns }),
            Out::Body(flow, end, ns) => self.ends(flow, end, ns, take),
        }
        true
    }

    /// Time has passed: exchanges and sessions may be over.
    pub fn tick(&mut self, ns: u64) {
        let exchanges = &self.exchanges;
        let late = |number: &&u64| {
            let over = exchanges.get(number).and_then(Exchange::over_ns);
            over.is_none_or(|over| ns.saturating_sub(over) > UNDELIVERED_NS)
        };
        for exchange in self.undelivered.iter().filter(late).copied().collect::<Vec<_>>() {
            self.over(exchange, ns);
        }
        self.map.tick(ns, &mut self.changes);
        self.follow(ns);
    }

    /// Takes one entry of the log. What it means is handed out at once, or waits for [`Demux::hand_out`] where a session
    /// begins with it.
    pub fn take(&mut self, flow: Flow, ns: u64, entry: Entry<'_>, take: Take<'_>) {
        // Also without a clock, in the same order as with one: who reads a log again finds the same sessions.
        if ns.saturating_sub(self.ticked_ns) > TICK_NS {
            self.ticked_ns = ns;
            self.tick(ns);
        }
        if self.guarded {
            self.decided(flow, &entry, ns, take);
        }
        match entry {
            Entry::Request(head) => self.begins(flow.exchange, &head, ns),
            Entry::Response(head) => self.answers(flow.exchange, head, ns),
            Entry::Data { bytes, own, .. } => self.data(flow, bytes, own, ns, take),
            Entry::End(end) => self.ends(flow, end, ns, take),
            Entry::Wrote { upto } => {
                if let Some(body) = self.body(flow) {
                    body.delivery.wrote(upto, ns);
                    self.delivered(flow, take);
                }
                self.over_if_done(flow.exchange, ns);
            }
            Entry::Gap { bytes, .. } => self.gap(flow, bytes, ns),
            Entry::Note { code, text } => self.note(flow, code, text, ns),
            Entry::Ruling { end, record } => self.ruled(flow, end, record, ns, take),
        }
    }

    /// Tells how far a body was delivered.
    fn delivered(&mut self, flow: Flow, take: Take<'_>) {
        let (Some(key), is_first) = (self.map.of(flow.exchange), self.out.is_empty()) else { return };
        let Some(body) = self.body(flow) else { return };
        let (delivery, stream) = (&body.delivery, stream(flow));
        if is_first {
            take(key, Seen::Delivered { stream, upto: delivery.upto(), when: &|offset| delivery.when(offset) });
        } else {
            let delivery = delivery.clone();
            self.out.push_back((key, Out::Delivered(stream, delivery)));
        }
    }

    /// Bytes that were read of messages whose end has not come, by session.
    pub fn unfinished(&self, lost: crate::record::source::Lost<'_>) {
        for (number, e) in &self.exchanges {
            let Some(key) = self.map.of(*number) else { continue };
            let bytes = e.bodies.iter().filter_map(|body| body.assembly.as_ref()).map(Assembly::unfinished).sum();
            lost(key, 0, bytes);
        }
    }

    /// The session that each key stands for now.
    pub fn ids(&self) -> impl Iterator<Item = (SessionKey, SessionId)> {
        self.ids.iter().map(|(key, id)| (*key, *id))
    }

    /// A session that is open, if there is one.
    #[must_use]
    pub fn any_session(&self) -> Option<SessionKey> {
        self.ids.keys().next().copied()
    }

    /// What is known when everything before this offset of the log was taken.
    #[must_use]
    pub fn state(&self, at: u64) -> State {
        State {
            at,
            map: self.map.clone(),
            ids: self.ids.iter().map(|(key, id)| (key.0, id.bits())).collect(),
            exchanges: self.exchanges.iter().map(|(number, e)| (*number, e.state())).collect(),
            undelivered: self.undelivered.iter().copied().collect(),
            ticked_ns: self.ticked_ns,
            replays: self.replays.iter().map(|(key, replays)| (*key, replays.clone())).collect(),
            rulings: self.bodies().flat_map(|(flow, body)| body.rulings_of(flow)).collect(),
            held: self
                .bodies()
                .flat_map(|(flow, body)| body.held.iter().map(move |m| (flow.exchange, m.clone())))
                .collect(),
            ours: self.exchanges.iter().filter(|(_, e)| e.ours).map(|(number, _)| *number).collect(),
        }
    }

    fn bodies(&self) -> impl Iterator<Item = (Flow, &Body)> {
        self.exchanges
            .iter()
            .flat_map(|(number, e)| [(Flow::request(*number), &e.bodies[0]), (Flow::response(*number), &e.bodies[1])])
    }

    /// Continues from what was known.
    ///
    /// # Errors
    /// A message that is kept in a file cannot be read.
    pub fn restore(&mut self, state: State) -> io::Result<()> {
        for (number, e) in state.exchanges {
            let flows = [Flow::request(number), Flow::response(number)];
            let exchange = e.restore(|side, state| Assembly::restore(state, (self.spools)(flows[side])))?;
            self.exchanges.insert(number, exchange);
        }
        for number in state.ours {
            if let Some(e) = self.exchanges.get_mut(&number) {
                e.ours = true;
            }
        }
        for (exchange, in_answer, end, ruling) in state.rulings {
            let flow = if in_answer { Flow::response(exchange) } else { Flow::request(exchange) };
            if let Some(body) = self.body(flow) {
                body.rulings.push((end, ruling));
            }
        }
        for (exchange, message) in state.held {
            if let Some(body) = self.body(Flow::response(exchange)) {
                body.held.push(message);
            }
        }
        self.map = self.map.restored(state.map);
        self.ids = state.ids.into_iter().map(|(key, id)| (SessionKey(key), SessionId::from_bits(id))).collect();
        self.replays = state.replays.into_iter().collect();
        self.undelivered = state.undelivered.into_iter().collect();
        self.ticked_ns = state.ticked_ns;
        // Who reads on knows of these only what is on disk.
        let open: Vec<u64> = self.exchanges.iter().filter(|(_, e)| e.told.is_some()).map(|(n, _)| *n).collect();
        for exchange in open {
            self.tell(exchange);
        }
        Ok(())
    }

    fn body(&mut self, flow: Flow) -> Option<&mut Body> {
        self.exchanges.get_mut(&flow.exchange).map(|e| &mut e.bodies[side(flow.direction)])
    }

    /// What the last step of the map means.
    fn follow(&mut self, ns: u64) {
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Begins(new) => {
                    let Some(open) = &mut self.open else { continue };
                    self.ids.insert(new.key, new.id);
                    let opening = open(&new, ns);
                    self.out.push_back((new.key, Out::Begins(Box::new(opening))));
                }
                Change::Ends(key, reason) => {
                    if let Some(last) = self.ids.remove(&key) {
                        self.map.ended_as(key, last);
                    }
                    self.replays.remove(&key);
                    self.out.push_back((key, Out::Ends(reason)));
                }
                Change::OtherClient { exchange, .. } => {
                    if let Some(e) = self.exchanges.get_mut(&exchange) {
                        e.other_client = true;
                    }
                }
            }
        }
    }

    fn begins(&mut self, exchange: u64, head: &RequestHead, ns: u64) {
        let assembly = head.endpoint.then(|| self.assembly_of(Flow::request(exchange), &head.values));
        let state = Exchange {
            request: head.clone(),
            began_ns: ns,
            response: None,
            bodies: [Body::new(assembly), Body::new(None)],
            notes: Vec::new(),
            told: None,
            other_client: false,
            ours: false,
        };
        self.exchanges.insert(exchange, state);
        self.map.request(exchange, head, ns, &mut self.changes);
        self.follow(ns);
        self.tell_of_bridge(exchange);
    }

    /// No message tells of an exchange of a bridge.
    fn tell_of_bridge(&mut self, exchange: u64) {
        if self.map.is_bridge() {
            self.tell(exchange);
        }
    }

    /// Tells what is known of an exchange that is open.
    fn tell(&mut self, exchange: u64) {
        let Some(key) = self.map.of(exchange) else { return };
        let (origin, resumable) = (self.origin(exchange), self.map.is_resumable(key));
        let Some(e) = self.exchanges.get_mut(&exchange) else { return };
        e.told = Some(key);
        self.out.push_back((key, Out::Exchange(Box::new(e.told(exchange, origin, resumable)))));
    }

    /// Who asks.
    fn origin(&self, exchange: u64) -> ExchangeOrigin {
        if self.map.is_bridge() {
            ExchangeOrigin::Bridge
        } else if self.exchanges.get(&exchange).is_some_and(|e| e.ours) {
            ExchangeOrigin::Assay
        } else {
            ExchangeOrigin::Client
        }
    }

    fn note(&mut self, flow: Flow, code: NoteCode, text: &str, ns: u64) {
        match (code, self.exchanges.get_mut(&flow.exchange)) {
            (NoteCode::Begins, Some(e)) => {
                let read = e.bodies[0].assembly.as_mut().map(|assembly| assembly.peek(FirstMessage::of));
                // It cannot be read, but it is a message.
                let first = read.and_then(Result::ok).unwrap_or_default();
                let first = FirstMessage { is_rpc: true, ..first };
                if self.map.of(flow.exchange).is_none() {
                    self.map.first(flow.exchange, &first, ns, &mut self.changes);
                    self.follow(ns);
                }
            }
            (NoteCode::SessionLost, _) => self.out.push_back((BRIDGE, Out::Rolls(EndReason::SessionLost))),
            (_, Some(e)) => {
                e.notes.push((code, text.to_owned()));
                self.tell_of_bridge(flow.exchange);
            }
            (NoteCode::Unrecorded, None) => self.gap_of_any(0, ns),
            (_, None) => {}
        }
    }

    fn answers(&mut self, exchange: u64, head: ResponseHead, ns: u64) {
        self.map.response(exchange, &head, ns, &mut self.changes);
        self.follow(ns);
        let assembly = self.assembly_of(Flow::response(exchange), &head.values);
        let Some(e) = self.exchanges.get_mut(&exchange) else { return };
        if e.request.endpoint {
            e.bodies[1].is_stream = assembly.has_events();
            e.bodies[1].assembly = Some(assembly);
        }
        e.response = Some((head, ns));
        self.tell_of_bridge(exchange);
    }

    fn assembly_of(&self, flow: Flow, values: &[(String, String)]) -> Assembly {
        let value = |name| Exchange::value(values, name);
        // No server takes events, and what a guard reads in a request is its whole body.
        let kind = value("content-type").filter(|kind| {
            flow.direction == Direction::ServerToClient
                || !kind.trim_start().to_ascii_lowercase().starts_with("text/event")
        });
        Assembly::new(kind, value("content-encoding"), (self.spools)(flow))
    }

    fn data(&mut self, flow: Flow, bytes: &[u8], own: bool, ns: u64, take: Take<'_>) {
        if own
            && !self.map.is_bridge()
            && let Some(e) = self.exchanges.get_mut(&flow.exchange)
        {
            e.ours |= flow.direction == Direction::ClientToServer;
            e.bodies[side(flow.direction)].assembly.iter_mut().for_each(Assembly::is_ours);
        }
        self.with_assembly(flow, ns, take, &mut |assembly, parts| assembly.take(bytes, ns, parts));
        if flow.direction == Direction::ServerToClient {
            self.begins_with_much(flow, ns);
        }
    }

    /// A long message with which a session may begin is not copied while it waits for that: the session begins before it
    /// is whole. Gives the session that has begun.
    fn begins_with_much(&mut self, flow: Flow, ns: u64) -> Option<SessionKey> {
        if self.map.of(flow.exchange).is_some() {
            return None;
        }
        let e = self.exchanges.get_mut(&flow.exchange)?;
        let is_answer = flow.direction == Direction::ServerToClient;
        if is_answer && (e.bodies[0].end.is_none() || e.is_http_error()) {
            return None;
        }
        let body = &mut e.bodies[side(flow.direction)];
        let assembly = body.assembly.as_mut().filter(|assembly| assembly.unfinished() > IN_MEMORY as u64)?;
        let mut first = FirstMessage::default();
        if !is_answer {
            first = assembly.peek(FirstMessage::of).unwrap_or_default();
        }
        first.is_rpc |= is_answer || body.rulings.iter().any(|(_, ruling)| ruling.blocked);
        self.map.first(flow.exchange, &first, ns, &mut self.changes);
        self.follow(ns);
        self.out.back().map(|(key, _)| *key)
    }

    fn ends(&mut self, flow: Flow, end: BodyEnd, ns: u64, take: Take<'_>) {
        // Of a request that was refused before its end, what was read is the message.
        let refused = self.body(flow).is_some_and(|body| body.rulings.iter().any(|(_, ruling)| ruling.blocked));
        let whole = end.cause == Cause::Complete || refused;
        if let Some(key) = self.begins_with_much(flow, ns).filter(|_| whole) {
            self.out.push_back((key, Out::Body(flow, end, ns)));
            return;
        }
        self.with_assembly(flow, ns, take, &mut |assembly, parts| assembly.end(whole, ns, parts));
        self.unmatched(flow, None, ns, take);
        let Some(e) = self.exchanges.get_mut(&flow.exchange) else { return };
        let body = &mut e.bodies[side(flow.direction)];
        body.end = Some(end);
        body.ended_ns = ns;
        self.over_if_done(flow.exchange, ns);
    }

    /// Forgets an exchange of which nothing more will be heard.
    fn over_if_done(&mut self, exchange: u64, ns: u64) {
        let Some(e) = self.exchanges.get(&exchange) else { return };
        match e.over_ns() {
            Some(_) if e.is_done() => self.over(exchange, ns),
            Some(_) => {
                self.undelivered.insert(exchange);
            }
            None => {}
        }
    }

    fn over(&mut self, exchange: u64, ns: u64) {
        self.undelivered.remove(&exchange);
        if self.map.of(exchange).is_none() {
            let is_rpc = self.exchanges.get(&exchange).is_some_and(|e| e.ours);
            self.map.first(exchange, &FirstMessage { is_rpc, ..FirstMessage::default() }, ns, &mut self.changes);
            self.follow(ns);
        }
        let key = self.map.of(exchange);
        let (origin, resumable) = (self.origin(exchange), key.is_some_and(|key| self.map.is_resumable(key)));
        self.map.over(exchange, ns, &mut self.changes);
        if let (Some(e), Some(key)) = (self.exchanges.remove(&exchange), key) {
            self.out.push_back((key, Out::Exchange(Box::new(e.told_last(exchange, origin, resumable)))));
        }
        self.follow(ns);
    }

    /// Of something nobody knows which exchange it was of.
    fn gap_of_any(&mut self, bytes: u64, ns: u64) {
        let key = self.map.any(ns, &mut self.changes);
        self.follow(ns);
        self.out.push_back((key, Out::Gap(bytes, ns)));
    }

    fn gap(&mut self, flow: Flow, bytes: u64, ns: u64) {
        let Some(e) = self.exchanges.get_mut(&flow.exchange) else { return self.gap_of_any(bytes, ns) };
        let body = &mut e.bodies[side(flow.direction)];
        body.gap_bytes += bytes;
        let torn = body.assembly.as_mut().map_or(0, Assembly::tear);
        if self.map.of(flow.exchange).is_none() {
            self.map.first(flow.exchange, &FirstMessage::default(), ns, &mut self.changes);
            self.follow(ns);
        }
        let Some(key) = self.map.of(flow.exchange) else { return };
        if torn > 0 {
            self.out.push_back((key, Out::Torn(torn, ns)));
        }
        self.out.push_back((key, Out::Gap(bytes, ns)));
    }

    /// Has an assembly do something, and takes the messages that it finds.
    fn with_assembly(&mut self, flow: Flow, ns: u64, take: Take<'_>, act: Act<'_>) {
        let Some(body) = self.body(flow) else { return };
        body.first_ns.get_or_insert(ns);
        let Some(mut assembly) = body.assembly.take() else { return };
        let acted = act(&mut assembly, &mut |part| self.part(flow, &part, ns, take));
        if let Some(body) = self.body(flow) {
            body.assembly = Some(assembly);
        }
        if let (Err(e), Some(key)) = (acted, self.map.of(flow.exchange)) {
            self.errors.push((key, "keeping a large message", e));
        }
    }

    /// Whether this event was seen before, and its stream continues one that was cut.
    fn is_replay(&mut self, key: SessionKey, exchange: u64, part: &Part<'_>) -> bool {
        if part.id.is_empty() {
            return false;
        }
        let hash = part.sha256.get_or_init(|| sha256(part.bytes));
        let seen = self.replays.entry(key).or_default().note(part.id, hash);
        let request = self.exchanges.get(&exchange).map(|e| &e.request.values[..]).unwrap_or_default();
        seen == Replay::Same && Exchange::value(request, "last-event-id").is_some()
    }

    fn part(&mut self, flow: Flow, part: &Part<'_>, ns: u64, take: Take<'_>) {
        let is_request = flow.direction == Direction::ClientToServer;
        match part.event {
            None | Some(b"message") => {}
            Some(b"endpoint") if !is_request => {
                let target = (self.digest)(target_of(part.bytes));
                self.map.endpoint(flow.exchange, &target, ns, &mut self.changes);
                return self.follow(ns);
            }
            Some(_) => return,
        }
        if self.map.is_bridge() && !is_request && !is_answer(part.bytes) {
            // It is for the client, where it is captured.
            return;
        }
        let Some(e) = self.exchanges.get_mut(&flow.exchange) else { return };
        if !is_request && e.is_http_error() && !is_rpc_answer(part.bytes) {
            // The text of an HTTP error is no message.
            return;
        }
        let body = &mut e.bodies[side(flow.direction)];
        body.messages += 1;
        let ruling = body.ruling_at(part.offset);
        // What is decided about other bodies stands before their ends.
        let may_be_decided = self.guarded && !is_request && ruling.is_none() && part.bytes.len() <= MAX_UNDECIDED;
        if may_be_decided && body.end.is_none() && body.is_stream {
            let Part { offset, end, bytes, sha256, first_byte_ns, read_ns, id, .. } = *part;
            let (bytes, sha256, id) = (bytes.to_vec(), sha256.clone(), id.to_vec());
            body.held.push(Undecided { offset, end, bytes, sha256, first_byte_ns, read_ns, id });
            return;
        }
        self.message(flow, part, ruling, false, ns, take);
    }

    /// A message of which it is known what was decided about it.
    fn message(
        &mut self,
        flow: Flow,
        part: &Part<'_>,
        ruling: Option<RulingRecord>,
        undecided: bool,
        ns: u64,
        take: Take<'_>,
    ) {
        let is_request = flow.direction == Direction::ClientToServer;
        if self.map.of(flow.exchange).is_none() {
            let mut first = if is_request { FirstMessage::of(part.bytes, part.page) } else { FirstMessage::default() };
            // What is refused may be cut off.
            first.is_rpc |= !is_request || ruling.as_ref().is_some_and(|ruling| ruling.blocked);
            self.map.first(flow.exchange, &first, ns, &mut self.changes);
            self.follow(ns);
        }
        let Some(key) = self.map.of(flow.exchange) else { return };
        let place = MessagePlace { stream: stream(flow), offset: part.offset };
        let (origin, resumable) = (self.origin(flow.exchange), self.map.is_resumable(key));
        let replayed = !is_request && self.is_replay(key, flow.exchange, part);
        let Some(e) = self.exchanges.get_mut(&flow.exchange) else { return };
        let other = e.other_client && is_request;
        // A ruling for which there was no room is a refusal.
        let lost = self.guarded
            && is_request
            && ruling.is_none()
            && e.notes.iter().any(|(code, _)| *code == NoteCode::Unrecorded);
        if e.told.replace(key) != Some(key) {
            let told = Box::new(e.told(flow.exchange, origin, resumable));
            if self.out.is_empty() {
                take(key, Seen::Exchange(told));
            } else {
                self.out.push_back((key, Out::Exchange(told)));
            }
        }
        let (first_byte_ns, read_ns) = (part.first_byte_ns, part.read_ns);
        let undecided = undecided || lost;
        let facts = Facts { ruling, undecided, resumable, other, replayed, first_byte_ns, read_ns };
        if self.out.is_empty() {
            let pulse = &self.pulse;
            let page = part.page.map(|page| {
                move |upto: usize| {
                    page(upto);
                    pulse.beat();
                }
            });
            let page = page.as_ref().map(|page| page as &dyn Fn(usize));
            take(key, Seen::Message(&message(place, part.end, (part.bytes, part.sha256), page, &facts)));
        } else {
            let whole = Whole { place, end: part.end, bytes: part.bytes.to_vec(), sha256: part.sha256.clone(), facts };
            self.out.push_back((key, Out::Message(Box::new(whole))));
        }
        // Its last byte may have been written before it was known to be one.
        if self.body(flow).is_some_and(|body| body.delivery.upto() >= part.end) {
            self.delivered(flow, take);
        }
    }

    /// This entry shows that a guard is past the messages before it.
    fn decided(&mut self, flow: Flow, entry: &Entry<'_>, ns: u64, take: Take<'_>) {
        match entry {
            Entry::Wrote { upto } => self.hand_on(flow, &|held| held.end <= *upto, false, ns, take),
            Entry::End(_) | Entry::Gap { .. } => self.hand_on(flow, &|_| true, false, ns, take),
            _ => {}
        }
    }

    /// Hands on the messages of a body that are held as long as this is so.
    fn hand_on(&mut self, flow: Flow, is_due: &dyn Fn(&Undecided) -> bool, undecided: bool, ns: u64, take: Take<'_>) {
        while let Some(body) = self.body(flow)
            && body.held.first().is_some_and(is_due)
        {
            let held = body.held.remove(0);
            let ruling = body.ruling_at(held.offset);
            self.message(flow, &held.part(), ruling, undecided, ns, take);
        }
    }

    /// A guard decided about a message.
    fn ruled(&mut self, flow: Flow, end: u64, record: &[u8], ns: u64, take: Take<'_>) {
        let Some(ruling) = RulingRecord::from_bytes(record) else {
            // Only this process writes there.
            tracing::error!(exchange = flow.exchange, "a decision cannot be read");
            return;
        };
        let offset = ruling.offset;
        let Some(body) = self.body(flow) else { return };
        body.rulings.push((end, ruling));
        self.hand_on(flow, &|held| held.offset <= offset, false, ns, take);
        let body = self.body(flow).filter(|body| body.is_stream);
        if let Some(within) = body.map(|body| body.assembly.as_ref().and_then(Assembly::within_event)) {
            self.unmatched(flow, within, ns, take);
        }
    }

    /// What was refused of a body and is no message for the recorder: nothing of it was read, or some readers only find
    /// one in it. What is decided about an event that is too long stands before its end: `within` is the offset of the one
    /// that is being read.
    fn unmatched(&mut self, flow: Flow, within: Option<u64>, ns: u64, take: Take<'_>) {
        let Some(body) = self.body(flow) else { return };
        let decided = body.rulings.extract_if(.., |(_, ruling)| Some(ruling.offset) != within);
        for (end, ruling) in decided.filter(|(_, ruling)| ruling.blocked).collect::<Vec<_>>() {
            if self.map.of(flow.exchange).is_none() {
                let first = FirstMessage { is_rpc: true, ..FirstMessage::default() };
                self.map.first(flow.exchange, &first, ns, &mut self.changes);
                self.follow(ns);
            }
            let (offset, at) = (ruling.offset, ruling.ns);
            let (bytes, page, event, id): (&[u8], _, _, &[u8]) = (&[], None, None, &[]);
            let sha256 = &OnceCell::new();
            let part = Part { offset, end, bytes, sha256, page, first_byte_ns: at, read_ns: at, event, id };
            self.message(flow, &part, Some(ruling), false, ns, take);
        }
    }

    /// The process was killed: what its guard had not decided about was not passed on.
    pub fn killed(&mut self, ns: u64, take: Take<'_>) {
        let waits = self.bodies().filter(|(_, body)| !body.held.is_empty()).map(|(flow, _)| flow);
        for flow in waits.collect::<Vec<_>>() {
            self.hand_on(flow, &|_| true, true, ns, take);
        }
    }
}

impl Whole {
    fn borrowed(&self) -> Message<'_> {
        message(self.place, self.end, (&self.bytes, &self.sha256), None, &self.facts)
    }
}

fn message<'a>(
    place: MessagePlace,
    end: u64,
    (bytes, sha256): (&'a [u8], &'a OnceCell<[u8; 32]>),
    page: Option<&'a dyn Fn(usize)>,
    facts: &'a Facts,
) -> Message<'a> {
    Message {
        place,
        end,
        bytes,
        sha256,
        page,
        rest: &|| {},
        first_byte_ns: facts.first_byte_ns,
        read_ns: facts.read_ns,
        ruling: facts.ruling.as_ref(),
        undecided: facts.undecided,
        anomalies: match facts {
            Facts { other: true, .. } => &[CallAnomaly::SessionFromOtherClient],
            Facts { replayed: true, .. } => &[CallAnomaly::Replayed],
            _ => &[],
        },
        resumable: facts.resumable,
    }
}

/// Whether a body that comes with an HTTP error is JSON-RPC: those of others have an `error`, too, but no `id`.
fn is_rpc_answer(bytes: &[u8]) -> bool {
    envelope::is_batch(bytes) || envelope::parse(bytes, None).is_ok_and(|envelope| envelope.id.is_some())
}

/// Whether a message answers a request.
fn is_answer(bytes: &[u8]) -> bool {
    envelope::parse(bytes, None).is_ok_and(|envelope| envelope.kind == MessageKind::Response)
}

/// How a session ends while its process continues.
fn ending(reason: EndReason) -> Ending {
    Ending { reason: reason.into(), clean: true, pending_is_clean: true, ..Ending::default() }
}

/// Path and query of what an `endpoint` event names: a path, or a URL.
fn target_of(data: &[u8]) -> &[u8] {
    let data = data.trim_ascii();
    let Some(scheme) = memchr::memmem::find(data, b"://") else { return data };
    let behind = scheme + 3;
    memchr::memchr(b'/', &data[behind..]).map_or(&data[data.len()..], |slash| &data[behind + slash..])
}

#[cfg(test)]
mod tests;
