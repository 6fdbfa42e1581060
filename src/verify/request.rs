//! What one run of the program is asked, and its answer: that of `assay verify-pack` and of `assay-verify`.

use crate::{
    anchor::AnchorOptions,
    engine::verify,
    lock::{Lock, LockError},
    model::WallTime,
    options::{Progress, VerifyError, VerifyOptions},
    proof::ProofError,
    report::VerifyReport,
    state::State,
    terminal::{self, Style},
    time::parse_date_time,
    tlog_policy::{MAX_POLICY, Policy},
    verdict,
    words::Exit,
};
use assay_evidence::plain;
use std::{
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// What to do about a file that exists.
pub const NAME_A_NEW_FILE: &str = "nothing is overwritten; name a new file";

const COVERAGE: &str = "a recorder does not see call sites in source code; to demand that every tool call has a receipt, use \
                        --cards mcp_session_completeness --require-claim-pass";
const TRUST: &str = "name the keys that you trust with --signer, or keep them in a file for --lock";

/// An option of assay-ai's `verify-pack` that means nothing here. It is refused with the name of what does the same, or with
/// why nothing can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elsewhere {
    /// Its name without the dashes.
    pub name: &'static str,
    /// Whether a value follows it.
    pub takes_value: bool,
    /// What to do instead.
    pub instead: &'static str,
}

const fn elsewhere(name: &'static str, takes_value: bool, instead: &'static str) -> Elsewhere {
    Elsewhere { name, takes_value, instead }
}

/// All of them.
pub const ELSEWHERE: [Elsewhere; 8] = [
    elsewhere("coverage-contract", true, COVERAGE),
    elsewhere("min-coverage", true, COVERAGE),
    elsewhere("require-witness", false, "packs have no witness bundles; --signer pins the key that signed"),
    elsewhere("html", true, "--json and --out give the report as JSON"),
    elsewhere("badge", true, "use the exit code or --json"),
    elsewhere("trust-target", true, TRUST),
    elsewhere("trust-policy-dir", true, TRUST),
    elsewhere("enforce-trust-gate", false, TRUST),
];

/// Bytes of an anchor that a user names.
const MAX_KEPT: u64 = 1 << 20;

/// What a user says of anchors: whose count, where those are that are kept elsewhere, and what is demanded.
#[derive(Debug, Clone, Default)]
pub struct Anchors {
    /// A policy of witnesses (c2sp.org/tlog-policy).
    pub policy: Option<PathBuf>,
    /// Anchors.
    pub kept: Vec<PathBuf>,
    /// There must be one.
    pub is_required: bool,
    /// Its time must be before this one.
    pub before: Option<WallTime>,
}

impl Anchors {
    /// Reads what is named.
    ///
    /// # Errors
    /// [`RequestError::Anchors`].
    pub fn read(&self) -> Result<AnchorOptions, RequestError> {
        let read = |path: &PathBuf, max| {
            let bytes = plain::named(path).and_then(|file| plain::read_all(file, max));
            bytes.map_err(|e| RequestError::Anchors { path: path.clone(), what: e.to_string() })
        };
        let policy = self.policy.as_ref().map(|path| {
            let policy = Policy::parse(&read(path, MAX_POLICY)?);
            policy.map_err(|e| RequestError::Anchors { path: path.clone(), what: e.to_string() })
        });
        let options = AnchorOptions {
            policy: policy.transpose()?,
            kept: self.kept.iter().map(|path| read(path, MAX_KEPT)).collect::<Result<_, _>>()?,
            is_required: self.is_required,
            before: self.before,
        };
        if !options.has_trust() && (options.is_required || options.before.is_some()) {
            return Err(RequestError::Untrusted);
        }
        Ok(options)
    }
}

/// What one run is asked.
#[derive(Debug, Default)]
pub struct Request {
    /// Directory of the pack.
    pub pack: PathBuf,
    /// What the pack is called to people, if that is not its directory.
    pub shown: Option<PathBuf>,
    /// Whether the answer is one JSON document.
    pub json: bool,
    /// A lock file to read.
    pub lock: Option<PathBuf>,
    /// A new file that the report is written to as JSON.
    pub out: Option<PathBuf>,
    /// What was seen before, and whether what is seen now is remembered with it.
    pub state: Option<(PathBuf, bool)>,
    /// Whose anchors count.
    pub anchors: Anchors,
    /// Names in [`ELSEWHERE`] that were given.
    pub elsewhere: Vec<&'static str>,
    /// What is demanded; its lock is that of `lock`, its anchors are those of `anchors`.
    pub demands: VerifyOptions,
}

/// What a run comes to.
#[derive(Debug)]
pub struct Answer {
    /// What goes to standard output.
    pub text: String,
    /// The exit code.
    pub exit: Exit,
    /// What was found.
    pub report: VerifyReport,
}

/// What a run comes to that is not about one pack.
#[derive(Debug)]
pub struct Said {
    /// What goes to standard output.
    pub text: String,
    /// The exit code.
    pub exit: Exit,
}

/// A file that a report cannot be written to.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {what}", .file.display())]
pub struct OutError {
    flag: &'static str,
    file: PathBuf,
    what: String,
    /// What to do about it.
    pub hint: Option<&'static str>,
}

/// Why no verdict could be given.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// An option that means nothing here.
    #[error("--{} is an option of assay-ai that this program does not have", .0.name)]
    Elsewhere(&'static Elsewhere),
    /// The report has no place.
    #[error(transparent)]
    Out(#[from] OutError),
    /// The lock file is none.
    #[error("{}: {source}", .path.display())]
    Lock {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        source: LockError,
    },
    /// A policy of witnesses, or an anchor, is none.
    #[error("{}: {what}", .path.display())]
    Anchors {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// An anchor is demanded, and nobody's counts.
    #[error("an anchor is demanded, and it is not said whose anchors count")]
    Untrusted,
    /// The pack cannot be verified.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The proof proves nothing.
    #[error("{}: {source}", .path.display())]
    Proof {
        /// Path of the file.
        path: PathBuf,
        /// Why.
        source: ProofError,
    },
    /// A file that was named cannot be read, or the report or what is to be remembered cannot be written.
    #[error("{}: {source}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The report cannot be put into JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl RequestError {
    /// What went wrong with a file.
    pub(super) fn file(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |source| Self::File { path: path.to_owned(), source }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Elsewhere(option) => Some(option.instead),
            Self::Out(e) => e.hint,
            Self::Verify(e) => e.hint(),
            Self::File { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => Some(NAME_A_NEW_FILE),
            Self::Untrusted => Some("name a policy of witnesses with --policy"),
            Self::Lock { .. } | Self::Anchors { .. } | Self::Proof { .. } | Self::File { .. } | Self::Json(_) => None,
        }
    }

    /// The exit code.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Json(_) => Exit::Failed,
            Self::Proof { source, .. } if source.is_refusal() => Exit::Failed,
            _ => Exit::BadInput,
        }
    }
}

impl Request {
    /// Verifies the pack, writes the report where it is to go, and says what it comes to. `program` is what verifies a pack
    /// again when it is typed.
    ///
    /// # Errors
    /// Options that mean nothing, a directory that is not a pack, a report that cannot be written.
    pub fn answer(
        &self,
        program: &str,
        style: Style,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Answer, RequestError> {
        let report = self.report(progress)?;
        if let Some(file) = &self.out {
            let mut text = serde_json::to_vec_pretty(&report)?;
            text.push(b'\n');
            plain::write_new(file, &text).map_err(RequestError::file(file))?;
        }
        let text = if self.json {
            terminal::json(&report)?
        } else {
            verdict::words(&report, self.shown.as_ref().unwrap_or(&self.pack), program, style)
        };
        Ok(Answer { text, exit: report.exit(), report })
    }

    /// Verifies the pack; nothing is written but what is to be remembered.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn report(&self, progress: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<VerifyReport, RequestError> {
        if let Some(option) = ELSEWHERE.iter().find(|option| self.elsewhere.contains(&option.name)) {
            return Err(RequestError::Elsewhere(option));
        }
        if let Some(file) = &self.out {
            check_out("--out", file, &self.pack)?;
        }
        let mut demands = VerifyOptions { anchors: self.anchors.read()?, ..self.demands.clone() };
        if let Some(path) = &self.lock {
            let lock = plain::named(path).map_err(LockError::Io).and_then(Lock::read);
            demands.lock = Some(lock.map_err(|source| RequestError::Lock { path: path.clone(), source })?);
        }
        let mut state = self.state.as_ref().map(|(path, _)| State::read(path, &self.pack)).transpose()?;
        let mut report = verify(&self.pack, &demands, progress)?;
        if let (Some(state), Some((path, is_updated))) = (&mut state, &self.state) {
            state.judge(&mut report);
            if *is_updated {
                state.write().map_err(RequestError::file(path))?;
            }
        }
        Ok(report)
    }
}

/// A report is never written over something, nor into the pack that it is about. Said before the work is done.
///
/// # Errors
/// What is wrong with the place; `flag` is the option that named it.
pub fn check_out(flag: &'static str, file: &Path, pack: &Path) -> Result<(), OutError> {
    let bad = |what: &str, hint| OutError { flag, file: file.to_owned(), what: what.to_owned(), hint };
    if std::fs::symlink_metadata(file).is_ok() {
        return Err(bad("it exists already", Some(NAME_A_NEW_FILE)));
    }
    let parent = match file.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let parent = parent.canonicalize().map_err(|e| bad(&format!("{}: {e}", parent.display()), None))?;
    if pack.canonicalize().is_ok_and(|pack| parent.starts_with(pack)) {
        return Err(bad("it would be inside the pack", Some("a pack is never changed; name a file elsewhere")));
    }
    Ok(())
}

/// The value of `--signer` or `--approver`: 64 hex digits, `sha256:` before them or not.
///
/// # Errors
/// What is expected.
pub fn fingerprint(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
    if digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(digits)
    } else {
        Err("expected 64 hex digits, as assay keys show prints them".to_owned())
    }
}

/// The value of `--expected-commit-sha`: 40 hex digits.
///
/// # Errors
/// What is expected.
pub fn commit(text: &str) -> Result<String, String> {
    let sha = text.to_ascii_lowercase();
    let full = sha.len() == 40 && sha.bytes().all(|b| b.is_ascii_hexdigit());
    if full { Ok(sha) } else { Err("expected the 40 hex digits of a commit".to_owned()) }
}

/// The value of `--max-age-hours`: above 0.
///
/// # Errors
/// What is expected.
pub fn hours(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|h: &f64| h.is_finite() && *h > 0.0).ok_or_else(|| "expected hours above 0".to_owned())
}

/// The value of `--anchored-before`.
///
/// # Errors
/// What is expected.
pub fn time(text: &str) -> Result<WallTime, String> {
    parse_date_time(text).ok_or_else(|| "expected a time as in 2026-03-15T11:30:00Z".to_owned())
}

/// The values of `--cards`: ids between commas.
pub fn cards(text: &str) -> impl Iterator<Item = String> {
    text.split(',').map(|id| id.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_mean_nothing_are_refused() {
        for bad in ["", "abc", &"g".repeat(64), &"a".repeat(65)] {
            assert!(fingerprint(bad).is_err(), "{bad}");
        }
        assert_eq!(fingerprint(&format!("sha256:{}", "AB".repeat(32))).unwrap(), "ab".repeat(32));
        for bad in ["0", "-1", "nan", "inf", "x", ""] {
            assert!(hours(bad).is_err(), "{bad}");
        }
        assert!(commit(&"A".repeat(40)).unwrap() == "a".repeat(40) && commit(&"a".repeat(64)).is_err());
        assert_eq!(cards("a, b,,").collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_report_is_written_neither_over_something_nor_into_the_pack() {
        let tmp = tempfile::tempdir().unwrap();
        let pack = tmp.path().join("pack");
        std::fs::create_dir(&pack).unwrap();
        let old = tmp.path().join("old");
        std::fs::write(&old, "x").unwrap();
        std::os::unix::fs::symlink(&pack, tmp.path().join("link")).unwrap();
        for (file, what) in [
            (old, "exists already"),
            (pack.join("r.json"), "inside the pack"),
            (tmp.path().join("link/r.json"), "inside the pack"),
            (pack.join("../pack/r.json"), "inside the pack"),
            (tmp.path().join("gone/r.json"), "gone"),
        ] {
            let e = check_out("--out", &file, &pack).unwrap_err();
            assert!(e.to_string().contains(what), "{e}");
            assert_eq!(RequestError::from(e).exit(), Exit::BadInput);
        }
        check_out("--out", &tmp.path().join("pack.json"), &pack).unwrap();
    }
}
