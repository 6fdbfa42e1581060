//! The server of this package, driven as clients do it: what it answers, and what its packs say of that.

mod disk;
mod ends;

use assay::{
    canon,
    model::pack::RECEIPTS,
    pack::verify::{Claims, Completeness, Integrity, VerifyOptions, VerifyReport, verify},
};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Lines, Read, Write},
    net::TcpStream,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// A place of its own for evidence and keys.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn server(&self, args: &[&str]) -> Child {
        self.server_by(&[], args)
    }

    /// The same, started by a program that starts another one.
    fn server_by(&self, starter: &[&str], args: &[&str]) -> Child {
        // A limit on file sizes is an error of the write.
        let ignoring = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_receipted")];
        let argv = [starter, &ignoring, args].concat();
        Command::new(argv[0])
            .args(&argv[1..])
            .current_dir(self.0.path())
            .env("ASSAY_HOME", self.0.path().join("home"))
            .env("ASSAY_AUDIT_DIR", self.0.path().join("audit"))
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn packs(&self) -> Vec<PathBuf> {
        let packs = fs::read_dir(self.0.path().join("audit/packs"));
        let packs = packs.into_iter().flatten().map(|e| e.unwrap().path());
        let is_whole = |p: &PathBuf| !p.file_name().unwrap().to_string_lossy().starts_with('.');
        let mut packs: Vec<_> = packs.filter(is_whole).collect();
        packs.sort();
        packs
    }

    /// The only pack, which is authentic.
    fn pack(&self) -> (VerifyReport, Vec<Value>) {
        let packs = self.packs();
        let [pack] = &packs[..] else { panic!("{packs:?}") };
        (verified(pack), receipts(pack))
    }

    /// The receipts of the only pack, in which nothing is missing.
    fn receipts(&self) -> Vec<Value> {
        let (report, receipts) = self.pack();
        assert_eq!((report.claims, report.completeness), (Claims::Pass, Completeness::Complete));
        receipts
    }

    /// Waits until this is on disk.
    fn await_on_disk(&self, what: &str) {
        until(what, || contains(&self.0.path().join("audit"), what.as_bytes()).then_some(()));
    }
}

/// Waits for something, not for ever.
fn until<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(there) = there() {
            return there;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "waited too long for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// An authentic pack.
fn verified(pack: &Path) -> VerifyReport {
    let options = VerifyOptions { cards: vec!["mcp_escrow_completeness".into()], ..VerifyOptions::default() };
    let report = verify(pack, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.integrity, Integrity::Pass, "{:?}", report.errors);
    report
}

fn receipts(pack: &Path) -> Vec<Value> {
    let text = fs::read_to_string(pack.join(RECEIPTS)).unwrap();
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (n, receipt) in all.iter().enumerate() {
        assert_eq!(receipt["seq"], n, "{receipt}");
    }
    all
}

/// Receipts of these types, in order.
fn of<'r>(all: &'r [Value], kind: &str) -> Vec<&'r Value> {
    all.iter().filter(|r| r["type"] == format!("mcp_tool_{kind}")).collect()
}

/// A client over stdio that shows what really crosses.
struct Client {
    server: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    version: &'static str,
    next: u64,
}

/// What was answered: the result or the error as it stands on the wire.
#[derive(Debug)]
struct Answer {
    is_result: bool,
    wire: String,
    value: Value,
}

impl Answer {
    fn of(line: &str) -> Self {
        let all: BTreeMap<String, Box<RawValue>> = serde_json::from_str(line).unwrap();
        let (is_result, wire) = match (all.get("result"), all.get("error")) {
            (Some(result), None) => (true, result.get().to_owned()),
            (None, Some(error)) => (false, error.get().to_owned()),
            _ => panic!("{line}"),
        };
        Self { is_result, value: serde_json::from_str(&wire).unwrap(), wire }
    }

    fn hash(&self) -> String {
        canon::digest(self.wire.as_bytes(), None).unwrap().to_string()
    }
}

impl Client {
    fn new(place: &Place, version: &'static str, args: &[&str]) -> Self {
        Self::of(place.server(args), version)
    }

    fn of(mut server: Child, version: &'static str) -> Self {
        let stdin = server.stdin.take();
        let stdout = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut client = Self { server, stdin, stdout, version, next: 0 };
        if version == LEGACY {
            let capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
            let info = json!({"name": "tester", "version": "1"});
            client.ask(
                "initialize",
                json!({"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info}),
            );
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        } else {
            client.ask("server/discover", json!({}));
        }
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Sends a request, and gives its id.
    fn request(&mut self, method: &str, mut params: Value) -> u64 {
        if self.version == MODERN {
            params["_meta"] = meta();
        }
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn line(&mut self) -> String {
        self.stdout.next().expect("the server ended").unwrap()
    }

    fn ask(&mut self, method: &str, params: Value) -> Answer {
        let id = self.request(method, params);
        loop {
            let line = self.line();
            if serde_json::from_str::<Value>(&line).unwrap()["id"] == id {
                return Answer::of(&line);
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Answer {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Closes stdin and waits for the end; what it said on stderr.
    fn close(mut self) -> String {
        drop(self.stdin.take());
        let mut said = String::new();
        self.server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        self.server.wait().unwrap();
        said
    }
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
    })
}

/// Every kind of end that answers, in order: tool, arguments, whether the answer is a result.
const ENDS: &[(&str, &str, bool)] = &[
    ("echo", r#"{"text":"hi"}"#, true),
    ("add", r#"{"left":2,"right":3}"#, true),
    ("list", "{}", true),
    ("fail", "{}", true),
    ("refuse", "{}", false),
    ("nothing", "{}", false),
    ("echo", r#"{"text":7}"#, true),
];

#[test]
fn each_call_is_asked_for_and_done_and_its_hash_is_of_what_crossed() {
    for version in [LEGACY, MODERN] {
        for mode in ["whole", "router", "both"] {
            let place = Place::new();
            let mut client = Client::new(&place, version, &["--mode", mode]);
            let mut answers = Vec::new();
            for (tool, arguments, is_result) in ENDS {
                let answer = client.call(tool, serde_json::from_str(arguments).unwrap());
                assert_eq!(answer.is_result, *is_result, "{version} {mode} {tool}: {}", answer.wire);
                answers.push(answer);
            }
            client.close();
            let all = place.receipts();
            let (requested, executed) = (of(&all, "requested"), of(&all, "executed"));
            assert_eq!((requested.len(), executed.len()), (ENDS.len(), ENDS.len()), "{version} {mode}");
            assert_eq!(all.len(), 2 * ENDS.len() + 2);
            for (n, (tool, arguments, _)) in ENDS.iter().enumerate() {
                let (asked, done, answer) = (requested[n], executed[n], &answers[n]);
                let what = format!("{version} {mode} {tool}: {} {done}", answer.wire);
                assert_eq!(done["request_receipt_id"], asked["receipt_id"], "{what}");
                assert_eq!(asked["tool_name"], *tool, "{what}");
                assert_eq!(asked["actor"], "tester", "{what}");
                assert_eq!(asked["protocol_version"], version, "{what}");
                assert_eq!(asked["server_transport"], "stdio", "{what}");
                let hash = canon::digest(arguments.as_bytes(), None).unwrap().to_string();
                assert_eq!(asked["arguments_hash"], hash, "{what}");
                assert_eq!(done["result_hash"], answer.hash(), "{what}");
                let failed = !answer.is_result || answer.value["isError"] == true;
                assert_eq!(done["outcome"], if failed { "error" } else { "success" }, "{what}");
                assert!(!done.to_string().contains("s3cret"), "{what}");
            }
            assert_eq!(requested[0]["arguments_redacted"], json!({"text": "hi"}));
            assert_eq!(requested[1]["arguments_redacted"], Value::Null);
        }
    }
}

#[test]
fn only_the_tools_that_were_named_are_recorded() {
    let place = Place::new();
    let mut client = Client::new(&place, LEGACY, &["--mode", "tools"]);
    for (tool, arguments, _) in ENDS {
        client.call(tool, serde_json::from_str(arguments).unwrap());
    }
    let said = client.close();
    assert!(said.contains("the router has no tool \"none\""), "{said}");
    let all = place.receipts();
    let tools: Vec<_> = of(&all, "requested").iter().map(|r| r["tool_name"].clone()).collect();
    assert_eq!(tools, ["echo", "add", "echo"]);
    assert_eq!(of(&all, "executed")[2]["outcome"], "error");
}

#[test]
fn over_http_the_session_is_named_and_its_id_is_not() {
    for version in [LEGACY, MODERN] {
        let place = Place::new();
        let mut server = place.server(&["--http"]);
        let mut url = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        let host = url.trim().trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        let mut session = None;
        let mut post = |id: u64, method: &str, mut params: Value| -> String {
            let mut headers = String::new();
            if version == MODERN {
                params["_meta"] = meta();
                headers = format!("mcp-protocol-version: {MODERN}\r\nmcp-method: {method}\r\n");
                if let Some(name) = params["name"].as_str() {
                    headers += &format!("mcp-name: {name}\r\n");
                }
            } else if let Some(session) = &session {
                headers = format!("mcp-protocol-version: {LEGACY}\r\nmcp-session-id: {session}\r\n");
            }
            let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
            if id > 0 {
                message["id"] = json!(id);
            }
            let body = message.to_string();
            let mut stream = TcpStream::connect(&host).unwrap();
            write!(
                stream,
                "POST /mcp HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\naccept: \
                 application/json, text/event-stream\r\n{headers}content-length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let id =
                head.lines().filter_map(|l| l.split_once(": ")).find(|(n, _)| n.eq_ignore_ascii_case("mcp-session-id"));
            session = session.take().or(id.map(|(_, id)| id.to_owned()));
            assert!(head.starts_with("HTTP/1.1 20"), "{answer}");
            let line = body.lines().find(|l| l.contains("jsonrpc")).unwrap_or_default();
            line.trim_start_matches("data:").trim().to_owned()
        };
        if version == LEGACY {
            let info = json!({"name": "tester", "version": "1"});
            post(1, "initialize", json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}));
            post(0, "notifications/initialized", json!({}));
        }
        let first = Answer::of(&post(2, "tools/call", json!({"name": "echo", "arguments": {"text": "a"}})));
        post(3, "tools/call", json!({"name": "list", "arguments": {}}));
        let raw_id = session.clone();
        rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM)
            .unwrap();
        server.wait().unwrap();
        let all = place.receipts();
        let (requested, executed) = (of(&all, "requested"), of(&all, "executed"));
        assert_eq!(executed.len(), 2, "{version}");
        assert_eq!(executed[0]["result_hash"], first.hash(), "{version}");
        for asked in requested {
            assert_eq!(asked["server_transport"], "streamable-http");
            match version {
                LEGACY => assert!(asked["session_id"].as_str().unwrap().starts_with("mcp_session_"), "{asked}"),
                _ => assert_eq!(asked["session_id"], Value::Null, "{asked}"),
            }
            assert!(!asked.to_string().contains(raw_id.as_deref().unwrap_or("no session")), "{asked}");
        }
    }
}

#[test]
fn a_refused_call_does_not_run_and_a_later_one_leads_back_to_the_refusal() {
    let policy = "version: \"1\"\ndefault: allow\ndenylist: [fail]\n";
    for as_result in [false, true] {
        let place = Place::new();
        fs::write(place.0.path().join("p.yaml"), policy).unwrap();
        let mut args = vec!["--policy", "p.yaml"];
        args.extend(as_result.then_some("--deny-as-result"));
        let mut client = Client::new(&place, LEGACY, &args);
        let refused = client.call("fail", json!({}));
        client.call("echo", json!({"text": "x"}));
        client.close();
        assert_eq!(refused.is_result, as_result, "{}", refused.wire);
        assert!(refused.wire.contains("denied by policy: the tool fail is on the denylist"), "{}", refused.wire);
        if as_result {
            assert_eq!(refused.value["isError"], true, "{}", refused.wire);
        } else {
            assert_eq!((&refused.value["code"], &refused.value["data"]["action"]), (&json!(-32001), &json!("deny")));
            assert_eq!(refused.value["data"]["rule"], "denylist[0] (fail)", "{}", refused.wire);
        }
        let all = place.receipts();
        let denied = of(&all, "denied");
        assert_eq!((denied.len(), of(&all, "executed").len()), (1, 1));
        assert_eq!(denied[0]["policy_ref"], "denylist[0] (fail)");
        assert!(denied[0]["policy_hash"].as_str().unwrap().starts_with("sha256:"));
    }
}

#[test]
fn a_call_that_asks_for_more_goes_on_and_a_task_ends_later() {
    let place = Place::new();
    let mut client = Client::new(&place, MODERN, &[]);
    let first = client.call("ask", json!({}));
    assert_eq!(first.value["resultType"], "input_required", "{}", first.wire);
    let state = first.value["requestState"].clone();
    let answers = json!({"answer": {"action": "accept", "content": {"name": "x"}}});
    let again = json!({"name": "ask", "arguments": {}, "requestState": state, "inputResponses": answers});
    let second = client.ask("tools/call", again);
    assert_eq!(second.value["content"][0]["text"], "thank you", "{}", second.wire);
    let task = client.call("task", json!({}));
    assert_eq!(task.value["resultType"], "task", "{}", task.wire);
    for _ in 0..2 {
        let got = client.ask("tasks/get", json!({"taskId": "task-1"}));
        assert_eq!(got.value["status"], "completed", "{}", got.wire);
    }
    client.close();
    let all = place.receipts();
    let (requested, executed) = (of(&all, "requested"), of(&all, "executed"));
    assert_eq!((requested.len(), executed.len()), (3, 4));
    assert_eq!(executed[0]["result_type"], "input_required");
    assert_eq!(requested[1]["parent_receipt_id"], executed[0]["receipt_id"]);
    assert_eq!(executed[2]["result_type"], "task");
    assert_eq!(executed[3]["parent_receipt_id"], executed[2]["receipt_id"]);
    assert_eq!(executed[3]["anomalies"], json!(["task_leg"]));
    assert_eq!(executed[3]["invocation_id"], executed[2]["invocation_id"]);
}

#[test]
fn a_handler_that_panics_or_is_dropped_leaves_a_receipt_and_the_server_goes_on() {
    let place = Place::new();
    let mut client = Client::new(&place, LEGACY, &["--impatient"]);
    client.request("tools/call", json!({"name": "panic", "arguments": {}}));
    let given_up = client.call("stuck", json!({}));
    assert_eq!(given_up.value["message"], "given up");
    assert!(client.call("echo", json!({"text": "x"})).is_result);
    client.close();
    let all = place.receipts();
    let how: BTreeSet<_> = of(&all, "executed")
        .iter()
        .map(|r| format!("{} {} {}", r["outcome"], r["outcome_reason"], r["error"]).replace('"', ""))
        .collect();
    let expected = ["error handler_panicked panicked", "success null null", "timeout handler_dropped dropped"];
    assert_eq!(how, expected.map(str::to_owned).into());
}

#[test]
fn a_cancel_is_an_anomaly_and_no_outcome() {
    let place = Place::new();
    let mut client = Client::new(&place, LEGACY, &[]);
    let id = client.request("tools/call", json!({"name": "dawdle", "arguments": {}}));
    // The server must have begun before it can be cancelled: the recording says so.
    place.await_on_disk("mcp_tool_requested");
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    client.call("echo", json!({"text": "x"}));
    client.close();
    let all = place.receipts();
    let done = of(&all, "executed").into_iter().find(|r| r["tool_name"] == "dawdle").unwrap();
    assert_eq!((&done["outcome"], &done["anomalies"]), (&json!("success"), &json!(["cancelled_by_client"])));
}

fn contains(dir: &Path, what: &[u8]) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return contains(&path, what);
        }
        fs::read(&path).is_ok_and(|bytes| bytes.windows(what.len()).any(|w| w == what))
    })
}

#[test]
fn two_hundred_calls_at_once_are_all_there() {
    let place = Place::new();
    let mut client = Client::new(&place, LEGACY, &[]);
    let ids: BTreeSet<u64> = (0..200)
        .map(|n| client.request("tools/call", json!({"name": "echo", "arguments": {"text": n.to_string()}})))
        .collect();
    let mut answered = BTreeSet::new();
    while answered != ids {
        let line: Value = serde_json::from_str(&client.line()).unwrap();
        answered.insert(line["id"].as_u64().unwrap());
    }
    client.close();
    let all = place.receipts();
    assert_eq!((of(&all, "requested").len(), of(&all, "executed").len()), (200, 200));
    let asked: BTreeSet<_> = of(&all, "requested").iter().map(|r| r["mcp_request_id"].as_u64().unwrap()).collect();
    assert_eq!(asked, ids);
}

#[test]
fn a_killed_server_leaves_its_recording_and_the_next_one_ends_it() {
    let place = Place::new();
    let mut client = Client::new(&place, LEGACY, &[]);
    client.call("echo", json!({"text": "x"}));
    client.request("tools/call", json!({"name": "stuck", "arguments": {}}));
    place.await_on_disk("\"stuck\"");
    client.server.kill().unwrap();
    client.close();
    assert_eq!(place.packs().len(), 0);
    let mut next = Client::new(&place, LEGACY, &[]);
    next.call("echo", json!({"text": "y"}));
    until("the pack", || (!place.packs().is_empty()).then_some(()));
    let crashed = place.packs().remove(0);
    next.close();
    assert_eq!(place.packs().len(), 2);
    let report = verify(&crashed, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.integrity, Integrity::Pass, "{:?}", report.errors);
    assert_ne!(report.completeness, Completeness::Complete);
    let all = receipts(&crashed);
    // Nobody knows what became of the other call, so nothing is said of it.
    assert_eq!((of(&all, "requested").len(), of(&all, "executed").len()), (2, 1));
    assert_eq!(report.facts.coverage.unwrap().coverage.open, 1);
}

/// Methods of the trait in the SDK that this package is built with.
fn methods_of_the_sdk() -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let about = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let about = String::from_utf8(about).unwrap();
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let mut metadata = Command::new(cargo);
    // What is built for other systems may not be here.
    metadata.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", host]);
    metadata.current_dir(env!("CARGO_MANIFEST_DIR"));
    let out = metadata.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let rmcp = packages.iter().find(|p| p["name"] == "rmcp").unwrap();
    let manifest = Path::new(rmcp["manifest_path"].as_str().unwrap());
    let source = fs::read_to_string(manifest.with_file_name("src/handler/server.rs")).unwrap();
    let methods = source.split_once("macro_rules! server_handler_methods").unwrap().1;
    let methods = methods.split_once("\npub trait ServerHandler").unwrap().0;
    let code: String = methods.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let names = code.split(" fn ").skip(1).map(|rest| rest.split(['(', '<']).next().unwrap().to_owned());
    names.collect()
}

#[test]
fn every_method_of_the_sdks_trait_reaches_the_server() {
    let ours = include_str!("../../src/receipts/rmcp.rs").split_once("> ServerHandler for Receipted<H>").unwrap().1;
    let lists = ours.split_once("forward! {").unwrap().1;
    let listed = lists.lines().filter_map(|l| l.trim().split_once('(')).map(|(name, _)| name.to_owned());
    let by_hand = ours.split("self.inner.").skip(1).map(|rest| rest.split('(').next().unwrap().to_owned());
    let ours: BTreeSet<String> = listed.chain(by_hand).collect();
    let sdks = methods_of_the_sdk();
    assert!(sdks.len() > 30, "{sdks:?}");
    assert_eq!(ours, sdks);
}
