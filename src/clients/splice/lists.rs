//! Elements in front of those that a list has.

use super::{File, Refusal, is_only, line_break, line_start};
use crate::clients::{
    read::Dialect,
    tree::{Node, Span},
};

/// Puts tokens, and the source text of the old command behind them, in front of the first element.
pub fn insert(file: &File<'_>, list: &Node, tokens: &[String], old: Option<&str>) -> Result<(Span, String), Refusal> {
    let items = list.items().unwrap_or_default();
    let Some(first) = items.first() else {
        // Right behind the bracket.
        let at = list.span.start + 1;
        if list.span.is_empty() {
            return Err(Refusal::skip("its list of arguments has no brackets and no elements; write []"));
        }
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).chain(old).collect();
        return Ok((at..at, tokens.join(", ")));
    };
    let separator = if list.span.is_empty() { dash(file, items)? } else { comma(file.text, list, items) };
    let mut piece = String::new();
    for token in tokens.iter().map(String::as_str).chain(old) {
        piece.push_str(token);
        piece.push_str(&separator);
    }
    Ok((first.span.start..first.span.start, piece))
}

/// What to remove so that the elements before this one are gone, and it is the first.
pub fn front(file: &File<'_>, list: &Node, ours: usize) -> Span {
    let items = list.items().unwrap_or_default();
    let start = items.first().map_or(list.span.end, |first| first.span.start);
    if let Some(first) = items.get(ours) {
        return start..first.span.start;
    }
    let end = items.last().map_or(start, |last| last.span.end);
    if list.span.is_empty() {
        return start..end;
    }
    // A client may have put a comma behind the last one, which must not stay alone.
    let inside = &file.text[end..list.span.end.saturating_sub(1).max(end)];
    let blank = inside.len() - inside.trim_start().len();
    let comma = inside[blank..].starts_with(',');
    start..if comma { end + blank + 1 } else { end }
}

/// What stands between two elements in brackets.
fn comma(text: &str, list: &Node, items: &[Node]) -> String {
    let first = &items[0];
    if let Some(second) = items.get(1) {
        let gap = &text[first.span.end..second.span.start];
        if is_only(gap, ',') {
            return gap.to_owned();
        }
    }
    let before = &text[list.span.start + 1..first.span.start];
    match before.rfind('\n') {
        Some(at) => {
            let indent: String = before[at + 1..].chars().take_while(|c| matches!(c, ' ' | '\t')).collect();
            format!(",{}{indent}", line_break(text))
        }
        None => ", ".to_owned(),
    }
}

/// What stands between two elements that are lines.
fn dash(file: &File<'_>, items: &[Node]) -> Result<String, Refusal> {
    debug_assert_eq!(file.dialect, Dialect::Yaml);
    let own_line = |item: &&Node| is_only(&file.text[line_start(file.text, item.span.start)..item.span.start], '-');
    match items.iter().take(2).find(own_line) {
        Some(item) => {
            let start = line_start(file.text, item.span.start);
            Ok(format!("{}{}", line_break(file.text), &file.text[start..item.span.start]))
        }
        None => Err(Refusal::skip("its arguments do not each stand in a line of their own")),
    }
}
