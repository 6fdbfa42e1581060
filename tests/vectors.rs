//! assay's public contract vectors and Wycheproof's Ed25519 cases through our verifier.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use assay::model::sha256_hex;
use assay::pack::verify::{
    Claims, Completeness, Integrity, SignerVerdict, Stage, StageStatus, VerifyOptions, VerifyReport, project_receipt,
    verify,
};
use serde_json::Value;
use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

fn vectors() -> PathBuf {
    let dir = std::env::var_os("ASSAY_VECTORS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors"), PathBuf::from)
        .join("assay");
    assert!(
        dir.is_dir(),
        "{} is not there: put assay's public contract vectors there, or name their place in ASSAY_VECTORS",
        dir.display()
    );
    dir
}

fn json(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

fn run(dir: &Path) -> VerifyReport {
    run_with(dir, &VerifyOptions::default())
}

fn run_with(dir: &Path, options: &VerifyOptions) -> VerifyReport {
    verify(dir, options, &mut |_| ControlFlow::Continue(())).unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
}

fn text<'a>(v: &'a Value, name: &str) -> Option<&'a str> {
    v[name].as_str()
}

#[test]
fn every_conformance_fixture_gives_what_the_contract_says() {
    let base = vectors().join("pack");
    let fixtures = json(&base.join("conformance-fixtures.json"));
    let fixtures = fixtures["fixtures"].as_array().unwrap();
    assert_eq!(fixtures.len(), 7);
    for f in fixtures {
        let name = text(f, "name").unwrap();
        let report = run(&base.join(name));
        assert_eq!(report.authentic(), f["expectPassed"].as_bool().unwrap(), "{name}: {:#?}", report.errors);
        if let Some(code) = text(f, "expectCode") {
            let any = f["expectCodesAnyOf"].as_array().cloned().unwrap_or_else(|| vec![code.into()]);
            let found = report.errors.iter().any(|e| any.iter().any(|c| c == e.code));
            assert!(found, "{name}: {:#?}", report.errors);
        }
        if let Some(stage) = text(f, "expectFailStage") {
            let stage = report.stages.iter().find(|s| s.stage.as_str() == stage).unwrap();
            assert_eq!(stage.status, StageStatus::Fail, "{name}: {:#?}", report.stages);
        }
    }
}

#[test]
fn every_manifest_that_is_not_of_the_schema_is_refused_there() {
    let base = vectors().join("pack-schema-depth");
    let fixtures = json(&base.join("schema-depth-fixtures.json"));
    let fixtures = fixtures["fixtures"].as_array().unwrap();
    assert_eq!(fixtures.len(), 7);
    for f in fixtures {
        let name = text(f, "name").unwrap();
        let report = run(&base.join(name));
        assert_eq!(report.integrity, Integrity::Tampered, "{name}");
        assert_eq!(report.errors[0].code, "E_MANIFEST_TAMPER", "{name}");
        assert_eq!(report.stage(Stage::ValidateSchema).unwrap().status, StageStatus::Fail, "{name}");
        assert!(report.stages[1..].iter().all(|s| s.status == StageStatus::Skipped), "{name}");
    }
}

#[test]
fn the_golden_pack_verifies_to_the_expected_hashes() {
    let base = vectors().join("pack");
    let expected = json(&base.join("expected_outputs.json"));
    let expected = &expected["expected_verification"];
    let report = run(&base.join("golden_minimal"));
    assert_eq!(report.facts.head_hash.as_deref(), text(expected, "head_hash"));
    assert_eq!(report.facts.pack_root_sha256.as_deref(), text(expected, "pack_root_sha256"));
    assert_eq!(report.facts.receipt_count, expected["receipt_count"].as_u64().unwrap());
    assert_eq!((report.completeness, report.signer.verdict), (Completeness::NotEvaluated, SignerVerdict::Unpinned));
    assert!(report.errors.is_empty() && report.warnings.is_empty() && report.unmet.is_empty(), "{report:#?}");
    let pinned =
        VerifyOptions { signers: report.signer.fingerprint.clone().into_iter().collect(), ..Default::default() };
    assert_eq!(run_with(&base.join("golden_minimal"), &pinned).signer.verdict, SignerVerdict::Pinned);
    let other = VerifyOptions { signers: vec!["0".repeat(64)], ..Default::default() };
    assert_eq!(run_with(&base.join("golden_minimal"), &other).exit().code(), 2);
}

#[test]
fn the_claim_specimens_verify_and_keep_what_was_attested() {
    let base = vectors().join("semantic");
    // What a builder attests against itself is believed; that its claims hold is what this verifier evaluates.
    for (name, claims) in [("claim_pass", Claims::NotEvaluated), ("claim_insufficient", Claims::HonestFail)] {
        let report = run(&base.join(name));
        assert_eq!((report.integrity, report.claims), (Integrity::Pass, claims), "{name}: {:#?}", report.errors);
        assert_eq!(report.exit().code(), 0, "{name}");
        let demanding = VerifyOptions { require_claim_pass: true, ..Default::default() };
        assert_eq!(run_with(&base.join(name), &demanding).exit().code(), 1, "{name}");
    }
    let cards = VerifyOptions {
        cards: vec!["guardian_enforcement".into(), "receipt_completeness".into()],
        ..Default::default()
    };
    assert_eq!(run_with(&base.join("claim_pass"), &cards).claims, Claims::Pass);
    let insufficient = run_with(&base.join("claim_insufficient"), &cards);
    assert_eq!((insufficient.claims, insufficient.exit().code()), (Claims::HonestFail, 1));
}

#[test]
fn receipts_are_projected_as_the_contract_says() {
    let doc = json(&vectors().join("receipt_projection_vectors.json"));
    let vectors = doc["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 3);
    for v in vectors {
        let id = text(v, "id").unwrap();
        let projected = project_receipt(v["input"].to_string().as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(&projected).ok(), text(v, "expected_canonical_utf8"), "{id}");
        assert_eq!(Some(&*sha256_hex(&projected)), text(v, "expected_sha256"), "{id}");
    }
}

#[test]
fn a_member_name_that_only_looks_like_one_that_is_dropped_is_refused() {
    let spec = json(&vectors().join("regression/homoglyph_field_bypass_spec.json"));
    let receipt = spec["receipt"].to_string();
    for line in [receipt.clone(), receipt.replace('\u{456}', "\\u0456"), format!("{{\"nested\":[{receipt}]}}")] {
        let (code, what) = project_receipt(line.as_bytes()).unwrap_err();
        assert_eq!(code, "E_CANON_MISMATCH", "{what}");
        assert!(what.contains("ASCII"), "{what}");
    }
}

#[test]
fn canonical_forms_are_those_of_the_contract_but_for_the_exponent() {
    let doc = json(&vectors().join("jcs_vectors.json"));
    let mut seen = 0;
    for v in doc["vectors"].as_array().unwrap() {
        let stated = v["expected_canonical_utf8"].as_str().unwrap();
        // That canonicalizer spells exponents 1E21 and 1E-7, which RFC 8785 §3.2.2.3 does not.
        let expected = stated.replace("1E-", "1e-").replace("1E", "1e+");
        let canonical = assay::canon::canonicalize(v["input"].to_string().as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(&canonical).unwrap(), expected, "{v}");
        if expected == stated {
            assert_eq!(sha256_hex(&canonical), v["expected_sha256"].as_str().unwrap(), "{v}");
        }
        seen += 1;
    }
    assert!(seen > 5, "the vectors have another form than expected: {seen}");
}
