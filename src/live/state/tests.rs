use super::*;
use crate::{
    live::{
        content::Content,
        discovery::tests::run_card,
        fold::Fold,
        journal,
        protocol::{SessionHead, SessionStreams},
    },
    model::{Outcome, WallTime},
    paths::{AuditDir, SessionPaths},
    record::broadcast::{Crossed, OpenStream, Streams},
};
use assay_support::sessions::{self, Plan};
use proptest::prelude::*;
use std::{io, path::Path};

impl State {
    /// Takes all that a segment and its receipts say; of a finished pack, `audit_log.jsonl` and `receipt_pack.jsonl`.
    pub(crate) fn read(&mut self, segment: &Path, receipts: &Path) -> io::Result<()> {
        let mut fold = Fold::default();
        journal::events(segment, 0, u64::MAX, &mut |_, read| self.apply(&fold.event(&read.ok().unwrap())))?;
        journal::calls(receipts, None, &mut |r| self.call(CallRow::of_receipt(r))).map(|_| ())
    }
}

/// A session on disk, and what would be told of it live.
fn session(calls: u64) -> (tempfile::TempDir, SessionPaths, Vec<LiveLine>) {
    let tmp = tempfile::tempdir().unwrap();
    let plan = Plan { calls, error_every: 5, timeout_every: 7, ..Plan::default() };
    let segment = sessions::write(&plan, tmp.path()).unwrap().paths.segment;
    let name = segment.file_name().unwrap().to_str().unwrap();
    let paths = AuditDir::at(tmp.path()).session_of_segment(name).unwrap();
    let lines = told(&paths);
    (tmp, paths, lines)
}

fn told(paths: &SessionPaths) -> Vec<LiveLine> {
    let (mut fold, mut lines) = (Fold::default(), Vec::new());
    journal::events(&paths.segment, 0, u64::MAX, &mut |_, e| lines.push(fold.event(&e.ok().unwrap()))).unwrap();
    lines
}

fn state_of<'a>(window: usize, lines: impl IntoIterator<Item = &'a LiveLine>) -> State {
    let mut state = State::new(window);
    lines.into_iter().for_each(|l| state.apply(l));
    state
}

#[test]
fn stream_journal_and_receipts_give_the_same_calls() {
    let (_tmp, paths, lines) = session(60);
    let live = state_of(100, &lines);
    let mut journal = State::new(100);
    journal.read(&paths.segment, &paths.receipts).unwrap();
    assert_eq!(live, journal);
    let mut receipts = State::new(100);
    journal::calls(&paths.receipts, None, &mut |r| receipts.call(CallRow::of_receipt(r))).unwrap();
    let rows = |s: &State| s.rows().cloned().collect::<Vec<_>>();
    assert_eq!(rows(&live), rows(&receipts));
    assert_eq!(rows(&live).len(), 60);
    let view = live.sessions().values().next().unwrap();
    assert_eq!((view.totals.started, view.totals.finished, view.totals.in_flight()), (60, 60, 0));
    let count = |o| rows(&live).iter().filter(|r| r.outcome == Some(o)).count() as u64;
    assert_eq!(view.totals.errors, count(Outcome::Error));
    assert_eq!(view.totals.timeouts, count(Outcome::Timeout));
    assert!(view.totals.errors > 0 && view.totals.timeouts > 0 && view.end.is_some());
}

#[test]
fn every_line_survives_the_wire() {
    for line in session(20).2 {
        let bytes = line.to_bytes();
        assert_eq!(memchr::memchr(b'\n', &bytes), Some(bytes.len() - 1));
        assert_eq!(LiveLine::parse(&bytes).unwrap(), line);
    }
    assert_eq!(LiveLine::parse(br#"{"event":"of a later version","x":1}"#).unwrap(), LiveLine::Unknown);
    assert!(LiveLine::parse(b"{}").is_err());
}

#[test]
fn a_call_whose_beginning_was_missed_is_completed_by_its_receipt() {
    let (_tmp, paths, _) = session(10);
    let (mut fold, mut state) = (Fold::default(), State::new(100));
    // The fold begins in the middle of a call.
    journal::events(&paths.segment, 4, u64::MAX, &mut |_, e| state.apply(&fold.event(&e.ok().unwrap()))).unwrap();
    let partial: Vec<_> = state.rows().filter(|r| r.tool_name.is_none()).map(|r| r.invocation_id).collect();
    assert_eq!(partial.len(), 1);
    journal::calls(&paths.receipts, None, &mut |r| state.call(CallRow::of_receipt(r))).unwrap();
    let mut whole = State::new(100);
    whole.read(&paths.segment, &paths.receipts).unwrap();
    assert!(state.rows().eq(whole.rows()));
}

#[test]
fn the_window_keeps_the_newest_and_says_that_it_is_cut() {
    let (_tmp, _, lines) = session(50);
    let (all, cut) = (state_of(100, &lines), state_of(10, &lines));
    assert!(!all.is_cut() && cut.is_cut());
    assert!(cut.rows().eq(all.rows().skip(40)));
    let newest = cut.rows().next_back().unwrap().invocation_id;
    assert!(cut.row(newest).is_some());
    assert!(cut.row(all.rows().next().unwrap().invocation_id).is_none());
    assert_eq!(cut.sessions().values().next().unwrap().totals.finished, 50);
}

#[test]
fn stderr_and_pack_progress_are_kept_once_and_bounded() {
    let id = SessionId::from_bits(1);
    let stderr = |seq| {
        LiveLine::Stderr(Stderr {
            at: WallTime::from_millis(0),
            cursor: 0,
            line: format!("{seq}"),
            seq,
            session_id: id,
        })
    };
    let pack = |state| LiveLine::PackProgress(PackProgress { pack: None, problems: vec![], session_id: id, state });
    let mut state = State::default();
    for seq in (0..2000).chain(0..2000).rev() {
        state.apply(&stderr(seq));
    }
    state.apply(&pack(PackState::Verified));
    state.apply(&pack(PackState::Sealing));
    let view = &state.sessions()[&id];
    assert_eq!(view.stderr.keys().copied().collect::<Vec<_>>(), (1000..2000).collect::<Vec<_>>());
    assert_eq!(view.pack.as_ref().unwrap().state, PackState::Verified);
}

#[test]
fn of_streams_what_was_told_last_holds_until_the_session_ends() {
    let (_tmp, _, lines) = session(1);
    let id = lines[0].place().unwrap().0;
    let told = |seq: u64| {
        let stream = OpenStream {
            bytes: seq,
            exchange: 7,
            last_byte_at: None,
            messages: 0,
            method: "GET".to_owned(),
            since: WallTime::from_millis(0),
        };
        SessionStreams { seq, session_id: id, streams: Streams { open: vec![stream], total: 1 } }
    };
    let head = |seq| {
        let (session, totals, streams) = (run_card(id), Totals::default(), Some(told(seq)));
        LiveLine::Session(Box::new(SessionHead {
            chain_head: None,
            cursor: 0,
            from: 0,
            oldest: 0,
            session,
            streams,
            totals,
        }))
    };
    let wire = LiveLine::Streams(told(3)).to_bytes();
    assert_eq!(LiveLine::parse(&wire).unwrap(), LiveLine::Streams(told(3)));
    let text = String::from_utf8(wire).unwrap();
    assert!(
        text.starts_with("{\"event\":\"streams\",\"seq\":3,\"session_id\":") && text.contains("\"open\":[{"),
        "{text}"
    );
    for order in [[1, 3, 2], [3, 2, 1]] {
        let mut state = State::default();
        for seq in order {
            state.apply(&if seq == 2 { head(seq) } else { LiveLine::Streams(told(seq)) });
        }
        let open = state.sessions()[&id].open_streams().unwrap();
        assert_eq!((open.total, open.open[0].bytes), (1, 3));
        for line in &lines {
            state.apply(line);
        }
        assert_eq!(state.sessions()[&id].open_streams(), None);
    }
}

fn shuffled() -> impl Strategy<Value = Vec<usize>> {
    let count = session(12).2.len();
    // Every line once, in any order, and any of them again at any place.
    (
        Just((0..count).collect::<Vec<_>>()).prop_shuffle(),
        prop::collection::vec((0..count, any::<prop::sample::Index>()), 0..40),
    )
        .prop_map(|(mut order, again)| {
            for (line, at) in again {
                let at = at.index(order.len() + 1);
                order.insert(at, line);
            }
            order
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_with_duplicates_gives_the_same_state(order in shuffled(), window in 1usize..20) {
        let (_tmp, _, lines) = session(12);
        let expected = state_of(window, &lines);
        let got = state_of(window, order.iter().map(|i| &lines[*i]));
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn what_was_lost_is_healed_by_reading_the_files(lost in prop::collection::vec(any::<bool>(), 60), order in shuffled()) {
        let (_tmp, paths, lines) = session(12);
        let mut got = state_of(100, order.iter().filter(|i| !lost[**i % 60]).map(|i| &lines[*i]));
        got.read(&paths.segment, &paths.receipts).unwrap();
        let mut expected = State::new(100);
        expected.read(&paths.segment, &paths.receipts).unwrap();
        prop_assert_eq!(got, expected);
    }
}

#[test]
fn sessions_are_bounded_and_those_that_ended_go_first() {
    let mut state = State::default();
    let session = |n: u64| {
        let mut session = run_card(SessionId::from_bits(n));
        session.card.started_at = WallTime::from_millis(i64::try_from(n).unwrap());
        let totals = Totals::default();
        LiveLine::Session(Box::new(SessionHead {
            chain_head: None,
            cursor: 0,
            from: 0,
            oldest: 0,
            session,
            streams: None,
            totals,
        }))
    };
    let (_tmp, _, ended) = self::session(1);
    for line in &ended {
        state.apply(line);
    }
    let gone = *state.sessions().keys().next().unwrap();
    let all = SESSIONS as u64 + 10;
    (1..=all).for_each(|n| state.apply(&session(n)));
    assert_eq!(state.sessions().len(), SESSIONS);
    // The one that ended, and then the oldest.
    assert!(!state.sessions().contains_key(&gone));
    let known = |n: u64| state.sessions().contains_key(&SessionId::from_bits(n));
    assert!((1..=10).all(|n| !known(n)) && (11..=all).all(known));
    // Calls of a session that is forgotten stay until the window passes them.
    assert_eq!(state.rows().count(), 1);
}

#[test]
fn a_message_is_listed_once_whether_its_content_or_its_event_comes_first() {
    let (_tmp, _, lines) = session(3);
    let request = lines.iter().filter_map(LiveLine::chained).find(|c| c.message.is_some()).unwrap();
    let told = request.message.as_ref().unwrap();
    let content = |offset| {
        LiveLine::Content(Box::new(Content::of(&Crossed {
            session: request.session_id,
            at: request.at,
            direction: request.direction.unwrap(),
            exchange: None,
            offset,
            beginning: br#"{"id":1,"method":"ping"}"#.to_vec(),
            cut: false,
            wire_bytes: 24,
        })))
    };
    let (known, silent) = (content(told.offset), content(u64::MAX));
    let first = state_of(100, [&known, &silent].into_iter().chain(&lines));
    let last = state_of(100, lines.iter().chain([&silent, &known, &known]));
    assert_eq!(first, last);
    // Requests and answers, and the one that left no event.
    let answers = lines.iter().filter_map(LiveLine::chained).filter(|c| c.message.is_some()).count();
    assert_eq!(first.messages().rows().count(), answers + 1);
    let call = request.call.as_ref().unwrap().invocation_id;
    let [asked, answered] = first.messages().contents_of(request.session_id, call);
    assert!(asked.is_some() && answered.is_none());
    let of_window = state_of(1, [&known, &silent].into_iter().chain(&lines));
    assert!(of_window.messages().is_cut() && of_window.messages().rows().count() == 2);
}
