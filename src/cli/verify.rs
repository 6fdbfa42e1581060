//! `assay verify-pack`.

use super::{
    out::{self, Style},
    verify_compat::Elsewhere,
};
use crate::{
    error::{Exit, Failure},
    pack::verify::{
        VerifyOptions,
        request::{Request, commit, fingerprint, hours},
        terminal::ProgressLine,
    },
};
use clap::Args;
use std::path::PathBuf;

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
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// Also write the report as JSON to a new file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl VerifyArgs {
    fn request(&self) -> Request {
        Request {
            pack: self.pack.clone(),
            json: self.json,
            lock: self.lock.clone(),
            out: self.out.clone(),
            elsewhere: self.elsewhere.given(),
            demands: VerifyOptions {
                strict: self.strict,
                signers: self.signer.clone(),
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
    answer(&args.request())
}

/// Prints what a verification comes to.
///
/// # Errors
/// Options that mean nothing, a directory that is not a pack, a report that cannot be written.
pub(super) fn answer(request: &Request) -> Result<Exit, Failure> {
    out::answering(request.json, || {
        let mut progress = ProgressLine::new();
        let answer = request.answer("assay verify-pack", Style::of_stdout(), &mut |p| progress.show(p));
        progress.clear();
        let answer = answer?;
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
            Some(Command::VerifyPack(args)) => Ok(args),
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
        let o = good.request().demands;
        assert_eq!((o.signers, o.cards), (vec!["ab".repeat(32)], vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!((o.max_age_hours, o.strict), (Some(0.5), true));
    }

    #[test]
    fn every_option_of_assay_ai_is_taken_and_handed_on() {
        for option in ELSEWHERE {
            let flag = format!("--{}", option.name);
            let given = [Some(flag.as_str()), option.takes_value.then_some("1")];
            let given: Vec<&str> = given.into_iter().flatten().collect();
            assert_eq!(args(&given).unwrap().request().elsewhere, [option.name]);
        }
    }
}
