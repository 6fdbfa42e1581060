//! `--redact`: rules files and presets, read.

use crate::{
    error::Failure,
    redact::{LoadError, PRESET, Rules, load},
};
use std::path::PathBuf;

/// The rules of all files and presets that were named; `None` where none was.
///
/// # Errors
/// Bad input: a file that cannot be read or is not understood, at its place.
pub(super) fn rules(named: &[PathBuf]) -> Result<Option<Rules>, Failure> {
    if named.is_empty() {
        return Ok(None);
    }
    load(named).map(Some).map_err(|e| match e {
        LoadError::Rules(_) => Failure::bad_input(format_args!("--redact: {e}")),
        LoadError::File { .. } => {
            Failure::bad_input(e.to_string()).hint(format_args!("--redact takes a file of rules, or {PRESET}secrets"))
        }
        LoadError::Text(_) => Failure::bad_input(e.to_string()),
    })
}
