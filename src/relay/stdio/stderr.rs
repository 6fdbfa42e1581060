//! The server's stderr: drained whatever happens, so that a server never blocks because its log is not read.

use super::{RelayEnd, Stop, StopReason};
use crate::sys::fd::{Want, wait_ready};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A write of at most this many bytes does not block on a pipe that says it is writable (`PIPE_BUF`).
const PIECE: usize = 4096;
/// How long our reader may keep us waiting once, before bytes are dropped until it reads again.
const PATIENCE: Duration = Duration::from_secs(1);

/// Running totals, readable while the relay works.
#[derive(Debug, Default)]
pub struct StderrCounts {
    /// Bytes read from the server.
    pub bytes: AtomicU64,
    /// Line feeds among them.
    pub lines: AtomicU64,
    /// Bytes that could not be passed on, because our stderr is gone or is not being read.
    pub lost: AtomicU64,
    /// Pieces that the tap did not take.
    pub tap_missed: AtomicU64,
}

/// Sees the pieces that pass; says whether it took one. It must not wait.
pub type Tap<'a> = &'a dyn Fn(&[u8]) -> bool;

/// Copies `input` to `output` until `input` ends or `stop` is asked for, and shows every piece to `tap`.
///
/// A closed or stuck `output` never stops the copying from `input`; see [`StderrCounts::lost`].
pub fn relay_stderr(
    input: OwnedFd,
    output: OwnedFd,
    counts: &StderrCounts,
    tap: Option<Tap<'_>>,
    stop: &Stop,
) -> RelayEnd {
    let mut sink = Sink { output: Some(output), patience: PATIENCE, written: 0 };
    let mut buffer = vec![0; 64 * 1024];
    let mut read = 0;
    let reason = loop {
        match await_input(&input, stop) {
            Ok(None) => {}
            Ok(Some(reason)) => break reason,
            Err(e) => break StopReason::ReadFailed(e),
        }
        match rustix::io::read(&input, &mut buffer) {
            Ok(0) => break StopReason::Eof,
            Ok(n) => {
                let bytes = &buffer[..n];
                read += n as u64;
                counts.bytes.fetch_add(n as u64, Ordering::Relaxed);
                counts.lines.fetch_add(memchr::memchr_iter(b'\n', bytes).count() as u64, Ordering::Relaxed);
                if tap.is_some_and(|tap| !tap(bytes)) {
                    counts.tap_missed.fetch_add(1, Ordering::Relaxed);
                }
                let lost = sink.put(bytes);
                counts.lost.fetch_add(lost as u64, Ordering::Relaxed);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => break StopReason::ReadFailed(e.into()),
        }
    };
    drop(input);
    RelayEnd { reason, read, written: sink.written }
}

fn await_input(input: &OwnedFd, stop: &Stop) -> std::io::Result<Option<StopReason>> {
    loop {
        match stop.wish() {
            super::RUN => {}
            super::DRAIN => {
                let ready = wait_ready(input.as_fd(), Want::Read, None, Some(Duration::ZERO))?;
                return Ok(if ready.fd { None } else { Some(StopReason::Drained) });
            }
            _ => return Ok(Some(StopReason::Stopped)),
        }
        let ready = wait_ready(input.as_fd(), Want::Read, Some(stop.fd()), None)?;
        if ready.fd && !ready.stop {
            return Ok(None);
        }
    }
}

struct Sink {
    output: Option<OwnedFd>,
    patience: Duration,
    written: u64,
}

impl Sink {
    /// Writes what can be written; returns how many bytes were lost.
    fn put(&mut self, mut bytes: &[u8]) -> usize {
        while !bytes.is_empty() {
            let Some(output) = &self.output else { break };
            match wait_ready(output.as_fd(), Want::Write, None, Some(self.patience)) {
                Ok(ready) if ready.fd => {}
                Ok(_) => {
                    self.patience = Duration::ZERO;
                    break;
                }
                Err(_) => {
                    self.output = None;
                    break;
                }
            }
            match rustix::io::write(output, &bytes[..bytes.len().min(PIECE)]) {
                Ok(n) => {
                    self.patience = PATIENCE;
                    self.written += n as u64;
                    bytes = &bytes[n..];
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO) => break,
                Err(_) => self.output = None,
            }
        }
        bytes.len()
    }
}
