//! Everything about one message.

use crate::{
    live::{
        content::Content,
        message::What,
        messages::{MessageId, MessageRow},
        state::rpc_text,
    },
    numbers::{counted, size},
    tui::{
        detail::{DetailLine, Who, field, said},
        messages::way_in_words,
        paint::{clean, wrapped},
        theme::{Role, Theme},
    },
};

/// The lines about a message. `server` is its server's id.
pub(super) fn lines(
    row: &MessageRow,
    (server, who): (Option<&str>, &Who),
    content: Option<&Content>,
    columns: u16,
    theme: Theme,
) -> Vec<DetailLine> {
    let mut out = Vec::new();
    let mut add = |name: &str, value: Option<String>, role: Role| {
        if let Some(value) = value {
            out.push(field(name, &value, role));
        }
    };
    let bad = row.what.is_problem();
    add("message", Some(row.what.word().to_owned()), if bad { Role::Bad } else { Role::Strong });
    add("way", row.direction.map(|way| way_in_words(way).to_owned()), Role::Text);
    add("method", row.method.clone(), Role::Text);
    add("tool", row.tool.clone(), Role::Text);
    add("what is wrong", row.note.clone(), Role::Warn);
    add("JSON-RPC id", row.rpc_id.as_ref().map(rpc_text), Role::Text);
    let mut exact = counted(row.wire_bytes, "byte");
    if row.wire_bytes >= 1024 {
        exact = format!("{}, {exact}", size(row.wire_bytes));
    }
    add("size", Some(exact), Role::Text);
    let own = who.server.as_ref().map(|s| format!(" ({s})")).unwrap_or_default();
    add("server", server.map(|id| format!("{id}{own}")), Role::Text);
    add("client", who.client.as_ref().map(ToString::to_string), Role::Text);
    out.push(DetailLine { copy: row.at.to_string(), ..field("read at", &theme.zone.full(row.at), Role::Text) });
    let mut add = |name: &str, value: Option<String>| out.extend(value.map(|value| field(name, &value, Role::Text)));
    add("call", row.call.map(|call| call.to_string()));
    add("session", Some(row.session_id.to_string()));
    match row.id {
        MessageId::Event(_, seq) => add("event", Some(format!("#{seq}"))),
        MessageId::Crossed(..) if row.what == What::Junk => {
            out.push(said("One event tells of it and of the lines around it.", Role::Dim));
        }
        MessageId::Crossed(..) => out.push(said("It leaves no event.", Role::Dim)),
    }
    let mut say = |text: &str| out.extend(wrapped(text, columns).iter().map(|line| said(line, Role::Dim)));
    let Some(content) = content else {
        say("content: not recorded. The event has its length and its SHA-256.");
        say(if row.call.is_some() {
            "If arguments or results are stored, the receipt of the call has them: m shows the calls."
        } else {
            "mcp-proxy --live-content shows contents here while they cross."
        });
        return out;
    };
    say("content: not recorded; sent to your dashboards only.");
    if content.cut {
        say(&format!("The first {} of it:", size(content.text.len() as u64)));
    }
    out.extend(content_lines(content, columns));
    out
}

fn content_lines(content: &Content, columns: u16) -> Vec<DetailLine> {
    let whole = serde_json::from_str::<serde_json::Value>(&content.text).ok().filter(|_| !content.cut);
    let pretty = whole.and_then(|value| serde_json::to_string_pretty(&value).ok());
    let line = |text: &str| DetailLine {
        pieces: vec![(clean(text), Role::Value)],
        copy: content.text.clone(),
        path: String::new(),
    };
    match pretty {
        Some(pretty) => pretty.lines().map(line).collect(),
        None => content
            .text
            .lines()
            .flat_map(|text| wrapped(text, columns))
            .map(|text| DetailLine { copy: content.text.clone(), ..said(&text, Role::Value) })
            .collect(),
    }
}
