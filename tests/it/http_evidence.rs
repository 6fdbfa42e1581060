//! Sessions over HTTP from a scripted source to packs: which response belongs to which request, how calls end, and what
//! the verifier holds such a pack to.

use Direction::{ClientToServer as C2S, ServerToClient as S2C};
use assay::{
    model::{
        AuditEvent, CallAnomaly, Detail, Direction, EndReason, EventKind, Outcome, Profile, SessionDoc, SessionId,
        ToolCall, Transport, WallTime,
        http::{HttpExchange, HttpResponse},
        words::{AnomalyKind, ExchangeEnd, ExchangePhase},
    },
    pack::{
        build::{self, Input},
        verify::{Completeness, Integrity, VerifyReport},
    },
    paths::AuditDir,
    record::{
        activity::Activity,
        broadcast::Silent,
        card::{Captures, Card, LogPlace},
        engine::Engine,
        exchange::{Exchange, Stage},
        health::Health,
        judge::PolicyFeed,
        opening::{Opening, PackInterval},
        recorder::{Ending, HttpBinding, Message, Origin, Setup},
        session::Shared,
        source::{Delivered, Lost, Seen, SessionKey, Source, SourceError},
        stream::{MessagePlace, StreamId},
    },
    relay::Waker,
    sys::clock,
};
use assay_support::{
    forge::{EVENTS, Pack, SESSION, check_pack, key_k, pinned},
    rig::scratch,
};
use std::{
    cell::OnceCell,
    collections::{BTreeMap, VecDeque},
    sync::{Arc, mpsc},
};

const KEY: SessionKey = SessionKey(1);

enum Step {
    Exchange(Box<Exchange>),
    Message { exchange: u64, direction: Direction, text: String, how: How },
}

/// How a message crosses.
#[derive(Clone, Copy)]
struct How {
    /// It reaches its receiver.
    arrives: bool,
    resumable: bool,
    anomalies: &'static [CallAnomaly],
}

const PLAIN: How = How { arrives: true, resumable: false, anomalies: &[] };
const RESUMABLE: How = How { resumable: true, ..PLAIN };

/// What crosses in one session, step by step.
struct Script {
    opening: Option<Box<Opening>>,
    steps: VecDeque<Step>,
    read: BTreeMap<StreamId, u64>,
    written: BTreeMap<StreamId, u64>,
}

impl Source for Script {
    fn look(&mut self, _: i64) {}
    fn next(&mut self, take: &mut dyn FnMut(SessionKey, Seen<'_>)) -> bool {
        if let Some(opening) = self.opening.take() {
            take(KEY, Seen::Begins(opening));
            return true;
        }
        match self.steps.pop_front() {
            None => return false,
            Some(Step::Exchange(exchange)) => {
                take(KEY, Seen::Exchange(Box::new(Exchange { at_ns: clock::mono_ns(), ..*exchange })));
            }
            Some(Step::Message { exchange, direction, text, how }) => {
                let stream = StreamId::Exchange { exchange, direction };
                let offset = *self.read.get(&stream).unwrap_or(&0);
                let (end, now) = (offset + text.len() as u64, clock::mono_ns());
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
                    anomalies: how.anomalies,
                    resumable: how.resumable,
                };
                take(KEY, Seen::Message(&message));
                self.read.insert(stream, end);
                if how.arrives {
                    self.written.insert(stream, end);
                }
            }
        }
        true
    }
    fn take_error(&mut self) -> Option<SourceError> {
        None
    }
    fn delivered(&self, tell: Delivered<'_>) {
        for (stream, end) in &self.written {
            tell(KEY, *stream, *end, &|_| None);
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
    fn settled(&mut self) {}
    fn keep(&mut self) {}
    fn retry(&mut self) {}
    fn make_room(&mut self, _: &dyn Fn(SessionKey) -> bool) {}
    fn rest(&mut self, _: bool) {}
    fn give_up_stuck(&mut self) -> bool {
        false
    }
    fn take_lost(&mut self, _: Lost<'_>) {}
    fn unfinished(&self, _: Lost<'_>) {}
    fn goes_on_as(&mut self, _: SessionKey, _: SessionId) {}
    fn note_lost(&self, _: SessionKey, _: u64) {}
    fn forget(&mut self, _: SessionKey) {}
}

/// What became of a script.
struct Ran {
    card: Card,
    doc: SessionDoc,
    calls: Vec<ToolCall>,
    events: Vec<AuditEvent>,
    report: VerifyReport,
    pack: Pack,
}

impl Ran {
    /// Tool, outcome, reason and anomalies of each call, in the order in which they ended.
    fn said(&self) -> Vec<String> {
        let line = |c: &ToolCall| {
            let words: Vec<&str> = c.anomalies.iter().map(|a| a.as_str()).collect();
            let outcome = format!("{:?}", c.outcome).to_lowercase();
            let parts = [c.tool_name.as_str(), &outcome, c.outcome_reason.as_deref().unwrap_or_default()];
            [&parts[..], &words].concat().into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
        };
        self.calls.iter().map(line).collect()
    }

    fn anomalies(&self) -> Vec<AnomalyKind> {
        let of = |e: &AuditEvent| if let Detail::Anomaly(d) = &e.detail { d.kind.known() } else { None };
        self.events.iter().filter_map(of).collect()
    }

    /// Number and phase of each `http_exchange`.
    fn exchanges(&self) -> Vec<(u64, ExchangePhase)> {
        let of =
            |e: &AuditEvent| if let Detail::HttpExchange(d) = &e.detail { Some((d.exchange, d.phase)) } else { None };
        self.events.iter().filter_map(of).collect()
    }
}

fn lines<T: serde::de::DeserializeOwned>(path: &std::path::Path) -> Vec<T> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Records a script to its end. The pack must be intact, whatever crossed.
fn record_over(transport: Transport, steps: Vec<Step>) -> Ran {
    let tmp = scratch();
    let dir = AuditDir::at(tmp.path().join("audit"));
    dir.create().unwrap();
    let binding = HttpBinding { client: Some("c01234567".into()), joined_midway: true, ..HttpBinding::default() };
    let setup = Setup {
        profile: Profile::Audit,
        transport,
        server_id: "srv".into(),
        origin: Origin::of_url("https://user@example.org/mcp?key=canary", false),
        http: Some(binding),
        store_args: false,
        cleartext: assay::record::redact::Cleartext::default(),
        store_results: false,
        store_limit: 0,
        redact: None,
        policy_hash: None,
        surface: None,
        witness: None,
    };
    let opening = Opening {
        dir,
        setup: Arc::new(setup),
        session: SessionId::from_bits(7),
        started_ns: clock::mono_ns(),
        started_at: WallTime::now(),
        interval: PackInterval::Session,
        captures: Captures {
            log: Some(LogPlace { file: None, process: 0xab, route: 3, is_beside_rings: false }),
            ..Captures::default()
        },
        activity: Arc::new(Activity::default()),
        judge: None,
        feed: Arc::new(PolicyFeed::new(None)),
        health: Arc::new(Health::default()),
    };
    let source = Script {
        opening: Some(Box::new(opening)),
        steps: steps.into(),
        read: BTreeMap::new(),
        written: BTreeMap::new(),
    };
    let (ended, all) = mpsc::sync_channel(4);
    let (files, _written) = mpsc::channel();
    let (finish, ending) = mpsc::channel();
    let reason = EndReason::SessionDeleted.into();
    let no_response = Some(assay::model::OutcomeReason::ClientClosed);
    finish.send(Ending { reason, no_response, clean: true, pending_is_clean: true, ..Ending::default() }).unwrap();
    let shared = Shared { broadcast: Arc::new(Silent), ended, files, health: Arc::default(), certify: None };
    Engine::new(shared, Box::new(source), Arc::new(Waker::new())).run(&ending);
    let ended = all.recv().unwrap();
    let paths = &ended.store.paths;
    let input = Input {
        paths,
        session: &ended.doc,
        policies: None,
        surface: None,
        decisions: None,
        signer: &key_k(),
        ci_binding: None,
        now: WallTime::now(),
    };
    let (calls, events) = (lines(&paths.receipts), lines(&paths.segment));
    let pack = Pack::read(&build::build(&input).unwrap().dir);
    let report = check_pack(&pack, &pinned());
    assert_eq!(report.integrity, Integrity::Pass, "{:#?}", report.errors);
    for name in [EVENTS, SESSION] {
        assert!(!pack.text(name).contains("canary") && !pack.text(name).contains("example.org"));
    }
    Ran { card: ended.card, doc: ended.doc, calls, events, report, pack }
}

fn record(steps: Vec<Step>) -> Ran {
    record_over(Transport::StreamableHttp, steps)
}

fn call(id: u64, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#)
}

/// The same of the modern era.
fn modern(id: u64, tool: &str) -> String {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","_meta":{meta}}}}}"#)
}

fn answer(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

fn said(exchange: u64, direction: Direction, text: impl Into<String>, how: How) -> Step {
    Step::Message { exchange, direction, text: text.into(), how }
}

fn up(exchange: u64, text: impl Into<String>) -> Step {
    said(exchange, C2S, text, PLAIN)
}

fn down(exchange: u64, text: impl Into<String>) -> Step {
    said(exchange, S2C, text, PLAIN)
}

fn told(detail: HttpExchange, stage: Stage, resumable: bool) -> Step {
    let exchange = Exchange { detail, stage, at_ns: 0, head_ns: None, first_byte_ns: None, resumable };
    Step::Exchange(Box::new(exchange))
}

fn head(exchange: u64) -> HttpExchange {
    HttpExchange { method: "POST".into(), downstream: Some("h1".into()), ..HttpExchange::new(exchange) }
}

fn begun(exchange: u64) -> Step {
    told(head(exchange), Stage::Begun, false)
}

/// The end of an exchange: its status, and why it ended.
fn ended(exchange: u64, status: u16, ended: ExchangeEnd) -> HttpExchange {
    let answered = status != 0;
    HttpExchange {
        answered_by: answered.then(|| "upstream".into()),
        ended: Some(ended.into()),
        response: answered.then(|| HttpResponse { status, ..HttpResponse::default() }),
        upstream: Some("h1".into()),
        ..head(exchange)
    }
}

fn over(exchange: u64) -> Step {
    told(ended(exchange, 200, ExchangeEnd::Complete), Stage::Over, false)
}

/// A session that has a session id.
fn of_session(detail: HttpExchange) -> HttpExchange {
    HttpExchange { session: Some("0123456789abcdef".into()), ..detail }
}

#[test]
fn ids_of_two_exchanges_never_meet_and_the_session_says_what_it_was() {
    let ran = record(vec![
        begun(1),
        begun(2),
        up(1, call(1, "a")),
        up(2, call(1, "b")),
        down(2, answer(1)),
        over(2),
        down(1, answer(1)),
        over(1),
    ]);
    assert_eq!(ran.said(), ["b forwarded", "a forwarded"]);
    assert_eq!(ran.report.completeness, Completeness::Complete, "{:?}", ran.report);
    assert_eq!(ran.exchanges(), [(2, ExchangePhase::End), (1, ExchangePhase::End)]);
    assert!(ran.events.iter().all(|e| e.v == 2 && e.transport == "streamable-http"));
    let read: Vec<_> = ran.events.iter().filter_map(|e| e.detail.read_in()).collect();
    assert_eq!(read, [1, 2, 2, 1]);
    let http = ran.doc.http.as_ref().unwrap();
    assert_eq!((ran.doc.v, http.exchanges, http.joined_midway), (3, 2, true));
    assert_eq!((&http.downstream[..], &http.upstream[..]), (&["h1".to_owned()][..], &["h1".to_owned()][..]));
    assert_eq!((&http.endpoint.digest, &http.endpoint.url), (&ran.doc.command_digest, &None));
    let card = ran.card.http.as_ref().unwrap();
    assert_eq!((ran.card.v, &*card.process, card.route, &*card.source), (3, "00000000000000ab", 3, "log"));
    assert_eq!(ran.card.setup().transport, Transport::StreamableHttp);
}

#[test]
fn an_answer_elsewhere_is_found_only_where_the_session_can_go_on_and_the_exchange_is_over() {
    let script = |how: How, resumable: bool, cut: bool| {
        let mut steps = vec![begun(1), said(1, C2S, call(1, "t"), how)];
        let end = told(of_session(ended(1, 200, ExchangeEnd::UpstreamLost)), Stage::Over, resumable);
        let rest = vec![begun(2), said(2, S2C, answer(1), how), over(2)];
        if cut {
            steps.push(end);
            steps.extend(rest);
        } else {
            steps.extend(rest);
            steps.push(end);
        }
        record(steps)
    };
    let resumed = script(RESUMABLE, true, true);
    assert_eq!(resumed.said(), ["t forwarded answered_on_other_exchange"]);
    assert_eq!(resumed.doc.http.as_ref().unwrap().mcp_session.as_deref(), Some("0123456789abcdef"));
    let without_session = script(PLAIN, false, true);
    assert_eq!(without_session.said(), ["t timeout upstream_lost"]);
    assert_eq!(without_session.report.completeness, Completeness::Incomplete);
    assert!(without_session.anomalies().contains(&AnomalyKind::UnmatchedResponse));
    // Its own exchange may still answer it.
    let not_over = script(RESUMABLE, true, false);
    assert_eq!(not_over.said(), ["t timeout upstream_lost"]);
    assert!(not_over.anomalies().contains(&AnomalyKind::UnmatchedResponse));
    let oldest = record(vec![
        up(1, call(1, "older")),
        told(ended(1, 200, ExchangeEnd::UpstreamLost), Stage::Over, true),
        up(2, call(1, "newer")),
        told(ended(2, 200, ExchangeEnd::UpstreamLost), Stage::Over, true),
        said(3, S2C, answer(1), RESUMABLE),
        said(3, S2C, answer(1), RESUMABLE),
        said(3, S2C, answer(1), RESUMABLE),
        over(3),
    ]);
    assert_eq!(oldest.said(), ["older", "newer"].map(|t| format!("{t} forwarded answered_on_other_exchange")));
    assert_eq!(oldest.anomalies(), [AnomalyKind::LateResponse]);
}

#[test]
fn the_old_transport_answers_on_its_stream_whether_the_post_is_over_or_not() {
    for accepted_first in [true, false] {
        let accepted = || told(ended(2, 202, ExchangeEnd::Complete), Stage::Over, true);
        let mut steps = vec![told(head(1), Stage::Open, true), said(2, C2S, call(1, "t"), RESUMABLE)];
        if accepted_first {
            steps.push(accepted());
        }
        steps.push(said(1, S2C, answer(1), RESUMABLE));
        if !accepted_first {
            steps.push(accepted());
        }
        let ran = record_over(Transport::Sse, steps);
        assert_eq!(ran.said(), ["t forwarded answered_on_other_exchange"], "{accepted_first}");
        assert_eq!(ran.report.completeness, Completeness::Complete);
        assert!(ran.calls.iter().all(|call| call.server_transport == "sse"));
        assert!(ran.exchanges().contains(&(1, ExchangePhase::Open)));
    }
}

#[test]
fn an_error_without_an_id_answers_the_only_request_of_its_exchange() {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#;
    let one = record(vec![up(1, call(5, "t")), down(1, error), over(1)]);
    assert_eq!(one.said(), ["t error"]);
    assert!(one.anomalies().is_empty());
    let batch = format!("[{},{}]", call(5, "t"), call(6, "u"));
    let two = record(vec![up(1, batch), down(1, error), over(1)]);
    assert_eq!(two.said(), ["t timeout stream_ended batch_element", "u timeout stream_ended batch_element"]);
    assert!(two.anomalies().contains(&AnomalyKind::UnmatchedResponse));
    let elsewhere = record(vec![up(1, call(5, "t")), down(2, error), over(2), down(1, answer(5)), over(1)]);
    assert_eq!(elsewhere.said(), ["t forwarded"]);
}

#[test]
fn a_call_without_an_answer_ends_as_its_exchange_did() {
    use ExchangeEnd as E;
    let complete = Completeness::Complete;
    let lost = Completeness::Incomplete;
    // The call, the end of its exchange, whether the session can go on; what is said of the call, and of the session.
    for (text, end, resumable, said, completeness) in [
        (call(1, "t"), ended(1, 503, E::Complete), false, "error http_error", complete),
        (call(1, "t"), ended(1, 401, E::Complete), true, "error http_error", complete),
        (modern(1, "t"), ended(1, 404, E::Complete), false, "error http_error", complete),
        (call(1, "t"), of_session(ended(1, 404, E::Complete)), true, "timeout session_lost", lost),
        (modern(1, "t"), ended(1, 200, E::Complete), false, "timeout stream_ended", lost),
        (call(1, "t"), ended(1, 200, E::Complete), false, "timeout stream_ended", lost),
        (call(1, "t"), ended(1, 200, E::Complete), true, "timeout stream_ended", lost),
        (modern(1, "t"), ended(1, 200, E::ClientGone), false, "timeout cancelled_by_client", complete),
        (modern(1, "t"), ended(1, 0, E::ClientGone), true, "timeout cancelled_by_client", complete),
        (call(1, "t"), ended(1, 200, E::ClientGone), true, "timeout client_closed", complete),
        (call(1, "t"), ended(1, 200, E::UpstreamLost), false, "timeout upstream_lost", lost),
        (modern(1, "t"), ended(1, 0, E::UpstreamLost), false, "timeout upstream_lost", lost),
        (call(1, "t"), ended(1, 202, E::Complete), true, "timeout client_closed", complete),
        (call(1, "t"), ended(1, 0, E::Refused), false, "error http_error", complete),
    ] {
        let ends = format!("{text} {:?} {:?} {resumable}", end.status(), end.ended);
        let ran = record(vec![begun(1), up(1, text), told(end, Stage::Over, resumable)]);
        assert_eq!(ran.said(), [format!("t {said}")], "{ends}");
        assert_eq!(ran.report.completeness, completeness, "{ends}: {:?}", ran.report.completeness);
        let (errors, timeouts) = (ran.doc.counts.errors, ran.doc.counts.timeouts);
        assert_eq!((errors, timeouts), if said.starts_with("error") { (1, 0) } else { (0, 1) }, "{ends}");
        let mut fold = assay::live::fold::Fold::default();
        let rows =
            ran.events.iter().filter_map(|e| fold.event(e).chained().and_then(|c| c.call.clone())).collect::<Vec<_>>();
        let row = rows.last().unwrap();
        assert_eq!(row.outcome, Some(ran.calls[0].outcome), "{ends}");
        assert_eq!(row.outcome_reason.as_deref(), ran.calls[0].outcome_reason.as_deref(), "{ends}");
    }
}

#[test]
fn what_was_read_and_never_reached_the_client_ends_with_its_exchange() {
    let lost = How { arrives: false, ..PLAIN };
    let gone = || told(ended(1, 200, ExchangeEnd::ClientGone), Stage::Over, false);
    let ran = record(vec![
        up(1, modern(1, "t")),
        said(1, S2C, answer(1), lost),
        gone(),
        up(2, modern(2, "u")),
        down(2, answer(2)),
    ]);
    assert_eq!(ran.said(), ["t forwarded response_not_delivered", "u forwarded"]);
    assert_eq!(ran.anomalies(), [AnomalyKind::NotDelivered]);
    // An answer before all of the request was written.
    let early = record(vec![said(1, C2S, call(1, "t"), lost), down(1, answer(1)), over(1)]);
    assert_eq!(early.said(), ["t forwarded"]);
}

#[test]
fn a_cancellation_names_a_call_of_another_exchange_only_where_a_session_says_that_it_is_the_same_client() {
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    for (how, expected) in [(RESUMABLE, "t timeout cancelled_by_client"), (PLAIN, "t timeout stream_ended")] {
        let ran = record(vec![said(1, C2S, call(1, "t"), how), said(2, C2S, cancel, how), over(2), over(1)]);
        assert_eq!(ran.said(), [expected]);
    }
}

#[test]
fn a_replay_makes_no_second_receipt_and_closes_what_had_not_arrived() {
    const REPLAYED: How = How { anomalies: &[CallAnomaly::Replayed], ..RESUMABLE };
    let cut = || told(of_session(ended(1, 200, ExchangeEnd::ClientGone)), Stage::Over, true);
    for arrives in [true, false] {
        let first = How { arrives, ..RESUMABLE };
        let ran = record(vec![
            said(1, C2S, call(1, "t"), RESUMABLE),
            said(1, S2C, answer(1), first),
            cut(),
            said(2, S2C, answer(1), REPLAYED),
            over(2),
        ]);
        assert_eq!(ran.said(), ["t forwarded"], "{arrives}");
        assert_eq!(ran.anomalies(), [AnomalyKind::LateResponse], "{arrives}");
        assert_eq!(ran.report.completeness, Completeness::Complete);
    }
    // The first copy was never read.
    let ran = record(vec![said(1, C2S, call(1, "t"), RESUMABLE), cut(), said(2, S2C, answer(1), REPLAYED), over(2)]);
    assert_eq!(ran.said(), ["t forwarded answered_on_other_exchange replayed"]);
}

#[test]
fn what_the_source_found_unusual_is_in_the_receipt_and_open_exchanges_are_named_at_the_end() {
    let how = How { anomalies: &[CallAnomaly::HeaderMismatch, CallAnomaly::Rewritten], ..PLAIN };
    let ran = record(vec![begun(1), said(1, C2S, call(1, "t"), how), down(1, answer(1)), up(9, "not json")]);
    assert_eq!(ran.said(), ["t forwarded header_mismatch rewritten"]);
    assert_eq!(ran.exchanges(), [(1, ExchangePhase::Open), (9, ExchangePhase::Open)]);
    assert_eq!(ran.events.last().unwrap().event, EventKind::ChainEnd);
}

/// The verifier finds each lie about exchanges, although everything else was made to agree with it.
#[test]
fn a_pack_names_each_exchange_and_ends_it_once() {
    let ran = record(vec![
        begun(1),
        up(1, call(1, "t")),
        down(1, answer(1)),
        over(1),
        begun(2),
        up(2, modern(2, "u")),
        told(ended(2, 503, ExchangeEnd::Complete), Stage::Over, false),
    ]);
    assert_eq!(ran.calls.iter().map(|c| c.outcome).collect::<Vec<_>>(), [Outcome::Forwarded, Outcome::Error]);
    let at =
        |kind: &str| ran.pack.lines(EVENTS).iter().position(|l| l.contains(&format!("\"event\":\"{kind}\""))).unwrap();
    let (exchange, answered, sent) = (at("http_exchange"), at("response_received"), at("response_sent"));
    let lie = |words: &str, change: &dyn Fn(&mut Pack)| {
        let mut pack = ran.pack.clone();
        change(&mut pack);
        pack.make_consistent();
        pack.sign(&key_k());
        let report = check_pack(&pack, &pinned());
        let said = report.errors.iter().any(|f| f.message.contains(words));
        assert!(said && report.integrity != Integrity::Pass, "{words}: {:#?}", report.errors);
    };
    let moved = |from: usize, to: usize| {
        move |pack: &mut Pack| {
            let mut lines = pack.lines(EVENTS);
            let line = lines.remove(from);
            lines.insert(to, line);
            pack.set_lines(EVENTS, &lines);
        }
    };
    lie("no http_exchange names", &|pack| {
        let mut lines = pack.lines(EVENTS);
        lines.remove(exchange);
        pack.set_lines(EVENTS, &lines);
    });
    lie("already over", &|pack| {
        let mut lines = pack.lines(EVENTS);
        lines.insert(exchange, lines[exchange].clone());
        pack.set_lines(EVENTS, &lines);
    });
    lie("in an exchange that was over", &moved(exchange, answered));
    lie("invocation_id is not derived", &|pack| pack.edit(EVENTS, 1, |e| e["detail"]["exchange"] = 3.into()));
    lie("in another exchange", &|pack| {
        for line in [answered, sent] {
            pack.edit(EVENTS, line, |e| e["detail"]["exchange"] = 2.into());
        }
    });
    lie("the version changed", &|pack| pack.edit(EVENTS, 0, |e| e["v"] = 1.into()));
    lie("numbered from 1", &|pack| pack.edit(EVENTS, exchange, |e| e["detail"]["exchange"] = 0.into()));
    lie("says how it ended", &|pack| pack.edit(EVENTS, exchange, |e| e["detail"]["phase"] = "open".into()));
    lie("by whom", &|pack| pack.edit(EVENTS, exchange, |e| e["detail"]["answered_by"] = serde_json::Value::Null));
    lie("hash of a body", &|pack| pack.edit(EVENTS, exchange, |e| e["detail"]["request"]["sha256"] = "ab".into()));
    lie("outcome_reason does not match", &|pack| {
        let last = pack.lines(EVENTS).iter().rposition(|l| l.contains("\"http_exchange\"")).unwrap();
        pack.edit(EVENTS, last, |e| e["detail"]["response"]["status"] = 200.into());
    });
    lie("session.json does not match the evidence: v", &|pack| pack.edit(SESSION, 0, |s| s["v"] = 2.into()));
    lie("session.json does not match the evidence: http.exchanges", &|pack| {
        pack.edit(SESSION, 0, |s| s["http"]["exchanges"] = 3.into());
    });
    lie("session.json does not match the evidence: http.endpoint.digest", &|pack| {
        pack.edit(SESSION, 0, |s| s["http"]["endpoint"]["digest"] = "sha256:0".into());
    });
    lie("session.json does not match the evidence: v", &|pack| pack.edit(SESSION, 0, |s| s["v"] = 1.into()));
    lie("session.json does not match the evidence: http", &|pack| {
        pack.edit(SESSION, 0, |s| drop(s.as_object_mut().unwrap().remove("http")));
    });
}

#[test]
fn a_document_that_does_not_say_whose_key_digests_are_made_with_is_still_read() {
    let ran = record(vec![begun(1), up(1, call(1, "t")), down(1, answer(1)), over(1)]);
    assert_eq!(ran.doc.http.as_ref().unwrap().key_lasts, Some(false));
    let mut pack = ran.pack.clone();
    pack.edit(SESSION, 0, |s| {
        s["v"] = 2.into();
        s["http"].as_object_mut().unwrap().remove("key_lasts");
    });
    pack.make_consistent();
    pack.sign(&key_k());
    let report = check_pack(&pack, &pinned());
    assert_eq!(report.integrity, Integrity::Pass, "{:#?}", report.errors);
}
