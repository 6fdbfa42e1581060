//! Changes as evidence lists them.

use crate::{
    canon,
    model::surface::{Change, Difference, Facet},
};
use serde::Serialize;

/// Changes that are listed; [`changes_hash`] is over all of them.
const MAX_CHANGES: usize = 1000;

/// The first changes, without their texts.
#[must_use]
pub fn changes(all: &[&Difference]) -> Vec<Change> {
    let change =
        |d: &&Difference| Change { facet: d.facet, kind: d.kind, name: d.name.clone(), severity: d.severity() };
    all.iter().take(MAX_CHANGES).map(change).collect()
}

/// Digest of changes, whole, in their order.
#[must_use]
pub fn changes_hash(changes: &[&Difference]) -> Option<String> {
    #[derive(Serialize)]
    struct Whole<'a> {
        after: Option<&'a str>,
        before: Option<&'a str>,
        facet: Option<Facet>,
        kind: &'a str,
        name: &'a str,
        new_context: bool,
        path: &'a str,
    }
    if changes.is_empty() {
        return None;
    }
    let whole = |d: &&Difference| -> Vec<u8> {
        let whole = Whole {
            after: d.after.as_deref(),
            before: d.before.as_deref(),
            facet: d.facet,
            kind: d.kind.as_str(),
            name: &d.name,
            new_context: d.new_context,
            path: &d.path,
        };
        canon::to_vec(&whole).unwrap_or_default()
    };
    let all: Vec<Vec<u8>> = changes.iter().map(whole).collect();
    let list = [b"[".as_slice(), &all.join(b",".as_slice()), b"]"].concat();
    Some(format!("sha256:{}", canon::sha256_hex(&list)))
}
