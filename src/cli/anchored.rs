//! Options about anchors, which several commands have.

use crate::{
    model::WallTime,
    pack::verify::request::{Anchors, time},
};
use clap::Args;
use std::path::PathBuf;

/// Whose anchors count, and what is demanded of them.
#[derive(Debug, Default, Args)]
pub(super) struct Trust {
    /// Whose anchors count: which witnesses there are, and how many it takes
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// There must be an anchor that counts
    #[arg(long)]
    require_anchor: bool,
    /// Its time must be before this one: 2026-03-15T11:30:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    anchored_before: Option<WallTime>,
}

impl Trust {
    /// The same, as it was given.
    pub(super) fn given(&self) -> Anchors {
        Anchors {
            policy: self.policy.clone(),
            kept: Vec::new(),
            is_required: self.require_anchor,
            before: self.anchored_before,
        }
    }
}

/// The same, where anchors may be kept elsewhere.
#[derive(Debug, Default, Args)]
pub(super) struct Anchored {
    #[command(flatten)]
    trust: Trust,
    /// An anchor that is kept elsewhere; may be repeated
    #[arg(long, value_name = "FILE")]
    anchor: Vec<PathBuf>,
}

impl Anchored {
    /// The same, as it was given.
    pub(super) fn given(&self) -> Anchors {
        Anchors { kept: self.anchor.clone(), ..self.trust.given() }
    }
}
