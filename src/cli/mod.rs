//! The command line: one file per command, each reads arguments, calls the library and prints.

pub mod analyze;
pub mod anchor;
mod anchored;
mod archive;
pub mod config;
pub mod demo;
pub mod diff;
pub mod explain;
pub mod export;
mod findings;
pub mod gateway;
pub mod keys;
pub mod ledger;
mod log;
mod meant;
mod named;
pub mod open;
pub mod out;
pub mod packs;
pub mod policy;
pub mod prove;
pub mod proxy;
pub mod prune;
pub mod recover;
mod redact;
pub mod replay;
pub mod run;
mod sarif;
pub mod scan;
pub mod screen;
pub mod shell;
pub mod surface;
mod table;
pub mod verifier;
pub mod verify;
mod verify_compat;
pub mod verify_dir;
pub mod watch;
pub mod witness;
pub mod wrap;

use crate::error::{Exit, Failure};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::ffi::OsString;

/// Evidence for every MCP tool call: record a session, seal it in a signed proof pack, verify the pack anywhere.
#[derive(Debug, Parser)]
#[command(
    name = "assay",
    version,
    max_term_width = 100,
    after_help = "Example:\n  assay mcp-proxy -- npx -y @modelcontextprotocol/server-filesystem ~/work\n  \
                  assay watch\n  \
                  assay verify-pack .assay/mcp/packs/proof_pack_20260315T113000Z_0123456789abcdef\n\n\
                  Exit codes: 0 clean; 1 a demand is not met or violations were recorded; 2 tampered, untrusted,\n\
                  incomplete or failed; 3 bad input; 130 interrupted"
)]
pub struct Cli {
    /// The command; without one: watch.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an MCP server behind the recorder
    McpProxy(Box<proxy::ProxyArgs>),
    /// Show which MCP servers of your clients leave no evidence
    Scan(scan::ScanArgs),
    /// Put the recorder in front of MCP servers, in the files of your clients
    Wrap(wrap::WrapArgs),
    /// Take the recorder away again: every byte is as it was
    Unwrap(wrap::UnwrapArgs),
    /// Watch live sessions: every call as it starts and ends
    Watch(watch::WatchArgs),
    /// List sessions and packs, in every audit directory that you recorded in
    #[command(visible_alias = "ls")]
    Packs(packs::PacksArgs),
    /// Open a proof pack, or the files of a session, in the dashboard: verify it and see what is wrong
    Open(open::OpenArgs),
    /// Verify proof packs
    #[command(visible_alias = "verify")]
    VerifyPack(Box<verify::VerifyArgs>),
    /// Verify an audit directory: its ledger, every session, every pack
    VerifyDir(verify_dir::VerifyDirArgs),
    /// Explain what a proof pack contains, what it proves and what it does not prove
    Explain(explain::ExplainArgs),
    /// Prove one call of a pack to people who may not see the others
    Prove(prove::ProveArgs),
    /// Verify a proof of one call
    VerifyProof(prove::VerifyProofArgs),
    /// Print a second verifier: a page for browsers, or a script for node
    Verifier(verifier::VerifierArgs),
    /// Write a session, or part of it, as HTML, JSON, CSV, HAR or spans of OpenTelemetry
    Export(export::ExportArgs),
    /// Count calls, errors, denials and latency in packs, or in everything that you recorded
    Analyze(analyze::AnalyzeArgs),
    /// Compare two proof packs: calls, outcomes, results, latency and what they ran with
    Diff(diff::DiffArgs),
    /// Answer a client from a recording, or send the recorded calls to a server again
    Replay(replay::ReplayArgs),
    /// Create, check and try policies
    Policy(policy::PolicyArgs),
    /// Pin what servers offer: see it, approve it, and hear of every change
    Surface(Box<surface::SurfaceArgs>),
    /// Serve several MCP servers under paths of their own
    Gateway(gateway::GatewayArgs),
    /// List, create, import, export and delete signing keys
    Keys(keys::KeysArgs),
    /// Begin another log of an audit directory, or show the key that verifies it
    Ledger(ledger::LedgerArgs),
    /// Have witnesses sign the ledger of an audit directory
    Anchor(anchor::AnchorArgs),
    /// Remember the logs of others: a witness, as ledgers want it
    Witness(witness::WitnessArgs),
    /// Show the options that your assay.toml and the project's set for the recorder
    Config(config::ConfigArgs),
    /// Run a command, and verify what was recorded of the servers that it talked to
    Run(run::RunArgs),
    /// Remove sessions by age, size or number; the ledger says which
    Prune(prune::PruneArgs),
    /// Finish the packs of sessions whose recorder died
    Recover(recover::RecoverArgs),
    /// Record, pack and verify a session with a built-in server
    Demo(demo::DemoArgs),
    /// Print the completions for a shell
    Completions(shell::CompletionsArgs),
    /// Write the manual pages
    Man(shell::ManArgs),
    /// The MCP server that assay demo talks to, over standard input and output
    #[command(hide = true)]
    DemoServer(demo::DemoServerArgs),
}

/// Runs a command.
///
/// # Errors
/// What prevents the command from doing its work.
pub fn run(cli: Cli) -> Result<Exit, Failure> {
    log::start(cli.command.as_ref());
    let Some(command) = cli.command else { return watch::run(&watch::WatchArgs::default()) };
    match command {
        Command::McpProxy(args) => proxy::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Wrap(args) => wrap::run(&args),
        Command::Unwrap(args) => wrap::undo(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Packs(args) => packs::run(&args),
        Command::Open(args) => open::run(&args),
        Command::VerifyPack(args) => verify::run(&args),
        Command::VerifyDir(args) => verify_dir::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Prove(args) => prove::run(&args),
        Command::VerifyProof(args) => prove::verify(&args),
        Command::Verifier(args) => verifier::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Surface(args) => surface::run(&args),
        Command::Gateway(args) => gateway::run(&args),
        Command::Keys(args) => keys::run(&args),
        Command::Ledger(args) => ledger::run(&args),
        Command::Anchor(args) => anchor::run(&args),
        Command::Witness(args) => witness::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
        Command::Run(args) => run::run(&args),
        Command::Prune(args) => prune::run(&args),
        Command::Recover(args) => recover::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::DemoServer(args) => demo::serve(&args),
    }
}

/// Parses the process's arguments; `Err` is the exit code when there is nothing to run: help was shown, or they are wrong.
///
/// # Errors
/// [`Exit::Ok`] after help and version, [`Exit::BadInput`] otherwise.
pub fn parse() -> Result<Cli, Exit> {
    let args: Vec<OsString> = std::env::args_os().collect();
    let read = |args: &[OsString]| Cli::command().try_get_matches_from(args);
    let given = read(&args).map_err(|e| refused(&e, None))?;
    let with_files = config::added(&Cli::command(), &given, &args).map_err(|failure| {
        out::stderr(&format!("assay: error: {failure}"));
        failure.exit
    })?;
    let matches = match with_files {
        (with, _) if with.len() == args.len() => given,
        (with, names) => read(&with).map_err(|e| refused(&e, Some(&names)))?,
    };
    Cli::from_arg_matches(&matches).map_err(|e| refused(&e, None))
}

/// Says what is wrong with arguments, among them perhaps those from files.
fn refused(e: &clap::Error, from_files: Option<&[String]>) -> Exit {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // clap prints to stdout and keeps its own colours; a closed pipe is not an error of ours.
            let _ = e.print();
            return Exit::Ok;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            return Exit::BadInput;
        }
        _ => {}
    }
    let unknown = match e.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    if let Some((word, meant)) = unknown.and_then(|word| Some((word, meant::instead(word)?))) {
        out::stderr(&format!("assay: error: there is no command {}\n  hint: {meant}", out::short(word)));
        return Exit::BadInput;
    }
    let text = e.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    out::stderr(&format!("assay: error: {}", out::visible_lines(text.trim_end())));
    if e.kind() == ErrorKind::UnknownArgument && forgot_dashes(std::env::args_os().skip(1)) {
        out::stderr("  hint: put -- before the server's command: assay mcp-proxy -- python my_server.py");
    }
    if e.kind() == ErrorKind::MissingRequiredArgument && names_a_pack(e.get(ContextKind::InvalidArg)) {
        out::stderr("  hint: last is the newest pack, last~1 the one before it; assay packs lists them all");
    }
    if let Some(names) = from_files.filter(|names| !names.is_empty()) {
        let names: Vec<String> = names.iter().map(|name| format!("--{name}")).collect();
        out::stderr(&format!("  hint: these come from assay.toml: {}; see assay config", names.join(", ")));
    }
    Exit::BadInput
}

/// Whether a pack is among the arguments that are missing.
fn names_a_pack(missing: Option<&clap::error::ContextValue>) -> bool {
    let Some(clap::error::ContextValue::Strings(missing)) = missing else { return false };
    missing.iter().any(|name| ["<PACK>", "<PACK>...", "<A>", "<B>"].contains(&name.as_str()))
}

/// Whether these are arguments of `mcp-proxy` without the `--` before the server's command.
fn forgot_dashes(mut args: impl Iterator<Item = std::ffi::OsString>) -> bool {
    args.next().is_some_and(|command| command == "mcp-proxy") && args.all(|arg| arg != "--")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(command: &clap::Command, path: &str, see: &mut dyn FnMut(&str, &clap::Command)) {
        see(path, command);
        for sub in command.get_subcommands().filter(|c| c.get_name() != "help") {
            every(sub, &format!("{path} {}", sub.get_name()), see);
        }
    }

    #[test]
    fn no_line_below_the_options_is_wider_than_help_is() {
        let mut wide = Vec::new();
        every(&Cli::command(), "assay", &mut |path, command| {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            wide.extend(below.lines().filter(|line| line.chars().count() > 100).map(|line| format!("{path}: {line}")));
        });
        assert!(wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_help_text_with_an_example_of_itself() {
        every(&Cli::command(), "assay", &mut |path, command| {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{path}: {help}");
            assert!(help.contains(&format!("\n  {path} ")), "{path}: {help}");
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                assert!(arg.get_help().is_some(), "{path} {}", arg.get_id());
            }
        });
    }
}
