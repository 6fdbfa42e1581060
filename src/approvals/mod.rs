//! Decisions about the surfaces of servers: kept, signed, and brought from elsewhere.
//!
//! | what | with |
//! |---|---|
//! | the file of decisions, read and checked | [`chain`] |
//! | one more decision | [`store`] |
//! | a decision whose key is elsewhere | [`request`] |
//! | the surfaces that were seen | [`observed`] |
//! | what is shown, and a decision on it | [`summary`], [`decide`] |
//! | what was seen first, as what to compare with | [`first`] |
//! | what is approved, and its content | [`standing`] |
//! | the lock file of a repository | [`lockfile`] |
//!
//! There is no second truth: what is approved is what follows from the decisions in `surface/approvals.jsonl`, in their
//! order. The ledger of the audit directory names each of them, so that none can be taken away unseen.

pub mod chain;
pub mod decide;
pub mod first;
pub mod lockfile;
pub mod observed;
pub mod request;
pub mod standing;
pub mod store;
pub mod summary;

pub use standing::pinned;
#[cfg(test)]
mod tests;
