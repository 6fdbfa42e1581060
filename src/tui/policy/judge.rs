//! What the screen has done on threads: reading and writing the file, and judging what was recorded.

use crate::{
    canon, files,
    model::WallTime,
    policy::{
        Dns, Note, Policy, PolicyError, Surroundings, Verdict,
        dry_run::{self, DryRunProgress, DryRunReport, Recorded, Run, Source, Visit},
        init::Needs,
    },
    tui::msg::Teller,
};
use std::{
    collections::HashMap,
    fs::File,
    io,
    ops::ControlFlow,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// Calls of each kind that are listed; all of them are counted.
const LISTED: usize = 1000;
/// Shortest time between two reports of what was found so far.
const TELL: Duration = Duration::from_millis(150);

/// What is said of the file.
#[derive(Debug)]
pub enum Filed {
    /// The file, or that there is none.
    Read(Result<Option<String>, String>),
    /// The file has this text now.
    Written(String),
    /// It has not been written.
    NotWritten(NotWritten),
    /// The least that recorded calls need.
    Proposed(Result<String, String>),
}

/// What is said of the text.
#[derive(Debug)]
pub enum DryRunUpdate {
    /// The text is not a policy.
    Wrong(Box<PolicyError>),
    /// It is one; what there is to remark on it.
    Right(Vec<Note>),
    /// What it does to the calls that were read so far; without progress, to all.
    Judged(Box<Judged>, Option<DryRunProgress>),
    /// There is nothing to judge, and why.
    Nothing(String),
}

/// Why a file was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotWritten {
    /// Somebody else has written it since it was read.
    Changed,
    /// What is written would not be a policy.
    Wrong(String),
    /// The system's error.
    Failed(String),
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// It would now be denied.
    Denied,
    /// It was denied, and would now be allowed.
    Allowed,
    /// It is not known.
    Unknown,
}

/// A call whose verdict changes, or is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// How its verdict changes.
    pub change: Change,
    /// Name of the tool.
    pub tool: String,
    /// When it was seen.
    pub at: Option<WallTime>,
    /// Id of the session in which it was made.
    pub session: String,
    /// Id of its receipt.
    pub receipt: String,
    /// The rule that decides.
    pub rule: String,
    /// The reason, as receipts have it.
    pub reason: &'static str,
    /// Why, for a person.
    pub message: String,
}

/// What a policy does to recorded calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The result of the dry run so far.
    pub report: DryRunReport,
    /// The first calls of each kind, as they were recorded.
    pub calls: Vec<Changed>,
    /// The lines that hold rules, from 1.
    pub lines: HashMap<String, usize>,
}

/// Which recorded calls are judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// What to call them; from outside.
    pub title: String,
    /// Packs, files of receipts, audit directories, session ids.
    pub paths: Vec<PathBuf>,
    /// Where a session id is looked up.
    pub audit_dir: PathBuf,
}

impl Scope {
    fn sources(&self) -> Result<Vec<Source>, String> {
        let mut found = Vec::new();
        for path in &self.paths {
            found.extend(dry_run::sources(path).map_err(|e| e.to_string())?);
        }
        Ok(found)
    }
}

/// A dry run that keeps the calls that change.
struct Watching {
    policy: Arc<Policy>,
    run: Run,
    session: String,
    calls: Vec<Changed>,
    kept: [usize; 3],
}

impl Visit for Watching {
    fn session(&mut self, id: &str, started: Option<WallTime>) -> bool {
        id.clone_into(&mut self.session);
        self.run.session(id, started)
    }

    fn started(&mut self, at: WallTime) {
        self.run.started(at);
    }

    fn call(&mut self, call: &Recorded<'_>) {
        let decision = self.run.judge(call);
        let change = match (decision.verdict, call.denied) {
            (Verdict::Denied, false) => Change::Denied,
            (Verdict::Allowed, true) => Change::Allowed,
            (Verdict::Unknown, _) => Change::Unknown,
            _ => return,
        };
        let kept = &mut self.kept[change as usize];
        if *kept == LISTED {
            return;
        }
        *kept += 1;
        self.calls.push(Changed {
            change,
            tool: call.tool.to_owned(),
            at: call.at,
            session: self.session.clone(),
            receipt: call.receipt_id.to_owned(),
            reason: decision.reason.as_str(),
            rule: decision.rule,
            message: decision.message,
        });
    }

    fn problem(&mut self, what: String) {
        self.run.problem(what);
    }
}

impl Watching {
    fn judged(&self) -> Box<Judged> {
        let report = self.run.report();
        let lines = self.policy.lines(report.rules.iter().map(|row| row.rule.as_str()));
        let lines = lines.into_iter().map(|(rule, line)| (rule.to_owned(), line)).collect();
        Box::new(Judged { calls: self.calls.clone(), lines, report })
    }
}

/// Judges the calls of `scope` by a text; says what is wrong with it, or what was found, more than once if it takes long.
pub fn judge(text: &str, name: &str, scope: &Scope, teller: &Teller<DryRunUpdate>) {
    let tell = |news| teller.tell(news);
    let policy = match Policy::parse(text.as_bytes(), name) {
        Ok(policy) => Arc::new(policy),
        Err(error) => return tell(DryRunUpdate::Wrong(Box::new(error))),
    };
    if teller.cancelled() {
        return;
    }
    tell(DryRunUpdate::Right(policy.notes().to_vec()));
    let sources = match scope.sources() {
        Ok(sources) => sources,
        Err(what) => return tell(DryRunUpdate::Nothing(what)),
    };
    // Host names are not looked up while the user types.
    let run = Run::new(Arc::clone(&policy), Arc::new(Surroundings::here(Dns::Off)));
    let mut watching = Watching { policy, run, session: String::new(), calls: Vec::new(), kept: [0; 3] };
    let mut told = Instant::now();
    let read = dry_run::read(&sources, &mut watching, &mut |so_far, progress| {
        if teller.cancelled() {
            return ControlFlow::Break(());
        }
        if told.elapsed() >= TELL {
            tell(DryRunUpdate::Judged(so_far.judged(), Some(progress)));
            told = Instant::now();
        }
        ControlFlow::Continue(())
    });
    if read.is_continue() && !teller.cancelled() {
        tell(DryRunUpdate::Judged(watching.judged(), None));
    }
}

/// Makes the policy that the calls of `scope` need.
pub fn propose(scope: &Scope, teller: &Teller<Filed>) -> Option<Result<String, String>> {
    let sources = match scope.sources() {
        Ok(sources) => sources,
        Err(what) => return Some(Err(what)),
    };
    let mut needs = Needs::default();
    let read = dry_run::read(&sources, &mut needs, &mut |_, _| {
        if teller.cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    read.is_continue().then(|| Ok(needs.policy()))
}

/// Reads the file; `None` when there is none.
pub fn read(path: &Path) -> Result<Option<String>, String> {
    if path.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let bytes = Policy::read(path).map_err(|e| e.message)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(e) => Err(format!("it is not UTF-8: byte {}", e.utf8_error().valid_up_to())),
    }
}

/// Writes the file, whole or not at all. `before` is what it held when it was read; with `sure` neither another content nor
/// an error in the text keep it from being written.
pub fn write(path: &Path, text: &str, before: Option<&str>, sure: bool) -> Result<(), NotWritten> {
    let failed = |e: io::Error| NotWritten::Failed(e.to_string());
    if !sure {
        let wrong = |e: PolicyError| {
            let place = e.line.map_or_else(String::new, |line| format!("line {line}: "));
            NotWritten::Wrong(format!("{place}{}", e.message))
        };
        Policy::parse(text.as_bytes(), &path.to_string_lossy()).and_then(|p| p.compile()).map_err(wrong)?;
        let there = read(path).map_err(NotWritten::Failed)?;
        let same = match (&there, before) {
            (Some(there), Some(before)) => there == before,
            (None, _) => true,
            (Some(_), None) => false,
        };
        if !same {
            return Err(NotWritten::Changed);
        }
    }
    // Through a link, so that it stays one.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mode = path.metadata().ok().map(|m| m.permissions().mode() & 0o7777);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unique = canon::sha256_hex(text.as_bytes());
    let staged = path.with_file_name(format!(".{name}.{}.{}", std::process::id(), &unique[..8]));
    let ready = |file: &File| {
        mode.map_or(Ok(()), |m| file.set_permissions(PermissionsExt::from_mode(m)))?;
        files::sync_all(file)
    };
    files::replace(&staged, path, text.as_bytes(), ready).map_err(failed)?;
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    files::sync_dir(dir).map_err(failed)
}
