//! Every way in which a server could take a string for a path.

use super::keys::{Kind, REMOTE, is_plain_path, looks_like_path};
use percent_encoding::percent_decode_str;
use std::collections::BTreeSet;
use unicode_normalization::UnicodeNormalization as _;

/// Readings of one value at most.
const MAX_READINGS: usize = 48;
/// Bytes of a path (Linux `PATH_MAX`).
const MAX_PATH: usize = 4096;
/// A path as a server could read it, absolute or relative.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reading {
    /// The path, absolute or relative.
    pub path: String,
    /// Whether it begins at the home (`~`).
    pub home: bool,
}

/// All readings of a value; none when it is not a path.
///
/// # Errors
/// Why it cannot be read at all.
pub fn of(text: &str, kind: Kind) -> Result<Vec<Reading>, &'static str> {
    if let Some(rest) = file_uri(text) {
        // A document may begin with the words "file: ".
        if kind != Kind::Content || (rest.starts_with(['/', '\\']) && !text.contains('\n')) {
            return readings(file_paths(&rest)?);
        }
    }
    match kind {
        Kind::Content if !is_plain_path(text) => return Ok(Vec::new()),
        Kind::Other if !looks_like_path(text) => return Ok(Vec::new()),
        Kind::Uri => {
            if let Some((scheme, rest)) = scheme(text.trim()) {
                return other_uri(&scheme, rest);
            }
        }
        Kind::Content | Kind::Other | Kind::Path => {}
    }
    if text.len() > MAX_PATH {
        return Err("is too long");
    }
    readings(vec![text.to_owned()])
}

/// A URI that is not of a file by its scheme: what is after the host may still be a path of this machine.
fn other_uri(scheme: &str, rest: &str) -> Result<Vec<Reading>, &'static str> {
    if REMOTE.contains(&scheme) {
        return Ok(Vec::new());
    }
    let rest = rest.replace('\\', "/");
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.find('/').map_or("", |at| &rest[at..]),
        None => &rest,
    };
    if path.trim_matches('/').is_empty() { Ok(Vec::new()) } else { readings(vec![path.to_owned()]) }
}

/// The `file:` URIs inside a text.
pub fn embedded(text: &str) -> impl Iterator<Item = &str> {
    let mut from = 1;
    std::iter::from_fn(move || {
        loop {
            let at = from + memchr::memchr(b':', text.as_bytes().get(from..)?)?;
            from = at + 1;
            let slash = matches!(text.as_bytes().get(at + 1), Some(b'/' | b'\\'));
            let Some(start) = at.checked_sub(4).filter(|s| *s > 0 && slash && text.is_char_boundary(*s)) else {
                continue;
            };
            // `logfile:/x` is not one.
            let is_word = text[..start].ends_with(|c: char| c.is_ascii_alphanumeric());
            if !is_word && text[start..at].eq_ignore_ascii_case("file") {
                let rest = &text[start..];
                let stop =
                    |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`' | ')' | ']' | '}' | ',');
                return Some(&rest[..rest.find(stop).unwrap_or(rest.len())]);
            }
        }
    })
}

/// A scheme of two characters or more, in lower case, and what is after its colon.
fn scheme(text: &str) -> Option<(String, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let valid = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    valid.then(|| (scheme.to_ascii_lowercase(), rest))
}

/// What is after the scheme of a `file:` URI, also of `jar:file:…` and `git+file:…`. Browsers drop tabs and line
/// breaks.
fn file_uri(text: &str) -> Option<String> {
    let blank = |c: char| c.is_whitespace() || c.is_control();
    let dropped = |c: &char| !matches!(c, '\t' | '\r' | '\n');
    let text = text.trim_matches(blank);
    let head: String = text.chars().filter(dropped).take(256).collect();
    let mut rest = head.as_str();
    loop {
        let (scheme, behind) = scheme(rest)?;
        if scheme.split('+').any(|s| s == "file") {
            let before = head.len() - behind.len();
            return Some(text.chars().filter(dropped).skip(head[..before].chars().count()).collect());
        }
        rest = behind;
    }
}

/// The paths that a `file:` URI may name.
fn file_paths(rest: &str) -> Result<Vec<String>, &'static str> {
    let rest = rest.replace('\\', "/");
    let path = match rest.strip_prefix("//") {
        None => rest.as_str(),
        Some(rest) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let here = ["", "localhost", "localhost.", "127.0.0.1", "[::1]"];
            if !here.iter().any(|h| host.eq_ignore_ascii_case(h)) {
                return Err("is on another host");
            }
            path
        }
    };
    // After ? and # is not a path, but not every server knows.
    let cut = path.find(['?', '#']).map_or(path, |at| &path[..at]);
    Ok(if cut == path { vec![path.to_owned()] } else { vec![cut.to_owned(), path.to_owned()] })
}

/// Everything that the texts could be, percent-decoded as often as it goes, slashes turned, blanks around cut.
fn readings(start: Vec<String>) -> Result<Vec<Reading>, &'static str> {
    // Percent-encoding makes three characters of one.
    if start.iter().any(|text| text.len() > 3 * MAX_PATH) {
        return Err("is too long");
    }
    let mut todo = start;
    let mut seen = BTreeSet::new();
    while let Some(text) = todo.pop() {
        if text.contains('\0') {
            return Err("has a NUL character");
        }
        if seen.contains(&text) {
            continue;
        }
        if seen.len() == MAX_READINGS {
            return Err("can be read in too many ways");
        }
        let trimmed = text.trim_matches(|c: char| c.is_whitespace() || c.is_control());
        if trimmed != text {
            todo.push(trimmed.to_owned());
        }
        if text.contains('%') {
            let decoded =
                percent_decode_str(&text).decode_utf8().map_err(|_| "has percent-encoding that is not UTF-8")?;
            todo.push(decoded.into_owned());
        }
        if text.contains('\\') {
            todo.push(text.replace('\\', "/"));
        }
        if !text.is_ascii() {
            todo.push(text.nfkc().collect());
        }
        seen.insert(text);
    }
    let mut out = Vec::with_capacity(seen.len());
    for path in seen {
        if path.len() > MAX_PATH {
            return Err("is too long");
        }
        let b = path.as_bytes();
        if b.len() > 1 && b[0].is_ascii_alphabetic() && b[1] == b':' {
            return Err("begins with a drive letter, which is unknown here");
        }
        if path.starts_with('$') || is_windows_variable(&path) {
            return Err("begins with a variable, which is unknown here");
        }
        if path == "~" || path.starts_with("~/") {
            if path.split('/').any(|c| c == "..") {
                out.push(Reading { path: path.clone(), home: false });
            }
            out.push(Reading { path, home: true });
        } else if path.starts_with('~') {
            return Err("begins at the home directory of another user, which is unknown here");
        } else {
            out.push(Reading { path, home: false });
        }
    }
    Ok(out)
}

/// `%NAME%…`, and not two percent-encoded characters.
fn is_windows_variable(path: &str) -> bool {
    let name = path.strip_prefix('%').and_then(|rest| rest.split_once('%')).map(|(name, _)| name);
    let encoded = |n: &str| n.bytes().take(2).all(|b| b.is_ascii_hexdigit());
    name.is_some_and(|n| {
        n.len() > 2 && !encoded(n) && n.bytes().all(|b| b.is_ascii_alphanumeric() || b"_()".contains(&b))
    })
}
