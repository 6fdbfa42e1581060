//! `assay recover`: finishes what proxies that died left behind.

use super::{named::not_here, out};
use crate::{
    error::{Exit, Failure},
    files,
    pack::keys::{KeyError, KeyStore},
    paths::{AuditDir, DEFAULT_AUDIT_DIR},
    proxy::{Sealed, seal::recover_dir},
    record::{
        recover::RecoverError,
        rollback::{self, Said},
    },
    text::{counted, visible},
    zone::Zone,
};
use clap::Args;
use std::{cell::OnceCell, path::PathBuf, sync::Arc};

/// Arguments of `assay recover`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay recover --audit-dir .assay/mcp\n\n\
                  Sessions that are still running are left alone. A second run changes nothing.\n\
                  Only sessions that your own recorder began with this ASSAY_HOME are finished and signed.\n\n\
                  Exit codes: 0 every session is finished; 2 some are not: they are named and left as they are;\n\
                  3 bad input")]
pub struct RecoverArgs {
    /// Audit directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
    pub audit_dir: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Runs `assay recover`.
///
/// # Errors
/// Bad input, or what keeps a session from being finished.
pub fn run(args: &RecoverArgs) -> Result<Exit, Failure> {
    crate::sys::process::keep_memory_private();
    let dir = AuditDir::reach(&args.audit_dir)?.of_user();
    if !dir.audit().is_dir() {
        return Err(not_here(format_args!("{} is not an audit directory", args.audit_dir.display())));
    }
    let Finished { sessions: all, rolled_back, key } = finish(&dir)?;
    if args.json {
        let sessions: Vec<_> = all.iter().map(document).collect();
        let audit_dir = files::text(&args.audit_dir);
        out::json(&serde_json::json!({ "audit_dir": audit_dir, "rolled_back": rolled_back, "sessions": sessions }))?;
    } else {
        if let Some(said) = &rolled_back {
            out::stdout(format!("damaged: {}\n", visible(said)).as_bytes())?;
        }
        print(&all)?;
    }
    if let Some(e) = key {
        return Err(e.into());
    }
    let failed = |one: &Result<Sealed, RecoverError>| {
        one.as_ref().map_or(true, |s| !s.problems.is_empty() || s.rolled_back.is_some())
    };
    Ok(if rolled_back.is_some() || all.iter().any(failed) { Exit::Failed } else { Exit::Ok })
}

/// What a recovery came to.
pub(super) struct Finished {
    /// The sessions that were finished, and those that could not be.
    pub(super) sessions: Vec<Result<Sealed, RecoverError>>,
    /// What the ledger lacks.
    pub(super) rolled_back: Option<String>,
    /// Why there is no key to sign packs with.
    pub(super) key: Option<KeyError>,
}

/// Finishes the sessions of an audit directory that nobody records any more.
///
/// # Errors
/// A key that must not be used, or a directory that cannot be read.
pub(super) fn finish(dir: &AuditDir) -> Result<Finished, Failure> {
    let keys = KeyStore::of_user()?;
    let id = keys.active()?;
    // One that must not be used is said at once; one that is not there is made only if there is a pack to sign.
    let key = OnceCell::new();
    if keys.has(&id) {
        let _ = key.set(Ok(Arc::new(keys.load(&id)?.patiently())));
    }
    let signer = || key.get_or_init(|| keys.load_or_generate(&id).map(Arc::new)).as_ref().ok().cloned();
    let mut sessions =
        recover_dir(dir, &signer, false).map_err(|e| Failure::failed(format_args!("{}: {e}", dir.root().display())))?;
    let mut rolled_back = None;
    match rollback::look(dir) {
        Some(Said::TooNew { path, source }) => sessions.push(Err(RecoverError::TooNew { path, source })),
        Some(Said::Damaged(what)) => rolled_back = Some(what),
        None => {}
    }
    Ok(Finished { sessions, rolled_back, key: key.into_inner().and_then(Result::err) })
}

fn document(one: &Result<Sealed, RecoverError>) -> serde_json::Value {
    match one {
        Ok(s) => serde_json::json!({
            "session_id": s.session, "pack": s.pack.as_deref().map(files::text), "verified": s.verified, "session_complete": s.complete,
            "end_reason": s.end_reason, "calls": s.calls, "notes": s.notes,
            "problems": s.problems.iter().chain(&s.rolled_back).collect::<Vec<_>>(),
        }),
        Err(e) => serde_json::json!({ "error": e.to_string(), "state": e.word(), "path": e.path() }),
    }
}

fn print(all: &[Result<Sealed, RecoverError>]) -> Result<(), Failure> {
    use std::fmt::Write as _;
    let mut text = String::new();
    for one in all {
        match one {
            Ok(s) => {
                let state = if s.verified { "verified" } else { "not verified" };
                let complete = if s.complete { "complete" } else { "INCOMPLETE" };
                let pack = s.pack.as_ref().map_or_else(|| "no pack".to_owned(), |p| p.display().to_string());
                let _ = writeln!(
                    text,
                    "{} of {} ({}, {}, {complete}, {state}): {}",
                    s.session,
                    Zone::Local.full(s.started),
                    counted(s.calls, "call"),
                    s.end_reason,
                    visible(&pack)
                );
                for line in s.notes.iter().chain(&s.problems).chain(&s.rolled_back) {
                    let _ = writeln!(text, "  - {}", visible(line));
                }
            }
            Err(e) => {
                let state = match e {
                    RecoverError::TooNew { .. } => "too new",
                    RecoverError::Foreign { .. } => "not yours",
                    RecoverError::Damaged { .. } => "damaged",
                    RecoverError::Io { .. } => "not recovered",
                };
                let _ = writeln!(text, "{state}: {}", visible(&e.to_string()));
            }
        }
    }
    if all.is_empty() {
        text.push_str("nothing to recover\n");
    }
    out::stdout(text.as_bytes())
}
