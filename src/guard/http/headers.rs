//! What headers say of a body, and whether it is so.

use super::Header;
use crate::canon::{self, Kind};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::borrow::Cow;

const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const VERSION: &str = "mcp-protocol-version";
/// Where a message of the modern protocol has its version.
const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";

/// A name as servers compare it: some take `_` for `-`, because their gateways do.
fn is_named(name: &str, wanted: &str) -> bool {
    let fold = |b: u8| if b == b'_' { b'-' } else { b.to_ascii_lowercase() };
    name.bytes().map(fold).eq(wanted.bytes())
}

fn values<'a>(headers: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |(n, _)| is_named(n, name)).map(|(_, value)| value.trim_ascii())
}

/// The members of all values of a header that is a list.
fn listed<'a>(headers: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let members = values(headers, name).flat_map(|value| value.split(|b| *b == b',').map(<[u8]>::trim_ascii));
    members.filter(|member| !member.is_empty())
}

/// Whether two readers could see other headers of the protocol in it: one occurs twice, or `Connection` names what
/// must reach the server.
pub(super) fn are_ambiguous(headers: &[Header<'_>]) -> bool {
    let is_twice = |name| values(headers, name).nth(1).is_some();
    let is_kept = |named: &[u8]| {
        let named = String::from_utf8_lossy(named).to_ascii_lowercase().replace('_', "-");
        ["mcp-", "content-"].iter().any(|prefix| named.starts_with(prefix))
            || ["authorization", "host", "cookie"].contains(&named.as_str())
    };
    [METHOD, NAME, VERSION].into_iter().any(is_twice) || listed(headers, "connection").any(is_kept)
}

/// Whether a header says other than the body. What is not there contradicts nothing.
pub(super) fn contradict(headers: &[Header<'_>], body: &[u8]) -> bool {
    let first = |name| values(headers, name).next().map(plain);
    let told = [first(METHOD), first(NAME), first(VERSION)];
    if told.iter().all(Option::is_none) {
        return false;
    }
    if canon::kind(body) == Some(Kind::Array) {
        let elements = canon::elements(body).into_iter().flatten().map_while(Result::ok);
        return elements.into_iter().any(|range| is_other(&told, &body[range]));
    }
    is_other(&told, body)
}

/// A value without its sentinel: `=?base64?…?=`. `None` if that cannot be decoded.
fn plain(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    const SENTINEL: &[u8] = b"=?base64?";
    match value.split_at_checked(SENTINEL.len()) {
        Some((start, rest)) if start.eq_ignore_ascii_case(SENTINEL) => {
            STANDARD.decode(rest.strip_suffix(b"?=")?).ok().map(Cow::Owned)
        }
        _ => Some(Cow::Borrowed(value)),
    }
}

/// What a header says; the inner option is `None` if it cannot be decoded.
type Told<'a> = Option<Option<Cow<'a, [u8]>>>;

fn is_other([method, name, version]: &[Told<'_>; 3], object: &[u8]) -> bool {
    // What is no object is refused by its reader.
    let Some(said) = Said::of(object) else { return false };
    let is = |told: &Option<Cow<'_, [u8]>>, said: &Option<Cow<'_, str>>| match (told, said) {
        (Some(told), Some(said)) => **told == *said.as_bytes(),
        _ => false,
    };
    let names: &[&Option<_>] = match said.method.as_deref() {
        Some("tools/call" | "prompts/get") => &[&said.name],
        Some("resources/read" | "resources/subscribe" | "resources/unsubscribe") => &[&said.uri],
        // Of other methods it is known only that it is one of these.
        _ => &[&said.name, &said.uri, &said.task],
    };
    let is_known = names.len() == 1 || names.iter().any(|said| said.is_some());
    method.as_ref().is_some_and(|told| !is(told, &said.method))
        || name.as_ref().is_some_and(|told| told.is_none() || is_known && !names.iter().any(|said| is(told, said)))
        || version.as_ref().is_some_and(|told| told.is_none() || said.version.is_some() && !is(told, &said.version))
}

/// What a message says of itself.
#[derive(Debug, Default)]
struct Said<'a> {
    method: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    uri: Option<Cow<'a, str>>,
    task: Option<Cow<'a, str>>,
    version: Option<Cow<'a, str>>,
}

impl<'a> Said<'a> {
    fn of(object: &'a [u8]) -> Option<Self> {
        let mut said = Self::default();
        let mut params = None;
        each(object, |key, value| match key {
            "method" => said.method = canon::decode_string(value),
            "params" => params = Some(value),
            _ => {}
        })?;
        let mut meta = None;
        params.and_then(|params| {
            each(params, |key, value| match key {
                "name" => said.name = canon::decode_string(value),
                "uri" => said.uri = canon::decode_string(value),
                "taskId" => said.task = canon::decode_string(value),
                "_meta" => meta = Some(value),
                _ => {}
            })
        });
        meta.and_then(|meta| {
            each(meta, |key, value| {
                if key == VERSION_META {
                    said.version = canon::decode_string(value);
                }
            })
        });
        Some(said)
    }
}

fn each<'a>(object: &'a [u8], mut see: impl FnMut(&str, &'a [u8])) -> Option<()> {
    for member in canon::members(object).ok()?.map_while(Result::ok) {
        if let Some(key) = member.key {
            see(&key, &object[member.value]);
        }
    }
    Some(())
}

/// Whether the body is coded: then it does not say what it says.
pub(super) fn are_of_coded(headers: &[Header<'_>]) -> bool {
    listed(headers, "content-encoding").any(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

/// Whether the text of the body is said to be in another character set than UTF-8.
pub(super) fn are_of_other_charset(headers: &[Header<'_>]) -> bool {
    values(headers, "content-type").any(|value| {
        value.split(|b| *b == b';').skip(1).any(|parameter| {
            let mut parts = parameter.splitn(2, |b| *b == b'=').map(<[u8]>::trim_ascii);
            let is_charset = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(b"charset"));
            let set = parts.next().unwrap_or_default();
            let set = set.strip_prefix(b"\"").and_then(|set| set.strip_suffix(b"\"")).unwrap_or(set);
            is_charset && !["utf-8", "utf8", "us-ascii"].iter().any(|name| set.eq_ignore_ascii_case(name.as_bytes()))
        })
    })
}

/// The media type of the body, in lower case, without parameters.
pub(super) fn media_type(headers: &[Header<'_>]) -> Option<String> {
    let value = values(headers, "content-type").next()?;
    let essence = value.split(|b| *b == b';').next()?.trim_ascii();
    Some(String::from_utf8_lossy(essence).to_ascii_lowercase())
}

/// Whether who asks reads an event stream and no JSON.
pub(super) fn accept_events_only(headers: &[Header<'_>]) -> bool {
    let accepts = |wanted: [&str; 3]| {
        listed(headers, "accept").any(|range| {
            let mut parts = range.split(|b| *b == b';').map(<[u8]>::trim_ascii);
            let essence = parts.next().unwrap_or_default();
            let is_zero = |q: &[u8]| q.iter().all(|b| matches!(b, b'0' | b'.'));
            let is_refused = parts.any(|parameter| {
                let q = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
                q.is_some_and(is_zero)
            });
            !is_refused && wanted.iter().any(|wanted| essence.eq_ignore_ascii_case(wanted.as_bytes()))
        })
    };
    accepts(["text/event-stream", "text/*", "text/event-stream"])
        && !accepts(["application/json", "application/*", "*/*"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header<'a>(name: &'a str, value: &'a str) -> Header<'a> {
        (name, value.as_bytes())
    }

    #[test]
    fn a_header_that_occurs_twice_or_is_taken_off_is_ambiguous() {
        for (headers, expected) in [
            (vec![], false),
            (vec![("Mcp-Method", "x"), ("Mcp-Name", "y"), ("MCP-Protocol-Version", "z")], false),
            (vec![("Mcp-Method", "x"), ("mcp-method", "x")], true),
            (vec![("Mcp-Name", "x"), ("MCP-NAME", "y")], true),
            (vec![("MCP-Protocol-Version", "x"), ("Mcp_Protocol_Version", "x")], true),
            (vec![("Mcp-Param-A", "x"), ("Mcp-Param-A", "y"), ("X-A", ""), ("X-A", "")], false),
            (vec![("Connection", "keep-alive, x-a"), ("Connection", "TE")], false),
            (vec![("Connection", "keep-alive"), ("connection", "close,Mcp-Name")], true),
            (vec![("Connection", " mcp_method ")], true),
            (vec![("Connection", "Mcp-Session-Id")], true),
            (vec![("Connection", "Content-Length")], true),
            (vec![("Connection", "authorization")], true),
            (vec![("Connection", "Host")], true),
            (vec![("Connection", "cookie")], true),
        ] {
            let all: Vec<_> = headers.iter().map(|(n, v)| header(n, v)).collect();
            assert_eq!(are_ambiguous(&all), expected, "{headers:?}");
        }
    }

    #[test]
    fn what_contradicts_a_body() {
        let call = r#"{"method":"tools/call","id":1,"params":{"name":"é x","uri":"u","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let read = r#"{"method":"resources/read","params":{"name":"é x","uri":"file:///a"}}"#;
        let task = r#"{"method":"tasks/get","params":{"taskId":"t"}}"#;
        let coded = "=?base64?w6kgeA==?=";
        for (name, value, body, expected) in [
            ("Mcp-Method", "tools/call", call, false),
            ("mcp_method", " tools/call ", call, false),
            ("Mcp-Method", "tools/list", call, true),
            ("Mcp-Method", "Tools/Call", call, true),
            ("Mcp-Method", "", call, true),
            ("Mcp-Method", "tools/call, tools/call", call, true),
            ("Mcp-Method", "ping", r#"{"id":1,"result":{}}"#, true),
            ("Mcp-Method", "tools/call", r#"{"m\u0065thod":"tools/list"}"#, true),
            ("Mcp-Method", "tools/call", "no JSON", false),
            ("Mcp-Method", "tools/call", "[7]", false),
            ("Mcp-Name", "é x", call, false),
            ("Mcp-Name", coded, call, false),
            ("Mcp-Name", "=?BASE64?w6kgeA==?=", call, false),
            ("Mcp-Name", "=?base64?w6kgeA==", call, true),
            ("Mcp-Name", "=?base64?!?=", call, true),
            ("Mcp-Name", "=?base64?eA==?=", call, true),
            ("Mcp-Name", "w6kgeA==", call, true),
            ("Mcp-Name", "u", call, true),
            ("Mcp-Name", "file:///a", read, false),
            ("Mcp-Name", "é x", read, true),
            ("Mcp-Name", "t", task, false),
            ("Mcp-Name", "other", task, true),
            ("Mcp-Name", "x", r#"{"method":"tools/call","params":{}}"#, true),
            ("Mcp-Name", "x", r#"{"method":"tools/list"}"#, false),
            ("Mcp-Name", "=?base64?!?=", r#"{"method":"tools/list"}"#, true),
            ("MCP-Protocol-Version", "2026-07-28", call, false),
            ("MCP-Protocol-Version", "2025-11-25", call, true),
            ("MCP-Protocol-Version", "2025-11-25", read, false),
            // The version that was agreed on before; this one is a new proposal.
            (
                "MCP-Protocol-Version",
                "2025-03-26",
                r#"{"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
                false,
            ),
            ("X-Mcp-Method", "other", call, false),
        ] {
            assert_eq!(contradict(&[header(name, value)], body.as_bytes()), expected, "{name}: {value} {body}");
            if Said::of(body.as_bytes()).is_some() {
                let batch = format!("[{body},{body}]");
                assert_eq!(contradict(&[header(name, value)], batch.as_bytes()), expected, "{name}: {value} {batch}");
            }
        }
        let mixed = format!("[{call},{read}]");
        assert!(contradict(&[header("Mcp-Method", "tools/call")], mixed.as_bytes()));
    }

    #[test]
    fn codings_character_sets_and_what_is_accepted() {
        for (value, coded) in [("identity", false), ("", false), ("gzip", true), ("identity, br", true), ("x", true)] {
            assert_eq!(are_of_coded(&[header("content-encoding", value)]), coded, "{value}");
        }
        for (value, other) in [
            ("application/json", false),
            ("application/json; charset=utf-8", false),
            ("application/json;CHARSET=\"UTF-8\"", false),
            ("application/json; charset=utf-16", true),
            ("application/json; x=y; charset = latin1", true),
        ] {
            assert_eq!(are_of_other_charset(&[header("Content-Type", value)]), other, "{value}");
            assert_eq!(media_type(&[header("Content-Type", value)]).unwrap(), "application/json");
        }
        for (values, only) in [
            (vec![], false),
            (vec!["application/json, text/event-stream"], false),
            (vec!["text/event-stream", "application/json"], false),
            (vec!["text/event-stream"], true),
            (vec!["Text/Event-Stream;q=0.5, application/json;q=0"], true),
            (vec!["text/*"], true),
            (vec!["text/event-stream, */*;q=0.1"], false),
            (vec!["text/html"], false),
        ] {
            let headers: Vec<_> = values.iter().map(|v| header("accept", v)).collect();
            assert_eq!(accept_events_only(&headers), only, "{values:?}");
        }
    }
}
