//! `assay gateway run`: one process that serves all services.

mod checks;
mod office;
mod turns;

use super::{
    api::{
        Admin,
        auth::Keys,
        desk::{Desk, Job, Looked, Refusal},
    },
    backup,
    config::{Config, MAX_SERVICES, MetricsFor, Service},
    credential::Reference,
    data::{ended_well, ends_well, hold, registry_failure, tell},
    lane::{GRACE, Lane},
    log::Log,
    look::Seen,
    notify::Manager,
    pages::Pages,
    reach::declared,
    registry::{Adopted, Declared, Registry, ServiceRow, SqliteRegistry, State},
    routes::{AdminRoutes, Hosts, Readers, Ready, Table},
    spec::Spec,
};
use crate::{
    db::DbError,
    error::{Exit, Failure},
    files,
    model::WallTime,
    operate::{LOCK, SOCKET},
    paths::AuditDir,
    proxy::{self, Status, http::cannot_listen},
    relay::http::{
        access::{Access, TOKEN_LENGTH, Token},
        listen::{Gateway as Front, ListenAddr, Listener, Stop},
    },
    sys,
    text::counted,
};
use arc_swap::ArcSwap;
use checks::Looking;
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
use turns::Turn;
use zeroize::Zeroizing;

/// How often it is looked whether anything is to be done.
const TICK: Duration = Duration::from_millis(250);
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
    sys::process::keep_memory_private();
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
    let admin = Admin::new(desk, keys.clone());
    let hosts = Hosts { pages: Arc::new(Pages::new(admin.shared())), api: Arc::new(admin) };
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
        unwritable: false,
        rows: Vec::new(),
        unwritten: BTreeMap::new(),
        tried: None,
        manager: Manager::of_environment(),
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
    let admin = || Arc::new(AdminRoutes { hosts: hosts.clone(), table: routes.clone() });
    match &config.admin_listen {
        None => routes.set_hosts(hosts.clone()),
        Some(listen) => beside.push(bind(listen, 1, admin()).map_err(|e| cannot_listen(listen, &e))?),
    }
    let socket = ListenAddr::Unix(settings.data.join(SOCKET));
    match bind(&socket, 1, admin()) {
        Ok(listener) => beside.push(listener),
        Err(e) => status.warn(&format!("{socket} cannot be used, so the API has no socket: {e}")),
    }
    if let Err(e) = gateway.take_with_tokens(&config) {
        gateway.finish(None);
        return Err(e);
    }
    match ended_well(&settings.data) {
        Ok(well) => gateway.resume(WallTime::now(), well),
        Err(e) => {
            gateway.finish(None);
            return Err(e);
        }
    }
    let url = listener.url();
    tell(&mut held, &url).map_err(|e| Failure::failed(format_args!("{LOCK}: {e}")))?;
    if config.allow_remote && !listen.is_local() {
        status.warn(proxy::http::READABLE);
    }
    status.listening(&url, &counted(gateway.services.len(), "service"));
    gateway.manager.tell("READY=1");
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
    /// What was to be written to the registry last could not be.
    unwritable: bool,
    /// The services as the registry had them when it worked last.
    rows: Vec<ServiceRow>,
    /// How routes stand that the registry does not know of yet.
    unwritten: BTreeMap<String, Turn>,
    /// When it was tried last to write that down.
    tried: Option<Instant>,
    manager: Manager,
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

    /// Whether something could be written to the registry. Until that is so again, it does not work: reading says nothing of it.
    fn wrote<T>(&mut self, result: Result<T, DbError>) -> Option<T> {
        self.unwritable = result.is_err();
        self.worked(result)
    }

    /// Whether a call of the registry worked. If not, routes stay as they are in memory.
    fn worked<T>(&mut self, result: Result<T, DbError>) -> Option<T> {
        let works = result.is_ok() && !self.unwritable;
        if let Err(e) = &result {
            self.table.metrics.registry_error();
            tracing::warn!("{e}");
            if self.registry_works {
                self.status
                    .warn(&format!("{e}; routes stay as they are, and what is not approved is closed all the same"));
            }
        }
        self.registry_works = works;
        result.ok()
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
            let adopted = self.take_with_tokens(&config)?;
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
            if let Err(e) = backup::daily(&data, copier, WallTime::now()) {
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
        let has_room = files::has_room(&self.settings.data);
        let (registry, evidence) =
            (self.registry_works && has_room, self.lanes.values().all(Lane::is_usable) && has_room);
        self.table.set_ready(Ready { registry, evidence, config: self.is_current });
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
            self.manager.alive(Instant::now());
            if ended.is_none() {
                self.write(Instant::now());
                self.told();
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
                    self.manager.tell("STOPPING=1");
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
            self.wrote(dropped);
        }
        let exit = finish_all(std::mem::take(&mut self.lanes).into_values().collect(), ended);
        for one in self.closing.drain(..) {
            let _ = one.join();
        }
        self.tried = None;
        self.write(Instant::now());
        if ended.is_some()
            && self.unwritten.is_empty()
            && self.registry_works
            && let Err(e) = ends_well(&self.settings.data)
        {
            tracing::warn!(error = %e, "the next gateway looks at every service before its route opens");
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
