//! What a session is opened with.

use super::{
    activity::Activity,
    card::Captures,
    health::Health,
    judge::{Judge, PolicyFeed},
    recorder::Setup,
};
use crate::{
    model::{SessionId, WallTime},
    paths::AuditDir,
};
use std::{sync::Arc, time::Duration};

/// When a pack is closed and the next one begun (`--pack-interval`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackInterval {
    /// One pack for the session.
    Session,
    /// Closed at this interval.
    Every(Duration),
    /// Closed after this many receipts.
    Receipts(u64),
}

/// What a session is opened with.
pub struct Opening {
    /// The audit directory of the session.
    pub dir: AuditDir,
    /// What does not change.
    pub setup: Arc<Setup>,
    /// Its id; when packs roll over, that of the first of the sessions that follow each other.
    pub session: SessionId,
    /// When it began, monotonic ns.
    pub started_ns: u64,
    /// When it began, wall clock.
    pub started_at: WallTime,
    /// When packs are closed.
    pub interval: PackInterval,
    /// Where its captures are, for its card.
    pub captures: Captures,
    /// Receives the calls that are still in flight.
    pub activity: Arc<Activity>,
    /// Judges what passes in any case (audit with a policy).
    pub judge: Option<Box<dyn Judge>>,
    /// The policy in force.
    pub feed: Arc<PolicyFeed>,
    /// Receives the state of the recorder.
    pub health: Arc<Health>,
}
