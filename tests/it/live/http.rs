//! Sessions over HTTP: they are watched as any other, with their open streams.

use super::*;
use assay::live::protocol::LiveLine;
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Stdio},
    sync::Mutex,
    thread,
};

/// A head and its body; `None` at the end of the connection.
fn message(from: &mut impl std::io::BufRead) -> Option<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        from.read_line(&mut head).ok().filter(|n| *n > 0)?;
    }
    let length = head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    from.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).unwrap()))
}

/// A server that answers `initialize`, and keeps every stream that is asked for by GET open: the last one is kept.
fn server(stream: &Arc<Mutex<Option<TcpStream>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let kept = Arc::clone(stream);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let kept = Arc::clone(&kept);
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                while let Some((head, _)) = message(&mut reader) {
                    if head.starts_with("GET") {
                        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
                        stream.write_all(head.as_bytes()).unwrap();
                        *kept.lock().unwrap() = stream.try_clone().ok();
                        continue;
                    }
                    let body = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","serverInfo":{"name":"web","version":"2"}}}"#;
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    stream.write_all((head + body).as_bytes()).unwrap();
                }
            });
        }
    });
    at
}

/// A listener of the recorder in front of the server, and where it listens.
fn listener(rig: &Rig, upstream: SocketAddr) -> (Child, SocketAddr) {
    let (url, audit) = (format!("http://{upstream}/mcp"), rig.audit.display().to_string());
    let mut command =
        rig.program(&["mcp-proxy", "--audit-dir", &audit, "--listen", "127.0.0.1:0", "--upstream-url", &url]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening on http://") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the listener has ended");
    }
    thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    let at = line.split("http://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    (child, at)
}

#[test]
fn an_open_stream_is_seen_with_its_last_byte_until_it_closes() {
    let (rig, kept) = (rig!(), Arc::default());
    let (mut proxy, at) = listener(&rig, server(&kept));
    let card = {
        let mut post = TcpStream::connect(at).unwrap();
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"tester","version":"3"}}}"#;
        write!(
            post,
            "POST /mcp HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        message(&mut BufReader::new(&post)).unwrap();
        until("a live session", || {
            let named = |c: &RunCard| c.card.server_info.is_some() && c.card.http.is_some();
            discovery::live_in(&run_dir(&rig)).into_iter().find(named).filter(|c| c.card.socket.is_some())
        })
    };
    assert_eq!(card.card.client_info.as_ref().unwrap().to_string(), "tester 3");
    let mut plain = Client::start({
        let mut command = rig.program(&["watch", "--plain"]);
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        command
    });
    let printed = |c: &Client| String::from_utf8(c.got()).unwrap();
    let (inbox, mut state) = (follow(&card, 10_000), State::default());
    let open = |s: &State| s.sessions().get(&card.card.session_id).and_then(|v| v.open_streams().cloned());
    until("the session in plain text", || printed(&plain).contains("(web 2) with tester 3").then_some(()));

    let mut get = TcpStream::connect(at).unwrap();
    write!(get, "GET /mcp HTTP/1.1\r\nHost: {at}\r\nAccept: text/event-stream\r\nMcp-Session-Id: s\r\n\r\n").unwrap();
    message(&mut BufReader::new(&get)).unwrap();
    watch_until("the stream", &inbox, &mut state, |s| open(s).is_some_and(|o| o.total == 1));
    let stream = open(&state).unwrap().open.remove(0);
    assert_eq!((stream.method.as_str(), stream.messages, stream.bytes, stream.last_byte_at), ("GET", 0, 0, None));
    until("its line", || printed(&plain).contains("(GET) opened").then_some(()));

    let event = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n";
    kept.lock().unwrap().as_mut().unwrap().write_all(event.as_bytes()).unwrap();
    let read = |o: &assay::record::broadcast::OpenStream| (o.messages, o.bytes) == (1, event.len() as u64);
    watch_until("its event", &inbox, &mut state, |s| open(s).is_some_and(|o| read(&o.open[0])));
    let later = open(&state).unwrap().open.remove(0);
    assert!(later.last_byte_at.unwrap() >= later.since && later.since == stream.since);
    // Who comes later is told at once.
    let late = follow(&card, 10_000);
    let mut of_late = State::default();
    watch_until("the stream, later", &late, &mut of_late, |s| open(s).is_some_and(|o| read(&o.open[0])));

    kept.lock().unwrap().take().unwrap().shutdown(std::net::Shutdown::Both).unwrap();
    watch_until("its end", &inbox, &mut state, |s| open(s).is_none());
    until("the line of its end", || printed(&plain).contains("(GET) closed after").then_some(()));
    assert!(printed(&plain).contains("1 message, "), "{}", printed(&plain));
    // An exchange that went well is no news.
    assert!(!printed(&plain).contains('!'), "{}", printed(&plain));
    rustix::process::kill_process(rustix::process::Pid::from_child(&proxy), rustix::process::Signal::TERM).unwrap();
    assert_eq!(proxy.wait().unwrap().code(), Some(0));
    let updates = to_the_end(&inbox, &mut state);
    assert!(updates.iter().any(|u| matches!(u, Update::Line(l) if matches!(**l, LiveLine::SessionEnd(_)))));
    plain.wait();
    plain.end();
}

#[test]
fn names_that_come_after_the_subscription_are_told() {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    let card = until("a live session", || {
        discovery::live_in(&run_dir(&rig)).pop().filter(|c| c.card.socket.as_ref().is_some_and(|s| s.exists()))
    });
    let (inbox, mut state) = (follow(&card, 1000), State::default());
    let card_of = |s: &State| s.sessions().get(&card.card.session_id).and_then(|v| v.card.clone());
    watch_until("the session", &inbox, &mut state, |s| card_of(s).is_some());
    assert!(card_of(&state).unwrap().card.server_info.is_none(), "nobody has said anything yet");
    client.converse([rig::INITIALIZE.to_owned()].into_iter());
    watch_until("the names", &inbox, &mut state, |s| {
        card_of(s).is_some_and(|c| c.card.server_info.is_some() && c.card.client_info.is_some())
    });
    client.end();
}
