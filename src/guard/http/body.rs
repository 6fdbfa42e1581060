//! The body of an answer on its way to the client: each message is held to its end and judged, and what does not pass is
//! taken out. What passes, passes as it came, but for what of the server's surface is cut out of it.

use super::{
    AnswerFacts, AnswerForm, AnswerMessage, Asked, Desk, HttpReply, HttpRuling, Pace, Passing, begins_like_json, pace,
    review_answer,
};
use crate::{
    canon,
    guard::{
        Refusal, Session,
        inspect::{ends::Ends, server::STREAM_AT},
        surface::{Came, Instead},
    },
    model::Direction,
    record::rulings::RulingRecord,
    sse::{Framer, Item},
    sys::clock,
};
use std::{mem, ops::Range, sync::Arc};

/// Bytes of one event, with comments and all, that are held at most.
const MOST_RAW: usize = 8 << 20;
/// Bytes of a listing that are held at most, and of one event with it.
const MOST_LISTED: usize = 16 << 20;
/// Bytes that are judged at once on a thread that moves bytes; more are judged beside it.
const LONG: usize = 256 << 10;
/// How much longer a message has to be before it is looked at again.
const STEP: usize = 64 << 10;

/// Takes what passes, and how many bytes of the upstream's body are settled with it.
pub type Out<'a> = &'a mut dyn FnMut(Vec<u8>, u64);

/// What becomes of the head of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// It waits: the body may be a message that does not pass.
    Held,
    /// It passes.
    Passes,
    /// It passes, and the body has so many bytes: something was cut out of it.
    Resized(u64),
    /// This is sent in the place of head and body.
    Replaced(HttpReply),
}

/// The body of one answer.
pub struct AnswerBody {
    session: Arc<Session>,
    form: AnswerForm,
    /// The body claims to be a message.
    declared: bool,
    /// Bytes of the body that were taken.
    at: u64,
    /// The last of them, which have not passed.
    held: Vec<u8>,
    /// The data of the event that is being read.
    data: Vec<u8>,
    framer: Framer,
    mode: Mode,
    /// Bytes of the message at which it is looked at.
    next_look: usize,
    replies: Vec<Vec<u8>>,
    /// What the client had asked.
    asked: Asked,
    head: Head,
    /// The client has got something of an event stream.
    has_begun: bool,
    /// An event of the stream may become shorter or longer.
    resizes: bool,
}

/// What becomes of the message that is being read.
#[derive(Debug)]
enum Mode {
    Hold,
    Stream(Passing),
    Refuse(Passing),
    /// Some of it has passed, and the rest does not: bytes that are no message take its place.
    Cut(Passing, Refusal),
}

/// Where an event is, and whether it claims to be a message.
struct Found {
    declared: bool,
    start: u64,
    end: u64,
}

impl AnswerBody {
    /// The body of an answer whose head [passes](super::review_answer_head) in this form.
    #[must_use]
    pub fn new(facts: &AnswerFacts<'_>, form: AnswerForm, asked: Asked, session: Arc<Session>) -> Self {
        Self {
            resizes: form == AnswerForm::Events && session.awaits_any_listing(),
            session,
            form,
            declared: form == AnswerForm::Json && (200..300).contains(&facts.status),
            at: 0,
            held: Vec::new(),
            data: Vec::new(),
            framer: Framer::default(),
            mode: Mode::Hold,
            next_look: STREAM_AT,
            replies: Vec::new(),
            asked,
            head: match form {
                AnswerForm::Json | AnswerForm::Unknown => Head::Held,
                AnswerForm::Events | AnswerForm::Nothing => Head::Passes,
            },
            has_begun: false,
        }
    }

    /// Whether an event of the stream may become shorter or longer, and so the body.
    #[must_use]
    pub const fn resizes(&self) -> bool {
        self.resizes
    }

    /// Whether much of it is held, which takes long to be judged.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.held.len() > LONG
    }

    /// Whether something may be put before what comes next: no event has passed in part.
    #[must_use]
    pub const fn is_between_events(&self) -> bool {
        matches!(self.form, AnswerForm::Events) && !matches!(self.mode, Mode::Stream(_) | Mode::Cut(..))
    }

    /// Bodies to POST upstream with the session, the credentials and the version of the exchange: errors for the
    /// server's requests that did not pass.
    pub fn replies(&mut self) -> Vec<Vec<u8>> {
        mem::take(&mut self.replies)
    }

    /// What becomes of the head, after what was taken so far.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head.clone()
    }

    /// Takes a piece of the body. The judge may wait for a name to be resolved.
    pub fn push(&mut self, piece: &[u8], desk: &mut dyn Desk, out: Out<'_>) {
        match self.form {
            AnswerForm::Events => {
                let mut rest = piece;
                while !rest.is_empty() {
                    let end = memchr::memchr2(b'\r', b'\n', rest).map_or(rest.len(), |at| at + 1);
                    self.line(&rest[..end], desk, out);
                    rest = &rest[end..];
                }
            }
            AnswerForm::Json => self.json(piece, desk, out),
            AnswerForm::Nothing => {
                self.at += piece.len() as u64;
                out(piece.to_vec(), self.at);
            }
            AnswerForm::Unknown => {
                self.held.extend_from_slice(piece);
                if let Some(is_json) = begins_like_json(&self.held) {
                    self.form = if is_json { AnswerForm::Json } else { AnswerForm::Nothing };
                    if !is_json {
                        self.head = Head::Passes;
                    }
                    let held = mem::take(&mut self.held);
                    self.push(&held, desk, out);
                }
            }
        }
    }

    /// The body has ended, whole or not.
    pub fn finish(&mut self, desk: &mut dyn Desk, out: Out<'_>) {
        let is_message = match self.form {
            AnswerForm::Json => true,
            // Some readers take what is cut off for an event.
            AnswerForm::Events => self.framer.has_data() || self.hides(&self.held, &[], desk),
            AnswerForm::Unknown | AnswerForm::Nothing => false,
        };
        if is_message {
            let found = match self.form {
                AnswerForm::Json => Found { declared: self.declared, start: 0, end: self.at },
                _ => Found { declared: false, start: self.at - self.held.len() as u64, end: self.at },
            };
            self.whole(&found, desk, out);
        } else if !self.held.is_empty() {
            if self.form == AnswerForm::Unknown {
                self.at += self.held.len() as u64;
            }
            out(mem::take(&mut self.held), self.at);
        }
        if self.head == Head::Held {
            self.head = Head::Passes;
        }
    }

    fn json(&mut self, piece: &[u8], desk: &mut dyn Desk, out: Out<'_>) {
        self.at += piece.len() as u64;
        match &mut self.mode {
            Mode::Hold => {
                self.held.extend_from_slice(piece);
                self.look(desk, out);
            }
            Mode::Stream(passing) => {
                let came = Came { exchange: desk.exchange(), own: &self.asked.ids };
                let cut = passing.follow(piece, came, &self.session);
                out(filled(piece, cut.map_or(piece.len(), |(passes, _)| passes)), self.at);
                self.cut(cut, 0, desk);
            }
            Mode::Refuse(passing) => passing.add(piece),
            Mode::Cut(..) => out(filled(piece, 0), self.at),
        }
    }

    /// The rest of the message does not pass, if there is a reason. Of an event the recorder knows before its end, when it could
    /// not tell it from one that passed.
    fn cut(&mut self, cut: Option<(usize, Refusal)>, offset: u64, desk: &mut dyn Desk) {
        let Some((_, refusal)) = cut else { return };
        if let Mode::Stream(passing) = mem::replace(&mut self.mode, Mode::Hold) {
            self.mode = Mode::Cut(passing, refusal);
        }
        if self.form == AnswerForm::Events {
            let _ = HttpRuling::cut_off(refusal, offset, &self.session).settle(self.at, &self.session, desk);
        }
    }

    /// Takes a part of an event stream that has no end of a line in it, or one as its last byte.
    fn line(&mut self, line: &[u8], desk: &mut dyn Desk, out: Out<'_>) {
        self.at += line.len() as u64;
        match &mut self.mode {
            Mode::Hold => self.held.extend_from_slice(line),
            Mode::Stream(_) | Mode::Refuse(_) | Mode::Cut(..) => {}
        }
        let (mut found, mut is_nothing, mut cut) = (None, false, None);
        let came = Came { exchange: desk.exchange(), own: &self.asked.ids };
        let Self { framer, data, mode, session, .. } = self;
        framer.read(line, &mut |item| match (item, &mut *mode) {
            (Item::Data(piece), Mode::Hold) => data.extend_from_slice(piece),
            (Item::Data(piece), Mode::Stream(passing)) => {
                if cut.is_none() {
                    // The data of a line is its last part.
                    let end = line.strip_suffix(b"\n").or_else(|| line.strip_suffix(b"\r")).unwrap_or(line).len();
                    let found = passing.follow(piece, came, session);
                    cut = found.map(|(at, refusal)| (end.saturating_sub(piece.len()) + at, refusal));
                }
            }
            (Item::Data(piece), Mode::Refuse(passing)) => passing.add(piece),
            (Item::Data(_), Mode::Cut(..)) => {}
            (Item::Event(event), _) => {
                let declared = event.name.is_none_or(|name| name == b"message");
                found = Some(Found { declared, start: event.start, end: event.end });
            }
            (Item::Nothing, _) => is_nothing = true,
        });
        match &self.mode {
            Mode::Stream(_) => out(filled(line, cut.map_or(line.len(), |(passes, _)| passes)), self.at),
            Mode::Cut(..) => out(filled(line, 0), self.at),
            Mode::Hold | Mode::Refuse(_) => {}
        }
        self.cut(cut, self.framer.start(), desk);
        if let Some(found) = found {
            self.whole(&found, desk, out);
        } else if is_nothing && self.hides(&self.held, &[], desk) {
            let found = Found { declared: false, start: self.at - self.held.len() as u64, end: self.at };
            self.whole(&found, desk, out);
        } else if is_nothing {
            self.begin();
            self.flush(out);
        } else if self.held.len() > self.most_raw() {
            self.refuse(desk, out);
        } else if matches!(self.mode, Mode::Hold) {
            // A comment keeps a connection alive: it waits for nothing. The LF of a CRLF belongs to what has passed.
            if self.held == b"\n" || is_comment(&self.held) {
                self.flush(out);
            } else {
                self.look(desk, out);
            }
        }
    }

    fn came(&self, desk: &dyn Desk) -> Came<'_> {
        Came { exchange: desk.exchange(), own: &self.asked.ids }
    }

    fn most_raw(&self) -> usize {
        if self.session.awaits_any_listing() { MOST_LISTED } else { MOST_RAW }
    }

    /// What was read is taken out of an event stream. What follows must not become its beginning, where a byte order
    /// mark is passed over: that would make another field of a line.
    fn leave_out(&mut self, out: Out<'_>) {
        if self.form == AnswerForm::Events && !mem::replace(&mut self.has_begun, true) {
            out(b":\n".to_vec(), self.at);
        }
    }

    fn flush(&mut self, out: Out<'_>) {
        if !self.held.is_empty() {
            self.has_begun = true;
            out(mem::take(&mut self.held), self.at);
        }
    }

    /// Another message begins.
    fn begin(&mut self) {
        self.data.clear();
        self.mode = Mode::Hold;
        self.next_look = STREAM_AT;
    }

    /// Whether a part of an event stream, whose data is this for us, has a message for a reader of other lines that may
    /// not pass.
    fn hides(&self, raw: &[u8], data: &[u8], desk: &dyn Desk) -> bool {
        let messages = lenient(raw).map(|text| messages(&text)).unwrap_or_default();
        let mut others = messages.iter().filter(|text| *text != data);
        others.any(|text| self.session.is_listing(self.came(desk), text) || !self.review(text, false, 0, desk).passes())
    }

    fn review<'a>(&self, text: &'a [u8], declared: bool, offset: u64, desk: &dyn Desk) -> HttpRuling<'a> {
        review_answer(&AnswerMessage { text, offset, declared, captured: desk.is_captured() }, &self.session)
    }

    /// Whether the message goes on being held.
    fn look(&mut self, desk: &mut dyn Desk, out: Out<'_>) {
        let text = if self.form == AnswerForm::Json { &self.held } else { &self.data };
        if text.len() < self.next_look {
            return;
        }
        self.next_look = text.len() + STEP;
        let pace = match pace(text, false) {
            // No part of a listing passes before all of it was looked at.
            Pace::Stream if self.session.may_be_listing(self.came(desk), Ends::of(text)) => {
                if text.len() <= MOST_LISTED { Pace::Hold } else { Pace::Refuse }
            }
            pace => pace,
        };
        match pace {
            Pace::Hold => {}
            Pace::Stream => {
                let mut passing = Passing::begin(text);
                let cut = passing.follow(text, self.came(desk), &self.session);
                if cut.is_some() {
                    // Nothing of it has passed.
                    return self.refuse(desk, out);
                }
                self.mode = Mode::Stream(passing);
                self.head = Head::Passes;
                self.data = Vec::new();
                self.flush(out);
            }
            Pace::Refuse => self.refuse(desk, out),
        }
    }

    /// The message is too long: it is thrown away while it comes. Of an event the recorder knows before its end, when it
    /// could not tell it from one that passed.
    fn refuse(&mut self, desk: &mut dyn Desk, out: Out<'_>) {
        let is_json = self.form == AnswerForm::Json;
        let text = if is_json { &self.held } else { &self.data };
        let mut passing = Passing::begin(text);
        passing.add(text);
        if !is_json {
            let mut ruling = passing.refused(self.framer.start(), &self.session);
            let _ = ruling.settle(self.at, &self.session, desk);
        }
        self.mode = Mode::Refuse(passing);
        (self.data, self.held) = (Vec::new(), Vec::new());
        self.leave_out(out);
    }

    /// The message has ended: it passes, or is taken out.
    fn whole(&mut self, found: &Found, desk: &mut dyn Desk, out: Out<'_>) {
        let mode = mem::replace(&mut self.mode, Mode::Hold);
        let is_json = self.form == AnswerForm::Json;
        let session = Arc::clone(&self.session);
        let (held, data) = (mem::take(&mut self.held), mem::take(&mut self.data));
        let text = if is_json { &held } else { &data };
        let mut told = None;
        let mut ruling = match &mode {
            Mode::Stream(passing) => {
                passing.passed(&session);
                return self.begin();
            }
            Mode::Refuse(passing) => {
                told = passing.listing_too_long(self.came(desk), &session);
                passing.refused(found.start, &session)
            }
            Mode::Cut(passing, refusal) => {
                let told = passing.cut_off(*refusal, self.came(desk), &session);
                if is_json {
                    let _ = HttpRuling::cut_off(*refusal, found.start, &session).settle(found.end, &session, desk);
                } else if let Some(text) = told {
                    out(event(&text), self.at);
                }
                return self.begin();
            }
            Mode::Hold if !is_json && self.hides(&held, &data, desk) => HttpRuling::hides_lines(found.start, &session),
            Mode::Hold => {
                // A lenient reader may find a list in what we cannot read.
                let is_unreadable = || begins_like_json(text) == Some(true) && canon::scan(text).is_err();
                let declared = found.declared || session.awaits_any_listing() && is_unreadable();
                if let Some(instead) = session.instead(self.came(desk), text) {
                    return self.replaced(found, &instead, &held, &data, desk, out);
                }
                self.review(text, declared, found.start, desk)
            }
        };
        let is_settled = matches!(mode, Mode::Refuse(_)) && !is_json;
        let passes = if is_settled { ruling.passes() } else { ruling.settle(found.end, &session, desk) };
        self.replies.extend(ruling.upstream());
        if let Some(reply) = ruling.reply_to(&self.asked).filter(|_| is_json) {
            self.head = Head::Replaced(reply);
        }
        drop(ruling);
        if passes {
            self.has_begun = true;
            out(held, self.at);
        } else if let Some(text) = told.filter(|_| !is_json) {
            self.has_begun = true;
            out(event(&text), self.at);
        } else {
            self.leave_out(out);
            out(Vec::new(), self.at);
        }
        self.begin();
    }

    /// The client gets something else in the place of a message.
    fn replaced(
        &mut self,
        found: &Found,
        instead: &Instead,
        held: &[u8],
        data: &[u8],
        desk: &mut dyn Desk,
        out: Out<'_>,
    ) {
        let is_json = self.form == AnswerForm::Json;
        let (bytes, got) = if is_json {
            let bytes = instead.edits.apply(held);
            self.head = Head::Resized(bytes.len() as u64);
            (bytes.clone(), bytes)
        } else {
            let bytes = match parts(held, data) {
                Some(parts) => instead.edits.in_parts(&parts).apply(held),
                None => event(&instead.edits.apply(data)),
            };
            let got = messages(&bytes).pop().unwrap_or_default();
            (bytes, got)
        };
        let record = RulingRecord {
            direction: Direction::ServerToClient,
            offset: found.start,
            frame: None,
            blocked: false,
            ns: clock::mono_ns(),
            policy: self.session.policy(),
            decisions: instead.decisions(&got),
        };
        if !desk.record(found.end, &record) {
            tracing::warn!("what was cut out of an answer could not be recorded");
        }
        self.has_begun = true;
        out(bytes, self.at);
        self.begin();
    }
}

/// A piece of a body of which only the beginning passes: colons take the place of the rest, which make it no message, and no
/// field of an event.
fn filled(piece: &[u8], passes: usize) -> Vec<u8> {
    let (passes, rest) = piece.split_at(passes.min(piece.len()));
    let filler = rest.iter().map(|b| if matches!(b, b'\r' | b'\n') { *b } else { b':' });
    passes.iter().copied().chain(filler).collect()
}

/// An event with this data.
fn event(data: &[u8]) -> Vec<u8> {
    // Between the tokens of JSON, blanks are as good as line breaks.
    let line: Vec<u8> = data.iter().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b }).collect();
    [b"data: ", &line[..], b"\n\n"].concat()
}

/// The parts of the data of an event that are in its lines, each with its place there; `None` if it is not what these lines
/// are by themselves.
fn parts(raw: &[u8], data: &[u8]) -> Option<Vec<(Range<usize>, usize)>> {
    let (mut framer, mut at, mut parts) = (Framer::default(), 0, Vec::new());
    framer.read(raw, &mut |item| {
        if let Item::Data(piece) = item {
            let place = (piece.as_ptr() as usize).wrapping_sub(raw.as_ptr() as usize);
            // The line feed between two lines of data is in none of them.
            if place < raw.len() {
                parts.push((at..at + piece.len(), place));
            }
            at += piece.len();
        }
    });
    let is_there = |(part, place): &(Range<usize>, usize)| {
        data.get(part.clone()).is_some_and(|text| raw[*place..].starts_with(text))
    };
    (at == data.len() && parts.iter().all(is_there)).then_some(parts)
}

/// A part of a stream for a reader who also ends lines where Unicode does (Python's `splitlines`), and passes over byte
/// order marks wherever its pieces begin. `None`: it is the same for everybody.
fn lenient(raw: &[u8]) -> Option<Vec<u8>> {
    let is_plain = |b: &u8| b.is_ascii() && !matches!(b, 0x0b | 0x0c | 0x1c..=0x1e);
    // Without a branch for each byte, many are looked at together.
    let is_all = |block: &[u8]| block.iter().fold(true, |all, b| all & is_plain(b));
    let blocks = raw.chunks(256).take_while(|block| is_all(block)).map(<[u8]>::len).sum::<usize>();
    let first = blocks + raw[blocks..].iter().position(|b| !is_plain(b))?;
    let (mut text, mut rest, mut differs) = (raw[..first].to_vec(), &raw[first..], false);
    while let [b, ..] = rest {
        let (len, is) = match rest {
            [0x0b | 0x0c | 0x1c..=0x1e, ..] => (1, Some(&b"\n"[..])),
            [0xc2, 0x85, ..] => (2, Some(&b"\n"[..])),
            [0xe2, 0x80, 0xa8 | 0xa9, ..] => (3, Some(&b"\n"[..])),
            [0xef, 0xbb, 0xbf, ..] => (3, Some(&b""[..])),
            _ => (1, None),
        };
        differs |= is.is_some();
        text.extend_from_slice(is.unwrap_or(&[*b]));
        rest = &rest[len..];
    }
    differs.then_some(text)
}

/// The data of the events in a part of a stream, also of one that is cut off.
fn messages(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut framer, mut data, mut all) = (Framer::default(), Vec::new(), Vec::new());
    framer.read(text, &mut |item| match item {
        Item::Data(piece) => data.extend_from_slice(piece),
        Item::Event(_) => all.push(mem::take(&mut data)),
        Item::Nothing => data.clear(),
    });
    if framer.has_data() {
        all.push(data);
    }
    all
}

/// Whether it is one line, whole, that is a comment.
fn is_comment(held: &[u8]) -> bool {
    held.starts_with(b":")
        && lenient(held).is_none()
        && memchr::memchr2(b'\r', b'\n', held).is_some_and(|at| at + 1 == held.len())
}
