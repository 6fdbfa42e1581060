//! Pairing: calls with the same tool and arguments, in any order; the k-th of A with the k-th of B.

use super::{Pairing, side::Call};
use crate::model::Outcome;
use std::cmp::Ordering;

/// Which calls belong together; positions in the sides' lists, in the order of B (gone ones: of A).
#[derive(Debug, Default)]
pub struct Paired {
    /// How many calls were paired, are new, or are gone.
    pub counts: Pairing,
    /// Pairs with any difference.
    pub changed: Vec<(u32, u32)>,
    /// Calls that are only in B.
    pub new: Vec<u32>,
    /// Calls that are only in A.
    pub gone: Vec<u32>,
    /// Pairs that were forwarded in A and are errors in B.
    pub to_error: u64,
    /// Pairs that were forwarded in A and have no response in B.
    pub to_timeout: u64,
    /// Pairs that were not denied in A and are in B, by outcome or verdict.
    pub to_denied: u64,
}

/// Pairs the calls of two sides.
#[must_use]
pub fn pair(a: &[Call], b: &[Call]) -> Paired {
    let (order_a, order_b) = (order(a), order(b));
    let (mut i, mut j) = (0, 0);
    let mut out = Paired::default();
    loop {
        let (first, second) = (order_a.get(i), order_b.get(j));
        let order = match (first, second) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(first), Some(second)) => a[*first as usize].key.cmp(&b[*second as usize].key),
        };
        match (order, first, second) {
            (Ordering::Less, Some(first), _) => out.gone.push(*first),
            (Ordering::Greater, _, Some(second)) => out.new.push(*second),
            (_, Some(first), Some(second)) => out.both((*first, a), (*second, b)),
            _ => {}
        }
        i += usize::from(order != Ordering::Greater);
        j += usize::from(order != Ordering::Less);
    }
    out.gone.sort_unstable();
    out.new.sort_unstable();
    out.changed.sort_unstable_by_key(|(x, y)| (*y, *x));
    out.counts.gone = out.gone.len() as u64;
    out.counts.new = out.new.len() as u64;
    out
}

/// Positions sorted by key; the sort is stable.
fn order(calls: &[Call]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..calls.len() as u32).collect();
    order.sort_unstable_by_key(|i| (calls[*i as usize].key, *i));
    order
}

impl Paired {
    fn both(&mut self, (x, a): (u32, &[Call]), (y, b): (u32, &[Call])) {
        let (a, b) = (&a[x as usize], &b[y as usize]);
        self.counts.paired += 1;
        let outcome = a.outcome != b.outcome;
        let verdict = a.verdict != b.verdict;
        let result = a.result != b.result;
        self.counts.outcome_changed += u64::from(outcome);
        self.counts.verdict_changed += u64::from(verdict);
        self.counts.result_changed += u64::from(result);
        if outcome || verdict || result {
            self.changed.push((x, y));
        }
        if !a.is_denied() && b.is_denied() {
            self.to_denied += 1;
        } else if a.outcome == Some(Outcome::Forwarded) {
            self.to_error += u64::from(b.outcome == Some(Outcome::Error));
            self.to_timeout += u64::from(b.outcome == Some(Outcome::Timeout));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PolicyVerdict;
    use proptest::prelude::*;

    fn call(key: u8, result: u8) -> Call {
        Call {
            key: u128::from(key),
            result: u128::from(result),
            offset: 0,
            duration_us: 0,
            tool: 0,
            len: 0,
            outcome: Some(Outcome::Forwarded),
            verdict: Some(PolicyVerdict::NoPolicy),
        }
    }

    proptest! {
        #[test]
        fn every_call_is_paired_once_new_or_gone(
            a in prop::collection::vec((0u8..5, 0u8..3), 0..40), b in prop::collection::vec((0u8..5, 0u8..3), 0..40),
        ) {
            let make = |v: &[(u8, u8)]| v.iter().map(|(k, r)| call(*k, *r)).collect::<Vec<_>>();
            let (calls_a, calls_b) = (make(&a), make(&b));
            let p = pair(&calls_a, &calls_b);
            prop_assert_eq!(p.counts.paired + p.counts.gone, a.len() as u64);
            prop_assert_eq!(p.counts.paired + p.counts.new, b.len() as u64);
            for key in 0u8..5 {
                let of = |v: &[(u8, u8)]| v.iter().filter(|(k, _)| *k == key).map(|(_, r)| *r).collect::<Vec<_>>();
                let (in_a, in_b) = (of(&a), of(&b));
                let changed = in_a.iter().zip(&in_b).filter(|(x, y)| x != y).count();
                prop_assert_eq!(p.changed.iter().filter(|(x, _)| a[*x as usize].0 == key).count(), changed);
                let extra = p.new.iter().filter(|y| b[**y as usize].0 == key).count();
                prop_assert_eq!(extra, in_b.len().saturating_sub(in_a.len()));
            }
        }
    }

    #[test]
    fn order_does_not_matter_between_different_calls() {
        let p = pair(&[call(1, 1), call(2, 2), call(1, 3)], &[call(2, 2), call(1, 1), call(1, 3)]);
        assert_eq!(p.counts, Pairing { paired: 3, ..Pairing::default() });
    }
}
