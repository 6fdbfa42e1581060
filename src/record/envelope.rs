//! The JSON-RPC envelope of a message and the few members of MCP that the recorder needs.
//!
//! Reads what a lenient peer would read: of duplicate members the last counts, invalid UTF-8 and deep nesting are
//! anomalies and not errors. What is not JSON at all is [`Malformed`].

use super::content;
use crate::{
    canon::{self, Anomalies, Page},
    model::{CallAnomaly, Direction, Vocabulary, Word},
};
use std::{borrow::Cow, ops::Range};

/// Names and ids are decoded up to this many raw bytes; a longer one is not a name that anything answers to.
const MAX_DECODED: usize = 64 * 1024;

/// Why a line is not a JSON-RPC message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl From<canon::ScanError> for Malformed {
    fn from(e: canon::ScanError) -> Self {
        Self(e.to_string())
    }
}

/// What kind of JSON-RPC message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// It has `method` and `id`.
    Request,
    /// It has `method`, but no `id`.
    Notification,
    /// It has `result` or `error`.
    Response,
}

/// The top level of one message; ranges are in the message's bytes.
pub struct Envelope<'a> {
    /// The bytes of the message.
    pub bytes: &'a [u8],
    /// Called with each part of `bytes` that is not read again in this pass.
    pub page: Page<'a>,
    /// What kind of message it is.
    pub kind: MessageKind,
    /// Raw text of `id`.
    pub id: Option<&'a [u8]>,
    /// `method`, decoded; lossy where it cannot be.
    pub method: Option<Cow<'a, str>>,
    /// Where the value of `params` is in `bytes`.
    pub params: Option<Range<usize>>,
    /// Where the value of `result` is in `bytes`.
    pub result: Option<Range<usize>>,
    /// Where the value of `error` is in `bytes`.
    pub error: Option<Range<usize>>,
    /// A top-level member occurs twice.
    pub duplicate_key: bool,
    /// What hashing a value in it makes use of.
    pub indexed: canon::Indexed,
    /// The wanted members of `params`.
    in_params: Found<{ IN_PARAMS.len() }>,
    /// The wanted members of `result`.
    in_result: Found<{ IN_RESULT.len() }>,
}

/// Members of `params` that are read.
const IN_PARAMS: [&str; 9] = [
    "name",
    "arguments",
    "_meta",
    "requestState",
    "inputResponses",
    "taskId",
    "requestId",
    "protocolVersion",
    "clientInfo",
];
/// Members of `result` that are read.
const IN_RESULT: [&str; 10] = [
    "isError",
    "resultType",
    "requestState",
    "inputRequests",
    "taskId",
    "task",
    "serverInfo",
    "protocolVersion",
    "result",
    "_meta",
];

/// Where the wanted members are; of duplicates the last counts.
#[derive(Debug, Clone)]
struct Found<const N: usize> {
    ranges: [Option<Range<usize>>; N],
    duplicate: bool,
}

impl<const N: usize> Default for Found<N> {
    fn default() -> Self {
        Self { ranges: [const { None }; N], duplicate: false }
    }
}

impl<const N: usize> Found<N> {
    fn look(&mut self, names: &[&str; N], key: &str, value: &Range<usize>) {
        if let Some(i) = names.iter().position(|name| *name == key) {
            self.duplicate |= self.ranges[i].replace(value.clone()).is_some();
        }
    }

    const fn of(self, bytes: &[u8]) -> Fields<'_, N> {
        Fields { bytes, found: self.ranges, duplicate: self.duplicate }
    }
}

/// The first significant byte says that this is a batch (JSON-RPC 2.0 §6, MCP 2025-03-26).
#[must_use]
pub fn is_batch(bytes: &[u8]) -> bool {
    bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[')
}

/// The members of one JSON object by name; of duplicates the last counts.
pub struct Fields<'a, const N: usize> {
    bytes: &'a [u8],
    found: [Option<Range<usize>>; N],
    /// A wanted member occurs twice.
    pub duplicate: bool,
}

impl<'a, const N: usize> Fields<'a, N> {
    /// Looks for `names` among the direct members of `object`; anything but an object has none.
    ///
    /// # Errors
    /// `object` is not JSON.
    pub fn of(object: &'a [u8], names: [&str; N]) -> Result<Self, canon::ScanError> {
        Self::paged(object, names, None)
    }

    /// As [`Fields::of`], for bytes that are in pages that can be released.
    ///
    /// # Errors
    /// `object` is not JSON.
    pub fn paged(object: &'a [u8], names: [&str; N], page: Page<'_>) -> Result<Self, canon::ScanError> {
        let mut fields = Self { bytes: object, found: [const { None }; N], duplicate: false };
        if canon::kind(object) != Some(canon::Kind::Object) {
            return Ok(fields);
        }
        for member in canon::members_paged(object, page)? {
            let member = member?;
            let Some(key) = member.key else { continue };
            if let Some(i) = names.iter().position(|n| *n == key) {
                fields.duplicate |= fields.found[i].replace(member.value).is_some();
            }
        }
        Ok(fields)
    }

    /// The raw bytes of the `i`th wanted member.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        self.found[i].clone().map(|r| &self.bytes[r])
    }

    /// Where the `i`th wanted member's value is in the object's bytes.
    #[must_use]
    pub fn range(&self, i: usize) -> Option<Range<usize>> {
        self.found[i].clone()
    }

    /// The same as a string; `None` if it is not a string.
    #[must_use]
    pub fn text(&self, i: usize) -> Option<Cow<'a, str>> {
        self.get(i).filter(|raw| raw.len() <= MAX_DECODED).and_then(canon::decode_string)
    }
}

/// Members of a message that are read.
const TOP: [&str; 5] = ["id", "method", "params", "result", "error"];

/// Reads one message that is not a batch.
///
/// # Errors
/// [`Malformed`]: no JSON, no object, or neither request, notification nor response.
pub fn parse<'a>(bytes: &'a [u8], page: Page<'a>) -> Result<Envelope<'a>, Malformed> {
    if canon::kind(bytes) != Some(canon::Kind::Object) {
        return Err(match canon::scan_paged(bytes, page) {
            Ok(_) => Malformed("not a JSON object".into()),
            Err(e) => e.into(),
        });
    }
    let (mut top, mut params, mut result) = (Found::<5>::default(), Found::default(), Found::default());
    let (mut in_params, mut in_result) = (Found::default(), Found::default());
    let indexed = canon::index(bytes, page, &mut |member| {
        let key = if member.escaped { canon::decode_string(member.raw_key) } else { plain(member.raw_key) };
        let Some(key) = key else { return };
        if member.depth > 1 {
            params.look(&IN_PARAMS, &key, &member.range);
            result.look(&IN_RESULT, &key, &member.range);
            return;
        }
        top.look(&TOP, &key, &member.range);
        let (of_params, of_result) = (std::mem::take(&mut params), std::mem::take(&mut result));
        match &*key {
            "params" => in_params = of_params,
            "result" => in_result = of_result,
            _ => {}
        }
    })?;
    let f = top.of(bytes);
    let method = f.get(1).map(name_of);
    let id = f.get(0);
    let kind = match (&method, id) {
        (Some(_), Some(_)) => MessageKind::Request,
        (Some(_), None) => MessageKind::Notification,
        (None, _) if f.found[3].is_some() || f.found[4].is_some() => MessageKind::Response,
        (None, _) => return Err(Malformed("neither request, notification nor response".into())),
    };
    let duplicate_key = f.duplicate;
    let [_, _, params, result, error] = f.found;
    Ok(Envelope { bytes, page, kind, id, method, params, result, error, duplicate_key, indexed, in_params, in_result })
}

/// The text of a name that has no escapes; `None` if it is not UTF-8.
fn plain(raw: &[u8]) -> Option<Cow<'_, str>> {
    std::str::from_utf8(raw.get(1..raw.len() - 1)?).ok().map(Cow::Borrowed)
}

/// A name as it is decoded; lossy where it cannot be, cut where it is too long to be one.
#[must_use]
pub fn name_of(raw: &[u8]) -> Cow<'_, str> {
    match raw.len() {
        0..=MAX_DECODED => canon::decode_string(raw).unwrap_or_else(|| String::from_utf8_lossy(raw)),
        _ => String::from_utf8_lossy(&raw[..MAX_DECODED]),
    }
}

/// How an id is compared: by JSON type and value, so `1` is not `"1"`, and however a peer re-escapes or re-writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IdKey {
    /// An id that is a string, decoded.
    Text(String),
    /// Anything else: canonical text where there is one, raw text elsewhere (ids beyond 2^53 keep every digit).
    Other(Vec<u8>),
}

impl IdKey {
    /// The key of a raw id.
    #[must_use]
    pub fn of(raw: &[u8]) -> Self {
        if raw.len() > MAX_DECODED {
            return Self::Other(canon::sha256(raw).to_vec());
        }
        // An id of any length must not take memory of that length: of a long one, evidence and this key hold the hash.
        if raw.len() > content::MAX_ID {
            let text = canon::canonicalize(raw);
            return Self::Other(canon::sha256(text.as_deref().unwrap_or(raw)).to_vec());
        }
        if is_plain_count(raw) {
            return Self::Other(raw.to_vec());
        }
        match canon::decode_string(raw) {
            Some(text) => Self::Text(text.into_owned()),
            None => Self::Other(canon::canonicalize(raw).unwrap_or_else(|_| raw.to_vec())),
        }
    }
}

/// The usual form of an id: digits that are their own canonical form (RFC 8785 §3.2.2.3, below 2^53).
fn is_plain_count(raw: &[u8]) -> bool {
    matches!(raw, [b'0'] | [b'1'..=b'9', ..]) && raw.len() <= 15 && raw.iter().all(u8::is_ascii_digit)
}

/// What is done with a request of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Forwarded, but not recorded.
    Pass,
    /// Recorded, but never judged.
    Log,
    /// Recorded, and policy may look at it.
    Review,
}

/// A request that a policy judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reviewed {
    /// Its method.
    pub method: &'static str,
    /// Who sends it.
    pub from: Direction,
    /// It is judged only where a policy names it.
    pub if_named: bool,
}

/// The call of a tool: of all that is reviewed, only here the policy is asked about a name in the parameters.
pub const TOOLS_CALL: &str = "tools/call";
/// The one list of what is reviewed (docs/guard.md), for recorder and guard, on every transport.
pub const REVIEWED: [Reviewed; 4] = [
    Reviewed { method: TOOLS_CALL, from: Direction::ClientToServer, if_named: false },
    Reviewed { method: "resources/read", from: Direction::ClientToServer, if_named: false },
    Reviewed { method: "sampling/createMessage", from: Direction::ServerToClient, if_named: false },
    Reviewed { method: "elicitation/create", from: Direction::ServerToClient, if_named: true },
];

impl Reviewed {
    /// What is reviewed of the requests of this sender.
    pub fn of(from: Direction) -> impl Iterator<Item = &'static Self> {
        REVIEWED.iter().filter(move |reviewed| reviewed.from == from)
    }

    /// What is reviewed whatever the policy names, of either sender.
    pub fn always() -> impl Iterator<Item = &'static Self> {
        REVIEWED.iter().filter(|reviewed| !reviewed.if_named)
    }
}

/// The class of a request's method.
#[must_use]
pub fn classify(method: &str) -> Class {
    match method {
        "initialize" | "initialized" | "ping" => Class::Pass,
        m if Reviewed::always().any(|reviewed| reviewed.method == m) => Class::Review,
        m if m.starts_with("notifications/") => Class::Pass,
        _ => Class::Log,
    }
}

/// The members of `params` that the recorder reads from a request.
#[derive(Debug, Default)]
pub struct Params<'a> {
    /// Raw JSON of `params.name`.
    pub name: Option<&'a [u8]>,
    /// Raw JSON of `params.arguments`.
    pub arguments: Option<&'a [u8]>,
    /// Where they are in the message's bytes.
    pub arguments_at: Option<Range<usize>>,
    /// Raw JSON of `params._meta`.
    pub meta: Option<&'a [u8]>,
    /// `params.requestState`, raw (modern multi-round-trip).
    pub request_state: Option<&'a [u8]>,
    /// Raw JSON of `params.inputResponses`.
    pub input_responses: Option<&'a [u8]>,
    /// The string `params.taskId`, decoded.
    pub task_id: Option<Cow<'a, str>>,
    /// Raw JSON of `params.requestId` (of `notifications/cancelled`).
    pub request_id: Option<&'a [u8]>,
    /// `params.protocolVersion`, `params.clientInfo`, raw (initialize).
    pub initialize: (Option<&'a [u8]>, Option<&'a [u8]>),
    /// Whether `params` is there and an object.
    pub is_object: bool,
    /// A member of these occurs twice.
    pub duplicate_key: bool,
}

impl<'a> Params<'a> {
    /// Reads these members from `params`.
    #[must_use]
    pub fn of(envelope: &Envelope<'a>) -> Self {
        let Some(raw) = envelope.params.clone().map(|r| &envelope.bytes[r]) else { return Self::default() };
        let f = envelope.in_params.clone().of(envelope.bytes);
        Self {
            name: f.get(0),
            arguments: f.get(1),
            arguments_at: f.range(1),
            meta: f.get(2),
            request_state: f.get(3),
            input_responses: f.get(4),
            task_id: f.text(5),
            request_id: f.get(6),
            initialize: (f.get(7), f.get(8)),
            is_object: canon::kind(raw) == Some(canon::Kind::Object),
            duplicate_key: f.duplicate,
        }
    }
}

/// The members of `_meta` that the recorder reads from a request.
#[derive(Debug, Default)]
pub struct RequestMeta {
    /// `io.modelcontextprotocol/protocolVersion`: the message is modern (2026-07-28 and later).
    pub protocol_version: Option<String>,
    /// `io.modelcontextprotocol/clientInfo`.
    pub client: Option<crate::model::receipt::PeerInfo>,
    /// Correlation members worth keeping, as a canonical object.
    pub kept: Option<Box<serde_json::value::RawValue>>,
    /// Whether one of them is there and not among `kept`: too long, or not of a kind that a pack can hold.
    pub dropped: bool,
}

/// Self-reported correlation members that receipts keep: MCP progress token, W3C trace context, Claude Code's tool use
/// id, Codex's call id and turn metadata.
const KEPT_META: [&str; 7] = [
    "callId",
    "claudecode/toolUseId",
    "codex/callId",
    "codex/turnMetadata",
    "progressToken",
    "traceparent",
    "x-codex-turn-metadata",
];
/// A kept member is at most this long; a longer one is left out.
const MAX_META: usize = 4096;

impl RequestMeta {
    /// Reads these members from `params._meta`.
    #[must_use]
    pub fn of(raw: Option<&[u8]>) -> Self {
        let Some(raw) = raw else { return Self::default() };
        let Ok(f) = Fields::of(raw, KEPT_META) else { return Self::default() };
        let (mut kept, mut dropped) = (Vec::new(), false);
        for (i, name) in KEPT_META.iter().enumerate() {
            let Some(value) = f.get(i) else { continue };
            let canonical = Some(value).filter(|v| v.len() <= MAX_META).and_then(|v| canon::canonicalize(v).ok());
            match canonical.filter(|v| super::content::packable(v)) {
                Some(value) => kept.push(format!("\"{name}\":{}", String::from_utf8_lossy(&value))),
                None => dropped = true,
            }
        }
        let kept = (!kept.is_empty()).then(|| format!("{{{}}}", kept.join(",")));
        let era = Fields::of(raw, ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientInfo"]);
        let (protocol_version, client) =
            era.map_or((None, None), |f| (f.text(0).map(|t| short(&t)), f.get(1).and_then(peer_info)));
        Self {
            protocol_version,
            client,
            kept: kept.and_then(|k| serde_json::value::RawValue::from_string(k).ok()),
            dropped,
        }
    }
}

/// `{name, version}` of a `clientInfo` or `serverInfo`.
#[must_use]
pub fn peer_info(raw: &[u8]) -> Option<crate::model::receipt::PeerInfo> {
    let f = Fields::of(raw, ["name", "version"]).ok()?;
    Some(crate::model::receipt::PeerInfo { name: short(&f.text(0)?), version: f.text(1).map(|v| short(&v)) })
}

/// A peer's text as evidence may hold it.
#[must_use]
pub fn short(text: &str) -> String {
    super::content::receipt_text(text).0.into_owned()
}

/// The members of `result` that the recorder reads from a response.
#[derive(Debug, Default)]
pub struct ResultFields<'a> {
    /// The value of `isError`.
    pub is_error: bool,
    /// The string `resultType`, decoded.
    pub result_type: Option<Cow<'a, str>>,
    /// Raw JSON of `requestState`.
    pub request_state: Option<&'a [u8]>,
    /// Raw JSON of `inputRequests`.
    pub input_requests: Option<&'a [u8]>,
    /// `taskId`, or `task.taskId`, decoded.
    pub task_id: Option<Cow<'a, str>>,
    /// Whether there is a `task` object (a legacy task handle).
    pub has_task: bool,
    /// Raw JSON of `serverInfo`.
    pub server_info: Option<&'a [u8]>,
    /// The string `protocolVersion`, decoded.
    pub protocol_version: Option<Cow<'a, str>>,
    /// Whether it carries a task's final `result` (modern `tasks/get`).
    pub has_result: bool,
}

impl<'a> ResultFields<'a> {
    /// Reads these members from a result.
    #[must_use]
    pub fn of(envelope: &Envelope<'a>) -> Self {
        let f = envelope.in_result.clone().of(envelope.bytes);
        let in_task = f.get(5).and_then(|t| Fields::of(t, ["taskId"]).ok()).and_then(|t| t.text(0));
        let modern = f.get(9).and_then(|m| Fields::of(m, ["io.modelcontextprotocol/serverInfo"]).ok());
        Self {
            is_error: f.get(0) == Some(b"true"),
            result_type: f.text(1),
            request_state: f.get(2),
            input_requests: f.get(3),
            task_id: f.text(4).or(in_task),
            has_task: f.get(5).is_some_and(|t| canon::kind(t) == Some(canon::Kind::Object)),
            server_info: f.get(6).or_else(|| modern.and_then(|m| m.get(0))),
            protocol_version: f.text(7),
            has_result: f.get(8).is_some(),
        }
    }
}

/// Names of the sorted member names of a JSON object, joined: how two rounds of one call are matched.
#[must_use]
pub fn member_names(raw: &[u8]) -> Vec<String> {
    let Ok(members) = canon::members(raw) else { return Vec::new() };
    let mut names: Vec<String> = members.filter_map(|m| m.ok()?.key.map(Cow::into_owned)).take(1000).collect();
    names.sort_unstable();
    names
}

/// Sorted codes for what made a value ambiguous.
pub fn words(anomalies: Anomalies) -> impl Iterator<Item = Word<CallAnomaly>> {
    anomalies.names().map(Word::from)
}

/// A code as evidence holds it; an unknown one could be any text.
pub fn short_word<V: Vocabulary>(word: &Word<V>) -> Word<V> {
    match word {
        Word::Known(_) => word.clone(),
        Word::Other(text) => Word::from(&*short(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        for (json, kind) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, Some(MessageKind::Request)),
            (r#"{"method":"notifications/cancelled","params":{}}"#, Some(MessageKind::Notification)),
            (r#" {"id":"x","result":{}} "#, Some(MessageKind::Response)),
            (r#"{"id":null,"error":{}}"#, Some(MessageKind::Response)),
            (r#"{"m\u0065thod":"tools/call","id":1}"#, Some(MessageKind::Request)),
            (r#"{"Method":"tools/call","id":1}"#, None),
            ("[]", None),
            ("{\"id\":1", None),
            ("hello", None),
        ] {
            assert_eq!(parse(json.as_bytes(), None).ok().map(|e| e.kind), kind, "{json}");
        }
    }

    #[test]
    fn the_last_of_duplicate_members_counts_and_is_flagged() {
        let e = parse(br#"{"id":1,"method":"ping","m\u0065thod":"tools/call"}"#, None).unwrap();
        assert_eq!(e.method.as_deref(), Some("tools/call"));
        assert!(e.duplicate_key);
    }

    #[test]
    fn ids_compare_by_type_and_value() {
        assert_ne!(IdKey::of(b"1"), IdKey::of(b"\"1\""));
        assert_eq!(IdKey::of(br#""a\u0062""#), IdKey::of(b"\"ab\""));
        assert_eq!(IdKey::of(b"1.0"), IdKey::of(b"1"));
        for id in ["0", "7", "10", "999999999999999"] {
            assert_eq!(IdKey::of(id.as_bytes()), IdKey::of(format!("{id}.0").as_bytes()), "{id}");
        }
        assert_ne!(IdKey::of(b"9007199254740993"), IdKey::of(b"9007199254740992"));
    }

    #[test]
    fn only_known_meta_is_kept() {
        let m = RequestMeta::of(Some(
            br#"{"progressToken":0,"secret":"x","claudecode/toolUseId":"toolu_1","io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#,
        ));
        assert_eq!(m.kept.unwrap().get(), r#"{"claudecode/toolUseId":"toolu_1","progressToken":0}"#);
        assert_eq!(m.protocol_version.as_deref(), Some("2026-07-28"));
    }
}
