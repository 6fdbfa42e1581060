//! What each tab shows.

use super::{CONTENT, Detail, DetailLine, Role, Subject, Tab, timing};
use crate::{
    live::{row::CallRow, words::CallState},
    model::{
        CallAnomaly, RpcId, WallTime,
        redaction::{self, Side},
    },
    numbers::duration,
    text::width,
    tui::{paint::clean, theme::Theme},
    zone::Zone,
};
use serde_json::Value;

impl Detail {
    /// The lines of the tab.
    pub(super) fn lines(&self, columns: u16, now: WallTime, theme: Theme) -> Vec<DetailLine> {
        let Some(subject) = &self.subject else { return vec![said("No call is selected.", Role::Dim)] };
        match self.tab {
            Tab::Summary => summary(subject, now, columns, theme),
            Tab::Timing => timing_lines(&subject.row, now, columns, theme.ascii),
            Tab::Content => self.content(subject),
            Tab::Receipt => self.receipt(subject),
            Tab::Events => self.events(),
            Tab::Stderr => self.stderr(theme.zone),
        }
    }

    fn waiting(&self) -> Vec<DetailLine> {
        match &self.found {
            Some(found) => found.evidence.problems.iter().map(|p| said(&clean(p), Role::Bad)).collect(),
            None => vec![said("Reading the evidence…", Role::Dim)],
        }
    }

    /// Note above the tree: why it does not show more.
    fn content(&self, subject: &Subject) -> Vec<DetailLine> {
        let found = self.found.as_ref().filter(|f| f.receipt.is_some());
        let (stored, redacted) = (found.map(|f| f.stored), found.is_some_and(|f| f.redacted));
        let is_sent = subject.sent.each_ref().map(Option::is_some);
        if subject.row.receipt_id.is_some() && stored.is_none() && is_sent == [false; 2] {
            return self.waiting();
        }
        let hashes = [subject.row.arguments_hash.as_deref(), subject.row.result_hash.as_deref()];
        let mut out = Vec::new();
        for side in [Side::Arguments, Side::Result] {
            let words = subject.row.anomalies.iter().map(String::as_bytes);
            let rules: Vec<&str> = redaction::rules(words, side).collect();
            if !rules.is_empty() {
                let text = format!("{}: redacted by {}; its hash is of the original", side.as_str(), rules.join(", "));
                out.push(said(&text, Role::Warn));
            }
        }
        for (n, (name, _)) in CONTENT.into_iter().enumerate().filter(|(n, _)| !stored.unwrap_or_default()[*n]) {
            let running = subject.row.is_running();
            let why = match hashes[n] {
                _ if is_sent[n] && stored.is_none_or(|stored| stored == [false; 2]) => "not recorded, only shown here",
                None if running => "not there yet",
                None => "there was none",
                Some(_) if subject.row.anomalies.contains(CallAnomaly::ContentInInvestigationLog.as_str()) => {
                    "too big for a receipt: see the investigation log of the audit directory"
                }
                Some(_) if subject.row.anomalies.contains(CallAnomaly::RedactionNotPossible.as_str()) => {
                    "nothing of it was kept: the rules of --redact could not be applied"
                }
                Some(_) if running => "shown once the call has ended",
                Some(_) if n == 0 && redacted => "the named ones are kept, the others are hashes",
                Some(_) if n == 0 => "only its hash was stored; mcp-proxy --store-args stores the value",
                Some(_) => "only its hash was stored; mcp-proxy --store-results stores the value",
            };
            let mut line = said(&format!("{name}: {why}"), Role::Dim);
            name.clone_into(&mut line.path);
            out.push(line);
            if let Some(hash) = hashes[n] {
                out.push(field("  hash", hash, Role::Text));
            }
        }
        out
    }

    fn receipt(&self, subject: &Subject) -> Vec<DetailLine> {
        match &self.found {
            Some(found) if found.receipt.is_some() => Vec::new(),
            _ if subject.row.receipt_id.is_none() => {
                vec![said("The call has not ended: it has no receipt yet.", Role::Dim)]
            }
            _ => self.waiting(),
        }
    }

    fn events(&self) -> Vec<DetailLine> {
        let Some(found) = &self.found else { return self.waiting() };
        if found.events.is_empty() {
            let mut out = self.waiting();
            out.push(said("No audit events found for this call.", Role::Dim));
            return out;
        }
        let mut out = Vec::new();
        for event in &found.events {
            let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
            let seq = event.get("event_seq").and_then(Value::as_u64).unwrap_or_default();
            let us = event.get("mono_us").and_then(Value::as_u64).unwrap_or_default();
            out.push(DetailLine {
                pieces: vec![
                    (format!("#{seq:<6}"), Role::Accent),
                    (clean(text("event")), Role::Strong),
                    (format!("  +{}", duration(us)), Role::Dim),
                ],
                copy: text("event").to_owned(),
                path: format!("event_seq {seq}"),
            });
            for name in ["at", "hash", "prev_hash"] {
                out.push(field(&format!("  {name}"), text(name), Role::Text));
            }
            if let Some(detail) = event.get("detail").and_then(Value::as_object) {
                for (name, value) in detail.iter().filter(|(_, v)| !v.is_null()) {
                    let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                    out.push(field(&format!("  {name}"), &value, Role::Value));
                }
            }
        }
        out
    }

    fn stderr(&self, zone: Zone) -> Vec<DetailLine> {
        match &self.stderr {
            None => vec![said(
                "The server's stderr is not stored in a file: it is shown only while the session runs.",
                Role::Dim,
            )],
            Some(lines) if lines.is_empty() => vec![said("The server wrote nothing to stderr.", Role::Dim)],
            Some(lines) => lines
                .iter()
                .map(|(at, text)| DetailLine {
                    pieces: vec![(format!("{}  ", zone.clock(*at)), Role::Dim), (clean(text), Role::Text)],
                    copy: text.clone(),
                    path: String::new(),
                })
                .collect(),
        }
    }
}

/// How a state looks.
pub(in crate::tui) const fn role(state: CallState) -> Role {
    match state {
        CallState::Running => Role::Accent,
        CallState::Forwarded | CallState::Allowed => Role::Good,
        CallState::NotEnforced | CallState::Timeout => Role::Warn,
        CallState::Denied | CallState::Error => Role::Bad,
    }
}

/// A line of words.
pub(in crate::tui) fn said(text: &str, role: Role) -> DetailLine {
    DetailLine { pieces: vec![(text.to_owned(), role)], copy: String::new(), path: String::new() }
}

/// A line with a name and a value from outside.
pub(in crate::tui) fn field(name: &str, value: &str, role: Role) -> DetailLine {
    let pad = 20usize.saturating_sub(width(name)).max(1);
    let shown: String = value.chars().take(2000).collect();
    DetailLine {
        pieces: vec![(format!("{}{}", clean(name), " ".repeat(pad)), Role::Dim), (clean(&shown), role)],
        copy: value.to_owned(),
        path: name.trim().to_owned(),
    }
}

/// A line with a time; what is copied is what machines read.
fn timed(name: &str, at: WallTime, zone: Zone) -> DetailLine {
    DetailLine { copy: at.to_string(), ..field(name, &zone.full(at), Role::Text) }
}

fn summary(subject: &Subject, now: WallTime, columns: u16, theme: Theme) -> Vec<DetailLine> {
    let (Subject { row, who, .. }, ascii) = (subject, theme.ascii);
    let state = CallState::of(row);
    let mut out = Vec::new();
    let mut add = |name: &str, value: Option<String>, role: Role| {
        if let Some(value) = value {
            out.push(field(name, &value, role));
        }
    };
    add("tool", row.tool_name.clone(), Role::Strong);
    let own = who.server.as_ref().map(|s| format!(" ({s})")).unwrap_or_default();
    add("server", row.server_id.as_ref().map(|id| format!("{id}{own}")), Role::Text);
    add("client", who.client.as_ref().map(ToString::to_string), Role::Text);
    add("state", Some(format!("{} {}", state.glyph(ascii), state.word())), role(state));
    add("why", row.outcome_reason.clone(), Role::Warn);
    let verdict = row.policy_verdict.map(|v| match v {
        crate::model::PolicyVerdict::NoPolicy => "no policy",
        crate::model::PolicyVerdict::Allowed => "allowed",
        crate::model::PolicyVerdict::Denied => "denied",
    });
    add("policy", verdict.map(ToOwned::to_owned), Role::Text);
    add("policy reason", row.policy_reason.clone(), Role::Text);
    add("policy rule", row.policy_ref.clone(), Role::Text);
    add("took", row.duration_ms.map(|d| duration(d.0)), Role::Text);
    if let (true, Some(at)) = (row.is_running(), row.requested_at) {
        let us = now.millis().saturating_sub(at.millis()).max(0).unsigned_abs() * 1000;
        add("running for", Some(duration(us)), Role::Accent);
    }
    out.extend(waterfall_of(row, now, columns, ascii));
    out.extend(row.requested_at.map(|at| timed("asked at", at, theme.zone)));
    out.extend(row.ended_at.map(|at| timed("ended at", at, theme.zone)));
    let mut add = |name: &str, value: Option<String>, role: Role| {
        if let Some(value) = value {
            out.push(field(name, &value, role));
        }
    };
    let anomalies: Vec<&str> = row.anomalies.iter().map(String::as_str).collect();
    add("anomalies", (!anomalies.is_empty()).then(|| anomalies.join(", ")), Role::Warn);
    add("result", row.result_is_error.map(|e| if e { "an error" } else { "no error" }.to_owned()), Role::Text);
    add("result type", row.result_type.clone(), Role::Text);
    let id = row.mcp_request_id.as_ref().map(|id| match id {
        RpcId::Null => "null".to_owned(),
        RpcId::Int(n) => n.to_string(),
        RpcId::Text(t) => format!("{t:?}"),
    });
    add("JSON-RPC id", id, Role::Text);
    add("call", Some(row.invocation_id.to_string()), Role::Text);
    add("receipt", row.receipt_id.map(|r| r.to_string()), Role::Text);
    add("leg of", row.parent_receipt_id.map(|r| r.to_string()), Role::Text);
    add("session", Some(row.session_id.to_string()), Role::Text);
    add("arguments hash", row.arguments_hash.clone(), Role::Text);
    add("result hash", row.result_hash.clone(), Role::Text);
    out
}

fn waterfall_of(row: &CallRow, now: WallTime, columns: u16, ascii: bool) -> Vec<DetailLine> {
    let running = row.requested_at.filter(|_| row.is_running());
    let running = running.map(|at| now.millis().saturating_sub(at.millis()).max(0).unsigned_abs() * 1000);
    timing::waterfall(&row.phases_us, running, columns, ascii)
}

fn timing_lines(row: &CallRow, now: WallTime, columns: u16, ascii: bool) -> Vec<DetailLine> {
    let mut out = waterfall_of(row, now, columns, ascii);
    if out.is_empty() {
        out.push(said("No times were measured for this call.", Role::Dim));
    }
    out
}
