//! The captures of a session: memory for what crosses, which outlives the process.

use super::{Options, Status};
use crate::{
    bridge::Book,
    model::{Direction, Profile, SessionId, WallTime},
    paths::AuditDir,
    record::{
        http::{
            demux::Spools,
            kept::{SpoolPlace, spool_name},
            key::EvidenceKey,
            sessions::SessionMap,
            source::{HttpSource, Parts},
        },
        lane::Lane,
        rulings,
    },
    relay::{self, Capture, Producer, Waker, capture::ring_dirs, log},
};
use std::{path::PathBuf, sync::Arc};

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
        let dirs = dirs_of(dir);
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

/// Where captures may be.
pub(super) fn dirs_of(dir: &AuditDir) -> Vec<PathBuf> {
    let mut dirs = ring_dirs(&dir.live());
    dirs.retain(|at| *at != dir.live() || dir.files().dir(at).is_ok());
    dirs
}

/// Where large messages of this process are kept until they are whole.
pub(super) fn spools(dir: &AuditDir, process: SessionId) -> Spools {
    let (dir, process) = (dir.clone(), process.hex());
    Box::new(move |flow| {
        let path = dir.live().join(spool_name(&process, flow));
        Some(SpoolPlace { files: dir.files().clone(), path, from: None })
    })
}

/// The log of what a bridge exchanges with its server.
pub(super) struct BridgeLog {
    /// What the recorder reads.
    pub(super) source: HttpSource,
    /// The log's file; `None` for one that does not survive the process.
    pub(super) file: Option<PathBuf>,
    /// Whether digests of other processes of this user are made with the same key.
    pub(super) key_lasts: bool,
}

impl BridgeLog {
    /// A log of this many bytes, and what the bridge needs to write it.
    pub(super) fn make(
        options: &Options,
        dir: &AuditDir,
        session: SessionId,
        capacity: u64,
        waker: &Arc<Waker>,
    ) -> Result<(Self, Book), String> {
        let capacity = usize::try_from(capacity).unwrap_or(log::DEFAULT_CAPACITY).next_power_of_two();
        let (writer, reader, placement) = log::create(&dirs_of(dir), &session.hex(), capacity, waker)
            .map_err(|e| format!("no memory for the log of exchanges: {e}"))?;
        let key = EvidenceKey::of_user()?;
        let source = HttpSource::new(Parts {
            reader,
            capacity,
            map: SessionMap::of_bridge(),
            open: None,
            digest: Box::new(|_| String::new()),
            spools: spools(dir, session),
            guarded: options.profile == Profile::Guard,
        });
        let book = Book { log: Arc::new(writer), reducer: options.reducer(&key.bytes) };
        Ok((Self { source, file: placement.path, key_lasts: key.lasts }, book))
    }
}
