//! Exchanges of HTTP: their events, and what the end of one means for the calls in it.

use super::Recorder;
use crate::{
    model::{
        Detail, Direction, OutcomeReason, Transport, Word,
        event::detail,
        http::{HttpExchange, InExchange},
        session::{Endpoint, HttpSession},
        words::{AnsweredBy, ExchangeEnd, ExchangePhase},
    },
    record::{
        correlate::Pending,
        exchange::{Exchange, Stage},
        stream::{MessagePlace, StreamId},
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// An exchange that is not over.
#[derive(Debug)]
struct Open {
    /// What is known of it.
    detail: Box<HttpExchange>,
    /// An event of this session names it.
    is_named: bool,
}

/// The exchanges of a session.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    open: BTreeMap<u64, Open>,
    /// Those that are over, while a dead session is read once more from its log.
    over: BTreeSet<u64>,
    /// How many there were in this session.
    count: u64,
    /// What clients and upstreams spoke.
    spoken: [BTreeSet<String>; 2],
    /// Digest of the MCP session id.
    session: Option<String>,
    /// The last one of the session before, whose MCP session may have been another.
    before: u64,
    /// The last one.
    last: u64,
    /// The server has lost the session: what follows is another one for it, too.
    pub(super) is_lost: bool,
}

impl Exchanges {
    /// A message is in this exchange.
    pub(super) fn mention(&mut self, exchange: u64) {
        if !self.open.contains_key(&exchange) && !self.over.contains(&exchange) {
            self.know(HttpExchange::new(exchange));
        }
    }

    fn know(&mut self, detail: HttpExchange) -> &mut Open {
        for (spoken, version) in self.spoken.iter_mut().zip([&detail.downstream, &detail.upstream]) {
            if let Some(version) = version.as_ref().filter(|version| !spoken.contains(*version)) {
                spoken.insert(version.clone());
            }
        }
        self.last = self.last.max(detail.exchange);
        if self.session.is_none() && detail.exchange > self.before {
            self.session.clone_from(&detail.session);
        }
        let detail = Box::new(detail);
        match self.open.entry(detail.exchange) {
            std::collections::btree_map::Entry::Occupied(there) => {
                let there = there.into_mut();
                there.detail = detail;
                there
            }
            std::collections::btree_map::Entry::Vacant(place) => {
                self.count += 1;
                place.insert(Open { detail, is_named: false })
            }
        }
    }

    /// An event of a dead session.
    pub(super) fn restore(&mut self, detail: &HttpExchange) {
        let exchange = detail.exchange;
        self.know(detail.clone()).is_named = true;
        if detail.phase == ExchangePhase::End {
            self.open.remove(&exchange);
            self.over.insert(exchange);
        }
    }

    /// Those that are open in the session that follows.
    pub(super) fn roll(self) -> Self {
        let open: BTreeMap<_, _> =
            self.open.into_iter().map(|(n, open)| (n, Open { is_named: false, ..open })).collect();
        let of_open = |version: fn(&HttpExchange) -> &Option<String>| {
            open.values().filter_map(|open| version(&open.detail).clone()).collect()
        };
        let spoken = [of_open(|detail| &detail.downstream), of_open(|detail| &detail.upstream)];
        let (session, before) = if self.is_lost { (None, self.last) } else { (self.session, self.before) };
        Self { count: open.len() as u64, spoken, session, before, last: self.last, open, ..Self::default() }
    }
}

impl Recorder {
    /// The exchange of a message at this place, as its events name it.
    pub(super) fn exchange_of(&self, place: MessagePlace) -> InExchange {
        match (self.setup.transport, place.stream) {
            _ if self.setup.is_library() => InExchange::Unsaid,
            (Transport::Stdio, _) => InExchange::Unsaid,
            (_, StreamId::Stdio(_)) => InExchange::Said(None),
            (_, StreamId::Exchange { exchange, .. }) => InExchange::Said(Some(exchange)),
        }
    }

    /// What an event says that is about no message.
    pub(super) fn in_no_exchange(&self) -> InExchange {
        let is_unsaid = self.setup.transport == Transport::Stdio || self.setup.is_library();
        if is_unsaid { InExchange::Unsaid } else { InExchange::Said(None) }
    }

    /// An exchange has begun, or is over.
    pub fn exchange(&mut self, exchange: Exchange) {
        let Exchange { mut detail, stage, at_ns, head_ns, first_byte_ns, resumable } = exchange;
        let number = detail.exchange;
        self.last_ns = self.last_ns.max(at_ns);
        if self.exchanges.over.contains(&number) {
            // It is on disk.
            return;
        }
        if let Some(response) = &mut detail.response {
            response.head_us = head_ns.map(|ns| ns.saturating_sub(self.started_ns) / 1000);
            response.first_byte_us = first_byte_ns.map(|ns| ns.saturating_sub(self.started_ns) / 1000);
        }
        detail.phase = if stage == Stage::Over { ExchangePhase::End } else { ExchangePhase::Open };
        let open = self.exchanges.know(detail);
        match stage {
            Stage::Begun => {}
            Stage::Open if open.is_named => {}
            Stage::Open => {
                open.is_named = true;
                let detail = (*open.detail).clone();
                self.exchange_event(detail, at_ns);
            }
            Stage::Over => {
                let Some(Open { detail, .. }) = self.exchanges.open.remove(&number) else { return };
                if self.restored.is_some() {
                    self.exchanges.over.insert(number);
                }
                self.exchange_event((*detail).clone(), at_ns);
                self.exchange_over(&detail, resumable);
            }
        }
    }

    /// What the end of an exchange means for what was asked in it, and for what was read in it and has not reached its
    /// receiver.
    fn exchange_over(&mut self, detail: &HttpExchange, resumable: bool) {
        let exchange = detail.exchange;
        for direction in [Direction::ServerToClient, Direction::ClientToServer] {
            for awaited in self.awaiting.take(StreamId::Exchange { exchange, direction }) {
                let Some(pending) = self.table.get(awaited.invocation).filter(|_| awaited.response) else { continue };
                // It may be sent once more.
                if !may_go_on(pending, resumable) {
                    self.close_cut(awaited.invocation, no_response(detail, pending.modern));
                }
            }
        }
        for invocation in self.table.of_exchange(exchange) {
            let Some(pending) = self.table.get_mut(invocation) else { continue };
            pending.over = true;
            if let Some(response) = &pending.response {
                // The server answered before all of the request had been written.
                if response.delivered_ns.is_some() {
                    self.close(invocation);
                }
                continue;
            }
            let reason = no_response(detail, pending.modern);
            let ends = matches!(reason, Some(OutcomeReason::HttpError | OutcomeReason::SessionLost));
            let stops = matches!(
                detail.ended.as_ref().and_then(Word::known),
                Some(ExchangeEnd::Shutdown | ExchangeEnd::Crashed)
            );
            if stops || !ends && may_go_on(pending, resumable) {
                pending.cut = reason;
            } else {
                self.close_cut(invocation, Some(reason.unwrap_or(OutcomeReason::StreamEnded)));
            }
        }
    }

    /// The event of a dead session about an exchange. Whether its calls were closed with it, other events say.
    pub(super) fn replay_exchange(&mut self, detail: &HttpExchange) {
        self.exchanges.restore(detail);
        if detail.phase == ExchangePhase::Open {
            return;
        }
        for invocation in self.table.of_exchange(detail.exchange) {
            if let Some(pending) = self.table.get_mut(invocation) {
                pending.over = true;
                pending.cut = no_response(detail, pending.modern);
            }
        }
    }

    /// What `session.json` says of a session over HTTP.
    pub(super) fn http_session(&self) -> Option<HttpSession> {
        if self.setup.transport == Transport::Stdio {
            return None;
        }
        let bound = self.setup.http.clone().unwrap_or_default();
        let [downstream, upstream] = self.exchanges.spoken.each_ref().map(|all| all.iter().cloned().collect());
        Some(HttpSession {
            client_key: bound.client,
            client_key_shared: bound.client_may_be_shared,
            downstream,
            endpoint: Endpoint {
                digest: self.setup.origin.digest().to_owned(),
                url: self.setup.origin.url().map(str::to_owned),
            },
            exchanges: self.exchanges.count,
            joined_midway: bound.joined_midway,
            key_lasts: Some(bound.key_lasts),
            mcp_session: bound.mcp_session.or_else(|| self.exchanges.session.clone()),
            upstream,
        })
    }

    fn exchange_event(&mut self, detail: detail::HttpExchange, at_ns: u64) {
        self.plain_event((self.clock.wall(at_ns), at_ns), Detail::HttpExchange(detail));
    }

    /// The chain ends: what is open in it is named in it.
    pub(super) fn name_exchanges(&mut self) {
        let mut unnamed = Vec::new();
        for open in self.exchanges.open.values_mut() {
            if !std::mem::replace(&mut open.is_named, true) {
                unnamed.push(HttpExchange { phase: ExchangePhase::Open, ..(*open.detail).clone() });
            }
        }
        for detail in unnamed {
            self.exchange_event(detail, self.last_ns);
        }
    }
}

/// Whether a request that has no response yet may still get one, or its response, in another exchange.
const fn may_go_on(pending: &Pending, resumable: bool) -> bool {
    resumable && !pending.modern
}

/// Why a request has no answer when its exchange has ended so. `None`: nothing kept it from being answered.
fn no_response(detail: &HttpExchange, modern: bool) -> Option<OutcomeReason> {
    use ExchangeEnd as E;
    use OutcomeReason as R;
    let by_upstream = detail.answered_by.as_ref().and_then(Word::known) == Some(AnsweredBy::Upstream);
    match (detail.status(), detail.ended.as_ref().and_then(Word::known)) {
        (Some(404), _) if by_upstream && detail.session.is_some() => Some(R::SessionLost),
        _ if detail.failed() => Some(R::HttpError),
        // It was accepted: the answer comes elsewhere.
        (status, Some(E::Complete)) => (status != Some(202)).then_some(R::StreamEnded),
        (_, Some(E::ClientGone)) => Some(if modern { R::CancelledByClient } else { R::ClientClosed }),
        (_, Some(E::UpstreamLost | E::Timeout)) => Some(R::UpstreamLost),
        (_, Some(E::Refused)) => Some(R::HttpError),
        // The end of the session says why.
        (_, Some(E::Shutdown | E::Crashed) | None) => None,
    }
}
