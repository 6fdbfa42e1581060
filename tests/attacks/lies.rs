//! Lies of whoever holds the key: one member of a genuine pack is changed to another plausible value, and everything that follows
//! from it is made to agree, chain, hashes, counts, report and signature. What a pack says twice gives the lie away; what it
//! says once is in docs/security.md.

use assay::pack::verify::Exit;
use assay::pack::verify::{Completeness, Integrity};
use assay_support::{
    forge::{CHECKPOINTS, EVENTS, Pack, RECEIPTS, REPORT, SESSION, check_pack, key_k, unpinned},
    rig::{piped, rig},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    sync::LazyLock,
};

/// Members that say something once: nothing else in a pack can contradict them. The file or the kind of event or receipt, and the
/// member; `*` stands for any. Each is in docs/security.md.
const SAID_ONCE: &[(&str, &str)] = &[
    ("*", "wire_bytes"),
    ("*", "wire_sha256"),
    ("*", "mono_us"),
    ("*", "at"),
    ("anomaly", "detail.note"),
    ("anomaly", "detail.offset"),
    ("anomaly", "direction"),
    ("anomaly", "method"),
    ("anomaly", "rpc_id"),
    ("malformed", "detail.offset"),
    ("malformed", "detail.reason"),
    ("malformed_lines", "detail.first_us"),
    ("malformed_lines", "detail.lines"),
    ("malformed_lines", "detail.offset"),
    ("malformed_lines", "detail.reason"),
    ("notification", "detail.offset"),
    ("notification", "detail.reason"),
    ("notification", "rpc_id"),
    ("request_received", "detail.anomalies"),
    ("request_received", "detail.era"),
    ("response_received", "detail.anomalies"),
    ("response_received", "detail.error_code"),
    ("response_received", "detail.first_byte_us"),
    ("response_received", "detail.is_error"),
    ("response_received", "detail.offset"),
    ("response_received", "detail.result_hash"),
    ("response_received", "detail.result_type"),
    ("mcp.session_start", "client_info"),
    ("mcp.session_start", "client_info.name"),
    ("mcp.session_start", "client_info.version"),
    ("mcp.session_start", "protocol_version"),
    ("mcp.session_start", "server_info"),
    ("mcp.session_start", "server_info.name"),
    ("mcp.session_start", "server_info.version"),
    ("mcp.session_start", "timestamp"),
    ("session.json", "client_info.name"),
    ("session.json", "client_info.version"),
    ("session.json", "exit_code"),
    ("session.json", "live_events_missed"),
    ("session.json", "recovery_notes"),
    ("session.json", "stderr_bytes"),
    ("session.json", "teardown"),
    ("verify_report.json", "*"),
];

/// The same in a session that was recovered: another process, perhaps of another version, finished what the first one began, at
/// a time of its own and with what was left.
const SAID_ONCE_RECOVERED: &[(&str, &str)] = &[
    ("chain_start", "detail.recorder_version"),
    ("mcp.session_start", "proxy_version"),
    ("mcp.session_end", "proxy_version"),
    ("mcp.session_end", "timestamp"),
    ("mcp_tool_call", "anomalies"),
    ("mcp_tool_call", "proxy_version"),
    ("mcp_tool_call", "timestamp"),
    ("policy_decision", "detail.unseen"),
    ("session.json", "clock_steps"),
    ("session.json", "ended_at"),
    ("session.json", "ended_mono_us"),
    ("session.json", "protocol_version"),
    ("session.json", "server_info.name"),
    ("session.json", "server_info.version"),
];

struct Genuine {
    name: &'static str,
    pack: Pack,
}

const POLICY: &str = "version: \"1\"\ndefault: allow\ndenylist: [fail]\n";

/// What the client says, and whether it is answered.
const SAID: &[(&str, bool)] = &[
    (
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"liar","version":"1"}}}"#,
        true,
    ),
    (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#, true),
    (
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a"},"_meta":{"progressToken":"p"}}}"#,
        true,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"three","method":"tools/call","params":{"name":"search","arguments":{"query":"hash"}}}"#,
        true,
    ),
    (r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"fail","arguments":{"why":"x"}}}"#, true),
    (r#"{"jsonrpc":"2.0","id":5,"method":"resources/list","params":{}}"#, true),
    ("no JSON", false),
    ("nor is this", false),
    (r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"slow","arguments":{"millis":60000}}}"#, false),
    (r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}"#, false),
    (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{"millis":60000}}}"#, false),
    (r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"echo","arguments":{"text":"b"}}}"#, true),
];

/// Records a session with the built-in server, and gives its packs, the first one first.
fn record(name: &'static str, flags: &[&str], kill: bool) -> Vec<Genuine> {
    let rig = rig!();
    rig.file("policy.yaml", POLICY);
    let args = [&["mcp-proxy", "--audit-dir", "audit"], flags, &["--", rig.assay, "demo-server"]].concat();
    let (mut child, mut stdin, stdout) = piped(rig.program(&args).env_remove("GITHUB_ACTIONS")).unwrap();
    let mut stdout = BufReader::new(stdout).lines();
    // Each answer is awaited, whatever else comes: then a rolling session has something to roll over.
    for (line, answered) in SAID {
        writeln!(stdin, "{line}").unwrap();
        let id =
            format!("\"id\":{}", serde_json::from_str::<Value>(line).map(|v| v["id"].to_string()).unwrap_or_default());
        while *answered && !stdout.next().unwrap().unwrap().contains(&id) {}
    }
    if kill {
        child.kill().unwrap();
        child.wait().unwrap();
        let mut recover = rig.program(&["recover", "--audit-dir", "audit"]);
        assert!(recover.env_remove("GITHUB_ACTIONS").output().unwrap().status.code().is_some());
    } else {
        drop(stdin);
        child.wait().unwrap();
    }
    let packs = fs::read_dir(rig.audit.join("packs")).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut packs: Vec<_> = packs.map(|e| e.unwrap().path()).filter(|p| is_pack(p)).map(|p| Pack::read(&p)).collect();
    let start = |p: &Pack| p.lines(EVENTS)[0].clone();
    packs.sort_by_key(start);
    packs.into_iter().map(|pack| Genuine { name, pack }).collect()
}

fn is_pack(path: &Path) -> bool {
    path.join(SESSION).exists()
}

fn genuine() -> &'static [Genuine] {
    static ALL: LazyLock<Vec<Genuine>> = LazyLock::new(|| {
        let guard = ["--policy", "policy.yaml", "--profile", "guard"];
        let mut all = record("audit", &[], false);
        all.extend(record("stored", &["--store-args", "--store-results"], false));
        all.extend(record("judged", &["--policy", "policy.yaml"], false));
        all.extend(record("guard", &guard, false));
        all.extend(record("rolled", &["--pack-interval", "3r"], false));
        all.extend(record("recovered", &[], true));
        all.extend(record("recovered guard", &guard, true));
        all
    });
    &ALL
}

#[test]
fn honest_packs_of_every_kind_are_believed() {
    let kinds: BTreeSet<&str> = genuine().iter().map(|g| g.name).collect();
    assert_eq!(kinds.len(), 7);
    assert!(genuine().iter().filter(|g| g.name == "rolled").count() > 1);
    for g in genuine() {
        let report = check_pack(&g.pack, &unpinned());
        assert_eq!(report.integrity, Integrity::Pass, "{}: {:#?}", g.name, report.errors);
        // And so are they with another key and everything made anew: what is found below is found because of the lie.
        let mut again = g.pack.clone();
        restamp(&mut again, None);
        let report = check_pack(&again, &unpinned());
        assert_eq!(report.integrity, Integrity::Pass, "{}, signed again: {:#?}", g.name, report.errors);
        assert_eq!(report.completeness == Completeness::Complete, !g.name.starts_with("recovered"), "{}", g.name);
    }
}

/// Makes everything follow from the lie, as whoever holds the key does, but for the member that it is about.
fn restamp(pack: &mut Pack, lie: Option<&Lie>) {
    // Nobody has the session's key any more: who lies must leave its checkpoints out.
    pack.0.remove(CHECKPOINTS);
    let counts = lie.is_none_or(|l| !l.path.starts_with("counts") && !l.path.starts_with("detail.counts"));
    if counts {
        recount(pack);
    }
    pack.make_consistent();
    pack.sign(&key_k());
}

fn recount(pack: &mut Pack) {
    let receipts: Vec<Value> = pack.lines(RECEIPTS).iter().map(|l| serde_json::from_str(l).unwrap()).collect();
    let events: Vec<Value> = pack.lines(EVENTS).iter().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of =
        |test: &dyn Fn(&Value) -> bool| receipts.iter().filter(|r| r["type"] == "mcp_tool_call" && test(r)).count();
    let kind = |kind: &str| events.iter().filter(|e| e["event"] == kind).count();
    let sum = |member: &str| -> u64 {
        events.iter().filter(|e| e["event"] == "recorder_gap").filter_map(|e| e["detail"][member].as_u64()).sum()
    };
    let several = |member: &str| -> u64 {
        events.iter().filter(|e| e["event"] == "malformed_lines").filter_map(|e| e["detail"][member].as_u64()).sum()
    };
    let counts = json!({
        "calls": of(&|_| true), "denied": of(&|r| r["outcome"] == "denied"), "errors": of(&|r| r["outcome"] == "error"),
        "timeouts": of(&|r| r["outcome"] == "timeout"), "policy_denied": of(&|r| r["policy_verdict"] == "denied"),
        "malformed": kind("malformed") as u64 + several("lines"), "requests": kind("request_received"),
        "missed": sum("messages"), "missed_bytes": sum("bytes"),
    });
    let end = events.iter().position(|e| e["event"] == "chain_end");
    if let Some(end) = end {
        pack.edit(EVENTS, end, |e| e["detail"]["counts"] = counts.clone());
        let last = receipts.len() - 1;
        pack.edit(RECEIPTS, last, |r| {
            if r["type"] == "mcp.session_end" {
                r["counts"] = counts.clone();
            }
        });
    }
    pack.edit(SESSION, 0, |s| s["counts"] = counts);
}

/// One lie: which line of which file, which member, what it says instead.
#[derive(Debug)]
struct Lie {
    file: &'static str,
    line: usize,
    kind: String,
    path: String,
    value: Value,
}

/// Other values that a member could have.
fn instead(path: &str, value: &Value) -> Vec<Value> {
    let name = path.rsplit('.').next().unwrap_or(path);
    let words: &[&str] = match name {
        "outcome" => &["forwarded", "denied", "error", "timeout"],
        "outcome_reason" => &["client_closed", "server_exited", "cancelled_by_client", "proxy_killed", "notification"],
        "policy_verdict" => &["allowed", "denied", "no_policy"],
        "verdict" => &["allowed", "denied"],
        "profile" => &["audit", "guard"],
        "direction" => &["client_to_server", "server_to_client"],
        "end_reason" => &["client_closed", "server_exited", "server_failed", "crashed", "rolled"],
        "reason" => &["client_closed", "crashed", "rolled", "denylist", "default"],
        "result_type" => &["complete", "input_required", "task"],
        "kind" => &["no_response", "not_delivered", "late_response", "clock_step"],
        "method" => &["tools/call", "tools/list", "resources/read"],
        "transport" | "server_transport" => &["http"],
        _ => &[],
    };
    if !words.is_empty() {
        let mut all: Vec<Value> = words.iter().map(|w| json!(w)).collect();
        all.push(Value::Null);
        return all;
    }
    match value {
        Value::Bool(b) => vec![json!(!b), Value::Null],
        Value::Number(n) if n.is_u64() || n.is_i64() => vec![json!(n.as_i64().unwrap_or(0) + 1), json!(0)],
        Value::Number(n) => vec![json!(n.as_f64().unwrap_or(0.0).round() + 7.0)],
        Value::String(s) if s.len() == 24 && s.ends_with('Z') && s.as_bytes()[10] == b'T' => {
            vec![json!(s.replacen("20", "21", 1)), json!(format!("{}7Z", &s[..22])), Value::Null]
        }
        Value::String(s) => {
            let mut other = s.clone();
            let last = other.pop().unwrap_or('a');
            other.push(if last == '1' { '2' } else { '1' });
            vec![json!(other), Value::Null]
        }
        Value::Array(a) if name == "anomalies" || name == "unseen" => {
            let mut more: Vec<String> = a.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect();
            let fewer = more.get(1..).unwrap_or_default().to_vec();
            more.extend(["byte_order_mark".to_owned(), "response_after_cancel".to_owned()]);
            more.sort();
            more.dedup();
            vec![json!(more), json!(fewer)]
        }
        Value::Array(a) if a.is_empty() && name.starts_with("carried") => vec![json!(["inv_00000000000000aa"])],
        Value::Array(a) if a.is_empty() && name == "recovery_notes" => vec![json!(["nothing was lost"])],
        Value::Array(a) if a.is_empty() && name == "clock_steps" => {
            vec![json!([{"at": "2026-03-15T11:30:00.000Z", "delta_ms": 3_600_000}])]
        }
        Value::Array(a) if !a.is_empty() => vec![json!([]), json!(a[1..].to_vec())],
        Value::Null => match name {
            _ if name.ends_with("_at") => vec![json!("2026-03-15T11:30:00.000Z")],
            "client_info" | "server_info" => vec![json!({"name": "other", "version": null})],
            "policy_hash" | "arguments_hash" | "result_hash" => vec![json!(format!("sha256:{}", "a".repeat(64)))],
            "surface_hash" | "receipt_sha256" | "wire_sha256" => vec![json!("a".repeat(64))],
            "receipt_id" | "parent_receipt_id" => vec![json!("mtc_00000000000000aa")],
            "invocation_id" => vec![json!("inv_00000000000000aa")],
            "continues" => vec![json!("mcp_00000000000000aa")],
            "command" => vec![json!(["rm"])],
            "arguments_content" | "result_content" | "meta" => vec![json!({})],
            "is_error" | "result_is_error" => vec![json!(true), json!(false)],
            "policy_reason" | "policy_ref" | "tool_name" | "note" | "rule" | "teardown" | "protocol_version"
            | "error" => {
                vec![json!("x")]
            }
            _ => vec![json!(1), json!("x")],
        },
        Value::Object(_) => vec![Value::Null],
        _ => Vec::new(),
    }
}

/// What follows from everything else, and is made anew whatever a liar writes there.
fn is_stamped(kind: &str, path: &str) -> bool {
    matches!(path, "hash" | "event_seq" | "seq" | "chain_head" | "chain_hash" | "chain_first" | "chain_last")
        || matches!(path, "event_count" | "receipt_count" | "detail.events" | "detail.receipts")
        || path == "prev_hash" && kind != "chain_start"
        || path.ends_with("receipt_sha256")
}

fn leaves(prefix: &str, value: &Value, out: &mut Vec<(String, Value)>) {
    if let Value::Object(members) = value {
        // The members of what was stored are what the hash of the whole says.
        if !prefix.ends_with("_content") && !prefix.ends_with("meta") {
            for (name, v) in members {
                let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                leaves(&path, v, out);
            }
        }
        if ["client_info", "server_info", "meta"].contains(&prefix) {
            out.push((prefix.to_owned(), value.clone()));
        }
        return;
    }
    out.push((prefix.to_owned(), value.clone()));
}

fn at<'v>(value: &'v mut Value, path: &str) -> &'v mut Value {
    path.split('.').fold(value, |v, name| &mut v[name])
}

/// Every lie about the first few lines of each kind.
fn lies(pack: &Pack, each: usize) -> Vec<Lie> {
    let mut all = Vec::new();
    for file in [EVENTS, RECEIPTS, SESSION, REPORT] {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let lines = if file == REPORT { vec![pack.text(REPORT)] } else { pack.lines(file) };
        for (line, text) in lines.iter().enumerate() {
            let value: Value = serde_json::from_str(text).unwrap();
            let word = |name: &str| value[name].as_str().map(str::to_owned);
            // Calls that ended otherwise are of another kind.
            let kind = match file {
                EVENTS => word("event").unwrap(),
                RECEIPTS => word("type").unwrap(),
                _ => file.to_owned(),
            };
            let of = format!("{kind} {:?} {:?}", word("outcome"), word("method"));
            let count = seen.entry(of).or_default();
            *count += 1;
            if *count > each {
                continue;
            }
            let mut members = Vec::new();
            leaves("", &value, &mut members);
            for (path, old) in members {
                if is_stamped(&kind, &path) {
                    continue;
                }
                for new in instead(&path, &old) {
                    let is_there = value.pointer(&format!("/{}", path.replace('.', "/")));
                    if is_there != Some(&new) {
                        all.push(Lie { file, line, kind: kind.clone(), path: path.clone(), value: new });
                    }
                }
            }
        }
    }
    all
}

fn told(pack: &Pack, lie: &Lie) -> Pack {
    let mut pack = pack.clone();
    if lie.file == REPORT {
        let mut value: Value = serde_json::from_slice(&pack.0[REPORT]).unwrap();
        *at(&mut value, &lie.path) = lie.value.clone();
        pack.sign(&key_k());
        pack.sign_report(&key_k(), serde_json::to_string_pretty(&value).unwrap());
        return pack;
    }
    pack.edit(lie.file, lie.line, |v| *at(v, &lie.path) = lie.value.clone());
    restamp(&mut pack, Some(lie));
    pack
}

/// Members of the builder's report that are words about the others.
fn is_words(path: &str) -> bool {
    const WORDS: [&str; 8] = [
        "evaluation_profile",
        "overall_reason",
        "report_id",
        "required_channels",
        "verified_at",
        "verifier.name",
        "pack_manifest_sha256",
        "verifier_config_sha256",
    ];
    path.starts_with("summary.") || path == "checks" || path.ends_with("policy_id") || WORDS.contains(&path)
}

fn is_said_once(pack: &Genuine, lie: &Lie) -> bool {
    let member = |path: &str| path == lie.path || path == "*" && is_words(&lie.path);
    let listed =
        |list: &[(&str, &str)]| list.iter().any(|(kind, path)| (*kind == "*" || *kind == lie.kind) && member(path));
    // Whether the id of an answer that belongs to nothing was in use before.
    let late = || {
        let old: Value = serde_json::from_str(&pack.pack.lines(lie.file)[lie.line]).unwrap();
        lie.path == "detail.kind" && lie.value == "late_response" && old["detail"]["kind"] == "unmatched_response"
    };
    listed(SAID_ONCE)
        || pack.name.starts_with("recovered") && listed(SAID_ONCE_RECOVERED)
        || lie.kind == "anomaly" && late()
}

#[test]
fn what_a_pack_says_twice_gives_a_lie_away() {
    // All of it takes minutes: ASSAY_LIES=9 tells every lie about the first nine lines of each kind in every pack, else each
    // lie is told once.
    let each: Option<usize> = std::env::var("ASSAY_LIES").ok().and_then(|n| n.parse().ok());
    let mut told_already = BTreeSet::new();
    let mut believed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut count, mut used) = (0, BTreeSet::new());
    for g in genuine() {
        for lie in lies(&g.pack, each.unwrap_or(1)) {
            if each.is_none() && !told_already.insert((lie.kind.clone(), lie.path.clone(), lie.value.is_null())) {
                continue;
            }
            let report = check_pack(&told(&g.pack, &lie), &unpinned());
            count += 1;
            if report.integrity == Integrity::Tampered {
                assert_eq!(report.exit(), Exit::Failed);
            } else if matches!(&*lie.path, "v" | "schema_version") {
                // A later version is not a lie that can be seen through, and none that is believed.
                assert_eq!((report.integrity, report.exit()), (Integrity::Unsupported, Exit::BadInput), "{}", lie.kind);
            } else if is_said_once(g, &lie) {
                used.insert((lie.kind.clone(), lie.path.clone()));
            } else {
                let what = format!("{} = {}", g.name, lie.value);
                believed.entry(format!("(\"{}\", \"{}\"),", lie.kind, lie.path)).or_default().insert(what);
            }
        }
    }
    let list: Vec<String> = believed.iter().map(|(what, how)| format!("    {what} // {how:?}")).collect();
    assert!(list.is_empty(), "of {count} lies these were believed:\n{}", list.join("\n"));
    assert!(count > 300, "{count}");
    assert!(!used.is_empty());
}
