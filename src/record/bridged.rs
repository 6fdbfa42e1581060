//! The source of a session over a bridge: what its client exchanged is in two rings, and what the bridge exchanged with
//! the server is in a log.

use super::{
    broadcast::OpenStream,
    http::{sessions::BRIDGE, source::HttpSource},
    lane::Lane,
    opening::Opening,
    recorder::Setup,
    rings::Rings,
    source::{Delivered, Lost, Seen, SessionKey, Source, SourceError},
};
use crate::model::SessionId;
use std::sync::Arc;

/// Rings and a log, which have one session together.
pub struct Bridged {
    rings: Rings,
    /// `None`: it did not survive the process.
    log: Option<HttpSource>,
    /// What the session begins with, until it is known which transport the server speaks.
    opening: Option<Box<Opening>>,
    /// The transport in it is not known before the server was heard.
    is_open: bool,
    /// What follows belongs to the next session, which has not begun.
    is_rolling: bool,
    /// Its process is dead: what would have belonged to a session that it did not begin belongs to the last one.
    is_left: bool,
}

impl Bridged {
    /// The source of a session that begins. `is_open`: the server will show which transport it speaks.
    #[must_use]
    pub fn new(lanes: [Lane; 2], opening: Opening, log: HttpSource, is_open: bool) -> Self {
        let mut rings = Rings::new(lanes, opening);
        Self { opening: rings.opening.take(), rings, log: Some(log), is_open, is_rolling: false, is_left: false }
    }

    /// What a dead session left.
    #[must_use]
    pub fn left(rings: Rings, log: Option<HttpSource>) -> Self {
        Self { rings, log, opening: None, is_open: false, is_rolling: false, is_left: true }
    }

    /// The lanes of the rings.
    #[must_use]
    pub fn lanes(&self) -> &[Lane] {
        self.rings.lanes()
    }

    /// The log, if it is there.
    #[must_use]
    pub const fn log(&self) -> Option<&HttpSource> {
        self.log.as_ref()
    }

    /// Whether the session may begin: it is known which transport the server speaks, or will not be soon.
    fn may_begin(&self) -> bool {
        let is_awaited = self.opening.as_ref().is_some_and(|opening| opening.health.is_awaited());
        let log = self.log.as_ref();
        !self.is_open || is_awaited || log.is_none_or(|log| log.is_closed() || log.speaks().is_some())
    }

    fn begin(&mut self) -> Option<Box<Opening>> {
        let mut opening = self.opening.take()?;
        if let Some(transport) = self.log.as_ref().and_then(HttpSource::speaks) {
            opening.setup = Arc::new(Setup { transport, ..(*opening.setup).clone() });
        }
        Some(opening)
    }
}

impl Source for Bridged {
    fn prefault(&self) {
        self.rings.prefault();
        self.log.iter().for_each(Source::prefault);
    }

    fn look(&mut self, wall_minus_mono_ns: i64) {
        self.rings.look(wall_minus_mono_ns);
        self.log.iter_mut().for_each(|log| log.look(wall_minus_mono_ns));
    }

    fn next(&mut self, take: &mut dyn FnMut(SessionKey, Seen<'_>)) -> bool {
        if self.is_rolling || self.opening.is_some() && !self.may_begin() {
            return false;
        }
        if let Some(opening) = self.begin() {
            take(BRIDGE, Seen::Begins(opening));
            return true;
        }
        let Self { rings, log, is_rolling, is_left, .. } = self;
        let until = rings.upcoming().map_or(u64::MAX, |ns| ns.saturating_sub(1));
        let of_log = log.as_mut().is_some_and(|log| {
            log.next_until(until, &mut |key, seen| {
                *is_rolling |= !*is_left && matches!(seen, Seen::Rolls(_));
                take(key, seen);
            })
        });
        of_log || rings.next(take)
    }

    fn streams(&self, tell: &mut dyn FnMut(SessionKey, OpenStream)) {
        self.log.iter().for_each(|log| log.streams(tell));
    }

    fn take_error(&mut self) -> Option<SourceError> {
        self.rings.take_error().or_else(|| self.log.as_mut()?.take_error())
    }

    fn delivered(&self, tell: Delivered<'_>) {
        self.rings.delivered(tell);
    }

    fn has_work(&self) -> bool {
        let waits = self.is_rolling || self.opening.is_some() && !self.may_begin();
        let has = || self.opening.is_some() || self.rings.has_work() || self.log.as_ref().is_some_and(Source::has_work);
        !waits && has()
    }

    fn is_stuck(&self) -> bool {
        self.rings.is_stuck()
    }

    fn is_drained(&self) -> bool {
        let waits = self.is_rolling || self.opening.is_some();
        !waits && self.rings.is_drained() && self.log.as_ref().is_none_or(Source::is_drained)
    }

    fn holds_passed(&self) -> bool {
        self.rings.holds_passed()
    }

    fn is_filling(&self) -> bool {
        self.rings.is_filling() || self.log.as_ref().is_some_and(Source::is_filling)
    }

    fn has_given_much(&self) -> bool {
        self.log.as_ref().is_some_and(Source::has_given_much)
    }

    fn presses(&self) -> bool {
        self.log.as_ref().is_some_and(Source::presses)
    }

    fn settled(&mut self) {
        self.rings.settled();
        self.log.iter_mut().for_each(Source::settled);
    }

    fn keep(&mut self) {
        self.rings.keep();
        self.log.iter_mut().for_each(Source::keep);
    }

    fn retry(&mut self) {
        self.rings.retry();
    }

    fn written(&mut self, session: SessionKey) {
        self.log.iter_mut().for_each(|log| log.written(session));
    }

    fn make_room(&mut self, failing: &dyn Fn(SessionKey) -> bool) {
        self.rings.make_room(failing);
        self.log.iter_mut().for_each(|log| log.make_room(failing));
    }

    fn rest(&mut self, give_back: bool) {
        self.rings.rest(give_back);
        self.log.iter_mut().for_each(|log| log.rest(give_back));
    }

    fn give_up_stuck(&mut self) -> bool {
        self.rings.give_up_stuck()
    }

    fn take_lost(&mut self, lost: Lost<'_>) {
        self.rings.take_lost(lost);
        self.log.iter_mut().for_each(|log| log.take_lost(lost));
    }

    fn unfinished(&self, lost: Lost<'_>) {
        self.rings.unfinished(lost);
        self.log.iter().for_each(|log| log.unfinished(lost));
    }

    fn goes_on_as(&mut self, session: SessionKey, id: SessionId) {
        self.is_rolling = false;
        self.rings.goes_on_as(session, id);
        self.log.iter_mut().for_each(|log| log.goes_on_as(session, id));
    }

    fn note_lost(&self, session: SessionKey, bytes: u64) {
        self.rings.note_lost(session, bytes);
    }

    fn forget(&mut self, session: SessionKey) {
        self.rings.forget(session);
        self.log.iter_mut().for_each(|log| {
            log.forget(session);
            log.remove();
        });
    }
}
