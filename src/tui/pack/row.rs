//! What a line of evidence says, as far as it reads.

use crate::{
    live::{row::CallRow, words},
    model::{AuditEvent, Direction, ToolCall, event::hash_of_line, reading},
    text::counted,
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

/// Characters of a line that does not read that are shown.
const HEAD: usize = 400;

/// What the lines are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Receipts.
    Receipts,
    /// Audit events.
    Events,
}

/// One line.
#[derive(Debug, Clone)]
pub enum Row {
    /// A receipt of a tool call.
    Call(Box<CallRow>),
    /// Another receipt.
    Other {
        /// Its type.
        what: String,
        /// Its time.
        at: String,
        /// What it says.
        text: String,
        /// Its id.
        id: String,
        /// Worth a look.
        bad: bool,
    },
    /// An audit event.
    Event(Box<EventRow>),
    /// Something else.
    Bad {
        /// Why it is none.
        why: String,
        /// Its beginning.
        head: String,
    },
}

/// An audit event, and how it hangs in the chain.
#[derive(Debug, Clone, Default)]
pub struct EventRow {
    /// `event_seq`.
    pub seq: u64,
    /// `at`.
    pub at: String,
    /// `event`.
    pub kind: String,
    /// Which way.
    pub direction: Option<Direction>,
    /// `method`.
    pub method: Option<String>,
    /// Tool, for what names one.
    pub tool: Option<String>,
    /// What its detail says besides: the reason of an end, of a gap, of an anomaly.
    pub note: Option<String>,
    /// JSON-RPC id.
    pub rpc_id: Option<String>,
    /// The call.
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

impl Row {
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

/// What is read of an event; anything may be missing.
#[derive(Deserialize)]
struct Brief<'a> {
    #[serde(borrow)]
    at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
    direction: Option<Direction>,
    #[serde(borrow)]
    event: Cow<'a, str>,
    event_seq: u64,
    #[serde(borrow)]
    hash: Cow<'a, str>,
    #[serde(borrow)]
    invocation_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    // Only an event with a number here is one.
    #[serde(default, rename = "mono_us")]
    _mono_us: u64,
    #[serde(borrow)]
    prev_hash: Cow<'a, str>,
    #[serde(borrow)]
    rpc_id: Option<&'a RawValue>,
}

/// Two members of an event that link it.
#[derive(Deserialize)]
struct Link<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    hash: Cow<'a, str>,
    #[serde(borrow)]
    prev_hash: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Hash<'a> {
    #[serde(borrow)]
    hash: Cow<'a, str>,
}

/// Reads a line. For an event, `before` is the line before it, if that is known.
#[must_use]
pub fn read(kind: Kind, line: &[u8], before: Option<&[u8]>) -> Row {
    match kind {
        Kind::Receipts => receipt(line),
        Kind::Events => event(line, before),
    }
}

fn bad(line: &[u8], why: String) -> Row {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * HEAD)]);
    Row::Bad { why, head: text.chars().take(HEAD).collect() }
}

fn receipt(line: &[u8]) -> Row {
    if let Ok(call) = serde_json::from_slice::<ToolCall>(line) {
        return Row::Call(Box::new(CallRow::of_receipt(&call)));
    }
    if let Some(e) = reading::newer_receipt(line) {
        return bad(line, e.to_string());
    }
    let value: Value = match serde_json::from_slice(line) {
        Ok(value @ Value::Object(_)) => value,
        Ok(_) => return bad(line, "no receipt: not an object".to_owned()),
        Err(e) => return bad(line, format!("no receipt: {e}")),
    };
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let what = text("type");
    let said = match what.as_str() {
        crate::model::receipt::SESSION_START => format!("session start, server {}", text("server_id")),
        crate::model::receipt::SESSION_END => {
            let complete = if value["session_complete"] == true { "complete" } else { "not complete" };
            format!("session end: {}, {complete}", text("end_reason"))
        }
        crate::model::receipt::RECORDER_GAP => {
            let n = |member: &str, one| counted(value[member].as_u64().unwrap_or_default(), one);
            format!("recorder gap: {}, {} lost: {}", n("messages", "message"), n("bytes", "byte"), text("reason"))
        }
        _ => [text("tool_name"), text("model_id"), text("outcome")]
            .into_iter()
            .filter(|t| !t.is_empty())
            .collect::<Vec<_>>()
            .join(" "),
    };
    let lost = what == crate::model::receipt::RECORDER_GAP;
    let open = what == crate::model::receipt::SESSION_END && value["session_complete"] != true;
    Row::Other { at: text("timestamp"), id: text("receipt_id"), text: said, bad: lost || open, what }
}

fn event(line: &[u8], before: Option<&[u8]>) -> Row {
    if let Some(e) = reading::newer::<AuditEvent>(line) {
        return bad(line, e.to_string());
    }
    let brief: Brief<'_> = match serde_json::from_slice(line) {
        Ok(brief) => brief,
        Err(e) => return bad(line, format!("no audit event: {e}")),
    };
    let detail: Value = brief.detail.and_then(|d| serde_json::from_str(d.get()).ok()).unwrap_or_default();
    let text = |name: &str| detail[name].as_str().map(str::to_owned);
    let hashes_to = match hash_of_line(line) {
        Some(hash) if hash == brief.hash => None,
        Some(hash) => Some(hash),
        None => Some("nothing: the line is not in canonical form".to_owned()),
    };
    let said = before.and_then(|b| serde_json::from_slice::<Hash<'_>>(b).ok());
    let linked = said.is_some();
    let before = said.filter(|b| b.hash != brief.prev_hash).map(|b| b.hash.into_owned());
    Row::Event(Box::new(EventRow {
        seq: brief.event_seq,
        at: brief.at.map(Cow::into_owned).unwrap_or_default(),
        kind: brief.event.into_owned(),
        direction: brief.direction,
        method: brief.method.map(Cow::into_owned),
        tool: text("tool_name"),
        note: text("reason").or_else(|| text("kind")),
        rpc_id: brief.rpc_id.map(|id| id.get().to_owned()).filter(|id| id != "null"),
        invocation: brief.invocation_id.map(Cow::into_owned),
        hash: brief.hash.into_owned(),
        hashes_to,
        prev_hash: brief.prev_hash.into_owned(),
        before,
        linked,
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
        Kind::Events => {
            let Ok(link) = serde_json::from_slice::<Link<'_>>(line) else {
                *before = None;
                return true;
            };
            if reading::newer::<AuditEvent>(line).is_some() {
                *before = None;
                return true;
            }
            let broken = before.as_deref().is_some_and(|b| b != link.prev_hash) && number > 0;
            let changed = hash_of_line(line).as_deref() != Some(&*link.hash);
            let wrong = broken || changed || words::is_odd(&link.event);
            *before = Some(link.hash.into_owned());
            wrong
        }
    }
}

/// Whether a person should look at it.
#[must_use]
pub fn is_problem(row: &Row) -> bool {
    match row {
        Row::Call(call) => words::is_problem(call),
        Row::Other { bad, .. } => *bad,
        Row::Event(e) => e.is_problem(),
        Row::Bad { .. } => true,
    }
}
