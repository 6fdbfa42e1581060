//! How a handler ended, and what its receipt says of that.

use super::{recording::Facts, settings::Settings};
use crate::{
    canon,
    model::{
        Execution, ToolExecuted,
        line::{member, text},
        receipt::{OWN_REDACTED_SCHEMA, PLAIN_SCHEMA},
        redaction::{self, Side},
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

/// The schema version of a receipt with or without a content of which rules may have taken something out.
pub(super) fn schema_of(has_content: bool, flags: &Anomalies, side: Side) -> String {
    let is_redacted = has_content && redaction::is_redacted(flags, side);
    if is_redacted { OWN_REDACTED_SCHEMA } else { PLAIN_SCHEMA }.to_owned()
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
    let is_kept = s.store_results || s.store_errors || s.cleartext_results.names(&facts.tool);
    let left = s.left(is_kept, Side::Result, json, flags);
    let kept = left.to_keep(json);
    receipt.result_content = kept.filter(|_| s.store_results).and_then(|value| store(value, s.store_limit, flags));
    receipt.schema_version = schema_of(receipt.result_content.is_some(), flags, Side::Result);
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
            if let Some((value, _)) = member(json, "structuredContent").zip(kept) {
                // Where rules renamed it, nothing of it is kept.
                let left = left.part().map(|left| member(left, "structuredContent").unwrap_or(b"null"));
                receipt.result_redacted = s.cleartext_results.redact(&facts.tool, value, left, s.store_limit, flags);
            }
            if is_error {
                receipt.outcome = Execution::Error;
                let first = kept.and_then(|kept| member(kept, "content")).and_then(|content| {
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
            receipt.error = Some(said(kept.and_then(|kept| member(kept, "message"))).unwrap_or(code));
        }
    }
}
