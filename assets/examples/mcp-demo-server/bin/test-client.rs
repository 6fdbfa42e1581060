//! Plays every kind of call with a server and checks each answer: every tool, errors, refused calls, calls again, calls at once.
//!
//!     test-client [--modern] [--call TOOL ARGUMENTS]... [--http] [-- SERVER [ARG]...]
//!     test-client [--modern] [--call TOOL ARGUMENTS]... --url URL
//!
//! Without SERVER and URL it starts `mcp-demo-server` beside this program. With `--http` the server is told to listen, and
//! its first line must be its URL. With `--modern` the client speaks MCP 2026-07-28, otherwise 2025-11-25. With `--call` it
//! makes these calls and shows the answers.

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    error::Error,
    io::{BufRead, BufReader, Lines, Read, Write},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    thread,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
/// Calls at once.
const AT_ONCE: u64 = 20;

/// What an answer must be.
enum Expect {
    /// A result with this text.
    Result(&'static str),
    /// A result that says it is an error, with this text.
    Error(&'static str),
    /// Refused, by this rule of the policy.
    Denied(&'static str),
}
use Expect::{Denied, Error as Failed, Result as Gives};

const OUTSIDE: &str = r#"{"path":"../../../Cargo.toml"}"#;

/// What is played: what it shows, tool, arguments, and the answer.
const CALLS: &[(&str, &str, &str, Expect)] = &[
    ("a search finds a page", "web_search", r#"{"query":"receipt"}"#, Gives("https://example.com/receipts")),
    ("a file is read", "read_file", r#"{"path":"files/welcome.md"}"#, Gives("Welcome")),
    ("echo says the same again", "echo", r#"{"text":"żółw"}"#, Gives("żółw")),
    ("a file that is not there is an error", "read_file", r#"{"path":"files/welcom.md"}"#, Failed("No such file")),
    ("the right name works", "read_file", r#"{"path":"files/welcome.md"}"#, Gives("Welcome")),
    ("wrong arguments are an error", "echo", r#"{"text":7}"#, Failed("text")),
    ("a path elsewhere is refused", "read_file", OUTSIDE, Denied("constraints.read_file.allowed_paths")),
    ("and refused again", "read_file", OUTSIDE, Denied("constraints.read_file.allowed_paths")),
    (
        "a secret is refused",
        "web_search",
        r#"{"query":"my api_key"}"#,
        Denied("constraints.web_search.deny_patterns[0]"),
    ),
    ("a tool on the denylist is refused", "shell_exec", r#"{"command":"id"}"#, Denied("denylist[0] (shell_exec)")),
    ("a tool that nobody named is refused", "no_such_tool", "{}", Denied("default")),
];

/// How the server is reached.
enum Link {
    Pipe(ChildStdin, Lines<BufReader<ChildStdout>>),
    Http { host: String, session: Option<String> },
}

impl Link {
    fn http(url: &str) -> Result<Self> {
        let host = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp"));
        let host = host.ok_or_else(|| format!("{url} is not http://HOST:PORT/mcp"))?.to_owned();
        Ok(Self::Http { host, session: None })
    }
}

struct Client {
    server: Option<Child>,
    link: Link,
    is_modern: bool,
    next: u64,
}

impl Client {
    /// Talks to a server that it starts.
    fn start(argv: &[String], http: bool, is_modern: bool) -> Result<Self> {
        let (program, args) = argv.split_first().ok_or("-- needs a command after it")?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        if http {
            command.args(["--http", "127.0.0.1:0"]);
        }
        let mut server = command.spawn().map_err(|e| format!("{program} cannot be started: {e}"))?;
        let stdin = server.stdin.take().ok_or("no stdin")?;
        let mut stdout = BufReader::new(server.stdout.take().ok_or("no stdout")?).lines();
        let link = if http {
            Link::http(&stdout.next().ok_or("the server ended before it said its URL")??)?
        } else {
            Link::Pipe(stdin, stdout)
        };
        Ok(Self { server: Some(server), link, is_modern, next: 0 })
    }

    fn greet(&mut self) -> Result<()> {
        if self.is_modern {
            self.ask("server/discover", json!({}))?;
        } else {
            let info = json!({"name": "test-client", "version": "1"});
            self.ask("initialize", json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}))?;
            self.exchange(&[json!({"jsonrpc": "2.0", "method": "notifications/initialized"})])?;
        }
        Ok(())
    }

    fn request(&mut self, method: &str, mut params: Value) -> Value {
        if self.is_modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "test-client", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        self.next += 1;
        json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        let request = self.request(method, params);
        let answer = self.exchange(&[request])?.pop_first();
        answer.map(|(_, answer)| answer).ok_or_else(|| format!("{method} has no answer").into())
    }

    fn call(&mut self, tool: &str, arguments: &str) -> Result<Value> {
        let arguments: Value = serde_json::from_str(arguments).map_err(|e| format!("{arguments} is not JSON: {e}"))?;
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Sends messages at once, and waits for the answers to those with an id.
    fn exchange(&mut self, messages: &[Value]) -> Result<BTreeMap<u64, Value>> {
        let mut answers = BTreeMap::new();
        match &mut self.link {
            Link::Pipe(stdin, stdout) => {
                for message in messages {
                    writeln!(stdin, "{message}")?;
                }
                let wanted = messages.iter().filter(|m| m["id"].is_u64()).count();
                while answers.len() < wanted {
                    let answer: Value = serde_json::from_str(&stdout.next().ok_or("the server ended")??)?;
                    if let Some(id) = answer["id"].as_u64() {
                        answers.insert(id, answer);
                    }
                }
            }
            Link::Http { host, session } => {
                let (host, is_modern, known) = (&*host, self.is_modern, session.as_deref());
                let all: Result<Vec<_>> = thread::scope(|s| {
                    let posts: Vec<_> =
                        messages.iter().map(|m| s.spawn(move || post(host, is_modern, known, m))).collect();
                    posts.into_iter().map(|p| p.join().map_err(|_| "a request panicked")?).collect()
                });
                for (answer, named) in all? {
                    *session = session.take().or(named);
                    if let Some(id) = answer["id"].as_u64() {
                        answers.insert(id, answer);
                    }
                }
            }
        }
        Ok(answers)
    }

    /// Ends the server that was started; it seals its recording.
    fn end(self) -> Result<()> {
        let Some(mut server) = self.server else { return Ok(()) };
        match self.link {
            Link::Pipe(stdin, _) => drop(stdin),
            Link::Http { .. } => drop(Command::new("kill").arg(server.id().to_string()).status()?),
        }
        server.wait()?;
        Ok(())
    }
}

/// One request over HTTP; its answer, and the session that the server named.
fn post(host: &str, is_modern: bool, session: Option<&str>, message: &Value) -> Result<(Value, Option<String>)> {
    let mut headers = format!("mcp-protocol-version: {}\r\n", if is_modern { MODERN } else { LEGACY });
    if is_modern {
        headers += &format!("mcp-method: {}\r\n", message["method"].as_str().unwrap_or_default());
        if let Some(name) = message["params"]["name"].as_str() {
            headers += &format!("mcp-name: {name}\r\n");
        }
    }
    if let Some(session) = session {
        headers += &format!("mcp-session-id: {session}\r\n");
    }
    let body = message.to_string();
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer over HTTP")?;
    let named = head.lines().filter_map(|line| line.split_once(": "));
    let named = named.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"));
    // The body is one JSON message, in chunks or as an event.
    let line = body.lines().find(|line| line.contains("jsonrpc")).unwrap_or("null");
    let answer = serde_json::from_str(line.trim_start_matches("data:")).map_err(|e| format!("{e}: {answer}"))?;
    Ok((answer, named.map(|(_, id)| id.to_owned())))
}

impl Expect {
    fn check(&self, answer: &Value) -> Result<()> {
        let result = &answer["result"];
        let is_error = result["isError"] == true;
        let is_it = match self {
            Gives(text) => !is_error && result.to_string().contains(text),
            Failed(text) => is_error && result.to_string().contains(text),
            Denied(rule) => answer["error"]["code"] == -32001 && answer["error"]["data"]["rule"] == *rule,
        };
        if is_it { Ok(()) } else { Err(answer.to_string().into()) }
    }
}

fn play(client: &mut Client) -> Result<()> {
    for (what, tool, arguments, expected) in CALLS {
        let answer = client.call(tool, arguments)?;
        expected.check(&answer).map_err(|got| format!("not so: {what}; the answer to {tool} {arguments} was {got}"))?;
        println!("ok  {what}");
    }
    let params = |n| json!({"name": "echo", "arguments": {"text": format!("number {n}")}});
    let all: Vec<Value> = (0..AT_ONCE).map(|n| client.request("tools/call", params(n))).collect();
    let answers = client.exchange(&all)?;
    for (n, request) in all.iter().enumerate() {
        let answer = request["id"].as_u64().and_then(|id| answers.get(&id)).ok_or("a call at once has no answer")?;
        if answer["result"]["content"][0]["text"] != format!("number {n}") {
            return Err(format!("number {n} was answered {answer}").into());
        }
    }
    println!("ok  {AT_ONCE} calls at once are answered, each its own");
    Ok(())
}

fn run() -> Result<()> {
    let (mut http, mut url, mut is_modern, mut calls) = (false, None, false, Vec::new());
    let beside = std::env::current_exe()?.with_file_name("mcp-demo-server");
    let mut argv = vec![beside.display().to_string()];
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--http" => http = true,
            "--url" => url = Some(args.next().ok_or("--url needs a URL")?),
            "--modern" => is_modern = true,
            "--call" => {
                let call = args.next().zip(args.next());
                calls.push(call.ok_or("--call needs the name of a tool, and its arguments as JSON")?);
            }
            "--" => argv = args.by_ref().collect(),
            _ => return Err(format!("there is no option {arg}; see the top of {}", file!()).into()),
        }
    }
    let mut client = match url {
        Some(url) => Client { server: None, link: Link::http(&url)?, is_modern, next: 0 },
        None => Client::start(&argv, http, is_modern)?,
    };
    let played = client.greet().and_then(|()| match &calls[..] {
        [] => play(&mut client),
        calls => calls.iter().try_for_each(|(tool, arguments)| {
            println!("{}", client.call(tool, arguments)?);
            Ok(())
        }),
    });
    client.end()?;
    played
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("test-client: {e}");
            ExitCode::FAILURE
        }
    }
}
