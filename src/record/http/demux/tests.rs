use super::*;
use crate::{
    canon,
    model::{Profile, RpcId, Transport, WallTime},
    paths::AuditDir,
    record::{
        card::Captures,
        exchange::Stage,
        http::{sessions::Limits, state::StateFile},
        opening::PackInterval,
        recorder::{Origin, Setup},
        stream::StreamId,
    },
    relay::log::{AnsweredBy, HttpVersion, Target},
};
use std::sync::Arc;

/// Entries as the I/O threads would put them in.
#[derive(Default)]
struct Script(Vec<(Flow, u64, Entry<'static>)>);

fn values(kind: &str) -> Vec<(String, String)> {
    vec![("content-type".into(), kind.into()), ("user-agent".into(), "test/1".into())]
}

impl Script {
    fn put(&mut self, flow: Flow, entry: Entry<'static>) {
        let ns = (self.0.len() as u64 + 1) * 1_000_000;
        self.0.push((flow, ns, entry));
    }

    fn request(&mut self, exchange: u64, method: &str, session: Option<&str>, body: &'static str) {
        let flow = Flow::request(exchange);
        self.put(
            flow,
            Entry::Request(RequestHead {
                route: 0,
                connection: exchange,
                method: method.into(),
                version: HttpVersion::H11,
                endpoint: true,
                target: Target { path: "/mcp".into(), query: Vec::new(), digest: "t".into() },
                names: vec!["Content-Type".into()],
                values: values("application/json"),
                session: session.map(Into::into),
                credential: None,
                peer: "loopback".into(),
            }),
        );
        self.body(flow, body);
    }

    fn answer(&mut self, exchange: u64, status: u16, kind: &str, session: Option<&str>) {
        self.put(
            Flow::response(exchange),
            Entry::Response(ResponseHead {
                answered_by: AnsweredBy::Upstream,
                status,
                version: HttpVersion::H11,
                names: vec!["Content-Type".into()],
                values: values(kind),
                session: session.map(Into::into),
                reused: false,
            }),
        );
    }

    fn data(&mut self, flow: Flow, offset: u64, text: &'static str) {
        self.put(flow, Entry::Data { offset, bytes: text.as_bytes(), own: false });
        self.put(flow, Entry::Wrote { upto: offset + text.len() as u64 });
    }

    fn end(&mut self, flow: Flow, bytes: u64, cause: Cause) {
        self.put(flow, Entry::End(BodyEnd { bytes, cause, trailers: Vec::new(), sha256: None }));
    }

    fn body(&mut self, flow: Flow, text: &'static str) {
        if !text.is_empty() {
            self.data(flow, 0, text);
        }
        self.end(flow, text.len() as u64, Cause::Complete);
    }
}

fn demux() -> Demux {
    demux_of(false)
}

fn demux_of(guarded: bool) -> Demux {
    let open: Open = Box::new(|new, ns| {
        let setup = Setup {
            profile: Profile::Audit,
            transport: Transport::StreamableHttp,
            server_id: "server".into(),
            origin: Origin::of_url("http://h/mcp", false),
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
        Opening {
            dir: AuditDir::at("/nowhere"),
            setup: Arc::new(setup),
            session: new.id,
            started_ns: ns,
            started_at: WallTime::from_millis(0),
            interval: PackInterval::Session,
            captures: Captures::default(),
            activity: Arc::default(),
            judge: None,
            feed: Arc::default(),
            health: Arc::default(),
        }
    });
    Demux::new(
        SessionMap::new(1, Limits::default()),
        Some(open),
        Box::new(|target| hex::encode(target)),
        Box::new(|_| None),
        guarded,
    )
}

/// What a recorder sees, as text.
fn seen(demux: &mut Demux, script: &[(Flow, u64, Entry<'static>)]) -> Vec<String> {
    let mut all = Vec::new();
    let mut note = |key: SessionKey, seen: Seen<'_>| {
        let what = match seen {
            Seen::Begins(opening) => format!("begins {}", opening.session),
            Seen::Message(m) => {
                let StreamId::Exchange { exchange, direction } = m.place.stream else { panic!("no exchange") };
                let text = String::from_utf8_lossy(m.bytes);
                let text = if m.anomalies.contains(&CallAnomaly::Replayed) { "(again)".into() } else { text };
                let became = match m.ruling {
                    Some(ruling) if ruling.blocked => " (blocked)",
                    Some(_) => " (decided)",
                    None if m.undecided => " (undecided)",
                    None => "",
                };
                format!("x{exchange} {} {} {text}{became}", direction.as_str(), m.place.offset)
            }
            Seen::Exchange(told) if told.stage == Stage::Begun => return,
            Seen::Exchange(told) => format!("exchange {} {}", told.detail.exchange, told.detail.ended.unwrap()),
            Seen::Delivered { stream, upto, when } => {
                assert!(when(upto).is_some());
                let StreamId::Exchange { exchange, direction } = stream else { panic!("no exchange") };
                format!("x{exchange} {} delivered {upto}", direction.as_str())
            }
            Seen::Ends(ending) => format!("ends {}", ending.reason),
            Seen::Torn { bytes, .. } => format!("torn {bytes}"),
            Seen::Gap { bytes, .. } => format!("gap {bytes}"),
            Seen::Rolls(reason) => format!("rolls {}", reason.as_str()),
        };
        all.push(format!("{} {what}", key.0));
    };
    for (flow, ns, entry) in script {
        demux.take(*flow, *ns, entry.clone(), &mut note);
        while demux.hand_out(&mut note) {}
    }
    all
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"c"}}}"#;
const WELCOME: &str = r#"{"jsonrpc":"2.0","id":0,"result":{}}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
const EVENT: &str = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n";

/// Two sessions that use the same ids at the same time, a stream, an end, and a token request.
fn two_clients() -> Script {
    let mut s = Script::default();
    for (n, session) in [(1, "s1"), (2, "s2")] {
        s.request(n, "POST", None, INITIALIZE);
        s.answer(n, 200, "application/json", Some(session));
        s.body(Flow::response(n), WELCOME);
    }
    s.request(3, "GET", Some("s1"), "");
    s.answer(3, 200, "text/event-stream", None);
    s.request(4, "POST", Some("s1"), CALL);
    s.request(5, "POST", Some("s2"), CALL);
    s.answer(5, 200, "text/event-stream; charset=utf-8", None);
    s.answer(4, 200, "text/event-stream", None);
    let (a, b) = EVENT.split_at(30);
    s.data(Flow::response(4), 0, a);
    s.data(Flow::response(5), 0, EVENT);
    s.data(Flow::response(4), 30, b);
    s.data(Flow::response(3), 0, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n");
    for n in [4, 5] {
        s.end(Flow::response(n), EVENT.len() as u64, Cause::Complete);
    }
    s.request(6, "DELETE", Some("s1"), "");
    s.answer(6, 204, "", None);
    s.body(Flow::response(6), "");
    s.end(Flow::response(3), 52, Cause::ClientGone);
    s
}

#[test]
fn streams_are_told_of_while_they_are_open() {
    let (script, mut demux) = (two_clients().0, demux());
    let open = |demux: &Demux| {
        let mut all = Vec::new();
        demux.streams(5_000_000, &mut |key, s| all.push((key.0, s.exchange, s.method, s.messages, s.bytes)));
        all
    };
    let is_end = |exchange: u64| {
        move |(flow, _, entry): &&(Flow, u64, Entry<'_>)| {
            *flow == Flow::response(exchange) && matches!(entry, Entry::End(_))
        }
    };
    let upto = |demux: &mut Demux, from: usize, to: usize| {
        seen(demux, &script[from..to]);
    };
    let place = |exchange| script.iter().position(|e| is_end(exchange)(&e)).unwrap();
    // An answer that is JSON is no stream, whether it has ended or not.
    let first = script.iter().position(|(flow, ..)| *flow == Flow::response(3)).unwrap();
    upto(&mut demux, 0, first);
    assert_eq!(open(&demux), []);
    upto(&mut demux, first, first + 1);
    assert_eq!(open(&demux), [(0, 3, "GET".to_owned(), 0, 0)]);
    upto(&mut demux, first + 1, place(4));
    let long = EVENT.len() as u64;
    assert_eq!(
        open(&demux),
        [(0, 3, "GET".to_owned(), 1, 52), (0, 4, "POST".to_owned(), 1, long), (1, 5, "POST".to_owned(), 1, long)]
    );
    let mut times = Vec::new();
    demux.streams(5_000_000, &mut |_, s| times.push((s.since.millis(), s.last_byte_at.map(WallTime::millis))));
    let wrote = |exchange| {
        let of = |(flow, _, e): &&(Flow, u64, Entry<'_>)| {
            *flow == Flow::response(exchange) && matches!(e, Entry::Wrote { .. })
        };
        script.iter().rev().find(of).map(|(_, ns, _)| (*ns as i64 + 5_000_000) / 1_000_000)
    };
    assert_eq!(times.iter().map(|t| t.1).collect::<Vec<_>>(), [wrote(3), wrote(4), wrote(5)]);
    assert_eq!(times[0].0, (script[first].1 as i64 + 5_000_000) / 1_000_000);
    upto(&mut demux, place(4), place(5));
    assert_eq!(open(&demux).iter().map(|s| s.1).collect::<Vec<_>>(), [3, 5]);
    upto(&mut demux, place(5), script.len());
    assert_eq!(open(&demux), []);
}

#[test]
fn each_session_gets_its_messages_and_ends_when_its_last_stream_does() {
    let all = seen(&mut demux(), &two_clients().0);
    let of = |key: u64| {
        let prefix = format!("{key} ");
        let of_it = all.iter().filter_map(|line| line.strip_prefix(&prefix));
        of_it.filter(|line| !line.contains("delivered")).collect::<Vec<_>>()
    };
    // Of every message it is told that it was delivered, before its exchange is over.
    for exchange in [1, 2, 4, 5] {
        let last = |what: &str| all.iter().rposition(|line| line.contains(what)).unwrap();
        let over = last(&format!("exchange {exchange} "));
        for side in ["client_to_server", "server_to_client"] {
            let (message, told) =
                (last(&format!("x{exchange} {side} 0 ")), last(&format!("x{exchange} {side} delivered")));
            assert!(message < told && told < over, "{exchange} {side}: {all:#?}");
        }
    }
    let message = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    let result = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let id = |n| super::super::sessions::session_id(1, SessionKey(n));
    assert_eq!(
        of(0),
        [
            format!("begins {}", id(0)),
            format!("x1 client_to_server 0 {INITIALIZE}"),
            format!("x1 server_to_client 0 {WELCOME}"),
            "exchange 1 complete".into(),
            format!("x4 client_to_server 0 {CALL}"),
            format!("x4 server_to_client 0 {result}"),
            format!("x3 server_to_client 0 {message}"),
            "exchange 4 complete".into(),
            "exchange 6 complete".into(),
            "exchange 3 client_gone".into(),
            "ends session_deleted".into(),
        ]
    );
    assert_eq!(of(1).len(), 7);
    assert!(of(1).contains(&&*format!("x5 server_to_client 0 {result}")));
}

#[test]
fn what_is_known_at_any_entry_is_enough_to_go_on_from_there() {
    let script = two_clients().0;
    let whole = seen(&mut demux(), &script);
    for at in 0..=script.len() {
        let mut first = demux();
        let mut both = seen(&mut first, &script[..at]);
        let state = postcard::to_allocvec(&first.state(at as u64)).unwrap();
        drop(first);
        let mut second = demux();
        second.restore(postcard::from_bytes(&state).unwrap()).unwrap();
        both.extend(seen(&mut second, &script[at..]));
        assert_eq!(both, whole, "entry {at}");
    }
}

#[test]
fn an_error_page_is_no_message_and_an_error_of_json_rpc_is() {
    let mut s = Script::default();
    s.request(1, "POST", None, INITIALIZE);
    s.answer(1, 401, "application/json", None);
    s.body(Flow::response(1), r#"{"error":"invalid_token"}"#);
    s.request(2, "POST", None, INITIALIZE);
    s.answer(2, 400, "application/json", None);
    s.body(Flow::response(2), r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#);
    let all = seen(&mut demux(), &s.0);
    let answers: Vec<_> = all.iter().filter(|line| line.contains("server_to_client 0")).collect();
    assert_eq!(answers.len(), 1, "{all:#?}");
    assert!(answers[0].contains("-32600"));
}

#[test]
fn a_gap_is_counted_in_its_session_and_what_it_tears_is_no_message() {
    let mut s = Script::default();
    s.request(1, "POST", None, CALL);
    s.answer(1, 200, "application/json", None);
    s.data(Flow::response(1), 0, &WELCOME[..10]);
    s.put(Flow::response(1), Entry::Gap { offset: 10, bytes: 20 });
    s.data(Flow::response(1), 30, &WELCOME[30..]);
    s.end(Flow::response(1), WELCOME.len() as u64, Cause::Complete);
    let all = seen(&mut demux(), &s.0);
    assert!(all.contains(&"0 gap 20".to_owned()) && all.contains(&"0 torn 10".to_owned()), "{all:#?}");
    assert!(!all.iter().any(|line| line.contains("server_to_client 0")), "{all:#?}");
}

#[test]
fn a_gap_of_any_exchange_is_counted_in_a_session_whether_one_is_open_or_not() {
    let gap = |s: &mut Script, flow| s.put(flow, Entry::Gap { offset: 0, bytes: 20 });
    let mut open = Script::default();
    open.request(1, "POST", None, INITIALIZE);
    let mut none = Script::default();
    for s in [&mut open, &mut none] {
        gap(s, Flow::request(0));
        // Its head had no room either.
        gap(s, Flow::response(77));
        s.put(Flow::request(0), Entry::Note { code: NoteCode::Unrecorded, text: "3" });
        let all = seen(&mut demux(), &s.0);
        let gaps: Vec<_> = all.iter().filter(|line| line.contains("gap")).map(String::as_str).collect();
        assert_eq!(gaps, ["0 gap 20", "0 gap 20", "0 gap 0"], "{all:#?}");
        assert_eq!(all.iter().filter(|line| line.contains("begins")).count(), 1, "{all:#?}");
    }
}

#[test]
fn the_log_of_a_bridge_tells_of_one_session_what_the_bridge_asked_and_where_the_next_begins() {
    let mut s = Script::default();
    let carries = |s: &mut Script, exchange, id| {
        s.put(Flow::request(exchange), Entry::Note { code: NoteCode::Carries, text: id });
    };
    s.request(1, "POST", None, "");
    carries(&mut s, 1, "7");
    carries(&mut s, 1, "\"a\"");
    s.answer(1, 200, "application/json", None);
    s.put(Flow::request(0), Entry::Note { code: NoteCode::SessionLost, text: "" });
    s.request(2, "POST", None, INITIALIZE);
    s.answer(2, 200, "text/event-stream", Some("s2"));
    // What is for the client is in the rings.
    let event = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n\n";
    s.body(Flow::response(2), event);
    s.body(Flow::response(1), "");
    let bridge = || Demux::new(SessionMap::of_bridge(), None, Box::new(|_| String::new()), Box::new(|_| None), false);
    let all = seen(&mut bridge(), &s.0);
    let all: Vec<_> = all.iter().filter(|line| !line.contains("delivered")).map(String::as_str).collect();
    assert_eq!(
        all,
        [
            "0 rolls session_lost",
            &format!("0 x2 client_to_server 0 {INITIALIZE}"),
            &format!("0 x2 server_to_client 52 {WELCOME}"),
            "0 exchange 2 complete",
            "0 exchange 1 complete",
        ]
    );
    let mut told = Vec::new();
    let mut demux = bridge();
    for (flow, ns, entry) in &s.0 {
        demux.take(*flow, *ns, entry.clone(), &mut |_, _| ());
        while demux.hand_out(&mut |_, seen| {
            if let Seen::Exchange(one) = seen {
                told.push(one.detail);
            }
        }) {}
    }
    let last = told.iter().rfind(|d| d.exchange == 1).unwrap();
    assert_eq!(last.carries, [RpcId::Int(7), RpcId::Text("a".into())]);
    assert!(last.notes.is_empty() && last.origin == ExchangeOrigin::Bridge && last.client.is_none());
}

#[test]
fn an_event_that_is_sent_again_on_a_stream_that_continues_another_is_known_also_after_a_crash() {
    const ANSWER: &str = "id: 7\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n";
    let mut s = Script::default();
    s.request(1, "POST", None, INITIALIZE);
    s.answer(1, 200, "application/json", Some("s1"));
    s.body(Flow::response(1), WELCOME);
    s.request(2, "POST", Some("s1"), CALL);
    s.answer(2, 200, "text/event-stream", None);
    s.data(Flow::response(2), 0, ANSWER);
    s.end(Flow::response(2), ANSWER.len() as u64, Cause::UpstreamLost);
    // One that continues nothing may use the id once more.
    for (exchange, last) in [(3, None), (4, Some("#7"))] {
        s.request(exchange, "GET", Some("s1"), "");
        let at = s.0.len() - 2;
        let Entry::Request(head) = &mut s.0[at].2 else { panic!() };
        head.values.extend(last.map(|id| ("last-event-id".to_owned(), id.to_owned())));
        s.answer(exchange, 200, "text/event-stream", None);
        s.data(Flow::response(exchange), 0, ANSWER);
    }
    for at in 0..=s.0.len() {
        let mut first = demux();
        let mut all = seen(&mut first, &s.0[..at]);
        let tmp = tempfile::tempdir().unwrap();
        let mut file = StateFile::beside(&tmp.path().join("x.log.ring"));
        file.write(&first.state(at as u64)).unwrap();
        let mut second = demux();
        second.restore(file.read().unwrap().unwrap()).unwrap();
        all.extend(seen(&mut second, &s.0[at..]));
        let again: Vec<_> = all.iter().filter(|line| line.ends_with("(again)")).map(String::as_str).collect();
        assert_eq!(again, ["0 x4 server_to_client 0 (again)"], "entry {at}");
    }
}

fn ruling(direction: Direction, offset: u64, blocked: bool) -> &'static [u8] {
    let policy = "sha256:x".to_owned();
    let decisions = Vec::new();
    RulingRecord { direction, offset, frame: None, blocked, ns: 1, policy, decisions }.to_bytes().leak()
}

/// A call that passes, with a stream in which a request is taken out, and one that is refused.
fn guarded() -> Script {
    let mut s = Script::default();
    let (c2s, s2c) = (Direction::ClientToServer, Direction::ServerToClient);
    for (n, blocked) in [(1, false), (2, true), (3, true)] {
        s.request(n, "POST", Some("s1"), "");
        // The end of a body stands behind what was decided about it.
        let end = s.0.pop().unwrap();
        let text = if n == 3 { &CALL[..20] } else { CALL };
        s.put(Flow::request(n), Entry::Data { offset: 0, bytes: text.as_bytes(), own: false });
        s.put(Flow::request(n), Entry::Ruling { end: 20, record: ruling(c2s, 0, blocked) });
        s.0.push(end);
        if n == 3 {
            s.0.pop();
            s.end(Flow::request(n), 20, Cause::Refused);
        }
    }
    s.answer(1, 200, "text/event-stream", None);
    let flow = Flow::response(1);
    let asks = "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\"}\n\n";
    let both = [asks, EVENT].concat().leak();
    s.put(flow, Entry::Data { offset: 0, bytes: both.as_bytes(), own: false });
    s.put(flow, Entry::Ruling { end: asks.len() as u64, record: ruling(s2c, 0, true) });
    s.put(flow, Entry::Wrote { upto: both.len() as u64 });
    s.end(flow, both.len() as u64, Cause::Complete);
    s.put(Flow::response(2), Entry::Data { offset: 0, bytes: WELCOME.as_bytes(), own: true });
    s.end(Flow::response(2), WELCOME.len() as u64, Cause::Complete);
    s
}

#[test]
fn what_a_guard_decided_comes_with_its_message() {
    let all = seen(&mut demux_of(true), &guarded().0);
    let event = &EVENT[21..EVENT.len() - 2];
    let expected = [
        format!("0 x1 client_to_server 0 {CALL} (decided)"),
        format!("0 x2 client_to_server 0 {CALL} (blocked)"),
        format!("0 x3 client_to_server 0 {} (blocked)", &CALL[..20]),
        "0 x1 server_to_client 0 {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\"} (blocked)".to_owned(),
        format!("0 x1 server_to_client 45 {event}"),
    ];
    let found: Vec<_> = all.iter().filter(|line| line.contains("_to_") && !line.contains("delivered")).collect();
    assert_eq!(found, expected.iter().collect::<Vec<_>>(), "our own answer is no message");
}

#[test]
fn what_a_guard_decided_is_in_the_state_at_any_entry() {
    let script = guarded().0;
    let whole = seen(&mut demux_of(true), &script);
    for at in 0..=script.len() {
        let mut first = demux_of(true);
        let mut both = seen(&mut first, &script[..at]);
        let tmp = tempfile::tempdir().unwrap();
        let mut file = StateFile::beside(&tmp.path().join("x.log.ring"));
        file.write(&first.state(at as u64)).unwrap();
        let mut second = demux_of(true);
        second.restore(file.read().unwrap().unwrap()).unwrap();
        both.extend(seen(&mut second, &script[at..]));
        assert_eq!(both, whole, "entry {at}");
    }
}

#[test]
fn what_a_killed_guard_had_not_decided_about_is_undecided() {
    let script = guarded().0;
    let at = script.iter().rposition(|(_, _, entry)| matches!(entry, Entry::Ruling { .. })).unwrap();
    let mut demux = demux_of(true);
    let before = seen(&mut demux, &script[..at]);
    assert!(!before.iter().any(|line| line.contains("server_to_client")), "it waits: {before:#?}");
    let mut undecided = 0;
    demux.killed(9, &mut |_, seen| undecided += usize::from(matches!(seen, Seen::Message(m) if m.undecided)));
    assert_eq!(undecided, 2);
}

#[test]
fn a_long_message_that_begins_a_session_is_not_copied() {
    let filler = "x".repeat(2 << 20);
    let text = |text: String| -> &'static str { text.leak() };
    let call = text(CALL.replace("\"t\"", &format!("\"{filler}\"")));
    let json = text(format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"a":"{filler}"}}}}"#));
    let event = text(format!("data: {json}\n\n"));
    for (asked, kind, answered) in
        [(call, "application/json", WELCOME), ("", "application/json", json), ("", "text/event-stream", event)]
    {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AuditDir::at(tmp.path().join("a"));
        dir.create().unwrap();
        let mut demux = demux();
        demux.spools = Box::new(move |flow| {
            let path = dir.live().join(format!("{}.spool", flow.direction.as_str()));
            Some(SpoolPlace { files: dir.files().clone(), path, from: None })
        });
        let mut s = Script::default();
        s.request(1, if asked.is_empty() { "GET" } else { "POST" }, None, asked);
        s.answer(1, 200, kind, None);
        let flow = Flow::response(1);
        for (n, piece) in answered.as_bytes().chunks(64 << 10).enumerate() {
            s.data(flow, (n << 16) as u64, std::str::from_utf8(piece).unwrap());
        }
        s.end(flow, answered.len() as u64, Cause::Complete);
        let (mut begun, mut long, mut overs) = (0, 0, 0);
        let mut note = |_: SessionKey, seen: Seen<'_>| match seen {
            Seen::Begins(_) => begun += 1,
            Seen::Message(m) if m.bytes.len() > IN_MEMORY => {
                assert!(m.page.is_some(), "it is where it was kept");
                assert_eq!(begun, 1);
                long += 1;
            }
            Seen::Exchange(told) if told.stage == Stage::Over => {
                let sha256 = |text: &str| Some(canon::sha256_hex(text.as_bytes()));
                assert_eq!(told.detail.request.sha256, sha256(asked));
                assert_eq!(told.detail.response.unwrap().sha256, sha256(answered));
                overs += 1;
            }
            _ => {}
        };
        for (flow, ns, entry) in s.0 {
            demux.take(flow, ns, entry, &mut note);
            while demux.hand_out(&mut note) {}
        }
        demux.tick(u64::MAX / 2);
        while demux.hand_out(&mut note) {}
        assert_eq!((begun, long, overs), (1, 1, 1), "{kind}");
    }
}
