//! `--redact`: rules files and presets, read.

use crate::{
    error::Failure,
    files,
    redact::{Loader, MAX_FILE, PRESET, Rules},
};
use std::path::PathBuf;

/// The rules of all files and presets that were named; `None` where none was.
///
/// # Errors
/// Bad input: a file that cannot be read or is not understood, at its place.
pub(super) fn rules(named: &[PathBuf]) -> Result<Option<Rules>, Failure> {
    let mut loader = Loader::default();
    for path in named {
        if let Some(preset) = path.to_str().and_then(|text| text.strip_prefix(PRESET)) {
            loader.preset(preset).map_err(|e| Failure::bad_input(format_args!("--redact: {e}")))?;
            continue;
        }
        let read = files::named(path).and_then(|file| files::read_all(file, MAX_FILE));
        let text = read.map_err(|e| {
            Failure::bad_input(format_args!("{}: {e}", path.display()))
                .hint(format_args!("--redact takes a file of rules, or {PRESET}secrets"))
        })?;
        loader.file(&path.to_string_lossy(), &text).map_err(|e| Failure::bad_input(e.to_string()))?;
    }
    let rules = loader.finish().map_err(|e| Failure::bad_input(format_args!("--redact: {e}")))?;
    Ok((!named.is_empty()).then_some(rules))
}
