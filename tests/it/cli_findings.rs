//! `--junit` and `--sarif` of `assay verify-pack` and `assay diff`: what services read of them agrees with the exit code.

use assay_support::{
    rig::{Rig, rig, stderr},
    sessions::Plan,
};
use quick_junit::{Report, TestCaseStatus};
use serde_json::Value;
use std::{fs, path::Path};

/// What a command wrote, and its exit code.
struct Said {
    code: i32,
    junit: Report,
    sarif: Value,
}

impl Said {
    fn failures(&self) -> Vec<String> {
        let cases = self.junit.test_suites.iter().flat_map(|suite| &suite.test_cases);
        let failed = cases.filter(|case| matches!(case.status, TestCaseStatus::NonSuccess { .. }));
        failed.map(|case| format!("{}/{}", case.classname.as_ref().unwrap().as_str(), case.name.as_str())).collect()
    }

    fn results(&self) -> &Vec<Value> {
        self.sarif["runs"][0]["results"].as_array().unwrap()
    }
}

fn run(rig: &Rig, args: &[&str]) -> Said {
    let out = rig.run(&[args, &["--junit", "r.xml", "--sarif", "r.sarif"]].concat());
    let read =
        |name: &str| fs::read_to_string(rig.at(name)).unwrap_or_else(|e| panic!("{name}: {e}: {}", stderr(&out)));
    let said = Said {
        code: out.status.code().unwrap(),
        junit: Report::deserialize_from_str(&read("r.xml")).unwrap(),
        sarif: serde_json::from_str(&read("r.sarif")).unwrap(),
    };
    fs::remove_file(rig.at("r.xml")).unwrap();
    fs::remove_file(rig.at("r.sarif")).unwrap();
    assert_eq!(said.sarif["version"], "2.1.0");
    assert_eq!(said.code == 0, said.failures().is_empty(), "{args:?}: {} {:?}", said.code, said.failures());
    assert_eq!(said.failures().is_empty(), said.results().is_empty(), "{args:?}: {}", said.sarif);
    let rules = said.sarif["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    for result in said.results() {
        assert!(rules.iter().any(|rule| rule["id"] == result["ruleId"]), "{result}");
    }
    said
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_verification_fails_in_the_stage_that_found_it_and_at_the_line() {
    let rig = rig!();
    let (good, bad) = (rig.pack(&Plan::default()), rig.pack(&Plan { seed: 2, ..Plan::default() }));
    let whole = run(&rig, &["verify-pack", text(&good)]);
    assert_eq!((whole.code, whole.junit.test_suites.len()), (0, 1));
    assert!(whole.junit.tests > 5, "{:?}", whole.junit);
    let strict = run(&rig, &["verify-pack", "--strict", text(&good)]);
    assert_eq!(strict.code, 1);
    assert!(strict.failures().iter().any(|f| f.starts_with("demand/")), "{:?}", strict.failures());
    let signer = run(&rig, &["verify-pack", "--signer", &"ab".repeat(32), text(&good)]);
    assert_eq!((signer.code, signer.failures()), (2, vec!["stage/signer_trust".to_owned()]));

    let receipts = bad.join("receipt_pack.jsonl");
    let changed =
        fs::read_to_string(&receipts).unwrap().replacen("\"outcome\":\"forwarded\"", "\"outcome\":\"denied\"", 1);
    fs::write(&receipts, changed).unwrap();
    let tampered = run(&rig, &["verify-pack", text(&bad)]);
    assert_eq!(tampered.code, 2);
    assert!(tampered.failures().iter().any(|f| f.starts_with("stage/")), "{:?}", tampered.failures());
    let placed = tampered.results().iter().find(|r| !r["locations"].is_null()).unwrap();
    assert!(placed["ruleId"].as_str().unwrap().starts_with("E_"), "{placed}");
    let place = &placed["locations"][0]["physicalLocation"];
    assert!(place["artifactLocation"]["uri"].as_str().unwrap().contains("proof_pack"), "{placed}");

    let both = run(&rig, &["verify-pack", text(&good), text(&bad)]);
    assert_eq!((both.code, both.junit.test_suites.len()), (2, 2));
}

#[test]
fn a_demand_on_claims_names_the_claim() {
    let rig = rig!();
    let pack = rig.pack(&Plan::default());
    let card = ["verify-pack", "--cards", "mcp_escrow_completeness", text(&pack)];
    let demanded = run(&rig, &card);
    assert_eq!(demanded.code, 1);
    assert!(demanded.failures().iter().any(|f| f.starts_with("mcp_escrow_completeness/")), "{:?}", demanded.failures());
}

#[test]
fn a_comparison_fails_at_its_gates_and_regressions() {
    let rig = rig!();
    let (a, b) = (rig.pack(&Plan::default()), rig.pack(&Plan { seed: 2, error_every: 5, ..Plan::default() }));
    assert_eq!(run(&rig, &["diff", text(&a), text(&a)]).code, 0);
    let worse = run(&rig, &["diff", text(&a), text(&b)]);
    assert_eq!((worse.code, worse.failures()), (1, vec!["regression/errors".to_owned()]));
    rig.file("gates.yaml", "max_errors: 0\n");
    let gated = run(&rig, &["diff", "--gates", "gates.yaml", text(&a), text(&b)]);
    assert_eq!((gated.code, gated.failures()), (1, vec!["gate/max_errors".to_owned()]));
    fs::write(b.join("receipt_pack.jsonl"), "{}\n").unwrap();
    let tampered = run(&rig, &["diff", text(&a), text(&b)]);
    assert_eq!((tampered.code, tampered.failures()), (2, vec!["verified/B".to_owned()]));
}

#[test]
fn reports_replace_nothing_and_never_stand_in_a_pack() {
    let rig = rig!();
    let pack = rig.pack(&Plan::default());
    rig.file("there.xml", "mine");
    for args in [
        vec!["verify-pack", "--junit", "there.xml", text(&pack)],
        vec!["diff", "--sarif", "there.xml", text(&pack), text(&pack)],
        vec!["verify-pack", "--sarif", text(&pack), text(&pack)],
    ] {
        let out = rig.run(&args);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", stderr(&out));
    }
    let inside = pack.join("r.xml");
    assert_eq!(rig.run(&["verify-pack", "--junit", text(&inside), text(&pack)]).status.code(), Some(3));
    assert_eq!(fs::read_to_string(rig.at("there.xml")).unwrap(), "mine");
    assert!(!inside.exists());
}
