//! The guard of a listener: judges requests and answers by the session that they belong to.
//!
//! It finds the sessions by itself, with the recorder's own reducer: the recorder is behind, and a budget is used up at
//! once. What it decides is in the log of exchanges before it takes effect.

use super::{outbox::Outbox, policy::InForce, surface::Keeper};
use crate::{
    guard::{
        Session,
        http::{
            self, AnswerBody, AnswerFacts, AnswerForm, AnswerHead, Asked, Desk, Header, HttpReply, HttpRuling,
            request_too_large, review_answer_head, review_request,
        },
    },
    policy::Dns,
    record::{
        health::Health,
        http::sessions::{Begun, Change, FirstMessage, SessionMap},
        rulings::RulingRecord,
        source::SessionKey,
    },
    relay::{
        http::review::{AnswerReview, AnswerVerdict, Head, Judging, OwnReply, Passed, RequestFacts, Reviewer, Verdict},
        log::{Digests, Entry, ExchangeLog, Flow, LogWriter, NoteCode, ResponseHead},
    },
    sys::clock,
};
use ::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

/// How often sessions are looked at for those that are over, ns.
const TICK_NS: u64 = 250_000_000;
/// A longer request is judged beside the threads that move bytes.
const LONG: usize = 256 << 10;

/// What a guard needs.
pub(super) struct Guarding {
    pub(super) log: Arc<LogWriter>,
    pub(super) policy: InForce,
    pub(super) dns: Dns,
    /// How the recorder is.
    pub(super) health: Arc<Health>,
    /// Bytes of the longest request.
    pub(super) max_message: usize,
    /// Paths beside the endpoint to which requests may pass.
    pub(super) pass_paths: Vec<String>,
    pub(super) digests: Digests,
    /// No session yet.
    pub(super) map: SessionMap,
    /// Whether anything can be recorded at all.
    pub(super) usable: bool,
    /// The decisions about what the server offers, if what is not approved is kept back.
    pub(super) surface: Option<Keeper>,
}

/// The guard of a listener.
pub(super) struct HttpGuard {
    guarding: Guarding,
    known: Mutex<Known>,
    /// Of what belongs to no client.
    nobody: Client,
    /// Requests and answers that it refused beside the endpoint.
    elsewhere: AtomicU64,
}

/// A client and its server.
#[derive(Clone)]
struct Client {
    session: Arc<Session>,
    /// Messages of ours to it.
    outbox: Arc<Outbox>,
}

/// The sessions, and what is open in them.
struct Known {
    map: SessionMap,
    sessions: BTreeMap<SessionKey, Client>,
    exchanges: BTreeMap<u64, Open>,
    changes: Vec<Change>,
    ticked_ns: u64,
}

/// A request that passed.
struct Open {
    asked: Asked,
    /// Of a stream that begins a session of the old transport, if it turns out to be one.
    begins: Option<Client>,
}

/// Puts rulings into the log.
struct LogDesk {
    log: Arc<LogWriter>,
    flow: Flow,
    usable: bool,
}

impl Desk for LogDesk {
    fn record(&mut self, end: u64, ruling: &RulingRecord) -> bool {
        self.log.put_now(self.flow, &Entry::Ruling { end, record: &ruling.to_bytes() })
    }

    fn is_captured(&self) -> bool {
        self.usable && !self.log.is_bypassing()
    }

    fn exchange(&self) -> u64 {
        self.flow.exchange
    }
}

impl HttpGuard {
    pub(super) fn new(mut guarding: Guarding) -> Self {
        let empty = SessionMap::new(0, crate::record::http::sessions::Limits::default());
        let map = std::mem::replace(&mut guarding.map, empty);
        let known =
            Known { map, sessions: BTreeMap::new(), exchanges: BTreeMap::new(), changes: Vec::new(), ticked_ns: 0 };
        let nobody = guarding.client(clock::mono_ns(), |session| session);
        Self { guarding, known: Mutex::new(known), nobody, elsewhere: AtomicU64::new(0) }
    }

    /// How many requests and answers beside the endpoint it refused: no message of a session tells of them.
    pub(super) fn refused_elsewhere(&self) -> u64 {
        self.elsewhere.load(Ordering::Relaxed)
    }

    fn refuse_elsewhere(&self, status: StatusCode, why: &str) -> OwnReply {
        self.elsewhere.fetch_add(1, Ordering::Relaxed);
        OwnReply::line(status, why)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn desk(&self, flow: Flow) -> LogDesk {
        LogDesk { log: self.guarding.log.clone(), flow, usable: self.guarding.usable }
    }

    /// The session of a request, with its body or the begin of it. `None`: it begins with this request, and the recorder
    /// does not hear of it.
    fn session_of(&self, request: &RequestFacts, body: &[u8], is_cut: bool) -> Option<Arc<Session>> {
        let ns = clock::mono_ns();
        let mut known = self.lock();
        let Known { map, changes, ticked_ns, .. } = &mut *known;
        if ns.saturating_sub(*ticked_ns) > TICK_NS {
            *ticked_ns = ns;
            map.tick(ns, changes);
        }
        let exchange = request.exchange;
        map.request(exchange, &request.head, ns, changes);
        if map.of(exchange).is_none() && (is_cut || !body.trim_ascii().is_empty()) {
            let mut first = FirstMessage::of(body, None);
            first.is_rpc |= is_cut;
            map.first(exchange, &first, ns, changes);
            let begins = changes.iter().any(|change| matches!(change, Change::Begins(_)));
            if begins && first.is_rpc && !is_cut {
                // What is decided has to be recorded in a session that is on disk. The recorder would begin it with the end
                // of the request, which comes after the decision.
                let entry = Entry::Note { code: NoteCode::Begins, text: "" };
                let is_told = self.guarding.log.put_now(Flow::request(exchange), &entry);
                known.follow(&self.guarding, self.guarding.log.head(), ns);
                return known.of(exchange).map(|client| client.session).filter(|_| is_told);
            }
        }
        // The recorder begins what else begins with the next entry.
        known.follow(&self.guarding, self.guarding.log.head() + 1, ns);
        Some(known.of(exchange).unwrap_or_else(|| self.nobody.clone()).session)
    }

    /// Whether requests to this path pass that are not looked at.
    fn passes(&self, target: &str) -> bool {
        let path = target.split(['?', '#']).next().unwrap_or_default();
        self.guarding.pass_paths.iter().any(|pass| pass.trim_end_matches('/') == path.trim_end_matches('/'))
    }

    fn settled(&self, exchange: u64, (verdict, asked): (Verdict, Asked)) -> Verdict {
        if verdict == Verdict::Pass {
            self.lock().exchanges.insert(exchange, Open { asked, begins: None });
        }
        verdict
    }
}

impl Guarding {
    /// A client whose session begins now, as `begun` has it.
    fn client(&self, ns: u64, begun: impl FnOnce(Session) -> Session) -> Client {
        let (judge, feed) = self.policy.session(self.dns.clone(), ns);
        let mut session = begun(Session::new(Box::new(judge), self.health.clone(), feed, self.max_message));
        let outbox = Arc::<Outbox>::default();
        if let Some(keeper) = &self.surface {
            let gate = keeper.gate();
            let told = Arc::downgrade(&outbox);
            keeper.tells(&gate, move |text| told.upgrade().iter().for_each(|outbox| outbox.put(text)));
            session = session.with_surface(gate);
        }
        Client { session: Arc::new(session), outbox }
    }
}

impl Known {
    /// What the last step of the map means. The recorder begins a session that begins when it comes to this offset of the
    /// log.
    fn follow(&mut self, guarding: &Guarding, since: u64, ns: u64) {
        for change in std::mem::take(&mut self.changes) {
            match change {
                Change::Begins(new) => {
                    let begun = |session: Session| {
                        let session = session.begun_at(since);
                        if new.begun == Begun::JoinedMidway { session.joined_midway() } else { session }
                    };
                    self.sessions.insert(new.key, guarding.client(ns, begun));
                }
                Change::Ends(key, _) => {
                    self.sessions.remove(&key);
                }
                Change::OtherClient { .. } => {}
            }
        }
    }

    fn of(&self, exchange: u64) -> Option<Client> {
        self.sessions.get(&self.map.of(exchange)?).cloned()
    }
}

/// Judges a request, and records what was decided.
fn judge(session: &Session, headers: &HeaderMap, body: &[u8], captured: bool, desk: &mut LogDesk) -> (Verdict, Asked) {
    let headers = headers_of(headers);
    let facts = http::RequestFacts { headers: &headers, captured };
    settle(review_request(&facts, body, session), body.len(), session, desk)
}

fn settle(mut ruling: HttpRuling<'_>, end: usize, session: &Session, desk: &mut LogDesk) -> (Verdict, Asked) {
    if ruling.settle(end as u64, session, desk) {
        return (Verdict::Pass, ruling.asked());
    }
    let reply = ruling.reply().map_or_else(cannot_say, own);
    (Verdict::Reply(reply), Asked::default())
}

fn headers_of(headers: &HeaderMap) -> Vec<Header<'_>> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

fn own(reply: HttpReply) -> OwnReply {
    OwnReply {
        status: StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        content_type: HeaderValue::from_static(reply.content_type),
        body: reply.body.into(),
    }
}

/// There is no JSON for it.
fn cannot_say() -> OwnReply {
    OwnReply::line(StatusCode::INTERNAL_SERVER_ERROR, "the request was refused by guard")
}

impl Reviewer for HttpGuard {
    fn max_body(&self) -> usize {
        self.guarding.max_message
    }

    fn too_large(&self, request: &RequestFacts, start: &[u8]) -> OwnReply {
        let session = self.session_of(request, start, true).unwrap_or_else(|| self.nobody.session.clone());
        let headers = headers_of(&request.headers);
        let facts = http::RequestFacts { headers: &headers, captured: request.recorded };
        let ruling = request_too_large(&facts, start, &session);
        match settle(ruling, start.len(), &session, &mut self.desk(Flow::request(request.exchange))).0 {
            Verdict::Reply(reply) => reply,
            Verdict::Pass => cannot_say(),
        }
    }

    fn review_elsewhere(&self, request: &RequestFacts) -> Verdict {
        if !request.has_body || self.passes(&request.target) {
            return Verdict::Pass;
        }
        Verdict::Reply(self.refuse_elsewhere(
            StatusCode::FORBIDDEN,
            "under guard, only requests to the endpoint may have a body; --pass-path lets those to another path pass",
        ))
    }

    fn review_request<'a>(&'a self, request: &'a RequestFacts, body: Bytes) -> Judging<'a> {
        let exchange = request.exchange;
        let session = self.session_of(request, &body, false);
        let mut desk = self.desk(Flow::request(exchange));
        let captured = request.recorded && desk.is_captured() && session.is_some();
        let session = session.unwrap_or_else(|| self.nobody.session.clone());
        let waits = session.may_wait() || self.guarding.policy.resolves_names() || body.len() > LONG;
        if !waits || body.is_empty() {
            let judged = judge(&session, &request.headers, &body, captured, &mut desk);
            return Box::pin(std::future::ready(self.settled(exchange, judged)));
        }
        let headers = request.headers.clone();
        Box::pin(async move {
            let judged =
                tokio::task::spawn_blocking(move || judge(&session, &headers, &body, captured, &mut desk)).await;
            match judged {
                Ok(judged) => self.settled(exchange, judged),
                Err(e) => {
                    tracing::error!(error = %e, "a request could not be judged");
                    Verdict::Reply(cannot_say())
                }
            }
        })
    }

    fn review_answer(&self, request: &RequestFacts, head: &ResponseHead, headers: &HeaderMap) -> AnswerVerdict {
        let all = headers_of(headers);
        let facts = AnswerFacts { status: head.status, headers: &all };
        if !request.head.endpoint {
            let streams =
                matches!(review_answer_head(&facts, &self.nobody.session), AnswerHead::Passes(AnswerForm::Events))
                    || is_event_stream(headers);
            if streams && !self.passes(&request.target) {
                return AnswerVerdict::Reply(self.refuse_elsewhere(
                    StatusCode::BAD_GATEWAY,
                    "under guard, an event stream passes from the endpoint only; --endpoint names another path of it, \
                     --pass-path lets it pass unread",
                ));
            }
            return AnswerVerdict::Pass;
        }
        let exchange = request.exchange;
        let ns = clock::mono_ns();
        let (Client { session, outbox }, asked) = {
            let mut known = self.lock();
            let Known { map, changes, .. } = &mut *known;
            map.response(exchange, head, ns, changes);
            let is_get = request.method == Method::GET;
            if map.of(exchange).is_none() && (!is_get || map.would_join(exchange)) {
                let first = FirstMessage { is_rpc: is_get, ..FirstMessage::default() };
                map.first(exchange, &first, ns, changes);
            }
            known.follow(&self.guarding, self.guarding.log.head() + 1, ns);
            let client = known.of(exchange);
            let asked = known.exchanges.get(&exchange).map(|open| open.asked.clone()).unwrap_or_default();
            let client = client.unwrap_or_else(|| {
                let client = self.guarding.client(ns, |session| session);
                if let Some(open) = known.exchanges.get_mut(&exchange) {
                    open.begins = Some(client.clone());
                }
                client
            });
            (client, asked)
        };
        let mut desk = self.desk(Flow::response(exchange));
        match review_answer_head(&facts, &session) {
            _ if request.method == Method::HEAD => AnswerVerdict::Pass,
            AnswerHead::Passes(AnswerForm::Nothing) => AnswerVerdict::Pass,
            AnswerHead::Passes(form) => {
                let is_open = request.method == Method::GET && !headers.contains_key(header::CONTENT_LENGTH);
                let outbox = (is_open && form == AnswerForm::Events).then_some(outbox);
                let body = AnswerBody::new(&facts, form, asked, session.clone());
                let policy = self.guarding.policy.clone();
                AnswerVerdict::Through(Box::new(Review { body, desk, session, policy, outbox }))
            }
            AnswerHead::Refused(mut ruling) => {
                let _ = ruling.settle(0, &session, &mut desk);
                AnswerVerdict::Reply(ruling.reply_to(&asked).map_or_else(cannot_say, own))
            }
        }
    }

    fn endpoint(&self, exchange: u64, target: &str) {
        let ns = clock::mono_ns();
        let mut known = self.lock();
        let begins = known.exchanges.get_mut(&exchange).and_then(|open| open.begins.take());
        let Known { map, changes, .. } = &mut *known;
        map.endpoint(exchange, &self.guarding.digests.of(target.as_bytes()), ns, changes);
        known.follow(&self.guarding, self.guarding.log.head(), ns);
        if let (Some(key), Some(client)) = (known.map.of(exchange), begins) {
            known.sessions.insert(key, client);
        }
    }

    fn over(&self, exchange: u64) {
        let ns = clock::mono_ns();
        let mut known = self.lock();
        let open = known.exchanges.remove(&exchange);
        if let (Some(client), Some(open)) = (known.of(exchange), open) {
            open.asked.ids.iter().for_each(|id| client.session.gave_up(id));
        }
        let Known { map, changes, .. } = &mut *known;
        map.over(exchange, ns, changes);
        known.follow(&self.guarding, self.guarding.log.head() + 1, ns);
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    value.split(|b| *b == b';').next().is_some_and(|name| name.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}

/// An answer on its way to the client.
struct Review {
    body: AnswerBody,
    desk: LogDesk,
    session: Arc<Session>,
    policy: InForce,
    /// What waits for a stream that the client holds open, if this is one.
    outbox: Option<Arc<Outbox>>,
}

impl AnswerReview for Review {
    fn push(&mut self, piece: Bytes, passes: &mut Vec<Passed>) {
        let Self { body, desk, .. } = self;
        body.push(&piece, desk, &mut |bytes, upto| passes.push(Passed { bytes: bytes.into(), upto }));
    }

    fn finish(&mut self, passes: &mut Vec<Passed>) {
        let Self { body, desk, .. } = self;
        body.finish(desk, &mut |bytes, upto| passes.push(Passed { bytes: bytes.into(), upto }));
    }

    fn may_wait(&self) -> bool {
        self.session.may_wait() || self.policy.resolves_names() || self.body.is_long()
    }

    fn head(&self) -> Head {
        match self.body.head() {
            http::Head::Held => Head::Held,
            http::Head::Passes => Head::Passes,
            http::Head::Resized(bytes) => Head::Resized(bytes),
            http::Head::Replaced(reply) => Head::Replaced(own(reply)),
        }
    }

    fn resizes(&self) -> bool {
        self.body.resizes()
    }

    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let Some(outbox) = self.outbox.as_ref().filter(|_| self.body.is_between_events()) else {
            return Poll::Pending;
        };
        // Without an id: a client that comes back asks for what follows the server's last one.
        outbox.poll_take(cx).map(|message| [b"event: message\ndata: ", &message[..], b"\n\n"].concat().into())
    }

    fn replies(&mut self) -> Vec<Bytes> {
        self.body.replies().into_iter().map(Bytes::from).collect()
    }
}
