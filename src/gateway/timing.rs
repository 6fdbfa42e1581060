//! When a service is looked at: reckoned from what the registry has, so that a restart forgets nothing. No clock is read here.

use super::registry::ServiceRow;
use crate::model::WallTime;

/// The most that a check comes earlier or later than its interval says.
const MOST_JITTER_MS: i64 = 15 * MINUTE_MS;
/// How far overdue checks are spread after a start.
const SPREAD_MS: i64 = MINUTE_MS;
/// The longest pause after failures of a service that is not looked at again once it was seen.
const LONGEST_RETRY: u32 = 60;
const MINUTE_MS: i64 = 60_000;

/// What decides when a service is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Minutes from one check to the next; 0: it is looked at until it was seen whole, and then no more.
    pub every: u32,
    /// When the next check is due.
    pub due: Option<WallTime>,
    /// Checks in a row that did not see it whole.
    pub failures: u32,
    /// It was seen whole.
    pub seen: bool,
    /// A check of it had begun when the gateway ended.
    pub interrupted: bool,
}

impl Timing {
    /// As the registry has it.
    #[must_use]
    pub fn of(row: &ServiceRow) -> Self {
        Self {
            every: row.check_frequency_minutes,
            due: row.next_due_at.as_deref().and_then(WallTime::parse),
            failures: row.failures,
            seen: row.last_success_at.is_some(),
            interrupted: row.check_started_at.is_some(),
        }
    }

    /// Whether it is to be looked at now. A time that is further away than it was ever set is from a clock that was wrong.
    #[must_use]
    pub fn is_due(&self, now: WallTime) -> bool {
        if self.interrupted {
            return true;
        }
        match self.due {
            Some(due) => due <= now || due.millis() - now.millis() > self.pause_ms() + self.jitter_ms(),
            None => !self.seen || self.every > 0,
        }
    }

    /// When it is looked at after a check that began then. `roll` is from -1 to 1, another one each time.
    #[must_use]
    pub fn next(&self, began: WallTime, whole: bool, roll: f64) -> Option<WallTime> {
        let after = Self { failures: if whole { 0 } else { self.failures + 1 }, ..self.clone() };
        if after.every == 0 && (whole || self.seen) {
            return None;
        }
        let jitter = (after.jitter_ms() as f64 * roll.clamp(-1.0, 1.0)) as i64;
        Some(WallTime::from_millis(began.millis() + after.pause_ms() + jitter))
    }

    /// From one check to the next. After failures it is 1, 2, 4 … minutes, up to the interval.
    fn pause_ms(&self) -> i64 {
        let every = if self.every == 0 { LONGEST_RETRY } else { self.every };
        let minutes = match self.failures {
            0 => every,
            n => every.min(1_u32.checked_shl(n - 1).unwrap_or(u32::MAX)),
        };
        i64::from(minutes) * MINUTE_MS
    }

    fn jitter_ms(&self) -> i64 {
        (self.pause_ms() / 10).min(MOST_JITTER_MS)
    }
}

/// When the `n`th of so many services is looked at that were overdue at a start.
#[must_use]
pub fn spread(now: WallTime, n: usize, all: usize) -> WallTime {
    WallTime::from_millis(now.millis() + SPREAD_MS * n as i64 / (all.max(1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 60;

    fn minute(n: i64) -> WallTime {
        WallTime::from_millis(1_700_000_000_000 + n * MINUTE_MS)
    }

    fn every(minutes: u32) -> Timing {
        Timing { every: minutes, due: None, failures: 0, seen: false, interrupted: false }
    }

    /// Lives through some minutes, as the gateway does; the minutes in which it looks.
    fn live(t: &mut Timing, minutes: std::ops::Range<i64>, whole: impl Fn(i64) -> bool) -> Vec<i64> {
        let mut looked = Vec::new();
        for n in minutes {
            if t.is_due(minute(n)) {
                let roll = (n * 7919 % 201 - 100) as f64 / 100.0;
                t.due = t.next(minute(n), whole(n), roll);
                t.failures = if whole(n) { 0 } else { t.failures + 1 };
                t.seen |= whole(n);
                t.interrupted = false;
                looked.push(n);
            }
        }
        looked
    }

    #[test]
    fn in_a_month_no_check_is_lost_and_none_is_doubled() {
        for interval in [5, 60, 10_080] {
            let mut t = every(interval);
            let looked = live(&mut t, 0..30 * DAY, |_| true);
            let gaps = looked.windows(2).map(|w| w[1] - w[0]);
            let most = i64::from(interval / 10).clamp(1, 15);
            for gap in gaps {
                assert!((gap - i64::from(interval)).abs() <= most, "{interval}: {gap}");
            }
            let expected = 30 * DAY / i64::from(interval);
            assert!((looked.len() as i64 - expected).abs() <= expected / 20 + 1, "{interval}: {}", looked.len());
        }
    }

    #[test]
    fn failures_are_tried_again_soon_and_then_as_often_as_usual() {
        let mut t = every(60);
        let looked = live(&mut t, 0..DAY, |_| false);
        let gaps: Vec<i64> = looked.windows(2).map(|w| w[1] - w[0]).collect();
        for (gap, wanted) in gaps.iter().zip([1, 2, 4, 8, 16, 32, 60, 60]) {
            assert!((gap - wanted).abs() <= wanted / 10 + 1, "{gaps:?}");
        }
        assert!(!t.seen && looked.len() < 32);
        // What was never to be looked at again is tried until it was seen.
        let mut t = every(0);
        let looked = live(&mut t, 0..DAY, |n| n > 100);
        assert!(looked.iter().filter(|n| **n > 100).count() == 1 && looked.len() < 12, "{looked:?}");
        assert!(t.due.is_none() && !t.is_due(minute(99 * DAY)));
    }

    #[test]
    fn after_a_pause_or_a_clock_that_jumps_it_is_looked_at_once() {
        let mut t = every(60);
        live(&mut t, 0..200, |_| true);
        // Nobody was there for a week.
        let looked = live(&mut t, 7 * DAY..7 * DAY + 180, |_| true);
        assert!(looked[0] == 7 * DAY && looked.len() <= 4, "{looked:?}");
        // The clock goes back a year: the time that was set is too far away.
        let looked = live(&mut t, -365 * DAY..-365 * DAY + 180, |_| true);
        assert!(looked[0] == -365 * DAY && looked.len() <= 4, "{looked:?}");
        // It goes back by less than that: the time that was set stays.
        assert!(!Timing { due: Some(minute(60)), seen: true, ..every(60) }.is_due(minute(0)));
        // A check that had begun is the first one.
        assert!(Timing { due: Some(minute(60)), seen: true, interrupted: true, ..every(60) }.is_due(minute(0)));
        let spread: Vec<_> = (0..3).map(|n| spread(minute(0), n, 3).millis() - minute(0).millis()).collect();
        assert_eq!(spread, [0, 20_000, 40_000]);
        assert_eq!(super::spread(minute(0), 0, 0), minute(0));
    }
}
