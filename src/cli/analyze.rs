//! `assay analyze`.

use super::{
    named::{self, Pack},
    out::{self, Style, Tone, short},
    table::{Table, and_more},
};
use crate::model::pack::RECEIPTS;
use crate::{
    db::DbError,
    error::{Exit, Failure},
    history::{
        self, HistoryError, Refreshed,
        list::{self, Places},
    },
    numbers::{counted, duration_if, grouped},
    pack::{
        analysis::{ANALYSIS_SCHEMA, Analysis, AnalysisRow},
        calls::{self, CallsError, Seen},
        timeline::Timeline,
        verify::{
            Completeness, Covered, Integrity, SignerVerdict, VerifyOptions, request::check_out, source::PackDir,
            terminal::ProgressLine, verify,
        },
    },
    paths::{DEFAULT_AUDIT_DIR, assay_home},
    report,
};
use clap::Args;
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// Rows of a table that are printed; `--json` has all.
const SHOWN: usize = 30;
/// Problems that are printed.
const PROBLEMS: usize = 10;

/// Arguments of `assay analyze`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay analyze proof_pack_20260315T113000Z_0123456789abcdef\n  \
                  assay analyze --history\n  assay analyze --html calls.html last\n\n\
                  The history is an index over every audit directory that you recorded in. It is not evidence. It is\n\
                  built from the sessions there, and --rebuild builds it again.\n\n\
                  Exit codes: 0 counted; 2 a pack is TAMPERED and was left out, or the history cannot be read;\n\
                  3 bad input, or a pack is UNSUPPORTED (a later version wrote part of it) and was left out")]
pub struct AnalyzeArgs {
    /// Packs: directories, archives of them, audit directories, last, or sessions' ids or their beginnings
    #[arg(value_name = "PACK")]
    packs: Vec<PathBuf>,
    /// Count every session that you recorded, in every audit directory
    #[arg(long, conflicts_with = "packs")]
    history: bool,
    /// First build the history again from the journals; implies --history
    #[arg(long, conflicts_with = "packs")]
    rebuild: bool,
    /// Also read this audit directory, now and later; may be repeated
    #[arg(long, value_name = "DIR", conflicts_with = "packs")]
    audit_dir: Vec<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Also write a page for the browser to a new file: the counts, and the calls of packs as a picture of time
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl From<HistoryError> for Failure {
    fn from(e: HistoryError) -> Self {
        match e {
            HistoryError::Db(DbError::Damaged { .. }) => {
                Self::failed(e).hint("build it again: assay analyze --history --rebuild")
            }
            HistoryError::Db(DbError::Newer { .. }) => {
                Self::bad_input(e).hint("use the newer assay, or move the file away")
            }
            HistoryError::Db(DbError::Foreign { .. }) => Self::bad_input(e).hint("move the file away"),
            HistoryError::Path(_) => Self::bad_input(e),
            HistoryError::Db(_) | HistoryError::Journal(_) => Self::failed(e),
        }
    }
}

/// One pack that was asked for.
#[derive(Debug, Serialize)]
struct PackView {
    path: String,
    integrity: Integrity,
    completeness: Completeness,
    signer: SignerVerdict,
    /// How many of the calls that a server was asked for have an outcome, where it recorded itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<Covered>,
    /// What a later version wrote, and which it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    too_new: Option<String>,
}

/// The history, where it was asked for.
#[derive(Debug, Serialize)]
struct HistoryView {
    path: String,
    directories: u64,
    sessions: u64,
    /// Of these, those that say that everything was recorded.
    complete: u64,
    rebuilt: bool,
    /// Sessions that were read for this answer.
    indexed: u64,
    /// Sessions whose journal is gone.
    dropped: u64,
    /// How many of the calls that servers which recorded themselves were asked for have an outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<Covered>,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    packs: Vec<PackView>,
    history: Option<HistoryView>,
    total: AnalysisRow,
    tools: Vec<AnalysisRow>,
    servers: Vec<AnalysisRow>,
    /// What servers call themselves, by their ids; the latest word, where there is one.
    server_names: BTreeMap<String, String>,
    days: Vec<AnalysisRow>,
    /// Calls of the packs by `surface_state` of their receipts; null for the history, which does not have it.
    surface: Option<BTreeMap<String, u64>>,
}

/// Runs `assay analyze`.
///
/// # Errors
/// Nothing to count, a directory that is not a pack, a history that does not read.
pub fn run(args: &AnalyzeArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let mut exit = Exit::Ok;
        let (mut names, mut timeline) = (BTreeMap::new(), Timeline::default());
        let (analysis, packs, history) = if args.history || args.rebuild || !args.audit_dir.is_empty() {
            let (analysis, view) = of_history(args, &mut names)?;
            (analysis, Vec::new(), Some(view))
        } else if args.packs.is_empty() {
            return Err(Failure::bad_input("there is nothing to count").hint("name a pack, or give --history"));
        } else {
            let (analysis, views) = of_packs(&args.packs, args.html.as_deref(), &mut names, &mut timeline)?;
            let any = |integrity| views.iter().any(|v| v.integrity == integrity);
            if any(Integrity::Tampered) {
                exit = Exit::Failed;
            } else if any(Integrity::Unsupported) {
                exit = Exit::BadInput;
            }
            (analysis, views, None)
        };
        let document = Document {
            schema: ANALYSIS_SCHEMA,
            total: analysis.total(),
            tools: analysis.by_tool(),
            servers: analysis.by_server(),
            server_names: names,
            days: analysis.by_day(),
            history,
            surface: (!packs.is_empty()).then(|| analysis.surface().clone()),
            packs,
        };
        if let Some(file) = &args.html {
            out::new_file(file, html(&document, &timeline).as_bytes())?;
        }
        if args.json {
            out::json(&document)?;
        } else {
            out::stdout(words(&document, Style::of_stdout()).as_bytes())?;
        }
        Ok(exit)
    })
}

fn of_packs(
    packs: &[PathBuf],
    html: Option<&Path>,
    names: &mut BTreeMap<String, String>,
    timeline: &mut Timeline,
) -> Result<(Analysis, Vec<PackView>), Failure> {
    let (mut analysis, mut views) = (Analysis::default(), Vec::new());
    let packs = named::packs(packs, &Places::of_user())?;
    for Pack { dir, shown, .. } in &packs {
        if let Some(file) = html {
            check_out("--html", file, dir)?;
        }
        let mut progress = ProgressLine::new();
        let report = verify(dir, &VerifyOptions::default(), &mut |p| progress.show(p));
        progress.clear();
        let report = report?;
        views.push(PackView {
            path: shown.display().to_string(),
            integrity: report.integrity,
            completeness: report.completeness,
            signer: report.signer.verdict,
            coverage: report.facts.coverage.clone(),
            too_new: report.too_new(),
        });
        if report.integrity == Integrity::Pass {
            if let Some(session) = &report.facts.session
                && let Some(info) = &session.server_info
            {
                names.insert(session.server_id.clone(), info.to_string());
            }
            count(dir, report.facts.receipt_pack_sha256.as_deref(), &mut analysis, timeline)?;
        }
    }
    Ok((analysis, views))
}

/// Counts the receipts of a pack that was verified; that they are the same bytes is checked.
fn count(pack: &Path, verified: Option<&str>, analysis: &mut Analysis, timeline: &mut Timeline) -> Result<(), Failure> {
    let dir = PackDir::open(pack)?;
    let (sha256, _) = calls::lines(&dir, RECEIPTS, |line| {
        if let Some(seen) = Seen::read(line.bytes) {
            analysis.receipt(&seen);
            timeline.receipt(&seen);
        }
    })
    .map_err(Failure::failed)?;
    if verified == Some(sha256.as_str()) {
        Ok(())
    } else {
        Err(Failure::failed(CallsError::Changed { path: pack.join(RECEIPTS) }))
    }
}

/// Packs of a server in which what it calls itself is looked for.
const LOOKS: usize = 20;

fn of_history(args: &AnalyzeArgs, names: &mut BTreeMap<String, String>) -> Result<(Analysis, HistoryView), Failure> {
    let home = assay_home()?;
    for dir in &args.audit_dir {
        if !dir.join("receipts").is_dir() {
            return Err(named::not_here(format_args!("{} is not an audit directory", dir.display())));
        }
        history::register(&home, dir)?;
    }
    let here = Path::new(DEFAULT_AUDIT_DIR);
    if here.join("receipts").is_dir() {
        history::register(&home, here)?;
    }
    let (history, refreshed) = if args.rebuild {
        history::rebuild(&home)?
    } else {
        let mut history = history::History::open(&home, history::PATIENCE)?;
        history.check()?;
        let refreshed = history::refresh(&mut history, &home)?;
        (history, refreshed)
    };
    let sessions = history.sessions()?;
    let mut looks: HashMap<&str, usize> = HashMap::new();
    // The newest come first.
    for session in &sessions {
        let looked = looks.entry(&session.server_id).or_default();
        if *looked < LOOKS && !names.contains_key(&session.server_id) {
            *looked += 1;
            names.extend(list::server_of(&session.pack).map(|name| (session.server_id.clone(), name)));
        }
    }
    let Refreshed { directories, indexed, dropped, problems } = refreshed;
    let view = HistoryView {
        path: home.join(history::DATABASE).display().to_string(),
        directories,
        sessions: sessions.len() as u64,
        complete: sessions.iter().filter(|s| s.complete).count() as u64,
        rebuilt: args.rebuild,
        indexed,
        dropped,
        coverage: history.coverage()?,
        problems,
    };
    Ok((history.analysis()?, view))
}

/// The page for the browser.
fn html(d: &Document, timeline: &Timeline) -> String {
    let packs = d.packs.iter().map(|p| {
        let left_out = if p.integrity == Integrity::Pass { "" } else { ", left out" };
        format!("{}: {}, {}, {}{left_out}", p.path, p.integrity, p.completeness, p.signer)
    });
    let history = d.history.iter().map(|h| format!("{}: {}", h.path, counted(h.sessions, "session")));
    let sources: Vec<String> = packs.chain(history).collect();
    let Document { total, tools, servers, days, .. } = d;
    report::analysis::page(&report::analysis::Counted { sources: &sources, total, tools, servers, days, timeline })
}

fn words(d: &Document, style: Style) -> String {
    let mut out = String::new();
    for pack in &d.packs {
        let (tone, left_out) = match pack.integrity {
            Integrity::Pass => (Tone::Good, ""),
            Integrity::Unsupported => (Tone::Warn, "  left out"),
            Integrity::Tampered => (Tone::Bad, "  left out"),
        };
        let verdicts = format!("{}  {}  {}", pack.integrity, pack.completeness, pack.signer);
        let _ = writeln!(out, "{}\n  {}{left_out}", short(&pack.path), style.paint(tone, &verdicts));
        if let Some(covered) = &pack.coverage {
            let _ = writeln!(out, "  coverage {covered}");
        }
        if let Some(newer) = &pack.too_new {
            let _ = writeln!(out, "  too new: {}", short(newer));
        }
    }
    if let Some(h) = &d.history {
        let rebuilt = if h.rebuilt { ", built again" } else { "" };
        let _ = writeln!(
            out,
            "{} ({} complete) in {}{rebuilt}",
            counted(h.sessions, "session"),
            grouped(h.complete),
            counted(h.directories, "audit directory")
        );
        if let Some(covered) = &h.coverage {
            let _ = writeln!(out, "  coverage {covered}");
        }
        for problem in h.problems.iter().take(PROBLEMS) {
            let _ = writeln!(out, "  {} {}", style.paint(Tone::Warn, "not read:"), short(problem));
        }
        if h.problems.len() > PROBLEMS {
            let _ = writeln!(out, "  and {} more", h.problems.len() - PROBLEMS);
        }
    }
    for (title, rows) in [("Tool", &d.tools), ("Server", &d.servers), ("Day (UTC)", &d.days)] {
        table(&mut out, title, rows, &d.total, style);
        if title == "Server" {
            for row in rows.iter().take(SHOWN) {
                if let Some(own) = d.server_names.get(&row.name) {
                    let _ = writeln!(out, "  own name of {}: {}", short(&row.name), short(own));
                }
            }
        }
    }
    surface(&mut out, d.surface.as_ref(), style);
    if d.total.calls == 0 {
        out.push_str("\nNo tool calls.\n");
    }
    out
}

/// What was known of the definitions that the calls ran under.
fn surface(out: &mut String, states: Option<&BTreeMap<String, u64>>, style: Style) {
    let Some(states) = states.filter(|states| !states.is_empty()) else { return };
    STATES.head(out, "Definition called", style);
    for (state, calls) in states {
        STATES.row(out, state, &[grouped(*calls)]);
    }
}

const STATES: Table<'_> = Table(&[("calls", 9)]);

const TABLE: Table<'_> =
    Table(&[("calls", 9), ("errors", 9), ("denied", 8), ("timeouts", 10), ("p50", 11), ("p95", 11), ("longest", 11)]);

fn table(out: &mut String, title: &str, rows: &[AnalysisRow], total: &AnalysisRow, style: Style) {
    if rows.is_empty() {
        return;
    }
    TABLE.head(out, title, style);
    // Of many days the last ones say most.
    let skip = if title.starts_with("Day") { rows.len().saturating_sub(SHOWN) } else { 0 };
    for row in rows.iter().skip(skip).take(SHOWN) {
        row_line(out, row);
    }
    and_more(out, rows.len(), SHOWN);
    if rows.len() > 1 {
        row_line(out, total);
    }
}

fn row_line(out: &mut String, r: &AnalysisRow) {
    let counts = [r.calls, r.errors, r.denied, r.timeouts].map(grouped);
    let times = [r.p50_us, r.p95_us, r.max_us].map(duration_if);
    TABLE.row(out, &r.name, &[&counts[..], &times[..]].concat());
}
