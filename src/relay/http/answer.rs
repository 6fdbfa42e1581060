//! The body of an answer on its way to the client.

use super::{
    host::Hosted,
    metered::Marks,
    review::{Head, Passed, Reviewing},
    source::Source,
    tap::{Broken, Tap, Upload},
    upstream::Lease,
    witness::Witness,
};
use crate::relay::log::{Cause, Flow};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

/// Bytes that are still read of a request whose answer is over, so that its sender gets to the answer.
const DRAIN: u64 = 1 << 20;
/// How long they are waited for.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Changes an answer while it passes.
pub(super) trait Layer: Send {
    /// Takes a piece and the offset after it; appends what passes.
    fn push(&mut self, piece: Bytes, upto: u64, passes: &mut Vec<Passed>);
    /// The answer is whole.
    fn finish(&mut self, passes: &mut Vec<Passed>);
    /// What becomes of its head.
    fn head(&self) -> Head {
        Head::Passes
    }
    /// Whether a piece, or the end, may have to wait for something.
    fn may_wait(&self) -> bool {
        false
    }
    /// Something to send before what passes next.
    fn poll_own(&mut self, _cx: &mut Context<'_>) -> Poll<Bytes> {
        Poll::Pending
    }
}

/// What comes next of an answer: a piece and the offset after it, its end, or both.
struct Next {
    piece: Option<(Bytes, u64)>,
    is_end: bool,
}

impl Next {
    fn give(self, layer: &mut dyn Layer) -> Vec<Passed> {
        let mut passes = Vec::new();
        if let Some((piece, upto)) = self.piece {
            layer.push(piece, upto, &mut passes);
        }
        if self.is_end {
            layer.finish(&mut passes);
        }
        passes
    }
}

/// A layer that is waited for, and what it lets pass.
type Beside = JoinHandle<(Box<dyn Layer>, Vec<Passed>)>;

/// The body of an answer.
// There is one for each exchange.
#[allow(clippy::large_enum_variant)]
pub(super) enum Answer {
    /// Ours.
    Own(Tap<Full<Bytes>>),
    /// Ours, to a request that goes to no upstream.
    Unrecorded(Full<Bytes>),
    /// The same, of a host.
    Hosted(Hosted),
    /// The upstream's.
    Upstream(Box<Passing>),
}

/// The body of an upstream's answer.
pub(super) struct Passing {
    // First: what ends the answer ends the request's body, too.
    tap: Tap<Incoming>,
    lease: Option<Lease>,
    upload: Option<Upload<Source>>,
    layer: Option<Layered>,
    /// Ready when the process stops: nothing waits for the end of a stream that has none.
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// It has a length in its head and no body.
    hollow: bool,
    /// The guard that looks at its exchange, until that is over.
    reviewing: Option<Reviewing>,
    /// Its exchange is not over.
    open: Option<Arc<()>>,
    /// Who sees when it is.
    witness: Option<Box<dyn Witness>>,
}

struct Layered {
    /// `None` while it is waited for, and after a fault of its own.
    layer: Option<Box<dyn Layer>>,
    beside: Option<Beside>,
    flow: Flow,
    out: Arc<Marks>,
    /// Bytes of the answer that were read.
    read: u64,
    passes: VecDeque<Passed>,
    trailers: Option<Frame<Bytes>>,
    /// The answer was cut.
    broken: Option<Broken>,
    /// Nothing more is read; the last piece may be waited for.
    read_all: bool,
    over: bool,
}

impl Layered {
    fn head(&self) -> Head {
        match &self.layer {
            Some(layer) => layer.head(),
            None if self.beside.is_some() => Head::Held,
            None => Head::Passes,
        }
    }

    /// Reads a frame, and appends what passes now.
    fn read_on(&mut self, tap: &mut Tap<Incoming>, cx: &mut Context<'_>) -> Poll<()> {
        if self.beside.is_none() {
            let end = Next { piece: None, is_end: true };
            let next = match ready!(Pin::new(&mut *tap).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => {
                        self.read += piece.len() as u64;
                        // Nobody asks for more of a body that is as long as its head says.
                        Some(Next { piece: Some((piece, self.read)), is_end: tap.is_over() })
                    }
                    Err(trailers) => {
                        self.trailers = Some(trailers);
                        Some(end)
                    }
                },
                Some(Err(e)) => {
                    self.broken = Some(e);
                    None
                }
                None => Some(end),
            };
            self.read_all = next.as_ref().is_none_or(|next| next.is_end);
            match (next, self.layer.take()) {
                (Some(next), Some(mut layer)) if layer.may_wait() => {
                    self.beside = Some(spawn_blocking(move || {
                        let passes = next.give(&mut *layer);
                        (layer, passes)
                    }));
                }
                (next, mut layer) => {
                    let passes = next.zip(layer.as_mut()).map(|(next, layer)| next.give(&mut **layer));
                    self.passes.extend(passes.unwrap_or_default());
                    self.layer = layer;
                }
            }
        }
        if let Some(beside) = &mut self.beside {
            let waited = ready!(Pin::new(beside).poll(cx));
            self.beside = None;
            match waited {
                Ok((layer, passes)) => {
                    self.layer = Some(layer);
                    self.passes.extend(passes);
                }
                Err(e) => {
                    tracing::error!(error = %e, "an answer could not be judged");
                    (self.broken, self.read_all) = (Some(Broken::Stopped), true);
                }
            }
        }
        if self.read_all {
            self.over = true;
            tap.tell_end();
        }
        Poll::Ready(())
    }
}

impl Passing {
    pub(super) fn new(mut tap: Tap<Incoming>, lease: Lease, upload: Upload<Source>, out: Arc<Marks>) -> Self {
        tap.set_out(Some(out));
        let mut new = Self {
            tap,
            lease: Some(lease),
            upload: Some(upload),
            layer: None,
            closing: None,
            hollow: false,
            reviewing: None,
            open: None,
            witness: None,
        };
        new.settle();
        new
    }

    /// What passes is what this layer makes of it.
    pub(super) fn through(&mut self, layer: Box<dyn Layer>, out: Arc<Marks>) {
        self.tap.set_out(None);
        let flow = self.tap.flow();
        let passes = VecDeque::new();
        let (layer, beside) = (Some(layer), None);
        self.layer = Some(Layered {
            layer,
            beside,
            flow,
            out,
            read: 0,
            passes,
            trailers: None,
            broken: None,
            read_all: false,
            over: false,
        });
    }

    /// As [`Passing::through`], for a layer that decides what passes: the log has its decisions before the end of the answer.
    pub(super) fn judged_by(&mut self, layer: Box<dyn Layer>, out: Arc<Marks>) {
        self.tap.ends_late();
        self.through(layer, out);
    }

    /// Reads until the head may pass, or something takes its place and the body's.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Head> {
        let Some(layered) = &mut self.layer else { return Poll::Ready(Head::Passes) };
        let head = loop {
            match layered.head() {
                Head::Held if !layered.over => ready!(layered.read_on(&mut self.tap, cx)),
                Head::Held => break Head::Passes,
                head @ (Head::Passes | Head::Resized(_)) => break head,
                Head::Replaced(reply) => {
                    layered.passes = VecDeque::from([Passed { bytes: reply.body.clone(), upto: layered.read }]);
                    layered.trailers = None;
                    if !std::mem::replace(&mut layered.over, true) {
                        self.tap.cut(Cause::Refused);
                        self.tap.tell_end();
                        self.lease = None;
                    }
                    break Head::Replaced(reply);
                }
            }
        };
        self.settle();
        Poll::Ready(head)
    }

    pub(super) fn close_on(&mut self, closing: impl Future<Output = ()> + Send + 'static) {
        self.closing = Some(Box::pin(closing));
    }

    /// Its exchange holds this until it is over.
    pub(super) fn is_open(&mut self, open: Arc<()>) {
        self.open = Some(open);
    }

    pub(super) fn seen_by(&mut self, witness: Box<dyn Witness>) {
        self.witness = Some(witness);
    }

    pub(super) fn reviewed_by(&mut self, reviewing: Option<Reviewing>) {
        self.reviewing = reviewing;
    }

    /// Its head says how long a body would be that it does not have.
    pub(super) fn is_hollow(&mut self) {
        self.hollow = true;
    }

    /// Once the answer is over, its connection is free, or useless if the request is still being sent.
    fn settle(&mut self) {
        if !self.tap.is_over() {
            return;
        }
        let (Some(lease), Some(upload)) = (self.lease.take(), self.upload.take()) else { return };
        let (whole, sent) = (self.tap.broken().is_none(), upload.lock().is_over());
        if whole && sent {
            lease.release();
        } else if whole {
            drop(lease);
            drain(upload, Cause::UpstreamLost);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.closing.as_mut().is_some_and(|closing| closing.as_mut().poll(cx).is_ready()) {
            self.closing = None;
            self.tap.cut(Cause::Shutdown);
            self.lease = None;
            return Poll::Ready(Some(Err(Broken::Stopped)));
        }
        let Some(layered) = &mut self.layer else {
            let frame = ready!(Pin::new(&mut self.tap).poll_frame(cx));
            self.settle();
            return Poll::Ready(frame);
        };
        loop {
            if let Some(passed) = layered.passes.pop_front() {
                layered.out.take(layered.flow, passed.upto);
                if passed.bytes.is_empty() {
                    continue;
                }
                return Poll::Ready(Some(Ok(Frame::data(passed.bytes))));
            }
            if let Some(broken) = layered.broken {
                ready!(layered.out.poll_out(cx));
                layered.broken = None;
                return Poll::Ready(Some(Err(broken)));
            }
            if layered.over {
                return Poll::Ready(layered.trailers.take().map(Ok));
            }
            // While a piece is waited for, it is not known whether a message has passed in part.
            if let Some(layer) = &mut layered.layer
                && let Poll::Ready(own) = layer.poll_own(cx)
            {
                return Poll::Ready(Some(Ok(Frame::data(own))));
            }
            ready!(layered.read_on(&mut self.tap, cx));
        }
    }
}

/// Reads on, in a task of its own and within bounds.
pub(super) fn drain(upload: Upload<Source>, cause: Cause) {
    upload.lock().set_out(None);
    tokio::spawn(async move {
        let mut upload = upload;
        read_on(&mut upload).await;
        upload.lock().cut(cause);
    });
}

/// The same for a request that goes to no upstream.
pub(super) fn drain_unrecorded(body: Incoming) {
    tokio::spawn(async move {
        let mut body = body;
        read_on(&mut body).await;
    });
}

async fn read_on(body: &mut (impl Body<Data = Bytes> + Unpin)) {
    let read = async {
        let mut bytes = 0;
        while bytes < DRAIN {
            match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
                Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, |d| d.len() as u64),
                Some(Err(_)) | None => break,
            }
        }
    };
    // What has not come until then is not waited for.
    let _ = timeout(DRAIN_TIME, read).await;
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Own(tap) => Pin::new(tap).poll_frame(cx),
            Self::Unrecorded(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Hosted(body) => Pin::new(body).poll_frame(cx).map_err(|_| Broken::Stopped),
            Self::Upstream(passing) => {
                let frame = ready!(passing.poll(cx));
                passing.settle();
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(tap) => tap.is_end_stream(),
            Self::Unrecorded(body) => body.is_end_stream(),
            Self::Hosted(body) => body.is_end_stream(),
            Self::Upstream(passing) => passing.layer.is_none() && !passing.hollow && passing.tap.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(tap) => tap.size_hint(),
            Self::Unrecorded(body) => body.size_hint(),
            Self::Hosted(body) => body.size_hint(),
            Self::Upstream(passing) if passing.layer.is_some() || passing.hollow => SizeHint::default(),
            Self::Upstream(passing) => passing.tap.size_hint(),
        }
    }
}
