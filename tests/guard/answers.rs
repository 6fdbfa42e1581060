//! Bodies of answers in pieces of any size: what is allowed passes byte for byte, what is denied is taken out.

use assay::{
    guard::{
        Session,
        http::{AnswerBody, AnswerFacts, AnswerForm, Asked, Desk, Head, RequestFacts, review_request},
    },
    record::rulings::RulingRecord,
    sse::{Framer, Item},
};
use assay_support::guard::oracle::{self, POLICY};
use proptest::prelude::*;
use std::sync::Arc;

const SAMPLING: &str = r#"{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{}}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#;

/// Where rulings go; it takes so many.
struct Records {
    all: Vec<(u64, RulingRecord)>,
    room: usize,
    captured: bool,
}

impl Desk for Records {
    fn record(&mut self, end: u64, ruling: &RulingRecord) -> bool {
        let is_room = self.all.len() < self.room;
        if is_room {
            self.all.push((end, ruling.clone()));
        }
        is_room
    }

    fn is_captured(&self) -> bool {
        self.captured
    }

    fn exchange(&self) -> u64 {
        1
    }
}

/// What became of a body.
#[derive(Debug)]
struct Became {
    passed: Vec<u8>,
    head: Head,
    replies: Vec<String>,
    /// Offsets before and after each message that was decided about, and whether it was blocked.
    ruled: Vec<(u64, u64, bool)>,
}

struct Run {
    body: AnswerBody,
    desk: Records,
    passed: Vec<u8>,
    upto: u64,
    sent: u64,
}

impl Run {
    fn new(form: AnswerForm, status: u16, session: Session) -> Self {
        let facts = AnswerFacts { status, headers: &[] };
        let desk = Records { all: Vec::new(), room: usize::MAX, captured: true };
        Self {
            body: AnswerBody::new(&facts, form, asked(), Arc::new(session)),
            desk,
            passed: Vec::new(),
            upto: 0,
            sent: 0,
        }
    }

    fn push(&mut self, piece: &[u8]) {
        let Self { body, desk, passed, upto, sent } = self;
        *sent += piece.len() as u64;
        body.push(piece, desk, &mut |bytes, at| {
            assert!(at >= *upto && at <= *sent, "{at} after {upto} of {sent}");
            *upto = at;
            passed.extend(bytes);
        });
    }

    fn finish(mut self) -> Became {
        let Self { body, desk, passed, upto, sent } = &mut self;
        body.finish(desk, &mut |bytes, at| {
            assert!(at >= *upto && at <= *sent, "{at} after {upto} of {sent}");
            *upto = at;
            passed.extend(bytes);
        });
        let replies = self.body.replies().into_iter().map(|r| String::from_utf8(r).unwrap()).collect();
        let ruled = self.desk.all.iter().map(|(end, r)| (r.offset, *end, r.blocked)).collect();
        Became { passed: self.passed, head: self.body.head(), replies, ruled }
    }
}

/// A client asked this.
fn asked() -> Asked {
    let body = br#"{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"echo"}}"#;
    let session = oracle::session(POLICY);
    review_request(&RequestFacts { headers: &[], captured: true }, body, &session).asked()
}

/// A body in pieces of these lengths, over and over.
fn became(form: AnswerForm, policy: &str, text: &[u8], cuts: &[usize]) -> Became {
    let mut run = Run::new(form, 200, oracle::session(policy));
    let (mut rest, mut cuts) = (text, cuts.iter().cycle());
    while !rest.is_empty() {
        let n = (*cuts.next().unwrap()).clamp(1, rest.len());
        run.push(&rest[..n]);
        rest = &rest[n..];
    }
    run.finish()
}

/// The events of a stream: name, and data.
fn events(stream: &[u8]) -> Vec<(Option<Vec<u8>>, Vec<u8>)> {
    let (mut framer, mut data, mut all) = (Framer::default(), Vec::new(), Vec::new());
    framer.read(stream, &mut |item| match item {
        Item::Data(piece) => data.extend_from_slice(piece),
        Item::Event(event) => all.push((event.name.map(<[u8]>::to_vec), std::mem::take(&mut data))),
        Item::Nothing => data.clear(),
    });
    all
}

#[test]
fn what_has_to_be_held_for_long_is_told_before_it_is_judged() {
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":["{}"#, "x".repeat(500 << 10));
    for (form, before) in [(AnswerForm::Json, ""), (AnswerForm::Events, "data: ")] {
        let mut run = Run::new(form, 200, oracle::session(POLICY));
        run.push(before.as_bytes());
        run.push(&long.as_bytes()[..100]);
        assert!(!run.body.is_long());
        run.push(&long.as_bytes()[100..]);
        assert!(run.body.is_long(), "the end of it is judged beside the threads that move bytes");
        run.push(&long.as_bytes()[100..].repeat(2));
        assert!(!run.body.is_long(), "it passes as it comes");
    }
}

#[test]
fn a_denied_event_is_taken_out_and_everything_else_passes_as_it_came() {
    let before = format!(": hello\n\nid: 1\ndata: {ANSWER}\n\n");
    let denied = format!("event: message\nid: 2\ndata: {}\ndata: {}\n\n", &SAMPLING[..20], &SAMPLING[20..]);
    // In two lines, the data is joined by a line feed: between tokens of JSON that means nothing.
    let denied = denied
        .replace(&format!("{}\ndata: {}", &SAMPLING[..20], &SAMPLING[20..]), &SAMPLING.replacen(',', ",\ndata: ", 1));
    let after = "event: ping\ndata: x\n\nretry: 5\n\n: bye\n";
    let stream = [before.as_str(), &denied, after].concat();
    for cuts in [&[1][..], &[3, 7], &[usize::MAX]] {
        let became = became(AnswerForm::Events, POLICY, stream.as_bytes(), cuts);
        assert_eq!(String::from_utf8(became.passed).unwrap(), [&before, after].concat());
        assert_eq!(became.ruled, [(before.len() as u64, (before.len() + denied.len()) as u64, true)]);
        assert_eq!(became.replies.len(), 1);
        assert!(became.replies[0].contains(r#""id":"s1""#) && became.replies[0].contains("-32001"));
    }
}

#[test]
fn an_event_passes_with_its_last_byte_and_a_comment_waits_for_nothing() {
    let mut run = Run::new(AnswerForm::Events, 200, oracle::session(POLICY));
    for (piece, passed) in [
        (": ping\n", ": ping\n"),
        (": ping\r", ": ping\r"),
        ("\n", "\n"),
        (":", ""),
        (" x\r\n", ": x\r\n"),
        ("event: message\n", ""),
        (": in between\n", ""),
        ("data: {\"id\":1,\"result\":{}}\n", ""),
        ("\n", "event: message\n: in between\ndata: {\"id\":1,\"result\":{}}\n\n"),
        ("id: 7\n\n", "id: 7\n\n"),
    ] {
        let before = run.passed.len();
        run.push(piece.as_bytes());
        assert_eq!(String::from_utf8_lossy(&run.passed[before..]), passed, "{piece:?}");
    }
}

#[test]
fn what_is_cut_off_is_judged_for_readers_that_take_it_for_an_event() {
    for (end, passes) in [(SAMPLING, false), (ANSWER, true), ("noise", true)] {
        for tail in ["", "\n"] {
            let stream = format!("data: {end}{tail}");
            let became = became(AnswerForm::Events, POLICY, stream.as_bytes(), &[5]);
            assert_eq!(became.passed, if passes { stream.as_bytes() } else { b":\n" }, "{stream}");
        }
    }
    let partial = became(AnswerForm::Events, POLICY, b"event: mess", &[4]);
    assert_eq!(partial.passed, b"event: mess");
}

#[test]
fn what_follows_an_event_that_is_taken_out_does_not_become_the_beginning_of_the_stream() {
    let stream = format!("data: {SAMPLING}\n\n\u{feff}data: {ANSWER}\n\n");
    for cuts in [&[1][..], &[usize::MAX]] {
        let became = became(AnswerForm::Events, POLICY, stream.as_bytes(), cuts);
        assert_eq!(String::from_utf8(became.passed).unwrap(), format!(":\n\u{feff}data: {ANSWER}\n\n"));
    }
}

#[test]
fn no_reader_of_other_lines_finds_what_is_denied() {
    let fine = "data: {\"id\":1,\"result\":\"a\u{2028}data: {}\u{85}é\"}\n\n";
    for cuts in [&[1][..], &[usize::MAX]] {
        assert_eq!(became(AnswerForm::Events, POLICY, fine.as_bytes(), cuts).passed, fine.as_bytes());
        for brk in ["\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}", "\u{2028}", "\u{2029}"] {
            for hidden in [
                format!("x{brk}data: {SAMPLING}\n\n"),
                format!(": x{brk}data: {SAMPLING}\n\n"),
                format!("data: {{\"id\":1,\"result\":\"{brk}{brk}data: {SAMPLING}{brk}{brk}\"}}\n\n"),
                format!("data: {ANSWER}\nx{brk}{brk}data: {SAMPLING}\n\n"),
                format!("x{brk}data: {SAMPLING}"),
            ] {
                let became = became(AnswerForm::Events, POLICY, format!("{fine}{hidden}").as_bytes(), cuts);
                assert_eq!(String::from_utf8(became.passed).unwrap(), fine, "{hidden:?}");
                let from = fine.len() as u64;
                assert_eq!(became.ruled, [(from, from + hidden.len() as u64, true)], "{hidden:?}");
            }
        }
        let marked = format!("{fine}\u{feff}data: {SAMPLING}\n\n");
        assert_eq!(became(AnswerForm::Events, POLICY, marked.as_bytes(), cuts).passed, fine.as_bytes());
    }
}

#[test]
fn a_body_is_one_message_where_it_is_json() {
    let spread = ANSWER.replace(',', " ,\n");
    for (form, text, passes) in [
        (AnswerForm::Json, ANSWER, true),
        (AnswerForm::Json, &spread, true),
        (AnswerForm::Json, SAMPLING, false),
        (AnswerForm::Json, "noise", false),
        (AnswerForm::Json, "", true),
        (AnswerForm::Unknown, SAMPLING, false),
        (AnswerForm::Unknown, "[not JSON] after all", true),
        (AnswerForm::Unknown, "  \n", true),
        (AnswerForm::Unknown, "<html>", true),
        (AnswerForm::Nothing, SAMPLING, true),
    ] {
        for cuts in [&[1][..], &[usize::MAX]] {
            let became = became(form, POLICY, text.as_bytes(), cuts);
            if passes {
                assert_eq!(String::from_utf8(became.passed).unwrap(), text, "{form:?}");
                assert_eq!(became.head, Head::Passes);
            } else {
                let Head::Replaced(reply) = became.head else { panic!("{form:?} {text}") };
                let said: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
                assert_eq!((reply.status, became.passed.len()), (200, 0));
                assert_eq!((&said["id"], &said["error"]["data"]["action"]), (&"q".into(), &"deny".into()));
            }
        }
    }
    let mut run = Run::new(AnswerForm::Json, 404, oracle::session(POLICY));
    run.push(br#"{"detail":"Not Found"}"#);
    assert_eq!(run.finish().passed, br#"{"detail":"Not Found"}"#, "an error page is no message");
}

#[test]
fn long_answers_pass_while_they_come_and_other_long_messages_are_thrown_away() {
    let pad = "x".repeat(4 << 20);
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{pad}"}}"#);
    let ask = format!(r#"{{"jsonrpc":"2.0","method":"roots/list","params":"{pad}","id":"s"}}"#);
    let comment = format!(":{pad}{pad}{pad}");
    let cuts = [60_000];
    let stream = format!("data: {answer}\n\ndata: {ask}\n\ndata: {ANSWER}\n\n{comment}\n\ndata: {ANSWER}\n\n");
    let streamed = became(AnswerForm::Events, POLICY, stream.as_bytes(), &cuts);
    assert_eq!(events(&streamed.passed).len(), 3, "{}", streamed.passed.len());
    assert!(streamed.passed.starts_with(format!("data: {answer}\n\ndata: {ANSWER}\n\n").as_bytes()));
    // The comment is too long to be held, too; nobody waits for an answer to it.
    assert_eq!((streamed.ruled.len(), streamed.ruled[0].2, streamed.replies.len()), (2, true, 1));
    assert!(streamed.replies[0].contains(r#""id":"s""#) && streamed.replies[0].contains("guard.too_large"));
    assert_eq!(became(AnswerForm::Json, POLICY, answer.as_bytes(), &cuts).passed, answer.as_bytes());
    let refused = became(AnswerForm::Json, POLICY, ask.as_bytes(), &cuts);
    assert!(refused.passed.len() < 1000 && refused.replies.len() == 1);
    let mut run = Run::new(AnswerForm::Events, 200, oracle::session(POLICY));
    run.push(b"data: ");
    answer.as_bytes().chunks(60_000).take(20).for_each(|piece| run.push(piece));
    assert!(run.passed.len() > 1 << 20, "it is not held to its end");
}

#[test]
fn what_is_decided_and_cannot_be_recorded_does_not_pass() {
    let policy = "version: \"1\"\ndefault: deny\nallowlist: [sampling/createMessage]\n";
    let stream = format!("data: {SAMPLING}\n\ndata: {ANSWER}\n\n");
    let rest = format!(":\ndata: {ANSWER}\n\n");
    for (room, captured, passes) in [(usize::MAX, true, true), (0, true, false), (usize::MAX, false, false)] {
        let mut run = Run::new(AnswerForm::Events, 200, oracle::session(policy));
        (run.desk.room, run.desk.captured) = (room, captured);
        run.push(stream.as_bytes());
        let became = run.finish();
        assert_eq!(String::from_utf8(became.passed).unwrap(), if passes { &stream } else { &rest }[..]);
        assert_eq!(became.replies.iter().any(|r| r.contains("guard.recorder_unavailable")), !passes);
    }
}

fn part() -> impl Strategy<Value = String> {
    let end = prop_oneof![Just("\n"), Just("\r"), Just("\r\n")];
    let line = prop_oneof![
        4 => Just(format!("data: {ANSWER}")),
        3 => Just(format!("data:{SAMPLING}")),
        2 => Just("data".to_owned()),
        2 => Just(String::new()),
        3 => Just(String::new()),
        1 => Just(": comment".to_owned()),
        1 => Just("event: other".to_owned()),
        1 => Just("event: message".to_owned()),
        1 => Just("id: 5".to_owned()),
        1 => Just("data: é".to_owned()),
        1 => Just("\u{feff}data: x".to_owned()),
        1 => Just("retry: 9".to_owned()),
    ];
    (line, end).prop_map(|(line, end)| line + end)
}

proptest! {
    /// Whatever the pieces are, a client reads the events that it would read of the whole, without those that are denied.
    #[test]
    fn any_split_of_any_stream_passes_without_what_is_denied(
        parts in proptest::collection::vec(part(), 0..30), cuts in proptest::collection::vec(1usize..40, 1..8),
    ) {
        let stream = parts.concat();
        let all = "version: \"1\"\ndefault: allow\n";
        let became_all = became(AnswerForm::Events, all, stream.as_bytes(), &cuts);
        let is_message = |data: &[u8]| data.trim_ascii().is_empty() || serde_json::from_slice::<serde_json::Value>(data).is_ok();
        let declared = |name: &Option<Vec<u8>>| name.as_deref().is_none_or(|name| name == b"message");
        let whole = events(stream.as_bytes());
        if whole.iter().all(|(name, data)| is_message(data) || !declared(name)) {
            prop_assert_eq!(&became_all.passed, stream.as_bytes(), "nothing is denied");
        }
        let expected: Vec<_> = whole
            .iter()
            .filter(|(name, data)| data.trim_ascii() != SAMPLING.as_bytes() && (is_message(data) || !declared(name)))
            .cloned()
            .collect();
        let became = became(AnswerForm::Events, POLICY, stream.as_bytes(), &cuts);
        prop_assert_eq!(events(&became.passed), expected);
        let denied = whole.iter().filter(|(_, data)| data.trim_ascii() == SAMPLING.as_bytes()).count();
        prop_assert!(became.replies.len() >= denied);
    }
}
