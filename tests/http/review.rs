//! The hook of a guard: what is held, what passes, what is answered in the upstream's place.

use crate::rig::{End, Kept, Proxy, Server, Wishes, request, response, until};
use assay::relay::{
    http::review::{AnswerReview, AnswerVerdict, Judging, OwnReply, Passed, RequestFacts, Reviewer, Verdict},
    log::{Cause, ResponseHead},
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Passes bodies that say so; of answers, lines that do not say no.
#[derive(Default)]
struct Words {
    gate: Arc<Gate>,
}

/// What the verdict on an answer waits for whose head names it.
#[derive(Default)]
struct Gate {
    waiting: AtomicU64,
    open: AtomicBool,
}

impl Gate {
    fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        until(|| self.open.load(Ordering::SeqCst));
    }
}

struct Lines {
    gate: Option<Arc<Gate>>,
    held: Vec<u8>,
    read: u64,
    withheld: Vec<Bytes>,
}

impl Reviewer for Words {
    fn max_body(&self) -> usize {
        1000
    }

    fn review_elsewhere(&self, request: &RequestFacts) -> Verdict {
        if request.target.starts_with("/open") {
            Verdict::Pass
        } else {
            Verdict::Reply(OwnReply::line(StatusCode::FORBIDDEN, "no"))
        }
    }

    fn review_request<'a>(&'a self, request: &'a RequestFacts, body: Bytes) -> Judging<'a> {
        assert_eq!(request.headers["x-a"], "y");
        Box::pin(async move {
            tokio::task::yield_now().await;
            if body.starts_with(b"pass") {
                Verdict::Pass
            } else {
                Verdict::Reply(OwnReply::line(StatusCode::OK, "denied"))
            }
        })
    }

    fn review_answer(&self, _request: &RequestFacts, _head: &ResponseHead, headers: &HeaderMap) -> AnswerVerdict {
        if headers.contains_key("content-encoding") {
            return AnswerVerdict::Reply(OwnReply::line(StatusCode::BAD_GATEWAY, "coded"));
        }
        let gate = headers.contains_key("x-waits").then(|| self.gate.clone());
        AnswerVerdict::Through(Box::new(Lines { gate, held: Vec::new(), read: 0, withheld: Vec::new() }))
    }
}

impl AnswerReview for Lines {
    fn may_wait(&self) -> bool {
        self.gate.is_some()
    }

    fn push(&mut self, piece: Bytes, passes: &mut Vec<Passed>) {
        self.gate.iter().for_each(|gate| gate.wait());
        self.held.extend_from_slice(&piece);
        while let Some(at) = self.held.iter().position(|b| *b == b'\n') {
            let rest = self.held.split_off(at + 1);
            let line = Bytes::from(std::mem::replace(&mut self.held, rest));
            self.read += line.len() as u64;
            if line.starts_with(b"no") {
                self.withheld.push(Bytes::from_static(b"{\"error\":1}"));
                passes.push(Passed { bytes: Bytes::new(), upto: self.read });
            } else {
                passes.push(Passed { bytes: line, upto: self.read });
            }
        }
    }

    fn finish(&mut self, passes: &mut Vec<Passed>) {
        self.gate.iter().for_each(|gate| gate.wait());
        self.read += self.held.len() as u64;
        passes.push(Passed { bytes: Bytes::from(std::mem::take(&mut self.held)), upto: self.read });
    }

    fn replies(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.withheld)
    }
}

fn start(server: &Server) -> Proxy {
    with(server, Words::default())
}

fn with(server: &Server, words: Words) -> Proxy {
    Proxy::start(Wishes { config: Box::new(|c| c.reviewer = Some(Arc::new(words))), ..Wishes::to(server.at) })
}

fn head(proxy: &Proxy, more: &str) -> String {
    format!("POST /mcp HTTP/1.1\r\nHost: {}\r\nX-A: y\r\nMcp-Session-Id: s\r\n{more}\r\n", proxy.at)
}

#[test]
fn nothing_goes_upstream_before_the_verdict() {
    let server = Server::start();
    let proxy = start(&server);
    let mut client = End::connect(proxy.at);
    client.send(head(&proxy, "Accept-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"));
    client.send("3\r\npas\r\n");
    until(|| proxy.log.body(request(1)) == b"pas");
    assert!(server.is_left_alone());
    client.send("3\r\ns!!\r\n0\r\n\r\n");
    let mut upstream = server.accept();
    let got = upstream.message(false);
    assert_eq!(got.text(), "pass!!");
    assert_eq!((got.header("accept-encoding"), got.header("transfer-encoding")), (Some("identity"), Some("chunked")));
    until(|| proxy.log.wrote(request(1)) == 6);
    upstream.send("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nyes\nno!\nend.");
    // The length is another one.
    let answer = client.message(false);
    assert_eq!((answer.text().as_str(), answer.header("content-length")), ("yes\nend.", None));
    assert_eq!(proxy.log.body(response(1)), b"yes\nno!\nend.");
    until(|| proxy.log.wrote(response(1)) == 12);
    // What was withheld is answered, for the same session.
    let mut back = server.accept();
    let told = back.message(false);
    assert_eq!((told.text().as_str(), told.header("mcp-session-id")), ("{\"error\":1}", Some("s")));
    assert!(told.head.starts_with("POST /mcp HTTP/1.1\r\n") && told.header("x-a") == Some("y"), "{}", told.head);
    back.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(proxy.log.end(response(2)).cause, Cause::Complete);
    assert!(proxy.log.of(request(2)).iter().any(|k| matches!(k, Kept::Data { own: true, .. })));
}

#[test]
fn what_is_denied_too_long_or_elsewhere_is_answered_here() {
    let server = Server::start();
    let proxy = start(&server);
    let mut client = End::connect(proxy.at);
    for (body, status) in [("denied", 200), (&"x".repeat(1001), 413)] {
        client.send(head(&proxy, &format!("Origin: http://localhost:1\r\nContent-Length: {}\r\n", body.len())));
        if status == 200 {
            client.send(body);
        }
        let got = client.message(false);
        assert_eq!(got.status(), status);
        assert_eq!(got.header("access-control-allow-origin"), Some("http://localhost:1"));
    }
    let mut client = End::connect(proxy.at);
    client.send(head(&proxy, "Transfer-Encoding: chunked\r\n"));
    client.send(format!("3e8\r\n{}\r\n1\r\nx\r\n0\r\n\r\n", "x".repeat(1000)));
    assert_eq!(client.message(false).status(), 413);
    let mut client = End::connect(proxy.at);
    client.send(head(&proxy, "Content-Length: 2\r\n\r\nhi").replace("/mcp", "/token"));
    assert_eq!(client.message(false).status(), 403);
    assert!(server.is_left_alone());
    let mut client = End::connect(proxy.at);
    client.send(head(&proxy, "Content-Length: 2\r\n").replace("/mcp", "/open"));
    client.send("hi");
    assert_eq!(server.accept().message(false).text(), "hi");
}

#[test]
fn an_answer_that_cannot_be_judged_is_replaced() {
    let server = Server::start();
    let proxy = start(&server);
    let mut client = End::connect(proxy.at);
    client.send(head(&proxy, "Content-Length: 4\r\n"));
    client.send("pass");
    let mut upstream = server.accept();
    upstream.message(false);
    upstream.send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz");
    assert_eq!(client.message(false).status(), 502);
    assert!(upstream.rest().is_empty());
}

#[test]
fn a_verdict_that_waits_holds_up_no_other_exchange() {
    let server = Server::start();
    let gate = Arc::new(Gate::default());
    let proxy = with(&server, Words { gate: gate.clone() });
    let ask = head(&proxy, "Content-Length: 4\r\n") + "pass";
    let mut slow = End::connect(proxy.at);
    slow.send(&ask);
    let mut upstream = server.accept();
    upstream.message(false);
    upstream.send("HTTP/1.1 200 OK\r\nX-Waits: y\r\nContent-Length: 7\r\n\r\nyes\nend");
    until(|| gate.waiting.load(Ordering::SeqCst) == 1);
    // The same thread moves these bytes.
    let mut client = End::connect(proxy.at);
    client.send(&ask);
    let mut other = server.accept();
    other.message(false);
    other.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(client.message(false).text(), "hi");
    // One that leaves meanwhile leaves nothing behind.
    let mut gone = End::connect(proxy.at);
    gone.send(&ask);
    let mut third = server.accept();
    third.message(false);
    third.send("HTTP/1.1 200 OK\r\nX-Waits: y\r\nContent-Length: 7\r\n\r\nyes\nend");
    until(|| gate.waiting.load(Ordering::SeqCst) == 2);
    drop(gone);
    gate.open.store(true, Ordering::SeqCst);
    assert_eq!(slow.message(false).text(), "yes\nend");
    assert_eq!(proxy.log.end(response(1)).cause, Cause::Complete);
    assert_eq!(proxy.log.end(response(3)).cause, Cause::ClientGone);
}
