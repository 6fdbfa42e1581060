//! Who may use the API: tokens, what each is good for, and who tries too many.

use super::problem::Problem;
use crate::{
    gateway::registry::TokenRow,
    model::{Vocabulary as _, words::vocabulary},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq as _;
use utoipa::ToSchema;

/// Failures of one address in [`WINDOW`] after which it is not listened to.
const FAILURES: u32 = 10;
/// For how long failures count.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses whose failures are counted.
const ADDRESSES: usize = 4096;

vocabulary! {
    /// What a token is good for. Each can do what the one before it can.
    #[derive(PartialOrd, Ord, ToSchema)]
    Role {
        /// Looks.
        Viewer = "viewer",
        /// Approves, blocks, has services checked.
        Approver = "approver",
        /// Makes, changes and removes services and tokens.
        Admin = "admin",
    }
}

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// The name of the token, or of the user.
    pub name: String,
    /// What they may.
    pub role: Role,
    /// How that is known, as decisions say it: `token`, or `local_user`.
    pub auth: &'static str,
    /// Through what, as decisions say it: `api`, `ui`.
    pub via: &'static str,
}

impl Who {
    /// As the audit log names them.
    #[must_use]
    pub fn actor(&self) -> String {
        format!("user:{}", self.name)
    }

    /// Whether they may do what needs a role.
    ///
    /// # Errors
    /// They may not.
    pub fn may(&self, role: Role) -> Result<(), Problem> {
        if self.role >= role {
            return Ok(());
        }
        let detail = format!("{} is {}; this needs {}", self.name, self.role.as_str(), role.as_str());
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }
}

/// A token that is known.
#[derive(Clone)]
struct Key {
    name: String,
    role: Role,
    digest: [u8; 32],
}

/// The tokens that are known.
#[derive(Clone, Default)]
pub struct Keys(Vec<Key>);

impl Keys {
    /// Those of the registry, and the one of the configuration: the text of it.
    #[must_use]
    pub fn of(rows: &[TokenRow], configured: Option<&str>) -> Self {
        let known = |row: &TokenRow| {
            Some(Key { name: row.name.clone(), role: Role::of(row.role.as_bytes())?, digest: row.digest })
        };
        let configured =
            configured.map(|text| Key { name: CONFIGURED.to_owned(), role: Role::Admin, digest: digest(text) });
        Self(rows.iter().filter_map(known).chain(configured).collect())
    }

    /// Whether there is one at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whose token this is. How long that takes says nothing about any of them: all are compared, by their digests.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<Who> {
        self.known(&digest(token))
    }

    /// The same, by its digest.
    #[must_use]
    pub fn known(&self, given: &[u8; 32]) -> Option<Who> {
        let mut found = None;
        for key in &self.0 {
            if bool::from(key.digest.ct_eq(given)) {
                found = Some(key);
            }
        }
        found.map(|key| Who { name: key.name.clone(), role: key.role, auth: "token", via: "api" })
    }

    /// The token in a request.
    ///
    /// # Errors
    /// There is none that is known.
    pub fn admit(&self, headers: &HeaderMap) -> Result<Who, Problem> {
        if self.is_empty() {
            return Err(unauthorized(
                "no token is set up, so the API is on the Unix socket alone; assay gateway token create makes one",
            ));
        }
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (one, more) = (given.next(), given.next());
        let token = one.filter(|_| more.is_none()).and_then(|value| bearer(value.to_str().ok()?));
        let who = token.and_then(|token| self.find(token));
        who.ok_or_else(|| unauthorized("a token is needed: Authorization: Bearer TOKEN"))
    }
}

/// The name of the token that the configuration has.
pub const CONFIGURED: &str = "configuration";

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case("bearer ").then(|| token.trim())
}

/// The digest by which a token is known.
#[must_use]
pub fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn unauthorized(detail: &str) -> Problem {
    let ask = (header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Problem { headers: vec![ask], ..Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail) }
}

/// Who failed how often.
#[derive(Default)]
pub struct Failures(Mutex<BTreeMap<Arc<str>, (Instant, u32)>>);

impl Failures {
    /// Whether an address is listened to.
    ///
    /// # Errors
    /// It failed too often.
    pub fn allow(&self, address: &str, now: Instant) -> Result<(), Problem> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((since, count)) = all.get(address) else { return Ok(()) };
        let passed = now.saturating_duration_since(*since);
        if *count < FAILURES || passed >= WINDOW {
            return Ok(());
        }
        let wait = WINDOW.saturating_sub(passed).as_secs() + 1;
        let retry = (header::RETRY_AFTER, HeaderValue::from(wait));
        let detail = format!("{FAILURES} wrong tokens in a minute: wait {wait} s");
        Err(Problem {
            headers: vec![retry],
            ..Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-failures", detail)
        })
    }

    /// It failed once more.
    pub fn count(&self, address: &Arc<str>, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ADDRESSES {
            all.retain(|_, (since, _)| now.saturating_duration_since(*since) < WINDOW);
            if all.len() >= ADDRESSES {
                let oldest = all.iter().min_by_key(|(_, (since, _))| *since).map(|(address, _)| address.clone());
                if let Some(oldest) = oldest {
                    all.remove(&oldest);
                }
            }
        }
        let (since, count) = all.entry(address.clone()).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        let row = |name: &str, role: &str, token: &str| TokenRow {
            name: name.into(),
            role: role.into(),
            digest: digest(token),
            created_at: String::new(),
        };
        Keys::of(&[row("eve", "viewer", "t1"), row("old", "king", "t2")], Some("t3"))
    }

    fn ask(values: &[&str]) -> Result<Who, u16> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        keys().admit(&headers).map_err(|p| p.status.as_u16())
    }

    #[test]
    fn a_token_says_who_it_is_and_what_they_may() {
        let eve = ask(&["Bearer t1"]).unwrap();
        assert_eq!((eve.name.as_str(), eve.role, eve.actor().as_str()), ("eve", Role::Viewer, "user:eve"));
        assert_eq!(ask(&["bEARER  t3"]).unwrap().role, Role::Admin);
        assert!(eve.may(Role::Viewer).is_ok());
        assert_eq!(eve.may(Role::Approver).unwrap_err().status, 403);
        for bad in [&[][..], &["Bearer t2"], &["Bearer t"], &["Basic t1"], &["t1"], &["Bearer t1", "Bearer t1"]] {
            assert_eq!(ask(bad).unwrap_err(), 401, "{bad:?}");
        }
        let none = Keys::default().admit(&HeaderMap::new()).unwrap_err();
        assert!(none.status == 401 && none.detail.contains("Unix socket"), "{none:?}");
        assert!(none.headers.iter().any(|(name, _)| *name == header::WWW_AUTHENTICATE));
    }

    #[test]
    fn ten_failures_in_a_minute_and_an_address_waits() {
        let (failures, start) = (Failures::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        for n in 0..10 {
            assert!(failures.allow(&one, after(n)).is_ok(), "{n}");
            failures.count(&one, after(n));
        }
        let told = failures.allow(&one, after(20)).unwrap_err();
        assert_eq!((told.status.as_u16(), &told.headers[0].1), (429, &HeaderValue::from(41)));
        assert!(failures.allow(&other, after(20)).is_ok() && failures.allow(&one, after(60)).is_ok());
        failures.count(&one, after(60));
        assert!(failures.allow(&one, after(61)).is_ok(), "it begins anew");
        for n in 0..ADDRESSES * 2 {
            failures.count(&n.to_string().into(), after(70));
        }
        assert!(failures.0.lock().unwrap().len() <= ADDRESSES);
    }
}
