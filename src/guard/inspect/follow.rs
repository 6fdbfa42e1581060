//! A long answer of the server, followed while it passes unread: to every reader it is the answer to one request, or it does not
//! pass to its end.

use super::{Refusal, is_scalar};
use crate::{canon, text::alike};

/// Bytes of a name or an id that are looked at; a longer one may be anything.
const LONGEST: usize = 1024;

/// Where an answer is that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// A name may begin.
    #[default]
    Name,
    /// Behind a name.
    Colon,
    /// A value begins.
    Value,
    /// In a value without quotes and brackets.
    Scalar,
    /// Behind a value.
    After,
}

/// What has been seen of an answer, or of a batch of them.
#[derive(Debug, Default)]
pub struct Followed {
    /// The brackets that are open.
    open: Vec<u8>,
    is_batch: bool,
    is_over: bool,
    place: Place,
    /// Inside a string, and whether the byte before it escapes the next one.
    text: Option<bool>,
    /// The name or the id that is being read, as it is written.
    kept: Vec<u8>,
    keeps: Keeps,
    /// The id of the answer that is being read.
    id: Option<Vec<u8>>,
}

/// What is being kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Keeps {
    #[default]
    Nothing,
    Name,
    Id,
}

impl Followed {
    /// Whether all of this is one answer, or a batch of them.
    #[must_use]
    pub fn is_whole(text: &[u8]) -> bool {
        let mut followed = Self::default();
        followed.add(text, &mut |_| false).is_none() && followed.is_over
    }

    /// The id of the answer that is being read, as it is written.
    #[must_use]
    pub fn id(&self) -> Option<&[u8]> {
        self.id.as_deref()
    }

    /// Takes more of it. If not all of that may pass: how many bytes may, and why nothing may that follows them.
    /// `is_kept_back` says whether the answer to the request with this id must not pass unread; it is asked when the answer
    /// ends, and not before: who asks for a list may do so while the answer to it comes.
    pub fn add(&mut self, bytes: &[u8], is_kept_back: &mut dyn FnMut(&[u8]) -> bool) -> Option<(usize, Refusal)> {
        let mut at = 0;
        while let Some(b) = bytes.get(at) {
            let step = if self.text.is_some() {
                at += self.string(&bytes[at..]);
                if self.kept.len() > LONGEST { Err(Refusal::BadId) } else { self.string_ended() }
            } else {
                let step = self.byte(*b, is_kept_back);
                at += usize::from(step.is_ok());
                step
            };
            if let Err(refusal) = step {
                return Some((at, refusal));
            }
        }
        None
    }

    /// Reads on in a string; how many bytes.
    fn string(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        if self.text == Some(true) {
            (self.text, at) = (Some(false), 1);
        }
        while let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
            at += found + 1;
            if bytes[at - 1] == b'"' {
                self.text = None;
                break;
            }
            if at == bytes.len() {
                self.text = Some(true);
                break;
            }
            at += 1;
        }
        let read = if self.text == Some(false) { bytes.len() } else { at };
        if self.keeps != Keeps::Nothing {
            self.kept.extend_from_slice(&bytes[..read.min(LONGEST + 1)]);
        }
        read
    }

    /// A string may have ended.
    fn string_ended(&mut self) -> Result<(), Refusal> {
        if self.text.is_some() || !self.is_at_members() {
            return Ok(());
        }
        let keeps = std::mem::take(&mut self.keeps);
        self.place = if keeps == Keeps::Name { Place::Colon } else { Place::After };
        match keeps {
            Keeps::Nothing => Ok(()),
            Keeps::Id => self.read_id(),
            Keeps::Name => self.read_name(),
        }
    }

    fn read_name(&mut self) -> Result<(), Refusal> {
        let raw = std::mem::take(&mut self.kept);
        let name = canon::decode_string(&raw).ok_or(Refusal::Malformed)?;
        let is = |word| alike::is_like(&name, word) || alike::is_misread_as(&raw, word);
        if is("method") {
            return Err(Refusal::Shape);
        }
        if is("id") {
            if self.id.is_some() {
                return Err(Refusal::DuplicateKey);
            }
            self.keeps = Keeps::Id;
        }
        Ok(())
    }

    fn read_id(&mut self) -> Result<(), Refusal> {
        let raw = std::mem::take(&mut self.kept);
        let is_id = is_scalar(&raw) && canon::scan(&raw).is_ok();
        self.id = Some(raw);
        if is_id { Ok(()) } else { Err(Refusal::BadId) }
    }

    /// Whether the innermost bracket is that of an answer.
    fn is_at_members(&self) -> bool {
        self.open.len() == 1 + usize::from(self.is_batch) && self.open.last() == Some(&b'{')
    }

    /// Takes a byte that is in no string.
    fn byte(&mut self, b: u8, is_kept_back: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Refusal> {
        if self.is_at_members() {
            self.member(b, is_kept_back)
        } else if self.open.len() > 1 + usize::from(self.is_batch) {
            self.value(b)
        } else {
            self.around(b)
        }
    }

    /// Takes a byte before, between or behind the answers.
    fn around(&mut self, b: u8) -> Result<(), Refusal> {
        match (b, self.open.len()) {
            (b' ' | b'\t' | b'\r' | b'\n', _) | (b',', 1) => Ok(()),
            // Behind the last one, a reader of a stream of values finds another message.
            (b'{' | b'[', 0) if !self.is_over => {
                self.is_batch = b == b'[';
                self.begin(b)
            }
            (b'{', 1) => {
                self.id = None;
                self.begin(b)
            }
            (b']', 1) => self.end(b'['),
            (_, 0) => Err(Refusal::Malformed),
            _ => Err(Refusal::BadBatch),
        }
    }

    /// Takes a byte in what the value of a member holds.
    fn value(&mut self, b: u8) -> Result<(), Refusal> {
        match b {
            b'{' | b'[' => self.begin(b),
            b'}' => self.end(b'{'),
            b']' => self.end(b'['),
            b'"' => {
                self.text = Some(false);
                Ok(())
            }
            b' '
            | b'\t'
            | b'\r'
            | b'\n'
            | b':'
            | b','
            | b'+'
            | b'-'
            | b'.'
            | b'0'..=b'9'
            | b'A'..=b'Z'
            | b'a'..=b'z' => Ok(()),
            // It is not JSON, and what a reader makes of it is not known.
            _ => Err(Refusal::Malformed),
        }
    }

    /// Takes a byte between the members of an answer, or of a value that is short.
    fn member(&mut self, b: u8, is_kept_back: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Refusal> {
        if self.place == Place::Scalar && !matches!(b, b'+' | b'-' | b'.') && !b.is_ascii_alphanumeric() {
            self.place = Place::After;
            if std::mem::take(&mut self.keeps) == Keeps::Id {
                self.read_id()?;
            }
        }
        match (self.place, b) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => {}
            (Place::Name | Place::Value, b'"') => {
                if self.place == Place::Name {
                    self.keeps = Keeps::Name;
                }
                if self.keeps != Keeps::Nothing {
                    self.kept.push(b);
                }
                self.text = Some(false);
            }
            (Place::Colon, b':') => self.place = Place::Value,
            (Place::After, b',') => self.place = Place::Name,
            (Place::Value, b'{' | b'[') => {
                if std::mem::take(&mut self.keeps) == Keeps::Id {
                    return Err(Refusal::BadId);
                }
                self.place = Place::After;
                return self.begin(b);
            }
            (Place::Name | Place::After, b'}') => {
                if self.id.as_deref().is_some_and(is_kept_back) {
                    return Err(Refusal::TooLarge);
                }
                return self.end(b'{');
            }
            (Place::Value | Place::Scalar, b) if b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.') => {
                self.place = Place::Scalar;
                if self.keeps == Keeps::Id {
                    self.kept.push(b);
                    if self.kept.len() > LONGEST {
                        return Err(Refusal::BadId);
                    }
                }
            }
            _ => return Err(Refusal::Malformed),
        }
        Ok(())
    }

    fn begin(&mut self, bracket: u8) -> Result<(), Refusal> {
        if self.open.len() > canon::MAX_DEPTH {
            return Err(Refusal::TooDeep);
        }
        self.open.push(bracket);
        if self.is_at_members() {
            self.place = Place::Name;
        }
        Ok(())
    }

    fn end(&mut self, opened_by: u8) -> Result<(), Refusal> {
        if self.open.pop() != Some(opened_by) {
            return Err(Refusal::Malformed);
        }
        self.is_over = self.open.is_empty();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What passes of a text that comes in pieces of this size, where 2 is the id of a request for a list.
    fn passed(text: &str, piece: usize) -> (usize, Option<Refusal>) {
        let mut followed = Followed::default();
        let mut passed = 0;
        for piece in text.as_bytes().chunks(piece) {
            match followed.add(piece, &mut |id| id == b"2") {
                None => passed += piece.len(),
                Some((n, refusal)) => return (passed + n, Some(refusal)),
            }
        }
        assert_eq!(Followed::is_whole(text.as_bytes()), followed.is_over, "{text}");
        (passed, None)
    }

    #[test]
    fn an_answer_passes_up_to_where_some_reader_would_take_it_for_another_one() {
        for (text, cut, refusal) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{"id":2,"method":"m","a":["}",{"id":2}]}}"#, "", None),
            (r#"{"result":"\"\\","id":"a","error":null}"#, "", None),
            (r#" [ {"id":1,"result":1.5e+3} , {"result":[], "id":null} ] "#, "", None),
            (r#"{"id":1,"result":{},"id":2}"#, ":2}", Some(Refusal::DuplicateKey)),
            (r#"{"id":1,"result":{},"ID":2}"#, ":2}", Some(Refusal::DuplicateKey)),
            (r#"{"id":1,"result":{},"i\u0064":2}"#, ":2}", Some(Refusal::DuplicateKey)),
            (r#"{"id":2,"result":{"tools":[]}}"#, "}", Some(Refusal::TooLarge)),
            (r#"{"result":{"tools":[]},"id":2 }"#, "}", Some(Refusal::TooLarge)),
            (r#"[{"id":1,"result":1},{"id":2,"result":1}]"#, "}]", Some(Refusal::TooLarge)),
            (r#"[{"id":1,"result":1},{"id":3,"method":"m"}]"#, r#":"m"}]"#, Some(Refusal::Shape)),
            (r#"{"id":1,"result":1,"me_thod":"m"}"#, r#":"m"}"#, Some(Refusal::Shape)),
            (r#"{"id":1,"result":1}{"id":2}"#, r#"{"id":2}"#, Some(Refusal::Malformed)),
            (r#"{"id":1,"result":1 "id":2}"#, r#""id":2}"#, Some(Refusal::Malformed)),
            (r#"{"id":1,"result":1,id:2}"#, "id:2}", Some(Refusal::Malformed)),
            (r#"{"id":1,"result":[1,'"',2],"id":2}"#, r#"'"',2],"id":2}"#, Some(Refusal::Malformed)),
            (r#"{"id":1,"result":[}"#, "}", Some(Refusal::Malformed)),
            (r#"{"result":1,"id":{"a":2}}"#, r#"{"a":2}}"#, Some(Refusal::BadId)),
            (r#"{"result":1,"id":1x}"#, "}", Some(Refusal::BadId)),
            (r#"[[{"id":2}]]"#, r#"[{"id":2}]]"#, Some(Refusal::BadBatch)),
        ] {
            for piece in [1, 2, 3, 7, text.len()] {
                assert_eq!(passed(text, piece), (text.len() - cut.len(), refusal), "{text} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_is_too_long_or_too_deep_to_be_followed_does_not_pass() {
        let name = format!(r#"{{"id":1,"result":1,"{}":2}}"#, "i".repeat(2 * LONGEST));
        let id = format!(r#"{{"result":1,"id":{}}}"#, "1".repeat(2 * LONGEST));
        let deep = format!(r#"{{"id":1,"result":{}"#, "[".repeat(2 * canon::MAX_DEPTH));
        let long = format!(r#"{{"id":1,"result":"{}"}}"#, "x\\\\".repeat(LONGEST));
        for piece in [1, 5, 100_000] {
            assert_eq!(passed(&name, piece).1, Some(Refusal::BadId));
            assert_eq!(passed(&id, piece).1, Some(Refusal::BadId));
            assert_eq!(passed(&deep, piece).1, Some(Refusal::TooDeep));
            assert_eq!(passed(&long, piece), (long.len(), None));
        }
    }
}
