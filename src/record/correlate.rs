//! Which response belongs to which request, and which leg to which call.
//!
//! Requests are keyed by scope, direction and id, the id by JSON type and value. An id that is reused while in flight
//! never overwrites: both requests stay, the older one is answered first unless its client cancelled it.

use super::{
    chain::Wire,
    envelope::IdKey,
    stream::{MessagePlace, Scope},
};
use crate::model::{
    CallAnomaly, Direction, InvocationId, OutcomeReason, PolicyReason, PolicyVerdict, ReceiptId, RpcId, WallTime, Word,
    limits, surface::Stands,
};
use serde_json::value::RawValue;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// A request that waits for its response, or a response that waits to be delivered.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Id of the request that it belongs to.
    pub invocation: InvocationId,
    /// The stream and the offset of its first byte.
    pub place: MessagePlace,
    /// Its key; `None` for a call sent as a notification.
    pub key: Option<IdKey>,
    /// Its method, as evidence holds it.
    pub method: String,
    /// Whether it is in the chain.
    pub recorded: bool,
    /// It names its protocol version itself: nothing of it comes outside of its exchange.
    pub modern: bool,
    /// Its exchange is over.
    pub over: bool,
    /// Why it has no answer, if none comes any more: its exchange ended so.
    pub cut: Option<OutcomeReason>,
    /// Its id, as evidence holds it.
    pub rpc_id: RpcId,
    /// Its bytes; `None` where not recorded.
    pub wire: Option<Wire>,
    /// When its last byte was read, monotonic ns.
    pub read_ns: u64,
    /// When its last byte was written, monotonic ns.
    pub forwarded_ns: Option<u64>,
    /// The requester cancelled it.
    pub cancelled: bool,
    /// What a receipt needs, if it is a tool call or a leg of one.
    pub call: Option<Call>,
    /// What the policy said of it.
    pub decision: Option<Box<RequestDecision>>,
    /// The response, once it was read.
    pub response: Option<Box<Response>>,
    /// The part of the server's surface that the answer will be.
    pub surface: Option<super::surface::Part>,
}

/// The decision on a request, and when it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestDecision {
    /// What the policy says about the call.
    pub verdict: PolicyVerdict,
    /// Its short machine-readable code.
    pub reason: Word<PolicyReason>,
    /// The rule that matched.
    pub rule: Option<String>,
    /// What could not be seen at the time.
    pub unseen: Vec<Word<CallAnomaly>>,
    /// `sha256:` of the policy.
    pub policy_hash: Option<String>,
    /// When it was made, monotonic ns.
    pub at_ns: u64,
    /// The same on the wall clock, as its event has it.
    pub at: WallTime,
    /// The message was held for it.
    pub enforced: bool,
    /// The message was not passed on.
    pub blocked: bool,
}

/// What a receipt says of a request.
#[derive(Debug, Clone)]
pub struct Call {
    /// Name of the tool.
    pub tool_name: String,
    /// `sha256:` or `sha256-raw:` and 64 hex digits.
    pub arguments_hash: String,
    /// Canonical, where a pack can hold it.
    pub arguments_content: Option<Box<RawValue>>,
    /// Each argument, in cleartext or as its hash.
    pub arguments_redacted: Option<Box<RawValue>>,
    /// Anomalies of the request, as machine-readable codes.
    pub anomalies: BTreeSet<Word<CallAnomaly>>,
    /// Kept members of `_meta`.
    pub meta: Option<Box<RawValue>>,
    /// Receipt of the leg before.
    pub parent: Option<ReceiptId>,
    /// Wall clock when the request's last byte was read.
    pub at: WallTime,
    /// A `tasks/get` or `tasks/result` of a task that a tool call started: only a final result makes a receipt.
    pub task_leg: bool,
    /// How its definition stood when it was read; `None` in a session that is compared with no decisions.
    pub surface: Option<Stands>,
}

/// What a receipt says of a response.
#[derive(Debug, Clone)]
pub struct Response {
    /// Wall clock when its last byte was read.
    pub at: WallTime,
    /// When its first byte was read, monotonic ns.
    pub first_byte_ns: u64,
    /// When its last byte was read, monotonic ns.
    pub read_ns: u64,
    /// When its last byte was written, monotonic ns.
    pub delivered_ns: Option<u64>,
    /// Length and SHA-256 of the message.
    pub wire: Wire,
    /// The stream and the offset of its first byte.
    pub place: MessagePlace,
    /// Hash of the result or error body.
    pub result_hash: Option<String>,
    /// Canonical, where a pack can hold it.
    pub result_content: Option<Box<RawValue>>,
    /// `isError`, or a JSON-RPC error.
    pub is_error: Option<bool>,
    /// `complete`, `input_required`, `task`, …
    pub result_type: Option<String>,
    /// Whether this leg's result is final for a task.
    pub is_final: bool,
    /// Machine-readable codes that the response adds.
    pub anomalies: BTreeSet<Word<CallAnomaly>>,
}

/// What links a following leg to this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextLeg {
    /// SHA-256 of the exact `requestState`.
    pub request_state: Option<String>,
    /// Sorted keys of `inputRequests`.
    pub input_keys: Option<Vec<String>>,
    /// Task id of a handle.
    pub task_id: Option<String>,
}

impl NextLeg {
    /// Memory whose amount a peer controls, in bytes.
    fn size(&self) -> usize {
        let keys = self.input_keys.iter().flatten().map(|key| key.len() + size_of::<String>());
        keys.sum::<usize>() + self.task_id.as_ref().map_or(0, String::len)
    }
}

/// Whose requests: where their ids are unique, and which way they go.
pub type Asked = (Scope, Direction);

impl Pending {
    const fn asked(&self) -> Asked {
        let direction = self.place.direction();
        (self.place.stream.scope(direction), direction)
    }

    /// Bytes of its request that are kept, beside the fixed part.
    fn size(&self) -> usize {
        let raw = |value: &Option<Box<RawValue>>| value.as_ref().map_or(0, |v| v.get().len());
        let call = self.call.as_ref().map_or(0, |c| {
            let anomalies = c.anomalies.iter().map(|a| a.len() + size_of::<Word<CallAnomaly>>()).sum::<usize>();
            c.tool_name.len() + raw(&c.arguments_content) + raw(&c.arguments_redacted) + raw(&c.meta) + anomalies
        });
        let id = match &self.rpc_id {
            RpcId::Text(text) => text.len(),
            _ => 0,
        };
        // Small, because the key is in two tables; the decision is added later.
        self.method.len() + 3 * id + call
    }
}

/// How many open legs and finished ids are remembered.
const REMEMBERED: usize = 4096;
/// Bytes that the open legs may take.
const LEG_BYTES: usize = 4 << 20;

/// A call that continues in another request.
#[derive(Debug, Clone)]
struct OpenLeg {
    receipt: ReceiptId,
    tool_name: String,
    arguments_hash: String,
    next: NextLeg,
}

/// The requests in flight, and what is kept of those that finished.
#[derive(Debug, Default)]
pub struct Table {
    /// Boxed, because a table that has grown is half empty.
    pending: HashMap<InvocationId, Box<Pending>>,
    /// Bytes that the requests in flight take in addition to their fixed parts.
    bytes: usize,
    by_key: HashMap<(Asked, IdKey), VecDeque<InvocationId>>,
    /// The requests of each exchange.
    by_exchange: HashMap<u64, Vec<InvocationId>>,
    /// Those among them that wait for an answer, by id alone.
    by_id: HashMap<IdKey, VecDeque<InvocationId>>,
    legs: VecDeque<OpenLeg>,
    leg_bytes: usize,
    finished: VecDeque<(Asked, IdKey)>,
    finished_set: HashSet<(Asked, IdKey)>,
}

/// Which of the requests with one id is answered first.
fn first_to_answer(pending: &HashMap<InvocationId, Box<Pending>>, queue: &VecDeque<InvocationId>) -> usize {
    queue.iter().position(|i| pending.get(i).is_some_and(|p| !p.cancelled)).unwrap_or(0)
}

impl Table {
    /// Whether a request with this key is in flight.
    #[must_use]
    pub fn in_flight(&self, asked: Asked, key: &IdKey) -> bool {
        self.by_key.get(&(asked, key.clone())).is_some_and(|q| !q.is_empty())
    }

    /// Whether one more request can be followed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.pending.len() < limits::FOLLOWED && self.bytes < limits::FOLLOWED_BYTES
    }

    /// Adds a request that is now in flight.
    pub fn insert(&mut self, pending: Pending) {
        self.bytes += pending.size();
        if let Some(key) = &pending.key {
            self.by_key.entry((pending.asked(), key.clone())).or_default().push_back(pending.invocation);
        }
        if let (Scope::Exchange(exchange), _) = pending.asked() {
            self.by_exchange.entry(exchange).or_default().push(pending.invocation);
            if let Some(key) = &pending.key {
                self.by_id.entry(key.clone()).or_default().push_back(pending.invocation);
            }
        }
        self.pending.insert(pending.invocation, Box::new(pending));
    }

    /// A request by its invocation.
    #[must_use]
    pub fn get(&self, invocation: InvocationId) -> Option<&Pending> {
        self.pending.get(&invocation).map(Box::as_ref)
    }

    /// A request by its invocation.
    pub fn get_mut(&mut self, invocation: InvocationId) -> Option<&mut Pending> {
        self.pending.get_mut(&invocation).map(Box::as_mut)
    }

    /// The request that a response with this key answers, `asked` being the request's: the oldest that is not
    /// cancelled, else the oldest. It no longer answers to its id afterwards.
    pub fn answer(&mut self, asked: Asked, key: &IdKey) -> Option<InvocationId> {
        let entry = (asked, key.clone());
        let queue = self.by_key.get_mut(&entry)?;
        let invocation = queue.remove(first_to_answer(&self.pending, queue));
        if queue.is_empty() {
            self.by_key.remove(&entry);
        }
        if let Some(invocation) = invocation {
            self.waits_no_longer(invocation);
        }
        self.finish(entry);
        invocation
    }

    /// Remembers that an id had its response.
    fn finish(&mut self, entry: (Asked, IdKey)) {
        if self.finished_set.insert(entry.clone()) {
            self.finished.push_back(entry);
            if self.finished.len() > REMEMBERED
                && let Some(old) = self.finished.pop_front()
            {
                self.finished_set.remove(&old);
            }
        }
    }

    /// A request of an exchange is not found by its id alone any more.
    fn waits_no_longer(&mut self, invocation: InvocationId) {
        let Some(pending) = self.pending.get(&invocation) else { return };
        let (Some(key), (Scope::Exchange(_), _)) = (&pending.key, pending.asked()) else { return };
        if let Some(queue) = self.by_id.get_mut(key) {
            queue.retain(|i| *i != invocation);
            if queue.is_empty() {
                self.by_id.remove(key);
            }
        }
    }

    /// The requests of an exchange, in their order.
    #[must_use]
    pub fn of_exchange(&self, exchange: u64) -> Vec<InvocationId> {
        self.by_exchange.get(&exchange).cloned().unwrap_or_default()
    }

    /// The only request of an exchange that waits for an answer; `None` where there are several.
    #[must_use]
    pub fn only_one_of(&self, exchange: u64) -> Option<InvocationId> {
        let waits = |i: &&InvocationId| self.get(**i).is_some_and(|p| p.key.is_some() && p.response.is_none());
        let mut open = self.by_exchange.get(&exchange)?.iter().filter(waits);
        open.next().copied().filter(|_| open.next().is_none())
    }

    /// The request of another exchange that a response with this id answers: the oldest that waits and whose exchange
    /// is over, one that is not cancelled first; `open`: also one whose exchange is not over.
    #[must_use]
    pub fn elsewhere(&self, key: &IdKey, open: bool) -> Option<InvocationId> {
        let queue = self.by_id.get(key)?;
        let waits = |i: &&InvocationId| self.get(**i).is_some_and(|p| p.over || open);
        let first = queue.iter().filter(waits).find(|i| self.get(**i).is_some_and(|p| !p.cancelled));
        first.or_else(|| queue.iter().find(waits)).copied()
    }

    /// The request with this id whose response was read, and has not reached its receiver.
    #[must_use]
    pub fn undelivered(&self, key: &IdKey) -> Option<InvocationId> {
        let waits = |p: &&Pending| {
            p.place.direction() == Direction::ClientToServer
                && p.key.as_ref() == Some(key)
                && p.response.as_ref().is_some_and(|r| r.delivered_ns.is_none())
        };
        self.pending.values().map(Box::as_ref).filter(waits).min_by_key(|p| p.read_ns).map(|p| p.invocation)
    }

    /// Marks the newest request of any exchange with this id as cancelled by its requester.
    pub fn cancel_elsewhere(&mut self, key: &IdKey) -> Option<InvocationId> {
        let invocation = *self.by_id.get(key)?.back()?;
        self.pending.get_mut(&invocation)?.cancelled = true;
        Some(invocation)
    }

    /// The request that [`Table::answer`] would give.
    #[must_use]
    pub fn next_to_answer(&self, asked: Asked, key: &IdKey) -> Option<&Pending> {
        let queue = self.by_key.get(&(asked, key.clone()))?;
        self.get(*queue.get(first_to_answer(&self.pending, queue))?)
    }

    /// The request no longer answers to its id: its response is known. `by`: where that came, if that is elsewhere.
    pub fn answered(&mut self, invocation: InvocationId, by: Option<Asked>) {
        self.waits_no_longer(invocation);
        let Some(key) = self.pending.get(&invocation).and_then(|p| Some((p.asked(), p.key.clone()?))) else { return };
        if let Some(asked) = by {
            self.finish(key.clone());
            self.finish((asked, key.1.clone()));
        }
        if let Some(queue) = self.by_key.get_mut(&key) {
            queue.retain(|i| *i != invocation);
            if queue.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// Whether a request with this key was answered not long ago.
    #[must_use]
    pub fn was_answered(&self, asked: Asked, key: &IdKey) -> bool {
        self.finished_set.contains(&(asked, key.clone()))
    }

    /// Marks the newest request with this key as cancelled by its requester.
    pub fn cancel(&mut self, asked: Asked, key: &IdKey) -> Option<InvocationId> {
        let invocation = *self.by_key.get(&(asked, key.clone()))?.back()?;
        self.pending.get_mut(&invocation)?.cancelled = true;
        Some(invocation)
    }

    /// Takes a request out.
    pub fn remove(&mut self, invocation: InvocationId) -> Option<Pending> {
        self.waits_no_longer(invocation);
        let pending = self.pending.remove(&invocation)?;
        self.bytes = self.bytes.saturating_sub(pending.size());
        if let (Scope::Exchange(exchange), _) = pending.asked()
            && let Some(requests) = self.by_exchange.get_mut(&exchange)
        {
            requests.retain(|i| *i != invocation);
            if requests.is_empty() {
                self.by_exchange.remove(&exchange);
            }
        }
        if let Some(key) = &pending.key {
            let entry = (pending.asked(), key.clone());
            if let Some(queue) = self.by_key.get_mut(&entry) {
                // Nearly always the oldest one.
                if queue.front() == Some(&invocation) {
                    queue.pop_front();
                } else {
                    queue.retain(|i| *i != invocation);
                }
                if queue.is_empty() {
                    self.by_key.remove(&entry);
                }
            }
        }
        Some(*pending)
    }

    /// Everything in flight, in the order of its requests.
    #[must_use]
    pub fn in_order(&self) -> Vec<InvocationId> {
        let mut all: Vec<_> = self.pending.values().map(|p| (p.read_ns, p.place.offset, p.invocation)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, _, i)| i).collect()
    }

    /// Number of the client's requests that wait for an answer, or whose answer waits to be taken.
    #[must_use]
    pub fn asked(&self) -> usize {
        let waits = |p: &&Pending| p.place.direction() == Direction::ClientToServer && p.key.is_some() && !p.cancelled;
        self.pending.values().map(Box::as_ref).filter(waits).count()
    }

    /// Remembers that `receipt` has a following leg.
    pub fn open_leg(&mut self, receipt: ReceiptId, tool_name: &str, arguments_hash: &str, next: NextLeg) {
        if next == NextLeg::default() {
            return;
        }
        let more = next.size();
        while self.legs.len() >= REMEMBERED || self.leg_bytes + more > LEG_BYTES {
            let Some(old) = self.legs.pop_front() else { return };
            self.leg_bytes = self.leg_bytes.saturating_sub(old.next.size());
        }
        self.leg_bytes += more;
        let (tool_name, arguments_hash) = (tool_name.to_owned(), arguments_hash.to_owned());
        self.legs.push_back(OpenLeg { receipt, tool_name, arguments_hash, next });
    }

    /// The leg before a request that carries input responses: by exact state, else by name, arguments and keys.
    #[must_use]
    pub fn leg_before(&self, state: Option<&str>, tool: &str, arguments: &str, keys: &[String]) -> Option<ReceiptId> {
        let newest = || self.legs.iter().rev();
        let by_state = state.and_then(|s| newest().find(|l| l.next.request_state.as_deref() == Some(s)));
        let same = |l: &&OpenLeg| {
            l.tool_name == tool && l.arguments_hash == arguments && l.next.input_keys.as_deref() == Some(keys)
        };
        by_state.or_else(|| newest().find(same)).map(|l| l.receipt)
    }

    /// Receipt and tool name of the call that started a task.
    #[must_use]
    pub fn task(&self, task_id: &str) -> Option<(ReceiptId, String)> {
        let leg = self.legs.iter().rev().find(|l| l.next.task_id.as_deref() == Some(task_id))?;
        Some((leg.receipt, leg.tool_name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(bits: u64, id: &str) -> Pending {
        Pending {
            invocation: InvocationId::from_bits(bits),
            place: MessagePlace::stdio(Direction::ClientToServer, bits),
            key: Some(IdKey::of(id.as_bytes())),
            method: "tools/call".into(),
            recorded: true,
            modern: false,
            over: false,
            cut: None,
            rpc_id: RpcId::Null,
            wire: None,
            read_ns: bits,
            forwarded_ns: None,
            cancelled: false,
            call: None,
            decision: None,
            response: None,
            surface: None,
        }
    }

    #[test]
    fn an_id_in_use_never_overwrites_and_the_cancelled_one_waits() {
        let (c2s, one) = ((Scope::Session, Direction::ClientToServer), IdKey::of(b"1"));
        let mut t = Table::default();
        t.insert(pending(1, "1"));
        assert!(t.in_flight(c2s, &one));
        assert!(!t.in_flight((Scope::Session, Direction::ServerToClient), &one));
        assert!(!t.in_flight(c2s, &IdKey::of(b"\"1\"")));
        assert_eq!(t.cancel(c2s, &one), Some(InvocationId::from_bits(1)));
        t.insert(pending(2, "1"));
        t.insert(pending(3, "1"));
        assert_eq!(t.answer(c2s, &one), Some(InvocationId::from_bits(2)));
        assert_eq!(t.answer(c2s, &one), Some(InvocationId::from_bits(3)));
        assert_eq!(t.answer(c2s, &one), Some(InvocationId::from_bits(1)));
        assert_eq!(t.answer(c2s, &one), None);
        assert!(t.was_answered(c2s, &one));
        assert_eq!(t.in_order().len(), 3);
    }

    #[test]
    fn legs_link_by_state_else_by_name_arguments_and_keys() {
        let mut t = Table::default();
        let (a, b) = (ReceiptId::from_bits(1), ReceiptId::from_bits(2));
        let keys = vec!["k".to_owned()];
        t.open_leg(
            a,
            "ask",
            "sha256:1",
            NextLeg { request_state: Some("s".into()), input_keys: Some(keys.clone()), task_id: None },
        );
        t.open_leg(
            b,
            "ask",
            "sha256:2",
            NextLeg { request_state: None, input_keys: Some(keys.clone()), task_id: None },
        );
        assert_eq!(t.leg_before(Some("s"), "ask", "sha256:9", &[]), Some(a));
        assert_eq!(t.leg_before(None, "ask", "sha256:2", &keys), Some(b));
        assert_eq!(t.leg_before(None, "ask", "sha256:2", &[]), None);
        t.open_leg(b, "slow", "x", NextLeg { task_id: Some("t1".into()), ..NextLeg::default() });
        assert_eq!(t.task("t1"), Some((b, "slow".into())));
    }
}
