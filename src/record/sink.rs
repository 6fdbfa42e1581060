//! One file of a session: appended, never rewritten, cut back to the last good line after a failed write.

use crate::{files::Tree, text::counted};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

/// An append-only file that remembers where its last whole write ended.
#[derive(Debug)]
pub struct Sink {
    file: File,
    good: u64,
    dirty: bool,
}

impl Sink {
    /// A new file; refuses one that is there.
    ///
    /// # Errors
    /// An I/O error.
    pub fn create(files: &Tree, path: &Path) -> io::Result<Self> {
        Ok(Self { file: files.create(path)?, good: 0, dirty: false })
    }

    /// A file that may be there already.
    ///
    /// # Errors
    /// An I/O error.
    pub fn append_to(files: &Tree, path: &Path) -> io::Result<Self> {
        let file = files.append(path)?;
        let good = file.metadata()?.len();
        Ok(Self { file, good, dirty: false })
    }

    /// Appends all of `bytes`, or nothing that stays: what a failed write left behind is cut off before the next.
    ///
    /// # Errors
    /// An I/O error; call again with the same bytes.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.restore()?;
        self.dirty = true;
        self.file.write_all(bytes)?;
        self.good += bytes.len() as u64;
        self.dirty = false;
        Ok(())
    }

    fn restore(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.set_len(self.good)?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Streams one entry with `write`; all of it stays, or nothing.
    ///
    /// # Errors
    /// The error of `write`, or an I/O error.
    pub fn stream(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        self.restore()?;
        self.dirty = true;
        let mut out = BufWriter::with_capacity(1 << 20, &self.file);
        write(&mut out)?;
        out.flush()?;
        drop(out);
        self.good = self.file.metadata()?.len();
        self.dirty = false;
        Ok(())
    }

    /// What another process has done to the file since, and how many bytes of it that costs at most.
    #[must_use]
    pub fn damage(&self, path: &Path) -> Option<(String, u64)> {
        if self.dirty {
            return None;
        }
        let ours = self.file.metadata().ok()?;
        let there = std::fs::symlink_metadata(path);
        let what = match &there {
            _ if ours.len() < self.good => {
                let what = format!("was cut from {} to {}", counted(self.good, "byte"), ours.len());
                return Some((what, self.good - ours.len()));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => "was removed".to_owned(),
            Ok(there) if (there.dev(), there.ino()) != (ours.dev(), ours.ino()) => "was replaced".to_owned(),
            _ if ours.len() > self.good => {
                format!("was {} long and now has {}", counted(self.good, "byte"), ours.len())
            }
            _ => return None,
        };
        Some((what, self.good))
    }

    /// Length in bytes: whole lines that were written.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.good
    }

    /// Whether nothing was written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.good == 0
    }

    /// The file, for syncing.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Closes it; what is remembered of it tells later whether it is as it was left.
    ///
    /// # Errors
    /// An I/O error.
    pub fn leave(self) -> io::Result<Left> {
        let ours = self.file.metadata()?;
        Ok(Left { dev: ours.dev(), ino: ours.ino(), len: self.good })
    }
}

/// A file that is not open, as it was left.
#[derive(Debug, Clone, Copy)]
pub struct Left {
    dev: u64,
    ino: u64,
    len: u64,
}

impl Left {
    /// What another process has done to the file since.
    #[must_use]
    pub fn damage(&self, path: &Path) -> Option<String> {
        match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Some("was removed".to_owned()),
            Ok(there) if (there.dev(), there.ino()) != (self.dev, self.ino) => Some("was replaced".to_owned()),
            Ok(there) if there.len() != self.len => {
                Some(format!("was {} long and now has {}", counted(self.len, "byte"), there.len()))
            }
            _ => None,
        }
    }
}
