//! The bridge between a client that speaks stdio and a server that is reached over HTTP.
//!
//! It takes the place of the server's process: it reads what the client says, one message a line, and writes what the
//! client is told. Every message is sent as a request of its own; every request of the client gets exactly one answer.
//! Messages of the revisions with a session and of those without may be mixed.
//!
//! Must not know: evidence, policies.

mod answers;
mod book;
mod client;
mod cookies;
mod era;
mod failed;
mod old;
mod params;
mod resume;
mod session;
mod streams;
mod talk;
mod wire;

pub use book::Book;

use crate::relay::http::connect::{ConnectError, Connector, Destination, SetupError, UpstreamHttp};
use http::{HeaderName, HeaderValue};
use rustix::fd::OwnedFd;
use std::{
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};
use tokio::sync::watch;

/// How the server is spoken with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Streamable HTTP, or the older transport of one event stream if the server refuses that.
    #[default]
    Auto,
    /// Streamable HTTP.
    StreamableHttp,
    /// One event stream for all answers, of the revision 2024-11-05.
    Sse,
}

/// What happens when the server has forgotten the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionLoss {
    /// A new one is begun as the client began the first.
    #[default]
    Reinitialize,
    /// The client's requests are answered with errors.
    Error,
    /// The bridge ends, so that the client starts anew.
    Exit,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// The answer to `initialize`, and the first event of an older server.
    pub initialize: Duration,
    /// The answer to `notifications/initialized`, before what follows is sent all the same.
    pub initialized: Duration,
    /// Answers that are missing when the client's input ends.
    pub grace: Duration,
    /// The end of the session at the server.
    pub delete: Duration,
    /// The first wait before a stream is asked for again, unless the server says how long.
    pub first_retry: Duration,
    /// The longest.
    pub longest_retry: Duration,
    /// How often in a row an answer that was cut is asked for without hearing anything.
    pub tries: u32,
    /// Two losses of the session within this are one too many.
    pub between_losses: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            initialize: Duration::from_secs(30),
            initialized: Duration::from_secs(5),
            grace: Duration::from_secs(2),
            delete: Duration::from_secs(2),
            first_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(30),
            tries: 5,
            between_losses: Duration::from_secs(60),
        }
    }
}

/// What is said to people: one line each.
pub type Notice = Arc<dyn Fn(&str) + Send + Sync>;

/// What a bridge needs to know.
#[derive(Clone)]
pub struct Config {
    /// The endpoint, and how it is reached.
    pub destination: Destination,
    /// Headers of every request, above those of the bridge.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How the server is spoken with.
    pub transport: Transport,
    /// What happens when the session is lost.
    pub session_loss: SessionLoss,
    /// How long things may take.
    pub timing: Timing,
    /// Where messages to people go.
    pub notice: Notice,
    /// Where exchanges are logged; `None`: nowhere.
    pub book: Option<Book>,
}

/// How a bridge ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeEnd {
    /// Exit code: 0 after the client's end, 1 if the session was lost, 3 if the server speaks no MCP.
    pub code: u8,
    /// Why, in words.
    pub why: String,
}

/// How soon a bridge is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Asked {
    No,
    /// The session is ended at the server; nothing is waited for.
    Stop,
    /// At once.
    Kill,
}

/// A bridge that runs in a thread of its own.
#[derive(Debug, Clone)]
pub struct BridgeHandle {
    end: Arc<(Mutex<Option<BridgeEnd>>, Condvar)>,
    asked: watch::Sender<Asked>,
}

/// The bridge.
#[derive(Debug)]
pub struct Bridge;

impl Bridge {
    /// Starts a bridge. It reads what the client says from one pipe and writes what it is told to the other.
    ///
    /// # Errors
    /// The URL, the proxy or the certificates cannot be used, or there is no thread; nothing was read then.
    pub fn start(config: Config, reader: OwnedFd, writer: OwnedFd) -> io::Result<BridgeHandle> {
        let connector = Connector::new(&config.destination).map_err(io::Error::other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (asked, hears) = watch::channel(Asked::No);
        let end = Arc::new((Mutex::new(None), Condvar::new()));
        let handle = BridgeHandle { end: end.clone(), asked };
        let run = move || {
            let tasks = tokio::task::LocalSet::new();
            let told = tasks.block_on(&runtime, talk::run(config, connector, reader, writer, hears));
            // Tasks hold the descriptors, and the relays wait for their end.
            drop(tasks);
            runtime.shutdown_background();
            let (slot, told_all) = &*end;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
            told_all.notify_all();
        };
        thread::Builder::new().name("assay-bridge".into()).spawn(run)?;
        Ok(handle)
    }
}

impl BridgeHandle {
    /// Blocks until the bridge has ended. Any number of threads may wait, again and again.
    #[must_use]
    pub fn wait(&self) -> BridgeEnd {
        let (slot, told) = &*self.end;
        let mut end = slot.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(end) = &*end {
                return end.clone();
            }
            end = told.wait(end).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<BridgeEnd> {
        self.end.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has it end the session at the server, without waiting for answers.
    pub fn stop(&self) {
        self.ask(Asked::Stop);
    }

    /// Has it end at once.
    pub fn kill(&self) {
        self.ask(Asked::Kill);
    }

    fn ask(&self, how: Asked) {
        self.asked.send_if_modified(|asked| {
            let is_more = *asked < how;
            if is_more {
                *asked = how;
            }
            is_more
        });
    }
}

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// The URL, the proxy or the certificates cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The system has no descriptors.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Connects once, with TLS where the URL says so, and sends nothing.
///
/// # Errors
/// What keeps the server from being reached.
pub fn check(destination: &Destination) -> Result<(), Unreachable> {
    let connector = Connector::new(destination)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let connected = runtime.block_on(connector.connect(UpstreamHttp::Http1));
    runtime.shutdown_background();
    connected.map(drop).map_err(Into::into)
}
