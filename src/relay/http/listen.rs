//! The listener: sockets, connections of clients, and how they end.

use super::{
    access::Access,
    connect::{Connector, UpstreamHttp, is_loopback},
    forward::{Client, Shared},
    metered::{Marks, Metered},
    reduce::{self, Reducer},
    review::Reviewer,
    socket::Socket,
    upstream::{BUFFER, Lines, MAX_HEADERS, Upstream},
};
use crate::{
    relay::log::{Entry, ExchangeLog, Flow, NoteCode},
    sys::peer::peer_uid,
};
use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Uri};
use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdTcpListener},
    os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream},
    path::PathBuf,
    pin::{Pin, pin},
    str::FromStr,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, UnixListener},
    sync::watch,
    task::JoinSet,
    time::{Sleep, sleep, timeout},
};
use url::Url;

/// The usual [`Config::head_time`].
pub const HEAD_TIME: Duration = Duration::from_secs(60);
/// How often a client is looked at whose bytes nobody reads at the moment.
const LOOK: Duration = Duration::from_millis(20);
/// What a client of HTTP/2 says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Where clients connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddr {
    /// An address and a port; 0 takes a free one.
    Tcp(SocketAddr),
    /// 127.0.0.1 and ::1, on the same port.
    Localhost(u16),
    /// A Unix socket, for this user alone.
    Unix(PathBuf),
}

impl ListenAddr {
    /// Whether only this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => is_loopback(&address.ip().to_string()),
            Self::Localhost(_) | Self::Unix(_) => true,
        }
    }
}

impl FromStr for ListenAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("a path is missing after unix:".to_owned())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        if let Some(port) = text.strip_prefix("localhost:") {
            return port.parse().map(Self::Localhost).map_err(|_| format!("{port:?} is no port"));
        }
        let bad =
            |_| "expected an address with a port (127.0.0.1:8080, [::1]:8080), localhost:PORT or unix:PATH".to_owned();
        text.parse().map(Self::Tcp).map_err(bad)
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Localhost(port) => write!(f, "localhost:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What a listener is.
pub struct Config {
    /// Where clients connect to.
    pub listen: ListenAddr,
    /// Whether other machines may connect. Without it, an address that they can reach is refused.
    pub allow_remote: bool,
    /// Who may use it.
    pub access: Access,
    /// The upstream. Its path is the endpoint's.
    pub url: Url,
    /// Makes the connections to it.
    pub connector: Connector,
    /// Which HTTP is spoken with it.
    pub http: UpstreamHttp,
    /// Headers that replace what the client sent.
    pub inject: Vec<(HeaderName, HeaderValue)>,
    /// Paths of the endpoint besides the URL's.
    pub endpoints: Vec<String>,
    /// Connections of clients at the same time; more wait.
    pub max_connections: usize,
    /// Threads that do the I/O; 1 uses the thread of [`Listener::run`].
    pub threads: usize,
    /// How long the head of a request may take, from the begin of a connection or from the end of the answer before.
    pub head_time: Duration,
    /// How long calls in flight have once it stops.
    pub patience: Duration,
    /// What of heads may be evidence.
    pub reducer: Reducer,
    /// Where everything is put.
    pub log: Arc<dyn ExchangeLog>,
    /// A guard.
    pub reviewer: Option<Arc<dyn Reviewer>>,
}

/// How far a listener is to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Runs,
    Drains,
    Ends,
}

/// Stops a listener, from any thread.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<Level>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Level::Runs)))
    }
}

impl Stop {
    /// No connection is accepted any more, streams are closed, calls in flight are waited for.
    pub fn drain(&self) {
        self.0.send_modify(|level| *level = (*level).max(Level::Drains));
    }

    /// Nothing is waited for.
    pub fn end(&self) {
        self.0.send_modify(|level| *level = Level::Ends);
    }
}

enum Bound {
    Tcp(StdTcpListener),
    Unix(StdUnixListener, PathBuf),
}

/// Bound sockets, not yet served.
pub struct Listener {
    bound: Vec<Bound>,
    config: Config,
}

impl Listener {
    /// Binds the sockets, and raises the limit on open files as far as it goes.
    ///
    /// # Errors
    /// The address is in use, not of this machine, or may not be used.
    pub fn bind(config: Config) -> io::Result<Self> {
        if !config.allow_remote && !config.listen.is_local() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "other machines can reach this address"));
        }
        raise_file_limit();
        let bound = match &config.listen {
            ListenAddr::Tcp(address) => vec![Bound::Tcp(StdTcpListener::bind(address)?)],
            ListenAddr::Localhost(port) => localhost(*port)?,
            ListenAddr::Unix(path) => vec![Bound::Unix(unix(path)?, path.clone())],
        };
        for socket in &bound {
            match socket {
                Bound::Tcp(socket) => socket.set_nonblocking(true)?,
                Bound::Unix(socket, _) => socket.set_nonblocking(true)?,
            }
        }
        Ok(Self { bound, config })
    }

    /// The addresses that it listens on; none for a Unix socket.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |bound: &Bound| match bound {
            Bound::Tcp(socket) => socket.local_addr().ok(),
            Bound::Unix(..) => None,
        };
        self.bound.iter().filter_map(address).collect()
    }

    /// The first of the addresses.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.addresses().first().copied()
    }

    /// The URL of the endpoint for clients, without the query; `unix:PATH` for a Unix socket.
    #[must_use]
    pub fn url(&self) -> String {
        match (&self.config.listen, self.local_addr()) {
            (ListenAddr::Localhost(_), Some(address)) => {
                format!("http://localhost:{}{}", address.port(), self.config.url.path())
            }
            (_, Some(address)) => format!("http://{address}{}", self.config.url.path()),
            (listen, None) => listen.to_string(),
        }
    }

    /// Serves until it is stopped and all connections are over.
    ///
    /// # Errors
    /// No thread or no I/O driver can be had from the system.
    pub fn run(self, stop: &Stop) -> io::Result<()> {
        let mut builder = match self.config.threads {
            0 | 1 => tokio::runtime::Builder::new_current_thread(),
            threads => {
                let mut builder = tokio::runtime::Builder::new_multi_thread();
                builder.worker_threads(threads).thread_name("assay-http");
                builder
            }
        };
        builder.enable_all().build()?.block_on(self.serve(stop))
    }

    async fn serve(self, stop: &Stop) -> io::Result<()> {
        let Self { bound, config } = self;
        let mut sockets = Vec::new();
        let mut paths = Vec::new();
        for socket in bound {
            sockets.push(match socket {
                Bound::Tcp(socket) => Accepting::Tcp(TcpListener::from_std(socket)?),
                Bound::Unix(socket, path) => {
                    paths.push(path);
                    Accepting::Unix(UnixListener::from_std(socket)?)
                }
            });
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let (stops, stopped) = watch::channel(false);
        let (max, patience) = (config.max_connections.max(1), config.patience);
        let shared = Arc::new(share(config, stopping.clone(), stopped)?);
        let numbers = AtomicU64::new(0);
        let mut level = stop.0.subscribe();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                _ = level.wait_for(|level| *level > Level::Runs) => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = accept(&sockets), if connections.len() < max => match accepted {
                    Ok(accepted) => {
                        let number = numbers.fetch_add(1, Ordering::Relaxed) + 1;
                        connections.spawn(connection(shared.clone(), accepted, number));
                    }
                    // No descriptors are left, or the client has gone: others may do better in a moment.
                    Err(_) => sleep(LOOK).await,
                },
            }
        }
        drop(sockets);
        for path in paths {
            // Clients learn at once that nobody listens.
            let _ = std::fs::remove_file(path);
        }
        stopping.store(true, Ordering::Relaxed);
        stops.send_replace(true);
        let all_over = async { while connections.join_next().await.is_some() {} };
        tokio::select! {
            () = all_over => {}
            () = sleep(patience) => {}
            _ = level.wait_for(|level| *level == Level::Ends) => {}
        }
        connections.shutdown().await;
        Ok(())
    }
}

fn share(config: Config, stopping: Arc<AtomicBool>, stops: watch::Receiver<bool>) -> io::Result<Shared> {
    let bad = |e: &dyn fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, e.to_string());
    let host = config.url.host_str().unwrap_or_default();
    let authority = config.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let base = Uri::from_str(&format!("{}://{authority}/", config.url.scheme())).map_err(|e| bad(&e))?;
    let endpoints = [vec![config.url.path().to_owned()], config.endpoints].concat();
    let upstream = Upstream { connector: config.connector, http: config.http, base, log: config.log.clone() };
    Ok(Shared {
        log: config.log,
        reducer: config.reducer,
        access: config.access,
        upstream: Arc::new(upstream),
        authority: HeaderValue::from_str(&authority).map_err(|e| bad(&e))?,
        origin: config.url.origin(),
        inject: config.inject,
        head_time: config.head_time,
        endpoints,
        learned: Mutex::new(VecDeque::new()),
        reviewer: config.reviewer,
        held: AtomicUsize::new(0),
        stopping,
        stops,
    })
}

fn localhost(port: u16) -> io::Result<Vec<Bound>> {
    // A free port of one family may be taken in the other.
    for _ in 0..16 {
        let v4 = StdTcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        match StdTcpListener::bind((Ipv6Addr::LOCALHOST, v4.local_addr()?.port())) {
            Ok(v6) => return Ok(vec![Bound::Tcp(v4), Bound::Tcp(v6)]),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && port == 0 => {}
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => return Err(e),
            // There is no IPv6 here.
            Err(_) => return Ok(vec![Bound::Tcp(v4)]),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// A socket that nobody else may connect to. One that a dead process left is replaced.
fn unix(path: &PathBuf) -> io::Result<StdUnixListener> {
    use rustix::{
        fs::{Mode, fchmod},
        net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
    };
    let make = || -> io::Result<StdUnixListener> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Before it has a name: Linux gives the name this mode.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, 128)?;
        Ok(socket.into())
    };
    match make() {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => match StdUnixStream::connect(path) {
            Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
                make()
            }
            _ => Err(e),
        },
        made => made,
    }
}

/// Every connection takes two descriptors, and the usual limit is low.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // The old limit holds then.
    let _ = setrlimit(Resource::Nofile, limit);
}

enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

struct Accepted {
    socket: Socket,
    peer: Arc<str>,
    local: Option<SocketAddr>,
}

async fn accept(sockets: &[Accepting]) -> io::Result<Accepted> {
    poll_fn(|cx| {
        for socket in sockets {
            if let Poll::Ready(accepted) = socket.poll_accept(cx) {
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    })
    .await
}

impl Accepting {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        match self {
            Self::Tcp(listener) => listener.poll_accept(cx).map_ok(|(stream, from)| {
                // Slower is all it is without.
                let _ = stream.set_nodelay(true);
                let local = stream.local_addr().ok();
                let from = from.ip().to_canonical();
                let peer = if from.is_loopback() { "loopback".into() } else { from.to_string().into() };
                // Where it cannot be told, no Host is ours.
                let local = local.or(Some((Ipv4Addr::UNSPECIFIED, 0).into()));
                Accepted { socket: stream.into(), peer, local }
            }),
            Self::Unix(listener) => listener.poll_accept(cx).map(|accepted| {
                let (stream, _) = accepted?;
                let uid = peer_uid(&stream)?;
                if uid != rustix::process::geteuid().as_raw() {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                Ok(Accepted { socket: stream.into(), peer: format!("uid:{uid}").into(), local: None })
            }),
        }
    }
}

/// Serves one connection to its end.
async fn connection(shared: Arc<Shared>, accepted: Accepted, number: u64) {
    let Accepted { mut socket, peer, local } = accepted;
    let mut stops = shared.stops.clone();
    let begins = tokio::select! {
        begins = timeout(shared.head_time, begin(&mut socket)) => begins,
        _ = stops.wait_for(|stops| *stops) => return,
    };
    let Ok(Ok((ahead, is_h2))) = begins else { return };
    let unwatched = Arc::new(AtomicBool::new(false));
    let marks = if is_h2 { Marks::handed_over(shared.log.clone()) } else { Marks::flushed(shared.log.clone()) };
    let io = TokioIo::new(Metered::client(socket.clone(), ahead, marks.clone(), unwatched.clone()));
    let client = Arc::new(Client {
        origin: reduce::Origin { route: 0, connection: number, peer },
        local,
        marks,
        lines: Lines::new(shared.upstream.clone(), is_h2),
        current: Mutex::new(Weak::new()),
        shared: shared.clone(),
    });
    let served = client.clone();
    let service = service_fn(move |request| served.clone().serve(request));
    let stop = Box::pin(async move {
        // It is gone only with the listener.
        let _ = stops.wait_for(|stops| *stops).await;
    });
    let result = if is_h2 {
        let served = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .auto_date_header(false)
            .max_concurrent_streams(256)
            .initial_stream_window_size(256 << 10)
            .initial_connection_window_size(16 << 20)
            .max_header_list_size(BUFFER as u32)
            .serve_connection(io, service);
        let mut served = pin!(served);
        let stopped = tokio::select! {
            result = served.as_mut() => Some(result),
            () = stop => None,
        };
        if let Some(result) = stopped {
            result
        } else {
            served.as_mut().graceful_shutdown();
            served.await
        }
    } else {
        let served = http1::Builder::new()
            .preserve_header_case(true)
            .auto_date_header(false)
            .half_close(false)
            .max_buf_size(BUFFER)
            .max_headers(MAX_HEADERS)
            .timer(TokioTimer::new())
            .header_read_timeout(shared.head_time)
            .serve_connection(io, service);
        let mut served = pin!(served);
        let mut watch = Watch { socket, unwatched, client: client.clone(), stop: Some(stop), tick: None };
        poll_fn(|cx| {
            if watch.poll_stop(cx).is_ready() {
                served.as_mut().graceful_shutdown();
            }
            let polled = served.as_mut().poll(cx);
            if polled.is_pending() && watch.poll_gone(cx).is_ready() { Poll::Ready(Ok(())) } else { polled }
        })
        .await
    };
    if let Err(e) = result
        && e.is_parse()
    {
        let text = format!("the request cannot be read: {e}");
        shared.log.put(Flow::request(shared.log.begin()), &Entry::Note { code: NoteCode::BadFraming, text: &text });
    }
}

/// What a connection is watched for while HTTP/1 is spoken over it.
struct Watch<F> {
    socket: Socket,
    unwatched: Arc<AtomicBool>,
    client: Arc<Client>,
    stop: Option<Pin<Box<F>>>,
    tick: Option<Pin<Box<Sleep>>>,
}

impl<F: Future<Output = ()>> Watch<F> {
    /// Ready once, when the listener stops.
    fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stop) = &mut self.stop else { return Poll::Pending };
        let polled = stop.as_mut().poll(cx);
        if polled.is_ready() {
            self.stop = None;
        }
        polled
    }

    /// Ready when the client has hung up behind bytes that nobody reads yet: those of a later request.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.unwatched.load(Ordering::Relaxed) && self.client.is_answering() {
            let tick = self.tick.get_or_insert_with(|| Box::pin(sleep(LOOK)));
            if tick.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.tick = None;
            if self.socket.has_hung_up() {
                return Poll::Ready(());
            }
        }
        self.tick = None;
        Poll::Pending
    }
}

/// Reads until it is clear which HTTP is spoken: what was read, and whether that is HTTP/2.
async fn begin(socket: &mut Socket) -> io::Result<(Bytes, bool)> {
    let mut ahead = BytesMut::with_capacity(PREFACE.len());
    loop {
        if !PREFACE.starts_with(&ahead[..ahead.len().min(PREFACE.len())]) {
            return Ok((ahead.freeze(), false));
        }
        if ahead.len() >= PREFACE.len() {
            return Ok((ahead.freeze(), true));
        }
        if socket.read_buf(&mut ahead).await? == 0 {
            return Ok((ahead.freeze(), false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_text() {
        for (text, local) in [
            ("127.0.0.1:0", true),
            ("[::1]:8080", true),
            ("localhost:8080", true),
            ("unix:/run/x.sock", true),
            ("0.0.0.0:8080", false),
            ("[::]:1", false),
            ("192.0.2.1:1", false),
        ] {
            let address: ListenAddr = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.is_local()), (text, local));
        }
        for bad in
            ["", "8080", ":8080", "localhost", "localhost:x", "localhost:70000", "example.com:80", "unix:", "127.0.0.1"]
        {
            assert!(bad.parse::<ListenAddr>().is_err(), "{bad}");
        }
    }
}
