//! The card of a live session in `live/`: how a dashboard finds it, and what recovery starts from. Nothing in it is
//! secret.

use super::{
    recorder::{HttpBinding, Origin, Setup},
    redact::Cleartext,
};
use crate::{
    files::{self, Tree},
    model::{
        Profile, RecorderKind, SessionId, Transport, WallTime, Word,
        reading::{self, Reading, versioned},
        receipt::PeerInfo,
    },
    paths::{AuditDir, SessionPaths},
    relay::capture,
    sys::process,
};
use serde::{Deserialize, Serialize, Serializer};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Format version of a card.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | sessions over HTTP: `http` |
/// | 3 | a log beside rings: `source` may be `rings+log`; `continues` and `key_lasts` in `binding` |
/// | 4 | recordings of a server by itself: `recorder` |
/// | 5 | the rules by which a surface is compared: `surface_rules` |
pub const CARD_VERSION: u32 = 5;

/// The largest card that is read, in bytes.
pub const MAX_CARD: u64 = 1 << 20;

/// Bytes of the longest rules that a card holds.
const MAX_RULES: usize = 256 << 10;

/// How the name of a card under construction ends; the writer's pid and a dot are before it.
const STAGED: &str = ".new";

/// Removes unfinished cards in `live/` whose writers were killed.
pub fn sweep(dir: &AuditDir) {
    let live = dir.live();
    for name in dir.files().names(&live).unwrap_or_default() {
        let pid = name.to_str().and_then(|name| {
            let (session, pid) = name.strip_suffix(STAGED)?.split_once('.')?;
            capture::is_session(session).then(|| pid.parse().ok())?
        });
        let path = live.join(&name);
        let is_newer = || {
            let text = dir.files().read(&path, MAX_CARD);
            text.is_ok_and(|text| reading::newer::<Card>(&text).is_some())
        };
        if pid.is_some_and(|pid| !process::is_alive(pid, None)) && !is_newer() {
            let _ = dir.files().remove(&path);
        }
    }
}

/// Where the process of a session keeps its captures, as its card says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captures {
    /// Ring files, client to server first; `None` for one that does not survive the process.
    pub rings: [Option<PathBuf>; 2],
    /// Ring file of a guard's decisions; `None` without a guard, or where it does not survive the process.
    pub decisions: Option<PathBuf>,
    /// Spool files, client to server first.
    pub spools: [PathBuf; 2],
    /// The log of exchanges, where the session is over HTTP: it has no rings of its own.
    pub log: Option<LogPlace>,
}

/// Where the exchanges of a session over HTTP are logged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogPlace {
    /// The log's file; `None` for one that does not survive the process.
    pub file: Option<PathBuf>,
    /// The process, as its exchanges are counted in it.
    pub process: u64,
    /// Number of the route that the session's requests take.
    pub route: u32,
    /// The messages of the session are in rings; the log has what a bridge made of them.
    pub is_beside_rings: bool,
}

/// `source` of a session over a bridge.
const RINGS_AND_LOG: &str = "rings+log";

/// What the card of a session over HTTP adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpCard {
    /// What the session was bound by.
    pub binding: HttpBinding,
    /// The log of exchanges; `null` for one that does not survive the process. Only its name matters.
    #[serde(serialize_with = "texts")]
    pub log: Option<PathBuf>,
    /// The process, 16 hex digits.
    pub process: String,
    /// Number of the route that its requests take.
    pub route: u32,
    /// Where what crosses is kept: `log`, or `rings+log`.
    pub source: String,
    /// A [`Transport`].
    pub transport: Transport,
    /// The server's URL without user information, query and fragment; only with `--store-args`.
    pub url: Option<String>,
}

/// Where the captures of a session are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Ring files that are there, client to server first.
    pub rings: [Option<PathBuf>; 2],
    /// Ring file of a guard's decisions, if it is there.
    pub decisions: Option<PathBuf>,
    /// The log of a bridge, if it is there.
    pub log: Option<PathBuf>,
    /// Where spool files are if there are any, client to server first.
    pub spools: [Option<PathBuf>; 2],
}

/// The name of a capture's file, if this path ends in one of this kind (`c2s.ring`).
fn name_of<'a>(path: &'a Path, kind: &str) -> Option<&'a str> {
    let name = path.file_name()?.to_str()?;
    let (session, rest) = name.split_once('.')?;
    (capture::is_session(session) && rest == kind).then_some(name)
}

/// The card of a session, the file `live/<session>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The client as it names itself, once it did.
    #[serde(default)]
    pub client_info: Option<PeerInfo>,
    /// The server command, only with `--store-command`.
    pub command: Option<Vec<String>>,
    /// `sha256:` of the server command.
    pub command_digest: String,
    /// The session before it in the same process (rolling packs).
    #[serde(default)]
    pub continues: Option<SessionId>,
    /// Ring file of a guard's decisions; `null` without a guard, or where it does not survive the process.
    #[serde(default, serialize_with = "texts")]
    pub decisions: Option<PathBuf>,
    /// What a session over HTTP adds; absent over stdio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCard>,
    /// Process id of the proxy.
    pub pid: u32,
    /// When that process started, in the system's own unit; tells a reused pid.
    pub pid_started: Option<u64>,
    /// `sha256:` of the policy file in force; `null` where there is none.
    #[serde(default)]
    pub policy_hash: Option<String>,
    /// How the policy was applied: audit or guard.
    pub profile: Profile,
    /// Protocol version agreed, once it was.
    #[serde(default)]
    pub protocol_version: Option<String>,
    /// `library` for a recording that a server makes of itself; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorder: Option<Word<RecorderKind>>,
    /// Ring files, client to server first; `null` for a capture that does not survive the process.
    #[serde(serialize_with = "texts")]
    pub rings: [Option<PathBuf>; 2],
    /// The server's id: from `--server-id`, or derived from its command.
    pub server_id: String,
    /// The server as it names itself, once it did.
    #[serde(default)]
    pub server_info: Option<PeerInfo>,
    /// Id of the session.
    pub session_id: SessionId,
    /// The Unix socket on which it can be watched, once there is one.
    #[serde(default, serialize_with = "texts")]
    pub socket: Option<PathBuf>,
    /// Spool files, client to server first.
    #[serde(serialize_with = "texts")]
    pub spools: [PathBuf; 2],
    /// When the session began.
    pub started_at: WallTime,
    /// The same on the monotonic clock, ns.
    pub started_mono_ns: u64,
    /// The rules by which the server's surface is compared, as a rules file; absent for the defaults, and for what would be too
    /// long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface_rules: Option<String>,
    /// Format version of the card: [`CARD_VERSION`], or an older one.
    #[serde(deserialize_with = "reading::known::<Card, _>")]
    pub v: u32,
}

versioned!(Card, "card", from 1, to CARD_VERSION, "v");

impl Card {
    /// The card of this process's session.
    #[must_use]
    pub fn of(setup: &Setup, session: SessionId, started_ns: u64, started_at: WallTime, captures: &Captures) -> Self {
        let pid = std::process::id();
        let http = setup.http.as_ref().map(|bound| {
            let log = captures.log.clone().unwrap_or_default();
            HttpCard {
                binding: bound.clone(),
                log: log.file,
                process: format!("{:016x}", log.process),
                route: log.route,
                source: if log.is_beside_rings { RINGS_AND_LOG } else { "log" }.to_owned(),
                transport: setup.transport,
                url: setup.origin.url().map(str::to_owned),
            }
        });
        let surface_rules = setup.surface.as_ref().and_then(|surface| surface.rules().text());
        let surface_rules = surface_rules.filter(|text| text.len() <= MAX_RULES);
        Self {
            client_info: None,
            command: setup.origin.command().cloned(),
            command_digest: setup.origin.digest().to_owned(),
            continues: None,
            decisions: captures.decisions.clone(),
            v: match (setup.is_library(), &http) {
                _ if surface_rules.is_some() => CARD_VERSION,
                (true, _) => 4,
                (false, Some(_)) => 3,
                (false, None) => 1,
            },
            recorder: setup.is_library().then_some(RecorderKind::Library.into()),
            http,
            pid,
            pid_started: process::start_time(pid),
            policy_hash: setup.policy_hash.clone(),
            profile: setup.profile,
            protocol_version: None,
            rings: captures.rings.clone(),
            server_id: setup.server_id.clone(),
            server_info: None,
            session_id: session,
            socket: None,
            spools: captures.spools.clone(),
            started_at,
            started_mono_ns: started_ns,
            surface_rules,
        }
    }

    /// Writes it so that a reader sees all of it or nothing. It is not synced: what it points to does not survive a
    /// power cut either.
    ///
    /// # Errors
    /// An I/O error.
    pub fn write(&self, paths: &SessionPaths) -> io::Result<()> {
        let staged = paths.card.with_extension(format!("{}{STAGED}", self.pid));
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        paths.files.replace(&staged, &paths.card, &bytes, false)
    }

    /// Where its captures are. A path in a card is not followed, whoever wrote it: the names of the files are looked
    /// for in the directories where captures are.
    #[must_use]
    pub fn places(&self, dir: &AuditDir) -> Places {
        let mut dirs = capture::search_dirs(&dir.live());
        dirs.retain(|dir| files::is_own_dir(dir));
        let ring = |said: Option<&PathBuf>, kind: &str| {
            let name = name_of(said?, kind)?;
            dirs.iter().map(|dir| dir.join(name)).find(|path| path.symlink_metadata().is_ok())
        };
        let spool = |said: &Path, kind: &str| name_of(said, kind).map(|name| dir.live().join(name));
        Places {
            rings: [ring(self.rings[0].as_ref(), "c2s.ring"), ring(self.rings[1].as_ref(), "s2c.ring")],
            decisions: ring(self.decisions.as_ref(), "dec.ring"),
            log: self.bridge().and_then(|http| ring(http.log.as_ref(), "log.ring")),
            spools: [spool(&self.spools[0], "c2s.spool"), spool(&self.spools[1], "s2c.spool")],
        }
    }

    /// What a session over a bridge adds.
    #[must_use]
    pub fn bridge(&self) -> Option<&HttpCard> {
        self.http.as_ref().filter(|http| http.source == RINGS_AND_LOG)
    }

    /// What recovery needs to know of the proxy that died.
    #[must_use]
    pub fn setup(&self) -> Arc<Setup> {
        Arc::new(Setup {
            profile: self.profile,
            transport: self.http.as_ref().map_or(Transport::Stdio, |http| http.transport),
            server_id: self.server_id.clone(),
            origin: match &self.http {
                _ if self.recorder.is_some() => Origin::Process { digest: self.command_digest.clone() },
                Some(http) => Origin::Url { digest: self.command_digest.clone(), url: http.url.clone() },
                None => Origin::Command { digest: self.command_digest.clone(), argv: self.command.clone() },
            },
            http: self.http.as_ref().map(|http| http.binding.clone()),
            store_args: false,
            cleartext: Cleartext::default(),
            store_results: false,
            store_limit: 0,
            redact: None,
            policy_hash: self.policy_hash.clone(),
            surface: None,
            witness: None,
        })
    }

    /// Reads a card; `None` if there is none or it cannot be read.
    #[must_use]
    pub fn read(files: &Tree, path: &Path) -> Option<Self> {
        Self::reading(files, path).ok()?.ok()
    }

    /// Reads a card, or says why it cannot be read. Its name must be that of its session.
    ///
    /// # Errors
    /// A refusal, or an I/O error.
    pub fn reading(files: &Tree, path: &Path) -> io::Result<Reading<Self>> {
        let reading = reading::read::<Self>(&files.read(path, MAX_CARD)?);
        let stem = path.file_stem().and_then(std::ffi::OsStr::to_str);
        Ok(match reading {
            Reading::Readable(card) if stem != Some(card.session_id.hex().as_str()) => {
                Reading::Damaged(format!("it is the card of {}, but has another name", card.session_id))
            }
            reading => reading,
        })
    }
}

/// Serializes something with paths to JSON: bytes that are not UTF-8 are replaced. These paths are only shown, never
/// opened.
trait Texts {
    type Text: Serialize;
    fn texts(&self) -> Self::Text;
}

impl Texts for PathBuf {
    type Text = String;
    fn texts(&self) -> String {
        files::text(self)
    }
}

impl<T: Texts> Texts for Option<T> {
    type Text = Option<T::Text>;
    fn texts(&self) -> Self::Text {
        self.as_ref().map(Texts::texts)
    }
}

impl<T: Texts> Texts for [T; 2] {
    type Text = [T::Text; 2];
    fn texts(&self) -> Self::Text {
        [self[0].texts(), self[1].texts()]
    }
}

fn texts<S: Serializer>(paths: &impl Texts, to: S) -> Result<S::Ok, S::Error> {
    paths.texts().serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_of_captures_count_and_only_in_their_places() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AuditDir::at(tmp.path());
        dir.create().unwrap();
        let live = dir.live();
        std::fs::write(live.join("00000000000000ab.c2s.ring"), "x").unwrap();
        let card = |ring: &str, spool: &str| {
            let mut card = crate::live::discovery::tests::run_card(SessionId::from_bits(1)).card;
            card.rings = [Some(ring.into()), Some(ring.into())];
            card.decisions = Some(ring.into());
            card.spools = [spool.into(), spool.into()];
            card
        };
        let found = card("/anywhere/00000000000000ab.c2s.ring", "/home/x/00000000000000ab.c2s.spool").places(&dir);
        assert_eq!(found.rings, [Some(live.join("00000000000000ab.c2s.ring")), None]);
        assert_eq!((found.decisions, found.spools), (None, [Some(live.join("00000000000000ab.c2s.spool")), None]));
        for path in
            ["/etc/passwd", "../x", "ab.c2s.ring", "00000000000000AB.c2s.ring", "00000000000000ab.c2s.ring/..", ""]
        {
            assert_eq!(card(path, path).places(&dir), Places::default(), "{path}");
        }
    }
}
