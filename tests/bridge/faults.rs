//! Every request gets exactly one answer, whatever the server does. `ASSAY_BRIDGE_FAULTS` is how many conversations are had.

use crate::rig::{Client, Reply, Seen, Server, call, legacy, modern};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What is done to the answer of the call with this number.
fn do_wrong(kind: u64, seen: &Seen, reply: &mut Reply<'_>) {
    let good = seen.result(&json!({"kind": kind}));
    match kind % 20 {
        0 => reply.cut(),
        1 => {
            reply.raw(b"HTTP/1.1 200 OK\r\nContent-Le");
            reply.cut();
        }
        2 => {
            reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{");
            reply.cut();
        }
        3 => reply.send(202, &[], ""),
        4 => reply.json("not json"),
        5 => reply.json("{\"jsonrpc\":\"2.0\",\"id\":\"nobody\",\"result\":{}}"),
        6 => reply.json("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-1,\"message\":\"m\"}}"),
        7 => reply.send(500, &[], ""),
        8 => reply.send(429, &[("Content-Type", "application/json")], &good),
        9 => {
            reply.stream();
            reply.end();
        }
        10 => {
            reply.stream();
            reply.chunk(&format!("data: {good}\n\ndata: {good}\n\n"));
            reply.end();
        }
        11 => {
            reply.stream();
            reply.chunk(&format!("data: {good}\n\n"));
            reply.cut();
        }
        12 => {
            reply.stream();
            reply.chunk(&format!("data: {}", &good[..good.len() / 2]));
            reply.cut();
        }
        13 => {
            reply.stream();
            reply.chunk("id: 1\ndata: \n\n");
            reply.cut();
        }
        14 => reply.json(&format!("[{good},{good}]")),
        15 => {
            reply.raw(b"garbage\r\n\r\n");
            reply.cut();
        }
        16 => reply.send(200, &[("Content-Type", "application/json"), ("Content-Encoding", "gzip")], &good),
        17 => reply.send(301, &[("Location", "http://127.0.0.1:1/")], ""),
        18 => reply.raw(
            format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{good}", good.len()).as_bytes(),
        ),
        _ => reply.json(&good),
    }
}

#[test]
fn every_request_gets_exactly_one_answer() {
    let rounds: u64 = std::env::var("ASSAY_BRIDGE_FAULTS").map_or(4, |n| n.parse().unwrap());
    for round in 0..rounds {
        let server = Server::start(move |seen, reply| match seen.what().as_str() {
            "tools/call" => {
                let id = seen.id().as_u64().unwrap();
                // Numbers that look random and are the same every time.
                do_wrong((id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(round * 7) >> 7, seen, reply);
            }
            _ => legacy(seen, reply),
        });
        let mut client = Client::of(&server);
        client.begin();
        let mut asked = BTreeMap::new();
        for id in 0..60_u64 {
            let is_modern = id % 3 == 0;
            client.say(&if is_modern { modern(id, "tools/call", json!({"name": "a"})) } else { call(id, "a") });
            asked.insert(id, 0);
        }
        let mut open = asked.len();
        while open > 0 {
            let answer = client.hear();
            let of: Vec<Value> = answer.as_array().cloned().unwrap_or_else(|| vec![answer.clone()]);
            let id = of[0]["id"].as_u64().unwrap_or_else(|| panic!("{answer}"));
            let count = asked.get_mut(&id).unwrap();
            open -= usize::from(*count == 0);
            *count += 1;
        }
        let (rest, end) = client.end();
        assert!(rest.is_empty() && end.code == 0, "{rest:?} {end:?}");
        assert!(asked.values().all(|count| *count == 1), "round {round}: {asked:?}");
    }
}
