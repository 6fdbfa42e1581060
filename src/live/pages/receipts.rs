//! The receipts of a session as rows.

use super::{Pages, Progress, Scan};
use crate::{
    filter::{Facts, Filter},
    live::row::CallRow,
    model::{DurationMs, Outcome, PolicyVerdict, ReceiptId, RpcId, ToolCall, WallTime, receipt::TOOL_CALL},
};
use serde::Deserialize;
use std::{borrow::Cow, io, ops::Range, path::Path};

/// Receipts from the time on at which one is looked for.
const AROUND: u64 = 1 << 14;
/// How far the wall clock of a receipt may be behind that of one before it, milliseconds.
const SLACK_MS: i64 = 100;

/// Receipts: `receipts/session_….jsonl` of an audit directory, or `receipt_pack.jsonl` of a pack. A receipt's number is
/// that of its line; in a file that is as it should be, its `seq`.
#[derive(Debug, Clone)]
pub struct Receipts {
    pages: Pages,
}

/// A receipt in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptAt {
    /// Number of its line, from 0.
    pub number: u64,
    /// Offset of its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Its `type`; empty if that cannot be read.
    pub kind: String,
    /// The call that it is about; `None` if it is about another thing, or no receipt of ours.
    pub call: Option<Box<CallRow>>,
}

impl Receipts {
    /// Opens a file and begins to index it in the background. Its last receipts can be read at once.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Pages::open(path, Some(seq)).map(|pages| Self { pages })
    }

    /// The lines.
    #[must_use]
    pub const fn pages(&self) -> &Pages {
        &self.pages
    }

    /// How many receipts there are: see [`Pages::len`].
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pages.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How far the index is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.pages.progress()
    }

    /// Looks whether the file has grown: see [`Pages::refresh`].
    ///
    /// # Errors
    /// What the system says.
    pub fn refresh(&self) -> io::Result<()> {
        self.pages.refresh()
    }

    /// The receipts with these numbers, as far as they are there.
    ///
    /// # Errors
    /// What the system says.
    pub fn rows(&self, range: Range<u64>) -> io::Result<Vec<ReceiptAt>> {
        let mut rows = Vec::new();
        self.pages.lines(range, &mut |line| {
            let call = line.bytes.and_then(|b| serde_json::from_slice::<ToolCall>(b).ok());
            let call = call.filter(|c| c.r#type == TOOL_CALL).map(|c| Box::new(CallRow::of_receipt(&c)));
            let kind = match &call {
                Some(_) => TOOL_CALL.to_owned(),
                None => line.bytes.and_then(kind_of).unwrap_or_default(),
            };
            rows.push(ReceiptAt { number: line.number, offset: line.offset, len: line.len, kind, call });
            true
        })?;
        Ok(rows)
    }

    /// The exact bytes of a receipt, as they are hashed.
    ///
    /// # Errors
    /// What the system says.
    pub fn receipt_line(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        self.pages.line(number)
    }

    /// Number of a receipt by its id. `near` is its timestamp; where the wall clock was set meanwhile, it may not be found.
    ///
    /// # Errors
    /// What the system says.
    pub fn find(&self, id: ReceiptId, near: WallTime) -> io::Result<Option<u64>> {
        let wanted = format!("\"receipt_id\":\"{id}\"");
        let from = self.pages.bisect(&timestamp, &WallTime::from_millis(near.millis() - SLACK_MS))?;
        let Some(first) = self.pages.number_at(from)? else { return Ok(None) };
        let mut found = None;
        self.pages.lines(first..first.saturating_add(AROUND), &mut |line| {
            let here = line.bytes.is_some_and(|b| memchr::memmem::find(b, wanted.as_bytes()).is_some());
            found = here.then_some(line.number);
            !here
        })?;
        Ok(found)
    }

    /// Looks for the calls that pass a filter, newest first, in the background.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn scan(&self, filter: Filter) -> io::Result<Scan> {
        Scan::start(self.pages.clone(), move |line| passes(&filter, line))
    }
}

/// The members of a receipt that a filter looks at; nothing is copied of what is plain text.
#[derive(Deserialize)]
struct Brief<'a> {
    duration_ms: Option<DurationMs>,
    #[serde(borrow)]
    invocation_id: Cow<'a, str>,
    mcp_request_id: RpcId,
    outcome: Outcome,
    policy_verdict: PolicyVerdict,
    #[serde(borrow)]
    receipt_id: Cow<'a, str>,
    #[serde(borrow)]
    server_id: Cow<'a, str>,
    #[serde(borrow)]
    tool_name: Cow<'a, str>,
    #[serde(borrow)]
    r#type: Cow<'a, str>,
}

fn passes(filter: &Filter, line: &[u8]) -> bool {
    let Ok(brief) = serde_json::from_slice::<Brief<'_>>(line) else { return false };
    if brief.r#type != TOOL_CALL {
        return false;
    }
    let rpc = match brief.mcp_request_id {
        RpcId::Null => None,
        RpcId::Int(n) => Some(n.to_string()),
        RpcId::Text(t) => Some(t),
    };
    let ids = [Some(brief.invocation_id.into_owned()), Some(brief.receipt_id.into_owned()), rpc];
    filter.passes(&Facts {
        tool: &brief.tool_name,
        server: &brief.server_id,
        verdict: Some(brief.policy_verdict),
        outcome: Some(brief.outcome),
        ids: ids.into_iter().flatten().collect(),
        us: brief.duration_ms.map(|d| d.0),
    })
}

fn seq(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Seq {
        seq: u64,
    }
    serde_json::from_slice::<Seq>(line).ok().map(|s| s.seq)
}

fn timestamp(line: &[u8]) -> Option<WallTime> {
    #[derive(Deserialize)]
    struct Time {
        timestamp: WallTime,
    }
    serde_json::from_slice::<Time>(line).ok().map(|t| t.timestamp)
}

fn kind_of(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Kind {
        r#type: String,
    }
    serde_json::from_slice::<Kind>(line).ok().map(|k| k.r#type)
}
