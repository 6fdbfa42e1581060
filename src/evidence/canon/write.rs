//! The in-memory writer: one pass over a value, objects put in order when they close.

use std::ops::Range;

use super::MAX_DEPTH;
use super::order;
use super::scan::{literal, skip_ws};
use super::string::{self, Out};

/// Writes values in canonical form. It stops, without a reason, at the first value that has none: a caller that wants
/// to know the reason scans the value again.
#[derive(Default)]
pub(super) struct Writer {
    members: Vec<Member>,
    /// Decoded text of names that have escapes.
    names: Vec<u8>,
    scratch: Vec<u8>,
}

struct Member {
    prefix: u64,
    name: Name,
    /// Where the member, without a comma, was written.
    out: Range<usize>,
}

/// Where the decoded text of a name is.
struct Name {
    text: Range<usize>,
    decoded: bool,
}

impl Writer {
    /// Appends the canonical form of the value at `at`, where it starts without white space, inside of `depth` open
    /// containers, and gives its end.
    pub(super) fn value(&mut self, bytes: &[u8], at: usize, depth: usize, out: &mut Vec<u8>) -> Option<usize> {
        match bytes.get(at)? {
            b'"' => string::write(bytes, at, out).map(|(end, _)| end),
            b'{' if depth < MAX_DEPTH => self.object(bytes, at, depth + 1, out),
            b'[' if depth < MAX_DEPTH => self.array(bytes, at, depth + 1, out),
            b'-' | b'0'..=b'9' => super::number::write(bytes, at, out),
            _ => {
                let end = literal(bytes, at).ok()?;
                out.put(&bytes[at..end]);
                Some(end)
            }
        }
    }

    fn array(&mut self, bytes: &[u8], at: usize, depth: usize, out: &mut Vec<u8>) -> Option<usize> {
        out.byte(b'[');
        let mut at = skip_ws(bytes, at + 1);
        if bytes.get(at) == Some(&b']') {
            out.byte(b']');
            return Some(at + 1);
        }
        loop {
            at = skip_ws(bytes, self.value(bytes, at, depth, out)?);
            let byte = *bytes.get(at)?;
            match byte {
                b',' => at = skip_ws(bytes, at + 1),
                b']' => {}
                _ => return None,
            }
            out.byte(byte);
            if byte == b']' {
                return Some(at + 1);
            }
        }
    }

    fn object(&mut self, bytes: &[u8], at: usize, depth: usize, out: &mut Vec<u8>) -> Option<usize> {
        out.byte(b'{');
        let body = out.len();
        let base = self.members.len();
        let names = self.names.len();
        let mut ordered = true;
        let mut at = skip_ws(bytes, at + 1);
        if bytes.get(at) == Some(&b'}') {
            out.byte(b'}');
            return Some(at + 1);
        }
        loop {
            let start = out.len();
            let (name, value) = self.name(bytes, at, out)?;
            let prefix = order::prefix(name.of(bytes, &self.names));
            at = skip_ws(bytes, self.value(bytes, value, depth, out)?);
            let member = Member { prefix, name, out: start..out.len() };
            if ordered && let Some(last) = self.members[base..].last() {
                ordered = last.cmp(&member, bytes, &self.names).is_lt();
            }
            self.members.push(member);
            match bytes.get(at)? {
                b',' => at = skip_ws(bytes, at + 1),
                b'}' => break,
                _ => return None,
            }
            out.byte(b',');
        }
        if !ordered {
            self.sort(bytes, base, body, out)?;
        }
        self.members.truncate(base);
        self.names.truncate(names);
        out.byte(b'}');
        Some(at + 1)
    }

    /// Writes a member's name and colon; gives the name and where the value starts.
    #[inline]
    fn name(&mut self, bytes: &[u8], at: usize, out: &mut Vec<u8>) -> Option<(Name, usize)> {
        if bytes.get(at) != Some(&b'"') {
            return None;
        }
        let (end, decoded) = string::write(bytes, at, out)?;
        let text = if decoded {
            let from = self.names.len();
            string::decode_into(&bytes[at + 1..end - 1], &mut self.names)?;
            from..self.names.len()
        } else {
            at + 1..end - 1
        };
        let colon = skip_ws(bytes, end);
        if bytes.get(colon) != Some(&b':') {
            return None;
        }
        out.byte(b':');
        Some((Name { text, decoded }, skip_ws(bytes, colon + 1)))
    }

    /// Puts the members from `base` on, written from `body` on, in order; `None` for duplicates.
    fn sort(&mut self, bytes: &[u8], base: usize, body: usize, out: &mut Vec<u8>) -> Option<()> {
        let Self { members, names, scratch } = self;
        let members = &mut members[base..];
        members.sort_unstable_by(|a, b| a.cmp(b, bytes, names));
        if members.windows(2).any(|pair| pair[0].cmp(&pair[1], bytes, names).is_eq()) {
            return None;
        }
        scratch.clear();
        for (nth, member) in members.iter().enumerate() {
            if nth > 0 {
                scratch.push(b',');
            }
            scratch.extend_from_slice(&out[member.out.clone()]);
        }
        out.truncate(body);
        out.extend_from_slice(scratch);
        Some(())
    }
}

impl Name {
    #[inline]
    fn of<'a>(&self, bytes: &'a [u8], names: &'a [u8]) -> &'a [u8] {
        let source = if self.decoded { names } else { bytes };
        &source[self.text.clone()]
    }
}

impl Member {
    #[inline]
    fn cmp(&self, other: &Self, bytes: &[u8], names: &[u8]) -> std::cmp::Ordering {
        self.prefix
            .cmp(&other.prefix)
            .then_with(|| order::compare(self.name.of(bytes, names), other.name.of(bytes, names)))
    }
}
