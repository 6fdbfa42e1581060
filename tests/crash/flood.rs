//! Peers that ask and never answer: what is followed is bounded, and what is not followed is said.
//!
//! `ASSAY_FLOOD` sets how many requests there are (default 40 000; a million is what a long run takes).

use assay::{
    model::{AnomalyKind, Detail, EventKind, GapReason, limits},
    pack::verify::Completeness,
};
use assay_support::{
    alone::peak_kib,
    check,
    rig::{Client, INITIALIZE, Rig, call, rig, until},
};
use std::{fs, io::Write as _};

fn flood() -> u64 {
    std::env::var("ASSAY_FLOOD").map_or(40_000, |n| n.parse().unwrap())
}

/// The most memory that the proxy had, in MiB. What its captures take is in there twice: they are mapped twice.
fn peak(client: &Client) -> u64 {
    peak_kib(client.child.id()) / 1024
}

fn ends_with_a_gap(rig: &Rig, client: &mut Client, asked: u64) {
    until("everything to be recorded", || {
        let text = fs::read(rig.segments().first()?).ok()?;
        let told = memchr::memmem::find_iter(&text, b"\"request_received\"").count()
            + memchr::memmem::find_iter(&text, b"\"not_followed\"").count();
        (told as u64 >= asked).then_some(())
    });
    let peak = peak(client);
    assert!(peak < 128, "{peak} MiB");
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    assert!(client.said().contains("requests beyond those that are followed"), "{}", client.said());
    check::settled(rig);
    let sessions = check::sessions(rig);
    let session = &sessions[0];
    assert_eq!(session.completeness, Completeness::Incomplete);
    let unfollowed = session
        .events
        .iter()
        .filter(|e| matches!(&e.detail, Detail::Anomaly(d) if d.kind == AnomalyKind::NotFollowed))
        .count() as u64;
    assert_eq!(session.doc.counts.requests + unfollowed, asked);
    assert_eq!(session.doc.counts.missed, unfollowed);
    assert!(unfollowed > 0 && session.doc.counts.requests <= limits::FOLLOWED as u64);
    let gap = session.events.iter().filter(|e| e.event == EventKind::RecorderGap);
    assert!(
        gap.into_iter().all(|e| matches!(&e.detail, Detail::RecorderGap(d) if d.reason == GapReason::InFlightLimit))
    );
}

#[test]
fn calls_that_are_never_answered_take_bounded_memory_and_their_pack_verifies() {
    for id_bytes in [6, 900] {
        let rig = rig!();
        let mut client = Client::start(rig.proxy(&[]));
        client.converse(std::iter::once(INITIALIZE.to_owned()));
        let mut stdin = client.stdin.take().unwrap();
        for n in 0..flood() {
            let id = format!("\"{n:0id_bytes$}\"");
            let line = call(n, "hang", 0).replacen(&format!("\"id\":{n}"), &format!("\"id\":{id}"), 1);
            stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
        client.stdin = Some(stdin);
        ends_with_a_gap(&rig, &mut client, flood());
    }
}

#[test]
fn a_server_that_asks_and_is_never_answered_takes_bounded_memory_and_its_pack_verifies() {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()));
    client.send(&call(1, "flood", flood()));
    client.await_lines(usize::try_from(flood()).unwrap() + 2);
    ends_with_a_gap(&rig, &mut client, flood() + 1);
}
