//! Recorded calls, sent to a server again: what it answers now, and where that differs.

use crate::{
    canon,
    model::{
        Outcome, redaction,
        surface::{Facet, List},
    },
    pack::{
        diff::{Difference, differences},
        stored::{Call, Stored},
    },
    probe::{Answered, Caller, ProbeError},
};
use serde::Serialize;
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The least that one answer may take.
const ANSWER: Duration = Duration::from_secs(60);
/// Larger results are compared by their hashes alone.
const MAX_COMPARED: usize = 4 << 20;

/// Why a call is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// The user left its tool out.
    NotWanted,
    /// The server said that the tool destroys, and the user did not name it.
    Destructive,
    /// Its arguments were not stored.
    ArgumentsNotStored,
    /// Rules took something out of its arguments before they were stored.
    ArgumentsRedacted,
    /// Receipts hold another name than the one that was sent.
    NameNotKept,
    /// It went on with a call before it, or brought what a task came to.
    Continues,
    /// It was denied then.
    Denied,
    /// It had no answer then.
    NoAnswer,
}

impl Skip {
    /// In words, after "not sent:".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NotWanted => "left out by --only or --skip",
            Self::Destructive => "its server said that it is destructive; name it with --only",
            Self::ArgumentsNotStored => "its arguments were not stored (mcp-proxy --store-args)",
            Self::ArgumentsRedacted => "its arguments were redacted before they were stored (mcp-proxy --redact)",
            Self::NameNotKept => "the receipt does not have the name that was sent",
            Self::Continues => "it goes on with a call before it",
            Self::Denied => "it was denied then",
            Self::NoAnswer => "it had no answer then",
        }
    }
}

/// Which tools are wanted.
pub trait Wanted {
    /// Whether the calls of a tool are sent.
    fn wants(&self, tool: &str) -> bool;
    /// Whether the user named this very tool.
    fn names(&self, tool: &str) -> bool;
}

/// The calls that are sent, and how many of each tool are not.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// In the order in which they were asked for.
    pub sent: Vec<&'a Call>,
    /// By tool and reason.
    pub skipped: BTreeMap<(&'a str, Skip), u64>,
}

impl<'a> Plan<'a> {
    /// What is to be sent of a recording.
    #[must_use]
    pub fn of(stored: &'a Stored, wanted: &dyn Wanted) -> Self {
        let mut plan = Self::default();
        for call in &stored.calls {
            match skip(stored, call, wanted) {
                Some(why) => *plan.skipped.entry((call.tool.as_str(), why)).or_default() += 1,
                None => plan.sent.push(call),
            }
        }
        plan
    }

    /// How many calls of each tool are sent.
    #[must_use]
    pub fn tools(&self) -> BTreeMap<&'a str, u64> {
        let mut tools = BTreeMap::new();
        for call in &self.sent {
            *tools.entry(call.tool.as_str()).or_default() += 1;
        }
        tools
    }
}

fn skip(stored: &Stored, call: &Call, wanted: &dyn Wanted) -> Option<Skip> {
    let no_text = |raw: &Vec<u8>| raw_value(raw).is_none();
    Some(if !wanted.wants(&call.tool) {
        Skip::NotWanted
    } else if is_destructive(stored, &call.tool) && !wanted.names(&call.tool) {
        Skip::Destructive
    } else if call.outcome == Some(Outcome::Denied) {
        Skip::Denied
    } else if call.continues || call.task_leg {
        Skip::Continues
    } else if call.result_hash.is_none() {
        Skip::NoAnswer
    } else if call.renamed {
        Skip::NameNotKept
    } else if call.arguments.as_ref().is_none_or(no_text) {
        Skip::ArgumentsNotStored
    } else if !call.redacted(redaction::Side::Arguments).is_empty() {
        Skip::ArgumentsRedacted
    } else {
        return None;
    })
}

/// Whether the recorded definition of a tool says so: what says nothing is not taken for destructive, since most say nothing.
fn is_destructive(stored: &Stored, tool: &str) -> bool {
    let list = stored.surface.as_ref().map_or(&List::Unknown, |surface| surface.surface.list(Facet::Tools));
    list.items().iter().filter(|item| item.name == tool).any(|item| {
        let definition: serde_json::Value = serde_json::from_slice(&item.content).unwrap_or_default();
        definition["annotations"]["destructiveHint"] == true
    })
}

fn raw_value(raw: &[u8]) -> Option<&RawValue> {
    serde_json::from_slice(raw).ok()
}

/// How an answer stands with the recorded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The same value, whatever its form.
    Same,
    /// Another value.
    Different,
    /// None came.
    NoAnswer,
}

/// One side of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Hash of the result, or of the error's body.
    pub result_hash: Option<String>,
    /// Whether it is a result that is an error, or a JSON-RPC error.
    pub is_error: Option<bool>,
    /// How long the answer took, milliseconds.
    pub duration_ms: Option<f64>,
}

/// What became of one call.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// The receipt of the recorded call.
    pub receipt_id: String,
    /// The tool.
    pub tool: String,
    /// The same, another, or none.
    pub verdict: Verdict,
    /// The recorded answer.
    pub recorded: Side,
    /// The answer now.
    pub now: Side,
    /// Where they differ, if the recorded one was stored; from it to the one now.
    pub differences: Vec<Difference>,
    /// How many more places differ.
    pub differences_omitted: u64,
    /// Why there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Sends the calls of a plan, one after the other, and compares the answers. When the server is gone, the rest have no answer.
pub fn send(plan: &Plan<'_>, caller: &mut Caller<'_>, mut each: impl FnMut(&Compared)) -> Vec<Compared> {
    let mut gone: Option<String> = None;
    let mut all = Vec::new();
    for call in &plan.sent {
        let Some(arguments) = call.arguments.as_deref().and_then(raw_value) else { continue };
        let limit = ANSWER.max(call.took.unwrap_or_default() * 4);
        let begun = Instant::now();
        let answered = match &gone {
            Some(why) => Err(why.clone()),
            None => caller.call(&call.tool, arguments, limit).map_err(|e| {
                let said = e.to_string();
                if !matches!(e, ProbeError::Silent { .. }) {
                    gone = Some(said.clone());
                }
                said
            }),
        };
        let compared = compare(call, answered, begun.elapsed());
        each(&compared);
        all.push(compared);
    }
    all
}

fn compare(call: &Call, answered: Result<Answered, String>, took: Duration) -> Compared {
    let ms = |took: Duration| took.as_micros() as f64 / 1000.0;
    let recorded = Side {
        result_hash: call.result_hash.clone(),
        is_error: call.outcome.map(|outcome| outcome == Outcome::Error),
        duration_ms: call.took.map(ms),
    };
    let mut out = Compared {
        receipt_id: call.receipt_id.clone(),
        tool: call.tool.clone(),
        verdict: Verdict::NoAnswer,
        recorded,
        now: Side { result_hash: None, is_error: None, duration_ms: None },
        differences: Vec::new(),
        differences_omitted: 0,
        error: None,
    };
    let answer = match answered {
        Ok(answer) => answer,
        Err(why) => {
            out.error = Some(why);
            return out;
        }
    };
    let body = answer.body();
    let is_rpc_error = matches!(answer, Answered::Error(_));
    let hash = canon::digest(body, None).ok().map(|digest| digest.to_string());
    // An error's body and a result may be the same value.
    let same =
        hash.is_some() && hash == call.result_hash && (call.result.is_none() || is_rpc_error == call.is_rpc_error());
    out.verdict = if same { Verdict::Same } else { Verdict::Different };
    let says_error = crate::model::line::member(body, "isError") == Some(b"true");
    out.now = Side { result_hash: hash, is_error: Some(is_rpc_error || says_error), duration_ms: Some(ms(took)) };
    // What was redacted would differ in any case.
    if let (false, Some(before), []) = (same, &call.result, &call.redacted(redaction::Side::Result)[..])
        && before.len().max(body.len()) <= MAX_COMPARED
        && let (Ok(before), Ok(now)) = (serde_json::from_slice(before), serde_json::from_slice(body))
    {
        (out.differences, out.differences_omitted) = differences(&before, &now);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::surface::{Item, Snapshot, Surface};

    struct Only(Vec<&'static str>);

    impl Wanted for Only {
        fn wants(&self, tool: &str) -> bool {
            self.0.is_empty() || self.names(tool)
        }

        fn names(&self, tool: &str) -> bool {
            self.0.contains(&tool)
        }
    }

    fn call(tool: &str) -> Call {
        Call {
            tool: tool.into(),
            arguments: Some(b"{}".to_vec()),
            result: Some(br#"{"a":1}"#.to_vec()),
            result_hash: Some(canon::digest(br#"{"a":1}"#, None).unwrap().to_string()),
            outcome: Some(Outcome::Forwarded),
            ..Call::default()
        }
    }

    #[test]
    fn what_destroys_or_was_denied_or_is_not_known_is_not_sent() {
        let tool = br#"{"annotations":{"destructiveHint":true},"name":"rm"}"#;
        let tools = List::complete(vec![Item::of(Facet::Tools, tool, &[]).unwrap()]);
        let surface = Surface { lists: [(Facet::Tools, tools)].into(), ..Surface::default() };
        let mut stored = Stored {
            surface: Some(Snapshot { surface, ..Snapshot::default() }),
            calls: vec![
                call("ls"),
                call("rm"),
                Call { outcome: Some(Outcome::Denied), ..call("denied") },
                Call { arguments: None, ..call("unknown") },
                Call { continues: true, ..call("leg") },
                Call { result_hash: None, ..call("silent") },
                Call { renamed: true, ..call("renamed") },
            ],
            ..Stored::default()
        };
        let plan = Plan::of(&stored, &Only(vec![]));
        assert_eq!(plan.tools(), BTreeMap::from([("ls", 1)]));
        let why: Vec<_> = plan.skipped.keys().copied().collect();
        let expected = [
            ("denied", Skip::Denied),
            ("leg", Skip::Continues),
            ("renamed", Skip::NameNotKept),
            ("rm", Skip::Destructive),
            ("silent", Skip::NoAnswer),
            ("unknown", Skip::ArgumentsNotStored),
        ];
        assert_eq!(why, expected);
        assert_eq!(Plan::of(&stored, &Only(vec!["rm"])).tools(), BTreeMap::from([("rm", 1)]));
        stored.surface = None;
        assert_eq!(Plan::of(&stored, &Only(vec![])).tools().len(), 2);
    }

    #[test]
    fn another_form_is_the_same_value_and_another_value_is_said_place_by_place() {
        let took = Duration::from_millis(1);
        let same = compare(&call("t"), Ok(Answered::Result(br#"{ "a" : 1.0 }"#.to_vec())), took);
        assert_eq!(same.verdict, Verdict::Same);
        let other = compare(&call("t"), Ok(Answered::Result(br#"{"a":2}"#.to_vec())), took);
        assert_eq!((other.verdict, other.differences[0].path.as_str()), (Verdict::Different, "/a"));
        let error = compare(&call("t"), Ok(Answered::Error(br#"{"a":1}"#.to_vec())), took);
        assert_eq!((error.verdict, error.now.is_error), (Verdict::Different, Some(true)));
        let none = compare(&call("t"), Err("gone".into()), took);
        assert_eq!((none.verdict, none.error.as_deref()), (Verdict::NoAnswer, Some("gone")));
    }
}
