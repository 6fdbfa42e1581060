//! The server of many sessions, driven by hand: sessions that were written before are served as if they were recorded
//! now.

use super::{sessions::LIMITS, *};
use crate::{
    live::{
        client::{self, Update},
        discovery::tests::run_card,
        protocol::{Hello, MAX_REQUEST, PROTOCOL},
        state::State,
    },
    model::{Direction, WallTime, receipt::Counts, version},
    paths::{AuditDir, SessionPaths},
    record::broadcast::{Broadcast, Crossed, Progress},
};
use assay_support::{
    rig::until,
    sessions::{self as synthetic, Plan},
};
use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    sync::{
        atomic::AtomicBool,
        mpsc::{self, Receiver},
    },
};

/// The longest that anything may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A process with sessions that only the test records.
struct Process {
    tmp: tempfile::TempDir,
    hub: Arc<Hub>,
    thread: Option<JoinHandle<()>>,
}

/// A session of it.
struct Recorded {
    id: SessionId,
    paths: SessionPaths,
    len: u64,
}

impl Process {
    fn new(limits: Limits) -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let (hub, thread) = start_with(&tmp.path().join("audit"), vec![tmp.path().join("run")], limits, true).unwrap();
        Self { tmp, hub, thread: Some(thread) }
    }

    /// A session with this many calls is on disk, but the hub does not know it yet.
    fn written(&self, seed: u64, calls: u64) -> Recorded {
        let plan = Plan { seed, calls, ..Plan::default() };
        let paths = synthetic::write(&plan, self.tmp.path().join("audit")).unwrap().paths;
        let len = paths.segment.metadata().unwrap().len();
        let name = paths.segment.file_name().unwrap().to_str().unwrap();
        let paths = AuditDir::at(self.tmp.path().join("audit")).session_of_segment(name).unwrap();
        Recorded { id: paths.id, paths, len }
    }

    fn begun(&self, session: &Recorded, continues: Option<SessionId>) {
        let mut card = run_card(session.id).card;
        card.continues = continues;
        card.started_at = WallTime::from_millis(1_773_574_200_000);
        self.hub.begun(Begun { card, paths: session.paths.clone(), segment_len: 0 });
    }

    /// Reports that this many bytes of it are written.
    fn grown(&self, session: &Recorded, len: u64) {
        self.hub.written(session.id, Progress { segment_len: len, counts: &Counts::default() });
    }

    fn recorded(&self, seed: u64, calls: u64) -> Recorded {
        let session = self.written(seed, calls);
        self.begun(&session, None);
        self.grown(&session, session.len);
        session
    }

    fn ended(&self, session: &Recorded, next: Option<SessionId>) {
        self.hub.ended(session.id, session.len, next);
    }

    fn socket(&self) -> PathBuf {
        until("the socket", || self.hub.socket().map(Path::to_owned))
    }

    fn connect(&self) -> Peer {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Peer(BufReader::new(stream))
    }

    fn cards(&self) -> Vec<RunCard> {
        discovery::live_in(&self.tmp.path().join("run"))
    }

    fn follow(card: RunCard, only: Option<String>, backlog: u64) -> Receiver<Update> {
        let (updates, inbox) = mpsc::sync_channel(1000);
        client::follow_only(card, only, (backlog, false), updates, Arc::new(AtomicBool::new(false))).unwrap();
        inbox
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.hub.close();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// One who speaks the protocol.
struct Peer(BufReader<UnixStream>);

impl Peer {
    fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
        self.0.get_mut().write_all(b"\n").unwrap();
    }

    fn line(&mut self) -> LiveLine {
        let mut text = Vec::new();
        self.0.read_until(b'\n', &mut text).unwrap();
        assert!(!text.is_empty(), "the connection was closed");
        LiveLine::parse(&text).unwrap()
    }

    /// The next line that `pick` wants.
    fn next<T>(&mut self, pick: impl Fn(LiveLine) -> Option<T>) -> T {
        loop {
            if let Some(picked) = pick(self.line()) {
                return picked;
            }
        }
    }

    fn hello(&mut self) -> Hello {
        self.next(|l| if let LiveLine::Hello(hello) = l { Some(hello) } else { None })
    }

    fn error(&mut self) -> String {
        self.next(|l| if let LiveLine::Error(e) = l { Some(e.error) } else { None })
    }

    /// The lines until this many sessions have caught up.
    fn caught_up(&mut self, sessions: usize) -> Vec<LiveLine> {
        let (mut lines, mut over) = (Vec::new(), 0);
        while over < sessions {
            let line = self.line();
            over += usize::from(matches!(line, LiveLine::CaughtUp(_)));
            lines.push(line);
        }
        lines
    }
}

/// Cursors of a session's events, in the order in which they were told.
fn cursors(lines: &[LiveLine], id: SessionId) -> Vec<u64> {
    lines.iter().filter_map(LiveLine::place).filter(|(session, _)| *session == id).map(|(_, cursor)| cursor).collect()
}

fn apply(state: &mut State, update: Update) {
    match update {
        Update::Line(line) => state.apply(&line),
        Update::Call(row) => state.call(*row),
        _ => {}
    }
}

#[test]
fn a_process_tells_which_sessions_it_has_and_of_each_what_was_asked_for() {
    let p = Process::new(LIMITS);
    let (a, b, over) = (p.recorded(1, 10), p.recorded(2, 20), p.recorded(3, 30));
    p.ended(&over, None);
    let mut one = p.connect();
    let hello = one.hello();
    assert_eq!(hello.protocol, PROTOCOL);
    until("all sessions", || (p.connect().hello().sessions.len() == 3).then_some(()));
    one.say(&format!("{{\"subscribe\":\"{}\",\"from\":0}}", b.id));
    let lines = one.caught_up(1);
    assert_eq!(cursors(&lines, b.id), (0..82).collect::<Vec<_>>());
    assert!(cursors(&lines, a.id).is_empty() && cursors(&lines, over.id).is_empty());
    let head = lines.iter().find_map(|l| if let LiveLine::Session(head) = l { Some(head) } else { None }).unwrap();
    assert_eq!((head.session.card.session_id, head.from, head.cursor, head.oldest), (b.id, 0, 82, 0));
    // The rest, one that has ended too; what it hears of already does not begin again.
    one.say("{\"subscribe\":\"all\",\"last\":5}");
    let lines = one.caught_up(2);
    assert_eq!(cursors(&lines, a.id), (37..42).collect::<Vec<_>>());
    assert_eq!(cursors(&lines, over.id), (117..122).collect::<Vec<_>>());
    assert!(cursors(&lines, b.id).is_empty());
    // Who asks for nothing but the present hears what comes.
    let new = p.written(4, 50);
    p.begun(&new, None);
    let begun = one.next(|l| if let LiveLine::Begun(b) = l { Some(b) } else { None });
    assert_eq!((begun.session_id, begun.state), (new.id, SessionState::Running));
    p.grown(&new, new.len);
    let told = one.next(|l| l.place().filter(|(id, cursor)| (*id, *cursor) == (new.id, 201)));
    assert_eq!(told, (new.id, 201));
    p.ended(&new, None);
    assert_eq!(one.next(|l| if let LiveLine::Ended(e) = l { Some(e.session_id) } else { None }), new.id);
    // Each has a card, and all name one socket.
    let cards = p.cards();
    assert_eq!(cards.len(), 4);
    assert!(cards.iter().all(|card| card.card.socket.as_deref() == Some(&*p.socket())));
    let state = |hello: &Hello, id| hello.sessions.iter().find(|s| s.session_id == id).unwrap().state;
    let hello = p.connect().hello();
    assert_eq!((state(&hello, a.id), state(&hello, over.id)), (SessionState::Running, SessionState::Ended));
    // The pack is done: the session is no longer looked for.
    p.hub.pack(new.id, PackState::Verified, None, Vec::new());
    until("its card to go", || (p.cards().len() == 3).then_some(()));
}

#[test]
fn a_session_that_continues_another_is_told_to_whoever_heard_of_that() {
    let p = Process::new(LIMITS);
    let (a, b, other) = (p.recorded(1, 10), p.written(2, 20), p.recorded(3, 5));
    let mut peer = p.connect();
    peer.say(&format!("{{\"subscribe\":\"{}\"}}", a.id));
    peer.next(|l| matches!(l, LiveLine::Session(_)).then_some(()));
    p.ended(&a, Some(b.id));
    p.begun(&b, Some(a.id));
    p.grown(&b, b.len);
    let mut lines = Vec::new();
    while cursors(&lines, b.id).last() != Some(&81) {
        lines.push(peer.line());
    }
    assert_eq!(cursors(&lines, b.id), (0..82).collect::<Vec<_>>());
    assert!(cursors(&lines, other.id).is_empty());
    // The card of the session that is continued has been removed.
    let ids: Vec<_> = p.cards().iter().map(|c| c.card.session_id).collect();
    assert!(ids.len() == 2 && ids.contains(&b.id) && ids.contains(&other.id), "{ids:?}");
}

#[test]
fn requests_that_mean_nothing_are_answered_and_cost_nobody_anything() {
    let p = Process::new(LIMITS);
    let a = p.recorded(1, 10);
    let mut good = p.connect();
    good.say("{\"subscribe\":\"all\",\"from\":0}");
    let mut peer = p.connect();
    for request in [
        "x",
        "[]",
        "{}",
        "{\"from\":0}",
        "{\"subscribe\":1}",
        "{\"subscribe\":\"everything\"}",
        "{\"subscribe\":\"all\",\"from\":-1}",
        "{\"subscribe\":\"all\",\"from\":0,\"last\":1}",
        "{\"subscribe\":\"all\",\"more\":1}",
        "{\"subscribe\":\"mcp_00000000000000ff\"}",
        "\u{0}",
    ] {
        peer.say(request);
        assert!(!peer.error().is_empty());
    }
    peer.say("{\"subscribe\":\"mcp_00000000000000fe\",\"from\":0}");
    let asked = peer.next(|l| if let LiveLine::Error(e) = l { e.session_id } else { None });
    assert_eq!(asked, SessionId::from_bits(0xfe));
    // It is served as well as any other afterwards.
    peer.say(&format!("  \n{{\"subscribe\":\"{}\",\"last\":18446744073709551615}}", a.id));
    assert_eq!(cursors(&peer.caught_up(1), a.id).len(), 42);
    // The same again begins again, from anywhere.
    peer.say(&format!("{{\"subscribe\":\"{}\",\"from\":18446744073709551615}}", a.id));
    assert_eq!(cursors(&peer.caught_up(1), a.id), [] as [u64; 0]);
    // A request without an end closes the connection.
    let _ = peer.0.get_mut().write_all(&vec![b' '; 2 * MAX_REQUEST]);
    until("the end", || {
        let mut line = Vec::new();
        matches!(peer.0.read_until(b'\n', &mut line), Ok(0) | Err(_)).then_some(())
    });
    assert_eq!(cursors(&good.caught_up(1), a.id).len(), 42);
}

#[test]
fn a_client_of_protocol_1_hears_that_it_is_too_old_and_which_version_it_needs() {
    let p = Process::new(LIMITS);
    let _a = p.recorded(1, 10);
    let mut text = String::new();
    p.connect().0.read_line(&mut text).unwrap();
    // As such a client reads the first line: the version of it, whatever else it says.
    assert!(text.starts_with("{\"event\":\"hello\","), "{text}");
    let too_new = version::newer("live protocol", text.as_bytes(), "protocol", "1").unwrap();
    assert!(too_new.to_string().contains("version 2; this assay reads up to 1: too new"), "{too_new}");
    let card = std::fs::read(p.socket().with_extension("json")).unwrap();
    assert!(version::newer("run card", &card, "v", "1").is_some());
}

#[test]
fn sixty_four_hear_everything_and_the_next_waits_for_a_place() {
    let p = Process::new(LIMITS);
    let (a, b) = (p.recorded(1, 100), p.recorded(2, 100));
    let mut crowd: Vec<Peer> = (0..MAX_SUBSCRIBERS).map(|_| p.connect()).collect();
    for peer in &mut crowd {
        peer.say("{\"subscribe\":\"all\",\"from\":0}");
    }
    for peer in &mut crowd {
        let lines = peer.caught_up(2);
        assert_eq!(cursors(&lines, a.id), (0..402).collect::<Vec<_>>());
        assert_eq!(cursors(&lines, b.id), (0..402).collect::<Vec<_>>());
    }
    let mut turned_away = p.connect();
    let mut line = Vec::new();
    assert!(matches!(turned_away.0.read_until(b'\n', &mut line), Ok(0) | Err(_)));
    drop(crowd.pop());
    until("the place", || {
        let mut peer = p.connect();
        let mut line = Vec::new();
        matches!(peer.0.read_until(b'\n', &mut line), Ok(1..)).then_some(())
    });
}

#[test]
fn who_does_not_read_loses_what_leaves_the_memory_and_nobody_else_does() {
    let limits = Limits { each: 64 << 10, all: 128 << 10, ..LIMITS };
    let p = Process::new(limits);
    let (a, b) = (p.written(1, 2000), p.recorded(2, 10));
    p.begun(&a, None);
    let (mut deaf, mut good) = (p.connect(), p.connect());
    for peer in [&mut deaf, &mut good] {
        peer.say("{\"subscribe\":\"all\"}");
        let mut told = 0;
        while told < 2 {
            told += usize::from(matches!(peer.line(), LiveLine::Session(_)));
        }
    }
    let mut heard = Vec::new();
    for part in 1..=100 {
        p.grown(&a, a.len * part / 100);
        let upto = 8002 * part / 100;
        while cursors(&heard[heard.len().saturating_sub(1)..], a.id).last().is_none_or(|c| c + 100 < upto) {
            heard.push(good.line());
        }
    }
    assert!(heard.iter().all(|l| !matches!(l, LiveLine::Gap(_))));
    // The subscriber that did not read learns what it lost once it reads, and the session has recorded how much that
    // is.
    let gap = deaf.next(|l| if let LiveLine::Gap(gap) = l { Some(gap) } else { None });
    assert!(gap.session_id == a.id && gap.gap == gap.to - gap.from && gap.gap > 100, "{gap:?}");
    assert!(p.hub.take_missed(a.id) >= gap.gap);
    assert_eq!(p.hub.take_missed(b.id), 0);
    assert_eq!(deaf.next(|l| l.place()), (a.id, gap.to));
}

#[test]
fn sessions_that_ended_are_forgotten_and_whoever_heard_of_them_is_told_the_gap() {
    let limits = Limits { ended: 2, ..LIMITS };
    let p = Process::new(limits);
    let big = p.recorded(1, 3000);
    let mut slow = p.connect();
    slow.say(&format!("{{\"subscribe\":\"{}\",\"from\":0}}", big.id));
    slow.next(|l| l.place());
    p.ended(&big, None);
    let others: Vec<_> = (2..6).map(|seed| p.recorded(seed, 3)).collect();
    for s in &others {
        p.ended(s, None);
    }
    let kept: Vec<_> = others[2..].iter().map(|s| s.id).collect();
    until("the others to be forgotten", || {
        let ids: Vec<_> = p.connect().hello().sessions.iter().map(|s| s.session_id).collect();
        (ids == kept).then_some(())
    });
    let gap = slow.next(|l| if let LiveLine::Gap(gap) = l { Some(gap) } else { None });
    assert_eq!((gap.session_id, gap.to), (big.id, 12_002));
    let mut late = p.connect();
    late.say(&format!("{{\"subscribe\":\"{}\"}}", big.id));
    assert!(late.error().contains("no longer"));
    assert_eq!(p.cards().len(), 2);
    // After some time those that are left go too.
    let p = Process::new(Limits { ended_for: Duration::from_millis(1), ..LIMITS });
    let (one, stays) = (p.recorded(1, 3), p.recorded(2, 3));
    p.ended(&one, None);
    until("it to be forgotten", || {
        let ids: Vec<_> = p.connect().hello().sessions.iter().map(|s| s.session_id).collect();
        (ids == [stays.id]).then_some(())
    });
}

#[test]
fn a_follower_hears_every_event_of_many_sessions_and_heals_what_was_forgotten() {
    let p = Process::new(Limits { ended: 1, each: 32 << 10, all: 64 << 10, ..LIMITS });
    let first = p.recorded(1, 40);
    let card = until("the card", || p.cards().pop());
    let inbox = Process::follow(card, None, u64::MAX);
    let mut state = State::new(usize::MAX);
    until("the first session", || {
        inbox.try_recv().into_iter().for_each(|update| apply(&mut state, update));
        (!state.sessions().is_empty()).then_some(())
    });
    let sessions: Vec<_> = (2..12).map(|seed| p.recorded(seed, 40 + seed)).collect();
    for s in &sessions {
        p.ended(s, None);
    }
    p.ended(&first, None);
    let all: u64 = 40 + (2..12).map(|seed| 40 + seed).sum::<u64>();
    until("every call", || {
        while let Ok(update) = inbox.try_recv() {
            apply(&mut state, update);
        }
        let finished = state.rows().filter(|r| !r.is_running()).count() as u64;
        (finished == all && state.sessions().values().all(|s| s.end.is_some())).then_some(())
    });
    let mut files = State::new(usize::MAX);
    for s in sessions.iter().chain([&first]) {
        files.read(&s.paths.segment, &s.paths.receipts).unwrap();
    }
    assert!(state.rows().eq(files.rows()));
}

#[test]
fn a_follower_of_one_session_hears_of_no_other() {
    let p = Process::new(LIMITS);
    let (a, b) = (p.recorded(1, 10), p.recorded(2, 10));
    let card = until("its card", || p.cards().into_iter().find(|c| c.card.session_id == b.id));
    let inbox = Process::follow(card, Some(b.id.hex()), u64::MAX);
    let c = p.recorded(3, 10);
    p.ended(&a, None);
    p.ended(&b, None);
    let mut state = State::default();
    until("its end", || {
        while let Ok(update) = inbox.try_recv() {
            apply(&mut state, update);
        }
        state.sessions().get(&b.id).is_some_and(|s| s.end.is_some()).then_some(())
    });
    drop(p);
    until("the end of the process", || match inbox.try_recv() {
        Ok(Update::Gone(gone)) => {
            assert_eq!(gone.session, b.id);
            Some(())
        }
        Ok(update) => {
            apply(&mut state, update);
            None
        }
        Err(_) => None,
    });
    assert_eq!(state.sessions().keys().copied().collect::<Vec<_>>(), [b.id], "not {} nor {}", a.id, c.id);
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

#[test]
fn two_hundred_sessions_of_a_process_have_one_thread_one_socket_and_bounded_memory() {
    const SESSIONS: u64 = 200;
    // In the long form, as in a process; and each session has more than its share of the memory.
    let long = std::env::var_os("ASSAY_LIVE_LONG").is_some();
    let limits = if long { LIMITS } else { Limits { each: 1 << 20, all: 4 << 20, ..LIMITS } };
    let (calls, events) = if long { (250, 1002) } else { (30, 122) };
    let p = Process::new(limits);
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let before = (resident(), threads());
    let all: Vec<_> = (1..=SESSIONS).map(|seed| p.recorded(seed, calls)).collect();
    until("all sessions", || (p.connect().hello().sessions.len() as u64 == SESSIONS).then_some(()));
    let unwatched = resident();
    let mut peer = p.connect();
    peer.say("{\"subscribe\":\"all\",\"from\":0}");
    // By session: events received or in a gap, the last one, and whether everything that was asked for came.
    let mut heard: HashMap<SessionId, (u64, Option<u64>, bool)> = HashMap::new();
    while heard.values().filter(|(.., over)| *over).count() < all.len() {
        match peer.line() {
            LiveLine::Gap(gap) => heard.entry(gap.session_id).or_default().0 += gap.gap,
            LiveLine::CaughtUp(c) => heard.entry(c.session_id.unwrap()).or_default().2 = true,
            line => {
                let Some((id, cursor)) = line.place() else { continue };
                let heard = heard.entry(id).or_default();
                assert!(heard.1.replace(cursor) < Some(cursor), "told twice, or out of order");
                heard.0 += 1;
            }
        }
    }
    // What the common memory does not hold is a gap.
    assert!(all.iter().all(|s| heard[&s.id] == (events, Some(events - 1), true)));
    eprintln!(
        "{SESSIONS} sessions: {} KiB before, {} KiB unwatched, {} KiB watched; {} threads, then {}; {} cards, one socket",
        before.0 >> 10,
        unwatched >> 10,
        resident() >> 10,
        before.1,
        threads(),
        p.cards().len()
    );
    assert_eq!(p.cards().len() as u64, SESSIONS);
    assert_eq!(std::fs::read_dir(p.tmp.path().join("run")).unwrap().count() as u64, SESSIONS + 1);
}

#[test]
fn what_servers_said_before_waits_for_the_first_who_hears_of_their_sessions() {
    let p = Process::new(LIMITS);
    let (a, b) = (p.written(1, 10), p.written(2, 10));
    let (of_a, of_b) = (p.hub.voice(a.id), p.hub.voice(b.id));
    for s in [&a, &b] {
        p.begun(s, None);
        p.grown(s, s.len);
    }
    assert!(of_a.take(b"one\ntw") && of_b.take(b"another\n") && of_a.take(b"o\n"));
    // Who only looks, or hears of another session, takes nothing away.
    let mut other = p.connect();
    other.hello();
    let stderr = |l| if let LiveLine::Stderr(s) = l { Some((s.session_id, s.seq, s.line)) } else { None };
    other.say(&format!("{{\"subscribe\":\"{}\"}}", b.id));
    assert_eq!(other.next(stderr), (b.id, 0, "another".to_owned()));
    let mut peer = p.connect();
    peer.hello();
    peer.say(&format!("{{\"subscribe\":\"{}\"}}", a.id));
    assert_eq!(peer.next(stderr), (a.id, 0, "one".to_owned()));
    assert_eq!(peer.next(stderr), (a.id, 1, "two".to_owned()));
    // In the session that continues it, too.
    let c = p.written(3, 10);
    p.ended(&a, Some(c.id));
    p.begun(&c, Some(a.id));
    peer.next(|l| {
        if let LiveLine::Session(head) = l { (head.session.card.session_id == c.id).then_some(()) } else { None }
    });
    of_a.take(b"three\n");
    assert_eq!(peer.next(stderr), (c.id, 2, "three".to_owned()));
}

#[test]
fn contents_go_to_those_who_asked_and_are_taken_for_nobody_else() {
    let p = Process::new(LIMITS);
    let session = p.recorded(1, 3);
    let crossed = |offset, text: &str| Crossed {
        session: session.id,
        at: WallTime::from_millis(0),
        direction: Direction::ServerToClient,
        exchange: None,
        offset,
        beginning: text.as_bytes().to_vec(),
        cut: false,
        wire_bytes: text.len() as u64,
    };
    let (mut plain, mut curious) = (p.connect(), p.connect());
    assert!(plain.hello().contents && curious.hello().contents);
    plain.say("{\"subscribe\":\"all\",\"from\":0}");
    plain.caught_up(1);
    assert!(!p.hub.wants_contents(), "nobody asked");
    curious.say("{\"contents\":true,\"subscribe\":\"all\",\"from\":0}");
    curious.caught_up(1);
    until("the wish", || p.hub.wants_contents().then_some(()));
    p.hub.crossed(crossed(7, r#"{"method":"notifications/message","params":{"data":"CANARY"}}"#));
    let told = curious.next(|l| if let LiveLine::Content(c) = l { Some(c) } else { None });
    assert_eq!((told.offset, told.said.method.as_deref()), (7, Some("notifications/message")));
    p.hub.pack(session.id, PackState::Verified, None, Vec::new());
    // What comes after it comes to the other one without it.
    let mut between = Vec::new();
    loop {
        let line = plain.line();
        if matches!(line, LiveLine::PackProgress(_)) {
            break;
        }
        between.push(line);
    }
    assert!(!format!("{between:?}").contains("CANARY"), "{between:?}");
    drop(curious);
    until("nobody wants them", || (!p.hub.wants_contents()).then_some(()));
}
