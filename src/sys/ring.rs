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
//!
//! All are little-endian `u64`. The space of a byte is reused when both `tail` and `written` have passed it.
//!
//! Why the slices are sound: the writer alone moves `head` and `written`, and keeps its own copies; its free window
//! ends at `min(tail, written) + capacity`, so it overlaps neither what the reader sees (`tail..head`) nor what is
//! still to be passed on (`written..head`). `tail` only grows, so an old value only makes the window smaller.

use super::map::MirrorMap;
use rustix::fd::BorrowedFd;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const HEAD: usize = 1024;
const WRITTEN: usize = 1032;
const TAIL: usize = 1280;
const REGION_B: usize = 2048;

/// 64-bit words in region A.
pub const REGION_A_WORDS: usize = HEAD / 8;

/// 64-bit words in region B of a header of `header` bytes.
pub const fn region_b_words(header: usize) -> usize {
    header.saturating_sub(REGION_B) / 8
}

/// The mapped file, shared by its writer and its reader.
#[derive(Debug)]
pub struct RingMemory {
    map: MirrorMap,
}

impl RingMemory {
    /// Maps `header + capacity` bytes of `fd`. Both are multiples of the page size, `capacity` is a power of two and
    /// `header` at least 4 KiB. The file must hold that many bytes.
    pub fn map(fd: BorrowedFd<'_>, header: usize, capacity: usize) -> io::Result<Self> {
        if header < 2 * REGION_B {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "ring header is too small"));
        }
        let size = rustix::fs::fstat(fd)?.st_size;
        let need = header.checked_add(capacity).and_then(|n| i64::try_from(n).ok());
        if need.is_none_or(|need| size < need) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "ring file is too short"));
        }
        Ok(Self { map: MirrorMap::new(fd, header, capacity)? })
    }

    /// Capacity of the ring in bytes.
    pub fn capacity(&self) -> usize {
        self.map.ring_len()
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
        for at in [HEAD, WRITTEN, TAIL] {
            self.store(at, 0);
        }
        let memory = Arc::new(self);
        let writer = RingWriter { memory: Arc::clone(&memory), head: 0, written: 0 };
        (writer, RingReader { memory, tail: 0 })
    }

    /// The reader of a ring that a writer left behind. Fails if the positions contradict each other.
    pub fn into_reader(self) -> io::Result<RingReader> {
        let (head, written, tail) = (self.load(HEAD), self.load(WRITTEN), self.load(TAIL));
        let held = head.checked_sub(tail.min(written));
        if tail > head || written > head || held.is_none_or(|held| held > self.capacity() as u64) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "ring positions contradict each other"));
        }
        Ok(RingReader { memory: Arc::new(self), tail })
    }
}

/// The one writer.
#[derive(Debug)]
pub struct RingWriter {
    memory: Arc<RingMemory>,
    head: u64,
    written: u64,
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

    /// The reader's position.
    pub fn tail(&self) -> u64 {
        self.memory.load(TAIL)
    }

    /// Bytes that can be published now.
    #[inline]
    pub fn room(&self) -> usize {
        let used = self.head.saturating_sub(self.tail().min(self.written));
        self.memory.capacity().saturating_sub(usize::try_from(used).unwrap_or(usize::MAX))
    }

    /// The free space, contiguous, at most `max` bytes of it.
    #[inline]
    pub fn window(&mut self, max: usize) -> &mut [u8] {
        let len = self.room().min(max);
        // SAFETY: see the module's comment: `head .. head + len` is neither readable nor pending, at most `capacity`
        // long, and `&mut self` makes it the only window. The bytes are initialised (a file's contents).
        unsafe { std::slice::from_raw_parts_mut(self.memory.map.ring_ptr(self.head), len) }
    }

    /// Publishes the first `n` bytes of the window (at most the room there is).
    #[inline]
    pub fn publish(&mut self, n: usize) {
        self.head += n.min(self.room()) as u64;
        self.memory.store(HEAD, self.head);
    }

    /// What is published but not yet passed on.
    #[inline]
    pub fn pending(&self) -> &[u8] {
        let len = (self.head - self.written) as usize;
        // SAFETY: `written <= head <= written + capacity`, and no window is made over it (module comment).
        unsafe { std::slice::from_raw_parts(self.memory.map.ring_ptr(self.written), len) }
    }

    /// Counts `n` pending bytes as passed on.
    #[inline]
    pub fn passed(&mut self, n: usize) {
        self.written = self.written.saturating_add(n as u64).min(self.head);
        self.memory.store(WRITTEN, self.written);
    }
}

/// The one reader.
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

    /// Faults the whole map in (a hint; takes milliseconds).
    pub fn prefault(&self) {
        self.memory.map.prefault();
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
        unsafe { std::slice::from_raw_parts(self.memory.map.ring_ptr(self.tail), len) }
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
        RingMemory::map(file.as_fd(), 65536, 65536).unwrap().split()
    }

    #[test]
    fn a_window_that_wraps_is_contiguous() {
        let (mut w, mut r) = ring();
        for step in 0..7u8 {
            w.window(40_000).fill(step);
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
        w.window(usize::MAX).fill(1);
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
    fn nonsense_in_the_positions_is_refused_or_clamped() {
        let (w, r) = ring();
        w.memory().store(HEAD, u64::MAX);
        assert_eq!(r.window().len(), 65536);
        let file = tempfile::tempfile().unwrap();
        file.set_len(65536 + 65536).unwrap();
        for (head, written, tail) in [(1, 2, 0), (1, 1, 2), (70_000, 70_000, 0), (70_000, 0, 70_000)] {
            let memory = RingMemory::map(file.as_fd(), 65536, 65536).unwrap();
            memory.store(HEAD, head);
            memory.store(WRITTEN, written);
            memory.store(TAIL, tail);
            assert!(memory.into_reader().is_err(), "{head} {written} {tail}");
        }
    }
}
