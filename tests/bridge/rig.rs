//! A scripted HTTP server on raw sockets, and a client that speaks lines with a bridge.

use assay::{
    bridge::{Bridge, BridgeEnd, BridgeHandle, Config, SessionLoss, Timing, Transport},
    relay::http::connect::{Destination, ProxyChoice},
};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A request as the server read it.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The method of its message, or of the request if it has none.
    pub fn what(&self) -> String {
        self.json().get("method").and_then(Value::as_str).map_or_else(|| self.method.clone(), str::to_owned)
    }

    pub fn id(&self) -> Value {
        self.json()["id"].clone()
    }

    /// A result for this request.
    pub fn result(&self, result: &Value) -> String {
        json!({"jsonrpc": "2.0", "id": self.id(), "result": result}).to_string()
    }
}

/// The way back of one request.
pub struct Reply<'a> {
    to: &'a mut dyn Write,
    pub is_closed: bool,
}

impl Reply<'_> {
    pub fn raw(&mut self, bytes: &[u8]) {
        // The bridge may have gone, which is for the test to notice.
        let _ = self.to.write_all(bytes).and_then(|()| self.to.flush());
    }

    pub fn send(&mut self, status: u16, headers: &[(&str, &str)], body: &str) {
        let mut head = format!("HTTP/1.1 {status} X\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if status != 204 {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        self.raw(format!("{head}\r\n{body}").as_bytes());
    }

    pub fn json(&mut self, body: &str) {
        self.send(200, &[("Content-Type", "application/json")], body);
    }

    pub fn stream(&mut self) {
        self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    }

    pub fn chunk(&mut self, text: &str) {
        self.raw(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
    }

    pub fn end(&mut self) {
        self.raw(b"0\r\n\r\n");
    }

    /// Closes the connection.
    pub fn cut(&mut self) {
        self.is_closed = true;
    }
}

pub type Script = dyn Fn(&Seen, &mut Reply<'_>) + Send + Sync;

#[derive(Default)]
struct Log {
    seen: Mutex<(Vec<Seen>, usize)>,
    changed: Condvar,
}

pub struct Server {
    pub port: u16,
    log: Arc<Log>,
}

/// How bytes of a connection are carried: `None` takes them as they are.
pub type Wrap = dyn Fn(TcpStream) -> Box<dyn ReadWrite> + Send + Sync;

pub trait ReadWrite: Read + Write + Send {}
impl<T: Read + Write + Send> ReadWrite for T {}

impl Server {
    pub fn start(script: impl Fn(&Seen, &mut Reply<'_>) + Send + Sync + 'static) -> Self {
        Self::wrapped(script, |stream| Box::new(stream))
    }

    pub fn wrapped(
        script: impl Fn(&Seen, &mut Reply<'_>) + Send + Sync + 'static,
        wrap: impl Fn(TcpStream) -> Box<dyn ReadWrite> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = Arc::new(Log::default());
        let (script, wrap): (Arc<Script>, Arc<Wrap>) = (Arc::new(script), Arc::new(wrap));
        let kept = log.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let (script, log, wrap) = (script.clone(), kept.clone(), wrap.clone());
                thread::spawn(move || serve(wrap(stream), &*script, &log));
            }
        });
        Self { port, log }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.log.seen.lock().unwrap().0.clone()
    }

    /// The last request that said this: a stream for the server's messages may have begun since.
    pub fn last(&self, what: &str) -> Seen {
        self.seen().into_iter().rfind(|s| s.what() == what).unwrap()
    }

    pub fn count(&self, what: &str) -> usize {
        self.seen().iter().filter(|s| s.what() == what).count()
    }

    /// Waits until what was seen is so.
    pub fn until(&self, is_so: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let (seen, timed_out) = self
            .log
            .changed
            .wait_timeout_while(self.log.seen.lock().unwrap(), PATIENCE, |seen| !is_so(&seen.0))
            .unwrap();
        assert!(!timed_out.timed_out(), "seen: {:?}", seen.0.iter().map(Seen::what).collect::<Vec<_>>());
        seen.0.clone()
    }

    /// Waits until so many connections were closed by the other side or by us.
    pub fn until_closed(&self, connections: usize) {
        let seen = self.log.seen.lock().unwrap();
        let waited = self.log.changed.wait_timeout_while(seen, PATIENCE, |seen| seen.1 < connections).unwrap();
        assert!(!waited.1.timed_out());
    }
}

fn serve(stream: Box<dyn ReadWrite>, script: &Script, log: &Log) {
    let mut reader = BufReader::new(stream);
    while let Some(seen) = read_request(&mut reader) {
        log.seen.lock().unwrap().0.push(seen.clone());
        log.changed.notify_all();
        let mut reply = Reply { to: reader.get_mut(), is_closed: false };
        script(&seen, &mut reply);
        if reply.is_closed {
            break;
        }
    }
    drop(reader);
    log.seen.lock().unwrap().1 += 1;
    log.changed.notify_all();
}

fn read_request(reader: &mut impl std::io::BufRead) -> Option<Seen> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut seen = Seen { method, target, ..Seen::default() };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        seen.headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let length: usize = seen.header("content-length").map_or(0, |l| l.parse().unwrap());
    seen.body = vec![0; length];
    reader.read_exact(&mut seen.body).ok()?;
    Some(seen)
}

/// A client, and its bridge.
pub struct Client {
    to: Option<File>,
    lines: Receiver<String>,
    pub bridge: BridgeHandle,
    pub notices: Arc<Mutex<Vec<String>>>,
}

/// Times that a test can wait for.
pub fn timing() -> Timing {
    Timing {
        grace: Duration::from_millis(200),
        first_retry: Duration::from_millis(5),
        longest_retry: Duration::from_millis(20),
        ..Timing::default()
    }
}

pub fn config(url: &str) -> Config {
    let destination =
        Destination { url: url.parse().unwrap(), unix: None, roots: Vec::new(), proxy: ProxyChoice::Direct };
    Config {
        destination,
        headers: Vec::new(),
        transport: Transport::Auto,
        session_loss: SessionLoss::Reinitialize,
        timing: timing(),
        notice: Arc::new(|_| {}),
        book: None,
    }
}

impl Client {
    pub fn of(server: &Server) -> Self {
        Self::start(config(&server.url()))
    }

    pub fn start(mut config: Config) -> Self {
        let (to_bridge, said) = pipe();
        let (told, from_bridge) = pipe();
        let notices = Arc::new(Mutex::new(Vec::new()));
        let kept = notices.clone();
        config.notice = Arc::new(move |text| kept.lock().unwrap().push(text.to_owned()));
        let bridge = Bridge::start(config, to_bridge.into(), from_bridge.into()).unwrap();
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(told).lines() {
                if tell.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { to: Some(said), lines, bridge, notices }
    }

    pub fn say(&mut self, message: &Value) {
        self.say_raw(&format!("{message}\n"));
    }

    pub fn say_raw(&mut self, text: &str) {
        self.to.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    pub fn hear(&self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, message: &Value) -> Value {
        self.say(message);
        let answer = self.hear();
        assert_eq!(answer["id"], message["id"], "{answer}");
        answer
    }

    pub fn begin(&mut self) -> Value {
        let answer = self.ask(&initialize());
        self.say(&initialized());
        answer
    }

    pub fn hang_up(&mut self) {
        self.to = None;
    }

    /// What is still said until the bridge ends, and how it ends.
    pub fn end(mut self) -> (Vec<Value>, BridgeEnd) {
        self.hang_up();
        self.rest()
    }

    /// As [`end`](Self::end), for a bridge that ends by itself.
    pub fn rest(self) -> (Vec<Value>, BridgeEnd) {
        let until = Instant::now() + PATIENCE;
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => rest.push(serde_json::from_str(&line).unwrap()),
                Err(RecvTimeoutError::Disconnected) => return (rest, self.bridge.wait()),
                Err(RecvTimeoutError::Timeout) => panic!("the bridge does not end"),
            }
        }
    }

    pub fn until_said(&self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.notices.lock().unwrap().iter().any(|n| n.contains(text)) {
            assert!(Instant::now() < until, "{:?}", self.notices.lock().unwrap());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn pipe() -> (File, File) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    (reader.into(), writer.into())
}

pub fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}})
}

pub fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

pub fn call(id: impl Into<Value>, tool: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": {"name": tool, "arguments": {}}})
}

pub fn modern(id: impl Into<Value>, method: &str, params: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

pub fn greeting() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
}

/// A server with sessions: what the script does not answer.
pub fn legacy(seen: &Seen, reply: &mut Reply<'_>) {
    match seen.what().as_str() {
        "initialize" => {
            let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", "session-1")];
            reply.send(200, &headers, &seen.result(&greeting()));
        }
        "GET" => reply.send(405, &[], ""),
        "DELETE" => reply.send(200, &[], ""),
        _ if seen.id().is_null() => reply.send(202, &[], ""),
        _ => reply.json(&seen.result(&json!({}))),
    }
}
