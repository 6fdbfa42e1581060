//! A service as the API makes it: what the registry keeps of it, and the service that it comes to.

use super::{
    config::{Config, Service, USUAL_FREQUENCY, is_frequency},
    credential::{Place, Reference, is_variable},
};
use crate::{
    clients::command::is_of_connection,
    model::{Profile, surface::First},
    relay::http::connect,
};
use http::HeaderName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Headers of one service.
const MAX_HEADERS: usize = 32;

/// Where a credential is. It is never in a request or in an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// An environment variable of the gateway. Either this or `file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// A file; relative paths count from the directory of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What stands in front of it in the header, as in `Bearer `.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// Whether a policy is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProfileWord {
    /// Calls are recorded.
    Audit,
    /// Calls are judged before they pass.
    Guard,
}

/// What is done while nothing was decided about a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FirstWord {
    /// What is seen first is what later surfaces are compared with.
    Tofu,
    /// Nothing passes before a person approves.
    Approve,
}

const fn yes() -> bool {
    true
}

/// A service as the API makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The MCP endpoint. It has no query: that could be a secret.
    #[schema(example = "https://mcp.example.com/mcp", max_length = 2048)]
    pub upstream_url: String,
    /// Whether it is wanted.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Minutes between checks: 0, or 5 to 43200; what the configuration says without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 43200)]
    pub check_frequency_minutes: Option<u32>,
    /// Credentials for it, by header.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Credential>,
    /// Whether requests of clients get the headers, too, in place of what they have.
    #[serde(default)]
    pub inject: bool,
    /// Whether a policy is enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileWord>,
    /// The policy, by its name in `policies` of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What is done while nothing was decided about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface_first: Option<FirstWord>,
}

/// A member that cannot be so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// JSON pointer (RFC 6901) to the member.
    pub pointer: String,
    /// Why. Nothing of what was given is in it.
    pub detail: String,
}

impl Wrong {
    fn at(pointer: &str, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.to_owned(), detail: detail.into() }
    }
}

impl Credential {
    fn reference(&self, config: &Config) -> Result<Reference, &'static str> {
        let place = match (&self.env, &self.file) {
            (Some(name), None) if is_variable(name) => Place::Env(name.clone()),
            (None, Some(path)) if !path.is_empty() && !path.contains('\0') => Place::File(config.dir.join(path)),
            _ => return Err("say where the credential is: either env or file, not empty"),
        };
        Ok(Reference { place, prefix: self.prefix.clone() })
    }
}

impl Spec {
    /// The service that it comes to under a configuration.
    ///
    /// # Errors
    /// All that cannot be so.
    pub fn service(&self, name: &str, config: &Config) -> Result<Service, Vec<Wrong>> {
        let mut wrong = Vec::new();
        let url = match connect::endpoint(&self.upstream_url) {
            Err(why) => Err(why),
            Ok(url) if url.query().is_some() || url.fragment().is_some() => {
                Err("has a query or a fragment; a credential goes into headers".to_owned())
            }
            Ok(url) => Ok(url),
        };
        let url = url.map_err(|why| wrong.push(Wrong::at("/upstream_url", why))).ok();
        let minutes = self.check_frequency_minutes.map(|minutes| is_frequency(minutes.into())).transpose();
        let minutes = minutes.map_err(|why| wrong.push(Wrong::at("/check_frequency_minutes", why))).ok().flatten();
        let mut headers: Vec<(HeaderName, Reference)> = Vec::new();
        if self.headers.len() > MAX_HEADERS {
            wrong.push(Wrong::at("/headers", format!("there are more than {MAX_HEADERS}")));
        }
        for (name, credential) in &self.headers {
            let pointer = format!("/headers/{}", name.replace('~', "~0").replace('/', "~1"));
            let known: Option<HeaderName> = name.parse().ok();
            match (known, credential.reference(config)) {
                (None, _) => wrong.push(Wrong::at(&pointer, "is no name of a header")),
                (Some(known), _) if is_of_connection(known.as_str()) => {
                    wrong.push(Wrong::at(&pointer, "belongs to the connection, which the gateway makes"));
                }
                (Some(known), _) if headers.iter().any(|(other, _)| *other == known) => {
                    wrong.push(Wrong::at(&pointer, "is there twice"));
                }
                (Some(_), Err(why)) => wrong.push(Wrong::at(&pointer, why)),
                (Some(known), Ok(reference)) => headers.push((known, reference)),
            }
        }
        let policy = self.policy.as_ref().map(|name| config.policies.get(name).cloned().ok_or(()));
        let policy = policy.transpose().map_err(|()| {
            wrong.push(Wrong::at("/policy", "is none of the policies that the configuration names"));
        });
        let policy = policy.ok().flatten().or_else(|| config.defaults.policy.clone());
        let profile = match self.profile {
            Some(ProfileWord::Audit) => Profile::Audit,
            Some(ProfileWord::Guard) => Profile::Guard,
            None => config.defaults.profile.unwrap_or(Profile::Audit),
        };
        if profile == Profile::Guard && policy.is_none() {
            wrong.push(Wrong::at("/profile", "a service that is guarded needs a policy"));
        }
        let first = match self.surface_first {
            Some(FirstWord::Tofu) => First::Tofu,
            Some(FirstWord::Approve) => First::Approve,
            None => config.defaults.first.unwrap_or(First::Tofu),
        };
        let Some(url) = url.filter(|_| wrong.is_empty()) else { return Err(wrong) };
        Ok(Service {
            name: name.to_owned(),
            url,
            started: None,
            enabled: self.enabled,
            headers,
            inject: self.inject,
            cacert: None,
            profile,
            policy,
            check_frequency_minutes: minutes.or(config.defaults.check_frequency_minutes).unwrap_or(USUAL_FREQUENCY),
            first,
            rules: config.defaults.rules.clone().unwrap_or_default(),
            keep: config.defaults.keep,
        })
    }

    /// Credentials that are none of those which the configuration lets the API name.
    #[must_use]
    pub fn beyond(&self, config: &Config) -> Vec<Wrong> {
        let is_beyond = |credential: &&Credential| {
            let place = credential.reference(config).ok().map(|reference| reference.place);
            place.is_some_and(|place| !config.admin.credentials.contains(&place))
        };
        let all = self.headers.iter().filter(|(_, credential)| is_beyond(credential));
        all.map(|(name, _)| {
            let pointer = format!("/headers/{}", name.replace('~', "~0").replace('/', "~1"));
            Wrong::at(
                &pointer,
                "is none of admin.credentials in the configuration, which are those that the API may name",
            )
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config() -> Config {
        let text = "version: \"1\"\npolicies: { strict: p.yaml }\nadmin: { credentials: [{ env: T }, { file: key }] }\n\
                    defaults: { check_frequency_minutes: 30 }\n";
        Config::parse(text.as_bytes(), "g.yaml", Path::new("/etc/assay")).unwrap()
    }

    fn spec(text: &str) -> Spec {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_service_is_made_from_what_is_given_and_what_the_configuration_says() {
        let config = config();
        let made = spec(
            r#"{"upstream_url": "http://x/mcp", "headers": {"X-Key": {"file": "key", "prefix": "k "}}, "inject": true,
                "profile": "guard", "policy": "strict", "surface_first": "approve"}"#,
        );
        let service = made.service("a", &config).unwrap();
        assert_eq!(
            (service.check_frequency_minutes, service.profile, service.first),
            (30, Profile::Guard, First::Approve)
        );
        assert_eq!(service.policy.as_deref(), Some(Path::new("/etc/assay/p.yaml")));
        assert_eq!(service.headers[0].1.place.to_string(), "file:/etc/assay/key");
        assert!(service.enabled && service.inject && made.beyond(&config).is_empty());
        let text = serde_json::to_string(&made).unwrap();
        assert_eq!(spec(&text), made, "it comes back as it was kept");
    }

    #[test]
    fn what_cannot_be_so_is_told_with_its_place_and_without_what_was_given() {
        let config = config();
        for (text, pointers) in [
            (r#"{"upstream_url": "ftp://c4n4ry/"}"#, vec!["/upstream_url"]),
            (r#"{"upstream_url": "http://x/?k=c4n4ry"}"#, vec!["/upstream_url"]),
            (
                r#"{"upstream_url": "http://u:c4n4ry@x/", "check_frequency_minutes": 3}"#,
                vec!["/upstream_url", "/check_frequency_minutes"],
            ),
            (r#"{"upstream_url": "http://x/", "headers": {"a b": {"env": "T"}}}"#, vec!["/headers/a b"]),
            (r#"{"upstream_url": "http://x/", "headers": {"Host": {"env": "T"}}}"#, vec!["/headers/Host"]),
            (r#"{"upstream_url": "http://x/", "headers": {"X": {"env": "T"}, "x": {"env": "T"}}}"#, vec!["/headers/x"]),
            (
                r#"{"upstream_url": "http://x/", "headers": {"X/Y": {"env": "T", "file": "c4n4ry"}}}"#,
                vec!["/headers/X~1Y"],
            ),
            (r#"{"upstream_url": "http://x/", "headers": {"X": {}}}"#, vec!["/headers/X"]),
            (r#"{"upstream_url": "http://x/", "policy": "c4n4ry"}"#, vec!["/policy"]),
            (r#"{"upstream_url": "http://x/", "profile": "guard"}"#, vec!["/profile"]),
        ] {
            let wrong = spec(text).service("a", &config).unwrap_err();
            assert_eq!(wrong.iter().map(|w| w.pointer.as_str()).collect::<Vec<_>>(), pointers, "{text}");
            if !text.contains("ftp") {
                assert!(wrong.iter().all(|w| !w.detail.contains("c4n4ry")), "{wrong:?}");
            }
        }
        let other =
            spec(r#"{"upstream_url": "http://x/", "headers": {"X": {"env": "T"}, "Y": {"file": "/etc/shadow"}}}"#);
        assert_eq!(other.beyond(&config).iter().map(|w| w.pointer.as_str()).collect::<Vec<_>>(), ["/headers/Y"]);
    }
}
