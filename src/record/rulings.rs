//! What a guard decided about messages, on its way to the recorder.
//!
//! A guard decides in the relay thread, before a byte of a message passes on; budgets and name resolution make sure
//! that nobody else can find out later what it decided. So it writes each decision into a capture of its own
//! (`decisions` of the card) *before* the message passes: whatever a peer can have seen of a message, its decision is
//! in the same memory, which survives SIGKILL. A message that has none although the guard is past it was passed on
//! without a decision (a response, `tools/list`); one that the guard was not past was never passed on.
//!
//! A ruling is its length (32 bits, little-endian) and a [`RulingRecord`] in postcard's format; a change of either is a
//! new [version](crate::relay::capture::VERSION) of the capture.
//!
//! In audit nothing is held, and the recorder asks the [judge](super::judge::Judge) itself.

use super::judge::Decision;
use crate::{
    model::{Direction, PolicyReason, PolicyVerdict, Word},
    relay::{Consumer, Producer},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Capacity in bytes of the capture that carries rulings.
pub const CAPACITY: usize = 1 << 20;
/// Bytes of the length before a decision.
const LENGTH: usize = 4;
/// How long a writer waits for room before it takes the recorder for stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was decided about one message as it crossed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulingRecord {
    /// The direction of the message.
    pub direction: Direction,
    /// Stream offset of its first byte, headers included.
    pub offset: u64,
    /// Bytes of Content-Length headers and of the body after them, where it is framed so; a line otherwise.
    pub frame: Option<(usize, usize)>,
    /// It was not passed on.
    pub blocked: bool,
    /// When it was decided, monotonic ns.
    pub ns: u64,
    /// `sha256:` of the policy in force.
    pub policy: String,
    /// What was decided about it, or about the elements of the batch that it is.
    pub decisions: Vec<Decision>,
}

impl RulingRecord {
    /// What was decided about this element. Everything in a blocked message is blocked: what was not judged by itself
    /// goes with what was.
    #[must_use]
    pub fn of(&self, index: Option<usize>) -> Option<&Decision> {
        let exact = self.decisions.iter().find(|r| r.index == index);
        exact.or_else(|| self.decisions.iter().find(|r| r.verdict == PolicyVerdict::Denied).filter(|_| self.blocked))
    }

    /// Why it was not passed on.
    #[must_use]
    pub fn why(&self) -> Word<PolicyReason> {
        let denied = self.decisions.iter().find(|r| r.verdict == PolicyVerdict::Denied);
        denied.map_or(PolicyReason::GuardRefused.into(), |r| r.reason.clone())
    }
}

/// A ruling as a log of exchanges carries it.
impl RulingRecord {
    /// In postcard's format.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // A `Vec` takes everything, and nothing in a ruling has a length that is not known.
        postcard::to_extend(self, Vec::new()).unwrap_or_default()
    }

    /// From these bytes; `None` if they are none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(ruling, _)| ruling)
    }
}

/// The end of the guard, which writes rulings.
#[derive(Debug)]
pub struct RulingWriter {
    producer: Producer,
    patience: Duration,
}

impl RulingWriter {
    /// Writes into this capture.
    #[must_use]
    pub fn new(producer: Producer) -> Self {
        Self { producer, patience: PATIENCE }
    }

    /// A recorder that makes no room for this long is taken for stuck.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Puts a decision where the recorder finds it, also after SIGKILL. `false`: there was no room in time, or none at
    /// once unless `patient`, or it cannot be put down; nothing was written.
    #[must_use]
    pub fn push(&mut self, ruling: &RulingRecord, patient: bool) -> bool {
        let mut start = None;
        loop {
            if self.producer.put(|space| write(ruling, space)) {
                return true;
            }
            let start = *start.get_or_insert_with(Instant::now);
            if !patient || start.elapsed() > self.patience || self.producer.is_drained() {
                return false;
            }
            self.producer.urge();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Writes a decision to the beginning of `space`; returns how many bytes it takes; `None` if there is no room.
fn write(ruling: &RulingRecord, space: &mut [u8]) -> Option<usize> {
    let (length, body) = space.split_first_chunk_mut::<LENGTH>()?;
    let used = postcard::to_slice(ruling, body).ok()?.len();
    *length = u32::try_from(used).ok()?.to_le_bytes();
    Some(LENGTH + used)
}

/// The recorder's end; shared by the two directions, used by one thread.
#[derive(Debug, Clone)]
pub struct RulingReader(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    consumer: Consumer,
    /// Bytes after the released ones that are in `queue`.
    read: usize,
    queue: VecDeque<(RulingRecord, usize)>,
    /// Up to where each direction was recorded.
    done: [u64; 2],
}

impl RulingReader {
    /// Reads from this capture.
    #[must_use]
    pub fn new(consumer: Consumer) -> Self {
        Self(Arc::new(Mutex::new(Inner { consumer, read: 0, queue: VecDeque::new(), done: [0, 0] })))
    }

    /// Opens the decisions that a dead session left.
    ///
    /// # Errors
    /// As [`Consumer::open`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Consumer::open(path).map(Self::new)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Consumer::prefault`].
    pub fn prefault(&self) {
        self.lock().consumer.prefault();
    }

    /// The ring file, if it has a name.
    #[must_use]
    pub fn path(&self) -> Option<std::path::PathBuf> {
        self.lock().consumer.path().map(Path::to_owned)
    }

    /// The ruling on the message at this place.
    #[must_use]
    pub fn find(&self, direction: Direction, offset: u64) -> Option<RulingRecord> {
        let mut inner = self.lock();
        inner.fill();
        let mut same = inner.queue.iter().map(|(j, _)| j).filter(|j| j.direction == direction);
        same.find(|j| j.offset >= offset).filter(|j| j.offset == offset).cloned()
    }

    /// Whether more than a few rulings wait to be released: while there is no room for another one, no call passes.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.lock().consumer.is_filling()
    }

    /// Releases rulings: the evidence of everything before `upto` is on disk.
    pub fn settled(&self, direction: Direction, upto: u64) {
        let mut inner = self.lock();
        inner.done[direction.lane()] = upto;
        while let Some((j, len)) = inner.queue.front()
            && j.offset < inner.done[j.direction.lane()]
        {
            let len = *len;
            inner.queue.pop_front();
            inner.read -= len;
            inner.consumer.advance(len);
        }
    }

    /// Removes the ring file: the session is over. Idempotent.
    pub fn remove(&self) {
        if let Err(e) = self.lock().consumer.remove() {
            tracing::warn!(error = %e, "a ring file could not be removed");
        }
    }
}

impl Inner {
    fn fill(&mut self) {
        let Self { consumer, read, queue, .. } = self;
        let new = consumer.available().get(*read..).unwrap_or_default();
        let mut at = 0;
        while let Some((length, rest)) = new[at..].split_first_chunk::<LENGTH>() {
            let len = (u32::from_le_bytes(*length) as usize).min(rest.len());
            let ruling = postcard::from_bytes(&rest[..len]).unwrap_or_else(|e| {
                // Only this process writes there. A place that is kept free keeps the lengths right.
                tracing::error!(error = %e, "a decision cannot be read");
                RulingRecord {
                    direction: Direction::ClientToServer,
                    offset: 0,
                    frame: None,
                    blocked: false,
                    ns: 0,
                    policy: String::new(),
                    decisions: Vec::new(),
                }
            });
            queue.push_back((ruling, LENGTH + len));
            at += LENGTH + len;
        }
        *read += at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::{self, Capture, Waker};

    fn ruling(offset: u64, direction: Direction) -> RulingRecord {
        let denied = Decision {
            index: Some(1),
            verdict: PolicyVerdict::Denied,
            reason: "denylist".into(),
            rule: Some("denylist[0]".into()),
            unseen: vec!["redirects_not_seen".into()],
        };
        RulingRecord {
            direction,
            offset,
            frame: None,
            blocked: true,
            ns: 5,
            policy: "sha256:x".into(),
            decisions: vec![denied],
        }
    }

    #[test]
    fn decisions_are_found_by_place_and_forgotten_when_settled() {
        let dir = tempfile::tempdir().unwrap();
        let waker = Arc::new(Waker::new());
        let dirs = [dir.path().join("ring")];
        let made = Capture::create(&dirs, "0123456789abcdef", relay::Direction::Decisions, 4096, &waker).unwrap();
        let (mut writer, reader) = (RulingWriter::new(made.0), RulingReader::new(made.1));
        let (c2s, s2c) = (Direction::ClientToServer, Direction::ServerToClient);
        for round in 0..100 {
            for j in [ruling(round * 10, c2s), ruling(round * 10 + 3, s2c), ruling(round * 10 + 5, c2s)] {
                assert!(writer.push(&j, true));
            }
            assert_eq!(reader.find(c2s, round * 10 + 1), None);
            assert_eq!(reader.find(s2c, round * 10 + 3), Some(ruling(round * 10 + 3, s2c)));
            assert_eq!(reader.find(c2s, round * 10 + 5), Some(ruling(round * 10 + 5, c2s)));
            reader.settled(c2s, round * 10 + 6);
            assert!(reader.find(s2c, round * 10 + 3).is_some(), "the other direction is not settled");
            reader.settled(s2c, round * 10 + 4);
        }
        assert_eq!(reader.lock().queue.len(), 0);
        assert!(!reader.is_filling());
        (0..8).for_each(|n| assert!(writer.push(&ruling(2000 + n, c2s), true)));
        assert!(reader.is_filling(), "an eighth of the ring");
    }

    #[test]
    fn what_is_written_is_read_and_what_cannot_be_read_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let waker = Arc::new(Waker::new());
        let dirs = [dir.path().join("ring")];
        let (mut producer, consumer, _) =
            Capture::create(&dirs, "0123456789abcdef", relay::Direction::Decisions, 4096, &waker).unwrap();
        let c2s = Direction::ClientToServer;
        let plain = ruling(7, c2s);
        let many = RulingRecord {
            frame: Some((20, 300)),
            blocked: false,
            decisions: vec![
                Decision { index: None, rule: None, unseen: Vec::new(), ..plain.decisions[0].clone() },
                Decision { rule: Some("constraints.\"\\\n\u{7f}é".into()), ..plain.decisions[0].clone() },
            ],
            ..ruling(8, c2s)
        };
        let last = RulingRecord { decisions: Vec::new(), ..ruling(u64::MAX, Direction::ServerToClient) };
        for ruling in [&plain, &many] {
            assert!(producer.put(|space| write(ruling, space)));
            let bytes = ruling.to_bytes();
            assert_eq!(RulingRecord::from_bytes(&bytes).as_ref(), Some(ruling));
            assert_eq!(RulingRecord::from_bytes(&bytes[1..]).as_ref(), None);
        }
        assert!(producer.put(|space| {
            space[..7].copy_from_slice(b"\x03\0\0\0\xff\xff\xff");
            Some(7)
        }));
        assert!(producer.put(|space| write(&last, space)));
        let reader = RulingReader::new(consumer);
        assert_eq!(reader.find(c2s, 7), Some(plain));
        assert_eq!(reader.find(c2s, 8), Some(many));
        assert_eq!(reader.find(Direction::ServerToClient, u64::MAX), Some(last));
        assert!(producer.put(|space| {
            space[..5].copy_from_slice(b"\xff\xff\xff\xff\0");
            Some(5)
        }));
        assert_eq!(reader.find(c2s, 9), None);
        reader.settled(c2s, 9);
        reader.settled(Direction::ServerToClient, u64::MAX);
        assert_eq!(reader.lock().queue.len(), 2, "the last of the other direction, and what stands behind it");
    }

    #[test]
    fn without_room_nothing_is_put_down_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let waker = Arc::new(Waker::new());
        let dirs = [dir.path().join("ring")];
        let made = Capture::create(&dirs, "0123456789abcdef", relay::Direction::Decisions, 4096, &waker).unwrap();
        let (mut writer, reader) = (RulingWriter::new(made.0), RulingReader::new(made.1));
        writer.set_patience(Duration::ZERO);
        let c2s = Direction::ClientToServer;
        let mut next = 0;
        for _ in 0..50 {
            let first = next;
            while writer.push(&ruling(next, c2s), true) {
                next += 1;
            }
            assert!((5..100).contains(&(next - first)), "{first} {next}");
            for offset in first..next {
                assert_eq!(reader.find(c2s, offset), Some(ruling(offset, c2s)));
            }
            assert_eq!(reader.find(c2s, next), None);
            reader.settled(c2s, next);
        }
    }

    #[test]
    fn everything_in_a_blocked_batch_is_blocked() {
        let j = ruling(0, Direction::ClientToServer);
        assert_eq!(j.of(Some(1)).unwrap().reason, "denylist");
        assert_eq!(j.of(Some(0)).unwrap().reason, "denylist");
        assert_eq!(RulingRecord { blocked: false, ..j }.of(Some(0)), None);
    }
}
