//! Watching sessions while they run (docs/live-protocol.md): the socket, how it is found, and the fold that decides for
//! every screen what an event means.
//!
//! The journal on disk is authoritative and the socket a convenience: every event has the same number as in the
//! segment, so that missed events can be read from there. docs/live-protocol.md is the protocol for others.
//!
//! | module | owns |
//! |---|---|
//! | [`hub`], [`voice`], `crossed` | where the recorder reports sessions, what servers say on stderr, and what messages hold, without waiting |
//! | [`server`] | the socket and its subscribers |
//! | [`discovery`] | run directory, cards, which proxies are alive |
//! | [`protocol`], `former` | the lines, and those of protocol 1 |
//! | [`evidence`] | receipt and events of one call |
//! | [`words`] | the state of a call in words |
//! | [`fold`] | audit events to lines and rows: of a live stream, a journal, a pack |
//! | [`journal`] | events and receipts of a session that may still be written |
//! | [`row`], [`message`], [`messages`], [`content`], [`state`] | calls, messages and what these hold, and what is known of all of them |
//! | [`client`] | following sessions: connect, heal, reconnect |
//! | [`watcher`] | finding sessions as they come |

mod bell;
pub mod client;
pub mod content;
mod crossed;
pub mod discovery;
pub mod evidence;
pub mod fold;
mod former;
pub mod hub;
pub mod journal;
pub mod message;
pub mod messages;
pub mod protocol;
mod ring;
pub mod row;
pub mod server;
pub mod state;
pub mod voice;
pub mod watcher;
pub mod words;
