//! One process of a command: lines to it and from it, and its end.

use super::{
    Command,
    starts::{Refused, Starts},
};
use crate::{
    relay::child::{Child, Exit, Pipes, Surroundings},
    text::visible,
};
use bytes::{Buf as _, Bytes, BytesMut};
use rustix::process::Signal;
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

/// Bytes of the longest message.
pub(super) const LONGEST: usize = 16 << 20;
/// Messages that wait on their way.
const WAITING: usize = 16;
/// How long it has to end when its input is closed, and again after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long what it wrote before its end is waited for.
const REST: Duration = Duration::from_millis(100);
/// Bytes of its stderr that are remembered.
const TAIL: usize = 1024;

/// The end of what it wrote to its stderr.
type Tail = Arc<Mutex<Vec<u8>>>;

/// A process. When this is dropped, it is ended with all that is in its group.
pub(super) struct Process {
    name: String,
    child: Arc<Child>,
    /// Lines to it.
    pub(super) to: mpsc::Sender<Bytes>,
    /// Lines from it, without their ends; closed when there are no more.
    pub(super) lines: mpsc::Receiver<Bytes>,
    tail: Tail,
    tasks: Vec<JoinHandle<()>>,
    started: Instant,
    starts: Arc<Starts>,
    place: Option<OwnedSemaphorePermit>,
}

impl Process {
    /// Starts one, from the thread that serves: it dies with that.
    pub(super) fn start(command: &Command, starts: &Arc<Starts>, place: OwnedSemaphorePermit) -> Result<Self, Refused> {
        let broken = |why: String| {
            tracing::warn!("{}: the command cannot be started: {why}", command.name);
            starts.ended(Duration::ZERO, true);
            Refused::Broken
        };
        let env = (command.env)().map_err(&broken)?;
        let around = Surroundings { env, dir: command.dir.clone() };
        let (child, pipes) = Child::spawn_clean(&command.argv, &around).map_err(|e| broken(e.to_string()))?;
        let child = Arc::new(child);
        let (to, from_us) = mpsc::channel(WAITING);
        let (to_us, lines) = mpsc::channel(WAITING);
        let mut process = Self {
            name: command.name.clone(),
            child: child.clone(),
            to,
            lines,
            tail: Tail::default(),
            tasks: Vec::new(),
            started: Instant::now(),
            starts: starts.clone(),
            place: Some(place),
        };
        process.attend(pipes, from_us, to_us).map_err(|e| broken(e.to_string()))?;
        Ok(process)
    }

    fn attend(&mut self, pipes: Pipes, lines: mpsc::Receiver<Bytes>, to_us: mpsc::Sender<Bytes>) -> io::Result<()> {
        let stdin = pipe::Sender::from_owned_fd(pipes.stdin)?;
        let stdout = pipe::Receiver::from_owned_fd(pipes.stdout)?;
        let (ended, has_ended) = oneshot::channel();
        let child = self.child.clone();
        // What it leaves behind may hold its stdout for ever.
        thread::Builder::new().name("assay-wait".into()).spawn(move || {
            let _ = child.wait();
            let _ = ended.send(());
        })?;
        self.tasks.push(tokio::spawn(write(stdin, lines)));
        self.tasks.push(tokio::spawn(read(stdout, to_us, has_ended)));
        if let Some(stderr) = pipes.stderr {
            self.tasks.push(tokio::spawn(drain(pipe::Receiver::from_owned_fd(stderr)?, self.tail.clone())));
        }
        Ok(())
    }

    /// How it ended, in words, if it has.
    pub(super) fn end_in_words(&self) -> String {
        match self.child.try_wait() {
            Ok(Some(Exit::Code(code))) => format!("the server's process ended with exit code {code}"),
            Ok(Some(Exit::Signal(signal))) => format!("the server's process was ended by signal {signal}"),
            _ => "the server's process closed its output".to_owned(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let by_itself = self.child.has_ended();
        self.starts.ended(self.started.elapsed(), by_itself);
        if by_itself {
            let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
            let text = String::from_utf8_lossy(&tail);
            let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            tracing::warn!("{}: {}; it said last: {}", self.name, self.end_in_words(), visible(last));
        }
        for task in self.tasks.drain(..) {
            task.abort();
        }
        let (child, place) = (self.child.clone(), self.place.take());
        let end = move || {
            // What cannot be ended is stuck in the kernel.
            let _ = child.terminate(PATIENCE, PATIENCE, || {});
            let _ = child.end_group(PATIENCE);
            drop(place);
        };
        if thread::Builder::new().name("assay-end".into()).spawn(end).is_err() {
            let _ = self.child.signal_group(Signal::KILL);
        }
    }
}

async fn write(mut to: pipe::Sender, mut lines: mpsc::Receiver<Bytes>) {
    while let Some(line) = lines.recv().await {
        if to.write_all(&line).await.is_err() {
            return;
        }
    }
}

async fn read(mut from: pipe::Receiver, lines: mpsc::Sender<Bytes>, mut ended: oneshot::Receiver<()>) {
    let (mut held, mut looked, mut has_ended) = (BytesMut::new(), 0, false);
    loop {
        while let Some(at) = memchr::memchr(b'\n', &held[looked..]) {
            let line = held.split_to(looked + at + 1).freeze();
            looked = 0;
            if !pass(line, &lines).await {
                return;
            }
        }
        looked = held.len();
        if looked > LONGEST {
            return tracing::warn!("a message of a command is longer than {LONGEST} bytes; its process is ended");
        }
        held.reserve(64 << 10);
        let read = if has_ended {
            timeout(REST, from.read_buf(&mut held)).await.unwrap_or(Ok(0))
        } else {
            tokio::select! {
                biased;
                read = from.read_buf(&mut held) => read,
                _ = &mut ended => {
                    has_ended = true;
                    continue;
                }
            }
        };
        if !read.is_ok_and(|read| read > 0) {
            // A last line needs no end.
            pass(held.freeze(), &lines).await;
            return;
        }
    }
}

/// Passes a line on without its end; whether anybody still listens.
async fn pass(mut line: Bytes, lines: &mpsc::Sender<Bytes>) -> bool {
    line.truncate(line.trim_ascii_end().len());
    line.advance(line.len() - line.trim_ascii_start().len());
    line.is_empty() || lines.send(line).await.is_ok()
}

async fn drain(mut from: pipe::Receiver, tail: Tail) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&buffer[..read]);
        let more = tail.len().saturating_sub(TAIL);
        tail.drain(..more);
    }
}
