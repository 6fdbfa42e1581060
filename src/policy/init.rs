//! First policies: a commented one, and the least that recorded sessions need.

use super::{
    dry_run::{Recorded, Visit},
    names::{MAX_NAME, is_glob},
};
use crate::model::WallTime;
use crate::text::{counted, either, noun};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// Name of a policy file unless another is given.
pub const FILE: &str = "assay.mcp-policy.yaml";
/// A commented file to begin with.
pub const STARTER: &str = include_str!("starter.yaml");
/// Tools that are proposed by name.
const MAX_TOOLS: usize = 5000;

/// What recorded sessions called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Calls by tool, without those that were denied then.
    pub tools: BTreeMap<String, u64>,
    /// Number of sessions that were read.
    pub sessions: u64,
    /// Calls of the session that has most.
    pub most_calls: u64,
    /// Calls of tools whose name cannot be in a policy: not recorded as it was sent, empty, or too long.
    pub nameless: u64,
    /// Calls that were denied then.
    pub denied: u64,
    /// Calls of tools beyond the first 5000.
    pub too_many: u64,
    /// What could not be read.
    pub problems: Vec<String>,
    calls: u64,
    seen: BTreeSet<String>,
}

impl Visit for Needs {
    fn session(&mut self, id: &str, _: Option<WallTime>) -> bool {
        let fresh = self.seen.insert(id.to_owned());
        if fresh {
            self.sessions += 1;
            self.calls = 0;
        }
        fresh
    }

    fn started(&mut self, _: WallTime) {}

    fn call(&mut self, call: &Recorded<'_>) {
        if call.denied {
            self.denied += 1;
        } else if !call.verbatim || call.tool.is_empty() || call.tool.len() > MAX_NAME / 2 {
            self.nameless += 1;
        } else if self.tools.len() >= MAX_TOOLS && !self.tools.contains_key(call.tool) {
            self.too_many += 1;
        } else {
            *self.tools.entry(call.tool.to_owned()).or_default() += 1;
            self.calls += 1;
            self.most_calls = self.most_calls.max(self.calls);
        }
    }

    fn problem(&mut self, what: String) {
        if self.problems.len() < 1000 {
            self.problems.push(what);
        }
    }
}

impl Needs {
    /// A policy that allows what was called, and nothing else.
    #[must_use]
    pub fn policy(&self) -> String {
        let mut out = String::new();
        let total: u64 = self.tools.values().sum();
        let _ = write!(
            out,
            "# The smallest policy for {}: {} of {}.\n\
             # Read it before you enforce it: not everything that was recorded should be allowed.\n",
            counted(self.sessions, "recorded session"),
            counted(total, "call"),
            counted(self.tools.len(), "tool"),
        );
        for (n, one, many) in [
            (self.denied, "was denied then and is left out", "were denied then and are left out"),
            (self.nameless, "has a name that a policy cannot contain", "have names that a policy cannot contain"),
            (self.too_many, "is for a tool beyond the first 5000", "are for tools beyond the first 5000"),
        ] {
            if n > 0 {
                let _ = writeln!(out, "# {n} more {} {}.", noun(n, "call"), either(n, one, many));
            }
        }
        out.push_str("version: \"1\"\n\n# A tool that no list names is denied.\ndefault: deny\n\nallowlist:");
        if self.tools.is_empty() {
            out.push_str(" []");
        }
        out.push('\n');
        for (tool, calls) in &self.tools {
            let _ = writeln!(out, "  - {}    # {}", quoted(tool), counted(*calls, "call"));
        }
        let _ = write!(
            out,
            "\n# The busiest session made {}.\n# budget:\n#   max_tool_calls: {}\n\
             \n# With what arguments a tool may be called; see docs/policy.md:\n# constraints:\n#   some_tool:\n\
             #     allowed_paths: [\"/workspace/**\", \"!**/.env\"]\n#     deny_private_hosts: true\n",
            counted(self.most_calls, "call"),
            (self.most_calls * 2).max(10)
        );
        out
    }
}

/// A tool's name as YAML and as a policy read it back.
fn quoted(tool: &str) -> String {
    let mut out = String::with_capacity(tool.len() + 2);
    out.push('"');
    for c in tool.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\\\\\"),
            // A name that looks like a glob is written as one that means the name.
            '*' | '?' | '[' | ']' | '{' | '}' if is_glob(tool) => {
                out.push_str("\\\\");
                out.push(c);
            }
            c if c.is_ascii_graphic() || c == ' ' => out.push(c),
            c if c.is_alphanumeric() => out.push(c),
            c => {
                let _ = write!(out, "\\U{:08X}", c as u32);
            }
        }
    }
    out.push('"');
    out
}
