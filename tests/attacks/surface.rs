//! Attacks on what a pack says of a server's surface: decisions, what was announced, how each call stood. The attacker puts new
//! hashes into everything and signs with a key of their own, so that only the stage that recomputes the surface can see it.

use assay::pack::verify::{Integrity, Stage, StageStatus};
use assay_support::forge::{EVENTS, Pack, RECEIPTS, SESSION, check_pack, key_e, unpinned};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::LazyLock,
};

const DECISIONS: &str = "surface_approvals.jsonl";
const APPROVED: &str = "surface_approved.json";
const SURFACE: &str = "surface.json";

const SERVER: &str = r#"
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case "$line" in
    *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s"}}}\n' "$id" ;;
    *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}\n' "$id" "$(cat "$0.tools")" ;;
    *'"tools/call"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}\n' "$id" ;;
    *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"none"}}\n' "$id" ;;
  esac
done
"#;

fn assay(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.args(args).current_dir(home).env("HOME", home).env("ASSAY_HOME", home.join("home"));
    command
}

fn run(home: &Path, args: &[&str]) {
    let out = assay(home, args).output().unwrap();
    assert!(out.status.success(), "{args:?} {}", String::from_utf8_lossy(&out.stderr));
}

/// A session in which one call is approved and one runs under a definition that changed, after two decisions.
fn recorded() -> Pack {
    let tmp = tempfile::tempdir().unwrap();
    let home = tmp.path();
    fs::write(home.join("server"), SERVER).unwrap();
    let offer = |tools: &str| fs::write(home.join("server.tools"), tools).unwrap();
    offer(r#"{"name":"a","description":"reads"},{"name":"b","description":"writes"}"#);
    let of = ["--audit-dir", "audit", "--server-id", "s"];
    run(home, &[&["surface", "snapshot"], &of[..], &["--", "sh", "server"]].concat());
    run(home, &["surface", "approve", "s", "--audit-dir", "audit"]);
    run(home, &["surface", "revoke", "s", "--item", "tools/b", "--audit-dir", "audit"]);
    run(home, &["surface", "approve", "s", "--item", "tools/b", "--audit-dir", "audit"]);
    offer(r#"{"name":"a","description":"reads"},{"name":"b","description":"writes elsewhere"}"#);
    let mut command = assay(home, &[&["mcp-proxy"], &of[..], &["--", "sh", "server"]].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(stdout).lines();
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let call = |tool: &str| json!({"name": tool, "arguments": {}});
    let asked =
        [("initialize", hello), ("tools/list", json!({})), ("tools/call", call("a")), ("tools/call", call("b"))];
    for (id, (method, params)) in asked.into_iter().enumerate() {
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
        lines.next().unwrap().unwrap();
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(1), "it drifted");
    let packs = fs::read_dir(home.join("audit/packs")).unwrap();
    Pack::read(&packs.map(|e| e.unwrap().path()).next().unwrap())
}

fn whole() -> Pack {
    static P: LazyLock<Pack> = LazyLock::new(recorded);
    P.clone()
}

/// Lines of the events of a kind.
fn at(p: &Pack, kind: &str) -> Vec<usize> {
    let is = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"] == kind;
    p.lines(EVENTS).iter().enumerate().filter(|(_, line)| is(line)).map(|(n, _)| n).collect()
}

/// Changes the detail of the nth event of a kind.
fn event(p: &mut Pack, kind: &str, nth: usize, f: impl FnOnce(&mut Value)) {
    let line = at(p, kind)[nth];
    p.edit(EVENTS, line, |e| f(&mut e["detail"]));
    p.make_consistent();
}

/// Changes the receipt of the nth call.
fn receipt(p: &mut Pack, nth: usize, f: impl FnOnce(&mut Value)) {
    p.edit(RECEIPTS, 1 + nth, f);
    p.make_consistent();
}

fn hash(c: char) -> Value {
    format!("sha256:{}", c.to_string().repeat(64)).into()
}

/// The place of the list of tools among what was announced: capabilities and instructions come first.
const TOOLS: usize = 2;

type Row = (&'static str, fn(&mut Pack));

const ROWS: &[Row] = &[
    ("a changed definition is called approved", |p| receipt(p, 1, |r| r["surface_state"] = "approved".into())),
    ("a call names a decision that it does not rest on", |p| {
        receipt(p, 1, |r| r["surface_approval_id"] = "sap_0000000000000000".into());
    }),
    ("a call names another definition", |p| receipt(p, 0, |r| r["surface_item_hash"] = hash('a'))),
    ("a call names another root", |p| receipt(p, 0, |r| r["surface_root"] = hash('a'))),
    ("old knowledge is made new", |p| receipt(p, 0, |r| r["surface_age_ms"] = 4_000_000.into())),
    ("a receipt says nothing of the surface any more", |p| {
        receipt(p, 1, |r| {
            r.as_object_mut().unwrap().retain(|name, _| !name.starts_with("surface_"));
            r["schema_version"] = "3.0".into();
        });
    }),
    ("what was announced is another definition", |p| {
        event(p, "surface_observed", TOOLS, |d| d["items"][1]["hash"] = hash('a'));
    }),
    ("what was announced is called approved", |p| {
        event(p, "surface_observed", TOOLS, |d| d["items"][1]["state"] = "approved".into());
    }),
    ("what was announced rests on another decision", |p| {
        event(p, "surface_observed", TOOLS, |d| d["items"][0]["approval_id"] = "sap_0000000000000000".into());
    }),
    ("what was announced is left out", |p| {
        event(p, "surface_observed", TOOLS, |d| d["items"] = json!([]));
    }),
    ("the list was not announced at all", |p| {
        let line = at(p, "surface_observed")[TOOLS];
        let mut lines = p.lines(EVENTS);
        lines.remove(line);
        p.set_lines(EVENTS, &lines);
        p.make_consistent();
    }),
    ("the root that was seen is another", |p| {
        event(p, "surface_observed", TOOLS, |d| d["root"] = hash('a'));
    }),
    ("no decision is in force", |p| {
        event(p, "surface_decision", 0, |d| {
            d["approvals"] = 0.into();
            d["last"] = Value::Null;
            d["sha256"] = assay::model::sha256_hex(b"").into();
        });
    }),
    ("fewer decisions are in force", |p| event(p, "surface_decision", 0, |d| d["approvals"] = 1.into())),
    ("other decisions are in force", |p| event(p, "surface_decision", 0, |d| d["sha256"] = "a".repeat(64).into())),
    ("another decision is the last", |p| {
        event(p, "surface_decision", 0, |d| d["last"] = "sap_0000000000000000".into());
    }),
    ("decisions cannot be known", |p| event(p, "surface_decision", 0, |d| d["error"] = "gone".into())),
    ("tools are not compared", |p| event(p, "surface_decision", 0, |d| d["pinned"] = json!([]))),
    ("the chain does not say what is in force", |p| {
        let line = at(p, "surface_decision")[0];
        let mut lines = p.lines(EVENTS);
        lines.remove(line);
        p.set_lines(EVENTS, &lines);
        p.make_consistent();
    }),
    ("changes are left out", |p| event(p, "surface_drift", 0, |d| d["changes"] = json!([]))),
    ("a change matters less than its kind", |p| {
        event(p, "surface_drift", 0, |d| {
            d["changes"][0]["severity"] = "info".into();
            d["severity"] = "info".into();
        });
    }),
    ("what differs has another root", |p| event(p, "surface_drift", 0, |d| d["root"] = hash('a'))),
    ("there were more changes", |p| event(p, "surface_drift", 0, |d| d["count"] = 7.into())),
    ("a decision was changed", |p| p.replace(DECISIONS, "\"local_user\"", "\"key\"")),
    ("a decision was changed and hashed anew", |p| {
        p.edit(DECISIONS, 0, |d| {
            d["reason"] = "reviewed".into();
            let mut bare = d.clone();
            bare.as_object_mut().unwrap().retain(|name, _| name != "hash" && name != "signature");
            d["hash"] = assay::model::sha256_hex(assay_support::forge::canonical(&bare).as_bytes()).into();
        });
    }),
    ("the first decision is gone", |p| {
        let lines = p.lines(DECISIONS);
        p.set_lines(DECISIONS, &lines[1..]);
    }),
    ("the decision in the middle is gone", |p| {
        let mut lines = p.lines(DECISIONS);
        lines.remove(1);
        p.set_lines(DECISIONS, &lines);
    }),
    ("the last decision is gone", |p| {
        let mut lines = p.lines(DECISIONS);
        lines.pop();
        p.set_lines(DECISIONS, &lines);
    }),
    ("decisions are swapped", |p| {
        let mut lines = p.lines(DECISIONS);
        lines.swap(0, 1);
        p.set_lines(DECISIONS, &lines);
    }),
    ("a decision comes twice", |p| {
        let lines = p.lines(DECISIONS);
        p.set_lines(DECISIONS, &[lines.clone(), vec![lines[2].clone()]].concat());
    }),
    ("the last decision was cut", |p| {
        let text = p.text(DECISIONS);
        p.set(DECISIONS, text.trim_end().to_owned());
    }),
    ("there are no decisions", |p| p.set(DECISIONS, "")),
    ("an approved definition is another text", |p| p.replace(APPROVED, "reads", "leads")),
    ("an approved definition is another", |p| {
        p.edit_document(APPROVED, |a| a["items"][0]["hash"] = hash('a'));
    }),
    ("a definition is approved that no decision approves", |p| {
        p.edit_document(APPROVED, |a| {
            let mut more = a["items"][0].clone();
            more["name"] = "zz".into();
            a["items"].as_array_mut().unwrap().push(more);
        });
    }),
    ("an approved definition is left out", |p| {
        p.edit_document(APPROVED, |a| drop(a["items"].as_array_mut().unwrap().pop()));
    }),
    ("a first use is called approved", |p| p.edit_document(APPROVED, |a| a["items"][0]["state"] = "first_use".into())),
    ("the surface is another than what was announced last", |p| {
        p.edit_document(SURFACE, |s| {
            s["instructions"] = Value::Null;
            s["left_out"] = json!(["capabilities"]);
            let facets = &s["facets"];
            let root = json!({"capabilities": null, "fingerprint": "assay.surface/2", "instructions": facets["instructions"],
                "prompts": facets["prompts"], "resource_templates": facets["resource_templates"],
                "resources": facets["resources"], "tools": facets["tools"]});
            let root = assay_support::forge::canonical(&root);
            s["root"] = format!("sha256:{}", assay::model::sha256_hex(root.as_bytes())).into();
        });
        let sha256 = assay::model::sha256_hex(p.text(SURFACE).as_bytes());
        p.edit(SESSION, 0, |s| s["surface_hash"] = sha256.into());
    }),
];

#[test]
fn the_pack_with_a_surface_is_sound() {
    let report = check_pack(&whole(), &unpinned());
    assert_eq!((report.integrity, report.errors.len()), (Integrity::Pass, 0), "{report:#?}");
    assert_eq!(report.stage(Stage::VerifySurface).unwrap().status, StageStatus::Ok);
    assert_eq!(at(&whole(), "surface_drift").len(), 1);
}

#[test]
fn what_was_cut_out_of_an_answer_is_said_of_that_answer() {
    let said = |change: fn(&mut Value)| {
        let mut pack = whole();
        let line = at(&pack, "response_received")[1];
        let mut lines = pack.lines(EVENTS);
        let mut filtered: Value = serde_json::from_str(&lines[line]).unwrap();
        let offset = filtered["detail"]["offset"].clone();
        for none in ["method", "invocation_id"] {
            filtered[none] = Value::Null;
        }
        filtered["event"] = "anomaly".into();
        filtered["detail"] = json!({
            "kind": "surface_filtered", "note": "tools/a: surface:changed", "offset": offset, "receipt_id": null,
            "receipt_sha256": null,
        });
        change(&mut filtered);
        lines.insert(line + 1, assay_support::forge::canonical(&filtered));
        pack.set_lines(EVENTS, &lines);
        pack.make_consistent();
        pack.sign(&key_e());
        let report = check_pack(&pack, &unpinned());
        report.errors.iter().any(|e| e.message.contains("the members of its kind"))
    };
    assert!(!said(|_| {}));
    for change in [
        (|e| e["direction"] = Value::Null) as fn(&mut Value),
        |e| e["direction"] = "client_to_server".into(),
        |e| (e["wire_bytes"], e["wire_sha256"]) = (Value::Null, Value::Null),
        |e| e["detail"]["offset"] = Value::Null,
        |e| e["detail"]["note"] = Value::Null,
    ] {
        assert!(said(change));
    }
}

#[test]
fn every_attack_on_the_surface_fails_in_its_stage() {
    let mut wrong = Vec::new();
    for (name, mutate) in ROWS {
        let mut pack = whole();
        mutate(&mut pack);
        pack.sign(&key_e());
        let report = check_pack(&pack, &unpinned());
        let seen = report.stage(Stage::VerifySurface).unwrap().status == StageStatus::Fail;
        if !seen || report.integrity != Integrity::Tampered {
            let found: BTreeSet<_> = report.errors.iter().map(|e| format!("{}: {}", e.stage, e.message)).collect();
            wrong.push(format!("{name}: {} {found:#?}", report.integrity));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_bit_of_the_decisions_counts() {
    let pack = whole();
    for file in [DECISIONS, APPROVED] {
        let bytes = pack.0[file].clone();
        let step = (bytes.len() / 150).max(1);
        for place in (0..bytes.len()).step_by(step) {
            let mut pack = whole();
            pack.file(file)[place] ^= 1 << (place % 7);
            pack.sign(&key_e());
            let report = check_pack(&pack, &unpinned());
            assert_ne!(report.integrity, Integrity::Pass, "{file}: byte {place} of {}", bytes.len());
        }
    }
}
