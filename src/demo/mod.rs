//! A whole MCP session in miniature: a small server, a small client, and a script that plays one against the other.
//!
//! `assay demo` puts the real proxy between them; nothing here knows of recording, packs or terminals.
//!
//! | module | owns | must not know |
//! |---|---|---|
//! | [`server`] | five tools over stdio | who is asking |
//! | [`client`] | a child process that speaks JSON-RPC lines | what the messages mean |
//! | [`script`] | which calls are made, and what became of them | how they are shown |
//! | [`tamper`] | a copy of a directory with one byte changed | what a verifier makes of it |

pub mod client;
pub mod script;
pub mod server;
pub mod tamper;
