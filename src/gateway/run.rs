//! `assay gateway run`: one process that serves all services.

mod office;

use super::{
    api::{
        Admin,
        auth::Keys,
        desk::{Desk, Job, Looked, Refusal},
    },
    backup,
    config::{Config, MAX_SERVICES, MetricsFor, Service},
    credential::Reference,
    data::{LOCK, hold, registry_failure, tell},
    lane::{GRACE, Lane},
    log::Log,
    look::{Look, Seen, Standing, hash},
    reach::{declared, endpoint, evidence},
    registry::{Adopted, Declared, Found, Registry, ServiceRow, SqliteRegistry, State},
    routes::{AdminRoutes, Readers, Ready, Route, Table},
    spec::Spec,
    timing::{Timing, spread},
};
use crate::{
    db::DbError,
    error::{Exit, Failure},
    model::{WallTime, surface::Snapshot},
    paths::AuditDir,
    proxy::{self, Status, http::cannot_listen},
    relay::http::{
        access::{Access, TOKEN_LENGTH, Token},
        host::Host,
        listen::{Gateway as Front, ListenAddr, Listener, Stop},
    },
    sys,
    text::counted,
};
use arc_swap::ArcSwap;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

/// The socket of the API, for this user alone.
pub const SOCKET: &str = "gateway.sock";

/// How often it is looked whether anything is to be done.
const TICK: Duration = Duration::from_millis(250);
/// Checks at the same time.
const LOOKS: usize = 4;
/// The same, of services on one host.
const LOOKS_OF_HOST: usize = 2;
/// A check that takes longer is given up; what it still says is not heard.
const LONGEST_LOOK: Duration = Duration::from_secs(120);
/// When something is gone, it is looked again after so long: servers that restart have empty lists for a while.
const CONFIRM_MS: i64 = 60_000;
/// How often what is kept is put in order, the first time at the start.
const DAILY: Duration = Duration::from_secs(24 * 60 * 60);
/// After so long it is tried again to write down what could not be, and to look at a service whose check could not be.
const AGAIN: Duration = Duration::from_secs(10);
/// Connections of clients at the same time; more wait.
const CONNECTIONS: usize = 4096;

/// What a gateway was asked for on the command line.
#[derive(Debug)]
pub struct Settings {
    /// Its configuration.
    pub config: PathBuf,
    /// Where it keeps everything.
    pub data: PathBuf,
    /// Where it listens, in place of what the configuration says.
    pub listen: Option<ListenAddr>,
    /// Status messages as JSON lines.
    pub json: bool,
}

/// Runs a gateway until a signal ends it.
///
/// # Errors
/// Bad input: a configuration that does not read, a data directory that another gateway uses, a port that is taken.
pub fn run(settings: &Settings) -> Result<Exit, Failure> {
    let status = Status::new(settings.json);
    sys::process::ignore_write_signals();
    sys::process::hear_signals();
    let config = Config::load(&settings.config)?;
    let listen = settings.listen.clone().unwrap_or_else(|| config.listen.clone());
    let access = access(&config)?;
    let is_safe = listen.is_local() || (config.allow_remote && access.token.is_some());
    if !is_safe {
        return Err(Failure::bad_input(format_args!("other machines could connect to {listen}"))
            .hint("listen on 127.0.0.1, or write allow_remote: true and a token into the configuration"));
    }
    let mut held = hold(&settings.data)?;
    let _log = proxy::log_to(&AuditDir::at(&settings.data), status);
    let (log, _written) = if settings.json { Some(Log::stderr()).unzip() } else { (None, None) };
    let log = log.unwrap_or_default();
    let registry = SqliteRegistry::open(&settings.data).and_then(|registry| registry.check().map(|_| registry));
    let registry = Box::new(registry.map_err(|e| registry_failure(&settings.data, &e))?);
    let (hears, inbox) = mpsc::channel();
    let asks = hears.clone();
    let desk = Desk::new(move |job| asks.send(Heard::Asked(job)).is_ok());
    let keys: Arc<ArcSwap<Keys>> = Arc::default();
    let host: Arc<dyn Host> = Arc::new(Admin::new(desk, keys.clone()));
    let mut gateway = Gateway {
        hears: hears.clone(),
        looking: BTreeMap::new(),
        looks: 0,
        settings,
        status,
        access: access.clone(),
        config: config.clone(),
        services: BTreeMap::new(),
        keys,
        token: None,
        waiting: BTreeMap::new(),
        registry,
        table: Arc::new(Table::new(log.clone())),
        log,
        lanes: BTreeMap::new(),
        closing: Vec::new(),
        daily: None,
        is_current: true,
        registry_works: true,
        rows: Vec::new(),
        unwritten: BTreeMap::new(),
        tried: None,
    };
    watch(&hears).map_err(|e| Failure::failed(format_args!("cannot handle signals: {e}")))?;
    let routes = gateway.table.clone();
    let bind = |listen: &ListenAddr, threads, routes| {
        Listener::gateway(Front {
            listen: listen.clone(),
            allow_remote: config.allow_remote,
            access: access.clone(),
            max_connections: CONNECTIONS,
            threads,
            patience: GRACE,
            routes,
        })
    };
    let threads = thread::available_parallelism().map_or(1, |n| n.get().min(4));
    let listener = bind(&listen, threads, routes.clone()).map_err(|e| cannot_listen(&listen, &e))?;
    let mut beside = Vec::new();
    let admin = || Arc::new(AdminRoutes { host: host.clone(), table: routes.clone() });
    match &config.admin_listen {
        None => routes.set_host(host.clone()),
        Some(listen) => beside.push(bind(listen, 1, admin()).map_err(|e| cannot_listen(listen, &e))?),
    }
    let socket = ListenAddr::Unix(settings.data.join(SOCKET));
    match bind(&socket, 1, admin()) {
        Ok(listener) => beside.push(listener),
        Err(e) => status.warn(&format!("{socket} cannot be used, so the API has no socket: {e}")),
    }
    if let Err(e) = gateway.read_tokens(&config).and_then(|()| gateway.take(&config)) {
        gateway.finish(None);
        return Err(e);
    }
    gateway.resume(WallTime::now());
    let url = listener.url();
    tell(&mut held, &url).map_err(|e| Failure::failed(format_args!("{LOCK}: {e}")))?;
    if config.allow_remote && !listen.is_local() {
        status.warn(proxy::http::READABLE);
    }
    status.listening(&url, &counted(gateway.services.len(), "service"));
    gateway.serve(listener, beside, &inbox)
}

/// Who may use the gateway.
fn access(config: &Config) -> Result<Access, Failure> {
    let token = config.token.as_ref().map(|reference| token(reference, "the token").map(|text| Token::new(&text)));
    let token = token.transpose()?;
    Ok(Access { hosts: config.hosts.clone(), origins: config.origins.clone(), token })
}

/// Who may read the metrics.
fn readers(config: &Config) -> Result<Readers, Failure> {
    Ok(match &config.metrics {
        MetricsFor::Nobody => Readers::None,
        MetricsFor::Everybody => Readers::All,
        MetricsFor::Token(reference) => Readers::With(Token::new(&token(reference, "the token of the metrics")?)),
    })
}

/// A token that the configuration names, as text; it is long enough.
fn token(reference: &Reference, what: &str) -> Result<Zeroizing<String>, Failure> {
    let text = reference.read().map_err(|why| Failure::bad_input(format_args!("{what}: {why}")))?;
    if Token::checked(&text).is_some() {
        return Ok(text);
    }
    let what = format!("{} is no token of at least {TOKEN_LENGTH} characters", reference.place);
    Err(Failure::bad_input(what).hint("openssl rand -hex 32 makes one"))
}

/// What the main thread hears.
enum Heard {
    Signal(i32),
    /// The check of this number has ended.
    Looked(u64, Box<Seen>),
    /// The API asks for something.
    Asked(Job),
}

/// A check that runs.
struct Looking {
    number: u64,
    host: String,
    began: Instant,
}

/// The checks that have taken too long.
fn given_up(looking: &BTreeMap<String, Looking>, now: Instant) -> Vec<String> {
    let is_late = |look: &&Looking| now.duration_since(look.began) >= LONGEST_LOOK;
    looking.iter().filter(|(_, look)| is_late(look)).map(|(name, _)| name.clone()).collect()
}

/// Sends every signal that is for us; one that is ignored stays so.
fn watch(hears: &mpsc::Sender<Heard>) -> io::Result<()> {
    let wanted = [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|signal| !sys::process::is_ignored(*signal));
    let mut coming = signal_hook::iterator::Signals::new(wanted)?;
    let hears = hears.clone();
    thread::Builder::new().name("assay-signals".into()).spawn(move || {
        for signal in coming.forever() {
            if hears.send(Heard::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

struct Gateway<'a> {
    settings: &'a Settings,
    /// Tells the main thread.
    hears: mpsc::Sender<Heard>,
    /// The services that are looked at just now.
    looking: BTreeMap<String, Looking>,
    /// How many checks have begun.
    looks: u64,
    status: Status,
    access: Access,
    /// The configuration that is in force.
    config: Config,
    /// The services, those of the API among them.
    services: BTreeMap<String, Service>,
    /// The tokens for the API.
    keys: Arc<ArcSwap<Keys>>,
    /// The one that the configuration has.
    token: Option<Zeroizing<String>>,
    /// Who waits for the next check of a service.
    waiting: BTreeMap<String, Vec<oneshot::Sender<Looked>>>,
    registry: Box<dyn Registry>,
    table: Arc<Table>,
    log: Log,
    lanes: BTreeMap<String, Lane>,
    /// Services that are gone, while they end.
    closing: Vec<thread::JoinHandle<()>>,
    /// When what is kept was put in order last.
    daily: Option<Instant>,
    /// The configuration that is in force is the one in the file.
    is_current: bool,
    registry_works: bool,
    /// The services as the registry had them when it worked last.
    rows: Vec<ServiceRow>,
    /// How routes stand that the registry does not know of yet.
    unwritten: BTreeMap<String, Turn>,
    /// When it was tried last to write that down.
    tried: Option<Instant>,
}

/// A route that stands otherwise.
#[derive(Debug, Clone)]
struct Turn {
    state: State,
    reason: Option<String>,
    actor: String,
    since: WallTime,
}

/// What the API made of a service.
enum Made {
    Spec(Spec),
    /// It does not read, and why.
    Unread(Box<ServiceRow>, String),
}

impl Gateway<'_> {
    /// Puts a configuration into force: all of it or nothing.
    fn take(&mut self, config: &Config) -> Result<Adopted, Failure> {
        let data = &self.settings.data;
        let made = self.made().map_err(|e| registry_failure(data, &e))?;
        let adopted = self.put(config.clone(), &made, "config").map_err(|refusal| match refusal {
            Refusal::Registry(e) => registry_failure(data, &e),
            Refusal::Other(e) => e,
        })?;
        for (name, made) in made {
            if let Made::Unread(row, why) = made {
                self.status.warn(&format!(
                    "{name}, which the API made, does not read: {why}; its route is closed until it is removed and made again"
                ));
                if row.state == State::Enabled && !self.services.contains_key(&name) {
                    self.turn(&row, State::Pending, Some("what it was made of does not read".to_owned()), "system");
                }
            }
        }
        Ok(adopted)
    }

    /// What the API made.
    fn made(&self) -> Result<BTreeMap<String, Made>, DbError> {
        let read = |row: ServiceRow| {
            let made = match serde_json::from_str(row.made.as_deref()?) {
                Ok(spec) => Made::Spec(spec),
                Err(e) => Made::Unread(Box::new(row.clone()), e.to_string()),
            };
            Some((row.name, made))
        };
        Ok(self.registry.services()?.into_iter().filter_map(read).collect())
    }

    /// Puts a configuration and what the API made into force: all of it or nothing. The configuration takes over what it
    /// names.
    fn put(&mut self, config: Config, made: &BTreeMap<String, Made>, actor: &str) -> Result<Adopted, Refusal> {
        let (data, how) = (&self.settings.data, (self.status, self.settings.json));
        let readers = readers(&config)?;
        let mut services = config.services.clone();
        let mut all: Vec<Declared> = services.iter().map(|service| declared(service, None)).collect();
        for (name, made) in made {
            if config.services.iter().any(|service| service.name == *name) {
                continue;
            }
            let spec = match made {
                Made::Spec(spec) => spec,
                Made::Unread(row, _) => {
                    all.push(row.declared());
                    continue;
                }
            };
            let service = spec.service(name, &config).map_err(|wrong| {
                let why = wrong.iter().map(|w| format!("{} {}", w.pointer, w.detail)).collect::<Vec<_>>().join(", ");
                Failure::bad_input(format_args!("{name}, which the API made, cannot be: {why}"))
                    .hint("name it in the configuration, which takes it over then")
            })?;
            all.push(declared(&service, serde_json::to_string(spec).ok()));
            services.push(service);
        }
        if all.len() > MAX_SERVICES {
            return Err(Failure::bad_input(format_args!("more than {MAX_SERVICES} services")).into());
        }
        let is_same = |lanes: &BTreeMap<String, Lane>, s: &Service| {
            // Whether it is wanted needs no other recording.
            lanes.get(&s.name).is_some_and(|lane| Service { enabled: true, ..s.clone() } == lane.service)
        };
        // What may fail comes first.
        let mut begun = Vec::new();
        for service in services.iter().filter(|s| s.enabled && !is_same(&self.lanes, s)) {
            let metrics = self.table.metrics.of(&service.name).unwrap_or_default();
            match Lane::begin(service, data, &self.access, how, metrics) {
                Ok(lane) => begun.push(lane),
                Err(e) => {
                    finish_all(begun, None);
                    return Err(e.into());
                }
            }
        }
        let adopted = match self.registry.adopt(&all, actor, WallTime::now()) {
            Ok(adopted) => adopted,
            Err(e) => {
                finish_all(begun, None);
                return Err(e.into());
            }
        };
        let mut gone = Vec::new();
        let names: Vec<String> = self.lanes.keys().cloned().collect();
        for name in names {
            let service = services.iter().find(|s| s.name == name);
            if service.is_none() {
                self.table.remove(&name);
            }
            if service.is_none_or(|s| !s.enabled || !is_same(&self.lanes, s)) {
                gone.extend(self.lanes.remove(&name));
            }
        }
        self.lanes.extend(begun.into_iter().map(|lane| (lane.service.name.clone(), lane)));
        self.table.set_readers(readers);
        self.table.metrics.set_services(self.lanes.iter().map(|(name, lane)| (name.as_str(), &lane.metrics)));
        self.closing.retain(|one| !one.is_finished());
        // Nobody waits for what is in flight there, until the gateway ends.
        let close = move || {
            let _ = finish_all(gone, Some(SIGHUP));
        };
        self.closing.extend(thread::Builder::new().name("assay-close".into()).spawn(close));
        self.config = config;
        for gone in self.services.keys().filter(|name| services.iter().all(|s| s.name != **name)) {
            self.table.remove(gone);
        }
        self.services = services.into_iter().map(|service| (service.name.clone(), service)).collect();
        for service in self.registry.services()? {
            self.route(&service)?;
        }
        self.told();
        Ok(adopted)
    }

    /// Goes on where the last gateway ended. What its last check saw is not known if it was killed meanwhile, so such a route
    /// waits for another one; checks that were due while nobody was there are spread over a minute.
    fn resume(&mut self, now: WallTime) {
        let rows = self.registry.services();
        let rows = self.worked(rows).unwrap_or_default();
        for row in &rows {
            if row.check_started_at.is_some() && row.state == State::Enabled {
                self.turn(row, State::Pending, Some("the last check was interrupted".to_owned()), "system");
            } else if matches!(row.state, State::Enabled | State::DisabledDrift) {
                self.catch_up(row);
            }
        }
        let is_overdue = |row: &&ServiceRow| {
            let timing = Timing::of(row);
            self.lanes.contains_key(&row.name) && timing.seen && !timing.interrupted && timing.is_due(now)
        };
        let overdue: Vec<String> = rows.iter().filter(is_overdue).map(|row| row.name.clone()).collect();
        for (n, name) in overdue.iter().enumerate() {
            let due = self.registry.due(name, Some(spread(now, n, overdue.len())));
            self.worked(due);
        }
    }

    /// The last gateway may have been killed when it knew something and had not written it down, and somebody may have
    /// decided something since: what was seen last is judged anew.
    fn catch_up(&mut self, row: &ServiceRow) {
        let latest = self.registry.latest_json(&row.name);
        let latest = self.worked(latest).flatten();
        let Some(lane) = self.lanes.get_mut(&row.name) else { return };
        let of_it = |seen: &Snapshot| seen.identity.endpoint == endpoint(&lane.service);
        lane.seen = latest.and_then(|json| Snapshot::read(json.as_bytes()).ok()).filter(of_it);
        let is_open = row.state == State::Enabled;
        match lane.judged(&self.config.admin.approvers) {
            Some(standing) if is_open && standing.found == Found::Changed && standing.only_removed => {
                (lane.confirming, lane.look_now) = (true, true);
            }
            Some(standing) if !is_open || standing.found.is_whole() => self.stands(&row.name, standing),
            _ if is_open => {
                let why = "what is approved of it is not known: it is looked at again";
                self.turn(row, State::Pending, Some(why.to_owned()), "system");
            }
            _ => {}
        }
    }

    /// Whether a call of the registry worked. If not, routes stay as they are in memory.
    fn worked<T>(&mut self, result: Result<T, DbError>) -> Option<T> {
        let works = result.is_ok();
        if let Err(e) = &result {
            self.table.metrics.registry_error();
            tracing::warn!("{e}");
            if self.registry_works {
                self.status
                    .warn(&format!("{e}; routes stay as they are, and what is not approved is closed all the same"));
            }
        }
        if works != self.registry_works {
            self.registry_works = works;
            self.told();
        }
        result.ok()
    }

    /// Has services looked at that are due, as many as may be at the same time.
    fn look(&mut self, now: WallTime) {
        for name in given_up(&self.looking, Instant::now()) {
            if let Some(service) = self.lanes.get(&name).map(|lane| lane.service.clone()) {
                let why = format!("the check took longer than {} s", LONGEST_LOOK.as_secs());
                self.looked(&Seen::unreachable(&service, why));
            }
            self.looking.remove(&name);
        }
        let rows = self.registry.services();
        if let Some(rows) = self.worked(rows) {
            self.rows = rows;
        }
        for row in self.rows.clone() {
            let Some(lane) = self.lanes.get_mut(&row.name) else { continue };
            let timing = Timing::of(&row);
            {
                let mut known = lane.metrics.known();
                known.last_success = row.last_success_at.as_deref().and_then(WallTime::parse);
                known.next_due = timing.due;
            }
            lane.look_now |= lane.is_doubted(Instant::now());
            let host = lane.service.url.host_str().unwrap_or_default().to_owned();
            let of_host = self.looking.values().filter(|look| look.host == host).count();
            // What is closed is looked at when the gateway starts: a decision about it cannot be judged otherwise.
            let is_closed = matches!(row.state, State::Pending | State::DisabledDrift);
            let is_unknown = is_closed && lane.seen.is_none() && row.failures == 0;
            let is_due = lane.look_now || is_unknown || timing.is_due(now);
            let rests = lane.rests_until.is_some_and(|until| Instant::now() < until);
            let is_full = self.looking.len() >= LOOKS || of_host >= LOOKS_OF_HOST;
            if !is_due || rests || is_full || self.looking.contains_key(&row.name) {
                continue;
            }
            lane.look_now = false;
            let service = lane.service.clone();
            let begins = self.registry.check_begins(&row.name, now);
            if self.worked(begins).is_none() {
                self.rest(&row.name);
            }
            let approvers = &self.config.admin.approvers;
            match Look::new(&service, &self.settings.data, approvers, row.latest.clone()) {
                Err(why) => self.looked(&Seen::unreachable(&service, why)),
                Ok(look) => {
                    self.looks += 1;
                    let (hears, number) = (self.hears.clone(), self.looks);
                    let run = move || {
                        let _ = hears.send(Heard::Looked(number, Box::new(look.look())));
                    };
                    let looking = Looking { number, host, began: Instant::now() };
                    match thread::Builder::new().name("assay-look".into()).spawn(run) {
                        Ok(_) => drop(self.looking.insert(row.name, looking)),
                        Err(e) => self.looked(&Seen::unreachable(&service, format!("no thread for a check: {e}"))),
                    }
                }
            }
        }
    }

    /// Nothing can be written of a service: it is not looked at all the time.
    fn rest(&mut self, name: &str) {
        if let Some(lane) = self.lanes.get_mut(name) {
            lane.rests_until = Some(Instant::now() + AGAIN);
        }
    }

    /// Takes up what a check saw, and tells who waits for it.
    fn looked(&mut self, seen: &Seen) {
        self.take_up_seen(seen);
        for done in self.waiting.remove(&seen.name).unwrap_or_default() {
            // Who does not wait any more need not know.
            let _ = done.send(Looked {
                found: seen.standing.found,
                reason: seen.standing.reason.clone(),
                ms: seen.ms,
                snapshot_hash: seen.offered.as_ref().ok().and_then(hash),
            });
        }
    }

    fn take_up_seen(&mut self, seen: &Seen) {
        self.looking.remove(&seen.name);
        let now = WallTime::now();
        seen.first_use.iter().for_each(|text| self.status.first_use(text));
        seen.warning.iter().for_each(|text| self.status.warn(text));
        let Some(lane) = self.lanes.get_mut(&seen.name).filter(|lane| endpoint(&lane.service) == seen.endpoint) else {
            // Nobody wants to know any more.
            return;
        };
        let standing = &seen.standing;
        lane.metrics.checked(standing.found);
        self.table.metrics.snapshot(Duration::from_millis(seen.ms));
        self.log.line(
            "check",
            json!({"ms": seen.ms, "outcome": standing.found, "reason": standing.reason, "service": seen.name}),
        );
        let to_confirm = standing.found == Found::Changed && standing.only_removed && !lane.confirming;
        lane.confirming = to_confirm;
        if let Ok(snapshot) = &seen.offered {
            lane.seen = Some(snapshot.clone());
            lane.stands(standing);
        }
        let row = self.registry.service(&seen.name);
        let row = self.worked(row).flatten().map(|row| self.as_it_stands(row));
        let Some(row) = row else {
            // What is not approved does not pass, whoever cannot write that down.
            if standing.found.is_whole() && !standing.clean && !to_confirm {
                self.close_unwritten(&seen.name, standing.reason.clone());
            }
            return self.rest(&seen.name);
        };
        let is_open = row.state == State::Enabled;
        let next = if to_confirm && is_open {
            Some(WallTime::from_millis(now.millis() + CONFIRM_MS))
        } else {
            Timing::of(&row).next(seen.began, standing.found.is_whole(), roll())
        };
        let (state, reason) = if to_confirm && is_open { (row.state, None) } else { standing.state(&row) };
        if is_open && state != State::Enabled {
            self.close_in_memory(&seen.name, reason.clone());
        }
        let ends = self.registry.check_ends(&seen.name, &seen.checked(&row, next), now);
        if self.worked(ends).is_none() {
            self.rest(&seen.name);
        }
        self.turn(&row, state, reason, "system");
    }

    /// A service as the registry has it, but for what could not be written there yet.
    fn as_it_stands(&self, row: ServiceRow) -> ServiceRow {
        match self.unwritten.get(&row.name).filter(|turn| turn.state != State::Enabled).cloned() {
            Some(Turn { state, reason, since, .. }) if row.state == State::Enabled => {
                ServiceRow { state, reason, since: since.to_string(), ..row }
            }
            _ => row,
        }
    }

    /// Closes a route of which the registry cannot even be asked.
    fn close_unwritten(&mut self, name: &str, reason: Option<String>) {
        self.close_in_memory(name, reason.clone());
        let (state, actor, since) = (State::DisabledDrift, "system".to_owned(), WallTime::now());
        let turn = Turn { state, reason, actor, since };
        self.unwritten.insert(name.to_owned(), turn);
    }

    /// Writes down how routes stand, once that can be done again.
    fn write(&mut self, now: Instant) {
        if self.unwritten.is_empty() || self.tried.is_some_and(|tried| now.duration_since(tried) < AGAIN) {
            return;
        }
        self.tried = Some(now);
        for (name, Turn { state, reason, actor, .. }) in self.unwritten.clone() {
            let row = self.registry.service(&name);
            let Some(row) = self.worked(row) else { return };
            self.unwritten.remove(&name);
            if let Some(row) = row.filter(|row| row.state != State::DisabledAdmin) {
                self.turn(&row, state, reason, &actor);
            }
        }
    }

    /// Somebody may have decided something.
    fn decided(&mut self) {
        let anew: Vec<(String, Standing)> = self
            .lanes
            .iter_mut()
            .filter_map(|(name, lane)| {
                lane.judged_anew(&self.config.admin.approvers).map(|standing| (name.clone(), standing))
            })
            .collect();
        for (name, standing) in anew {
            self.stands(&name, standing);
        }
    }

    /// A service stands so with what is decided about it.
    fn stands(&mut self, name: &str, standing: Standing) {
        let row = self.registry.service(name);
        let Some(row) = self.worked(row) else {
            if standing.found.is_whole() && !standing.clean {
                self.close_unwritten(name, standing.reason);
            } else if let Some(lane) = self.lanes.get_mut(name) {
                lane.decide_again();
            }
            return;
        };
        let Some(row) = row.map(|row| self.as_it_stands(row)) else { return };
        let (state, reason) = standing.state(&row);
        let Some((_, who)) = standing.decided.filter(|_| state == State::Enabled && row.state != state) else {
            return self.turn(&row, state, reason, "system");
        };
        let actor = format!("user:{who}");
        let seen = self.lanes.get(name).and_then(|lane| hash(lane.seen.as_ref()?));
        if let Some(seen) = seen {
            let approved = self.registry.approve(name, &seen, &actor, WallTime::now());
            self.worked(approved);
        }
        self.turn(&row, state, reason, &actor);
    }

    /// Has a route stand otherwise: one that closes is closed in memory first, one that opens is opened there last.
    fn turn(&mut self, row: &ServiceRow, state: State, reason: Option<String>, actor: &str) {
        if row.state == State::Enabled && state != State::Enabled {
            self.close_in_memory(&row.name, reason.clone());
        }
        let turned = self.registry.turn(&row.name, state, reason.as_deref(), actor, WallTime::now());
        match self.worked(turned) {
            // It stands so already, and may not in memory.
            Some(false) if self.unwritten.remove(&row.name).is_none() => return,
            Some(_) => {}
            None => {
                let turn = Turn { state, reason, actor: actor.to_owned(), since: WallTime::now() };
                return drop(self.unwritten.insert(row.name.clone(), turn));
            }
        }
        self.unwritten.remove(&row.name);
        let service = self.registry.service(&row.name);
        if let Some(service) = self.worked(service).flatten()
            && let Err(e) = self.route(&service)
        {
            self.status.warn(&e.to_string());
        }
        let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let text = match state {
            State::Enabled => "the route is open".to_owned(),
            State::Pending => format!("the route is not open yet{why}; assay gateway services {} says more", row.name),
            State::DisabledAdmin => format!("the route is closed{why}"),
            State::DisabledDrift => format!(
                "the route is closed{why}; assay surface --audit-dir {} diff {} shows it, and approve opens it",
                evidence(&self.settings.data, &row.name).display(),
                row.name
            ),
        };
        self.status.route(&row.name, state.as_str(), &text);
    }

    fn close_in_memory(&mut self, name: &str, reason: Option<String>) {
        let (state, since) = (State::DisabledDrift, WallTime::now().to_string());
        self.table.put(name, &Route { state, reason, since, target: None });
        if let Some(lane) = self.lanes.get_mut(name) {
            lane.close();
        }
    }

    /// Puts a route into the table as the registry has it.
    fn route(&mut self, service: &ServiceRow) -> Result<(), Failure> {
        let service = &self.as_it_stands(service.clone());
        let target = match self.lanes.get_mut(&service.name) {
            Some(lane) if service.state == State::Enabled => Some(lane.current()?),
            Some(lane) => {
                lane.close();
                None
            }
            None => None,
        };
        let (state, reason, since) = (service.state, service.reason.clone(), service.since.clone());
        self.table.put(&service.name, &Route { state, reason, since, target });
        Ok(())
    }

    /// Reads the configuration again. One that does not read changes nothing.
    fn reload(&mut self) {
        let read = Config::load(&self.settings.config).and_then(|config| {
            let listens = (&config.listen, &config.admin_listen) == (&self.config.listen, &self.config.admin_listen);
            if access(&config)? != self.access || !listens {
                self.status.warn(
                    "the configuration has another listen, token, hosts or origins: they are in force after a restart",
                );
            }
            self.read_tokens(&config)?;
            let adopted = self.take(&config)?;
            self.reread();
            self.lanes.values_mut().for_each(|lane| lane.look_now = true);
            Ok(adopted)
        });
        self.is_current = read.is_ok();
        match read {
            Ok(Adopted { added, changed, removed }) => self.status.configured(&format!(
                "the configuration was read again: {} new, {} changed, {} gone",
                added.len(),
                changed.len(),
                removed.len()
            )),
            Err(e) => self.status.warn(&format!("the configuration was read again and is not used: {e}")),
        }
        self.told();
    }

    /// Policies and credentials that may have changed without the configuration.
    fn reread(&mut self) {
        let mut others = Vec::new();
        for (name, lane) in &mut self.lanes {
            match lane.reread() {
                Ok(true) => others.push(name.clone()),
                Ok(false) => {}
                Err(e) => self.status.warn(&format!("{e}; what was read before stays in force")),
            }
        }
        for name in others {
            let service = self.registry.service(&name).ok().flatten();
            if let Some(Err(e)) = service.map(|service| self.route(&service)) {
                self.status.warn(&e.to_string());
            }
        }
    }

    /// Once a day: copies the registry, and removes what is not to be kept, of services without sessions that end, too.
    fn daily(&mut self, now: Instant) {
        if self.daily.is_some_and(|last| now.duration_since(last) < DAILY) {
            return;
        }
        self.daily = Some(now);
        let prunings: Vec<_> = self.lanes.values().filter_map(Lane::pruning).collect();
        let (data, status, copier) = (self.settings.data.clone(), self.status, self.registry.copier());
        let run = move || {
            let _ = sys::process::nice_this_thread(15);
            if let Err(e) = backup::daily(&data, copier) {
                status.warn(&format!("no copy of the registry could be made: {e}"));
            }
            for prune in prunings {
                prune();
            }
        };
        if let Err(e) = thread::Builder::new().name("assay-daily".into()).spawn(run) {
            tracing::warn!(error = %e, "cannot start a thread for what is done daily");
        }
    }

    /// Says how ready it is.
    fn told(&self) {
        let evidence = self.lanes.values().all(Lane::is_usable);
        self.table.set_ready(Ready { registry: self.registry_works, evidence, config: self.is_current });
    }

    /// Serves until a signal ends it, or a fault.
    fn serve(
        mut self,
        listener: Listener,
        beside: Vec<Listener>,
        inbox: &mpsc::Receiver<Heard>,
    ) -> Result<Exit, Failure> {
        let stop = Stop::default();
        let run = |name: &str, listener: Listener| {
            let stopped = stop.clone();
            let run = thread::Builder::new().name(name.into()).spawn(move || listener.run(&stopped));
            run.map_err(|e| Failure::failed(format_args!("cannot start a thread: {e}")))
        };
        let served = run("assay-http", listener)?;
        let beside = beside.into_iter().map(|listener| run("assay-admin", listener)).collect::<Result<Vec<_>, _>>()?;
        let mut ended = None;
        while !served.is_finished() {
            if ended.is_none() {
                self.write(Instant::now());
                self.decided();
                self.look(WallTime::now());
                self.daily(Instant::now());
            }
            match inbox.recv_timeout(TICK) {
                Ok(Heard::Looked(number, seen)) if ended.is_none() => {
                    // One that was given up has been answered.
                    if self.looking.get(&seen.name).is_some_and(|look| look.number == number) {
                        self.looked(&seen);
                    }
                }
                Ok(Heard::Signal(SIGHUP)) if ended.is_none() => self.reload(),
                Ok(Heard::Asked(job)) if ended.is_none() => job(&mut self),
                // Somebody cannot wait.
                Ok(Heard::Signal(SIGINT | SIGTERM)) if ended.is_some() => {
                    stop.end();
                    self.lanes.values().for_each(Lane::end);
                }
                Ok(Heard::Signal(signal @ (SIGINT | SIGTERM))) => {
                    ended = Some(signal);
                    self.lanes.values().for_each(Lane::drain);
                    stop.drain();
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let served = match served.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(Failure::failed(format_args!("the listener cannot run: {e}"))),
            Err(_) => Err(Failure::failed("the listener ended by a fault of its own")),
        };
        stop.drain();
        // What they were asked meanwhile is answered by nobody.
        while inbox.try_recv().is_ok() {}
        self.waiting.clear();
        for one in beside {
            let _ = one.join();
        }
        let exit = self.finish(ended);
        served.map(|()| if ended == Some(SIGINT) { Exit::Interrupted } else { exit })
    }

    fn finish(&mut self, ended: Option<i32>) -> Exit {
        for name in std::mem::take(&mut self.looking).into_keys() {
            let dropped = self.registry.check_dropped(&name, WallTime::now());
            self.worked(dropped);
        }
        let exit = finish_all(std::mem::take(&mut self.lanes).into_values().collect(), ended);
        for one in self.closing.drain(..) {
            let _ = one.join();
        }
        exit
    }
}

/// Ends services side by side: the worst that one of them ended with.
fn finish_all(lanes: Vec<Lane>, ended: Option<i32>) -> Exit {
    let exits = thread::scope(|scope| {
        let all: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(move || lane.finish(ended))).collect();
        all.into_iter().map(|one| one.join().unwrap_or(Exit::Failed)).collect::<Vec<_>>()
    });
    [Exit::Failed, Exit::Violation].into_iter().find(|bad| exits.contains(bad)).unwrap_or(Exit::Ok)
}

/// A random number from -1 to 1.
fn roll() -> f64 {
    // Without random numbers everything is looked at when it is due.
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    f64::from(random) / f64::from(u32::MAX) * 2.0 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_takes_too_long_is_given_up() {
        let began = Instant::now();
        let look = |number| Looking { number, host: String::new(), began: began + Duration::from_secs(number) };
        let looking = [("a".to_owned(), look(0)), ("b".to_owned(), look(60))].into();
        let after = |seconds| given_up(&looking, began + Duration::from_secs(seconds));
        assert_eq!((after(119), after(120)), (vec![], vec!["a".to_owned()]));
        assert_eq!(after(180), ["a", "b"]);
    }
}
