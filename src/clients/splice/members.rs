//! A list of arguments for an entry that has none.

use super::{File, Refusal, is_blank, is_only, line_break, line_end, line_start};
use crate::clients::{
    read::Dialect,
    splice::quote::quoted,
    tree::{Member, Node, Span},
};
use std::fmt::Write as _;

/// Adds a list behind the command: in brackets behind it, else as lines below it.
pub fn add(file: &File<'_>, map: &Node, command: &Member, name: &str, tokens: &[String], old: &str) -> (Span, String) {
    let text = file.text;
    let tokens = || tokens.iter().map(String::as_str).chain([old]);
    let start = line_start(text, command.at.start);
    let before = &text[start..command.at.start];
    let value = &command.value.span;
    let gap = &text[command.at.end..value.start];
    if map.span.is_empty() {
        let at = line_end(text, value.end);
        let eol = line_break(text);
        if file.dialect == Dialect::Toml {
            let gap = if is_only(gap, '=') { gap } else { " = " };
            let list = tokens().collect::<Vec<_>>().join(", ");
            return (at..at, format!("{eol}{before}{}{gap}[{list}]", key(file, command, name)));
        }
        let indent: String = before.chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
        let mut lines = format!("{eol}{indent}{}:", key(file, command, name));
        for token in tokens() {
            let _ = write!(lines, "{eol}{indent}  - {token}");
        }
        return (at..at, lines);
    }
    let sign = if file.dialect == Dialect::Toml { '=' } else { ':' };
    let (gap, compact) = if is_only(gap, sign) && !gap.contains('\n') {
        (gap.to_owned(), gap.len() == 1 && sign == ':')
    } else {
        (format!("{sign} "), false)
    };
    let (lead, separator) = match (is_blank(before) && start > map.span.start, compact) {
        (true, _) => (format!("{}{before}", line_break(text)), ", "),
        (false, true) => (String::new(), ","),
        (false, false) => (" ".to_owned(), ", "),
    };
    let list = tokens().collect::<Vec<_>>().join(separator);
    (value.end..value.end, format!(",{lead}{}{gap}[{list}]", key(file, command, name)))
}

/// A name, in quotes if that of the command is.
fn key(file: &File<'_>, command: &Member, name: &str) -> String {
    let in_quotes = file.text[command.at.clone()].starts_with(['"', '\'']);
    if file.dialect == Dialect::Json || in_quotes { quoted(Dialect::Json, name) } else { name.to_owned() }
}

/// What to remove so that a member is gone.
pub fn extent(file: &File<'_>, map: &Node, member: &Member) -> Result<Span, Refusal> {
    let text = file.text;
    let members = map.members().unwrap_or_default();
    let at = members.iter().position(|other| other.at == member.at).unwrap_or_default();
    let last = member.value.items().and_then(<[Node]>::last).map_or(member.value.span.end, |last| last.span.end);
    let end = last.max(member.value.span.end);
    if map.span.is_empty() {
        let start = line_start(text, member.at.start);
        let alone = file.dialect == Dialect::Toml || is_blank(&text[start..member.at.start]);
        if alone && start > 0 {
            let before = start - 1;
            let before = if text[..before].ends_with('\r') { before - 1 } else { before };
            return Ok(before..end);
        }
        // It shares its line with the dash of the list that the entry is in.
        return match members.get(at + 1) {
            Some(next) => Ok(member.at.start..next.at.start),
            None => Err(Refusal::skip(format!("`{}` cannot be removed; change it by hand", member.key))),
        };
    }
    let clean = |gap: &str| is_only(gap, ',');
    if let Some(previous) = at.checked_sub(1).and_then(|at| members.get(at))
        && clean(&text[previous.value.span.end.min(member.at.start)..member.at.start])
    {
        return Ok(previous.value.span.end..end);
    }
    match members.get(at + 1) {
        Some(next) if clean(&text[end..next.at.start]) => Ok(member.at.start..next.at.start),
        _ => Err(Refusal::skip(format!("there is a comment beside `{}`; remove the list by hand", member.key))),
    }
}
