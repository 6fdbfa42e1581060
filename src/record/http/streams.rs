//! The streams that are open, for those who watch.

use super::{assemble::media_type, demux::Demux, exchange::Exchange};
use crate::{
    model::WallTime,
    record::{broadcast::OpenStream, source::SessionKey},
};

/// Characters of a method that are told; those that are registered have no more.
const MAX_METHOD: usize = 20;

impl Demux {
    /// Tells of every answer that is an event stream and has not ended, with its session, oldest first. The first argument
    /// is the wall clock minus the monotonic one, ns.
    pub fn streams(&self, wall_offset_ns: i64, tell: &mut dyn FnMut(SessionKey, OpenStream)) {
        for (number, exchange) in &self.exchanges {
            if let (Some(key), Some(stream)) = (self.map.of(*number), exchange.stream(*number, wall_offset_ns)) {
                tell(key, stream);
            }
        }
    }
}

impl Exchange {
    fn stream(&self, number: u64, wall_offset_ns: i64) -> Option<OpenStream> {
        let (head, head_ns) = self.response.as_ref()?;
        let body = &self.bodies[1];
        let is_stream = media_type(Self::value(&head.values, "content-type")?) == "text/event-stream";
        if !is_stream || body.end.is_some() {
            return None;
        }
        let wall =
            |ns: u64| WallTime::from_millis(ns.cast_signed().saturating_add(wall_offset_ns).div_euclid(1_000_000));
        Some(OpenStream {
            bytes: body.delivery.upto(),
            exchange: number,
            last_byte_at: body.delivery.last_ns().map(wall),
            messages: body.messages,
            method: self.request.method.chars().take(MAX_METHOD).collect(),
            since: wall(*head_ns),
        })
    }
}
