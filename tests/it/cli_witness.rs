//! `assay witness` over HTTP: the specification's answers, and what is left after a kill; `assay anchor` with it, and with servers
//! that answer anything (rows w3 and w4 of the attacks on witnesses). What needs no process is tested in `src/witness/keep.rs`,
//! `src/verify/anchor.rs` (w1) and `src/verify/tlog_policy.rs` (w2).

use assay::{
    model::{LedgerKind, checkpoint::text_of, sha256_hex},
    note::{self, Key, WitnessKey},
    pack::{
        keys::{Signer, SignerId},
        verify::verify_ed25519,
    },
    tree::{Frontier, leaf},
    witness::request::Request,
};
use assay_support::{
    check,
    rig::{Client, Rig, rig, stderr, stdout},
};
use rustix::process::Signal;
use serde_json::json;
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};

fn holds(key: &[u8], text: &[u8], signature: &[u8]) -> bool {
    verify_ed25519(key, text, signature).is_ok()
}

/// A witness that is served, and where.
fn serve(rig: &Rig, dir: &str) -> (Client, SocketAddr) {
    let client = Client::start(rig.program(&["witness", "serve", dir, "--listen", "127.0.0.1:0"]));
    client.await_lines(1);
    let line = String::from_utf8(client.got()).unwrap();
    let address = line.trim().rsplit_once(" at http://").unwrap().1.trim_end_matches('/').parse().unwrap();
    (client, address)
}

/// Status, head and body of the answer.
fn ask(to: SocketAddr, head: &str, body: &[u8]) -> (u16, String, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!("{head} HTTP/1.1\r\nHost: w\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    // It may answer, and close, before it has read all.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
}

struct Log(Signer, Key);

impl Log {
    fn new(origin: &str) -> Self {
        let signer = Signer::from_seed(SignerId::parse("log").unwrap(), &[3; 32]);
        let key = Key::new(origin, signer.public()).unwrap();
        Self(signer, key)
    }

    fn first(&self, size: u64) -> Request {
        let root = (0..size).map(|n| leaf(&n.to_be_bytes())).collect::<Frontier>().root();
        let text = text_of(self.1.name(), size, &root);
        Request { old: 0, proof: Vec::new(), note: self.1.note(&text, &self.0.sign(text.as_bytes()).unwrap()) }
    }
}

#[test]
fn a_witness_answers_over_http_and_forgets_nothing_when_it_is_killed() {
    let rig = rig!();
    let made = rig.run(&["witness", "init", "--name", "w.example/1", "w"]);
    let key = WitnessKey::parse(stdout(&made).trim()).unwrap_or_else(|_| panic!("{}", stderr(&made)));
    let log = Log::new("example.com/log");
    assert!(rig.run(&["witness", "add-log", "w", &log.1.to_string()]).status.success());
    let (mut server, at) = serve(&rig, "w");
    let add = |at, request: &Request| ask(at, "POST /add-checkpoint", request.body().as_bytes());
    let latest = format!("GET /{}/checkpoint", sha256_hex(b"example.com/log"));
    assert_eq!(ask(at, &latest, b"").0, 404, "nothing was signed yet");
    let (code, _, line) = add(at, &log.first(5));
    assert_eq!(code, 200, "{line}");
    let note = format!("{}{line}", log.first(5).note);
    assert!(key.cosigned(&note, &holds).unwrap().is_some());
    let (code, head, size) = add(at, &log.first(9));
    assert_eq!((code, size.as_str()), (409, "5\n"));
    assert!(head.contains("content-type: text/x.tlog.size"), "{head}");
    assert_eq!(add(at, &Log::new("example.com/other").first(1)).0, 404);
    assert_eq!(ask(at, "POST /add-checkpoint", &vec![b'x'; 1 << 20]).0, 413);
    assert_eq!(ask(at, "POST /add-checkpoint", b"old 0\n").0, 400);
    assert_eq!((ask(at, "GET /add-checkpoint", b"").0, ask(at, "GET /", b"").0), (405, 404));
    assert_eq!(ask(at, "GET /../witness.json/checkpoint", b"").0, 404);
    // Nobody else serves it meanwhile.
    let second = rig.run(&["witness", "serve", "w", "--listen", "127.0.0.1:0"]);
    assert!(second.status.code() == Some(2) && stderr(&second).contains("another process"), "{}", stderr(&second));
    server.kill();
    let (server, at) = serve(&rig, "w");
    assert_eq!(add(at, &log.first(9)).2, "5\n");
    let (code, _, note) = ask(at, &latest, b"");
    assert!(code == 200 && key.cosigned(&note, &holds).unwrap().is_some(), "{note}");
    assert!(note::open(&note, &log.1, &holds).is_ok());
    for path in ["w/witness.json", "w/keys/witness.key", &format!("w/logs/{}.json", sha256_hex(b"example.com/log"))] {
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&rig.at(path)), mode(rig.at(path).parent().unwrap())), (0o600, 0o700), "{path}");
    }
    server.signal(Signal::TERM);
    let mut server = server;
    assert_eq!(server.wait().code(), Some(0));
}

/// A policy that names witnesses at these addresses, all of which it takes.
fn policy(rig: &Rig, witnesses: &[(&str, &WitnessKey, SocketAddr)]) -> String {
    let lines = witnesses.iter().map(|(name, key, at)| format!("witness {name} {key} http://{at}/\n"));
    let names: Vec<&str> = witnesses.iter().map(|(name, ..)| *name).collect();
    let text = format!("{}group all all {}\nquorum all\n", lines.collect::<Vec<_>>().concat(), names.join(" "));
    rig.file("witnesses.policy", &text)
}

#[test]
fn a_ledger_that_is_witnessed_cannot_be_rolled_back_or_forked_unseen() {
    let rig = rig!();
    let record = || rig.record("audit", &[], &[json!({"name": "echo", "arguments": {"text": "x"}})]);
    record();
    let vkey = stdout(&rig.run(&["ledger", "vkey", "--audit-dir", "audit"]));
    let made = ["one", "two"].map(|name| {
        let made = rig.run(&["witness", "init", "--name", &format!("{name}.example"), name]);
        assert!(rig.run(&["witness", "add-log", name, vkey.trim()]).status.success());
        WitnessKey::parse(stdout(&made).trim()).unwrap()
    });
    let (_one, one) = serve(&rig, "one");
    let (two_served, two) = serve(&rig, "two");
    let policy = policy(&rig, &[("one", &made[0], one), ("two", &made[1], two)]);
    let anchor = |code, dir: &str| rig.json(code, &["anchor", "--policy", &policy, dir]);
    let verify = |code, dir: &str, more: &[&str]| {
        rig.json(code, &[&["verify-dir", "--packs", "none", "--policy", &policy, dir], more].concat())
    };
    // Nothing counts before anybody has signed, and nothing without trust.
    assert_eq!(verify(1, "audit", &["--require-anchor"])["anchor"]["verdict"], "UNANCHORED");
    let said = anchor(0, "audit");
    assert_eq!((&said["size"], &said["is_enough"]), (&json!(3), &json!(true)), "{said}");
    let ledger = check::ledger(&rig);
    assert_eq!((ledger[3].kind, ledger[3].v, ledger.len()), (LedgerKind::Anchored, 5, 4));
    assert_eq!(said["checkpoint"].as_str(), ledger[3].anchored.as_ref().map(|anchored| anchored.checkpoint.as_str()));
    let shown = std::fs::read_to_string(rig.audit.join("audit/log/checkpoint")).unwrap();
    assert_eq!(Some(shown.as_str()), said["checkpoint"].as_str());
    let trusted = rig.json(0, &["verify-dir", "audit"]);
    assert_eq!((&trusted["anchor"]["verdict"], &trusted["anchor"]["present"]), (&json!("NOT_EVALUATED"), &json!(1)));
    assert_eq!(anchor(0, "audit")["is_still"], true, "nothing has come since");
    assert_eq!(check::ledger(&rig).len(), 4);
    copy(&rig, "audit", "older");
    record();
    copy(&rig, "audit", "fork");
    record();
    assert_eq!(anchor(0, "audit")["size"], 10, "from the size that both have signed");
    let said = verify(0, "audit", &["--require-anchor", "--anchored-before", "2999-01-01T00:00:00Z"]);
    assert_eq!((&said["anchor"]["verdict"], &said["anchor"]["size"]), (&json!("ANCHORED"), &json!(10)), "{said}");
    assert_eq!(said["anchor"]["witnesses"], json!(["one", "two"]));
    verify(1, "audit", &["--anchored-before", "2020-01-01T00:00:00Z"]);
    let kept = rig.file("kept", &std::fs::read_to_string(rig.audit.join("audit/log/checkpoint")).unwrap());
    // Whoever renews a ledger that was cut says what was signed before: it shows, and witnesses' signatures under it count.
    copy(&rig, "older", "cut");
    std::fs::copy(&kept, rig.at("cut/audit/log/checkpoint")).unwrap();
    rig.json(0, &["ledger", "renew", "--reason", "nothing to see", "--audit-dir", "cut"]);
    let said = rig.json(0, &["verify-dir", "cut"]);
    assert_eq!((&said["log"]["renewed"][0]["signed"], &said["log"]["renewed"][0]["missing"]), (&json!(10), &json!(6)));
    let text = stdout(&rig.run(&["verify-dir", "cut"]));
    assert!(text.contains("6 lines of the ledger are missing") && !text.contains("nothing is missing"), "{text}");
    assert_eq!(verify(2, "cut", &[])["anchor"]["verdict"], "ROLLBACK");
    // A witness that is gone: too few.
    two_served.signal(Signal::TERM);
    let mut two_served = two_served;
    two_served.wait();
    record();
    let said = anchor(1, "audit");
    assert_eq!(
        (&said["witnesses"][0]["outcome"], &said["witnesses"][1]["outcome"]),
        (&json!("signed"), &json!("failed"))
    );
    assert_eq!(verify(0, "audit", &["--require-anchor"])["anchor"]["size"], 10, "the one before still counts");
    // Whoever has the key and all that is remembered here puts an older copy back, or goes on from one.
    std::fs::remove_dir_all(rig.at("home/logs")).unwrap();
    std::fs::remove_dir_all(rig.at("home/ledgers")).unwrap();
    let said = anchor(2, "older");
    assert_eq!(said["witnesses"][0]["outcome"], "rollback", "{said}");
    assert!(said["witnesses"][0]["note"].as_str().unwrap().contains("one.example"), "{said}");
    assert_eq!(verify(2, "older", &["--anchor", &kept])["anchor"]["verdict"], "ROLLBACK");
    for _ in 0..4 {
        rig.record("fork", &[], &[json!({"name": "echo", "arguments": {"text": "y"}})]);
    }
    let said = anchor(2, "fork");
    assert_eq!(said["witnesses"][0]["outcome"], "fork", "{said}");
    assert!(said["witnesses"][0]["note"].is_string(), "{said}");
    assert_eq!(verify(2, "fork", &["--anchor", &kept])["anchor"]["verdict"], "FORK");
    let text = stdout(&rig.run(&["anchor", "--policy", &policy, "fork"]));
    assert!(text.contains("FORK one has seen other lines") && text.contains("it has:"), "{text}");
}

#[test]
fn packs_and_proofs_carry_what_witnesses_signed_of_them() {
    let rig = rig!();
    let record = || rig.record("audit", &[], &[json!({"name": "echo", "arguments": {"text": "x"}})]);
    let packs = || {
        let mut packs: Vec<_> =
            std::fs::read_dir(rig.audit.join("packs")).unwrap().map(|e| e.unwrap().path()).collect();
        packs.sort_by_key(|pack| pack.metadata().unwrap().modified().unwrap());
        packs.into_iter().map(|pack| pack.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    record();
    let first = packs().remove(0);
    let vkey = stdout(&rig.run(&["ledger", "vkey", "--audit-dir", "audit"]));
    let key = stdout(&rig.run(&["witness", "init", "--name", "one.example", "one"]));
    assert!(rig.run(&["witness", "add-log", "one", vkey.trim()]).status.success());
    let (_one, one) = serve(&rig, "one");
    let policy = policy(&rig, &[("one", &WitnessKey::parse(key.trim()).unwrap(), one)]);
    let verify = |code, pack: &str, more: &[&str]| {
        rig.json(code, &[&["verify-pack", pack, "--policy", &policy], more].concat())["anchor"].take()
    };
    let prove = |pack: &str| stdout(&rig.run(&["prove", pack, "--event", "0"]));
    let before = rig.file("before", &prove(&first));
    assert_eq!(verify(1, &first, &["--require-anchor"])["verdict"], "UNANCHORED");
    assert_eq!(rig.json(0, &["anchor", "--policy", &policy, "audit"])["packs"], 1);
    let said = verify(0, &first, &["--require-anchor", "--anchored-before", "2999-01-01T00:00:00Z"]);
    assert_eq!(
        (&said["verdict"], &said["size"], &said["present"]),
        (&json!("ANCHORED"), &json!(3), &json!(1)),
        "{said}"
    );
    assert_eq!((&said["witnesses"], &said["not_before"]), (&json!(["one"]), &json!(null)), "{said}");
    verify(1, &first, &["--anchored-before", "2020-01-01T00:00:00Z"]);
    let trusting_nobody = rig.json(0, &["verify-pack", &first]);
    assert_eq!(trusting_nobody["anchor"]["verdict"], "NOT_EVALUATED");
    let (code, text) = (rig.run(&["verify-pack", &first]).status.code(), stdout(&rig.run(&["verify-pack", &first])));
    assert!(code == Some(0) && text.contains("1 anchor present; --policy says whose count"), "{text}");
    let anchors = |pack: &str| Path::new(pack).join("_unsigned/anchors");
    for entry in std::fs::read_dir(anchors(&first)).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    // Nothing has come since, and every pack has what it gets.
    assert_eq!(rig.json(0, &["anchor", "--policy", &policy, "audit"])["packs"], 0);
    record();
    let second = packs().into_iter().find(|pack| *pack != first).unwrap();
    assert_eq!(rig.json(0, &["anchor", "--policy", &policy, "audit"])["packs"], 1);
    let said = verify(0, &second, &["--require-anchor"]);
    assert_eq!((&said["verdict"], &said["present"]), (&json!("ANCHORED"), &json!(2)), "{said}");
    assert!(said["not_before"].as_str().unwrap() <= said["not_after"].as_str().unwrap(), "{said}");
    // The lines before its beginning are one chain from what was signed, or they say nothing.
    let names = || std::fs::read_dir(anchors(&second)).unwrap().map(|e| e.unwrap().path());
    let run = names().find(|path| path.extension().is_some_and(|e| e == "jsonl")).unwrap();
    let lines = std::fs::read_to_string(&run).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let end = std::fs::read_to_string(rig.audit.join("audit/ledger.jsonl")).unwrap();
    let end = end.lines().nth(4).unwrap();
    for bad in
        [lines.replacen("\"event_count\":0", "\"event_count\":1", 1), format!("{lines}{end}\n"), format!("{end}\n")]
    {
        assert_ne!(bad, lines);
        std::fs::write(&run, bad).unwrap();
        let said = verify(0, &second, &["--require-anchor"]);
        assert_eq!((&said["verdict"], &said["not_before"]), (&json!("ANCHORED"), &json!(null)), "{said}");
        assert_eq!(said["problems"].as_array().map(Vec::len), Some(1), "{said}");
    }
    // What is kept elsewhere counts as well.
    let proof = names().find(|path| path.extension().is_some_and(|e| e == "tlog-proof")).unwrap();
    let kept = rig.file("kept", &std::fs::read_to_string(proof).unwrap());
    std::fs::remove_dir_all(anchors(&second)).unwrap();
    assert_eq!(verify(0, &second, &["--anchor", &kept, "--require-anchor"])["verdict"], "ANCHORED");
    assert_eq!(
        verify(1, &first, &["--anchor", &kept, "--anchored-before", "2020-01-01T00:00:00Z"])["verdict"],
        "ANCHORED"
    );
    // A proof of an event has the first note that was signed of its session.
    let after = rig.file("after", &prove(&first));
    let proof = |code, file: &str, more: &[&str]| {
        rig.json(code, &[&["verify-proof", file, "--policy", &policy], more].concat())
    };
    assert_eq!(proof(1, &before, &["--require-anchor"])["anchor"]["verdict"], "UNANCHORED");
    let said = proof(0, &after, &["--require-anchor", "--anchored-before", "2999-01-01T00:00:00Z"]);
    assert_eq!((&said["anchor"]["verdict"], &said["anchor"]["size"]), (&json!("ANCHORED"), &json!(3)), "{said}");
    assert_eq!(said["unmet"], json!([]));
    proof(1, &after, &["--anchored-before", "2020-01-01T00:00:00Z"]);
    assert_eq!(rig.json(0, &["verify-proof", &after])["anchor"]["verdict"], "NOT_EVALUATED");
    let none = rig.run(&["verify-pack", &first, "--require-anchor"]);
    assert_eq!(none.status.code(), Some(3), "whose anchors? {}", stderr(&none));
}

#[test]
fn answers_of_witnesses_are_bounded_and_none_is_believed_without_its_key() {
    let rig = rig!();
    rig.record("audit", &[], &[json!({"name": "echo", "arguments": {"text": "x"}})]);
    let stranger = WitnessKey::new("w.example", [7; 32]).unwrap();
    let other = format!("HTTP/1.1 200 OK\r\n\r\n{}", stranger.line(9, &[0; 64]));
    let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(10 << 20));
    let key = Signer::from_seed(SignerId::parse("w").unwrap(), &[5; 32]);
    let key = WitnessKey::new("w.example", key.public()).unwrap();
    let wrong = format!("HTTP/1.1 200 OK\r\n\r\n{}", key.line(9, &[0; 64]));
    for (answer, why) in [
        (other.as_str(), "no signature of the key in the policy"),
        (wrong.as_str(), "does not hold"),
        (long.as_str(), "longer than 64 KiB"),
        ("HTTP/1.1 200 OK\r\n\r\n\u{1b}[2J", "does not read"),
        ("garbage\r\n\r\n", "ended before its answer"),
        ("", "ended before its answer"),
        ("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "redirects (HTTP 302)"),
        ("HTTP/1.1 409 Conflict\r\n\r\n1\n", "HTTP 409"),
        ("HTTP/1.1 409 Conflict\r\n\r\n0\n", "refuses the size"),
        ("HTTP/1.1 403 Forbidden\r\n\r\nno\u{1b}[2J", "HTTP 403: no"),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let policy = policy(&rig, &[("w", &key, at)]);
        let answer = answer.as_bytes().to_vec();
        let (over, is_over) = std::sync::mpsc::channel::<()>();
        let served = std::thread::spawn(move || {
            listener.set_nonblocking(true).unwrap();
            while is_over.try_recv().is_err() {
                let Ok((mut stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                let _ = stream.read(&mut [0; 1 << 16]);
                let _ = stream.write_all(&answer);
            }
        });
        let out = rig.run(&["anchor", "--policy", &policy, "audit"]);
        over.send(()).unwrap();
        served.join().unwrap();
        let said = stdout(&out);
        assert!(out.status.code() == Some(1) && said.contains(why), "{why}: {said}{}", stderr(&out));
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    assert!(check::ledger(&rig).iter().all(|line| line.kind != LedgerKind::Anchored));
    let bad = rig.file("bad.policy", "quorum none\nquorum none\n");
    for (policy, code) in [(bad.as_str(), "line 2"), ("nowhere", "nowhere")] {
        let out = rig.run(&["anchor", "--policy", policy, "audit"]);
        assert!(out.status.code() == Some(3) && stderr(&out).contains(code), "{}", stderr(&out));
    }
}

fn copy(rig: &Rig, from: &str, to: &str) {
    assert!(rig.command("cp").args(["-a", from, to]).status().unwrap().success());
}
