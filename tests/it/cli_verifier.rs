//! `assay verifier`: a page and a script that need nothing else.

use assay_support::rig::{rig, stderr, stdout};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use std::fs;

/// What is between two texts, which must be there once.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = page.split_once(from).unwrap();
    let (inside, behind) = rest.split_once(to).unwrap();
    assert!(!behind.contains(from), "{from} twice");
    inside
}

#[test]
fn the_page_is_one_file_that_may_load_nothing() {
    let rig = rig!();
    assert_eq!(rig.run(&["verifier", "--out", "verify.html"]).status.code(), Some(0));
    let page = fs::read_to_string(rig.at("verify.html")).unwrap();
    assert_eq!(stdout(&rig.run(&["verifier"])), page);
    let policy = between(&page, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
    let script = between(&page, "<script type=\"module\">", "</script>");
    let style = between(&page, "<style>", "</style>");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    for (source, text) in [("script-src", script), ("style-src", style)] {
        assert!(policy.contains(&format!("{source} 'sha256-{}'", STANDARD.encode(Sha256::digest(text)))), "{policy}");
    }
    for from_elsewhere in
        ["src=", "href=", "@import", "url(", "innerHTML", "insertAdjacentHTML", "document.write", "eval("]
    {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    // The script for node is the same one.
    assert_eq!(stdout(&rig.run(&["verifier", "--node"])), script);
}

#[test]
fn nothing_is_overwritten() {
    let rig = rig!();
    fs::write(rig.at("verify.html"), "mine").unwrap();
    let out = rig.run(&["verifier", "--out", "verify.html"]);
    assert!(out.status.code() == Some(3) && stderr(&out).contains("exists"), "{}", stderr(&out));
    assert_eq!(fs::read_to_string(rig.at("verify.html")).unwrap(), "mine");
}
