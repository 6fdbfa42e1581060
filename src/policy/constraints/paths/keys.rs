//! Which arguments are paths, by their names and by how they look.

use super::super::{walk::Around, words};

/// How often a text is percent-decoded; no program does it as often.
const MAX_ROUNDS: usize = 40;

/// Schemes whose URIs name nothing in this machine's files.
pub const REMOTE: [&str; 19] = [
    "http", "https", "ws", "wss", "ftp", "ftps", "sftp", "ssh", "data", "mailto", "tel", "urn", "blob", "about", "git",
    "s3", "gs", "ipfs", "magnet",
];

/// What the name of an argument says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The value is a path.
    Path,
    /// A URI, which may be one of a file.
    Uri,
    /// A document or text, which may look like anything.
    Content,
    /// Nothing: how the value looks decides.
    Other,
}

/// Words in a name that make its value a path.
const PATH: [&str; 22] = [
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "filenames",
    "filepath",
    "filepaths",
    "dir",
    "dirs",
    "directory",
    "directories",
    "dirname",
    "folder",
    "folders",
    "cwd",
    "root",
    "roots",
    "workdir",
    "pathname",
    "pathnames",
    "subdir",
];
/// Whole names that do.
const PATH_NAME: [&str; 8] = ["source", "sources", "destination", "destinations", "src", "dst", "dest", "repo"];
const URI: [&str; 7] = ["uri", "uris", "url", "urls", "href", "link", "links"];
/// Last words of a name whose value is a document.
const CONTENT: [&str; 27] = [
    "content",
    "contents",
    "text",
    "texts",
    "body",
    "data",
    "code",
    "html",
    "markdown",
    "message",
    "messages",
    "prompt",
    "query",
    "pattern",
    "patterns",
    "regex",
    "description",
    "comment",
    "title",
    "note",
    "notes",
    "str",
    "string",
    "selector",
    "xpath",
    "template",
    "sql",
];
/// Last words of a name whose value describes a path but is not one.
const ABOUT: [&str; 17] = [
    "type",
    "types",
    "format",
    "id",
    "ids",
    "count",
    "size",
    "encoding",
    "mode",
    "limit",
    "extension",
    "extensions",
    "line",
    "lines",
    "number",
    "hash",
    "separator",
];
/// Names inside an object that is the value of a path's name.
const INSIDE: [&str; 6] = ["name", "names", "value", "values", "location", "target"];

/// What the names around a value say about it.
pub fn kind(around: &Around<'_>) -> Kind {
    const KINDS: [Kind; 4] = [Kind::Path, Kind::Uri, Kind::Content, Kind::Other];
    KINDS.get(usize::from(around.class(|a| judged(a) as u8))).copied().unwrap_or(Kind::Other)
}

fn judged(around: &Around<'_>) -> Kind {
    let Some(key) = around.key() else { return Kind::Other };
    let own = of_name(key);
    if own == Kind::Other && INSIDE.contains(&key.to_ascii_lowercase().as_str()) {
        return match around.outer_keys().map(of_name).next() {
            Some(outer @ (Kind::Path | Kind::Uri)) => outer,
            _ => Kind::Other,
        };
    }
    own
}

fn of_name(name: &str) -> Kind {
    // A name that long is not a parameter's.
    if name.len() > 128 {
        return Kind::Other;
    }
    let words = words(name);
    let has = |list: &[&str]| words.iter().any(|w| list.contains(&w.as_str()));
    let last = words.last().map_or("", String::as_str);
    if CONTENT.contains(&last) {
        Kind::Content
    } else if has(&URI) && !ABOUT.contains(&last) {
        Kind::Uri
    } else if (has(&PATH) && !ABOUT.contains(&last)) || (words.len() == 1 && PATH_NAME.contains(&last)) {
        Kind::Path
    } else {
        Kind::Other
    }
}

/// Whether a text looks like a path that leads away from the working directory, or names a place explicitly.
pub fn looks_like_path(text: &str) -> bool {
    let text = trimmed(text);
    (begins_like_path(text) && !text.contains('\n')) || climbs(text)
}

/// Whether a document is certainly nothing but a path: it climbs, or begins at the home or at an existing directory.
pub fn is_plain_path(text: &str) -> bool {
    let text = trimmed(text);
    if text.contains(char::is_whitespace) {
        return false;
    }
    if text.starts_with("~/") || text == "~" || climbs(text) {
        return true;
    }
    let Some(decoded) = decoded(text) else { return true };
    let Some(rest) = decoded.strip_prefix('/') else { return false };
    let first = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
    // `//` begins a comment and an XPath.
    !rest.starts_with('/')
        && !first.is_empty()
        && std::fs::symlink_metadata(std::path::Path::new("/").join(first)).is_ok()
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c.is_control())
}

fn begins_like_path(text: &str) -> bool {
    let b = text.as_bytes();
    let drive = b.len() > 2 && b[0].is_ascii_alphabetic() && b[1] == b':' && matches!(b[2], b'\\' | b'/');
    let encoded = |p: &str| text.get(..3).is_some_and(|s| s.eq_ignore_ascii_case(p));
    drive
        || text == "~"
        || text == ".."
        || ["/", "~/", "./", "../", ".\\", "..\\", "\\\\", "~\\"].iter().any(|p| text.starts_with(p))
        || ["%2f", "%2e", "%7e", "%5c"].iter().any(|p| encoded(p))
}

/// Whether one of its components is `..`, in any spelling that [`super::readings`] knows; in a URL, whether they lead
/// out of it: a program that takes it for a path goes there.
fn climbs(text: &str) -> bool {
    let plain = text.is_ascii() && !text.contains('%');
    if plain && memchr::memmem::find(text.as_bytes(), b"..").is_none() {
        return false;
    }
    let Some(text) = decoded(text) else { return true };
    let is_url = text.split_once("://").is_some_and(|(scheme, _)| is_remote(scheme));
    let mut depth = 0i64;
    for component in text.split(['/', '\\']) {
        match component {
            ".." if !is_url => return component.len() < text.len(),
            ".." => depth -= 1,
            "" | "." => {}
            _ => depth += 1,
        }
        if depth < 0 {
            return true;
        }
    }
    false
}

/// Whether URIs of a scheme name nothing in this machine's files.
fn is_remote(scheme: &str) -> bool {
    REMOTE.iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// Percent-decoded as often as possible, in the compatibility form; `None` when it never ends.
fn decoded(text: &str) -> Option<std::borrow::Cow<'_, str>> {
    use unicode_normalization::UnicodeNormalization as _;
    let mut text = std::borrow::Cow::Borrowed(text);
    let mut rounds = 0;
    while text.contains('%') {
        let next = percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if next == *text {
            break;
        }
        text = next.into();
        rounds += 1;
        if rounds == MAX_ROUNDS {
            return None;
        }
    }
    if !text.is_ascii() {
        text = text.nfkc().collect::<String>().into();
    }
    Some(text)
}
