//! Policies that only advise, cannot be used, change while a session runs, and lie in packs.

use crate::session::{Guarded, POLICY, policy_file, receipts};
use assay::{
    model::{AuditEvent, Detail, EventKind, event::detail, sha256_hex},
    pack::verify::{self, Integrity, VerifyOptions},
};
use assay_support::{
    check,
    rig::{Client, call, rig, until},
};
use serde_json::Value;
use std::{fs, ops::ControlFlow};

fn hash(text: &str) -> String {
    format!("sha256:{}", sha256_hex(text.as_bytes()))
}

#[test]
fn in_audit_the_policy_advises_and_everything_is_forwarded() {
    let mut guarded = Guarded::start(POLICY, "audit", &[]);
    for (id, tool) in [(1, "echo"), (2, "rm"), (3, "RM")] {
        assert!(guarded.call(id, tool)["result"].is_object());
    }
    guarded.client.send(r#"{"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"x:y"}}"#);
    guarded.answer(&4.into());
    let (session, _rig, _) = guarded.end(1);
    let said: Vec<_> = receipts(&session)
        .iter()
        .map(|r| {
            (
                r["outcome"].as_str().unwrap(),
                r["policy_verdict"].as_str().unwrap(),
                r["policy_reason"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            ("forwarded", "allowed", "allowlist"),
            ("forwarded", "denied", "denylist"),
            ("forwarded", "denied", "denylist_lookalike"),
        ]
    );
    assert_eq!((session.count(EventKind::PolicyDecision), session.count(EventKind::RequestBlocked)), (4, 0));
    assert_eq!((session.doc.counts.denied, session.doc.counts.policy_denied), (0, 2));
    assert_eq!(session.doc.policy_hash, Some(hash(POLICY)));
    assert_eq!(fs::read(session.pack.join("policy.yaml")).unwrap(), POLICY.as_bytes());
}

#[test]
fn without_violations_the_exit_code_is_0_in_both_profiles() {
    for profile in ["audit", "guard"] {
        let mut guarded = Guarded::start(POLICY, profile, &["--no-dns"]);
        guarded.call(1, "echo");
        guarded.end(0);
    }
}

#[test]
fn a_policy_that_cannot_be_used_is_bad_input_before_the_server_starts() {
    for (profile, text, words) in [
        ("guard", Some("version: \"1\"\ndefault: maybe\n"), "default"),
        ("audit", Some("version: \"1\"\n\tdefault: deny\n"), "policy.yaml"),
        ("guard", Some("version: \"1\"\ndefault: deny\ndefault: allow\n"), "default"),
        ("guard", None, "no-such"),
        ("audit", None, "no-such"),
    ] {
        let rig = rig!();
        let path = match text {
            Some(text) => policy_file(&rig, text),
            None => rig.root.join("no-such.yaml"),
        };
        let mut client = Client::start(rig.proxy(&["--profile", profile, "--policy", path.to_str().unwrap()]));
        let status = client.end();
        assert_eq!(status.code(), Some(3), "{}", client.said());
        assert!(client.said().contains(words), "{words}: {}", client.said());
        assert!(client.got().is_empty() && !rig.server_log().exists() && !rig.audit.exists());
    }
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&["--profile", "guard"]));
    assert_eq!(client.end().code(), Some(3));
    assert!(client.said().contains("assay policy init"), "{}", client.said());
}

fn reloads(session: &check::Session) -> Vec<detail::PolicyReload> {
    let reload = |e: &AuditEvent| match &e.detail {
        Detail::PolicyReloaded(reload) => Some(reload.clone()),
        _ => None,
    };
    session.events.iter().filter_map(reload).collect()
}

#[test]
fn a_changed_policy_is_read_again_and_a_broken_one_is_not_taken() {
    let mut guarded = Guarded::guard();
    assert!(guarded.call(1, "echo")["result"].is_object());
    let other = POLICY.replace("allowlist: [echo,", "allowlist: [");
    fs::write(&guarded.policy, &other).unwrap();
    let mut id = 1;
    until("the new policy", || {
        id += 1;
        guarded.call(id, "echo")["error"].is_object().then_some(())
    });
    fs::write(&guarded.policy, "version: \"1\"\ndefault: [\n").unwrap();
    guarded.client.signal(rustix::process::Signal::HUP);
    guarded.client.await_said("stays in force");
    let refused = guarded.call(900, "echo");
    assert_eq!(refused["error"]["data"]["policy_hash"], hash(&other));
    fs::write(&guarded.policy, POLICY).unwrap();
    guarded.client.signal(rustix::process::Signal::HUP);
    id = 1000;
    until("the old policy again", || {
        id += 1;
        guarded.call(id, "echo")["result"].is_object().then_some(())
    });
    let (session, rig, _) = guarded.end(1);
    let told = reloads(&session);
    let (a, b) = (hash(POLICY), hash(&other));
    let good: Vec<_> =
        told.iter().filter(|r| r.error.is_none()).map(|r| (r.previous.clone(), r.policy_hash.clone())).collect();
    assert_eq!(good.first().unwrap(), &(a.clone(), b.clone()));
    assert_eq!(good.last().unwrap().1, a);
    let broken: Vec<_> = told.iter().filter(|r| r.error.is_some()).collect();
    assert!(!broken.is_empty() && broken.iter().all(|r| r.policy_hash == b && r.previous == b), "{told:?}");
    for receipt in receipts(&session) {
        let by = if receipt["outcome"] == "denied" { &b } else { &a };
        assert_eq!(receipt["policy_hash"], **by);
    }
    for (name, text) in [("policy.yaml".to_owned(), POLICY), (format!("policy_sha256_{}.yaml", &b[7..]), &other)] {
        assert_eq!(fs::read(session.pack.join(name)).unwrap(), text.as_bytes());
        assert!(rig.audit.join("policy").join(format!("policy_sha256_{}.yaml", sha256_hex(text.as_bytes()))).exists());
    }
}

#[test]
fn the_policy_of_a_rolled_session_is_the_one_in_force_then() {
    let mut guarded = Guarded::start(POLICY, "guard", &["--pack-interval", "2r"]);
    let mut id = 0;
    let mut roll = |guarded: &mut Guarded| {
        let before = guarded.rig.segments().len();
        until("another session", || {
            id += 1;
            guarded.call(id, "echo");
            (guarded.rig.segments().len() > before).then_some(())
        });
    };
    roll(&mut guarded);
    let other = format!("{POLICY}# another\n");
    fs::write(&guarded.policy, &other).unwrap();
    guarded.client.signal(rustix::process::Signal::HUP);
    let mut denied = 10_000;
    until("the new policy", || {
        denied += 1;
        guarded.call(denied, "rm")["error"]["data"]["policy_hash"]
            .as_str()
            .is_some_and(|h| h == hash(&other))
            .then_some(())
    });
    roll(&mut guarded);
    assert_eq!(guarded.client.end().code(), Some(1), "{}", guarded.client.said());
    let sessions = check::sessions(&guarded.rig);
    assert!(sessions.len() > 1);
    // Those of one second are not in order.
    let first = sessions.iter().find(|s| s.doc.continues.is_none()).unwrap();
    let is_last = |s: &&check::Session| sessions.iter().all(|t| t.doc.continues != Some(s.doc.session_id));
    assert_eq!(first.doc.policy_hash, Some(hash(POLICY)));
    assert_eq!(sessions.iter().find(is_last).unwrap().doc.policy_hash, Some(hash(&other)));
}

/// Changes a pack's file in place; the verifier's findings.
fn tampered(session: &check::Session, change: impl Fn(&mut Value)) -> Vec<String> {
    let manifest = session.pack.join("pack_manifest.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    change(&mut value);
    fs::write(&manifest, serde_json::to_vec_pretty(&value).unwrap()).unwrap();
    let report = verify::verify(&session.pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.integrity, Integrity::Tampered);
    report.errors.iter().map(|e| e.message.clone()).collect()
}

#[test]
fn a_pack_without_the_policy_that_judged_is_not_whole() {
    let mut guarded = Guarded::guard();
    guarded.call(1, "rm");
    let (session, _rig, _) = guarded.end(1);
    fs::remove_file(session.pack.join("policy.yaml")).unwrap();
    let said = tampered(&session, |m| {
        m["files"].as_array_mut().unwrap().retain(|f| f["path"] != "policy.yaml");
        m["expected_files"].as_array_mut().unwrap().retain(|f| f != "policy.yaml");
    });
    assert!(said.iter().any(|m| m.contains("a policy that was used is not in the pack")), "{said:?}");
}

#[test]
fn a_refused_call_costs_the_server_nothing_even_when_it_stays_pipelined() {
    let mut guarded = Guarded::guard();
    let lines: Vec<String> = (0..400).map(|i| call(i, if i % 3 == 0 { "rm" } else { "echo" }, i)).collect();
    guarded.raw((lines.join("\n") + "\n").as_bytes());
    until("all answers", || (guarded.got().len() == 401).then_some(()));
    let got = guarded.got();
    for i in 0..400u64 {
        let answers: Vec<_> =
            got.iter().filter(|m| m["id"] == i && !(i == 0 && m["result"]["serverInfo"].is_object())).collect();
        assert_eq!(answers.len(), 1, "{i}");
        assert_eq!(answers[0]["error"].is_object(), i % 3 == 0);
    }
    let (session, ..) = guarded.end(1);
    assert_eq!((session.doc.counts.calls, session.doc.counts.denied), (400, 134));
}
