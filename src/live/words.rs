//! The state of a call in words, the same in lines and on the screen: word, then glyph, then colour.

use super::row::CallRow;
use crate::model::{EventKind, Outcome, PolicyVerdict};

/// Whether a person should look at a call: how it ended, or what was odd about it.
#[must_use]
pub fn is_problem(row: &CallRow) -> bool {
    CallState::of(row).is_problem() || !row.anomalies.is_empty()
}

/// Whether a person should look at an event of this kind, whatever its details; `kind` as in the file.
#[must_use]
pub fn is_odd(kind: &str) -> bool {
    [
        EventKind::Malformed,
        EventKind::MalformedLines,
        EventKind::Anomaly,
        EventKind::RecorderGap,
        EventKind::RequestBlocked,
        EventKind::SurfaceDrift,
    ]
    .iter()
    .any(|odd| odd.as_str() == kind)
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallState {
    /// It has no end yet.
    Running,
    /// It was answered; no policy was asked.
    Forwarded,
    /// A policy allows it, and it was answered.
    Allowed,
    /// A policy denies it, but the profile did not block it.
    NotEnforced,
    /// It was not forwarded.
    Denied,
    /// It was answered with an error.
    Error,
    /// It was never answered.
    Timeout,
}

impl CallState {
    /// The status of a call, from its row.
    #[must_use]
    pub const fn of(row: &CallRow) -> Self {
        match (row.outcome, row.policy_verdict) {
            (None, _) => Self::Running,
            (Some(Outcome::Denied), _) => Self::Denied,
            (Some(Outcome::Error), _) => Self::Error,
            (Some(Outcome::Timeout), _) => Self::Timeout,
            (Some(Outcome::Forwarded), Some(PolicyVerdict::Denied)) => Self::NotEnforced,
            (Some(Outcome::Forwarded), Some(PolicyVerdict::Allowed)) => Self::Allowed,
            (Some(Outcome::Forwarded), _) => Self::Forwarded,
        }
    }

    /// The state as the dashboard names it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Forwarded => "forwarded",
            Self::Allowed => "allowed",
            Self::NotEnforced => "denied, not enforced",
            Self::Denied => "denied",
            Self::Error => "error",
            Self::Timeout => "timeout",
        }
    }

    /// Its glyph, or its ASCII replacement.
    #[must_use]
    pub const fn glyph(self, ascii: bool) -> &'static str {
        match (self, ascii) {
            (Self::Running, false) => "…",
            (Self::Running, true) => ".",
            (Self::Forwarded | Self::Allowed, false) => "✓",
            (Self::Forwarded | Self::Allowed, true) => "+",
            (Self::NotEnforced | Self::Denied, false) => "✗",
            (Self::NotEnforced | Self::Denied, true) => "x",
            (Self::Error | Self::Timeout, _) => "!",
        }
    }

    /// Whether it is worth a look.
    #[must_use]
    pub const fn is_problem(self) -> bool {
        matches!(self, Self::NotEnforced | Self::Denied | Self::Error | Self::Timeout)
    }
}
