//! Every rule and its edges, one line a case.
#![allow(clippy::format_collect, clippy::format_push_string, reason = "texts of a test")]

use super::*;
use std::{path::PathBuf, sync::Arc, time::Duration};

mod hosts;
mod load;
mod paths;
mod patterns;
mod rules;
mod schemas;

fn evaluator(policy: &str) -> Evaluator {
    let policy = Policy::parse(policy.as_bytes(), "test.yaml").unwrap_or_else(|e| panic!("{e}"));
    let around = Surroundings { cwd: PathBuf::from("/srv/work"), home: Some("/home/me".into()), dns: Dns::Off };
    Evaluator::new(Arc::new(policy), Arc::new(around))
}

fn decide(e: &mut Evaluator, tool: &str, arguments: Arguments<'_>) -> Decision {
    e.decide(&Call { tool, arguments }, Duration::ZERO)
}

/// Tools against one policy: name, reason, rule.
const TOOLS: &str = r#"
version: "1"
default: deny
allowlist: [read_file, "db.*", "a?c", "x[0-9]", "{one,two}", "weird\\*", "日本", Caps]
denylist: [shell_exec, "db.drop*", "*.secret"]
constraints:
  limited: { max_calls: 0 }
"#;

#[test]
fn tool_names_and_globs() {
    let mut e = evaluator(TOOLS);
    for line in include_str!("tools.txt").lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        let (tool, rest) = line.split_once(" | ").unwrap();
        let (reason, rule) = rest.split_once(" | ").unwrap();
        let tool: String = serde_json::from_str(&format!("\"{tool}\"")).unwrap();
        let r = decide(&mut e, &tool, Arguments::Absent);
        assert_eq!((r.reason.as_str(), r.rule.as_str()), (reason.trim(), rule.trim()), "{line}");
        let allowed = matches!(r.reason, Reason::Allowlist | Reason::Default);
        assert_eq!(r.verdict == Verdict::Allowed, allowed, "{line}");
    }
}
