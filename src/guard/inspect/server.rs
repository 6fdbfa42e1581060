//! A server's message: what of it a policy has to judge, and what only some clients would take for that.

use super::{Fields, ID, Item, ItemKind, METHOD, PARAMS, Reading, Refusal, Review, is_comparable};
use crate::{
    canon,
    model::Direction,
    record::envelope::{self, Reviewed},
    text::alike,
};
use std::borrow::Cow;

/// Says whether the policy has a rule for a name.
type Names<'a> = &'a mut dyn FnMut(&str) -> bool;

/// Reads a server's message. `names` says whether the policy has a rule for a name.
#[must_use]
pub fn read<'a>(text: &'a [u8], names: Names<'_>) -> Reading<'a> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Reading::Blank;
    }
    if envelope::is_batch(text) {
        return batch(text, names);
    }
    Reading::One(one(text, names).unwrap_or_else(|| unanswered(Refusal::Malformed)))
}

/// A sender of something that is not a message does not wait for an answer.
const fn unanswered(refusal: Refusal) -> Item<'static> {
    Item::unread(ItemKind::Notification, refusal)
}

fn batch<'a>(text: &'a [u8], names: Names<'_>) -> Reading<'a> {
    let whole = canon::scan(text).is_ok();
    let Some(elements) = canon::elements(text).ok().filter(|_| whole) else {
        return Reading::One(unanswered(Refusal::Malformed));
    };
    let items: Vec<_> = elements.flatten().filter_map(|range| one(&text[range], &mut *names)).collect();
    if items.iter().any(|item| item.review.is_some() || item.refused.is_some()) {
        // No server that samples sends batches; one that does is not followed into them.
        return Reading::One(unanswered(Refusal::BadBatch));
    }
    Reading::Batch(items)
}

/// Reads what is not a batch; `None` if it is not a message. What a result holds is a client's business.
fn one<'a>(text: &'a [u8], names: Names<'_>) -> Option<Item<'a>> {
    let mut fields = Fields::default();
    canon::outline(text, &mut |member| fields.see(&member)).ok()?;
    if canon::kind(text) != Some(canon::Kind::Object) {
        return None;
    }
    let super::Names { found: [id, method, params, result, error, _], refused } = fields.top;
    let answers = result.is_some() || error.is_some();
    let kind = match (method, id) {
        (Some(_), Some(_)) => ItemKind::Request,
        (Some(_), None) => ItemKind::Notification,
        (None, _) if answers => ItemKind::Response,
        // It may be a request whose method is spelt differently.
        (None, Some(_)) if refused[METHOD].is_some() => ItemKind::Request,
        (None, None) if refused[METHOD].is_some() => ItemKind::Notification,
        (None, _) => return None,
    };
    let raw = method.filter(|raw| is_comparable(raw));
    let judged = raw.and_then(|raw| {
        let name = canon::decode_string(raw)?;
        let is_like =
            |known: &&Reviewed| alike::is_misread_as(raw, known.method) || alike::is_like(&name, known.method);
        let Reviewed { method: known, if_named, .. } = *Reviewed::of(Direction::ServerToClient).find(is_like)?;
        (!if_named || names(known)).then(|| (known, name == known))
    });
    let (refused, review) = match judged {
        _ if refused[METHOD].is_some() => (Some(Refusal::BadMethod), None),
        // A name that is too long to be compared may be that name, padded.
        None if method.is_some_and(|raw| !is_comparable(raw)) => (Some(Refusal::BadMethod), None),
        None => (None, None),
        Some((_, false)) => (Some(Refusal::BadMethod), None),
        Some(_) if answers => (Some(Refusal::Shape), None),
        Some((tool, true)) => match refused[ID].or(refused[PARAMS]) {
            Some(refusal) => (Some(refusal), None),
            None => (None, Some(Review { tool: Cow::Borrowed(tool), arguments: params })),
        },
    };
    Some(Item { id, kind, refused, review, method, params })
}

/// A longer answer passes while it comes, unread: results of a server are never held up for their size.
pub(in crate::guard) const STREAM_AT: usize = 1 << 20;
/// A message that is not an answer is held until it is whole, and refused if it is longer. Less than a capture holds.
pub(in crate::guard) const MOST_HELD: usize = 3 << 20;

/// What is done with a server's message that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It is held.
    Hold,
    /// It passes while it comes, unread.
    Stream,
    /// It is refused.
    Refuse,
}

/// What is done with a server's message that begins so and has not ended; `last`: there is no room for more of it.
#[must_use]
pub fn pace(held: &[u8], last: bool) -> Pace {
    let is_long = held.len() > STREAM_AT;
    if !is_long && !last {
        return Pace::Hold;
    }
    match beginning(held) {
        // A recorder that is stuck does not hold up what may become an answer.
        Beginning::Open if !is_long => Pace::Stream,
        Beginning::Answer => Pace::Stream,
        _ if held.len() <= MOST_HELD && !last => Pace::Hold,
        _ => Pace::Refuse,
    }
}

/// Whether it is a message, or nothing at all.
pub(in crate::guard) fn is_message(text: &[u8]) -> bool {
    !matches!(read(text, &mut |_| false), Reading::One(Item { refused: Some(Refusal::Malformed), .. }))
}

/// What the beginning of a server's message shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// It is an answer: the value that may be long is its `result` or `error`. Of a batch: its first element is one.
    Answer,
    /// It does not show yet what the message is.
    Open,
    /// It is, or may be, anything else.
    Other,
}

/// Looks at the beginning of a server's message that has not ended.
#[must_use]
pub fn beginning(start: &[u8]) -> Beginning {
    let start = start.trim_ascii_start();
    let start = start.strip_prefix(b"[").map_or(start, <[u8]>::trim_ascii_start);
    let Some(mut rest) = start.strip_prefix(b"{") else {
        return if start.is_empty() { Beginning::Open } else { Beginning::Other };
    };
    loop {
        let member = rest.trim_ascii_start();
        let Ok(name_end) = canon::scan_at(member, 0) else { return Beginning::Open };
        match canon::decode_string(&member[..name_end]).as_deref() {
            Some("result" | "error") => return Beginning::Answer,
            Some("jsonrpc" | "id") => {}
            _ => return Beginning::Other,
        }
        let Some(value) = member[name_end..].trim_ascii_start().strip_prefix(b":") else { return Beginning::Open };
        let Ok(value_end) = canon::scan_at(value, 0) else { return Beginning::Open };
        let Some(next) = value[value_end..].trim_ascii_start().strip_prefix(b",") else { return Beginning::Open };
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_answer_shows_it() {
        use Beginning::{Answer, Open, Other};
        for (start, shows) in [
            ("", Open),
            (" [ ", Open),
            ("{\"jsonrpc\":\"2.", Open),
            ("{\"id\":1", Open),
            ("{\"id\":1,\"res", Open),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\"", Answer),
            (" [{\"id\":\"a\" , \"error\":{", Answer),
            ("{\"result\":{\"content\":[", Answer),
            ("{\"method\":\"x\",\"result\":1", Other),
            ("{\"id\":1,\"params\":{", Other),
            ("{\"id\":1,\"Method\":{", Other),
            ("noise", Other),
        ] {
            assert_eq!(beginning(start.as_bytes()), shows, "{start}");
        }
    }

    /// Whether a policy is asked, or why none has to be; `None` if it is not a message.
    #[derive(Debug, PartialEq)]
    enum Sampling {
        No,
        Asked,
        Doubtful(Refusal),
    }

    fn sampling(text: &str) -> Option<Sampling> {
        let item = one(text.as_bytes(), &mut |_| false)?;
        Some(match (item.refused, item.review) {
            (None, None) => Sampling::No,
            (None, Some(review)) => {
                assert_eq!(review.tool, "sampling/createMessage");
                Sampling::Asked
            }
            (Some(refusal), review) => {
                assert_eq!(review, None);
                Sampling::Doubtful(refusal)
            }
        })
    }

    #[test]
    fn elicitation_is_judged_where_the_policy_names_it() {
        for (text, expected) in [
            (r#"{"id":1,"method":"elicitation/create","params":{}}"#, (None, Some("elicitation/create"))),
            (r#"{"id":1,"method":"Elicitation/Create"}"#, (Some(Refusal::BadMethod), None)),
            (r#"{"id":1,"method":"elicitation/create","result":{}}"#, (Some(Refusal::Shape), None)),
            (r#"{"id":1,"method":"elicitation/other"}"#, (None, None)),
        ] {
            let mut asked = Vec::new();
            let mut named = |name: &str| {
                asked.push(name.to_owned());
                true
            };
            let item = one(text.as_bytes(), &mut named).unwrap();
            assert_eq!((item.refused, item.review.as_ref().map(|r| &*r.tool)), expected, "{text}");
            assert_eq!(asked.len(), usize::from(expected != (None, None)), "{text}");
            let item = one(text.as_bytes(), &mut |_| false).unwrap();
            assert_eq!((item.refused, item.review), (None, None), "{text}");
        }
    }

    #[test]
    fn what_some_client_takes_for_sampling_is_never_nothing() {
        use Sampling::{Asked, Doubtful, No};
        for (said, expected) in [
            (r#"{"id":1,"method":"sampling/createMessage","params":{}}"#, Some(Asked)),
            (r#"{"method":"sampling\/createMessage"}"#, Some(Asked)),
            (r#"{"id":1,"method":"Sampling/CreateMessage"}"#, Some(Doubtful(Refusal::BadMethod))),
            (r#"{"id":1,"method":"ping","Method":"sampling/createMessage"}"#, Some(Doubtful(Refusal::BadMethod))),
            (r#"{"id":1,"m\u0065thod":"sampling/createMessage"}"#, Some(Doubtful(Refusal::BadMethod))),
            (r#"{"id":1,"method":"sampling/createMessage","method":"ping"}"#, Some(Doubtful(Refusal::BadMethod))),
            (
                r#"{"id":1,"method":"sampling/createMessage","params":{},"Params":{}}"#,
                Some(Doubtful(Refusal::FoldedName)),
            ),
            (r#"{"id":1,"method":"sampling/createMessage","result":{}}"#, Some(Doubtful(Refusal::Shape))),
            (r#"{"id":1,"result":{"Method":1,"method":"sampling/createMessage","a":1,"a":2}}"#, Some(No)),
            (r#"{"id":1,"method":"elicitation/create","params":{"method":"sampling/createMessage"}}"#, Some(No)),
            (r#"{"Method":"sampling/createMessage","id":1}"#, Some(Doubtful(Refusal::BadMethod))),
            (r#"{"_method":"ping"}"#, Some(Doubtful(Refusal::BadMethod))),
            (r#"{"id":1,"methods":"sampling/createMessage"}"#, None),
            ("[]", None),
            ("{", None),
        ] {
            assert_eq!(sampling(said), expected, "{said}");
        }
        for (padding, expected) in [(2000, Sampling::No), (10_000, Sampling::Doubtful(Refusal::BadMethod))] {
            let said = format!(r#"{{"id":1,"method":"{}sampling/other"}}"#, "x".repeat(padding));
            assert_eq!(sampling(&said), Some(expected), "{padding}");
        }
    }
}
