//! The table of totals: its rows and their words, for wherever two packs are shown side by side.

use super::{DiffTotals, Quantiles};
use crate::numbers::{difference, duration_if, grouped, increase, increase_pct};

/// A row of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TotalsRow {
    /// What is counted or measured.
    pub label: &'static str,
    /// The value in pack A, the baseline.
    pub a: String,
    /// The value in pack B.
    pub b: String,
    /// By how much B is above A; empty where that says nothing.
    pub by: String,
}

/// Rows of the table: how calls ended, as far as any did so, then round trips. `denied` are all that the policy rejects,
/// `enforced` those of them that were stopped.
#[must_use]
pub fn totals_rows(a: &DiffTotals, b: &DiffTotals, old: &Quantiles, new: &Quantiles) -> Vec<TotalsRow> {
    let counts = [
        ("calls", a.calls, b.calls),
        ("answered", a.forwarded, b.forwarded),
        ("denied", a.policy_denied, b.policy_denied),
        ("enforced", a.denied, b.denied),
        ("errors", a.errors, b.errors),
        ("timeouts", a.timeouts, b.timeouts),
        ("other", a.other, b.other),
    ];
    let times = [
        ("p50", old.p50_us, new.p50_us),
        ("p95", old.p95_us, new.p95_us),
        ("p99", old.p99_us, new.p99_us),
        ("longest", old.max_us, new.max_us),
    ];
    let counts = counts.into_iter().filter(|(label, a, b)| *label == "calls" || a + b > 0);
    let counts = counts.map(|(label, a, b)| TotalsRow { label, a: grouped(a), b: grouped(b), by: difference(a, b) });
    let times = times.into_iter().map(|(label, a, b)| TotalsRow {
        label,
        a: duration_if(a),
        b: duration_if(b),
        by: increase(increase_pct(a, b)),
    });
    counts.chain(times).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_happen_has_no_row_and_what_is_not_known_is_said() {
        let none = (DiffTotals::default(), Quantiles::default());
        let labels = |rows: &[TotalsRow]| rows.iter().map(|r| r.label).collect::<Vec<_>>();
        let rows = totals_rows(&none.0, &none.0, &none.1, &none.1);
        assert_eq!(labels(&rows), ["calls", "p50", "p95", "p99", "longest"]);
        assert!(rows[1..].iter().all(|r| (r.a.as_str(), r.b.as_str(), r.by.as_str()) == ("–", "–", "")), "{rows:?}");

        let a = DiffTotals {
            calls: 1200,
            forwarded: 1198,
            policy_denied: 2,
            denied: 1,
            timeouts: 1,
            ..DiffTotals::default()
        };
        let b = DiffTotals { calls: 3, forwarded: 3, ..DiffTotals::default() };
        let (old, new) = (Quantiles::of(vec![500, 500]), Quantiles::of(vec![750]));
        let rows = totals_rows(&a, &b, &old, &new);
        assert_eq!(
            labels(&rows),
            ["calls", "answered", "denied", "enforced", "timeouts", "p50", "p95", "p99", "longest"]
        );
        let said = |n: usize| [rows[n].a.as_str(), rows[n].b.as_str(), rows[n].by.as_str()];
        assert_eq!(said(0), ["1 200", "3", "-1 197"]);
        assert_eq!(said(4), ["1", "0", "-1"]);
        assert_eq!(said(8), ["500 µs", "750 µs", "+50 %"]);
    }
}
