//! `assay policy`, run as a user runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use assay_support::sessions::{self, Plan};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
        command.current_dir(self.0.path()).env("ASSAY_HOME", self.at("home")).env("NO_COLOR", "1");
        command.env_remove("CLICOLOR_FORCE");
        command
    }

    fn policy(&self, args: &[&str]) -> Output {
        self.command().arg("policy").args(args).output().unwrap()
    }

    fn json(&self, code: i32, args: &[&str]) -> Value {
        let out = self.policy(&[args, &["--json"]].concat());
        assert_eq!(out.status.code(), Some(code), "{args:?} {}{}", stdout(&out), stderr(&out));
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", stdout(&out)))
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    /// A session through the real proxy with the built-in server.
    fn record(&self, args: &[&str], calls: &[Value]) {
        let exe = env!("CARGO_BIN_EXE_assay");
        let mut proxy = self
            .command()
            .args(["mcp-proxy", "--audit-dir", "audit"])
            .args(args)
            .args(["--", exe, "demo-server"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            vec![json!({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",
            "capabilities":{},"clientInfo":{"name":"test","version":"1"}}})];
        lines.extend(
            calls
                .iter()
                .enumerate()
                .map(|(n, params)| json!({"jsonrpc":"2.0","id":n + 1,"method":"tools/call","params":params})),
        );
        let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
        let mut stdin = proxy.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        let mut answers = std::io::BufRead::lines(std::io::BufReader::new(proxy.stdout.take().unwrap()));
        for _ in 0..lines.len() {
            answers.next().unwrap().unwrap();
        }
        drop(stdin);
        let out = proxy.wait_with_output().unwrap();
        assert!(out.status.success(), "{}", stderr(&out));
    }
}

fn stdout(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).unwrap()
}

fn stderr(out: &Output) -> String {
    String::from_utf8(out.stderr.clone()).unwrap()
}

fn echo(text: &str) -> Value {
    json!({"name": "echo", "arguments": {"text": text}})
}

/// A policy that judges what `echo` is called with.
const NO_SECRETS: &str = "version: \"1\"\ndefault: allow\nconstraints:\n  echo: {deny_patterns: [secret]}\n";

#[test]
fn from_a_recording_to_a_policy_that_allows_it_and_no_more() {
    let place = Place::new();
    place.record(&["--store-args"], &[echo("a secret"), echo("b"), json!({"name": "fail"})]);
    let out = place.policy(&["init", "--from", "audit"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stdout(&out).contains("2 tools of 1 session allowed"), "{}", stdout(&out));
    let text = fs::read_to_string(place.at("assay.mcp-policy.yaml")).unwrap();
    assert!(text.contains("default: deny") && text.contains("- \"echo\"    # 2 calls"), "{text}");
    let report = place.json(0, &["dry-run", "assay.mcp-policy.yaml", "--against", "audit"]);
    assert_eq!((&report["calls"], &report["allowed"], &report["newly_denied"]), (&json!(3), &json!(3), &json!(0)));
    // Nothing is overwritten.
    let again = place.policy(&["init", "--from", "audit"]);
    assert_eq!(again.status.code(), Some(3));
    assert!(stderr(&again).contains("nothing is overwritten"), "{}", stderr(&again));
    let doc = place.json(0, &["init", "--from", "audit"]);
    assert_eq!(doc["tools"], json!({"echo": 2, "fail": 1}));
    let shown = place.policy(&["init", "--out", "-"]);
    assert!(stdout(&shown).contains("denylist:"), "{}", stdout(&shown));
}

#[test]
fn stored_arguments_are_judged_wherever_they_lie() {
    let place = Place::new();
    // A member name that is no ASCII cannot stand in a pack and is in the investigation log alone.
    let odd = json!({"name": "echo", "arguments": {"é": "the secret"}});
    place.record(&["--store-args"], &[echo("a secret"), echo("plain"), odd, echo("x")]);
    place.file("p.yaml", NO_SECRETS);
    let session = fs::read_dir(place.at("audit/receipts")).unwrap().next().unwrap().unwrap().path();
    let id = session.file_stem().unwrap().to_str().unwrap().rsplit('_').next().unwrap().to_owned();
    let pack = fs::read_dir(place.at("audit/packs")).unwrap().next().unwrap().unwrap().path();
    for against in ["audit", session.to_str().unwrap(), pack.to_str().unwrap(), &id, &format!("mcp_{id}")] {
        let report = place.json(1, &["dry-run", "p.yaml", "--audit-dir", "audit", "--against", against]);
        assert_eq!(report["schema"], "assay.policy_dry_run.v1");
        assert_eq!(
            (&report["calls"], &report["newly_denied"], &report["unknown"]),
            (&json!(4), &json!(2), &json!(0)),
            "{against}"
        );
        let rule = &report["rules"][0];
        assert_eq!(
            (&rule["rule"], &rule["reason"]),
            (&json!("constraints.echo.deny_patterns[0]"), &json!("constraint:deny_patterns"))
        );
        assert_eq!(rule["examples"].as_array().unwrap().len(), 2);
        assert_eq!(report["tools"][0]["tool"], "echo");
    }
    // Away from its log, the pack has no more than the hash of one of them.
    fs::rename(&pack, place.at("moved")).unwrap();
    let report = place.json(1, &["dry-run", "p.yaml", "--against", "moved"]);
    assert_eq!(
        (&report["newly_denied"], &report["unknown"], &report["judged_by_hash"]),
        (&json!(1), &json!(1), &json!(1))
    );
    // The same session twice counts once.
    let report = place.json(1, &["dry-run", "p.yaml", "--against", "moved", "audit"]);
    assert_eq!((&report["calls"], &report["sessions"], &report["sessions_twice"]), (&json!(4), &json!(1), &json!(1)));
    // A log that was changed is not believed.
    let log = fs::read_dir(place.at("audit/investigation")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&log).unwrap().replace("the secret", "the public");
    fs::write(&log, text).unwrap();
    let report = place.json(1, &["dry-run", "p.yaml", "--against", "audit"]);
    assert_eq!((&report["newly_denied"], &report["unknown"]), (&json!(1), &json!(1)));
    assert!(report["problems"][0].as_str().unwrap().contains("hash"), "{report}");
}

#[test]
fn hashes_alone_are_never_guessed_from() {
    let place = Place::new();
    place.record(&[], &[echo("a secret"), json!({"name": "echo", "arguments": {}}), json!({"name": "echo"})]);
    place.file("p.yaml", NO_SECRETS);
    let args = ["dry-run", "p.yaml", "--against", "audit"];
    let report = place.json(0, &args);
    // What no arguments hash to is known.
    assert_eq!((&report["allowed"], &report["unknown"]), (&json!(2), &json!(1)));
    assert_eq!(report["rules"][0]["reason"], "arguments_not_stored");
    place.json(1, &[&args[..], &["--fail-on-unknown"]].concat());
    let text = stdout(&place.policy(&args));
    assert!(
        text.contains("no call is known to be newly denied") && text.contains("arguments were not stored"),
        "{text}"
    );
    place.file("deny.yaml", "version: \"1\"\ndefault: deny\n");
    let report = place.json(1, &["dry-run", "deny.yaml", "--against", "audit"]);
    assert_eq!((&report["newly_denied"], &report["unknown"]), (&json!(3), &json!(0)));
}

/// A synthetic session's pack, with its receipts changed before it is read.
fn pack(place: &Place, plan: &Plan) -> PathBuf {
    let written = sessions::write(plan, place.at("audit")).unwrap();
    written.pack()
}

#[test]
fn budgets_count_within_a_session_and_begin_anew_in_the_next() {
    let place = Place::new();
    for seed in [1, 2] {
        pack(&place, &Plan { seed, calls: 10, ..Plan::default() });
    }
    place.file("p.yaml", "version: \"1\"\ndefault: allow\nbudget: {max_tool_calls: 8}\n");
    let report = place.json(1, &["dry-run", "p.yaml", "--against", "audit"]);
    assert_eq!((&report["sessions"], &report["calls"], &report["newly_denied"]), (&json!(2), &json!(20), &json!(4)));
    assert_eq!(report["rules"][0]["rule"], "budget.max_tool_calls");
    place.file("p.yaml", "version: \"1\"\ndefault: allow\nbudget: {max_wall_time_sec: 0}\n");
    let report = place.json(1, &["dry-run", "p.yaml", "--against", "audit"]);
    assert_eq!(report["rules"][0]["rule"], "budget.max_wall_time_sec");
}

#[test]
fn what_was_denied_before_is_no_news() {
    let place = Place::new();
    let dir = pack(&place, &Plan { calls: 4, tools: vec!["a".into(), "b".into()], ..Plan::default() });
    let receipts = dir.join("receipt_pack.jsonl");
    let text = fs::read_to_string(&receipts).unwrap();
    fs::write(&receipts, text.replace("\"policy_verdict\":\"no_policy\"", "\"policy_verdict\":\"denied\"")).unwrap();
    place.file("p.yaml", "version: \"1\"\ndefault: deny\nallowlist: [a]\n");
    let report = place.json(0, &["dry-run", "p.yaml", "--against", dir.to_str().unwrap()]);
    assert_eq!(
        (&report["denied"], &report["newly_denied"], &report["newly_allowed"]),
        (&json!(2), &json!(0), &json!(2))
    );
    let text = stdout(&place.policy(&["dry-run", "p.yaml", "--against", dir.to_str().unwrap()]));
    assert!(
        text.contains("2 that were denied would now be allowed") && text.contains("2 were denied and still would be"),
        "{text}"
    );
    // A policy made from it allows nothing.
    let doc = place.json(0, &["init", "--from", dir.to_str().unwrap()]);
    assert_eq!((&doc["tools"], &doc["denied"]), (&json!({}), &json!(4)));
}

#[test]
fn names_of_every_kind_survive_the_way_into_a_policy() {
    let names = [
        "plain",
        "with blank",
        "star*",
        "what?",
        "br[ack]et",
        "{a,b}",
        "back\\slash",
        "quote\"",
        "日本語",
        "a\u{202e}b",
        "#",
        "- x",
        "true",
        "~",
        "x: y",
        "a\u{7f}b",
        "\u{1F600}",
        "'",
        "!tag",
        "&a",
        "*",
    ];
    let place = Place::new();
    let dir =
        pack(&place, &Plan { calls: names.len() as u64, tools: names.map(str::to_owned).to_vec(), ..Plan::default() });
    let out = place.policy(&["init", "--from", dir.to_str().unwrap(), "--out", "p.yaml"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let report = place.json(0, &["dry-run", "p.yaml", "--against", dir.to_str().unwrap()]);
    assert_eq!(report["allowed"], json!(names.len()), "{}", fs::read_to_string(place.at("p.yaml")).unwrap());
    // And the globs among them mean themselves.
    place.file("other.yaml", &fs::read_to_string(place.at("p.yaml")).unwrap());
    let tools = ["starfish", "whatX", "bra", "a", "anything"].map(str::to_owned).to_vec();
    let other = pack(&place, &Plan { seed: 9, calls: 5, tools, ..Plan::default() });
    let report = place.json(1, &["dry-run", "p.yaml", "--against", other.to_str().unwrap()]);
    assert_eq!(report["denied"], json!(5));
}

#[test]
fn check_says_what_a_policy_does_or_where_it_is_wrong() {
    let place = Place::new();
    place.file(
        "good.yaml",
        "version: \"1\"\ndefault: deny\nallowlist: [a]\ndenylist: [b]\nconstraints:\n  a: {max_calls: 3}\nbudget: {max_tool_calls: 9}\n",
    );
    let text = stdout(&place.policy(&["check", "good.yaml"]));
    for words in [
        "1. denied, whatever else is said: b",
        "2. a: denied unless fewer than 3",
        "allowed: a",
        "every other tool: denied",
        "after 9",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let doc = place.json(0, &["check", "good.yaml"]);
    assert_eq!(
        (&doc["default"], &doc["shape"], &doc["constraints"][0]["keys"]),
        (&json!("deny"), &json!("native"), &json!(["max_calls"]))
    );
    place.file("bad.yaml", "version: \"1\"\ndefault: deny\nalowlist: [a]\n");
    for command in [&["check", "bad.yaml"][..], &["dry-run", "bad.yaml", "--against", "."]] {
        let out = place.policy(command);
        assert_eq!(out.status.code(), Some(3));
        let said = stderr(&out);
        assert!(said.contains("bad.yaml:3:1: unknown key `alowlist`\n  3 | alowlist: [a]\n    | ^^^^^^^^\n"), "{said}");
        assert!(said.contains("did you mean `allowlist`?"), "{said}");
        let doc = place.json(3, command);
        assert_eq!((&doc["line"], &doc["column"]), (&json!(3), &json!(1)));
    }
    for (file, words) in [(".", "it is a directory"), ("nothing.yaml", "assay policy init")] {
        let out = place.policy(&["check", file]);
        assert_eq!(out.status.code(), Some(3));
        assert!(stderr(&out).contains(words), "{}", stderr(&out));
    }
    place.file("aa.yaml", "mode: enforce\ntools: {default: deny, allow: [a]}\n");
    let text = stdout(&place.policy(&["check", "aa.yaml"]));
    assert!(text.contains("assay-ai's shape") && text.contains("--profile guard"), "{text}");
    // A directory that is a link never matches; that is said.
    fs::create_dir(place.at("real")).unwrap();
    std::os::unix::fs::symlink(place.at("real"), place.at("link")).unwrap();
    let link = place.at("link");
    place.file(
        "links.yaml",
        &format!(
            "version: \"1\"\ndefault: allow\nconstraints: {{a: {{allowed_paths: [\"{}/**\"]}}}}\n",
            link.display()
        ),
    );
    let text = stdout(&place.policy(&["check", "links.yaml"]));
    assert!(text.contains("will not match"), "{text}");
    // What is compiled late is found by check.
    let many: String = (0..320).map(|n| format!("  t{n}: {{deny_patterns: [a]}}\n")).collect();
    place.file("big.yaml", &format!("version: \"1\"\ndefault: allow\nconstraints:\n{many}  big: {{deny_patterns: ['((\\w{{100}}){{100}}){{100}}']}}\n"));
    let out = place.policy(&["check", "big.yaml"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(stderr(&out).contains("big.yaml:324:1: deny_patterns of `big`"), "{}", stderr(&out));
}

#[test]
fn rules_that_name_nothing_are_said() {
    let place = Place::new();
    place.record(&[], &[echo("a"), echo("b")]);
    let policy = "version: \"1\"\ndefault: deny\nallowlist: [echo, \"e*\", mcp__demo__echo, nope, \"n*\"]\n\
                  denylist: [shell, mcp__demo]\nconstraints:\n  echo: {max_calls: 9}\n  fetch: {deny_private_hosts: true}\n  \
                  mcp__a__b__c: {max_calls: 1}\n";
    place.file("p.yaml", policy);
    let notes = place.json(0, &["check", "p.yaml"])["notes"].to_string();
    for said in ["mcp__demo__echo", "write `echo`", "write `*`", "write `b__c`"] {
        assert!(notes.contains(said), "{said}: {notes}");
    }
    let report = place.json(0, &["dry-run", "p.yaml", "--against", "audit"]);
    let unmatched = json!([
        "denylist[0] (shell)",
        "denylist[1] (mcp__demo)",
        "allowlist[2] (mcp__demo__echo)",
        "allowlist[3] (nope)",
        "allowlist[4] (n*)",
        "constraints.fetch",
        "constraints.mcp__a__b__c"
    ]);
    assert_eq!(report["unmatched"], unmatched);
    assert!(report["notes"].to_string().contains("write `echo`"), "{report}");
    let text = stdout(&place.policy(&["dry-run", "p.yaml", "--against", "audit"]));
    assert!(text.contains("no call had a tool of these names: denylist[0] (shell), "), "{text}");
    place.file("q.yaml", "version: \"1\"\ndefault: deny\nallowlist: [echo]\n");
    let text = stdout(&place.policy(&["dry-run", "q.yaml", "--against", "audit"]));
    assert!(!text.contains("no call had"), "{text}");
}

#[test]
fn nothing_to_read_is_bad_input_and_what_does_not_read_is_said() {
    let place = Place::new();
    place.file("p.yaml", "version: \"1\"\ndefault: allow\n");
    place.file("text.txt", "x\n");
    fs::create_dir(place.at("empty")).unwrap();
    for against in ["none", "empty", "text.txt", "0123456789abcdef"] {
        let doc = place.json(3, &["dry-run", "p.yaml", "--against", against]);
        assert_eq!(doc["status"], "error", "{against}");
    }
    assert_eq!(place.policy(&["dry-run", "p.yaml"]).status.code(), Some(3));
    assert_eq!(place.policy(&[]).status.code(), Some(3));
    let dir = pack(&place, &Plan { calls: 3, ..Plan::default() });
    let receipts = dir.join("receipt_pack.jsonl");
    let mut text = fs::read(&receipts).unwrap();
    text.extend_from_slice(b"\xff\xfe\n{\"type\":7}\n[1]\n{\"type\":\"mcp_tool_call\"}\n{\"type\":\"mcp_tool");
    fs::write(&receipts, text).unwrap();
    let report = place.json(0, &["dry-run", "p.yaml", "--against", dir.to_str().unwrap()]);
    assert_eq!((&report["calls"], &report["unknown"]), (&json!(4), &json!(1)));
    assert!(report["problems"][0].as_str().unwrap().contains("2 lines are no receipts"), "{report}");
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let place = Place::new();
    let dir = pack(&place, &Plan { calls: 2, tools: vec!["\u{1b}[31mred\u{202e}".into()], ..Plan::default() });
    place.file("p.yaml", "version: \"1\"\ndefault: deny\n");
    for args in [
        &["dry-run", "p.yaml", "--against", dir.to_str().unwrap()][..],
        &["init", "--out", "-", "--from", dir.to_str().unwrap()],
    ] {
        let out = place.policy(args);
        let said = stdout(&out) + &stderr(&out);
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    }
}
