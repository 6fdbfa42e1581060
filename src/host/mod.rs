//! A command served as a Streamable HTTP server, over a Unix socket of this user's.
//!
//! | file | what |
//! |---|---|
//! | `message` | what is read of a message |
//! | `process` | one process of the command: lines to it and from it, and its end |
//! | `starts` | how many there may be, and when the next one may start |
//! | `session` | a session of up to 2025-11-25 |
//! | `pool` | exchanges from 2026-07-28 on |
//! | `reply` | answers over HTTP |
//!
//! What the command writes is what the client gets, byte for byte; only the frame around a message is another one.

mod message;
mod pool;
mod process;
mod reply;
mod session;
mod starts;
#[cfg(test)]
mod tests;

use crate::relay::http::{
    access::Access,
    host::{Host, Hosted, Hosting, Peer},
    listen::{Gateway, ListenAddr, Listener, Stop},
    route::{Found, Routes},
    witness::{Asked, Witness},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use message::Message;
use pool::Pool;
use process::{LONGEST, Process};
use reply::{Takes, empty, error};
use session::Session;
use starts::{Refused, Starts};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// `Mcp-Session-Id`.
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Connections at the same time: one for each exchange in flight.
const CONNECTIONS: usize = 4096;
/// How long what is in flight has when nobody serves it any more.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long processes are waited for: SIGTERM and SIGKILL of each come before that.
const ENDS: Duration = Duration::from_secs(8);

/// Variables in the environment of a process, which are read when it starts.
pub type Environment = Arc<dyn Fn() -> Result<Vec<(OsString, OsString)>, String> + Send + Sync>;

/// A command, and how many processes it may have.
#[derive(Clone)]
pub struct Command {
    /// What it is called in the log.
    pub name: String,
    /// The program and its arguments; no shell reads them.
    pub argv: Vec<OsString>,
    /// What its environment has besides what every command needs. Errors do not tell secrets.
    pub env: Environment,
    /// The directory that it runs in.
    pub dir: Option<PathBuf>,
    /// Processes at the same time.
    pub max: usize,
    /// How long a session stays whose client is not heard of.
    pub idle: Duration,
}

/// A command that is served. Dropped, it ends, and so do its processes.
pub struct Served {
    path: PathBuf,
    stop: Stop,
    thread: Option<thread::JoinHandle<()>>,
}

impl Served {
    /// Serves a command at a socket.
    ///
    /// # Errors
    /// The socket cannot be made, or no thread can be had.
    pub fn begin(command: Command, path: &Path, access: &Access) -> io::Result<Self> {
        let starts = Arc::new(Starts::new(command.max));
        let max = command.max;
        let desk = Arc::new(Desk {
            command,
            starts: starts.clone(),
            sessions: Mutex::default(),
            pool: Arc::default(),
            is_watched: AtomicBool::new(false),
        });
        let listener = Listener::gateway(Gateway {
            listen: ListenAddr::Unix(path.to_owned()),
            allow_remote: false,
            access: Access { token: None, ..access.clone() },
            max_connections: CONNECTIONS,
            // Processes die with the thread that started them.
            threads: 1,
            patience: PATIENCE,
            routes: Arc::new(Everything(Arc::new(Front(desk.clone())))),
        })?;
        let stop = Stop::default();
        let stopped = stop.clone();
        let serve = move || {
            if let Err(e) = listener.run(&stopped) {
                tracing::warn!("{}: the command is not served any more: {e}", desk.command.name);
            }
            drop(desk);
            let begun = Instant::now();
            while starts.free() < max && begun.elapsed() < ENDS {
                thread::sleep(Duration::from_millis(10));
            }
        };
        let thread = thread::Builder::new().name("assay-host".into()).spawn(serve)?;
        Ok(Self { path: path.to_owned(), stop, thread: Some(thread) })
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.drain();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where requests go: all of them to the command.
struct Everything(Arc<Front>);

impl Routes for Everything {
    fn find(&self, _: &Asked<'_>) -> Found {
        Found::Host(self.0.clone())
    }

    fn witness(&self, _: &Asked<'_>) -> Box<dyn Witness> {
        Box::new(Nobody)
    }
}

struct Nobody;

impl Witness for Nobody {
    fn answered(&mut self, _: StatusCode, _: &HeaderMap) {}
}

struct Front(Arc<Desk>);

impl Host for Front {
    fn answer(&self, request: Request<Incoming>, _: &Peer, _: &str) -> Hosting {
        let desk = self.0.clone();
        Box::pin(async move { desk.serve(request).await.unwrap_or_else(|refused| *refused) })
    }

    fn refuse(&self, status: StatusCode, why: &'static str, _: &str) -> Response<Hosted> {
        error(status, None, why)
    }
}

/// An answer that is no result.
type Denied = Box<Response<Hosted>>;

fn denied(status: StatusCode, why: &str) -> Response<Hosted> {
    error(status, None, why)
}

struct Desk {
    command: Command,
    starts: Arc<Starts>,
    sessions: Mutex<BTreeMap<String, Arc<Session>>>,
    pool: Arc<Pool>,
    is_watched: AtomicBool,
}

impl Desk {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Hosted>, Denied> {
        let (head, body) = request.into_parts();
        match head.method {
            Method::POST => self.post(&head.headers, body).await,
            Method::GET => {
                let last = text(&head.headers, LAST_EVENT_ID);
                Ok(self.session(&head.headers)?.1.listen(last))
            }
            Method::DELETE => {
                let (id, session) = self.session(&head.headers)?;
                self.sessions().remove(&id);
                session.end();
                Ok(empty(StatusCode::OK))
            }
            _ => {
                let mut refused = denied(StatusCode::METHOD_NOT_ALLOWED, "POST, GET and DELETE are served here");
                refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
                Err(refused.into())
            }
        }
    }

    /// The session that a request is of.
    fn session(&self, headers: &HeaderMap) -> Result<(String, Arc<Session>), Denied> {
        let id =
            text(headers, SESSION_ID).ok_or_else(|| denied(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing"))?;
        let session = self.sessions().get(id).cloned();
        Ok((id.to_owned(), session.ok_or_else(|| denied(StatusCode::NOT_FOUND, "there is no such session"))?))
    }

    async fn post(self: Arc<Self>, headers: &HeaderMap, body: Incoming) -> Result<Response<Hosted>, Denied> {
        let body = Limited::new(body, LONGEST).collect().await;
        let body =
            body.map_err(|_| denied(StatusCode::PAYLOAD_TOO_LARGE, "the message is cut or too long"))?.to_bytes();
        let message =
            Message::read(&body).map_err(|_| denied(StatusCode::BAD_REQUEST, "this is no JSON-RPC message"))?;
        let takes = Takes::of(headers);
        if message.is_modern {
            if message.requests.is_empty() {
                // It is about an exchange that has a process of its own: what cancels one is the end of its answer.
                return Ok(empty(StatusCode::ACCEPTED));
            }
            let process = match self.pool.take() {
                Some(process) => process,
                None => self.start().await?,
            };
            return Ok(self.pool.clone().exchange(process, message, &body, takes).await);
        }
        if !message.is("initialize") || headers.contains_key(SESSION_ID) {
            return Ok(self.session(headers)?.1.ask(message, &body, takes).await);
        }
        let id = new_id().ok_or_else(|| denied(StatusCode::INTERNAL_SERVER_ERROR, "no random number can be had"))?;
        let process = self.start().await?;
        let (desk, of) = (Arc::downgrade(&self), id.clone());
        let gone = move || {
            if let Some(desk) = desk.upgrade() {
                desk.sessions().remove(&of);
            }
        };
        let session = Session::begin(process, gone);
        self.sessions().insert(id.clone(), session.clone());
        let mut response = session.ask(message, &body, takes).await;
        response.headers_mut().extend(HeaderValue::from_str(&id).ok().map(|id| (SESSION_ID, id)));
        Ok(response)
    }

    /// Starts a process.
    async fn start(self: &Arc<Self>) -> Result<Process, Denied> {
        if !self.is_watched.swap(true, Ordering::Relaxed) {
            tokio::spawn(watch(Arc::downgrade(self), self.command.idle));
        }
        let place = self.starts.place(|| self.pool.end_one()).await;
        let process = place.and_then(|place| Process::start(&self.command, &self.starts, place));
        process.map_err(|refused| {
            let (why, again) = match refused {
                Refused::Full => ("there are as many sessions as may be".to_owned(), 5),
                Refused::Wait(left) => ("the command ends again and again".to_owned(), left.as_secs() + 1),
                Refused::Broken => ("the command cannot be started".to_owned(), 1),
            };
            let mut refused = denied(StatusCode::SERVICE_UNAVAILABLE, &why);
            refused.headers_mut().insert(header::RETRY_AFTER, again.into());
            Box::new(refused)
        })
    }
}

/// Ends what nobody uses.
async fn watch(desk: Weak<Desk>, limit: Duration) {
    let pause = (limit / 4).clamp(Duration::from_millis(50), Duration::from_secs(30));
    loop {
        tokio::time::sleep(pause).await;
        let Some(desk) = desk.upgrade() else { return };
        desk.pool.end_idle(limit);
        desk.sessions().retain(|_, session| {
            let is_idle = session.is_idle(limit);
            if is_idle {
                session.end();
            }
            !is_idle
        });
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The id of a new session: 128 random bits.
fn new_id() -> Option<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).ok()?;
    Some(hex::encode(random))
}
