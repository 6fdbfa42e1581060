//! `assay verify-pack`.

use super::{
    out::{self, Style, Tone, short},
    verify_compat::Elsewhere,
};
use crate::{
    error::{Exit, Failure},
    files,
    numbers::percent,
    pack::{
        lock::{Lock, LockError},
        verify::{
            Claims, Completeness, Finding, Integrity, Progress, SignerVerdict, StageReport, StageStatus, VerifyOptions,
            VerifyReport, verify,
        },
    },
    text::{counted, noun, visible},
};
use clap::Args;
use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// Arguments of `assay verify-pack`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay verify-pack proof_pack_20260315T113000Z_0123456789abcdef\n  \
                  assay verify-pack --strict --signer 4f1c…e2 --json PACK_DIR\n\n\
                  A pack that is only checked against the key inside it is UNPINNED: it is intact, but anyone can have\n\
                  made it. Get the fingerprint another way (assay keys show, where it was signed) and give it\n\
                  to --signer.\n\n\
                  Exit codes: 0 intact and every demand is met; 1 intact, but a demand is not met;\n\
                  2 TAMPERED or UNTRUSTED; 3 not a readable pack, or UNSUPPORTED: a later version wrote part of it")]
pub struct VerifyArgs {
    /// Directory of the pack
    pack: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Do not accept files that the manifest does not list, or a signer that is not pinned
    #[arg(long)]
    strict: bool,
    /// Fingerprint of a key that may have signed: SHA-256 of the public key, 64 hex digits; may be repeated
    #[arg(long, value_name = "FPR", value_parser = fingerprint)]
    signer: Vec<String>,
    /// Lock file of assay-ai: signers, cards and formats that are accepted
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Claim cards to evaluate, separated by commas
    #[arg(long, value_name = "CARDS", value_delimiter = ',')]
    cards: Vec<String>,
    /// Do not accept a pack whose last receipt is older than so many hours
    #[arg(long, value_name = "HOURS", value_parser = hours)]
    max_age_hours: Option<f64>,
    /// Claims must have been evaluated, and hold
    #[arg(long)]
    require_claim_pass: bool,
    /// Do not accept a pack whose `valid_until` has passed
    #[arg(long)]
    check_expiry: bool,
    /// Do not accept a pack that does not say which CI run built it
    #[arg(long)]
    require_ci_binding: bool,
    /// The CI run that built it was of this commit: 40 hex digits
    #[arg(long, value_name = "SHA", value_parser = commit)]
    expected_commit_sha: Option<String>,
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// Also write the report as JSON to a new file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl VerifyArgs {
    /// What `assay open` asks for without a terminal.
    pub(super) fn of(pack: PathBuf, signer: Vec<String>, json: bool) -> Self {
        Self {
            pack,
            json,
            strict: false,
            signer,
            lock: None,
            cards: Vec::new(),
            max_age_hours: None,
            require_claim_pass: false,
            check_expiry: false,
            require_ci_binding: false,
            expected_commit_sha: None,
            elsewhere: Elsewhere::default(),
            out: None,
        }
    }
}

pub(super) fn fingerprint(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
    if digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(digits)
    } else {
        Err("expected 64 hex digits, as assay keys show prints them".to_owned())
    }
}

fn commit(text: &str) -> Result<String, String> {
    let sha = text.to_ascii_lowercase();
    let full = sha.len() == 40 && sha.bytes().all(|b| b.is_ascii_hexdigit());
    if full { Ok(sha) } else { Err("expected the 40 hex digits of a commit".to_owned()) }
}

fn hours(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|h: &f64| h.is_finite() && *h > 0.0).ok_or_else(|| "expected hours above 0".to_owned())
}

/// Runs `assay verify-pack`.
///
/// # Errors
/// Options that mean nothing, a directory that is no pack, a report that cannot be written.
pub fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        args.elsewhere.refuse()?;
        if let Some(file) = &args.out {
            check_out("--out", file, &args.pack)?;
        }
        let mut progress = ProgressLine::new();
        let report = verify(&args.pack, &options(args)?, &mut |p| progress.show(p));
        progress.clear();
        let report = report?;
        if let Some(file) = &args.out {
            let mut text = serde_json::to_vec_pretty(&report).map_err(Failure::failed)?;
            text.push(b'\n');
            out::new_file(file, &text)?;
        }
        if args.json {
            out::json(&report)?;
        } else {
            out::stdout(words(&report, args, Style::of_stdout()).as_bytes())?;
        }
        Ok(report.exit().into())
    })
}

fn options(args: &VerifyArgs) -> Result<VerifyOptions, Failure> {
    Ok(VerifyOptions {
        strict: args.strict,
        signers: args.signer.clone(),
        lock: args.lock.as_deref().map(read_lock).transpose()?,
        cards: args.cards.iter().map(|c| c.trim().to_owned()).filter(|c| !c.is_empty()).collect(),
        max_age_hours: args.max_age_hours,
        require_claim_pass: args.require_claim_pass,
        check_expiry: args.check_expiry,
        require_ci_binding: args.require_ci_binding,
        expected_commit_sha: args.expected_commit_sha.clone(),
        ..VerifyOptions::default()
    })
}

fn read_lock(path: &Path) -> Result<Lock, Failure> {
    let lock = files::named(path).map_err(LockError::Io).and_then(Lock::read);
    lock.map_err(|e| Failure::bad_input(format_args!("{}: {e}", path.display())))
}

/// A report is never written over something, nor into the pack that it is about. Said before the work is done.
pub(super) fn check_out(flag: &str, file: &Path, pack: &Path) -> Result<(), Failure> {
    let bad = |what: &str| Failure::bad_input(format_args!("{flag} {}: {what}", file.display()));
    if std::fs::symlink_metadata(file).is_ok() {
        return Err(bad("it exists already").hint("nothing is overwritten; name a new file"));
    }
    let parent = match file.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let parent = parent.canonicalize().map_err(|e| bad(&format!("{}: {e}", parent.display())))?;
    if pack.canonicalize().is_ok_and(|pack| parent.starts_with(pack)) {
        return Err(bad("it would lie inside the pack").hint("a pack is never changed; name a file elsewhere"));
    }
    Ok(())
}

/// Progress on stderr, where a person watches.
pub(super) struct ProgressLine {
    terminal: bool,
    shown: Option<u64>,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: None }
    }

    pub(super) fn show(&mut self, p: Progress) -> ControlFlow<()> {
        let percent = percent(p.done_bytes, p.total_bytes);
        if self.terminal && self.shown != Some(percent) {
            self.shown = Some(percent);
            let _ = write!(io::stderr().lock(), "\rverifying {percent:>3} % {:<24}", p.stage.as_str());
        }
        ControlFlow::Continue(())
    }

    pub(super) fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr().lock(), "\r{:<48}\r", "");
        }
    }
}

/// The report in words.
fn words(r: &VerifyReport, args: &VerifyArgs, style: Style) -> String {
    let mut out = String::new();
    for stage in &r.stages {
        stage_line(&mut out, stage, style);
    }
    out.push('\n');
    channels(&mut out, r, style);
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
    let _ = writeln!(out, "\n{}", next_step(r, args));
    out
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

pub(super) fn channels(out: &mut String, r: &VerifyReport, style: Style) {
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
                Completeness::Incomplete => "the session ended, and the pack itself says that it is not all there",
                Completeness::Unterminated => "the recording stops without an end",
                Completeness::NotEvaluated if r.integrity == Integrity::Unsupported => "it was not looked at",
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
                ("signer", r.signer.verdict.as_str(), Tone::Warn, "who signed was not looked at".to_owned())
            }
            SignerVerdict::Unpinned => {
                ("signer", r.signer.verdict.as_str(), Tone::Warn, format!("{signed}; nobody vouches for that key"))
            }
            SignerVerdict::Untrusted => {
                ("signer", r.signer.verdict.as_str(), Tone::Bad, format!("{signed}, none of the keys that you named"))
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

pub(super) fn finding_lines(out: &mut String, f: &Finding, style: Style) {
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

fn next_step(r: &VerifyReport, args: &VerifyArgs) -> String {
    let pack = visible(&args.pack.display().to_string()).into_owned();
    if r.integrity == Integrity::Tampered {
        return "Do not rely on this pack. Ask for the original, and compare it file by file.".to_owned();
    }
    match (r.signer.verdict, &r.signer.fingerprint) {
        (verdict, _) if r.integrity == Integrity::Unsupported && verdict != SignerVerdict::Untrusted => {
            let newer = r.too_new().unwrap_or_default();
            let holds = if r.signature_holds() {
                "What could be checked holds: the signature, and the hashes of the files."
            } else {
                "Nothing of the pack could be checked, its signature neither."
            };
            format!("This pack needs a later assay: {}.\n{holds} Do not take it for verified.", short(&newer))
        }
        (SignerVerdict::Untrusted, _) => {
            "Do not rely on this pack: someone else signed it. Ask whoever recorded it for their fingerprint again."
                .to_owned()
        }
        (SignerVerdict::Unpinned, Some(fingerprint)) => format!(
            "Next: compare the key's fingerprint with one that you got another way, then\n  assay verify-pack --signer {} {pack}",
            short(fingerprint)
        ),
        _ if !r.unmet.is_empty() => {
            format!("The pack is authentic, but not what you asked for.\n  assay explain {pack}")
        }
        _ => format!("Next: see what it says\n  assay explain {pack}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::{Cli, Command},
        model::WallTime,
        pack::verify::{PackFacts, Signer, Stage},
    };
    use clap::Parser as _;

    fn args(more: &[&str]) -> Result<VerifyArgs, clap::Error> {
        match Cli::try_parse_from([&["assay", "verify-pack", "some/pack"], more].concat())?.command {
            Some(Command::VerifyPack(args)) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

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
            unmet: Vec::new(),
            facts: PackFacts::default(),
            verified_at: WallTime::from_millis(0),
        }
    }

    #[test]
    fn every_stage_and_channel_is_said_and_then_what_to_do() {
        let text = words(&report(Integrity::Pass, SignerVerdict::Unpinned), &args(&[]).unwrap(), Style::plain());
        for stage in Stage::ALL {
            assert!(text.contains(&format!("✓ {:<24} files checked 5", stage.as_str())), "{text}");
        }
        for line in
            ["integrity     PASS", "completeness  COMPLETE", "claims        NOT_EVALUATED", "signer        UNPINNED"]
        {
            assert!(text.contains(line), "{text}");
        }
        let next = format!("assay verify-pack --signer {} some/pack\n", "ab".repeat(32));
        assert!(text.ends_with(&next), "{text}");
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
        let text = words(&r, &args(&[]).unwrap(), Style::plain());
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.contains('\u{202e}') && text.len() < 16 << 10, "{}", text.len());
        assert!(text.contains("receipt_pack.jsonl:7"), "{text}");
        assert!(text.contains("Do not rely on this pack"), "{text}");
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        for bad in ["", "abc", &"g".repeat(64), &"a".repeat(65)] {
            assert!(args(&["--signer", bad]).is_err(), "{bad}");
        }
        for bad in ["0", "-1", "nan", "inf", "x"] {
            assert!(args(&[&format!("--max-age-hours={bad}")]).is_err(), "{bad}");
        }
        let upper = format!("sha256:{}", "AB".repeat(32));
        let good = args(&["--signer", &upper, "--cards", "a, b", "--max-age-hours", "0.5", "--strict"]).unwrap();
        let o = options(&good).unwrap();
        assert_eq!((o.signers, o.cards), (vec!["ab".repeat(32)], vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!((o.max_age_hours, o.strict), (Some(0.5), true));
    }

    #[test]
    fn a_report_is_written_neither_over_something_nor_into_the_pack() {
        let tmp = tempfile::tempdir().unwrap();
        let pack = tmp.path().join("pack");
        std::fs::create_dir(&pack).unwrap();
        let old = tmp.path().join("old");
        std::fs::write(&old, "x").unwrap();
        std::os::unix::fs::symlink(&pack, tmp.path().join("link")).unwrap();
        for (file, what) in [
            (old, "exists already"),
            (pack.join("r.json"), "inside the pack"),
            (tmp.path().join("link/r.json"), "inside the pack"),
            (pack.join("../pack/r.json"), "inside the pack"),
            (tmp.path().join("gone/r.json"), "gone"),
        ] {
            let failure = check_out("--out", &file, &pack).unwrap_err();
            assert!(failure.what.contains(what), "{failure}");
            assert_eq!(failure.exit, Exit::BadInput);
        }
        check_out("--out", &tmp.path().join("pack.json"), &pack).unwrap();
    }
}
