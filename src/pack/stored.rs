//! A verified pack with all that was stored of its calls, for who plays them again or writes them out.

use super::{
    calls::{self, CallsError, Seen, word},
    payloads::{self, Payload, Payloads},
    verify::{VerifyReport, source::PackDir},
};
use crate::{
    canon,
    files::{plain, read_all},
    model::{
        Outcome, PolicyVerdict, SessionDoc,
        event::EventMembers,
        line::{micros, text, texts},
        pack::{AUDIT_LOG, RECEIPTS, SURFACE},
        receipt::CallMembers,
        redaction::{self, Side},
        server::{TOOL_REQUESTED, flat},
        sha256_hex,
        surface::Snapshot,
    },
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    path::Path,
    time::Duration,
};

/// Largest `surface.json`: what it holds is limited to 24 MiB.
const MAX_SURFACE: u64 = 64 << 20;
/// Hash of `{}`.
pub const EMPTY: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

/// Why a pack cannot be read, although it verified.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// One of its files of lines.
    #[error(transparent)]
    Lines(#[from] CallsError),
    /// Another file of it.
    #[error("{SURFACE}: {0}")]
    Io(std::io::Error),
}

/// A pack, and what was stored of its calls.
#[derive(Debug, Default)]
pub struct Stored {
    /// The session as a whole; `None` in a pack of another builder.
    pub session: Option<SessionDoc>,
    /// What the server offered; `None` if nothing of it was seen, or if it cannot be read.
    pub surface: Option<Snapshot>,
    /// The calls, in the order in which they were asked for.
    pub calls: Vec<Call>,
    /// What became of requests of other methods, of which nothing but hashes is recorded.
    pub others: BTreeMap<String, Others>,
    /// What of it could not be used, in words.
    pub problems: Vec<String>,
}

/// Requests of one method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Others {
    /// How many there were.
    pub requests: u64,
    /// How many results there were.
    pub results: u64,
    /// How many of these said nothing: `{}`, which their hash tells.
    pub empty: u64,
}

/// One call, or one leg of a call.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// The line of the receipt that says what became of it, as it is in the pack.
    pub line: Vec<u8>,
    /// `receipt_id`.
    pub receipt_id: String,
    /// `invocation_id`.
    pub invocation_id: String,
    /// `tool_name`.
    pub tool: String,
    /// The name is not the one that was sent: too long, or with characters that receipts do not hold.
    pub renamed: bool,
    /// `arguments_hash`.
    pub arguments_hash: String,
    /// The arguments, if they were stored or their hash tells them.
    pub arguments: Option<Vec<u8>>,
    /// `result_hash`.
    pub result_hash: Option<String>,
    /// The result, or the body of a JSON-RPC error, if it was stored.
    pub result: Option<Vec<u8>>,
    /// What became of it; `None` for a word of another builder.
    pub outcome: Option<Outcome>,
    /// What the policy said; `None` for a word of another builder.
    pub verdict: Option<PolicyVerdict>,
    /// `outcome_reason`.
    pub outcome_reason: Option<String>,
    /// `policy_reason`.
    pub policy_reason: Option<String>,
    /// `policy_ref`.
    pub policy_ref: Option<String>,
    /// When it was asked for; of a call that a server recorded itself, when its receipt was written.
    pub asked_at: String,
    /// How long the answer took.
    pub took: Option<Duration>,
    /// It goes on with a call before it.
    pub continues: bool,
    /// It brought what a task came to: the request was not a `tools/call`.
    pub task_leg: bool,
    /// Words for what was unusual.
    pub anomalies: Vec<String>,
}

impl Call {
    /// The rules that took something out of its arguments or of its result before that was stored or exported.
    #[must_use]
    pub fn redacted(&self, side: Side) -> Vec<&str> {
        redaction::rules(self.anomalies.iter().map(String::as_bytes), side).collect()
    }

    /// Whether the result is the body of a JSON-RPC error: the receipt calls both that and `isError` an error.
    #[must_use]
    pub fn is_rpc_error(&self) -> bool {
        let says = |name| crate::model::line::member(self.result.as_deref()?, name);
        self.outcome == Some(Outcome::Error)
            && self.result.is_some()
            && says("isError") != Some(b"true")
            && says("code").is_some()
    }

    fn read(line: &[u8], asked: &mut HashMap<String, Vec<u8>>) -> Option<Self> {
        let m = CallMembers::of_line(line)?;
        let invocation = text(m.invocation_id).unwrap_or_default();
        let kind = text(m.r#type).unwrap_or_default();
        if flat(&kind) == Some(TOOL_REQUESTED) {
            if let Some(arguments) = m.arguments_content.filter(|raw| *raw != b"null") {
                asked.insert(invocation.into_owned(), arguments.to_vec());
            }
            return None;
        }
        let seen = Seen::read(line).filter(|seen| seen.is_call() || seen.is_leg)?;
        let anomalies: Vec<String> = texts(m.anomalies).map(Cow::into_owned).collect();
        let has = |word: &str| anomalies.iter().any(|a| a == word);
        let owned = |raw| text(raw).map(Cow::into_owned);
        let stored = |raw: Option<&[u8]>| raw.filter(|raw| *raw != b"null").map(<[u8]>::to_vec);
        let arguments = stored(m.arguments_content).or_else(|| asked.remove(invocation.as_ref()));
        let arguments = arguments.or_else(|| (seen.arguments_hash == EMPTY).then(|| b"{}".to_vec()));
        Some(Self {
            line: line.to_vec(),
            receipt_id: seen.receipt_id.clone().into_owned(),
            invocation_id: invocation.into_owned(),
            tool: seen.tool.clone().into_owned(),
            renamed: has("tool_name_not_verbatim"),
            arguments_hash: seen.arguments_hash.clone().into_owned(),
            arguments,
            result_hash: seen.result_hash.clone().map(Cow::into_owned),
            result: stored(seen.result_content),
            outcome: word(&seen.outcome),
            verdict: word(&seen.verdict),
            outcome_reason: owned(m.outcome_reason),
            policy_reason: owned(m.policy_reason),
            policy_ref: owned(m.policy_ref),
            asked_at: owned(m.request_observed_at).unwrap_or_else(|| seen.timestamp.clone().into_owned()),
            took: micros(m.duration_ms).map(Duration::from_micros),
            continues: owned(m.parent_receipt_id).is_some(),
            task_leg: has("task_leg") || seen.is_leg,
            anomalies,
        })
    }
}

impl Stored {
    /// Reads a pack that `report` verified; that its receipts and its surface are the same bytes is checked.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn of_pack(pack: &Path, report: &VerifyReport) -> Result<Self, StoredError> {
        let changed = |name: &str| CallsError::Changed { path: pack.join(name) };
        let dir =
            PackDir::open(pack).map_err(|e| CallsError::NotOpened { path: pack.to_owned(), what: e.to_string() })?;
        let (mut stored, mut asked) =
            (Self { session: report.facts.session.clone(), ..Self::default() }, HashMap::new());
        let (sha256, _) = calls::lines(&dir, RECEIPTS, |line| stored.calls.extend(Call::read(line.bytes, &mut asked)))?;
        if report.facts.receipt_pack_sha256.as_ref() != Some(&sha256) {
            return Err(changed(RECEIPTS).into());
        }
        let mut payloads = Payloads::new(payloads::beside(pack).as_deref());
        for call in &mut stored.calls {
            if call.arguments.is_none() {
                call.arguments =
                    payloads.get(Payload::Arguments, &call.invocation_id, &call.arguments_hash, &call.anomalies);
            }
            if let (None, Some(hash)) = (&call.result, &call.result_hash) {
                call.result = payloads.get(Payload::Result, &call.invocation_id, hash, &call.anomalies);
            }
        }
        stored.problems = payloads.problems;
        if let Some(session) = &stored.session {
            if let Some(hash) = &session.surface_hash {
                let file = plain(&pack.join(SURFACE)).and_then(|file| read_all(file, MAX_SURFACE));
                let bytes = file.map_err(StoredError::Io)?;
                if sha256_hex(&bytes) != *hash {
                    return Err(changed(SURFACE).into());
                }
                match Snapshot::read(&bytes) {
                    Ok(surface) => stored.surface = Some(surface),
                    Err(e) => stored.problems.push(format!("{SURFACE}: {e}")),
                }
            }
            stored.events(&dir)?;
        }
        Ok(stored)
    }

    /// Puts the calls into the order of their requests, which only the events know, and counts the other requests.
    fn events(&mut self, dir: &PackDir) -> Result<(), CallsError> {
        let said_nothing = [EMPTY.to_owned(), format!("sha256:{}", canon::sha256_hex(br#"{"resultType":"complete"}"#))];
        let mut order = HashMap::new();
        let others = &mut self.others;
        calls::lines(dir, AUDIT_LOG, |line| {
            let Some(m) = EventMembers::of_line(line.bytes) else { return };
            let from_client = m.direction == Some(b"\"client_to_server\"");
            let method = text(m.method).filter(|method| method != "tools/call");
            match text(m.event).as_deref() {
                Some("request_received") if from_client => {
                    if let Some(invocation) = text(m.invocation_id) {
                        let at = order.len();
                        order.entry(invocation.into_owned()).or_insert(at);
                    }
                    if let Some(method) = method {
                        others.entry(method.into_owned()).or_default().requests += 1;
                    }
                }
                Some("response_received") if !from_client => {
                    let Some(method) = method else { return };
                    let one = others.entry(method.into_owned()).or_default();
                    one.results += 1;
                    let hash = m.detail.and_then(|detail| text(crate::model::line::member(detail, "result_hash")));
                    one.empty += u64::from(hash.is_some_and(|hash| said_nothing.iter().any(|empty| *empty == hash)));
                }
                _ => {}
            }
        })?;
        self.calls.sort_by_key(|call| order.get(&call.invocation_id).copied().unwrap_or(usize::MAX));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_rpc_error_is_told_from_a_result_that_is_an_error() {
        let call = |result: &str| Call {
            outcome: Some(Outcome::Error),
            result: Some(result.as_bytes().to_vec()),
            ..Call::default()
        };
        assert!(call(r#"{"code":-32602,"message":"no"}"#).is_rpc_error());
        assert!(!call(r#"{"code":1,"content":[],"isError":true}"#).is_rpc_error());
        assert!(!Call { outcome: Some(Outcome::Error), ..Call::default() }.is_rpc_error());
    }
}
