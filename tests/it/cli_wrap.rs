//! `assay scan`, `wrap` and `unwrap` from outside, in homes that have files as clients write them.

use assay_support::rig::{Client, INITIALIZE, Rig, call, files, journal, receipts, rig, stderr, stdout};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        process::ExitStatusExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Files as their clients write them, or as people do, below the home.
fn fixtures() -> Vec<(&'static str, String)> {
    let claude = {
        let history: Vec<String> =
            (0..40_000).map(|n| format!("{{\"display\": \"prompt {n} \\\"quoted\\\" {{}} é\", \"n\": {n}}}")).collect();
        format!(
            "{{\n  \"numStartups\": 7,\n  \"mcpServers\": {{\n    \"github\": {{\n      \"type\": \"stdio\",\n      \"command\": \"npx\",\n      \
             \"args\": [\n        \"-y\",\n        \"@x/github\"\n      ],\n      \"env\": {{\n        \"TOKEN\": \"hidden-value\"\n      }}\n    }},\n    \
             \"far\": {{ \"type\": \"http\", \"url\": \"https://example.com/hidden-value\" }}\n  }},\n  \"projects\": {{\n    \"/p\": {{\n      \
             \"history\": [{}],\n      \"mcpServers\": {{\n        \"local\": {{ \"command\": \"node\", \"args\": [] }}\n      }}\n    }}\n  }}\n}}\n",
            history.join(",\n        ")
        )
    };
    assert!(claude.len() > 2_000_000);
    vec![
        ("project/.mcp.json", "{\n  \"mcpServers\": {\n    \"github\": {\n      \"command\": \"uvx\",\n      \"args\": [\"github-mcp\"]\n    }\n  }\n}\n".to_owned()),
        (".claude.json", claude),
        (".config/Claude/claude_desktop_config.json", "{\"mcpServers\":{\"fs\":{\"command\":\"npx\",\"args\":[\"-y\",\"fs\",\"/tmp\"]},\"one\":{\"command\":\"x\"}}}".to_owned()),
        (".cursor/mcp.json", "{\r\n\t\"mcpServers\": {\r\n\t\t\"tabs\": {\r\n\t\t\t\"command\": \"uvx\",\r\n\t\t\t\"args\": [\"mcp-server-git\"],\r\n\t\t\t\"env\": {\"K\": \"hidden-value\"}\r\n\t\t}\r\n\t}\r\n}".to_owned()),
        (".config/Code/User/mcp.json", "{\n  // servers of this machine\n  \"inputs\": [{\"id\": \"k\", \"type\": \"promptString\", \"password\": true}],\n  \"servers\": {\n    /* the first */\n    \"code\": {\n      \"type\": \"stdio\",\n      \"command\": \"npx\", // runs it\n      \"args\": [\n        \"-y\", // yes\n        \"pkg\",\n      ],\n      \"env\": {\"KEY\": \"${input:k}\"},\n    },\n  },\n}\n".to_owned()),
        (".config/zed/settings.json", "// Zed settings\n//\n{\n  \"theme\": \"One Dark\",\n  \"buffer_font_size\": 14.0,\n  \"context_servers\": {\n    \"old\": {\"command\": {\"path\": \"/bin/srv\", \"args\": [\"a\"], \"env\": {}}, \"settings\": {}},\n    \"new\": {\"source\": \"custom\", \"command\": \"srv\", \"args\": [], \"env\": {}},\n    \"ext\": {\"source\": \"extension\", \"settings\": {}},\n  },\n  \"languages\": {\"Rust\": {\"tab_size\": 4}},\n}\n".to_owned()),
        (".config/opencode/opencode.json", "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"mcp\": {\n    \"ctx\": {\n      \"type\": \"local\",\n      \"command\": [\"npx\", \"-y\", \"ctx\"],\n      \"enabled\": true\n    },\n    // \"off\": {\n    //   \"command\": [\"x\"]\n    // },\n    \"bare\": { \"type\": \"local\", \"command\": [\"srv\"], \"environment\": {\"A\": \"hidden-value\"} }\n  }\n}\n".to_owned()),
        (".codex/config.toml", "model = \"o\" # [mcp_servers.fake]\n\n[mcp_servers.tab]\ncommand = \"npx\"\nargs = [\n  \"-y\",\n  # why\n  \"tab\",\n]\nenv = { \"K\" = \"hidden-value\" }\n\n[mcp_servers.\"q u\"]\ncommand = 'C:\\srv'\nenabled = false\n\n[mcp_servers.\"q u\".env]\nA = \"hidden-value\"\n\n[profiles.x]\nmodel = \"y\"\n".to_owned()),
        (".gemini/settings.json", "{\n    // mine\n    \"mcpServers\": {\"g\": {\"command\": \"python\", \"args\": [\"s.py\"], \"cwd\": \"/srv\", \"timeout\": 1000}}\n}\n".to_owned()),
        (".config/goose/config.yaml", "GOOSE_MODEL: x\nextensions:\n  developer:\n    bundled: true\n    enabled: true\n    name: developer\n    type: builtin\n  fetch:\n    args:\n    - mcp-server-fetch\n    available_tools: []\n    cmd: uvx\n    enabled: true\n    env_keys: []\n    envs:\n      K: hidden-value\n    name: fetch\n    timeout: 300\n    type: stdio\n  none:\n    cmd: srv\n    type: stdio\nGOOSE_PROVIDER: y\n".to_owned()),
        (".continue/config.yaml", "name: mine\nversion: 1.0.0\nmcpServers:\n  - name: sql\n    command: npx # run\n    args:\n      - -y\n      - \"sql: lite\"\n  - name: bare\n    command: srv\n".to_owned()),
        (".lmstudio/mcp.json", "\u{feff}{\"mcpServers\": {\"m\": {\"command\": \"n\\u0070x\", \"args\": [\"\\u0061\", \"日本\"]}}}".to_owned()),
    ]
}

/// A home with these files.
fn home() -> (Rig, Vec<(PathBuf, String)>) {
    let rig = rig!();
    let mut there = Vec::new();
    for (path, text) in fixtures() {
        let path = rig.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
        there.push((path, text));
    }
    (rig, there)
}

pub fn in_project(rig: &Rig, args: &[&str]) -> Output {
    let path = format!("{}:/usr/bin:/bin", Path::new(rig.assay).parent().unwrap().display());
    let mut program = rig.program(args);
    program.current_dir(rig.at("project")).env("PATH", path).env_remove("XDG_CONFIG_HOME");
    program.env_remove("CODEX_HOME").env_remove("COPILOT_HOME");
    program.output().unwrap()
}

pub fn document(rig: &Rig, code: i32, args: &[&str]) -> Value {
    let out = in_project(rig, &[args, &["--json"]].concat());
    assert_eq!(out.status.code(), Some(code), "{args:?}: {}{}", stdout(&out), stderr(&out));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn states(scan: &Value) -> Vec<(String, String)> {
    let servers = scan["clients"].as_array().unwrap().iter().flat_map(|client| client["servers"].as_array().unwrap());
    let text = |server: &Value, key: &str| server[key].as_str().unwrap().to_owned();
    servers.map(|server| (text(server, "name"), text(server, "state"))).collect()
}

#[test]
fn every_byte_of_every_client_comes_back_and_no_secret_is_printed() {
    let (rig, there) = home();
    let before = document(&rig, 1, &["scan"]);
    assert_eq!(before["schema"], "assay.scan.v1");
    assert_eq!((&before["summary"]["recorded"], &before["summary"]["disabled"]), (&json!(0), &json!(1)));
    let assay = ["--assay", rig.assay];
    let shown = in_project(&rig, &[&["wrap", "--all", "--dry-run"][..], &assay].concat());
    assert_eq!(shown.status.code(), Some(1), "{}", stderr(&shown));
    for (path, text) in &there {
        assert_eq!(fs::read_to_string(path).unwrap(), *text, "a dry run wrote");
    }
    let done = in_project(&rig, &[&["wrap", "--all", "--yes"][..], &assay].concat());
    assert_eq!(done.status.code(), Some(0), "{}{}", stdout(&done), stderr(&done));
    let listed = in_project(&rig, &["scan"]);
    for out in [&shown, &done, &listed] {
        assert!(!stdout(out).contains("hidden-value") && !stderr(out).contains("hidden-value"), "{}", stdout(out));
    }
    assert!(stdout(&shown).contains("+      \"command\": \"") && stdout(&done).contains("restart "));
    let after = document(&rig, 0, &["scan"]);
    let (was, is) = (states(&before), states(&after));
    assert_eq!(was.len(), is.len());
    for ((name, was), (same, is)) in was.iter().zip(&is) {
        assert_eq!(name, same);
        match was.as_str() {
            "unrecorded" => assert_eq!(is, "recorded", "{name}"),
            other => assert_eq!(is, other, "{name}"),
        }
    }
    // Again changes nothing, and a strict scan says what is remote.
    let wrapped: Vec<String> = there.iter().map(|(path, _)| fs::read_to_string(path).unwrap()).collect();
    let again = document(&rig, 0, &[&["wrap", "--all", "--yes"][..], &assay].concat());
    assert!(again["files"].as_array().unwrap().iter().all(|file| file["changed"] == false), "{again}");
    let unchanged: Vec<String> = there.iter().map(|(path, _)| fs::read_to_string(path).unwrap()).collect();
    assert!(wrapped == unchanged);
    document(&rig, 1, &["scan", "--strict"]);
    let undone = document(&rig, 0, &["unwrap", "--all", "--yes"]);
    assert_eq!(undone["command"], "unwrap");
    for (path, text) in &there {
        assert!(fs::read_to_string(path).unwrap() == *text, "{}", path.display());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    }
    assert_eq!(document(&rig, 1, &["scan"]), before);
    let backups = files(&rig.at("home/backups"), |_| true);
    assert_eq!(backups.len(), 2 * there.len());
    assert!(backups.iter().all(|path| path.metadata().unwrap().permissions().mode() & 0o777 == 0o600));
}

#[test]
fn a_flag_that_differs_replaces_our_part_alone() {
    let (rig, _) = home();
    let assay = ["--yes", "--assay", rig.assay];
    let config = rig.at(".cursor/mcp.json");
    let old = fs::read_to_string(&config).unwrap();
    document(&rig, 0, &[&["wrap", "tabs"][..], &assay].concat());
    assert!(rig.run(&["policy", "init", "--out", "p.yaml"]).status.success());
    let policy = rig.at("p.yaml");
    let policy = policy.to_str().unwrap();
    let guard = ["wrap", "tabs", "--yes", "--profile", "guard", "--policy", policy];
    let report = document(&rig, 0, &guard);
    assert_eq!(report["files"][0]["entries"][0]["action"], "rewrapped");
    let scan = document(&rig, 0, &["scan", "--client", "cursor"]);
    let server = &scan["clients"][0]["servers"][0];
    assert_eq!(
        (&server["state"], &server["wrapped"]["profile"], &server["wrapped"]["server_id"]),
        (&json!("guarded"), &json!("guard"), &json!("tabs"))
    );
    assert_eq!((&server["program"], &server["package"]), (&json!("uvx"), &json!("mcp-server-git")));
    assert_eq!(document(&rig, 0, &guard)["files"][0]["changed"], false);
    // The program is gone: stale, and wrapping again mends it.
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(rig.assay, "/gone/assay")).unwrap();
    assert_eq!(document(&rig, 1, &["scan", "--client", "cursor"])["summary"]["stale"], 1);
    let script = rig.at("assay");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&config, text.replace(rig.assay, script.to_str().unwrap())).unwrap();
    assert_eq!(document(&rig, 1, &["scan", "--client", "cursor"])["summary"]["stale"], 1);
    document(&rig, 0, &[&["wrap", "tabs"][..], &assay].concat());
    assert_eq!(document(&rig, 0, &["scan", "--client", "cursor"])["summary"]["guarded"], 1);
    document(&rig, 0, &["unwrap", "tabs", "--yes"]);
    assert_eq!(fs::read_to_string(&config).unwrap(), old);
}

#[test]
fn bad_input_leaves_every_file_and_says_what_to_do() {
    let (rig, there) = home();
    let assay = rig.assay;
    for (args, code, said) in [
        (&["wrap"][..], 3, "no server is named"),
        (&["wrap", "--all"], 3, "nobody can be asked"),
        (&["wrap", "nobody", "--yes"], 3, "no server is called nobody"),
        (&["wrap", "github", "--yes"], 3, "--client claude-code --scope user"),
        (&["wrap", "g", "--yes"], 1, "is in a build directory"),
        (&["wrap", "far", "--yes", "--assay", assay], 1, "reached by a URL"),
        (&["wrap", "ext", "--yes", "--assay", assay], 1, "part of the client"),
        (&["wrap", "g", "--yes", "--profile", "guard"], 3, "needs --policy"),
        (&["wrap", "g", "--yes", "--policy", "none.yaml"], 3, "none.yaml"),
        (&["wrap", "g", "--yes", "--assay", "/bin/sh"], 3, "must be called assay"),
        (&["wrap", "g", "--yes", "--audit-dir", "repo:../x"], 3, "below the repository"),
        (&["wrap", "--all", "--yes", "--server-id", "x"], 3, "names one server"),
        (&["wrap", "tabs", "--yes", "--assay", assay, "--audit-dir", "/a b"], 1, "splits arguments at blanks"),
        (&["wrap", "--client", "nobody"], 3, "expected one of claude-desktop"),
        (&["wrap", "g", "--yes", "--file", "none.json"], 3, "there is no such file"),
        (&["scan", "nowhere"], 3, "nowhere"),
        (&["unwrap", "g", "--yes"], 0, "nothing to unwrap"),
    ] {
        let out = in_project(&rig, args);
        let all = stdout(&out) + &stderr(&out);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {all}");
        assert!(all.contains(said), "{args:?}: {all}");
    }
    for (path, text) in &there {
        assert!(fs::read_to_string(path).unwrap() == *text, "{}", path.display());
    }
}

#[test]
fn files_that_cannot_be_read_are_named_with_their_place_and_left() {
    let rig = rig!();
    fs::create_dir_all(rig.at("project")).unwrap();
    for (name, bytes, said) in [
        ("a.json", &b"{\"mcpServers\": {\n  \"a\": {\"command\": \"x\",, }}}"[..], "line 2, column 24"),
        ("b.json", b"[1]", "where an object belongs"),
        ("c.json", b"{\"mcpServers\": 7}", "where an object with servers belongs"),
        ("d.json", b"\xff\xfe{\0}\0", "UTF-16"),
        ("e.json", b"{\"mcpServers\": {\"a\": \"\xff\"}}", "not UTF-8"),
        ("f.yaml", b"mcpServers: []\n---\nmcpServers: []\n", "second YAML document"),
        ("g.toml", b"[mcp_servers.a]\ncommand = \"x\"\ncommand = \"y\"\n", "line 3"),
        ("h.yaml", b"mcpServers:\n- name: a\n  command: [\n", "not YAML"),
        ("i.json", b"{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}", "longer than 64 MiB"),
    ] {
        let large = name == "i.json";
        fs::write(rig.at(name), bytes).unwrap();
        let path = rig.at(name);
        if large {
            // Blanks to the end, which take no room.
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len((64 << 20) + 1).unwrap();
        }
        let out = in_project(&rig, &["wrap", "--all", "--yes", "--assay", rig.assay, "--file", path.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(2), "{name}: {}{}", stdout(&out), stderr(&out));
        assert!(stderr(&out).contains(said), "{name}: {}", stderr(&out));
        assert!(fs::read(rig.at(name)).unwrap().starts_with(bytes));
        assert!(large || fs::read(rig.at(name)).unwrap() == bytes);
    }
    // What the client would refuse is said, and nothing is written into it.
    fs::create_dir(rig.at(".cursor")).unwrap();
    let strict = "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}} // mine\n";
    fs::write(rig.at(".claude.json"), strict).unwrap();
    let scan = document(&rig, 1, &["scan"]);
    let file = scan["clients"]
        .as_array()
        .unwrap()
        .iter()
        .find(|file| file["scope"] == "user" && file["client"] == "claude-code");
    assert_eq!(
        file.unwrap()["problems"][0],
        json!({"kind": "client_rejects_file", "line": 1, "column": 41, "message": "a comment"})
    );
    let out = in_project(&rig, &["wrap", "a", "--yes", "--assay", rig.assay]);
    assert_eq!(out.status.code(), Some(2), "{}", stdout(&out));
    assert!(stderr(&out).contains("Claude Code refuses this file"), "{}", stderr(&out));
    assert_eq!(fs::read_to_string(rig.at(".claude.json")).unwrap(), strict);
    // Nothing at all is no failure, and it is said where it was looked for.
    fs::remove_file(rig.at(".claude.json")).unwrap();
    let out = in_project(&rig, &["scan"]);
    assert!(out.status.success() && stdout(&out).contains("~/.cursor/mcp.json"), "{}", stdout(&out));
}

#[test]
fn what_claude_code_has_in_other_files_is_named_and_what_is_left_says_what_to_write() {
    let rig = rig!();
    fs::create_dir_all(rig.at("project/.git")).unwrap();
    let server = |program: &str| json!({"fs": {"command": program, "args": []}});
    let project = rig.at("project").display().to_string();
    let user = json!({"mcpServers": server("one"), "projects": {
        &project: {"mcpServers": server("two")}, "/elsewhere": {"mcpServers": server("three")}}});
    fs::write(rig.at(".claude.json"), user.to_string()).unwrap();
    fs::write(rig.at("project/.mcp.json"), json!({"mcpServers": server("four")}).to_string()).unwrap();
    let warnings = |report: &Value, file: &str| -> Vec<String> {
        let files = report["files"].as_array().unwrap().iter();
        let of_file = files.filter(|one| one["file"].as_str().unwrap().ends_with(file));
        let entries = of_file.flat_map(|one| one["entries"].as_array().unwrap());
        let all = entries.flat_map(|entry| entry["warnings"].as_array().unwrap());
        all.map(|said| said.as_str().unwrap().to_owned()).filter(|said| said.contains("conflicting scopes")).collect()
    };
    let assay = ["--yes", "--assay", rig.assay];
    let all = document(&rig, 1, &["wrap", "--all", "--dry-run", "--assay", rig.assay]);
    assert_eq!(warnings(&all, ".mcp.json").len() + warnings(&all, ".claude.json").len(), 0, "{all}");
    let report = document(&rig, 0, &[&["wrap", "fs", "--scope", "user"][..], &assay].concat());
    let said = warnings(&report, ".claude.json");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said.iter().any(|one| one.contains("project/.mcp.json, too (--scope project)")), "{said:?}");
    assert!(said.iter().any(|one| one.contains("(--scope local)")), "{said:?}");
    document(&rig, 0, &[&["wrap", "fs", "--scope", "local"][..], &assay].concat());
    let last = document(&rig, 0, &[&["wrap", "fs", "--scope", "project"][..], &assay].concat());
    assert_eq!(warnings(&last, ".mcp.json").len(), 0, "{last}");
    // What cannot be changed without changing more.
    fs::create_dir_all(rig.at(".config/goose")).unwrap();
    fs::write(rig.at(".config/goose/config.yaml"), "extensions:\n  g: &g\n    cmd: x\n    type: stdio\n").unwrap();
    let out = in_project(&rig, &[&["wrap", "g"][..], &assay].concat());
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    let by_hand = format!("in front of its command belongs: {} mcp-proxy --audit-dir ", rig.assay);
    assert!(stdout(&out).contains(&by_hand) && stdout(&out).contains("--server-id g --"), "{}", stdout(&out));
}

#[test]
fn a_project_records_below_its_root_wherever_the_client_was_started() {
    let rig = rig!();
    let sub = rig.at("project/a/b");
    fs::create_dir_all(&sub).unwrap();
    fs::create_dir(rig.at("project/.git")).unwrap();
    let config = rig.at("project/.mcp.json");
    let server = json!({"mcpServers": {"the server": {"command": rig.assay, "args": ["demo-server"]}}});
    fs::write(&config, server.to_string()).unwrap();
    let report = document(&rig, 0, &["wrap", "the server", "--yes", "--scope", "project"]);
    assert_eq!(report["files"][0]["entries"][0]["action"], "wrapped");
    let now: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    let entry = &now["mcpServers"]["the server"];
    assert_eq!(entry["command"], "assay");
    let scan = document(&rig, 0, &["scan", "--scope", "project", "--strict"]);
    let id = scan["clients"][0]["servers"][0]["wrapped"]["server_id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("the-server-"), "{id}");
    let args: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let mut program = rig.program(&args);
    program.current_dir(&sub);
    let mut client = Client::start(program);
    client.send(INITIALIZE);
    client.send(&call(1, "echo", 1));
    client.await_lines(2);
    assert!(client.end().success(), "{}", client.said());
    let text = fs::read_to_string(journal(&receipts(&rig.at("project/.assay/mcp"))[0])).unwrap();
    assert!(text.contains(&format!("\"server_id\":\"{id}\"")), "{text}");
    assert!(!sub.join(".assay").exists());
}

#[test]
fn findings_are_written_for_code_scanning() {
    let rig = rig!();
    fs::create_dir_all(rig.at("project/.git")).unwrap();
    fs::create_dir_all(rig.at("project/x y")).unwrap();
    fs::write(
        rig.at("project/x y/.mcp.json"),
        "{\"mcpServers\": {\n \"a\": {\"command\": \"x\"}, \"r\": {\"type\": \"http\", \"url\": \"u\"}}}",
    )
    .unwrap();
    let args = ["scan", "x y", "--scope", "project", "--strict", "--sarif", "out.sarif"];
    let out = in_project(&rig, &args);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    let log: Value = serde_json::from_slice(&fs::read(rig.at("project/out.sarif")).unwrap()).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.iter().map(|r| r["ruleId"].as_str().unwrap()).collect::<Vec<_>>(), ["unrecorded", "remote"]);
    let place = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "x%20y/.mcp.json");
    assert_eq!(place["region"], json!({"startLine": 2, "startColumn": 2}));
}

/// Everything that changes what lies on disk.
const CALLS: [&str; 9] = ["write", "openat", "fsync", "rename", "unlink", "mkdir", "fchmod", "flock", "ftruncate"];

/// `strace` with this fault at the nth of these calls, before the program.
pub fn behind(rig: &Rig, fault: &str, args: &[&str]) -> Output {
    let mut command = rig.command("strace");
    let trace = format!("trace={}", fault.split(':').next().unwrap());
    command
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &format!("inject={fault}"), rig.assay])
        .args(args);
    command.current_dir(rig.at("project")).env_remove("XDG_CONFIG_HOME").output().unwrap()
}

#[test]
fn killed_at_any_step_the_file_is_the_old_one_or_the_new_one_and_what_it_was_is_kept() {
    if Command::new("strace").arg("-V").output().is_err() {
        return;
    }
    let rig = rig!();
    fs::create_dir_all(rig.at("project")).unwrap();
    fs::create_dir_all(rig.at("dotfiles")).unwrap();
    let (link, config) = (rig.at(".cursor/mcp.json"), rig.at("dotfiles/mcp.json"));
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    let old = "{\"mcpServers\": {\"a\": {\"command\": \"x\", \"args\": [\"y\"]}}}\n";
    symlink(&config, &link).unwrap();
    let wrap = ["wrap", "a", "--yes", "--assay", rig.assay];
    fs::write(&config, old).unwrap();
    assert!(in_project(&rig, &wrap).status.success());
    let new = fs::read_to_string(&config).unwrap();
    let (mut killed, mut replaced) = (0, 0);
    for call in CALLS {
        for n in 1..200 {
            fs::write(&config, old).unwrap();
            let _ = fs::remove_dir_all(rig.at("home/backups"));
            let out = behind(&rig, &format!("{call}:signal=SIGKILL:when={n}"), &wrap);
            let now = fs::read_to_string(&config).unwrap();
            assert!(now == old || now == new, "{call} {n}: {now}");
            assert!(link.symlink_metadata().unwrap().is_symlink());
            if now == new {
                let backups = files(&rig.at("home/backups"), |_| true);
                assert_eq!(fs::read_to_string(&backups[0]).unwrap(), old, "{call} {n}");
                replaced += 1;
            }
            if out.status.signal() != Some(9) && out.status.code() == Some(0) {
                break;
            }
            killed += 1;
        }
        // What a killed run left is no hindrance, and does not stay.
        fs::write(&config, old).unwrap();
        assert!(in_project(&rig, &wrap).status.success());
        assert_eq!(files(&rig.at("dotfiles"), |_| true), std::slice::from_ref(&config), "{call}");
    }
    assert!(killed > 20 && replaced > CALLS.len(), "{killed} {replaced}");
}

#[test]
fn a_full_disk_leaves_the_file_and_is_said() {
    if Command::new("strace").arg("-V").output().is_err() {
        return;
    }
    let rig = rig!();
    fs::create_dir_all(rig.at("project")).unwrap();
    fs::create_dir_all(rig.at(".cursor")).unwrap();
    let config = rig.at(".cursor/mcp.json");
    let old = "{\"mcpServers\": {\"a\": {\"command\": \"x\", \"args\": [\"y\"]}}}\n";
    fs::write(&config, old).unwrap();
    let wrap = ["wrap", "a", "--yes", "--assay", rig.assay];
    let mut kept = 0;
    for call in ["fsync", "fdatasync", "write"] {
        for n in 1..=8 {
            fs::write(&config, old).unwrap();
            let out = behind(&rig, &format!("{call}:error=ENOSPC:when={n}"), &wrap);
            let now = fs::read_to_string(&config).unwrap();
            let is_new = now.contains("--wrapped=1") && now.ends_with("\"y\"]}}}\n");
            assert!(now == old || is_new, "{call} {n}: {now}");
            assert!(matches!(out.status.code(), Some(0 | 2)), "{call} {n}: {}", stderr(&out));
            if now == old {
                assert_eq!(out.status.code(), Some(2), "{call} {n}: {}", stdout(&out));
                kept += 1;
            }
        }
    }
    assert!(kept >= 4, "{kept}");
}

#[test]
fn names_with_every_odd_character_are_wrapped_and_come_back() {
    let rig = rig!();
    fs::create_dir_all(rig.at("project")).unwrap();
    let names = ["a b", "日本", "\u{202e}x", "--all", "x\ny", "\"q\"", "", "../..", ".", "\u{1b}[2J"];
    let servers: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({"command": "x", "args": ["a"]}))).collect();
    let old = serde_json::to_string_pretty(&json!({"mcpServers": servers})).unwrap();
    fs::create_dir_all(rig.at(".cursor")).unwrap();
    fs::write(rig.at(".cursor/mcp.json"), &old).unwrap();
    let out = in_project(&rig, &["wrap", "--all", "--yes", "--assay", rig.assay]);
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    assert!(!stdout(&out).contains(['\u{1b}', '\u{202e}']));
    let scan = document(&rig, 0, &["scan"]);
    assert_eq!(scan["summary"]["recorded"], names.len());
    let listed = stdout(&in_project(&rig, &["scan"]));
    assert!(!listed.contains(['\u{1b}', '\u{202e}']), "{listed}");
    document(&rig, 0, &["unwrap", "--all", "--yes"]);
    assert_eq!(fs::read_to_string(rig.at(".cursor/mcp.json")).unwrap(), old);
}

/// The members in the first table below a heading of the page of formats.
fn documented(heading: &str) -> Vec<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/formats.md")).unwrap();
    let lines = page.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading).skip(1);
    let rows = lines.take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with("| `"));
    let mut names: Vec<String> = rows
        .flat_map(|row| {
            row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn the_documents_are_described_member_by_member_and_the_page_names_every_client() {
    let (rig, _) = home();
    let agree = |heading: &str, value: &Value| {
        let mut members: Vec<&String> = value.as_object().unwrap().keys().collect();
        members.sort();
        assert_eq!(documented(heading).iter().collect::<Vec<_>>(), members, "{heading}");
    };
    let scan = document(&rig, 1, &["scan"]);
    agree("Document `assay.scan.v1`", &scan);
    let file = scan["clients"].as_array().unwrap().iter().find(|file| file["exists"] == true).unwrap();
    agree("Element of `clients`", file);
    agree("Element of `servers`", &file["servers"][0]);
    let wrap = document(&rig, 1, &["wrap", "g", "--dry-run", "--assay", rig.assay]);
    agree("Document `assay.wrap.v1`", &wrap);
    agree("Element of `files` of `assay.wrap.v1`", &wrap["files"][0]);
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/clients.md")).unwrap();
    for client in assay::clients::table::CLIENTS {
        assert!(page.contains(&format!("`{}`", client.id)), "docs/clients.md does not name {}", client.id);
    }
}
