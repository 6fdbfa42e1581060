//! What a recorder that listens still has of connections that are over: descriptors, threads, memory. And a body that
//! expands without end. With `ASSAY_HTTP_CONNECTIONS=10000`, many connections.

use crate::rig::{End, Server};
use assay_support::{
    alone::peak_kib,
    rig::{Client, INITIALIZE, Rig, call, rig, until},
};
use rustix::process::Signal;
use std::{
    fs,
    io::Write as _,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
/// Bytes that a connection may leave, what allocators and the evidence of its session keep counted in.
const LEFT: u64 = 2 << 10;
/// What may come on top of it, whatever their number: 16 MiB.
const ONCE: u64 = 16 << 20;

fn connections() -> u64 {
    std::env::var("ASSAY_HTTP_CONNECTIONS").map_or(1000, |n| n.parse().unwrap())
}

/// A server that answers calls, and whose streams stay open. `open` counts its connections.
fn upstream() -> (SocketAddr, Arc<AtomicU64>) {
    let (server, open) = (Server::start(), Arc::new(AtomicU64::new(0)));
    let (at, counter) = (server.at, open.clone());
    thread::spawn(move || {
        loop {
            let (end, open) = (server.accept(), counter.clone());
            open.fetch_add(1, Ordering::SeqCst);
            let serving = move || {
                serve(end);
                open.fetch_sub(1, Ordering::SeqCst);
            };
            thread::Builder::new().stack_size(256 << 10).spawn(serving).unwrap();
        }
    });
    (at, open)
}

fn serve(mut end: End) {
    loop {
        let asked = end.message(false);
        if asked.cut {
            return;
        }
        let said: serde_json::Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let answer = match said["id"].as_u64() {
            Some(id) => {
                let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-06-18"}}}}"#);
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\n";
                format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
            }
            None if asked.head.starts_with("GET") => STREAM.to_owned(),
            None => "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
        };
        end.send(answer);
    }
}

fn start(rig: &Rig, upstream: SocketAddr, flags: &[&str]) -> Client {
    let url = format!("http://{upstream}/mcp");
    let listen = ["mcp-proxy", "--audit-dir", "audit", "--listen", "127.0.0.1:0", "--upstream-url", &url];
    Client::start(rig.program(&[&listen[..], flags].concat()))
}

fn post(at: SocketAddr, length: usize, body: &str) -> String {
    format!("POST /mcp HTTP/1.1\r\nHost: {at}\r\nMcp-Session-Id: s\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// One connection, to its end: a call as a rule, or one of the ways to leave in the middle.
fn connection(at: SocketAddr, n: u64) {
    let mut end = End::connect(at);
    match n % 8 {
        0 => {
            end.send(format!("GET /mcp HTTP/1.1\r\nHost: {at}\r\nMcp-Session-Id: s\r\n\r\n"));
            end.head();
        }
        1 => end.send(post(at, 1000, "half")),
        2 => end.send("POST /mcp HTTP/1.1\r\nHo"),
        3 => {
            end.send("nonsense\r\n\r\n");
            end.rest();
        }
        _ => {
            let body = if n == 4 { INITIALIZE.to_owned() } else { call(n, "echo", 1) };
            end.send(post(at, body.len(), &body));
            assert_eq!(end.message(false).status(), 200);
        }
    }
}

/// Descriptors, threads, and resident bytes of a process.
fn held(pid: u32) -> (usize, usize, u64) {
    let count = |dir: &str| fs::read_dir(format!("/proc/{pid}/{dir}")).unwrap().count();
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    (count("fd"), count("task"), pages * rustix::param::page_size() as u64)
}

#[test]
fn connections_that_are_over_leave_nothing() {
    for profile in ["audit", "guard"] {
        let (rig, (upstream, open)) = (rig!(), upstream());
        let policy = rig.file("policy.yaml", "version: \"1\"\ndefault: allow\n");
        let flags = ["--profile", "guard", "--policy", &policy];
        let mut proxy = start(&rig, upstream, if profile == "guard" { &flags } else { &[] });
        let (at, pid) = (proxy.address(), proxy.child.id());
        let settled = || {
            until("the upstream's connections to end", || (open.load(Ordering::SeqCst) == 0).then_some(()));
            held(pid)
        };
        // What is made once is made now.
        (0..200).for_each(|n| connection(at, n));
        let (descriptors, threads, resident) = settled();
        (0..connections()).for_each(|n| connection(at, n));
        settled();
        // The client's side may be closed a little later.
        until("as few descriptors and threads as before", || {
            let now = held(pid);
            (now.0 <= descriptors && now.1 <= threads).then_some(())
        });
        let grown = held(pid).2.saturating_sub(resident);
        println!("{profile}: {descriptors} descriptors, {threads} threads, {} KiB more", grown >> 10);
        assert!(grown < ONCE + connections() * LEFT, "{profile}: {grown} bytes more are resident");
        proxy.signal(Signal::TERM);
        assert_eq!(proxy.end().code(), Some(0), "{}", proxy.said());
    }
}

#[test]
fn a_body_that_expands_without_end_passes_and_takes_little_memory() {
    // A GiB, in a MiB.
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":""#).unwrap();
    let block = vec![b'x'; 1 << 20];
    (0..1024).for_each(|_| bomb.write_all(&block).unwrap());
    bomb.write_all(br#""}]}}"#).unwrap();
    let bomb = bomb.finish().unwrap();
    let (rig, server) = (rig!(), Server::start());
    let mut proxy = start(&rig, server.at, &["--no-check"]);
    let at = proxy.address();
    let mut client = End::connect(at);
    let asked = call(1, "echo", 1);
    client.send(post(at, asked.len(), &asked));
    let mut end = server.accept();
    end.message(false);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n";
    end.send(format!("{head}Content-Length: {}\r\n\r\n", bomb.len()));
    end.send(&bomb);
    let got = client.message(false);
    assert!(got.body == bomb, "{} bytes of {}", got.body.len(), bomb.len());
    until("the end of the exchange in the evidence", || {
        let says =
            |file: &PathBuf| fs::read_to_string(file).is_ok_and(|text| text.contains("expands to more than 100 times"));
        rig.segments().iter().any(says).then_some(())
    });
    let peak = peak_kib(proxy.child.id());
    assert!(peak < 64 << 10, "{peak} KiB were resident");
    proxy.signal(Signal::TERM);
    // How the call ended is not known: its pack says INCOMPLETE.
    assert_eq!(proxy.end().code(), Some(2), "{}", proxy.said());
}
