//! Fields of forms, and the form of a service.

use crate::gateway::{
    api::problem::Problem,
    spec::{Credential, FirstWord, ProfileWord, Spec},
};
use http::Uri;
use serde_json::{Map, Value, json};

/// The fields of a form or of a query, in their order.
#[derive(Debug, Clone, Default)]
pub struct Fields(pub Vec<(String, String)>);

impl Fields {
    /// Of a query.
    #[must_use]
    pub fn of_query(uri: &Uri) -> Self {
        Self(url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// A field; without it, nothing.
    #[must_use]
    pub fn one(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// A field that says something.
    #[must_use]
    pub fn some(&self, name: &str) -> Option<String> {
        Some(self.one(name).trim()).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// All fields of a name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether a box is ticked.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }
}

/// A credential in the form of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// The header.
    pub header: String,
    /// `env` or `file`.
    pub from: String,
    /// The variable, or the file.
    pub place: String,
    /// What stands in front of it.
    pub prefix: String,
}

/// The form of a service, as it is filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    /// Its name.
    pub name: String,
    /// The endpoint.
    pub url: String,
    /// Minutes between checks.
    pub minutes: String,
    /// Whether it is wanted.
    pub enabled: bool,
    /// Whether a policy is enforced.
    pub profile: String,
    /// The policy.
    pub policy: String,
    /// What is done while nothing was decided.
    pub first: String,
    /// Credentials.
    pub lines: Vec<Line>,
    /// Whether requests of clients get them, too.
    pub inject: bool,
    /// It is made also if it cannot be seen.
    pub pending: bool,
}

impl Draft {
    /// As somebody filled it in.
    #[must_use]
    pub fn of(fields: &Fields) -> Self {
        let text = |name: &str| fields.one(name).trim().to_owned();
        let columns = ["header", "from", "place"].map(|name| fields.all(name).map(str::trim).collect::<Vec<_>>());
        // A prefix ends in a space.
        let prefixes: Vec<_> = fields.all("prefix").collect();
        let at = |column: &[&str], n: usize| column.get(n).copied().unwrap_or_default().to_owned();
        let line = |n| Line {
            header: at(&columns[0], n),
            from: at(&columns[1], n),
            place: at(&columns[2], n),
            prefix: at(&prefixes, n),
        };
        let lines = (0..columns[0].len()).map(line).filter(|l| !(l.header.is_empty() && l.place.is_empty()));
        Self {
            name: text("name"),
            url: text("upstream_url"),
            minutes: text("check_frequency_minutes"),
            enabled: fields.has("enabled"),
            profile: text("profile"),
            policy: text("policy"),
            first: text("surface_first"),
            lines: lines.collect(),
            inject: fields.has("inject"),
            pending: fields.has("pending"),
        }
    }

    /// As a service was made.
    #[must_use]
    pub fn of_spec(name: &str, spec: &Spec) -> Self {
        let line = |(header, credential): (&String, &Credential)| {
            let (from, place) = match (&credential.env, &credential.file) {
                (Some(env), _) => ("env", env.clone()),
                (None, file) => ("file", file.clone().unwrap_or_default()),
            };
            Line { header: header.clone(), from: from.to_owned(), place, prefix: credential.prefix.clone() }
        };
        let profile = spec.profile.map(|profile| match profile {
            ProfileWord::Audit => "audit",
            ProfileWord::Guard => "guard",
        });
        let first = spec.surface_first.map(|first| match first {
            FirstWord::Tofu => "tofu",
            FirstWord::Approve => "approve",
        });
        Self {
            name: name.to_owned(),
            url: spec.upstream_url.clone(),
            minutes: spec.check_frequency_minutes.map(|minutes| minutes.to_string()).unwrap_or_default(),
            enabled: spec.enabled,
            profile: profile.unwrap_or_default().to_owned(),
            policy: spec.policy.clone().unwrap_or_default(),
            first: first.unwrap_or_default().to_owned(),
            lines: spec.headers.iter().map(line).collect(),
            inject: spec.inject,
            pending: false,
        }
    }

    /// As the API takes it: what is empty is null.
    fn members(&self) -> Result<Map<String, Value>, Problem> {
        let some = |text: &str| if text.is_empty() { Value::Null } else { Value::from(text) };
        let minutes = match self.minutes.as_str() {
            "" => Value::Null,
            text => {
                let minutes: Option<u32> = text.parse().ok();
                minutes
                    .map(Value::from)
                    .ok_or_else(|| Problem::invalid_at("/check_frequency_minutes", "is a number: 0, or 5 to 43200"))?
            }
        };
        let mut headers = Map::new();
        for line in &self.lines {
            let from = if line.from == "file" { "file" } else { "env" };
            let twice = headers.insert(line.header.clone(), json!({from: line.place, "prefix": line.prefix}));
            if twice.is_some() {
                return Err(Problem::invalid_at("/headers", "a header is there twice"));
            }
        }
        let members = json!({
            "upstream_url": self.url, "check_frequency_minutes": minutes, "headers": headers, "inject": self.inject,
            "profile": some(&self.profile), "policy": some(&self.policy), "surface_first": some(&self.first),
        });
        match members {
            Value::Object(members) => Ok(members),
            _ => Ok(Map::new()),
        }
    }

    /// The service that is to be made.
    ///
    /// # Errors
    /// Something that the API would refuse before it looks at the service.
    pub fn service(&self) -> Result<Value, Problem> {
        let mut members = self.members()?;
        let pending = if self.pending { "pending" } else { "refuse" };
        members.insert("name".to_owned(), self.name.clone().into());
        members.insert("enabled".to_owned(), self.enabled.into());
        members.insert("on_unreachable".to_owned(), pending.into());
        Ok(members.into())
    }

    /// What makes a service that was made of `before` this one.
    ///
    /// # Errors
    /// As [`service`](Self::service).
    pub fn patch(&self, before: &Spec) -> Result<Map<String, Value>, Problem> {
        let mut members = self.members()?;
        if let Some(Value::Object(headers)) = members.get_mut("headers") {
            for (name, credential) in &before.headers {
                match headers.get_mut(name) {
                    None => drop(headers.insert(name.clone(), Value::Null)),
                    // A merge would keep the other place.
                    Some(Value::Object(now)) => {
                        for (other, was) in [("env", &credential.env), ("file", &credential.file)] {
                            if was.is_some() && !now.contains_key(other) {
                                now.insert(other.to_owned(), Value::Null);
                            }
                        }
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::api::{body, types::NewService};

    fn fields(text: &str) -> Fields {
        Fields(url::form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    #[test]
    fn a_form_comes_to_what_the_api_takes() {
        let filled = fields(
            "name=a&upstream_url=http%3A%2F%2Fx%2Fmcp&check_frequency_minutes=&enabled=on&profile=guard&policy=&surface_first=tofu\
             &header=Authorization&from=env&place=TOKEN&prefix=Bearer+&header=&from=env&place=&prefix=",
        );
        let draft = Draft::of(&filled);
        let new: NewService = body::parse(draft.service().unwrap().to_string().as_bytes()).unwrap();
        assert!(new.name == "a" && new.enabled && new.check_frequency_minutes.is_none() && new.policy.is_none());
        assert_eq!(new.headers["Authorization"].prefix, "Bearer ");
        let spec = new.spec();
        assert_eq!(
            Draft { name: "a".into(), ..draft.clone() },
            Draft::of_spec("a", &spec),
            "it is shown as it was filled in"
        );
        let bad = Draft { minutes: "often".into(), ..draft.clone() }.service().unwrap_err();
        assert_eq!(bad.errors[0].pointer, "/check_frequency_minutes");
        // Another place of the same header, and none of it.
        for (lines, wanted) in [
            (vec![Line { from: "file".into(), place: "key".into(), ..draft.lines[0].clone() }], json!({"file": "key"})),
            (vec![], Value::Null),
        ] {
            let patch = Draft { lines, ..draft.clone() }.patch(&spec).unwrap();
            let mut value = serde_json::to_value(&spec).unwrap();
            body::merge(&mut value, &patch);
            let after: Spec = serde_json::from_value(value).unwrap();
            let file = after.headers.get("Authorization").and_then(|c| c.file.clone());
            assert_eq!(file, wanted["file"].as_str().map(str::to_owned));
            assert!(after.headers.values().all(|c| c.env.is_none()) && after.enabled);
        }
    }
}
