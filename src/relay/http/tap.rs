//! A body that is put into the log piece by piece, each before it is passed on.

use super::metered::Marks;
use crate::relay::log::{BodyEnd, Cause, Entry, ExchangeLog, Flow};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use sha2::{Digest as _, Sha256};
use std::{
    error::Error as StdError,
    fmt, io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

/// What of a body is put into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// Its bytes, as they crossed.
    Bytes,
    /// Its hash and how many bytes it had.
    Hash,
    /// Its bytes; they are ours, not the peer's.
    Own,
}

/// How an exchange goes: what its parts must know of each other.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Why what is still open ends, once that is known.
    cause: OnceLock<Cause>,
    /// The process is stopping.
    stopping: Arc<AtomicBool>,
}

impl Course {
    pub(super) fn new(stopping: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self { cause: OnceLock::new(), stopping })
    }

    /// What is still open will have ended because of this. The first cause counts.
    pub(super) fn ends_by(&self, cause: Cause) {
        let cause =
            if self.stopping.load(Ordering::Relaxed) && cause == Cause::ClientGone { Cause::Shutdown } else { cause };
        // A later cause is a consequence of the first.
        let _ = self.cause.set(cause);
    }

    pub(super) fn cause_or(&self, otherwise: Cause) -> Cause {
        self.ends_by(otherwise);
        self.cause.get().copied().unwrap_or(otherwise)
    }
}

/// Why a body was not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// Its sender hung up.
    HungUp,
    /// Its framing cannot be read.
    Framing,
    /// The process stops.
    Stopped,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HungUp => "the sender of the body hung up",
            Self::Framing => "the framing of the body cannot be read",
            Self::Stopped => "the proxy stops",
        })
    }
}

impl StdError for Broken {}

/// The entries of one body.
struct Book {
    log: Arc<dyn ExchangeLog>,
    flow: Flow,
    keep: Keep,
    hash: Option<Sha256>,
    offset: u64,
    trailers: Vec<String>,
    ended: bool,
    /// Its end is told when somebody above says so: what is decided about the body stands before it in the log.
    late: bool,
    /// An end that is not told yet.
    end: Option<BodyEnd>,
    /// A part of it may have passed unrecorded.
    unrecorded: bool,
    course: Arc<Course>,
    /// What a body that nobody wanted to its end means.
    unwanted: Cause,
}

impl Book {
    fn poll_data(&mut self, cx: &mut Context<'_>, bytes: &Bytes) -> Poll<()> {
        match self.keep {
            Keep::Bytes => {
                ready!(self.log.poll_data(cx, self.flow, self.offset, bytes));
                self.unrecorded |= self.log.is_bypassing();
                Poll::Ready(())
            }
            Keep::Own => {
                self.log.put(self.flow, &Entry::Data { offset: self.offset, bytes, own: true });
                Poll::Ready(())
            }
            Keep::Hash => Poll::Ready(()),
        }
    }

    fn end(&mut self, cause: Cause) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let trailers = std::mem::take(&mut self.trailers);
        let sha256 = self.hash.take().map(|hash| hash.finalize().into());
        self.end = Some(BodyEnd { bytes: self.offset, cause, trailers, sha256 });
        if !self.late {
            self.tell_end();
        }
    }

    fn tell_end(&mut self) {
        self.late = false;
        if let Some(end) = self.end.take() {
            self.log.put(self.flow, &Entry::End(end));
        }
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        if let Some(end) = &mut self.end {
            // Nobody waits any more for what is decided about it.
            end.cause = self.course.cause_or(self.unwanted);
        } else if !self.ended {
            let cause = self.course.cause_or(self.unwanted);
            self.end(cause);
        }
        self.tell_end();
    }
}

/// A body on its way through the log.
pub(super) struct Tap<B> {
    body: B,
    book: Book,
    /// Read, and not yet in the log.
    kept: Option<Bytes>,
    /// Where the pieces go; `None` if somebody above tells it.
    out: Option<Arc<Marks>>,
    broken: Option<Broken>,
    told: bool,
    /// It was read to its end before, and goes out from here.
    again: Option<u64>,
}

impl<B> Tap<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: StdError + 'static,
{
    pub(super) fn new(
        body: B,
        log: Arc<dyn ExchangeLog>,
        flow: Flow,
        keep: Keep,
        course: Arc<Course>,
        unwanted: Cause,
    ) -> Self {
        let hash = (keep == Keep::Hash).then(Sha256::new);
        let mut book = Book {
            log,
            flow,
            keep,
            hash,
            offset: 0,
            trailers: Vec::new(),
            ended: false,
            late: false,
            end: None,
            unrecorded: false,
            course,
            unwanted,
        };
        if body.is_end_stream() {
            book.end(Cause::Complete);
        }
        Self { body, book, kept: None, out: None, broken: None, told: false, again: None }
    }

    /// What was read of it, and is in the log, goes out now.
    pub(super) fn replay(&mut self, body: B) {
        self.body = body;
        self.again = Some(0);
    }

    /// Pieces go to the connection of these marks from now on.
    pub(super) fn set_out(&mut self, marks: Option<Arc<Marks>>) {
        self.out = marks;
    }

    pub(super) fn flow(&self) -> Flow {
        self.book.flow
    }

    /// Whether all of it was read, or nothing more will come.
    pub(super) fn is_over(&self) -> bool {
        self.book.ended
    }

    /// Its end is told to the log by [`Tap::tell_end`] only, or when it is dropped.
    pub(super) fn ends_late(&mut self) {
        self.book.late = !self.book.ended;
    }

    /// Tells the log of its end, now or when it comes.
    pub(super) fn tell_end(&mut self) {
        self.book.tell_end();
    }

    /// Whether everything that was read of it is in the log.
    pub(super) fn is_recorded(&self) -> bool {
        !self.book.unrecorded
    }

    /// Why it is not whole.
    pub(super) fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Ends it, whatever is still to come.
    pub(super) fn cut(&mut self, cause: Cause) {
        let cause = self.book.course.cause_or(cause);
        self.book.end(cause);
    }

    /// What is passed on is with its receiver before the error is: a reader would have seen it first, too.
    fn poll_broken(&mut self, cx: &Context<'_>, broken: Broken) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.told {
            return Poll::Ready(None);
        }
        if let Some(out) = &self.out {
            ready!(out.poll_out(cx));
        }
        self.told = true;
        Poll::Ready(Some(Err(broken)))
    }

    fn breaks(&mut self, error: &(dyn StdError + 'static)) -> Broken {
        let broken = classify(error);
        self.broken = Some(broken);
        let cause = match (self.book.unwanted, broken) {
            (Cause::UpstreamLost, Broken::Framing) => Cause::Refused,
            // What nobody wants in the end tells who the receiver is.
            (Cause::UpstreamLost, _) => Cause::ClientGone,
            _ => Cause::UpstreamLost,
        };
        let cause = self.book.course.cause_or(cause);
        self.book.end(cause);
        broken
    }
}

impl<B> Body for Tap<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: StdError + 'static,
{
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        if let Some(broken) = this.broken {
            return this.poll_broken(cx, broken);
        }
        let bytes = match this.kept.take() {
            Some(bytes) => bytes,
            None => match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                None => {
                    this.book.end(Cause::Complete);
                    return Poll::Ready(None);
                }
                Some(Err(e)) => {
                    let broken = this.breaks(&e);
                    return this.poll_broken(cx, broken);
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => bytes,
                    Err(frame) => {
                        let names = frame.trailers_ref().into_iter().flat_map(|t| t.keys());
                        this.book.trailers.extend(names.map(|name| name.as_str().to_owned()));
                        this.book.end(Cause::Complete);
                        return Poll::Ready(Some(Ok(frame)));
                    }
                },
            },
        };
        if let Some(offset) = &mut this.again {
            *offset += bytes.len() as u64;
            if let Some(out) = &this.out {
                out.take(this.book.flow, *offset);
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if !bytes.is_empty() && this.book.poll_data(cx, &bytes).is_pending() {
            this.kept = Some(bytes);
            return Poll::Pending;
        }
        if let Some(hash) = &mut this.book.hash {
            hash.update(&bytes);
        }
        this.book.offset += bytes.len() as u64;
        if let Some(out) = &this.out {
            out.take(this.book.flow, this.book.offset);
        }
        if this.body.is_end_stream() {
            this.book.end(Cause::Complete);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.kept.is_none() && self.broken.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Framing that cannot be read is told apart from a sender who hung up.
fn classify(error: &(dyn StdError + 'static)) -> Broken {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(e) = error.downcast_ref::<io::Error>() {
            return match e.kind() {
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => Broken::Framing,
                _ => Broken::HungUp,
            };
        }
        next = error.source();
    }
    Broken::HungUp
}

/// The body of a request, shared: its receiver may stop to read it long before its sender stops to send.
pub(super) struct Upload<B>(Arc<Mutex<Tap<B>>>);

impl<B> Clone for Upload<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B> Upload<B> {
    pub(super) fn new(tap: Tap<B>) -> Self {
        Self(Arc::new(Mutex::new(tap)))
    }

    /// For those who want to know how far it is, and keep nothing of it.
    pub(super) fn downgrade(&self) -> Weak<Mutex<Tap<B>>> {
        Arc::downgrade(&self.0)
    }

    pub(super) fn upgrade(weak: &Weak<Mutex<Tap<B>>>) -> Option<Self> {
        weak.upgrade().map(Self)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Tap<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> Body for Upload<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: StdError + 'static,
{
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        Pin::new(&mut *self.lock()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().size_hint()
    }
}
