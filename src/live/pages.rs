//! Any page of an evidence file at once, whatever its length: a journal that grows, a finished pack, half a file.
//!
//! A thread notes where every 256th line begins, so memory stays flat: sixteen bytes for 256 lines. Nobody waits for it.
//! Lines carry their number (`seq`, `event_seq`), so that the end of a file says how many there are before they are
//! counted, and any line is found by bisection meanwhile. Once the file has been read through, what counts is where the
//! lines are, not what they say. Only whole lines are shown; a torn end is a number of bytes.
//!
//! [`Receipts`] and [`Events`] are [`Entries`]: lines as what they say. [`Scan`] looks for lines in the background.

mod entries;
mod events;
mod index;
pub(crate) mod lines;
mod receipts;
mod scan;

pub use entries::{Entries, Entry};
pub use events::{EventAt, Events};
pub use lines::{LineAt, MAX_LINE};
pub use receipts::{ReceiptAt, Receipts};
pub use scan::{Scan, ScanProgress};

use index::Index;
use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Bytes that the index takes in at once.
const PIECE: usize = 1 << 20;
/// Growth up to this is taken in by whoever asks, without a thread.
const INLINE: u64 = 1 << 20;

/// The number that a line carries.
type Number = fn(&[u8]) -> Option<u64>;

/// The lines of an evidence file by their numbers, from 0. Clones share one index; the last one that is dropped stops it.
#[derive(Debug, Clone)]
pub struct Pages {
    shared: Arc<Shared>,
    _alive: Arc<Alive>,
}

/// How far the index is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read through.
    pub bytes: u64,
    /// Bytes of the file when last looked at.
    pub of: u64,
    /// Whole lines in them.
    pub lines: u64,
    /// Bytes behind the last line feed: the beginning of a line that is being written, or a torn one.
    pub torn: u64,
    /// Why it goes no further.
    pub error: Option<String>,
}

impl Progress {
    /// Whether all of the file has been read through.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.bytes >= self.of
    }
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    file: File,
    number: Option<Number>,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    index: Index,
    /// Length of the file when last looked at.
    len: u64,
    /// Lines as the last one says, while the index is not complete.
    said: Option<u64>,
    /// A thread is at it.
    busy: bool,
    error: Option<String>,
}

/// Stops the thread when nobody wants the file any more.
#[derive(Debug)]
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

impl Pages {
    /// Opens a file and begins to index it in the background. The last pages can be read at once.
    ///
    /// # Errors
    /// What the system says.
    fn open(path: &Path, number: Option<Number>) -> io::Result<Self> {
        let pages = Self::unindexed(path, number)?;
        pages.refresh()?;
        Ok(pages)
    }

    fn unindexed(path: &Path, number: Option<Number>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            file: File::open(path)?,
            number,
            state: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        Ok(Self { _alive: Arc::new(Alive(Arc::clone(&shared))), shared })
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// How many whole lines there are: counted, or as the last one says while they are being counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shared.state().lines()
    }

    /// Whether there is no whole line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How far the index is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let state = self.shared.state();
        let index = &state.index;
        Progress {
            bytes: index.read(),
            of: state.len,
            lines: index.lines(),
            torn: index.read() - index.end(),
            error: state.error.clone(),
        }
    }

    /// Looks whether the file has grown. Little is taken in here, much in the background.
    ///
    /// # Errors
    /// What the system says.
    pub fn refresh(&self) -> io::Result<()> {
        let len = self.shared.file.metadata()?.len();
        let mut state = self.shared.state();
        if len < state.index.read() {
            // Somebody cut it: recovery does, where a line is torn.
            state.index = Index::default();
        }
        state.len = len;
        let behind = len - state.index.read();
        if state.busy || behind == 0 {
            return Ok(());
        }
        state.busy = true;
        state.error = None;
        drop(state);
        if behind <= INLINE {
            self.shared.work();
            return Ok(());
        }
        let said = self.shared.said(len)?;
        self.shared.state().said = said;
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("assay-index".into()).spawn(move || shared.work());
        if thread.is_err() {
            self.shared.state().busy = false;
        }
        thread.map(drop)
    }

    /// Waits until the index is complete, or `false` is returned by `go_on`, which is asked now and then.
    pub fn wait(&self, go_on: &mut dyn FnMut(&Progress) -> bool) {
        loop {
            let progress = self.progress();
            if !go_on(&progress) {
                return;
            }
            let state = self.shared.state();
            if !state.busy {
                return;
            }
            let waited = self.shared.changed.wait_timeout(state, std::time::Duration::from_millis(50));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Gives the lines with these numbers, as far as they are there, until `each` says that it is enough.
    ///
    /// # Errors
    /// What the system says.
    pub fn lines(&self, range: Range<u64>, each: &mut dyn FnMut(LineAt<'_>) -> bool) -> io::Result<()> {
        match self.shared.locate(range.start)? {
            Some((number, offset)) => lines::read(&self.shared.file, number, offset, &mut |line| match line.number {
                n if n >= range.end => false,
                n if n < range.start => true,
                _ => each(line),
            })
            .map(drop),
            None => Ok(()),
        }
    }

    /// The exact bytes of a line without its line feed; `None` if there is none, or it is longer than [`MAX_LINE`].
    ///
    /// # Errors
    /// What the system says.
    pub fn line(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        let mut found = None;
        self.lines(number..number.saturating_add(1), &mut |line| {
            found = line.bytes.map(<[u8]>::to_vec);
            false
        })?;
        Ok(found)
    }
}

impl State {
    fn lines(&self) -> u64 {
        let counted = self.index.lines();
        if self.busy { self.said.map_or(counted, |said| said.max(counted)) } else { counted }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads on to the end of the file.
    fn work(&self) {
        let mut buffer = vec![0; PIECE];
        loop {
            let from = self.state().index.read();
            let read = self.file.read_at(&mut buffer, from);
            let mut state = self.state();
            match read {
                Ok(n @ 1..) if !self.stop.load(Ordering::Relaxed) => {
                    // The file may have been cut meanwhile, and the index begun anew.
                    if state.index.read() == from {
                        state.index.take(&buffer[..n]);
                    }
                    state.len = state.len.max(state.index.read());
                }
                ended => {
                    state.error = ended.err().map(|e| e.to_string());
                    state.busy = false;
                }
            }
            let busy = state.busy;
            drop(state);
            self.changed.notify_all();
            if !busy {
                return;
            }
        }
    }

    /// How many lines there are, as the last whole one says.
    fn said(&self, len: u64) -> io::Result<Option<u64>> {
        let Some(number) = self.number else { return Ok(None) };
        Ok(lines::last(&self.file, len)?.and_then(|line| number(&line)).and_then(|last| last.checked_add(1)))
    }

    /// Number and offset of a line at or shortly before this one.
    fn locate(&self, number: u64) -> io::Result<Option<(u64, u64)>> {
        let len = {
            let state = self.state();
            if number < state.index.lines() {
                return Ok(Some(state.index.before(number)));
            }
            if number >= state.lines() {
                return Ok(None);
            }
            state.len
        };
        let Some(says) = self.number else { return Ok(None) };
        let mut found = None;
        let from = lines::bisect(&self.file, len, &says, &number)?;
        lines::read(&self.file, 0, from, &mut |line| {
            match line.bytes.and_then(says) {
                Some(n) if n == number => found = Some((number, line.offset)),
                Some(n) if n > number => {}
                _ => return line.offset - from < AROUND,
            }
            false
        })?;
        Ok(found)
    }
}

/// Bytes behind the place that bisection found in which a line is looked for.
const AROUND: u64 = 1 << 20;

#[cfg(test)]
mod tests;
