//! Stage `session_completeness`: `session.json` against what was recomputed, and whether the session is whole.

use super::{
    Completeness, Finding, Stage,
    engine::Engine,
    event_line::{explain_document, typed},
    manifest::{Manifest, POLICY, SESSION, SURFACE},
    receipts::Totals,
    walk::Walked,
};
use crate::model::{Profile, SessionDoc, session::SESSION_VERSION};

/// Reads `session.json`: its RFC 8785 form and a newline.
pub(super) fn read(engine: &mut Engine<'_>, bytes: &[u8]) -> Option<SessionDoc> {
    let doc = parse(bytes);
    if doc.is_none() {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let (code, what) = explain_document::<SessionDoc>(line, bytes.len() == line.len() + 1);
        engine.found(Finding::new(code, Stage::SessionCompleteness, format!("session.json: {what}")).file(SESSION));
    }
    doc
}

/// The document, if the bytes are exactly its one form.
pub(super) fn parse(bytes: &[u8]) -> Option<SessionDoc> {
    let doc = typed::<SessionDoc>(bytes.strip_suffix(b"\n")?)?;
    (doc.v == SESSION_VERSION).then_some(*doc)
}

/// Compares the session's own document with everything else.
pub(super) fn agrees(engine: &mut Engine<'_>, doc: &SessionDoc, m: &Manifest, w: &Walked, r: &Totals) {
    let mut wrong: Vec<(&str, String, String)> = Vec::new();
    let mut same = |field: &'static str, expected: String, found: String| {
        if expected != found {
            wrong.push((field, expected, found));
        }
    };
    let text = |o: &Option<String>| o.clone().unwrap_or_else(|| "null".to_owned());
    same("chain_first", text(&w.chain.first_hash), doc.chain_first.clone());
    same("chain_last", text(&w.chain.last_hash), doc.chain_last.clone());
    same("event_count", w.chain.events.to_string(), doc.event_count.to_string());
    same("receipt_count", r.count.to_string(), doc.receipt_count.to_string());
    same("session_id", w.chain.session.map_or_else(String::new, |s| s.to_string()), doc.session_id.to_string());
    same("transport", text(&w.chain.transport), doc.transport.clone());
    same("run_id of the attestation", doc.session_id.to_string(), m.attestation.run_id.clone());
    let mode = match doc.profile {
        Profile::Audit => "shadow",
        Profile::Guard => "enforced",
    };
    same("mode of the attestation", mode.into(), m.attestation.mode.clone());
    if let Some(e) = &w.chain.start {
        same("command_digest", e.command_digest.clone(), doc.command_digest.clone());
        same("command", format!("{:?}", e.command), format!("{:?}", doc.command));
        same("server_id", e.server_id.clone(), doc.server_id.clone());
        same("recorder_version", e.recorder_version.clone(), doc.recorder_version.clone());
        same("profile", format!("{:?}", e.profile), format!("{:?}", doc.profile));
        same("continues", format!("{:?}", e.continues), format!("{:?}", doc.continues));
    }
    if let Some(s) = &w.start {
        same("policy_hash", text(&s.policy_hash), text(&doc.policy_hash));
        same("started_at", s.started_at.to_string(), doc.started_at.to_string());
    }
    if let Some(e) = &w.chain.end {
        same("counts", format!("{:?}", e.counts), format!("{:?}", doc.counts));
        same("end_reason", e.reason.clone(), doc.end_reason.clone());
        same("session_complete", e.complete.to_string(), doc.session_complete.to_string());
    } else if doc.session_complete {
        same("session_complete", "false: the chain has no end".into(), "true".into());
    }
    if let Some(hash) = &doc.policy_hash {
        let bare = hash.trim_start_matches("sha256:");
        same("policy_hash of the attestation", bare.to_owned(), m.attestation.policy_hash.clone());
        if m.file(POLICY).is_none() {
            same("policy_hash", format!("a file {POLICY} with it"), "none".to_owned());
        }
    }
    for (field, hash, file) in [("policy_hash", &doc.policy_hash, POLICY), ("surface_hash", &doc.surface_hash, SURFACE)]
    {
        let Some(entry) = m.file(file) else { continue };
        // The surface is hashed as the value it is, without the newline that ends its file.
        let stated = hash.as_deref().map_or("null", |h| h.trim_start_matches("sha256:"));
        if stated != entry.sha256 && engine.unterminated.get(file).is_none_or(|h| h != stated) {
            same(field, format!("{} (the SHA-256 of {file})", entry.sha256), stated.to_owned());
        }
    }
    for hash in r.policies.iter().filter(|hash| !m.has_policy(hash)) {
        let what = format!("a policy that judged is not in the pack: {hash}");
        engine.found(
            Finding::new("E_PACK_OMISSION_DETECTED", Stage::SessionCompleteness, what)
                .file(Manifest::policy_file(hash)),
        );
    }
    for (field, expected, found) in wrong {
        let what = format!("session.json is not what the evidence says: {field}");
        engine.found(
            Finding::new("E_MANIFEST_TAMPER", Stage::SessionCompleteness, what).file(SESSION).sides(expected, found),
        );
    }
    let (start, end) = r.span.map_or((None, None), |(a, b)| (Some(a.to_string()), Some(b.to_string())));
    let a = &m.attestation;
    for (field, stated, actual) in
        [("timestamp_start", &a.timestamp_start, start), ("timestamp_end", &a.timestamp_end, end)]
    {
        let stated_time = super::time::parse_date_time(stated).map(|t| t.to_string());
        if actual.is_some() && stated_time != actual {
            let what = format!("{field} is not that of the receipts");
            let found = Finding::new("E_MANIFEST_TAMPER", Stage::ValidateAttestation, what).file(field);
            engine.found(found.sides(actual.unwrap_or_default(), stated));
        }
    }
}

/// What a reader may rely on where nothing is missing but what a killed proxy could not see.
pub(super) fn only_crashed(doc: &SessionDoc, w: &Walked) -> Option<&'static str> {
    let end = w.chain.end.as_ref().filter(|end| end.reason == CRASHED)?;
    let lost =
        end.counts.missed + end.counts.missed_bytes + w.chain.gaps + w.gap_receipts + w.chain.lost + w.unreceipted;
    (lost == 0).then(|| rely_after_crash(&doc.recovery_notes))
}

/// `end_reason` of a session whose proxy was killed.
pub const CRASHED: &str = "crashed";

/// What a pack of a killed proxy still shows, if it has no gaps: recovery's notes tell whether it had the capture.
#[must_use]
pub fn rely_after_crash(notes: &[String]) -> &'static str {
    // Every note that names the capture says that it was not there to read, but for the one that counts what was read.
    let read = |note: &String| !note.contains("capture") || note.ends_with("messages were read from the capture");
    if notes.iter().all(read) {
        "the proxy was killed: up to then nothing is missing, every call that was answered has its receipt, and calls in \
         flight say proxy_killed"
    } else {
        "the proxy was killed and its capture could not be read: what is here holds, but the last messages before the kill \
         may be missing"
    }
}

/// The completeness verdict, and each reason why it is not COMPLETE.
pub(super) fn completeness(doc: Option<&SessionDoc>, w: &Walked) -> (Completeness, Vec<String>) {
    let mut reasons = Vec::new();
    let mut add = |yes: bool, reason: &dyn Fn() -> String| {
        if yes {
            reasons.push(reason());
        }
    };
    add(w.start.is_none(), &|| "there is no receipt mcp.session_start".into());
    match &w.chain.end {
        None => add(true, &|| "the chain has no end: the recording stopped".into()),
        Some(end) => {
            add(!end.complete, &|| format!("the recorder ended it as incomplete: {}", end.reason));
            add(end.counts.timeouts > 0, &|| format!("{} calls got no response", end.counts.timeouts));
        }
    }
    add(w.end.is_none(), &|| "there is no receipt mcp.session_end".into());
    add(w.chain.gaps > 0 || w.gap_receipts > 0, &|| {
        let c = &w.chain;
        format!("{} gaps in the recording: {} messages, {} bytes", c.gaps, c.missed, c.missed_bytes)
    });
    add(w.chain.lost > 0, &|| format!("recovery found {} receipts or their events missing", w.chain.lost));
    add(w.unreceipted > 0, &|| {
        let first: Vec<_> = w.unreceipted_first.iter().map(ToString::to_string).collect();
        format!("{} calls have no receipt: {}", w.unreceipted, first.join(", "))
    });
    if let Some(doc) = doc {
        add(!doc.session_complete && w.chain.end.is_none(), &|| format!("session.json: {}", doc.end_reason));
        for note in &doc.recovery_notes {
            add(true, &|| format!("recovered: {note}"));
        }
    }
    let complete_end = w.chain.end.as_ref().is_some_and(|e| e.complete);
    let verdict = match &w.chain.end {
        None => Completeness::Unterminated,
        // Calls that a complete session ended without a response are in the recorder's judgement, and it said complete.
        Some(end) if complete_end && reasons.len() == usize::from(end.counts.timeouts > 0) => {
            reasons.clear();
            Completeness::Complete
        }
        Some(_) => Completeness::Incomplete,
    };
    (verdict, reasons)
}
