//! Standard output and standard error, which may be closed.

use crate::error::Failure;
use std::io::{self, Write as _};

/// Writes to stdout. A reader that has gone away is not an error: it has seen what it wanted.
///
/// # Errors
/// Anything else that the system says, a full disk for one.
pub fn stdout(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(format_args!("standard output: {e}"))),
        _ => Ok(()),
    }
}

/// Writes a line to stderr; that nobody can read it is not an error.
pub fn stderr(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
