//! Errors as a user meets them: what failed, what to do, and the exit code.

use std::fmt;

/// Exit codes of the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Nothing is wrong: 0.
    Ok,
    /// Policy violations were recorded; a pack is authentic but a demand is not met; a gate failed: 1.
    Violation,
    /// Self-check failure, incomplete session; a pack that is TAMPERED or UNTRUSTED.
    Failed,
    /// Bad input: 3.
    BadInput,
    /// Interrupted by SIGINT: 130.
    Interrupted,
    /// The server ended by itself, non-zero: the proxy ends with the server's own code, as a client would have seen it.
    Server(u8),
}

impl Exit {
    /// The process's exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Violation => 1,
            Self::Failed => 2,
            Self::BadInput => 3,
            Self::Interrupted => 130,
            Self::Server(code) => code,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// A command that cannot go on.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What failed, where; a lower-case fragment.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// Bad input, exit code 3.
    pub fn bad_input(what: impl fmt::Display) -> Self {
        Self { exit: Exit::BadInput, what: what.to_string(), hint: None }
    }

    /// Something broke, exit code 2.
    pub fn failed(what: impl fmt::Display) -> Self {
        Self { exit: Exit::Failed, what: what.to_string(), hint: None }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A policy's error has the line and a caret below it.
        for (at, line) in self.what.split('\n').enumerate() {
            if at > 0 {
                f.write_str("\n  ")?;
            }
            f.write_str(&crate::text::visible(line))?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {}", crate::text::visible(hint))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
