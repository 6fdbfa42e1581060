//! Differing calls one by one, with what their receipts say; the lines are read again for these only.

use super::{
    DiffError, MAX_LISTED,
    json::{self, Difference},
    pair::Paired,
    side::{Call, Names, Side},
};
use crate::pack::calls::Seen;
use serde::Serialize;

/// Bytes of one stored content that are compared, and of all together.
const MAX_CONTENT: usize = 4 << 20;
const MAX_CONTENTS: usize = 64 << 20;

/// What is different about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// In both packs, with another outcome, verdict or result.
    Changed,
    /// The call is only in B.
    New,
    /// The call is only in A.
    Gone,
}

/// A call as one side has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallSide {
    /// Id of its receipt.
    pub receipt_id: String,
    /// `outcome`.
    pub outcome: String,
    /// `policy_verdict`.
    pub policy_verdict: String,
    /// `result_hash`.
    pub result_hash: Option<String>,
    /// Rules took something out of the result before it was stored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub result_is_redacted: bool,
    /// Round trip, microseconds.
    pub duration_us: Option<u64>,
}

/// A call that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallChange {
    /// How its verdict changes.
    pub kind: ChangeKind,
    /// Tool name as sent, cut at 256 bytes.
    pub tool: String,
    /// `arguments_hash`.
    pub arguments_hash: String,
    /// The value in pack A, the baseline.
    pub a: Option<CallSide>,
    /// The value in pack B.
    pub b: Option<CallSide>,
    /// What differs in the results, where both packs store them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub result_differences: Vec<Difference>,
    /// Differences that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub result_differences_omitted: u64,
}

impl CallSide {
    /// What is different in `later`, in words: outcome, verdict, result. Words of receipts are verbatim.
    #[must_use]
    pub fn changed(&self, later: &Self, arrow: &str) -> Vec<String> {
        let mut said = Vec::new();
        if self.outcome != later.outcome {
            said.push(format!("{} {arrow} {}", self.outcome, later.outcome));
        }
        if self.policy_verdict != later.policy_verdict {
            said.push(format!("policy {} {arrow} {}", self.policy_verdict, later.policy_verdict));
        }
        said.extend(self.results(later).map(str::to_owned));
        said
    }

    /// How the result of `later` differs from this one, in words.
    #[must_use]
    pub fn results(&self, later: &Self) -> Option<&'static str> {
        match (&self.result_hash, &later.result_hash) {
            (Some(_), None) => Some("no result now"),
            (None, Some(_)) => Some("a result now"),
            (old, new) if old == new => None,
            _ if self.result_is_redacted || later.result_is_redacted => Some("different result (redacted)"),
            _ => Some("different result"),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The changes that are listed.
#[derive(Debug, Default)]
pub struct Listing {
    /// Changed calls first, then new, then gone ones, each in the order of the session.
    pub changes: Vec<CallChange>,
    /// How many are not.
    pub omitted: u64,
}

impl Listing {
    pub(super) fn read(paired: &Paired, a: &Side, b: &Side, names: &Names) -> Result<Self, DiffError> {
        let mut out = Self::default();
        let all = paired.changed.len() + paired.new.len() + paired.gone.len();
        // A pair that ended otherwise says more than one with different result.
        let ended = |(x, y): &&(u32, u32)| {
            let (a, b) = (&a.calls[*x as usize], &b.calls[*y as usize]);
            (a.outcome, a.verdict) != (b.outcome, b.verdict)
        };
        let rest = paired.changed.iter().filter(|p| !ended(p));
        let mut contents = 0;
        for (x, y) in paired.changed.iter().filter(ended).chain(rest).take(MAX_LISTED) {
            let (call_a, call_b) = (&a.calls[*x as usize], &b.calls[*y as usize]);
            out.changes.push(changed(call_a, call_b, a, b, names, &mut contents)?);
        }
        for (kind, side, which) in [(ChangeKind::New, b, &paired.new), (ChangeKind::Gone, a, &paired.gone)] {
            for at in which.iter().take(MAX_LISTED) {
                out.changes.push(alone(kind, &side.calls[*at as usize], side, names)?);
            }
        }
        out.omitted = (all - out.changes.len()) as u64;
        Ok(out)
    }
}

fn side_of(seen: &Seen<'_>) -> CallSide {
    CallSide {
        receipt_id: cut(&seen.receipt_id),
        outcome: cut(&seen.outcome),
        policy_verdict: cut(&seen.verdict),
        result_hash: seen.result_hash.as_deref().map(cut),
        result_is_redacted: seen.result_is_redacted,
        duration_us: seen.duration_us,
    }
}

fn cut(text: &str) -> String {
    text.chars().take(128).collect()
}

fn alone(kind: ChangeKind, call: &Call, side: &Side, names: &Names) -> Result<CallChange, DiffError> {
    let line = side.line(call, names)?;
    let seen = Seen::read(&line).unwrap_or_default();
    let here = Some(side_of(&seen));
    let (a, b) = if kind == ChangeKind::New { (None, here) } else { (here, None) };
    Ok(CallChange {
        kind,
        tool: names.name(call.tool).to_owned(),
        arguments_hash: cut(&seen.arguments_hash),
        a,
        b,
        result_differences: Vec::new(),
        result_differences_omitted: 0,
    })
}

fn changed(
    call_a: &Call,
    call_b: &Call,
    a: &Side,
    b: &Side,
    names: &Names,
    contents: &mut usize,
) -> Result<CallChange, DiffError> {
    let (line_a, line_b) = (a.line(call_a, names)?, b.line(call_b, names)?);
    let seen_a = Seen::read(&line_a).unwrap_or_default();
    let seen_b = Seen::read(&line_b).unwrap_or_default();
    let mut change = CallChange {
        kind: ChangeKind::Changed,
        tool: names.name(call_b.tool).to_owned(),
        arguments_hash: cut(&seen_b.arguments_hash),
        a: Some(side_of(&seen_a)),
        b: Some(side_of(&seen_b)),
        result_differences: Vec::new(),
        result_differences_omitted: 0,
    };
    if call_a.result != call_b.result
        && let (Some(old), Some(new)) = (seen_a.result_content, seen_b.result_content)
        && old.len().max(new.len()) <= MAX_CONTENT
        && *contents + old.len() + new.len() <= MAX_CONTENTS
        && let (Ok(old_value), Ok(new_value)) = (serde_json::from_slice(old), serde_json::from_slice(new))
    {
        *contents += old.len() + new.len();
        (change.result_differences, change.result_differences_omitted) = json::differences(&old_value, &new_value);
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_rules_redacted_is_said_to_be() {
        let line = |hash: &str, words: &str| {
            format!(r#"{{"anomalies":[{words}],"result_hash":"sha256:{hash}","type":"mcp_tool_call"}}"#).into_bytes()
        };
        let of = |line: &[u8]| side_of(&Seen::read(line).unwrap());
        let plain = [of(&line("a", "")), of(&line("b", r#""redacted:arguments:x""#))];
        let redacted = [of(&line("a", r#""redacted:result:x""#)), of(&line("b", ""))];
        assert_eq!(plain[0].results(&plain[1]), Some("different result"));
        assert_eq!(redacted[0].results(&redacted[1]), Some("different result (redacted)"));
        assert_eq!(redacted[0].results(&plain[0]), None, "the hashes are of the originals");
    }
}
