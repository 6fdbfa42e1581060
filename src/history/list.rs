//! Finding packs and sessions: audit directories are listed, `session.json` is read, nothing is verified here.

use super::{CallCounts, History};
use crate::{
    files,
    filter::{Facts, Filter, STATES},
    live::{discovery, protocol::RunCard},
    model::{
        self, AuditEvent, WallTime,
        line::text,
        pack::{MANIFEST, MANIFEST_VERSION, PACK_VERSION, SESSION},
        reading::{self, Reading},
        receipt::StartMembers,
        version,
    },
    pack::verify::source::PackDir,
    paths::{self, AuditDir, DEFAULT_AUDIT_DIR, PACK_PREFIX, SessionPaths},
    record::{card::Card, mark::NotOurs},
    sys::process,
    text::visible,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::Read as _,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

/// Bytes of a document that are read to say what a pack is.
const MAX_DOC: u64 = 4 << 20;
/// Bytes at the end of a segment in which its last event is looked for.
const TAIL: u64 = 64 << 10;
/// Packs that are reported at once.
const BATCH: usize = 200;

/// The state of a session, as its files show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It has a pack.
    Packed,
    /// There is a directory for its pack, but no manifest in it.
    Half,
    /// It is being recorded.
    Recording,
    /// Its pack is being built.
    Sealing,
    /// Its pack could not be built, or does not verify.
    Failed(String),
    /// It has its end and no pack.
    Ended,
    /// Something of it is of a later version: it is left alone.
    TooNew(String),
    /// It has no end, and is no longer being recorded.
    Died,
    /// The same, but the user directory has no mark of it: `assay recover` leaves it alone.
    NotOurs,
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where its pack is or would be, which identifies the session.
    pub pack: PathBuf,
    /// Session id as in evidence, `mcp_…`; of a pack that does not have it, its `run_id`, or empty.
    pub session: String,
    /// The server's id: from `--server-id`, or derived from its command.
    pub server: String,
    /// When it began, as it says; empty if nothing does.
    pub started: String,
    /// The server, as it names itself, with its version; empty if nothing tells it.
    pub server_info: String,
    /// The client, as it names itself, with its version; empty if nothing tells it.
    pub client: String,
    /// Number of receipts; `None` until it is known.
    pub receipts: Option<u64>,
    /// Counts of its calls; `None` where nothing tells them yet.
    pub counts: Option<CallCounts>,
    /// Whether everything was recorded, as its pack says; `None` without one.
    pub complete: Option<bool>,
    /// Bytes in the files of the pack, or of the session.
    pub bytes: u64,
    /// The state of the session.
    pub standing: Standing,
    /// Audit events and receipts of the session, where they are.
    pub files: Option<(PathBuf, PathBuf)>,
    /// A number made from names, lengths and times of the pack's files: if it changes, they may have changed.
    pub stamp: u64,
}

impl Entry {
    /// Its short name: the last digits of its session, or its directory.
    #[must_use]
    pub fn name(&self) -> String {
        let dir = self.pack.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        dir.strip_prefix(PACK_PREFIX).map(str::to_owned).unwrap_or(dir)
    }

    /// The state of the session in one word.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        match (&self.standing, self.complete) {
            (Standing::Packed, Some(true)) => "complete",
            (Standing::Packed, _) => "incomplete",
            (Standing::Half, _) => "half-written",
            (Standing::Recording, _) => "live",
            (Standing::Sealing, _) => "sealing",
            (Standing::Failed(_), _) => "failed",
            (Standing::Ended, _) => "ended",
            (Standing::TooNew(_), _) => "newer",
            (Standing::Died, _) => "died",
            (Standing::NotOurs, _) => "not yours",
        }
    }

    /// The server: its id, and behind it what it calls itself.
    #[must_use]
    pub fn server_in_words(&self) -> String {
        if self.server_info.is_empty() {
            self.server.clone()
        } else {
            format!("{} ({})", self.server, self.server_info)
        }
    }

    /// Whether a filter for sessions lets it through.
    #[must_use]
    pub fn passes(&self, filter: &Filter) -> bool {
        filter.is_empty() || {
            let ids = vec![self.session.clone(), self.name(), self.pack.to_string_lossy().into_owned()];
            let (server, client, state) = (&*self.server, &*self.client, self.state());
            debug_assert!(STATES.contains(&state), "{state}");
            filter.passes(&Facts { server, client, state, ids, ..Facts::default() })
        }
    }

    /// What sorts it: the newest first.
    #[must_use]
    pub fn rank(&self) -> (std::cmp::Reverse<String>, PathBuf) {
        (std::cmp::Reverse(self.started.clone()), self.pack.clone())
    }
}

/// Where to look for sessions.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The audit directory that was named, or the default one.
    pub audit_dir: Option<PathBuf>,
    /// The user directory; `None` is found out.
    pub home: Option<PathBuf>,
    /// Look nowhere else than in `audit_dir`.
    pub only: bool,
    /// Where live sessions have their cards; `None` looks in the usual places.
    pub run_dirs: Option<Vec<PathBuf>>,
}

impl Places {
    /// Those of this user; in tests none, so that they never see the files of the user who runs them.
    #[must_use]
    pub fn of_user() -> Self {
        if cfg!(test) {
            let nowhere = PathBuf::from("/nonexistent");
            return Self {
                audit_dir: Some(nowhere.clone()),
                home: Some(nowhere),
                run_dirs: Some(Vec::new()),
                only: false,
            };
        }
        Self::default()
    }

    /// Where a command looks: only in the audit directory that it was given, or everywhere.
    #[must_use]
    pub fn of_command(audit_dir: Option<&Path>) -> Self {
        Self { audit_dir: audit_dir.map(Path::to_owned), only: audit_dir.is_some(), ..Self::of_user() }
    }

    /// The audit directories that are there: the one that was named or the default one, then those that this user
    /// recorded in.
    #[must_use]
    pub fn roots(&self) -> Vec<PathBuf> {
        let first = self.audit_dir.as_deref().unwrap_or(Path::new(DEFAULT_AUDIT_DIR));
        let mut roots: Vec<PathBuf> = std::fs::canonicalize(first).into_iter().collect();
        if !self.only
            && let Some(home) = self.home()
        {
            roots.extend(super::directories(&home).unwrap_or_default());
        }
        let mut seen = HashSet::new();
        roots.retain(|root| seen.insert(root.clone()));
        roots
    }

    /// The user directory.
    fn home(&self) -> Option<PathBuf> {
        self.home.clone().or_else(|| paths::assay_home().ok())
    }
}

/// What the search says.
#[derive(Debug)]
pub enum Found {
    /// Some of them; what is known of the same pack is replaced.
    Some(Vec<Entry>),
    /// What is wrong on the way.
    Problem(String),
    /// All sessions were listed.
    All,
}

/// Looks everywhere; stops when `go` says so.
pub fn find(places: &Places, tell: &dyn Fn(Found), stop: &dyn Fn() -> bool) {
    let home = places.home();
    if let Some(named) = &places.audit_dir
        && let Err(e) = std::fs::canonicalize(named)
    {
        tell(Found::Problem(format!("{}: {e}", named.display())));
    }
    let roots = places.roots();
    let run_dirs = places.run_dirs.clone().unwrap_or_else(discovery::run_dirs);
    let live: Vec<RunCard> = run_dirs.iter().flat_map(|dir| discovery::live_in(dir)).collect();
    let live: HashSet<String> = live.iter().map(|c| c.card.session_id.to_string()).collect();
    for root in &roots {
        if stop() {
            return;
        }
        directory(&AuditDir::at(root).remembered_in(home.clone()), &live, tell, stop);
    }
    if let Some(home) = home.as_deref().filter(|home| home.join(super::DIRECTORIES).is_file()) {
        from_history(home, &roots, &live, tell);
    }
    tell(Found::All);
}

/// One audit directory.
fn directory(dir: &AuditDir, live: &HashSet<String>, tell: &dyn Fn(Found), stop: &dyn Fn() -> bool) {
    let mut all: BTreeMap<PathBuf, Option<SessionPaths>> = BTreeMap::new();
    for name in names(&dir.audit()) {
        if let Some(paths) = dir.session_of_segment(&name) {
            all.insert(paths.pack.clone(), Some(paths));
        }
    }
    for name in names(&dir.packs()).into_iter().filter(|n| !n.starts_with('.')) {
        let path = dir.packs().join(name);
        if std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir()) {
            all.entry(path).or_default();
        }
    }
    let mut batch = Vec::new();
    // The newest first: names begin with the time.
    for (pack, paths) in all.into_iter().rev() {
        if stop() {
            return;
        }
        batch.push(entry(dir, &pack, paths.as_ref(), live));
        if batch.len() == BATCH {
            tell(Found::Some(std::mem::take(&mut batch)));
        }
    }
    tell(Found::Some(batch));
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect()
}

/// When the session of a pack began, as its `session.json` says.
pub(super) fn started(pack: &Path) -> Option<String> {
    let doc = document(&PackDir::open(pack).ok()?, SESSION).filter(is_session)?;
    doc["started_at"].as_str().map(str::to_owned)
}

/// The server of a pack, as it names itself, with its version; none if the pack does not tell it.
#[must_use]
pub fn server_of(pack: &Path) -> Option<String> {
    let doc = document(&PackDir::open(pack).ok()?, SESSION).filter(is_session)?;
    Some(peer(&doc["server_info"])).filter(|name| !name.is_empty())
}

/// A client or a server, as it names itself.
fn peer(info: &Value) -> String {
    let text = |name: &str| info[name].as_str().unwrap_or_default();
    format!("{} {}", text("name"), text("version")).trim().to_owned()
}

/// Whether a document is a `session.json` of a version that is read.
fn is_session(doc: &serde_json::Value) -> bool {
    doc["v"].as_u64().is_some_and(|v| (1..=u64::from(model::session::SESSION_VERSION)).contains(&v))
}

fn entry(dir: &AuditDir, pack: &Path, paths: Option<&SessionPaths>, live: &HashSet<String>) -> Entry {
    let mut e = Entry {
        pack: pack.to_owned(),
        session: paths.map(|p| p.id.to_string()).unwrap_or_default(),
        server: String::new(),
        started: paths.map_or_else(|| started_of_name(pack), |p| started_of_stem(&p.stem)),
        server_info: String::new(),
        client: String::new(),
        receipts: None,
        counts: None,
        complete: None,
        bytes: 0,
        standing: Standing::Half,
        files: paths.map(|p| (p.segment.clone(), p.receipts.clone())),
        stamp: 0,
    };
    if let Ok(dir) = PackDir::open(pack) {
        (e.bytes, e.stamp) = weigh(pack);
        if let Some(doc) = document(&dir, SESSION).filter(is_session) {
            let text = |name: &str| doc[name].as_str().map(str::to_owned);
            e.server = text("server_id").unwrap_or_default();
            e.started = text("started_at").unwrap_or(e.started);
            e.session = text("session_id").unwrap_or(e.session);
            e.receipts = doc["receipt_count"].as_u64();
            e.server_info = peer(&doc["server_info"]);
            e.client = peer(&doc["client_info"]);
            e.complete = doc["session_complete"].as_bool();
            let count = |name: &str| doc["counts"][name].as_u64();
            e.counts = count("calls").map(|calls| {
                let failed = count("errors").unwrap_or_default() + count("timeouts").unwrap_or_default();
                CallCounts { calls, denied: count("denied").unwrap_or_default(), failed }
            });
        }
        if let Some(doc) = document(&dir, MANIFEST).filter(|doc| !is_later_manifest(doc)) {
            let text = |name: &str| doc["attestation"][name].as_str().map(str::to_owned);
            if e.session.is_empty() {
                e.session = text("run_id").unwrap_or_default();
            }
            if e.started.is_empty() {
                e.started = text("timestamp_start").unwrap_or_default();
            }
            e.receipts = e.receipts.or_else(|| doc["receipt_count_expected"].as_u64());
        }
        if dir.open_file(MANIFEST).is_ok() {
            e.standing = Standing::Packed;
            return e;
        }
    }
    if let Some(paths) = paths {
        of_session(&mut e, dir, paths, live);
    }
    e
}

/// The entry of a session without a pack, from its files.
fn of_session(e: &mut Entry, dir: &AuditDir, paths: &SessionPaths, live: &HashSet<String>) {
    let len = |path: &Path| std::fs::symlink_metadata(path).map_or(0, |m| m.len());
    e.bytes += len(&paths.segment) + len(&paths.receipts);
    let card = Card::reading(&paths.files, &paths.card).ok();
    let recorded = || match &card {
        Some(Reading::Readable(c)) => c.session_id == paths.id && process::is_alive(c.pid, c.pid_started),
        _ => false,
    };
    let receipt = files::first_line(&paths.receipts, TAIL);
    let newer_receipt = receipt.as_deref().and_then(reading::newer_receipt);
    let newer_event = || files::first_line(&paths.segment, TAIL).and_then(|line| reading::newer::<AuditEvent>(&line));
    let newer_card = match &card {
        Some(Reading::TooNew(source)) => Some(source.clone()),
        _ => None,
    };
    let too_new = newer_card.or_else(|| newer_receipt.clone()).or_else(newer_event);
    e.standing = if live.contains(&e.session) || recorded() {
        Standing::Recording
    } else if let Some(source) = too_new {
        Standing::TooNew(source.to_string())
    } else if has_end(&paths.segment) {
        if e.pack.is_dir() { Standing::Half } else { Standing::Ended }
    } else {
        match dir.mark(paths.id) {
            Ok(_) => Standing::Died,
            Err(why @ NotOurs::TooNew { .. }) => Standing::TooNew(why.to_string()),
            Err(_) => Standing::NotOurs,
        }
    };
    if let Some(first) = receipt.filter(|_| newer_receipt.is_none()) {
        let Some(first) = StartMembers::of_line(&first) else { return };
        e.server = text(first.server_id).unwrap_or_default().into_owned();
        if let Some(started) = text(first.started_at) {
            e.started = started.into_owned();
        }
    }
}

fn has_end(segment: &Path) -> bool {
    let Ok(file) = files::plain(segment) else { return false };
    let len = file.metadata().map_or(0, |m| m.len());
    let mut tail = vec![0; TAIL.min(len) as usize];
    let from = len - tail.len() as u64;
    file.read_exact_at(&mut tail, from).is_ok() && memchr::memmem::rfind(&tail, b"\"event\":\"chain_end\"").is_some()
}

fn document(dir: &PackDir, name: &str) -> Option<Value> {
    let (file, len) = dir.open_file(name).ok()?;
    let mut bytes = Vec::new();
    (len <= MAX_DOC).then(|| file.take(MAX_DOC).read_to_end(&mut bytes)).and_then(Result::ok)?;
    serde_json::from_slice(&bytes).ok()
}

/// Whether nothing of a manifest is to be taken for what it was so far; verification says so.
fn is_later_manifest(doc: &Value) -> bool {
    [("manifest_version", MANIFEST_VERSION), ("pack_version", PACK_VERSION)]
        .into_iter()
        .any(|(member, known)| version::newer_text("pack", doc[member].as_str().unwrap_or_default(), known).is_some())
}

/// The [`Entry::stamp`] of a pack.
pub(super) fn stamp(pack: &Path) -> u64 {
    weigh(pack).1
}

/// Bytes in a directory, and a number that changes with its files.
fn weigh(dir: &Path) -> (u64, u64) {
    let Ok(entries) = std::fs::read_dir(dir) else { return (0, 0) };
    let mut files: Vec<_> = entries
        .flatten()
        .filter_map(|e| e.path().symlink_metadata().ok().map(|m| (e.file_name(), m.len(), m.mtime(), m.mtime_nsec())))
        .collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    (files.iter().map(|f| f.1).sum(), hasher.finish())
}

/// `20260315T113000Z` of a stem, in the form of evidence.
fn started_of_stem(stem: &str) -> String {
    let t = stem.split('_').next().unwrap_or_default();
    let part = |r: std::ops::Range<usize>| t.get(r).unwrap_or_default();
    let whole =
        format!("{}-{}-{}T{}:{}:{}.000Z", part(0..4), part(4..6), part(6..8), part(9..11), part(11..13), part(13..15));
    WallTime::parse(&whole).map(|t| t.to_string()).unwrap_or_default()
}

fn started_of_name(pack: &Path) -> String {
    let name = pack.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    started_of_stem(name.strip_prefix(PACK_PREFIX).unwrap_or_default())
}

/// What only the history knows: the receipts of sessions without a pack.
fn from_history(home: &Path, roots: &[PathBuf], live: &HashSet<String>, tell: &dyn Fn(Found)) {
    let read = || -> Result<Vec<Entry>, super::HistoryError> {
        let mut h = History::open(home, super::PATIENCE)?;
        let refreshed = super::refresh(&mut h, home)?;
        for problem in refreshed.problems.iter().take(3) {
            tell(Found::Problem(problem.clone()));
        }
        let rows = h.sessions()?;
        Ok(rows
            .into_iter()
            .filter(|row| !row.pack.is_dir() && roots.iter().any(|root| Path::new(&row.audit_dir) == root))
            .filter_map(|row| {
                let dir = AuditDir::at(&row.audit_dir).remembered_in(Some(home.to_owned()));
                let paths = dir.session_of_pack(row.pack.file_name()?.to_str()?)?;
                let mut e = entry(&dir, &row.pack, Some(&paths), live);
                e.receipts = Some(row.receipts);
                e.counts = Some(row.counts);
                e.server = row.server_id;
                Some(e)
            })
            .collect())
    };
    match read() {
        Ok(entries) => tell(Found::Some(entries)),
        Err(e) => tell(Found::Problem(visible(&e.to_string()).into_owned())),
    }
}
