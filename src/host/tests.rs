//! A command that is served, asked over its socket.

use super::*;
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
};

/// Numbers are the ids of requests; what a call does is the name of its tool.
const SERVER: &str = r#"
echo $$ >> pids
sleep 600 & echo $! >> pids
while IFS= read -r line; do
  id=${line#*'"id":'}; id=${id%%[,\}]*}
  case $line in
    *'"server/discover"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{}}}' ;;
    *'"pid"'*) echo '{"jsonrpc":"2.0", "id":'$id' ,"result":{"a":1.0,"pid":'$$'}}' ;;
    *'"variables"'*) echo '{"id":'$id',"result":"'$MINE-${ASSAY_TEST_OURS-none}'"}' ;;
    *'"ask"'*) call=$id; echo '{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage"}' ;;
    *'"id":"s1"'*) echo '{"jsonrpc":"2.0","id":'$call',"result":{"said":true}}' ;;
    *'"notifications/poke"'*) echo '{"jsonrpc":"2.0","method":"notifications/poked"}' ;;
    *'"crash"'*) echo 'it crashes' >&2; exit 3 ;;
    *'"flood"'*) head -c 300000 /dev/zero >&2; echo 'no message'; echo '{"id":'$id',"result":{}}' ;;
  esac
done
sleep 600
"#;

struct Rig {
    tmp: tempfile::TempDir,
    served: Option<Served>,
}

impl Rig {
    fn new(max: usize, idle: Duration) -> Self {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("server.sh"), SERVER).unwrap();
        let command = Command {
            name: "it".to_owned(),
            argv: vec!["sh".into(), "server.sh".into()],
            env: Arc::new(|| Ok(vec![("MINE".into(), "mine".into())])),
            dir: Some(tmp.path().to_owned()),
            max,
            idle,
        };
        let served = Served::begin(command, &tmp.path().join("s"), &Access::default()).unwrap();
        Self { tmp, served: Some(served) }
    }

    fn open(&self, line: &str, more: &str, body: &str) -> Open {
        let mut stream = UnixStream::connect(self.tmp.path().join("s")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        let request = format!(
            "{line} /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        Open { stream, text: String::new() }
    }

    fn ask(&self, line: &str, more: &str, body: &str) -> (u16, String, String) {
        let mut open = self.open(line, more, body);
        open.stream.read_to_string(&mut open.text).unwrap();
        let (head, body) = open.text.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
    }

    /// Begins a session: the header that names it.
    fn session(&self) -> String {
        let (status, head, _) = self.ask("POST", "", &call(0, "initialize", ""));
        assert_eq!(status, 200, "{head}");
        head.lines().find(|line| line.starts_with("mcp-session-id: ")).unwrap().to_owned() + "\r\n"
    }

    fn call(&self, session: &str, id: u64, tool: &str) -> String {
        let (status, _, body) = self.ask("POST", session, &call(id, "tools/call", tool));
        assert_eq!(status, 200, "{body}");
        body
    }

    /// The processes that there are of it.
    fn running(&self) -> usize {
        let pids = fs::read_to_string(self.tmp.path().join("pids")).unwrap_or_default();
        let runs = |pid: &&str| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.starts_with(" Z"))
        };
        pids.lines().filter(runs).count()
    }
}

struct Open {
    stream: UnixStream,
    text: String,
}

impl Open {
    #[track_caller]
    fn upto(&mut self, mark: &str) -> &str {
        let mut buffer = [0; 4096];
        while !self.text.contains(mark) {
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "{mark}: {}", self.text);
            self.text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        &self.text
    }
}

fn call(id: u64, method: &str, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"{tool}"}}}}"#)
}

fn modern(id: u64, method: &str, tool: &str) -> String {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"{tool}","_meta":{meta}}}}}"#)
}

fn pid(body: &str) -> Value {
    serde_json::from_str::<Value>(body).unwrap()["result"]["pid"].clone()
}

#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    assay_support::rig::until("a state of a command", || is_so().then_some(()));
}

const LONG: Duration = Duration::from_secs(900);

#[test]
fn each_session_has_a_process_and_its_bytes_pass_as_they_are() {
    let rig = Rig::new(8, LONG);
    let (a, b) = (rig.session(), rig.session());
    let body = rig.call(&a, 7, "pid");
    assert_eq!(body, format!(r#"{{"jsonrpc":"2.0", "id":7 ,"result":{{"a":1.0,"pid":{}}}}}"#, pid(&body)));
    assert_eq!(pid(&rig.call(&a, 8, "pid")), pid(&body));
    assert_ne!(pid(&rig.call(&b, 7, "pid")), pid(&body));
    assert!(rig.call(&b, 9, "variables").contains("mine-none"));
    assert_eq!(rig.call(&b, 10, "flood"), r#"{"id":10,"result":{}}"#);
    assert_eq!(rig.running(), 4);
    assert_eq!(rig.ask("DELETE", &a, "").0, 200);
    assert_eq!(rig.ask("POST", &a, &call(9, "tools/call", "pid")).0, 404);
    // It has what ignores the end of its input, and what it forked, ended.
    until(|| rig.running() == 2);
    assert_eq!(rig.ask("POST", "", &call(9, "tools/call", "pid")).0, 400);
    assert_eq!(rig.ask("POST", &b, "{").0, 400);
    assert_eq!(rig.ask("PUT", &b, "").0, 405);
}

#[test]
fn a_server_asks_its_client_and_a_stream_that_was_cut_is_resumed() {
    let rig = Rig::new(8, LONG);
    let session = rig.session();
    let mut open = rig.open("POST", &session, &call(3, "tools/call", "ask"));
    assert!(open.upto("createMessage\"}\n\n").contains("id: 2-1\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"s1\""));
    drop(open);
    assert_eq!(rig.ask("POST", &session, r#"{"jsonrpc":"2.0","id":"s1","result":{}}"#).0, 202);
    let resume = |id: &str| rig.ask("GET", &format!("{session}Last-Event-ID: {id}\r\n"), "");
    let (status, head, body) = resume("2-1");
    assert!(status == 200 && head.contains("text/event-stream"), "{head}");
    assert!(body.contains("id: 2-2\ndata: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"said\":true}}\n\n"), "{body}");
    assert!(!body.contains("s1"), "{body}");
    assert_eq!((resume("9-1").0, resume("x").0), (400, 400));
    // What belongs to no request waits for who listens.
    assert_eq!(rig.ask("POST", &session, r#"{"method":"notifications/poke"}"#).0, 202);
    let mut own = rig.open("GET", &session, "");
    assert!(own.upto("poked\"}\n\n").contains("id: 0-1\n"));
    assert_eq!(rig.ask("POST", &session, r#"{"method":"notifications/poke"}"#).0, 202);
    own.upto("id: 0-2\n");
}

#[test]
fn exchanges_without_sessions_have_processes_to_themselves() {
    let rig = Rig::new(8, LONG);
    let ask = |id, method, tool| rig.ask("POST", "", &modern(id, method, tool)).2;
    let first = pid(&ask(1, "tools/call", "pid"));
    assert_eq!(pid(&ask(1, "tools/call", "pid")), first);
    let mut open = rig.open("POST", "", &modern(1, "tools/call", "ask"));
    open.upto("s1");
    assert_ne!(pid(&ask(1, "tools/call", "pid")), first);
    assert_eq!(rig.running(), 4);
    // That is how a client cancels.
    drop(open);
    until(|| rig.running() == 2);
    // A process that does not know the question is not kept for more of these.
    assert!(ask(5, "server/discover", "").contains("-32601"));
    until(|| rig.running() == 0);
}

#[test]
fn processes_are_as_many_as_may_be_and_idle_ones_end() {
    let rig = Rig::new(1, LONG);
    let session = rig.session();
    let (status, head, body) = rig.ask("POST", "", &call(0, "initialize", ""));
    assert!(status == 503 && head.contains("retry-after: 5") && body.contains("as many sessions"), "{head}{body}");
    assert_eq!(rig.ask("DELETE", &session, "").0, 200);
    rig.session();
    let rig = Rig::new(1, Duration::from_millis(200));
    let session = rig.session();
    until(|| rig.running() == 0);
    assert_eq!(rig.ask("POST", &session, &call(1, "tools/call", "pid")).0, 404);
}

#[test]
fn a_process_that_ends_is_told_and_one_that_ends_again_and_again_is_not_started_at_once() {
    let rig = Rig::new(8, LONG);
    let session = rig.session();
    let body: Value = serde_json::from_str(&rig.call(&session, 4, "crash")).unwrap();
    let why = "the server's process ended with exit code 3";
    assert_eq!((&body["id"], &body["error"]), (&json!(4), &json!({"code": -32000, "message": why})));
    until(|| rig.ask("POST", &session, &call(5, "tools/call", "pid")).0 == 404);
    let (status, head, _) = rig.ask("POST", "", &call(0, "initialize", ""));
    assert!(status == 503 && head.contains("retry-after: "), "{head}");
    until(|| rig.ask("POST", "", &call(0, "initialize", "")).0 == 200);
}

#[test]
fn when_it_is_served_no_more_nothing_is_left() {
    let mut rig = Rig::new(8, LONG);
    let session = rig.session();
    rig.session();
    let mut open = rig.open("POST", &session, &call(3, "tools/call", "ask"));
    open.upto("s1");
    assert_eq!(rig.running(), 4);
    drop(rig.served.take());
    assert_eq!(rig.running(), 0);
}
