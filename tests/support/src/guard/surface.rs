//! A client that asked what a server offers, and a guard that keeps back what nobody approved: whatever the server answers,
//! over whatever transport, no client finds anything in it that is not approved, however lenient it is.

use super::{
    lenient::{Reader, Value, pieces, same},
    oracle::{relayed_in, session},
};
use assay::{
    guard::{
        Message, Session,
        http::{AnswerBody, AnswerFacts, AnswerForm, Asked, Desk, Head},
        inspect::LineBreaks,
        judge_message, surface,
    },
    model::Direction,
    record::rulings::RulingRecord,
    sse::{Framer, Item},
    surface::{
        gate::{Decided, First, Quarantine, Server},
        rules::Rules,
    },
};
use std::sync::Arc;

/// What is approved.
pub const APPROVED: [&str; 2] = [
    r#"{"name":"a","description":"reads a file","inputSchema":{"type":"object","maxProperties":5}}"#,
    r#"{"name":"b"}"#,
];
/// So are these instructions.
pub const SAID: &str = "be careful";

/// How an answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Lines.
    Stdio,
    /// The body of an answer.
    Json,
    /// Events.
    Events,
}

struct Nowhere;

impl Desk for Nowhere {
    fn record(&mut self, _end: u64, _ruling: &RulingRecord) -> bool {
        true
    }

    fn is_captured(&self) -> bool {
        true
    }

    fn exchange(&self) -> u64 {
        1
    }
}

fn ask(session: &Session, id: u64, method: &str) {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#);
    let direction = Direction::ClientToServer;
    let message = Message { direction, text: text.as_bytes(), breaks: LineBreaks::AtEnd, captured: true };
    let ruling = judge_message(message, session);
    assert!(ruling.passes());
    ruling.forwarded(session, 1);
}

/// What the client gets of a body in pieces that end at `cuts`.
fn body(session: &Arc<Session>, form: AnswerForm, sent: &[u8], cuts: &[usize]) -> Vec<u8> {
    let facts = AnswerFacts { status: 200, headers: &[] };
    let mut body = AnswerBody::new(&facts, form, Asked::default(), session.clone());
    let mut got = Vec::new();
    let mut cuts: Vec<usize> = cuts.iter().copied().filter(|cut| *cut < sent.len()).chain([sent.len()]).collect();
    cuts.sort_unstable();
    let mut at = 0;
    for cut in cuts {
        body.push(&sent[at..cut], &mut Nowhere, &mut |bytes, _| got.extend(bytes));
        at = cut;
    }
    body.finish(&mut Nowhere, &mut |bytes, _| got.extend(bytes));
    match body.head() {
        Head::Replaced(reply) => reply.body,
        Head::Resized(len) => {
            assert_eq!(len, got.len() as u64, "the length that the client is told");
            got
        }
        Head::Held | Head::Passes => got,
    }
}

/// A session whose client knows what is approved, and asks again: the tools with the id 1, the server itself with 2.
fn asking() -> Session {
    let server = Server::new(Decided::default(), Rules::default(), First::Tofu, Quarantine::Item);
    let session = session("version: \"1\"\ndefault: allow\n").with_surface(surface::begin(server));
    let session = Arc::new(session);
    let hello = format!(r#"{{"jsonrpc":"2.0","id":101,"result":{{"capabilities":{{}},"instructions":"{SAID}"}}}}"#);
    let list = format!(r#"{{"jsonrpc":"2.0","id":100,"result":{{"tools":[{}]}}}}"#, APPROVED.join(","));
    for (id, method, answer) in [(101, "server/discover", hello), (100, "tools/list", list)] {
        ask(&session, id, method);
        assert_eq!(body(&session, AnswerForm::Json, answer.as_bytes(), &[]), answer.as_bytes());
    }
    ask(&session, 1, "tools/list");
    ask(&session, 2, "server/discover");
    Arc::into_inner(session).unwrap()
}

/// What the client receives of what the server sends.
pub fn received(way: Way, sent: &[u8], cuts: &[usize]) -> Vec<u8> {
    match way {
        Way::Stdio => relayed_in(asking(), sent, cuts, 1 << 20, true).passed,
        Way::Json => body(&Arc::new(asking()), AnswerForm::Json, sent, cuts),
        Way::Events => body(&Arc::new(asking()), AnswerForm::Events, sent, cuts),
    }
}

/// What clients could take for the messages, in order, each in its way.
fn views(way: Way, received: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let owned = |all: &[&[u8]]| all.iter().map(|text| text.to_vec()).collect::<Vec<_>>();
    if way == Way::Json {
        return vec![owned(&[received])];
    }
    // By line feeds, and by everything that ends a line for some reader.
    let all = pieces(received);
    let (lines, parts) = all.split_at(received.split(|b| *b == b'\n').count());
    if way == Way::Stdio {
        return vec![owned(lines), owned(parts)];
    }
    let (mut framer, mut data, mut events) = (Framer::default(), Vec::new(), Vec::new());
    framer.read(received, &mut |item| match item {
        Item::Data(piece) => data.extend_from_slice(piece),
        Item::Event(_) => events.push(std::mem::take(&mut data)),
        Item::Nothing => data.clear(),
    });
    events.push(data);
    let of_data = |lines: &[&[u8]]| lines.iter().filter_map(|l| l.strip_prefix(b"data:")).map(<[u8]>::to_vec).collect();
    vec![events, of_data(lines), of_data(parts)]
}

/// The value at the beginning of a text, if it ends there.
fn value(text: &[u8]) -> Option<Value> {
    let start = text.iter().position(|b| !b.is_ascii_whitespace() && !matches!(b, 0xef | 0xbb | 0xbf))?;
    let mut reader = Reader { bytes: text, at: start };
    let value = matches!(text[start], b'{' | b'[').then(|| reader.value(0))?;
    // Cut off, it says nothing.
    matches!(text.get(reader.at.wrapping_sub(1)), Some(b'}' | b']')).then_some(value)
}

fn members<'a>(value: &'a Value, name: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = if let Value::Members(all) = value { &all[..] } else { &[] };
    all.iter().filter(move |(key, _)| same(key, name)).map(|(_, value)| value)
}

/// Whether a client takes this id for the one that it asked with; `loosely`: it makes numbers of texts.
fn is_asked(id: &Value, asked: f64, loosely: bool) -> bool {
    let (Value::Text(text) | Value::Other(text)) = id else { return false };
    let text = text.trim();
    if !loosely {
        return matches!(id, Value::Other(_)) && text == asked.to_string();
    }
    let text = text.trim_start_matches('+');
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(|n| n as f64),
        None => text.parse::<f64>().ok(),
    };
    number == Some(asked)
}

/// Whether two values say the same.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => a == b,
        (Value::Other(a), Value::Other(b)) => {
            a.trim() == b.trim()
                || matches!((a.trim().parse::<f64>(), b.trim().parse::<f64>()), (Ok(a), Ok(b)) if a == b)
        }
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Members(a), Value::Members(b)) => {
            let has = |(key, value): &(String, Value)| b.iter().any(|(k, v)| k == key && is_same(value, v));
            a.len() == b.len() && a.iter().all(has)
        }
        _ => false,
    }
}

/// The first answer to what was asked with this id: later ones are nobody's.
fn answer(messages: &[Value], asked: f64, loosely: bool) -> Option<&Value> {
    messages.iter().find(|message| {
        let has = |name| members(message, name).next().is_some();
        (has("result") || has("error")) && members(message, "id").any(|id| is_asked(id, asked, loosely))
    })
}

/// What some client finds in what it received, and nobody approved.
pub fn unapproved(way: Way, received: &[u8]) -> Vec<Value> {
    let approved: Vec<Value> = APPROVED.iter().map(|text| value(text.as_bytes()).unwrap()).collect();
    let is_approved = |said: &Value| match said {
        Value::Text(text) => text == SAID,
        Value::Other(word) => word.trim() == "null",
        Value::List(_) | Value::Members(_) => false,
    };
    let mut found = Vec::new();
    for view in views(way, received) {
        let messages: Vec<Value> = view
            .iter()
            .flat_map(|text| match value(text) {
                Some(Value::List(all)) => all,
                one => one.into_iter().collect(),
            })
            .collect();
        for loosely in [false, true] {
            let results = |asked| answer(&messages, asked, loosely).into_iter().flat_map(|m| members(m, "result"));
            for list in results(1.0).flat_map(|result| members(result, "tools")) {
                let items = if let Value::List(items) = list { &items[..] } else { std::slice::from_ref(list) };
                found.extend(items.iter().filter(|item| !approved.iter().any(|a| is_same(a, item))).cloned());
            }
            let said = results(2.0).flat_map(|result| members(result, "instructions"));
            found.extend(said.filter(|said| !is_approved(said)).cloned());
        }
    }
    found
}

/// Panics if a client finds what is not approved, or if what it gets of JSON is not that JSON without what was cut.
pub fn check(way: Way, sent: &[u8], cuts: &[usize]) {
    let got = received(way, sent, cuts);
    let found = unapproved(way, &got);
    let told = || format!("{way:?}\n sent {}\n got  {}", sent.escape_ascii(), got.escape_ascii());
    assert!(found.is_empty(), "{found:?} reached the client: {}", told());
    if way == Way::Json
        && let Ok(before) = serde_json::from_slice::<serde_json::Value>(sent)
    {
        let after = serde_json::from_slice::<serde_json::Value>(&got);
        let after = after.unwrap_or_else(|e| panic!("no JSON any more: {e}: {}", told()));
        assert!(is_left_of(&before, &after), "not what is left: {}", told());
    }
}

/// Whether this is what is left of a message, or the error in its place.
fn is_left_of(before: &serde_json::Value, after: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Object};
    if after == before || after["error"]["code"] == -32001 {
        return true;
    }
    match (before, after) {
        (Array(before), Array(after)) => {
            before.len() == after.len() && before.iter().zip(after).all(|(b, a)| is_left_of(b, a))
        }
        (Object(_), Object(_)) => {
            let (mut before, mut after) = (before.clone(), after.clone());
            let (was, is) = (before["result"].take(), after["result"].take());
            let (Object(mut was), Object(mut is)) = (was, is) else { return false };
            let mut rest = was.remove("tools").into_iter().flat_map(|t| t.as_array().cloned().unwrap_or_default());
            let left = is.remove("tools").and_then(|t| t.as_array().cloned()).unwrap_or_default();
            let ttl = is.get("ttlMs").is_none_or(|ttl| *ttl == 0 || was.get("ttlMs") == Some(ttl));
            let (before_ttl, after_ttl) = (was.remove("ttlMs"), is.remove("ttlMs"));
            if is.get("instructions").is_none() {
                was.remove("instructions");
            }
            let in_order = left.iter().all(|item| rest.any(|other| other == *item));
            before == after && was == is && in_order && ttl && before_ttl.is_some() == after_ttl.is_some()
        }
        _ => false,
    }
}

/// [`check`]s an input of the fuzzer: its first byte says how the answer comes, the next two where it is cut.
pub fn look(data: &[u8]) {
    let Some((way, data)) = data.split_first() else { return };
    let way = [Way::Json, Way::Events, Way::Stdio][usize::from(way % 3)];
    let (cuts, sent) = data.split_at(data.len().min(2));
    let cuts: Vec<usize> = cuts.iter().map(|c| usize::from(*c)).collect();
    check(way, sent, &cuts);
}
