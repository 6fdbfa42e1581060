//! Events that a session has seen, to know those that a server sends again after a reconnect.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, VecDeque};

/// The last so many ids are known: all of them are in the state of a log, for each of perhaps a thousand sessions.
pub const REMEMBERED: usize = 1 << 10;

/// An id: the first half of its SHA-256, so that long ones take no memory.
type Id = [u8; 16];

/// What is known of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Its id is new.
    New,
    /// Its id and its data were seen before. On a stream that was opened with `Last-Event-ID`, it is sent again.
    Same,
    /// Its id was seen before, with other data: the server uses it twice.
    Other,
}

/// The ids of the last events of a session, and a digest of the data of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replays {
    known: HashMap<Id, u64>,
    /// The oldest is first.
    order: VecDeque<Id>,
}

impl Replays {
    /// Notes an event: its own id, and SHA-256 of its data.
    pub fn note(&mut self, id: &[u8], data: &[u8; 32]) -> Replay {
        let digest = <[u8; 32]>::from(Sha256::digest(id));
        let (id, _) = digest.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let (data, _) = data.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let data = u64::from_le_bytes(*data);
        match self.known.insert(*id, data) {
            Some(before) if before == data => Replay::Same,
            Some(_) => Replay::Other,
            None => {
                if self.order.len() == REMEMBERED
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.known.remove(&oldest);
                }
                self.order.push_back(*id);
                Replay::New
            }
        }
    }

    /// How many ids are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// The oldest first: ids with their data.
impl Serialize for Replays {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.order.iter().map(|id| (id, self.known.get(id).copied().unwrap_or(0))))
    }
}

impl<'de> Deserialize<'de> for Replays {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let all = Vec::<(Id, u64)>::deserialize(from)?;
        let order = all.iter().map(|(id, _)| *id).collect();
        Ok(Self { known: all.into_iter().collect(), order })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(n: u8) -> [u8; 32] {
        [n; 32]
    }

    #[test]
    fn an_event_is_sent_again_if_id_and_data_are_the_same() {
        let mut replays = Replays::default();
        assert_eq!(replays.note(b"1", &data(1)), Replay::New);
        assert_eq!(replays.note(b"2", &data(1)), Replay::New);
        assert_eq!(replays.note(b"1", &data(1)), Replay::Same);
        assert_eq!(replays.note(b"1", &data(2)), Replay::Other);
        assert_eq!(replays.note(b"1", &data(2)), Replay::Same, "what was seen last counts");
        assert_eq!(replays.len(), 2);
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let mut replays = Replays::default();
        for n in 0..=REMEMBERED {
            assert_eq!(replays.note(n.to_string().as_bytes(), &data(7)), Replay::New);
        }
        assert_eq!((replays.len(), replays.known.len()), (REMEMBERED, REMEMBERED));
        assert_eq!(replays.note(b"1", &data(7)), Replay::Same);
        assert_eq!(replays.note(b"0", &data(7)), Replay::New);
        assert_eq!(replays.note(b"1", &data(7)), Replay::New);
    }

    #[test]
    fn it_can_be_written_down() {
        let mut replays = Replays::default();
        for n in 0..200 {
            replays.note(&[n; 300], &data(n));
        }
        let written = postcard::to_extend(&replays, Vec::new()).unwrap();
        assert_eq!(postcard::from_bytes::<Replays>(&written).unwrap(), replays);
    }
}
