//! One exchange, as far as it has come.

use super::{
    assemble::{Assembly, AssemblyState, Part},
    sessions::ClientKey,
};
use crate::{
    model::{
        Direction, Word,
        http::{HeaderValues, HttpExchange, HttpRequest, HttpResponse, HttpTarget},
        words::{self, ExchangeEnd, ExchangeOrigin},
    },
    record::{
        content,
        exchange::{self, Stage},
        rulings::RulingRecord,
        source::SessionKey,
        stream::StreamId,
    },
    relay::log::{AnsweredBy, BodyEnd, Cause, Flow, HttpVersion, NoteCode, RequestHead, ResponseHead},
};
use serde::{Deserialize, Serialize};
use std::{
    cell::OnceCell,
    collections::{BTreeSet, VecDeque},
    io,
};

/// Marks that are kept of what was delivered of one body; more are merged.
const MARKS: usize = 64;

/// How far a body has reached its receiver, and when.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Delivery {
    marks: VecDeque<(u64, u64)>,
    upto: u64,
}

impl Delivery {
    /// Everything before this offset is with the receiver's system.
    pub fn wrote(&mut self, upto: u64, ns: u64) {
        if upto <= self.upto {
            return;
        }
        self.upto = upto;
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back((upto, ns));
    }

    /// How far it has come.
    #[must_use]
    pub const fn upto(&self) -> u64 {
        self.upto
    }

    /// When the last byte was delivered, monotonic ns.
    #[must_use]
    pub fn last_ns(&self) -> Option<u64> {
        self.marks.back().map(|(_, ns)| *ns)
    }

    /// When the byte before this offset was delivered.
    #[must_use]
    pub fn when(&self, offset: u64) -> Option<u64> {
        let at = self.marks.partition_point(|(upto, _)| *upto < offset);
        self.marks.get(at).map(|(_, ns)| *ns)
    }
}

/// One body of an exchange. `A` finds the messages in it, or is the state of what does.
#[derive(Debug, Serialize, Deserialize)]
pub struct Body<A = Assembly> {
    /// Finds the messages in it; `None` for one that is not in the log, or before its head.
    pub assembly: Option<A>,
    /// Its messages are events.
    #[serde(skip)]
    pub is_stream: bool,
    /// Its delivery.
    pub delivery: Delivery,
    /// When its first byte was read, monotonic ns.
    pub first_ns: Option<u64>,
    /// Its end.
    pub end: Option<BodyEnd>,
    /// When it ended, monotonic ns.
    pub ended_ns: u64,
    /// Messages found in it.
    pub messages: u64,
    /// Bytes that crossed unrecorded.
    pub gap_bytes: u64,
    /// What a guard decided about messages of it that are not whole yet.
    #[serde(skip)]
    pub rulings: Vec<(u64, RulingRecord)>,
    /// Whole messages about which a guard may decide yet.
    #[serde(skip)]
    pub held: Vec<Undecided>,
}

/// A whole message about which a guard may decide yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undecided {
    /// Offset in the body of its first byte.
    pub offset: u64,
    /// Offset in the body after it.
    pub end: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Their SHA-256, if it is known.
    #[serde(skip)]
    pub sha256: OnceCell<[u8; 32]>,
    /// When its first byte was read, monotonic ns.
    pub first_byte_ns: u64,
    /// When its last byte was read, monotonic ns.
    pub read_ns: u64,
    /// The last event id of its stream.
    pub id: Vec<u8>,
}

impl Body {
    /// A body of which nothing was read.
    #[must_use]
    pub fn new(assembly: Option<Assembly>) -> Self {
        Self {
            assembly,
            is_stream: false,
            delivery: Delivery::default(),
            first_ns: None,
            end: None,
            ended_ns: 0,
            messages: 0,
            gap_bytes: 0,
            rulings: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Takes what was decided about the message at this offset.
    pub fn ruling_at(&mut self, offset: u64) -> Option<RulingRecord> {
        let at = self.rulings.iter().position(|(_, ruling)| ruling.offset == offset)?;
        Some(self.rulings.remove(at).1)
    }

    /// What was decided about messages that are not whole, as a state has it.
    pub fn rulings_of(&self, flow: Flow) -> impl Iterator<Item = (u64, bool, u64, RulingRecord)> {
        let in_answer = flow.direction == Direction::ServerToClient;
        self.rulings.iter().map(move |(end, ruling)| (flow.exchange, in_answer, *end, ruling.clone()))
    }
}

impl Undecided {
    /// As it was found in its body.
    #[must_use]
    pub fn part(&self) -> Part<'_> {
        let Self { offset, end, bytes, sha256, first_byte_ns, read_ns, id } = self;
        let (offset, end, first_byte_ns, read_ns) = (*offset, *end, *first_byte_ns, *read_ns);
        Part { offset, end, bytes, sha256, page: None, first_byte_ns, read_ns, event: None, id }
    }
}

impl<A> Body<A> {
    fn with<B>(&self, assembly: Option<B>) -> Body<B> {
        Body {
            assembly,
            delivery: self.delivery.clone(),
            first_ns: self.first_ns,
            end: self.end.clone(),
            ended_ns: self.ended_ns,
            messages: self.messages,
            gap_bytes: self.gap_bytes,
            is_stream: self.is_stream,
            rulings: Vec::new(),
            held: Vec::new(),
        }
    }
}

/// One request and its answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Exchange<A = Assembly> {
    /// The request's head.
    pub request: RequestHead,
    /// When it was read, monotonic ns.
    pub began_ns: u64,
    /// The answer's head, and when it was read.
    pub response: Option<(ResponseHead, u64)>,
    /// Both bodies: the request's, the answer's.
    pub bodies: [Body<A>; 2],
    /// What people want to know of it, and which messages of a bridge's client it carries.
    pub notes: Vec<(NoteCode, String)>,
    /// The session that was told of it.
    pub told: Option<SessionKey>,
    /// Another client than the one that began the MCP session sent it.
    pub other_client: bool,
    /// We sent it, in a client's place.
    #[serde(skip)]
    pub ours: bool,
}

impl<A> Exchange<A> {
    fn with<B>(&self, bodies: [Body<B>; 2]) -> Exchange<B> {
        Exchange {
            request: self.request.clone(),
            began_ns: self.began_ns,
            response: self.response.clone(),
            bodies,
            notes: self.notes.clone(),
            told: self.told,
            other_client: self.other_client,
            ours: self.ours,
        }
    }
}

impl Exchange<AssemblyState> {
    /// Goes on with it; `assembly` continues what finds the messages of a body.
    ///
    /// # Errors
    /// Those of `assembly`.
    pub fn restore(
        mut self,
        mut assembly: impl FnMut(usize, AssemblyState) -> io::Result<Assembly>,
    ) -> io::Result<Exchange> {
        let mut of = |side: usize| self.bodies[side].assembly.take().map(|state| assembly(side, state)).transpose();
        let (request, response) = (of(0)?, of(1)?);
        self.bodies[1].is_stream = response.as_ref().is_some_and(Assembly::has_events);
        Ok(self.with([self.bodies[0].with(request), self.bodies[1].with(response)]))
    }
}

/// The place of a direction in [`Exchange::bodies`].
#[must_use]
pub const fn side(direction: Direction) -> usize {
    match direction {
        Direction::ClientToServer => 0,
        Direction::ServerToClient => 1,
    }
}

/// The stream of a body.
#[must_use]
pub const fn stream(flow: Flow) -> StreamId {
    StreamId::Exchange { exchange: flow.exchange, direction: flow.direction }
}

impl Exchange {
    /// When both bodies had ended, monotonic ns.
    #[must_use]
    pub fn over_ns(&self) -> Option<u64> {
        over_ns(&self.bodies)
    }

    /// Whether nothing more can be heard of it: both bodies have ended, and have reached their receivers or never will.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let ours = self.response.as_ref().is_none_or(|(head, _)| head.answered_by == AnsweredBy::Assay);
        let done = |body: &Body, goes: bool| {
            body.end
                .as_ref()
                .is_some_and(|end| !goes || end.cause != Cause::Complete || body.delivery.upto >= end.bytes)
        };
        done(&self.bodies[0], !ours) && done(&self.bodies[1], true)
    }

    /// Whether its answer is one of HTTP alone, unless its body is JSON-RPC.
    #[must_use]
    pub fn is_http_error(&self) -> bool {
        self.response.as_ref().is_some_and(|(head, _)| head.status >= 400)
    }

    /// What is needed to go on with it.
    #[must_use]
    pub fn state(&self) -> Exchange<AssemblyState> {
        self.with(self.bodies.each_ref().map(|body| body.with(body.assembly.as_ref().map(Assembly::state))))
    }

    /// What the recorder is told of it, by whom it was asked for; `resumable` as in what it is told.
    #[must_use]
    pub fn told(&self, number: u64, origin: ExchangeOrigin, resumable: bool) -> exchange::Exchange {
        let heads = (self.request.clone(), self.response.clone(), self.notes.clone());
        tell(number, (Stage::Begun, self.began_ns), (origin, resumable), heads, &self.bodies)
    }

    /// The same when it is over.
    #[must_use]
    pub fn told_last(self, number: u64, origin: ExchangeOrigin, resumable: bool) -> exchange::Exchange {
        let heads = (self.request, self.response, self.notes);
        tell(number, (Stage::Over, self.began_ns), (origin, resumable), heads, &self.bodies)
    }

    /// The value of an allow-listed header.
    #[must_use]
    pub fn value<'a>(values: &'a [(String, String)], name: &str) -> Option<&'a str> {
        values.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

type Heads = (RequestHead, Option<(ResponseHead, u64)>, Vec<(NoteCode, String)>);

fn tell(
    number: u64,
    (stage, began_ns): (Stage, u64),
    (origin, resumable): (ExchangeOrigin, bool),
    (request, response, notes): Heads,
    bodies: &[Body; 2],
) -> exchange::Exchange {
    let over_ns = over_ns(bodies).filter(|_| stage == Stage::Over);
    let over = over_ns.is_some();
    let is_client = origin == ExchangeOrigin::Client;
    let bytes = |body: &Body| body.end.as_ref().map(|end| end.bytes).filter(|_| over);
    let sha256 = |body: &Body| {
        let end = body.end.as_ref().filter(|_| over && body.gap_bytes == 0)?;
        end.sha256.or_else(|| body.assembly.as_ref()?.digest()).map(hex::encode)
    };
    let coding = |values: &[(String, String)]| Exchange::value(values, "content-encoding").map(ToOwned::to_owned);
    let head_ns = response.as_ref().map(|(_, ns)| *ns);
    let answered = response.map(|(head, _)| head);
    let upstream = answered.as_ref().filter(|head| head.answered_by == AnsweredBy::Upstream);
    let upstream = upstream.map(|head| (spoken(head.version), head.reused));
    let rewrote = notes.iter().filter_map(|(code, _)| match code {
        NoteCode::RewroteLocation => Some("location".to_owned()),
        NoteCode::RewroteEndpoint => Some("endpoint".to_owned()),
        _ => None,
    });
    let rewrote = rewrote.collect();
    let undecoded = bodies.iter().zip(["request", "answer"]).filter_map(|(body, what)| {
        let why = body.assembly.as_ref()?.undecoded()?;
        Some(format!("the body of the {what} could not be decoded: {why}"))
    });
    let (carried, said): (Vec<_>, Vec<_>) = notes.into_iter().partition(|(code, _)| *code == NoteCode::Carries);
    let carries = carried.iter().map(|(_, id)| content::evidence_id(Some(id.as_bytes()), &mut BTreeSet::new()));
    let session = answered.as_ref().and_then(|head| head.session.clone());
    let detail = HttpExchange {
        answered_by: answered.as_ref().map(|head| Word::Known(answered_by(head.answered_by))),
        carries: carries.collect(),
        client: is_client.then(|| ClientKey::of(&request).name()),
        credential: request.credential,
        downstream: is_client.then(|| spoken(request.version)),
        ended: over.then(|| Word::Known(ended(bodies))),
        endpoint: request.endpoint,
        method: request.method,
        notes: said.into_iter().map(|(_, text)| text).chain(undecoded).collect(),
        origin,
        request: HttpRequest {
            bytes: bytes(&bodies[0]),
            encoding: coding(&request.values),
            headers: request.names,
            sha256: sha256(&bodies[0]),
            values: HeaderValues::of(request.values),
        },
        response: answered.map(|head| HttpResponse {
            bytes: bytes(&bodies[1]),
            encoding: coding(&head.values),
            first_byte_us: None,
            head_us: None,
            headers: head.names,
            sha256: sha256(&bodies[1]),
            status: head.status,
            trailers: bodies[1].end.as_ref().map(|end| end.trailers.clone()).unwrap_or_default(),
            values: HeaderValues::of(head.values),
        }),
        rewrote,
        session: request.session.or(session),
        target: HttpTarget { path: request.target.path, query: request.target.query },
        upstream_reused: upstream.as_ref().map(|(_, reused)| *reused),
        upstream: upstream.map(|(spoken, _)| spoken),
        ..HttpExchange::new(number)
    };
    exchange::Exchange {
        detail,
        stage,
        at_ns: over_ns.unwrap_or(began_ns),
        head_ns,
        first_byte_ns: bodies[1].first_ns,
        resumable,
    }
}

fn over_ns(bodies: &[Body; 2]) -> Option<u64> {
    let over = bodies.iter().all(|body| body.end.is_some());
    over.then(|| bodies[0].ended_ns.max(bodies[1].ended_ns))
}

/// How an exchange ended: as its answer did, unless only the request was cut.
fn ended(bodies: &[Body; 2]) -> ExchangeEnd {
    let cause = |body: &Body| body.end.as_ref().map_or(Cause::Complete, |end| end.cause);
    let cause = match cause(&bodies[1]) {
        Cause::Complete => cause(&bodies[0]),
        cause => cause,
    };
    match cause {
        Cause::Complete => ExchangeEnd::Complete,
        Cause::ClientGone => ExchangeEnd::ClientGone,
        Cause::UpstreamLost => ExchangeEnd::UpstreamLost,
        Cause::Refused => ExchangeEnd::Refused,
        Cause::Shutdown => ExchangeEnd::Shutdown,
        Cause::Timeout => ExchangeEnd::Timeout,
    }
}

fn spoken(version: HttpVersion) -> String {
    match version {
        HttpVersion::H10 => "h1.0",
        HttpVersion::H11 => "h1",
        HttpVersion::H2 => "h2",
    }
    .to_owned()
}

const fn answered_by(by: AnsweredBy) -> words::AnsweredBy {
    match by {
        AnsweredBy::Upstream => words::AnsweredBy::Upstream,
        AnsweredBy::Assay => words::AnsweredBy::Assay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mark_behind_a_byte_says_when_it_was_delivered() {
        let mut d = Delivery::default();
        for n in 1..=100 {
            d.wrote(n * 10, n);
        }
        d.wrote(5, 999);
        assert_eq!(d.upto(), 1000);
        assert_eq!((d.when(1000), d.when(995), d.when(991)), (Some(100), Some(100), Some(100)));
        assert_eq!((d.when(990), d.when(1001)), (Some(99), None));
        // What is forgotten was delivered before the oldest that is known.
        assert_eq!(d.when(1), Some(37));
    }
}
