//! `assay diff`.

use super::{
    findings::{Reports, Suite},
    named::{self, Pack},
    out::{self, Style, Tone, short},
};
use crate::{
    error::{Exit, Failure},
    history::list::Places,
    live::watcher::Wanted,
    model::{
        pack::MANIFEST,
        surface::{self, Severity},
    },
    numbers::{NONE, counted, duration_if, grouped},
    pack::{
        diff::{
            Answer, CallChange, ChangeKind, Comparison, Document, SideView, ToolRow, diff,
            gates::{GateResult, Gates},
            totals_rows,
        },
        verify::{
            Completeness, Integrity, SignerVerdict, VerifyError, VerifyOptions,
            request::{check_out, fingerprint},
            terminal::ProgressLine,
        },
    },
    report,
    text::{fit, noun, where_they_part, width},
    tui::{self, app::Start},
};
use clap::Args;
use std::{
    fmt::Write as _,
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// Rows and changes that are printed; `--json` and `--report` have more.
const SHOWN: usize = 20;
/// Places in one result that are printed.
const PLACES: usize = 5;

/// Arguments of `assay diff`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay diff baseline_pack proof_pack_20260315T113000Z_0123456789abcdef\n  \
                  assay diff last~1 last\n  \
                  assay diff --gates assay.gates.yaml --report gate_report.html BASELINE PACK\n\n\
                  A is the baseline; B is compared with it. Both are verified first. Calls are paired by tool and\n\
                  arguments, in any order. Without gates, a regression is one of these: B is less complete; a claim\n\
                  no longer holds; a call that was answered in A is denied, fails or has no response in B.\n\n\
                  Exit codes: 0 no regression; 1 a regression, or a gate does not hold; 2 a pack does not verify;\n\
                  3 bad input. With --tui: 0 when you leave, whatever the comparison shows; 3 bad input")]
pub struct DiffArgs {
    /// The baseline pack: its directory, an archive of it, last~1, or a session's id or the beginning of that
    a: PathBuf,
    /// The pack to compare with it
    b: PathBuf,
    /// Look for sessions here only [default: .assay/mcp, and every audit directory that you recorded in]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// File with limits that B must meet, such as assay.gates.yaml
    #[arg(long, value_name = "FILE")]
    gates: Option<PathBuf>,
    /// Also write a report to a new file: one page for the browser
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    reports: Reports,
    /// Fingerprint of a key that may have signed either pack: 64 hex digits; may be repeated
    #[arg(long, value_name = "FPR", value_parser = fingerprint)]
    signer: Vec<String>,
    /// Show the comparison in the dashboard
    #[arg(long, conflicts_with_all = ["json", "gates", "report", "junit", "sarif"])]
    tui: bool,
    /// How the dashboard looks.
    #[command(flatten)]
    screen: super::screen::ScreenArgs,
}

impl DiffArgs {
    fn packs(&self) -> Result<[Pack; 2], Failure> {
        let places = Places::of_command(self.audit_dir.as_deref());
        Ok([named::pack(&self.a, &places)?, named::pack(&self.b, &places)?])
    }
}

/// Runs `assay diff`.
///
/// # Errors
/// Gates that cannot be read, a directory that is not a pack, a report that cannot be written.
pub fn run(args: &DiffArgs) -> Result<Exit, Failure> {
    if args.tui {
        return dashboard(args);
    }
    out::answering(args.json, || {
        let [a, b] = args.packs()?;
        if let Some(file) = &args.report {
            check_out("--report", file, &a.dir)?;
            check_out("--report", file, &b.dir)?;
        }
        for pack in [&a, &b] {
            args.reports.check(&pack.dir)?;
        }
        let gates = args.gates.as_deref().map(Gates::load).transpose();
        let gates = gates.map_err(|e| Failure::bad_input(e).hint("docs/diff.md lists the gates"))?;
        let options = VerifyOptions { signers: args.signer.clone(), ..VerifyOptions::default() };
        let mut progress = ProgressLine::new();
        let document = diff(&a.dir, &b.dir, &options, gates.as_ref(), &mut |p| progress.show(p));
        progress.clear();
        let mut document = document?;
        document.a.path = a.shown.display().to_string();
        document.b.path = b.shown.display().to_string();
        args.reports.write("assay diff", &[Suite::of_comparison(&document)])?;
        if let Some(file) = &args.report {
            out::new_file(file, report::diff::page(&document).as_bytes())?;
        }
        if args.json {
            out::json(&document)?;
        } else {
            out::stdout(words(&document, args.report.as_deref(), Style::of_stdout()).as_bytes())?;
        }
        Ok(document.exit().into())
    })
}

/// The comparison in the dashboard. What is not a pack at all is said before the screen is taken.
fn dashboard(args: &DiffArgs) -> Result<Exit, Failure> {
    let [a, b] = args.packs()?;
    for dir in [&a.dir, &b.dir] {
        let why = match std::fs::symlink_metadata(dir.join(MANIFEST)) {
            Ok(_) => continue,
            Err(e) if dir.is_dir() && e.kind() == ErrorKind::NotFound => "it has no pack_manifest.json".to_owned(),
            Err(_) if dir.exists() && !dir.is_dir() => "it is not a directory".to_owned(),
            Err(e) => e.to_string(),
        };
        return Err(VerifyError::NotAPack { dir: dir.clone(), why }.into());
    }
    if !super::screen::is_there() {
        return Err(Failure::bad_input("--tui needs a terminal").hint("leave out --tui for text, or use --json"));
    }
    let start =
        Start { compare: Some((a.dir.clone(), b.dir.clone())), signers: args.signer.clone(), ..args.screen.start() };
    tui::run(start, Wanted::default())
}

/// The document in words.
fn words(d: &Document, report: Option<&Path>, style: Style) -> String {
    let mut out = String::new();
    side(&mut out, "A", &d.a, style);
    side(&mut out, "B", &d.b, style);
    if let Some(c) = &d.comparison {
        comparison(&mut out, c, style);
    }
    if let Some(gates) = &d.gates {
        heading(&mut out, "Gates", style);
        let width = gates.results.iter().map(|g| g.gate.len()).max().unwrap_or_default();
        for gate in &gates.results {
            gate_line(&mut out, gate, width, style);
        }
    }
    if !d.regressions.is_empty() {
        heading(&mut out, "Worse in B", style);
        for r in &d.regressions {
            let judged = r.judged_by.map_or_else(String::new, |gate| format!(" (decided by {gate})"));
            let tone = if r.judged_by.is_some() { Tone::Dim } else { Tone::Bad };
            let _ = writeln!(out, "  {} {}{judged}", style.paint(tone, "✗"), short(&r.what));
        }
    }
    let (tone, text) = match d.answer {
        Answer::NoRegression => (Tone::Good, "No regression."),
        Answer::Regression => (Tone::Bad, "Regression: B is worse than A, or a gate does not hold."),
        Answer::NotVerified => {
            (Tone::Bad, "Nothing was compared: a pack does not verify. assay verify-pack shows why.")
        }
        Answer::Unsupported => {
            (Tone::Warn, "Nothing was compared: a later version wrote part of a pack. Use a later assay.")
        }
    };
    let _ = writeln!(out, "\n{}", style.paint(tone, text));
    if let Some(file) = report {
        let _ = writeln!(out, "Report: {}", short(&file.display().to_string()));
    }
    out
}

fn heading(out: &mut String, text: &str, style: Style) {
    let _ = writeln!(out, "\n{}", style.paint(Tone::Strong, text));
}

fn side(out: &mut String, name: &str, s: &SideView, style: Style) {
    let integrity = match s.integrity {
        Integrity::Pass => Tone::Good,
        Integrity::Unsupported => Tone::Warn,
        Integrity::Tampered => Tone::Bad,
    };
    let complete = if s.completeness == Completeness::Complete { Tone::Good } else { Tone::Warn };
    let signer = match s.signer.verdict {
        SignerVerdict::Pinned => Tone::Good,
        SignerVerdict::Unpinned => Tone::Warn,
        SignerVerdict::Untrusted => Tone::Bad,
    };
    let _ = writeln!(
        out,
        "{} {}\n  {}  {}  {}  {}{}",
        style.paint(Tone::Strong, name),
        short(&s.path),
        style.paint(integrity, s.integrity.as_str()),
        style.paint(complete, s.completeness.as_str()),
        style.paint(signer, s.signer.verdict.as_str()),
        s.receipts(),
        s.timestamp_start.as_deref().map_or_else(String::new, |t| format!("  {}", short(t))),
    );
    if s.surface_truncated {
        let _ = writeln!(out, "  {} {}", style.paint(Tone::Warn, "!"), surface::TRUNCATED);
    }
    for finding in &s.errors {
        let _ = writeln!(out, "  {} {}", style.paint(Tone::Bad, finding.code), short(&finding.message));
    }
    if s.error_count > s.errors.len() as u64 {
        let _ = writeln!(out, "  and {} more", s.error_count - s.errors.len() as u64);
    }
}

fn comparison(out: &mut String, c: &Comparison, style: Style) {
    heading(out, "Calls", style);
    let p = &c.calls;
    let _ = writeln!(out, "  {} paired, {} new, {} gone", grouped(p.paired), grouped(p.new), grouped(p.gone));
    let _ = writeln!(
        out,
        "  pairs that differ: {} in outcome, {} in verdict, {} in result",
        grouped(p.outcome_changed),
        grouped(p.verdict_changed),
        grouped(p.result_changed)
    );
    heading(out, "Totals                   A          B", style);
    for row in totals_rows(&c.totals_a, &c.totals_b, &c.latency_a, &c.latency_b) {
        let by = style.paint(Tone::Dim, &row.by);
        let line = format!("  {:<12}{:>12} {:>10}  {by}", row.label, row.a, row.b);
        let _ = writeln!(out, "{}", line.trim_end());
    }
    tools(out, c, style);
    if !c.context.is_empty() {
        heading(out, "Ran with", style);
        for change in &c.context {
            let text = |t: &Option<String>| t.as_deref().map_or_else(|| NONE.to_owned(), short);
            let what = change.what.replace('_', " ");
            let _ = writeln!(out, "  {what:<20} {} → {}", text(&change.a), text(&change.b));
        }
    }
    surface_changes(out, c, style);
    changes(out, c, style);
}

/// Texts of what a server says, in one line each.
fn surface_changes(out: &mut String, c: &Comparison, style: Style) {
    if c.surface.is_empty() {
        return;
    }
    heading(out, "The server's surface", style);
    for group in c.surface.iter().take(SHOWN) {
        let tone = match group.severity {
            Severity::Critical | Severity::High => Tone::Bad,
            Severity::Medium => Tone::Warn,
            Severity::Low | Severity::Info => Tone::Dim,
        };
        let severity = style.paint(tone, &format!("{:<8}", group.severity.as_str()));
        let _ = writeln!(out, "  {severity} {:<18} {}", group.kind, short(&group.place()));
        for (mark, text, tone) in [("-", &group.before, Tone::Bad), ("+", &group.after, Tone::Good)] {
            if let Some(text) = text {
                let _ = writeln!(out, "           {}", style.paint(tone, &format!("{mark} {}", short(text))));
            }
        }
    }
    let more = c.surface.len().saturating_sub(SHOWN) as u64;
    if more > 0 {
        let _ = writeln!(out, "  and {} more {}", grouped(more), noun(more, "group"));
    }
}

fn tools(out: &mut String, c: &Comparison, style: Style) {
    heading(out, "Tools                     calls A → B   failed A → B    p50 A → B               p95 A → B", style);
    for row in c.tools.iter().take(SHOWN) {
        tool_line(out, row, style);
    }
    let more = c.tools.len().saturating_sub(SHOWN) as u64 + c.tools_omitted;
    if more > 0 {
        let _ = writeln!(out, "  and {} more {}", grouped(more), noun(more, "tool"));
    }
}

fn tool_line(out: &mut String, row: &ToolRow, style: Style) {
    let (a, b) = (&row.a, &row.b);
    let (note, tone) = match (a.totals.calls, b.totals.calls) {
        (0, _) => ("new", Tone::Warn),
        (_, 0) => ("gone", Tone::Warn),
        _ => ("", Tone::Dim),
    };
    let name = short(&row.tool);
    let name = fit(&name, 22);
    let pad = " ".repeat(24 - width(&name).min(24));
    let line = format!(
        "  {name}{pad}{:>6} → {:<6}{:>6} → {:<6}{:>10} → {:<10}{:>10} → {:<10}{}",
        grouped(a.totals.calls),
        grouped(b.totals.calls),
        grouped(a.totals.failed()),
        grouped(b.totals.failed()),
        duration_if(a.latency.p50_us),
        duration_if(b.latency.p50_us),
        duration_if(a.latency.p95_us),
        duration_if(b.latency.p95_us),
        style.paint(tone, note)
    );
    let _ = writeln!(out, "{}", line.trim_end());
}

fn changes(out: &mut String, c: &Comparison, style: Style) {
    for (kind, title) in [
        (ChangeKind::Changed, "Changed calls"),
        (ChangeKind::New, "New calls (only in B)"),
        (ChangeKind::Gone, "Gone calls (only in A)"),
    ] {
        let all: Vec<&CallChange> = c.changes.iter().filter(|x| x.kind == kind).collect();
        if all.is_empty() {
            continue;
        }
        heading(out, title, style);
        for change in all.iter().take(SHOWN) {
            change_lines(out, change, style);
        }
        let total = match kind {
            ChangeKind::Changed => all.len() as u64,
            ChangeKind::New => c.calls.new,
            ChangeKind::Gone => c.calls.gone,
        };
        if total > SHOWN as u64 {
            let _ = writeln!(out, "  and {} more", grouped(total - SHOWN as u64));
        }
    }
    if c.changes_omitted > 0 {
        let _ = writeln!(out, "\n{} counted above but not listed.", counted(c.changes_omitted, "change"));
    }
}

fn change_lines(out: &mut String, change: &CallChange, style: Style) {
    let hash = change.arguments_hash.rsplit(':').next().unwrap_or_default();
    let hash: String = hash.chars().take(12).collect();
    let name = short(&change.tool);
    let _ = write!(out, "  {} {}", fit(&name, 40), style.paint(Tone::Dim, &short(&hash)));
    match (&change.a, &change.b) {
        (Some(a), Some(b)) => {
            for said in a.changed(b, "→") {
                let _ = write!(out, "  {}", short(&said));
            }
            let _ = write!(out, "  {}", style.paint(Tone::Dim, &short(&b.receipt_id)));
        }
        (None, Some(one)) | (Some(one), None) => {
            let _ = write!(out, "  {}  {}", short(&one.outcome), style.paint(Tone::Dim, &short(&one.receipt_id)));
        }
        (None, None) => {}
    }
    out.push('\n');
    for place in change.result_differences.iter().take(PLACES) {
        let text =
            |v: &Option<serde_json::Value>| v.as_ref().map_or_else(|| NONE.to_owned(), |v| short(&v.to_string()));
        let (old, new) = (text(&place.old), text(&place.new));
        let (old, new) = where_they_part(&old, &new, 60);
        let path = if place.path.is_empty() { "(the whole value)" } else { &place.path };
        let path = short(path);
        let _ = writeln!(out, "    {}  {} → {}", fit(&path, 60), fit(&old, 60), fit(&new, 60));
    }
    let more = change.result_differences.len().saturating_sub(PLACES) as u64 + change.result_differences_omitted;
    if more > 0 {
        let _ = writeln!(out, "    and {more} more {}", noun(more, "place"));
    }
}

fn gate_line(out: &mut String, gate: &GateResult, width: usize, style: Style) {
    let (mark, tone) = if gate.passed { ("✓", Tone::Good) } else { ("✗", Tone::Bad) };
    let note = gate.note.as_deref().map_or_else(String::new, |n| format!("  {}", short(n)));
    let actual = if gate.actual.is_null() { NONE.to_owned() } else { gate.actual.to_string() };
    let _ = writeln!(
        out,
        "  {} {:<width$} limit {:<8} found {actual}{}",
        style.paint(tone, mark),
        gate.gate,
        gate.limit.to_string(),
        style.paint(Tone::Dim, &note)
    );
}
