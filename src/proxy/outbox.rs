//! Messages of ours for a client over HTTP: they wait until a stream that it holds open takes them.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// What waits for one client. Each message is taken once, by whichever of its streams comes first.
#[derive(Default)]
pub(super) struct Outbox(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Vec<u8>>,
    streams: Vec<Waker>,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message, unless the same one waits already.
    pub(super) fn put(&self, message: &[u8]) {
        let streams = {
            let mut waiting = self.lock();
            if !waiting.messages.iter().any(|other| other == message) {
                waiting.messages.push_back(message.to_vec());
            }
            std::mem::take(&mut waiting.streams)
        };
        streams.into_iter().for_each(Waker::wake);
    }

    /// The next message, for a stream that is woken when there is one.
    pub(super) fn poll_take(&self, cx: &Context<'_>) -> Poll<Vec<u8>> {
        let mut waiting = self.lock();
        if let Some(message) = waiting.messages.pop_front() {
            return Poll::Ready(message);
        }
        if !waiting.streams.iter().any(|stream| stream.will_wake(cx.waker())) {
            waiting.streams.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_once_and_does_not_wait_twice() {
        let (outbox, cx) = (Outbox::default(), Context::from_waker(Waker::noop()));
        assert!(outbox.poll_take(&cx).is_pending());
        for message in [b"a", b"b", b"a"] {
            outbox.put(message);
        }
        assert_eq!(outbox.poll_take(&cx), Poll::Ready(b"a".to_vec()));
        assert_eq!(outbox.poll_take(&cx), Poll::Ready(b"b".to_vec()));
        assert!(outbox.poll_take(&cx).is_pending());
    }
}
