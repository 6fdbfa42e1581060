//! An answer that passes through a guard's review.

use super::{
    answer::Layer,
    endpoint::FirstEvent,
    post::Poster,
    review::{AnswerReview, Head, Passed},
};
use bytes::{Bytes, BytesMut};
use std::task::{Context, Poll};

/// An answer that a guard judges, and the way back for what it withholds.
pub(super) struct Reviewed {
    pub(super) review: Box<dyn AnswerReview>,
    pub(super) poster: Poster,
    /// Looks for the endpoint of the old transport in what passes.
    pub(super) first: Option<FirstEvent>,
    /// It is an event stream with a length: comments fill the places of what is withheld.
    pub(super) fills: bool,
    /// Bytes of the upstream's answer that are settled.
    pub(super) upto: u64,
}

impl Reviewed {
    fn pass(&mut self, reviewed: Vec<Passed>, passes: &mut Vec<Passed>) {
        let mut pieces = Vec::with_capacity(reviewed.len());
        for passed in reviewed {
            let before = std::mem::replace(&mut self.upto, passed.upto);
            let len = passed.upto.saturating_sub(before) as usize;
            let fills = self.fills && len > passed.bytes.len() + 1;
            pieces.push(if fills { filled(&passed.bytes, len) } else { passed.bytes });
        }
        if !pieces.is_empty() {
            let passed = Passed { bytes: joined(pieces), upto: self.upto };
            match &mut self.first {
                Some(first) => first.push(passed.bytes, passed.upto, passes),
                None => passes.push(passed),
            }
        }
        self.review.replies().into_iter().for_each(|body| self.poster.post(body));
    }
}

impl Layer for Reviewed {
    fn push(&mut self, piece: Bytes, _upto: u64, passes: &mut Vec<Passed>) {
        let mut reviewed = Vec::new();
        self.review.push(piece, &mut reviewed);
        self.pass(reviewed, passes);
    }

    fn finish(&mut self, passes: &mut Vec<Passed>) {
        let mut reviewed = Vec::new();
        self.review.finish(&mut reviewed);
        self.pass(reviewed, passes);
        if let Some(first) = &mut self.first {
            first.finish(passes);
        }
    }

    fn head(&self) -> Head {
        self.review.head()
    }

    fn may_wait(&self) -> bool {
        self.review.may_wait()
    }

    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        self.review.poll_own(cx)
    }
}

/// What came as one passes as one: clients take many small frames of HTTP/2 for an attack.
fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() > 1 { pieces.concat().into() } else { pieces.pop().unwrap_or_default() }
}

/// What is left of a part of an event stream, and a comment: as many bytes as it had.
fn filled(left: &[u8], len: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(len);
    bytes.extend_from_slice(left);
    bytes.extend_from_slice(b":");
    bytes.resize(len - 1, b' ');
    bytes.extend_from_slice(b"\n");
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_fills_the_place_of_what_is_withheld() {
        for (left, len, text) in [("", 2, ":\n"), ("", 5, ":   \n"), (":\n", 6, ":\n:  \n")] {
            assert_eq!(filled(left.as_bytes(), len), text);
        }
    }
}
