//! What is wrong with a pack: one finding.

use super::words::Stage;
use crate::model::reading::TooNew;
use serde::Serialize;

/// How many findings a report keeps; the rest is counted in [`errors_omitted`](super::report::VerifyReport::errors_omitted).
pub const MAX_FINDINGS: usize = 200;

/// Code of a finding: lines are missing that were signed.
pub const ROLLBACK: &str = "E_LOG_ROLLBACK";
/// Code of a finding: there are two ledgers.
pub const FORK: &str = "E_LOG_FORK";
/// Code of a finding that only says that a later version is needed.
pub const VERSION_UNSUPPORTED: &str = "E_VERSION_UNSUPPORTED";

/// Something that is wrong with a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Error code, as assay-ai names them where it has one (`E_…`).
    pub code: &'static str,
    /// Stage that found it.
    pub stage: Stage,
    /// What is wrong; raw text that may hold parts of the pack: pass it through [`crate::text::visible`] for a terminal.
    pub message: String,
    /// File in the pack, or field of the manifest; assay-ai's name for it.
    #[serde(rename = "field", skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in that file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Byte offset in that file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Id of the receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_id: Option<String>,
    /// Position of the receipt in the file, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_index: Option<u64>,
    /// What should be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

impl Finding {
    /// A finding without a place.
    pub fn new(code: &'static str, stage: Stage, message: impl Into<String>) -> Self {
        Self {
            code,
            stage,
            message: message.into(),
            file: None,
            line: None,
            offset: None,
            receipt_id: None,
            receipt_index: None,
            expected: None,
            found: None,
        }
    }

    /// Names the file or manifest field.
    #[must_use]
    pub fn file(mut self, file: impl Into<String>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Names the line (from 1) and where it begins in bytes.
    #[must_use]
    pub fn line(mut self, line: u64, offset: u64) -> Self {
        self.line = Some(line);
        self.offset = Some(offset);
        self
    }

    /// Names the receipt that the finding is about: its index from 0, and its id.
    #[must_use]
    pub fn receipt(mut self, index: u64, id: Option<String>) -> Self {
        self.receipt_index = Some(index);
        self.receipt_id = id;
        self
    }

    /// Both sides of a disagreement.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)]
    pub fn sides(mut self, expected: impl ToString, found: impl ToString) -> Self {
        self.expected = Some(expected.to_string());
        self.found = Some(found.to_string());
        self
    }

    /// Something of a later version.
    pub fn too_new(stage: Stage, newer: &TooNew) -> Self {
        Self::new(VERSION_UNSUPPORTED, stage, newer.to_string())
            .sides(format_args!("up to {}", newer.known), &newer.found)
    }
}
