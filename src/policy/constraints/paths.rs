//! `allowed_paths`: what is a path among the arguments, and every way in which a server could read it.
//!
//! A value is read in all the ways that servers read paths (as it is written, percent-decoded, with backslashes as
//! slashes, from a `file:` URI, …), and every reading must be allowed. A reading is made absolute, normalized, and
//! where it exists its symbolic links are resolved, both as the kernel does (`link/..` is where the link leads to) and
//! as programs do that normalize first.

mod keys;
mod readings;
mod resolve;

use super::{
    super::names::Unusable,
    walk::{Leaf, WalkError, walk},
};
use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::{
    ops::ControlFlow,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// Bytes of a pattern.
const MAX_PATTERN: usize = 4096;

/// Where a server runs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The working directory of the server, absolute.
    pub cwd: &'a Path,
    /// The home directory of its user; `None` if it is not known.
    pub home: Option<&'a Path>,
}

/// The patterns of one `allowed_paths`.
#[derive(Debug, Default)]
pub struct PathRules {
    texts: Vec<String>,
    globs: [Vec<Glob>; SETS],
    sets: [GlobSet; SETS],
}

/// Where a pattern counts from, and whether it allows.
#[derive(Debug, Clone, Copy)]
enum Set {
    /// It allows, and counts from the root.
    Allow,
    /// It allows, and counts from the working directory.
    AllowCwd,
    /// It allows, and counts from the home directory.
    AllowHome,
    /// It excludes, counts from the root, and ignores the case of letters.
    Exclude,
    /// It excludes, counts from the home directory, and ignores the case of letters.
    ExcludeHome,
}
const SETS: usize = 5;

/// Why a path is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// Why, as text for people.
    pub message: String,
}

/// What a look at the arguments gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No path among them.
    Nothing,
    /// All paths are allowed.
    Allowed,
    /// At least one path is not allowed.
    Denied(Denied),
}

impl PathRules {
    /// Adds a pattern; one that begins with `!` excludes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (exclude, pattern) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        let pattern = if pattern.len() > 1 { pattern.trim_end_matches('/') } else { pattern };
        if pattern.is_empty() {
            return Err(if text == "/" {
                "to allow everything, write /**".to_owned()
            } else {
                "it is empty".to_owned()
            });
        }
        if pattern.len() > MAX_PATTERN {
            return Err(format!("longer than {MAX_PATTERN} bytes"));
        }
        if pattern.contains('\0') {
            return Err("a NUL character".to_owned());
        }
        let inner = pattern.strip_prefix('/').unwrap_or(pattern);
        if pattern != "." && pattern != "/" && inner.split('/').any(|c| matches!(c, "" | "." | "..")) {
            return Err(
                "an empty component, `.` or `..`: these are removed from paths before they are matched".to_owned()
            );
        }
        if pattern.starts_with('~') && pattern != "~" && !pattern.starts_with("~/") {
            return Err("the home directory of another user is unknown: write it out".to_owned());
        }
        let (set, rest) = match (pattern.strip_prefix('~'), exclude) {
            (Some(rest), false) => (Set::AllowHome, rest.trim_start_matches('/')),
            (Some(rest), true) => (Set::ExcludeHome, rest.trim_start_matches('/')),
            (None, true) => (Set::Exclude, pattern),
            (None, false) if pattern.starts_with('/') || pattern.starts_with("**") => (Set::Allow, pattern),
            (None, false) => (Set::AllowCwd, if pattern == "." { "" } else { pattern }),
        };
        // A pattern without a place excludes everywhere.
        let rooted = if exclude && !rest.starts_with('/') && !matches!(set, Set::ExcludeHome) && !rest.starts_with("**")
        {
            format!("**/{rest}")
        } else {
            rest.to_owned()
        };
        self.glob(set, &rooted, exclude)?;
        // `dir/**` is the directory as well, and what is below something excluded is excluded.
        if let Some(dir) = rooted.strip_suffix("/**") {
            self.glob(set, if dir.is_empty() { "/" } else { dir }, exclude)?;
        } else if rooted == "**" {
            self.glob(set, "", exclude)?;
        } else if exclude {
            self.glob(set, &format!("{}/**", rooted.trim_end_matches('/')), exclude)?;
        }
        self.texts.push(text.to_owned());
        Ok(())
    }

    fn glob(&mut self, set: Set, glob: &str, any_case: bool) -> Result<(), String> {
        let mut builder = GlobBuilder::new(glob);
        builder.literal_separator(true).backslash_escape(true).empty_alternates(true).case_insensitive(any_case);
        self.globs[set as usize].push(builder.build().map_err(|e| e.kind().to_string())?);
        Ok(())
    }

    /// Compiles what was added.
    ///
    /// # Errors
    /// It is too big.
    pub fn compile(&mut self) -> Result<(), Unusable> {
        for (globs, set) in self.globs.iter_mut().zip(&mut self.sets) {
            let mut builder = GlobSetBuilder::new();
            for glob in globs.drain(..) {
                builder.add(glob);
            }
            *set = builder.build().map_err(|_| Unusable)?;
        }
        Ok(())
    }

    /// Whether there is a pattern that allows something.
    #[must_use]
    pub fn allows_any(&self) -> bool {
        self.texts.iter().any(|t| !t.starts_with('!'))
    }

    /// The patterns as they were written.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Looks at every path in the arguments until one is denied.
    ///
    /// # Errors
    /// The arguments cannot be read.
    pub fn check(&self, arguments: &[u8], place: Place<'_>) -> Result<Found, WalkError> {
        let mut found = Found::Nothing;
        walk(arguments, &mut |leaf, around| {
            let denied = match leaf {
                Leaf::Number(_) => return ControlFlow::Continue(()),
                Leaf::Key(text) => {
                    if !keys::looks_like_path(text) {
                        return ControlFlow::Continue(());
                    }
                    self.value(text, keys::Kind::Other, place)
                }
                Leaf::Text(text) => self.value(text, keys::kind(around), place),
            };
            match denied {
                Ok(false) => ControlFlow::Continue(()),
                Ok(true) => {
                    found = Found::Allowed;
                    ControlFlow::Continue(())
                }
                Err(denied) => {
                    found = Found::Denied(denied);
                    ControlFlow::Break(())
                }
            }
        })?;
        Ok(found)
    }

    /// Whether a string is or holds a path; an error when it is denied.
    fn value(&self, text: &str, kind: keys::Kind, place: Place<'_>) -> Result<bool, Denied> {
        let mut looked = false;
        let mut each = |readings: Result<Vec<readings::Reading>, &'static str>| {
            let denied = |why: &str| {
                let (text, why) = (shown(text), why.to_owned());
                // What is only said again is left out.
                let why = why.replacen(&format!("is {text}, which is "), "is ", 1);
                Denied { message: format!("the path {text} {why}") }
            };
            for reading in readings.map_err(denied)? {
                looked = true;
                self.reading(&reading, place).map_err(|why| denied(&why))?;
            }
            Ok(())
        };
        each(readings::of(text, kind))?;
        for uri in readings::embedded(text) {
            each(readings::of(uri, kind))?;
        }
        Ok(looked)
    }

    fn reading(&self, reading: &readings::Reading, place: Place<'_>) -> Result<(), String> {
        let path = absolute(&reading.path, reading.home, place)?;
        let lexical = resolve::normalized(&path);
        self.not_excluded(&lexical, place)?;
        let real = resolve::real(&lexical)?;
        self.allowed(&real, place)?;
        if path.components().any(|c| c == std::path::Component::ParentDir) {
            self.allowed(&resolve::real(&path)?, place)?;
        }
        Ok(())
    }

    fn allowed(&self, path: &Path, place: Place<'_>) -> Result<(), String> {
        self.not_excluded(path, place)?;
        let is = |set: Set, path: &Path| self.is(set, path);
        if is(Set::Allow, path)
            || path.strip_prefix(place.cwd).is_ok_and(|rest| is(Set::AllowCwd, rest))
            || place.home.is_some_and(|home| path.strip_prefix(home).is_ok_and(|rest| is(Set::AllowHome, rest)))
        {
            return Ok(());
        }
        Err(format!("is {}, which is not allowed", shown(&path.to_string_lossy())))
    }

    fn not_excluded(&self, path: &Path, place: Place<'_>) -> Result<(), String> {
        let set = &self.sets[Set::ExcludeHome as usize];
        let below_home = || match place.home {
            Some(home) => path.strip_prefix(home).is_ok_and(|rest| self.is(Set::ExcludeHome, rest)),
            // If the home is not known, any directory may be it.
            None => {
                path.ancestors().any(|dir| path.strip_prefix(dir).is_ok_and(|rest| self.is(Set::ExcludeHome, rest)))
            }
        };
        if self.is(Set::Exclude, path) || (!set.is_empty() && below_home()) {
            return Err(format!("is {}, which is excluded", shown(&path.to_string_lossy())));
        }
        Ok(())
    }

    fn is(&self, set: Set, path: &Path) -> bool {
        self.sets[set as usize].is_match_candidate(&Candidate::from_bytes(path.as_os_str().as_bytes()))
    }
}

fn absolute(path: &str, home_form: bool, place: Place<'_>) -> Result<PathBuf, String> {
    if home_form {
        let home = place.home.ok_or("begins with ~, but the home directory is unknown")?;
        return Ok(home.join(path.trim_start_matches(['~', '/'])));
    }
    Ok(place.cwd.join(path))
}

/// A path as a message may quote it.
fn shown(text: &str) -> String {
    crate::text::fit(&crate::text::visible(text), 200).into_owned()
}
