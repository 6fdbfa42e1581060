//! Packs of guarded sessions in which verdicts were changed by someone who can hash, chain and sign everything anew.

use crate::session::Guarded;
use assay::pack::verify::Integrity;
use assay_support::forge::{EVENTS, Pack, RECEIPTS, check_pack, key_k, pinned};
use serde_json::{Value, json};

fn at(pack: &Pack, name: &str, wanted: impl Fn(&Value) -> bool) -> usize {
    pack.lines(name).iter().position(|l| wanted(&serde_json::from_str(l).unwrap())).unwrap()
}

#[test]
fn a_verdict_that_is_not_the_chains_is_found_although_everything_was_signed_anew() {
    let mut guarded = Guarded::guard();
    guarded.call(1, "echo");
    guarded.call(2, "rm");
    let (session, _rig, _) = guarded.end(1);
    let whole = Pack::read(&session.pack);
    let mut resigned = whole.clone();
    resigned.sign(&key_k());
    assert_eq!(check_pack(&resigned, &pinned()).integrity, Integrity::Pass);
    let denied = |r: &Value| r["outcome"] == "denied";
    let allowed = |r: &Value| r["outcome"] == "forwarded";
    let decision = |e: &Value| e["event"] == "policy_decision" && e["detail"]["verdict"] == "denied";
    let other = json!(format!("sha256:{}", "0".repeat(64)));
    type Change = Box<dyn Fn(&mut Pack)>;
    let receipt = |which: fn(&Value) -> bool, member: &'static str, value: Value| -> Change {
        Box::new(move |p: &mut Pack| {
            let line = at(p, RECEIPTS, which);
            p.edit(RECEIPTS, line, |r| r[member] = value.clone());
        })
    };
    let changes: Vec<(&str, &str, Change)> = vec![
        ("a denied call is called allowed", "policy_verdict", receipt(denied, "policy_verdict", json!("allowed"))),
        ("a denied call is called forwarded", "outcome", receipt(denied, "outcome", json!("timeout"))),
        ("a forwarded call is called denied", "outcome", receipt(allowed, "outcome", json!("denied"))),
        ("another reason", "policy_reason", receipt(denied, "policy_reason", json!("default"))),
        ("another rule", "policy_ref", receipt(denied, "policy_ref", json!("default"))),
        ("another policy", "policy_hash", receipt(allowed, "policy_hash", other.clone())),
        (
            "no verdict",
            "a policy is named, but there is no verdict",
            receipt(allowed, "policy_verdict", json!("no_policy")),
        ),
        (
            "the decision is gone",
            "policy_verdict",
            Box::new(move |p| {
                let line = at(p, EVENTS, decision);
                let mut lines = p.lines(EVENTS);
                lines.remove(line);
                p.set_lines(EVENTS, &lines);
            }),
        ),
        (
            "receipt and decision name a policy that is not there",
            "a policy that was used is not in the pack",
            Box::new(move |p| {
                let line = at(p, EVENTS, decision);
                p.edit(EVENTS, line, |e| e["detail"]["policy_hash"] = other.clone());
                let line = at(p, RECEIPTS, denied);
                p.edit(RECEIPTS, line, |r| r["policy_hash"] = other.clone());
            }),
        ),
        ("the policy was changed", "policy_hash", Box::new(|p| p.replace("policy.yaml", "[echo, ", "[echo, rm, "))),
    ];
    for (name, words, change) in changes {
        let mut pack = whole.clone();
        change(&mut pack);
        pack.make_consistent();
        pack.sign(&key_k());
        let report = check_pack(&pack, &pinned());
        assert_eq!(report.integrity, Integrity::Tampered, "{name}");
        let said: Vec<_> = report.errors.iter().map(|e| e.message.as_str()).collect();
        assert!(said.iter().any(|m| m.contains(words)), "{name}: {said:?}");
    }
}
