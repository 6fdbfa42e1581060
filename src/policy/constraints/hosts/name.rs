//! One host as it is written, and what can be said of it without a lookup.

use super::is_public;
use crate::policy::names::fold;
use std::{
    borrow::Cow,
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};
use url::Host;

/// Names that are not public wherever they are resolved: RFC 6761, RFC 6762, RFC 8375, RFC 7686, RFC 9476 and what
/// private networks use.
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
/// Longest host in bytes; a longer one is denied where there must be one.
pub const MAX_HOST: usize = 2048;

/// What is after a host in a text. Parsers differ about it in one.
pub const NO_HOST: [char; 10] = ['!', '(', ')', '*', ',', ';', '\'', '{', '}', '|'];
/// What some parsers take for dots.
pub const DOTS: [char; 3] = ['。', '．', '｡'];

/// How strictly an unclear host is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// It is a host: it must be public, and if it is a name, resolve.
    Certain,
    /// A careless parser could take it for one: it must not be a private address or name.
    Possible,
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Names that are still to be resolved.
    pub names: BTreeSet<String>,
    /// URLs that were looked at.
    pub urls: usize,
    /// Bytes that were looked at more than once.
    pub work: usize,
    /// Numbers that were next to each other, which may be the bytes of an address.
    pub octets: Vec<u8>,
}

/// Judges a host, which may have a port after it.
pub fn host(text: &str, reading: Reading, seen: &mut Seen) -> Result<(), String> {
    let unclear = |what: &str| match reading {
        Reading::Certain => Err(format!("the host {} {what}", shown(text))),
        Reading::Possible => Ok(()),
    };
    if text.len() > MAX_HOST && reading == Reading::Certain {
        return unclear("is too long");
    }
    let (name, bracketed) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, _)) => (inside, true),
        None => (text.split(':').next().unwrap_or_default(), false),
    };
    let name = name.split(NO_HOST).next().unwrap_or_default();
    let decoded = percent_encoding::percent_decode_str(name).decode_utf8();
    let Ok(decoded) = decoded else { return unclear("is not text") };
    if bracketed {
        // Zone ids (RFC 6874) are of this machine's interfaces, and some parsers cut them off.
        let address = decoded.split('%').next().unwrap_or_default();
        let folded = if address.is_ascii() { Cow::Borrowed(address) } else { fold(address).into() };
        let Ok(address) = folded.parse::<Ipv6Addr>() else { return unclear("is not an IPv6 address") };
        if decoded.contains('%') {
            return Err(format!("the host {} has a zone, which only this machine can resolve", shown(text)));
        }
        return judge(IpAddr::V6(address), text);
    }
    let is_separator = |c: char| matches!(c, '/' | '\\' | '@' | '?' | '#' | ':' | '\0'..=' ' | '\u{7f}');
    if matches!(decoded, Cow::Owned(_)) && decoded.contains(is_separator) {
        if reading == Reading::Certain {
            return unclear("hides a separator in percent-encoding");
        }
        for piece in decoded.split(is_separator).filter(|p| p.contains('.')) {
            for address in addresses(piece.trim_end_matches('.')) {
                judge(IpAddr::V4(address), text)?;
            }
        }
    }
    let decoded = decoded.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    let bare = decoded.trim_end_matches('.').trim_end_matches(DOTS).trim_end_matches('.');
    if bare.is_empty() {
        return unclear("is empty");
    }
    // In a text that nothing calls a host, a small number counts something.
    if reading == Reading::Possible && bare != "0" && bare.parse::<u64>().is_ok_and(|n| n < 1 << 24) {
        return Ok(());
    }
    for address in addresses(bare) {
        judge(IpAddr::V4(address), text)?;
    }
    if reading == Reading::Possible {
        return possible(bare, text, seen);
    }
    if name.contains('%') {
        return unclear("is percent-encoded, which not all parsers decode");
    }
    match Host::parse(bare) {
        Err(_) => unclear("cannot be read"),
        Ok(Host::Ipv4(address)) => {
            judge(IpAddr::V4(address), text)?;
            // After a dot, browsers read short and odd forms as numbers, and C libraries as names.
            let plain = fold(bare).replace(DOTS, ".") == address.to_string();
            if bare.len() < decoded.len() && !plain { unclear("is both a number and a name") } else { Ok(()) }
        }
        Ok(Host::Ipv6(address)) => judge(IpAddr::V6(address), text),
        Ok(Host::Domain(domain)) => named(&domain, text, reading, seen),
    }
}

/// Judges what a careless parser could take for a host, in time that grows with its length and no faster.
fn possible(bare: &str, text: &str, seen: &mut Seen) -> Result<(), String> {
    if bare.is_ascii() && !bare.contains("xn--") {
        return named(bare, text, Reading::Possible, seen);
    }
    if bare.len() <= MAX_HOST {
        match Host::parse(bare) {
            Ok(Host::Ipv4(address)) => judge(IpAddr::V4(address), text)?,
            Ok(Host::Domain(domain)) => named(&domain, text, Reading::Possible, seen)?,
            _ => {}
        }
    }
    let plain = fold(bare).replace(DOTS, ".");
    named(plain.trim_end_matches('.'), text, Reading::Possible, seen)
}

fn named(domain: &str, text: &str, reading: Reading, seen: &mut Seen) -> Result<(), String> {
    let domain = domain.trim_end_matches('.').to_ascii_lowercase();
    for address in addresses(&domain) {
        judge(IpAddr::V4(address), text)?;
    }
    // In a text that nothing calls a host, a word is a word.
    let single = !domain.contains('.');
    if is_private(&domain) && (!single || reading == Reading::Certain || domain.ends_with("localhost")) {
        return Err(format!("the host {} is a name of this machine or of a private network", shown(text)));
    }
    if reading == Reading::Certain {
        if single {
            return Err(format!(
                "the host {} is a name without a domain, which only a private network resolves",
                shown(text)
            ));
        }
        // One more than are resolved says as much as a million.
        if seen.names.len() <= super::MAX_NAMES {
            seen.names.insert(domain);
        }
    }
    Ok(())
}

/// Whether a name in lower case is one of a private network.
pub fn is_private(domain: &str) -> bool {
    PRIVATE_SUFFIXES.iter().any(|s| domain.strip_suffix(s).is_some_and(|r| r.is_empty() || r.ends_with('.')))
}

/// Denies an address that is not public.
pub fn judge(address: IpAddr, text: &str) -> Result<(), String> {
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
pub fn addresses(host: &str) -> impl Iterator<Item = Ipv4Addr> + use<> {
    let hex = |b: u8| b.is_ascii_hexdigit() || b == b'x' || b == b'X';
    let four = host.bytes().filter(|b| *b == b'.').count() < 4;
    let may = four && host.split('.').all(|p| !p.is_empty() && p.bytes().all(hex));
    let read = |decimal_zeros: bool| may.then(|| address(host, decimal_zeros)).flatten();
    [read(false), read(true)].into_iter().flatten()
}

fn address(host: &str, decimal_zeros: bool) -> Option<Ipv4Addr> {
    let (first, last) = host.rsplit_once('.').map_or((None, host), |(first, last)| (Some(first), last));
    let (mut address, mut bits) = (0_u64, 32);
    for part in first.into_iter().flat_map(|f| f.split('.')) {
        address = address << 8 | number(part, decimal_zeros)? & 0xff;
        bits -= 8;
    }
    address = address << bits | number(last, decimal_zeros)? & ((1 << bits) - 1);
    Some(Ipv4Addr::from(address as u32))
}

fn number(part: &str, decimal_zeros: bool) -> Option<u64> {
    if let Some(hex) = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X")) {
        return if hex.is_empty() { Some(0) } else { u64::from_str_radix(hex, 16).ok() };
    }
    if !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    if part.len() > 1 && part.starts_with('0') && !decimal_zeros {
        return u64::from_str_radix(part, 8).ok();
    }
    part.parse().ok()
}

/// A host as a message may quote it.
pub fn shown(text: &str) -> String {
    crate::text::fit(&crate::text::visible(text), 100).into_owned()
}
