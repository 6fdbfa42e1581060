//! What a server is asked, and what its answers come to.

use super::{ProbeError, Wire};
use crate::{
    canon,
    model::{
        receipt::PeerInfo,
        surface::{Context, Facet, Identity, Ignored, List, Snapshot, Surface, Value},
    },
    record::envelope,
    surface::listing::{Cursor, Limits, Listings, Outcome},
};
use serde_json::{json, value::RawValue};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// Revision of the legacy family that is offered.
const LEGACY: &str = "2025-11-25";
/// Revision without a handshake.
const MODERN: &str = "2026-07-28";
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(30);
/// How long the answer to `server/discover` may take before the server is taken for one that does not know it.
const DISCOVER: Duration = Duration::from_secs(10);
/// How long a server must have said nothing before its lists are taken to be what they are.
const QUIET: Duration = Duration::from_millis(200);
/// How long such a silence is waited for.
const SETTLE: Duration = Duration::from_secs(3);
/// How often a list that changed while it was listed is listed.
const ROUNDS: usize = 3;

/// The family of revisions in which a server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Era {
    /// `server/discover`, else `initialize`.
    #[default]
    Auto,
    /// `initialize`, as up to 2025-11-25.
    Legacy,
    /// `server/discover`, as from 2026-07-28 on.
    Modern,
}

/// What the client says that it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Capabilities {
    /// Nothing.
    #[default]
    None,
    /// Roots, sampling and elicitation.
    All,
}

/// How a server is asked.
#[derive(Debug, Clone, Default)]
pub struct How {
    /// Name of the client that asks; `assay` by default.
    pub client: Option<String>,
    /// What it can do.
    pub capabilities: Capabilities,
    /// In which family of revisions.
    pub era: Era,
    /// What the rules leave out of items.
    pub ignored: Vec<Ignored>,
    /// The facets that the rules leave out.
    pub left_out: BTreeSet<Facet>,
    /// Digest of the rules.
    pub rules_hash: Option<String>,
}

impl How {
    fn capabilities(&self) -> serde_json::Value {
        match self.capabilities {
            Capabilities::None => json!({}),
            Capabilities::All => json!({"elicitation": {}, "roots": {"listChanged": true}, "sampling": {}}),
        }
    }

    fn client_info(&self) -> serde_json::Value {
        json!({"name": self.client.as_deref().unwrap_or("assay"), "version": env!("CARGO_PKG_VERSION")})
    }
}

enum Answer {
    Result(Vec<u8>),
    Error { code: i64, message: String, body: Vec<u8> },
}

/// What a call came to, as it crossed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// Its result.
    Result(Vec<u8>),
    /// The body of a JSON-RPC error.
    Error(Vec<u8>),
}

impl Answered {
    /// The bytes of either.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        match self {
            Self::Result(body) | Self::Error(body) => body,
        }
    }
}

/// A session in which tools are called.
pub struct Caller<'a>(Talk<'a>);

impl<'a> Caller<'a> {
    /// Begins it, and waits until the server has nothing more to say.
    ///
    /// # Errors
    /// The server cannot be reached, or does not say who it is.
    pub fn begin(wire: &'a mut Wire, how: &'a How) -> Result<Self, ProbeError> {
        let mut talk = Talk::new(wire, how);
        talk.hello()?;
        talk.settle()?;
        Ok(Self(talk))
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// No answer came within `limit`, or the server is gone.
    pub fn call(&mut self, tool: &str, arguments: &RawValue, limit: Duration) -> Result<Answered, ProbeError> {
        let method = "tools/call";
        // The arguments are sent as they are: a number that no double holds keeps its digits.
        let meta = self.0.meta().map(|meta| format!(",\"_meta\":{meta}")).unwrap_or_default();
        let params = format!("{{\"name\":{},\"arguments\":{}{meta}}}", json!(tool), arguments.get());
        let id = self.0.post(method, &params)?;
        Ok(match self.0.wait_for(id, method, limit)? {
            Answer::Result(body) => Answered::Result(body),
            Answer::Error { body, .. } => Answered::Error(body),
        })
    }
}

struct Talk<'a> {
    wire: &'a mut Wire,
    how: &'a How,
    modern: bool,
    next: u64,
    listings: Listings<u64>,
    changed: BTreeSet<Facet>,
}

/// Asks for everything that a server offers. A list that cannot be had whole is incomplete, and says why.
///
/// # Errors
/// The server cannot be reached, or does not say who it is.
pub fn ask(wire: &mut Wire, identity: Identity, how: &How) -> Result<Snapshot, ProbeError> {
    let mut talk = Talk::new(wire, how);
    let hello = talk.hello()?;
    let members = Members::of(&hello).ok_or_else(|| ProbeError::NoObject("initialize".to_owned()))?;
    let protocol_version = if talk.modern { Some(MODERN.to_owned()) } else { members.text("protocolVersion") };
    let capabilities = canon::to_vec(&how.capabilities()).unwrap_or_default();
    let context = Context {
        auth: None,
        client_capabilities: Some(format!("sha256:{}", canon::sha256_hex(&capabilities))),
        era: Some(if talk.modern { "modern" } else { "legacy" }.to_owned()),
        protocol_version: protocol_version.clone(),
    };
    let value = |name| members.raw(name).and_then(|raw| Value::of(raw).ok());
    let mut surface =
        Surface { capabilities: value("capabilities"), instructions: value("instructions"), ..Surface::default() };
    let offered = members.raw("capabilities").map(<[u8]>::to_vec).unwrap_or_default();
    talk.settle()?;
    for facet in Facet::LISTS {
        let mut round = 1;
        loop {
            talk.changed.remove(&facet);
            let list = talk.list(facet, &context, offers(&offered, facet))?;
            let again = talk.changed.contains(&facet) && round < ROUNDS;
            surface.lists.insert(facet, list);
            if !again {
                break;
            }
            round += 1;
            talk.settle()?;
        }
    }
    Ok(Snapshot {
        identity,
        context,
        surface,
        server_info: members.raw("serverInfo").and_then(peer),
        protocol_version,
        left_out: how.left_out.clone(),
        rules_hash: how.rules_hash.clone(),
        changes: 0,
    })
}

impl<'a> Talk<'a> {
    fn new(wire: &'a mut Wire, how: &'a How) -> Self {
        let listings = Listings::new(Limits::DEFAULT, how.ignored.clone());
        Self { wire, how, modern: false, next: 0, listings, changed: BTreeSet::new() }
    }

    /// Finds out who the server is, and begins the session where there is one.
    fn hello(&mut self) -> Result<Vec<u8>, ProbeError> {
        if self.how.era != Era::Legacy {
            self.modern = true;
            match self.answer("server/discover", json!({}), DISCOVER) {
                Ok(Answer::Result(result)) => return Ok(result),
                Ok(Answer::Error { code, message, .. }) if self.how.era == Era::Modern => {
                    return Err(ProbeError::Refused { method: "server/discover".to_owned(), code, message });
                }
                Err(e) if self.how.era == Era::Modern || !matches!(e, ProbeError::Silent { .. }) => return Err(e),
                Ok(Answer::Error { .. }) | Err(_) => self.modern = false,
            }
        }
        let params = json!({
            "protocolVersion": LEGACY,
            "capabilities": self.how.capabilities(),
            "clientInfo": self.how.client_info(),
        });
        match self.answer("initialize", params, ANSWER)? {
            Answer::Result(result) => {
                self.wire.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
                Ok(result)
            }
            // It had only been slow to say that it speaks the newer ones.
            Answer::Error { .. } if self.how.era == Era::Auto => {
                self.modern = true;
                match self.answer("server/discover", json!({}), ANSWER)? {
                    Answer::Result(result) => Ok(result),
                    Answer::Error { code, message, .. } => {
                        Err(ProbeError::Refused { method: "server/discover".to_owned(), code, message })
                    }
                }
            }
            Answer::Error { code, message, .. } => {
                Err(ProbeError::Refused { method: "initialize".to_owned(), code, message })
            }
        }
    }

    /// Waits until the server has nothing more to say: some add tools when they know what the client can do.
    fn settle(&mut self) -> Result<(), ProbeError> {
        let begun = Instant::now();
        while begun.elapsed() < SETTLE {
            let Some(line) = self.heard(QUIET, "its lists")? else { return Ok(()) };
            self.other(&line)?;
        }
        Ok(())
    }

    fn list(&mut self, facet: Facet, context: &Context, offered: bool) -> Result<List, ProbeError> {
        let mut cursor: Option<String> = None;
        loop {
            let method = method(facet);
            let params = cursor.as_ref().map_or_else(|| json!({}), |c| json!({"cursor": c}));
            let id = self.request(method, params)?;
            let asked = cursor.as_deref().map_or(Cursor::First, Cursor::After);
            let _ = self.listings.asked(id, facet, asked, context);
            let outcome = match self.wait_for(id, method, ANSWER)? {
                Answer::Error { code, .. } => self.listings.failed(&id, code, offered).map(|(_, _, o)| o),
                Answer::Result(result) => {
                    let next = Members::of(&result).and_then(|m| m.text("nextCursor"));
                    let outcome = self.listings.answered(&id, &result).into_iter().next().map(|(_, _, o)| o);
                    if let (Some(Outcome::Page(_)), Some(next)) = (&outcome, next) {
                        cursor = Some(next);
                        continue;
                    }
                    outcome
                }
            };
            return Ok(match outcome {
                Some(Outcome::Complete(items)) => List::complete(items),
                Some(Outcome::Incomplete(items, reason)) => List::incomplete(items, reason),
                Some(Outcome::NotOffered) => List::NotOffered,
                Some(Outcome::Page(_)) | None => List::Unknown,
            });
        }
    }

    fn request(&mut self, method: &str, mut params: serde_json::Value) -> Result<u64, ProbeError> {
        if let Some(meta) = self.meta() {
            params["_meta"] = meta;
        }
        self.post(method, &params.to_string())
    }

    /// What every request of a modern client says of it.
    fn meta(&self) -> Option<serde_json::Value> {
        self.modern.then(|| {
            json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": self.how.capabilities(),
                "io.modelcontextprotocol/clientInfo": self.how.client_info(),
            })
        })
    }

    fn post(&mut self, method: &str, params: &str) -> Result<u64, ProbeError> {
        self.next += 1;
        let (id, named) = (self.next, json!(method));
        self.sent(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{named},\"params\":{params}}}"), method)?;
        Ok(id)
    }

    fn sent(&mut self, message: &str, method: &str) -> Result<(), ProbeError> {
        self.wire.send(message).map_err(|_| self.ended(method))
    }

    fn ended(&self, method: &str) -> ProbeError {
        let why = self.wire.why_ended().map(|why| format!(": {why}")).unwrap_or_default();
        ProbeError::Ended(format!("{method}{why}"))
    }

    fn answer(&mut self, method: &str, params: serde_json::Value, limit: Duration) -> Result<Answer, ProbeError> {
        let id = self.request(method, params)?;
        self.wait_for(id, method, limit)
    }

    fn heard(&self, limit: Duration, method: &str) -> Result<Option<Vec<u8>>, ProbeError> {
        self.wire.next(limit).map_err(|_| self.ended(method))
    }

    fn wait_for(&mut self, id: u64, method: &str, limit: Duration) -> Result<Answer, ProbeError> {
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let Some(line) = self.heard(left, method)? else {
                return Err(ProbeError::Silent { method: method.to_owned(), limit });
            };
            if let Some(answer) = answer_to(id, &line) {
                return Ok(answer);
            }
            self.other(&line)?;
        }
    }

    /// What is no answer: a notification, or a request of the server.
    fn other(&mut self, line: &[u8]) -> Result<(), ProbeError> {
        let Ok(message) = envelope::parse(line, None) else { return Ok(()) };
        let Some(method) = &message.method else { return Ok(()) };
        let Some(id) = message.id else {
            for facet in Facet::made_stale_by(method) {
                self.listings.changed(*facet);
                self.changed.insert(*facet);
            }
            return Ok(());
        };
        let id = String::from_utf8_lossy(id);
        let said = match method.as_ref() {
            "ping" => r#""result":{}"#,
            "roots/list" => r#""result":{"roots":[]}"#,
            _ => r#""error":{"code":-32601,"message":"this client only looks at what the server offers"}"#,
        };
        self.sent(&format!(r#"{{"jsonrpc":"2.0","id":{id},{said}}}"#), method)
    }
}

fn answer_to(id: u64, line: &[u8]) -> Option<Answer> {
    let message = envelope::parse(line, None).ok()?;
    if message.method.is_some() || message.id != Some(id.to_string().as_bytes()) {
        return None;
    }
    if let Some(result) = message.result {
        return Some(Answer::Result(line[result].to_vec()));
    }
    let body = message.error.map(|error| &line[error]).unwrap_or_default();
    let (code, message) = Members::of(body).map(|m| (m.number("code"), m.text("message"))).unwrap_or_default();
    let (code, message) = (code.unwrap_or_default(), message.unwrap_or_default());
    Some(Answer::Error { code, message, body: body.to_vec() })
}

const fn method(facet: Facet) -> &'static str {
    match facet {
        Facet::Prompts => "prompts/list",
        Facet::ResourceTemplates => "resources/templates/list",
        Facet::Resources => "resources/list",
        Facet::Capabilities | Facet::Instructions | Facet::Tools => "tools/list",
    }
}

/// Whether the server says that it has this.
fn offers(capabilities: &[u8], facet: Facet) -> bool {
    let member = match facet {
        Facet::Prompts => "prompts",
        Facet::ResourceTemplates | Facet::Resources => "resources",
        Facet::Capabilities | Facet::Instructions | Facet::Tools => "tools",
    };
    Members::of(capabilities).is_some_and(|m| m.raw(member).is_some())
}

fn peer(raw: &[u8]) -> Option<PeerInfo> {
    let members = Members::of(raw)?;
    Some(PeerInfo { name: members.text("name")?, version: members.text("version") })
}

/// The members of an object; of equal names the last.
struct Members<'a>(Vec<(String, &'a [u8])>);

impl<'a> Members<'a> {
    fn of(raw: &'a [u8]) -> Option<Self> {
        let members = canon::members(raw).ok()?.collect::<Result<Vec<_>, _>>().ok()?;
        Some(Self(members.into_iter().filter_map(|m| Some((m.key?.into_owned(), &raw[m.value]))).collect()))
    }

    fn raw(&self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, raw)| *raw)
    }

    fn text(&self, name: &str) -> Option<String> {
        canon::decode_string(self.raw(name)?).map(std::borrow::Cow::into_owned)
    }

    fn number(&self, name: &str) -> Option<i64> {
        std::str::from_utf8(self.raw(name)?).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_is_asked_for_by_its_method() {
        for facet in Facet::LISTS {
            assert_eq!(Facet::listed_by(method(facet)), Some(facet));
        }
    }

    #[test]
    fn an_answer_is_the_one_with_the_id_and_errors_say_what_they_are() {
        assert!(answer_to(1, br#"{"jsonrpc":"2.0","id":2,"result":{}}"#).is_none());
        assert!(answer_to(1, br#"{"jsonrpc":"2.0","id":"1","result":{}}"#).is_none());
        assert!(answer_to(1, br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).is_none());
        let Some(Answer::Result(result)) = answer_to(1, br#"{"id":1, "result": {"a":1} }"#) else { panic!() };
        assert_eq!(result, br#"{"a":1}"#);
        let line = br#"{"id":1,"error":{"code":-32601,"message":"no"}}"#;
        assert!(matches!(answer_to(1, line), Some(Answer::Error { code: -32601, message, .. }) if message == "no"));
    }
}
