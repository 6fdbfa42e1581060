//! Verifying a pack beside the screen.

use crate::{
    numbers,
    pack::verify::{Progress, VerifyError, VerifyOptions, VerifyReport, verify},
    tui::msg::{Effect, Job, Ticket},
};
use std::{cell::Cell, ops::ControlFlow, path::PathBuf};

/// What a verification says.
#[derive(Debug)]
pub enum Checking<T> {
    /// How far it is; told once for each percent of a stage.
    Progress(Progress),
    /// The result; it is the last message.
    Done(Result<T, VerifyError>),
}

/// The job that verifies a pack, with these signers trusted; `of` takes from the report what is wanted.
pub fn start<T: Send + 'static>(
    ticket: &Ticket<Checking<T>>,
    what: &'static str,
    dir: PathBuf,
    signers: Vec<String>,
    of: impl FnOnce(VerifyReport) -> T + Send + 'static,
) -> Effect {
    Effect::Start(Job::new(ticket, what, move |teller| {
        let options = VerifyOptions { signers, ..VerifyOptions::default() };
        let last = Cell::new(None);
        let report = verify(&dir, &options, &mut |p| {
            let now = Some((p.stage, percent(p)));
            if last.replace(now) != now {
                teller.tell(Checking::Progress(p));
            }
            if teller.cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        teller.tell(Checking::Done(report.map(of)));
    }))
}

/// How far a verification is.
#[must_use]
pub fn percent(p: Progress) -> u64 {
    numbers::percent(p.done_bytes, p.total_bytes)
}
