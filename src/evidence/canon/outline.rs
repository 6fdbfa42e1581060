//! A scan that also reports where the members of the outermost objects are.

use super::error::{Anomalies, ScanError};
use super::index::{Index, Limits, Pass};
use super::members::{Page, Paging};
use super::number::Literal;
use super::scan::{Events, finish, walk};
use super::string::Scanned;
use std::ops::Range;

/// Objects whose members are reported: the document, and those that are values of its members.
const LEVELS: usize = 2;

/// A member of one of the outermost objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlined<'a> {
    /// Containers around it: 1 for a direct member of the document.
    pub depth: usize,
    /// The name verbatim, with its quotes.
    pub raw_key: &'a [u8],
    /// Whether the name has escapes.
    pub escaped: bool,
    /// The value, without white space around it.
    pub value: &'a [u8],
    /// Where it is in the document.
    pub range: Range<usize>,
}

struct Outline<'a, 'f, E> {
    bytes: &'a [u8],
    events: E,
    /// The name, at each level, of the member whose value is being read: start, end, whether it has escapes, and where the
    /// value starts.
    names: [(usize, usize, bool, usize); LEVELS],
    see: &'f mut dyn FnMut(Outlined<'a>),
}

impl<'a, 'f, E: Events> Outline<'a, 'f, E> {
    /// Walks the whole document; gives what heard of everything, and the end of the document's value.
    fn walk(bytes: &'a [u8], events: E, see: &'f mut dyn FnMut(Outlined<'a>)) -> Result<(E, usize), ScanError> {
        let mut outline = Self { bytes, events, names: [(0, 0, false, 0); LEVELS], see };
        let end = walk(bytes, 0, &mut outline)?;
        finish(bytes, end)?;
        Ok((outline.events, end))
    }
}

impl<E: Events> Events for Outline<'_, '_, E> {
    #[inline]
    fn open(&mut self, at: usize, object: bool, depth: usize) {
        self.events.open(at, object, depth);
    }

    #[inline]
    fn close(&mut self, bytes: &[u8], end: usize, object: bool, depth: usize) {
        self.events.close(bytes, end, object, depth);
    }

    #[inline]
    fn name(&mut self, bytes: &[u8], start: usize, name: Scanned, depth: usize, value: usize) {
        self.events.name(bytes, start, name, depth, value);
        if let Some(slot) = self.names.get_mut(depth - 1) {
            *slot = (start, name.end, name.escaped, value);
        }
    }

    #[inline]
    fn string(&mut self, start: usize, string: Scanned) {
        self.events.string(start, string);
    }

    #[inline]
    fn number(&mut self, bytes: &[u8], number: Literal) {
        self.events.number(bytes, number);
    }

    #[inline]
    fn passed(&mut self, at: usize) {
        self.events.passed(at);
    }

    #[inline]
    fn member(&mut self, end: usize, depth: usize) {
        if let Some(&(start, name_end, escaped, value)) = self.names.get(depth - 1) {
            let (raw_key, value) = (&self.bytes[start..name_end], value..end);
            (self.see)(Outlined { depth, raw_key, escaped, value: &self.bytes[value.clone()], range: value });
        }
    }
}

/// What [`scan`](super::scan()) says of the document; tells every member of the outermost objects when its value ends, so the
/// members of an inner object before the member that it is the value of.
///
/// # Errors
/// As [`scan`](super::scan()), after the members were reported.
pub fn outline<'a>(bytes: &'a [u8], see: &mut dyn FnMut(Outlined<'a>)) -> Result<Anomalies, ScanError> {
    let (pass, _) = Outline::walk(bytes, Pass::new(&const { Limits::scan_only() }, None), see)?;
    Ok(pass.into_index().anomalies)
}

/// As [`outline`], for bytes in pages that can be released. Instead of anomalies it leaves what
/// [`digest_in`](super::digest_in) makes use of.
///
/// # Errors
/// As [`outline`].
pub fn index<'a>(bytes: &'a [u8], page: Page<'_>, see: &mut dyn FnMut(Outlined<'a>)) -> Result<Indexed, ScanError> {
    let limits = &Limits::DEFAULT;
    if bytes.len() <= limits.small {
        Outline::walk(bytes, Paging(page), see)?;
        return Ok(Indexed(None));
    }
    let (pass, _) = Outline::walk(bytes, Pass::new(limits, page), see)?;
    let index = pass.into_index();
    Ok(Indexed(Some(index).filter(|index| index.anomalies.is_empty())))
}

/// What one walk over a document has found out for hashing values in it; nothing where that would not help.
pub struct Indexed(pub(super) Option<Index>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canon::scan;

    fn told(json: &str) -> Vec<(usize, &str, &str)> {
        let mut all = Vec::new();
        let anomalies = outline(json.as_bytes(), &mut |m| {
            let text = |bytes| std::str::from_utf8(bytes).unwrap();
            assert_eq!(m.escaped, text(m.raw_key).contains('\\'));
            all.push((m.depth, text(m.raw_key), text(m.value)));
        });
        assert_eq!(anomalies, scan(json.as_bytes()), "{json}");
        all
    }

    #[test]
    fn members_of_the_two_outermost_objects_are_told_when_they_end() {
        assert_eq!(
            told(
                r#" { "a" : 1 , "b\u0062" : { "c" : [ {"x":1} , 2 ] , "d" : {"e":{}} , "f" : "}" } , "g" : [{"h":0}] } "#
            ),
            [
                (1, "\"a\"", "1"),
                (2, "\"c\"", r#"[ {"x":1} , 2 ]"#),
                (2, "\"d\"", r#"{"e":{}}"#),
                (2, "\"f\"", "\"}\""),
                (1, "\"b\\u0062\"", r#"{ "c" : [ {"x":1} , 2 ] , "d" : {"e":{}} , "f" : "}" }"#),
                (1, "\"g\"", r#"[{"h":0}]"#),
            ]
        );
        assert_eq!(told(r#"[{"a":true},{"b":null}]"#), [(2, "\"a\"", "true"), (2, "\"b\"", "null")]);
        assert_eq!(told("7"), []);
        assert_eq!(told(r#"{"a":{"a":1,"a":[}"#), [(2, "\"a\"", "1")]);
        assert_eq!(told(r#"{"a":1} x"#).len(), 1);
    }

    #[test]
    fn they_are_those_that_members_finds() {
        for json in [r#"{"a":[[{}],{"b":"\""}],"c":{"":{"":-1e5}},"d":"é"}"#, r#"{"x":{}}"#, "{}"] {
            let mut direct = Vec::new();
            outline(json.as_bytes(), &mut |m| direct.extend((m.depth == 1).then_some((m.raw_key, m.value)))).unwrap();
            let members = super::super::members(json.as_bytes()).unwrap().map(Result::unwrap);
            let members: Vec<_> = members.map(|m| (m.raw_key, &json.as_bytes()[m.value])).collect();
            assert_eq!(direct, members, "{json}");
        }
    }
}
