//! A server's message: what of it a policy has to judge, and what only some clients would take for that.

use super::{Fields, ID, Item, ItemKind, METHOD, Names, PARAMS, REVIEWED, Reading, Refusal, Review, is_comparable};
use crate::{canon, guard::folding, record::envelope};
use std::borrow::Cow;

/// The one method of a server that a policy judges.
const SAMPLING: &str = REVIEWED[2];

/// Reads a server's message.
#[must_use]
pub fn read(text: &[u8]) -> Reading<'_> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Reading::Blank;
    }
    if envelope::is_batch(text) {
        return batch(text);
    }
    Reading::One(one(text).unwrap_or_else(|| unanswered(Refusal::Malformed)))
}

/// A sender of something that is not a message does not wait for an answer.
const fn unanswered(refusal: Refusal) -> Item<'static> {
    Item::unread(ItemKind::Notification, refusal)
}

fn batch(text: &[u8]) -> Reading<'_> {
    let whole = canon::scan(text).is_ok();
    let Some(elements) = canon::elements(text).ok().filter(|_| whole) else {
        return Reading::One(unanswered(Refusal::Malformed));
    };
    let items: Vec<_> = elements.flatten().filter_map(|range| one(&text[range])).collect();
    if items.iter().any(|item| item.review.is_some() || item.refused.is_some()) {
        // No server that samples sends batches; one that does is not followed into them.
        return Reading::One(unanswered(Refusal::BadBatch));
    }
    Reading::Batch(items)
}

/// Reads what is not a batch; `None` if it is not a message. What a result holds is a client's business.
fn one(text: &[u8]) -> Option<Item<'_>> {
    let mut fields = Fields::default();
    canon::outline(text, &mut |member| fields.see(&member)).ok()?;
    if canon::kind(text) != Some(canon::Kind::Object) {
        return None;
    }
    let Names { found: [id, method, params, result, error, _], refused } = fields.top;
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
    let is_misread = raw.is_some_and(|raw| folding::is_misread_as(raw, SAMPLING));
    let name = raw.and_then(canon::decode_string).filter(|name| is_misread || folding::is_like(name, SAMPLING));
    let asked = || Review { tool: Cow::Borrowed(SAMPLING), arguments: params };
    let (refused, review) = match name {
        _ if refused[METHOD].is_some() => (Some(Refusal::BadMethod), None),
        // A name that is too long to be compared may be that name, padded.
        None if method.is_some_and(|raw| !is_comparable(raw)) => (Some(Refusal::BadMethod), None),
        None => (None, None),
        Some(name) if name != SAMPLING => (Some(Refusal::BadMethod), None),
        Some(_) if answers => (Some(Refusal::Shape), None),
        Some(_) => match refused[ID].or(refused[PARAMS]) {
            Some(refusal) => (Some(refusal), None),
            None => (None, Some(asked())),
        },
    };
    Some(Item { id, kind, refused, review })
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
        let item = one(text.as_bytes())?;
        Some(match (item.refused, item.review) {
            (None, None) => Sampling::No,
            (None, Some(review)) => {
                assert_eq!(review.tool, SAMPLING);
                Sampling::Asked
            }
            (Some(refusal), review) => {
                assert_eq!(review, None);
                Sampling::Doubtful(refusal)
            }
        })
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
