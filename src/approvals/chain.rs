//! The decisions of an audit directory, read and checked.
//!
//! A line whose writer died in it was never decided. Every other damage is an error that names the line: who enforces
//! decisions must refuse then, because any guess could let something pass that somebody had blocked.

use crate::{
    model::{
        GENESIS, LedgerKind, LedgerLine, reading,
        surface::{Approval, Decision, Identity, InForce},
    },
    pack::verify::approvals::{ApprovalProblem, ApprovalWalk},
    paths::AuditDir,
    record::ledger,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    path::PathBuf,
};

/// Longest file of decisions, in bytes.
const MAX_FILE: u64 = 256 << 20;

/// Why the decisions cannot be known.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A line is not what it was.
    #[error("{path}:{line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: ApprovalProblem,
    },
    /// The ledger and the decisions disagree.
    #[error("{path}:{line}: {what}")]
    Ledger {
        /// The file of decisions.
        path: PathBuf,
        /// The line there, from 1.
        line: u64,
        /// What the ledger says.
        what: String,
    },
    /// The system's error.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ChainError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Line { problem: ApprovalProblem::TooNew(_), .. } => Some("use a later assay"),
            Self::Line { .. } | Self::Ledger { .. } => Some(
                "put the file back from a backup; nothing is approved while it is damaged, and a guard refuses every tool call",
            ),
            Self::Io { .. } => None,
        }
    }
}

/// All decisions of an audit directory, in their order.
#[derive(Debug, Clone)]
pub struct Chain {
    /// The decisions.
    pub approvals: Vec<Approval>,
    /// How many of them the ledger names: the rest lack their line, because their writer died before it.
    pub in_ledger: usize,
    /// Bytes of the file up to the end of the last decision.
    pub end: u64,
    /// Bytes after that: of a decision whose writer died in it.
    pub torn: u64,
}

impl Chain {
    /// Reads and checks the decisions; where there is no file there are none.
    ///
    /// # Errors
    /// Damage, or an I/O error.
    pub fn read(dir: &AuditDir) -> Result<Self, ChainError> {
        let path = dir.approvals();
        match dir.files().open(&path) {
            Ok(file) => Self::of(dir, &file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Self::of_bytes(dir, &[]),
            Err(source) => Err(ChainError::Io { path, source }),
        }
    }

    /// The same of the file that is open.
    ///
    /// # Errors
    /// As [`Chain::read`].
    pub fn of(dir: &AuditDir, file: &File) -> Result<Self, ChainError> {
        let io = |source| ChainError::Io { path: dir.approvals(), source };
        let bytes = file.try_clone().and_then(|file| whole(&file)).map_err(io)?;
        Self::of_bytes(dir, &bytes)
    }

    fn of_bytes(dir: &AuditDir, bytes: &[u8]) -> Result<Self, ChainError> {
        let path = dir.approvals();
        let named = named(dir).map_err(|source| ChainError::Io { path: dir.ledger(), source })?;
        let upto = named.keys().next_back().map_or(0, |n| *n);
        let mut walk = ApprovalWalk::whole();
        let (mut approvals, mut end) = (Vec::new(), 0);
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            let number = approvals.len() as u64 + 1;
            // The ledger names a decision after it is on disk, so what it names was whole.
            let is_torn = |problem: Option<&ApprovalProblem>| {
                let form = matches!(problem, None | Some(ApprovalProblem::Form(_) | ApprovalProblem::NotCanonical));
                form && number > upto && end + line.len() == bytes.len()
            };
            let Some(text) = line.strip_suffix(b"\n") else {
                if is_torn(None) {
                    break;
                }
                let problem = ApprovalProblem::Form("it has no line feed: it was cut".to_owned());
                return Err(ChainError::Line { path, line: approvals.len() + 1, problem });
            };
            match walk.step(text) {
                Ok(approval) => approvals.push(approval),
                Err(problem) if is_torn(Some(&problem)) => break,
                Err(problem) => return Err(ChainError::Line { path, line: approvals.len() + 1, problem }),
            }
            end += line.len();
        }
        for (number, hash) in &named {
            let found = usize::try_from(*number).ok().and_then(|n| approvals.get(n.wrapping_sub(1)));
            let what = match found {
                Some(approval) if approval.hash == *hash => continue,
                Some(_) => "it is another decision than the one that the ledger names".to_owned(),
                None => format!("this decision is missing: the ledger names {upto}, the file has {}", approvals.len()),
            };
            return Err(ChainError::Ledger { path, line: *number, what });
        }
        let in_ledger = usize::try_from(upto).unwrap_or(usize::MAX);
        if named.len() != in_ledger {
            let line = (1..).zip(named.keys()).find(|(n, named)| n != *named).map_or(1, |(n, _)| n);
            let what = "the ledger does not name this decision, but a later one".to_owned();
            return Err(ChainError::Ledger { path, line, what });
        }
        Ok(Self { approvals, in_ledger, end: end as u64, torn: (bytes.len() - end) as u64 })
    }

    /// `hash` of the last decision.
    #[must_use]
    pub fn head(&self) -> &str {
        self.approvals.last().map_or(GENESIS, |a| &a.hash)
    }

    /// The decision before the next one about a server.
    #[must_use]
    pub fn last_of(&self, server_id: &str) -> Option<&Approval> {
        self.approvals.iter().rev().find(|a| a.server_id == server_id)
    }

    /// The decisions that count. With `approvers`, fingerprints of keys, only those that these signed do; blocks and revocations
    /// always count, because they can only close what is open.
    pub fn counted<'a>(
        &'a self,
        approvers: Option<&'a BTreeSet<String>>,
    ) -> impl DoubleEndedIterator<Item = &'a Approval> {
        self.approvals.iter().filter(move |approval| {
            let closes = matches!(approval.decision, Decision::Block | Decision::Revoke);
            closes || approvers.is_none_or(|keys| keys.contains(&approval.signer.fingerprint))
        })
    }

    /// What is in force for a server.
    #[must_use]
    pub fn in_force(&self, server: &Identity, approvers: Option<&BTreeSet<String>>) -> InForce {
        InForce::of(self.counted(approvers), server)
    }
}

fn whole(file: &File) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    if len > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long to be a file of decisions"));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    let n = crate::lines::read_at(file, &mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Name of the file of decisions, as it is in the ledger.
pub(super) const FILE: &str = "approvals.jsonl";

/// Number, from 1, and hash of each decision that the ledger names.
fn named(dir: &AuditDir) -> io::Result<BTreeMap<u64, String>> {
    let mut named = BTreeMap::new();
    ledger::walk(dir, &mut |line| {
        // Cheap for the lines of sessions, which most are.
        if memchr::memmem::find(line, LedgerKind::SurfaceApproval.as_str().as_bytes()).is_none() {
            return;
        }
        if let Some(line) = reading::read::<LedgerLine>(line).ok()
            && line.kind == LedgerKind::SurfaceApproval
            && line.segment == FILE
        {
            named.insert(line.event_count, line.segment_hash);
        }
    })?;
    Ok(named)
}
