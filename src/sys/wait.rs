//! Wait on a 32-bit word and wake who waits: `futex` on Linux, short sleeps elsewhere.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Blocks while `*word == expected`, until [`wake`] is called on it or `timeout` has passed. May return early.
#[cfg(target_os = "linux")]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Duration) {
    use rustix::thread::futex;
    let limit = rustix::time::Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // EAGAIN (the word changed), EINTR and ETIMEDOUT all mean the same to the caller: look again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, expected, Some(&limit));
}

/// Blocks while `*word == expected`, until the word changes or `timeout` has passed. May return early.
#[cfg(not(target_os = "linux"))]
pub fn wait(word: &AtomicU32, expected: u32, timeout: Duration) {
    use std::sync::atomic::Ordering;
    let end = std::time::Instant::now() + timeout;
    while word.load(Ordering::Acquire) == expected {
        let left = end.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(1)));
    }
}

/// Wakes all who [`wait`] on `word`. The caller has changed the word before.
#[cfg(target_os = "linux")]
pub fn wake(word: &AtomicU32) {
    use rustix::thread::futex;
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// Wakes all who [`wait`] on `word`. The caller has changed the word before.
#[cfg(not(target_os = "linux"))]
pub fn wake(_word: &AtomicU32) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    #[test]
    fn a_changed_word_does_not_block() {
        let start = Instant::now();
        wait(&AtomicU32::new(1), 0, Duration::from_secs(60));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn wake_ends_a_wait() {
        let word = Arc::new(AtomicU32::new(0));
        let waiter = {
            let word = Arc::clone(&word);
            std::thread::spawn(move || {
                while word.load(Ordering::Acquire) == 0 {
                    wait(&word, 0, Duration::from_secs(60));
                }
            })
        };
        word.store(1, Ordering::Release);
        wake(&word);
        waiter.join().unwrap();
    }

    #[test]
    fn a_wait_times_out() {
        wait(&AtomicU32::new(0), 0, Duration::from_millis(1));
    }
}
