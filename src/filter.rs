//! The one filter grammar: for the command line, the dashboard and exports.
//!
//! ```text
//! filter  = term { " " term }                 all terms must hold
//! term    = [ "!" ] ( field ":" text | "ms" op number | text )
//! field   = "tool" | "server" | "verdict" | "outcome" | "id"        of calls
//!         | "server" | "client" | "state" | "id"                      of sessions, which have no "ms"
//! op      = ">" | "<" | ">=" | "<=" | "="
//! text    = word without spaces | '"' anything '"'      with * for any characters
//! ```
//!
//! Text is compared without regard to case, anywhere in the value, unless it has a `*`: then it is the whole value. Plain
//! text looks at all names and ids. `verdict:`, `outcome:` and `state:` take their words, or the beginning of one.

use crate::model::{Outcome, PolicyVerdict};
use std::fmt;

/// What a filter looks at in a call or a session.
#[derive(Debug, Clone, Default)]
pub struct Facts<'a> {
    /// Name of the tool.
    pub tool: &'a str,
    /// The server's id: from `--server-id`, or derived from its command.
    pub server: &'a str,
    /// The client of a session, as it names itself.
    pub client: &'a str,
    /// The state of a session.
    pub state: &'a str,
    /// The verdict, once known.
    pub verdict: Option<PolicyVerdict>,
    /// The outcome; `None` while the call runs.
    pub outcome: Option<Outcome>,
    /// Invocation, receipt and JSON-RPC ids.
    pub ids: Vec<String>,
    /// Round trip in microseconds; for a running call the time so far, if it is known.
    pub us: Option<u64>,
}

/// A filter that does not mean anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct FilterError {
    /// Byte offset of the culprit in the text.
    pub at: usize,
    /// What is wrong with it.
    pub what: String,
}

impl FilterError {
    /// The text with a caret under the culprit, on two lines. `text` is what was parsed.
    #[must_use]
    pub fn under(&self, text: &str) -> String {
        let before = text.get(..self.at).unwrap_or(text);
        let column = crate::text::width(&crate::text::visible(before));
        format!("{}\n{}^ {self}", crate::text::visible(text), " ".repeat(column))
    }
}

/// A filter for calls or sessions: one passes if every term holds; without terms, every one does.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq)]
struct Term {
    not: bool,
    what: What,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    Tool(Pattern),
    Server(Pattern),
    Client(Pattern),
    /// Those of [`STATES`].
    State(Vec<&'static str>),
    Id(Pattern),
    Any(Pattern),
    Verdict(Vec<PolicyVerdict>),
    /// `None` means a running call.
    Outcome(Vec<Option<Outcome>>),
    Took(Op, f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Over,
    Under,
    AtLeast,
    AtMost,
    Exactly,
}

/// Lower-case text, `*` for anything.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(String);

impl Pattern {
    fn matches(&self, value: &str) -> bool {
        let value = value.to_lowercase();
        if !self.0.contains('*') {
            return value.contains(&self.0);
        }
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = value.strip_prefix(first) else { return false };
        let mut parts = parts.peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

const VERDICTS: [(&str, PolicyVerdict); 3] =
    [("allowed", PolicyVerdict::Allowed), ("denied", PolicyVerdict::Denied), ("no_policy", PolicyVerdict::NoPolicy)];
const OUTCOMES: [(&str, Option<Outcome>); 5] = [
    ("running", None),
    ("forwarded", Some(Outcome::Forwarded)),
    ("denied", Some(Outcome::Denied)),
    ("error", Some(Outcome::Error)),
    ("timeout", Some(Outcome::Timeout)),
];

/// The states of sessions.
pub const STATES: [&str; 10] =
    ["complete", "incomplete", "live", "sealing", "ended", "died", "failed", "half-written", "newer", "not yours"];

/// What is filtered.
#[derive(Debug, Clone, Copy)]
struct Subject {
    name: &'static str,
    fields: &'static [&'static str],
    /// Whether it takes time.
    timed: bool,
}

const CALLS: Subject = Subject { name: "calls", fields: &["tool", "server", "verdict", "outcome", "id"], timed: true };
const SESSIONS: Subject = Subject { name: "sessions", fields: &["server", "client", "state", "id"], timed: false };

impl Filter {
    /// Reads a filter for calls. An empty one lets everything through.
    ///
    /// # Errors
    /// What is wrong, and at which byte.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Self::of(CALLS, text)
    }

    /// Reads a filter for sessions.
    ///
    /// # Errors
    /// What is wrong, and at which byte.
    pub fn sessions(text: &str) -> Result<Self, FilterError> {
        Self::of(SESSIONS, text)
    }

    fn of(subject: Subject, text: &str) -> Result<Self, FilterError> {
        let mut terms = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let skip = rest.len() - rest.trim_start().len();
            if skip > 0 {
                at += skip;
                continue;
            }
            let end = at + term_len(rest).ok_or_else(|| error(at, "missing closing quote"))?;
            terms.push(term(subject, &text[at..end], at)?);
            at = end;
        }
        Ok(Self { terms })
    }

    /// Whether it lets everything through.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether a call or a session passes.
    #[must_use]
    pub fn passes(&self, facts: &Facts<'_>) -> bool {
        self.terms.iter().all(|t| t.what.holds(facts) != t.not)
    }
}

impl fmt::Display for Facts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server, self.tool)
    }
}

impl What {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        let id = |p: &Pattern| facts.ids.iter().any(|id| p.matches(id));
        match self {
            Self::Tool(p) => p.matches(facts.tool),
            Self::Server(p) => p.matches(facts.server),
            Self::Id(p) => id(p),
            Self::Client(p) => p.matches(facts.client),
            Self::State(wanted) => wanted.contains(&facts.state),
            Self::Any(p) => [facts.tool, facts.server, facts.client].iter().any(|name| p.matches(name)) || id(p),
            Self::Verdict(wanted) => facts.verdict.is_some_and(|v| wanted.contains(&v)),
            Self::Outcome(wanted) => wanted.contains(&facts.outcome),
            Self::Took(op, ms) => facts.us.is_some_and(|us| {
                let took = us as f64 / 1000.0;
                match op {
                    Op::Over => took > *ms,
                    Op::Under => took < *ms,
                    Op::AtLeast => took >= *ms,
                    Op::AtMost => took <= *ms,
                    Op::Exactly => (took - ms).abs() < 0.0005,
                }
            }),
        }
    }
}

fn error(at: usize, what: impl Into<String>) -> FilterError {
    FilterError { at, what: what.into() }
}

/// Bytes of the term at the beginning of `rest`; `None` if a quote stays open.
fn term_len(rest: &str) -> Option<usize> {
    let mut quoted = false;
    for (i, c) in rest.char_indices() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => return Some(i),
            _ => {}
        }
    }
    (!quoted).then_some(rest.len())
}

fn term(subject: Subject, text: &str, at: usize) -> Result<Term, FilterError> {
    let (not, body) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let at = at + usize::from(not);
    if body.is_empty() {
        return Err(error(at, "nothing follows !"));
    }
    let timed = if subject.timed { took(body, at)? } else { None };
    let what = match timed {
        Some(what) => what,
        None => match body.split_once(':').filter(|(field, _)| !field.contains('"')) {
            Some((field, value)) => of_field(subject, field, value, at)?,
            None => What::Any(pattern(body, at)?),
        },
    };
    Ok(Term { not, what })
}

fn took(body: &str, at: usize) -> Result<Option<What>, FilterError> {
    let Some(rest) = body.strip_prefix("ms") else { return Ok(None) };
    let ops = [(">=", Op::AtLeast), ("<=", Op::AtMost), (">", Op::Over), ("<", Op::Under), ("=", Op::Exactly)];
    let Some((sign, op)) = ops.into_iter().find(|(sign, _)| rest.starts_with(sign)) else { return Ok(None) };
    let number = &rest[sign.len()..];
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match number.parse::<f64>() {
        Ok(ms) if plain && ms.is_finite() => Ok(Some(What::Took(op, ms))),
        _ => Err(error(at + 2 + sign.len(), "expected a number of milliseconds, as in ms>250")),
    }
}

fn of_field(subject: Subject, field: &str, value: &str, at: usize) -> Result<What, FilterError> {
    let value_at = at + field.len() + 1;
    if !subject.fields.contains(&field) {
        let (fields, ms) = (subject.fields.join(":, "), if subject.timed { ", ms" } else { "" });
        let what = format!("{} have {fields}:{ms} only", subject.name);
        return Err(error(at, what));
    }
    if value.is_empty() {
        return Err(error(value_at, format!("nothing follows {field}:")));
    }
    Ok(match field {
        "tool" => What::Tool(pattern(value, value_at)?),
        "server" => What::Server(pattern(value, value_at)?),
        "client" => What::Client(pattern(value, value_at)?),
        "state" => What::State(states(&pattern(value, value_at)?, value_at)?),
        "id" => What::Id(pattern(value, value_at)?),
        "verdict" => What::Verdict(words(&VERDICTS, value, value_at)?),
        _ => What::Outcome(words(&OUTCOMES, value, value_at)?),
    })
}

fn pattern(value: &str, at: usize) -> Result<Pattern, FilterError> {
    let text: String = value.chars().filter(|c| *c != '"').collect();
    if text.is_empty() { Err(error(at, "empty text")) } else { Ok(Pattern(text.to_lowercase())) }
}

fn states(wanted: &Pattern, at: usize) -> Result<Vec<&'static str>, FilterError> {
    let is_wanted =
        |word: &str| if wanted.0.contains('*') { wanted.matches(word) } else { word.starts_with(&wanted.0) };
    let found: Vec<&str> = STATES.into_iter().filter(|word| is_wanted(word)).collect();
    if found.is_empty() { Err(error(at, format!("expected one of {}", STATES.join(", ")))) } else { Ok(found) }
}

fn words<T: Copy>(known: &[(&str, T)], value: &str, at: usize) -> Result<Vec<T>, FilterError> {
    let value = value.to_lowercase();
    let found: Vec<T> = known.iter().filter(|(word, _)| word.starts_with(&value)).map(|(_, v)| *v).collect();
    if found.is_empty() {
        let all: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        return Err(error(at, format!("expected one of {}", all.join(", "))));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow() -> Facts<'static> {
        Facts {
            tool: "read_file",
            server: "Filesystem",
            verdict: Some(PolicyVerdict::NoPolicy),
            outcome: Some(Outcome::Error),
            ids: vec!["inv_00000000000000ab".into(), "7".into()],
            us: Some(300_000),
            ..Facts::default()
        }
    }

    #[test]
    fn every_form_passes_what_it_says() {
        for (text, passes) in [
            ("", true),
            ("  ", true),
            ("tool:read", true),
            ("tool:READ", true),
            ("tool:write", false),
            ("tool:read*", true),
            ("tool:*file", true),
            ("tool:r*d*e", true),
            ("tool:read", true),
            ("tool:file*", false),
            ("tool:*x*", false),
            ("server:file", true),
            ("verdict:no_policy", true),
            ("verdict:allowed", false),
            ("outcome:err", true),
            ("outcome:running", false),
            ("id:ab", true),
            ("id:inv_*ab", true),
            ("ms>250", true),
            ("ms>300", false),
            ("ms>=300", true),
            ("ms<300.5", true),
            ("ms<=299", false),
            ("ms=300", true),
            ("!ms>250", false),
            ("!tool:write", true),
            ("file", true),
            ("filesys", true),
            ("nothing", false),
            ("!nothing", true),
            ("tool:read ms>250 !outcome:timeout", true),
            ("tool:read ms>999", false),
            ("\"read_file\"", true),
            ("tool:\"read file\"", false),
            ("\"a:b\"", false),
            ("ms", false),
        ] {
            assert_eq!(Filter::parse(text).unwrap().passes(&slow()), passes, "{text:?}");
        }
        let running = Facts { outcome: None, us: None, ..slow() };
        assert!(Filter::parse("outcome:running").unwrap().passes(&running));
        assert!(!Filter::parse("ms>0").unwrap().passes(&running));
    }

    #[test]
    fn sessions_have_fields_of_their_own() {
        let one = Facts { server: "github", client: "claude-code 2.1", state: "incomplete", ..Facts::default() };
        for (text, passes) in [
            ("server:git state:inc", true),
            ("state:complete", false),
            ("state:in*", true),
            ("state:*complete", true),
            ("!state:c*", true),
            ("client:claude", true),
            ("claude !state:live", true),
            ("client:codex", false),
        ] {
            assert_eq!(Filter::sessions(text).unwrap().passes(&one), passes, "{text:?}");
        }
        for (text, at) in [("server:a tool:b", 9), ("!verdict:allowed", 1), ("state:", 6), ("!state:complte", 7)] {
            assert_eq!(Filter::sessions(text).unwrap_err().at, at, "{text:?}");
        }
        assert!(Filter::parse("state:live").unwrap_err().to_string().contains("calls have tool:"));
    }

    #[test]
    fn errors_name_the_byte() {
        for (text, at) in [
            ("tool:", 5),
            ("a tool:", 7),
            ("colour:red", 0),
            ("é colour:red", 3),
            ("verdict:maybe", 8),
            ("!outcome:x", 9),
            ("ms>x", 3),
            ("ms>", 3),
            ("ms>=1e9", 4),
            ("x !", 3),
            ("x \"open", 2),
            ("tool:\"\"", 5),
        ] {
            assert_eq!(Filter::parse(text).unwrap_err().at, at, "{text:?}");
        }
        let e = Filter::parse("日本 ms>x").unwrap_err();
        assert_eq!(e.under("日本 ms>x").lines().nth(1).unwrap().find('^'), Some(8));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_stumble(text in "\\PC*|[a-z:!\"*<>=. ]*") {
            match Filter::parse(&text) {
                Ok(filter) => drop(filter.passes(&slow())),
                Err(e) => {
                    prop_assert!(text.is_char_boundary(e.at), "{}", e.at);
                    drop(e.under(&text));
                }
            }
        }
    }
}
