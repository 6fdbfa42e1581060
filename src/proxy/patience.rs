//! Waiting for a thread that uses a disk: as long as something moves, and not for ever.

use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// What the thread returned; `None` if it panicked, or if for as long as `patience` nothing of this process has moved: no
/// byte was read or written, no CPU time was used, and `lives` said no. The thread is left behind then.
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
        if now.is_none() || now != moved.0 || lives() {
            moved = (now, Instant::now());
        } else if moved.1.elapsed() > patience {
            tracing::error!("a thread waits for a disk that does not respond, and is left behind");
            return None;
        }
    }
    thread.join().ok()
}

/// Changes whenever this process has read or written something, or computed for a while; `None` where nobody tells.
fn progress() -> Option<String> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    // What we read here ourselves counts, too.
    let written: Vec<&str> = io.lines().filter(|l| l.starts_with("wchar") || l.starts_with("write_bytes")).collect();
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Fields 14 and 15 behind the name, which may hold anything: user and system time in ticks of 10 ms. A fifth of them
    // is for these looks.
    let ticks = stat.rsplit(')').next()?.split(' ').skip(12).take(2).filter_map(|t| t.parse::<u64>().ok()).sum::<u64>();
    Some(format!("{written:?} {}", ticks / 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_ever_is_left_and_one_that_ends_is_not() {
        assert_eq!(join(thread::spawn(|| 7), Duration::from_mins(1), &|| false), Some(7));
        assert_eq!(join(thread::spawn(|| panic!("on purpose")), Duration::from_mins(1), &|| false), None::<u8>);
    }
}
