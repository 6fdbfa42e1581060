//! What a dry run found.

use super::super::{Note, Policy, Reason, Verdict};
use crate::model::WallTime;
use crate::text::{counted, either};
use serde::Serialize;

/// `schema` of the document that `assay policy dry-run --json` prints.
pub const SCHEMA: &str = "assay.policy_dry_run.v1";

/// Calls by what the policy says of them, and whether that is new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Number of calls.
    pub calls: u64,
    /// Number of these that the policy allows.
    pub allowed: u64,
    /// Number of these that the policy denies.
    pub denied: u64,
    /// Not known, because arguments were not stored.
    pub unknown: u64,
    /// Denied, and were not when they were recorded.
    pub newly_denied: u64,
    /// Allowed, and were denied when they were recorded.
    pub newly_allowed: u64,
}

impl Counted {
    pub(super) fn of(verdict: Verdict, was_denied: bool) -> Self {
        let (allowed, denied) = (verdict == Verdict::Allowed, verdict == Verdict::Denied);
        Self {
            calls: 1,
            allowed: allowed.into(),
            denied: denied.into(),
            unknown: (verdict == Verdict::Unknown).into(),
            newly_denied: (denied && !was_denied).into(),
            newly_allowed: (allowed && was_denied).into(),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.unknown += other.unknown;
        self.newly_denied += other.newly_denied;
        self.newly_allowed += other.newly_allowed;
    }

    /// What a person wants to see first.
    pub(super) fn weight(&self) -> (u64, u64, u64, u64) {
        (self.newly_denied, self.newly_allowed, self.unknown, self.calls)
    }
}

/// The calls of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolRow {
    /// Name of the tool.
    pub tool: String,
    /// Its calls, by verdict.
    #[serde(flatten)]
    pub counts: Counted,
}

impl ToolRow {
    pub(super) fn new(tool: &str) -> Self {
        Self { tool: tool.to_owned(), counts: Counted::default() }
    }
}

/// The calls that a rule decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleRow {
    /// The rule, as in [`Decision::rule`](super::super::Decision::rule).
    pub rule: String,
    /// The reason, as in receipts.
    pub reason: &'static str,
    /// Its calls, by verdict.
    #[serde(flatten)]
    pub counts: Counted,
    /// The first calls whose verdict it changes or leaves open.
    pub examples: Vec<Example>,
}

impl RuleRow {
    pub(super) fn new(rule: &str, reason: Reason) -> Self {
        Self { rule: rule.to_owned(), reason: reason.as_str(), counts: Counted::default(), examples: Vec::new() }
    }
}

/// A call whose verdict is an example of a rule's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    /// Id of the session in which it was made.
    pub session_id: String,
    /// Id of its receipt.
    pub receipt_id: String,
    /// Name of the tool.
    pub tool: String,
    /// When it was seen.
    pub at: Option<WallTime>,
    /// Why, for a person.
    pub message: String,
}

/// What a policy would have done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DryRunReport {
    /// Name of the format, [`SCHEMA`].
    pub schema: &'static str,
    /// Path of the policy file.
    pub policy: String,
    /// `sha256:` and the hash of the policy file.
    pub policy_hash: String,
    /// Remarks on the policy.
    pub notes: Vec<Note>,
    /// Number of sessions that were judged.
    pub sessions: u64,
    /// Sessions that were named more than once, and judged once.
    pub sessions_twice: u64,
    /// All calls, by verdict.
    #[serde(flatten)]
    pub total: Counted,
    /// Calls whose arguments were not stored.
    pub judged_by_hash: u64,
    /// By tool, those that change most first.
    pub tools: Vec<ToolRow>,
    /// By rule, those that change most first.
    pub rules: Vec<RuleRow>,
    /// Entries of the lists and constraints that name no tool that was called.
    pub unmatched: Vec<String>,
    /// What could not be read.
    pub problems: Vec<String>,
}

impl DryRunReport {
    /// The most important result, as text: `4 of 312 calls would now be denied`.
    #[must_use]
    pub fn headline(&self) -> String {
        let t = &self.total;
        match (t.calls, t.newly_denied, t.unknown) {
            (0, ..) => "no call was recorded".to_owned(),
            (_, 0, 0) => "no call would be newly denied".to_owned(),
            (_, 0, _) => "no call is known that would be newly denied".to_owned(),
            (all, n, _) => format!("{n} of {} would now be denied", counted(all, "call")),
        }
    }

    /// The rest in words, as far as there is any: how many, and of which it is said.
    #[must_use]
    pub fn also(&self) -> Vec<(u64, &'static str)> {
        let t = &self.total;
        let all = [
            (t.newly_allowed, "that was denied would now be allowed", "that were denied would now be allowed"),
            (t.denied - t.newly_denied, "was denied and still would be", "were denied and still would be"),
            (
                t.unknown,
                "is unknown: its arguments were not stored (--store-args)",
                "are unknown: their arguments were not stored (--store-args)",
            ),
        ];
        all.into_iter().filter(|(n, ..)| *n > 0).map(|(n, one, many)| (n, either(n, one, many))).collect()
    }

    pub(super) fn new(policy: &Policy) -> Self {
        Self {
            schema: SCHEMA,
            policy: policy.name().to_owned(),
            policy_hash: policy.hash().to_owned(),
            notes: policy.notes().to_vec(),
            sessions: 0,
            sessions_twice: 0,
            total: Counted::default(),
            judged_by_hash: 0,
            tools: Vec::new(),
            rules: Vec::new(),
            unmatched: Vec::new(),
            problems: Vec::new(),
        }
    }
}
