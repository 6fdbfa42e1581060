//! The built-in MCP server: five tools over stdio, JSON-RPC 2.0, one message a line.
//!
//! It speaks the legacy handshake (MCP 2024-11-05 to 2025-11-25) and answers `server/discover` and requests of MCP
//! 2026-07-28, which carry their version in `params._meta`. One thread answers everything in the order in which it is
//! due, so which of several parallel calls is answered first does not depend on a scheduler.

use serde_json::{Value, json};
use std::{
    io::{self, BufRead, Write},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// Name of the server in `initialize`.
pub const NAME: &str = "assay-demo-server";
/// Its tools, in the order of `tools/list`.
pub const TOOLS: [&str; 5] = ["echo", "slow", "fail", "big", "search"];

/// The legacy revisions that the handshake agrees to, newest first.
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The revision without a handshake.
const MODERN: &str = "2026-07-28";
/// Member of `params._meta` that makes a request modern.
const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";
/// Longest that a tool waits.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// Largest result of `big`.
const MAX_BIG_KIB: u64 = 64 << 10;

/// What `search` looks through.
const SHELF: [&str; 8] = [
    "A flight recorder survives what the aircraft does not.",
    "Receipts are written while the call happens, not when the session ends.",
    "A chain of hashes shows that nothing was taken out of the middle.",
    "A count that is signed shows that nothing was cut off at the end.",
    "Whoever verifies needs the pack, a fingerprint, and no network.",
    "A hash of a short secret can be guessed.",
    "The proxy sees what crosses it and nothing else.",
    "Evidence comes before speed; most of the time there is room for both.",
];

/// Something that is to be written when its time has come.
struct Due {
    at: Instant,
    /// Tells the order of what is due at the same instant.
    seq: u64,
    /// The request that it belongs to: a cancellation takes it back.
    request: Value,
    line: Value,
}

/// Answers requests from `input` on `output` until `input` ends; what is not due by then is dropped.
///
/// # Errors
/// `output` cannot be written; a closed pipe is an ordinary end.
pub fn serve(input: impl BufRead + Send + 'static, output: impl Write) -> io::Result<()> {
    let (lines, inbox) = mpsc::channel();
    thread::Builder::new().name("demo-server-in".into()).spawn(move || {
        for line in input.split(b'\n') {
            let Ok(line) = line else { break };
            if lines.send(line).is_err() {
                break;
            }
        }
    })?;
    let mut server = Server { output, queue: Vec::new(), seq: 0 };
    loop {
        let wait = server.queue.iter().map(|d| d.at).min().map(|at| at.saturating_duration_since(Instant::now()));
        let line = match wait {
            Some(wait) => inbox.recv_timeout(wait),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let done = match line {
            Ok(line) => server.line(&line),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        match done.and_then(|()| server.write_due()) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
    }
}

struct Server<W> {
    output: W,
    queue: Vec<Due>,
    seq: u64,
}

impl<W: Write> Server<W> {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return self.write(&error(&Value::Null, -32700, "this is not JSON"));
        };
        let params = &message["params"];
        match (message["method"].as_str(), message.get("id")) {
            (Some("notifications/cancelled"), None) => {
                self.queue.retain(|due| due.request != params["requestId"]);
                Ok(())
            }
            (Some("tools/call"), Some(id)) => {
                self.call(id, params);
                Ok(())
            }
            (Some(method), Some(id)) => self.write(&answer(id, method, params)),
            (Some(_), None) => Ok(()),
            // This server asks nothing, so a response answers nothing.
            (None, Some(_)) if message.get("result").is_some() || message.get("error").is_some() => Ok(()),
            (None, _) => self.write(&error(&Value::Null, -32600, "this is not a JSON-RPC request")),
        }
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let name = params["name"].as_str().unwrap_or_default();
        let arguments = &params["arguments"];
        let millis = |member: &str| Duration::from_millis(arguments[member].as_u64().unwrap_or(0)).min(MAX_WAIT);
        let now = Instant::now();
        match name {
            "echo" => self.answer_at(now, id, params, &text_result(arguments["text"].as_str().unwrap_or_default())),
            "slow" => {
                let (total, steps) = (millis("millis"), arguments["steps"].as_u64().unwrap_or(1).clamp(1, 100));
                let token = &params["_meta"]["progressToken"];
                for step in 1..=if token.is_null() { 0 } else { steps } {
                    let share = total.mul_f64(step as f64 / (steps + 1) as f64);
                    let progress = json!({"progressToken": token, "progress": step, "total": steps});
                    let line = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress});
                    self.at(now + share, id, line);
                }
                self.answer_at(now + total, id, params, &text_result(&format!("done in {steps} steps")));
            }
            "fail" => {
                let why = arguments["why"].as_str().unwrap_or("no reason was given");
                let mut result = text_result(&format!("the tool failed: {why}"));
                result["isError"] = json!(true);
                self.answer_at(now, id, params, &result);
            }
            "big" => {
                let kib = arguments["kib"].as_u64().unwrap_or(1024).min(MAX_BIG_KIB);
                self.answer_at(now, id, params, &text_result(&filler(kib)));
            }
            "search" => {
                let query = arguments["query"].as_str().unwrap_or_default().to_lowercase();
                let found: Vec<_> = SHELF.iter().filter(|line| line.to_lowercase().contains(&query)).copied().collect();
                self.answer_at(now + millis("delay_millis"), id, params, &text_result(&found.join("\n")));
            }
            other => self.at(now, id, error(id, -32602, &format!("there is no tool {other:?}"))),
        }
    }

    fn answer_at(&mut self, at: Instant, id: &Value, params: &Value, result: &Value) {
        self.at(at, id, response(id, params, result.clone()));
    }

    fn at(&mut self, at: Instant, request: &Value, line: Value) {
        self.seq += 1;
        self.queue.push(Due { at, seq: self.seq, request: request.clone(), line });
    }

    fn write_due(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let (mut due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.queue).into_iter().partition(|d| d.at <= now);
        self.queue = later;
        due.sort_by_key(|d| (d.at, d.seq));
        due.iter().try_for_each(|d| self.write(&d.line))
    }

    fn write(&mut self, message: &Value) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.output.write_all(&line)?;
        self.output.flush()
    }
}

/// Every request but a tool call is answered at once.
fn answer(id: &Value, method: &str, params: &Value) -> Value {
    let info = json!({"name": NAME, "title": "Demo server of assay", "version": env!("CARGO_PKG_VERSION")});
    let capabilities = json!({"tools": {}});
    match method {
        "initialize" => {
            let asked = params["protocolVersion"].as_str();
            let version = LEGACY.into_iter().find(|v| Some(*v) == asked).unwrap_or(LEGACY[0]);
            let result = json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": info});
            response(id, params, result)
        }
        "server/discover" => {
            let mut versions = vec![MODERN];
            versions.extend(LEGACY);
            let mut result = json!({
                "supportedVersions": versions, "capabilities": capabilities,
                "_meta": {"io.modelcontextprotocol/serverInfo": info},
            });
            cacheable(&mut result);
            result["resultType"] = json!("complete");
            response(id, params, result)
        }
        "tools/list" => {
            let mut result = json!({"tools": tools()});
            if is_modern(params) {
                cacheable(&mut result);
            }
            response(id, params, result)
        }
        "ping" => response(id, params, json!({})),
        other => error(id, -32601, &format!("there is no method {other:?}")),
    }
}

fn is_modern(params: &Value) -> bool {
    params["_meta"][VERSION_META].is_string()
}

/// MCP 2026-07-28 demands both members of results that may be cached.
fn cacheable(result: &mut Value) {
    result["ttlMs"] = json!(0);
    result["cacheScope"] = json!("private");
}

fn response(id: &Value, params: &Value, mut result: Value) -> Value {
    if is_modern(params) {
        result["resultType"] = json!("complete");
    }
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": false})
}

/// `kib` KiB of numbered lines.
fn filler(kib: u64) -> String {
    use std::fmt::Write as _;
    let bytes = usize::try_from(kib << 10).unwrap_or(0);
    let mut text = String::with_capacity(bytes + 64);
    let mut line = 0u64;
    while text.len() < bytes {
        let _ = writeln!(text, "{line:>8}  {}", SHELF[(line % SHELF.len() as u64) as usize]);
        line += 1;
    }
    text.truncate(bytes);
    text
}

fn tools() -> Vec<Value> {
    let tool = |name: &str, description: &str, properties: Value, required: Value| {
        json!({
            "name": name, "description": description,
            "inputSchema": {"type": "object", "properties": properties, "required": required},
        })
    };
    let [echo, slow, fail, big, search] = TOOLS;
    vec![
        tool(echo, "Says the same again", json!({"text": {"type": "string"}}), json!(["text"])),
        tool(
            slow,
            "Takes a while and reports its progress",
            json!({"millis": {"type": "integer"}, "steps": {"type": "integer"}}),
            json!(["millis"]),
        ),
        tool(fail, "Fails, and says why", json!({"why": {"type": "string"}}), json!([])),
        tool(big, "Returns a long text", json!({"kib": {"type": "integer"}}), json!([])),
        tool(
            search,
            "Finds lines that contain a word",
            json!({"query": {"type": "string"}, "delay_millis": {"type": "integer"}}),
            json!(["query"]),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that the server writes for these lines, its input held open until it has written `wanted` messages.
    fn talk(lines: &str, wanted: usize) -> Vec<Value> {
        let (mut to, from) = {
            let (reader, writer) = io::pipe().unwrap();
            (writer, io::BufReader::new(reader))
        };
        let (reader, writer) = io::pipe().unwrap();
        let server = thread::spawn(move || serve(from, writer).unwrap());
        to.write_all(lines.as_bytes()).unwrap();
        let mut answers = io::BufReader::new(reader).lines();
        let mut seen: Vec<Value> = Vec::new();
        while seen.len() < wanted {
            seen.push(serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap());
        }
        drop(to);
        server.join().unwrap();
        assert!(answers.next().is_none());
        seen
    }

    #[test]
    fn both_eras_are_answered_on_one_pipe() {
        let meta = format!(r#""_meta":{{"{VERSION_META}":"{MODERN}"}}"#);
        let seen = talk(
            &format!(
                "{}\n{}\n{}\n{}\n{}\n",
                r#"{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{}}"#,
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#,
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#,
                format_args!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{{{meta}}}}}"#),
            ),
            4,
        );
        assert_eq!(seen[0]["result"]["supportedVersions"][0], MODERN);
        assert_eq!(seen[1]["result"]["protocolVersion"], "2025-06-18");
        assert_eq!((&seen[2]["id"], &seen[2]["result"]["resultType"]), (&json!("a"), &Value::Null));
        assert_eq!(seen[3]["result"]["resultType"], "complete");
        assert_eq!(seen[3]["result"]["ttlMs"], 0);
        let names: Vec<_> = seen[2]["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
        assert_eq!(names, TOOLS);
    }

    #[test]
    fn a_cancelled_call_is_never_answered_and_a_quick_one_overtakes() {
        let seen = talk(
            concat!(
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"millis":50}}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow","arguments":{"millis":40000}}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"text":"é"}}}"#,
                "\n",
            ),
            2,
        );
        assert_eq!(seen.iter().map(|m| m["id"].as_u64().unwrap()).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(seen[0]["result"]["content"][0]["text"], "é");
    }

    #[test]
    fn what_is_wrong_is_answered_as_json_rpc_says() {
        let seen = talk(
            concat!(
                "nonsense\n\n[]\n",
                r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"none"}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"fail","arguments":{}}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"big","arguments":{"kib":3}}}"#,
                "\n",
            ),
            6,
        );
        let codes: Vec<_> = seen[..4].iter().map(|m| m["error"]["code"].as_i64().unwrap()).collect();
        assert_eq!(codes, [-32700, -32600, -32601, -32602]);
        assert_eq!(seen[4]["result"]["isError"], true);
        assert_eq!(seen[5]["result"]["content"][0]["text"].as_str().unwrap().len(), 3 << 10);
    }
}
