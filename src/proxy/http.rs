//! `assay mcp-proxy --listen`: a listener for HTTP clients in front of a server that is reached over HTTP.

use super::{
    Options, Status, Upstream,
    exchanges::{Exchanges, Leftovers, Served},
    lifecycle::{Event, watch_signals},
    process::{Inbox, Process, Recording},
    reviewer::{Guarding, HttpGuard},
    seal::Keeping,
    status::ServerEnd,
    surface::Keeper,
};
use crate::{
    bridge::{self, SessionLoss, Transport},
    error::{Exit, Failure},
    model::{EndReason, OutcomeReason, Profile},
    record::{
        health::Health,
        http::{
            sessions::{Limits, SessionMap},
            source::HttpSource,
        },
        recorder::Ending,
    },
    relay::http::{
        access::Access,
        connect::{Connected, Connector, Destination, UpstreamHttp, is_loopback, without_secrets},
        listen::{Config, HEAD_TIME, ListenAddr, Listener, Stop},
        review::Reviewer,
        route::TargetConfig,
    },
    relay::{Waker, log::Digests},
    surface::feed::SurfaceFeed,
    sys,
};
use http::{HeaderName, HeaderValue};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    io,
    net::SocketAddr,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use url::Url;

/// What was asked for about a server that is reached over HTTP.
#[derive(Debug)]
pub struct HttpOptions {
    /// The endpoint.
    pub url: Url,
    /// How it is reached.
    pub destination: Destination,
    /// Which HTTP is spoken with it.
    pub http: UpstreamHttp,
    /// Headers that replace what the client sent. Their values are secrets.
    pub inject: Vec<(HeaderName, HeaderValue)>,
    /// The listener; `None`: the client is at stdin and stdout.
    pub listening: Option<Listening>,
    /// A session ends when nobody has used it for so long.
    pub session_idle: Duration,
    /// Sessions at the same time.
    pub max_sessions: usize,
    /// Bytes for what is not on disk yet.
    pub capture_size: u64,
    /// Whether the connection to the upstream is tried at the start.
    pub check: bool,
    /// Which transport the server speaks, where the client is at stdin and stdout.
    pub transport: Transport,
    /// What happens there when the server has forgotten the session.
    pub session_loss: SessionLoss,
}

/// What was asked for about the listener.
#[derive(Debug)]
pub struct Listening {
    /// Where clients connect to.
    pub listen: ListenAddr,
    /// Whether other machines may connect.
    pub allow_remote: bool,
    /// Who may use it.
    pub access: Access,
    /// Paths of the endpoint besides the URL's.
    pub endpoints: Vec<String>,
    /// Paths that a guard lets pass besides the endpoint.
    pub pass_paths: Vec<String>,
    /// Connections of clients at the same time.
    pub max_connections: usize,
    /// Threads that move bytes.
    pub threads: usize,
}

/// How often it is checked whether the listener has ended by itself.
const LOOK: Duration = Duration::from_secs(1);
/// The same once it was asked to.
const LOOK_AT_END: Duration = Duration::from_millis(10);

/// A server over HTTP, recorded as its requests come through a listener; nothing is recorded yet.
struct Ready {
    keeping: Keeping,
    source: HttpSource,
    waker: Arc<Waker>,
    health: Arc<Health>,
    target: TargetConfig,
    parts: Parts,
}

/// What lives until it ends.
struct Parts {
    leftovers: Leftovers,
    reload: Option<mpsc::Sender<()>>,
    guard: Option<Arc<HttpGuard>>,
    keeper: Option<Keeper>,
    pins: Option<Arc<SurfaceFeed>>,
    patience: Duration,
    status: Status,
}

/// A server over HTTP that is recorded, behind a listener that is told where to send its requests.
pub struct Recorded {
    recording: Recording,
    parts: Parts,
    target: TargetConfig,
    usable: bool,
    health: Arc<Health>,
}

impl Ready {
    fn begin(options: &Options, http: &HttpOptions, pass_paths: &[String], status: Status) -> Result<Self, Failure> {
        let rules = super::rules(options)?;
        let (dir, usable) = super::audit_dir(options, status)?;
        let signer = super::signer()?.map(Arc::new);
        let connector = Connector::new(&http.destination)
            .map_err(|e| Failure::bad_input(e).hint("look at --upstream-url, --cacert and --proxy"))?;
        let failed = |why: String| Failure::failed(why);
        let first = signer.clone().filter(|_| usable);
        let (auto_pack, keep, live_content) = (options.auto_pack, options.keep, options.live_content);
        let keeping = Keeping {
            dir: dir.clone(),
            usable,
            signer: signer.clone(),
            auto_pack,
            checkpoint_every: options.checkpoint_every,
            keep,
            live_content,
            status,
        };
        let limits = Limits { idle_ns: http.session_idle.as_nanos() as u64, sessions: http.max_sessions };
        let served = Served { url: http.url.as_str(), limits, capacity: http.capture_size };
        let Exchanges { log, key, waker, source, leftovers, reload, policy, process: number, identity, pins } =
            Exchanges::begin(options, &served, (&dir, usable), (rules, signer), status).map_err(failed)?;
        let health = Arc::new(Health::default());
        let surface = if options.profile == Profile::Guard && options.surface.enforce {
            Some(Keeper::begin(&dir, identity, &options.surface, first, status).map_err(failed)?)
        } else {
            None
        };
        let keeper = surface.clone();
        let guard = policy.filter(|_| options.profile == Profile::Guard).map(|policy| {
            Arc::new(HttpGuard::new(Guarding {
                log: log.clone(),
                policy,
                dns: options.resolver(),
                health: health.clone(),
                max_message: options.max_message,
                pass_paths: pass_paths.to_vec(),
                digests: Digests::new(&key.bytes),
                map: SessionMap::new(number, limits),
                usable,
                surface,
            }))
        });
        let target = TargetConfig {
            url: http.url.clone(),
            connector,
            http: http.http,
            inject: http.inject.clone(),
            endpoints: Vec::new(),
            access: Access::default(),
            is_one_of_several: false,
            reducer: options.reducer(&key.bytes),
            log,
            reviewer: guard.clone().map(|guard| guard as Arc<dyn Reviewer>),
        };
        let patience = options.shutdown_timeout;
        let parts = Parts { leftovers, reload, guard, keeper, pins, patience, status };
        Ok(Self { keeping, source, waker, health, target, parts })
    }

    /// Starts the recorder.
    fn start(self, events: mpsc::Sender<Event>) -> Result<Recorded, Failure> {
        let Self { keeping, source, waker, health, target, parts } = self;
        let failed = |why: String| Failure::failed(why);
        let usable = keeping.usable;
        let mut process = Process::start(keeping, events).map_err(failed)?;
        process.tells(health.clone());
        // All clients wait for it when the log is full: other work on this machine must not make that longer.
        let recording = process.record(Box::new(source), waker, 0).map_err(failed)?;
        recording.recover_others();
        Ok(Recorded { recording, parts, target, usable, health })
    }
}

impl Recorded {
    /// Begins to record a server that others listen for.
    ///
    /// # Errors
    /// Bad input: a policy that does not read, an audit directory that is a file.
    pub fn begin(options: &Options, http: &HttpOptions, status: Status) -> Result<Self, Failure> {
        // Nothing is heard of it that a listener would act on.
        let (events, _) = mpsc::channel();
        Ready::begin(options, http, &[], status)?.start(events)
    }

    /// How it is reached and recorded.
    #[must_use]
    pub const fn target(&self) -> &TargetConfig {
        &self.target
    }

    /// Whether anything can be written to its audit directory.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.usable && !self.health.is_failing()
    }

    /// How often something crossed that is a reason to ask the server what it offers.
    #[must_use]
    pub fn doubts(&self) -> u64 {
        self.parts.pins.as_ref().map_or(0, |pins| pins.doubts())
    }

    /// Removes of its evidence what is not to be kept, which otherwise happens as sessions end; `None` where everything is kept.
    #[must_use]
    pub fn pruning(&self) -> Option<impl FnOnce() + Send + use<>> {
        self.recording.pruning()
    }

    /// Has its policy read again.
    pub fn reload(&self) {
        if let Some(reload) = &self.parts.reload {
            let _ = reload.send(());
        }
    }

    /// Ends every session, and has it sealed; the exit code that a proxy would have. `ended` is the signal that ends it.
    #[must_use]
    pub fn finish(self, ended: Option<i32>) -> Exit {
        let reason = match ended {
            Some(SIGINT) => EndReason::SignalInt,
            Some(SIGHUP) => EndReason::SignalHup,
            Some(_) => EndReason::SignalTerm,
            None => EndReason::RecorderAbandoned,
        };
        let ending = Ending {
            reason: reason.into(),
            no_response: Some(OutcomeReason::ClientClosed),
            clean: ended.is_some(),
            pending_is_clean: true,
            ..Ending::default()
        };
        let Parts { leftovers, guard, keeper, patience, status, .. } = self.parts;
        let mut finished = self.recording.finish(ending, patience.max(super::LEAST_PATIENCE), &|| false);
        finished.report.violations += guard.map_or(0, |guard| guard.refused_elsewhere());
        if finished.is_kept() {
            leftovers.remove();
        }
        keeper.iter().for_each(Keeper::end);
        let server = ServerEnd { code: None, died: false };
        status.finish(&finished.report, &finished.sealed, ended == Some(SIGINT), server)
    }
}

/// Runs a listener until a signal ends it; without one, the session of the client at stdin and stdout.
///
/// # Errors
/// Bad input: the upstream cannot be reached, its certificate is not trusted, it is this listener, the port is taken.
pub fn run(options: &Options, http: &HttpOptions) -> Result<Exit, Failure> {
    let Some(listening) = &http.listening else { return bridged(options, http) };
    let status = Status::new(options.json);
    sys::process::ignore_write_signals();
    sys::process::hear_signals();
    sys::process::keep_memory_private();
    let ready = Ready::begin(options, http, &listening.pass_paths, status)?;
    let target = ready.target.clone();
    let connector = target.connector.clone();
    let bound = Listener::bind(Config {
        listen: listening.listen.clone(),
        allow_remote: listening.allow_remote,
        access: listening.access.clone(),
        url: target.url,
        connector: target.connector,
        http: target.http,
        inject: target.inject,
        endpoints: listening.endpoints.clone(),
        max_connections: listening.max_connections,
        threads: listening.threads,
        head_time: HEAD_TIME,
        patience: options.shutdown_timeout,
        reducer: target.reducer,
        log: target.log,
        reviewer: target.reviewer,
    })
    .map_err(|e| cannot_listen(&listening.listen, &e))
    .and_then(|listener| check(http, &connector, &listener.addresses()).map(|()| listener));
    let listener = match bound {
        Ok(listener) => listener,
        Err(e) => {
            ready.parts.leftovers.remove();
            return Err(e);
        }
    };
    let (events, inbox) = mpsc::channel();
    watch_signals(&events).map_err(|e| Failure::failed(format_args!("cannot handle signals: {e}")))?;
    let recorded = ready.start(events)?;
    if listening.allow_remote && !listening.listen.is_local() {
        status.warn(READABLE);
    }
    status.listening(&listener.url(), &without_secrets(&http.url));
    let (ended, served) = serve(listener, &inbox, recorded.parts.reload.as_ref())?;
    let exit = recorded.finish(ended);
    served.map(|()| exit)
}

/// What is said where other machines can connect.
pub const READABLE: &str =
    "other machines can connect, and who reads the network can read everything: put TLS in front of it";

/// Serves until a signal ends it, or a fault; which signal, and what became of the listener.
#[allow(clippy::type_complexity)]
fn serve(
    listener: Listener,
    inbox: &Inbox,
    reload: Option<&mpsc::Sender<()>>,
) -> Result<(Option<i32>, Result<(), Failure>), Failure> {
    let stop = Stop::default();
    let stopped = stop.clone();
    let served = thread::Builder::new().name("assay-http".into()).spawn(move || listener.run(&stopped));
    let served = served.map_err(|e| Failure::failed(format_args!("cannot start a thread: {e}")))?;
    let mut ends_with = None;
    while !served.is_finished() {
        let pause = if ends_with.is_none() { LOOK } else { LOOK_AT_END };
        match (inbox.recv_timeout(pause), reload) {
            (Ok(Event::Signal(SIGHUP)), Some(reload)) => {
                let _ = reload.send(());
            }
            (Ok(Event::Signal(signal @ (SIGINT | SIGTERM | SIGHUP))), _) => {
                // Somebody cannot wait.
                if ends_with.replace(signal).is_some() {
                    stop.end();
                } else {
                    stop.drain();
                }
            }
            _ => {}
        }
    }
    let served = match served.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err(Failure::failed(format_args!("the listener cannot run: {e}"))),
        Err(_) => Err(Failure::failed("the listener ended by a fault of its own")),
    };
    Ok((ends_with, served))
}

fn bridged(options: &Options, http: &HttpOptions) -> Result<Exit, Failure> {
    let connector = Connector::new(&http.destination)
        .map_err(|e| Failure::bad_input(e).hint("look at --upstream-url, --cacert and --proxy"))?;
    check(http, &connector, &[])?;
    let upstream = Upstream {
        bridge: bridge::Config {
            destination: http.destination.clone(),
            headers: http.inject.clone(),
            transport: http.transport,
            session_loss: http.session_loss,
            timing: bridge::Timing::default(),
            notice: Arc::new(|_| {}),
            book: None,
        },
        capture_size: http.capture_size,
    };
    super::run_bridged(options, &upstream)
}

/// Why nobody can connect there.
pub fn cannot_listen(listen: &ListenAddr, e: &io::Error) -> Failure {
    let failure = Failure::bad_input(format_args!("cannot listen on {listen}: {e}"));
    match e.kind() {
        io::ErrorKind::AddrInUse => {
            failure.hint("another process uses it; take another port, or port 0 for a free one")
        }
        io::ErrorKind::AddrNotAvailable => failure.hint("it is no address of this machine; take 127.0.0.1"),
        io::ErrorKind::PermissionDenied => failure.hint("ports below 1024 are the system's; take another one"),
        _ => failure.hint("take another address with --listen, as in 127.0.0.1:8080"),
    }
}

/// One connection to the upstream, with TLS and without a request.
fn check(http: &HttpOptions, connector: &Connector, own: &[SocketAddr]) -> Result<(), Failure> {
    let itself = || {
        Failure::bad_input("the upstream is this listener itself")
            .hint("give --upstream-url the address of the server, and clients the address of --listen")
    };
    // Before anything is connected: it would wait for us.
    let (host, port) = (http.url.host_str().unwrap_or_default(), http.url.port_or_known_default());
    if http.destination.unix.is_none() && is_loopback(host) && own.iter().any(|a| reaches(*a, port)) {
        return Err(itself());
    }
    if !http.check {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::failed(format_args!("cannot do I/O: {e}")))?;
    let connected: Connected = runtime.block_on(connector.connect(http.http)).map_err(|e| {
        use crate::relay::http::connect::ConnectError as E;
        let hint = match e {
            E::Unreachable { .. } => "start the server, or look at --upstream-url; --no-check starts without it",
            E::Tls { .. } => "if its certificate is signed by an authority of your own, give that with --cacert FILE",
            E::Proxy { .. } => "look at HTTPS_PROXY and ALL_PROXY; --proxy none goes without",
        };
        Failure::bad_input(e).hint(hint)
    })?;
    match connected.address {
        Some(address) if own.contains(&address) => Err(itself()),
        _ => Ok(()),
    }
}

/// Whether a socket that listens there takes connections to this machine's port.
fn reaches(address: SocketAddr, port: Option<u16>) -> bool {
    Some(address.port()) == port && (address.ip().is_loopback() || address.ip().is_unspecified())
}
