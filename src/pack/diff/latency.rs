//! Exact quantiles of round trips.

use serde::Serialize;

/// Quantiles in microseconds, nearest rank; `null` without a call that was answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Calls with a round trip.
    pub count: u64,
    /// Median.
    pub p50_us: Option<u64>,
    /// 95th percentile.
    pub p95_us: Option<u64>,
    /// 99th percentile.
    pub p99_us: Option<u64>,
    /// Longest.
    pub max_us: Option<u64>,
}

impl Quantiles {
    /// Of these, in any order.
    #[must_use]
    pub fn of(mut durations: Vec<u64>) -> Self {
        durations.sort_unstable();
        Self::of_sorted(&durations, |d| *d)
    }

    /// Of what is sorted by its round trip.
    pub(super) fn of_sorted<T>(sorted: &[T], duration: impl Fn(&T) -> u64) -> Self {
        let len = sorted.len();
        let rank = |per_mille: usize| {
            let rank = (len * per_mille).div_ceil(1000).max(1);
            sorted.get(rank - 1).map(&duration)
        };
        Self { count: len as u64, p50_us: rank(500), p95_us: rank(950), p99_us: rank(990), max_us: rank(1000) }
    }
}

/// By how many percent `b` is above `a`; negative when it is below, infinite from 0. `None` when either is unknown.
#[must_use]
pub fn increase_pct(a: Option<u64>, b: Option<u64>) -> Option<f64> {
    match (a?, b?) {
        (0, 0) => Some(0.0),
        (0, _) => Some(f64::INFINITY),
        (a, b) => Some((b as f64 - a as f64) / a as f64 * 100.0),
    }
}

/// A time in microseconds for a person.
#[must_use]
pub fn time(us: Option<u64>) -> String {
    match us {
        None => "–".to_owned(),
        Some(us) if us < 10_000 => format!("{:.2} ms", us as f64 / 1e3),
        Some(us) if us < 10_000_000 => format!("{:.0} ms", us as f64 / 1e3),
        Some(us) => format!("{:.1} s", us as f64 / 1e6),
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
        assert_eq!(increase_pct(Some(100), Some(150)), Some(50.0));
        assert_eq!(increase_pct(Some(0), Some(1)), Some(f64::INFINITY));
        assert_eq!(increase_pct(None, Some(1)), None);
    }
}
