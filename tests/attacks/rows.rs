//! Attacks that change what a pack says. `Keep`: the manifest stays. `Resign`: the attacker puts new hashes into the
//! manifest and signs it with a key of their own, so that only the named stage can see what was done.

use assay::pack::verify::Exit;
use assay::{
    pack::verify::{Completeness, Integrity, SignerVerdict, Stage, StageStatus, VerifyReport},
    text::visible,
};
use assay_support::forge::{
    EVENTS, MANIFEST, Pack, RECEIPTS, SESSION, SIGNATURE, check_pack, key_e, key_k, other, pinned, recorded, unpinned,
    valid,
};
use assay_support::sessions::Plan;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::collections::BTreeSet;

#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Keep,
    Resign,
}
use Sign::{Keep, Resign};
use Stage::{
    MatchReceiptsToChain as Match, SessionCompleteness as Session, ValidateFileHashes as Hashes,
    ValidatePaths as Paths, ValidateReceipts as Receipts, ValidateSchema as Schema, VerifyChain as Chain,
    VerifySignature as Signature,
};

type Row = (u8, &'static str, Sign, fn(&mut Pack), Stage);

/// Line of the `request_received` of call 3, and of its receipt.
const REQUEST: usize = 1 + 3 * 4;
const RECEIPT: usize = 1 + 3;

const ROWS: &[Row] = &[
    (3, "stored content changed, hash kept", Resign, |p| p.replace(RECEIPTS, "xxxx", "xxxy"), Receipts),
    (4, "receipt changed, events kept", Resign, |p| p.edit(RECEIPTS, RECEIPT, |r| r["tool_name"] = "rm".into()), Match),
    (
        4,
        "event changed, receipt kept",
        Resign,
        |p| {
            p.edit(EVENTS, REQUEST, |e| e["detail"]["tool_name"] = "rm".into());
            p.make_consistent();
        },
        Match,
    ),
    (
        4,
        "arguments hash changed in the receipt and its binding",
        Resign,
        |p| {
            p.edit(RECEIPTS, RECEIPT, |r| r["arguments_hash"] = format!("sha256:{}", "0".repeat(64)).into());
            p.make_consistent();
        },
        Match,
    ),
    (
        4,
        "duration changed in the receipt and its binding",
        Resign,
        |p| {
            p.edit(RECEIPTS, RECEIPT, |r| r["duration_ms"] = 1.into());
            p.make_consistent();
        },
        Match,
    ),
    (5, "event changed", Resign, |p| p.edit(EVENTS, REQUEST, |e| e["mono_us"] = 1.into()), Chain),
    (
        5,
        "event changed and all after it restamped",
        Keep,
        |p| {
            p.edit(EVENTS, REQUEST, |e| e["mono_us"] = 1.into());
            p.restamp_events();
        },
        Hashes,
    ),
    (
        5,
        "event changed, restamped, manifest anew",
        Resign,
        |p| {
            p.edit(EVENTS, REQUEST, |e| e["mono_us"] = 1.into());
            p.restamp_events();
        },
        Match,
    ),
    (7, "middle event removed", Resign, |p| remove(p, EVENTS, REQUEST), Chain),
    (
        7,
        "middle event removed and renumbered",
        Resign,
        |p| {
            remove(p, EVENTS, REQUEST);
            p.restamp_events();
        },
        Match,
    ),
    (7, "middle receipt removed", Resign, |p| remove(p, RECEIPTS, RECEIPT), Receipts),
    (
        7,
        "middle receipt removed and renumbered",
        Resign,
        |p| {
            remove(p, RECEIPTS, RECEIPT);
            p.make_consistent();
        },
        Match,
    ),
    (7, "receipts swapped", Resign, |p| swap(p, RECEIPTS, RECEIPT, RECEIPT + 1), Receipts),
    (
        7,
        "receipts swapped and renumbered",
        Resign,
        |p| {
            swap(p, RECEIPTS, RECEIPT, RECEIPT + 1);
            p.make_consistent();
        },
        Match,
    ),
    (7, "events swapped", Resign, |p| swap(p, EVENTS, REQUEST, REQUEST + 1), Chain),
    (7, "receipt repeated", Resign, |p| repeat(p, RECEIPTS, RECEIPT), Receipts),
    (
        7,
        "receipt repeated and renumbered",
        Resign,
        |p| {
            repeat(p, RECEIPTS, RECEIPT);
            p.make_consistent();
        },
        Receipts,
    ),
    (7, "event repeated", Resign, |p| repeat(p, EVENTS, REQUEST), Chain),
    (
        7,
        "event inserted with a correct prev_hash",
        Resign,
        |p| {
            repeat(p, EVENTS, REQUEST);
            p.restamp_events();
        },
        Chain,
    ),
    (
        7,
        "receipt inserted under a new id",
        Resign,
        |p| {
            repeat(p, RECEIPTS, RECEIPT);
            p.edit(RECEIPTS, RECEIPT, |r| r["receipt_id"] = "mtc_00000000000000ee".into());
            p.make_consistent();
        },
        Match,
    ),
    (8, "last events cut, manifest kept", Keep, |p| cut(p, EVENTS, 6), Hashes),
    (
        8,
        "last events and receipts cut, signed anew",
        Resign,
        |p| {
            cut(p, EVENTS, 9);
            cut(p, RECEIPTS, 3);
        },
        Session,
    ),
    (
        10,
        "torn last line",
        Resign,
        |p| {
            let len = p.file(EVENTS).len();
            p.file(EVENTS).truncate(len - 9);
        },
        Chain,
    ),
    (
        10,
        "a line glued to the next",
        Resign,
        |p| {
            let text = p.text(EVENTS);
            p.set(EVENTS, text.replacen("}\n{", "}{", 1));
        },
        Chain,
    ),
    (10, "zeros at the end", Resign, |p| p.file(EVENTS).extend([0; 64]), Chain),
    (10, "a blank line at the end of the receipts", Resign, |p| p.file(RECEIPTS).push(b'\n'), Receipts),
    (
        11,
        "another session's manifest",
        Keep,
        |p| {
            for name in [MANIFEST, SIGNATURE] {
                p.set(name, other().0[name].clone());
            }
        },
        Hashes,
    ),
    (11, "another session's receipts, signed anew", Resign, |p| p.set(RECEIPTS, other().0[RECEIPTS].clone()), Match),
    (11, "another session's events, signed anew", Resign, |p| p.set(EVENTS, other().0[EVENTS].clone()), Match),
    (
        11,
        "another session's session.json, signed anew",
        Resign,
        |p| p.set(SESSION, other().0[SESSION].clone()),
        Session,
    ),
    (
        12,
        "the owner's signature over another document",
        Keep,
        |p| {
            let signature = key_k().sign(b"another document").unwrap();
            p.set(SIGNATURE, signature);
            field(p, "signature", STANDARD.encode(signature));
        },
        Signature,
    ),
    (13, "malleable signature: s + L", Keep, malleable, Signature),
    (13, "small-order key", Keep, |p| weak_key(p, 1), Signature),
    (13, "all-zero key", Keep, |p| weak_key(p, 0), Signature),
    (
        13,
        "all-zero signature",
        Keep,
        |p| {
            p.set(SIGNATURE, [0; 64]);
            field(p, "signature", STANDARD.encode([0; 64]));
        },
        Signature,
    ),
    (14, "signature_alg none", Keep, |p| field(p, "signature_alg", "none".into()), Schema),
    (14, "signature_alg none, signed", Resign, |p| p.set("change", "signature_alg=none"), Schema),
    (14, "hash_alg md5", Keep, |p| field(p, "hash_alg", "md5".into()), Schema),
    (14, "pack_version 999", Keep, |p| field(p, "pack_version", "999".into()), Signature),
    (14, "pack_version 0.0.9", Keep, |p| field(p, "pack_version", "0.0.9".into()), Schema),
    (14, "manifest_version 0", Keep, |p| field(p, "manifest_version", "0".into()), Schema),
    (14, "event version 2, not signed", Keep, |p| p.replace(EVENTS, "\"v\":1", "\"v\":2"), Hashes),
    (14, "event version 0", Resign, |p| p.replace(EVENTS, "\"v\":1", "\"v\":0"), Chain),
    (
        14,
        "receipt schema 9.0, not signed",
        Keep,
        |p| p.replace(RECEIPTS, "\"schema_version\":\"3.0\"", "\"schema_version\":\"9.0\""),
        Hashes,
    ),
    (
        14,
        "receipt schema 2.9",
        Resign,
        |p| p.replace(RECEIPTS, "\"schema_version\":\"3.0\"", "\"schema_version\":\"2.9\""),
        Receipts,
    ),
    (
        15,
        "member twice in an event",
        Resign,
        |p| p.replace(EVENTS, "\"event_seq\":5", "\"event_seq\":5,\"event_seq\":5"),
        Chain,
    ),
    (15, "escaped member name", Resign, |p| p.replace(EVENTS, "\"event_seq\":5", "\"event_\\u0073eq\":5"), Chain),
    (
        15,
        "escaped twin of a member",
        Resign,
        |p| p.replace(RECEIPTS, "\"seq\":5", "\"seq\":5,\"\\u0073eq\":6"),
        Receipts,
    ),
    (15, "case variant", Resign, |p| p.replace(RECEIPTS, "\"seq\":5", "\"Seq\":5"), Receipts),
    (15, "unknown member", Resign, |p| p.replace(EVENTS, "\"event_seq\":5", "\"event_seq\":5,\"evil\":1"), Chain),
    (
        15,
        "member twice in the manifest",
        Keep,
        |p| p.replace(MANIFEST, "\"hash_alg\": \"sha256\"", "\"hash_alg\": \"sha256\",\n  \"hash_alg\": \"sha256\""),
        Schema,
    ),
    (
        15,
        "unknown member in the manifest",
        Keep,
        |p| p.replace(MANIFEST, "\"hash_alg\"", "\"x\": 1,\n  \"hash_alg\""),
        Schema,
    ),
    (
        15,
        "array in place of a receipt",
        Resign,
        |p| {
            let mut lines = p.lines(RECEIPTS);
            lines[RECEIPT] = "[]".into();
            p.set_lines(RECEIPTS, &lines);
        },
        Receipts,
    ),
    (
        15,
        "array in place of counts",
        Resign,
        |p| {
            let n = p.lines(RECEIPTS).len() - 1;
            p.edit(RECEIPTS, n, |r| r["counts"] = serde_json::json!([20, 0, 0, 0, 0, 0, 0, 20, 0]));
        },
        Receipts,
    ),
    (15, "member twice in session.json", Resign, |p| p.replace(SESSION, "\"v\":1", "\"v\":1,\"v\":1"), Session),
    (
        15,
        "member twice in verify_report.json",
        Resign,
        |p| p.replace("verify_report.json", "{", "{\"errors\": [],"),
        Hashes,
    ),
    (16, "a space", Resign, |p| p.replace(EVENTS, "\"event_seq\":5", "\"event_seq\": 5"), Chain),
    (16, "1.0", Resign, |p| p.replace(EVENTS, "\"event_seq\":5", "\"event_seq\":5.0"), Chain),
    (16, "an escaped slash", Resign, |p| p.replace(EVENTS, "tools/call", "tools\\/call"), Chain),
    (16, "CRLF", Resign, |p| p.replace(EVENTS, "}\n", "}\r\n"), Chain),
    (16, "trailing blank", Resign, |p| p.replace(RECEIPTS, "}\n", "} \n"), Receipts),
    (
        16,
        "member order",
        Resign,
        |p| p.replace(EVENTS, "\"transport\":\"stdio\",\"v\":1", "\"v\":1,\"transport\":\"stdio\""),
        Chain,
    ),
    (
        16,
        "manifest on one line",
        Keep,
        |p| {
            let value: serde_json::Value = serde_json::from_slice(&p.0[MANIFEST]).unwrap();
            p.set(MANIFEST, value.to_string());
        },
        Schema,
    ),
    (16, "newline behind the manifest", Keep, |p| p.file(MANIFEST).push(b'\n'), Schema),
    (17, "2^53", Resign, |p| p.replace(EVENTS, "\"event_seq\":5", "\"event_seq\":9007199254740992"), Chain),
    (17, "2^64", Resign, |p| p.replace(EVENTS, "\"event_seq\":5", "\"event_seq\":18446744073709551616"), Chain),
    (17, "-1", Resign, |p| p.replace(EVENTS, "\"event_seq\":5", "\"event_seq\":-1"), Chain),
    (17, "-0", Resign, |p| p.replace(EVENTS, "\"event_seq\":5", "\"event_seq\":-0"), Chain),
    (17, "1e400", Resign, |p| p.replace(RECEIPTS, "\"seq\":5", "\"seq\":1e400"), Receipts),
    (17, "leap second", Resign, |p| second(p, "60.000Z"), Chain),
    (17, "local time", Resign, |p| second(p, "00.000+01"), Chain),
    (
        17,
        "2^64 bytes in the manifest",
        Keep,
        |p| p.replace(MANIFEST, "\"bytes\": ", "\"bytes\": 18446744073709551616"),
        Schema,
    ),
    (18, "invalid UTF-8", Resign, |p| bytes(p, EVENTS, b"tools/call", b"tools\xffcall"), Chain),
    (
        18,
        "BOM",
        Resign,
        |p| {
            p.file(EVENTS).splice(0..0, *b"\xef\xbb\xbf");
        },
        Chain,
    ),
    (18, "NUL", Resign, |p| bytes(p, EVENTS, b"tools/call", b"tools\x00call"), Chain),
    (18, "lone surrogate", Resign, |p| p.replace(EVENTS, "tools/call", "tools\\ud800call"), Chain),
    (
        18,
        "BOM before the manifest",
        Keep,
        |p| {
            p.file(MANIFEST).splice(0..0, *b"\xef\xbb\xbf");
        },
        Schema,
    ),
    (
        20,
        "nesting a million deep in a receipt",
        Resign,
        |p| {
            let deep = format!("{{\"anomalies\":{}\n", "[".repeat(1_000_000));
            p.file(RECEIPTS).extend(deep.into_bytes());
        },
        Receipts,
    ),
    (
        20,
        "balanced nesting in an event",
        Resign,
        |p| {
            let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
            p.replace(EVENTS, "\"meta\":null", &format!("\"meta\":{deep}"));
        },
        Chain,
    ),
    (20, "nesting a million deep in the manifest", Keep, |p| p.set(MANIFEST, "[".repeat(1_000_000)), Schema),
    (21, "../x", Resign, |p| p.set("change", "path=../x"), Paths),
    (21, "/abs", Resign, |p| p.set("change", "path=/abs"), Paths),
    (21, "a\\..\\b", Resign, |p| p.set("change", "path=a\\..\\b"), Paths),
    (21, "an empty name", Resign, |p| p.set("change", "path="), Paths),
    (21, ".", Resign, |p| p.set("change", "path=."), Paths),
    (21, "a newline", Resign, |p| p.set("change", "path=a\nb"), Paths),
    (21, "a subdirectory", Resign, |p| p.set("change", "path=_unsigned/x"), Paths),
    (21, "a name twice", Resign, |p| p.set("change", "path=session.json"), Paths),
    (21, "itself", Resign, |p| p.set("change", "path=pack_manifest.json"), Paths),
    (
        26,
        "session.json says complete, the chain has no end",
        Resign,
        |p| {
            cut(p, EVENTS, 1);
            cut(p, RECEIPTS, 1);
            let last: serde_json::Value = serde_json::from_str(p.lines(EVENTS).last().unwrap()).unwrap();
            let (events, receipts) = (p.lines(EVENTS).len(), p.lines(RECEIPTS).len());
            p.edit(SESSION, 0, |s| {
                s["chain_last"] = last["hash"].clone();
                s["event_count"] = events.into();
                s["receipt_count"] = receipts.into();
            });
        },
        Session,
    ),
    (
        26,
        "the chain's end counts lost messages whose gap event is gone",
        Resign,
        |p| {
            let end = p.lines(EVENTS).len() - 1;
            p.edit(EVENTS, end, |e| e["detail"]["counts"]["missed"] = 4.into());
            p.make_consistent();
        },
        Chain,
    ),
];

fn remove(p: &mut Pack, name: &str, line: usize) {
    let mut lines = p.lines(name);
    lines.remove(line);
    p.set_lines(name, &lines);
}

fn repeat(p: &mut Pack, name: &str, line: usize) {
    let mut lines = p.lines(name);
    lines.insert(line, lines[line].clone());
    p.set_lines(name, &lines);
}

fn swap(p: &mut Pack, name: &str, a: usize, b: usize) {
    let mut lines = p.lines(name);
    lines.swap(a, b);
    p.set_lines(name, &lines);
}

fn cut(p: &mut Pack, name: &str, n: usize) {
    let mut lines = p.lines(name);
    lines.truncate(lines.len() - n);
    p.set_lines(name, &lines);
}

fn bytes(p: &mut Pack, name: &str, from: &[u8], to: &[u8]) {
    let file = p.file(name);
    let at = file.windows(from.len()).position(|w| w == from).unwrap();
    file.splice(at..at + from.len(), to.iter().copied());
}

/// Puts another text behind the minute of the first event.
fn second(p: &mut Pack, text: &str) {
    let from = p.lines(EVENTS)[0][24..31].to_owned();
    let at = p.lines(EVENTS)[0][..31].to_owned();
    p.replace(EVENTS, &at, &format!("{}{text}", at.strip_suffix(&from).unwrap()));
}

/// Sets a member of the manifest, which keeps its form.
fn field(p: &mut Pack, name: &str, value: String) {
    let text = p.text(MANIFEST);
    let line = text.lines().find(|l| l.starts_with(&format!("  \"{name}\": "))).unwrap().to_owned();
    let comma = if line.ends_with(',') { "," } else { "" };
    p.replace(MANIFEST, &line, &format!("  \"{name}\": {}{comma}", serde_json::json!(value)));
}

fn malleable(p: &mut Pack) {
    const L: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut signature = p.0[SIGNATURE].clone();
    let mut carry = 0;
    for (s, l) in signature[32..].iter_mut().zip(L) {
        let sum = u16::from(*s) + u16::from(l) + carry;
        *s = sum as u8;
        carry = sum >> 8;
    }
    field(p, "signature", STANDARD.encode(&signature));
    p.set(SIGNATURE, signature);
}

/// A key of small order (the neutral element, or all zeros) under which a signature of the same kind would hold.
fn weak_key(p: &mut Pack, first: u8) {
    let mut key = [0; 32];
    key[0] = first;
    field(p, "signer_pubkey", STANDARD.encode(key));
    field(p, "signer_pubkey_sha256", assay::model::sha256_hex(&key));
    let mut signature = [0; 64];
    signature[0] = 1;
    field(p, "signature", STANDARD.encode(signature));
    p.set(SIGNATURE, signature);
}

fn resign(p: &mut Pack) {
    let change = p.0.remove("change").map(|c| String::from_utf8(c).unwrap());
    p.sign_with(&key_e(), |m| match change.as_deref().and_then(|c| c.split_once('=')) {
        Some(("path", name)) => {
            let mut entry = m.files[0].clone();
            name.clone_into(&mut entry.path);
            m.files.push(entry);
            m.expected_files.push(name.to_owned());
        }
        Some((_, value)) => value.clone_into(&mut m.signature_alg),
        None => {}
    });
}

fn failed(report: &VerifyReport, stage: Stage) -> bool {
    report.stage(stage).unwrap().status == StageStatus::Fail && report.errors.iter().any(|e| e.stage == stage)
}

#[test]
fn the_pack_that_is_attacked_is_sound() {
    let report = check_pack(&valid(), &pinned());
    assert_eq!(report.exit(), Exit::Ok, "{report:#?}");
    assert_eq!((report.completeness, report.signer.verdict), (Completeness::Complete, SignerVerdict::Pinned));
    assert_eq!((report.facts.receipt_count, report.facts.event_count), (22, 82));
    // No surface was recorded in it, and it has no checkpoints: these stages have nothing to verify, and say so.
    let nothing = [Stage::VerifySurface, Stage::VerifyCheckpoints];
    let expected = |stage| if nothing.contains(&stage) { StageStatus::Skipped } else { StageStatus::Ok };
    assert!(report.stages.iter().all(|s| s.status == expected(s.stage)), "{:#?}", report.stages);
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
}

#[test]
fn every_attack_fails_in_the_stage_that_is_there_for_it() {
    let mut wrong = Vec::new();
    for (row, name, sign, mutate, stage) in ROWS {
        let mut pack = valid();
        mutate(&mut pack);
        if *sign == Resign {
            resign(&mut pack);
        }
        let report = check_pack(&pack, &pinned());
        let seen = report.exit() == Exit::Failed && report.integrity == Integrity::Tampered && failed(&report, *stage);
        if !seen {
            let found: BTreeSet<_> = report.errors.iter().map(|e| format!("{}: {}", e.stage, e.message)).collect();
            wrong.push(format!("row {row}, {name}: expected {stage}, got {} {found:#?}", report.integrity));
        }
        for e in &report.errors {
            let shown = visible(&e.message);
            assert!(!shown.chars().any(char::is_control), "row {row}, {name}: {shown}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let rows: BTreeSet<u8> = ROWS.iter().map(|r| r.0).collect();
    assert_eq!(rows, BTreeSet::from([3, 4, 5, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 26]));
}

#[test]
fn a_session_that_was_changed_and_signed_by_another_key_is_untrusted_or_unpinned() {
    let mut pack = valid();
    pack.edit(EVENTS, REQUEST, |e| e["detail"]["tool_name"] = "rm".into());
    pack.edit(RECEIPTS, RECEIPT, |r| r["tool_name"] = "rm".into());
    pack.make_consistent();
    pack.sign(&key_e());
    let report = check_pack(&pack, &pinned());
    assert_eq!(
        (report.integrity, report.signer.verdict, report.exit()),
        (Integrity::Pass, SignerVerdict::Untrusted, Exit::Failed),
        "{:#?}",
        report.errors
    );
    let report = check_pack(&pack, &unpinned());
    assert_eq!((report.signer.verdict, report.exit()), (SignerVerdict::Unpinned, Exit::Ok));
    assert_eq!(report.signer.fingerprint, Some(key_e().fingerprint()));
    let strict = assay::pack::verify::VerifyOptions { strict: true, ..unpinned() };
    assert_eq!(check_pack(&pack, &strict).exit(), Exit::Violation);
}

#[test]
fn another_session_offered_as_this_one_is_named() {
    let report = check_pack(&other(), &pinned());
    assert_eq!(report.exit(), Exit::Ok);
    assert_ne!(report.facts.run_id, check_pack(&valid(), &pinned()).facts.run_id);
}

#[test]
fn a_pack_from_the_year_9999_is_flagged() {
    let started = assay::model::WallTime::parse("9999-12-31T23:00:00.000Z").unwrap();
    let pack = Pack::read(&recorded(&Plan { started_ms: started.millis(), ..Plan::default() }).1);
    let report = check_pack(&pack, &pinned());
    assert_eq!(report.exit(), Exit::Violation, "{:#?}", report.errors);
    assert!(report.unmet.iter().any(|u| u.contains("future")), "{:?}", report.unmet);
}

/// As a call is sent that wants no answer, and as one is that gets none.
#[test]
fn why_a_call_has_no_answer_is_what_the_chain_says() {
    let (_tmp, dir) = recorded(&Plan { calls: 4, timeout_every: 2, ..Plan::default() });
    let lie = |is_notification: bool, note: &str| {
        let mut pack = Pack::read(&dir);
        let is_silent = |line: &String| line.contains("\"no_response\"");
        let event = pack.lines(EVENTS).iter().position(is_silent).unwrap();
        let ended: serde_json::Value = serde_json::from_str(&pack.lines(EVENTS)[event]).unwrap();
        if is_notification {
            let of = |line: &String| line.contains(ended["invocation_id"].as_str().unwrap());
            let (received, receipt) =
                (pack.lines(EVENTS).iter().position(of).unwrap(), pack.lines(RECEIPTS).iter().position(of).unwrap());
            for line in [received, received + 1] {
                pack.edit(EVENTS, line, |e| e["rpc_id"] = serde_json::Value::Null);
            }
            pack.edit(EVENTS, received, |e| e["detail"]["anomalies"] = serde_json::json!(["notification_call"]));
            pack.edit(RECEIPTS, receipt, |r| {
                r["mcp_request_id"] = serde_json::Value::Null;
                r["outcome_reason"] = "notification".into();
                r["anomalies"] = serde_json::json!(["notification_call"]);
            });
        }
        pack.edit(EVENTS, event, |e| e["detail"]["note"] = note.into());
        pack.make_consistent();
        resign(&mut pack);
        check_pack(&pack, &unpinned())
    };
    for (is_notification, note, is_true) in [
        (false, "server_exited", true),
        (false, "client_closed", false),
        (true, "notification", true),
        (true, "server_exited", false),
    ] {
        let report = lie(is_notification, note);
        assert_eq!(report.integrity == Integrity::Pass, is_true, "{note}: {:#?}", report.errors);
        assert_eq!(failed(&report, Match), !is_true, "{note}: {:#?}", report.errors);
    }
}

#[test]
fn names_that_attack_a_terminal_stay_visible_text() {
    let evil = "a\u{1b}[31m\u{9b}2J\u{1b}]52;c;eA==\u{7}\r\u{202e}=cmd|' /C'!A0<script>`|".to_owned();
    for name in [evil, "x".repeat(1 << 20)] {
        let mut pack = valid();
        pack.edit(EVENTS, REQUEST, |e| e["detail"]["tool_name"] = name.as_str().into());
        pack.make_consistent();
        pack.sign(&key_k());
        let report = check_pack(&pack, &pinned());
        assert!(failed(&report, Match), "{:#?}", report.errors);
        for e in &report.errors {
            let all = [Some(&e.message), e.expected.as_ref(), e.found.as_ref()];
            let shown: Vec<_> = all.into_iter().flatten().map(|t| visible(t)).collect();
            assert!(shown.iter().all(|t| !t.chars().any(char::is_control) && t.len() < 4096), "{shown:?}");
        }
    }
}
