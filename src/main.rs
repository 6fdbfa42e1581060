//! The `assay` binary: arguments, panic hook, exit code; nothing else.

use assay::{
    cli::{self, out},
    error::Exit,
    pack::verify::terminal::defect,
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
        out::stderr(&format!("assay: error: {}", defect(panic)));
        out::stderr("  hint: this is a defect in assay; what was recorded so far is on disk: assay recover");
    }));
}
