//! What the claim cards need, gathered in the one pass over the receipts.

use crate::model::{
    receipt::{ReceiptView as Receipt, SESSION_END, SESSION_START, TOOL_CALL},
    server::{TOOL_DENIED as DENIED, TOOL_EXECUTED as EXECUTED, TOOL_REQUESTED as REQUESTED, flat},
};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
};

/// Receipts kept as evidence for a claim.
const EVIDENCE: usize = 5;

/// Types that cards ask about.
const KINDS: [&str; 10] = [
    "model_call",
    "guardian_verdict",
    "breakglass",
    TOOL_CALL,
    SESSION_START,
    SESSION_END,
    REQUESTED,
    EXECUTED,
    DENIED,
    "mcp.recorder_gap",
];

/// Receipts of one kind: how many, and the first few.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Number of receipts.
    pub count: u64,
    /// Ids of the first few.
    pub first: Vec<String>,
}

impl Seen {
    fn add(&mut self, id: &str) {
        self.count += 1;
        if self.first.len() < EVIDENCE {
            self.first.push(id.to_owned());
        }
    }
}

/// A request of the server-side receipts and its outcome.
#[derive(Debug, Default, Clone, Copy)]
struct Escrow {
    requested: bool,
    outcome: bool,
}

/// The members of a receipt that claims look at.
#[derive(Debug, Default)]
pub struct Fields<'a> {
    /// `receipt_id`
    pub id: &'a str,
    /// `type`
    pub kind: &'a str,
    /// `timestamp`
    pub timestamp: &'a str,
    /// `schema_version`
    pub schema_version: Option<&'a str>,
    /// `invocation_id`
    pub invocation: Option<&'a str>,
    /// `request_receipt_id`
    pub request: Option<&'a str>,
    /// `seq`
    pub seq: Option<u64>,
}

/// Everything that was counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// Whether escrow chains are followed.
    pub follow_escrow: bool,
    /// Number of receipts.
    pub receipts: u64,
    kinds: BTreeMap<&'static str, Seen>,
    /// Receipts whose timestamp is before the one before.
    pub backwards: Seen,
    last_timestamp: String,
    /// `model_call` receipts with another schema version than 3.0.
    pub other_schema: Seen,
    /// Receipts whose `seq` is not one more than that of the one before.
    pub seq_gaps: Seen,
    last_seq: Option<u64>,
    escrow: HashMap<u64, Escrow>,
    key: RandomState,
}

impl Tally {
    /// Receipts of a kind.
    #[must_use]
    pub fn kind(&self, kind: &str) -> Seen {
        self.kinds.get(kind).cloned().unwrap_or_default()
    }

    /// Whether there are receipts of MCP at all.
    #[must_use]
    pub fn has_mcp(&self) -> bool {
        self.kinds.keys().any(|k| k.starts_with("mcp"))
    }

    /// A receipt of this recorder, which has its order checked where it is read.
    pub fn ours(&mut self, receipt: &Receipt<'_>) {
        self.receipts += 1;
        let seen = self.kinds.entry(receipt.kind()).or_default();
        seen.count += 1;
        if seen.first.len() < EVIDENCE {
            seen.first.push(receipt.id().to_string());
        }
        if self.last_seq.is_some_and(|l| receipt.seq() != l + 1) {
            self.seq_gaps.add(&receipt.id().to_string());
        }
        self.last_seq = Some(receipt.seq());
        if !self.follow_escrow {
            return;
        }
        let (of, request) = match receipt {
            Receipt::Requested(r) => (r.invocation_id, None),
            Receipt::Denied(r) => (r.invocation_id, Some(r.request_receipt_id.to_string())),
            Receipt::Executed(r) => (r.invocation_id, Some(r.request_receipt_id.to_string())),
            _ => return,
        };
        self.escrow(&Fields {
            id: &receipt.id().to_string(),
            kind: receipt.kind(),
            invocation: Some(&of.to_string()),
            request: request.as_deref(),
            ..Fields::default()
        });
    }

    /// A receipt of another builder.
    pub fn other(&mut self, r: &Fields<'_>) {
        self.receipts += 1;
        let named = flat(r.kind).unwrap_or(r.kind);
        if let Some(kind) = KINDS.iter().find(|k| **k == named) {
            self.kinds.entry(kind).or_default().add(r.id);
        }
        if !r.timestamp.is_empty() {
            if r.timestamp < self.last_timestamp.as_str() {
                self.backwards.add(r.id);
            }
            r.timestamp.clone_into(&mut self.last_timestamp);
        }
        if r.kind == "model_call" && r.schema_version != Some("3.0") {
            self.other_schema.add(r.id);
        }
        if let (Some(seq), Some(last)) = (r.seq, self.last_seq)
            && last.checked_add(1) != Some(seq)
        {
            self.seq_gaps.add(r.id);
        }
        self.last_seq = r.seq.or(self.last_seq);
        if self.follow_escrow {
            self.escrow(r);
        }
    }

    /// A request is identified by receipt and invocation: an outcome that names only one of them closes no request.
    fn escrow(&mut self, r: &Fields<'_>) {
        let invocation = r.invocation.unwrap_or_default();
        match flat(r.kind).unwrap_or_default() {
            REQUESTED => self.escrow.entry(self.key.hash_one((r.id, invocation))).or_default().requested = true,
            EXECUTED | DENIED => {
                let request = r.request.unwrap_or_default();
                self.escrow.entry(self.key.hash_one((request, invocation))).or_default().outcome = true;
            }
            _ => {}
        }
    }

    /// Requests, those with an outcome, and outcomes without a request.
    #[must_use]
    pub fn escrow_counts(&self) -> (u64, u64, u64) {
        let count = |f: fn(&Escrow) -> bool| self.escrow.values().filter(|e| f(e)).count() as u64;
        (count(|e| e.requested), count(|e| e.requested && e.outcome), count(|e| !e.requested))
    }
}
