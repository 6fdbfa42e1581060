//! `assay witness`: remembers the logs of others, and signs what goes on from what it has signed.

use super::out;
use crate::{
    error::{Exit, Failure},
    note::{Key, key_of_user},
    witness::{
        keep::{Keep, KeepError},
        serve::{Server, Stop},
    },
};
use clap::{Args, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::{net::SocketAddr, path::PathBuf, thread};

/// Arguments of `assay witness`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay witness init --name witness.example/w1 /var/lib/witness\n  \
                  assay witness add-log /var/lib/witness \"$(assay ledger vkey)\"\n  \
                  assay witness serve /var/lib/witness --listen 127.0.0.1:7380\n\n\
                  It belongs under another user, on another machine, with another team than the recorder.\n\
                  It speaks c2sp.org/tlog-witness. docs/anchors.md says what it is good for.")]
pub struct WitnessArgs {
    #[command(subcommand)]
    command: WitnessCommand,
}

#[derive(Debug, Subcommand)]
enum WitnessCommand {
    /// Make a witness, and print its key
    #[command(after_help = "Example:\n  assay witness init --name witness.example/w1 /var/lib/witness")]
    Init {
        /// A new directory for its key and for what it remembers
        dir: PathBuf,
        /// Its name, as a URL without scheme: witness.example/w1
        #[arg(long, value_name = "NAME")]
        name: String,
    },
    /// Follow a log, whose key is given as assay ledger vkey prints it
    #[command(after_help = "Example:\n  assay witness add-log /var/lib/witness \"$(assay ledger vkey)\"\n\n\
                            A witness that is served takes it up at once.")]
    AddLog {
        /// The witness
        dir: PathBuf,
        /// The key of the log; its name is that of the log
        #[arg(value_parser = key_of_user)]
        vkey: Key,
    },
    /// Answer logs over HTTP, until a signal ends it
    #[command(after_help = "Example:\n  assay witness serve /var/lib/witness --listen 127.0.0.1:7380\n\n\
                            It speaks HTTP without TLS: a proxy in front of it can add that. It does not start if\n\
                            anything that it has signed is missing, or if the clock went back.\n\n\
                            Exit codes: 0 a signal ended it; 2 it cannot be served; 3 bad input")]
    Serve {
        /// The witness
        dir: PathBuf,
        /// Address and port; port 0 takes a free one, which is printed
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7380")]
        listen: SocketAddr,
    },
    /// Print the key that verifies what it signs
    #[command(after_help = "Example:\n  assay witness vkey /var/lib/witness")]
    Vkey {
        /// The witness
        dir: PathBuf,
    },
}

fn failed(e: KeepError) -> Failure {
    match e {
        KeepError::Input(_) => Failure::bad_input(e),
        KeepError::Key(e) => e.into(),
        KeepError::Dir(e) => e.into(),
        KeepError::Io { .. } | KeepError::State { .. } | KeepError::Busy(_) => Failure::failed(e),
    }
}

/// Runs `assay witness`.
///
/// # Errors
/// Bad input, a directory that cannot be used.
pub fn run(args: &WitnessArgs) -> Result<Exit, Failure> {
    match &args.command {
        WitnessCommand::Init { dir, name } => {
            let key = Keep::init(dir, name).map_err(failed)?;
            out::stdout(format!("{key}\n").as_bytes())?;
        }
        WitnessCommand::AddLog { dir, vkey } => Keep::add_log(dir, vkey).map_err(failed)?,
        WitnessCommand::Serve { dir, listen } => serve(dir, *listen)?,
        WitnessCommand::Vkey { dir } => {
            let key = Keep::key_in(dir).map_err(failed)?;
            out::stdout(format!("{key}\n").as_bytes())?;
        }
    }
    Ok(Exit::Ok)
}

fn serve(dir: &std::path::Path, listen: SocketAddr) -> Result<(), Failure> {
    let (keep, _held) = Keep::open(dir).map_err(failed)?;
    let server = Server::bind(listen).map_err(|e| Failure::failed(format_args!("{listen}: {e}")))?;
    let stop = Stop::default();
    let signals = |e| Failure::failed(format_args!("cannot handle signals: {e}"));
    let mut coming = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(signals)?;
    let stops = stop.clone();
    thread::Builder::new()
        .name("assay-signals".into())
        .spawn(move || coming.forever().take(1).for_each(|_| stops.stop()))
        .map_err(signals)?;
    out::stdout(format!("{} at http://{}/\n", keep.key(), server.address).as_bytes())?;
    server.run(keep, &stop).map_err(|e| Failure::failed(format_args!("{listen}: {e}")))
}
