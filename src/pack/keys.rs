//! The key store: `$ASSAY_HOME/keys`, in the layout of assay-ai (docs/signing-keys.md).
//!
//! `<signer>.key` is the raw 32-byte Ed25519 seed, `<signer>.pub` the raw 32-byte public key (RFC 8032 §5.1.5),
//! `.active_signer` the signer to use when none is named. `<signer>.agent` is the public key of a signer whose secret key
//! an ssh-agent keeps, and that agent's socket.

mod agent;
mod bring;

pub use agent::{Identity, identities};
pub use bring::{LARGEST, seed};

use crate::{
    files,
    model::sha256_hex,
    paths::{self, PathError},
    text::visible,
};
use base64::Engine as _;
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use std::{
    fmt, fs,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// The default signer.
pub const DEFAULT_SIGNER: &str = "assay-local";
/// Names the signer that is used by default.
const ACTIVE_SIGNER: &str = ".active_signer";
/// Bytes of it that are read.
const MAX_ACTIVE: u64 = 4096;
/// Bytes of the public key of one in an agent that are read.
const MAX_AGENT: u64 = 4096;
/// Bytes of a seed and of a public key.
const KEY_LEN: usize = 32;

/// What keeps us from using a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Not a signer id.
    #[error(
        "{0:?} is not a valid signer name: use only letters, digits, '.', '_' and '-', and do not start with a dot"
    )]
    BadId(String),
    /// Others can read or change a secret key, or the owner cannot read it.
    #[error("the secret key {path} has mode {mode:04o}, expected 0600: only its owner may read it")]
    Mode {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to another user.
    #[error("the secret key {path} belongs to user {owner}, not to you")]
    Owner {
        /// The key file.
        path: PathBuf,
        /// User id of the file's owner.
        owner: u32,
    },
    /// It cannot be read.
    #[error("the key {path} cannot be read: {source}")]
    Unreadable {
        /// The key file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A symlink, a directory, a device.
    #[error("the key {0} is a symlink, or not a regular file")]
    NotAFile(PathBuf),
    /// The key file does not hold 32 bytes.
    #[error("the key {path} has {found} bytes, expected the 32 raw bytes of an Ed25519 key")]
    Length {
        /// The key file.
        path: PathBuf,
        /// Its length in bytes; one more than expected means "that or more".
        found: usize,
    },
    /// The public key is not the secret key's.
    #[error("{public} is not the public key of {secret}")]
    Mismatch {
        /// The `.pub` file.
        public: PathBuf,
        /// The `.key` file.
        secret: PathBuf,
    },
    /// A signer with a key here and one in an agent.
    #[error("there are both {key} and {agent}: which of them signs is not known")]
    Twice {
        /// The `.key` file.
        key: PathBuf,
        /// The `.agent` file.
        agent: PathBuf,
    },
    /// A `.pub` without its `.key`.
    #[error("there is {0}, but its secret key is missing")]
    PublicOnly(PathBuf),
    /// There is no key of this name.
    #[error("there is no key for signer {signer} in {dir}")]
    NoSuchSigner {
        /// The signer's name.
        signer: SignerId,
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// There is one already.
    #[error("the key {0} already exists")]
    Exists(PathBuf),
    /// `.active_signer` does not name a signer.
    #[error("{path} names {text:?}, which is not a signer in this key store")]
    BadActive {
        /// The marker file.
        path: PathBuf,
        /// The text in the marker file.
        text: String,
    },
    /// A key could not be written.
    #[error("{path}: {source}")]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system gave no random bytes.
    #[error("cannot get random bytes for a new key: {0}")]
    Random(getrandom::Error),
    /// The directory cannot be made.
    #[error(transparent)]
    Dir(#[from] PathError),
}

impl KeyError {
    /// Whether the key store cannot be written or read at all, rather than holding a key that must not be used.
    #[must_use]
    pub const fn is_environment(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Random(_) | Self::Dir(_))
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Mode { path, .. } => format!("run: chmod 600 {}", shell(path)),
            Self::Unreadable { path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                format!("run: chmod 600 {}", shell(path))
            }
            Self::NotAFile(path) => format!("put the key file itself there: {}", path.display()),
            Self::Length { .. } => "restore it from a backup, or move it away: then a new key is created".to_owned(),
            Self::Mismatch { public, .. } => {
                format!("if the secret key is right, remove {}: then it is derived again", public.display())
            }
            Self::PublicOnly(path) => {
                format!("restore the secret key, or move {} away: then a new pair is created", path.display())
            }
            Self::NoSuchSigner { .. } => "assay keys list shows all keys".to_owned(),
            Self::Exists(_) => "a key is never replaced; give another name with --signer".to_owned(),
            Self::BadActive { path, .. } => format!("correct or remove {}", path.display()),
            Self::Twice { agent, .. } => format!("if the key here is to sign, remove {}", agent.display()),
            Self::Owner { .. } => "use your own ASSAY_HOME".to_owned(),
            Self::BadId(_) | Self::Unreadable { .. } | Self::Write { .. } | Self::Random(_) | Self::Dir(_) => {
                return None;
            }
        })
    }
}

/// A path as it can be pasted into a POSIX shell.
fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+,@%".contains(c)) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Who signs: `[A-Za-z0-9._-]+`, at most 200 bytes, not starting with a dot, so that it is safe in a file name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignerId(String);

impl SignerId {
    /// Checks and takes a signer id.
    ///
    /// # Errors
    /// [`KeyError::BadId`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > 200 || text.starts_with('.') || !text.bytes().all(good) {
            return Err(KeyError::BadId(text.chars().take(80).collect()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SignerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who signs: a secret key in memory, wiped when dropped, or one in an ssh-agent.
pub struct Signer {
    id: SignerId,
    key: Held,
}

enum Held {
    Here(SigningKey),
    Agent(agent::Agent),
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("id", &self.id).field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

impl Signer {
    /// A signer from a seed that is not in a key store.
    #[must_use]
    pub fn from_seed(id: SignerId, seed: &[u8; KEY_LEN]) -> Self {
        Self { id, key: Held::Here(SigningKey::from_bytes(seed)) }
    }

    /// The same, while a person waits, whom an agent may ask.
    #[must_use]
    pub fn patiently(self) -> Self {
        match self.key {
            Held::Agent(agent) => Self { key: Held::Agent(agent.patiently()), ..self },
            Held::Here(_) => self,
        }
    }

    /// Whether an ssh-agent has the key.
    #[must_use]
    pub const fn is_in_agent(&self) -> bool {
        matches!(self.key, Held::Agent(_))
    }

    /// Whether an ssh-agent has the key, and this process knows none.
    #[must_use]
    pub const fn lacks_agent(&self) -> bool {
        matches!(&self.key, Held::Agent(agent) if agent.is_missing())
    }

    /// The id of the signer.
    #[must_use]
    pub fn id(&self) -> &SignerId {
        &self.id
    }

    /// The raw public key.
    #[must_use]
    pub fn public(&self) -> [u8; KEY_LEN] {
        match &self.key {
            Held::Here(key) => key.verifying_key().to_bytes(),
            Held::Agent(agent) => agent.public(),
        }
    }

    /// SHA-256 of the raw public key, hex.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        sha256_hex(&self.public())
    }

    /// Ed25519 signature (RFC 8032) over `message`.
    ///
    /// # Errors
    /// An agent refuses, does not answer, or gives no signature that holds. A key in memory always signs.
    pub fn sign(&self, message: &[u8]) -> io::Result<[u8; 64]> {
        match &self.key {
            Held::Here(key) => Ok(key.sign(message).to_bytes()),
            Held::Agent(agent) => agent.sign(message),
        }
    }
}

/// The public half of a signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// The signer's name.
    pub signer: SignerId,
    /// The 32 raw bytes of the key.
    pub bytes: [u8; KEY_LEN],
}

impl PublicKey {
    /// SHA-256 of the raw bytes, hex.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        sha256_hex(&self.bytes)
    }

    /// Base64 of the raw bytes, as it appears in a manifest.
    #[must_use]
    pub fn base64(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(self.bytes)
    }

    /// SubjectPublicKeyInfo in PEM (RFC 8410 §4), for openssl.
    #[must_use]
    pub fn pem(&self) -> String {
        const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        let der = [PREFIX.as_slice(), &self.bytes].concat();
        let body = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n")
    }
}

/// One line of a key list.
#[derive(Debug)]
pub struct Listed {
    /// The signer's name.
    pub signer: SignerId,
    /// Whether it is the one that signs by default.
    pub active: bool,
    /// The public key, or why the pair cannot be used.
    pub public: Result<PublicKey, KeyError>,
}

/// A directory of keys. Holding one says nothing about what exists.
#[derive(Debug, Clone)]
pub struct KeyStore {
    dir: PathBuf,
}

impl KeyStore {
    /// The user's key store.
    ///
    /// # Errors
    /// [`PathError::NoHome`].
    pub fn of_user() -> Result<Self, PathError> {
        Ok(Self::at(paths::assay_home()?.join("keys")))
    }

    /// The key store at `dir`.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The directory that holds the keys.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of the secret key, `<signer>.key`.
    #[must_use]
    pub fn key_path(&self, signer: &SignerId) -> PathBuf {
        self.dir.join(format!("{signer}.key"))
    }

    /// Path of the public key, `<signer>.pub`.
    #[must_use]
    pub fn pub_path(&self, signer: &SignerId) -> PathBuf {
        self.dir.join(format!("{signer}.pub"))
    }

    /// Path of the public key of a signer whose secret key an agent keeps, `<signer>.agent`.
    #[must_use]
    pub fn agent_path(&self, signer: &SignerId) -> PathBuf {
        self.dir.join(format!("{signer}.agent"))
    }

    /// The signer by default: the one in `.active_signer`, else `assay-local`, else (if only others have keys) the
    /// first.
    ///
    /// # Errors
    /// The marker names no signer: signing with another key than the user chose would be worse than an error.
    pub fn active(&self) -> Result<SignerId, KeyError> {
        let path = self.dir.join(ACTIVE_SIGNER);
        match files::plain(&path).and_then(|file| files::read_all(file, MAX_ACTIVE)) {
            Ok(text) => {
                let text = String::from_utf8_lossy(&text);
                let bad = || KeyError::BadActive { path: path.clone(), text: text.trim().chars().take(80).collect() };
                let signer = SignerId::parse(text.trim()).map_err(|_| bad())?;
                return if self.has(&signer) { Ok(signer) } else { Err(bad()) };
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(source) if files::is_refusal(&source) => return Err(KeyError::Unreadable { path, source }),
            Err(source) => return Err(PathError::Io { path, source }.into()),
        }
        let default = SignerId(DEFAULT_SIGNER.to_owned());
        if self.has(&default) {
            return Ok(default);
        }
        Ok(self.signers()?.into_iter().next().unwrap_or(default))
    }

    /// Whether there is a secret key of `signer`, here or in an agent, usable or not.
    #[must_use]
    pub fn has(&self, signer: &SignerId) -> bool {
        fs::symlink_metadata(self.key_path(signer)).is_ok() || self.is_in_agent(signer)
    }

    /// Whether an agent keeps the secret key of `signer`.
    #[must_use]
    pub fn is_in_agent(&self, signer: &SignerId) -> bool {
        fs::symlink_metadata(self.agent_path(signer)).is_ok()
    }

    /// Loads a key; writes nothing, and asks no agent.
    ///
    /// # Errors
    /// [`KeyError`]; a key that others could have read is refused.
    pub fn load(&self, signer: &SignerId) -> Result<Signer, KeyError> {
        if self.is_in_agent(signer) {
            return self.load_agent(signer);
        }
        let path = self.key_path(signer);
        let mut file = match open_private(&path) {
            Err(KeyError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(KeyError::NoSuchSigner { signer: signer.clone(), dir: self.dir.clone() });
            }
            other => other?,
        };
        let loaded = Signer::from_seed(signer.clone(), &*read_key(&mut file, &path)?);
        match self.stored_public(signer)? {
            Some(stored) if stored != loaded.public() => {
                Err(KeyError::Mismatch { public: self.pub_path(signer), secret: path })
            }
            _ => Ok(loaded),
        }
    }

    fn load_agent(&self, signer: &SignerId) -> Result<Signer, KeyError> {
        let (key, path) = (self.key_path(signer), self.agent_path(signer));
        if fs::symlink_metadata(&key).is_ok() {
            return Err(KeyError::Twice { key, agent: path });
        }
        let bad = |source| KeyError::Unreadable { path: path.clone(), source };
        let text = files::read_all(open_private(&path)?, MAX_AGENT).map_err(bad)?;
        let said = std::str::from_utf8(&text).ok().and_then(agent::read);
        let (identity, socket) =
            said.ok_or_else(|| bad(io::Error::other("it is no Ed25519 key as ssh-add -L prints it")))?;
        let key = strong(&identity.public).map_err(bad)?;
        Ok(Signer { id: signer.clone(), key: Held::Agent(agent::Agent::of_user(key, socket)) })
    }

    /// Keeps the public key of a signer whose secret key an agent has, and where that listens.
    ///
    /// # Errors
    /// [`KeyError::Exists`]: a key is never replaced; [`KeyError::Mismatch`]: there is another public key of this name.
    pub fn add_agent(&self, signer: &SignerId, identity: &Identity) -> Result<Signer, KeyError> {
        paths::create_private_dir(&self.dir)?;
        let path = self.agent_path(signer);
        if self.has(signer) {
            return Err(KeyError::Exists(if self.is_in_agent(signer) { path } else { self.key_path(signer) }));
        }
        strong(&identity.public).map_err(|source| KeyError::Unreadable { path: path.clone(), source })?;
        if self.stored_public(signer)?.is_some_and(|stored| stored != identity.public) {
            return Err(KeyError::Mismatch { public: self.pub_path(signer), secret: path });
        }
        self.write(&path, (identity.line() + &agent::kept_line()).as_bytes())?;
        self.load_agent(signer)
    }

    /// Loads the key of `signer`, making the pair on first use. Processes that race for that end with the same key.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn load_or_generate(&self, signer: &SignerId) -> Result<Signer, KeyError> {
        if !self.has(signer) {
            match self.generate(signer) {
                Err(KeyError::Exists(_)) => {}
                other => return other,
            }
        }
        let loaded = self.load(signer)?;
        if loaded.is_in_agent() {
            return Ok(loaded);
        }
        // Only a convenience for people: the public key follows from the secret one, and the store may be read-only.
        let _ = self.write_public(&loaded);
        Ok(loaded)
    }

    /// Makes a new pair.
    ///
    /// # Errors
    /// [`KeyError::Exists`]; a key is never replaced.
    pub fn generate(&self, signer: &SignerId) -> Result<Signer, KeyError> {
        paths::create_private_dir(&self.dir)?;
        let path = self.key_path(signer);
        if self.has(signer) {
            return Err(KeyError::Exists(if self.is_in_agent(signer) { self.agent_path(signer) } else { path }));
        }
        // A writer links the secret key before the public one, so a lone public key is not a race but a lost secret.
        if self.stored_public(signer)?.is_some() && !self.has(signer) {
            return Err(KeyError::PublicOnly(self.pub_path(signer)));
        }
        let mut seed = Zeroizing::new([0u8; KEY_LEN]);
        getrandom::fill(&mut *seed).map_err(KeyError::Random)?;
        self.write(&path, &*seed)?;
        let made = Signer::from_seed(signer.clone(), &seed);
        self.write_public(&made)?;
        Ok(made)
    }

    /// Makes `signer` the one that signs by default.
    ///
    /// # Errors
    /// One without a usable key.
    pub fn set_active(&self, signer: &SignerId) -> Result<(), KeyError> {
        self.load(signer)?;
        let path = self.dir.join(ACTIVE_SIGNER);
        let error = |source| KeyError::Write { path: path.clone(), source };
        let temp = self.temp(ACTIVE_SIGNER)?;
        let placed = files::replace(&temp, &path, format!("{signer}\n").as_bytes(), files::sync_all);
        placed.and_then(|_| files::sync_dir(&self.dir)).map_err(error)
    }

    /// The public key of `signer`: checked against the secret one where that is there.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn public(&self, signer: &SignerId) -> Result<PublicKey, KeyError> {
        let bytes = if self.has(signer) {
            self.load(signer)?.public()
        } else {
            self.stored_public(signer)?
                .ok_or_else(|| KeyError::NoSuchSigner { signer: signer.clone(), dir: self.dir.clone() })?
        };
        Ok(PublicKey { signer: signer.clone(), bytes })
    }

    /// Every signer with a secret key, in order of name.
    ///
    /// # Errors
    /// The directory cannot be read; that it does not exist is none.
    pub fn list(&self) -> Result<Vec<Listed>, KeyError> {
        let signers = self.signers()?;
        let active = self.active().ok();
        let line = |signer: SignerId| Listed {
            active: active.as_ref() == Some(&signer),
            public: self.public(&signer),
            signer,
        };
        Ok(signers.into_iter().map(line).collect())
    }

    fn signers(&self) -> Result<Vec<SignerId>, KeyError> {
        let error = |source| PathError::Io { path: self.dir.clone(), source };
        let entries = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(error)?,
        };
        let mut signers = Vec::new();
        for entry in entries {
            let name = entry.map_err(error)?.file_name();
            let stem = name.to_str().and_then(|n| n.strip_suffix(".key").or_else(|| n.strip_suffix(".agent")));
            signers.extend(stem.and_then(|s| SignerId::parse(s).ok()));
        }
        signers.sort();
        signers.dedup();
        Ok(signers)
    }

    /// The bytes of `<signer>.pub`, `None` where there is none.
    fn stored_public(&self, signer: &SignerId) -> Result<Option<[u8; KEY_LEN]>, KeyError> {
        let path = self.pub_path(signer);
        let bytes = match open_key(&path) {
            Err(KeyError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => *read_key(&mut other?, &path)?,
        };
        strong(&bytes).map_err(|source| KeyError::Unreadable { path, source })?;
        Ok(Some(bytes))
    }

    fn write_public(&self, signer: &Signer) -> Result<(), KeyError> {
        match self.write(&self.pub_path(&signer.id), &signer.public()) {
            Err(KeyError::Exists(_)) => Ok(()),
            other => other,
        }
    }

    /// Creates the whole file or nothing, even if other processes do the same.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), KeyError> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(KeyError::Exists(path.to_owned()));
        }
        let temp = self.temp(&path.file_name().unwrap_or_default().to_string_lossy())?;
        files::place_new(&temp, path, bytes).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
            _ => KeyError::Write { path: path.to_owned(), source: e },
        })
    }

    fn temp(&self, name: &str) -> Result<PathBuf, KeyError> {
        let random = getrandom::u64().map_err(KeyError::Random)?;
        Ok(self.dir.join(format!(".{}.{random:016x}.tmp", visible(name).trim_start_matches('.'))))
    }
}

/// A public key that only its owner can sign with.
fn strong(bytes: &[u8; KEY_LEN]) -> io::Result<VerifyingKey> {
    let key = VerifyingKey::from_bytes(bytes).map_err(io::Error::other)?;
    if key.is_weak() { Err(io::Error::other("it is a weak Ed25519 key")) } else { Ok(key) }
}

/// As [`open_key`], if it belongs to this user and only that user can read or change it.
fn open_private(path: &Path) -> Result<File, KeyError> {
    let file = open_key(path)?;
    let path = path.to_owned();
    let meta = file.metadata().map_err(|source| KeyError::Unreadable { path: path.clone(), source })?;
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 || mode & 0o400 == 0 {
        return Err(KeyError::Mode { path, mode });
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(KeyError::Owner { path, owner: meta.uid() });
    }
    Ok(file)
}

/// Opens a key file without following a symlink and without waiting for a fifo's writer.
fn open_key(path: &Path) -> Result<File, KeyError> {
    files::plain(path).map_err(|source| {
        let path = path.to_owned();
        if files::is_refusal(&source) { KeyError::NotAFile(path) } else { KeyError::Unreadable { path, source } }
    })
}

fn read_key(file: &mut File, path: &Path) -> Result<Zeroizing<[u8; KEY_LEN]>, KeyError> {
    let mut buffer = Zeroizing::new([0u8; KEY_LEN + 1]);
    let mut found = 0;
    while found < buffer.len() {
        match file.read(&mut buffer[found..]) {
            Ok(0) => break,
            Ok(n) => found += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(KeyError::Unreadable { path: path.to_owned(), source }),
        }
    }
    if found != KEY_LEN {
        return Err(KeyError::Length { path: path.to_owned(), found });
    }
    let mut key = Zeroizing::new([0u8; KEY_LEN]);
    key.copy_from_slice(&buffer[..KEY_LEN]);
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn store() -> (tempfile::TempDir, KeyStore, SignerId) {
        let tmp = tempfile::tempdir().unwrap();
        let store = KeyStore::at(tmp.path().join("home/keys"));
        (tmp, store, SignerId::parse(DEFAULT_SIGNER).unwrap())
    }

    #[test]
    fn a_marker_that_never_ends_is_refused_and_a_store_that_is_none_is_no_bad_key() {
        let (tmp, store, _) = store();
        paths::create_private_dir(store.dir()).unwrap();
        let marker = store.dir().join(ACTIVE_SIGNER);
        let refused = |what: &str| {
            let said = store.active().unwrap_err();
            assert!(!said.is_environment() && said.to_string().contains(what), "{said}");
            fs::remove_file(&marker).unwrap();
        };
        std::os::unix::fs::symlink("/dev/zero", &marker).unwrap();
        refused("symbolic link");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &marker, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        refused("fifo");
        fs::write(&marker, "x".repeat(5000)).unwrap();
        refused("longer than");
        fs::write(&marker, b"\xff").unwrap();
        refused("is not a signer");
        fs::write(tmp.path().join("file"), "").unwrap();
        for none in ["file", "file/keys"] {
            let said = KeyStore::at(tmp.path().join(none)).active().unwrap_err();
            assert!(said.is_environment() && said.to_string().contains(none), "{said}");
        }
    }

    #[test]
    fn a_key_is_made_once_private_and_found_again() {
        let (_tmp, store, id) = store();
        let made = store.load_or_generate(&id).unwrap();
        for path in [store.key_path(&id), store.pub_path(&id)] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::read(&path).unwrap().len(), 32);
        }
        assert_eq!(fs::metadata(store.dir()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(store.load_or_generate(&id).unwrap().fingerprint(), made.fingerprint());
        assert_eq!(fs::read_dir(store.dir()).unwrap().count(), 2, "no temporary files stay");
        assert!(matches!(store.generate(&id), Err(KeyError::Exists(_))));
        assert!(!format!("{made:?}").contains(&hex::encode(fs::read(store.key_path(&id)).unwrap())));
    }

    #[test]
    fn racing_first_uses_end_with_one_key() {
        let (_tmp, store, id) = store();
        let prints: std::collections::BTreeSet<String> = std::thread::scope(|s| {
            let all: Vec<_> =
                (0..50).map(|_| s.spawn(|| store.load_or_generate(&id).map(|k| k.fingerprint()))).collect();
            all.into_iter().map(|t| t.join().unwrap().unwrap()).collect()
        });
        assert_eq!(prints.len(), 1);
        assert_eq!(fs::read_dir(store.dir()).unwrap().count(), 2);
    }

    #[test]
    fn a_missing_public_key_is_derived_and_a_wrong_one_refused() {
        let (_tmp, store, id) = store();
        let made = store.load_or_generate(&id).unwrap();
        fs::remove_file(store.pub_path(&id)).unwrap();
        assert_eq!(store.public(&id).unwrap().fingerprint(), made.fingerprint());
        assert!(!store.pub_path(&id).exists(), "looking writes nothing");
        store.load_or_generate(&id).unwrap();
        assert_eq!(fs::read(store.pub_path(&id)).unwrap(), made.public());
        let other = Signer::from_seed(id.clone(), &[7; 32]);
        fs::write(store.pub_path(&id), other.public()).unwrap();
        assert!(matches!(store.load(&id), Err(KeyError::Mismatch { .. })));
        fs::remove_file(store.key_path(&id)).unwrap();
        assert!(matches!(store.load_or_generate(&id), Err(KeyError::PublicOnly(_))));
        assert_eq!(fs::read(store.pub_path(&id)).unwrap(), other.public(), "left alone");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_command_that_mends_it() {
        let (_tmp, store, id) = store();
        store.generate(&id).unwrap();
        let path = store.key_path(&id);
        for mode in [0o640, 0o604, 0o620, 0o000] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = store.load(&id).unwrap_err();
            assert_eq!(error.hint().unwrap(), format!("run: chmod 600 {}", path.display()), "{mode:o}");
        }
    }

    #[test]
    fn symlinks_directories_fifos_and_wrong_lengths_are_refused() {
        let (tmp, store, id) = store();
        store.generate(&id).unwrap();
        let path = store.key_path(&id);
        let aside = tmp.path().join("aside");
        fs::rename(&path, &aside).unwrap();
        std::os::unix::fs::symlink(&aside, &path).unwrap();
        assert!(matches!(store.load(&id), Err(KeyError::NotAFile(_))));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(store.load(&id), Err(KeyError::NotAFile(_))));
        fs::remove_dir(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0)
            .unwrap();
        assert!(matches!(store.load(&id), Err(KeyError::NotAFile(_))));
        fs::remove_file(&path).unwrap();
        for len in [0usize, 31, 33, 64] {
            let _ = fs::remove_file(&path);
            paths::write_new(&path, &vec![1; len]).unwrap();
            assert!(matches!(store.load(&id), Err(KeyError::Length { .. })), "{len}");
        }
    }

    #[test]
    fn the_active_signer_is_the_users_choice_or_an_error() {
        let (_tmp, store, id) = store();
        assert_eq!(store.active().unwrap(), id);
        let ci = SignerId::parse("ci-bot").unwrap();
        store.generate(&ci).unwrap();
        assert_eq!(store.active().unwrap(), ci, "the only one there is");
        store.generate(&id).unwrap();
        assert_eq!(store.active().unwrap(), id);
        store.set_active(&ci).unwrap();
        assert_eq!(store.active().unwrap(), ci);
        let listed: Vec<_> = store.list().unwrap().into_iter().map(|l| (l.signer.to_string(), l.active)).collect();
        assert_eq!(listed, [("assay-local".to_owned(), false), ("ci-bot".to_owned(), true)]);
        for bad in ["../../etc/passwd\n", "gone\n", ""] {
            fs::write(store.dir().join(ACTIVE_SIGNER), bad).unwrap();
            assert!(matches!(store.active(), Err(KeyError::BadActive { .. })), "{bad:?}");
        }
    }

    #[test]
    fn signer_ids_cannot_be_paths() {
        for bad in ["", ".", "..", ".hidden", "a/b", "a\\b", "a b", "é", "a\n", &"x".repeat(201)] {
            assert!(SignerId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(SignerId::parse("A-z_0.9").is_ok());
    }

    #[test]
    fn a_public_key_in_pem_is_rfc_8410() {
        let text = "Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
        let key = PublicKey { signer: SignerId::parse("x").unwrap(), bytes: bytes.try_into().unwrap() };
        assert_eq!(key.base64(), text);
        let from_section_10_1 = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
        let body: String = key.pem().lines().filter(|l| !l.starts_with('-')).collect();
        assert_eq!(body, from_section_10_1);
    }
}
