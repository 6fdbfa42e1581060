//! What is open between the client and the server, and how the client is told: each of its requests once.

use super::{
    BridgeEnd, Config,
    answers::{self, Said},
    client::Client,
    era::{Message, Request},
    params::Params,
    resume::Passed,
};
use http::HeaderValue;
use serde_json::Value;
use std::{
    cell::{RefCell, RefMut},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::Instant,
};
use tokio::{
    sync::{Mutex, Notify, mpsc, oneshot, watch},
    task::AbortHandle,
};
use url::Url;

/// How far an exchange has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Stage {
    Waiting,
    /// Its request has been handed to a connection.
    Sent,
    /// The server has begun to answer, and it is known which transport it speaks.
    Answered,
    Over,
}

/// Where messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wire {
    Undecided,
    Streamable,
    /// The older transport, and where its stream says that messages are to go.
    Old(Url),
}

/// A request without an answer.
struct Slot {
    exchange: u64,
    request: Request,
    is_modern: bool,
    /// The client does not wait for it any more.
    is_cancelled: bool,
    /// The bridge asked it by itself.
    own: Option<oneshot::Sender<Vec<u8>>>,
}

/// What is known of the server and the session.
pub(super) struct State {
    next: u64,
    slots: Vec<Slot>,
    exchanges: HashMap<u64, (Stage, Option<AbortHandle>)>,
    pub(super) wire: Wire,
    pub(super) session: Option<HeaderValue>,
    pub(super) version: Option<HeaderValue>,
    /// Counts the sessions.
    pub(super) generation: u64,
    pub(super) initialize: Option<Rc<Message>>,
    pub(super) initialized: Option<Rc<Message>>,
    /// Version, capabilities and name that the server gave in its answer to `initialize`.
    pub(super) greeting: Option<Value>,
    pub(super) params: Params,
    pub(super) passed: Passed,
    /// When the session was lost last.
    pub(super) lost: Option<Instant>,
    /// The stream of what the server says by itself.
    pub(super) listener: Option<AbortHandle>,
    pub(super) has_client_ended: bool,
}

/// One client and one server.
pub(super) struct Talk {
    pub(super) config: Config,
    pub(super) url: Url,
    pub(super) client: Rc<Client>,
    state: RefCell<State>,
    out: mpsc::Sender<Vec<u8>>,
    /// Held while a message leaves, and while a new session begins.
    pub(super) gate: Arc<Mutex<()>>,
    changed: Notify,
    pub(super) over: watch::Sender<Option<BridgeEnd>>,
}

impl Talk {
    pub(super) fn new(config: Config, client: Rc<Client>, out: mpsc::Sender<Vec<u8>>) -> Self {
        let state = State {
            next: 0,
            slots: Vec::new(),
            exchanges: HashMap::new(),
            wire: Wire::Undecided,
            session: None,
            version: None,
            generation: 0,
            initialize: None,
            initialized: None,
            greeting: None,
            params: Params::default(),
            passed: Passed::default(),
            lost: None,
            listener: None,
            has_client_ended: false,
        };
        Self {
            url: config.destination.url.clone(),
            config,
            client,
            state: RefCell::new(state),
            out,
            gate: Arc::default(),
            changed: Notify::new(),
            over: watch::channel(None).0,
        }
    }

    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Says something to people.
    pub(super) fn say(&self, text: &str) {
        tracing::info!("{text}");
        (self.config.notice)(text);
    }

    /// Has the bridge end.
    pub(super) fn end(&self, code: u8, why: &str) {
        self.over.send_if_modified(|over| {
            let is_first = over.is_none();
            if is_first {
                *over = Some(BridgeEnd { code, why: why.to_owned() });
            }
            is_first
        });
    }

    /// Something has changed that somebody may wait for.
    pub(super) fn stir(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until this is so.
    pub(super) async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(&self.state.borrow()) {
                return;
            }
            changed.await;
        }
    }

    /// A new exchange for this message.
    pub(super) fn begin(&self, message: &Message, own: Option<oneshot::Sender<Vec<u8>>>) -> u64 {
        let mut state = self.state();
        state.next += 1;
        let exchange = state.next;
        state.exchanges.insert(exchange, (Stage::Waiting, None));
        let mut own = own;
        for request in message.requests.iter().cloned() {
            let is_modern = message.is_modern();
            state.slots.push(Slot { exchange, request, is_modern, is_cancelled: false, own: own.take() });
        }
        exchange
    }

    pub(super) fn set_stage(&self, exchange: u64, stage: Stage) {
        if stage == Stage::Over {
            self.state().exchanges.remove(&exchange);
        } else if let Some((at, _)) = self.state().exchanges.get_mut(&exchange) {
            *at = stage;
        }
        self.stir();
    }

    pub(super) fn set_task(&self, exchange: u64, task: AbortHandle) {
        if let Some((_, slot)) = self.state().exchanges.get_mut(&exchange) {
            *slot = Some(task);
        }
    }

    /// The client does not want this answer any more. Whether that is all: to give up a request without a session is to
    /// stop listening to its answer.
    pub(super) fn cancel(&self, id: &str) -> bool {
        let mut state = self.state();
        let Some(slot) = state.slots.iter_mut().find(|s| s.request.id == id && s.own.is_none()) else { return false };
        slot.is_cancelled = true;
        let (exchange, is_modern) = (slot.exchange, slot.is_modern);
        if is_modern {
            state.slots.retain(|s| s.exchange != exchange);
            if let Some((_, Some(task))) = state.exchanges.remove(&exchange) {
                task.abort();
            }
        }
        drop(state);
        self.stir();
        is_modern
    }

    /// Passes on what the server said, if it is not the second answer to a request or one to none.
    pub(super) async fn deliver(&self, exchange: Option<u64>, message: &[u8]) {
        let Some(each) = answers::each(message) else {
            self.say("the server sent something that is no JSON; the client does not get it");
            return;
        };
        for line in each {
            // A request is taken out when there is room for its answer, so that none is lost if this is given up here.
            let Ok(room) = self.out.reserve().await else { return };
            if let Some(line) = self.settle(exchange, line) {
                room.send(line);
            }
            self.stir();
        }
    }

    /// Finds the request that a message of the server answers. What the client is told.
    fn settle(&self, exchange: Option<u64>, line: Vec<u8>) -> Option<Vec<u8>> {
        let said = answers::read(&line);
        let slot = match &said {
            None => return None,
            Some(Said::Other) => return Some(line),
            Some(Said::Nameless) => self.state().take_only(exchange),
            Some(Said::Answer { id, .. }) => self.state().take(exchange, id),
        };
        let Some(slot) = slot else {
            tracing::warn!("the server answered something that waits for no answer");
            // An error that names no request is one of the connection.
            return (said == Some(Said::Nameless)).then_some(line);
        };
        let line = match (said, answers::error_in(&line)) {
            (Some(Said::Nameless), Some(error)) => answers::with_error(&slot.request.id, &error),
            (Some(Said::Answer { result: Some(result), .. }), _) => {
                self.learn(&slot, &result);
                line
            }
            _ => line,
        };
        match slot.own {
            Some(own) => {
                let _ = own.send(line);
                None
            }
            None => Some(line),
        }
    }

    fn learn(&self, slot: &Slot, result: &str) {
        match slot.request.method.as_str() {
            "initialize" => {
                let Ok(result) = serde_json::from_str::<Value>(result) else { return };
                let mut state = self.state();
                let version = result.get("protocolVersion").and_then(Value::as_str);
                state.version = version.and_then(|version| HeaderValue::from_str(version).ok());
                let told = ["protocolVersion", "capabilities", "serverInfo"].map(|key| result.get(key).cloned());
                state.greeting = serde_json::to_value(told).ok();
            }
            "tools/list" => {
                if let Ok(result) = serde_json::from_str(result) {
                    self.state().params.learn(&result, slot.request.continues);
                }
            }
            _ => {}
        }
    }

    /// Answers what is still open of an exchange, or of all, with an error.
    pub(super) async fn fail(&self, which: impl Fn(u64, bool) -> bool, error: &dyn Fn(&str) -> Vec<u8>) {
        loop {
            let Ok(room) = self.out.reserve().await else { return };
            let mut state = self.state();
            let Some(at) = state.slots.iter().position(|s| which(s.exchange, s.is_modern)) else { return };
            let slot = state.slots.remove(at);
            drop(state);
            if slot.own.is_none() && !slot.is_cancelled {
                room.send(error(&slot.request.id));
            }
            self.stir();
        }
    }

    /// Gives up the exchanges with a session, but for this one, and answers their requests with this error.
    pub(super) async fn give_up_others(&self, but: Option<u64>, why: &str) {
        let others: Vec<u64> = {
            let state = self.state();
            let of_session = |s: &&Slot| !s.is_modern && Some(s.exchange) != but;
            state.slots.iter().filter(of_session).map(|s| s.exchange).collect()
        };
        for exchange in &others {
            if let Some((_, Some(task))) = self.state().exchanges.remove(exchange) {
                task.abort();
            }
        }
        self.fail(|exchange, _| others.contains(&exchange), &|id| answers::own_error(id, why, None)).await;
    }

    /// Nothing more will be written.
    pub(super) async fn close(&self) {
        let _ = self.out.send(Vec::new()).await;
    }
}

impl State {
    pub(super) fn stage(&self, exchange: u64) -> Stage {
        self.exchanges.get(&exchange).map_or(Stage::Over, |(stage, _)| *stage)
    }

    /// Whether a request of this exchange has no answer.
    pub(super) fn is_open(&self, exchange: u64) -> bool {
        self.slots.iter().any(|s| s.exchange == exchange)
    }

    /// Whether an answer may still come that the client waits for.
    pub(super) fn is_awaited(&self) -> bool {
        let waits = |s: &Slot| !s.is_cancelled && s.request.method != "subscriptions/listen";
        // What needs no answer has at least to leave.
        self.slots.iter().any(waits)
            || self.exchanges.iter().any(|(n, (at, _))| *at < Stage::Answered && !self.is_open(*n))
    }

    /// The session is no more.
    pub(super) fn forget_session(&mut self) {
        self.generation += 1;
        self.session = None;
        self.version = None;
        self.passed = Passed::default();
        if let Some(listener) = self.listener.take() {
            listener.abort();
        }
    }

    fn take(&mut self, exchange: Option<u64>, id: &str) -> Option<Slot> {
        let is_old = matches!(self.wire, Wire::Old(_));
        let named = |s: &Slot| s.request.id == id;
        let own = self.slots.iter().position(|s| named(s) && Some(s.exchange) == exchange);
        let other = || self.slots.iter().position(|s| named(s) && (!s.is_modern || is_old));
        own.or_else(other).map(|at| self.slots.remove(at))
    }

    fn take_only(&mut self, exchange: Option<u64>) -> Option<Slot> {
        let mut open = (0..self.slots.len()).filter(|at| Some(self.slots[*at].exchange) == exchange);
        match (open.next(), open.next()) {
            (Some(at), None) => Some(self.slots.remove(at)),
            _ => None,
        }
    }
}
