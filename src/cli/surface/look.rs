//! `assay surface list`, `show`, `history`, `diff`: nothing is written.

use super::{Desk, DiffArgs, HistoryArgs, ShowArgs, Where, snapshot_in, view};
use crate::{
    approvals::{
        lockfile::named,
        observed::{MOST, Observed, Seen},
        summary::Summary,
    },
    cli::out::{self, Style, Tone, short},
    error::{Exit, Failure},
    model::surface::{Decision, Facet, Outcome, State},
    surface::diff::between,
    text::{counted, visible, width},
};
use serde_json::json;
use std::fmt::Write as _;

pub fn list(at: &Where) -> Result<Exit, Failure> {
    out::answering(at.json, || {
        let desk = Desk::open(at)?;
        let observed = Observed::read(&desk.dir, None).map_err(|e| desk.unreadable(&e))?;
        let mut rows = Vec::new();
        for seen in observed.newest_of_each() {
            let (summary, _) = desk.summary(&seen.snapshot)?;
            rows.push((seen, summary));
        }
        // Decided about, and not seen any more.
        let mut unseen: Vec<&str> = desk.chain.approvals.iter().map(|a| a.server_id.as_str()).collect();
        unseen.sort_unstable();
        unseen.dedup();
        unseen.retain(|id| rows.iter().all(|(seen, _)| seen.snapshot.identity.id != *id));
        if at.json {
            let unread: Vec<_> = observed.unread.iter().map(|(p, e)| json!({"file": p, "error": e})).collect();
            out::json(&json!({
                "audit_dir": desk.dir.root(), "decisions": desk.chain.approvals.len(),
                "servers": rows.iter().map(|(seen, s)| view::server(seen, s)).collect::<Vec<_>>(),
                "not_seen": unseen, "unread": unread, "older_not_read": observed.more,
            }))?;
            return Ok(Exit::Ok);
        }
        let style = Style::of_stdout();
        let mut text = String::new();
        let column = rows.iter().map(|(s, _)| width(&short(&s.snapshot.identity.id))).max().unwrap_or_default();
        for (seen, summary) in &rows {
            let id = short(&seen.snapshot.identity.id);
            let blank = " ".repeat(column - width(&id));
            let words = summary.words();
            let painted = style.paint(view::state_tone(&words), &format!("{words:<20}"));
            let _ = writeln!(text, "{id}{blank}  {painted}  {}  seen {}", view::counts(summary), seen.at);
        }
        for id in unseen {
            let _ = writeln!(text, "{}  {}", short(id), style.paint(Tone::Dim, "decided about, not seen here"));
        }
        for (path, why) in &observed.unread {
            let _ = writeln!(text, "{}: {}", visible(&path.display().to_string()), visible(why));
        }
        if observed.more {
            let _ = writeln!(text, "only the newest {MOST} surfaces were read");
        }
        if text.is_empty() {
            let dir = desk.dir.root().display().to_string();
            let _ = writeln!(
                text,
                "no surface was seen in {}\na recorded session leaves one; or run: assay surface snapshot -- COMMAND",
                visible(&dir)
            );
        }
        out::stdout(text.as_bytes())?;
        Ok(Exit::Ok)
    })
}

/// Who a server is and where it was seen, in words.
fn head(text: &mut String, seen: &Seen, summary: &Summary, style: Style) {
    let s = &seen.snapshot;
    let words = summary.words();
    let _ = writeln!(text, "{}  {}", short(&s.identity.id), style.paint(view::state_tone(&words), &words));
    let info = s.server_info.as_ref();
    let info = info.map(|i| format!("{} {}", i.name, i.version.as_deref().unwrap_or_default()));
    let era = [s.context.era.as_deref(), s.protocol_version.as_deref()].into_iter().flatten().collect::<Vec<_>>();
    for (name, value) in [
        ("root", summary.root.clone().unwrap_or_else(|why| format!("none: {why}"))),
        ("endpoint", s.identity.endpoint.clone()),
        ("calls itself", info.unwrap_or_default()),
        ("asked in", era.join(" ")),
        ("client can", s.context.client_capabilities.clone().unwrap_or_default()),
        ("rules", s.rules_hash.clone().unwrap_or_else(|| "the defaults".to_owned())),
        ("seen", seen.at.clone()),
        ("file", seen.path.display().to_string()),
        ("items", view::counts(summary)),
    ] {
        if !value.trim().is_empty() {
            let _ = writeln!(text, "  {name:<13} {}", visible(value.trim()));
        }
    }
}

pub fn show(at: &Where, args: &ShowArgs) -> Result<Exit, Failure> {
    out::answering(at.json, || {
        let desk = Desk::open(at)?;
        let seen = desk.seen(&args.server, args.snapshot.as_deref())?;
        let (summary, approved) = desk.summary(&seen.snapshot)?;
        if !args.item.is_empty() {
            return definitions(at, args, &summary);
        }
        if at.json {
            let mut value = view::server(&seen, &summary);
            value["items"] = json!(view::items(&summary));
            out::json(&value)?;
            return Ok(Exit::Ok);
        }
        let style = Style::of_stdout();
        let mut text = String::new();
        head(&mut text, &seen, &summary, style);
        view::told(&mut text, &summary.outcome, style);
        let facets = [Facet::Capabilities, Facet::Instructions].into_iter().chain(Facet::LISTS);
        for facet in facets {
            let items: Vec<_> = summary.items.iter().filter(|i| i.pin.facet == facet).collect();
            if items.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\n{}", style.paint(Tone::Strong, &facet.to_string()));
            for i in items {
                let state = format!("{:<10}", i.state.as_str().replace('_', " "));
                let state = style.paint(view::state_tone(i.state.as_str()), &state);
                let name = if i.pin.name.is_empty() { facet.to_string() } else { short(&i.pin.name) };
                let by = i.approval_id.as_ref().map(|id| format!("  {id}")).unwrap_or_default();
                let _ = writeln!(text, "  {state} {name}{by}");
            }
        }
        if let Some(first) = summary.items.iter().find(|i| !i.state.passes() && i.content.is_some()) {
            let item = short(&named(first.pin.facet, &first.pin.name));
            let _ = writeln!(text, "\nto read one:  assay surface show {} --item {item}", short(&args.server));
        }
        for (facet, name, _) in approved.in_force.blocked() {
            if summary.items.iter().all(|i| i.pin.facet != facet || i.pin.name != name) {
                let _ = writeln!(text, "blocked, and not offered now: {}", short(&named(facet, name)));
            }
        }
        out::stdout(text.as_bytes())?;
        Ok(Exit::Ok)
    })
}

/// All that the server says of some items.
fn definitions(at: &Where, args: &ShowArgs, summary: &Summary) -> Result<Exit, Failure> {
    let style = Style::of_stdout();
    let (mut text, mut documents) = (String::new(), Vec::new());
    for (facet, name) in &args.item {
        let mut of_name = summary.items.iter().filter(|i| i.pin.facet == *facet && i.pin.name == *name).peekable();
        if of_name.peek().is_none() {
            let what = format!("the server has no {}, as far as it was seen", named(*facet, name));
            return Err(Failure::bad_input(what).hint("assay surface show names the items"));
        }
        for i in of_name {
            let state = style.paint(view::state_tone(i.state.as_str()), &i.state.as_str().replace('_', " "));
            let _ = writeln!(text, "{}  {state}  {}", short(&named(*facet, name)), i.pin.hash);
            let shown = match &i.content {
                None => "its content is not kept, only its hash".to_owned(),
                // It reads in two ways: as it came.
                Some(text) if i.state == State::Ambiguous => text.clone(),
                Some(text) => {
                    let value: serde_json::Value = serde_json::from_str(text).map_err(Failure::failed)?;
                    serde_json::to_string_pretty(&value).map_err(Failure::failed)?
                }
            };
            shown.lines().for_each(|line| text.extend(["  ", &visible(line), "\n"]));
            documents.push(view::definition(i));
        }
    }
    if at.json {
        out::json(&json!({"server_id": args.server, "items": documents}))?;
    } else {
        out::stdout(text.as_bytes())?;
    }
    Ok(Exit::Ok)
}

pub fn history(at: &Where, args: &HistoryArgs) -> Result<Exit, Failure> {
    out::answering(at.json, || {
        let desk = Desk::open(at)?;
        let all: Vec<_> = desk.chain.approvals.iter().filter(|a| a.server_id == args.server).collect();
        if at.json {
            out::json(
                &json!({"server_id": args.server, "decisions": all.iter().map(|a| view::approval(a)).collect::<Vec<_>>()}),
            )?;
            return Ok(Exit::Ok);
        }
        let style = Style::of_stdout();
        let mut text = String::new();
        for a in &all {
            let tone = match a.decision {
                Decision::Approve => Tone::Good,
                Decision::FirstUse => Tone::Warn,
                Decision::Block | Decision::Revoke => Tone::Bad,
            };
            let what = format!("{:<9}", a.decision.as_str().replace('_', " "));
            let counts = counted(a.items.len(), "item");
            let _ = writeln!(text, "{}  {}  {counts}  {}", a.at, style.paint(tone, &what), a.approval_id);
            let by = format!("{} ({}, {})", a.approver.name, a.approver.via, a.approver.auth);
            let counted_key = desk.approvers.as_ref().is_none_or(|keys| keys.contains(&a.signer.fingerprint));
            let note = if counted_key { "" } else { "  not an approver" };
            let _ = writeln!(text, "  by {}  key {} {}{note}", short(&by), short(&a.signer.id), a.signer.fingerprint);
            if let Some(root) = &a.root {
                let _ = writeln!(text, "  root {}", short(root));
            }
            if a.items.len() <= 5 {
                let names: Vec<String> = a.items.iter().map(|i| short(&named(i.facet, &i.name))).collect();
                let _ = writeln!(text, "  {}", names.join(", "));
            }
            if let Some(reason) = &a.reason {
                let _ = writeln!(text, "  reason: {}", visible(reason));
            }
        }
        if all.is_empty() {
            let _ = writeln!(text, "nothing was decided about {}", visible(&args.server));
        }
        out::stdout(text.as_bytes())?;
        Ok(Exit::Ok)
    })
}

pub fn diff(at: &Where, args: &DiffArgs) -> Result<Exit, Failure> {
    out::answering(at.json, || {
        let Some(b) = &args.b else { return diff_approved(at, args) };
        let (before, after) = (snapshot_in(args.a.as_ref())?, snapshot_in(b)?);
        let all = between(&before.surface, &after.surface);
        let rules = super::rules(at)?;
        let drift = all.iter().any(|d| !rules.tolerates(d.kind));
        let outcome = match (all.is_empty(), drift) {
            (true, _) => Outcome::Identical,
            (false, false) => Outcome::Equivalent(all),
            (false, true) => Outcome::Changed(all),
        };
        if at.json {
            out::json(&view::outcome(&outcome))?;
        } else {
            let mut text = format!("{}\n", outcome.word());
            view::told(&mut text, &outcome, Style::of_stdout());
            out::stdout(text.as_bytes())?;
        }
        Ok(exit(&outcome))
    })
}

fn diff_approved(at: &Where, args: &DiffArgs) -> Result<Exit, Failure> {
    let desk = Desk::open(at)?;
    let seen = desk.seen(&args.a, None)?;
    let (summary, _) = desk.summary(&seen.snapshot)?;
    if at.json {
        out::json(&view::server(&seen, &summary))?;
    } else {
        let style = Style::of_stdout();
        let mut text = String::new();
        head(&mut text, &seen, &summary, style);
        view::told(&mut text, &summary.outcome, style);
        out::stdout(text.as_bytes())?;
    }
    Ok(if summary.decided { exit(&summary.outcome) } else { Exit::Violation })
}

/// The exit code of a comparison.
pub const fn exit(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Identical | Outcome::Equivalent(_) => Exit::Ok,
        Outcome::Changed(_) => Exit::Violation,
        Outcome::Incomplete(_) | Outcome::Unreachable(_) => Exit::Failed,
    }
}
