//! HTTP/2 on either side, and TLS.

use crate::{
    front::{Front, NOTE},
    process::{ALL, Process},
    rig::{End, Kept, Proxy, Server, Wishes, request, response, until},
};
use assay::relay::{
    http::connect::{ProxyChoice, UpstreamHttp},
    log::{Cause, HttpVersion},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{io::Write as _, net::SocketAddr, sync::Arc};

const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];
const ONE: &[&[u8]] = &[b"http/1.1"];
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(future)
}

async fn connect(to: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(to).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn ask(at: SocketAddr) -> Request<Full<Bytes>> {
    let request = Request::post(format!("http://{at}/mcp?a=%2f")).header("cookie", "a=1").header("cookie", "b=2");
    request.header("x-a", "y").body(Full::from(NOTE)).unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[test]
fn a_client_of_http_2_reaches_a_server_of_http_1() {
    let server = Server::start();
    for front in Front::both(&server) {
        let (got, asked) = std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let mut upstream = server.accept();
                let got = upstream.message(false);
                upstream.send("HTTP/1.1 404 Gone Fishing\r\nConnection: keep-alive\r\nX-B: z\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
                (got, upstream)
            });
            let got = run(async {
                let response = connect(front.at()).await.send_request(ask(front.at())).await.unwrap();
                assert_eq!((response.status().as_u16(), response.headers()["x-b"].to_str().unwrap()), (404, "z"));
                let has = |name| response.headers().contains_key(name);
                assert!(!has("transfer-encoding") && !has("connection"));
                text(response).await
            });
            (got, serving.join().unwrap().0)
        });
        assert_eq!((got.as_str(), asked.text().as_str()), ("hi", NOTE));
        let expected = format!(
            "POST /mcp?a=%2f HTTP/1.1\r\ncookie: a=1; b=2\r\nx-a: y\r\ncontent-length: {}\r\nhost: {}\r\n\r\n",
            NOTE.len(),
            server.at
        );
        // A guard asks for no coding: it could not read the answer.
        let head = asked.head.split_inclusive("\r\n").filter(|line| !line.starts_with("accept-encoding:"));
        assert_eq!(head.collect::<String>(), expected);
        let Some(log) = front.log() else { continue };
        assert_eq!((log.body(request(1)), log.body(response(1))), (NOTE.as_bytes().to_vec(), b"hi".to_vec()));
        assert_eq!((log.wrote(request(1)), log.wrote(response(1))), (NOTE.len() as u64, 2));
        let Kept::Request(head) = &log.of(request(1))[0] else { panic!() };
        assert_eq!(head.version, HttpVersion::H2);
    }
}

#[test]
fn one_slow_stream_does_not_stall_the_others_and_a_reset_is_told_upstream() {
    let server = Server::start();
    Front::both(&server).for_each(|front| slow_beside_others(&server, &front));
}

fn slow_beside_others(server: &Server, front: &Front) {
    let event = format!("data: {NOTE}\n\n");
    run(async {
        let mut client = connect(front.at()).await;
        let slow = client.send_request(ask(front.at()));
        let slow = tokio::spawn(slow);
        let mut first = tokio::task::block_in_place(|| server.accept());
        assert_eq!(tokio::task::block_in_place(|| first.message(false)).text(), NOTE);
        first.send(STREAM);
        first.send(format!("{:x}\r\n{event}\r\n", event.len()));
        let mut slow = slow.await.unwrap().unwrap();
        // More than any window holds.
        let mut writer = first.stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            let block = format!("data: {NOTE}\n\n").repeat(1 << 10);
            while write!(writer, "{:x}\r\n{block}\r\n", block.len()).is_ok() {}
        });
        for _ in 0..5 {
            let quick = tokio::spawn(client.send_request(ask(front.at())));
            let mut other = tokio::task::block_in_place(|| server.accept());
            tokio::task::block_in_place(|| other.message(false));
            other.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
            assert_eq!(text(quick.await.unwrap().unwrap()).await, "hi");
            drop(other);
        }
        let frame = slow.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(frame.starts_with(event.as_bytes()));
        drop(slow);
        tokio::task::block_in_place(|| writing.join().unwrap());
    });
    if let Some(log) = front.log() {
        assert_eq!(log.end(response(1)).cause, Cause::ClientGone);
    }
}

#[test]
fn an_upstream_that_leaves_resets_the_stream_and_not_the_connection() {
    let server = Server::start();
    Front::both(&server).for_each(|front| left_by_its_upstream(&server, front.at()));
}

fn left_by_its_upstream(server: &Server, at: SocketAddr) {
    run(async {
        let mut client = connect(at).await;
        for head in ["", STREAM] {
            let answer = tokio::spawn(client.send_request(ask(at)));
            let mut upstream = tokio::task::block_in_place(|| server.accept());
            tokio::task::block_in_place(|| upstream.message(false));
            upstream.send(head);
            if head.is_empty() {
                drop(upstream);
                assert!(answer.await.unwrap().is_err());
            } else {
                let answer = answer.await.unwrap().unwrap();
                drop(upstream);
                assert!(answer.into_body().collect().await.is_err());
            }
        }
        let answer = tokio::spawn(client.send_request(ask(at)));
        let mut upstream = tokio::task::block_in_place(|| server.accept());
        tokio::task::block_in_place(|| upstream.message(false));
        upstream.send(OK);
        assert_eq!(text(answer.await.unwrap().unwrap()).await, "hi");
    });
}

/// A server that speaks HTTP/2, or HTTP/1.1, over TLS: it tells which, and what it was called.
pub fn over_tls(alpn: &'static [&'static [u8]]) -> (SocketAddr, rcgen::Certificate) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    // It lives as long as the test's process.
    std::thread::spawn(move || {
        run(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let service = hyper::service::service_fn(|request: Request<Incoming>| async move {
                    let host = request.headers().get("host").map(|h| h.to_str().unwrap().to_owned());
                    let told = format!("{:?} {} {host:?}", request.version(), request.uri());
                    Ok::<_, hyper::Error>(Response::new(Full::<Bytes>::from(told)))
                });
                tokio::spawn(async move {
                    let io = TokioIo::new(stream);
                    if is_h2 {
                        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                            .serve_connection(io, service)
                            .await;
                    } else {
                        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                    }
                });
            }
        });
    });
    (at, made.cert)
}

fn to_tls(at: SocketAddr, root: Option<&rcgen::Certificate>) -> Wishes {
    let roots = root.map(|root| root.der().clone()).into_iter().collect();
    Wishes { url: url_of(at), roots, ..Wishes::to(at) }
}

fn url_of(at: SocketAddr) -> String {
    format!("https://localhost:{}/mcp", at.port())
}

/// A guard that lets everything pass, in front of a server that speaks TLS.
fn guard_of_tls(at: SocketAddr, root: &rcgen::Certificate, flags: &[&str]) -> Front {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), root.pem()).unwrap();
    let flags = [&["--cacert", file.path().to_str().unwrap()], flags].concat();
    // It has read the file when it listens.
    Front::Guard(Process::to(&url_of(at), "guard", ALL, &flags))
}

#[test]
fn tls_is_spoken_with_the_upstream_and_its_certificate_is_checked() {
    let (at, root) = over_tls(BOTH);
    let ask = |at| format!("GET /mcp?x HTTP/1.1\r\nHost: {at}\r\n\r\n");
    for front in [Front::Audit(Proxy::start(to_tls(at, Some(&root)))), guard_of_tls(at, &root, &[])] {
        let mut client = front.client();
        client.send(ask(front.at()));
        // A client of HTTP/1 gets a server of HTTP/1.
        assert_eq!(client.message(false).text(), format!("HTTP/1.1 /mcp?x Some(\"localhost:{}\")", at.port()));
    }
    let distrusting = Proxy::start(to_tls(at, None));
    let mut client = End::connect(distrusting.at);
    client.send(ask(distrusting.at));
    let got = client.message(false);
    assert_eq!(got.status(), 502);
    assert!(
        got.text().starts_with("assay: no TLS with localhost:") && got.text().contains("certificate"),
        "{}",
        got.text()
    );
    assert_eq!(got.text().lines().count(), 1);
}

/// Requests, one after the other.
const ASKED: u64 = 30;

#[test]
fn a_client_of_http_2_gets_a_server_of_http_2_where_that_speaks_it() {
    for (alpn, told) in [(BOTH, "HTTP/2.0 https://localhost"), (ONE, "HTTP/1.1 /mcp")] {
        let (at, root) = over_tls(alpn);
        for front in [Front::Audit(Proxy::start(to_tls(at, Some(&root)))), guard_of_tls(at, &root, &[])] {
            run(async {
                let mut client = connect(front.at()).await;
                for _ in 0..ASKED {
                    let got = text(client.send_request(ask(front.at())).await.unwrap()).await;
                    assert!(got.starts_with(told), "{got}");
                }
            });
            let Some(log) = front.log() else { continue };
            until(|| log.wrote(response(ASKED)) > 0);
            // A request may come before the connection of the one before is free again.
            let reused =
                (2..=ASKED).filter(|n| matches!(&log.of(response(*n))[0], Kept::Response(head) if head.reused));
            assert!(reused.count() > 0);
        }
    }
}

#[test]
fn http_2_can_be_forced_for_clients_of_http_1() {
    let (at, root) = over_tls(&[b"h2"]);
    let audit = Proxy::start(Wishes { http: UpstreamHttp::Http2, ..to_tls(at, Some(&root)) });
    for front in [Front::Audit(audit), guard_of_tls(at, &root, &["--upstream-http", "2"])] {
        let mut client = front.client();
        let chunk = format!("{:x}\r\n{NOTE}\r\n0\r\n\r\n", NOTE.len());
        client.send(format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}", front.at()));
        let got = client.message(false);
        assert_eq!(got.text(), format!("HTTP/2.0 https://localhost:{}/mcp None", at.port()));
        assert!(got.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", got.head);
    }
}

#[test]
fn a_proxy_on_the_way_is_asked_for_a_tunnel() {
    let between = Server::start();
    let wishes = Wishes {
        url: "http://server.example:81/mcp".to_owned(),
        proxy: ProxyChoice::Url(format!("http://user:secret@{}", between.at)),
        ..Wishes::to(between.at)
    };
    let proxy = Proxy::start(wishes);
    let mut client = End::connect(proxy.at);
    client.send(format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.at));
    let mut tunnel = between.accept();
    let head = tunnel.head();
    assert!(
        head.starts_with("CONNECT server.example:81 HTTP/1.1\r\n") && head.contains("Basic dXNlcjpzZWNyZXQ="),
        "{head}"
    );
    tunnel.send("HTTP/1.1 200 Connected\r\n\r\n");
    assert_eq!(tunnel.head(), "GET /mcp HTTP/1.1\r\nHost: server.example:81\r\n\r\n");
    tunnel.send(OK);
    assert_eq!(client.message(false).text(), "hi");
    let mut client = End::connect(proxy.at);
    client.send(format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.at));
    let mut tunnel = between.accept();
    tunnel.head();
    tunnel.send("HTTP/1.1 403 Forbidden\r\n\r\n");
    let got = client.message(false);
    assert_eq!(got.status(), 502);
    assert!(!got.text().contains("secret"), "{}", got.text());
}
