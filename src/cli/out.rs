//! Printing: to pipes that may be closed, in colours where they are wanted, and never a control character from outside.

pub use crate::{
    pack::verify::terminal::{Style, Tone, short},
    print::{stderr, stdout},
};

use crate::{
    error::{Exit, Failure},
    pack::verify::{request::NAME_A_NEW_FILE, terminal},
    text::visible,
};
use serde::Serialize;
use std::{io, path::Path};

/// Says it on stderr if the ledger of an audit directory lacks what this user's recorder wrote there.
pub fn warn_of_rollback(dir: &std::path::Path) {
    let dir = crate::paths::AuditDir::reach(dir).map(crate::paths::AuditDir::of_user);
    if let Some(said) = dir.ok().and_then(|dir| crate::record::rollback::look(&dir)) {
        stderr(&format!("assay: warning: {}", visible(&said.to_string())));
    }
}

/// One JSON document on stdout.
///
/// # Errors
/// As [`stdout`].
pub fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    stdout(terminal::json(value).map_err(Failure::failed)?.as_bytes())
}

/// A failure where one JSON document was asked for.
///
/// # Errors
/// As [`stdout`].
pub fn json_failure(failure: &Failure) -> Result<(), Failure> {
    let text = terminal::json_failure(&failure.what, failure.hint.as_deref(), failure.exit.code());
    stdout(text.map_err(Failure::failed)?.as_bytes())
}

/// Runs a command that can answer in JSON: then its failure is a document too, beside the words on stderr.
///
/// # Errors
/// Those of the command.
pub fn answering(as_json: bool, command: impl FnOnce() -> Result<Exit, Failure>) -> Result<Exit, Failure> {
    or_document(as_json, command())
}

/// The same for a part of a command.
///
/// # Errors
/// That of the result.
pub fn or_document<T>(as_json: bool, result: Result<T, Failure>) -> Result<T, Failure> {
    if let (true, Err(failure)) = (as_json, &result) {
        json_failure(failure)?;
    }
    result
}

/// Writes a whole new file; nothing is ever replaced.
///
/// # Errors
/// One that exists, or what the system says.
pub fn new_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    crate::paths::write_new(path, bytes).map_err(|e| {
        let failure = Failure::bad_input(format_args!("{}: {e}", path.display()));
        match e.kind() {
            io::ErrorKind::AlreadyExists => failure.hint(NAME_A_NEW_FILE),
            _ => failure,
        }
    })
}

/// Several lines, each made visible.
#[must_use]
pub fn visible_lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}
