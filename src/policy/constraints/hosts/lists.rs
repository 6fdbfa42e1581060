//! Hosts outside of URLs: alone, in a list, in a connection string, beside a name in a text.

use super::{
    keys::{self, Named},
    name::{DOTS, MAX_HOST, Reading, Seen, host, is_private, shown},
    urls::{self, Place},
};
use crate::policy::names::fold;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Schemes whose URIs have no host.
const HOSTLESS: [&str; 8] = ["data", "about", "blob", "mailto", "urn", "tel", "javascript", "cid"];

const fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>')
}

const fn is_separator(c: char) -> bool {
    matches!(c, ',' | ';' | '|' | '\n' | '\r' | '\t')
}

/// Judges a text as a host or a list of hosts, separated by commas, semicolons, bars or blanks. `has_url`: there are
/// URLs, which are judged already. Whether there was any.
///
/// # Errors
/// Why one is denied.
pub fn list(text: &str, named: Named, has_url: bool, seen: &mut Seen) -> Result<bool, String> {
    if text.is_empty() {
        return Ok(false);
    }
    let blank = text.contains(char::is_whitespace);
    if !blank && !text.contains(is_separator) {
        return if has_url { Ok(false) } else { parenthesized(text, named, seen) };
    }
    let pieces = || text.split(|c: char| c.is_whitespace() || is_separator(c)).filter(|p| !p.is_empty());
    let certain = matches!(named, Named::Host | Named::Hosts);
    let named = match named {
        // In a text, only what is nothing but hosts is a list of them.
        Named::No if blank && !pieces().all(is_like_a_host) => return Ok(false),
        Named::Host if blank && text.split(is_separator).any(|i| i.trim().contains(char::is_whitespace)) => {
            Named::About
        }
        named => named,
    };
    let mut some = false;
    if blank && named != Named::No && !has_url && text.contains('@') {
        // An address of mail with a name is not a URL.
        let first = text.split(char::is_whitespace).next().unwrap_or_default();
        let url = certain && (first.contains(['.', '[', '@', ':']) || first.contains(DOTS));
        let reading = if url { Reading::Certain } else { Reading::Possible };
        urls::authority(text, Place { reading, ..Place::WHOLE }, seen)?;
        if certain && !url {
            behind_any_user(text, seen)?;
        }
    }
    // What is before a path may be one host for all that follows it.
    if blank && named == Named::About {
        let head = text.split(['/', '?', '#', '\\']).next().unwrap_or_default();
        if head.len() < text.len() && (head.contains('.') || head.contains(DOTS)) && !head.contains(char::is_whitespace)
        {
            some |= bare(head, Named::Host, seen)?;
        }
    }
    for piece in pieces().filter(|p| !p.contains("://")) {
        let piece = if piece.contains(']') { piece } else { piece.trim_start_matches('[') };
        let piece = if piece.contains('[') { piece } else { piece.trim_end_matches(']') };
        // A value that has a name of its own is judged by that as well.
        if let Some((name, value)) = piece.rsplit_once('=') {
            if named != Named::No {
                bare(value, Named::About, seen)?;
            }
            // A host may have a path and a query with that in it, or a user.
            if !name.contains(['/', '?', '#', '\\']) && !piece.contains('@') {
                continue;
            }
        }
        // A port after a comma, as SQL Server has it.
        if piece.parse::<u16>().is_ok_and(|port| port > 0) {
            continue;
        }
        let dotted = piece.contains(['.', ':', '%']) || !piece.is_ascii() && fold(piece).contains(['.', DOTS[0]]);
        let named = if named == Named::Host && !dotted { Named::About } else { named };
        some |= parenthesized(piece, named, seen)?;
    }
    Ok(some)
}

/// Judges the host that a parser finds to which all that is before the last `@` is the user's name, blanks and all.
fn behind_any_user(text: &str, seen: &mut Seen) -> Result<(), String> {
    let (authority, behind) = text.split_at(text.find(['/', '?', '#']).unwrap_or(text.len()));
    let Some((_, name)) = authority.rsplit_once('@') else { return Ok(()) };
    // In prose, a word that begins with `@` is a person; what is in angle brackets is a mail address.
    let word = behind.is_empty() && !name.contains(['.', ':']) && !name.contains(DOTS);
    if word || name.ends_with('>') || name.contains(char::is_whitespace) {
        return Ok(());
    }
    urls::authority(name, Place::WHOLE, seen).map(|_| ())
}

/// Judges `tcp(host:port)` and the like, and what has no brackets.
fn parenthesized(text: &str, named: Named, seen: &mut Seen) -> Result<bool, String> {
    if let Some((before, inside)) = text.split_once('(').filter(|(before, _)| !before.is_empty()) {
        if before.rsplit(['@', ':', '/']).next().is_some_and(|net| net.eq_ignore_ascii_case("unix")) {
            return Err("a socket of this machine".to_owned());
        }
        for part in inside.split(['(', ')']).filter(|p| !p.is_empty()) {
            bare(part, if named == Named::No { Named::No } else { Named::About }, seen)?;
        }
    }
    bare(text, named, seen)
}

/// Whether a word is an address, or has dots as names of hosts have.
fn is_like_a_host(word: &str) -> bool {
    let word = word.trim_matches(|c| is_quote(c) && !matches!(c, '[' | ']')).trim_matches(['[', ']']);
    let name = word.split(['/', ':']).next().unwrap_or_default();
    word.contains("://")
        || name.eq_ignore_ascii_case("localhost")
        || name.contains('.') && !name.ends_with('.')
        || name.contains(DOTS)
        || word.split('%').next().is_some_and(|w| w.trim_end_matches(']').parse::<Ipv6Addr>().is_ok())
        || word.contains("]:")
        || word.parse::<u16>().is_ok()
}

/// Judges a text without white space that may be a host, with a port, a user or a path.
///
/// # Errors
/// Why it is denied.
pub fn bare(text: &str, named: Named, seen: &mut Seen) -> Result<bool, String> {
    seen.worked(text.len())?;
    let certain = matches!(named, Named::Host | Named::Hosts);
    let text = text.trim_start_matches(['(', '<', '"', '\'', '`', '{']);
    let text = text.trim_end_matches([')', '>', '"', '\'', '`', '}', ',', ';']);
    if text.starts_with(['/', '.', '~']) && !text.starts_with("//") {
        if named == Named::Hosts && text.starts_with('/') {
            return Err("a socket of this machine where a host is expected".to_owned());
        }
        // Some resolvers only look at the end of a name.
        let name = text.trim_start_matches('.');
        if certain && name.len() < text.len() && !name.starts_with(['/', '\\']) {
            host(name.split(['/', '?', '#', '\\']).next().unwrap_or_default(), Reading::Possible, seen)?;
        }
        return Ok(false);
    }
    let colons = text.bytes().filter(|b| *b == b':').count();
    let address = text.split(['/', '%', ']']).next().unwrap_or_default().trim_start_matches('[');
    if colons > 1 && !text.contains('@') && address.parse::<Ipv6Addr>().is_ok() {
        return host(&format!("[{address}]"), Reading::Certain, seen).map(|()| true);
    }
    let part = text.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    if let Some((scheme, behind)) = part.split_once(':').filter(|(s, b)| !s.starts_with('[') && !is_port(b)) {
        // A URI without a host, or what a careless parser could make one of.
        let hostless = HOSTLESS.iter().any(|s| scheme.eq_ignore_ascii_case(s));
        if certain && !hostless {
            host(scheme, Reading::Possible, seen)?;
            host(behind_user(behind), Reading::Possible, seen)?;
        }
        for piece in part.split([':', '@', '=']).filter(|p| is_address_or_localhost(p)) {
            host(piece, Reading::Possible, seen)?;
        }
        if scheme.eq_ignore_ascii_case("jdbc") && !part.contains('@') && !text.contains("//") && !text.contains('=') {
            return Err(format!("{} has no host, which means this machine", shown(part)));
        }
        if !part.contains('@') || hostless {
            if certain && !hostless && text.contains('@') {
                urls::authority(text, Place { reading: Reading::Possible, ..Place::WHOLE }, seen)?;
                behind_any_user(text, seen)?;
            }
            return Ok(false);
        }
    }
    for after in text.split('@').skip(1) {
        let after = after.trim_start_matches('/').split(['/', ':', '?', '#', '\\']).next().unwrap_or_default();
        if is_address_or_localhost(after) {
            host(after, Reading::Possible, seen)?;
        }
    }
    if certain {
        return urls::authority(text, Place::WHOLE, seen);
    }
    let part = behind_user(part);
    // Without the name of a host beside it, a number is a number, and 1.2.3 a version.
    let name = part.split(':').next().unwrap_or_default();
    let version = name.split('.').count() != 4 && name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let word = !name.contains(['.', '[', '%']) && !name.contains(DOTS) && !ends_with_localhost(name);
    if part.is_empty() || named == Named::No && (version || word) {
        return Ok(false);
    }
    host(part, Reading::Possible, seen)?;
    Ok(false)
}

fn ends_with_localhost(name: &str) -> bool {
    let tail = name.len().checked_sub(9).and_then(|n| name.get(n..));
    tail.is_some_and(|t| t.eq_ignore_ascii_case("localhost")) || !name.is_ascii()
}

fn behind_user(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, host)| host)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

fn is_address_or_localhost(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok() || ends_with_localhost(text) || text.split('.').count() == 4
}

/// Words that name the host in a connection string, and nothing else there.
const CONNECTS: [&str; 9] =
    ["server", "servername", "address", "addr", "source", "partner", "hostname", "endpoint", "hostaddr"];
/// What is before a host in one of SQL Server, and the type of a text in a file of Remote Desktop.
const TRANSPORTS: [&str; 6] = ["tcp:", "np:", "lpc:", "admin:", "udp:", "s:"];

/// Judges what is after a name of a host and `=` or `:` in a text: connection strings, parameters, settings.
///
/// # Errors
/// Why one is denied.
pub fn pairs(text: &str, seen: &mut Seen) -> Result<(), String> {
    let bytes = text.as_bytes();
    let mut connection = None;
    for at in memchr::memchr2_iter(b'=', b':', bytes) {
        let behind = text[at + 1..].trim_start_matches([' ', '\t']);
        if behind.is_empty() || bytes[at] == b':' && behind.starts_with(['/', '\\']) {
            continue;
        }
        let before = text[..at].trim_end_matches([' ', '\t', '"', '\'']);
        let from = before.bytes().rposition(|b| !(b.is_ascii_alphanumeric() || b"_-.".contains(&b)));
        let name = &before[from.map_or(0, |n| n + 1)..];
        seen.worked(name.len())?;
        if name.len() < 2 {
            continue;
        }
        if name.eq_ignore_ascii_case("UseDevelopmentStorage") && behind.starts_with(['t', 'T', '1']) {
            return Err("storage on this machine".to_owned());
        }
        let behind = behind.trim_start_matches(|c| is_quote(c) && !matches!(c, '[' | '('));
        let last = name.rsplit(['_', '-', '.']).next().unwrap_or_default();
        if last.eq_ignore_ascii_case("socket") && bytes[at] == b'=' && behind.starts_with('/') {
            return Err(format!("{} means this machine", shown(name)));
        }
        let connects = CONNECTS.iter().any(|word| last.eq_ignore_ascii_case(word));
        let named = keys::of(name);
        if !connects && matches!(named, Named::No | Named::About) {
            continue;
        }
        let value = &behind[..behind.find(ends_value).unwrap_or(behind.len())];
        seen.worked(value.len())?;
        if value.len() > MAX_HOST {
            return Err(format!("{} has more than {MAX_HOST} bytes where a host is expected", shown(name)));
        }
        let sure = bytes[at] == b'='
            && (connects || named == Named::Hosts)
            && *connection.get_or_insert_with(|| is_connection(text));
        if sure && (value.starts_with(['/', '.']) || value.to_ascii_lowercase().starts_with("(local")) {
            return Err(format!("{} names this machine", shown(name)));
        }
        for part in value.split(',') {
            beside(part, bytes[at] == b':', sure, seen)?;
        }
    }
    Ok(())
}

const fn ends_value(c: char) -> bool {
    matches!(c, ';' | '&' | ' ' | '\t' | '\n' | '\r' | '"' | '\'' | '`' | ')' | '}' | '|' | '=' | '<' | '>')
}

/// Judges a host that has a name before it.
fn beside(part: &str, setting: bool, sure: bool, seen: &mut Seen) -> Result<(), String> {
    let transport = TRANSPORTS.iter().find(|t| part.get(..t.len()).is_some_and(|p| p.eq_ignore_ascii_case(t)));
    let part = transport.map_or(part, |t| &part[t.len()..]).trim_start_matches(['\\', '/']);
    let address = part.split(['%', ']']).next().unwrap_or_default().trim_start_matches('[');
    if address.contains(':') && address.parse::<Ipv6Addr>().is_ok() {
        return host(&format!("[{address}]"), Reading::Certain, seen);
    }
    let part = behind_user(part.split(['/', '\\', '?', '#', ']']).next().unwrap_or_default());
    let name = part.split(':').next().unwrap_or_default();
    if name.is_empty() || name.parse::<u16>().is_ok_and(|port| port > 0) {
        return Ok(());
    }
    // In a document, 10.2 after a colon is a version.
    if setting && !is_address_or_localhost(name) && !is_private(&name.to_ascii_lowercase()) {
        return Ok(());
    }
    host(part, if sure { Reading::Certain } else { Reading::Possible }, seen)
}

/// Whether a text as a whole says how to connect: it begins with a name and its value, or with a scheme that no browser
/// has.
fn is_connection(text: &str) -> bool {
    let text = text.trim_start();
    let head = &text[..text.find(['=', '/', '?']).unwrap_or(text.len())];
    let head_len = head.len();
    if text[head_len..].starts_with('=') {
        let name = head.rsplit(':').next().unwrap_or_default();
        return head_len <= 128
            && !name.is_empty()
            && !name.ends_with(' ')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-. ".contains(&b));
    }
    text[head_len..].starts_with("//") && head.ends_with(':') && !urls::is_special(head.trim_end_matches(':'))
}
