//! The verifier of proof packs, with its claim cards and lock files: what an auditor has to read and build.
#![warn(clippy::pedantic)]
#![allow(
    clippy::module_name_repetitions,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::doc_markdown,
    clippy::similar_names,
    clippy::too_many_lines,
    clippy::struct_excessive_bools
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::manual_is_multiple_of,
        clippy::duration_suboptimal_units
    )
)]

use assay_evidence::{canon, lines, model, text};

pub mod claims;
pub mod lock;
pub mod verify;

/// Where the files of this crate find each other: they lie among those that build packs.
mod pack {
    #[cfg(test)]
    pub use super::verify;
    pub use super::{claims, lock};
}
