//! What a caller demands is met by what was evaluated, never by what the pack says of itself.

use assay::pack::verify::Exit;
use assay::{
    model::pack::{Attestation, CiBinding},
    pack::{
        claims::{Card, MCP_SESSION, RECEIPT_COMPLETENESS, card, claim_set_hash},
        lock::Lock,
        verify::{Claims, Integrity, SignerVerdict, Stage, StageStatus, VerifyOptions, VerifyReport},
    },
};
use assay_support::{
    alone::{only, peak_kib},
    forge::{Pack, check, check_pack, key_e, key_k, pinned, small, unpinned, valid},
    rig::{rig, scratch, stderr},
    sessions::{Ending, Plan},
};
use serde_json::{Value, json};
use std::{fs, io::Write as _, os::unix::fs::FileExt as _};

fn signed(change: impl FnOnce(&mut Attestation)) -> Pack {
    let mut pack = small();
    pack.sign_attesting(&key_k(), change);
    pack
}

/// A lock as assay-ai writes it.
fn lock(ids: &[&str], change: impl FnOnce(&mut Value)) -> Lock {
    let cards: Vec<Card> = ids.iter().map(|id| card(id).unwrap()).collect();
    let hashes: Vec<String> = cards.iter().map(Card::claim_set_hash).collect();
    let mut doc = json!({
        "lock_version": "1.0", "assay_version_min": "1.0.0", "pack_format_version": "0.1.0",
        "run_cards": cards.iter().map(|c| json!({"id": c.id, "claim_set_hash": c.claim_set_hash()})).collect::<Vec<_>>(),
        "run_cards_composite_hash": assay::model::sha256_hex(json!(hashes).to_string().as_bytes()),
        "claim_set_hash": claim_set_hash(&cards),
        "exit_contract": {"0": "pass", "1": "honest fail", "2": "tampered"},
        "signer_policy": {"mode": "allowlist", "allowed_fingerprints": [key_k().fingerprint()]},
    });
    change(&mut doc);
    Lock::parse(doc.to_string().as_bytes()).unwrap()
}

fn under(pack: &Pack, lock: Lock) -> VerifyReport {
    check_pack(pack, &VerifyOptions { lock: Some(lock), ..unpinned() })
}

/// The pack of a session whose chain has no end: what the session's card demands is not there.
fn unterminated() -> Pack {
    let plan = Plan { calls: 2, ending: Ending::Unterminated, ..Plan::default() };
    Pack::read(&assay_support::forge::recorded(&plan).1)
}

#[test]
fn a_lock_with_cards_is_met_by_evidence_that_satisfies_them_and_by_no_other() {
    let both = [MCP_SESSION, RECEIPT_COMPLETENESS];
    for ids in [&both[..1], &both[1..], &both[..], &[]] {
        // A lock without cards demands no claims of a pack that attests none.
        let set_none = |doc: &mut Value| doc["claim_set_hash"] = assay::model::sha256_hex(b"none").into();
        let lock = if ids.is_empty() { lock(ids, set_none) } else { lock(ids, |_| ()) };
        let report = under(&small(), lock);
        assert_eq!(report.exit(), Exit::Ok, "{ids:?}: {:?}", report.unmet);
        assert_eq!(report.claims == Claims::Pass, !ids.is_empty(), "{ids:?}");
        assert_eq!(report.signer.verdict, SignerVerdict::Pinned);
    }
    let report = under(&unterminated(), lock(&both, |_| ()));
    assert_eq!((report.exit(), report.claims), (Exit::Violation, Claims::HonestFail), "{:?}", report.unmet);
    type Change = fn(&mut Value);
    let drifted: [(&str, Change); 4] = [
        ("claim_set_hash", |d| d["claim_set_hash"] = "0".repeat(64).into()),
        ("composite", |d| d["run_cards_composite_hash"] = "0".repeat(64).into()),
        ("card", |d| d["run_cards"][0]["claim_set_hash"] = "0".repeat(64).into()),
        ("pack_format_version", |d| d["pack_format_version"] = "9.9.9".into()),
    ];
    for (name, change) in drifted {
        assert_eq!(under(&small(), lock(&both, change)).exit(), Exit::Violation, "{name}");
    }
    let other = lock(&both, |d| d["signer_policy"]["allowed_fingerprints"] = json!([key_e().fingerprint()]));
    assert_eq!(under(&small(), other).exit(), Exit::Failed);
}

#[test]
fn a_pack_that_attests_claims_must_attest_those_of_the_lock() {
    let attest = |ids: &[&str]| {
        let cards: Vec<Card> = ids.iter().map(|id| card(id).unwrap()).collect();
        let mut pack = small();
        pack.sign_attesting(&key_k(), |a| {
            a.claim_set_id = "cards".into();
            a.claim_set_hash = claim_set_hash(&cards);
            a.claim_check = "PASS".into();
        });
        pack
    };
    let other = under(&attest(&[RECEIPT_COMPLETENESS]), lock(&[MCP_SESSION], |_| ()));
    assert!(other.unmet.iter().any(|u| u.contains("claim_set_hash")), "{:?}", other.unmet);
}

#[test]
fn what_a_builder_attests_of_its_claims_meets_no_demand() {
    for check in ["PASS", "FAIL", "N/A"] {
        let pack = signed(|a| a.claim_check = check.into());
        let demand = VerifyOptions { require_claim_pass: true, ..pinned() };
        let report = check_pack(&pack, &demand);
        assert_ne!(report.claims, Claims::Pass, "{check}");
        assert_ne!(report.exit(), Exit::Ok, "{check}: {:?}", report.unmet);
    }
    let evaluated = VerifyOptions { require_claim_pass: true, cards: vec![MCP_SESSION.into()], ..pinned() };
    assert_eq!(check_pack(&small(), &evaluated).exit(), Exit::Ok);
    assert_eq!(check_pack(&unterminated(), &evaluated).exit(), Exit::Violation);
}

#[test]
fn expiry_and_ci_run_are_demands() {
    let sha = "a".repeat(40);
    let ci = |sha: &str| CiBinding {
        provider: "github_actions".into(),
        commit_sha: sha.into(),
        repo: None,
        r#ref: None,
        run_id: None,
        run_attempt: None,
        workflow_ref: None,
        actor: None,
    };
    let expiry = VerifyOptions { check_expiry: true, ..pinned() };
    for (until, exit) in [
        (None, Exit::Ok),
        (Some("9999-01-01T00:00:00.000Z"), Exit::Ok),
        (Some("2020-01-01T00:00:00.000Z"), Exit::Violation),
        (Some("2026-03-15T12:59:59.999+01:00"), Exit::Violation),
    ] {
        let pack = signed(|a| a.valid_until = Some(until.map(str::to_owned)));
        assert_eq!(check_pack(&pack, &expiry).exit(), exit, "{until:?}");
        assert_eq!(check_pack(&pack, &pinned()).exit(), Exit::Ok, "{until:?}: no demand");
    }
    let required = VerifyOptions { require_ci_binding: true, ..pinned() };
    let expected = VerifyOptions { expected_commit_sha: Some(sha.clone()), ..pinned() };
    for (built, by_required, by_expected) in [
        (None, Exit::Violation, Exit::Violation),
        (Some(ci(&sha)), Exit::Ok, Exit::Ok),
        (Some(ci(&"b".repeat(40))), Exit::Ok, Exit::Violation),
    ] {
        let pack = signed(|a| a.ci_binding = Some(built.clone()));
        for (options, exit) in [(&required, by_required), (&expected, by_expected), (&pinned(), Exit::Ok)] {
            let report = check_pack(&pack, options);
            assert_eq!(report.exit(), exit, "{built:?}: {:?} {:#?}", report.unmet, report.errors);
        }
    }
}

#[test]
fn options_of_assay_ai_are_offered_or_refused_with_what_to_use() {
    let rig = rig!();
    small().write(&rig.at("p"));
    let run = |args: &[&str]| {
        let out = rig.run(&[&["verify-pack"], args, &["p"]].concat());
        (out.status.code(), stderr(&out))
    };
    for (args, code) in [
        (&["--check-expiry"][..], 0),
        (&["--require-ci-binding"], 1),
        (&["--expected-commit-sha", &"A".repeat(40)], 1),
        (&["--expected-commit-sha", "abc"], 3),
        (&["--max-age-hours", "1"], 1),
    ] {
        assert_eq!(run(args).0, Some(code), "{args:?}");
    }
    for (args, instead) in [
        (&["--coverage-contract", "c.json"][..], "mcp_session_completeness"),
        (&["--min-coverage", "0.8"], "mcp_session_completeness"),
        (&["--require-witness"], "--signer"),
        (&["--html", "x.html"], "--json"),
        (&["--badge", "x.svg"], "--json"),
        (&["--trust-target", "ci_gate"], "--signer"),
        (&["--trust-policy-dir", "d"], "--lock"),
        (&["--enforce-trust-gate"], "--lock"),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(3), "{args:?}");
        assert!(text.contains(args[0]) && text.contains(instead), "{args:?}: {text}");
    }
}

/// Verifies in a process of its own, so that its memory is its own: see `in_a_process_of_its_own`.
fn peak_of(dir: &std::path::Path) -> (Option<i32>, u64) {
    let out = only("demands::in_a_process_of_its_own").env("VERIFY_ALONE", dir).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = text.lines().find_map(|l| l.split_once("PEAK ").map(|(_, v)| v.to_owned()));
    let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&out.stderr)));
    let (code, kib) = line.split_once(' ').unwrap();
    (code.parse().ok(), kib.trim().parse().unwrap())
}

#[test]
fn in_a_process_of_its_own() {
    let Some(dir) = std::env::var_os("VERIFY_ALONE") else { return };
    let before = peak_kib("self");
    let report = check(dir.as_ref(), &pinned());
    println!("\nPEAK {} {}", report.exit().code(), peak_kib("self") - before);
}

/// A member's text repeated until a file is long.
fn repeated(head: &str, part: &str, tail: &str, bytes: usize) -> Vec<u8> {
    let mut out = head.as_bytes().to_vec();
    while out.len() + part.len() + tail.len() < bytes {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(tail.as_bytes());
    out
}

#[test]
fn memory_is_flat_whatever_the_pack_holds() {
    const LIMIT_KIB: u64 = 400 << 10;
    let mib = 62 << 20;
    let line = |name: &str, from: &str| {
        let pack = small();
        pack.lines(name).into_iter().find(|l| l.contains(from)).unwrap()
    };
    let start = line("audit_log.jsonl", "chain_start");
    let receipt = line("receipt_pack.jsonl", "session_start");
    let call = line("receipt_pack.jsonl", "mcp_tool_call");
    let session = line("session.json", "chain_first");
    let split = |text: &str, at: &str| {
        let (head, tail) = text.split_once(at).unwrap();
        (head.to_owned(), tail.to_owned())
    };
    let mut cases: Vec<(&str, &str, Vec<u8>)> = vec![
        ("files of nothing", "pack_manifest.json", repeated("{\"files\":[{}", ",{}", "]}", mib)),
        ("arrays", "pack_manifest.json", repeated("[[]", ",[]", "]", mib)),
        ("objects", "pack_manifest.json", repeated("[{\"\":0}", ",{\"\":0}", "]", mib)),
        ("names", "pack_manifest.json", repeated("{\"expected_files\":[\"\"", ",\"\"", "]}", mib)),
        ("under the limit", "pack_manifest.json", repeated("{\"expected_files\":[\"\"", ",\"\"", "]}", 4 << 20)),
    ];
    let (head, tail) = split(&session, "\"recovery_notes\":[]");
    cases.push((
        "notes",
        "session.json",
        repeated(&(head + "\"recovery_notes\":[\"\""), ",\"\"", &format!("]{tail}\n"), mib),
    ));
    let (head, tail) = split(&start, "\"command\":null");
    cases.push((
        "a command",
        "audit_log.jsonl",
        repeated(&(head + "\"command\":[\"\""), ",\"\"", &format!("]{tail}\n"), mib),
    ));
    let (head, tail) = split(&start, "\"carried_in\":[]");
    let carried = "\"carried_in\":[\"inv_0000000000000001\"";
    cases.push((
        "carried in",
        "audit_log.jsonl",
        repeated(&(head + carried), ",\"inv_0000000000000002\"", &format!("]{tail}\n"), mib),
    ));
    let (head, tail) = split(&receipt, "\"server_id\":\"");
    cases.push((
        "a name",
        "receipt_pack.jsonl",
        repeated(&(head + "\"server_id\":\""), "xxxxxxxxxxxxxxxx", &format!("{tail}\n"), mib),
    ));
    let (head, tail) = split(&call, "\"arguments_content\":null");
    cases.push((
        "content",
        "receipt_pack.jsonl",
        repeated(&(head + "\"arguments_content\":[[]"), ",[]", &format!("]{tail}\n"), mib),
    ));
    let mut wrong = Vec::new();
    for (what, name, bytes) in cases {
        let tmp = scratch();
        let mut pack = small();
        pack.set(name, bytes);
        if name != "pack_manifest.json" {
            pack.sign(&key_k());
        }
        pack.write(tmp.path());
        let (code, kib) = peak_of(tmp.path());
        if code != Some(2) || kib > LIMIT_KIB {
            wrong.push(format!("{what} in {name}: exit {code:?}, {} MiB", kib >> 10));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The report of a pack that must be tampered with, and how many bytes were read for it.
fn tampered(pack: &std::path::Path, name: &str) -> (assay::pack::verify::VerifyReport, u64) {
    let mut read = 0;
    let report = assay::pack::verify::verify(pack, &pinned(), &mut |p| {
        read = read.max(p.done_bytes);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((report.integrity, report.exit()), (Integrity::Tampered, Exit::Failed), "{name}");
    (report, read)
}

#[test]
fn a_listed_sparse_giant_is_not_hashed_whoever_signed() {
    for (name, signer) in [
        ("policy.yaml", key_k()),
        ("notes.bin", key_e()),
        ("surface.json", key_k()),
        ("receipt_pack.jsonl", key_e()),
        ("audit_log.jsonl", key_k()),
        ("session.json", key_k()),
        ("verify_report.json", key_e()),
    ] {
        let tmp = scratch();
        let mut pack = small();
        // Some file systems take no larger files; what is not read does not care.
        let len = 8u64 << 40;
        pack.sign_with(&signer, |m| {
            let found = m.files.iter_mut().find(|f| f.path == name);
            let entry = assay::model::pack::FileEntry { path: name.to_owned(), sha256: "0".repeat(64), bytes: len };
            match found {
                Some(f) => *f = entry,
                None => {
                    m.files.push(entry);
                    m.expected_files.push(name.to_owned());
                }
            }
        });
        pack.write(tmp.path());
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(tmp.path().join(name)).unwrap();
        if file.set_len(len).is_err() {
            file.set_len(512 << 30).unwrap();
        }
        file.write_all_at(b"x", 1 << 20).unwrap();
        let (_, read) = tampered(tmp.path(), name);
        assert!(read < 2 << 20, "{name}: {read} bytes were read");
    }
}

#[test]
fn a_file_that_is_far_longer_than_listed_is_not_read_at_all() {
    for name in ["receipt_pack.jsonl", "audit_log.jsonl", "session.json", "verify_report.json", "verify_transcript.md"]
    {
        let tmp = scratch();
        let pack = small();
        pack.write(tmp.path());
        let file = fs::OpenOptions::new().append(true).open(tmp.path().join(name)).unwrap();
        let listed = file.metadata().unwrap().len();
        // Lines, and none of them is wrong enough to end the reading.
        (&file).write_all(&b"{}\n".repeat(2 << 20)).unwrap();
        let (report, read) = tampered(tmp.path(), name);
        let all: u64 = pack.0.values().map(|bytes| bytes.len() as u64).sum();
        assert!(read <= all - listed, "{name}: {read} of {all} bytes were read");
        let said = report
            .errors
            .iter()
            .any(|e| e.file.as_deref() == Some(name) && e.message.contains("is not the listed one"));
        assert!(said, "{name}: {:?}", report.errors);
    }
}

#[test]
fn files_of_a_large_pack_are_not_read_when_its_signature_does_not_hold() {
    let tmp = scratch();
    let mut pack = valid();
    pack.sign_with(&key_k(), |m| m.files[0].bytes = 1 << 40);
    pack.file("pack_signature.sig")[3] ^= 1;
    pack.write(tmp.path());
    let report = check(tmp.path(), &pinned());
    assert_eq!(report.integrity, Integrity::Tampered);
    let stage = |s| report.stage(s).unwrap();
    assert_eq!(stage(Stage::VerifySignature).status, StageStatus::Fail);
    assert_eq!(stage(Stage::VerifyChain).status, StageStatus::Skipped, "{:?}", stage(Stage::VerifyChain));
}
