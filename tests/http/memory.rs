//! Memory of a recorder that listens, as a process, under load. With `ASSAY_HTTP_LOAD=long`, large bodies have a GiB.

use crate::rig::{End, Server};
use assay_support::{
    alone::peak_kib,
    rig::{Client, INITIALIZE, Rig, call, journal, receipts as receipts_of, rig, until},
};
use rustix::process::Signal;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 64 << 10;
const STREAMS: usize = 200;

/// Bytes of a large body.
fn large() -> u64 {
    match std::env::var("ASSAY_HTTP_LOAD").as_deref() {
        Ok("long") => 1 << 30,
        _ => 32 * MIB,
    }
}

const BEFORE: &str = r#"{"content":[{"text":""#;
const AFTER: &str = r#"","type":"text"}]}"#;

/// Hash of the result that `fill` bytes make, as a receipt has it.
fn hash(fill: u64) -> String {
    let mut hash = Sha256::new();
    hash.update(BEFORE);
    let block = [b'x'; BLOCK];
    for _ in 0..fill / BLOCK as u64 {
        hash.update(block);
    }
    hash.update(AFTER);
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// A server whose tools answer with much, or slowly. `wrote` counts the bytes of bodies.
struct Upstream {
    at: SocketAddr,
    wrote: Arc<AtomicU64>,
}

/// All streams are open before the first event is sent.
fn upstream() -> Upstream {
    let (server, wrote, open) = (Server::start(), Arc::new(AtomicU64::new(0)), Arc::new(Barrier::new(STREAMS)));
    let (at, counter) = (server.at, wrote.clone());
    thread::spawn(move || {
        for session in 0.. {
            let (end, counter, open) = (server.accept(), counter.clone(), open.clone());
            thread::Builder::new().stack_size(256 << 10).spawn(move || serve(end, session, &counter, &open)).unwrap();
        }
    });
    Upstream { at, wrote }
}

fn chunk(text: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

fn serve(mut end: End, session: u64, wrote: &AtomicU64, open: &Barrier) {
    const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let block = vec![b'x'; BLOCK];
    loop {
        let asked = end.message(false);
        if asked.cut {
            return;
        }
        let said: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let head = format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, said["id"]);
        match (said["method"].as_str(), said["params"]["name"].as_str()) {
            (Some("initialize"), _) => {
                let body = format!(r#"{head}{{"protocolVersion":"2025-06-18","capabilities":{{}}}}}}"#);
                end.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s{session}\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ));
            }
            (_, Some("json")) => {
                let length = head.len() + BEFORE.len() + AFTER.len() + 1 + large() as usize;
                end.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{head}{BEFORE}"
                ));
                for _ in 0..large() / BLOCK as u64 {
                    end.send(&block);
                    wrote.fetch_add(BLOCK as u64, Ordering::Relaxed);
                }
                end.send(format!("{AFTER}}}"));
            }
            (_, Some("stream")) => {
                end.send(STREAM);
                let notice = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":""#;
                let event = [b"data: ", notice.as_bytes(), &block, b"\"}}\n\n"].concat();
                for _ in 0..large() / BLOCK as u64 {
                    end.send(chunk(&event));
                }
                end.send(chunk(format!("data: {head}{BEFORE}{AFTER}}}\n\n").as_bytes()));
                end.send("0\r\n\r\n");
            }
            (_, Some("slow")) => {
                end.send(STREAM);
                open.wait();
                for step in 0..50 {
                    let params = format!(r#"{{"progressToken":1,"progress":{step},"message":"{}"}}"#, "y".repeat(500));
                    let event = format!(
                        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{params}}}\n\n"
                    );
                    end.send(chunk(event.as_bytes()));
                }
                end.send(chunk(format!("data: {head}{BEFORE}{AFTER}}}\n\n").as_bytes()));
                end.send("0\r\n\r\n");
            }
            _ => end.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"),
        }
    }
}

/// A recorder in front of it, which makes no packs: what is measured is what it needs while it runs.
fn start(rig: &Rig, upstream: &Upstream, profile: &str) -> Client {
    let url = format!("http://{}/mcp", upstream.at);
    let listen = ["mcp-proxy", "--audit-dir", "audit", "--listen", "127.0.0.1:0", "--upstream-url", &url];
    let policy = rig.file("policy.yaml", crate::process::ALL);
    let flags = ["--auto-pack=false", "--profile", profile, "--policy", &policy];
    Client::start(rig.program(&[&listen[..], &flags].concat()))
}

/// A client with a session, which has just called `tool`; the head of the answer was read.
fn calling(at: SocketAddr, tool: &str) -> (End, String) {
    let mut end = End::connect(at);
    let post = |session: &str, body: &str| {
        format!("POST /mcp HTTP/1.1\r\nHost: {at}\r\n{session}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    end.send(post("", INITIALIZE));
    let session = format!("Mcp-Session-Id: {}\r\n", end.message(false).header("mcp-session-id").unwrap());
    end.send(post(&session, &call(1, tool, 1)));
    let head = end.head();
    (end, head)
}

/// Reads a body to its end without keeping it; its bytes.
fn swallow(end: &mut End, head: &str) -> u64 {
    let Some(length) = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")) else {
        let chunks = std::iter::from_fn(|| Some(end.chunk().expect("a chunk")).filter(|chunk| !chunk.is_empty()));
        return chunks.map(|chunk| chunk.len() as u64).sum();
    };
    let length: u64 = length.parse().unwrap();
    for at in (0..length).step_by(BLOCK) {
        assert!(end.exactly((length - at).min(BLOCK as u64) as usize).1, "cut after {at} bytes");
    }
    length
}

/// Ends the recorder; the receipts of calls by tool.
fn receipts(rig: &Rig, mut proxy: Client) -> BTreeMap<String, Vec<Value>> {
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.end().code(), Some(0), "{}", proxy.said());
    let mut all = BTreeMap::<String, Vec<Value>>::new();
    for file in receipts_of(&rig.at("audit")) {
        let lines = fs::read_to_string(journal(&file)).unwrap();
        for receipt in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            if receipt["type"] == "mcp_tool_call" {
                assert_eq!(receipt["outcome"], "forwarded", "{receipt}");
                all.entry(receipt["tool_name"].as_str().unwrap().to_owned()).or_default().push(receipt);
            }
        }
    }
    all
}

#[track_caller]
fn at_most(proxy: &Client, mib: u64) {
    let peak = peak_kib(proxy.child.id()) / 1024;
    println!("{peak} MiB");
    assert!(peak < mib, "{peak} MiB were resident");
}

#[test]
fn large_results_take_little_memory() {
    for profile in ["audit", "guard"] {
        let (rig, upstream) = (rig!(), upstream());
        let proxy = start(&rig, &upstream, profile);
        // The recorder hashes a result at its end, without optimization for longer than the stream would be waited for.
        for tool in ["stream", "json"] {
            let (mut end, head) = calling(proxy.address(), tool);
            assert!(swallow(&mut end, &head) > large());
            at_most(&proxy, 64);
        }
        let receipts = receipts(&rig, proxy);
        assert_eq!(receipts["json"][0]["result_hash"], hash(large()));
        assert_eq!(receipts["stream"][0]["result_hash"], hash(0));
    }
}

#[test]
fn a_slow_reader_does_not_grow_memory() {
    for profile in ["audit", "guard"] {
        let (rig, upstream) = (rig!(), upstream());
        let proxy = start(&rig, &upstream, profile);
        let (mut end, head) = calling(proxy.address(), "json");
        // Until nothing moves any more: everything waits for the reader.
        let mut before = 0;
        until("standstill", || {
            thread::sleep(Duration::from_millis(300));
            let now = upstream.wrote.load(Ordering::Relaxed);
            (now > 0 && std::mem::replace(&mut before, now) == now).then_some(())
        });
        assert!(before < large(), "nobody held back {before} bytes");
        at_most(&proxy, 64);
        assert!(swallow(&mut end, &head) > large());
        at_most(&proxy, 64);
        assert_eq!(receipts(&rig, proxy)["json"][0]["result_hash"], hash(large()));
    }
}

#[test]
fn two_hundred_streams_take_little_memory() {
    for profile in ["audit", "guard"] {
        let (rig, upstream) = (rig!(), upstream());
        let proxy = start(&rig, &upstream, profile);
        let at = proxy.address();
        let clients: Vec<_> = (0..STREAMS)
            .map(|_| {
                let client = move || {
                    let (mut end, head) = calling(at, "slow");
                    swallow(&mut end, &head)
                };
                thread::Builder::new().stack_size(2 << 20).spawn(client).unwrap()
            })
            .collect();
        for client in clients {
            assert!(client.join().unwrap() > 50 * 500);
        }
        at_most(&proxy, 100);
        let receipts = receipts(&rig, proxy);
        assert_eq!(receipts["slow"].len(), STREAMS);
        assert!(receipts["slow"].iter().all(|receipt| receipt["result_hash"] == hash(0)));
    }
}
