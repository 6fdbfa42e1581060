//! Compares what the proxy recorded with what the client saw on its own pipe.
//!
//! Nothing here uses the crate: canonical JSON comes from `serde_jcs`, packs are read as files, verifiers are programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::install;
use crate::scenario::Report;

/// A `tools/call` as the client's pipe or connection had it.
struct Call<'a> {
    line: &'a str,
    message: Value,
    /// The line with the answer, and the answer.
    answer: Option<(&'a str, Value)>,
    cancelled: bool,
}

impl Call<'_> {
    fn name(&self) -> &Value {
        &self.message["params"]["name"]
    }

    fn outcome(&self) -> &'static str {
        match &self.answer {
            None => "timeout",
            Some((_, answer)) if answer.get("error").is_some() || answer["result"]["isError"] == true => "error",
            Some(_) => "forwarded",
        }
    }
}

/// A finished pack, as the files say.
struct Pack {
    path: PathBuf,
    receipts: Vec<Value>,
    events: Vec<Value>,
    session: Value,
}

/// Checks everything that a session left behind: packs, receipts, the chain, both verifiers. `verdict` is that of every call.
pub fn check(label: &str, audit: &Path, home: &Path, report: &Report, verdict: &str) {
    let packs: Vec<Pack> = install::directories(&audit.join("packs")).iter().map(|path| read_pack(path)).collect();
    assert!(!packs.is_empty(), "{label}: no pack\n{}", report.said());
    for pack in &packs {
        check_frame(label, pack);
        check_chain(label, pack);
    }
    let paths: Vec<PathBuf> = packs.iter().map(|pack| pack.path.clone()).collect();
    assert!(assay_ai_accepts(&paths, home), "{label}: assay-ai refuses a pack");
    let (with_calls, without): (Vec<&Pack>, Vec<&Pack>) = packs.iter().partition(|pack| !tool_calls(pack).is_empty());
    assert_eq!(with_calls.len(), 1, "{label}: packs with tool calls");
    let pack = with_calls[0];
    assert_eq!(verify(&pack.path, home), Some(0), "{label}: assay verify-pack {}", pack.path.display());
    assert_eq!(pack.session["session_complete"], true, "{label}: session.json: {}", pack.session);
    // This client spawns the server once more, asks `server/discover` and terminates it.
    assert!(without.is_empty() || label.contains("ts2:auto"), "{label}: {} packs", packs.len());
    for pack in without {
        let code = verify(&pack.path, home);
        assert!(matches!(code, Some(0 | 1)), "{label}: assay verify-pack {}: {code:?}", pack.path.display());
    }
    let fetched = report.sent.iter().filter(|line| line.contains("\"method\":\"tasks/result\"")).count();
    check_calls(label, pack, &calls(report), fetched, verdict);
}

/// Exit code of `assay verify-pack --json`; what it prints must be one JSON document.
pub fn verify(pack: &Path, home: &Path) -> Option<i32> {
    let output = Command::new(install::assay())
        .args(["verify-pack", "--json"])
        .arg(pack)
        .env("ASSAY_HOME", home.join(".assay"))
        .env("HOME", home)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    if output.status.code() != Some(3) {
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("--json: {error}: {text}"));
    }
    if !output.status.success() {
        eprintln!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.code()
}

/// Whether assay-ai's own verifier, which has never seen the signer, accepts all these packs.
pub fn assay_ai_accepts(packs: &[PathBuf], scratch: &Path) -> bool {
    let log = scratch.join("assay-ai.log");
    let mut command = install::python("assay_ai.py");
    command.arg("verify").args(packs).env("HOME", scratch);
    let accepted = install::finish(command, &log, Duration::from_secs(120)).success();
    if !accepted {
        eprintln!("{}", install::tail(&log));
    }
    accepted
}

fn read_pack(path: &Path) -> Pack {
    let lines = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let session = fs::read(path.join("session.json")).expect("session.json");
    Pack {
        path: path.to_path_buf(),
        receipts: lines("receipt_pack.jsonl"),
        events: lines("audit_log.jsonl"),
        session: serde_json::from_slice(&session).unwrap(),
    }
}

fn tool_calls(pack: &Pack) -> Vec<&Value> {
    pack.receipts.iter().filter(|receipt| receipt["type"] == "mcp_tool_call").collect()
}

fn check_frame(label: &str, pack: &Pack) {
    let first = pack.receipts.first().expect("a receipt");
    let last = pack.receipts.last().expect("a receipt");
    assert_eq!(first["type"], "mcp.session_start", "{label}: first receipt");
    assert_eq!(last["type"], "mcp.session_end", "{label}: last receipt");
    for (seq, receipt) in pack.receipts.iter().enumerate() {
        assert_eq!(receipt["seq"], seq, "{label}: seq");
        assert_eq!(receipt["trace_id"], first["trace_id"], "{label}: one trace_id");
    }
}

/// The hash chain, recomputed with another JCS than the crate's.
fn check_chain(label: &str, pack: &Pack) {
    let mut previous: Option<&Value> = None;
    for event in &pack.events {
        let mut bare = event.clone();
        let hash = bare.as_object_mut().unwrap().remove("hash").expect("hash");
        assert_eq!(hash, sha256(&serde_jcs::to_vec(&bare).unwrap()).as_str(), "{label}: hash of {event}");
        if let Some(previous) = previous {
            assert_eq!(&event["prev_hash"], previous, "{label}: prev_hash of {event}");
        }
        previous = Some(&event["hash"]);
    }
    let kinds: Vec<&Value> = pack.events.iter().map(|event| &event["event"]).collect();
    assert_eq!(kinds.first(), Some(&&Value::from("chain_start")), "{label}");
    assert_eq!(kinds.last(), Some(&&Value::from("chain_end")), "{label}");
}

fn check_calls(label: &str, pack: &Pack, calls: &[Call], fetched: usize, verdict: &str) {
    assert!(!calls.is_empty(), "{label}: the script calls no tool");
    let task_leg =
        |receipt: &&Value| receipt["anomalies"].as_array().is_some_and(|all| all.contains(&"task_leg".into()));
    let (legs, receipts): (Vec<&Value>, Vec<&Value>) = tool_calls(pack).into_iter().partition(task_leg);
    assert_eq!(receipts.len(), calls.len(), "{label}: receipts of tool calls");
    check_task_legs(label, &legs, &receipts, fetched);
    let by_id: BTreeMap<String, &Value> =
        receipts.iter().map(|receipt| (id(&receipt["mcp_request_id"]), *receipt)).collect();
    assert_eq!(by_id.len(), calls.len(), "{label}: receipts by request id");
    for call in calls {
        let receipt =
            by_id.get(&id(&call.message["id"])).unwrap_or_else(|| panic!("{label}: no receipt: {}", call.message));
        check_receipt(label, call, receipt, verdict);
        has_event(label, pack, "request_received", call.line);
        has_event(label, pack, "request_forwarded", call.line);
        if let Some((line, _)) = &call.answer {
            has_event(label, pack, "response_received", line);
            has_event(label, pack, "response_sent", line);
        }
        check_parent(label, call, receipt, calls, &by_id);
    }
}

/// Every `tasks/result` has a receipt, whose parent is that of the call that was answered with a task.
fn check_task_legs(label: &str, legs: &[&Value], receipts: &[&Value], fetched: usize) {
    assert_eq!(legs.len(), fetched, "{label}: receipts of tasks/result");
    for leg in legs {
        let parent = receipts.iter().find(|receipt| receipt["receipt_id"] == leg["parent_receipt_id"]);
        let parent = parent.unwrap_or_else(|| panic!("{label}: no parent: {leg}"));
        assert_eq!(parent["result_type"], "task", "{label}: parent of {leg}");
        assert_eq!(parent["tool_name"], leg["tool_name"], "{label}: tool of {leg}");
    }
}

fn check_receipt(label: &str, call: &Call, receipt: &Value, verdict: &str) {
    let at = format!("{label}: {receipt}");
    let params = &call.message["params"];
    assert_eq!(&receipt["tool_name"], call.name(), "{at}: tool_name");
    let empty = Value::Object(serde_json::Map::new());
    let arguments = params.get("arguments").unwrap_or(&empty);
    assert_eq!(receipt["arguments_hash"], jcs_hash(arguments).as_str(), "{at}: arguments_hash");
    assert_eq!(receipt["policy_verdict"], verdict, "{at}: policy_verdict");
    for name in ["traceparent", "claudecode/toolUseId"] {
        if let Some(sent) = params["_meta"].get(name) {
            assert_eq!(&receipt["meta"][name], sent, "{at}: meta");
        }
    }
    // After a cancellation the server's answer may or may not have crossed before the client went.
    if call.cancelled && call.answer.is_none() {
        if receipt["outcome"] == "timeout" {
            assert_eq!(receipt["outcome_reason"], "cancelled_by_client", "{at}: outcome_reason");
        }
        return;
    }
    assert_eq!(receipt["outcome"], call.outcome(), "{at}: outcome");
    let (_, answer) = call.answer.as_ref().expect("every call that was not cancelled was answered");
    assert_eq!(receipt["outcome_reason"], Value::Null, "{at}: outcome_reason");
    assert_eq!(receipt["result_is_error"], call.outcome() == "error", "{at}: result_is_error");
    assert!(receipt["duration_ms"].as_f64().is_some_and(|ms| ms >= 0.0), "{at}: duration_ms");
    let body = answer.get("result").or(answer.get("error")).unwrap();
    assert_eq!(receipt["result_hash"], jcs_hash(body).as_str(), "{at}: result_hash");
    match answer["result"]["resultType"].as_str() {
        Some(kind) => assert_eq!(receipt["result_type"], kind, "{at}: result_type"),
        None if answer["result"]["task"].is_object() => assert_eq!(receipt["result_type"], "task", "{at}: result_type"),
        None => assert!(matches!(receipt["result_type"].as_str(), None | Some("complete")), "{at}: result_type"),
    }
}

/// The second leg of a call that needed input names the first.
fn check_parent(label: &str, call: &Call, receipt: &Value, calls: &[Call], by_id: &BTreeMap<String, &Value>) {
    let Some(state) = call.message["params"].get("requestState") else { return };
    let first = calls
        .iter()
        .find(|first| first.answer.as_ref().is_some_and(|(_, answer)| &answer["result"]["requestState"] == state))
        .expect("the leg that asked");
    let parent = by_id[&id(&first.message["id"])];
    assert_eq!(receipt["parent_receipt_id"], parent["receipt_id"], "{label}: parent_receipt_id of {receipt}");
}

/// There is an event of this kind for these very bytes.
fn has_event(label: &str, pack: &Pack, kind: &str, line: &str) {
    let hash = sha256(line.as_bytes());
    let found = pack.events.iter().any(|event| {
        event["event"] == kind
            && event["wire_sha256"].as_str().is_some_and(|wire| wire.ends_with(&hash))
            && event["wire_bytes"] == line.len()
    });
    assert!(found, "{label}: no event {kind} for {}", line.chars().take(300).collect::<String>());
}

fn calls(report: &Report) -> Vec<Call<'_>> {
    let parse = |line: &str| serde_json::from_str::<Value>(line).expect("a line that the SDK took for JSON");
    let received: Vec<(&str, Value)> = report.received.iter().map(|line| (line.as_str(), parse(line))).collect();
    let sent: Vec<(&str, Value)> = report.sent.iter().map(|line| (line.as_str(), parse(line))).collect();
    let given_up = report.given_up();
    sent.iter()
        .filter(|(_, message)| message["method"] == "tools/call")
        .map(|(line, message)| Call {
            line,
            message: message.clone(),
            // A guard answers for a server that has ended.
            answer: received
                .iter()
                .find(|(_, answer)| answer.get("method").is_none() && answer["id"] == message["id"])
                .filter(|(_, answer)| answer["error"]["data"]["action"] != "server_exited")
                .cloned(),
            cancelled: given_up.contains(&message["id"]),
        })
        .collect()
}

/// An id as text, whether it was kept as JSON or as a string.
fn id(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn jcs_hash(value: &Value) -> String {
    format!("sha256:{}", sha256(&serde_jcs::to_vec(value).unwrap()))
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
