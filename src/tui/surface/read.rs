//! Jobs of the screen: what was seen and decided is read, and a decision is taken, of a service by its gateway.

use crate::{
    approvals::{
        chain::Chain,
        decide::{Refused, Wish, decide, draft},
        lockfile::named,
        observed::{Observed, Seen},
        standing,
        summary::Summary,
    },
    model::surface::{Approver, Decision, Facet, Outcome, Snapshot},
    operate::{self, Gateway, part},
    pack::keys::KeyStore,
    paths::AuditDir,
    surface::{diff::Approved, rules::Rules},
    tui::msg::{Job, Ticket},
};
use serde_json::{Value, json};
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
    /// Of a service of a gateway, how its route stands.
    pub service: Option<Service>,
}

/// A service of a gateway that runs.
#[derive(Debug, Clone)]
pub struct Service {
    /// `enabled`, `pending`, `disabled_drift` or `disabled_admin`.
    pub state: String,
    /// Why.
    pub reason: Option<String>,
    /// How its checks went.
    pub health: String,
    /// Where its gateway keeps its files.
    pub gateway: PathBuf,
}

impl Service {
    /// In a few words, where its route is closed.
    #[must_use]
    pub fn closed(&self) -> Option<&'static str> {
        match self.state.as_str() {
            "enabled" => None,
            "pending" => Some("pending"),
            "disabled_drift" => Some("closed"),
            _ => Some("disabled"),
        }
    }
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

    /// How it stands, in a few words.
    #[must_use]
    pub fn words(&self) -> String {
        let words = self.summary.words();
        match self.service.as_ref().map(|s| (s.closed(), s.health.as_str())) {
            Some((_, "unreachable")) => "unreachable".to_owned(),
            Some((Some("closed"), _)) => format!("closed, {words}"),
            Some((Some(closed), _)) => closed.to_owned(),
            _ => words,
        }
    }
}

/// Where it is looked, and whose keys sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The audit directory, as it was named.
    pub dir: PathBuf,
    /// The user directory, if it is not this user's own.
    pub home: Option<PathBuf>,
    /// Where a gateway keeps its files, if not below the user directory.
    pub gateway: Option<PathBuf>,
}

impl Place {
    fn audit_dir(&self) -> Result<AuditDir, String> {
        let dir = AuditDir::reach(&self.dir).map_err(|e| e.to_string())?;
        Ok(match &self.home {
            Some(home) => dir.remembered_in(Some(home.clone())),
            None => dir.of_user(),
        })
    }

    /// Where a gateway runs whose services are shown, too.
    fn data(&self) -> Option<PathBuf> {
        let own = || self.home.as_ref().map_or_else(|| operate::default_data().ok(), |home| Some(home.join("gateway")));
        self.gateway.clone().or_else(own)
    }

    fn keys(&self) -> Result<KeyStore, String> {
        match &self.home {
            Some(home) => Ok(KeyStore::at(home.join("keys"))),
            None => KeyStore::of_user().map_err(|e| e.to_string()),
        }
    }
}

/// What tells whether there is anything new.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When the directory changed.
    seen: Option<SystemTime>,
    /// When the file of decisions did, and its size.
    decided: Option<(SystemTime, u64)>,
    /// What a gateway says of its services.
    services: Vec<Value>,
}

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

fn stamp(dir: &AuditDir, services: Vec<Value>) -> Stamp {
    let meta = |path: PathBuf| std::fs::symlink_metadata(path).ok();
    let decided = meta(dir.approvals()).and_then(|m| Some((m.modified().ok()?, m.len())));
    Stamp { seen: meta(dir.surface()).and_then(|m| m.modified().ok()), decided, services }
}

/// The services of a gateway, as it tells them, if one runs there.
fn services(data: &std::path::Path) -> Result<Vec<Value>, String> {
    let Some(gateway) = Gateway::of(data).map_err(|e| e.to_string())? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    let mut path = "/services?limit=200".to_owned();
    loop {
        let page = gateway.ask("GET", &path, None, None).map_err(|e| e.to_string())?.body;
        all.extend(page["items"].as_array().into_iter().flatten().cloned());
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/services?limit=200&cursor={}", part(cursor)),
            None => return Ok(all),
        }
    }
}

/// The newest surface of each server of a directory; of a service, only its own.
fn servers(dir: &AuditDir, chain: &Chain, of: Option<&str>) -> Result<Vec<Server>, String> {
    let observed = Observed::read(dir, None).map_err(|e| e.to_string())?;
    let wanted = |seen: &&Seen| of.is_none_or(|name| seen.snapshot.identity.id == name);
    let all = observed.newest_of_each().into_iter().filter(wanted).map(|seen| server(dir, chain, seen.clone()));
    all.collect()
}

fn server(dir: &AuditDir, chain: &Chain, seen: Seen) -> Result<Server, String> {
    let approved = standing::approved(dir, chain, &seen.snapshot.identity, None).map_err(|e| e.to_string())?;
    let summary = Summary::of(&seen.snapshot, &approved, &Rules::default());
    Ok(Server { seen, summary, approved, service: None })
}

/// A service of a gateway, with what was seen of it last, or nothing.
fn of_service(data: &std::path::Path, told: &Value) -> Result<Server, String> {
    let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    let name = text("name");
    let dir = AuditDir::at(operate::evidence(data, &name)).of_user();
    let chain = Chain::read(&dir).map_err(|e| e.to_string())?;
    let nothing = |id: String| {
        let mut snapshot = Snapshot::default();
        snapshot.identity.id = id;
        Seen { path: PathBuf::new(), at: String::new(), snapshot }
    };
    let seen = servers(&dir, &chain, Some(&name))?.pop();
    let server = seen.map_or_else(|| server(&dir, &chain, nothing(name)), Ok)?;
    let reason = told["reason"].as_str().map(str::to_owned);
    let service = Service { state: text("state"), reason, health: text("health"), gateway: data.to_owned() };
    Ok(Server { service: Some(service), ..server })
}

/// Reads what was seen and decided in an audit directory, unless it is as at `before`.
pub fn read(ticket: &Ticket<Read>, place: Place, before: Option<Stamp>) -> Job {
    Job::new(ticket, "read surfaces", move |teller| {
        let dir = match place.audit_dir() {
            Ok(dir) => dir,
            Err(e) => return teller.tell(Read::Failed(e, Stamp::default())),
        };
        let data = place.data();
        // A gateway that does not answer hides nothing else.
        let told = data.as_ref().map_or_else(|| Ok(Vec::new()), |data| services(data));
        let (told, silent) = told.map_or_else(|e| (Vec::new(), Some(e)), |told| (told, None));
        let now = stamp(&dir, told);
        if before.as_ref() == Some(&now) && silent.is_none() {
            return teller.tell(Read::Same);
        }
        let all = || -> Result<_, String> {
            let chain = Chain::read(&dir).map_err(|e| e.to_string())?;
            let mut all = servers(&dir, &chain, None)?;
            for (told, data) in now.services.iter().zip(data.iter().cycle()) {
                all.push(of_service(data, told)?);
            }
            Ok((all, chain))
        };
        teller.tell(match all() {
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
        if let Some(service) = &server.service {
            return teller.tell(by_gateway(service, &server, (decision, &items), reason.as_deref()));
        }
        let taken = || -> Result<String, String> {
            let (dir, keys) = (place.audit_dir()?, place.keys()?);
            let signer =
                keys.active().and_then(|id| keys.load_or_generate(&id)).map_err(|e| e.to_string())?.patiently();
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

/// Has a gateway take a decision about what was seen of a service, or refuse it if something else is there by now.
fn by_gateway(
    service: &Service,
    server: &Server,
    (decision, items): (Decision, &[(Facet, String)]),
    reason: Option<&str>,
) -> Decided {
    let root = server.summary.root.as_ref().map_err(|why| format!("incomplete, and cannot be decided about: {why}"))?;
    let verb = match decision {
        Decision::Block => "block",
        Decision::Approve | Decision::FirstUse | Decision::Revoke => "approve",
    };
    let mut body = json!({});
    if !items.is_empty() {
        body["items"] = items.iter().map(|(facet, name)| named(*facet, name)).collect();
    }
    if let Some(reason) = reason {
        body["reason"] = json!(reason);
    }
    let expect = format!("\"{}\"", root.trim_start_matches("sha256:"));
    let path = format!("/services/{}/{verb}", part(server.id()));
    let gateway = Gateway::needed(&service.gateway).map_err(|e| e.to_string())?;
    let decided = gateway.ask("POST", &path, Some(&expect), Some(&body)).map_err(|e| e.to_string())?.body;
    let what = if verb == "block" { "blocked" } else { "approved" };
    let id = decided["approval_id"].as_str().unwrap_or("all of it was so already");
    Ok(format!("{what} of {}: {id}; its route is {}", server.id(), decided["service"]["state"].as_str().unwrap_or("?")))
}

/// Has a gateway look at a service now.
pub fn check(ticket: &Ticket<Decided>, service: Service, name: String) -> Job {
    Job::new(ticket, "check a service", move |teller| {
        let checked = || -> Decided {
            let gateway = Gateway::needed(&service.gateway).map_err(|e| e.to_string())?;
            let path = format!("/services/{}/check", part(&name));
            let found = gateway.ask("POST", &path, None, None).map_err(|e| e.to_string())?.body;
            Ok(format!("{name} was looked at: {}", found["outcome"].as_str().unwrap_or("?")))
        };
        teller.tell(checked());
    })
}
