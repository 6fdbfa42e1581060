//! Reading evidence files of a session that may still be growing: whole lines, as far as they are there.

use crate::{
    lines::Lines,
    model::{
        AuditEvent, ReceiptId, ToolCall,
        event::EventMembers,
        line::number,
        reading::{self, Reading, TooNew},
    },
};
use std::{collections::BTreeSet, io, path::Path};

/// Goes to the audit event with this `event_seq`, or the first after it; the file's events are in order.
///
/// # Errors
/// The system's error.
pub fn seek_event(lines: &mut Lines, seq: u64) -> io::Result<()> {
    lines.bisect(lines.len()?, &event_seq, &seq)?;
    while let Some(line) = lines.whole(u64::MAX)? {
        if event_seq(line.bytes).is_none_or(|found| found >= seq) {
            lines.unread();
            break;
        }
    }
    Ok(())
}

/// `event_seq` of an audit event's line.
fn event_seq(line: &[u8]) -> Option<u64> {
    number(EventMembers::of_line(line)?.event_seq)
}

/// Reads an audit event's line. One that does not parse has a number as well: its own, or `next`, the number after that
/// of the line before.
#[must_use]
pub fn event(line: &[u8], next: Option<u64>) -> (u64, Reading<AuditEvent>) {
    match reading::read::<AuditEvent>(line) {
        Reading::Readable(e) => (e.event_seq, Reading::Readable(e)),
        unread => (next.or_else(|| event_seq(line)).unwrap_or_default(), unread),
    }
}

/// Reads the audit events `from..to` of a segment, as far as they are there, each with its number; also those that do not read.
///
/// # Errors
/// The system's error.
pub fn events(path: &Path, from: u64, to: u64, each: &mut dyn FnMut(u64, Reading<AuditEvent>)) -> io::Result<()> {
    let mut lines = Lines::of(crate::paths::open_journal(path)?);
    seek_event(&mut lines, from)?;
    let limit = lines.len()?;
    let mut next = None;
    while let Some(line) = lines.whole(limit)? {
        let (seq, read) = event(line.bytes, next);
        if seq >= to {
            break;
        }
        next = Some(seq.saturating_add(1));
        each(seq, read);
    }
    Ok(())
}

/// Reads the receipts of tool calls; of all, or of those in `wanted`. Receipts of a later version are passed over, as events are.
///
/// # Errors
/// The system's error.
pub fn calls(
    path: &Path,
    wanted: Option<&BTreeSet<ReceiptId>>,
    each: &mut dyn FnMut(&ToolCall),
) -> io::Result<Option<TooNew>> {
    let mut too_new = None;
    let mut lines = Lines::of(crate::paths::open_journal(path)?);
    let limit = lines.len()?;
    while let Some(line) = lines.whole(limit)? {
        if wanted.is_none_or(|w| receipt_id(line.bytes).is_none_or(|id| w.contains(&id))) {
            match serde_json::from_slice::<ToolCall>(line.bytes) {
                Ok(call) => each(&call),
                Err(_) => too_new = too_new.take().or_else(|| reading::newer_receipt(line.bytes)),
            }
        }
    }
    Ok(too_new)
}

/// `receipt_id` of a receipt's canonical line, without parsing all of it; `None` if that is not sure.
fn receipt_id(line: &[u8]) -> Option<ReceiptId> {
    const MEMBER: &[u8] = b"\"receipt_id\":\"";
    let mut found = memchr::memmem::find_iter(line, MEMBER);
    let at = found.next()? + MEMBER.len();
    if found.next().is_some() {
        return None;
    }
    ReceiptId::parse(std::str::from_utf8(line.get(at..at + 20)?).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn any_event_is_found_by_its_number() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for seq in 0..20_000 {
            let pad = "p".repeat(seq % 300);
            file.write_all(format!("{{\"event_seq\":{seq},\"pad\":\"{pad}\"}}\n").as_bytes()).unwrap();
        }
        let mut lines = Lines::of(crate::files::plain(file.path()).unwrap());
        for seq in [0, 1, 17, 4_999, 10_000, 19_998, 19_999] {
            seek_event(&mut lines, seq).unwrap();
            assert_eq!(lines.whole(u64::MAX).unwrap().and_then(|line| event_seq(line.bytes)), Some(seq));
        }
        seek_event(&mut lines, 20_000).unwrap();
        assert_eq!(lines.position(), lines.len().unwrap());
    }
}
