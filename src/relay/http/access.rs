//! Who may use the listener: what Host and Origin say, and a token.
//!
//! A page in a browser must not reach a server on this machine through us: the upstream's own check of Host is switched
//! off, for it gets its own name.

use super::connect::is_loopback;
use http::{HeaderMap, HeaderName, Method, StatusCode, Version, header, request, uri::Authority};
use sha2::{Digest as _, Sha256};
use std::net::SocketAddr;

/// A header for the listener's token, for clients whose `Authorization` is the upstream's.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("assay-token");

/// Characters that a token has at least.
pub const TOKEN_LENGTH: usize = 32;

/// A secret that clients have to send.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    digest: [u8; 32],
}

impl Token {
    /// Of this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { digest: Sha256::digest(text).into() }
    }

    /// Of this text, if that is long enough and in one piece.
    #[must_use]
    pub fn checked(text: &str) -> Option<Self> {
        let is_whole = !text.chars().any(|c| c.is_whitespace() || c.is_control());
        (text.chars().count() >= TOKEN_LENGTH && is_whole).then(|| Self::new(text))
    }

    /// Compared by digests, all of it: how long it takes says nothing about the token.
    fn is(&self, given: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        self.digest.iter().zip(given).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }

    /// Whether a request has it as its bearer token.
    #[must_use]
    pub fn is_bearer(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|given| given.as_bytes().split_at_checked(7));
        given.is_some_and(|(scheme, rest)| scheme.eq_ignore_ascii_case(b"bearer ") && self.is(rest.trim_ascii()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// The origin that a text is, as browsers write it.
#[must_use]
pub fn origin(text: &str) -> Option<String> {
    let plain = |url: &url::Url| url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    let url = url::Url::parse(text).ok().filter(|url| url.origin().is_tuple() && matches!(url.path(), "/" | ""));
    url.filter(plain).map(|url| url.origin().ascii_serialization())
}

/// Who may use the listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// More values of Host: a name, or a name and a port.
    pub hosts: Vec<String>,
    /// More values of Origin.
    pub origins: Vec<String>,
    /// The token that clients have to send.
    pub token: Option<Token>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Denied {
    /// What the client gets.
    pub(super) status: StatusCode,
    /// Why, in a line.
    pub(super) why: &'static str,
}

const fn denied(status: StatusCode, why: &'static str) -> Denied {
    Denied { status, why }
}

/// What a request that is let in has.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    /// The authority that the client used.
    pub(super) authority: Option<Authority>,
    /// The header that had our token.
    pub(super) token_in: Option<HeaderName>,
}

/// Judges a head. `local` is where the client connected to; `None` is a Unix socket, which no browser reaches.
pub(super) fn admit(access: &Access, head: &request::Parts, local: Option<SocketAddr>) -> Result<Admitted, Denied> {
    if head.method == Method::CONNECT {
        return Err(denied(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not for this server"));
    }
    let authority = authority(head)?;
    if let (Some(authority), Some(local)) = (&authority, local)
        && !is_host_allowed(access, authority, local)
    {
        return Err(denied(
            StatusCode::FORBIDDEN,
            "Host is not allowed; --allow-host NAME allows it, or allow_hosts of a gateway",
        ));
    }
    let mut origins = head.headers.get_all(header::ORIGIN).iter();
    let origin = origins.next();
    if let Some(origin) = origin
        && (origins.next().is_some() || !origin.to_str().is_ok_and(|origin| is_origin_allowed(access, origin)))
    {
        return Err(denied(
            StatusCode::FORBIDDEN,
            "Origin is not allowed; --allow-origin ORIGIN allows it, or allow_origins of a gateway",
        ));
    }
    // A browser asks before it sends anything, and sends no token with that.
    let is_preflight = head.method == Method::OPTIONS
        && origin.is_some()
        && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let token_in = match &access.token {
        Some(token) if !is_preflight => Some(token_in(token, &head.headers)?),
        _ => None,
    };
    Ok(Admitted { authority, token_in })
}

fn authority(head: &request::Parts) -> Result<Option<Authority>, Denied> {
    const BAD: Denied = denied(StatusCode::BAD_REQUEST, "the request needs exactly one Host");
    const OTHER: Denied = denied(StatusCode::BAD_REQUEST, "Host and the request's URL name different servers");
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() || host.is_none() && head.version == Version::HTTP_11 {
        return Err(BAD);
    }
    let host: Option<Authority> = match host {
        Some(host) => Some(host.as_bytes().try_into().map_err(|_| BAD)?),
        None => None,
    };
    if host.as_ref().is_some_and(|host| host.as_str().contains('@')) {
        return Err(BAD);
    }
    match (head.uri.authority(), host) {
        (Some(asked), Some(host)) if !asked.as_str().eq_ignore_ascii_case(host.as_str()) => Err(OTHER),
        (Some(asked), _) => Ok(Some(asked.clone())),
        (None, host) => Ok(host),
    }
}

fn is_host_allowed(access: &Access, authority: &Authority, local: SocketAddr) -> bool {
    let host = authority.host();
    let named =
        |allowed: &String| allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(authority.as_str());
    if access.hosts.iter().any(named) {
        return true;
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_ours = matches!(host.to_ascii_lowercase().as_str(), "localhost" | "127.0.0.1" | "[::1]")
        || bare.parse() == Ok(local.ip().to_canonical());
    is_ours && authority.port_u16().unwrap_or(80) == local.port()
}

fn is_origin_allowed(access: &Access, origin: &str) -> bool {
    if origin.eq_ignore_ascii_case("null") {
        return false;
    }
    if access.origins.iter().any(|allowed| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin)) {
        return true;
    }
    let Ok(url) = url::Url::parse(origin) else { return false };
    matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(is_loopback)
}

fn token_in(token: &Token, headers: &HeaderMap) -> Result<HeaderName, Denied> {
    const WRONG: Denied = denied(StatusCode::UNAUTHORIZED, "a token is needed: Authorization: Bearer, or Assay-Token");
    if let Some(given) = headers.get(TOKEN_HEADER) {
        return if token.is(given.as_bytes()) { Ok(TOKEN_HEADER) } else { Err(WRONG) };
    }
    if token.is_bearer(headers) { Ok(header::AUTHORIZATION) } else { Err(WRONG) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(access: &Access, target: &str, headers: &[(&'static str, &str)]) -> Result<Admitted, u16> {
        let mut request = http::Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        admit(access, &head, Some("127.0.0.1:8080".parse().unwrap())).map_err(|d| d.status.as_u16())
    }

    #[test]
    fn hosts_are_ours_or_named() {
        let mut access = Access::default();
        for host in ["localhost:8080", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080"] {
            assert!(ask(&access, "/", &[("host", host)]).is_ok(), "{host}");
        }
        for (host, status) in [
            ("localhost", 403),
            ("localhost:8081", 403),
            ("evil.example:8080", 403),
            ("localhost.evil.example:8080", 403),
            ("127.0.0.2:8080", 403),
            ("user@localhost:8080", 400),
            ("a b", 400),
            ("", 400),
        ] {
            assert_eq!(ask(&access, "/", &[("host", host)]).unwrap_err(), status, "{host}");
        }
        assert_eq!(ask(&access, "/", &[]).unwrap_err(), 400);
        assert_eq!(ask(&access, "/", &[("host", "localhost:8080"), ("host", "localhost:8080")]).unwrap_err(), 400);
        assert_eq!(ask(&access, "http://evil:8080/", &[("host", "localhost:8080")]).unwrap_err(), 400);
        assert!(ask(&access, "http://localhost:8080/x", &[("host", "localhost:8080")]).is_ok());
        access.hosts = vec!["mcp.example".into(), "other.example:99".into()];
        assert!(ask(&access, "/", &[("host", "mcp.example:7")]).is_ok());
        assert!(ask(&access, "/", &[("host", "other.example:99")]).is_ok());
        assert!(ask(&access, "/", &[("host", "other.example:98")]).is_err());
    }

    #[test]
    fn origins_are_this_machine_or_named_and_never_null() {
        let access = Access { origins: vec!["https://app.example".into(), "null".into()], ..Access::default() };
        let origin = |origin: &str| ask(&access, "/", &[("host", "localhost:8080"), ("origin", origin)]).is_ok();
        for good in ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:1", "https://app.example"] {
            assert!(origin(good), "{good}");
        }
        for bad in
            ["null", "NULL", "https://evil.example", "http://localhost.evil.example", "file://localhost", "x", ""]
        {
            assert!(!origin(bad), "{bad}");
        }
        let two = [("host", "localhost:8080"), ("origin", "http://localhost"), ("origin", "http://localhost")];
        assert_eq!(ask(&access, "/", &two).unwrap_err(), 403);
    }

    #[test]
    fn a_token_is_in_one_of_two_headers_and_is_named_so_that_it_ends_here() {
        let access = Access { token: Some(Token::new("secret")), ..Access::default() };
        let ask = |headers: &[(&'static str, &str)]| {
            ask(&access, "/", &[&[("host", "localhost:8080")], headers].concat()).map(|a| a.token_in.unwrap())
        };
        assert_eq!(ask(&[("authorization", "Bearer secret")]).unwrap(), header::AUTHORIZATION);
        assert_eq!(ask(&[("authorization", "bEARER  secret")]).unwrap(), header::AUTHORIZATION);
        assert_eq!(ask(&[("authorization", "Bearer upstream"), ("assay-token", "secret")]).unwrap(), TOKEN_HEADER);
        for bad in [
            &[][..],
            &[("authorization", "Bearer secre")],
            &[("authorization", "Bearer secretx")],
            &[("authorization", "secret")],
            &[("authorization", "Basic secret")],
            &[("authorization", "Bearer secret"), ("assay-token", "wrong")],
        ] {
            assert_eq!(ask(bad).unwrap_err(), 401, "{bad:?}");
        }
    }

    #[test]
    fn a_preflight_of_an_allowed_origin_needs_no_token() {
        let access = Access { token: Some(Token::new("secret")), ..Access::default() };
        let preflight = |origin: &str| {
            let request = http::Request::builder().method("OPTIONS").uri("/mcp").header("host", "localhost:8080");
            let request = request.header("origin", origin).header("access-control-request-method", "POST");
            let (head, ()) = request.body(()).unwrap().into_parts();
            admit(&access, &head, Some("127.0.0.1:8080".parse().unwrap())).is_ok()
        };
        assert!(preflight("http://localhost:3000") && !preflight("https://evil.example"));
    }
}
