//! How evidence says that rules took something out of a content before it was stored (docs/redaction.md).
//!
//! Where something was, the content has a placeholder with the name of the rule; `anomalies` has a word for each rule, and for which
//! content it was. The hash is that of the original.

use super::{CallAnomaly, Word};

/// How each word of `anomalies` begins that names a rule.
const PREFIX: &str = "redacted:";
/// The longest name of a rule, in bytes.
pub const MAX_NAME: usize = 40;

/// Which content of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What the tool was given.
    Arguments,
    /// What it answered, or its error.
    Result,
}

impl Side {
    /// As `anomalies` have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Arguments => "arguments",
            Self::Result => "result",
        }
    }
}

/// Whether a text can name a rule: small ASCII letters, digits and `-`, so that it stands in JSON as it is.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// The word of `anomalies` that says what a rule took something out of.
#[must_use]
pub fn word(side: Side, rule: &str) -> String {
    format!("{PREFIX}{}:{rule}", side.as_str())
}

/// What stands where something was taken out.
#[must_use]
pub fn placeholder(rule: &str) -> String {
    format!("[redacted:{rule}]")
}

/// The rules that took something out of one content, as the words of `anomalies` name them.
pub fn rules<'a>(words: impl IntoIterator<Item = &'a [u8]>, side: Side) -> impl Iterator<Item = &'a str> {
    words.into_iter().filter_map(move |word| {
        let rest = word.strip_prefix(PREFIX.as_bytes())?.strip_prefix(side.as_str().as_bytes())?;
        std::str::from_utf8(rest.strip_prefix(b":")?).ok().filter(|name| is_name(name))
    })
}

/// Whether `anomalies` name such a rule.
#[must_use]
pub fn is_redacted<'a>(anomalies: impl IntoIterator<Item = &'a Word<CallAnomaly>>, side: Side) -> bool {
    rules(anomalies.into_iter().map(|word| word.as_bytes()), side).next().is_some()
}

/// Whether a content that is not what its hash says is what rules left of it: some are named, and it has the placeholder of each.
/// Only a value with a canonical form is ever redacted.
pub fn stands_for<'a>(content: &[u8], hash: &[u8], words: impl IntoIterator<Item = &'a [u8]>, side: Side) -> bool {
    let mut named = rules(words, side).peekable();
    hash.starts_with(b"sha256:")
        && named.peek().is_some()
        && named.all(|rule| memchr::memmem::find(content, placeholder(rule).as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_known_as_redacted_only_by_the_words_that_say_so() {
        let words: [&[u8]; 4] =
            [b"duplicate_key", b"redacted:arguments:a-1", b"redacted:arguments:b", b"redacted:result:c"];
        let of = |content: &str, words: &[&'static [u8]], side| {
            stands_for(content.as_bytes(), b"sha256:0", words.iter().copied(), side)
        };
        assert_eq!(rules(words, Side::Arguments).collect::<Vec<_>>(), ["a-1", "b"]);
        assert_eq!(word(Side::Result, "c").as_bytes(), words[3]);
        assert!(of(r#"{"x":"[redacted:a-1]","y":"see [redacted:b]."}"#, &words, Side::Arguments));
        assert!(of(r#""[redacted:c]""#, &words, Side::Result));
        for content in [r#"{"x":"[redacted:a-1]"}"#, r#"{"x":"[redacted:b]"}"#, "{}"] {
            assert!(!of(content, &words, Side::Arguments), "{content}");
        }
        assert!(!of(r#""[redacted:c]""#, &words[..3], Side::Result));
        assert!(!stands_for(br#""[redacted:c]""#, b"sha256-raw:0", words, Side::Result));
        let strange: [&[u8]; 4] =
            [b"redacted:result:", b"redacted:result:A", b"redacted:result:a b", b"redacted:resultc"];
        assert_eq!(rules(strange, Side::Result).count(), 0);
    }
}
