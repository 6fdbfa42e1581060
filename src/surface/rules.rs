//! Rules of a surface: what of it is pinned, and what of a change is tolerated (`assay.surface.yaml`).
//!
//! ```yaml
//! version: "1"
//! facets: { resources: watch }         # pin (the default), watch or ignore
//! ignore: [ "/tools/*/title" ]          # JSON pointers into items; * is any one name, member or element
//! tolerate: [ reordered, explicit_default ]   # the default
//! ```

use crate::{
    canon::{self, Digest},
    model::{
        surface::{ChangeKind, Facet, Ignored},
        version,
    },
    yaml::{Error, Node, Source},
};
use std::collections::{BTreeMap, BTreeSet};

/// Version of a rules file: `N`, or `N.M` for a later minor one.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const RULES_VERSION: &str = "1";

/// Bytes of the largest rules file that is read.
pub const MAX_RULES: u64 = 1 << 20;

/// What is done about a facet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Its items are compared with what is approved.
    Pin,
    /// It is recorded, and never acted on.
    Watch,
    /// It is left out.
    Ignore,
}

impl Mode {
    const ALL: [(&'static str, Self); 3] = [("pin", Self::Pin), ("watch", Self::Watch), ("ignore", Self::Ignore)];
}

/// Changes that can be tolerated.
const TOLERABLE: [ChangeKind; 2] = [ChangeKind::Reordered, ChangeKind::ExplicitDefault];
const FACETS: [Facet; 6] = [
    Facet::Tools,
    Facet::Resources,
    Facet::ResourceTemplates,
    Facet::Prompts,
    Facet::Instructions,
    Facet::Capabilities,
];
const KEYS: [&str; 4] = ["version", "facets", "ignore", "tolerate"];

/// The rules of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    modes: BTreeMap<Facet, Mode>,
    ignore: Vec<(String, Ignored)>,
    tolerate: BTreeSet<ChangeKind>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { modes: BTreeMap::new(), ignore: Vec::new(), tolerate: TOLERABLE.into() }
    }
}

impl Rules {
    /// Reads a file; errors give `name` in place of a path.
    ///
    /// # Errors
    /// What is not understood, at its place.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, Error> {
        let source = Source::of(name, text)?;
        let start = crate::yaml::Place { line: 1, column: 1, width: 1 };
        let root = source.read()?.ok_or_else(|| source.error(start, "it is empty").hint("write version: \"1\""))?;
        let mut rules = Self::default();
        let mut has_version = false;
        for (key, value) in source.mapping(&root, "the file")? {
            match key.text().unwrap_or_default() {
                "version" => {
                    known(&source, value)?;
                    has_version = true;
                }
                "facets" => {
                    for (facet, mode) in source.mapping(value, "facets")? {
                        let (facet, mode) = (facet_of(&source, facet)?, mode_of(&source, mode)?);
                        rules.modes.insert(facet, mode);
                    }
                }
                "ignore" => {
                    for pointer in source.sequence(value, "ignore")? {
                        let text = source.string(pointer, "ignore")?;
                        let ignored = text.parse().map_err(|e| source.error(pointer.place, format!("{e}")))?;
                        rules.ignore.push((text.to_owned(), ignored));
                    }
                }
                "tolerate" => {
                    rules.tolerate.clear();
                    for kind in source.sequence(value, "tolerate")? {
                        let text = source.string(kind, "tolerate")?;
                        let found = TOLERABLE.into_iter().find(|k| k.as_str() == text);
                        let error = || {
                            let error = source.error(kind.place, format!("`{text}` cannot be tolerated"));
                            error.hint("what can: reordered, explicit_default")
                        };
                        rules.tolerate.insert(found.ok_or_else(error)?);
                    }
                }
                _ => return Err(source.unknown(key, &KEYS)),
            }
        }
        if !has_version {
            return Err(source.error(start, "`version` is missing").hint("write version: \"1\""));
        }
        Ok(rules)
    }

    /// The digest by which a decision names the rules; `None` for the defaults.
    #[must_use]
    pub fn hash(&self) -> Option<String> {
        Some(Digest::Jcs(canon::sha256(self.text()?.as_bytes())).to_string())
    }

    /// The rules as a rules file, the same for the same rules; `None` for the defaults.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        let modes: BTreeMap<&str, &str> = self.modes.iter().map(|(f, m)| (f.word(), word(*m))).collect();
        let mut ignore: Vec<&str> = self.ignore.iter().map(|(text, _)| text.as_str()).collect();
        ignore.sort_unstable();
        ignore.dedup();
        let tolerate: Vec<&str> = self.tolerate.iter().map(|k| k.as_str()).collect();
        let value =
            serde_json::json!({"facets": modes, "ignore": ignore, "tolerate": tolerate, "version": RULES_VERSION});
        String::from_utf8(canon::to_vec(&value).ok()?).ok()
    }

    /// What is done about a facet.
    #[must_use]
    pub fn mode(&self, facet: Facet) -> Mode {
        self.modes.get(&facet).copied().unwrap_or(Mode::Pin)
    }

    /// Whether the items of a facet are compared with what is approved.
    #[must_use]
    pub fn pins(&self, facet: Facet) -> bool {
        self.mode(facet) == Mode::Pin
    }

    /// The facets that are not in the root.
    #[must_use]
    pub fn left_out(&self) -> BTreeSet<Facet> {
        FACETS.into_iter().filter(|f| !self.pins(*f)).collect()
    }

    /// What of items does not count.
    #[must_use]
    pub fn ignored(&self) -> Vec<Ignored> {
        self.ignore.iter().map(|(_, i)| i.clone()).collect()
    }

    /// Whether a change of this kind leaves a surface equivalent.
    #[must_use]
    pub fn tolerates(&self, kind: ChangeKind) -> bool {
        self.tolerate.contains(&kind)
    }
}

fn word(mode: Mode) -> &'static str {
    Mode::ALL.iter().find(|(_, m)| *m == mode).map_or("", |(word, _)| word)
}

fn known(source: &Source<'_>, value: &Node) -> Result<(), Error> {
    let text = value.text();
    if text == Some(RULES_VERSION) {
        return Ok(());
    }
    Err(match text.and_then(|text| version::newer_text("rules file", text, RULES_VERSION)) {
        Some(e) => source.error(value.place, e.to_string()),
        None => source.error(value.place, "this version is unknown").hint("write version: \"1\""),
    })
}

fn facet_of(source: &Source<'_>, node: &Node) -> Result<Facet, Error> {
    let found = FACETS.into_iter().find(|f| node.text() == Some(f.word()));
    found.ok_or_else(|| source.unknown(node, &FACETS.map(Facet::word)))
}

fn mode_of(source: &Source<'_>, node: &Node) -> Result<Mode, Error> {
    let found = Mode::ALL.iter().find(|(word, _)| node.text() == Some(word)).map(|(_, mode)| *mode);
    let text = node.text().unwrap_or_default();
    found.ok_or_else(|| source.error(node.place, format!("`{text}` is no mode")).hint("modes: pin, watch, ignore"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_is_pinned_ignored_and_tolerated() {
        let text = b"version: \"1\"\nfacets: { resources: watch, prompts: ignore }\nignore: [ \"/tools/*/title\" ]\ntolerate: []\n";
        let rules = Rules::parse(text, "r").unwrap();
        assert!(rules.pins(Facet::Tools) && !rules.pins(Facet::Resources));
        assert_eq!(rules.left_out(), [Facet::Resources, Facet::Prompts].into());
        assert_eq!(rules.ignored().len(), 1);
        assert!(!rules.tolerates(ChangeKind::Reordered) && Rules::default().tolerates(ChangeKind::Reordered));
        let same =
            b"version: 1\ntolerate: []\nignore: [\"/tools/*/title\"]\nfacets: { prompts: ignore, resources: watch }";
        assert_eq!(rules.hash(), Rules::parse(same, "r").unwrap().hash());
        assert!(rules.hash().is_some());
        let text = rules.text().unwrap();
        assert_eq!(Rules::parse(text.as_bytes(), "r").unwrap().text().unwrap(), text);
        assert_eq!(Rules::parse(b"version: \"1\"", "r").unwrap().hash(), None);
    }

    #[test]
    fn what_is_not_understood_is_an_error_at_its_place() {
        for (text, place, said) in [
            ("version: \"1\"\nfacet: {}\n", "2:1", "unknown key `facet`"),
            ("version: \"1\"\nfacets: { tool: pin }\n", "2:11", "unknown key `tool`"),
            ("version: \"1\"\nfacets: { tools: pinned }\n", "2:18", "`pinned` is no mode"),
            ("version: \"1\"\nignore: [ \"/tools/*\" ]\n", "2:11", "a pointer leads to a member"),
            ("version: \"1\"\ntolerate: [ added ]\n", "2:13", "`added` cannot be tolerated"),
            ("version: \"2\"\n", "1:10", "it needs a later assay"),
            ("facets: {}\n", "1:1", "`version` is missing"),
            ("", "1:1", "it is empty"),
        ] {
            let error = Rules::parse(text.as_bytes(), "r.yaml").unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(place), "{text}: {error}");
        }
    }
}
