//! The headers of what is passed on: all as they came, but for what ends at each connection.
//!
//! A header map is built anew, in order: to remove a name from one would reorder the others.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, Entry},
    uri::Authority,
};
use std::collections::HashSet;

/// Names that are no business of a single connection, whatever `Connection` says.
fn is_end_to_end(name: &str) -> bool {
    name.starts_with("mcp-")
        || name.starts_with("content-")
        || matches!(name, "authorization" | "host" | "cookie" | "set-cookie")
}

/// The names that `Connection` lists, in lower case.
pub(super) fn nominated(headers: &HeaderMap) -> HashSet<String> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|v| v.to_str().ok());
    values.flat_map(|v| v.split(',')).map(|name| name.trim().to_ascii_lowercase()).filter(|n| !n.is_empty()).collect()
}

/// Whether a header ends at this connection. `Transfer-Encoding` is not among them: the framing is passed on.
fn ends_here(name: &HeaderName, nominated: &HashSet<String>) -> bool {
    let name = name.as_str();
    matches!(name, "connection" | "keep-alive" | "te" | "upgrade")
        || name.starts_with("proxy-")
        || nominated.contains(name) && !is_end_to_end(name) && name != "transfer-encoding"
}

/// What becomes of the headers of requests.
#[derive(Debug, Clone)]
pub(super) struct RequestRules<'a> {
    /// The upstream's host and port.
    pub(super) authority: &'a HeaderValue,
    /// Headers that replace what the client sent; several of a name stand together.
    pub(super) inject: &'a [(HeaderName, HeaderValue)],
    /// A header that carries a token of ours.
    pub(super) strip: Option<HeaderName>,
    /// Answers are read on the way, so they must not be coded.
    pub(super) identity: bool,
    /// The upstream speaks HTTP/2.
    pub(super) to_h2: bool,
    /// The client speaks HTTP/2, and the body's length is not known.
    pub(super) unframed: bool,
}

/// The headers of a request, for the upstream.
pub(super) fn of_request(headers: &HeaderMap, rules: &RequestRules<'_>) -> HeaderMap {
    let nominated = nominated(headers);
    let is_chunked = headers.contains_key(header::TRANSFER_ENCODING);
    let mut out = HeaderMap::with_capacity(headers.len() + rules.inject.len() + 2);
    let mut injected = HashSet::new();
    for (name, value) in headers {
        if let Some(first) = rules.inject.iter().find(|(given, _)| given == name).map(|(given, _)| given) {
            if injected.insert(first.clone()) {
                append_all(&mut out, rules.inject, first);
            }
            continue;
        }
        if *name == header::HOST {
            if !rules.to_h2 {
                out.insert(header::HOST, rules.authority.clone());
            }
            continue;
        }
        if *name == header::TE && is_trailers(value) {
            out.append(header::TE, value.clone());
            continue;
        }
        let hidden = rules.strip.as_ref() == Some(name)
            || *name == header::CONTENT_LENGTH && is_chunked
            || *name == header::TRANSFER_ENCODING && rules.to_h2
            || rules.identity && *name == header::ACCEPT_ENCODING;
        if hidden || ends_here(name, &nominated) {
            continue;
        }
        // HTTP/2 may split cookies; HTTP/1 has them in one line.
        if *name == header::COOKIE
            && !rules.to_h2
            && let Entry::Occupied(mut before) = out.entry(header::COOKIE)
        {
            let joined = [before.get().as_bytes(), value.as_bytes()].join(&b"; "[..]);
            if let Ok(joined) = HeaderValue::from_bytes(&joined) {
                before.insert(joined);
            }
            continue;
        }
        out.append(name.clone(), value.clone());
    }
    if !rules.to_h2 && !out.contains_key(header::HOST) {
        out.insert(header::HOST, rules.authority.clone());
    }
    for (name, _) in rules.inject {
        if injected.insert(name.clone()) {
            append_all(&mut out, rules.inject, name);
        }
    }
    if rules.identity {
        out.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    if rules.unframed && !rules.to_h2 && !out.contains_key(header::CONTENT_LENGTH) {
        out.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    out
}

fn append_all(out: &mut HeaderMap, from: &[(HeaderName, HeaderValue)], name: &HeaderName) {
    for (_, value) in from.iter().filter(|(given, _)| given == name) {
        out.append(name.clone(), value.clone());
    }
}

fn is_trailers(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|v| v.split(',').any(|t| t.trim().eq_ignore_ascii_case("trailers")))
}

/// Where clients reach us, as far as they say it.
#[derive(Debug, Clone)]
pub(super) struct Front<'a> {
    /// Scheme, host and port of the upstream.
    pub(super) upstream: &'a url::Origin,
    /// The authority that the client used.
    pub(super) authority: Option<&'a Authority>,
    /// The client speaks HTTP/2.
    pub(super) to_h2: bool,
}

/// The headers of an answer, for the client; whether `Location` was rewritten.
pub(super) fn of_response(headers: &HeaderMap, front: &Front<'_>) -> (HeaderMap, bool) {
    let nominated = nominated(headers);
    let is_chunked = headers.contains_key(header::TRANSFER_ENCODING);
    let mut out = HeaderMap::with_capacity(headers.len());
    let mut rewrote = false;
    for (name, value) in headers {
        let hidden = *name == header::CONTENT_LENGTH && is_chunked || *name == header::TRANSFER_ENCODING && front.to_h2;
        if hidden || ends_here(name, &nominated) {
            continue;
        }
        let moved = if *name == header::LOCATION { location(value, front) } else { None };
        rewrote |= moved.is_some();
        out.append(name.clone(), moved.unwrap_or_else(|| value.clone()));
    }
    (out, rewrote)
}

/// A `Location` on the upstream's origin, on the client's.
fn location(value: &HeaderValue, front: &Front<'_>) -> Option<HeaderValue> {
    let (text, authority) = (value.to_str().ok()?, front.authority?);
    let url = url::Url::parse(text).ok()?;
    if url.origin() != *front.upstream {
        return None;
    }
    // What stands behind the authority stays as it was written.
    let after = text.split_once("://")?.1;
    let rest = &after[after.find(['/', '?', '#']).unwrap_or(after.len())..];
    HeaderValue::from_str(&format!("http://{authority}{rest}")).ok()
}

/// Whether the framing of an answer can be passed on: hyper undoes `chunked` only.
pub(super) fn is_framing_known(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TRANSFER_ENCODING);
    values.iter().all(|v| v.to_str().is_ok_and(|v| v.trim().eq_ignore_ascii_case("chunked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn lines(map: &HeaderMap) -> Vec<String> {
        map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    fn rules(inject: &[(HeaderName, HeaderValue)]) -> RequestRules<'_> {
        static AUTHORITY: HeaderValue = HeaderValue::from_static("up:80");
        RequestRules { authority: &AUTHORITY, inject, strip: None, identity: false, to_h2: false, unframed: false }
    }

    #[test]
    fn what_ends_here_is_gone_and_the_rest_keeps_its_order() {
        let given = map(&[
            ("x-a", "1"),
            ("host", "localhost:1"),
            ("connection", "keep-alive, X-Own, Mcp-Session-Id, authorization, Content-Type"),
            ("keep-alive", "timeout=5"),
            ("x-own", "1"),
            ("mcp-session-id", "s"),
            ("proxy-authorization", "p"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("authorization", "a"),
            ("content-type", "t"),
            ("x-b", "1"),
            ("x-b", "2"),
        ]);
        let out = lines(&of_request(&given, &rules(&[])));
        let expected = [
            "x-a: 1",
            "host: up:80",
            "mcp-session-id: s",
            "te: trailers",
            "authorization: a",
            "content-type: t",
            "x-b: 1",
            "x-b: 2",
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn framing_is_passed_on_without_contradiction() {
        let given = map(&[("host", "h"), ("content-length", "5"), ("transfer-encoding", "chunked")]);
        assert_eq!(lines(&of_request(&given, &rules(&[]))), ["host: up:80", "transfer-encoding: chunked"]);
        let to_h2 = RequestRules { to_h2: true, ..rules(&[]) };
        assert!(of_request(&given, &to_h2).is_empty());
        let unframed = RequestRules { unframed: true, ..rules(&[]) };
        assert_eq!(lines(&of_request(&map(&[]), &unframed)), ["host: up:80", "transfer-encoding: chunked"]);
        assert!(is_framing_known(&map(&[("transfer-encoding", "Chunked")])));
        for bad in ["gzip, chunked", "xchunked", "identity", "chunked, chunked"] {
            assert!(!is_framing_known(&map(&[("transfer-encoding", bad)])), "{bad}");
        }
    }

    #[test]
    fn given_headers_replace_and_our_token_ends_here() {
        let inject = [
            (HeaderName::from_static("authorization"), HeaderValue::from_static("ours")),
            (HeaderName::from_static("x-new"), HeaderValue::from_static("1")),
            (HeaderName::from_static("x-new"), HeaderValue::from_static("2")),
        ];
        let strip = RequestRules { strip: Some(HeaderName::from_static("assay-token")), ..rules(&inject) };
        let given = map(&[("authorization", "theirs"), ("assay-token", "t"), ("authorization", "more"), ("host", "h")]);
        let out = lines(&of_request(&given, &strip));
        assert_eq!(out, ["authorization: ours", "host: up:80", "x-new: 1", "x-new: 2"]);
    }

    #[test]
    fn crumbs_are_joined_for_http_1_only() {
        let given = map(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")]);
        assert!(lines(&of_request(&given, &rules(&[]))).contains(&"cookie: a=1; b=2".to_owned()));
        let to_h2 = RequestRules { to_h2: true, ..rules(&[]) };
        assert_eq!(of_request(&given, &to_h2).get_all("cookie").iter().count(), 2);
    }

    #[test]
    fn only_a_location_of_the_upstream_is_moved() {
        let upstream = url::Url::parse("https://up.example/mcp").unwrap().origin();
        let authority: Authority = "127.0.0.1:9".parse().unwrap();
        let front = Front { upstream: &upstream, authority: Some(&authority), to_h2: false };
        for (given, expected) in [
            ("https://up.example/a//b?c=%2f#d", "http://127.0.0.1:9/a//b?c=%2f#d"),
            ("https://UP.example:443", "http://127.0.0.1:9"),
            ("http://up.example/a", "http://up.example/a"),
            ("https://up.example:444/a", "https://up.example:444/a"),
            ("https://up.example.evil/a", "https://up.example.evil/a"),
            ("/relative", "/relative"),
            ("//up.example/a", "//up.example/a"),
        ] {
            let (out, rewrote) = of_response(&map(&[("location", given)]), &front);
            assert_eq!((out["location"].to_str().unwrap(), rewrote), (expected, given != expected), "{given}");
        }
    }
}
