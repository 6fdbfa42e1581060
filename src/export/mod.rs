//! A session, or the part of it that a filter lets through, in formats of others.
//!
//! What is exported is a copy and not evidence: each form says so, and has the hashes of the pack that it comes from.
//!
//! | file | what |
//! |---|---|
//! | [`csv`] | one row for each call, for tables |
//! | [`har`] | the exchanges of a session over HTTP, for the tools of browsers |
//! | [`html`] | one page, for reading and printing |
//! | [`json`] | one document with the receipts as they are |
//! | [`redacted`] | without what rules take out |
//! | [`otlp`] | spans in the JSON of OpenTelemetry |

pub mod csv;
pub mod har;
pub mod html;
pub mod json;
pub mod otlp;
pub mod redacted;

use crate::{
    model::{RECORDER_VERSION, WallTime},
    pack::{
        stored::{Call, Stored},
        verify::VerifyReport,
    },
};
use serde::Serialize;

/// What every export says of itself.
pub const NOTE: &str =
    "This is a copy and not evidence. The evidence is the pack with these hashes: assay verify-pack verifies it.";

/// What is exported.
pub struct Export<'a> {
    /// The pack, as it was read.
    pub stored: &'a Stored,
    /// Its calls that are exported.
    pub calls: Vec<&'a Call>,
    /// Where they come from.
    pub source: Source,
}

/// Where an export comes from.
#[derive(Debug, Clone, Serialize)]
pub struct Source {
    /// [`NOTE`].
    pub note: &'static str,
    /// The pack, as the user named it.
    pub pack: String,
    /// `pack_id`.
    pub pack_id: Option<String>,
    /// The session.
    pub session_id: Option<String>,
    /// SHA-256 of the manifest's bytes.
    pub pack_manifest_sha256: Option<String>,
    /// `pack_root_sha256` of the manifest.
    pub pack_root_sha256: Option<String>,
    /// SHA-256 of the receipts' bytes.
    pub receipt_pack_sha256: Option<String>,
    /// Whether the pack is what was signed, when it was exported.
    pub integrity: &'static str,
    /// Whether the session is whole.
    pub completeness: &'static str,
    /// SHA-256 of the key that signed it.
    pub signer: Option<String>,
    /// What the pack calls that key.
    pub signer_id: Option<String>,
    /// The filter, if only part of the calls was exported.
    pub filter: Option<String>,
    /// Whether rules have taken something out that the pack has, or would have.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// Calls in the pack.
    pub calls_recorded: u64,
    /// Calls in the export.
    pub calls_exported: u64,
    /// When it was exported, UTC.
    pub exported_at: String,
    /// The program that did it.
    pub exported_by: String,
}

impl<'a> Export<'a> {
    /// The calls of a verified pack that `passes` lets through.
    #[must_use]
    pub fn new(
        stored: &'a Stored,
        report: &VerifyReport,
        pack: String,
        filter: Option<String>,
        passes: impl Fn(&Call) -> bool,
    ) -> Self {
        let calls: Vec<&Call> = stored.calls.iter().filter(|call| passes(call)).collect();
        let facts = &report.facts;
        let source = Source {
            note: NOTE,
            pack,
            pack_id: facts.pack_id.clone(),
            session_id: facts.run_id.clone(),
            pack_manifest_sha256: facts.pack_manifest_sha256.clone(),
            pack_root_sha256: facts.pack_root_sha256.clone(),
            receipt_pack_sha256: facts.receipt_pack_sha256.clone(),
            integrity: report.integrity.as_str(),
            completeness: report.completeness.as_str(),
            signer: report.signer.fingerprint.clone(),
            signer_id: report.signer.signer_id.clone(),
            filter,
            redacted: false,
            calls_recorded: stored.calls.len() as u64,
            calls_exported: calls.len() as u64,
            exported_at: WallTime::now().to_string(),
            exported_by: format!("assay {RECORDER_VERSION}"),
        };
        Self { stored, calls, source }
    }

    /// The server, as it names itself, else its id.
    fn server(&self) -> String {
        let session = self.stored.session.as_ref();
        let info = session.and_then(|s| s.server_info.as_ref()).map(ToString::to_string);
        info.or_else(|| session.map(|s| s.server_id.clone())).unwrap_or_default()
    }
}

/// The text of a stored value; `None` if there is none, or if it is no text.
fn said(value: Option<&Vec<u8>>) -> Option<&str> {
    value.and_then(|raw| std::str::from_utf8(raw).ok())
}
