//! What a person sees and does.

use super::hint::Place;
use crate::{
    clients::discover::Surroundings,
    live::{
        client::{Gone, Update},
        content::Content,
        discovery::{Unread, tests::run_card},
        message::{self, What},
        protocol::{Chained, End, LiveLine, PackProgress, PackState, RunCard, SessionHead, SessionStreams, Stderr},
        row::{CallRow, Totals},
    },
    model::{
        Direction, DurationMs, EventKind, InvocationId, Outcome, Phases, PolicyVerdict, Profile, ReceiptId, RpcId,
        SessionId, Transport, WallTime, receipt::PeerInfo,
    },
    record::{
        broadcast::{Crossed, OpenStream, Streams},
        card::{Card, HttpCard},
        recorder::HttpBinding,
    },
    tui::{
        app::{App, Start},
        keymap::Contexts,
        msg::{Effect, Msg, ScreenId, Target},
        testkit::{self, Background, assert_frame, assert_frames, assert_picture, frame, press, text},
        theme::{Palette, Theme},
    },
};
use std::path::PathBuf;

/// A session that the screen hears of.
pub(in crate::tui) struct Told {
    pub id: SessionId,
    pub server: &'static str,
    cursor: u64,
    pub totals: Totals,
    pub audit_dir: PathBuf,
}

impl Told {
    pub fn new(n: u64, server: &'static str) -> Self {
        let audit_dir = PathBuf::from("/work/.assay/mcp");
        Self { id: SessionId::from_bits(0xabc0 + n), server, cursor: 1, totals: Totals::default(), audit_dir }
    }

    /// The same of a session that is there already.
    pub fn of(self, id: SessionId) -> Self {
        Self { id, ..self }
    }

    pub fn hello(&self, client: Option<&str>, profile: Profile) -> Update {
        let who = |name: &str| PeerInfo { name: name.to_owned(), version: Some("1.0".to_owned()) };
        let file = |name: &str| PathBuf::from(format!("/work/.assay/mcp/{name}_{}.jsonl", self.id));
        let told = run_card(self.id);
        let card = Card {
            client_info: client.map(who),
            pid: 4711,
            profile,
            server_id: self.server.to_owned(),
            server_info: Some(who(self.server)),
            started_at: at(-90_000),
            ..told.card
        };
        let session = RunCard {
            audit_dir: self.audit_dir.clone(),
            card,
            receipts: file("receipts"),
            segment: file("segment"),
            ..told
        };
        Update::Line(Box::new(LiveLine::Session(Box::new(SessionHead {
            chain_head: None,
            cursor: self.cursor,
            from: 0,
            oldest: 0,
            session,
            streams: None,
            totals: self.totals,
        }))))
    }

    fn chained(&mut self, kind: EventKind, call: Option<CallRow>) -> Box<Chained> {
        self.cursor += 1;
        Box::new(Chained {
            at: testkit::now(),
            call,
            cursor: self.cursor,
            direction: None,
            end: None,
            hash: format!("{:064x}", self.cursor),
            kind,
            message: None,
            method: None,
            mono_us: self.cursor * 1000,
            note: None,
            session_id: self.id,
            totals: self.totals,
        })
    }

    /// A call begins, `ms` after now.
    pub fn begins(&mut self, n: u64, tool: &str, ms: i64) -> Update {
        self.totals.started += 1;
        let row = self.row(n, tool, ms);
        Update::Line(Box::new(LiveLine::CallStarted(self.chained(EventKind::RequestReceived, Some(row)))))
    }

    pub fn row(&self, n: u64, tool: &str, ms: i64) -> CallRow {
        CallRow {
            arguments_hash: Some(format!("sha256:{:064x}", n * 7)),
            mcp_request_id: Some(RpcId::Int(n as i64)),
            phases_us: Phases { request_forwarded: Some(21), ..Phases::default() },
            requested_at: Some(at(ms)),
            server_id: Some(self.server.to_owned()),
            tool_name: Some(tool.to_owned()),
            ..CallRow::new(self.id, InvocationId::from_bits(self.id.bits() << 32 | n))
        }
    }

    /// A call has its end.
    pub fn ends(&mut self, n: u64, tool: &str, ms: i64, outcome: Outcome, verdict: PolicyVerdict, us: u64) -> Update {
        self.totals.ended(outcome);
        let answered = matches!(outcome, Outcome::Forwarded | Outcome::Error);
        let row = CallRow {
            duration_ms: (outcome != Outcome::Denied).then_some(DurationMs(us)),
            ended_at: Some(at(ms + us as i64 / 1000)),
            outcome: Some(outcome),
            outcome_reason: (outcome == Outcome::Timeout).then(|| "server_exited".to_owned()),
            phases_us: Phases {
                policy_decided: (verdict != PolicyVerdict::NoPolicy).then_some(4),
                request_forwarded: answered.then_some(21),
                response_first_byte: answered.then_some(us * 9 / 10),
                response_observed: answered.then_some(us),
                response_forwarded: answered.then_some(us + 18),
            },
            policy_reason: (verdict == PolicyVerdict::Denied).then(|| "denylist".to_owned()),
            policy_ref: (verdict == PolicyVerdict::Denied).then(|| "denylist[0] (*)".to_owned()),
            policy_verdict: Some(verdict),
            receipt_id: Some(ReceiptId::from_bits(self.id.bits() << 32 | n)),
            result_hash: answered.then(|| format!("sha256:{:064x}", n * 13)),
            result_is_error: answered.then_some(outcome == Outcome::Error),
            result_type: answered.then(|| "complete".to_owned()),
            ..self.row(n, tool, ms)
        };
        Update::Line(Box::new(LiveLine::CallFinished(self.chained(EventKind::ResponseSent, Some(row)))))
    }

    /// A message that an event tells of, `ms` after now.
    pub fn message(&mut self, what: What, way: Direction, method: Option<&str>, ms: i64) -> Update {
        let kind = match what {
            What::Response | What::Error => EventKind::ResponseReceived,
            What::Junk => EventKind::Malformed,
            What::Notification => EventKind::Notification,
            What::Blocked => EventKind::RequestBlocked,
            What::Unexpected => EventKind::Anomaly,
            What::Request | What::Other => EventKind::RequestReceived,
        };
        let mut c = self.chained(kind, None);
        (c.at, c.direction, c.method) = (at(ms), Some(way), method.map(ToOwned::to_owned));
        c.note = what.is_problem().then(|| "not JSON: expected a value".to_owned());
        let (offset, wire_bytes) = (self.cursor * 1000, 90 + self.cursor * 331);
        let rpc_id = method.map(|_| RpcId::Int(self.cursor as i64));
        c.message = Some(Box::new(message::Told { exchange: None, offset, rpc_id, what, wire_bytes }));
        Update::Line(Box::new(LiveLine::Chain(c)))
    }

    /// What a message holds that crossed at this offset.
    pub fn content(&self, way: Direction, offset: u64, text: &str, ms: i64) -> Update {
        let crossed = Crossed {
            session: self.id,
            at: at(ms),
            direction: way,
            exchange: None,
            offset,
            beginning: text.as_bytes().to_vec(),
            cut: false,
            wire_bytes: text.len() as u64,
        };
        Update::Line(Box::new(LiveLine::Content(Box::new(Content::of(&crossed)))))
    }

    pub fn gap(&mut self, note: &str) -> Update {
        let mut c = self.chained(EventKind::RecorderGap, None);
        c.note = Some(note.to_owned());
        Update::Line(Box::new(LiveLine::Chain(c)))
    }

    pub fn stderr(&self, seq: u64, line: &str) -> Update {
        Update::Line(Box::new(LiveLine::Stderr(Stderr {
            at: at(-9_000),
            cursor: self.cursor,
            line: line.to_owned(),
            seq,
            session_id: self.id,
        })))
    }

    pub fn end(&mut self) -> Update {
        let mut c = self.chained(EventKind::ChainEnd, None);
        c.end = Some(End { complete: true, next: None, reason: "client_closed".to_owned() });
        Update::Line(Box::new(LiveLine::SessionEnd(c)))
    }

    /// Its client speaks HTTP, and has so many streams open.
    pub fn over_http(&self, client: &str, streams: u64) -> Update {
        let Update::Line(line) = self.hello(Some(client), Profile::Audit) else { unreachable!() };
        let LiveLine::Session(mut head) = *line else { unreachable!() };
        head.session.card.http = Some(HttpCard {
            binding: HttpBinding::default(),
            log: None,
            process: "0".repeat(16),
            route: 0,
            source: "log".to_owned(),
            transport: Transport::StreamableHttp,
            url: None,
        });
        let stream = |n: u64| OpenStream {
            bytes: 3_400 * n,
            exchange: 2 * n + 1,
            last_byte_at: (n > 0).then(|| at(-3_000 * n as i64)),
            messages: 12 * n,
            method: if n == 0 { "GET" } else { "POST" }.to_owned(),
            since: at(-60_000 + n as i64),
        };
        let streams = Streams { open: (0..streams).map(stream).collect(), total: streams };
        head.streams = Some(SessionStreams { seq: 1, session_id: self.id, streams });
        Update::Line(Box::new(LiveLine::Session(head)))
    }

    pub fn pack(&self, state: PackState) -> Update {
        let pack = (state == PackState::Verified).then(|| PathBuf::from("/work/.assay/mcp/packs/proof_pack_x"));
        Update::Line(Box::new(LiveLine::PackProgress(PackProgress {
            pack,
            problems: Vec::new(),
            session_id: self.id,
            state,
        })))
    }
}

fn at(ms: i64) -> WallTime {
    WallTime::from_millis(testkit::now().millis() + ms)
}

fn hear(app: &mut App, updates: impl IntoIterator<Item = Update>) {
    for update in updates {
        let effects = app.update(Msg::Live(update));
        testkit::settle(app, effects);
    }
}

fn start() -> Start {
    Start { live: true, mouse: true, ..Start::default() }
}

/// Two sessions at work, with one of everything.
pub(in crate::tui) fn at_work() -> App {
    let mut app = testkit::app(start());
    let (mut files, mut web) = (Told::new(1, "filesystem"), Told::new(2, "fetch"));
    hear(&mut app, [files.hello(Some("claude-code"), Profile::Audit), web.hello(Some("cursor"), Profile::Guard)]);
    let tools = ["read_text_file", "list_directory", "search_files", "write_file"];
    for n in 0..24 {
        let (tool, ms) = (tools[n as usize % 4], -60_000 + n as i64 * 2000);
        let us = [340, 1_870, 12_400, 48_000][n as usize % 4] + n * 11;
        let outcome = if n % 11 == 7 { Outcome::Error } else { Outcome::Forwarded };
        hear(&mut app, [files.begins(n, tool, ms), files.ends(n, tool, ms, outcome, PolicyVerdict::NoPolicy, us)]);
        if n % 5 == 0 {
            let outcome = if n == 15 { Outcome::Denied } else { Outcome::Forwarded };
            let verdict = if n == 15 { PolicyVerdict::Denied } else { PolicyVerdict::Allowed };
            let us = if n == 15 { 90 } else { 830_000 + n * 40_000 };
            hear(&mut app, [web.begins(n, "fetch", ms + 500), web.ends(n, "fetch", ms + 500, outcome, verdict, us)]);
        }
    }
    hear(&mut app, [web.begins(30, "fetch", -4_200), files.begins(31, "search_files", -1_300)]);
    hear(&mut app, [files.stderr(0, "ready\t\u{1b}[32mok\u{1b}[0m"), web.stderr(0, "fetching")]);
    app
}

#[test]
fn the_live_screen_is_drawn() {
    let mut app = at_work();
    assert_frames("live", |w, h| frame(&mut app, w, h));
    let mut app = at_work();
    press(&mut app, "N N ]");
    assert_frames("live-timing", |w, h| frame(&mut app, w, h));
    let light = frame(&mut app, 140, 40);
    assert_picture("live-light", &light, Background::Light);
}

#[test]
fn of_a_process_that_died_no_stream_is_open() {
    let mut app = at_work();
    let (web, dead) = (Told::new(3, "everything"), Told::new(4, "killed"));
    hear(&mut app, [web.over_http("inspector", 2), dead.over_http("inspector", 5)]);
    assert!(text(&frame(&mut app, 140, 40)).contains("7 streams  0 missed"));
    hear(&mut app, [Update::Gone(Gone::of(dead.id, &dead.audit_dir))]);
    let seen = text(&frame(&mut app, 140, 40));
    assert!(!seen.contains("5 streams") && seen.contains("2 streams  0 missed"), "{seen}");
}

#[test]
fn open_streams_are_shown_with_their_age_and_last_byte() {
    let mut app = at_work();
    let mut web = Told::new(3, "everything");
    hear(&mut app, [web.over_http("inspector", 2), web.begins(1, "echo", -100)]);
    let see = |app: &mut App| text(&frame(app, 140, 40));
    let seen = see(&mut app);
    assert!(seen.contains("2 streams, last byte 3 s") && seen.contains("2 streams  0 missed"), "{seen}");
    // The sessions have the keys: the one that is selected is shown whole.
    press(&mut app, "h h g");
    for _ in 0..3 {
        if text(&frame(&mut app, 140, 40)).contains("2 open streams") {
            break;
        }
        press(&mut app, "j");
    }
    let seen = see(&mut app);
    assert!(seen.contains("2 open streams") && seen.contains("server id           everything"), "{seen}");
    assert!(
        seen.contains("#3    POST 59 s   last byte 3 s") && seen.contains("#1    GET  1 min  no byte yet"),
        "{seen}"
    );
    assert!(seen.contains("12 messages, 3.3 KiB"), "{seen}");
    assert_frames("live-streams", |w, h| frame(&mut app, w, h));
    // A click finds the session that it is on, although each takes a line more.
    let listed = see(&mut app).lines().skip(3).step_by(4).take(3).map(str::to_owned).collect::<Vec<_>>();
    assert!(listed.iter().all(|line| line.contains(" 1.0")), "{listed:?}");
    hear(&mut app, [web.end()]);
    assert!(!see(&mut app).contains("stream"), "{}", see(&mut app));
}

#[test]
fn the_pack_of_a_session_is_followed_as_it_ends() {
    let mut app = testkit::app(start());
    let mut told = Told::new(1, "filesystem");
    hear(&mut app, [told.hello(Some("claude-code"), Profile::Audit)]);
    let see = |app: &mut App| text(&frame(app, 140, 40));
    hear(&mut app, [told.end()]);
    assert!(see(&mut app).contains("waiting for its pack"));
    hear(&mut app, [told.pack(PackState::Sealing)]);
    assert!(see(&mut app).contains("building its pack"));
    hear(&mut app, [told.pack(PackState::Verified)]);
    assert!(see(&mut app).contains("pack verified"));
    let mut other = Told::new(2, "other");
    hear(&mut app, [other.hello(None, Profile::Audit), other.end(), other.pack(PackState::Failed)]);
    assert!(see(&mut app).contains("pack failed"));
}

#[test]
fn nothing_to_watch_says_how_to_begin() {
    let mut app = testkit::app(start());
    assert_frames("live-nothing", |w, h| frame(&mut app, w, h));
}

#[test]
fn servers_that_leave_no_evidence_are_named_while_nothing_is_live() {
    let home = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let around = Surroundings {
        home: Some(home.path().to_owned()),
        config: None,
        mac: false,
        root: home.path().join("root"),
        variables: Vec::new(),
    };
    let servers = Some(Place { around, project: home.path().join("project") });
    let mut app = testkit::app(Start { servers, ..start() });
    let tick = |app: &mut App, ms: i64| {
        let effects = app.update(Msg::Tick(at(ms)));
        let asked = effects.iter().filter(|e| matches!(e, Effect::Start(job) if job.what == "scan")).count();
        testkit::settle(app, effects);
        asked
    };
    let see = |app: &mut App| text(&frame(app, 80, 24));
    // The first frame waits for nothing.
    assert!(see(&mut app).contains("in front of your clients' MCP servers"), "{}", see(&mut app));
    let server = r#"{"mcpServers": {"one": {"command": "uvx", "args": ["c4n4ry"], "env": {"TOKEN": "c4n4ry"}}}}"#;
    put(".cursor/mcp.json", server);
    put(".claude.json", &server.replace("one", "two"));
    assert_eq!(tick(&mut app, 0), 1);
    let seen = see(&mut app);
    assert!(seen.contains("2 MCP servers leave no evidence:") && seen.contains("Cursor"), "{seen}");
    assert!(seen.contains("Claude Code") && !seen.contains("c4n4ry"), "{seen}");
    assert_frames("live-unrecorded", |w, h| frame(&mut app, w, h));
    // What changes meanwhile is seen, and not looked for all the time.
    std::fs::remove_file(home.path().join(".claude.json")).unwrap();
    put(".cursor/mcp.json", "{}");
    assert_eq!(tick(&mut app, 20_000), 0);
    assert_eq!(tick(&mut app, 31_000), 1);
    let seen = see(&mut app);
    assert!(!seen.contains("leave"), "{seen}");
    // While sessions are live nobody looks.
    hear(&mut app, [Told::new(1, "filesystem").hello(None, Profile::Audit)]);
    assert_eq!(tick(&mut app, 90_000), 0);
}

#[test]
fn without_colours_and_without_unicode_everything_is_still_said() {
    let theme = Theme { palette: Palette::Colourless, ascii: true, ..Theme::default() };
    let mut app = at_work();
    app.theme = theme;
    let frame = frame(&mut app, 140, 40);
    assert_frame("live-ascii", &frame);
    assert!(text(&frame).is_ascii(), "{}", text(&frame));
    for cell in frame.buffer.content() {
        assert_eq!((cell.fg, cell.bg), (ratatui::style::Color::Reset, ratatui::style::Color::Reset));
    }
}

#[test]
fn help_palette_and_filter_lie_over_it() {
    let mut app = at_work();
    press(&mut app, "?");
    assert_frames("help", |w, h| frame(&mut app, w, h));
    press(&mut app, "Esc : 'copy'");
    assert_frames("palette", |w, h| frame(&mut app, w, h));
    press(&mut app, "Esc / 'tool:read outcome:oops'");
    assert_frames("filter-error", |w, h| frame(&mut app, w, h));
}

#[test]
fn a_filter_narrows_while_it_is_typed_and_a_wrong_one_keeps_the_last_good_result() {
    let mut app = at_work();
    press(&mut app, "/ 'tool:read'");
    let shown = text(&frame(&mut app, 140, 40));
    assert!(shown.contains("6 of 31 calls") && !shown.contains("list_dir"), "{shown}");
    let _ = app.update(Msg::Paste(" outcome:oops".to_owned()));
    let shown = text(&frame(&mut app, 140, 40));
    assert!(shown.contains("6 of 31 calls") && shown.contains('↓'), "{shown}");
    press(&mut app, "Esc");
    assert!(text(&frame(&mut app, 140, 40)).contains("31 calls"));
    press(&mut app, "/ 'nothing like it' Enter");
    assert!(text(&frame(&mut app, 140, 40)).contains("no call passes the filter"));
    press(&mut app, "Esc");
    assert!(text(&frame(&mut app, 140, 40)).contains("31 calls"));
}

#[test]
fn moving_up_stops_following_and_the_end_resumes_it() {
    let mut app = at_work();
    let mut more = Told::new(1, "filesystem");
    press(&mut app, "k k");
    let before = app.live.selected();
    hear(&mut app, (40..77).map(|n| more.begins(n, "read_text_file", n as i64)));
    assert_eq!(app.live.selected(), before, "the selection holds on to its call");
    assert!(text(&frame(&mut app, 140, 40)).contains("+37 new"));
    press(&mut app, "G");
    assert!(text(&frame(&mut app, 140, 40)).contains("following"));
    hear(&mut app, [more.begins(90, "the_last_one", 90)]);
    assert!(text(&frame(&mut app, 140, 40)).contains("the_last_one"));
    press(&mut app, "f");
    assert!(text(&frame(&mut app, 140, 40)).contains("f follows"));
    press(&mut app, "f");
    assert!(text(&frame(&mut app, 140, 40)).contains("following"));
}

#[test]
fn a_pause_holds_the_screen_still_and_nothing_is_lost() {
    let mut app = at_work();
    press(&mut app, "Space");
    let before = text(&frame(&mut app, 140, 40));
    assert!(before.contains("PAUSED") && before.contains("paused"), "{before}");
    let mut more = Told::new(1, "filesystem");
    app.drawn();
    hear(&mut app, [more.begins(40, "came_meanwhile", 10)]);
    assert!(!app.is_dirty(), "nothing repaints while it is held");
    assert!(!text(&frame(&mut app, 140, 40)).contains("came_meanwhile"));
    press(&mut app, "Space");
    assert!(text(&frame(&mut app, 140, 40)).contains("came_meanwhile"));
}

#[test]
fn problems_are_found_without_looking_for_them() {
    let mut app = at_work();
    press(&mut app, "g");
    let mut seen = Vec::new();
    for _ in 0..4 {
        press(&mut app, "n");
        let selected = app.live.selected().unwrap();
        assert!(!seen.contains(&selected));
        seen.push(selected);
    }
    press(&mut app, "G n");
    assert!(app.toast().unwrap().text.starts_with("no denied, failed or slow call"));
    press(&mut app, "N");
    assert!(app.toast().is_some());
}

#[test]
fn one_session_alone_and_all_again() {
    let mut app = at_work();
    let effects = app.update(Msg::Resize(140, 40));
    testkit::settle(&mut app, effects);
    press(&mut app, "h");
    assert_eq!(app.place_for_tests(), Contexts::SESSIONS);
    press(&mut app, "Enter");
    let one = text(&frame(&mut app, 140, 40));
    assert!(one.contains("─ 25 calls") && !one.contains("✓ allowed"), "{one}");
    press(&mut app, "Esc");
    assert!(text(&frame(&mut app, 140, 40)).contains("31 calls"));
}

#[test]
fn ends_losses_and_gaps_are_said() {
    let mut app = testkit::app(start());
    let mut told = Told::new(1, "filesystem");
    hear(&mut app, [told.hello(None, Profile::Audit), told.begins(1, "read", 0)]);
    let see = |app: &mut App| text(&frame(app, 140, 40));
    hear(&mut app, [Update::Lost(told.id)]);
    assert!(see(&mut app).contains("connection lost, retrying"));
    hear(&mut app, [told.hello(Some("late"), Profile::Audit)]);
    assert!(!see(&mut app).contains("lost") && see(&mut app).contains("late"));
    hear(&mut app, [told.gap("full: 12 messages, 3400 bytes unrecorded")]);
    assert!(see(&mut app).contains("evidence missing") && see(&mut app).contains("12 missed"));
    hear(&mut app, [told.end(), told.pack(PackState::Sealing)]);
    assert!(see(&mut app).contains("building its pack"));
    hear(&mut app, [told.pack(PackState::Verified), Update::Gone(Gone::of(told.id, &told.audit_dir))]);
    assert!(see(&mut app).contains("pack verified"));
    let effects = press(&mut app, "o");
    assert_eq!(app.shown(), ScreenId::Pack, "{effects:?}");
    let mut dead = Told::new(2, "other");
    hear(
        &mut app,
        [dead.hello(None, Profile::Audit), dead.begins(1, "x", 0), Update::Gone(Gone::of(dead.id, &dead.audit_dir))],
    );
    press(&mut app, "1");
    assert!(see(&mut app).contains("died: assay recover"));
    hear(&mut app, [dead.pack(PackState::Built)]);
    assert!(see(&mut app).contains("died, recovered") && !see(&mut app).contains("assay recover"));
    let mut killed = Told::new(3, "third");
    hear(&mut app, [killed.hello(None, Profile::Audit), killed.end(), killed.pack(PackState::Sealing)]);
    hear(
        &mut app,
        [Update::Gone(Gone::of(dead.id, &dead.audit_dir)), Update::Gone(Gone::of(killed.id, &killed.audit_dir))],
    );
    assert!(!see(&mut app).contains("building"), "a client that kills it while it seals");
    // A directory that is there, and of which the user's own knows nothing.
    let foreign = tempfile::tempdir().unwrap();
    let mut other = Told::new(4, "fourth");
    other.audit_dir = foreign.path().to_path_buf();
    assert!(!see(&mut app).contains("not yours"));
    hear(
        &mut app,
        [
            other.hello(None, Profile::Audit),
            other.begins(1, "x", 0),
            Update::Gone(Gone::of(other.id, &other.audit_dir)),
        ],
    );
    assert!(see(&mut app).contains("died, not yours"));
}

#[test]
fn calls_of_a_process_that_died_have_ended_and_every_size_says_that_it_died() {
    let mut app = testkit::app(start());
    let mut dead = Told::new(2, "other");
    hear(&mut app, [dead.hello(None, Profile::Audit), dead.begins(1, "x", 0)]);
    assert!(text(&frame(&mut app, 80, 24)).contains("1 in flight"));
    hear(&mut app, [Update::Gone(Gone::of(dead.id, &dead.audit_dir))]);
    for (columns, lines) in [(80, 24), (140, 40)] {
        let screen = text(&frame(&mut app, columns, lines));
        let says = ["died: assay recover", "0 in flight", "1 failed", "timeout"].map(|what| screen.contains(what));
        assert_eq!(says, [true; 4], "{screen}");
    }
}

#[test]
fn what_is_of_a_later_version_is_said_and_what_is_beside_it_shown() {
    let card = |alive| Unread {
        path: "/run/user/1/assay/00000000000000ab.json".into(),
        alive,
        why: "this run card is of version 2; this assay reads up to 1: too new, it needs a later assay".to_owned(),
    };
    let mut app = testkit::app(start());
    let told = Told::new(1, "filesystem");
    let other = Told::new(2, "other");
    for before in [true, false] {
        hear(&mut app, [Update::Unread(vec![card(true), card(false)])]);
        for (columns, lines) in [(200, 50), (80, 24), (24, 8)] {
            let screen = text(&frame(&mut app, columns, lines));
            assert!(screen.contains("! 1 of 2: this run card"), "{screen}");
            assert!(columns < 80 || screen.contains("version 2; this assay reads up to 1: too new"), "{screen}");
        }
        hear(&mut app, [told.hello(None, Profile::Audit)]);
        assert!(!before || text(&frame(&mut app, 140, 40)).contains("filesystem"));
    }
    hear(&mut app, [Update::Unread(Vec::new())]);
    assert!(!text(&frame(&mut app, 140, 40)).contains("too new"));
    let why = "/a/segment: this audit event is of version 1.1; this assay reads up to 1: too new".to_owned();
    hear(&mut app, [other.hello(None, Profile::Audit), Update::TooNew { session: other.id, why }]);
    assert!(text(&frame(&mut app, 140, 40)).contains("! /a/segment: this audit event is of version 1.1"));
    hear(&mut app, [Update::Gone(Gone::of(other.id, &other.audit_dir))]);
    assert!(!text(&frame(&mut app, 140, 40)).contains("/a/segment"));
}

#[test]
fn what_is_copied_is_said() {
    let mut app = at_work();
    let effects = press(&mut app, "g y");
    assert!(matches!(&effects[..], [Effect::Copy { what, text }] if what.contains("mtc_") && text.starts_with("mtc_")));
    let effects = press(&mut app, "ctrl-y");
    assert!(matches!(&effects[..], [Effect::Copy { text, .. }] if text.contains("\"invocation_id\"")), "{effects:?}");
}

#[test]
fn q_goes_back_and_then_out() {
    let mut app = at_work();
    press(&mut app, "Enter");
    assert_eq!(app.place_for_tests(), Contexts::DETAIL);
    assert!(press(&mut app, "q").is_empty());
    assert_eq!(app.place_for_tests(), Contexts::CALLS);
    press(&mut app, "2 3 2");
    assert!(press(&mut app, "q").is_empty());
    assert!(matches!(press(&mut app, "q q").as_slice(), [.., Effect::Leave]));
    assert!(matches!(press(&mut at_work(), "ctrl-c").as_slice(), [Effect::Leave]));
    assert_eq!(at_work().farewell(), "assay: watched 2 sessions, 29 calls, 1 denied, 2 errors, 0 timeouts");
}

#[test]
fn clicks_and_the_wheel_do_what_keys_do() {
    use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    let mut app = at_work();
    let before = app.live.selected();
    let mouse = |app: &mut App, kind, column, row| {
        let _ = frame(app, 140, 40);
        let event = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
        let effects = app.update(Msg::Mouse(event));
        testkit::settle(app, effects)
    };
    mouse(&mut app, MouseEventKind::ScrollUp, 50, 10);
    assert_ne!(app.live.selected(), before);
    mouse(&mut app, MouseEventKind::Down(MouseButton::Left), 50, 6);
    let clicked = app.live.selected();
    assert_ne!(clicked, before);
    assert!(text(&frame(&mut app, 140, 40)).contains("f follows"));
    mouse(&mut app, MouseEventKind::Down(MouseButton::Left), 10, 0);
    assert_eq!(app.shown(), ScreenId::Packs);
    mouse(&mut app, MouseEventKind::Down(MouseButton::Left), 1, 0);
    assert_eq!(app.shown(), ScreenId::Live);
    mouse(&mut app, MouseEventKind::Down(MouseButton::Left), 0, 39);
    assert!(text(&frame(&mut app, 140, 40)).contains("Keys: "), "the hint in the footer is a button");
}

#[test]
fn only_a_window_of_a_long_session_is_kept_and_the_rest_is_in_its_files() {
    let mut app = testkit::app(start());
    let mut told = Told::new(1, "filesystem");
    hear(&mut app, [told.hello(None, Profile::Audit)]);
    let window = crate::live::state::WINDOW as u64;
    for n in 0..window + 500 {
        hear(&mut app, [told.ends(n, "read", n as i64, Outcome::Forwarded, PolicyVerdict::NoPolicy, 1000)]);
    }
    let shown = text(&frame(&mut app, 140, 40));
    assert!(shown.contains("10 000 of 10 500 calls"), "{shown}");
    press(&mut app, "g");
    let shown = text(&frame(&mut app, 140, 40));
    assert!(shown.contains("for older calls, o opens its files"), "{shown}");
    assert!(matches!(app.live.open_files_for_tests(), Some(Target::Journal { .. })));
}

#[test]
fn a_call_that_goes_over_into_the_next_session_is_counted_there_alone() {
    let mut app = testkit::app(Start { live: true, ..Start::default() });
    let (mut first, mut next) = (Told::new(1, "fs"), Told::new(2, "fs"));
    next.totals.started = 1;
    let updates = [first.hello(None, Profile::Audit), first.begins(1, "slow", 0), first.end()];
    hear(&mut app, updates);
    hear(&mut app, [next.hello(None, Profile::Audit), next.begins(2, "x", 1)]);
    let text = testkit::text(&testkit::frame(&mut app, 120, 30));
    assert!(text.contains("2 in flight") && text.contains("1 session live  2 calls"), "{text}");
}

/// Messages of all kinds, in both directions.
fn with_messages() -> (App, Told) {
    use Direction::{ClientToServer as To, ServerToClient as From};
    let mut app = testkit::app(start());
    let mut told = Told::new(1, "everything");
    hear(&mut app, [told.hello(Some("inspector"), Profile::Guard)]);
    let all = [
        (What::Request, To, Some("tools/list")),
        (What::Response, From, Some("tools/list")),
        (What::Request, From, Some("sampling/createMessage")),
        (What::Error, To, Some("sampling/createMessage")),
        (What::Notification, From, Some("notifications/tools/list_changed")),
        (What::Junk, From, None),
        (What::Blocked, To, Some("resources/\u{1b}[31mread")),
        (What::Unexpected, From, None),
    ];
    for (n, (what, way, method)) in all.into_iter().enumerate() {
        let update = told.message(what, way, method, -8_000 + n as i64 * 1000);
        hear(&mut app, [update]);
    }
    (app, told)
}

#[test]
fn all_messages_are_listed_in_both_directions() {
    let (mut app, _) = with_messages();
    press(&mut app, "m");
    assert_eq!(app.place(), Contexts::MESSAGES);
    assert_frames("live-messages", |w, h| frame(&mut app, w, h));
    let see = |app: &mut App| text(&frame(app, 140, 40));
    let seen = see(&mut app);
    for words in ["→ request", "← request", "→ ! error", "← notification", "← ! junk", "8 messages  following"]
    {
        assert!(seen.contains(words), "{words}: {seen}");
    }
    // The problems, one after the other, and what there is about one.
    press(&mut app, "N N Enter");
    let seen = see(&mut app);
    assert!(seen.contains("way                 server to client") && seen.contains("what is wrong"), "{seen}");
    assert!(seen.contains("content: not recorded."), "{seen}");
    press(&mut app, "Esc / 'sampling' Enter");
    assert!(see(&mut app).contains("2 messages  /sampling"));
    press(&mut app, "Esc");
    assert!(see(&mut app).contains("8 messages"));
    press(&mut app, "m");
    assert_eq!(app.place(), Contexts::CALLS);
}

#[test]
fn contents_that_are_sent_are_shown_and_said_to_be_recorded_nowhere() {
    use Direction::ClientToServer as To;
    let (mut app, mut told) = with_messages();
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let call =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"to":"a\u001b[2Jb"}}}"#;
    hear(&mut app, [told.content(To, 7, ping, -500)]);
    // What it holds comes before its event.
    let (offset, ms) = ((told.cursor + 1) * 1000, -100);
    hear(&mut app, [told.content(To, offset, call, ms)]);
    let row = told.row(1, "echo", ms);
    let Update::Line(line) = told.message(What::Request, To, Some("tools/call"), ms) else { unreachable!() };
    let LiveLine::Chain(mut c) = *line else { unreachable!() };
    c.call = Some(row);
    hear(&mut app, [Update::Line(Box::new(LiveLine::CallStarted(c)))]);
    press(&mut app, "] ]");
    let see = |app: &mut App| text(&frame(app, 140, 40));
    let seen = see(&mut app);
    assert!(seen.contains(r#"{"to":"a\u001b"#) && seen.contains("not recorded, only shown here"), "{seen}");
    assert_frames("live-content", |w, h| frame(&mut app, w, h));
    press(&mut app, "m k");
    let seen = see(&mut app);
    assert!(seen.contains("10 messages") && seen.contains("It leaves no event.") && seen.contains("ping"), "{seen}");
    press(&mut app, "j");
    let seen = see(&mut app);
    assert!(seen.contains("content: not recorded; sent to your") && seen.contains("event               #"), "{seen}");
    assert_frames("live-messages-content", |w, h| frame(&mut app, w, h));
}

#[test]
fn stored_arguments_stand_beside_the_calls() {
    let tmp = tempfile::tempdir().unwrap();
    let plan = assay_support::sessions::Plan { calls: 5, ..Default::default() };
    let written = assay_support::sessions::write(&plan, tmp.path()).unwrap();
    let text_of = std::fs::read_to_string(&written.paths.receipts).unwrap();
    let stored = text_of.replace("\"arguments_content\":null", r#""arguments_content":{"path":"/etc/hosts"}"#);
    std::fs::write(&written.paths.receipts, stored).unwrap();
    let mut app = testkit::app(start());
    let mut fold = crate::live::fold::Fold::default();
    let mut card = run_card(SessionId::from_bits(written.paths.id.bits()));
    (card.segment, card.receipts) = (written.paths.segment.clone(), written.paths.receipts.clone());
    let head = SessionHead {
        chain_head: None,
        cursor: 0,
        from: 0,
        oldest: 0,
        session: card,
        streams: None,
        totals: Totals::default(),
    };
    hear(&mut app, [Update::Line(Box::new(LiveLine::Session(Box::new(head))))]);
    let mut lines = Vec::new();
    crate::live::journal::events(&written.paths.segment, 0, u64::MAX, &mut |_, e| {
        lines.push(fold.event(&e.ok().unwrap()));
    })
    .unwrap();
    hear(&mut app, lines.into_iter().map(|line| Update::Line(Box::new(line))));
    let later = WallTime::from_millis(testkit::now().millis() + 5000);
    let effects = app.update(Msg::Tick(later));
    testkit::settle(&mut app, effects);
    press(&mut app, "k");
    let seen = text(&frame(&mut app, 140, 40));
    assert!(seen.contains("arguments") && seen.matches(r#"{"path":"/etc/"#).count() >= 4, "{seen}");
    press(&mut app, "m");
    let seen = text(&frame(&mut app, 120, 40));
    assert!(seen.contains("10 messages") && seen.contains("→ request") && seen.contains("← response"), "{seen}");
}

#[test]
fn the_calls_are_a_picture_of_time_with_totals_by_tool() {
    let mut app = at_work();
    press(&mut app, "t");
    assert_eq!(app.place(), Contexts::TIMELINE);
    assert_frames("live-timeline", |w, h| frame(&mut app, w, h));
    let see = |app: &mut App| text(&frame(app, 140, 40));
    let seen = see(&mut app);
    for words in [
        "all of it",
        "in flight",
        "most at once: ",
        "filesystem     25 ",
        "fetch           6 ",
        "✗ denied",
        "search_files",
    ] {
        assert!(seen.contains(words), "{words}: {seen}");
    }
    let whole = seen.clone();
    press(&mut app, "+ +");
    let part = see(&mut app);
    assert!(part.contains("a part"), "{part}");
    press(&mut app, "Right");
    assert_ne!(see(&mut app), part);
    press(&mut app, "- - -");
    assert_eq!(see(&mut app), whole);
    // The filter of the list is that of the picture.
    press(&mut app, "/ 'server:fetch' Enter");
    let seen = see(&mut app);
    let picture = seen.split("Timeline").nth(1).unwrap();
    assert!(picture.contains("6 calls") && !picture.contains("search_files"), "{seen}");
    press(&mut app, "Esc Esc");
    assert_eq!(app.place(), Contexts::CALLS);
}
