//! The gateway: several MCP servers behind one listener, each under a path of its own.
//!
//! | file | what |
//! |---|---|
//! | `config` | its YAML file, strict: what is not understood is an error at its place |
//! | `credential` | secrets by reference: the file says where one is, never what it is |
//! | `registry` | what is known of each service: how it stands, what was seen, what was done |

pub mod config;
pub mod credential;
pub mod registry;
