//! The exchanges of HTTP that a chain names: each message's is there, and each is over once.

use crate::model::{
    Word,
    event::{DetailView as Detail, EventView as Event},
    http::HttpExchange,
    words::{ExchangeEnd, ExchangePhase},
};
use std::collections::HashMap;

/// How an exchange ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Over {
    /// The client hung up.
    pub client_gone: bool,
    /// It was answered with a status that is not one of success, or refused.
    pub failed: bool,
}

/// What is known of one exchange.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    is_named: bool,
    over: Option<Over>,
}

/// All exchanges of a chain. What is kept of each is small beside its event.
#[derive(Debug, Default)]
pub struct Exchanges {
    known: HashMap<u64, Known>,
    unnamed: u64,
}

impl Exchanges {
    /// Takes an event; says what is wrong with it as far as exchanges go.
    pub fn event(&mut self, e: &Event<'_>) -> Option<&'static str> {
        if let Detail::HttpExchange(d) = &e.detail {
            return self.named(d);
        }
        let number = e.detail.read_in()?;
        if number == 0 {
            return Some("exchanges are numbered from 1");
        }
        let known = self.known.entry(number).or_insert_with(|| {
            self.unnamed += 1;
            Known::default()
        });
        known.over.is_some().then_some("a message crossed in an exchange that was over")
    }

    fn named(&mut self, d: &HttpExchange) -> Option<&'static str> {
        let known = self.known.entry(d.exchange).or_insert_with(|| {
            self.unnamed += 1;
            Known::default()
        });
        if !std::mem::replace(&mut known.is_named, true) {
            self.unnamed -= 1;
        }
        if known.over.is_some() {
            return Some("the exchange was already over");
        }
        if d.phase == ExchangePhase::End {
            let ended = d.ended.as_ref().and_then(Word::known);
            known.over = Some(Over {
                client_gone: ended == Some(ExchangeEnd::ClientGone),
                failed: d.failed() || ended == Some(ExchangeEnd::Refused),
            });
        }
        None
    }

    /// How an exchange ended, if it has.
    #[must_use]
    pub fn over(&self, exchange: u64) -> Option<Over> {
        self.known.get(&exchange)?.over
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.known.len() as u64
    }

    /// How many of those that messages crossed in are not named.
    #[must_use]
    pub const fn unnamed(&self) -> u64 {
        self.unnamed
    }
}
