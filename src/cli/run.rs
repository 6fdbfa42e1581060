//! `assay run`: a command, and then the verification of what was recorded meanwhile.

use super::{
    findings::{Reports, Suite},
    out,
    recover::{self, Finished},
    verify::{self, VerifyArgs},
};
use crate::{
    error::{Exit, Failure},
    history::named,
    pack::{claims, staging},
    paths::{self, AUDIT_DIR_VARIABLE, AuditDir, DEFAULT_AUDIT_DIR},
    proxy::Sealed,
    record::recover::RecoverError,
    relay::{self, family},
    text::{counted, visible},
};
use clap::Args;
use std::{
    collections::HashSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// How the command is called.
const COMMAND: &str = "assay run";
const HINT: &str = "the command has to start its servers behind assay mcp-proxy, or servers that record themselves, and they need \
                    ASSAY_AUDIT_DIR from it: clients on an SDK hand few variables on; --allow-empty takes a run without recordings";

/// Arguments of `assay run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  assay run -c receipt_completeness -c mcp_escrow_completeness -- python test_client.py\n  \
                  assay run --out . --junit evidence.xml -- ./test.sh\n\n\
                  The command finds ASSAY_AUDIT_DIR in its environment: assay mcp-proxy and servers that record\n\
                  themselves keep their evidence there. When it has ended, whatever it left running is ended, sessions\n\
                  without an end are finished, and each pack that is new is verified.\n\n\
                  Exit codes: 0 the command succeeded, and every pack meets the demands; 1 the command failed, a\n\
                  card is not satisfied, or a session is INCOMPLETE; 2 a pack is TAMPERED, a session could not be\n\
                  finished, or nothing was recorded; 3 bad input"
)]
pub struct RunArgs {
    /// Claim card that every pack must satisfy; may be repeated (assay verify-pack --cards list shows them)
    #[arg(short = 'c', long = "card", value_name = "CARD", value_delimiter = ',', value_parser = card)]
    cards: Vec<String>,
    /// Where evidence is kept [default: $ASSAY_AUDIT_DIR, else .assay/mcp]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
    /// Also put a copy of each new pack into this directory, and verify that
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// It is no failure if nothing is recorded
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    reports: Reports,
    /// The command and its arguments, after -- or from the first word that is not an option
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn card(id: &str) -> Result<String, String> {
    match claims::card(id.trim()) {
        Some(card) => Ok(card.id.to_owned()),
        None => Err("there is no such claim card; assay verify-pack --cards list shows them".to_owned()),
    }
}

/// Runs `assay run`.
///
/// # Errors
/// Bad input before the command is started, or nothing that was recorded.
pub fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let named = args.audit_dir.clone().or_else(paths::audit_dir_of_environment);
    let dir = AuditDir::reach(&named.unwrap_or_else(|| DEFAULT_AUDIT_DIR.into()))?.of_user();
    dir.create()?;
    if let Some(out) = &args.out {
        paths::create_private_dir(out)?;
    }
    args.reports.check(&dir.packs())?;
    // What others left here is theirs.
    let before = recover::finish(&dir)?;
    let known: HashSet<PathBuf> = named::packs(dir.root()).into_iter().collect();
    let root = std::path::absolute(dir.root()).unwrap_or_else(|_| dir.root().to_owned());
    let ended = family::run(&args.command, (AUDIT_DIR_VARIABLE, root.as_os_str()))
        .map_err(|e| Failure::bad_input(e).hint("give a command: assay run -- python test_client.py"))?;
    let failed = match ended.exit {
        relay::Exit::Code(0) => None,
        relay::Exit::Code(code) => Some(format!("the command ended with code {code}")),
        relay::Exit::Signal(signal) => Some(format!("the command was ended by signal {signal}")),
    };
    if ended.left > 0 {
        let left = counted(ended.left as u64, "process");
        out::stderr(&format!("assay: warning: {left} that the command had left running had to be ended"));
    }
    let sealed = said(&before, recover::finish(&dir)?)?;
    let mut packs: Vec<PathBuf> = named::packs(dir.root()).into_iter().filter(|pack| !known.contains(pack)).collect();
    if let Some(into) = &args.out {
        packs = packs.iter().map(|pack| copied(pack, into)).collect::<Result<_, _>>()?;
    }
    let (verified, mut suites) = verify::of_run(&VerifyArgs::of_cards(&args.cards), &packs)?;
    let empty = (packs.is_empty() && !args.allow_empty).then(|| format!("nothing was recorded in {}", root.display()));
    let name = args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    suites.insert(0, Suite::of_run(&name, failed.clone(), empty.clone()));
    args.reports.write(COMMAND, &suites)?;
    if let Some(failed) = &failed {
        out::stderr(&format!("assay: error: {failed}"));
    }
    if let Some(empty) = empty {
        return Err(Failure::failed(empty).hint(HINT));
    }
    let command = if failed.is_some() { Exit::Violation } else { Exit::Ok };
    Ok([sealed, verified].into_iter().fold(command, verify::worse))
}

/// Says what became of the sessions that the command left without an end. Those that could not be finished before it are not
/// its own.
fn said(before: &Finished, after: Finished) -> Result<Exit, Failure> {
    if let Some(e) = after.key {
        return Err(e.into());
    }
    let path = |one: &Result<Sealed, RecoverError>| one.as_ref().err().map(|e| e.path().to_owned());
    let known: HashSet<PathBuf> = before.sessions.iter().filter_map(path).collect();
    let mut exit = Exit::Ok;
    let mut wrong = |what: &str| {
        out::stderr(&format!("assay: error: {}", visible(what)));
        exit = Exit::Failed;
    };
    if after.rolled_back != before.rolled_back {
        after.rolled_back.iter().for_each(|what| wrong(what));
    }
    for one in after.sessions {
        match one {
            Err(e) if known.contains(e.path()) => {}
            Err(e) => wrong(&format!("a session could not be finished: {e}")),
            Ok(sealed) => {
                sealed
                    .problems
                    .iter()
                    .chain(&sealed.rolled_back)
                    .for_each(|what| wrong(&format!("{}: {what}", sealed.session)));
                out::stderr(&format!("assay: {} had no end and was finished: {}", sealed.session, sealed.end_reason));
            }
        }
    }
    Ok(exit)
}

fn copied(pack: &Path, into: &Path) -> Result<PathBuf, Failure> {
    staging::copy(pack, into).map_err(|e| Failure::bad_input(e).hint("--out names a directory that you may write to"))
}
