//! A listener in a thread, a log in memory, and the two ends.

use assay::{
    model::Direction,
    relay::{
        http::{
            access::Access,
            connect::{Connector, Destination, ProxyChoice, UpstreamHttp},
            listen::{Config, ListenAddr, Listener, Stop},
            reduce::Reducer,
        },
        log::{BodyEnd, Entry, ExchangeLog, Flow, NoteCode, RequestHead, ResponseHead},
    },
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Nothing takes as long unless it hangs.
pub const LONG: Duration = Duration::from_secs(20);

/// An entry, kept.
#[derive(Debug, Clone)]
pub enum Kept {
    Request(RequestHead),
    Response(ResponseHead),
    Data { offset: u64, bytes: Vec<u8>, own: bool },
    End(BodyEnd),
    Wrote(u64),
    Note(NoteCode, String),
}

/// A log in memory.
#[derive(Default)]
pub struct Log {
    next: AtomicU64,
    pub entries: Mutex<Vec<(Flow, Kept)>>,
    /// There is no room.
    pub full: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
    /// Bodies are not kept, only counted.
    pub light: AtomicBool,
}

impl ExchangeLog for Log {
    fn begin(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn poll_data(&self, cx: &mut Context<'_>, flow: Flow, offset: u64, bytes: &[u8]) -> Poll<()> {
        let mut waiting = self.waiting.lock().unwrap();
        if self.full.load(Ordering::SeqCst) {
            waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        if !self.light.load(Ordering::Relaxed) {
            let data = Kept::Data { offset, bytes: bytes.to_vec(), own: false };
            self.entries.lock().unwrap().push((flow, data));
        }
        Poll::Ready(())
    }

    fn put(&self, flow: Flow, entry: &Entry<'_>) {
        let kept = match entry {
            Entry::Request(head) => Kept::Request(head.clone()),
            Entry::Response(head) => Kept::Response(head.clone()),
            Entry::Data { offset, bytes, own } => Kept::Data { offset: *offset, bytes: bytes.to_vec(), own: *own },
            Entry::End(end) => Kept::End(end.clone()),
            Entry::Wrote { .. } if self.light.load(Ordering::Relaxed) => return,
            Entry::Wrote { upto } => Kept::Wrote(*upto),
            Entry::Note { code, text } => Kept::Note(*code, (*text).to_owned()),
            other => panic!("the listener puts no {other:?}"),
        };
        self.entries.lock().unwrap().push((flow, kept));
    }

    fn is_bypassing(&self) -> bool {
        false
    }
}

impl Log {
    /// There is room again.
    pub fn release(&self) {
        self.full.store(false, Ordering::SeqCst);
        self.waiting.lock().unwrap().drain(..).for_each(Waker::wake);
    }

    pub fn of(&self, flow: Flow) -> Vec<Kept> {
        self.entries.lock().unwrap().iter().filter(|(f, _)| *f == flow).map(|(_, k)| k.clone()).collect()
    }

    pub fn body(&self, flow: Flow) -> Vec<u8> {
        let pieces = self.of(flow).into_iter().filter_map(|k| match k {
            Kept::Data { bytes, .. } => Some(bytes),
            _ => None,
        });
        pieces.flatten().collect()
    }

    /// The end of a body, once it is there.
    pub fn end(&self, flow: Flow) -> BodyEnd {
        let find = || {
            let ends: Vec<_> =
                self.of(flow).into_iter().filter_map(|k| if let Kept::End(e) = k { Some(e) } else { None }).collect();
            assert!(ends.len() <= 1, "a body ends once: {ends:?}");
            ends.into_iter().next()
        };
        until(|| find().is_some());
        find().unwrap()
    }

    pub fn wrote(&self, flow: Flow) -> u64 {
        let wrote = self.of(flow).into_iter().filter_map(|k| if let Kept::Wrote(upto) = k { Some(upto) } else { None });
        wrote.max().unwrap_or_default()
    }

    pub fn notes(&self) -> Vec<NoteCode> {
        let entries = self.entries.lock().unwrap();
        entries
            .iter()
            .filter_map(|(_, k)| {
                if let Kept::Note(code, text) = k {
                    assert!(text.len() <= 1024);
                    Some(*code)
                } else {
                    None
                }
            })
            .collect()
    }
}

/// Waits until something is so.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "it never became so");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A running listener.
pub struct Proxy {
    pub at: SocketAddr,
    pub log: Arc<Log>,
    pub stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// What a test wants otherwise.
pub struct Wishes {
    pub url: String,
    pub listen: ListenAddr,
    pub http: UpstreamHttp,
    pub proxy: ProxyChoice,
    pub roots: Vec<rustls::pki_types::CertificateDer<'static>>,
    pub config: Box<dyn FnOnce(&mut Config)>,
}

impl Wishes {
    pub fn to(upstream: SocketAddr) -> Self {
        Self {
            url: format!("http://{upstream}/mcp"),
            listen: "127.0.0.1:0".parse().unwrap(),
            http: UpstreamHttp::Auto,
            proxy: ProxyChoice::Direct,
            roots: Vec::new(),
            config: Box::new(|_| ()),
        }
    }
}

/// The configuration for these wishes.
pub fn config(wishes: Wishes, log: Arc<Log>) -> Config {
    let url: url::Url = wishes.url.parse().unwrap();
    let to = Destination { url: url.clone(), unix: None, roots: wishes.roots, proxy: wishes.proxy };
    let mut config = Config {
        listen: wishes.listen,
        allow_remote: false,
        access: Access::default(),
        url,
        connector: Connector::new(&to).unwrap(),
        http: wishes.http,
        inject: Vec::new(),
        endpoints: Vec::new(),
        max_connections: 1024,
        threads: 1,
        head_time: LONG,
        patience: Duration::from_millis(500),
        reducer: Reducer::new(&[7; 32], false),
        log,
        reviewer: None,
    };
    (wishes.config)(&mut config);
    config
}

impl Proxy {
    pub fn start(wishes: Wishes) -> Self {
        let log = Arc::new(Log::default());
        let listener = Listener::bind(config(wishes, log.clone())).unwrap();
        let at = listener.local_addr().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let stop = Stop::default();
        let stopper = stop.clone();
        let thread = Some(std::thread::spawn(move || listener.run(&stopper).unwrap()));
        Self { at, log, stop, thread }
    }

    pub fn to(upstream: SocketAddr) -> Self {
        Self::start(Wishes::to(upstream))
    }

    pub fn join(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.end();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// One message as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// First line and headers, with the blank line.
    pub head: String,
    /// Body, after chunk framing.
    pub body: Vec<u8>,
    /// Trailers.
    pub trailers: String,
    /// The connection was closed before the message was whole.
    pub cut: bool,
}

impl Message {
    pub fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {self:?}")).parse().unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|l| l.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name))).map(|(_, v)| v)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One end of a connection, with what was read too far.
pub struct End {
    pub stream: TcpStream,
    ahead: Vec<u8>,
}

impl From<TcpStream> for End {
    fn from(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, ahead: Vec::new() }
    }
}

impl End {
    pub fn connect(to: SocketAddr) -> Self {
        TcpStream::connect(to).unwrap().into()
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// More bytes; false at the end, however it comes.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(n) => {
                self.ahead.extend_from_slice(&buffer[..n]);
                true
            }
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(e) => panic!("reading: {e}; so far {:?}", String::from_utf8_lossy(&self.ahead)),
        }
    }

    /// All up to and with the first `mark`; what there is if the end comes first.
    pub fn upto(&mut self, mark: &[u8]) -> (Vec<u8>, bool) {
        loop {
            if let Some(at) = self.ahead.windows(mark.len()).position(|w| w == mark) {
                let rest = self.ahead.split_off(at + mark.len());
                return (std::mem::replace(&mut self.ahead, rest), true);
            }
            if !self.more() {
                return (std::mem::take(&mut self.ahead), false);
            }
        }
    }

    pub fn exactly(&mut self, len: usize) -> (Vec<u8>, bool) {
        while self.ahead.len() < len {
            if !self.more() {
                return (std::mem::take(&mut self.ahead), false);
            }
        }
        let rest = self.ahead.split_off(len);
        (std::mem::replace(&mut self.ahead, rest), true)
    }

    /// Everything to the end.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.ahead)
    }

    /// Whether the other side has closed and nothing was left to read.
    pub fn is_closed(&mut self) -> bool {
        self.ahead.is_empty() && !self.more()
    }

    /// The head of a message.
    pub fn head(&mut self) -> String {
        let (head, whole) = self.upto(b"\r\n\r\n");
        assert!(whole || head.is_empty(), "a cut head: {}", String::from_utf8_lossy(&head));
        String::from_utf8(head).unwrap()
    }

    /// One chunk, or the last one with its trailers.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let (line, whole) = self.upto(b"\r\n");
        if !whole {
            return None;
        }
        let line = std::str::from_utf8(&line).unwrap();
        let len = usize::from_str_radix(line.split(';').next().unwrap().trim(), 16).unwrap();
        if len == 0 {
            return Some(Vec::new());
        }
        let (mut chunk, whole) = self.exactly(len + 2);
        chunk.truncate(len);
        whole.then_some(chunk)
    }

    /// A whole message. `bodiless`: whatever its head says, there is no body.
    pub fn message(&mut self, bodiless: bool) -> Message {
        let mut message = Message { head: self.head(), ..Message::default() };
        let is_request = !message.head.starts_with("HTTP/");
        if message.head.is_empty() {
            message.cut = true;
            return message;
        }
        if bodiless || !is_request && matches!(message.status(), 204 | 304) {
            return message;
        }
        if message.header("transfer-encoding").is_some_and(|v| v.to_ascii_lowercase().ends_with("chunked")) {
            loop {
                match self.chunk() {
                    None => {
                        message.cut = true;
                        return message;
                    }
                    Some(chunk) if chunk.is_empty() => break,
                    Some(chunk) => message.body.extend(chunk),
                }
            }
            loop {
                let (line, whole) = self.upto(b"\r\n");
                message.cut = !whole;
                if !whole || line == b"\r\n" {
                    return message;
                }
                message.trailers.push_str(std::str::from_utf8(&line).unwrap());
            }
        }
        if let Some(len) = message.header("content-length") {
            let (body, whole) = self.exactly(len.parse().unwrap());
            (message.body, message.cut) = (body, !whole);
        } else if !is_request {
            message.body = self.rest();
        }
        message
    }
}

/// A server of which each connection is taken by hand.
pub struct Server {
    pub listener: TcpListener,
    pub at: SocketAddr,
}

impl Server {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        Self { listener, at }
    }

    pub fn accept(&self) -> End {
        self.listener.accept().unwrap().0.into()
    }

    /// Whether nobody connects.
    pub fn is_left_alone(&self) -> bool {
        self.listener.set_nonblocking(true).unwrap();
        let left = self.listener.accept().is_err();
        self.listener.set_nonblocking(false).unwrap();
        left
    }
}

/// The exchange of this number, from the client's and the server's side.
pub const fn request(exchange: u64) -> Flow {
    Flow { exchange, direction: Direction::ClientToServer }
}

pub const fn response(exchange: u64) -> Flow {
    Flow { exchange, direction: Direction::ServerToClient }
}
