//! Large bodies, slow readers.

use crate::rig::{End, Proxy, Server, request, response};
use assay::relay::log::Cause;
use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const BLOCK: usize = 1 << 16;

#[test]
fn large_bodies_pass_both_ways() {
    const SIZE: usize = 48 << 20;
    let server = Server::start();
    let proxy = Proxy::to(server.at);
    proxy.log.light.store(true, Ordering::Relaxed);
    let serving = std::thread::spawn(move || {
        let mut upstream = server.accept();
        let got = upstream.message(false);
        upstream.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
        upstream.send(&got.body);
        got.body.len()
    });
    let mut client = End::connect(proxy.at);
    let mut writer = client.stream.try_clone().unwrap();
    let host = proxy.at;
    let writing = std::thread::spawn(move || {
        write!(writer, "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: {SIZE}\r\n\r\n").unwrap();
        for n in 0..SIZE / BLOCK {
            writer.write_all(&vec![n as u8; BLOCK]).unwrap();
        }
    });
    let got = client.message(false);
    writing.join().unwrap();
    assert_eq!((serving.join().unwrap(), got.body.len()), (SIZE, SIZE));
    assert!(got.body.iter().enumerate().all(|(at, b)| *b == (at / BLOCK) as u8));
    assert_eq!((proxy.log.end(request(1)).bytes, proxy.log.end(response(1)).bytes), (SIZE as u64, SIZE as u64));
}

#[test]
fn a_slow_reader_holds_back_its_upstream_and_gets_the_whole_answer() {
    const SIZE: u64 = 64 << 20;
    let server = Server::start();
    let proxy = Proxy::to(server.at);
    proxy.log.light.store(true, Ordering::Relaxed);
    let wrote = Arc::new(AtomicU64::new(0));
    let counter = wrote.clone();
    let serving = std::thread::spawn(move || {
        let mut upstream = server.accept();
        upstream.head();
        upstream.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
        for _ in 0..SIZE / BLOCK as u64 {
            upstream.send(vec![7; BLOCK]);
            counter.fetch_add(BLOCK as u64, Ordering::Relaxed);
        }
    });
    let mut client = End::connect(proxy.at);
    client.send(format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.at));
    // Until nothing moves any more.
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = wrote.load(Ordering::Relaxed);
        if now > 0 && now == before {
            break;
        }
        before = now;
    }
    // What the sockets of the system hold, and little more.
    assert!(before < SIZE / 2, "{before} bytes are somewhere");
    assert_eq!(client.message(false).body.len() as u64, SIZE);
    serving.join().unwrap();
    assert_eq!(proxy.log.end(response(1)).cause, Cause::Complete);
}
