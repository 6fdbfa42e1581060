//! Clocks of any kind: before 1970, at the end of year 9999, standing still, stepping either way while a session runs.

use assay::{
    model::{Direction, SessionId, WallTime},
    pack::{
        build::{self, Input},
        explain::Explanation,
        keys::{Signer, SignerId},
        verify::{self, Completeness, Integrity, VerifyOptions, VerifyReport},
    },
    paths::AuditDir,
    record::{
        recorder::{Clock, Ending},
        store::Store,
    },
};
use assay_support::{
    recording::{self, Streams},
    rig::scratch,
};
use proptest::prelude::*;
use std::ops::ControlFlow;

/// 0001-01-01 in milliseconds since 1970.
const YEAR_1: i64 = -62_135_596_800_000;

/// Milliseconds since 1970 of the years 0 to 9999, their ends, and what lies beyond.
fn wall() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => -62_167_219_200_000i64..=253_402_300_799_999,
        1 => prop::sample::select(&[
            i64::MIN, i64::MAX, 0, -1, 1, 253_402_300_799_999, 253_402_300_800_000, 253_402_207_200_999,
            253_402_207_201_000, -62_167_219_200_000, -62_167_219_200_001, 9_223_372_036_854, 9_223_372_036_855,
            2_147_483_648_000, 4_294_967_296_000,
        ][..]),
        1 => any::<i64>(),
    ]
}

/// Nanoseconds between the two clocks.
fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        prop::sample::select(&[i64::MIN, i64::MAX, 0, -1][..]),
        wall().prop_map(|w| w.saturating_mul(1_000_000))
    ]
}

/// A session whose clock is moved to each of `offsets` in turn, recorded, packed at `packed`, verified at `looked`.
fn verified(boot: u64, offsets: &[i64], pauses: &[u64], packed: i64, looked: i64) -> VerifyReport {
    let tmp = scratch();
    let dir = AuditDir::at(tmp.path().join("audit"));
    dir.create().unwrap();
    let setup = recording::setup();
    let id = SessionId::from_bits(7);
    let started_at = Clock::new(offsets[0]).wall(boot);
    let begun = Store::begin(&dir, &setup, boot, started_at, id, None, None);
    let (mut store, mut recorder) = begun.map_err(|e| e.source).unwrap();
    let (mut streams, mut ns) = (Streams::default(), boot);
    for (n, pause) in pauses.iter().enumerate() {
        ns += pause;
        let call = format!(r#"{{"id":{n},"method":"tools/call","params":{{"name":"t"}}}}"#);
        streams.say(&mut recorder, Direction::ClientToServer, &call, ns, ns);
        if let Some(offset) = offsets.get(n) {
            recorder.clock_now(*offset, ns);
        }
        ns += pause;
        streams.say(&mut recorder, Direction::ServerToClient, &format!(r#"{{"id":{n},"result":{{}}}}"#), ns, ns);
    }
    let ending = Ending { reason: "client_closed".into(), clean: true, pending_is_clean: true, ..Ending::default() };
    let doc = recorder.end(&ending, ns);
    store.write(&mut recorder.lines).unwrap();
    store.end(&doc, None).unwrap();
    let signer = Signer::from_seed(SignerId::parse("test").unwrap(), &[7; 32]);
    let input = Input {
        paths: &store.paths,
        session: &doc,
        policies: None,
        surface: None,
        decisions: None,
        signer: &signer,
        ci_binding: None,
        now: WallTime::from_millis(packed),
    };
    let built = build::build(&input).unwrap();
    Explanation::of_pack(&built.dir).unwrap();
    let options =
        VerifyOptions { now: WallTime::from_millis(looked), max_age_hours: Some(1.0), ..VerifyOptions::default() };
    verify::verify(&built.dir, &options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Each of many small moves is slewing; all together they are more than two clocks may be apart unsaid.
#[test]
fn slewing_without_end_is_noted_before_it_looks_like_a_lie() {
    let moves: Vec<i64> = (0..400).map(|n| n * 400_000_000).collect();
    let report = verified(1_000_000_000, &moves, &[50_000_000; 400], 0, 0);
    assert_eq!(report.integrity, Integrity::Pass, "{:?}", report.errors);
}

proptest! {
    #![proptest_config(super::place::cases(200))]

    #[test]
    fn no_clock_panics_or_makes_a_pack_fail(
        boot in prop_oneof![Just(0u64), 0..1u64 << 60],
        offsets in prop::collection::vec(offset(), 1..6),
        pauses in prop::collection::vec(prop_oneof![Just(0u64), 0..10_000_000_000u64, Just(1 << 50)], 6),
        packed in wall(),
        looked in wall(),
    ) {
        let report = verified(boot, &offsets, &pauses, packed, looked);
        // A kernel's clock ends in 2262, and others' calendars begin with year 1: times beyond are only asked not to panic.
        let end = boot + 2 * pauses.iter().sum::<u64>();
        if packed >= YEAR_1 && offsets.iter().all(|o| *o > i64::MIN / 2 && o.checked_add_unsigned(end).is_some()) {
            prop_assert_eq!(
                (report.integrity, report.completeness),
                (Integrity::Pass, Completeness::Complete),
                "{:?}", report.errors
            );
        }
    }
}
