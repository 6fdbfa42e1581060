//! What a browser could make of an upstream: beside its route are pages of ours, which script on the same origin could use.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The cookie of who is logged in to the pages.
pub const LOGIN: &str = "__Host-assay-login";
/// What its name begins with where there is no TLS.
pub const LOGIN_HERE: &str = "assay-login-";

/// What is done with what a request is for, and how it is asked for; other clients do not say it.
const DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// What may be done with a page of an upstream: nothing.
const NOTHING: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'");

/// Whether a browser would show or run the answer, in place of giving it to the page that asks.
#[must_use]
pub fn would_show(headers: &HeaderMap) -> bool {
    headers.get_all(DEST).iter().any(|dest| dest != "empty")
        || headers.get_all(MODE).iter().any(|mode| mode == "navigate")
}

/// Takes our logins out of a request that goes to an upstream.
pub(super) fn without_logins(headers: &mut HeaderMap) {
    let is_ours = |pair: &[u8]| {
        let name = pair.trim_ascii().split(|b| *b == b'=').next().unwrap_or_default();
        name.trim_ascii() == LOGIN.as_bytes() || name.starts_with(LOGIN_HERE.as_bytes())
    };
    let all: Vec<HeaderValue> = headers.get_all(header::COOKIE).iter().cloned().collect();
    if !all.iter().any(|value| value.as_bytes().split(|b| *b == b';').any(is_ours)) {
        return;
    }
    headers.remove(header::COOKIE);
    for value in all {
        let kept: Vec<&[u8]> = value.as_bytes().split(|b| *b == b';').filter(|pair| !is_ours(pair)).collect();
        let kept = kept.join(&b';');
        if !kept.trim_ascii().is_empty()
            && let Ok(value) = HeaderValue::from_bytes(kept.trim_ascii())
        {
            headers.append(header::COOKIE, value);
        }
    }
}

/// Has browsers take an upstream's answer for what it says that it is, and run nothing of what is no MCP.
pub(super) fn tame(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let is_mcp = |value: &HeaderValue| {
        let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        ["application/json", "text/event-stream"].iter().any(|mcp| essence.eq_ignore_ascii_case(mcp))
    };
    if !(types.next().is_some_and(is_mcp) && types.next().is_none()) {
        // One of the upstream's own holds beside it.
        headers.append(header::CONTENT_SECURITY_POLICY, NOTHING);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_a_browser_would_show_is_told_from_what_a_page_reads() {
        for dest in ["document", "iframe", "frame", "object", "embed", "script", "image", "style", "worker", ""] {
            assert!(would_show(&map(&[("sec-fetch-dest", dest)])), "{dest}");
        }
        assert!(would_show(&map(&[("sec-fetch-dest", "empty"), ("sec-fetch-mode", "navigate")])));
        for read in [&[][..], &[("sec-fetch-dest", "empty"), ("sec-fetch-mode", "cors")], &[("sec-fetch-mode", "cors")]]
        {
            assert!(!would_show(&map(read)), "{read:?}");
        }
    }

    #[test]
    fn logins_end_here_and_other_cookies_stay_as_they_are() {
        for (given, left) in [
            ("a=1;b=2 ;  c", Some("a=1;b=2 ;  c")),
            ("a=1; __Host-assay-login=x; b=2", Some("a=1; b=2")),
            ("assay-login-8484=x", None),
            ("assay-login-8484=x; a=__Host-assay-login", Some("a=__Host-assay-login")),
        ] {
            let mut headers = map(&[("cookie", given)]);
            without_logins(&mut headers);
            assert_eq!(headers.get("cookie").map(|left| left.to_str().unwrap()), left, "{given}");
        }
    }

    #[test]
    fn only_what_is_mcp_keeps_its_head() {
        let policies = |types: &[&'static str]| {
            let mut headers: HeaderMap =
                types.iter().map(|kind| (header::CONTENT_TYPE, HeaderValue::from_static(kind))).collect();
            headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("img-src *"));
            tame(&mut headers);
            assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
            headers.get_all(header::CONTENT_SECURITY_POLICY).iter().filter(|policy| **policy == NOTHING).count()
        };
        for mcp in ["application/json", "Application/JSON ; charset=utf-8", "text/event-stream"] {
            assert_eq!(policies(&[mcp]), 0, "{mcp}");
        }
        for other in ["text/html", "image/svg+xml", "application/json, text/html", "application/xhtml+xml", ""] {
            assert_eq!(policies(&[other]), 1, "{other}");
        }
        assert_eq!((policies(&[]), policies(&["application/json", "text/html"])), (1, 1));
    }
}
