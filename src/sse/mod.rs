//! Event streams (`text/event-stream`), read as the HTML standard says (WHATWG HTML §9.2.6): on bytes, in pieces of any
//! size, with the place of each event in the stream.
//!
//! Lines end with CR, LF or CRLF, also where a read divides these. One byte order mark at the beginning is passed over.
//! A line without a colon is a field without a value; one blank after the colon is not part of the value; a line that
//! begins with a colon is a comment. Fields other than `data`, `event`, `id` and `retry` are ignored. An event that the
//! stream's end cuts off is none. Bytes that are not UTF-8 stay as they are.
//!
//! A name or an id is at most [`MAX_FIELD`] bytes; a longer one counts as absent. Data has no limit here: its owner gets
//! it in pieces.

/// The longest name of a field, name of an event, or id, in bytes.
pub const MAX_FIELD: usize = 4096;

const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// What a piece of a stream holds, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A piece of the data of the event that is being read. Line feeds between `data` lines are pieces of their own.
    Data(&'a [u8]),
    /// The event is whole.
    Event(Event<'a>),
    /// What was read since the last event, data included, is no event: a blank line came before any `data` line.
    Nothing,
}

/// An event, without its data.
#[derive(Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its name; `None` is `message`.
    pub name: Option<&'a [u8]>,
    /// The last id of the stream so far; empty if there is none.
    pub id: &'a [u8],
    /// Offset in the stream of the first byte of its first line.
    pub start: u64,
    /// Offset in the stream after its blank line.
    pub end: u64,
}

/// Where a line stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Line {
    /// At its beginning.
    Begin,
    /// In the name of its field.
    Name,
    /// Behind the colon, where one blank is passed over.
    Colon,
    /// In the value.
    Value(Field),
    /// In what does not matter.
    Ignored,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Field {
    Data,
    Event,
    Id,
    Retry,
    Other,
}

/// Finds the events of a stream.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Framer {
    line: Line,
    /// Bytes of the stream that were read.
    at: u64,
    /// Where the event being read began.
    start: u64,
    /// Bytes of the mark that were read; `None` behind the beginning of the stream.
    mark: Option<u8>,
    /// A CR was read, whose LF may follow.
    after_cr: bool,
    /// The name of the field, or its value; data is given away.
    text: Vec<u8>,
    field: Field,
    name: Option<Vec<u8>>,
    id: Vec<u8>,
    retry: Option<u64>,
    has_data: bool,
    /// Nothing was read since the last blank line.
    fresh: bool,
    too_long: bool,
}

impl Default for Framer {
    fn default() -> Self {
        Self {
            line: Line::Begin,
            at: 0,
            start: 0,
            mark: Some(0),
            after_cr: false,
            text: Vec::new(),
            field: Field::Other,
            name: None,
            id: Vec::new(),
            retry: None,
            has_data: false,
            fresh: true,
            too_long: false,
        }
    }
}

impl Framer {
    /// The reconnection time that the stream asked for last, ms.
    #[must_use]
    pub const fn retry_ms(&self) -> Option<u64> {
        self.retry
    }

    /// The last id that the stream gave.
    #[must_use]
    pub fn last_id(&self) -> &[u8] {
        &self.id
    }

    /// Whether the data of an event has begun.
    #[must_use]
    pub const fn has_data(&self) -> bool {
        self.has_data
    }

    /// Offset in the stream of the first byte of the first line of the event that is being read.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Whether anything was read since the last blank line.
    #[must_use]
    pub const fn is_within(&self) -> bool {
        !self.fresh
    }

    /// Reads a piece of the stream.
    pub fn read(&mut self, mut bytes: &[u8], take: &mut dyn FnMut(Item<'_>)) {
        while let Some(first) = bytes.first().copied() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                self.pass(&mut bytes, 1);
                if self.fresh {
                    self.start = self.at;
                }
                continue;
            }
            if let Some(seen) = self.mark {
                let seen = usize::from(seen);
                if BOM.get(seen) == Some(&first) {
                    self.pass(&mut bytes, 1);
                    self.mark = Some(seen as u8 + 1);
                    continue;
                }
                self.mark = None;
                if seen == BOM.len() {
                    self.start = self.at;
                } else if seen > 0 {
                    // A part of one is the beginning of a name, which means nothing.
                    self.text.extend_from_slice(&BOM[..seen]);
                    self.line = Line::Name;
                    self.fresh = false;
                }
            }
            match first {
                b'\r' | b'\n' => {
                    self.pass(&mut bytes, 1);
                    self.after_cr = first == b'\r';
                    self.line_ends(take);
                }
                _ => self.within(&mut bytes, take),
            }
        }
    }

    fn pass(&mut self, bytes: &mut &[u8], n: usize) {
        *bytes = &bytes[n..];
        self.at += n as u64;
    }

    /// Reads on within a line, whose end is not the next byte.
    fn within(&mut self, bytes: &mut &[u8], take: &mut dyn FnMut(Item<'_>)) {
        self.fresh = false;
        let upto = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
        match self.line {
            Line::Begin => {
                self.text.clear();
                self.too_long = false;
                self.line = Line::Name;
            }
            Line::Name => {
                let colon = memchr::memchr(b':', &bytes[..upto]);
                let name = colon.unwrap_or(upto);
                self.keep(&bytes[..name]);
                self.pass(bytes, name);
                if colon.is_some() {
                    self.pass(bytes, 1);
                    self.field = self.named();
                    self.line = Line::Colon;
                    self.begin_value(take);
                }
            }
            Line::Colon => {
                if bytes[0] == b' ' {
                    self.pass(bytes, 1);
                }
                self.line = Line::Value(self.field);
            }
            Line::Value(Field::Data) => {
                take(Item::Data(&bytes[..upto]));
                self.pass(bytes, upto);
            }
            Line::Value(Field::Other) | Line::Ignored => self.pass(bytes, upto),
            Line::Value(_) => {
                self.keep(&bytes[..upto]);
                self.pass(bytes, upto);
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.too_long |= self.text.len() + bytes.len() > MAX_FIELD;
        if !self.too_long {
            self.text.extend_from_slice(bytes);
        }
    }

    fn named(&mut self) -> Field {
        let field = match &*self.text {
            _ if self.too_long => Field::Other,
            b"data" => Field::Data,
            b"event" => Field::Event,
            b"id" => Field::Id,
            b"retry" => Field::Retry,
            _ => Field::Other,
        };
        self.text.clear();
        self.too_long = false;
        field
    }

    fn begin_value(&mut self, take: &mut dyn FnMut(Item<'_>)) {
        if self.field == Field::Data && std::mem::replace(&mut self.has_data, true) {
            take(Item::Data(b"\n"));
        }
    }

    fn line_ends(&mut self, take: &mut dyn FnMut(Item<'_>)) {
        match std::mem::replace(&mut self.line, Line::Begin) {
            Line::Begin => return self.blank(take),
            Line::Name => {
                self.field = self.named();
                self.begin_value(take);
            }
            _ => {}
        }
        match self.field {
            Field::Event => self.name = (!self.too_long).then(|| std::mem::take(&mut self.text)),
            Field::Id if !self.too_long && !self.text.contains(&0) => self.id = std::mem::take(&mut self.text),
            Field::Retry if !self.text.is_empty() && self.text.iter().all(u8::is_ascii_digit) => {
                self.retry = std::str::from_utf8(&self.text).ok().and_then(|digits| digits.parse().ok()).or(self.retry);
            }
            _ => {}
        }
        self.text.clear();
        self.too_long = false;
        self.field = Field::Other;
    }

    fn blank(&mut self, take: &mut dyn FnMut(Item<'_>)) {
        let name = self.name.take().filter(|name| !name.is_empty());
        let end = self.at;
        if std::mem::take(&mut self.has_data) {
            take(Item::Event(Event { name: name.as_deref(), id: &self.id, start: self.start, end }));
        } else {
            take(Item::Nothing);
        }
        self.start = end;
        self.fresh = true;
    }
}

#[cfg(all(test, feature = "proxy"))]
mod oracle;
#[cfg(test)]
mod tests;
