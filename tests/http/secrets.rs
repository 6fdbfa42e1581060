//! What is secret crosses, and is nowhere else: not on disk, not in the capture, on the live socket, in logs or on the screen;
//! while the recorder runs, after it was killed, and when it was recovered.

use crate::rig::{End, Message, Server};
use assay_support::rig::{Client, Rig, call, files, rig, stderr, stdout, until};
use memchr::memmem::find;
use rustix::process::Signal;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

/// The canary of this name.
fn canary(name: &str) -> String {
    format!("canary-{name}-Zk3vQ9pT7wXr2mB5")
}

/// What crosses, and what of it has to reach the other side.
const CROSS: [&str; 15] = [
    "authorization",
    "api-key",
    "cookie",
    "query",
    "param",
    "header",
    "event",
    "path",
    "client-secret",
    "session",
    "set-cookie",
    "access-token",
    "challenge",
    "code",
    "endpoint-query",
];
/// What ends at the recorder.
const END_HERE: [&str; 2] = ["token-of-the-listener-is-long-enough", "proxy"];

const WHILE_IT_RUNS: &str = "while it runs";

/// Everything that either side has read.
type Crossed = Arc<Mutex<Vec<u8>>>;

/// A server with a session, a login and a place that is somewhere else.
fn server(crossed: &Crossed) -> String {
    let server = Server::start();
    let at = server.at;
    let crossed = crossed.clone();
    thread::spawn(move || {
        loop {
            let (end, crossed) = (server.accept(), crossed.clone());
            thread::spawn(move || serve(end, &crossed));
        }
    });
    format!("http://{at}/mcp?key={}", canary("endpoint-query"))
}

fn serve(mut end: End, crossed: &Crossed) {
    loop {
        let asked = end.message(false);
        if asked.cut {
            return;
        }
        crossed.lock().unwrap().extend([asked.head.as_bytes(), &asked.body].concat());
        let is = |what: &str| asked.text().contains(what);
        let first = asked.head.lines().next().unwrap().to_owned();
        let id = asked.text().split("\"id\":").nth(1).and_then(|r| r.split([',', '}']).next().map(str::to_owned));
        let id = id.unwrap_or_default();
        let answer = |status: &str, headers: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
        };
        let json = "Content-Type: application/json\r\n";
        let sent = if first.starts_with("POST /token") {
            answer("200 OK", json, &format!(r#"{{"access_token":"{}"}}"#, canary("access-token")))
        } else if first.contains(&canary("path")) {
            answer("302 Found", &format!("Location: /back?code={}\r\n", canary("code")), "")
        } else if is("\"initialize\"") {
            let headers =
                format!("{json}Mcp-Session-Id: {}\r\nSet-Cookie: s={}\r\n", canary("session"), canary("set-cookie"));
            let result =
                r#"{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;
            answer("200 OK", &headers, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
        } else if is("\"locked\"") {
            let challenge = format!("WWW-Authenticate: Bearer realm=\"{}\"\r\n", canary("challenge"));
            answer("401 Unauthorized", &challenge, "")
        } else if is("\"tools/call\"") {
            answer("200 OK", json, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#))
        } else if first.starts_with("GET /mcp") {
            // A stream that stays open.
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n:\n\n\r\n"
                .to_owned()
        } else {
            answer("202 Accepted", "", "")
        };
        end.send(sent);
    }
}

/// Sends a request of a client that has secrets of all kinds.
fn ask(end: &mut End, crossed: &Crossed, first: &str, headers: &[(&str, String)], body: &str) -> Message {
    let host = end.stream.peer_addr().unwrap();
    let mut head = format!("{first} HTTP/1.1\r\nHost: {host}\r\nAssay-Token: {}\r\n", canary(END_HERE[0]));
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    end.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
    let is_stream = first.starts_with("GET /mcp");
    let got = if is_stream { Message { head: end.head(), ..Message::default() } } else { end.message(false) };
    crossed.lock().unwrap().extend([got.head.as_bytes(), &got.body].concat());
    got
}

/// Every kind of secret, and at the end a call of `last`; the stream that is still open.
fn talk(proxy: &Client, crossed: &Crossed) -> End {
    let at = proxy.address();
    let mut end = End::connect(at);
    let secrets = [
        ("Authorization", format!("Bearer {}", canary("authorization"))),
        ("X-Api-Key", canary("api-key")),
        ("Cookie", format!("id={}", canary("cookie"))),
        ("Proxy-Authorization", format!("Basic {}", canary(END_HERE[1]))),
        ("Mcp-Param-Region", canary("param")),
        ("Mcp-Session-Id", canary("session")),
    ];
    let oauth = format!("grant_type=client_credentials&client_secret={}", canary("client-secret"));
    ask(&mut end, crossed, "POST /token", &secrets[..2], &oauth);
    ask(&mut end, crossed, &format!("GET /private/{}", canary("path")), &secrets[..2], "");
    let endpoint = format!("POST /mcp?api_key={}", canary("query"));
    let initialized = ask(&mut end, crossed, &endpoint, &secrets[..5], assay_support::rig::INITIALIZE);
    assert_eq!(initialized.status(), 200, "{initialized:?}");
    assert_eq!(ask(&mut end, crossed, &endpoint, &secrets, &call(1, "locked", 1)).status(), 401);
    let mut stream = End::connect(at);
    let resumed = [&secrets[..], &[("Last-Event-ID", canary("event"))]].concat();
    ask(&mut stream, crossed, "GET /mcp", &resumed, "");
    assert_eq!(ask(&mut end, crossed, &endpoint, &secrets, &call(2, "last", 1)).status(), 200);
    stream
}

/// Flags of a recorder that keeps as much as it can.
fn start(rig: &Rig, url: &str, flags: &[&str]) -> Client {
    let fixed = ["mcp-proxy", "--audit-dir", "audit", "--upstream-url", url, "--store-args", "--store-results"];
    let mut command = rig.program(&[&fixed[..], &["--header-env", "X-Upstream=UPSTREAM_KEY"], flags].concat());
    command.env("UPSTREAM_KEY", canary("header")).env("LISTENER_TOKEN", canary(END_HERE[0]));
    Client::start(command)
}

fn files_below(dir: &Path, all: &mut Vec<PathBuf>) {
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() { files_below(&path, all) } else { all.push(path) }
    }
}

/// No canary is in a file of the rig, nor in the name of one.
fn nowhere(rig: &Rig, when: &str) {
    let mut all = Vec::new();
    files_below(&rig.root, &mut all);
    for path in &all {
        // Sockets cannot be read.
        let bytes = [path.to_str().unwrap().as_bytes(), &fs::read(path).unwrap_or_default()].concat();
        clean(&bytes, &format!("{when}: {}", path.display()));
    }
    // The capture was among them.
    let is_capture = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "ring");
    assert!(when != WHILE_IT_RUNS || all.iter().any(is_capture), "{all:?}");
}

fn clean(bytes: &[u8], place: &str) {
    for name in CROSS.iter().chain(&END_HERE) {
        let mut forms = vec![canary(name)];
        forms.push(hex::encode(&forms[0]));
        for form in forms {
            assert!(find(bytes, form.as_bytes()).is_none(), "{name} is in {place}");
        }
    }
}

/// What a follower is told of everything up to the end of the call of `last`; nothing of it is secret.
fn live(rig: &Rig) {
    until("the receipt of the call", || {
        let receipts = files(&rig.at("audit/receipts"), |_| true);
        let is_there = |path: &PathBuf| fs::read(path).is_ok_and(|text| find(&text, b"\"last\"").is_some());
        receipts.iter().any(is_there).then_some(())
    });
    let mut watch = Client::start(rig.program(&["watch", "--json", "--audit-dir", "audit"]));
    until("the live call", || {
        let is_it =
            |line: &[u8]| [&b"\"call_finished\""[..], b"\"last\""].iter().all(|part| find(line, part).is_some());
        watch.got().split(|b| *b == b'\n').any(is_it).then_some(())
    });
    clean(&watch.got(), "what a follower is told");
    watch.kill();
}

/// The same for all that the program says about what it has recorded.
fn told(rig: &Rig) {
    let packs: Vec<PathBuf> = fs::read_dir(rig.at("audit/packs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!packs.is_empty());
    for pack in packs {
        for words in [&["verify-pack", "--json"][..], &["explain"]] {
            let out = rig.run(&[words, &[pack.to_str().unwrap()]].concat());
            assert!(matches!(out.status.code(), Some(0 | 1)), "{}{}", stdout(&out), stderr(&out));
            clean(&[out.stdout, out.stderr].concat(), words[0]);
        }
    }
}

/// Each canary has crossed, but for those that end here.
fn crossed_all(crossed: &Crossed, names: &[&str]) {
    let all = crossed.lock().unwrap();
    for name in names {
        assert!(find(&all, canary(name).as_bytes()).is_some(), "{name} has not crossed");
    }
    for name in END_HERE {
        assert!(find(&all, canary(name).as_bytes()).is_none(), "{name} was passed on");
    }
}

const LISTEN: [&str; 4] = ["--listen", "127.0.0.1:0", "--token-env", "LISTENER_TOKEN"];

#[test]
fn no_secret_of_a_listener_is_anywhere() {
    for killed in [true, false] {
        let (rig, crossed) = (rig!(), Crossed::default());
        let mut proxy = start(&rig, &server(&crossed), &LISTEN);
        let stream = talk(&proxy, &crossed);
        live(&rig);
        nowhere(&rig, WHILE_IT_RUNS);
        if killed {
            proxy.kill();
            nowhere(&rig, "after SIGKILL");
            clean(
                &[rig.recover()].iter().flat_map(|o| [&o.stdout[..], &o.stderr].concat()).collect::<Vec<_>>(),
                "recover",
            );
        } else {
            drop(stream);
            proxy.signal(Signal::TERM);
            assert_eq!(proxy.end().code(), Some(0), "{}", proxy.said());
        }
        nowhere(&rig, "at the end");
        clean(&[proxy.got(), proxy.said().into_bytes()].concat(), "what the recorder says");
        told(&rig);
        let names: Vec<&str> = CROSS.iter().copied().filter(|name| *name != "endpoint-query").collect();
        crossed_all(&crossed, &names);
    }
}

#[test]
fn no_secret_of_a_bridge_is_anywhere() {
    for killed in [true, false] {
        let (rig, crossed) = (rig!(), Crossed::default());
        let mut proxy = start(&rig, &server(&crossed), &[]);
        let answers = [assay_support::rig::INITIALIZE.to_owned(), call(1, "locked", 1), call(2, "last", 1)];
        proxy.converse(answers.into_iter());
        live(&rig);
        nowhere(&rig, WHILE_IT_RUNS);
        if killed {
            proxy.kill();
            nowhere(&rig, "after SIGKILL");
            let out = rig.recover();
            clean(&[out.stdout, out.stderr].concat(), "what the recovery says");
        } else {
            assert_eq!(proxy.end().code(), Some(0), "{}", proxy.said());
        }
        nowhere(&rig, "at the end");
        clean(&[proxy.got(), proxy.said().into_bytes()].concat(), "what the recorder says");
        told(&rig);
        crossed_all(&crossed, &["endpoint-query", "header", "session"]);
    }
}

#[test]
fn of_arguments_only_those_that_were_named_are_kept() {
    let kept = format!(r#""arguments_redacted":{{"id":"sha256:{}","n":7}}"#, assay::canon::sha256_hex(b"2"));
    over_http(&["--cleartext", "last=n"], &[&kept]);
}

#[test]
fn what_rules_match_is_redacted() {
    let rules = "version: \"1\"\nrules: [ { name: number, pointer: /n }, { name: list, regex: content, in: results } ]";
    let contents =
        [r#""arguments_content":{"id":2,"n":"[redacted:number]"}"#, r#""result_content":{"[redacted:list]":[]}"#];
    let flags = ["--store-args", "--store-results", "--redact", "rules.yaml"];
    let read = |rig: &Rig| drop(rig.file("rules.yaml", rules));
    over_http_after(read, &flags, &contents);
}

fn over_http(flags: &[&str], kept: &[&str]) {
    over_http_after(|_| {}, flags, kept);
}

/// A call through the listener, and one through the bridge: what receipts then have.
fn over_http_after(before: impl Fn(&Rig), flags: &[&str], kept: &[&str]) {
    for listens in [true, false] {
        let (rig, crossed) = (rig!(), Crossed::default());
        before(&rig);
        let url = server(&crossed);
        let fixed = [&["mcp-proxy", "--audit-dir", "audit", "--upstream-url", &url], flags].concat();
        let listen: &[&str] = if listens { &LISTEN } else { &[] };
        let mut command = rig.program(&[&fixed[..], listen].concat());
        command.env("LISTENER_TOKEN", canary(END_HERE[0]));
        let mut proxy = Client::start(command);
        let asked = call(2, "last", 7);
        if listens {
            let mut end = End::connect(proxy.address());
            ask(&mut end, &crossed, "POST /mcp", &[], assay_support::rig::INITIALIZE);
            let session = [("Mcp-Session-Id", canary("session"))];
            assert_eq!(ask(&mut end, &crossed, "POST /mcp", &session, &asked).status(), 200);
            proxy.signal(Signal::TERM);
        } else {
            proxy.converse([assay_support::rig::INITIALIZE.to_owned(), asked].into_iter());
        }
        assert_eq!(proxy.end().code(), Some(0), "{}", proxy.said());
        let [pack] = &files(&rig.at("audit/packs"), |name| name.starts_with("proof_pack_"))[..] else { panic!("one") };
        let receipts = fs::read_to_string(pack.join("receipt_pack.jsonl")).unwrap();
        assert!(kept.iter().all(|kept| receipts.contains(kept)), "{receipts}");
        assert_eq!(rig.json(0, &["verify-pack", pack.to_str().unwrap()])["integrity_verdict"], "PASS");
    }
}
