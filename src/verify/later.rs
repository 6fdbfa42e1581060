//! Which parts of a pack a later version wrote, for commands that read packs without verifying them.

use super::{
    builder,
    manifest::{self, MAX_MANIFEST},
    source::{MAX_DOCUMENT, PackDir},
};
use crate::lines::{Lines, MAX_LINE};
use crate::model::pack::{AUDIT_LOG, CHECKPOINTS, MANIFEST, RECEIPTS, REPORT, SESSION, SURFACE};
use crate::model::{
    AuditEvent, SessionDoc,
    checkpoint::KeyLine,
    event::EVENT_VERSION,
    reading::{self, TooNew},
    surface,
};
use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

/// What says of a document's bytes that it is of a later version.
type Newer = fn(&[u8]) -> Option<TooNew>;

/// A document of a pack that a later version wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {source}", .path.display(), .line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct Later {
    /// Path of the file.
    pub path: PathBuf,
    /// Which line of it, from 1.
    pub line: Option<u64>,
    /// The version that was found, and the newest that is read.
    pub source: TooNew,
}

/// The first thing in a pack that a later version wrote, the manifest before all else. Of a pack of another builder only the
/// manifest is looked at. What cannot be read is skipped here: the code that reads it reports it.
#[must_use]
pub fn later(pack: &Path) -> Option<Later> {
    let dir = PackDir::open(pack).ok()?;
    let found = |name: &str, line, source| Later { path: pack.join(name), line, source };
    let document = |name: &str, max: usize| {
        let (file, len) = dir.open_file(name).ok()?;
        let mut bytes = Vec::new();
        (len <= max as u64).then(|| file.take(len).read_to_end(&mut bytes)).and_then(Result::ok)?;
        Some(bytes)
    };
    if let Some(newer) = document(MANIFEST, MAX_MANIFEST).and_then(|json| manifest::newer(&json).into_iter().next()) {
        return Some(found(MANIFEST, None, newer));
    }
    if [SESSION, AUDIT_LOG].iter().all(|name| dir.open_file(name).is_err()) {
        return None;
    }
    let documents: [(&str, usize, Newer); 3] = [
        (SESSION, MAX_DOCUMENT, reading::newer::<SessionDoc>),
        (SURFACE, MAX_LINE, surface::newer),
        (REPORT, MAX_DOCUMENT, builder::newer),
    ];
    for (name, max, newer) in documents {
        if let Some(newer) = document(name, max).and_then(|json| newer(&json)) {
            return Some(found(name, None, newer));
        }
    }
    let lines = [
        (RECEIPTS, reading::newer_receipt as Newer),
        (AUDIT_LOG, newer_event),
        (CHECKPOINTS, reading::newer::<KeyLine>),
    ];
    for (name, newer) in lines {
        let Ok((file, _)) = dir.open_file(name) else { continue };
        let mut lines = Lines::of(file);
        while let Ok(Some(line)) = lines.next(&mut ()) {
            if let Some(newer) = newer(line.bytes) {
                return Some(found(name, Some(line.number), newer));
            }
        }
    }
    None
}

fn newer_event(line: &[u8]) -> Option<TooNew> {
    // Of most lines this is all that is looked at: `meta` may have such a member too, so it must be the only one.
    let mut named = memchr::memmem::find_iter(line, "\"v\"");
    let here = named.next().map_or(&[][..], |at| &line[at..]);
    let number = here.strip_prefix(b"\"v\":").and_then(|here| here.split(|b| *b == b',').next());
    let is_read = (1..=EVENT_VERSION).any(|v| number == Some(v.to_string().as_bytes()));
    if is_read && named.next().is_none() {
        return None;
    }
    reading::newer::<AuditEvent>(line)
}
