//! One direction of a capture, read message by message, whatever their size.

mod order;

pub use order::earliest;

use super::{
    frames::{self, Frame},
    judge::Decision,
    recorder::Message,
    rulings::{RulingReader, RulingRecord},
    stream::MessagePlace,
};
use crate::{
    files::Tree,
    model::{Direction, PolicyReason, PolicyVerdict},
    relay::capture::{CaptureGap, Consumer},
    sys::FileMap,
};
use std::{
    cell::{Cell, OnceCell},
    fs::File,
    io::{self, Write as _},
    path::PathBuf,
};

/// A message that is longer than this is put into a file while it crosses, so that memory does not grow with it; in a
/// capture that is smaller than four times that, a message longer than a quarter of the capture.
pub const SPOOL_AT: usize = 16 << 20;
/// Pages of a spool that is read are released in pieces of this size.
const RELEASED: usize = 1 << 20;

/// Note in a capture: the session whose messages it holds.
pub const NOTE_OWNER: usize = 0;
/// The session whose messages a capture holds, from that note and the session that made the capture.
#[must_use]
pub fn owner(note: u64, session: &str) -> Option<u64> {
    if note == 0 { u64::from_str_radix(session, 16).ok() } else { Some(note) }
}

/// Note in a capture: bytes that were released although their evidence was not on disk.
pub const NOTE_LOST: usize = 1;
/// Note in a capture: one more than the stream offset of a message that was given up and whose rest is still coming, or
/// 0.
const NOTE_SKIPPED: usize = 2;

/// What is next in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// In the ring: `skip` bytes, then a message of `len`, then `tail` bytes of terminator.
    Ring { skip: usize, len: usize, tail: usize },
    /// In the spool: a line of `len` bytes, its newline consumed already.
    Spool { len: u64 },
    /// A message that a gap has torn, `len` bytes of it.
    Torn { len: u64 },
    /// Bytes that crossed uncaptured.
    Gap(u64),
}

/// What [`Lane::take`] hands out.
pub enum Taken<'a> {
    /// A message that was captured whole.
    Message(&'a Message<'a>),
    /// A message of which only this many bytes were captured.
    Torn(u64),
    /// Bytes that crossed uncaptured.
    Gap(u64),
}

struct Spool {
    file: File,
    start: u64,
    len: u64,
}

/// The recorder's side of one direction: capture, frames, spool.
pub struct Lane {
    direction: Direction,
    consumer: Consumer,
    files: Tree,
    spool_path: PathBuf,
    spool: Option<Spool>,
    pos: u64,
    scanned: usize,
    next: Option<(Next, u64)>,
    /// It is no longer known when the next message was read.
    is_late: bool,
    gaps: Vec<CaptureGap>,
    gap_bytes: u64,
    gaps_done: usize,
    /// Whether something was taken whose evidence is not on disk yet.
    unsettled: bool,
    /// Whether the rest of a message that was given up is still coming.
    skipping: bool,
    /// Bytes of messages that were given up and not yet reported.
    skipped: u64,
    /// The spool cannot be written at the moment.
    stuck: bool,
    /// Why, until somebody has asked.
    failure: Option<io::Error>,
    /// What was taken and is not on disk holds a message that a guard passed on.
    holds_passed: bool,
    /// What a guard decided about the messages of this direction.
    rulings: Option<RulingReader>,
    /// The session is dead: nothing more will be decided.
    dead: bool,
}

impl Lane {
    /// A lane at the place up to which its capture was released.
    ///
    /// # Errors
    /// A spool that a dead session left, below `files`, cannot be read.
    pub fn new(direction: Direction, consumer: Consumer, files: Tree, spool_path: PathBuf) -> io::Result<Self> {
        let pos = consumer.tail();
        let mut lane = Self {
            direction,
            consumer,
            files,
            spool_path,
            spool: None,
            pos,
            scanned: 0,
            next: None,
            is_late: false,
            gaps: Vec::new(),
            gap_bytes: 0,
            gaps_done: 0,
            unsettled: false,
            skipping: false,
            skipped: 0,
            stuck: false,
            failure: None,
            holds_passed: false,
            rulings: None,
            dead: false,
        };
        // What was given up was counted; its rest is not a message.
        lane.skipping = lane.consumer.note(NOTE_SKIPPED).checked_sub(1).is_some_and(|start| pos > start);
        // Gaps before the place where recording continues are recorded already.
        lane.look_for_gaps();
        lane.gaps_done = lane.gaps.iter().take_while(|g| g.offset < pos).count();
        if let Some(start) = lane.consumer.spool_start().filter(|s| *s <= pos) {
            let file = lane.files.append_existing(&lane.spool_path)?;
            // Bytes after the released part are still in the ring, too. If there are fewer, the message was released
            // with its newline, which is never spooled: its evidence is on disk.
            if file.metadata()?.len() >= pos - start {
                file.set_len(pos - start)?;
                lane.spool = Some(Spool { file, start, len: pos - start });
            }
        }
        Ok(lane)
    }

    /// The capture that it reads from.
    #[must_use]
    pub const fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// Sets that a guard decides what passes here, and where its rulings are read from.
    #[must_use]
    pub fn guarded(mut self, rulings: RulingReader) -> Self {
        self.rulings = Some(rulings);
        self
    }

    /// Where the rulings on this direction are read from.
    #[must_use]
    pub const fn rulings(&self) -> Option<&RulingReader> {
        self.rulings.as_ref()
    }

    /// The session is dead: what its guard had not decided was never passed on.
    pub fn mark_dead(&mut self) {
        self.dead = true;
    }

    /// What a guard has not decided yet may still become anything.
    fn limit(&self) -> u64 {
        let closed = self.consumer.is_closed();
        let head = self.consumer.head();
        match self.consumer.decided() {
            Some(decided) if !closed && !self.dead => decided.min(head),
            _ => head,
        }
    }

    /// Sets where a message that is too large for memory is spooled.
    #[must_use]
    pub fn spool_path(&self) -> &std::path::Path {
        &self.spool_path
    }

    /// Direction of the message.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        self.direction
    }

    /// Stream offset up to which everything was taken.
    #[must_use]
    pub const fn pos(&self) -> u64 {
        self.pos
    }

    /// Whether nothing is left and nothing will come.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.consumer.is_closed() && self.pos >= self.consumer.head() && self.next.is_none() && self.spool.is_none()
    }

    /// Whether anything has come that was not looked at yet.
    #[must_use]
    pub fn has_work(&self) -> bool {
        if self.stuck {
            return false;
        }
        let seen = self.pos + self.scanned as u64;
        self.limit() > seen || self.consumer.gap_bytes() != self.gap_bytes
    }

    /// Bytes after everything that was taken: an unfinished message.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.consumer.head().saturating_sub(self.pos) + self.spool.as_ref().map_or(0, |s| s.len)
    }

    /// Releases everything that was taken: it is safe on disk.
    pub fn release(&mut self) {
        let n = self.pos.saturating_sub(self.consumer.tail());
        if n > 0 {
            self.consumer.advance(n as usize);
        }
        if !self.skipping && self.consumer.note(NOTE_SKIPPED) != 0 {
            self.consumer.set_note(NOTE_SKIPPED, 0);
        }
    }

    /// If everything that came was taken and is safe, the capture begins anew; `give_back`: without the memory that it
    /// has grown beyond its first size.
    pub fn rewind(&mut self, give_back: bool) {
        if self.pos == self.consumer.tail() {
            self.consumer.rewind(give_back);
        }
    }

    /// Releases what was taken although its evidence is not on disk: there is no more room. The capture says how much
    /// that is, until it is safe after all ([`Lane::settled`]).
    pub fn let_go(&mut self) {
        let bytes = self.pos.saturating_sub(self.consumer.tail());
        self.note_lost(bytes);
        self.release();
    }

    /// Counts bytes that crossed without evidence.
    pub fn note_lost(&self, bytes: u64) {
        self.consumer.set_note(NOTE_LOST, self.consumer.note(NOTE_LOST) + bytes);
    }

    /// Bytes that were released and whose evidence would be missing if the session were killed now.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.consumer.note(NOTE_LOST)
    }

    /// How full the capture is with what was taken but not released, 0 to 100.
    #[must_use]
    pub fn held_percent(&self) -> u64 {
        self.pos.saturating_sub(self.consumer.tail()) * 100 / self.consumer.bound().max(1) as u64
    }

    /// When the last byte of the next message was read, monotonic ns; `None` if there is no whole message yet.
    ///
    /// # Errors
    /// The spool file cannot be written, said once: nothing can be taken until [`Lane::retry`] or [`Lane::give_up`].
    pub fn peek(&mut self) -> io::Result<Option<u64>> {
        if self.stuck {
            return Ok(self.stuck_until());
        }
        if self.next.is_none() {
            self.look_for_gaps();
            if self.skipping {
                let n = self.skip_line();
                self.skipped += n;
            }
            let next = if self.spool.is_some() { self.fill_spool() } else { self.look() };
            if let Err(e) = &next {
                self.stuck = true;
                self.failure = Some(e.raw_os_error().map_or_else(|| e.kind().into(), io::Error::from_raw_os_error));
            }
            self.next = next?;
            let end = match self.next {
                Some((Next::Ring { skip, len, tail }, _)) => self.pos + (skip + len + tail) as u64,
                _ => self.pos,
            };
            self.is_late = self.next.is_some() && self.consumer.is_read_mark_late(end.saturating_sub(1));
        }
        Ok(self.next.map(|(_, ns)| ns))
    }

    /// As [`Lane::peek`], the place in the order of all lanes: what a client sent so many reads ago that it is not
    /// known when goes before everything, because no answer may go before its request.
    fn order(&mut self) -> io::Result<Option<u64>> {
        let ns = self.peek()?;
        let goes_first = self.is_late && self.direction == Direction::ClientToServer;
        Ok(ns.map(|ns| if goes_first { 0 } else { ns }))
    }

    fn look_for_gaps(&mut self) {
        if self.consumer.gap_bytes() != self.gap_bytes {
            self.gap_bytes = self.consumer.gap_bytes();
            self.gaps = self.consumer.gaps();
        }
    }

    fn gap_ahead(&self) -> Option<CaptureGap> {
        self.gaps.get(self.gaps_done).copied()
    }

    /// The captured bytes from `pos` to the next gap, and whether nothing can follow before that gap or the end.
    fn window(&self) -> (&[u8], bool) {
        let closed = self.consumer.is_closed();
        let head = self.limit();
        let skip = self.pos.saturating_sub(self.consumer.tail()) as usize;
        let all = self.consumer.available();
        let upto = (head.saturating_sub(self.consumer.tail()) as usize).min(all.len());
        let all = all.get(skip..upto).unwrap_or_default();
        match self.gap_ahead() {
            Some(gap) if gap.offset <= head && (head > gap.offset || closed) => {
                let upto = gap.offset.saturating_sub(self.pos) as usize;
                (all.get(..upto).unwrap_or(all), true)
            }
            _ => (all, closed),
        }
    }

    fn look(&mut self) -> io::Result<Option<(Next, u64)>> {
        let gap = self.gap_ahead();
        let (window, last) = self.window();
        let before_gap = gap.is_some_and(|g| g.offset == self.pos + window.len() as u64) && last;
        if before_gap && window.is_empty() {
            return Ok(gap.map(|g| (Next::Gap(g.bytes), g.last_ns)));
        }
        // What a gap cuts off is torn, not a last line.
        let frame = self.frame(window, last && !before_gap);
        let len = window.len();
        let (next, end) = match frame {
            Frame::Line { len: line } => {
                let tail = usize::from(line < len);
                (Next::Ring { skip: 0, len: line, tail }, line + tail)
            }
            Frame::Framed { header, len: body } => (Next::Ring { skip: header, len: body, tail: 0 }, header + body),
            Frame::Partial if before_gap => (Next::Torn { len: len as u64 }, len),
            Frame::Partial => {
                self.scanned = len;
                // A spool releases the ring, so everything before it must be on disk.
                if len > SPOOL_AT.min(self.consumer.bound() / 4) && !self.unsettled {
                    self.start_spool()?;
                    return self.fill_spool();
                }
                return Ok(None);
            }
        };
        Ok(Some((next, self.read_ns(self.pos + end as u64))))
    }

    /// A guard's frames are the ones that it decided about.
    fn frame(&self, window: &[u8], last: bool) -> Frame {
        let scanned = self.scanned.min(window.len());
        if self.consumer.decided().is_none() {
            return frames::next(window, scanned, last);
        }
        let starts_like_a_header = window.first().is_some_and(|b| b.eq_ignore_ascii_case(&b'c'));
        let framed = if starts_like_a_header { self.judged(self.pos).and_then(|j| j.frame) } else { None };
        match framed {
            Some((header, len)) if window.len() >= header + len => Frame::Framed { header, len },
            Some(_) if !last => Frame::Partial,
            _ => frames::line(window, scanned, last),
        }
    }

    /// What was decided about the message that starts there, headers included.
    fn judged(&self, offset: u64) -> Option<RulingRecord> {
        let reader = self.rulings.as_ref()?;
        reader.find(self.direction, offset).or_else(|| {
            self.consumer.was_refused_blind(offset).then(|| RulingRecord {
                direction: self.direction,
                offset,
                frame: None,
                blocked: true,
                ns: self.consumer.read_mark(offset).unwrap_or_else(Consumer::now),
                policy: String::new(),
                decisions: vec![Decision {
                    index: None,
                    verdict: PolicyVerdict::Denied,
                    reason: PolicyReason::GuardRecorderUnavailable.into(),
                    rule: None,
                    unseen: Vec::new(),
                }],
            })
        })
    }

    /// Whether the guard was not past this place: what starts there was never passed on.
    ///
    /// A dead session whose decisions are lost tells nothing of what was passed on.
    fn is_undecided(&self, offset: u64) -> bool {
        self.consumer.decided().is_some() && self.rulings.is_none()
            || self.consumer.decided().is_some_and(|decided| offset >= decided)
    }

    /// When the byte before `end` was read.
    fn read_ns(&self, end: u64) -> u64 {
        self.consumer.read_mark(end.saturating_sub(1)).unwrap_or_else(Consumer::now)
    }

    fn start_spool(&mut self) -> io::Result<()> {
        self.files.remove(&self.spool_path)?;
        let file = self.files.create(&self.spool_path)?;
        self.consumer.set_spool_start(Some(self.pos));
        self.spool = Some(Spool { file, start: self.pos, len: 0 });
        self.scanned = 0;
        Ok(())
    }

    /// Moves bytes from the ring to the spool until the line ends.
    fn fill_spool(&mut self) -> io::Result<Option<(Next, u64)>> {
        let Some(mut spool) = self.spool.take() else { return Ok(None) };
        let gap = self.gap_ahead();
        let (window, last) = self.window();
        let before_gap = gap.is_some_and(|g| g.offset == self.pos + window.len() as u64) && last;
        let newline = memchr::memchr(b'\n', window);
        let part = &window[..newline.unwrap_or(window.len())];
        if let Err(e) = spool.file.write_all(part) {
            // Half a write must not be glued to the next one.
            let _ = spool.file.set_len(spool.len);
            self.spool = Some(spool);
            return Err(e);
        }
        spool.len += part.len() as u64;
        let moved = part.len() + usize::from(newline.is_some());
        let len = spool.len;
        let next = match newline {
            Some(_) => Some(Next::Spool { len }),
            None if before_gap => Some(Next::Torn { len }),
            None if last => Some(Next::Spool { len }),
            None => None,
        };
        self.spool = Some(spool);
        self.pos += moved as u64;
        if next.is_none() {
            // The spool is as safe as the ring: a file that recovery reads. A finished line is released with its
            // evidence.
            self.release();
        }
        self.scanned = 0;
        Ok(next.map(|n| (n, self.read_ns(self.pos))))
    }

    /// The disk may have room again.
    pub fn retry(&mut self) {
        self.stuck = false;
        self.scanned = 0;
    }

    /// When the message that no spool has room for had crossed, if its end is there: its answer goes after it.
    fn stuck_until(&mut self) -> Option<u64> {
        let (window, last) = self.window();
        let from = self.scanned.min(window.len());
        let newline = memchr::memchr(b'\n', &window[from..]).map(|at| from + at + 1);
        let (end, is_there) = (newline.unwrap_or(window.len()), newline.is_some() || last);
        self.scanned = newline.map_or(end, |at| at - 1);
        is_there.then(|| self.read_ns(self.pos + end as u64))
    }

    /// Whether it, or what a guard decided, holds more than a few messages: what could be released has to be.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.spool.is_some()
            || self.consumer.is_filling()
            || self.rulings.as_ref().is_some_and(RulingReader::is_filling)
    }

    /// Whether there is hardly room for more.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.consumer.available().len() * 4 > self.consumer.bound() * 3
    }

    /// Yields the processor for a moment, unless there is much to catch up with.
    pub fn give_way(&self) {
        give_way(&self.consumer);
    }

    /// The error of writing the spool since the last call, if there was one.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Whether the spool cannot be written at the moment.
    #[must_use]
    pub const fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Neither ring nor spool can hold the message that is crossing: forgets what there is of it, and what will come of
    /// it. Returns how many bytes of it there were.
    pub fn give_up(&mut self) -> u64 {
        let spool = self.spool.take();
        self.consumer.set_note(NOTE_SKIPPED, spool.as_ref().map_or(self.pos, |s| s.start) + 1);
        let spooled = spool.map_or(0, |s| s.len);
        // Counted as released when they were spooled: after SIGKILL nothing else would show that they are missing.
        self.note_lost(spooled);
        if self.consumer.spool_start().is_some() {
            self.consumer.set_spool_start(None);
            let _ = self.files.remove(&self.spool_path);
        }
        self.next = None;
        self.stuck = false;
        self.skipping = true;
        self.unsettled = true;
        spooled + self.skip_line()
    }

    /// Bytes of messages that were given up since the last call.
    pub fn take_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.skipped)
    }

    fn skip_line(&mut self) -> u64 {
        let (window, last) = self.window();
        let newline = memchr::memchr(b'\n', window);
        let n = newline.map_or(window.len(), |at| at + 1);
        self.skipping = newline.is_none() && !last;
        self.pos += n as u64;
        self.scanned = 0;
        n as u64
    }

    /// Whether a message that is not whole yet fills the ring.
    #[must_use]
    pub fn is_stuffed(&self) -> bool {
        self.next.is_none() && self.window().0.len() * 4 > self.consumer.bound() * 3
    }

    /// Whether what was taken and is not on disk holds a message that a guard judged and passed on.
    #[must_use]
    pub const fn holds_passed(&self) -> bool {
        self.holds_passed
    }

    /// Hands out what [`Lane::peek`] found and moves after it.
    ///
    /// # Errors
    /// The spool cannot be mapped.
    pub fn take<R>(&mut self, read_ns: u64, with: impl FnOnce(Taken<'_>) -> R) -> io::Result<Option<R>> {
        let Some((next, _)) = self.next.take() else { return Ok(None) };
        self.scanned = 0;
        self.unsettled = true;
        match next {
            Next::Gap(bytes) => {
                self.gaps_done += 1;
                Ok(Some(with(Taken::Gap(bytes))))
            }
            Next::Torn { len } => {
                if self.spool.take().is_none() {
                    self.pos += len;
                }
                Ok(Some(with(Taken::Torn(len))))
            }
            Next::Ring { skip, len, tail } => {
                let offset = self.pos + skip as u64;
                let end = offset + (len + tail) as u64;
                let at = (self.pos - self.consumer.tail()) as usize + skip;
                let bytes = self.consumer.available().get(at..at + len).unwrap_or_default();
                let first_byte_ns = self.consumer.read_mark(offset).unwrap_or(read_ns);
                let ruling = self.judged(self.pos);
                let rest = || give_way(&self.consumer);
                self.holds_passed |= ruling.as_ref().is_some_and(is_passed);
                let message = Message {
                    place: MessagePlace::stdio(self.direction, offset),
                    end,
                    bytes,
                    sha256: &OnceCell::new(),
                    page: None,
                    rest: &rest,
                    first_byte_ns,
                    read_ns,
                    ruling: ruling.as_ref(),
                    undecided: self.is_undecided(self.pos),
                    anomalies: &[],
                    resumable: false,
                };
                let result = with(Taken::Message(&message));
                self.pos = end;
                Ok(Some(result))
            }
            Next::Spool { len } => self.take_spooled(len, read_ns, with).map(Some),
        }
    }

    fn take_spooled<R>(&mut self, len: u64, read_ns: u64, with: impl FnOnce(Taken<'_>) -> R) -> io::Result<R> {
        let Some(spool) = self.spool.take() else { return Err(io::Error::other("no spool")) };
        let map = FileMap::new(&spool.file, 0, usize::try_from(len).map_err(io::Error::other)?)?;
        let last = Cell::new(0usize);
        let release = |upto: usize| {
            // A new pass begins at the front again.
            if upto < last.get() || upto - last.get() >= RELEASED {
                map.release(upto);
                last.set(upto);
            }
        };
        let ruling = self.judged(spool.start);
        self.holds_passed |= ruling.as_ref().is_some_and(is_passed);
        let message = Message {
            ruling: ruling.as_ref(),
            undecided: self.is_undecided(spool.start),
            place: MessagePlace::stdio(self.direction, spool.start),
            end: self.pos,
            bytes: &map,
            sha256: &OnceCell::new(),
            page: Some(&release),
            rest: &|| give_way(&self.consumer),
            first_byte_ns: self.consumer.read_mark(spool.start).unwrap_or(read_ns),
            read_ns,
            anomalies: &[],
            resumable: false,
        };
        let result = with(Taken::Message(&message));
        Ok(result)
    }

    /// The evidence of everything taken is on disk: spools are no longer needed.
    pub fn settled(&mut self) {
        self.unsettled = false;
        self.holds_passed = false;
        // Done first, so that the ring never begins in the middle of a message whose spool is gone.
        self.release();
        self.consumer.set_note(NOTE_LOST, 0);
        if let Some(rulings) = &self.rulings {
            rulings.settled(self.direction, self.spool.as_ref().map_or(self.pos, |s| s.start));
        }
        if self.spool.is_none() && self.consumer.spool_start().is_some() {
            self.consumer.set_spool_start(None);
            if let Err(e) = self.files.remove(&self.spool_path) {
                tracing::warn!(path = %self.spool_path.display(), error = %e, "a spool could not be removed");
            }
        }
    }

    /// Removes the ring file and any spool: the session is over.
    pub fn remove(&self) {
        if let Err(e) = self.consumer.remove() {
            tracing::warn!(error = %e, "a ring file could not be removed");
        }
        if let Some(rulings) = &self.rulings {
            rulings.remove();
        }
        let _ = self.files.remove(&self.spool_path);
    }
}

/// A thread that was woken for a message that crosses waits for the end of this one's turn, which may take
/// milliseconds.
fn give_way(consumer: &Consumer) {
    if !consumer.is_closed() && consumer.available().len() * 2 < consumer.bound() {
        std::thread::yield_now();
    }
}

/// The message was judged, not only framed, and may have been acted upon.
fn is_passed(ruling: &RulingRecord) -> bool {
    !ruling.blocked && !ruling.decisions.is_empty()
}
