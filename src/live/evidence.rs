//! Finding the evidence of one call: its receipt and its audit events, in files of any length, by its times.
//!
//! Times rise in a file unless the clock was set. So the search starts at the call's times and, only if it is not
//! there, looks everywhere. The events of a call end with the one that names its receipt.

use super::{
    content::{PREVIEW, one_line},
    row::CallRow,
};
use crate::{
    lines::Lines,
    model::{
        AuditEvent, CallAnomaly, EventKind, InvocationId, ReceiptId, WallTime,
        event::EventMembers,
        line::{member, text},
        reading,
        receipt::CallMembers,
        version,
    },
};
use memchr::memmem::Finder;
use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

/// Events of one call that are kept; a call has four, and one for each thing that is odd about it.
const MAX_EVENTS: usize = 64;
/// How far the wall clock of a line may be behind that of one before it, milliseconds.
const SLACK_MS: i64 = 100;
/// By how much the wall clock may have been set back for a call to be found without looking everywhere, milliseconds.
const CLOCK_STEP_MS: i64 = 5_000;
/// Bytes from one look at a line's time to the next.
const LOOK: u64 = 64 << 10;

/// What was found. Lines are as they are on disk, without their line feeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Line of the receipt, if it was found.
    pub receipt: Option<Vec<u8>>,
    /// The audit events, in the order of the chain.
    pub events: Vec<Vec<u8>>,
    /// What could not be read.
    pub problems: Vec<String>,
}

/// Looks for the evidence of a call in a session's receipts and events. It ends early, with what there is, once `stop` is set.
#[must_use]
pub fn find(receipts: &Path, events: &Path, row: &CallRow, stop: &AtomicBool) -> Evidence {
    let mut out = Evidence::default();
    if let Some(id) = row.receipt_id {
        match receipt_of(receipts, id, row, stop) {
            Ok(Some(line)) => {
                out.problems.extend(reading::newer_receipt(&line).map(|e| format!("{}: {e}", receipts.display())));
                out.receipt = Some(line);
            }
            Ok(None) if stop.load(Ordering::Relaxed) => return out,
            Ok(None) => out.problems.push(format!("{}: no receipt of this call", receipts.display())),
            Err(e) => out.problems.push(format!("{}: {e}", receipts.display())),
        }
    }
    match events_of(events, row, stop) {
        Ok(found) => {
            if let Some(e) = found.iter().find_map(|line| reading::newer::<AuditEvent>(line)) {
                out.problems.push(format!("{}: {e}", events.display()));
            }
            out.events = found;
        }
        Err(e) => out.problems.push(format!("{}: {e}", events.display())),
    }
    out
}

/// The arguments of a call as its receipt has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredArguments {
    /// The first of them, in one line; not yet safe for a terminal.
    Preview(String),
    /// They are too large for a receipt, or it was not found.
    Elsewhere,
    /// The session does not store them.
    Nowhere,
}

/// Looks up what a call's receipt stores of its arguments.
#[must_use]
pub fn arguments(receipts: &Path, row: &CallRow, stop: &AtomicBool) -> StoredArguments {
    let line = row.receipt_id.and_then(|id| receipt_of(receipts, id, row, stop).ok().flatten());
    match line.map(|line| arguments_in(&line)) {
        Some(Some(preview)) => StoredArguments::Preview(preview),
        Some(None) if !row.anomalies.contains(CallAnomaly::ContentInInvestigationLog.as_str()) => {
            StoredArguments::Nowhere
        }
        _ => StoredArguments::Elsewhere,
    }
}

/// The arguments that a receipt's line holds, in one line of bounded length.
#[must_use]
pub fn arguments_in(line: &[u8]) -> Option<String> {
    let stored = member(line, "arguments_content").filter(|stored| *stored != b"null")?;
    Some(one_line(&String::from_utf8_lossy(&stored[..stored.len().min(4 * PREVIEW)])))
}

fn receipt_of(path: &Path, id: ReceiptId, row: &CallRow, stop: &AtomicBool) -> io::Result<Option<Vec<u8>>> {
    let mut search = Search::new(path, time_of_receipt, &format!("\"receipt_id\":\"{id}\""), stop)?;
    let at = row.ended_at.or(row.requested_at);
    let mut found = None;
    let mut take = |line: &[u8]| {
        // What is stored of a call may name another one's receipt.
        let stated = CallMembers::of_line(line).and_then(|m| text(m.receipt_id));
        let here = stated.is_some_and(|stated| ReceiptId::parse(&stated) == Ok(id));
        if here {
            found = Some(line.to_vec());
        }
        here
    };
    let from = search.shortly_before(at)?;
    if !search.walk(from, at, &mut take)? && at.is_some() {
        search.walk(0, None, &mut take)?;
    }
    Ok(found)
}

fn events_of(path: &Path, row: &CallRow, stop: &AtomicBool) -> io::Result<Vec<Vec<u8>>> {
    let mut search = Search::new(path, time_of_event, &format!("\"invocation_id\":\"{}\"", row.invocation_id), stop)?;
    let from = search.shortly_before(row.requested_at)?;
    // Where the clock was set back meanwhile, it ended before it began.
    let until = row.ended_at.map(|ended| row.requested_at.map_or(ended, |begun| begun.max(ended)));
    let mut found = Events::of(row.invocation_id);
    search.walk(from, until, &mut |line| found.take(line))?;
    let all = found.begun || from == 0 && !found.lines.is_empty();
    if !all && (from, until) != (0, None) {
        found = Events::of(row.invocation_id);
        search.walk(0, None, &mut |line| found.take(line))?;
    }
    Ok(found.lines)
}

/// The events of a call, as far as they were found.
struct Events {
    id: InvocationId,
    lines: Vec<Vec<u8>>,
    /// Whether the first of them is there.
    begun: bool,
}

impl Events {
    const fn of(id: InvocationId) -> Self {
        Self { id, lines: Vec::new(), begun: false }
    }

    /// Takes a line, if it is one of them. Returns whether it is the last one.
    fn take(&mut self, line: &[u8]) -> bool {
        let Some(event) = EventMembers::of_line(line) else { return false };
        if text(event.invocation_id).is_none_or(|id| InvocationId::parse(&id) != Ok(self.id)) {
            return false;
        }
        let kind = text(event.event).unwrap_or_default();
        self.begun |= kind == EventKind::RequestReceived.as_str() || kind == EventKind::ToolRequested.as_str();
        self.lines.push(line.to_vec());
        let binds =
            event.detail.and_then(|detail| version::stated(detail, "receipt_id")).is_some_and(|id| id != b"null");
        binds && kind != EventKind::ToolRequested.as_str() || self.lines.len() >= MAX_EVENTS
    }
}

/// A search for the lines that hold a member.
struct Search<'a> {
    lines: Lines,
    time_of: fn(&[u8]) -> Option<i64>,
    member: Finder<'static>,
    stop: &'a AtomicBool,
}

impl<'a> Search<'a> {
    fn new(path: &Path, time_of: fn(&[u8]) -> Option<i64>, member: &str, stop: &'a AtomicBool) -> io::Result<Self> {
        let lines = Lines::of(crate::paths::open_journal(path)?);
        Ok(Self { lines, time_of, member: Finder::new(member).into_owned(), stop })
    }

    /// Offset of a line shortly before this time, or of the first.
    fn shortly_before(&mut self, at: Option<WallTime>) -> io::Result<u64> {
        let Some(at) = at else { return Ok(0) };
        self.lines.bisect(self.lines.len()?, &self.time_of, &(at.millis() - SLACK_MS))?;
        Ok(self.lines.position())
    }

    /// Gives the lines from `offset` on that hold the member, until they are long past a time, or `each` says that it was the
    /// last one; returns whether it did.
    fn walk(&mut self, offset: u64, until: Option<WallTime>, each: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<bool> {
        let until = until.map(|at| at.millis() + CLOCK_STEP_MS);
        let (mut look, mut last) = (offset, false);
        let Self { lines, time_of, member, stop } = self;
        lines.go(offset, 1);
        lines.each(&mut |line| {
            let Some(bytes) = line.bytes else { return true };
            last = member.find(bytes).is_some() && each(bytes);
            let mut past = false;
            if line.offset >= look {
                look = line.offset + LOOK;
                past = until.is_some_and(|until| time_of(bytes).is_some_and(|at| at > until));
            }
            !last && !past && !stop.load(Ordering::Relaxed)
        })?;
        Ok(last)
    }
}

/// When a receipt was written, milliseconds.
fn time_of_receipt(line: &[u8]) -> Option<i64> {
    WallTime::parse(&text(CallMembers::of_line(line)?.timestamp)?).map(WallTime::millis)
}

/// When an event happened, milliseconds.
fn time_of_event(line: &[u8]) -> Option<i64> {
    WallTime::parse(&text(EventMembers::of_line(line)?.at)?).map(WallTime::millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        live::{fold::Fold, state::State},
        model::SessionId,
    };
    use assay_support::sessions::{self, Plan};
    use std::io::Write as _;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn the_receipt_and_the_events_of_a_call_are_found_and_say_the_same() {
        let tmp = tempfile::tempdir().unwrap();
        let plan = Plan { calls: 3000, error_every: 5, timeout_every: 7, ..Plan::default() };
        let paths = sessions::write(&plan, tmp.path()).unwrap().paths;
        let mut state = State::new(usize::MAX);
        state.read(&paths.segment, &paths.receipts).unwrap();
        for row in state.rows().step_by(97) {
            let found = find(&paths.receipts, &paths.segment, row, &GO_ON);
            assert_eq!(found.problems, Vec::<String>::new());
            let receipt = serde_json::from_slice(&found.receipt.unwrap()).unwrap();
            assert_eq!(&CallRow::of_receipt(&receipt), row);
            assert_eq!(found.events.len(), if row.result_hash.is_some() { 4 } else { 3 });
            let mut fold = Fold::default();
            fold.set_server("synthetic");
            let events = found.events.iter().map(|e| serde_json::from_slice::<AuditEvent>(e).unwrap());
            let told = events.map(|e| fold.event(&e)).last().unwrap();
            assert_eq!(told.chained().unwrap().call.as_ref(), Some(row));
        }
        let mut unknown = state.rows().next().unwrap().clone();
        unknown.invocation_id = InvocationId::from_bits(1);
        assert_eq!(find(&paths.receipts, &paths.segment, &unknown, &GO_ON).events.len(), 0);
    }

    #[test]
    fn a_clock_that_was_set_hides_nothing() {
        let tmp = tempfile::tempdir().unwrap();
        let events = tmp.path().join("e");
        let mut text = Vec::new();
        let time = |at: i64| WallTime::from_millis(1_700_000_000_000 + at);
        // It is set back by an hour in the middle of call 7, of which there is something odd in between.
        let receipt = ReceiptId::from_bits(7);
        for n in 0..40_000u64 {
            let at = time(n as i64 * 100 - if n >= 20_000 { 3_600_000 } else { 0 });
            let (kind, id, detail) = match n {
                19_990 => ("request_received", 7, "{}".to_owned()),
                20_010 => ("anomaly", 7, r#"{"receipt_id":null}"#.to_owned()),
                20_020 => ("response_sent", 7, format!(r#"{{"receipt_id":"{receipt}"}}"#)),
                n => ("request_received", n + 100, "{}".to_owned()),
            };
            let id = InvocationId::from_bits(id);
            writeln!(text, r#"{{"at":"{at}","detail":{detail},"event":"{kind}","invocation_id":"{id}"}}"#).unwrap();
        }
        std::fs::write(&events, text).unwrap();
        let mut row = CallRow::new(SessionId::from_bits(1), InvocationId::from_bits(7));
        row.requested_at = Some(time(1_999_000));
        row.ended_at = Some(time(2_002_000 - 3_600_000));
        assert_eq!(find(&events, &events, &row, &GO_ON).events.len(), 3);
    }

    #[test]
    fn what_is_stored_of_a_call_is_not_taken_for_a_receipt() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("r");
        let (one, two) = (ReceiptId::from_bits(1), ReceiptId::from_bits(2));
        let wanted = format!(r#"{{"receipt_id":"{two}"}}"#);
        std::fs::write(&file, format!("{{\"arguments_content\":{wanted},\"receipt_id\":\"{one}\"}}\n{wanted}\n"))
            .unwrap();
        let mut row = CallRow::new(SessionId::from_bits(1), InvocationId::from_bits(2));
        row.receipt_id = Some(two);
        assert_eq!(find(&file, &file, &row, &GO_ON).receipt.unwrap(), wanted.as_bytes());
    }

    #[test]
    fn a_call_is_found_by_its_time_or_without() {
        let dir = tempfile::tempdir().unwrap();
        let (receipts, events) = (dir.path().join("r"), dir.path().join("e"));
        let mut r = std::fs::File::create(&receipts).unwrap();
        let mut e = std::fs::File::create(&events).unwrap();
        let time = |n: u64| WallTime::from_millis(1_700_000_000_000 + n as i64 * 100);
        for n in 0..20_000u64 {
            let (at, inv, rec) = (time(n), InvocationId::from_bits(n), ReceiptId::from_bits(n));
            for kind in ["request_received", "response_sent"] {
                writeln!(e, r#"{{"at":"{at}","event":"{kind}","invocation_id":"{inv}"}}"#).unwrap();
            }
            writeln!(r, r#"{{"pad":"{}","receipt_id":"{rec}","timestamp":"{at}"}}"#, "p".repeat(n as usize % 99))
                .unwrap();
        }
        let stop = AtomicBool::new(false);
        for n in [0, 1, 777, 19_999] {
            let mut row = CallRow::new(SessionId::from_bits(1), InvocationId::from_bits(n));
            row.receipt_id = Some(ReceiptId::from_bits(n));
            for known in [Some(time(n)), None, Some(time(n + 5_000))] {
                (row.requested_at, row.ended_at) = (known, known);
                let found = find(&receipts, &events, &row, &stop);
                assert_eq!(found.problems, Vec::<String>::new());
                assert_eq!(found.events.len(), 2, "{n} {known:?}");
                assert!(
                    String::from_utf8_lossy(&found.receipt.unwrap()).contains(&ReceiptId::from_bits(n).to_string())
                );
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(
            find(&receipts, &events, &CallRow::new(SessionId::from_bits(1), InvocationId::from_bits(5)), &stop)
                .events
                .len(),
            0
        );
    }
}
