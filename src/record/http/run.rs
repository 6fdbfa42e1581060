//! What the sessions of a process that serves HTTP have in common: written into `live/` before anything crosses, so that
//! sessions can be finished that a killed process had begun only in its log.

use super::sessions::{Begun, Limits, NewSession};
use crate::{
    files::Tree,
    model::{
        Profile, SessionId, Transport, WallTime,
        reading::{self, versioned},
    },
    paths::AuditDir,
    record::{
        card::{Captures, LogPlace},
        recorder::{HttpBinding, Origin, Setup},
        redact::{Cleartext, Redactor},
    },
    sys::process,
};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Format version of the file `live/<process>.run`.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | `key_lasts` |
pub const RUN_VERSION: u32 = 2;

/// The largest that is read, in bytes.
const MAX_RUN: u64 = 1 << 16;

/// A process that serves HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Digests are made with the user's key, not with one of the process.
    #[serde(default)]
    pub key_lasts: bool,
    /// When sessions end by themselves.
    pub limits: Limits,
    /// Its id.
    pub pid: u32,
    /// When it started, in the system's own unit; tells a reused pid.
    pub pid_started: Option<u64>,
    /// `sha256:` of the policy in force when it began.
    pub policy: Option<String>,
    /// Its name in evidence, 16 hex digits.
    pub process: String,
    /// How the policy was applied.
    pub profile: Profile,
    /// The server's id.
    pub server: String,
    /// When it began.
    pub started_at: WallTime,
    /// The server's URL without its secrets; only with `--store-args`.
    pub url: Option<String>,
    /// `sha256:` of that URL.
    pub url_digest: String,
    /// [`RUN_VERSION`].
    #[serde(deserialize_with = "reading::known::<Run, _>")]
    pub v: u32,
}

versioned!(Run, "run", from 1, to RUN_VERSION, "v");

/// What of the contents is stored in clear.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// Arguments of tool calls.
    pub args: bool,
    /// Arguments that were named, field by field.
    pub cleartext: Cleartext,
    /// Their results.
    pub results: bool,
    /// Content over this many bytes stays out of receipts.
    pub limit: usize,
    /// What is taken out of them before.
    pub redact: Option<Arc<dyn Redactor>>,
}

impl Run {
    /// This process, which begins.
    #[must_use]
    pub fn begin(process: SessionId, profile: Profile, server_id: String, origin: &Origin, limits: Limits) -> Self {
        let pid = std::process::id();
        Self {
            key_lasts: false,
            limits,
            pid,
            pid_started: process::start_time(pid),
            policy: None,
            process: process.hex(),
            profile,
            server: server_id,
            started_at: WallTime::now(),
            url: origin.url().map(ToOwned::to_owned),
            url_digest: origin.digest().to_owned(),
            v: RUN_VERSION,
        }
    }

    /// The number behind its name.
    #[must_use]
    pub fn number(&self) -> u64 {
        u64::from_str_radix(&self.process, 16).unwrap_or_default()
    }

    /// What does not change while one of its sessions is recorded.
    #[must_use]
    pub fn setup(&self, new: &NewSession, policy_hash: Option<String>, stored: Stored) -> Setup {
        let is_mcp = new.begun != Begun::Base;
        Setup {
            profile: self.profile,
            transport: if new.old_sse { Transport::Sse } else { Transport::StreamableHttp },
            server_id: self.server.clone(),
            origin: Origin::Url { digest: self.url_digest.clone(), url: self.url.clone() },
            http: Some(HttpBinding {
                client: is_mcp.then(|| new.client.clone()),
                client_may_be_shared: is_mcp && new.client_may_be_shared,
                joined_midway: new.begun == Begun::JoinedMidway,
                mcp_session: new.mcp_session.clone(),
                continues: new.continues,
                key_lasts: self.key_lasts,
            }),
            store_args: stored.args,
            cleartext: stored.cleartext,
            store_results: stored.results,
            store_limit: stored.limit,
            redact: stored.redact,
            policy_hash,
            surface: None,
            witness: None,
        }
    }

    /// Where its exchanges are logged, for the card of one of its sessions.
    #[must_use]
    pub fn captures(&self, log: Option<&Path>, route: u32) -> Captures {
        let log = LogPlace { file: log.map(Path::to_owned), process: self.number(), route, is_beside_rings: false };
        Captures { log: Some(log), ..Captures::default() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(dir: &AuditDir, process: &str) -> PathBuf {
        dir.live().join(format!("{process}.run"))
    }

    /// Writes it so that a reader sees all of it or nothing.
    ///
    /// # Errors
    /// An I/O error.
    pub fn write(&self, dir: &AuditDir) -> io::Result<()> {
        let path = Self::path(dir, &self.process);
        let staged = path.with_extension(format!("run.{}.new", self.pid));
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        dir.files().replace(&staged, &path, &bytes, false)
    }

    /// Reads the one at this path.
    ///
    /// # Errors
    /// An I/O error, one of a later version, or it is not such a file.
    pub fn read(files: &Tree, path: &Path) -> io::Result<Self> {
        match reading::read::<Self>(&files.read(path, MAX_RUN)?) {
            reading::Reading::Readable(run) => Ok(run),
            reading::Reading::TooNew(e) => Err(e.into()),
            reading::Reading::Damaged(why) => Err(io::Error::new(io::ErrorKind::InvalidData, why)),
        }
    }
}
