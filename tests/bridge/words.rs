//! Messages, their order, their headers, and what becomes of answers.

use crate::rig::{Client, Server, call, config, initialize, initialized, legacy, modern};
use serde_json::{Value, json};

#[test]
fn messages_leave_in_the_order_of_the_client_with_the_headers_of_its_session() {
    let server = Server::start(legacy);
    let mut client = Client::of(&server);
    let all = [initialize(), initialized(), call(1, "a"), call(2, "b"), call("3", "c")];
    client.say_raw(&all.iter().map(|m| format!("{m}\n")).collect::<String>());
    client.hang_up();
    let (answers, end) = client.end();
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert_eq!(end.code, 0);
    let seen = server.seen();
    let order: Vec<String> = seen.iter().map(super::rig::Seen::what).filter(|w| w != "GET").collect();
    assert_eq!(order[..2], ["initialize", "notifications/initialized"]);
    assert_eq!(order.last().unwrap(), "DELETE");
    assert_eq!(order.len(), 6);
    for one in &seen {
        let is_first = one.what() == "initialize";
        assert_eq!(one.header("Mcp-Session-Id"), (!is_first).then_some("session-1"), "{one:?}");
        assert_eq!(one.header("MCP-Protocol-Version"), (!is_first).then_some("2025-11-25"), "{one:?}");
        assert!(one.header("Accept-Encoding").is_none());
        assert!(one.header("User-Agent").unwrap().starts_with("assay/"));
        if one.method == "POST" {
            assert_eq!(one.header("Content-Type"), Some("application/json"));
            assert_eq!(one.header("Accept"), Some("application/json, text/event-stream"));
        }
    }
}

#[test]
fn bytes_of_the_client_are_sent_as_they_are() {
    let server = Server::start(legacy);
    let mut client = Client::of(&server);
    client.begin();
    let odd = r#"{"jsonrpc":"2.0", "id":1e0,"method":"tools/call","params":{"a":1.0,"a":2,"é":"\u00e9"}}"#;
    client.say_raw(&format!("{odd}\r\n\n  \n"));
    client.line();
    assert_eq!(server.last("tools/call").body, odd.as_bytes());
    client.end();
}

#[test]
fn messages_without_a_session_say_in_headers_what_they_are() {
    let server = Server::start(|seen, reply| match seen.what().as_str() {
        "tools/list" => {
            let schema = json!({"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
            reply.json(&seen.result(&json!({"tools": [{"name": "é", "inputSchema": schema}]})));
        }
        _ => {
            reply.send(200, &[("Content-Type", "application/json"), ("Mcp-Session-Id", "x")], &seen.result(&json!({})))
        }
    });
    let mut client = Client::of(&server);
    client.ask(&modern(1, "tools/list", json!({})));
    client.ask(&modern(2, "tools/call", json!({"name": "é", "arguments": {"region": "eu west"}})));
    let (_, end) = client.end();
    assert_eq!(end.code, 0);
    let seen = server.seen();
    assert_eq!(seen.len(), 2, "no stream, no end of a session");
    assert_eq!(seen[0].header("Mcp-Method"), Some("tools/list"));
    let told = ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-Region", "Mcp-Session-Id"];
    let told = told.map(|name| seen[1].header(name));
    assert_eq!(told, [Some("2026-07-28"), Some("tools/call"), Some("=?base64?w6k=?="), Some("eu west"), None]);
}

#[test]
fn both_eras_on_one_pipe() {
    let server = Server::start(|seen, reply| match seen.what().as_str() {
        "server/discover" => {
            let error = json!({"code": -32601, "message": "no such method"});
            let body = json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string();
            reply.send(404, &[("Content-Type", "application/json")], &body);
        }
        _ => legacy(seen, reply),
    });
    let mut client = Client::of(&server);
    let answer = client.ask(&modern(1, "server/discover", json!({})));
    assert_eq!(answer["error"]["code"], -32601);
    client.begin();
    assert!(client.ask(&call(2, "a"))["result"].is_object());
    client.ask(&modern(3, "tools/list", json!({})));
    assert_eq!(server.last("tools/list").header("Mcp-Session-Id"), None);
    assert_eq!(client.end().1.code, 0);
}

#[test]
fn an_answer_is_one_line_and_keeps_its_bytes() {
    let server = Server::start(|seen, reply| match seen.what().as_str() {
        "tools/call" => {
            reply.json("{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 1,\n  \"result\": {\"a\": 1.0, \"b\": \"x\\ny\"}\n}\n")
        }
        _ => legacy(seen, reply),
    });
    let mut client = Client::of(&server);
    client.begin();
    client.say(&call(1, "a"));
    assert_eq!(client.line(), "{   \"jsonrpc\": \"2.0\",    \"id\": 1,   \"result\": {\"a\": 1.0, \"b\": \"x\\ny\"} }");
    client.end();
}

#[test]
fn what_needs_no_answer_may_get_any_success_and_a_request_may_not() {
    for (status, body) in [(202, ""), (200, ""), (204, ""), (200, "ok"), (200, "{}")] {
        let server = Server::start(move |seen, reply| match seen.what().as_str() {
            "notifications/initialized" | "tools/call" | "x" => reply.send(status, &[], body),
            _ => legacy(seen, reply),
        });
        let mut client = Client::of(&server);
        client.begin();
        client.say(&json!({"jsonrpc": "2.0", "method": "x"}));
        client.say(&json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        let answer = client.ask(&call(7, "a"));
        assert_eq!(answer["error"]["code"], -32000, "{status} {body:?}: {answer}");
        let notices = client.notices.clone();
        assert!(client.end().0.is_empty());
        assert!(notices.lock().unwrap().iter().all(|n| !n.contains("did not take")), "{notices:?}");
    }
}

#[test]
fn refusals_become_errors_with_the_id_of_the_request() {
    let rpc = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32022,"message":"m","data":[1]}}}}"#);
    for (status, body, code, says) in [
        (401, "secret".to_owned(), -32000, "--header-env"),
        (403, String::new(), -32000, "HTTP 403"),
        (500, "<html>".to_owned(), -32000, "HTTP 500"),
        (400, rpc("null"), -32022, "m"),
        (400, rpc("9"), -32022, "m"),
        (404, rpc("\"other\""), -32022, "m"),
        (200, rpc("null"), -32022, "m"),
    ] {
        let given = body.clone();
        let server = Server::start(move |seen, reply| match seen.what().as_str() {
            "tools/list" => reply.send(status, &[("Content-Type", "application/json")], &given),
            _ => legacy(seen, reply),
        });
        let mut client = Client::of(&server);
        let answer = client.ask(&modern(9, "tools/list", json!({})));
        assert_eq!(answer["error"]["code"], code, "{status} {body}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(says) && !message.contains("secret"), "{message}");
        assert!(client.end().0.is_empty());
    }
}

#[test]
fn each_request_of_a_batch_is_answered() {
    let server = Server::start(|seen, reply| match &seen.json() {
        Value::Array(_) => reply.send(500, &[], ""),
        _ => legacy(seen, reply),
    });
    let mut client = Client::of(&server);
    client.begin();
    client.say(&json!([call(1, "a"), {"jsonrpc": "2.0", "method": "x"}, call("1", "b")]));
    let mut ids = [client.hear()["id"].clone(), client.hear()["id"].clone()];
    ids.sort_by_key(Value::is_string);
    assert_eq!(ids, [json!(1), json!("1")]);
    assert!(client.end().0.is_empty());
}

#[test]
fn a_cancel_is_sent_beside_the_call_and_without_a_session_ends_its_connection() {
    let server = Server::start(|seen, reply| match seen.what().as_str() {
        // It never answers.
        "tools/call" => {
            reply.stream();
            reply.chunk(": waiting\n\n");
        }
        _ => legacy(seen, reply),
    });
    let mut client = Client::of(&server);
    client.begin();
    let cancel = |id: u64| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    client.say(&call(5, "a"));
    client.say(&cancel(5));
    server.until(|seen| seen.iter().any(|s| s.what() == "notifications/cancelled"));
    client.say(&modern(6, "tools/call", json!({"name": "a"})));
    let seen = server.until(|seen| seen.iter().filter(|s| s.what() == "tools/call").count() == 2);
    let call = seen.iter().rfind(|s| s.what() == "tools/call").unwrap();
    assert!(call.header("Mcp-Method").is_some());
    client.say(&cancel(6));
    server.until_closed(1);
    let (rest, end) = client.end();
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!((end.code, server.count("notifications/cancelled")), (0, 1));
}

#[test]
fn the_end_of_the_input_waits_a_moment_for_answers_and_no_longer() {
    let server = Server::start(|seen, reply| match seen.what().as_str() {
        "tools/call" => {
            reply.stream();
            reply.chunk(": waiting\n\n");
        }
        _ => legacy(seen, reply),
    });
    let mut client = Client::of(&server);
    client.begin();
    client.say(&call(1, "a"));
    let (rest, end) = client.end();
    assert_eq!(rest.len(), 1);
    assert_eq!((&rest[0]["id"], &rest[0]["error"]["code"], end.code), (&json!(1), &json!(-32000), 0));
    assert_eq!(server.count("DELETE"), 1);
}

#[test]
fn an_initialize_without_an_answer_is_given_up() {
    let server = Server::start(|seen, reply| match seen.what().as_str() {
        "initialize" => reply.stream(),
        _ => legacy(seen, reply),
    });
    let mut config = config(&server.url());
    config.timing.initialize = std::time::Duration::from_millis(50);
    let mut client = Client::start(config);
    let answer = client.ask(&initialize());
    assert!(answer["error"]["message"].as_str().unwrap().contains("initialize"), "{answer}");
    client.end();
}

#[test]
fn a_bridge_that_is_asked_to_stop_ends_the_session() {
    let server = Server::start(|seen, reply| match seen.what().as_str() {
        "tools/call" => reply.stream(),
        _ => legacy(seen, reply),
    });
    let mut client = Client::of(&server);
    client.begin();
    client.say(&call(1, "a"));
    server.until(|seen| seen.iter().any(|s| s.what() == "tools/call"));
    client.bridge.stop();
    let (rest, end) = client.rest();
    assert_eq!((rest.len(), end.code, server.count("DELETE")), (1, 0, 1));
    let mut client = Client::of(&server);
    client.begin();
    client.bridge.kill();
    assert_eq!(client.rest().1.code, 0);
}
