//! Stage `validate_file_hashes`: every listed file is read once, and what needs it parses it in that same pass.

use super::{
    builder,
    chain::ChainWalk,
    checkpoints::SealFile,
    claims_tally::Tally,
    finding::Finding,
    foreign::{self, Foreign},
    judged::{self, Decisions},
    manifest::Parsed,
    notebook::Notebook,
    options::VerifyError,
    receipts::{ReceiptFile, ReceiptTotals},
    session,
    source::{
        HashedLines, MAX_BEYOND, MAX_DOCUMENT, MAX_EVIDENCE, MAX_LINE, MAX_SIDE_FILE, OpenProblem, PackDir, ReadMeter,
        ReadStop, Whole,
    },
    surface,
    unread::not_json,
    walk::{Walked, alone, walk},
    words::Stage,
};
use crate::model::pack::{
    AUDIT_LOG, CHECKPOINTS, FileEntry, Manifest, RECEIPTS, REPORT, SESSION, SURFACE, SURFACE_APPROVALS,
    SURFACE_APPROVED, TRANSCRIPT,
};
use crate::{
    canon,
    model::{SessionDoc, sha256_hex},
    text::counted,
};
use std::{collections::HashMap, fs::File};

/// A listed file that was opened, and how long it is.
type Opened<'m> = (&'m FileEntry, File, u64);

/// What the files amount to.
#[derive(Debug, Default)]
pub struct PackEvidence {
    /// The parsed `session.json`; `None` if it is missing or does not parse.
    pub doc: Option<SessionDoc>,
    /// Chain and receipts, in packs of ours.
    pub walked: Option<Walked>,
    /// The audit events were walked, with the receipts or alone.
    pub chain: bool,
    /// The receipts of a pack of ours.
    pub totals: Option<ReceiptTotals>,
    /// The receipts of another builder's pack.
    pub foreign: Option<Foreign>,
    /// What the builder's report says, in packs of ours.
    pub report: Option<builder::BuilderReport>,
    /// What the builder's transcript says, in packs of ours.
    pub transcript: Option<builder::Rows>,
    /// The decisions about the surface, in packs of ours that have some.
    pub decisions: Option<Decisions>,
    /// What the surface says of the server, in packs of ours.
    pub surface: Option<surface::Surface>,
}

/// How many bytes the listed files have, as the manifest says.
pub(super) fn stated_bytes(m: &Manifest) -> u64 {
    m.files.iter().fold(0, |sum: u64, f| sum.saturating_add(f.bytes))
}

/// Reads everything that is listed under a usable name.
///
/// # Errors
/// [`VerifyError::Cancelled`].
pub(super) fn run(
    notes: &mut Notebook<'_>,
    tally: &mut Tally,
    meter: &mut ReadMeter<'_>,
    dir: &PackDir,
    parsed: &Parsed,
    usable: &[usize],
) -> Result<PackEvidence, VerifyError> {
    let m = &parsed.manifest;
    meter.total = stated_bytes(m);
    let ours = m.is_ours();
    // What is read together is opened together; a manifest may list more files than a process may open.
    let mut open = HashMap::new();
    let mut rest = Vec::new();
    for entry in usable.iter().filter_map(|i| m.files.get(*i)) {
        if entry.path == RECEIPTS
            || ours && [SESSION, AUDIT_LOG, CHECKPOINTS, SURFACE_APPROVALS].contains(&entry.path.as_str())
        {
            if let Some(opened) = opened(notes, dir, entry) {
                open.insert(entry.path.as_str(), opened);
            }
        } else {
            rest.push(entry);
        }
    }
    meter.stage = Stage::ValidateFileHashes;
    let mut evidence = PackEvidence::default();
    if ours
        && let Some((entry, file, len)) = open.remove(SESSION)
        && let Some(bytes) = whole(notes, meter, entry, file, len, MAX_DOCUMENT)?
    {
        evidence.doc = session::read(notes, &bytes);
    }
    if ours
        && let Some((entry, file, len)) = open.remove(SURFACE_APPROVALS)
        && let Some(bytes) = whole(notes, meter, entry, file, len, MAX_LINE)?
    {
        evidence.decisions = Some(Decisions::read(notes, &bytes, evidence.doc.as_ref()));
    }
    let receipts = open.remove(RECEIPTS);
    let events = open.remove(AUDIT_LOG);
    let checkpoints = open.remove(CHECKPOINTS);
    streams(notes, tally, meter, &mut evidence, (receipts, events, checkpoints), ours)?;
    rest.sort_by_key(|entry| &entry.path);
    meter.stage = Stage::ValidateFileHashes;
    for entry in rest {
        let Some((entry, file, len)) = opened(notes, dir, entry) else { continue };
        if entry.path.to_ascii_lowercase().ends_with(".json") && len <= MAX_LINE as u64 {
            let Some(bytes) = whole(notes, meter, entry, file, len, MAX_LINE)? else { continue };
            let strict = strict(notes, &entry.path, &bytes);
            if ours && strict && entry.path == REPORT && bytes.len() <= MAX_DOCUMENT {
                evidence.report = builder::read(notes, &bytes);
            } else if ours && strict && entry.path == SURFACE_APPROVED {
                judged::approved(notes, &bytes, evidence.decisions.as_ref(), evidence.doc.as_ref());
            } else if ours && strict && entry.path == SURFACE {
                evidence.surface = surface::read(notes, &bytes);
            }
            if let Some(line) = bytes.strip_suffix(b"\n") {
                notes.unterminated.insert(entry.path.clone(), sha256_hex(line));
            }
        } else if ours && entry.path == TRANSCRIPT {
            let Some(bytes) = whole(notes, meter, entry, file, len, MAX_DOCUMENT)? else { continue };
            evidence.transcript = builder::rows(&bytes);
        } else {
            if ours && entry.path == SURFACE {
                surface::large(notes, &file, len);
            }
            plain(notes, meter, entry, file, len)?;
        }
    }
    Ok(evidence)
}

fn opened<'m>(notes: &mut Notebook<'_>, dir: &PackDir, entry: &'m FileEntry) -> Option<Opened<'m>> {
    match dir.open_file(&entry.path) {
        Ok((_, len)) if len > entry.bytes.saturating_add(MAX_BEYOND) => {
            other_length(notes, entry, len);
            None
        }
        Ok((_, len)) if len > MAX_EVIDENCE => {
            let text = format!("{} is longer than {} GiB and is not read", entry.path, MAX_EVIDENCE >> 30);
            notes.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text).file(&entry.path));
            None
        }
        Ok((file, len)) => Some((entry, file, len)),
        Err(e) => {
            unopened(notes, &entry.path, &e);
            None
        }
    }
}

fn unopened(notes: &mut Notebook<'_>, name: &str, problem: &OpenProblem) {
    let (code, stage, text) = match problem {
        OpenProblem::Missing => ("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, format!("file {name} is missing")),
        OpenProblem::Special(what) => {
            ("E_PATH_ESCAPE", Stage::ValidatePaths, format!("{name} is {what}, not a plain file"))
        }
        OpenProblem::Io(e) => ("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, format!("cannot read {name}: {e}")),
    };
    notes.found(Finding::new(code, stage, text).file(name));
}

/// The files that are read line by line: together where there are both receipts and events.
fn streams(
    notes: &mut Notebook<'_>,
    tally: &mut Tally,
    meter: &mut ReadMeter<'_>,
    evidence: &mut PackEvidence,
    (receipts, events, checkpoints): (Option<Opened<'_>>, Option<Opened<'_>>, Option<Opened<'_>>),
    ours: bool,
) -> Result<(), VerifyError> {
    if !ours {
        let Some((entry, file, _)) = receipts else { return Ok(()) };
        meter.stage = Stage::ValidateReceipts;
        let mut lines = HashedLines::hashed(file);
        let walked = foreign::walk(notes, tally, meter, &mut lines);
        match walked {
            Ok(found) => evidence.foreign = Some(found),
            Err(stop) => return stopped(notes, RECEIPTS, &stop),
        }
        let hash = lines.finish(meter);
        return compare(notes, entry, hash);
    }
    let mut seals = checkpoints.map(|(entry, file, _)| (entry, SealFile::new(HashedLines::hashed(file))));
    match (receipts, events) {
        (Some((receipt_entry, receipt_file, _)), Some((event_entry, event_file, _))) => {
            let mut events = HashedLines::hashed(event_file);
            let mut receipts =
                ReceiptFile::new(HashedLines::hashed(receipt_file), evidence.doc.as_ref().map(|d| d.session_id));
            // Without the document it is not known whether the session was recovered.
            let recovered = evidence.doc.as_ref().is_none_or(|d| !d.recovery_notes.is_empty());
            let decisions = evidence.decisions.as_ref();
            let sealed = seals.as_mut().map(|(_, seals)| seals);
            match walk(notes, tally, meter, (&mut events, &mut receipts), recovered, decisions, sealed) {
                Ok(walked) => evidence.walked = walked,
                Err((name, stop)) => return stopped(notes, name, &stop),
            }
            evidence.totals = receipts.totals();
            evidence.chain = true;
            meter.stage = Stage::ValidateFileHashes;
            let hash = receipts.finish(meter);
            compare(notes, receipt_entry, hash)?;
            let hash = events.finish(meter);
            compare(notes, event_entry, hash)?;
        }
        (Some((entry, file, _)), None) => {
            let mut receipts = ReceiptFile::new(HashedLines::hashed(file), evidence.doc.as_ref().map(|d| d.session_id));
            if let Err(stop) = alone(notes, tally, meter, &mut receipts) {
                return stopped(notes, RECEIPTS, &stop);
            }
            evidence.totals = receipts.totals();
            let hash = receipts.finish(meter);
            compare(notes, entry, hash)?;
        }
        (None, Some((entry, file, _))) => {
            let mut events = HashedLines::hashed(file);
            let mut chain = ChainWalk::new(AUDIT_LOG, None);
            loop {
                match events.next(meter) {
                    Ok(Some(line)) => {
                        let read = chain.step(&line, &mut |f| notes.found(f)).is_some();
                        if chain.newer {
                            break;
                        }
                        if !read && let Err(stop) = notes.garbage(line.bytes.len()) {
                            return stopped(notes, AUDIT_LOG, &stop);
                        }
                    }
                    Ok(None) => break,
                    Err(stop) => return stopped(notes, AUDIT_LOG, &stop),
                }
            }
            if !chain.newer {
                chain.finish(&mut |f| notes.found(f));
            }
            evidence.chain = true;
            let hash = events.finish(meter);
            compare(notes, entry, hash)?;
        }
        (None, None) => {}
    }
    let Some((entry, seals)) = seals else { return Ok(()) };
    meter.stage = Stage::ValidateFileHashes;
    let hash = seals.hash(meter);
    compare(notes, entry, hash)
}

/// A file that could not be read to its end has no hash; that is a finding, unless the caller wanted it so.
fn stopped(notes: &mut Notebook<'_>, name: &str, stop: &ReadStop) -> Result<(), VerifyError> {
    let text = match stop {
        ReadStop::Cancelled => return Err(VerifyError::Cancelled),
        ReadStop::TooLong => {
            let (line, receipts) = (MAX_LINE >> 20, super::receipts::MAX_RECEIPTS);
            format!(
                "{name} is not read to its end: it or a line of it is longer than {line} MiB, or it has more than {receipts} receipts"
            )
        }
        ReadStop::Garbage => format!("{name} is not read to its end: too much of it is not evidence"),
        ReadStop::Io(e) => format!("cannot read {name}: {e}"),
    };
    notes.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text).file(name));
    Ok(())
}

fn compare(
    notes: &mut Notebook<'_>,
    entry: &FileEntry,
    hashed: Result<(String, u64), ReadStop>,
) -> Result<(), VerifyError> {
    let (sha256, len) = match hashed {
        Ok(hashed) => hashed,
        Err(stop) => return stopped(notes, &entry.path, &stop),
    };
    notes.facts.total_bytes += len;
    if entry.path == RECEIPTS {
        notes.facts.receipt_pack_sha256 = Some(sha256.clone());
    }
    if sha256 != entry.sha256 {
        let text = format!("hash mismatch for {}", entry.path);
        notes.found(
            Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text)
                .file(&entry.path)
                .sides(&entry.sha256, sha256),
        );
    } else if len != entry.bytes {
        let text = format!("the length of {} is not the listed one", entry.path);
        notes.found(
            Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text)
                .file(&entry.path)
                .sides(entry.bytes, len),
        );
    }
    Ok(())
}

fn whole(
    notes: &mut Notebook<'_>,
    meter: &mut ReadMeter<'_>,
    entry: &FileEntry,
    file: File,
    len: u64,
    max: usize,
) -> Result<Option<Vec<u8>>, VerifyError> {
    match Whole::read(file, len, max, meter) {
        Ok(whole) => {
            compare(notes, entry, Ok((whole.sha256, whole.bytes.len() as u64)))?;
            Ok(Some(whole.bytes))
        }
        Err(stop) => stopped(notes, &entry.path, &stop).map(|()| None),
    }
}

fn plain(
    notes: &mut Notebook<'_>,
    meter: &mut ReadMeter<'_>,
    entry: &FileEntry,
    file: File,
    len: u64,
) -> Result<(), VerifyError> {
    if len != entry.bytes {
        other_length(notes, entry, len);
        return Ok(());
    }
    if len > MAX_SIDE_FILE {
        let text = format!("{} is longer than {} MiB and is not read", entry.path, MAX_SIDE_FILE >> 20);
        notes.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text).file(&entry.path));
        return Ok(());
    }
    let hash = HashedLines::hashed(file).finish(meter);
    compare(notes, entry, hash)
}

/// Another length is another file; a sparse one of terabytes is not read to learn its hash.
fn other_length(notes: &mut Notebook<'_>, entry: &FileEntry, len: u64) {
    let text = format!("hash mismatch for {}: the length is not the listed one", entry.path);
    let f = Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text).file(&entry.path);
    notes.found(f.sides(counted(entry.bytes, "byte"), counted(len, "byte")));
}

/// What is spelt in its RFC 8785 form has one meaning, also where a double's canonical spelling is an integer that no double
/// holds (`-9223372036854776000`).
fn strict(notes: &mut Notebook<'_>, name: &str, bytes: &[u8]) -> bool {
    if canon::is_canonical(bytes.strip_suffix(b"\n").unwrap_or(bytes)) {
        return true;
    }
    let wrong = not_json(bytes);
    if let Some((code, what)) = &wrong {
        notes.found(Finding::new(code, Stage::ValidateFileHashes, format!("{name}: {what}")).file(name));
    }
    wrong.is_none()
}
