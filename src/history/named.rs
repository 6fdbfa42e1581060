//! What people call a session or a pack: a path, `last`, an id or its beginning, the name of a pack or its beginning.

use super::list::Places;
use crate::{
    model::{SessionId, pack::MANIFEST},
    numbers::counted,
    paths::{self, AuditDir, PACK_PREFIX, SessionPaths},
};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Digits of an id that are enough to look for it: fewer are typed by accident.
const MIN_DIGITS: usize = 4;
/// Candidates that an error lists.
const LISTED: usize = 8;
/// The newest session that has a pack; `last~1` is the one before it.
const LAST: &str = "last";
/// What is typed where a name was expected.
pub const FORMS: &str =
    "give a directory, last, last~1, the id of a session or at least 4 digits of its beginning; assay packs lists them";

/// What a name leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The directory of a pack, or one that is to be read as such.
    Pack(PathBuf),
    /// The files of a session that has no pack.
    Session(Box<SessionPaths>),
    /// An audit directory.
    Directory(PathBuf),
}

/// A name that leads nowhere, or to more than one place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There is no such file, and the text is no name of a session.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// A file that belongs to no pack and no session.
    #[error("{} is neither a pack nor the evidence of a session", .0.display())]
    Neither(PathBuf),
    /// No session has this name.
    #[error("no session is called {name}; looked in {}", places(.looked))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The audit directories.
        looked: Vec<PathBuf>,
    },
    /// There are not so many packs.
    #[error("there is no {name}: {} in {}", counted(*.packs, "pack"), places(.looked))]
    Before {
        /// What was asked for.
        name: String,
        /// How many there are.
        packs: u64,
        /// The audit directories.
        looked: Vec<PathBuf>,
    },
    /// Several sessions begin like this.
    #[error("{name} may be {}", list(.candidates))]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// Names that are not ambiguous.
        candidates: Vec<String>,
    },
}

fn places(looked: &[PathBuf]) -> String {
    if looked.is_empty() {
        return "no audit directory: nothing was recorded here, or by this user".to_owned();
    }
    looked.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn list(candidates: &[String]) -> String {
    let shown = candidates.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    match candidates.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Finds what is meant. A path that exists is that path, whatever sessions are called.
///
/// # Errors
/// [`NameError`].
pub fn find(what: &Path, places: &Places) -> Result<Named, NameError> {
    if what.is_dir() {
        return Ok(audit_dir(what).map_or_else(|| Named::Pack(what.to_owned()), Named::Directory));
    }
    if what.symlink_metadata().is_ok() {
        return of_file(what);
    }
    // A journal that went when its session was sealed is in its pack.
    let sealed = std::path::absolute(what).ok().and_then(|journal| paths::in_pack(&journal)).filter(|p| p.is_file());
    if let Some(pack) = sealed.as_deref().and_then(Path::parent) {
        return Ok(Named::Pack(pack.to_owned()));
    }
    let Some(wanted) = what.to_str().and_then(Wanted::parse) else { return Err(NameError::Missing(what.to_owned())) };
    let looked = places.roots();
    let sessions = sessions(&looked);
    let name = what.display().to_string();
    match wanted {
        Wanted::Last(back) => {
            let packs = newest_packs(sessions, back.saturating_add(1));
            match packs.get(back) {
                Some(paths) => Ok(Named::Pack(paths.pack.clone())),
                None => Err(NameError::Before { name, packs: packs.len() as u64, looked }),
            }
        }
        wanted => {
            let mut found: Vec<SessionPaths> = sessions.into_iter().filter(|s| wanted.is(s)).collect();
            match found.len() {
                0 => Err(NameError::Unknown { name, looked }),
                1 => Ok(of_session(found.remove(0))),
                _ => {
                    let candidates = found.iter().rev().map(|s| candidate(s, &found)).collect();
                    Err(NameError::Ambiguous { name, candidates })
                }
            }
        }
    }
}

/// The packs of an audit directory, the oldest first.
#[must_use]
pub fn packs(root: &Path) -> Vec<PathBuf> {
    sessions(&[root.to_owned()]).into_iter().filter(has_pack).map(|s| s.pack).collect()
}

/// What one of several sessions is called: its id, or where that stands in two audit directories, its path.
fn candidate(one: &SessionPaths, all: &[SessionPaths]) -> String {
    let same = all.iter().filter(|s| s.id == one.id).count();
    if same == 1 { one.id.to_string() } else { one.pack.display().to_string() }
}

fn of_session(paths: SessionPaths) -> Named {
    if has_pack(&paths) { Named::Pack(paths.pack) } else { Named::Session(Box::new(paths)) }
}

/// The audit directory that this is, or whose `packs/` it is.
fn audit_dir(dir: &Path) -> Option<PathBuf> {
    let is = |dir: &Path| {
        let at = AuditDir::at(dir);
        at.audit().is_dir() && at.receipts().is_dir() && !dir.join(MANIFEST).exists()
    };
    if is(dir) {
        return Some(dir.to_owned());
    }
    let full = dir.canonicalize().ok()?;
    let parent = full.parent().filter(|_| full.ends_with("packs"))?;
    is(parent).then(|| parent.to_owned())
}

/// A file of an audit directory, or of a pack.
fn of_file(what: &Path) -> Result<Named, NameError> {
    let neither = || NameError::Neither(what.to_owned());
    let absolute = std::path::absolute(what).map_err(|_| neither())?;
    let name = what.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.strip_prefix("segment_").or_else(|| name.strip_prefix("session_"));
    let root = absolute.parent().and_then(Path::parent);
    if let (Some(stem), Some(root)) = (stem, root)
        && let Some(paths) = AuditDir::at(root).session_of_segment(&format!("segment_{stem}"))
    {
        return Ok(Named::Session(Box::new(paths)));
    }
    match absolute.parent() {
        Some(dir) if dir.join(MANIFEST).is_file() => Ok(Named::Pack(dir.to_owned())),
        _ => Err(neither()),
    }
}

/// A name of sessions.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// So many before the newest pack.
    Last(usize),
    /// The beginning of an id, in lower case.
    Digits(String),
    /// The beginning of a stem: it has a date, so that it is never an id.
    Stem(String),
}

impl Wanted {
    fn parse(text: &str) -> Option<Self> {
        if text == LAST {
            return Some(Self::Last(0));
        }
        if let Some(back) = text.strip_prefix(LAST).and_then(|rest| rest.strip_prefix('~')) {
            return if back.is_empty() { Some(1) } else { back.parse().ok() }.map(Self::Last);
        }
        let stem = text.strip_prefix(PACK_PREFIX).unwrap_or(text);
        let date = |stem: &str| stem.len() > 8 && stem.bytes().take(8).all(|b| b.is_ascii_digit());
        if date(stem) && stem.as_bytes().get(8) == Some(&b'T') {
            return Some(Self::Stem(stem.to_owned()));
        }
        let digits = text.strip_prefix(SessionId::PREFIX).unwrap_or(text);
        let is = (MIN_DIGITS..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
        is.then(|| Self::Digits(digits.to_ascii_lowercase()))
    }

    fn is(&self, session: &SessionPaths) -> bool {
        match self {
            Self::Last(_) => false,
            Self::Digits(digits) => session.id.hex().starts_with(digits),
            Self::Stem(stem) => session.stem.starts_with(stem),
        }
    }
}

/// The sessions of audit directories, by the names of their files, the oldest first.
fn sessions(roots: &[PathBuf]) -> Vec<SessionPaths> {
    let mut all = BTreeMap::new();
    for (nth, root) in roots.iter().enumerate() {
        all.extend(AuditDir::at(root).sessions().into_iter().map(|(stem, paths)| ((stem, nth), paths)));
    }
    all.into_values().collect()
}

/// The newest sessions that have packs, at most so many. Names tell the second; within one, `session.json` does.
fn newest_packs(mut oldest_first: Vec<SessionPaths>, most: usize) -> Vec<SessionPaths> {
    let mut out = Vec::new();
    while out.len() < most
        && let Some(last) = oldest_first.last()
    {
        let second = second(&last.stem).to_owned();
        let from = oldest_first.iter().rposition(|s| self::second(&s.stem) != second).map_or(0, |at| at + 1);
        let mut together = oldest_first.split_off(from);
        together.retain(has_pack);
        if together.len() > 1 {
            together.sort_by_cached_key(|s| Reverse(super::list::started(&s.pack)));
        }
        out.extend(together);
    }
    out.truncate(most);
    out
}

fn second(stem: &str) -> &str {
    stem.split('_').next().unwrap_or_default()
}

fn has_pack(session: &SessionPaths) -> bool {
    session.pack.join(MANIFEST).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_support::sessions::{self, Plan};

    #[test]
    fn names_are_what_people_type() {
        for (text, wanted) in [
            ("last", Wanted::Last(0)),
            ("last~", Wanted::Last(1)),
            ("last~12", Wanted::Last(12)),
            ("41E1", Wanted::Digits("41e1".into())),
            ("mcp_0123456789abcdef", Wanted::Digits("0123456789abcdef".into())),
            ("20260315", Wanted::Digits("20260315".into())),
            ("20260315T11", Wanted::Stem("20260315T11".into())),
            ("proof_pack_20260315T", Wanted::Stem("20260315T".into())),
        ] {
            assert_eq!(Wanted::parse(text), Some(wanted), "{text}");
        }
        for text in ["", "las", "last~x", "last~-1", "41e", "mcp_", "mcp_0123456789abcdef0", "xyz1", "proof_pack_"] {
            assert_eq!(Wanted::parse(text), None, "{text}");
        }
    }

    #[test]
    fn packs_sessions_and_files_of_both_are_found() {
        let tmp = tempfile::tempdir().unwrap();
        let audit = tmp.path().join("audit");
        let written = sessions::write(&Plan::default(), &audit).unwrap();
        let places = Places { audit_dir: Some(audit.clone()), only: true, ..Places::of_user() };
        let of = |what: &Path| find(what, &places);
        let id = written.doc.session_id.to_string();
        for what in [&id, &id[..9], &id[4..8], &written.paths.stem] {
            let Ok(Named::Session(found)) = of(Path::new(what)) else { panic!("{what:?}") };
            assert_eq!(found.segment, written.paths.segment);
        }
        for what in [&written.paths.segment, &written.paths.receipts] {
            assert!(matches!(of(what), Ok(Named::Session(_))), "{what:?}");
        }
        assert!(matches!(of(Path::new("last")), Err(NameError::Before { packs: 0, .. })));
        let pack = &written.paths.pack;
        std::fs::create_dir_all(pack).unwrap();
        std::fs::write(pack.join(MANIFEST), "{}").unwrap();
        for what in [Path::new(&id), pack, &pack.join(MANIFEST), Path::new("last"), Path::new(&id[4..9])] {
            assert_eq!(of(what).unwrap(), Named::Pack(pack.clone()), "{what:?}");
        }
        for what in [&audit, &audit.join("packs")] {
            let Ok(Named::Directory(found)) = of(what) else { panic!("{what:?}") };
            assert_eq!(packs(&found), [pack.canonicalize().unwrap()]);
        }
        let other = tmp.path().join("notes.txt");
        std::fs::write(&other, "x").unwrap();
        assert!(matches!(of(&other), Err(NameError::Neither(_))));
        assert!(matches!(of(&tmp.path().join("gone")), Err(NameError::Missing(_))));
        let unknown = of(Path::new("mcp_00000000000000aa")).unwrap_err().to_string();
        assert!(unknown.contains("mcp_00000000000000aa") && unknown.contains("audit"), "{unknown}");
    }

    #[test]
    fn the_last_one_is_the_newest_with_a_pack_and_beginnings_may_be_several() {
        let tmp = tempfile::tempdir().unwrap();
        let audit = tmp.path().canonicalize().unwrap().join("audit");
        let dir = AuditDir::at(&audit);
        // Two began in one second: their documents say which was first, and their ids say otherwise.
        let all = [
            ("20260315T113000Z_41e1000000000000", Some("2026-03-15T11:30:00.700Z")),
            ("20260315T113000Z_41e2000000000000", Some("2026-03-15T11:30:00.200Z")),
            ("20260315T113001Z_5000000000000000", None),
            ("20260314T113000Z_6000000000000000", Some("2026-03-14T11:30:00.000Z")),
        ];
        std::fs::create_dir_all(dir.audit()).unwrap();
        for (stem, started) in all {
            std::fs::write(dir.audit().join(format!("segment_{stem}.jsonl")), "").unwrap();
            if let Some(started) = started {
                let pack = dir.packs().join(format!("{PACK_PREFIX}{stem}"));
                std::fs::create_dir_all(&pack).unwrap();
                std::fs::write(pack.join(MANIFEST), "{}").unwrap();
                std::fs::write(pack.join("session.json"), format!(r#"{{"v":1,"started_at":"{started}"}}"#)).unwrap();
            }
        }
        let places = Places { audit_dir: Some(audit), only: true, ..Places::of_user() };
        for (name, nth) in [("last", 0), ("last~1", 1), ("last~2", 3)] {
            let Named::Pack(pack) = find(Path::new(name), &places).unwrap() else { panic!("{name}") };
            assert!(pack.ends_with(format!("{PACK_PREFIX}{}", all[nth].0)), "{name}: {pack:?}");
        }
        let before = find(Path::new("last~3"), &places).unwrap_err();
        assert!(matches!(before, NameError::Before { packs: 3, .. }), "{before}");
        let several = find(Path::new("20260315T113000Z"), &places).unwrap_err();
        assert_eq!(several.to_string(), "20260315T113000Z may be mcp_41e2000000000000, mcp_41e1000000000000");
        assert!(matches!(find(Path::new("41e1"), &places), Ok(Named::Pack(_))));
        assert!(matches!(find(Path::new("5000"), &places), Ok(Named::Session(_))));
    }
}
