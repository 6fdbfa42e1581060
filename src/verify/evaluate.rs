//! Claims, evaluated against what was counted and walked.

use super::{
    claims_tally::Tally,
    options::{VerifyError, VerifyOptions},
    walk::Walked,
    words::Completeness,
};
use crate::{
    claims::{Card, Check, ClaimResult, ClaimSetResult, Severity, Spec, card},
    model::{receipt::TOOL_CALL, server::TOOL_REQUESTED},
    text::counted,
};

/// What claims are evaluated against.
pub struct ClaimContext<'a> {
    /// What the receipts amount to.
    pub tally: &'a Tally,
    /// What they and the chain amount to, in packs of ours.
    pub walked: Option<&'a Walked>,
    /// Whether the session is whole.
    pub completeness: Completeness,
    /// Stored contents that rules redacted.
    pub redacted: u64,
}

/// The cards that the caller and its lock ask for, each once.
///
/// # Errors
/// [`VerifyError::Option`]: there is no such card.
pub fn resolve(options: &VerifyOptions) -> Result<Vec<Card>, VerifyError> {
    let mut cards: Vec<Card> = Vec::new();
    for id in &options.cards {
        let Some(card) = card(id) else {
            return Err(VerifyError::Option(format!("there is no claim card {id:?}; --cards list shows them")));
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
#[must_use]
pub fn evaluate(cards: &[Card], context: &ClaimContext<'_>) -> ClaimSetResult {
    let results: Vec<ClaimResult> =
        cards.iter().flat_map(|c| c.claims.iter().map(move |s| claim(c.id, s, context))).collect();
    let n_passed = results.iter().filter(|r| r.passed).count();
    ClaimSetResult {
        passed: results.iter().all(|r| r.passed || r.severity != Severity::Critical),
        n_claims: results.len(),
        n_passed,
        n_failed: results.len() - n_passed,
        results,
    }
}

/// What a check comes to.
struct Shown {
    passed: bool,
    expected: String,
    actual: String,
    /// The receipts that show it.
    evidence: Vec<String>,
}

fn claim(card_id: &'static str, spec: &Spec, c: &ClaimContext<'_>) -> ClaimResult {
    let Shown { passed, expected, actual, evidence } = check(spec.check, c);
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

fn check(check: Check, c: &ClaimContext<'_>) -> Shown {
    match check {
        Check::ReceiptCount { min } => Shown {
            passed: c.tally.receipts >= min,
            expected: format!(">= {min} receipts"),
            actual: format!("{} receipts", c.tally.receipts),
            evidence: Vec::new(),
        },
        Check::TypePresent(kind) => {
            let seen = c.tally.kind(kind);
            if kind == "model_call" && seen.count == 0 && c.tally.has_mcp() {
                return actions(c);
            }
            Shown {
                passed: seen.count > 0,
                expected: format!("at least 1 receipt of type '{kind}'"),
                actual: format!("found {}", seen.count),
                evidence: seen.first,
            }
        }
        Check::TypeAbsent(kind) => {
            let seen = c.tally.kind(kind);
            Shown {
                passed: seen.count == 0,
                expected: format!("0 receipts of type '{kind}'"),
                actual: format!("found {}", seen.count),
                evidence: seen.first,
            }
        }
        Check::TimestampsMonotonic => {
            let wrong = &c.tally.backwards;
            let actual = if wrong.count == 0 { "monotonic".to_owned() } else { format!("{} violations", wrong.count) };
            Shown {
                passed: wrong.count == 0,
                expected: "timestamps non-decreasing".to_owned(),
                actual,
                evidence: wrong.first.clone(),
            }
        }
        Check::ModelCallSchema => {
            let (seen, wrong) = (c.tally.kind("model_call"), &c.tally.other_schema);
            Shown {
                passed: seen.count > 0 && wrong.count == 0,
                expected: "all 'model_call' receipts: schema_version='3.0'".to_owned(),
                actual: format!("{} mismatches out of {}", wrong.count, seen.count),
                evidence: wrong.first.clone(),
            }
        }
        Check::SeqContiguous => {
            let wrong = &c.tally.seq_gaps;
            Shown {
                passed: wrong.count == 0,
                expected: "no gap in seq".to_owned(),
                actual: format!("{} gaps in {} receipts", wrong.count, c.tally.receipts),
                evidence: wrong.first.clone(),
            }
        }
        Check::CallsReceipted => receipted(c),
        Check::EscrowComplete => escrow(c),
        Check::SurfaceCompared => compared(c),
        Check::CallsApproved => approved(c),
        Check::CheckpointsPresent => {
            let n = c.walked.and_then(|w| w.seals.as_ref()).map_or(0, |seals| seals.checkpoints);
            let (expected, actual) = ("at least 1 checkpoint".to_owned(), counted(n, "checkpoint"));
            Shown { passed: n > 0, expected, actual, evidence: Vec::new() }
        }
        Check::SealedByRecorder => {
            let events = c.walked.map_or(0, |w| w.chain.events);
            let by = c.walked.and_then(|w| w.seals.as_ref()).map_or(0, |seals| seals.by_recorder);
            let expected = format!("the recorder stated all of {}", counted(events, "event"));
            Shown {
                passed: events > 0 && by == events,
                expected,
                actual: format!("it stated {by}"),
                evidence: Vec::new(),
            }
        }
    }
}

fn compared(c: &ClaimContext<'_>) -> Shown {
    let judgement = c.walked.and_then(|w| w.judgement.as_ref());
    let actual = match judgement {
        None => "the session was compared with no decision".to_owned(),
        Some(j) if j.missing => "the decisions are not in the pack".to_owned(),
        Some(j) => format!("{}, {}", counted(j.decisions, "set of decisions"), counted(j.drifts, "drift")),
    };
    Shown {
        passed: judgement.is_some_and(|j| !j.missing),
        expected: "the chain says which decisions were in force, and the pack has them".to_owned(),
        actual,
        evidence: Vec::new(),
    }
}

fn approved(c: &ClaimContext<'_>) -> Shown {
    let expected = "every call that was not refused ran under a definition that a person had approved".to_owned();
    let Some(j) = c.walked.and_then(|w| w.judgement.as_ref()) else {
        let actual = "the receipts do not say under which definition calls ran".to_owned();
        return Shown { passed: false, expected, actual, evidence: Vec::new() };
    };
    let named: Vec<String> = j.others.iter().map(|(_, tool, why)| format!("{tool}: {why}")).collect();
    let others = j.calls - j.approved;
    let mut actual = format!("{} of {} approved", j.approved, counted(j.calls, "call"));
    if others > 0 {
        let more = if others > named.len() as u64 { ", …" } else { "" };
        actual = format!("{actual}; {}{more}", named.join(", "));
    }
    let evidence = j.others.iter().map(|(id, ..)| id.to_string()).collect();
    Shown { passed: others == 0 && !j.missing, expected, actual, evidence }
}

/// The recorded actions of a pack of MCP receipts.
fn actions(c: &ClaimContext<'_>) -> Shown {
    if c.walked.is_some() {
        return receipted(c);
    }
    let kinds = [TOOL_CALL, "mcp_tool_requested", "mcp_tool_executed", "mcp_tool_denied"].map(|k| c.tally.kind(k));
    let count: u64 = kinds.iter().map(|s| s.count).sum();
    Shown {
        passed: count > 0,
        expected: "at least 1 receipt of an MCP tool call".to_owned(),
        actual: format!("found {count}"),
        evidence: kinds.into_iter().flat_map(|s| s.first).take(5).collect(),
    }
}

fn receipted(c: &ClaimContext<'_>) -> Shown {
    let expected = "every tools/call of the audit chain has a receipt".to_owned();
    let Some(walked) = c.walked else {
        return Shown {
            passed: false,
            expected,
            actual: "the pack has no audit chain".to_owned(),
            evidence: Vec::new(),
        };
    };
    let kind = if walked.covered.is_some() { TOOL_REQUESTED } else { TOOL_CALL };
    let receipts = c.tally.kind(kind);
    let actual = match (walked.unreceipted, c.completeness) {
        (0, Completeness::Unterminated) => {
            format!("{}, but the chain has no end: what came after is not known", counted(receipts.count, "receipt"))
        }
        (0, _) => format!("{}, no call without one", counted(receipts.count, "receipt")),
        (n, _) => format!("{}, {} without one", counted(receipts.count, "receipt"), counted(n, "call")),
    };
    let actual = match c.redacted {
        0 => actual,
        n => format!("{actual}; {} redacted before it was stored", counted(n, "content")),
    };
    let passed = walked.unreceipted == 0 && c.completeness != Completeness::Unterminated;
    Shown { passed, expected, actual, evidence: receipts.first }
}

fn escrow(c: &ClaimContext<'_>) -> Shown {
    let (requested, settled, stray) = c.tally.escrow_counts();
    let percent = (settled * 100).checked_div(requested).unwrap_or(0);
    let actual = format!(
        "{settled} of {} with an outcome ({percent}%), {} without a request",
        counted(requested, "request"),
        counted(stray, "outcome")
    );
    Shown {
        // Nothing requested shows nothing: a pack of other receipts does not satisfy the card.
        passed: requested > 0 && settled == requested && stray == 0,
        expected: "every mcp_tool_requested has its mcp_tool_executed or mcp_tool_denied".to_owned(),
        actual,
        evidence: c.tally.kind("mcp_tool_requested").first,
    }
}
