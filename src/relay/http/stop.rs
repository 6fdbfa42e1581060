//! How far a listener, or one of its upstreams, is to be stopped.

use std::sync::Arc;
use tokio::sync::watch;

/// How far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Not at all.
    Runs,
    /// Streams are closed, calls in flight are waited for.
    Drains,
    /// Nothing is waited for.
    Ends,
}

/// Stops a listener, or one of its upstreams, from any thread.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<Level>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Level::Runs)))
    }
}

impl Stop {
    /// Nothing begins any more, streams are closed, calls in flight are waited for.
    pub fn drain(&self) {
        self.0.send_modify(|level| *level = (*level).max(Level::Drains));
    }

    /// Nothing is waited for.
    pub fn end(&self) {
        self.0.send_modify(|level| *level = Level::Ends);
    }

    /// Whether it has begun.
    pub(super) fn is_asked(&self) -> bool {
        *self.0.borrow() > Level::Runs
    }

    /// Ready when it is stopped as far as that.
    pub(super) async fn reached(self, least: Level) {
        // Its sender is held here.
        let _ = self.0.subscribe().wait_for(|level| *level >= least).await;
    }
}
