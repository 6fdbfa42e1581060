//! From the growing segment to lines for subscribers.

use crate::{
    lines::Lines,
    live::{
        fold::Fold,
        hub::Mark,
        protocol::{Line, RunCard},
        ring::{Entry, Ring},
        row::Totals,
    },
    model::{AuditEvent, SessionId},
};
use std::io;

/// A segment is read from its beginning if it is no longer than this; from a longer one only the end.
const WHOLE: u64 = 8 << 20;
/// So much of the end of a long segment is told to the first who comes, or after this thread fell behind.
const TAIL: u64 = 4 << 20;
/// Further behind than this, what lies between is passed over.
const TOO_FAR: u64 = 16 << 20;
/// So much is read in one round.
const AT_ONCE: u64 = 256 << 10;

/// Where the feed is.
#[derive(Debug, Clone)]
pub(in crate::live) struct Head {
    /// Cursor of the next event.
    pub cursor: u64,
    /// Hash of the last event.
    pub hash: Option<String>,
    /// Counts so far.
    pub totals: Totals,
}

pub(super) struct Feed {
    lines: Lines,
    number: u32,
    fold: Fold,
    cursor: u64,
    hash: Option<String>,
    started_ns: u64,
    server_id: String,
    /// Counts are to be taken from the recorder at the next mark that is reached: not everything was read.
    uncounted: bool,
}

impl Feed {
    /// The feed of a session that has begun, after the one of the session before.
    pub fn open(before: Option<Self>, card: &RunCard, number: u32) -> io::Result<Self> {
        let lines = Lines::of(crate::files::plain(&card.segment)?);
        let started_ns = card.card.started_mono_ns;
        let mut fold = Fold::default();
        if let Some(before) = before {
            fold = before.fold;
            fold.rolls((started_ns as i64 - before.started_ns as i64).div_euclid(1000));
        }
        let server_id = card.card.server_id.clone();
        Ok(Self { lines, number, fold, cursor: 0, hash: None, started_ns, server_id, uncounted: false })
    }

    pub fn head(&self) -> Head {
        Head { cursor: self.cursor, hash: self.hash.clone(), totals: self.fold.totals() }
    }

    /// Cursor of the next event.
    pub const fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Whether there is something to read.
    pub fn is_behind(&self, mark: Mark) -> bool {
        self.lines.position() < mark.segment_len
    }

    /// Makes lines of what is there: up to `end` where the session has ended; of all of it if `eager`, else of a piece.
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
        if behind > TOO_FAR || self.lines.position() == 0 && behind > WHOLE {
            self.lines.seek(good - TAIL)?;
            self.fold.forget();
            self.fold.set_server(&self.server_id);
            self.uncounted = true;
        }
        let limit =
            if end.is_some() || eager || self.uncounted { good } else { good.min(self.lines.position() + AT_ONCE) };
        let Self { lines, fold, number, cursor, hash, .. } = self;
        let mut each = |line: &[u8]| {
            let Ok(event) = serde_json::from_slice::<AuditEvent>(line) else { return };
            let mut told = fold.event(&event);
            if let Line::SessionEnd(c) = &mut told
                && let Some(end) = &mut c.end
            {
                end.next = next;
            }
            *cursor = event.event_seq + 1;
            ring.push(Entry {
                session: *number,
                cursor: event.event_seq,
                chained: true,
                bytes: told.to_bytes().into(),
            });
            *hash = Some(event.hash);
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
        let (mut feed, mut ring) = (Feed::open(None, &card, 1).unwrap(), Ring::default());
        let mut rounds = 0;
        while feed.is_behind(mark) {
            feed.read(mark, None, false, None, &mut ring).unwrap();
            rounds += 1;
            assert!(rounds < 200, "it stands at event {}", feed.cursor());
        }
        assert!(rounds > 5);
        assert_eq!((feed.cursor(), ring.end()), (6002, 6002));
    }
}
