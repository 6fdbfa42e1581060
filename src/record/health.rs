//! How the recorder is.

use crate::sys::clock;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The state of the recorder, for threads that must not forward what cannot be recorded.
#[derive(Debug, Default)]
pub struct Health {
    begun: AtomicBool,
    awaited: AtomicBool,
    failing: AtomicBool,
    beat: AtomicU64,
    come: AtomicU64,
}

/// A recorder that has not looked for this long is taken for stuck.
const STUCK: Duration = Duration::from_secs(10);

impl Health {
    /// The recorder looked, and this is how it is.
    pub fn beat(&self, able: bool) {
        self.failing.store(!able, Ordering::Release);
        if able {
            self.begun.store(true, Ordering::Release);
        }
        self.beat.store(clock::mono_ns(), Ordering::Release);
    }

    /// The recorder has begun all sessions that begin before this offset of a log, or cannot, which the last
    /// [beat](Self::beat) said.
    pub fn come_to(&self, offset: u64) {
        self.come.store(offset, Ordering::Release);
    }

    /// Whether somebody waits for the recorder to begin.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// Whether evidence cannot be written at the moment.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    /// Whether it is clear at once that evidence can be written of a session that begins at this offset of a log.
    #[must_use]
    pub fn is_well_since(&self, since: u64) -> bool {
        self.has_begun(since) && !self.is_failing() && self.silence() <= STUCK
    }

    fn has_begun(&self, since: u64) -> bool {
        self.come.load(Ordering::Acquire) >= since && self.begun.load(Ordering::Acquire)
    }

    /// How long ago the recorder looked.
    #[must_use]
    pub fn silence(&self) -> Duration {
        Duration::from_nanos(clock::mono_ns().saturating_sub(self.beat.load(Ordering::Acquire)))
    }

    /// Why evidence cannot be written at the moment; `None` if it can. A recorder that has not begun yet is waited for.
    #[must_use]
    pub fn complaint(&self) -> Option<&'static str> {
        self.complaint_since(0)
    }

    /// The same of a session that begins at this offset of a log.
    #[must_use]
    pub fn complaint_since(&self, since: u64) -> Option<&'static str> {
        let mut start = None;
        loop {
            let old = clock::mono_ns().saturating_sub(self.beat.load(Ordering::Acquire)) > STUCK.as_nanos() as u64;
            let begun = self.has_begun(since);
            if !begun {
                self.awaited.store(true, Ordering::Release);
            }
            let complaint = match (begun, self.failing.load(Ordering::Acquire)) {
                (_, true) => Some("evidence cannot be written"),
                (true, false) if !old => return None,
                (true, false) => Some("the recorder does not respond"),
                (false, false) => Some("the recorder has not begun"),
            };
            // A process that was stopped and continued gets a moment to catch up.
            let start = *start.get_or_insert_with(Instant::now);
            let patience = if begun { Duration::from_millis(250) } else { STUCK };
            if start.elapsed() > patience || complaint == Some("evidence cannot be written") {
                return complaint;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_that_cannot_write_is_complained_about() {
        let health = Health::default();
        health.beat(true);
        assert_eq!(health.complaint(), None);
        health.beat(false);
        assert_eq!(health.complaint(), Some("evidence cannot be written"));
        health.beat(true);
        assert_eq!(health.complaint(), None);
    }

    #[test]
    fn nothing_is_well_of_a_session_that_the_recorder_has_not_come_to() {
        let health = Health::default();
        health.beat(true);
        health.come_to(7);
        assert!(health.is_well_since(7) && !health.is_well_since(8));
        // It comes to it, and its disk is full.
        health.beat(false);
        health.come_to(8);
        assert_eq!((health.is_well_since(8), health.complaint_since(8)), (false, Some("evidence cannot be written")));
        health.beat(true);
        assert_eq!((health.is_well_since(8), health.complaint_since(8)), (true, None));
    }
}
