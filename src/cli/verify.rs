//! `assay verify-pack`.

use super::{
    anchored::Anchored,
    findings::{Reports, Suite},
    named::{self, Pack},
    out::{self, Style, Tone, short},
    verify_compat::Elsewhere,
};
use crate::{
    error::{Exit, Failure},
    history::{list::Places, verdicts},
    pack::claims,
    pack::verify::{
        VerifyError, VerifyOptions, VerifyReport,
        request::{Request, RequestError, commit, fingerprint, hours},
        terminal::ProgressLine,
    },
    paths::assay_home,
};
use clap::Args;
use serde::Serialize;
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// How the command is called.
const COMMAND: &str = "assay verify-pack";
/// `schema` of the document about several packs.
const SEVERAL_SCHEMA: &str = "assay.verify_packs.v1";
/// What is said about a pack of several, at most.
const WHY: usize = 3;

/// Arguments of `assay verify-pack`.
#[derive(Debug, Default, Args)]
#[command(after_help = "Example:\n  assay verify-pack proof_pack_20260315T113000Z_0123456789abcdef\n  \
                  assay verify-pack last\n  \
                  assay verify-pack packs/*\n  \
                  assay verify-pack --strict --signer 4f1c…e2 --json PACK_DIR\n\n\
                  A pack that is only checked against the key inside it is UNPINNED: it is intact, but anyone can have\n\
                  made it. Get the fingerprint another way (assay keys show, where it was signed) and give it\n\
                  to --signer.\n\n\
                  Exit codes: 0 intact and every demand is met; 1 intact, but a demand is not met;\n\
                  2 TAMPERED, UNTRUSTED or FORK; 3 not a readable pack, or UNSUPPORTED: a later version wrote\n\
                  part of it.\n\
                  Of several packs each has a line, and the worst decides: 2, then 3, then 1.")]
pub struct VerifyArgs {
    /// Packs: directories, archives of them (.zip, .tar, .tar.gz), audit directories, last, last~1, or sessions' ids or
    /// their beginnings
    #[arg(value_name = "PACK", required_unless_present = "cards")]
    packs: Vec<PathBuf>,
    /// Look for sessions here only [default: .assay/mcp, and every audit directory that you recorded in]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Do not accept files that the manifest does not list, or a signer that is not pinned
    #[arg(long)]
    strict: bool,
    /// Fingerprint of a key that may have signed: SHA-256 of the public key, 64 hex digits; may be repeated
    #[arg(long, value_name = "FPR", value_parser = fingerprint)]
    signer: Vec<String>,
    /// Fingerprint of a key whose approvals of a surface count for mcp_surface_approved; may be repeated [default: any]
    #[arg(long, value_name = "FPR", value_parser = fingerprint)]
    approver: Vec<String>,
    /// Lock file of assay-ai: signers, cards and formats that are accepted
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Claim cards to evaluate, separated by commas; list shows them
    #[arg(long, value_name = "CARDS", value_delimiter = ',')]
    cards: Vec<String>,
    /// Do not accept a pack whose last receipt is older than this
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
    /// Your memory: compare packs with those of their sessions that you have seen before
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Remember packs, where none of their session is known
    #[arg(long, requires = "state")]
    update_state: bool,
    #[command(flatten)]
    anchored: Anchored,
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// Also write the report as JSON to a new file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    reports: Reports,
}

impl VerifyArgs {
    /// The demand that these claim cards are satisfied.
    pub(super) fn of_cards(cards: &[String]) -> Self {
        Self { cards: cards.to_vec(), require_claim_pass: !cards.is_empty(), ..Self::default() }
    }

    fn request(&self, pack: &Pack) -> Request {
        Request {
            pack: pack.dir.clone(),
            shown: Some(pack.shown.clone()),
            json: self.json,
            lock: self.lock.clone(),
            out: self.out.clone(),
            state: self.state.clone().map(|path| (path, self.update_state)),
            anchors: self.anchored.given(),
            elsewhere: self.elsewhere.given(),
            demands: VerifyOptions {
                strict: self.strict,
                signers: self.signer.clone(),
                approvers: self.approver.clone(),
                cards: self.cards.iter().map(|c| c.trim().to_owned()).filter(|c| !c.is_empty()).collect(),
                max_age_hours: self.max_age_hours,
                require_claim_pass: self.require_claim_pass,
                check_expiry: self.check_expiry,
                require_ci_binding: self.require_ci_binding,
                expected_commit_sha: self.expected_commit_sha.clone(),
                ..VerifyOptions::default()
            },
        }
    }
}

/// Runs `assay verify-pack`.
///
/// # Errors
/// Those of `answer`.
pub fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    if args.cards == [claims::LIST] {
        out::stdout(claims::listing().as_bytes())?;
        return Ok(Exit::Ok);
    }
    if args.packs.is_empty() {
        let failure = Failure::bad_input("no pack is named")
            .hint("give a directory, last, or a session's id; assay packs lists them");
        return out::or_document(args.json, Err(failure));
    }
    let packs = named::packs(&args.packs, &Places::of_command(args.audit_dir.as_deref()));
    let packs = out::or_document(args.json, packs)?;
    for pack in &packs {
        let checked = args.reports.check(&pack.dir).map_err(Failure::from);
        out::or_document(args.json, checked)?;
    }
    match packs.as_slice() {
        [pack] => answer(&args.request(pack), &args.reports),
        packs => several(args, packs),
    }
}

/// One of several packs.
#[derive(Debug, Serialize)]
struct OneOf {
    path: String,
    exit_code: u8,
    /// Why there is no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<VerifyReport>,
}

/// What several verifications come to.
#[derive(Debug, Serialize)]
struct Several {
    schema: &'static str,
    exit_code: u8,
    packs: Vec<OneOf>,
}

/// A line for each pack, and the worst exit code: 2, then 3, then 1.
fn several(args: &VerifyArgs, packs: &[Pack]) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        if args.out.is_some() {
            let what = format_args!("--out is for one pack, and there are {}", packs.len());
            return Err(Failure::bad_input(what).hint("--json prints the reports of all"));
        }
        let Some(Checked { worst, all, suites }) = each(args, packs)? else { return Ok(Exit::Interrupted) };
        args.reports.write(COMMAND, &suites)?;
        if args.json {
            out::json(&Several { schema: SEVERAL_SCHEMA, exit_code: worst.code(), packs: all })?;
        }
        Ok(worst)
    })
}

/// What the verification of several packs came to.
struct Checked {
    /// The worst exit code.
    worst: Exit,
    /// What the one document has of each.
    all: Vec<OneOf>,
    /// What reports have of each.
    suites: Vec<Suite>,
}

/// Verifies packs one after the other, with a line for each unless one document is wanted; `None` if it was interrupted.
///
/// # Errors
/// Options that mean nothing.
fn each(args: &VerifyArgs, packs: &[Pack]) -> Result<Option<Checked>, Failure> {
    let style = Style::of_stdout();
    let mut worst = Exit::Ok;
    let (mut all, mut suites) = (Vec::new(), Vec::new());
    for pack in packs {
        let mut progress = ProgressLine::new();
        let report = args.request(pack).report(&mut |p| progress.show(p));
        progress.clear();
        if let Ok(report) = &report
            && pack.shown == pack.dir
        {
            remember(&pack.dir, report);
        }
        let (exit, error) = match &report {
            Ok(report) => (report.exit().into(), None),
            Err(
                e @ (RequestError::Elsewhere(_)
                | RequestError::Lock { .. }
                | RequestError::Anchors { .. }
                | RequestError::Untrusted),
            ) => {
                return Err(
                    Failure::bad_input(e).hint(e.hint().unwrap_or("assay verify-pack --help lists the options"))
                );
            }
            Err(e) => (e.exit().into(), Some(e.to_string())),
        };
        if matches!(report, Err(RequestError::Verify(VerifyError::Cancelled))) {
            return Ok(None);
        }
        suites.push(match (&report, &error) {
            (Ok(report), _) => Suite::of_verification(&pack.shown, report),
            (_, error) => Suite::of_error(&pack.shown, error.as_deref().unwrap_or_default()),
        });
        worst = worse(worst, exit);
        if args.json {
            let path = pack.shown.display().to_string();
            all.push(OneOf { path, exit_code: exit.code(), error, report: report.ok() });
        } else {
            out::stdout(line(&pack.shown, report.as_ref().ok(), error.as_deref(), style).as_bytes())?;
        }
    }
    Ok(Some(Checked { worst, all, suites }))
}

/// Verifies what a run recorded: the worst exit code, and what reports have.
///
/// # Errors
/// Those of `each`.
pub(super) fn of_run(args: &VerifyArgs, packs: &[PathBuf]) -> Result<(Exit, Vec<Suite>), Failure> {
    let packs: Vec<Pack> = packs.iter().cloned().map(Pack::at).collect();
    Ok(each(args, &packs)?.map_or((Exit::Interrupted, Vec::new()), |checked| (checked.worst, checked.suites)))
}

/// The worse of two exit codes: 2, then 3, then 1.
pub(super) const fn worse(a: Exit, b: Exit) -> Exit {
    if severity(b) > severity(a) { b } else { a }
}

/// How bad an exit code is beside others.
const fn severity(exit: Exit) -> u8 {
    match exit {
        Exit::Failed => 3,
        Exit::BadInput => 2,
        Exit::Violation => 1,
        _ => 0,
    }
}

/// The four channels and the name of a pack; below it the first things that are wrong.
fn line(shown: &Path, report: Option<&VerifyReport>, error: Option<&str>, style: Style) -> String {
    let name = short(&shown.display().to_string());
    let Some(r) = report else {
        return format!("{} {name}\n  {}\n", style.paint(Tone::Bad, "NO VERDICT "), short(error.unwrap_or_default()));
    };
    let tone = match Exit::from(r.exit()) {
        Exit::Ok => Tone::Good,
        Exit::Failed => Tone::Bad,
        _ => Tone::Warn,
    };
    let channels = format!("{:<11} {:<12} {:<13} {:<9}", r.integrity, r.completeness, r.claims, r.signer.verdict);
    let mut out = format!("{} {name}\n", style.paint(tone, &channels));
    let errors = r.errors.iter().map(|e| format!("{}: {}", e.code, e.message));
    let claims = r.claim_results.iter().flat_map(|all| &all.results).filter(|claim| !claim.passed);
    let claims = claims.map(|c| format!("{}, {}: expected {}, found {}", c.card_id, c.claim_id, c.expected, c.actual));
    let mut all = errors.chain(claims).chain(r.unmet.iter().cloned());
    for why in all.by_ref().take(WHY) {
        let _ = writeln!(out, "  {}", short(&why));
    }
    let more = all.count();
    if more > 0 {
        let _ = writeln!(out, "  and {more} more: verify it alone to see them");
    }
    out
}

/// Notes for lists what was found. Who has no user directory has no lists either.
fn remember(pack: &Path, report: &VerifyReport) {
    let said = assay_home().ok().filter(|home| home.is_dir()).map(|home| verdicts::remember(&home, pack, report));
    if let Some(Err(e)) = said {
        tracing::debug!("the verdict is not remembered: {e}");
    }
}

/// Prints what a verification comes to.
///
/// # Errors
/// Options that mean nothing, a directory that is not a pack, a report that cannot be written.
pub(super) fn answer(request: &Request, reports: &Reports) -> Result<Exit, Failure> {
    out::answering(request.json, || {
        let mut progress = ProgressLine::new();
        let answer = request.answer(COMMAND, Style::of_stdout(), &mut |p| progress.show(p));
        progress.clear();
        if let Err(e) = &answer
            && reports.are_wanted()
        {
            let shown = request.shown.as_deref().unwrap_or(&request.pack);
            reports.write(COMMAND, &[Suite::of_error(shown, &e.to_string())])?;
        }
        let answer = answer?;
        let shown = request.shown.as_deref().unwrap_or(&request.pack);
        reports.write(COMMAND, &[Suite::of_verification(shown, &answer.report)])?;
        if request.shown.as_ref().is_none_or(|shown| *shown == request.pack) {
            remember(&request.pack, &answer.report);
        }
        out::stdout(answer.text.as_bytes())?;
        Ok(answer.exit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::{Cli, Command},
        pack::verify::request::ELSEWHERE,
    };
    use clap::Parser as _;

    fn args(more: &[&str]) -> Result<VerifyArgs, clap::Error> {
        match Cli::try_parse_from([&["assay", "verify-pack", "some/pack"], more].concat())?.command {
            Some(Command::VerifyPack(args)) => Ok(*args),
            other => panic!("{other:?}"),
        }
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
        let o = good.request(&Pack::at("some/pack".into())).demands;
        assert_eq!((o.signers, o.cards), (vec!["ab".repeat(32)], vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!((o.max_age_hours, o.strict), (Some(0.5), true));
    }

    #[test]
    fn every_option_of_assay_ai_is_taken_and_handed_on() {
        for option in ELSEWHERE {
            let flag = format!("--{}", option.name);
            let given = [Some(flag.as_str()), option.takes_value.then_some("1")];
            let given: Vec<&str> = given.into_iter().flatten().collect();
            assert_eq!(args(&given).unwrap().request(&Pack::at("some/pack".into())).elsewhere, [option.name]);
        }
    }
}
