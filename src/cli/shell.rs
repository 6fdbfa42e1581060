//! `assay completions` and `assay man`: what shells and `man` know of the commands, made from them.

use super::{Cli, out};
use crate::{
    error::{Exit, Failure},
    numbers::counted,
    text::visible,
};
use clap::{Args, Command, CommandFactory as _};
use clap_complete::{Shell, generate};
use std::{fs, path::PathBuf};

/// Arguments of `assay completions`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay completions bash > ~/.local/share/bash-completion/completions/assay\n  \
                  assay completions zsh > \"${fpath[1]}/_assay\"\n  \
                  assay completions fish > ~/.config/fish/completions/assay.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `assay man`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay man ~/.local/share/man/man1\n\n\
                  It writes assay.1 and a page for each command; pages that are there are replaced.")]
pub struct ManArgs {
    /// Directory for the pages
    dir: PathBuf,
}

/// A command as help shows it: without what is hidden there.
fn shown(command: &Command) -> Command {
    let plain = |text: Option<&clap::builder::StyledStr>| text.cloned().unwrap_or_default();
    // The process ends when it is written.
    let kept = |name: &str| -> &'static str { name.to_owned().leak() };
    Command::new(kept(command.get_name()))
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(command.get_name() != "assay")
        .about(plain(command.get_about()))
        .after_help(plain(command.get_after_help()))
        .visible_aliases(command.get_visible_aliases().map(kept).collect::<Vec<_>>())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(shown))
}

/// Runs `assay completions`.
///
/// # Errors
/// Output that cannot be written.
pub fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut shown(&Cli::command()), "assay", &mut script);
    out::stdout(&script)?;
    Ok(Exit::Ok)
}

/// Runs `assay man`.
///
/// # Errors
/// A directory that cannot be written.
pub fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let failed = |e: std::io::Error| Failure::bad_input(format_args!("{}: {e}", args.dir.display()));
    if !args.dir.is_dir() {
        return Err(Failure::bad_input(format_args!("{} is not a directory", args.dir.display()))
            .hint(format_args!("make it first: mkdir -p {}", args.dir.display())));
    }
    clap_mangen::generate_to(shown(&Cli::command()), &args.dir).map_err(failed)?;
    let pages = fs::read_dir(&args.dir).map_err(failed)?.filter_map(Result::ok);
    let is_page = |name: &str| name.starts_with("assay") && name.ends_with(".1");
    let count = pages.filter(|page| page.file_name().to_str().is_some_and(is_page)).count();
    let dir = visible(&args.dir.display().to_string()).into_owned();
    out::stdout(format!("{} in {dir}\n", counted(count as u64, "page")).as_bytes())?;
    Ok(Exit::Ok)
}
