//! The threads between the client and the server of a session over stdio.

use super::{
    client,
    lifecycle::{Event, Stops},
    served::Served,
};
use crate::{
    live::voice::Voice,
    relay::{
        Producer, Stop,
        child::Pipes,
        stdio::{Inspector, Mode, RelayEvent, StderrCounts, relay_and_tell, relay_stderr},
    },
    sys::fd,
};
use rustix::fd::{AsFd as _, OwnedFd};
use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{self, Sender},
    },
    thread,
};

/// The inspectors of the two directions, client to server first.
pub(super) type Inspectors = [Box<dyn Inspector>; 2];

/// The threads that pass bytes on.
pub(super) struct Running {
    pub(super) stops: Stops,
    stderr: Arc<StderrCounts>,
    /// What the threads wait for.
    waiting: Vec<Sender<()>>,
    /// The descriptors that replace our stdin and stdout then.
    blank: OwnedFd,
}

impl Running {
    /// Makes the threads; nothing crosses before [`Running::go`].
    ///
    /// # Errors
    /// There are no descriptors or threads for them.
    pub(super) fn start(
        pipes: Pipes,
        producers: [Producer; 2],
        inspectors: Option<Inspectors>,
        child: &Arc<Served>,
        events: &Sender<Event>,
        voice: Option<Arc<Voice>>,
    ) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("the session cannot be relayed: {e}");
        let mut waiting = Vec::new();
        let stops = Stops {
            c2s: Stop::new().map_err(failed)?,
            s2c: Stop::new().map_err(failed)?,
            stderr: Stop::new().map_err(failed)?,
        };
        let stderr = Arc::new(StderrCounts::default());
        let (told, server) = (events.clone(), child.clone());
        let parent_gone = move |was_client| {
            let after_server = server.has_ended();
            let _ = told.send(Event::ParentGone { was_client, after_server });
        };
        client::watch(parent_gone).map_err(failed)?;
        let stdin = fd::copy_stdio(fd::Stdio::In).map_err(failed)?;
        let stdout = fd::copy_stdio(fd::Stdio::Out).map_err(failed)?;
        let [c2s, s2c] = producers;
        let Pipes { stdin: to_server, stdout: from_server, stderr: server_stderr } = pipes;
        let [mut gate, mut outlet] = inspectors.map_or([None, None], |d| d.map(Some));
        let c2s_stop = stops.c2s.clone();
        // The relay from the server holds it, and closing it is telling the server.
        let from_server = Arc::new(from_server);
        let (looked_at, server) = (Arc::downgrade(&from_server), child.clone());
        let after_server = move || {
            let hung_up = |fd: Arc<OwnedFd>| fd::has_hung_up(fd.as_fd());
            server.has_ended() || looked_at.upgrade().is_none_or(hung_up)
        };
        relay_thread(&mut waiting, "assay-c2s", events, move |tell| {
            let mode = match &mut gate {
                Some(gate) => Mode::Guard(gate.as_mut()),
                None => Mode::Audit,
            };
            let said = |told: RelayEvent<'_>| {
                if let Some(event) = Event::of_client(&told, &after_server) {
                    tell(event);
                }
            };
            relay_and_tell(&stdin, to_server, c2s, &c2s_stop, mode, &said);
        })?;
        let (s2c_stop, server) = (stops.s2c.clone(), child.clone());
        relay_thread(&mut waiting, "assay-s2c", events, move |tell| {
            let mode = match &mut outlet {
                Some(outlet) => Mode::Guard(outlet.as_mut()),
                None => Mode::Audit,
            };
            let said = |told: RelayEvent<'_>| tell(Event::of_server(&told, || server.has_ended()));
            relay_and_tell(&from_server, stdout, s2c, &s2c_stop, mode, &said);
        })?;
        if let Some(from) = server_stderr {
            let to = fd::copy_stdio(fd::Stdio::Err).map_err(failed)?;
            let (counts, stop) = (stderr.clone(), stops.stderr.clone());
            relay_thread(&mut waiting, "assay-stderr", events, move |tell| {
                let tap = |piece: &[u8]| voice.as_ref().is_none_or(|voice| voice.take(piece));
                relay_stderr(from, to, &counts, Some(&tap), &stop);
                tell(Event::StderrEnd);
            })?;
        } else {
            let _ = events.send(Event::StderrEnd);
        }
        let child = child.clone();
        relay_thread(&mut waiting, "assay-wait", events, move |tell| {
            let exit = child.wait();
            tell(Event::Exited(exit.ok()));
        })?;
        let blank = fd::null().map_err(failed)?;
        Ok(Self { stops, stderr, waiting, blank })
    }

    /// Bytes of the server's stderr so far.
    pub(super) fn stderr_bytes(&self) -> u64 {
        self.stderr.bytes.load(Ordering::Relaxed)
    }

    /// Lets the relays begin. Until this is called, they wait.
    pub(super) fn go(&self) {
        fd::blank_stdio(&self.blank);
        for thread in &self.waiting {
            let _ = thread.send(());
        }
    }
}

fn relay_thread(
    waiting: &mut Vec<Sender<()>>,
    name: &str,
    events: &Sender<Event>,
    body: impl FnOnce(&dyn Fn(Event)) + Send + 'static,
) -> Result<(), String> {
    let events = events.clone();
    let (go, gone) = mpsc::channel();
    waiting.push(go);
    let run = move || {
        if gone.recv().is_ok() {
            // The main thread may have continued without this one.
            body(&|event| drop(events.send(event)));
        }
    };
    thread::Builder::new().name(name.into()).spawn(run).map(drop).map_err(|e| format!("no thread for relaying: {e}"))
}
