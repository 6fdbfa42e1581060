//! A prune that is killed: the ledger names whatever is gone, and the next one finishes.

use assay::{
    model::{LedgerKind, ledger::PrunedWhat},
    pack::verify::{SegmentState, verify_audit_dir},
    paths::AuditDir,
};
use assay_support::{
    check,
    rig::{Rig, files, rig, stderr, until},
    sessions::Plan,
};
use std::{collections::BTreeSet, fs, ops::ControlFlow, path::PathBuf};

const SESSIONS: u64 = 3;

fn directory(sessions: u64) -> Rig {
    let rig = rig!();
    for seed in 1..=sessions {
        rig.pack(&Plan {
            seed,
            calls: 2,
            started_ms: 1_773_574_200_000 + seed.cast_signed() * 60_000,
            ..Plan::default()
        });
    }
    rig
}

fn prune(rig: &Rig, keep: &str) -> std::process::Output {
    rig.run(&["prune", "--audit-dir", rig.audit.to_str().unwrap(), "--keep", keep, "--yes", "--json"])
}

fn packs(rig: &Rig) -> BTreeSet<String> {
    let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    files(&rig.audit.join("packs"), |_| true).into_iter().map(name).collect()
}

/// Whatever is gone is named by a tombstone, and nothing else is wrong.
fn holds(rig: &Rig, all: &BTreeSet<String>, when: &str) {
    let there = packs(rig);
    let named: BTreeSet<String> = check::ledger(rig)
        .into_iter()
        .filter(|line| line.kind == LedgerKind::Pruned)
        .map(|line| line.pruned.unwrap().name)
        .collect();
    for pack in all.difference(&there) {
        assert!(named.contains(pack), "{when}: {pack} is gone, and nothing says so");
    }
    for pack in all.difference(&named) {
        let out = rig.run(&["verify-pack", rig.audit.join("packs").join(pack).to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(0), "{when}: {pack}: {}", stderr(&out));
    }
    let report = verify_audit_dir(&rig.audit, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.intact(), "{when}: {:#?}", report.findings);
}

/// The same once another prune, which is to remove nothing, has finished.
fn finishes(rig: &Rig, all: &BTreeSet<String>, kept: u64, when: &str) {
    let out = prune(rig, "1000");
    assert_eq!(out.status.code(), Some(0), "{when}: {}", String::from_utf8_lossy(&out.stdout));
    holds(rig, all, when);
    let there = packs(rig);
    assert!(there.len() as u64 == kept && there.is_subset(all), "{when}: {there:?}");
    assert_eq!(AuditDir::at(&rig.audit).sessions().len() as u64, kept, "{when}");
    let left = ["receipts", "investigation", "surface"].map(|dir| files(&rig.audit.join(dir), |_| true).len() as u64);
    assert!(left.iter().all(|left| *left <= kept), "{when}: {left:?}");
    check::settled(rig);
}

#[test]
fn a_prune_that_is_killed_at_any_step_is_finished_by_the_next_one() {
    let rig = directory(SESSIONS);
    let dir = AuditDir::at(&rig.audit);
    let oldest = dir.sessions().into_values().next().unwrap();
    fs::create_dir(dir.surface()).unwrap();
    fs::create_dir(dir.investigation()).unwrap();
    for path in [&oldest.surface, &oldest.investigation] {
        fs::write(path, "{}\n").unwrap();
    }
    let all = packs(&rig);
    let before: Vec<(PathBuf, Vec<u8>)> = check::tree(&rig.audit)
        .into_keys()
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let out = prune(&rig, "2");
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stdout));
    holds(&rig, &all, "a whole prune");
    assert!(!oldest.pack.exists() && packs(&rig).len() == 2);
    let lines: Vec<_> = check::ledger(&rig).into_iter().filter(|line| line.kind == LedgerKind::Pruned).collect();
    let what: Vec<_> = lines.iter().map(|line| line.pruned.as_ref().unwrap().what).collect();
    assert_eq!(what, [PrunedWhat::Payloads, PrunedWhat::Pack]);
    assert!(lines.iter().all(|line| line.v == 3 && line.session_id == Some(oldest.id)));
    let ledger = fs::read(dir.ledger()).unwrap();

    // The order in which things go.
    let gone = [oldest.investigation.clone(), oldest.surface.clone(), oldest.receipts, oldest.segment];
    let going = oldest.pack.with_file_name(format!(".pruned_{}", oldest.stem));
    let in_pack: Vec<&PathBuf> = before.iter().map(|(path, _)| path).filter(|p| p.starts_with(&oldest.pack)).collect();
    let steps = gone.len() + 1 + in_pack.len();
    for step in 0..=steps {
        for (path, bytes) in &before {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        fs::write(dir.ledger(), &ledger).unwrap();
        gone.iter().take(step).for_each(|path| fs::remove_file(path).unwrap());
        if step > gone.len() {
            fs::rename(&oldest.pack, &going).unwrap();
            for path in in_pack.iter().take(step - gone.len() - 1) {
                fs::remove_file(going.join(path.strip_prefix(&oldest.pack).unwrap())).unwrap();
            }
        }
        let when = format!("killed at step {step} of {steps}");
        holds(&rig, &all, &when);
        let recovered = rig.recover();
        assert_eq!(recovered.status.code(), Some(0), "{when}: {}", String::from_utf8_lossy(&recovered.stdout));
        finishes(&rig, &all, 2, &when);
    }
}

#[test]
fn a_tombstone_that_nobody_signed_removes_nothing() {
    let rig = directory(2);
    let all = packs(&rig);
    let ledger = AuditDir::at(&rig.audit).ledger();
    let saved: Vec<_> = check::tree(&rig.audit).into_keys().filter(|path| path.is_file()).collect();
    let saved: Vec<_> = saved.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    assert_eq!(prune(&rig, "1").status.code(), Some(0));
    let tombstone = fs::read_to_string(&ledger).unwrap();
    let put_back = |text: &str| {
        for (path, bytes) in &saved {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        fs::write(&ledger, text).unwrap();
    };
    // Of another pack, of another kind, and signed by another home.
    let hash = check::ledger(&rig).pop().unwrap().pruned.unwrap().sha256;
    for (n, (text, said)) in [
        (tombstone.replace(&hash, &"0".repeat(64)), "signature does not hold"),
        (tombstone.replace("\"what\":\"pack\"", "\"what\":\"payloads\""), ""),
        (tombstone.clone(), "another key signed its tombstone"),
    ]
    .into_iter()
    .enumerate()
    {
        put_back(&text);
        let mut command = rig.program(&["prune", "--audit-dir", rig.audit.to_str().unwrap(), "--keep", "9", "--yes"]);
        if n == 2 {
            command.env("ASSAY_HOME", rig.at("other"));
        }
        let out = command.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(out.status.code(), Some(if said.is_empty() { 0 } else { 2 }), "{n}: {text}{}", stderr(&out));
        assert!(text.contains(said), "{n}: {text}");
        assert_eq!(packs(&rig), all, "{n}");
        let report = verify_audit_dir(&rig.audit, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(report.intact(), n == 2, "{n}: {:#?}", report.findings);
        assert!(report.segments.iter().all(|s| s.state != SegmentState::Pruned), "{n}");
    }
}

#[test]
fn a_prune_that_gets_a_sigkill_loses_no_pack_that_the_ledger_does_not_name() {
    let rig = directory(30);
    let all = packs(&rig);
    let ledger = AuditDir::at(&rig.audit).ledger();
    let length = || fs::metadata(&ledger).unwrap().len();
    for kept in [20, 10] {
        let begun = length();
        let args = ["prune", "--audit-dir", rig.audit.to_str().unwrap(), "--keep", &kept.to_string(), "--yes"];
        let mut child = rig.program(&args).stdout(std::process::Stdio::null()).spawn().unwrap();
        until("a tombstone, or the end", || (length() > begun || child.try_wait().unwrap().is_some()).then_some(()));
        let _ = child.kill();
        child.wait().unwrap();
        // The last line may be half a line: what is gone is named by a whole one.
        let text = fs::read_to_string(&ledger).unwrap();
        let there = packs(&rig);
        assert!(all.difference(&there).all(|pack| text.contains(&format!("\"name\":\"{pack}\""))), "{there:?}");
        assert_eq!(prune(&rig, &kept.to_string()).status.code(), Some(0));
        finishes(&rig, &all, kept, "killed");
    }
}
