//! The official conformance suite in its server role: it finds the same through the listener as without it.

use super::{Listener, Profile, Upstream};
use crate::{install, suites};
use std::{collections::BTreeMap, fs, path::Path, time::Duration};

/// Checks that passed and failed, by scenario.
pub type Counts = BTreeMap<String, (u32, u32)>;

/// The suite asks whether a foreign `Host` or `Origin` is refused.
const FOREIGN: &str = "dns-rebinding-protection";

pub fn counts(url: &str, revision: &str, log: &Path) -> Counts {
    let mut suite = install::node("conformance");
    suite.args(["server", "--url", url, "--requirements", revision]);
    // Its exit code says whether all passed.
    install::finish(suite, log, Duration::from_secs(180));
    let text = fs::read_to_string(log).unwrap();
    let summary = text.split("=== SUMMARY ===").nth(1).unwrap_or_else(|| panic!("{}", install::tail(log)));
    let line = |line: &str| {
        let (name, found) = line.split_once(' ')?.1.split_once(": ")?;
        let (passed, failed) = found.strip_suffix(" failed")?.split_once(" passed, ")?;
        Some((name.to_owned(), (passed.parse().ok()?, failed.parse().ok()?)))
    };
    summary.lines().take_while(|line| !line.starts_with("Total: ")).filter_map(line).collect()
}

pub fn total(counts: &Counts) -> (u32, u32) {
    counts.values().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
}

/// Compares what the suite finds in a server with what it finds through the listener. `by_guard`: scenarios that ask whether
/// something is refused that a guard refuses, and the server does not.
fn same(server: &[String], revision: &str, direct: (u32, u32), refuses_foreign: bool, by_guard: &[(&str, (u32, u32))]) {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let temp = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(server, "/mcp", temp.path());
    let mut expected = counts(&upstream.url, revision, &temp.path().join("direct.log"));
    assert_eq!(total(&expected), direct, "without the listener: {expected:#?}");
    if !refuses_foreign {
        // The listener does what the server does not.
        assert_eq!(expected[FOREIGN], (1, 1));
        expected.insert(FOREIGN.to_owned(), (2, 0));
    }
    for profile in Profile::ALL {
        let dir = temp.path().join(format!("{profile:?}"));
        let listener = Listener::start(profile, &upstream.url, &dir, &[]);
        let found = counts(&listener.url, revision, &dir.join("suite.log"));
        // What the suite sends to be refused, a guard refuses.
        let codes = if profile == Profile::Guard { &[0, 1][..] } else { &[0] };
        suites::no_pack_is_tampered(&listener.end_with(codes), &dir);
        if profile == Profile::Guard {
            expected.extend(by_guard.iter().map(|(scenario, counts)| ((*scenario).to_owned(), *counts)));
        }
        assert_eq!(found, expected, "through the listener in {profile:?}");
    }
}

fn python() -> Vec<String> {
    let code = suites::sdist().join("examples/servers/everything-server");
    let path = format!("PYTHONPATH={}", code.display());
    let python = install::venv().join("python").display().to_string();
    ["env", &path, &python, "-m", "mcp_everything_server", "--port", "{port}"].map(str::to_owned).to_vec()
}

fn typescript() -> Vec<String> {
    let server = install::root().join("node_modules/.bin/mcp-server-everything").display().to_string();
    ["env", "PORT={port}", &server, "streamableHttp"].map(str::to_owned).to_vec()
}

#[test]
fn of_the_python_sdks_server_for_2025_11_25() {
    same(&python(), "2025-11-25", (84, 0), true, &[]);
}

#[test]
fn of_the_python_sdks_server_for_2026_07_28() {
    same(&python(), "2026-07-28", (169, 25), true, &[]);
}

#[test]
fn of_server_everything_for_2025_11_25() {
    same(&typescript(), "2025-11-25", (47, 22), false, &[]);
}

#[test]
fn of_server_everything_for_2026_07_28() {
    // It refuses everything, but not because the headers contradict the body.
    let by_guard = [("server-stateless", (6, 25)), ("tasks-request-headers", (1, 4))];
    same(&typescript(), "2026-07-28", (11, 146), true, &by_guard);
}
