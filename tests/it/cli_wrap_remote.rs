//! `assay wrap --remote` from outside, with a server over HTTP; and names of servers that several files have.

use super::cli_wrap::{document, in_project};
use assay_support::rig::{Client, INITIALIZE, Rig, call, journal, receipts, rig, stderr, stdout};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    thread,
};

/// A value that is printed nowhere.
const SECRET: &str = "Bearer hidden-value";

/// A server that answers every request of one who has the credential; its URL. It ends with the test.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut length, mut knows, mut head) = (0, false, String::new());
                while reader.read_line(&mut head).is_ok_and(|n| n > 2) {
                    let (name, value) = head.split_once(':').unwrap_or((&head, ""));
                    match name.to_ascii_lowercase().as_str() {
                        "content-length" => length = value.trim().parse().unwrap(),
                        "authorization" => knows = value.trim() == SECRET,
                        _ => {}
                    }
                    head.clear();
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let message: Value = serde_json::from_slice(&body).unwrap_or_default();
                let (status, answer) = match (&message["id"], message["method"].as_str()) {
                    _ if !knows => ("401 Unauthorized", String::new()),
                    (Value::Null, Some(_)) => ("202 Accepted", String::new()),
                    (_, None) => ("405 Method Not Allowed", String::new()),
                    (id, Some("initialize")) => {
                        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "far", "version": "1"}});
                        ("200 OK", json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
                    }
                    (id, Some(_)) => {
                        let result = json!({"content": [{"type": "text", "text": "done"}]});
                        ("200 OK", json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
                    }
                };
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
                    answer.len()
                );
            });
        }
    });
    url
}

fn place(rig: &Rig, path: &str, text: &str) {
    fs::create_dir_all(rig.at(path).parent().unwrap()).unwrap();
    fs::write(rig.at(path), text).unwrap();
}

#[test]
fn a_server_by_url_leaves_receipts_after_wrap_and_its_credential_is_printed_nowhere() {
    let rig = rig!();
    fs::create_dir_all(rig.at("project")).unwrap();
    let url = server();
    let old = format!(
        "{{\r\n  \"mcpServers\": {{\r\n    \"far\": {{ \"headers\": {{ \"Authorization\": \"{SECRET}\" }}, \"url\": \"{url}\" }},\r\n    \
         \"login\": {{ \"url\": \"{url}\", \"auth\": {{ \"CLIENT_ID\": \"c\" }} }}\r\n  }}\r\n}}\r\n"
    );
    place(&rig, ".cursor/mcp.json", &old);
    let assay = ["--yes", "--assay", rig.assay];
    // Without the option a URL is left, and it is said how it is done.
    let plain = in_project(&rig, &[&["wrap", "far"][..], &assay].concat());
    assert_eq!(plain.status.code(), Some(1));
    assert!(stdout(&plain).contains("--remote"), "{}", stdout(&plain));
    let done = in_project(&rig, &[&["wrap", "--all", "--remote"][..], &assay].concat());
    assert_eq!(done.status.code(), Some(1), "{}{}", stdout(&done), stderr(&done));
    assert!(stdout(&done).contains("`auth` makes the client log in"), "{}", stdout(&done));
    assert!(stdout(&done).contains("far: if the server asks for a login"), "{}", stdout(&done));
    for out in [&plain, &done] {
        assert!(!stdout(out).contains("hidden-value") && !stderr(out).contains("hidden-value"), "{}", stdout(out));
    }
    let scan = document(&rig, 1, &["scan", "--strict"]);
    assert_eq!((&scan["summary"]["recorded"], &scan["summary"]["remote"]), (&json!(1), &json!(1)));
    let config: Value = serde_json::from_slice(&fs::read(rig.at(".cursor/mcp.json")).unwrap()).unwrap();
    let entry = &config["mcpServers"]["far"];
    let args: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    assert!(args.iter().all(|arg| !arg.contains("hidden-value")), "{args:?}");
    let mut program = rig.command(entry["command"].as_str().unwrap());
    program.args(&args);
    for (name, value) in entry["env"].as_object().unwrap() {
        program.env(name, value.as_str().unwrap());
    }
    let mut client = Client::start(program);
    client.send(INITIALIZE);
    client.await_lines(1);
    client.send(&call(1, "echo", 1));
    client.await_lines(2);
    assert!(client.end().success(), "{}", client.said());
    let text = fs::read_to_string(journal(&receipts(&rig.at(".assay/mcp"))[0])).unwrap();
    assert!(text.contains("\"server_id\":\"far\"") && text.contains("\"echo\""), "{text}");
    // Another flag replaces our part alone, and the URL comes back with every byte.
    let again = document(&rig, 0, &["wrap", "far", "--yes", "--pack-interval", "5m"]);
    assert_eq!(again["files"][0]["entries"][0]["action"], "rewrapped");
    document(&rig, 0, &["wrap", "far", "--yes", "--pack-interval", "5m"]);
    document(&rig, 0, &["unwrap", "--all", "--yes"]);
    assert_eq!(fs::read_to_string(rig.at(".cursor/mcp.json")).unwrap(), old);
}

#[test]
fn servers_of_one_name_in_several_files_have_ids_of_their_own_and_one_server_has_one() {
    let rig = rig!();
    fs::create_dir_all(rig.at("project")).unwrap();
    let servers = |fs: &str| {
        format!("{{\"mcpServers\": {{\"fs\": {{\"command\": \"{fs}\"}}, \"same\": {{\"command\": \"s\"}}}}}}")
    };
    place(&rig, ".cursor/mcp.json", &servers("one"));
    place(&rig, ".gemini/settings.json", &servers("two"));
    document(&rig, 0, &["wrap", "--all", "--yes", "--assay", rig.assay]);
    let scan = document(&rig, 0, &["scan"]);
    let mut ids: Vec<String> = Vec::new();
    for client in scan["clients"].as_array().unwrap() {
        let servers = client["servers"].as_array().unwrap().iter();
        ids.extend(servers.map(|server| server["wrapped"]["server_id"].as_str().unwrap().to_owned()));
    }
    ids.sort();
    assert_eq!((ids.len(), &ids[2], &ids[3]), (4, &"same".to_owned(), &"same".to_owned()), "{ids:?}");
    assert!(ids[0] != ids[1] && ids[..2].iter().all(|id| id.starts_with("fs-") && id.len() == 9), "{ids:?}");
    // Again, and one by one, they stay.
    document(&rig, 0, &["wrap", "fs", "--yes", "--client", "cursor", "--assay", rig.assay]);
    assert_eq!(document(&rig, 0, &["scan"]), scan);
}
