//! `surface.json`: what of it is compared with the session.

use super::{finding::Finding, notebook::Notebook, unread::Unread, words::Stage};
use crate::{
    canon,
    model::{pack::SURFACE, surface::SURFACE_VERSION, version},
};
use std::{fs::File, os::unix::fs::FileExt as _};

/// What `surface.json` repeats of the session, as canonical text.
#[derive(Debug)]
pub struct Surface {
    /// `server_info`
    pub server_info: Vec<u8>,
    /// `protocol_version`
    pub protocol_version: Vec<u8>,
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
    if v != known.as_bytes() {
        let newer = version::newer_value("surface", v, &known).map(Unread::TooNew);
        let unread = newer.unwrap_or_else(|| Unread::schema(format!("v is not {known}")));
        notes.found(unread.of_document(Stage::SessionCompleteness, SURFACE).0);
        return None;
    }
    Some(Surface { server_info: server_info?, protocol_version: protocol_version? })
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
