//! Messages of the server as lines, and the errors that the bridge answers itself.

use super::era::{Members, members};
use serde::de::IgnoredAny;
use serde_json::{json, value::RawValue};

/// JSON-RPC code of an error of ours.
const OWN_ERROR: i32 = -32000;

/// One element of what the server said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The answer to a request: the text of its id, and its result if it is no error.
    Answer { id: String, result: Option<String> },
    /// An error for which no request is named.
    Nameless,
    /// A request or notification.
    Other,
}

/// A message as one line: line breaks, which can only be between values, become blanks. `None`: it is no JSON.
pub(super) fn one_line(message: &[u8]) -> Option<Vec<u8>> {
    serde_json::from_slice::<IgnoredAny>(message).ok()?;
    let mut line: Vec<u8> =
        message.trim_ascii().iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }).collect();
    line.push(b'\n');
    Some(line)
}

/// The messages in what the server said: those of a batch one by one, as each is an answer of its own.
pub(super) fn each(message: &[u8]) -> Option<Vec<Vec<u8>>> {
    let line = one_line(message)?;
    if line.first() != Some(&b'[') {
        return Some(vec![line]);
    }
    let text = String::from_utf8_lossy(&line);
    let batch = serde_json::from_str::<Vec<&RawValue>>(&text).ok()?;
    Some(batch.iter().map(|raw| raw.get().bytes().chain(*b"\n").collect()).collect())
}

/// What a message of the server is; `None`: it is none.
pub(super) fn read(message: &[u8]) -> Option<Said> {
    let text = String::from_utf8_lossy(message);
    said(&members(&text)?)
}

fn said(members: &Members<'_>) -> Option<Said> {
    let id = members.get("id").map(|raw| raw.get()).filter(|id| *id != "null");
    let result = members.get("result").map(|raw| raw.get().to_owned());
    match id {
        _ if members.contains_key("method") => Some(Said::Other),
        Some(id) if result.is_some() || members.contains_key("error") => {
            Some(Said::Answer { id: id.to_owned(), result })
        }
        None if members.contains_key("error") => Some(Said::Nameless),
        _ => None,
    }
}

/// The JSON-RPC error in a body, as it stands there.
pub(super) fn error_in(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let error = *members(&text)?.get("error")?;
    let code = members(error.get())?.get("code").is_some_and(|code| code.get().parse::<i64>().is_ok());
    code.then(|| error.get().to_owned())
}

/// The line that answers a request with an error of the server.
pub(super) fn with_error(id: &str, error: &str) -> Vec<u8> {
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}");
    line.bytes().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { b }).chain(*b"\n").collect()
}

/// The line that answers a request with an error of ours.
pub(super) fn own_error(id: &str, why: &str, status: Option<u16>) -> Vec<u8> {
    let mut error = json!({ "code": OWN_ERROR, "message": format!("assay: {why}") });
    if let Some(status) = status {
        error["data"] = json!({ "httpStatus": status });
    }
    with_error(id, &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_becomes_one_line_and_keeps_its_bytes() {
        for (message, line) in [
            ("{\"a\":1}", "{\"a\":1}\n"),
            ("{\r\n \"a\": [1,\n2]\n}\n", "{   \"a\": [1, 2] }\n"),
            (r#"{"a":"x\ny","a":1.0}"#, "{\"a\":\"x\\ny\",\"a\":1.0}\n"),
            ("[{},\n{}]", "[{}, {}]\n"),
        ] {
            assert_eq!(one_line(message.as_bytes()).unwrap(), line.as_bytes(), "{message}");
        }
        for bad in ["", "x", "{", "{}{}", "{\"a\":\"x\ny\"}"] {
            assert!(one_line(bad.as_bytes()).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn answers_are_told_from_what_the_server_asks() {
        let answer = |id: &str, result: Option<&str>| {
            Some(Said::Answer { id: id.to_owned(), result: result.map(str::to_owned) })
        };
        assert_eq!(read(br#"{"id":1,"result":{"a":1}}"#), answer("1", Some(r#"{"a":1}"#)));
        assert_eq!(read(br#"{"id":"1","error":{"code":1}}"#), answer("\"1\"", None));
        assert_eq!(read(br#"{"id":null,"error":{"code":1}}"#), Some(Said::Nameless));
        assert_eq!(read(br#"{"id":1,"method":"ping"}"#), Some(Said::Other));
        for none in ["2", "{}", r#"{"id":1}"#, r#"{"result":1}"#] {
            assert_eq!(read(none.as_bytes()), None);
        }
        assert_eq!(each(b"[{\"id\":1},\n{\"id\":2}]").unwrap(), [&b"{\"id\":1}\n"[..], b"{\"id\":2}\n"]);
        assert_eq!(each(b"{\"a\":[1,\n2]}").unwrap(), [b"{\"a\":[1, 2]}\n"]);
        assert!(each(b"[1").is_none());
    }

    #[test]
    fn errors_keep_their_code_and_get_the_id_of_the_request() {
        let body = b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32022,\n\"message\":\"m\",\"data\":{\"supported\":[]}}}";
        let error = error_in(body).unwrap();
        let line = String::from_utf8(with_error("\"x\"", &error)).unwrap();
        assert_eq!(
            line,
            "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"error\":{\"code\":-32022, \"message\":\"m\",\"data\":{\"supported\":[]}}}\n"
        );
        for none in ["", "not found", "{}", r#"{"error":"invalid_token"}"#, r#"{"error":{"message":"x"}}"#] {
            assert!(error_in(none.as_bytes()).is_none(), "{none}");
        }
    }
}
