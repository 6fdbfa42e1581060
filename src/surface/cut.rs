//! Cutting parts out of an answer: what is kept is byte for byte what the server sent.
//!
//! A client reads JSON as leniently as it likes, so an answer in which two readers could see different lists is not cut
//! but refused: a member twice, or one whose name is that of a list but for case or what separates words.

use crate::{
    canon::{self, Anomalies, Kind, Member},
    model::surface::Facet,
    text::alike,
};
use std::{borrow::Cow, collections::HashSet, ops::Range};

/// Where the parts of an answer are, in the bytes of the message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// The elements of the list.
    pub elements: Vec<Range<usize>>,
    /// The list itself.
    pub list: Option<Range<usize>>,
    /// The member `instructions` with its name, and its value.
    pub instructions: Option<(Range<usize>, Range<usize>)>,
    /// The value of `ttlMs`.
    pub ttl: Option<Range<usize>>,
    /// The value of `nextCursor`.
    pub next: Option<Range<usize>>,
    /// Whether the result has a member twice (none of those above).
    pub twice: bool,
    /// The result.
    pub result: Range<usize>,
    /// Members of the result, each with its name.
    members: Vec<Range<usize>>,
}

/// Two readers may see different things in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ambiguous;

/// The members of an object of which each wanted name is there once, in that very spelling.
fn members<'a>(object: &'a [u8], wanted: &[&str]) -> Result<Vec<Member<'a>>, Ambiguous> {
    let all: Vec<Member<'a>> =
        canon::members(object).map_err(|_| Ambiguous)?.collect::<Result<_, _>>().map_err(|_| Ambiguous)?;
    let mut seen = Vec::new();
    for m in &all {
        let key = m.key.as_deref().ok_or(Ambiguous)?;
        let raw = &object[m.key_range.clone()];
        if let Some(name) = wanted.iter().find(|w| alike::is_like(key, w) || alike::is_misread_as(raw, w)) {
            let plain = *raw == *format!("\"{name}\"").as_bytes();
            if !plain || seen.contains(name) {
                return Err(Ambiguous);
            }
            seen.push(name);
        }
    }
    Ok(all)
}

fn shifted(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// What an answer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A result, and where.
    Result(Range<usize>),
    /// An error, and no result.
    Error,
}

/// Reads a message that is an answer, and no request.
///
/// # Errors
/// Two readers may see different things in it.
pub fn answer(message: &[u8]) -> Result<Answer, Ambiguous> {
    let top = members(message, &["id", "result", "error", "method"])?;
    let value = |name: &str| top.iter().find(|m| m.key.as_deref() == Some(name)).map(|m| m.value.clone());
    match (value("result"), value("error"), value("method")) {
        (Some(result), None, None) => Ok(Answer::Result(result)),
        (None, Some(_), None) => Ok(Answer::Error),
        _ => Err(Ambiguous),
    }
}

/// Finds the parts of an answer to a request for a list, or (`None`) for what the server says of itself; `result` is what
/// [`answer`] found in it.
///
/// # Errors
/// Two readers may see different things in it, or it is no such answer.
pub fn parts(message: &[u8], result: Range<usize>, facet: Option<Facet>) -> Result<Parts, Ambiguous> {
    // What is in an item is the item's; what makes the text itself doubtful is everybody's.
    let doubtful = [Anomalies::INVALID_UTF8, Anomalies::DEPTH_EXCEEDED, Anomalies::TOO_MANY_MEMBERS];
    let anomalies = canon::scan(message).map_err(|_| Ambiguous)?;
    if doubtful.iter().any(|a| anomalies.contains(*a)) || memchr::memchr(0, message).is_some() {
        return Err(Ambiguous);
    }
    let inner = &message[result.clone()];
    if canon::kind(inner) != Some(Kind::Object) {
        return Err(Ambiguous);
    }
    let list = facet.and_then(Facet::members).map(|(list, _)| list);
    let wanted = ["instructions", "ttlMs", "nextCursor", list.unwrap_or("capabilities")];
    let mut out = Parts { result: result.clone(), ..Parts::default() };
    let mut names = HashSet::new();
    for m in members(inner, &wanted)? {
        let whole = shifted(&(m.key_range.start..m.value.end), result.start);
        let value = shifted(&m.value, result.start);
        match m.key.as_deref() {
            Some("ttlMs") => out.ttl = Some(value),
            Some("nextCursor") => out.next = Some(value),
            Some("instructions") if list.is_none() => out.instructions = Some((whole.clone(), value)),
            Some(key) if Some(key) == list => out.list = Some(value),
            _ => {}
        }
        out.members.push(whole);
        out.twice |= !names.insert(m.key);
    }
    if let Some(range) = out.list.clone() {
        let elements = canon::elements(&message[range.clone()]).map_err(|_| Ambiguous)?;
        for element in elements {
            out.elements.push(shifted(&element.map_err(|_| Ambiguous)?, range.start));
        }
    } else if list.is_some() {
        return Err(Ambiguous);
    }
    Ok(out)
}

/// What has to go so that these of some parts in a row, between which are commas, are not there.
fn spans(all: &[Range<usize>], gone: &dyn Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut kept: Option<usize> = None;
    for n in 0..all.len() {
        if !gone(n) {
            kept = Some(n);
        } else if let Some(last) = kept {
            // With the comma before it.
            let from = if n > 0 && gone(n - 1) { all[n - 1].end } else { all[last].end };
            out.push(from..all[n].end);
        } else {
            // With the comma behind it, if anything is left there.
            let end = all.get(n + 1).map_or(all[n].end, |next| next.start);
            out.push(all[n].start..end);
        }
    }
    out
}

/// What is taken out of a text, and what stands in its place: in order, none within another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits(Vec<(Range<usize>, Cow<'static, [u8]>)>);

impl Edits {
    /// All of a text of this length goes, and this takes its place.
    #[must_use]
    pub fn whole(len: usize, instead: Vec<u8>) -> Self {
        Self(vec![(0..len, Cow::Owned(instead))])
    }

    /// The same, of a text that begins so much later.
    #[must_use]
    pub fn behind(mut self, by: usize) -> Self {
        for (span, _) in &mut self.0 {
            *span = shifted(span, by);
        }
        self
    }

    /// These as well, of which all come later.
    pub fn and(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text after them.
    #[must_use]
    pub fn apply(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        let mut at = 0;
        for (span, instead) in &self.0 {
            out.extend_from_slice(&text[at..span.start]);
            out.extend_from_slice(instead);
            at = span.end;
        }
        out.extend_from_slice(&text[at..]);
        out
    }

    /// The same edits of a longer text that holds this one in `parts`: each a part of this text, in order, and where it
    /// begins in the longer one. What is between two parts stays.
    #[must_use]
    pub fn in_parts(&self, parts: &[(Range<usize>, usize)]) -> Self {
        let mut out = Vec::new();
        for (span, instead) in &self.0 {
            // What takes the place of all of it stands at its beginning.
            let mut instead = Some(instead.clone());
            let first = parts.partition_point(|(part, _)| part.end <= span.start);
            for (part, place) in parts[first..].iter().take_while(|(part, _)| part.start < span.end) {
                let (from, to) = (span.start.max(part.start), span.end.min(part.end));
                if from < to {
                    let place = shifted(&(from - part.start..to - part.start), *place);
                    out.push((place, instead.take().unwrap_or_default()));
                }
            }
        }
        Self(out)
    }
}

/// What goes so that these elements of its list, or its instructions, are not in the message; where elements go, `ttlMs`
/// becomes 0.
#[must_use]
pub fn without(parts: &Parts, element_goes: &dyn Fn(usize) -> bool, instructions_go: bool) -> Edits {
    const NOTHING: Cow<'_, [u8]> = Cow::Borrowed(b"");
    let mut cut: Vec<_> = spans(&parts.elements, element_goes).into_iter().map(|span| (span, NOTHING)).collect();
    if let (false, Some(ttl)) = (cut.is_empty(), &parts.ttl) {
        cut.push((ttl.clone(), Cow::Borrowed(b"0")));
    }
    if let (true, Some((whole, _))) = (instructions_go, &parts.instructions) {
        let goes = |n: usize| parts.members[n] == *whole;
        cut.extend(spans(&parts.members, &goes).into_iter().map(|span| (span, NOTHING)));
    }
    cut.sort_by_key(|(span, _)| span.start);
    Edits(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(message: &[u8], facet: Option<Facet>) -> Result<Parts, Ambiguous> {
        let Answer::Result(result) = answer(message)? else { return Err(Ambiguous) };
        super::parts(message, result, facet)
    }

    #[test]
    fn every_choice_of_elements_leaves_json_and_every_other_byte() {
        for list in ["[]", "[1]", "[ 1 , 2 ]", "[\n 1,2 ,\t3\n]", "[{\"a\":\",\"},[2,3],\"]\" ,4]"] {
            let message =
                format!(r#"{{ "id":1, "result":{{"x":[9], "tools":{list} ,"ttlMs": 5000,"nextCursor":"c"}} }}"#);
            let parts = parts(message.as_bytes(), Some(Facet::Tools)).unwrap();
            for mask in 0..1_u32 << parts.elements.len() {
                let gone = |n: usize| mask >> n & 1 == 1;
                let out = without(&parts, &gone, false).apply(message.as_bytes());
                let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
                let whole: serde_json::Value = serde_json::from_str(&message).unwrap();
                let kept = whole["result"]["tools"].as_array().unwrap().iter().enumerate();
                let kept: Vec<_> = kept.filter(|(n, _)| !gone(*n)).map(|(_, v)| v.clone()).collect();
                assert_eq!(value["result"]["tools"], serde_json::Value::Array(kept), "{mask:b} {message}");
                assert_eq!(value["result"]["ttlMs"], if mask == 0 { 5000 } else { 0 });
                assert_eq!(mask == 0, out == message.as_bytes());
            }
        }
    }

    #[test]
    fn instructions_go_with_their_name_wherever_they_stand() {
        for (before, after) in [
            (r#"{"result":{"instructions":"x"},"id":1}"#, r#"{"result":{},"id":1}"#),
            (r#"{"result":{"instructions":"x", "a":1},"id":1}"#, r#"{"result":{"a":1},"id":1}"#),
            (r#"{"result":{"a":1 , "instructions":"x"},"id":1}"#, r#"{"result":{"a":1},"id":1}"#),
            (r#"{"result":{"a":1,"instructions":"x" ,"b":2},"id":1}"#, r#"{"result":{"a":1 ,"b":2},"id":1}"#),
        ] {
            let parts = parts(before.as_bytes(), None).unwrap();
            let out = without(&parts, &|_| false, true).apply(before.as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), after);
        }
    }

    #[test]
    fn edits_of_a_text_are_edits_of_the_lines_that_hold_it() {
        // Lines "ab", "", "cde"; as data of an event stream they are joined by line feeds.
        let (text, raw) = ("ab\n\ncde", "data: ab\ndata\nid: 7\ndata:cde\n\n");
        let parts = [(0..2, 6), (4..7, 25)];
        assert!(parts.iter().all(|(part, at)| text[part.clone()] == raw[*at..*at + part.len()]));
        for (span, instead, after) in [
            (0..2, "", "data: \ndata\nid: 7\ndata:cde\n\n"),
            (1..6, "0", "data: a0\ndata\nid: 7\ndata:e\n\n"),
            (2..5, "x", "data: ab\ndata\nid: 7\ndata:xde\n\n"),
            (0..7, "new", "data: new\ndata\nid: 7\ndata:\n\n"),
        ] {
            let edits = Edits(vec![(span, Cow::Owned(instead.into()))]);
            assert_eq!(String::from_utf8(edits.in_parts(&parts).apply(raw.as_bytes())).unwrap(), after);
        }
    }

    #[test]
    fn what_a_lenient_reader_could_see_twice_is_not_cut() {
        for message in [
            r#"{"id":1,"result":{"tools":[]},"result":{"tools":[1]}}"#,
            r#"{"id":1,"result":{"tools":[]},"Result":{"tools":[1]}}"#,
            r#"{"id":1,"result":{"tools":[],"tools":[1]}}"#,
            r#"{"id":1,"result":{"tools":[],"Tools":[1]}}"#,
            r#"{"id":1,"result":{"t\u006fols":[]}}"#,
            "{\"id\":1,\"result\":{\"tools\":[],\"tool\u{17f}\":[1]}}",
            r#"{"id":1,"result":{"tools":[],"\tools":[1]}}"#,
            r#"{"id":1,"method":"x","result":{"tools":[]}}"#,
            r#"{"id":1,"result":{"tools":{}}}"#,
            r#"{"id":1,"result":{}}"#,
            r#"{"id":1,"result":[]}"#,
            r#"{"id":1,"result":{"tools":[]}"#,
            "{\"id\":1,\"result\":{\"tools\":[\"\\ud800\"],\"x\":\"\u{0}\"}}",
        ] {
            assert_eq!(parts(message.as_bytes(), Some(Facet::Tools)), Err(Ambiguous), "{message}");
        }
        let twice = r#"{"id":1,"result":{"instructions":"a","Instructions":"b"}}"#;
        assert_eq!(parts(twice.as_bytes(), None), Err(Ambiguous));
    }
}
