//! Hosts in a piece of the arguments, and what can be said of them without asking anybody.

use super::{
    super::walk::{Around, Leaf},
    is_public,
};
use std::{
    borrow::Cow,
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};
use url::Host;

/// Words in the name of an argument that make its value a host or URL.
const HOST: [&str; 34] = [
    "url",
    "urls",
    "uri",
    "uris",
    "host",
    "hosts",
    "hostname",
    "hostnames",
    "domain",
    "domains",
    "endpoint",
    "endpoints",
    "server",
    "servers",
    "address",
    "addresses",
    "addr",
    "ip",
    "ips",
    "origin",
    "proxy",
    "website",
    "site",
    "href",
    "link",
    "links",
    "webhook",
    "callback",
    "upstream",
    "remote",
    "dns",
    "fqdn",
    "target",
    "baseurl",
];
/// Last words of a name that is about a host and has none as its value.
const ABOUT: [&str; 14] = [
    "type", "id", "ids", "name", "count", "limit", "port", "ports", "format", "text", "title", "path", "depth", "mode",
];
/// Names that are not public wherever they are resolved: RFC 6761, RFC 6762, RFC 8375, RFC 7686, RFC 9476 and what private
/// networks use.
const PRIVATE_SUFFIXES: [&str; 16] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "test",
    "invalid",
    "onion",
    "alt",
    "cluster.local",
    "ip6-localhost",
];
/// Schemes that browsers give a host whatever number of slashes there is.
const SPECIAL: [&str; 6] = ["http", "https", "ws", "wss", "ftp", "ftps"];
/// Schemes that name this machine.
const LOCAL: [&str; 5] = ["file", "unix", "npipe", "vsock", "abstract"];
/// Bytes of a host.
const MAX_HOST: usize = 2048;

/// URLs and hosts of one call that are looked at.
const MAX_URLS: usize = 20_000;
/// Bytes behind the slashes of a URL among which its host is looked for.
const WINDOW: usize = 1024;
/// Schemes whose URIs have no host.
const HOSTLESS: [&str; 8] = ["data", "about", "blob", "mailto", "urn", "tel", "javascript", "cid"];

/// What stands behind a host in a text, and is in none.
const NO_HOST: [char; 10] = ['!', '(', ')', '*', ',', ';', '\'', '{', '}', '|'];

/// What was found so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Names to resolve.
    pub names: BTreeSet<String>,
    urls: usize,
}

/// How strictly an unclear host is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// It is one: it must be public, and if it is a name, resolve.
    Certain,
    /// A careless parser could take it for one: it must not be a private address or name.
    Possible,
}

/// Judges the hosts in a piece; names that have to be resolved go to `names`. Whether there was any.
///
/// # Errors
/// Why a host is denied.
pub fn hosts(leaf: Leaf<'_>, around: &Around<'_>, seen: &mut Seen) -> Result<bool, String> {
    let (text, certain) = match leaf {
        Leaf::Key(text) => (text, false),
        Leaf::Text(text) => (text, is_host_name(around)),
        Leaf::Number(text) => {
            // Small numbers count something.
            let counts = !text.contains('.') && text != "0" && text.parse::<u64>().is_ok_and(|n| n < 1 << 24);
            if is_host_name(around) && !counts {
                return host(text, Reading::Possible, seen).map(|()| true);
            }
            return Ok(false);
        }
    };
    // Browsers drop these from URLs before anything else.
    let text = if text.contains(['\t', '\n', '\r']) {
        let joined: String = text.chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
        // Of a text of several lines every line is looked at as it stands, too.
        whole(text, false, seen)?;
        Cow::Owned(joined)
    } else {
        Cow::Borrowed(text)
    };
    whole(&text, certain, seen)
}

fn whole(text: &str, certain: bool, seen: &mut Seen) -> Result<bool, String> {
    let mut some = urls(text, seen)?;
    let trimmed = text.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    if !some && !trimmed.is_empty() && !trimmed.contains(char::is_whitespace) && trimmed.len() <= MAX_HOST {
        some = bare(trimmed, certain, seen)?;
    } else if certain && !some && !trimmed.is_empty() {
        for part in trimmed.split(|c: char| c.is_whitespace() || c == ',' || c == ';').filter(|p| p.len() <= MAX_HOST) {
            some |= !part.is_empty() && bare(part, false, seen)?;
        }
    }
    Ok(some)
}

/// Judges all URLs in a text.
fn urls(text: &str, seen: &mut Seen) -> Result<bool, String> {
    let bytes = text.as_bytes();
    let mut some = false;
    for (n, colon) in memchr::memchr_iter(b':', bytes).enumerate() {
        // Only what the whole text begins with can be a URL without slashes.
        if n > 0 && !matches!(bytes.get(colon + 1), Some(b'/' | b'\\')) {
            continue;
        }
        let start = bytes[..colon]
            .iter()
            .rposition(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(b)))
            .map_or(0, |n| n + 1);
        let scheme = text[start..colon].trim_start_matches(|c: char| !c.is_ascii_alphabetic()).to_ascii_lowercase();
        if scheme.len() < 2 || scheme.len() > 64 {
            continue;
        }
        let behind = &text[colon + 1..];
        let slashes = behind.bytes().take_while(|b| matches!(b, b'/' | b'\\')).count();
        let special = scheme.split('+').any(|s| SPECIAL.contains(&s));
        let local = scheme.split('+').any(|s| LOCAL.contains(&s));
        if local && (slashes > 0 || start == 0 && colon + 1 < bytes.len() && !behind.starts_with(' ')) {
            return Err(format!("a {scheme}: URL, which names this machine"));
        }
        if slashes >= 2 || (special && (slashes > 0 || start == 0) && !behind.starts_with(char::is_whitespace)) {
            some |= authority(&behind[slashes.min(if special { slashes } else { 2 })..], seen)?;
        }
    }
    if let Some(rest) = text.trim_start().strip_prefix("//").or_else(|| text.trim_start().strip_prefix("\\\\")) {
        some |= authority(rest, seen)?;
    }
    Ok(some)
}

/// Judges the host of what stands behind the slashes of a URL.
fn authority(text: &str, seen: &mut Seen) -> Result<bool, String> {
    seen.urls += 1;
    if seen.urls > MAX_URLS {
        return Err(format!("more than {MAX_URLS} URLs in one call"));
    }
    let text = &text[..text.floor_char_boundary(WINDOW)];
    let end = |stop: &[char]| {
        let stop = |c: char| c.is_whitespace() || stop.contains(&c) || matches!(c, '"' | '<' | '>' | '`' | '^');
        &text[..text.find(stop).unwrap_or(text.len())]
    };
    // WHATWG: a backslash is a slash. RFC 3986: it is not, and what is before an @ is no host.
    let browser = end(&['/', '?', '#', '\\']);
    if browser.is_empty() {
        return Ok(false);
    }
    host(behind_user(browser), Reading::Certain, seen)?;
    let plain = end(&['/', '?', '#']);
    let careless = end(&['/']);
    for text in [plain, careless] {
        if text != browser && text.len() <= MAX_HOST {
            host(behind_user(text), Reading::Possible, seen)?;
        }
    }
    // Parsers that stop at the first @ instead of the last, and such that take what is before a backslash or @ for the host.
    if browser.matches('@').count() > 1 || plain != browser || browser.contains(NO_HOST) {
        for part in plain.split(['@', '\\']).filter(|p| !p.is_empty()) {
            host(part, Reading::Possible, seen)?;
        }
    }
    Ok(true)
}

fn behind_user(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, host)| host)
}

/// Judges a text without white space that may be a host, with a port, a user or a path.
fn bare(text: &str, certain: bool, seen: &mut Seen) -> Result<bool, String> {
    let text = text.trim_start_matches(['(', '<', '"', '\'']).trim_end_matches([')', '>', '"', '\'', ',', ';']);
    if text.starts_with(['/', '.', '~']) && !text.starts_with("//") {
        return Ok(false);
    }
    let colons = text.bytes().filter(|b| *b == b':').count();
    let address = text.split(['/', '%']).next().unwrap_or_default();
    if colons > 1 && address.parse::<Ipv6Addr>().is_ok() {
        return host(&format!("[{address}]"), Reading::Certain, seen).map(|()| true);
    }
    let part = text.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    if let Some((scheme, behind)) = part.split_once(':').filter(|(s, b)| !s.starts_with('[') && !is_port(b)) {
        // A URI without a host, or what a careless parser could make one of.
        if certain && !HOSTLESS.iter().any(|s| scheme.eq_ignore_ascii_case(s)) {
            host(scheme, Reading::Possible, seen)?;
            host(behind_user(behind), Reading::Possible, seen)?;
        }
        if !part.contains('@') || HOSTLESS.iter().any(|s| scheme.eq_ignore_ascii_case(s)) {
            return Ok(false);
        }
    }
    let part = behind_user(part);
    if part.is_empty() {
        return Ok(false);
    }
    if certain {
        host(part, Reading::Certain, seen)?;
        return Ok(true);
    }
    // Without a host's name by it, a number is a number, and 1.2.3 a version.
    let name = part.split(':').next().unwrap_or_default();
    let version = name.split('.').count() != 4 && name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let word = !name.contains(['.', '[', '。', '．', '｡', '%']) && !name.to_ascii_lowercase().ends_with("localhost");
    if version || word {
        return Ok(false);
    }
    host(part, Reading::Possible, seen)?;
    Ok(false)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

/// Judges a host, which may have a port behind it.
fn host(text: &str, reading: Reading, seen: &mut Seen) -> Result<(), String> {
    let unclear = |what: &str| match reading {
        Reading::Certain => Err(format!("the host {} {what}", shown(text))),
        Reading::Possible => Ok(()),
    };
    if text.len() > MAX_HOST {
        return unclear("is too long");
    }
    let (name, bracketed) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, _)) => (inside, true),
        None => (text.split(':').next().unwrap_or_default(), false),
    };
    let name = name.split(NO_HOST).next().unwrap_or_default();
    let decoded = percent_encoding::percent_decode_str(name).decode_utf8();
    let Ok(decoded) = decoded else { return unclear("is no text") };
    if bracketed {
        // Zone ids (RFC 6874) are of this machine's interfaces, and some parsers cut them off.
        let address = decoded.split('%').next().unwrap_or_default();
        let Ok(address) = address.parse::<Ipv6Addr>() else { return unclear("is no IPv6 address") };
        if decoded.contains('%') {
            return Err(format!("the host {} has a zone, which only this machine knows", shown(text)));
        }
        return judge(IpAddr::V6(address), text);
    }
    if decoded.contains(['/', '\\', '@', '?', '#', ':']) && reading == Reading::Certain {
        return unclear("hides a separator in percent-encoding");
    }
    let decoded = decoded.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    let bare = decoded.trim_end_matches(['.', '。', '．', '｡']);
    if bare.is_empty() {
        return unclear("is empty");
    }
    for address in addresses(bare) {
        judge(IpAddr::V4(address), text)?;
    }
    match Host::parse(bare) {
        Err(_) => unclear("cannot be read"),
        Ok(Host::Ipv4(address)) => judge(IpAddr::V4(address), text),
        Ok(Host::Ipv6(address)) => judge(IpAddr::V6(address), text),
        Ok(Host::Domain(domain)) => named(&domain, text, reading, seen),
    }
}

fn named(domain: &str, text: &str, reading: Reading, seen: &mut Seen) -> Result<(), String> {
    let domain = domain.trim_end_matches('.').to_ascii_lowercase();
    for address in addresses(&domain) {
        judge(IpAddr::V4(address), text)?;
    }
    let private =
        PRIVATE_SUFFIXES.iter().any(|s| domain.strip_suffix(s).is_some_and(|r| r.is_empty() || r.ends_with('.')));
    // In a text of which nobody says that it is a host, a word is a word.
    let single = !domain.contains('.');
    let private = private && (!single || reading == Reading::Certain || domain.ends_with("localhost"));
    if private {
        return Err(format!("the host {} is a name of this machine or a private network", shown(text)));
    }
    if reading == Reading::Certain {
        if single {
            return Err(format!(
                "the host {} is a name without a domain, which only a private network knows",
                shown(text)
            ));
        }
        seen.names.insert(domain);
    }
    Ok(())
}

fn judge(address: IpAddr, text: &str) -> Result<(), String> {
    if is_public(address) {
        return Ok(());
    }
    let written = shown(text);
    let plain = address.to_string();
    Err(if written == plain {
        format!("the address {plain} is not public")
    } else {
        format!("the host {written} is {plain}, which is not public")
    })
}

/// The IPv4 addresses that parsers read a host as, beyond the one that browsers do: leading zeros as decimal, and parts
/// that are too big for a byte cut down to one, as old C libraries do.
fn addresses(host: &str) -> Vec<Ipv4Addr> {
    let parts: Vec<&str> = host.split('.').collect();
    if parts.len() > 4
        || !parts.iter().all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_hexdigit() || b == b'x' || b == b'X'))
    {
        return Vec::new();
    }
    let mut found = Vec::new();
    for decimal_zeros in [false, true] {
        let numbers: Option<Vec<u64>> = parts.iter().map(|p| number(p, decimal_zeros)).collect();
        let Some(numbers) = numbers else { continue };
        let Some((last, first)) = numbers.split_last() else { continue };
        let mut address: u64 = 0;
        for n in first {
            address = address << 8 | n & 0xff;
        }
        let bits = 32 - 8 * first.len();
        address = address << bits | last & ((1 << bits) - 1);
        found.push(Ipv4Addr::from(address as u32));
    }
    found
}

fn number(part: &str, decimal_zeros: bool) -> Option<u64> {
    let lower = part.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return if hex.is_empty() { Some(0) } else { u64::from_str_radix(hex, 16).ok() };
    }
    if !lower.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    if lower.len() > 1 && lower.starts_with('0') && !decimal_zeros {
        return u64::from_str_radix(&lower, 8).ok();
    }
    lower.parse().ok()
}

/// Whether the name of an argument says that its value is a host or URL.
fn is_host_name(around: &Around<'_>) -> bool {
    around.class(|a| judged(a).into()) == 1
}

fn judged(around: &Around<'_>) -> bool {
    let Some(key) = around.key().filter(|k| k.len() <= 128) else { return false };
    let words = super::super::words(key);
    let last = words.last().map_or("", String::as_str);
    let named = words.iter().any(|w| HOST.contains(&w.as_str()));
    named && (!ABOUT.contains(&last) || (words.len() == 2 && words[0] == "host" && last == "name"))
}

/// A host as a message may quote it.
pub fn shown(text: &str) -> String {
    crate::text::fit(&crate::text::visible(text), 100).into_owned()
}
