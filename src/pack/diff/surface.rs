//! What two servers offered, in typed groups of changes.

use super::MAX_ROWS;
use crate::{
    model::{
        pack::SURFACE,
        sha256_hex,
        surface::{ChangeKind, Facet, List, Severity, Snapshot, Surface},
    },
    pack::verify::{
        VerifyReport,
        source::{MAX_LINE, PackDir},
    },
    surface::diff::{between, groups},
};
use serde::Serialize;
use std::{io::Read as _, path::Path};

/// Names of items that a group lists; all are counted.
const MAX_NAMES: usize = 20;

/// Changes of items that are the same but for the item that they are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SurfaceGroup {
    /// What kind of change it is.
    pub kind: ChangeKind,
    /// How much it matters.
    pub severity: Severity,
    /// Where; `null` for what is of the server as a whole.
    pub facet: Option<Facet>,
    /// JSON pointer into each item; empty for all of it.
    pub path: String,
    /// JSON text of what was there in A, the same in each.
    pub before: Option<String>,
    /// JSON text of what is there in B, the same in each.
    pub after: Option<String>,
    /// How many items.
    pub items: u64,
    /// The first names; empty for instructions and capabilities.
    pub names: Vec<String>,
}

impl SurfaceGroup {
    /// Where it is, and which items, for people: raw text of the packs.
    #[must_use]
    pub fn place(&self) -> String {
        let facet = self.facet.map_or("server", Facet::word);
        let names: Vec<&str> = self.names.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        let more = self.items.saturating_sub(self.names.len() as u64);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{facet}{} {}{more}", self.path, names.join(", ")).trim_end().to_owned()
    }
}

/// What changed from A to B, as far as both sessions saw it; the most severe first.
pub(super) fn changes([a, b]: [&Path; 2], [report_a, report_b]: [&VerifyReport; 2]) -> Vec<SurfaceGroup> {
    let (Some(mut a), Some(mut b)) = (read(a, report_a), read(b, report_b)) else { return Vec::new() };
    for facet in Facet::LISTS {
        // What one client never asked for has not come or gone.
        if [&a, &b].iter().any(|s| *s.list(facet) == List::Unknown) {
            a.lists.remove(&facet);
            b.lists.remove(&facet);
        }
    }
    let group = |g: crate::surface::diff::Group| SurfaceGroup {
        kind: g.kind,
        severity: g.severity(),
        facet: g.facet,
        path: g.path,
        before: g.before,
        after: g.after,
        items: g.names.len() as u64,
        names: g.names.into_iter().take(MAX_NAMES).collect(),
    };
    groups(&between(&a, &b)).into_iter().take(MAX_ROWS).map(group).collect()
}

/// The surface of a pack that `report` verified; `None` where it has none, or not the one that was verified.
fn read(pack: &Path, report: &VerifyReport) -> Option<Surface> {
    let hash = report.facts.session.as_ref()?.surface_hash.as_ref()?;
    let (file, len) = PackDir::open(pack).ok()?.open_file(SURFACE).ok()?;
    let mut bytes = Vec::new();
    file.take((MAX_LINE as u64).min(len) + 1).read_to_end(&mut bytes).ok()?;
    (sha256_hex(&bytes) == *hash).then(|| Snapshot::read(&bytes).ok()).flatten().map(|seen| seen.surface)
}
