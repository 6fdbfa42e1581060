//! Recorded calls: packs, sessions of an audit directory, whole audit directories. Read, not verified.

use super::{DryRunProgress, Recorded, Visit};
use crate::{
    files,
    lines::{Lines, ReadStop},
    model::{
        WallTime,
        line::text,
        pack::RECEIPTS as PACK,
        reading::{self, TooNew},
        receipt::{CallMembers, SCHEMA_VERSION, SESSION_START, StartMembers, TOOL_CALL},
        redaction::Side,
        version,
    },
    pack::{
        calls,
        payloads::{self, Payload, Payloads},
        stored::EMPTY,
        verify::{
            Later, later,
            source::{OpenProblem, PackDir},
        },
    },
    policy::Arguments,
    text::{counted, either},
};
use std::{
    borrow::Cow,
    collections::BTreeSet,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// Bytes of a first receipt that are looked at.
const FIRST_LINE: u64 = 4 << 20;

/// The receipts of one session, and where payloads of it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    dir: PathBuf,
    name: String,
    investigation: Option<PathBuf>,
    /// It is known that no later version wrote it.
    looked: bool,
}

/// Something that was named and cannot be read for recorded calls.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There are no recorded calls.
    #[error("{}: {what}", .path.display())]
    Nothing {
        /// The path that was named.
        path: PathBuf,
        /// What is wrong, as text for people.
        what: &'static str,
    },
    /// A later version wrote part of the pack.
    #[error(transparent)]
    TooNew(#[from] Later),
}

/// The sessions in a pack, an audit directory, or a session's file `receipts/session_….jsonl`.
///
/// # Errors
/// [`SourceError`].
pub fn sources(path: &Path) -> Result<Vec<Source>, SourceError> {
    let error = |what| SourceError::Nothing { path: path.to_owned(), what };
    if path.join(PACK).is_file() {
        return match later(path) {
            Some(later) => Err(later.into()),
            None => Ok(vec![Source { looked: true, ..pack(path) }]),
        };
    }
    if path.join("receipts").is_dir() || path.join("packs").is_dir() {
        return Ok(directory(path));
    }
    if path.is_dir() {
        return Err(error("it is neither a pack nor an audit directory"));
    }
    if path.is_file() {
        let named = journal(path).ok_or_else(|| error("it is not the receipts file of a session"))?;
        return named.readable().map(|s| vec![s]);
    }
    Err(error("it does not exist"))
}

fn pack(path: &Path) -> Source {
    Source { dir: path.to_owned(), name: PACK.to_owned(), investigation: payloads::beside(path), looked: false }
}

fn journal(path: &Path) -> Option<Source> {
    let name = path.file_name()?.to_str()?;
    let dir = path.parent()?;
    name.strip_prefix("session_")?.strip_suffix(".jsonl")?;
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let investigation = dir.join("../investigation").join(name);
    Some(Source { dir: dir.to_owned(), name: name.to_owned(), investigation: Some(investigation), looked: false })
}

/// Every session's journal, and every pack that has none.
fn directory(path: &Path) -> Vec<Source> {
    let names = |sub: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(path.join(sub)).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok()).collect()
    };
    let mut found: Vec<Source> =
        names("receipts").iter().filter_map(|name| journal(&path.join("receipts").join(name))).collect();
    let stems: BTreeSet<String> = found.iter().filter_map(|s| s.stem().map(str::to_owned)).collect();
    for name in names("packs") {
        let here = path.join("packs").join(&name);
        if name.strip_prefix("proof_pack_").is_some_and(|stem| !stems.contains(stem)) && here.join(PACK).is_file() {
            found.push(pack(&here));
        }
    }
    found
}

/// The members of a receipt that a dry run needs.
struct Receipt<'a> {
    kind: Cow<'a, str>,
    schema: Cow<'a, str>,
    session: Cow<'a, str>,
    id: Cow<'a, str>,
    invocation_id: Cow<'a, str>,
    tool: Option<Cow<'a, str>>,
    arguments_hash: Cow<'a, str>,
    arguments: Option<&'a [u8]>,
    at: Option<WallTime>,
    started: Option<WallTime>,
    denied: bool,
    not_verbatim: bool,
    /// What is stored of the arguments is not what was sent.
    redacted: bool,
}

impl<'a> Receipt<'a> {
    fn read(line: &'a [u8]) -> Option<Self> {
        let m = CallMembers::of_line(line)?;
        let time = |raw| text(raw).and_then(|t| WallTime::parse(&t));
        let kind = text(m.r#type).unwrap_or_default();
        let started = (kind == SESSION_START).then(|| StartMembers::of_line(line)).flatten().and_then(|m| m.started_at);
        Some(Self {
            schema: text(m.schema_version).unwrap_or_default(),
            session: text(m.session_id).unwrap_or_default(),
            id: text(m.receipt_id).unwrap_or_default(),
            invocation_id: text(m.invocation_id).unwrap_or_default(),
            tool: text(m.tool_name),
            arguments_hash: text(m.arguments_hash).unwrap_or_default(),
            arguments: m.arguments_content.filter(|raw| *raw != b"null"),
            at: time(m.request_observed_at),
            started: time(started),
            denied: m.policy_verdict == Some(b"\"denied\""),
            not_verbatim: m
                .anomalies
                .is_some_and(|raw| memchr::memmem::find(raw, b"\"tool_name_not_verbatim\"").is_some()),
            redacted: calls::redacted(m.anomalies, Side::Arguments).next().is_some(),
            kind,
        })
    }
}

impl Source {
    /// Bytes of its receipts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        std::fs::metadata(self.path()).map_or(0, |m| m.len())
    }

    /// Itself, unless its first receipt is of a later version.
    fn readable(self) -> Result<Self, SourceError> {
        let first = files::first_line(&self.path(), FIRST_LINE);
        match first.and_then(|line| reading::newer_receipt(&line)) {
            Some(source) => Err(Later { path: self.path(), line: Some(1), source }.into()),
            None => Ok(self),
        }
    }

    /// The file of its receipts.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    fn stem(&self) -> Option<&str> {
        self.name.strip_prefix("session_")?.strip_suffix(".jsonl")
    }

    pub(super) fn read<V: Visit>(
        &self,
        run: &mut V,
        done: &mut u64,
        total_bytes: u64,
        progress: &mut dyn FnMut(&V, DryRunProgress) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let path = self.path();
        let is_pack = self.name == PACK;
        if is_pack
            && !self.looked
            && let Some(later) = later(&self.dir)
        {
            run.problem(later.to_string());
            return ControlFlow::Continue(());
        }
        let opened = PackDir::open(&self.dir).map_err(|e| e.to_string()).and_then(|dir| {
            dir.open_file(&self.name).map_err(|e| match e {
                OpenProblem::Missing => "there is no such file".to_owned(),
                OpenProblem::Special(what) => format!("it is {what}"),
                OpenProblem::Io(e) => e.to_string(),
            })
        });
        let file = match opened {
            Ok((file, _)) => file,
            Err(what) => {
                run.problem(format!("{}: {what}", path.display()));
                return ControlFlow::Continue(());
            }
        };
        let mut payloads = Payloads::new(self.investigation.as_deref());
        let mut session: Option<(String, bool)> = None;
        let (mut unread, mut newer) = (0u64, None::<(u64, TooNew)>);
        let mut lines = Lines::of(file);
        let mut next = *done;
        loop {
            let line = match lines.next(&mut ()) {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(stop) => {
                    let what = match stop {
                        ReadStop::TooLong => "a line is too long".to_owned(),
                        ReadStop::Io(e) => e.to_string(),
                        ReadStop::Garbage => "too much of it is not evidence".to_owned(),
                        ReadStop::Cancelled => return ControlFlow::Break(()),
                    };
                    run.problem(format!("{}: {what}", path.display()));
                    break;
                }
            };
            *done += line.bytes.len() as u64 + 1;
            match Receipt::read(line.bytes) {
                Some(receipt) => match version::newer_text("receipt", &receipt.schema, SCHEMA_VERSION) {
                    Some(e) => newer.get_or_insert((0, e)).0 += 1,
                    None => one(run, &receipt, &mut session, &mut payloads),
                },
                // A session that is alive may be in the middle of a line.
                None if !line.terminated => {}
                None => unread += 1,
            }
            if *done >= next {
                next = *done + (2 << 20);
                progress(run, DryRunProgress { done_bytes: *done, total_bytes: total_bytes.max(*done) })?;
            }
        }
        if let Some((n, e)) = newer {
            run.problem(format!("{}: {} left out: {e}", path.display(), counted(n, "receipt")));
        }
        if unread > 0 {
            run.problem(format!(
                "{}: {unread} {}",
                path.display(),
                either(unread, "line is not a receipt", "lines are not receipts")
            ));
        }
        for what in payloads.problems {
            run.problem(what);
        }
        ControlFlow::Continue(())
    }
}

/// Feeds one receipt to the run.
fn one(run: &mut dyn Visit, receipt: &Receipt<'_>, session: &mut Option<(String, bool)>, payloads: &mut Payloads) {
    if receipt.kind != TOOL_CALL && receipt.kind != SESSION_START {
        return;
    }
    if session.as_ref().is_none_or(|(id, _)| *id != receipt.session) {
        let fresh = run.session(&receipt.session, receipt.started);
        *session = Some((receipt.session.clone().into_owned(), fresh));
    }
    if !session.as_ref().is_some_and(|(_, fresh)| *fresh) {
        return;
    }
    if let Some(started) = receipt.started {
        run.started(started);
    }
    if receipt.kind != TOOL_CALL {
        return;
    }
    let payload;
    let arguments = if receipt.redacted {
        Arguments::NotStored
    } else if let Some(json) = receipt.arguments {
        Arguments::Raw(json)
    } else if receipt.arguments_hash == EMPTY {
        Arguments::Raw(b"{}")
    } else {
        payload = payloads.get(Payload::Arguments, &receipt.invocation_id, &receipt.arguments_hash, &[""; 0]);
        payload.as_deref().map_or(Arguments::NotStored, Arguments::Raw)
    };
    run.call(&Recorded {
        tool: receipt.tool.as_deref().unwrap_or_default(),
        verbatim: receipt.tool.is_some() && !receipt.not_verbatim,
        arguments,
        denied: receipt.denied,
        receipt_id: &receipt.id,
        at: receipt.at,
    });
}
