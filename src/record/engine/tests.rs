use super::*;
use crate::{
    model::{AuditEvent, Direction, Profile, SessionId, ToolCall, Transport, WallTime},
    paths::AuditDir,
    record::{
        activity::Activity,
        broadcast::Silent,
        card::Captures,
        health::Health,
        judge::PolicyFeed,
        opening::{Opening, PackInterval},
        recorder::{Message, Origin, Setup},
        session::{Ended, Written},
        source::{Delivered, Lost, SourceError},
        stream::{MessagePlace, StreamId},
    },
};
use Direction::{ClientToServer as C2S, ServerToClient as S2C};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
    sync::{Mutex, mpsc},
};

enum Step {
    Begins(Box<Opening>),
    Message(StreamId, String),
    Ends,
}

/// What a source was told.
#[derive(Debug, Default)]
struct Heard {
    forgotten: BTreeSet<SessionKey>,
    owners: BTreeMap<SessionKey, SessionId>,
    /// How often everything that was handed out was safe on disk.
    settled: u64,
}

/// Many sessions in one source, as exchanges of HTTP would be.
#[derive(Default)]
struct Script {
    steps: VecDeque<(u64, Step)>,
    /// How far each stream has come.
    ends: BTreeMap<(SessionKey, StreamId), u64>,
    heard: Arc<Mutex<Heard>>,
}

impl Script {
    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().unwrap()
    }
}

impl Source for Script {
    fn look(&mut self, _: i64) {}

    fn next(&mut self, take: &mut dyn FnMut(SessionKey, Seen<'_>)) -> bool {
        let Some((key, step)) = self.steps.pop_front() else { return false };
        let key = SessionKey(key);
        match step {
            Step::Begins(opening) => take(key, Seen::Begins(opening)),
            Step::Ends => {
                let reason = EndReason::ClientClosed.into();
                take(key, Seen::Ends(Ending { reason, clean: true, ..Ending::default() }));
            }
            Step::Message(stream, text) => {
                let offset = *self.ends.get(&(key, stream)).unwrap_or(&0);
                let end = offset + text.len() as u64;
                let now = clock::mono_ns();
                let message = Message {
                    place: MessagePlace { stream, offset },
                    end,
                    bytes: text.as_bytes(),
                    sha256: &OnceCell::new(),
                    page: None,
                    rest: &|| (),
                    first_byte_ns: now,
                    read_ns: now,
                    ruling: None,
                    undecided: false,
                    anomalies: &[],
                    resumable: false,
                };
                take(key, Seen::Message(&message));
                self.ends.insert((key, stream), end);
            }
        }
        true
    }

    fn take_error(&mut self) -> Option<SourceError> {
        None
    }

    fn delivered(&self, tell: Delivered<'_>) {
        for ((key, stream), end) in &self.ends {
            tell(*key, *stream, *end, &|_| None);
        }
    }

    fn has_work(&self) -> bool {
        !self.steps.is_empty()
    }

    fn is_stuck(&self) -> bool {
        false
    }

    fn is_drained(&self) -> bool {
        self.steps.is_empty()
    }

    fn holds_passed(&self) -> bool {
        false
    }

    fn is_filling(&self) -> bool {
        false
    }

    fn settled(&mut self) {
        self.heard().settled += 1;
    }

    fn keep(&mut self) {}

    fn retry(&mut self) {}

    fn make_room(&mut self, _: &dyn Fn(SessionKey) -> bool) {}

    fn rest(&mut self, _: bool) {}

    fn give_up_stuck(&mut self) -> bool {
        false
    }

    fn take_lost(&mut self, _: Lost<'_>) {}

    fn unfinished(&self, _: Lost<'_>) {}

    fn goes_on_as(&mut self, session: SessionKey, id: SessionId) {
        self.heard().owners.insert(session, id);
    }

    fn note_lost(&self, _: SessionKey, _: u64) {}

    fn forget(&mut self, session: SessionKey) {
        self.heard().forgotten.insert(session);
    }
}

fn opening(dir: &Path, bits: u64, interval: PackInterval) -> Step {
    let setup = Setup {
        profile: Profile::Audit,
        transport: Transport::Stdio,
        server_id: format!("server-{bits}"),
        origin: Origin::of_command(Vec::new(), false),
        http: None,
        store_args: false,
        cleartext: crate::record::redact::Cleartext::default(),
        store_results: false,
        store_limit: 0,
        redact: None,
        policy_hash: None,
        surface: None,
        witness: None,
    };
    Step::Begins(Box::new(Opening {
        dir: AuditDir::at(dir),
        setup: Arc::new(setup),
        session: SessionId::from_bits(bits),
        started_ns: clock::mono_ns(),
        started_at: WallTime::now(),
        interval,
        captures: Captures::default(),
        activity: Arc::new(Activity::default()),
        judge: None,
        feed: Arc::new(PolicyFeed::new(None)),
        health: Arc::new(Health::default()),
    }))
}

fn call(id: u64, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#)
}

fn answer(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

struct Ran {
    report: RecorderReport,
    ended: Vec<Ended>,
    heard: Arc<Mutex<Heard>>,
    written: Vec<Written>,
}

/// Records a script until it is through; `waiting`: so many ended sessions have a place at most, and nobody takes them
/// out.
fn record(steps: Vec<(u64, Step)>, waiting: usize) -> Ran {
    let source = Script { steps: steps.into(), ..Script::default() };
    let heard = source.heard.clone();
    let (ended, all) = mpsc::sync_channel(waiting);
    let (files, written) = mpsc::channel();
    let shared = Shared { broadcast: Arc::new(Silent), ended, files, health: Arc::default(), certify: None };
    let (finish, ending) = mpsc::channel();
    let reason = EndReason::SignalTerm.into();
    finish.send(Ending { reason, clean: true, ..Ending::default() }).unwrap();
    let report = Engine::new(shared, Box::new(source), Arc::new(Waker::new())).run(&ending);
    Ran { report, ended: all.try_iter().collect(), heard, written: written.try_iter().collect() }
}

fn made(dir: &Path) -> std::path::PathBuf {
    AuditDir::at(dir).create().unwrap();
    dir.to_owned()
}

fn calls(ended: &Ended) -> Vec<String> {
    let receipts = std::fs::read(&ended.store.paths.receipts).unwrap();
    let lines = receipts.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice::<ToolCall>(line).ok());
    lines.map(|call| call.tool_name).collect()
}

fn kinds(ended: &Ended) -> Vec<String> {
    let segment = std::fs::read(&ended.store.paths.segment).unwrap();
    let lines = segment.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let events = lines.map(|line| serde_json::from_slice::<AuditEvent>(line).unwrap());
    events.inspect(|e| assert_eq!(e.session_id, ended.doc.session_id)).map(|e| e.event.as_str().to_owned()).collect()
}

const PLAIN: [&str; 6] =
    ["chain_start", "request_received", "request_forwarded", "response_received", "response_sent", "chain_end"];

#[test]
fn sessions_that_cross_each_other_have_each_its_own_evidence_and_end_one_by_one() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = made(&tmp.path().join("a"));
    let (c2s, s2c) = (StreamId::Stdio(C2S), StreamId::Stdio(S2C));
    let exchange = |exchange, direction| StreamId::Exchange { exchange, direction };
    let mut steps: Vec<(u64, Step)> = (1..=3).map(|n| (n, opening(&dir, n, PackInterval::Session))).collect();
    // The same ids and the same offsets in all of them.
    steps.extend(
        (1..=3).map(|n| (n, Step::Message(if n == 3 { exchange(7, C2S) } else { c2s }, call(1, &format!("t{n}"))))),
    );
    steps.extend([3, 1].map(|n| (n, Step::Message(if n == 3 { exchange(7, S2C) } else { s2c }, answer(1)))));
    steps.push((1, Step::Ends));
    steps.push((2, Step::Message(s2c, answer(1))));
    // Of a session that is over.
    steps.push((9, Step::Message(c2s, call(1, "lost"))));
    let ran = record(steps, 64);
    assert_eq!(ran.ended.len(), 3);
    for ended in &ran.ended {
        let n = ended.doc.session_id.bits();
        assert_eq!(calls(ended), [format!("t{n}")]);
        assert_eq!(kinds(ended), PLAIN);
        assert_eq!(ended.doc.server_id, format!("server-{n}"));
        let reason = if n == 1 { EndReason::ClientClosed } else { EndReason::SignalTerm };
        assert_eq!(ended.doc.end_reason, reason);
        assert!(ended.doc.session_complete);
    }
    let keys: BTreeSet<_> = (1..=3).map(SessionKey).collect();
    let heard = ran.heard.lock().unwrap();
    assert_eq!(heard.forgotten, keys);
    assert_eq!(heard.owners, keys.iter().map(|key| (*key, SessionId::from_bits(key.0))).collect());
    assert!(heard.settled > 0);
    for id in (1..=3).map(SessionId::from_bits) {
        let of_it = ran.written.iter().filter(|written| written.session == id);
        assert!(of_it.map(|written| written.files.is_none()).eq([false, true]), "begun, and over");
    }
    assert!(!ran.report.nothing_recorded && !ran.report.left_for_recovery && !ran.report.damaged);
    assert_eq!((ran.report.missed_messages, ran.report.missed_bytes), (1, call(1, "lost").len() as u64));
}

#[test]
fn a_session_whose_directory_cannot_be_written_leaves_the_others_alone_and_is_counted() {
    let tmp = tempfile::tempdir().unwrap();
    let good = made(&tmp.path().join("good"));
    let bad = tmp.path().join("bad");
    let c2s = StreamId::Stdio(C2S);
    std::fs::write(&bad, "a file").unwrap();
    let mut steps = vec![(1, opening(&bad, 1, PackInterval::Session)), (2, opening(&good, 2, PackInterval::Session))];
    steps.extend([1, 2].map(|n| (n, Step::Message(c2s, call(n, "t")))));
    let ran = record(steps, 64);
    assert_eq!(ran.ended.iter().map(|ended| ended.doc.session_id.bits()).collect::<Vec<_>>(), [2]);
    assert_eq!(calls(&ran.ended[0]), ["t"]);
    assert!(ran.report.nothing_recorded && ran.report.disk_error.is_some());
    assert_eq!((ran.report.missed_messages, ran.report.missed_bytes), (1, call(1, "t").len() as u64));
    assert_eq!(ran.ended[0].doc.counts.missed, 0);
}

#[test]
fn packs_of_one_session_roll_over_while_another_goes_on() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = made(&tmp.path().join("a"));
    let (c2s, s2c) = (StreamId::Stdio(C2S), StreamId::Stdio(S2C));
    let mut steps =
        vec![(1, opening(&dir, 1, PackInterval::Receipts(1))), (2, opening(&dir, 2, PackInterval::Session))];
    // A round takes as much as this at once, and rolls over after it.
    for id in 0..3 * BURST as u64 {
        steps.extend([1, 2].map(|n| (n, Step::Message(c2s, call(id, "t")))));
        steps.extend([1, 2].map(|n| (n, Step::Message(s2c, answer(id)))));
    }
    let ran = record(steps, 64);
    let (one, two): (Vec<_>, Vec<_>) = ran.ended.iter().partition(|ended| ended.doc.server_id == "server-1");
    assert!(one.len() > 2 && two.len() == 1, "{} {}", one.len(), two.len());
    let total = |all: &[&Ended]| all.iter().map(|ended| ended.doc.counts.calls).sum::<u64>();
    assert_eq!((total(&one), total(&two)), (3 * BURST as u64, 3 * BURST as u64));
    for pair in one.windows(2) {
        assert_eq!(pair[1].doc.continues, Some(pair[0].doc.session_id));
    }
    let last = one.last().unwrap().doc.session_id;
    assert_eq!(ran.heard.lock().unwrap().owners[&SessionKey(1)], last);
}

#[test]
fn sessions_that_end_faster_than_they_are_sealed_are_left_for_recovery() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = made(&tmp.path().join("a"));
    let mut steps: Vec<(u64, Step)> = (1..=5).map(|n| (n, opening(&dir, n, PackInterval::Session))).collect();
    steps.extend((1..=5).map(|n| (n, Step::Ends)));
    let ran = record(steps, 2);
    assert_eq!(ran.ended.len(), 2);
    assert!(ran.report.damaged);
    let cards = AuditDir::at(&dir).files().names(&AuditDir::at(&dir).live()).unwrap();
    assert_eq!(cards.len(), 5, "whoever seals one removes its card, and recovery finds the others by theirs");
}
