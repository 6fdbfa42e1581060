//! Real clients with files that `assay wrap` changed: they list the same servers, and what they call leaves receipts.
//!
//! A model on loopback (`model.py`) answers each of them with one call of a tool. No client reaches its own cloud.

use crate::{
    http::Upstream,
    install::{self, MACHINE, finish, tail},
};
use assay_support::rig::{journal, receipts, rig};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// How long a client may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(240);

struct RealClient {
    id: &'static str,
    /// What stands in its file in place of a command for a server by URL, `URL`.
    by_url: (&'static str, &'static str),
    /// Its program below `node_modules`; `ARCH` stands for that of this machine.
    program: &'static str,
    /// Its file below the home, and what is in it; `ASSAY` stands for the program.
    file: (&'static str, &'static str),
    /// Arguments that add a server; none if it only asks for them.
    add: &'static [&'static str],
    /// Arguments that make it ask the model; `MODEL` stands for its URL.
    ask: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

const CLIENTS: [RealClient; 5] = [
    RealClient {
        id: "opencode",
        by_url: (
            "\"type\": \"local\", \"command\": [\"ASSAY\", \"demo-server\"]",
            "\"type\": \"remote\", \"url\": \"URL\", \"oauth\": false, \"headers\": {\"X-Team\": \"red\"}",
        ),
        program: "opencode-linux-ARCH/bin/opencode",
        file: (
            ".config/opencode/opencode.json",
            "{\n  \"$schema\": \"https://opencode.ai/config.json\", // mine\n  \"mcp\": {\"one\": {\"type\": \"local\", \
             \"command\": [\"ASSAY\", \"demo-server\"]}},\n  \"provider\": {\"mock\": {\"npm\": \"@ai-sdk/openai-compatible\", \
             \"options\": {\"baseURL\": \"MODEL/v1\", \"apiKey\": \"k\"}, \"models\": {\"m\": {\"tool_call\": true}}}}\n}\n",
        ),
        add: &[],
        ask: &["run", "-m", "mock/m", "call echo"],
        env: &[],
    },
    RealClient {
        id: "codex",
        by_url: (
            "command = \"ASSAY\" # the server\nargs = ['demo-server']\n",
            "url = 'URL' # the server\nhttp_headers = { X-Team = \"red\" }\n",
        ),
        program: ".bin/codex",
        file: (
            ".codex/config.toml",
            "# mine\n[mcp_servers.one]\ncommand = \"ASSAY\" # the server\nargs = ['demo-server']\n",
        ),
        add: &["mcp", "add", "extra", "--", "ASSAY", "demo-server"],
        ask: &[
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "-m",
            "m",
            "-c",
            "model_provider=mock",
            "-c",
            "model_providers.mock={name=\"mock\",base_url=\"MODEL/v1\",wire_api=\"responses\"}",
            "call echo",
        ],
        env: &[],
    },
    RealClient {
        id: "claude-code",
        by_url: (
            "\"command\": \"ASSAY\", \"args\": [\"demo-server\"]",
            "\"type\": \"http\", \"url\": \"URL\", \"headers\": {\"X-Team\": \"red\"}",
        ),
        program: "@anthropic-ai/claude-code-linux-ARCH/claude",
        file: (".claude.json", "{\"mcpServers\": {\"one\": {\"command\": \"ASSAY\", \"args\": [\"demo-server\"]}}}"),
        add: &["mcp", "add", "--scope", "user", "extra", "--", "ASSAY", "demo-server"],
        ask: &["-p", "call echo", "--allowedTools", "mcp__one__echo"],
        env: &[
            ("ANTHROPIC_BASE_URL", "MODEL"),
            ("ANTHROPIC_API_KEY", "k"),
            ("ENABLE_TOOL_SEARCH", "false"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ],
    },
    RealClient {
        id: "gemini",
        by_url: (
            "\"command\": \"ASSAY\", \"args\": [\"demo-server\"]",
            "\"httpUrl\": \"URL\", \"headers\": {\"X-Team\": \"red\"}",
        ),
        program: ".bin/gemini",
        file: (
            ".gemini/settings.json",
            "{ // mine\n  \"mcpServers\": {\"one\": {\"command\": \"ASSAY\", \"args\": [\"demo-server\"]}},\n  \"security\": \
             {\"folderTrust\": {\"enabled\": false}, \"auth\": {\"selectedType\": \"gemini-api-key\"}}\n}\n",
        ),
        add: &["mcp", "add", "--scope", "user", "extra", "ASSAY", "demo-server"],
        ask: &["-p", "call echo", "--yolo", "-m", "gemini-2.5-flash"],
        env: &[("GEMINI_API_KEY", "k"), ("GOOGLE_GEMINI_BASE_URL", "MODEL")],
    },
    RealClient {
        id: "copilot-cli",
        by_url: (
            "\"type\": \"local\", \"tools\": [\"*\"], \"command\": \"ASSAY\", \"args\": [\"demo-server\"],",
            "\"type\": \"http\", \"tools\": [\"*\"], \"url\": \"URL\", \"headers\": {\"X-Team\": \"red\"},",
        ),
        program: ".bin/copilot",
        file: (
            ".copilot/mcp-config.json",
            "{ // mine\n  \"mcpServers\": {\"one\": {\"type\": \"local\", \"tools\": [\"*\"], \"command\": \"ASSAY\", \"args\": \
             [\"demo-server\"],},}\n}\n",
        ),
        add: &["mcp", "add", "extra", "--", "ASSAY", "demo-server"],
        ask: &["-p", "call echo", "--allow-all-tools"],
        env: &[
            ("COPILOT_OFFLINE", "true"),
            ("COPILOT_PROVIDER_BASE_URL", "MODEL/v1"),
            ("COPILOT_PROVIDER_TYPE", "openai"),
            ("COPILOT_PROVIDER_API_KEY", "k"),
            ("COPILOT_MODEL", "m"),
        ],
    },
];

/// The model, until it is dropped.
struct Model {
    child: Child,
    url: String,
}

impl Model {
    fn start() -> Self {
        let mut command = install::python("model.py");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { child, url: format!("http://127.0.0.1:{}", port.trim()) }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A home with one client.
struct Home<'c> {
    client: &'c RealClient,
    rig: assay_support::rig::Rig,
    model: Model,
}

impl Home<'_> {
    fn filled(&self, text: &str) -> String {
        text.replace("ASSAY", self.rig.assay).replace("MODEL", &self.model.url)
    }

    /// Runs the client in an empty project; what it said.
    fn run(&self, args: &[&str]) -> String {
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let program = install::root().join("clients/node_modules").join(self.client.program.replace("ARCH", arch));
        let mut command: Command = self.rig.command(program);
        command.current_dir(self.rig.at("project")).args(args.iter().map(|arg| self.filled(arg)));
        for name in ["XDG_CONFIG_HOME", "CODEX_HOME", "COPILOT_HOME", "OPENCODE_CONFIG", "HTTPS_PROXY", "https_proxy"] {
            command.env_remove(name);
        }
        for (name, value) in self.client.env {
            command.env(name, self.filled(value));
        }
        let log = self.rig.at("client.log");
        let status = finish(command, &log, PATIENCE);
        assert!(status.success(), "{} {args:?}: {status}\n{}", self.client.id, tail(&log));
        fs::read_to_string(&log).unwrap()
    }

    /// The servers that it lists, each with whether it says that it reaches it.
    fn listed(&self) -> Vec<(String, bool)> {
        let said = self.run(&["mcp", "list"]);
        let reached =
            |line: &str| ["connected", "enabled", "✓", "✔"].iter().any(|word| line.to_lowercase().contains(word));
        let of = |name: &&str| {
            let is_name = |word: &str| word.trim_end_matches(':') == *name;
            said.lines()
                .find(|line| line.split_whitespace().any(is_name))
                .map(|line| ((*name).to_owned(), reached(line)))
        };
        ["one", "extra"].iter().filter_map(of).collect()
    }

    fn assay(&self, args: &[&str]) {
        let out =
            self.rig.program(args).current_dir(self.rig.at("project")).env_remove("XDG_CONFIG_HOME").output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// A server by URL becomes a command of the bridge: the client lists it as before, calls it, and gets its URL back.
fn tries_by_url(id: &str) {
    let _machine = MACHINE.read().unwrap();
    let client = CLIENTS.iter().find(|client| client.id == id).unwrap();
    let home = Home { client, rig: rig!(), model: Model::start() };
    let far = home.rig.at("far");
    fs::create_dir_all(&far).unwrap();
    let python = install::venv().join("python").display().to_string();
    let server = [python, install::sources().join("servers/own.py").display().to_string(), "{port}".to_owned()];
    let upstream = Upstream::start(&server, "/mcp", &far);
    let (command, url) = client.by_url;
    let text = client.file.1.replace(command, &url.replace("URL", &upstream.url));
    assert_ne!(text, client.file.1, "{id}");
    let file: PathBuf = home.rig.at(client.file.0);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::create_dir_all(home.rig.at("project")).unwrap();
    fs::write(&file, home.filled(&text)).unwrap();
    let before = home.listed();
    assert_eq!(before.len(), 1, "{id}: {before:?}");
    let entry = |now: &str| now.contains(&upstream.url) && !now.contains("--wrapped=1");
    let old = fs::read_to_string(&file).unwrap();
    assert!(entry(&old), "{old}");
    home.assay(&["wrap", "one", "--yes", "--remote", "--client", id, "--assay", home.rig.assay]);
    let wrapped = fs::read_to_string(&file).unwrap();
    assert!(wrapped.contains("X-Team=ASSAY_HEADER_1") && wrapped.contains("--upstream-url"), "{wrapped}");
    assert_eq!(home.listed(), before, "{id}, wrapped");
    home.run(client.ask);
    assert_eq!(called(&home.rig.at(".assay/mcp")), ["one"], "{id}: {}", tail(&home.rig.at("client.log")));
    home.assay(&["unwrap", "one", "--yes", "--client", id]);
    let now = fs::read_to_string(&file).unwrap();
    assert!(entry(&now), "{now}");
    if id != "claude-code" {
        assert_eq!(now, old, "{id}");
    }
    assert_eq!(home.listed(), before, "{id}, unwrapped");
}

fn tries(id: &str) {
    let _machine = MACHINE.read().unwrap();
    let client = CLIENTS.iter().find(|client| client.id == id).unwrap();
    let home = Home { client, rig: rig!(), model: Model::start() };
    let file: PathBuf = home.rig.at(client.file.0);
    let old = home.filled(client.file.1);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::create_dir_all(home.rig.at("project")).unwrap();
    fs::write(&file, &old).unwrap();
    let before = home.listed();
    assert_eq!(before.len(), 1, "{id}: {before:?}");
    // Some write into their file whenever they run.
    let old = fs::read_to_string(&file).unwrap();
    home.assay(&["wrap", "one", "--yes", "--client", id, "--assay", home.rig.assay]);
    assert_eq!(home.listed(), before, "{id}, wrapped");
    home.run(client.ask);
    assert_eq!(called(&home.rig.at(".assay/mcp")), ["one"], "{id}: {}", tail(&home.rig.at("client.log")));
    if !client.add.is_empty() {
        home.run(client.add);
    }
    let with_theirs = fs::read_to_string(&file).unwrap();
    assert!(with_theirs.contains("--wrapped=1"), "{with_theirs}");
    home.assay(&["unwrap", "one", "--yes", "--client", id]);
    let now = fs::read_to_string(&file).unwrap();
    assert!(!now.contains("--wrapped=1"), "{now}");
    let after = home.listed();
    assert_eq!(after[..1], before, "{id}, unwrapped");
    assert_eq!(after.len(), 1 + usize::from(!client.add.is_empty()), "{id}: {after:?}\n{now}");
    if client.add.is_empty() && id != "claude-code" {
        assert_eq!(now, old, "{id}");
    }
}

/// The ids of servers in receipts of calls of `echo`.
fn called(audit: &Path) -> Vec<String> {
    let lines: Vec<Value> = receipts(audit)
        .iter()
        .flat_map(|path| fs::read_to_string(journal(path)).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect();
    let mut ids: Vec<String> = lines
        .iter()
        .filter(|line| line.to_string().contains("\"echo\""))
        .filter_map(|line| {
            line["server_id"].as_str().or_else(|| line["invocation"]["server_id"].as_str()).map(str::to_owned)
        })
        .collect();
    ids.dedup();
    ids
}

#[test]
fn opencode_lists_and_calls_what_is_wrapped() {
    tries("opencode");
}

#[test]
fn codex_lists_and_calls_what_is_wrapped() {
    tries("codex");
}

#[test]
fn claude_code_lists_and_calls_what_is_wrapped() {
    tries("claude-code");
}

#[test]
fn gemini_cli_lists_and_calls_what_is_wrapped() {
    tries("gemini");
}

#[test]
fn copilot_cli_lists_and_calls_what_is_wrapped() {
    tries("copilot-cli");
}

#[test]
fn opencode_reaches_a_url_through_the_bridge() {
    tries_by_url("opencode");
}

#[test]
fn codex_reaches_a_url_through_the_bridge() {
    tries_by_url("codex");
}

#[test]
fn claude_code_reaches_a_url_through_the_bridge() {
    tries_by_url("claude-code");
}

#[test]
fn gemini_cli_reaches_a_url_through_the_bridge() {
    tries_by_url("gemini");
}

#[test]
fn copilot_cli_reaches_a_url_through_the_bridge() {
    tries_by_url("copilot-cli");
}
