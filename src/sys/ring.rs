//! One writer and one reader over a mirrored map: the part of the capture ring that needs unsafe code.
//!
//! Header bytes: `0..1024` region A and `2048..header` region B belong to the caller, as 64-bit atomics; `1024..2048`
//! holds the three positions, which only this module touches:
//!
//! | byte | position | written by |
//! |---|---|---|
//! | 1024 | `head`: stream offset after the last byte captured | writer |
//! | 1032 | `written`: stream offset after the last byte passed on | writer |
//! | 1280 | `tail`: stream offset of the first byte still needed by the reader | reader |
//! | 1288 | `base`: stream offset of the byte at the ring's first place | reader |
//!
//! All are little-endian `u64`. The space of a byte is reused when both `tail` and `written` have passed it.
//!
//! The ring takes memory only as far as it is used: from its first place up to `grown`. The writer grows it when it
//! comes to that end. When the ring is empty the reader lets the stream continue at the first place
//! ([`RingReader::rewind`]), and gives back what was grown. The two do not meet: the writer says that it fills a window
//! (`filling`), the reader that it moves the ring (`moving`), each before it looks at the other's word.
//!
//! Of many short lines, which take the reader long, fewer bytes may wait than fit ([`RingMemory::bound`]).
//!
//! Why the slices are sound: the writer alone moves `head` and `written`, and keeps its own copies; its free window
//! ends at `min(tail, written) + capacity`, so it overlaps neither what the reader sees (`tail..head`) nor what is
//! still to be passed on (`written..head`). `tail` only grows, so an old value only makes the window smaller.

use super::map::MirrorMap;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const HEAD: usize = 1024;
const WRITTEN: usize = 1032;
const TAIL: usize = 1280;
const BASE: usize = 1288;
const REGION_B: usize = 2048;

/// 64-bit words in region A.
pub const REGION_A_WORDS: usize = HEAD / 8;

/// 64-bit words in region B of a header of `header` bytes.
pub const fn region_b_words(header: usize) -> usize {
    header.saturating_sub(REGION_B) / 8
}

/// By how much a ring grows at a time.
const STEP: usize = 256 * 1024;
/// The memory that a ring begins with, in bytes, at most: a session waits for it at its start.
const FIRST: usize = 2 * STEP;
/// Lines that may wait for the reader, beside what the ring always keeps.
const LINES_WAITING: usize = 32 * 1024;
/// Bytes that are looked at for how long lines are, of each [`STEP`].
const SAMPLE: usize = 64 * 1024;
/// How much is given back at a time, in bytes: the writer may have to wait meanwhile.
const GIVEN_BACK: usize = 8 << 20;

/// Reserves space in a file now, so that a full file system is an error here and not a SIGBUS later. What the range
/// holds must not matter.
///
/// # Errors
/// There is no space.
pub fn reserve(file: BorrowedFd<'_>, from: u64, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), from, bytes) {
        Ok(()) => return Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
        Err(e) => return Err(e.into()),
    }
    let zeros = vec![0; 64 * 1024];
    let (mut at, end) = (from, from + bytes);
    while at < end {
        let part = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len());
        match rustix::io::pwrite(file, &zeros[..part], at) {
            Ok(n) => at += n as u64,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Gives the memory of a range back; a hint.
fn punch(file: BorrowedFd<'_>, from: u64, bytes: u64) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, bytes);
    #[cfg(not(target_os = "linux"))]
    let _ = (file, from, bytes);
}

/// The mapped file, shared by its writer and its reader.
#[derive(Debug)]
pub struct RingMemory {
    map: MirrorMap,
    file: OwnedFd,
    /// Bytes that are not given back when nothing is in the ring.
    kept: usize,
    /// Bytes from the ring's first place on that have memory.
    grown: AtomicUsize,
    filling: AtomicBool,
    moving: AtomicBool,
    bound: AtomicUsize,
}

impl RingMemory {
    /// The bytes that a ring which keeps `kept` has memory for at first.
    pub const fn first(kept: usize) -> usize {
        if kept < FIRST { kept } else { FIRST }
    }

    /// Maps `header + capacity` bytes of `file`. Both are multiples of the page size, `capacity` is a power of two and
    /// `header` at least 4 KiB. The file must be that long, and have space for the header and the first bytes of the
    /// ring ([`Self::first`]). Once the ring has taken `kept` bytes, it gives those never back.
    pub fn map(file: OwnedFd, header: usize, capacity: usize, kept: usize) -> io::Result<Self> {
        let fd = file.as_fd();
        if header < 2 * REGION_B {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "ring header is too small"));
        }
        let size = rustix::fs::fstat(fd)?.st_size;
        let need = header.checked_add(capacity).and_then(|n| i64::try_from(n).ok());
        if need.is_none_or(|need| size < need) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "ring file is too short"));
        }
        let map = MirrorMap::new(fd, header, capacity)?;
        let kept = kept.min(capacity);
        let (grown, bound) = (AtomicUsize::new(Self::first(kept)), AtomicUsize::new(kept));
        let (filling, moving) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { map, file, kept, grown, filling, moving, bound })
    }

    /// The place of stream offset `at`, from the ring's first on.
    #[inline]
    fn place(&self, at: u64) -> usize {
        (at.wrapping_sub(self.load(BASE)) as usize) & (self.capacity() - 1)
    }

    #[inline]
    fn ring_ptr(&self, at: u64) -> *mut u8 {
        self.map.ring_ptr(self.place(at))
    }

    /// Gives the ring memory up to `upto`, in steps. `false`: there is no memory.
    #[cold]
    fn grow(&self, upto: usize) -> bool {
        let from = self.grown.load(Ordering::Relaxed);
        let upto = upto.next_multiple_of(STEP).min(self.capacity());
        let reserved = reserve(self.file.as_fd(), (self.map.header_len() + from) as u64, (upto - from) as u64);
        if reserved.is_ok() {
            self.map.populate(self.map.header_len() + from, upto - from);
            self.grown.store(upto, Ordering::Release);
        }
        reserved.is_ok()
    }

    /// Capacity of the ring in bytes.
    pub fn capacity(&self) -> usize {
        self.map.ring_len()
    }

    /// Bytes that may wait for the reader, of those that were passed on: fewer than the capacity where lines are short.
    pub fn bound(&self) -> usize {
        self.bound.load(Ordering::Relaxed)
    }

    // The map starts at a page, and `from` is a multiple of 8 in all callers.
    #[allow(clippy::cast_ptr_alignment)]
    fn words(&self, from: usize, count: usize) -> &[AtomicU64] {
        debug_assert!(from + count * 8 <= self.map.header_len());
        // SAFETY: inside the header, 8-byte aligned (the map is page aligned), alive as long as `self`; only ever
        // accessed as atomics.
        unsafe { std::slice::from_raw_parts(self.map.header_ptr().add(from).cast::<AtomicU64>(), count) }
    }

    /// Header bytes 0..1024 as words.
    pub fn region_a(&self) -> &[AtomicU64] {
        self.words(0, REGION_A_WORDS)
    }

    /// Header bytes 2048.. as words.
    pub fn region_b(&self) -> &[AtomicU64] {
        self.words(REGION_B, region_b_words(self.map.header_len()))
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        &self.words(at, 1)[0]
    }

    fn load(&self, at: usize) -> u64 {
        u64::from_le(self.position(at).load(Ordering::Acquire))
    }

    fn store(&self, at: usize, value: u64) {
        self.position(at).store(value.to_le(), Ordering::Release);
    }

    /// Writer and reader of a ring that has neither yet; the positions start at 0.
    pub fn split(self) -> (RingWriter, RingReader) {
        for at in [HEAD, WRITTEN, TAIL, BASE] {
            self.store(at, 0);
        }
        let memory = Arc::new(self);
        let writer =
            RingWriter { memory: Arc::clone(&memory), head: 0, written: 0, window: 0, starved: false, looked: 0 };
        (writer, RingReader { memory, tail: 0 })
    }

    /// The reader of a ring that a writer left behind. Fails if the positions contradict each other.
    pub fn into_reader(self) -> io::Result<RingReader> {
        let (head, written, tail) = (self.load(HEAD), self.load(WRITTEN), self.load(TAIL));
        let held = head.checked_sub(tail.min(written));
        let base = self.load(BASE);
        if tail > head || written > head || base > tail || held.is_none_or(|held| held > self.capacity() as u64) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "ring positions contradict each other"));
        }
        self.bound.store(self.capacity(), Ordering::Relaxed);
        Ok(RingReader { memory: Arc::new(self), tail })
    }
}

/// The writer of a ring. There is only one.
#[derive(Debug)]
pub struct RingWriter {
    memory: Arc<RingMemory>,
    head: u64,
    written: u64,
    /// Length of the open window.
    window: usize,
    /// The ring could not grow: there is no more memory.
    starved: bool,
    /// Stream offset at which [`RingMemory::bound`] was set.
    looked: u64,
}

impl RingWriter {
    /// The memory, for its header words.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }

    /// Stream offset after the last byte published.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Stream offset after the last byte passed on.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Stream offset that the reader has reached.
    pub fn tail(&self) -> u64 {
        self.memory.load(TAIL)
    }

    /// Bytes that can be published now, as far as there is memory for them.
    #[inline]
    pub fn room(&self) -> usize {
        let (tail, within) = (self.tail(), |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX));
        let free = self.memory.capacity().saturating_sub(within(self.head.saturating_sub(tail.min(self.written))));
        let free = free.min(self.memory.bound().saturating_sub(within(self.written.saturating_sub(tail))));
        if self.starved { free.min(self.with_memory()) } else { free }
    }

    /// Whether the reader has released everything, and everything was passed on.
    pub fn is_empty(&self) -> bool {
        self.tail() >= self.head && self.written >= self.head
    }

    /// Looks at how long the lines are that cross. The reader takes long for many short ones, and with it the end of
    /// what is written: of those, no more may wait than it reads in about a second.
    #[cold]
    fn look(&mut self) {
        let bytes = self.last(SAMPLE);
        let lines = memchr::memchr_iter(b'\n', bytes).count().max(1);
        let bound = (bytes.len() / lines).saturating_mul(LINES_WAITING);
        self.memory.bound.store(bound.clamp(self.memory.kept, self.memory.capacity()), Ordering::Relaxed);
        self.looked = self.head;
    }

    /// The last `most` bytes that were published, as far as they still are in the ring.
    fn last(&self, most: usize) -> &[u8] {
        let len = self.head.saturating_sub(self.tail().min(self.written)).min(most as u64);
        // SAFETY: `tail.min(written) .. head` was published, and no window is made over it (module comment). The reader
        // moves the ring only when that is empty.
        unsafe { std::slice::from_raw_parts(self.memory.ring_ptr(self.head - len), len as usize) }
    }

    /// Bytes from `head` on that have memory, up to where the ring begins again.
    #[inline]
    fn with_memory(&self) -> usize {
        match self.memory.grown.load(Ordering::Acquire) {
            grown if grown == self.memory.capacity() => grown,
            grown => grown.saturating_sub(self.memory.place(self.head)),
        }
    }

    /// Makes the [`window`](Self::window) as large as it can be and says how large it is. Until
    /// [`publish`](Self::publish) the reader leaves the ring where it is.
    #[inline]
    pub fn open(&mut self) -> usize {
        self.fill();
        if self.head - self.looked >= STEP as u64 {
            self.look();
        }
        self.starved = false;
        let memory = &*self.memory;
        let room = self.room();
        let ahead = room.min(STEP);
        if self.with_memory() < ahead {
            self.starved = !memory.grow(memory.place(self.head) + ahead);
        }
        self.window = room.min(self.with_memory());
        self.window
    }

    /// Says that a window is being filled; a reader that moves the ring is waited for.
    #[inline]
    fn fill(&self) {
        let memory = &*self.memory;
        memory.filling.store(true, Ordering::SeqCst);
        while memory.moving.load(Ordering::SeqCst) {
            memory.filling.store(false, Ordering::SeqCst);
            std::thread::yield_now();
            memory.filling.store(true, Ordering::SeqCst);
        }
    }

    /// The free space that was opened, contiguous.
    #[inline]
    pub fn window(&mut self) -> &mut [u8] {
        // SAFETY: see the module's comment: `head .. head + window` is neither readable nor pending, at most `capacity`
        // long, has memory, and `&mut self` makes it the only window. The bytes are initialised (a file's contents).
        unsafe { std::slice::from_raw_parts_mut(self.memory.ring_ptr(self.head), self.window) }
    }

    /// Publishes the first `n` bytes of the window and closes it.
    #[inline]
    pub fn publish(&mut self, n: usize) {
        self.head += n.min(self.window) as u64;
        self.window = 0;
        self.memory.store(HEAD, self.head);
        self.memory.filling.store(false, Ordering::SeqCst);
    }

    /// What is published but not yet passed on.
    #[inline]
    pub fn pending(&self) -> &[u8] {
        let len = (self.head - self.written) as usize;
        // SAFETY: `written <= head <= written + capacity`, and no window is made over it (module comment).
        unsafe { std::slice::from_raw_parts(self.memory.ring_ptr(self.written), len) }
    }

    /// Counts `n` pending bytes as passed on.
    #[inline]
    pub fn passed(&mut self, n: usize) {
        self.written = self.written.saturating_add(n as u64).min(self.head);
        self.memory.store(WRITTEN, self.written);
    }
}

/// The reader of a ring. There is only one.
#[derive(Debug)]
pub struct RingReader {
    memory: Arc<RingMemory>,
    tail: u64,
}

impl RingReader {
    /// The memory, for its header words.
    pub fn memory(&self) -> &RingMemory {
        &self.memory
    }

    /// Faults in what has memory (a hint; takes milliseconds).
    pub fn prefault(&self) {
        self.memory.map.prefault(self.memory.grown.load(Ordering::Acquire));
    }

    /// If the ring is empty, lets the stream continue at the ring's first place; `give_back`: gives a part of what the
    /// ring has grown back to the system, as far as it is not to be kept. Says whether anything was done.
    pub fn rewind(&mut self, give_back: bool) -> bool {
        let memory = &*self.memory;
        let grown = memory.grown.load(Ordering::Acquire);
        let shrinks = give_back && grown > memory.kept;
        if memory.place(self.tail) == 0 && !shrinks || memory.load(HEAD) != self.tail {
            return false;
        }
        memory.moving.store(true, Ordering::SeqCst);
        let alone = !memory.filling.load(Ordering::SeqCst);
        let empty = memory.load(HEAD) == self.tail && memory.load(WRITTEN) == self.tail;
        if alone && empty {
            memory.store(BASE, self.tail);
            if shrinks {
                let upto = grown.saturating_sub(GIVEN_BACK).max(memory.kept);
                memory.grown.store(upto, Ordering::Release);
                punch(memory.file.as_fd(), (memory.map.header_len() + upto) as u64, (grown - upto) as u64);
            }
        }
        memory.moving.store(false, Ordering::SeqCst);
        alone && empty
    }

    /// Stream offset of the first byte of [`RingReader::window`].
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Stream offset after the last byte captured.
    #[inline]
    pub fn head(&self) -> u64 {
        // Never beyond what the ring can hold, whatever another process wrote into the header.
        self.memory.load(HEAD).clamp(self.tail, self.tail.saturating_add(self.memory.capacity() as u64))
    }

    /// Stream offset after the last byte passed on.
    pub fn written(&self) -> u64 {
        self.memory.load(WRITTEN)
    }

    /// Everything captured and not yet released, contiguous.
    #[inline]
    pub fn window(&self) -> &[u8] {
        let len = (self.head() - self.tail) as usize;
        // SAFETY: `tail..head` was published with release order and is not reused before `advance`, which needs
        // `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.ring_ptr(self.tail), len) }
    }

    /// Releases the first `n` bytes (at most what is there).
    #[inline]
    pub fn advance(&mut self, n: usize) {
        let there = (self.head() - self.tail).min(n as u64);
        self.tail += there;
        self.memory.store(TAIL, self.tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    fn ring() -> (RingWriter, RingReader) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(65536 + 65536).unwrap();
        RingMemory::map(file.into(), 65536, 65536, 65536).unwrap().split()
    }

    #[test]
    fn a_window_that_wraps_is_contiguous() {
        let (mut w, mut r) = ring();
        for step in 0..7u8 {
            assert!(w.open() >= 40_000);
            w.window()[..40_000].fill(step);
            w.publish(40_000);
            assert_eq!(w.pending(), vec![step; 40_000]);
            w.passed(40_000);
            assert_eq!(r.window(), vec![step; 40_000]);
            r.advance(40_000);
        }
        assert_eq!((w.head(), w.written(), r.tail(), r.head()), (280_000, 280_000, 280_000, 280_000));
    }

    #[test]
    fn space_is_reused_only_when_read_and_passed_on() {
        let (mut w, mut r) = ring();
        w.open();
        w.window().fill(1);
        w.publish(usize::MAX);
        assert_eq!(w.room(), 0);
        r.advance(1000);
        assert_eq!(w.room(), 0, "not passed on yet");
        w.passed(600);
        assert_eq!(w.room(), 600);
        w.passed(usize::MAX);
        assert_eq!(w.room(), 1000);
    }

    #[test]
    fn many_short_lines_may_wait_in_what_is_kept_and_long_ones_in_everything() {
        const KEPT: usize = 1 << 20;
        let waits = |line: &[u8]| {
            let file = tempfile::tempfile().unwrap();
            file.set_len((65536 + 16 * KEPT) as u64).unwrap();
            let (mut w, mut r) = RingMemory::map(file.into(), 65536, 16 * KEPT, KEPT).unwrap().split();
            let mut crossed = 0;
            while crossed < 64 * KEPT {
                let n = w.open().min(line.len());
                w.window()[..n].copy_from_slice(&line[..n]);
                w.publish(n);
                w.passed(n);
                crossed += n;
                if n == 0 {
                    return (r.head() - r.tail(), r.memory().bound());
                }
            }
            r.advance(usize::MAX);
            panic!("it is never full");
        };
        let short = [&b"x".repeat(15)[..], b"\n"].concat().repeat(64);
        assert_eq!(waits(&short), (KEPT as u64, KEPT));
        let long = [&b"x".repeat(65535)[..], b"\n"].concat();
        assert_eq!(waits(&long), (16 * KEPT as u64, 16 * KEPT));
        // What is held back by its writer, message by message, never waits for the reader.
        let file = tempfile::tempfile().unwrap();
        file.set_len((65536 + 16 * KEPT) as u64).unwrap();
        let (mut w, _r) = RingMemory::map(file.into(), 65536, 16 * KEPT, KEPT).unwrap().split();
        let mut held = 0;
        loop {
            let n = w.open().min(short.len());
            if n == 0 {
                break;
            }
            w.window()[..n].copy_from_slice(&short[..n]);
            w.publish(n);
            held += n;
        }
        assert_eq!(held, 16 * KEPT);
    }

    #[test]
    fn a_ring_takes_memory_as_it_is_used_and_gives_it_back_when_it_is_empty() {
        const KEPT: usize = 1 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len((65536 + 8 * KEPT) as u64).unwrap();
        reserve(file.as_fd(), 0, (65536 + KEPT) as u64).unwrap();
        let taken = || std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
        let at_first = taken();
        // Beside the bytes, a file system's own blocks count.
        let is_as_at_first = || taken() < at_first + STEP as u64;
        let (mut w, mut r) = RingMemory::map(file.try_clone().unwrap().into(), 65536, 8 * KEPT, KEPT).unwrap().split();
        let mut sent = 0u64;
        let mut fill = |w: &mut RingWriter, bytes: usize| {
            let mut left = bytes;
            while left > 0 {
                let n = w.open().min(left);
                assert!(n > 0);
                w.window()[..n].fill((sent % 251) as u8);
                w.publish(n);
                w.passed(n);
                left -= n;
            }
            sent += 1;
            ((sent - 1) % 251) as u8
        };
        for round in 0..50 {
            // Far more than the ring holds in all, but never much at once: it continues at its first place.
            let byte = fill(&mut w, 300_000);
            assert!(r.window().iter().all(|b| *b == byte), "{round}");
            assert!(!r.rewind(true), "something is in it");
            r.advance(usize::MAX);
            assert!(r.rewind(true));
        }
        assert!(is_as_at_first());
        let byte = fill(&mut w, 8 * KEPT);
        assert_eq!(w.open(), 0);
        w.publish(0);
        assert!(r.window().len() == 8 * KEPT && r.window().iter().all(|b| *b == byte));
        assert!(taken() > at_first + 6 * KEPT as u64);
        r.advance(usize::MAX);
        w.open();
        assert!(!r.rewind(true), "the writer may be filling it");
        w.publish(0);
        while r.rewind(true) {}
        #[cfg(target_os = "linux")]
        assert!(is_as_at_first());
        assert_eq!(fill(&mut w, KEPT * 3), r.window()[KEPT * 3 - 1]);
    }

    #[test]
    fn nonsense_in_the_positions_is_refused_or_clamped() {
        let (w, r) = ring();
        w.memory().store(HEAD, u64::MAX);
        assert_eq!(r.window().len(), 65536);
        let file = tempfile::tempfile().unwrap();
        file.set_len(65536 + 65536).unwrap();
        for (head, written, tail) in [(1, 2, 0), (1, 1, 2), (70_000, 70_000, 0), (70_000, 0, 70_000)] {
            let file = file.try_clone().unwrap();
            let memory = RingMemory::map(file.into(), 65536, 65536, 65536).unwrap();
            memory.store(HEAD, head);
            memory.store(WRITTEN, written);
            memory.store(TAIL, tail);
            assert!(memory.into_reader().is_err(), "{head} {written} {tail}");
        }
    }
}
