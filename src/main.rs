//! The `assay` binary: arguments, panic hook, exit code; nothing else.

use assay::{
    cli::{self, out},
    error::Exit,
    text::visible,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    install_panic_hook();
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    match std::panic::catch_unwind(|| cli::run(cli)) {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(failure)) => {
            out::stderr(&format!("assay: error: {failure}"));
            failure.exit.into()
        }
        // The hook has said what there is to say.
        Err(_) => Exit::Failed.into(),
    }
}

/// A defect of ours is named with its place, on one line that a terminal survives, whichever thread it happens in.
fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let payload = panic.payload();
        let what = payload.downcast_ref::<&str>().copied();
        let what = what.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        out::stderr(&format!("assay: error: internal error at {}: {}", visible(&place), visible(what)));
        out::stderr("  hint: this is a defect in assay; what was recorded so far is on disk: assay recover");
    }));
}
