//! Claim cards: what evidence is asked to show (docs/verify.md).
//!
//! | card | its claims |
//! |---|---|
//! | `receipt_completeness` | assay-ai's: there is a receipt, and the recorded actions have theirs |
//! | `mcp_session_completeness` | start and end receipts, no gap in `seq`, every `tools/call` of the chain has a receipt |
//! | `mcp_escrow_completeness` | server-side receipts: every `mcp_tool_requested` has its `mcp_tool_executed` or `mcp_tool_denied` |
//! | `mcp_surface_approved` | what the server announced was compared with signed decisions, and every call ran under a definition that a person had approved |
//! | `mcp_checkpoints` | the session has checkpoints, and the recorder that saw its events stated all of them |
//! | `guardian_enforcement`, `no_breakglass`, `timestamp_ordering`, `schema_consistency` | assay-ai's, as its lock files name them |
//!
//! In a pack of MCP receipts the action that `receipt_completeness` asks for (`model_call` in assay-ai's card) is the tool
//! call: every call of the chain must have its receipt, or, in packs without a chain, there must be such receipts.

use crate::model::{
    pack::canonical,
    receipt::{SESSION_END, SESSION_START},
    sha256_hex,
};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Card: every significant action has a receipt.
pub const RECEIPT_COMPLETENESS: &str = "receipt_completeness";
/// Card: a recorded session is whole.
pub const MCP_SESSION: &str = "mcp_session_completeness";
/// Card: server-side requests have their outcomes.
pub const MCP_ESCROW: &str = "mcp_escrow_completeness";
/// Card: calls ran under definitions that a person had approved.
pub const MCP_SURFACE: &str = "mcp_surface_approved";
/// Card: the recorder stated what it saw while it saw it.
pub const MCP_CHECKPOINTS: &str = "mcp_checkpoints";

/// What a claim looks at, with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// There are so many receipts, or more.
    ReceiptCount {
        /// The smallest number of receipts that satisfies the claim.
        min: u64,
    },
    /// There is a receipt of this type.
    TypePresent(&'static str),
    /// There is no receipt of this type.
    TypeAbsent(&'static str),
    /// No receipt is older than the one before.
    TimestampsMonotonic,
    /// All `model_call` receipts are of schema 3.0.
    ModelCallSchema,
    /// No receipt number is left out.
    SeqContiguous,
    /// Every `tools/call` of the chain has a receipt.
    CallsReceipted,
    /// Every `mcp_tool_requested` has its outcome.
    EscrowComplete,
    /// The session was compared with decisions about the server's surface.
    SurfaceCompared,
    /// Every call that was not refused ran under a definition that a person had approved.
    CallsApproved,
    /// The session has checkpoints.
    CheckpointsPresent,
    /// The recorder that saw the events stated all of them in its checkpoints.
    SealedByRecorder,
}

impl Check {
    /// assay-ai's word for it, and its parameters: the claim set hash covers both.
    fn spelt(self) -> (&'static str, Value) {
        match self {
            Self::ReceiptCount { min } => ("receipt_count_ge", json!({"min_count": min})),
            Self::TypePresent(kind) => ("receipt_type_present", json!({"receipt_type": kind})),
            Self::TypeAbsent(kind) => ("no_receipt_type", json!({"receipt_type": kind})),
            Self::TimestampsMonotonic => ("timestamps_monotonic", json!({})),
            Self::ModelCallSchema => (
                "field_value_matches",
                json!({"receipt_type": "model_call", "field_name": "schema_version", "expected_value": "3.0"}),
            ),
            Self::SeqContiguous => ("seq_contiguous", json!({})),
            Self::CallsReceipted => ("mcp_calls_receipted", json!({})),
            Self::SurfaceCompared => ("mcp_surface_compared", json!({})),
            Self::CallsApproved => ("mcp_calls_approved", json!({})),
            Self::CheckpointsPresent => ("mcp_checkpoints_present", json!({})),
            Self::SealedByRecorder => ("mcp_sealed_by_recorder", json!({})),
            Self::EscrowComplete => ("escrow_chain_complete", json!({"threshold": 1})),
        }
    }
}

/// Whether a claim decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pack fails if this claim fails.
    Critical,
    /// It is only reported.
    Warning,
}

impl Severity {
    /// `critical` or `warning`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

/// One claim as a card states it; serializes as assay-ai's `ClaimSpec`, whose JCS form the claim set hash covers.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Id of the claim.
    pub claim_id: &'static str,
    /// What the claim says.
    pub description: &'static str,
    /// What it looks at.
    pub check: Check,
    /// Whether a claim that does not hold decides the verdict.
    pub severity: Severity,
}

impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let (check, params) = self.check.spelt();
        json!({
            "claim_id": self.claim_id,
            "description": self.description,
            "check": check,
            "params": params,
            "severity": self.severity,
        })
        .serialize(s)
    }
}

/// A claim card: claims that are evaluated together.
#[derive(Debug, Clone)]
pub struct Card {
    /// Id of the claim card.
    pub id: &'static str,
    /// Name of the claim card, for people.
    pub name: &'static str,
    /// The claims that must hold.
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
    // Strings, integers and maps of them always have that form.
    sha256_hex(&canonical(&specs).unwrap_or_default())
}

const fn critical(claim_id: &'static str, description: &'static str, check: Check) -> Spec {
    Spec { claim_id, description, check, severity: Severity::Critical }
}

/// In place of a card's id: all of them are listed.
pub const LIST: &str = "list";

/// The ids of all cards.
pub const CARDS: [&str; 9] = [
    MCP_SESSION,
    MCP_ESCROW,
    MCP_SURFACE,
    MCP_CHECKPOINTS,
    RECEIPT_COMPLETENESS,
    "guardian_enforcement",
    "no_breakglass",
    "timestamp_ordering",
    "schema_consistency",
];

/// The cards and their claims in words.
#[must_use]
pub fn listing() -> String {
    let mut out = String::new();
    for card in CARDS.into_iter().filter_map(card) {
        let _ = writeln!(out, "{}", card.id);
        for claim in &card.claims {
            let _ = writeln!(out, "  {:<26} {:<9} {}", claim.claim_id, claim.severity.as_str(), claim.description);
        }
    }
    out
}

/// The card of that id.
#[must_use]
pub fn card(id: &str) -> Option<Card> {
    use Check as C;
    let (id, name, claims) = match id {
        RECEIPT_COMPLETENESS => (
            RECEIPT_COMPLETENESS,
            "Receipt Completeness",
            vec![
                critical("min_receipt_count", "At least 1 receipt in the pack", C::ReceiptCount { min: 1 }),
                critical("model_call_present", "At least one model_call receipt exists", C::TypePresent("model_call")),
            ],
        ),
        MCP_SESSION => (
            MCP_SESSION,
            "MCP Session Completeness",
            vec![
                critical("session_start_present", "The session's start has a receipt", C::TypePresent(SESSION_START)),
                critical("session_end_present", "The session's end has a receipt", C::TypePresent(SESSION_END)),
                critical("no_seq_gaps", "Receipt numbers have no gap", C::SeqContiguous),
                critical(
                    "every_call_has_receipt",
                    "Every tools/call of the audit chain has a receipt",
                    C::CallsReceipted,
                ),
            ],
        ),
        MCP_ESCROW => (
            MCP_ESCROW,
            "MCP Escrow Completeness",
            vec![critical(
                "escrow_chain_complete",
                "All mcp_tool_requested have a matching outcome receipt",
                C::EscrowComplete,
            )],
        ),
        MCP_SURFACE => (
            MCP_SURFACE,
            "MCP Surface Approved",
            vec![
                critical(
                    "surface_compared",
                    "What the server announced was compared with signed decisions",
                    C::SurfaceCompared,
                ),
                critical(
                    "every_call_approved",
                    "Every call ran under a definition that a person had approved",
                    C::CallsApproved,
                ),
            ],
        ),
        MCP_CHECKPOINTS => (
            MCP_CHECKPOINTS,
            "MCP Checkpoints",
            vec![
                critical(
                    "checkpoints_present",
                    "The session has checkpoints that hold of its events",
                    C::CheckpointsPresent,
                ),
                critical(
                    "sealed_by_recorder",
                    "The recorder that saw the events stated all of them in its checkpoints",
                    C::SealedByRecorder,
                ),
            ],
        ),
        "guardian_enforcement" => (
            "guardian_enforcement",
            "Guardian Enforcement",
            vec![critical(
                "guardian_verdict_present",
                "At least one guardian_verdict receipt exists",
                C::TypePresent("guardian_verdict"),
            )],
        ),
        "no_breakglass" => (
            "no_breakglass",
            "No Breakglass",
            vec![critical("no_breakglass", "No breakglass receipts present", C::TypeAbsent("breakglass"))],
        ),
        "timestamp_ordering" => (
            "timestamp_ordering",
            "Timestamp Ordering",
            vec![critical(
                "timestamps_monotonic",
                "Timestamps are monotonically non-decreasing",
                C::TimestampsMonotonic,
            )],
        ),
        "schema_consistency" => (
            "schema_consistency",
            "Schema Consistency",
            vec![Spec {
                severity: Severity::Warning,
                ..critical(
                    "schema_version_consistent",
                    "All model_call receipts use schema_version 3.0",
                    C::ModelCallSchema,
                )
            }],
        ),
        _ => return None,
    };
    Some(Card { id, name, claims })
}

/// One claim, evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClaimResult {
    /// Id of the claim.
    pub claim_id: &'static str,
    /// The card that it belongs to.
    pub card_id: &'static str,
    /// Whether it holds.
    pub passed: bool,
    /// What the claim demands.
    pub expected: String,
    /// What the evidence shows.
    pub actual: String,
    /// Only critical claims decide.
    pub severity: Severity,
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
