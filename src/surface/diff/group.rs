//! Equal changes of many items are one group: that is what an upgrade of a server is.

use crate::model::surface::{ChangeKind, Difference, Facet, Severity};
use std::collections::BTreeMap;

/// Changes that are the same but for the item that they are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What kind of change it is.
    pub kind: ChangeKind,
    /// Where; `None` for what is of the server as a whole.
    pub facet: Option<Facet>,
    /// JSON pointer into each item.
    pub path: String,
    /// What was there, the same in each.
    pub before: Option<String>,
    /// What is there now, the same in each.
    pub after: Option<String>,
    /// Whether they are of a context in which nothing was approved yet.
    pub new_context: bool,
    /// Names of the items, in the order of names.
    pub names: Vec<String>,
}

impl Group {
    /// How much it matters.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.kind.severity()
    }
}

/// The groups of changes, the most severe first, then the largest. Items that came or went are grouped whatever they are;
/// likewise titles that only repeat a name.
#[must_use]
pub fn groups(differences: &[Difference]) -> Vec<Group> {
    type Key<'a> = (ChangeKind, Option<Facet>, &'a str, Option<&'a str>, Option<&'a str>, bool);
    let mut all: BTreeMap<Key<'_>, Vec<&str>> = BTreeMap::new();
    for d in differences {
        let whole = matches!(d.kind, ChangeKind::Added | ChangeKind::Removed | ChangeKind::Title);
        let (path, before, after) =
            if whole { ("", None, None) } else { (d.path.as_str(), d.before.as_deref(), d.after.as_deref()) };
        all.entry((d.kind, d.facet, path, before, after, d.new_context)).or_default().push(&d.name);
    }
    let own = |text: Option<&str>| text.map(str::to_owned);
    let mut groups: Vec<Group> = all
        .into_iter()
        .map(|((kind, facet, path, before, after, new_context), names)| {
            let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            names.sort();
            names.dedup();
            Group { kind, facet, path: path.to_owned(), before: own(before), after: own(after), new_context, names }
        })
        .collect();
    groups.sort_by_key(|g| std::cmp::Reverse((g.severity(), g.names.len())));
    groups
}
