//! What a witness remembers: of each log the largest checkpoint that it has signed, in a file of its own. It never signs a smaller
//! tree after a larger one, nor one that does not begin with it.
//!
//! | file | what | if it is lost |
//! |---|---|---|
//! | `witness.json` | its name, and the logs that it follows | it does not start |
//! | `keys/` | its key | likewise |
//! | `logs/<SHA-256 of the origin>.json` | the key of a log, and what was signed of it last | likewise |

use super::request::Request;
use crate::{
    files::{self, Lock, Tree},
    model::{
        checkpoint::read_any,
        reading::{self, Reading, versioned},
        sha256_hex, to_line,
    },
    note::{self, Key, MAX_NOTE, WitnessKey},
    pack::{
        keys::{KeyError, KeyStore, Signer, SignerId},
        verify::verify_ed25519,
    },
    paths::{PathError, create_private_dir},
    tree::{Frontier, Hash, verify_consistency},
};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

/// Format version of the files of a witness.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const WITNESS_VERSION: u32 = 1;

/// Bytes of a file that is read.
const MAX_FILE: u64 = 4 * MAX_NOTE as u64;
/// The key, in a store of its own.
const SIGNER: &str = "witness";

/// `witness.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WitnessDoc {
    /// The logs that it follows, by their origins.
    pub logs: Vec<String>,
    /// Its name.
    pub name: String,
    /// [`WITNESS_VERSION`].
    #[serde(deserialize_with = "reading::known::<WitnessDoc, _>")]
    pub v: u32,
}

/// `logs/<SHA-256 of the origin>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Followed {
    /// The key of the log, whose name is the origin.
    pub key: String,
    /// The largest checkpoint, with the signatures of the log and of the witness; `null` before the first.
    pub note: Option<String>,
    /// [`WITNESS_VERSION`].
    #[serde(deserialize_with = "reading::known::<Followed, _>")]
    pub v: u32,
}

versioned!(WitnessDoc, "state of a witness", WITNESS_VERSION);
versioned!(Followed, "state of a witness", WITNESS_VERSION);

/// Why a witness cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// A file.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What it remembers is not what it wrote.
    #[error("{}: {why}; a witness that has forgotten what it signed could contradict itself", .path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is one already, or a name that cannot be one, or a log that it follows.
    #[error("{0}")]
    Input(String),
    /// Another process has it.
    #[error("{}: another process serves this witness", .0.display())]
    Busy(PathBuf),
    /// Its key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Its directory.
    #[error(transparent)]
    Dir(#[from] PathError),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> KeepError + use<> {
    let path = path.to_owned();
    move |source| KeepError::Io { path, source }
}

/// The answer to `add-checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// 200: the line of the signature.
    Signed(String),
    /// 400: no such request.
    Malformed(&'static str),
    /// 403: the log has not signed it.
    Unsigned(String),
    /// 404: a log that is not followed.
    Unknown,
    /// 409: so many entries were signed last.
    Conflict(u64),
    /// 422: it does not go on from what was signed last.
    Contradicts(String),
    /// 500: nothing could be remembered, or the clock went back.
    Failed(String),
}

/// A witness, on disk.
#[derive(Debug)]
pub struct Keep {
    tree: Tree,
    signer: Signer,
    key: WitnessKey,
    /// The latest time that was signed. It is held from the check to the answer.
    last: Mutex<u64>,
}

impl Keep {
    /// Makes a witness in a new directory.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn init(dir: &Path, name: &str) -> Result<WitnessKey, KeepError> {
        if WitnessKey::new(name, [0; 32]).is_none() || name.len() > 200 || !name.is_ascii() {
            return Err(KeepError::Input(format!("{name:?} cannot be the name of a witness")));
        }
        create_private_dir(dir)?;
        let tree = Tree::at(dir);
        if tree.exists(&dir.join("witness.json")) {
            return Err(KeepError::Input(format!("{} has a witness already", dir.display())));
        }
        let logs = dir.join("logs");
        tree.make_dir(&logs).map_err(at(&logs))?;
        let signer = KeyStore::at(dir.join("keys")).load_or_generate(&signer_id()?)?;
        put(&tree, "witness.json", &WitnessDoc { logs: Vec::new(), name: name.to_owned(), v: WITNESS_VERSION })?;
        named(name, &signer)
    }

    /// Follows another log. A witness that is served takes it up at once.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn add_log(dir: &Path, key: &Key) -> Result<(), KeepError> {
        let tree = Tree::at(dir);
        let held = tree.dir(dir).map_err(at(dir))?;
        files::lock(&held).map_err(at(dir))?;
        let mut doc: WitnessDoc = get(&tree, "witness.json")?;
        let path = of_log(key.name());
        if doc.logs.iter().any(|origin| origin == key.name()) || tree.exists(&dir.join(&path)) {
            return Err(KeepError::Input(format!("the log {} is followed already", key.name())));
        }
        put(&tree, &path, &Followed { key: key.to_string(), note: None, v: WITNESS_VERSION })?;
        doc.logs.push(key.name().to_owned());
        put(&tree, "witness.json", &doc)
    }

    /// The key that verifies what it signs.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn key_in(dir: &Path) -> Result<WitnessKey, KeepError> {
        let doc: WitnessDoc = get(&Tree::at(dir), "witness.json")?;
        named(&doc.name, &KeyStore::at(dir.join("keys")).load(&signer_id()?)?)
    }

    /// Opens it, if everything that it signed is there and holds. Nobody else may serve it while the second lives.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn open(dir: &Path) -> Result<(Self, impl Sized + use<>), KeepError> {
        let tree = Tree::at(dir);
        let doc: WitnessDoc = get(&tree, "witness.json")?;
        let logs = dir.join("logs");
        let held = tree.dir(&logs).map_err(at(&logs))?;
        if files::try_lock(&held).map_err(at(&logs))? == Lock::Busy {
            return Err(KeepError::Busy(dir.to_owned()));
        }
        let signer = KeyStore::at(dir.join("keys")).load(&signer_id()?)?;
        let key = named(&doc.name, &signer)?;
        let keep = Self { tree, signer, key, last: Mutex::new(0) };
        let mut last = 0;
        for origin in &doc.logs {
            last = last.max(keep.followed(origin)?.time);
        }
        if now() < last {
            let why = format!("it signed at {last} (seconds since 1970), and the clock says {}", now());
            return Err(KeepError::State { path: dir.to_owned(), why });
        }
        keep.last.lock().map_or_else(|e| *e.into_inner() = last, |mut held| *held = last);
        Ok((keep, held))
    }

    /// The key that verifies what it signs.
    #[must_use]
    pub const fn key(&self) -> &WitnessKey {
        &self.key
    }

    /// What it remembers of a log.
    fn followed(&self, origin: &str) -> Result<Log, KeepError> {
        let path = of_log(origin);
        let log: Followed = get(&self.tree, &path)?;
        let wrong = |why: String| KeepError::State { path: self.tree.root().join(&path), why };
        let key = Key::parse(&log.key).map_err(|e| wrong(e.to_string()))?;
        if key.name() != origin {
            return Err(wrong("it is about another log".to_owned()));
        }
        let Some(note) = log.note else { return Ok(Log { key, size: 0, root: empty(), time: 0 }) };
        let read = || {
            let text = note::open(&note, &key, &holds).ok()?;
            let time = self.key.cosigned(&note, &holds).ok()??;
            let (_, size, root) = read_any(text).filter(|(of, ..)| *of == origin)?;
            Some((size, root, time))
        };
        let (size, root, time) = read().ok_or_else(|| wrong("it is not what this witness wrote".to_owned()))?;
        Ok(Log { key, size, root, time })
    }

    /// What it has signed last of a log, given by the SHA-256 of its origin; `None` if it has signed nothing.
    #[must_use]
    pub fn latest(&self, origin_sha256: &str) -> Option<String> {
        let is_hash =
            origin_sha256.len() == 64 && origin_sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let log: Option<Followed> =
            is_hash.then(|| get(&self.tree, &format!("logs/{origin_sha256}.json")).ok()).flatten();
        log?.note
    }

    /// Answers `add-checkpoint`.
    pub fn add_checkpoint(&self, body: &[u8]) -> Answer {
        let Some(request) = Request::read(body) else {
            return Answer::Malformed("it is not a request of add-checkpoint");
        };
        let text = request.note.rfind("\n\n").map(|at| &request.note[..=at]);
        let Some((origin, size, root)) = text.and_then(read_any) else {
            return Answer::Malformed("what stands below the proof is not a checkpoint");
        };
        if i64::try_from(size).is_err() {
            return Answer::Malformed("no log has so many entries");
        }
        // From here to the answer nobody else may read or write.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.tree.exists(&self.tree.root().join(of_log(origin))) {
            return Answer::Unknown;
        }
        let log = match self.followed(origin) {
            Ok(log) => log,
            Err(e) => return Answer::Failed(e.to_string()),
        };
        let text = match note::open(&request.note, &log.key, &holds) {
            Ok(text) => text,
            Err(e) => return Answer::Unsigned(e.to_string()),
        };
        if request.old > size {
            return Answer::Malformed("the old size is larger than that of the checkpoint");
        }
        if request.old != log.size {
            return Answer::Conflict(log.size);
        }
        if size == 0 && root != empty() {
            return Answer::Contradicts("the root is not that of a log without entries".to_owned());
        }
        let goes_on = match log.size {
            0 if request.proof.is_empty() => Ok(()),
            0 => Err("a proof from no entries has no hashes".to_owned()),
            old => verify_consistency((old, &log.root), (size, &root), &request.proof).map_err(|e| e.to_string()),
        };
        if let Err(why) = goes_on {
            tracing::warn!("the log {origin} contradicts what was signed of it: {why}");
            return Answer::Contradicts(why);
        }
        let time = now();
        if time < *last || time == 0 {
            return Answer::Failed("the clock of this witness went back".to_owned());
        }
        let signature = match self.signer.sign(WitnessKey::message(text, time).as_bytes()) {
            Ok(signature) => signature,
            Err(e) => return Answer::Failed(e.to_string()),
        };
        let line = self.key.line(time, &signature);
        let of_log_key = log.key.lines_in(&request.note).unwrap_or_default();
        let note = Some(format!("{text}\n{of_log_key}{line}"));
        let followed = Followed { key: log.key.to_string(), note, v: WITNESS_VERSION };
        // Nobody gets the signature before it is remembered.
        if let Err(e) = put(&self.tree, &of_log(origin), &followed) {
            return Answer::Failed(e.to_string());
        }
        *last = time;
        Answer::Signed(line)
    }
}

/// A log, as it was signed last.
struct Log {
    key: Key,
    size: u64,
    root: Hash,
    time: u64,
}

fn holds(key: &[u8], text: &[u8], signature: &[u8]) -> bool {
    verify_ed25519(key, text, signature).is_ok()
}

fn empty() -> Hash {
    Frontier::default().root()
}

fn signer_id() -> Result<SignerId, KeyError> {
    SignerId::parse(SIGNER)
}

fn named(name: &str, signer: &Signer) -> Result<WitnessKey, KeepError> {
    WitnessKey::new(name, signer.public())
        .ok_or_else(|| KeepError::Input(format!("{name:?} cannot be the name of a witness")))
}

fn of_log(origin: &str) -> String {
    format!("logs/{}.json", sha256_hex(origin.as_bytes()))
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn get<T: reading::Versioned>(tree: &Tree, name: &str) -> Result<T, KeepError> {
    let path = tree.root().join(name);
    let bytes = tree.read(&path, MAX_FILE).map_err(at(&path))?;
    match reading::read::<T>(&bytes) {
        Reading::Readable(read) => Ok(read),
        Reading::TooNew(e) => Err(KeepError::State { path, why: e.to_string() }),
        Reading::Damaged(why) => Err(KeepError::State { path, why }),
    }
}

/// Puts a file in the place of the one before; both survive a power cut.
fn put<T: Serialize>(tree: &Tree, name: &str, document: &T) -> Result<(), KeepError> {
    let path = tree.root().join(name);
    let mut bytes = to_line(document).map_err(|e| at(&path)(e.into()))?;
    bytes.push(b'\n');
    let staged = path.with_extension("new");
    let placed = tree.replace(&staged, &path, &bytes, true);
    placed.and_then(|()| files::sync_dir(path.parent().unwrap_or(&path))).map_err(at(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::checkpoint::text_of,
        tree::{consistency, leaf},
    };

    struct Other {
        signer: Signer,
        key: Key,
    }

    impl Other {
        fn new(origin: &str) -> Self {
            let signer = Signer::from_seed(SignerId::parse("log").unwrap(), &[3; 32]);
            Self { key: Key::new(origin, signer.public()).unwrap(), signer }
        }

        /// A request about the first entries of a log whose later ones are these.
        fn asks(&self, old: u64, size: u64, kind: u8) -> Request {
            let leaves: Vec<Hash> = (0..size).map(|n| leaf(&[kind, n as u8])).collect();
            let root = |range: std::ops::Range<u64>| {
                leaves[range.start as usize..range.end as usize].iter().copied().collect::<Frontier>().root()
            };
            let proof = if old == 0 || old > size {
                Vec::new()
            } else {
                consistency(old, size).unwrap().into_iter().map(root).collect()
            };
            let text = text_of(self.key.name(), size, &root(0..size));
            Request { old, proof, note: self.key.note(&text, &self.signer.sign(text.as_bytes()).unwrap()) }
        }
    }

    fn witness() -> (tempfile::TempDir, PathBuf, Other) {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("w");
        Keep::init(&dir, "w.example/1").unwrap();
        let log = Other::new("example.com/log");
        Keep::add_log(&dir, &log.key).unwrap();
        (tmp, dir, log)
    }

    fn code(answer: &Answer) -> u16 {
        match answer {
            Answer::Signed(_) => 200,
            Answer::Malformed(_) => 400,
            Answer::Unsigned(_) => 403,
            Answer::Unknown => 404,
            Answer::Conflict(_) => 409,
            Answer::Contradicts(_) => 422,
            Answer::Failed(_) => 500,
        }
    }

    #[test]
    fn it_answers_as_the_specification_says_and_never_signs_less_after_more() {
        let (_tmp, dir, log) = witness();
        let (keep, _held) = Keep::open(&dir).unwrap();
        let ask = |request: &Request| keep.add_checkpoint(request.body().as_bytes());
        let code = |request: &Request| code(&ask(request));
        let origin = sha256_hex(b"example.com/log");
        assert_eq!((keep.latest(&origin), keep.latest("../witness")), (None, None));
        let Answer::Signed(line) = ask(&log.asks(0, 5, 0)) else { panic!("not signed") };
        let note = keep.latest(&origin).unwrap();
        assert!(note.ends_with(&line) && note::open(&note, &log.key, &holds).is_ok());
        assert!(keep.key().cosigned(&note, &holds).unwrap().unwrap() > 1_700_000_000);
        assert_eq!(ask(&log.asks(0, 9, 0)), Answer::Conflict(5));
        assert_eq!(ask(&log.asks(3, 9, 0)), Answer::Conflict(5));
        assert_eq!(code(&log.asks(5, 9, 1)), 422, "a fork");
        assert_eq!(code(&log.asks(5, 5, 1)), 422, "another root of the same size");
        assert_eq!(code(&log.asks(5, 4, 0)), 400, "old above the size");
        assert_eq!(code(&Request { proof: Vec::new(), ..log.asks(5, 9, 0) }), 422, "no proof");
        assert_eq!(code(&Request { proof: vec![[0; 32]; 64], ..log.asks(5, 9, 0) }), 400, "64 hashes");
        assert_eq!(code(&Other::new("example.com/other").asks(0, 1, 0)), 404);
        let stranger = Other {
            signer: Signer::from_seed(SignerId::parse("x").unwrap(), &[4; 32]),
            ..Other::new("example.com/log")
        };
        assert_eq!(code(&stranger.asks(5, 9, 0)), 403, "by another key under its id");
        let unsigned = log.asks(5, 9, 0).note.replace("\u{2014} example.com/log", "\u{2014} someone");
        assert_eq!(code(&Request { note: unsigned, ..log.asks(5, 9, 0) }), 403);
        assert_eq!(code(&log.asks(5, 5, 0)), 200, "the same again, at another time");
        assert_eq!(code(&log.asks(5, 9, 0)), 200);
        assert_eq!(ask(&log.asks(5, 9, 0)), Answer::Conflict(9));
        // Further lines are those of the log, and are signed with the others.
        let with = |more: &str| {
            let (text, _) = log
                .asks(9, 9, 0)
                .note
                .rsplit_once("\n\n")
                .map(|(t, s)| (format!("{t}\n{more}"), s.to_owned()))
                .unwrap();
            Request { note: log.key.note(&text, &log.signer.sign(text.as_bytes()).unwrap()), ..log.asks(9, 9, 0) }
        };
        assert_eq!(code(&with("one\ntwo\n")), 200);
        assert!(keep.latest(&origin).unwrap().contains("\none\ntwo\n\n"));
        assert_eq!(code(&with("\ntwo\n")), 400, "an empty line");
    }

    #[test]
    fn of_two_that_ask_at_once_one_is_first_and_the_larger_stays() {
        let (_tmp, dir, log) = witness();
        let (keep, _held) = Keep::open(&dir).unwrap();
        let origin = sha256_hex(b"example.com/log");
        for round in 0..100 {
            let old = round * 2;
            let (one, two) = (log.asks(old, old + 1, 0), log.asks(old, old + 2, 0));
            let answers = std::thread::scope(|s| {
                let both = [&one, &two].map(|request| s.spawn(|| keep.add_checkpoint(request.body().as_bytes())));
                both.map(|thread| thread.join().unwrap())
            });
            let signed = answers.iter().filter(|answer| code(answer) == 200).count();
            assert_eq!(signed, 1, "{answers:?}");
            if code(&answers[0]) == 200 {
                assert_eq!(answers[1], Answer::Conflict(old + 1));
                assert_eq!(code(&keep.add_checkpoint(log.asks(old + 1, old + 2, 0).body().as_bytes())), 200);
            }
            let note = keep.latest(&origin).unwrap();
            assert_eq!(read_any(&note[..=note.rfind("\n\n").unwrap()]).unwrap().1, old + 2);
        }
    }

    #[test]
    fn it_does_not_start_without_what_it_remembers() {
        let (_tmp, dir, log) = witness();
        {
            let (keep, _held) = Keep::open(&dir).unwrap();
            assert!(matches!(Keep::open(&dir), Err(KeepError::Busy(_))));
            assert_eq!(code(&keep.add_checkpoint(log.asks(0, 5, 0).body().as_bytes())), 200);
            // A log that is added meanwhile is followed at once.
            let late = Other::new("example.com/late");
            assert_eq!(code(&keep.add_checkpoint(late.asks(0, 1, 0).body().as_bytes())), 404);
            Keep::add_log(&dir, &late.key).unwrap();
            assert_eq!(code(&keep.add_checkpoint(late.asks(0, 1, 0).body().as_bytes())), 200);
        }
        assert!(matches!(Keep::add_log(&dir, &log.key), Err(KeepError::Input(_))));
        assert!(matches!(Keep::init(&dir, "w"), Err(KeepError::Input(_))));
        assert!(Keep::open(&dir).is_ok());
        let path = dir.join(of_log("example.com/log"));
        let whole = std::fs::read_to_string(&path).unwrap();
        let refused = |what: &str| assert!(Keep::open(&dir).is_err(), "{what}");
        for (from, to) in [("log\\n5\\n", "log\\n4\\n"), ("\"v\":1", "\"v\":2"), ("{", "")] {
            assert!(whole.contains(from));
            std::fs::write(&path, whole.replacen(from, to, 1)).unwrap();
            refused(from);
        }
        // Signed by the witness at a time that is yet to come.
        let doc: Followed = serde_json::from_str(&whole).unwrap();
        let note = doc.note.clone().unwrap();
        let (text, _) = note.rsplit_once("\n\n").unwrap();
        let (text, time) = (format!("{text}\n"), now() + 1000);
        let signer = KeyStore::at(dir.join("keys")).load(&signer_id().unwrap()).unwrap();
        let line = named("w.example/1", &signer)
            .unwrap()
            .line(time, &signer.sign(WitnessKey::message(&text, time).as_bytes()).unwrap());
        let later = format!("{text}\n{}{line}", log.key.lines_in(&note).unwrap());
        std::fs::write(&path, to_line(&Followed { note: Some(later), ..doc }).unwrap()).unwrap();
        refused("the clock went back");
        std::fs::remove_file(&path).unwrap();
        refused("a log's file is gone");
        std::fs::remove_file(dir.join("witness.json")).unwrap();
        refused("everything is gone");
    }
}
