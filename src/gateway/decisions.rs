//! Decisions about the surfaces of services, as somebody takes them through the gateway: file and ledger first, then the
//! registry, then the routes.

use super::look::{Measure, Standing};
use crate::{
    approvals::{
        chain::Chain,
        decide::{Refused, Wish, decide, draft},
        observed::Seen,
        request, standing,
        store::{Contents, Draft, StoreError},
        summary::Summary,
    },
    model::surface::{Approval, Snapshot},
    pack::{
        keys::{KeyStore, Signer},
        verify::approvals,
    },
    paths::AuditDir,
};
use std::path::PathBuf;

/// Why something was not decided.
#[derive(Debug, thiserror::Error)]
pub enum Undecided {
    /// It cannot be decided.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// There is no key to sign with.
    #[error("the key that signs decisions cannot be used: {0}")]
    Key(String),
    /// The gateway's key is none of those whose approvals count.
    #[error("the gateway's key {0} is none of the approvers: sign elsewhere, and give the decision as approval")]
    NotAnApprover(String),
    /// What was signed elsewhere is about something else.
    #[error("the decision {0}")]
    Elsewhere(&'static str),
}

impl From<StoreError> for Undecided {
    fn from(e: StoreError) -> Self {
        Self::Refused(e.into())
    }
}

/// How a snapshot stands with what is decided.
///
/// # Errors
/// The decisions cannot be read.
pub fn summary(dir: &AuditDir, measure: &Measure, snapshot: &Snapshot) -> Result<Summary, StoreError> {
    read(dir, measure, snapshot).map(|(summary, ..)| summary)
}

fn read(
    dir: &AuditDir,
    measure: &Measure,
    snapshot: &Snapshot,
) -> Result<(Summary, crate::surface::diff::Approved, Chain), StoreError> {
    let chain = Chain::read(dir)?;
    let approved = standing::approved(dir, &chain, &snapshot.identity, measure.counting())
        .map_err(|source| StoreError::Io { path: dir.surface_items(), source })?;
    Ok((Summary::of(snapshot, &approved, &measure.rules), approved, chain))
}

fn signer() -> Result<Signer, Undecided> {
    let signer = || -> Result<Signer, crate::pack::keys::KeyError> {
        let keys = KeyStore::of_user()?;
        keys.load_or_generate(&keys.active()?)
    };
    signer().map_err(|e| Undecided::Key(e.to_string()))
}

/// Takes a decision about a snapshot, signed with the gateway's key. `None`: all of it was so already.
///
/// # Errors
/// It cannot be decided; then nothing was written.
pub fn take(dir: &AuditDir, measure: &Measure, snapshot: &Snapshot, wish: Wish) -> Result<Option<Approval>, Undecided> {
    let Some((seen, chain, drafted, signer)) = prepare(dir, measure, snapshot, wish)? else { return Ok(None) };
    Ok(Some(decide(dir, (&seen, &chain), drafted, &signer)?))
}

/// Whether a decision could be taken. Nothing is written.
///
/// # Errors
/// It cannot be decided.
pub fn may_take(dir: &AuditDir, measure: &Measure, snapshot: &Snapshot, wish: Wish) -> Result<(), Undecided> {
    prepare(dir, measure, snapshot, wish).map(drop)
}

type Prepared = (Seen, Chain, (Draft, Contents), Signer);

fn prepare(dir: &AuditDir, measure: &Measure, snapshot: &Snapshot, wish: Wish) -> Result<Option<Prepared>, Undecided> {
    let (summary, approved, chain) = read(dir, measure, snapshot)?;
    // It is in no file of the directory: the registry has it.
    let seen = Seen { path: PathBuf::new(), at: String::new(), snapshot: snapshot.clone() };
    let opens = matches!(wish.decision, crate::model::surface::Decision::Approve);
    let drafted = match draft(&seen, &summary, &approved, wish) {
        Err(Refused::Nothing) => return Ok(None),
        drafted => drafted?,
    };
    let signer = signer()?;
    let fingerprint = signer.fingerprint();
    if opens && measure.counting().is_some_and(|keys| !keys.contains(&fingerprint)) {
        return Err(Undecided::NotAnApprover(fingerprint));
    }
    Ok(Some((seen, chain, drafted, signer)))
}

/// Takes up a decision that was signed elsewhere, if it is about this snapshot.
///
/// # Errors
/// It is not, or it does not hold; then nothing was written.
pub fn take_signed(dir: &AuditDir, measure: &Measure, snapshot: &Snapshot, line: &str) -> Result<Approval, Undecided> {
    may_take_signed(measure, snapshot, line)?;
    Ok(request::import(dir, line.as_bytes(), measure.counting())?)
}

/// Whether a decision that was signed elsewhere is about this snapshot, and by somebody who may take it. Nothing is written.
///
/// # Errors
/// It is not, or it does not hold.
pub fn may_take_signed(measure: &Measure, snapshot: &Snapshot, line: &str) -> Result<(), Undecided> {
    let read = approvals::read(line.trim_end().as_bytes()).map_err(|_| Undecided::Elsewhere("does not read"))?;
    if read.server_id != snapshot.identity.id || read.endpoint != snapshot.identity.endpoint {
        return Err(Undecided::Elsewhere("is about another service, or another place of it"));
    }
    if read.root.is_some() && read.root != snapshot.root().ok().map(|root| root.to_string()) {
        return Err(Undecided::Elsewhere("is about another snapshot"));
    }
    if measure.counting().is_some_and(|keys| !keys.contains(&read.signer.fingerprint)) {
        return Err(Undecided::Elsewhere("is signed by none of the approvers"));
    }
    Ok(())
}

/// Whether requests may pass after what is decided.
#[must_use]
pub fn is_clean(dir: &AuditDir, measure: &Measure, snapshot: &Snapshot) -> bool {
    Standing::of(dir, measure, snapshot).clean
}
