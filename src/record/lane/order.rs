//! Which lane goes first: messages are recorded in the order in which they crossed.

use super::Lane;
use std::io;

/// The lane whose next message crossed first; client to server comes first in `lanes`.
///
/// # Errors
/// As [`Lane::peek`]; a lane that fails does not keep the other one's message back.
pub fn earliest(lanes: &mut [Lane]) -> io::Result<Option<usize>> {
    let first = first_of(lanes.len(), |which| lanes[which].order())?;
    Ok(first.filter(|which| !lanes[*which].is_stuck()))
}

/// The one of `count` lanes that gives the earliest time. A lane that has given one keeps giving it.
///
/// A cause is captured before its effect is, but may be found after it: a lane that was empty is looked at again after
/// everything that was found, however long the looking took.
fn first_of(count: usize, mut peek: impl FnMut(usize) -> io::Result<Option<u64>>) -> io::Result<Option<usize>> {
    let mut known = 0;
    loop {
        let mut found = 0;
        let mut failed = None;
        let mut first: Option<(u64, usize)> = None;
        for which in 0..count {
            match peek(which) {
                Ok(None) => {}
                Ok(Some(ns)) => {
                    found += 1;
                    if first.is_none_or(|(best, _)| ns < best) {
                        first = Some((ns, which));
                    }
                }
                Err(e) => failed = Some(e),
            }
        }
        if found > known && found < count {
            known = found;
            continue;
        }
        return match (first, failed) {
            (Some((_, which)), _) => Ok(Some(which)),
            (None, Some(e)) => Err(e),
            (None, None) => Ok(None),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::{self, Capture, Producer, Waker};
    use crate::{files::Tree, model::Direction};
    use std::sync::Arc;

    /// Lanes that get a message at some look, with its time.
    fn first(arrivals: [(usize, u64); 2]) -> Option<usize> {
        let mut looks = 0;
        first_of(2, |which| {
            looks += 1;
            let (at, ns) = arrivals[which];
            Ok((looks > at).then_some(ns))
        })
        .unwrap()
    }

    #[test]
    fn a_cause_comes_first_although_it_was_found_last() {
        for answer_at in 0..8 {
            // Whenever the answer is seen, its request was there before.
            for request_at in 0..=answer_at {
                let found = first([(request_at, 5), (answer_at, 7)]);
                assert_ne!(found, Some(1), "{request_at} {answer_at}");
                assert_ne!(first([(answer_at, 7), (request_at, 5)]), Some(0), "{request_at} {answer_at}");
            }
        }
        assert_eq!(first([(100, 0), (0, 7)]), Some(1));
        assert_eq!(first([(0, 7), (0, 7)]), Some(0), "client to server first");
        assert_eq!(first([(100, 0), (100, 0)]), None);
    }

    #[test]
    fn requests_of_which_nobody_knows_the_time_go_before_their_answers() {
        let tmp = tempfile::tempdir().unwrap();
        let waker = Arc::new(Waker::new());
        let dirs = [tmp.path().join("ring")];
        let make = |direction| Capture::create(&dirs, "0123456789abcdef", direction, 1 << 20, &waker).unwrap();
        let (mut sent, c2s, _) = make(relay::Direction::ClientToServer);
        let (mut answered, s2c, _) = make(relay::Direction::ServerToClient);
        let commit = |producer: &mut Producer, ns: u64| {
            producer.reserve()[..3].copy_from_slice(b"{}\n");
            producer.commit(3, ns);
        };
        // More than there are marks for; the answer to the first comes right after it.
        for n in 1..=20_000 {
            commit(&mut sent, n * 10);
        }
        commit(&mut answered, 15);
        let lane = |direction, consumer| {
            Lane::new(direction, consumer, Tree::at(tmp.path()), tmp.path().join("spool")).unwrap()
        };
        let mut lanes = [lane(Direction::ClientToServer, c2s), lane(Direction::ServerToClient, s2c)];
        let mut order = Vec::new();
        while let Some(which) = earliest(&mut lanes).unwrap() {
            lanes[which].take(0, |_| ()).unwrap();
            order.push(which);
        }
        let answer = order.iter().position(|which| *which == 1).unwrap();
        assert_eq!(order.len(), 20_001);
        // What is known to have been sent later goes after it.
        assert!((1..4000).contains(&answer), "{answer}");
    }

    #[test]
    fn a_lane_that_fails_does_not_keep_the_other_back() {
        let fails = |which| if which == 0 { Err(io::Error::other("full")) } else { Ok(Some(3)) };
        assert_eq!(first_of(2, fails).unwrap(), Some(1));
        assert!(first_of(1, |_| Err(io::Error::other("full"))).is_err());
    }
}
