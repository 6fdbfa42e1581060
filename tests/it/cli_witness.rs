//! `assay witness` over HTTP: the specification's answers, and what is left after a kill. Row w4 of the attacks on witnesses; what
//! needs no process is tested in `src/witness/keep.rs`.

use assay::{
    model::{checkpoint::text_of, sha256_hex},
    note::{self, Key, WitnessKey},
    pack::{
        keys::{Signer, SignerId},
        verify::verify_ed25519,
    },
    tree::{Frontier, leaf},
    witness::request::Request,
};
use assay_support::rig::{Client, Rig, rig, stderr, stdout};
use rustix::process::Signal;
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
