//! Bytes of a message that is not whole: in memory, or in a file once they are many.

use crate::{canon::Page, files::Tree, model::Direction, relay::log::Flow, sys::FileMap};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::PathBuf,
};

/// Bytes that are kept in memory; more go into the file. 1 MiB.
pub const IN_MEMORY: usize = 1 << 20;
/// Bytes that wait for a write to the file: one that is large takes half as long for a byte. 256 KiB.
const WRITTEN: usize = 256 << 10;

/// Where a file for bytes may be made.
#[derive(Debug, Clone)]
pub struct SpoolPlace {
    /// The directory that it is in.
    pub files: Tree,
    /// Its path.
    pub path: PathBuf,
    /// The file of a killed process, which is copied: others may need it, too.
    pub from: Option<PathBuf>,
}

/// The name of the file for the large messages of a body.
#[must_use]
pub fn spool_name(process: &str, Flow { exchange, direction }: Flow) -> String {
    let side = if direction == Direction::ClientToServer { "c2s" } else { "s2c" };
    format!("{process}.x{exchange}.{side}.spool")
}

/// What remains of kept bytes when their process is gone.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KeptState {
    memory: Vec<u8>,
    /// Bytes in the file.
    spooled: u64,
}

/// Bytes of a message that is not whole.
#[derive(Debug)]
pub struct Kept {
    /// All of them, or the last, which wait for a write to the file.
    memory: Vec<u8>,
    spool: Option<(File, u64)>,
    place: Option<SpoolPlace>,
}

impl Kept {
    /// None yet. Without a place they stay in memory, whatever they are.
    #[must_use]
    pub fn new(place: Option<SpoolPlace>) -> Self {
        Self { memory: Vec::new(), spool: None, place }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.memory.len() as u64 + self.spool.as_ref().map_or(0, |(_, len)| *len)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds some.
    ///
    /// # Errors
    /// The file cannot be written. What is kept is as it was.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.spool.is_none() {
            if self.memory.len() + bytes.len() <= IN_MEMORY || self.place.is_none() {
                self.memory.extend_from_slice(bytes);
                return Ok(());
            }
            self.spill()?;
        }
        let waited = self.memory.len();
        self.memory.extend_from_slice(bytes);
        if self.memory.len() < WRITTEN {
            return Ok(());
        }
        self.write().inspect_err(|_| self.memory.truncate(waited))
    }

    /// Writes what waits for that to the file, if there is one.
    fn write(&mut self) -> io::Result<()> {
        let Some((file, len)) = &mut self.spool else { return Ok(()) };
        if let Err(e) = file.write_all(&self.memory) {
            // A file that is cut back is as long as we say.
            let _ = file.set_len(*len);
            return Err(e);
        }
        *len += self.memory.len() as u64;
        self.memory.clear();
        Ok(())
    }

    /// Moves what is in memory into the file.
    fn spill(&mut self) -> io::Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        place.files.remove(&place.path)?;
        let mut file = place.files.create(&place.path)?;
        file.write_all(&self.memory)?;
        self.spool = Some((file, self.memory.len() as u64));
        self.memory = Vec::with_capacity(2 * WRITTEN);
        Ok(())
    }

    /// Shows all of them to `with`.
    ///
    /// # Errors
    /// The file cannot be written or mapped.
    pub fn peek<R>(&mut self, with: impl FnOnce(&[u8], Page<'_>) -> R) -> io::Result<R> {
        self.write()?;
        let Some((file, len)) = &self.spool else { return Ok(with(&self.memory, None)) };
        let map = FileMap::new(file, 0, usize::try_from(*len).map_err(io::Error::other)?)?;
        Ok(with(&map, Some(&|upto| map.release(upto))))
    }

    /// Gives all of them to `with`, and keeps none.
    ///
    /// # Errors
    /// As [`Kept::peek`].
    pub fn take<R>(&mut self, with: impl FnOnce(&[u8], Page<'_>) -> R) -> io::Result<R> {
        let given = self.peek(with)?;
        self.clear();
        Ok(given)
    }

    /// Keeps none.
    pub fn clear(&mut self) {
        if self.spool.take().is_some()
            && let Some(place) = &self.place
            && let Err(e) = place.files.remove(&place.path)
        {
            tracing::warn!(path = %place.path.display(), error = %e, "a spool file could not be removed");
        }
        // What was large once is not held for ever.
        if self.memory.capacity() > IN_MEMORY / 4 {
            self.memory = Vec::new();
        }
        self.memory.clear();
    }

    /// What is needed to go on with them.
    #[must_use]
    pub fn state(&self) -> KeptState {
        KeptState { memory: self.memory.clone(), spooled: self.spool.as_ref().map_or(0, |(_, len)| *len) }
    }

    /// Goes on with them. What came into the file since is cut off: it is read from the log again.
    ///
    /// # Errors
    /// The file is not as it was.
    pub fn restore(state: KeptState, place: Option<SpoolPlace>) -> io::Result<Self> {
        let mut kept = Self { memory: state.memory, spool: None, place };
        if state.spooled == 0 {
            return Ok(kept);
        }
        let Some(place) = &kept.place else { return Err(io::Error::other("there is no place of a spool")) };
        let from = place.from.as_ref().unwrap_or(&place.path);
        let mut file = place.files.append_existing(from)?;
        if file.metadata()?.len() < state.spooled {
            return Err(io::Error::other(format!("{} was cut", from.display())));
        }
        if place.from.is_some() {
            let mut source = place.files.open(from)?.take(state.spooled);
            place.files.remove(&place.path)?;
            file = place.files.create(&place.path)?;
            io::copy(&mut source, &mut file)?;
        } else {
            file.set_len(state.spooled)?;
        }
        kept.spool = Some((file, state.spooled));
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::AuditDir;

    #[test]
    fn many_bytes_go_into_a_file_and_come_back_also_in_another_process() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AuditDir::at(tmp.path().join("a"));
        dir.create().unwrap();
        let place = SpoolPlace { files: dir.files().clone(), path: dir.live().join("x.spool"), from: None };
        let (piece, other) = (vec![7; 100_000], vec![8; 100_000]);
        let mut kept = Kept::new(Some(place.clone()));
        for _ in 0..10 {
            kept.push(&piece).unwrap();
        }
        assert!(!place.path.exists());
        kept.push(&piece).unwrap();
        assert!(place.path.exists());
        let state = kept.state();
        // What waits to be written is in the state, and what was written after it in the file.
        for _ in 0..3 {
            kept.push(&other).unwrap();
        }
        assert_eq!(kept.len(), 1_400_000);
        assert!(place.path.metadata().unwrap().len() > 1_100_000);
        let mut again = Kept::restore(state, Some(place.clone())).unwrap();
        assert_eq!(again.len(), 1_100_000);
        again.push(b"end").unwrap();
        assert_eq!(again.peek(|bytes, _| bytes.len()).unwrap(), 1_100_003);
        let all = again.take(|bytes, _| bytes.to_vec()).unwrap();
        assert!(all.len() == 1_100_003 && all[..1_100_000].iter().all(|b| *b == 7) && all.ends_with(b"end"));
        assert!(again.is_empty() && !place.path.exists());
        again.push(b"x").unwrap();
        assert_eq!(again.take(|bytes, _| bytes.to_vec()).unwrap(), b"x");
        assert!(Kept::restore(KeptState { memory: Vec::new(), spooled: 1 }, Some(place)).is_err());
    }
}
