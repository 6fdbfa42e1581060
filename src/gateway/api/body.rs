//! Bodies of requests, and what of them does not read: it is told with its place, and never quoted.

use super::problem::Problem;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Bytes of the longest body.
const MAX_BODY: usize = 5 << 20;
/// Types that a body may have.
const JSON: &[&str] = &["application/json"];
/// The same of a form.
const FORM: &[&str] = &["application/x-www-form-urlencoded"];
/// The same of what is to be other.
const MERGE_PATCH: &[&str] = &["application/merge-patch+json", "application/json"];

/// Whether the body of a request has one of these types.
fn is_of(headers: &HeaderMap, types: &[&str]) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.split(';').next()).map(str::trim);
    given.is_some_and(|given| types.iter().any(|t| t.eq_ignore_ascii_case(given)))
}

/// The body of a request, not yet read.
pub struct Unread {
    /// The headers of the request.
    headers: HeaderMap,
    body: Incoming,
}

impl Unread {
    /// Of a request with these headers.
    #[must_use]
    pub const fn new(headers: HeaderMap, body: Incoming) -> Self {
        Self { headers, body }
    }

    async fn bytes(self, types: &[&str], may_be_empty: bool) -> Result<Vec<u8>, Problem> {
        let typed = is_of(&self.headers, types);
        let is_bare = !self.headers.contains_key(header::CONTENT_TYPE);
        let wrong = || {
            let detail = format!("the body is to be {}", types.join(" or "));
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
        };
        if !(typed || may_be_empty && is_bare) {
            return Err(wrong());
        }
        let (mut body, mut bytes, mut read) = (self.body, Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Problem::bad("the body cannot be read to its end"))?;
            let data = frame.into_data().unwrap_or_default();
            read += data.len();
            if read <= MAX_BODY {
                bytes.extend_from_slice(&data);
            } else if read > 2 * MAX_BODY {
                break;
            }
        }
        // Its sender gets to the answer if the rest is read, too.
        if read > MAX_BODY {
            let detail = format!("the body is longer than {MAX_BODY} bytes");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail));
        }
        if !typed && !bytes.is_empty() { Err(wrong()) } else { Ok(bytes) }
    }

    /// A value.
    ///
    /// # Errors
    /// It is none.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, Problem> {
        parse(&self.bytes(JSON, false).await?)
    }

    /// A value; without a body, what is usual.
    ///
    /// # Errors
    /// It is none.
    pub async fn json_or_default<T: DeserializeOwned + Default>(self) -> Result<T, Problem> {
        let bytes = self.bytes(JSON, true).await?;
        if bytes.is_empty() { Ok(T::default()) } else { parse(&bytes) }
    }

    /// The fields of a form, in their order.
    ///
    /// # Errors
    /// It is none.
    pub async fn form(self) -> Result<Vec<(String, String)>, Problem> {
        let bytes = self.bytes(FORM, false).await?;
        Ok(url::form_urlencoded::parse(&bytes).into_owned().collect())
    }

    /// A merge patch (RFC 7396).
    ///
    /// # Errors
    /// It is none.
    pub async fn merge_patch(self) -> Result<Map<String, Value>, Problem> {
        parse(&self.bytes(MERGE_PATCH, false).await?)
    }
}

/// Reads a value.
///
/// # Errors
/// What is no JSON is 400, what is another value is 422.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|e| {
        if e.is_data() {
            Problem::invalid_at(&pointer(bytes, &e), unquoted(&e.to_string()))
        } else {
            Problem::bad(format!("the body is no JSON, as of line {} column {}", e.line(), e.column()))
        }
    })
}

/// JSON pointer to the member that a reader had come to.
fn pointer(bytes: &[u8], e: &serde_json::Error) -> String {
    let before: usize = bytes.split_inclusive(|b| *b == b'\n').take(e.line().saturating_sub(1)).map(<[u8]>::len).sum();
    let end = (before + e.column()).min(bytes.len());
    // The open objects with their last member, the open arrays with their place.
    let (mut open, mut at): (Vec<Result<String, usize>>, usize) = (Vec::new(), 0);
    let mut is_name = false;
    while at < end {
        match bytes[at] {
            b'{' => {
                open.push(Ok(String::new()));
                is_name = true;
            }
            b'[' => {
                open.push(Err(0));
                is_name = false;
            }
            b'}' | b']' => drop(open.pop()),
            b',' => match open.last_mut() {
                Some(Err(place)) => *place += 1,
                _ => is_name = true,
            },
            b'"' => {
                let start = at;
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                if let (true, Some(Ok(name))) = (is_name, open.last_mut()) {
                    let text = bytes.get(start..=at).unwrap_or_default();
                    *name = serde_json::from_slice(text).unwrap_or_default();
                    is_name = false;
                }
            }
            _ => {}
        }
        at += 1;
    }
    let step = |step: &Result<String, usize>| match step {
        Ok(name) if name.is_empty() => String::new(),
        Ok(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        Err(place) => format!("/{place}"),
    };
    open.iter().map(step).collect()
}

/// What a reader says, without what it read: that may be a credential.
fn unquoted(said: &str) -> String {
    let said = said.rsplit_once(" at line ").map_or(said, |(said, _)| said);
    match said.split_once(", expected ") {
        Some((what, expected)) if !what.starts_with("unknown field") => format!("expected {expected}"),
        Some(_) => said.to_owned(),
        None if said.starts_with("missing field") || said.starts_with("duplicate field") => said.to_owned(),
        None => "is not what is expected here".to_owned(),
    }
}

/// What a merge patch makes of a value (RFC 7396).
pub fn merge(target: &mut Value, patch: &Map<String, Value>) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else { return };
    for (name, value) in patch {
        match value {
            Value::Null => drop(members.remove(name)),
            Value::Object(patch) => merge(members.entry(name).or_insert(Value::Null), patch),
            value => drop(members.insert(name.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{api::types::NewService, spec::Spec};
    use serde_json::json;

    #[test]
    fn what_does_not_read_is_told_with_its_place_and_is_not_quoted() {
        for (text, status, pointer, detail) in [
            ("{", 400, "", "no JSON"),
            ("{} ", 422, "", "missing field `name`"),
            ("\"c4n4ry\"", 422, "", "expected struct NewService"),
            (r#"{"name": "a", "upstream_url": 7}"#, 422, "/upstream_url", "expected a string"),
            (
                r#"{"name": "a", "upstream_url": "http://x/", "headers": {"A": "c4n4ry"}}"#,
                422,
                "/headers/A",
                "expected struct",
            ),
            (r#"{"name": "a", "upstream_url": "http://x/", "profile": "c4n4ry"}"#, 422, "/profile", "expected"),
            (r#"{"name": "a", "uri": "x"}"#, 422, "/uri", "unknown field `uri`"),
            (r#"{"name": "a", "x/y": 1}"#, 422, "/x~1y", "unknown field"),
            (r#"{"name": "a", "upstream_url": "http://x/"} {}"#, 400, "", "no JSON"),
        ] {
            let problem = parse::<NewService>(text.as_bytes()).unwrap_err();
            assert_eq!(problem.status.as_u16(), status, "{text}: {problem:?}");
            let said = problem.errors.first().map_or(&problem.detail, |fault| &fault.detail);
            assert!(said.contains(detail) && !format!("{problem:?}").contains("c4n4ry"), "{text}: {problem:?}");
            if status == 422 && !pointer.is_empty() {
                assert_eq!(problem.errors[0].pointer, pointer, "{text}");
            }
        }
    }

    #[test]
    fn a_merge_patch_takes_away_what_is_null_and_goes_into_objects() {
        // The example of RFC 7396.
        let mut value = json!({"title": "Goodbye!", "author": {"givenName": "John", "familyName": "Doe"}, "tags": ["a", "b"], "content": "x"});
        let patch = json!({"title": "Hello!", "phone": "+01", "author": {"familyName": null}, "tags": ["a"]});
        merge(&mut value, patch.as_object().unwrap());
        let wanted =
            json!({"title": "Hello!", "author": {"givenName": "John"}, "tags": ["a"], "content": "x", "phone": "+01"});
        assert_eq!(value, wanted);
        let spec: Spec =
            serde_json::from_value(json!({"upstream_url": "http://x/", "headers": {"A": {"env": "B"}}})).unwrap();
        let mut value = serde_json::to_value(&spec).unwrap();
        merge(&mut value, json!({"headers": {"A": null, "C": {"file": "d"}}}).as_object().unwrap());
        let merged: Spec = serde_json::from_value(value).unwrap();
        assert_eq!(merged.headers.keys().collect::<Vec<_>>(), ["C"]);
    }
}
