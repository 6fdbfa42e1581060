//! Old names.
pub use super::{
    health::Health,
    judge::{Decision as Ruled, Judge as Advisor, PolicyFeed as News, Subject},
    rulings::{CAPACITY, Reader, RulingRecord as Judgement, Writer},
};
