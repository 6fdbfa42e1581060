//! Attacks on a whole audit directory: segments, ledger, crashed sessions.

use assay::pack::verify::Exit;
use assay::{
    model::{WallTime, event::EVENT_VERSION, ledger::LEDGER_VERSION},
    pack::verify::{AuditDirReport, Completeness, SegmentState, verify_audit_dir},
    paths::AuditDir,
};
use assay_support::{
    forge::{EVENTS, RECEIPTS, SESSION, canonical, check, check_pack, key_k, pinned, seal, small},
    rig::scratch,
    sessions::{self, Ending, Plan, Written},
};
use serde_json::Value;
use std::{fs, ops::ControlFlow, path::Path};

fn directory() -> (tempfile::TempDir, Vec<Written>) {
    let tmp = scratch();
    let write =
        |seed, ending| sessions::write(&Plan { seed, ending, calls: 3, ..Plan::default() }, tmp.path()).unwrap();
    let sessions = vec![write(1, Ending::Complete), write(2, Ending::Complete), write(3, Ending::Complete)];
    for s in &sessions {
        seal(s);
    }
    (tmp, sessions)
}

fn run(dir: &Path) -> AuditDirReport {
    let report = verify_audit_dir(dir, &mut |_| ControlFlow::Continue(())).unwrap();
    let (code, said) = crate::by_assay_verify(&["verify-dir", "--packs=none", dir.to_str().unwrap()]);
    assert_eq!((code, &said["findings"]), (report.exit().code(), &serde_json::to_value(&report.findings).unwrap()));
    report
}

fn says(report: &AuditDirReport, words: &str) -> bool {
    report.findings.iter().any(|f| f.message.contains(words))
}

#[test]
fn a_directory_that_nobody_touched_is_intact() {
    let (tmp, _) = directory();
    let report = run(tmp.path());
    assert!(report.intact(), "{:#?}", report.findings);
    assert_eq!((report.ledger_lines, report.segments.len(), report.packs), (6, 3, 3));
    assert!(report.segments.iter().all(|s| s.state == SegmentState::Ended));
}

#[test]
fn what_is_missing_from_a_directory_is_named() {
    let (tmp, sessions) = directory();
    // A journal goes when its session is sealed: its pack has the chain.
    fs::remove_file(&sessions[1].paths.segment).unwrap();
    let report = run(tmp.path());
    assert!(report.intact() && report.segments[1].state == SegmentState::Ended, "{:#?}", report.findings);
    fs::remove_file(sessions[1].paths.pack.join("audit_log.jsonl")).unwrap();
    let report = run(tmp.path());
    assert!(says(&report, "the ledger names this segment, but it is missing"), "{:#?}", report.findings);
    assert!(says(&report, "the segment of"), "its pack says so too: {:#?}", report.findings);

    let (tmp, sessions) = directory();
    let ledger = AuditDir::at(tmp.path()).ledger();
    let text = fs::read_to_string(&ledger).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(&ledger, lines[..5].join("\n") + "\n").unwrap();
    assert!(says(&run(tmp.path()), "its last line was removed, or never written"));
    fs::write(&ledger, lines[..4].join("\n") + "\n").unwrap();
    assert!(says(&run(tmp.path()), "an older ledger was put back"));
    fs::write(&ledger, lines[..3].join("\n") + "\n").unwrap();
    let report = run(tmp.path());
    assert!(
        says(&report, "an older ledger was put back") && says(&report, "refers to a ledger line"),
        "{:#?}",
        report.findings
    );
    fs::remove_file(&sessions[2].paths.segment).unwrap();
    assert!(says(&run(tmp.path()), "refers to a ledger line"), "the pack still gives the cut away");
    fs::write(&ledger, [&lines[..2], &lines[3..]].concat().join("\n") + "\n").unwrap();
    assert!(says(&run(tmp.path()), "lines are missing"));
    fs::remove_file(&ledger).unwrap();
    assert!(says(&run(tmp.path()), "there is no ledger"));
}

#[test]
fn a_segment_that_was_cut_or_changed_is_not_the_one_that_the_ledger_names() {
    let (tmp, sessions) = directory();
    let segment = &sessions[0].paths.segment;
    let text = fs::read_to_string(segment).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(segment, lines[..lines.len() - 3].join("\n") + "\n").unwrap();
    assert!(says(&run(tmp.path()), "the ledger says that the segment ended"));
    fs::write(segment, text.replacen("tools/call", "tools/list", 1)).unwrap();
    assert!(says(&run(tmp.path()), "not what its hash says"));
}

#[test]
fn what_a_later_version_wrote_into_a_directory_is_named_and_nothing_is_said_to_be_missing_for_it() {
    let (tmp, sessions) = directory();
    let ledger = AuditDir::at(tmp.path()).ledger();
    let text = fs::read_to_string(&ledger).unwrap();
    let later = |from: usize| -> String {
        let newer = |l: &str| l.replace("\"v\":1}", &format!("\"v\":\"{LEDGER_VERSION}.1\",\"zz\":0}}"));
        text.lines().enumerate().map(|(n, l)| if n >= from { newer(l) } else { l.to_owned() } + "\n").collect()
    };
    for from in 0..6 {
        fs::write(&ledger, later(from)).unwrap();
        let report = run(tmp.path());
        assert_eq!((report.findings.len(), report.ledger_too_new), (6 - from, true), "{:#?}", report.findings);
        assert!(report.findings.iter().all(|f| f.code == "E_VERSION_UNSUPPORTED"), "{:#?}", report.findings);
        assert!(!report.intact() && says(&report, &format!("ledger line is of version {LEDGER_VERSION}.1")));
    }
    fs::write(&ledger, &text).unwrap();
    let segment = &sessions[1].paths.segment;
    let events = fs::read_to_string(segment).unwrap();
    fs::write(segment, events.replace("\"v\":1,", &format!("\"v\":{},", EVENT_VERSION + 1))).unwrap();
    let report = run(tmp.path());
    assert_eq!(report.segments.iter().filter(|s| s.state == SegmentState::TooNew).count(), 1);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert!(says(&report, &format!("audit event is of version {}", EVENT_VERSION + 1)), "{:#?}", report.findings);
}

#[test]
fn a_crashed_session_is_unterminated_never_complete() {
    let tmp = scratch();
    let plan = Plan { ending: Ending::Unterminated, ..Plan::default() };
    let written = sessions::write(&plan, tmp.path()).unwrap();
    let report = run(tmp.path());
    assert!(report.intact(), "{:#?}", report.findings);
    assert_eq!(report.segments[0].state, SegmentState::Unterminated);
    let pack = check(&seal(&written), &pinned());
    assert_eq!((pack.completeness, pack.exit()), (Completeness::Unterminated, Exit::Violation), "{:#?}", pack.errors);
    assert!(pack.authentic() && !pack.completeness_reasons.is_empty());

    // A torn line behind the good ones is said, and the prefix stands.
    let mut torn = fs::read(&written.paths.segment).unwrap();
    torn.extend_from_slice(b"{\"at\":\"2026");
    fs::write(&written.paths.segment, torn).unwrap();
    let report = run(tmp.path());
    assert!(report.intact() && report.segments[0].torn, "{:#?}", report.findings);
}

#[test]
fn an_incomplete_session_is_incomplete_with_its_reasons() {
    let tmp = scratch();
    let plan = Plan { timeout_every: 6, ..Plan::default() };
    let written = sessions::write(&plan, tmp.path()).unwrap();
    let report = check(&seal(&written), &pinned());
    assert_eq!(
        (report.completeness, report.exit()),
        (Completeness::Incomplete, Exit::Violation),
        "{:#?}",
        report.errors
    );
    assert!(
        report.completeness_reasons.iter().any(|r| r.contains("3 calls got no response")),
        "{:?}",
        report.completeness_reasons
    );
}

#[test]
fn a_clock_that_was_set_back_is_noted_and_valid() {
    let mut pack = small();
    // After the step, all times of the host lie an hour back.
    let back = |time: &str| WallTime::from_millis(WallTime::parse(time).unwrap().millis() - 3_600_000).to_string();
    let mut events = pack.lines(EVENTS);
    let end = events.len() - 1;
    let mut step: Value = serde_json::from_str(&events[end]).unwrap();
    let at = back(step["at"].as_str().unwrap());
    step["at"] = at.as_str().into();
    step["event"] = "anomaly".into();
    step["detail"] = serde_json::json!({"kind": "clock_step", "note": "wall clock moved by -3600000 ms", "offset": null,
        "receipt_id": null, "receipt_sha256": null});
    events.insert(end, canonical(&step));
    pack.set_lines(EVENTS, &events);
    pack.edit(EVENTS, end + 1, |e| e["at"] = at.as_str().into());
    let last = pack.lines(RECEIPTS).len() - 1;
    pack.edit(RECEIPTS, last, |r| r["timestamp"] = at.as_str().into());
    pack.edit(SESSION, 0, |s| {
        s["ended_at"] = at.as_str().into();
        s["clock_steps"] = serde_json::json!([{"at": at, "delta_ms": -3_600_000}]);
    });
    pack.make_consistent();
    pack.sign(&key_k());
    let report = check_pack(&pack, &pinned());
    assert_eq!(report.exit(), Exit::Ok, "{:#?}", report.errors);
    assert!(report.warnings.iter().any(|w| w.contains("clock_step")), "{:?}", report.warnings);
}
