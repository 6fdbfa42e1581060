//! A gate between two pipes, with a policy of its own: what passes it is what a server would receive.

use assay::{
    guard::{Gate, Judge, Shared},
    model::PolicyVerdict,
    policy::{Arguments, Call, Dns, Evaluator, Policy, Surroundings, Verdict},
    record::judgement::{Health, News, Ruled, Subject, Writer},
    relay::{
        Capture, Direction, Stop, Waker,
        stdio::{Mode, relay},
    },
    sys::fd::pipe,
};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// The names that the oracle's policy allows.
pub const ALLOWED: [&str; 2] = ["echo", "db.read"];
const POLICY: &str = "version: \"1\"\ndefault: deny\nallowlist: [echo, db.read]\ndenylist: [db.drop, rm]\n";

struct Policed(Evaluator);

impl Judge for Policed {
    fn judge(&mut self, subject: Subject<'_>, _: u64) -> (Ruled, String) {
        let arguments = subject.arguments.map_or(Arguments::Absent, Arguments::Raw);
        let ruling = self.0.decide(&Call { tool: subject.tool, arguments }, Duration::ZERO);
        let verdict = if ruling.verdict == Verdict::Allowed { PolicyVerdict::Allowed } else { PolicyVerdict::Denied };
        let ruled = Ruled {
            index: None,
            verdict,
            reason: ruling.reason.as_str().into(),
            rule: Some(ruling.rule),
            unseen: Vec::new(),
        };
        (ruled, ruling.message)
    }

    fn policy(&self) -> String {
        self.0.policy().hash().to_owned()
    }
}

/// Everything of `sent` that passes, `sent` being read in pieces that end at `cuts`.
pub fn passed(sent: &[u8], cuts: &[usize]) -> Vec<u8> {
    let tmp = tempfile::tempdir().unwrap();
    let dirs = [tmp.path().join("ring")];
    let waker = Arc::new(Waker::new());
    let make = |direction| Capture::create(&dirs, "0123456789abcdef", direction, 1 << 20, &waker).unwrap();
    let (c2s, _kept, _) = make(Direction::ClientToServer);
    let (journal, _told, _) = make(Direction::Decisions);
    let policy = Arc::new(Policy::parse(POLICY.as_bytes(), "oracle").unwrap());
    let news = Arc::new(News::new(Some(policy.hash().to_owned())));
    let around = Surroundings { cwd: PathBuf::from("/"), home: None, dns: Dns::Off };
    let health = Arc::new(Health::default());
    health.beat(true);
    let judge = Box::new(Policed(Evaluator::new(policy, Arc::new(around))));
    let shared = Shared::new(judge, Writer::new(journal), health, news).unwrap();
    let mut gate = Gate::new(shared, 64 << 10);
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
    relay(in_read, out_write, c2s, &Stop::new().unwrap(), Mode::Guard(&mut gate));
    writer.join().unwrap();
    reader.join().unwrap()
}

/// Panics if a server, however lenient, finds a call in what passes that the policy denies.
pub fn check(sent: &[u8], cuts: &[usize]) {
    let passed = passed(sent, cuts);
    for name in crate::lenient::calls(&passed) {
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
