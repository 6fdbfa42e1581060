//! The run of a verification: stages in order, each writing into the notebook.

use super::{
    builder,
    claims_tally::Tally,
    conclude::finish,
    evaluate::{self, ClaimContext},
    files::{self, PackEvidence},
    finding::Finding,
    notebook::Notebook,
    options::{Progress, VerifyError, VerifyOptions},
    pack_anchor::{self, Subject},
    paths,
    report::VerifyReport,
    schema, session, signature,
    source::{PackDir, ReadMeter},
    spoiled, trust,
    words::{Completeness, Integrity, SignerVerdict, Stage},
};
use crate::claims::{Card, MCP_ESCROW};
use crate::model::{
    pack::{CHECKPOINTS, EMPTY_HEAD, Manifest, RECEIPTS, SURFACE},
    sha256_hex, surface,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{ops::ControlFlow, path::Path};

/// Most bytes that are read of a pack's files if its signature does not hold, to show what was changed.
const UNSIGNED_LIMIT: u64 = 256 << 20;
/// The stages that need the files.
const EVIDENCE: [Stage; 7] = [
    Stage::ValidateFileHashes,
    Stage::ValidateReceipts,
    Stage::VerifyChain,
    Stage::MatchReceiptsToChain,
    Stage::VerifySurface,
    Stage::VerifyCheckpoints,
    Stage::SessionCompleteness,
];

/// Verifies the pack in `dir`; reads it and nothing else, writes nothing.
///
/// `progress` is called every few megabytes; when it breaks, the verification ends with [`VerifyError::Cancelled`].
///
/// # Errors
/// Only if no verdict is possible: see [`VerifyError`]. A bad pack is not an error: the report says what is wrong.
pub fn verify(
    dir: &Path,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<VerifyReport, VerifyError> {
    let cards = evaluate::resolve(options)?;
    check_fingerprints(&options.signers)?;
    let dir = PackDir::open(dir)?;
    let mut report = stages(&dir, options, &cards, progress)?;
    if report.integrity == Integrity::Tampered {
        spoiled::name(&dir, &mut report);
    }
    Ok(report)
}

fn stages(
    dir: &PackDir,
    options: &VerifyOptions,
    cards: &[Card],
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<VerifyReport, VerifyError> {
    let mut meter = ReadMeter::new(progress);
    let mut notes = Notebook::new(options);
    let Some(parsed) = schema::schema(&mut notes, dir, &mut meter)? else {
        let why = if notes.is_newer() {
            "not checked: a later version wrote pack_manifest.json"
        } else {
            "the manifest cannot be read"
        };
        notes.skip(&Stage::ALL[1..], why);
        return Ok(finish(notes, SignerVerdict::Unpinned, None, Completeness::NotEvaluated, Vec::new(), None, None));
    };
    schema::facts(&mut notes.facts, &parsed.manifest);
    let mut tally = Tally::default();
    tally.follow_escrow = cards.iter().any(|c| c.id == MCP_ESCROW);
    meter.stage = Stage::ValidatePaths;
    let usable = paths::names(&mut notes, &parsed.manifest);
    paths::closed_world(&mut notes, dir, &parsed.manifest);
    // Cheap checks that decide come before those whose duration the sender of the pack controls.
    signature::attestation(&mut notes, &parsed);
    signature::signature(&mut notes, dir, &parsed);
    signature::d12(&mut notes, &parsed);
    // Any pack can name a key; a key has signed only if the signature holds.
    let signed = !notes.failed_at(Stage::VerifySignature);
    let proven = notes.fingerprint.as_deref().filter(|_| signed);
    let signer = trust::signer(options, proven);
    let large = files::stated_bytes(&parsed.manifest) > UNSIGNED_LIMIT;
    if large && !signed {
        let why =
            format!("not read: the signature does not hold, and the files have over {} MiB", UNSIGNED_LIMIT >> 20);
        let unread = Stage::ALL.into_iter().filter(|s| EVIDENCE.contains(s)).collect::<Vec<_>>();
        notes.skip(&unread, &why);
        let m = &parsed.manifest;
        let completeness = Completeness::NotEvaluated;
        return Ok(finish(notes, signer, Some(m), completeness, Vec::new(), None, Some(&m.signer_id)));
    }
    let evidence = files::run(&mut notes, &mut tally, &mut meter, dir, &parsed, &usable)?;
    judged(&mut notes, &evidence);
    anchored(&mut notes, dir, &parsed.manifest, &evidence, &mut meter)?;
    let signer = sealed(&mut notes, &parsed.manifest, &evidence, signer);
    if parsed.manifest.file(SURFACE).is_some()
        && let Ok((file, len)) = dir.open_file(SURFACE)
        && surface::file_is_truncated(&file, len)
    {
        notes.facts.surface_truncated = true;
        notes.warnings.push(surface::TRUNCATED.into());
    }
    if notes.is_newer() {
        return Ok(later(notes, &parsed.manifest, evidence, signer));
    }
    receipts(&mut notes, &parsed.manifest, &evidence);
    let (completeness, reasons) = whole_session(&mut notes, &parsed.manifest, &evidence);
    let results = (!notes.failed() && !cards.is_empty()).then(|| {
        let (walked, redacted) = (evidence.walked.as_ref(), notes.facts.redacted_contents);
        evaluate::evaluate(cards, &ClaimContext { tally: &tally, walked, completeness, redacted })
    });
    notes.facts.session = evidence.doc;
    Ok(finish(notes, signer, Some(&parsed.manifest), completeness, reasons, results, Some(&parsed.manifest.signer_id)))
}

/// What others have signed of the pack.
fn anchored(
    notes: &mut Notebook<'_>,
    dir: &PackDir,
    m: &Manifest,
    evidence: &PackEvidence,
    meter: &mut ReadMeter<'_>,
) -> Result<(), VerifyError> {
    let is_signed = !notes.failed_at(Stage::VerifySignature);
    let key = STANDARD.decode(&m.signer_pubkey).ok().and_then(|key| <[u8; 32]>::try_from(key).ok());
    let manifest = notes.facts.pack_manifest_sha256.clone().unwrap_or_default();
    let subject = Subject { manifest: &manifest, session: evidence.doc.as_ref(), key: key.filter(|_| is_signed) };
    let options = notes.options;
    (notes.anchor, notes.contradictions) = pack_anchor::judge(dir, &options.anchors, options.now, &subject, meter)?;
    Ok(())
}

/// What stage `verify_surface` had to look at, and what it counted.
fn judged(notes: &mut Notebook<'_>, evidence: &PackEvidence) {
    let judgement = evidence.walked.as_ref().and_then(|w| w.judgement.as_ref());
    let seen = evidence.surface.as_ref().filter(|s| s.is_checked);
    if seen.is_none() && judgement.is_none() {
        notes.skip(&[Stage::VerifySurface], "the pack has no surface.json of version 2");
        return;
    }
    let last = evidence.walked.as_ref().and_then(|w| w.surface_root.as_ref());
    if let (Some(last), Some(root)) = (last, seen.and_then(|s| s.root.as_ref()))
        && last != root
    {
        let what = "its root is not the one that was announced last";
        let f = Finding::new("E_CHAIN_BROKEN", Stage::VerifySurface, what).file(SURFACE);
        notes.found(f.sides(last, root));
    }
    let items = seen.map_or(0, |s| s.items);
    let Some(j) = judgement else { return notes.detail(Stage::VerifySurface, &[("items", items)]) };
    let counted =
        [("approved_calls", j.approved), ("calls", j.calls), ("decisions", j.decisions), ("drifts", j.drifts)];
    notes.detail(Stage::VerifySurface, &[&counted[..], &[("items", items)]].concat());
    if j.missing {
        notes.warnings.push(
            "the decisions about the surface are not in the pack: the recovery of the session did not find them"
                .to_owned(),
        );
    }
}

/// What stage `verify_checkpoints` had to look at; how the signer compares, whose checkpoints count as little as the pack if
/// the caller did not name who certified their keys.
fn sealed(notes: &mut Notebook<'_>, m: &Manifest, evidence: &PackEvidence, signer: SignerVerdict) -> SignerVerdict {
    let stage = Stage::VerifyCheckpoints;
    if m.file(CHECKPOINTS).is_none() || !m.is_ours() {
        notes.skip(
            &[stage],
            "the pack has no checkpoints: the session was recorded before there were any, or without a key",
        );
        return signer;
    }
    let Some(seals) = evidence.walked.as_ref().and_then(|w| w.seals.as_ref()) else {
        notes.skip(&[stage], "the audit events or the checkpoints cannot be read to their ends");
        return signer;
    };
    notes.detail(stage, &[("checkpoints", seals.checkpoints), ("events_by_recorder", seals.by_recorder)]);
    let others: Vec<_> = seals.signers.iter().filter(|by| notes.fingerprint.as_ref() != Some(by)).collect();
    let mut verdict = signer;
    for by in others {
        notes.warnings.push(format!("another key certified the session's checkpoints than signed the pack: {by}"));
        if trust::signer(notes.options, Some(by)) == SignerVerdict::Untrusted {
            verdict = SignerVerdict::Untrusted;
        }
    }
    verdict
}

/// The end of a verification that met what a later version wrote: what can be judged without it still is.
fn later(mut notes: Notebook<'_>, m: &Manifest, evidence: PackEvidence, signer: SignerVerdict) -> VerifyReport {
    let ours = [Stage::VerifyChain, Stage::MatchReceiptsToChain, Stage::SessionCompleteness];
    if evidence.totals.is_some() || evidence.foreign.is_some() {
        receipts(&mut notes, m, &evidence);
    } else {
        notes.skip(&[Stage::ValidateReceipts], "the receipts cannot be read");
    }
    if !m.is_ours() {
        notes.skip(&ours, "the pack has no audit_log.jsonl and session.json: another program built it");
    } else if evidence.walked.is_none() {
        let unread = if evidence.chain { &ours[1..] } else { &ours[..] };
        notes.skip(unread, "the audit events or the receipts cannot be read");
    }
    notes.facts.session = evidence.doc;
    finish(notes, signer, Some(m), Completeness::NotEvaluated, Vec::new(), None, Some(&m.signer_id))
}

fn check_fingerprints(signers: &[String]) -> Result<(), VerifyError> {
    for s in signers {
        if s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(VerifyError::Option(format!(
                "{s:?} is not a key fingerprint: expected 64 hex digits, the SHA-256 of the raw key"
            )));
        }
    }
    Ok(())
}

/// What the attestation says of the receipts, against what they are.
fn receipts(notes: &mut Notebook<'_>, m: &Manifest, evidence: &PackEvidence) {
    let (count, head) = match (&evidence.totals, &evidence.foreign) {
        (Some(t), _) => (t.count, t.head.map(|h| String::from_utf8_lossy(&h).into_owned())),
        (None, Some(f)) => (f.count, f.head.clone()),
        (None, None) => return notes.skip(&[Stage::ValidateReceipts], "the receipts cannot be read"),
    };
    let stage = Stage::ValidateReceipts;
    notes.facts.receipt_count = count;
    let holds = !notes.failed_at(stage);
    if count != m.receipt_count_expected {
        let f = Finding::new(
            "E_PACK_OMISSION_DETECTED",
            stage,
            "the number of receipts in the file is not that of the manifest",
        );
        notes.found(f.file(RECEIPTS).sides(m.receipt_count_expected, count));
    }
    let a = &m.attestation;
    let recomputed = if holds { "PASS" } else { "FAIL" };
    if a.receipt_integrity != recomputed {
        let f = Finding::new("E_MANIFEST_TAMPER", stage, "the attested receipt_integrity is not the recomputed one");
        notes.found(f.file("receipt_integrity").sides(&a.receipt_integrity, recomputed));
    }
    let as_written = evidence.foreign.as_ref().and_then(|f| f.head_as_written.clone()).filter(|h| *h == a.head_hash);
    let head = head.map(|head| as_written.unwrap_or(head));
    let head = if count == 0 { Some(sha256_hex(EMPTY_HEAD)) } else { head };
    if head.as_ref() != Some(&a.head_hash) {
        let f = Finding::new("E_MANIFEST_TAMPER", stage, "head_hash is not the hash of the last receipt");
        notes.found(
            f.file("head_hash")
                .sides(&a.head_hash, head.as_deref().unwrap_or("none: the last receipt has no canonical form")),
        );
    }
    notes.facts.head_hash = head;
    let redacted = evidence.totals.as_ref().map_or(0, |totals| totals.redacted);
    notes.facts.redacted_contents = redacted;
    let counts = [("receipt_count", count), ("redacted_contents", redacted)];
    notes.detail(stage, &counts[..=usize::from(redacted > 0)]);
    if evidence.foreign.as_ref().is_some_and(|f| f.session_receipts > 0) {
        let text = "receipts of a recorded session without its audit_log.jsonl and session.json";
        notes.found(Finding::new("E_PACK_OMISSION_DETECTED", stage, text).file(RECEIPTS));
    }
}

fn whole_session(notes: &mut Notebook<'_>, m: &Manifest, evidence: &PackEvidence) -> (Completeness, Vec<String>) {
    let ours = [Stage::VerifyChain, Stage::MatchReceiptsToChain, Stage::SessionCompleteness];
    if !m.is_ours() {
        notes.skip(&ours, "the pack has no audit_log.jsonl and session.json: another program built it");
        return (Completeness::NotEvaluated, Vec::new());
    }
    let (Some(walked), Some(totals)) = (&evidence.walked, &evidence.totals) else {
        notes.skip(&ours, "the audit events or the receipts cannot be read");
        return (Completeness::NotEvaluated, Vec::new());
    };
    notes.facts.event_count = walked.chain.events;
    notes.facts.coverage.clone_from(&walked.covered);
    notes.detail(Stage::VerifyChain, &[("events", walked.chain.events), ("broken", walked.chain.broken)]);
    notes.detail(Stage::MatchReceiptsToChain, &[("receipts", totals.count), ("requests", walked.chain.requests)]);
    if let Some(doc) = &evidence.doc {
        session::agrees(notes, doc, m, walked, totals);
        session::attested(notes, doc, m, walked, evidence.surface.as_ref());
        let (events, ended) = (walked.chain.events, walked.chain.end.is_some());
        let facts = builder::Facts { doc, manifest: m, totals, events, ended };
        builder::report(notes, evidence.report.as_ref(), &facts);
        builder::transcript(notes, evidence.transcript.as_ref(), &facts);
        for step in &doc.clock_steps {
            notes.warnings.push(format!("clock_step: the host's clock moved by {} ms at {}", step.delta_ms, step.at));
        }
    }
    let (mut verdict, mut reasons) = session::completeness(evidence.doc.as_ref(), walked);
    if let Some(doc) = evidence.doc.as_ref().filter(|_| verdict == Completeness::Complete) {
        notes.warnings.extend(doc.recovery_notes.iter().map(|note| format!("recovered: {note}")));
    }
    let events = walked.chain.events;
    if let Some(seals) = walked.seals.as_ref().filter(|seals| seals.by_recorder < events) {
        reasons.push(format!("events {}…{} were sealed by recovery", seals.by_recorder, events - 1));
        if verdict == Completeness::Complete {
            verdict = Completeness::Incomplete;
        }
    }
    notes.crashed = evidence.doc.as_ref().and_then(|doc| session::only_crashed(doc, walked));
    if let Some(rely) = notes.crashed {
        reasons.insert(0, rely.to_owned());
    }
    (verdict, reasons)
}
