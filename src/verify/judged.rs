//! Stage `verify_surface`, in the walk over the chain: which decisions about the server's surface were in force, what the
//! server announced, and under which definition each call ran.
//!
//! All of it is derived once more from the decisions in the pack and the events, with the code of the recorder
//! ([`crate::model::surface::told`]).

use super::{
    approvals::{self, ApprovalProblem},
    finding::Finding,
    notebook::Notebook,
    sense,
    words::Stage,
};
use crate::{
    canon,
    model::{
        InvocationId, Outcome, ReceiptId, SessionDoc, Word,
        event::{DetailView as Detail, EventView as Event, detail},
        pack::{SURFACE_APPROVALS, SURFACE_APPROVED},
        reading::{self, Reading},
        receipt::CallView as Call,
        sha256_hex,
        surface::{
            Announced, Approval, Facet, Identity, InForce, Standing, Stands, State, Told, approved::ApprovedFile,
            pinned_name,
        },
    },
};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};

/// Calls that are named.
const NAMED: usize = 5;
/// Changes that an event lists.
const MAX_CHANGES: usize = 1000;

/// `surface_approvals.jsonl` of a pack.
#[derive(Debug, Default)]
pub struct Decisions {
    /// The decisions, oldest first, as far as they hold.
    pub approvals: Vec<Approval>,
    /// SHA-256 of the first lines, by their number.
    prefixes: Vec<String>,
    /// Every line holds.
    pub sound: bool,
}

impl Decisions {
    /// Reads and checks the decisions: form, hash and signature of each, whose they are, and their order.
    pub fn read(notes: &mut Notebook<'_>, bytes: &[u8], doc: Option<&SessionDoc>) -> Self {
        let mut out = Self { prefixes: vec![sha256_hex(b"")], sound: true, ..Self::default() };
        let mut hash = Sha256::new();
        let mut offset = 0;
        for (n, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
            if let Err(problem) = out.line(line, doc) {
                let at = |f: Finding| f.file(SURFACE_APPROVALS).line(n as u64 + 1, offset);
                out.sound = false;
                match problem {
                    Problem::Of(ApprovalProblem::TooNew(newer)) => {
                        notes.found(at(Finding::too_new(Stage::VerifySurface, &newer)));
                    }
                    Problem::Of(problem) => {
                        notes.found(at(Finding::new("E_MANIFEST_TAMPER", Stage::VerifySurface, problem.to_string())));
                    }
                    Problem::Order(what) => {
                        notes.found(at(Finding::new("E_CHAIN_BROKEN", Stage::VerifySurface, what)));
                    }
                }
                break;
            }
            hash.update(line);
            out.prefixes.push(hex::encode(hash.clone().finalize()));
            offset += line.len() as u64;
        }
        out
    }

    fn line(&mut self, line: &[u8], doc: Option<&SessionDoc>) -> Result<(), Problem> {
        let text = line.strip_suffix(b"\n").ok_or(Problem::Order("the last decision has no line feed: it was cut"))?;
        let approval = approvals::read(text).map_err(Problem::Of)?;
        if doc.is_some_and(|doc| doc.server_id != approval.server_id) {
            return Err(Problem::Order("this decision is about another server than the session's"));
        }
        let before = self.approvals.last();
        // Every decision about a server names the one before it.
        if approval.previous.as_ref() != before.map(|b| &b.approval_id) {
            return Err(Problem::Order(
                "this decision does not follow the one before it: one is missing, or out of order",
            ));
        }
        if let Some(before) = before {
            let follows = before.seq.checked_add(1) == Some(approval.seq);
            if approval.seq <= before.seq || follows && approval.prev_hash != before.hash {
                return Err(Problem::Order("this decision does not follow the one before it in its audit directory"));
            }
        }
        self.approvals.push(approval);
        Ok(())
    }

    fn first(&self, lines: u64) -> Option<(&[Approval], &str)> {
        let lines = usize::try_from(lines).ok()?;
        Some((self.approvals.get(..lines)?, self.prefixes.get(lines)?))
    }
}

enum Problem {
    Of(ApprovalProblem),
    Order(&'static str),
}

/// Compares `surface_approved.json` with the decisions.
pub fn approved(notes: &mut Notebook<'_>, bytes: &[u8], decisions: Option<&Decisions>, doc: Option<&SessionDoc>) {
    let mut wrong = |code, what: String| {
        notes.found(Finding::new(code, Stage::VerifySurface, what).file(SURFACE_APPROVED));
    };
    let file = match reading::read::<ApprovedFile>(bytes) {
        Reading::Readable(file) if canon::is_canonical(bytes) => file,
        Reading::Readable(_) => return wrong("E_CANON_MISMATCH", "it is not in RFC 8785 form".to_owned()),
        Reading::Damaged(why) => return wrong("E_SCHEMA_UNKNOWN", format!("not an approved surface: {why}")),
        Reading::TooNew(newer) => {
            return notes.found(Finding::too_new(Stage::VerifySurface, &newer).file(SURFACE_APPROVED));
        }
    };
    if let Some(item) = file.wrong() {
        let what = format!("{}/{}: the hash is not that of what is recorded", item.facet, item.name);
        return wrong("E_MANIFEST_TAMPER", what);
    }
    let (Some(decisions), Some(doc)) = (decisions.filter(|d| d.sound), doc) else { return };
    let server = identity(doc);
    let expected = ApprovedFile::of(&server, &InForce::of(&decisions.approvals, &server), &|_| None);
    let bare = |file: &ApprovedFile| {
        let mut file = file.clone();
        file.items.iter_mut().for_each(|item| item.content = None);
        file
    };
    if bare(&file) != expected {
        wrong("E_MANIFEST_TAMPER", "it is not what the decisions of the pack come to".to_owned());
    }
}

fn identity(doc: &SessionDoc) -> Identity {
    Identity { endpoint: doc.command_digest.clone(), id: doc.server_id.clone() }
}

/// What the calls of a session amount to.
#[derive(Debug, Default)]
pub struct Judgement {
    /// How often decisions came into force.
    pub decisions: u64,
    /// How often the server announced what is not approved.
    pub drifts: u64,
    /// Calls that were not refused.
    pub calls: u64,
    /// How they stood.
    pub states: BTreeMap<&'static str, u64>,
    /// Those that rest on an approval by a person, by one of those that the caller named if any are.
    pub approved: u64,
    /// The first few of the others: receipt, tool, and why.
    pub others: Vec<(ReceiptId, String, String)>,
    /// The decisions are not in the pack: a recovery did not find them.
    pub missing: bool,
}

/// A field of a receipt that is not what follows from the events: its name, what follows, what is there.
pub type Disagreement = (&'static str, String, String);

/// The surface of a session while its chain is walked.
#[derive(Debug, Default)]
pub struct Judging<'a> {
    decisions: Option<&'a Decisions>,
    server: Identity,
    now: Option<Standing>,
    told: Told,
    calls: HashMap<InvocationId, Stands>,
    /// Lines of the decisions that were in force at most.
    lines: u64,
    result: Judgement,
    /// Decisions could not be compared: that is said elsewhere.
    blind: bool,
}

impl<'a> Judging<'a> {
    /// With the decisions of the pack.
    pub fn new(decisions: Option<&'a Decisions>) -> Self {
        let blind = decisions.is_some_and(|d| !d.sound);
        Self { decisions, blind, ..Self::default() }
    }

    /// Takes an event; what is wrong goes to `wrong`.
    pub fn event(&mut self, e: &Event<'_>, recovered: bool, wrong: &mut Vec<&'static str>) {
        if e.v != crate::model::event::SURFACE_EVENTS {
            return;
        }
        let at_us = i64::try_from(e.mono_us).unwrap_or(i64::MAX);
        match &e.detail {
            Detail::ChainStart(d) => {
                self.server = Identity { endpoint: d.command_digest.clone(), id: d.server_id.clone() };
            }
            Detail::SurfaceDecision(d) => self.decided(d, recovered, wrong),
            _ if self.now.is_none() => {
                wrong.push("the chain does not say which decisions about the surface are in force");
            }
            Detail::SurfaceObserved(d) => self.observed(d, at_us, wrong),
            Detail::SurfaceDrift(d) => {
                self.result.drifts += u64::from(!d.new_context);
                wrong.extend(drift(d));
                if d.root.is_some() && d.root.as_deref() != self.told.root() {
                    wrong.push("the root of what differs is not the one that was announced");
                }
            }
            Detail::RequestReceived(d) => {
                let (Some(now), Some(tool), Some(invocation)) = (&self.now, d.tool_name, e.invocation_id) else {
                    return;
                };
                let tool = canon::decode_string(&[b"\"", tool, b"\""].concat()).unwrap_or_default().into_owned();
                let name = pinned_name(Facet::Tools, &tool);
                self.calls.insert(invocation, self.told.stands(now, Facet::Tools, &name, at_us));
            }
            _ => {}
        }
    }

    fn decided(&mut self, d: &detail::SurfaceDecision, recovered: bool, wrong: &mut Vec<&'static str>) {
        self.result.decisions += 1;
        self.lines = self.lines.max(d.approvals);
        let none = (&[][..], sha256_hex(b""));
        let found = match self.decisions {
            Some(decisions) => decisions.first(d.approvals).map(|(all, sha256)| (all, sha256.to_owned())),
            None if d.approvals == 0 => Some(none),
            None => None,
        };
        let mut lines: &[Approval] = &[];
        match found {
            _ if self.blind => {}
            Some((all, sha256)) if sha256 == d.sha256 => {
                let last = all.last().map(|a| &a.approval_id);
                if last != d.last.as_ref() || d.error.is_some() && !all.is_empty() {
                    wrong.push("the event does not name the last decision of those that it says are in force");
                }
                lines = all;
            }
            None if recovered && self.decisions.is_none() => {
                self.result.missing = true;
                self.blind = true;
            }
            _ => {
                self.blind = true;
                wrong.push("the decisions that the event says are in force are not those of the pack");
            }
        }
        self.now = Some(Standing {
            in_force: InForce::of(lines, &self.server),
            unknown: d.error.is_some(),
            first: d.first,
            pinned: d.pinned.iter().copied().collect(),
        });
    }

    fn observed(&mut self, d: &detail::SurfaceObserved, at_us: i64, wrong: &mut Vec<&'static str>) {
        let Some(now) = &self.now else { return };
        let new: Vec<Announced> = d.items.iter().map(detail::ObservedItem::announced).collect();
        let age_us = i64::try_from(d.age_ms).unwrap_or(i64::MAX).saturating_mul(1000);
        let heard = (new.as_slice(), d.gone.as_slice(), d.whole);
        self.told.hear(now, d.facet, heard, d.root.as_deref(), at_us.saturating_sub(age_us));
        if self.blind {
            return;
        }
        let same = |(item, a): (&detail::ObservedItem, &Announced)| {
            item.state == self.told.judge(now, d.facet, a) && item.approval_id == Told::rests_on(now, d.facet, a)
        };
        if !d.items.iter().zip(&new).all(same) {
            wrong.push("an item does not stand with the decisions in force as the event says");
        }
    }

    /// Compares the receipt of a call with what follows from the events.
    pub fn close(&mut self, call: &Call<'_>, approvers: &[String]) -> Vec<Disagreement> {
        let text = |raw: Option<&[u8]>| raw.map(|raw| String::from_utf8_lossy(raw).into_owned());
        let stated = Stands {
            age_ms: call.surface_age_ms.get().copied(),
            approval_id: text(call.surface_approval_id.get().copied()),
            item_hash: text(call.surface_item_hash.get().copied()),
            root: text(call.surface_root.get().copied()),
            state: call.surface_state.get().copied(),
        };
        let expected = self.calls.remove(&call.invocation_id);
        let judged = self.now.is_some();
        let said = !call.surface_state.is_unsaid();
        let mut out = Vec::new();
        if judged != said {
            let words = |it: bool| if it { "said" } else { "not said" }.to_owned();
            out.push(("schema_version", words(judged), words(said)));
        }
        if !judged || !said {
            return out;
        }
        let verbatim = !sense::has(call.anomalies, b"tool_name_not_verbatim");
        if let Some(expected) = expected.filter(|_| verbatim && !self.blind) {
            let reason = call.policy_reason.and_then(|raw| std::str::from_utf8(raw).ok()).map(Word::from);
            let denied = call.outcome == Outcome::Denied;
            let expected = expected.refused_for(reason.as_ref().filter(|_| denied));
            let show = |text: &Option<String>| text.clone().unwrap_or_else(|| "null".to_owned());
            let state = |it: Option<State>| it.map_or("null", State::as_str).to_owned();
            let age = |it: Option<u64>| it.map_or_else(|| "null".to_owned(), |ms| ms.to_string());
            for (field, follows, found) in [
                ("surface_age_ms", age(expected.age_ms), age(stated.age_ms)),
                ("surface_approval_id", show(&expected.approval_id), show(&stated.approval_id)),
                ("surface_item_hash", show(&expected.item_hash), show(&stated.item_hash)),
                ("surface_root", show(&expected.root), show(&stated.root)),
                ("surface_state", state(expected.state), state(stated.state)),
            ] {
                if follows != found {
                    out.push((field, follows, found));
                }
            }
        }
        if call.outcome != Outcome::Denied {
            self.count(call, &stated, verbatim, approvers);
        }
        out
    }

    fn count(&mut self, call: &Call<'_>, stated: &Stands, verbatim: bool, approvers: &[String]) {
        let state = stated.state.map_or("not_pinned", State::as_str);
        self.result.calls += 1;
        *self.result.states.entry(state).or_default() += 1;
        let by = stated.approval_id.as_ref().and_then(|id| {
            let all = self.decisions.map(|d| d.approvals.as_slice()).unwrap_or_default();
            all.iter().find(|a| a.approval_id == *id)
        });
        let why = match (stated.state, by) {
            (Some(State::Approved), Some(by)) if verbatim => {
                let known = approvers.is_empty() || approvers.contains(&by.signer.fingerprint);
                if known {
                    self.result.approved += 1;
                    return;
                }
                format!("approved by {}, who was not named", by.signer.fingerprint)
            }
            _ => state.to_owned(),
        };
        if self.result.others.len() < NAMED {
            let tool = String::from_utf8_lossy(call.tool_name).into_owned();
            self.result.others.push((call.receipt_id, tool, why));
        }
    }

    /// Every decision of the pack was in force, and what it comes to; `None` where the session was compared with nothing.
    pub fn finish(self, wrong: &mut Vec<&'static str>) -> Option<Judgement> {
        let there = self.decisions.map_or(0, |d| d.approvals.len() as u64);
        if !self.blind && there != self.lines {
            wrong.push("the pack has decisions about the surface that no event says were in force");
        }
        self.now.is_some().then_some(self.result)
    }

    /// The root that was seen last.
    pub fn root(&self) -> Option<&str> {
        self.told.root()
    }
}

/// What is wrong with the list of changes.
fn drift(d: &detail::SurfaceDrift) -> Option<&'static str> {
    let worst = d.changes.iter().map(|c| c.severity).max();
    let whole = d.count == d.changes.len() as u64;
    let short = d.changes.len() == MAX_CHANGES && d.count > MAX_CHANGES as u64;
    if d.changes.is_empty() || d.changes_hash.is_none() || !whole && !short {
        Some("the changes are not all there")
    } else if d.changes.iter().any(|c| c.severity != c.kind.severity()) || whole && worst != Some(d.severity) {
        Some("a change is not of the severity of its kind")
    } else {
        None
    }
}
