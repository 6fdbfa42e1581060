//! Stage `validate_file_hashes`: every listed file is read once, and what needs it parses it in that same pass.

use super::{
    Finding, Stage, VerifyError, builder,
    chain::ChainWalk,
    claims_tally::Tally,
    engine::Engine,
    foreign::{self, Foreign},
    manifest::Parsed,
    receipts::{ReceiptFile, Totals},
    session,
    source::{
        Lines, MAX_BEYOND, MAX_DOCUMENT, MAX_EVIDENCE, MAX_LINE, MAX_SIDE_FILE, Meter, OpenProblem, PackDir, ReadStop,
        Whole, hash_file,
    },
    unread::{Unread, not_json},
    walk::{Walked, alone, walk},
};
use crate::model::pack::{AUDIT_LOG, FileEntry, Manifest, RECEIPTS, REPORT, SESSION, SURFACE, TRANSCRIPT};
use crate::{
    canon,
    model::{SessionDoc, sha256_hex, surface::SURFACE_VERSION, version},
    text::counted,
};
use std::{collections::HashMap, fs::File, os::unix::fs::FileExt as _};

/// A listed file that was opened, and how long it is.
type Opened<'m> = (&'m FileEntry, File, u64);

/// What the files amount to.
#[derive(Debug, Default)]
pub struct Evidence {
    /// `session.json`.
    pub doc: Option<SessionDoc>,
    /// Chain and receipts, in packs of ours.
    pub walked: Option<Walked>,
    /// The audit events were walked, with the receipts or alone.
    pub chain: bool,
    /// The receipts of a pack of ours.
    pub totals: Option<Totals>,
    /// The receipts of another builder's pack.
    pub foreign: Option<Foreign>,
    /// What the builder's report says, in packs of ours.
    pub report: Option<builder::Report>,
    /// What the builder's transcript says, in packs of ours.
    pub transcript: Option<builder::Rows>,
    /// What the surface says of the server, in packs of ours.
    pub surface: Option<Surface>,
}

/// How many bytes the listed files have, as the manifest says.
pub(super) fn stated_bytes(m: &Manifest) -> u64 {
    m.files.iter().fold(0, |sum: u64, f| sum.saturating_add(f.bytes))
}

/// What `surface.json` repeats of the session, as canonical text.
#[derive(Debug)]
pub struct Surface {
    /// `server_info`
    pub server_info: Vec<u8>,
    /// `protocol_version`
    pub protocol_version: Vec<u8>,
}

/// Reads what is compared of a surface; one of another version is a finding.
fn surface(engine: &mut Engine<'_>, bytes: &[u8]) -> Option<Surface> {
    let (mut v, mut server_info, mut protocol_version) = (None, None, None);
    for m in canon::members(bytes).into_iter().flatten().flatten() {
        match m.key.as_deref() {
            Some("v") => v = Some(&bytes[m.value]),
            Some("server_info") => server_info = Some(bytes[m.value].to_vec()),
            Some("protocol_version") => protocol_version = Some(bytes[m.value].to_vec()),
            _ => {}
        }
    }
    let (known, v) = (SURFACE_VERSION.to_string(), v.unwrap_or_default());
    if v != known.as_bytes() {
        let newer = version::newer_value("surface", v, &known).map(Unread::TooNew);
        let unread = newer.unwrap_or_else(|| Unread::schema(format!("v is not {known}")));
        engine.found(unread.of_document(Stage::SessionCompleteness, SURFACE).0);
        return None;
    }
    Some(Surface { server_info: server_info?, protocol_version: protocol_version? })
}

/// Looks at the version of a surface that is too long to be read: `v` is its last member.
fn large_surface(engine: &mut Engine<'_>, file: &File, len: u64) {
    const MEMBER: &[u8] = b",\"v\":";
    let mut end = [0; 64];
    let read = len.checked_sub(end.len() as u64).map(|at| file.read_exact_at(&mut end, at));
    let value = read.and_then(Result::ok).and_then(|()| {
        let at = memchr::memmem::rfind(&end, MEMBER)? + MEMBER.len();
        end[at..].trim_ascii_end().strip_suffix(b"}")
    });
    let newer = value.and_then(|v| version::newer_value("surface", v, &SURFACE_VERSION.to_string()));
    if let Some(newer) = newer {
        engine.found(Finding::too_new(Stage::SessionCompleteness, &newer).file(SURFACE));
    }
}

/// Reads everything that is listed under a usable name.
///
/// # Errors
/// [`VerifyError::Cancelled`].
pub(super) fn run(
    engine: &mut Engine<'_>,
    tally: &mut Tally,
    meter: &mut Meter<'_>,
    dir: &PackDir,
    parsed: &Parsed,
    usable: &[usize],
) -> Result<Evidence, VerifyError> {
    let m = &parsed.manifest;
    meter.total = stated_bytes(m);
    let ours = m.is_ours();
    // What is read together is opened together; a manifest may list more files than a process may open.
    let mut open = HashMap::new();
    let mut rest = Vec::new();
    for entry in usable.iter().filter_map(|i| m.files.get(*i)) {
        if entry.path == RECEIPTS || ours && [SESSION, AUDIT_LOG].contains(&entry.path.as_str()) {
            if let Some(opened) = opened(engine, dir, entry) {
                open.insert(entry.path.as_str(), opened);
            }
        } else {
            rest.push(entry);
        }
    }
    meter.stage = Stage::ValidateFileHashes;
    let mut evidence = Evidence::default();
    if ours
        && let Some((entry, file, len)) = open.remove(SESSION)
        && let Some(bytes) = whole(engine, meter, entry, file, len, MAX_DOCUMENT)?
    {
        evidence.doc = session::read(engine, &bytes);
    }
    let receipts = open.remove(RECEIPTS);
    let events = open.remove(AUDIT_LOG);
    streams(engine, tally, meter, &mut evidence, receipts, events, ours)?;
    rest.sort_by_key(|entry| &entry.path);
    meter.stage = Stage::ValidateFileHashes;
    for entry in rest {
        let Some((entry, file, len)) = opened(engine, dir, entry) else { continue };
        if entry.path.to_ascii_lowercase().ends_with(".json") && len <= MAX_LINE as u64 {
            let Some(bytes) = whole(engine, meter, entry, file, len, MAX_LINE)? else { continue };
            let strict = strict(engine, &entry.path, &bytes);
            if ours && strict && entry.path == REPORT && bytes.len() <= MAX_DOCUMENT {
                evidence.report = builder::read(engine, &bytes);
            } else if ours && strict && entry.path == SURFACE {
                evidence.surface = surface(engine, &bytes);
            }
            if let Some(line) = bytes.strip_suffix(b"\n") {
                engine.unterminated.insert(entry.path.clone(), sha256_hex(line));
            }
        } else if ours && entry.path == TRANSCRIPT {
            let Some(bytes) = whole(engine, meter, entry, file, len, MAX_DOCUMENT)? else { continue };
            evidence.transcript = builder::rows(&bytes);
        } else {
            if ours && entry.path == SURFACE {
                large_surface(engine, &file, len);
            }
            plain(engine, meter, entry, file, len)?;
        }
    }
    Ok(evidence)
}

fn opened<'m>(engine: &mut Engine<'_>, dir: &PackDir, entry: &'m FileEntry) -> Option<Opened<'m>> {
    match dir.open_file(&entry.path) {
        Ok((_, len)) if len > entry.bytes.saturating_add(MAX_BEYOND) => {
            other_length(engine, entry, len);
            None
        }
        Ok((_, len)) if len > MAX_EVIDENCE => {
            let text = format!("{} is longer than {} GiB and is not read", entry.path, MAX_EVIDENCE >> 30);
            engine.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text).file(&entry.path));
            None
        }
        Ok((file, len)) => Some((entry, file, len)),
        Err(e) => {
            unopened(engine, &entry.path, &e);
            None
        }
    }
}

fn unopened(engine: &mut Engine<'_>, name: &str, problem: &OpenProblem) {
    let (code, stage, text) = match problem {
        OpenProblem::Missing => ("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, format!("file {name} is missing")),
        OpenProblem::Special(what) => {
            ("E_PATH_ESCAPE", Stage::ValidatePaths, format!("{name} is {what}, no plain file"))
        }
        OpenProblem::Io(e) => ("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, format!("cannot read {name}: {e}")),
    };
    engine.found(Finding::new(code, stage, text).file(name));
}

/// The two files that are read line by line: together where there are both.
fn streams(
    engine: &mut Engine<'_>,
    tally: &mut Tally,
    meter: &mut Meter<'_>,
    evidence: &mut Evidence,
    receipts: Option<Opened<'_>>,
    events: Option<Opened<'_>>,
    ours: bool,
) -> Result<(), VerifyError> {
    if !ours {
        let Some((entry, file, _)) = receipts else { return Ok(()) };
        meter.stage = Stage::ValidateReceipts;
        let mut lines = Lines::new(file);
        let walked = foreign::walk(engine, tally, meter, &mut lines);
        match walked {
            Ok(found) => evidence.foreign = Some(found),
            Err(stop) => return stopped(engine, RECEIPTS, &stop),
        }
        let hash = lines.finish(meter);
        return compare(engine, entry, hash);
    }
    match (receipts, events) {
        (Some((receipt_entry, receipt_file, _)), Some((event_entry, event_file, _))) => {
            let mut events = Lines::new(event_file);
            let mut receipts = ReceiptFile::new(Lines::new(receipt_file), evidence.doc.as_ref().map(|d| d.session_id));
            // Without a document nobody knows whether it was recovered.
            let recovered = evidence.doc.as_ref().is_none_or(|d| !d.recovery_notes.is_empty());
            match walk(engine, tally, meter, &mut events, &mut receipts, recovered) {
                Ok(walked) => evidence.walked = walked,
                Err((name, stop)) => return stopped(engine, name, &stop),
            }
            evidence.totals = receipts.totals();
            evidence.chain = true;
            meter.stage = Stage::ValidateFileHashes;
            let hash = receipts.finish(meter);
            compare(engine, receipt_entry, hash)?;
            let hash = events.finish(meter);
            compare(engine, event_entry, hash)
        }
        (Some((entry, file, _)), None) => {
            let mut receipts = ReceiptFile::new(Lines::new(file), evidence.doc.as_ref().map(|d| d.session_id));
            if let Err(stop) = alone(engine, tally, meter, &mut receipts) {
                return stopped(engine, RECEIPTS, &stop);
            }
            evidence.totals = receipts.totals();
            let hash = receipts.finish(meter);
            compare(engine, entry, hash)
        }
        (None, Some((entry, file, _))) => {
            let mut events = Lines::new(file);
            let mut chain = ChainWalk::new(AUDIT_LOG, None);
            loop {
                match events.next(meter) {
                    Ok(Some(line)) => {
                        let read = chain.step(&line, &mut |f| engine.found(f)).is_some();
                        if chain.newer {
                            break;
                        }
                        if !read && let Err(stop) = engine.garbage(line.bytes.len()) {
                            return stopped(engine, AUDIT_LOG, &stop);
                        }
                    }
                    Ok(None) => break,
                    Err(stop) => return stopped(engine, AUDIT_LOG, &stop),
                }
            }
            if !chain.newer {
                chain.finish(&mut |f| engine.found(f));
            }
            evidence.chain = true;
            let hash = events.finish(meter);
            compare(engine, entry, hash)
        }
        (None, None) => Ok(()),
    }
}

/// A file that could not be read to its end has no hash; that is a finding, unless the caller wanted it so.
fn stopped(engine: &mut Engine<'_>, name: &str, stop: &ReadStop) -> Result<(), VerifyError> {
    let text = match stop {
        ReadStop::Cancelled => return Err(VerifyError::Cancelled),
        ReadStop::TooLong => {
            let (line, receipts) = (MAX_LINE >> 20, super::receipts::MAX_RECEIPTS);
            format!(
                "{name} is not read to its end: it or a line of it is longer than {line} MiB, or it has more than {receipts} receipts"
            )
        }
        ReadStop::Garbage => format!("{name} is not read to its end: too much of it is no evidence"),
        ReadStop::Io(e) => format!("cannot read {name}: {e}"),
    };
    engine.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text).file(name));
    Ok(())
}

fn compare(
    engine: &mut Engine<'_>,
    entry: &FileEntry,
    hashed: Result<(String, u64), ReadStop>,
) -> Result<(), VerifyError> {
    let (sha256, len) = match hashed {
        Ok(hashed) => hashed,
        Err(stop) => return stopped(engine, &entry.path, &stop),
    };
    engine.facts.total_bytes += len;
    if entry.path == RECEIPTS {
        engine.facts.receipt_pack_sha256 = Some(sha256.clone());
    }
    if sha256 != entry.sha256 {
        let text = format!("hash mismatch for {}", entry.path);
        engine.found(
            Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text)
                .file(&entry.path)
                .sides(&entry.sha256, sha256),
        );
    } else if len != entry.bytes {
        let text = format!("{} has another length than listed", entry.path);
        engine.found(
            Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text)
                .file(&entry.path)
                .sides(entry.bytes, len),
        );
    }
    Ok(())
}

fn whole(
    engine: &mut Engine<'_>,
    meter: &mut Meter<'_>,
    entry: &FileEntry,
    file: File,
    len: u64,
    max: usize,
) -> Result<Option<Vec<u8>>, VerifyError> {
    match Whole::read(file, len, max, meter) {
        Ok(whole) => {
            compare(engine, entry, Ok((whole.sha256, whole.bytes.len() as u64)))?;
            Ok(Some(whole.bytes))
        }
        Err(stop) => stopped(engine, &entry.path, &stop).map(|()| None),
    }
}

fn plain(
    engine: &mut Engine<'_>,
    meter: &mut Meter<'_>,
    entry: &FileEntry,
    file: File,
    len: u64,
) -> Result<(), VerifyError> {
    if len != entry.bytes {
        other_length(engine, entry, len);
        return Ok(());
    }
    if len > MAX_SIDE_FILE {
        let text = format!("{} is longer than {} MiB and is not read", entry.path, MAX_SIDE_FILE >> 20);
        engine.found(Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text).file(&entry.path));
        return Ok(());
    }
    let hash = hash_file(file, meter);
    compare(engine, entry, hash)
}

/// Another length is another file; a sparse one of terabytes is not read to learn its hash.
fn other_length(engine: &mut Engine<'_>, entry: &FileEntry, len: u64) {
    let text = format!("hash mismatch for {}: it has another length", entry.path);
    let f = Finding::new("E_MANIFEST_TAMPER", Stage::ValidateFileHashes, text).file(&entry.path);
    engine.found(f.sides(counted(entry.bytes, "byte"), counted(len, "byte")));
}

/// What is spelt in its RFC 8785 form has one meaning, also where a double's canonical spelling is an integer that no double
/// holds (`-9223372036854776000`).
fn strict(engine: &mut Engine<'_>, name: &str, bytes: &[u8]) -> bool {
    if canon::is_canonical(bytes.strip_suffix(b"\n").unwrap_or(bytes)) {
        return true;
    }
    let wrong = not_json(bytes);
    if let Some((code, what)) = &wrong {
        engine.found(Finding::new(code, Stage::ValidateFileHashes, format!("{name}: {what}")).file(name));
    }
    wrong.is_none()
}
