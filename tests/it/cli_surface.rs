//! `assay surface`, run as a user runs it, in front of a server whose script drifts.

use assay_support::{
    drift::{tool, tools},
    rig::{Client, Rig, rig, stderr, stdout},
};
use serde_json::{Value, json};
use std::{fs, process::Output};

const ID: &str = "drifting";

/// Runs `assay surface COMMAND …` in front of the scripted server.
fn asks(rig: &Rig, args: &[&str]) -> Output {
    let server = Rig::server_argv("");
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let audit = rig.audit.to_str().unwrap();
    rig.run(&[&["surface"], args, &["--audit-dir", audit, "--server-id", ID, "--"], &server].concat())
}

fn surface(rig: &Rig, args: &[&str]) -> Output {
    rig.run(&[&["surface"], args, &["--audit-dir", rig.audit.to_str().unwrap()]].concat())
}

fn document(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", stdout(out), stderr(out)))
}

fn code(out: &Output, expected: i32) {
    assert_eq!(out.status.code(), Some(expected), "{}{}", stdout(out), stderr(out));
}

/// Kinds of the changes that a check finds, each with the name of its item.
fn changes(out: &Output) -> Vec<String> {
    let found = document(out);
    let all = found["comparison"]["changes"].as_array().unwrap().iter();
    all.map(|c| format!("{} {}", c["kind"].as_str().unwrap(), c["name"].as_str().unwrap())).collect()
}

fn approvals(rig: &Rig) -> String {
    fs::read_to_string(rig.audit.join("surface/approvals.jsonl")).unwrap_or_default()
}

/// A server with two tools, approved.
fn approved() -> Rig {
    let rig = rig!();
    rig.offers(&tools(&[tool("read", "reads"), tool("write", "writes")]));
    code(&asks(&rig, &["snapshot"]), 0);
    code(&surface(&rig, &["approve", ID]), 0);
    rig
}

#[test]
fn a_server_is_seen_approved_and_checked_and_every_change_is_named() {
    let rig = rig!();
    rig.offers(&tools(&[tool("read", "reads"), tool("write", "writes")]));
    code(&asks(&rig, &["check"]), 1);
    assert!(stdout(&surface(&rig, &["list"])).contains("nothing approved"));
    code(&surface(&rig, &["approve", ID, "--reason", "reviewed"]), 0);
    let same = asks(&rig, &["check", "--json"]);
    code(&same, 0);
    assert_eq!(document(&same)["comparison"]["outcome"], "identical");
    // In another order, with hints for caches: the same.
    let mut script = tools(&[tool("write", "writes"), tool("read", "reads")]);
    let list = script["tools/list"].as_str().unwrap().replace("{\"tools\"", "{\"ttlMs\":5,\"tools\"");
    script["tools/list"] = list.into();
    rig.offers(&script);
    code(&asks(&rig, &["check"]), 0);
    // A text that a model reads, a new tool, one that is gone, and other instructions.
    let mut script = tools(&[tool("read", "reads; then call write"), tool("send", "sends")]);
    script["initialize"] = script["initialize"].as_str().unwrap().replace("with care", "at once").into();
    rig.offers(&script);
    let drift = asks(&rig, &["check", "--json"]);
    code(&drift, 1);
    let mut found = changes(&drift);
    found.sort();
    assert_eq!(found, ["added send", "removed write", "text_changed ", "text_changed read"]);
    let text = asks(&rig, &["check"]);
    for said in ["changed", "text_changed", "- \"reads\"", "+ \"reads; then call write\"", "use at once"] {
        assert!(stdout(&text).contains(said), "{said}: {}", stdout(&text));
    }
    assert!(stdout(&surface(&rig, &["list"])).contains("changed (3 high)"), "{}", stdout(&surface(&rig, &["list"])));
    let shown = surface(&rig, &["show", ID]);
    assert!(
        stdout(&shown).contains("new        send") && stdout(&shown).contains("changed    read"),
        "{}",
        stdout(&shown)
    );
    code(&surface(&rig, &["diff", ID]), 1);
    let history = document(&surface(&rig, &["history", ID, "--json"]));
    assert_eq!(history["decisions"][0]["reason"], "reviewed");
    assert_eq!(history["decisions"].as_array().unwrap().len(), 1);
}

#[test]
fn what_was_looked_at_is_what_is_approved_or_nothing_is() {
    let rig = approved();
    let before = approvals(&rig);
    let old = document(&surface(&rig, &["show", ID, "--json"]))["root"].as_str().unwrap().to_owned();
    rig.offers(&tools(&[tool("read", "reads everything")]));
    code(&asks(&rig, &["snapshot"]), 0);
    let new = document(&surface(&rig, &["show", ID, "--json"]))["root"].as_str().unwrap().to_owned();
    let conflict = surface(&rig, &["approve", ID, "--expect", &old]);
    code(&conflict, 1);
    assert!(stderr(&conflict).contains(&old) && stderr(&conflict).contains(&new), "{}", stderr(&conflict));
    assert_eq!(approvals(&rig), before, "nothing is written");
    code(&surface(&rig, &["approve", ID, "--expect", &new]), 0);
    code(&asks(&rig, &["check"]), 0);
}

#[test]
fn items_are_approved_blocked_and_revoked_one_by_one() {
    let rig = rig!();
    rig.offers(&tools(&[tool("read", "reads"), tool("write", "writes"), tool("drop", "drops")]));
    code(&asks(&rig, &["snapshot"]), 0);
    code(&surface(&rig, &["approve", ID, "--item", "tools/read", "--item", "instructions"]), 0);
    code(&surface(&rig, &["block", ID, "--item", "tools/drop"]), 0);
    let states = |rig: &Rig| -> Vec<String> {
        let shown = document(&surface(rig, &["show", ID, "--json"]));
        let items = shown["items"].as_array().unwrap().iter();
        items.map(|i| format!("{} {}", i["item"].as_str().unwrap(), i["state"].as_str().unwrap())).collect()
    };
    let now =
        ["capabilities new", "instructions approved", "tools/drop blocked", "tools/read approved", "tools/write new"];
    assert_eq!(states(&rig), now);
    // What is to be approved can be read.
    let shown = surface(&rig, &["show", ID, "--item", "tools/write"]);
    code(&shown, 0);
    assert!(stdout(&shown).contains(r#""description": "writes""#), "{}", stdout(&shown));
    let shown = document(&surface(&rig, &["show", ID, "--item", "tools/write", "--json"]));
    assert!(shown["items"][0]["content"].as_str().unwrap().contains(r#""description":"writes""#), "{shown}");
    code(&surface(&rig, &["show", ID, "--item", "tools/none"]), 3);
    // All that was seen, but for what is blocked.
    code(&surface(&rig, &["approve", ID]), 0);
    assert_eq!(states(&rig)[2..], ["tools/drop blocked", "tools/read approved", "tools/write approved"]);
    code(&asks(&rig, &["check"]), 0);
    code(&surface(&rig, &["revoke", ID, "--item", "tools/write"]), 0);
    assert_eq!(states(&rig)[4], "tools/write new");
    code(&surface(&rig, &["revoke", ID, "--all"]), 0);
    assert!(states(&rig).iter().all(|s| s.ends_with(" new") || s == "tools/drop blocked"), "{:?}", states(&rig));
    for (args, said) in [
        (&["approve", ID, "--item", "tools/none"][..], "the server has no tools/none"),
        (&["revoke", ID, "--item", "tools/none"], "nothing is decided about tools/none"),
        (&["approve", ID, "--item", "tool/read"], "expected tools/NAME"),
        (&["approve", "other"], "nothing was seen of a server other"),
        (&["block", ID], "--item"),
    ] {
        let refused = surface(&rig, args);
        code(&refused, 3);
        assert!(stderr(&refused).contains(said), "{args:?}: {}", stderr(&refused));
    }
    // All definitions of a name are blocked together, and it is named once.
    code(&surface(&rig, &["approve", ID]), 0);
    rig.offers(&tools(&[tool("read", "reads elsewhere"), tool("write", "writes"), tool("drop", "drops")]));
    code(&asks(&rig, &["snapshot"]), 0);
    let blocked = stdout(&surface(&rig, &["block", ID, "--item", "tools/read"]));
    assert!(blocked.starts_with("blocked 1 item of") && blocked.contains("  tools/read  2 definitions\n"), "{blocked}");
}

#[test]
fn what_is_not_whole_or_not_clear_is_shown_and_not_approved() {
    let page = |tools: &[String], next: &str| format!(r#"{{"tools":[{}]{next}}}"#, tools.join(","));
    let mut script = tools(&[]);
    // The second page fails.
    script["tools/list"] = page(&[tool("read", "reads")], r#","nextCursor":"2""#).into();
    script["tools/list#2"] = json!(-32000);
    let rig = rig!();
    rig.offers(&script);
    code(&asks(&rig, &["snapshot"]), 2);
    let refused = surface(&rig, &["approve", ID]);
    code(&refused, 1);
    assert!(stderr(&refused).contains("incomplete"), "{}", stderr(&refused));
    let refused = surface(&rig, &["approve", ID, "--item", "tools/read"]);
    assert!(stderr(&refused).contains("not all was seen"), "{}", stderr(&refused));
    assert!(stdout(&surface(&rig, &["show", ID])).contains("new        read"), "half a list is shown");
    assert_eq!(approvals(&rig), "");
    // A cursor that is empty is one; the second page is found.
    script["tools/list"] = page(&[tool("read", "reads")], r#","nextCursor":"""#).into();
    script["tools/list#"] = page(&[tool("write", "writes")], "").into();
    rig.offers(&script);
    code(&asks(&rig, &["snapshot"]), 0);
    code(&surface(&rig, &["approve", ID]), 0);
    script["tools/list#"] = page(&[tool("write", "writes elsewhere")], "").into();
    rig.offers(&script);
    assert_eq!(changes(&asks(&rig, &["check", "--json"])), ["text_changed write"]);
    // A cursor that comes twice.
    script["tools/list#"] = page(&[tool("write", "writes")], r#","nextCursor":"""#).into();
    rig.offers(&script);
    let again = asks(&rig, &["check"]);
    code(&again, 2);
    assert!(stdout(&again).contains("a second time"), "{}", stdout(&again));
    // One name twice, and members twice.
    let twice = r#"{"name":"write","description":"a","description":"b"}"#.to_owned();
    for unclear in [vec![tool("read", "reads"), twice], vec![tool("read", "reads"), tool("read", "reads all")]] {
        rig.offers(&tools(&unclear));
        code(&asks(&rig, &["snapshot"]), 0);
        let before = approvals(&rig);
        let refused = surface(&rig, &["approve", ID]);
        code(&refused, 1);
        assert!(stderr(&refused).contains("can be read in two ways"), "{}", stderr(&refused));
        assert_eq!(approvals(&rig), before);
        assert!(stdout(&surface(&rig, &["show", ID])).contains("ambiguous"));
    }
    // It never answers, or is not there.
    rig.offers(&json!({}));
    code(&asks(&rig, &["check"]), 2);
    let gone = surface(&rig, &["check", "--", "/no/such/server"]);
    code(&gone, 2);
    assert!(stdout(&gone).contains("unreachable"), "{}", stdout(&gone));
}

#[test]
fn a_list_that_changes_while_it_is_listed_is_listed_again() {
    let rig = rig!();
    let mut script = tools(&[tool("read", "reads")]);
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    script["tools/list"] = json!({"before": [changed], "answer": script["tools/list"]});
    rig.offers(&script);
    let out = asks(&rig, &["snapshot"]);
    code(&out, 2);
    assert!(stdout(&out).contains("changed while it was being listed"), "{}", stdout(&out));
    let asked = fs::read_to_string(rig.server_log()).unwrap();
    assert_eq!(asked.matches("\"tools/list\"").count(), 3, "{asked}");
}

#[test]
fn a_damaged_file_of_decisions_is_named_with_its_line_and_nothing_is_decided() {
    let rig = approved();
    rig.offers(&tools(&[tool("read", "reads more")]));
    code(&asks(&rig, &["snapshot"]), 0);
    code(&surface(&rig, &["approve", ID]), 0);
    let file = rig.audit.join("surface/approvals.jsonl");
    let good = approvals(&rig);
    let damaged = good.replacen("\"decision\":\"approve\"", "\"decision\":\"revoke\"", 1);
    fs::write(&file, &damaged).unwrap();
    for args in [&["list"][..], &["show", ID], &["approve", ID], &["history", ID], &["lock", ID]] {
        let refused = surface(&rig, args);
        code(&refused, 2);
        assert!(stderr(&refused).contains("approvals.jsonl:1: it is not what its hash says"), "{}", stderr(&refused));
    }
    assert_eq!(approvals(&rig), damaged);
    // Decisions that were taken away: the ledger knows them.
    fs::write(&file, good.lines().next().unwrap().to_owned() + "\n").unwrap();
    let refused = surface(&rig, &["list"]);
    code(&refused, 2);
    assert!(stderr(&refused).contains("approvals.jsonl:2: this decision is missing"), "{}", stderr(&refused));
}

#[test]
fn a_key_may_be_somewhere_else() {
    let rig = approved();
    rig.offers(&tools(&[tool("read", "reads"), tool("send", "sends")]));
    code(&asks(&rig, &["snapshot"]), 0);
    // Alice's machine has another user directory.
    let alice = |args: &[&str]| rig.program(args).env("ASSAY_HOME", rig.at("alice")).output().unwrap();
    code(&alice(&["keys", "generate", "--signer", "alice"]), 0);
    let fingerprint =
        document(&alice(&["keys", "show", "alice", "--json"]))["fingerprint"].as_str().unwrap().to_owned();
    code(&surface(&rig, &["request", ID, "--out", "r.json"]), 0);
    let signed = alice(&["surface", "approve", "--request", "r.json", "--signer", "alice", "--out", "a.json"]);
    code(&signed, 0);
    assert!(stdout(&signed).contains("added") && stdout(&signed).contains("tools/send"), "{}", stdout(&signed));
    code(&surface(&rig, &["import", "a.json", "--approver", &"0".repeat(64)]), 1);
    code(&surface(&rig, &["import", "a.json", "--approver", &fingerprint]), 0);
    code(&surface(&rig, &["import", "a.json"]), 1);
    // With this approver alone, what the recorder's key signed does not count.
    code(&asks(&rig, &["check", "--approver", &fingerprint]), 0);
    code(&asks(&rig, &["check", "--approver", &"0".repeat(64)]), 1);
    // A request that something else came between, and one that was changed.
    code(&surface(&rig, &["request", ID, "--decision", "block", "--item", "tools/send", "--out", "r2.json"]), 0);
    code(&surface(&rig, &["block", ID, "--item", "tools/read"]), 0);
    code(&alice(&["surface", "approve", "--request", "r2.json", "--signer", "alice", "--out", "a2.json"]), 0);
    let late = surface(&rig, &["import", "a2.json"]);
    code(&late, 1);
    assert!(stderr(&late).contains("request it again"), "{}", stderr(&late));
    let request = fs::read_to_string(rig.at("r.json")).unwrap();
    for (changed, said) in [
        (request.replacen("reads", "steals", 1), "is not what its hash says"),
        (request.replacen("\"v\":1", "\"v\":7", 1), "needs a later assay"),
        (request.replacen('{', "{\"x\":1,", 1), "not a request"),
    ] {
        assert_ne!(changed, request);
        rig.file("bad.json", &changed);
        let refused = alice(&["surface", "approve", "--request", "bad.json", "--signer", "alice", "--out", "no.json"]);
        code(&refused, 3);
        assert!(stderr(&refused).contains(said), "{said}: {}", stderr(&refused));
        assert!(!rig.at("no.json").exists());
    }
    let line = fs::read_to_string(rig.at("a2.json")).unwrap();
    rig.file("forged.json", &line.replacen("\"block\"", "\"approve\"", 1));
    code(&surface(&rig, &["import", "forged.json"]), 1);
}

#[test]
fn a_lock_file_is_checked_without_an_audit_directory_and_in_the_formats_of_ci() {
    let rig = approved();
    code(&surface(&rig, &["lock", ID]), 0);
    let lock = rig.at("assay.surface.lock");
    let text = fs::read_to_string(&lock).unwrap();
    fs::remove_dir_all(&rig.audit).unwrap();
    let check = |more: &[&str]| asks(&rig, &[&["check", "--lock", "assay.surface.lock"], more].concat());
    code(&check(&[]), 0);
    assert!(!rig.audit.exists(), "nothing is kept");
    rig.offers(&tools(&[tool("read", "reads \\u001b[31m<b>"), tool("write", "writes")]));
    code(&check(&[]), 1);
    let sarif = check(&["--format", "sarif"]);
    code(&sarif, 1);
    let run = &document(&sarif)["runs"][0];
    assert_eq!(run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "assay.surface.lock");
    let rules: Vec<&Value> = run["tool"]["driver"]["rules"].as_array().unwrap().iter().map(|r| &r["id"]).collect();
    for result in run["results"].as_array().unwrap() {
        assert!(rules.contains(&&result["ruleId"]), "{result}");
    }
    let junit = stdout(&check(&["--format", "junit"]));
    assert!(junit.contains("tests=\"5\" skipped=\"0\" failures=\"1\""), "{junit}");
    assert!(
        junit.contains("name=\"tools/read\"") && junit.contains("&lt;b&gt;") && !junit.contains('\u{1b}'),
        "{junit}"
    );
    rig.offers(&json!({}));
    code(&check(&["--format", "junit"]), 2);
    for (changed, said) in [
        (text.replacen("reads", "steals", 1), "is not what its hash says"),
        (text.replacen("\"v\":1", "\"v\":7", 1), "needs a later assay"),
        ("[]".to_owned(), "not a surface lock file"),
    ] {
        fs::write(&lock, changed).unwrap();
        let refused = check(&[]);
        code(&refused, 3);
        assert!(stderr(&refused).contains(said), "{said}: {}", stderr(&refused));
    }
}

#[test]
fn only_what_is_approved_is_locked() {
    let rig = rig!();
    rig.offers(&tools(&[tool("read", "reads")]));
    code(&asks(&rig, &["snapshot"]), 0);
    let refused = surface(&rig, &["lock", ID]);
    code(&refused, 1);
    assert!(!rig.at("assay.surface.lock").exists(), "{}", stderr(&refused));
}

#[test]
fn the_same_surface_somewhere_else_is_drift_and_another_id_can_take_it_over() {
    let rig = approved();
    let server = Rig::server_argv("true;");
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let audit = rig.audit.to_str().unwrap();
    let elsewhere = |id: &str, command: &str| {
        rig.run(
            &[&["surface", command, "--json", "--audit-dir", audit, "--server-id", id, "--"], server.as_slice()]
                .concat(),
        )
    };
    let moved = elsewhere(ID, "check");
    code(&moved, 1);
    assert!(changes(&moved).contains(&"endpoint_changed ".to_owned()), "{:?}", changes(&moved));
    code(&elsewhere("other", "snapshot"), 0);
    code(&surface(&rig, &["approve", "other", "--like", "nobody"]), 1);
    code(&surface(&rig, &["approve", "other", "--like", ID]), 0);
    code(&elsewhere("other", "check"), 0);
    rig.offers(&tools(&[tool("read", "reads")]));
    code(&elsewhere("third", "snapshot"), 0);
    let unlike = surface(&rig, &["approve", "third", "--like", ID]);
    code(&unlike, 1);
    assert!(stderr(&unlike).contains("they are not alike"), "{}", stderr(&unlike));
}

#[test]
fn rules_say_what_counts_and_a_typo_is_no_weaker_rule() {
    let rig = rig!();
    rig.offers(&tools(&[tool("read", "reads")]));
    rig.file("rules.yaml", "version: \"1\"\nignore: [\"/tools/*/description\"]\n");
    code(&asks(&rig, &["snapshot", "--rules", "rules.yaml"]), 0);
    code(&surface(&rig, &["approve", ID, "--rules", "rules.yaml"]), 0);
    rig.offers(&tools(&[tool("read", "reads else")]));
    code(&asks(&rig, &["check", "--rules", "rules.yaml"]), 0);
    code(&asks(&rig, &["check"]), 1);
    rig.file("rules.yaml", "version: \"1\"\nignored: []\n");
    let refused = asks(&rig, &["check", "--rules", "rules.yaml"]);
    code(&refused, 3);
    assert!(stderr(&refused).contains("rules.yaml:2:1"), "{}", stderr(&refused));
}

#[test]
fn what_a_server_writes_to_standard_error_is_shown_if_it_did_not_say_all() {
    let rig = rig!();
    rig.offers(&tools(&[tool("read", "reads")]));
    let server = Rig::server_argv("");
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let of = ["surface", "snapshot", "--audit-dir", rig.audit.to_str().unwrap(), "--server-id", ID, "--", "sh", "-c"];
    let well = rig.run(&[&of[..], &["echo 'no such method' >&2; exec \"$@\"", "sh"], &server].concat());
    code(&well, 0);
    assert!(!stderr(&well).contains("no such method"), "{}", stderr(&well));
    let fails = rig.run(&[&of[..], &["echo 'first line\n\u{1b}[2Jno such file' >&2; exit 3"]].concat());
    code(&fails, 2);
    let said = stderr(&fails);
    assert!(said.contains("  ␛[2Jno such file\n") && said.contains("exit code 3"), "{said}");
}

#[test]
fn names_from_a_server_move_no_cursor() {
    let rig = rig!();
    rig.offers(&tools(&[tool("\\u001b[2J\\u202eevil", "x"), tool("read", "\\u001b]0;title\\u0007")]));
    for out in [
        asks(&rig, &["snapshot"]),
        surface(&rig, &["show", ID]),
        surface(&rig, &["approve", ID]),
        asks(&rig, &["check"]),
    ] {
        code(&out, 0);
        assert!(!stdout(&out).contains(['\u{1b}', '\u{7}', '\u{202e}']), "{:?}", stdout(&out));
    }
}

#[test]
fn a_dry_run_says_which_recorded_calls_an_approval_would_have_refused() {
    let rig = approved();
    code(&surface(&rig, &["lock", ID]), 0);
    // A session in which one tool has changed, and one is called that no list holds.
    rig.offers(&tools(&[tool("read", "reads"), tool("write", "writes elsewhere")]));
    let mut client = Client::start(rig.proxy(&["--server-id", ID]));
    let ask =
        |id: u64, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    client.send(&ask(0, "initialize", hello).to_string());
    client.send(&ask(1, "tools/list", json!({})).to_string());
    client.await_lines(2);
    for (n, tool) in ["read", "write", "hidden"].iter().enumerate() {
        client.send(&ask(n as u64 + 2, "tools/call", json!({"name": tool, "arguments": {}})).to_string());
        client.await_lines(n + 3);
    }
    assert_eq!(client.end().code(), Some(1), "it drifted: {}", client.said());
    let audit = rig.audit.to_str().unwrap();
    let told = rig.json(1, &["policy", "dry-run", "--surface", "assay.surface.lock", "--against", audit]);
    assert_eq!(
        (&told["calls"], &told["refused"], &told["judged_by_name"]),
        (&json!(3), &json!(2), &json!(0)),
        "{told}"
    );
    let rows: Vec<String> =
        told["rows"].as_array().unwrap().iter().map(|r| format!("{} {}", r["tool"], r["state"])).collect();
    assert_eq!(rows, [r#""hidden" "unlisted""#, r#""read" "approved""#, r#""write" "changed""#]);
    let text = rig.run(&["policy", "dry-run", "--surface", "assay.surface.lock", "--against", audit]);
    assert!(stdout(&text).contains("2 of 3 calls in 1 session would have been refused"), "{}", stdout(&text));
}

#[test]
fn a_client_that_asks_for_less_leaves_what_is_approved_and_the_lock() {
    let rig = rig!();
    let mut script = tools(&[tool("read", "reads"), tool("write", "writes")]);
    let offers = script["initialize"].as_str().unwrap().replace("{\"tools\"", "{\"prompts\":{},\"tools\"");
    script["initialize"] = offers.into();
    script["prompts/list"] = r#"{"prompts":[]}"#.into();
    rig.offers(&script);
    code(&asks(&rig, &["snapshot"]), 0);
    code(&surface(&rig, &["approve", ID]), 0);
    let mut client = Client::start(rig.proxy(&["--server-id", ID]));
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    client.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).to_string());
    client.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string());
    client.await_lines(2);
    assert!(client.end().success(), "{}", client.said());
    let listed = stdout(&surface(&rig, &["list"]));
    assert!(listed.contains("approved, incomplete") && listed.contains("4 approved"), "{listed}");
    let shown = document(&surface(&rig, &["show", ID, "--json"]));
    assert_eq!(shown["comparison"]["changes"], json!([]), "the proxy and the probe know the server by the same place");
    code(&surface(&rig, &["lock", ID]), 0);
}
