//! Ways to the server: redirects, cookies, headers, certificates, proxies.

use crate::rig::{Client, Server, call, config, initialize, legacy};
use assay::{
    bridge::{Unreachable, check},
    relay::http::connect::{ProxyChoice, certificates},
};
use http::{HeaderName, HeaderValue};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

#[test]
fn redirects_within_the_origin_are_followed_and_others_are_not() {
    let other = Server::start(legacy);
    let elsewhere = other.url();
    let server = Server::start(move |seen, reply| match (&*seen.target, seen.json()["params"]["name"].as_str()) {
        ("/mcp", None) => reply.send(307, &[("Location", "/mcp/")], ""),
        ("/mcp", Some("again")) => reply.send(308, &[("Location", "/mcp")], ""),
        ("/mcp", Some("moved")) => reply.send(302, &[("Location", "/mcp/")], ""),
        ("/mcp", Some(_)) => reply.send(307, &[("Location", &elsewhere)], ""),
        _ => legacy(seen, reply),
    });
    let mut client = Client::of(&server);
    client.begin();
    for (name, says) in [("away", "127.0.0.1"), ("again", "more than 5"), ("moved", "302")] {
        let answer = client.ask(&call(1, name));
        assert!(answer["error"]["message"].as_str().unwrap().contains(says), "{answer}");
    }
    client.end();
    assert!(other.seen().is_empty());
    let begun: Vec<_> = server.seen().into_iter().filter(|s| s.what() == "initialize").collect();
    assert_eq!(begun.len(), 2);
    assert_eq!(begun[0].body, begun[1].body);
}

#[test]
fn cookies_and_given_headers_go_to_the_server() {
    let server = Server::start(|seen, reply| match seen.what().as_str() {
        "tools/call" => {
            let headers =
                [("Content-Type", "application/json"), ("Set-Cookie", "node=7; Path=/"), ("Set-Cookie", "b=2")];
            reply.send(200, &headers, &seen.result(&serde_json::json!({})));
        }
        _ => legacy(seen, reply),
    });
    let mut config = config(&server.url().replace("http://", "http://user:p%40ss@"));
    config.headers = vec![
        (HeaderName::from_static("x-one"), HeaderValue::from_static("1")),
        (HeaderName::from_static("user-agent"), HeaderValue::from_static("mine")),
    ];
    let mut client = Client::start(config);
    client.begin();
    client.ask(&call(1, "a"));
    client.ask(&call(2, "a"));
    client.end();
    let seen = server.seen();
    for one in &seen {
        let told = ["X-One", "User-Agent", "Authorization"].map(|name| one.header(name));
        assert_eq!(told, [Some("1"), Some("mine"), Some("Basic dXNlcjpwQHNz")]);
    }
    assert_eq!(seen[0].header("Cookie"), None);
    assert_eq!(seen.iter().find(|s| s.id() == 2).unwrap().header("Cookie"), Some("node=7; b=2"));
}

#[test]
fn an_upstream_with_an_authority_of_its_own_is_reached_with_its_certificate_only() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = Arc::new(tls.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap());
    let server = Server::wrapped(legacy, move |stream| {
        let connection = rustls::ServerConnection::new(tls.clone()).unwrap();
        Box::new(rustls::StreamOwned::new(connection, stream))
    });
    let mut config = config(&format!("https://localhost:{}/mcp", server.port));
    assert!(matches!(check(&config.destination), Err(Unreachable::Connect(_))));
    let mut client = Client::start(config.clone());
    let answer = client.ask(&initialize());
    assert!(answer["error"]["message"].as_str().unwrap().contains("TLS"), "{answer}");
    client.end();
    config.destination.roots = certificates(made.cert.pem().as_bytes()).unwrap();
    check(&config.destination).unwrap();
    let mut client = Client::start(config);
    client.begin();
    assert!(client.ask(&call(1, "a"))["result"].is_object());
    assert_eq!(client.end().1.code, 0);
}

#[test]
fn a_proxy_is_used_where_one_is_given() {
    let tunnels = Arc::new(AtomicUsize::new(0));
    let counted = tunnels.clone();
    let server = Server::start(move |seen, reply| match &*seen.method {
        "CONNECT" => {
            assert_eq!(seen.target, "server.example:80");
            counted.fetch_add(1, Ordering::Relaxed);
            reply.raw(b"HTTP/1.1 200 OK\r\n\r\n");
        }
        _ => legacy(seen, reply),
    });
    let mut config = config("http://server.example/mcp");
    config.destination.proxy = ProxyChoice::Url(format!("http://127.0.0.1:{}", server.port));
    let mut client = Client::start(config);
    client.begin();
    assert!(client.ask(&call(1, "a"))["result"].is_object());
    client.end();
    assert!(tunnels.load(Ordering::Relaxed) > 0);
    assert_eq!(server.seen().last().unwrap().header("Host"), Some("server.example"));
}

#[test]
fn a_server_that_is_not_there_is_an_error_for_each_request() {
    let mut client = Client::start(config("http://127.0.0.1:1/mcp"));
    for id in 1..4 {
        let answer = client.ask(&call(id, "a"));
        assert!(answer["error"]["message"].as_str().unwrap().contains("cannot connect"), "{answer}");
    }
    assert_eq!(client.end().1.code, 0);
}
