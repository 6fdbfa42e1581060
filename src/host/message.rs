//! What is read of a message on its way to a command, or from it.

use crate::record::envelope::{self, Envelope, Fields, IdKey, Malformed, MessageKind, Params};
use bytes::{Bytes, BytesMut};
use serde_json::value::RawValue;

/// Name of the member of `_meta` that makes a message modern.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// A request that waits for its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) id: IdKey,
    /// The id as it stands in the message.
    pub(super) text: String,
    /// By which its progress is told.
    pub(super) token: Option<IdKey>,
}

/// A message, or a batch of them.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) requests: Vec<Asked>,
    /// Ids of the requests that it answers.
    pub(super) answers: Vec<IdKey>,
    /// The method of the first message.
    pub(super) method: Option<String>,
    /// It is of a revision without sessions.
    pub(super) is_modern: bool,
    /// It answers with an error.
    pub(super) is_error: bool,
    /// Of which request it tells the progress.
    pub(super) progress: Option<IdKey>,
}

impl Message {
    /// # Errors
    /// It is no JSON-RPC.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut message = Self::default();
        if envelope::is_batch(bytes) {
            let parts: Vec<&RawValue> = serde_json::from_slice(bytes).map_err(|e| Malformed(e.to_string()))?;
            for part in parts {
                message.take(&envelope::parse(part.get().as_bytes(), None)?);
            }
        } else {
            message.take(&envelope::parse(bytes, None)?);
        }
        Ok(message)
    }

    fn take(&mut self, envelope: &Envelope<'_>) {
        let method = envelope.method.as_deref();
        if self.method.is_none() {
            self.method = method.map(ToOwned::to_owned);
        }
        let meta = Params::of(envelope).meta.and_then(|raw| Fields::of(raw, ["progressToken", VERSION_KEY]).ok());
        self.is_modern |= meta.as_ref().is_some_and(|meta| meta.text(1).is_some());
        match (envelope.kind, envelope.id) {
            (MessageKind::Request, Some(id)) => self.requests.push(Asked {
                id: IdKey::of(id),
                text: String::from_utf8_lossy(id).into_owned(),
                token: meta.and_then(|meta| meta.get(0).map(IdKey::of)),
            }),
            (MessageKind::Response, Some(id)) => {
                self.answers.push(IdKey::of(id));
                self.is_error |= envelope.error.is_some();
            }
            (MessageKind::Notification, _) if method == Some("notifications/progress") => {
                let params = envelope.params.clone().map(|range| &envelope.bytes[range]);
                let token = params.and_then(|raw| Fields::of(raw, ["progressToken"]).ok());
                self.progress = token.and_then(|token| token.get(0).map(IdKey::of));
            }
            _ => {}
        }
    }

    pub(super) fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }
}

/// A message as a line. Line breaks in it stand between its parts, where they mean nothing.
pub(super) fn line(body: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(body.len() + 1);
    line.extend(body.trim_ascii().iter().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b }));
    line.extend_from_slice(b"\n");
    line.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_what_it_asks_and_answers() {
        let key = |raw: &str| IdKey::of(raw.as_bytes());
        let read = |text: &str| Message::read(text.as_bytes()).unwrap();
        let m = read(r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"_meta":{"progressToken":0}}}"#);
        let asked = Asked { id: key("\"a\""), text: "\"a\"".into(), token: Some(key("0")) };
        assert_eq!((m.requests, m.is_modern, m.method.as_deref()), (vec![asked], false, Some("tools/call")));
        let m = read(&format!(r#"{{"id":1,"method":"x","params":{{"_meta":{{"{VERSION_KEY}":"2026-07-28"}}}}}}"#));
        assert!(m.is_modern && m.requests.len() == 1);
        let m = read(r#"[{"id":1,"result":{}},{"id":"1","error":{}},{"method":"n"}]"#);
        assert_eq!((m.answers, m.is_error, m.requests.len()), (vec![key("1"), key("\"1\"")], true, 0));
        let m = read(r#"{"method":"notifications/progress","params":{"progressToken":"t","progress":1}}"#);
        assert_eq!(m.progress, Some(key("\"t\"")));
        for bad in ["", "{", "7", "{}", "[7]", "hello"] {
            assert!(Message::read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        assert_eq!(line(b"{\r\n \"a\": 1\n}\n"), &b"{   \"a\": 1 }\n"[..]);
    }
}
