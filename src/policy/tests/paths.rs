//! `allowed_paths`.

use super::*;
use crate::model::CallAnomaly;
use std::{fs, os::unix::fs::symlink, path::Path};

fn with(cwd: &Path, home: Option<&Path>, patterns: &[&str]) -> Evaluator {
    let list = serde_json::to_string(patterns).unwrap();
    let policy = format!("version: \"1\"\ndefault: allow\nconstraints: {{t: {{allowed_paths: {list}}}}}\n");
    let policy = Arc::new(Policy::parse(policy.as_bytes(), "p").unwrap_or_else(|e| panic!("{e}")));
    let around = Surroundings { cwd: cwd.to_owned(), home: home.map(Path::to_owned), dns: Dns::Off };
    Evaluator::new(policy, Arc::new(around))
}

fn verdict(e: &mut Evaluator, json: &str) -> &'static str {
    let r = decide(e, "t", Arguments::Raw(json.as_bytes()));
    match (r.reason, r.unseen.contains(&CallAnomaly::SymlinkAfterCheck)) {
        (Reason::Default, false) => "-",
        (Reason::Default, true) => "ok",
        (Reason::AllowedPaths | Reason::ArgumentsUnreadable, _) => "no",
        _ => "?",
    }
}

#[test]
fn every_form_of_a_path() {
    let text = include_str!("paths.txt");
    let patterns = text.lines().find_map(|l| l.strip_prefix("# allowed: ")).unwrap();
    let patterns: Vec<&str> = patterns.split(' ').map(|p| p.trim_matches('"')).collect();
    let mut e = with(Path::new("/srv/work"), Some(Path::new("/home/me")), &patterns);
    let mut wrong = Vec::new();
    let mut cases = 0;
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        cases += 1;
        let (expected, json) = line.split_once(' ').unwrap();
        let found = verdict(&mut e, json);
        if found != expected {
            let r = decide(&mut e, "t", Arguments::Raw(json.as_bytes()));
            wrong.push(format!("{line}\n    gave {found}: {}", r.message));
        }
    }
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Patterns, path, and whether it is allowed.
const GLOBS: &[(&[&str], &str, bool)] = &[
    (&[], "/a", false),
    (&["/**"], "/", true),
    (&["/**"], "/a/b", true),
    (&["**"], "/a/b", true),
    (&["**"], "/", true),
    (&["/*"], "/a", true),
    (&["/*"], "/a/b", false),
    (&["/"], "/", true),
    (&["/"], "/a", false),
    (&["/a"], "/a", true),
    (&["/a/"], "/a", true),
    (&["/a"], "/a/b", false),
    (&["/a/*/c"], "/a/b/c", true),
    (&["/a/*/c"], "/a/b/b/c", false),
    (&["/a/**/c"], "/a/c", true),
    (&["/a/**/c"], "/a/b/b/c", true),
    (&["/a/**/c"], "/a/b/cc", false),
    (&["/a/b*"], "/a/bcd", true),
    (&["/a/b*"], "/a/b/c", false),
    (&["/a/?"], "/a/b", true),
    (&["/a/?"], "/a/bc", false),
    (&["/a?b"], "/a/b", false),
    (&["/a/[bc]"], "/a/c", true),
    (&["/a/[!bc]"], "/a/c", false),
    (&["/a/[!bc]"], "/a/d", true),
    (&["/a[/]b"], "/a/b", false),
    (&["/{a,b}/**"], "/b/x", true),
    (&["/{a,b}/**"], "/c/x", false),
    (&["/a/\\*"], "/a/*", true),
    (&["/a/\\*"], "/a/b", false),
    (&["**/*.md"], "/x/y/z.md", true),
    (&["**/*.md"], "/z.md", true),
    (&["**/*.md"], "/z.MD", false),
    (&["/A/**"], "/a/x", false),
    (&["!**/.git", "/a/**"], "/a/.git/config", false),
    (&["/a/**", "!/a/b/**"], "/a/b", false),
    (&["/a/**", "!/a/b/**", "/a/b/c"], "/a/b/c", false),
    (&["/a/**", "!b"], "/a/x/b", false),
    (&["/a/**", "!b"], "/a/x/b/c", false),
    (&["/a/**", "!b/c"], "/a/x/b/c", false),
    (&["/a/**", "!b/c"], "/a/b/x/c", true),
    (&["/a/**", "!b."], "/a/b.", false),
    (&["/a/**", "!*."], "/a/b.", false),
    (&["/a/**", "!.*"], "/a/.x", false),
    (&["/a/**", "!.*"], "/a/.x/y", false),
    (&["/a/**", "!.*"], "/a/x.y", true),
    (&["/a/**", "!É"], "/a/É", false),
    (&["/a/**", "!~/x"], "/home/me/x", false),
    (&["/**", "!~/x"], "/home/me/x/y", false),
    (&["/**", "!~/x"], "/home/you/x", true),
    (&["/**", "!~"], "/home/me", false),
    (&["~/**"], "/home/me", true),
    (&["~/**"], "/home/me/a/b", true),
    (&["~"], "/home/me", true),
    (&["~"], "/home/me/a", false),
    (&["*.txt"], "/srv/work/a.txt", true),
    (&["*.txt"], "/a.txt", false),
    (&["./a"], "/srv/work/a", true),
    (&["a b/**"], "/srv/work/a b/c", true),
];

#[test]
fn patterns_mean_what_they_say() {
    for (patterns, path, allowed) in GLOBS {
        let mut e = with(Path::new("/srv/work"), Some(Path::new("/home/me")), patterns);
        let json = serde_json::json!({ "path": path }).to_string();
        assert_eq!(verdict(&mut e, &json), if *allowed { "ok" } else { "no" }, "{patterns:?} {path}");
    }
    // Without a home, what is excluded there is excluded everywhere.
    let mut e = with(Path::new("/srv/work"), None, &["/**", "!~/x"]);
    assert_eq!(verdict(&mut e, r#"{"path":"/home/anyone/x"}"#), "no");
    assert_eq!(verdict(&mut e, r#"{"path":"/home/anyone/y"}"#), "ok");
    assert_eq!(verdict(&mut e, r#"{"path":"~/y"}"#), "no");
}

#[test]
fn symbolic_links_are_followed_before_they_are_judged() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    let at = |p: &str| root.join(p);
    for d in ["ok/sub/deep", "secret", "ok/.git"] {
        fs::create_dir_all(at(d)).unwrap();
    }
    fs::write(at("ok/file"), "").unwrap();
    fs::write(at("secret/key"), "").unwrap();
    fs::write(at("ok/plain.env"), "").unwrap();
    for (link, target) in [
        ("ok/out", at("secret")),
        ("ok/key", at("secret/key")),
        ("ok/up", "..".into()),
        ("ok/in", at("ok/sub")),
        ("ok/rel", "sub/deep".into()),
        ("ok/chain", "out".into()),
        ("ok/loop", "loop2".into()),
        ("ok/loop2", "loop".into()),
        ("ok/dangling", at("secret/new")),
        ("ok/danglingin", at("ok/new")),
        ("ok/root", "/".into()),
        ("ok/.env", "plain.env".into()),
        ("ok/toenv", ".env".into()),
        ("door", at("ok")),
        ("secret/back", at("ok/sub")),
    ] {
        symlink(target, at(link)).unwrap();
    }
    let allowed = format!("{}/**", at("ok").display());
    let mut e = with(&at("ok"), None, &[&allowed, "!**/.env"]);
    for (path, expected) in [
        ("ok/file", "ok"),
        ("ok/none", "ok"),
        ("ok/none/none", "ok"),
        ("ok/file/none", "ok"),
        ("ok/out", "no"),
        ("ok/out/key", "no"),
        ("ok/out/none", "no"),
        ("ok/key", "no"),
        ("ok/up", "no"),
        ("ok/up/ok/file", "ok"),
        ("ok/up/secret/key", "no"),
        ("ok/in", "ok"),
        ("ok/in/deep", "ok"),
        ("ok/in/..", "ok"),
        ("ok/rel/../..", "no"),
        ("ok/rel/../../..", "no"),
        ("ok/chain/key", "no"),
        ("ok/loop", "no"),
        ("ok/loop/x", "no"),
        ("ok/dangling", "no"),
        ("ok/danglingin", "ok"),
        ("ok/root/etc/passwd", "no"),
        ("ok/.env", "no"),
        ("ok/toenv", "ok"),
        ("ok/plain.env", "ok"),
        ("door/file", "ok"),
        ("door/out/key", "no"),
        ("secret/back/deep", "ok"),
        ("secret/back/../file", "no"),
        ("ok/out/../ok/file", "ok"),
        ("ok/none/../out/key", "no"),
        ("ok/none/../file", "ok"),
    ] {
        for text in [at(path).display().to_string(), format!("file://{}", at(path).display())] {
            let json = serde_json::json!({ "path": text }).to_string();
            assert_eq!(verdict(&mut e, &json), expected, "{text}");
        }
        let relative = format!("../{path}");
        let json = serde_json::json!({ "path": relative }).to_string();
        assert_eq!(verdict(&mut e, &json), expected, "{relative}");
    }
}

#[test]
fn long_and_many_are_no_way_around() {
    let mut e = with(Path::new("/srv/work"), None, &["/workspace/**"]);
    for text in [
        format!("/workspace/{}", "a/".repeat(5000)),
        format!("file:///workspace/{}", "a/../".repeat(5000)),
        format!("{}file:///etc/passwd", " ".repeat(10_000)),
        format!("/workspace/{}", "x".repeat(300)) + "/../../etc/passwd",
        format!("/workspace/%{}2e", "25".repeat(100)),
        format!("x/%{}2e%2e/y", "25".repeat(39)),
        format!("x/%{}2e%2e/y", "25".repeat(41)),
        format!("/{}", "x".repeat(5000)),
        format!("{}/../../etc/passwd", "x/../".repeat(2000)),
        format!("{}x/../../etc/passwd", "./".repeat(3000)),
    ] {
        let json = serde_json::json!({ "uri": text, "q": text }).to_string();
        assert_eq!(verdict(&mut e, &json), "no", "{}…", &text[..40]);
    }
}

#[test]
fn a_message_names_the_path_and_is_harmless() {
    let mut e = with(Path::new("/srv/work"), None, &["/workspace/**"]);
    let json = br#"{"path":"/etc/\u001b[31mx","password":"hunter2"}"#;
    let r = decide(&mut e, "t", Arguments::Raw(json));
    assert_eq!(r.message, "the path /etc/␛[31mx is not allowed");
    assert_eq!(r.rule, "constraints.t.allowed_paths");
}
