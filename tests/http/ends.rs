//! How exchanges end: who hangs up, that the other side learns of it, what is drained, what is retried. How soon it learns of
//! it is measured by `cargo bench --bench http -- --only hangups`.

use crate::{
    front::{Front, NOTE, with_length},
    rig::{End, Kept, Proxy, Server, Wishes, request, response, until},
};
use assay::relay::log::{Cause, NoteCode};
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn ask(proxy: &Proxy, method: &str) -> String {
    format!("{method} /mcp HTTP/1.1\r\nHost: {}\r\n{}", proxy.at, with_length(NOTE))
}

fn pair() -> (Server, Proxy, End) {
    let server = Server::start();
    let proxy = Proxy::to(server.at);
    let client = End::connect(proxy.at);
    (server, proxy, client)
}

/// The same in audit and as a guard, with a client of each.
fn both(each: impl Fn(&Server, &Front, End)) {
    let server = Server::start();
    for front in Front::both(&server) {
        each(&server, &front, front.client());
    }
}

/// How an exchange ended, where that can be read.
#[track_caller]
fn ended(front: &Front, asked: Cause, answered: Cause) {
    if let Some(log) = front.log() {
        assert_eq!((log.end(request(1)).cause, log.end(response(1)).cause), (asked, answered));
    }
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

#[test]
fn a_head_and_events_pass_at_once() {
    both(|server, front, mut client| {
        client.send(front.ask("POST"));
        let mut upstream = server.accept();
        upstream.message(false);
        upstream.send(STREAM);
        assert!(client.head().contains("text/event-stream"));
        for n in 0..20 {
            let event = format!("id: {n}\ndata: {NOTE}\n\n");
            upstream.send(chunk(&event));
            assert_eq!(client.chunk().unwrap(), event.as_bytes());
            if let Some(log) = front.log() {
                until(|| log.wrote(response(1)) == log.body(response(1)).len() as u64);
            }
        }
        upstream.send("0\r\n\r\n");
        assert_eq!(client.chunk().unwrap(), b"");
        ended(front, Cause::Complete, Cause::Complete);
    });
}

#[test]
fn a_client_that_leaves_an_idle_stream_is_told_upstream() {
    for half in [false, true] {
        both(|server, front, mut client| {
            client.send(front.ask("POST"));
            let mut upstream = server.accept();
            upstream.message(false);
            upstream.send(STREAM);
            client.head();
            if half {
                client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            } else {
                drop(client);
            }
            assert!(upstream.is_closed());
            ended(front, Cause::Complete, Cause::ClientGone);
        });
    }
}

#[test]
fn a_client_that_leaves_before_the_head_is_told_upstream() {
    both(|server, front, mut client| {
        client.send(front.ask("POST"));
        let mut upstream = server.accept();
        upstream.message(false);
        drop(client);
        assert!(upstream.is_closed());
        ended(front, Cause::Complete, Cause::ClientGone);
    });
}

#[test]
fn a_client_that_leaves_behind_bytes_of_a_later_request_is_told_upstream() {
    both(|server, front, mut client| {
        client.send(front.ask("POST"));
        let mut upstream = server.accept();
        upstream.message(false);
        upstream.send(STREAM);
        client.head();
        client.send(front.ask("POST").repeat(3));
        upstream.send(chunk("data: 1\n\n"));
        client.chunk().unwrap();
        drop(client);
        assert!(upstream.is_closed());
        ended(front, Cause::Complete, Cause::ClientGone);
    });
}

#[test]
fn a_client_that_leaves_in_an_upload_is_told_upstream_after_what_it_sent() {
    both(|server, front, mut client| {
        client.send(format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Length: 100\r\n\r\nhalf", front.at()));
        if front.log().is_none() {
            // A guard holds it until it is whole.
            drop(client);
            assert!(server.is_left_alone());
            return;
        }
        let mut upstream = server.accept();
        upstream.head();
        drop(client);
        assert_eq!(upstream.rest(), b"half");
        ended(front, Cause::ClientGone, Cause::ClientGone);
    });
}

#[test]
fn a_request_that_was_sent_before_its_client_left_still_arrives() {
    let (server, proxy, mut client) = pair();
    let body = "x".repeat(300_000);
    client.send(format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{body}", proxy.at, body.len()));
    let mut upstream = server.accept();
    assert_eq!(upstream.message(false).body.len(), body.len());
}

#[test]
fn an_upstream_that_leaves_in_a_body_is_never_a_whole_answer() {
    let event = format!("data: {NOTE}\n\n");
    for framing in
        [format!("Transfer-Encoding: chunked\r\n\r\n{}", chunk(&event)), format!("Content-Length: 100\r\n\r\n{event}")]
    {
        both(|server, front, mut client| {
            client.send(front.ask("POST"));
            let mut upstream = server.accept();
            upstream.message(false);
            upstream.send(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}"));
            drop(upstream);
            let got = client.message(false);
            assert!(got.cut, "{got:?}");
            let piece = if got.body.is_empty() { String::new() } else { got.text() };
            // What had come is passed on before the end is.
            let read = front.log().map(|log| log.body(response(1)));
            let is_read = read.is_none_or(|read| read == event.as_bytes());
            assert!(piece == event || framing.starts_with('T') && is_read, "{got:?}");
            ended(front, Cause::Complete, Cause::UpstreamLost);
        });
    }
}

#[test]
fn an_upstream_that_leaves_without_a_head_leaves_the_client_without_an_answer() {
    both(|server, front, mut client| {
        client.send(front.ask("POST"));
        let mut upstream = server.accept();
        upstream.message(false);
        drop(upstream);
        assert!(client.is_closed());
        ended(front, Cause::Complete, Cause::UpstreamLost);
        assert!(server.is_left_alone(), "what was written is not sent twice");
    });
}

#[test]
fn an_upstream_that_leaves_in_an_upload_leaves_the_client_without_an_answer() {
    let (server, proxy, mut client) = pair();
    client.send(format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Length: 100000\r\n\r\nhalf", proxy.at));
    let mut upstream = server.accept();
    upstream.head();
    assert_eq!(upstream.exactly(4).0, b"half");
    drop(upstream);
    assert!(client.is_closed(), "the client would send the rest");
    assert_eq!(proxy.log.end(request(1)).cause, Cause::UpstreamLost);
    assert_eq!(proxy.log.end(response(1)).cause, Cause::UpstreamLost);
    assert!(server.is_left_alone(), "what was written is not sent twice");
}

#[test]
fn an_idle_connection_that_was_closed_is_replaced() {
    both(|server, front, mut client| {
        client.send(front.ask("POST"));
        let mut upstream = server.accept();
        upstream.message(false);
        upstream.send(OK);
        client.message(false);
        drop(upstream);
        // Until the listener has seen it.
        std::thread::sleep(Duration::from_millis(100));
        client.send(front.ask("POST"));
        let mut upstream = server.accept();
        upstream.message(false);
        upstream.send(OK);
        assert_eq!(client.message(false).text(), "hi");
    });
}

#[test]
fn nobody_at_the_upstream_is_an_error_of_the_gateway_in_one_line() {
    let server = Server::start();
    let fronts: Vec<_> = Front::both(&server).collect();
    drop(server);
    for front in fronts {
        for _ in 0..2 {
            let mut client = front.client();
            client.send(front.ask("POST"));
            let got = client.message(false);
            assert_eq!((got.status(), got.header("content-type")), (502, Some("text/plain; charset=utf-8")));
            assert_eq!(got.text().lines().count(), 1);
            assert!(got.text().starts_with("assay: cannot connect to 127.0.0.1:"), "{}", got.text());
        }
        let Some(log) = front.log() else { continue };
        assert_eq!(log.notes(), [NoteCode::ConnectFailed, NoteCode::ConnectFailed]);
        let Kept::Response(head) = &log.of(response(1))[0] else { panic!() };
        assert_eq!(format!("{:?}", head.answered_by), "Assay");
        assert!(matches!(&log.of(response(1))[1], Kept::Data { own: true, offset: 0, .. }));
    }
}

#[test]
fn what_is_no_http_is_an_error_of_the_gateway() {
    both(|server, front, mut client| {
        client.send(front.ask("POST"));
        let mut upstream = server.accept();
        upstream.message(false);
        upstream.send("SSH-2.0-OpenSSH\r\n\r\n");
        assert_eq!(client.message(false).status(), 502);
    });
}

#[test]
fn an_early_answer_passes_at_once_and_the_rest_of_the_request_is_drained() {
    let (server, proxy, mut client) = pair();
    client.send(format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Length: 200000\r\n\r\n", proxy.at));
    let mut upstream = server.accept();
    upstream.head();
    upstream.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
    let got = client.message(false);
    assert_eq!((got.status(), got.text().as_str()), (413, "big"));
    assert!(upstream.is_closed() || upstream.rest().len() < 200_000);
    client.send("x".repeat(200_000));
    // The connection is as good as before.
    client.send(ask(&proxy, "POST"));
    let mut upstream = server.accept();
    assert_eq!(upstream.message(false).text(), NOTE);
    upstream.send(OK);
    assert_eq!(client.message(false).text(), "hi");
    assert_eq!(proxy.log.end(request(1)).bytes, 200_000);
}

#[test]
fn an_early_answer_of_a_server_that_closes_arrives() {
    for _ in 0..20 {
        let (server, proxy, mut client) = pair();
        let head = format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Length: 60000000\r\n\r\n", proxy.at);
        client.send(head);
        let mut upstream = server.accept();
        upstream.head();
        let mut writer = client.stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            use std::io::Write as _;
            let block = vec![b'x'; 1 << 16];
            while writer.write_all(&block).is_ok() {}
        });
        upstream.send("HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 3\r\n\r\nwho");
        drop(upstream);
        let got = client.message(false);
        assert_eq!((got.status(), got.text().as_str()), (401, "who"));
        drop(client);
        drop(proxy);
        writing.join().unwrap();
    }
}

#[test]
fn a_bad_chunk_is_answered() {
    both(|server, front, mut client| {
        let head = format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n", front.at());
        client.send(format!("{head}2\r\nhi\r\nzz\r\n"));
        let Some(log) = front.log() else {
            assert_eq!(client.message(false).status(), 400);
            assert!(server.is_left_alone());
            return;
        };
        let mut upstream = server.accept();
        upstream.head();
        let got = client.message(false);
        assert_eq!(got.status(), 400, "{got:?}");
        // What came was no whole request there.
        let rest = upstream.rest();
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
        assert_eq!(log.notes(), [NoteCode::BadFraming]);
        assert_eq!(log.end(request(1)).cause, Cause::Refused);
    });
}

#[test]
fn a_full_log_holds_everything_back_and_loses_nothing() {
    let (server, proxy, mut client) = pair();
    client.send(ask(&proxy, "POST"));
    let mut upstream = server.accept();
    upstream.message(false);
    upstream.send(STREAM);
    client.head();
    proxy.log.full.store(true, std::sync::atomic::Ordering::SeqCst);
    upstream.send(chunk("data: 1\n\n"));
    client.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let peeked = client.stream.peek(&mut [0; 1]);
    assert!(peeked.is_err(), "something passed that is not in the log: {peeked:?}");
    client.stream.set_read_timeout(Some(crate::rig::LONG)).unwrap();
    proxy.log.release();
    assert_eq!(client.chunk().unwrap(), b"data: 1\n\n");
}

#[test]
fn the_endpoint_event_of_the_old_transport_is_moved_and_its_path_becomes_an_endpoint() {
    let (server, proxy, mut client) = pair();
    client.send(format!("GET /mcp HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n\r\n", proxy.at));
    let mut upstream = server.accept();
    upstream.message(false);
    upstream.send(STREAM);
    client.head();
    upstream.send(chunk(&format!("event: endpoint\ndata: http://{}/messages?session_id=c4n4ry\n\n", server.at)));
    let event = String::from_utf8(client.chunk().unwrap()).unwrap();
    assert_eq!(event, "event: endpoint\ndata: /messages?session_id=c4n4ry\n\n");
    assert_eq!(proxy.log.notes(), [NoteCode::RewroteEndpoint]);
    until(|| proxy.log.wrote(response(1)) == proxy.log.body(response(1)).len() as u64);
    let mut other = End::connect(proxy.at);
    other.send(format!("POST /messages?session_id=c4n4ry HTTP/1.1\r\nHost: {}\r\n{}", proxy.at, with_length(NOTE)));
    let mut messages = server.accept();
    messages.message(false);
    messages.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(other.message(false).status(), 202);
    let Kept::Request(head) = &proxy.log.of(request(2))[0] else { panic!() };
    assert!(head.endpoint && head.target.path.starts_with('#'), "{head:?}");
    assert_eq!(proxy.log.body(request(2)), NOTE.as_bytes());
    upstream.send(chunk("data: x\n\n"));
    assert_eq!(client.chunk().unwrap(), b"data: x\n\n");
}

#[test]
fn a_listener_that_is_stopped_waits_for_calls_and_closes_streams() {
    let server = Server::start();
    let wishes = Wishes { config: Box::new(|c| c.patience = crate::rig::LONG), ..Wishes::to(server.at) };
    let mut proxy = Proxy::start(wishes);
    let (mut calling, mut listening, mut idle) =
        (End::connect(proxy.at), End::connect(proxy.at), End::connect(proxy.at));
    listening.send(format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.at));
    let mut stream = server.accept();
    stream.message(false);
    stream.send(STREAM);
    listening.head();
    calling.send(ask(&proxy, "POST"));
    let mut call = server.accept();
    call.message(false);
    proxy.stop.drain();
    assert!(listening.rest().is_empty() && stream.is_closed());
    assert!(idle.is_closed());
    call.send(OK);
    assert_eq!(calling.message(false).text(), "hi");
    assert!(calling.is_closed());
    proxy.join();
    assert!(std::net::TcpStream::connect(proxy.at).is_err());
    assert_eq!(proxy.log.end(response(1)).cause, Cause::Shutdown);
    assert_eq!(proxy.log.end(response(2)).cause, Cause::Complete);
}

#[test]
fn a_listener_that_is_ended_waits_for_nobody() {
    let (server, mut proxy, mut client) = pair();
    client.send(ask(&proxy, "POST"));
    let mut upstream = server.accept();
    upstream.message(false);
    proxy.stop.end();
    proxy.join();
    assert!(client.is_closed() && upstream.is_closed());
    assert_eq!(proxy.log.end(response(1)).cause, Cause::Shutdown);
}

#[test]
fn a_thousand_aborts_leave_nothing_open() {
    let (server, proxy, client) = pair();
    drop(client);
    let serving = std::thread::spawn(move || {
        for n in 0..1000 {
            let mut upstream = server.accept();
            upstream.message(false);
            match n % 3 {
                0 => upstream.send(STREAM),
                1 => {}
                _ => continue,
            }
            upstream.rest();
        }
    });
    for n in 0..1000_u64 {
        let mut client = End::connect(proxy.at);
        client.send(ask(&proxy, "POST"));
        match n % 3 {
            0 => drop(client.head()),
            1 => {
                until(|| matches!(proxy.log.of(request(n + 1)).last(), Some(Kept::Wrote(n)) if *n == NOTE.len() as u64))
            }
            _ => assert!(client.is_closed()),
        }
    }
    serving.join().unwrap();
    for n in 1..=1000 {
        assert_eq!(proxy.log.end(request(n)).cause, Cause::Complete, "{n}");
        proxy.log.end(response(n));
    }
    until(|| connections_of(proxy.at.port()) == 0);
}

/// Connections to a port of ours that are established or half closed.
fn connections_of(port: u16) -> usize {
    let tcp = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let (port, mine) = (format!(":{port:04X}"), ["01", "08"]);
    let is_open = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1].ends_with(&port) && mine.contains(&fields[3])
    };
    tcp.lines().skip(1).filter(is_open).count()
}
