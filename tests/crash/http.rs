//! SIGKILL of a listener at any moment, with many clients: what a peer has seen is in a pack.

use super::kills::Random;
use assay_support::rig::{Client, Rig, files, rig, stdout, until};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

const CLIENTS: usize = 20;

/// Tools whose calls somebody has seen: those that reached the server, and those whose answers reached a client.
#[derive(Default)]
struct Seen {
    called: Mutex<BTreeSet<String>>,
    answered: Mutex<BTreeSet<String>>,
    sessions: AtomicU64,
}

/// One message of HTTP: its first line, a header, its body. `None`: the other side has hung up.
fn message(from: &mut impl std::io::BufRead, wanted: &str) -> Option<(String, Option<String>, Vec<u8>)> {
    let mut first = String::new();
    from.read_line(&mut first).ok().filter(|n| *n > 0)?;
    let (mut length, mut chunked, mut found) = (0, false, None);
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        let value = value.trim().to_owned();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "transfer-encoding" => chunked = true,
            name if name == wanted => found = Some(value),
            _ => {}
        }
    }
    let mut body = Vec::new();
    while chunked {
        let mut size = String::new();
        from.read_line(&mut size).ok().filter(|n| *n > 0)?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut piece = vec![0; size + 2];
        from.read_exact(&mut piece).ok()?;
        body.extend_from_slice(&piece[..size]);
        chunked = size > 0;
    }
    if length > 0 {
        body.resize(length, 0);
        from.read_exact(&mut body).ok()?;
    }
    Some((first, found, body))
}

/// A server of many sessions: every second answer is an event stream.
fn server(seen: &Arc<Seen>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let seen = Arc::clone(seen);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = Arc::clone(&seen);
            thread::spawn(move || serve(stream, &seen));
        }
    });
    at
}

fn serve(stream: TcpStream, seen: &Seen) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let (_, _, body) = message(&mut reader, "")?;
        let said: Value = serde_json::from_slice(&body).ok()?;
        let answer = match said["method"].as_str()? {
            "initialize" => {
                let session = seen.sessions.fetch_add(1, Ordering::Relaxed);
                let result = json!({"protocolVersion": "2025-06-18", "serverInfo": {"name": "s", "version": "1"}});
                let body = json!({"jsonrpc": "2.0", "id": said["id"], "result": result}).to_string();
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s{session}\r\nContent-Length: \
                     {}\r\n\r\n{body}",
                    body.len()
                )
            }
            "tools/call" => {
                seen.called.lock().unwrap().insert(said["params"]["name"].as_str()?.to_owned());
                let body = json!({"jsonrpc": "2.0", "id": said["id"], "result": {"content": []}}).to_string();
                if said["id"].as_u64()? % 2 == 0 {
                    let event = format!("event: message\ndata: {body}\n\n");
                    format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{event}\r\n0\r\n\r\n",
                        event.len()
                    )
                } else {
                    format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    )
                }
            }
            _ => "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
        };
        writer.write_all(answer.as_bytes()).ok()?;
    }
}

/// A client that calls until it is told to stop, or nobody answers.
fn client(at: SocketAddr, n: usize, seen: &Seen, stop: &AtomicBool) -> Option<()> {
    let mut writer = TcpStream::connect(at).ok()?;
    let mut reader = BufReader::new(writer.try_clone().ok()?);
    let mut post = |session: Option<&str>, body: &Value| {
        let session = session.map(|s| format!("Mcp-Session-Id: {s}\r\n")).unwrap_or_default();
        let body = body.to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nAccept: application/json, \
             text/event-stream\r\n{session}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        writer.write_all(head.as_bytes()).ok()?;
        message(&mut reader, "mcp-session-id")
    };
    let info = json!({"protocolVersion": "2025-06-18", "clientInfo": {"name": "c", "version": "1"}});
    let (_, session, _) = post(None, &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": info}))?;
    post(session.as_deref(), &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
    for id in 1_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let tool = format!("c{n}_{id}");
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool}});
        let (first, _, body) = post(session.as_deref(), &call)?;
        assert!(first.contains("200") && memchr::memmem::find(&body, b"\"result\"").is_some(), "{first}");
        seen.answered.lock().unwrap().insert(tool);
    }
    Some(())
}

/// A listener of the recorder in front of the server, and where it listens.
fn listener(rig: &Rig, upstream: SocketAddr, flags: &[&str]) -> (Client, SocketAddr) {
    let url = format!("http://{upstream}/mcp");
    let fixed = ["mcp-proxy", "--audit-dir", "audit", "--listen", "127.0.0.1:0", "--upstream-url", &url];
    let proxy = Client::start(rig.program(&[&fixed[..], flags].concat()));
    let at = proxy.address();
    (proxy, at)
}

/// Outcomes of calls by tool, and in which session each was, of all packs.
fn receipts(rig: &Rig) -> BTreeMap<String, (String, String)> {
    let mut all = BTreeMap::new();
    for pack in fs::read_dir(rig.at("audit/packs")).unwrap().map(|e| e.unwrap().path()) {
        let lines = fs::read_to_string(pack.join("receipt_pack.jsonl")).unwrap();
        for receipt in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            if receipt["type"] == "mcp_tool_call" {
                let text = |name: &str| receipt[name].as_str().unwrap_or_default().to_owned();
                let before = all.insert(text("tool_name"), (text("outcome"), text("session_id")));
                assert!(before.is_none(), "{receipt} is there twice");
            }
        }
    }
    all
}

#[test]
fn what_a_peer_saw_of_a_killed_listener_is_in_a_pack() {
    let rounds = std::env::var("ASSAY_HTTP_KILLS").map_or(4, |n| n.parse().unwrap());
    for seed in 0..rounds {
        let mut random = Random(seed);
        let rig = rig!();
        let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let flags: &[&str] = match seed % 3 {
            0 => &[],
            1 => &["--pack-interval", "20r"],
            // A small log releases, and writes its state, all the time.
            _ => &["--capture-size", "1M"],
        };
        // Every second one is a guard that lets everything pass.
        let policy = rig.at("policy.yaml");
        fs::write(&policy, "version: \"1\"\ndefault: allow\n").unwrap();
        let guard = ["--profile", "guard", "--policy", policy.to_str().unwrap()];
        let flags = [flags, if seed % 2 == 1 { &guard[..] } else { &[] }].concat();
        let (mut proxy, at) = listener(&rig, server(&seen), &flags);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let (seen, stop) = (seen.clone(), stop.clone());
                thread::spawn(move || client(at, n, &seen, &stop))
            })
            .collect();
        let calls = 1 + random.below(600);
        until("calls", || (seen.answered.lock().unwrap().len() >= calls).then_some(()));
        thread::sleep(random.micros(5_000));
        proxy.kill();
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| {
            client.join().unwrap();
        });
        let out = rig.recover();
        assert!(out.status.success(), "seed {seed}: {}", stdout(&out));
        let found = receipts(&rig);
        let of =
            |tools: &BTreeSet<String>| tools.iter().filter(|t| !found.contains_key(*t)).cloned().collect::<Vec<_>>();
        assert_eq!(of(&seen.answered.lock().unwrap()), [""; 0], "seed {seed}: answers that a client got");
        assert_eq!(of(&seen.called.lock().unwrap()), [""; 0], "seed {seed}: calls that the server got");
        for tool in seen.answered.lock().unwrap().iter() {
            assert_eq!(found[tool].0, "forwarded", "seed {seed}: {tool}");
        }
        // Every client has a session of its own.
        let mut sessions = BTreeMap::<_, BTreeSet<_>>::new();
        for (tool, (_, session)) in &found {
            sessions.entry(session).or_default().insert(tool.split('_').next().unwrap());
        }
        assert!(sessions.values().all(|clients| clients.len() == 1), "seed {seed}: {sessions:?}");
        for pack in fs::read_dir(rig.at("audit/packs")).unwrap().map(|e| e.unwrap().path()) {
            let out = rig.run(&["verify-pack", pack.to_str().unwrap()]);
            assert!(matches!(out.status.code(), Some(0 | 1)), "seed {seed}: {}", stdout(&out));
        }
        // Nothing is left, and a second recovery finds nothing.
        assert_eq!(files(&rig.at("audit/live"), |_| true), Vec::<std::path::PathBuf>::new(), "seed {seed}");
        rig.recover();
        assert_eq!(receipts(&rig), found, "seed {seed}");
    }
}

#[test]
fn a_listener_that_ends_by_itself_leaves_nothing_but_packs() {
    let rig = rig!();
    let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
    let (mut proxy, at) = listener(&rig, server(&seen), &[]);
    let clients: Vec<_> = (0..3)
        .map(|n| {
            let (seen, stop) = (seen.clone(), stop.clone());
            thread::spawn(move || client(at, n, &seen, &stop))
        })
        .collect();
    // Each of them has been answered: which of them is served first is the machine's affair.
    until("calls", || {
        let answered = seen.answered.lock().unwrap();
        let of = |n: usize| answered.iter().filter(|tool| tool.starts_with(&format!("c{n}_"))).count();
        (0..3).all(|n| of(n) >= 10).then_some(())
    });
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| {
        client.join().unwrap();
    });
    proxy.signal(rustix::process::Signal::TERM);
    assert_eq!(proxy.end().code(), Some(0));
    let found = receipts(&rig);
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), *seen.answered.lock().unwrap());
    assert!(found.values().all(|(outcome, _)| outcome == "forwarded"));
    assert_eq!(found.values().map(|(_, session)| session).collect::<BTreeSet<_>>().len(), 3);
    for pack in fs::read_dir(rig.at("audit/packs")).unwrap().map(|e| e.unwrap().path()) {
        let out = rig.run(&["verify-pack", pack.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(0), "{}", stdout(&out));
    }
    assert_eq!(files(&rig.at("audit/live"), |_| true), Vec::<std::path::PathBuf>::new());
}
