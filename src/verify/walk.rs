//! Stages `verify_chain` and `match_receipts_to_chain`, in one walk over both files: memory follows the calls in flight.

use super::{
    chain::{ChainSummary, ChainWalk},
    checkpoints::{SealFile, Seals},
    claims_tally::Tally,
    escrow::{Covered, Escrow},
    exchanges::Exchanges,
    finding::Finding,
    flight::{Flights, Known},
    judged::{Decisions, Judgement, Judging},
    notebook::Notebook,
    receipts::{MAX_RECEIPTS, ReceiptFile, ReceiptPlace, name_policy},
    sense,
    source::{HashedLines, ReadMeter, ReadStop},
    streams::Streams,
    words::Stage,
};
use crate::model::pack::{AUDIT_LOG, CHECKPOINTS, RECEIPTS};
use crate::model::words::{AnomalyKind, EndReason, OutcomeReason, Word};
use crate::model::{
    EventKind, GapReceipt, InvocationId, Outcome, Profile, ReceiptId, SessionEnd, SessionStart,
    cursor::shown,
    event::{Binding, DetailView as Detail, EventView as Event},
    receipt::{CallView as Call, ReceiptView as Receipt},
    server::SERVER_SOURCE,
};
use crate::text::counted;
use std::{collections::HashSet, sync::Arc};

/// What both files amount to together.
#[derive(Debug, Default)]
pub struct Walked {
    /// What was found in the chain.
    pub chain: ChainSummary,
    /// The receipt `mcp.session_start`, if there is one.
    pub start: Option<SessionStart>,
    /// The receipt `mcp.session_end`, if there is one.
    pub end: Option<SessionEnd>,
    /// Number of `mcp.recorder_gap` receipts.
    pub gap_receipts: u64,
    /// Tool calls of the chain that have no receipt and were not carried out.
    pub unreceipted: u64,
    /// The first few of them.
    pub unreceipted_first: Vec<InvocationId>,
    /// Receipts that recovery wrote.
    pub recovered: u64,
    /// Receipts of calls that ended with the proxy.
    pub killed: u64,
    /// How many exchanges of HTTP its events name.
    pub exchanges: u64,
    /// Calls without a response for another reason than that the client left, or did not want one.
    pub unanswered: u64,
    /// The calls that a server recorded of itself; `None` where a proxy recorded.
    pub covered: Option<Covered>,
    /// How the calls stood with the decisions about the surface; `None` where it was compared with nothing.
    pub judgement: Option<Judgement>,
    /// The root of the surface that was seen last.
    pub surface_root: Option<String>,
    /// What the checkpoints amount to; `None` without any, and where they do not hold.
    pub seals: Option<Seals>,
}

/// Walks both files to their ends; `None`: a later version wrote lines of one, and the other was walked by itself.
///
/// # Errors
/// Why one could not be read to its end, with its name.
pub fn walk(
    notes: &mut Notebook<'_>,
    tally: &mut Tally,
    meter: &mut ReadMeter<'_>,
    (events, receipts): (&mut HashedLines, &mut ReceiptFile),
    recovered: bool,
    decisions: Option<&Decisions>,
    mut seals: Option<&mut SealFile>,
) -> Result<Option<Walked>, (&'static str, ReadStop)> {
    let mut chain = ChainWalk::new(AUDIT_LOG, None);
    let mut m = Matcher {
        notes,
        tally,
        flights: Flights::default(),
        walked: Walked::default(),
        streams: Streams::default(),
        exchanges: Exchanges::default(),
        escrow: Escrow::default(),
        judging: Judging::new(decisions),
        library: false,
        known: Known { recovered, guarded: false },
        audited: false,
        has_policy: true,
        continues: true,
        wrong: Vec::new(),
        constant: None,
        overflow: false,
        omitted: Vec::new(),
    };
    m.first(receipts, meter).map_err(|e| (RECEIPTS, e))?;
    loop {
        meter.stage = Stage::VerifyChain;
        let Some(line) = events.next(meter).map_err(|e| (AUDIT_LOG, e))? else { break };
        let length = line.bytes.len();
        let event = chain.step(&line, &mut |f| m.notes.found(f));
        if let Some(seals) = &mut seals {
            seals.event(m.notes, meter, event.as_ref()).map_err(|e| (CHECKPOINTS, e))?;
        }
        if event.is_none() {
            if chain.newer {
                break;
            }
            m.notes.garbage(length).map_err(|e| (AUDIT_LOG, e))?;
        }
        if let Some(event) = event
            && !receipts.newer
        {
            meter.stage = Stage::MatchReceiptsToChain;
            m.event(&event, line.number, line.offset, receipts, meter).map_err(|e| (RECEIPTS, e))?;
        }
        if receipts.totals.count > MAX_RECEIPTS {
            return Err((RECEIPTS, ReadStop::TooLong));
        }
    }
    if chain.newer {
        alone(m.notes, m.tally, meter, receipts).map_err(|e| (RECEIPTS, e))?;
        return Ok(None);
    }
    let summary = chain.finish(&mut |f| m.notes.found(f));
    m.rest(&summary, receipts, meter).map_err(|e| (RECEIPTS, e))?;
    let seals = seals.and_then(|seals| seals.finish(m.notes, &summary));
    if receipts.newer {
        return Ok(None);
    }
    for omitted in std::mem::take(&mut m.omitted) {
        m.report(omitted);
    }
    let carried: HashSet<InvocationId> = summary.end.iter().flat_map(|e| e.carried_out.iter().copied()).collect();
    m.left(&summary, &carried);
    let (n, first) = m.flights.unreceipted(&carried);
    let exchanges = m.exchanges.len();
    let covered = (m.library || m.escrow.is_any()).then(|| m.escrow.finish());
    let mut wrong = Vec::new();
    let root = m.judging.root().map(str::to_owned);
    let judgement = m.judging.finish(&mut wrong);
    for what in wrong {
        m.notes.found(Finding::new("E_CHAIN_BROKEN", Stage::VerifySurface, what).file(AUDIT_LOG));
    }
    let mut walked = m.walked;
    walked.surface_root = root;
    walked.judgement = judgement;
    walked.seals = seals;
    walked.exchanges = exchanges;
    walked.covered = covered;
    walked.unreceipted = n;
    walked.unreceipted_first = first;
    walked.chain = summary;
    Ok(Some(walked))
}

/// Walks the receipts by themselves.
///
/// # Errors
/// [`ReadStop`].
pub fn alone(
    notes: &mut Notebook<'_>,
    tally: &mut Tally,
    meter: &mut ReadMeter<'_>,
    receipts: &mut ReceiptFile,
) -> Result<(), ReadStop> {
    while receipts.next(notes, tally, meter)?.is_some() {}
    Ok(())
}

struct Matcher<'e, 'o, 't> {
    notes: &'e mut Notebook<'o>,
    tally: &'t mut Tally,
    flights: Flights,
    walked: Walked,
    streams: Streams,
    exchanges: Exchanges,
    escrow: Escrow,
    /// The server's surface, and the decisions about it.
    judging: Judging<'e>,
    /// A server recorded itself.
    library: bool,
    known: Known,
    /// It was observed, not guarded.
    audited: bool,
    /// A policy was in force when it began.
    has_policy: bool,
    /// It continues another session; calls of this one may follow legs of that one.
    continues: bool,
    /// What is wrong with the current event.
    wrong: Vec<&'static str>,
    /// What every receipt of the session repeats, as canonical text: server, transport, version.
    constant: Option<Arc<[Vec<u8>; 3]>>,
    overflow: bool,
    /// Receipts that events bind and that are not at their place, until an event says that they were lost.
    omitted: Vec<Omitted>,
}

struct Omitted {
    id: ReceiptId,
    what: String,
    spot: Spot,
    found: Option<String>,
}

/// Omissions that are remembered; beyond this they are reported at once.
const MAX_OMITTED: usize = 4096;

/// Where an event is, for findings.
#[derive(Clone, Copy)]
struct Spot {
    line: u64,
    offset: u64,
}

/// Whether no session takes over the calls of one with this end.
fn is_last(reason: &Word<EndReason>) -> bool {
    use EndReason as E;
    // The first release named other signals, too.
    reason.as_str().starts_with("signal_")
        || matches!(reason.known(), Some(E::ClientClosed | E::ServerExited | E::ServerFailed | E::Crashed))
        // Over HTTP a session ends, not its process; no other takes over its calls, but for that of a bridge whose server
        // has lost the session.
        || matches!(reason.known(), Some(E::SessionDeleted | E::Idle | E::StreamClosed | E::Evicted))
        || matches!(reason.known(), Some(E::Replaced | E::UpstreamLost))
}

impl Matcher<'_, '_, '_> {
    fn found(
        &mut self,
        code: &'static str,
        what: String,
        spot: Option<Spot>,
        place: Option<(ReceiptPlace, Option<ReceiptId>)>,
    ) {
        self.sides(code, what, spot, place, None);
    }

    fn sides(
        &mut self,
        code: &'static str,
        what: String,
        spot: Option<Spot>,
        place: Option<(ReceiptPlace, Option<ReceiptId>)>,
        sides: Option<(String, String)>,
    ) {
        let mut f = Finding::new(code, Stage::MatchReceiptsToChain, what);
        if let Some((place, id)) = place {
            f = f.file(RECEIPTS).line(place.line, place.offset).receipt(place.index, id.map(|i| i.to_string()));
        } else if let Some(spot) = spot {
            f = f.file(AUDIT_LOG).line(spot.line, spot.offset);
        }
        if let Some((expected, found)) = sides {
            f = f.sides(expected, found);
        }
        self.notes.found(f);
    }

    /// The first receipt frames the session; no event binds it, it names the first event.
    fn first(&mut self, receipts: &mut ReceiptFile, meter: &mut ReadMeter<'_>) -> Result<(), ReadStop> {
        let Some((place, receipt)) = receipts.next(self.notes, self.tally, meter)? else {
            self.found("E_PACK_OMISSION_DETECTED", "there is no receipt".into(), None, None);
            return Ok(());
        };
        if let Some(Receipt::Start(start)) = receipt {
            let canonical = |text: &str| {
                let quoted = serde_json::to_vec(text).unwrap_or_default();
                quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_vec()
            };
            self.constant =
                Some(Arc::new([&start.server_id, &start.server_transport, &start.proxy_version].map(|t| canonical(t))));
            let id = ReceiptId::of_session(start.session_id, "session_start", 0);
            if start.receipt_id != id {
                let sides = Some((id.to_string(), start.receipt_id.to_string()));
                let what = "receipt_id is not derived from its session".into();
                self.sides("E_CHAIN_BROKEN", what, None, Some((place, Some(start.receipt_id))), sides);
            }
            self.library = start.integration_source == SERVER_SOURCE;
            self.walked.start = Some(*start);
            return Ok(());
        }
        let id = receipt.map(|r| r.id());
        let line = receipts.last_line();
        receipts.put_back(line, place);
        let what = "the first receipt is not mcp.session_start".into();
        self.found("E_PACK_OMISSION_DETECTED", what, None, Some((place, id)));
        Ok(())
    }

    fn event(
        &mut self,
        event: &Event<'_>,
        line: u64,
        offset: u64,
        receipts: &mut ReceiptFile,
        meter: &mut ReadMeter<'_>,
    ) -> Result<(), ReadStop> {
        let spot = Spot { line, offset };
        self.alone(event, receipts, spot);
        match &event.detail {
            Detail::ChainStart(start) => {
                self.flights.carried = start.carried_in.iter().copied().collect();
                self.known.guarded = start.profile == Profile::Guard;
                self.audited = !self.known.guarded;
                self.has_policy = start.policy_hash.is_some();
                self.continues = start.continues.is_some();
                if let Some(hash) = &start.policy_hash {
                    name_policy(&mut receipts.totals.policies, hash);
                }
            }
            Detail::PolicyReloaded(reload) => name_policy(&mut receipts.totals.policies, &reload.policy_hash),
            _ => {}
        }
        let binding = event.detail.binding();
        let Binding { receipt_id: Some(id), receipt_sha256: Some(sha256) } = binding else {
            if binding != Binding::default() {
                let what = "the event has only one of receipt_id and receipt_sha256".into();
                self.found("E_CHAIN_BROKEN", what, Some(spot), None);
            }
            let noted = self.flights.note(event, self.known, &mut self.wrong);
            self.tell(spot);
            if noted.is_err() && !self.overflow {
                self.overflow = true;
                let what = format!("more than {} requests are in flight", super::flight::MAX_IN_FLIGHT);
                self.found("E_CHAIN_BROKEN", what, Some(spot), None);
            }
            return Ok(());
        };
        if event.is_anomaly(AnomalyKind::ReceiptLost) {
            // A recovery found the receipts cut, and reports it in the chain, which cannot be complete then.
            self.omitted.retain(|o| o.id != id);
            return Ok(());
        }
        if event.event == EventKind::RequestForwarded {
            self.wrong.push("an event that forwards a request names a receipt, although it ends no call");
            self.tell(spot);
        }
        let Some((place, receipt)) = receipts.next(self.notes, self.tally, meter)? else {
            let what = format!("the event binds receipt {id}, which is not in the pack");
            self.flights.lose(event.invocation_id);
            self.omit(Omitted { id, what, spot, found: None });
            return Ok(());
        };
        if place.sha256 == sha256 {
            self.bound(event, id, place, receipt, spot);
            return Ok(());
        }
        let other = receipt.map(|r| r.id());
        if other == Some(id) {
            let what = format!("receipt {id} is not the one that its event binds (audit_log.jsonl line {line})");
            let sides =
                (String::from_utf8_lossy(sha256).into_owned(), String::from_utf8_lossy(&place.sha256).into_owned());
            self.sides("E_CHAIN_BROKEN", what, None, Some((place, other)), Some(sides));
            return Ok(());
        }
        let line = receipts.last_line();
        let next = receipts.peek(self.notes, self.tally, meter)?;
        if next.is_some_and(|n| n.sha256 == sha256) {
            let what = "no event binds the receipt at this place".into();
            self.found("E_CHAIN_BROKEN", what, None, Some((place, other)));
            if let Some((place, receipt)) = receipts.next(self.notes, self.tally, meter)? {
                self.bound(event, id, place, receipt, spot);
            }
            return Ok(());
        }
        receipts.put_back(line, place);
        let what = format!("the event binds receipt {id}, which is not at its place");
        self.flights.lose(event.invocation_id);
        let found = other.map_or_else(|| format!("line {}, which is not a receipt", place.line), |o| o.to_string());
        self.omit(Omitted { id, what, spot, found: Some(found) });
        Ok(())
    }

    fn omit(&mut self, omitted: Omitted) {
        if self.omitted.len() < MAX_OMITTED {
            self.omitted.push(omitted);
        } else {
            self.report(omitted);
        }
    }

    fn report(&mut self, omitted: Omitted) {
        let Omitted { id, what, spot, found } = omitted;
        let sides = found.map(|found| (id.to_string(), found));
        self.sides("E_PACK_OMISSION_DETECTED", what, Some(spot), None, sides);
    }

    /// A receipt whose bytes are those that the event binds: do they say the same?
    fn bound(
        &mut self,
        event: &Event<'_>,
        id: ReceiptId,
        place: ReceiptPlace,
        receipt: Option<Receipt<'_>>,
        spot: Spot,
    ) {
        // A line that is not a receipt was reported where it was read.
        let Some(receipt) = receipt else { return };
        let here = Some((place, Some(receipt.id())));
        if receipt.id() != id {
            let sides = Some((id.to_string(), receipt.id().to_string()));
            self.sides("E_CHAIN_BROKEN", "the event has another receipt_id".into(), Some(spot), None, sides);
        }
        match &receipt {
            Receipt::Requested(_) | Receipt::Denied(_) | Receipt::Executed(_) => {
                self.of_server(event, &receipt, here);
            }
            Receipt::Call(call) => {
                if let Some(constant) = self.constant.clone() {
                    let [server, transport, version] = &*constant;
                    for (field, expected, stated) in [
                        ("server_id", server, call.server_id),
                        ("server_transport", transport, call.server_transport),
                        ("proxy_version", version, call.proxy_version),
                    ] {
                        // Who recovers a session may have another version.
                        if expected != stated && !(field == "proxy_version" && self.known.recovered) {
                            let what = format!("{field} does not match mcp.session_start");
                            self.sides("E_CHAIN_BROKEN", what, None, here, Some((shown(expected), shown(stated))));
                        }
                    }
                }
                if event.invocation_id != Some(call.invocation_id) {
                    let named = event.invocation_id.map_or_else(|| "null".to_owned(), |i| i.to_string());
                    let sides = Some((named, call.invocation_id.to_string()));
                    self.sides("E_CHAIN_BROKEN", "the event belongs to another invocation".into(), None, here, sides);
                }
                self.tally_call(call);
                for (field, follows, stated) in self.judging.close(call, &self.notes.options.approvers) {
                    let what = format!("{field} does not follow from the decisions and what was announced");
                    let f = Finding::new("E_CHAIN_BROKEN", Stage::VerifySurface, what).sides(follows, stated);
                    let f = f.file(RECEIPTS).line(place.line, place.offset);
                    self.notes.found(f.receipt(place.index, Some(call.receipt_id.to_string())));
                }
                match self.flights.close(event, call, self.known, &self.exchanges) {
                    Some(disagreements) => {
                        for (field, chain, stated) in disagreements {
                            let what = format!("{field} does not match the audit events");
                            self.sides("E_CHAIN_BROKEN", what, None, here, Some((chain, stated)));
                        }
                    }
                    None if self.flights.carried.remove(&call.invocation_id) => {}
                    // A recovery found the segment cut.
                    None if event.is_anomaly(AnomalyKind::ReceiptWithoutEvents) => {}
                    None => {
                        let what = "the receipt belongs to a request that is not in the chain".into();
                        self.found("E_CHAIN_BROKEN", what, None, here);
                    }
                }
            }
            Receipt::Gap(gap) => self.gap(event, gap, here),
            Receipt::Start(_) | Receipt::End(_) => {
                let what = format!("there is a {} receipt among the calls", receipt.kind());
                self.found("E_CHAIN_BROKEN", what, None, here);
            }
        }
    }

    /// A receipt that a server wrote of itself.
    fn of_server(&mut self, event: &Event<'_>, receipt: &Receipt<'_>, here: Option<(ReceiptPlace, Option<ReceiptId>)>) {
        let (invocation, server, version, timestamp) = match receipt {
            Receipt::Requested(r) => (r.invocation_id, &r.server_id, &r.recorder_version, r.timestamp),
            Receipt::Denied(r) => (r.invocation_id, &r.server_id, &r.recorder_version, r.timestamp),
            Receipt::Executed(r) => (r.invocation_id, &r.server_id, &r.recorder_version, r.timestamp),
            _ => return,
        };
        let mut wrong = Vec::new();
        if !self.library {
            wrong.push("a receipt of a server in the recording of a proxy");
        }
        if event.invocation_id != Some(invocation) {
            wrong.push("the event belongs to another invocation");
        }
        if let Some(start) = &self.walked.start
            && (&start.server_id != server || &start.proxy_version != version)
        {
            wrong.push("server_id or recorder_version does not match mcp.session_start");
        }
        let cut = event.is_anomaly(AnomalyKind::ReceiptWithoutEvents);
        if timestamp != event.at && !cut {
            wrong.push("timestamp does not match the audit events");
        }
        if let Receipt::Executed(r) = receipt
            && r.outcome_reason.as_ref().is_some_and(|w| *w == OutcomeReason::Shutdown)
        {
            self.walked.unanswered += 1;
        }
        self.escrow.receipt(receipt, event, event.session_id, &mut wrong);
        for what in wrong {
            self.found("E_CHAIN_BROKEN", what.to_owned(), None, here);
        }
    }

    fn gap(&mut self, event: &Event<'_>, gap: &GapReceipt, here: Option<(ReceiptPlace, Option<ReceiptId>)>) {
        self.walked.gap_receipts += 1;
        let id = ReceiptId::of_session(gap.session_id, "gap", gap.seq);
        if gap.receipt_id != id {
            let sides = Some((id.to_string(), gap.receipt_id.to_string()));
            self.sides("E_CHAIN_BROKEN", "receipt_id is not derived from its session".into(), None, here, sides);
        }
        // A recovery found the segment cut.
        if event.is_anomaly(AnomalyKind::ReceiptWithoutEvents) {
            return;
        }
        let Detail::RecorderGap(said) = &event.detail else {
            let what = "an event of another kind binds a gap receipt".into();
            return self.found("E_CHAIN_BROKEN", what, None, here);
        };
        let same_reason =
            serde_json::to_vec(&gap.reason).is_ok_and(|r| r.get(1..r.len() - 1) == Some(said.reason.text));
        if (gap.bytes, gap.messages) != (said.bytes, said.messages) || !same_reason || gap.timestamp != event.at {
            let sides = (
                format!("{}, {} at {}", counted(said.bytes, "byte"), counted(said.messages, "message"), event.at),
                format!("{}, {} at {}", counted(gap.bytes, "byte"), counted(gap.messages, "message"), gap.timestamp),
            );
            let what = "the gap does not match the audit event".into();
            self.sides("E_CHAIN_BROKEN", what, None, here, Some(sides));
        }
    }

    /// What comes after the last bound receipt: `mcp.session_end`, if the chain has an end.
    fn rest(
        &mut self,
        chain: &ChainSummary,
        receipts: &mut ReceiptFile,
        meter: &mut ReadMeter<'_>,
    ) -> Result<(), ReadStop> {
        while let Some((place, receipt)) = receipts.next(self.notes, self.tally, meter)? {
            if place.index >= MAX_RECEIPTS {
                return Err(ReadStop::TooLong);
            }
            let id = receipt.as_ref().map(Receipt::id);
            match receipt {
                Some(Receipt::End(end)) if self.walked.end.is_none() => self.walked.end = Some(*end),
                _ => {
                    let what = "no event binds the receipt".into();
                    self.found("E_CHAIN_BROKEN", what, None, Some((place, id)));
                }
            }
        }
        self.framing(chain, receipts);
        Ok(())
    }

    /// What is wrong with an event, independent of its call.
    fn alone(&mut self, e: &Event<'_>, receipts: &ReceiptFile, spot: Spot) {
        self.wrong.extend(sense::event(e));
        self.wrong.extend(self.streams.message(e));
        self.wrong.extend(self.exchanges.event(e));
        let mut of_surface = Vec::new();
        self.judging.event(e, self.known.recovered, &mut of_surface);
        for what in of_surface {
            let f = Finding::new("E_CHAIN_BROKEN", Stage::VerifySurface, what);
            self.notes.found(f.file(AUDIT_LOG).line(spot.line, spot.offset));
        }
        match &e.detail {
            Detail::PolicyDecision(d) => {
                if d.enforced != self.known.guarded {
                    self.wrong.push(
                        "a verdict is enforced in a session without a guard, or not enforced in a session with one",
                    );
                }
                if d.policy_hash.is_some() && !self.has_policy {
                    self.wrong.push("a policy was used in a session that began without one");
                }
            }
            Detail::PolicyReloaded(_) if !self.has_policy => {
                self.wrong.push("a policy was reloaded in a session that began without one");
            }
            Detail::RequestBlocked(_) if self.audited => {
                self.wrong.push("a message was blocked in a session without a guard");
            }
            Detail::RequestReceived(d) => {
                let before = d.parent_receipt_id;
                let seen = |id: ReceiptId| self.flights.has(InvocationId::from_bits(id.bits())) || receipts.has(id);
                if before.is_some_and(|id| !seen(id)) && !self.continues && !self.known.recovered {
                    self.wrong.push("the leg before this one is missing");
                }
            }
            Detail::RecorderGap(_) if e.detail.binding() == Binding::default() => {
                self.wrong.push("evidence is missing, but no receipt says so");
            }
            _ => {}
        }
        self.tell(spot);
    }

    /// Reports what is wrong with the current event.
    fn tell(&mut self, spot: Spot) {
        for what in std::mem::take(&mut self.wrong) {
            self.found("E_CHAIN_BROKEN", what.to_owned(), Some(spot), None);
        }
    }

    fn tally_call(&mut self, call: &Call<'_>) {
        self.walked.recovered += u64::from(sense::has(call.anomalies, b"recovered"));
        if call.outcome == Outcome::Timeout {
            use OutcomeReason as R;
            let reason = call.outcome_reason.and_then(|r| r.known);
            self.walked.killed += u64::from(reason == Some(R::ProxyKilled));
            let wanted = !matches!(reason, Some(R::ClientClosed | R::CancelledByClient | R::Notification));
            self.walked.unanswered += u64::from(wanted && !sense::has(call.anomalies, b"notification_call"));
        }
    }

    /// What a chain that has ended left open.
    fn left(&mut self, chain: &ChainSummary, carried: &HashSet<InvocationId>) {
        let Some(end) = chain.end.as_ref().filter(|_| !self.overflow) else { return };
        let unnamed = self.exchanges.unnamed();
        if unnamed > 0 {
            let what = format!("messages crossed in {} that no http_exchange names", counted(unnamed, "exchange"));
            self.found("E_CHAIN_BROKEN", what, None, None);
        }
        let (left, known) = self.flights.left(carried);
        // Recovery cannot end what the previous pack handed over, if that pack is missing.
        if left > 0 && !(self.known.recovered && self.continues) {
            let what = format!("the chain ended but left {} open", counted(left, "request"));
            self.found("E_CHAIN_BROKEN", what, None, None);
        }
        if !known {
            self.found(
                "E_CHAIN_BROKEN",
                "calls that were not in flight were moved to the next session".into(),
                None,
                None,
            );
        }
        if !carried.is_empty() && is_last(&end.reason) {
            let what = format!("calls were moved to the next session, but none follows: {}", end.reason);
            self.found("E_CHAIN_BROKEN", what, None, None);
        }
        let w = &self.walked;
        let mut wrong = Vec::new();
        if end.complete
            && (chain.gaps + w.gap_receipts + chain.lost + w.unanswered > 0
                || end.counts.missed + end.counts.missed_bytes > 0)
        {
            wrong.push("the chain ended as complete, but something is missing");
        }
        let crashed = end.reason == EndReason::Crashed;
        if crashed && end.complete {
            wrong.push("the chain of a proxy that was killed ended as complete");
        }
        if (w.recovered > 0 || w.killed > 0) && !crashed {
            wrong.push("calls ended with proxy_killed, but the proxy was not killed");
        }
        for what in wrong {
            self.found("E_CHAIN_BROKEN", what.to_owned(), None, None);
        }
    }

    /// The two receipts that frame the session against the two events that do.
    fn framing(&mut self, chain: &ChainSummary, receipts: &ReceiptFile) {
        let mut wrong: Vec<(&str, String, String)> = Vec::new();
        let mut same = |field: &'static str, expected: String, found: String| {
            if expected != found {
                wrong.push((field, expected, found));
            }
        };
        let none = || "null".to_owned();
        if let Some(r) = &self.walked.start {
            same("session_start.chain_head", chain.first_hash.clone().unwrap_or_default(), r.chain_head.clone());
            same(
                "session_start.server_transport",
                chain.transport.clone().unwrap_or_default(),
                r.server_transport.clone(),
            );
            same(
                "session_start.session_id",
                chain.session.map_or_else(none, |s| s.to_string()),
                r.session_id.to_string(),
            );
            same(
                "session_start.started_at",
                chain.first_at.map_or_else(none, |t| t.to_string()),
                r.started_at.to_string(),
            );
            if let Some(e) = &chain.start {
                same("session_start.command_digest", e.command_digest.clone(), r.command_digest.clone());
                same("session_start.server_id", e.server_id.clone(), r.server_id.clone());
                if !self.known.recovered {
                    same("session_start.proxy_version", e.recorder_version.clone(), r.proxy_version.clone());
                }
                let text = |o: &Option<String>| o.clone().unwrap_or_else(none);
                same("session_start.policy_hash", text(&e.policy_hash), text(&r.policy_hash));
                same("session_start.profile", format!("{:?}", e.profile), format!("{:?}", r.profile));
                let id = |s: Option<crate::model::SessionId>| s.map_or_else(none, |s| s.to_string());
                same("session_start.continues", id(e.continues), id(r.continues));
            }
        }
        match (&self.walked.end, &chain.end) {
            (Some(r), Some(e)) => {
                same("session_end.chain_hash", chain.last_hash.clone().unwrap_or_default(), r.chain_hash.clone());
                same("session_end.end_reason", e.reason.to_string(), r.end_reason.to_string());
                same("session_end.session_complete", e.complete.to_string(), r.session_complete.to_string());
                same("session_end.seq", e.receipts.to_string(), r.seq.to_string());
                same("session_end.counts", format!("{:?}", e.counts), format!("{:?}", r.counts));
                let id = ReceiptId::of_session(r.session_id, "session_end", r.seq);
                same("session_end.receipt_id", id.to_string(), r.receipt_id.to_string());
                if !self.known.recovered {
                    same(
                        "session_end.timestamp",
                        chain.last_at.map_or_else(none, |t| t.to_string()),
                        r.timestamp.to_string(),
                    );
                    let version = chain.start.as_ref().map_or_else(none, |s| s.recorder_version.clone());
                    same("session_end.proxy_version", version, r.proxy_version.clone());
                }
            }
            (None, Some(_)) => same("session_end", "a receipt mcp.session_end".into(), "none".into()),
            (Some(_), None) => same("chain_end", "an event chain_end".into(), "none".into()),
            (None, None) => {}
        }
        if let Some(e) = &chain.end {
            let c = &receipts.totals.counts;
            for (field, stated, actual) in [
                ("chain_end.receipts", e.receipts, receipts.totals.count - u64::from(self.walked.end.is_some())),
                ("chain_end.counts.calls", e.counts.calls, c.calls),
                ("chain_end.counts.denied", e.counts.denied, c.denied),
                ("chain_end.counts.errors", e.counts.errors, c.errors),
                ("chain_end.counts.timeouts", e.counts.timeouts, c.timeouts),
                ("chain_end.counts.policy_denied", e.counts.policy_denied, c.policy_denied),
            ] {
                same(field, stated.to_string(), actual.to_string());
            }
        }
        for (field, expected, found) in wrong {
            let what = format!("receipts and chain disagree on {field}");
            self.sides("E_CHAIN_BROKEN", what, None, None, Some((expected, found)));
        }
    }
}
