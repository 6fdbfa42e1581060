//! Packs of which a later version wrote something: never TAMPERED for that alone, never taken, always named. And what only
//! claims to be one.

use assay::pack::verify::Exit;
use assay::{
    model::{WallTime, event::EVENT_VERSION, session::SESSION_VERSION, sha256_hex, surface::SURFACE_VERSION},
    pack::{
        build,
        claims::MCP_SESSION,
        explain::{ExplainError, Explanation},
        keys::Signer,
        verify::{Completeness, Integrity, SignerVerdict, Stage, StageStatus, VerifyOptions, VerifyReport},
    },
};
use assay_support::{
    forge::{
        EVENTS, MANIFEST, Pack, RECEIPTS, REPORT, SESSION, SIGNATURE, TRANSCRIPT, canonical, check_pack, key_e, key_k,
        pinned, unpinned,
    },
    rig::scratch,
    sessions::{self, Plan},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

const SURFACE: &str = "surface.json";
const UNSUPPORTED: &str = "E_VERSION_UNSUPPORTED";

/// A small pack that has every document that a pack can have.
fn whole() -> Pack {
    static P: LazyLock<Pack> = LazyLock::new(|| {
        let tmp = scratch();
        let tools = vec!["t".to_owned()];
        let plan = Plan { calls: 3, tools, ..Plan::default() };
        let mut written = sessions::write(&plan, tmp.path().join("audit")).unwrap();
        let surface = canonical(&json!({
            "capabilities": null, "changes": 0, "instructions": null, "omitted_hash": null, "prompts": [],
            "protocol_version": written.doc.protocol_version, "resource_templates": [], "resources": [],
            "server_info": written.doc.server_info, "tools": [], "truncated": false, "v": 1,
        }));
        written.doc.surface_hash = Some(sha256_hex(surface.as_bytes()));
        let input = build::Input {
            paths: &written.paths,
            session: &written.doc,
            policies: None,
            surface: Some(surface.as_bytes()),
            decisions: None,
            signer: &key_k(),
            ci_binding: None,
            now: WallTime::from_millis(written.doc.ended_at.millis() + 1),
        };
        Pack::read(&build::build(&input).unwrap().dir)
    });
    P.clone()
}

/// A place where a version stands.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// A member of a line, counted from 0 and from the end for what is below 0.
    Line(&'static str, isize, &'static str),
    /// A member of a document.
    Document(&'static str, &'static str),
    /// A member of the manifest.
    Manifest(&'static str),
    /// A member of the attestation.
    Attestation(&'static str),
}
use Place::{Attestation, Document, Line, Manifest};

impl Place {
    fn file(self) -> &'static str {
        match self {
            Line(file, ..) | Document(file, _) => file,
            Manifest(_) | Attestation(_) => MANIFEST,
        }
    }
}

/// Every versioned document of a pack, and versions that are later than those that are read.
const LATER: &[(Place, &[&str])] = &[
    (Line(EVENTS, 0, "v"), &["6", "7", "4294967296", "9007199254740991", r#""5.1""#, r#""5.10""#, r#""6.0""#]),
    (Line(EVENTS, 5, "v"), &["6", r#""5.1""#]),
    (Line(EVENTS, -1, "v"), &["6", r#""5.1""#]),
    (Line(RECEIPTS, 0, "schema_version"), &[r#""3.5""#, r#""3.10""#, r#""4.0""#, r#""9.0""#, r#""4""#, "4"]),
    (Line(RECEIPTS, 2, "schema_version"), &[r#""3.5""#, r#""9.0""#]),
    (Line(RECEIPTS, -1, "schema_version"), &[r#""3.5""#, r#""9.0""#]),
    (Document(SESSION, "v"), &["5", "99", r#""4.1""#]),
    (Document(SURFACE, "v"), &["3", "99", r#""2.1""#]),
    (
        Document(REPORT, "schema_version"),
        &[r#""assay.verify_report.v0.2""#, r#""assay.verify_report.v1.0""#, r#""assay.verify_report.v2""#],
    ),
    (Manifest("pack_version"), &[r#""0.1.1""#, r#""0.2.0""#, r#""0.10.0""#, r#""1.0.0""#, r#""999""#]),
    (Manifest("manifest_version"), &[r#""1.0.1""#, r#""1.1.0""#, r#""2.0.0""#, r#""2""#]),
    (Attestation("pack_format_version"), &[r#""0.2.0""#, r#""1.0.0""#]),
    (Attestation("fingerprint_version"), &["2", r#""1.1""#]),
];

/// What only looks like a later version: each is a value that no version writes.
const LIES: &[(Place, &[&str])] = &[
    (
        Line(EVENTS, 5, "v"),
        &[
            // What version 2 writes of a message says in which exchange it crossed.
            "2",
            // What version 3 writes is a server's recording of itself.
            "3",
            // A session of version 4 says in its second event what it is compared with.
            "4",
            r#""2""#,
            "-1",
            "0",
            "1.5",
            "1e3",
            "2.0",
            "18446744073709551616",
            "9007199254740993",
            "null",
            "[2]",
            "{}",
            "true",
            r#""""#,
            r#""1.0""#,
            r#""0.9""#,
            r#""01.1""#,
            r#""v2.0""#,
            r#"6,"v":6"#,
            r#"6,"\u0076":6"#,
            r#"1,"V":2"#,
        ],
    ),
    (
        Line(RECEIPTS, 2, "schema_version"),
        &[
            r#""2.9""#,
            r#""3""#,
            "3",
            "3.1",
            "-4",
            "null",
            r#"["4.0"]"#,
            // What schema 3.1 writes says how the definition stood, and that of 3.2 has the arguments, redacted.
            r#""3.1""#,
            r#""3.2""#,
            // And that of 3.3 has a content that is redacted.
            r#""3.3""#,
            // That of 3.4 is none of a call.
            r#""3.4""#,
            r#""03.5""#,
            r#"" 3.5""#,
            r#""3.5-rc""#,
            r#""v4.0""#,
            r#""3.5.0.0""#,
            r#""3.5","schema_version":"3.5""#,
        ],
    ),
    (Document(SESSION, "v"), &["2", r#""2""#, "-1", "0", "1.5", "1e3", "18446744073709551616", "null", r#"3,"v":3"#]),
    (Document(SURFACE, "v"), &[r#""2""#, "-1", "0", "1.5", "1e3", "18446744073709551616", "null", r#"2,"v":2"#]),
    (
        Document(REPORT, "schema_version"),
        &[
            r#""assay.verify_report.v0.0""#,
            r#""assay.verify_report.v""#,
            r#""assay.verify_report.v0.2x""#,
            r#""assay.verify_report.0.2""#,
            r#""other.verify_report.v9.9""#,
            "2",
            "null",
        ],
    ),
    (
        Manifest("pack_version"),
        &[r#""0.0.9""#, r#""0.1""#, r#""""#, r#""v2""#, r#""0.1.0-rc1""#, r#""0.2.0.0""#, "null"],
    ),
    (Manifest("manifest_version"), &[r#""0""#, r#""1""#, r#""0.9.9""#, r#""1.0.0 ""#, r#"[2]"#]),
    (Attestation("pack_format_version"), &[r#""0.0.9""#, r#""x""#]),
    (Attestation("fingerprint_version"), &["0", "-2", "1.5", r#""2""#]),
];

/// Puts the text `raw` in the place of a member's value, and `more` members beside it: in the order of their names, which no
/// reader may need.
fn with_member(json: &str, member: &str, raw: &str, more: &Value) -> String {
    let mut all: Value = serde_json::from_str(json).unwrap();
    let members = all.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    members.insert(member.to_owned(), "the version".into());
    canonical(&all).replace("\"the version\"", raw)
}

/// The pack with that version, everything else agreeing with it, signed.
fn forged(place: Place, raw: &str, more: &Value, signer: &Signer) -> Pack {
    let mut pack = whole();
    match place {
        Line(file, n, member) => {
            let mut lines = pack.lines(file);
            let n = if n < 0 { lines.len() - n.unsigned_abs() } else { n.unsigned_abs() };
            lines[n] = with_member(&lines[n], member, raw, more);
            pack.set_lines(file, &lines);
            pack.sign(signer);
        }
        Document(REPORT, member) => {
            let report = with_member(&pack.text(REPORT), member, raw, more);
            pack.sign_report(signer, report);
        }
        Document(file, member) => {
            let text = with_member(pack.text(file).trim_end(), member, raw, more);
            pack.set(file, if file == SESSION { format!("{text}\n") } else { text.clone() });
            if file == SURFACE {
                pack.edit(SESSION, 0, |s| s["surface_hash"] = sha256_hex(text.as_bytes()).into());
            }
            pack.sign(signer);
        }
        Manifest(member) => {
            let text = with_member(&pack.text(MANIFEST), member, raw, more);
            sign_manifest(&mut pack, &text, signer);
        }
        Attestation(member) => {
            let mut all: Value = serde_json::from_slice(&pack.0[MANIFEST]).unwrap();
            let attestation = with_member(&all["attestation"].to_string(), member, raw, more);
            all["attestation"] = "the attestation".into();
            let text = all.to_string().replace("\"the attestation\"", &attestation);
            sign_manifest(&mut pack, &text, signer);
        }
    }
    pack
}

/// Signs a manifest of any schema, as assay's contract has it signed.
fn sign_manifest(pack: &mut Pack, text: &str, signer: &Signer) {
    let Ok(mut all) = serde_json::from_str::<Value>(text) else { return pack.set(MANIFEST, text.as_bytes()) };
    let root = sha256_hex(canonical(&all["attestation"]).as_bytes());
    all["attestation_sha256"] = root.as_str().into();
    all["signer_pubkey"] = STANDARD.encode(signer.public()).into();
    all["signer_pubkey_sha256"] = signer.fingerprint().into();
    let members = all.as_object_mut().unwrap();
    members.remove("signature");
    members.remove("pack_root_sha256");
    let signature = signer.sign(canonical(&all).as_bytes()).unwrap();
    all["signature"] = STANDARD.encode(signature).into();
    all["pack_root_sha256"] = root.into();
    pack.set(MANIFEST, all.to_string());
    pack.set(SIGNATURE, signature);
}

/// Demands of every kind.
fn demands() -> Vec<VerifyOptions> {
    let cards = vec![MCP_SESSION.to_owned()];
    vec![
        pinned(),
        unpinned(),
        VerifyOptions { strict: true, ..pinned() },
        VerifyOptions { strict: true, require_claim_pass: true, cards, ..unpinned() },
        VerifyOptions { max_age_hours: Some(0.1), check_expiry: true, require_ci_binding: true, ..pinned() },
    ]
}

/// Holds a report to what must be said of a pack that a later version wrote, in this file and this version.
fn is_unsupported(report: &VerifyReport, place: Place, raw: &str) {
    let (file, version) = (place.file(), raw.trim_matches('"').trim_start_matches("assay.verify_report.v"));
    assert_eq!(report.integrity, Integrity::Unsupported, "{place:?} {raw}: {:#?}", report.errors);
    assert_eq!(report.exit(), Exit::BadInput, "{place:?} {raw}");
    assert_eq!(report.completeness, Completeness::NotEvaluated);
    assert!(report.claim_results.is_none() && !report.authentic());
    for e in &report.errors {
        assert_eq!((e.code, e.file.as_deref()), (UNSUPPORTED, Some(file)), "{place:?} {raw}: {e:?}");
        assert!(
            e.message.contains(&format!("version {version};")) && e.message.contains("this assay reads up to"),
            "{e:?}"
        );
        assert_eq!(e.found.as_deref(), Some(version));
        let line = matches!(place, Line(..));
        assert_eq!((e.line.is_some(), e.offset.is_some()), (line, line), "{e:?}");
    }
    let said = report.too_new().unwrap();
    assert!(said.contains(file) && said.contains(version), "{said}");
    assert!(report.stages.iter().all(|s| s.code.is_none_or(|c| c == UNSUPPORTED)), "{:#?}", report.stages);
    assert_eq!(report.stage(Stage::SessionCompleteness).unwrap().status, StageStatus::Skipped);
    let document = serde_json::to_value(report).unwrap();
    assert_eq!(document["integrity_verdict"], "UNSUPPORTED");
    assert_eq!((&document["exit_code"], &document["passed"]), (&json!(3), &json!(false)));
}

fn cases() -> impl Iterator<Item = (Place, &'static str)> {
    LATER.iter().flat_map(|(place, versions)| versions.iter().map(|v| (*place, *v)))
}

#[test]
fn the_pack_that_is_forged_is_sound() {
    let report = check_pack(&whole(), &pinned());
    assert_eq!((report.exit(), report.integrity), (Exit::Ok, Integrity::Pass), "{:#?}", report.errors);
    // Signed as the forger signs, and nothing else changed.
    for (place, raw) in [(Document(SURFACE, "v"), "1"), (Manifest("pack_version"), r#""0.1.0""#)] {
        let pack = forged(place, raw, &json!({}), &key_k());
        assert!(
            check_pack(&pack, &pinned())
                .errors
                .iter()
                .all(|e| e.message.contains("the bytes of the manifest are not those"))
        );
    }
}

#[test]
fn a_pack_of_a_later_version_is_unsupported_under_every_demand() {
    for (place, raw) in cases() {
        for options in demands() {
            let report = check_pack(&forged(place, raw, &json!({}), &key_k()), &options);
            is_unsupported(&report, place, raw);
            let read = !matches!((place, raw), (Attestation("fingerprint_version"), r#""1.1""#));
            let holds = if read { StageStatus::Ok } else { StageStatus::Skipped };
            assert_eq!(report.stage(Stage::VerifySignature).unwrap().status, holds, "{place:?} {raw}");
            assert_eq!(report.stage(Stage::ValidateFileHashes).unwrap().status, holds, "{place:?} {raw}");
            assert_eq!(report.signer.verdict == SignerVerdict::Pinned, read && !options.signers.is_empty());
            assert_eq!(
                report.unmet.iter().any(|u| u.contains("claims were not evaluated")),
                read && options.require_claim_pass
            );
        }
    }
}

#[test]
fn nobody_hides_a_forgery_behind_a_version() {
    for (place, raw) in cases() {
        let good = forged(place, raw, &json!({}), &key_k());
        if !check_pack(&good, &pinned()).signature_holds() {
            continue;
        }
        let tampered = |name: &str, change: &dyn Fn(&mut Pack)| {
            let mut pack = good.clone();
            change(&mut pack);
            let report = check_pack(&pack, &pinned());
            let seen = (report.integrity, report.exit(), report.errors.iter().any(|e| e.code != UNSUPPORTED));
            assert_eq!(seen, (Integrity::Tampered, Exit::Failed, true), "{place:?} {raw}, {name}: {report:#?}");
        };
        tampered("another file changed", &|p| p.file(TRANSCRIPT).push(b'\n'));
        tampered("a file missing", &|p| drop(p.0.remove(TRANSCRIPT)));
        tampered("the detached signature changed", &|p| p.file(SIGNATURE)[7] ^= 1);
        tampered("the signature changed", &|p| {
            let mut all: Value = serde_json::from_slice(&p.0[MANIFEST]).unwrap();
            all["signature"] = STANDARD.encode([7; 64]).into();
            p.set(MANIFEST, all.to_string());
        });
        if place.file() == MANIFEST {
            tampered("a count changed", &|p| {
                p.replace(MANIFEST, "\"receipt_count_expected\":5", "\"receipt_count_expected\":6")
            });
        } else {
            tampered("what a later version wrote was changed", &|p| p.file(place.file()).push(b'\n'));
            tampered("a name that leaves the pack", &|p| {
                p.sign_with(&key_k(), |m| m.expected_files.push("../x".into()))
            });
        }
        let other = check_pack(&forged(place, raw, &json!({}), &key_e()), &pinned());
        assert_eq!((other.signer.verdict, other.exit()), (SignerVerdict::Untrusted, Exit::Failed), "{place:?} {raw}");
        assert_eq!(serde_json::to_value(&other).unwrap()["overall_verdict"], "UNTRUSTED");
    }
}

#[test]
fn what_only_looks_like_a_later_version_is_damaged() {
    for (place, raw) in LIES.iter().flat_map(|(place, lies)| lies.iter().map(|l| (*place, *l))) {
        let report = check_pack(&forged(place, raw, &json!({}), &key_k()), &pinned());
        assert_eq!(
            (report.integrity, report.exit()),
            (Integrity::Tampered, Exit::Failed),
            "{place:?} {raw}: {report:#?}"
        );
        assert!(report.errors.iter().all(|e| e.code != UNSUPPORTED), "{place:?} {raw}: {:#?}", report.errors);
    }
}

#[test]
fn what_this_version_wrote_beside_a_later_document_is_still_held_to_its_rules() {
    let later = json!({});
    let beside = |place, raw, change: &dyn Fn(&mut Pack)| {
        let mut pack = forged(place, raw, &later, &key_k());
        change(&mut pack);
        pack.sign(&key_k());
        check_pack(&pack, &pinned()).integrity
    };
    let event = |p: &mut Pack| p.edit(EVENTS, 3, |e| e["mono_us"] = 1.into());
    let receipt = |p: &mut Pack| p.edit(RECEIPTS, 3, |r| r["seq"] = 9.into());
    let tool = |p: &mut Pack| p.edit(RECEIPTS, 2, |r| r["tool_name"] = "rm".into());
    for place in [Document(SESSION, "v"), Document(SURFACE, "v")] {
        for change in [&event as &dyn Fn(&mut Pack), &receipt, &tool] {
            assert_eq!(beside(place, "9", change), Integrity::Tampered, "{place:?}");
        }
    }
    assert_eq!(beside(Line(RECEIPTS, 1, "schema_version"), r#""3.5""#, &event), Integrity::Tampered);
    let event_of_later = (EVENT_VERSION + 1).to_string();
    assert_eq!(beside(Line(EVENTS, 1, "v"), &event_of_later, &receipt), Integrity::Tampered);
    // What compares with what a later version wrote says nothing: its rules may be others.
    assert_eq!(beside(Line(EVENTS, 1, "v"), &event_of_later, &event), Integrity::Unsupported);
    assert_eq!(beside(Line(EVENTS, 1, "v"), &event_of_later, &tool), Integrity::Unsupported);
    assert_eq!(beside(Line(RECEIPTS, 1, "schema_version"), r#""3.5""#, &receipt), Integrity::Unsupported);
}

#[test]
fn every_document_of_a_later_version_is_named_once() {
    let mut pack = whole();
    for file in [EVENTS, RECEIPTS] {
        let member = if file == EVENTS { "v" } else { "schema_version" };
        let raw = if file == EVENTS { (EVENT_VERSION + 1).to_string() } else { r#""3.5""#.to_owned() };
        let lines: Vec<String> =
            pack.lines(file).iter().map(|l| with_member(l, member, &raw, &json!({"new": [1]}))).collect();
        pack.set_lines(file, &lines);
    }
    pack.edit(SESSION, 0, |s| s["v"] = (SESSION_VERSION + 1).into());
    pack.sign(&key_k());
    let report = check_pack(&pack, &pinned());
    let mut named: Vec<_> = report.errors.iter().map(|e| (e.file.clone().unwrap(), e.line)).collect();
    named.sort();
    let expected = [(EVENTS, Some(1)), (RECEIPTS, Some(1)), (SESSION, None)].map(|(f, l)| (f.to_owned(), l));
    assert_eq!((report.integrity, named), (Integrity::Unsupported, expected.to_vec()));
}

#[test]
fn what_a_pack_of_a_later_version_must_have_is_not_known() {
    let mut pack = forged(Manifest("pack_version"), r#""0.2.0""#, &json!({}), &key_k());
    let mut all: Value = serde_json::from_slice(&pack.0[MANIFEST]).unwrap();
    all["files"].as_array_mut().unwrap().retain(|f| f["path"] != TRANSCRIPT);
    all["expected_files"].as_array_mut().unwrap().retain(|f| f != TRANSCRIPT);
    pack.0.remove(TRANSCRIPT);
    sign_manifest(&mut pack, &all.to_string(), &key_k());
    is_unsupported(&check_pack(&pack, &pinned()), Manifest("pack_version"), r#""0.2.0""#);
}

#[test]
fn a_pack_of_a_later_version_is_not_explained() {
    for (place, raw) in cases() {
        let tmp = scratch();
        forged(place, raw, &json!({"meta": {"v": 1, "schema_version": "3.0"}}), &key_k()).write(tmp.path());
        let Err(ExplainError::TooNew(e)) = Explanation::of_pack(tmp.path()) else { panic!("{place:?} {raw}") };
        assert!(e.path.ends_with(place.file()) && e.to_string().contains("needs a later assay"), "{e}");
    }
    let tmp = scratch();
    whole().write(tmp.path());
    Explanation::of_pack(tmp.path()).unwrap();
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\"\\\\é]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,3}", inner), 0..4).prop_map(|m| Value::from(serde_json::Map::from_iter(m))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn whatever_a_later_version_adds(
        at in any::<prop::sample::Index>(),
        major in 0u64..40,
        minor in 0u64..40,
        more in prop::collection::vec(("[a-z]{2,6}", values()), 0..4),
        demand in any::<prop::sample::Index>(),
    ) {
        let (place, _) = LATER[at.index(LATER.len())];
        let raw = match place {
            Line(EVENTS, ..) | Document(SESSION | SURFACE, _) | Attestation("fingerprint_version") => {
                let known = u64::from(match place {
                    Line(..) => EVENT_VERSION,
                    Document(SESSION, _) => SESSION_VERSION,
                    Document(..) => SURFACE_VERSION,
                    _ => 1,
                });
                match (major, minor) {
                    (0, _) => format!("\"{known}.{}\"", minor + 1),
                    (_, 0) => format!("{}", major + known),
                    _ => format!("\"{}.{minor}\"", major + known),
                }
            }
            Line(..) => if major == 0 { format!("\"3.{}\"", minor + 2) } else { format!("\"{}.{minor}\"", major + 3) },
            Document(..) if major == 0 => format!("\"assay.verify_report.v0.{}\"", minor + 2),
            Document(..) => format!("\"assay.verify_report.v{major}.{minor}\""),
            Manifest(_) | Attestation(_) => format!("\"{}.{minor}.7\"", major + 2),
        };
        // A member that is there already would change what it says, not only what there is.
        let known = whole().0.values().map(|f| String::from_utf8_lossy(f).into_owned()).collect::<String>();
        let more: serde_json::Map<String, Value> =
            more.into_iter().filter(|(name, _)| !known.contains(&format!("\"{name}\""))).collect();
        let pack = forged(place, &raw, &Value::from(more), &key_k());
        let all = demands();
        is_unsupported(&check_pack(&pack, &all[demand.index(all.len())]), place, &raw);
    }
}
