//! How many processes of a command there may be, and when the next one may start.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// A process that lives so long has started well.
const STEADY: Duration = Duration::from_secs(60);
/// The longest time until the next start.
const LONGEST: Duration = Duration::from_secs(60);
/// How long a place is waited for: a process that ends holds its place until it is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why no process starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// There are as many as may be.
    Full,
    /// The last ones ended by themselves: after so long it is tried again.
    Wait(Duration),
    /// It cannot be started.
    Broken,
}

/// Counts processes and their failures.
#[derive(Debug)]
pub(super) struct Starts {
    places: Arc<Semaphore>,
    again: Mutex<Again>,
}

#[derive(Debug, Default)]
struct Again {
    failures: u32,
    not_before: Option<Instant>,
}

impl Again {
    /// A process has ended.
    fn ended(&mut self, lived: Duration, by_itself: bool, now: Instant) {
        if lived >= STEADY {
            self.failures = 0;
        }
        if by_itself {
            let pause = Duration::from_secs(1 << self.failures.min(6)).min(LONGEST);
            self.failures += 1;
            self.not_before = Some(now + pause);
        }
    }

    fn wait(&self, now: Instant) -> Option<Duration> {
        let left = self.not_before?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

impl Starts {
    pub(super) fn new(max: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(max)), again: Mutex::default() }
    }

    /// A place for a process, or why there is none. `make_room` ends one that nobody needs.
    pub(super) async fn place(&self, make_room: impl FnOnce()) -> Result<OwnedSemaphorePermit, Refused> {
        let wait = self.again.lock().unwrap_or_else(PoisonError::into_inner).wait(Instant::now());
        if let Some(left) = wait {
            return Err(Refused::Wait(left));
        }
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        make_room();
        match timeout(PATIENCE, self.places.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Refused::Full),
        }
    }

    /// A process has ended that had lived so long, or none could be started.
    pub(super) fn ended(&self, lived: Duration, by_itself: bool) {
        self.again.lock().unwrap_or_else(PoisonError::into_inner).ended(lived, by_itself, Instant::now());
    }

    /// Places that are free.
    pub(super) fn free(&self) -> usize {
        self.places.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_started_ever_later() {
        let (mut again, now, second) = (Again::default(), Instant::now(), Duration::from_secs(1));
        again.ended(second, false, now);
        assert_eq!(again.wait(now), None, "we ended it");
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            again.ended(second, true, now);
            assert_eq!(again.wait(now), Some(Duration::from_secs(pause)));
        }
        assert_eq!(again.wait(now + LONGEST), None);
        again.ended(STEADY, true, now);
        assert_eq!(again.wait(now), Some(second));
    }
}
