//! The captures of a session: memory for what crosses, which outlives the process.

use super::Status;
use crate::{
    model::{Direction, SessionId, WallTime},
    paths::AuditDir,
    record::{lane::Lane, rulings},
    relay::{self, Capture, Producer, Waker, capture::ring_dirs},
};
use std::sync::Arc;

/// Bytes of the smallest capture with which a session can be recorded, for when there is no room for more.
const LEAST_CAPTURE: usize = 64 << 10;

/// The captures of a session over stdio.
pub(super) struct Captures {
    pub(super) producers: [Producer; 2],
    pub(super) lanes: [Lane; 2],
    /// Where a guard tells its decisions.
    pub(super) rulings: Option<rulings::RulingWriter>,
}

impl Captures {
    /// `guarded`: bytes of the longest message that a guard holds.
    pub(super) fn make(
        dir: &AuditDir,
        session: SessionId,
        waker: &Arc<Waker>,
        status: Status,
        guarded: Option<usize>,
    ) -> Result<Self, String> {
        let mut dirs = ring_dirs(&dir.live());
        dirs.retain(|at| *at != dir.live() || dir.files().dir(at).is_ok());
        let paths = dir.session(WallTime::from_millis(0), session);
        let hex = session.hex();
        let failed = |e| format!("no memory for the capture: {e}");
        let capture = |direction, capacity| {
            let mut fits = capacity;
            let (producer, consumer, placement) = loop {
                match Capture::create(&dirs, &hex, direction, fits, waker) {
                    Ok(made) => break made,
                    Err(_) if fits > LEAST_CAPTURE => fits /= 2,
                    Err(e) => return Err(failed(e)),
                }
            };
            if placement.path.is_none() {
                status.warn(
                    "no directory could hold the capture: a crash of the proxy would lose what is not on disk yet",
                );
            }
            Ok::<_, String>((producer, consumer))
        };
        let (rulings, reader) = match guarded {
            Some(_) => {
                let (producer, consumer) = capture(relay::Direction::Decisions, rulings::CAPACITY)?;
                (Some(rulings::RulingWriter::new(producer)), Some(rulings::RulingReader::new(consumer)))
            }
            None => (None, None),
        };
        let make = |direction, capacity, index: usize| {
            let (producer, consumer) = capture(direction, capacity)?;
            let model = [Direction::ClientToServer, Direction::ServerToClient][index];
            let lane = Lane::new(model, consumer, dir.files().clone(), paths.spools[index].clone()).map_err(failed)?;
            let lane = match &reader {
                Some(reader) => lane.guarded(reader.clone()),
                None => lane,
            };
            Ok::<_, String>((producer, lane))
        };
        // A message is held whole until it was judged, and the reader of the next one needs room, too.
        let held = guarded.map_or(0, |max| max.saturating_add(max / 4).saturating_add(1 << 20).next_power_of_two());
        let (c2s, c2s_lane) = make(relay::Direction::ClientToServer, Capture::DEFAULT_CAPACITY.max(held), 0)?;
        let (s2c, s2c_lane) = make(relay::Direction::ServerToClient, Capture::DEFAULT_CAPACITY, 1)?;
        Ok(Self { producers: [c2s, s2c], lanes: [c2s_lane, s2c_lane], rulings })
    }
}
