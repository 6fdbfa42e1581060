//! Suites that others wrote, and packs that others built.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{evidence, install};

/// The test of the SDK that cannot pass through any proxy: the SDK spawns the proxy, which does exist.
const COMMAND_NOT_FOUND: &str = "test_a_command_that_cannot_be_execed_raises_enoent";

pub type Outcomes = BTreeMap<String, String>;

/// The argument vector that a suite's servers are put behind.
fn wrapper(audit: &Path) -> Value {
    json!([install::assay(), "mcp-proxy", "--audit-dir", audit, "--"])
}

pub fn sdist() -> PathBuf {
    install::root().join("mcp-sdist")
}

/// Runs one of the suites and reads `{test: outcome}` from the file that it writes.
pub fn outcomes(mut command: Command, dir: &Path, out: &Path) -> Outcomes {
    let home = dir.join("home");
    fs::create_dir_all(&home).unwrap();
    command.env("HOME", &home).env("PYTHONDONTWRITEBYTECODE", "1");
    let log = dir.join("log");
    let status = install::finish(command, &log, Duration::from_secs(240));
    let written = fs::read(out).unwrap_or_else(|_| panic!("{status}\n{}", install::tail(&log)));
    let outcomes: Outcomes = serde_json::from_slice(&written).unwrap();
    if outcomes.values().any(|outcome| outcome == "failed") {
        eprintln!("{}", install::tail(&log));
    }
    outcomes
}

pub fn with_outcome<'a>(outcomes: &'a Outcomes, wanted: &str) -> Vec<&'a str> {
    outcomes.iter().filter(|(_, outcome)| *outcome == wanted).map(|(test, _)| test.as_str()).collect()
}

/// The stdio tests in the sdist of the Python SDK: direct 46 pass, through the proxy all but the one.
pub fn python_sdk_stdio_tests() {
    // These tests have time limits of their own, so nothing else runs beside them.
    let _alone = install::MACHINE.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let temp = tempfile::tempdir().unwrap();
    let run = |name: &str, wrap: &Value| {
        let dir = temp.path().join(name);
        let out = dir.join("outcomes.json");
        let mut pytest = Command::new(install::venv().join("python"));
        pytest
            .args(["-m", "pytest", "-q", "-p", "wrap_spawn", "-p", "no:cacheprovider"])
            .args([
                "tests/client/test_stdio.py",
                "tests/transports/stdio",
                "tests/interaction/transports/test_stdio.py",
            ])
            .current_dir(sdist())
            .env("PYTHONPATH", std::env::join_paths([sdist(), install::sources()]).unwrap())
            .env("INTEROP_WRAP", wrap.to_string())
            .env("INTEROP_OUTCOMES", &out);
        outcomes(pytest, &dir, &out)
    };
    let direct = run("direct", &json!([]));
    let audit = temp.path().join("audit");
    let proxied = run("proxied", &wrapper(&audit));
    let failed = with_outcome(&proxied, "failed");
    assert_eq!(with_outcome(&direct, "failed"), [""; 0], "failed without the proxy");
    assert_eq!(with_outcome(&direct, "passed").len(), 46, "passed without the proxy: {direct:#?}");
    assert!(failed.iter().all(|test| test.contains(COMMAND_NOT_FOUND)), "failed only through the proxy: {failed:#?}");
    assert_eq!(with_outcome(&proxied, "passed").len(), 45, "passed through the proxy: {proxied:#?}");
    assert_eq!(with_outcome(&direct, "skipped"), with_outcome(&proxied, "skipped"), "skipped");
    no_pack_is_tampered(&audit, temp.path());
}

/// The stories of the Python SDK: 24 run over stdio, 23 pass, through the proxy the same ones.
pub fn python_sdk_stories() {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let temp = tempfile::tempdir().unwrap();
    let run = |name: &str, wrap: &Value| {
        let dir = temp.path().join(name);
        let out = dir.join("outcomes.json");
        let mut stories = install::python("stories.py");
        stories.arg(sdist().join("examples")).arg(&out).current_dir(temp.path()).env("INTEROP_WRAP", wrap.to_string());
        outcomes(stories, &dir, &out)
    };
    let audit = temp.path().join("audit");
    let (direct, proxied) = std::thread::scope(|scope| {
        let direct = scope.spawn(|| run("direct", &json!([])));
        let proxied = run("proxied", &wrapper(&audit));
        (direct.join().expect("direct run"), proxied)
    });
    assert_eq!(direct.len(), 24, "stories that run over stdio: {direct:#?}");
    assert_eq!(with_outcome(&direct, "passed").len(), 23, "{direct:#?}");
    assert_eq!(direct, proxied, "outcomes, direct and through the proxy");
    no_pack_is_tampered(&audit, temp.path());
}

/// Whatever was done to the sessions of a suite, each pack is authentic and assay-ai takes it.
pub fn no_pack_is_tampered(audit: &Path, scratch: &Path) {
    let packs = install::directories(&audit.join("packs"));
    assert!(!packs.is_empty(), "no packs in {}", audit.display());
    for pack in &packs {
        let code = evidence::verify(pack, scratch);
        assert!(matches!(code, Some(0 | 1)), "assay verify-pack {}: {code:?}", pack.display());
    }
    assert!(evidence::assay_ai_accepts(&packs, scratch), "assay-ai refuses a pack");
}

/// A pack of model calls and a tool call that assay-ai built; then with one byte changed, in each file in turn.
pub fn packs_of_assay_ai() {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let temp = tempfile::tempdir().unwrap();
    let mut build = install::python("assay_ai.py");
    build.arg("build").arg(temp.path()).env("HOME", temp.path());
    let log = temp.path().join("log");
    let status = install::finish(build, &log, Duration::from_secs(60));
    assert!(status.success(), "{status}\n{}", install::tail(&log));
    let pack = temp.path().join("pack");
    assert_eq!(evidence::verify(&pack, temp.path()), Some(0), "the pack as assay-ai built it");
    for name in
        ["receipt_pack.jsonl", "verify_report.json", "verify_transcript.md", "pack_manifest.json", "pack_signature.sig"]
    {
        let file = pack.join(name);
        let original = fs::read(&file).unwrap();
        for at in [0, original.len() / 2, original.len() - 1] {
            let mut changed = original.clone();
            changed[at] ^= 1;
            fs::write(&file, &changed).unwrap();
            let code = evidence::verify(&pack, temp.path());
            assert!(matches!(code, Some(2 | 3)), "{name} with byte {at} changed: {code:?}");
        }
        fs::write(&file, original).unwrap();
    }
    assert_eq!(evidence::verify(&pack, temp.path()), Some(0), "the pack as it was");
}

/// The MCP inspector's command line, for a third kind of client: it prints the same with and without the proxy.
pub fn inspector() {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let temp = tempfile::tempdir().unwrap();
    let audit = temp.path().join("audit");
    let npm = install::root().join("node_modules/.bin");
    let run = |name: &str, prefix: &[String]| {
        let mut command = Command::new(npm.join("mcp-inspector"));
        command
            // The inspector takes the first `--` for its own.
            .args(["--cli", "--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=żółw", "-q", "--"])
            .args(prefix)
            .arg(npm.join("mcp-server-everything"))
            .current_dir(temp.path())
            .env("HOME", temp.path());
        let log = temp.path().join(name);
        let status = install::finish(command, &log, Duration::from_secs(60));
        assert!(status.success(), "{status}\n{}", install::tail(&log));
        fs::read_to_string(log).unwrap()
    };
    let direct = run("direct", &[]);
    let wrap: Vec<String> = serde_json::from_value(wrapper(&audit)).unwrap();
    let proxied = run("proxied", &wrap);
    assert!(direct.contains("żółw"), "{direct}");
    assert!(proxied.contains("żółw"), "{proxied}");
    no_pack_is_tampered(&audit, temp.path());
}
