//! Waiting for a thread that uses a disk: as long as something moves, and not for ever.

use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// A process that uses a fiftieth of a core works, however little the machine leaves it. These looks use far less.
const WORKS: u32 = 50;

/// What the thread returned; `None` if it panicked, or if for as long as `patience` nothing of this process has moved:
/// no byte was written, hardly any CPU time was used, and `lives` said no. The thread is left behind then.
pub(super) fn join<T>(thread: JoinHandle<T>, patience: Duration, lives: &dyn Fn() -> bool) -> Option<T> {
    let mut moved = (progress(), Instant::now());
    let mut looks = 0_u32;
    while !thread.is_finished() {
        thread::sleep(LOOK);
        looks += 1;
        if !looks.is_multiple_of(20) {
            continue;
        }
        let now = progress();
        let elapsed = moved.1.elapsed();
        let works = match (&moved.0, &now) {
            (Some(before), Some(now)) => now.moved_since(before, elapsed, patience),
            _ => true,
        };
        if works || lives() {
            moved = (now, Instant::now());
        } else if elapsed > patience {
            tracing::error!("a thread waits for a disk that does not respond, and is abandoned");
            return None;
        }
    }
    thread.join().ok()
}

/// How far this process has come.
struct Progress {
    /// What the system counts as written.
    written: Vec<String>,
    used: Duration,
}

impl Progress {
    fn moved_since(&self, before: &Self, elapsed: Duration, patience: Duration) -> bool {
        let works = self.used.saturating_sub(before.used) * WORKS > elapsed;
        self.written != before.written || elapsed > patience && works
    }
}

/// `None` if the system does not say.
fn progress() -> Option<Progress> {
    let io = crate::sys::process::io_so_far()?;
    // What we read here ourselves counts, too.
    let is_written = |line: &&str| line.starts_with("wchar") || line.starts_with("write_bytes");
    let written = io.lines().filter(is_written).map(ToOwned::to_owned).collect();
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let used = Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).ok()?);
    Some(Progress { written, used })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_ever_is_left_and_one_that_ends_is_not() {
        assert_eq!(join(thread::spawn(|| 7), Duration::from_mins(1), &|| false), Some(7));
        assert_eq!(join(thread::spawn(|| panic!("on purpose")), Duration::from_mins(1), &|| false), None::<u8>);
    }

    #[test]
    fn writing_moves_and_so_does_a_little_cpu_time_in_all_of_the_time_that_there_is() {
        let at = |written: &str, used| Progress { written: vec![written.into()], used: Duration::from_millis(used) };
        let patience = Duration::from_secs(1);
        for (now, elapsed, moves) in [
            (at("1", 0), 1_100, true),
            (at("0", 30), 1_100, true),
            (at("0", 10), 1_100, false),
            (at("0", 900), 900, false),
        ] {
            assert_eq!(now.moved_since(&at("0", 0), Duration::from_millis(elapsed), patience), moves);
        }
    }
}
