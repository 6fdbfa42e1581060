//! `assay policy`: make, check and try policies.

mod surface;

use super::{
    out::{self, Style, Tone, short},
    screen::{self, ScreenArgs},
    table::{Table, and_more},
};
use crate::{
    error::{Exit, Failure},
    history::{list::Places, named::Named},
    live::watcher::Wanted,
    numbers::{counted, grouped, percent},
    paths::DEFAULT_AUDIT_DIR,
    policy::{
        Dns, Note, Policy, Surroundings,
        constraints::paths::PathRules,
        dry_run::{self, DryRunProgress, DryRunReport, Source, SourceError},
        init::{FILE, Needs, STARTER},
        is_glob,
        model::{Constraint, PolicyShape, Rules},
    },
    text::{noun, visible},
    tui::app::Start,
};
use clap::{Args, Subcommand};
use std::{
    fmt::Write as _,
    io::{IsTerminal as _, Write as _},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Rows of a table that are printed; `--json` has all.
const SHOWN: usize = 30;

/// Arguments of `assay policy`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  assay policy init --from .assay/mcp\n  assay policy check assay.mcp-policy.yaml\n  \
                  assay policy dry-run assay.mcp-policy.yaml --against .assay/mcp"
)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Write a first policy, or the smallest one that allows recorded sessions
    Init(InitArgs),
    /// Show what a policy does, or what is wrong with it
    Check(CheckArgs),
    /// Show what a policy would have done to recorded calls
    DryRun(DryRunArgs),
    /// Edit a policy in the dashboard, and see what it would have done as you type
    Edit(EditArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  assay policy edit\n  assay policy edit mine.yaml --against .assay/mcp/packs/proof_pack_*\n\n\
                  Enter starts typing, Esc ends it, w writes the file, p proposes the smallest policy that allows the\n\
                  recorded calls, ? shows all keys. A file that does not exist begins as a commented policy.\n\
                  Text that is not written when the dashboard ends is kept in $ASSAY_HOME/drafts.\n\n\
                  Exit codes: 0 you left; 3 there is no terminal"
)]
struct EditArgs {
    /// The policy
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,
    /// Recorded calls to judge: packs, sessions or audit directories; may be repeated [default: --audit-dir]
    #[arg(long, value_name = "PACK|SESSION|AUDIT DIR", num_args = 1..)]
    against: Vec<PathBuf>,
    /// The audit directory
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
    /// How the dashboard looks.
    #[command(flatten)]
    screen: ScreenArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay policy init\n  assay policy init --from .assay/mcp --out mine.yaml\n\n\
                  With --from, the policy allows the tools that were called in these sessions and denies the rest.\n\n\
                  Exit codes: 0 written; 3 the file exists, or there is nothing to read")]
struct InitArgs {
    /// Recorded sessions to allow: packs, sessions or audit directories; may be repeated
    #[arg(long, value_name = "PACK|SESSION|AUDIT DIR", num_args = 1..)]
    from: Vec<PathBuf>,
    /// The file to write; - for standard output
    #[arg(long, short, value_name = "FILE", default_value = FILE)]
    out: PathBuf,
    /// Look for sessions here only [default: .assay/mcp, and every audit directory that you recorded in]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long, conflicts_with = "out")]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay policy check assay.mcp-policy.yaml\n\n\
                  Exit codes: 0 the policy is valid; 3 it is not: the error says where")]
struct CheckArgs {
    /// The policy
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay policy dry-run assay.mcp-policy.yaml --against .assay/mcp\n  \
                  assay policy dry-run assay.mcp-policy.yaml --against packs/proof_pack_* --json\n\n\
                  Packs are read but not verified; use assay verify-pack for that. If arguments were not stored\n\
                  (--store-args), rules about tools decide, and rules about arguments give unknown. Symbolic links are\n\
                  followed as they are now. Host names are looked up only with --dns.\n\n\
                  Exit codes: 0 no call would be newly denied; 1 some would be; 3 bad input")]
struct DryRunArgs {
    /// The policy
    #[arg(value_name = "FILE", required_unless_present = "surface")]
    file: Option<PathBuf>,
    /// Judge by this lock file of a surface in place of a policy: which calls would its approval have refused?
    #[arg(long, value_name = "LOCK", conflicts_with_all = ["file", "cwd", "dns", "fail_on_unknown"])]
    surface: Option<PathBuf>,
    /// Packs, sessions (an id, or a file in receipts/) or audit directories; may be repeated
    #[arg(long, value_name = "PACK|SESSION|AUDIT DIR", num_args = 1.., required = true)]
    against: Vec<PathBuf>,
    /// Look for sessions here only [default: .assay/mcp, and every audit directory that you recorded in]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
    /// The server's working directory, from which relative paths start (default: this one)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Look up host names
    #[arg(long)]
    dns: bool,
    /// Exit with 1 also if a verdict is unknown
    #[arg(long)]
    fail_on_unknown: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs `assay policy`.
///
/// # Errors
/// A policy that cannot be used, nothing to read, a file that is in the way.
pub fn run(args: &PolicyArgs) -> Result<Exit, Failure> {
    match &args.command {
        PolicyCommand::Init(args) => out::answering(args.json, || init(args)),
        PolicyCommand::Check(args) => check(args),
        PolicyCommand::DryRun(args) => try_out(args),
        PolicyCommand::Edit(args) => edit(args),
    }
}

fn edit(args: &EditArgs) -> Result<Exit, Failure> {
    if !screen::is_there() {
        let hint = "assay policy check and assay policy dry-run print the same as lines";
        return Err(Failure::bad_input("assay policy edit needs a terminal").hint(hint));
    }
    let against = paths(&args.against, args.audit_dir.as_deref())?;
    sources(&against)?;
    let start = Start {
        live: true,
        audit_dir: args.audit_dir.clone(),
        policy: Some(args.file.clone()),
        against: Some(against),
        ..args.screen.start()
    };
    crate::tui::run(start, Wanted::default())
}

/// A policy, or its error with caret on stderr and as a document.
fn load(path: &Path, as_json: bool) -> Result<Result<Policy, Exit>, Failure> {
    let error = match Policy::load(path) {
        Ok(policy) => return Ok(Ok(policy)),
        Err(error) => error,
    };
    out::stderr(&format!("assay: error: {error}"));
    if as_json {
        out::json(&serde_json::json!({
            "status": "error", "path": error.path, "line": error.line, "column": error.column, "error": error.message,
            "hint": error.hint, "exit_code": Exit::BadInput.code(),
        }))?;
    }
    Ok(Err(Exit::BadInput))
}

/// Names of sessions as paths.
fn paths(named: &[PathBuf], audit_dir: Option<&Path>) -> Result<Vec<PathBuf>, Failure> {
    let places = Places::of_command(audit_dir);
    let path = |what: &PathBuf| {
        if what.exists() {
            return Ok(what.clone());
        }
        super::named::find(what, &places).map(|named| match named {
            Named::Pack(dir) | Named::Directory(dir) => dir,
            Named::Session(paths) => paths.receipts,
        })
    };
    named.iter().map(path).collect()
}

fn find(named: &[PathBuf], audit_dir: Option<&Path>) -> Result<Vec<Source>, Failure> {
    sources(&paths(named, audit_dir)?)
}

fn sources(paths: &[PathBuf]) -> Result<Vec<Source>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        found.extend(dry_run::sources(path).map_err(|e| {
            let hint = match e {
                SourceError::Nothing { .. } => {
                    "name a pack, an audit directory, a file in its receipts/, or a session as assay packs lists them"
                }
                SourceError::TooNew(_) => "use a later assay",
            };
            Failure::bad_input(e).hint(hint)
        })?);
    }
    Ok(found)
}

fn init(args: &InitArgs) -> Result<Exit, Failure> {
    let (text, needs) = if args.from.is_empty() {
        (STARTER.to_owned(), None)
    } else {
        let sources = find(&args.from, args.audit_dir.as_deref())?;
        let mut needs = Needs::default();
        let mut meter = Meter::new();
        let _ = dry_run::read(&sources, &mut needs, &mut |_, p| meter.show(p));
        meter.clear();
        for problem in needs.problems.iter().take(10) {
            out::stderr(&format!("assay: warning: {}", short(problem)));
        }
        (needs.policy(), Some(needs))
    };
    // What is written is read back before anybody relies on it.
    let policy = Policy::parse(text.as_bytes(), FILE)
        .map_err(|e| Failure::failed(format_args!("the new policy cannot be read: {}", e.message)))?;
    if args.json {
        out::json(&serde_json::json!({
            "policy": text, "policy_hash": policy.hash(),
            "tools": needs.as_ref().map(|n| &n.tools), "sessions": needs.as_ref().map(|n| n.sessions),
            "denied": needs.as_ref().map(|n| n.denied), "nameless": needs.as_ref().map(|n| n.nameless),
            "problems": needs.as_ref().map(|n| &n.problems),
        }))?;
        return Ok(Exit::Ok);
    }
    if args.out == Path::new("-") {
        out::stdout(text.as_bytes())?;
        return Ok(Exit::Ok);
    }
    out::new_file(&args.out, text.as_bytes())?;
    let file = visible(&args.out.display().to_string()).into_owned();
    let what = needs.map_or_else(
        || "a commented policy to start from".to_owned(),
        |n| {
            let (tools, sessions) = (counted(n.tools.len() as u64, "tool"), counted(n.sessions, "session"));
            format!("{tools} of {sessions} allowed, everything else denied")
        },
    );
    let from = args.from.first().map_or_else(|| DEFAULT_AUDIT_DIR.to_owned(), |path| path.display().to_string());
    let next = format!("{file}: {what}\n  next: assay policy dry-run {file} --against {}\n", visible(&from));
    out::stdout(next.as_bytes())?;
    Ok(Exit::Ok)
}

fn check(args: &CheckArgs) -> Result<Exit, Failure> {
    let policy = match load(&args.file, args.json)? {
        Ok(policy) => policy,
        Err(exit) => return Ok(exit),
    };
    // What is compiled on first use otherwise is compiled now, so that nothing comes as a surprise.
    if let Err(error) = policy.compile() {
        out::stderr(&format!("assay: error: {error}"));
        if args.json {
            let path = &args.file;
            out::json(&serde_json::json!({
                "status": "error", "path": path, "line": error.line, "column": error.column, "error": error.message,
                "hint": error.hint, "exit_code": Exit::BadInput.code(),
            }))?;
        }
        return Ok(Exit::BadInput);
    }
    if args.json {
        let rules = policy.rules();
        out::json(&serde_json::json!({
            "status": "ok", "policy": policy.name(), "policy_hash": policy.hash(), "default": rules.default.as_str(),
            "shape": match rules.shape { PolicyShape::Native => "native", PolicyShape::AssayAi => "assay-ai" },
            "allowlist": rules.allow.texts(), "denylist": rules.deny.texts(),
            "constraints": rules.constraints.iter().map(|c| serde_json::json!({
                "tool": c.key, "line": c.line, "keys": c.keys().collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "max_tool_calls": rules.budget.max_tool_calls,
            "max_wall_time_sec": rules.budget.max_wall_time.map(|t| t.as_secs()),
            "notes": policy.notes().iter().chain(&linked(rules)).collect::<Vec<_>>(),
        }))?;
    } else {
        out::stdout(described(&policy, Style::of_stdout()).as_bytes())?;
    }
    Ok(Exit::Ok)
}

/// Allowed paths that a link leads away from: what is matched is where it leads to.
fn linked(rules: &Rules) -> Vec<Note> {
    let mut notes = Vec::new();
    for c in &rules.constraints {
        for text in c.paths.iter().flat_map(PathRules::texts).filter(|t| t.starts_with('/')) {
            let fixed: PathBuf =
                Path::new(text).components().take_while(|part| !is_glob(&part.as_os_str().to_string_lossy())).collect();
            if let Some(real) = std::fs::canonicalize(&fixed).ok().filter(|real| *real != fixed) {
                let text = format!(
                    "`{text}` in {} never matches: {} is a link to {}; write that path",
                    c.key,
                    fixed.display(),
                    real.display()
                );
                notes.push(Note { line: Some(c.line), text });
            }
        }
    }
    notes
}

/// What a policy does, in the order in which it decides.
fn described(policy: &Policy, style: Style) -> String {
    let rules = policy.rules();
    let mut out = String::new();
    let _ = writeln!(out, "{}  {}", style.paint(Tone::Strong, &short(policy.name())), policy.hash());
    let list = |names: &[String]| {
        let shown: Vec<String> = names.iter().take(SHOWN).map(|n| short(n)).collect();
        let more = names.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        format!("{}{more}", shown.join(", "))
    };
    let mut step = 0;
    let mut line = |text: String| {
        step += 1;
        let _ = writeln!(out, "  {step}. {text}");
    };
    if !rules.deny.texts().is_empty() {
        line(format!("always denied: {}", list(rules.deny.texts())));
    }
    for c in rules.constraints.iter().take(SHOWN) {
        line(format!("{}: denied unless {}", short(&c.key), demands(c)));
    }
    if rules.constraints.len() > SHOWN {
        let more = rules.constraints.len() - SHOWN;
        line(format!("and {more} more {}", noun(more, "constraint")));
    }
    if !rules.allow.texts().is_empty() {
        line(format!("allowed: {}", list(rules.allow.texts())));
    }
    line(format!("every other tool: {}", if rules.default.as_str() == "deny" { "denied" } else { "allowed" }));
    budget(rules).into_iter().for_each(line);
    for note in policy.notes().iter().chain(&linked(rules)) {
        let place = note.line.map(|l| format!("line {l}: ")).unwrap_or_default();
        let _ = writeln!(out, "  {} {place}{}", style.paint(Tone::Warn, "note:"), short(&note.text));
    }
    out
}

fn demands(c: &Constraint) -> String {
    let all = c.demands();
    if all.is_empty() { "nothing".to_owned() } else { all.join("; and ") }
}

fn budget(rules: &Rules) -> Vec<String> {
    let calls =
        rules.budget.max_tool_calls.map(|n| format!("denied after {} in a session", counted(n, "allowed call")));
    let time = rules.budget.max_wall_time.map(|t| format!("denied after {} s of a session", t.as_secs()));
    calls.into_iter().chain(time).collect()
}

fn try_out(args: &DryRunArgs) -> Result<Exit, Failure> {
    if let Some(lock) = &args.surface {
        return surface::run(args, lock);
    }
    let file = args.file.as_deref().unwrap_or(Path::new(FILE));
    let policy = match load(file, args.json)? {
        Ok(policy) => Arc::new(policy),
        Err(exit) => return Ok(exit),
    };
    out::answering(args.json, || {
        let sources = find(&args.against, args.audit_dir.as_deref())?;
        let cwd = args.cwd.as_deref().unwrap_or(Path::new("."));
        let cwd = std::path::absolute(cwd).map_err(|e| Failure::bad_input(format_args!("{}: {e}", cwd.display())))?;
        let dns = if args.dns { Dns::System } else { Dns::Off };
        let around = Arc::new(Surroundings { cwd, ..Surroundings::here(dns) });
        let mut meter = Meter::new();
        let report = dry_run::run(policy, around, &sources, &mut |_, p| meter.show(p));
        meter.clear();
        let report = report.ok_or_else(|| Failure::failed("interrupted"))?;
        if args.json {
            out::json(&report)?;
        } else {
            out::stdout(words(&report, Style::of_stdout()).as_bytes())?;
        }
        let unknown = args.fail_on_unknown && report.total.unknown > 0;
        Ok(if report.total.newly_denied > 0 || unknown { Exit::Violation } else { Exit::Ok })
    })
}

/// Progress on a terminal, after a while.
struct Meter {
    shown: Option<std::time::Instant>,
    terminal: bool,
    drawn: bool,
}

impl Meter {
    fn new() -> Self {
        Self { shown: None, terminal: std::io::stderr().is_terminal(), drawn: false }
    }

    fn show(&mut self, p: DryRunProgress) -> ControlFlow<()> {
        let now = std::time::Instant::now();
        let due = self.shown.is_some_and(|at| now.duration_since(at).as_millis() >= 100);
        if self.shown.is_none() || due {
            self.shown = Some(now);
        }
        if self.terminal && due && p.total_bytes > 0 {
            self.drawn = true;
            let percent = percent(p.done_bytes, p.total_bytes);
            let _ = write!(std::io::stderr().lock(), "\rreading {percent:>3} %");
        }
        ControlFlow::Continue(())
    }

    fn clear(&self) {
        if self.drawn {
            let _ = write!(std::io::stderr().lock(), "\r\u{1b}[K");
        }
    }
}

fn words(r: &DryRunReport, style: Style) -> String {
    let mut out = String::new();
    let t = &r.total;
    let _ = writeln!(out, "{}  {}", style.paint(Tone::Strong, &short(&r.policy)), r.policy_hash);
    let _ = writeln!(out, "{} in {}", counted(t.calls, "call"), counted(r.sessions, "session"));
    let tone = if t.newly_denied > 0 { Tone::Bad } else { Tone::Good };
    let _ = writeln!(out, "{}", style.paint(tone, &r.headline()));
    for (n, what) in r.also() {
        let _ = writeln!(out, "{} {what}", grouped(n));
    }
    if r.sessions_twice > 0 {
        let _ = writeln!(out, "{} named more than once, but judged once", counted(r.sessions_twice, "session"));
    }
    table(&mut out, "Tool", r.tools.iter().map(|row| (row.tool.as_str(), &row.counts)), r.tools.len(), style);
    let changing =
        r.rules.iter().filter(|row| row.counts.newly_denied + row.counts.newly_allowed + row.counts.unknown > 0);
    for row in changing.take(SHOWN) {
        let c = &row.counts;
        let counts: Vec<String> =
            [(c.newly_denied, "newly denied"), (c.newly_allowed, "newly allowed"), (c.unknown, "unknown")]
                .into_iter()
                .filter(|(n, _)| *n > 0)
                .map(|(n, what)| format!("{} {what}", grouped(n)))
                .collect();
        let rule = style.paint(Tone::Strong, &short(&row.rule));
        let _ = writeln!(out, "\n{rule}  {}  {}", row.reason, counts.join(", "));
        for e in &row.examples {
            let at = e.at.map_or_else(String::new, |t| format!("{t} "));
            let _ = writeln!(out, "  {at}{} {}", short(&e.receipt_id), short(&e.tool));
            let _ = writeln!(out, "    {}", short(&e.message));
        }
    }
    for note in &r.notes {
        let _ = writeln!(out, "{} {}", style.paint(Tone::Warn, "note:"), short(&note.text));
    }
    if !r.unmatched.is_empty() {
        let shown: Vec<String> = r.unmatched.iter().take(10).map(|rule| short(rule)).collect();
        let more = r.unmatched.len().saturating_sub(10);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        let _ = writeln!(
            out,
            "{} no call had a tool with these names: {}{more}",
            style.paint(Tone::Warn, "note:"),
            shown.join(", ")
        );
    }
    for problem in r.problems.iter().take(10) {
        let _ = writeln!(out, "{} {}", style.paint(Tone::Warn, "not read:"), short(problem));
    }
    out
}

const TABLE: Table<'_> = Table(&[
    ("calls", 10),
    ("allowed", 10),
    ("denied", 10),
    ("newly denied", 14),
    ("newly allowed", 15),
    ("unknown", 10),
]);

fn table<'a>(
    out: &mut String,
    title: &str,
    rows: impl Iterator<Item = (&'a str, &'a dry_run::Counted)>,
    len: usize,
    style: Style,
) {
    if len == 0 {
        return;
    }
    TABLE.head(out, title, style);
    for (name, c) in rows.take(SHOWN) {
        let counts = [c.calls, c.allowed, c.denied, c.newly_denied, c.newly_allowed, c.unknown];
        TABLE.row(out, name, &counts.map(grouped));
    }
    and_more(out, len, SHOWN);
}
