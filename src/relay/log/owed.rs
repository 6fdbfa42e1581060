//! What the log could not take for want of room, by body, until there is room to say so.

use super::{BodyEnd, Entry, Flow, NoteCode};
use std::collections::BTreeMap;

/// Bodies about which something is owed, at most; what is beyond is told of the process.
const MOST: usize = 16 << 10;

/// All that is owed.
#[derive(Debug, Default)]
pub(super) struct Owed {
    flows: BTreeMap<Flow, Debt>,
    /// Bytes of all gaps.
    bytes: u64,
    /// Entries other than of offsets that were written.
    entries: u64,
}

/// What is owed about one body, in the order in which it is told.
#[derive(Debug, Default)]
struct Debt {
    /// Offset and bytes of what passed unrecorded.
    gap: Option<(u64, u64)>,
    wrote: Option<u64>,
    /// Entries that are lost.
    lost: u64,
    end: Option<BodyEnd>,
}

impl Owed {
    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Whether something is owed about this body.
    pub(super) fn has(&self, flow: Flow) -> bool {
        self.flows.contains_key(&flow)
    }

    /// Bytes that passed unrecorded, and entries, of which no entry tells yet.
    pub(super) fn untold(&self) -> (u64, u64) {
        (self.bytes, self.entries)
    }

    /// Counts bytes of a body that pass unrecorded; `offset` bytes of it were before them.
    pub(super) fn gap(&mut self, flow: Flow, offset: u64, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let gap = &mut self.debt(flow).gap;
        *gap = Some(gap.map_or((offset, bytes), |(from, n)| (from, n.saturating_add(bytes))));
    }

    /// Keeps or counts an entry for which there is no room.
    pub(super) fn entry(&mut self, flow: Flow, entry: &Entry<'_>) {
        match entry {
            Entry::Data { offset, bytes, .. } => self.gap(flow, *offset, bytes.len() as u64),
            Entry::Gap { offset, bytes } => self.gap(flow, *offset, *bytes),
            Entry::Wrote { .. } if self.is_beyond(flow) => {}
            Entry::Wrote { upto } => {
                let wrote = &mut self.debt(flow).wrote;
                *wrote = (*wrote).max(Some(*upto));
            }
            Entry::End(end) if !self.is_beyond(flow) => {
                self.entries += 1;
                let debt = self.debt(flow);
                debt.lost += u64::from(debt.end.replace(end.clone()).is_some());
            }
            Entry::End(_) | Entry::Request(_) | Entry::Response(_) | Entry::Ruling { .. } | Entry::Note { .. } => {
                self.entries += 1;
                self.debt(flow).lost += 1;
            }
        }
    }

    /// Whether it can only be told of the process that there was something about this body.
    fn is_beyond(&self, flow: Flow) -> bool {
        self.flows.len() >= MOST && !self.flows.contains_key(&flow)
    }

    fn debt(&mut self, flow: Flow) -> &mut Debt {
        let flow = if self.is_beyond(flow) { Flow::request(0) } else { flow };
        self.flows.entry(flow).or_default()
    }

    /// Tells what is owed about one body, as far as `tell` has room; whether that was all.
    pub(super) fn pay(&mut self, flow: Flow, mut tell: impl FnMut(Flow, &Entry<'_>) -> bool) -> bool {
        let Some(debt) = self.flows.get_mut(&flow) else { return true };
        if let Some((offset, bytes)) = debt.gap {
            if !tell(flow, &Entry::Gap { offset, bytes }) {
                return false;
            }
            debt.gap = None;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        if let Some(upto) = debt.wrote {
            if !tell(flow, &Entry::Wrote { upto }) {
                return false;
            }
            debt.wrote = None;
        }
        if debt.lost > 0 {
            if !tell(flow, &Entry::Note { code: NoteCode::Unrecorded, text: &debt.lost.to_string() }) {
                return false;
            }
            self.entries = self.entries.saturating_sub(debt.lost);
            debt.lost = 0;
        }
        if let Some(end) = debt.end.take() {
            let entry = Entry::End(end);
            if !tell(flow, &entry) {
                if let Entry::End(end) = entry {
                    debt.end = Some(end);
                }
                return false;
            }
            self.entries = self.entries.saturating_sub(1);
        }
        self.flows.remove(&flow);
        true
    }

    /// Tells everything, as far as there is room.
    pub(super) fn pay_all(&mut self, mut tell: impl FnMut(Flow, &Entry<'_>) -> bool) {
        while let Some(flow) = self.flows.keys().next().copied() {
            if !self.pay(flow, &mut tell) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::log::Cause;

    fn end(bytes: u64) -> BodyEnd {
        BodyEnd { bytes, cause: Cause::Complete, trailers: Vec::new(), sha256: None }
    }

    #[test]
    fn what_is_owed_is_told_in_order_and_once() {
        let (one, two) = (Flow::request(1), Flow::response(1));
        let mut owed = Owed::default();
        owed.entry(one, &Entry::Wrote { upto: 9 });
        owed.gap(one, 4, 5);
        owed.gap(one, 9, 1);
        owed.entry(two, &Entry::Note { code: NoteCode::Retried, text: "" });
        owed.entry(one, &Entry::Wrote { upto: 7 });
        owed.entry(one, &Entry::End(end(10)));
        assert_eq!(owed.untold(), (6, 2));
        let mut told = Vec::new();
        // There is room for one more each time.
        for room in 0..6 {
            let mut left = room;
            owed.pay_all(|flow, entry| {
                if left == 0 {
                    return false;
                }
                left -= 1;
                told.push(format!("{} {entry:?}", flow.direction as u8));
                true
            });
        }
        let all = [
            format!("0 {:?}", Entry::Gap { offset: 4, bytes: 6 }),
            format!("0 {:?}", Entry::Wrote { upto: 9 }),
            format!("0 {:?}", Entry::End(end(10))),
            format!("1 {:?}", Entry::Note { code: NoteCode::Unrecorded, text: "1" }),
        ];
        assert_eq!(told, all);
        assert!(owed.is_empty() && owed.untold() == (0, 0));
    }

    #[test]
    fn bodies_beyond_the_bound_are_told_of_the_process() {
        let mut owed = Owed::default();
        for exchange in 1..=MOST as u64 + 10 {
            owed.gap(Flow::request(exchange), 7, 3);
        }
        assert_eq!((owed.flows.len(), owed.untold().0), (MOST + 1, 3 * (MOST as u64 + 10)));
        let mut last = (0, 0);
        owed.pay_all(|flow, entry| {
            if let (0, Entry::Gap { bytes, .. }) = (flow.exchange, entry) {
                last = (flow.exchange, *bytes);
            }
            true
        });
        assert_eq!((last, owed.untold()), ((0, 30), (0, 0)));
    }
}
