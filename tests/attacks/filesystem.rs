//! Attacks with what a file is rather than with what it says.

use assay::pack::verify::Exit;
use assay::pack::verify::{Stage, StageStatus, VerifyError, VerifyOptions, verify};
use assay_support::{
    forge::{EVENTS, MANIFEST, RECEIPTS, SESSION, SIGNATURE, check, key_k, other, pinned, valid},
    rig::{rig, scratch, stderr},
};
use std::{
    fs,
    ops::ControlFlow,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

const FILES: [&str; 7] = [MANIFEST, SIGNATURE, RECEIPTS, EVENTS, SESSION, "verify_report.json", "verify_transcript.md"];

fn fifo(at: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, at, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
}

#[test]
fn nothing_but_a_plain_file_is_opened_and_nothing_blocks() {
    type Put = fn(&Path, &Path);
    let ways: [(&str, Put); 6] = [
        ("symlink to the same bytes", |at, good| symlink(good, at).unwrap()),
        ("symlink to nowhere", |at, _| symlink("/nowhere", at).unwrap()),
        ("hard link to the same bytes", |at, good| fs::hard_link(good, at).unwrap()),
        ("fifo", |at, _| fifo(at)),
        ("device", |at, _| symlink("/dev/zero", at).unwrap()),
        ("directory", |at, _| fs::create_dir(at).unwrap()),
    ];
    for name in FILES {
        for (way, put) in ways {
            let tmp = scratch();
            let (dir, good) = (tmp.path().join("p"), tmp.path().join("good"));
            valid().write(&dir);
            fs::rename(dir.join(name), &good).unwrap();
            put(&dir.join(name), &good);
            let report = check(&dir, &pinned());
            assert_eq!(report.exit(), Exit::Failed, "{name}: {way}");
            assert!(!report.authentic(), "{name}: {way}");
        }
        let tmp = scratch();
        valid().write(tmp.path());
        fs::remove_file(tmp.path().join(name)).unwrap();
        let result = verify(tmp.path(), &pinned(), &mut |_| ControlFlow::Continue(()));
        match result {
            Ok(report) => assert!(name != MANIFEST && report.exit() == Exit::Failed, "{name} missing"),
            Err(e) => assert!(name == MANIFEST && matches!(e, VerifyError::NotAPack { .. }), "{name} missing: {e}"),
        }
    }
}

#[test]
fn unlisted_entries_are_reported_and_fail_under_strict() {
    type Put = fn(&Path);
    let ways: [(&str, Put); 6] = [
        ("notes.txt", |at| fs::write(at, "x").unwrap()),
        (".hidden", |at| fs::write(at, "x").unwrap()),
        ("dir", |at| fs::create_dir(at).unwrap()),
        ("fifo", fifo),
        ("link", |at| symlink("/etc/passwd", at).unwrap()),
        ("_unsigned", |at| symlink("/tmp", at).unwrap()),
    ];
    for (name, put) in ways {
        let tmp = scratch();
        valid().write(tmp.path());
        put(&tmp.path().join(name));
        let report = check(tmp.path(), &pinned());
        assert_eq!(report.exit(), Exit::Ok, "{name}");
        assert!(report.warnings.iter().any(|w| w.contains(name)), "{name}: {:?}", report.warnings);
        let report = check(tmp.path(), &VerifyOptions { strict: true, ..pinned() });
        assert_eq!(report.exit(), Exit::Violation, "{name}");
        assert_eq!(report.stage(Stage::ValidatePaths).unwrap().status, StageStatus::Fail, "{name}");
    }
    let tmp = scratch();
    valid().write(tmp.path());
    fs::create_dir(tmp.path().join("_unsigned")).unwrap();
    fs::write(tmp.path().join("_unsigned/PACK_SUMMARY.md"), "anything").unwrap();
    assert_eq!(check(tmp.path(), &VerifyOptions { strict: true, ..pinned() }).exit(), Exit::Ok);
}

#[test]
fn sparse_giants_and_many_entries_are_bounded() {
    for name in FILES {
        let tmp = scratch();
        valid().write(tmp.path());
        fs::OpenOptions::new().write(true).open(tmp.path().join(name)).unwrap().set_len(4 << 30).unwrap();
        let report = check(tmp.path(), &pinned());
        assert_eq!(report.exit(), Exit::Failed, "{name}");
    }
    let tmp = scratch();
    valid().write(tmp.path());
    for n in 0..3000 {
        fs::write(tmp.path().join(format!("x{n}")), "").unwrap();
    }
    let report = check(tmp.path(), &pinned());
    assert!(
        report.warnings.len() < 50 && report.warnings.iter().any(|w| w.contains("more entries")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn files_swapped_while_they_are_verified_are_never_mixed() {
    for name in [RECEIPTS, EVENTS] {
        let tmp = scratch();
        let dir = tmp.path();
        valid().write(dir);
        let other = other();
        let mut swapped = false;
        let report = verify(dir, &pinned(), &mut |p| {
            // Everything is open by now: what is put in its place is not what is verified.
            if p.stage >= Stage::ValidateFileHashes && !swapped {
                swapped = true;
                fs::write(dir.join("new"), &other.0[name]).unwrap();
                fs::rename(dir.join("new"), dir.join(name)).unwrap();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(report.authentic(), report.errors.is_empty());
        if report.authentic() {
            let listed = assay::model::sha256_hex(&valid().0[RECEIPTS]);
            assert_eq!(report.facts.receipt_pack_sha256, Some(listed), "{name}");
            assert_eq!(report.facts.run_id, check_valid_run_id(), "{name}");
        }
    }
}

fn check_valid_run_id() -> Option<String> {
    let tmp = scratch();
    valid().write(tmp.path());
    check(tmp.path(), &pinned()).facts.run_id
}

#[test]
fn a_verification_can_be_stopped() {
    let tmp = scratch();
    valid().write(tmp.path());
    let stopped = verify(tmp.path(), &pinned(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(VerifyError::Cancelled)));
}

#[test]
fn a_read_only_pack_verifies_and_no_key_is_made() {
    let rig = rig!();
    let dir = rig.at("p");
    valid().write(&dir);
    for name in FILES {
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o444)).unwrap();
    }
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o555)).unwrap();
    let out = rig.run(&["verify-pack", "--signer", &key_k().fingerprint(), "p"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert!(!rig.at("home").exists());
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
}
