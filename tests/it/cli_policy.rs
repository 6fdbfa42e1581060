//! `assay policy`, run as a user runs it.

use assay_support::{
    rig::{rig, stderr, stdout},
    sessions::Plan,
};
use serde_json::{Value, json};
use std::fs;

fn echo(text: &str) -> Value {
    json!({"name": "echo", "arguments": {"text": text}})
}

/// A policy that judges what `echo` is called with.
const NO_SECRETS: &str = "version: \"1\"\ndefault: allow\nconstraints:\n  echo: {deny_patterns: [secret]}\n";

#[test]
fn from_a_recording_to_a_policy_that_allows_it_and_no_more() {
    let rig = rig!();
    rig.record("audit", &["--store-args"], &[echo("a secret"), echo("b"), json!({"name": "fail"})]);
    let out = rig.run(&["policy", "init", "--from", "audit"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stdout(&out).contains("2 tools of 1 session allowed"), "{}", stdout(&out));
    let text = fs::read_to_string(rig.at("assay.mcp-policy.yaml")).unwrap();
    assert!(text.contains("default: deny") && text.contains("- \"echo\"    # 2 calls"), "{text}");
    let report = rig.json(0, &["policy", "dry-run", "assay.mcp-policy.yaml", "--against", "audit"]);
    assert_eq!((&report["calls"], &report["allowed"], &report["newly_denied"]), (&json!(3), &json!(3), &json!(0)));
    // Nothing is overwritten.
    let again = rig.run(&["policy", "init", "--from", "audit"]);
    assert_eq!(again.status.code(), Some(3));
    assert!(stderr(&again).contains("nothing is overwritten"), "{}", stderr(&again));
    let doc = rig.json(0, &["policy", "init", "--from", "audit"]);
    assert_eq!(doc["tools"], json!({"echo": 2, "fail": 1}));
    let shown = rig.run(&["policy", "init", "--out", "-"]);
    assert!(stdout(&shown).contains("denylist:"), "{}", stdout(&shown));
}

#[test]
fn stored_arguments_are_judged_wherever_they_lie() {
    let rig = rig!();
    // A member name that is not ASCII cannot stand in a pack and is in the investigation log alone.
    let odd = json!({"name": "echo", "arguments": {"é": "the secret"}});
    rig.record("audit", &["--store-args"], &[echo("a secret"), echo("plain"), odd, echo("x")]);
    rig.file("p.yaml", NO_SECRETS);
    let session = rig.receipts().remove(0);
    let id = session.file_stem().unwrap().to_str().unwrap().rsplit('_').next().unwrap().to_owned();
    let pack = fs::read_dir(rig.at("audit/packs")).unwrap().next().unwrap().unwrap().path();
    for against in ["audit", session.to_str().unwrap(), pack.to_str().unwrap(), &id, &format!("mcp_{id}")] {
        let report = rig.json(1, &["policy", "dry-run", "p.yaml", "--audit-dir", "audit", "--against", against]);
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
    rig.as_once();
    // Away from its log, the pack has no more than the hash of one of them.
    fs::rename(&pack, rig.at("moved")).unwrap();
    let report = rig.json(1, &["policy", "dry-run", "p.yaml", "--against", "moved"]);
    assert_eq!(
        (&report["newly_denied"], &report["unknown"], &report["judged_by_hash"]),
        (&json!(1), &json!(1), &json!(1))
    );
    // The same session twice counts once.
    let report = rig.json(1, &["policy", "dry-run", "p.yaml", "--against", "moved", "audit"]);
    assert_eq!((&report["calls"], &report["sessions"], &report["sessions_twice"]), (&json!(4), &json!(1), &json!(1)));
    // A log that was changed is not believed.
    let log = fs::read_dir(rig.at("audit/investigation")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&log).unwrap().replace("the secret", "the public");
    fs::write(&log, text).unwrap();
    let report = rig.json(1, &["policy", "dry-run", "p.yaml", "--against", "audit"]);
    assert_eq!((&report["newly_denied"], &report["unknown"]), (&json!(1), &json!(1)));
    assert!(report["problems"][0].as_str().unwrap().contains("hash"), "{report}");
}

#[test]
fn hashes_alone_are_never_guessed_from() {
    let rig = rig!();
    rig.record("audit", &[], &[echo("a secret"), json!({"name": "echo", "arguments": {}}), json!({"name": "echo"})]);
    rig.file("p.yaml", NO_SECRETS);
    let args = ["policy", "dry-run", "p.yaml", "--against", "audit"];
    let report = rig.json(0, &args);
    // What no arguments hash to is known.
    assert_eq!((&report["allowed"], &report["unknown"]), (&json!(2), &json!(1)));
    assert_eq!(report["rules"][0]["reason"], "arguments_not_stored");
    rig.json(1, &[&args[..], &["--fail-on-unknown"]].concat());
    let text = stdout(&rig.run(&args));
    assert!(
        text.contains("no call is known that would be newly denied") && text.contains("arguments were not stored"),
        "{text}"
    );
    rig.file("deny.yaml", "version: \"1\"\ndefault: deny\n");
    let report = rig.json(1, &["policy", "dry-run", "deny.yaml", "--against", "audit"]);
    assert_eq!((&report["newly_denied"], &report["unknown"]), (&json!(3), &json!(0)));
}

/// A synthetic session's pack, with its receipts changed before it is read.
#[test]
fn budgets_count_within_a_session_and_begin_anew_in_the_next() {
    let rig = rig!();
    for seed in [1, 2] {
        rig.pack(&Plan { seed, calls: 10, ..Plan::default() });
    }
    rig.file("p.yaml", "version: \"1\"\ndefault: allow\nbudget: {max_tool_calls: 8}\n");
    let report = rig.json(1, &["policy", "dry-run", "p.yaml", "--against", "audit"]);
    assert_eq!((&report["sessions"], &report["calls"], &report["newly_denied"]), (&json!(2), &json!(20), &json!(4)));
    assert_eq!(report["rules"][0]["rule"], "budget.max_tool_calls");
    rig.file("p.yaml", "version: \"1\"\ndefault: allow\nbudget: {max_wall_time_sec: 0}\n");
    let report = rig.json(1, &["policy", "dry-run", "p.yaml", "--against", "audit"]);
    assert_eq!(report["rules"][0]["rule"], "budget.max_wall_time_sec");
}

#[test]
fn what_was_denied_before_is_no_news() {
    let rig = rig!();
    let dir = rig.pack(&Plan { calls: 4, tools: vec!["a".into(), "b".into()], ..Plan::default() });
    let receipts = dir.join("receipt_pack.jsonl");
    let text = fs::read_to_string(&receipts).unwrap();
    fs::write(&receipts, text.replace("\"policy_verdict\":\"no_policy\"", "\"policy_verdict\":\"denied\"")).unwrap();
    rig.file("p.yaml", "version: \"1\"\ndefault: deny\nallowlist: [a]\n");
    let report = rig.json(0, &["policy", "dry-run", "p.yaml", "--against", dir.to_str().unwrap()]);
    assert_eq!(
        (&report["denied"], &report["newly_denied"], &report["newly_allowed"]),
        (&json!(2), &json!(0), &json!(2))
    );
    let text = stdout(&rig.run(&["policy", "dry-run", "p.yaml", "--against", dir.to_str().unwrap()]));
    assert!(
        text.contains("2 that were denied would now be allowed") && text.contains("2 were denied and still would be"),
        "{text}"
    );
    // A policy made from it allows nothing.
    let doc = rig.json(0, &["policy", "init", "--from", dir.to_str().unwrap()]);
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
    let rig = rig!();
    let dir =
        rig.pack(&Plan { calls: names.len() as u64, tools: names.map(str::to_owned).to_vec(), ..Plan::default() });
    let out = rig.run(&["policy", "init", "--from", dir.to_str().unwrap(), "--out", "p.yaml"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let report = rig.json(0, &["policy", "dry-run", "p.yaml", "--against", dir.to_str().unwrap()]);
    assert_eq!(report["allowed"], json!(names.len()), "{}", fs::read_to_string(rig.at("p.yaml")).unwrap());
    // And the globs among them mean themselves.
    rig.file("other.yaml", &fs::read_to_string(rig.at("p.yaml")).unwrap());
    let tools = ["starfish", "whatX", "bra", "a", "anything"].map(str::to_owned).to_vec();
    let other = rig.pack(&Plan { seed: 9, calls: 5, tools, ..Plan::default() });
    let report = rig.json(1, &["policy", "dry-run", "p.yaml", "--against", other.to_str().unwrap()]);
    assert_eq!(report["denied"], json!(5));
}

#[test]
fn check_says_what_a_policy_does_or_where_it_is_wrong() {
    let rig = rig!();
    rig.file(
        "good.yaml",
        "version: \"1\"\ndefault: deny\nallowlist: [a]\ndenylist: [b]\nconstraints:\n  a: {max_calls: 3}\nbudget: {max_tool_calls: 9}\n",
    );
    let text = stdout(&rig.run(&["policy", "check", "good.yaml"]));
    for words in
        ["1. always denied: b", "2. a: denied unless fewer than 3", "allowed: a", "every other tool: denied", "after 9"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let doc = rig.json(0, &["policy", "check", "good.yaml"]);
    assert_eq!(
        (&doc["default"], &doc["shape"], &doc["constraints"][0]["keys"]),
        (&json!("deny"), &json!("native"), &json!(["max_calls"]))
    );
    rig.file("bad.yaml", "version: \"1\"\ndefault: deny\nalowlist: [a]\n");
    for command in [&["policy", "check", "bad.yaml"][..], &["policy", "dry-run", "bad.yaml", "--against", "."]] {
        let out = rig.run(command);
        assert_eq!(out.status.code(), Some(3));
        let said = stderr(&out);
        assert!(said.contains("bad.yaml:3:1: unknown key `alowlist`\n  3 | alowlist: [a]\n    | ^^^^^^^^\n"), "{said}");
        assert!(said.contains("did you mean `allowlist`?"), "{said}");
        let doc = rig.json(3, command);
        assert_eq!((&doc["line"], &doc["column"]), (&json!(3), &json!(1)));
    }
    for (file, words) in [(".", "it is a directory"), ("nothing.yaml", "assay policy init")] {
        let out = rig.run(&["policy", "check", file]);
        assert_eq!(out.status.code(), Some(3));
        assert!(stderr(&out).contains(words), "{}", stderr(&out));
    }
    rig.file("aa.yaml", "mode: enforce\ntools: {default: deny, allow: [a]}\n");
    let text = stdout(&rig.run(&["policy", "check", "aa.yaml"]));
    assert!(text.contains("assay-ai's shape") && text.contains("--profile guard"), "{text}");
    // A directory that is a link never matches; that is said.
    fs::create_dir(rig.at("real")).unwrap();
    std::os::unix::fs::symlink(rig.at("real"), rig.at("link")).unwrap();
    let link = rig.at("link");
    rig.file(
        "links.yaml",
        &format!(
            "version: \"1\"\ndefault: allow\nconstraints: {{a: {{allowed_paths: [\"{}/**\"]}}}}\n",
            link.display()
        ),
    );
    let text = stdout(&rig.run(&["policy", "check", "links.yaml"]));
    assert!(text.contains("never matches"), "{text}");
    // What is compiled late is found by check.
    let many: String = (0..320).map(|n| format!("  t{n}: {{deny_patterns: [a]}}\n")).collect();
    rig.file("big.yaml", &format!("version: \"1\"\ndefault: allow\nconstraints:\n{many}  big: {{deny_patterns: ['((\\w{{100}}){{100}}){{100}}']}}\n"));
    let out = rig.run(&["policy", "check", "big.yaml"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(stderr(&out).contains("big.yaml:324:1: deny_patterns of `big`"), "{}", stderr(&out));
}

#[test]
fn rules_that_name_nothing_are_said() {
    let rig = rig!();
    rig.record("audit", &[], &[echo("a"), echo("b")]);
    let policy = "version: \"1\"\ndefault: deny\nallowlist: [echo, \"e*\", mcp__demo__echo, nope, \"n*\"]\n\
                  denylist: [shell, mcp__demo]\nconstraints:\n  echo: {max_calls: 9}\n  fetch: {deny_private_hosts: true}\n  \
                  mcp__a__b__c: {max_calls: 1}\n";
    rig.file("p.yaml", policy);
    let notes = rig.json(0, &["policy", "check", "p.yaml"])["notes"].to_string();
    for said in ["mcp__demo__echo", "write `echo`", "write `*`", "write `b__c`"] {
        assert!(notes.contains(said), "{said}: {notes}");
    }
    let report = rig.json(0, &["policy", "dry-run", "p.yaml", "--against", "audit"]);
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
    let text = stdout(&rig.run(&["policy", "dry-run", "p.yaml", "--against", "audit"]));
    assert!(text.contains("no call had a tool with these names: denylist[0] (shell), "), "{text}");
    rig.file("q.yaml", "version: \"1\"\ndefault: deny\nallowlist: [echo]\n");
    let text = stdout(&rig.run(&["policy", "dry-run", "q.yaml", "--against", "audit"]));
    assert!(!text.contains("no call had"), "{text}");
}

#[test]
fn nothing_to_read_is_bad_input_and_what_does_not_read_is_said() {
    let rig = rig!();
    rig.file("p.yaml", "version: \"1\"\ndefault: allow\n");
    rig.file("text.txt", "x\n");
    fs::create_dir(rig.at("empty")).unwrap();
    for against in ["none", "empty", "text.txt", "0123456789abcdef"] {
        let doc = rig.json(3, &["policy", "dry-run", "p.yaml", "--against", against]);
        assert_eq!(doc["status"], "error", "{against}");
    }
    assert_eq!(rig.run(&["policy", "dry-run", "p.yaml"]).status.code(), Some(3));
    assert_eq!(rig.run(&["policy"]).status.code(), Some(3));
    let dir = rig.pack(&Plan { calls: 3, ..Plan::default() });
    let receipts = dir.join("receipt_pack.jsonl");
    let mut text = fs::read(&receipts).unwrap();
    text.extend_from_slice(b"\xff\xfe\n{\"type\":7}\n[1]\n{\"type\":\"mcp_tool_call\"}\n{\"type\":\"mcp_tool");
    fs::write(&receipts, text).unwrap();
    let report = rig.json(0, &["policy", "dry-run", "p.yaml", "--against", dir.to_str().unwrap()]);
    assert_eq!((&report["calls"], &report["unknown"]), (&json!(4), &json!(1)));
    assert!(report["problems"][0].as_str().unwrap().contains("2 lines are not receipts"), "{report}");
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let rig = rig!();
    let dir = rig.pack(&Plan { calls: 2, tools: vec!["\u{1b}[31mred\u{202e}".into()], ..Plan::default() });
    rig.file("p.yaml", "version: \"1\"\ndefault: deny\n");
    for args in [
        &["policy", "dry-run", "p.yaml", "--against", dir.to_str().unwrap()][..],
        &["policy", "init", "--out", "-", "--from", dir.to_str().unwrap()],
    ] {
        let out = rig.run(args);
        let said = stdout(&out) + &stderr(&out);
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    }
}
