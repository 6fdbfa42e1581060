//! Servers of the older transport: one event stream for all answers.

use crate::rig::{Client, Reply, Seen, Server, call, config, greeting, initialize};
use assay::bridge::Transport;
use serde_json::json;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

/// A server whose answers come on the stream; a call of `cut` ends it.
pub fn older() -> impl Fn(&Seen, &mut Reply<'_>) + Send + Sync {
    let stream: Mutex<Option<Sender<String>>> = Mutex::new(None);
    let opened = AtomicUsize::new(0);
    move |seen, reply| match (&*seen.method, seen.target.split('?').next().unwrap()) {
        ("GET", "/mcp") => {
            let (sender, events): (_, Receiver<String>) = mpsc::channel();
            let number = opened.fetch_add(1, Ordering::Relaxed) + 1;
            *stream.lock().unwrap() = Some(sender);
            reply.stream();
            reply.chunk(&format!("event: endpoint\r\ndata: /messages?session={number}\r\n\r\n"));
            while let Ok(event) = events.recv() {
                if event.is_empty() {
                    break;
                }
                reply.chunk(&format!("event: message\r\ndata: {event}\r\n\r\n"));
            }
            reply.cut();
        }
        ("POST", "/messages") => {
            reply.send(202, &[], "Accepted");
            let event = match seen.what().as_str() {
                "initialize" => seen.result(&greeting()),
                "tools/call" if seen.json()["params"]["name"] == "cut" => String::new(),
                _ if seen.id().is_null() => return,
                _ => seen.result(&json!({})),
            };
            let _ = stream.lock().unwrap().as_ref().unwrap().send(event);
        }
        _ => reply.send(405, &[], "Method Not Allowed"),
    }
}

#[test]
fn an_older_server_is_found_and_spoken_with() {
    for transport in [Transport::Auto, Transport::Sse] {
        let server = Server::start(older());
        let mut config = config(&server.url());
        config.transport = transport;
        let mut client = Client::start(config);
        client.begin();
        for id in 1..4 {
            assert!(client.ask(&call(id, "a"))["result"].is_object());
        }
        let (rest, end) = client.end();
        assert!(rest.is_empty() && end.code == 0, "{rest:?} {end:?}");
        let seen = server.seen();
        assert_eq!(seen[0].method, if transport == Transport::Auto { "POST" } else { "GET" });
        assert!(seen.iter().filter(|s| s.method == "POST").skip(1).all(|s| s.target == "/messages?session=1"));
        assert_eq!(server.count("GET"), 1);
    }
}

#[test]
fn a_stream_that_was_cut_is_a_new_session() {
    let server = Server::start(older());
    let mut client = Client::of(&server);
    client.begin();
    let answer = client.ask(&call(1, "cut"));
    assert!(answer["error"]["message"].as_str().unwrap().contains("session lost"), "{answer}");
    client.until_said("a new one has begun");
    assert!(client.ask(&call(2, "a"))["result"].is_object());
    client.end();
    let seen = server.seen();
    let again: Vec<_> = seen.iter().filter(|s| s.target == "/messages?session=2").map(Seen::what).collect();
    assert_eq!(again, ["initialize", "notifications/initialized", "tools/call"]);
}

#[test]
fn what_is_no_server_of_either_kind_ends_the_bridge() {
    for (status, transport) in
        [(404, Transport::Auto), (405, Transport::Auto), (400, Transport::Auto), (404, Transport::Sse)]
    {
        let server = Server::start(move |_, reply| reply.send(status, &[], "<html>"));
        let mut config = config(&server.url());
        config.transport = transport;
        let mut client = Client::start(config);
        client.ask(&initialize());
        let (rest, end) = client.rest();
        assert!(rest.is_empty() && end.code == 3, "{rest:?} {end:?}");
    }
    // Where it is said that it is none of the older kind, nothing is tried.
    let server = Server::start(|_, reply| reply.send(404, &[], ""));
    let mut config = config(&server.url());
    config.transport = Transport::StreamableHttp;
    let mut client = Client::start(config);
    client.ask(&initialize());
    client.end();
    assert_eq!(server.count("GET"), 0);
}

#[test]
fn an_endpoint_elsewhere_is_refused() {
    let other = Server::start(|_, reply| reply.send(202, &[], ""));
    let place = format!("http://127.0.0.1:{}/messages", other.port);
    let server = Server::start(move |seen, reply| match &*seen.method {
        "GET" => {
            reply.stream();
            reply.chunk(&format!("event: endpoint\ndata: {place}\n\n"));
        }
        _ => reply.send(405, &[], ""),
    });
    let mut client = Client::of(&server);
    let answer = client.ask(&initialize());
    assert!(answer["error"]["message"].as_str().unwrap().contains("elsewhere"), "{answer}");
    assert_eq!(client.rest().1.code, 3);
    assert!(other.seen().is_empty());
}
