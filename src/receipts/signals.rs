//! SIGTERM and SIGINT: what was recorded is sealed first.

use super::{OnSignals, shared::Shared};
use crate::model::EndReason;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::{Handle, Signals},
};
use std::{io, sync::Arc, thread};

/// Signals are listened for, until this is dropped.
pub(super) struct Listening(Handle);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.close();
    }
}

pub(super) fn listen(shared: &Arc<Shared>, what: OnSignals) -> io::Result<Listening> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let handle = signals.handle();
    let shared = Arc::downgrade(shared);
    let run = move || {
        for signal in &mut signals {
            if let Some(shared) = shared.upgrade() {
                let reason = if signal == SIGINT { EndReason::SignalInt } else { EndReason::SignalTerm };
                shared.close(reason);
            }
            if what == OnSignals::SealAndExit {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        }
    };
    thread::Builder::new().name("assay-signals".into()).spawn(run)?;
    Ok(Listening(handle))
}
