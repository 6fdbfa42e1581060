//! What is decided about a message does not depend on how it came: a whole message, judged without any stream, has the verdicts
//! and the replies that the gate gives the same bytes in one.

use assay::{
    guard::{Message, Ruling, Session, inspect::LineBreaks, judge_message},
    model::Direction,
    record::judge::Decision,
};
use assay_support::guard::{
    cases::{cases, line},
    oracle::{self, ALLOWED, POLICY, relayed},
};

/// What is decided about a message, and what its sender is told.
#[derive(Debug, PartialEq, Eq)]
struct Judged {
    passes: bool,
    decisions: Vec<Decision>,
    policy: String,
    reply: Vec<u8>,
}

/// Judged as it is, by no gate.
fn directly(session: &Session, direction: Direction, text: &[u8], breaks: LineBreaks) -> Judged {
    let ruling: Ruling<'_> = judge_message(Message { direction, text, breaks, captured: true }, session);
    if ruling.passes() {
        ruling.forwarded(session, 1);
    }
    Judged {
        passes: ruling.passes(),
        decisions: ruling.decisions().cloned().collect(),
        policy: ruling.policy().to_owned(),
        reply: ruling.reply().unwrap_or_default(),
    }
}

/// Judged in a stream, which each of these is a message of; none of them holds a newline.
fn in_a_stream(direction: Direction, policy: &str, messages: &[&[u8]]) -> Vec<Judged> {
    let sent: Vec<u8> = messages.iter().flat_map(|text| [text, &b"\n"[..]].concat()).collect();
    let there = relayed(policy, &sent, &[], 1 << 20, direction == Direction::ServerToClient);
    let mut passed = &there.passed[..];
    let mut told = there.told.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let mut offset = 0;
    let judged = messages.iter().map(|text| {
        let ruling = there.decided.find(direction, offset);
        offset += text.len() as u64 + 1;
        let passes = ruling.as_ref().is_none_or(|ruling| !ruling.blocked);
        if passes {
            passed = passed.strip_prefix(&[text, &b"\n"[..]].concat()[..]).expect("what is not blocked passes");
        }
        let (decisions, policy) = ruling.map(|r| (r.decisions, r.policy)).unwrap_or_default();
        Judged { passes, decisions, policy, reply: Vec::new() }
    });
    let mut judged: Vec<_> = judged.collect();
    assert_eq!(passed.escape_ascii().to_string(), "", "what is blocked does not pass");
    for judged in judged.iter_mut().filter(|judged| !judged.passes) {
        // Who is told of what is in the replies themselves; that nobody is told is nowhere but in what the other side says.
        judged.reply = told.clone().next().unwrap_or_default().to_vec();
        told.next();
    }
    judged
}

/// Both ways, one message at a time.
fn same(direction: Direction, policy: &str, texts: &[Vec<u8>]) -> Vec<Judged> {
    let both = texts.iter().map(|text| {
        let alone = directly(&oracle::session(policy), direction, text, LineBreaks::AtEnd);
        let streamed = in_a_stream(direction, policy, &[text]).remove(0);
        assert_eq!(alone, streamed, "{}", text.escape_ascii());
        alone
    });
    both.collect()
}

/// A case as one message: what holds a newline is several in a stream.
fn texts() -> Vec<Vec<u8>> {
    let of_a_case = |(n, (_, text, _)): (usize, (&str, Vec<u8>, _))| {
        let line = line(&text, 1000 + n);
        line.strip_suffix(b"\n").unwrap().to_vec()
    };
    cases().into_iter().enumerate().map(of_a_case).filter(|text| !text.contains(&b'\n')).collect()
}

#[test]
fn a_message_is_judged_alike_with_and_without_a_stream() {
    let judged = same(Direction::ClientToServer, POLICY, &texts());
    assert!(judged.len() > 50, "{}", judged.len());
    assert!(judged.iter().all(|judged| !judged.passes && !judged.decisions.is_empty()), "{judged:?}");
    let call = |tool: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"}}}}"#);
    let (echo, read) = (call(ALLOWED[0]), call(ALLOWED[1]));
    let innocent = [
        echo.clone(),
        format!("[{echo},{read}]"),
        format!("{echo}\r"),
        r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#.to_owned(),
        r#"[{"jsonrpc":"2.0","method":"ping"}]"#.to_owned(),
        " \t".to_owned(),
    ];
    let judged = same(Direction::ClientToServer, POLICY, &innocent.map(String::into_bytes));
    assert!(judged.iter().all(|judged| judged.passes && judged.reply.is_empty()), "{judged:?}");
    assert_eq!(judged.iter().map(|judged| judged.decisions.len()).collect::<Vec<_>>(), [1, 2, 1, 0, 0, 0]);
    let long = [
        format!(r#"{{"id":1,"method":"x","params":"{}"}}"#, "y".repeat(70_000)),
        format!(r#"{{"method":"x","params":"{}"}}"#, "y".repeat(70_000)),
        format!(r#"{{"id":1,"result":"{}"}}"#, "y".repeat(70_000)),
        format!("[{}]", vec![echo; 300].join(",")),
    ];
    let judged = same(Direction::ClientToServer, POLICY, &long.map(String::into_bytes));
    assert!(judged.iter().all(|judged| !judged.passes));
    assert_eq!(judged.iter().map(|judged| judged.reply.is_empty()).collect::<Vec<_>>(), [false, false, true, false]);
}

#[test]
fn a_servers_message_is_judged_alike_with_and_without_a_stream() {
    for policy in [POLICY, "version: \"1\"\ndefault: deny\nallowlist: [sampling/createMessage]\n"] {
        let texts = [
            r#"{"id":1,"method":"sampling/createMessage","params":{"x":1}}"#,
            r#"{"method":"sampling/createMessage"}"#,
            r#"{"id":1,"method":"Sampling/CreateMessage"}"#,
            r#"{"id":1,"method":"sampling/createMessage","params":{},"Params":{}}"#,
            r#"[{"id":1,"result":{}},{"id":2,"method":"sampling/createMessage"}]"#,
            r#"[{"id":1,"result":{}},7]"#,
            r#"{"id":1,"result":{"Method":1}}"#,
            r#"{"id":1,"method":"elicitation/create"}"#,
            "noise",
            "[1",
            "  ",
        ];
        let judged = same(Direction::ServerToClient, policy, &texts.map(|text| text.as_bytes().to_vec()));
        let passing: Vec<_> = judged.iter().enumerate().filter(|(_, j)| j.passes).map(|(n, _)| n).collect();
        assert_eq!(passing, if policy == POLICY { vec![5, 6, 7, 10] } else { vec![0, 1, 5, 6, 7, 10] });
    }
}

#[test]
fn elicitation_is_judged_in_a_stream_where_a_rule_names_it() {
    let ask = br#"{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{}}"#.to_vec();
    for (rules, decided) in [
        ("default: deny\n", None),
        ("default: deny\nallowlist: [elicitation/create]\n", Some(true)),
        ("default: allow\ndenylist: [elicitation/create]\n", Some(false)),
    ] {
        let policy = format!("version: \"1\"\n{rules}");
        let judged = same(Direction::ServerToClient, &policy, std::slice::from_ref(&ask)).remove(0);
        assert_eq!(judged.passes, decided != Some(false), "{rules}");
        assert_eq!(judged.decisions.len(), usize::from(decided.is_some()), "{rules}");
        assert_eq!(judged.reply.is_empty(), judged.passes, "{rules}");
    }
}

#[test]
fn budgets_and_open_ids_belong_to_a_session() {
    let policy = "version: \"1\"\ndefault: allow\nconstraints:\n  echo:\n    max_calls: 1\n";
    let texts: [&[u8]; 5] = [
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#,
        br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}"#,
        br#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"other"}}"#,
        br#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}"#,
        br#"[{"jsonrpc":"2.0","id":4,"method":"ping"},{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo"}}]"#,
    ];
    for _ in 0..2 {
        let session = oracle::session(policy);
        let client = Direction::ClientToServer;
        let alone = texts.map(|text| directly(&session, client, text, LineBreaks::AtEnd));
        let mut streamed = in_a_stream(client, policy, &texts);
        // The notification is told nothing: the reply behind it is the batch's.
        let reply = std::mem::take(&mut streamed[3].reply);
        streamed[4].reply = reply;
        assert_eq!(alone.each_ref().map(|judged| judged.passes), [true, false, true, false, false]);
        assert_eq!(&alone[..], streamed);
    }
    let answer = br#"{"jsonrpc":"2.0","id":"s","result":{}}"#;
    let question = br#"{"jsonrpc":"2.0","id":"s","method":"roots/list"}"#;
    let (one, other) = (oracle::session(policy), oracle::session(policy));
    assert!(directly(&one, Direction::ServerToClient, question, LineBreaks::AtEnd).passes);
    let answered = |session| directly(session, Direction::ClientToServer, answer, LineBreaks::AtEnd);
    let refused = answered(&other);
    assert_eq!((refused.passes, refused.decisions[0].reason.as_str()), (false, "guard:answers_nothing"));
    assert!(answered(&one).passes);
    assert!(!answered(&one).passes, "it is answered");
}

#[test]
fn what_cannot_be_recorded_does_not_pass() {
    let call = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;
    let session = oracle::session(POLICY);
    let message =
        Message { direction: Direction::ClientToServer, text: call, breaks: LineBreaks::AtEnd, captured: true };
    let mut ruling = judge_message(message, &session);
    assert!(ruling.passes() && ruling.reply().is_none());
    ruling.unrecorded(&session);
    let unseen = judge_message(Message { captured: false, ..message }, &session);
    for ruling in [ruling, unseen] {
        assert!(!ruling.passes());
        assert_eq!(ruling.decisions().map(|d| d.reason.as_str()).collect::<Vec<_>>(), ["guard:recorder_unavailable"]);
        let reply = String::from_utf8(ruling.reply().unwrap()).unwrap();
        assert!(reply.contains(r#""id":1,"#) && reply.contains("guard.recorder_unavailable"), "{reply}");
    }
    let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert!(judge_message(Message { text: ping, captured: false, ..message }, &session).passes());
}

#[test]
fn a_carrier_without_lines_gets_the_same_verdicts() {
    for text in texts() {
        let session = oracle::session(POLICY);
        let line = directly(&session, Direction::ClientToServer, &text, LineBreaks::AtEnd);
        let body = directly(&session, Direction::ClientToServer, &text, LineBreaks::Anywhere);
        let only_broken = text.contains(&b'\r');
        assert!(only_broken || line == body, "{}", text.escape_ascii());
        let spread = text.strip_prefix(b"{").map(|rest| [b"{\r\n", rest, b"\n"].concat());
        if let Some(spread) = spread.filter(|_| !only_broken) {
            let spread = directly(&session, Direction::ClientToServer, &spread, LineBreaks::Anywhere);
            assert_eq!(
                (spread.passes, spread.reply.is_empty()),
                (body.passes, body.reply.is_empty()),
                "{}",
                text.escape_ascii()
            );
        }
    }
}
