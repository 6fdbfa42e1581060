//! An audit directory that came with a repository: every kind of file, link and lie at every name that is opened there,
//! with something precious outside. Whatever is planted, every command ends, stays small, does not panic, and changes
//! nothing outside; and what the proxy's peers see is what they sent.
//!
//! `ASSAY_PLANTED=all` plants every kind at every name and runs every command there; the default takes a third of them, such
//! that each kind and each name is among them, and runs what only reads in every fourth.

mod kinds;
mod lies;
mod odd;
mod prepared;

use kinds::Kind;
use prepared::{LINES, Prepared, hex_of, names};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process::Output,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The 16 hex digits of the session that never was.
const NEVER: &str = "00000000000000ff";

/// The packs that stand are those of sessions that were recorded here. `ours`: the stems of those whose segment may be gone.
fn nothing_foreign_is_signed(what: &str, rig: &Prepared, ours: &[String]) {
    for pack in rig.packs() {
        if rig.audit.join("packs").join(&pack).join("pack_signature.sig").exists() {
            let known = ours.iter().chain(&rig.stems()).any(|stem| pack.ends_with(stem.as_str()));
            assert!(known && !pack.ends_with(NEVER), "{what}: {pack} was signed");
        }
    }
}

/// Names in an audit directory with the session that died and the one that ended, as in the formats.
fn files(died: &str, ended: &str) -> Vec<String> {
    let hex = hex_of(died);
    let pid = 4_000_000;
    vec![
        format!("live/{hex}.json"),
        format!("live/{NEVER}.json"),
        format!("live/{hex}.{pid}.new"),
        format!("live/{hex}.c2s.spool"),
        format!("live/{hex}.c2s.ring"),
        format!("live/{NEVER}.s2c.ring"),
        "audit/ledger.jsonl".into(),
        format!("audit/segment_{died}.jsonl"),
        format!("audit/segment_{ended}.jsonl"),
        format!("audit/segment_20260101T000000Z_{NEVER}.jsonl"),
        format!("receipts/session_{died}.jsonl"),
        format!("receipts/session_{ended}.jsonl"),
        format!("receipts/session_20260101T000000Z_{NEVER}.jsonl"),
        format!("investigation/session_{died}.jsonl"),
        format!("surface/observed_{died}.json"),
        format!("surface/observed_{died}.json.new"),
        format!("packs/proof_pack_{died}"),
        format!("packs/proof_pack_{ended}/pack_manifest.json"),
        format!("packs/proof_pack_{ended}/receipt_pack.jsonl"),
        format!("packs/.assay_pack_staging_mcp{NEVER}"),
        "recorder.log".into(),
        "recorder.log.1".into(),
    ]
}

const DIRECTORIES: [&str; 9] =
    ["../../.assay", "", "live", "audit", "receipts", "investigation", "surface", "packs", "policy"];

/// What the user keeps elsewhere: others can be quicker to make a run directory below `/tmp`, and where the home is a working
/// copy, a repository brings a user directory. That itself, and the keys, may be where the user has a link lead.
const OF_USER: [&str; 14] = [
    "../../../run/assay",
    "../../../run/assay/HEX.c2s.ring",
    "../../../run/assay/HEX.json",
    "../../../run/assay/HEX.place",
    "../../../run/assay/HEX.sock",
    "../../../home/.assay/audit_dirs.jsonl",
    "../../../home/.assay/history.lock",
    "../../../home/.assay/history.sqlite3",
    "../../../home/.assay/history.sqlite3-wal",
    "../../../home/.assay/keys/.active_signer",
    "../../../home/.assay/keys/assay-local.key",
    "../../../home/.assay/keys/assay-local.pub",
    "../../../home/.assay/ledgers",
    "../../../home/.assay/sessions",
];

/// What only reads: none of it may be led astray either.
fn read_everything(what: &str, rig: &Prepared, died: &str, ended: &str) {
    let pack = format!(".assay/mcp/packs/proof_pack_{ended}");
    let segment = format!(".assay/mcp/audit/segment_{died}.jsonl");
    let receipts = format!(".assay/mcp/receipts/session_{died}.jsonl");
    let commands: [&[&str]; 11] = [
        &["analyze", &pack],
        &["analyze", "--history", "--json", "--audit-dir", ".assay/mcp"],
        &["diff", &pack, &pack],
        &["policy", "dry-run", "policy.yaml", "--against", ".assay/mcp"],
        &["policy", "dry-run", "policy.yaml", "--against", &receipts],
        &["open", "--plain", &pack],
        &["open", "--plain", &segment],
        &["open", "--json", died],
        &["explain", &pack],
        &["verify-pack", "--json", &pack],
        &["policy", "check", &segment],
    ];
    for command in commands {
        rig.run(&format!("{what}: {}", command.join(" ")), command, "");
    }
    for flag in ["--plain", "--json"] {
        rig.run_for_a_while(&format!("{what}: watch {flag}"), &["watch", flag, "--audit-dir", ".assay/mcp"]);
    }
}

/// Plants a thing at a name beside a session that died and one that ended, and runs everything.
fn sweep_one(name: &str, kind: Kind, read: bool) {
    let rig = Prepared::new();
    let ended = rig.finished_session();
    let died = rig.killed_session();
    let name = name.replace("DIED", &died).replace("ENDED", &ended).replace("HEX", hex_of(&died));
    let path = normal(rig.audit.join(&name));
    let what = format!("{name} as {kind:?}");
    if !kind.plant(&rig, &path) {
        return;
    }
    if read {
        read_everything(&what, &rig, &died, &ended);
    }
    rig.run(&format!("{what}: recover"), &["recover", "--json"], "");
    rig.proxy_with_any_key(&format!("{what}: proxy"), &["--policy", "policy.yaml", "--store-results"]);
    rig.run(&format!("{what}: recover again"), &["recover"], "");
    nothing_foreign_is_signed(&what, &rig, &[died, ended]);
}

fn sweep(names: &[String]) {
    let all = std::env::var_os("ASSAY_PLANTED").is_some_and(|v| v == "all");
    let kinds = || Kind::ALL.into_iter().enumerate();
    let cases = names.iter().enumerate().flat_map(|(n, name)| kinds().map(move |(k, kind)| (n + k, name, kind)));
    let cases: Vec<(&String, Kind)> =
        cases.filter(|(at, ..)| all || at % 3 == 0).map(|(_, name, kind)| (name, kind)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((name, kind)) = cases.get(at) else { return };
            sweep_one(name, *kind, all || at.is_multiple_of(4));
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn whatever_stands_at_the_name_of_a_file_is_no_way_out() {
    sweep(&files("DIED_HEX", "ENDED_HEX").into_iter().map(undo).collect::<Vec<_>>());
}

/// A home below the working directory may have come with a repository, like everything in it. One that is relative is none.
#[test]
fn a_relative_home_is_none_and_the_session_passes() {
    for home in [".", "home", "./", "../work"] {
        let rig = Prepared::new();
        let env = [("ASSAY_HOME", None), ("HOME", Some(home))];
        let output = rig.run_in(home, &env, &["mcp-proxy", "--", "cat"], LINES);
        assert_eq!(String::from_utf8_lossy(&output.stdout), LINES, "{home}: {}", said(&output));
        assert_eq!(output.status.code(), Some(2), "{home}: {}", said(&output));
        assert!(said(&output).contains("set HOME"), "{home}: {}", said(&output));
        assert_eq!(names(&rig.work.join(".assay")), ["mcp"], "{home}");
        assert!(!rig.work.join("home").exists() && rig.packs().is_empty());
    }
}

/// The stems are known only once the sessions are there.
fn undo(name: String) -> String {
    name.replace("DIED_HEX", "DIED").replace("ENDED_HEX", "ENDED")
}

#[test]
fn whatever_stands_at_the_name_of_a_directory_is_no_way_out() {
    sweep(&DIRECTORIES.map(str::to_owned));
}

#[test]
fn whatever_stands_at_the_name_of_what_the_user_keeps_is_no_way_out() {
    sweep(&OF_USER.map(str::to_owned));
}

/// The parts of an audit directory that are not as we would have made them: nothing is recorded, which is said, and the
/// session goes on; under a guard every call is refused.
#[test]
fn a_directory_that_is_not_ours_costs_the_evidence_and_not_the_session() {
    for name in DIRECTORIES {
        for kind in [Kind::LinkToDirectory, Kind::DirectoryOpenToOthers] {
            let rig = Prepared::new();
            if name != "../../.assay" || kind == Kind::LinkToDirectory {
                assert!(kind.plant(&rig, &normal(rig.audit.join(name))));
            } else {
                continue;
            }
            let what = format!("{name:?} as {kind:?}");
            let output = rig.proxy(&what, &[]);
            assert_eq!(output.status.code(), Some(2), "{what}: {}", said(&output));
            assert!(said(&output).contains("nothing of this session will be recorded"), "{what}: {}", said(&output));
            let guard = ["mcp-proxy", "--profile", "guard", "--policy", "policy.yaml", "--", "cat"];
            let output = rig.run(&what, &guard, LINES);
            let got = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said(&output).contains("every tool call will be refused"), "{what}: {}", said(&output));
            let refused = got.lines().find(|l| l.contains("\"id\":1")).unwrap_or_default();
            assert!(refused.contains("isError") || refused.contains("\"error\""), "{what}: {got}");
        }
    }
}

/// `a/../b` is `b`: whatever is planted at `a` stays out of it.
fn normal(path: PathBuf) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

/// A link below the working directory may have come with it; one elsewhere was chosen by the user.
#[test]
fn a_chosen_directory_may_be_reached_through_a_link_and_a_default_one_may_not() {
    let rig = Prepared::new();
    let (real, chosen) = (rig.root.join("real"), rig.root.join("chosen"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &chosen).unwrap();
    let flags = ["--audit-dir", chosen.to_str().unwrap()];
    assert_eq!(rig.proxy("chosen", &flags).status.code(), Some(0));
    assert_eq!(names(&real.join("packs")).len(), 1);
    fs::create_dir(rig.work.join(".assay")).unwrap();
    symlink(&real, &rig.audit).unwrap();
    for flags in [&[][..], &["--audit-dir", ".assay/mcp"], &["--audit-dir", rig.audit.to_str().unwrap()]] {
        let output = rig.proxy("default", flags);
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(".assay/mcp: it is a symbolic link"), "{}", said(&output));
        let output = rig.run("recover", &[&["recover"], flags].concat(), "");
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    }
    assert_eq!(names(&real.join("packs")).len(), 1);
}

/// Others may read what is ours (a directory that was made by hand), and nobody may write to it.
#[test]
fn a_directory_that_others_may_only_read_is_used() {
    let rig = Prepared::new();
    fs::create_dir_all(&rig.audit).unwrap();
    fs::set_permissions(&rig.audit, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(rig.proxy("0755", &[]).status.code(), Some(0));
}
