//! What `verify-dir` is asked, and its answer: that of `assay verify-dir` and of `assay-verify verify-dir`.

use super::{
    dir::{AuditDirReport, DirOptions, verify_dir},
    dir_words::words,
    options::{Progress, VerifyOptions},
    request::{Anchors, RequestError, Said},
    state::State,
    terminal::{self, Style},
};
use assay_evidence::note::Key;
use serde::Serialize;
use std::{ops::ControlFlow, path::PathBuf};

/// `schema` of the document.
const SCHEMA: &str = "assay.verify_dir.v1";

/// What one run is asked.
#[derive(Debug, Default)]
pub struct DirRequest {
    /// The audit directory.
    pub dir: PathBuf,
    /// Whether the answer is one JSON document.
    pub json: bool,
    /// Packs are compared with the ledger, and not verified.
    pub without_packs: bool,
    /// Fingerprints of keys that may have signed.
    pub signers: Vec<String>,
    /// Keys that may have signed the ledger.
    pub log_keys: Vec<Key>,
    /// What was seen before, and whether what is seen now is remembered with it.
    pub state: Option<(PathBuf, bool)>,
    /// Whose anchors count.
    pub anchors: Anchors,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    dir: String,
    #[serde(flatten)]
    report: &'a AuditDirReport,
    exit_code: u8,
}

impl DirRequest {
    /// Verifies the directory, remembers what is to be remembered, and says what it comes to.
    ///
    /// # Errors
    /// A directory that cannot be read, a state or a policy that does not read, a state that lies in the directory.
    pub fn answer(
        &self,
        style: Style,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Said, RequestError> {
        let options = DirOptions {
            packs: VerifyOptions { signers: self.signers.clone(), ..VerifyOptions::default() },
            without_packs: self.without_packs,
            log_keys: self.log_keys.clone(),
            state: self.state.as_ref().map(|(path, _)| State::read(path, &self.dir)).transpose()?,
            anchors: self.anchors.read()?,
        };
        let (report, state) = verify_dir(&self.dir, &options, progress)?;
        if let Some((path, true)) = &self.state {
            state.write().map_err(RequestError::file(path))?;
        }
        let exit = report.exit();
        let text = if self.json {
            let dir = self.dir.to_string_lossy().into_owned();
            terminal::json(&Document { schema: SCHEMA, dir, report: &report, exit_code: exit.code() })?
        } else {
            words(&report, style)
        };
        Ok(Said { text, exit })
    }
}
