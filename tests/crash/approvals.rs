//! A decision about a surface, killed at every system call that changes what lies on disk: afterwards the old decision is in
//! force or the new one, and the next one goes on.

use assay_support::{
    drift::{tool, tools},
    rig::{Rig, rig, stderr, stdout},
};
use std::{fs, os::unix::process::ExitStatusExt as _, process::Output};

const CALLS: [&str; 9] =
    ["write", "openat", "fdatasync", "fsync", "renameat", "unlinkat", "mkdirat", "flock", "ftruncate"];

fn surface(rig: &Rig, args: &[&str]) -> Output {
    rig.run(&[&["surface"], args, &["--audit-dir", rig.audit.to_str().unwrap()]].concat())
}

fn seen(rig: &Rig, description: &str) {
    rig.offers(&tools(&[tool("read", description)]));
    let server = Rig::server_argv("");
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let audit = rig.audit.to_str().unwrap();
    let ask = ["surface", "snapshot", "--audit-dir", audit, "--server-id", "s", "--"];
    let out = rig.run(&[&ask, server.as_slice()].concat());
    assert!(out.status.success(), "{}{}", stdout(&out), stderr(&out));
}

fn copied(from: &std::path::Path, to: &std::path::Path) {
    let _ = fs::remove_dir_all(to);
    let done = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(done.success());
}

/// 0 if what was seen last is approved, 1 if not; any other code is damage.
fn in_force(rig: &Rig) -> i32 {
    let out = surface(rig, &["diff", "s"]);
    let code = out.status.code().unwrap();
    assert!(code < 2, "{}{}", stdout(&out), stderr(&out));
    code
}

#[test]
fn a_kill_at_every_step_of_an_approval_leaves_the_old_decision_or_the_new_one() {
    let rig = rig!();
    seen(&rig, "reads");
    assert!(surface(&rig, &["approve", "s"]).status.success());
    seen(&rig, "reads more");
    copied(&rig.audit, &rig.at("before"));
    copied(&rig.at("home"), &rig.at("home.before"));
    let (mut old, mut new) = (0, 0);
    for call in CALLS {
        for n in 1.. {
            copied(&rig.at("before"), &rig.audit);
            copied(&rig.at("home.before"), &rig.at("home"));
            let inject = format!("inject={call}:signal=SIGKILL:when={n}");
            let trace = format!("trace={call}");
            let mut killed = rig.command("strace");
            killed.args([
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                &trace,
                "-e",
                &inject,
                rig.assay,
                "surface",
                "approve",
                "s",
            ]);
            let out = killed.arg("--audit-dir").arg(&rig.audit).output().unwrap();
            let is_over = out.status.signal().is_none() && out.status.code() != Some(137);
            match in_force(&rig) {
                0 => new += 1,
                _ => old += 1,
            }
            if is_over {
                assert!(out.status.success(), "{call} {n}: {}{}", stdout(&out), stderr(&out));
                assert_eq!(in_force(&rig), 0, "{call} {n}");
                break;
            }
            // The next decision goes on, whatever was left.
            let again = surface(&rig, &["approve", "s"]);
            assert!(again.status.success(), "{call} {n}: {}{}", stdout(&again), stderr(&again));
            assert_eq!(in_force(&rig), 0, "{call} {n}");
            let blocked = surface(&rig, &["block", "s", "--item", "tools/read"]);
            assert!(blocked.status.success(), "{call} {n}: {}{}", stdout(&blocked), stderr(&blocked));
            let decisions = fs::read_to_string(rig.audit.join("surface/approvals.jsonl")).unwrap().lines().count();
            let ledger = fs::read_to_string(rig.audit.join("audit/ledger.jsonl")).unwrap();
            assert_eq!(ledger.matches("\"kind\":\"surface_approval\"").count(), decisions, "{call} {n}");
        }
    }
    assert!(old > 5 && new > 5, "old {old}, new {new}");
}
