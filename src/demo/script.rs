//! What the demo's client does, step by step, and what became of it.

use super::client::{Client, ClientError, Received};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The revision that the client offers.
const PROTOCOL: &str = "2025-11-25";
/// How long the client waits for any message.
const PATIENCE: Duration = Duration::from_secs(30);

/// One tool call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Name of the tool.
    pub tool: &'static str,
    /// The arguments of the call.
    pub arguments: Value,
}

impl Call {
    /// A call of `tool` with these arguments.
    #[must_use]
    pub fn new(tool: &'static str, arguments: Value) -> Self {
        Self { tool, arguments }
    }
}

/// A step of a script.
#[derive(Debug, Clone)]
pub enum Step {
    /// `initialize` and `notifications/initialized`.
    Handshake,
    /// A `tools/list` request.
    ListTools,
    /// Calls that are sent in one write; the step ends when all are answered.
    Together(Vec<Call>),
    /// A call that is cancelled when its first progress notification arrives, and then a `ping`.
    Cancel(Call),
}

/// The demo: everything that a recorder must handle, in a few seconds.
#[must_use]
pub fn tour() -> Vec<Step> {
    let one = |tool, arguments| Step::Together(vec![Call::new(tool, arguments)]);
    let search = |query, delay: u32| Call::new("search", json!({"query": query, "delay_millis": delay}));
    vec![
        Step::Handshake,
        Step::ListTools,
        one("echo", json!({"text": "Good morning."})),
        one("slow", json!({"millis": 900, "steps": 4})),
        one("fail", json!({"why": "it was asked to"})),
        one("big", json!({"kib": 4096})),
        Step::Together(vec![search("chain", 450), search("hash", 300), search("evidence", 150)]),
        Step::Cancel(Call::new("slow", json!({"millis": 20_000, "steps": 99}))),
    ]
}

/// A minute of an agent at work, to be watched: each step with the pause before it.
#[must_use]
pub fn minute() -> Vec<(Duration, Step)> {
    let call = |tool, arguments| Call::new(tool, arguments);
    let search = |query: &str, delay: u32| Call::new("search", json!({"query": query, "delay_millis": delay}));
    let echo = |text: &str| Call::new("echo", json!({"text": text}));
    let slow = |millis: u32| Call::new("slow", json!({"millis": millis, "steps": 5}));
    let mut out = vec![(0, Step::Handshake), (300, Step::ListTools)];
    let mut at = |pause: u64, calls: Vec<Call>| out.push((pause, Step::Together(calls)));
    at(700, vec![echo("Good morning.")]);
    at(400, vec![search("receipt", 120)]);
    at(600, vec![search("chain", 900), search("hash", 500), search("evidence", 200)]);
    at(900, vec![slow(2600)]);
    at(300, vec![call("fail", json!({"why": "the disk is full"}))]);
    at(800, vec![call("big", json!({"kib": 512}))]);
    // What a policy denies: a forbidden tool, and a forbidden argument.
    at(900, vec![call("delete_everything", json!({"really": true}))]);
    at(1200, vec![search("password", 50)]);
    for round in 0..4 {
        at(700, vec![echo("next task"), search("proof", 300 + 100 * round)]);
        at(500, vec![slow(1800 + 900 * round), search("verdict", 700), search("signer", 400), echo("meanwhile")]);
        at(400, vec![search("nothing like it", 60)]);
        at(900, vec![call("fail", json!({"why": format!("try {} of 4", round + 1)}))]);
        at(300, vec![echo("again"), call("big", json!({"kib": 64 << round}))]);
    }
    at(600, vec![slow(4200), slow(3100), slow(2200), search("black box", 1500)]);
    at(800, vec![echo("Nearly done.")]);
    out.push((400, Step::Cancel(slow(30_000))));
    out.push((700, Step::Together(vec![search("cockpit", 250), echo("Good bye.")])));
    out.into_iter().map(|(pause, step)| (Duration::from_millis(pause), step)).collect()
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With a result.
    Answered,
    /// With a result that says `isError`, or with a JSON-RPC error; what it says.
    Failed(String),
    /// The client took it back.
    Cancelled,
}

/// Something worth showing.
#[derive(Debug)]
pub enum Happened<'a> {
    /// The handshake is done.
    Connected {
        /// `serverInfo.name` and `version`.
        server: String,
        /// Protocol version agreed.
        protocol: String,
        /// Time from the request to its response.
        took: Duration,
    },
    /// `tools/list` was answered.
    Tools {
        /// Names of the tools.
        names: Vec<String>,
        /// Time from the request to its response.
        took: Duration,
    },
    /// Several calls were sent in one write.
    Sent(&'a [Call]),
    /// A call has ended.
    Ended(&'a Ended),
}

/// A call that has ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its JSON-RPC id.
    pub id: u64,
    /// Name of the tool.
    pub tool: &'static str,
    /// How it ended.
    pub ending: Ending,
    /// From sending to the last byte of the answer, or to the cancellation.
    pub took: Duration,
    /// Bytes of the answer.
    pub bytes: usize,
    /// Progress notifications that came before.
    pub progress: u32,
    /// Whether it was sent together with others.
    pub parallel: bool,
}

struct Open {
    id: u64,
    tool: &'static str,
    sent: Instant,
    progress: u32,
}

/// Plays the steps; returns the calls in the order in which they ended.
///
/// # Errors
/// [`ClientError`]: what the conversation failed with.
pub fn play(client: &mut Client, steps: &[Step], see: &mut dyn FnMut(Happened<'_>)) -> Result<Vec<Ended>, ClientError> {
    let mut ended = Vec::new();
    for step in steps {
        match step {
            Step::Handshake => handshake(client, see)?,
            Step::ListTools => list_tools(client, see)?,
            Step::Together(calls) => {
                if calls.len() > 1 {
                    see(Happened::Sent(calls));
                }
                let parallel = calls.len() > 1;
                let mut open = send(client, calls)?;
                while !open.is_empty() {
                    let message = client.receive(PATIENCE)?;
                    if let Some(call) = progress_of(&message, &mut open) {
                        call.progress += 1;
                        continue;
                    }
                    let done = Ended { parallel, ..answer_to(&message, &mut open)? };
                    see(Happened::Ended(&done));
                    ended.push(done);
                }
            }
            Step::Cancel(call) => {
                let done = cancel(client, call)?;
                see(Happened::Ended(&done));
                ended.push(done);
            }
        }
    }
    Ok(ended)
}

fn handshake(client: &mut Client, see: &mut dyn FnMut(Happened<'_>)) -> Result<(), ClientError> {
    let params = json!({
        "protocolVersion": PROTOCOL,
        "capabilities": {},
        "clientInfo": {"name": "assay-demo-client", "version": env!("CARGO_PKG_VERSION")},
    });
    let (result, took) = request(client, "initialize", &params)?;
    let info = &result["serverInfo"];
    let server = format!("{} {}", info["name"].as_str().unwrap_or("?"), info["version"].as_str().unwrap_or("?"));
    let protocol = result["protocolVersion"].as_str().unwrap_or("?").to_owned();
    client.send(&[json!({"jsonrpc": "2.0", "method": "notifications/initialized"})])?;
    see(Happened::Connected { server, protocol, took });
    Ok(())
}

fn list_tools(client: &mut Client, see: &mut dyn FnMut(Happened<'_>)) -> Result<(), ClientError> {
    let (result, took) = request(client, "tools/list", &json!({}))?;
    let names = result["tools"].as_array().into_iter().flatten();
    let names = names.filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect();
    see(Happened::Tools { names, took });
    Ok(())
}

/// One request when nothing else is in flight.
fn request(client: &mut Client, method: &str, params: &Value) -> Result<(Value, Duration), ClientError> {
    let id = client.fresh_id();
    let sent = Instant::now();
    client.send(&[json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})])?;
    loop {
        let mut message = client.receive(PATIENCE)?;
        // Notifications may come at any time, and progress of a call may still be on its way when it is cancelled.
        if message.value.get("method").is_some() {
            continue;
        }
        if message.value["id"].as_u64() != Some(id) || message.value.get("result").is_none() {
            return Err(unexpected(&message));
        }
        return Ok((message.value["result"].take(), message.at.saturating_duration_since(sent)));
    }
}

fn send(client: &mut Client, calls: &[Call]) -> Result<Vec<Open>, ClientError> {
    let ids: Vec<u64> = calls.iter().map(|_| client.fresh_id()).collect();
    let message = |(call, id): (&Call, &u64)| {
        let params = json!({"name": call.tool, "arguments": call.arguments, "_meta": {"progressToken": id}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let messages: Vec<Value> = calls.iter().zip(&ids).map(message).collect();
    let sent = Instant::now();
    client.send(&messages)?;
    Ok(calls.iter().zip(ids).map(|(call, id)| Open { id, tool: call.tool, sent, progress: 0 }).collect())
}

/// The open call whose progress this message reports.
fn progress_of<'a>(message: &Received, open: &'a mut [Open]) -> Option<&'a mut Open> {
    let token = message.value["params"]["progressToken"].as_u64();
    let is_progress = message.value["method"] == "notifications/progress";
    open.iter_mut().find(|call| is_progress && token == Some(call.id))
}

fn answer_to(message: &Received, open: &mut Vec<Open>) -> Result<Ended, ClientError> {
    let value = &message.value;
    let id = value["id"].as_u64().filter(|_| value.get("method").is_none());
    let at = open.iter().position(|call| Some(call.id) == id).ok_or_else(|| unexpected(message))?;
    let call = open.remove(at);
    let said = |text: &Value| text.as_str().unwrap_or_default().to_owned();
    let ending = if value.get("error").is_some() {
        Ending::Failed(said(&value["error"]["message"]))
    } else if value["result"]["isError"] == true {
        Ending::Failed(said(&value["result"]["content"][0]["text"]))
    } else {
        Ending::Answered
    };
    let took = message.at.saturating_duration_since(call.sent);
    Ok(Ended {
        id: call.id,
        tool: call.tool,
        ending,
        took,
        bytes: message.bytes,
        progress: call.progress,
        parallel: false,
    })
}

fn cancel(client: &mut Client, call: &Call) -> Result<Ended, ClientError> {
    let mut open = send(client, std::slice::from_ref(call))?;
    let message = client.receive(PATIENCE)?;
    let Some(call) = progress_of(&message, &mut open) else { return Err(unexpected(&message)) };
    let params = json!({"requestId": call.id, "reason": "the demo has seen enough"});
    client.send(&[json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})])?;
    let (id, tool, took) = (call.id, call.tool, call.sent.elapsed());
    // Its answer shows that the server has seen the cancellation and that no late answer is on its way.
    request(client, "ping", &json!({}))?;
    Ok(Ended { id, tool, ending: Ending::Cancelled, took, bytes: 0, progress: 1, parallel: false })
}

fn unexpected(message: &Received) -> ClientError {
    let text = message.value.to_string();
    ClientError::Unexpected(format!("what nobody asked for: {}", crate::text::fit(&text, 200)))
}
