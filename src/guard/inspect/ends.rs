//! What is known of a message that was not read: its first and its last bytes.

use super::{Item, ItemKind, Refusal, is_scalar};
use crate::canon;

/// Bytes at each end of a long message in which its id is looked for.
const MOST: usize = 4096;

/// The first and the last bytes of a message; of a short one they overlap.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    head: &'a [u8],
    tail: &'a [u8],
}

impl<'a> Ends<'a> {
    /// Of a whole message.
    #[must_use]
    pub fn of(text: &'a [u8]) -> Self {
        Self { head: &text[..text.len().min(MOST)], tail: &text[text.len().saturating_sub(MOST)..] }
    }

    /// Its id, if it can be found there.
    #[must_use]
    pub fn id(self) -> Option<&'a [u8]> {
        let Self { head, tail } = self;
        let first = canon::members(head).ok().and_then(|members| {
            members.map_while(Result::ok).find(|m| m.key.as_deref() == Some("id")).map(|m| &head[m.value])
        });
        // A value that ends where the part does may continue after it.
        let first =
            first.filter(|id| is_scalar(id) && (id.as_ptr() as usize + id.len()) < head.as_ptr() as usize + head.len());
        first.or_else(|| {
            let tail = tail.trim_ascii_end().strip_suffix(b"}")?;
            let at = memchr::memmem::rfind(tail, b"\"id\":")?;
            let before = tail[..at].trim_ascii_end().last();
            let id = tail[at + 5..].trim_ascii();
            let whole = canon::scan(id).is_ok() && is_scalar(id);
            (whole && matches!(before, Some(b',' | b'{'))).then_some(id)
        })
    }

    /// Whether it may be a request or notification: a response names no method.
    #[must_use]
    pub fn may_ask(self) -> bool {
        [self.head, self.tail].into_iter().any(|part| memchr::memmem::find(part, b"\"method\"").is_some())
    }

    /// Whether it begins like a request or notification.
    #[must_use]
    pub fn begins_to_ask(self) -> bool {
        canon::members(self.head)
            .is_ok_and(|members| members.map_while(Result::ok).any(|m| m.key.as_deref() == Some("method")))
    }

    /// What can be told of the message: a sender that may wait for an answer gets a refusal.
    pub(in crate::guard) fn refused(self, refusal: Refusal) -> Item<'a> {
        let id = self.id().filter(|_| self.may_ask());
        let kind = match id {
            Some(_) => ItemKind::Request,
            None if self.may_ask() => ItemKind::Unreadable,
            None => ItemKind::Notification,
        };
        Item { id, ..Item::unread(kind, refusal) }
    }
}

/// The two ends of a message that is not held, gathered while it comes.
#[derive(Debug)]
pub(in crate::guard) struct Gathered {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Gathered {
    /// The ends of a message that begins with these bytes. They are its head alone: what follows is [added](Self::add).
    pub(in crate::guard) fn begin(bytes: &[u8]) -> Self {
        Self { head: bytes[..bytes.len().min(MOST)].to_vec(), tail: Vec::new() }
    }

    /// Adds more bytes of the message, of which the last are kept.
    pub(in crate::guard) fn add(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(MOST)..]);
        let surplus = self.tail.len().saturating_sub(MOST);
        self.tail.drain(..surplus);
    }

    /// What there is of it.
    pub(in crate::guard) fn ends(&self) -> Ends<'_> {
        Ends { head: &self.head, tail: &self.tail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_long_message_is_found_at_either_end() {
        let pad = "x".repeat(3 * MOST);
        for (message, id, asks) in [
            (format!(r#"{{"id":7,"method":"m","params":"{pad}"}}"#), Some(&b"7"[..]), true),
            (format!(r#"{{"method":"m","params":"{pad}","id":"a"}}"#), Some(b"\"a\""), true),
            (format!(r#"{{"id":8,"result":"{pad}"}}"#), Some(b"8"), false),
            (format!(r#"{{"params":"{pad}","method":"m"}}"#), None, true),
        ] {
            let mut gathered = Gathered::begin(message.as_bytes());
            message.as_bytes().chunks(100).for_each(|part| gathered.add(part));
            assert_eq!((gathered.ends().id(), gathered.ends().may_ask()), (id, asks));
            assert_eq!(Ends::of(message.as_bytes()).id(), id);
        }
    }
}
