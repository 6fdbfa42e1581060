//! `assay-verify`: the verifier of proof packs as a program of its own, without a terminal, a database or a network.

use assay_verify::{Exit, program, terminal};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        // Standard error may be closed.
        let _ = writeln!(io::stderr().lock(), "{}: error: {}", program::NAME, terminal::defect(panic));
    }));
    let args = std::env::args_os().skip(1).collect();
    let run = || program::run(args, terminal::Style::of_stdout(), &mut io::stdout().lock(), &mut io::stderr());
    std::panic::catch_unwind(run).unwrap_or(Exit::Failed.code()).into()
}
