//! `surface.json`: what of it others than its writer need to know.

use super::version::{self, TooNew};

/// Format version of `surface.json`.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const SURFACE_VERSION: u32 = 1;

/// Whether a surface is of a later version than the one that is read.
#[must_use]
pub fn newer(bytes: &[u8]) -> Option<TooNew> {
    version::newer("surface", bytes, "v", &SURFACE_VERSION.to_string())
}

/// Bytes at the end of the document that [`is_truncated`] looks at.
pub const END: usize = 32;

/// What verify, diff and explain say then.
pub const TRUNCATED: &str = "surface.json is not whole: the server offered more than the recorder keeps (truncated); what has no \
                             entry is only in its omitted_hash";

/// Whether the document in `file`, of so many bytes, says that something of the surface did not fit; what cannot be read
/// says nothing.
#[must_use]
pub fn file_is_truncated(file: &std::fs::File, len: u64) -> bool {
    use std::os::unix::fs::FileExt as _;
    let mut end = [0; END];
    let read = len.checked_sub(END as u64).map(|at| file.read_exact_at(&mut end, at));
    read.is_some_and(|r| r.is_ok()) && is_truncated(&end)
}

/// Whether the document says that something of the surface did not fit; its end, at least [`END`] bytes, is enough. In RFC
/// 8785 form `truncated` and `v` are its last members.
#[must_use]
pub fn is_truncated(end: &[u8]) -> bool {
    end.trim_ascii_end().ends_with(format!("\"truncated\":true,\"v\":{SURFACE_VERSION}}}").as_bytes())
}
