//! The recorder's end of a capture, also of one that a killed session left behind.

use super::layout::{BLIND, Fixed, GAPS, NO_SPOOL, NOTES, a, b, blind_at, corrupt, get, put};
use super::{Direction, Link, Room};
use crate::files::{Lock, open_own, patiently, try_lock};
use crate::sys::{RingMemory, RingReader, clock, process};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// How long a capture may be held by someone who is not its session before it counts as in use.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that crossed without being captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureGap {
    /// The bytes crossed right before the captured byte with this stream offset.
    pub offset: u64,
    /// How many bytes crossed.
    pub bytes: u64,
    /// When the first of them were read, monotonic ns.
    pub first_ns: u64,
    /// When the last of them were read, monotonic ns.
    pub last_ns: u64,
}

/// Whether the process that made a ring lives.
fn is_owned(fixed: &Fixed) -> bool {
    let started = Some(fixed.owner_start).filter(|&t| t != 0);
    process::is_alive(u32::try_from(fixed.owner).unwrap_or(0), started)
}

/// The recorder's end of a capture.
///
/// Look at [`available`](Self::available), put what is needed into files, then [`advance`](Self::advance).
#[derive(Debug)]
pub struct Consumer {
    reader: RingReader,
    fixed: Fixed,
    direction: Direction,
    path: Option<PathBuf>,
    link: Arc<Link>,
}

impl Consumer {
    pub(super) fn new(
        reader: RingReader,
        fixed: Fixed,
        direction: Direction,
        path: Option<PathBuf>,
        link: Arc<Link>,
    ) -> Self {
        Self { reader, fixed, direction, path, link }
    }

    /// Opens the ring that a session left behind, and locks it for this process.
    ///
    /// Errors: [`io::ErrorKind::WouldBlock`] if its session (or another recovery) still lives,
    /// [`io::ErrorKind::InvalidData`] if the header does not hold together, others as the system reports them.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_within(path, PATIENCE)
    }

    /// The same with this patience for those who hold it and are not its session.
    pub(super) fn open_within(path: &Path, patience: Duration) -> io::Result<Self> {
        let file = open_own(path)?;
        let bytes = file.metadata()?.len();
        let in_use = || io::Error::new(io::ErrorKind::WouldBlock, "ring is in use by its session");
        let header = || {
            let mut head = [0; 8 * a::COUNT];
            if rustix::io::pread(&file, &mut head, 0)? != head.len() {
                return Err(corrupt("not a ring file (too short)"));
            }
            Fixed::parse(&head, bytes)
        };
        // Whoever sweeps directories of captures holds each for a moment.
        let patience = if header().is_ok_and(|fixed| is_owned(&fixed)) { Duration::ZERO } else { patience };
        let locked = match patiently(patience, || try_lock(&file))? {
            Lock::Taken => true,
            Lock::Busy => return Err(in_use()),
            Lock::Unsupported => false,
        };
        let fixed = header()?;
        let direction = Direction::from_word(fixed.direction).ok_or_else(|| corrupt("ring direction out of range"))?;
        if !locked && is_owned(&fixed) {
            return Err(in_use());
        }
        let header = usize::try_from(fixed.header()).map_err(|_| corrupt("ring header too large"))?;
        let capacity = usize::try_from(fixed.capacity).map_err(|_| corrupt("ring too large"))?;
        let reader = RingMemory::map(file.into(), header, capacity, capacity)?.into_reader()?;
        let link = Arc::new(Link { room: Room::default() });
        Ok(Self { reader, fixed, direction, path: Some(path.to_path_buf()), link })
    }

    /// The session id: 16 hex digits.
    pub fn session(&self) -> &str {
        // Checked when the value was made; an empty id would only be seen if that check were gone.
        std::str::from_utf8(&self.fixed.session).unwrap_or_default()
    }

    /// Which way the bytes went.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Pid of the process that made the ring, and its start time in clock ticks since boot if known.
    #[cfg(test)]
    pub fn owner(&self) -> (u32, Option<u64>) {
        (u32::try_from(self.fixed.owner).unwrap_or(0), Some(self.fixed.owner_start).filter(|&t| t != 0))
    }

    /// The ring file, if it has a name.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Removes the ring file: everything in it is on disk elsewhere. Idempotent. That of the server's direction goes
    /// last, or the log.
    pub fn remove(&self) -> io::Result<()> {
        if let (Some(path), Direction::ServerToClient | Direction::Log) = (&self.path, self.direction) {
            super::place::forget_note(path);
        }
        match &self.path {
            Some(path) => match std::fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Maps all pages of the ring ahead of the relay. The recorder calls this once, first, at its low priority: it
    /// takes a few milliseconds that start-up does not have, and spares the relay a page fault per 4 KiB.
    pub fn prefault(&self) {
        self.reader.prefault();
    }

    /// Capacity of the ring in bytes.
    pub fn capacity(&self) -> usize {
        self.reader.memory().capacity()
    }

    /// Bytes that may wait in it: its capacity, or less where many short lines cross.
    pub fn bound(&self) -> usize {
        self.reader.memory().bound()
    }

    /// Everything from [`tail`](Self::tail) to [`head`](Self::head), contiguous. Empty if nothing is there yet.
    pub fn available(&self) -> &[u8] {
        self.reader.window()
    }

    /// Whether nothing more fits until [`advance`](Self::advance): a message longer than this has to be spooled.
    #[cfg(test)]
    pub fn is_full(&self) -> bool {
        self.available().len() >= self.capacity()
    }

    /// Whether more than an eighth of the bytes that may wait in it do.
    pub fn is_filling(&self) -> bool {
        self.available().len() * 8 > self.bound()
    }

    /// Stream offset of the first byte of [`available`](Self::available).
    pub fn tail(&self) -> u64 {
        self.reader.tail()
    }

    /// Stream offset after the last byte captured.
    pub fn head(&self) -> u64 {
        self.reader.head()
    }

    /// Stream offset after the last byte passed on to the peer. What is between this and [`head`](Self::head) may or
    /// may not have been seen by it if the process was killed.
    pub fn written(&self) -> u64 {
        self.reader.written()
    }

    /// Stream offset up to which a guard has decided what becomes of the bytes; `None` where there is no guard. What is
    /// after it was not passed on.
    pub fn decided(&self) -> Option<u64> {
        let words = self.reader.memory().region_b();
        (get(words, b::GUARDED) != 0).then(|| get(words, b::DECIDED))
    }

    /// Whether the message at stream offset `offset` was refused without a decision that says so.
    pub fn was_refused_blind(&self, offset: u64) -> bool {
        let words = self.reader.memory().region_b();
        let used = usize::try_from(get(words, b::BLIND_COUNT)).unwrap_or(BLIND).min(BLIND);
        let (mut low, mut high) = (0, used);
        while low < high {
            let middle = low + (high - low) / 2;
            if get(words, blind_at(middle)) <= offset { low = middle + 1 } else { high = middle }
        }
        let Some(run) = low.checked_sub(1) else { return false };
        let first = get(words, blind_at(run));
        // Earlier versions had no runs.
        offset <= get(words, b::BLIND_UPTO + run).max(first)
    }

    /// Releases the first `n` bytes (at most what is there) for reuse.
    pub fn advance(&mut self, n: usize) {
        self.reader.advance(n);
        self.link.room.released();
    }

    /// If everything was released, the next bytes go where the ring's memory is; `give_back`: what the ring has grown
    /// beyond its first size goes back to the system, a piece at each call.
    pub fn rewind(&mut self, give_back: bool) {
        if self.reader.rewind(give_back) {
            self.link.room.released();
        }
    }

    /// When the byte at stream offset `offset` was read, monotonic ns; `None` if it was not read yet. Marks outlive
    /// [`advance`](Self::advance); when 16 384 newer marks have replaced the right one, the oldest one left answers (an
    /// upper bound).
    pub fn read_mark(&self, offset: u64) -> Option<u64> {
        self.find_mark(b::READ_MARKS, b::MARK_TABLE, offset).map(|(ns, _)| ns)
    }

    /// Whether [`read_mark`](Self::read_mark) can only say by when the byte at this offset had been read.
    pub fn is_read_mark_late(&self, offset: u64) -> bool {
        self.find_mark(b::READ_MARKS, b::MARK_TABLE, offset).is_some_and(|(_, exact)| !exact)
    }

    /// When the byte at stream offset `offset` was passed on, monotonic ns; `None` if it was not (yet). Else as
    /// [`read_mark`](Self::read_mark). For bytes that a guard discarded, the time of the next byte passed on.
    pub fn write_mark(&self, offset: u64) -> Option<u64> {
        self.find_mark(b::WRITE_MARKS, b::MARK_TABLE + 2 * self.fixed.marks as usize, offset).map(|(ns, _)| ns)
    }

    /// The time of the mark, and whether it is the right one for sure.
    fn find_mark(&self, count: usize, table: usize, offset: u64) -> Option<(u64, bool)> {
        let words = self.reader.memory().region_b();
        let marks = self.fixed.marks;
        let slot = |i: u64| table + 2 * (i & (marks - 1)) as usize;
        let end = |i: u64| words.get(slot(i)).map_or(0, |w| u64::from_le(w.load(Ordering::Relaxed)));
        let mut answer = None;
        for _ in 0..8 {
            let made = get(words, count);
            // The slot of mark `made - marks` may be in the middle of being reused.
            let oldest = made.saturating_sub(marks - 1);
            let (mut low, mut high) = (oldest, made);
            while low < high {
                let middle = low + (high - low) / 2;
                if end(middle) > offset {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            if low == made {
                return None;
            }
            let ns = words.get(slot(low) + 1).map(|w| u64::from_le(w.load(Ordering::Relaxed)));
            answer = ns.map(|ns| (ns, oldest == 0 || low > oldest));
            fence(Ordering::Acquire);
            if low > get(words, count).saturating_sub(marks) || get(words, count) < marks {
                return answer;
            }
        }
        answer
    }

    /// Bytes that crossed uncaptured so far: look at [`gaps`](Self::gaps) when this grows.
    pub fn gap_bytes(&self) -> u64 {
        get(self.reader.memory().region_b(), b::GAP_BYTES)
    }

    /// Of a log: bytes that passed unrecorded, and entries, of which no record tells.
    pub fn untold(&self) -> (u64, u64) {
        let words = self.reader.memory().region_b();
        (get(words, b::GAP_BYTES), get(words, b::BLIND_COUNT))
    }

    /// All gaps, by offset; at most 64 (later ones are merged into the last). A gap is final once
    /// [`head`](Self::head) is beyond its offset or the capture [is closed](Self::is_closed).
    pub fn gaps(&self) -> Vec<CaptureGap> {
        let words = self.reader.memory().region_b();
        let used = usize::try_from(get(words, b::GAP_COUNT)).unwrap_or(GAPS).min(GAPS);
        (0..used)
            .map(|slot| {
                let at = b::GAP_TABLE + slot * 4;
                let word = |i| get(words, at + i);
                CaptureGap { offset: word(0), bytes: word(1), first_ns: word(2), last_ns: word(3) }
            })
            .collect()
    }

    /// Notes that the message which starts at stream offset `start` is being spooled to a file: its bytes before
    /// [`tail`](Self::tail) are there. `None` when that is over.
    pub fn set_spool_start(&self, start: Option<u64>) {
        put(self.reader.memory().region_b(), b::SPOOL_START, start.unwrap_or(NO_SPOOL));
    }

    /// The offset that [`set_spool_start`](Self::set_spool_start) noted; `None` if no message is being spooled.
    pub fn spool_start(&self) -> Option<u64> {
        Some(get(self.reader.memory().region_b(), b::SPOOL_START)).filter(|&start| start != NO_SPOOL)
    }

    /// Stores [`clock::wall_minus_mono_ns`], so that recovery can turn marks into wall time.
    pub fn set_wall_offset(&self, ns: i64) {
        put(self.reader.memory().region_b(), b::WALL_OFFSET, ns.cast_unsigned());
    }

    /// Wall clock minus monotonic clock in ns as last stored, 0 if never.
    pub fn wall_offset(&self) -> i64 {
        get(self.reader.memory().region_b(), b::WALL_OFFSET).cast_signed()
    }

    /// Word `index` (of [`NOTES`]) for the recorder's own use, 0 at first; kept in the ring file.
    pub fn note(&self, index: usize) -> u64 {
        if index < NOTES { get(self.reader.memory().region_b(), b::NOTES + index) } else { 0 }
    }

    /// Sets a word that [`note`](Self::note) reads; beyond [`NOTES`] nothing happens.
    pub fn set_note(&self, index: usize, value: u64) {
        if index < NOTES {
            put(self.reader.memory().region_b(), b::NOTES + index, value);
        }
    }

    /// Whether the producer is done. Read this *before* [`available`](Self::available): if it was true, that is the
    /// rest. In a ring that was left behind, `false` means that the session was killed.
    pub fn is_closed(&self) -> bool {
        get(self.reader.memory().region_b(), b::CLOSED) != 0
    }

    /// The clock of marks, for comparisons: `CLOCK_MONOTONIC` in ns.
    pub fn now() -> u64 {
        clock::mono_ns()
    }
}
