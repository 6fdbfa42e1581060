//! The listener: sockets, connections of clients, and how they end.

pub use super::stop::Stop;

use super::{
    access::Access,
    connect::{Connector, UpstreamHttp, is_loopback},
    forward::Wire,
    metered::{Metered, Out},
    reduce::{self, Reducer},
    review::Reviewer,
    route::{Desk, Front, Routes, Serves, Target, TargetConfig},
    socket::Socket,
    stop::Level,
    upstream::{BUFFER, MAX_HEADERS},
};
use crate::{relay::log::ExchangeLog, sys::peer::peer_uid};
use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{
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
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, UnixListener},
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

/// What a listener is that has several upstreams.
pub struct Gateway {
    /// Where clients connect to.
    pub listen: ListenAddr,
    /// Whether other machines may connect. Without it, an address that they can reach is refused.
    pub allow_remote: bool,
    /// Who may use it.
    pub access: Access,
    /// Connections of clients at the same time; more wait.
    pub max_connections: usize,
    /// Threads that do the I/O; 1 uses the thread of [`Listener::run`].
    pub threads: usize,
    /// How long calls in flight have once it stops.
    pub patience: Duration,
    /// Where requests go.
    pub routes: Arc<dyn Routes>,
}

/// What a listener is that has one upstream.
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

enum Bound {
    Tcp(StdTcpListener),
    Unix(StdUnixListener, PathBuf),
}

/// Bound sockets, not yet served.
pub struct Listener {
    bound: Vec<Bound>,
    listen: ListenAddr,
    max_connections: usize,
    threads: usize,
    patience: Duration,
    /// The path that URLs for clients have.
    path: String,
    front: Front,
}

impl Listener {
    /// Binds the sockets, and raises the limit on open files as far as it goes.
    ///
    /// # Errors
    /// The address is in use, not of this machine, or may not be used.
    pub fn bind(config: Config) -> io::Result<Self> {
        let Config { listen, allow_remote, access, url, max_connections, threads, head_time, patience, .. } = config;
        let bound = sockets(&listen, allow_remote)?;
        let path = url.path().to_owned();
        let target = Target::new(TargetConfig {
            url,
            connector: config.connector,
            http: config.http,
            inject: config.inject,
            endpoints: config.endpoints,
            access: access.clone(),
            is_one_of_several: false,
            reducer: config.reducer,
            log: config.log,
            reviewer: config.reviewer,
        })?;
        let front = Front { serves: Serves::One(target), access, head_time, stop: Stop::default() };
        Ok(Self { bound, listen, max_connections, threads, patience, path, front })
    }

    /// As [`bind`](Self::bind), for several upstreams.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn gateway(config: Gateway) -> io::Result<Self> {
        let Gateway { listen, allow_remote, access, max_connections, threads, patience, routes } = config;
        let bound = sockets(&listen, allow_remote)?;
        let front = Front { serves: Serves::Several(routes), access, head_time: HEAD_TIME, stop: Stop::default() };
        Ok(Self { bound, listen, max_connections, threads, patience, path: "/".to_owned(), front })
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
        match (&self.listen, self.local_addr()) {
            (ListenAddr::Localhost(_), Some(address)) => {
                format!("http://localhost:{}{}", address.port(), self.path)
            }
            (_, Some(address)) => format!("http://{address}{}", self.path),
            (listen, None) => listen.to_string(),
        }
    }

    /// Serves until it is stopped and all connections are over.
    ///
    /// # Errors
    /// No thread or no I/O driver can be had from the system.
    pub fn run(self, stop: &Stop) -> io::Result<()> {
        let mut builder = match self.threads {
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
        let Self { bound, max_connections, patience, front, .. } = self;
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
        let front = Arc::new(front);
        let max = max_connections.max(1);
        let numbers = AtomicU64::new(0);
        let mut asked = pin!(stop.clone().reached(Level::Drains));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = &mut asked => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = accept(&sockets), if connections.len() < max => match accepted {
                    Ok(accepted) => {
                        let number = numbers.fetch_add(1, Ordering::Relaxed) + 1;
                        connections.spawn(connection(front.clone(), accepted, number));
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
        if let Serves::One(target) = &front.serves {
            target.drain();
        }
        front.stop.drain();
        let all_over = async { while connections.join_next().await.is_some() {} };
        tokio::select! {
            () = all_over => {}
            () = sleep(patience) => {}
            () = stop.clone().reached(Level::Ends) => {}
        }
        connections.shutdown().await;
        Ok(())
    }
}

/// Bound sockets for an address.
fn sockets(listen: &ListenAddr, allow_remote: bool) -> io::Result<Vec<Bound>> {
    if !allow_remote && !listen.is_local() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "other machines can reach this address"));
    }
    raise_file_limit();
    let bound = match listen {
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
    Ok(bound)
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
async fn connection(front: Arc<Front>, accepted: Accepted, number: u64) {
    let Accepted { mut socket, peer, local } = accepted;
    let stop = front.stop.clone().reached(Level::Drains);
    let mut stop = Box::pin(stop);
    let begins = tokio::select! {
        begins = timeout(front.head_time, begin(&mut socket)) => begins,
        () = &mut stop => return,
    };
    let Ok(Ok((ahead, is_h2))) = begins else { return };
    let unwatched = Arc::new(AtomicBool::new(false));
    let out = Out::new(is_h2);
    let io = TokioIo::new(Metered::client(socket.clone(), ahead, out.clone(), unwatched.clone()));
    let origin = reduce::Origin { route: 0, connection: number, peer };
    let wire = Arc::new(Wire { origin, local, out, is_h2, current: Mutex::new(Weak::new()) });
    let head_time = front.head_time;
    let desk = Arc::new(Desk::new(front, wire.clone()));
    let served = desk.clone();
    let service = service_fn(move |request| served.clone().serve(request));
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
            .header_read_timeout(head_time)
            .serve_connection(io, service);
        let mut served = pin!(served);
        let mut watch = Watch { socket, unwatched, wire, stop: Some(stop), tick: None };
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
        desk.unreadable(&e);
    }
}

/// What a connection is watched for while HTTP/1 is spoken over it.
struct Watch<F> {
    socket: Socket,
    unwatched: Arc<AtomicBool>,
    wire: Arc<Wire>,
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
        while self.unwatched.load(Ordering::Relaxed) && self.wire.is_answering() {
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
