//! `assay prune`.

use super::{
    named::not_here,
    out::{self, short},
};
use crate::{
    error::{Exit, Failure},
    files,
    filter::Filter,
    history::list::{self, Found, Places},
    model::WallTime,
    numbers::{counted, size},
    pack::keys::KeyStore,
    paths::{AuditDir, DEFAULT_AUDIT_DIR},
    prune::{self, Candidate, Done, Keep, Left, Survey, What},
    zone::Zone,
};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::{
    cell::RefCell,
    collections::HashSet,
    fmt::Write as _,
    io::{self, BufRead as _, IsTerminal as _},
    path::PathBuf,
    time::Duration,
};

/// `schema` of the document.
const PRUNE_SCHEMA: &str = "assay.prune.v1";
/// Sessions that are printed one by one.
const LISTED: usize = 20;

/// Arguments of `assay prune`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay prune --older-than 90d --dry-run\n  \
                  assay prune --keep-bytes 10G --yes\n  \
                  assay prune 'server:github' --keep 100\n  \
                  assay prune --what payloads --older-than 30d\n\n\
                  What breaks any of the limits goes, the oldest first. Before a session is removed, a line in\n\
                  the ledger names it, with the hash of its manifest, and your key signs that line. Sessions\n\
                  that are live, not sealed or of a later version are left alone. The filter is that of assay\n\
                  packs.\n\n\
                  Exit codes: 0 removed, also if there is nothing to remove; 2 something could not be removed;\n\
                  3 bad input")]
pub struct PruneArgs {
    /// Only sessions that match
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Remove what ended longer ago (h, d, w or y)
    #[arg(long, value_name = "AGE", value_parser = prune::age)]
    older_than: Option<Duration>,
    /// Keep so much of the newest sessions (K, M, G or T)
    #[arg(long, value_name = "SIZE", value_parser = prune::bytes)]
    keep_bytes: Option<u64>,
    /// Keep so many of the newest sessions (1000); also an age or a size, with commas between them (90d,10G,1000)
    #[arg(long, value_name = "LIMITS")]
    keep: Option<Keep>,
    /// What is removed: whole sessions (packs), only their cleartext (payloads), or journals that their packs hold as well
    /// (journals)
    #[arg(long, value_enum, value_name = "packs|payloads|journals", default_value_t = WhatArg::Packs, hide_possible_values = true)]
    what: WhatArg,
    /// Audit directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
    audit_dir: PathBuf,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Print one JSON document; nothing is asked
    #[arg(long)]
    json: bool,
}

/// `--what`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum WhatArg {
    /// Whole sessions.
    Packs,
    /// Investigation logs.
    Payloads,
    /// Second copies.
    Journals,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    audit_dir: String,
    what: WhatArg,
    dry_run: bool,
    /// What was chosen, or of a dry run, would be.
    sessions: Vec<View<'a>>,
    /// Bytes that were freed, or would be.
    bytes: u64,
    /// Sessions of which an earlier prune had removed a part.
    unfinished: Vec<&'a str>,
    left: Vec<LeftView<'a>>,
}

#[derive(Debug, Serialize)]
struct View<'a> {
    session_id: String,
    name: &'a str,
    ended_at: WallTime,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct LeftView<'a> {
    name: &'a str,
    why: &'a str,
}

/// Runs `assay prune`.
///
/// # Errors
/// Bad input, a directory or a key that cannot be used.
pub fn run(args: &PruneArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || answer(args))
}

fn answer(args: &PruneArgs) -> Result<Exit, Failure> {
    let keep = Keep { age: args.older_than, bytes: args.keep_bytes, sessions: None };
    let keep = keep.and(args.keep.unwrap_or_default()).map_err(Failure::bad_input)?;
    if keep.is_everything() && args.what != WhatArg::Journals {
        return Err(Failure::bad_input("nothing says what stays")
            .hint("give --older-than 90d, --keep-bytes 10G or --keep 1000"));
    }
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !args.yes && !args.dry_run && (!terminal || args.json) {
        return Err(Failure::bad_input("nobody can be asked here")
            .hint("--yes removes without asking, --dry-run shows what would be removed"));
    }
    let dir = AuditDir::reach(&args.audit_dir)?.of_user();
    if !dir.audit().is_dir() {
        return Err(not_here(format_args!("{} is not an audit directory", args.audit_dir.display())));
    }
    let what = match args.what {
        WhatArg::Packs => What::Packs,
        WhatArg::Payloads => What::Payloads,
        WhatArg::Journals => What::Journals,
    };
    let failed = |e: io::Error| Failure::failed(format_args!("{}: {e}", dir.root().display()));
    let Survey { mut sessions, left, unfinished } = prune::survey(&dir, what).map_err(failed)?;
    if let Some(text) = args.filter.as_deref().filter(|text| !text.is_empty()) {
        let names = matching(&dir, text)?;
        sessions.retain(|one| names.contains(&one.paths.stem));
    }
    let all = sessions.len();
    let chosen = if keep.is_everything() { sessions } else { keep.choose(sessions, WallTime::now()) };
    if !args.json {
        out::stdout(plan(args, &chosen, all, &left, unfinished.len()).as_bytes())?;
    }
    let nothing = chosen.is_empty() && unfinished.is_empty();
    let mut done = Done::default();
    if !args.dry_run && !nothing {
        if !args.yes && !asked()? {
            out::stdout(b"nothing was removed\n")?;
            return Ok(Exit::Ok);
        }
        let keys = KeyStore::of_user()?;
        let signer = keys.load_or_generate(&keys.active()?)?.patiently();
        done = prune::prune(&dir, what, &unfinished, &chosen, &signer).map_err(failed)?;
    }
    if args.json {
        out::json(&Document {
            schema: PRUNE_SCHEMA,
            audit_dir: files::text(dir.root()),
            what: args.what,
            dry_run: args.dry_run,
            bytes: if args.dry_run { chosen.iter().map(|one| one.bytes).sum() } else { done.bytes },
            sessions: chosen.iter().map(view).collect(),
            unfinished: unfinished.iter().map(|paths| paths.stem.as_str()).collect(),
            left: left.iter().chain(&done.left).map(|l| LeftView { name: &l.name, why: &l.why }).collect(),
        })?;
    } else if !args.dry_run && !nothing {
        let mut text = format!(
            "{}: {} removed, {} freed\n",
            counted(done.sessions, "session"),
            counted(done.files, "file"),
            size(done.bytes)
        );
        for one in &done.left {
            let _ = writeln!(text, "left alone: {}: {}", one.name, short(&one.why));
        }
        out::stdout(text.as_bytes())?;
    }
    Ok(if done.left.iter().any(|one| one.wrong) { Exit::Failed } else { Exit::Ok })
}

fn view(one: &Candidate) -> View<'_> {
    View { session_id: one.paths.id.to_string(), name: &one.paths.stem, ended_at: one.end.at, bytes: one.bytes }
}

/// Names of the sessions that a filter lets through.
fn matching(dir: &AuditDir, text: &str) -> Result<HashSet<String>, Failure> {
    let filter = Filter::sessions(text).map_err(|e| {
        out::stderr(&e.under(text));
        Failure::bad_input(format_args!("{e}, at byte {}", e.at)).hint("assay packs --help explains filters")
    })?;
    let names = RefCell::new(HashSet::new());
    let tell = |found| {
        if let Found::Some(entries) = found {
            names.borrow_mut().extend(entries.iter().filter(|e| e.passes(&filter)).map(list::Entry::name));
        }
    };
    list::find(&Places::of_command(Some(dir.root())), &tell, &|| false);
    Ok(names.into_inner())
}

/// What is about to happen.
fn plan(args: &PruneArgs, chosen: &[Candidate], all: usize, left: &[Left], unfinished: usize) -> String {
    let mut text = String::new();
    if unfinished > 0 {
        let sessions = counted(unfinished as u64, "session");
        let _ = writeln!(text, "an earlier prune did not finish: {sessions} that the ledger says are removed");
    }
    for one in chosen.iter().take(LISTED) {
        let _ = writeln!(text, "  {}  {:>10}  {}", Zone::Local.minute(one.end.at), size(one.bytes), one.paths.stem);
    }
    if chosen.len() > LISTED {
        let _ = writeln!(text, "  and {}", counted((chosen.len() - LISTED) as u64, "more session"));
    }
    let bytes = size(chosen.iter().map(|one| one.bytes).sum());
    let what = match args.what {
        WhatArg::Packs => "whole",
        WhatArg::Payloads => "only what is stored in cleartext beside the pack",
        WhatArg::Journals => "only the journal, which the pack holds as well",
    };
    let verb = if args.dry_run { "would be removed" } else { "to be removed" };
    let _ = match chosen.len() {
        0 => writeln!(text, "nothing {verb} of {}", counted(all as u64, "sealed session")),
        n => writeln!(text, "{verb}: {n} of {} ({what}), {bytes}", counted(all as u64, "sealed session")),
    };
    if !left.is_empty() {
        let sessions = counted(left.len() as u64, "session");
        let _ = writeln!(text, "left alone: {sessions}, live, not sealed or of a later version");
    }
    text
}

fn asked() -> Result<bool, Failure> {
    out::stdout(b"they cannot be brought back. Remove them? [y/N] ")?;
    let mut line = String::new();
    let _ = io::stdin().lock().read_line(&mut line);
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
