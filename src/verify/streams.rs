//! Where messages were in their streams: no two in one place, each in its order, and ids that follow from there.

use super::sense;
use crate::model::{
    EventKind, InvocationId,
    event::{DetailView as Detail, EventView as Event},
    http::InExchange,
    words::ExchangePhase,
};
use std::collections::HashMap;

/// Most elements of batches that are tried to find the one with the id. Each message has no more elements than bytes,
/// and honest batches hold few that are not recorded.
const MAX_TRIES: u64 = 1 << 26;

/// The last message of one direction.
#[derive(Debug)]
struct Last {
    offset: u64,
    bytes: u64,
    sha256: [u8; 64],
    /// The first element of a batch that may come next.
    element: u64,
}

/// Where messages were: in both directions over stdio, and in both bodies of each exchange of HTTP.
#[derive(Debug, Default)]
pub struct Streams {
    stdio: [Option<Last>; 2],
    exchanges: HashMap<u64, Box<[Option<Last>; 2]>>,
    tries: u64,
}

impl Streams {
    /// Takes an event; says what is wrong with the place of its message.
    pub fn message(&mut self, e: &Event<'_>) -> Option<&'static str> {
        if let Detail::HttpExchange(exchange) = &e.detail
            && exchange.phase == ExchangePhase::End
        {
            // No message follows in it.
            self.exchanges.remove(&exchange.exchange);
        }
        let is_read = match e.event {
            EventKind::RequestReceived
            | EventKind::ResponseReceived
            | EventKind::Malformed
            | EventKind::MalformedLines
            | EventKind::Notification => true,
            EventKind::RequestBlocked => e.invocation_id.is_none(),
            EventKind::Anomaly => e.wire_bytes.is_some(),
            _ => false,
        };
        let (true, Some(direction), Some(offset), Some(bytes), Some(sha256)) =
            (is_read, e.direction, e.detail.offset(), e.wire_bytes, e.wire_sha256)
        else {
            return None;
        };
        let exchange = e.detail.exchange().and_then(InExchange::number);
        let slot = match exchange {
            Some(exchange) => &mut self.exchanges.entry(exchange).or_default()[direction as usize],
            None => &mut self.stdio[direction as usize],
        };
        let sha256: [u8; 64] = sha256.try_into().ok()?;
        match slot {
            Some(last) if last.offset == offset => {
                if (last.bytes, last.sha256) != (bytes, sha256) {
                    return Some("two messages are at the same place in their stream");
                }
            }
            Some(last) if offset < last.offset.saturating_add(last.bytes) => {
                return Some("the message is before, or inside, the one that was read before it");
            }
            _ => *slot = Some(Last { offset, bytes, sha256, element: 0 }),
        }
        let (Some(last), Some(invocation), Detail::RequestReceived(request)) = (slot, e.invocation_id, &e.detail)
        else {
            return None;
        };
        let of = |element| {
            invocation
                == match exchange {
                    Some(exchange) => InvocationId::of_exchange(e.session_id, exchange, direction, offset, element),
                    None => InvocationId::of_message(e.session_id, direction, offset, element),
                }
        };
        if !sense::has(request.anomalies, b"batch_element") {
            return (!of(None)).then_some("invocation_id is not derived from session, direction and offset");
        }
        while last.element < last.bytes && self.tries < MAX_TRIES {
            self.tries += 1;
            let element = last.element;
            last.element += 1;
            if of(Some(element)) {
                return None;
            }
        }
        (self.tries < MAX_TRIES).then_some("invocation_id does not belong to a next element of the batch")
    }
}
