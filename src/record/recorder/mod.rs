//! From messages to evidence lines: the reducer that every transport and every recovery goes through.
//!
//! The recorder is given messages in the order in which they crossed and told when they were delivered; it appends
//! lines to [`UnwrittenLines`] and never touches a file. What it does is a function of its input: reading the same
//! bytes again after a crash gives the same identifiers.

mod awaiting;
mod close;
mod decision;
mod end;
mod exchange;
mod judged;
mod junk;
mod request;
mod response;
mod restore;
mod setup;
mod silent;
mod step;
#[cfg(test)]
mod tests;
mod unbound;

pub use end::Ending;
pub use restore::{OnDisk, Restored};
pub use setup::{HttpBinding, Origin, Setup, command_digest, server_id_of_command, server_id_of_url};
pub use step::Step;

use super::{
    broadcast::{Crossed, MAX_CONTENT},
    chain::{Chain, Entry, Wire},
    correlate::Table,
    envelope::{self, MessageKind},
    judge::Judge,
    redact::NotApplied,
    rulings::RulingRecord,
    stream::{MessagePlace, Scope, StreamId},
    surface::Observer,
    witness::Witnessed,
};
use crate::model::words::AnomalyKind;
use crate::{
    canon,
    model::{
        CallAnomaly, Detail, Direction, InvocationId, ReceiptId, RpcId, SessionId, WallTime, Word,
        event::detail,
        receipt::Counts,
        session::{ClockStep, Identity},
        surface::{self, Announced, Facet},
    },
    tree::Hash,
};
use awaiting::{Awaited, Awaiting};
use exchange::Exchanges;
use judged::Judged;
use junk::Junk;
use std::{borrow::Cow, cell::OnceCell, collections::BTreeSet, ops::Range};
use step::Steps;

/// Bytes of the longest message that is shown to those who watch, if rules have to look through it.
const MAX_REDACTED: usize = 1 << 20;
/// What they see in the place of a message that rules cannot look through.
const NOT_SHOWN: &[u8] = b"(not shown: the rules of --redact cannot be applied to this message)";

/// One message as it crossed.
pub struct Message<'a> {
    /// The stream and the offset of its first byte. In a body that is encoded, offsets are those of what it decodes to.
    pub place: MessagePlace,
    /// Stream offset just after its terminator, in bytes as they cross: delivered once everything before this was
    /// written.
    pub end: u64,
    /// Its bytes, without terminator.
    pub bytes: &'a [u8],
    /// Their SHA-256, once it is known: to its source, or to who was the first to read them for it.
    pub sha256: &'a OnceCell<[u8; 32]>,
    /// Called with each part of `bytes` that is not read again in this pass.
    pub page: Option<&'a dyn Fn(usize)>,
    /// Called now and then while work on it takes long.
    pub rest: &'a dyn Fn(),
    /// When its first byte was read, monotonic ns.
    pub first_byte_ns: u64,
    /// When its last byte was read, monotonic ns.
    pub read_ns: u64,
    /// What a guard decided about it.
    pub ruling: Option<&'a RulingRecord>,
    /// The session ended before its guard came to it: it was not passed on.
    pub undecided: bool,
    /// What its source found unusual about it.
    pub anomalies: &'a [CallAnomaly],
    /// Over HTTP: it may answer, or cancel, what was asked in another exchange, because its session has a session id,
    /// or is of the old transport.
    pub resumable: bool,
}

impl Message<'_> {
    /// The direction of the message.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        self.place.direction()
    }

    /// Where ids are unique of requests that go this way, `direction`, and that it carries or answers.
    const fn scope(&self, direction: Direction) -> (Scope, Direction) {
        (self.place.stream.scope(direction), direction)
    }

    /// Whether what goes this way may be about a request of another exchange.
    fn may_answer_elsewhere(&self, direction: Direction) -> bool {
        self.resumable && self.direction() == direction && matches!(self.place.stream, StreamId::Exchange { .. })
    }

    /// Whether it was kept from its receiver.
    fn is_blocked(&self) -> bool {
        self.ruling.is_some_and(|j| j.blocked)
    }
}

/// Lines that wait to be written, in the order in which the files must be written.
#[derive(Debug, Default)]
pub struct UnwrittenLines {
    /// Lines for the investigation log.
    pub investigation: Vec<u8>,
    /// Lines for the receipts file.
    pub receipts: Vec<u8>,
    /// How many of the last bytes of `receipts` are written after the segment: `mcp.session_end` names the hash of
    /// `chain_end`, so that must be there first.
    pub behind: usize,
    /// Lines for the segment.
    pub segment: Vec<u8>,
    /// The hashes of the events that were added since they were last taken from here, for the session's tree.
    pub hashes: Vec<Hash>,
}

impl UnwrittenLines {
    /// Number of bytes that wait, for all files together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.investigation.len() + self.receipts.len() + self.segment.len()
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A stored payload that is too big for memory: the caller writes it to the investigation log from the message's bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct BigPayload {
    /// Everything of its line up to the value.
    pub head: Vec<u8>,
    /// The value in the message.
    pub value: Range<usize>,
    /// Written in canonical form; otherwise as base64 of the exact bytes.
    pub canonical: bool,
}

/// The wall clock against the monotonic one.
#[derive(Debug, Clone)]
pub struct Clock {
    wall_minus_mono_ns: i64,
    steps: Vec<ClockStep>,
}

/// Largest difference of the clocks that is taken for slewing, not for a step.
const STEP_MS: i64 = 500;
/// Steps that are kept one by one.
const MAX_STEPS: usize = 256;

const STEP_NOTE: &str = "wall clock moved by ";
const STEP_UNIT: &str = " ms";

/// The milliseconds that the note of a `clock_step` tells of.
fn step_of_note(note: &str) -> Option<i64> {
    note.strip_prefix(STEP_NOTE)?.strip_suffix(STEP_UNIT)?.parse().ok()
}

impl Clock {
    /// A clock with this difference in ns.
    #[must_use]
    pub fn new(wall_minus_mono_ns: i64) -> Self {
        Self { wall_minus_mono_ns, steps: Vec::new() }
    }

    /// A clock that was read together with the monotonic one: later changes of the difference are steps, and recorded.
    #[must_use]
    pub fn of_start(started_ns: u64, started_at: WallTime) -> Self {
        Self::new(started_at.millis().saturating_mul(1_000_000).saturating_sub_unsigned(started_ns))
    }

    /// The wall time of a monotonic one.
    #[must_use]
    pub fn wall(&self, ns: u64) -> WallTime {
        WallTime::from_millis(
            i64::try_from(ns).unwrap_or(i64::MAX).saturating_add(self.wall_minus_mono_ns).div_euclid(1_000_000),
        )
    }
}

/// The receipt that an event binds into the chain.
#[derive(Debug, Clone, Default)]
struct Binding {
    id: Option<ReceiptId>,
    sha256: Option<String>,
}

/// The observed surface is no longer known.
#[derive(Debug, Clone, Copy)]
pub struct LostSurface;

/// The state of one session's recording.
pub struct Recorder {
    setup: std::sync::Arc<Setup>,
    session: SessionId,
    continues: Option<SessionId>,
    started_ns: u64,
    started_at: WallTime,
    clock: Clock,
    chain: Chain,
    ledger_hash: String,
    /// Lines that wait to be written.
    pub lines: UnwrittenLines,
    next_receipt: u64,
    session_start_written: bool,
    table: Table,
    awaiting: Awaiting,
    exchanges: Exchanges,
    identity: Identity,
    surface: Observer,
    counts: Counts,
    last_ns: u64,
    restored: Option<Restored>,
    restored_surface: Option<Vec<u8>>,
    /// Another process changed what was observed: what remains would be another surface.
    surface_is_lost: bool,
    /// Whether another process than the one that recorded the session is finishing it.
    recovering: bool,
    /// Judges what passes in any case.
    judge: Option<Box<dyn Judge>>,
    /// `sha256:` of the policy in force when the session began.
    policy: Option<String>,
    /// Messages that the policy rejects, enforced or not.
    violations: u64,
    /// Number and bytes of requests that are not followed and that no gap has recorded yet.
    unfollowed: (u64, u64),
    /// All requests that were not followed.
    not_followed: u64,
    /// When a gap last recorded some of them, monotonic ns.
    unfollowed_ns: u64,
    /// Calls that were closed without a response, at the end.
    unanswered: u64,
    /// Calls that were closed before, because what they were asked in ended without a response.
    failed: u64,
    /// Lines that are no messages, and that no event tells of yet.
    junk: Option<Junk>,
    /// The last request that left no event, and when it was read, monotonic ns.
    silent: Option<(InvocationId, u64)>,
    /// What a server recorded of itself.
    steps: Steps,
    /// Who counts what is recorded.
    witness: Option<Witnessed>,
    /// The server's surface against what was decided about it; `None` where that is not compared.
    judged: Option<Judged>,
    /// What the client of the session before was told: facet, definitions, age in ms, root.
    restate: Vec<(Facet, Vec<Announced>, u64, Option<String>)>,
}

/// Such gaps are this far apart, ns.
const UNFOLLOWED_EVERY: u64 = 1_000_000_000;

/// How a recorder begins.
pub struct Begin {
    /// Id of the session.
    pub session: SessionId,
    /// The session before it in the same process.
    pub continues: Option<SessionId>,
    /// When it began, monotonic ns.
    pub started_ns: u64,
    /// When it began, wall clock.
    pub started_at: WallTime,
    /// The wall clock against the monotonic one.
    pub clock: Clock,
    /// `hash` of the previous ledger line.
    pub prev_hash: String,
}

impl Recorder {
    /// Begins a session: its `chain_start` event waits in `lines`.
    pub fn begin(setup: std::sync::Arc<Setup>, begin: Begin) -> Self {
        let mut recorder = Self::bare(setup, begin);
        recorder.write_chain_start(Vec::new());
        recorder
    }

    fn bare(setup: std::sync::Arc<Setup>, begin: Begin) -> Self {
        let server = surface::Identity { endpoint: setup.origin.digest().to_owned(), id: setup.server_id.clone() };
        let rules = setup.surface.as_ref().map(|feed| feed.rules().clone()).unwrap_or_default();
        let surface = Observer::new(server, &rules);
        let chain = Chain::new(begin.session, setup.transport, begin.prev_hash.clone());
        Self {
            chain: setup.chain(chain),
            judged: setup.surface.clone().map(Judged::new),
            restate: Vec::new(),
            steps: Steps::default(),
            witness: setup.witness.as_ref().map(Witnessed::begin),
            exchanges: Exchanges::default(),
            policy: setup.policy_hash.clone(),
            judge: None,
            violations: 0,
            unfollowed: (0, 0),
            not_followed: 0,
            unfollowed_ns: 0,
            unanswered: 0,
            failed: 0,
            silent: None,
            junk: None,
            setup,
            session: begin.session,
            continues: begin.continues,
            started_ns: begin.started_ns,
            started_at: begin.started_at,
            clock: begin.clock,
            ledger_hash: begin.prev_hash,
            lines: UnwrittenLines::default(),
            next_receipt: 0,
            session_start_written: false,
            table: Table::default(),
            awaiting: Awaiting::default(),
            identity: Identity::default(),
            surface,
            counts: Counts::default(),
            last_ns: begin.started_ns,
            restored: None,
            restored_surface: None,
            surface_is_lost: false,
            recovering: false,
        }
    }

    fn write_chain_start(&mut self, carried_in: Vec<InvocationId>) {
        let detail = detail::ChainStart {
            carried_in,
            command: self.setup.origin.command().cloned(),
            command_digest: self.setup.origin.digest().to_owned(),
            continues: self.continues,
            policy_hash: self.policy.clone(),
            profile: self.setup.profile,
            recorder_version: crate::model::RECORDER_VERSION.to_owned(),
            server_id: self.setup.server_id.clone(),
        };
        // Not the clock's reading of the same moment, which may be a millisecond off: recovery reads `started_at` here.
        self.event(Entry {
            at: self.started_at,
            mono_us: 0,
            direction: None,
            method: None,
            rpc_id: None,
            invocation: None,
            wire: None,
            detail: Detail::ChainStart(detail),
        });
        self.say_first_decisions();
        self.say_restated();
    }

    /// Id of the session.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// The chain so far.
    #[must_use]
    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Counts of the session so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Who takes part, as far as they have said.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Number of receipts so far.
    #[must_use]
    pub const fn receipts(&self) -> u64 {
        self.next_receipt
    }

    /// `surface.json` as far as it was observed.
    #[must_use]
    pub fn surface(&self) -> Option<Vec<u8>> {
        if self.surface_is_lost {
            return None;
        }
        self.restored_surface.clone().or_else(|| self.surface.document(&self.identity))
    }

    /// The same, if something of it is new since this was asked last.
    pub fn new_surface(&mut self) -> Option<Vec<u8>> {
        if self.surface.take_dirty() { self.surface() } else { None }
    }

    /// The surface that a dead recorder left on disk; `Err` if what is there is not what it wrote.
    pub fn restore_surface(&mut self, document: Result<Option<Vec<u8>>, LostSurface>) {
        self.surface_is_lost = document.is_err();
        let document = document.unwrap_or_default();
        match document.as_deref().map(surface::Snapshot::read) {
            Some(Ok(seen)) => self.surface.restore(seen),
            // An earlier version wrote it.
            _ => self.restored_surface = document,
        }
    }

    /// The client's requests that wait for an answer, or whose answer waits to be taken.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.table.asked()
    }

    /// Who takes part, as the dead recorder knew it, where the receipts on disk do not say.
    pub fn restore_identity(&mut self, known: Identity) {
        let Identity { client, server, protocol } = std::mem::take(&mut self.identity);
        self.identity = Identity {
            client: client.or(known.client),
            server: server.or(known.server),
            protocol: protocol.or(known.protocol),
        };
    }

    /// Updates the difference of the clocks; a step is recorded.
    pub fn clock_now(&mut self, wall_minus_mono_ns: i64, now_ns: u64) {
        let moved_ns = wall_minus_mono_ns.saturating_sub(self.clock.wall_minus_mono_ns);
        self.clock.wall_minus_mono_ns = wall_minus_mono_ns;
        let delta_ms = moved_ns / 1_000_000;
        if delta_ms.abs() < STEP_MS {
            return;
        }
        if self.clock.steps.len() < MAX_STEPS {
            self.clock.steps.push(ClockStep { at: self.clock.wall(now_ns), delta_ms });
        }
        let note = format!("{STEP_NOTE}{delta_ms}{STEP_UNIT}");
        self.anomaly_event(AnomalyKind::ClockStep, Some(note), now_ns, None, None, None);
    }

    /// The beginning of a message, for those who watch.
    pub fn beginning(&self, m: &Message<'_>) -> Crossed {
        let left = self.setup.redact.as_ref().map(|rules| {
            let small = m.page.is_none() && m.bytes.len() <= MAX_REDACTED;
            let left = if small { rules.message(m.bytes) } else { Err(NotApplied) };
            match left {
                Ok(left) => left.map_or(Cow::Borrowed(m.bytes), Cow::Owned),
                Err(NotApplied) => Cow::Borrowed(NOT_SHOWN),
            }
        });
        let all = left.as_deref().unwrap_or(m.bytes);
        Crossed {
            session: self.session,
            at: self.clock.wall(m.read_ns),
            direction: m.direction(),
            exchange: self.exchange_of(m.place).number(),
            offset: m.place.offset,
            beginning: all[..all.len().min(MAX_CONTENT)].to_vec(),
            cut: all.len() > MAX_CONTENT,
            wire_bytes: m.bytes.len() as u64,
        }
    }

    /// Records one message. What it returns is to be written to the investigation log from the message's bytes.
    pub fn message(&mut self, m: &Message<'_>) -> Vec<BigPayload> {
        self.last_ns = self.last_ns.max(m.read_ns);
        let bytes = m.bytes;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            self.blank(m);
            return Vec::new();
        }
        if self.restored.as_mut().is_some_and(|r| r.is_known(m)) {
            self.catch_up(m);
            return Vec::new();
        }
        let mut big = Vec::new();
        let (body, bom) = match bytes.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) => (rest, true),
            None => (bytes, false),
        };
        let skipped = bytes.len() - body.len();
        let page = m.page.map(|page| move |upto: usize| page(skipped + upto));
        let page = page.as_ref().map(|p| p as &dyn Fn(usize));
        let bom = bom.then_some(CallAnomaly::ByteOrderMark);
        let flags = || bom.iter().chain(m.anomalies).copied().map(Word::Known).collect::<BTreeSet<_>>();
        if envelope::is_batch(body) {
            self.batch(m, body, page, &flags(), &mut big);
        } else {
            match envelope::parse(body, page) {
                Ok(e) => self.one(m, &e, None, flags(), &mut big),
                Err(e) => self.junk(m, &e.to_string()),
            }
        }
        big
    }

    fn batch(
        &mut self,
        m: &Message<'_>,
        body: &[u8],
        page: canon::Page<'_>,
        flags: &BTreeSet<Word<CallAnomaly>>,
        big: &mut Vec<BigPayload>,
    ) {
        if let Err(e) = canon::scan_paged(body, page) {
            self.junk(m, &e.to_string());
            return;
        }
        let Ok(elements) = canon::elements_paged(body, page) else { return };
        let mut any = false;
        for (index, range) in elements.flatten().enumerate() {
            any = true;
            let mut flags = flags.clone();
            flags.insert(CallAnomaly::BatchElement.into());
            match envelope::parse(&body[range], None) {
                Ok(e) => self.one(m, &e, Some(index), flags, big),
                Err(e) => self.malformed(m, &format!("batch element {index}: {e}")),
            }
        }
        if !any {
            self.junk(m, "an empty batch");
        }
    }

    fn one(
        &mut self,
        m: &Message<'_>,
        e: &envelope::Envelope<'_>,
        index: Option<usize>,
        mut flags: BTreeSet<Word<CallAnomaly>>,
        big: &mut Vec<BigPayload>,
    ) {
        if e.duplicate_key {
            flags.insert(CallAnomaly::DuplicateKey.into());
        }
        if m.undecided {
            flags.insert(CallAnomaly::NotDecided.into());
        }
        match e.kind {
            MessageKind::Request => self.request(m, e, index, flags, big),
            MessageKind::Notification => self.notification(m, e, index, flags, big),
            // It must not answer anything: its receiver never saw it.
            MessageKind::Response if m.is_blocked() || m.undecided => self.blocked_message(m, e),
            MessageKind::Response => self.response(m, e, flags, big),
        }
    }

    fn mono_us(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.started_ns) / 1000
    }

    fn event(&mut self, entry: Entry<'_>) {
        self.say_junk();
        self.append(entry);
    }

    fn append(&mut self, entry: Entry<'_>) {
        if let Some(exchange) = entry.detail.read_in() {
            self.exchanges.mention(exchange);
        }
        if let Err(e) = self.chain.append(entry, &mut self.lines.segment) {
            // The detail types hold only what JSON can hold: this is a bug of ours, and counted like any other loss.
            tracing::error!(error = %e, "an audit event could not be written as JSON");
            self.counts.missed += 1;
            return;
        }
        let mut hash = Hash::default();
        if hex::decode_to_slice(self.chain.head(), &mut hash).is_ok() {
            self.lines.hashes.push(hash);
        }
    }

    fn plain_event(&mut self, (at, ns): (WallTime, u64), detail: Detail) {
        let mono_us = self.mono_us(ns);
        self.event(Entry {
            at,
            mono_us,
            direction: None,
            method: None,
            rpc_id: None,
            invocation: None,
            wire: None,
            detail,
        });
    }

    fn anomaly_event(
        &mut self,
        kind: AnomalyKind,
        note: Option<String>,
        ns: u64,
        message: Option<(&Message<'_>, &RpcId)>,
        invocation: Option<InvocationId>,
        binding: Option<Binding>,
    ) {
        let binding = binding.unwrap_or_default();
        let wire = message.map(|(m, _)| wire_of(m));
        self.event(Entry {
            at: self.clock.wall(ns),
            mono_us: self.mono_us(ns),
            direction: message.map(|(m, _)| m.direction()),
            method: None,
            rpc_id: message.map(|(_, id)| id),
            invocation,
            wire: wire.as_ref(),
            detail: Detail::Anomaly(detail::Anomaly {
                exchange: message.map_or_else(|| self.in_no_exchange(), |(m, _)| self.exchange_of(m.place)),
                kind: kind.into(),
                note,
                offset: message.map(|(m, _)| m.place.offset),
                receipt_id: binding.id,
                receipt_sha256: binding.sha256,
            }),
        });
    }

    /// The deterministic id of the request at this place in its stream.
    fn invocation(&self, m: &Message<'_>, index: Option<usize>) -> InvocationId {
        m.place.invocation(self.session, index.map(|i| i as u64))
    }

    /// The deterministic id of a receipt that belongs to the session as a whole.
    fn session_receipt(&self, what: &str) -> ReceiptId {
        ReceiptId::of_session(self.session, what, self.next_receipt)
    }
}

fn wire_of(m: &Message<'_>) -> Wire {
    let computed = || canon::Hash::paged(m.bytes, m.page).finish();
    Wire { bytes: m.bytes.len() as u64, sha256: hex::encode(m.sha256.get_or_init(computed)) }
}
