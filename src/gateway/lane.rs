//! A service that runs: its recording, and where its requests go.

use super::{
    config::Service,
    look::{Approvers, Counts, Measure, Standing},
    metrics::ServiceMetrics,
    reach::{Headers, credentials, destination, environment},
};
use crate::{
    bridge::{SessionLoss, Transport},
    error::{Exit, Failure},
    host,
    model::{Profile, surface::Snapshot},
    operate::evidence,
    paths::{self, AuditDir},
    proxy::{
        Compared, Options, Status, SurfaceOptions,
        http::{HttpOptions, Recorded},
    },
    record::{opening::PackInterval, redact::Cleartext},
    relay::http::{
        access::Access,
        connect::UpstreamHttp,
        route::{Target, TargetConfig},
    },
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// How long what is in flight has when a route closes, or the gateway ends.
pub const GRACE: Duration = Duration::from_secs(5);
/// A client that is told something new is a reason to look at a service once in so long.
const DOUBT: Duration = Duration::from_secs(30);
/// Where the sockets of commands are, in the data directory.
const SOCKETS: &str = "sockets";
/// How long what was cut has to be over.
const LAST: Duration = Duration::from_secs(1);

/// A service that is recorded.
pub struct Lane {
    /// As it is configured.
    pub service: Service,
    /// What is counted of it.
    pub metrics: Arc<ServiceMetrics>,
    recorded: Recorded,
    /// Its command, if it has one.
    served: Option<host::Served>,
    /// What requests get.
    inject: Headers,
    /// Where requests go, the newest last: those before it may still have calls in flight.
    targets: Vec<Target>,
    access: Access,
    /// What it offered when it was looked at last.
    pub seen: Option<Snapshot>,
    /// It is to be looked at as soon as that can be.
    pub look_now: bool,
    /// Something was gone when it was looked at; whether it stays so is not known yet.
    pub confirming: bool,
    /// Its last check could not be written down: until then it is not looked at again.
    pub rests_until: Option<Instant>,
    /// Reasons to look at it that were taken up, and when the last one was.
    doubts: (u64, Option<Instant>),
    /// Its audit directory.
    dir: AuditDir,
    /// By which a new decision about it is noticed.
    decisions: Stamp,
}

/// Length and time of change of a file.
type Stamp = Option<(u64, SystemTime)>;

fn stamp(dir: &AuditDir) -> Stamp {
    let m = std::fs::metadata(dir.approvals()).ok()?;
    Some((m.len(), m.modified().ok()?))
}

impl Lane {
    /// Begins to record a service.
    ///
    /// # Errors
    /// Bad input, or what the system does not have.
    pub fn begin(
        service: &Service,
        data: &Path,
        access: &Access,
        (status, json): (Status, bool),
        metrics: Arc<ServiceMetrics>,
    ) -> Result<Self, Failure> {
        let inject = injected(service)?;
        let served = serve(service, data, access)?;
        let options = Options {
            command: Vec::new(),
            audit_dir: evidence(data, &service.name),
            path: Vec::new(),
            profile: service.profile,
            policy: service.policy.clone(),
            dns: true,
            max_message: 10 << 20,
            server_id: Some(service.name.clone()),
            store_args: false,
            cleartext: Cleartext::default(),
            store_results: false,
            redact: None,
            store_command: false,
            keep: service.keep,
            live_content: false,
            witness: Some(metrics.clone()),
            store_limit: 1 << 20,
            auto_pack: true,
            interval: PackInterval::Session,
            checkpoint_every: crate::record::checkpoint::EVERY,
            shutdown_timeout: GRACE,
            json,
            surface: SurfaceOptions {
                enforce: service.profile == Profile::Guard,
                compared: Compared::Always,
                first: service.first,
                rules: service.rules.clone(),
                ..SurfaceOptions::default()
            },
        };
        let http = HttpOptions {
            url: service.url.clone(),
            destination: destination(service, served.as_ref().map(host::Served::path))?,
            http: UpstreamHttp::default(),
            inject: Vec::new(),
            listening: None,
            session_idle: Duration::from_secs(30 * 60),
            max_sessions: 1024,
            capture_size: 8 << 20,
            check: false,
            transport: Transport::Auto,
            session_loss: SessionLoss::Error,
        };
        let recorded = Recorded::begin(&options, &http, status)?;
        let service = service.clone();
        let dir = AuditDir::at(evidence(data, &service.name));
        let (access, decisions) = (access.clone(), stamp(&dir));
        let targets = Vec::new();
        let (seen, look_now, confirming) = (None, false, false);
        Ok(Self {
            service,
            metrics,
            recorded,
            served,
            inject,
            targets,
            access,
            seen,
            look_now,
            confirming,
            rests_until: None,
            doubts: (0, None),
            dir,
            decisions,
        })
    }

    /// The socket where its command is served.
    #[must_use]
    pub fn served(&self) -> Option<&Path> {
        self.served.as_ref().map(host::Served::path)
    }

    /// Where its requests go.
    ///
    /// # Errors
    /// A URL that no request can be made for.
    pub fn current(&mut self) -> Result<Target, Failure> {
        match self.targets.last() {
            Some(target) => Ok(target.clone()),
            None => self.other(),
        }
    }

    /// Where its requests go from now on; what is in flight stays where it is.
    fn other(&mut self) -> Result<Target, Failure> {
        self.targets.retain(|target| target.open() > 0);
        let target = Target::new(TargetConfig {
            inject: self.inject.clone(),
            access: self.access.clone(),
            is_one_of_several: true,
            ..self.recorded.target().clone()
        });
        let target = target.map_err(|e| {
            Failure::bad_input(format_args!("no request can be made for the url of {}: {e}", self.service.name))
        })?;
        self.targets.push(target.clone());
        Ok(target)
    }

    /// Whether anything can be written to its audit directory.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.recorded.is_usable()
    }

    /// Removes of its evidence what is not kept; for a thread that may take its time.
    #[must_use]
    pub fn pruning(&self) -> Option<impl FnOnce() + Send + use<>> {
        self.recorded.pruning()
    }

    /// Reads again what may have changed without the configuration: its policy, its credentials. Whether requests must go
    /// elsewhere because of that.
    ///
    /// # Errors
    /// A credential that is not there; what is in force stays so.
    pub fn reread(&mut self) -> Result<bool, Failure> {
        self.recorded.reload();
        let inject = injected(&self.service)?;
        if inject == self.inject {
            return Ok(false);
        }
        self.inject = inject;
        if !self.targets.is_empty() {
            self.other()?;
        }
        Ok(true)
    }

    /// Whether something crossed that is a reason to look at it now.
    pub fn is_doubted(&mut self, now: Instant) -> bool {
        let (taken_up, last) = self.doubts;
        let doubts = self.recorded.doubts();
        let is_new = doubts != taken_up && last.is_none_or(|last| now.duration_since(last) >= DOUBT);
        if is_new {
            self.doubts = (doubts, Some(now));
        }
        is_new
    }

    /// How what was seen last stands, if somebody has decided something since this was asked.
    pub fn judged_anew(&mut self, approvers: &Approvers) -> Option<Standing> {
        let now = stamp(&self.dir);
        if std::mem::replace(&mut self.decisions, now) == now {
            return None;
        }
        self.judged(approvers)
    }

    /// How what was seen last stands.
    #[must_use]
    pub fn judged(&self, approvers: &Approvers) -> Option<Standing> {
        let standing = Standing::of(&self.dir, &Measure::of(&self.service, approvers), self.seen.as_ref()?);
        self.stands(&standing);
        Some(standing)
    }

    /// What was decided could not be taken up: it is new once more.
    pub const fn decide_again(&mut self) {
        self.decisions = None;
    }

    /// What it offers stands so with what is approved.
    pub fn stands(&self, standing: &Standing) {
        let Counts { items, decisions } = standing.counts.clone();
        let mut known = self.metrics.known();
        (known.items, known.decisions) = (items, decisions);
    }

    /// Nothing new begins; streams are closed.
    pub fn drain(&self) {
        self.targets.iter().for_each(Target::drain);
    }

    /// Nothing is waited for.
    pub fn end(&self) {
        self.targets.iter().for_each(Target::end);
    }

    /// Nothing new begins; streams are closed, and what is in flight ends, or is cut after [`GRACE`]. Does not wait.
    pub fn close(&mut self) {
        self.drain();
        let targets = std::mem::take(&mut self.targets);
        // Without a thread, nothing is cut.
        let _ = std::thread::Builder::new().name("assay-close".into()).spawn(move || settle(&targets));
    }

    /// As [`close`](Self::close), and waits; then every session is sealed. What a proxy would have ended with.
    #[must_use]
    pub fn finish(self, ended: Option<i32>) -> Exit {
        self.drain();
        settle(&self.targets);
        drop(self.served);
        self.recorded.finish(ended)
    }
}

/// Serves the command of a service, if it has one, at a socket that only this user reaches.
fn serve(service: &Service, data: &Path, access: &Access) -> Result<Option<host::Served>, Failure> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let Some(started) = service.started.clone() else { return Ok(None) };
    let dir = data.join(SOCKETS);
    paths::create_private_dir(&dir)?;
    // What a dead gateway left is replaced; names are short, as those of sockets have to be.
    let path = dir.join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
    let command = host::Command {
        name: service.name.clone(),
        argv: started.command.iter().map(Into::into).collect(),
        env: Arc::new(move || environment(&started.env)),
        dir: started.cwd,
        max: started.max,
        idle: started.idle,
    };
    let served = host::Served::begin(command, &path, access);
    served.map(Some).map_err(|e| {
        Failure::failed(format_args!("the command of {} cannot be served at {}: {e}", service.name, path.display()))
    })
}

fn injected(service: &Service) -> Result<Headers, Failure> {
    if service.inject { credentials(service) } else { Ok(Vec::new()) }
}

/// Waits until everything that is in flight is over, and cuts what is not over in time.
fn settle(targets: &[Target]) {
    let wait = |limit: Duration| {
        let begun = Instant::now();
        while targets.iter().any(|target| target.open() > 0) && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait(GRACE);
    targets.iter().for_each(Target::end);
    wait(LAST);
}
