//! The vocabularies of the evidence: the words in events, receipts and `session.json`, each defined once.
//!
//! A file may hold a word that this version does not know, because the lists grow: [`Word`] keeps it verbatim.

use super::{cursor::JsonCursor, form::Canonical};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{borrow::Cow, fmt};

/// A closed list of words.
pub trait Vocabulary: Copy + Eq + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// As it is written.
    fn as_str(self) -> &'static str;

    /// What a word means; `None` if it is not on the list.
    fn of(word: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|w| w.as_str().as_bytes() == word)
    }
}

/// A word of a vocabulary, or an unknown one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word<V> {
    /// On the list.
    Known(V),
    /// A word that is not on the list, verbatim.
    Other(Box<str>),
}

impl<V: Vocabulary> Word<V> {
    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.as_str(),
            Self::Other(word) => word,
        }
    }

    /// The word, if it is on the list.
    #[must_use]
    pub fn known(&self) -> Option<V> {
        match self {
            Self::Known(word) => Some(*word),
            Self::Other(_) => None,
        }
    }
}

impl<V: Vocabulary> std::ops::Deref for Word<V> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

/// Words come in the order of their texts, whether they are known or not.
impl<V: Vocabulary> Ord for Word<V> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl<V: Vocabulary> PartialOrd for Word<V> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<V: Vocabulary> Default for Word<V> {
    fn default() -> Self {
        Self::Other(Box::default())
    }
}

impl<V: Vocabulary> From<V> for Word<V> {
    fn from(word: V) -> Self {
        Self::Known(word)
    }
}

impl<V: Vocabulary> From<&str> for Word<V> {
    fn from(word: &str) -> Self {
        V::of(word.as_bytes()).map_or_else(|| Self::Other(word.into()), Self::Known)
    }
}

impl<V: Vocabulary> PartialEq<V> for Word<V> {
    fn eq(&self, other: &V) -> bool {
        self.known() == Some(*other)
    }
}

impl<V: Vocabulary> PartialEq<&str> for Word<V> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<V: Vocabulary> fmt::Display for Word<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<V: Vocabulary> Serialize for Word<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, V: Vocabulary> Deserialize<'de> for Word<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(Cow::<str>::deserialize(deserializer)?.as_ref()))
    }
}

/// A word of a vocabulary, or an unknown one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordView<'a, V> {
    /// The word, verbatim.
    pub text: &'a [u8],
    /// The word, if it is on the list.
    pub known: Option<V>,
}

impl<V: Vocabulary> Canonical for Word<V> {
    type View<'a> = WordView<'a, V>;

    fn read<'a>(c: &mut JsonCursor<'a>) -> Option<WordView<'a, V>> {
        let text = c.string()?;
        Some(WordView { text, known: V::of(text) })
    }
}

/// A closed list of words, each with its text: an enum, its [`Vocabulary`], and how it is read from canonical lines.
#[macro_export]
macro_rules! vocabulary {
    ($(#[$about:meta])* $name:ident { $($(#[$means:meta])* $word:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$means])* #[serde(rename = $text)] $word,)+
        }

        impl $name {
            /// As it is written.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)+
                }
            }
        }

        impl $crate::model::words::Vocabulary for $name {
            const ALL: &'static [Self] = &[$(Self::$word,)+];

            fn as_str(self) -> &'static str {
                self.as_str()
            }
        }

        impl $crate::model::form::Canonical for $name {
            type View<'a> = Self;

            #[inline]
            fn read(c: &mut $crate::model::cursor::JsonCursor<'_>) -> Option<Self> {
                $crate::model::words::Vocabulary::of(c.string()?)
            }
        }
    };
}
pub use vocabulary;

vocabulary! {
    /// What became of a call.
    #[derive(Hash)]
    Outcome {
        /// Forwarded, and an ordinary response came.
        Forwarded = "forwarded",
        /// Guard mode refused it.
        Denied = "denied",
        /// A JSON-RPC error, or a result with `isError: true`.
        Error = "error",
        /// No response came; `outcome_reason` says why.
        Timeout = "timeout",
    }
}

vocabulary! {
    /// The policy's verdict, whether or not the profile enforced it.
    #[derive(Hash)]
    PolicyVerdict {
        /// The policy permits the call.
        Allowed = "allowed",
        /// The policy rejects it.
        Denied = "denied",
        /// No policy was loaded.
        NoPolicy = "no_policy",
    }
}

vocabulary! {
    /// `kind` of an `anomaly` event.
    AnomalyKind {
        /// A request ended without an answer; the note says why.
        NoResponse = "no_response",
        /// An answer came, and its receiver never had it.
        NotDelivered = "not_delivered",
        /// A second answer to a request.
        LateResponse = "late_response",
        /// An answer to nothing.
        UnmatchedResponse = "unmatched_response",
        /// The wall clock jumped.
        ClockStep = "clock_step",
        /// A request beyond those that are followed.
        NotFollowed = "not_followed",
        /// A receipt is on disk, and the events of its call are not.
        ReceiptWithoutEvents = "receipt_without_events",
        /// An event binds a receipt that is not on disk.
        ReceiptLost = "receipt_lost",
        /// A guard cut out of an answer what is not approved; the note says what, and what the client got.
        SurfaceFiltered = "surface_filtered",
    }
}

vocabulary! {
    /// `anomalies` of a receipt and of its messages, and `unseen` of a decision: what was unusual about a call.
    CallAnomaly {
        /// A hash is over raw bytes, or the envelope is ambiguous: a member name occurs twice in an object.
        DuplicateKey = "duplicate_key",
        /// Likewise: an escape names half of a surrogate pair.
        LoneSurrogate = "lone_surrogate",
        /// Likewise: a number has no double.
        NumberOutOfRange = "number_out_of_range",
        /// Likewise: bytes are not UTF-8.
        InvalidUtf8 = "invalid_utf8",
        /// Likewise: nested too deeply.
        DepthExceeded = "depth_exceeded",
        /// Likewise: more members than are compared.
        TooManyMembers = "too_many_members",
        /// A call that had not ended had the same id.
        DuplicateInFlightId = "duplicate_in_flight_id",
        /// The id could not be kept as it was sent: it is too long.
        IdTooLong = "id_too_long",
        /// Likewise: a number that is not an integer within ±(2^53 − 1).
        IdOutOfRange = "id_out_of_range",
        /// Likewise: a text that a pack cannot hold.
        IdNotVerbatim = "id_not_verbatim",
        /// A member that `meta` would hold is left out.
        MetaNotKept = "meta_not_kept",
        /// The code of an error is not an integer that is kept.
        ErrorCodeNotKept = "error_code_not_kept",
        /// A call without a tool name.
        ToolNameMissing = "tool_name_missing",
        /// The tool name could not be kept as it was sent.
        ToolNameNotVerbatim = "tool_name_not_verbatim",
        /// `params` is missing or not an object.
        ParamsNotAnObject = "params_not_an_object",
        /// A call without an id.
        NotificationCall = "notification_call",
        /// Part of a JSON-RPC batch.
        BatchElement = "batch_element",
        /// The line began with one.
        ByteOrderMark = "byte_order_mark",
        /// The response had both.
        ResultAndError = "result_and_error",
        /// The policy could not see where a URL redirects to.
        RedirectsNotSeen = "redirects_not_seen",
        /// The policy could not see what a name resolves to later.
        DnsAfterCheck = "dns_after_check",
        /// The policy did not wait for what a name resolves to.
        NamesNotResolved = "names_not_resolved",
        /// The policy could not see what a path leads to later.
        SymlinkAfterCheck = "symlink_after_check",
        /// The session ended before the guard reached the message: it was not forwarded.
        NotDecided = "not_decided",
        /// A response came although the call had been cancelled.
        ResponseAfterCancel = "response_after_cancel",
        /// The response was read, but not written to the client.
        ResponseNotDelivered = "response_not_delivered",
        /// Stored content is in the investigation log.
        ContentInInvestigationLog = "content_in_investigation_log",
        /// A request that brought the result of an earlier call.
        TaskLeg = "task_leg",
        /// Recovery wrote the receipt.
        Recovered = "recovered",
        /// The server had said that its list of tools had changed, and this client had not been told it again.
        SurfaceStale = "surface_stale",
        /// A header of the request contradicts the message.
        HeaderMismatch = "header_mismatch",
        /// The body's encoding could not be undone: what is in it is not known.
        ContentUndecoded = "content_undecoded",
        /// The message was sent once more, on a stream that goes on where another was cut.
        Replayed = "replayed",
        /// The MCP session was used with another credential, and from elsewhere or by another program.
        SessionFromOtherClient = "session_from_other_client",
        /// The response came in another exchange than its request.
        AnsweredOnOtherExchange = "answered_on_other_exchange",
        /// The proxy was killed, and nobody knows whether the response still reached the client.
        DeliveryUnknown = "delivery_unknown",
        /// The message was changed on its way.
        Rewritten = "rewritten",
        /// A value that should be kept in cleartext is one that a pack cannot hold: it is hashed.
        CleartextNotKept = "cleartext_not_kept",
        /// Content that should be stored could not be redacted: nothing of it was kept.
        RedactionNotPossible = "redaction_not_possible",
        /// The client cancelled the call while its handler ran.
        CancelledByClient = "cancelled_by_client",
    }
}

vocabulary! {
    /// `policy_reason` of a receipt, `reason` of a decision and of a message that was not forwarded. The words of the guard
    /// begin with `guard:`.
    #[derive(Hash, PartialOrd, Ord)]
    PolicyReason {
        /// The denylist names the tool.
        Denylist = "denylist",
        /// The name is one that denylist or constraints name, but for case, look-alike forms, blanks or invisible characters.
        Lookalike = "denylist_lookalike",
        /// `max_calls` is used up.
        MaxCalls = "constraint:max_calls",
        /// The arguments do not validate against the schema.
        Arguments = "constraint:arguments",
        /// A pattern matches.
        DenyPatterns = "constraint:deny_patterns",
        /// A path is not allowed.
        AllowedPaths = "constraint:allowed_paths",
        /// A host is not public.
        DenyPrivateHosts = "constraint:deny_private_hosts",
        /// A host did not resolve in time, or not at all.
        HostUnresolved = "constraint:host_unresolved",
        /// The arguments cannot be read, so no constraint can be judged.
        ArgumentsUnreadable = "arguments_unreadable",
        /// Judging the arguments reached a limit.
        ArgumentsTooCostly = "arguments_too_costly",
        /// The arguments were not recorded. Only a dry run uses this word.
        ArgumentsNotStored = "arguments_not_stored",
        /// The allowlist names the tool.
        Allowlist = "allowlist",
        /// Nothing names the tool, and the default is to deny.
        NotInAllowlist = "not_in_allowlist",
        /// Nothing names the tool, and the default is to allow.
        Default = "default",
        /// `budget.max_tool_calls` is used up.
        BudgetCalls = "budget:max_tool_calls",
        /// `budget.max_wall_time_sec` is over.
        BudgetTime = "budget:max_wall_time_sec",
        /// A rule is too big to be compiled.
        RuleUnusable = "rule_unusable",
        /// The session ended before the guard reached the message.
        NotDecided = "not_decided",
        /// Nobody approved an item of this name.
        SurfaceNew = "surface:new",
        /// The definition is not the one that was approved.
        SurfaceChanged = "surface:changed",
        /// No listing holds the item.
        SurfaceUnlisted = "surface:unlisted",
        /// The item is blocked.
        SurfaceBlocked = "surface:blocked",
        /// The definition of the item can be read in two ways.
        SurfaceAmbiguous = "surface:ambiguous",
        /// What is not approved was cut out of an answer.
        SurfaceFiltered = "surface:filtered",
        /// The guard refused the message, and no decision on it names a reason.
        GuardRefused = "guard:refused",
        /// Another element of its batch was denied.
        GuardBatch = "guard:batch",
        /// It is not JSON, or not a JSON-RPC message.
        GuardMalformed = "guard:malformed",
        /// A byte order mark precedes it.
        GuardByteOrderMark = "guard:byte_order_mark",
        /// A carriage return, or one of Unicode's line breaks followed by something like a message, is inside it.
        GuardLineBreak = "guard:line_break",
        /// Two members of one object have one name.
        GuardDuplicateKey = "guard:duplicate_key",
        /// Two argument names, or a name of the protocol and a member's, differ in case only.
        GuardFoldedName = "guard:folded_name",
        /// A name of the protocol is written with escapes.
        GuardEscapedName = "guard:escaped_name",
        /// It holds bytes that are not UTF-8.
        GuardInvalidUtf8 = "guard:invalid_utf8",
        /// An escape names half of a surrogate pair.
        GuardLoneSurrogate = "guard:lone_surrogate",
        /// It holds U+0000.
        GuardNul = "guard:nul",
        /// It is nested too deeply.
        GuardTooDeep = "guard:too_deep",
        /// It has more members than can be compared.
        GuardTooManyMembers = "guard:too_many_members",
        /// It is longer than `--max-message`.
        GuardTooLarge = "guard:too_large",
        /// It is both a request and a response, or neither.
        GuardShape = "guard:shape",
        /// A response that no request waits for.
        GuardAnswersNothing = "guard:answers_nothing",
        /// An id that is neither a string, a number nor null.
        GuardBadId = "guard:bad_id",
        /// A method that is not a string, or almost the name of another.
        GuardBadMethod = "guard:bad_method",
        /// `params` that is not an object where one is needed.
        GuardBadParams = "guard:bad_params",
        /// A tool name that is missing, no string, or framed by what cannot be seen.
        GuardBadToolName = "guard:bad_tool_name",
        /// `arguments` that is not an object.
        GuardBadArguments = "guard:bad_arguments",
        /// A batch without elements, or with too many.
        GuardBadBatch = "guard:bad_batch",
        /// More requests are in flight than are followed.
        GuardTooManyInFlight = "guard:too_many_in_flight",
        /// A header of the protocol contradicts the body, occurs twice, or would be taken off on the way.
        GuardHeaderMismatch = "guard:header_mismatch",
        /// The body is in a content coding.
        GuardEncoded = "guard:encoded",
        /// The recorder could not record what would pass.
        GuardRecorderUnavailable = "guard:recorder_unavailable",
        /// A server refuses calls that it cannot record.
        RecorderUnavailable = "recorder_unavailable",
    }
}

vocabulary! {
    /// `reason` of a `recorder_gap`.
    GapReason {
        /// The disk did not take it.
        Disk = "disk",
        /// The capture had no room.
        CaptureStuck = "capture_stuck",
        /// The proxy was killed.
        Crash = "crash",
        /// Somebody else changed the files.
        EvidenceDamaged = "evidence_damaged",
        /// More requests were in flight than are followed.
        InFlightLimit = "in_flight_limit",
    }
}

vocabulary! {
    /// `end_reason`: why a session ended.
    EndReason {
        /// The client hung up.
        ClientClosed = "client_closed",
        /// The server ended first.
        ServerExited = "server_exited",
        /// The server ended first, with an exit code other than 0 or by a signal.
        ServerFailed = "server_failed",
        /// SIGHUP to the proxy.
        SignalHup = "signal_HUP",
        /// SIGINT to the proxy.
        SignalInt = "signal_INT",
        /// SIGTERM to the proxy.
        SignalTerm = "signal_TERM",
        /// The next session takes over the calls in flight (`--pack-interval`).
        Rolled = "rolled",
        /// A write that had to be durable failed; the next session continues.
        FsyncFailed = "fsync_failed",
        /// The recorder was left alone.
        RecorderAbandoned = "recorder_abandoned",
        /// The proxy was killed; recovery ended it.
        Crashed = "crashed",
        /// The client deleted the MCP session.
        SessionDeleted = "session_deleted",
        /// The server did not know the MCP session any more.
        SessionLost = "session_lost",
        /// Nothing came for too long.
        Idle = "idle",
        /// The stream of the old transport was closed.
        StreamClosed = "stream_closed",
        /// There were too many sessions, and this one had been idle for longest.
        Evicted = "evicted",
        /// Another session of the same client took its place.
        Replaced = "replaced",
        /// The upstream hung up.
        UpstreamLost = "upstream_lost",
        /// The server closed its recording.
        Closed = "closed",
    }
}

vocabulary! {
    /// `recorder` of `session.json`: who recorded.
    RecorderKind {
        /// A proxy in front of the server.
        Proxy = "proxy",
        /// The server itself, with this library.
        Library = "library",
    }
}

vocabulary! {
    /// `outcome_reason`: why a call has no ordinary answer.
    OutcomeReason {
        /// The client cancelled it.
        CancelledByClient = "cancelled_by_client",
        /// The client hung up first.
        ClientClosed = "client_closed",
        /// The server ended first.
        ServerExited = "server_exited",
        /// It was not answered in the time that a shutdown may take.
        ShutdownTimeout = "shutdown_timeout",
        /// The proxy was killed.
        ProxyKilled = "proxy_killed",
        /// It had no id: no answer may come.
        Notification = "notification",
        /// HTTP answered with a status that is not one of success, and without a JSON-RPC message. The exchange has the
        /// status.
        HttpError = "http_error",
        /// The exchange ended without an answer.
        StreamEnded = "stream_ended",
        /// The upstream hung up.
        UpstreamLost = "upstream_lost",
        /// The server did not know the MCP session any more.
        SessionLost = "session_lost",
        /// The handler panicked.
        HandlerPanicked = "handler_panicked",
        /// The handler was dropped before it was done.
        HandlerDropped = "handler_dropped",
        /// The recording was closed while the handler ran.
        Shutdown = "shutdown",
    }
}

vocabulary! {
    /// `transport` of events and of `session.json`, `server_transport` of receipts: how the server is spoken to.
    #[derive(Hash)]
    Transport {
        /// Standard input and output of a process.
        Stdio = "stdio",
        /// Streamable HTTP.
        StreamableHttp = "streamable-http",
        /// HTTP with server-sent events, as MCP 2024-11-05 has it.
        Sse = "sse",
    }
}

vocabulary! {
    /// `answered_by` of an `http_exchange`: who made the answer.
    AnsweredBy {
        /// The upstream server.
        Upstream = "upstream",
        /// The recorder itself: a refusal, or an error about the upstream.
        Assay = "assay",
    }
}

vocabulary! {
    /// `ended` of an `http_exchange`: how it ended.
    ExchangeEnd {
        /// Both bodies were whole.
        Complete = "complete",
        /// The client hung up.
        ClientGone = "client_gone",
        /// The upstream hung up.
        UpstreamLost = "upstream_lost",
        /// It was refused.
        Refused = "refused",
        /// The proxy stopped.
        Shutdown = "shutdown",
        /// Nothing came for too long.
        Timeout = "timeout",
        /// The proxy was killed.
        Crashed = "crashed",
    }
}

vocabulary! {
    /// `origin` of an `http_exchange`: who asked.
    ExchangeOrigin {
        /// The client.
        Client = "client",
        /// The recorder's bridge, for a client over stdio.
        Bridge = "bridge",
        /// The recorder itself, in the place of a client: the answer to what a guard withheld.
        Assay = "assay",
    }
}

vocabulary! {
    /// `phase` of an `http_exchange`.
    ExchangePhase {
        /// It is not over.
        Open = "open",
        /// It is over.
        End = "end",
    }
}

vocabulary! {
    /// `teardown`: how the server was ended.
    Teardown {
        /// The server ended by itself.
        Exited = "exited",
        /// After its stdin was closed.
        StdinClosed = "stdin_closed",
        /// After a signal.
        Terminated = "terminated",
        /// The server was killed (SIGKILL).
        Killed = "killed",
        /// Not even by that.
        Stuck = "stuck",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_written_as_it_was_read_whether_it_is_known_or_not() {
        for (text, known) in [("disk", Some(GapReason::Disk)), ("Disk", None), ("", None), ("a \u{e9} \"word\"", None)]
        {
            let json = serde_json::to_string(text).unwrap();
            let word: Word<GapReason> = serde_json::from_str(&json).unwrap();
            assert_eq!((word.known(), word.as_str()), (known, text));
            assert_eq!(serde_json::to_string(&word).unwrap(), json);
            assert_eq!(Word::from(text), word);
        }
    }

    #[test]
    fn whatever_a_value_is_flagged_with_is_a_word_of_calls() {
        use crate::canon::Anomalies as A;
        let all = [
            A::DEPTH_EXCEEDED,
            A::DUPLICATE_KEY,
            A::INVALID_UTF8,
            A::LONE_SURROGATE,
            A::NUMBER_OUT_OF_RANGE,
            A::TOO_MANY_MEMBERS,
        ];
        for flag in all {
            let name = flag.names().next().unwrap();
            assert!(CallAnomaly::of(name.as_bytes()).is_some(), "{name}");
        }
    }

    #[test]
    fn words_come_in_the_order_of_their_texts_known_or_not() {
        let mut words: Vec<Word<CallAnomaly>> = ["task_leg", "a later word", "recovered", "zz"].map(Word::from).into();
        words.sort();
        assert_eq!(words, ["a later word", "recovered", "task_leg", "zz"]);
    }

    #[test]
    fn no_vocabulary_has_a_word_twice() {
        fn check<V: Vocabulary + fmt::Debug>() {
            for word in V::ALL {
                assert_eq!(V::of(word.as_str().as_bytes()), Some(*word));
            }
        }
        check::<AnomalyKind>();
        check::<CallAnomaly>();
        check::<PolicyReason>();
        check::<GapReason>();
        check::<EndReason>();
        check::<OutcomeReason>();
        check::<RecorderKind>();
        check::<Teardown>();
        check::<Transport>();
        check::<AnsweredBy>();
        check::<ExchangeEnd>();
        check::<ExchangeOrigin>();
        check::<ExchangePhase>();
    }
}
