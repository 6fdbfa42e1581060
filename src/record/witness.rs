//! Who counts what is recorded, while it is.

use crate::model::ToolCall;
use std::{fmt, sync::Arc};

/// Called by the recorder thread; no method may wait for anything or anyone.
pub trait Witness: fmt::Debug + Send + Sync {
    /// A session has begun.
    fn began(&self);
    /// It is over, or left as if the process had died.
    fn ended(&self);
    /// A call has its receipt.
    fn call(&self, receipt: &ToolCall);
    /// Evidence was lost.
    fn gap(&self);
}

/// A session that is counted as long as this lives.
#[derive(Debug)]
pub(super) struct Witnessed(Arc<dyn Witness>);

impl Witnessed {
    pub(super) fn begin(witness: &Arc<dyn Witness>) -> Self {
        witness.began();
        Self(witness.clone())
    }

    pub(super) fn call(&self, receipt: &ToolCall) {
        self.0.call(receipt);
    }

    pub(super) fn gap(&self) {
        self.0.gap();
    }
}

impl Drop for Witnessed {
    fn drop(&mut self) {
        self.0.ended();
    }
}
