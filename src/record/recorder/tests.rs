use super::*;
use crate::model::words::OutcomeReason;
use crate::{
    model::{
        AuditEvent, CallAnomaly, Detail, EventKind, Outcome, PolicyVerdict, Profile, ToolCall, Transport, Word,
        event::hash_of_line,
    },
    record::{content, recorder::restore::OnDisk, stream::StreamId},
};
use Direction::{ClientToServer as C2S, ServerToClient as S2C};
use proptest::prelude::*;
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};

fn setup(store: bool) -> Arc<Setup> {
    Arc::new(Setup {
        profile: Profile::Audit,
        transport: Transport::Stdio,
        server_id: "srv".into(),
        origin: Origin::of_command(vec!["srv".into()], false),
        http: None,
        store_args: store,
        cleartext: crate::record::redact::Cleartext::default(),
        store_results: store,
        store_limit: 1 << 20,
        redact: None,
        policy_hash: None,
        surface: None,
        witness: None,
    })
}

fn begin(bits: u64) -> Begin {
    Begin {
        session: SessionId::from_bits(bits),
        continues: None,
        started_ns: 1_000_000,
        started_at: WallTime::from_millis(1_700_000_000_000),
        clock: Clock::new(1_700_000_000_000_000_000 - 1_000_000),
        prev_hash: crate::model::GENESIS.into(),
    }
}

/// Plays a session message by message, each delivered at once.
struct Play {
    recorder: Recorder,
    offsets: [u64; 2],
    ns: u64,
    /// Calls are judged, and those of `no` kept back.
    guarded: bool,
}

/// What a guard says of a message.
fn judged(direction: Direction, offset: u64, text: &[u8], ns: u64) -> Option<RulingRecord> {
    let is_call = direction == C2S && memchr::memmem::find(text, b"tools/call").is_some();
    let blocked = memchr::memmem::find(text, b"\"no\"").is_some();
    let decision = |index| crate::record::judge::Decision {
        index,
        verdict: if blocked { PolicyVerdict::Denied } else { PolicyVerdict::Allowed },
        reason: if blocked { "denylist" } else { "allowlist" }.into(),
        rule: Some("rule".into()),
        unseen: vec!["redirects_not_seen".into()],
    };
    let batch = text.first() == Some(&b'[');
    let decisions = if batch { vec![decision(Some(0)), decision(Some(1))] } else { vec![decision(None)] };
    is_call.then(|| RulingRecord { direction, offset, frame: None, blocked, ns, policy: "sha256:p".into(), decisions })
}

impl Play {
    fn new(store: bool) -> Self {
        Self::of(Recorder::begin(setup(store), begin(7)))
    }

    fn of(recorder: Recorder) -> Self {
        Self { recorder, offsets: [0; 2], ns: 1_000_000, guarded: false }
    }

    fn read(&mut self, direction: Direction, text: &[u8]) {
        let offset = self.offsets[direction.lane()];
        self.offsets[direction.lane()] = self.read_at(MessagePlace::stdio(direction, offset), text);
    }

    /// Reads a message at this place; where it ends.
    fn read_at(&mut self, place: MessagePlace, text: &[u8]) -> u64 {
        self.ns += 1_000_000;
        let end = place.offset + text.len() as u64 + 1;
        let ruling = judged(place.direction(), place.offset, text, self.ns + 100).filter(|_| self.guarded);
        let m = Message {
            place,
            end,
            bytes: text,
            sha256: &OnceCell::new(),
            page: None,
            rest: &|| (),
            first_byte_ns: self.ns - 500,
            read_ns: self.ns,
            ruling: ruling.as_ref(),
            undecided: false,
            anomalies: &[],
            resumable: false,
        };
        assert!(self.recorder.message(&m).is_empty());
        end
    }

    fn delivered(&mut self) {
        self.ns += 1000;
        for d in [C2S, S2C] {
            let at = self.ns;
            self.recorder.delivered(StreamId::Stdio(d), self.offsets[d.lane()], &|_| Some(at));
        }
    }

    fn both(&mut self, direction: Direction, text: impl AsRef<[u8]>) -> &mut Self {
        self.read(direction, text.as_ref());
        self.delivered();
        self
    }

    fn c2s(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.both(C2S, text)
    }

    fn s2c(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.both(S2C, text)
    }

    fn end(&mut self, ending: &Ending) -> crate::model::SessionDoc {
        self.recorder.end(ending, self.ns)
    }

    fn events(&self) -> Vec<AuditEvent> {
        events(&self.recorder.lines.segment)
    }

    fn calls(&self) -> Vec<ToolCall> {
        let lines = self.recorder.lines.receipts.split(|b| *b == b'\n').filter(|l| !l.is_empty());
        lines.filter_map(|l| serde_json::from_slice::<ToolCall>(l).ok()).collect()
    }

    fn kinds(&self) -> Vec<String> {
        self.events().iter().map(|e| e.event.as_str().to_owned()).collect()
    }
}

/// Checks lines and chain on the way.
fn events(segment: &[u8]) -> Vec<AuditEvent> {
    let mut head: Option<AuditEvent> = None;
    let mut all = Vec::new();
    for line in segment.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        assert!(canon::is_canonical(line), "{}", String::from_utf8_lossy(line));
        let e: AuditEvent = serde_json::from_slice(line).unwrap();
        assert_eq!(hash_of_line(line).as_ref(), Some(&e.hash));
        if let Some(head) = &head {
            assert_eq!((e.event_seq, &e.prev_hash), (head.event_seq + 1, &head.hash));
        }
        head = Some(e.clone());
        all.push(e);
    }
    all
}

fn call(id: &str, tool: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"b":1,"a":2}}}}}}"#
    )
}

fn ok(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"isError":false}}}}"#)
}

fn clean() -> Ending {
    Ending {
        reason: "client_closed".into(),
        no_response: Some(OutcomeReason::ClientClosed),
        clean: true,
        pending_is_clean: true,
        ..Ending::default()
    }
}

#[test]
fn a_call_is_four_events_and_one_receipt_that_the_last_event_binds() {
    let mut p = Play::new(false);
    p.c2s(call("1", "echo")).s2c(ok("1"));
    let doc = p.end(&clean());
    assert_eq!(
        p.kinds(),
        ["chain_start", "request_received", "request_forwarded", "response_received", "response_sent", "chain_end"]
    );
    let calls = p.calls();
    assert_eq!(calls.len(), 1);
    let r = &calls[0];
    assert_eq!((r.outcome, r.seq, r.tool_name.as_str()), (Outcome::Forwarded, 1, "echo"));
    assert_eq!(r.arguments_hash, format!("sha256:{}", canon::sha256_hex(br#"{"a":2,"b":1}"#)));
    assert_eq!(r.result_hash, Some(format!("sha256:{}", canon::sha256_hex(br#"{"content":[],"isError":false}"#))));
    assert_eq!(r.phases_us.request_forwarded, Some(1));
    assert!(r.phases_us.response_forwarded > r.phases_us.response_observed);
    assert_eq!(r.duration_ms.unwrap().0, 1001);
    let sent = &p.events()[4];
    let Detail::ResponseSent(d) = &sent.detail else { panic!("{sent:?}") };
    let line = p.recorder.lines.receipts.split(|b| *b == b'\n').nth(1).unwrap();
    assert_eq!(d.receipt_sha256, Some(canon::sha256_hex(line)));
    assert!(doc.session_complete);
    assert_eq!((doc.receipt_count, doc.event_count, doc.counts.calls), (3, 6, 1));
}

#[test]
fn every_line_is_its_rfc_8785_form() {
    let mut p = Play::new(true);
    p.c2s(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"cé\n","version":"1"}}}"#)
        .s2c(r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","serverInfo":{"name":"s"}}}"#)
        .c2s(r#"{"jsonrpc":"2.0","id":"a\u0007","method":"tools/call","params":{"name":"t\u001b\"é","arguments":{"z":1.50,"a":"\u00e9\/"},"_meta":{"progressToken":0}}}"#)
        .s2c(r#"{"jsonrpc":"2.0","id":"a\u0007","error":{"code":-32601,"message":"no"}}"#);
    p.end(&clean());
    let mut lines = p.recorder.lines.receipts.split(|b| *b == b'\n').filter(|l| !l.is_empty()).peekable();
    assert!(lines.peek().is_some());
    for line in lines {
        assert!(canon::is_canonical(line), "{}", String::from_utf8_lossy(line));
    }
    p.events();
    let r = &p.calls()[0];
    assert_eq!(r.tool_name, "t\u{1b}\"é");
    assert_eq!((r.outcome, r.result_is_error), (Outcome::Error, Some(true)));
    assert_eq!(r.arguments_content.as_ref().unwrap().get(), r#"{"a":"é/","z":1.5}"#);
    assert_eq!(r.meta.as_ref().unwrap().get(), r#"{"progressToken":0}"#);
    let start: crate::model::SessionStart =
        serde_json::from_slice(p.recorder.lines.receipts.split(|b| *b == b'\n').next().unwrap()).unwrap();
    assert_eq!(start.server_info.unwrap().name, "s");
    assert_eq!(start.chain_head, p.events()[0].hash);
}

/// `(name, messages (c2s unless it begins with '<'), expected receipts as outcome:reason:anomalies)`.
#[test]
fn what_peers_do_and_what_receipts_say() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("is_error", &[&call("1", "x"), r#"<{"id":1,"result":{"isError":true}}"#], &["error::"]),
        (
            "numeric 1 is not the string 1",
            &[&call("1", "x"), &call("\"1\"", "y"), &format!("<{}", ok("\"1\"")), &format!("<{}", ok("1"))],
            &["forwarded::", "forwarded::"],
        ),
        (
            "an id in use",
            &[&call("1", "x"), &call("1", "y"), &format!("<{}", ok("1")), &format!("<{}", ok("1"))],
            &["forwarded::", "forwarded::duplicate_in_flight_id"],
        ),
        ("no answer", &[&call("1", "x")], &["timeout:client_closed:"]),
        (
            "cancelled, no answer",
            &[&call("1", "x"), r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#],
            &["timeout:cancelled_by_client:"],
        ),
        (
            "an answer after cancel",
            &[
                &call("1", "x"),
                r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#,
                &format!("<{}", ok("1")),
            ],
            &["forwarded::response_after_cancel"],
        ),
        (
            "as a notification",
            &[r#"{"method":"tools/call","params":{"name":"x","arguments":{}}}"#],
            &["timeout:notification:notification_call"],
        ),
        (
            "a batch",
            &[&format!("[{},{}]", call("1", "x"), call("2", "y")), &format!("<[{},{}]", ok("2"), ok("1"))],
            &["forwarded::batch_element", "forwarded::batch_element"],
        ),
        (
            "duplicate keys",
            &[
                r#"{"id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":1,"a":2}}}"#,
                &format!("<{}", ok("1")),
            ],
            &["forwarded::duplicate_key"],
        ),
        (
            "a number out of range",
            &[
                r#"{"id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":9007199254740993}}}"#,
                &format!("<{}", ok("1")),
            ],
            &["forwarded::number_out_of_range"],
        ),
        (
            "params that are an array",
            &[r#"{"id":1,"method":"tools/call","params":["x"]}"#, &format!("<{}", ok("1"))],
            &["forwarded::params_not_an_object,tool_name_missing"],
        ),
        (
            "a huge id",
            &[&call("99999999999999999999", "x"), &format!("<{}", ok("99999999999999999999"))],
            &["forwarded::id_out_of_range"],
        ),
        (
            "an id that the server re-escapes",
            &[&call(r#""a\u0062""#, "x"), &format!("<{}", ok("\"ab\""))],
            &["forwarded::"],
        ),
        (
            "a name that splits lines elsewhere",
            &[&call("1", "a\u{2028}b"), &format!("<{}", ok("1"))],
            &["forwarded::tool_name_not_verbatim"],
        ),
        (
            "a byte order mark",
            &[&format!("\u{feff}{}", call("1", "x")), &format!("<{}", ok("1"))],
            &["forwarded::byte_order_mark"],
        ),
        (
            "CRLF and blank lines",
            &[&format!("{}\r", call("1", "x")), "", "\r", &format!("<{}\r", ok("1"))],
            &["forwarded::"],
        ),
    ];
    for (name, messages, expected) in cases {
        let mut p = Play::new(false);
        for m in *messages {
            match m.strip_prefix('<') {
                Some(m) => p.s2c(m),
                None => p.c2s(m),
            };
        }
        p.end(&clean());
        let mut got: Vec<String> = p
            .calls()
            .iter()
            .map(|r| {
                format!(
                    "{}:{}:{}",
                    serde_json::to_value(r.outcome).unwrap().as_str().unwrap(),
                    r.outcome_reason.clone().unwrap_or_default(),
                    r.anomalies.iter().map(Word::as_str).collect::<Vec<_>>().join(",")
                )
            })
            .collect();
        got.sort();
        let mut expected: Vec<String> = expected.iter().map(|s| (*s).to_owned()).collect();
        expected.sort();
        assert_eq!(got, expected, "{name}");
        p.events();
    }
}

/// Denies everything, and has a rule for `elicitation/create` or for nothing.
struct Denies(bool);

impl crate::record::judge::Judge for Denies {
    fn begin(&mut self) -> String {
        "sha256:p".into()
    }

    fn names(&mut self, tool: &str) -> bool {
        self.0 && tool == "elicitation/create"
    }

    fn judge(&mut self, _: crate::record::judge::Subject<'_>, _: u64) -> (crate::record::judge::Decision, String) {
        let (verdict, reason) = (PolicyVerdict::Denied, "denylist".into());
        (crate::record::judge::Decision { index: None, verdict, reason, rule: None, unseen: Vec::new() }, String::new())
    }
}

#[test]
fn elicitation_is_judged_in_audit_where_a_rule_names_it() {
    for (named, expected) in [(false, 2), (true, 3)] {
        let mut p = Play::new(false);
        p.recorder.set_judge(Box::new(Denies(named)));
        p.s2c(r#"{"id":1,"method":"sampling/createMessage","params":{}}"#)
            .s2c(r#"{"id":2,"method":"elicitation/create","params":{}}"#)
            .c2s(call("1", "elicitation/create"));
        let decided = p.kinds().iter().filter(|kind| *kind == "policy_decision").count();
        assert_eq!(decided, expected, "a tool of that name is always judged");
        p.end(&clean());
    }
}

#[test]
fn server_requests_have_their_own_ids() {
    let mut p = Play::new(false);
    p.c2s(call("1", "x"))
        .s2c(r#"{"id":1,"method":"sampling/createMessage","params":{}}"#)
        .c2s(r#"{"id":1,"result":{"role":"assistant"}}"#)
        .s2c(ok("1"));
    p.end(&clean());
    let calls = p.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        calls[0].result_hash,
        Some(format!("sha256:{}", canon::sha256_hex(br#"{"content":[],"isError":false}"#)))
    );
    assert!(!p.kinds().contains(&"anomaly".to_owned()));
}

#[test]
fn what_is_not_recorded_and_what_is_an_anomaly() {
    let mut p = Play::new(false);
    p.c2s(r#"{"id":1,"method":"ping"}"#)
        .s2c(r#"{"id":1,"result":{}}"#)
        .s2c(r#"{"method":"notifications/progress","params":{"progressToken":0,"progress":1}}"#)
        .s2c(r#"{"method":"notifications/tools/list_changed"}"#)
        .s2c("Starting server on stdio...")
        .s2c(r#"{"id":1,"result":{}}"#)
        .s2c(r#"{"id":77,"result":{}}"#);
    assert_eq!(p.kinds(), ["chain_start", "notification", "malformed", "anomaly", "anomaly"]);
    let kind = |i: usize| match &p.events()[i].detail {
        Detail::Anomaly(d) => d.kind.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!((kind(3).as_str(), kind(4).as_str()), ("late_response", "unmatched_response"));
    assert_eq!(p.recorder.counts().malformed, 1);
}

/// What an event tells of lines that are no messages: kind, version, lines, offset, bytes, SHA-256.
fn junk_of(e: &AuditEvent) -> Option<(&str, u32, u64, u64, u64, String)> {
    let (lines, offset) = match &e.detail {
        Detail::Malformed(d) => (1, d.offset),
        Detail::MalformedLines(d) => (d.lines, d.offset),
        _ => return None,
    };
    Some((e.event.as_str(), e.v, lines, offset, e.wire_bytes?, e.wire_sha256.clone()?))
}

#[test]
fn lines_that_are_no_messages_and_follow_each_other_are_one_event() {
    let mut p = Play::new(false);
    // The same bytes as the server wrote them, from its first line to its last one of each part.
    let (first, alone) = ("starting\n\n  [INFO] listening\r\n\n{\"level\":30}", "done");
    for line in first.split('\n') {
        p.s2c(line);
    }
    p.s2c("");
    assert_eq!(p.kinds(), ["chain_start"], "they are collected");
    assert_eq!(p.recorder.junk_is_due(), Some(2_000_000 + 1_000_000_000), "a second after the first one");
    p.c2s(call("1", "a")).s2c(ok("1")).s2c(alone).c2s("what?").c2s("what?").s2c(alone).c2s("so");
    p.c2s(r#"{"id":7,"method":"ping"}"#).c2s("so").c2s("what?");
    let doc = p.end(&clean());
    let sha = |text: &str| canon::sha256_hex(text.as_bytes());
    let said: Vec<_> = p
        .events()
        .iter()
        .filter_map(junk_of)
        .map(|(kind, v, lines, _, bytes, sha)| (kind.to_owned(), v, lines, bytes, sha))
        .collect();
    let malformed = |text: &str| ("malformed".to_owned(), 1, 1, text.len() as u64, sha(text));
    let several = |lines, text: &str| ("malformed_lines".to_owned(), 5, lines, text.len() as u64, sha(text));
    let expected = [
        several(3, first),
        malformed(alone),
        several(2, "what?\nwhat?"),
        malformed(alone),
        // A message that leaves no event is between these two.
        malformed("so"),
        several(2, "so\nwhat?"),
    ];
    assert_eq!(said, expected);
    let kinds = p.kinds();
    assert_eq!(kinds[1..3], ["malformed_lines", "request_received"]);
    assert_eq!((doc.counts.malformed, doc.event_count), (10, kinds.len() as u64));
    let event = &p.events()[1];
    let Detail::MalformedLines(d) = &event.detail else { panic!("{event:?}") };
    assert_eq!((d.first_us, d.offset, event.direction), (1000, 0, Some(S2C)));
    // Blank lines take time, too: the last line is the fifth that was read.
    assert!(event.mono_us > 5000 && event.mono_us < 6000, "{}", event.mono_us);
}

#[test]
fn one_event_tells_of_a_thousand_lines_at_most() {
    let mut p = Play::new(false);
    for n in 0..2001 {
        p.s2c(format!("line {n}"));
    }
    p.end(&clean());
    let lines: Vec<u64> = p.events().iter().filter_map(junk_of).map(|(_, _, lines, ..)| lines).collect();
    assert_eq!(lines, [1000, 1000, 1]);
}

#[test]
fn lines_over_http_have_an_event_each() {
    let mut p = Play::new(false);
    let body = StreamId::Exchange { exchange: 1, direction: S2C };
    let end = p.read_at(MessagePlace { stream: body, offset: 0 }, b"junk");
    p.read_at(MessagePlace { stream: body, offset: end }, b"junk");
    assert_eq!(p.kinds(), ["chain_start", "malformed", "malformed"]);
}

#[test]
fn legs_of_one_call_are_linked() {
    let mut p = Play::new(false);
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"m","version":"1"}}"#;
    p.c2s(format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"ask","arguments":{{}},{meta}}}}}"#))
        .s2c(r#"{"id":1,"result":{"resultType":"input_required","inputRequests":{"k":{}},"requestState":"opaque"}}"#)
        .c2s(format!(r#"{{"id":2,"method":"tools/call","params":{{"name":"ask","arguments":{{}},"inputResponses":{{"k":{{}}}},"requestState":"opaque",{meta}}}}}"#))
        .s2c(r#"{"id":2,"result":{"resultType":"task","taskId":"t1"}}"#)
        .c2s(format!(r#"{{"id":3,"method":"tasks/get","params":{{"taskId":"t1",{meta}}}}}"#))
        .s2c(r#"{"id":3,"result":{"status":"working"}}"#)
        .c2s(format!(r#"{{"id":4,"method":"tasks/get","params":{{"taskId":"t1",{meta}}}}}"#))
        .s2c(r#"{"id":4,"result":{"status":"completed","result":{"content":[]}}}"#);
    let doc = p.end(&clean());
    let calls = p.calls();
    let chain: Vec<_> = calls.iter().map(|c| (c.result_type.clone().unwrap(), c.parent_receipt_id)).collect();
    assert_eq!(chain[0], ("input_required".into(), None));
    assert_eq!(chain[1], ("task".into(), Some(calls[0].receipt_id)));
    assert_eq!(chain[2], ("complete".into(), Some(calls[1].receipt_id)));
    assert_eq!(calls.len(), 3, "a poll that finds the task working is no leg");
    assert_eq!(doc.client_info.unwrap().name, "m");
    assert_eq!(doc.protocol_version.as_deref(), Some("2026-07-28"));
    assert!(matches!(&p.events()[1].detail, Detail::RequestReceived(d) if d.era == "modern"));
}

#[test]
fn a_leg_that_is_sent_before_the_one_before_is_closed_is_linked_too() {
    let mut p = Play::new(false);
    p.c2s(call("1", "ask"));
    p.read(S2C, br#"{"id":1,"result":{"resultType":"input_required","inputRequests":{"k":{}},"requestState":"s"}}"#);
    p.read(C2S, br#"{"id":2,"method":"tools/call","params":{"name":"ask","arguments":{},"inputResponses":{"k":{}},"requestState":"s"}}"#);
    p.delivered();
    p.s2c(ok("2"));
    let calls = p.calls();
    assert_eq!(calls[1].parent_receipt_id, Some(calls[0].receipt_id));
}

#[cfg(feature = "policy")]
#[test]
fn what_rules_match_is_stored_of_no_message_however_it_comes() {
    let mut loader = crate::redact::Loader::default();
    loader.file("r", br#"{ version: "1", rules: [ { name: s, regex: "s3cret" } ] }"#).unwrap();
    let rules = Arc::new(loader.finish().unwrap());
    let setup = Setup { redact: Some(rules), ..(*setup(true)).clone() };
    let mut p = Play::of(Recorder::begin(Arc::new(setup), begin(7)));
    let ask = |id: &str, arguments: &str| {
        format!(r#"{{{id}"method":"tools/call","params":{{"name":"x","arguments":{arguments}}}}}"#)
    };
    p.c2s(ask(r#""id":1,"#, r#"{"a":"my s3cret"}"#))
        .s2c(r#"{"id":1,"error":{"code":1,"message":"s3cret?"}}"#)
        .c2s(ask("", r#"{"b":["s3cret"]}"#))
        .c2s(format!("[{},{}]", ask(r#""id":2,"#, r#"{"s3cret":1}"#), ask(r#""id":3,"#, r#"{"c":1,"c":"s3cret"}"#)))
        .s2c(r#"[{"id":3,"result":{"\ud800":"s3cret"}},{"id":2,"result":{"é":"s3cret"}}]"#);
    p.end(&clean());
    let lines = &p.recorder.lines;
    for written in [&lines.receipts, &lines.segment, &lines.investigation] {
        assert!(memchr::memmem::find(written, b"s3cret").is_none(), "{}", String::from_utf8_lossy(written));
    }
    let all = p.calls();
    let of = |id: u64| all.iter().find(|r| r.mcp_request_id == crate::model::RpcId::Int(id as i64)).unwrap();
    let text = |raw: &Option<Box<serde_json::value::RawValue>>| raw.as_ref().map(|raw| raw.get().to_owned());
    assert_eq!(text(&of(1).arguments_content).unwrap(), r#"{"a":"my [redacted:s]"}"#);
    assert_eq!(text(&of(1).result_content).unwrap(), r#"{"code":1,"message":"[redacted:s]?"}"#);
    assert_eq!(text(&of(2).arguments_content).unwrap(), r#"{"[redacted:s]":1}"#);
    assert!(of(2).anomalies.contains(&CallAnomaly::ContentInInvestigationLog.into()), "its result is in the log");
    for word in [CallAnomaly::DuplicateKey, CallAnomaly::LoneSurrogate, CallAnomaly::RedactionNotPossible] {
        assert!(of(3).anomalies.contains(&word.into()), "{:?}", of(3).anomalies);
    }
    assert_eq!((text(&of(3).arguments_content), text(&of(3).result_content)), (None, None));
    let notified = all.iter().find(|r| r.anomalies.contains(&CallAnomaly::NotificationCall.into())).unwrap();
    assert_eq!(text(&notified.arguments_content).unwrap(), r#"{"b":["[redacted:s]"]}"#);
    let versions: Vec<&str> = [of(1), of(2), of(3), notified].iter().map(|r| r.schema_version.as_str()).collect();
    assert_eq!(versions, ["3.3", "3.3", "3.0", "3.3"]);
}

#[test]
fn stored_content_that_a_pack_cannot_hold_stays_in_the_investigation_log() {
    let mut p = Play::new(true);
    p.c2s(r#"{"id":1,"method":"tools/call","params":{"name":"x","arguments":{"é":1}}}"#)
        .s2c(r#"{"id":1,"result":{"big":1e30}}"#);
    p.end(&clean());
    let r = &p.calls()[0];
    assert!(r.arguments_content.is_none() && r.result_content.is_none());
    assert_eq!(r.anomalies, ["content_in_investigation_log"]);
    let log: Vec<Value> = p
        .recorder
        .lines
        .investigation
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    assert_eq!((log[0]["kind"].as_str(), &log[0]["content"]["é"]), (Some("arguments"), &Value::from(1)));
    assert_eq!(log[1]["kind"], "result");
    assert_eq!(log[1]["hash"], r.result_hash.clone().unwrap());
    assert!(!content::packable(br#"{"big":1e+30}"#));
}

#[test]
fn a_call_in_flight_is_receipted_in_the_session_in_which_it_ends() {
    let mut p = Play::new(false);
    p.c2s(call("1", "slow")).c2s(call("2", "quick")).s2c(ok("2"));
    let ending = Ending {
        reason: "rolled".into(),
        clean: true,
        pending_is_clean: true,
        carries_over: true,
        ..Ending::default()
    };
    let doc = p.end(&ending);
    assert!(doc.session_complete);
    let Detail::ChainEnd(end) = p.events().pop().unwrap().detail else { panic!("no end") };
    assert_eq!(end.carried_out.len(), 1);
    let (offsets, ns) = (p.offsets, p.ns);
    let mut next = Play {
        recorder: p.recorder.roll_into(Begin { prev_hash: "f".repeat(64), ..begin(8) }),
        offsets,
        ns,
        guarded: false,
    };
    next.s2c(ok("1"));
    next.end(&clean());
    let Detail::ChainStart(start) = next.events().remove(0).detail else { panic!("no start") };
    assert_eq!(start.carried_in, end.carried_out);
    assert_eq!(start.continues, Some(SessionId::from_bits(7)));
    let calls = next.calls();
    assert_eq!((calls.len(), calls[0].tool_name.as_str(), calls[0].invocation_id), (1, "slow", end.carried_out[0]));
}

#[test]
fn a_clock_that_steps_is_noted_and_durations_do_not_move() {
    let mut p = Play::new(false);
    p.c2s(call("1", "x"));
    let offset = 1_700_000_000_000_000_000 - 1_000_000 - 3_600_000_000_000;
    p.recorder.clock_now(offset, p.ns);
    p.s2c(ok("1"));
    let doc = p.end(&clean());
    assert_eq!(doc.clock_steps.len(), 1);
    assert_eq!(doc.clock_steps[0].delta_ms, -3_600_000);
    assert_eq!(p.calls()[0].duration_ms.unwrap().0, 1001);
    assert!(p.kinds().contains(&"anomaly".to_owned()));
}

#[test]
fn a_server_that_dies_with_a_call_in_flight_leaves_an_incomplete_session() {
    let mut p = Play::new(false);
    p.c2s(call("1", "x"));
    let doc = p.end(&Ending {
        reason: "server_exited".into(),
        no_response: Some(OutcomeReason::ServerExited),
        clean: true,
        ..Ending::default()
    });
    assert!(!doc.session_complete);
    assert_eq!(p.calls()[0].outcome_reason.as_deref(), Some("server_exited"));
}

#[test]
fn an_end_in_parts_is_the_end_at_once() {
    let play = || {
        let mut p = Play::new(false);
        for n in 0..100 {
            p.c2s(call(&n.to_string(), "x"));
        }
        p
    };
    let (mut at_once, mut in_parts) = (play(), play());
    let (doc, ns) = (at_once.recorder.end(&clean(), at_once.ns), in_parts.ns);
    let (mut segment, mut receipts, mut parts) = (Vec::new(), Vec::new(), 0);
    in_parts.recorder.lines.segment.clear();
    in_parts.recorder.lines.receipts.clear();
    while in_parts.recorder.close_open(&clean(), ns, 4096) {
        let lines = &mut in_parts.recorder.lines;
        assert!(lines.len() < 8192);
        segment.append(&mut lines.segment);
        receipts.append(&mut lines.receipts);
        parts += 1;
    }
    assert!(parts > 10);
    let json = |doc: &crate::model::SessionDoc| serde_json::to_string(doc).unwrap();
    assert_eq!(json(&in_parts.recorder.end(&clean(), ns)), json(&doc));
    segment.append(&mut in_parts.recorder.lines.segment);
    receipts.append(&mut in_parts.recorder.lines.receipts);
    assert!(at_once.recorder.lines.segment.ends_with(&segment));
    assert!(at_once.recorder.lines.receipts.ends_with(&receipts));
    assert_eq!(doc.counts.calls, 100);
}

/// What a crash can leave, and that reading the same bytes again gives the same evidence, once.
fn recover_at(script: &[(Direction, String)], cut: usize, extra_receipts: usize, guarded: bool) {
    let mut whole = Play { guarded, ..Play::new(false) };
    for (d, m) in script {
        whole.both(*d, m);
    }
    whole.recorder.say_junk();
    let all_events = whole.events();
    let cut = cut.min(all_events.len());
    let receipts: Vec<&[u8]> = whole.recorder.lines.receipts.split(|b| *b == b'\n').filter(|l| !l.is_empty()).collect();
    let bound: usize = all_events[..cut].iter().filter(|e| e.detail.binding().receipt_id.is_some()).count();
    // The session's first receipt precedes every bound one.
    let least = if bound > 0 { bound + 1 } else { 0 };
    let on_disk = (least + extra_receipts).min(receipts.len());
    let mut start = 0;
    let mut items = receipts[..on_disk].iter().map(|line| {
        let v: Value = serde_json::from_slice(line).unwrap();
        start += line.len() as u64 + 1;
        OnDisk {
            line: line.to_vec(),
            start: start - line.len() as u64 - 1,
            id: ReceiptId::parse(v["receipt_id"].as_str().unwrap()).unwrap(),
            kind: v["type"].as_str().unwrap().into(),
            sha256: canon::sha256_hex(line),
            counts: Counts { calls: u64::from(v["type"] == "mcp_tool_call"), ..Counts::default() },
            identity: None,
        }
    });
    let mut kept = all_events[..cut].iter().cloned();
    let restored = Recorder::restore(setup(false), begin(7), &mut std::iter::empty(), &mut kept, &mut items);
    let mut again = Play { guarded, ..Play::of(restored) };
    if cut == 0 {
        again.recorder.begin_restored();
    }
    for (d, m) in script {
        again.read(*d, m.as_bytes());
    }
    again.delivered();
    let cut_at = again.recorder.finish_restore().map_or(usize::MAX, |at| usize::try_from(at).unwrap());
    again.end(&Ending { reason: "crashed".into(), no_response: Some(OutcomeReason::ProxyKilled), ..Ending::default() });

    let mut segment: Vec<u8> =
        whole.recorder.lines.segment.split_inclusive(|b| *b == b'\n').take(cut).flatten().copied().collect();
    segment.extend_from_slice(&again.recorder.lines.segment);
    let after = events(&segment);
    let mut at = 0;
    let mut receipt_lines: Vec<Vec<u8>> = Vec::new();
    for line in &receipts[..on_disk] {
        if at < cut_at {
            receipt_lines.push(line.to_vec());
        }
        at += line.len() + 1;
    }
    receipt_lines
        .extend(again.recorder.lines.receipts.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(<[u8]>::to_vec));

    let seen = |evs: &[AuditEvent], kind: EventKind| {
        let mut n: HashMap<(Option<InvocationId>, Option<String>), u32> = HashMap::new();
        for e in evs.iter().filter(|e| e.event == kind) {
            *n.entry((e.invocation_id, e.wire_sha256.clone())).or_default() += 1;
        }
        n
    };
    for kind in [
        EventKind::RequestReceived,
        EventKind::ResponseReceived,
        EventKind::RequestForwarded,
        EventKind::Malformed,
        EventKind::MalformedLines,
        EventKind::PolicyDecision,
        EventKind::RequestBlocked,
    ] {
        assert_eq!(seen(&after, kind), seen(&all_events, kind), "{kind:?} cut {cut} receipts {on_disk}");
    }
    // Every receipt once, in the order in which the chain binds them.
    let ids: Vec<Value> = receipt_lines.iter().map(|l| serde_json::from_slice::<Value>(l).unwrap()).collect();
    for (seq, v) in ids.iter().enumerate() {
        assert_eq!(v["seq"], seq as u64, "cut {cut} receipts {on_disk}");
    }
    let in_file: Vec<String> = receipt_lines[1..receipt_lines.len() - 1].iter().map(|l| canon::sha256_hex(l)).collect();
    let in_chain: Vec<String> = after
        .iter()
        .filter_map(|e| Some(String::from_utf8(e.detail.binding().receipt_sha256?.to_vec()).unwrap()))
        .collect();
    assert_eq!(in_file, in_chain, "cut {cut} receipts {on_disk}");
    agree(&after, &receipt_lines);
    let calls = |m: &str| m.matches("tools/call").count();
    let wanted: usize = script.iter().filter(|(d, _)| *d == C2S).map(|(_, m)| calls(m)).sum();
    assert_eq!(in_file.len(), wanted, "cut {cut} receipts {on_disk}");
}

/// Receipts say what the events say, whichever of them were written before the crash.
fn agree(events: &[AuditEvent], receipts: &[Vec<u8>]) {
    for call in receipts.iter().filter_map(|l| serde_json::from_slice::<ToolCall>(l).ok()) {
        let of = |kind| events.iter().find(|e| e.event == kind && e.invocation_id == Some(call.invocation_id));
        let Some(request) = of(EventKind::RequestReceived) else { continue };
        let after = |kind| of(kind).map(|e| e.mono_us.saturating_sub(request.mono_us));
        assert_eq!(call.request_observed_at, request.at);
        assert_eq!(call.response_observed_at, of(EventKind::ResponseReceived).map(|e| e.at));
        assert_eq!(call.phases_us.request_forwarded, after(EventKind::RequestForwarded));
        assert_eq!(call.phases_us.response_observed, after(EventKind::ResponseReceived));
        assert_eq!(call.phases_us.response_forwarded, after(EventKind::ResponseSent));
        assert_eq!(call.phases_us.policy_decided, after(EventKind::PolicyDecision));
    }
}

fn script() -> Vec<(Direction, String)> {
    vec![
        (C2S, r#"{"id":0,"method":"initialize","params":{}}"#.into()),
        (S2C, r#"{"id":0,"result":{"serverInfo":{"name":"s"}}}"#.into()),
        (C2S, call("1", "a")),
        (C2S, call("2", "b")),
        (S2C, "junk".into()),
        (S2C, "[WARN] more of it".into()),
        (S2C, String::new()),
        (S2C, "and more".into()),
        (S2C, ok("2")),
        (S2C, "[INFO] alone".into()),
        (C2S, r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#.into()),
        (C2S, call("3", "c")),
        (S2C, ok("3")),
        (S2C, ok("1")),
        (C2S, call("4", "d")),
    ]
}

#[test]
fn a_crash_between_any_two_lines_loses_and_repeats_nothing() {
    let script = script();
    for cut in 0..40 {
        for extra in 0..5 {
            recover_at(&script, cut, extra, false);
            recover_at(&guarded_script(), cut, extra, true);
        }
    }
}

fn guarded_script() -> Vec<(Direction, String)> {
    let mut script = script();
    script.insert(3, (C2S, call("21", "no")));
    script.insert(6, (C2S, format!("[{},{}]", call("22", "no"), call("23", "yes"))));
    script.insert(9, (C2S, call("1", "no")));
    script.push((C2S, call("24", "no")));
    script
}

#[test]
fn what_a_guard_kept_back_is_denied_and_never_forwarded() {
    let mut p = Play { guarded: true, ..Play::new(false) };
    for (d, m) in guarded_script() {
        p.both(d, m);
        // A clock that is slewed a little changes nothing that was said already.
        let offset = 1_700_000_000_000_000_000 - 1_000_000 + p.ns as i64 / 3;
        p.recorder.clock_now(offset, p.ns);
    }
    p.end(&clean());
    let events = p.events();
    let decided: HashMap<_, _> = events
        .iter()
        .filter(|e| e.event == EventKind::PolicyDecision)
        .map(|e| (e.invocation_id.unwrap(), e.at))
        .collect();
    let calls = p.calls();
    assert_eq!((calls.len(), decided.len()), (9, 9));
    for call in &calls {
        let denied = call.tool_name == "no" || call.tool_name == "yes";
        assert_eq!(call.outcome == Outcome::Denied, denied);
        assert_eq!(call.policy_decided_at, Some(decided[&call.invocation_id]));
        assert_eq!(call.phases_us.policy_decided, Some(0));
        assert_eq!(call.phases_us.request_forwarded.is_none(), denied);
        assert_eq!((call.duration_ms.is_none(), call.policy_hash.as_deref()), (denied, Some("sha256:p")));
        assert!(call.anomalies.contains(&CallAnomaly::RedirectsNotSeen.into()));
        let of =
            |kind| events.iter().filter(|e| e.event == kind && e.invocation_id == Some(call.invocation_id)).count();
        assert_eq!(
            (of(EventKind::RequestBlocked), of(EventKind::RequestForwarded)),
            if denied { (1, 0) } else { (0, 1) }
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_recorder_fail(messages in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..80)), 0..12)) {
        let mut p = Play::new(true);
        for (up, bytes) in &messages {
            p.both(if *up { C2S } else { S2C }, bytes);
        }
        p.end(&clean());
        p.events();
    }

    #[test]
    fn nor_does_anything_that_looks_like_json_rpc(messages in proptest::collection::vec((any::<bool>(), 0u8..4, "tools/call|ping|tasks/get|notifications/cancelled|\\PC{0,5}", "\\PC{0,6}"), 0..16)) {
        let mut p = Play::new(true);
        for (up, id, method, name) in &messages {
            let m = serde_json::json!({"id": id, "method": method, "params": {"name": name, "taskId": name, "requestId": id, "arguments": {name.clone(): name}}});
            let m = if *id == 3 { serde_json::json!({"id": 1, "result": {"taskId": name, "x": name}}) } else { m };
            p.both(if *up { C2S } else { S2C }, m.to_string());
        }
        p.end(&clean());
        p.events();
        for line in p.recorder.lines.receipts.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            prop_assert!(canon::is_canonical(line));
        }
    }
}

#[test]
fn ids_of_two_exchanges_never_meet_and_each_stream_is_delivered_by_itself() {
    let body = |exchange, direction| StreamId::Exchange { exchange, direction };
    let at = |exchange, direction| MessagePlace { stream: body(exchange, direction), offset: 0 };
    let call = |tool: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#)
    };
    let mut p = Play::new(false);
    let ends = [
        p.read_at(at(1, C2S), call("one").as_bytes()),
        p.read_at(at(2, C2S), call("two").as_bytes()),
        p.read_at(at(2, S2C), br#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        p.read_at(at(1, S2C), br#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#),
    ];
    // A server asks in the stream of one exchange, and is answered in another.
    let asks = MessagePlace { offset: ends[2], ..at(2, S2C) };
    let asks = p.read_at(asks, br#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#);
    let answers = p.read_at(at(3, C2S), br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let ns = p.ns;
    let mut deliver = |exchange, direction, upto| p.recorder.delivered(body(exchange, direction), upto, &|_| Some(ns));
    deliver(1, C2S, ends[0]);
    deliver(2, C2S, ends[1]);
    deliver(2, S2C, ends[2] - 1);
    deliver(1, S2C, ends[3]);
    assert_eq!(p.calls().len(), 1, "the answer of the other exchange is not through yet");
    let mut deliver = |exchange, direction, upto| p.recorder.delivered(body(exchange, direction), upto, &|_| Some(ns));
    deliver(2, S2C, asks);
    deliver(3, C2S, answers);
    let calls: Vec<_> = p.calls().into_iter().map(|call| (call.tool_name, call.outcome)).collect();
    assert_eq!(calls, [("one".to_owned(), Outcome::Error), ("two".to_owned(), Outcome::Forwarded)]);
    assert!(p.calls().iter().all(|call| call.anomalies.is_empty()), "{:?}", p.calls());
    assert_eq!(p.kinds().iter().filter(|kind| *kind == "response_sent").count(), 3);
    let ids: std::collections::BTreeSet<_> = p.events().into_iter().filter_map(|e| e.invocation_id).collect();
    assert_eq!(ids.len(), 3, "three requests, all at offsets and with ids that another one has, too");
    assert!(p.recorder.awaiting.is_empty(), "an exchange that is over leaves nothing behind");
}
