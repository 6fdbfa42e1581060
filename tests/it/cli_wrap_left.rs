//! What `assay wrap` leaves alone, and what it warns of; and clients and other runs that write at the same time.

use super::cli_wrap::{document, in_project};
use assay_support::rig::{Client, INITIALIZE, Rig, call, rig, stderr, stdout, until};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt as _, process::Output, thread};

fn place(rig: &Rig, path: &str, text: &str) {
    fs::create_dir_all(rig.at(path).parent().unwrap()).unwrap();
    fs::write(rig.at(path), text).unwrap();
}

/// A rig with a project in a repository.
fn with_project() -> Rig {
    let rig = rig!();
    fs::create_dir_all(rig.at("project/.git")).unwrap();
    rig
}

fn wrap(rig: &Rig, args: &[&str]) -> Output {
    in_project(rig, &[&["wrap"], args, &["--yes", "--assay", rig.assay]].concat())
}

fn of(command: &str) -> String {
    json!({"mcpServers": {"s": {"command": command, "args": ["a"]}}}).to_string()
}

const DESKTOP: &str = ".config/Claude/claude_desktop_config.json";
const PLUGIN: &str = ".claude/plugins/cache/market/plugin/1.0/.mcp.json";
const CODEX: &str = ".codex/config.toml";

#[test]
fn what_would_mean_something_else_or_is_somebody_elses_is_left_with_the_reason() {
    let generated = "# Made by a tool. DO NOT EDIT.\n[mcp_servers.s]\ncommand = \"x\"\n";
    for (path, text, why) in [
        (".cursor/mcp.json", of("npx -y server"), "its command is a whole line"),
        (DESKTOP, of("${HOME}/bin/server"), "has a variable, and Claude Desktop is not known to resolve those"),
        (DESKTOP, of("~/bin/server"), "has a variable"),
        (".copilot/mcp-config.json", of("$HOME/server"), "by hand: assay mcp-proxy -- sh -c 'exec $HOME/server'"),
        (PLUGIN, of("x"), "an administrator or a plugin brought this file; --force"),
        (CODEX, generated.to_owned(), "the file is generated; change what it is made from: put assay mcp-proxy --"),
    ] {
        let rig = with_project();
        place(&rig, path, &text);
        let out = wrap(&rig, &["s"]);
        assert_eq!(out.status.code(), Some(1), "{path}: {}{}", stdout(&out), stderr(&out));
        assert!(stdout(&out).contains("skipped: s in ") && stdout(&out).contains(why), "{path}: {}", stdout(&out));
        assert_eq!(fs::read_to_string(rig.at(path)).unwrap(), text, "{path}");
        if [PLUGIN, CODEX].contains(&path) {
            let forced = wrap(&rig, &["s", "--force"]);
            assert_eq!(forced.status.code(), Some(0), "{path}: {}", stdout(&forced));
            assert!(fs::read_to_string(rig.at(path)).unwrap().contains("--wrapped=1"), "{path}");
            let undone = in_project(&rig, &["unwrap", "s", "--yes", "--force"]);
            assert_eq!(undone.status.code(), Some(0), "{path}: {}", stdout(&undone));
            assert_eq!(fs::read_to_string(rig.at(path)).unwrap(), text, "{path}");
        }
    }
    // A variable that the client resolves in arguments, too, moves there as it is.
    let rig = with_project();
    place(&rig, "project/.mcp.json", &of("${HOME}/server"));
    assert_eq!(wrap(&rig, &["s"]).status.code(), Some(0));
    assert!(fs::read_to_string(rig.at("project/.mcp.json")).unwrap().contains("\"--\", \"${HOME}/server\", \"a\""));
}

#[test]
fn a_sandbox_and_a_program_that_a_window_does_not_see_are_warned_of() {
    let rig = with_project();
    let server = json!({"servers": {"s": {"command": "/bin/true", "args": [], "sandboxEnabled": true}}});
    place(&rig, ".config/Code/User/mcp.json", &server.to_string());
    let out = wrap(&rig, &["s"]);
    assert!(stdout(&out).contains("the client's sandbox must let assay write"), "{}", stdout(&out));
    // `assay` itself is in PATH here, in a directory of the build.
    place(
        &rig,
        ".cursor/mcp.json",
        &json!({"mcpServers": {"t": {"command": "assay", "args": ["demo-server"]}}}).to_string(),
    );
    let dir = std::path::Path::new(rig.assay).parent().unwrap().display().to_string();
    let out = wrap(&rig, &["t"]);
    let warning =
        format!("Cursor may start servers with a short PATH, without {dir}; if the server is not found: --path {dir}");
    assert!(stdout(&out).contains(&warning), "{}", stdout(&out));
    document(&rig, 0, &["unwrap", "t", "--yes"]);
    let out = wrap(&rig, &["t", "--path", &dir]);
    assert!(!stdout(&out).contains("short PATH"), "{}", stdout(&out));
    // With it the server is found where PATH alone has nothing of it.
    let config: Value = serde_json::from_slice(&fs::read(rig.at(".cursor/mcp.json")).unwrap()).unwrap();
    let entry = &config["mcpServers"]["t"];
    let args: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let mut program = rig.command(entry["command"].as_str().unwrap());
    program.args(&args).env("PATH", "/nowhere");
    let mut client = Client::start(program);
    client.send(INITIALIZE);
    client.send(&call(1, "echo", 1));
    client.await_lines(2);
    assert!(client.end().success(), "{}", client.said());
}

#[test]
fn a_client_that_writes_its_own_copy_back_is_named() {
    let rig = with_project();
    place(&rig, ".cursor/mcp.json", &of("x"));
    let config = rig.at(".cursor/mcp.json");
    let out = thread::scope(|scope| {
        scope.spawn(|| {
            until("the new file", || fs::read_to_string(&config).unwrap().contains("--wrapped=1").then_some(()));
            fs::write(rig.at(".cursor/theirs"), of("x")).unwrap();
            fs::rename(rig.at(".cursor/theirs"), &config).unwrap();
        });
        wrap(&rig, &["s"])
    });
    assert_eq!(out.status.code(), Some(2), "{}{}", stdout(&out), stderr(&out));
    let said = stderr(&out);
    assert!(
        said.contains("was written by another program") && said.contains("close Cursor and run this again"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&config).unwrap(), of("x"));
}

#[test]
fn runs_at_the_same_time_wait_for_each_other() {
    let rig = with_project();
    let servers: serde_json::Map<String, Value> =
        (0..4).map(|n| (format!("s{n}"), json!({"command": "x", "args": [n.to_string()]}))).collect();
    place(&rig, ".cursor/mcp.json", &json!({"mcpServers": servers}).to_string());
    thread::scope(|scope| {
        for n in 0..4 {
            let rig = &rig;
            scope.spawn(move || {
                until("its turn", || {
                    // Who sees that another run has just written may have to be told again.
                    let out = wrap(rig, &[&format!("s{n}")]);
                    assert!(matches!(out.status.code(), Some(0 | 2)), "{}{}", stdout(&out), stderr(&out));
                    out.status.success().then_some(())
                })
            });
        }
    });
    assert_eq!(document(&rig, 0, &["scan"])["summary"]["recorded"], 4);
}

#[test]
fn a_file_that_three_clients_read_is_listed_once_and_a_project_can_be_named() {
    let rig = with_project();
    let text = json!({"mcpServers": {"s": {"command": "x"}, "far": {"url": "https://h/mcp"}}}).to_string();
    place(&rig, "project/.mcp.json", &text);
    let seen = |args: &[&str]| {
        let scan = document(&rig, 1, args);
        let clients = scan["clients"].as_array().unwrap().clone();
        clients.into_iter().filter(|client| client["exists"] == true).collect::<Vec<_>>()
    };
    let (all, copilot) = (seen(&["scan"]), seen(&["scan", "--client", "copilot-cli"]));
    assert_eq!((all.len(), &all), (1, &copilot));
    let servers = all[0]["servers"].as_array().unwrap();
    let far = servers.iter().find(|server| server["name"] == "far").unwrap();
    let problem = far["problems"][0].as_str().unwrap();
    assert!(problem.contains("skips a url without a type"), "{problem}");
    // From elsewhere, below the directory that is named.
    fs::create_dir_all(rig.at("elsewhere")).unwrap();
    fs::create_dir_all(rig.at("project/deep")).unwrap();
    let project = rig.at("project/deep");
    let mut program = rig.program(&["wrap", "s", "--yes", "--project", project.to_str().unwrap()]);
    let out = program.current_dir(rig.at("elsewhere")).env_remove("XDG_CONFIG_HOME").output().unwrap();
    assert!(out.status.success(), "{}{}", stdout(&out), stderr(&out));
    assert!(fs::read_to_string(rig.at("project/.mcp.json")).unwrap().contains("\"repo:.assay/mcp\""));
    for advice in ["needs it in PATH", "put .assay/ into .gitignore"] {
        assert!(stdout(&out).contains(advice), "{}", stdout(&out));
    }
    assert_eq!(rig.at("project/.mcp.json").metadata().unwrap().permissions().mode() & 0o777, 0o644);
}
