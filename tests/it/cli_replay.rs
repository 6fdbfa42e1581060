//! `assay replay`: answers from a pack, and recorded calls against a server.

use assay_support::{
    rig::{Client, INITIALIZE, Rig, rig, stderr, stdout},
    tty::Tty,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, io::Write as _, process::Stdio};

const STORED: &[&str] = &["--store-args", "--store-results"];

fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn call(id: u64, tool: &str, arguments: Value) -> String {
    request(id, "tools/call", &json!({"name": tool, "arguments": arguments}))
}

/// What the client of these tests says.
fn conversation() -> Vec<String> {
    vec![
        INITIALIZE.to_owned(),
        request(1, "tools/list", &json!({})),
        call(2, "echo", json!({"text": "hallo"})),
        call(3, "echo", json!({"text": "hallo\u{2028}"})),
        call(4, "fail", json!({"why": "no"})),
        call(5, "nothing-of-the-kind", json!({})),
        request(6, "ping", &json!({})),
        call(7, "search", json!({"query": "hash"})),
    ]
}

/// Records the conversation with the built-in server; the answers by id.
fn record(rig: &Rig, flags: &[&str]) -> BTreeMap<String, Value> {
    let argv = [&["mcp-proxy", "--audit-dir", "audit"], flags, &["--", rig.assay, "demo-server"]].concat();
    let mut client = Client::start(rig.program(&argv));
    let lines = conversation();
    lines.iter().for_each(|line| client.send(line));
    client.await_lines(lines.len());
    assert!(client.end().success(), "{}", client.said());
    by_id(&client.got())
}

fn by_id(lines: &[u8]) -> BTreeMap<String, Value> {
    let lines = std::str::from_utf8(lines).unwrap().lines();
    lines.map(|line| serde_json::from_str::<Value>(line).unwrap()).map(|m| (m["id"].to_string(), m)).collect()
}

/// What the pack answers to these lines, and what it says on stderr.
fn replay(rig: &Rig, lines: &[String]) -> (BTreeMap<String, Value>, String) {
    let mut program = rig.program(&["replay", "--audit-dir", "audit", "last"]);
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{}\n", lines.join("\n")).as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", stderr(&out));
    (by_id(&out.stdout), stderr(&out))
}

fn sorted(mut list: Value) -> Value {
    let tools = list["result"]["tools"].as_array_mut().unwrap();
    tools.sort_by_key(|tool| tool["name"].to_string());
    list
}

#[test]
fn a_pack_answers_as_the_server_did() {
    let rig = rig!();
    let live = record(&rig, STORED);
    let (again, said) = replay(&rig, &conversation());
    assert!(said.contains("replays 5 calls\n"), "{said}");
    assert_eq!(live.keys().collect::<Vec<_>>(), again.keys().collect::<Vec<_>>());
    for id in ["2", "3", "4", "5", "6", "7"] {
        assert_eq!(live[id], again[id], "{id}");
    }
    assert_eq!(sorted(live["1"].clone()), sorted(again["1"].clone()));
    let (live, again) = (&live["0"]["result"], &again["0"]["result"]);
    assert_eq!((&live["protocolVersion"], &live["capabilities"]), (&again["protocolVersion"], &again["capabilities"]));
    assert_eq!(
        (&live["serverInfo"]["name"], &live["serverInfo"]["version"]),
        (&again["serverInfo"]["name"], &again["serverInfo"]["version"])
    );
}

#[test]
fn what_was_not_stored_is_an_error_that_says_how_to_store_it() {
    let rig = rig!();
    record(&rig, &[]);
    let lines = [call(1, "echo", json!({"text": "hallo"})), call(2, "echo", json!({"text": "servus"}))];
    let (answers, said) = replay(&rig, &lines);
    assert!(said.contains("--store-results"), "{said}");
    let message = |id: &str| answers[id]["error"]["message"].as_str().unwrap().to_owned();
    assert!(message("1").contains("--store-results"), "{}", message("1"));
    assert!(message("2").contains("with these arguments"), "{}", message("2"));
    // Nor can they be sent again.
    let out =
        rig.run(&["replay", "--audit-dir", "audit", "last", "--against", "--yes", "--", rig.assay, "demo-server"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert!(stdout(&out).contains("not sent: 2 calls of echo: its arguments were not stored"), "{}", stdout(&out));
}

#[test]
fn recorded_calls_are_sent_again_and_what_differs_is_said() {
    let rig = rig!();
    record(&rig, STORED);
    let against = |code: i32, flags: &[&str], server: &[&str]| {
        let args =
            [&["replay", "--audit-dir", "audit", "last", "--against", "--yes", "--json"], flags, &["--"], server];
        let out = rig.run(&args.concat());
        assert_eq!(out.status.code(), Some(code), "{}{}", stdout(&out), stderr(&out));
        serde_json::from_slice::<Value>(&out.stdout).unwrap()
    };
    let same = against(0, &[], &[rig.assay, "demo-server"]);
    assert_eq!((&same["sent"], &same["same"], &same["schema"]), (&json!(5), &json!(5), &json!("assay.replay.v1")));
    // A server that hears something else.
    let deaf = ["sh", "-c", "sed -u s/hallo/servus/ | \"$0\" demo-server", rig.assay];
    let other = against(1, &[], &deaf);
    assert_eq!((&other["same"], &other["different"]), (&json!(3), &json!(2)));
    let place = &other["calls"][0]["differences"][0];
    assert_eq!(
        (&place["path"], &place["old"], &place["new"]),
        (&json!("/content/0/text"), &json!("hallo"), &json!("servus"))
    );
    // Tools by name and by glob.
    let few = against(0, &["--only", "s*", "--only", "fail", "--skip", "f*"], &deaf);
    assert_eq!((&few["sent"], &few["calls"][0]["tool"]), (&json!(1), &json!("search")));
    assert_eq!(few["skipped"].as_array().unwrap().len(), 3);
    // A server that ends answers nothing.
    let gone = against(2, &[], &["false"]);
    assert_eq!(gone["exit_code"], 2);
    let none = against(3, &["--only", "nothing-like-it"], &deaf);
    assert!(none["error"].as_str().unwrap().contains("nothing to send"), "{none}");
}

#[test]
fn nothing_is_sent_unless_somebody_says_yes() {
    let rig = rig!();
    record(&rig, STORED);
    let args = ["replay", "--audit-dir", "audit", "last", "--against", "--", rig.assay, "demo-server"];
    let out = rig.run(&args);
    assert_eq!(out.status.code(), Some(3));
    assert!(stderr(&out).contains("--yes"), "{}", stderr(&out));
    let mut tty = Tty::start(&rig, &args, 120, 30);
    tty.wait("[y/N]");
    tty.keys("n\r");
    tty.wait("nothing was sent");
    let mut tty = Tty::start(&rig, &args, 120, 30);
    tty.wait("send 5 calls to");
    tty.keys("y\r");
    tty.wait("5 calls sent: 5 the same");
}

#[test]
fn a_pack_that_was_changed_answers_nothing() {
    let rig = rig!();
    record(&rig, STORED);
    let pack = fs::read_dir(rig.audit.join("packs")).unwrap().next().unwrap().unwrap().path();
    let receipts = pack.join("receipt_pack.jsonl");
    let text = fs::read_to_string(&receipts).unwrap();
    fs::write(&receipts, text.replacen("hallo", "hullo", 1)).unwrap();
    let out = rig.run(&["replay", pack.to_str().unwrap()]);
    assert_eq!((out.status.code(), stdout(&out).as_str()), (Some(2), ""));
    assert!(stderr(&out).contains("TAMPERED"), "{}", stderr(&out));
    for args in [&["replay", "gone"][..], &["replay", pack.to_str().unwrap(), "--", "x"], &["replay", ".", "--against"]]
    {
        assert_eq!(rig.run(args).status.code(), Some(3), "{args:?}");
    }
}
