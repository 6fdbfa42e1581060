//! Rules files.
//!
//! ```yaml
//! version: "1"
//! presets: [secrets]
//! rules:
//!   - name: customer
//!     pointer: /customer/id          # JSON pointer; * is any one name or element
//!     in: arguments                   # or results; both where nothing is said
//!   - { name: ticket, regex: 'TCK-[0-9]{6}' }
//!   - { name: pin, member: pin }      # the text or number of every member of this name
//! ```

use super::{
    Rule, Rules, What, preset,
    texts::{self, Texts},
};
use crate::{
    files,
    model::{redaction, surface::steps, version},
    yaml::{Error, Node, Place, Source},
};
use std::{io, path::PathBuf};

/// Version of a rules file: `N`, or `N.M` for a later minor one.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const REDACTION_VERSION: &str = "1";
/// What stands before the name of a preset, in the place of a file's path.
pub const PRESET: &str = "preset:";
/// Bytes of the largest rules file that is read.
const MAX_FILE: u64 = 256 << 10;
/// Rules in all files and presets.
const MAX_RULES: usize = 256;

const KEYS: [&str; 3] = ["version", "presets", "rules"];
const KEYS_OF_RULE: [&str; 5] = ["name", "pointer", "regex", "member", "in"];

/// Why rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A preset that is none, or rules that are too big together.
    #[error("{0}")]
    Rules(String),
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is not understood, at its place.
    #[error("{0}")]
    Text(Error),
}

/// The rules of all these files, and of presets (`preset:secrets`).
///
/// # Errors
/// [`LoadError`].
pub fn load(named: &[PathBuf]) -> Result<Rules, LoadError> {
    let mut loader = Loader::default();
    for path in named {
        if let Some(preset) = path.to_str().and_then(|text| text.strip_prefix(PRESET)) {
            loader.preset(preset).map_err(LoadError::Rules)?;
            continue;
        }
        let read = files::named(path).and_then(|file| files::read_all(file, MAX_FILE));
        let text = read.map_err(|source| LoadError::File { path: path.clone(), source })?;
        loader.file(&path.to_string_lossy(), &text).map_err(LoadError::Text)?;
    }
    loader.finish().map_err(LoadError::Rules)
}

/// Takes files and presets, in their order.
#[derive(Debug, Default)]
pub struct Loader {
    all: Vec<Rule>,
}

impl Loader {
    /// Adds a preset, once.
    ///
    /// # Errors
    /// There is none of that name, in words.
    pub fn preset(&mut self, name: &str) -> Result<(), String> {
        if name != preset::SECRETS {
            return Err(format!("there is no preset `{name}`; there is {PRESET}{}", preset::SECRETS));
        }
        for rule in preset::secrets() {
            if self.all.iter().all(|known| known.name != rule.name) {
                self.all.push(rule);
            }
        }
        Ok(())
    }

    /// Adds the rules of a file; errors give `name` in place of a path.
    ///
    /// # Errors
    /// What is not understood, at its place.
    pub fn file(&mut self, name: &str, text: &[u8]) -> Result<(), Error> {
        let source = Source::of(name, text)?;
        let start = Place { line: 1, column: 1, width: 1 };
        let root = source.read()?.ok_or_else(|| source.error(start, "it is empty").hint("write version: \"1\""))?;
        let pairs = source.mapping(&root, "the file")?;
        if let Some((key, _)) = pairs.iter().find(|(key, _)| !KEYS.contains(&key.text().unwrap_or_default())) {
            return Err(source.unknown(key, &KEYS));
        }
        let get = |name: &str| pairs.iter().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value);
        match get("version") {
            None => return Err(source.error(start, "`version` is missing").hint("write version: \"1\"")),
            Some(value) => known(&source, value)?,
        }
        for preset in get("presets").map(|list| source.sequence(list, "presets")).transpose()?.unwrap_or_default() {
            let name = source.string(preset, "presets")?;
            self.preset(name).map_err(|e| source.error(preset.place, e))?;
        }
        for rule in get("rules").map(|list| source.sequence(list, "rules")).transpose()?.unwrap_or_default() {
            let read = self.rule(&source, rule)?;
            if self.all.len() == MAX_RULES {
                return Err(source.error(rule.place, format!("more than {MAX_RULES} rules")));
            }
            self.all.push(read);
        }
        Ok(())
    }

    fn rule(&self, source: &Source<'_>, node: &Node) -> Result<Rule, Error> {
        let (mut name, mut what, mut sides) = (None, None, [true; 2]);
        for (key, value) in source.mapping(node, "a rule")? {
            let key_text = key.text().unwrap_or_default();
            let wrong = |what: String| source.error(value.place, what);
            let found = match key_text {
                "name" => {
                    let text = source.string(value, key_text)?;
                    if !redaction::is_name(text) {
                        let most = redaction::MAX_NAME;
                        return Err(wrong(format!(
                            "`{text}` is no name: 1 to {most} small letters a to z, digits and `-`"
                        )));
                    }
                    if self.all.iter().any(|known| known.name == text) {
                        return Err(wrong(format!("there is a rule `{text}` already")));
                    }
                    name = Some(text.to_owned());
                    continue;
                }
                "in" => {
                    sides = match source.string(value, key_text)? {
                        "arguments" => [true, false],
                        "results" => [false, true],
                        other => return Err(wrong(format!("`in` is arguments or results, not `{other}`"))),
                    };
                    continue;
                }
                "pointer" => match source.string(value, key_text)? {
                    "" => What::Pointer(Vec::new()),
                    text => What::Pointer(steps(text).map_err(|e| wrong(e.to_string()))?),
                },
                "regex" => {
                    let text = source.string(value, key_text)?;
                    texts::check(text).map_err(|e| wrong(format!("this is no regular expression for a rule: {e}")))?;
                    What::Regex(text.to_owned())
                }
                "member" => {
                    let text = source.string(value, key_text)?;
                    let plain: String = text.chars().filter(|c| !matches!(c, '-' | '_')).collect();
                    if plain.is_empty() {
                        return Err(wrong("`member` names no member".to_owned()));
                    }
                    What::Member(plain.to_lowercase())
                }
                _ => return Err(source.unknown(key, &KEYS_OF_RULE)),
            };
            if what.replace(found).is_some() {
                return Err(source.error(key.place, "a rule has one of pointer, regex and member"));
            }
        }
        let missing = |what: &str| source.error(node.place, format!("this rule has no {what}"));
        let name = name.ok_or_else(|| missing("`name`"))?;
        let what = what.ok_or_else(|| missing("`pointer`, `regex` or `member`"))?;
        Ok(Rule { name, what, sides })
    }

    /// The rules, compiled.
    ///
    /// # Errors
    /// Their regular expressions are too big together, in words.
    pub fn finish(self) -> Result<Rules, String> {
        let of = |side: usize| {
            let rules = self.all.iter().enumerate().filter(|(_, rule)| rule.sides[side]);
            let patterns = rules.filter_map(|(n, rule)| match &rule.what {
                What::Regex(text) => Some((n, text.as_str())),
                What::Pointer(_) | What::Member(_) => None,
            });
            Texts::new(&patterns.collect::<Vec<_>>())
        };
        let texts = [of(0)?, of(1)?];
        Ok(Rules { all: self.all, texts })
    }
}

fn known(source: &Source<'_>, value: &Node) -> Result<(), Error> {
    let text = value.text();
    if text == Some(REDACTION_VERSION) {
        return Ok(());
    }
    Err(match text.and_then(|text| version::newer_text("redaction rules file", text, REDACTION_VERSION)) {
        Some(e) => source.error(value.place, e.to_string()),
        None => source.error(value.place, "this version is unknown").hint("write version: \"1\""),
    })
}
