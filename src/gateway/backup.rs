//! Copies of the registry: made daily and when asked, put back, and a registry made again without one.

use super::{
    config::Config,
    data::{hold, registry_failure},
    reach::declared,
    registry::{Copier, DATABASE, Registry as _, SqliteRegistry, State},
};
use crate::{
    db::DbError,
    error::Failure,
    files::{self, Tree},
    model::WallTime,
};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Where copies are, below the data directory.
pub const BACKUPS: &str = "backups";
/// Copies that are kept of those made daily.
const KEPT: usize = 7;
/// What stands in the names of the others.
const BY_HAND: &str = "_by_hand";
/// What SQLite keeps beside a database.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];
/// Bytes of the largest copy that is put back.
const MOST: u64 = 16 << 30;

fn io_failure(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |e| Failure::failed(format_args!("{}: {e}", path.display()))
}

/// Copies the registry, which may be in use, among the copies of its directory or to a new file. Returns where to.
///
/// # Errors
/// There is no registry, it cannot be read, or the copy cannot be written.
pub fn backup(data: &Path, to: Option<&Path>) -> Result<PathBuf, Failure> {
    exists(data)?;
    let registry = SqliteRegistry::open(data).map_err(|e| registry_failure(data, &e))?;
    registry.check().map_err(|e| registry_failure(data, &e))?;
    let to = match to {
        Some(to) => std::path::absolute(to).map_err(io_failure(to))?,
        None => place(data, &format!("registry_{}{BY_HAND}", WallTime::now().compact())).map_err(io_failure(data))?,
    };
    write(registry.copier(), &to)?;
    Ok(to)
}

fn write(copier: Copier, to: &Path) -> Result<(), Failure> {
    copier(to).map_err(|e| Failure::failed(format_args!("the copy cannot be written: {e}")))
}

fn exists(data: &Path) -> Result<(), Failure> {
    if data.join(DATABASE).exists() {
        return Ok(());
    }
    Err(Failure::bad_input(format_args!("no gateway has run in {}", data.display()))
        .hint("name its directory with --data"))
}

/// A new copy among the others, with a number behind its name if there is one of that name.
fn place(data: &Path, name: &str) -> io::Result<PathBuf> {
    let (tree, dir) = (Tree::at(data), data.join(BACKUPS));
    tree.make_dir(&dir)?;
    let numbered = |n: u32| if n == 1 { format!("{name}.sqlite3") } else { format!("{name}_{n}.sqlite3") };
    let free = (1..1000).map(|n| dir.join(numbered(n))).find(|path| !tree.exists(path));
    free.ok_or_else(|| io::ErrorKind::AlreadyExists.into())
}

/// Copies that are there, the newest last.
fn copies(data: &Path) -> io::Result<Vec<PathBuf>> {
    let dir = data.join(BACKUPS);
    let is_copy = |name: &str| name.starts_with("registry_") && name.ends_with(".sqlite3");
    let names = match Tree::at(data).names(&dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names?,
    };
    let mut names: Vec<String> = names.into_iter().filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| is_copy(name));
    names.sort();
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// The copies that were made daily.
fn made_daily(data: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut copies = copies(data).map_err(io_failure(data))?;
    copies.retain(|copy| !copy.to_string_lossy().contains(BY_HAND));
    Ok(copies)
}

/// A copy, if there is none of this day, and the oldest beyond seven go; those that somebody asked for stay.
///
/// # Errors
/// The copy cannot be made; none goes then.
pub fn daily(data: &Path, copier: Copier, now: WallTime) -> Result<(), Failure> {
    let name = format!("registry_{}", now.compact());
    let day = name.split('T').next().unwrap_or_default();
    let is_of_day =
        |copy: &PathBuf| copy.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(day));
    if made_daily(data)?.iter().any(is_of_day) {
        return Ok(());
    }
    write(copier, &place(data, &name).map_err(io_failure(data))?)?;
    let copies = made_daily(data)?;
    for old in &copies[..copies.len().saturating_sub(KEPT)] {
        Tree::at(data).remove(old).map_err(io_failure(old))?;
    }
    Ok(())
}

/// What was done with the registry.
#[derive(Debug)]
pub struct Replaced {
    /// Where the one before is.
    pub before: Option<PathBuf>,
    /// The copy that was put back.
    pub from: Option<PathBuf>,
    /// The services that are in it.
    pub services: usize,
}

/// Puts a copy back, the newest without a name. What was approved may have changed since it was made, so each open route waits
/// for a check.
///
/// # Errors
/// A gateway runs, or the copy cannot be used: nothing was changed then.
pub fn restore(data: &Path, from: Option<&Path>) -> Result<Replaced, Failure> {
    let _held = hold(data)?;
    let from = match from {
        Some(from) => from.to_owned(),
        None => copies(data).map_err(io_failure(data))?.pop().ok_or_else(|| {
            Failure::bad_input(format_args!("there is no copy in {}", data.join(BACKUPS).display()))
                .hint("name one, or make the registry again: assay gateway rebuild")
        })?,
    };
    let bytes = files::named(&from).and_then(|file| files::read_all(file, MOST));
    let bytes = bytes.map_err(|e| Failure::bad_input(format_args!("cannot read {}: {e}", from.display())))?;
    let services = stage(data, |staged| {
        let file = staged.join(DATABASE);
        Tree::at(data).replace(&file.with_extension("tmp"), &file, &bytes, true).map_err(io_failure(&file))?;
        let unusable = |e: DbError| {
            Failure::bad_input(format_args!("{} cannot be put back: {e}", from.display())).hint("name another copy")
        };
        let mut registry = SqliteRegistry::open(staged).map_err(unusable)?;
        registry.check().map_err(unusable)?;
        let rows = registry.services().map_err(unusable)?;
        for row in rows.iter().filter(|row| row.state == State::Enabled) {
            let why = Some("the registry was put back from a copy: it is looked at again");
            registry.turn(&row.name, State::Pending, why, "system", WallTime::now()).map_err(unusable)?;
        }
        Ok(rows.len())
    })?;
    Ok(Replaced { before: services.1, from: Some(from), services: services.0 })
}

/// Makes the registry again: the services are those of the configuration, and what is approved of them is in their
/// decisions. Each waits for a check.
///
/// # Errors
/// A gateway runs, or the files cannot be written.
pub fn rebuild(data: &Path, config: &Config) -> Result<Replaced, Failure> {
    let _held = hold(data)?;
    let (services, before) = stage(data, |staged| {
        let mut registry = SqliteRegistry::open(staged).map_err(|e| registry_failure(data, &e))?;
        let all: Vec<_> = config.services.iter().map(|service| declared(service, None)).collect();
        registry.adopt(&all, "config", WallTime::now()).map_err(|e| registry_failure(data, &e))?;
        Ok(all.len())
    })?;
    Ok(Replaced { before, from: None, services })
}

/// Has a registry made in a directory of its own, and puts it into the place of the one that is there, which stays beside it.
fn stage<T>(data: &Path, make: impl FnOnce(&Path) -> Result<T, Failure>) -> Result<(T, Option<PathBuf>), Failure> {
    let (tree, staged) = (Tree::at(data), data.join(".staged"));
    let clear = || -> io::Result<()> {
        if let Ok(names) = tree.names(&staged) {
            names.iter().try_for_each(|name| tree.remove(&staged.join(name)))?;
            tree.remove_dir(&staged)?;
        }
        Ok(())
    };
    clear().and_then(|()| tree.make_dir(&staged)).map_err(io_failure(&staged))?;
    let made = make(&staged);
    let put = made.and_then(|made| {
        let here = data.join(DATABASE);
        let beside = |path: &Path, end: &str| PathBuf::from(format!("{}{end}", path.display()));
        let put = || -> io::Result<Option<PathBuf>> {
            // With an index of its own, a log that is left would be played into the new one.
            let before = data.join(format!("{DATABASE}.before_{}", WallTime::now().compact()));
            for end in BESIDE {
                let old = beside(&here, end);
                if tree.exists(&old) {
                    tree.rename(&old, &beside(&before, end))?;
                }
            }
            let had = tree.exists(&here);
            if had {
                tree.rename(&here, &before)?;
            }
            tree.rename(&staged.join(DATABASE), &here)?;
            files::sync_dir(data)?;
            Ok(had.then_some(before))
        };
        put().map(|before| (made, before)).map_err(io_failure(&here))
    });
    let _ = clear();
    put
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_one_copy_and_those_made_by_hand_stay() {
        let tmp = tempfile::tempdir().unwrap();
        let data = tmp.path();
        let registry = SqliteRegistry::open(data).unwrap();
        let day = |day: u64| WallTime::from_millis(day as i64 * 86_400_000 + 3_600_000);
        let by_hand = [backup(data, None).unwrap(), backup(data, None).unwrap()];
        assert_ne!(by_hand[0], by_hand[1]);
        for now in [day(1), day(1), day(2), day(2)] {
            daily(data, registry.copier(), now).unwrap();
        }
        assert_eq!(made_daily(data).unwrap().len(), 2);
        for n in 3..=9 {
            daily(data, registry.copier(), day(n)).unwrap();
        }
        let left = made_daily(data).unwrap();
        assert_eq!(left.len(), KEPT);
        assert!(left[0].ends_with("registry_19700104T010000Z.sqlite3"), "{left:?}");
        assert!(by_hand.iter().all(|copy| copy.exists()));
    }
}
