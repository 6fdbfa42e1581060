//! The verifier of proof packs: named stages in order, all reasons, four verdict channels (docs/verify.md).
//!
//! It trusts nothing but what it recomputed and what the caller pinned, and it only ever reads.
//!
//! | from below | files |
//! |---|---|
//! | words and what is said | `words`, `finding`, `report`, `options`, `ed25519` |
//! | reading | `source`, `cursor`, `unread`, `event_line`, `receipt_line`, `manifest`, `time` |
//! | the notebook that every stage writes into | `notebook` |
//! | stages | `schema`, `paths`, `signature`, `receipts`, `foreign`, `chain`, `checkpoints`, `walk` (with `flight`, `sense`, `streams`), `surface`, `session`, `builder`, `files`, `trust` |
//! | decisions about surfaces | `approvals` |
//! | who may witness logs, and what they signed | `tlog_policy`, `anchor`, `pack_anchor` |
//! | claims | `claims`, `lock`, `claims_tally`, `evaluate` |
//! | the run, and its report | `engine`, `conclude`, `document`, `json` |
//! | what is printed | `terminal`, `verdict` |
//! | the program | `request`, `program`, `main`; `dir_request`, `dir_words` and `proof_request` of what is beside a run |
//! | beside a run | `proof` (of single events), `dir`, `dir_log` and `dir_stated` (a whole audit directory, its ledger, its checkpoints), `state` (what a verifier remembers), `later` (what a later version wrote) |
//!
//! A file takes from those above its row in this table, never from those below.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use assay_evidence::{canon, lines, model, numbers, text, tiles, tree};

mod anchor;
pub mod approvals;
mod builder;
mod chain;
mod checkpoints;
pub mod claims;
mod claims_tally;
mod conclude;
mod dir;
pub mod dir_log;
pub mod dir_request;
mod dir_stated;
mod dir_words;
#[doc(hidden)]
pub mod document;
mod ed25519;
mod engine;
mod escrow;
mod evaluate;
mod event_line;
mod exchanges;
mod files;
mod finding;
mod flight;
mod foreign;
mod json;
mod judged;
mod later;
pub mod lock;
mod manifest;
mod notebook;
mod options;
#[cfg(test)]
mod oracle;
pub mod pack_anchor;
mod paths;
pub mod program;
pub mod proof;
pub mod proof_request;
mod receipt_line;
mod receipts;
mod report;
pub mod request;
mod schema;
mod sense;
mod session;
mod signature;
#[doc(hidden)]
pub mod source;
mod spoiled;
pub mod state;
mod streams;
mod surface;
pub mod terminal;
mod time;
pub mod tlog_policy;
mod trust;
mod unread;
pub mod verdict;
mod walk;
mod words;

pub use anchor::{AnchorOptions, AnchorReport, AnchorVerdict};
pub use checkpoints::Seals;
pub use dir::{
    AuditDirReport, DirOptions, PackRow, SegmentReport, SegmentState, tombstone, verify_audit_dir, verify_dir,
};
pub use ed25519::{SignatureProblem, verify_ed25519};
pub use engine::verify;
pub use escrow::Covered;
pub use finding::{Finding, MAX_FINDINGS};
pub use foreign::projected as project_receipt;
pub use later::{Later, later};
pub use options::{Progress, VerifyError, VerifyOptions};
pub use report::{PackFacts, Signer, StageReport, VerifyReport};
pub use session::rely_after_crash;
pub use spoiled::spoiled;
pub use time::parse_date_time;
pub use words::{Claims, Completeness, Exit, Integrity, SignerVerdict, Stage, StageStatus};
