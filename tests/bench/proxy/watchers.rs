//! Those at the live socket: one who follows as a dashboard does, and such that mean ill.

use assay::live::{
    client::{self, Update},
    discovery,
    protocol::RunCard,
    state::State,
};
use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watcher {
    /// Nobody.
    Nobody,
    /// One who follows from the beginning and keeps the state of a dashboard.
    Follows,
    /// Three who follow as dashboards do, and want to see what messages hold.
    Dashboards,
    /// Sixteen who asked for everything and never read.
    Deaf,
    /// Sixteen who read one byte a second.
    Drip,
    /// One who sends a gigabyte and more, connecting anew whenever it is cut off.
    Flood,
    /// A thousand connections, each made anew a tenth of a second after it was closed.
    Crowd,
}

/// A watcher at work.
pub struct Watching {
    stop: Arc<AtomicBool>,
    ready: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Watching {
    /// Starts looking for a session in a run directory.
    pub fn start(watcher: Watcher, run: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (greeted, ready) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        let body = move || {
            if let Some(card) = find(&run, &stopped) {
                let socket = card.card.socket.clone().unwrap_or_default();
                match watcher {
                    Watcher::Nobody => {}
                    Watcher::Follows => follow(card, false, &stopped, &greeted),
                    Watcher::Dashboards => thread::scope(|s| {
                        for _ in 0..3 {
                            s.spawn(|| follow(card.clone(), true, &stopped, &greeted));
                        }
                    }),
                    Watcher::Deaf => sit(&socket, None, &stopped, &greeted),
                    Watcher::Drip => sit(&socket, Some(Duration::from_secs(1)), &stopped, &greeted),
                    Watcher::Flood => flood(&socket, &stopped, &greeted),
                    Watcher::Crowd => crowd(&socket, &stopped, &greeted),
                }
            }
        };
        Self { stop, ready, thread: Some(thread::spawn(body)) }
    }

    /// Waits until it is at work.
    pub fn ready(&self) -> io::Result<()> {
        self.ready.recv_timeout(Duration::from_secs(10)).map_err(|_| io::Error::other("nobody was greeted"))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn find(run: &Path, stop: &AtomicBool) -> Option<RunCard> {
    while !stop.load(Ordering::Relaxed) {
        let card = discovery::live_in(run).pop();
        if let Some(card) = card.filter(|c| c.card.socket.as_ref().is_some_and(|s| s.exists())) {
            return Some(card);
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

fn follow(card: RunCard, contents: bool, stop: &Arc<AtomicBool>, greeted: &Sender<()>) {
    let (updates, inbox) = mpsc::sync_channel(4096);
    let Ok(thread) = client::follow_only(card, None, (u64::MAX, contents), updates, Arc::clone(stop)) else { return };
    let mut state = State::default();
    for update in &inbox {
        let _ = greeted.send(());
        match update {
            Update::Line(line) => state.apply(&line),
            Update::Call(row) => state.call(*row),
            Update::Unread(_) | Update::TooNew { .. } | Update::Lost(_) | Update::Gone(_) => {}
        }
    }
    let _ = thread.join();
}

/// A subscriber that has been greeted and has asked for everything.
fn subscriber(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    (&stream).read_exact(&mut [0; 16])?;
    (&stream).write_all(b"{\"subscribe\":\"all\",\"from\":0}\n")?;
    Ok(stream)
}

fn sit(socket: &Path, reads: Option<Duration>, stop: &AtomicBool, greeted: &Sender<()>) {
    let seats: Vec<UnixStream> = (0..16).filter_map(|_| subscriber(socket).ok()).collect();
    let _ = greeted.send(());
    let mut last = std::time::Instant::now();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
        if reads.is_some_and(|every| last.elapsed() >= every) {
            last = std::time::Instant::now();
            seats.iter().for_each(|mut s| drop(s.read(&mut [0; 1])));
        }
    }
}

fn flood(socket: &Path, stop: &AtomicBool, greeted: &Sender<()>) {
    let piece = vec![b'x'; 1 << 20];
    while !stop.load(Ordering::Relaxed) {
        if let Ok(stream) = UnixStream::connect(socket) {
            let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
            let _ = greeted.send(());
            let sent = (0..1024).take_while(|_| (&stream).write_all(&piece).is_ok()).count();
            assert!(sent < 64, "{sent} MiB were read");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn crowd(socket: &Path, stop: &AtomicBool, greeted: &Sender<()>) {
    let mut crowd: Vec<UnixStream> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        crowd.retain(|s| {
            s.set_nonblocking(true).is_ok() && !matches!((&*s).read(&mut [0; 4096]), Ok(0)) && s.take_error().is_ok()
        });
        let missing = 1000 - crowd.len();
        crowd.extend((0..missing).filter_map(|_| discovery::connect(socket).ok()));
        let _ = greeted.send(());
        thread::sleep(Duration::from_millis(100));
    }
}
