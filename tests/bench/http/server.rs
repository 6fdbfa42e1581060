//! An MCP server over HTTP on blocking sockets: it answers at once, with as much as it is asked for.

use rustix::time::{ClockId, clock_gettime};
use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

const BLOCK: usize = 64 << 10;

/// When the client of a stream that is held was gone; 0: it is not, or somebody has asked.
static GONE: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds of the clock that all processes of this machine share.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The number that follows `key`.
pub fn number(text: &[u8], key: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(text, key)? + key.len();
    let digits = text[at..].iter().take_while(|b| b.is_ascii_digit());
    Some(digits.fold(0, |n, b| n * 10 + u64::from(b - b'0')))
}

/// Listens until it is killed, and says where.
pub fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    eprintln!("server: listening on http://{}/mcp", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        // A client that has gone is no error.
        thread::Builder::new().stack_size(256 << 10).spawn(move || drop(answer(&stream)))?;
    }
    Ok(())
}

fn answer(stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut body) = (String::new(), Vec::new());
    loop {
        head.clear();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = number(head.to_ascii_lowercase().as_bytes(), b"content-length: ").unwrap_or(0);
        body.resize(length as usize, 0);
        reader.read_exact(&mut body)?;
        let is = |what: &str| memchr::memmem::find(&body, what.as_bytes()).is_some();
        let Some(id) = number(&body, b"\"id\":").filter(|_| head.starts_with("POST")) else {
            let status = if head.starts_with("POST") { "202 Accepted" } else { "405 Method Not Allowed" };
            (&*stream).write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
            continue;
        };
        if is("\"hold\"") {
            (&*stream).write_all(STREAM.as_bytes())?;
            // Until its client is gone.
            let _ = reader.read(&mut [0]);
            GONE.store(now(), Ordering::SeqCst);
            return Ok(());
        } else if is("\"leave\"") {
            (&*stream).write_all(STREAM.as_bytes())?;
            event(stream, &notice(format!("at:{}", now()).as_bytes()))?;
            return stream.shutdown(Shutdown::Both);
        } else if is("\"gone\"") {
            while GONE.load(Ordering::SeqCst) == 0 {
                thread::sleep(Duration::from_micros(200));
            }
            (&*stream).write_all(STREAM.as_bytes())?;
            event(stream, &notice(format!("at:{}", GONE.swap(0, Ordering::SeqCst)).as_bytes()))?;
            end(stream, id)?;
        } else if is("\"ticks\"") {
            ticks(stream, id, number(&body, b"\"count\":").unwrap_or(1))?;
        } else if is("\"events\"") {
            events(stream, id, number(&body, b"\"size\":").unwrap_or(0))?;
        } else {
            json(stream, id, &body)?;
        }
    }
}

fn json(mut stream: &TcpStream, id: u64, asked: &[u8]) -> io::Result<()> {
    let result = if memchr::memmem::find(asked, b"\"initialize\"").is_some() {
        let info = r#""serverInfo":{"name":"bench","version":"1"}"#;
        format!(r#"{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},{info},"x":""#)
    } else if memchr::memmem::find(asked, b"\"tools/list\"").is_some() {
        r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}],"x":""#.to_owned()
    } else {
        r#"{"content":[{"type":"text","text":""#.to_owned()
    };
    let end = if result.ends_with("\"x\":\"") { "\"}}" } else { "\"}]}}" };
    let begin = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}"#);
    let size = number(asked, b"\"size\":").unwrap_or(0).max((begin.len() + end.len()) as u64);
    let mut fill = size - (begin.len() + end.len()) as u64;
    let mut bytes = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\nContent-Length: {size}\r\n\r\n{begin}"
    )
    .into_bytes();
    while fill > BLOCK as u64 {
        bytes.resize(bytes.len() + BLOCK, b'x');
        stream.write_all(&bytes)?;
        bytes.clear();
        fill -= BLOCK as u64;
    }
    bytes.resize(bytes.len() + fill as usize, b'x');
    bytes.extend_from_slice(end.as_bytes());
    stream.write_all(&bytes)
}

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn event(mut stream: &TcpStream, data: &[u8]) -> io::Result<()> {
    let chunk = format!("{:x}\r\ndata: ", data.len() + 8);
    stream.write_all(&[chunk.as_bytes(), data, b"\n\n\r\n"].concat())
}

fn notice(data: &[u8]) -> Vec<u8> {
    let before = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":""#;
    [&before[..], data, b"\"}}"].concat()
}

fn end(mut stream: &TcpStream, id: u64) -> io::Result<()> {
    event(stream, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#).as_bytes())?;
    stream.write_all(b"0\r\n\r\n")
}

/// An event every 100 ms, with the time in it.
fn ticks(mut stream: &TcpStream, id: u64, count: u64) -> io::Result<()> {
    stream.write_all(STREAM.as_bytes())?;
    for _ in 0..count {
        thread::sleep(Duration::from_millis(100));
        event(stream, &notice(format!("at:{}", now()).as_bytes()))?;
    }
    end(stream, id)
}

/// So many bytes in events of 64 KiB.
fn events(mut stream: &TcpStream, id: u64, size: u64) -> io::Result<()> {
    stream.write_all(STREAM.as_bytes())?;
    let notice = notice(&[b'x'; BLOCK]);
    for _ in 0..size / BLOCK as u64 {
        event(stream, &notice)?;
    }
    end(stream, id)
}
