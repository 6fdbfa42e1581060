//! The command line: one file per command, each reads arguments, calls the library and prints.

pub mod analyze;
pub mod demo;
pub mod diff;
pub mod explain;
pub mod keys;
pub mod open;
pub mod out;
pub mod policy;
pub mod proxy;
pub mod recover;
pub mod screen;
mod table;
pub mod verify;
mod verify_compat;
pub mod watch;

use crate::error::{Exit, Failure};
use clap::{Parser, Subcommand};

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
    /// The command; on a terminal, without a command: watch.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an MCP server behind the recorder
    McpProxy(proxy::ProxyArgs),
    /// Watch live sessions: every call as it starts and ends
    Watch(watch::WatchArgs),
    /// Open a proof pack, or the files of a session, in the dashboard: verify it and see what is wrong
    Open(open::OpenArgs),
    /// Verify a proof pack
    VerifyPack(verify::VerifyArgs),
    /// Explain what a proof pack contains, what it proves and what it does not prove
    Explain(explain::ExplainArgs),
    /// Count calls, errors, denials and latency in packs, or in everything that you recorded
    Analyze(analyze::AnalyzeArgs),
    /// Compare two proof packs: calls, outcomes, results, latency and what they ran with
    Diff(diff::DiffArgs),
    /// Create, check and try policies
    Policy(policy::PolicyArgs),
    /// List, create and export signing keys
    Keys(keys::KeysArgs),
    /// Finish the packs of sessions whose recorder died
    Recover(recover::RecoverArgs),
    /// Record, pack and verify a session with a built-in server
    Demo(demo::DemoArgs),
    /// The MCP server that assay demo talks to, over standard input and output
    #[command(hide = true)]
    DemoServer(demo::DemoServerArgs),
}

/// Runs a command.
///
/// # Errors
/// What prevents the command from doing its work.
pub fn run(cli: Cli) -> Result<Exit, Failure> {
    let Some(command) = cli.command else { return watch::run(&watch::WatchArgs::default()) };
    match command {
        Command::McpProxy(args) => proxy::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Open(args) => open::run(&args),
        Command::VerifyPack(args) => verify::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Keys(args) => keys::run(&args),
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
    use clap::error::ErrorKind;
    let parsed = Cli::try_parse().and_then(|cli| {
        // Without a command there is the dashboard, or nothing that could be meant.
        if cli.command.is_some() || screen::is_there() {
            return Ok(cli);
        }
        let mut command = <Cli as clap::CommandFactory>::command();
        let help = command.render_help();
        Err(command.error(ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, help))
    });
    parsed.map_err(|e| match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // clap prints to stdout and keeps its own colours; a closed pipe is not an error of ours.
            let _ = e.print();
            Exit::Ok
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            Exit::BadInput
        }
        _ => {
            let text = e.render().to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            out::stderr(&format!("assay: error: {}", out::visible_lines(text.trim_end())));
            if e.kind() == ErrorKind::UnknownArgument && forgot_dashes(std::env::args_os().skip(1)) {
                out::stderr("  hint: put -- before the server's command: assay mcp-proxy -- python my_server.py");
            }
            Exit::BadInput
        }
    })
}

/// Whether these are arguments of `mcp-proxy` without the `--` before the server's command.
fn forgot_dashes(mut args: impl Iterator<Item = std::ffi::OsString>) -> bool {
    args.next().is_some_and(|command| command == "mcp-proxy") && args.all(|arg| arg != "--")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn every(command: &clap::Command, path: &str, see: &mut dyn FnMut(&str, &clap::Command)) {
        see(path, command);
        for sub in command.get_subcommands().filter(|c| c.get_name() != "help") {
            every(sub, &format!("{path} {}", sub.get_name()), see);
        }
    }

    #[test]
    fn no_line_below_the_options_is_wider_than_help_is() {
        every(&Cli::command(), "assay", &mut |path, command| {
            for line in command.get_after_help().map(ToString::to_string).unwrap_or_default().lines() {
                assert!(line.chars().count() <= 100, "{path}: {line}");
            }
        });
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
