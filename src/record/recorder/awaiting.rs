//! Messages that were read and are not delivered yet.

use crate::{
    model::InvocationId,
    record::stream::{MessagePlace, StreamId},
};
use std::collections::{BTreeMap, VecDeque};

/// A message whose delivery is awaited.
#[derive(Debug, Clone, Copy)]
pub(super) struct Awaited {
    /// Stream offset just after it.
    pub(super) end: u64,
    /// Stream offset of its first byte.
    pub(super) offset: u64,
    pub(super) invocation: InvocationId,
    pub(super) response: bool,
}

/// The messages of each stream that are awaited, in the order in which they were read.
#[derive(Debug, Default)]
pub(super) struct Awaiting(BTreeMap<StreamId, VecDeque<Awaited>>);

impl Awaiting {
    pub(super) fn push(&mut self, place: MessagePlace, end: u64, invocation: InvocationId, response: bool) {
        let awaited = Awaited { end, offset: place.offset, invocation, response };
        self.0.entry(place.stream).or_default().push_back(awaited);
    }

    /// The next message of this stream that ends at or before offset `upto`. It is no longer awaited then.
    pub(super) fn next(&mut self, stream: StreamId, upto: u64) -> Option<Awaited> {
        let queue = self.0.get_mut(&stream)?;
        let next = queue.pop_front_if(|awaited| awaited.end <= upto);
        // The number of exchanges is unbounded; stdio has only two streams.
        if queue.is_empty() && matches!(stream, StreamId::Exchange { .. }) {
            self.0.remove(&stream);
        }
        next
    }

    /// What is awaited of a stream of which nothing is delivered any more.
    pub(super) fn take(&mut self, stream: StreamId) -> VecDeque<Awaited> {
        self.0.remove(&stream).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stops awaiting the request, or its response.
    pub(super) fn forget(&mut self, invocation: Option<InvocationId>, response: bool) {
        self.retain(|awaited| Some(awaited.invocation) != invocation || awaited.response != response);
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Awaited) -> bool) {
        self.0.retain(|_, queue| {
            queue.retain(&keep);
            !queue.is_empty()
        });
    }
}
