//! What the errors of the library are to a user: an exit code, and what to do.

use crate::{
    error::{Exit, Failure},
    pack::{
        build::BuildError,
        diff::DiffError,
        explain::ExplainError,
        keys::KeyError,
        verify::{
            self, VerifyError,
            request::{OutError, RequestError},
        },
    },
};
use std::io;

impl From<verify::Exit> for Exit {
    fn from(exit: verify::Exit) -> Self {
        match exit {
            verify::Exit::Ok => Self::Ok,
            verify::Exit::Violation => Self::Violation,
            verify::Exit::Failed => Self::Failed,
            verify::Exit::BadInput => Self::BadInput,
        }
    }
}

impl From<VerifyError> for Failure {
    fn from(e: VerifyError) -> Self {
        let exit = if matches!(e, VerifyError::Cancelled) { Exit::Interrupted } else { Exit::BadInput };
        Self { exit, what: e.to_string(), hint: e.hint().map(str::to_owned) }
    }
}

impl From<OutError> for Failure {
    fn from(e: OutError) -> Self {
        RequestError::from(e).into()
    }
}

impl From<RequestError> for Failure {
    fn from(e: RequestError) -> Self {
        match e {
            RequestError::Verify(e) => e.into(),
            e => Self { exit: e.exit().into(), what: e.to_string(), hint: e.hint().map(str::to_owned) },
        }
    }
}

impl From<DiffError> for Failure {
    fn from(e: DiffError) -> Self {
        match e {
            DiffError::Verify(e) => e.into(),
            DiffError::Read(e) => Self::failed(e).hint("do not change a pack while it is compared"),
        }
    }
}

impl From<ExplainError> for Failure {
    fn from(e: ExplainError) -> Self {
        let failure = Self::bad_input(&e);
        match e {
            ExplainError::NotAPack { .. } => failure.hint("give the directory that has pack_manifest.json"),
            ExplainError::File { .. } => failure.hint("assay verify-pack shows what is wrong with the pack"),
            ExplainError::TooNew(_) => {
                failure.hint("use a later assay; assay verify-pack says whether the signature and the hashes hold")
            }
        }
    }
}

impl From<KeyError> for Failure {
    fn from(e: KeyError) -> Self {
        let failure = Self::bad_input(&e);
        match e.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<BuildError> for Failure {
    fn from(e: BuildError) -> Self {
        let failure = Self::failed(format_args!("no pack was built: {e}"));
        match &e {
            BuildError::Exists(_) => failure.hint("a pack is never replaced; to build it again, move it away"),
            BuildError::SelfCheck(_) => failure.hint("the evidence is unchanged; please report this"),
            BuildError::Line { .. } => {
                failure.hint("run assay recover: it sets torn lines aside and finishes the pack")
            }
            BuildError::Write(e) if e.source.kind() == io::ErrorKind::StorageFull => {
                failure.hint("free some space, then run: assay recover")
            }
            _ => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_of_a_verification_are_those_of_the_process() {
        use verify::Exit as V;
        for (verified, exit) in [
            (V::Ok, Exit::Ok),
            (V::Violation, Exit::Violation),
            (V::Failed, Exit::Failed),
            (V::BadInput, Exit::BadInput),
        ] {
            assert_eq!((Exit::from(verified), verified.code()), (exit, exit.code()));
        }
    }

    #[test]
    fn a_key_that_cannot_be_used_is_bad_input_with_what_to_do() {
        let failure = Failure::from(KeyError::Mode { path: "/k".into(), mode: 0o640 });
        assert_eq!(failure.exit, Exit::BadInput);
        assert_eq!(failure.hint.as_deref(), Some("run: chmod 600 /k"));
    }
}
