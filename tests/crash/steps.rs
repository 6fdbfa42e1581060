//! A wall clock that steps while a session is recorded.

use assay::{
    model::{
        Direction::{ClientToServer, ServerToClient},
        SessionId, WallTime,
    },
    pack::{
        build::{self, Input},
        ci,
        keys::Signer,
        verify::{self, Completeness, Integrity, VerifyOptions},
    },
    paths::AuditDir,
    record::{
        recorder::{Ending, Recorder},
        store::Store,
    },
};
use assay_support::{
    recording::{self, Streams},
    rig,
};
use std::ops::ControlFlow;

#[test]
fn a_clock_that_is_set_back_an_hour_is_noted_and_the_pack_verifies() {
    const SECOND: i64 = 1_000_000_000;
    const NOW: i64 = 1_800_000_000;
    let tmp = tempfile::tempdir().unwrap();
    let dir = AuditDir::at(tmp.path().join("audit"));
    dir.create().unwrap();
    let setup = recording::setup();
    let offset = NOW * SECOND;
    let started_at = WallTime::from_millis(NOW * 1000);
    let id = SessionId::from_bits(7);
    let (mut store, mut recorder) =
        Store::begin(&dir, &setup, 0, started_at, id, None, None).map_err(|e| e.source).unwrap();
    let mut streams = Streams::default();
    let mut say = |recorder: &mut Recorder, direction, text: &str, second: u64| {
        let ns = second * SECOND as u64;
        streams.say(recorder, direction, text, ns, ns + 1000);
    };
    // Back an hour in the middle of a call, then forward by a minute; slewing is not a step.
    say(&mut recorder, ClientToServer, &rig::call(1, "echo", 1), 1);
    recorder.clock_now(offset - 3600 * SECOND, 2 * SECOND as u64);
    say(&mut recorder, ServerToClient, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, 3);
    recorder.clock_now(offset - 3600 * SECOND + SECOND / 10, 4 * SECOND as u64);
    recorder.clock_now(offset - 3540 * SECOND, 5 * SECOND as u64);
    say(&mut recorder, ClientToServer, &rig::call(2, "echo", 2), 6);
    say(&mut recorder, ServerToClient, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#, 7);
    let ending = Ending { reason: "client_closed".into(), clean: true, pending_is_clean: true, ..Ending::default() };
    let doc = recorder.end(&ending, 8 * SECOND as u64);
    let steps: Vec<i64> = doc.clock_steps.iter().map(|s| s.delta_ms).collect();
    assert_eq!(steps, [-3_600_000, 59_900]);
    assert!(doc.ended_at < doc.started_at);
    store.write(&mut recorder.lines).unwrap();
    let segment = std::fs::read_to_string(&store.paths.segment).unwrap();
    assert_eq!(segment.matches("clock_step").count(), 2);
    // `duration_ms` knows nothing of it.
    let receipts = std::fs::read_to_string(&store.paths.receipts).unwrap();
    assert!(receipts.contains("\"duration_ms\":2000,") && receipts.contains("\"duration_ms\":1000,"), "{receipts}");
    store.end(&doc, None).unwrap();
    let signer = Signer::from_seed(assay::pack::keys::SignerId::parse("test").unwrap(), &[7; 32]);
    let built = build::build(&Input {
        paths: &store.paths,
        session: &doc,
        policies: None,
        surface: None,
        decisions: None,
        signer: &signer,
        ci_binding: ci::of_process(),
        now: WallTime::now(),
    })
    .unwrap();
    let report = verify::verify(&built.dir, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(
        (report.integrity, report.completeness),
        (Integrity::Pass, Completeness::Complete),
        "{:?}",
        report.errors
    );
}
