//! The surface of a server as it is observed (docs/formats.md, "Surface").
//!
//! It is whatever the client asked for: the recorder asks nothing itself. Pages are put together by the cursors that
//! clients ask with ([`crate::surface::listing`]), whatever transport they crossed.

use super::envelope::{Envelope, Fields};
use crate::{
    canon::{self, Kind},
    model::{
        InvocationId,
        session::Identity as Peers,
        surface::{Announced, Context, Facet, Identity, List, Reason, Snapshot, Value},
    },
    surface::{
        listing::{Cursor, Limits, Listings, Outcome},
        rules::Rules,
    },
};

/// What part of the surface the answer to a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What the server says of itself: `initialize`, `server/discover`.
    Server,
    /// A page of a list.
    List(Facet),
}

impl Part {
    /// The part that a method's result is, if any.
    #[must_use]
    pub fn of(method: &str) -> Option<Self> {
        match method {
            "initialize" | "server/discover" => Some(Self::Server),
            list => Facet::listed_by(list).map(Self::List),
        }
    }
}

/// Members of a modern request's `_meta` that say who asks (MCP 2026-07-28).
const MODERN: [&str; 2] = ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"];

/// What one answer announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Which part.
    pub facet: Facet,
    /// The definitions in it; of a list that was read to its end, all.
    pub items: Vec<Announced>,
    /// Whether the part was read to its end.
    pub whole: bool,
}

/// What was observed so far.
#[derive(Debug)]
pub struct Observer {
    seen: Snapshot,
    /// Who asks without saying so, as its `initialize` says.
    legacy: Context,
    listings: Listings<InvocationId>,
    dirty: bool,
    heard: Vec<Heard>,
}

impl Observer {
    /// Nothing observed yet of the server of this identity; hashes are made by these rules.
    #[must_use]
    pub fn new(identity: Identity, rules: &Rules) -> Self {
        let seen = Snapshot { identity, left_out: rules.left_out(), rules_hash: rules.hash(), ..Snapshot::default() };
        let listings = Listings::new(Limits::DEFAULT, rules.ignored());
        Self { seen, legacy: Context::default(), listings, dirty: false, heard: Vec::new() }
    }

    /// The client asks for a part; `params` is the raw JSON of its parameters.
    pub fn asked(&mut self, invocation: InvocationId, part: Part, params: Option<&[u8]>) {
        let [meta, cursor, version, capabilities] =
            members(params, ["_meta", "cursor", "protocolVersion", "capabilities"]);
        let [modern, of_client] = members(meta, MODERN);
        let text = |raw: Option<&[u8]>| raw.and_then(canon::decode_string).map(|t| super::envelope::short(&t));
        let digest = |raw: Option<&[u8]>| raw.and_then(|raw| canon::digest(raw, None).ok()).map(|d| d.to_string());
        let context = match modern {
            Some(_) => Context {
                auth: self.legacy.auth.clone(),
                client_capabilities: digest(of_client),
                era: Some("modern".to_owned()),
                protocol_version: text(modern),
            },
            None if part == Part::Server => Context {
                auth: self.legacy.auth.clone(),
                client_capabilities: digest(capabilities),
                era: Some("legacy".to_owned()),
                protocol_version: text(version),
            },
            None => self.legacy.clone(),
        };
        if part == Part::Server && modern.is_none() {
            self.legacy = context.clone();
        }
        let Part::List(facet) = part else { return };
        self.of(&context);
        let decoded = cursor.map(|raw| (canon::kind(raw), canon::decode_string(raw)));
        let cursor = match &decoded {
            None | Some((Some(Kind::Null), _)) => Cursor::First,
            Some((_, Some(text))) => Cursor::After(text),
            Some(_) => Cursor::Bad,
        };
        if let Some((facet, context, outcome)) = self.listings.asked(invocation, facet, cursor, &context) {
            // Nothing is announced by a question.
            self.take(facet, &context, outcome);
        }
    }

    /// What was seen in another context is no part of this one.
    fn of(&mut self, context: &Context) {
        if self.seen.context != *context {
            self.seen.context = context.clone();
            self.seen.surface.lists.clear();
        }
    }

    /// The answer to a request for a part.
    pub fn answered(&mut self, invocation: InvocationId, part: Part, e: &Envelope<'_>) {
        let result = e.result.clone().map(|range| &e.bytes[range]);
        let outcomes = match (part, result) {
            (Part::Server, Some(result)) => return self.server(result),
            (Part::Server, None) => return,
            (Part::List(_), Some(result)) => self.listings.answered(&invocation, result),
            (Part::List(facet), None) => {
                let error = e.error.clone().map(|range| &e.bytes[range]);
                let [code] = members(error, ["code"]);
                let code = code.and_then(crate::model::exact_integer).unwrap_or_default();
                self.listings.failed(&invocation, code, self.offers(facet) == Some(true)).into_iter().collect()
            }
        };
        for (facet, context, outcome) in outcomes {
            self.hear(facet, &outcome);
            self.take(facet, &context, outcome);
        }
    }

    fn hear(&mut self, facet: Facet, outcome: &Outcome) {
        let (items, whole) = match outcome {
            Outcome::Complete(items) => (items.as_slice(), true),
            Outcome::NotOffered => (&[][..], true),
            // What a client stopped asking for was announced before.
            Outcome::Incomplete(_, Reason::Abandoned) => return,
            Outcome::Page(items) | Outcome::Incomplete(items, _) => (items.as_slice(), false),
        };
        let items = Announced::of(List::complete(items.to_vec()).items());
        self.heard.push(Heard { facet, items, whole });
    }

    /// Who asked last.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.seen.context
    }

    /// What was announced since this was asked last.
    pub fn take_heard(&mut self) -> Vec<Heard> {
        std::mem::take(&mut self.heard)
    }

    /// The server says that a list has changed.
    pub fn notified(&mut self, method: &str) {
        for facet in Facet::made_stale_by(method) {
            self.listings.changed(*facet);
        }
    }

    fn server(&mut self, result: &[u8]) {
        if result.len() > Limits::DEFAULT.bytes {
            return;
        }
        let [capabilities, instructions, version] =
            members(Some(result), ["capabilities", "instructions", "protocolVersion"]);
        if let Some(version) = version.and_then(canon::decode_string)
            && self.legacy.era.is_some()
        {
            self.legacy.protocol_version = Some(super::envelope::short(&version));
            let context = self.legacy.clone();
            self.of(&context);
        }
        let value =
            |raw: Option<&[u8]>| raw.filter(|r| canon::kind(r) != Some(Kind::Null)).and_then(|r| Value::of(r).ok());
        let (capabilities, instructions) = (value(capabilities), value(instructions));
        for (facet, value) in [(Facet::Capabilities, &capabilities), (Facet::Instructions, &instructions)] {
            let announced = value.iter().map(|v| Announced {
                name: String::new(),
                hash: v.hash.to_string(),
                ambiguous: v.ambiguity.is_some(),
            });
            self.heard.push(Heard { facet, items: announced.collect(), whole: true });
        }
        let surface = &mut self.seen.surface;
        let known = surface.capabilities.is_some();
        let same = surface.capabilities == capabilities && surface.instructions == instructions;
        (surface.capabilities, surface.instructions) = (capabilities, instructions);
        self.seen.changes += u64::from(known && !same);
        self.dirty |= !same;
    }

    /// Whether the server said that it has a list; `None` if it did not say what it has.
    fn offers(&self, facet: Facet) -> Option<bool> {
        let capability = match facet {
            Facet::ResourceTemplates => Facet::Resources.word(),
            other => other.word(),
        };
        let capabilities = self.seen.surface.capabilities.as_ref()?;
        Some(members(Some(&capabilities.content), [capability])[0].is_some())
    }

    fn take(&mut self, facet: Facet, context: &Context, outcome: Outcome) {
        if *context != self.seen.context {
            return;
        }
        let old = self.seen.surface.list(facet);
        let new = match outcome {
            Outcome::Complete(items) => List::complete(items),
            Outcome::NotOffered => List::NotOffered,
            // That a client stopped asking says nothing of the list that was read before.
            Outcome::Page(_) | Outcome::Incomplete(_, Reason::Abandoned) if matches!(old, List::Complete(_)) => return,
            Outcome::Page(items) => {
                let known = matches!(old, List::Incomplete(_, Reason::Abandoned)).then(|| old.items().to_vec());
                List::incomplete([known.unwrap_or_default(), items].concat(), Reason::Abandoned)
            }
            Outcome::Incomplete(items, reason) => List::incomplete(items, reason),
        };
        if *old != new {
            self.seen.changes += u64::from(matches!((old, &new), (List::Complete(_), List::Complete(_))));
            self.seen.surface.lists.insert(facet, new);
            self.dirty = true;
        }
    }

    /// Whether anything is new since the last call.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// What was observed; `None` if that is nothing.
    #[must_use]
    pub fn snapshot(&self, peers: &Peers) -> Option<Snapshot> {
        let surface = &self.seen.surface;
        if surface.capabilities.is_none() && surface.lists.is_empty() {
            return None;
        }
        let mut seen = self.seen.clone();
        for facet in Facet::LISTS {
            if self.offers(facet) == Some(false) && *seen.surface.list(facet) == List::Unknown {
                seen.surface.lists.insert(facet, List::NotOffered);
            }
        }
        seen.server_info.clone_from(&peers.server);
        seen.protocol_version.clone_from(&peers.protocol);
        Some(seen)
    }

    /// `surface.json`; `None` if nothing was observed.
    #[must_use]
    pub fn document(&self, peers: &Peers) -> Option<Vec<u8>> {
        self.snapshot(peers)?.document().ok()
    }

    /// Goes on from what was observed before.
    pub fn restore(&mut self, seen: Snapshot) {
        self.legacy = seen.context.clone();
        self.seen = seen;
    }
}

/// The raw values of members of what may be an object; of duplicates the last counts.
fn members<'a, const N: usize>(raw: Option<&'a [u8]>, names: [&str; N]) -> [Option<&'a [u8]>; N] {
    let fields = raw.and_then(|raw| Fields::of(raw, names).ok());
    std::array::from_fn(|n| fields.as_ref().and_then(|f| f.get(n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::surface::Facet as F, record::envelope};

    struct Client(Observer, u64);

    impl Client {
        fn new() -> Self {
            Self(Observer::new(Identity { endpoint: "sha256:e".into(), id: "s".into() }, &Rules::default()), 0)
        }

        fn begin(&mut self, method: &str, params: &str) -> (InvocationId, Part) {
            self.1 += 1;
            let (id, part) = (InvocationId::from_bits(self.1), Part::of(method).unwrap());
            self.0.asked(id, part, Some(params.as_bytes()));
            (id, part)
        }

        fn end(&mut self, (id, part): (InvocationId, Part), answer: &str) {
            let json = format!(r#"{{"jsonrpc":"2.0","id":1,{answer}}}"#);
            self.0.answered(id, part, &envelope::parse(json.as_bytes(), None).unwrap());
        }

        fn ask(&mut self, method: &str, params: &str, answer: &str) {
            let asked = self.begin(method, params);
            self.end(asked, answer);
        }

        fn initialize(&mut self, capabilities: &str, instructions: &str) {
            self.ask(
                "initialize",
                r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#,
                &format!(r#""result":{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"instructions":"{instructions}"}}"#),
            );
        }

        fn tools(&mut self, tools: &str) {
            self.ask("tools/list", "{}", &format!(r#""result":{{"tools":[{tools}]}}"#));
        }

        fn seen(&self) -> Snapshot {
            self.0.snapshot(&Peers::default()).unwrap()
        }

        fn names(&self) -> Vec<String> {
            self.seen().surface.list(F::Tools).items().iter().map(|i| i.name.clone()).collect()
        }
    }

    #[test]
    fn what_the_capabilities_do_not_name_is_not_offered_and_a_client_need_not_ask() {
        let mut c = Client::new();
        assert!(c.0.snapshot(&Peers::default()).is_none());
        c.initialize(r#"{"tools":{}}"#, "i");
        assert!(c.seen().root().is_err(), "tools were not listed yet");
        c.tools(r#"{"name":"t"}"#);
        let root = c.seen().root().unwrap();
        c.tools(r#"{"name":"t"}"#);
        assert_eq!((c.seen().root().unwrap(), c.seen().changes), (root, 0));
        c.initialize(r#"{"tools":{}}"#, "other");
        assert_eq!(c.seen().changes, 1);
        assert_ne!(c.seen().root().unwrap(), root);
    }

    #[test]
    fn pages_of_two_listings_at_once_do_not_mix_and_half_a_list_is_none() {
        let mut c = Client::new();
        let (one, two) = (c.begin("tools/list", "{}"), c.begin("tools/list", "{}"));
        c.end(one, r#""result":{"tools":[{"name":"a"}],"nextCursor":"x"}"#);
        c.end(two, r#""result":{"tools":[{"name":"b"}],"nextCursor":"y"}"#);
        let (one, two) = (c.begin("tools/list", r#"{"cursor":"x"}"#), c.begin("tools/list", r#"{"cursor":"y"}"#));
        c.end(two, r#""result":{"tools":[{"name":"d"}]}"#);
        assert_eq!(c.names(), ["b", "d"]);
        c.end(one, r#""result":{"tools":[{"name":"c"}]}"#);
        assert_eq!(c.names(), ["a", "c"]);
        // A client that stops asking does not undo what was read.
        c.ask("tools/list", "{}", r#""result":{"tools":[{"name":"z"}],"nextCursor":"x"}"#);
        assert_eq!(c.names(), ["a", "c"]);
        let mut c = Client::new();
        c.ask("tools/list", "{}", r#""result":{"tools":[{"name":"a"}],"nextCursor":""}"#);
        assert!(matches!(c.seen().surface.list(F::Tools), List::Incomplete(i, Reason::Abandoned) if i.len() == 1));
        c.ask("tools/list", r#"{"cursor":""}"#, r#""result":{"tools":[{"name":"b"}]}"#);
        assert!(matches!(c.seen().surface.list(F::Tools), List::Complete(i) if i.len() == 2));
    }

    #[test]
    fn a_list_that_changed_meanwhile_and_errors_are_said() {
        let mut c = Client::new();
        c.ask("tools/list", "{}", r#""result":{"tools":[],"nextCursor":"x"}"#);
        c.0.notified("notifications/tools/list_changed");
        c.ask("tools/list", r#"{"cursor":"x"}"#, r#""result":{"tools":[]}"#);
        assert!(matches!(c.seen().surface.list(F::Tools), List::Incomplete(_, Reason::ChangedMeanwhile)));
        c.ask("prompts/list", "{}", r#""error":{"code":-32601,"message":"no"}"#);
        assert_eq!(*c.seen().surface.list(F::Prompts), List::NotOffered);
        c.ask("resources/list", "{}", r#""error":{"code":-32000,"message":"no"}"#);
        assert!(matches!(c.seen().surface.list(F::Resources), List::Incomplete(_, Reason::Failed(-32_000))));
    }

    #[test]
    fn a_client_that_says_that_it_can_do_more_is_another_context() {
        let mut c = Client::new();
        let modern = |capabilities: &str| {
            format!(
                r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}"#
            )
        };
        c.ask("tools/list", &modern("{}"), r#""result":{"tools":[{"name":"a"}]}"#);
        let first = c.seen().context;
        assert_eq!((first.era.as_deref(), first.protocol_version.as_deref()), (Some("modern"), Some("2026-07-28")));
        c.ask("tools/list", &modern(r#"{"sampling":{}}"#), r#""result":{"tools":[{"name":"a"},{"name":"b"}]}"#);
        assert_ne!(c.seen().context, first);
        assert_eq!((c.names().len(), c.seen().changes), (2, 0));
    }

    #[test]
    fn equal_names_are_both_there_and_what_was_restored_goes_on() {
        let mut c = Client::new();
        c.initialize(r#"{"tools":{}}"#, "i");
        c.tools(r#"{"name":"t","x":1},{"name":"t","x":2}"#);
        assert_eq!(c.names(), ["t", "t"]);
        let bytes = c.0.document(&Peers::default()).unwrap();
        assert!(canon::is_canonical(&bytes));
        let mut again = Client::new();
        again.0.restore(Snapshot::read(&bytes).unwrap());
        assert_eq!(again.0.document(&Peers::default()).unwrap(), bytes);
        again.tools(r#"{"name":"t","x":1}"#);
        assert_eq!((again.names().len(), again.seen().changes), (1, 1));
    }
}
