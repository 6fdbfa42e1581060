//! Stage `session_completeness`: `session.json` against what was recomputed, and whether the session is whole.

use super::{
    finding::Finding,
    notebook::Notebook,
    receipts::ReceiptTotals,
    unread::explain_document,
    walk::Walked,
    words::{Completeness, Stage},
};
use crate::model::pack::{
    DEFAULT_POLICY, MANIFEST, Manifest, NO_CLAIMS, POLICY, SESSION, SURFACE, policy_file, policy_hash,
};
use crate::model::words::EndReason;
use crate::{
    canon,
    model::{
        Coverage, Profile, RecorderKind, SessionDoc, Transport,
        event::{SERVER_EVENTS, version_of},
        line::Canonical as _,
        sha256_hex,
    },
    text::{counted, either},
};

/// Reads `session.json`: its RFC 8785 form and a newline.
pub(super) fn read(notes: &mut Notebook<'_>, bytes: &[u8]) -> Option<SessionDoc> {
    let doc = parse(bytes);
    if doc.is_none() {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let unread = explain_document::<SessionDoc>(line, bytes.len() == line.len() + 1);
        notes.found(unread.of_document(Stage::SessionCompleteness, SESSION).0);
    }
    doc
}

/// The document, if the bytes are exactly its one form.
pub(super) fn parse(bytes: &[u8]) -> Option<SessionDoc> {
    SessionDoc::of_line(bytes.strip_suffix(b"\n")?).map(|doc| *doc)
}

/// Compares the session's own document with everything else.
pub(super) fn agrees(notes: &mut Notebook<'_>, doc: &SessionDoc, m: &Manifest, w: &Walked, r: &ReceiptTotals) {
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
    let library = doc.recorder.as_ref().is_some_and(|r| *r == RecorderKind::Library);
    let over_http = doc.transport != Transport::Stdio.as_str() && !library;
    let transport = if over_http { Transport::StreamableHttp } else { Transport::Stdio };
    let of_session = if library { SERVER_EVENTS } else { version_of(transport, false) };
    let of_events = if library { SERVER_EVENTS } else { version_of(transport, w.judgement.is_some()) };
    let has_key = doc.http.as_ref().is_some_and(|http| http.key_lasts.is_some());
    same("v", (of_session + u32::from(has_key || library)).to_string(), doc.v.to_string());
    let coverage = |c: Option<Coverage>| c.map_or_else(|| "absent".to_owned(), |c| format!("{c:?}"));
    same("coverage", coverage(w.covered.as_ref().map(|c| c.coverage)), coverage(doc.coverage));
    if let Some(v) = w.chain.version {
        same("v of the events", of_events.to_string(), v.to_string());
    }
    same(
        "http",
        if over_http { "what it was" } else { "absent" }.into(),
        if doc.http.is_some() { "what it was" } else { "absent" }.into(),
    );
    if let Some(http) = &doc.http {
        same("http.endpoint.digest", doc.command_digest.clone(), http.endpoint.digest.clone());
        same("http.exchanges", w.exchanges.to_string(), http.exchanges.to_string());
        same(
            "command",
            "null: the server has a URL".into(),
            doc.command.as_ref().map_or_else(|| "null: the server has a URL".into(), |c| format!("{c:?}")),
        );
    }
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
        // Who recovers a session may have another version.
        if doc.recovery_notes.is_empty() {
            same("recorder_version", e.recorder_version.clone(), doc.recorder_version.clone());
        }
        same("profile", format!("{:?}", e.profile), format!("{:?}", doc.profile));
        same("continues", format!("{:?}", e.continues), format!("{:?}", doc.continues));
    }
    if let Some(s) = &w.start {
        same("policy_hash", text(&s.policy_hash), text(&doc.policy_hash));
        same("started_at", s.started_at.to_string(), doc.started_at.to_string());
        // Who had named themselves when the session began have still done so at its end.
        for (field, then, now) in [
            ("client_info", s.client_info.is_some(), doc.client_info.is_some()),
            ("server_info", s.server_info.is_some(), doc.server_info.is_some()),
            ("protocol_version", s.protocol_version.is_some(), doc.protocol_version.is_some()),
        ] {
            if then && !now {
                same(field, "that of mcp.session_start, or a later one".into(), "null".into());
            }
        }
    }
    same("ledger_hash", text(&w.chain.first_prev), doc.ledger_hash.clone());
    if let Some(e) = &w.chain.end {
        same("counts", format!("{:?}", e.counts), format!("{:?}", doc.counts));
        same("end_reason", e.reason.to_string(), doc.end_reason.to_string());
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
        let Some(entry) = m.file(file) else {
            if file == SURFACE && hash.is_some() {
                same(field, "a file surface.json with it".to_owned(), "none".to_owned());
            }
            continue;
        };
        // The surface is hashed as the value it is, without the newline that ends its file.
        let stated = hash.as_deref().map_or("null", |h| h.trim_start_matches("sha256:"));
        if stated != entry.sha256 && notes.unterminated.get(file).is_none_or(|h| h != stated) {
            same(field, format!("{} (the SHA-256 of {file})", entry.sha256), stated.to_owned());
        }
    }
    for hash in r.policies.iter().filter(|hash| !m.has_policy(hash)) {
        let what = format!("a policy that was used is not in the pack: {hash}");
        notes.found(Finding::new("E_PACK_OMISSION_DETECTED", Stage::SessionCompleteness, what).file(policy_file(hash)));
    }
    for (field, expected, found) in wrong {
        let what = format!("session.json does not match the evidence: {field}");
        notes.found(
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
            let what = format!("{field} does not match the receipts");
            let found = Finding::new("E_MANIFEST_TAMPER", Stage::ValidateAttestation, what).file(field);
            notes.found(found.sides(actual.unwrap_or_default(), stated));
        }
    }
}

/// Compares what the document says of the session's end, and the attestation of the whole.
pub(super) fn attested(
    notes: &mut Notebook<'_>,
    doc: &SessionDoc,
    m: &Manifest,
    w: &Walked,
    surface: Option<&super::surface::Surface>,
) {
    let mut wrong: Vec<(&str, &str, String, String)> = Vec::new();
    let mut same = |file: &'static str, field: &'static str, expected: String, found: String| {
        if expected != found {
            wrong.push((file, field, expected, found));
        }
    };
    let recovered = !doc.recovery_notes.is_empty();
    if let (Some(_), Some(at)) = (&w.chain.end, w.chain.last_at) {
        // A process that finishes another's session knows only its last event.
        if !recovered {
            same(SESSION, "ended_at", at.to_string(), doc.ended_at.to_string());
            same(SESSION, "ended_mono_us", w.chain.last_mono_us.to_string(), doc.ended_mono_us.to_string());
        }
    }
    if !recovered && w.chain.end.is_some() {
        let noted: Vec<(String, String)> =
            w.chain.steps.iter().map(|(at, note)| (at.to_string(), note.clone())).collect();
        let listed =
            doc.clock_steps.iter().map(|c| (c.at.to_string(), format!("wall clock moved by {} ms", c.delta_ms)));
        same(SESSION, "clock_steps", format!("{noted:?}"), format!("{:?}", listed.collect::<Vec<_>>()));
        if let Some(s) = surface {
            let line = |v: Option<Vec<u8>>| v.map_or_else(String::new, |v| String::from_utf8_lossy(&v).into_owned());
            let of_doc = [
                ("server_info", canon::to_vec(&doc.server_info).ok(), &s.server_info),
                ("protocol_version", canon::to_vec(&doc.protocol_version).ok(), &s.protocol_version),
            ];
            for (field, expected, found) in of_doc {
                same(SURFACE, field, line(expected), String::from_utf8_lossy(found).into_owned());
            }
            if let Some(server) = &s.server {
                same(SURFACE, "endpoint", doc.command_digest.clone(), server.endpoint.clone());
                same(SURFACE, "server_id", doc.server_id.clone(), server.id.clone());
            }
        }
    }
    if doc.end_reason == EndReason::Crashed && !recovered && w.chain.end.is_some() {
        same(SESSION, "recovery_notes", "what recovery found".to_owned(), "none".to_owned());
    }
    match (doc.end_reason.known(), doc.exit_code) {
        (Some(EndReason::ServerFailed), Some(0)) => {
            same(SESSION, "exit_code", "not 0: the server failed".into(), "0".into());
        }
        (Some(EndReason::ServerExited), Some(code)) if code != 0 => {
            same(SESSION, "exit_code", "0: the server ended by itself".into(), code.to_string());
        }
        _ => {}
    }
    if let Some(command) = &doc.command {
        let digest = format!("sha256:{}", canon::sha256_hex(&canon::to_vec(command).unwrap_or_default()));
        same(SESSION, "command_digest", digest, doc.command_digest.clone());
    }
    let a = &m.attestation;
    let id = format!("pack_{}_{}", doc.started_at.compact(), doc.session_id.hex());
    same(MANIFEST, "pack_id", id, a.pack_id.clone());
    same(MANIFEST, "verifier_version", doc.recorder_version.clone(), a.verifier_version.clone());
    same(MANIFEST, "suite_hash", sha256_hex(a.suite_id.as_bytes()), a.suite_hash.clone());
    if doc.policy_hash.is_none() {
        same(MANIFEST, "policy_hash", sha256_hex(DEFAULT_POLICY), a.policy_hash.clone());
    }
    if a.claim_set_id == NO_CLAIMS {
        same(MANIFEST, "claim_set_hash", sha256_hex(NO_CLAIMS.as_bytes()), a.claim_set_hash.clone());
        if a.claim_check != "N/A" {
            same(MANIFEST, "claim_check", "N/A: there is no claim set".into(), a.claim_check.clone());
        }
    }
    for file in &m.files {
        if let Some(hash) = policy_hash(&file.path).filter(|hash| *hash != file.sha256) {
            same(MANIFEST, "the name of a policy", file.sha256.clone(), hash.to_owned());
        }
    }
    for (file, field, expected, found) in wrong {
        let stage = if file == MANIFEST { Stage::ValidateAttestation } else { Stage::SessionCompleteness };
        let what = format!("{file} does not match the evidence: {field}");
        notes.found(Finding::new("E_MANIFEST_TAMPER", stage, what).file(file).sides(expected, found));
    }
}

/// What a reader may rely on where nothing is missing but what a killed proxy could not see.
pub(super) fn only_crashed(doc: &SessionDoc, w: &Walked) -> Option<&'static str> {
    let end = w.chain.end.as_ref().filter(|end| end.reason == EndReason::Crashed)?;
    let lost =
        end.counts.missed + end.counts.missed_bytes + w.chain.gaps + w.gap_receipts + w.chain.lost + w.unreceipted;
    (lost == 0).then(|| match &w.covered {
        Some(_) => {
            "the server was killed: up to then nothing is missing but the outcomes of the calls that its handlers were \
             working on"
        }
        None => rely_after_crash(&doc.recovery_notes),
    })
}

/// What a pack of a killed proxy still shows, if it has no gaps: recovery's notes tell whether it had the capture.
#[must_use]
pub fn rely_after_crash(notes: &[String]) -> &'static str {
    // Every note that names the capture says that it was not there to read, but for those that count what was read.
    let read = |note: &String| {
        !note.contains("capture")
            || note.ends_with("read from the capture")
            || note.contains(" of unfinished messages ")
    };
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
            add(end.counts.timeouts > 0, &|| format!("{} got no response", counted(end.counts.timeouts, "call")));
        }
    }
    add(w.end.is_none(), &|| "there is no receipt mcp.session_end".into());
    add(w.chain.gaps > 0 || w.gap_receipts > 0, &|| {
        let c = &w.chain;
        format!(
            "{} in the recording: {}, {}",
            counted(c.gaps, "gap"),
            counted(c.missed, "message"),
            counted(c.missed_bytes, "byte")
        )
    });
    add(w.chain.lost > 0, &|| {
        format!(
            "recovery found {} or {} missing",
            counted(w.chain.lost, "receipt"),
            either(w.chain.lost, "its event", "their events")
        )
    });
    if let Some(c) = w.covered.as_ref().filter(|c| c.coverage.open > 0) {
        let first: Vec<_> = c.open.iter().map(ToString::to_string).collect();
        reasons.push(format!("{} without an outcome: {}", counted(c.coverage.open, "call"), first.join(", ")));
    }
    let mut add = |yes: bool, reason: &dyn Fn() -> String| {
        if yes {
            reasons.push(reason());
        }
    };
    add(w.unreceipted > 0, &|| {
        let first: Vec<_> = w.unreceipted_first.iter().map(ToString::to_string).collect();
        format!("{} without a receipt: {}", counted(w.unreceipted, "call"), first.join(", "))
    });
    // With its end, and by whoever saw it: nobody else could have.
    let is_stated = w.seals.as_ref().is_some_and(|seals| seals.by_recorder == w.chain.events);
    if let Some(doc) = doc {
        add(!doc.session_complete && w.chain.end.is_none(), &|| format!("session.json: {}", doc.end_reason));
        let is_of_pack_alone = |note: &&String| is_stated && **note == SessionDoc::finished_later(&doc.end_reason);
        for note in doc.recovery_notes.iter().filter(|note| !is_of_pack_alone(note)) {
            add(true, &|| format!("recovered: {note}"));
        }
    }
    let complete_end = w.chain.end.as_ref().is_some_and(|e| e.complete);
    let verdict = match &w.chain.end {
        None => Completeness::Unterminated,
        // Calls that a complete session ended without a response are the recorder's to count, and it said complete.
        Some(end) if complete_end && reasons.len() == usize::from(end.counts.timeouts > 0) => {
            reasons.clear();
            Completeness::Complete
        }
        Some(_) => Completeness::Incomplete,
    };
    (verdict, reasons)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_from_the_capture_is_not_taken_for_a_capture_that_was_not_there() {
        let say = |notes: &[&str]| rely_after_crash(&notes.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        for read in [
            "1 message was read from the capture",
            "2 messages were read from the capture",
            "1 messages were read from the capture",
            "7 bytes of unfinished messages were in the capture",
            "1 byte of unfinished messages was in the capture",
        ] {
            assert!(say(&["the proxy ended", read]).contains("up to then nothing is missing"), "{read}");
        }
        for gone in ["c2s: the capture did not survive the process", "s2c: the capture went on to a later session"] {
            assert!(say(&[gone, "1 message was read from the capture"]).contains("may be missing"), "{gone}");
        }
    }
}
