//! Tool names and globs: a set that answers which entry names a tool, by the bytes of the name.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::{collections::HashMap, sync::OnceLock};
use unicode_normalization::UnicodeNormalization as _;

/// Bytes of a name or glob.
pub const MAX_NAME: usize = 1024;
/// Globs that are compiled together, on first use.
const CHUNK: usize = 128;

/// A set is too large to be compiled: what it says is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unusable;

/// The entries of a list, in file order.
#[derive(Debug, Default)]
pub struct NameSet {
    texts: Vec<String>,
    exact: HashMap<String, u32>,
    /// By [`fold`], the exact entries.
    folded: HashMap<String, u32>,
    globs: Vec<Chunk>,
}

#[derive(Debug, Default)]
struct Chunk {
    entries: Vec<u32>,
    globs: Vec<Glob>,
    /// The same without regard to case.
    loose: Vec<Glob>,
    set: OnceLock<Option<GlobSet>>,
    loose_set: OnceLock<Option<GlobSet>>,
}

/// Whether a text is a glob and not a name.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '[', '{', '\\'])
}

/// A name without what a careless peer could overlook: case, compatibility forms, blanks around it, invisible
/// characters.
pub fn fold(name: &str) -> String {
    if name.bytes().all(|b| b.is_ascii_graphic()) {
        return name.to_ascii_lowercase();
    }
    let invisible = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
                | '\u{e0000}'..='\u{e0fff}')
    };
    let folded: String = name.nfkc().filter(|c| !invisible(*c)).flat_map(char::to_lowercase).collect();
    let folded: String = folded.nfkc().collect();
    folded.trim().to_owned()
}

impl NameSet {
    /// Adds an entry, as a glob if it looks like one.
    ///
    /// # Errors
    /// Why it is not a glob.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        if is_glob(text) {
            self.add_glob(text, text)
        } else {
            self.add_exact(text);
            Ok(())
        }
    }

    /// Adds a name that is not a glob.
    pub fn add_exact(&mut self, name: &str) {
        let n = self.texts.len() as u32;
        self.exact.entry(name.to_owned()).or_insert(n);
        self.folded.entry(fold(name)).or_insert(n);
        self.texts.push(name.to_owned());
    }

    /// Adds a glob, `text` as a person wrote it.
    ///
    /// # Errors
    /// Why it is not a glob.
    pub fn add_glob(&mut self, text: &str, glob: &str) -> Result<(), String> {
        let parse = |loose: bool| {
            let mut builder = GlobBuilder::new(glob);
            builder.literal_separator(false).backslash_escape(true).empty_alternates(true).case_insensitive(loose);
            builder.build().map_err(|e| e.kind().to_string())
        };
        let (strict, loose) = (parse(false)?, parse(true)?);
        if self.globs.last().is_none_or(|c| c.entries.len() == CHUNK) {
            self.globs.push(Chunk::default());
        }
        if let Some(chunk) = self.globs.last_mut() {
            chunk.entries.push(self.texts.len() as u32);
            chunk.globs.push(strict);
            chunk.loose.push(loose);
        }
        self.texts.push(text.to_owned());
        Ok(())
    }

    /// The entry as it was written.
    pub fn text(&self, n: u32) -> &str {
        self.texts.get(n as usize).map_or("", String::as_str)
    }

    /// All entries as they were written.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Whether the set has `name` itself, not only a glob that matches it.
    pub fn names(&self, name: &str) -> bool {
        self.exact.contains_key(name)
    }

    /// The first entry that names a tool.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn first(&self, name: &str) -> Result<Option<u32>, Unusable> {
        let mut found = self.exact.get(name).copied();
        for chunk in &self.globs {
            found = found.into_iter().chain(chunk.matches(name, false)?).min();
        }
        Ok(found)
    }

    /// All entries that name a tool, in file order.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn all(&self, name: &str) -> Result<Vec<u32>, Unusable> {
        let mut found: Vec<u32> = self.exact.get(name).copied().into_iter().collect();
        for chunk in &self.globs {
            found.extend(chunk.matches(name, false)?);
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The first entry that would name a tool if case, compatibility forms, blanks around it and invisible characters
    /// did not count.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn resembles(&self, folded: &str) -> Result<Option<u32>, Unusable> {
        let mut found = self.folded.get(folded).copied();
        for chunk in &self.globs {
            found = found.into_iter().chain(chunk.matches(folded, true)?).min();
        }
        Ok(found)
    }

    /// As [`compile`](Self::compile), for a set of a usual size; a big one is compiled when it is needed.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn compile_if_small(&self) -> Result<(), u32> {
        if self.globs.len() <= 1 { self.compile() } else { Ok(()) }
    }

    /// Compiles all globs now.
    ///
    /// # Errors
    /// The first entry of the part that is too big.
    pub fn compile(&self) -> Result<(), u32> {
        for chunk in &self.globs {
            if chunk.set(false).is_none() || chunk.set(true).is_none() {
                return Err(chunk.entries.first().copied().unwrap_or_default());
            }
        }
        Ok(())
    }
}

impl Chunk {
    fn set(&self, loose: bool) -> Option<&GlobSet> {
        let (cell, globs) = if loose { (&self.loose_set, &self.loose) } else { (&self.set, &self.globs) };
        cell.get_or_init(|| {
            let mut builder = GlobSetBuilder::new();
            for glob in globs {
                builder.add(glob.clone());
            }
            builder.build().ok()
        })
        .as_ref()
    }

    fn matches(&self, name: &str, loose: bool) -> Result<impl Iterator<Item = u32> + '_, Unusable> {
        let set = self.set(loose).ok_or(Unusable)?;
        let candidate = globset::Candidate::from_bytes(name.as_bytes());
        let found = set.matches_candidate(&candidate);
        Ok(found.into_iter().filter_map(|n| self.entries.get(n).copied()))
    }
}
