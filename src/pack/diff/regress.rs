//! What counts as worse when no gate says otherwise: little, and all of it beyond dispute (docs/diff.md).

use super::{gates::Gates, pair::Paired};
use crate::pack::verify::{Claims, Completeness, VerifyReport};
use crate::text::counted;
use serde::Serialize;

/// Something that is worse in B.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Regression {
    /// `completeness`, `claims`, `denied`, `errors`, `timeouts`.
    pub kind: &'static str,
    /// Calls that are concerned; 1 for the pack as a whole.
    pub count: u64,
    /// What is worse, in words.
    pub what: String,
    /// The gate that judges this in its place; then it does not count by itself.
    pub judged_by: Option<&'static str>,
}

pub(super) fn find(a: &VerifyReport, b: &VerifyReport, paired: &Paired, gates: Option<&Gates>) -> Vec<Regression> {
    let mut out = Vec::new();
    let mut add = |kind, count: u64, what: String, gate: &'static str| {
        if count > 0 {
            let judged_by = gates.filter(|g| g.has(gate)).map(|_| gate);
            out.push(Regression { kind, count, what, judged_by });
        }
    };
    let less = a.completeness == Completeness::Complete && b.completeness != Completeness::Complete;
    add("completeness", u64::from(less), format!("A is COMPLETE, B is {}", b.completeness), "require_complete");
    let failed = a.claims == Claims::Pass && b.claims == Claims::HonestFail;
    add("claims", u64::from(failed), "claims that hold in A do not hold in B".to_owned(), "");
    let calls = |n: u64, what: &str| format!("{} {what}", counted(n, "call"));
    let n = paired.to_denied;
    add("denied", n, calls(n, "not denied in A, denied in B"), "max_denied");
    let n = paired.to_error;
    add("errors", n, calls(n, "answered in A, failed in B"), "max_errors");
    let n = paired.to_timeout;
    add("timeouts", n, calls(n, "answered in A, without a response in B"), "max_timeouts");
    out
}
