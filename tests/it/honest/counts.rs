//! Counts and their nouns, in everything that is printed, and in the sources of what is printed.

use super::place::Place;
use regex::Regex;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What is counted anywhere, as one and as many.
const NOUNS: &[(&str, &str)] = &[
    ("byte", "bytes"),
    ("call", "calls"),
    ("change", "changes"),
    ("claim", "claims"),
    ("constraint", "constraints"),
    ("directory", "directories"),
    ("entry", "entries"),
    ("error", "errors"),
    ("event", "events"),
    ("file", "files"),
    ("finding", "findings"),
    ("gap", "gaps"),
    ("line", "lines"),
    ("message", "messages"),
    ("note", "notes"),
    ("outcome", "outcomes"),
    ("pack", "packs"),
    ("pattern", "patterns"),
    ("place", "places"),
    ("problem", "problems"),
    ("receipt", "receipts"),
    ("request", "requests"),
    ("response", "responses"),
    ("rule", "rules"),
    ("session", "sessions"),
    ("timeout", "timeouts"),
    ("tool", "tools"),
];

fn any(nouns: impl Fn(&(&'static str, &'static str)) -> &'static str) -> String {
    NOUNS.iter().map(nouns).collect::<Vec<_>>().join("|")
}

/// Counts in a text whose noun is not theirs. `2 tool calls` counts calls.
fn miscounted(text: &str) -> Vec<String> {
    let (one, many) = (any(|n| n.0), any(|n| n.1));
    let adjective = "(?:audit |recorded |more |other |progress )?";
    let counts = NOUNS.iter().flat_map(|n| [n.0, n.1]).collect::<Vec<_>>();
    let wrong = [
        format!(r"\b1 {adjective}(?:tool )?(?:{many})\b"),
        format!(r"(?:^|[\s(])(?:0|[2-9]|[1-9][0-9]+) {adjective}(?:{one})\b(?: (\w+))?"),
    ];
    let found = wrong.iter().flat_map(|w| {
        let found = Regex::new(w).unwrap().captures_iter(text).collect::<Vec<_>>();
        let real = found.into_iter().filter(|c| !c.get(1).is_some_and(|next| counts.contains(&next.as_str())));
        real.map(|c| c[0].to_owned()).collect::<Vec<_>>()
    });
    found.collect()
}

#[test]
fn the_check_finds_what_it_is_for() {
    for bad in ["1 sessions", "in 1 audit directories", "(2 call, x)", "0 error", "11 receipt", "1 more tools"] {
        assert!(!miscounted(bad).is_empty(), "{bad}");
    }
    for good in ["1 session", "11 sessions", "0 errors", "1 of 2 calls", "21 calls", "2 tool calls", "12 001 bytes"] {
        assert_eq!(miscounted(good), Vec::<String>::new(), "{good}");
    }
}

fn lines(calls: u64, failed: u64) -> Vec<Vec<u8>> {
    let call = |n: u64| {
        let answer = if n < failed { r#""error":{"code":-1,"message":"m"}"# } else { r#""result":{"content":[]}"# };
        [
            format!(
                r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"t{n}","arguments":{{}}}}}}"#
            ),
            format!(r#"{{"jsonrpc":"2.0","id":{n},{answer}}}"#),
        ]
    };
    (0..calls).flat_map(call).map(String::into_bytes).collect()
}

struct Printed(Vec<(String, String)>);

impl Printed {
    /// Runs it, and keeps everything that it prints.
    fn run(&mut self, place: &Place, args: &[&str]) {
        let out = place.program(args).output().unwrap();
        let text = format!("{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(!text.trim().is_empty(), "{args:?} prints something");
        self.0.push((args.join(" "), text));
    }

    fn file(&mut self, path: &Path) {
        self.0.push((path.display().to_string(), fs::read_to_string(path).unwrap()));
    }
}

#[test]
fn one_is_one_and_others_are_many_in_all_that_is_printed() {
    let mut printed = Printed(Vec::new());
    let mut packs: Vec<(Place, PathBuf)> = Vec::new();
    for (calls, failed) in [(0, 0), (1, 0), (1, 1), (2, 1), (3, 2)] {
        let place = Place::new();
        let pack = place.pack(&lines(calls, failed));
        let root = place.root();
        let (audit, dir) = (root.join("audit"), pack.to_str().unwrap().to_owned());
        let audit = audit.to_str().unwrap();
        printed.0.push(("mcp-proxy".to_owned(), place.said.borrow().clone()));
        printed.run(&place, &["verify-pack", &dir]);
        printed.run(
            &place,
            &["verify-pack", "--cards", "receipt_completeness,mcp_session_completeness,mcp_escrow_completeness", &dir],
        );
        printed.run(&place, &["explain", &dir]);
        printed.run(&place, &["analyze", &dir]);
        printed.run(&place, &["analyze", "--history"]);
        printed.run(&place, &["recover", "--audit-dir", audit]);
        printed.run(&place, &["policy", "init", "--from", &dir]);
        fs::write(
            root.join("p.yaml"),
            format!("version: \"1\"\ndefault: deny\nbudget:\n  max_tool_calls: {calls}\nconstraints:\n  t0: {{max_calls: {calls}}}\n"),
        )
        .unwrap();
        printed.run(&place, &["policy", "check", "p.yaml"]);
        printed.run(&place, &["policy", "dry-run", "--against", &dir, "p.yaml"]);
        printed.file(&pack.join("verify_transcript.md"));
        printed.file(&pack.join("_unsigned/PACK_SUMMARY.md"));
        packs.push((place, pack));
    }
    for (place, a) in &packs {
        for (_, b) in &packs {
            let root = place.root();
            let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
            let _ = fs::remove_file(root.join("report.html"));
            printed.run(place, &["diff", "--report", "report.html", a, b]);
            printed.file(&root.join("report.html"));
        }
    }
    // One call, event or line less than there should be.
    for (file, keep) in [("receipt_pack.jsonl", 1), ("audit_log.jsonl", 2), ("audit_log.jsonl", 3)] {
        let (place, pack) = &packs[4];
        let text = fs::read_to_string(pack.join(file)).unwrap();
        let less: Vec<&str> = text.lines().take(keep).collect();
        fs::write(pack.join(file), less.join("\n") + "\n").unwrap();
        printed.run(place, &["verify-pack", pack.to_str().unwrap()]);
    }
    printed.run(&packs[0].0, &["demo", "--dir", "demo"]);
    for (what, text) in &printed.0 {
        assert_eq!(miscounted(text), Vec::<String>::new(), "{what}:\n{text}");
    }
}

fn files(dir: &Path, ends: &str, all: &mut Vec<PathBuf>) {
    for path in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if path.is_dir() {
            files(&path, ends, all);
        } else if path.to_str().is_some_and(|p| p.ends_with(ends)) {
            all.push(path);
        }
    }
}

/// The dashboard's screens, as its own tests draw them.
#[test]
fn counts_on_the_screens_have_their_nouns() {
    let mut all = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots"), ".snap", &mut all);
    assert!(all.len() > 10);
    for path in all {
        assert_eq!(miscounted(&fs::read_to_string(&path).unwrap()), Vec::<String>::new(), "{}", path.display());
    }
}

/// A count that is put before a plural as it stands would be wrong for one: it goes through `text::counted`. Constants are
/// above one.
#[test]
fn no_source_puts_a_plural_behind_a_count_by_hand() {
    let mut all = Vec::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    files(&src, ".rs", &mut all);
    let by_hand = Regex::new(&format!(r#"\{{([a-z_.]*)(?::[^{{}}]*)?\}} (?:[a-z]+ )?({})\b"#, any(|n| n.1))).unwrap();
    // Words of assay-ai's own claim cards, limits, and a server's text for a model.
    let allowed = ["verify/evaluate.rs", "plain.rs", "demo/server.rs", "pack/keys.rs", "verify/manifest.rs"];
    let mut found = Vec::new();
    for path in all {
        let name = path.strip_prefix(&src).unwrap().to_str().unwrap();
        if allowed.iter().any(|a| name.ends_with(a)) || name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for (n, line) in text.lines().enumerate().filter(|(_, l)| !l.trim_start().starts_with("//")) {
            let hit = by_hand.captures_iter(line).any(|c| !line.contains("counted(") || c[1].is_empty());
            if hit && !line.contains("more than {") && !line.contains("between lines") {
                found.push(format!("{name}:{}: {}", n + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
