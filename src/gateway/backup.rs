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
        None => place(data, WallTime::now()).map_err(io_failure(data))?,
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

/// A new copy among the others.
fn place(data: &Path, now: WallTime) -> io::Result<PathBuf> {
    let dir = data.join(BACKUPS);
    Tree::at(data).make_dir(&dir)?;
    Ok(dir.join(format!("registry_{}.sqlite3", now.compact())))
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

/// Once a day: a copy, and the oldest beyond seven go.
///
/// # Errors
/// The copy cannot be made; none goes then.
pub fn daily(data: &Path, copier: Copier) -> Result<(), Failure> {
    write(copier, &place(data, WallTime::now()).map_err(io_failure(data))?)?;
    let copies = copies(data).map_err(io_failure(data))?;
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
