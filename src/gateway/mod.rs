//! The gateway: several MCP servers behind one listener, each under a path of its own.
//!
//! | file | what |
//! |---|---|
//! | `api` | what can be asked of it over HTTP, and by whom |
//! | `pages` | the same for a person with a browser |
//! | `decisions` | what somebody decides through it about a surface |
//! | `spec` | a service as the API makes it |
//! | `config` | its YAML file, strict: what is not understood is an error at its place |
//! | `credential` | secrets by reference: the file says where one is, never what it is |
//! | `data` | the data directory: who holds it |
//! | `lane` | a service that runs: its recording, and where its requests go |
//! | `routes` | the table that every request is looked up in |
//! | `reach` | where a service is, how it is reached, where its evidence is |
//! | `look` | a check: what a service offers, compared with what is approved |
//! | `timing` | when a service is looked at |
//! | `run` | the process: starts, reloads and ends all of it |
//! | `metrics` | what is counted, as Prometheus reads it |
//! | `notify` | what a service manager is told |
//! | `log` | lines of JSON on stderr: requests, streams, checks |
//! | `backup` | copies of the registry, made and put back |
//! | `registry` | what is known of each service: how it stands, what was seen, what was done |

pub mod api;
pub mod backup;
pub mod config;
pub mod credential;
pub mod data;
pub mod decisions;
pub mod lane;
pub mod log;
pub mod look;
pub mod metrics;
pub mod notify;
pub mod pages;
pub mod reach;
pub mod registry;
pub mod routes;
pub mod run;
pub mod spec;
pub mod timing;
