//! URLs in a text, and the hosts that parsers find in them.
//!
//! No reading is taken for the right one. What ends the host for one parser belongs to it, or to the user's name, for
//! another (WHATWG, RFC 3986, curl, Python, Go, and careless code): each piece that some parser connects to must be
//! public, and where they differ about a name, which cannot be looked up for all of them, the URL is denied.

use super::name::{DOTS, NO_HOST, Reading, Seen, host, shown};
use crate::policy::names::fold;
use std::{borrow::Cow, net::Ipv6Addr};

/// Schemes that browsers give a host whatever number of slashes there is.
const SPECIAL: [&str; 6] = ["http", "https", "ws", "wss", "ftp", "ftps"];
/// Schemes that name this machine.
const LOCAL: [&str; 11] = [
    "file",
    "unix",
    "npipe",
    "vsock",
    "abstract",
    "unix-abstract",
    "ldapi",
    "ipc",
    "inproc",
    "postgresql+unix",
    "redis-socket",
];
/// Schemes of identifiers that are written like numbers of an address and that no program connects to.
const NUMBERED: [&str; 2] = ["doi", "hdl"];
/// Schemes of clients that connect to this machine when no host is written.
const AT_HOME: [&str; 26] = [
    "postgres",
    "postgresql",
    "mysql",
    "mysqlx",
    "mariadb",
    "mongodb",
    "redis",
    "rediss",
    "amqp",
    "amqps",
    "ldap",
    "ldaps",
    "kafka",
    "nats",
    "mqtt",
    "memcached",
    "cassandra",
    "clickhouse",
    "sqlserver",
    "mssql",
    "oracle",
    "bolt",
    "neo4j",
    "zookeeper",
    "etcd",
    "couchbase",
];

/// URLs and hosts of one call that are looked at.
pub const MAX_URLS: usize = 20_000;
/// Bytes around hosts that are looked at, some of them more than once; a call that needs more is denied.
pub const MAX_WORK: usize = 32 << 20;

/// Which blanks may belong to a URL in a text.
#[derive(Debug, Clone, Copy)]
pub enum Blanks {
    /// None: the URL begins after a blank.
    None,
    /// All: the URL may go to the end of the text.
    All,
    /// Those before the end of the brackets or quotes around the URL.
    Before(char),
}

impl Blanks {
    /// Those of a URL that follows this character.
    fn behind(opening: Option<char>) -> Self {
        opening.map_or(Self::None, |c| closing(c).map_or(Self::All, Self::Before))
    }
}

/// Where a URL is found, which decides what may belong to it.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The text begins with it: a parser may be given all of the text.
    pub first: bool,
    /// Which blanks may belong to it.
    pub blanks: Blanks,
    /// A browser knows the scheme; others may have several hosts.
    pub special: bool,
    /// How what is in the host's place is judged.
    pub reading: Reading,
}

impl Place {
    /// Of a text that is a host with what may be around it.
    pub const WHOLE: Self = Self { first: true, blanks: Blanks::All, special: true, reading: Reading::Certain };
}

impl Seen {
    fn url(&mut self, bytes: usize) -> Result<(), String> {
        self.urls += 1;
        if self.urls > MAX_URLS {
            return Err(format!("more than {MAX_URLS} URLs in one call"));
        }
        self.worked(bytes)
    }

    /// Counts bytes that are looked at.
    pub fn worked(&mut self, bytes: usize) -> Result<(), String> {
        self.work += bytes;
        if self.work > MAX_WORK {
            return Err(format!("more than {} MiB around hosts would have to be examined", MAX_WORK >> 20));
        }
        Ok(())
    }
}

fn one_of(list: &[&str], scheme: &str) -> bool {
    scheme.split('+').any(|part| list.iter().any(|known| part.eq_ignore_ascii_case(known)))
}

/// Whether a browser gives a scheme a host whatever number of slashes there is.
pub fn is_special(scheme: &str) -> bool {
    one_of(&SPECIAL, scheme)
}

const fn is_slash(b: u8) -> bool {
    matches!(b, b'/' | b'\\')
}

/// What a browser, or a parser of fields, ends no host with, and a person who writes a text does.
fn is_odd(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '"' | '<' | '>' | '`' | '^')
}

/// Judges all URLs in a text; `most` is how strictly. Whether there was any.
///
/// # Errors
/// Why one is denied.
pub fn urls(text: &str, most: Reading, seen: &mut Seen) -> Result<bool, String> {
    let bytes = text.as_bytes();
    let begin = text.len() - text.trim_start_matches(|c: char| is_odd(c) || c == '\u{feff}').len();
    let mut some = false;
    for colon in memchr::memchr_iter(b':', bytes) {
        let slashes = bytes[colon + 1..].iter().take_while(|b| is_slash(**b)).count();
        let from = bytes[..colon].iter().rposition(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(b)));
        let scheme = text[from.map_or(0, |n| n + 1)..colon].trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        let at = colon - scheme.len();
        // Python takes the brackets of a text off, and this.
        let first = at <= begin || text[begin..at].eq_ignore_ascii_case("url:");
        let behind = &text[colon + 1..];
        if behind.is_empty() || scheme.is_empty() && slashes < 2 {
            continue;
        }
        if one_of(&LOCAL, scheme) && (slashes > 0 || first && !behind.starts_with(' ')) {
            return Err(format!("a {}: URL, which names this machine", shown(scheme).to_lowercase()));
        }
        let special = is_special(scheme);
        let opaque = first
            && scheme.len() > 1
            && !behind.starts_with(char::is_whitespace)
            && !NUMBERED.iter().any(|known| scheme.eq_ignore_ascii_case(known));
        if !(slashes >= 2 || special && (slashes > 0 || first || !behind.starts_with(char::is_whitespace))) {
            if opaque {
                nowhere("", behind, seen)?;
            }
            continue;
        }
        let before = text[..at].chars().next_back().filter(|c| !c.is_whitespace());
        // RFC 3986's own expression takes anything for a scheme.
        let sure = first || slashes > 0 && (scheme.len() > 1 || before.is_some());
        let reading = if sure { most } else { Reading::Possible };
        let place = Place { first, blanks: Blanks::behind(before), special, reading };
        let rest = &behind[slashes.min(if special { slashes } else { 2 })..];
        // In a text, a scheme with nothing after it is only mentioned.
        let bare = rest.starts_with(['?', '#']) || first && rest.trim().is_empty();
        if !special && (rest.starts_with(['/', '\\']) || bare) {
            nowhere(scheme, rest, seen)?;
        }
        some |= authority(rest, place, seen)?;
        // What follows the host of a resolver is the name that it is asked for.
        if scheme.eq_ignore_ascii_case("dns")
            && let Some((_, path)) = rest.split_once('/')
        {
            nowhere(scheme, path, seen)?;
        }
    }
    Ok(some | relative(text, begin, most, seen)?)
}

/// The character up to which a text in brackets or quotes goes.
const fn closing(opening: char) -> Option<char> {
    Some(match opening {
        '(' => ')',
        '[' => ']',
        '{' => '}',
        '<' => '>',
        '"' | '\'' | '`' | '|' => opening,
        _ => return None,
    })
}

/// Judges a URL without a host, as some clients have it.
fn nowhere(scheme: &str, path: &str, seen: &mut Seen) -> Result<(), String> {
    if one_of(&AT_HOME, scheme) {
        return Err(format!("a {} URL without a host, which means this machine", shown(scheme)));
    }
    // `dns:///host` and the like of gRPC.
    let path = path.trim_start_matches(['/', '\\']);
    let part = &path[..path.find(|c| is_odd(c) || matches!(c, '/' | '\\' | '?' | '#')).unwrap_or(path.len())];
    seen.worked(part.len())?;
    part.split(',').map(behind_user).try_for_each(|p| host(p, Reading::Possible, seen))
}

/// Judges addresses that leave their scheme to the page that they are in: `//host/path`.
fn relative(text: &str, begin: usize, most: Reading, seen: &mut Seen) -> Result<bool, String> {
    let bytes = text.as_bytes();
    let mut some = false;
    let mut next = 0;
    for at in memchr::memchr2_iter(b'/', b'\\', bytes) {
        if at < next {
            continue;
        }
        let run = bytes[at..].iter().take_while(|b| is_slash(**b)).count();
        next = at + run;
        if run < 2 || next == bytes.len() {
            continue;
        }
        let before = text[..at].chars().next_back();
        if at > begin && before.is_some_and(|c| !c.is_whitespace() && !"\"'`(=,<>[{|;\u{feff}".contains(c)) {
            continue;
        }
        // `\\?\UNC\host\share`, as Windows has what is not to be looked at.
        if let Some(rest) = device(&text[next..]) {
            some |= authority(rest, Place { first: false, ..Place::WHOLE }, seen)?;
        }
        let path = memchr::memchr(b'/', &bytes[next..]).map_or(text.len(), |n| next + n);
        let wide = &text[next..path];
        let head = wide.split(['?', '#', '\\', ':']).next().unwrap_or_default();
        let named = !head.contains(char::is_whitespace) && (head.contains('.') || head.contains(DOTS));
        let alone = at <= begin && (named || wide.contains('@') || !text.trim().contains(char::is_whitespace));
        let reading = if alone { most } else { Reading::Possible };
        let blanks = Blanks::behind(before.filter(|c| !c.is_whitespace()));
        some |= authority(&text[next..], Place { first: at <= begin, blanks, special: true, reading }, seen)? && alone;
    }
    Ok(some)
}

/// What is after the name of the device that is the network.
fn device(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(['?', '.'])?.trim_start_matches(['/', '\\']);
    let (_, rest) = rest.split_at_checked(3).filter(|(name, _)| name.eq_ignore_ascii_case("unc"))?;
    let host = rest.trim_start_matches(['/', '\\']);
    (host.len() < rest.len()).then_some(host)
}

fn behind_user(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, host)| host)
}

/// Judges the hosts of what is after the slashes of a URL. Whether there are any.
///
/// # Errors
/// Why one is denied.
pub fn authority(text: &str, place: Place, seen: &mut Seen) -> Result<bool, String> {
    let wide = &text[..memchr::memchr(b'/', text.as_bytes()).unwrap_or(text.len())];
    seen.url(wide.len())?;
    let end = wide.find(|c| is_odd(c) || matches!(c, '?' | '#' | '\\')).unwrap_or(wide.len());
    let (tight, behind) = wide.split_at(end);
    if !tight.is_empty() {
        if place.special { one(tight, place, seen)? } else { several(tight, place, seen)? }
    }
    bracketed(wide, place, seen)?;
    if behind.is_empty() {
        return Ok(!tight.is_empty());
    }
    beyond(behind, place, seen)?;
    if place.first && place.reading == Reading::Certain {
        given_whole(wide, tight, seen)?;
    }
    Ok(!tight.is_empty())
}

/// Judges what is in brackets, where Python looks for a host first, whatever is before them.
fn bracketed(wide: &str, place: Place, seen: &mut Seen) -> Result<(), String> {
    for (at, _) in wide.match_indices('[') {
        let (before, inside) = (&wide[..at], &wide[at + 1..]);
        let inside = inside.split(['[', ']', '%', '/']).next().unwrap_or_default();
        let folded = if inside.is_ascii() { Cow::Borrowed(inside) } else { fold(inside).into() };
        let inside = folded.as_ref();
        if inside.parse::<Ipv6Addr>().is_ok() {
            host(&format!("[{inside}]"), Reading::Possible, seen)?;
            if place.first && place.reading == Reading::Certain && !before.is_empty() && !before.ends_with('@') {
                return Err(unclear(before));
            }
        } else if inside.contains('.') {
            host(inside, Reading::Possible, seen)?;
        }
    }
    Ok(())
}

/// Judges a user, host and port.
fn one(tight: &str, place: Place, seen: &mut Seen) -> Result<(), String> {
    let name = behind_user(tight);
    host(name, place.reading, seen)?;
    // Parsers that stop at the first @ instead of the last, and such that end a host with what others take into it.
    if !tight.contains(NO_HOST) && tight.matches('@').count() < 2 {
        return Ok(());
    }
    for part in tight.split('@').chain(tight.split(|c: char| c == '@' || NO_HOST.contains(&c))) {
        host(part, Reading::Possible, seen)?;
    }
    let Some(at) = name.find(NO_HOST).filter(|_| place.reading == Reading::Certain) else { return Ok(()) };
    let more = name[at..].trim_start_matches(|c: char| NO_HOST.contains(&c));
    // The next URL of a list; in a document, the next link.
    let next = more.split_once(':').is_some_and(|(scheme, _)| is_special(scheme));
    let link = !place.first && name[at..].contains(['(', '[']);
    let closed = !place.first && matches!(place.blanks, Blanks::Before(close) if name[at..].starts_with(close));
    if next || link || closed || !more.contains(char::is_alphanumeric) {
        return Ok(());
    }
    Err(unclear(name))
}

/// Judges the hosts of a URL whose scheme may have several.
fn several(tight: &str, place: Place, seen: &mut Seen) -> Result<(), String> {
    if !tight.contains(',') {
        return one(tight, place, seen);
    }
    let hosts = behind_user(tight);
    for part in tight[..tight.len() - hosts.len()].split([',', '@']) {
        host(part, Reading::Possible, seen)?;
    }
    for part in hosts.split(',').filter(|p| !p.is_empty()) {
        one(part, place, seen)?;
    }
    Ok(())
}

/// Judges what follows an `@` after the place where a host seems to end.
fn beyond(behind: &str, place: Place, seen: &mut Seen) -> Result<(), String> {
    let blank = behind.find(char::is_whitespace);
    let reach = match (blank, place.blanks) {
        (Some(blank), Blanks::None) if !place.first => &behind[..blank],
        (Some(blank), Blanks::Before(close)) if !place.first => {
            behind[blank..].find(close).map_or(behind, |n| &behind[..blank + n])
        }
        _ => behind,
    };
    for after in reach.split('@').skip(1) {
        let after = after.trim_start_matches(is_odd);
        let piece = &after[..after.find(|c| is_odd(c) || matches!(c, '?' | '#' | '\\')).unwrap_or(after.len())];
        host(piece, Reading::Possible, seen)?;
    }
    if !behind.starts_with('\\') {
        return Ok(());
    }
    // A browser ends the host here; others continue.
    let reach = &reach[..reach.find(|c| is_odd(c) || matches!(c, '?' | '#')).unwrap_or(reach.len())];
    if reach.contains('@') && place.reading == Reading::Certain {
        return Err(unclear(reach));
    }
    for part in reach.split('\\').filter(|p| p.contains('.')) {
        host(part, Reading::Possible, seen)?;
    }
    Ok(())
}

/// Judges a text that a parser is given as it is, blanks and all.
fn given_whole(wide: &str, tight: &str, seen: &mut Seen) -> Result<(), String> {
    for ends in [&['?', '#', '\\'][..], &['?', '#'][..]] {
        let all = &wide[..wide.find(ends).unwrap_or(wide.len())];
        let Some(more) = all.get(tight.len()..).map(str::trim_end).filter(|m| !m.is_empty()) else { continue };
        let name = behind_user(all).trim_end();
        if more.contains('@') {
            if !name.contains(|c: char| c.is_whitespace() || c.is_control()) {
                host(name, Reading::Certain, seen)?;
                if !tight.is_empty() {
                    return Err(unclear(name));
                }
            }
            let name = name.split(is_odd).next().unwrap_or_default();
            if name.contains('.') {
                host(name, Reading::Certain, seen)?;
            }
            continue;
        }
        let more = more.split(':').next().unwrap_or_default();
        // No one writes this, and parsers continue after it or end there.
        let control = more.starts_with(|c: char| c.is_control() && !c.is_whitespace());
        let more = if control { more.split(char::is_whitespace).next().unwrap_or_default() } else { more };
        if !more.starts_with('\\') && !more.contains(char::is_whitespace) && more.contains(char::is_alphanumeric) {
            return Err(unclear(name));
        }
    }
    Ok(())
}

fn unclear(text: &str) -> String {
    format!("different parsers read a different host from {}", shown(behind_user(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The work that a text takes whose URLs each reach to its end, because only backslashes follow them.
    fn work(n: usize, before: usize) -> Result<usize, String> {
        let mut seen = Seen { work: before, ..Seen::default() };
        urls(&"a:\\\\8.8.8.8\\".repeat(n), Reading::Certain, &mut seen).map(|_| seen.work)
    }

    #[test]
    fn bytes_that_are_read_again_are_counted_and_limited() {
        let (some, twice) = (work(100, 0).unwrap(), work(200, 0).unwrap());
        assert!(twice > some * 3 && twice > 100 * 200 * 12, "{some}, {twice}");
        assert_eq!(work(200, MAX_WORK - twice), Ok(MAX_WORK));
        let denied = work(200, MAX_WORK - twice + 1);
        assert!(denied.as_ref().is_err_and(|e| e.contains("32 MiB")), "{denied:?}");
    }
}
