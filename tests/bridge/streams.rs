//! Event streams: messages at once, streams that are cut, the stream of the server's own messages.

use crate::rig::{Client, Server, call, legacy, modern};
use serde_json::json;
use std::sync::{
    Arc, Condvar, Mutex,
    atomic::{AtomicUsize, Ordering},
};

fn progress(n: u64) -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": n}}).to_string()
}

#[test]
fn messages_of_a_stream_pass_at_once() {
    let heard = Arc::new((Mutex::new(0), Condvar::new()));
    let told = heard.clone();
    let server = Server::start(move |seen, reply| match seen.what().as_str() {
        "tools/call" => {
            reply.stream();
            for n in 1..=3 {
                reply.chunk(&format!(": comment\r\nevent: message\r\nid: {n}\r\ndata: {}\r\n\r\n", progress(n)));
                // The next comes when the client has this one.
                drop(told.1.wait_while(told.0.lock().unwrap(), |heard| *heard < n).unwrap());
            }
            reply.chunk("event: ping\ndata: {}\n\ndata:\n\n");
            reply.chunk(&format!("data: {}\n\n", seen.result(&json!({})).replace(',', ",\ndata: ")));
            reply.end();
        }
        _ => legacy(seen, reply),
    });
    let mut client = Client::of(&server);
    client.begin();
    client.say(&call(1, "a"));
    for n in 1..=3 {
        assert_eq!(client.hear()["params"]["progress"], n);
        *heard.0.lock().unwrap() = n;
        heard.1.notify_all();
    }
    assert!(client.hear()["result"].is_object());
    assert!(client.end().0.is_empty());
}

#[test]
fn an_answer_that_was_cut_is_continued_where_it_was_cut() {
    // `retry: 1` is a server that is polled; otherwise the connection is cut within the stream.
    for (first, is_cut) in [("retry: 1\nid: e1\ndata: \n\n", false), ("id: e1\ndata: \n\n", true)] {
        let tries = Arc::new(AtomicUsize::new(0));
        let server = Server::start(move |seen, reply| match (seen.what().as_str(), seen.header("Last-Event-ID")) {
            ("tools/call", _) => {
                reply.stream();
                reply.chunk(first);
                reply.chunk(&format!("id: e2\ndata: {}\n\n", progress(2)));
                if is_cut { reply.cut() } else { reply.end() }
            }
            ("GET", Some(_)) => {
                reply.stream();
                match tries.fetch_add(1, Ordering::Relaxed) {
                    0 => reply.chunk(&format!("id: e2\ndata: {}\n\nid: e3\ndata: {}\n\n", progress(2), progress(3))),
                    1 => {}
                    _ => reply.chunk("id: e4\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"),
                }
                reply.end();
            }
            _ => legacy(seen, reply),
        });
        let mut client = Client::of(&server);
        client.begin();
        client.say(&call(1, "a"));
        assert_eq!(client.hear()["params"]["progress"], 2);
        assert_eq!(client.hear()["params"]["progress"], 3, "what was sent again passes once");
        assert!(client.hear()["result"].is_object());
        assert!(client.end().0.is_empty());
        let seen = server.seen();
        assert_eq!(seen.iter().filter(|s| s.what() == "tools/call").count(), 1, "a request is not sent again");
        let ids: Vec<_> = seen.iter().filter_map(|s| s.header("Last-Event-ID")).collect();
        assert_eq!(ids, ["e2", "e3", "e3"]);
    }
}

#[test]
fn an_answer_that_cannot_be_continued_is_an_error() {
    let server = Server::start(|seen, reply| match seen.what().as_str() {
        "tools/call" => {
            reply.stream();
            let has_id = seen.json()["params"]["name"] == "id";
            reply.chunk(if has_id { "id: e\ndata: \n\n" } else { ": x\n\n" });
            reply.cut();
        }
        // The next message, and the stream of the server's own.
        _ => legacy(seen, reply),
    });
    let mut client = Client::of(&server);
    client.begin();
    for message in [call(1, "no id"), call(2, "id"), modern(3, "tools/call", json!({"name": "id"}))] {
        let answer = client.ask(&message);
        assert!(answer["error"]["message"].as_str().unwrap().contains("stream ended"), "{answer}");
    }
    assert!(client.end().0.is_empty());
    assert_eq!(server.count("tools/call"), 3);
}

#[test]
fn a_server_without_a_stream_of_its_own_is_asked_once() {
    for (status, is_said) in [(405, false), (400, true), (401, true), (404, true), (409, true)] {
        let server = Server::start(move |seen, reply| match seen.what().as_str() {
            "GET" => reply.send(status, &[], ""),
            _ => legacy(seen, reply),
        });
        let mut client = Client::of(&server);
        client.begin();
        server.until(|seen| seen.iter().any(|s| s.what() == "GET"));
        for id in 1..5 {
            assert!(client.ask(&call(id, "a"))["result"].is_object(), "no call suffers");
        }
        if is_said {
            client.until_said(&format!("HTTP {status}"));
        }
        let notices = client.notices.clone();
        client.end();
        assert_eq!(server.count("GET"), 1);
        assert_eq!(notices.lock().unwrap().len(), usize::from(is_said), "{notices:?}");
    }
}

#[test]
fn the_stream_of_the_servers_own_messages_is_continued() {
    let opened = AtomicUsize::new(0);
    let server = Server::start(move |seen, reply| match seen.what().as_str() {
        "GET" => match opened.fetch_add(1, Ordering::Relaxed) {
            0 => {
                reply.stream();
                reply.chunk("retry: 3\nid: a\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"s1\",\"method\":\"ping\"}\n\n");
                reply.cut();
            }
            1 => reply.send(503, &[], ""),
            2 => reply.cut(),
            3 => {
                reply.stream();
                reply.chunk("id: b\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n");
            }
            _ => reply.send(405, &[], ""),
        },
        _ => legacy(seen, reply),
    });
    let mut client = Client::of(&server);
    client.begin();
    assert_eq!(client.hear()["id"], "s1");
    client.say(&json!({"jsonrpc": "2.0", "id": "s1", "result": {}}));
    assert_eq!(client.hear()["method"], "notifications/x");
    client.end();
    let seen = server.seen();
    let ids: Vec<_> = seen.iter().filter(|s| s.method == "GET").map(|s| s.header("Last-Event-ID")).collect();
    assert_eq!(ids, [None, Some("a"), Some("a"), Some("a")]);
    assert!(seen.iter().any(|s| s.id() == "s1"), "the answer of the client reaches the server");
}
