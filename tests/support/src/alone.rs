//! Tests in processes of their own: those that measure or limit their process, and those that are killed.

use std::{fmt::Display, process::Command};

/// Set in the process that [`alone`] starts.
const ALONE: &str = "ASSAY_TEST_ALONE";

/// This test program again, with only the test of this name (`module::name`), be it ignored or not.
pub fn only(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// Runs `body`, the whole of the test of this name, where no other test runs.
pub fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let out = only(name).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("1 passed"), "there is no test {name}: {said}");
}

/// The most memory that a process (its id, or `self`) has had, KiB; 0 where the system does not say so.
pub fn peak_kib(process: impl Display) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").trim().parse().unwrap())
}
