//! A whole audit directory: its ledger, every segment that the ledger names, and every pack that refers to it.
//!
//! A ledger proves what is missing between its lines, but not what was cut off at its end together with every trace of
//! it. What still gives a cut away: segments and packs that it does not name, and the hash that each of them took over.

use super::{
    anchor::{self, AnchorOptions, AnchorReport, MAX_ANCHORS},
    chain::{ChainSummary, ChainWalk},
    dir_log::{FORK, LogReport, LogWalk},
    dir_stated::Stated,
    ed25519::verify_ed25519,
    engine::verify,
    finding::{Finding, MAX_FINDINGS, VERSION_UNSUPPORTED},
    manifest::MAX_MANIFEST,
    options::{Progress, VerifyError, VerifyOptions},
    session,
    source::{HashedLines, MAX_DOCUMENT, OpenProblem, PackDir, ReadMeter, ReadStop, is_locked},
    state::{KnownPack, State},
    trust,
    unread::{Unread, explain_document},
    words::{Claims, Completeness, Exit, Integrity, SignerVerdict, Stage},
};
use crate::model::pack::{AUDIT_LOG, CHECKPOINTS, MANIFEST, Manifest, RECEIPTS, SESSION};
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
use assay_evidence::note;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    ops::ControlFlow,
    path::Path,
};

const LEDGER: &str = "ledger.jsonl";

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SegmentState {
    /// Somebody is recording it, or sealing it.
    Running,
    /// It has its end, and the ledger has it too.
    Ended,
    /// It has no end, and nobody is recording it: its recorder died.
    Unterminated,
    /// The ledger names it, and it is not there.
    Missing,
    /// It is not one unbroken chain, or not the one that was stated.
    Broken,
    /// It is there, and the ledger does not name it.
    NotInLedger,
    /// A later version wrote some of its lines: it cannot be judged.
    TooNew,
    /// It is not there, and a signed tombstone in the ledger says so.
    Pruned,
    /// The ledger names its pack, and that is not there.
    PackMissing,
    /// Its pack is not the one that the ledger names.
    PackReplaced,
}

impl SegmentState {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Ended => "ENDED",
            Self::Unterminated => "UNTERMINATED",
            Self::Missing => "MISSING",
            Self::Broken => "BROKEN",
            Self::NotInLedger => "NOT_IN_LEDGER",
            Self::TooNew => "TOO_NEW",
            Self::Pruned => "PRUNED",
            Self::PackMissing => "PACK_MISSING",
            Self::PackReplaced => "PACK_REPLACED",
        }
    }
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
    /// Its pack, if it was verified.
    pub pack: Option<PackRow>,
}

/// What the verification of one pack comes to.
#[derive(Debug, Clone, Serialize)]
pub struct PackRow {
    /// Name of its directory.
    pub name: String,
    /// The four channels.
    pub integrity: Integrity,
    /// Whether the session was recorded from start to end.
    pub completeness: Completeness,
    /// Claims.
    pub claims: Claims,
    /// Whose key.
    pub signer: SignerVerdict,
    /// As of `verify-pack`.
    pub exit_code: u8,
    /// The first thing that is wrong, or a demand that is not met.
    pub why: Option<String>,
}

/// What a caller asks of an audit directory.
#[derive(Debug, Clone, Default)]
pub struct DirOptions {
    /// What each pack must meet; who may sign holds for checkpoints of the ledger, too.
    pub packs: VerifyOptions,
    /// Packs are compared with the ledger, and not verified.
    pub without_packs: bool,
    /// Keys that may have signed checkpoints of the ledger, besides those that packs name.
    pub log_keys: Vec<note::Key>,
    /// What the caller remembers.
    pub state: Option<State>,
    /// Whose anchors count, and what is demanded of them.
    pub anchors: AnchorOptions,
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
    /// The ledger as a log; null without a ledger.
    pub log: Option<LogReport>,
    /// What witnesses have signed of the ledger; null without a ledger.
    pub anchor: Option<AnchorReport>,
    /// Demands that are not met.
    pub unmet: Vec<String>,
    /// Packs that are there.
    pub packs: u64,
    /// What is wrong, at most [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
    /// Number of findings that are not listed.
    pub findings_omitted: u64,
    /// Worth knowing, and not wrong.
    pub warnings: Vec<String>,
}

impl AuditDirReport {
    /// Whether nothing is missing, changed or out of place. Unterminated segments are named, not wrong.
    #[must_use]
    pub fn intact(&self) -> bool {
        self.findings.is_empty()
    }

    /// As for several packs: the worst decides, 2, then 3, then 1.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let of_finding = |finding: &Finding| if finding.code == VERSION_UNSUPPORTED { 3 } else { 2 };
        let of_row = |row: &SegmentReport| {
            let own = u8::from(row.state == SegmentState::Unterminated);
            own.max(row.pack.as_ref().map_or(0, |pack| pack.exit_code))
        };
        let unmet = self.unmet.iter().map(|_| 1);
        let rows = self.segments.iter().map(of_row);
        let all: BTreeSet<u8> = self.findings.iter().map(of_finding).chain(rows).chain(unmet).collect();
        [(2, Exit::Failed), (3, Exit::BadInput), (1, Exit::Violation)]
            .into_iter()
            .find_map(|(code, exit)| all.contains(&code).then_some(exit))
            .unwrap_or(Exit::Ok)
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
    /// The hash of the manifest of its pack.
    sealed: Option<String>,
    /// Events and their root, as lines say it while it was recorded, or at its end.
    stated: Vec<(u64, String)>,
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
    let options = DirOptions { without_packs: true, ..DirOptions::default() };
    verify_dir(dir, &options, progress).map(|(report, _)| report)
}

/// Verifies an audit directory: ledger, segments, packs, and what is signed and remembered of the ledger; reads only. Gives what is
/// worth remembering, where it does not contradict what was remembered.
///
/// # Errors
/// The directory cannot be read, or `progress` broke.
pub fn verify_dir(
    dir: &Path,
    options: &DirOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(AuditDirReport, State), VerifyError> {
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
        log: None,
        anchor: None,
        unmet: Vec::new(),
        packs: 0,
        findings: Vec::new(),
        findings_omitted: 0,
        warnings: Vec::new(),
    };
    let io = |dir: &PackDir| {
        let path = dir.path().to_owned();
        move |source| VerifyError::Io { path, source }
    };
    // Names first: what comes since then need not be in the ledger as it is read.
    let there = audit.list().map_err(io(&audit))?.unwrap_or_default();
    let there: HashSet<&str> =
        there.iter().map(|e| e.name.as_str()).filter(|n| session_of_segment(n).is_some()).collect();
    let sealed = root.sub("packs");
    let packed = match &sealed {
        Some(packs) => packs.list().map_err(io(packs))?.unwrap_or_default(),
        None => Vec::new(),
    };
    let mut book = Book {
        audit: &audit,
        packs: sealed.as_ref(),
        options,
        hashes: HashSet::from([GENESIS.to_owned()]),
        named: BTreeMap::new(),
        keys: options.log_keys.iter().map(|key| *key.public()).collect(),
        state: options.state.clone().unwrap_or_default(),
        anchors: 0,
    };
    let mut notes = match options.anchors.policy {
        Some(_) => anchored(&audit, &mut meter)?,
        None => Vec::new(),
    };
    notes.extend(options.anchors.kept.iter().map(|kept| String::from_utf8_lossy(kept).into_owned()));
    let mut log = LogWalk::new(&audit, options.state.as_ref(), &notes, &mut meter);
    let has_ledger = book.ledger(&mut log, &mut meter, &mut report)?;
    let named = std::mem::take(&mut book.named);
    let of_packs: Vec<String> = packed.iter().filter_map(|entry| segment_of(&entry.name)).collect();
    let of_packs = of_packs.iter().map(String::as_str).filter(|file| session_of_segment(file).is_some());
    let mut all: Vec<&str> = named.keys().map(String::as_str).chain(there.iter().copied()).chain(of_packs).collect();
    all.sort_unstable();
    all.dedup();
    for file in all {
        book.segment(file, named.get(file), &mut meter, &mut report)?;
    }
    for entry in packed {
        book.pack(&entry.name, &named, &mut meter, &mut report)?;
    }
    for row in &mut report.segments {
        let sealed = named.get(&row.file).is_some_and(|named| named.sealed.is_some() && !named.pruned);
        let is_there = pack_of(&row.file).is_some_and(|pack| sealed_in(book.packs, &pack));
        if sealed && !is_there {
            row.state = SegmentState::PackMissing;
        }
    }
    let missing: Vec<Finding> = report
        .segments
        .iter()
        .filter(|row| row.state == SegmentState::PackMissing)
        .map(|row| {
            wrong("E_PACK_OMISSION_DETECTED", &row.file, "the ledger names the pack of this session, and it is missing")
        })
        .collect();
    for finding in missing {
        report.found(finding);
    }
    if has_ledger {
        let place = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let place = String::from_utf8_lossy(place.as_os_str().as_encoded_bytes()).into_owned();
        let (mut said, mut warnings) = (Vec::new(), Vec::new());
        let mut channel = AnchorReport::default();
        if let Some(policy) = &options.anchors.policy {
            notes.extend(log.note().cloned());
            (channel, said) = anchor::judge(&notes, policy, options.packs.now, &|origin, size| log.known(origin, size));
        }
        channel.present = book.anchors + options.anchors.kept.len() as u64;
        report.unmet = anchor::demands(&options.anchors, &channel, "the ledger");
        report.anchor = Some(channel);
        let (log, known) = log.finish(&book.keys, &options.packs, &place, &mut said, &mut warnings);
        if said.is_empty()
            && !report.ledger_too_new
            && let Some(known) = known
        {
            book.state.log(known);
        }
        for finding in said {
            report.found(finding);
        }
        report.warnings.extend(warnings);
        report.log = Some(log);
    }
    Ok((report, book.state))
}

/// The name of the pack of a segment.
fn pack_of(segment: &str) -> Option<String> {
    Some(format!("proof_pack_{}", session_of_segment(segment)?.0))
}

/// The segment of a pack.
fn segment_of(pack: &str) -> Option<String> {
    Some(format!("segment_{}.jsonl", pack.strip_prefix("proof_pack_")?))
}

fn sealed_in(packs: Option<&PackDir>, name: &str) -> bool {
    packs.and_then(|packs| packs.sub(name)).is_some_and(|pack| pack.open_file(MANIFEST).is_ok())
}

/// The last anchors that the ledger holds, and what was signed of the logs that it was before.
fn anchored(audit: &PackDir, meter: &mut ReadMeter<'_>) -> Result<Vec<String>, VerifyError> {
    let Ok((file, _)) = audit.open_file(LEDGER) else { return Ok(Vec::new()) };
    let (mut lines, mut notes) = (HashedLines::hashed(file), VecDeque::new());
    let kinds = [LedgerKind::Anchored, LedgerKind::LogRenewed].map(|kind| format!("\"kind\":\"{}\"", kind.as_str()));
    let is_one = |line: &[u8]| kinds.iter().any(|kind| memchr::memmem::find(line, kind.as_bytes()).is_some());
    loop {
        match lines.next(meter) {
            Ok(Some(line)) if is_one(line.bytes) => {
                let line = LedgerLine::of_line(line.bytes).filter(|line| line.is_of_its_kind());
                notes.extend(line.and_then(|line| match (line.anchored, line.renewed) {
                    (Some(anchored), _) => Some(anchored.checkpoint),
                    (None, renewed) => renewed?.checkpoint,
                }));
                if notes.len() > MAX_ANCHORS {
                    notes.pop_front();
                }
            }
            Ok(Some(_)) => {}
            Err(ReadStop::Cancelled) => return Err(VerifyError::Cancelled),
            // The walk says what is wrong.
            Ok(None) | Err(_) => return Ok(notes.into()),
        }
    }
}

/// What is known while a directory is read.
struct Book<'a> {
    audit: &'a PackDir,
    packs: Option<&'a PackDir>,
    options: &'a DirOptions,
    /// Hashes of lines of the ledger.
    hashes: HashSet<String>,
    named: BTreeMap<String, Named>,
    /// Public keys that may have signed the ledger.
    keys: BTreeSet<[u8; 32]>,
    state: State,
    /// Lines with what witnesses have signed.
    anchors: u64,
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

impl Book<'_> {
    /// Walks the ledger: what it says of each segment, the hashes of its lines, and its tree. `false` without a ledger.
    fn ledger(
        &mut self,
        log: &mut LogWalk<'_>,
        meter: &mut ReadMeter<'_>,
        report: &mut AuditDirReport,
    ) -> Result<bool, VerifyError> {
        let audit = self.audit;
        let file = match audit.open_file(LEDGER) {
            Ok((file, _)) => file,
            Err(OpenProblem::Missing) => {
                report.found(wrong("E_PACK_OMISSION_DETECTED", LEDGER, "there is no ledger"));
                return Ok(false);
            }
            Err(OpenProblem::Special(what)) => {
                report.found(wrong("E_PATH_ESCAPE", LEDGER, format!("the ledger is {what}, not a plain file")));
                return Ok(false);
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
            if line.terminated {
                log.line(line.bytes);
            } else {
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
            self.hashes.insert(entry.hash.clone());
            self.line(*entry, newer, &mut found);
        }
        report.ledger_too_new = newer;
        self.named.retain(|_, n| n.start.is_some() || n.end.is_some());
        Ok(true)
    }

    /// Takes what a line says of a segment.
    fn line(&mut self, line: LedgerLine, newer: bool, found: &mut dyn FnMut(&'static str, String)) {
        let slot = self.named.entry(line.segment.clone()).or_default();
        if matches!(line.kind, LedgerKind::SegmentCheckpoint | LedgerKind::SegmentEnd) {
            slot.stated.extend(line.tree_root.clone().map(|root| (line.event_count, root)));
        }
        match line.kind {
            LedgerKind::TornTail
            | LedgerKind::SurfaceApproval
            | LedgerKind::SegmentCheckpoint
            | LedgerKind::LogRenewed => {}
            LedgerKind::Anchored => self.anchors += 1,
            LedgerKind::Pruned => match tombstone(&line) {
                Ok(pruned)
                    if trust::signer(&self.options.packs, Some(&pruned.signer.fingerprint))
                        == SignerVerdict::Untrusted =>
                {
                    let by = &pruned.signer.fingerprint;
                    let what = format!("a tombstone by the key {by}, which is none of those that were named");
                    found("E_PACK_SIG_INVALID", what);
                }
                Ok(pruned) => {
                    slot.pruned |= pruned.what == PrunedWhat::Pack;
                    let key = STANDARD.decode(&pruned.signer.public_key).ok();
                    self.keys.extend(key.and_then(|key| <[u8; 32]>::try_from(key).ok()));
                }
                Err(why) => found("E_PACK_SIG_INVALID", format!("a tombstone that counts for nothing: {why}")),
            },
            LedgerKind::PackSealed => match &slot.sealed {
                None => slot.sealed = line.pack_manifest_sha256,
                Some(before) if Some(before) == line.pack_manifest_sha256.as_ref() => {}
                Some(_) => found("E_CHAIN_BROKEN", "the session has another pack by now: the first one counts".into()),
            },
            LedgerKind::SegmentStart => {
                if slot.start.replace(line).is_some() {
                    found("E_CHAIN_BROKEN", "the segment starts twice".into());
                }
            }
            LedgerKind::SegmentEnd => {
                if slot.start.is_none() && !newer || slot.end.replace(line).is_some() {
                    found("E_CHAIN_BROKEN", "the segment ends twice, or without a start".into());
                }
            }
        }
    }

    /// Walks a segment, wherever it is.
    fn segment(
        &mut self,
        file: &str,
        named: Option<&Named>,
        meter: &mut ReadMeter<'_>,
        report: &mut AuditDirReport,
    ) -> Result<(), VerifyError> {
        let (audit, packs) = (self.audit, self.packs);
        let session = session_of_segment(file).map(|(_, id)| id);
        let mut out = SegmentReport {
            file: file.to_owned(),
            session,
            state: SegmentState::Missing,
            events: 0,
            torn: false,
            pack: None,
        };
        // Only names of segments are opened, whatever the ledger says.
        let opened = if session.is_some() {
            audit.open_file(file)
        } else {
            Err(OpenProblem::Special("not the name of a segment"))
        };
        let is_held = opened.as_ref().is_ok_and(|(file, _)| is_locked(file));
        // A journal goes when its session is sealed; the pack has its events.
        let pack = || packs?.sub(&pack_of(file)?);
        let opened = match opened {
            Err(OpenProblem::Missing) => {
                pack().and_then(|pack| pack.open_file(AUDIT_LOG).ok()).ok_or(OpenProblem::Missing)
            }
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
        // What was stated is read first: a session that is running only grows.
        let mut stated = Stated::of(named.map_or(&[], |named| &named.stated));
        match (session, audit.open_file(&file.replacen("segment", "checkpoints", 1))) {
            (Some(session), Ok((lines, _))) => stated.read(lines, session, true, meter, &mut |f| report.found(f)),
            (Some(session), Err(_)) => {
                if let Some((lines, _)) = pack().and_then(|pack| pack.open_file(CHECKPOINTS).ok()) {
                    // The pack is verified by itself.
                    stated.read(lines, session, false, meter, &mut |f| report.found(f));
                }
            }
            (None, _) => {}
        }
        let mut lines = HashedLines::hashed(opened);
        let mut chain = ChainWalk::new(file, session);
        loop {
            match lines.next(meter) {
                // A torn last line comes from a crash: the next writer sets it aside, and the lines before it are valid.
                Ok(Some(line)) if !line.terminated => out.torn = true,
                Ok(Some(_)) if chain.newer => break,
                Ok(Some(line)) => {
                    if let Some(event) = chain.step(&line, &mut |f| report.found(f)) {
                        stated.event(event.hash);
                    }
                }
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
        let start = named.and_then(|named| named.start.as_ref());
        stated.finish(file, start, &mut |f| report.found(f));
        let is_young = is_held && named.is_none_or(|named| named.end.is_none());
        if !is_young || named.is_some() && summary.end.is_none() {
            against_ledger(file, &summary, named, &self.hashes, report);
        }
        let after = report.findings.len() as u64 + report.findings_omitted;
        out.state = match named {
            _ if after > before && named.is_some() => SegmentState::Broken,
            _ if is_held => SegmentState::Running,
            None => SegmentState::NotInLedger,
            Some(_) if summary.end.is_some() => SegmentState::Ended,
            Some(_) => SegmentState::Unterminated,
        };
        report.segments.push(out);
        Ok(())
    }

    /// Compares a pack with the ledger, and verifies it. Packs carry the hash of the ledger line of their start: a ledger that lacks
    /// it is not the one they were made beside.
    fn pack(
        &mut self,
        name: &str,
        named: &BTreeMap<String, Named>,
        meter: &mut ReadMeter<'_>,
        report: &mut AuditDirReport,
    ) -> Result<(), VerifyError> {
        let pack = self.packs.and_then(|packs| packs.sub(name)).filter(|p| p.open_file(RECEIPTS).is_ok());
        let Some(pack) = pack else { return Ok(()) };
        let segment = segment_of(name).unwrap_or_default();
        let at = report.segments.iter().position(|row| row.file == segment);
        report.packs += 1;
        let place = format!("packs/{name}");
        if let Ok(Ok(whole)) = pack.read_whole(MANIFEST, MAX_MANIFEST, meter) {
            let manifest = serde_json::from_slice::<Manifest>(&whole.bytes).ok();
            let key = manifest.and_then(|manifest| STANDARD.decode(manifest.signer_pubkey).ok());
            self.keys.extend(key.and_then(|key| <[u8; 32]>::try_from(key).ok()));
            let sealed = named.get(&segment).and_then(|named| named.sealed.as_ref());
            if let Some(at) = at
                && let Some(sealed) = sealed.filter(|sealed| **sealed != whole.sha256)
            {
                report.segments[at].state = SegmentState::PackReplaced;
                let what = "this is not the pack of the session that the ledger names";
                report.found(wrong("E_PACK_OMISSION_DETECTED", &place, what).sides(sealed, &whole.sha256));
            }
            if let Some((_, session_id)) = session_of_segment(&segment) {
                match self.state.pack(session_id) {
                    Some(known) if known.manifest_sha256 != whole.sha256 => {
                        let what = "you saw another pack of this session";
                        report.found(wrong(FORK, &place, what).sides(&known.manifest_sha256, &whole.sha256));
                    }
                    _ => self.state.seen(KnownPack { manifest_sha256: whole.sha256, session_id }),
                }
            }
        }
        if let Ok(Ok(whole)) = pack.read_whole(SESSION, MAX_DOCUMENT, meter)
            && let Some(doc) = session::parse(&whole.bytes)
        {
            if !report.ledger_too_new && !self.hashes.contains(&doc.ledger_hash) {
                let what = format!("the pack of {} refers to a ledger line that is missing", doc.session_id);
                report.found(wrong("E_PACK_OMISSION_DETECTED", &place, what));
            }
            if !report.segments.iter().any(|s| s.session == Some(doc.session_id) && s.state != SegmentState::Missing) {
                let what = format!("the segment of {} is missing, but its pack is there", doc.session_id);
                report.found(wrong("E_PACK_OMISSION_DETECTED", &place, what));
            }
        }
        if self.options.without_packs {
            return Ok(());
        }
        let verified = match verify(pack.path(), &self.options.packs, meter.progress()) {
            Ok(verified) => verified,
            Err(VerifyError::Cancelled) => return Err(VerifyError::Cancelled),
            Err(e) => {
                report.found(wrong("E_PACK_OMISSION_DETECTED", &place, e.to_string()));
                return Ok(());
            }
        };
        let first = verified.errors.first().map(|e| format!("{}: {}", e.code, e.message));
        if verified.integrity == Integrity::Tampered {
            let what = format!("the pack is TAMPERED: {}", first.as_deref().unwrap_or("it does not verify"));
            report.found(wrong("E_MANIFEST_TAMPER", &place, what));
        }
        if let Some(at) = at {
            report.segments[at].pack = Some(PackRow {
                name: name.to_owned(),
                integrity: verified.integrity,
                completeness: verified.completeness,
                claims: verified.claims,
                signer: verified.signer.verdict,
                exit_code: verified.exit().code(),
                why: first.or_else(|| verified.unmet.first().cloned()),
            });
        }
        Ok(())
    }
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
