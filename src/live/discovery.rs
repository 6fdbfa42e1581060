//! Where live sessions of this user are: the run directory, its cards and sockets, and which of them are still alive.
//!
//! A proxy holds the lock of its card as long as it runs; the kernel drops it with the process. A card whose lock is free is
//! dead, whatever its pid says; any process that sees it removes it together with its socket.

use super::protocol::RunCard;
pub use crate::sys::peer::connect;
use crate::{
    files::{self, Lock},
    model::{
        reading::{self, Reading},
        version,
    },
    paths::{self, AuditDir},
    record::card::Card,
    sys,
};
use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The longest path of a Unix socket, in bytes (Linux; 103 elsewhere, `sun_path` with its NUL).
pub const MAX_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
/// The largest card that is read.
const MAX_CARD: u64 = 1 << 20;

/// Directories in which sockets may be, best first: `$XDG_RUNTIME_DIR/assay`, `/run/user/<uid>/assay`, `run` in the
/// user directory. Never below `TMPDIR`, which others may share.
#[must_use]
pub fn run_dirs() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|d| d.is_absolute()) {
        dirs.push(runtime.join("assay"));
    }
    let of_system = PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
    if of_system.is_dir() {
        dirs.push(of_system.join("assay"));
    }
    if let Ok(home) = paths::assay_home()
        && let Ok(home) = std::path::absolute(home)
    {
        dirs.push(home.join("run"));
    }
    dirs.dedup();
    dirs
}

/// Makes `dir` 0700 if need be, and refuses it unless it is a directory of ours that no other user can enter.
///
/// # Errors
/// What the system says; another user's directory, or one that is open to others.
pub fn private_run_dir(dir: &Path) -> io::Result<()> {
    // Its parent is there, or is our own user directory.
    if dir.ends_with("run") {
        files::make_dirs(dir)?;
    }
    files::exclusive_dir(dir).map(drop)
}

/// Whether a socket can be bound at this path.
#[must_use]
pub fn fits(socket: &Path) -> bool {
    socket.as_os_str().len() <= MAX_SOCKET_PATH
}

/// A proxy's own card in the run directory; while this is held, its lock says that the session lives.
#[derive(Debug)]
pub struct OwnCard {
    path: PathBuf,
    /// The card as it is now.
    card: RunCard,
    lock: File,
}

impl OwnCard {
    /// Writes the card; a reader sees all of it and locked, or nothing.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(path: PathBuf, card: RunCard) -> io::Result<Self> {
        let lock = place(&path, &card)?;
        Ok(Self { path, card, lock })
    }

    /// Replaces it.
    ///
    /// # Errors
    /// The system's error; the old card stays.
    pub fn update(&mut self, card: RunCard) -> io::Result<()> {
        self.lock = place(&self.path, &card)?;
        self.card = card;
        Ok(())
    }

    /// Removes the run card and its socket.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
        drop(self.lock);
    }
}

fn place(path: &Path, card: &RunCard) -> io::Result<File> {
    let staged = path.with_extension(format!("{}.new", std::process::id()));
    let mut bytes = serde_json::to_vec(card)?;
    bytes.push(b'\n');
    files::replace(&staged, path, &bytes, |file| match files::try_lock(file)? {
        Lock::Busy => Err(io::ErrorKind::WouldBlock.into()),
        Lock::Taken | Lock::Unsupported => Ok(()),
    })
}

/// A card of the run directory that is left alone: a later version wrote it, or its proxy is alive and it does not
/// parse.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unread {
    /// Path of the run card.
    pub path: PathBuf,
    /// Whether its proxy lives.
    pub alive: bool,
    /// Why it does not parse, in words.
    pub why: String,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.alive { "its session lives and is not shown" } else { "its session has ended" };
        write!(f, "{}; {state}: {}", self.why, self.path.display())
    }
}

/// What the run directories say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// Sessions that live, oldest first.
    pub sessions: Vec<RunCard>,
    /// Cards that are left alone.
    pub unread: Vec<Unread>,
}

/// A card of the run directory, and whether its proxy lives.
struct Found {
    card: Reading<RunCard>,
    alive: bool,
    /// Held until the card has been swept.
    file: File,
}

fn look(path: &Path) -> io::Result<Found> {
    let mut file = files::plain(path)?;
    let meta = file.metadata()?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.len() > MAX_CARD {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no card of ours"));
    }
    let locked = files::try_lock(&file)?;
    let mut text = Vec::new();
    (&mut file).take(MAX_CARD).read_to_end(&mut text)?;
    let card = match read(&text) {
        Reading::Readable(card) => Reading::Readable(in_its_places(card, path)),
        unread => unread,
    };
    let alive = match locked {
        Lock::Busy => true,
        Lock::Taken => false,
        Lock::Unsupported => match &card {
            Reading::Readable(c) => sys::process::is_alive(c.card.pid, c.card.pid_started),
            _ => false,
        },
    };
    Ok(Found { card, alive, file })
}

/// A run card holds the session's card, which has a version of its own.
fn read(text: &[u8]) -> Reading<RunCard> {
    match reading::read::<RunCard>(text) {
        Reading::Damaged(why) => match version::stated(text, "card").and_then(reading::newer::<Card>) {
            Some(e) => Reading::TooNew(e),
            None => Reading::Damaged(why),
        },
        reading => reading,
    }
}

/// The socket is in the card's directory, the evidence in its audit directory under the names of its session: other
/// paths in a card are not used.
fn in_its_places(mut run: RunCard, path: &Path) -> RunCard {
    let paths = AuditDir::at(&run.audit_dir).session(run.card.started_at, run.card.session_id);
    (run.receipts, run.segment) = (paths.receipts, paths.segment);
    // In version 1 each session had its own socket.
    let own = (run.v == 1).then(|| path.with_extension("sock"));
    let socket = run.card.socket.map(|socket| own.unwrap_or(socket));
    run.card.socket = socket.and_then(|socket| Some(path.with_file_name(socket_name(&socket)?)));
    run
}

/// The file name of a path, if it is the name of a proxy's socket.
fn socket_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    name.split_once('.').filter(|(stem, rest)| is_hex(stem) && *rest == "sock").map(|_| name)
}

/// Every live session of this user. Dead cards are removed on the way, unless a later version wrote them.
#[must_use]
pub fn look_around() -> Live {
    look_into(&run_dirs())
}

/// The same of given run directories.
#[must_use]
pub fn look_into(dirs: &[PathBuf]) -> Live {
    let mut all = Live::default();
    for found in dirs.iter().map(|dir| look_in(dir)) {
        all.sessions.extend(found.sessions);
        all.unread.extend(found.unread);
    }
    all.sessions.sort_by_key(|c| (c.card.started_at, c.card.session_id));
    all.sessions.dedup_by_key(|c| c.card.session_id);
    all.unread.sort();
    all.unread.dedup();
    all
}

/// The live sessions of one run directory.
#[must_use]
pub fn live_in(dir: &Path) -> Vec<RunCard> {
    look_in(dir).sessions
}

/// Removes the cards and sockets that killed proxies left in the run directories, whatever their audit directory.
pub fn sweep_all() {
    drop(look_around());
}

/// What one run directory says; dead cards and sockets are removed, but those of a later version. One that is a link,
/// another user's, or open to others yields nothing.
#[must_use]
pub fn look_in(dir: &Path) -> Live {
    let mut live = Live::default();
    if !files::is_own_dir(dir) {
        return live;
    }
    let Ok(entries) = std::fs::read_dir(dir) else { return live };
    let mut sockets = Vec::new();
    for path in entries.flatten().map(|e| e.path()) {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        match name.split_once('.') {
            Some((stem, "json")) if is_hex(stem) => {
                let Ok(found) = look(&path) else { continue };
                let why = match found.card {
                    Reading::Readable(card) if found.alive => {
                        live.sessions.push(card);
                        continue;
                    }
                    Reading::TooNew(e) => e.to_string(),
                    Reading::Damaged(why) if found.alive => format!("this run card cannot be read: {why}"),
                    _ => {
                        sweep(&path, &found.file);
                        continue;
                    }
                };
                live.unread.push(Unread { path, alive: found.alive, why });
            }
            Some((stem, "sock")) if is_hex(stem) => sockets.push(path),
            Some((stem, rest)) if is_hex(stem) => {
                let pid = rest.strip_suffix(".new").and_then(|pid| pid.parse().ok());
                if pid.is_some_and(|pid| !sys::process::is_alive(pid, None)) && !is_newer(&path) {
                    let _ = std::fs::remove_file(&path);
                }
            }
            _ => {}
        }
    }
    let known = |socket: &PathBuf| live.sessions.iter().any(|c| c.card.socket.as_ref() == Some(socket));
    sockets.iter().filter(|socket| !known(socket)).for_each(|socket| sweep_lone_socket(socket));
    live
}

/// Whether what a killed writer of a card left is of a later version.
fn is_newer(staged: &Path) -> bool {
    let text = files::plain(staged).and_then(|file| files::read_all(file, MAX_CARD));
    text.is_ok_and(|text| matches!(read(&text), Reading::TooNew(_)))
}

fn is_hex(stem: &str) -> bool {
    stem.len() == 16 && stem.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Removes a dead proxy's card, unless another card has been put in its place since.
fn sweep(path: &Path, held: &File) {
    let same = |a: &std::fs::Metadata, b: &std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let still = held.metadata().is_ok_and(|held| std::fs::symlink_metadata(path).is_ok_and(|m| same(&held, &m)));
    if still {
        tracing::debug!(path = %path.display(), "sweeping a dead session's card");
        let _ = std::fs::remove_file(path);
    }
}

/// A socket that no card names: its proxy was killed, or has just bound it and writes its card now, or runs on without
/// a session. It is removed only if no process listens on it.
fn sweep_lone_socket(path: &Path) {
    if path.with_extension("json").exists() {
        return;
    }
    if connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::{Profile, SessionId, WallTime};
    use crate::{live::protocol::RUN_CARD_VERSION, record::card::Card};

    pub(crate) fn run_card(session: SessionId) -> RunCard {
        let card = Card {
            client_info: None,
            command: None,
            command_digest: String::new(),
            continues: None,
            decisions: None,
            http: None,
            pid: std::process::id(),
            pid_started: None,
            policy_hash: None,
            profile: Profile::Audit,
            protocol_version: None,
            recorder: None,
            rings: [None, None],
            server_id: "s".into(),
            server_info: None,
            session_id: session,
            socket: None,
            spools: [PathBuf::new(), PathBuf::new()],
            started_at: WallTime::from_millis(0),
            started_mono_ns: 0,
            surface_rules: None,
            v: 1,
        };
        let (audit_dir, receipts, segment) = (PathBuf::from("/a"), PathBuf::from("/a/r"), PathBuf::from("/a/s"));
        RunCard { audit_dir, card, receipts, segment, v: RUN_CARD_VERSION }
    }

    #[test]
    fn a_held_card_is_found_and_a_dropped_one_is_swept_with_its_socket() {
        let tmp = tempfile::tempdir().unwrap();
        let (a, b) = (SessionId::from_bits(1), SessionId::from_bits(2));
        let at = |id: SessionId, ext: &str| tmp.path().join(format!("{}.{ext}", id.hex()));
        let mut held = OwnCard::create(at(a, "json"), run_card(a)).unwrap();
        let dead = OwnCard::create(at(b, "json"), run_card(b)).unwrap();
        drop(std::os::unix::net::UnixListener::bind(at(b, "sock")).unwrap());
        let ids = || live_in(tmp.path()).into_iter().map(|c| c.card.session_id).collect::<Vec<_>>();
        let mut all = ids();
        all.sort();
        assert_eq!(all, [a, b]);
        // As if its process had ended: the pid lives on, the lock does not.
        drop(dead);
        assert_eq!(ids(), [a]);
        assert!(!at(b, "json").exists() && !at(b, "sock").exists());
        held.update(RunCard { audit_dir: "/b".into(), ..run_card(a) }).unwrap();
        assert_eq!(live_in(tmp.path())[0].audit_dir, Path::new("/b"));
        held.remove();
        assert!(ids().is_empty());
    }

    #[test]
    fn a_card_of_a_later_version_is_named_and_stays_dead_or_alive() {
        let tmp = tempfile::tempdir().unwrap();
        let (ours, theirs) = (SessionId::from_bits(1), SessionId::from_bits(2));
        let at = |id: SessionId, ext: &str| tmp.path().join(format!("{}.{ext}", id.hex()));
        let _held = OwnCard::create(at(ours, "json"), run_card(ours)).unwrap();
        let text = serde_json::to_string(&run_card(theirs)).unwrap();
        let end = text.rfind("\"v\":2").unwrap();
        let outer = |v: &str| format!("{}\"v\":{v}}}", &text[..end]);
        let inner = |v: &str| text.replacen("\"v\":1", &format!("\"v\":{v}"), 1);
        let later = [
            outer("4"),
            outer("\"3.1\""),
            outer("4294967296"),
            inner("6"),
            inner("\"5.1\",\"x\":[]"),
            "{\"v\":6}".into(),
        ];
        for later in later {
            std::fs::write(at(theirs, "json"), &later).unwrap();
            drop(std::os::unix::net::UnixListener::bind(at(theirs, "sock")).unwrap());
            std::fs::write(tmp.path().join("0000000000000002.4194304.new"), &later).unwrap();
            for alive in [false, true] {
                let held = File::open(at(theirs, "json")).unwrap();
                assert!(!alive || matches!(files::try_lock(&held).unwrap(), Lock::Taken));
                let live = look_in(tmp.path());
                assert_eq!(live.sessions.iter().map(|c| c.card.session_id).collect::<Vec<_>>(), [ours]);
                let [unread] = &live.unread[..] else { panic!("{later}: {live:?}") };
                assert_eq!((unread.path.clone(), unread.alive), (at(theirs, "json"), alive), "{later}");
                assert!(unread.to_string().contains("too new"), "{unread}");
                assert_eq!(std::fs::read_to_string(at(theirs, "json")).unwrap(), later);
            }
            assert!(tmp.path().join("0000000000000002.4194304.new").exists());
            std::fs::remove_file(at(theirs, "sock")).unwrap();
        }
        // A damaged card is removed when its proxy is dead, and reported while it is alive.
        std::fs::write(at(theirs, "json"), outer("0")).unwrap();
        let held = File::open(at(theirs, "json")).unwrap();
        assert!(matches!(files::try_lock(&held).unwrap(), Lock::Taken));
        assert!(look_in(tmp.path()).unread[0].why.contains("cannot be read"));
        drop(held);
        assert_eq!(look_in(tmp.path()).unread, []);
        assert!(!at(theirs, "json").exists());
    }

    #[test]
    fn strange_things_in_the_run_directory_are_left_alone() {
        let tmp = tempfile::tempdir().unwrap();
        let link = tmp.path().join("0000000000000001.json");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        let ring = tmp.path().join("0000000000000001.c2s.ring");
        std::fs::write(&ring, b"x").unwrap();
        let other = tmp.path().join("notes.json");
        std::fs::write(&other, b"{}").unwrap();
        let listened = tmp.path().join("0000000000000002.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&listened).unwrap();
        assert!(live_in(tmp.path()).is_empty());
        for path in [link, ring, other, listened] {
            assert!(std::fs::symlink_metadata(path).is_ok());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn nobody_waits_for_a_listener_that_does_not_answer() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("0000000000000001.sock");
        let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let waiting = connect(&path).unwrap();
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(live_in(tmp.path()).is_empty() && path.exists());
        drop((listener, waiting));
        assert!(live_in(tmp.path()).is_empty() && !path.exists());
    }

    #[test]
    fn a_run_directory_that_others_can_enter_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("assay");
        private_run_dir(&dir).unwrap();
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(private_run_dir(&dir).is_err());
        std::os::unix::fs::symlink(&dir, tmp.path().join("link")).unwrap();
        assert!(private_run_dir(&tmp.path().join("link")).is_err());
        let foreign = dir.join("0123456789abcdef.json");
        std::fs::write(&foreign, "{}").unwrap();
        assert!(live_in(&tmp.path().join("link")).is_empty() && foreign.exists());
        assert!(live_in(&dir).is_empty() && !foreign.exists());
        assert!(!fits(&PathBuf::from(format!("/{}", "x".repeat(107)))));
        assert!(fits(&PathBuf::from(format!("/{}", "x".repeat(106)))) || !cfg!(target_os = "linux"));
    }
}
