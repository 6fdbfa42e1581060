//! Our own words as tokens of a language.

use crate::clients::read::Dialect;

/// A string as a token that every reader of the language takes, on one line.
#[must_use]
pub fn quoted(dialect: Dialect, text: &str) -> String {
    match dialect {
        Dialect::Yaml if is_plain_word(text) => text.to_owned(),
        Dialect::Json | Dialect::Yaml => serde_json::Value::from(text).to_string(),
        Dialect::Toml => {
            // JSON's escapes are TOML's, but for DEL, which TOML does not take as it is.
            serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
        }
    }
}

/// Whether it is a string without quotes to readers of YAML 1.1 and 1.2, in block and in flow lists.
fn is_plain_word(text: &str) -> bool {
    let word = text.strip_prefix("--").unwrap_or(text);
    let first = word.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '/');
    let rest = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let lower = text.to_ascii_lowercase();
    let other = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"].contains(&lower.as_str());
    first && rest && !other
}

/// A word in place of another token, in the quotes that this one has.
pub fn requoted(old: &str, word: &str) -> String {
    match old.chars().next() {
        Some(quote @ ('"' | '\'')) => format!("{quote}{word}{quote}"),
        _ => word.to_owned(),
    }
}
