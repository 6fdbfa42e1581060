//! Text of others: nothing in it is markup, and nothing in it is hidden.

use crate::text::visible;
use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};
use std::{borrow::Cow, time::Duration};

/// So long it is looked for the smallest difference; one that is larger than needed is shown after that.
const PATIENCE: Duration = Duration::from_millis(200);

/// A text in one line: hidden characters are marked.
#[must_use]
pub fn line(text: &str) -> Markup {
    marked(text, false)
}

/// A text with its line ends.
#[must_use]
pub fn lines(text: &str) -> Markup {
    marked(text, true)
}

fn marked(text: &str, keeps_lines: bool) -> Markup {
    let is_plain = |c: char| keeps_lines && matches!(c, '\n' | '\t');
    let seen = |c: char| {
        let mut buffer = [0; 4];
        is_plain(c) || matches!(visible(c.encode_utf8(&mut buffer)), Cow::Borrowed(_))
    };
    let mut runs: Vec<(bool, String)> = Vec::new();
    for c in text.chars() {
        let is_seen = seen(c);
        match runs.last_mut() {
            Some((before, run)) if *before == is_seen => run.push(c),
            _ => runs.push((is_seen, c.to_string())),
        }
    }
    html! {
        @for (is_seen, run) in &runs {
            @if *is_seen { (run) } @else { mark title="hidden character" { (visible(run)) } }
        }
    }
}

/// The text of a JSON value: of a string what it says, of others their members in lines. What is cut is shown as it is.
fn readable(json: &str) -> String {
    match serde_json::from_str(json) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(value) => serde_json::to_string_pretty(&value).unwrap_or_default(),
        Err(_) => json.to_owned(),
    }
}

/// A value by itself.
#[must_use]
pub fn value(json: &str) -> Markup {
    lines(&readable(json))
}

/// Two values: the first with what went, the second with what came.
#[must_use]
pub fn beside(before: &str, after: &str) -> (Markup, Markup) {
    let (before, after) = (readable(before), readable(after));
    let diff = TextDiff::configure().timeout(PATIENCE).diff_words(before.as_str(), after.as_str());
    let side = |gone: ChangeTag| {
        let mut runs: Vec<(bool, String)> = Vec::new();
        for change in diff.iter_all_changes().filter(|c| c.tag() == ChangeTag::Equal || c.tag() == gone) {
            let differs = change.tag() == gone;
            match runs.last_mut() {
                Some((before, run)) if *before == differs => run.push_str(change.value()),
                _ => runs.push((differs, change.value().to_owned())),
            }
        }
        html! {
            @for (differs, run) in &runs {
                @if !*differs { (lines(run)) }
                @else if gone == ChangeTag::Delete { del { (lines(run)) } }
                @else { ins { (lines(run)) } }
            }
        }
    };
    (side(ChangeTag::Delete), side(ChangeTag::Insert))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_no_markup_and_hides_nothing() {
        let shown = line("<script>a\u{202e}b</script>\n\"'&").into_string();
        let mark = "<mark title=\"hidden character\">";
        assert_eq!(shown, format!("&lt;script&gt;a{mark}⟨U+202E⟩</mark>b&lt;/script&gt;{mark}␊</mark>&quot;'&amp;"));
        assert_eq!(lines("a\nb\r").into_string(), format!("a\nb{mark}␍</mark>"));
        assert_eq!(value("{\"b\":[1]}").into_string(), "{\n  &quot;b&quot;: [\n    1\n  ]\n}");
        assert_eq!(value("{\"cut\":\"…").into_string(), "{&quot;cut&quot;:&quot;…");
    }

    #[test]
    fn what_differs_is_marked_on_its_side() {
        let (left, right) = beside("\"reads files\"", "\"reads files; <b>sends\u{200b}</b> them\"");
        let (left, right) = (left.into_string(), right.into_string());
        assert!(left.contains("<del>files</del>") && !left.contains("ins"), "{left}");
        assert!(right.starts_with("reads ") && right.contains("<ins>files; &lt;b&gt;sends<mark"), "{right}");
        assert!(right.contains("⟨U+200B⟩"), "{right}");
    }
}
