use super::*;
use crate::relay::log::{AnsweredBy, HttpVersion, Target};

struct World {
    map: SessionMap,
    changes: Vec<Change>,
    ns: u64,
    exchange: u64,
}

#[derive(Clone, Copy)]
struct Client {
    peer: &'static str,
    credential: Option<&'static str>,
    agent: &'static str,
}

const ANNA: Client = Client { peer: "loopback", credential: None, agent: "anna/1" };
const BERT: Client = Client { peer: "loopback", credential: Some("bb"), agent: "bert/1" };

fn head(method: &str, client: Client, session: Option<&str>) -> RequestHead {
    RequestHead {
        route: 0,
        connection: 1,
        method: method.into(),
        version: HttpVersion::H11,
        endpoint: true,
        target: Target { path: "/mcp".into(), query: Vec::new(), digest: "t0".into() },
        names: Vec::new(),
        values: vec![("user-agent".into(), client.agent.into())],
        session: session.map(Into::into),
        credential: client.credential.map(Into::into),
        peer: client.peer.into(),
    }
}

fn answer(status: u16, session: Option<&str>) -> ResponseHead {
    ResponseHead {
        answered_by: AnsweredBy::Upstream,
        status,
        version: HttpVersion::H11,
        names: Vec::new(),
        values: Vec::new(),
        session: session.map(Into::into),
        reused: false,
    }
}

impl World {
    fn new(limits: Limits) -> Self {
        Self { map: SessionMap::new(7, limits), changes: Vec::new(), ns: 1, exchange: 0 }
    }

    fn begin(&mut self, head: &RequestHead) -> u64 {
        self.exchange += 1;
        self.ns += 1_000_000;
        self.map.request(self.exchange, head, self.ns, &mut self.changes);
        self.exchange
    }

    fn first(&mut self, exchange: u64, what: &FirstMessage) {
        self.map.first(exchange, what, self.ns, &mut self.changes);
    }

    /// A whole exchange; the session that it is in.
    fn exchange(&mut self, head: &RequestHead, what: &FirstMessage, answer: &ResponseHead) -> SessionKey {
        let exchange = self.begin(head);
        self.first(exchange, what);
        self.map.response(exchange, answer, self.ns, &mut self.changes);
        let key = self.map.of(exchange).unwrap();
        self.over(exchange);
        key
    }

    fn over(&mut self, exchange: u64) {
        self.ns += 1_000_000;
        self.map.over(exchange, self.ns, &mut self.changes);
        self.map.tick(self.ns, &mut self.changes);
    }

    fn initialize(&mut self, client: Client, session: Option<&str>) -> SessionKey {
        self.exchange(&head("POST", client, None), &INITIALIZE, &answer(200, session))
    }

    fn call(&mut self, client: Client, session: Option<&str>) -> SessionKey {
        self.exchange(&head("POST", client, session), &CALL, &answer(200, None))
    }

    fn ends(&mut self) -> Vec<(SessionKey, EndReason)> {
        let ends = self.changes.iter().filter_map(|c| match c {
            Change::Ends(key, reason) => Some((*key, *reason)),
            _ => None,
        });
        ends.collect()
    }

    fn begun(&self) -> Vec<&NewSession> {
        let begun = self.changes.iter().filter_map(|c| match c {
            Change::Begins(new) => Some(&**new),
            _ => None,
        });
        begun.collect()
    }
}

const INITIALIZE: FirstMessage = FirstMessage { is_rpc: true, initialize: true, client_info: None };
const CALL: FirstMessage = FirstMessage { is_rpc: true, initialize: false, client_info: None };
const JUNK: FirstMessage = FirstMessage { is_rpc: false, initialize: false, client_info: None };

fn modern(info: &str) -> FirstMessage {
    FirstMessage { client_info: Some(info.into()), ..CALL }
}

#[test]
fn an_mcp_session_is_an_evidence_session() {
    let mut w = World::new(Limits::default());
    let one = w.initialize(ANNA, Some("s1"));
    let two = w.initialize(ANNA, Some("s2"));
    assert_ne!(one, two, "the same client began twice");
    assert_eq!(w.call(ANNA, Some("s1")), one);
    assert_eq!(w.call(ANNA, Some("s2")), two);
    assert_eq!(w.exchange(&head("GET", ANNA, Some("s1")), &JUNK, &answer(200, None)), one);
    assert!(w.map.is_resumable(one));
    assert_eq!(w.begun().len(), 2);
    assert!(w.begun().iter().all(|new| new.begun == Begun::FromTheStart));
}

#[test]
fn deleted_lost_and_unknown_sessions() {
    let mut w = World::new(Limits::default());
    let one = w.initialize(ANNA, Some("s1"));
    w.exchange(&head("DELETE", ANNA, Some("s1")), &JUNK, &answer(405, None));
    assert!(w.ends().is_empty(), "a server that does not allow it has not ended it");
    w.exchange(&head("DELETE", ANNA, Some("s1")), &JUNK, &answer(204, None));
    assert_eq!(w.ends(), [(one, EndReason::SessionDeleted)]);
    // What comes back continues it.
    let again = w.call(ANNA, Some("s1"));
    let new = (*w.begun().last().unwrap()).clone();
    assert_eq!((new.key, new.begun, new.continues), (again, Begun::JoinedMidway, Some(session_id(7, one))));
    w.exchange(&head("POST", ANNA, Some("s1")), &CALL, &answer(404, None));
    assert_eq!(w.ends().last(), Some(&(again, EndReason::SessionLost)));
    // A restarted server does not know it, and the client begins anew with the old id in its head.
    let (began, n) = (w.begun().len(), w.exchange);
    let fresh = w.exchange(&head("POST", ANNA, Some("s0")), &INITIALIZE, &answer(200, Some("s3")));
    assert_eq!((w.begun().len(), w.exchange), (began + 1, n + 1));
    assert_eq!(w.call(ANNA, Some("s3")), fresh);
}

#[test]
fn a_session_that_is_over_waits_for_its_streams_but_not_for_ever() {
    let mut w = World::new(Limits::default());
    let one = w.initialize(ANNA, Some("s1"));
    let stream = w.begin(&head("GET", ANNA, Some("s1")));
    w.exchange(&head("DELETE", ANNA, Some("s1")), &JUNK, &answer(200, None));
    assert!(w.ends().is_empty());
    w.over(stream);
    assert_eq!(w.ends(), [(one, EndReason::SessionDeleted)]);

    let mut w = World::new(Limits::default());
    let one = w.initialize(ANNA, Some("s1"));
    let stream = w.begin(&head("GET", ANNA, Some("s1")));
    w.exchange(&head("DELETE", ANNA, Some("s1")), &JUNK, &answer(200, None));
    w.ns += GRACE_NS + 1;
    w.map.tick(w.ns, &mut w.changes);
    assert_eq!(w.ends(), [(one, EndReason::SessionDeleted)]);
    assert_eq!(w.map.of(stream), None);
    // Its next message has a session again.
    w.first(stream, &CALL);
    assert!(w.map.of(stream).is_some_and(|key| key != one));
}

#[test]
fn clients_without_session_ids_are_told_by_what_they_say_of_themselves() {
    let mut w = World::new(Limits::default());
    let one = w.exchange(&head("POST", ANNA, None), &modern("{\"name\":\"a\"}"), &answer(200, None));
    let two = w.exchange(&head("POST", ANNA, None), &modern("{\"name\":\"b\"}"), &answer(200, None));
    let three = w.exchange(&head("POST", BERT, None), &modern("{\"name\":\"a\"}"), &answer(200, None));
    assert!(one != two && two != three && one != three);
    assert_eq!(w.exchange(&head("POST", ANNA, None), &modern("{\"name\":\"a\"}"), &answer(200, None)), one);
    assert!(!w.map.is_resumable(one));
    // A legacy server without sessions.
    let mut w = World::new(Limits::default());
    let one = w.initialize(ANNA, None);
    let bert = w.initialize(BERT, None);
    assert_eq!(w.call(ANNA, None), one);
    assert_eq!(w.call(BERT, None), bert);
    let two = w.initialize(ANNA, None);
    assert_ne!(one, two, "initialize begins one each time");
    assert_eq!(w.call(ANNA, None), two);
}

#[test]
fn a_login_does_not_make_two_sessions() {
    let mut w = World::new(Limits::default());
    let first = w.exchange(&head("POST", ANNA, None), &INITIALIZE, &answer(401, None));
    let second = w.exchange(&head("POST", ANNA, None), &INITIALIZE, &answer(200, Some("s1")));
    assert_eq!(first, second);
    assert_eq!(w.begun().len(), 1);
}

#[test]
fn two_clients_that_nothing_tells_apart_have_two_sessions_once_they_begin() {
    let mut w = World::new(Limits::default());
    // Both try the modern era first, and begin at the same time.
    for _ in 0..2 {
        w.exchange(&head("POST", ANNA, None), &CALL, &answer(400, None));
    }
    let both = [w.begin(&head("POST", ANNA, None)), w.begin(&head("POST", ANNA, None))];
    for exchange in both {
        w.first(exchange, &INITIALIZE);
    }
    for (exchange, session) in both.iter().zip(["s1", "s2"]) {
        w.map.response(*exchange, &answer(200, Some(session)), w.ns, &mut w.changes);
    }
    let keys = both.map(|exchange| w.map.of(exchange).unwrap());
    assert_ne!(keys[0], keys[1]);
    for exchange in both {
        w.over(exchange);
    }
    assert_eq!([w.call(ANNA, Some("s1")), w.call(ANNA, Some("s2"))], keys);
    // A third one, later: its first try is not of a session that has an id.
    let tried = w.exchange(&head("POST", ANNA, None), &CALL, &answer(400, None));
    assert!(!keys.contains(&tried));
    assert_eq!(w.initialize(ANNA, Some("s3")), tried);
}

#[test]
fn the_old_transport_is_bound_by_its_stream() {
    let mut w = World::new(Limits::default());
    let stream = w.begin(&head("GET", ANNA, None));
    w.map.response(stream, &answer(200, None), w.ns, &mut w.changes);
    w.map.endpoint(stream, "t1", w.ns, &mut w.changes);
    let key = w.map.of(stream).unwrap();
    let mut post = head("POST", BERT, None);
    post.endpoint = false;
    post.target.digest = "t1".into();
    assert_eq!(w.exchange(&post, &INITIALIZE, &answer(202, None)), key);
    assert_eq!(w.exchange(&post, &CALL, &answer(202, None)), key);
    assert!(w.map.is_resumable(key) && w.begun()[0].old_sse);
    w.over(stream);
    assert_eq!(w.ends(), [(key, EndReason::StreamClosed)]);
    assert_eq!(w.begun().len(), 1);
}

#[test]
fn what_is_no_mcp_is_in_the_base_session() {
    let mut w = World::new(Limits::default());
    let mut token = head("POST", ANNA, None);
    token.endpoint = false;
    let base = w.exchange(&token, &JUNK, &answer(200, None));
    assert_eq!(w.exchange(&head("POST", BERT, None), &JUNK, &answer(400, None)), base);
    assert_eq!(w.exchange(&head("GET", ANNA, None), &JUNK, &answer(405, None)), base);
    assert_eq!(w.begun().len(), 1);
    assert_eq!(w.begun()[0].begun, Begun::Base);
    w.ns += 2 * Limits::default().idle_ns;
    w.map.tick(w.ns, &mut w.changes);
    assert!(w.ends().is_empty(), "it ends with the process");
}

#[test]
fn idle_sessions_end_and_the_longest_idle_gives_way() {
    let mut w = World::new(Limits { sessions: 3, ..Limits::default() });
    let one = w.initialize(ANNA, Some("s1"));
    let two = w.initialize(ANNA, Some("s2"));
    let stream = w.begin(&head("GET", ANNA, Some("s1")));
    let three = w.initialize(ANNA, Some("s3"));
    let four = w.initialize(ANNA, Some("s4"));
    assert_eq!(w.ends(), [(two, EndReason::Evicted)], "the first has an open stream");
    w.ns += Limits::default().idle_ns + 1;
    w.map.tick(w.ns, &mut w.changes);
    assert_eq!(w.ends()[1..], [(three, EndReason::Idle), (four, EndReason::Idle)]);
    w.over(stream);
    assert_eq!(w.map.len(), 1);
    let back = w.call(ANNA, Some("s3"));
    assert_eq!(w.begun().last().unwrap().continues, Some(session_id(7, three)));
    assert!(back != three && w.call(ANNA, Some("s1")) == one);
}

#[test]
fn another_client_in_a_session_is_noticed_and_a_new_token_is_not() {
    let mut w = World::new(Limits::default());
    let one = w.initialize(BERT, Some("s1"));
    w.call(Client { credential: Some("cc"), ..BERT }, Some("s1"));
    let other = |w: &World| w.changes.iter().filter(|c| matches!(c, Change::OtherClient { .. })).count();
    assert_eq!(other(&w), 0);
    assert_eq!(w.call(ANNA, Some("s1")), one);
    assert_eq!(other(&w), 1);
}

#[test]
fn the_same_log_gives_the_same_sessions_also_from_a_copy() {
    let run = |copy: bool| {
        let mut w = World::new(Limits::default());
        w.initialize(ANNA, Some("s1"));
        let stream = w.begin(&head("GET", ANNA, Some("s1")));
        if copy {
            let bytes = postcard::to_allocvec(&w.map).unwrap();
            w.map = postcard::from_bytes(&bytes).unwrap();
        }
        w.call(BERT, None);
        w.call(ANNA, Some("s1"));
        w.over(stream);
        w.begun().iter().map(|new| new.id).collect::<Vec<_>>()
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn what_comes_back_continues_the_last_pack_of_what_had_ended() {
    let mut w = World::new(Limits { sessions: 1, ..Limits::default() });
    let one = w.initialize(ANNA, Some("s1"));
    w.initialize(BERT, Some("s2"));
    let last = SessionId::from_bits(99);
    w.map.ended_as(one, last);
    w.call(ANNA, Some("s1"));
    assert_eq!(w.begun().last().unwrap().continues, Some(last));
}
