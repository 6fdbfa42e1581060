//! The configurations of MCP clients: found, read, and changed entry by entry. Only the bytes of an entry change, and undoing
//! gives them back.
//!
//! | what | where |
//! |---|---|
//! | which clients there are, as data | [`table`] |
//! | which files are on this machine | [`discover`] |
//! | a text as a tree with places | [`read`], [`tree`] |
//! | servers and their states | [`entry`], [`command`], [`state`], [`scan`] |
//! | what is written into an entry | [`plan`], [`names`] |
//! | entries by URL | [`remote`] |
//! | changing an entry | [`splice`] |
//! | writing a file | [`mod@write`] |

pub mod change;
pub mod command;
pub mod discover;
pub mod entry;
pub mod names;
pub mod plan;
pub mod read;
pub mod remote;
pub mod scan;
pub mod splice;
pub mod state;
pub mod table;
pub mod tree;
pub mod write;
