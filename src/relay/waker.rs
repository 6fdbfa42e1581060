//! How the one recorder thread of a session sleeps without being woken per message.
//!
//! While there is traffic the recorder naps for a fixed short time between two looks, and is not woken; a message
//! costs the relay one load. After a quiet spell it sleeps deeply, and the first message wakes it. A relay whose ring
//! runs full wakes it from a nap too.

use crate::sys::wait;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

const AWAKE: u32 = 0;
const NAPPING: u32 = 1;
const ASLEEP: u32 = 2;

/// Shared by the recorder and all captures of a session.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Waker {
    state: AtomicU32,
}

impl Waker {
    /// A waker whose recorder is awake.
    pub fn new() -> Self {
        Self::default()
    }

    /// Relay side, after every message: wakes the recorder only from deep sleep.
    #[inline]
    pub fn nudge(&self) {
        // Pairs with the fence in `sleep`: either the recorder sees our new head, or we see that it sleeps.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    /// Relay side, when the recorder is needed now (ring half full, end of stream, shutdown): ends a nap as well.
    #[inline]
    pub fn urge(&self) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) != AWAKE {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.state.store(AWAKE, Ordering::SeqCst);
        wait::wake(&self.state);
    }

    /// Recorder side: a nap of at most `timeout` that messages do not interrupt; [`Waker::urge`] does.
    pub fn nap(&self, timeout: Duration) {
        self.pause(NAPPING, timeout, || false);
    }

    /// Recorder side: deep sleep until the next message, [`Waker::urge`], or `timeout`. Returns at once if `has_work`
    /// says so after the relays were told that the recorder sleeps.
    pub fn sleep(&self, timeout: Duration, has_work: impl FnOnce() -> bool) {
        self.pause(ASLEEP, timeout, has_work);
    }

    fn pause(&self, state: u32, timeout: Duration, has_work: impl FnOnce() -> bool) {
        self.state.store(state, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !has_work() {
            wait::wait(&self.state, state, timeout);
        }
        self.state.store(AWAKE, Ordering::SeqCst);
    }
}

/// Decides between nap and deep sleep; owned by the recorder thread.
#[derive(Debug)]
pub struct Pacer {
    nap: Duration,
    idle_limit: Duration,
    idle_since: Option<Instant>,
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new(Self::NAP, Self::IDLE_LIMIT)
    }
}

impl Pacer {
    /// Nap between two looks while there is traffic: 2 ms.
    pub const NAP: Duration = Duration::from_millis(2);
    /// Quiet time after which the recorder sleeps deeply: 50 ms.
    pub const IDLE_LIMIT: Duration = Duration::from_millis(50);

    /// A pacer with its own times.
    pub fn new(nap: Duration, idle_limit: Duration) -> Self {
        Self { nap, idle_limit, idle_since: None }
    }

    /// Pauses after one look at all captures: `worked` says whether there was anything, `has_work` looks again.
    /// `deepest` bounds a deep sleep (for timers of the recorder).
    pub fn pause(&mut self, waker: &Waker, worked: bool, deepest: Duration, has_work: impl FnOnce() -> bool) {
        if worked {
            self.idle_since = None;
            return waker.nap(self.nap.min(deepest));
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.idle_limit {
            waker.nap(self.nap.min(deepest));
        } else {
            waker.sleep(deepest, has_work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn no_message_is_slept_through() {
        let waker = Arc::new(Waker::new());
        let sent = Arc::new(AtomicU64::new(0));
        let relay = {
            let (waker, sent) = (Arc::clone(&waker), Arc::clone(&sent));
            std::thread::spawn(move || {
                for n in 1..=20_000 {
                    sent.store(n, Ordering::Release);
                    waker.nudge();
                }
            })
        };
        let start = Instant::now();
        let mut seen = 0;
        while seen < 20_000 {
            // A lost wake-up would cost the whole hour.
            waker.sleep(Duration::from_secs(3600), || sent.load(Ordering::Acquire) != seen);
            seen = sent.load(Ordering::Acquire);
        }
        relay.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(1800));
    }

    #[test]
    fn urge_ends_a_nap_and_nudge_does_not() {
        let waker = Arc::new(Waker::new());
        let napper = {
            let waker = Arc::clone(&waker);
            std::thread::spawn(move || waker.nap(Duration::from_secs(3600)))
        };
        while waker.state.load(Ordering::SeqCst) != NAPPING {
            std::thread::yield_now();
        }
        waker.nudge();
        assert_eq!(waker.state.load(Ordering::SeqCst), NAPPING);
        waker.urge();
        napper.join().unwrap();
    }

    #[test]
    fn a_pacer_sleeps_deeply_only_after_the_idle_limit() {
        let waker = Waker::new();
        let mut pacer = Pacer::new(Duration::ZERO, Duration::from_secs(3600));
        pacer.pause(&waker, false, Duration::ZERO, || panic!("napping asks nothing"));
        let mut pacer = Pacer::new(Duration::ZERO, Duration::ZERO);
        let mut asked = false;
        pacer.pause(&waker, false, Duration::from_secs(3600), || {
            asked = true;
            true
        });
        assert!(asked);
    }
}
