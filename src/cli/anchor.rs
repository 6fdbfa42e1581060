//! `assay anchor`: has witnesses sign the ledger of an audit directory.

use super::{
    named::not_here,
    out::{self, Style, Tone, short},
};
use crate::{
    error::{Exit, Failure},
    files,
    model::WallTime,
    pack::{
        keys::KeyStore,
        verify::tlog_policy::{MAX_POLICY, Policy},
    },
    paths::{AuditDir, DEFAULT_AUDIT_DIR},
    record::log::LogError,
    text::counted,
    witness::{
        anchor::{AnchorError, Report, anchor},
        ask::Outcome,
    },
};
use clap::Args;
use serde_json::json;
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// Arguments of `assay anchor`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay anchor --policy witnesses.policy .assay/mcp\n\n\
                        The policy (c2sp.org/tlog-policy) names the witnesses, their keys and URLs, and how many it\n\
                        takes. Each is asked once, for 10 s, and gets the number of lines of the ledger and hashes,\n\
                        nothing of a session. What they sign stands in the ledger. Run it from cron or a systemd\n\
                        timer; docs/anchors.md says how.\n\n\
                        Exit codes: 0 enough witnesses have signed; 1 too few have; 2 a witness has seen more, or\n\
                        something else (ROLLBACK, FORK), or the ledger cannot be signed; 3 bad input")]
pub struct AnchorArgs {
    /// Audit directory
    #[arg(value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
    dir: PathBuf,
    /// Which witnesses there are, and how many it takes
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Reads the policy that a user named.
///
/// # Errors
/// A file that cannot be read, or is no policy; with its line.
pub(super) fn policy(path: &Path) -> Result<Policy, Failure> {
    let shown = path.display();
    let bytes = files::named(path).and_then(|file| files::read_all(file, MAX_POLICY));
    let bytes = bytes.map_err(|e| Failure::bad_input(format_args!("{shown}: {e}")))?;
    Policy::parse(&bytes).map_err(|e| Failure::bad_input(format_args!("{shown}: {e}")))
}

/// A time in seconds since 1970, for people and documents.
fn time(seconds: u64) -> String {
    WallTime::from_millis(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000)).to_string()
}

fn failed(e: AnchorError) -> Failure {
    match e {
        AnchorError::Policy(_) | AnchorError::Log(LogError::Name(_) | LogError::TooNew { .. }) => Failure::bad_input(e),
        AnchorError::Log(_) | AnchorError::Io(_) => Failure::failed(e),
    }
}

/// Runs `assay anchor`.
///
/// # Errors
/// Bad input, a ledger that cannot be signed.
pub fn run(args: &AnchorArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let policy = policy(&args.policy)?;
        let dir = AuditDir::reach(&args.dir)?.of_user();
        if !dir.ledger().is_file() {
            return Err(not_here(format_args!("{} has no ledger", args.dir.display())));
        }
        let keys = KeyStore::of_user()?;
        let signer = keys.load(&keys.active()?)?.patiently();
        let report = anchor(&dir, &signer, &policy).map_err(failed)?;
        let exit = match (report.is_contradicted(), report.judged.is_enough) {
            (true, _) => Exit::Failed,
            (false, true) => Exit::Ok,
            (false, false) => Exit::Violation,
        };
        if args.json {
            out::json(&document(&report, exit))?;
        } else {
            out::stdout(words(&report, Style::of_stdout()).as_bytes())?;
        }
        Ok(exit)
    })
}

fn document(report: &Report, exit: Exit) -> serde_json::Value {
    let row = |row: &crate::witness::anchor::Row| match &row.outcome {
        Outcome::Signed(_) => json!({"witness": row.witness, "outcome": "signed"}),
        Outcome::Rollback { size, note } => {
            json!({"witness": row.witness, "outcome": "rollback", "size": size, "note": note})
        }
        Outcome::Fork { why, note } => json!({"witness": row.witness, "outcome": "fork", "why": why, "note": note}),
        Outcome::Failed(why) => json!({"witness": row.witness, "outcome": "failed", "why": why}),
    };
    json!({
        "schema": "assay.anchor.v1", "origin": report.origin, "size": report.size, "checkpoint": report.note,
        "is_enough": report.judged.is_enough, "is_still": report.is_still, "not_after": report.judged.since.map(time),
        "witnesses": report.rows.iter().map(row).collect::<Vec<_>>(), "packs": report.filed.packs,
        "problems": report.filed.problems, "exit_code": exit.code(),
    })
}

fn words(report: &Report, style: Style) -> String {
    let lines = counted(report.size, "line");
    let mut text = String::new();
    for row in &report.rows {
        let name = short(&row.witness);
        let _ = match &row.outcome {
            Outcome::Signed(_) => writeln!(text, "{} {name}", style.paint(Tone::Good, "signed")),
            Outcome::Failed(why) => writeln!(text, "{} {name}: {}", style.paint(Tone::Warn, "failed"), short(why)),
            Outcome::Rollback { size, note } => {
                let seen = counted(*size, "line");
                let rollback = style.paint(Tone::Bad, "ROLLBACK");
                let _ = writeln!(text, "{rollback} {name} has seen {seen}, and the ledger has {}", report.size);
                shown(&mut text, report, note.as_deref())
            }
            Outcome::Fork { why, note } => {
                let fork = style.paint(Tone::Bad, "FORK");
                let _ = writeln!(text, "{fork} {name} has seen other lines: {}", short(why));
                shown(&mut text, report, note.as_deref())
            }
        };
    }
    let signed = counted(report.judged.cosigned.len() as u64, "witness");
    let verdict = match (report.judged.is_enough, report.is_still) {
        _ if report.is_contradicted() => style.paint(Tone::Bad, "a witness contradicts it"),
        (true, true) => style.paint(Tone::Good, "nothing has come since it was anchored"),
        (true, false) => style.paint(Tone::Good, "anchored"),
        (false, _) => style.paint(Tone::Warn, "too few signed"),
    };
    let since = report.judged.since.map(|since| format!(", not after {}", time(since))).unwrap_or_default();
    let _ = writeln!(text, "{lines} of {}: {verdict}, {signed}{since}", short(&report.origin));
    if report.filed.packs > 0 {
        let _ = writeln!(text, "{} got the proof of it", counted(report.filed.packs, "pack"));
    }
    for problem in &report.filed.problems {
        let _ = writeln!(text, "{} {}", style.paint(Tone::Warn, "note:"), short(problem));
    }
    text
}

/// Both notes are the proof.
fn shown(text: &mut String, report: &Report, note: Option<&str>) -> std::fmt::Result {
    let Some(note) = note else { return writeln!(text, "  it shows no checkpoint that you signed: nothing proves it") };
    for (who, note) in [("it has", note), ("here is", report.note.as_str())] {
        writeln!(text, "  {who}:")?;
        for line in note.lines() {
            writeln!(text, "    {}", short(line))?;
        }
    }
    Ok(())
}
