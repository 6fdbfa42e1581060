//! Stage `validate_paths`: names are judged before anything is opened, and the directory is a closed world.

use super::{finding::Finding, notebook::Notebook, source::PackDir, words::Stage};
use crate::model::pack::{AUDIT_LOG, KERNEL, MANIFEST, Manifest, SESSION, SIGNATURE, UNSIGNED};
use crate::text::noun;
use std::collections::{BTreeSet, HashSet};

/// Unlisted entries that are named one by one.
const NAMED: usize = 20;

/// What is wrong with a name, if anything: a pack is flat, so a name is one component of plain text.
#[must_use]
pub fn name_problem(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("is empty"),
        "." | ".." => Some("is not a file name"),
        _ if name.starts_with('/') => Some("is absolute"),
        _ if name.contains('/') => Some("leads out of the pack's directory"),
        _ if name.contains('\\') => Some("has a backslash"),
        _ if name.chars().any(char::is_control) => Some("has a control character"),
        _ if name.len() > 255 => Some("is longer than a file name can be"),
        _ => None,
    }
}

/// Judges every name of the manifest; gives the indices in `files` that may be opened.
pub(super) fn names(notes: &mut Notebook<'_>, m: &Manifest) -> Vec<usize> {
    let mut usable = Vec::new();
    let mut seen = HashSet::new();
    for (i, f) in m.files.iter().enumerate() {
        if !fits(notes, &f.path) {
            continue;
        }
        if [MANIFEST, SIGNATURE].contains(&f.path.as_str()) {
            let text = format!("{} is listed in itself", f.path);
            notes.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidatePaths, text).file(&f.path));
        } else if !seen.insert(f.path.as_str()) {
            let text = format!("{} is listed twice", f.path);
            notes.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidatePaths, text).file(&f.path));
        } else {
            usable.push(i);
        }
    }
    let mut expected = HashSet::new();
    for name in &m.expected_files {
        if fits(notes, name) && !expected.insert(name.as_str()) {
            let text = format!("{name} is expected twice");
            notes.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidatePaths, text).file(name));
        }
    }
    if notes.wrote_later(MANIFEST) {
        // What a pack of a later version must have is not known.
        return usable;
    }
    let mut must = |name: &str, listed: bool, what: &str| {
        if !listed {
            let text = format!("{name} is not {what}");
            notes.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidatePaths, text).file(name));
        }
    };
    for name in KERNEL {
        must(name, seen.contains(name), "among the hashed files");
    }
    for name in KERNEL.into_iter().chain([MANIFEST, SIGNATURE]) {
        must(name, expected.contains(name), "among the expected files");
    }
    if m.is_ours() {
        for name in [AUDIT_LOG, SESSION] {
            must(name, seen.contains(name), "among the hashed files");
        }
        for name in &seen {
            must(name, expected.contains(name), "among the expected files");
        }
        for name in &expected {
            let signed = [MANIFEST, SIGNATURE].contains(name) || seen.contains(name);
            must(name, signed, "among the hashed files");
        }
    }
    usable
}

fn fits(notes: &mut Notebook<'_>, name: &str) -> bool {
    let Some(problem) = name_problem(name) else { return true };
    let text = format!("the name {name:?} {problem}");
    notes.found(Finding::new("E_PATH_ESCAPE", Stage::ValidatePaths, text).file(name));
    false
}

/// Lists the directory: what is expected and not there, and what is there and not listed.
pub(super) fn closed_world(notes: &mut Notebook<'_>, dir: &PackDir, m: &Manifest) {
    let listed: HashSet<&str> =
        m.files.iter().map(|f| f.path.as_str()).chain(m.expected_files.iter().map(String::as_str)).collect();
    let mut there: HashSet<&str> = HashSet::new();
    // The first few in the order of their names, whatever order the system lists them in.
    let mut extra = BTreeSet::new();
    let (mut extras, mut unsigned) = (0, false);
    let visited = dir.visit(&mut |e| {
        if let Some(name) = listed.get(e.name.as_str()) {
            there.insert(name);
        } else if e.name == UNSIGNED && e.is_dir {
            unsigned = true;
        } else if ![MANIFEST, SIGNATURE].contains(&e.name.as_str()) {
            extras += 1;
            extra.insert(e.name);
            if extra.len() > NAMED {
                extra.pop_last();
            }
        }
    });
    match visited {
        Ok(true) => {}
        Ok(false) => {
            let text = format!("the directory has more than {} entries", super::source::MAX_ENTRIES);
            return notes.extra(text);
        }
        Err(e) => return notes.extra(format!("the directory cannot be listed: {e}")),
    }
    let hashed: HashSet<&str> = m.files.iter().map(|f| f.path.as_str()).collect();
    for name in &m.expected_files {
        // Missing hashed files are reported where they are opened, a missing signature where it is verified.
        let elsewhere = hashed.contains(name.as_str()) || name == SIGNATURE;
        if name_problem(name).is_none() && !elsewhere && !there.contains(name.as_str()) {
            let text = format!("expected file {name} is missing");
            notes.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text).file(name));
        }
    }
    for name in &extra {
        let what = if name == UNSIGNED { "_unsigned, which is not a directory," } else { name.as_str() };
        notes.extra(format!("{what} is in the pack but not listed in its manifest"));
    }
    if extras > extra.len() {
        let n = extras - extra.len();
        notes.extra(format!("{n} more {} in the pack but not listed in its manifest", noun(n, "entry")));
    }
    if unsigned {
        notes
            .warnings
            .push("_unsigned/ is not signed: nothing in it is verified but anchors, if you say whose count".into());
    }
}
