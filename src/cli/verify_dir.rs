//! `assay verify-dir`: a whole audit directory.

use super::{
    anchored::Anchored,
    out::{self, Style, Tone, short},
};
use crate::{
    error::{Exit, Failure},
    files,
    note::{Key, key_of_user},
    pack::verify::{
        AnchorReport, AnchorVerdict, AuditDirReport, DirOptions, PackRow, SegmentReport, SegmentState, SignerVerdict,
        VerifyOptions,
        dir_log::{FORK, LogReport, Memory, ROLLBACK},
        request::fingerprint,
        state::State,
        terminal::ProgressLine,
        verdict::anchor_tone,
        verify_dir,
    },
    paths::DEFAULT_AUDIT_DIR,
    text::counted,
};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::{fmt::Write as _, path::PathBuf};

/// `schema` of the document.
const SCHEMA: &str = "assay.verify_dir.v1";

/// Arguments of `assay verify-dir`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay verify-dir .assay/mcp\n  \
                  assay verify-dir --signer 4f1c…e2 --state ~/assay.state --update-state /srv/audit\n\n\
                  What was cut off at the end of a ledger leaves no trace in the directory. --state is your memory:\n\
                  a file outside of the directory, with the largest signed checkpoint that you have seen.\n\n\
                  States: RUNNING, ENDED, PRUNED; UNTERMINATED (its recorder died: assay recover); BROKEN, MISSING,\n\
                  NOT_IN_LEDGER, PACK_MISSING, PACK_REPLACED; TOO_NEW (a later version wrote it).\n\n\
                  Exit codes: 0 nothing is wrong; 1 a demand is not met, or a session has no end; 2 something is\n\
                  missing, changed, rolled back or signed by another key; 3 bad input, or a later version wrote\n\
                  part of it. The worst decides: 2, then 3, then 1.")]
pub struct VerifyDirArgs {
    /// Audit directory
    #[arg(value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
    dir: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Verify every pack (all), or only compare them with the ledger (none)
    #[arg(long, value_enum, value_name = "all|none", default_value_t = Packs::All, hide_possible_values = true)]
    packs: Packs,
    /// Fingerprint of a key that may have signed: SHA-256 of the public key, 64 hex digits; may be repeated
    #[arg(long, value_name = "FPR", value_parser = fingerprint)]
    signer: Vec<String>,
    /// Key that may have signed the ledger, as assay ledger vkey prints it; may be repeated [default: those of packs]
    #[arg(long, value_name = "VKEY", value_parser = key_of_user)]
    log_key: Vec<Key>,
    /// Your memory: compare the directory with what you have seen before
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    #[command(flatten)]
    anchored: Anchored,
    /// Remember what was seen, where it does not contradict what was remembered
    #[arg(long, requires = "state")]
    update_state: bool,
}

/// `--packs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Packs {
    /// Every pack is verified.
    All,
    /// None is.
    None,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    dir: String,
    #[serde(flatten)]
    report: &'a AuditDirReport,
    exit_code: u8,
}

/// Runs `assay verify-dir`.
///
/// # Errors
/// A directory that cannot be read, a state that does not read or lies in it.
pub fn run(args: &VerifyDirArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let state = args.state.as_ref().map(|path| State::read(path, &args.dir)).transpose()?;
        let options = DirOptions {
            packs: VerifyOptions { signers: args.signer.clone(), ..VerifyOptions::default() },
            without_packs: args.packs == Packs::None,
            log_keys: args.log_key.clone(),
            state,
            anchors: args.anchored.given().read()?,
        };
        let mut progress = ProgressLine::new();
        let verified = verify_dir(&args.dir, &options, &mut |p| progress.show(p));
        progress.clear();
        let (report, state) = verified?;
        let exit = report.exit();
        if args.json {
            let dir = files::text(&args.dir);
            out::json(&Document { schema: SCHEMA, dir, report: &report, exit_code: exit.code() })?;
        } else {
            out::stdout(text(&report, Style::of_stdout()).as_bytes())?;
        }
        if args.update_state {
            let path = args.state.as_deref().unwrap_or(&args.dir).display();
            state.write().map_err(|e| Failure::failed(format_args!("{path}: {e}")))?;
        }
        Ok(exit.into())
    })
}

const fn tone(state: SegmentState) -> Tone {
    match state {
        SegmentState::Running | SegmentState::Ended => Tone::Good,
        SegmentState::Pruned => Tone::Dim,
        SegmentState::Unterminated | SegmentState::TooNew => Tone::Warn,
        SegmentState::Missing
        | SegmentState::Broken
        | SegmentState::NotInLedger
        | SegmentState::PackMissing
        | SegmentState::PackReplaced => Tone::Bad,
    }
}

fn text(report: &AuditDirReport, style: Style) -> String {
    let mut out = String::new();
    for row in &report.segments {
        out.push_str(&line(row, style));
    }
    if let Some(log) = &report.log {
        ledger(&mut out, log, style);
    }
    if let Some(anchor) = &report.anchor {
        anchored(&mut out, anchor, style);
    }
    for unmet in &report.unmet {
        let _ = writeln!(out, "{} {}", style.paint(Tone::Warn, "not met:"), short(unmet));
    }
    for finding in &report.findings {
        let place = finding.file.as_deref().map(|file| format!("{}: ", short(file))).unwrap_or_default();
        let _ = writeln!(out, "{} {place}{}", style.paint(Tone::Bad, "wrong:"), short(&finding.message));
        // These two are the proof that there are two ledgers, or were.
        if matches!(finding.code, FORK | ROLLBACK) && finding.found.is_some() {
            for (who, what) in [("you saw", &finding.expected), ("here is", &finding.found)] {
                let _ = writeln!(out, "  {who}:");
                for line in what.iter().flat_map(|what| what.lines()) {
                    let _ = writeln!(out, "    {}", short(line));
                }
            }
        }
    }
    if report.findings_omitted > 0 {
        let _ = writeln!(out, "and {} more", report.findings_omitted);
    }
    for warning in &report.warnings {
        let _ = writeln!(out, "{} {}", style.paint(Tone::Warn, "note:"), short(warning));
    }
    let (sessions, packs) = (counted(report.segments.len() as u64, "session"), counted(report.packs, "pack"));
    let missing = report.log.as_ref().map_or(0, LogReport::missing);
    let verdict = if !report.findings.is_empty() {
        style.paint(Tone::Bad, "NOT as the ledger has it")
    } else if missing > 0 {
        style.paint(
            Tone::Warn,
            &format!("{} of the ledger are missing, and a renewal says so", counted(missing, "line")),
        )
    } else {
        style.paint(Tone::Good, "nothing is missing or changed")
    };
    let _ = writeln!(out, "{sessions}, {packs}: {verdict}");
    out
}

fn anchored(out: &mut String, anchor: &AnchorReport, style: Style) {
    if anchor.verdict == AnchorVerdict::NotEvaluated && anchor.present == 0 {
        return;
    }
    let verdict = style.paint(anchor_tone(anchor.verdict), anchor.verdict.as_str());
    let _ = match (anchor.size, anchor.not_after) {
        _ if anchor.verdict == AnchorVerdict::NotEvaluated => {
            let present = counted(anchor.present, "anchor");
            writeln!(out, "anchor: {verdict}, {present} present; --policy says whose count")
        }
        (Some(size), Some(at)) => {
            let by = short(&anchor.witnesses.join(", "));
            writeln!(out, "anchor: {verdict}, the first {} not after {at}, by {by}", counted(size, "line"))
        }
        _ => writeln!(out, "anchor: {verdict}"),
    };
    for problem in &anchor.problems {
        let _ = writeln!(out, "  {}", short(problem));
    }
}

fn line(row: &SegmentReport, style: Style) -> String {
    let name = row.session.map_or_else(|| short(&row.file), |session| session.to_string());
    let pack = row.pack.as_ref().map(|pack| {
        let PackRow { integrity, completeness, signer, .. } = pack;
        format!("  {integrity} {completeness} {signer}")
    });
    let state = style.paint(tone(row.state), &format!("{:<14}", row.state.as_str()));
    let events = counted(row.events, "event");
    let mut out = format!("{state} {name}  {events:>12}{}\n", pack.unwrap_or_default());
    if let Some(why) = row.pack.as_ref().and_then(|pack| pack.why.as_ref()) {
        let _ = writeln!(out, "  {}", short(why));
    }
    out
}

fn ledger(out: &mut String, log: &LogReport, style: Style) {
    let lines = counted(log.size, "line");
    let signed = match &log.checkpoint {
        None => style.paint(Tone::Warn, "nothing of it is signed"),
        Some(checkpoint) => {
            let tone = match checkpoint.signer_verdict {
                SignerVerdict::Pinned => Tone::Good,
                SignerVerdict::Unpinned => Tone::Warn,
                SignerVerdict::Untrusted => Tone::Bad,
            };
            let by = style.paint(tone, &format!("{} {}", checkpoint.signer_verdict, checkpoint.signer));
            format!("{} signed by {by}, {} not yet", checkpoint.size, log.unsigned)
        }
    };
    let _ = writeln!(out, "ledger: {lines} of {}, {signed}", short(&log.origin));
    for renewed in &log.renewed {
        let reason = renewed.reason.as_deref().unwrap_or("no reason is given");
        let (line, was) = (renewed.ledger_seq + 1, short(&renewed.was));
        let _ = writeln!(out, "  line {line} begins another log, which was {was}: {}", short(reason));
    }
    let size = counted(log.memory.size.unwrap_or_default(), "line");
    let _ = match log.memory.verdict {
        Memory::NotAsked => Ok(()),
        Memory::FirstSeen => writeln!(out, "memory: first seen now"),
        Memory::Consistent => writeln!(out, "memory: you saw {size}, and they are the same"),
        Memory::Rollback => writeln!(out, "memory: {}, you saw {size}", style.paint(Tone::Bad, "ROLLBACK")),
        Memory::Fork => writeln!(out, "memory: {}, you saw {size}", style.paint(Tone::Bad, "FORK")),
    };
}
