//! Cookies of one origin, in memory.

use http::{HeaderMap, HeaderValue, header};
use std::time::{Duration, Instant, SystemTime};

/// Most cookies that are kept, and most bytes of one: what browsers keep of a site at least.
const MOST: usize = 50;
const LONGEST: usize = 4096;

/// What the server asked to be sent back to it.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    kept: Vec<Cookie>,
}

#[derive(Debug)]
struct Cookie {
    name: String,
    value: String,
    path: String,
    secure: bool,
    until: Option<Instant>,
}

impl Cookies {
    /// Takes the `Set-Cookie` headers of an answer to a request for `path`. A domain other than the exact origin is not
    /// followed: cookies go back to where they came from, and nowhere else.
    pub(super) fn take(&mut self, headers: &HeaderMap, path: &str) {
        for value in headers.get_all(header::SET_COOKIE) {
            if let Some(text) = value.to_str().ok().filter(|t| t.len() <= LONGEST) {
                self.set(text, path);
            }
        }
    }

    fn set(&mut self, text: &str, of: &str) {
        let mut parts = text.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { return };
        let default = of.rsplit_once('/').map_or("/", |(dir, _)| if dir.is_empty() { "/" } else { dir });
        let mut cookie = Cookie {
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
            path: default.to_owned(),
            secure: false,
            until: None,
        };
        let (mut age, mut expires) = (None, None);
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key.trim().to_ascii_lowercase().as_str() {
                "path" if value.starts_with('/') => value.clone_into(&mut cookie.path),
                "secure" => cookie.secure = true,
                "max-age" => age = value.trim().parse::<i64>().ok(),
                "expires" => expires = httpdate::parse_http_date(value.trim()).ok(),
                _ => {}
            }
        }
        let left = match (age, expires) {
            (Some(seconds), _) => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
            (None, Some(at)) => Some(at.duration_since(SystemTime::now()).unwrap_or_default()),
            (None, None) => None,
        };
        self.kept.retain(|c| (&c.name, &c.path) != (&cookie.name, &cookie.path));
        if cookie.name.is_empty() || left.is_some_and(|left| left.is_zero()) {
            return;
        }
        if self.kept.len() == MOST {
            self.kept.remove(0);
        }
        cookie.until = left.and_then(|left| Instant::now().checked_add(left));
        self.kept.push(cookie);
    }

    /// The `Cookie` header of a request for `path`.
    pub(super) fn header(&self, path: &str, over_tls: bool) -> Option<HeaderValue> {
        let now = Instant::now();
        let fits =
            |c: &&Cookie| (over_tls || !c.secure) && c.until.is_none_or(|until| now < until) && covers(&c.path, path);
        let pairs: Vec<String> = self.kept.iter().filter(fits).map(|c| format!("{}={}", c.name, c.value)).collect();
        let mut value = HeaderValue::from_str(&pairs.join("; ")).ok().filter(|v| !v.is_empty())?;
        value.set_sensitive(true);
        Some(value)
    }
}

fn covers(of: &str, path: &str) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || of.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(set: &[&str], path: &str, over_tls: bool) -> Option<String> {
        let mut cookies = Cookies::default();
        for value in set {
            let mut headers = HeaderMap::new();
            headers.append(header::SET_COOKIE, HeaderValue::from_str(value).unwrap());
            cookies.take(&headers, "/a/mcp");
        }
        cookies.header(path, over_tls).map(|v| v.to_str().unwrap().to_owned())
    }

    #[test]
    fn cookies_go_back_where_they_belong_until_they_are_taken_back() {
        for (set, path, tls, sent) in [
            (&["a=1"][..], "/a/mcp", false, Some("a=1")),
            (&["a=1; Path=/", "b=2"], "/a/x", false, Some("a=1; b=2")),
            (&["a=1"], "/ab", false, None),
            (&["a=1; path=/a"], "/a", false, Some("a=1")),
            (&["a=1", "a=2"], "/a/mcp", false, Some("a=2")),
            (&["a=1", "a=; Max-Age=0"], "/a/mcp", false, None),
            (&["a=1", "a=2; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], "/a/mcp", false, None),
            (&["a=1; max-age=100; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], "/a/mcp", false, Some("a=1")),
            (&["a=1; Secure"], "/a/mcp", false, None),
            (&["a=1; Secure; HttpOnly; SameSite=Lax"], "/a/mcp", true, Some("a=1")),
            (&["nothing", "=x"], "/a/mcp", false, None),
        ] {
            assert_eq!(after(set, path, tls).as_deref(), sent, "{set:?} {path}");
        }
    }

    #[test]
    fn there_are_never_more_than_a_bounded_number() {
        let set: Vec<String> = (0..200).map(|n| format!("c{n}=v")).collect();
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        assert_eq!(after(&set, "/a/mcp", false).unwrap().matches('=').count(), MOST);
    }
}
