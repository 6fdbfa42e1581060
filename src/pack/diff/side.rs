//! The calls of one pack, 64 bytes each, with the offset of the line so that it can be shown.

use crate::model::{Outcome, PolicyVerdict, pack::RECEIPTS};
use crate::pack::{
    calls::{self, CallsError, Seen},
    verify::{VerifyReport, source::PackDir},
};
use std::{
    collections::{HashMap, hash_map::RandomState},
    fs::File,
    hash::BuildHasher as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// Bytes of a tool name that are kept for display; names are compared in full.
const MAX_NAME: usize = 256;
/// `duration_us` of a call without one.
pub const NO_DURATION: u64 = u64::MAX;

/// A call, as far as a comparison needs it.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Fingerprint of tool and arguments hash.
    pub key: u128,
    /// Fingerprint of the result hash; 0 where there is none.
    pub result: u128,
    /// Where its line begins.
    pub offset: u64,
    /// Round trip, or [`NO_DURATION`].
    pub duration_us: u64,
    /// Number of the tool in [`Names`].
    pub tool: u32,
    /// Bytes of its line.
    pub len: u32,
    /// Outcome; `None` for one that is not ours.
    pub outcome: Option<Outcome>,
    /// Verdict; `None` for one that is not ours.
    pub verdict: Option<PolicyVerdict>,
}

const _: () = assert!(size_of::<Call>() == 64);

/// Fingerprints and tool names that both sides share. The fingerprints are keyed at random, so that no pack can be made
/// whose hashes collide.
#[derive(Debug, Default)]
pub struct Names {
    keys: [RandomState; 2],
    numbers: HashMap<u128, u32>,
    shown: Vec<String>,
}

impl Names {
    fn fingerprint(&self, parts: &[&str]) -> u128 {
        let [a, b] = &self.keys;
        u128::from(a.hash_one(parts)) << 64 | u128::from(b.hash_one(parts))
    }

    fn number(&mut self, tool: &str) -> u32 {
        let key = self.fingerprint(&[tool]);
        if let Some(n) = self.numbers.get(&key) {
            return *n;
        }
        let n = self.shown.len() as u32;
        self.shown.push(cut(tool));
        self.numbers.insert(key, n);
        n
    }

    /// The name of a tool.
    #[must_use]
    pub fn name(&self, n: u32) -> &str {
        self.shown.get(n as usize).map_or("", String::as_str)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shown.len()
    }
}

fn cut(text: &str) -> String {
    if text.len() <= MAX_NAME {
        return text.to_owned();
    }
    let mut end = MAX_NAME;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// A verified pack's calls.
#[derive(Debug)]
pub struct Side {
    path: PathBuf,
    file: File,
    /// In the order of the file, which is that of the requests.
    pub calls: Vec<Call>,
}

impl Side {
    /// Reads the receipts of a pack that `report` verified; that they are the same bytes is checked.
    ///
    /// # Errors
    /// [`CallsError`].
    pub fn load(pack: &Path, report: &VerifyReport, names: &mut Names) -> Result<Self, CallsError> {
        let path = pack.join(RECEIPTS);
        let not_opened = |what: String| CallsError::NotOpened { path: path.clone(), what };
        let dir = PackDir::open(pack).map_err(|e| not_opened(e.to_string()))?;
        let mut calls = Vec::new();
        let (sha256, _) = calls::lines(&dir, RECEIPTS, |line| {
            if let Some(seen) = Seen::read(line.bytes).filter(Seen::is_call) {
                calls.push(call(&seen, line.offset, line.bytes.len(), names));
            }
        })?;
        if report.facts.receipt_pack_sha256.as_ref() != Some(&sha256) {
            return Err(CallsError::Changed { path });
        }
        let (file, _) = dir.open_file(RECEIPTS).map_err(|_| CallsError::Changed { path: path.clone() })?;
        Ok(Self { path, file, calls })
    }

    /// The line of a call, read again.
    ///
    /// # Errors
    /// [`CallsError::Changed`] when it is not the one that was compared.
    pub fn line(&self, call: &Call, names: &Names) -> Result<Vec<u8>, CallsError> {
        let changed = || CallsError::Changed { path: self.path.clone() };
        let mut line = vec![0; call.len as usize];
        self.file.read_exact_at(&mut line, call.offset).map_err(|_| changed())?;
        let same = Seen::read(&line).is_some_and(|seen| {
            (key(&seen, names), result(&seen, names), calls::word(&seen.outcome))
                == (call.key, call.result, call.outcome)
        });
        if same { Ok(line) } else { Err(changed()) }
    }

    /// All round trips.
    #[must_use]
    pub fn durations(&self) -> Vec<u64> {
        self.calls.iter().map(|c| c.duration_us).filter(|d| *d != NO_DURATION).collect()
    }
}

impl Call {
    /// Whether the policy rejects it, enforced or not.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.outcome == Some(Outcome::Denied) || self.verdict == Some(PolicyVerdict::Denied)
    }
}

fn key(seen: &Seen<'_>, names: &Names) -> u128 {
    names.fingerprint(&[&seen.tool, &seen.arguments_hash])
}

fn result(seen: &Seen<'_>, names: &Names) -> u128 {
    seen.result_hash.as_ref().map_or(0, |hash| names.fingerprint(&["result", hash]).max(1))
}

fn call(seen: &Seen<'_>, offset: u64, len: usize, names: &mut Names) -> Call {
    Call {
        key: key(seen, names),
        result: result(seen, names),
        offset,
        duration_us: seen.duration_us.unwrap_or(NO_DURATION),
        tool: names.number(&seen.tool),
        len: len as u32,
        outcome: calls::word(&seen.outcome),
        verdict: calls::word(&seen.verdict),
    }
}
