//! `assay verify-pack` and `assay explain` on whole packs, run as a user runs them.

use assay::{
    model::{
        pack::{Manifest, pretty},
        session::SESSION_VERSION,
        sha256_hex,
    },
    pack::sign::sign,
};
use assay_support::{
    check::tree,
    rig::{Rig, rig, stderr, stdout},
    sessions::{self, Ending, Plan},
};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::PathBuf, process::Output};

/// A pack, and the fingerprint of the key that it was signed with.
struct Sealed {
    rig: Rig,
    pack: PathBuf,
    fingerprint: String,
}

impl Sealed {
    fn new(plan: &Plan) -> Self {
        let rig = rig!();
        Self { pack: rig.pack(plan), rig, fingerprint: sessions::signer().fingerprint() }
    }

    fn verify(&self, args: &[&str]) -> Output {
        self.rig.run(&[&["verify-pack", self.pack.to_str().unwrap()], args].concat())
    }

    fn tree(&self) -> BTreeMap<PathBuf, String> {
        tree(&self.rig.root)
    }
}

#[test]
fn an_intact_pack_is_said_to_be_so_in_words_and_in_json_and_nothing_is_written() {
    let f = Sealed::new(&Plan::default());
    let before = f.tree();
    let out = f.verify(&[]);
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    let text = stdout(&out);
    for word in [
        "✓ validate_schema",
        "✓ verify_chain",
        "✓ match_receipts_to_chain",
        "integrity     PASS",
        "completeness  COMPLETE",
        "signer        UNPINNED",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours without a terminal");
    assert!(stderr(&out).is_empty(), "no progress without a terminal: {}", stderr(&out));
    let pinned = f.verify(&["--json", "--strict", "--signer", &f.fingerprint]);
    assert_eq!(pinned.status.code(), Some(0), "{}", stdout(&pinned));
    let report: Value = serde_json::from_slice(&pinned.stdout).unwrap();
    assert_eq!(report["integrity_verdict"], "PASS");
    assert_eq!(report["completeness_verdict"], "COMPLETE");
    assert_eq!(f.tree(), before);
}

#[test]
fn every_demand_that_is_not_met_is_exit_code_1() {
    let f = Sealed::new(&Plan::default());
    for args in [&["--strict"][..], &["--max-age-hours", "1"], &["--require-claim-pass"]] {
        let out = f.verify(args);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {}", stdout(&out));
        assert!(stdout(&out).contains("Demands that are not met\n  - "), "{args:?}: {}", stdout(&out));
        assert!(stdout(&out).contains("integrity     PASS"), "{args:?}");
    }
    for ending in [Ending::Incomplete, Ending::Unterminated] {
        let f = Sealed::new(&Plan { ending, ..Plan::default() });
        let out = f.verify(&["--signer", &f.fingerprint]);
        assert_eq!(out.status.code(), Some(1), "{ending:?}: {}", stdout(&out));
        assert!(stdout(&out).contains("Not complete because\n  - "), "{ending:?}: {}", stdout(&out));
    }
    let claims = f.verify(&["--require-claim-pass", "--cards", "mcp_session_completeness,receipt_completeness"]);
    assert_eq!(claims.status.code(), Some(0), "{}", stdout(&claims));
}

impl Sealed {
    /// Lets a later version have written `session.json`, and signs that.
    fn of_a_later_version(&self, v: &str) {
        let path = self.pack.join("session.json");
        let text = fs::read_to_string(&path).unwrap().replace("\"v\":1}", &format!("\"v\":{v},\"zz\":[]}}"));
        fs::write(&path, &text).unwrap();
        let manifest = self.pack.join("pack_manifest.json");
        let mut m: Manifest = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        let entry = m.files.iter_mut().find(|f| f.path == "session.json").unwrap();
        (entry.sha256, entry.bytes) = (sha256_hex(text.as_bytes()), text.len() as u64);
        let (m, signature) = sign(m.attestation, m.files, &sessions::signer()).unwrap();
        fs::write(manifest, pretty(&m).unwrap()).unwrap();
        fs::write(self.pack.join("pack_signature.sig"), signature).unwrap();
    }
}

#[test]
fn a_pack_of_a_later_version_is_exit_code_3_whatever_is_asked_of_it() {
    let sound = Sealed::new(&Plan::default());
    let f = Sealed::new(&Plan { seed: 2, ..Plan::default() });
    let later = format!("{SESSION_VERSION}.7");
    f.of_a_later_version(&format!("\"{later}\""));
    let before = f.tree();
    for args in [
        &[][..],
        &["--strict", "--signer", &f.fingerprint],
        &["--require-claim-pass", "--cards", "mcp_session_completeness"],
        &["--max-age-hours", "1"],
    ] {
        let out = f.verify(args);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", stdout(&out));
        let text = stdout(&out);
        assert!(text.contains("integrity     UNSUPPORTED   signature and hashes hold"), "{text}");
        assert!(text.contains("E_VERSION_UNSUPPORTED  session.json\n"), "{text}");
        let said = format!("session.json is of version {later}, this assay reads up to {SESSION_VERSION}.");
        assert!(text.contains(&said), "{text}");
        assert!(text.contains("– session_completeness") && text.contains("✓ verify_signature"), "{text}");
        assert!(!text.contains("TAMPERED") && !text.contains("PASS"), "{text}");
    }
    let report: Value = serde_json::from_slice(&f.verify(&["--json"]).stdout).unwrap();
    for (member, word) in
        [("integrity_verdict", "UNSUPPORTED"), ("overall_verdict", "UNSUPPORTED"), ("blocking_channel", "integrity")]
    {
        assert_eq!(report[member], word);
    }
    assert_eq!((&report["passed"], &report["exit_code"]), (&false.into(), &3.into()));
    let untrusted = f.verify(&["--signer", &"ab".repeat(32)]);
    assert_eq!(untrusted.status.code(), Some(2), "{}", stdout(&untrusted));
    assert_eq!(f.tree(), before);

    let [pack, other] = [&f, &sound].map(|f| f.pack.to_str().unwrap());
    let policy = f.rig.at("policy.yaml");
    let policy = policy.to_str().unwrap();
    assert_eq!(f.rig.run(&["policy", "init", "-o", policy]).status.code(), Some(0));
    for args in [
        &["explain", pack][..],
        &["diff", other, pack],
        &["diff", pack, other],
        &["analyze", other, pack],
        &["policy", "dry-run", policy, "--against", pack],
        &["policy", "init", "--from", pack, "-o", "new.yaml"],
        &["open", "--plain", pack],
    ] {
        let out = f.rig.run(args);
        let said = stdout(&out) + &stderr(&out);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {said}");
        assert!(said.contains(&later) && said.contains("too new"), "{args:?}: {said}");
    }
    fs::write(f.pack.join("verify_transcript.md"), "x").unwrap();
    assert_eq!(f.verify(&[]).status.code(), Some(2));
    assert_eq!(f.rig.run(&["diff", other, pack]).status.code(), Some(2));
}

#[test]
fn another_signer_or_a_changed_byte_is_exit_code_2_and_the_place_is_named() {
    let f = Sealed::new(&Plan::default());
    let out = f.verify(&["--signer", &"ab".repeat(32)]);
    assert_eq!(out.status.code(), Some(2));
    assert!(stdout(&out).contains("signer        UNTRUSTED"), "{}", stdout(&out));
    let path = f.pack.join("receipt_pack.jsonl");
    let text = fs::read_to_string(&path).unwrap().replacen("\"seq\":3,", "\"seq\":4,", 1);
    fs::write(&path, text).unwrap();
    let out = f.verify(&["--signer", &f.fingerprint]);
    assert_eq!(out.status.code(), Some(2));
    let text = stdout(&out);
    assert!(text.contains("integrity     TAMPERED") && text.contains("receipt_pack.jsonl:4"), "{text}");
    assert!(text.contains("expected ") && text.contains("found "), "{text}");
    let report: Value = serde_json::from_slice(&f.verify(&["--json"]).stdout).unwrap();
    assert_eq!(report["integrity_verdict"], "TAMPERED");
}

#[test]
fn a_report_goes_to_a_new_file_and_to_no_other() {
    let f = Sealed::new(&Plan::default());
    assert_eq!(f.verify(&["--out", "report.json"]).status.code(), Some(0));
    let written: Value = serde_json::from_slice(&fs::read(f.rig.at("report.json")).unwrap()).unwrap();
    assert_eq!(written["integrity_verdict"], "PASS");
    let before = f.tree();
    let inside = f.pack.join("report.json");
    for file in ["report.json", inside.to_str().unwrap(), "no/such/dir/report.json"] {
        let out = f.verify(&["--out", file]);
        assert_eq!(out.status.code(), Some(3), "{file}");
        assert!(out.stdout.is_empty(), "{file}: said before the work is done");
    }
    assert_eq!(f.tree(), before);
}

#[test]
fn lock_files_and_cards_that_mean_nothing_are_bad_input() {
    let f = Sealed::new(&Plan::default());
    fs::write(f.rig.at("bad.lock"), "{").unwrap();
    for args in [&["--lock", "gone.lock"][..], &["--lock", "bad.lock"], &["--cards", "no_such_card"]] {
        let out = f.verify(args);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", stdout(&out));
        let name = args[1];
        assert!(stderr(&out).contains(name), "{args:?}: {}", stderr(&out));
        let json: Value = serde_json::from_slice(&f.verify(&[args, &["--json"]].concat()).stdout).unwrap();
        assert_eq!((&json["status"], &json["exit_code"]), (&"error".into(), &3.into()));
    }
}

#[test]
fn explain_says_what_is_in_a_pack_and_writes_nothing() {
    let f = Sealed::new(&Plan { calls: 9, error_every: 4, ..Plan::default() });
    let before = f.tree();
    let out = f.rig.run(&["explain", f.pack.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let text = stdout(&out);
    for word in ["synthetic-client 1.0", "synthetic-server", "read_file", "日本語の道具", &f.fingerprint, "not prove"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    let json: Value =
        serde_json::from_slice(&f.rig.run(&["explain", "--json", f.pack.to_str().unwrap()]).stdout).unwrap();
    assert_eq!((&json["total"]["calls"], &json["total"]["errors"]), (&9.into(), &2.into()));
    assert_eq!(f.tree(), before);
}
