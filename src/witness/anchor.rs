//! Has witnesses sign the checkpoint of a ledger, and says so in the ledger.

use super::{
    ask::{self, Asked, Outcome, Statement},
    file::{self, Filed},
};
use crate::{
    model::{
        GENESIS, LedgerKind, LedgerLine,
        checkpoint::read_any,
        ledger::{Anchored, MAX_ANCHOR},
        reading::{self, Reading},
    },
    note::Key,
    pack::{
        keys::Signer,
        verify::tlog_policy::{Judged, Policy},
    },
    paths::AuditDir,
    record::{
        ledger::{self, Entry, Ledger},
        log::{self, LogError, Signed},
    },
    seal,
};
use std::{
    io,
    time::{SystemTime, UNIX_EPOCH},
};
use url::Url;

/// Why nobody was asked, or what they signed was not kept.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// The ledger cannot be signed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The policy is not one for this.
    #[error("{0}")]
    Policy(String),
    /// A file, or a thread.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What a witness said.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name in the policy.
    pub witness: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of asking.
#[derive(Debug, Clone)]
pub struct Report {
    /// The name of the log.
    pub origin: String,
    /// Lines that the checkpoint covers.
    pub size: u64,
    /// The checkpoint with all signatures.
    pub note: String,
    /// What each witness said.
    pub rows: Vec<Row>,
    /// Nothing has come since enough of them signed: no line was added to the ledger.
    pub is_still: bool,
    /// What the policy makes of it.
    pub judged: Judged,
    /// What packs got of it.
    pub filed: Filed,
}

impl Report {
    /// Whether a witness contradicts the ledger.
    #[must_use]
    pub fn is_contradicted(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.outcome, Outcome::Rollback { .. } | Outcome::Fork { .. }))
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Signs the checkpoint of a ledger and asks every witness of the policy that has a URL. What is signed is added to
/// `audit/log/checkpoint`, and a line of the ledger holds it. If enough have signed, packs that it covers get a proof of that.
///
/// # Errors
/// [`AnchorError`]; a witness that does not sign is none.
pub fn anchor(dir: &AuditDir, signer: &Signer, policy: &Policy) -> Result<Report, AnchorError> {
    let before = anchored(dir)?;
    let urls: Vec<(String, Result<Asked, String>)> = policy
        .witnesses()
        .iter()
        .filter_map(|witness| Some((witness, witness.url.as_deref()?)))
        .map(|(witness, url)| {
            let asked = match (&witness.key, Url::parse(url)) {
                (None, _) => Err("its key is of an algorithm that is not known here".to_owned()),
                (_, Err(e)) => Err(format!("its URL does not read: {e}")),
                (Some(key), Ok(url)) => {
                    let signed = |note: &&String| key.lines_in(note).is_ok_and(|lines| !lines.is_empty());
                    let known = before.iter().rev().find(signed).and_then(|note| size_of(note)).unwrap_or(0);
                    Ok(Asked { key: key.clone(), url, known })
                }
            };
            (witness.name.clone(), asked)
        })
        .collect();
    if urls.is_empty() {
        return Err(AnchorError::Policy("the policy has no witness with a URL".to_owned()));
    }
    // If nothing has come since, they are asked whether they have seen nothing either.
    let still = still(dir, signer, policy, before.last())?;
    let is_still = still.is_some();
    let Signed { origin, size, note, .. } = match &still {
        Some(Still { signed, .. }) => signed.clone(),
        None => seal::sign_ledger(dir, signer)?,
    };
    if !policy.accepts_log(&note) {
        return Err(AnchorError::Policy(format!("the policy names logs, and {origin} with your key is none of them")));
    }
    let key = Key::new(&origin, signer.public()).ok_or_else(|| LogError::Name(origin.clone()))?;
    let statement = Statement { key, note: note.clone(), leaves: log::leaves(dir, size)? };
    let asked: Vec<Asked> = urls.iter().filter_map(|(_, asked)| asked.as_ref().ok().cloned()).collect();
    let mut outcomes = ask::ask(&asked, statement)?.into_iter();
    let rows: Vec<Row> = urls
        .into_iter()
        .map(|(witness, asked)| {
            let outcome = match asked {
                Ok(_) => outcomes.next().unwrap_or(Outcome::Failed("it was not asked".to_owned())),
                Err(why) => Outcome::Failed(why),
            };
            Row { witness, outcome }
        })
        .collect();
    let mut cosigned = note;
    for row in &rows {
        if let Outcome::Signed(line) = &row.outcome
            && cosigned.len() + line.len() <= MAX_ANCHOR
        {
            cosigned.push_str(line);
        }
    }
    if let Some(Still { note, judged, .. }) = still {
        let filed = file::to_packs(dir, policy, &note, size, now())?;
        return Ok(Report { origin, size, note, rows, is_still, judged, filed });
    }
    let (judged, filed) = (policy.judge(&cosigned, now()), Filed::default());
    let mut report = Report { origin, size, judged, note: cosigned, rows, is_still, filed };
    if report.rows.iter().any(|row| matches!(row.outcome, Outcome::Signed(_))) {
        keep(dir, &report.note)?;
    }
    if report.judged.since.is_some() {
        report.filed = file::to_packs(dir, policy, &report.note, size, now())?;
    }
    Ok(report)
}

/// The notes that the ledger holds, with signatures of witnesses.
fn anchored(dir: &AuditDir) -> io::Result<Vec<String>> {
    let kind = format!("\"kind\":\"{}\"", LedgerKind::Anchored.as_str());
    let mut notes = Vec::new();
    ledger::walk(dir, &mut |line| {
        let is_one = memchr::memmem::find(line, kind.as_bytes()).is_some();
        if is_one && let Reading::Readable(line) = reading::read::<LedgerLine>(line) {
            notes.extend(line.anchored.map(|anchored| anchored.checkpoint));
        }
    })?;
    Ok(notes)
}

fn size_of(note: &str) -> Option<u64> {
    read_any(&note[..=note.rfind("\n\n")?]).map(|(_, size, _)| size)
}

/// The last anchor, where nothing but its own line has come since.
struct Still {
    /// What we signed.
    signed: Signed,
    /// That, and what witnesses signed.
    note: String,
    judged: Judged,
}

fn still(dir: &AuditDir, signer: &Signer, policy: &Policy, last: Option<&String>) -> io::Result<Option<Still>> {
    let mut lines = 0;
    ledger::walk(dir, &mut |_| lines += 1)?;
    let found = last.and_then(|note| {
        let text = &note[..=note.rfind("\n\n")?];
        let (origin, size, _) = read_any(text)?;
        let ours = Key::new(origin, signer.public())?.lines_in(note).ok().filter(|ours| !ours.is_empty())?;
        let signed = Signed { origin: origin.to_owned(), size, note: format!("{text}\n{ours}"), is_mended: false };
        let judged = policy.judge(note, now());
        let is_enough = judged.is_enough && judged.since.is_some();
        (is_enough && lines == size + 1).then(|| Still { signed, note: note.clone(), judged })
    });
    Ok(found)
}

fn keep(dir: &AuditDir, note: &str) -> Result<(), AnchorError> {
    let mut ledger = Ledger::lock(dir, None)?;
    let entry = Entry::new(LedgerKind::Anchored, None, ledger::LEDGER, GENESIS);
    ledger.append(&Entry { anchored: Some(Anchored { checkpoint: note.to_owned() }), ..entry })?;
    Ok(log::show_cosigned(&ledger, note)?)
}
