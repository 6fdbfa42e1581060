//! The relay's end of a capture.

use super::layout::{BLIND, GAPS, b, blind_at, get, put};
use super::{Capture, Link};
use crate::relay::waker::Waker;
use crate::sys::{RingWriter, clock};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// Bytes relayed at a time while the ring is bypassed.
const BYPASS_BYTES: usize = 64 * 1024;
/// Free space that is worth a wake-up, or the end of a bypass; less for small rings.
const WORTHWHILE: usize = 64 * 1024;

/// The relay's end of a capture: fill, publish, pass on out of the same memory.
///
/// One round: [`reserve`](Self::reserve) → read into it → [`commit`](Self::commit) → write
/// [`pending`](Self::pending) out → [`wrote`](Self::wrote). Dropping it closes the capture.
#[derive(Debug)]
pub struct Producer {
    writer: RingWriter,
    marks: u64,
    read_marks: u64,
    write_marks: u64,
    link: Arc<Link>,
    waker: Arc<Waker>,
    stall_bound: Duration,
    bypass: Option<Bypass>,
    /// Everything since the last refusal without a decision was refused.
    in_blind_run: Cell<bool>,
    /// How far the recorder had released when there was no room for a decision.
    stuck_at: Cell<Option<u64>>,
    /// Where the last gap was made, and in which slot.
    last_gap: Option<(u64, usize)>,
    spare: Vec<u8>,
}

/// State while the recorder is stuck: `from..to` of the spare buffer is read and not yet passed on.
#[derive(Debug, Default)]
struct Bypass {
    from: usize,
    to: usize,
}

impl Producer {
    pub(super) fn new(writer: RingWriter, marks: u64, link: Arc<Link>, waker: Arc<Waker>) -> Self {
        Self {
            writer,
            marks,
            read_marks: 0,
            write_marks: 0,
            link,
            waker,
            stall_bound: Capture::DEFAULT_STALL_BOUND,
            bypass: None,
            in_blind_run: Cell::new(false),
            stuck_at: Cell::new(None),
            last_gap: None,
            spare: Vec::new(),
        }
    }

    /// After how long without any release the recorder is taken for stuck and bypassed.
    pub fn set_stall_bound(&mut self, bound: Duration) {
        self.stall_bound = bound;
    }

    /// Capacity of the ring in bytes.
    pub fn capacity(&self) -> usize {
        self.writer.memory().capacity()
    }

    /// Stream offset of the first pending byte; `None` while bytes pass uncaptured.
    pub fn pending_at(&self) -> Option<u64> {
        self.bypass.is_none().then(|| self.writer.written())
    }

    /// From now on nothing is passed on before it was [decided](Self::decided).
    pub fn guard(&mut self) {
        put(self.writer.memory().region_b(), b::GUARDED, 1);
    }

    /// The first `n` pending bytes have been decided, and the recorder can find what was decided.
    pub fn decided(&mut self, n: usize) {
        if self.bypass.is_none() {
            let upto = self.writer.written().saturating_add(n as u64).min(self.writer.head());
            put(self.writer.memory().region_b(), b::DECIDED, upto);
        }
    }

    /// The message that begins at this stream offset is refused, and there is no room to say so elsewhere. `false`:
    /// there is none here either.
    #[must_use]
    pub fn refused_blind(&self, offset: u64) -> bool {
        if self.bypass.is_some() {
            return true;
        }
        let words = self.writer.memory().region_b();
        let used = usize::try_from(get(words, b::BLIND_COUNT)).unwrap_or(BLIND);
        // Nothing was passed on since the last one, and nothing before this one waits to be.
        if self.in_blind_run.get() && offset == self.writer.written() && used > 0 {
            put(words, b::BLIND_UPTO + used - 1, offset);
            return true;
        }
        // What is read from now on has no place that could be noted, until the recorder has caught up.
        self.stuck_at.set(Some(self.writer.tail()));
        if used >= BLIND {
            return false;
        }
        put(words, blind_at(used), offset);
        put(words, b::BLIND_UPTO + used, offset);
        put(words, b::BLIND_COUNT, used as u64 + 1);
        self.in_blind_run.set(true);
        true
    }

    /// Whether bytes are passing uncaptured at the moment.
    pub fn is_bypassing(&self) -> bool {
        self.bypass.is_some()
    }

    /// Space to read into: all that is free in the ring. If nothing is free, waits for the recorder; if the recorder
    /// releases nothing within the stall bound, a private buffer: what is read into that is counted as a gap.
    ///
    /// Empty only while bytes are held back ([`pending`](Self::pending) is not empty) and no more fit, or the refusal
    /// of what is captured could not be noted.
    pub fn reserve(&mut self) -> &mut [u8] {
        if self.stuck_at.get().is_some_and(|at| at != self.writer.tail()) {
            self.stuck_at.set(None);
        }
        if self.stuck_at.get().is_some() && self.bypass.is_none() {
            if !self.pending().is_empty() {
                return &mut [];
            }
            self.begin_bypass();
        }
        if self.bypass.is_some() || self.writer.open() == 0 {
            self.writer.publish(0);
            self.settle();
            if self.bypass.is_none() {
                self.writer.open();
            }
        }
        match &self.bypass {
            Some(_) => &mut self.spare,
            None => self.writer.window(),
        }
    }

    /// Ring or bypass? Called when the ring is full or was bypassed.
    #[cold]
    fn settle(&mut self) {
        let worthwhile = WORTHWHILE.min(self.capacity() / 4);
        if self.bypass.is_some() {
            if self.writer.room() >= worthwhile && self.stuck_at.get().is_none() {
                self.bypass = None;
            }
            return;
        }
        if self.pending().len() == self.capacity() {
            return;
        }
        if !self.wait_for_room(worthwhile) && self.pending().is_empty() {
            self.begin_bypass();
        }
    }

    fn begin_bypass(&mut self) {
        self.spare.resize(BYPASS_BYTES, 0);
        self.bypass = Some(Bypass::default());
    }

    /// Waits until `worthwhile` bytes are free, or some are and the recorder pauses. `false`: nothing was released for
    /// as long as the stall bound.
    fn wait_for_room(&mut self, worthwhile: usize) -> bool {
        let mut tail = self.writer.tail();
        let mut moved = Instant::now();
        loop {
            let room = self.writer.room();
            if room >= worthwhile {
                return true;
            }
            let left = self.stall_bound.saturating_sub(moved.elapsed());
            if left.is_zero() {
                return room > 0;
            }
            // A little room is taken when no more comes soon, so that a recorder that needs the rest of a message
            // to continue can get it.
            let patience = if room > 0 { Duration::from_millis(1) } else { left };
            self.waker.urge();
            self.link.room.wait(patience, || self.writer.tail() != tail);
            let now = self.writer.tail();
            if now != tail {
                tail = now;
                moved = Instant::now();
            } else if room > 0 {
                return true;
            }
        }
    }

    /// Publishes the first `n` bytes of the reserved space as captured at `ns` (monotonic), before any of them is
    /// passed on.
    pub fn commit(&mut self, n: usize, ns: u64) {
        if n == 0 {
            self.writer.publish(0);
            return;
        }
        if let Some(bypass) = &mut self.bypass {
            bypass.to = n.min(self.spare.len());
            bypass.from = 0;
            let lost = bypass.to as u64;
            self.count_gap(lost, ns);
            return;
        }
        let n = n.min(self.writer.window().len());
        let end = self.writer.head() + n as u64;
        let words = self.writer.memory().region_b();
        mark(words, b::MARK_TABLE, self.marks, self.read_marks, end, ns);
        self.read_marks += 1;
        put(words, b::READ_MARKS, self.read_marks);
        self.writer.publish(n);
    }

    fn count_gap(&mut self, lost: u64, ns: u64) {
        let offset = self.writer.head();
        let words = self.writer.memory().region_b();
        let used = usize::try_from(get(words, b::GAP_COUNT)).unwrap_or(GAPS).min(GAPS);
        let slot = match self.last_gap {
            Some((at, slot)) if at == offset || used == GAPS => slot,
            _ => used,
        };
        let at = b::GAP_TABLE + slot * 4;
        if slot == used {
            put(words, at, offset);
            put(words, at + 1, 0);
            put(words, at + 2, ns);
        }
        put(words, at + 3, ns);
        put(words, at + 1, get(words, at + 1) + lost);
        put(words, b::GAP_BYTES, get(words, b::GAP_BYTES) + lost);
        if slot == used {
            put(words, b::GAP_COUNT, used as u64 + 1);
        }
        self.last_gap = Some((offset, slot));
        self.waker.urge();
    }

    /// Publishes bytes that are not a peer's and that are not passed on; they have no time marks, and wake the recorder
    /// only when it has much to catch up with. `write` puts them at the beginning of the space it is given and says how
    /// many they are. `false`: it did not find room, and nothing was published.
    #[must_use]
    pub fn put(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        self.writer.open();
        let written = write(self.writer.window());
        self.writer.publish(written.unwrap_or_default());
        let Some(n) = written else { return false };
        self.writer.passed(n);
        if self.writer.room() < self.writer.memory().bound() / 2 {
            self.waker.urge();
        }
        true
    }

    /// Bytes that [`put`](Self::put) can be given now, in one piece or several.
    #[must_use]
    pub fn room(&self) -> usize {
        self.writer.room()
    }

    /// Stream offset after what was put in.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.writer.head()
    }

    /// Stream offset that the recorder has released.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.writer.tail()
    }

    /// Of a log: notes what passed unrecorded and no record tells of yet.
    pub fn set_untold(&self, bytes: u64, entries: u64) {
        let words = self.writer.memory().region_b();
        put(words, b::GAP_BYTES, bytes);
        put(words, b::BLIND_COUNT, entries);
    }

    /// Whether the recorder has released everything: there will never be more room than there is.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.writer.is_empty()
    }

    /// What is read and not yet passed on, contiguous.
    pub fn pending(&self) -> &[u8] {
        match &self.bypass {
            Some(bypass) => self.spare.get(bypass.from..bypass.to).unwrap_or_default(),
            None => self.writer.pending(),
        }
    }

    /// Counts the first `n` pending bytes as passed on at `ns` (monotonic).
    pub fn wrote(&mut self, n: usize, ns: u64) {
        if n == 0 {
            return;
        }
        if let Some(bypass) = &mut self.bypass {
            bypass.from = (bypass.from + n).min(bypass.to);
            return;
        }
        self.in_blind_run.set(false);
        let end = (self.writer.written() + n as u64).min(self.writer.head());
        let words = self.writer.memory().region_b();
        let table = b::MARK_TABLE + 2 * self.marks as usize;
        mark(words, table, self.marks, self.write_marks, end, ns);
        self.write_marks += 1;
        put(words, b::WRITE_MARKS, self.write_marks);
        self.pass(n);
    }

    /// Takes the first `n` pending bytes out of the way without passing them on (a refused message): they stay
    /// captured and get no write mark.
    pub fn discard(&mut self, n: usize) {
        match &mut self.bypass {
            Some(bypass) => bypass.from = (bypass.from + n).min(bypass.to),
            None => self.pass(n),
        }
    }

    fn pass(&mut self, n: usize) {
        self.writer.passed(n);
        if self.writer.room() < self.writer.memory().bound() / 2 {
            self.waker.urge();
        } else {
            self.waker.nudge();
        }
    }

    /// Wakes the recorder if it sleeps deeply.
    pub fn nudge(&self) {
        self.waker.nudge();
    }

    /// Wakes the recorder from a nap, too.
    pub fn urge(&self) {
        self.waker.urge();
    }

    /// Says that no byte will come any more.
    pub fn close(&mut self) {
        put(self.writer.memory().region_b(), b::CLOSED, 1);
        self.waker.urge();
    }

    /// The clock of marks: `CLOCK_MONOTONIC` in ns.
    #[inline]
    pub fn now() -> u64 {
        clock::mono_ns()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.close();
    }
}

/// Writes mark `index` into its slot; the caller then publishes the count. The oldest mark gives way.
#[inline]
fn mark(words: &[AtomicU64], table: usize, marks: u64, index: u64, end: u64, ns: u64) {
    let at = table + 2 * (index & (marks - 1)) as usize;
    if let Some([e, t]) = words.get(at..at + 2) {
        // A reader that sees any of the new slot must also see that the slot is being reused.
        fence(Ordering::Release);
        e.store(end.to_le(), Ordering::Relaxed);
        t.store(ns.to_le(), Ordering::Relaxed);
    }
}
