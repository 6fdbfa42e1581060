//! Watching real sessions: proxies with their servers, subscribers that mean well and such that do not.

mod hostile;
mod http;
mod versions;
mod watching;

use assay::{
    live::{
        client::{self, Update},
        discovery, journal,
        protocol::RunCard,
        row::CallRow,
        state::State,
    },
    model::SessionDoc,
};
use assay_support::rig::{Client, Rig, rig, until};
use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{self, Receiver},
    },
};

fn run_dir(rig: &Rig) -> PathBuf {
    rig.root.join("run/assay")
}

/// A proxy that has answered `initialize`, and its card.
fn start(rig: &Rig, flags: &[&str]) -> (Client, RunCard) {
    let known: Vec<_> = discovery::live_in(&run_dir(rig)).into_iter().map(|c| c.card.session_id).collect();
    let mut client = Client::start(rig.proxy(flags));
    client.converse([rig::INITIALIZE.to_owned()].into_iter());
    let card = until("a live session", || {
        let new = |c: &RunCard| !known.contains(&c.card.session_id) && c.card.server_info.is_some();
        let card = discovery::live_in(&run_dir(rig)).into_iter().find(new)?;
        card.card.socket.as_ref().is_some_and(|s| s.exists()).then_some(card)
    });
    (client, card)
}

/// Follows from the beginning; `room` updates may wait.
fn follow(card: &RunCard, room: usize) -> Receiver<Update> {
    let (updates, inbox) = mpsc::sync_channel(room);
    client::follow(card.clone(), u64::MAX, updates, Arc::new(AtomicBool::new(false))).unwrap();
    inbox
}

fn apply(state: &mut State, update: &Update) {
    match update {
        Update::Line(line) => state.apply(line),
        Update::Call(row) => state.call((**row).clone()),
        Update::Unread(_) | Update::TooNew { .. } | Update::Lost(_) | Update::Gone(_) => {}
    }
}

/// Takes updates until `done` holds.
fn watch_until(what: &str, inbox: &Receiver<Update>, state: &mut State, done: impl Fn(&State) -> bool) {
    until(what, || {
        while let Ok(update) = inbox.try_recv() {
            apply(state, &update);
        }
        done(state).then_some(())
    });
}

/// Takes updates until the process is gone; returns them.
fn to_the_end(inbox: &Receiver<Update>, state: &mut State) -> Vec<Update> {
    let mut all = Vec::new();
    until("the end of the stream", || {
        while let Ok(update) = inbox.try_recv() {
            apply(state, &update);
            all.push(update);
        }
        matches!(all.last(), Some(Update::Gone(_))).then_some(())
    });
    all
}

/// The calls as the receipts on disk say.
fn receipts(rig: &Rig) -> Vec<CallRow> {
    let mut state = State::new(usize::MAX);
    for path in rig.receipts() {
        journal::calls(&path, None, &mut |r| state.call(CallRow::of_receipt(r))).unwrap();
    }
    state.rows().cloned().collect()
}

fn documents(rig: &Rig) -> Vec<SessionDoc> {
    let packs = rig::files(&rig.audit.join("packs"), |n| n.starts_with("proof_pack_"));
    packs.iter().map(|p| serde_json::from_slice(&fs::read(p.join("session.json")).unwrap()).unwrap()).collect()
}
