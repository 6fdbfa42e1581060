//! The run of a verification: stages in order, findings collected, channels decided at the end.

use super::{
    Claims, Completeness, Finding, Integrity, MAX_FINDINGS, PackFacts, Progress, Signer, SignerVerdict, Stage,
    StageReport, StageStatus, VerifyError, VerifyOptions, VerifyReport, builder,
    claims_tally::Tally,
    files::{self, Evidence},
    manifest::{MAX_MANIFEST, Parsed, Refused},
    paths, report, session, signature,
    source::{Meter, OpenProblem, PackDir, ReadStop},
    trust,
    unread::VERSION_UNSUPPORTED,
};
use crate::model::pack::{AUDIT_LOG, EMPTY_HEAD, MANIFEST, Manifest, RECEIPTS, SURFACE};
use crate::model::{pack, reading::TooNew, surface};
use crate::pack::claims::{self, ClaimContext, ClaimSetResult};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
    path::Path,
};

/// Files of a pack whose signature does not hold are read up to so many bytes, for whoever wants to know what was changed.
const UNSIGNED_LIMIT: u64 = 256 << 20;
/// Bytes of lines that read as nothing, after which a file is not read any further.
const MAX_GARBAGE: u64 = 256 << 20;
/// Bytes of one text in a finding.
const MAX_TEXT: usize = 4096;
/// The stages that need the files.
const EVIDENCE: [Stage; 5] = [
    Stage::ValidateFileHashes,
    Stage::ValidateReceipts,
    Stage::VerifyChain,
    Stage::MatchReceiptsToChain,
    Stage::SessionCompleteness,
];

/// Everything that is found on the way.
pub struct Engine<'o> {
    /// The caller's demands.
    pub options: &'o VerifyOptions,
    /// What the pack says.
    pub facts: PackFacts,
    /// SHA-256 of the public key in the pack.
    pub fingerprint: Option<String>,
    /// Worth saying.
    pub warnings: Vec<String>,
    /// Demands that are not met.
    pub unmet: Vec<String>,
    /// SHA-256 of JSON files without the newline that ends them.
    pub unterminated: HashMap<String, String>,
    /// Incomplete for no other reason than that the proxy was killed: what a reader may rely on.
    pub crashed: Option<&'static str>,
    garbage: u64,
    findings: Vec<Finding>,
    per_stage: [usize; Stage::ALL.len()],
    omitted: u64,
    first: HashMap<Stage, (&'static str, String)>,
    skipped: HashMap<Stage, String>,
    details: HashMap<Stage, Map<String, Value>>,
    extra: bool,
    /// What a later version wrote: one finding for each document, four for a manifest.
    newer: Vec<Finding>,
}

impl<'o> Engine<'o> {
    fn new(options: &'o VerifyOptions) -> Self {
        Self {
            options,
            facts: PackFacts::default(),
            fingerprint: None,
            warnings: Vec::new(),
            unmet: Vec::new(),
            unterminated: HashMap::new(),
            crashed: None,
            garbage: 0,
            findings: Vec::new(),
            per_stage: [0; Stage::ALL.len()],
            omitted: 0,
            first: HashMap::new(),
            skipped: HashMap::new(),
            details: HashMap::new(),
            extra: false,
            newer: Vec::new(),
        }
    }

    /// Takes a finding. Each stage keeps its share, so that one stage's flood does not hide another's reason.
    pub fn found(&mut self, mut finding: Finding) {
        const SHARE: usize = MAX_FINDINGS / Stage::ALL.len();
        for text in [Some(&mut finding.message), finding.expected.as_mut(), finding.found.as_mut()] {
            text.into_iter().for_each(clip);
        }
        if finding.code == VERSION_UNSUPPORTED {
            return self.newer.push(finding);
        }
        self.first.entry(finding.stage).or_insert_with(|| (finding.code, finding.message.clone()));
        let kept = &mut self.per_stage[finding.stage as usize];
        if *kept < SHARE {
            *kept += 1;
            self.findings.push(finding);
        } else {
            self.omitted += 1;
        }
    }

    /// A line of so many bytes reads as nothing.
    ///
    /// # Errors
    /// [`ReadStop::Garbage`]: there were enough of them.
    pub fn garbage(&mut self, line: usize) -> Result<(), ReadStop> {
        self.garbage += line as u64;
        if self.garbage > MAX_GARBAGE { Err(ReadStop::Garbage) } else { Ok(()) }
    }

    /// Something unlisted lies in the pack: reported, and not accepted under `--strict`.
    pub fn extra(&mut self, what: String) {
        self.extra = true;
        if self.options.strict {
            self.unmet.push(what);
        } else {
            self.warnings.push(what);
        }
    }

    fn skip(&mut self, stages: &[Stage], why: &str) {
        for stage in stages {
            self.skipped.insert(*stage, why.to_owned());
        }
    }

    fn detail(&mut self, stage: Stage, pairs: &[(&str, u64)]) {
        self.details.insert(stage, report::counts(pairs));
    }

    fn failed(&self) -> bool {
        !self.first.is_empty()
    }

    /// Whether a later version wrote something of the pack.
    pub fn is_newer(&self) -> bool {
        !self.newer.is_empty()
    }

    /// Whether a later version wrote this file of it, or lines of it.
    pub fn wrote_later(&self, file: &str) -> bool {
        self.newer.iter().any(|f| f.file.as_deref() == Some(file))
    }

    /// Whether a stage judges nothing that a later version wrote. Its findings then stand: nobody hides a forgery behind the
    /// version of another document.
    fn stands(&self, stage: Stage) -> bool {
        let known = |files: &[&str]| !files.iter().any(|file| self.wrote_later(file));
        match stage {
            Stage::ValidateReceipts => known(&[MANIFEST, RECEIPTS]),
            Stage::VerifyChain => known(&[MANIFEST, AUDIT_LOG]),
            Stage::MatchReceiptsToChain => known(&[MANIFEST, RECEIPTS, AUDIT_LOG]),
            Stage::SessionCompleteness => known(&[MANIFEST]),
            _ => true,
        }
    }

    /// Lets go of what cannot be judged, and says why.
    fn settle(&mut self) {
        if !self.is_newer() {
            return;
        }
        let names: BTreeSet<&str> = self.newer.iter().filter_map(|f| f.file.as_deref()).collect();
        let why = format!("not checked: a later version wrote {}", Vec::from_iter(names).join(", "));
        let lost: Vec<Stage> = Stage::ALL.into_iter().filter(|stage| !self.stands(*stage)).collect();
        self.findings.retain(|f| !lost.contains(&f.stage));
        self.first.retain(|stage, _| !lost.contains(stage));
        for stage in lost.into_iter().chain([Stage::SessionCompleteness]) {
            self.details.remove(&stage);
            self.skipped.insert(stage, why.clone());
        }
    }

    fn stage(&self, stage: Stage, unmet: Option<String>) -> StageReport {
        let detail = self.details.get(&stage).cloned().unwrap_or_default();
        let newer = self.newer.iter().find(|f| f.stage == stage);
        let (status, code, reason) = if let Some((code, message)) = self.first.get(&stage) {
            (StageStatus::Fail, Some(*code), Some(message.clone()))
        } else if let Some(newer) = newer {
            (StageStatus::Skipped, Some(newer.code), Some(newer.message.clone()))
        } else if let Some(why) = self.skipped.get(&stage) {
            (StageStatus::Skipped, None, Some(why.clone()))
        } else if unmet.is_some() {
            (StageStatus::Fail, None, unmet)
        } else {
            (StageStatus::Ok, None, None)
        };
        StageReport { stage, status, code, reason, detail }
    }
}

/// The verification.
pub(super) fn run(
    path: &Path,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<VerifyReport, VerifyError> {
    let cards = claims::resolve(options)?;
    check_fingerprints(&options.signers)?;
    let dir = PackDir::open(path)?;
    let mut meter = Meter::new(progress);
    let mut engine = Engine::new(options);
    let Some(parsed) = schema(&mut engine, &dir, &mut meter)? else {
        let why = if engine.is_newer() {
            "not checked: a later version wrote pack_manifest.json"
        } else {
            "the manifest does not read"
        };
        engine.skip(&Stage::ALL[1..], why);
        return Ok(finish(engine, SignerVerdict::Unpinned, None, Completeness::NotEvaluated, Vec::new(), None, None));
    };
    facts(&mut engine.facts, &parsed.manifest);
    let mut tally = Tally::default();
    tally.follow_escrow = cards.iter().any(|c| c.id == claims::MCP_ESCROW);
    meter.stage = Stage::ValidatePaths;
    let usable = paths::names(&mut engine, &parsed.manifest);
    paths::closed_world(&mut engine, &dir, &parsed.manifest);
    // What is cheap and decides comes before what takes as long as whoever sent the pack likes.
    signature::attestation(&mut engine, &parsed);
    signature::signature(&mut engine, &dir, &parsed);
    signature::d12(&mut engine, &parsed);
    // A key is named by everyone; only one whose signature holds has signed.
    let signed = !engine.first.contains_key(&Stage::VerifySignature);
    let proven = engine.fingerprint.as_deref().filter(|_| signed);
    let signer = trust::signer(options, proven);
    let large = files::stated_bytes(&parsed.manifest) > UNSIGNED_LIMIT;
    if large && !signed {
        let why =
            format!("not read: the signature does not hold, and the files have over {} MiB", UNSIGNED_LIMIT >> 20);
        let unread = Stage::ALL.into_iter().filter(|s| EVIDENCE.contains(s)).collect::<Vec<_>>();
        engine.skip(&unread, &why);
        let m = &parsed.manifest;
        let completeness = Completeness::NotEvaluated;
        return Ok(finish(engine, signer, Some(m), completeness, Vec::new(), None, Some(&m.signer_id)));
    }
    let evidence = files::run(&mut engine, &mut tally, &mut meter, &dir, &parsed, &usable)?;
    if parsed.manifest.file(SURFACE).is_some()
        && let Ok((file, len)) = dir.open_file(SURFACE)
        && surface::file_is_truncated(&file, len)
    {
        engine.facts.surface_truncated = true;
        engine.warnings.push(surface::TRUNCATED.into());
    }
    if engine.is_newer() {
        return Ok(later(engine, &parsed.manifest, evidence, signer));
    }
    receipts(&mut engine, &parsed.manifest, &evidence);
    let (completeness, reasons) = whole_session(&mut engine, &parsed.manifest, &evidence);
    let results = (!engine.failed() && !cards.is_empty()).then(|| {
        claims::evaluate(&cards, &ClaimContext { tally: &tally, walked: evidence.walked.as_ref(), completeness })
    });
    engine.facts.session = evidence.doc;
    Ok(finish(engine, signer, Some(&parsed.manifest), completeness, reasons, results, Some(&parsed.manifest.signer_id)))
}

/// The end of a verification that met what a later version wrote: what can be judged without it still is.
fn later(mut engine: Engine<'_>, m: &Manifest, evidence: Evidence, signer: SignerVerdict) -> VerifyReport {
    let ours = [Stage::VerifyChain, Stage::MatchReceiptsToChain, Stage::SessionCompleteness];
    if evidence.totals.is_some() || evidence.foreign.is_some() {
        receipts(&mut engine, m, &evidence);
    } else {
        engine.skip(&[Stage::ValidateReceipts], "the receipts do not read");
    }
    if !m.is_ours() {
        engine.skip(&ours, "the pack has no audit_log.jsonl and session.json: another builder's");
    } else if evidence.walked.is_none() {
        let unread = if evidence.chain { &ours[1..] } else { &ours[..] };
        engine.skip(unread, "the audit events or the receipts do not read");
    }
    engine.facts.session = evidence.doc;
    finish(engine, signer, Some(m), Completeness::NotEvaluated, Vec::new(), None, Some(&m.signer_id))
}

/// Texts of a pack may be as long as a line; a report is not.
fn clip(text: &mut String) {
    if text.len() > MAX_TEXT {
        let end = text.floor_char_boundary(MAX_TEXT);
        text.truncate(end);
        text.push('…');
        text.shrink_to_fit();
    }
}

fn check_fingerprints(signers: &[String]) -> Result<(), VerifyError> {
    for s in signers {
        if s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(VerifyError::Option(format!(
                "{s:?} is no key fingerprint: 64 hex digits, the SHA-256 of the raw key"
            )));
        }
    }
    Ok(())
}

fn schema(engine: &mut Engine<'_>, dir: &PackDir, meter: &mut Meter<'_>) -> Result<Option<Parsed>, VerifyError> {
    let stage = Stage::ValidateSchema;
    let tampered = |text: String| Finding::new("E_MANIFEST_TAMPER", stage, text).file(MANIFEST);
    let whole = match dir.read_whole(MANIFEST, MAX_MANIFEST, meter) {
        Ok(Ok(whole)) => whole,
        Ok(Err(ReadStop::Cancelled)) => return Err(VerifyError::Cancelled),
        Ok(Err(ReadStop::Io(source))) | Err(OpenProblem::Io(source)) => {
            return Err(VerifyError::Io { path: dir.path().join(MANIFEST), source });
        }
        Ok(Err(ReadStop::TooLong | ReadStop::Garbage)) => {
            engine.found(tampered(format!("the manifest is longer than {} MiB", MAX_MANIFEST >> 20)));
            return Ok(None);
        }
        Err(OpenProblem::Missing) => {
            return Err(VerifyError::NotAPack { dir: dir.path().to_owned(), why: format!("it has no {MANIFEST}") });
        }
        Err(OpenProblem::Special(what)) => {
            engine.found(tampered(format!("{MANIFEST} is {what}, no plain file")));
            return Ok(None);
        }
    };
    engine.facts.pack_manifest_sha256 = Some(whole.sha256);
    let parsed = match Parsed::read(&whole.bytes) {
        Ok(parsed) => parsed,
        Err(Refused::Wrong(problems)) => {
            for (path, what) in problems {
                engine.found(tampered(format!("manifest schema validation failed: {path}: {what}")));
            }
            return Ok(None);
        }
        Err(Refused::TooNew(newer)) => {
            too_new(engine, &newer);
            return Ok(None);
        }
    };
    too_new(engine, &parsed.newer);
    let pretty = pack::pretty(&parsed.manifest).unwrap_or_default();
    if engine.is_newer() {
        // Its form on disk is its builder's affair; what is signed is its canonical form.
    } else if parsed.manifest.is_ours() {
        if whole.bytes != pretty {
            let at = pretty.iter().zip(&whole.bytes).take_while(|(a, b)| a == b).count();
            let mut f = tampered("the manifest's bytes are not those that its builder writes".into());
            f.offset = Some(at as u64);
            engine.found(f);
        }
    } else if whole.bytes.strip_suffix(b"\n").unwrap_or(&whole.bytes) != pretty {
        engine.warnings.push(
            "the manifest is formatted otherwise than its builder writes it; its signature covers its meaning".into(),
        );
    }
    Ok(Some(parsed))
}

fn too_new(engine: &mut Engine<'_>, newer: &[TooNew]) {
    for newer in newer {
        engine.found(Finding::too_new(Stage::ValidateSchema, newer).file(MANIFEST));
    }
}

fn facts(f: &mut PackFacts, m: &Manifest) {
    let a = &m.attestation;
    f.pack_id = Some(m.pack_id.clone());
    f.run_id = Some(a.run_id.clone());
    f.pack_root_sha256 = Some(m.pack_root_sha256.clone());
    f.mode = Some(a.mode.clone());
    f.policy_hash = Some(a.policy_hash.clone());
    f.claim_set_id = Some(m.claim_set_id.clone());
    f.claim_set_hash = Some(m.claim_set_hash.clone());
    f.claim_check = Some(a.claim_check.clone());
    f.timestamp_start = Some(a.timestamp_start.clone());
    f.timestamp_end = Some(a.timestamp_end.clone());
    f.built_by = Some(a.verifier_version.clone());
    f.ci_binding = a.ci_binding.clone().flatten().and_then(|ci| serde_json::to_value(ci).ok());
}

/// What the attestation says of the receipts, against what they are.
fn receipts(engine: &mut Engine<'_>, m: &Manifest, evidence: &Evidence) {
    let (count, head) = match (&evidence.totals, &evidence.foreign) {
        (Some(t), _) => (t.count, t.head.map(|h| String::from_utf8_lossy(&h).into_owned())),
        (None, Some(f)) => (f.count, f.head.clone()),
        (None, None) => return engine.skip(&[Stage::ValidateReceipts], "the receipts do not read"),
    };
    let stage = Stage::ValidateReceipts;
    engine.facts.receipt_count = count;
    let holds = !engine.first.contains_key(&stage);
    if count != m.receipt_count_expected {
        let f = Finding::new(
            "E_PACK_OMISSION_DETECTED",
            stage,
            "the file has another number of receipts than the manifest",
        );
        engine.found(f.file(RECEIPTS).sides(m.receipt_count_expected, count));
    }
    let a = &m.attestation;
    let recomputed = if holds { "PASS" } else { "FAIL" };
    if a.receipt_integrity != recomputed {
        let f = Finding::new("E_MANIFEST_TAMPER", stage, "receipt_integrity is attested otherwise than recomputed");
        engine.found(f.file("receipt_integrity").sides(&a.receipt_integrity, recomputed));
    }
    let as_written = evidence.foreign.as_ref().and_then(|f| f.head_as_written.clone()).filter(|h| *h == a.head_hash);
    let head = head.map(|head| as_written.unwrap_or(head));
    let head = if count == 0 { Some(crate::model::sha256_hex(EMPTY_HEAD)) } else { head };
    if head.as_ref() != Some(&a.head_hash) {
        let f = Finding::new("E_MANIFEST_TAMPER", stage, "head_hash is not the hash of the last receipt");
        engine.found(
            f.file("head_hash")
                .sides(&a.head_hash, head.as_deref().unwrap_or("none: the last receipt has no canonical form")),
        );
    }
    engine.facts.head_hash = head;
    engine.detail(stage, &[("receipt_count", count)]);
    if evidence.foreign.as_ref().is_some_and(|f| f.session_receipts > 0) {
        let text = "receipts of a recorded session without its audit_log.jsonl and session.json";
        engine.found(Finding::new("E_PACK_OMISSION_DETECTED", stage, text).file(RECEIPTS));
    }
}

fn whole_session(engine: &mut Engine<'_>, m: &Manifest, evidence: &Evidence) -> (Completeness, Vec<String>) {
    let ours = [Stage::VerifyChain, Stage::MatchReceiptsToChain, Stage::SessionCompleteness];
    if !m.is_ours() {
        engine.skip(&ours, "the pack has no audit_log.jsonl and session.json: another builder's");
        return (Completeness::NotEvaluated, Vec::new());
    }
    let (Some(walked), Some(totals)) = (&evidence.walked, &evidence.totals) else {
        engine.skip(&ours, "the audit events or the receipts do not read");
        return (Completeness::NotEvaluated, Vec::new());
    };
    engine.facts.event_count = walked.chain.events;
    engine.detail(Stage::VerifyChain, &[("events", walked.chain.events), ("broken", walked.chain.broken)]);
    engine.detail(Stage::MatchReceiptsToChain, &[("receipts", totals.count), ("requests", walked.chain.requests)]);
    if let Some(doc) = &evidence.doc {
        session::agrees(engine, doc, m, walked, totals);
        session::attested(engine, doc, m, walked, evidence.surface.as_ref());
        let (events, ended) = (walked.chain.events, walked.chain.end.is_some());
        let facts = builder::Facts { doc, manifest: m, totals, events, ended };
        builder::report(engine, evidence.report.as_ref(), &facts);
        builder::transcript(engine, evidence.transcript.as_ref(), &facts);
        for step in &doc.clock_steps {
            engine.warnings.push(format!("clock_step: the host's clock moved by {} ms at {}", step.delta_ms, step.at));
        }
    }
    let (verdict, mut reasons) = session::completeness(evidence.doc.as_ref(), walked);
    engine.crashed = evidence.doc.as_ref().and_then(|doc| session::only_crashed(doc, walked));
    if let Some(rely) = engine.crashed {
        reasons.insert(0, rely.to_owned());
    }
    (verdict, reasons)
}

fn finish(
    mut engine: Engine<'_>,
    signer: SignerVerdict,
    manifest: Option<&Manifest>,
    completeness: Completeness,
    completeness_reasons: Vec<String>,
    claim_results: Option<ClaimSetResult>,
    signer_id: Option<&str>,
) -> VerifyReport {
    engine.settle();
    let integrity = match (engine.failed(), engine.is_newer()) {
        (true, _) => Integrity::Tampered,
        (false, true) => Integrity::Unsupported,
        (false, false) => Integrity::Pass,
    };
    let claims = match (&claim_results, integrity, engine.facts.claim_check.as_deref()) {
        (_, Integrity::Tampered | Integrity::Unsupported, _) => Claims::NotEvaluated,
        (Some(r), ..) => {
            if r.passed {
                Claims::Pass
            } else {
                Claims::HonestFail
            }
        }
        // A builder that says of its own evidence that it is not enough is believed; one that says that it is, is not.
        (None, _, Some("FAIL")) => Claims::HonestFail,
        (None, ..) => Claims::NotEvaluated,
    };
    if claims == Claims::NotEvaluated && engine.facts.claim_check.as_deref() == Some("PASS") {
        let set = engine.facts.claim_set_id.as_deref().unwrap_or_default();
        let text = format!(
            "its builder says that its claims ({set}) hold; nothing was evaluated here: name cards with --cards"
        );
        engine.warnings.push(text);
    }
    if let Some(m) = manifest {
        trust::demands(&mut engine, m, signer, claims, claim_results.is_some(), completeness);
    }
    let extra = (engine.extra && engine.options.strict).then(|| "unlisted entries lie in the pack".to_owned());
    let whole = matches!(completeness, Completeness::Incomplete | Completeness::Unterminated);
    let whole = whole.then(|| format!("{completeness}: {}", completeness_reasons.first().map_or("", String::as_str)));
    let trusted = match signer {
        SignerVerdict::Untrusted => Some("the key is none of those that were asked for".to_owned()),
        SignerVerdict::Unpinned if engine.options.strict => Some("no key was pinned".to_owned()),
        _ => None,
    };
    let stages = Stage::ALL.map(|stage| {
        let unmet = match stage {
            Stage::ValidatePaths => extra.clone(),
            Stage::SessionCompleteness => whole.clone(),
            Stage::SignerTrust => trusted.clone(),
            _ => None,
        };
        engine.stage(stage, unmet)
    });
    engine.findings.append(&mut engine.newer);
    engine.findings.sort_by_key(|f| f.stage);
    VerifyReport {
        stages: stages.to_vec(),
        errors: engine.findings,
        errors_omitted: engine.omitted,
        warnings: engine.warnings,
        integrity,
        completeness,
        completeness_reasons,
        crashed: engine.crashed,
        claims,
        claim_results,
        signer: Signer { verdict: signer, fingerprint: engine.fingerprint, signer_id: signer_id.map(str::to_owned) },
        unmet: engine.unmet,
        facts: engine.facts,
        verified_at: engine.options.now,
    }
}
