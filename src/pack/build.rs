//! From the files of one recorded session to a finished pack (docs/formats.md, "Proof pack").
//!
//! Streams: what is held is one line at a time and 16 bytes per receipt, for the check that no id comes twice.

use super::{
    explain::{self, Explanation},
    keys::Signer,
    report::{self, Checked},
    sign::sign,
    staging::{self, NewFile, Staging, StagingError},
    tally::Tally,
    verify::{Completeness, Finding, Integrity, Stage, VerifyOptions, verify},
};
use crate::{
    canon, files,
    lines::{Lines, ReadStop},
    model::{
        EventKind, Outcome, Profile, RECORDER_VERSION, ReceiptId, SessionDoc, SessionId, WallTime,
        event::{DetailView, EventView},
        pack::{
            self, Attestation, CiBinding, DEFAULT_POLICY, EMPTY_HEAD, FINGERPRINT_VERSION, FileEntry, NO_CLAIMS,
            PACK_VERSION,
        },
        receipt::{self, Receipt},
        sha256_hex, surface, to_line,
    },
    paths::{SessionPaths, create_private_dir},
};
use std::{
    collections::BTreeSet,
    fs::File,
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// Bytes of a policy or surface file that a pack takes in.
const MAX_SIDE_FILE: u64 = 64 << 20;

/// What a pack is built from.
#[derive(Debug)]
pub struct Input<'a> {
    /// The session's files; the pack is made at `paths.pack`.
    pub paths: &'a SessionPaths,
    /// The session as a whole.
    pub session: &'a SessionDoc,
    /// The directory with the snapshots of all policies that were in force.
    pub policies: Option<&'a Path>,
    /// `surface.json`; its SHA-256 must be the session's `surface_hash`.
    pub surface: Option<&'a [u8]>,
    /// The decisions that the surface was compared with; `None` if it was compared with none.
    pub decisions: Option<Decisions>,
    /// The key that signs.
    pub signer: &'a Signer,
    /// The CI run, if any: [`super::ci::of_process`].
    pub ci_binding: Option<CiBinding>,
    /// When the pack is built.
    pub now: WallTime,
}

/// Decisions about a server's surface.
#[derive(Debug)]
pub struct Decisions {
    /// `surface_approvals.jsonl`; empty for none.
    pub approvals: Vec<u8>,
    /// `surface_approved.json`.
    pub approved: Vec<u8>,
}

/// A finished pack.
#[derive(Debug, Clone)]
pub struct Built {
    /// Directory of the pack.
    pub dir: PathBuf,
    /// The pack's id.
    pub pack_id: String,
    /// `pack_root_sha256`.
    pub root: String,
    /// Number of receipts in the pack.
    pub receipts: u64,
    /// Audit events in it.
    pub events: u64,
    /// Whether the session is all there.
    pub completeness: Completeness,
    /// What is wrong with its receipts, at most [`REPORT_FINDINGS`](pack::REPORT_FINDINGS); empty for a sound pack.
    pub findings: Vec<Finding>,
    /// Why the pack, although it was published, may not survive a power cut; `None` if it will.
    pub unsynced: Option<String>,
}

/// Why a pack could not be built. No files are left.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is something at the pack's place.
    #[error("{0} exists already")]
    Exists(PathBuf),
    /// A file of the session cannot be read.
    #[error("{path} cannot be read: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something is not as the recorder would have made it; the text names it.
    #[error("{0}")]
    Refused(io::Error),
    /// The key cannot sign.
    #[error("it cannot be signed: {0}; assay recover makes it when the key can be used again")]
    Unsigned(io::Error),
    /// A file of the pack cannot be written.
    #[error("the pack cannot be written: {0}")]
    Write(#[from] StagingError),
    /// The directory for packs cannot be made.
    #[error(transparent)]
    Dir(#[from] crate::paths::PathError),
    /// A line is not a line of evidence at all.
    #[error("{path}:{line}: {what}")]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// The session's document and its files do not say the same.
    #[error("{path}: {what} is {found}, but the session says {expected}")]
    Mismatch {
        /// Path of the file.
        path: PathBuf,
        /// What of it.
        what: &'static str,
        /// What the session says.
        expected: String,
        /// What the file says.
        found: String,
    },
    /// Our own verifier does not accept it: it was not put in its place.
    #[error("the pack does not pass its self-check, and was not kept: {0}")]
    SelfCheck(String),
    /// JSON could not be written; the types of a pack hold nothing that it cannot.
    #[error("the pack cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl BuildError {
    fn reading(path: &Path, source: io::Error) -> Self {
        if files::is_refusal(&source) { Self::Refused(source) } else { Self::Read { path: path.to_owned(), source } }
    }
}

/// Builds and signs the pack of one session.
///
/// Findings about single receipts do not stop it: the pack then says `receipt_integrity: FAIL`, and [`Built::findings`]
/// names them.
///
/// # Errors
/// [`BuildError`]; then no pack and no files are left.
pub fn build(input: &Input<'_>) -> Result<Built, BuildError> {
    build_if(input, |_| Ok(()))
}

/// As [`build`]; what our own verifier does not accept is never put in its place.
///
/// # Errors
/// [`BuildError`]; then no pack and no files are left.
pub fn build_checked(input: &Input<'_>) -> Result<Built, BuildError> {
    build_if(input, |staged| match self_check(staged).as_slice() {
        [] => Ok(()),
        findings => Err(BuildError::SelfCheck(findings.join("; "))),
    })
}

/// What our own verifier has against the integrity of a pack, at most five findings; nothing for a sound one.
#[must_use]
pub fn self_check(pack: &Path) -> Vec<String> {
    match verify(pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())) {
        Ok(report) if report.integrity == Integrity::Pass => Vec::new(),
        Ok(report) => {
            let mut said: Vec<String> =
                report.errors.iter().take(5).map(|f| format!("{}: {}", f.code, f.message)).collect();
            if said.is_empty() {
                said.push(format!("the verifier says {}", report.integrity));
            }
            said
        }
        Err(e) => vec![e.to_string()],
    }
}

fn build_if(input: &Input<'_>, accept: impl FnOnce(&Path) -> Result<(), BuildError>) -> Result<Built, BuildError> {
    let target = &input.paths.pack;
    if std::fs::symlink_metadata(target).is_ok() {
        return Err(BuildError::Exists(target.clone()));
    }
    let parent = target.parent().unwrap_or(Path::new("."));
    create_private_dir(input.paths.files.root())?;
    let made = input.paths.files.make_dir(parent);
    made.map_err(|source| BuildError::reading(parent, source))?;
    staging::sweep(parent);
    let staging = Staging::create(parent)?;
    let receipts = Receipts::copy(input, &staging)?;
    let mut policies = receipts.policies.clone();
    let (log, completeness) = copy_segment(input, &staging, &mut policies)?;
    let mut more = vec![log];
    if input.paths.files.exists(&input.paths.checkpoints) {
        more.push(copy_lines(&input.paths.checkpoints, staging.file(pack::CHECKPOINTS)?, |_, _| Ok(()))?);
    }
    let mut session = to_line(input.session)?;
    session.push(b'\n');
    more.push(staging.write(pack::SESSION, &session)?);
    more.extend(copy_policies(input, &staging, policies)?);
    more.extend(write_surface(input, &staging)?);
    if let Some(decisions) = input.decisions.as_ref().filter(|d| !d.approvals.is_empty()) {
        more.push(staging.write(pack::SURFACE_APPROVALS, &decisions.approvals)?);
        more.push(staging.write(pack::SURFACE_APPROVED, &decisions.approved)?);
    }

    let attestation = attest(input, &receipts);
    let root = sha256_hex(&pack::canonical(&attestation)?);
    let at = input.now.to_string();
    let checked = Checked {
        attestation: &attestation,
        root: &root,
        session: input.session,
        completeness,
        findings: &receipts.findings,
        finding_count: receipts.finding_count,
        receipts: &receipts.entry,
        more: &more,
        at: &at,
    };
    let verify_report = staging.write(pack::REPORT, &report::report(&checked)?)?;
    let transcript = staging.write(pack::TRANSCRIPT, report::transcript(&checked).as_bytes())?;
    let files = [vec![receipts.entry.clone(), verify_report, transcript], more].concat();
    let (manifest, signature) = sign(attestation, files, input.signer).map_err(BuildError::Unsigned)?;
    staging.write(pack::MANIFEST, &pack::pretty(&manifest)?)?;
    staging.write(pack::SIGNATURE, &signature)?;
    let summary = Explanation::new(
        &manifest,
        Some(input.session.clone()),
        &receipts.tally,
        input.surface.is_some_and(surface::is_truncated),
    );
    staging.subdir(pack::UNSIGNED)?;
    staging.write(&format!("{}/PACK_SUMMARY.md", pack::UNSIGNED), explain::markdown(&summary).as_bytes())?;
    staging.sync_subdir(pack::UNSIGNED)?;
    accept(staging.dir())?;
    let unsynced = staging.publish(target).map_err(|e| match e.source.kind() {
        io::ErrorKind::AlreadyExists => BuildError::Exists(target.clone()),
        _ => e.into(),
    })?;
    Ok(Built {
        dir: target.clone(),
        pack_id: manifest.pack_id,
        root,
        receipts: receipts.count,
        events: input.session.event_count,
        completeness,
        findings: receipts.findings,
        unsynced: unsynced.map(|e| e.to_string()),
    })
}

fn attest(input: &Input<'_>, receipts: &Receipts) -> Attestation {
    let text = |s: &str| s.to_owned();
    Attestation {
        pack_format_version: text(PACK_VERSION),
        fingerprint_version: FINGERPRINT_VERSION.into(),
        // One session, one pack: building it again after a crash gives the same id.
        pack_id: format!("pack_{}", input.paths.stem),
        run_id: input.session.session_id.to_string(),
        suite_id: text("manual"),
        suite_hash: sha256_hex(b"manual"),
        verifier_version: text(RECORDER_VERSION),
        canon_version: text("jcs-rfc8785"),
        canon_impl: text("assay.canon"),
        canon_impl_version: text(RECORDER_VERSION),
        policy_hash: match &input.session.policy_hash {
            Some(hash) => bare(hash).to_owned(),
            None => sha256_hex(DEFAULT_POLICY),
        },
        claim_set_id: text(NO_CLAIMS),
        claim_set_hash: sha256_hex(NO_CLAIMS.as_bytes()),
        receipt_integrity: text(if receipts.finding_count == 0 { "PASS" } else { "FAIL" }),
        claim_check: text("N/A"),
        discrepancy_fingerprint: Some(None),
        assurance_level: text("L0"),
        proof_tier: text("signed-pack"),
        mode: text(match input.session.profile {
            Profile::Audit => "shadow",
            Profile::Guard => "enforced",
        }),
        head_hash: receipts.head_hash.clone(),
        head_hash_algorithm: text("last-receipt-digest-v0"),
        time_authority: text("local_clock"),
        n_receipts: receipts.count,
        timestamp_start: receipts.span.map_or(input.now, |s| s.0).to_string(),
        timestamp_end: receipts.span.map_or(input.now, |s| s.1).to_string(),
        ci_binding: Some(input.ci_binding.clone()),
        valid_until: Some(None),
        superseded_by: Some(None),
    }
}

fn mismatch(path: &Path, what: &'static str, expected: &dyn ToString, found: &dyn ToString) -> BuildError {
    BuildError::Mismatch { path: path.to_owned(), what, expected: expected.to_string(), found: found.to_string() }
}

fn open(path: &Path) -> Result<File, BuildError> {
    files::plain(path).map_err(|source| BuildError::reading(path, source))
}

/// Copies a JSONL file line by line, each handed to `see` with its number from 1, without its newline.
fn copy_lines(
    path: &Path,
    mut out: NewFile,
    mut see: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<FileEntry, BuildError> {
    let mut lines = Lines::of(open(path)?);
    for number in 1.. {
        let wrong = |what| BuildError::Line { path: path.to_owned(), line: number, what };
        let line = match lines.next(&mut ()) {
            Ok(None) => break,
            Err(ReadStop::Io(source)) => return Err(BuildError::reading(path, source)),
            Ok(Some(line)) => {
                let whole = line.terminated && line.bytes.starts_with(b"{") && line.bytes.ends_with(b"}");
                whole.then_some(line.bytes)
            }
            // What is too long is not a line of ours.
            Err(_) => None,
        };
        let Some(line) = line else { return Err(wrong("the line is not whole: a write was cut off".to_owned())) };
        see(number, line).map_err(wrong)?;
        out.write(line)?;
        out.write(b"\n")?;
    }
    Ok(out.finish()?)
}

/// `receipt_pack.jsonl` and what was found while it was copied.
struct Receipts {
    entry: FileEntry,
    count: u64,
    head_hash: String,
    span: Option<(WallTime, WallTime)>,
    findings: Vec<Finding>,
    finding_count: u64,
    tally: Tally,
    policies: BTreeSet<String>,
}

impl Receipts {
    fn copy(input: &Input<'_>, staging: &Staging) -> Result<Self, BuildError> {
        let path = &input.paths.receipts;
        let mut check = ReceiptCheck::new(input.session.session_id);
        let entry = copy_lines(path, staging.file(pack::RECEIPTS)?, |_, line| check.line(line))?;
        if check.count != input.session.receipt_count {
            return Err(mismatch(path, "the number of receipts", &input.session.receipt_count, &check.count));
        }
        check.duplicates();
        Ok(Self {
            entry,
            count: check.count,
            head_hash: check.head.unwrap_or_else(|| sha256_hex(EMPTY_HEAD)),
            span: check.span,
            findings: check.findings,
            finding_count: check.finding_count,
            tally: check.tally,
            policies: check.policies,
        })
    }
}

struct ReceiptCheck {
    session: SessionId,
    count: u64,
    ids: Vec<ReceiptId>,
    head: Option<String>,
    span: Option<(WallTime, WallTime)>,
    findings: Vec<Finding>,
    finding_count: u64,
    tally: Tally,
    policies: BTreeSet<String>,
}

impl ReceiptCheck {
    fn new(session: SessionId) -> Self {
        Self {
            session,
            count: 0,
            ids: Vec::new(),
            head: None,
            span: None,
            findings: Vec::new(),
            finding_count: 0,
            tally: Tally::default(),
            policies: BTreeSet::new(),
        }
    }

    fn find(&mut self, code: &'static str, field: Option<&'static str>, message: impl FnOnce() -> String) {
        self.finding_count += 1;
        if self.findings.len() < pack::REPORT_FINDINGS {
            let mut finding = Finding::new(code, Stage::ValidateReceipts, message()).receipt(self.count, None);
            finding.file = field.map(str::to_owned);
            self.findings.push(finding);
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let kind = receipt::kind(line).ok_or("it is not a receipt: it is not a JSON object with a type")?;
        self.tally.receipt(&kind);
        match Receipt::of_kind(&kind, line) {
            Ok(receipt) => self.receipt(&receipt),
            Err(e) => self.find("E_SCHEMA_UNKNOWN", None, || format!("not a receipt of schema 3.0: {e}")),
        }
        if !canon::is_canonical(line) {
            self.find("E_CANON_MISMATCH", None, || "not in its canonical form (RFC 8785)".to_owned());
        }
        self.count += 1;
        self.head = Some(sha256_hex(line));
        Ok(())
    }

    fn receipt(&mut self, receipt: &Receipt) {
        let (anomalies, policy): (&[_], _) = match receipt {
            Receipt::Call(call) => {
                self.tally.call(&call.tool_name, Some(call.outcome), call.duration_ms.map(|d| d.0));
                if call.arguments_redacted.get().is_some() {
                    self.tally.redacted();
                }
                if let Some(state) = call.surface_state.get() {
                    self.tally.stood(state.as_str());
                }
                (&call.anomalies, call.policy_hash.as_ref())
            }
            Receipt::Denied(r) => {
                self.tally.accounts.settled(Some(r.invocation_id), true);
                self.tally.call(&r.tool_name, Some(Outcome::Denied), None);
                (&r.anomalies, r.policy_hash.as_ref())
            }
            Receipt::Executed(r) => {
                if !r.is_of_task() {
                    self.tally.accounts.settled(Some(r.invocation_id), false);
                    self.tally.call(&r.tool_name, Some(r.outcome.of_call()), r.duration_ms.map(|d| d.0));
                }
                (&r.anomalies, r.policy_hash.as_ref())
            }
            Receipt::Requested(r) => {
                self.tally.accounts.asked(r.invocation_id);
                if r.arguments_redacted.is_some() {
                    self.tally.redacted();
                }
                (&r.anomalies, None)
            }
            Receipt::Start(_) | Receipt::End(_) | Receipt::Gap(_) => (&[], None),
        };
        for anomaly in anomalies {
            self.tally.anomaly(anomaly);
        }
        if let Some(hash) = policy
            && !self.policies.contains(hash)
        {
            self.policies.insert(hash.clone());
        }
        self.ids.push(receipt.id());
        let (count, session) = (self.count, self.session);
        if receipt.seq() != count {
            self.find("E_CHAIN_BROKEN", Some("seq"), || format!("seq is {}, expected {count}", receipt.seq()));
        }
        let (of, trace) = receipt.session();
        if (of, trace) != (session, session) {
            self.find("E_SCHEMA_UNKNOWN", Some("trace_id"), || {
                format!("belongs to {of} and {trace}, expected {session}")
            });
        }
        let at = receipt.timestamp();
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
    }

    fn duplicates(&mut self) {
        let mut ids = std::mem::take(&mut self.ids);
        ids.sort_unstable();
        for pair in ids.windows(2).filter(|p| p[0] == p[1]) {
            let id = pair[0];
            self.find("E_DUPLICATE_ID", Some("receipt_id"), || format!("receipt id {id} comes more than once"));
        }
    }
}

/// Copies the segment; its first and last hash and its length must be the session's.
fn copy_segment(
    input: &Input<'_>,
    staging: &Staging,
    policies: &mut BTreeSet<String>,
) -> Result<(FileEntry, Completeness), BuildError> {
    let (path, session) = (&input.paths.segment, input.session);
    let (mut count, mut first, mut last) = (0u64, None, Vec::new());
    let entry = copy_lines(path, staging.file(pack::AUDIT_LOG)?, |number, line| {
        count = number;
        if number == 1 {
            first = hash_in_line(line);
        }
        last.clear();
        last.extend_from_slice(line);
        if memchr::memmem::find(line, b"\"event\":\"policy_reloaded\"").is_some()
            && let Some(DetailView::PolicyReloaded(reload)) = EventView::of_line(line).map(|e| e.detail)
        {
            policies.insert(reload.policy_hash);
        }
        Ok(())
    })?;
    if count != session.event_count {
        return Err(mismatch(path, "the number of events", &session.event_count, &count));
    }
    for (what, expected, found) in [
        ("the hash of the first event", &session.chain_first, first),
        ("the hash of the last event", &session.chain_last, hash_in_line(&last)),
    ] {
        if found.as_ref() != Some(expected) {
            return Err(mismatch(path, what, expected, &found.as_deref().unwrap_or("none")));
        }
    }
    let ended = EventView::of_line(&last).is_some_and(|e| e.event == EventKind::ChainEnd);
    let completeness = match (ended, session.session_complete) {
        (false, _) => Completeness::Unterminated,
        (true, true) => Completeness::Complete,
        (true, false) => Completeness::Incomplete,
    };
    Ok((entry, completeness))
}

/// The hash that an event has and ought to have; `None` if these differ.
fn hash_in_line(line: &[u8]) -> Option<String> {
    let event = EventView::of_line(line)?;
    let hash = event.hash_of(line);
    (hash == event.hash).then(|| String::from_utf8_lossy(&hash).into_owned())
}

/// A `sha256:` hash without its prefix.
fn bare(hash: &str) -> &str {
    hash.trim_start_matches("sha256:")
}

/// The policy that was in force at first is `policy.yaml`; others keep the name of their snapshot.
fn copy_policies(
    input: &Input<'_>,
    staging: &Staging,
    mut hashes: BTreeSet<String>,
) -> Result<Vec<FileEntry>, BuildError> {
    let Some(dir) = input.policies else { return Ok(Vec::new()) };
    hashes.extend(input.session.policy_hash.clone());
    let mut entries = Vec::new();
    for hash in &hashes {
        if bare(hash).len() != 64 || !bare(hash).bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            continue;
        }
        let snapshot = pack::policy_file(hash);
        let path = dir.join(&snapshot);
        let name = if input.session.policy_hash.as_ref() == Some(hash) { pack::POLICY } else { &snapshot };
        let entry = staging.write(name, &side_file(&path)?)?;
        if entry.sha256 != bare(hash) {
            return Err(mismatch(&path, "the SHA-256 of the policy", &bare(hash), &entry.sha256));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn side_file(path: &Path) -> Result<Vec<u8>, BuildError> {
    let mut file = open(path)?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(&mut file, MAX_SIDE_FILE + 1), &mut bytes)
        .and_then(|n| if n as u64 > MAX_SIDE_FILE { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) })
        .map_err(|source| BuildError::reading(path, source))?;
    Ok(bytes)
}

fn write_surface(input: &Input<'_>, staging: &Staging) -> Result<Option<FileEntry>, BuildError> {
    let Some(bytes) = input.surface else { return Ok(None) };
    let entry = staging.write(pack::SURFACE, bytes)?;
    let expected = input.session.surface_hash.as_deref().unwrap_or("none");
    if entry.sha256 != expected {
        return Err(mismatch(Path::new(pack::SURFACE), "the SHA-256 of the surface", &expected, &entry.sha256));
    }
    Ok(Some(entry))
}

impl Built {}
