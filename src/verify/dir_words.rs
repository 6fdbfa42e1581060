//! What is said of a whole audit directory.

use super::{
    anchor::{AnchorReport, AnchorVerdict},
    dir::{AuditDirReport, PackRow, SegmentReport, SegmentState},
    dir_log::{FORK, LogReport, Memory, ROLLBACK},
    terminal::{Style, Tone, short},
    verdict::anchor_tone,
    words::SignerVerdict,
};
use crate::text::counted;
use std::fmt::Write as _;

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

/// The report in words.
pub(super) fn words(report: &AuditDirReport, style: Style) -> String {
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
