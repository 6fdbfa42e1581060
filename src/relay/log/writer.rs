//! The end of the I/O threads.

use super::codec::{self, HEADER, PIECE};
use super::owed::Owed;
use super::{Entry, ExchangeLog, Flow};
use crate::relay::{Capture, Producer};
use crate::sys::clock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Bytes that pieces of bodies leave for other entries.
const RESERVE: usize = 256 << 10;
/// How often a recorder for which somebody waits is looked after.
const TICK: Duration = Duration::from_millis(100);

/// The end of the I/O threads; share it by an [`Arc`]. Dropping it closes the log.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<Shared>,
    exchanges: AtomicU64,
}

/// What both ends of a log have.
#[derive(Debug)]
pub(super) struct Shared {
    inner: Mutex<Inner>,
    waiting: Mutex<BTreeMap<Flow, Waker>>,
    /// Whether anybody is in `waiting`.
    is_waited_for: AtomicBool,
    /// Whether a thread looks after the recorder.
    is_watched: AtomicBool,
    /// Whether entries are owed.
    is_owing: AtomicBool,
    is_bypassing: AtomicBool,
}

/// Says that the recorder is at work although it releases nothing: one message may take longer than a recorder that is stuck is
/// waited for.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// It has come further.
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How far the recorder had released and since when, and how often its pulse had beaten and since when.
#[derive(Debug, Clone, Copy)]
struct Full {
    tail: u64,
    since: Instant,
    beats: u64,
    beaten: Instant,
}

#[derive(Debug)]
struct Inner {
    producer: Producer,
    pulse: Pulse,
    owed: Owed,
    /// Of pieces that are in the log in part: offset after what is.
    begun: BTreeMap<Flow, u64>,
    /// How the recorder was when there was no room.
    full: Option<Full>,
    bypass: bool,
    stall_bound: Duration,
    reserve: usize,
    piece: usize,
}

/// How many times as long a recorder is waited for that is at work with one message.
const AT_WORK: u32 = 6;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogWriter {
    pub(super) fn new(producer: Producer) -> Self {
        let capacity = producer.capacity();
        let inner = Inner {
            producer,
            pulse: Pulse::default(),
            owed: Owed::default(),
            begun: BTreeMap::new(),
            full: None,
            bypass: false,
            stall_bound: Capture::DEFAULT_STALL_BOUND,
            reserve: RESERVE.min(capacity / 4),
            piece: PIECE.min(capacity / 8 - HEADER),
        };
        let shared = Shared {
            inner: Mutex::new(inner),
            waiting: Mutex::default(),
            is_waited_for: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            is_owing: AtomicBool::new(false),
            is_bypassing: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), exchanges: AtomicU64::new(0) }
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Offset after the last entry.
    #[must_use]
    pub fn head(&self) -> u64 {
        lock(&self.shared.inner).producer.head()
    }

    /// After how long without any release the recorder is taken for stuck and bypassed; at first
    /// [`Capture::DEFAULT_STALL_BOUND`].
    pub fn set_stall_bound(&self, bound: Duration) {
        lock(&self.shared.inner).stall_bound = bound;
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let mut inner = lock(&self.shared.inner);
        inner.settle();
        inner.tell_all();
        inner.producer.close();
    }
}

impl ExchangeLog for LogWriter {
    fn begin(&self) -> u64 {
        self.exchanges.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn poll_data(&self, cx: &mut Context<'_>, flow: Flow, offset: u64, bytes: &[u8]) -> Poll<()> {
        let mut inner = lock(&self.shared.inner);
        let mut is_in = inner.data(flow, offset, bytes);
        if !is_in {
            self.shared.wait(flow, cx.waker());
            // What was released in between is seen now; what is released later finds the waker.
            is_in = inner.data(flow, offset, bytes);
        }
        self.shared.publish(&inner);
        if is_in {
            inner.producer.nudge();
            return Poll::Ready(());
        }
        inner.producer.urge();
        let tick = TICK.min(inner.stall_bound);
        drop(inner);
        self.shared.watch(tick);
        Poll::Pending
    }

    fn put(&self, flow: Flow, entry: &Entry<'_>) {
        let _ = self.put_now(flow, entry);
    }

    fn put_now(&self, flow: Flow, entry: &Entry<'_>) -> bool {
        let mut inner = lock(&self.shared.inner);
        let is_in = inner.entry(flow, entry);
        self.shared.publish(&inner);
        inner.producer.nudge();
        is_in
    }

    fn is_bypassing(&self) -> bool {
        self.shared.is_bypassing.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// What the recorder says that it is at work with.
    pub(super) fn pulse(&self) -> Pulse {
        lock(&self.inner).pulse.clone()
    }

    fn publish(&self, inner: &Inner) {
        self.is_owing.store(!inner.owed.is_empty(), Ordering::Relaxed);
        self.is_bypassing.store(inner.bypass, Ordering::Relaxed);
    }

    fn wait(&self, flow: Flow, waker: &Waker) {
        lock(&self.waiting).insert(flow, waker.clone());
        self.is_waited_for.store(true, Ordering::SeqCst);
        // Pairs with the fence in `released`: either we see the new tail, or the reader sees that we wait.
        fence(Ordering::SeqCst);
    }

    fn wake(&self) {
        self.is_waited_for.store(false, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        waiting.into_values().for_each(Waker::wake);
    }

    /// The reader has released something.
    pub(super) fn released(&self) {
        fence(Ordering::SeqCst);
        if self.is_owing.load(Ordering::Relaxed) || self.is_bypassing.load(Ordering::Relaxed) {
            let mut inner = lock(&self.inner);
            inner.settle();
            self.publish(&inner);
        }
        if self.is_waited_for.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Sees to it that nobody waits longer than the bound for a recorder that is stuck.
    fn watch(self: &Arc<Self>, tick: Duration) {
        if self.is_watched.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = Arc::downgrade(self);
        let watch = move || {
            loop {
                std::thread::sleep(tick);
                if shared.upgrade().is_none_or(|shared| !shared.look_after()) {
                    return;
                }
            }
        };
        if let Err(e) = std::thread::Builder::new().name("assay-log".to_owned()).spawn(watch) {
            tracing::error!(error = %e, "nothing can look after the recorder: bodies pass unrecorded");
            self.is_watched.store(false, Ordering::SeqCst);
            self.bypass();
        }
    }

    fn bypass(&self) {
        let mut inner = lock(&self.inner);
        inner.bypass = true;
        self.publish(&inner);
        drop(inner);
        self.wake();
    }

    /// Ends the waiting if the recorder is stuck; `false`: nobody waits.
    fn look_after(&self) -> bool {
        let is_stuck = lock(&self.inner).is_stuck();
        if is_stuck {
            self.bypass();
        }
        let waiting = lock(&self.waiting);
        self.is_watched.store(!waiting.is_empty(), Ordering::SeqCst);
        !waiting.is_empty()
    }
}

impl Inner {
    fn append(&mut self, flow: Flow, entry: &Entry<'_>) -> bool {
        append(&mut self.producer, flow, entry)
    }

    /// Whether so many bytes of payload leave the room that is for other entries.
    fn has_room(&self, payload: usize) -> bool {
        self.producer.room() >= codec::size(payload) + self.reserve
    }

    /// Puts a piece into the log, or counts it; `false`: what is left of it has to wait.
    fn data(&mut self, flow: Flow, offset: u64, bytes: &[u8]) -> bool {
        let in_part = if self.begun.is_empty() { None } else { self.begun.remove(&flow) };
        let mut at = in_part.and_then(|upto| upto.checked_sub(offset)).map_or(0, |n| bytes.len().min(n as usize));
        if self.settle() {
            while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
                let piece = &rest[..rest.len().min(self.piece)];
                let entry = Entry::Data { offset: offset + at as u64, bytes: piece, own: false };
                // A gap that is owed comes first: a small piece may have room where not everything has that is owed.
                if !self.has_room(piece.len()) || !self.tell(flow) || !self.append(flow, &entry) {
                    if self.is_stuck() {
                        self.bypass = true;
                        break;
                    }
                    if at > 0 {
                        self.begun.insert(flow, offset + at as u64);
                    }
                    return false;
                }
                at += piece.len();
            }
        }
        if at < bytes.len() {
            self.owed.gap(flow, offset + at as u64, (bytes.len() - at) as u64);
            self.count();
        }
        true
    }

    /// Puts anything else into the log; `false`: it has to be told later.
    fn entry(&mut self, flow: Flow, entry: &Entry<'_>) -> bool {
        if matches!(entry, Entry::End(_)) {
            self.begun.remove(&flow);
        }
        let is_recording = self.settle();
        let is_in = match entry {
            Entry::Wrote { .. } if !is_recording => false,
            _ if !self.tell(flow) => false,
            Entry::Data { offset, bytes, own } => {
                let mut pieces = (*offset..).step_by(self.piece).zip(bytes.chunks(self.piece));
                let failed = pieces.find(|(at, piece)| {
                    !append(&mut self.producer, flow, &Entry::Data { offset: *at, bytes: piece, own: *own })
                });
                if let Some((at, _)) = failed {
                    let left = bytes.len() as u64 - (at - offset);
                    self.owed.gap(flow, at, left);
                    self.count();
                    return false;
                }
                true
            }
            _ => self.append(flow, entry),
        };
        if !is_in {
            self.owed.entry(flow, entry);
            self.count();
        }
        is_in
    }

    /// Tells what is owed if there is room for more than that. Says whether bodies are recorded.
    fn settle(&mut self) -> bool {
        if !self.owed.is_empty() && self.has_room(self.piece) {
            self.tell_all();
        }
        if self.bypass && self.owed.is_empty() && self.has_room(self.piece) {
            self.bypass = false;
        }
        !self.bypass
    }

    fn tell_all(&mut self) {
        if !self.owed.is_empty() {
            let Self { owed, producer, .. } = self;
            owed.pay_all(|flow, entry| append(producer, flow, entry));
            self.count();
        }
    }

    /// Tells what is owed about a body; `false`: there is no room.
    fn tell(&mut self, flow: Flow) -> bool {
        let Self { owed, producer, .. } = self;
        if !owed.has(flow) {
            return true;
        }
        let all = owed.pay(flow, |flow, entry| append(producer, flow, entry));
        self.count();
        all
    }

    fn count(&self) {
        let (bytes, entries) = self.owed.untold();
        self.producer.set_untold(bytes, entries);
    }

    /// Whether nothing was released for as long as the bound, since there was no room; for several times as long, if the
    /// recorder is at work.
    fn is_stuck(&mut self) -> bool {
        let (tail, beats, now) = (self.producer.tail(), self.pulse.count(), Instant::now());
        let full = match self.full {
            Some(full) if full.tail == tail && full.beats == beats => full,
            Some(full) if full.tail == tail => Full { beats, beaten: now, ..full },
            _ => Full { tail, since: now, beats, beaten: now },
        };
        self.full = Some(full);
        full.beaten.elapsed() >= self.stall_bound || full.since.elapsed() >= self.stall_bound.saturating_mul(AT_WORK)
    }
}

fn append(producer: &mut Producer, flow: Flow, entry: &Entry<'_>) -> bool {
    let ns = clock::mono_ns();
    producer.put(|space| codec::write(flow, ns, entry, space))
}
