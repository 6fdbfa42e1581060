//! `assay policy dry-run --surface`: which recorded calls an approval would have refused.

use super::{DryRunArgs, Meter, find};
use crate::{
    approvals::{lockfile::SurfaceLock, observed::read_named},
    cli::out::{self, Style, Tone, short},
    error::{Exit, Failure},
    model::{
        WallTime,
        surface::{Facet, InForce, List, Snapshot, State, pinned_name},
    },
    policy::dry_run::{self, Recorded, Source, Visit},
    text::{counted, visible},
};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// Receipts that are named of each tool and state.
const EXAMPLES: usize = 3;
/// Problems that are kept.
const MAX_PROBLEMS: usize = 1000;

#[derive(Debug, Default)]
struct Row {
    calls: u64,
    examples: Vec<String>,
}

/// Judges calls by the definitions that their session had seen.
struct Judge<'a> {
    lock: &'a SurfaceLock,
    locked: BTreeSet<&'a str>,
    /// What the session that is read had seen, and what the lock says of its server.
    seen: Option<(Snapshot, InForce)>,
    sessions: BTreeSet<String>,
    /// Sessions without a surface.
    blind: u64,
    rows: BTreeMap<(String, State), Row>,
    problems: Vec<String>,
}

impl Judge<'_> {
    fn of(&mut self, source: &Source) {
        let snapshot = surface_of(source).and_then(|path| read_named(&path).ok());
        self.seen = snapshot.map(|snapshot| {
            let approved = self.lock.approved(&snapshot.identity, &snapshot.context);
            (snapshot, approved.in_force)
        });
    }

    fn state(&self, call: &Recorded<'_>) -> State {
        let name = pinned_name(Facet::Tools, call.tool);
        let by_name = if self.locked.contains(name.as_str()) { State::NotListedHere } else { State::New };
        let Some((seen, in_force)) = &self.seen else { return by_name };
        let list = seen.surface.list(Facet::Tools);
        let mut states = list.items().iter().filter(|i| i.name == name).map(|i| in_force.judge(i));
        match states.next() {
            Some(state) => states.fold(state, |worst, other| if worst.passes() { other } else { worst }),
            None if matches!(list, List::Complete(_)) => State::Unlisted,
            None => by_name,
        }
    }
}

impl Visit for Judge<'_> {
    fn session(&mut self, id: &str, _: Option<WallTime>) -> bool {
        let is_new = self.sessions.insert(id.to_owned());
        self.blind += u64::from(is_new && self.seen.is_none());
        is_new
    }

    fn started(&mut self, _: WallTime) {}

    fn call(&mut self, call: &Recorded<'_>) {
        let state = self.state(call);
        let row = self.rows.entry((call.tool.to_owned(), state)).or_default();
        row.calls += 1;
        if row.examples.len() < EXAMPLES && !passes(state) {
            row.examples.push(call.receipt_id.to_owned());
        }
    }

    fn problem(&mut self, what: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(what);
        }
    }
}

/// Where the surface of a session is: in its pack, or in its audit directory.
fn surface_of(source: &Source) -> Option<PathBuf> {
    let receipts = source.path();
    let dir = receipts.parent()?;
    let name = receipts.file_name()?.to_str()?;
    match name.strip_prefix("session_").and_then(|n| n.strip_suffix(".jsonl")) {
        Some(stem) => Some(dir.parent()?.join("surface").join(format!("observed_{stem}.json"))),
        None if receipts.is_dir() => Some(receipts.join("surface.json")),
        None => Some(dir.join("surface.json")),
    }
}

/// Whether a guard would have let it through: what nobody listed there is judged by its name.
const fn passes(state: State) -> bool {
    state.passes() || matches!(state, State::NotListedHere)
}

pub fn run(args: &DryRunArgs, lock: &Path) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let lock = SurfaceLock::read(lock).map_err(|e| {
            Failure::bad_input(format_args!("--surface {}: {e}", lock.display()))
                .hint("assay surface lock ID writes one")
        })?;
        let sources = find(&args.against, args.audit_dir.as_deref())?;
        let locked = lock.items.iter().filter(|i| i.facet == Facet::Tools).map(|i| i.name.as_str()).collect();
        let mut judge = Judge {
            lock: &lock,
            locked,
            seen: None,
            sessions: BTreeSet::new(),
            blind: 0,
            rows: BTreeMap::new(),
            problems: Vec::new(),
        };
        let mut meter = Meter::new();
        for source in &sources {
            judge.of(source);
            let read = dry_run::read(std::slice::from_ref(source), &mut judge, &mut |_, p| meter.show(p));
            if read.is_break() {
                meter.clear();
                return Err(Failure::failed("interrupted"));
            }
        }
        meter.clear();
        let count = |which: fn(State) -> bool| -> u64 {
            judge.rows.iter().filter(|((_, s), _)| which(*s)).map(|(_, r)| r.calls).sum()
        };
        let refused = count(|s| !passes(s));
        let by_name = count(|s| s == State::NotListedHere);
        let all = count(|_| true);
        if args.json {
            let row = |((tool, state), row): (&(String, State), &Row)| json!({"tool": tool, "state": state.as_str(), "refused": !passes(*state), "calls": row.calls, "receipts": row.examples});
            let rows: Vec<_> = judge.rows.iter().map(row).collect();
            out::json(&json!({
                "server_id": lock.server_id, "root": lock.root, "sessions": judge.sessions.len(), "calls": all,
                "refused": refused, "judged_by_name": by_name, "sessions_without_surface": judge.blind, "rows": rows,
                "problems": judge.problems,
            }))?;
        } else {
            out::stdout(words(&judge, (all, refused, by_name)).as_bytes())?;
        }
        Ok(if refused > 0 { Exit::Violation } else { Exit::Ok })
    })
}

fn words(judge: &Judge<'_>, (all, refused, by_name): (u64, u64, u64)) -> String {
    let style = Style::of_stdout();
    let sessions = counted(judge.sessions.len(), "session");
    let mut out = format!("{refused} of {} in {sessions} would have been refused\n", counted(all, "call"));
    for ((tool, state), row) in &judge.rows {
        let (word, tone) = if passes(*state) { ("passes ", Tone::Good) } else { ("refused", Tone::Bad) };
        let state = state.as_str().replace('_', " ");
        let _ =
            write!(out, "  {} {state:<15} {}: {}", style.paint(tone, word), short(tool), counted(row.calls, "call"));
        if !row.examples.is_empty() {
            let _ = write!(out, ", such as {}", row.examples.iter().map(|r| short(r)).collect::<Vec<_>>().join(", "));
        }
        out.push('\n');
    }
    if by_name > 0 {
        let _ = writeln!(
            out,
            "{} judged by name alone: the session's record has no definition of the tool",
            counted(by_name, "call")
        );
    }
    for problem in &judge.problems {
        let _ = writeln!(out, "{}", visible(problem));
    }
    out
}
