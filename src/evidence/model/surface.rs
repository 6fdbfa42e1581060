//! The surface of a server: what it says of itself and what it offers, as a person can approve it; and `surface.json`.
//!
//! | file | what |
//! |---|---|
//! | [`facet`] | the parts of a surface |
//! | [`context`] | whose surface it is, and who asked for it |
//! | [`item`] | one tool, prompt, resource or template, and its hash |
//! | [`reason`] | why a listing is not complete |
//! | [`fingerprint`] | one hash for each facet, and a root over them |
//! | [`snapshot`] | `surface.json` and `surface/observed_*.json` |
//! | [`difference`] | what differs between two surfaces, in words that are counted |
//! | [`approval`] | a line of `surface/approvals.jsonl` |
//! | [`in_force`] | what a chain of decisions allows |
//! | [`told`] | what a client was told, and how what it asks for stands |
//! | [`approved`] | `surface_approved.json` |

pub mod approval;
pub mod approved;
pub mod context;
pub mod difference;
pub mod facet;
pub mod fingerprint;
pub mod in_force;
pub mod item;
pub mod reason;
pub mod snapshot;
pub mod told;

pub use approval::{Approval, Approver, Change, Decision, Facets, Pin, SignedBy};
pub use context::{Context, Identity, Likeness};
pub use difference::{ChangeKind, Difference, Outcome, Severity};
pub use facet::Facet;
pub use fingerprint::{FINGERPRINT, List, NoRoot, Surface, Value};
pub use in_force::{InForce, State};
pub use item::{Ambiguity, Ignored, Item, PointerError, pinned_name, steps};
pub use reason::{Bound, Reason};
pub use snapshot::Snapshot;
pub use told::{Announced, First, Mode, Standing, Stands, Told};

use super::version::{self, TooNew};

/// Format version of `surface.json`.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | the fingerprint `assay.surface/2`: `context`, `endpoint`, `facets`, `root`; each list says whether it is complete |
pub const SURFACE_VERSION: u32 = 2;

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
    let end = end.trim_ascii_end();
    (1..=SURFACE_VERSION).any(|v| end.ends_with(format!("\"truncated\":true,\"v\":{v}}}").as_bytes()))
}
