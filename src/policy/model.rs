//! A policy's rules, compiled.

use super::{
    constraints::{paths::PathRules, patterns::Patterns, schema::Schema},
    names::NameSet,
};
use crate::{
    numbers::counted,
    text::{either, fit, visible},
};
use std::time::Duration;

/// What happens to a tool that no list names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// It may be called.
    Allow,
    /// It is denied.
    Deny,
}

impl Default {
    /// `allow` or `deny`, as in the file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Which shape a policy file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyShape {
    /// The constraints of docs/policy.md.
    Native,
    /// assay-ai's `tools: {allow, deny, constraints}`.
    AssayAi,
}

/// Limits of a session.
#[derive(Debug, Clone, Copy, core::default::Default, PartialEq, Eq)]
pub struct Budget {
    /// Calls that may be allowed.
    pub max_tool_calls: Option<u64>,
    /// Time since the session began.
    pub max_wall_time: Option<Duration>,
}

/// What one entry under `constraints` demands.
#[derive(Debug)]
pub struct Constraint {
    /// Its key in the file: a tool or a glob.
    pub key: String,
    /// The line of the key, from 1.
    pub line: usize,
    /// Allowed calls, over all tools that the key names.
    pub max_calls: Option<u64>,
    /// `arguments`: a JSON Schema that the arguments must satisfy.
    pub schema: Option<Schema>,
    /// `deny_patterns`: patterns that no argument may match.
    pub patterns: Option<Patterns>,
    /// `allowed_paths`: where paths in the arguments must be.
    pub paths: Option<PathRules>,
    /// `deny_private_hosts`: whether private addresses and names are denied.
    pub hosts: bool,
}

impl Constraint {
    /// The keys that an entry may have, in the order in which they are judged.
    pub const KEYS: [&'static str; 5] =
        ["max_calls", "arguments", "deny_patterns", "allowed_paths", "deny_private_hosts"];

    /// One that demands nothing yet.
    #[must_use]
    pub const fn new(key: String, line: usize) -> Self {
        Self { key, line, max_calls: None, schema: None, patterns: None, paths: None, hosts: false }
    }

    /// Its keys in the file.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        let here = [
            self.max_calls.is_some(),
            self.schema.is_some(),
            self.patterns.is_some(),
            self.paths.is_some(),
            self.hosts,
        ];
        Self::KEYS.into_iter().zip(here).filter_map(|(key, here)| here.then_some(key))
    }

    /// The first key that needs to see the arguments.
    #[must_use]
    pub fn needs_arguments(&self) -> Option<&'static str> {
        self.keys().find(|key| *key != "max_calls")
    }

    /// What it demands, as text for people; control characters of the file are made visible.
    #[must_use]
    pub fn demands(&self) -> Vec<String> {
        let calls = self.max_calls.map(|max| {
            let were = either(max, "was", "were");
            format!("fewer than {} {were} allowed so far in the session", counted(max, "call"))
        });
        let schema = self.schema.as_ref().map(|_| "the arguments satisfy the schema".to_owned());
        let patterns = self.patterns.as_ref().map(|patterns| match patterns.len() {
            1 => "no string matches its pattern".to_owned(),
            n => format!("no string matches one of {}", counted(n as u64, "pattern")),
        });
        let paths = self.paths.as_ref().map(|paths| {
            let shown: Vec<_> =
                paths.texts().iter().take(6).map(|text| fit(&visible(text), 400).into_owned()).collect();
            let more = if paths.texts().len() > shown.len() { ", …" } else { "" };
            format!("every path is in {}{more}", shown.join(", "))
        });
        let hosts = self.hosts.then(|| "every host is public".to_owned());
        [calls, schema, patterns, paths, hosts].into_iter().flatten().collect()
    }
}

/// All rules of a policy.
#[derive(Debug)]
pub struct Rules {
    /// `default`: what happens to a tool that no list names.
    pub default: Default,
    /// `allowlist`: tools and globs that are allowed.
    pub allow: NameSet,
    /// `denylist`: tools and globs that are denied.
    pub deny: NameSet,
    /// `constraints`, in file order.
    pub constraints: Vec<Constraint>,
    /// Their keys, numbered as they are.
    pub constrained: NameSet,
    /// `budget`: limits for the whole session.
    pub budget: Budget,
    /// How the lists are called in the file: `denylist` and `allowlist`, or `tools.deny` and `tools.allow`.
    pub shape: PolicyShape,
}

impl Rules {
    /// The names of denylist, allowlist and constraints in the file.
    #[must_use]
    pub const fn words(&self) -> Words {
        match self.shape {
            PolicyShape::Native => {
                Words { deny: "denylist", allow: "allowlist", constraints: "constraints", default: "default" }
            }
            PolicyShape::AssayAi => Words {
                deny: "tools.deny",
                allow: "tools.allow",
                constraints: "tools.constraints",
                default: "tools.default",
            },
        }
    }
}

/// How a file calls its parts.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// Name of the denylist.
    pub deny: &'static str,
    /// Name of the allowlist.
    pub allow: &'static str,
    /// Name of the constraints.
    pub constraints: &'static str,
    /// Name of the default.
    pub default: &'static str,
}
