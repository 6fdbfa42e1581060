//! What of a head may be evidence: names, a few values, digests of what identifies but must not be known.

use crate::relay::log::{AnsweredBy, Digests, HttpVersion, RequestHead, ResponseHead, Target};
use http::{HeaderMap, HeaderName, HeaderValue, Version, header, request, uri::PathAndQuery};
use std::sync::Arc;

/// Bytes of one value that are kept.
const VALUE_LIMIT: usize = 1024;
/// Members of a query whose names are kept.
const QUERY_LIMIT: usize = 64;
/// Bytes of a member's name that are kept.
const NAME_LIMIT: usize = 128;

/// Headers whose values are evidence as they are.
const CLEAR: [&str; 18] = [
    "accept",
    "accept-encoding",
    "access-control-request-method",
    "allow",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-type",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "retry-after",
    "server",
    "traceparent",
    "trailer",
    "transfer-encoding",
    "user-agent",
    "x-accel-buffering",
];

/// Where a request came in.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Number of the route.
    pub route: u32,
    /// Number of the client's connection.
    pub connection: u64,
    /// Who the client is.
    pub peer: Arc<str>,
}

/// Reduces heads.
#[derive(Debug, Clone)]
pub struct Reducer {
    digests: Digests,
    /// Whether names of resources are evidence in clear.
    store_args: bool,
}

impl Reducer {
    /// Digests under `key`; with `store_args`, what a request names stands in clear where contents would.
    #[must_use]
    pub fn new(key: &[u8; 32], store_args: bool) -> Self {
        Self { digests: Digests::new(key), store_args }
    }

    /// The digests that it makes.
    #[must_use]
    pub fn digests(&self) -> &Digests {
        &self.digests
    }

    /// What of a request's head may be evidence. `endpoint`: it goes to the MCP endpoint; `clear`: its path is not secret.
    #[must_use]
    pub fn request(&self, head: &request::Parts, origin: &Origin, endpoint: bool, clear: bool) -> RequestHead {
        RequestHead {
            route: origin.route,
            connection: origin.connection,
            method: head.method.as_str().to_owned(),
            version: version(head.version),
            endpoint,
            target: self.target(head.uri.path_and_query(), clear),
            names: names(&head.headers),
            values: self.values(&head.headers),
            session: self.session(&head.headers),
            credential: self.credential(&head.headers),
            peer: origin.peer.to_string(),
        }
    }

    /// What of the head of an answer may be evidence. `reused`: its connection had carried an exchange before.
    #[must_use]
    pub fn response(
        &self,
        by: AnsweredBy,
        status: u16,
        spoken: Version,
        headers: &HeaderMap,
        reused: bool,
    ) -> ResponseHead {
        ResponseHead {
            answered_by: by,
            status,
            version: version(spoken),
            names: names(headers),
            values: self.values(headers),
            session: self.session(headers),
            reused,
        }
    }

    fn target(&self, target: Option<&PathAndQuery>, clear: bool) -> Target {
        let Some(target) = target else {
            return Target { path: String::new(), query: Vec::new(), digest: self.digests.of(b"") };
        };
        let path = match target.path() {
            path if clear => path.to_owned(),
            path => format!("#{}", self.digests.of(path.as_bytes())),
        };
        let members = target.query().into_iter().flat_map(|q| q.split('&')).filter(|m| !m.is_empty());
        let name = |member: &str| match member.split_once('=') {
            Some((name, _)) => cut(name, NAME_LIMIT),
            // Perhaps it is no name but a value.
            None => format!("#{}", self.digests.of(member.as_bytes())),
        };
        let query = members.take(QUERY_LIMIT).map(name).collect();
        Target { path, query, digest: self.digests.of(target.as_str().as_bytes()) }
    }

    fn session(&self, headers: &HeaderMap) -> Option<String> {
        headers.get("mcp-session-id").map(|id| self.digests.of(id.as_bytes()))
    }

    fn credential(&self, headers: &HeaderMap) -> Option<String> {
        let given =
            [headers.get(header::AUTHORIZATION), headers.get("x-api-key")].map(|v| v.map(HeaderValue::as_bytes));
        if given.iter().all(Option::is_none) {
            return None;
        }
        // A header's value has no NUL.
        Some(self.digests.of(&given.map(Option::unwrap_or_default).join(&0)))
    }

    fn values(&self, headers: &HeaderMap) -> Vec<(String, String)> {
        let names_a_resource = headers.get("mcp-method").is_some_and(|m| m == "resources/read");
        let value = |(name, value): (&HeaderName, &HeaderValue)| {
            let text = || cut(&String::from_utf8_lossy(value.as_bytes()), VALUE_LIMIT);
            let kept = match name.as_str() {
                "mcp-name" if names_a_resource && !self.store_args => format!("#{}", self.digests.of(value.as_bytes())),
                "last-event-id" | "location" => format!("#{}", self.digests.of(value.as_bytes())),
                "www-authenticate" => text().split_whitespace().next().unwrap_or_default().to_owned(),
                name if CLEAR.contains(&name) => text(),
                _ => return None,
            };
            Some((name.as_str().to_owned(), kept))
        };
        headers.iter().filter_map(value).collect()
    }
}

fn names(headers: &HeaderMap) -> Vec<String> {
    headers.keys().flat_map(|name| headers.get_all(name).iter().map(|_| name.as_str().to_owned())).collect()
}

/// Anything that is not 1.0 or 2 counts as 1.1: nothing else is spoken here.
fn version(version: Version) -> HttpVersion {
    match version {
        Version::HTTP_09 | Version::HTTP_10 => HttpVersion::H10,
        Version::HTTP_2 => HttpVersion::H2,
        _ => HttpVersion::H11,
    }
}

fn cut(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(target: &str, headers: &[(&'static str, &str)]) -> request::Parts {
        let mut request = http::Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn reduced(target: &str, headers: &[(&'static str, &str)], clear: bool) -> RequestHead {
        let origin = Origin { route: 0, connection: 7, peer: "loopback".into() };
        Reducer::new(&[7; 32], false).request(&parts(target, headers), &origin, clear, clear)
    }

    #[test]
    fn no_secret_is_left_and_the_order_of_the_names_is() {
        let secret = "c4n4ry";
        let head = reduced(
            "/c4n4ry?api_key=c4n4ry&c4n4ry&x=1",
            &[
                ("host", secret),
                ("authorization", "Bearer c4n4ry"),
                ("cookie", "a=c4n4ry"),
                ("mcp-session-id", secret),
                ("mcp-param-path", secret),
                ("mcp-method", "resources/read"),
                ("mcp-name", "file:///c4n4ry"),
                ("last-event-id", secret),
                ("x-c", secret),
                ("x-c", secret),
                ("accept", "text/event-stream"),
            ],
            false,
        );
        assert!(!format!("{head:?}").contains(secret), "{head:?}");
        assert_eq!(head.target.query.len(), 3);
        assert_eq!((head.target.query[0].as_str(), head.target.query[2].as_str()), ("api_key", "x"));
        let names =
            "host authorization cookie mcp-session-id mcp-param-path mcp-method mcp-name last-event-id x-c x-c accept";
        assert_eq!(head.names.join(" "), names);
        assert!(head.values.contains(&("accept".into(), "text/event-stream".into())));
    }

    #[test]
    fn a_path_is_in_clear_only_where_it_may_be_and_values_are_bounded() {
        assert_eq!(reduced("/mcp//x?y=1", &[], true).target.path, "/mcp//x");
        let long = "é".repeat(VALUE_LIMIT);
        let value = &reduced("/", &[("user-agent", &long)], true).values[0].1;
        assert!(value.len() <= VALUE_LIMIT * 2);
        let digests = Digests::new(&[7; 32]);
        let hidden = reduced("/messages/77?session_id=8", &[], false).target;
        assert_eq!(hidden.path, format!("#{}", digests.of(b"/messages/77")));
        assert_eq!(hidden.digest, digests.of(b"/messages/77?session_id=8"));
    }

    #[test]
    fn of_a_challenge_the_scheme_is_kept() {
        let mut headers = HeaderMap::new();
        headers.append("www-authenticate", HeaderValue::from_static("Bearer realm=\"c4n4ry\""));
        headers.append("location", HeaderValue::from_static("/c4n4ry"));
        let head = Reducer::new(&[0; 32], true).response(AnsweredBy::Upstream, 401, Version::HTTP_11, &headers, false);
        assert_eq!(head.values[0], ("www-authenticate".into(), "Bearer".into()));
        assert!(!format!("{head:?}").contains("c4n4ry"));
    }

    #[test]
    fn each_credential_has_its_own_digest() {
        let credential = |headers: &[_]| reduced("/", headers, true).credential;
        let one = credential(&[("authorization", "x")]);
        assert!(one.is_some() && one != credential(&[("x-api-key", "x")]));
        assert_eq!(credential(&[("accept", "x")]), None);
    }
}
