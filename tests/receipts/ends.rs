//! However a server ends, there is a pack.

use super::*;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt as _;

impl Client {
    /// Sends a signal and waits for the end; the signal that ended it.
    fn end_by(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
        self.server.wait().unwrap().signal()
    }
}

#[test]
fn a_pack_is_built_at_the_end_of_stdin_at_a_signal_and_when_the_recorder_is_dropped() {
    let ends: [(&[&str], Option<Signal>); 4] =
        [(&[], None), (&["--drop"], None), (&[], Some(Signal::TERM)), (&[], Some(Signal::INT))];
    for (flags, signal) in ends {
        let place = Place::new();
        let mut client = Client::new(&place, LEGACY, flags);
        client.call("echo", json!({"text": "x"}));
        match signal {
            Some(signal) => assert_eq!(client.end_by(signal), Some(signal.as_raw())),
            None => drop(client.close()),
        }
        assert_eq!(of(&place.receipts(), "executed").len(), 1, "{flags:?} {signal:?}");
    }
}

#[test]
fn a_call_that_runs_at_a_signal_has_no_outcome_and_the_pack_says_so() {
    let place = Place::new();
    let mut client = Client::new(&place, LEGACY, &[]);
    client.request("tools/call", json!({"name": "stuck", "arguments": {}}));
    place.await_on_disk("\"stuck\"");
    client.end_by(Signal::TERM);
    let (report, all) = place.pack();
    assert_eq!(report.completeness, Completeness::Incomplete);
    let executed = of(&all, "executed");
    assert_eq!((&executed[0]["outcome"], &executed[0]["outcome_reason"]), (&json!("timeout"), &json!("shutdown")));
}

#[test]
fn a_pack_is_built_whenever_there_are_so_many_receipts() {
    let place = Place::new();
    let mut client = Client::new(&place, LEGACY, &["--pack-every", "4"]);
    for n in 0..6 {
        client.call("echo", json!({"text": n.to_string()}));
    }
    client.close();
    let packs = place.packs();
    assert_eq!(packs.len(), 3);
    for pack in packs {
        assert_eq!(verified(&pack).completeness, Completeness::Complete);
        assert_eq!(of(&receipts(&pack), "executed").len(), 2);
    }
}
