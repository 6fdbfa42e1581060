//! What the bridge reads of a message of the client, and the headers that it has by its revision of the protocol.
//!
//! The revision is a property of a message: `params._meta` of a modern one names it.

use super::params::{Params, header_value};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, value::RawValue};
use std::{borrow::Cow, collections::BTreeMap};

/// Name of the member of `_meta` that makes a message modern.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// `Mcp-Session-Id`.
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// `MCP-Protocol-Version`.
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Members of a JSON object, the last of equal names; values as they stand there.
pub(super) type Members<'a> = BTreeMap<String, &'a RawValue>;

/// A request in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// The text of its id as it stands in the message.
    pub(super) id: String,
    pub(super) method: String,
    /// Whether it asks for a later page.
    pub(super) continues: bool,
}

/// A message of the client.
#[derive(Debug)]
pub(super) struct Message {
    /// The bytes, without the line break.
    pub(super) body: Bytes,
    /// The texts of the ids in it, of requests and of answers.
    pub(super) ids: Vec<String>,
    /// The requests in it: one, none, or those of a batch.
    pub(super) requests: Vec<Request>,
    /// The method of a message that is no batch.
    pub(super) method: Option<String>,
    /// The version that a modern message names.
    pub(super) version: Option<String>,
    /// The text of the id of the request that it cancels.
    pub(super) cancels: Option<String>,
    /// The tool, prompt, resource or task that it is about.
    name: Option<String>,
    arguments: Option<Value>,
}

impl Message {
    /// Reads as much as there is to read: what is no JSON has no requests.
    pub(super) fn read(body: &Bytes) -> Self {
        let mut message = Self {
            body: body.clone(),
            ids: Vec::new(),
            requests: Vec::new(),
            method: None,
            version: None,
            cancels: None,
            name: None,
            arguments: None,
        };
        let text = String::from_utf8_lossy(body);
        if let Some(members) = members(&text) {
            message.ids.extend(id(&members));
            message.requests.extend(request(&members));
            message.method = members.get("method").and_then(|raw| string(raw));
            let params = members.get("params").and_then(|raw| self::members(raw.get())).unwrap_or_default();
            message.read_params(&params);
        } else if let Ok(batch) = serde_json::from_str::<Vec<&RawValue>>(&text) {
            for members in batch.iter().filter_map(|raw| self::members(raw.get())) {
                message.ids.extend(id(&members));
                message.requests.extend(request(&members));
            }
        }
        message
    }

    fn read_params(&mut self, params: &Members<'_>) {
        let meta = params.get("_meta").and_then(|raw| members(raw.get())).unwrap_or_default();
        self.version = meta.get(VERSION_KEY).and_then(|raw| string(raw));
        let named_by = match self.method.as_deref() {
            Some("tools/call" | "prompts/get") => "name",
            Some("resources/read") => "uri",
            Some("tasks/get" | "tasks/update" | "tasks/cancel") => "taskId",
            Some("notifications/cancelled") => {
                self.cancels = params.get("requestId").map(|raw| raw.get().to_owned());
                return;
            }
            _ => return,
        };
        self.name = params.get(named_by).and_then(|raw| string(raw));
        if self.version.is_some() && self.method.as_deref() == Some("tools/call") {
            self.arguments = params.get("arguments").and_then(|raw| serde_json::from_str(raw.get()).ok());
        }
    }

    /// Whether it is of a revision without sessions.
    pub(super) fn is_modern(&self) -> bool {
        self.version.is_some()
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    /// The headers that tell what a modern message says.
    pub(super) fn modern_headers(&self, params: &Params) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Some(version) = &self.version else { return headers };
        headers.extend(header_value(version).map(|value| (PROTOCOL_VERSION, value)));
        headers.extend(self.method.as_deref().and_then(header_value).map(|value| (METHOD, value)));
        headers.extend(self.name.as_deref().and_then(header_value).map(|value| (NAME, value)));
        if let (Some(tool), Some(arguments)) = (&self.name, &self.arguments) {
            headers.extend(params.headers(tool, arguments));
        }
        headers
    }
}

/// The headers of a session of the revisions that have one.
pub(super) fn session_headers(session: Option<&HeaderValue>, version: Option<&HeaderValue>) -> HeaderMap {
    let session = session.map(|id| (SESSION_ID, id.clone()));
    session.into_iter().chain(version.map(|version| (PROTOCOL_VERSION, version.clone()))).collect()
}

/// The members of an object; `None` if this is none.
pub(super) fn members(text: &str) -> Option<Members<'_>> {
    serde_json::from_str(text).ok()
}

pub(super) fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str::<Cow<'_, str>>(raw.get()).ok().map(Cow::into_owned)
}

fn id(members: &Members<'_>) -> Option<String> {
    members.get("id").map(|raw| raw.get()).filter(|id| *id != "null").map(str::to_owned)
}

fn request(members: &Members<'_>) -> Option<Request> {
    let id = id(members)?;
    let method = members.get("method").and_then(|raw| string(raw))?;
    let continues = method == "tools/list"
        && members.get("params").and_then(|raw| self::members(raw.get())).is_some_and(|p| p.contains_key("cursor"));
    Some(Request { id, method, continues })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Message {
        Message::read(&Bytes::copy_from_slice(text.as_bytes()))
    }

    fn headers(message: &Message, params: &Params) -> Vec<String> {
        let headers = message.modern_headers(params);
        headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect()
    }

    #[test]
    fn requests_are_found_with_their_ids_as_they_are_written() {
        let ids = |text: &str| read(text).requests.into_iter().map(|r| r.id).collect::<Vec<_>>();
        assert_eq!(ids(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#), ["1"]);
        assert_eq!(ids(r#"{"id":"1","method":"a"}"#), ["\"1\""]);
        assert_eq!(ids(r#"{"id":99999999999999999999,"method":"a"}"#), ["99999999999999999999"]);
        assert_eq!(ids(r#"{"id":1,"id":2,"method":"a"}"#), ["2"]);
        assert_eq!(
            ids(r#"[{"id":1,"method":"a"},{"method":"b"},{"id":2,"result":{}},{"id":"x","method":"c"}]"#),
            ["1", "\"x\""]
        );
        for none in [r#"{"method":"a"}"#, r#"{"id":null,"method":"a"}"#, r#"{"id":1,"result":{}}"#, "", "x", "{", "1"] {
            assert!(ids(none).is_empty(), "{none}");
        }
        // Bytes that are no UTF-8 are no reason to lose a request.
        let message = Message::read(&Bytes::from_static(b"{\"id\":7,\"method\":\"a\",\"params\":{\"x\":\"\xff\"}}"));
        assert_eq!(message.requests[0].id, "7");
        assert!(message.body.contains(&0xff));
    }

    #[test]
    fn modern_messages_say_in_headers_what_they_are() {
        let mut params = Params::default();
        let schema = json!({"properties": {"r": {"type": "string", "x-mcp-header": "Region"}}});
        params.learn(&json!({"tools": [{"name": "t", "inputSchema": schema}]}), false);
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let version = "mcp-protocol-version: 2026-07-28";
        for (method, rest, told) in [
            ("tools/call", r#","name":"t","arguments":{"r":"eu"}"#, &["mcp-name: t", "mcp-param-region: eu"][..]),
            ("tools/call", r#","name":"é""#, &["mcp-name: =?base64?w6k=?="]),
            ("prompts/get", r#","name":"p""#, &["mcp-name: p"]),
            ("resources/read", r#","uri":"file:///x","name":"no""#, &["mcp-name: file:///x"]),
            ("tasks/get", r#","taskId":"7""#, &["mcp-name: 7"]),
            ("tools/list", "", &[]),
        ] {
            let message = read(&format!(r#"{{"id":1,"method":"{method}","params":{{{meta}{rest}}}}}"#));
            let method = format!("mcp-method: {method}");
            let expected = [&[version, &method][..], told].concat();
            assert_eq!(headers(&message, &params), expected);
        }
        let legacy = read(r#"{"id":1,"method":"tools/call","params":{"name":"t","arguments":{"r":"eu"}}}"#);
        assert!(headers(&legacy, &params).is_empty() && !legacy.is_modern());
    }

    #[test]
    fn a_cancel_names_its_request() {
        let message = read(r#"{"method":"notifications/cancelled","params":{"requestId":"a","reason":"r"}}"#);
        assert_eq!(message.cancels.as_deref(), Some("\"a\""));
        assert!(message.requests.is_empty());
    }
}
