//! Finding what the files say of one call: its receipt and its audit events, in files of any length.

use super::{journal::Lines, row::CallRow};
use crate::model::WallTime;
use serde::Deserialize;
use std::{
    borrow::Cow,
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

/// Events of one call that are kept; a call has four, and one for each thing that is odd about it.
const MAX_EVENTS: usize = 64;
/// By how much the wall clock may have been set back or forth for the quick way to find a line, milliseconds.
const CLOCK_STEP: i64 = 5_000;

/// What was found. Lines are as they are on disk, without their line feeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The receipt.
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
    if row.receipt_id.is_some() {
        let at = row.ended_at.or(row.requested_at);
        match one(receipts, row, at, stop) {
            Ok(Some(line)) => out.receipt = Some(line),
            Ok(None) if stop.load(Ordering::Relaxed) => return out,
            Ok(None) => out.problems.push(format!("{}: no receipt of this call", receipts.display())),
            Err(e) => out.problems.push(format!("{}: {e}", receipts.display())),
        }
    }
    match all(events, row, stop) {
        Ok(found) => out.events = found,
        Err(e) => out.problems.push(format!("{}: {e}", events.display())),
    }
    out
}

/// The receipt, first where its time says, then anywhere.
fn one(path: &Path, row: &CallRow, at: Option<WallTime>, stop: &AtomicBool) -> io::Result<Option<Vec<u8>>> {
    let Some(id) = row.receipt_id.map(|id| format!("\"receipt_id\":\"{id}\"")) else { return Ok(None) };
    let mut lines = Lines::open(path)?;
    let finder = memchr::memmem::Finder::new(id.as_bytes());
    if let Some(at) = at {
        lines.seek_time(at.millis() - CLOCK_STEP)?;
        if let Some(line) = first(&mut lines, &finder, Some(at.millis() + CLOCK_STEP), stop)? {
            return Ok(Some(line));
        }
    }
    lines.seek(0)?;
    first(&mut lines, &finder, None, stop)
}

fn first(
    lines: &mut Lines,
    wanted: &memchr::memmem::Finder<'_>,
    until: Option<i64>,
    stop: &AtomicBool,
) -> io::Result<Option<Vec<u8>>> {
    let (limit, mut found, mut past) = (lines.len()?, None, false);
    while found.is_none() && !past && !stop.load(Ordering::Relaxed) {
        let more = lines.next(limit, &mut |line| {
            // Its own id stands behind the members that come before it; another receipt may name it as its parent.
            if found.is_none() && wanted.find(line).is_some() {
                found = Some(line.to_vec());
            }
            past |= until.is_some_and(|until| time_of(line).is_some_and(|at| at > until));
        })?;
        if !more {
            break;
        }
    }
    Ok(found)
}

fn all(path: &Path, row: &CallRow, stop: &AtomicBool) -> io::Result<Vec<Vec<u8>>> {
    let id = format!("\"invocation_id\":\"{}\"", row.invocation_id);
    let finder = memchr::memmem::Finder::new(id.as_bytes());
    let mut lines = Lines::open(path)?;
    let from = row.requested_at.map(|at| at.millis() - CLOCK_STEP);
    let until = row.ended_at.map(|at| at.millis() + CLOCK_STEP);
    if let Some(from) = from {
        lines.seek_time(from)?;
    }
    let found = collect(&mut lines, &finder, until, stop)?;
    if !found.is_empty() || from.is_none() {
        return Ok(found);
    }
    lines.seek(0)?;
    collect(&mut lines, &finder, None, stop)
}

fn collect(
    lines: &mut Lines,
    wanted: &memchr::memmem::Finder<'_>,
    until: Option<i64>,
    stop: &AtomicBool,
) -> io::Result<Vec<Vec<u8>>> {
    let (limit, mut found, mut past) = (lines.len()?, Vec::new(), false);
    while !past && found.len() < MAX_EVENTS && !stop.load(Ordering::Relaxed) {
        let more = lines.next(limit, &mut |line| {
            if found.len() < MAX_EVENTS && wanted.find(line).is_some() {
                found.push(line.to_vec());
            }
            past |= until.is_some_and(|until| time_of(line).is_some_and(|at| at > until));
        })?;
        if !more {
            break;
        }
    }
    Ok(found)
}

/// When a receipt was written or an event happened, milliseconds.
pub(super) fn time_of(line: &[u8]) -> Option<i64> {
    #[derive(Deserialize)]
    struct Times<'a> {
        #[serde(borrow)]
        at: Option<Cow<'a, str>>,
        #[serde(borrow)]
        timestamp: Option<Cow<'a, str>>,
    }
    let times = serde_json::from_slice::<Times<'_>>(line).ok()?;
    WallTime::parse(times.timestamp.as_deref().or(times.at.as_deref())?).map(WallTime::millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{InvocationId, ReceiptId, SessionId};
    use std::io::Write as _;

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
