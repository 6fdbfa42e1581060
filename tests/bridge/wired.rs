//! `assay mcp-proxy --upstream-url` as a process: its evidence, its exit codes, its ends.

use crate::rig::{PATIENCE, Reply, Seen, Server, call, greeting, initialize, initialized, legacy, modern};
use assay::{
    model::{
        AuditEvent, Detail, EndReason, EventKind, RpcId, SessionDoc,
        http::HttpExchange,
        words::{ExchangeEnd, ExchangeOrigin, ExchangePhase},
    },
    pack::{
        build::self_check,
        verify::{Completeness, VerifyOptions, verify},
    },
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Instant,
};

fn files(dir: &Path) -> Vec<PathBuf> {
    assay_support::rig::files(dir, |_| true)
}

/// What must be nowhere in what is kept.
const SECRETS: [&str; 4] = ["c4n4ry-token", "c4n4ry-session", "c4n4ry-query", "c4n4ry-cookie"];

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn assay(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
        command.args(args).current_dir(self.path()).env("HOME", self.path()).env("ASSAY_HOME", self.path().join("a"));
        for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy"] {
            command.env_remove(name);
        }
        command.env("XDG_RUNTIME_DIR", self.path()).env("TOKEN", "Bearer c4n4ry-token");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut child = self.assay(args).spawn().unwrap();
        drop(child.stdin.take());
        child.wait_with_output().unwrap()
    }

    /// The packs, in the order of what they continue.
    fn packs(&self) -> Vec<Pack> {
        let mut packs: Vec<Pack> = files(&self.path().join("d/packs")).iter().map(|path| Pack::read(path)).collect();
        packs.sort_by_key(|pack| pack.doc.started_at.millis());
        for n in 1..packs.len() {
            let at = packs.iter().position(|p| p.doc.continues == Some(packs[n - 1].doc.session_id));
            packs.swap(n, at.unwrap_or(n));
        }
        packs
    }

    /// All bytes of all files below it.
    fn kept(&self) -> Vec<u8> {
        fn all(dir: &Path, bytes: &mut Vec<u8>) {
            for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() { all(&entry, bytes) } else { bytes.extend(fs::read(&entry).unwrap_or_default()) }
            }
        }
        let mut bytes = Vec::new();
        all(self.path(), &mut bytes);
        bytes
    }
}

struct Pack {
    path: PathBuf,
    doc: SessionDoc,
    events: Vec<AuditEvent>,
}

impl Pack {
    fn read(path: &Path) -> Self {
        assert_eq!(self_check(path), Vec::<String>::new(), "{}", path.display());
        let doc = serde_json::from_slice(&fs::read(path.join("session.json")).unwrap()).unwrap();
        let log = fs::read_to_string(path.join("audit_log.jsonl")).unwrap();
        let events = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { path: path.to_owned(), doc, events }
    }

    fn exchanges(&self) -> Vec<HttpExchange> {
        let exchange = |e: &AuditEvent| match &e.detail {
            Detail::HttpExchange(d) => Some(d.clone()),
            _ => None,
        };
        self.events.iter().filter_map(exchange).collect()
    }

    /// Those that are over: method, ids, status.
    fn over(&self) -> Vec<(String, String, Option<u16>)> {
        let of = |d: HttpExchange| {
            let ids: Vec<String> = d.carries.iter().map(|id| serde_json::to_string(id).unwrap()).collect();
            let status = d.status();
            (d.method, ids.join(" "), status)
        };
        self.exchanges().into_iter().filter(|d| d.phase == ExchangePhase::End).map(of).collect()
    }

    fn count(&self, kind: EventKind) -> usize {
        self.events.iter().filter(|e| e.event == kind).count()
    }
}

/// A client, and the proxy that it has started.
struct Wired {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Wired {
    fn start(home: &Home, server: &Server, more: &[&str]) -> Self {
        let url = format!("{}?key=c4n4ry-query", server.url());
        let args = ["mcp-proxy", "--audit-dir", "d", "--upstream-url", &url, "--header-env", "Authorization=TOKEN"];
        let mut child = home.assay(&[&args[..], more].concat()).spawn().unwrap();
        let (tell, lines) = mpsc::channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        Self { stdin: child.stdin.take(), child, lines }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn hear(&self) -> Value {
        serde_json::from_str(&self.lines.recv_timeout(PATIENCE).unwrap()).unwrap()
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.say(message);
        self.hear()
    }

    fn begin(&mut self) {
        assert!(self.ask(&initialize())["result"].is_object());
        self.say(&initialized());
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its exit code, and what it said on stderr.
    fn end(mut self) -> (Option<i32>, String) {
        self.stdin = None;
        self.wait()
    }

    fn wait(mut self) -> (Option<i32>, String) {
        let mut stderr = self.child.stderr.take().unwrap();
        let reading = thread::spawn(move || {
            let mut said = String::new();
            let _ = stderr.read_to_string(&mut said);
            said
        });
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the proxy does not end");
            thread::sleep(std::time::Duration::from_millis(5));
        }
        (self.child.wait().unwrap().code(), reading.join().unwrap())
    }
}

/// A server whose session id and cookie are secrets. `forget` makes it forget the session.
fn server() -> Server {
    let sessions = AtomicUsize::new(0);
    Server::start(move |seen: &Seen, reply: &mut Reply<'_>| {
        let session = format!("c4n4ry-session-{}", sessions.load(Ordering::Relaxed));
        let knows = seen.header("Mcp-Session-Id").is_none_or(|id| id == session);
        match seen.what().as_str() {
            "initialize" => {
                let now = format!("c4n4ry-session-{}", sessions.fetch_add(1, Ordering::Relaxed) + 1);
                let headers = [
                    ("Content-Type", "application/json"),
                    ("Mcp-Session-Id", &*now),
                    ("Set-Cookie", "a=c4n4ry-cookie; Path=/"),
                ];
                reply.send(200, &headers, &seen.result(&greeting()));
            }
            _ if !knows => reply.send(404, &[], ""),
            "tools/call" if seen.json()["params"]["name"] == "forget" => {
                sessions.fetch_add(100, Ordering::Relaxed);
                reply.json(&seen.result(&json!({"content": []})));
            }
            "tools/call" if seen.json()["params"]["name"] == "wait" => {
                reply.stream();
                reply.chunk(": waiting\n\n");
            }
            _ => legacy(seen, reply),
        }
    })
}

#[test]
fn what_the_bridge_asks_and_is_answered_is_in_the_chain_of_its_client() {
    let (home, server) = (Home::new(), server());
    let mut client = Wired::start(&home, &server, &[]);
    client.begin();
    assert_eq!(client.ask(&call("seven", "a"))["id"], "seven");
    server.until(|seen| seen.iter().any(|s| s.what() == "GET"));
    assert_eq!(client.end().0, Some(0));
    let [pack] = &home.packs()[..] else { panic!() };
    let post = |ids: &str, status| ("POST".to_owned(), ids.to_owned(), Some(status));
    let mut over = pack.over();
    over.sort();
    let mut expected = vec![
        post("0", 200),
        post("", 202),
        ("GET".to_owned(), String::new(), Some(405)),
        post("\"seven\"", 200),
        ("DELETE".to_owned(), String::new(), Some(200)),
    ];
    expected.sort();
    assert_eq!(over, expected);
    for d in pack.exchanges() {
        assert_eq!((d.origin, d.client, d.downstream), (ExchangeOrigin::Bridge, None, None));
        assert_eq!((d.endpoint, d.upstream.as_deref(), d.target.path.as_str()), (true, Some("h1"), "/mcp"));
        assert!(d.session.is_some() && d.credential.is_some() && d.ended.is_some_and(|e| e == ExchangeEnd::Complete));
        assert_eq!(d.target.query, ["key"]);
    }
    let seen = server.last("tools/call");
    let asked = pack.exchanges().into_iter().find(|d| d.carries == [RpcId::Text("seven".into())]).unwrap();
    assert_eq!(asked.request.sha256, Some(assay::model::sha256_hex(&seen.body)));
    assert_eq!(asked.request.bytes, Some(seen.body.len() as u64));
    assert_eq!(pack.doc.transport, "streamable-http");
    let http = pack.doc.http.as_ref().unwrap();
    assert_eq!((http.exchanges, http.downstream.len(), &http.upstream[..]), (5, 0, &["h1".to_owned()][..]));
    assert!(http.mcp_session.is_some() && http.client_key.is_none());
    assert!(pack.doc.session_complete);
    let kept = home.kept();
    for secret in SECRETS {
        assert!(memchr::memmem::find(&kept, secret.as_bytes()).is_none(), "{secret}");
    }
    let live: Vec<_> = files(&home.path().join("d/live"));
    assert!(live.is_empty(), "{live:?}");
    assert!(!files(home.path()).iter().any(|path| path.extension().is_some_and(|e| e == "ring" || e == "state")));
}

#[test]
fn a_session_that_was_lost_is_continued_by_another_with_what_the_bridge_asked_by_itself() {
    let (home, server) = (Home::new(), server());
    let mut client = Wired::start(&home, &server, &[]);
    client.begin();
    assert!(client.ask(&call(1, "forget"))["result"].is_object());
    assert!(client.ask(&call(2, "a"))["result"].is_object());
    let (code, said) = client.end();
    assert!(code == Some(0) && said.contains("a new one has begun"), "{said}");
    let [first, second] = &home.packs()[..] else { panic!() };
    assert_eq!((first.doc.end_reason.known(), first.doc.session_complete), (Some(EndReason::SessionLost), true));
    assert_eq!((second.doc.continues, second.doc.session_complete), (Some(first.doc.session_id), true));
    assert_eq!((first.doc.counts.calls, second.doc.counts.calls), (1, 1), "the call that met the loss goes over");
    let session = |pack: &Pack| pack.doc.http.as_ref().unwrap().mcp_session.clone().unwrap();
    assert_ne!(session(first), session(second));
    assert!(second.over().contains(&("POST".into(), String::new(), Some(200))), "initialize, by the bridge");
    let own = second.exchanges().into_iter().find(|d| d.method == "POST" && d.status() == Some(200)).unwrap();
    assert_eq!(own.session.as_deref(), Some(&*session(second)));
    let seen = server.last("initialize");
    assert_eq!(own.request.sha256, Some(assay::model::sha256_hex(&seen.body)));
}

#[test]
fn a_server_of_the_older_transport_is_recorded_as_such() {
    let home = Home::new();
    let server = Server::start(crate::old::older());
    let mut client = Wired::start(&home, &server, &[]);
    client.begin();
    assert!(client.ask(&call(1, "a"))["id"] == 1);
    assert_eq!(client.end().0, Some(0));
    let [pack] = &home.packs()[..] else { panic!() };
    assert_eq!(pack.doc.transport, "sse");
    assert!(pack.over().iter().any(|(method, ids, _)| method == "POST" && ids == "1"));
    assert!(pack.over().iter().any(|(method, ..)| method == "GET"), "{:?}", pack.over());
}

#[test]
fn what_cannot_work_ends_with_3_and_says_what_to_do() {
    let home = Home::new();
    let free = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let server = server();
    let (nobody, here) = (format!("http://{free}/mcp"), server.url());
    let tls = here.replace("http://", "https://");
    let with_password = here.replace("http://", "http://u:p@");
    for (args, what) in [
        (&["--upstream-url", &nobody][..], "cannot connect to"),
        (&["--upstream-url", &tls], "no TLS with"),
        (&["--upstream-url", "ftp://127.0.0.1/"], "no http:// or https:// URL"),
        (&["--upstream-url", "nonsense"], "is no URL"),
        (&["--upstream-url", &with_password], "user name or a password"),
        (&["--upstream-url", &here, "--", "server"], "there are two servers"),
        (&["--upstream-url", &here, "--cacert", "none"], "cannot read --cacert"),
        (&["--upstream-url", &here, "--proxy", "x"], "no URL of a proxy"),
        (&["--upstream-url", &here, "--header-env", "A=NOT_SET"], "NOT_SET"),
        (&["--upstream-url", &here, "--header", "no colon"], "--header"),
        (&["--upstream-url", &here, "--profile", "guard"], "--policy"),
    ] {
        let out = home.run(&[&["mcp-proxy", "--audit-dir", "d"], args].concat());
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(3), "{args:?}: {said}");
        assert!(said.contains(what) && said.contains("hint: "), "{args:?}: {said}");
        assert!(out.stdout.is_empty() && !home.path().join("d/packs").exists(), "{args:?}");
    }
    // What is no MCP server shows with the client's first request.
    let server = Server::start(|_, reply| reply.send(404, &[], "nothing"));
    let mut client = Wired::start(&home, &server, &[]);
    let answer = client.ask(&initialize());
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    let (code, said) = client.wait();
    assert!(code == Some(3) && said.contains("no MCP endpoint"), "{code:?} {said}");
}

#[test]
fn a_session_that_must_not_be_lost_ends_with_1() {
    let (home, server) = (Home::new(), server());
    let mut client = Wired::start(&home, &server, &["--session-loss", "exit"]);
    client.begin();
    client.ask(&call(1, "forget"));
    assert!(client.ask(&call(2, "a"))["error"]["message"].as_str().unwrap().contains("session lost"));
    let (code, said) = client.wait();
    assert_eq!(code, Some(1), "{said}");
}

const POLICY: &str = "version: \"1\"\ndefault: deny\nallowlist: [a]\n";

fn guarded(home: &Home, server: &Server) -> Wired {
    fs::write(home.path().join("p.yaml"), POLICY).unwrap();
    Wired::start(home, server, &["--profile", "guard", "--policy", "p.yaml"])
}

#[test]
fn a_guard_lets_pass_what_the_policy_allows_and_nothing_else_reaches_the_server() {
    let (home, server) = (Home::new(), server());
    let mut client = guarded(&home, &server);
    client.begin();
    assert!(client.ask(&call(1, "a"))["result"].is_object());
    let denied = client.ask(&call(2, "b"));
    assert!(denied["id"] == 2 && denied["error"].is_object(), "{denied}");
    assert_eq!(client.end().0, Some(1));
    assert_eq!(server.count("tools/call"), 1);
    let [pack] = &home.packs()[..] else { panic!() };
    assert_eq!((pack.doc.counts.denied, pack.count(EventKind::RequestBlocked)), (1, 1));
    assert!(!pack.over().iter().any(|(_, ids, _)| ids == "2"));
}

#[test]
fn a_guard_also_judges_the_first_message_of_a_client_that_does_not_begin_a_session() {
    let (home, server) = (Home::new(), server());
    let mut client = guarded(&home, &server);
    let named = |id, tool| modern(id, "tools/call", json!({"name": tool, "arguments": {}}));
    assert!(client.ask(&named(1, "b"))["error"].is_object());
    assert!(client.ask(&named(2, "a"))["result"].is_object());
    assert_eq!(client.end().0, Some(1));
    assert_eq!(server.count("tools/call"), 1);
}

#[test]
fn a_guard_keeps_what_the_server_asks_from_the_client() {
    let home = Home::new();
    let server = Server::start(|seen, reply| match seen.what().as_str() {
        "tools/call" => {
            let asks = json!({"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": {}});
            reply.stream();
            reply.chunk(&format!("data: {asks}\n\n"));
            reply.chunk(&format!("data: {}\n\n", seen.result(&json!({}))));
            reply.end();
        }
        _ => legacy(seen, reply),
    });
    let mut client = guarded(&home, &server);
    client.begin();
    assert_eq!(client.ask(&call(1, "a"))["id"], 1, "the server's request does not pass");
    let seen = server.until(|seen| seen.iter().any(|s| s.json()["error"].is_object()));
    let refused = seen.iter().find(|s| s.json()["error"].is_object()).unwrap();
    assert_eq!(refused.id(), "s");
    client.end();
    let [pack] = &home.packs()[..] else { panic!() };
    assert!(pack.over().iter().any(|(_, ids, status)| ids == "\"s\"" && *status == Some(200)), "{:?}", pack.over());
}

#[test]
fn a_signal_ends_the_session_at_the_server_too() {
    let (home, server) = (Home::new(), server());
    let mut client = Wired::start(&home, &server, &[]);
    client.begin();
    client.ask(&call(1, "a"));
    client.signal(rustix::process::Signal::TERM);
    assert_eq!(client.wait().0, Some(0));
    assert_eq!(server.count("DELETE"), 1);
    let [pack] = &home.packs()[..] else { panic!() };
    assert!(pack.over().iter().any(|(method, ..)| method == "DELETE"));
}

/// What recovery does the second time.
fn recover_twice(home: &Home) -> Vec<Pack> {
    let recover = || home.run(&["recover", "--audit-dir", "d"]);
    let first = recover();
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let bytes = |packs: &[Pack]| {
        let manifests = packs.iter().map(|pack| fs::read(pack.path.join("manifest.json")));
        manifests.map(Result::ok).collect::<Vec<_>>()
    };
    let packs = home.packs();
    let again = recover();
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing to recover"));
    assert_eq!(bytes(&packs), bytes(&home.packs()));
    assert_eq!(packs.len(), home.packs().len());
    assert!(files(&home.path().join("d/live")).is_empty());
    packs
}

fn completeness(pack: &Pack) -> Completeness {
    verify(&pack.path, &VerifyOptions::default(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap().completeness
}

/// A proxy whose server has lost the session, and which was killed then while a call waits; `rests`: the next session has
/// begun on disk.
fn killed_after_a_loss(home: &Home, server: &Server, rests: bool) -> Vec<Pack> {
    let mut client = Wired::start(home, server, &[]);
    client.begin();
    client.ask(&call(1, "forget"));
    client.ask(&call(2, "a"));
    let sessions = || assay::paths::AuditDir::at(home.path().join("d")).sessions().len();
    assay_support::rig::until("the next session", || (!rests || sessions() == 2).then_some(()));
    client.say(&call(3, "wait"));
    server.until(|seen| seen.iter().filter(|s| s.what() == "tools/call").count() >= 4);
    client.signal(rustix::process::Signal::KILL);
    client.wait();
    recover_twice(home)
}

#[test]
fn nothing_is_lost_whenever_a_proxy_is_killed_after_its_server_has_lost_the_session() {
    let rounds = std::env::var("ASSAY_BRIDGE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    for _ in 0..rounds {
        let (home, server) = (Home::new(), server());
        let packs = killed_after_a_loss(&home, &server, false);
        let counts: Vec<_> = packs.iter().map(|pack| pack.doc.counts).collect();
        assert_eq!(counts.iter().map(|c| c.calls).sum::<u64>(), 3, "{counts:?}");
        assert_eq!(counts.iter().map(|c| c.missed + c.missed_bytes).sum::<u64>(), 0, "{counts:?}");
        assert_eq!(counts.iter().map(|c| c.timeouts).sum::<u64>(), 1, "{counts:?}");
    }
}

#[test]
fn a_proxy_that_is_killed_between_two_sessions_leaves_one_which_says_so() {
    use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
    let (home, server) = (Home::new(), server());
    let mut client = Wired::start(&home, &server, &[]);
    client.begin();
    assay_support::rig::until("the session", || (files(&home.path().join("d/audit")).len() == 2).then_some(()));
    // No file can grow: the next session cannot begin.
    let limit = Rlimit { current: Some(0), maximum: None };
    prlimit(Some(Pid::from_child(&client.child)), Resource::Fsize, limit).unwrap();
    client.ask(&call(1, "forget"));
    assert!(client.ask(&call(2, "a"))["result"].is_object());
    client.signal(Signal::KILL);
    client.wait();
    let [pack] = &recover_twice(&home)[..] else { panic!("{} packs", home.packs().len()) };
    let notes = &pack.doc.recovery_notes;
    assert!(notes.iter().any(|note| note.contains("was about to end (session_lost)")), "{notes:?}");
    assert_eq!((pack.doc.counts.calls, pack.doc.counts.missed, pack.doc.continues), (2, 0, None));
}

#[test]
fn a_proxy_that_is_killed_is_recovered_with_what_it_exchanged() {
    let (home, server) = (Home::new(), server());
    let packs = killed_after_a_loss(&home, &server, true);
    let [first, second] = &packs[..] else { panic!("{} packs, {:?}", packs.len(), packs[0].doc) };
    assert_eq!(second.doc.continues, Some(first.doc.session_id));
    assert_eq!(second.doc.end_reason.known(), Some(EndReason::Crashed));
    assert_eq!((first.doc.session_complete, completeness(second)), (true, Completeness::Incomplete));
    let open: Vec<_> = second.exchanges().into_iter().filter(|d| d.phase == ExchangePhase::Open).collect();
    assert!(open.iter().any(|d| d.carries == [RpcId::Int(3)]), "{open:?}");
    assert_eq!(second.doc.http.as_ref().unwrap().exchanges, {
        let numbers: std::collections::BTreeSet<u64> = second.exchanges().iter().map(|d| d.exchange).collect();
        numbers.len() as u64
    });
    let kept = home.kept();
    for secret in SECRETS {
        assert!(memchr::memmem::find(&kept, secret.as_bytes()).is_none(), "{secret}");
    }
}

#[test]
fn a_proxy_that_is_killed_before_its_server_has_answered_is_one_over_http() {
    let home = Home::new();
    let server = Server::start(|_, reply| {
        reply.stream();
        reply.chunk(": waiting\n\n");
    });
    let mut client = Wired::start(&home, &server, &[]);
    client.say(&initialize());
    server.until(|seen| !seen.is_empty());
    client.signal(rustix::process::Signal::KILL);
    client.wait();
    let packs = recover_twice(&home);
    let [pack] = &packs[..] else { panic!("{}", packs.len()) };
    assert_eq!((pack.doc.transport.as_str(), pack.doc.http.is_some()), ("streamable-http", true));
    let open = pack.exchanges();
    assert!(open.iter().any(|d| d.carries == [RpcId::Int(0)] && d.phase == ExchangePhase::Open), "{open:?}");
}
