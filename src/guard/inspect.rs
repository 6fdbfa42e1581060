//! The strictest reading of a client's message, so that no server can read more into it than the guard did.
//!
//! Servers differ in what they take for a call: some compare member names without regard to case, some take the last of
//! two members, some the first, some skip a byte order mark or what is after a value, some end lines at a carriage
//! return or at any of Unicode's line breaks. A message is passed on only if all of these read the same in it; whatever
//! could be read as a call by one of them and as something else by us is refused, with the [`Refusal`] that says why.

pub mod ends;
pub mod follow;
pub mod server;

use super::{Refusal, folding};
use crate::{
    canon::{self, Anomalies, Kind, Outlined},
    record::envelope::{self, Reviewed},
    text::alike,
};
use std::borrow::Cow;

/// Elements of a batch that are looked at; a longer one is refused.
pub const MAX_BATCH: usize = 256;
/// Requests of a longer batch that are answered one by one.
const MAX_ANSWERED: usize = 16 * MAX_BATCH;
/// Raw bytes of an id; a longer one is refused.
const MAX_ID: usize = 1024;
/// Raw bytes of a method or tool name; a longer one is refused.
const MAX_NAME: usize = 8 * 1024;

/// What kind of message an [`Item`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    /// A request, which wants an answer.
    Request,
    /// A notification: it wants no answer.
    Notification,
    /// A response to a request.
    Response,
    /// It cannot be told, or its id cannot be read: its sender may wait for an answer, which has the id `null`
    /// (JSON-RPC 2.0 §5).
    Unreadable,
}

/// What a policy has to judge.
#[derive(Debug, PartialEq, Eq)]
pub struct Review<'a> {
    /// The tool's name; for a method that is reviewed like one, the method.
    pub tool: Cow<'a, str>,
    /// Raw arguments (the parameters, for such a method).
    pub arguments: Option<&'a [u8]>,
}

/// One message, or one element of a batch.
#[derive(Debug)]
pub struct Item<'a> {
    /// Raw id, a scalar.
    pub id: Option<&'a [u8]>,
    /// What kind of message it is.
    pub kind: ItemKind,
    /// Why it cannot pass, whatever the policy says.
    pub refused: Option<Refusal>,
    /// What the policy is asked.
    pub review: Option<Review<'a>>,
    /// Raw method and parameters, where they were read.
    pub method: Option<&'a [u8]>,
    /// The parameters.
    pub params: Option<&'a [u8]>,
}

impl<'a> Item<'a> {
    /// The id of the request that a notification cancels.
    #[must_use]
    pub fn cancels(&self) -> Option<&'a [u8]> {
        let method = self.method.filter(|raw| is_comparable(raw)).and_then(canon::decode_string)?;
        let params = self.params.filter(|_| method == "notifications/cancelled")?;
        envelope::Fields::of(params, ["requestId"]).ok()?.get(0)
    }
}

/// Where line breaks (CR, LF) may be in a client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineBreaks {
    /// It is a line, without its newline: one carriage return at its end belongs to that.
    AtEnd,
    /// Nowhere: a reader of lines would find others in it.
    Nowhere,
    /// Anywhere between its tokens, unless one of its lines is a message for a reader of lines.
    Anywhere,
}

/// One whole message, read.
#[derive(Debug)]
pub enum Reading<'a> {
    /// White space: not a message, and no reader takes it for one.
    Blank,
    /// A message that is not a batch.
    One(Item<'a>),
    /// The elements of a batch.
    Batch(Vec<Item<'a>>),
    /// A batch of more than [`MAX_BATCH`]: the ids of its requests, and whether all of them are there.
    TooMany(Vec<&'a [u8]>, bool),
}

impl<'a> Reading<'a> {
    /// The elements that were read.
    pub(super) fn items(&self) -> &[Item<'a>] {
        match self {
            Self::One(item) => std::slice::from_ref(item),
            Self::Batch(items) => items,
            Self::Blank | Self::TooMany(..) => &[],
        }
    }
}

impl Item<'_> {
    /// What is refused without having been read.
    pub(super) const fn unread(kind: ItemKind, refusal: Refusal) -> Self {
        Self { id: None, kind, refused: Some(refusal), review: None, method: None, params: None }
    }
}

/// Reads a client's message.
#[must_use]
pub fn read(text: &[u8], breaks: LineBreaks) -> Reading<'_> {
    if breaks == LineBreaks::Nowhere && memchr::memchr2(b'\n', b'\r', text).is_some() {
        return Reading::One(Item::unread(ItemKind::Unreadable, Refusal::LineBreak));
    }
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t') || (breaks == LineBreaks::Anywhere && is_break(*b));
    if text.iter().all(is_blank) {
        return Reading::Blank;
    }
    let mut fields = Fields::default();
    let whole = match syntax(text, &mut fields) {
        Ok(anomalies) => anomalous(text, anomalies, breaks),
        Err(refusal) => return Reading::One(Item::unread(unreadable(text), refusal)),
    };
    match canon::kind(text) {
        Some(Kind::Array) => batch(text, whole),
        Some(Kind::Object) => Reading::One(item(&fields, whole)),
        _ => Reading::One(Item::unread(ItemKind::Unreadable, whole.unwrap_or(Refusal::Shape))),
    }
}

/// What a line is that is not JSON. One that does not even begin like a message is not an attempt at one: whoever
/// writes such lines reads no answers, and might answer each of them with another such line.
fn unreadable(text: &[u8]) -> ItemKind {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    if matches!(text.first(), Some(b'{' | b'[')) { ItemKind::Unreadable } else { ItemKind::Notification }
}

/// What a scan says of the text, with the fields if it is an object, or why it is not JSON.
fn syntax<'a>(text: &'a [u8], fields: &mut Fields<'a>) -> Result<Anomalies, Refusal> {
    if text.starts_with(b"\xef\xbb\xbf") {
        return Err(Refusal::ByteOrderMark);
    }
    let scanned = canon::outline(text, &mut |member| fields.see(&member));
    scanned.map_err(|_| if memchr::memchr(0, text).is_some() { Refusal::Nul } else { Refusal::Malformed })
}

/// What is wrong with the text as a whole, although it is JSON.
fn anomalous(text: &[u8], anomalies: Anomalies, breaks: LineBreaks) -> Option<Refusal> {
    for (anomaly, refusal) in [
        (Anomalies::INVALID_UTF8, Refusal::InvalidUtf8),
        (Anomalies::DEPTH_EXCEEDED, Refusal::TooDeep),
        (Anomalies::DUPLICATE_KEY, Refusal::DuplicateKey),
        (Anomalies::LONE_SURROGATE, Refusal::LoneSurrogate),
        (Anomalies::TOO_MANY_MEMBERS, Refusal::TooManyMembers),
    ] {
        if anomalies.contains(anomaly) {
            return Some(refusal);
        }
    }
    let is_broken =
        if breaks == LineBreaks::Anywhere { has_message_line(text) } else { memchr::memchr(b'\r', text).is_some() };
    if is_broken || hides_lines(text) {
        return Some(Refusal::LineBreak);
    }
    escaped_nul(text).then_some(Refusal::Nul)
}

const fn is_break(b: u8) -> bool {
    matches!(b, b'\n' | b'\r')
}

/// Whether one of several lines begins with what is a message, or some of a batch, for some reader.
fn has_message_line(text: &[u8]) -> bool {
    let lines = || text.split(|b| is_break(*b)).map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let speaks = |object: &[u8]| {
        let mut fields = Fields::default();
        let read = canon::outline(object, &mut |member| fields.see(&member)).is_ok();
        let is_there = |which: usize| fields.top.found[which].is_some() || fields.top.refused[which].is_some();
        read && [METHOD, RESULT, ERROR].into_iter().any(is_there)
    };
    lines().nth(1).is_some()
        && lines().any(|line| {
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_start();
            let Ok(end) = canon::scan_at(line, 0) else { return false };
            let value = &line[..end];
            match canon::kind(value) {
                Some(Kind::Object) => speaks(value),
                Some(Kind::Array) => {
                    canon::elements(value).into_iter().flatten().flatten().any(|range| speaks(&value[range]))
                }
                _ => false,
            }
        })
}

/// Whether what is after one of Unicode's line breaks (Python's `splitlines`) looks like a message, or holds, for a
/// reader that skips what is not a message, anything that a policy would have to judge.
fn hides_lines(text: &[u8]) -> bool {
    if text.is_ascii() {
        return false;
    }
    let breaks = [&"\u{85}".as_bytes(), &"\u{2028}".as_bytes(), &"\u{2029}".as_bytes()];
    let mut first = None::<usize>;
    for brk in breaks {
        for at in memchr::memmem::find_iter(text, brk) {
            let rest = text[at + brk.len()..].trim_ascii_start();
            let rest = rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest).trim_ascii_start();
            if matches!(rest.first(), Some(b'{' | b'[')) {
                return true;
            }
            first = Some(first.map_or(at, |first| first.min(at)));
        }
    }
    first.is_some_and(|at| names_reviewed(&text[at..]))
}

/// Whether one of the reviewed methods is named anywhere in a part of a message, however it is spelt there.
fn names_reviewed(part: &[u8]) -> bool {
    let part = String::from_utf8_lossy(part);
    // An escaped control character is one for some readers, and a letter for careless ones.
    [true, false].into_iter().any(|strict| {
        let spelt: String = alike::spelt(&part, strict).collect();
        Reviewed::always().any(|r| spelt.contains(&alike::spelt(r.method, strict).collect::<String>()))
    })
}

/// Whether an escape means U+0000: what follows it is not there for a reader that ends strings so.
fn escaped_nul(text: &[u8]) -> bool {
    if memchr::memchr(b'\\', text).is_none() {
        return false;
    }
    memchr::memmem::find_iter(text, b"\\u0000").any(|at| {
        let before = text[..at].iter().rev().take_while(|b| **b == b'\\').count();
        before % 2 == 0
    })
}

fn batch(text: &[u8], whole: Option<Refusal>) -> Reading<'_> {
    let refused = |refusal| Reading::One(Item::unread(ItemKind::Unreadable, refusal));
    let Ok(elements) = canon::elements(text) else { return refused(Refusal::Malformed) };
    let mut items = Vec::new();
    for element in elements {
        let Ok(range) = element else { return refused(Refusal::Malformed) };
        if items.len() == MAX_BATCH {
            return too_many(text);
        }
        let element = &text[range];
        items.push(match canon::kind(element) {
            Some(Kind::Object) => object(element, whole),
            _ => Item::unread(ItemKind::Unreadable, Refusal::Shape),
        });
    }
    if items.is_empty() {
        return refused(Refusal::BadBatch);
    }
    Reading::Batch(items)
}

fn too_many(text: &[u8]) -> Reading<'_> {
    let mut ids = Vec::new();
    for range in canon::elements(text).into_iter().flatten().flatten() {
        let item = object(&text[range], None);
        let Some(id) = item.id.filter(|_| item.kind == ItemKind::Request) else { continue };
        if ids.len() == MAX_ANSWERED {
            return Reading::TooMany(ids, false);
        }
        ids.push(id);
    }
    Reading::TooMany(ids, true)
}

/// Reads one object. `whole` is what is already known to be wrong with all of it.
fn object(text: &[u8], whole: Option<Refusal>) -> Item<'_> {
    let mut fields = Fields::default();
    match canon::outline(text, &mut |member| fields.see(&member)) {
        Ok(_) => item(&fields, whole),
        Err(_) => Item::unread(ItemKind::Unreadable, Refusal::Malformed),
    }
}

fn item<'a>(fields: &Fields<'a>, whole: Option<Refusal>) -> Item<'a> {
    let [id, method, params, result, error, _] = fields.top.found;
    let scalar = id.filter(|id| is_scalar(id));
    let answers = usize::from(result.is_some()) + usize::from(error.is_some());
    let mut item = Item { id: scalar, kind: ItemKind::Response, refused: whole, review: None, method, params };
    if method.is_some() {
        item.kind = if scalar.is_some() { ItemKind::Request } else { ItemKind::Notification };
    }
    let refused = whole.or_else(|| fields.top.any_refused()).or_else(|| {
        if id.is_some() && scalar.is_none() {
            return Some(Refusal::BadId);
        }
        match (method.is_some(), answers) {
            (true, 0) => None,
            (false, 1) if scalar.is_some() => None,
            _ => Some(Refusal::Shape),
        }
    });
    if method.is_none() && answers == 0 {
        // It may be a request whose method is written differently: its sender waits for an answer.
        item.kind = if scalar.is_some() { ItemKind::Request } else { ItemKind::Unreadable };
    } else if method.is_some() && id.is_some() && scalar.is_none() {
        item.kind = ItemKind::Unreadable;
    }
    item.refused = refused;
    if refused.is_none() && method.is_some() {
        match review(fields) {
            Ok(review) => item.review = review,
            Err(refusal) => item.refused = Some(refusal),
        }
    }
    item
}

const TOP: [&str; 6] = ["id", "method", "params", "result", "error", "jsonrpc"];
const ID: usize = 0;
const METHOD: usize = 1;
const PARAMS: usize = 2;
const RESULT: usize = 3;
const ERROR: usize = 4;
const INNER: [&str; 3] = ["name", "arguments", "uri"];
const URI: usize = 2;

/// The members that are looked for in one object: the last of each name, and why the object cannot pass where the name
/// is that name for some reader and not for another.
#[derive(Debug, Clone, Copy)]
struct Names<'a, const N: usize> {
    found: [Option<&'a [u8]>; N],
    refused: [Option<Refusal>; N],
}

impl<const N: usize> Default for Names<'_, N> {
    fn default() -> Self {
        Self { found: [None; N], refused: [None; N] }
    }
}

impl<'a, const N: usize> Names<'a, N> {
    /// Looks at one member of the object; the number of its name, if it is wanted.
    fn look(&mut self, names: &[&str; N], member: &Outlined<'a>) -> Option<usize> {
        let spelt = member.raw_key.get(1..member.raw_key.len() - 1).unwrap_or_default();
        if !member.escaped && spelt.iter().all(u8::is_ascii_lowercase) {
            // All that are looked for are such words, so what is not the same is not alike.
            let is = names.iter().position(|name| name.as_bytes() == spelt)?;
            return Some(self.find(is, member.value));
        }
        let Some(key) = canon::decode_string(member.raw_key) else {
            self.refused.iter_mut().for_each(|refused| *refused = refused.or(Some(Refusal::LoneSurrogate)));
            return None;
        };
        let is_like = |name: &&str| alike::is_like(&key, name) || alike::is_misread_as(member.raw_key, name);
        let is = names.iter().position(is_like)?;
        if key != names[is] {
            self.refused[is] = self.refused[is].or(Some(Refusal::FoldedName));
            return None;
        }
        // It would have been found above.
        self.refused[is] = self.refused[is].or(Some(Refusal::EscapedName));
        Some(self.find(is, member.value))
    }

    fn find(&mut self, is: usize, value: &'a [u8]) -> usize {
        if self.found[is].replace(value).is_some() {
            self.refused[is] = self.refused[is].or(Some(Refusal::DuplicateKey));
        }
        is
    }

    fn any_refused(&self) -> Option<Refusal> {
        self.refused.iter().copied().flatten().next()
    }
}

/// The wanted members of a message, gathered while it is scanned, because it may be long.
#[derive(Debug, Default)]
struct Fields<'a> {
    top: Names<'a, 6>,
    /// Members of the object `params`.
    params: Names<'a, 3>,
    /// Members of the object that is the value of the member being scanned.
    inner: Names<'a, 3>,
}

impl<'a> Fields<'a> {
    fn see(&mut self, member: &Outlined<'a>) {
        if member.depth > 1 {
            self.inner.look(&INNER, member);
            return;
        }
        let inner = std::mem::take(&mut self.inner);
        if self.top.look(&TOP, member) == Some(PARAMS) {
            self.params = inner;
        }
    }
}

fn is_scalar(id: &[u8]) -> bool {
    id.len() <= MAX_ID && matches!(canon::kind(id), Some(Kind::String | Kind::Number | Kind::Null))
}

/// Whether a name, with its quotes, is short enough to be compared.
const fn is_comparable(raw: &[u8]) -> bool {
    raw.len() <= MAX_NAME
}

/// The part of a request or notification that a policy has to judge.
fn review<'a>(fields: &Fields<'a>) -> Result<Option<Review<'a>>, Refusal> {
    let raw = fields.top.found[METHOD].filter(|raw| is_comparable(raw)).ok_or(Refusal::BadMethod)?;
    let method = canon::decode_string(raw).ok_or(Refusal::BadMethod)?;
    let params = fields.top.found[PARAMS];
    let names = || Reviewed::always().map(|reviewed| reviewed.method);
    let Some(reviewed) = names().find(|name| method == *name) else {
        let is_almost = names().any(|name| alike::is_like(&method, name) || alike::is_misread_as(raw, name));
        return if is_almost { Err(Refusal::BadMethod) } else { Ok(None) };
    };
    let params = params.filter(|p| canon::kind(p) == Some(Kind::Object)).ok_or(Refusal::BadParams)?;
    let Names { found: [name, arguments, _], refused } = fields.params;
    if reviewed != envelope::TOOLS_CALL {
        if let Some(refusal) = refused[URI] {
            return Err(refusal);
        }
        folded_arguments(params)?;
        return Ok(Some(Review { tool: Cow::Borrowed(reviewed), arguments: Some(params) }));
    }
    if let Some(refusal) = refused[..URI].iter().copied().flatten().next() {
        return Err(refusal);
    }
    let raw = name.filter(|raw| is_comparable(raw)).ok_or(Refusal::BadToolName)?;
    let tool = canon::decode_string(raw).filter(|name| is_plain(name)).ok_or(Refusal::BadToolName)?;
    if let Some(arguments) = arguments {
        if canon::kind(arguments) != Some(Kind::Object) {
            return Err(Refusal::BadArguments);
        }
        folded_arguments(arguments)?;
    }
    Ok(Some(Review { tool, arguments }))
}

fn folded_arguments(arguments: &[u8]) -> Result<(), Refusal> {
    if folding::has_twins(arguments) { Err(Refusal::FoldedName) } else { Ok(()) }
}

/// Whether a tool name shows what it is: no blanks around it, and no invisible characters in it.
fn is_plain(name: &str) -> bool {
    let unseen = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}')
    };
    !name.is_empty() && name.trim() == name && !name.chars().any(unseen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;

    fn refused(text: &str, breaks: LineBreaks) -> Option<Refusal> {
        match read(text.as_bytes(), breaks) {
            Reading::One(item) => {
                assert_eq!(item.refused.is_none(), item.review.is_some(), "a call that passes is reviewed: {text}");
                item.refused
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn line_breaks_pass_where_the_carrier_has_no_lines() {
        use LineBreaks::{Anywhere, AtEnd, Nowhere};
        let broken = CALL.replace(',', "\r\n ,\n");
        for (text, breaks, expected) in [
            (CALL.to_owned(), AtEnd, None),
            (CALL.to_owned(), Nowhere, None),
            (CALL.to_owned(), Anywhere, None),
            (format!("{CALL}\r"), AtEnd, None),
            (format!("{CALL}\r"), Nowhere, Some(Refusal::LineBreak)),
            (format!("\r\n{CALL}\r\n\n"), Anywhere, None),
            (CALL.replace(',', "\r,"), AtEnd, Some(Refusal::LineBreak)),
            (broken.clone(), Nowhere, Some(Refusal::LineBreak)),
            (broken, Anywhere, None),
        ] {
            assert_eq!(refused(&text, breaks), expected, "{breaks:?} {text}");
        }
        assert!(matches!(read(b" \r\n \n", Anywhere), Reading::Blank));
        assert!(matches!(read(b"\n", Nowhere), Reading::One(_)));
    }

    #[test]
    fn no_line_of_a_message_is_one_for_a_reader_of_lines() {
        let around = |line: &str| {
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"t\",\"arguments\":{{\"a\":\n{line}\n}}}}}}"
            )
        };
        for (line, hides) in [
            ("1", false),
            (r#"{"path":"x"}"#, false),
            (r#"[{"path":"x"},{"edits":["method"]}]"#, false),
            (CALL, true),
            (r#"  {"method":"ping"}  "#, true),
            (r#"{"Method":"tools/call"},"b":1"#, true),
            (r#"{"m\u0065thod":"tools/call"}"#, true),
            (r#"[1,{"id":1,"result":{}}]"#, true),
            (r#"[{"x":1},{"error":{}}]"#, true),
        ] {
            for breaks in ["\n", "\r", "\r\n"] {
                let text = around(line).replace('\n', breaks);
                let expected = hides.then_some(Refusal::LineBreak);
                assert_eq!(refused(&text, LineBreaks::Anywhere), expected, "{text}");
            }
        }
    }
}
