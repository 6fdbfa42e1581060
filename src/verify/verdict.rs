//! A report in words: the stages, the four channels, the findings, and what to do next.

use crate::{
    anchor::{AnchorReport, AnchorVerdict},
    finding::Finding,
    report::{StageReport, VerifyReport},
    terminal::{Style, Tone, short},
    text::{counted, noun, visible},
    words::{Claims, Completeness, Integrity, Memory, SignerVerdict, StageStatus},
};
use std::{fmt::Write as _, path::Path};

/// The report in words; `program` is what verifies a pack again when it is typed.
#[must_use]
pub fn words(r: &VerifyReport, pack: &Path, program: &str, style: Style) -> String {
    let mut out = String::new();
    for stage in &r.stages {
        stage_line(&mut out, stage, style);
    }
    out.push('\n');
    channels(&mut out, r, style);
    if let Some((word, tone, text)) = match r.memory {
        Some(Memory::FirstSeen) => Some(("FIRST_SEEN", Tone::Dim, "nothing is remembered of this session")),
        Some(Memory::Consistent) => Some(("CONSISTENT", Tone::Good, "this is the pack that you saw before")),
        Some(Memory::Fork) => Some(("FORK", Tone::Bad, "you saw another pack of this session")),
        _ => None,
    } {
        let _ = writeln!(out, "{:<13} {} {text}", "memory", style.paint(tone, &format!("{word:<13}")));
    }
    anchor(&mut out, &r.anchor, style);
    if let Some(covered) = &r.facts.coverage {
        let _ = writeln!(out, "coverage      {covered}");
    }
    if r.facts.redacted_contents > 0 {
        let contents = counted(r.facts.redacted_contents, "content");
        let _ = writeln!(
            out,
            "redacted      {contents}: rules took something out before it was stored; the hashes are of the originals"
        );
    }
    for finding in &r.errors {
        out.push('\n');
        finding_lines(&mut out, finding, style);
    }
    if r.errors_omitted > 0 {
        let _ = writeln!(out, "\nand {} more {}", r.errors_omitted, noun(r.errors_omitted, "error"));
    }
    list(&mut out, "Demands that are not met", &r.unmet, style, Tone::Bad);
    list(&mut out, "Not complete because", &r.completeness_reasons, style, Tone::Warn);
    list(&mut out, "Worth knowing", &r.warnings, style, Tone::Warn);
    let _ = writeln!(out, "\n{}", next_step(r, pack, program));
    out
}

/// How a verdict on anchors looks.
#[must_use]
pub const fn anchor_tone(verdict: AnchorVerdict) -> Tone {
    match verdict {
        AnchorVerdict::NotEvaluated => Tone::Dim,
        AnchorVerdict::Anchored => Tone::Good,
        AnchorVerdict::Unanchored => Tone::Warn,
        AnchorVerdict::Invalid | AnchorVerdict::Rollback | AnchorVerdict::Fork => Tone::Bad,
    }
}

/// The anchor channel, and why anchors do not count.
pub fn anchor(out: &mut String, a: &AnchorReport, style: Style) {
    if a.verdict == AnchorVerdict::NotEvaluated && a.present == 0 {
        return;
    }
    let text = match (a.verdict, a.not_after) {
        (AnchorVerdict::NotEvaluated, _) => {
            format!("{} present; --policy says whose count", counted(a.present, "anchor"))
        }
        (AnchorVerdict::Anchored, Some(at)) => format!("not after {at}, by {}", short(&a.witnesses.join(", "))),
        (AnchorVerdict::Anchored | AnchorVerdict::Unanchored, _) => {
            "too few of those who count have signed it".to_owned()
        }
        (AnchorVerdict::Invalid, _) => "what is there is not what those who count have signed".to_owned(),
        (AnchorVerdict::Rollback | AnchorVerdict::Fork, _) => "those who count have signed something else".to_owned(),
    };
    let verdict = style.paint(anchor_tone(a.verdict), &format!("{:<13}", a.verdict.as_str()));
    let _ = writeln!(out, "{:<13} {verdict} {text}", "anchor");
    if let Some(at) = a.not_before {
        let _ = writeln!(out, "  the session began after {at}");
    }
    for problem in &a.problems {
        let _ = writeln!(out, "  {}", short(problem));
    }
}

fn stage_line(out: &mut String, s: &StageReport, style: Style) {
    let (mark, tone) = match s.status {
        StageStatus::Ok => ("✓", Tone::Good),
        StageStatus::Fail => ("✗", Tone::Bad),
        StageStatus::Skipped => ("–", Tone::Dim),
    };
    let counts: Vec<_> = s
        .detail
        .iter()
        .map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{} {value}", name.replace('_', " "))
        })
        .collect();
    let counts = short(&counts.join(", "));
    let reason = s.reason.as_deref().map(short);
    let detail = match (reason, counts.is_empty()) {
        (Some(reason), _) => reason,
        (None, false) => style.paint(Tone::Dim, &counts),
        (None, true) => String::new(),
    };
    let line = format!("{} {:<24} {detail}", style.paint(tone, mark), s.stage.as_str());
    let _ = writeln!(out, "{}", line.trim_end());
}

/// The four channels, a line each, and the claims that do not hold.
pub fn channels(out: &mut String, r: &VerifyReport, style: Style) {
    let fingerprint = r.signer.fingerprint.as_deref().map_or_else(|| "no readable key".to_owned(), short);
    let signer = r.signer.signer_id.as_deref().map_or_else(String::new, |id| format!(" ({})", short(id)));
    let signed = format!("signed by {fingerprint}{signer}");
    let rows = [
        match r.integrity {
            Integrity::Pass => {
                ("integrity", r.integrity.as_str(), Tone::Good, "nothing has changed since it was signed".to_owned())
            }
            Integrity::Tampered => {
                ("integrity", r.integrity.as_str(), Tone::Bad, "this is not what was signed".to_owned())
            }
            Integrity::Unsupported => {
                let text = if r.signature_holds() {
                    "signature and hashes hold; a later version wrote part of it"
                } else {
                    "a later version wrote its manifest; the signature was not checked"
                };
                ("integrity", r.integrity.as_str(), Tone::Warn, text.to_owned())
            }
        },
        (
            "completeness",
            r.completeness.as_str(),
            if r.completeness == Completeness::Complete { Tone::Good } else { Tone::Warn },
            match r.completeness {
                _ if r.crashed.is_some() => r.crashed.unwrap_or_default(),
                Completeness::Complete => "the session was recorded from start to end",
                Completeness::Incomplete => "the session ended, and the pack itself says that something is missing",
                Completeness::Unterminated => "the recording stops without an end",
                Completeness::NotEvaluated if r.integrity == Integrity::Unsupported => "it was not checked",
                Completeness::NotEvaluated => "the pack does not say",
            }
            .to_owned(),
        ),
        (
            "claims",
            r.claims.as_str(),
            match r.claims {
                Claims::Pass => Tone::Good,
                Claims::HonestFail => Tone::Bad,
                Claims::NotEvaluated => Tone::Dim,
            },
            match (r.claims, &r.claim_results) {
                (_, Some(c)) => format!("{} of {} held", c.n_passed, counted(c.n_claims, "claim")),
                (Claims::NotEvaluated, None) => "no claim was evaluated".to_owned(),
                (_, None) => String::new(),
            },
        ),
        match r.signer.verdict {
            SignerVerdict::Pinned => {
                ("signer", r.signer.verdict.as_str(), Tone::Good, format!("{signed}, a key that you named"))
            }
            SignerVerdict::Unpinned if r.integrity == Integrity::Unsupported && !r.signature_holds() => {
                ("signer", r.signer.verdict.as_str(), Tone::Warn, "the signer was not checked".to_owned())
            }
            SignerVerdict::Unpinned => {
                ("signer", r.signer.verdict.as_str(), Tone::Warn, format!("{signed}, a key that you have not named"))
            }
            SignerVerdict::Untrusted => {
                ("signer", r.signer.verdict.as_str(), Tone::Bad, format!("{signed}, which is not a key that you named"))
            }
        },
    ];
    for (channel, verdict, tone, text) in rows {
        let _ = writeln!(out, "{channel:<13} {} {text}", style.paint(tone, &format!("{verdict:<13}")));
    }
    for claim in r.claim_results.iter().flat_map(|c| &c.results).filter(|c| !c.passed) {
        let _ = writeln!(
            out,
            "  {} {} ({}): expected {}, found {}",
            style.paint(Tone::Bad, "✗"),
            short(claim.claim_id),
            short(claim.severity.as_str()),
            short(&claim.expected),
            short(&claim.actual)
        );
    }
}

/// A finding: what, where, what was expected and what is there.
pub fn finding_lines(out: &mut String, f: &Finding, style: Style) {
    let mut place = f.file.as_deref().map(short).unwrap_or_default();
    if let Some(line) = f.line {
        let _ = write!(place, ":{line}");
    }
    let receipt = match (&f.receipt_id, f.receipt_index) {
        (Some(id), Some(index)) => format!("receipt {} (#{index})", short(id)),
        (Some(id), None) => format!("receipt {}", short(id)),
        (None, Some(index)) => format!("receipt #{index}"),
        (None, None) => String::new(),
    };
    let parts = [style.paint(Tone::Bad, f.code), place, receipt];
    let parts: Vec<_> = parts.iter().filter(|p| !p.is_empty()).map(String::as_str).collect();
    let _ = writeln!(out, "{}\n  {}", parts.join("  "), short(&f.message));
    for (side, text) in [("expected", &f.expected), ("found", &f.found)] {
        if let Some(text) = text {
            let _ = writeln!(out, "  {side:<9}{}", short(text));
        }
    }
}

fn list(out: &mut String, title: &str, lines: &[String], style: Style, tone: Tone) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.paint(tone, title));
    for line in lines {
        let _ = writeln!(out, "  - {}", short(line));
    }
}

fn next_step(r: &VerifyReport, pack: &Path, program: &str) -> String {
    let pack = visible(&pack.display().to_string()).into_owned();
    if r.integrity == Integrity::Tampered {
        return "Do not rely on this pack. Ask for the original, and compare it file by file.".to_owned();
    }
    if r.memory == Some(Memory::Fork) {
        return "Do not rely on this pack, nor on the other one: whoever signed them has told two stories of one session. \
                Keep both: together they are the proof."
            .to_owned();
    }
    match (r.signer.verdict, &r.signer.fingerprint) {
        (verdict, _) if r.integrity == Integrity::Unsupported && verdict != SignerVerdict::Untrusted => {
            let newer = r.too_new().unwrap_or_default();
            let holds = if r.signature_holds() {
                "What could be checked holds: the signature, and the hashes of the files."
            } else {
                "Nothing of the pack could be checked, not even its signature."
            };
            format!("Use a later assay for this pack: {}.\n{holds} Do not take it for verified.", short(&newer))
        }
        (SignerVerdict::Untrusted, _) => {
            "Do not rely on this pack: someone else signed it. Ask the person who recorded it for the fingerprint again."
                .to_owned()
        }
        // Never with the pack's own fingerprint: whoever made a pack would be confirmed by it.
        (SignerVerdict::Unpinned, Some(_)) => format!(
            "Next: ask the person who recorded it for the fingerprint of their key (assay keys show), then\n  \
             {program} --signer FINGERPRINT {pack}"
        ),
        _ if !r.unmet.is_empty() => {
            format!("The pack is authentic, but does not meet your demands.\n  assay explain {pack}")
        }
        _ => format!("Next: read what it says\n  assay explain {pack}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PackFacts, Signer, Stage, model::WallTime};

    fn report(integrity: Integrity, verdict: SignerVerdict) -> VerifyReport {
        let stage = |stage| StageReport {
            stage,
            status: StageStatus::Ok,
            code: None,
            reason: None,
            detail: serde_json::Map::from_iter([("files_checked".to_owned(), 5.into())]),
        };
        VerifyReport {
            stages: Stage::ALL.map(stage).to_vec(),
            errors: Vec::new(),
            errors_omitted: 0,
            warnings: Vec::new(),
            integrity,
            completeness: Completeness::Complete,
            completeness_reasons: Vec::new(),
            crashed: None,
            claims: Claims::NotEvaluated,
            claim_results: None,
            signer: Signer { verdict, fingerprint: Some("ab".repeat(32)), signer_id: Some("tester".to_owned()) },
            anchor: AnchorReport::default(),
            unmet: Vec::new(),
            facts: PackFacts::default(),
            memory: None,
            verified_at: WallTime::from_millis(0),
        }
    }

    #[test]
    fn every_stage_and_channel_is_said_and_then_what_to_do() {
        let text = words(
            &report(Integrity::Pass, SignerVerdict::Unpinned),
            Path::new("some/pack"),
            "assay verify-pack",
            Style::plain(),
        );
        for stage in Stage::ALL {
            assert!(text.contains(&format!("✓ {:<24} files checked 5", stage.as_str())), "{text}");
        }
        for line in
            ["integrity     PASS", "completeness  COMPLETE", "claims        NOT_EVALUATED", "signer        UNPINNED"]
        {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.ends_with("assay verify-pack --signer FINGERPRINT some/pack\n"), "{text}");
        let confirmed = text.matches(&"ab".repeat(32)).count();
        assert_eq!(confirmed, 1, "the line that says who signed, and nothing to paste: {text}");
    }

    #[test]
    fn a_hostile_pack_puts_nothing_on_the_terminal() {
        let mut r = report(Integrity::Tampered, SignerVerdict::Untrusted);
        let evil = format!("\u{1b}]0;owned\u{7}\r\n\u{9b}2J\u{202e}{}", "x".repeat(1 << 20));
        r.signer.signer_id = Some(evil.clone());
        r.stages[0].status = StageStatus::Fail;
        r.stages[0].reason = Some(evil.clone());
        r.warnings = vec![evil.clone()];
        r.unmet = vec![evil.clone()];
        r.errors = vec![
            Finding::new("E_MANIFEST_TAMPER", Stage::ValidateReceipts, evil.clone())
                .file("receipt_pack.jsonl")
                .line(7, 99)
                .receipt(6, Some(evil.clone()))
                .sides(&evil, &evil),
        ];
        let text = words(&r, Path::new("some/pack"), "assay verify-pack", Style::plain());
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.contains('\u{202e}') && text.len() < 16 << 10, "{}", text.len());
        assert!(text.contains("receipt_pack.jsonl:7"), "{text}");
        assert!(text.contains("Do not rely on this pack"), "{text}");
    }
}
