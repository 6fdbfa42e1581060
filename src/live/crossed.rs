//! What messages hold, on its way from the recorder to the live thread: in memory, bounded, the oldest lost first. Nothing is
//! taken while nobody asked for it.

use crate::record::broadcast::Crossed;
use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError, TryLockError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Bytes that wait for the live thread.
const MAX_WAITING: usize = 1 << 20;
/// Bytes that each of them takes besides its own.
const EACH: usize = 96;

#[derive(Debug, Default)]
struct Held {
    waiting: VecDeque<Crossed>,
    bytes: usize,
}

/// The contents of one process.
#[derive(Debug)]
pub(super) struct Contents {
    /// Whether the user wants them sent at all.
    pub offered: bool,
    wanted_by: AtomicUsize,
    held: Mutex<Held>,
}

impl Contents {
    pub fn new(offered: bool) -> Self {
        Self { offered, wanted_by: AtomicUsize::new(0), held: Mutex::default() }
    }

    /// So many subscribers asked for them.
    pub fn wanted_by(&self, subscribers: usize) {
        self.wanted_by.store(subscribers, Ordering::Relaxed);
    }

    pub fn is_wanted(&self) -> bool {
        self.offered && self.wanted_by.load(Ordering::Relaxed) > 0
    }

    /// Takes one, without waiting: while the live thread takes others it is dropped.
    pub fn put(&self, crossed: Crossed) -> bool {
        let mut held = match self.held.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        held.bytes += crossed.beginning.len() + EACH;
        held.waiting.push_back(crossed);
        while held.bytes > MAX_WAITING {
            let Some(old) = held.waiting.pop_front() else { break };
            held.bytes -= old.beginning.len() + EACH;
        }
        true
    }

    /// What has come since.
    pub fn take(&self) -> VecDeque<Crossed> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.bytes = 0;
        std::mem::take(&mut held.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Direction, SessionId, WallTime},
        record::broadcast::MAX_CONTENT,
    };

    #[test]
    fn what_waits_is_bounded_and_the_oldest_goes() {
        let contents = Contents::new(true);
        assert!(!contents.is_wanted());
        contents.wanted_by(1);
        assert!(contents.is_wanted() && !Contents::new(false).is_wanted());
        for offset in 0..10_000 {
            let crossed = Crossed {
                session: SessionId::from_bits(1),
                at: WallTime::from_millis(0),
                direction: Direction::ClientToServer,
                exchange: None,
                offset,
                beginning: vec![b'x'; MAX_CONTENT],
                cut: true,
                wire_bytes: 1 << 30,
            };
            assert!(contents.put(crossed));
        }
        let taken = contents.take();
        let bytes: usize = taken.iter().map(|c| c.beginning.len() + EACH).sum();
        assert!(bytes <= MAX_WAITING && taken.len() > 200, "{bytes}");
        assert_eq!(taken.back().unwrap().offset, 9_999);
        assert!(contents.take().is_empty());
        let held = contents.held.lock().unwrap();
        assert!(!contents.put(taken[0].clone()), "the recorder does not wait");
        drop(held);
    }
}
