//! Hosts in a piece of the arguments: in a URL, in a list, beside a name, in JSON within a text.

use super::{
    super::walk::{Around, Leaf, walk},
    keys::{self, Named},
    lists,
    name::{Reading, Seen, host, judge, shown},
    urls,
};
use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::ControlFlow,
};

/// How often JSON may be in a text of JSON, and how often a text may be percent-encoded; what is deeper is denied.
pub const MAX_NESTED: usize = 4;

/// Judges the hosts in a piece; names that have to be resolved go to `seen`. Whether there was any.
///
/// # Errors
/// Why a host is denied.
pub fn hosts(leaf: Leaf<'_>, around: &Around<'_>, seen: &mut Seen) -> Result<bool, String> {
    piece(leaf, around, Named::No, 0, seen)
}

fn piece(leaf: Leaf<'_>, around: &Around<'_>, outer: Named, depth: usize, seen: &mut Seen) -> Result<bool, String> {
    let named = || match keys::named(around) {
        Named::No if around.key().is_none() => outer,
        named => named,
    };
    match leaf {
        Leaf::Key(text) => {
            seen.octets.clear();
            whole(text, Named::No, depth, seen)
        }
        Leaf::Text(text) => {
            seen.octets.clear();
            if may_hold_a_host(text) { whole(text, named(), depth, seen) } else { short(text, named(), depth, seen) }
        }
        Leaf::Number(text) => number(text, named(), seen),
    }
}

/// Whether a text has anything that a URL, an address or a name with dots has.
fn may_hold_a_host(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr::memchr3(b'.', b':', b'/', bytes).is_some()
        || memchr::memchr3(b'%', b'=', b'\\', bytes).is_some()
        || !text.is_ascii()
}

/// Judges a text without any of that.
fn short(text: &str, named: Named, depth: usize, seen: &mut Seen) -> Result<bool, String> {
    let breaks = text.contains(['\t', '\n', '\r']);
    if matches!(named, Named::No) && !breaks && text.contains(char::is_whitespace) {
        return Ok(false);
    }
    whole(text, named, depth, seen)
}

fn number(text: &str, named: Named, seen: &mut Seen) -> Result<bool, String> {
    if matches!(named, Named::No | Named::About) {
        return Ok(false);
    }
    if let Ok(octet) = text.parse::<u8>() {
        seen.octets.push(octet);
        octets(&seen.octets)?;
    }
    // As a signed number, as which some databases and languages have addresses.
    if let Ok(signed) = text.parse::<i32>().map(|n| n as u32)
        && text.starts_with('-')
    {
        return host(&signed.to_string(), Reading::Possible, seen).map(|()| true);
    }
    let text = if text == "-0.0" { "0" } else { text };
    let whole = text.strip_suffix(".0");
    if whole.unwrap_or(text).bytes().all(|b| b.is_ascii_digit()) && whole.unwrap_or(text).parse::<u64>().is_err() {
        return Err(format!("the number {} where a host is expected, which is not an address", shown(text)));
    }
    // Small numbers count something.
    if whole.unwrap_or(text).parse::<u64>().is_ok_and(|n| n != 0 && n < 1 << 24) && whole.is_none() {
        return Ok(false);
    }
    whole.map_or(Ok(()), |whole| host(whole, Reading::Possible, seen))?;
    host(text, Reading::Possible, seen).map(|()| true)
}

/// Judges numbers that are next to each other, as the bytes of an address.
fn octets(bytes: &[u8]) -> Result<(), String> {
    let judge = |address: IpAddr| judge(address, &format!("{bytes:?}"));
    match *bytes {
        [a, b, c, d] => judge(Ipv4Addr::new(a, b, c, d).into()),
        _ => <[u8; 16]>::try_from(bytes).map_or(Ok(()), |b| judge(Ipv6Addr::from(b).into())),
    }
}

fn whole(text: &str, named: Named, depth: usize, seen: &mut Seen) -> Result<bool, String> {
    let mut some = as_it_stands(text, named, seen)?;
    // Browsers drop these from URLs before anything else.
    if text.contains(['\t', '\n', '\r']) {
        let joined = joined(text);
        some |= urls::urls(&joined, Reading::Certain, seen)?;
        if !joined.trim().contains(char::is_whitespace) {
            let named = if named == Named::No { Named::No } else { Named::About };
            lists::bare(joined.trim(), named, seen)?;
        }
    }
    if memchr::memchr(b'%', text.as_bytes()).is_some() {
        encoded(text, seen)?;
    }
    let trimmed = text.trim_start();
    if trimmed.starts_with(['{', '[', '"']) {
        some |= nested(trimmed, named, depth, seen)?;
    }
    Ok(some)
}

fn as_it_stands(text: &str, named: Named, seen: &mut Seen) -> Result<bool, String> {
    let some = urls::urls(text, Reading::Certain, seen)?;
    lists::pairs(text, seen)?;
    let trimmed = text.trim_matches(|c: char| c.is_whitespace() || c.is_control() || c == '\u{feff}');
    Ok(some | lists::list(trimmed, named, some, seen)?)
}

/// A text without its tabs and line breaks. A line that begins with a scheme begins anew after one that has a URL.
fn joined(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    let mut has_url = false;
    for line in text.split(['\t', '\n', '\r']) {
        let begins = line.trim_start().split_once("://").is_some_and(|(scheme, _)| urls::is_special(scheme));
        if begins && has_url {
            all.push(' ');
            has_url = false;
        }
        all.push_str(line);
        has_url |= line.contains("://");
    }
    all
}

/// Judges a text as it is when it is decoded, as often as that goes.
fn encoded(text: &str, seen: &mut Seen) -> Result<(), String> {
    let mut text = Cow::Borrowed(text);
    for _ in 0..MAX_NESTED {
        let decoded = percent_encoding::percent_decode_str(&text).decode_utf8_lossy();
        if decoded == text {
            return Ok(());
        }
        let decoded = decoded.into_owned();
        urls::urls(&decoded, Reading::Possible, seen)?;
        lists::pairs(&decoded, seen)?;
        text = Cow::Owned(decoded);
    }
    let decoded = percent_encoding::percent_decode_str(&text).decode_utf8_lossy();
    if decoded == text { Ok(()) } else { Err(format!("a text that is percent-encoded more than {MAX_NESTED} times")) }
}

/// Judges a text that is JSON itself.
fn nested(json: &str, outer: Named, depth: usize, seen: &mut Seen) -> Result<bool, String> {
    let mut some = false;
    let mut denied = None;
    let walked = walk(json.as_bytes(), &mut |leaf, around| {
        if depth == MAX_NESTED {
            denied = Some(format!("JSON within more than {MAX_NESTED} texts"));
        } else {
            match piece(leaf, around, outer, depth + 1, seen) {
                Ok(found) => some |= found,
                Err(message) => denied = Some(message),
            }
        }
        if denied.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    // What is not JSON was looked at as a text.
    match (denied, walked) {
        (Some(message), _) => Err(message),
        (None, _) => Ok(some),
    }
}
