//! A gate between two pipes, with a policy of its own: what passes it is what a server would receive.

use super::{lenient, policed::Policed};
use assay::{
    guard::{Gate, Outlet, Session, StdioGuard},
    policy::{Dns, Evaluator, Policy, Surroundings},
    record::{
        health::Health,
        judge::PolicyFeed,
        rulings::{RulingReader, RulingWriter},
    },
    relay::{
        Capture, Direction, Stop, Waker,
        stdio::{Inspector, Mode, relay},
    },
    sys::fd::pipe,
};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The names that the oracle's policy allows.
pub const ALLOWED: [&str; 2] = ["echo", "db.read"];
/// Its policy.
pub const POLICY: &str = "version: \"1\"\ndefault: deny\nallowlist: [echo, db.read]\ndenylist: [db.drop, rm]\n";

/// Everything of `sent` that passes, `sent` being read in pieces that end at `cuts`.
pub fn passed(sent: &[u8], cuts: &[usize]) -> Vec<u8> {
    passed_with(sent, cuts, 1 << 20)
}

/// The same, with so much room for decisions, which nobody ever reads.
pub fn passed_with(sent: &[u8], cuts: &[usize], room: usize) -> Vec<u8> {
    relayed(POLICY, sent, cuts, room, false).passed
}

/// What passes from a server to its client under a policy, and what the server is told.
pub fn let_out(policy: &str, sent: &[u8], cuts: &[usize]) -> (Vec<u8>, Vec<u8>) {
    let Relayed { passed, told, .. } = relayed(policy, sent, cuts, 1 << 20, true);
    (passed, told)
}

/// What became of a stream.
pub struct Relayed {
    /// What passed.
    pub passed: Vec<u8>,
    /// What waits to be written in the other direction.
    pub told: Vec<u8>,
    /// What was decided.
    pub decided: RulingReader,
}

/// A session of its own under this policy. Its client's messages of more than 64 KiB are refused.
pub fn session(policy: &str) -> Session {
    let policy = Arc::new(Policy::parse(policy.as_bytes(), "oracle").unwrap());
    let feed = Arc::new(PolicyFeed::new(Some(policy.hash().to_owned())));
    let around = Surroundings { cwd: PathBuf::from("/"), home: None, dns: Dns::Off };
    let health = Arc::new(Health::default());
    health.beat(true);
    let judge = Box::new(Policed(Evaluator::new(policy, Arc::new(around))));
    Session::new(judge, health, feed, 64 << 10)
}

/// Relays a stream in one direction, that of the server `outwards`, with so much room for decisions.
pub fn relayed(policy: &str, sent: &[u8], cuts: &[usize], room: usize, outwards: bool) -> Relayed {
    relayed_in(session(policy), sent, cuts, room, outwards)
}

/// The same, in a session that has begun.
pub fn relayed_in(session: Session, sent: &[u8], cuts: &[usize], room: usize, outwards: bool) -> Relayed {
    let tmp = tempfile::tempdir().unwrap();
    let dirs = [tmp.path().join("ring")];
    let waker = Arc::new(Waker::new());
    let make = |direction, room| Capture::create(&dirs, "0123456789abcdef", direction, room, &waker).unwrap();
    let way = if outwards { Direction::ServerToClient } else { Direction::ClientToServer };
    let (capture, mut kept, _) = make(way, if outwards { Capture::DEFAULT_CAPACITY } else { 1 << 20 });
    let (rulings, decided, _) = make(Direction::Decisions, room);
    let mut rulings = RulingWriter::new(rulings);
    rulings.set_patience(Duration::ZERO);
    let shared = StdioGuard::new(session, rulings).unwrap();
    let (mut gate, mut outlet) = (Gate::new(Arc::clone(&shared)), Outlet::new(shared));
    let (in_read, in_write) = pipe().unwrap();
    let (out_read, out_write) = pipe().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        File::from(out_read).read_to_end(&mut all).unwrap();
        all
    });
    let (sent, mut cuts) = (sent.to_vec(), cuts.to_vec());
    let writer = std::thread::spawn(move || {
        let mut to = File::from(in_write);
        cuts.push(sent.len());
        cuts.sort_unstable();
        let mut at = 0;
        for cut in cuts.into_iter().filter(|c| *c <= sent.len()) {
            to.write_all(&sent[at..cut]).unwrap();
            at = cut;
        }
    });
    let over = Arc::new(AtomicBool::new(false));
    let recorder = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            while outwards && !over.load(Ordering::Acquire) {
                kept.advance(usize::try_from(kept.written() - kept.tail()).unwrap());
                std::thread::yield_now();
            }
        }
    });
    let told = if outwards { outlet.answers() } else { gate.answers() }.unwrap();
    let inspector: &mut dyn Inspector = if outwards { &mut outlet } else { &mut gate };
    relay(in_read, out_write, capture, &Stop::new().unwrap(), Mode::Guard(inspector));
    writer.join().unwrap();
    over.store(true, Ordering::Release);
    recorder.join().unwrap();
    let (passed, told) = (reader.join().unwrap(), told.take().unwrap_or_default());
    Relayed { passed, told, decided: RulingReader::new(decided) }
}

/// Panics if a server, however lenient, finds a call in what passes that the policy denies.
pub fn check(sent: &[u8], cuts: &[usize]) {
    let passed = passed(sent, cuts);
    for name in lenient::calls(&passed) {
        assert!(
            ALLOWED.contains(&name.as_str()),
            "{name:?} reached the server:\n sent {}\n read {}",
            sent.escape_ascii(),
            passed.escape_ascii()
        );
    }
}

/// [`check`]s an input of the fuzzer, whose first two bytes say where the stream is cut.
pub fn look(data: &[u8]) {
    let (cuts, sent) = data.split_at(data.len().min(2));
    let cuts: Vec<usize> = cuts.iter().map(|c| usize::from(*c)).collect();
    check(sent, &cuts);
}
