//! Who may use the listener, and what is refused before anything goes upstream.

use crate::rig::{End, Proxy, Server, Wishes, request, until};
use assay::relay::{
    http::{
        access::{Access, Token},
        listen::Config,
    },
    log::{Cause, NoteCode},
};
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn guarded(server: &Server) -> Proxy {
    let access = Access {
        hosts: vec!["mcp.example".into()],
        origins: vec!["https://app.example".into()],
        token: Some(Token::new(TOKEN)),
    };
    Proxy::start(Wishes { config: Box::new(|c| c.access = access), ..Wishes::to(server.at) })
}

#[test]
fn foreign_hosts_and_origins_get_403_and_nothing_goes_upstream() {
    let server = Server::start();
    let proxy = Proxy::to(server.at);
    for lines in [
        "Host: evil.example".to_owned(),
        "Host: localhost".to_owned(),
        format!("Host: {}\r\nOrigin: https://evil.example", proxy.at),
        format!("Host: {}\r\nOrigin: null", proxy.at),
        format!("Host: {}\r\nOrigin: http://localhost\r\nOrigin: http://localhost", proxy.at),
    ] {
        let mut client = End::connect(proxy.at);
        client.send(format!("POST /mcp HTTP/1.1\r\n{lines}\r\nContent-Length: 6\r\n\r\nc4n4ry"));
        let got = client.message(false);
        assert_eq!(got.status(), 403, "{lines}");
        assert_eq!(got.header("access-control-allow-origin"), None);
    }
    assert!(server.is_left_alone());
    assert_eq!(proxy.log.notes(), [NoteCode::Forbidden; 5]);
    assert!(!format!("{:?}", proxy.log.entries.lock().unwrap()).contains("c4n4ry"));
    let end = proxy.log.end(request(1));
    assert_eq!((end.cause, end.bytes, end.sha256.is_some()), (Cause::Complete, 6, true));
}

#[test]
fn a_token_is_asked_for_before_the_body_is_read_and_ends_here() {
    let server = Server::start();
    let proxy = guarded(&server);
    for lines in [
        "",
        "Authorization: Bearer wrong\r\n",
        "Assay-Token: wrong\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\n",
    ] {
        let mut client = End::connect(proxy.at);
        client.send(format!("POST /mcp HTTP/1.1\r\nHost: {}\r\n{lines}Content-Length: 100000000\r\n\r\n", proxy.at));
        let got = client.message(false);
        assert_eq!((got.status(), got.header("www-authenticate")), (401, Some("Bearer")), "{lines}");
    }
    assert!(server.is_left_alone());
    for (lines, left) in [
        (format!("Authorization: Bearer {TOKEN}\r\n"), ""),
        (format!("Authorization: Basic theirs\r\nassay-TOKEN: {TOKEN}\r\n"), "Authorization: Basic theirs\r\n"),
    ] {
        let mut client = End::connect(proxy.at);
        client.send(format!(
            "GET /mcp HTTP/1.1\r\nHost: mcp.example\r\nOrigin: https://app.example\r\n{lines}X: y\r\n\r\n"
        ));
        let mut upstream = server.accept();
        let expected =
            format!("GET /mcp HTTP/1.1\r\nHost: {}\r\nOrigin: https://app.example\r\n{left}X: y\r\n\r\n", server.at);
        assert_eq!(upstream.head(), expected);
        upstream.send(OK);
        assert_eq!(client.message(false).text(), "hi");
    }
    assert!(!format!("{:?}", proxy.log.entries.lock().unwrap()).contains(TOKEN));
}

#[test]
fn a_preflight_of_an_allowed_page_passes() {
    let server = Server::start();
    let proxy = guarded(&server);
    let mut client = End::connect(proxy.at);
    client.send(format!(
        "OPTIONS /mcp HTTP/1.1\r\nHost: {}\r\nOrigin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n\r\n",
        proxy.at
    ));
    let mut upstream = server.accept();
    assert!(upstream.head().contains("Origin: https://app.example"));
    upstream.send("HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: https://app.example\r\n\r\n");
    let got = client.message(false);
    assert_eq!(got.header("access-control-allow-origin"), Some("https://app.example"));
}

/// Requests whose framing contradicts itself, or which no strict reader takes.
const ATTACKS: [&str; 15] = [
    "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "Content-Length: +5\r\n\r\nhello",
    "Content-Length: 5, 6\r\n\r\nhello",
    "Content-Length: 0x5\r\n\r\nhello",
    "Content-Length: -1\r\n\r\nhello",
    "Content-Length: 99999999999999999999\r\n\r\nhello",
    "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n",
    "X: a\r\n folded: b\r\nContent-Length: 0\r\n\r\n",
    "Content-Length : 5\r\n\r\nhello",
    "X: a\rContent-Length: 5\r\n\r\nhello",
    "X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "No colon\r\n\r\n",
    ": no name\r\n\r\n",
];

#[test]
fn framing_that_contradicts_itself_is_refused_makes_no_second_request_and_is_in_the_log() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    for (attack, line) in ATTACKS.iter().map(|a| (*a, "POST /mcp HTTP/1.1")).chain([
        ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "POST /mcp HTTP/1.0"),
        ("\r\n", "POST  /mcp HTTP/1.1"),
        ("\r\n", "POST /mcp HTTP/1.1 x"),
        ("\r\n", "POST /m\0cp HTTP/1.1"),
        ("\r\n", "P(ST /mcp HTTP/1.1"),
    ]) {
        let server = Server::start();
        let proxy = Proxy::to(server.at);
        let mut client = End::connect(proxy.at);
        client.send(format!("{line}\r\nHost: {}\r\n{attack}{smuggled}", proxy.at));
        let got = client.message(false);
        assert!(got.cut || matches!(got.status(), 400 | 501), "{line} {attack:?}: {got:?}");
        assert!(client.rest().is_empty(), "{attack:?}");
        assert!(server.is_left_alone(), "{attack:?}");
        until(|| proxy.log.notes() == [NoteCode::BadFraming]);
    }
}

#[test]
fn two_framings_are_read_as_the_stricter_one_and_end_the_connection() {
    let server = Server::start();
    let proxy = Proxy::to(server.at);
    let mut client = End::connect(proxy.at);
    client.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
        proxy.at
    ));
    let mut upstream = server.accept();
    assert!(upstream.message(false).body.is_empty());
    upstream.send(OK);
    assert_eq!(client.message(false).text(), "hi");
    assert!(client.rest().is_empty() && upstream.rest().is_empty() && server.is_left_alone());
}

#[test]
fn heads_that_are_too_large_are_refused() {
    for lines in [format!("X: {}\r\n", "x".repeat(100_000)), "X: y\r\n".repeat(200)] {
        let server = Server::start();
        let proxy = Proxy::to(server.at);
        let mut client = End::connect(proxy.at);
        client.send(format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n{lines}\r\n", proxy.at));
        assert_eq!(client.message(false).status(), 431);
        assert!(server.is_left_alone());
        until(|| proxy.log.notes() == [NoteCode::BadFraming]);
    }
}

#[test]
fn a_head_without_an_end_is_refused() {
    use std::io::Write as _;
    for line in ["X: y\r\n", "x", "\u{e9}: "] {
        let server = Server::start();
        let proxy = Proxy::to(server.at);
        let mut client = End::connect(proxy.at);
        let mut writer = client.stream.try_clone().unwrap();
        let head = format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n", proxy.at);
        let writing = std::thread::spawn(move || {
            let block = line.repeat(10_000 / line.len());
            let _ = writer.write_all(head.as_bytes());
            while writer.write_all(block.as_bytes()).is_ok() {}
        });
        let answer = client.rest();
        // What was sent and not read may take the answer with it.
        let is_refusal = ["HTTP/1.1 431 ", "HTTP/1.1 400 "].iter().any(|first| answer.starts_with(first.as_bytes()));
        assert!(answer.is_empty() || is_refusal, "{line:?}: {}", String::from_utf8_lossy(&answer));
        writing.join().unwrap();
        assert!(server.is_left_alone());
        until(|| proxy.log.notes() == [NoteCode::BadFraming]);
    }
}

#[test]
fn a_head_that_is_too_slow_ends_the_connection() {
    for begin in ["", "G", "PRI * HT", "GET /mcp HTTP/1.1\r\nHost: "] {
        let server = Server::start();
        let config = |config: &mut Config| config.head_time = Duration::from_millis(50);
        let proxy = Proxy::start(Wishes { config: Box::new(config), ..Wishes::to(server.at) });
        let mut client = End::connect(proxy.at);
        client.send(begin);
        assert!(client.is_closed(), "{begin:?}");
        assert!(server.is_left_alone());
        assert!(proxy.log.entries.lock().unwrap().is_empty(), "nothing was asked");
    }
}

#[test]
fn connections_beyond_the_limit_wait() {
    let server = Server::start();
    let proxy = Proxy::start(Wishes { config: Box::new(|c| c.max_connections = 1), ..Wishes::to(server.at) });
    let ask = format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.at);
    let (mut one, mut two) = (End::connect(proxy.at), End::connect(proxy.at));
    one.send(&ask);
    let mut first = server.accept();
    first.head();
    two.send(&ask);
    first.send(OK);
    one.message(false);
    assert!(server.is_left_alone());
    drop(one);
    let mut second = server.accept();
    second.head();
    second.send(OK);
    assert_eq!(two.message(false).text(), "hi");
}

#[test]
fn sockets_on_both_sides_may_be_of_the_file_system() {
    use std::{
        io::{Read as _, Write as _},
        os::unix::{
            fs::PermissionsExt as _,
            net::{UnixListener, UnixStream},
        },
    };
    let dir = tempfile::tempdir().unwrap();
    let (front, back) = (dir.path().join("front"), dir.path().join("back"));
    let upstream = UnixListener::bind(&back).unwrap();
    // What a dead process left is replaced.
    drop(UnixListener::bind(&front).unwrap());
    let server = Server::start();
    let (listen, unix) = (format!("unix:{}", front.display()).parse().unwrap(), back.clone());
    let config = move |config: &mut Config| {
        let to = assay::relay::http::connect::Destination {
            url: config.url.clone(),
            unix: Some(unix),
            roots: Vec::new(),
            proxy: Default::default(),
        };
        config.connector = assay::relay::http::connect::Connector::new(&to).unwrap();
    };
    let mut proxy = Proxy::start(Wishes { listen, config: Box::new(config), ..Wishes::to(server.at) });
    assert_eq!(front.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = UnixStream::connect(&front).unwrap();
    client.write_all(b"GET /mcp HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n").unwrap();
    let mut taken = upstream.accept().unwrap().0;
    let mut got = [0; 14];
    taken.read_exact(&mut got).unwrap();
    taken.write_all(OK.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nhi"), "{answer}");
    assert!(format!("{:?}", proxy.log.of(request(1))).contains("uid:"));
    proxy.stop.end();
    proxy.join();
    assert!(!front.exists());
}
