//! Tool calls read from receipts of any builder, line by line, for comparing and counting; tolerant where verifying is strict.

use super::verify::source::{HashedLines, Line, OpenProblem, PackDir, ReadStop};
use crate::model::{
    Execution, InvocationId, Outcome, PolicyVerdict, Vocabulary,
    line::{micros, text, texts, truth},
    receipt::{CallMembers, EndMembers, SESSION_END, TOOL_CALL},
    redaction::{self, Side},
    server::{TOOL_DENIED, TOOL_EXECUTED, flat},
};
use std::{borrow::Cow, io, path::PathBuf};

/// What is read of a receipt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen<'a> {
    /// `type`.
    pub kind: Cow<'a, str>,
    /// `schema_version`; empty where there is none.
    pub schema: Cow<'a, str>,
    /// `receipt_id`.
    pub receipt_id: Cow<'a, str>,
    /// `request_observed_at`, verbatim; empty where there is none.
    pub asked_at: Cow<'a, str>,
    /// `timestamp`, verbatim.
    pub timestamp: Cow<'a, str>,
    /// `tool_name`; empty where there is none.
    pub tool: Cow<'a, str>,
    /// `server_id`; empty where there is none.
    pub server: Cow<'a, str>,
    /// `arguments_hash`; empty where there is none.
    pub arguments_hash: Cow<'a, str>,
    /// `result_hash`.
    pub result_hash: Option<Cow<'a, str>>,
    /// `outcome`; empty where there is none.
    pub outcome: Cow<'a, str>,
    /// `policy_verdict`; empty where there is none.
    pub verdict: Cow<'a, str>,
    /// `duration_ms`, in microseconds.
    pub duration_us: Option<u64>,
    /// `result_content`, verbatim; `None` where it is null.
    pub result_content: Option<&'a [u8]>,
    /// Rules took something out of the result that is stored.
    pub result_is_redacted: bool,
    /// `end_reason` of a session's end.
    pub end_reason: Cow<'a, str>,
    /// `session_complete` of a session's end.
    pub session_complete: Option<bool>,
    /// `surface_state`; empty where the call was not compared with what is approved.
    pub surface: Cow<'a, str>,
    /// It continues a call that has a receipt, which a server wrote of itself.
    pub is_leg: bool,
    /// `invocation_id` of what a server wrote of itself.
    pub invocation: Option<InvocationId>,
}

/// The rules that took something out of a content before it was stored, as `anomalies` name them.
pub fn redacted(anomalies: Option<&[u8]>, side: Side) -> impl Iterator<Item = String> {
    texts(anomalies).filter_map(move |word| redaction::rules([word.as_bytes()], side).next().map(str::to_owned))
}

impl<'a> Seen<'a> {
    /// Reads a line; `None` when it is not a JSON object. A member of another type than expected counts as absent.
    #[must_use]
    pub fn read(line: &'a [u8]) -> Option<Self> {
        let mut seen = Self::of(&CallMembers::of_line(line)?);
        if seen.kind == SESSION_END {
            let m = EndMembers::of_line(line)?;
            seen.end_reason = text(m.end_reason).unwrap_or_default();
            seen.session_complete = truth(m.session_complete);
        }
        Some(seen)
    }

    /// The same of members that were read; not what only the end of a session has.
    #[must_use]
    pub fn of(m: &CallMembers<'a>) -> Self {
        let mut seen = Self {
            kind: text(m.r#type).unwrap_or_default(),
            schema: text(m.schema_version).unwrap_or_default(),
            receipt_id: text(m.receipt_id).unwrap_or_default(),
            asked_at: text(m.request_observed_at).unwrap_or_default(),
            timestamp: text(m.timestamp).unwrap_or_default(),
            tool: text(m.tool_name).unwrap_or_default(),
            server: text(m.server_id).unwrap_or_default(),
            arguments_hash: text(m.arguments_hash).unwrap_or_default(),
            result_hash: text(m.result_hash),
            outcome: text(m.outcome).unwrap_or_default(),
            verdict: text(m.policy_verdict).unwrap_or_default(),
            duration_us: micros(m.duration_ms),
            surface: text(m.surface_state).unwrap_or_default(),
            result_content: m.result_content.filter(|raw| *raw != b"null"),
            result_is_redacted: redacted(m.anomalies, Side::Result).next().is_some(),
            ..Self::default()
        };
        let of_server = flat(&seen.kind);
        if of_server.is_some() {
            seen.invocation = text(m.invocation_id).and_then(|id| InvocationId::parse(&id).ok());
        }
        match of_server {
            Some(TOOL_DENIED) => {
                seen.outcome = Outcome::Denied.as_str().into();
                seen.verdict = PolicyVerdict::Denied.as_str().into();
            }
            Some(TOOL_EXECUTED) => {
                let outcome = Execution::of(seen.outcome.as_bytes()).map(Execution::of_call);
                seen.outcome = outcome.map_or(seen.outcome, |outcome| outcome.as_str().into());
                // What a task came to belongs to the call that began it.
                seen.is_leg = text(m.parent_receipt_id).is_some();
            }
            _ => {}
        }
        seen
    }

    /// Whether it says what became of a tool call.
    #[must_use]
    pub fn is_call(&self) -> bool {
        let kind = flat(&self.kind);
        self.kind == TOOL_CALL || kind == Some(TOOL_DENIED) || kind == Some(TOOL_EXECUTED) && !self.is_leg
    }

    /// The day of `timestamp` in UTC as `2026-03-15`, where it begins with one.
    #[must_use]
    pub fn day(&self) -> Option<&str> {
        let day = self.timestamp.get(..10)?;
        let form = day.bytes().enumerate().all(|(i, b)| if i == 4 || i == 7 { b == b'-' } else { b.is_ascii_digit() });
        form.then_some(day)
    }
}

/// A word of a receipt as a value of the model; `None` for an unknown word.
#[must_use]
pub fn word<T: Vocabulary>(text: &str) -> Option<T> {
    T::of(text.as_bytes())
}

/// Why receipts could not be read to their end.
#[derive(Debug, thiserror::Error)]
pub enum CallsError {
    /// It is not there, or is nothing that is opened.
    #[error("{}: {what}", .path.display())]
    NotOpened {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong, in words.
        what: String,
    },
    /// A line is too long, or what the system says.
    #[error("{}: {what}", .path.display())]
    Broken {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong, in words.
        what: String,
    },
    /// A later version wrote a line: the whole file is left out of the counts.
    #[error("{}: {source}", .path.display())]
    TooNew {
        /// Path of the file.
        path: PathBuf,
        /// What is known of it.
        source: crate::model::reading::TooNew,
    },
    /// The file is not the one that was verified.
    #[error("{}: it changed while it was read", .path.display())]
    Changed {
        /// Path of the file.
        path: PathBuf,
    },
}

/// Calls `each` with every line of a file in a directory; gives the SHA-256 (hex) and the length of what was read.
///
/// # Errors
/// [`CallsError`].
pub fn lines(dir: &PackDir, name: &str, mut each: impl FnMut(&Line<'_>)) -> Result<(String, u64), CallsError> {
    let path = dir.path().join(name);
    let (file, _) = dir.open_file(name).map_err(|e| CallsError::NotOpened { path: path.clone(), what: problem(&e) })?;
    let mut lines = HashedLines::hashed(file);
    let broken = |stop: ReadStop| CallsError::Broken { path: path.clone(), what: stopped(&stop) };
    while let Some(line) = lines.next(&mut ()).map_err(broken)? {
        each(&line);
    }
    lines.finish(&mut ()).map_err(broken)
}

fn problem(e: &OpenProblem) -> String {
    match e {
        OpenProblem::Missing => "there is no such file".to_owned(),
        OpenProblem::Special(what) => format!("it is {what}"),
        OpenProblem::Io(e) => e.to_string(),
    }
}

fn stopped(stop: &ReadStop) -> String {
    match stop {
        ReadStop::TooLong => "a line is too long".to_owned(),
        ReadStop::Io(e) => e.to_string(),
        ReadStop::Cancelled => io::Error::from(io::ErrorKind::Interrupted).to_string(),
        ReadStop::Garbage => "too much of it is not evidence".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_a_call_is_one_call_in_the_words_of_a_proxy() {
        let seen = |line: &'static str| Seen::read(line.as_bytes()).unwrap();
        assert!(!seen(r#"{"type":"mcp_tool_requested"}"#).is_call());
        let denied = seen(r#"{"type":"mcp.tool_denied","tool_name":"t"}"#);
        assert!(denied.is_call());
        assert_eq!((denied.outcome.as_ref(), denied.verdict.as_ref()), ("denied", "denied"));
        for (said, read) in [("success", "forwarded"), ("error", "error"), ("timeout", "timeout"), ("other", "other")] {
            let line = format!(r#"{{"type":"mcp_tool_executed","parent_receipt_id":null,"outcome":"{said}"}}"#);
            let seen = Seen::read(line.as_bytes()).unwrap();
            assert_eq!((seen.is_call(), seen.outcome.as_ref()), (true, read));
        }
        assert!(!seen(r#"{"type":"mcp_tool_executed","parent_receipt_id":"mte_0000000000000001"}"#).is_call());
    }

    #[test]
    fn members_of_another_type_count_as_absent() {
        let line = br#"{"type":"mcp_tool_call","tool_name":7,"duration_ms":1.234,"result_content":null,"timestamp":"2026-03-15T1","result_hash":{}}"#;
        let seen = Seen::read(line).unwrap();
        assert!(seen.is_call());
        assert_eq!((seen.tool.as_ref(), seen.duration_us, seen.result_hash.clone()), ("", Some(1234), None));
        assert_eq!((seen.day(), seen.result_content), (Some("2026-03-15"), None));
        assert_eq!(Seen::read(b"[1]"), None);
        assert_eq!(Seen::read(br#"{"a":1"#), None);
        for (raw, us) in [("-1", None), ("1e400", None), ("\"1\"", None), ("0", Some(0)), ("1e3", Some(1_000_000))] {
            assert_eq!(micros(Some(raw.as_bytes())), us, "{raw}");
        }
        let odd = Seen { timestamp: "20260315".into(), ..Seen::default() };
        assert_eq!(odd.day(), None);
    }
}
