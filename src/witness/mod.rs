//! Witnesses of logs: one that remembers the logs of others, and the questions to those that remember ours (docs/anchors.md).
//!
//! | file | has |
//! |---|---|
//! | `request` | what is sent to a witness, as text |
//! | `keep` | what a witness remembers, and its answers |
//! | `serve` | a witness over HTTP |
//! | `ask` | questions to witnesses, and what their answers are worth |
//! | `anchor` | the ledger of an audit directory, signed by witnesses |
//! | `file` | what they signed, filed in the packs that it covers |

pub mod anchor;
pub mod ask;
pub mod file;
pub mod keep;
pub mod request;
pub mod serve;
