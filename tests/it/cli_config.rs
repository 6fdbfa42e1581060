//! `assay.toml` and `assay config`: what a user's file and a project's say, and who comes first.

use assay_support::rig::{Client, INITIALIZE, Rig, call, journal, receipts as receipts_of, rig, stderr, stdout};
use serde_json::Value;
use std::{
    fs,
    process::{Command, Output},
};

const NO_CONTENT: &str = "\"arguments_content\":null";

/// A user directory and a repository, with these files where there is text.
fn placed(user: &str, project: &str) -> Rig {
    let rig = rig!();
    fs::create_dir_all(rig.at("home")).unwrap();
    fs::create_dir_all(rig.at("project/.git")).unwrap();
    fs::create_dir_all(rig.at("project/sub")).unwrap();
    for (path, text) in [("home/assay.toml", user), ("project/assay.toml", project)] {
        if !text.is_empty() {
            fs::write(rig.at(path), text).unwrap();
        }
    }
    rig
}

fn below(rig: &Rig, args: &[&str]) -> Command {
    let mut program = rig.program(args);
    program.current_dir(rig.at("project/sub"));
    program
}

fn ran(rig: &Rig, args: &[&str]) -> Output {
    below(rig, args).output().unwrap()
}

/// A session with one call; what the proxy said.
fn session(rig: &Rig, flags: &[&str]) -> String {
    let argv = [&["mcp-proxy"], flags, &["--", rig.assay, "demo-server"]].concat();
    let mut client = Client::start(below(rig, &argv));
    client.send(INITIALIZE);
    client.send(&call(1, "echo", 1));
    client.await_lines(2);
    client.end();
    client.said()
}

/// All receipts in an audit directory.
fn receipts(rig: &Rig, dir: &str) -> String {
    receipts_of(&rig.at(dir)).iter().map(|file| fs::read_to_string(journal(file)).unwrap()).collect()
}

#[test]
fn a_users_file_holds_for_every_session_and_the_command_line_comes_first() {
    let rig = placed("[mcp-proxy]\nstore-args = true\naudit-dir = \"evidence\"\npack-interval = \"15m\"\n", "");
    session(&rig, &[]);
    assert!(!receipts(&rig, "home/evidence").contains(NO_CONTENT), "relative to the file, and with arguments");
    session(&rig, &["--audit-dir", "mine"]);
    assert!(!receipts(&rig, "project/sub/mine").contains(NO_CONTENT));
    // What is for HTTP alone does not hinder a command.
    fs::write(rig.at("home/assay.toml"), "[mcp-proxy]\nallow-host = [\"a\", \"b\"]\nio-threads = 2\n").unwrap();
    session(&rig, &["--audit-dir", "plain"]);
    assert!(receipts(&rig, "project/sub/plain").contains(NO_CONTENT));
}

#[test]
fn the_environment_names_the_audit_directory_before_files_and_after_the_command_line() {
    let rig = placed("[mcp-proxy]\naudit-dir = \"evidence\"\nstore-args = true\n", "");
    let proxy = |flags: &[&str]| {
        let argv = [&["mcp-proxy"], flags, &["--", rig.assay, "demo-server"]].concat();
        let mut command = below(&rig, &argv);
        command.env("ASSAY_AUDIT_DIR", "of the environment");
        let mut client = Client::start(command);
        client.send(INITIALIZE);
        client.send(&call(1, "echo", 1));
        client.await_lines(2);
        client.end();
    };
    proxy(&[]);
    assert!(!receipts(&rig, "project/sub/of the environment").contains(NO_CONTENT), "what else the file says holds");
    proxy(&["--audit-dir", "mine"]);
    assert!(receipts(&rig, "project/sub/mine").contains("mcp_tool_call"));
    assert!(!rig.at("home/evidence").exists());
    let shown = |dir: &str| {
        let out = below(&rig, &["config", "--json"]).env("ASSAY_AUDIT_DIR", dir).output().unwrap();
        let document: Value = serde_json::from_slice(&out.stdout).unwrap();
        let all = document["options"].as_array().unwrap();
        let one = all.iter().find(|one| one["name"] == "audit-dir").unwrap();
        (one["value"][0].as_str().unwrap().to_owned(), one["from"].as_str().unwrap().to_owned())
    };
    assert_eq!(shown("a"), ("a".into(), "environment".into()));
    assert_eq!(shown("").1, "user", "an empty one names nothing");
    // What is wrong is not said to come from a file that says nothing.
    fs::remove_file(rig.at("home/assay.toml")).unwrap();
    let out = below(&rig, &["mcp-proxy", "--no-such"]).env("ASSAY_AUDIT_DIR", "a").output().unwrap();
    assert!(!stderr(&out).contains("assay.toml"), "{}", stderr(&out));
}

#[test]
fn a_project_may_demand_more_and_nothing_else() {
    let demand = "[mcp-proxy]\nprofile = \"guard\"\npolicy = \"p.yaml\"\naudit-dir = \"repo:.assay/mcp\"\n";
    let rig = placed("", demand);
    fs::write(rig.at("project/p.yaml"), "version: \"1\"\ndefault: deny\n").unwrap();
    session(&rig, &[]);
    let denied = receipts(&rig, "project/.assay/mcp");
    assert!(denied.contains("\"outcome\":\"denied\"") && denied.contains("\"profile\":\"guard\""), "{denied}");
    // The user's word comes before the project's.
    fs::write(rig.at("home/assay.toml"), "[mcp-proxy]\nprofile = \"audit\"\n").unwrap();
    session(&rig, &[]);
    let forwarded = receipts(&rig, "project/.assay/mcp");
    assert!(forwarded.contains("\"profile\":\"audit\""), "{forwarded}");
    for (line, said) in [
        ("store-args = true", "`store-args` cannot be set by a project"),
        ("path = \"bin\"", "`path` cannot be set by a project"),
        ("audit-dir = \"/tmp/elsewhere\"", "`audit-dir` of a project can only be repo:DIR"),
        ("profile = \"audit\"", "`profile` of a project can only be guard"),
        ("surface = \"off\"", "`surface` of a project can only be enforce"),
        ("surface-rules = \"r.yaml\"", "`surface-rules` cannot be set by a project"),
    ] {
        fs::write(rig.at("project/assay.toml"), format!("# ours\n[mcp-proxy]\n{line}\n")).unwrap();
        let out = ran(&rig, &["mcp-proxy", "--", "true"]);
        assert_eq!(out.status.code(), Some(3), "{line}: {}", stderr(&out));
        assert!(stderr(&out).contains(said) && stderr(&out).contains("assay.toml:3:1: "), "{line}: {}", stderr(&out));
        assert!(!rig.at("project/sub/.assay").exists());
    }
}

#[test]
fn what_a_file_cannot_say_is_named_with_its_place() {
    for (text, said) in [
        ("[mcp-proxy]\nstore-arg = true\n", "assay.toml:2:1: `store-arg` is no option for this file"),
        ("[mcp-proxy]\nlisten = \"127.0.0.1:1\"\n", "`listen` is no option for this file"),
        ("[mcp-proxy]\nserver-id = \"x\"\n", "`server-id` is no option"),
        ("[proxy]\n", "assay.toml:1:2: `proxy` is not known here"),
        ("mcp-proxy = 1\n", "`mcp-proxy` is not a table"),
        ("[mcp-proxy]\nstore-args = \"yes\"\n", "`store-args` is true or false"),
        ("[mcp-proxy]\npack-interval = [\"1m\"]\n", "takes one value, not a list"),
        ("[mcp-proxy]\npack-interval = { m = 1 }\n", "`pack-interval` cannot be"),
        ("[mcp-proxy\n", "line 1"),
        ("[mcp-proxy]\npack-interval = \"soon\"\n", "these come from assay.toml: --pack-interval"),
    ] {
        let rig = placed(text, "");
        let out = ran(&rig, &["mcp-proxy", "--", "true"]);
        assert_eq!(out.status.code(), Some(3), "{text}: {}", stderr(&out));
        assert!(stderr(&out).contains(said), "{text}: {}", stderr(&out));
    }
}

#[test]
fn config_shows_what_is_set_and_by_whom_and_no_secret() {
    let rig = placed(
        "[mcp-proxy]\nstore-results = true\nheader = [\"Authorization: hidden-value\"]\nstore-limit = 4096\n",
        "[mcp-proxy]\npack-interval = \"500r\"\n",
    );
    let out = ran(&rig, &["config"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let text = stdout(&out);
    assert!(!text.contains("hidden-value") && text.contains("(not shown)"), "{text}");
    for (name, from) in [("store-results", "user"), ("store-limit", "user"), ("pack-interval", "project")] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(line.ends_with(from), "{line}");
    }
    assert!(!text.contains("io-threads"), "{text}");
    assert!(stdout(&ran(&rig, &["config", "--all"])).contains("io-threads"));
    let json: Value = serde_json::from_slice(&ran(&rig, &["config", "--json"]).stdout).unwrap();
    assert_eq!(json["schema"], "assay.config.v1");
    let options = json["options"].as_array().unwrap();
    let of = |name: &str| options.iter().find(|option| option["name"] == name).unwrap();
    assert_eq!((&of("pack-interval")["value"][0], &of("pack-interval")["from"]), (&"500r".into(), &"project".into()));
    assert_eq!((&of("io-threads")["value"][0], &of("io-threads")["from"]), (&"1".into(), &"default".into()));
    assert!(!json.to_string().contains("hidden-value"));
    let none = placed("", "");
    assert!(stdout(&ran(&none, &["config"])).contains("nothing sets an option"));
}
