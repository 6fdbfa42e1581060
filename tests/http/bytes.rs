//! What crosses, byte for byte: one test for each thing that must pass or must end here.

use crate::{
    front::{Front, NOTE, with_length},
    process::{ALL, Process},
    rig::{End, Kept, Message, Proxy, Server, Wishes, request, response, until},
};
use assay::relay::log::{Cause, HttpVersion, NoteCode};
use std::net::SocketAddr;

/// What both sides read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub server: Message,
    pub client: Message,
}

/// One exchange over new connections to `to`, answered by `server`. `{host}` in the request stands for `to`.
pub fn exchange(server: &Server, to: SocketAddr, ask: &str, answer: &str) -> Seen {
    let bodiless = ask.starts_with("HEAD ");
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut end = server.accept();
            let got = end.message(false);
            end.send(answer);
            // An answer without a length ends with its connection.
            let lower = answer.to_ascii_lowercase();
            if !lower.contains("content-length") && !lower.contains("chunked") {
                drop(end);
                return (got, None);
            }
            (got, Some(end))
        });
        let mut end = End::connect(to);
        end.send(ask.replace("{host}", &to.to_string()));
        let client = end.message(bodiless);
        let (server, _open) = serving.join().unwrap();
        Seen { server, client }
    })
}

/// In audit only: a guard does not let it pass as it is.
fn in_audit(ask: &str, answer: &str) -> (Seen, Proxy, Server) {
    let server = Server::start();
    let proxy = Proxy::to(server.at);
    (exchange(&server, proxy.at, ask, answer), proxy, server)
}

/// In audit; a guard that lets everything pass gives the same.
#[track_caller]
fn proxied(ask: &str, answer: &str) -> (Seen, Proxy, Server) {
    let server = Server::start();
    let guard = Process::start(server.at, "guard", ALL, &[]);
    let guarded = exchange(&server, guard.at, ask, answer);
    let (seen, proxy, own) = in_audit(ask, answer);
    assert_eq!(but_for(guarded, guard.at, server.at), but_for(seen.clone(), proxy.at, own.at), "{ask}");
    (seen, proxy, own)
}

/// Without what names the addresses, and without the coding that a guard asks for: it could not read another one.
fn but_for(mut seen: Seen, proxy: SocketAddr, server: SocketAddr) -> Seen {
    for head in [&mut seen.server.head, &mut seen.client.head] {
        let is_coding = |line: &&str| !line.to_ascii_lowercase().starts_with("accept-encoding:");
        *head = head.replace(&proxy.to_string(), "proxy").replace(&server.to_string(), "server");
        *head = head.split_inclusive("\r\n").filter(is_coding).collect();
    }
    seen
}

/// The exchange without the listener and with it, in audit and as a guard: the same, all name the server in Host.
#[track_caller]
fn same(ask: &str, answer: &str) -> Seen {
    let (seen, _proxy, _server) = proxied(ask, answer);
    let server = Server::start();
    let direct = exchange(&server, server.at, ask, answer);
    let at = |head: &str| Message { head: head.to_owned(), ..Message::default() }.header("host").map(str::to_owned);
    let host = at(&seen.server.head).unwrap_or_default();
    let named = |text: &str| text.replace(&server.at.to_string(), &host);
    assert_eq!(
        seen,
        Seen {
            server: Message { head: named(&direct.server.head), ..direct.server },
            client: Message { head: named(&direct.client.head), ..direct.client },
        }
    );
    seen
}

/// What a client gets for this, and nothing goes upstream, in audit and as a guard.
#[track_caller]
fn refused(ask: &str) -> (Message, Proxy) {
    let server = Server::start();
    let all = Front::both(&server).map(|front| {
        let mut end = front.client();
        end.send(ask.replace("{host}", &front.at().to_string()));
        let got = end.message(false);
        assert!(server.is_left_alone(), "{ask}");
        (got, front)
    });
    let all: Vec<_> = all.collect();
    let [(got, Front::Audit(proxy)), (guarded, _)] = <[_; 2]>::try_from(all).ok().unwrap() else { panic!() };
    assert_eq!(guarded, got, "{ask}");
    (got, proxy)
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const POST: &str = "POST /mcp HTTP/1.1\r\nHost: {host}\r\n";

#[test]
fn a_call_and_its_answer_pass_as_they_are_and_are_in_the_log() {
    let ask = format!("{POST}content-type: application/json\r\n{}", with_length(NOTE));
    let (seen, proxy, _server) = proxied(&ask, OK);
    assert_eq!((seen.server.text().as_str(), seen.client.text().as_str()), (NOTE, "hi"));
    let log = &proxy.log;
    assert_eq!((log.end(request(1)).cause, log.end(response(1)).cause), (Cause::Complete, Cause::Complete));
    assert_eq!((log.body(request(1)), log.body(response(1))), (NOTE.as_bytes().to_vec(), b"hi".to_vec()));
    until(|| (log.wrote(request(1)), log.wrote(response(1))) == (NOTE.len() as u64, 2));
    let Kept::Request(head) = &log.of(request(1))[0] else { panic!() };
    assert!(head.endpoint && head.peer == "loopback" && head.target.path == "/mcp", "{head:?}");
    let Kept::Response(head) = &log.of(response(1))[0] else { panic!() };
    assert_eq!((head.status, head.reused), (200, false));
    assert_eq!(log.notes(), [] as [NoteCode; 0]);
}

#[test]
fn headers_keep_their_order_their_case_and_their_values() {
    let ask = "POST /mcp HTTP/1.1\r\nX-Zulu: 1\r\nHost: {host}\r\nx-alpha: \u{e9}  y\r\nACCEPT: a, b\r\nX-zUlU-2: 2\r\n\
               Cookie: a=1; b=2\r\nMcp-Session-Id: s\r\nX-Dup: 1\r\nx-dup: 2\r\nX-DUP: 3\r\nX-Empty:\r\n";
    let answer = "HTTP/1.1 200 OK\r\nServer: x\r\ncontent-TYPE: text/plain\r\nSet-Cookie: a\r\nset-cookie: b\r\nX-A: 1\r\nDATE: never\r\n\
                  Content-Length: 2\r\n\r\nhi";
    let seen = same(&format!("{ask}{}", with_length(NOTE)), answer);
    assert!(seen.client.head.contains("set-cookie: b\r\nX-A: 1\r\nDATE: never"), "{}", seen.client.head);
    assert!(seen.server.head.contains("X-Dup: 1\r\nx-dup: 2\r\nX-DUP: 3\r\nX-Empty:\r\n"), "{}", seen.server.head);
}

#[test]
fn nothing_is_added_to_either_message() {
    let seen = same("GET /mcp HTTP/1.1\r\nHost: {host}\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(seen.client.head, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(seen.server.head.lines().count(), 3);
}

#[test]
fn headers_of_one_connection_end_there_and_those_of_mcp_do_not() {
    let ask = "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, X-Hop, Mcp-Session-Id, Authorization, Content-Type, Cookie, Host\r\n\
               Keep-Alive: timeout=5\r\nProxy-Authorization: secret\r\nProxy-Connection: x\r\nTE: trailers\r\nX-Hop: 1\r\n\
               Mcp-Session-Id: s\r\nAuthorization: a\r\nContent-Type: t\r\nCookie: c\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n";
    let answer = "HTTP/1.1 200 OK\r\nConnection: X-Hop, Mcp-Session-Id\r\nX-Hop: 1\r\nKeep-Alive: x\r\nProxy-Authenticate: x\r\n\
                  Upgrade: h2c\r\nMcp-Session-Id: s\r\nContent-Length: 0\r\n\r\n";
    // A guard refuses what names those of MCP in Connection.
    let (seen, _proxy, server) = in_audit(ask, answer);
    proxied(&ask.replace(", Mcp-Session-Id, Authorization, Content-Type, Cookie, Host", ""), answer);
    let expected = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nTE: trailers\r\nMcp-Session-Id: s\r\nAuthorization: a\r\nContent-Type: t\r\nCookie: c\r\n\
         Content-Length: 0\r\n\r\n",
        server.at
    );
    assert_eq!(seen.server.head, expected);
    assert_eq!(seen.client.head, "HTTP/1.1 200 OK\r\nMcp-Session-Id: s\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn no_host_two_hosts_and_a_url_of_another_host_are_refused() {
    for ask in [
        "GET /mcp HTTP/1.1\r\n\r\n",
        "GET /mcp HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n",
        "GET http://127.0.0.1:1/mcp HTTP/1.1\r\nHost: {host}\r\n\r\n",
    ] {
        let (got, proxy) = refused(ask);
        assert_eq!(got.status(), 400, "{ask}");
        assert_eq!(proxy.log.notes(), [NoteCode::Forbidden]);
        assert_eq!(proxy.log.end(response(1)).cause, Cause::Complete);
    }
}

#[test]
fn the_absolute_form_becomes_the_origin_form() {
    let (seen, ..) = proxied("GET http://{host}/mcp//a?b HTTP/1.1\r\nHost: {host}\r\n\r\n", OK);
    assert!(seen.server.head.starts_with("GET /mcp//a?b HTTP/1.1\r\n"), "{}", seen.server.head);
}

#[test]
fn targets_pass_as_they_were_written() {
    for target in ["/", "//", "/a//b", "/%2f%2F;x=1?a=%20&b=c//d?e", "/.well-known/../x", "/a|b", "/mcp?x={y}"] {
        let seen = same(&format!("GET {target} HTTP/1.1\r\nHost: {{host}}\r\n\r\n"), OK);
        assert!(seen.server.head.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{target}: {}", seen.server.head);
    }
}

#[test]
fn options_of_the_whole_server_pass_and_connect_does_not() {
    let seen = same("OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n", OK);
    assert!(seen.server.head.starts_with("OPTIONS * HTTP/1.1\r\n"));
    assert_eq!(refused("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n").0.status(), 405);
}

#[test]
fn methods_pass_whatever_they_are() {
    for method in ["DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "MCPX"] {
        same(&format!("{method} /mcp HTTP/1.1\r\nHost: {{host}}\r\n\r\n"), OK);
    }
}

#[test]
fn the_framing_of_bodies_is_kept() {
    let (begin, rest) = NOTE.split_at(5);
    let chunked =
        format!("Transfer-Encoding: chunked\r\n\r\n5\r\n{begin}\r\n{:x};x=y\r\n{rest}\r\n0\r\n\r\n", rest.len());
    let seen = same(&format!("{POST}{chunked}"), &format!("HTTP/1.1 200 OK\r\n{chunked}"));
    assert_eq!((seen.server.text().as_str(), seen.client.text().as_str()), (NOTE, NOTE));
    assert!(seen.server.head.contains("Transfer-Encoding: chunked") && !seen.server.head.contains("ength"));
    let seen = same(&format!("{POST}{}", with_length(NOTE).to_ascii_lowercase()), OK);
    assert!(seen.server.head.contains(&format!("content-length: {}", NOTE.len())));
    same(&format!("{POST}Content-Length: 0\r\n\r\n"), OK);
    // Also where nobody expects one.
    same(&format!("GET /mcp HTTP/1.1\r\nHost: {{host}}\r\n{chunked}"), OK);
    same(&format!("DELETE /mcp HTTP/1.1\r\nHost: {{host}}\r\n{}", with_length(NOTE)), OK);
}

#[test]
fn an_answer_that_ends_with_its_connection_is_whole() {
    let (seen, proxy, _server) =
        proxied("GET /mcp HTTP/1.1\r\nHost: {host}\r\n\r\n", "HTTP/1.1 200 OK\r\nX: y\r\n\r\nuntil the end");
    assert_eq!((seen.client.text().as_str(), seen.client.cut), ("until the end", false));
    assert_eq!(proxy.log.end(response(1)).cause, Cause::Complete);
}

#[test]
fn a_length_beside_a_transfer_encoding_is_dropped() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let length = NOTE.len();
    let (seen, ..) = proxied(
        &format!("{POST}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{NOTE}\r\n0\r\n\r\n"),
        answer,
    );
    assert_eq!((seen.server.text().as_str(), seen.client.text().as_str()), (NOTE, "hello"));
    for head in [&seen.server.head, &seen.client.head] {
        assert!(!head.to_ascii_lowercase().contains("content-length"), "{head}");
    }
}

#[test]
fn an_answer_with_a_strange_transfer_encoding_is_an_error_of_the_gateway() {
    for coding in ["gzip, chunked", "xchunked", "identity"] {
        let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        let (seen, proxy, _server) = proxied("GET /mcp HTTP/1.1\r\nHost: {host}\r\n\r\n", &answer);
        assert_eq!(seen.client.status(), 502, "{coding}");
        assert_eq!(proxy.log.end(request(1)).cause, Cause::Complete);
    }
}

#[test]
fn upstream_always_hears_http_1_1_and_an_old_client_is_answered_as_one() {
    let ask = "GET /mcp HTTP/1.0\r\nHost: {host}\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let (seen, proxy, _server) = proxied(ask, chunked);
    assert!(seen.server.head.starts_with("GET /mcp HTTP/1.1\r\n"));
    assert!(
        seen.client.head.starts_with("HTTP/1.0 200 OK\r\n") && !seen.client.head.contains("chunked"),
        "{}",
        seen.client.head
    );
    assert_eq!(seen.client.text(), "hello");
    let Kept::Request(head) = &proxy.log.of(request(1))[0] else { panic!() };
    assert_eq!(head.version, HttpVersion::H10);
    let (seen, _, server) = proxied("GET /mcp HTTP/1.0\r\n\r\n", OK);
    assert!(seen.server.head.contains(&format!("host: {}", server.at)), "{}", seen.server.head);
}

#[test]
fn expect_passes_and_is_answered_here() {
    let server = Server::start();
    for front in Front::both(&server) {
        let mut client = front.client();
        let (at, length) = (front.at(), NOTE.len());
        client.send(format!(
            "POST /mcp HTTP/1.1\r\nHost: {at}\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        ));
        assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
        client.send(NOTE);
        let mut upstream = server.accept();
        let got = upstream.message(false);
        assert!(got.head.contains("Expect: 100-continue\r\n") && got.text() == NOTE, "{got:?}");
        // What the server says meanwhile ends here.
        upstream.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
        upstream.send(OK);
        assert_eq!(client.message(false).text(), "hi");
    }
}

#[test]
fn trailers_that_are_announced_pass_both_ways_and_are_named_in_the_log() {
    let tail = format!(
        "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{NOTE}\r\n0\r\nX-Sum: 7\r\n\r\n",
        NOTE.len()
    );
    let (seen, proxy, _server) =
        proxied(&format!("{POST}TE: trailers\r\n{tail}"), &format!("HTTP/1.1 200 OK\r\n{tail}"));
    assert_eq!(seen.server.trailers.to_ascii_lowercase(), "x-sum: 7\r\n");
    assert_eq!(seen.client.trailers.to_ascii_lowercase(), "x-sum: 7\r\n");
    assert_eq!(proxy.log.end(request(1)).trailers, ["x-sum"]);
    assert_eq!(proxy.log.end(response(1)).trailers, ["x-sum"]);
}

#[test]
fn reasons_and_bodies_of_errors_pass() {
    for status in [
        "404 Session Not Found",
        "405 Nope",
        "409 Conflict",
        "421 Misdirected Request",
        "401 Unauthorized",
        "500 X",
        "299 Odd",
        "200 ",
    ] {
        let answer = format!(
            "HTTP/1.1 {status}\r\nWWW-Authenticate: Bearer resource_metadata=\"https://up/x\"\r\nContent-Length: 4\r\n\r\nbody"
        );
        let seen = same(&format!("{POST}{}", with_length(NOTE)), &answer);
        assert!(seen.client.head.starts_with(&format!("HTTP/1.1 {}", status.trim())), "{}", seen.client.head);
    }
}

#[test]
fn answers_without_a_body_keep_their_length() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX: y\r\n\r\n";
    assert_eq!(same("HEAD /mcp HTTP/1.1\r\nHost: {host}\r\n\r\n", head).client.head, head);
    for answer in [
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: x\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nX: content-length\r\n\r\n",
    ] {
        assert_eq!(same("GET /mcp HTTP/1.1\r\nHost: {host}\r\n\r\n", answer).client.head, answer);
    }
    same(&format!("{POST}{}", with_length(NOTE)), "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn redirects_pass_and_a_location_of_the_upstream_is_moved_to_the_client() {
    let server = Server::start();
    for front in Front::both(&server) {
        for (location, expected) in [
            (format!("http://{}/b//c?d#e", server.at), format!("http://{}/b//c?d#e", front.at())),
            ("/relative".to_owned(), "/relative".to_owned()),
            ("https://elsewhere.example/".to_owned(), "https://elsewhere.example/".to_owned()),
        ] {
            let answer =
                format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            let seen = exchange(&server, front.at(), "GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n", &answer);
            assert_eq!((seen.client.status(), seen.client.header("location")), (307, Some(expected.as_str())));
            if let Some(log) = front.log() {
                assert_eq!(log.notes(), [NoteCode::RewroteLocation]);
            }
        }
    }
}

#[test]
fn coded_bodies_pass_as_they_are() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\u{1f}xyz";
    let answer = answer.replace("Length: 4", &format!("Length: {}", "\u{1f}xyz".len()));
    // A guard refuses them: it could not read them.
    let ask = format!("{POST}Accept-Encoding: gzip, br\r\nContent-Length: 0\r\n\r\n");
    let (seen, ..) = in_audit(&ask, &answer);
    let server = Server::start();
    let direct = exchange(&server, server.at, &ask, &answer);
    assert_eq!(seen.client, direct.client);
    assert_eq!(seen.server.header("accept-encoding"), Some("gzip, br"));
}

#[test]
fn switching_protocols_is_refused() {
    let (seen, ..) = proxied(
        "GET /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nX: content-length\r\n\r\n",
    );
    assert!(!seen.server.head.contains("pgrade"), "{}", seen.server.head);
    assert_eq!(seen.client.status(), 502);
}

#[test]
fn what_does_not_go_to_the_endpoint_is_hashed_and_its_path_too() {
    let server = Server::start();
    let proxy = Proxy::to(server.at);
    let ask =
        "POST /token/c4n4ry?code=c4n4ry HTTP/1.1\r\nHost: {host}\r\nCookie: c4n4ry\r\nContent-Length: 6\r\n\r\nc4n4ry";
    let answer = "HTTP/1.1 200 OK\r\nSet-Cookie: c4n4ry\r\nContent-Length: 6\r\n\r\nc4n4ry";
    let seen = exchange(&server, proxy.at, ask, answer);
    assert_eq!((seen.server.text().as_str(), seen.client.text().as_str()), ("c4n4ry", "c4n4ry"));
    let (asked, answered) = (proxy.log.end(request(1)), proxy.log.end(response(1)));
    assert_eq!((asked.bytes, answered.bytes), (6, 6));
    assert!(asked.sha256.is_some() && asked.sha256 == answered.sha256);
    let all = format!("{:?}", proxy.log.entries.lock().unwrap());
    assert!(!all.contains("c4n4ry") && !all.contains("Data"), "{all}");
    // A path of the metadata is no secret.
    exchange(&server, proxy.at, "GET /.well-known/oauth HTTP/1.1\r\nHost: {host}\r\n\r\n", OK);
    assert!(format!("{:?}", proxy.log.of(request(2))).contains("/.well-known/oauth"));
}

#[test]
fn connections_are_kept_and_belong_to_one_client() {
    let server = Server::start();
    for front in Front::both(&server) {
        let ask = front.ask("POST");
        let (mut one, mut two) = (front.client(), front.client());
        one.send(&ask);
        let mut first = server.accept();
        first.message(false);
        first.send(OK);
        one.message(false);
        two.send(&ask);
        let mut second = server.accept();
        second.message(false);
        second.send(OK);
        two.message(false);
        // Two at once are answered one after the other.
        one.send([ask.as_bytes(), ask.as_bytes()].concat());
        for _ in 0..2 {
            assert_eq!(first.message(false).text(), NOTE);
            first.send(OK);
            assert_eq!(one.message(false).text(), "hi");
        }
        assert!(server.is_left_alone());
        if let Some(log) = front.log() {
            let Kept::Response(head) = &log.of(response(3))[0] else { panic!() };
            assert!(head.reused);
        }
        // A client that leaves takes its connection along.
        drop(one);
        assert!(first.is_closed());
        two.send(&ask);
        assert_eq!(second.message(false).text(), NOTE);
    }
}

#[test]
fn given_headers_replace_those_of_the_client() {
    let server = Server::start();
    let wishes = Wishes {
        config: Box::new(|config| {
            config.inject = vec![
                (http::HeaderName::from_static("authorization"), "Bearer ours".parse().unwrap()),
                (http::HeaderName::from_static("x-new"), "1".parse().unwrap()),
            ];
        }),
        ..Wishes::to(server.at)
    };
    let proxy = Proxy::start(wishes);
    let ask = "GET /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: theirs\r\nX: y\r\n\r\n";
    let seen = exchange(&server, proxy.at, ask, OK);
    let expected =
        format!("GET /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer ours\r\nX: y\r\nx-new: 1\r\n\r\n", server.at);
    assert_eq!(seen.server.head, expected);
    assert!(!format!("{:?}", proxy.log.entries.lock().unwrap()).contains("ours"));
    let guard = Process::guard(&server, ALL, &["--header", "Authorization: Bearer ours", "--header", "x-new: 1"]);
    let guarded = exchange(&server, guard.at, ask, OK);
    assert_eq!(but_for(guarded, guard.at, server.at), but_for(seen, proxy.at, server.at));
}
