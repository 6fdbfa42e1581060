//! The layout of a ring file. All numbers are little-endian `u64`; offsets in bytes.
//!
//! | at | size | field | written by |
//! |---|---|---|---|
//! | 0 | 8 | magic `ASSAYRNG` | creator |
//! | 8 | 8 | format version, see [`VERSION`] | creator |
//! | 16 | 8 | header bytes `H` (ring data starts there) | creator |
//! | 24 | 8 | capacity in bytes, a power of two | creator |
//! | 32 | 8 | marks per mark ring `N`, a power of two | creator |
//! | 40 | 8 | direction: 0 client to server, 1 server to client, 2 server stderr, 3 decisions, 4 log (version 6) | creator |
//! | 48 | 16 | session id, 16 lower-case hex digits | creator |
//! | 64 | 8 | pid of the owner | creator |
//! | 72 | 8 | start time of the owner, clock ticks since boot, 0 if unknown | creator |
//! | 80 | 8 | creation, monotonic ns | creator |
//! | 1024 | 8 | `head` | producer |
//! | 1032 | 8 | `written` | producer |
//! | 1280 | 8 | `tail` | consumer |
//! | 1288 | 8 | `base`: the stream offset that is at the first place (version 5) | consumer |
//! | 2048 | 8 | closed (0 or 1) | producer |
//! | 2056 | 8 | gap slots in use | producer |
//! | 2064 | 8 | bytes in gaps, total; in a log, bytes of gaps of which no record tells | producer |
//! | 2072 | 8 | read marks made so far | producer |
//! | 2080 | 8 | write marks made so far | producer |
//! | 2088 | 8 | guarded: 1 if nothing is passed on before it was decided (version 2) | producer |
//! | 2096 | 8 | decided: stream offset up to which a guard has decided (version 2) | producer |
//! | 2104 | 8 | refusals that no decision tells of (version 2); in a log, other entries of which no record tells | producer |
//! | 2176 | 8 | spool start, `u64::MAX` if none | consumer |
//! | 2184 | 8 | wall clock minus monotonic clock, ns, signed | consumer |
//! | 2240 | 64 | eight words for the recorder's own use | consumer |
//! | 4096 | 2048 | 64 gap slots: stream offset, bytes, first ns, last ns | producer |
//! | 6144 | 2048 | stream offsets of the first 256 messages of 2104 (version 2) | producer |
//! | 8192 | 26624 | for each of them, the offset of the last message of its run: all between were refused, too (version 4) | producer |
//! | 34816 | 24576 | stream offsets of the others (version 4) | producer |
//! | 65536 | 16·N | read marks: end offset, ns; mark `i` is in slot `i mod N` | producer |
//! | 65536+16·N | 16·N | write marks, same | producer |
//! | H = 65536+32·N | capacity | bytes; offset `o` is at `H + ((o - base) mod capacity)` | producer |

use super::Direction;
use crate::{model::reading::TooNew, sys::RingMemory};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// `ASSAYRNG` as it is in the file.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"ASSAYRNG");

/// Where the magic is, in bytes.
pub(super) const MAGIC_AT: u64 = 0;
/// Where the version is, in bytes.
pub(super) const VERSION_AT: u64 = 8;
/// Where `head` is, in bytes.
pub(super) const HEAD_AT: u64 = 1024;

/// Format of ring files.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | what a guard decided: guarded, decided, refusals without a decision |
/// | 3 | decisions are not lines of JSON any more |
/// | 4 | refusals without a decision are runs of messages |
/// | 5 | `base`: the stream continues at the first place when the ring is empty |
/// | 6 | logs of exchanges |
/// | 7 | logs of a bridge: which messages an exchange carries, which transport the server speaks, that it has lost the session |
/// | 8 | logs under a guard: that a session begins with a request that is held |
pub const VERSION: u64 = 8;
/// Whether this word is a version above those that are read. A later minor one is in the upper half of the word.
pub(super) fn newer(word: u64) -> Option<TooNew> {
    let (major, minor) = (word & u64::from(u32::MAX), word >> 32);
    let found = if minor == 0 { major.to_string() } else { format!("{major}.{minor}") };
    (word > VERSION).then(|| TooNew { what: "capture", found, known: VERSION.to_string() })
}

/// The first version with decisions that can be read.
const DECISIONS_SINCE: u64 = 3;
/// The first version with logs.
const LOGS_SINCE: u64 = 6;

/// Marks kept per mark ring.
pub(super) const MARKS: u64 = 16 * 1024;
pub(super) const GAPS: usize = 64;
/// Largest capacity that is accepted: 1 GiB.
pub(super) const MAX_CAPACITY: u64 = 1 << 30;
/// Runs of refusals that no decision tells of, at most.
pub(super) const BLIND: usize = 3328;
/// How many of these are in the first table.
const BLIND_FIRST: usize = 256;
/// `spool_start` when nothing is spooled.
pub(super) const NO_SPOOL: u64 = u64::MAX;
/// Words for the recorder's own use.
pub const NOTES: usize = 8;

const REGION_B: usize = 2048;

/// Words of region A, by index.
pub(super) mod a {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const HEADER: usize = 2;
    pub const CAPACITY: usize = 3;
    pub const MARKS: usize = 4;
    pub const DIRECTION: usize = 5;
    pub const SESSION: usize = 6;
    pub const OWNER: usize = 8;
    pub const OWNER_START: usize = 9;
    pub const CREATED: usize = 10;
    /// Words that [`super::Fixed::parse`] wants.
    pub const COUNT: usize = 11;
}

/// Words of region B, by index.
pub(super) mod b {
    use super::REGION_B;
    const fn at(byte: usize) -> usize {
        (byte - REGION_B) / 8
    }
    pub const CLOSED: usize = at(2048);
    pub const GAP_COUNT: usize = at(2056);
    pub const GAP_BYTES: usize = at(2064);
    pub const READ_MARKS: usize = at(2072);
    pub const WRITE_MARKS: usize = at(2080);
    pub const GUARDED: usize = at(2088);
    pub const DECIDED: usize = at(2096);
    pub const BLIND_COUNT: usize = at(2104);
    pub const SPOOL_START: usize = at(2176);
    pub const WALL_OFFSET: usize = at(2184);
    pub const NOTES: usize = at(2240);
    pub const GAP_TABLE: usize = at(4096);
    pub const BLIND_TABLE: usize = at(6144);
    pub const BLIND_UPTO: usize = at(8192);
    pub const BLIND_MORE: usize = at(34816);
    pub const MARK_TABLE: usize = at(65536);
}

/// Header bytes for `marks` marks per ring.
pub(super) const fn header_bytes(marks: u64) -> u64 {
    65536 + 32 * marks
}

/// Where the stream offset of a run of refusals is, in bytes.
#[inline]
pub(super) const fn blind_at(run: usize) -> usize {
    if run < BLIND_FIRST { b::BLIND_TABLE + run } else { b::BLIND_MORE + run - BLIND_FIRST }
}

/// Loads a word with acquire order.
#[inline]
pub(super) fn get(words: &[AtomicU64], at: usize) -> u64 {
    words.get(at).map_or(0, |word| u64::from_le(word.load(Ordering::Acquire)))
}

/// Stores a word with release order.
#[inline]
pub(super) fn put(words: &[AtomicU64], at: usize, value: u64) {
    if let Some(word) = words.get(at) {
        word.store(value.to_le(), Ordering::Release);
    }
}

/// The fields that never change after creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed {
    pub capacity: u64,
    pub marks: u64,
    pub direction: u64,
    pub session: [u8; 16],
    pub owner: u64,
    pub owner_start: u64,
    pub created: u64,
}

impl Fixed {
    pub(super) fn header(&self) -> u64 {
        header_bytes(self.marks)
    }

    /// Writes the fields into a fresh header, the magic last.
    pub(super) fn write(&self, memory: &RingMemory) {
        let words = memory.region_a();
        put(words, a::VERSION, VERSION);
        put(words, a::HEADER, self.header());
        put(words, a::CAPACITY, self.capacity);
        put(words, a::MARKS, self.marks);
        put(words, a::DIRECTION, self.direction);
        put(words, a::SESSION, half(&self.session, 0));
        put(words, a::SESSION + 1, half(&self.session, 8));
        put(words, a::OWNER, self.owner);
        put(words, a::OWNER_START, self.owner_start);
        put(words, a::CREATED, self.created);
        put(memory.region_b(), b::SPOOL_START, NO_SPOOL);
        put(words, a::MAGIC, MAGIC);
    }

    /// Reads and checks the first bytes of a ring file of `file_bytes` bytes.
    pub(super) fn parse(head: &[u8; 8 * a::COUNT], file_bytes: u64) -> io::Result<Self> {
        let word = |at: usize| half(head, at * 8);
        if word(a::MAGIC) != MAGIC {
            return Err(corrupt("not a ring file (wrong magic)"));
        }
        // What version 2 added reads as "no guard" in a ring of version 1.
        if let Some(e) = newer(word(a::VERSION)) {
            return Err(e.into());
        }
        if word(a::VERSION) == 0 {
            return Err(corrupt("ring file of an unknown format version"));
        }
        if word(a::DIRECTION) == Direction::Decisions.to_word() && word(a::VERSION) < DECISIONS_SINCE {
            return Err(corrupt("decisions written by an earlier version of assay, which can read them"));
        }
        if word(a::DIRECTION) == Direction::Log.to_word() && word(a::VERSION) < LOGS_SINCE {
            return Err(corrupt("a log of exchanges of a version that had none"));
        }
        let mut session = [0; 16];
        session.copy_from_slice(&head[a::SESSION * 8..][..16]);
        let fixed = Self {
            capacity: word(a::CAPACITY),
            marks: word(a::MARKS),
            direction: word(a::DIRECTION),
            session,
            owner: word(a::OWNER),
            owner_start: word(a::OWNER_START),
            created: word(a::CREATED),
        };
        if !fixed.capacity.is_power_of_two() || fixed.capacity > MAX_CAPACITY {
            return Err(corrupt("ring capacity out of range"));
        }
        if !fixed.marks.is_power_of_two() || fixed.marks > 1 << 24 || word(a::HEADER) != fixed.header() {
            return Err(corrupt("ring header size out of range"));
        }
        if file_bytes != fixed.header() + fixed.capacity {
            return Err(corrupt("ring file has the wrong length"));
        }
        if !session.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(corrupt("ring session id is not hexadecimal"));
        }
        Ok(fixed)
    }
}

fn half(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(part) = bytes.get(at..at + 8) {
        word.copy_from_slice(part);
    }
    u64::from_le_bytes(word)
}

/// An error about the file's contents.
pub(super) fn corrupt(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
