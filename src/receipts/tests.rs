use super::*;
use crate::{
    model::{
        SessionDoc,
        line::{member, number, text},
        pack::{AUDIT_LOG, RECEIPTS, SESSION},
    },
    pack::{
        keys::KeyStore,
        verify::{Claims, Completeness, Integrity, VerifyOptions, VerifyReport, verify},
    },
};
use std::path::PathBuf;

/// An audit directory and a user directory of its own. Tests of a process share its environment, so the settings are made by hand.
struct Place {
    tmp: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { tmp: tempfile::tempdir().unwrap() }
    }

    fn dir(&self) -> PathBuf {
        self.tmp.path().join("audit")
    }

    /// What the user directory remembers of the only recording.
    fn marked(&self) -> crate::record::mark::Mark {
        let dir = crate::paths::AuditDir::at(self.dir()).remembered_in(Some(self.tmp.path().join("home")));
        dir.marks().unwrap().of_dir(&dir).pop().unwrap()
    }

    /// A recorder that seals with a key of its own.
    fn open(&self, with: impl FnOnce(Builder) -> Builder) -> Recorder {
        let keys = KeyStore::at(self.tmp.path().join("keys"));
        let signer = keys.load_or_generate(&keys.active().unwrap()).unwrap();
        let builder = with(Recorder::builder("demo@1.0.0").audit_dir(self.dir()));
        let mut recorder = builder.open_in(self.tmp.path(), signer).unwrap();
        // Some tests leave a recording as a killed process does, and finish it themselves.
        recorder.recovery.take().unwrap().join().unwrap();
        recorder
    }
}

fn call(receipts: &Receipts, tool: &str, arguments: &str, outcome: Outcome<'_>) -> Option<ReceiptId> {
    let mut running = pending(receipts, tool, arguments).judge().ok()?;
    running.start();
    running.finish(outcome)
}

fn pending(receipts: &Receipts, tool: &str, arguments: &str) -> Pending {
    let request = Request {
        tool,
        arguments: Some(arguments.as_bytes()),
        id: Some(b"7"),
        actor: Some("client"),
        ..Request::default()
    };
    receipts.request(&request)
}

const OK: Outcome<'static> = Outcome::Result(br#"{"content":[{"type":"text","text":"found"}]}"#);

/// The receipts of a pack, as lines.
fn lines(sealed: &Sealed) -> Vec<Vec<u8>> {
    let pack = sealed.pack.as_ref().unwrap_or_else(|| panic!("{:?}", sealed.problems));
    let text = std::fs::read(pack.join(RECEIPTS)).unwrap();
    text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(<[u8]>::to_vec).collect()
}

fn said(line: &[u8], name: &str) -> String {
    String::from_utf8_lossy(member(line, name).unwrap_or_else(|| panic!("{name}"))).trim_matches('"').to_owned()
}

fn kinds(all: &[Vec<u8>]) -> Vec<String> {
    all.iter().map(|l| said(l, "type")).collect()
}

fn checked(sealed: &Sealed) -> VerifyReport {
    let options = VerifyOptions { cards: vec!["mcp_escrow_completeness".into()], ..VerifyOptions::default() };
    let report = verify(sealed.pack.as_ref().unwrap(), &options, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(report.integrity, Integrity::Pass, "{:?}", report.errors);
    report
}

#[test]
fn a_call_is_asked_for_and_done_and_its_pack_verifies() {
    let place = Place::new();
    let recorder = place.open(|b| b.auto_pack(true).cleartext("search", ["q"]));
    assert!(!place.dir().join("audit").read_dir().is_ok_and(|mut d| d.next().is_some()), "a recording without a call");
    let receipts = recorder.receipts();
    let id = call(&receipts, "search", r#"{"q":"x","key":"s3cret"}"#, OK).unwrap();
    assert_eq!(id.prefix(), crate::model::ReceiptPrefix::Executed);
    call(&receipts, "fail", "{}", Outcome::Result(br#"{"isError":true,"content":[{"type":"text","text":"s3cret"}]}"#));
    call(&receipts, "gone", "{}", Outcome::Error(br#"{"code":-32601,"message":"s3cret"}"#));
    let closed = recorder.close();
    assert_eq!((closed.health.requested, closed.health.settled, closed.health.lost), (3, 3, 0));
    let [sealed] = &closed.packs[..] else { panic!("{:?}", closed.packs) };
    let all = lines(sealed);
    assert_eq!(
        kinds(&all),
        [
            "mcp.session_start",
            "mcp_tool_requested",
            "mcp_tool_executed",
            "mcp_tool_requested",
            "mcp_tool_executed",
            "mcp_tool_requested",
            "mcp_tool_executed",
            "mcp.session_end"
        ]
    );
    for (n, line) in all.iter().enumerate() {
        assert_eq!(number(member(line, "seq")), Some(n as u64));
        assert!(!String::from_utf8_lossy(line).contains("s3cret"));
        assert_eq!(said(line, "integration_source"), "assay.integrations.mcp");
    }
    assert_eq!(said(&all[1], "receipt_id")[4..], said(&all[2], "receipt_id")[4..]);
    assert_eq!(said(&all[2], "request_receipt_id"), said(&all[1], "receipt_id"));
    assert!(said(&all[1], "arguments_redacted").starts_with(r#"{"key":"sha256:"#));
    assert_eq!(said(&all[3], "arguments_redacted"), "null");
    assert_eq!((said(&all[2], "outcome"), said(&all[4], "outcome")), ("success".into(), "error".into()));
    assert_eq!((said(&all[4], "error"), said(&all[6], "error")), ("tool_error".into(), "rpc:-32601".into()));
    let report = checked(sealed);
    assert_eq!((report.completeness, report.claims), (Completeness::Complete, Claims::Pass));
    assert_eq!(report.facts.coverage.unwrap().to_string(), "3 of 3 (100.0 %)");
    let doc: SessionDoc =
        serde_json::from_slice(&std::fs::read(sealed.pack.as_ref().unwrap().join(SESSION)).unwrap()).unwrap();
    assert_eq!((doc.v, doc.recorder.unwrap().as_str()), (4, "library"));
    assert_eq!(doc.coverage.unwrap().executed, 3);
}

#[test]
fn a_handler_that_panics_or_is_dropped_leaves_a_receipt() {
    let place = Place::new();
    let recorder = place.open(|b| b.auto_pack(true));
    let receipts = recorder.receipts();
    let mut dropped = pending(&receipts, "slow", "{}").judge().unwrap();
    dropped.start();
    dropped.cancelled();
    drop(dropped);
    let panics = receipts.clone();
    std::thread::spawn(move || {
        let mut running = pending(&panics, "bad", "{}").judge().unwrap();
        running.start();
        panic!("of the handler");
    })
    .join()
    .unwrap_err();
    let closed = recorder.close();
    let all = lines(&closed.packs[0]);
    let done: Vec<_> = all.iter().filter(|l| said(l, "type") == "mcp_tool_executed").collect();
    let of = |l: &[u8]| (said(l, "outcome"), said(l, "outcome_reason"), said(l, "error"));
    assert_eq!(of(done[0]), ("timeout".into(), "handler_dropped".into(), "dropped".into()));
    assert_eq!(said(done[0], "anomalies"), r#"["cancelled_by_client"]"#);
    assert_eq!(of(done[1]), ("error".into(), "handler_panicked".into(), "panicked".into()));
    assert_eq!(checked(&closed.packs[0]).completeness, Completeness::Complete);
}

#[test]
fn calls_that_run_at_the_end_have_no_outcome_and_the_pack_says_incomplete() {
    let place = Place::new();
    let recorder = place.open(|b| b.auto_pack(true));
    let mut running = pending(&recorder.receipts(), "slow", "{}").judge().unwrap();
    running.start();
    let closed = recorder.close();
    assert_eq!(running.finish(OK), None, "it has its outcome");
    let all = lines(&closed.packs[0]);
    assert_eq!(said(&all[2], "outcome_reason"), "shutdown");
    assert_eq!(checked(&closed.packs[0]).completeness, Completeness::Incomplete);
    assert!(!closed.packs[0].complete);
}

#[test]
fn two_hundred_calls_at_once_from_eight_threads_lose_nothing() {
    let place = Place::new();
    let recorder = place.open(|b| b.auto_pack(true));
    std::thread::scope(|s| {
        for _ in 0..8 {
            let receipts = recorder.receipts();
            s.spawn(move || {
                for n in 0..25 {
                    assert!(call(&receipts, "echo", &format!(r#"{{"n":{n}}}"#), OK).is_some());
                }
            });
        }
    });
    let closed = recorder.close();
    let report = checked(&closed.packs[0]);
    assert_eq!(report.facts.receipt_count, 402);
    assert_eq!((report.completeness, report.claims), (Completeness::Complete, Claims::Pass));
    assert_eq!(report.facts.coverage.unwrap().coverage.executed, 200);
}

#[test]
fn a_pack_is_built_at_a_threshold_and_now_and_the_next_call_begins_another() {
    let place = Place::new();
    let recorder = place.open(|b| b.auto_pack(true).pack_every(4));
    let receipts = recorder.receipts();
    let mut long = pending(&receipts, "long", "{}").judge().unwrap();
    long.start();
    call(&receipts, "a", "{}", OK);
    call(&receipts, "b", "{}", OK);
    assert!(call(&receipts, "c", "{}", OK).is_some(), "in another recording");
    assert!(long.finish(OK).is_some(), "in the first recording");
    let second = recorder.pack_now().unwrap();
    assert_eq!(recorder.pack_now().unwrap_err(), SealError::Nothing);
    call(&receipts, "d", "{}", OK);
    let closed = recorder.close();
    assert_eq!(closed.packs.len(), 3);
    for sealed in &closed.packs {
        let report = checked(sealed);
        assert_eq!((report.completeness, report.claims), (Completeness::Complete, Claims::Pass));
    }
    assert!(closed.packs.iter().any(|p| p.session == second.session));
    assert_eq!(call(&receipts, "late", "{}", OK), None, "the recorder is closed");
}

#[test]
fn legs_and_tasks_are_linked() {
    let place = Place::new();
    let recorder = place.open(|b| b.auto_pack(true));
    let receipts = recorder.receipts();
    let asks = br#"{"resultType":"input_required","requestState":"st"}"#;
    let first = call(&receipts, "ask", r#"{"a":1}"#, Outcome::Result(asks)).unwrap();
    let again =
        Request { tool: "ask", arguments: Some(br#"{"a":1}"#), request_state: Some("st"), ..Request::default() };
    let mut running = receipts.request(&again).judge().unwrap();
    running.start();
    running.finish(OK);
    let began = call(&receipts, "task", "{}", Outcome::Result(br#"{"resultType":"task","taskId":"t1"}"#)).unwrap();
    assert_ne!(receipts.task_ended("t1", OK).unwrap(), began);
    assert_eq!(receipts.task_ended("t1", OK), None, "only once");
    let closed = recorder.close();
    let all = lines(&closed.packs[0]);
    assert_eq!(said(&all[3], "parent_receipt_id"), first.to_string());
    assert_eq!(said(&all[7], "parent_receipt_id"), began.to_string());
    assert_eq!((said(&all[7], "anomalies"), said(&all[7], "duration_ms")), (r#"["task_leg"]"#.into(), "null".into()));
    let report = checked(&closed.packs[0]);
    assert_eq!(report.completeness, Completeness::Complete);
    assert_eq!(report.facts.coverage.unwrap().to_string(), "3 of 3 (100.0 %)");
}

#[cfg(feature = "policy")]
mod with_a_policy {
    use super::*;

    fn policy(place: &Place, text: &str) -> PathBuf {
        let path = place.tmp.path().join("assay.mcp-policy.yaml");
        std::fs::write(&path, text).unwrap();
        path
    }

    const DENY: &str =
        "version: \"1\"\ndefault: deny\nallowlist: [echo, once]\nconstraints:\n  once:\n    max_calls: 1\n";

    #[test]
    fn what_the_policy_rejects_does_not_run() {
        let place = Place::new();
        let path = policy(&place, DENY);
        let recorder = place.open(|b| b.auto_pack(true).policy_file(path));
        let receipts = recorder.receipts();
        let denied = pending(&receipts, "shell_exec", r#"{"cmd":"s3cret"}"#).judge().err().unwrap();
        assert!(denied.policy_hash.is_some() && denied.receipt.is_some() && !denied.message.contains("s3cret"));
        assert!(call(&receipts, "echo", "{}", OK).is_some());
        let closed = recorder.close();
        let all = lines(&closed.packs[0]);
        assert_eq!(kinds(&all)[1..3], ["mcp_tool_requested", "mcp_tool_denied"]);
        assert_eq!(
            (said(&all[2], "policy_reason"), said(&all[2], "denied")),
            ("not_in_allowlist".into(), "true".into())
        );
        assert_eq!(said(&all[4], "policy_verdict"), "allowed");
        let report = checked(&closed.packs[0]);
        assert_eq!((report.completeness, report.claims), (Completeness::Complete, Claims::Pass));
        assert_eq!(report.facts.mode.as_deref(), Some("enforced"));
        assert!(closed.packs[0].pack.as_ref().unwrap().join("policy.yaml").exists());
    }

    #[test]
    fn with_advice_only_what_it_rejects_runs_and_the_verdict_is_beside() {
        let place = Place::new();
        let path = policy(&place, DENY);
        let recorder = place.open(|b| b.auto_pack(true).policy_file(path).advisory());
        assert!(call(&recorder.receipts(), "shell_exec", "{}", OK).is_some());
        let closed = recorder.close();
        let all = lines(&closed.packs[0]);
        assert_eq!((said(&all[2], "outcome"), said(&all[2], "policy_verdict")), ("success".into(), "denied".into()));
        checked(&closed.packs[0]);
        assert_eq!(closed.packs[0].policy_denied, 1);
    }

    #[test]
    fn a_bad_policy_is_an_error_before_the_server_serves() {
        let place = Place::new();
        let path = policy(&place, "version: \"1\"\ndefault: perhaps\n");
        let refused = Recorder::builder("s").audit_dir(place.dir()).policy_file(path).open().err().unwrap();
        assert!(refused.to_string().contains("perhaps") || refused.to_string().contains("default"), "{refused}");
    }
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    let place = Place::new();
    let builder = |id: &str| Recorder::builder(id).audit_dir(place.dir());
    for bad in ["", "é", "a\nb", &"x".repeat(129)] {
        assert!(matches!(builder(bad).open(), Err(OpenError::ServerId(_))), "{bad}");
    }
    assert!(matches!(builder("s").cleartext("", ["a"]).open(), Err(OpenError::Cleartext(_))));
    assert!(matches!(builder("s").cleartext("t", [""]).open(), Err(OpenError::Cleartext(_))));
    assert!(matches!(builder("s").pack_every(0).open(), Err(OpenError::PackEvery(_))));
    assert!(!place.dir().exists());
}

#[test]
fn a_disk_that_cannot_be_written_fails_no_call_unless_evidence_is_required() {
    let place = Place::new();
    // A file is where the directory should be.
    std::fs::write(place.dir(), b"x").unwrap();
    let recorder = place.open(|b| b.auto_pack(true));
    assert!(call(&recorder.receipts(), "echo", "{}", OK).is_some());
    let health = recorder.health();
    assert!(health.disk_error.is_some(), "{health:?}");
    // So much is kept until the directory can be written; what is counted as missed has no receipt.
    let given: Vec<bool> = (0..5000).map(|_| call(&recorder.receipts(), "echo", "{}", OK).is_some()).collect();
    let kept = given.iter().take_while(|given| **given).count();
    assert!(kept > 0 && kept < given.len() && !given[kept..].contains(&true), "{kept}");
    let closed = recorder.close();
    assert!(closed.packs.is_empty());
    assert!(closed.health.lost >= 1, "{:?}", closed.health);

    let recorder = place.open(Builder::require_evidence);
    let denied = pending(&recorder.receipts(), "echo", "{}").judge().err().unwrap();
    assert_eq!((denied.rule.as_str(), denied.policy_hash), ("recorder_unavailable", None));
}

#[test]
fn what_was_said_while_the_directory_was_away_is_recorded_when_it_is_back() {
    let place = Place::new();
    std::fs::write(place.dir(), b"x").unwrap();
    let recorder = place.open(|b| b.auto_pack(true));
    let receipts = recorder.receipts();
    call(&receipts, "early", "{}", OK);
    std::fs::remove_file(place.dir()).unwrap();
    crate::paths::AuditDir::at(place.dir()).create().unwrap();
    let began = std::time::Instant::now();
    while !place.dir().join("receipts").read_dir().unwrap().any(|e| e.unwrap().metadata().unwrap().len() > 0) {
        assert!(began.elapsed() < Duration::from_mins(2), "{:?}", recorder.health());
        thread::sleep(Duration::from_millis(50));
    }
    call(&receipts, "later", "{}", OK);
    let closed = recorder.close();
    let report = checked(&closed.packs[0]);
    assert_eq!(report.facts.coverage.unwrap().to_string(), "2 of 2 (100.0 %)");
}

#[test]
fn a_server_that_is_killed_is_recovered_and_open_calls_are_named() {
    let place = Place::new();
    let recorder = place.open(|b| b);
    let receipts = recorder.receipts();
    call(&receipts, "done", "{}", OK);
    let open = pending(&receipts, "open", "{}");
    let invocation = open.invocation().unwrap();
    // As if the process had died here: nothing of it runs any more, and its locks are gone.
    let running = open.judge().unwrap();
    recorder.shared.abandon();
    std::mem::forget(running);
    let dir = recorder.shared.dir.clone();
    std::mem::forget(recorder);
    for path in std::fs::read_dir(dir.live()).unwrap() {
        let path = path.unwrap().path();
        let card = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text(member(card.as_bytes(), "recorder")).as_deref(), Some("library"));
    }
    let keys = KeyStore::at(place.tmp.path().join("keys"));
    let signer = Arc::new(keys.load_or_generate(&keys.active().unwrap()).unwrap());
    let all = seal::recover_dir(&dir, &|| Some(signer.clone()), false, &|_| ()).unwrap();
    let [Ok(sealed)] = &all[..] else { panic!("{all:?}") };
    assert_eq!((sealed.end_reason.as_str(), sealed.complete), ("crashed", false));
    let report = checked(sealed);
    assert_eq!((report.completeness, report.claims), (Completeness::Incomplete, Claims::HonestFail));
    let covered = report.facts.coverage.unwrap();
    assert_eq!((covered.coverage.open, &covered.open[..]), (1, &[invocation][..]));
    assert!(
        report.completeness_reasons.iter().any(|r| r.contains(&invocation.to_string())),
        "{:?}",
        report.completeness_reasons
    );
    let notes = std::fs::read_to_string(sealed.pack.as_ref().unwrap().join(SESSION)).unwrap();
    assert!(!notes.contains("capture") && notes.contains("the server of session"), "{notes}");
}

#[test]
fn every_prefix_of_what_a_killed_server_wrote_is_recovered_and_verifies() {
    let place = Place::new();
    let recorder = place.open(|b| b);
    let receipts = recorder.receipts();
    call(&receipts, "one", "{}", OK);
    call(&receipts, "two", "{}", OK);
    recorder.shared.abandon();
    let dir = recorder.shared.dir.clone();
    std::mem::forget(recorder);
    let only = |of: PathBuf| std::fs::read_dir(of).unwrap().next().unwrap().unwrap().path();
    let (segment, receipts) = (
        std::fs::read_dir(dir.audit())
            .unwrap()
            .map(|e| e.unwrap().path())
            .find(|p| p.to_string_lossy().contains("segment_"))
            .unwrap(),
        only(dir.receipts()),
    );
    let (events, lines) = (std::fs::read(&segment).unwrap(), std::fs::read(&receipts).unwrap());
    let ends = |of: &[u8]| of.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(n, _)| n + 1).collect::<Vec<_>>();
    let keys = KeyStore::at(place.tmp.path().join("keys"));
    let signer = Arc::new(keys.load_or_generate(&keys.active().unwrap()).unwrap());
    // Receipts are written before the event that binds them: one may be ahead, and a line may be torn.
    for (n, end) in ends(&events).into_iter().enumerate().skip(1) {
        for (ahead, torn) in [(0, 0), (1, 0), (0, 9), (1, 9)] {
            let at = ends(&lines);
            let kept = at[(n + ahead).min(at.len() - 1)];
            let copy = Place::new();
            let run = std::process::Command::new("cp").arg("-a").arg(place.tmp.path()).arg(copy.tmp.path()).status();
            assert!(run.unwrap().success());
            let root = copy.tmp.path().join(place.tmp.path().file_name().unwrap());
            let there = |path: &std::path::Path| root.join(path.strip_prefix(place.tmp.path()).unwrap());
            std::fs::write(there(&segment), &events[..(end + torn).min(events.len())]).unwrap();
            std::fs::write(there(&receipts), &lines[..(kept + torn).min(lines.len())]).unwrap();
            let dir = crate::paths::AuditDir::at(root.join("audit")).remembered_in(Some(root.join("home")));
            // The mark names the directory that it was made for.
            if let Some(marks) = dir.marks() {
                let old = place.marked();
                marks.begin(&dir, old.session_id, old.started_at).unwrap();
                marks.chain_start(&dir, old.session_id, old.started_at, old.chain_start.as_deref().unwrap()).unwrap();
            }
            let all = seal::recover_dir(&dir, &|| Some(signer.clone()), false, &|_| ()).unwrap();
            let [Ok(sealed)] = &all[..] else {
                panic!(
                    "{n} {ahead} {torn}: {:?}",
                    all.iter()
                        .map(|r| r.as_ref().map_err(ToString::to_string).map(|s| &s.problems))
                        .collect::<Vec<_>>()
                )
            };
            assert_eq!(sealed.problems, Vec::<String>::new(), "{n} {ahead} {torn}");
            checked(sealed);
        }
    }
}

#[test]
fn a_pack_whose_links_were_changed_is_tampered() {
    let place = Place::new();
    let recorder = place.open(|b| b.auto_pack(true));
    let receipts = recorder.receipts();
    call(&receipts, "one", "{}", OK);
    call(&receipts, "two", "{}", OK);
    let closed = recorder.close();
    let pack = closed.packs[0].pack.clone().unwrap();
    let path = pack.join(RECEIPTS);
    let text = std::fs::read_to_string(&path).unwrap();
    let two = said(&lines(&closed.packs[0])[3], "receipt_id");
    let one = said(&lines(&closed.packs[0])[1], "receipt_id");
    for (from, to) in [
        (format!("\"request_receipt_id\":\"{one}\""), format!("\"request_receipt_id\":\"{two}\"")),
        ("\"outcome\":\"success\"".to_owned(), "\"outcome\":\"timeout\"".to_owned()),
        ("\"tool_name\":\"one\"".to_owned(), "\"tool_name\":\"two\"".to_owned()),
    ] {
        let changed = text.replacen(&from, &to, 1);
        assert_ne!(changed, text);
        std::fs::write(&path, changed).unwrap();
        let report = verify(&pack, &VerifyOptions::default(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        assert_eq!(report.integrity, Integrity::Tampered, "{from}");
    }
    assert!(pack.join(AUDIT_LOG).exists());
}

/// Whether any file below a directory has a text.
#[cfg(feature = "policy")]
fn holds(dir: &Path, text: &str) -> bool {
    let holds_it =
        |path: &Path| memchr::memmem::find(&std::fs::read(path).unwrap_or_default(), text.as_bytes()).is_some();
    let mut paths = dir.read_dir().unwrap().map(|entry| entry.unwrap().path());
    paths.any(|path| if path.is_dir() { holds(&path, text) } else { holds_it(&path) })
}

#[cfg(feature = "policy")]
#[test]
fn what_rules_match_is_kept_nowhere_and_the_pack_says_so() {
    const SECRET: &str = "TCK-483920";
    let place = Place::new();
    let rules = place.tmp.path().join("r.yaml");
    std::fs::write(&rules, "version: \"1\"\nrules:\n  - { name: ticket, regex: 'TCK-[0-9]{6}' }\n  - { name: who, pointer: /user/name, in: arguments }\n").unwrap();
    let recorder = place.open(|b| {
        let b = b.auto_pack(true).redact(&rules).redact("preset:secrets");
        b.store_arguments(true)
            .store_results(true)
            .store_errors(true)
            .cleartext("s", ["q"])
            .cleartext_results("s", ["found"])
    });
    let receipts = recorder.receipts();
    let arguments = format!(r#"{{"q":"see {SECRET}.","user":{{"name":"Eve"}}}}"#);
    let result = format!(
        r#"{{"content":[{{"type":"text","text":"{SECRET}"}}],"structuredContent":{{"found":"{SECRET}!","n":1}}}}"#
    );
    call(&receipts, "s", &arguments, Outcome::Result(result.as_bytes())).unwrap();
    call(&receipts, "plain", r#"{"a":1}"#, OK).unwrap();
    call(&receipts, "fail", r#"{"a":1,"a":"TCK-483920"}"#, Outcome::Error(br#"{"code":1,"message":"no TCK-483920"}"#))
        .unwrap();
    let closed = recorder.close();
    let sealed = &closed.packs[0];
    let all = lines(sealed);
    let of = |n: usize, name: &str| String::from_utf8_lossy(member(&all[n], name).unwrap()).into_owned();
    let hash = |json: &str| {
        format!("\"sha256:{}\"", crate::canon::sha256_hex(&crate::canon::canonicalize(json.as_bytes()).unwrap()))
    };
    assert_eq!(of(1, "arguments_content"), r#"{"q":"see [redacted:ticket].","user":{"name":"[redacted:who]"}}"#);
    assert_eq!(of(1, "arguments_hash"), hash(&arguments), "of the original");
    assert_eq!(of(1, "anomalies"), r#"["redacted:arguments:ticket","redacted:arguments:who"]"#);
    assert!(of(1, "arguments_redacted").contains(r#""q":"see [redacted:ticket].""#), "{}", of(1, "arguments_redacted"));
    assert_eq!((of(1, "schema_version"), of(2, "schema_version")), (r#""3.4""#.into(), r#""3.4""#.into()));
    assert_eq!(of(2, "result_hash"), hash(&result));
    assert_eq!(of(2, "anomalies"), r#"["redacted:result:ticket"]"#);
    assert!(of(2, "result_redacted").starts_with(r#"{"found":"[redacted:ticket]!","n":"sha256:"#));
    assert_eq!((of(3, "schema_version"), of(3, "arguments_content")), (r#""3.0""#.into(), r#"{"a":1}"#.into()));
    // Nothing can be looked through that means two things.
    assert!(of(5, "anomalies").contains("redaction_not_possible") && of(5, "arguments_content") == "null");
    assert_eq!((of(6, "error"), of(6, "schema_version")), (r#""no [redacted:ticket]""#.into(), r#""3.4""#.into()));
    assert_eq!(checked(sealed).facts.redacted_contents, 3);
    for secret in [SECRET, "\"Eve\""] {
        assert!(!holds(&place.dir(), secret), "{secret}");
    }
    let file = sealed.pack.as_ref().unwrap().join(RECEIPTS);
    let sound = std::fs::read_to_string(&file).unwrap();
    for (from, to) in [
        ("[\"redacted:arguments:ticket\",\"redacted:arguments:who\"]", "[]"),
        ("see [redacted:ticket]", "see something else!!!"),
        ("\"redacted:result:ticket\"", ""),
    ] {
        std::fs::write(&file, sound.replacen(from, to, 1)).unwrap();
        let (pack, options) = (sealed.pack.as_ref().unwrap(), VerifyOptions::default());
        let report = verify(pack, &options, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        assert!(
            report.errors.iter().any(|e| e.message.contains("does not match its hash")),
            "{from}: {:?}",
            report.errors
        );
    }
}

#[cfg(feature = "policy")]
#[test]
fn rules_that_cannot_be_used_are_an_error_before_the_server_serves() {
    let place = Place::new();
    for (rules, said) in [("preset:x", "there is no preset `x`"), ("/nowhere/r.yaml", "/nowhere/r.yaml: ")] {
        let opened = Recorder::builder("demo").audit_dir(place.dir()).redact(rules).open();
        let error = opened.err().unwrap().to_string();
        assert!(error.starts_with("contents cannot be redacted: ") && error.contains(said), "{error}");
    }
}
