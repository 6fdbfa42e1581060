//! Sessions that only a later version reads in full: they are left untouched.

use super::{RecoverError, evidence::Lines, find::paths_in};
use crate::{
    lines::MAX_LINE,
    model::{
        AuditEvent,
        checkpoint::KeyLine,
        event::EventMembers,
        line::{number, text},
        reading::{self, TooNew},
        surface,
    },
    paths::{AuditDir, SessionPaths},
    record::{
        card::{Card, MAX_CARD, Places},
        ledger,
    },
    relay::Consumer,
};
use std::{io, path::Path};

/// Bytes at the end of an event's line that contain its version.
const EVENT_END: usize = 120;
/// The texts of the versions that are read, as they are there.
const KNOWN_EVENTS: [&str; 5] = [
    "\"v\":1,\"wire_bytes\":",
    "\"v\":2,\"wire_bytes\":",
    "\"v\":3,\"wire_bytes\":",
    "\"v\":4,\"wire_bytes\":",
    "\"v\":5,\"wire_bytes\":",
];

/// Refuses a session that only a later version reads in full, before anything of it is changed.
pub(super) fn refuse(dir: &AuditDir, paths: &SessionPaths, places: &Places) -> Result<(), RecoverError> {
    let too_new = |path: &Path| {
        let path = path.to_owned();
        move |source: TooNew| Err(RecoverError::TooNew { path, source })
    };
    let captures = || places.rings.iter().chain([&places.decisions]).flatten();
    for ring in captures() {
        if let Err(e) = Consumer::open(ring)
            && let Some(source) = TooNew::carried_by(&e)
        {
            return too_new(ring)(source.clone());
        }
    }
    if let Ok(bytes) = paths.files.read(&paths.surface, MAX_LINE as u64)
        && let Some(source) = surface::newer(&bytes)
    {
        return too_new(&paths.surface)(source);
    }
    refuse_lines(paths, &paths.segment, newer_event)?;
    refuse_lines(paths, &paths.receipts, reading::newer_receipt)?;
    refuse_lines(paths, &paths.checkpoints, reading::newer::<KeyLine>)?;
    // Sessions of one process share their captures.
    for path in paths_in(dir, &dir.live()).unwrap_or_default() {
        let is_card = path != paths.card && path.extension().is_some_and(|e| e == "json");
        if let Some(bytes) = is_card.then(|| dir.files().read(&path, MAX_CARD).ok()).flatten()
            && captures().any(|ring| {
                ring.file_name().is_some_and(|name| memchr::memmem::find(&bytes, name.as_encoded_bytes()).is_some())
            })
            && let Some(source) = reading::newer::<Card>(&bytes)
        {
            return too_new(&path)(source);
        }
    }
    Ok(())
}

fn refuse_lines(paths: &SessionPaths, path: &Path, newer: fn(&[u8]) -> Option<TooNew>) -> Result<(), RecoverError> {
    let mut lines = Lines::open(&paths.files, path)?;
    // What is torn or damaged is named later.
    while let Ok(true) = lines.next() {
        if let Some(source) = newer(lines.last()) {
            return Err(RecoverError::TooNew { path: path.to_owned(), source });
        }
    }
    Ok(())
}

/// Of most events only the end of the line is looked at.
fn newer_event(line: &[u8]) -> Option<TooNew> {
    let end = &line[line.len().saturating_sub(EVENT_END)..];
    let known = KNOWN_EVENTS.iter().any(|known| memchr::memmem::find(end, known.as_bytes()).is_some());
    if known { None } else { reading::newer::<AuditEvent>(line) }
}

/// Whether a segment whose last event is of a later version ends as the ledger says: that version has ended it.
pub(super) fn ended_it(paths: &SessionPaths, end: Option<&ledger::SegmentEnd>) -> io::Result<bool> {
    let Some((file, end)) = paths.files.open(&paths.segment).ok().zip(end) else { return Ok(false) };
    let tail = ledger::good_tail(&file)?;
    let Some(last) = tail.last.filter(|line| reading::newer::<AuditEvent>(line).is_some()) else { return Ok(false) };
    let link = EventMembers::of_line(&last).unwrap_or_default();
    let events = number(link.event_seq).map(|seq| seq.saturating_add(1));
    Ok(text(link.hash).as_deref() == Some(&*end.hash) && events == Some(end.events))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_event_says_its_version() {
        use crate::model::reading::Versioned as _;
        let known = (AuditEvent::OLDEST..=AuditEvent::KNOWN).map(|v| format!("\"v\":{v},\"wire_bytes\":"));
        assert!(known.eq(KNOWN_EVENTS));
        let hash = "0".repeat(64);
        let line = |v: &str| {
            format!(
                r#"{{"detail":{{"v":1,"wire_bytes":0}},"v":{v},"wire_bytes":18446744073709551615,"wire_sha256":"{hash}"}}"#
            )
        };
        for known in AuditEvent::OLDEST..=AuditEvent::KNOWN {
            assert!(newer_event(line(&known.to_string()).as_bytes()).is_none(), "{known}");
        }
        let next = AuditEvent::KNOWN + 1;
        for later in [next.to_string(), format!("\"{}.1\"", AuditEvent::KNOWN)] {
            assert!(newer_event(line(&later).as_bytes()).is_some(), "{later}");
        }
    }
}
