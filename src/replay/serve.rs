//! An MCP server that answers from a recording: the same request has the same answer, and what was not recorded or not
//! stored is an error that says so.
//!
//! One thread answers everything in the order in which it is due. Tool, and hash of the arguments, are what makes two
//! calls equal: so arguments need not be stored, and it does not matter how a client writes them.

use crate::{
    canon,
    model::{
        Outcome,
        redaction::Side,
        surface::{Facet, List, Reason, Snapshot, Value},
    },
    pack::stored::{Call, EMPTY, Others, Stored},
    record::{
        content::receipt_text,
        envelope::{self, Envelope, Fields, IdKey, MessageKind, name_of},
    },
    text::{counted, either},
};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    io::{self, BufRead, Write},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// Code of the JSON-RPC error for what the recording has no answer to. It is in the range that JSON-RPC 2.0 §5.1 leaves to
/// servers, and neither of the codes in it that MCP or its SDKs use.
pub const NOT_RECORDED: i64 = -32010;
/// Code of the error for a call that was denied when it was recorded: the guard's own.
const DENIED: i64 = -32001;
const NO_METHOD: i64 = -32601;
const INVALID: i64 = -32600;
const NO_JSON: i64 = -32700;
/// The server does not speak the version (MCP 2026-07-28).
const VERSION_UNSUPPORTED: i64 = -32022;

/// The revision without a handshake, and so the first of its family.
const MODERN: &str = "2026-07-28";
/// Member of `params._meta` that makes a request modern.
const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";

/// How long answers take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Latency {
    /// Nothing.
    #[default]
    None,
    /// As long as they took when they were recorded.
    Recorded,
}

/// The calls of one tool with the same arguments, in the order in which they were asked for.
#[derive(Debug, Default)]
struct Row {
    calls: Vec<usize>,
    asked: usize,
}

/// A recording that answers.
#[derive(Debug)]
pub struct Player {
    stored: Stored,
    rows: HashMap<(String, String), Row>,
    /// How many calls of each tool were recorded.
    tools: BTreeMap<String, u64>,
    latency: Latency,
    modern: bool,
}

/// An answer to one request, after this time.
struct Answer {
    body: Vec<u8>,
    after: Duration,
}

/// What cannot be answered: code, message, and a word for programs.
struct Refused(i64, String, &'static str);

type Answered = Result<Answer, Refused>;

impl Player {
    /// Over a pack that was read.
    #[must_use]
    pub fn new(stored: Stored, latency: Latency) -> Self {
        let (mut rows, mut tools) = (HashMap::<_, Row>::new(), BTreeMap::new());
        for (at, call) in stored.calls.iter().enumerate().filter(|(_, call)| !call.task_leg) {
            rows.entry((call.tool.clone(), call.arguments_hash.clone())).or_default().calls.push(at);
            *tools.entry(call.tool.clone()).or_default() += 1;
        }
        let version = stored.session.as_ref().and_then(|session| session.protocol_version.as_deref());
        let era = stored.surface.as_ref().and_then(|surface| surface.context.era.as_deref());
        let modern = era.map_or_else(|| version.is_some_and(|v| v >= MODERN), |era| era == "modern");
        Self { stored, rows, tools, latency, modern }
    }

    /// What it has, in one line of words.
    #[must_use]
    pub fn said(&self) -> String {
        let calls: Vec<&Call> = self.stored.calls.iter().filter(|call| !call.task_leg).collect();
        let (all, without) = (calls.len(), calls.iter().filter(|call| is_without_result(call)).count());
        let mut said = format!("replays {}", counted(all as u64, "call"));
        if without > 0 {
            let what =
                either(without as u64, "has no stored result and is an error", "have no stored result and are errors");
            let _ = write!(said, "; {without} of them {what} (mcp-proxy --store-results stores results)");
        }
        let redacted =
            calls.iter().filter(|call| call.result.is_some() && !call.redacted(Side::Result).is_empty()).count();
        if redacted > 0 {
            let what = either(redacted as u64, "answers with a redacted result", "answer with redacted results");
            let _ = write!(said, "; {redacted} of them {what}: mcp-proxy --redact took something out of it");
        }
        said
    }

    fn message(&mut self, line: &[u8]) -> Vec<Due> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Vec::new();
        }
        if envelope::is_batch(line) {
            return vec![Due::now(
                None,
                error(b"null", &Refused(INVALID, "a replay takes no batches".into(), "batch")),
            )];
        }
        let message = match envelope::parse(line, None) {
            Ok(message) => message,
            Err(e) => {
                let code = if canon::kind(line) == Some(canon::Kind::Object) && canon::scan(line).is_ok() {
                    INVALID
                } else {
                    NO_JSON
                };
                return vec![Due::now(None, error(b"null", &Refused(code, e.to_string(), "unreadable")))];
            }
        };
        let (MessageKind::Request, Some(id)) = (message.kind, message.id) else { return Vec::new() };
        let key = Some(IdKey::of(id));
        match self.answer(&message) {
            Ok(Answer { body, after }) => vec![Due { at: Instant::now() + after, ..Due::now(key, whole(id, &body)) }],
            Err(refused) => vec![Due::now(key, error(id, &refused))],
        }
    }

    fn answer(&mut self, message: &Envelope<'_>) -> Answered {
        let method = message.method.as_deref().unwrap_or_default();
        let params = message.params.clone().map_or(&b"{}"[..], |range| &message.bytes[range]);
        let modern = is_modern(params);
        let now = |result: Vec<u8>| Ok(Answer { body: member("result", &result), after: Duration::ZERO });
        if method == "tools/call" {
            return self.call(params);
        }
        if let Some(facet) = Facet::listed_by(method) {
            return now(self.list(method, facet, modern)?);
        }
        match method {
            "initialize" => now(self.initialize()?),
            "server/discover" => now(self.discover()?),
            "ping" => now(if modern { br#"{"resultType":"complete"}"#.to_vec() } else { b"{}".to_vec() }),
            other => now(self.other(other, modern)?),
        }
    }

    /// The surface, for what only it tells.
    fn surface(&self, method: &str) -> Result<&Snapshot, Refused> {
        self.stored.surface.as_ref().ok_or_else(|| {
            not_recorded(format!("the recording has no answer to {method}: nothing of the server's surface was seen"))
        })
    }

    fn server(&self) -> serde_json::Value {
        let session = self.stored.session.as_ref();
        let info = session.and_then(|session| session.server_info.as_ref());
        let name = info.map(|info| info.name.as_str()).or_else(|| session.map(|session| session.server_id.as_str()));
        let mut server = json!({"name": name.unwrap_or_default()});
        // Both eras demand a version; a server that had none leaves it empty.
        server["version"] = json!(info.and_then(|info| info.version.as_deref()).unwrap_or_default());
        server
    }

    fn version(&self) -> &str {
        let version = self.stored.session.as_ref().and_then(|session| session.protocol_version.as_deref());
        version.unwrap_or(if self.modern { MODERN } else { "2025-06-18" })
    }

    fn initialize(&self) -> Result<Vec<u8>, Refused> {
        if self.modern {
            let what = format!("this was recorded in {}, which has no initialize", self.version());
            return Err(Refused(VERSION_UNSUPPORTED, what, "other_era"));
        }
        let surface = self.surface("initialize")?;
        let mut result = json!({"protocolVersion": self.version(), "serverInfo": self.server()});
        self.says(&mut result, surface);
        Ok(result.to_string().into_bytes())
    }

    fn discover(&self) -> Result<Vec<u8>, Refused> {
        if !self.modern {
            let what = format!("this was recorded in {}, which has no server/discover", self.version());
            return Err(Refused(NO_METHOD, what, "other_era"));
        }
        let surface = self.surface("server/discover")?;
        let mut result = json!({
            "supportedVersions": [self.version()], "cacheScope": "private", "ttlMs": 0, "resultType": "complete",
            "_meta": {"io.modelcontextprotocol/serverInfo": self.server()},
        });
        self.says(&mut result, surface);
        Ok(result.to_string().into_bytes())
    }

    /// Capabilities and instructions. If nobody asked for them in the recording, the server can do what it is seen to do there.
    fn says(&self, result: &mut serde_json::Value, surface: &Snapshot) {
        let value = |v: &Option<Value>| v.as_ref().and_then(|v| serde_json::from_slice(&v.content).ok());
        result["capabilities"] = value(&surface.surface.capabilities).unwrap_or_else(|| {
            let has = |facet| !matches!(surface.surface.list(facet), List::Unknown | List::NotOffered);
            let seen = [
                ("tools", has(Facet::Tools) || !self.tools.is_empty()),
                ("prompts", has(Facet::Prompts)),
                ("resources", has(Facet::Resources) || has(Facet::ResourceTemplates)),
            ];
            seen.into_iter().filter(|(_, is)| *is).map(|(name, _)| (name.to_owned(), json!({}))).collect()
        });
        if let Some(instructions) = value(&surface.surface.instructions) {
            result["instructions"] = instructions;
        }
    }

    /// A list of the surface, in one page.
    fn list(&self, method: &str, facet: Facet, modern: bool) -> Result<Vec<u8>, Refused> {
        let items = match self.surface(method)?.surface.list(facet) {
            // One that changed while it was read was read to its end: its pages are what the client got.
            List::Complete(items) | List::Incomplete(items, Reason::ChangedMeanwhile) => items,
            List::NotOffered => {
                return Err(Refused(NO_METHOD, format!("the recorded server had no {method}"), "not_offered"));
            }
            List::Unknown => return Err(not_recorded(format!("nobody asked for {method} in the recording"))),
            List::Incomplete(_, reason) => {
                return Err(not_recorded(format!("the recording does not have all of {method}: {}", reason.word())));
            }
        };
        let without = items.iter().filter(|item| item.content.is_empty()).count() as u64;
        if without > 0 {
            let what = format!("the recording has only the hashes of {} of {method}", counted(without, "item"));
            return Err(Refused(NOT_RECORDED, what, "not_stored"));
        }
        let name = facet.members().map_or("", |(name, _)| name);
        let mut result = format!("{{\"{name}\":[").into_bytes();
        result.extend_from_slice(&items.iter().map(|item| item.content.as_slice()).collect::<Vec<_>>().join(&b","[..]));
        result.push(b']');
        if modern {
            result.extend_from_slice(br#","cacheScope":"private","resultType":"complete","ttlMs":0"#);
        }
        result.push(b'}');
        Ok(result)
    }

    /// A request of which only hashes were recorded: the hash of an answer that said nothing tells all of it.
    fn other(&self, method: &str, modern: bool) -> Result<Vec<u8>, Refused> {
        match self.stored.others.get(method) {
            Some(Others { results, empty, .. }) if *results > 0 && results == empty => {
                Ok(if modern { br#"{"resultType":"complete"}"#.to_vec() } else { b"{}".to_vec() })
            }
            Some(Others { requests, .. }) => {
                let what = format!(
                    "{method} was asked for {} in the recording; of answers to anything but tools/call it has only hashes",
                    either(*requests, "once", &format!("{requests} times"))
                );
                Err(Refused(NOT_RECORDED, what, "not_stored"))
            }
            None => Err(not_recorded(format!("nobody asked for {method} in the recording"))),
        }
    }

    fn call(&mut self, params: &[u8]) -> Answered {
        let fields =
            Fields::of(params, ["name", "arguments"]).map_err(|e| Refused(INVALID, e.to_string(), "unreadable"))?;
        let name = fields.get(0).map(name_of).unwrap_or_default();
        let tool = receipt_text(&name).0.into_owned();
        let hash = match fields.get(1) {
            Some(raw) => {
                canon::digest(raw, None).map_err(|e| Refused(INVALID, e.to_string(), "unreadable"))?.to_string()
            }
            None => EMPTY.to_owned(),
        };
        let Some(row) = self.rows.get_mut(&(tool.clone(), hash)) else {
            return Err(not_recorded(match self.tools.get(&tool) {
                None => format!("no call of {tool} is in the recording"),
                Some(n) => format!(
                    "no call of {tool} with these arguments is in the recording; {} with others",
                    either(*n, "there is one", &format!("there are {n}"))
                ),
            }));
        };
        let at = row.calls[row.asked.min(row.calls.len() - 1)];
        row.asked += 1;
        let Some(call) = self.stored.calls.get(at) else { return Err(not_recorded(String::new())) };
        let after = if self.latency == Latency::Recorded { call.took.unwrap_or_default() } else { Duration::ZERO };
        match (&call.result, call.outcome) {
            (Some(result), _) => {
                let name = if call.is_rpc_error() { "error" } else { "result" };
                Ok(Answer { body: member(name, result), after })
            }
            (None, Some(Outcome::Denied)) => {
                let reason = call.policy_reason.as_deref().unwrap_or("no reason is recorded");
                Err(Refused(DENIED, format!("this call was denied when it was recorded: {reason}"), "denied"))
            }
            (None, _) if call.result_hash.is_none() => {
                let reason = call.outcome_reason.as_deref().unwrap_or("no reason is recorded");
                Err(Refused(
                    NOT_RECORDED,
                    format!("this call had no answer when it was recorded: {reason}"),
                    "no_answer",
                ))
            }
            (None, _) => {
                let what = format!(
                    "the result of this call was not stored ({}): record with --store-results",
                    call.receipt_id
                );
                Err(Refused(NOT_RECORDED, what, "not_stored"))
            }
        }
    }
}

/// Whether the recording cannot answer this call, although it was answered.
fn is_without_result(call: &Call) -> bool {
    call.result.is_none() && call.result_hash.is_some()
}

fn is_modern(params: &[u8]) -> bool {
    let meta = Fields::of(params, ["_meta"]).ok().and_then(|fields| fields.get(0).map(<[u8]>::to_vec));
    meta.is_some_and(|meta| Fields::of(&meta, [VERSION_META]).is_ok_and(|fields| fields.text(0).is_some()))
}

fn not_recorded(what: String) -> Refused {
    Refused(NOT_RECORDED, what, "not_recorded")
}

/// A member of an answer, before what closes it.
fn member(name: &str, value: &[u8]) -> Vec<u8> {
    [format!("\"{name}\":").as_bytes(), value].concat()
}

fn whole(id: &[u8], body: &[u8]) -> Vec<u8> {
    [&br#"{"jsonrpc":"2.0","id":"#[..], id, b",", body, b"}\n"].concat()
}

fn error(id: &[u8], Refused(code, message, reason): &Refused) -> Vec<u8> {
    let error = json!({"code": code, "message": message, "data": {"replay": reason}});
    whole(id, &member("error", error.to_string().as_bytes()))
}

/// A line that is to be written when its time has come.
struct Due {
    at: Instant,
    /// The request that it belongs to: a cancellation takes it back.
    request: Option<IdKey>,
    line: Vec<u8>,
}

impl Due {
    fn now(request: Option<IdKey>, line: Vec<u8>) -> Self {
        Self { at: Instant::now(), request, line }
    }
}

/// The request that a message cancels, if it does.
fn cancelled(line: &[u8]) -> Option<IdKey> {
    let message = envelope::parse(line, None).ok()?;
    if message.method.as_deref() != Some("notifications/cancelled") {
        return None;
    }
    Fields::of(&line[message.params?], ["requestId"]).ok()?.get(0).map(IdKey::of)
}

/// Answers what is read from `input` on `output` until `input` ends and everything is answered.
///
/// # Errors
/// `output` cannot be written; a closed pipe is an ordinary end.
pub fn serve(mut player: Player, input: impl BufRead + Send + 'static, mut output: impl Write) -> io::Result<()> {
    let (lines, inbox) = mpsc::channel();
    thread::Builder::new().name("assay-replay".into()).spawn(move || {
        for line in input.split(b'\n') {
            let Ok(line) = line else { break };
            if lines.send(line).is_err() {
                break;
            }
        }
    })?;
    let mut queue: Vec<Due> = Vec::new();
    let mut open = true;
    while open || !queue.is_empty() {
        let wait = queue.iter().map(|due| due.at).min().map(|at| at.saturating_duration_since(Instant::now()));
        let line = match wait {
            Some(wait) if !open => {
                thread::sleep(wait);
                Err(RecvTimeoutError::Timeout)
            }
            Some(wait) => inbox.recv_timeout(wait),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match line {
            Ok(line) => match cancelled(&line) {
                Some(request) => queue.retain(|due| due.request.as_ref() != Some(&request)),
                None => queue.extend(player.message(&line)),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => open = false,
        }
        match write_due(&mut queue, &mut output) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

/// Writes what is due, what was due earlier first.
fn write_due(queue: &mut Vec<Due>, output: &mut impl Write) -> io::Result<()> {
    let now = Instant::now();
    let (mut due, later): (Vec<_>, Vec<_>) = std::mem::take(queue).into_iter().partition(|due| due.at <= now);
    *queue = later;
    due.sort_by_key(|due| due.at);
    for due in due {
        output.write_all(&due.line)?;
        output.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::surface::{Item, Surface};

    fn call(tool: &str, arguments: &str, result: Option<&str>) -> Call {
        Call {
            receipt_id: "mtc_0000000000000001".into(),
            tool: tool.into(),
            arguments_hash: canon::digest(arguments.as_bytes(), None).unwrap().to_string(),
            result: result.map(|r| r.as_bytes().to_vec()),
            result_hash: Some("sha256:00".into()),
            outcome: Some(Outcome::Forwarded),
            took: Some(Duration::from_millis(30)),
            ..Call::default()
        }
    }

    fn recording(era: &str) -> Stored {
        let tool = Item::of(Facet::Tools, br#"{"name":"a","inputSchema":{}}"#, &[]).unwrap();
        let resource = Item::of(Facet::Resources, br#"{"uri":"x:/y","name":"y"}"#, &[]).unwrap();
        let mut surface = Snapshot {
            surface: Surface {
                capabilities: Value::of(br#"{"tools":{}}"#).ok(),
                instructions: Value::of(br#""be careful""#).ok(),
                lists: [
                    (Facet::Tools, List::complete(vec![tool])),
                    (Facet::Resources, List::complete(vec![resource])),
                    (Facet::Prompts, List::NotOffered),
                ]
                .into(),
            },
            ..Snapshot::default()
        };
        surface.context.era = Some(era.to_owned());
        Stored {
            // As it is read from a pack: of resources there are hashes alone.
            surface: Some(Snapshot::read(&surface.document().unwrap()).unwrap()),
            calls: vec![
                call("a", r#"{"x":1}"#, Some(r#"{"content":[1]}"#)),
                call("a", r#"{"x":1}"#, Some(r#"{"content":[2]}"#)),
                call("a", r#"{"x":2}"#, None),
                Call {
                    outcome: Some(Outcome::Error),
                    ..call("a", r#"{"x":3}"#, Some(r#"{"code":-32602,"message":"bad"}"#))
                },
                Call {
                    outcome: Some(Outcome::Denied),
                    result_hash: None,
                    policy_reason: Some("denylist".into()),
                    ..call("b", "{}", None)
                },
                Call {
                    outcome: Some(Outcome::Timeout),
                    result_hash: None,
                    outcome_reason: Some("server_exited".into()),
                    ..call("c", "{}", None)
                },
            ],
            others: [
                ("logging/setLevel".to_owned(), Others { requests: 2, results: 2, empty: 2 }),
                ("prompts/get".to_owned(), Others { requests: 1, results: 1, empty: 0 }),
            ]
            .into(),
            ..Stored::default()
        }
    }

    /// What is answered to these lines, the input ended behind them.
    fn talk(stored: Stored, latency: Latency, lines: &str) -> Vec<serde_json::Value> {
        let mut out = Vec::new();
        serve(Player::new(stored, latency), io::Cursor::new(lines.to_owned()), &mut out).unwrap();
        out.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect()
    }

    fn request(id: u64, method: &str, params: &str) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n")
    }

    fn a(id: u64, x: u64) -> String {
        request(id, "tools/call", &format!(r#"{{"arguments":{{ "x" : {x} }},"name":"a"}}"#))
    }

    #[test]
    fn equal_calls_have_their_answers_in_order_and_then_the_last_one() {
        let said = talk(recording("legacy"), Latency::None, &[a(1, 1), a(2, 1), a(3, 1), a(4, 3)].concat());
        let contents: Vec<_> = said[..3].iter().map(|m| m["result"]["content"][0].as_u64().unwrap()).collect();
        assert_eq!(contents, [1, 2, 2]);
        assert_eq!(said[3]["error"], json!({"code": -32602, "message": "bad"}));
    }

    #[test]
    fn what_the_recording_does_not_have_is_an_error_that_says_so() {
        let lines = [
            a(1, 2),
            a(2, 9),
            request(3, "tools/call", r#"{"name":"z"}"#),
            request(4, "tools/call", r#"{"name":"b"}"#),
            request(5, "tools/call", r#"{"name":"c"}"#),
            request(6, "prompts/get", "{}"),
            request(7, "resources/read", "{}"),
            request(8, "resources/list", "{}"),
            request(9, "prompts/list", "{}"),
            request(10, "resources/templates/list", "{}"),
            request(11, "server/discover", "{}"),
            "[]\nnonsense\n{}\n".to_owned(),
        ];
        let said = talk(recording("legacy"), Latency::None, &lines.concat());
        let codes: Vec<_> = said.iter().map(|m| m["error"]["code"].as_i64().unwrap()).collect();
        let n = NOT_RECORDED;
        assert_eq!(codes, [n, n, n, -32001, n, n, n, n, -32601, n, -32601, -32600, -32700, -32600]);
        for (at, words) in [
            (0, "--store-results"),
            (1, "with these arguments is in the recording; there are 4 with others"),
            (2, "no call of z is in the recording"),
            (3, "denylist"),
            (4, "server_exited"),
            (5, "asked for once in the recording"),
            (6, "nobody asked for resources/read"),
            (7, "hashes of 1 item"),
        ] {
            let message = said[at]["error"]["message"].as_str().unwrap();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn both_eras_have_their_beginning_and_their_lists() {
        let meta = format!(r#"{{"_meta":{{"{VERSION_META}":"{MODERN}"}}}}"#);
        let lines =
            [request(1, "initialize", "{}"), request(2, "tools/list", "{}"), request(3, "logging/setLevel", "{}")];
        let said = talk(recording("legacy"), Latency::None, &lines.concat());
        let begun = &said[0]["result"];
        assert_eq!((&begun["capabilities"], &begun["instructions"]), (&json!({"tools": {}}), &json!("be careful")));
        assert_eq!(said[1]["result"], json!({"tools": [{"name": "a", "inputSchema": {}}]}));
        assert_eq!(said[2]["result"], json!({}));
        let lines =
            [request(1, "server/discover", &meta), request(2, "tools/list", &meta), request(3, "initialize", "{}")];
        let mut unasked = recording("modern");
        unasked.surface.as_mut().unwrap().surface.capabilities = None;
        let said = talk(unasked, Latency::None, &lines.concat());
        assert_eq!(said[0]["result"]["supportedVersions"], json!([MODERN]));
        assert_eq!(said[0]["result"]["capabilities"], json!({"tools": {}, "resources": {}}));
        assert_eq!((&said[1]["result"]["resultType"], &said[1]["result"]["ttlMs"]), (&json!("complete"), &json!(0)));
        assert_eq!(said[2]["error"]["code"], VERSION_UNSUPPORTED);
    }

    #[test]
    fn a_list_that_changed_while_it_was_read_is_what_the_client_got() {
        let ask = [request(1, "tools/list", "{}")].concat();
        for (reason, answered) in [(Reason::ChangedMeanwhile, true), (Reason::Abandoned, false)] {
            let mut stored = recording("legacy");
            let surface = &mut stored.surface.as_mut().unwrap().surface;
            let items = surface.list(Facet::Tools).items().to_vec();
            surface.lists.insert(Facet::Tools, List::incomplete(items, reason));
            let said = talk(stored, Latency::None, &ask);
            assert_eq!(said[0]["result"]["tools"].is_array(), answered, "{said:?}");
        }
    }

    #[test]
    fn with_the_recorded_latency_a_call_takes_its_time_and_can_be_cancelled() {
        let cancel = |id| {
            format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id}}}}}\n"
            )
        };
        let mut recorded = recording("legacy");
        (recorded.calls[0].took, recorded.calls[1].took) =
            (Some(Duration::from_millis(500)), Some(Duration::from_hours(1)));
        let lines = [a(1, 1), a(2, 1), request(3, "ping", "{}"), cancel(2)];
        let said = talk(recorded, Latency::Recorded, &lines.concat());
        assert_eq!(said.iter().map(|m| m["id"].as_u64().unwrap()).collect::<Vec<_>>(), [3, 1]);
    }
}
