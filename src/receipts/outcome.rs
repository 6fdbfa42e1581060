//! How a handler ended, and what its receipt says of that.

use super::{recording::Facts, settings::Settings};
use crate::{
    canon,
    model::{
        Execution, ToolExecuted,
        line::{member, text},
    },
    record::{
        content,
        redact::{Anomalies, hash, store},
    },
};

/// Characters of the text of an error.
const MAX_ERROR: usize = 256;

/// How a handler ended.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// With a result: its JSON as it is sent.
    Result(&'a [u8]),
    /// With a JSON-RPC error: the error object as it is sent.
    Error(&'a [u8]),
}

/// What a result or an error adds to the receipt.
pub(super) fn with_outcome(
    s: &Settings,
    facts: &Facts,
    outcome: Outcome<'_>,
    receipt: &mut ToolExecuted,
    flags: &mut Anomalies,
) {
    let json = match outcome {
        Outcome::Result(json) | Outcome::Error(json) => json,
    };
    receipt.result_hash = Some(hash(json, flags));
    receipt.result_content = s.store_results.then(|| store(json, s.store_limit, flags)).flatten();
    let said = |raw: Option<&[u8]>| {
        let said = text(raw).filter(|_| s.store_errors)?;
        Some(content::receipt_text(&said.chars().take(MAX_ERROR).collect::<String>()).0.into_owned())
    };
    match outcome {
        Outcome::Result(json) => {
            let is_error = member(json, "isError") == Some(b"true");
            receipt.result_is_error = Some(is_error);
            let kind = text(member(json, "resultType"));
            receipt.result_type =
                Some(kind.map_or_else(|| "complete".to_owned(), |k| content::receipt_text(&k).0.into_owned()));
            if let Some(value) = member(json, "structuredContent") {
                receipt.result_redacted = s.cleartext_results.redact(&facts.tool, value, None, s.store_limit, flags);
            }
            if is_error {
                receipt.outcome = Execution::Error;
                let first = member(json, "content").and_then(|content| {
                    let first = canon::elements(content).ok()?.next()?.ok()?;
                    member(&content[first], "text")
                });
                receipt.error = Some(said(first).unwrap_or_else(|| "tool_error".to_owned()));
            }
        }
        Outcome::Error(json) => {
            receipt.outcome = Execution::Error;
            receipt.result_is_error = Some(true);
            let code = member(json, "code").and_then(crate::model::exact_integer);
            let code = code.map_or_else(|| "rpc".to_owned(), |code| format!("rpc:{code}"));
            receipt.error = Some(said(member(json, "message")).unwrap_or(code));
        }
    }
}
