//! `assay-verify` says what `assay verify-pack` says: on packs of every kind, with every option, and with arguments that make
//! no sense. So do its other commands. Its own package starts it as a process (`tests/verify/program.rs`).

use assay::{
    model::{
        pack::{Manifest, pretty},
        session::SESSION_VERSION,
        sha256_hex,
    },
    pack::{
        sign::sign,
        verify::{
            program::{NAME, run},
            request::ELSEWHERE,
            terminal::Style,
        },
    },
};
use assay_support::{
    rig::{Rig, rig},
    sessions::{self, Ending, Plan},
};
use serde_json::Value;
use std::{fs, path::Path};

/// Standard output, standard error, exit code.
type Said = (String, String, u8);

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_owned()).unwrap()
}

/// What differs from one run to the next: when, and the id that follows from it.
fn timeless(said: &str) -> String {
    let Ok(mut report) = serde_json::from_str::<Value>(said) else { return said.to_owned() };
    for member in ["verified_at", "report_id"] {
        assert!(report.get(member).is_some() || report["status"] == "error", "{member}: {report}");
        report[member] = Value::Null;
    }
    report.to_string()
}

fn of_assay(rig: &Rig, args: &[&str]) -> Said {
    let out = rig.run(&[&["verify-pack"], args].concat());
    // The words about arguments are those of two libraries.
    (timeless(&text(&out.stdout)), text(&out.stderr), u8::try_from(out.status.code().unwrap()).unwrap())
}

fn of_assay_verify(args: &[&str]) -> Said {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(args.iter().map(Into::into).collect(), Style::plain(), &mut out, &mut err);
    let named = |bytes: &[u8]| text(bytes).replace(&format!("{NAME} "), "assay verify-pack ");
    (timeless(&named(&out)), text(&err).replace(&format!("{NAME}: "), "assay: "), code)
}

/// Writes a changed `session.json`, and signs that.
fn change_session(pack: &Path, change: impl Fn(String) -> String) {
    let path = pack.join("session.json");
    let text = change(fs::read_to_string(&path).unwrap());
    fs::write(&path, &text).unwrap();
    let manifest = pack.join("pack_manifest.json");
    let mut m: Manifest = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    let entry = m.files.iter_mut().find(|f| f.path == "session.json").unwrap();
    (entry.sha256, entry.bytes) = (sha256_hex(text.as_bytes()), text.len() as u64);
    let (m, signature) = sign(m.attestation, m.files, &sessions::signer()).unwrap();
    fs::write(manifest, pretty(&m).unwrap()).unwrap();
    fs::write(pack.join("pack_signature.sig"), signature).unwrap();
}

/// What can be verified, and what cannot: its name, its place, the exit code without options.
fn packs(rig: &Rig) -> Vec<(&'static str, String, u8)> {
    let plan = Plan { calls: 9, error_every: 4, ..Plan::default() };
    let make = |seed, ending| rig.pack(&Plan { seed, ending, ..plan.clone() });
    let good = make(1, Ending::Complete);
    let tampered = make(2, Ending::Complete);
    let receipts = tampered.join("receipt_pack.jsonl");
    let changed = fs::read_to_string(&receipts).unwrap().replacen("\"seq\":3,", "\"seq\":4,", 1);
    fs::write(&receipts, changed).unwrap();
    let more = make(3, Ending::Complete);
    fs::write(more.join("\u{202e}notes\u{1b}[31m"), "x").unwrap();
    let newer = make(4, Ending::Complete);
    let later = format!("\"v\":\"{SESSION_VERSION}.7\",\"zz\":[]}}");
    change_session(&newer, |text| text.replace("\"v\":1}", &later));
    let newest = make(5, Ending::Complete);
    let manifest = newest.join("pack_manifest.json");
    let later = fs::read_to_string(&manifest).unwrap().replacen("\"1.0.0\"", "\"7.0.0\"", 1);
    fs::write(&manifest, later).unwrap();
    let cut = make(6, Ending::Complete);
    fs::remove_file(cut.join("pack_manifest.json")).unwrap();
    let linked = make(7, Ending::Complete);
    fs::remove_file(linked.join("session.json")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", linked.join("session.json")).unwrap();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v0.1/audit/packs");
    let old = fs::read_dir(old).unwrap().next().unwrap().unwrap().path();
    [
        ("intact", good, 0),
        ("tampered", tampered, 2),
        ("with a file more", more, 0),
        ("incomplete", make(8, Ending::Incomplete), 1),
        ("unterminated", make(9, Ending::Unterminated), 1),
        ("of a later version", newer, 3),
        ("of a later version, not signed", newest, 2),
        ("without a manifest", cut, 3),
        ("with a link", linked, 2),
        ("of version 0.1", old, 0),
        ("gone", rig.at("gone"), 3),
        (
            "a file",
            {
                rig.file("a file", "x");
                rig.at("a file")
            },
            3,
        ),
    ]
    .map(|(what, path, code)| (what, path.to_str().unwrap().to_owned(), code))
    .into()
}

fn lock(rig: &Rig, name: &str, signers: &str) -> String {
    let cards = ["receipt_completeness", "mcp_session_completeness"];
    let known: Vec<_> = cards.iter().map(|id| assay::pack::claims::card(id).unwrap()).collect();
    let doc = serde_json::json!({
        "lock_version": "1.0", "assay_version_min": "1.0.0", "pack_format_version": "0.1.0",
        "run_cards": known.iter().map(|c| serde_json::json!({"id": c.id, "claim_set_hash": c.claim_set_hash()})).collect::<Vec<_>>(),
        "run_cards_composite_hash": "0", "claim_set_hash": "0",
        "exit_contract": {"0": "a", "1": "b", "2": "c"},
        "signer_policy": {"mode": "allowlist", "allowed_fingerprints": [signers]},
    });
    rig.file(name, &doc.to_string())
}

#[test]
fn both_programs_say_the_same_of_every_pack_with_every_option() {
    let rig = rig!();
    let fingerprint = sessions::signer().fingerprint();
    let other = "ab".repeat(32);
    let sha = "c".repeat(40);
    let broken = rig.file("broken.lock", "{");
    let locks = [lock(&rig, "ours.lock", &fingerprint), lock(&rig, "others.lock", &other)];
    let out = rig.at("gone/report.json");
    let mut asked: Vec<Vec<&str>> = vec![
        vec![],
        vec!["--strict"],
        vec!["--signer", &fingerprint],
        vec!["--signer", &other, "--signer", &fingerprint, "--strict"],
        vec!["--signer", &other],
        vec!["--lock", &locks[0]],
        vec!["--lock", &locks[1]],
        vec!["--lock", &broken],
        vec!["--lock", "/dev/null"],
        vec!["--lock", "no.such"],
        vec!["--cards", "mcp_session_completeness, receipt_completeness,", "--require-claim-pass"],
        vec!["--cards", "guardian_enforcement"],
        vec!["--cards", "no_such_card"],
        vec!["--require-claim-pass"],
        vec!["--max-age-hours", "1"],
        vec!["--max-age-hours=1e9"],
        vec!["--check-expiry"],
        vec!["--require-ci-binding"],
        vec!["--expected-commit-sha", &sha],
        vec!["--out", out.to_str().unwrap()],
    ];
    let elsewhere: Vec<String> = ELSEWHERE.iter().map(|o| format!("--{}", o.name)).collect();
    for (option, name) in ELSEWHERE.iter().zip(&elsewhere) {
        asked.push(if option.takes_value { vec![name, "x"] } else { vec![name] });
    }
    asked.push(vec![&elsewhere[7], &elsewhere[2]]);
    for (what, pack, code) in packs(&rig) {
        // Every option on one pack of each verdict.
        let every = ["intact", "tampered", "incomplete", "of a later version", "gone"].contains(&what);
        for args in asked.iter().take(if every { asked.len() } else { 4 }) {
            for json in [&[][..], &["--json"]] {
                let args = [&[pack.as_str()], &args[..], json].concat();
                let (said, other) = (of_assay_verify(&args), of_assay(&rig, &args));
                if ["gone", "a file", "without a manifest"].contains(&what) {
                    // assay takes names of sessions, too, and says of what is none which names there are.
                    assert_eq!(said.2, other.2, "{what}: {args:?}: {said:?} {other:?}");
                    assert_eq!(said.0.is_empty(), other.0.is_empty(), "{what}: {args:?}");
                } else {
                    assert_eq!(said, other, "{what}: {args:?}");
                }
                assert!(args.len() > 1 || said.2 == code, "{what}: {said:?}");
            }
        }
    }
}

#[test]
fn both_programs_write_the_same_report_and_only_to_a_new_file() {
    let rig = rig!();
    let pack = rig.pack(&Plan::default());
    let [ours, theirs] = ["ours.json", "theirs.json"].map(|name| rig.at(name).to_str().unwrap().to_owned());
    let pack = pack.to_str().unwrap();
    let said = of_assay_verify(&[pack, "--out", &ours]);
    assert_eq!(said, of_assay(&rig, &[pack, "--out", &theirs]));
    let [report, other] = [&ours, &theirs].map(|path| timeless(&fs::read_to_string(path).unwrap()));
    assert_eq!(report, other);
    let inside = format!("{pack}/report.json");
    for file in [&ours, &inside] {
        for json in [&[][..], &["--json"]] {
            let args = [&[pack, "--out", file], json].concat();
            let said = of_assay_verify(&args);
            assert_eq!((&said, said.2), (&of_assay(&rig, &args), 3), "{file}");
        }
    }
    assert!(!Path::new(&inside).exists());
}

#[test]
fn both_programs_refuse_the_same_arguments() {
    let rig = rig!();
    let pack = rig.pack(&Plan::default());
    let pack = pack.to_str().unwrap();
    for args in [
        &[][..],
        &[""],
        &[pack, "--no-such"],
        &[pack, "-x"],
        &[pack, "--strict=1"],
        &[pack, "--strict", "--strict"],
        &[pack, "--json", "--json"],
        &[pack, "--signer"],
        &[pack, "--signer", "--json"],
        &[pack, "--signer", "abc"],
        &[pack, "--max-age-hours", "-1"],
        &[pack, "--max-age-hours=nan"],
        &[pack, "--expected-commit-sha", "abc"],
        &[pack, "--lock", ""],
        &[pack, "--lock", "a", "--lock", "b"],
        &[pack, "--out", "-x"],
        &[pack, "--cards"],
        &[pack, "--html"],
        &["--", "--json"],
    ] {
        let (ours, theirs) = (of_assay_verify(args), of_assay(&rig, args));
        assert_eq!((ours.0.as_str(), ours.2), ("", 3), "{args:?}");
        assert_eq!((ours.0, ours.2), (theirs.0, theirs.2), "{args:?}");
        assert!(ours.1.starts_with("assay: error: "), "{args:?}: {}", ours.1);
    }
    // The smaller program takes one pack.
    assert_eq!((of_assay_verify(&[pack, pack]).2, of_assay(&rig, &[pack, pack]).2), (3, 0));
    for args in [&["--help"][..], &["-h"], &[pack, "--strict", "--help"]] {
        let (ours, theirs) = (of_assay_verify(args), of_assay(&rig, args));
        assert_eq!((ours.2, theirs.2, ours.1.as_str()), (0, 0, ""), "{args:?}");
    }
}

#[test]
fn both_programs_say_the_same_of_directories_and_proofs() {
    let rig = rig!();
    rig.record("audit", &[], &[serde_json::json!({"name": "echo", "arguments": {"text": "a"}})]);
    let proven = rig.run(&["prove", "last", "--audit-dir", "audit", "--event", "2", "--out", "proof"]);
    assert!(proven.status.success(), "{}", text(&proven.stderr));
    let proof = rig.at("proof").to_str().unwrap().to_owned();
    let changed = rig.file("changed", &fs::read_to_string(&proof).unwrap().replacen("index 2", "index 1", 1));
    let no_proof = rig.file("none", "x");
    let dir = rig.at("audit").to_str().unwrap().to_owned();
    let broken = rig.at("broken");
    assert!(rig.command("cp").args(["-a", &dir]).arg(&broken).status().unwrap().success());
    let ledger = broken.join("audit/ledger.jsonl");
    let lines = fs::read_to_string(&ledger).unwrap();
    fs::write(&ledger, lines.replacen("segment_start", "segment_begin", 1)).unwrap();
    let broken = broken.to_str().unwrap().to_owned();
    let signer = rig.json(0, &["keys", "show"])["fingerprint"].as_str().unwrap().to_owned();
    let other = "0".repeat(64);
    let policy = rig.file("policy", "quorum none\n");
    let no_policy = rig.file("no_policy", "witness\n");
    let (state, gone) = (rig.at("state").to_str().unwrap().to_owned(), rig.at("gone").to_str().unwrap().to_owned());
    let rows: Vec<(Vec<&str>, u8)> = vec![
        (vec!["verify-dir", &dir], 0),
        (vec!["verify-dir", &dir, "--packs", "none", "--signer", &signer], 0),
        (vec!["verify-dir", &dir, "--signer", &other], 2),
        (vec!["verify-dir", &broken], 2),
        (vec!["verify-dir", &gone], 3),
        (vec!["verify-dir", &dir, "--policy", &policy], 0),
        (vec!["verify-dir", &dir, "--policy", &policy, "--require-anchor"], 1),
        (vec!["verify-dir", &dir, "--policy", &no_policy], 3),
        (vec!["verify-dir", &dir, "--policy", &policy, "--anchor", &gone], 3),
        (vec!["verify-dir", &dir, "--state", &state], 0),
        (vec!["verify-dir", &dir, "--state", &no_policy], 3),
        (vec!["verify-proof", &proof], 0),
        (vec!["verify-proof", &proof, "--signer", &signer], 0),
        (vec!["verify-proof", &proof, "--signer", &other], 2),
        (vec!["verify-proof", &changed], 2),
        (vec!["verify-proof", &no_proof], 3),
        (vec!["verify-proof", &gone], 3),
    ];
    for (args, code) in rows {
        for json in [&[][..], &["--json"]] {
            let args = [&args[..], json].concat();
            let out = rig.run(&args);
            let theirs = (text(&out.stdout), text(&out.stderr), u8::try_from(out.status.code().unwrap()).unwrap());
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let exit = run(args.iter().map(Into::into).collect(), Style::plain(), &mut out, &mut err);
            let ours = (text(&out), text(&err).replace(&format!("{NAME}: "), "assay: "), exit);
            assert_eq!((&ours, ours.2), (&theirs, code), "{args:?}");
        }
    }
}
