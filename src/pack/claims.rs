//! Claim cards: what evidence is asked to show (FORMATS §7).
//!
//! | card | its claims |
//! |---|---|
//! | `receipt_completeness` | assay-ai's: there is a receipt, and the recorded actions have theirs |
//! | `mcp_session_completeness` | start and end receipts, no gap in `seq`, every `tools/call` of the chain has a receipt |
//! | `mcp_escrow_completeness` | server-side receipts: every `mcp_tool_requested` has its `mcp_tool_executed` or `mcp_tool_denied` |
//! | `guardian_enforcement`, `no_breakglass`, `timestamp_ordering`, `schema_consistency` | assay-ai's, as its lock files name them |
//!
//! In a pack of MCP receipts the action that `receipt_completeness` asks for (`model_call` in assay-ai's card) is the tool
//! call: every call of the chain must have its receipt, or, in packs without a chain, there must be such receipts.

use super::verify::{Completeness, VerifyError, VerifyOptions, claims_tally::Tally, walk::Walked};
use crate::model::{
    receipt::{SESSION_END, SESSION_START, TOOL_CALL},
    sha256_hex,
};
use crate::text::counted;
use serde::Serialize;
use serde_json::{Value, json};

/// Card: every significant action has a receipt.
pub const RECEIPT_COMPLETENESS: &str = "receipt_completeness";
/// Card: a recorded session is whole.
pub const MCP_SESSION: &str = "mcp_session_completeness";
/// Card: server-side requests have their outcomes.
pub const MCP_ESCROW: &str = "mcp_escrow_completeness";

/// One claim as a card states it; serializes as assay-ai's `ClaimSpec`, whose JCS form the claim set hash covers.
#[derive(Debug, Clone, Serialize)]
pub struct Spec {
    /// Which claim.
    pub claim_id: &'static str,
    /// In words.
    pub description: &'static str,
    /// Which check.
    pub check: &'static str,
    /// Its parameters.
    pub params: Value,
    /// `critical` or `warning`.
    pub severity: &'static str,
}

/// A card.
#[derive(Debug, Clone)]
pub struct Card {
    /// Its id.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its claims.
    pub claims: Vec<Spec>,
}

impl Card {
    /// SHA-256 of the RFC 8785 form of its claims: what attestations and lock files name.
    #[must_use]
    pub fn claim_set_hash(&self) -> String {
        claim_set_hash(std::slice::from_ref(self))
    }
}

/// SHA-256 of the RFC 8785 form of the claims of several cards in a row.
#[must_use]
pub fn claim_set_hash(cards: &[Card]) -> String {
    let specs: Vec<&Spec> = cards.iter().flat_map(|c| &c.claims).collect();
    // Members sort by name in a `Value`, and there are only ASCII names, strings and integers.
    sha256_hex(json!(specs).to_string().as_bytes())
}

const fn spec(claim_id: &'static str, description: &'static str, check: &'static str, params: Value) -> Spec {
    Spec { claim_id, description, check, params, severity: "critical" }
}

/// The card of that id.
#[must_use]
pub fn card(id: &str) -> Option<Card> {
    let (id, name, claims) = match id {
        RECEIPT_COMPLETENESS => (
            RECEIPT_COMPLETENESS,
            "Receipt Completeness",
            vec![
                spec(
                    "min_receipt_count",
                    "At least 1 receipt in the pack",
                    "receipt_count_ge",
                    json!({"min_count": 1}),
                ),
                spec(
                    "model_call_present",
                    "At least one model_call receipt exists",
                    "receipt_type_present",
                    json!({"receipt_type": "model_call"}),
                ),
            ],
        ),
        MCP_SESSION => (
            MCP_SESSION,
            "MCP Session Completeness",
            vec![
                spec(
                    "session_start_present",
                    "The session's start has a receipt",
                    "receipt_type_present",
                    json!({"receipt_type": SESSION_START}),
                ),
                spec(
                    "session_end_present",
                    "The session's end has a receipt",
                    "receipt_type_present",
                    json!({"receipt_type": SESSION_END}),
                ),
                spec("no_seq_gaps", "Receipt numbers have no gap", "seq_contiguous", json!({})),
                spec(
                    "every_call_has_receipt",
                    "Every tools/call of the audit chain has a receipt",
                    "mcp_calls_receipted",
                    json!({}),
                ),
            ],
        ),
        MCP_ESCROW => (
            MCP_ESCROW,
            "MCP Escrow Completeness",
            vec![spec(
                "escrow_chain_complete",
                "All mcp_tool_requested have a matching outcome receipt",
                "escrow_chain_complete",
                json!({"threshold": 1}),
            )],
        ),
        "guardian_enforcement" => (
            "guardian_enforcement",
            "Guardian Enforcement",
            vec![spec(
                "guardian_verdict_present",
                "At least one guardian_verdict receipt exists",
                "receipt_type_present",
                json!({"receipt_type": "guardian_verdict"}),
            )],
        ),
        "no_breakglass" => (
            "no_breakglass",
            "No Breakglass",
            vec![spec(
                "no_breakglass",
                "No breakglass receipts present",
                "no_receipt_type",
                json!({"receipt_type": "breakglass"}),
            )],
        ),
        "timestamp_ordering" => (
            "timestamp_ordering",
            "Timestamp Ordering",
            vec![spec(
                "timestamps_monotonic",
                "Timestamps are monotonically non-decreasing",
                "timestamps_monotonic",
                json!({}),
            )],
        ),
        "schema_consistency" => (
            "schema_consistency",
            "Schema Consistency",
            vec![Spec {
                claim_id: "schema_version_consistent",
                description: "All model_call receipts use schema_version 3.0",
                check: "field_value_matches",
                params: json!({"receipt_type": "model_call", "field_name": "schema_version", "expected_value": "3.0"}),
                severity: "warning",
            }],
        ),
        _ => return None,
    };
    Some(Card { id, name, claims })
}

/// One claim, evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClaimResult {
    /// Which claim.
    pub claim_id: &'static str,
    /// The card that it belongs to.
    pub card_id: &'static str,
    /// Whether it holds.
    pub passed: bool,
    /// What the claim demands.
    pub expected: String,
    /// What the evidence shows.
    pub actual: String,
    /// `critical` or `warning`; only critical claims decide.
    pub severity: &'static str,
    /// Receipts that show it, or that break it; at most five.
    pub evidence_receipt_ids: Vec<String>,
    /// assay-ai's member; always `not_required`.
    pub falsifier_status: &'static str,
}

/// All claims of the cards that were asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClaimSetResult {
    /// Every critical claim holds.
    pub passed: bool,
    /// How many claims.
    pub n_claims: usize,
    /// How many hold.
    pub n_passed: usize,
    /// How many do not.
    pub n_failed: usize,
    /// One by one.
    pub results: Vec<ClaimResult>,
}

/// What claims are evaluated against.
pub(super) struct ClaimContext<'a> {
    pub tally: &'a Tally,
    pub walked: Option<&'a Walked>,
    pub completeness: Completeness,
}

/// The cards that the caller and its lock ask for, each once.
pub(super) fn resolve(options: &VerifyOptions) -> Result<Vec<Card>, VerifyError> {
    let mut cards: Vec<Card> = Vec::new();
    for id in &options.cards {
        let Some(card) = card(id) else {
            return Err(VerifyError::Option(format!("there is no claim card {id:?}")));
        };
        if cards.iter().all(|c| c.id != card.id) {
            cards.push(card);
        }
    }
    // A card of the lock that is not known here is one of the lock's problems already.
    for card in options.lock.iter().flat_map(|l| &l.cards).filter_map(|id| card(id)) {
        if cards.iter().all(|c| c.id != card.id) {
            cards.push(card);
        }
    }
    Ok(cards)
}

/// Evaluates every claim.
pub(super) fn evaluate(cards: &[Card], context: &ClaimContext<'_>) -> ClaimSetResult {
    let results: Vec<ClaimResult> =
        cards.iter().flat_map(|c| c.claims.iter().map(move |s| claim(c.id, s, context))).collect();
    let n_passed = results.iter().filter(|r| r.passed).count();
    ClaimSetResult {
        passed: results.iter().all(|r| r.passed || r.severity != "critical"),
        n_claims: results.len(),
        n_passed,
        n_failed: results.len() - n_passed,
        results,
    }
}

fn claim(card_id: &'static str, spec: &Spec, c: &ClaimContext<'_>) -> ClaimResult {
    let kind = spec.params.get("receipt_type").and_then(Value::as_str).unwrap_or_default();
    let seen = c.tally.kind(kind);
    let (passed, expected, actual, evidence) = match spec.check {
        "receipt_count_ge" => {
            (c.tally.receipts >= 1, ">= 1 receipts".to_owned(), format!("{} receipts", c.tally.receipts), Vec::new())
        }
        "receipt_type_present" if kind == "model_call" && seen.count == 0 && c.tally.has_mcp() => actions(c),
        "receipt_type_present" => (
            seen.count > 0,
            format!("at least 1 receipt of type '{kind}'"),
            format!("found {}", seen.count),
            seen.first,
        ),
        "no_receipt_type" => {
            (seen.count == 0, format!("0 receipts of type '{kind}'"), format!("found {}", seen.count), seen.first)
        }
        "timestamps_monotonic" => {
            let wrong = &c.tally.backwards;
            let actual = if wrong.count == 0 { "monotonic".to_owned() } else { format!("{} violations", wrong.count) };
            (wrong.count == 0, "timestamps non-decreasing".to_owned(), actual, wrong.first.clone())
        }
        "field_value_matches" => {
            let wrong = &c.tally.other_schema;
            let expected = format!("all '{kind}' receipts: schema_version='3.0'");
            let actual = format!("{} mismatches out of {}", wrong.count, seen.count);
            (seen.count > 0 && wrong.count == 0, expected, actual, wrong.first.clone())
        }
        "seq_contiguous" => {
            let wrong = &c.tally.seq_gaps;
            let actual = format!("{} gaps in {} receipts", wrong.count, c.tally.receipts);
            (wrong.count == 0, "no gap in seq".to_owned(), actual, wrong.first.clone())
        }
        "mcp_calls_receipted" => receipted(c),
        _ => escrow(c),
    };
    ClaimResult {
        claim_id: spec.claim_id,
        card_id,
        passed,
        expected,
        actual,
        severity: spec.severity,
        evidence_receipt_ids: evidence,
        falsifier_status: "not_required",
    }
}

type Outcome = (bool, String, String, Vec<String>);

/// The recorded actions of a pack of MCP receipts.
fn actions(c: &ClaimContext<'_>) -> Outcome {
    if c.walked.is_some() {
        return receipted(c);
    }
    let kinds = [TOOL_CALL, "mcp_tool_requested", "mcp_tool_executed", "mcp_tool_denied"].map(|k| c.tally.kind(k));
    let count: u64 = kinds.iter().map(|s| s.count).sum();
    let first = kinds.into_iter().flat_map(|s| s.first).take(5).collect();
    (count > 0, "at least 1 receipt of an MCP tool call".to_owned(), format!("found {count}"), first)
}

fn receipted(c: &ClaimContext<'_>) -> Outcome {
    let expected = "every tools/call of the audit chain has a receipt".to_owned();
    let Some(walked) = c.walked else { return (false, expected, "the pack has no audit chain".to_owned(), Vec::new()) };
    let receipts = c.tally.kind(TOOL_CALL);
    let actual = match (walked.unreceipted, c.completeness) {
        (0, Completeness::Unterminated) => {
            format!("{}, but the chain has no end: what came after is not known", counted(receipts.count, "receipt"))
        }
        (0, _) => format!("{}, no call without one", counted(receipts.count, "receipt")),
        (n, _) => format!("{}, {} without one", counted(receipts.count, "receipt"), counted(n, "call")),
    };
    let passed = walked.unreceipted == 0 && c.completeness != Completeness::Unterminated;
    (passed, expected, actual, receipts.first)
}

fn escrow(c: &ClaimContext<'_>) -> Outcome {
    let (requested, settled, stray) = c.tally.escrow_counts();
    let percent = (settled * 100).checked_div(requested).unwrap_or(0);
    let actual = format!(
        "{settled} of {} with an outcome ({percent}%), {} without a request",
        counted(requested, "request"),
        counted(stray, "outcome")
    );
    let expected = "every mcp_tool_requested has its mcp_tool_executed or mcp_tool_denied".to_owned();
    // Nothing requested shows nothing: a pack of other receipts does not satisfy the card.
    (requested > 0 && settled == requested && stray == 0, expected, actual, c.tally.kind("mcp_tool_requested").first)
}
