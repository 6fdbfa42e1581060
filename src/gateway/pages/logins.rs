//! Who is logged in: cookies, and what a browser says of where a request comes from.
//!
//! Logins are in memory: whoever takes the files of a gateway has none, and after a restart people log in again.

use crate::{
    gateway::api::{auth::digest, problem::Problem},
    relay::http::{
        access,
        browser::{LOGIN, LOGIN_HERE},
        connect::is_loopback,
    },
};
use base64::Engine as _;
use http::{HeaderMap, StatusCode, header, uri::Authority};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// For how long somebody is logged in at most.
const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);
/// The same without a request that a person made.
const IDLE: Duration = Duration::from_secs(60 * 60);
/// Logins at the same time; the one that was used least recently gives way.
const MOST: usize = 1024;

/// A login.
#[derive(Debug, Clone)]
pub struct Login {
    /// The digest of the token: when that is taken away, the login is good for nothing.
    pub token: [u8; 32],
    /// What every form of it carries.
    pub csrf: Arc<str>,
    began: Instant,
    used: Instant,
}

impl Login {
    fn holds(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < LONGEST && now.saturating_duration_since(self.used) < IDLE
    }

    /// Whether a form is one of this login.
    #[must_use]
    pub fn made(&self, csrf: &str) -> bool {
        self.csrf.as_bytes().ct_eq(csrf.as_bytes()).into()
    }
}

/// All logins, by the digest of what the cookie says.
#[derive(Default)]
pub struct Logins(Mutex<BTreeMap<[u8; 32], Login>>);

fn random() -> Result<Zeroizing<String>, Problem> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes).map_err(|e| Problem::failed(format!("there are no random numbers: {e}")))?;
    Ok(Zeroizing::new(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(*bytes)))
}

impl Logins {
    /// Somebody with this token logs in: what their cookie will say.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn begin(&self, token: [u8; 32], now: Instant) -> Result<Zeroizing<String>, Problem> {
        let (id, csrf) = (random()?, random()?);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, login| login.holds(now));
        if all.len() >= MOST {
            let oldest = all.iter().min_by_key(|(_, login)| login.used).map(|(id, _)| *id);
            oldest.and_then(|id| all.remove(&id));
        }
        all.insert(digest(&id), Login { token, csrf: csrf.as_str().into(), began: now, used: now });
        Ok(id)
    }

    /// The login of a cookie. `by_person`: it goes on for another hour.
    #[must_use]
    pub fn of(&self, id: &str, by_person: bool, now: Instant) -> Option<Login> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let login = all.get_mut(&digest(id)).filter(|login| login.holds(now))?;
        if by_person {
            login.used = now;
        }
        Some(login.clone())
    }

    /// Somebody logs out.
    pub fn end(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&digest(id));
    }
}

/// Where a browser thinks it is.
#[derive(Debug, Clone)]
pub struct Site {
    authority: Authority,
    /// This machine, where there is no TLS.
    is_here: bool,
}

impl Site {
    /// The one that a request names.
    #[must_use]
    pub fn of(head: &http::request::Parts) -> Option<Self> {
        let host = || head.headers.get(header::HOST).and_then(|host| host.as_bytes().try_into().ok());
        let authority: Authority = head.uri.authority().cloned().or_else(host)?;
        let bare = authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_here = is_loopback(bare);
        Some(Self { authority, is_here })
    }

    /// The name of the cookie. A machine has cookies for all its ports together, so that of a port has it in its name; and
    /// it has no `__Host-`, for which browsers want TLS.
    fn cookie_name(&self) -> String {
        if self.is_here { format!("{LOGIN_HERE}{}", self.authority.port_u16().unwrap_or(80)) } else { LOGIN.to_owned() }
    }

    /// The cookie that says this; without anything to say, the one that takes it away.
    #[must_use]
    pub fn cookie(&self, id: Option<&str>) -> String {
        let (place, age) = (if self.is_here { "Path=/ADMIN/" } else { "Path=/; Secure" }, LONGEST.as_secs());
        let age = if id.is_some() { age } else { 0 };
        let (name, id) = (self.cookie_name(), id.unwrap_or_default());
        format!("{name}={id}; {place}; HttpOnly; SameSite=Strict; Max-Age={age}")
    }

    /// What the cookie of a request says, if it has exactly one.
    #[must_use]
    pub fn cookie_in<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.cookie_name();
        let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut ours = pairs.filter(|(given, _)| *given == name).map(|(_, id)| id);
        let one = ours.next();
        one.filter(|_| ours.next().is_none())
    }

    /// Whether a request that changes something comes from one of our own pages.
    ///
    /// # Errors
    /// It does not, or nothing says that it does.
    pub fn is_own(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let forbidden = |detail: &str| Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
        let all = |name| headers.get_all(name).into_iter().map(|value: &http::HeaderValue| value.to_str().ok());
        let (mut origins, mut sites) = (all(header::ORIGIN.as_str()), all("sec-fetch-site"));
        let (origin, site) = (origins.next(), sites.next());
        if origins.next().is_some() || sites.next().is_some() || site.is_some_and(|site| site != Some("same-origin")) {
            return forbidden("this was sent by a page that is not one of these");
        }
        let Some(origin) = origin else {
            return match site {
                Some(_) => Ok(()),
                None => forbidden("the browser does not say which page sent this (Origin, Sec-Fetch-Site)"),
            };
        };
        let given = origin.and_then(access::origin);
        let ours = |scheme| access::origin(&format!("{scheme}://{}", self.authority));
        match given {
            Some(given) if Some(&given) == ours("https").as_ref() => Ok(()),
            Some(given) if Some(&given) == ours("http").as_ref() => {
                if self.is_here {
                    return Ok(());
                }
                forbidden("from other machines these pages want https: have TLS in front of the gateway")
            }
            _ => forbidden("this was sent by a page that is not one of these"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(host: &str, headers: &[(&'static str, &str)]) -> (Site, HeaderMap) {
        let mut request = http::Request::builder().uri("/ADMIN/").header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        (Site::of(&head).unwrap(), head.headers)
    }

    #[test]
    fn a_login_ends_after_an_hour_without_a_person_and_after_twelve_in_any_case() {
        let (logins, start) = (Logins::default(), Instant::now());
        let after = |minutes: u64| start + Duration::from_secs(minutes * 60);
        let id = logins.begin([7; 32], start).unwrap();
        assert!(id.len() > 40 && logins.of("other", true, start).is_none());
        assert_eq!(logins.of(&id, false, after(59)).unwrap().token, [7; 32]);
        assert!(logins.of(&id, true, after(60)).is_none(), "a page that refreshes itself is no person");
        let id = logins.begin([7; 32], start).unwrap();
        for minutes in (30..720).step_by(30) {
            assert!(logins.of(&id, true, after(minutes)).is_some(), "{minutes}");
        }
        assert!(logins.of(&id, true, after(720)).is_none());
        let id = logins.begin([7; 32], start).unwrap();
        let login = logins.of(&id, true, start).unwrap();
        assert!(login.made(&login.csrf) && !login.made("") && !login.made(&id));
        logins.end(&id);
        assert!(logins.of(&id, true, start).is_none());
        let first = logins.begin([0; 32], start).unwrap();
        for _ in 0..MOST {
            logins.begin([0; 32], after(1)).unwrap();
        }
        assert!(logins.of(&first, true, after(1)).is_none() && logins.0.lock().unwrap().len() == MOST);
    }

    #[test]
    fn a_cookie_is_bound_to_its_place() {
        let (here, headers) = site("127.0.0.1:8484", &[("cookie", "a=b; assay-login-8484=x"), ("cookie", "c=d")]);
        assert_eq!(
            here.cookie(Some("x")),
            "assay-login-8484=x; Path=/ADMIN/; HttpOnly; SameSite=Strict; Max-Age=43200"
        );
        assert_eq!(here.cookie_in(&headers), Some("x"));
        let (there, headers) = site("gw.example", &[("cookie", "assay-login-443=y; __Host-assay-login=x")]);
        assert_eq!(there.cookie(None), "__Host-assay-login=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
        assert_eq!(there.cookie_in(&headers), Some("x"));
        let (other, headers) = site("[::1]:1", &[("cookie", "assay-login-1=x; assay-login-1=y")]);
        assert_eq!(other.cookie_in(&headers), None, "two are none");
    }

    #[test]
    fn what_changes_something_is_sent_by_our_own_pages() {
        let own = |host: &str, headers: &[(&'static str, &str)]| {
            let (site, headers) = site(host, headers);
            site.is_own(&headers).map_err(|p| p.detail)
        };
        let here = "localhost:8484";
        assert!(own(here, &[("origin", "http://localhost:8484")]).is_ok());
        assert!(own(here, &[("sec-fetch-site", "same-origin")]).is_ok());
        assert!(own("gw.example", &[("origin", "https://gw.example"), ("sec-fetch-site", "same-origin")]).is_ok());
        assert!(own("gw.example:443", &[("origin", "https://GW.example")]).is_ok());
        for (host, headers) in [
            (here, &[][..]),
            (here, &[("origin", "http://localhost:3000")]),
            (here, &[("origin", "http://127.0.0.1:8484")]),
            (here, &[("origin", "null")]),
            (here, &[("origin", "http://localhost:8484"), ("sec-fetch-site", "same-site")]),
            (here, &[("origin", "http://localhost:8484"), ("origin", "http://localhost:8484")]),
            (here, &[("sec-fetch-site", "none")]),
            ("gw.example", &[("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")]),
        ] {
            assert!(own(host, headers).is_err(), "{host} {headers:?}");
        }
        assert!(own("gw.example", &[("origin", "http://gw.example")]).unwrap_err().contains("TLS"));
    }
}
