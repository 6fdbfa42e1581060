//! A scan that says in the same pass where the members of the outermost objects stand.

use super::error::{Anomalies, ScanError};
use super::index::{Limits, Pass};
use super::number::Literal;
use super::scan::{Events, finish, walk};
use super::string::Scanned;

/// Objects whose members are told: the document's, and those that are the values of its members.
const LEVELS: usize = 2;

/// A member of one of the outermost objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlined<'a> {
    /// Containers around it: 1 for a direct member of the document.
    pub depth: usize,
    /// The name as it stands, with its quotes.
    pub raw_key: &'a [u8],
    /// Whether the name has escapes.
    pub escaped: bool,
    /// The value, without white space around it.
    pub value: &'a [u8],
}

struct Outline<'a, 'f> {
    bytes: &'a [u8],
    pass: Pass<'static>,
    /// The name, at each level, of the member whose value is being read: start, end, whether it has escapes, and where the
    /// value starts.
    names: [(usize, usize, bool, usize); LEVELS],
    see: &'f mut dyn FnMut(Outlined<'a>),
}

impl Events for Outline<'_, '_> {
    #[inline]
    fn open(&mut self, at: usize, object: bool, depth: usize) {
        self.pass.open(at, object, depth);
    }

    #[inline]
    fn close(&mut self, bytes: &[u8], end: usize, object: bool, depth: usize) {
        self.pass.close(bytes, end, object, depth);
    }

    #[inline]
    fn name(&mut self, bytes: &[u8], start: usize, name: Scanned, depth: usize, value: usize) {
        self.pass.name(bytes, start, name, depth, value);
        if let Some(slot) = self.names.get_mut(depth - 1) {
            *slot = (start, name.end, name.escaped, value);
        }
    }

    #[inline]
    fn string(&mut self, start: usize, string: Scanned) {
        self.pass.string(start, string);
    }

    #[inline]
    fn number(&mut self, bytes: &[u8], number: Literal) {
        self.pass.number(bytes, number);
    }

    #[inline]
    fn member(&mut self, end: usize, depth: usize) {
        if let Some(&(start, name_end, escaped, value)) = self.names.get(depth - 1) {
            let (raw_key, value) = (&self.bytes[start..name_end], &self.bytes[value..end]);
            (self.see)(Outlined { depth, raw_key, escaped, value });
        }
    }
}

/// What [`scan`](super::scan()) says of the document; tells every member of the outermost objects when its value ends, so the
/// members of an inner object before the member that it is the value of.
///
/// # Errors
/// As [`scan`](super::scan()), at the end of what was told.
pub fn outline<'a>(bytes: &'a [u8], see: &mut dyn FnMut(Outlined<'a>)) -> Result<Anomalies, ScanError> {
    let limits = &const { Limits::scan_only() };
    let mut outline = Outline { bytes, pass: Pass::new(limits, None), names: [(0, 0, false, 0); LEVELS], see };
    let end = walk(bytes, 0, &mut outline)?;
    finish(bytes, end)?;
    Ok(outline.pass.into_index().anomalies)
}

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
