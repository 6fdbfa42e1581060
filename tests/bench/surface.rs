//! What surfaces cost: a listing of 200 tools that a guard holds and judges, and a result while nobody waits for a list; the
//! fingerprint of 10 000 items, and their difference from others.
//!
//! `cargo bench --bench surface`. Times are medians; nothing is asserted about them.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use assay::{
    guard::{
        Message, Session,
        http::{AnswerBody, AnswerFacts, AnswerForm, Asked, Desk},
        inspect::LineBreaks,
        judge_message, surface,
    },
    model::{
        Direction,
        surface::{Facet, Item, List, Snapshot},
    },
    record::rulings::RulingRecord,
    surface::{
        diff,
        gate::{Decided, First, Quarantine, Server},
        rules::Rules,
    },
};
use assay_support::guard::oracle::session;
use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

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

/// A tool of about 600 bytes.
fn tool(n: usize, more: &str) -> String {
    let member =
        |m: usize| format!(r#""member_{m}":{{"type":"string","description":"What member {m} of tool {n} is for"}}"#);
    let members: Vec<String> = (0..5).map(member).collect();
    format!(
        r#"{{"name":"tool_{n}","description":"Does the thing number {n}{more}, and says how it went","inputSchema":{{"type":"object","properties":{{{}}},"required":["member_0"]}},"annotations":{{"readOnlyHint":true}}}}"#,
        members.join(",")
    )
}

fn listing(changed: usize) -> String {
    let tools: Vec<String> = (0..200).map(|n| tool(n, if n < changed { " now" } else { "" })).collect();
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{}]}}}}"#, tools.join(","))
}

fn guarded(enforced: bool) -> Arc<Session> {
    let session = session("version: \"1\"\ndefault: allow\n");
    let server = Server::new(Decided::default(), Rules::default(), First::Tofu, Quarantine::Item);
    Arc::new(if enforced { session.with_surface(surface::begin(server)) } else { session })
}

/// Asks, and has this answered: what the client gets, and how long the answer took.
fn asks(session: &Arc<Session>, method: &str, answer: &[u8]) -> (Vec<u8>, Duration) {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"tool_1"}}}}"#);
    let message = Message {
        direction: Direction::ClientToServer,
        text: text.as_bytes(),
        breaks: LineBreaks::AtEnd,
        captured: true,
    };
    let ruling = judge_message(message, session);
    assert!(ruling.passes());
    ruling.forwarded(session, 1);
    let (facts, mut got) = (AnswerFacts { status: 200, headers: &[] }, Vec::with_capacity(answer.len()));
    let start = Instant::now();
    let mut body = AnswerBody::new(&facts, AnswerForm::Json, Asked::default(), session.clone());
    body.push(answer, &mut Nowhere, &mut |bytes, _| got.extend(bytes));
    body.finish(&mut Nowhere, &mut |bytes, _| got.extend(bytes));
    (got, start.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The median of an answer after the first listing.
fn answered(enforced: bool, method: &str, answer: &str, rounds: usize) -> Duration {
    let session = guarded(enforced);
    asks(&session, "tools/list", listing(0).as_bytes());
    median((0..rounds).map(|_| asks(&session, method, answer.as_bytes()).1).collect())
}

fn items(changed: usize, from: usize) -> Snapshot {
    let texts: Vec<String> = (from..from + 10_000).map(|n| tool(n, if n < changed { " now" } else { "" })).collect();
    let items = texts.iter().map(|text| Item::of(Facet::Tools, text.as_bytes(), &[]).unwrap()).collect();
    let mut seen = Snapshot::default();
    seen.surface.lists.insert(Facet::Tools, List::complete(items));
    seen
}

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (rounds, few) = if is_bench { (400, 7) } else { (2, 1) };
    let whole = listing(0);
    for (what, answer) in
        [("as it was", whole.clone()), ("one tool changed", listing(1)), ("all changed", listing(200))]
    {
        let [off, on] = [false, true].map(|enforced| answered(enforced, "tools/list", &answer, rounds));
        println!(
            "200 tools, {} KiB, {what}: {off:.1?} judged by the policy alone, {on:.1?} with the surface",
            answer.len() >> 10
        );
    }
    let result = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[{{"type":"text","text":"{}"}}]}}}}"#,
        "x".repeat(128)
    );
    let [off, on] = [false, true].map(|enforced| answered(enforced, "tools/call", &result, 50 * rounds));
    println!("200-byte result: {off:.0?} judged by the policy alone, {on:.0?} with the surface");
    let texts: Vec<String> = (0..10_000).map(|n| tool(n, "")).collect();
    let time = |what: &str, run: &mut dyn FnMut()| {
        let once = |_| {
            let start = Instant::now();
            run();
            start.elapsed()
        };
        println!("10 000 items, {what}: {:.1?}", median((0..few).map(once).collect()));
    };
    time("hashed from their bytes, and the hash of the list", &mut || {
        let items = texts.iter().map(|text| Item::of(Facet::Tools, text.as_bytes(), &[]).unwrap()).collect();
        let mut seen = Snapshot::default();
        seen.surface.lists.insert(Facet::Tools, List::complete(items));
        black_box(seen.facets());
    });
    let before = items(0, 0);
    for (what, after) in [
        ("compared with the same", items(0, 0)),
        ("compared with others of which a tenth changed", items(1_000, 0)),
        ("compared with others of which all changed", items(10_000, 0)),
        ("compared with others of which a tenth has another name", items(0, 1_000)),
    ] {
        time(what, &mut || {
            black_box(diff::groups(&diff::between(&before.surface, &after.surface)));
        });
    }
}
