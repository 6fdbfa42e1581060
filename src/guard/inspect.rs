//! The strictest reading of a client's message, so that no server can read more into it than the guard did.
//!
//! Servers differ in what they take for a call: some compare member names without regard to case, some take the last of two
//! members, some the first, some skip a byte order mark or what stands behind a value, some end lines at a carriage return
//! or at any of Unicode's line breaks. A message is passed on only if all of these read the same in it; whatever could be
//! read as a call by one of them and as something else by us is refused, with the [`Refusal`] that says why.

use super::folding;
use crate::canon::{self, Anomalies, Kind, Outlined};
use std::borrow::Cow;

/// Elements of a batch that are looked at; a longer one is refused.
pub const MAX_BATCH: usize = 256;
/// Requests of a longer batch that are answered one by one.
const MAX_ANSWERED: usize = 16 * MAX_BATCH;
/// Raw bytes of an id; a longer one is refused.
const MAX_ID: usize = 1024;
/// Raw bytes of a method or tool name; a longer one is refused.
const MAX_NAME: usize = 8 * 1024;

/// Why a message is refused before any policy looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It is no JSON, or no JSON-RPC message.
    Malformed,
    /// A byte order mark stands before it.
    ByteOrderMark,
    /// A carriage return, or one of Unicode's line breaks with something like a message behind it, stands inside.
    LineBreak,
    /// Two members of one object have one name.
    DuplicateKey,
    /// Two argument names, or a name of the protocol and a member's, differ in case only.
    FoldedName,
    /// A name of the protocol is written with escapes.
    EscapedName,
    /// It holds bytes that are not UTF-8.
    InvalidUtf8,
    /// An escape names half of a surrogate pair.
    LoneSurrogate,
    /// It holds U+0000.
    Nul,
    /// It is nested too deeply.
    TooDeep,
    /// It has more members than can be compared.
    TooManyMembers,
    /// It is longer than `--max-message`.
    TooLarge,
    /// It is both a request and a response, or neither.
    Shape,
    /// A response that no request waits for.
    AnswersNothing,
    /// An id that is neither a string, a number nor null.
    BadId,
    /// A method that is no string, or almost the name of another.
    BadMethod,
    /// `params` that is no object where one is needed.
    BadParams,
    /// A tool name that is missing, no string, or framed by what cannot be seen.
    BadToolName,
    /// `arguments` that is no object.
    BadArguments,
    /// A batch without elements, or with too many.
    BadBatch,
    /// More requests are in flight than are followed.
    TooManyInFlight,
    /// The recorder could not record what would pass.
    RecorderUnavailable,
}

impl Refusal {
    /// The machine word behind `guard:`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::ByteOrderMark => "byte_order_mark",
            Self::LineBreak => "line_break",
            Self::DuplicateKey => "duplicate_key",
            Self::FoldedName => "folded_name",
            Self::EscapedName => "escaped_name",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::LoneSurrogate => "lone_surrogate",
            Self::Nul => "nul",
            Self::TooDeep => "too_deep",
            Self::TooManyMembers => "too_many_members",
            Self::TooLarge => "too_large",
            Self::Shape => "shape",
            Self::AnswersNothing => "answers_nothing",
            Self::BadId => "bad_id",
            Self::BadMethod => "bad_method",
            Self::BadParams => "bad_params",
            Self::BadToolName => "bad_tool_name",
            Self::BadArguments => "bad_arguments",
            Self::BadBatch => "bad_batch",
            Self::TooManyInFlight => "too_many_in_flight",
            Self::RecorderUnavailable => "recorder_unavailable",
        }
    }

    /// What a person is told.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Malformed => "the message is not one JSON-RPC message",
            Self::ByteOrderMark => "a byte order mark stands before the message",
            Self::LineBreak => "a line break inside the message could make two of it",
            Self::DuplicateKey => "a member name occurs twice in one object",
            Self::FoldedName => "two member names differ in case only",
            Self::EscapedName => "a member name of the protocol is written with escapes",
            Self::InvalidUtf8 => "the message is not UTF-8",
            Self::LoneSurrogate => "an escape names half of a surrogate pair",
            Self::Nul => "the message holds U+0000",
            Self::TooDeep => "the message is nested too deeply",
            Self::TooManyMembers => "the message has too many members",
            Self::TooLarge => "the message is too large",
            Self::Shape => "the message is neither a request, a notification nor a response",
            Self::AnswersNothing => "the response answers no request",
            Self::BadId => "the id is neither a string nor a number",
            Self::BadMethod => "the method is no name, or almost that of another",
            Self::BadParams => "the parameters are not an object",
            Self::BadToolName => "the tool name is missing or hides characters",
            Self::BadArguments => "the arguments are not an object that all readers read alike",
            Self::BadBatch => "a batch has from 1 to 256 elements",
            Self::TooManyInFlight => "too many requests wait for their responses",
            Self::RecorderUnavailable => "no tool call passes while it cannot be recorded",
        }
    }
}

/// What kind of message an [`Item`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// It wants an answer.
    Request,
    /// It does not.
    Notification,
    /// It is one.
    Response,
    /// Nobody can tell, or its id cannot be read: whoever sent it may wait for an answer, which has the id `null`
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
    /// What it is.
    pub shape: Shape,
    /// Why it cannot pass, whatever the policy says.
    pub refused: Option<Refusal>,
    /// What the policy is asked.
    pub review: Option<Review<'a>>,
}

/// One line or framed body, read.
#[derive(Debug)]
pub enum Reading<'a> {
    /// White space: no message, and nobody takes it for one.
    Blank,
    /// One message.
    One(Item<'a>),
    /// The elements of a batch.
    Batch(Vec<Item<'a>>),
    /// A batch of more than [`MAX_BATCH`]: the ids of its requests, and whether all of them are there.
    TooMany(Vec<&'a [u8]>, bool),
}

impl Item<'_> {
    /// What is refused without having been read.
    const fn unread(shape: Shape, refusal: Refusal) -> Self {
        Self { id: None, shape, refused: Some(refusal), review: None }
    }
}

/// Reads a client's line, without its newline.
#[must_use]
pub fn read(line: &[u8]) -> Reading<'_> {
    let text = line.strip_suffix(b"\r").unwrap_or(line);
    if text.iter().all(|b| matches!(b, b' ' | b'\t')) {
        return Reading::Blank;
    }
    let mut fields = Fields::default();
    let whole = match syntax(text, &mut fields) {
        Ok(anomalies) => anomalous(text, anomalies),
        Err(refusal) => return Reading::One(Item::unread(unreadable(text), refusal)),
    };
    match canon::kind(text) {
        Some(Kind::Array) => batch(text, whole),
        Some(Kind::Object) => Reading::One(item(&fields, whole)),
        _ => Reading::One(Item::unread(Shape::Unreadable, whole.unwrap_or(Refusal::Shape))),
    }
}

/// What a line is that is no JSON. One that does not even begin like a message is no attempt at one: whoever writes such lines
/// reads no answers, and might answer each of them with another such line.
fn unreadable(text: &[u8]) -> Shape {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    if matches!(text.first(), Some(b'{' | b'[')) { Shape::Unreadable } else { Shape::Notification }
}

/// What a scan says of the text, and the fields of the object that it is; why it is no JSON.
fn syntax<'a>(text: &'a [u8], fields: &mut Fields<'a>) -> Result<Anomalies, Refusal> {
    if text.starts_with(b"\xef\xbb\xbf") {
        return Err(Refusal::ByteOrderMark);
    }
    let scanned = canon::outline(text, &mut |member| fields.see(&member));
    scanned.map_err(|_| if memchr::memchr(0, text).is_some() { Refusal::Nul } else { Refusal::Malformed })
}

/// What is wrong with the text as a whole, although it is JSON.
fn anomalous(text: &[u8], anomalies: Anomalies) -> Option<Refusal> {
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
    if memchr::memchr(b'\r', text).is_some() || hides_lines(text) {
        return Some(Refusal::LineBreak);
    }
    escaped_nul(text).then_some(Refusal::Nul)
}

/// Whether what stands behind one of Unicode's line breaks (Python's `splitlines`) looks like a message, or holds, for a reader
/// who passes over what is none, anything that a policy would have to judge.
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
        let spelt: String = folding::spelt(&part, strict).collect();
        REVIEWED.iter().any(|name| spelt.contains(&folding::spelt(name, strict).collect::<String>()))
    })
}

/// Whether an escape stands for U+0000: what follows it is not there for a reader that ends strings so.
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
    let refused = |refusal| Reading::One(Item::unread(Shape::Unreadable, refusal));
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
            _ => Item::unread(Shape::Unreadable, Refusal::Shape),
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
        let Some(id) = item.id.filter(|_| item.shape == Shape::Request) else { continue };
        if ids.len() == MAX_ANSWERED {
            return Reading::TooMany(ids, false);
        }
        ids.push(id);
    }
    Reading::TooMany(ids, true)
}

/// Reads one object. `whole` is what is wrong with all of it already.
fn object(text: &[u8], whole: Option<Refusal>) -> Item<'_> {
    let mut fields = Fields::default();
    match canon::outline(text, &mut |member| fields.see(&member)) {
        Ok(_) => item(&fields, whole),
        Err(_) => Item::unread(Shape::Unreadable, Refusal::Malformed),
    }
}

fn item<'a>(fields: &Fields<'a>, whole: Option<Refusal>) -> Item<'a> {
    let [id, method, _, result, error, _] = fields.top.found;
    let scalar = id.filter(|id| is_scalar(id));
    let answers = usize::from(result.is_some()) + usize::from(error.is_some());
    let mut item = Item { id: scalar, shape: Shape::Response, refused: whole, review: None };
    if method.is_some() {
        item.shape = if scalar.is_some() { Shape::Request } else { Shape::Notification };
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
        // Perhaps a request whose method is spelt otherwise: whoever sent it waits for an answer.
        item.shape = if scalar.is_some() { Shape::Request } else { Shape::Unreadable };
    } else if method.is_some() && id.is_some() && scalar.is_none() {
        item.shape = Shape::Unreadable;
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

/// Methods that a policy judges.
const REVIEWED: [&str; 3] = ["tools/call", "resources/read", "sampling/createMessage"];

const TOP: [&str; 6] = ["id", "method", "params", "result", "error", "jsonrpc"];
const ID: usize = 0;
const METHOD: usize = 1;
const PARAMS: usize = 2;
const INNER: [&str; 3] = ["name", "arguments", "uri"];
const URI: usize = 2;

/// The members that are looked for in one object: the last of each name, and why the object cannot pass where the name is
/// that name for some reader and not for another.
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
    /// Looks at one of its members; the number of the name, if it is one.
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
        let is_like = |name: &&str| folding::is_like(&key, name) || folding::is_misread_as(member.raw_key, name);
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

/// What is looked at of a message, gathered while it is scanned: what it holds may be long.
#[derive(Debug, Default)]
struct Fields<'a> {
    top: Names<'a, 6>,
    /// Of `params`.
    params: Names<'a, 3>,
    /// Of the object that is the value of the member being scanned.
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

/// What of a request or notification a policy has to judge.
fn review<'a>(fields: &Fields<'a>) -> Result<Option<Review<'a>>, Refusal> {
    let raw = fields.top.found[METHOD].filter(|raw| raw.len() <= MAX_NAME).ok_or(Refusal::BadMethod)?;
    let method = canon::decode_string(raw).ok_or(Refusal::BadMethod)?;
    let params = fields.top.found[PARAMS];
    let Some(reviewed) = REVIEWED.iter().find(|name| method == **name) else {
        let is_almost =
            REVIEWED.iter().any(|name| folding::is_like(&method, name) || folding::is_misread_as(raw, name));
        return if is_almost { Err(Refusal::BadMethod) } else { Ok(None) };
    };
    let params = params.filter(|p| canon::kind(p) == Some(Kind::Object)).ok_or(Refusal::BadParams)?;
    let Names { found: [name, arguments, _], refused } = fields.params;
    if *reviewed != "tools/call" {
        if let Some(refusal) = refused[URI] {
            return Err(refusal);
        }
        folded_arguments(params)?;
        return Ok(Some(Review { tool: Cow::Borrowed(reviewed), arguments: Some(params) }));
    }
    if let Some(refusal) = refused[..URI].iter().copied().flatten().next() {
        return Err(refusal);
    }
    let raw = name.filter(|raw| raw.len() <= MAX_NAME).ok_or(Refusal::BadToolName)?;
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

/// A tool name that shows what it is: no blanks around it, nothing in it that cannot be seen.
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

/// A server's message.
#[derive(Debug)]
pub struct Said<'a> {
    /// Raw id.
    pub id: Option<&'a [u8]>,
    /// Request, notification or response.
    pub shape: Shape,
    /// Raw parameters.
    pub params: Option<&'a [u8]>,
    /// Whether it wants the client's model to speak.
    pub sampling: Sampling,
}

/// Whether a server's message is one that a policy has to judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// For no client.
    No,
    /// For every client.
    Asked,
    /// For some clients, or nobody can tell.
    Doubtful(Refusal),
}

/// The one method of a server that a policy judges.
pub const SAMPLING: &str = REVIEWED[2];

/// Reads a server's message that is no batch; `None` if it is none. What a result holds is a client's business.
#[must_use]
pub fn said(text: &[u8]) -> Option<Said<'_>> {
    let mut fields = Fields::default();
    canon::outline(text, &mut |member| fields.see(&member)).ok()?;
    if canon::kind(text) != Some(Kind::Object) {
        return None;
    }
    let Names { found: [id, method, params, result, error, _], refused } = fields.top;
    let answers = result.is_some() || error.is_some();
    let shape = match (method, id) {
        (Some(_), Some(_)) => Shape::Request,
        (Some(_), None) => Shape::Notification,
        (None, _) if answers => Shape::Response,
        // Perhaps a request whose method is spelt otherwise.
        (None, Some(_)) if refused[METHOD].is_some() => Shape::Request,
        (None, None) if refused[METHOD].is_some() => Shape::Notification,
        (None, _) => return None,
    };
    let raw = method.filter(|raw| raw.len() <= MAX_NAME);
    let is_misread = raw.is_some_and(|raw| folding::is_misread_as(raw, SAMPLING));
    let name = raw.and_then(canon::decode_string);
    let sampling = match name.filter(|name| is_misread || folding::is_like(name, SAMPLING)) {
        _ if refused[METHOD].is_some() => Sampling::Doubtful(Refusal::BadMethod),
        // What is too long to be compared may be that name, padded.
        None if method.is_some_and(|raw| raw.len() > MAX_NAME) => Sampling::Doubtful(Refusal::BadMethod),
        None => Sampling::No,
        Some(name) if name != SAMPLING => Sampling::Doubtful(Refusal::BadMethod),
        Some(_) if answers => Sampling::Doubtful(Refusal::Shape),
        Some(_) => refused[ID].or(refused[PARAMS]).map_or(Sampling::Asked, Sampling::Doubtful),
    };
    Some(Said { id, shape, params, sampling })
}

/// What the beginning of a server's message shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// It is an answer: the value that may be long is its `result` or `error`. Of a batch: its first element is one.
    Answer,
    /// Nothing yet.
    Open,
    /// It is, or may be, anything else.
    Other,
}

/// Looks at what there is of a server's message that has not ended.
#[must_use]
pub fn beginning(start: &[u8]) -> Beginning {
    let start = start.trim_ascii_start();
    let start = start.strip_prefix(b"[").map_or(start, <[u8]>::trim_ascii_start);
    let Some(mut rest) = start.strip_prefix(b"{") else {
        return if start.is_empty() { Beginning::Open } else { Beginning::Other };
    };
    loop {
        let member = rest.trim_ascii_start();
        let Ok(name_end) = canon::scan_at(member, 0) else { return Beginning::Open };
        match canon::decode_string(&member[..name_end]).as_deref() {
            Some("result" | "error") => return Beginning::Answer,
            Some("jsonrpc" | "id") => {}
            _ => return Beginning::Other,
        }
        let Some(value) = member[name_end..].trim_ascii_start().strip_prefix(b":") else { return Beginning::Open };
        let Ok(value_end) = canon::scan_at(value, 0) else { return Beginning::Open };
        let Some(next) = value[value_end..].trim_ascii_start().strip_prefix(b",") else { return Beginning::Open };
        rest = next;
    }
}

/// The id of a message of which only the beginning and the end are known.
#[must_use]
pub fn id_of_parts<'a>(head: &'a [u8], tail: &'a [u8]) -> Option<&'a [u8]> {
    let first = canon::members(head).ok().and_then(|members| {
        members.map_while(Result::ok).find(|m| m.key.as_deref() == Some("id")).map(|m| &head[m.value])
    });
    // A value that ends where the part does may go on behind it.
    let first =
        first.filter(|id| is_scalar(id) && (id.as_ptr() as usize + id.len()) < head.as_ptr() as usize + head.len());
    first.or_else(|| {
        let tail = tail.trim_ascii_end().strip_suffix(b"}")?;
        let at = memchr::memmem::rfind(tail, b"\"id\":")?;
        let before = tail[..at].trim_ascii_end().last();
        let id = tail[at + 5..].trim_ascii();
        let whole = canon::scan(id).is_ok() && is_scalar(id);
        (whole && matches!(before, Some(b',' | b'{'))).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_answer_shows_it() {
        use Beginning::{Answer, Open, Other};
        for (start, shows) in [
            ("", Open),
            (" [ ", Open),
            ("{\"jsonrpc\":\"2.", Open),
            ("{\"id\":1", Open),
            ("{\"id\":1,\"res", Open),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\"", Answer),
            (" [{\"id\":\"a\" , \"error\":{", Answer),
            ("{\"result\":{\"content\":[", Answer),
            ("{\"method\":\"x\",\"result\":1", Other),
            ("{\"id\":1,\"params\":{", Other),
            ("{\"id\":1,\"Method\":{", Other),
            ("noise", Other),
        ] {
            assert_eq!(beginning(start.as_bytes()), shows, "{start}");
        }
    }

    #[test]
    fn what_some_client_takes_for_sampling_is_never_nothing() {
        use Sampling::{Asked, Doubtful, No};
        for (said, sampling) in [
            (r#"{"id":1,"method":"sampling/createMessage","params":{}}"#, Some(Asked)),
            (r#"{"method":"sampling\/createMessage"}"#, Some(Asked)),
            (r#"{"id":1,"method":"Sampling/CreateMessage"}"#, Some(Doubtful(Refusal::BadMethod))),
            (r#"{"id":1,"method":"ping","Method":"sampling/createMessage"}"#, Some(Doubtful(Refusal::BadMethod))),
            (r#"{"id":1,"m\u0065thod":"sampling/createMessage"}"#, Some(Doubtful(Refusal::BadMethod))),
            (r#"{"id":1,"method":"sampling/createMessage","method":"ping"}"#, Some(Doubtful(Refusal::BadMethod))),
            (
                r#"{"id":1,"method":"sampling/createMessage","params":{},"Params":{}}"#,
                Some(Doubtful(Refusal::FoldedName)),
            ),
            (r#"{"id":1,"method":"sampling/createMessage","result":{}}"#, Some(Doubtful(Refusal::Shape))),
            (r#"{"id":1,"result":{"Method":1,"method":"sampling/createMessage","a":1,"a":2}}"#, Some(No)),
            (r#"{"id":1,"method":"elicitation/create","params":{"method":"sampling/createMessage"}}"#, Some(No)),
            (r#"{"Method":"sampling/createMessage","id":1}"#, Some(Doubtful(Refusal::BadMethod))),
            (r#"{"_method":"ping"}"#, Some(Doubtful(Refusal::BadMethod))),
            (r#"{"id":1,"methods":"sampling/createMessage"}"#, None),
            ("[]", None),
            ("{", None),
        ] {
            assert_eq!(super::said(said.as_bytes()).map(|s| s.sampling), sampling, "{said}");
        }
        for (padding, sampling) in [(2000, Sampling::No), (10_000, Sampling::Doubtful(Refusal::BadMethod))] {
            let said = format!(r#"{{"id":1,"method":"{}sampling/other"}}"#, "x".repeat(padding));
            assert_eq!(super::said(said.as_bytes()).map(|s| s.sampling), Some(sampling), "{padding}");
        }
    }
}
