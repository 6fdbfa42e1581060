//! The card of a live session in `live/`: how a dashboard finds it, and what recovery starts from. Nothing in it is secret.

use super::{lane::Lane, recorder::Setup};
use crate::{
    model::{Profile, SessionId, WallTime, receipt::PeerInfo},
    sys::process,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Format version of a card.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const CARD_VERSION: u32 = 1;

/// How the name of a card under construction ends; the writer's pid and a dot stand before it.
const STAGED: &str = ".new";

/// Removes what killed writers of cards left in `live/`.
pub fn sweep(live: &Path) {
    let Ok(entries) = std::fs::read_dir(live) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pid = name.strip_suffix(STAGED).and_then(|n| n.rsplit('.').next()?.parse().ok());
        if pid.is_some_and(|pid| !process::is_alive(pid, None)) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// `live/<session>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The client as it names itself, once it did.
    #[serde(default)]
    pub client_info: Option<PeerInfo>,
    /// The server command, only with `--store-args`.
    pub command: Option<Vec<String>>,
    /// `sha256:` of the server command.
    pub command_digest: String,
    /// The session before it in the same process (rolling packs).
    #[serde(default)]
    pub continues: Option<SessionId>,
    /// Ring file of a guard's decisions; `null` without a guard, or where it does not survive the process.
    #[serde(default)]
    pub decisions: Option<PathBuf>,
    /// Process id of the proxy.
    pub pid: u32,
    /// When that process started, in the system's own unit; tells a reused pid.
    pub pid_started: Option<u64>,
    /// `sha256:` of the policy file in force; `null` where there is none.
    #[serde(default)]
    pub policy_hash: Option<String>,
    /// Profile.
    pub profile: Profile,
    /// Ring files, client to server first; `null` for a capture that does not survive the process.
    pub rings: [Option<PathBuf>; 2],
    /// Server id.
    pub server_id: String,
    /// The server as it names itself, once it did.
    #[serde(default)]
    pub server_info: Option<PeerInfo>,
    /// The session.
    pub session_id: SessionId,
    /// The Unix socket on which it can be watched, once there is one.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// Spool files, client to server first.
    pub spools: [PathBuf; 2],
    /// When the session began.
    pub started_at: WallTime,
    /// The same on the monotonic clock, ns.
    pub started_mono_ns: u64,
    /// [`CARD_VERSION`].
    pub v: u32,
}

impl Card {
    /// The card of this process's session.
    #[must_use]
    pub fn of(setup: &Setup, session: SessionId, started_ns: u64, started_at: WallTime, lanes: &[Lane; 2]) -> Self {
        let pid = std::process::id();
        Self {
            client_info: None,
            command: setup.command.clone(),
            command_digest: setup.command_digest.clone(),
            continues: None,
            decisions: lanes[0].judgements().and_then(super::judgement::Reader::path),
            pid,
            pid_started: process::start_time(pid),
            policy_hash: setup.policy_hash.clone(),
            profile: setup.profile,
            rings: [0, 1].map(|i: usize| lanes[i].consumer().path().map(Path::to_owned)),
            server_id: setup.server_id.clone(),
            server_info: None,
            session_id: session,
            socket: None,
            spools: [0, 1].map(|i: usize| lanes[i].spool_path().to_owned()),
            started_at,
            started_mono_ns: started_ns,
            v: CARD_VERSION,
        }
    }

    /// Writes it so that a reader sees all of it or nothing. It is not synced: what it points to does not survive a
    /// power cut either.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let staged = path.with_extension(format!("{}{STAGED}", self.pid));
        let _ = std::fs::remove_file(&staged);
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
        let written = file.write_all(&bytes).and_then(|()| std::fs::rename(&staged, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&staged);
        }
        written
    }

    /// What recovery needs to know of the proxy that is gone.
    #[must_use]
    pub fn setup(&self) -> Arc<Setup> {
        Arc::new(Setup {
            profile: self.profile,
            transport: "stdio",
            server_id: self.server_id.clone(),
            command: self.command.clone(),
            command_digest: self.command_digest.clone(),
            store_args: false,
            store_results: false,
            store_limit: 0,
            policy_hash: self.policy_hash.clone(),
        })
    }

    /// Reads one; `None` if there is none or it cannot be read.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok().filter(|c: &Self| c.v == CARD_VERSION)
    }
}
