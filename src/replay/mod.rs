//! Recordings that are played again: to a client, in the place of the server, or to a server, in the place of the client.
//!
//! | file | what |
//! |---|---|
//! | [`serve`] | an MCP server over stdio that answers from a recording |
//! | [`against`] | recorded calls, sent to a server again, and what differs |

pub mod against;
pub mod serve;
