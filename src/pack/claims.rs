//! Claim cards: what evidence is asked to show (FORMATS §7).

use serde::Serialize;

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
