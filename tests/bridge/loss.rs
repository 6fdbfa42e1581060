//! A server that has forgotten the session.

use crate::rig::{Client, Reply, Seen, Server, call, config, greeting, legacy};
use assay::bridge::SessionLoss;
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// A server that forgets its session at each call of `forget`.
fn forgetful(second: Value) -> impl Fn(&Seen, &mut Reply<'_>) + Send + Sync {
    let session = AtomicUsize::new(0);
    move |seen, reply| {
        let valid = format!("s{}", session.load(Ordering::Relaxed));
        let knows = seen.header("Mcp-Session-Id") == Some(valid.as_str());
        match seen.what().as_str() {
            "initialize" => {
                let now = session.fetch_add(1, Ordering::Relaxed) + 1;
                let told = if now == 1 { greeting() } else { second.clone() };
                let headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", &*format!("s{now}"))];
                reply.send(200, &headers, &seen.result(&told));
            }
            "tools/call" if seen.json()["params"]["name"] == "wait" => {
                reply.stream();
                reply.chunk(": waiting\n\n");
            }
            "tools/call" if knows && seen.json()["params"]["name"] == "forget" => {
                session.fetch_add(100, Ordering::Relaxed);
                reply.json(&seen.result(&json!({})));
            }
            "GET" => reply.send(405, &[], ""),
            _ if !knows => reply.send(404, &[], "no such session"),
            _ => legacy(seen, reply),
        }
    }
}

fn start(server: &Server, mode: SessionLoss, between: Duration) -> Client {
    let mut config = config(&server.url());
    config.session_loss = mode;
    config.timing.between_losses = between;
    let mut client = Client::start(config);
    client.begin();
    client.say(&call("w", "wait"));
    server.until(|seen| seen.iter().any(|s| s.what() == "tools/call"));
    client.ask(&call(1, "forget"));
    client
}

fn is_lost(answer: &Value) -> bool {
    answer["error"]["code"] == -32000 && answer["error"]["message"].as_str().unwrap().contains("session lost")
}

#[test]
fn a_session_that_was_lost_begins_anew_without_the_client() {
    let server = Server::start(forgetful(greeting()));
    let mut client = start(&server, SessionLoss::Reinitialize, Duration::from_secs(60));
    client.say(&call(2, "a"));
    let lost = client.hear();
    assert!(lost["id"] == "w" && is_lost(&lost), "{lost}");
    let answer = client.hear();
    assert!(answer["id"] == 2 && answer["result"].is_object(), "{answer}");
    assert!(client.ask(&call(3, "a"))["result"].is_object());
    client.until_said("a new one has begun");
    let (rest, end) = client.end();
    assert!(rest.is_empty() && end.code == 0, "{rest:?} {end:?}");
    let seen = server.seen();
    let after: Vec<String> = seen.iter().map(Seen::what).filter(|w| w != "GET").skip(4).collect();
    assert_eq!(after, ["tools/call", "initialize", "notifications/initialized", "tools/call", "tools/call", "DELETE"]);
    assert_eq!(seen.iter().filter(|s| s.id() == "w").count(), 1, "what the server may have seen is not sent again");
    assert_eq!(seen.last().unwrap().header("Mcp-Session-Id"), Some("s102"));
}

#[test]
fn a_server_that_is_another_one_now_or_forgets_again_ends_the_bridge() {
    let mut other = greeting();
    other["serverInfo"]["version"] = json!("2");
    let server = Server::start(forgetful(other));
    let mut client = start(&server, SessionLoss::Reinitialize, Duration::from_secs(60));
    client.say(&call(2, "a"));
    let (rest, end) = client.rest();
    assert_eq!((rest.len(), end.code), (2, 1), "{rest:?} {end:?}");
    assert!(rest.iter().all(is_lost) && end.why.contains("something else"), "{end:?}");

    let server = Server::start(forgetful(greeting()));
    let mut client = start(&server, SessionLoss::Reinitialize, Duration::from_secs(60));
    client.say(&call(2, "forget"));
    assert!(is_lost(&client.hear()));
    assert!(client.hear()["result"].is_object());
    client.say(&call(3, "a"));
    let (rest, end) = client.rest();
    assert_eq!((rest.len(), end.code), (1, 1), "{rest:?} {end:?}");
    assert!(is_lost(&rest[0]) && end.why.contains("shortly before"), "{end:?}");
}

#[test]
fn losses_that_are_far_apart_do_not_end_the_bridge() {
    let server = Server::start(forgetful(greeting()));
    let mut client = start(&server, SessionLoss::Reinitialize, Duration::ZERO);
    client.say(&call(2, "forget"));
    assert!(is_lost(&client.hear()));
    assert_eq!(client.hear()["id"], 2);
    assert!(client.ask(&call(3, "a"))["result"].is_object());
    assert_eq!(client.end().1.code, 0);
}

#[test]
fn a_session_that_was_lost_is_an_error_or_the_end_where_that_is_asked_for() {
    let server = Server::start(forgetful(greeting()));
    let mut client = start(&server, SessionLoss::Error, Duration::ZERO);
    client.say(&call(2, "a"));
    let answers = [client.hear(), client.hear()];
    assert!(answers.iter().all(is_lost), "{answers:?}");
    assert!(is_lost(&client.ask(&call(3, "a"))));
    // The client may begin anew by itself.
    client.begin();
    assert!(client.ask(&call(4, "a"))["result"].is_object());
    assert_eq!(client.end().1.code, 0);
    assert_eq!(server.count("initialize"), 2);

    let server = Server::start(forgetful(greeting()));
    let mut client = start(&server, SessionLoss::Exit, Duration::ZERO);
    client.say(&call(2, "a"));
    let (rest, end) = client.rest();
    assert_eq!((rest.len(), end.code), (2, 1), "{rest:?}");
    assert!(rest.iter().all(is_lost));
}
