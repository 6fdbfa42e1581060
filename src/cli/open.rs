//! `assay open`: a pack, or the files of a session, in the dashboard.

use super::{screen, verify};
use crate::{
    error::{Exit, Failure},
    files,
    model::{
        AuditEvent, SessionId,
        pack::MANIFEST,
        reading::{self, Reading, TooNew},
    },
    pack::verify::{
        VerifyOptions,
        request::{Request, fingerprint},
    },
    paths::{AuditDir, DEFAULT_AUDIT_DIR, SessionPaths},
    record::card::Card,
    tui::{app::Start, msg::Target},
};
use clap::Args;
use std::path::{Path, PathBuf};

/// Bytes of the first line of a file that are looked at.
const FIRST: u64 = 4 << 20;

/// Arguments of `assay open`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay open .assay/mcp/packs/proof_pack_20260315T113000Z_0123456789abcdef\n  \
                  assay open mcp_0123456789abcdef\n  \
                  assay open .assay/mcp/audit/segment_20260315T113000Z_0123456789abcdef.jsonl\n\n\
                  The pack is verified stage by stage. Enter on a finding shows the byte, Tab goes to the receipts and\n\
                  the chain, ? shows all keys. Nothing is written.\n\n\
                  Without a terminal, or with --plain or --json, it prints what assay verify-pack prints.\n\n\
                  Exit codes: 0 you left, or the pack is intact; 1 intact, but a demand is not met;\n\
                  2 TAMPERED or UNTRUSTED; 3 not a readable pack, or UNSUPPORTED: a later version wrote part of it")]
pub struct OpenArgs {
    /// Directory of a pack, id of a session (mcp_…), or the segment or receipts of one in an audit directory
    what: PathBuf,
    /// Where to look for a session
    #[arg(long, value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
    audit_dir: PathBuf,
    /// Fingerprint of a key that may have signed: SHA-256 of the public key, 64 hex digits; may be repeated
    #[arg(long, value_name = "FPR", value_parser = fingerprint)]
    signer: Vec<String>,
    /// Print the verification as lines
    #[arg(long)]
    plain: bool,
    /// Print the verification as one JSON document
    #[arg(long, conflicts_with = "plain")]
    json: bool,
    /// The policy on the dashboard's screen Policy [default: assay.mcp-policy.yaml]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// How the dashboard looks.
    #[command(flatten)]
    screen: screen::ScreenArgs,
}

/// Runs `assay open`.
///
/// # Errors
/// Nothing with that name; without a terminal also what `verify::answer` says.
pub fn run(args: &OpenArgs) -> Result<Exit, Failure> {
    let target = target(&args.what, &args.audit_dir);
    if !args.plain && !args.json && screen::is_there() {
        let start = Start {
            open: Some(target?),
            signers: args.signer.clone(),
            policy: args.policy.clone(),
            audit_dir: args.audit_dir.is_dir().then(|| args.audit_dir.clone()),
            ..args.screen.start()
        };
        return crate::tui::run(start, crate::live::watcher::Wanted::default());
    }
    let mut pack = None;
    let found = super::out::answering(args.json, || match target? {
        Target::Pack(dir) => {
            pack = Some(dir);
            Ok(Exit::Ok)
        }
        Target::Journal { title, segment, receipts } => {
            if let Some((path, e)) = too_new(&segment, &receipts) {
                return Err(Failure::bad_input(format_args!("{}: {e}", path.display())));
            }
            let what = format_args!("these are files of session {title}; only a pack can be verified");
            Err(Failure::bad_input(what).hint(
                "assay recover builds the pack of a session whose recorder died; on a terminal, assay open shows the files",
            ))
        }
    })?;
    match pack {
        Some(dir) => {
            let demands = VerifyOptions { signers: args.signer.clone(), ..VerifyOptions::default() };
            verify::answer(&Request { pack: dir, json: args.json, demands, ..Request::default() })
        }
        None => Ok(found),
    }
}

/// Whether a line is of a later version.
type Newer = fn(&[u8]) -> Option<TooNew>;

/// The file of a session that is of a later version, as far as its card and the first lines say.
fn too_new(segment: &Path, receipts: &Path) -> Option<(PathBuf, TooNew)> {
    let root = segment.parent().and_then(Path::parent).map(AuditDir::at);
    let name = segment.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(paths) = root.and_then(|dir| dir.session_of_segment(name))
        && let Ok(Reading::TooNew(e)) = Card::reading(&paths.files, &paths.card)
    {
        return Some((paths.card, e));
    }
    let files: [(&Path, Newer); 2] = [(segment, reading::newer::<AuditEvent>), (receipts, reading::newer_receipt)];
    files.into_iter().find_map(|(path, newer)| newer(&files::first_line(path, FIRST)?).map(|e| (path.to_owned(), e)))
}

/// What is meant.
fn target(what: &Path, audit_dir: &Path) -> Result<Target, Failure> {
    if what.is_dir() {
        return Ok(Target::Pack(what.to_owned()));
    }
    if what.is_file() {
        return of_file(what);
    }
    let Some(id) = what.to_str().and_then(|text| SessionId::parse(text).ok()) else {
        let failure = Failure::bad_input(format_args!("{} does not exist", what.display()));
        return Err(failure.hint("give the directory of a pack, or the id of a session (mcp_ and 16 digits)"));
    };
    let dir = AuditDir::at(audit_dir);
    super::out::warn_of_rollback(audit_dir);
    let segments = std::fs::read_dir(dir.audit())
        .map_err(|e| Failure::bad_input(format_args!("{}: {e}", dir.audit().display())))?;
    let names = segments.flatten().filter_map(|e| e.file_name().into_string().ok());
    names
        .filter_map(|name| dir.session_of_segment(&name))
        .find(|paths| paths.id == id)
        .map(|paths| of_session(&paths))
        .ok_or_else(|| Failure::bad_input(format_args!("{} has no session {id}", audit_dir.display())))
}

fn of_session(paths: &SessionPaths) -> Target {
    if paths.pack.join(MANIFEST).is_file() {
        return Target::Pack(paths.pack.clone());
    }
    Target::Journal { title: paths.stem.clone(), segment: paths.segment.clone(), receipts: paths.receipts.clone() }
}

/// A file in an audit directory, or in a pack.
fn of_file(what: &Path) -> Result<Target, Failure> {
    let absolute =
        std::path::absolute(what).map_err(|e| Failure::bad_input(format_args!("{}: {e}", what.display())))?;
    let name = what.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.strip_prefix("segment_").or_else(|| name.strip_prefix("session_"));
    let root = absolute.parent().and_then(Path::parent);
    if let (Some(stem), Some(root)) = (stem, root)
        && let Some(paths) = AuditDir::at(root).session_of_segment(&format!("segment_{stem}"))
    {
        return Ok(Target::Journal { title: paths.stem, segment: paths.segment, receipts: paths.receipts });
    }
    match absolute.parent() {
        Some(dir) if dir.join(MANIFEST).is_file() => Ok(Target::Pack(dir.to_owned())),
        _ => {
            Err(Failure::bad_input(format_args!("{} is neither a pack nor the evidence of a session", what.display()))
                .hint("give the directory that has pack_manifest.json"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_support::sessions::{self, Plan};

    #[test]
    fn packs_sessions_and_files_of_both_are_found() {
        let tmp = tempfile::tempdir().unwrap();
        let audit = tmp.path().join("audit");
        let written = sessions::write(&Plan::default(), &audit).unwrap();
        let of = |what: &Path| target(what, &audit);
        let id = PathBuf::from(written.doc.session_id.to_string());
        for what in [&id, &written.paths.segment, &written.paths.receipts] {
            let Target::Journal { segment, .. } = of(what).unwrap() else { panic!("{what:?}") };
            assert_eq!(segment, written.paths.segment);
        }
        let pack = &written.paths.pack;
        std::fs::create_dir_all(pack).unwrap();
        std::fs::write(pack.join("pack_manifest.json"), "{}").unwrap();
        for what in [id, pack.clone(), pack.join("pack_manifest.json")] {
            assert_eq!(of(&what).unwrap(), Target::Pack(pack.clone()), "{what:?}");
        }
        let other = tmp.path().join("notes.txt");
        std::fs::write(&other, "x").unwrap();
        for what in [other, tmp.path().join("gone"), PathBuf::from("mcp_00000000000000aa")] {
            assert_eq!(of(&what).unwrap_err().exit, Exit::BadInput, "{what:?}");
        }
    }
}
