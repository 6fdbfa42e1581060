//! Reports for a browser: one file, no script, nothing loaded, everything from outside escaped.

pub mod analysis;
pub mod diff;
pub mod html;
