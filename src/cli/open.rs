//! `assay open`: a pack, or the files of a session, in the dashboard.

use super::{
    findings::Reports,
    named::{self, Pack},
    screen, verify,
};
use crate::{
    error::{Exit, Failure},
    files,
    history::{list::Places, named::Named},
    model::{
        AuditEvent,
        reading::{self, Reading, TooNew},
    },
    pack::verify::{
        VerifyOptions,
        request::{Request, fingerprint},
    },
    paths::{AuditDir, SessionPaths},
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
                  assay open last\n  \
                  assay open 41e1\n  \
                  assay open .assay/mcp/audit/segment_20260315T113000Z_0123456789abcdef.jsonl\n\n\
                  The pack is verified stage by stage. Enter on a finding shows the byte, Tab goes to the receipts and\n\
                  the chain, ? shows all keys. Nothing is written.\n\n\
                  Without a terminal, or with --plain or --json, it prints what assay verify-pack prints.\n\n\
                  Exit codes: 0 you left, or the pack is intact; 1 intact, but a demand is not met;\n\
                  2 TAMPERED or UNTRUSTED; 3 not a readable pack, or UNSUPPORTED: a later version wrote part of it")]
pub struct OpenArgs {
    /// A pack: its directory, an archive of it, last, last~1, or a session's id or the beginning of that; also the
    /// segment or receipts of a session that has no pack
    #[arg(value_name = "PACK")]
    what: PathBuf,
    /// Look for sessions here only [default: .assay/mcp, and every audit directory that you recorded in]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
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
    let target = target(&args.what, args.audit_dir.as_deref());
    if !args.plain && !args.json && screen::is_there() {
        let (target, _unpacked) = target?;
        let start = Start {
            open: Some(target),
            signers: args.signer.clone(),
            policy: args.policy.clone(),
            audit_dir: args.audit_dir.clone().filter(|dir| dir.is_dir()),
            ..args.screen.start()
        };
        return crate::tui::run(start, crate::live::watcher::Wanted::default());
    }
    let mut pack = None;
    let found = super::out::answering(args.json, || match target? {
        (Target::Pack(dir), unpacked) => {
            pack = Some(unpacked.unwrap_or_else(|| Pack::at(dir)));
            Ok(Exit::Ok)
        }
        (Target::Journal { title, segment, receipts }, _) => {
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
        Some(pack) => {
            let demands = VerifyOptions { signers: args.signer.clone(), ..VerifyOptions::default() };
            let Pack { dir, shown, .. } = &pack;
            let request = Request {
                pack: dir.clone(),
                shown: Some(shown.clone()),
                json: args.json,
                demands,
                ..Request::default()
            };
            verify::answer(&request, &Reports::default())
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

/// What is meant; a pack in an archive is there as long as this is.
fn target(what: &Path, audit_dir: Option<&Path>) -> Result<(Target, Option<Pack>), Failure> {
    let places = Places::of_command(audit_dir);
    if named::is_archive(what) {
        let pack = named::pack(what, &places)?;
        return Ok((Target::Pack(pack.dir.clone()), Some(pack)));
    }
    let (target, within) = match named::find(what, &places)? {
        Named::Pack(dir) => (Target::Pack(dir.clone()), dir),
        Named::Session(paths) => {
            let SessionPaths { stem: title, segment, receipts, .. } = *paths;
            (Target::Journal { title, segment: segment.clone(), receipts }, segment)
        }
        Named::Directory(root) => {
            let dir = root.display();
            return Err(Failure::bad_input(format_args!("{} is an audit directory", what.display())).hint(
                format_args!("assay packs --audit-dir {dir} lists its packs, assay verify-pack {dir} verifies them"),
            ));
        }
    };
    if !what.exists()
        && let Some(root) = within.parent().and_then(Path::parent)
    {
        super::out::warn_of_rollback(root);
    }
    Ok((target, None))
}
