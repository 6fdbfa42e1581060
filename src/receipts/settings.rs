//! How a server records itself.

use super::Recorder;
use crate::{
    model::{Transport, redaction::Side},
    pack::keys::{KeyError, KeyStore, Signer},
    paths::{self, AuditDir},
    record::{
        judge::Decision,
        redact::{Anomalies, Cleartext, Left, Redactor},
    },
};
#[cfg(feature = "policy")]
use crate::{
    policy::{Dns, Policy},
    record::judge::{Judge as _, Subject},
    sys::clock,
    verdict::PolicyJudge,
};
#[cfg(any(feature = "policy", test))]
use std::path::Path;
use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Content over this many bytes is not stored.
const STORE_LIMIT: usize = 1 << 20;
/// The longest id of a server, in bytes.
const MAX_SERVER_ID: usize = 128;

/// What a policy said of a call, and by which policy.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    pub(super) decision: Decision,
    pub(super) policy_hash: String,
}

/// What types receipts of a server have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Names {
    /// `mcp_tool_requested`, `mcp_tool_denied`, `mcp_tool_executed`.
    #[default]
    Flat,
    /// `mcp.tool_requested`, …: assay-ai's verifier takes these and refuses the flat ones.
    Dotted,
}

/// How a client learns that its call was refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Denial {
    /// A JSON-RPC error with code -32001.
    #[default]
    Error,
    /// A result with `isError: true`, which clients show to their model.
    ToolResult,
}

/// What SIGTERM and SIGINT do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnSignals {
    /// The recording is sealed; then the signal does what it does by default.
    SealAndExit,
    /// The recording is sealed; what else happens is for the program to say.
    SealOnly,
}

/// Why a server cannot begin to record.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The id of the server cannot be kept.
    #[error("{0:?} is no id of a server: use 1 to 128 printable ASCII characters, for example my-server@1.0.0")]
    ServerId(String),
    /// A cleartext entry names nothing.
    #[error("a cleartext entry has an empty name of a tool or a field (tool {0:?}); name each as the tool does")]
    Cleartext(String),
    /// A pack after no receipts, or no time.
    #[error("a pack every {0} is never whole; give a number above 0")]
    PackEvery(String),
    /// The policy cannot be used.
    #[cfg(feature = "policy")]
    #[error("the policy cannot be used: {0}")]
    Policy(#[from] crate::policy::PolicyError),
    /// Rules that take something out of contents cannot be used.
    #[cfg(feature = "policy")]
    #[error("contents cannot be redacted: {0}")]
    Redact(#[from] crate::redact::LoadError),
    /// The directory name means nothing here.
    #[error("{0}")]
    AuditDir(String),
    /// The key that signs packs must not be used.
    #[error("the key that packs are signed with cannot be used: {0}")]
    Key(#[from] KeyError),
    /// The system has no random numbers, or no threads.
    #[error("the system does not let the recorder begin: {0}")]
    System(String),
}

/// What does not change while a server records itself.
pub(super) struct Settings {
    pub(super) server_id: String,
    pub(super) transport: Transport,
    pub(super) store_arguments: bool,
    pub(super) store_results: bool,
    pub(super) store_errors: bool,
    pub(super) store_limit: usize,
    pub(super) cleartext: Cleartext,
    pub(super) cleartext_results: Cleartext,
    redact: Option<Arc<dyn Redactor>>,
    pub(super) auto_pack: bool,
    pub(super) pack_receipts: Option<u64>,
    pub(super) pack_period: Option<Duration>,
    pub(super) require_evidence: bool,
    pub(super) deny_as: Denial,
    advisory: bool,
    names: Names,
    signer: OnceLock<Option<Arc<Signer>>>,
    #[cfg(feature = "policy")]
    pub(super) policy: Option<(Arc<Policy>, PolicyJudge)>,
}

impl Settings {
    pub(super) fn warn(what: &str) {
        tracing::warn!("{what}");
        eprintln!("assay: warning: {what}");
    }

    pub(super) fn kind(&self, flat: &str, dotted: &str) -> String {
        if self.names == Names::Dotted { dotted } else { flat }.to_owned()
    }

    /// What rules leave of a content, if any of it may be kept.
    pub(super) fn left(&self, is_kept: bool, side: Side, value: &[u8], flags: &mut Anomalies) -> Left {
        let rules = self.redact.as_deref().filter(|_| is_kept);
        Left::of(rules, side, value, value.len() <= self.store_limit, flags)
    }

    /// Whether calls that the policy rejects are refused.
    pub(super) const fn enforces(&self) -> bool {
        self.has_policy() && !self.advisory
    }

    #[cfg(feature = "policy")]
    const fn has_policy(&self) -> bool {
        self.policy.is_some()
    }

    #[cfg(not(feature = "policy"))]
    #[allow(clippy::unused_self, reason = "as with the feature")]
    const fn has_policy(&self) -> bool {
        false
    }

    #[cfg(feature = "policy")]
    pub(super) fn policy_hash(&self) -> Option<String> {
        self.policy.as_ref().map(|(policy, _)| policy.hash().to_owned())
    }

    #[cfg(not(feature = "policy"))]
    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(super) fn policy_hash(&self) -> Option<String> {
        None
    }

    /// Stores the policy where packs take it from, unless it is there.
    #[cfg(feature = "policy")]
    pub(super) fn keep_policy(&self, dir: &AuditDir) {
        if let Some((policy, _)) = &self.policy
            && let Err(e) = crate::verdict::keep(dir, policy)
        {
            Self::warn(&format!("the policy cannot be kept for the evidence: {e}"));
        }
    }

    #[cfg(not(feature = "policy"))]
    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(super) const fn keep_policy(&self, _: &AuditDir) {}

    /// What the policy says of a call, and text for its sender; `None` without a policy.
    #[cfg(feature = "policy")]
    pub(super) fn judge(&self, tool: &str, arguments: &[u8]) -> Option<(Judged, String)> {
        let mut judge = self.policy.as_ref()?.1.clone();
        let policy_hash = judge.begin();
        let (decision, text) = judge.judge(Subject { tool, arguments: Some(arguments) }, clock::mono_ns());
        Some((Judged { decision, policy_hash }, text))
    }

    #[cfg(not(feature = "policy"))]
    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(super) fn judge(&self, _: &str, _: &[u8]) -> Option<(Judged, String)> {
        None
    }

    /// The key that packs are signed with.
    pub(super) fn signer(&self) -> Option<Arc<Signer>> {
        self.signer.get().cloned().flatten()
    }
}

/// How a server records itself; made by [`Recorder::builder`].
#[must_use]
pub struct Builder {
    pub(super) audit_dir: PathBuf,
    pub(super) on_signals: Option<OnSignals>,
    settings: Settings,
    problem: Option<OpenError>,
    /// The user directory; `None`: that of this user.
    home: Option<PathBuf>,
    #[cfg(feature = "policy")]
    policy_file: Option<PathBuf>,
    #[cfg(feature = "policy")]
    redact: Vec<PathBuf>,
}

impl Builder {
    pub(super) fn new(server_id: String) -> Self {
        Self {
            audit_dir: paths::audit_dir_of_environment().unwrap_or_else(|| paths::DEFAULT_AUDIT_DIR.into()),
            on_signals: None,
            settings: Settings {
                server_id,
                transport: Transport::Stdio,
                store_arguments: false,
                store_results: false,
                store_errors: false,
                store_limit: STORE_LIMIT,
                cleartext: Cleartext::default(),
                cleartext_results: Cleartext::default(),
                redact: None,
                auto_pack: false,
                pack_receipts: None,
                pack_period: None,
                require_evidence: false,
                deny_as: Denial::default(),
                advisory: false,
                names: Names::default(),
                signer: OnceLock::new(),
                #[cfg(feature = "policy")]
                policy: None,
            },
            problem: None,
            home: None,
            #[cfg(feature = "policy")]
            policy_file: None,
            #[cfg(feature = "policy")]
            redact: Vec::new(),
        }
    }

    /// Where evidence is kept; otherwise `$ASSAY_AUDIT_DIR`, or `./.assay/mcp`.
    pub fn audit_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.audit_dir = dir.into();
        self
    }

    /// The policy that calls are judged by (docs/policy.md). Calls that it rejects are refused.
    #[cfg(feature = "policy")]
    pub fn policy_file(mut self, path: impl AsRef<Path>) -> Self {
        self.policy_file = Some(path.as_ref().to_owned());
        self
    }

    /// The policy's verdicts are recorded, and nothing is refused.
    pub fn advisory(mut self) -> Self {
        self.settings.advisory = true;
        self
    }

    /// Stores arguments in cleartext.
    pub fn store_arguments(mut self, yes: bool) -> Self {
        self.settings.store_arguments = yes;
        self
    }

    /// Stores results in cleartext.
    pub fn store_results(mut self, yes: bool) -> Self {
        self.settings.store_results = yes;
        self
    }

    /// Stores the texts of errors, which may quote arguments; otherwise only their codes.
    pub fn store_errors(mut self, yes: bool) -> Self {
        self.settings.store_errors = yes;
        self
    }

    /// Keeps these arguments of a tool in cleartext, and the others as their hashes. Of a tool without an entry not even the
    /// names of arguments are kept.
    pub fn cleartext<'f>(mut self, tool: &str, fields: impl IntoIterator<Item = &'f str>) -> Self {
        let fields: Vec<&str> = fields.into_iter().collect();
        self.check(tool, &fields);
        self.settings.cleartext.keep(tool, fields);
        self
    }

    /// The same of the members of `structuredContent` of a result.
    pub fn cleartext_results<'f>(mut self, tool: &str, fields: impl IntoIterator<Item = &'f str>) -> Self {
        let fields: Vec<&str> = fields.into_iter().collect();
        self.check(tool, &fields);
        self.settings.cleartext_results.keep(tool, fields);
        self
    }

    /// Takes out of all contents what the rules in this file match, or those of `preset:secrets`, before anything of them is
    /// kept (docs/redaction.md). Hashes are of the originals. Called more than once, all rules count.
    #[cfg(feature = "policy")]
    pub fn redact(mut self, rules: impl Into<PathBuf>) -> Self {
        self.redact.push(rules.into());
        self
    }

    fn check(&mut self, tool: &str, fields: &[&str]) {
        if tool.is_empty() || fields.contains(&"") {
            self.problem.get_or_insert_with(|| OpenError::Cleartext(tool.to_owned()));
        }
    }

    /// How a client learns that its call was refused.
    pub const fn deny_as(mut self, denial: Denial) -> Self {
        self.settings.deny_as = denial;
        self
    }

    /// Builds, signs and checks a pack when the recording ends, also on SIGTERM and SIGINT ([`OnSignals::SealAndExit`]).
    pub fn auto_pack(mut self, yes: bool) -> Self {
        self.settings.auto_pack = yes;
        if yes {
            self.on_signals.get_or_insert(OnSignals::SealAndExit);
        }
        self
    }

    /// A pack whenever there are so many receipts; calls that run then are still part of it.
    pub fn pack_every(mut self, receipts: u64) -> Self {
        if receipts == 0 {
            self.problem.get_or_insert_with(|| OpenError::PackEvery("0 receipts".to_owned()));
        }
        self.settings.pack_receipts = Some(receipts);
        self
    }

    /// A pack whenever so much time has passed, if there was a call.
    pub fn pack_every_period(mut self, period: Duration) -> Self {
        if period.is_zero() {
            self.problem.get_or_insert_with(|| OpenError::PackEvery("0 s".to_owned()));
        }
        self.settings.pack_period = Some(period);
        self
    }

    /// What SIGTERM and SIGINT do; without this and [`Builder::auto_pack`] they are not listened for.
    pub const fn on_signals(mut self, what: OnSignals) -> Self {
        self.on_signals = Some(what);
        self
    }

    /// Refuses calls that cannot be recorded. Otherwise they run, and the recording says what is missing.
    pub fn require_evidence(mut self) -> Self {
        self.settings.require_evidence = true;
        self
    }

    /// What types the receipts have.
    pub const fn receipt_names(mut self, names: Names) -> Self {
        self.settings.names = names;
        self
    }

    /// How requests come, where nothing says so of one.
    pub const fn transport(mut self, transport: Transport) -> Self {
        self.settings.transport = transport;
        self
    }

    /// Begins. Nothing is on disk before the first call.
    ///
    /// # Errors
    /// [`OpenError`]: settings that mean nothing. A disk that cannot be written is only warned of.
    pub fn open(mut self) -> Result<Recorder, OpenError> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        let id = &self.settings.server_id;
        if id.is_empty() || id.len() > MAX_SERVER_ID || !id.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            return Err(OpenError::ServerId(id.clone()));
        }
        #[cfg(feature = "policy")]
        if let Some(path) = &self.policy_file {
            let policy = Arc::new(Policy::load_whole(path)?);
            let judge = PolicyJudge::new(policy.clone(), Dns::System, clock::mono_ns());
            self.settings.policy = Some((policy, judge));
        }
        #[cfg(feature = "policy")]
        if !self.redact.is_empty() {
            self.settings.redact = Some(Arc::new(crate::redact::load(&self.redact)?));
        }
        if self.settings.auto_pack && self.settings.signer.get().is_none() {
            let _ = self.settings.signer.set(Self::key()?);
        }
        Recorder::begin(Arc::new(self.settings), &self.audit_dir, self.home, self.on_signals)
    }

    /// The same with a key and a user directory of a test.
    #[cfg(test)]
    pub(super) fn open_in(mut self, home: &Path, signer: Signer) -> Result<Recorder, OpenError> {
        let _ = self.settings.signer.set(Some(Arc::new(signer)));
        // Other tests of this process hear their own signals.
        self.on_signals = None;
        self.remembered_in(home.join("home")).open()
    }

    #[cfg(test)]
    fn remembered_in(mut self, home: PathBuf) -> Self {
        self.home = Some(home);
        self
    }

    fn key() -> Result<Option<Arc<Signer>>, OpenError> {
        let of_user = KeyStore::of_user().map_err(KeyError::from);
        match of_user.and_then(|keys| keys.load_or_generate(&keys.active()?)) {
            Ok(signer) => {
                if signer.lacks_agent() {
                    Settings::warn("the key is in an ssh-agent, but SSH_AUTH_SOCK is not set: no pack can be signed");
                }
                Ok(Some(Arc::new(signer)))
            }
            Err(e) if e.is_environment() => {
                Settings::warn(&format!("no pack can be signed: {e}"));
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }
}
