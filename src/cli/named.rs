//! The packs that arguments name: paths, names of sessions, audit directories, archives.

use super::{
    archive::{self, Unpacked},
    out::{self, short},
};
use crate::{
    error::Failure,
    history::{
        list::Places,
        named::{self, FORMS, NameError, Named},
    },
    numbers::counted,
};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// A pack that was named.
#[derive(Debug)]
pub struct Pack {
    /// Its directory.
    pub dir: PathBuf,
    /// What it is called to people: its directory, or for one in an archive the path in that.
    pub shown: PathBuf,
    /// What it was unpacked to, which is gone when this is.
    _unpacked: Option<std::rc::Rc<Unpacked>>,
}

impl Pack {
    /// The pack in this directory.
    pub fn at(dir: PathBuf) -> Self {
        Self { shown: dir.clone(), dir, _unpacked: None }
    }
}

impl From<NameError> for Failure {
    fn from(e: NameError) -> Self {
        let hint = match &e {
            NameError::Ambiguous { .. } => "give more of it",
            NameError::Neither(_) => "give the directory that has pack_manifest.json",
            NameError::Before { packs: 0, .. } => {
                "record a session first, or name the audit directory with --audit-dir"
            }
            NameError::Before { .. } => "assay packs lists them",
            NameError::Missing(_) | NameError::Unknown { .. } => FORMS,
        };
        Self::bad_input(e).hint(hint)
    }
}

/// What is wrong with an audit directory, and where this user has others.
pub fn not_here(wrong: std::fmt::Arguments<'_>) -> Failure {
    const MOST: usize = 4;
    let known = Places::of_command(None).roots().into_iter().filter(|root| root.join("audit").is_dir());
    let known: Vec<String> = known.take(MOST + 1).map(|root| short(&root.display().to_string())).collect();
    let hint = match known.len() {
        0 => "name the directory that was given to mcp-proxy with --audit-dir".to_owned(),
        n => {
            let more = if n > MOST { " and more" } else { "" };
            format!("name one with --audit-dir: you recorded in {}{more}", known[..n.min(MOST)].join(", "))
        }
    };
    Failure::bad_input(wrong).hint(hint)
}

/// What an argument leads to. Where that was looked up, it is said on stderr.
///
/// # Errors
/// [`NameError`].
pub fn find(what: &Path, places: &Places) -> Result<Named, Failure> {
    let named = named::find(what, places)?;
    if what.symlink_metadata().is_err() {
        let place = match &named {
            Named::Pack(dir) | Named::Directory(dir) => dir,
            Named::Session(paths) => &paths.segment,
        };
        out::stderr(&format!("assay: {} is {}", what.display(), short(&place.display().to_string())));
    }
    Ok(named)
}

/// The packs that arguments name, in their order; an audit directory and an archive stand for all that are in them.
///
/// # Errors
/// What names no pack.
pub fn packs(arguments: &[PathBuf], places: &Places) -> Result<Vec<Pack>, Failure> {
    let mut out = Vec::new();
    for what in arguments {
        if is_archive(what)
            && let Some(unpacked) = archive::unpack(what)?
        {
            let unpacked = std::rc::Rc::new(unpacked);
            let all = unpacked.packs.iter().map(|(dir, shown)| Pack {
                dir: dir.clone(),
                shown: shown.clone(),
                _unpacked: Some(std::rc::Rc::clone(&unpacked)),
            });
            out.extend(all);
            continue;
        }
        match find(what, places)? {
            Named::Pack(dir) => out.push(Pack::at(dir)),
            Named::Directory(root) => {
                let packs = named::packs(&root);
                if packs.is_empty() {
                    let what = format_args!("{} is an audit directory without packs", what.display());
                    return Err(Failure::bad_input(what)
                        .hint("a session has its pack when it ends; assay recover makes those of sessions whose recorder died"));
                }
                out.extend(packs.into_iter().map(Pack::at));
            }
            Named::Session(paths) => {
                let what = format_args!("session {} has no pack: {}", paths.id, paths.segment.display());
                return Err(Failure::bad_input(what).hint(
                    "a session has its pack when it ends; assay recover makes that of one whose recorder died; assay open shows the files",
                ));
            }
        }
    }
    Ok(out)
}

/// The one pack that an argument names.
///
/// # Errors
/// What names none, or several.
pub fn pack(what: &Path, places: &Places) -> Result<Pack, Failure> {
    let mut all = packs(&[what.to_owned()], places)?;
    match all.len() {
        1 => Ok(all.remove(0)),
        n => Err(Failure::bad_input(format_args!("{} has {}", what.display(), counted(n as u64, "pack")))
            .hint("name one of them; assay packs lists them")),
    }
}

/// Whether a file is called like an archive.
pub fn is_archive(what: &Path) -> bool {
    let ends = ["zip", "tar", "tgz", "gz"];
    what.is_file() && what.extension().and_then(OsStr::to_str).is_some_and(|e| ends.contains(&&*e.to_ascii_lowercase()))
}
