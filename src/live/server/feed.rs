//! From the growing segment to lines for subscribers.

use crate::{
    lines::Lines,
    live::{
        fold::Fold,
        hub::Mark,
        journal,
        protocol::{LiveLine, RunCard},
        ring::{Entry, Ring},
        row::Totals,
    },
    model::{SessionId, reading::Reading},
};
use std::io;

/// Bytes of the end of a long segment that the first subscriber gets, or that are read after this thread fell behind;
/// less if many sessions share the memory for it. A segment of up to twice that length is read from its beginning.
const TAIL: u64 = 4 << 20;
/// But at least this many bytes, more than the longest event has.
const LEAST_TAIL: u64 = 1 << 20;
/// If this thread is further behind than this, it skips what is between.
const TOO_FAR: u64 = 16 << 20;
/// Bytes read in one round, or a quarter of what may be kept: a subscriber that reads at once must lose nothing.
const AT_ONCE: u64 = 256 << 10;

/// Where the feed is.
#[derive(Debug, Clone, Default)]
pub(in crate::live) struct Head {
    /// Cursor of the next event.
    pub cursor: u64,
    /// Hash of the last event.
    pub hash: Option<String>,
    /// Counts so far.
    pub totals: Totals,
}

#[derive(Debug)]
pub(super) struct Feed {
    lines: Lines,
    session: SessionId,
    fold: Fold,
    cursor: u64,
    hash: Option<String>,
    started_ns: u64,
    server_id: String,
    /// Take the counts from the recorder at the next mark: not everything was read.
    uncounted: bool,
}

impl Feed {
    /// The feed of a session that has begun, after the one of the session before.
    pub fn open(before: Option<Self>, card: &RunCard) -> io::Result<Self> {
        let lines = Lines::of(crate::paths::open_journal(&card.segment)?);
        let started_ns = card.card.started_mono_ns;
        let mut fold = Fold::default();
        if let Some(before) = before {
            fold = before.fold;
            fold.rolls((started_ns as i64 - before.started_ns as i64).div_euclid(1000));
        }
        let server_id = card.card.server_id.clone();
        let session = card.card.session_id;
        Ok(Self { lines, session, fold, cursor: 0, hash: None, started_ns, server_id, uncounted: false })
    }

    pub fn head(&self) -> Head {
        Head { cursor: self.cursor, hash: self.hash.clone(), totals: self.fold.totals() }
    }

    /// Whether there is something to read, given the segment's length in bytes.
    pub fn is_behind(&self, segment_len: u64) -> bool {
        self.lines.position() < segment_len
    }

    /// Makes lines of what is there, up to `end` where the session has ended: of all of it if `eager`, else of a piece.
    pub fn read(
        &mut self,
        mark: Mark,
        end: Option<u64>,
        eager: bool,
        next: Option<SessionId>,
        ring: &mut Ring,
    ) -> io::Result<()> {
        let good = end.unwrap_or(mark.segment_len);
        let behind = good.saturating_sub(self.lines.position());
        let tail = TAIL.min(ring.max() as u64 / 2).max(LEAST_TAIL);
        let passed_over = behind > TOO_FAR || self.lines.position() == 0 && behind > 2 * tail;
        if passed_over {
            self.lines.seek(good - tail)?;
            self.fold.forget();
            self.fold.set_server(&self.server_id);
            self.uncounted = true;
        }
        let at_once = AT_ONCE.min(ring.max() as u64 / 4);
        let limit = if eager || self.uncounted { good } else { good.min(self.lines.position() + at_once) };
        let Self { lines, fold, cursor, hash, session, .. } = self;
        let mut next_event = (!passed_over).then_some(*cursor);
        let mut each = |line: &[u8]| {
            let (seq, event) = journal::event(line, next_event);
            next_event = Some(seq.saturating_add(1));
            let mut told = match event {
                Reading::Readable(event) => {
                    let told = fold.event(&event);
                    *hash = Some(event.hash);
                    told
                }
                Reading::TooNew(e) => fold.unread(*session, seq, e.to_string()),
                Reading::Damaged(why) => fold.unread(*session, seq, why),
            };
            if let LiveLine::SessionEnd(c) = &mut told
                && let Some(end) = &mut c.end
            {
                end.next = next;
            }
            *cursor = seq.saturating_add(1);
            ring.push(Entry { cursor: seq, chained: true, is_content: false, bytes: told.to_bytes().into() });
        };
        let before = lines.position();
        while let Some(line) = lines.whole(limit)? {
            each(line.bytes);
        }
        if lines.position() == before
            && limit < good
            // A line that is longer than what is read at once.
            && let Some(line) = lines.whole(good)?
        {
            each(line.bytes);
        }
        // Most sessions of a process with many are quiet.
        if self.lines.position() >= good {
            self.lines.pause();
        }
        if self.uncounted && end.is_none() {
            self.uncounted = false;
            let Mark { calls: finished, denied, errors, timeouts, .. } = mark;
            self.fold.set_totals(Totals { started: 0, finished, denied, errors, timeouts });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{live::discovery::tests::run_card, model::SessionId};
    use assay_support::sessions::{self, Plan};

    #[test]
    fn a_line_longer_than_what_is_read_at_once_holds_nothing_up() {
        let tmp = tempfile::tempdir().unwrap();
        let written = sessions::write(&Plan { calls: 1500, ..Plan::default() }, tmp.path()).unwrap();
        let (path, id) = (written.paths.segment, SessionId::from_bits(written.paths.id.bits()));
        let pad = format!("\"tool_name\":\"{}", "x".repeat(3 * AT_ONCE as usize));
        let text = std::fs::read_to_string(&path).unwrap();
        let long =
            |(n, line): (usize, &str)| if n == 3001 { line.replace("\"tool_name\":\"", &pad) } else { line.to_owned() };
        std::fs::write(&path, text.lines().enumerate().map(long).fold(String::new(), |all, l| all + &l + "\n"))
            .unwrap();
        let card = RunCard { segment: path.clone(), ..run_card(id) };
        let mark = Mark { segment_len: path.metadata().unwrap().len(), ..Mark::default() };
        let (mut feed, mut ring) = (Feed::open(None, &card).unwrap(), Ring::new(8 << 20));
        let mut rounds = 0;
        while feed.is_behind(mark.segment_len) {
            feed.read(mark, None, false, None, &mut ring).unwrap();
            rounds += 1;
            assert!(rounds < 200, "it stands at event {}", feed.head().cursor);
        }
        assert!(rounds > 5);
        assert_eq!((feed.head().cursor, ring.end()), (6002, 6002));
    }

    #[test]
    fn an_event_that_does_not_read_is_told_in_its_place_and_counted() {
        let tmp = tempfile::tempdir().unwrap();
        let written = sessions::write(&Plan { calls: 20, ..Plan::default() }, tmp.path()).unwrap();
        let (path, id) = (written.paths.segment, written.paths.id);
        let text = std::fs::read_to_string(&path).unwrap();
        let bad = |(n, line): (usize, &str)| match n {
            7 => line.replace("\"v\":1", &format!("\"v\":{}", crate::model::event::EVENT_VERSION + 1)),
            9 => "\0".repeat(line.len()),
            10 => line.replace("\"event_seq\":10", "\"event_seq\":\"10\""),
            _ => line.to_owned(),
        };
        let text = text.lines().enumerate().map(bad).fold(String::new(), |all, l| all + &l + "\n");
        std::fs::write(&path, &text).unwrap();
        let card = RunCard { segment: path, ..run_card(id) };
        let mark = Mark { segment_len: text.len() as u64, ..Mark::default() };
        let (mut feed, mut ring) = (Feed::open(None, &card).unwrap(), Ring::new(8 << 20));
        feed.read(mark, None, true, None, &mut ring).unwrap();
        assert_eq!(feed.head().cursor, 82);
        let lines: Vec<LiveLine> = (0..82).map(|n| LiveLine::parse(&ring.get(n).unwrap().bytes).unwrap()).collect();
        assert!(lines.iter().enumerate().all(|(n, line)| line.place() == Some((id, n as u64))));
        let unread: Vec<_> =
            lines.iter().filter_map(|l| if let LiveLine::Unread(u) = l { Some(u) } else { None }).collect();
        assert_eq!(unread.iter().map(|u| (u.cursor, u.unread)).collect::<Vec<_>>(), [(7, 1), (9, 2), (10, 3)]);
        assert!(unread[0].why.contains("too new") && !unread[1].why.is_empty(), "{unread:?}");
    }
}
