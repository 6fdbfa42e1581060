//! SIGKILL of the proxy at any moment, under load.

use assay_support::{
    check::{self, Crossed},
    rig::{Client, INITIALIZE, call, rig, until},
};
use std::{
    fs,
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// When the proxy is killed.
#[derive(Debug, Clone, Copy)]
enum When {
    /// So long after it was started: the fault itself, not a wait for something.
    Started(Duration),
    /// Once the client has so many lines, and so long after.
    Received(usize, Duration),
    /// So long after a session of few calls was ended by the client.
    Ended(Duration),
}

struct Plan {
    seed: u64,
    when: When,
    flags: &'static [&'static str],
    big: bool,
}

impl Plan {
    fn of(seed: u64) -> Self {
        let mut random = Random(seed);
        let when = match seed % 4 {
            0 => When::Started(random.micros(60_000)),
            1 | 2 => When::Received(1 + random.below(200), random.micros(3_000)),
            _ => When::Ended(random.micros(40_000)),
        };
        let flags: &[&str] = match (seed / 4) % 3 {
            0 => &[],
            1 => &["--pack-interval", "5r"],
            _ => &["--store-args", "--store-results"],
        };
        Self { seed, when, flags, big: (seed / 12).is_multiple_of(2) }
    }

    fn calls(&self) -> u64 {
        if matches!(self.when, When::Ended(_)) { 12 } else { 250 }
    }

    /// Request number `i`; ids start at 1.
    fn request(&self, i: u64) -> String {
        let size = if self.seed % 24 == 1 { 8 } else { 1 + self.seed % 2 };
        match i {
            3 if self.big => call(i, "big", size << 20),
            40 if self.big => call(i, "big", 1 << 20),
            i if i % 7 == 5 => call(i, "ask", 0),
            i if i % 11 == 6 => call(i, "fail", 0),
            i => call(i, "echo", i),
        }
    }
}

pub struct Random(pub u64);

impl Random {
    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> usize {
        usize::try_from(self.next() % n).unwrap()
    }

    pub fn micros(&mut self, n: u64) -> Duration {
        Duration::from_micros(self.next() % n)
    }
}

/// Pipelines requests and answers the server's own, until the proxy is gone or the plan is done.
fn load(plan: &Plan, client: &mut Client, stop: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let mut stdin = client.stdin.take().unwrap();
    let (seed, calls, big, when, flags) = (plan.seed, plan.calls(), plan.big, plan.when, plan.flags);
    let (stop, got) = (Arc::clone(stop), client.shared());
    thread::spawn(move || {
        let plan = Plan { seed, when, flags, big };
        let mut send = |line: &str| stdin.write_all(format!("{line}\n").as_bytes()).is_ok();
        if !send(INITIALIZE) || !send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#) {
            return;
        }
        let (mut sent, mut looked, mut answered) = (0, 0, 0);
        let asks = (1..=calls).filter(|i| plan.request(*i).contains("\"ask\"")).count();
        while sent < calls || answered < asks {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            for id in asked(&got.lock().unwrap(), &mut looked) {
                answered += 1;
                if !send(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{"ok":true}}}}"#)) {
                    return;
                }
            }
            if sent == calls {
                thread::sleep(Duration::from_micros(200));
                continue;
            }
            sent += 1;
            if !send(&plan.request(sent)) {
                return;
            }
        }
    })
}

/// Ids of the server's requests in `got` behind `looked`.
fn asked(got: &[u8], looked: &mut usize) -> Vec<String> {
    const BEGIN: &[u8] = br#"{"id":"s"#;
    let mut ids = Vec::new();
    let mut at = *looked;
    while let Some(end) = memchr::memchr(b'\n', &got[at..]).map(|n| at + n) {
        if got[at..end].starts_with(BEGIN) {
            let digits = got[at + BEGIN.len()..end].iter().take_while(|b| b.is_ascii_digit()).count();
            let id = &got[at + BEGIN.len() - 1..at + BEGIN.len() + digits];
            ids.push(String::from_utf8(id.to_vec()).unwrap());
        }
        at = end + 1;
        *looked = at;
    }
    ids
}

fn kill_at(plan: &Plan) {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(plan.flags));
    let started = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = load(plan, &mut client, &stop);
    let pause = match plan.when {
        When::Started(after) => after.saturating_sub(started.elapsed()),
        When::Received(lines, after) => {
            client.await_lines(lines);
            after
        }
        When::Ended(after) => {
            client.await_lines(usize::try_from(plan.calls()).unwrap());
            after
        }
    };
    thread::sleep(pause);
    stop.store(true, Ordering::Relaxed);
    client.kill();
    writer.join().unwrap();
    rig.await_silence();
    let crossed =
        Crossed { client: client.got(), server: fs::read(rig.server_log()).unwrap_or_default(), damaged: false };
    check::recovered(&rig, &crossed);
}

/// Runs the plans from `first` on, every second one.
fn kill_some(first: u64) {
    let kills: u64 = std::env::var("ASSAY_KILLS").map_or(100, |n| n.parse().unwrap());
    let mut failed = Vec::new();
    for seed in (first..kills).step_by(2) {
        let plan = Plan::of(seed);
        if std::panic::catch_unwind(|| kill_at(&plan)).is_err() {
            eprintln!("failed: ASSAY_KILL_SEED={seed}, {:?} {:?}", plan.when, plan.flags);
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "failed for seeds {failed:?}");
}

#[test]
fn whatever_a_peer_received_before_sigkill_is_in_the_evidence() {
    match std::env::var("ASSAY_KILL_SEED") {
        Ok(seed) => kill_at(&Plan::of(seed.parse().unwrap())),
        Err(_) => kill_some(0),
    }
}

#[test]
fn whatever_a_peer_received_before_sigkill_is_in_the_evidence_of_other_seeds() {
    kill_some(1);
}

#[test]
fn a_call_that_outlives_several_intervals_has_its_receipt_after_sigkill() {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&["--pack-interval", "3r"]));
    client.converse([INITIALIZE.to_owned()].into_iter());
    client.send(&call(1, "hang", 0));
    // Three receipts end an interval: the call is carried into the second, the third and the fourth.
    for n in 1..4 {
        client.converse((0..3).map(|i| call(10 * n + i, "echo", i)));
        until("the next interval", || (rig.segments().len() as u64 > n).then_some(()));
    }
    client.kill();
    rig.await_silence();
    let crossed = Crossed::of(&rig, &client);
    let sessions = check::recovered(&rig, &crossed);
    let of_hang = |r: &&serde_json::Value| r["tool_name"] == "hang" && r["outcome_reason"] == "proxy_killed";
    assert_eq!(sessions.iter().flat_map(|s| &s.receipts).filter(of_hang).count(), 1);
}
