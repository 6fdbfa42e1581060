//! Exact quantiles of round trips.

use crate::numbers::nearest_rank;
use serde::Serialize;

/// Quantiles in microseconds, nearest rank; `null` without a call that was answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Calls with a round trip.
    pub count: u64,
    /// Median of the round trips in microseconds; `None` without any.
    pub p50_us: Option<u64>,
    /// 95th percentile of the round trips in microseconds; `None` without any.
    pub p95_us: Option<u64>,
    /// 99th percentile of the round trips in microseconds; `None` without any.
    pub p99_us: Option<u64>,
    /// Longest round trip in microseconds; `None` without any.
    pub max_us: Option<u64>,
}

impl Quantiles {
    /// Of these, in any order.
    #[must_use]
    pub fn of(mut durations: Vec<u64>) -> Self {
        durations.sort_unstable();
        Self::of_sorted(&durations, |d| *d)
    }

    /// Percentiles of calls sorted by round trip.
    pub(super) fn of_sorted<T>(sorted: &[T], duration: impl Fn(&T) -> u64) -> Self {
        let count = sorted.len() as u64;
        let rank = |per_mille| sorted.get(nearest_rank(count, per_mille) as usize - 1).map(&duration);
        Self { count, p50_us: rank(500), p95_us: rank(950), p99_us: rank(990), max_us: rank(1000) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        assert_eq!(Quantiles::of(vec![]), Quantiles::default());
        let q = Quantiles::of((1..=100).rev().collect());
        assert_eq!((q.p50_us, q.p95_us, q.p99_us, q.max_us), (Some(50), Some(95), Some(99), Some(100)));
        assert_eq!(Quantiles::of(vec![7]).p50_us, Some(7));
    }
}
