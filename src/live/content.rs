//! The content of messages, for those who watch and for nobody else: capped, in memory only, never waited for.

use super::message::{Crossing, What};
use crate::{
    model::{Direction, RpcId, SessionId, WallTime},
    record::broadcast::Crossed,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

/// Characters of a preview.
pub const PREVIEW: usize = 200;

/// `content`: the beginning of a message as it crossed. It is in no file and does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OnWire", into = "OnWire")]
pub struct Content {
    /// When the last byte of the message was read.
    pub at: WallTime,
    /// Which way it went.
    pub direction: Direction,
    /// Number of its exchange over HTTP.
    pub exchange: Option<u64>,
    /// Stream offset of the message.
    pub offset: u64,
    /// Id of the session.
    pub session_id: SessionId,
    /// Its bytes, or the first of them; what is not UTF-8 replaced; not yet safe for a terminal.
    pub text: String,
    /// Length of the whole message in bytes.
    pub wire_bytes: u64,
    /// Whether `text` is not all of it.
    pub cut: bool,
    /// What it says of itself.
    pub said: Said,
}

/// The members of the line.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OnWire {
    at: WallTime,
    cut: bool,
    direction: Direction,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exchange: Option<u64>,
    offset: u64,
    session_id: SessionId,
    text: String,
    wire_bytes: u64,
}

impl From<OnWire> for Content {
    fn from(w: OnWire) -> Self {
        let said = if w.cut { Said::of_beginning(&w.text) } else { Said::of(&w.text) };
        let OnWire { at, cut, direction, exchange, offset, session_id, text, wire_bytes } = w;
        Self { at, direction, exchange, offset, session_id, text, wire_bytes, cut, said }
    }
}

impl From<Content> for OnWire {
    fn from(c: Content) -> Self {
        let Content { at, cut, direction, exchange, offset, session_id, text, wire_bytes, said: _ } = c;
        Self { at, cut, direction, exchange, offset, session_id, text, wire_bytes }
    }
}

impl Content {
    /// What is told of a message that crossed.
    #[must_use]
    pub fn of(c: &Crossed) -> Self {
        let cut = c.cut;
        // A character that was cut in two is not there.
        let torn = c.beginning.utf8_chunks().last().filter(|_| cut).map_or(0, |last| last.invalid().len());
        let len = c.beginning.len() - torn;
        let text = String::from_utf8_lossy(&c.beginning[..len]).into_owned();
        let Crossed { session, at, direction, exchange, offset, wire_bytes, .. } = *c;
        OnWire { at, cut, direction, exchange, offset, session_id: session, text, wire_bytes }.into()
    }

    /// Where the message crossed.
    #[must_use]
    pub const fn crossing(&self) -> Crossing {
        (self.direction, self.exchange, self.offset)
    }

    /// The arguments of a request, or the result or error of an answer; nothing if the message was cut.
    #[must_use]
    pub fn value(&self) -> Option<Value> {
        let mut all = serde_json::from_str::<Value>(&self.text).ok().filter(|_| !self.cut)?;
        let arguments = all.pointer_mut("/params/arguments").map(Value::take);
        arguments.or_else(|| ["result", "error"].iter().find_map(|name| Some(all.get_mut(name)?.take())))
    }
}

/// The members of a message that tell what it is, as they were sent.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

fn arguments_of(params: &RawValue) -> Option<&RawValue> {
    object::<Params<'_>>(params.get())?.arguments
}

/// Members of an object; an array is none.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok().filter(|_| text.trim_start().starts_with('{'))
}

/// What a message says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// What it is.
    pub what: What,
    /// Its method.
    pub method: Option<String>,
    /// Its JSON-RPC id.
    pub id: Option<RpcId>,
    /// Its arguments, parameters, result or error in one line of bounded length; not yet safe for a terminal.
    pub preview: String,
}

impl Said {
    fn of(text: &str) -> Self {
        let Some(all) = object::<Members<'_>>(text) else {
            let what = if text.trim_start().starts_with(['[', '{']) { What::Other } else { What::Junk };
            return Self { what, method: None, id: None, preview: one_line(text) };
        };
        let shown = all.params.and_then(arguments_of).or(all.params).or(all.result).or(all.error);
        let id = all.id.and_then(|id| serde_json::from_str::<RpcId>(id.get()).ok()).filter(|id| *id != RpcId::Null);
        let what = match (&all.method, all.id, all.error) {
            (Some(_), Some(_), _) => What::Request,
            (Some(_), None, _) => What::Notification,
            (None, Some(_), Some(_)) => What::Error,
            (None, Some(_), None) => What::Response,
            (None, None, _) => What::Junk,
        };
        let preview = shown.map(|value| one_line(value.get())).unwrap_or_default();
        Self { what, method: all.method.map(Cow::into_owned), id, preview }
    }

    /// Of the beginning of a message nothing is sure but its text.
    fn of_beginning(text: &str) -> Self {
        let shown = ["\"arguments\":", "\"params\":", "\"result\":", "\"error\":"];
        let at = shown.iter().find_map(|name| Some(text.find(name)? + name.len())).unwrap_or(0);
        Self { what: What::Other, method: None, id: None, preview: one_line(&text[at..]) }
    }
}

/// The first characters of a text in one line.
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut out: String = text.trim().chars().take(PREVIEW).collect();
    if text.trim().chars().nth(PREVIEW).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::protocol::LiveLine;

    fn of(text: &[u8], wire_bytes: u64) -> Content {
        Content::of(&Crossed {
            session: SessionId::from_bits(1),
            at: WallTime::from_millis(0),
            direction: Direction::ClientToServer,
            exchange: None,
            offset: 3,
            beginning: text.to_vec(),
            cut: wire_bytes > text.len() as u64,
            wire_bytes,
        })
    }

    #[test]
    fn a_message_says_what_it_is() {
        for (text, what, method, preview) in [
            (
                r#"{"id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":1}}}"#,
                What::Request,
                Some("tools/call"),
                r#"{"a":1}"#,
            ),
            (
                r#"{"method":"notifications/progress","params":{"p":2}}"#,
                What::Notification,
                Some("notifications/progress"),
                r#"{"p":2}"#,
            ),
            (r#"{"id":"a","result":[]}"#, What::Response, None, "[]"),
            (r#"{"id":1,"error":{"code":-1}}"#, What::Error, None, r#"{"code":-1}"#),
            (r#"[{"id":1}]"#, What::Other, None, r#"[{"id":1}]"#),
            ("Listening on 80", What::Junk, None, "Listening on 80"),
        ] {
            let said = of(text.as_bytes(), text.len() as u64).said;
            assert_eq!((said.what, said.method.as_deref(), said.preview.as_str()), (what, method, preview), "{text}");
        }
    }

    #[test]
    fn the_beginning_of_a_long_message_is_text_and_no_character_is_torn() {
        let text = format!(r#"{{"id":1,"method":"tools/call","params":{{"arguments":{{"a":"{}"#, "é".repeat(400));
        let cut = of(&text.as_bytes()[..text.len() - 1], 1 << 20);
        assert!(cut.cut && cut.text.ends_with('é') && !cut.text.contains('\u{fffd}'));
        assert!(cut.said.preview.starts_with(r#"{"a":"é"#) && cut.said.preview.chars().count() == PREVIEW + 1);
        assert_eq!((cut.value(), cut.said.what), (None, What::Other));
        let line = LiveLine::Content(Box::new(cut));
        assert_eq!(LiveLine::parse(&line.to_bytes()).unwrap(), line);
        // What is no text is replaced.
        assert_eq!(of(b"\xff{", 2).text, "\u{fffd}{");
    }
}
