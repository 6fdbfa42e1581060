//! `assay surface`: what servers offer, what of it is approved, and who decided.

mod ask;
mod decide;
mod formats;
mod look;
mod view;

use super::proxy::{self, http::UpstreamArgs};
use crate::{
    approvals::{
        chain::{Chain, ChainError},
        decide::Refused,
        observed::{Observed, Seen, read_named},
        standing,
        store::StoreError,
        summary::{Summary, item_named},
    },
    error::{Exit, Failure},
    model::surface::{Facet, Identity, Snapshot},
    pack::{keys::SignerId, verify::request::fingerprint},
    paths::{AuditDir, DEFAULT_AUDIT_DIR},
    surface::{
        diff::Approved,
        rules::{MAX_RULES, Rules},
    },
};
use clap::{Args, Subcommand, ValueEnum};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Arguments of `assay surface`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay surface snapshot --server-id files -- mcp-server-filesystem ~/work\n  \
                  assay surface show files\n  assay surface approve files\n  \
                  assay surface check --lock assay.surface.lock -- mcp-server-filesystem ~/work\n\n\
                  A surface is what a server says of itself: tools, prompts, resources, templates, instructions and\n\
                  capabilities. docs/surface.md leads from first use to a lock file in CI")]
pub struct SurfaceArgs {
    #[command(flatten)]
    at: Where,
    #[command(subcommand)]
    command: SurfaceCommand,
}

#[derive(Debug, Subcommand)]
enum SurfaceCommand {
    /// List the servers, and how each stands with what is approved
    #[command(after_help = "Example:\n  assay surface list --json\n\n\
                  Exit codes: 0 listed; 2 the decisions are damaged; 3 bad input")]
    List,
    /// Show what a server offers, and how each item stands
    Show(ShowArgs),
    /// Show what was decided about a server, by whom and when
    History(HistoryArgs),
    /// Show what differs from what is approved, or between two surfaces
    Diff(DiffArgs),
    /// Approve what was seen of a server, or some items of it
    Approve(ApproveArgs),
    /// Block items: under guard nobody is shown them or may call them
    Block(BlockArgs),
    /// Take back what was decided about items
    Revoke(RevokeArgs),
    /// Write a request for a decision that is signed with a key somewhere else
    Request(RequestArgs),
    /// Bring in a decision that was signed somewhere else
    Import(ImportArgs),
    /// Write what is approved to a lock file for a repository
    Lock(LockArgs),
    /// Ask a server what it offers, and keep the answer
    Snapshot(SnapshotArgs),
    /// Ask a server what it offers, and compare that with what is approved
    Check(CheckArgs),
}

/// Where decisions are, and by which rules they are made.
#[derive(Debug, Args)]
struct Where {
    /// The audit directory
    #[arg(long, global = true, value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
    audit_dir: PathBuf,
    /// File that says what is pinned and what of a change is tolerated, such as assay.surface.yaml
    #[arg(long, global = true, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Fingerprint of a key whose approvals count: 64 hex digits; may be repeated [default: every key]
    #[arg(long, global = true, value_name = "FPR", value_parser = fingerprint)]
    approver: Vec<String>,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay surface show files\n  assay surface show files --item tools/read_file\n\n\
                  Exit codes: 0 shown; 2 the decisions are damaged; 3 bad input")]
struct ShowArgs {
    /// The server
    #[arg(value_name = "ID")]
    server: String,
    /// Show the surface in this file in place of what was seen last
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Show all that the server says of an item, such as tools/NAME; may be repeated
    #[arg(long, value_name = "ITEM", value_parser = item_named)]
    item: Vec<(Facet, String)>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay surface history files\n\n\
                  Exit codes: 0 shown; 2 the decisions are damaged; 3 bad input")]
struct HistoryArgs {
    /// The server
    #[arg(value_name = "ID")]
    server: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay surface diff files\n  assay surface diff before.json after.json\n\n\
                  With an ID: what was seen last against what is approved. With two files, each a surface.json of a\n\
                  pack or what assay surface snapshot --out wrote: B against A.\n\n\
                  Exit codes: 0 identical or equivalent; 1 changed, or nothing is approved; 2 incomplete, or the\n\
                  decisions are damaged; 3 bad input")]
struct DiffArgs {
    /// The server; or a file
    #[arg(value_name = "ID|A")]
    a: String,
    /// Another file
    #[arg(value_name = "B")]
    b: Option<PathBuf>,
}

/// Who decides, and why.
#[derive(Debug, Args)]
struct Deciding {
    /// Why, in your words; it is part of the signed decision
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The key that signs [default: the active one]
    #[arg(long, value_name = "NAME", value_parser = signer)]
    signer: Option<SignerId>,
    /// Decide only if the root is still this one
    #[arg(long, value_name = "ROOT")]
    expect: Option<String>,
    /// Decide on the surface in this file in place of what was seen last
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  assay surface approve files --expect sha256:0123… --reason 'reviewed in PR 12'\n  \
                  assay surface approve files --item tools/read_file\n  \
                  assay surface approve --request files.request.json --signer alice --out files.approval.json\n\n\
                  Exit codes: 0 approved; 1 it is not what you looked at any more, or it cannot be approved: nothing\n\
                  was written; 2 the decisions are damaged, or cannot be written; 3 bad input"
)]
struct ApproveArgs {
    /// The server
    #[arg(value_name = "ID", required_unless_present = "request")]
    server: Option<String>,
    /// An item: tools/NAME, prompts/NAME, resources/URI, resource_templates/TEMPLATE, instructions or capabilities; may be
    /// repeated [default: all that was seen]
    #[arg(long, value_name = "ITEM", value_parser = item_named)]
    item: Vec<(Facet, String)>,
    /// Take over what is approved for this other server, if the roots are equal
    #[arg(long, value_name = "ID", conflicts_with_all = ["item", "request"])]
    like: Option<String>,
    /// Sign this request, and write the decision to --out
    #[arg(long, value_name = "FILE", requires = "out", conflicts_with_all = ["server", "item", "expect", "snapshot"])]
    request: Option<PathBuf>,
    /// New file for the decision on a --request
    #[arg(long, value_name = "FILE", requires = "request")]
    out: Option<PathBuf>,
    #[command(flatten)]
    deciding: Deciding,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  assay surface block files --item tools/delete_everything --reason 'not needed'\n\n\
                  Exit codes: 0 blocked; 1 nothing was written; 2 the decisions are damaged, or cannot be written;\n\
                  3 bad input"
)]
struct BlockArgs {
    /// The server
    #[arg(value_name = "ID")]
    server: String,
    /// An item, as for approve; may be repeated
    #[arg(long, value_name = "ITEM", value_parser = item_named, required = true)]
    item: Vec<(Facet, String)>,
    #[command(flatten)]
    deciding: Deciding,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  assay surface revoke files --item tools/read_file\n  assay surface revoke files --all\n\n\
                  Exit codes: 0 revoked; 1 nothing was written; 2 the decisions are damaged, or cannot be written;\n\
                  3 bad input"
)]
struct RevokeArgs {
    /// The server
    #[arg(value_name = "ID")]
    server: String,
    /// An item, as for approve; may be repeated
    #[arg(long, value_name = "ITEM", value_parser = item_named, required_unless_present = "all")]
    item: Vec<(Facet, String)>,
    /// Everything that is approved
    #[arg(long, conflicts_with = "item")]
    all: bool,
    #[command(flatten)]
    deciding: Deciding,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay surface request files --out files.request.json\n\n\
                  Then, where the key is: assay surface approve --request files.request.json --signer alice\n  \
                  --out files.approval.json; and here again: assay surface import files.approval.json\n\n\
                  Exit codes: 0 written; 1 it cannot be approved; 2 the decisions are damaged; 3 bad input")]
struct RequestArgs {
    /// The server
    #[arg(value_name = "ID")]
    server: String,
    /// An item, as for approve; may be repeated [default: all that was seen]
    #[arg(long, value_name = "ITEM", value_parser = item_named)]
    item: Vec<(Facet, String)>,
    /// What is asked for
    #[arg(long, value_enum, value_name = "DECISION", default_value = "approve")]
    decision: Asked,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// New file for the request
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// `--decision`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Asked {
    /// The items may be used.
    Approve,
    /// The items may not be used.
    Block,
    /// What was decided no longer counts.
    Revoke,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay surface import files.approval.json\n\n\
                  Exit codes: 0 imported; 1 it does not fit, nothing was written; 2 the decisions are damaged, or\n\
                  cannot be written; 3 bad input")]
struct ImportArgs {
    /// The decision that was signed
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay surface lock files --out assay.surface.lock\n\n\
                  Only what is approved is locked. A lock file is unsigned: whoever can change the repository can\n\
                  change it, and your review of the change is the approval.\n\n\
                  Exit codes: 0 written; 1 what was seen last is not approved; 2 the decisions are damaged;\n\
                  3 bad input")]
struct LockArgs {
    /// The server
    #[arg(value_name = "ID")]
    server: String,
    /// The lock file; one that is there is replaced
    #[arg(long, value_name = "FILE", default_value = crate::approvals::lockfile::FILE)]
    out: PathBuf,
}

/// Which server is asked, and how.
#[derive(Debug, Args)]
struct Asking {
    /// URL of the server's MCP endpoint, in place of a command
    #[arg(long = "url", value_name = "URL")]
    upstream_url: Option<String>,
    /// How the server over HTTP is reached.
    #[command(flatten)]
    upstream: UpstreamArgs,
    /// Name of the server, as for mcp-proxy [default: derived from the command, or from the URL]
    #[arg(long, value_name = "ID", value_parser = proxy::server_id)]
    server_id: Option<String>,
    /// Ask as the client of this name
    #[arg(long = "as", value_name = "CLIENT")]
    client: Option<String>,
    /// What the client can do: none, or all
    #[arg(long, value_enum, value_name = "CAPABILITIES", default_value = "none")]
    capabilities: CapabilitiesArg,
    /// The family of protocol revisions: auto asks for the newer one first
    #[arg(long, value_enum, value_name = "ERA", default_value = "auto")]
    era: EraArg,
    /// The server's command and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// `--capabilities`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CapabilitiesArg {
    /// Nothing.
    None,
    /// Roots, sampling and elicitation.
    All,
}

/// `--era`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EraArg {
    /// The newer one, else the older one.
    Auto,
    /// Up to 2025-11-25.
    Legacy,
    /// From 2026-07-28 on.
    Modern,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay surface snapshot --server-id files -- mcp-server-filesystem ~/work\n  \
                  assay surface snapshot --url https://mcp.example.com/mcp\n\n\
                  The server is started, asked and ended. Nothing is approved by this.\n\n\
                  Exit codes: 0 complete; 2 incomplete or unreachable; 3 bad input")]
struct SnapshotArgs {
    #[command(flatten)]
    asking: Asking,
    /// Also write the surface to a new file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay surface check --lock assay.surface.lock -- mcp-server-filesystem /srv\n  \
                  assay surface check --url https://mcp.example.com/mcp --format sarif > surface.sarif\n\n\
                  Without --lock it is compared with what is approved in the audit directory, and kept there.\n\n\
                  Exit codes: 0 identical or equivalent; 1 changed, or nothing is approved; 2 incomplete or\n\
                  unreachable; 3 bad input")]
struct CheckArgs {
    #[command(flatten)]
    asking: Asking,
    /// Compare with this lock file
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// What is printed
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// JUnit XML, for CI.
    Junit,
}

fn signer(text: &str) -> Result<SignerId, String> {
    SignerId::parse(text).map_err(|e| e.to_string())
}

/// Runs `assay surface`.
///
/// # Errors
/// Bad input, damaged decisions, output that cannot be written.
pub fn run(args: &SurfaceArgs) -> Result<Exit, Failure> {
    let at = &args.at;
    match &args.command {
        SurfaceCommand::List => look::list(at),
        SurfaceCommand::Show(args) => look::show(at, args),
        SurfaceCommand::History(args) => look::history(at, args),
        SurfaceCommand::Diff(args) => look::diff(at, args),
        SurfaceCommand::Approve(args) => decide::approve(at, args),
        SurfaceCommand::Block(args) => decide::block(at, args),
        SurfaceCommand::Revoke(args) => decide::revoke(at, args),
        SurfaceCommand::Request(args) => decide::request(at, args),
        SurfaceCommand::Import(args) => decide::import(at, args),
        SurfaceCommand::Lock(args) => decide::lock(at, args),
        SurfaceCommand::Snapshot(args) => ask::snapshot(at, args),
        SurfaceCommand::Check(args) => ask::check(at, args),
    }
}

/// What every command looks at.
struct Desk {
    dir: AuditDir,
    chain: Chain,
    rules: Rules,
    approvers: Option<BTreeSet<String>>,
}

impl Desk {
    fn open(at: &Where) -> Result<Self, Failure> {
        let rules = rules(at)?;
        let dir = AuditDir::reach(&at.audit_dir)?.of_user();
        let chain = Chain::read(&dir)?;
        let approvers = (!at.approver.is_empty()).then(|| at.approver.iter().cloned().collect());
        Ok(Self { dir, chain, rules, approvers })
    }

    /// What was seen last of a server, or what is in the file that was named.
    fn seen(&self, server: &str, file: Option<&Path>) -> Result<Seen, Failure> {
        if let Some(path) = file {
            let snapshot = snapshot_in(path)?;
            if snapshot.identity.id != server {
                return Err(Failure::bad_input(format_args!(
                    "{} is the surface of {}, not of {server}",
                    path.display(),
                    snapshot.identity.id
                )));
            }
            return Ok(Seen { path: path.to_owned(), at: String::new(), snapshot });
        }
        let newest = Observed::newest(&self.dir, server).map_err(|e| self.unreadable(&e))?;
        newest.ok_or_else(|| {
            Failure::bad_input(format_args!("nothing was seen of a server {server} in {}", self.dir.root().display()))
                .hint(format_args!(
                    "assay surface list shows the servers; assay surface snapshot --server-id {server} -- COMMAND asks one"
                ))
        })
    }

    fn unreadable(&self, e: &std::io::Error) -> Failure {
        Failure::failed(format_args!("{}: {e}", self.dir.surface().display()))
    }

    fn approved(&self, server: &Identity) -> Result<Approved, Failure> {
        standing::approved(&self.dir, &self.chain, server, self.approvers.as_ref()).map_err(|e| self.unreadable(&e))
    }

    fn summary(&self, seen: &Snapshot) -> Result<(Summary, Approved), Failure> {
        let approved = self.approved(&seen.identity)?;
        Ok((Summary::of(seen, &approved, &self.rules), approved))
    }
}

fn rules(at: &Where) -> Result<Rules, Failure> {
    let Some(path) = &at.rules else { return Ok(Rules::default()) };
    let named = |e: std::io::Error| Failure::bad_input(format_args!("--rules {}: {e}", path.display()));
    let text = crate::files::named(path).and_then(|file| crate::files::read_all(file, MAX_RULES)).map_err(named)?;
    Rules::parse(&text, &path.display().to_string()).map_err(Failure::bad_input)
}

fn snapshot_in(path: &Path) -> Result<Snapshot, Failure> {
    read_named(path).map_err(|e| {
        Failure::bad_input(format_args!("{}: {e}", path.display()))
            .hint("give a surface.json of a pack, or a file that assay surface snapshot --out wrote")
    })
}

impl From<ChainError> for Failure {
    fn from(e: ChainError) -> Self {
        let failure = Self::failed(&e);
        match e.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(e: StoreError) -> Self {
        match e {
            StoreError::Chain(e) => e.into(),
            StoreError::Conflict(_) => Self { exit: Exit::Violation, ..Self::failed(e) },
            StoreError::Ledger { .. } => Self::failed(e).hint("the next decision writes it"),
            StoreError::Io { .. } | StoreError::Random(_) | StoreError::Unsigned(_) => Self::failed(e),
        }
    }
}

impl From<Refused> for Failure {
    fn from(e: Refused) -> Self {
        let failure = Self { exit: Exit::Violation, ..Self::failed(&e) };
        match e {
            Refused::Store(e) => e.into(),
            Refused::Conflict { .. } => failure.hint("assay surface diff shows what is there now"),
            Refused::Incomplete(_) => failure
                .hint("assay surface snapshot asks the server for all of it; --item approves items of a complete list"),
            Refused::IncompleteList(_) => failure.hint("assay surface snapshot asks the server for all of it"),
            Refused::Ambiguous(_) => failure.hint("the server has to be corrected; --item approves what is clear"),
            Refused::NotSeen(_) | Refused::NotDecided(_) => {
                Self { exit: Exit::BadInput, ..failure }.hint("assay surface show names the items")
            }
            Refused::Nothing => failure,
        }
    }
}
