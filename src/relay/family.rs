//! A command and all processes that come of it: signals to us go to the command, and when it is over, none of the others is left.

use super::child::{Alone, Exit, SpawnError};
use crate::sys::process;
use rustix::{
    io::Errno,
    process::{WaitId, WaitIdOptions, waitid},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How long the processes that a command leaves have: to end by themselves, after SIGTERM (a recorder seals meanwhile), and
/// after SIGKILL.
const STEPS: [(Option<i32>, Duration); 3] =
    [(None, Duration::from_secs(2)), (Some(SIGTERM), Duration::from_secs(20)), (Some(SIGKILL), Duration::from_secs(5))];

/// How a command and what it left came to their ends.
#[derive(Debug)]
pub struct Ended {
    /// That of the command.
    pub exit: Exit,
    /// Processes that were left and did not end by themselves.
    pub left: usize,
}

/// Where a signal goes.
#[derive(Debug, Clone, Copy)]
enum To {
    /// To the command, by its process id.
    Command(u32),
    /// The command is over; after a signal, what it left comes to the next step at once.
    Left { hurry: bool },
    /// Nobody is left: we are meant.
    Us,
}

/// Runs a command on our own streams, with one more variable in its environment, and ends what it leaves.
///
/// # Errors
/// It was not found, or cannot be started.
pub fn run(command: &[OsString], variable: (&str, &OsStr)) -> Result<Ended, SpawnError> {
    let program = command.first().map(PathBuf::from).unwrap_or_default();
    let failed = |source| SpawnError::Start { path: program.clone(), source };
    process::hear_signals();
    process::adopt_orphans();
    let wanted = [SIGHUP, SIGINT, SIGTERM].into_iter().chain(process::forwarded_signals());
    let wanted: Vec<i32> = wanted.filter(|signal| !process::is_ignored(*signal)).collect();
    // Those that come before there is a command wait.
    let mut signals = Signals::new(wanted).map_err(failed)?;
    let mut child = Alone::start_with(command, variable)?;
    let to = Arc::new(Mutex::new(To::Command(child.id())));
    let told = Arc::clone(&to);
    let forward = move || signals.forever().for_each(|signal| pass(signal, &told));
    thread::Builder::new().name("assay-signals".into()).spawn(forward).map_err(failed)?;
    child.await_end().map_err(failed)?;
    *lock(&to) = To::Left { hurry: false };
    let exit = child.exit().map_err(failed)?;
    let left = end_the_rest(&to);
    *lock(&to) = To::Us;
    Ok(Ended { exit, left })
}

fn lock(to: &Mutex<To>) -> MutexGuard<'_, To> {
    to.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pass(signal: i32, to: &Mutex<To>) {
    match &mut *lock(to) {
        // The terminal has told the command itself.
        To::Command(_) if matches!(signal, SIGINT | SIGQUIT) && process::is_in_foreground() => {}
        To::Command(pid) => drop(process::send(*pid, signal)),
        To::Left { hurry } => *hurry = true,
        To::Us => drop(emulate_default_handler(signal)),
    }
}

/// Ends the processes whose parents are gone, step by step; gives how many had to be told.
fn end_the_rest(to: &Mutex<To>) -> usize {
    let mut left = BTreeSet::new();
    for (signal, patience) in STEPS {
        let until = Instant::now() + patience;
        let mut told = BTreeSet::new();
        while has_children() {
            if let Some(signal) = signal {
                // Each that is told may leave others.
                for pid in process::children().unwrap_or_default() {
                    if told.insert(pid) {
                        let _ = process::send(pid, signal);
                    }
                }
            }
            let before = std::mem::replace(&mut *lock(to), To::Left { hurry: false });
            let hurry = signal != Some(SIGKILL) && matches!(before, To::Left { hurry: true });
            if hurry || Instant::now() >= until {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        left.extend(told);
        if !has_children() {
            break;
        }
    }
    left.len()
}

/// Releases the children that have ended; whether there are others.
fn has_children() -> bool {
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
