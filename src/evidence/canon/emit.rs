//! Canonical output of any size: small documents through the in-memory writer, others in a second pass by the index.

use super::check::scan;
use super::error::CanonError;
use super::index::{Index, Limits, Plan};
use super::number;
use super::scan::{literal, name, skip_ws};
use super::string::{self, Out};
use super::write::Writer;

/// Bytes gathered before they are handed on; longer runs are handed on as they appear in the input.
const GATHER: usize = 64 * 1024;
const LONG: usize = 4 * 1024;

/// The RFC 8785 canonical form of one whole JSON document.
pub fn canonicalize(bytes: &[u8]) -> Result<Vec<u8>, CanonError> {
    if bytes.len() <= Limits::DEFAULT.small {
        return small(bytes);
    }
    let mut canonical = Vec::with_capacity(bytes.len());
    canonicalize_to(bytes, &mut |part| canonical.extend_from_slice(part))?;
    Ok(canonical)
}

/// As [`canonicalize`], in parts and with bounded memory (about 48 MiB). Nothing reaches `sink` unless the document has
/// a canonical form.
pub fn canonicalize_to(bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), CanonError> {
    canonicalize_within(bytes, &Limits::DEFAULT, None, sink)
}

pub(super) fn canonicalize_within(
    bytes: &[u8],
    limits: &Limits,
    page: Option<&dyn Fn(usize)>,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), CanonError> {
    if bytes.len() <= limits.small {
        sink(&small(bytes)?);
        return Ok(());
    }
    let index = Index::build(bytes, limits, page)?;
    if !index.anomalies.is_empty() {
        return Err(CanonError::Ambiguous(index.anomalies));
    }
    emit(bytes, skip_ws(bytes, 0), &index, limits, page, sink)
}

/// Writes the value at `at` of a document whose first pass found nothing wrong.
pub(super) fn emit(
    bytes: &[u8],
    at: usize,
    index: &Index,
    limits: &Limits,
    page: Option<&dyn Fn(usize)>,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), CanonError> {
    let mut emitter = Emitter {
        bytes,
        index,
        writer: Writer::default(),
        stream: Stream { gathered: Vec::new(), sink },
        page,
        every: limits.page,
        position: at,
        read: 0,
        went_back: false,
    };
    // Only bytes that changed between the passes can make the second fail.
    emitter.value(at, 0).ok_or_else(|| reason(bytes))?;
    emitter.stream.flush();
    Ok(())
}

fn small(bytes: &[u8]) -> Result<Vec<u8>, CanonError> {
    let mut canonical = Vec::with_capacity(bytes.len() + 16);
    let end = Writer::default().value(bytes, skip_ws(bytes, 0), 0, &mut canonical);
    match end {
        Some(end) if skip_ws(bytes, end) == bytes.len() => Ok(canonical),
        _ => Err(reason(bytes)),
    }
}

#[cold]
fn reason(bytes: &[u8]) -> CanonError {
    match scan(bytes) {
        Ok(anomalies) => CanonError::Ambiguous(anomalies),
        Err(error) => CanonError::Syntax(error),
    }
}

/// Gathers short pieces and hands on long ones.
struct Stream<'a> {
    gathered: Vec<u8>,
    sink: &'a mut dyn FnMut(&[u8]),
}

impl Stream<'_> {
    fn flush(&mut self) {
        if !self.gathered.is_empty() {
            (self.sink)(&self.gathered);
            self.gathered.clear();
        }
    }

    #[inline]
    fn flush_full(&mut self) {
        if self.gathered.len() >= GATHER {
            self.flush();
        }
    }
}

impl Out for Stream<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() >= LONG {
            self.flush();
            (self.sink)(bytes);
        } else {
            self.gathered.extend_from_slice(bytes);
            self.flush_full();
        }
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.gathered.push(byte);
    }
}

struct Emitter<'a> {
    bytes: &'a [u8],
    index: &'a Index,
    writer: Writer,
    stream: Stream<'a>,
    page: Option<&'a dyn Fn(usize)>,
    every: usize,
    /// Where reading has come to.
    position: usize,
    /// Bytes read since the page callback was called last.
    read: usize,
    /// Whether reading went back since then, so that pages ahead may have been read too.
    went_back: bool,
}

impl Emitter<'_> {
    /// Writes the value at `at` inside of `depth` open containers and gives its end. The first pass has bounded the
    /// depth, and with it the recursion.
    fn value(&mut self, at: usize, depth: usize) -> Option<usize> {
        let bytes = self.bytes;
        let end = match bytes.get(at)? {
            b'"' => self.string(at)?,
            b'[' => self.sequence(at, depth + 1, b']')?,
            b'{' => match self.index.plan(at) {
                Plan::Small => {
                    let end = self.writer.value(bytes, at, depth, &mut self.stream.gathered)?;
                    self.stream.flush_full();
                    end
                }
                Plan::Ordered => self.sequence(at, depth + 1, b'}')?,
                Plan::Sorted(names) => self.sorted(names, depth + 1)?,
            },
            b'-' | b'0'..=b'9' => number::write(bytes, at, &mut self.stream)?,
            _ => {
                let end = literal(bytes, at).ok()?;
                self.stream.put(&bytes[at..end]);
                end
            }
        };
        self.passed(end);
        Some(end)
    }

    fn string(&mut self, at: usize) -> Option<usize> {
        let bytes = self.bytes;
        let Some(end) = self.index.verbatim(at) else {
            return string::write(bytes, at, self).map(|(end, _)| end);
        };
        let mut from = at;
        for part in bytes.get(at..end)?.chunks(self.every) {
            self.stream.put(part);
            from += part.len();
            self.passed(from);
        }
        Some(end)
    }

    fn name(&mut self, at: usize) -> Option<usize> {
        let (_, value) = name(self.bytes, at, &mut |_| ()).ok()?;
        self.string(at)?;
        self.stream.byte(b':');
        Some(value)
    }

    /// An array, or an object whose members are in order.
    fn sequence(&mut self, at: usize, depth: usize, closing: u8) -> Option<usize> {
        let bytes = self.bytes;
        self.stream.put(&bytes[at..=at]);
        let mut at = skip_ws(bytes, at + 1);
        if bytes.get(at) == Some(&closing) {
            self.stream.byte(closing);
            return Some(at + 1);
        }
        loop {
            if closing == b'}' {
                at = self.name(at)?;
            }
            at = skip_ws(bytes, self.value(at, depth)?);
            let byte = *bytes.get(at)?;
            self.stream.put(&[byte]);
            match byte {
                b',' => at = skip_ws(bytes, at + 1),
                _ if byte == closing => return Some(at + 1),
                _ => return None,
            }
        }
    }

    /// An object by the offsets of its names in order. It ends after the member that is last in the text.
    fn sorted(&mut self, names: &[usize], depth: usize) -> Option<usize> {
        self.stream.byte(b'{');
        let mut last = 0;
        for (nth, &at) in names.iter().enumerate() {
            if nth > 0 {
                self.stream.put(b",");
            }
            self.went_back |= at < self.position;
            self.position = at;
            let value = self.name(at)?;
            last = last.max(self.value(value, depth)?);
        }
        self.stream.byte(b'}');
        let closing = skip_ws(self.bytes, last);
        (self.bytes.get(closing) == Some(&b'}')).then_some(closing + 1)
    }

    #[inline]
    fn passed(&mut self, at: usize) {
        self.read += at.saturating_sub(self.position);
        self.position = at;
        if self.read >= self.every {
            if let Some(page) = self.page {
                page(if self.went_back { self.bytes.len() } else { at });
            }
            self.read = 0;
            self.went_back = false;
        }
    }
}

/// Long strings report their progress as they are handed on, run by run.
impl Out for Emitter<'_> {
    const CHECKED: bool = true;

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.stream.put(bytes);
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.stream.byte(byte);
    }

    #[inline]
    fn passed(&mut self, at: usize) {
        self.passed(at);
    }
}
