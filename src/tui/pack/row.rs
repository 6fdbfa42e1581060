//! What a line of evidence says, as far as it reads.

use crate::{
    live::{message::What, row::CallRow, words},
    model::{
        AuditEvent, Direction, EventKind, ToolCall, Vocabulary as _,
        event::{EventMembers, hash_of_line},
        line::{member, number, text, truth},
        reading,
        receipt::{CallMembers, EndMembers, GapMembers, RECORDER_GAP, SESSION_END, SESSION_START},
        words::AnomalyKind,
    },
    text::counted,
};
use std::borrow::Cow;

/// Characters of a line that does not read that are shown.
const HEAD: usize = 400;

/// What the lines are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The receipts of the session.
    Receipts,
    /// The audit events of the session.
    Events,
    /// The same, of which those are listed that say that a message was read.
    Messages,
}

/// What the list shows of one line of a file.
#[derive(Debug, Clone)]
pub enum EvidenceRow {
    /// A receipt of a tool call.
    Call(Box<CallRow>),
    /// A receipt that is not of a tool call.
    Other {
        /// The `type` of the receipt.
        what: String,
        /// When it was written.
        at: String,
        /// What it says.
        text: String,
        /// The receipt's id.
        id: String,
        /// Worth a look.
        bad: bool,
    },
    /// An audit event.
    Event(Box<EventRow>),
    /// A line that is neither a receipt nor an event.
    Bad {
        /// Why it is none.
        why: String,
        /// The beginning of the line.
        head: String,
    },
}

/// An audit event, and how it hangs in the chain.
#[derive(Debug, Clone, Default)]
pub struct EventRow {
    /// The event's `event_seq`.
    pub seq: u64,
    /// The event's `at`.
    pub at: String,
    /// The event's `event`: its kind.
    pub kind: String,
    /// Direction of the message.
    pub direction: Option<Direction>,
    /// The event's `method`.
    pub method: Option<String>,
    /// Tool, for what names one.
    pub tool: Option<String>,
    /// What its detail says besides: the reason of an end, of a gap, of an anomaly.
    pub note: Option<String>,
    /// What message it says was read.
    pub what: Option<What>,
    /// Length of the message in bytes, and its SHA-256.
    pub wire: Option<(u64, String)>,
    /// JSON-RPC id of the message.
    pub rpc_id: Option<String>,
    /// Id of the call.
    pub invocation: Option<String>,
    /// `hash`: what it says of itself.
    pub hash: String,
    /// What it hashes to, where that is something else.
    pub hashes_to: Option<String>,
    /// `prev_hash`: what it says of the event before.
    pub prev_hash: String,
    /// What the event before says of itself, where that is something else.
    pub before: Option<String>,
    /// Whether the event before was looked at.
    pub linked: bool,
}

impl EventRow {
    /// Whether something is wrong with its hash or its link.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.hashes_to.is_some() || self.before.is_some()
    }

    /// Whether a person should look at it, broken or not.
    #[must_use]
    pub fn is_problem(&self) -> bool {
        self.is_broken() || words::is_odd(&self.kind)
    }
}

impl EvidenceRow {
    /// What a person copies first.
    #[must_use]
    pub fn value(&self) -> (&'static str, String) {
        match self {
            Self::Call(call) => match call.receipt_id {
                Some(id) => ("receipt id", id.to_string()),
                None => ("invocation id", call.invocation_id.to_string()),
            },
            Self::Other { id, .. } => ("receipt id", id.clone()),
            Self::Event(e) => ("hash", e.hash.clone()),
            Self::Bad { head, .. } => ("beginning of the line", head.clone()),
        }
    }
}

/// Reads a line. For an event, `before` is the line before it, if that is known.
#[must_use]
pub fn read(kind: Kind, line: &[u8], before: Option<&[u8]>) -> EvidenceRow {
    match kind {
        Kind::Receipts => receipt(line),
        Kind::Events | Kind::Messages => event(line, before),
    }
}

fn bad(line: &[u8], why: String) -> EvidenceRow {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * HEAD)]);
    EvidenceRow::Bad { why, head: text.chars().take(HEAD).collect() }
}

fn receipt(line: &[u8]) -> EvidenceRow {
    if let Ok(call) = serde_json::from_slice::<ToolCall>(line) {
        return EvidenceRow::Call(Box::new(CallRow::of_receipt(&call)));
    }
    if let Some(e) = reading::newer_receipt(line) {
        return bad(line, e.to_string());
    }
    let Some(m) = CallMembers::of_line(line) else { return bad(line, "not a receipt: not a JSON object".to_owned()) };
    let said = |raw| text(raw).unwrap_or_default().into_owned();
    let what = said(m.r#type);
    let (mut lost, mut open) = (false, false);
    let told = match what.as_str() {
        SESSION_START => format!("session start, server {}", said(m.server_id)),
        SESSION_END => {
            let m = EndMembers::of_line(line).unwrap_or_default();
            open = truth(m.session_complete) != Some(true);
            let complete = if open { "not complete" } else { "complete" };
            format!("session end: {}, {complete}", said(m.end_reason))
        }
        RECORDER_GAP => {
            lost = true;
            let m = GapMembers::of_line(line).unwrap_or_default();
            let n = |raw, one| counted(number(raw).unwrap_or_default(), one);
            format!("recorder gap: {}, {} lost: {}", n(m.messages, "message"), n(m.bytes, "byte"), said(m.reason))
        }
        // Other builders have receipts of model calls.
        _ => [said(m.tool_name), said(member(line, "model_id")), said(m.outcome)]
            .into_iter()
            .filter(|t| !t.is_empty())
            .collect::<Vec<_>>()
            .join(" "),
    };
    EvidenceRow::Other { at: said(m.timestamp), id: said(m.receipt_id), text: told, bad: lost || open, what }
}

/// What an exchange over HTTP was: method, path, status, and what is not as usual.
fn exchange(detail: &[u8]) -> Option<String> {
    let said = |object: Option<&[u8]>, name: &str| text(member(object?, name)).map(Cow::into_owned);
    let of = |name| said(Some(detail), name);
    let status = member(detail, "response").and_then(|response| number(member(response, "status")));
    let mut all = vec![of("method")?];
    all.extend(said(member(detail, "target"), "path"));
    all.extend(status.map(|status| status.to_string()));
    all.extend(of("origin").filter(|origin| origin != "client").map(|origin| format!("by {origin}")));
    all.extend(of("answered_by").filter(|by| by != "upstream").map(|by| format!("answered by {by}")));
    all.extend(of("ended").filter(|ended| ended != "complete"));
    Some(all.join(" "))
}

/// What message an event says was read.
#[must_use]
pub fn message(line: &[u8]) -> Option<What> {
    what(&EventMembers::of_line(line)?)
}

fn what(m: &EventMembers<'_>) -> Option<What> {
    let kind = EventKind::of(text(m.event)?.as_bytes())?;
    let of_detail = |name| m.detail.and_then(|detail| member(detail, name));
    let anomaly = text(of_detail("kind")).and_then(|word| AnomalyKind::of(word.as_bytes()));
    let failed = truth(of_detail("is_error")) == Some(true) || of_detail("error_code").is_some_and(|c| c != b"null");
    number(m.wire_bytes)?;
    What::of(kind, anomaly, text(m.invocation_id).is_some(), failed)
}

fn event(line: &[u8], before: Option<&[u8]>) -> EvidenceRow {
    if let Some(e) = reading::newer::<AuditEvent>(line) {
        return bad(line, e.to_string());
    }
    let m = EventMembers::of_line(line).unwrap_or_default();
    let said = |raw| text(raw).map(Cow::into_owned);
    let (Some(seq), Some(kind), Some(hash), Some(prev_hash), true) = (
        number(m.event_seq),
        said(m.event),
        said(m.hash),
        said(m.prev_hash),
        m.mono_us.is_none_or(|raw| number(Some(raw)).is_some()),
    ) else {
        return bad(line, "not an audit event: it has no number, kind or hashes".to_owned());
    };
    let of_detail = |name| m.detail.and_then(|detail| said(member(detail, name)));
    let hashes_to = match hash_of_line(line) {
        Some(found) if found == hash => None,
        Some(found) => Some(found),
        None => Some("nothing: the line is not in canonical form".to_owned()),
    };
    let before = before.and_then(|before| said(EventMembers::of_line(before)?.hash));
    EvidenceRow::Event(Box::new(EventRow {
        seq,
        at: said(m.at).unwrap_or_default(),
        kind,
        direction: text(m.direction).and_then(|word| Direction::of(word.as_bytes())),
        method: said(m.method),
        tool: of_detail("tool_name"),
        note: ["reason", "kind", "severity", "facet", "last"]
            .into_iter()
            .find_map(of_detail)
            .map(|note| match number(m.detail.and_then(|detail| member(detail, "lines"))) {
                Some(lines) => format!("{}, the first: {note}", counted(lines, "line")),
                None => note,
            })
            .or_else(|| exchange(m.detail?)),
        what: what(&m),
        wire: number(m.wire_bytes).zip(said(m.wire_sha256)),
        rpc_id: m.rpc_id.filter(|id| *id != b"null").map(|id| String::from_utf8_lossy(id).into_owned()),
        invocation: said(m.invocation_id),
        hash,
        hashes_to,
        linked: before.is_some(),
        before: before.filter(|before| *before != prev_hash),
        prev_hash,
    }))
}

/// Whether a person should look at a line; cheap, for it is asked for every line of a file. `before` is kept for the next one.
pub fn problem(kind: Kind, number: u64, line: &[u8], before: &mut Option<String>) -> bool {
    match kind {
        Kind::Receipts => {
            // Only a line that may be one is parsed.
            let has = |text: &[u8]| memchr::memmem::find(line, text).is_some();
            let denied = has(br#""policy_verdict":"denied""#);
            let ordinary = has(br#""outcome":"forwarded""#) && has(br#""anomalies":[]"#) && !denied;
            if ordinary && reading::newer_receipt(line).is_some() {
                return true;
            }
            !ordinary && is_problem(&receipt(line))
        }
        Kind::Messages => message(line).is_some_and(What::is_problem),
        Kind::Events => {
            let m = EventMembers::of_line(line).unwrap_or_default();
            let (Some(event), Some(hash), Some(prev_hash)) = (text(m.event), text(m.hash), text(m.prev_hash)) else {
                *before = None;
                return true;
            };
            if reading::newer::<AuditEvent>(line).is_some() {
                *before = None;
                return true;
            }
            let broken = before.as_deref().is_some_and(|b| b != prev_hash) && number > 0;
            let changed = hash_of_line(line).as_deref() != Some(&*hash);
            let wrong = broken || changed || words::is_odd(&event);
            *before = Some(hash.into_owned());
            wrong
        }
    }
}

/// Whether a person should look at it.
#[must_use]
pub fn is_problem(row: &EvidenceRow) -> bool {
    match row {
        EvidenceRow::Call(call) => words::is_problem(call),
        EvidenceRow::Other { bad, .. } => *bad,
        EvidenceRow::Event(e) => e.is_problem(),
        EvidenceRow::Bad { .. } => true,
    }
}
