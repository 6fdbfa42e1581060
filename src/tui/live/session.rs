//! Everything about one session: who takes part, how it is, its pack, its open streams.

use super::sessions::Sessions;
use crate::{
    live::{protocol::PackState, state::SessionView},
    model::{Profile, SessionId, Transport, WallTime, receipt::PeerInfo},
    numbers::{age, counted, grouped, size},
    text::endings,
    tui::{
        detail::{DetailLine, field, said},
        paint::clean,
        theme::Role,
    },
    zone::Zone,
};

/// From this width on there is room for what came on a stream beside its times.
const BESIDE: u16 = 64;

/// The transport, as short as it is known.
pub(super) fn transport(view: &SessionView) -> &'static str {
    match view.card.as_ref().and_then(|c| c.card.http.as_ref()).map(|http| http.transport) {
        None | Some(Transport::Stdio) => "stdio",
        Some(Transport::StreamableHttp) => "http",
        Some(Transport::Sse) => "sse",
    }
}

/// How long ago.
pub(super) fn ago(now: WallTime, since: WallTime) -> String {
    age(now.millis().saturating_sub(since.millis()).max(0).unsigned_abs() / 1000)
}

/// How many streams are open, and how long ago the last byte came on any of them.
pub(super) fn streams_in_short(view: &SessionView, now: WallTime) -> Option<String> {
    let streams = view.open_streams()?;
    let last = streams.open.iter().filter_map(|s| s.last_byte_at).max();
    let last = last.map(|at| format!(", last byte {}", ago(now, at))).unwrap_or_default();
    Some(format!("{}{last}", counted(streams.total, "stream")))
}

/// The lines about a session.
pub(super) fn lines(
    (id, view): (SessionId, &SessionView),
    sessions: &Sessions,
    now: WallTime,
    columns: u16,
    zone: Zone,
) -> Vec<DetailLine> {
    let card = view.card.as_ref().map(|c| &c.card);
    let mut out = Vec::new();
    let mut add = |name: &str, value: Option<String>, role: Role| {
        if let Some(value) = value {
            out.push(field(name, &value, role));
        }
    };
    let who = |who: Option<&PeerInfo>| who.map_or_else(|| "has not named itself".to_owned(), ToString::to_string);
    add("server id", card.map(|c| c.server_id.clone()), Role::Strong);
    add("server", Some(who(card.and_then(|c| c.server_info.as_ref()))), Role::Text);
    add("client", Some(who(card.and_then(|c| c.client_info.as_ref()))), Role::Text);
    let (word, tone) = sessions.word(id, view);
    add("state", Some(word.to_owned()), tone);
    add("began", card.map(|c| format!("{}, {} ago", zone.full(c.started_at), ago(now, c.started_at))), Role::Text);
    add("end", view.end.as_ref().map(|e| e.reason.clone()), Role::Text);
    let t = view.totals;
    add("calls", Some(grouped(t.started)), Role::Text);
    add("in flight", Some(grouped(t.in_flight())).filter(|_| view.end.is_none()), Role::Text);
    add("ended with", Some(endings(t.denied, t.errors, t.timeouts)).filter(|_| t.finished > 0), Role::Text);
    if let Some(streams) = view.open_streams().filter(|_| sessions.is_alive(id, view)) {
        out.push(said(&counted(streams.total, "open stream"), Role::Strong));
        // Its exchange, how long it is open, when its last byte came; and what came so far, on a line of its own where there is no
        // room beside.
        out.extend(streams.open.iter().rev().flat_map(|s| {
            let last =
                s.last_byte_at.map_or_else(|| "no byte yet".to_owned(), |at| format!("last byte {}", ago(now, at)));
            let line =
                |pieces| DetailLine { pieces, copy: s.exchange.to_string(), path: format!("exchange {}", s.exchange) };
            let first = vec![
                (format!("#{:<5}{:<5}", s.exchange, clean(&s.method)), Role::Accent),
                (format!("{:<7}", ago(now, s.since)), Role::Text),
                (format!("{last:<17}"), Role::Text),
            ];
            let content = (format!("  {}, {}", counted(s.messages, "message"), size(s.bytes)), Role::Dim);
            if columns < BESIDE {
                vec![line(first), line(vec![content])]
            } else {
                vec![line(first.into_iter().chain([content]).collect())]
            }
        }));
        let older = streams.total - streams.open.len() as u64;
        if older > 0 {
            out.push(said(&format!("and {} older", grouped(older)), Role::Dim));
        }
    }
    let mut add = |name: &str, value: Option<String>, role: Role| {
        if let Some(value) = value {
            out.push(field(name, &value, role));
        }
    };
    if let Some(pack) = &view.pack {
        let state = match pack.state {
            PackState::Sealing => "being built",
            PackState::Built => "built",
            PackState::Verified => "verified",
            PackState::None => "none was asked for",
            PackState::Failed => "failed",
        };
        let tone = if pack.state == PackState::Failed { Role::Bad } else { Role::Text };
        add("pack", Some(state.to_owned()), tone);
        for problem in &pack.problems {
            add("", Some(problem.clone()), Role::Bad);
        }
        add("", pack.pack.as_ref().map(|p| p.display().to_string()), Role::Text);
    }
    add("profile", card.map(|c| if c.profile == Profile::Guard { "guard" } else { "audit" }.to_owned()), Role::Text);
    add("transport", Some(transport(view).to_owned()), Role::Text);
    add("protocol", card.and_then(|c| c.protocol_version.clone()), Role::Text);
    add("session", Some(id.to_string()), Role::Text);
    add("continues", card.and_then(|c| c.continues).map(|id| id.to_string()), Role::Text);
    add("directory", view.card.as_ref().map(|c| c.audit_dir.display().to_string()), Role::Text);
    out
}
