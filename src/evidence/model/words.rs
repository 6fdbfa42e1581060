//! The vocabularies of the evidence: words that stand in events, receipts and `session.json`, each in one place.
//!
//! A file may hold a word that this version does not know, for the lists grow: [`Word`] keeps it as it stands.

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

/// A word of a vocabulary, or one that is not on its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word<V> {
    /// On the list.
    Known(V),
    /// Not on it, as it stands.
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

/// A word of a vocabulary, or one that is not on its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordView<'a, V> {
    /// As it stands.
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
pub(super) use vocabulary;

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
        /// The next session goes on with its calls (`--pack-interval`).
        Rolled = "rolled",
        /// The disk did not take what had to be there for good; the next session goes on.
        FsyncFailed = "fsync_failed",
        /// The recorder was left alone.
        RecorderAbandoned = "recorder_abandoned",
        /// The proxy was killed; recovery ended it.
        Crashed = "crashed",
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
    }
}

vocabulary! {
    /// `teardown`: how the server was ended.
    Teardown {
        /// By itself.
        Exited = "exited",
        /// After its stdin was closed.
        StdinClosed = "stdin_closed",
        /// After a signal.
        Terminated = "terminated",
        /// By SIGKILL.
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
    fn no_vocabulary_has_a_word_twice() {
        fn check<V: Vocabulary + fmt::Debug>() {
            for word in V::ALL {
                assert_eq!(V::of(word.as_str().as_bytes()), Some(*word));
            }
        }
        check::<AnomalyKind>();
        check::<GapReason>();
        check::<EndReason>();
        check::<OutcomeReason>();
        check::<Teardown>();
    }
}
