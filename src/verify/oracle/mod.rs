//! The readers of lines that were written by hand, as oracles of the ones that come from the lists of members.

pub mod event_line;
pub mod receipt_line;
