//! A connection that tells how much of the bodies is out of this process.
//!
//! The HTTP stack takes pieces of bodies and writes them with framing of its own. It flushes when nothing of it is left:
//! then everything that it has taken is in the kernel. A body is dropped before its last flush, so the marks belong to the
//! connection.

use crate::relay::log::{Entry, ExchangeLog, Flow};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What goes out over one connection.
pub(super) struct Out {
    /// The stack has its own queues: what it has taken counts.
    handed_over: bool,
    state: Mutex<State>,
}

/// How far the bodies are that go out over one connection, for the log of their exchanges.
pub(super) struct Marks {
    log: Arc<dyn ExchangeLog>,
    out: Arc<Out>,
}

#[derive(Default)]
struct State {
    /// Taken by the stack, not flushed: the offsets after it.
    taken: VecDeque<(Arc<dyn ExchangeLog>, Flow, u64)>,
    unflushed: bool,
    wakers: Vec<Waker>,
}

impl Out {
    /// Of a connection that speaks HTTP/2, where what the stack has taken counts, or HTTP/1, where what is flushed does.
    pub(super) fn new(is_h2: bool) -> Arc<Self> {
        Arc::new(Self { handed_over: is_h2, state: Mutex::default() })
    }

    /// For exchanges of this log.
    pub(super) fn of(self: &Arc<Self>, log: Arc<dyn ExchangeLog>) -> Arc<Marks> {
        Arc::new(Marks { log, out: self.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is left in the stack.
    fn flush(&self) {
        let mut state = self.state();
        if !mem::take(&mut state.unflushed) {
            return;
        }
        while let Some((log, flow, upto)) = state.taken.pop_front() {
            log.put(flow, &Entry::Wrote { upto });
        }
        state.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Marks {
    /// The stack takes everything of this body before `upto`.
    pub(super) fn take(&self, flow: Flow, upto: u64) {
        let mut state = self.out.state();
        state.unflushed = true;
        if self.out.handed_over {
            drop(state);
            self.log.put(flow, &Entry::Wrote { upto });
            return;
        }
        match state.taken.back_mut() {
            Some((log, last, offset)) if *last == flow && Arc::ptr_eq(log, &self.log) => *offset = upto,
            _ => state.taken.push_back((self.log.clone(), flow, upto)),
        }
    }

    /// Ready when all that the stack has taken is out.
    pub(super) fn poll_out(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.out.state();
        if !state.unflushed {
            return Poll::Ready(());
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// A connection with its [`Out`], and with what was read of it ahead.
pub(super) struct Metered<S> {
    io: S,
    ahead: Bytes,
    out: Arc<Out>,
    /// A write that fails is not told: what the other side said before it hung up is read first.
    patient: bool,
    mute: bool,
    /// Nobody waits for bytes, so nobody sees it hang up.
    unwatched: Arc<AtomicBool>,
}

impl<S> Metered<S> {
    /// The side of a client, of which these bytes were read ahead.
    pub(super) fn client(io: S, ahead: Bytes, out: Arc<Out>, unwatched: Arc<AtomicBool>) -> Self {
        Self { io, ahead, out, patient: false, mute: false, unwatched }
    }

    /// The side of an upstream.
    pub(super) fn upstream(io: S, out: Arc<Out>) -> Self {
        Self { io, ahead: Bytes::new(), out, patient: true, mute: false, unwatched: Arc::default() }
    }

    fn wrote(&mut self, len: usize, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            Err(_) if self.patient => {
                self.mute = true;
                Ok(len)
            }
            result => result,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            let some = this.ahead.split_to(this.ahead.len().min(buf.remaining()));
            buf.put_slice(&some);
            this.unwatched.store(true, Ordering::Relaxed);
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut this.io).poll_read(cx, buf);
        this.unwatched.store(read.is_ready(), Ordering::Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.mute {
            return Poll::Ready(Ok(buf.len()));
        }
        let result = ready!(Pin::new(&mut this.io).poll_write(cx, buf));
        Poll::Ready(this.wrote(buf.len(), result))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let len = || bufs.iter().map(|b| b.len()).sum();
        if this.mute {
            return Poll::Ready(Ok(len()));
        }
        let result = ready!(Pin::new(&mut this.io).poll_write_vectored(cx, bufs));
        Poll::Ready(this.wrote(len(), result))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.mute {
            return Poll::Ready(Ok(()));
        }
        match ready!(Pin::new(&mut this.io).poll_flush(cx)) {
            Ok(()) => this.out.flush(),
            Err(_) if this.patient => this.mute = true,
            Err(e) => return Poll::Ready(Err(e)),
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
