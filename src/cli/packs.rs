//! `assay packs`.

use super::{
    named::not_here,
    out::{self, Style, Tone, short},
};
use crate::{
    error::{Exit, Failure},
    filter::Filter,
    history::{
        CallCounts,
        list::{self, Entry, Found, Places, Standing},
        verdicts::{Verdict, Verdicts},
    },
    model::{SessionId, WallTime},
    numbers::{NONE, age, counted, grouped, size},
    paths::assay_home,
    text::{fit, width},
    zone::Zone,
};
use clap::Args;
use serde::Serialize;
use std::{cell::RefCell, collections::BTreeMap, fmt::Write as _, path::PathBuf};

/// `schema` of the document.
const PACKS_SCHEMA: &str = "assay.packs.v1";
/// Columns of the names.
const SERVER: usize = 28;
const CLIENT: usize = 18;
/// Columns of a state.
const STATE: usize = 12;
/// Digits of an id that are printed: enough for names of most users' sessions.
const DIGITS: usize = 8;

/// Arguments of `assay packs`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay packs\n  \
                  assay packs 'state:died'\n  \
                  assay packs 'server:github !state:complete' --json\n\n\
                  The newest come first. The last column is the beginning of the session's id: every command that\n\
                  takes a pack takes it, as in assay open 41e1a2b3; last and last~1 name the newest packs.\n\
                  Nothing is verified here. The verdict is that of the last verification of the same files.\n\n\
                  Filter: terms that must all match. server:NAME client:NAME id:ID state:complete|incomplete|live|\n\
                  sealing|ended|died|failed|half-written|newer|\"not yours\"; ! before a term negates it, * stands\n\
                  for anything, plain text matches names and ids.\n\n\
                  Exit codes: 0 listed, also if there is nothing; 3 bad input")]
pub struct PacksArgs {
    /// Only sessions that match
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Look here only [default: .assay/mcp, and every audit directory that you recorded in]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
    /// Print so many at most
    #[arg(long, short = 'n', value_name = "N")]
    last: Option<usize>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// One session in the document.
#[derive(Debug, Serialize)]
struct View<'a> {
    session_id: &'a str,
    /// UTC; `null` where nothing tells it.
    started_at: Option<&'a str>,
    server_id: &'a str,
    /// What the server calls itself, with its version; empty if nothing tells it.
    server: &'a str,
    client: &'a str,
    state: &'static str,
    /// Why it has no pack, or what is of a later version.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    calls: Option<u64>,
    denied: Option<u64>,
    failed: Option<u64>,
    receipts: Option<u64>,
    bytes: u64,
    /// The directory of its pack, if it has one.
    pack: Option<String>,
    verdict: Option<&'a Verdict>,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    audit_dirs: Vec<String>,
    sessions: Vec<View<'a>>,
    /// Sessions that match and are not listed.
    omitted: u64,
    problems: &'a [String],
}

/// Runs `assay packs`.
///
/// # Errors
/// A filter that means nothing, a directory that is not there.
pub fn run(args: &PacksArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let text = args.filter.as_deref().unwrap_or_default();
        let filter = Filter::sessions(text).map_err(|e| {
            out::stderr(&e.under(text));
            Failure::bad_input(format_args!("{e}, at byte {}", e.at)).hint("assay packs --help explains filters")
        })?;
        if let Some(dir) = args.audit_dir.as_deref().filter(|dir| !dir.is_dir()) {
            return Err(not_here(format_args!("{} is not a directory", dir.display())));
        }
        let places = Places::of_command(args.audit_dir.as_deref());
        let (mut entries, problems) = found(&places);
        entries.retain(|e| e.passes(&filter));
        let shown = args.last.unwrap_or(usize::MAX).min(entries.len());
        let omitted = (entries.len() - shown) as u64;
        let verdicts = assay_home().ok().and_then(|home| Verdicts::read(&home).ok()).unwrap_or_default();
        let rows: Vec<(&Entry, Option<&Verdict>)> =
            entries[..shown].iter().map(|e| (e, verdicts.of(&e.pack, e.stamp))).collect();
        let roots = places.roots();
        if args.json {
            out::json(&Document {
                schema: PACKS_SCHEMA,
                audit_dirs: roots.iter().map(|root| root.display().to_string()).collect(),
                sessions: rows.iter().map(|(e, verdict)| view(e, *verdict)).collect(),
                omitted,
                problems: &problems,
            })?;
            return Ok(Exit::Ok);
        }
        for problem in &problems {
            out::stderr(&format!("assay: warning: {}", short(problem)));
        }
        let text =
            if entries.is_empty() { nothing(&filter, &roots) } else { table(&rows, omitted, Style::of_stdout()) };
        out::stdout(text.as_bytes())?;
        Ok(Exit::Ok)
    })
}

/// All sessions, the newest first, and what is wrong on the way.
fn found(places: &Places) -> (Vec<Entry>, Vec<String>) {
    let all = RefCell::new((BTreeMap::new(), Vec::new()));
    list::find(
        places,
        &|found| match found {
            Found::Some(entries) => all.borrow_mut().0.extend(entries.into_iter().map(|e| (e.rank(), e))),
            Found::Problem(what) => all.borrow_mut().1.push(what),
            Found::All => {}
        },
        &|| false,
    );
    let (entries, problems) = all.into_inner();
    (entries.into_values().collect(), problems)
}

fn view<'a>(e: &'a Entry, verdict: Option<&'a Verdict>) -> View<'a> {
    let why = match &e.standing {
        Standing::Failed(why) | Standing::TooNew(why) => Some(why.as_str()),
        _ => None,
    };
    let packed = matches!(e.standing, Standing::Packed | Standing::Half);
    View {
        session_id: &e.session,
        started_at: Some(e.started.as_str()).filter(|at| !at.is_empty()),
        server_id: &e.server,
        server: &e.server_info,
        client: &e.client,
        state: e.state(),
        why,
        calls: e.counts.map(|c| c.calls),
        denied: e.counts.map(|c| c.denied),
        failed: e.counts.map(|c| c.failed),
        receipts: e.receipts,
        bytes: e.bytes,
        pack: packed.then(|| e.pack.display().to_string()),
        verdict,
    }
}

fn nothing(filter: &Filter, roots: &[PathBuf]) -> String {
    let mut looked = String::new();
    for root in roots {
        let _ = writeln!(looked, "  {}", short(&root.display().to_string()));
    }
    let what = if filter.is_empty() { "No session was recorded" } else { "No session matches" };
    match roots {
        [] => format!(
            "{what}: nothing was recorded here, or by this user.\nassay wrap puts the recorder in front of your servers.\n"
        ),
        _ => format!("{what} in\n{looked}"),
    }
}

fn table(rows: &[(&Entry, Option<&Verdict>)], omitted: u64, style: Style) -> String {
    let now = WallTime::now();
    let zone = Zone::Local.name(now);
    let mut out = String::new();
    let head = format!(
        "{:<20}{:<SERVER$}{:<CLIENT$}{:>8}{:>8}{:>8}{:>11}  {:<STATE$}{:<22}session",
        format!("started ({zone})"),
        "server",
        "client",
        "calls",
        "denied",
        "failed",
        "size",
        "state",
        "verdict"
    );
    let _ = writeln!(out, "{}", style.paint(Tone::Strong, head.trim_end()));
    for (e, verdict) in rows {
        let started = WallTime::parse(&e.started).map_or_else(|| NONE.to_owned(), |at| Zone::Local.minute(at));
        let count = |of: fn(&CallCounts) -> u64| e.counts.as_ref().map_or_else(|| NONE.to_owned(), |c| grouped(of(c)));
        let (calls, denied, failed) = (count(|c| c.calls), count(|c| c.denied), count(|c| c.failed));
        let said = verdict.map_or_else(|| NONE.to_owned(), |v| in_one(v, now));
        let tone = match (e.state(), verdict.map(|v| v.integrity.as_str())) {
            (_, Some("TAMPERED")) | ("failed", _) => Tone::Bad,
            ("complete", _) => Tone::Good,
            ("live" | "sealing", _) => Tone::Strong,
            _ => Tone::Warn,
        };
        let state = style.paint(tone, &format!("{:<STATE$}", e.state()));
        let id = e.session.strip_prefix(SessionId::PREFIX).unwrap_or(&e.session);
        let id = if id.is_empty() { e.name() } else { id.chars().take(DIGITS).collect() };
        let _ = writeln!(
            out,
            "{started:<20}{}{}{calls:>8}{denied:>8}{failed:>8}{:>11}  {state}{}{}",
            cell(&e.server_in_words(), SERVER),
            cell(&e.client, CLIENT),
            size(e.bytes),
            cell(&said, 22),
            short(&id),
        );
    }
    if omitted > 0 {
        let _ = writeln!(out, "and {}", counted(omitted, "more session"));
    }
    out
}

/// A name from outside in a column.
fn cell(name: &str, columns: usize) -> String {
    let name = if name.is_empty() { NONE.to_owned() } else { short(name) };
    let name = fit(&name, columns - 2);
    format!("{name}{}", " ".repeat(columns - width(&name).min(columns)))
}

/// The worst of the four channels, and how long ago that was said.
fn in_one(v: &Verdict, now: WallTime) -> String {
    let worst = match (v.integrity.as_str(), v.signer.as_str()) {
        ("PASS", "UNTRUSTED") => &v.signer,
        ("PASS", _) if v.claims == "HONEST_FAIL" => &v.claims,
        _ => &v.integrity,
    };
    let seconds = now.millis().saturating_sub(v.verified_at.millis()).max(0) / 1000;
    format!("{worst}, {} ago", age(seconds.cast_unsigned()))
}
