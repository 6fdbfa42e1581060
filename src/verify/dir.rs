//! A whole audit directory: its ledger, every segment that the ledger names, and every pack that refers to it.
//!
//! A ledger proves what is missing between its lines, but not what was cut off at its end together with every trace of
//! it. What still gives a cut away: segments and packs that it does not name, and the hash that each of them took over.

use super::{
    chain::{ChainSummary, ChainWalk},
    finding::{Finding, MAX_FINDINGS, VERSION_UNSUPPORTED},
    options::{Progress, VerifyError},
    session,
    signature::verify_ed25519,
    source::{HashedLines, MAX_DOCUMENT, OpenProblem, PackDir, ReadMeter, ReadStop},
    unread::{Unread, explain_document},
    words::Stage,
};
use crate::model::pack::{AUDIT_LOG, RECEIPTS, SESSION};
use crate::{
    model::{
        GENESIS, LedgerKind, LedgerLine, SessionId,
        event::hash_of_line,
        ledger::{Pruned, PrunedWhat, session_of_segment},
        line::Canonical as _,
        sha256_hex,
    },
    text::counted,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashSet},
    ops::ControlFlow,
    path::Path,
};

const LEDGER: &str = "ledger.jsonl";

/// State of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentState {
    /// It has its end, and the ledger has it too.
    Ended,
    /// It has no end: its session is running, or died.
    Unterminated,
    /// The ledger names it, and it is not there.
    Missing,
    /// It is not one unbroken chain, or not the one that the ledger names.
    Broken,
    /// It is there, and the ledger does not name it.
    NotInLedger,
    /// A later version wrote some of its lines: it cannot be judged.
    TooNew,
    /// It is not there, and a signed tombstone in the ledger says so.
    Pruned,
}

/// One segment of an audit directory.
#[derive(Debug, Clone, Serialize)]
pub struct SegmentReport {
    /// File name of the segment.
    pub file: String,
    /// Its session; `null` when nothing says.
    pub session: Option<SessionId>,
    /// State of the segment.
    pub state: SegmentState,
    /// Number of events in the segment.
    pub events: u64,
    /// Bytes after its last whole line.
    pub torn: bool,
}

/// What an audit directory amounts to.
#[derive(Debug, Clone, Serialize)]
pub struct AuditDirReport {
    /// Segments, by file name.
    pub segments: Vec<SegmentReport>,
    /// Lines of the ledger.
    pub ledger_lines: u64,
    /// A later version wrote some of them: what the ledger lacks is not known.
    pub ledger_too_new: bool,
    /// Packs that were looked at: only their `session.json`; verify each by itself.
    pub packs: u64,
    /// What is wrong, at most [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
    /// Number of findings that are not listed.
    pub findings_omitted: u64,
}

impl AuditDirReport {
    /// Whether nothing is missing, changed or out of place. Unterminated segments are named, not wrong.
    #[must_use]
    pub fn intact(&self) -> bool {
        self.findings.is_empty()
    }

    fn found(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.findings_omitted += 1;
        }
    }
}

/// What the ledger says of one segment.
#[derive(Debug, Default)]
struct Named {
    start: Option<LedgerLine>,
    end: Option<LedgerLine>,
    /// A tombstone says that it was removed.
    pruned: bool,
}

/// What a tombstone says, if its signer signed it.
///
/// # Errors
/// Why it counts for nothing, in words.
pub fn tombstone(line: &LedgerLine) -> Result<&Pruned, String> {
    let pruned = line.pruned.as_ref().filter(|_| line.is_of_its_kind()).ok_or("it is no tombstone")?;
    let public = STANDARD.decode(&pruned.signer.public_key).unwrap_or_default();
    if sha256_hex(&public) != pruned.signer.fingerprint {
        return Err("the signer's fingerprint is not that of the public key".to_owned());
    }
    let signature = STANDARD.decode(&pruned.signature).unwrap_or_default();
    let signed = line.signed_bytes().map_err(|e| e.to_string())?;
    verify_ed25519(&public, &signed, &signature).map_err(|e| e.to_string())?;
    Ok(pruned)
}

/// Verifies the ledger and the segments of an audit directory; reads only.
///
/// # Errors
/// The directory cannot be read, or `progress` broke.
pub fn verify_audit_dir(
    dir: &Path,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<AuditDirReport, VerifyError> {
    let root = PackDir::open(dir)?;
    let Some(audit) = root.sub("audit") else {
        return Err(VerifyError::NotAPack {
            dir: dir.to_owned(),
            why: "it has no audit/, so it is not an audit directory".into(),
        });
    };
    let mut meter = ReadMeter::new(progress);
    meter.stage = Stage::VerifyChain;
    let mut report = AuditDirReport {
        segments: Vec::new(),
        ledger_lines: 0,
        ledger_too_new: false,
        packs: 0,
        findings: Vec::new(),
        findings_omitted: 0,
    };
    let mut hashes = HashSet::from([GENESIS.to_owned()]);
    let named = ledger(&audit, &mut meter, &mut report, &mut hashes)?;
    let io = |source| VerifyError::Io { path: audit.path().to_owned(), source };
    let there = audit.list().map_err(io)?.unwrap_or_default();
    let there: HashSet<&str> =
        there.iter().map(|e| e.name.as_str()).filter(|n| session_of_segment(n).is_some()).collect();
    let mut all: Vec<&str> = named.keys().map(String::as_str).chain(there.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    let sealed = root.sub("packs");
    for file in all {
        let session = session_of_segment(file).map(|(_, id)| id);
        segment((&audit, sealed.as_ref()), file, session, named.get(file), &hashes, &mut meter, &mut report)?;
    }
    packs(&root, &hashes, &mut meter, &mut report)?;
    Ok(report)
}

fn wrong(code: &'static str, file: &str, what: impl Into<String>) -> Finding {
    Finding::new(code, Stage::VerifyChain, what).file(file)
}

fn stop(audit: &PackDir, file: &str, stop: ReadStop, report: &mut AuditDirReport) -> Result<(), VerifyError> {
    match stop {
        ReadStop::Cancelled => Err(VerifyError::Cancelled),
        ReadStop::Io(source) => Err(VerifyError::Io { path: audit.path().join(file), source }),
        ReadStop::TooLong | ReadStop::Garbage => {
            report.found(wrong("E_CHAIN_BROKEN", file, "a line is too long"));
            Ok(())
        }
    }
}

/// Walks the ledger; gives what it says of each segment, and collects the hashes of its lines.
fn ledger(
    audit: &PackDir,
    meter: &mut ReadMeter<'_>,
    report: &mut AuditDirReport,
    hashes: &mut HashSet<String>,
) -> Result<BTreeMap<String, Named>, VerifyError> {
    let mut named: BTreeMap<String, Named> = BTreeMap::new();
    let file = match audit.open_file(LEDGER) {
        Ok((file, _)) => file,
        Err(OpenProblem::Missing) => {
            report.found(wrong("E_PACK_OMISSION_DETECTED", LEDGER, "there is no ledger"));
            return Ok(named);
        }
        Err(OpenProblem::Special(what)) => {
            report.found(wrong("E_PATH_ESCAPE", LEDGER, format!("the ledger is {what}, not a plain file")));
            return Ok(named);
        }
        Err(OpenProblem::Io(source)) => return Err(VerifyError::Io { path: audit.path().join(LEDGER), source }),
    };
    let mut lines = HashedLines::hashed(file);
    let mut prev = Some(GENESIS.to_owned());
    let (mut seq, mut newer) = (0, false);
    loop {
        let line = match lines.next(meter) {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(e) => {
                stop(audit, LEDGER, e, report)?;
                break;
            }
        };
        report.ledger_lines += 1;
        let mut found = |code, what: String| report.found(wrong(code, LEDGER, what).line(line.number, line.offset));
        if !line.terminated {
            found("E_CHAIN_BROKEN", "the last line has no newline: it was cut".into());
        }
        let Some(entry) = LedgerLine::of_line(line.bytes).filter(|l| l.is_of_its_kind()) else {
            match explain_document::<LedgerLine>(line.bytes, true) {
                Unread::TooNew(e) => {
                    found(VERSION_UNSUPPORTED, e.to_string());
                    newer = true;
                }
                Unread::Wrong(code, what) => found(code, format!("not a ledger line: {what}")),
            }
            prev = None;
            seq += 1;
            continue;
        };
        if hash_of_line(line.bytes).as_ref() != Some(&entry.hash) {
            found("E_CHAIN_BROKEN", "the line is not what its hash says".into());
        }
        if entry.ledger_seq != seq {
            found(
                "E_CHAIN_BROKEN",
                format!("ledger_seq is {}, expected {seq}: lines are missing or repeated", entry.ledger_seq),
            );
        }
        if prev.as_ref().is_some_and(|p| *p != entry.prev_hash) {
            found("E_CHAIN_BROKEN", "prev_hash is not the hash of the previous line".into());
        }
        seq = entry.ledger_seq.saturating_add(1);
        prev = Some(entry.hash.clone());
        hashes.insert(entry.hash.clone());
        let slot = named.entry(entry.segment.clone());
        match entry.kind {
            LedgerKind::TornTail | LedgerKind::SurfaceApproval => {}
            LedgerKind::Pruned => match tombstone(&entry) {
                Ok(pruned) => slot.or_default().pruned |= pruned.what == PrunedWhat::Pack,
                Err(why) => found("E_PACK_SIG_INVALID", format!("a tombstone that counts for nothing: {why}")),
            },
            LedgerKind::SegmentStart => {
                if slot.or_default().start.replace(*entry).is_some() {
                    found("E_CHAIN_BROKEN", "the segment starts twice".into());
                }
            }
            LedgerKind::SegmentEnd => {
                let slot = slot.or_default();
                if slot.start.is_none() && !newer || slot.end.replace(*entry).is_some() {
                    found("E_CHAIN_BROKEN", "the segment ends twice, or without a start".into());
                }
            }
        }
    }
    report.ledger_too_new = newer;
    named.retain(|_, n| n.start.is_some() || n.end.is_some());
    Ok(named)
}

fn segment(
    (audit, packs): (&PackDir, Option<&PackDir>),
    file: &str,
    session: Option<SessionId>,
    named: Option<&Named>,
    hashes: &HashSet<String>,
    meter: &mut ReadMeter<'_>,
    report: &mut AuditDirReport,
) -> Result<(), VerifyError> {
    let mut out =
        SegmentReport { file: file.to_owned(), session, state: SegmentState::Missing, events: 0, torn: false };
    // Only names of segments are opened, whatever the ledger says.
    let opened =
        if session.is_some() { audit.open_file(file) } else { Err(OpenProblem::Special("not the name of a segment")) };
    // A journal goes when its session is sealed; the pack has its events.
    let in_pack = || {
        let pack = packs?.sub(&format!("proof_pack_{}", session_of_segment(file)?.0))?;
        pack.open_file(AUDIT_LOG).ok()
    };
    let opened = match opened {
        Err(OpenProblem::Missing) => in_pack().ok_or(OpenProblem::Missing),
        opened => opened,
    };
    let opened = match opened {
        Ok((opened, _)) => opened,
        Err(OpenProblem::Missing) if named.is_some_and(|n| n.pruned && n.end.is_some()) => {
            out.state = SegmentState::Pruned;
            out.events = named.and_then(|n| n.end.as_ref()).map_or(0, |end| end.event_count);
            report.segments.push(out);
            return Ok(());
        }
        Err(e) => {
            let what = match e {
                OpenProblem::Missing => "the ledger names this segment, but it is missing".to_owned(),
                OpenProblem::Special(what) => format!("the segment is {what}, not a plain file"),
                OpenProblem::Io(e) => format!("the segment cannot be read: {e}"),
            };
            report.found(wrong("E_PACK_OMISSION_DETECTED", file, what));
            report.segments.push(out);
            return Ok(());
        }
    };
    let before = report.findings.len() as u64 + report.findings_omitted;
    let mut lines = HashedLines::hashed(opened);
    let mut chain = ChainWalk::new(file, session);
    loop {
        match lines.next(meter) {
            // A torn last line comes from a crash: the next writer sets it aside, and the lines before it are valid.
            Ok(Some(line)) if !line.terminated => out.torn = true,
            Ok(Some(_)) if chain.newer => break,
            Ok(Some(line)) => drop(chain.step(&line, &mut |f| report.found(f))),
            Ok(None) => break,
            Err(e) => {
                stop(audit, file, e, report)?;
                break;
            }
        }
    }
    if chain.newer {
        out.events = chain.summary.events;
        out.state = SegmentState::TooNew;
        report.segments.push(out);
        return Ok(());
    }
    let summary = chain.finish(&mut |f| report.found(f));
    out.events = summary.events;
    against_ledger(file, &summary, named, hashes, report);
    let after = report.findings.len() as u64 + report.findings_omitted;
    out.state = match named {
        None => SegmentState::NotInLedger,
        Some(_) if after > before => SegmentState::Broken,
        Some(_) if summary.end.is_some() => SegmentState::Ended,
        Some(_) => SegmentState::Unterminated,
    };
    report.segments.push(out);
    Ok(())
}

fn against_ledger(
    file: &str,
    s: &ChainSummary,
    named: Option<&Named>,
    hashes: &HashSet<String>,
    report: &mut AuditDirReport,
) {
    let Some(named) = named else {
        if report.ledger_too_new {
            return;
        }
        let what =
            "the ledger does not name this segment: its last lines were removed, or an older ledger was put back";
        return report.found(wrong("E_PACK_OMISSION_DETECTED", file, what));
    };
    if !report.ledger_too_new && s.first_prev.as_ref().is_some_and(|p| !hashes.contains(p)) {
        let what = "the segment begins with the hash of a ledger line that is missing";
        report.found(wrong("E_PACK_OMISSION_DETECTED", file, what));
    }
    let mut same = |what: &str, expected: Option<&String>, found: Option<&String>| {
        if expected != found {
            let text = |v: Option<&String>| v.map_or("none", String::as_str).to_owned();
            let what = format!("{what} is not the one that the ledger names");
            report.found(wrong("E_CHAIN_BROKEN", file, what).sides(text(expected), text(found)));
        }
    };
    if let Some(start) = &named.start {
        same("the first event", Some(&start.segment_hash), s.first_hash.as_ref());
        same("the previous ledger line", Some(&start.prev_hash), s.first_prev.as_ref());
    }
    match (&named.end, &s.end) {
        (Some(end), Some(chain_end)) => {
            same("the last event", Some(&end.segment_hash), s.last_hash.as_ref());
            same("the number of events", Some(&end.event_count.to_string()), Some(&s.events.to_string()));
            same("complete", end.complete.map(|c| c.to_string()).as_ref(), Some(&chain_end.complete.to_string()));
        }
        (Some(end), None) => {
            let what = format!(
                "the ledger says that the segment ended after {}, but it has {} and no end",
                counted(end.event_count, "event"),
                s.events
            );
            report.found(wrong("E_PACK_OMISSION_DETECTED", file, what));
        }
        (None, Some(_)) if report.ledger_too_new => {}
        (None, Some(_)) => {
            let what =
                "the segment has ended, but the ledger does not say so: its last line was removed, or never written";
            report.found(wrong("E_PACK_OMISSION_DETECTED", file, what));
        }
        (None, None) => {}
    }
}

/// Packs carry the hash of the ledger line of their start: a ledger that lacks it is not the one they were made beside.
fn packs(
    root: &PackDir,
    hashes: &HashSet<String>,
    meter: &mut ReadMeter<'_>,
    report: &mut AuditDirReport,
) -> Result<(), VerifyError> {
    let Some(packs) = root.sub("packs") else { return Ok(()) };
    let io = |source| VerifyError::Io { path: packs.path().to_owned(), source };
    for entry in packs.list().map_err(io)?.unwrap_or_default() {
        let Some(pack) = packs.sub(&entry.name).filter(|p| p.open_file(RECEIPTS).is_ok()) else { continue };
        let Ok(Ok(whole)) = pack.read_whole(SESSION, MAX_DOCUMENT, meter) else { continue };
        report.packs += 1;
        let Some(doc) = session::parse(&whole.bytes) else { continue };
        if !report.ledger_too_new && !hashes.contains(&doc.ledger_hash) {
            let what = format!("the pack of {} refers to a ledger line that is missing", doc.session_id);
            report.found(wrong("E_PACK_OMISSION_DETECTED", &format!("packs/{}", entry.name), what));
        }
        if !report.segments.iter().any(|s| s.session == Some(doc.session_id) && s.state != SegmentState::Missing) {
            let what = format!("the segment of {} is missing, but its pack is there", doc.session_id);
            report.found(wrong("E_PACK_OMISSION_DETECTED", &format!("packs/{}", entry.name), what));
        }
    }
    Ok(())
}
