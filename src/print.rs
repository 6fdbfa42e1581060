//! Standard output and standard error, which may be closed.

use crate::error::Failure;
use std::io::{self, Write as _};

/// Writes to stdout. A closed pipe is not an error: the reader has seen what it wanted.
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

/// Writes a line to stderr; a closed stderr is not an error.
pub fn stderr(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
