//! The documents say what the code does: formats member by member, links that lead somewhere, flags that exist.

use assay::{
    model::{
        AnomalyKind, AuditEvent, CallAnomaly, EndReason, GapReason, GapReceipt, LedgerLine, OutcomeReason,
        PolicyReason, SessionDoc, SessionEnd, SessionStart, Teardown, ToolCall, ToolDenied, ToolExecuted,
        ToolRequested, Vocabulary,
        checkpoint::{CheckpointLine, KeyLine},
        event::detail,
        http::HttpResponse,
        pack::Manifest,
        words::ExchangeEnd,
    },
    pack::{
        ci,
        verify::{self, Finding, Stage, VerifyOptions},
    },
    record::{card::Card, mark::Mark},
    witness::keep::{Followed, WitnessDoc},
};
use assay_support::{
    rig::rig,
    sessions::{self, Plan},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn formats() -> String {
    fs::read_to_string(root().join("docs/formats.md")).unwrap()
}

/// The members in the first table below a heading.
fn documented(doc: &str, heading: &str) -> BTreeSet<String> {
    let mut lines = doc.lines().skip_while(|l| l.trim_start_matches('#').trim() != heading || !l.starts_with('#'));
    assert!(lines.next().is_some(), "docs/formats.md has no heading {heading:?}");
    let section = lines.take_while(|l| !l.starts_with('#'));
    let table = section.skip_while(|l| !l.starts_with("| member |")).take_while(|l| l.starts_with('|'));
    table.filter_map(|l| l.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_owned())).collect()
}

fn members(value: &Value) -> BTreeSet<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}

/// Every member that the code writes is in the table, and the table has no others.
fn agree(heading: &str, value: &Value) {
    assert_eq!(
        documented(&formats(), heading),
        members(value),
        "docs/formats.md, {heading:?} (left) and the code (right)"
    );
}

/// A value with all its members: those that `T` demands are given, the optional ones are written as `null`. A member that
/// is added to `T` makes this fail, or appears in what is written.
fn sample<T: DeserializeOwned + Serialize>(demanded: Value) -> Value {
    let value: T = serde_json::from_value(demanded).expect("a demanded member is not in the sample");
    serde_json::to_value(value).unwrap()
}

const TIME: &str = "2026-03-15T11:30:00.000Z";
const SESSION: &str = "mcp_0123456789abcdef";
const RECEIPT: &str = "mtc_0123456789abcdef";
const INVOCATION: &str = "inv_0123456789abcdef";

fn with(mut base: Value, more: Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

/// What receipts of all types have.
fn receipt(kind: &str, more: Value) -> Value {
    let base = json!({
        "type": kind, "receipt_id": RECEIPT, "timestamp": TIME, "schema_version": "3.0", "seq": 1, "session_id": SESSION,
        "trace_id": SESSION, "integration_source": "assay.mcp_proxy",
    });
    with(base, more)
}

fn counts() -> Value {
    json!({"calls": 0, "denied": 0, "errors": 0, "malformed": 0, "missed": 0, "missed_bytes": 0, "policy_denied": 0,
           "requests": 0, "timeouts": 0})
}

#[test]
fn receipts_are_documented_member_by_member() {
    let call = sample::<ToolCall>(receipt(
        "mcp_tool_call",
        json!({
            "anomalies": [], "arguments_hash": "sha256:", "arguments_redacted": null, "invocation_id": INVOCATION,
            "mcp_request_id": 1, "outcome": "forwarded", "phases_us": {}, "policy_verdict": "no_policy", "proxy_version": "0",
            "request_observed_at": TIME, "server_id": "s", "server_transport": "stdio", "surface_age_ms": null,
            "surface_approval_id": null, "surface_item_hash": null, "surface_root": null, "surface_state": null,
            "tool_name": "t",
        }),
    ));
    agree("Receipt `mcp_tool_call`", &call);
    agree("Phases `phases_us`", &call["phases_us"]);
    let start = sample::<SessionStart>(receipt(
        "mcp.session_start",
        json!({
            "chain_head": "", "client_info": {"name": "c"}, "command_digest": "", "profile": "audit", "proxy_version": "0",
            "server_id": "s", "server_transport": "stdio", "started_at": TIME,
        }),
    ));
    agree("Receipt `mcp.session_start`", &start);
    agree("Peer `client_info`, `server_info`", &start["client_info"]);
    let end = sample::<SessionEnd>(receipt(
        "mcp.session_end",
        json!({"chain_hash": "", "counts": counts(), "end_reason": "", "proxy_version": "0", "session_complete": true}),
    ));
    agree("Receipt `mcp.session_end`", &end);
    agree("Counts `counts`", &end["counts"]);
    let gap = sample::<GapReceipt>(receipt("mcp.recorder_gap", json!({"bytes": 0, "messages": 0, "reason": "disk"})));
    agree("Receipt `mcp.recorder_gap`", &gap);
    let of_server = |kind: &str, id: &str, more: Value| {
        let base = json!({
            "type": kind, "receipt_id": id, "timestamp": TIME, "schema_version": "3.0", "seq": 1, "trace_id": SESSION,
            "integration_source": "assay.integrations.mcp", "anomalies": [], "arguments_hash": "", "server_id": "s",
            "invocation_id": INVOCATION, "recorder_version": "0", "tool_name": "t",
        });
        with(base, more)
    };
    let requested = json!({"mcp_request_id": 1, "server_transport": "stdio"});
    let requested = of_server("mcp_tool_requested", "mtr_0000000000000001", requested);
    agree("Receipt `mcp_tool_requested`", &sample::<ToolRequested>(requested));
    let of = json!({"request_receipt_id": "mtr_0000000000000001"});
    let denied = with(of.clone(), json!({"denial_reason": "", "denied": true, "policy_reason": ""}));
    agree(
        "Receipt `mcp_tool_denied`",
        &sample::<ToolDenied>(of_server("mcp_tool_denied", "mtd_0000000000000001", denied)),
    );
    let executed = with(of, json!({"outcome": "success", "policy_verdict": "no_policy"}));
    agree(
        "Receipt `mcp_tool_executed`",
        &sample::<ToolExecuted>(of_server("mcp_tool_executed", "mte_0000000000000001", executed)),
    );
}

#[test]
fn events_and_their_details_are_documented_member_by_member() {
    let event = sample::<AuditEvent<Box<serde_json::value::RawValue>>>(json!({
        "at": TIME, "detail": {}, "event": "chain_start", "event_seq": 0, "hash": "", "mono_us": 0, "prev_hash": "",
        "session_id": SESSION, "transport": "stdio", "v": 1,
    }));
    agree("Event", &event);
    let start = json!({"carried_in": [], "command_digest": "", "policy_hash": "", "profile": "audit", "recorder_version": "", "server_id": ""});
    agree("Detail of `chain_start`", &sample::<detail::ChainStart>(start));
    let request = json!({"anomalies": [], "era": "legacy", "exchange": null, "offset": 0});
    agree("Detail of `request_received`", &sample::<detail::RequestReceived>(request));
    agree(
        "Detail of `request_forwarded`, `response_sent`",
        &sample::<detail::Forwarded>(json!({"exchange": 1, "offset": 0})),
    );
    let response = json!({"anomalies": [], "exchange": 1, "first_byte_us": 0, "offset": 0});
    agree("Detail of `response_received`", &sample::<detail::ResponseReceived>(response));
    let lines = json!({"first_us": 0, "lines": 2, "offset": 0});
    agree("Detail of `malformed_lines`", &sample::<detail::Lines>(lines));
    agree("Detail of `malformed`, `notification`", &sample::<detail::Seen>(json!({"exchange": 1, "offset": 0})));
    let decision =
        json!({"enforced": true, "exchange": 1, "offset": 0, "reason": "", "unseen": [], "verdict": "denied"});
    agree("Detail of `policy_decision`", &sample::<detail::PolicyDecision>(decision));
    agree("Detail of `request_blocked`", &sample::<detail::Blocked>(json!({"exchange": 1, "offset": 0, "reason": ""})));
    let reload = json!({"policy_hash": "", "previous": ""});
    agree("Detail of `policy_reloaded`", &sample::<detail::PolicyReload>(reload));
    agree("Detail of `anomaly`", &sample::<detail::Anomaly>(json!({"exchange": 1, "kind": ""})));
    agree("Detail of `recorder_gap`", &sample::<detail::Gap>(json!({"bytes": 0, "messages": 0, "reason": ""})));
    let end =
        json!({"carried_out": [], "complete": true, "counts": counts(), "events": 1, "reason": "", "receipts": 0});
    agree("Detail of `chain_end`", &sample::<detail::ChainEnd>(end));
    for (kind, members) in [
        ("surface_decision", detail::SurfaceDecision::MEMBERS),
        ("surface_observed", detail::SurfaceObserved::MEMBERS),
        ("surface_drift", detail::SurfaceDrift::MEMBERS),
    ] {
        let written = members.iter().map(|m| (*m).to_owned()).collect();
        assert_eq!(documented(&formats(), &format!("Detail of `{kind}`")), written, "{kind}");
    }
    let step = sample::<detail::ToolStep>(json!({"call": 0}));
    agree("Detail of `tool_requested`, `tool_denied`, `tool_executed`", &step);
    let answer = Some(HttpResponse::default());
    let exchange = serde_json::to_value(detail::HttpExchange { response: answer, ..detail::HttpExchange::new(1) });
    let exchange = exchange.unwrap();
    agree("Detail of `http_exchange`", &exchange);
    agree("Object `request` of an exchange", &exchange["request"]);
    agree("Object `response` of an exchange", &exchange["response"]);
    agree("Object `target` of an exchange", &exchange["target"]);
}

#[test]
fn ledger_session_and_card_are_documented_member_by_member() {
    let line = sample::<LedgerLine>(json!({
        "anchored": {"checkpoint": ""}, "at": TIME, "event_count": 0, "hash": "", "kind": "pruned", "ledger_seq": 0, "prev_hash": "", "segment": "",
        "segment_hash": "", "session_id": SESSION, "v": 4, "pruned": {
            "bytes": 0, "count": 0, "files": 0, "name": "", "sha256": "", "signature": "", "what": "pack",
            "signer": {"fingerprint": "", "id": "", "public_key": ""},
        },
        "pack_manifest_sha256": "", "renewed": {"checkpoint": "", "origin": ""}, "session_key": "", "tree_root": "",
    }));
    agree("Object `renewed`", &line["renewed"]);
    agree("Object `anchored`", &line["anchored"]);
    let memory = json!({"note": "", "origin": "", "v": 1});
    let state = json!({"log": {"dir": "", "edge": [""], "note": "", "origin": "", "signer": ""}, "v": 1,
        "pack": {"manifest_sha256": "", "session_id": SESSION}});
    let state = sample::<verify::state::StateLine>(state);
    agree("Line of a state", &state);
    agree("Object `log` of a state", &state["log"]);
    agree("Object `pack` of a state", &state["pack"]);
    agree("Memory `logs/<64 hex digits>.json`", &sample::<assay::record::log::LogMemory>(memory));
    agree("Ledger line", &line);
    agree("Tombstone `pruned`", &line["pruned"]);
    let key = json!({"kind": "key", "note": "", "signer": "", "v": 1});
    agree("Line of a key", &sample::<KeyLine>(key));
    let checkpoint = json!({"kind": "checkpoint", "note": "", "v": 1});
    agree("Line of a checkpoint", &sample::<CheckpointLine>(checkpoint));
    let extra = json!({"event": "", "key": "", "ledger": "", "receipt": "", "reveal": [], "v": 2});
    agree("Proof of an event", &sample::<verify::proof::Extra>(extra));
    let doc = sample::<SessionDoc>(json!({
        "chain_first": "", "chain_last": "", "clock_steps": [{"at": TIME, "delta_ms": 1}], "command_digest": "",
        "counts": counts(), "coverage": {"denied": 0, "executed": 0, "open": 0, "requested": 0}, "end_reason": "", "ended_at": TIME, "ended_mono_us": 0, "event_count": 0,
        "http": {
            "client_key": null, "client_key_shared": false, "downstream": [], "endpoint": {"digest": "", "url": null},
            "exchanges": 0, "joined_midway": false, "key_lasts": true, "mcp_session": null, "upstream": [],
        },
        "ledger_hash": "", "recorder": "library",
        "live_events_missed": 0, "profile": "audit", "receipt_count": 0, "recorder_version": "", "recovery_notes": [],
        "server_id": "", "session_complete": true, "session_id": SESSION, "started_at": TIME, "stderr_bytes": 0,
        "transport": "stdio", "v": 1,
    }));
    agree("Document `session.json`", &doc);
    agree("Coverage `coverage`", &doc["coverage"]);
    agree("Object `http` of `session.json`", &doc["http"]);
    agree("Object `endpoint`", &doc["http"]["endpoint"]);
    agree("Element of `clock_steps`", &doc["clock_steps"][0]);
    let card = json!({
        "command_digest": "",
        "http": {
            "binding": {"client": null, "client_may_be_shared": false, "joined_midway": false, "mcp_session": null},
            "process": "", "route": 0, "source": "log", "transport": "sse", "url": null, "log": null,
        },
        "pid": 1, "profile": "audit", "recorder": "library", "rings": [null, null], "server_id": "", "session_id": SESSION,
        "spools": ["", ""], "started_at": TIME, "started_mono_ns": 0, "surface_rules": "", "v": 1,
    });
    let card = sample::<Card>(card);
    agree("Card `live/<session>.json`", &card);
    agree("Object `http` of a card", &card["http"]);
    agree("Object `binding` of a card", &card["http"]["binding"]);
    let mark = json!({
        "audit_dir": {"dev": 1, "ino": 2, "path": ""}, "session_id": SESSION, "started_at": TIME, "surfaces": [], "v": 1,
    });
    let mark = sample::<Mark>(mark);
    agree("Mark `sessions/<session>.json`", &mark);
    let witness = sample::<WitnessDoc>(json!({"logs": [], "name": "", "v": 1}));
    agree("Document `witness.json`", &witness);
    let followed = sample::<Followed>(json!({"key": "", "note": null, "v": 1}));
    agree("Log `logs/<64 hex digits>.json`", &followed);
    agree("Place `audit_dir`", &mark["audit_dir"]);
}

/// The cells of the rows of the first table below a heading, its own heads left out.
fn rows(doc: &str, heading: &str) -> Vec<Vec<String>> {
    let section = doc.lines().skip_while(|l| l.trim_end() != heading).skip(1).take_while(|l| !l.starts_with('#'));
    let table = section.skip_while(|l| !l.starts_with('|')).take_while(|l| l.starts_with('|')).skip(2);
    let cells = |l: &str| l.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    table.map(cells).collect()
}

/// The table of versions has each constant of the code with its value, and what is read has its changes listed.
#[test]
fn one_table_owns_the_versions_of_all_formats() {
    use assay::{
        history,
        live::protocol,
        model::{self, pack as contract},
        pack::lock,
        policy,
        record::{card, http, log, mark, rollback},
        relay::capture,
    };
    let number = |n: u32| format!("{n}.0");
    let constants = [
        ("evidence/model/schema.rs SCHEMA_VERSION", model::receipt::SCHEMA_VERSION.to_owned()),
        ("evidence/model/event.rs EVENT_VERSION", number(model::event::EVENT_VERSION)),
        ("evidence/model/ledger.rs LEDGER_VERSION", number(model::ledger::LEDGER_VERSION)),
        ("evidence/model/session.rs SESSION_VERSION", number(model::session::SESSION_VERSION)),
        ("evidence/model/surface.rs SURFACE_VERSION", number(model::surface::SURFACE_VERSION)),
        ("evidence/model/surface/approval.rs APPROVAL_VERSION", number(model::surface::approval::APPROVAL_VERSION)),
        ("evidence/model/surface/approved.rs APPROVED_VERSION", number(model::surface::approved::APPROVED_VERSION)),
        ("evidence/model/checkpoint.rs CHECKPOINT_VERSION", number(model::checkpoint::CHECKPOINT_VERSION)),
        ("record/card.rs CARD_VERSION", number(card::CARD_VERSION)),
        ("record/http/run.rs RUN_VERSION", number(http::run::RUN_VERSION)),
        ("record/http/state.rs STATE_VERSION", format!("{}.0", http::state::STATE_VERSION)),
        ("live/protocol.rs RUN_CARD_VERSION", number(protocol::RUN_CARD_VERSION)),
        ("live/protocol.rs PROTOCOL", number(protocol::PROTOCOL)),
        ("record/mark.rs MARK_VERSION", number(mark::MARK_VERSION)),
        ("record/rollback.rs MEMORY_VERSION", number(rollback::MEMORY_VERSION)),
        ("record/log.rs LOG_MEMORY_VERSION", number(log::LOG_MEMORY_VERSION)),
        ("relay/capture/layout.rs VERSION", format!("{}.0", capture::VERSION)),
        ("history/store.rs SCHEMA_VERSION", format!("{}.0", history::SCHEMA_VERSION)),
        ("history/verdicts.rs VERDICTS_VERSION", format!("{}.0", history::verdicts::VERDICTS_VERSION)),
        ("gateway/registry/sqlite.rs REGISTRY_VERSION", format!("{}.0", assay::gateway::registry::REGISTRY_VERSION)),
        ("policy/read.rs POLICY_VERSION", format!("{}.0", policy::POLICY_VERSION)),
        ("surface/rules.rs RULES_VERSION", format!("{}.0", assay::surface::rules::RULES_VERSION)),
        ("gateway/config.rs CONFIG_VERSION", format!("{}.0", assay::gateway::config::CONFIG_VERSION)),
        ("approvals/lockfile.rs SURFACE_LOCK_VERSION", number(assay::approvals::lockfile::SURFACE_LOCK_VERSION)),
        ("redact/load.rs REDACTION_VERSION", format!("{}.0", assay::redact::REDACTION_VERSION)),
        ("approvals/request.rs REQUEST_VERSION", number(assay::approvals::request::REQUEST_VERSION)),
        ("verify/proof.rs PROOF_VERSION", number(verify::proof::PROOF_VERSION)),
        ("verify/state.rs STATE_VERSION", number(verify::state::STATE_VERSION)),
        ("witness/keep.rs WITNESS_VERSION", number(assay::witness::keep::WITNESS_VERSION)),
        ("verify/lock.rs LOCK_VERSION", lock::LOCK_VERSION.to_owned()),
        ("evidence/model/pack.rs PACK_VERSION", contract::PACK_VERSION.to_owned()),
        ("evidence/model/pack.rs MANIFEST_VERSION", contract::MANIFEST_VERSION.to_owned()),
        ("evidence/model/pack.rs FINGERPRINT_VERSION", number(contract::FINGERPRINT_VERSION)),
        (
            "evidence/model/pack.rs REPORT_VERSION",
            contract::REPORT_VERSION.trim_start_matches("assay.verify_report.v").to_owned(),
        ),
    ];
    let doc = formats();
    let table = rows(&doc, "## Versions");
    let documented: Vec<(String, String)> = table.iter().map(|r| (r[3].replace('`', ""), r[1].clone())).collect();
    let code: Vec<(String, String)> = constants.iter().map(|(name, v)| ((*name).to_owned(), v.clone())).collect();
    assert_eq!(documented, code, "docs/formats.md, \"Versions\" (left) and the code (right)");
    // A constant that is new in the code is new in this list.
    for (file, name) in constants.iter().filter_map(|(name, _)| name.split_once(' ')) {
        let text = fs::read_to_string(root().join("src").join(file)).unwrap();
        assert!(text.contains(&format!("pub const {name}: ")), "{file}: {name}");
    }
    let mut sources = vec![root().join("src")];
    while let Some(path) = sources.pop() {
        if path.is_dir() {
            sources.extend(fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
            continue;
        }
        let file = path.strip_prefix(root().join("src")).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter_map(|l| l.strip_prefix("pub const ")) {
            let name = line.split(':').next().unwrap();
            // That of the program, and those of documents that are only printed.
            let printed = line.contains("\"assay.") || name == "RECORDER_VERSION";
            if (name.ends_with("VERSION") || name == "PROTOCOL") && !printed {
                let listed = constants.iter().any(|(known, _)| *known == format!("{file} {name}"));
                assert!(listed, "src/{file}: {name} is not in the table of versions");
            }
        }
    }
    let changes: Vec<(String, String)> =
        rows(&doc, "### Changes").iter().map(|r| (r[0].clone(), r[1].clone())).collect();
    for row in &table {
        let format = row[0].split(", ").next().unwrap().to_owned();
        let last = changes.iter().rfind(|(name, _)| *name == format);
        assert_eq!(last, Some(&(format.clone(), row[1].clone())), "the last change of {format} is not its version");
    }
}

#[test]
fn every_reason_of_a_guard_is_documented() {
    let text = fs::read_to_string(root().join("docs/guard.md")).unwrap();
    let words = PolicyReason::ALL.iter().filter_map(|word| word.as_str().strip_prefix("guard:"));
    // These two are not refusals of their own: formats.md has them.
    let words: Vec<&str> = words.filter(|word| !matches!(*word, "batch" | "refused")).collect();
    assert!(words.len() > 15);
    for word in words {
        assert!(text.contains(&format!("| `{word}` |")), "the refusal {word} is not in docs/guard.md");
    }
}

/// A pack of a synthetic session.
#[test]
fn every_constraint_of_a_policy_is_documented_with_its_reason() {
    let page = fs::read_to_string(root().join("docs/policy.md")).unwrap();
    for key in assay::policy::model::Constraint::KEYS {
        assert!(page.contains(&format!("`{key}")), "docs/policy.md does not say what {key} does");
        for (name, page) in [("policy.md", &page), ("formats.md", &formats())] {
            assert!(page.contains(&format!("`constraint:{key}`")), "docs/{name} lacks constraint:{key}");
        }
    }
}

fn pack(dir: &Path) -> PathBuf {
    sessions::packed(&Plan::default(), dir.join("audit"))
}

#[test]
fn the_surface_is_documented_member_by_member() {
    let doc = formats();
    for (heading, members) in [
        ("Decision", assay::model::surface::Approval::MEMBERS.iter().map(|m| (*m).to_owned()).collect()),
        (
            "Document `surface_approved.json`",
            ["endpoint", "fingerprint", "items", "server_id", "v"].map(str::to_owned).into(),
        ),
        (
            "Surface lock file",
            ["fingerprint", "items", "root", "rules_hash", "server_id", "type", "v"].map(str::to_owned).into(),
        ),
    ] {
        assert_eq!(documented(&doc, heading), members, "{heading}");
    }
    use assay::model::surface::{Facet, Item, List, Snapshot, Surface};
    let tool = Item::of(Facet::Tools, br#"{"name":"t"}"#, &[]).unwrap();
    let surface = Surface { lists: [(Facet::Tools, List::complete(vec![tool]))].into(), ..Surface::default() };
    let seen = Snapshot { surface, ..Snapshot::default() };
    let value: Value = serde_json::from_slice(&seen.document().unwrap()).unwrap();
    agree("Document `surface.json`", &value);
    agree("List in `surface.json`", &value["tools"]);
    agree("Entry of a list in `surface.json`", &value["tools"]["items"][0]);
    agree("Context of a surface", &value["context"]);
}

#[test]
fn packs_and_reports_are_documented_member_by_member() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = pack(tmp.path());
    let read = |name: &str| -> Value { serde_json::from_slice(&fs::read(dir.join(name)).unwrap()).unwrap() };
    let written = read("pack_manifest.json");
    let mut manifest: Manifest = serde_json::from_value(written.clone()).unwrap();
    manifest.redaction_policy_sha256 = Some(String::new());
    let manifest = serde_json::to_value(manifest).unwrap();
    agree("Manifest `pack_manifest.json`", &manifest);
    agree("Element of `files`", &manifest["files"][0]);
    agree("Attestation `attestation`", &manifest["attestation"]);
    let github = |name: &str| match name {
        "GITHUB_ACTIONS" => Some("true".to_owned()),
        "GITHUB_SHA" => Some("a".repeat(40)),
        _ => Some("x".to_owned()),
    };
    agree("CI run `ci_binding`", &serde_json::to_value(ci::detect(github).unwrap()).unwrap());
    agree("Builder's report `verify_report.json`", &read("verify_report.json"));

    let names = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    for name in names.map(|n| if n == "_unsigned" { "_unsigned/PACK_SUMMARY.md".to_owned() } else { n }) {
        assert!(formats().contains(&format!("`{name}`")), "{name} is in a pack and not in docs/formats.md");
    }
    let options = VerifyOptions { cards: vec!["mcp_session_completeness".to_owned()], ..VerifyOptions::default() };
    let report = verify::verify(&dir, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    agree("Report of `verify-pack`", &serde_json::to_value(&report).unwrap());
    let finding =
        Finding::new("E_X", Stage::VerifyChain, "m").file("f").line(1, 0).receipt(0, Some("r".into())).sides(1, 2);
    agree("Element of `errors`", &serde_json::to_value(finding).unwrap());
}

/// The words in the first column of the table whose first column has this name.
fn words(doc: &str, column: &str, heading: &str) -> BTreeSet<String> {
    let (_, part) = doc.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let (_, table) = part.split_once(&format!("| `{column}` | meaning |\n|---|---|\n")).unwrap();
    let rows = table.lines().take_while(|l| l.starts_with('|'));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap().to_owned());
    cells.flat_map(|c| c.split(',').map(|w| w.trim().trim_matches('`').to_owned()).collect::<Vec<_>>()).collect()
}

#[test]
fn the_vocabularies_of_the_evidence_are_the_documented_ones() {
    fn all<V: Vocabulary>() -> BTreeSet<String> {
        V::ALL.iter().map(|w| w.as_str().to_owned()).collect()
    }
    let doc = formats();
    assert_eq!(words(&doc, "kind", "### Words of anomalies"), all::<AnomalyKind>());
    assert_eq!(words(&doc, "reason", "### Words of gaps"), all::<GapReason>());
    assert_eq!(words(&doc, "ended", "### Words of exchanges"), all::<ExchangeEnd>());
    assert_eq!(words(&doc, "end_reason", "### Words of ends"), all::<EndReason>());
    assert_eq!(words(&doc, "outcome_reason", "### Receipt `mcp_tool_call`"), all::<OutcomeReason>());
    assert_eq!(words(&doc, "anomalies", "### Receipt `mcp_tool_call`"), all::<CallAnomaly>());
    // What the guard refuses has a page of its own; what only a dry run says is in no receipt.
    let (of_guard, mut of_policy): (BTreeSet<_>, BTreeSet<_>) =
        all::<PolicyReason>().into_iter().partition(|word| word.starts_with("guard:"));
    of_policy.remove(PolicyReason::ArgumentsNotStored.as_str());
    let mut documented = words(&doc, "policy_reason", "### Receipt `mcp_tool_call`");
    documented.retain(|word| !word.starts_with("guard:"));
    assert_eq!(documented, of_policy);
    let guard = fs::read_to_string(root().join("docs/guard.md")).unwrap();
    for word in of_guard.iter().filter_map(|word| word.strip_prefix("guard:")) {
        assert!(guard.contains(&format!("`{word}`")) || doc.contains(&format!("`guard:{word}`")), "{word}");
    }
    let teardown = doc.lines().find(|l| l.starts_with("| `teardown`")).unwrap();
    for word in all::<Teardown>() {
        assert!(teardown.contains(&format!("`{word}`")), "{word}");
    }
}

fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|e| e.unwrap().path());
    let mut all: Vec<_> = docs.filter(|p| p.extension().is_some_and(|e| e == "md")).collect();
    let others = ["README.md", "assets/examples/mcp-demo-server/README.md", "tests/README.md"];
    all.extend(others.map(|name| root().join(name)));
    all.sort();
    all
}

#[test]
fn links_between_documents_lead_somewhere() {
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(link, _)| link)) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", path.display());
            if !anchor.is_empty() {
                let slug = |l: &str| -> String {
                    let text = l.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
                    text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
                };
                let target = fs::read_to_string(target).unwrap();
                let found = target.lines().filter(|l| l.starts_with('#')).any(|l| slug(l) == anchor);
                assert!(found, "{}: {link}", path.display());
            }
        }
    }
}

/// Flags in code spans and blocks of lines that call `assay` are flags that the command has.
#[test]
fn commands_in_the_documents_have_the_flags_that_are_shown() {
    let rig = rig!();
    let help = |command: &str, sub: Option<&str>| {
        let args: Vec<&str> = [command].into_iter().chain(sub).chain(["--help"]).collect();
        let out = rig.run(&args);
        out.status.success().then(|| String::from_utf8(out.stdout).unwrap())
    };
    let mut checked = 0;
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap().replace("\\\n", " ");
        for line in text.lines() {
            for call in line.split("assay ").skip(1) {
                let call = call.split(" -- ").next().unwrap().split(['`', '|', '#', ';']).next().unwrap();
                let mut words = call.split_whitespace();
                let Some(command) = words.next().filter(|c| c.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
                else {
                    continue;
                };
                let sub =
                    matches!(command, "gateway" | "ledger" | "policy" | "surface").then(|| words.next()).flatten();
                let flags: Vec<_> = words.filter(|w| w.starts_with("--") && w.len() > 2).collect();
                if flags.is_empty() || command == "keys" || call.contains("assay-ai") {
                    continue;
                }
                let Some(help) = help(command, sub) else { panic!("{}: assay {command}", path.display()) };
                for flag in flags {
                    let name = flag.split('=').next().unwrap().trim_end_matches([',', '.', ')', ':']);
                    assert!(help.contains(name), "{}: assay {command} has no {name}", path.display());
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 5, "{checked}");
}

#[test]
fn cargo_run_in_the_documents_starts_assay_although_there_are_other_programs() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let command = text.lines().find(|line| line.trim_start().starts_with("cargo run ")).unwrap();
    assert!(!command.contains("--bin"), "{command}");
    // Offline: cargo only reads the manifests.
    let mut cargo = std::process::Command::new(env!("CARGO"));
    let told = cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root());
    let told: Value = serde_json::from_slice(&told.output().unwrap().stdout).unwrap();
    let packages = told["packages"].as_array().unwrap();
    assert_eq!(packages.iter().find(|p| p["name"] == "assay").unwrap()["default_run"], "assay");
}

#[test]
fn documents_speak_of_what_is_there() {
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for word in ["TODO", "FIXME", "TBD", "../shared", "lorem"] {
            assert!(!text.contains(word), "{}: {word}", path.display());
        }
        assert!(text.starts_with("# "), "{}", path.display());
    }
}

/// Each word of the glossary is explained once and used elsewhere, and no document uses a word that it took the place of.
#[test]
fn documents_use_the_words_of_the_glossary() {
    let glossary = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let others: Vec<(PathBuf, String)> = documents()
        .into_iter()
        .filter(|path| !path.ends_with("glossary.md"))
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap().to_lowercase()))
        .collect();
    let mut words = BTreeSet::new();
    for row in glossary.lines().filter(|l| l.starts_with("| **")) {
        for word in row.split('|').nth(1).unwrap().split("**").skip(1).step_by(2) {
            assert!(words.insert(word.to_owned()), "the glossary explains {word} twice");
            assert!(others.iter().any(|(_, text)| text.contains(word)), "no document uses {word}");
        }
    }
    assert!(words.len() > 25, "{words:?}");
    for (path, text) in others {
        for old in ["judgement", "advisor", "decider"] {
            assert!(!text.contains(old), "{}: {old}", path.display());
        }
    }
}

/// A test that a document names is in the file that it links to.
#[test]
fn tests_that_the_documents_name_exist() {
    let security = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let mut rows = 0;
    for line in security.lines().filter(|l| l.contains("](../tests/")) {
        let file = line.split("](../").nth(1).unwrap().split(')').next().unwrap();
        let name = line.rsplit('`').nth(1).unwrap();
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert!(text.contains(&format!("fn {name}(")), "{file} has no test {name}");
        rows += 1;
    }
    assert_eq!(rows, 53, "rows of the table of attacks");
}

/// Every variable that a test or a benchmark reads, but for those that a test sets itself, is in the page about tests, and every
/// file that the page names is there.
#[test]
fn the_page_about_tests_names_every_variable_and_only_files_that_exist() {
    let page = fs::read_to_string(root().join("tests/README.md")).unwrap();
    let reads = regex::Regex::new(r#"(?:\bvar|var_os|number)\("((?:ASSAY|UPDATE|PROPTEST)_[A-Z_]+)"#).unwrap();
    let mut read = BTreeSet::new();
    for path in ["src", "tests"].iter().flat_map(|dir| sources(&root().join(dir))) {
        let text = fs::read_to_string(&path).unwrap();
        let names = reads.captures_iter(&text).map(|c| c[1].to_owned());
        let of_users = ["ASSAY_HOME", "ASSAY_AUDIT_DIR", "ASSAY_LOG"];
        read.extend(names.filter(|n| !of_users.contains(&n.as_str()) && !n.starts_with("ASSAY_TEST_")));
    }
    assert!(read.len() > 15, "{read:?}");
    let missing: Vec<_> = read.iter().filter(|name| !page.contains(&format!("`{name}"))).collect();
    assert!(missing.is_empty(), "not in tests/README.md: {missing:?}");
    let files = regex::Regex::new(r"`((?:src/|it/|attacks/|crash/|tui/|support/|docs/)[a-z_/]+\.(?:rs|md))`").unwrap();
    let mut named = 0;
    for file in files.captures_iter(&page).map(|c| c[1].to_owned()) {
        let below = ["", "tests/"].iter().any(|dir| root().join(dir).join(&file).is_file());
        assert!(below, "tests/README.md names {file}, which is not there");
        named += 1;
    }
    assert!(named > 10);
}

/// The Rust files below a directory.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries
        .flat_map(|path| match path.extension() {
            Some(extension) if extension == "rs" => vec![path],
            _ if path.is_dir() => sources(&path),
            _ => Vec::new(),
        })
        .collect()
}

/// The calls of the gateway's API, as docs/gateway.md lists them.
fn calls_of_the_api() -> String {
    use std::fmt::Write as _;
    let document = serde_json::to_value(assay::gateway::api::document()).unwrap();
    let common = ["400", "401", "403", "413", "415", "422", "429", "503"];
    let mut out = "| call | what | done | refused |\n|---|---|---|---|\n".to_owned();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in ["get", "post", "patch", "delete"] {
            let Some(operation) = item.get(method) else { continue };
            let statuses: Vec<&String> = operation["responses"].as_object().unwrap().keys().collect();
            let of = |done: bool| {
                let own = statuses.iter().filter(|s| s.starts_with('2') == done && !common.contains(&s.as_str()));
                own.map(|s| s.as_str()).collect::<Vec<_>>().join(", ")
            };
            let path = path.trim_start_matches("/api/admin");
            let summary = operation["summary"].as_str().unwrap().trim_end_matches('.');
            let method = method.to_uppercase();
            let _ = writeln!(out, "| `{method} {path}` | {summary} | {} | {} |", of(true), of(false));
        }
    }
    out
}

#[test]
fn the_reference_of_the_api_is_the_openapi_document() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gateway.md");
    let page = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("cargo test --test it docs -->\n", "<!-- end -->");
    let (before, rest) = page.split_once(begin).unwrap();
    let (there, after) = rest.split_once(end).unwrap();
    let wanted = calls_of_the_api();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, [before, begin, &wanted, end, after].concat()).unwrap();
        return;
    }
    assert!(wanted.lines().count() > 20);
    assert_eq!(there, wanted, "UPDATE_DOCS=1 writes it anew");
}
