//! `surface.json`: what of it is compared with the session.

use super::{finding::Finding, notebook::Notebook, unread::Unread, words::Stage};
use crate::{
    canon,
    model::{
        pack::SURFACE,
        surface::{Identity, SURFACE_VERSION, Snapshot, snapshot::SnapshotError},
        version,
    },
};
use std::{fs::File, os::unix::fs::FileExt as _};

/// What `surface.json` repeats of the session, as canonical text.
#[derive(Debug)]
pub struct Surface {
    /// `server_info`
    pub server_info: Vec<u8>,
    /// `protocol_version`
    pub protocol_version: Vec<u8>,
    /// `endpoint` and `server_id`; not in version 1.
    pub server: Option<Identity>,
    /// Whether its hashes were recomputed.
    pub is_checked: bool,
    /// Its root, if all of it was seen.
    pub root: Option<String>,
    /// Number of items.
    pub items: u64,
}

/// Reads what is compared of a surface; one of another version is a finding.
pub fn read(notes: &mut Notebook<'_>, bytes: &[u8]) -> Option<Surface> {
    let (mut v, mut server_info, mut protocol_version) = (None, None, None);
    for m in canon::members(bytes).into_iter().flatten().flatten() {
        match m.key.as_deref() {
            Some("v") => v = Some(&bytes[m.value]),
            Some("server_info") => server_info = Some(bytes[m.value].to_vec()),
            Some("protocol_version") => protocol_version = Some(bytes[m.value].to_vec()),
            _ => {}
        }
    }
    let (known, v) = (SURFACE_VERSION.to_string(), v.unwrap_or_default());
    if v != known.as_bytes() && v != b"1" {
        let newer = version::newer_value("surface", v, &known).map(Unread::TooNew);
        let unread = newer.unwrap_or_else(|| Unread::schema(format!("v is not {known}")));
        notes.found(unread.of_document(Stage::SessionCompleteness, SURFACE).0);
        return None;
    }
    let seen = (v != b"1").then(|| Snapshot::read(bytes));
    if let Some(Err(e)) = &seen {
        let code = if matches!(e, SnapshotError::Hash(_)) { "E_MANIFEST_TAMPER" } else { "E_SCHEMA_UNKNOWN" };
        notes.found(Finding::new(code, Stage::VerifySurface, e.to_string()).file(SURFACE));
    }
    let is_checked = seen.is_some();
    let of_it = seen.as_ref().and_then(|seen| seen.as_ref().ok());
    let items = of_it.map_or(0, |seen| seen.surface.lists.values().map(|l| l.items().len() as u64).sum());
    let root = of_it.and_then(|seen| seen.root().ok()).map(|root| root.to_string());
    let server = seen.and_then(Result::ok).map(|seen| seen.identity);
    Some(Surface { server_info: server_info?, protocol_version: protocol_version?, server, is_checked, root, items })
}

/// Looks at the version of a surface that is too long to be read: `v` is its last member.
pub fn large(notes: &mut Notebook<'_>, file: &File, len: u64) {
    const MEMBER: &[u8] = b",\"v\":";
    let mut end = [0; 64];
    let read = len.checked_sub(end.len() as u64).map(|at| file.read_exact_at(&mut end, at));
    let value = read.and_then(Result::ok).and_then(|()| {
        let at = memchr::memmem::rfind(&end, MEMBER)? + MEMBER.len();
        end[at..].trim_ascii_end().strip_suffix(b"}")
    });
    let newer = value.and_then(|v| version::newer_value("surface", v, &SURFACE_VERSION.to_string()));
    if let Some(newer) = newer {
        notes.found(Finding::too_new(Stage::SessionCompleteness, &newer).file(SURFACE));
    }
}
