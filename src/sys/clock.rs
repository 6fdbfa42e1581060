//! The two clocks of a session, in nanoseconds.

use rustix::time::{ClockId, clock_gettime};

fn ns(id: ClockId) -> i128 {
    let t = clock_gettime(id);
    i128::from(t.tv_sec) * 1_000_000_000 + i128::from(t.tv_nsec)
}

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of every mark in a capture.
#[inline]
pub fn mono_ns() -> u64 {
    ns(ClockId::Monotonic) as u64
}

fn saturated(n: i128) -> i64 {
    n.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Wall clock minus monotonic clock in nanoseconds: add it to a mark to get nanoseconds since 1970-01-01 UTC. It stays at
/// its ends for years that it does not hold (before 1677, after 2262).
pub fn wall_minus_mono_ns() -> i64 {
    // The monotonic clock is read on both sides, so that a preemption between the readings costs half its length.
    let before = ns(ClockId::Monotonic);
    let wall = ns(ClockId::Realtime);
    let after = ns(ClockId::Monotonic);
    saturated(wall - i128::midpoint(before, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_turns_a_mark_into_wall_time() {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i128;
        let ours = i128::from(mono_ns()) + i128::from(wall_minus_mono_ns());
        assert!((ours - wall).abs() < 5_000_000_000);
    }
}
