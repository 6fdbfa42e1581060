//! Jobs of the screen: what was seen and decided is read, and a decision is taken.

use crate::{
    approvals::{
        chain::Chain,
        decide::{Refused, Wish, decide, draft},
        observed::{Observed, Seen},
        standing,
        summary::Summary,
    },
    model::surface::{Approver, Decision, Facet, Outcome},
    pack::keys::KeyStore,
    paths::AuditDir,
    surface::{diff::Approved, rules::Rules},
    tui::msg::{Job, Ticket},
};
use std::{path::PathBuf, time::SystemTime};

/// One server, how it stands, and what is approved.
#[derive(Debug, Clone)]
pub struct Server {
    /// What was seen last.
    pub seen: Seen,
    /// How it stands.
    pub summary: Summary,
    /// What is approved.
    pub approved: Approved,
}

impl Server {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.seen.snapshot.identity.id
    }

    /// Whether it announces what nobody approved, although something was decided.
    #[must_use]
    pub fn drifts(&self) -> bool {
        self.summary.decided && matches!(self.summary.outcome, Outcome::Changed(_))
    }
}

/// Where it is looked, and whose keys sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The audit directory, as it was named.
    pub dir: PathBuf,
    /// The user directory, if it is not this user's own.
    pub home: Option<PathBuf>,
}

impl Place {
    fn audit_dir(&self) -> Result<AuditDir, String> {
        let dir = AuditDir::reach(&self.dir).map_err(|e| e.to_string())?;
        Ok(match &self.home {
            Some(home) => dir.remembered_in(Some(home.clone())),
            None => dir.of_user(),
        })
    }

    fn keys(&self) -> Result<KeyStore, String> {
        match &self.home {
            Some(home) => Ok(KeyStore::at(home.join("keys"))),
            None => KeyStore::of_user().map_err(|e| e.to_string()),
        }
    }
}

/// What tells whether there is anything new: when the directory and the file of decisions changed.
pub type Stamp = (Option<SystemTime>, Option<(SystemTime, u64)>);

/// What a reading gives.
#[derive(Debug)]
pub enum Read {
    /// Nothing has changed since.
    Same,
    /// The servers, and what they were read from.
    Servers(Vec<Server>, Stamp, Box<Chain>),
    /// It cannot be read, and why.
    Failed(String, Stamp),
}

fn stamp(dir: &AuditDir) -> Stamp {
    let meta = |path: PathBuf| std::fs::symlink_metadata(path).ok();
    let approvals = meta(dir.approvals()).and_then(|m| Some((m.modified().ok()?, m.len())));
    (meta(dir.surface()).and_then(|m| m.modified().ok()), approvals)
}

/// Reads what was seen and decided in an audit directory, unless it is as at `before`.
pub fn read(ticket: &Ticket<Read>, place: Place, before: Option<Stamp>) -> Job {
    Job::new(ticket, "read surfaces", move |teller| {
        let dir = match place.audit_dir() {
            Ok(dir) => dir,
            Err(e) => return teller.tell(Read::Failed(e, (None, None))),
        };
        let now = stamp(&dir);
        if before == Some(now) {
            return teller.tell(Read::Same);
        }
        let servers = || -> Result<_, String> {
            let chain = Chain::read(&dir).map_err(|e| e.to_string())?;
            let observed = Observed::read(&dir, None).map_err(|e| e.to_string())?;
            let mut servers = Vec::new();
            for seen in observed.newest_of_each() {
                let approved =
                    standing::approved(&dir, &chain, &seen.snapshot.identity, None).map_err(|e| e.to_string())?;
                let summary = Summary::of(&seen.snapshot, &approved, &Rules::default());
                servers.push(Server { seen: seen.clone(), summary, approved });
            }
            Ok((servers, chain))
        };
        teller.tell(match servers() {
            Ok((servers, chain)) => Read::Servers(servers, now, Box::new(chain)),
            Err(why) => Read::Failed(why, now),
        });
    })
}

/// What became of a decision.
pub type Decided = Result<String, String>;

/// Takes a decision about items of a server, or about all that was seen of it.
pub fn take(
    ticket: &Ticket<Decided>,
    place: Place,
    (server, chain): (Server, Chain),
    (decision, items): (Decision, Vec<(Facet, String)>),
    reason: Option<String>,
) -> Job {
    Job::new(ticket, "decide about a surface", move |teller| {
        let taken = || -> Result<String, String> {
            let (dir, keys) = (place.audit_dir()?, place.keys()?);
            let signer = keys.active().and_then(|id| keys.load_or_generate(&id)).map_err(|e| e.to_string())?;
            let approver =
                Approver { auth: "local_user".to_owned(), name: crate::paths::user_name(), via: "tui".to_owned() };
            let expect = server.summary.root.as_ref().ok().cloned().filter(|_| decision == Decision::Approve);
            let wish = Wish { decision, items, expect, reason, approver };
            let drafted = match draft(&server.seen, &server.summary, &server.approved, wish) {
                Err(Refused::Nothing) => return Ok(Refused::Nothing.to_string()),
                drafted => drafted.map_err(|e| e.to_string())?,
            };
            let approval = decide(&dir, (&server.seen, &chain), drafted, &signer).map_err(|e| e.to_string())?;
            let what = match approval.decision {
                Decision::Approve | Decision::FirstUse => "approved",
                Decision::Block => "blocked",
                Decision::Revoke => "revoked",
            };
            let items = crate::text::counted(approval.items.len(), "item");
            Ok(format!("{what} {items} of {}: {}", server.id(), approval.approval_id))
        };
        teller.tell(taken());
    })
}
