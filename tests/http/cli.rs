//! `assay mcp-proxy --listen` as a process.

use crate::rig::{End, Server};
use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

fn command(home: &std::path::Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.arg("mcp-proxy").args(args).current_dir(home).env("HOME", home).env("ASSAY_HOME", home.join("assay"));
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn what_cannot_work_ends_with_3_and_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start();
    let (upstream, taken) = (format!("http://{}/mcp", server.at), server.at.to_string());
    let free = Server::start().at;
    let nobody = format!("http://{free}/mcp");
    let tls = format!("https://{}/mcp", server.at);
    // It speaks no TLS.
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = server.listener.accept() {
            use std::io::Write as _;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let same = free.to_string();
    // Its certificate is signed by nobody who is trusted.
    let untrusted = format!("https://localhost:{}/mcp", crate::h2::over_tls(&[b"http/1.1"]).0.port());
    std::fs::write(home.path().join("short"), "0123456789").unwrap();
    for (args, what) in [
        (&["--listen", "127.0.0.1:0", "--upstream-url", &nobody][..], "cannot connect to"),
        (&["--listen", "127.0.0.1:0", "--upstream-url", &tls], "no TLS with"),
        (&["--listen", &taken, "--upstream-url", &upstream], "cannot listen on"),
        (&["--listen", &same, "--upstream-url", &nobody], "this listener itself"),
        (&["--listen", &same, "--upstream-url", &nobody, "--no-check"], "this listener itself"),
        (&["--listen", "0.0.0.0:0", "--upstream-url", &upstream], "other machines could connect"),
        (&["--listen", "127.0.0.1:0", "--upstream-url", &untrusted], "--cacert"),
        (&["--listen", "0.0.0.0:0", "--allow-remote", "--upstream-url", &upstream], "--allow-remote without a token"),
        (
            &["--listen", "0.0.0.0:0", "--allow-remote", "--token-file", "short", "--upstream-url", &upstream],
            "no token of at least 32",
        ),
        (&["--listen", "127.0.0.1:0", "--upstream-url", &upstream, "--", "x"], "there are two servers"),
        // The bridge.
        (&["--upstream-url", &nobody], "cannot connect to"),
        (&["--upstream-url", &tls], "no TLS with"),
        (&["--upstream-url", &untrusted], "--cacert"),
        (&["--upstream-url", &upstream, "--", "x"], "there are two servers"),
        (&["--listen", "127.0.0.1:0", "--upstream-url", &upstream, "--cacert", "none"], "cannot read --cacert"),
        (&["--listen", "127.0.0.1:0", "--upstream-url", &upstream, "--proxy", "x"], "no URL of a proxy"),
    ] {
        let mut child = command(home.path(), args).spawn().unwrap();
        let begun = std::time::Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > crate::rig::LONG {
                child.kill().unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(3), "{args:?}: {said}");
        assert!(said.contains(what) && said.contains("hint: "), "{args:?}: {said}");
        assert!(out.stdout.is_empty());
    }
}

#[test]
fn a_listener_says_where_it_is_and_ends_with_a_signal() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start();
    for (signal, code) in [(15, 0), (2, 130)] {
        let upstream = format!("http://{}/mcp", server.at);
        let args = ["--json", "--listen", "localhost:0", "--upstream-url", &upstream, "--no-check"];
        let mut child = command(home.path(), &args).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = loop {
            let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if line["event"] == "listening" {
                break line["url"].as_str().unwrap().to_owned();
            }
        };
        let port: u16 = url.strip_prefix("http://localhost:").unwrap().strip_suffix("/mcp").unwrap().parse().unwrap();
        let mut client = End::connect(([127, 0, 0, 1], port).into());
        client.send(format!("GET /mcp HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"));
        let mut upstream = server.accept();
        upstream.head();
        upstream.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(client.message(false).text(), "hi");
        let pid = rustix::process::Pid::from_child(&child);
        let signal = if signal == 15 { rustix::process::Signal::TERM } else { rustix::process::Signal::INT };
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert!(client.is_closed());
    }
}

#[test]
fn every_session_of_a_listener_that_is_asked_to_end_gets_its_pack() {
    // More than may wait for their packs while the process runs.
    const SESSIONS: usize = 70;
    let home = tempfile::tempdir().unwrap();
    let server = Server::start();
    let upstream = format!("http://{}/mcp", server.at);
    let args = ["--json", "--audit-dir", "d", "--listen", "127.0.0.1:0", "--upstream-url", &upstream, "--no-check"];
    let mut child = command(home.path(), &args).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let url = loop {
        let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if line["event"] == "listening" {
            break line["url"].as_str().unwrap().to_owned();
        }
    };
    // Nobody may wait for us to read what it says.
    std::thread::spawn(move || lines.for_each(drop));
    let port: u16 = url.strip_prefix("http://127.0.0.1:").unwrap().strip_suffix("/mcp").unwrap().parse().unwrap();
    for n in 0..SESSIONS {
        let mut client = End::connect(([127, 0, 0, 1], port).into());
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
        let length = body.len();
        client.send(format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        let mut upstream = server.accept();
        upstream.head();
        let answer = r#"{"jsonrpc":"2.0","id":0,"result":{}}"#;
        let length = answer.len();
        upstream.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s{n}\r\nContent-Length: {length}\r\n\r\n{answer}"
        ));
        assert_eq!(client.message(false).text(), answer);
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let packs: Vec<_> = std::fs::read_dir(home.path().join("d/packs")).unwrap().map(|e| e.unwrap().path()).collect();
    let complete = packs.iter().filter(|pack| {
        let doc = std::fs::read(pack.join("session.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&doc).unwrap()["recovery_notes"] == serde_json::json!([])
    });
    assert_eq!(complete.count(), SESSIONS, "of {} packs", packs.len());
}

#[test]
fn who_lets_other_machines_in_is_warned() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start();
    let upstream = format!("http://{}/mcp", server.at);
    std::fs::write(home.path().join("token"), "0123456789abcdef0123456789abcdef").unwrap();
    let args = ["--allow-remote", "--token-file", "token", "--upstream-url", &upstream, "--no-check", "--listen"];
    for (listen, warned) in [("0.0.0.0:0", true), ("127.0.0.1:0", false)] {
        let mut child = command(home.path(), &[&args[..], &[listen]].concat()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let before: Vec<_> = lines.by_ref().take_while(|line| !line.contains("listening on")).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(before.iter().any(|line| line.contains("put TLS in front of it")), warned, "{before:?}");
    }
}
