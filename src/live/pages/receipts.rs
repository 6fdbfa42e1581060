//! The receipts of a session as rows.

use super::{Entries, Entry, LineAt, Scan};
use crate::{
    filter::{Facts, Filter},
    live::row::CallRow,
    model::{DurationMs, Outcome, PolicyVerdict, RpcId, ToolCall, receipt::TOOL_CALL},
};
use serde::Deserialize;
use std::{borrow::Cow, io};

/// Receipts: `receipts/session_….jsonl` of an audit directory, or `receipt_pack.jsonl` of a pack.
pub type Receipts = Entries<ReceiptAt>;

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

impl Entry for ReceiptAt {
    fn number(line: &[u8]) -> Option<u64> {
        #[derive(Deserialize)]
        struct Seq {
            seq: u64,
        }
        serde_json::from_slice::<Seq>(line).ok().map(|s| s.seq)
    }

    fn of(line: &LineAt<'_>) -> Self {
        let call = line.bytes.and_then(|b| serde_json::from_slice::<ToolCall>(b).ok());
        let call = call.filter(|c| c.r#type == TOOL_CALL).map(|c| Box::new(CallRow::of_receipt(&c)));
        let kind = match &call {
            Some(_) => TOOL_CALL.to_owned(),
            None => line.bytes.and_then(kind_of).unwrap_or_default(),
        };
        Self { number: line.number, offset: line.offset, len: line.len, kind, call }
    }
}

impl Receipts {
    /// Looks for the calls that pass a filter, newest first, in the background.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn scan(&self, filter: Filter) -> io::Result<Scan> {
        Scan::start(self.pages().clone(), move |line| passes(&filter, line))
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

fn kind_of(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Kind {
        r#type: String,
    }
    serde_json::from_slice::<Kind>(line).ok().map(|k| k.r#type)
}
