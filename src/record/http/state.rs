//! The state of a source, in a file beside its log: written whole before anything is released from the log, so that what
//! a killed process left can be read on from there.
//!
//! The file is in the directory of the log, which is memory: a full disk does not keep it from being written, and it ends
//! with the log at a reboot. It holds a magic of eight bytes, then a [`State`] in postcard's format, then what its `replays`
//! are, then its `rulings`, `held` and `ours` together.

use super::{
    assemble::AssemblyState,
    exchange::{Exchange, Undecided},
    replays::Replays,
    sessions::SessionMap,
};
use crate::{
    files,
    record::{rulings::RulingRecord, source::SessionKey},
};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Version of its format.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | events that were seen, after the rest |
/// | 3 | what a guard decided, and may decide yet, and exchanges of ours, after these |
/// | 4 | bytes that wait to be written to a spool, beside what is in it |
pub const STATE_VERSION: u8 = 4;
/// How the file begins, but for the version.
const MAGIC: &[u8; 7] = b"ASSAYST";
/// A larger file is not read: bodies that are not whole are in it, up to 32 MiB together, and the sessions.
const MAX_STATE: u64 = 256 << 20;

/// What a source knows at one place of its log.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// Offset in the log of the first entry that it does not know.
    pub at: u64,
    /// The sessions.
    pub map: SessionMap,
    /// Key and id of each session that has rolled over.
    pub ids: Vec<(u64, u64)>,
    /// The exchanges that are open.
    pub exchanges: Vec<(u64, Exchange<AssemblyState>)>,
    /// Those of them that are over, but for their delivery.
    pub undelivered: Vec<u64>,
    /// When it was looked for what is over, monotonic ns.
    pub ticked_ns: u64,
    /// Events that each session has seen (version 2).
    #[serde(skip)]
    pub replays: Vec<(SessionKey, Replays)>,
    /// What a guard decided about messages that are not whole yet: exchange, whether it is in the answer, offset after the
    /// message (version 3).
    #[serde(skip)]
    pub rulings: Vec<(u64, bool, u64, RulingRecord)>,
    /// Messages of answers about which a guard may decide yet (version 3).
    #[serde(skip)]
    pub held: Vec<(u64, Undecided)>,
    /// Exchanges of ours (version 3).
    #[serde(skip)]
    pub ours: Vec<u64>,
}

/// The file.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Bytes of the last state.
    pub size: u64,
}

impl StateFile {
    /// The state that belongs to this log.
    #[must_use]
    pub fn beside(log: &Path) -> Self {
        Self { path: log.with_extension("state"), size: 0 }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it so that a reader sees the old one or the new one.
    ///
    /// # Errors
    /// An I/O error; the old one is there then.
    pub fn write(&mut self, state: &State) -> io::Result<()> {
        let begun = [&MAGIC[..], &[b'0' + STATE_VERSION]].concat();
        let bytes = postcard::to_extend(state, begun).and_then(|bytes| postcard::to_extend(&state.replays, bytes));
        let bytes = bytes.and_then(|bytes| postcard::to_extend(&(&state.rulings, &state.held, &state.ours), bytes));
        let bytes = bytes.map_err(io::Error::other)?;
        files::replace(&self.path.with_extension("state.new"), &self.path, &bytes, |_| Ok(()))?;
        self.size = bytes.len() as u64;
        Ok(())
    }

    /// Reads it; `None` if nothing was released yet.
    ///
    /// # Errors
    /// An I/O error, or it is not such a file.
    pub fn read(&self) -> io::Result<Option<State>> {
        let file = match files::plain(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let bytes = files::read_all(file, MAX_STATE)?;
        read(&bytes).map(Some)
    }

    /// Removes it.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn read(bytes: &[u8]) -> io::Result<State> {
    let version = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_first());
    let (version, body) = version.ok_or_else(|| io::Error::other("not the state of a log"))?;
    let (mut state, rest) = postcard::take_from_bytes::<State>(body).map_err(io::Error::other)?;
    match version {
        b'1' => {}
        b'2' => state.replays = postcard::from_bytes(rest).map_err(io::Error::other)?,
        b'3' | b'4' => {
            let (replays, rest) = postcard::take_from_bytes(rest).map_err(io::Error::other)?;
            state.replays = replays;
            (state.rulings, state.held, state.ours) = postcard::from_bytes(rest).map_err(io::Error::other)?;
        }
        _ => return Err(io::Error::other("the state of a log of another version")),
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::http::sessions::Limits;

    #[test]
    fn states_of_earlier_versions_are_read() {
        let state = State {
            at: 99,
            map: SessionMap::new(7, Limits::default()),
            ids: vec![(1, 2)],
            exchanges: Vec::new(),
            undelivered: vec![3],
            ticked_ns: 4,
            replays: Vec::new(),
            rulings: Vec::new(),
            held: Vec::new(),
            ours: vec![5],
        };
        let body = postcard::to_allocvec(&state).unwrap();
        for old in [[b"ASSAYST1", &body[..]].concat(), [b"ASSAYST2", &body[..], &[0]].concat()] {
            let read = read(&old).unwrap();
            assert_eq!((read.at, read.ids, read.undelivered, read.ticked_ns), (99, vec![(1, 2)], vec![3], 4));
            assert!(read.rulings.is_empty() && read.held.is_empty() && read.ours.is_empty());
        }
        let tmp = tempfile::tempdir().unwrap();
        let mut file = StateFile::beside(&tmp.path().join("x.log.ring"));
        file.write(&state).unwrap();
        assert_eq!(file.read().unwrap().unwrap().ours, [5]);
        assert!(read(b"ASSAYST5").is_err());
    }
}
