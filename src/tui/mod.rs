//! The dashboard: `assay watch`, `assay open`, `assay diff --tui`. One program; what an event means
//! is decided in one place for live streams, journals and finished packs ([`crate::live::fold`]).
//!
//! event → [`msg::Msg`] → [`app::App::update`] → [`msg::Effect`] and, when something changed, [`view::draw`]. `update` does no
//! I/O and `draw` changes nothing; files and sockets are reached through [`crate::live`], [`crate::pack`], [`crate::policy`],
//! [`crate::approvals`] and [`crate::history`] only, on threads of their own ([`msg::Job`]).
//!
//! | module | owns |
//! |---|---|
//! | [`run()`], [`term`], [`clipboard`] | the loop; the terminal and how it is given back; copying |
//! | [`app`], [`view`], [`overlay`], [`bars`] | the screens, what is over them, header and footer |
//! | [`keymap`] | every key, command and help text |
//! | [`live`], [`packs`], [`pack`], [`diff`], [`policy`], [`surface`] | one screen each |
//! | [`detail`], [`messages`], [`timeline`] | one call; messages in a list; calls as a picture of time |
//! | [`kit`], [`cursor`] | lists, pairs of panes, sections that fold |
//! | [`paint`], [`theme`], [`input`], [`palette`] | drawing, meaning, typing |

pub mod app;
pub mod bars;
pub mod clipboard;
pub mod cursor;
pub mod detail;
pub mod diff;
pub mod input;
pub mod keymap;
pub mod kit;
pub mod live;
pub mod messages;
pub mod msg;
pub mod overlay;
pub mod pack;
pub mod packs;
pub mod paint;
pub mod palette;
pub mod policy;
#[cfg(test)]
mod property;
mod run;
pub mod screen;
pub mod surface;
pub mod term;
#[cfg(test)]
pub mod testkit;
pub mod theme;
pub mod timeline;
pub mod view;

pub use run::{Beside, BesideWork, run, run_beside};
