//! Speed of `assay scan`: a home with files of 25 clients and a repository of 10 000 files, walked whole.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use assay::clients::{
    discover::{self, Surroundings, Wanted},
    scan::scan,
};
use criterion::Criterion;
use std::{fs, path::Path};

/// Places below the home; those with the same shape stand for more clients than there are.
const FILES: [&str; 25] = [
    ".claude.json",
    ".config/Claude/claude_desktop_config.json",
    ".cursor/mcp.json",
    ".copilot/mcp-config.json",
    ".codeium/windsurf/mcp_config.json",
    ".codeium/mcp_config.json",
    ".gemini/settings.json",
    ".kiro/settings/mcp.json",
    ".lmstudio/mcp.json",
    ".gemini/antigravity/mcp_config.json",
    ".aws/amazonq/mcp.json",
    ".config/amp/settings.json",
    ".config/zed/settings.json",
    ".config/opencode/opencode.json",
    ".config/opencode/opencode.jsonc",
    ".config/Code/User/mcp.json",
    ".config/Code/User/settings.json",
    ".config/Code - Insiders/User/mcp.json",
    ".config/VSCodium/User/mcp.json",
    ".vscode-server/data/User/mcp.json",
    "repository/.mcp.json",
    "repository/.vscode/mcp.json",
    "repository/.cursor/mcp.json",
    "repository/.gemini/settings.json",
    "repository/opencode.json",
];

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn main() {
    let tmp = tempfile::tempdir().unwrap();
    let home = tmp.path().canonicalize().unwrap();
    let server = "{\"command\": \"npx\", \"args\": [\"-y\", \"p\"]}";
    for file in FILES {
        let servers = format!("{{\"a\": {server}, \"b\": {server}, \"c\": {server}}}");
        let text = format!(
            "{{\"mcpServers\": {servers}, \"servers\": {servers}, \"context_servers\": {servers}, \"mcp\": {servers}, \
             \"amp.mcpServers\": {servers}}}"
        );
        write(&home.join(file), &text);
    }
    // As large as Claude Code's becomes.
    let history: Vec<String> =
        (0..30_000).map(|n| format!("{{\"display\": \"prompt number {n}, of some length\"}}")).collect();
    let text = format!(
        "{{\"mcpServers\": {{\"a\": {server}}}, \"projects\": {{\"/p\": {{\"history\": [{}]}}}}}}",
        history.join(",")
    );
    write(&home.join(".claude.json"), &text);
    let repository = home.join("repository");
    fs::create_dir(repository.join(".git")).unwrap();
    for n in 0..10_000 {
        write(&repository.join(format!("d{}/e{}/f{n}.rs", n % 40, n % 7)), "");
    }
    let around = Surroundings {
        home: Some(home.clone()),
        config: None,
        mac: false,
        root: home.join("none"),
        variables: Vec::new(),
    };
    let mut criterion = Criterion::default().sample_size(20).configure_from_args();
    criterion.bench_function("scan/home-and-repository", |bencher| {
        bencher.iter(|| {
            let found = discover::files(&around, &Wanted::default(), &repository, true);
            let scan = scan(&found, &repository, false);
            assert!(scan.summary.servers > 50, "{:?}", scan.summary);
        });
    });
    criterion.final_summary();
}
