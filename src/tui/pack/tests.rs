use super::{State as Check, *};
use crate::{
    live::{fold::Fold, row::CallRow, state::State, words},
    model::{WallTime, event::hash_of_line, receipt::SCHEMA_VERSION},
    pack::{
        prove::What,
        verify::{Stage, proof::Proof},
    },
    tui::{
        app::{App, Start},
        msg::Msg,
        testkit::{assert_frames, check, frame, press, press_only, settle, text},
    },
};
use assay_support::{
    forge,
    sessions::{self, Ending, Plan},
};
use std::{fs, path::PathBuf};

/// A pack whose bytes are always the same.
fn packed(plan: &Plan) -> (tempfile::TempDir, PathBuf) {
    let tmp = tempfile::tempdir().unwrap();
    let dir = sessions::packed(plan, tmp.path().join("audit"));
    (tmp, dir)
}

fn plan() -> Plan {
    Plan { calls: 60, error_every: 7, timeout_every: 0, ..Plan::default() }
}

/// Changes one line of a file.
fn change(file: &Path, line: usize, edit: impl FnOnce(&str) -> String) {
    let text = fs::read_to_string(file).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[line] = edit(&lines[line]);
    fs::write(file, lines.join("\n") + "\n").unwrap();
}

/// The dashboard with a pack open, 80×24.
fn opened(dir: &Path) -> App {
    app_of(Target::Pack(dir.to_owned()), 80, 24)
}

fn app_of(target: Target, columns: u16, lines: u16) -> App {
    let start = Start { open: Some(target), ..Start::default() };
    let (mut app, effects) = App::new(start, columns, lines, crate::tui::testkit::now());
    settle(&mut app, effects);
    set_time(&mut app);
    app
}

/// The time of verification is the only thing that is not in the pack.
fn set_time(app: &mut App) {
    if let Check::Verified(report) = &mut app.pack.state {
        report.verified_at = crate::tui::testkit::now();
    }
}

fn shown(app: &mut App) -> String {
    let frame = frame(app, 80, 24);
    check(&frame);
    text(&frame)
}

/// Pictures at every size, after the same keys.
fn pictures(name: &str, target: &Target, keys: &str) {
    assert_frames(name, |columns, lines| {
        let mut app = app_of(target.clone(), columns, lines);
        press(&mut app, keys);
        let frame = frame(&mut app, columns, lines);
        check(&frame);
        frame
    });
}

#[test]
fn a_verified_pack_says_so_in_words() {
    let (_tmp, dir) = packed(&plan());
    let mut app = opened(&dir);
    let text = shown(&mut app);
    for words in
        ["✓ PASS", "✓ COMPLETE", "! UNPINNED", "– NOT_EVALUATED", "you have not named that key", "verify_signature"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    pictures("pack-verified", &Target::Pack(dir), "");
}

#[test]
fn a_pinned_signer_is_one_that_was_named() {
    let (_tmp, dir) = packed(&plan());
    let key = sessions::signer().fingerprint();
    let start = Start { open: Some(Target::Pack(dir)), signers: vec![key], ..Start::default() };
    let mut app = crate::tui::testkit::app(start);
    assert!(shown(&mut app).contains("✓ PINNED"));
}

#[test]
fn a_verification_shows_how_far_it_is_and_esc_stops_it() {
    let (_tmp, dir) = packed(&plan());
    let running = |columns, lines| {
        let start = Start { open: Some(Target::Pack(dir.clone())), ..Start::default() };
        let (mut app, effects) = App::new(start, columns, lines, crate::tui::testkit::now());
        let progress = Progress { stage: Stage::VerifyChain, done_bytes: 340 << 20, total_bytes: 1 << 30 };
        app.pack.state = Check::Running(Some(progress));
        (app, effects)
    };
    assert_frames("pack-verifying", |columns, lines| frame(&mut running(columns, lines).0, columns, lines));
    let (mut app, effects) = running(80, 24);
    let text = shown(&mut app);
    assert!(text.contains("33 %") && text.contains("No verdict yet") && !text.contains("PASS"), "{text}");
    let said = press_only(&mut app, "Esc");
    assert!(said.is_empty());
    assert!(app.toast().unwrap().text.contains("verification stopped"), "{:?}", app.toast());
    // What the job says afterwards changes nothing.
    settle(&mut app, effects);
    let text = shown(&mut app);
    assert!(text.contains("stopped: there is no verdict") && !text.contains("PASS"), "{text}");
    press(&mut app, "v");
    assert!(shown(&mut app).contains("✓ PASS"));
}

#[test]
fn a_changed_receipt_is_found_and_enter_goes_to_the_byte() {
    let (_tmp, dir) = packed(&plan());
    change(&dir.join("receipt_pack.jsonl"), 6, |l| l.replacen("\"duration_ms\":", "\"duration_ms\":9", 1));
    let mut app = opened(&dir);
    let text = shown(&mut app);
    assert!(text.contains("✗ TAMPERED") && text.contains("this is not what was signed"), "{text}");
    press(&mut app, "n");
    let text = shown(&mut app);
    assert!(text.contains("receipt_pack.jsonl:7") || text.contains("receipt_pack.jsonl"), "{text}");
    let target = Target::Pack(dir.clone());
    pictures("pack-tampered", &target, "n");
    // Every finding can be opened, and none panics.
    let Check::Verified(report) = &app.pack.state else { panic!() };
    let n = report.errors.len();
    let with_line = report.errors.iter().position(|f| f.line == Some(7) && f.expected.is_some());
    let with_line = with_line.expect("a finding in line 7");
    for i in 0..n {
        press(&mut app, "Enter");
        let text = shown(&mut app);
        assert!(text.contains("byte"), "{text}");
        if i == with_line {
            assert!(text.contains("line 7") && text.contains("expected"), "{text}");
        }
        press(&mut app, "Esc n");
    }
    pictures("pack-byte", &target, &format!("{} Enter", "n ".repeat(with_line + 1).trim()));
}

#[test]
fn the_caret_stands_at_the_byte_and_moves() {
    let (_tmp, dir) = packed(&plan());
    let file = dir.join("audit_log.jsonl");
    change(&file, 4, |l| l.replacen("\"mono_us\":", "\"mono_us\":1", 1));
    let mut app = opened(&dir);
    press(&mut app, "n");
    let Check::Verified(report) = &app.pack.state else { panic!() };
    let changed = report.errors.iter().position(|f| f.message.contains("not what its hash says")).unwrap();
    press(&mut app, &"n ".repeat(changed));
    press(&mut app, "Enter");
    let bytes = fs::read(&file).unwrap();
    let caret = app.pack.bytes.as_ref().unwrap().caret as usize;
    let line: &[u8] = bytes.split(|b| *b == b'\n').nth(4).unwrap();
    let stated: crate::model::AuditEvent = serde_json::from_slice(line).unwrap();
    assert!(bytes[caret..].starts_with(stated.hash.as_bytes()), "the caret is at the hash that is not true");
    let text = shown(&mut app);
    assert!(text.contains(&hash_of_line(line).unwrap()), "{text}");
    press(&mut app, "l l j");
    assert_eq!(app.pack.bytes.as_ref().unwrap().caret as usize, caret + 2 + 16);
    press(&mut app, "G");
    assert_eq!(app.pack.bytes.as_ref().unwrap().caret as usize, bytes.len() - 1);
    press(&mut app, "Enter");
    assert_eq!(app.pack.bytes.as_ref().unwrap().caret as usize, caret);
    let copied = press(&mut app, "Y");
    assert!(matches!(&copied[..], [Effect::Copy { text, .. }] if text == &format!("audit_log.jsonl:5:{caret}")));
    let copied = press(&mut app, "ctrl-y");
    assert!(matches!(&copied[..], [Effect::Copy { text, .. }] if text.as_bytes() == line), "{copied:?}");
}

#[test]
fn a_broken_link_shows_both_sides() {
    let (_tmp, dir) = packed(&plan());
    let file = dir.join("audit_log.jsonl");
    // An event that was changed and hashed again: its own hash is right, but the next event still holds the old one.
    change(&file, 9, |l| {
        let mut e: crate::model::AuditEvent = serde_json::from_str(l).unwrap();
        e.mono_us += 1;
        e.seal().unwrap();
        String::from_utf8(crate::model::to_line(&e).unwrap()).unwrap()
    });
    let target = Target::Pack(dir);
    let mut app = app_of(target.clone(), 80, 24);
    press(&mut app, "[ n");
    let line = app.pack.chain.as_ref().unwrap().selected().unwrap().clone();
    assert_eq!(line.number, 10);
    let Said::Event(e) = &line.row else { panic!("{line:?}") };
    let before = e.before.clone().expect("the other side");
    let text = shown(&mut app);
    for side in [&before, &e.prev_hash] {
        assert!(text.contains(&**side), "{text}");
    }
    assert!(text.contains("broken link: both sides") && text.contains("differs from here"), "{text}");
    press(&mut app, "Enter");
    let text = shown(&mut app);
    assert!(text.contains("broken link between lines 10 and 11"), "{text}");
    press(&mut app, "Esc");
    pictures("pack-broken-link", &target, "[ n");
    pictures("pack-broken-link-bytes", &target, "[ n Enter");
    let (_tmp, dir) = packed(&plan());
    pictures("pack-chain", &Target::Pack(dir), "[ G k k");
}

#[test]
fn receipts_are_walked_filtered_and_shown_in_detail() {
    let (_tmp, dir) = packed(&plan());
    let target = Target::Pack(dir);
    pictures("pack-receipts", &target, "] j j j");
    pictures("pack-receipts-filtered", &target, "] / 'tool:search outcome:err' Enter");
    let mut app = app_of(target, 80, 24);
    press(&mut app, "] G");
    assert_eq!(app.pack.receipts.as_ref().unwrap().selected().unwrap().number, 61);
    press(&mut app, "g n");
    let first = app.pack.receipts.as_ref().unwrap().selected().unwrap().number;
    assert_eq!(first, 7, "call 6 is the first error; the receipts begin with the session's");
    press(&mut app, "/ 'outcome:err' Enter");
    let text = shown(&mut app);
    assert!(text.contains("8 of 62"), "{text}");
    assert_eq!(app.pack.receipts.as_ref().unwrap().selected().unwrap().number, first, "the selection stays");
    press(&mut app, "/ ' nonsense:' Esc");
    assert!(shown(&mut app).contains("8 of 62"), "a wrong filter changes nothing");
    press(&mut app, "n");
    assert_eq!(app.pack.receipts.as_ref().unwrap().selected().unwrap().number, 14);
    press(&mut app, "Esc");
    assert_eq!(app.pack.receipts.as_ref().unwrap().len(), 62);
    assert_eq!(app.pack.receipts.as_ref().unwrap().selected().unwrap().number, 14);
    press(&mut app, "Enter");
    assert!(app.pack.inside);
    press(&mut app, "Esc");
    assert!(!app.pack.inside);
    let copied = press(&mut app, "y");
    assert!(matches!(&copied[..], [Effect::Copy { text, .. }] if text.starts_with("mtc_")), "{copied:?}");
}

#[test]
fn a_long_list_is_paged_and_the_end_is_reached() {
    let (_tmp, dir) = packed(&Plan { calls: 5000, error_every: 999, ..Plan::default() });
    let mut app = opened(&dir);
    press(&mut app, "]");
    let book = |app: &App| {
        let b = app.pack.receipts.as_ref().unwrap();
        (b.cursor.at, b.selected().map(|l| l.number), b.len())
    };
    for (keys, at) in [("G", 5001), ("g", 0), ("PgDn PgDn", 14), ("G k", 5000)] {
        press(&mut app, keys);
        let (cursor, number, len) = book(&app);
        assert_eq!((cursor, number, len), (number.unwrap(), Some(cursor), 5002), "{keys}");
        if at > 14 || at == 0 {
            assert_eq!(cursor, at, "{keys}");
        }
    }
    press(&mut app, "g n n");
    assert_eq!(book(&app).1, Some(1998));
    press(&mut app, "N");
    assert_eq!(book(&app).1, Some(999));
    press(&mut app, "[ [");
    press(&mut app, "G");
    let chain = app.pack.chain.as_ref().unwrap();
    assert_eq!(chain.selected().map(|l| l.number), Some(chain.len() - 1));
}

#[test]
fn what_is_half_written_opens_as_far_as_it_can_be_read() {
    let (tmp, dir) = packed(&plan());
    for name in ["pack_manifest.json", "audit_log.jsonl"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    let file = dir.join("receipt_pack.jsonl");
    let mut bytes = fs::read(&file).unwrap();
    bytes.truncate(bytes.len() - 40);
    fs::write(&file, bytes).unwrap();
    let mut app = opened(&dir);
    let said = shown(&mut app);
    assert!(said.contains("no verdict") && said.contains("pack_manifest.json"), "{said}");
    press(&mut app, "]");
    let said = shown(&mut app);
    assert!(said.contains("after the last whole line") && said.contains("read_file"), "{said}");
    press(&mut app, "]");
    assert!(shown(&mut app).contains("audit_log.jsonl is missing"));
    // A fifo is never opened, a link never followed.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("audit_log.jsonl"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let mut app = opened(&dir);
    press(&mut app, "[");
    assert!(shown(&mut app).contains("a fifo"));
    for what in ["nothing", "audit"] {
        let mut app = opened(&tmp.path().join(what));
        let said = shown(&mut app);
        assert!(said.contains("cannot be verified"), "{said}");
        press(&mut app, "] j Enter ] j Enter Esc v y Y ctrl-y");
        shown(&mut app);
    }
}

#[test]
fn lines_of_a_later_version_are_shown_as_what_cannot_be_read() {
    let tmp = tempfile::tempdir().unwrap();
    let paths = sessions::write(&plan(), tmp.path()).unwrap().paths;
    let lines = |path: &Path| fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    let (events, receipts) = (lines(&paths.segment), lines(&paths.receipts));
    let known = <crate::model::AuditEvent as crate::model::reading::Versioned>::KNOWN;
    for v in [(known + 1).to_string(), format!("\"{known}.1\""), "4000000000".to_owned()] {
        let line = events[3].replace("\"v\":1,", &format!("\"v\":{v},\"x\":[],"));
        let row::EvidenceRow::Bad { why, .. } = row::read(row::Kind::Events, line.as_bytes(), None) else {
            panic!("{line}")
        };
        assert!(why.contains(&format!("audit event is of version {}", v.trim_matches('"'))), "{why}");
        assert!(row::problem(row::Kind::Events, 3, line.as_bytes(), &mut None));
    }
    for (n, v) in [(0, &*format!("{SCHEMA_VERSION}0")), (1, "4.0"), (2, "3.10")] {
        let line = receipts[n].replace("\"schema_version\":\"3.0\"", &format!("\"schema_version\":\"{v}\""));
        let row::EvidenceRow::Bad { why, .. } = row::read(row::Kind::Receipts, line.as_bytes(), None) else {
            panic!("{line}")
        };
        assert!(why.contains(&format!("receipt is of version {v}")), "{why}");
        assert!(row::problem(row::Kind::Receipts, 3, line.as_bytes(), &mut None));
    }
    change(&paths.segment, 3, |line| line.replace("\"v\":1,", &format!("\"v\":{},", known + 1)));
    let target = Target::Journal { title: "x".to_owned(), segment: paths.segment, receipts: paths.receipts };
    let mut app = app_of(target, 200, 24);
    press(&mut app, "[");
    let screen = text(&frame(&mut app, 200, 24));
    assert!(screen.contains("too new"), "{screen}");
}

#[test]
fn a_session_without_a_pack_is_walked_and_no_verdict_is_claimed() {
    let tmp = tempfile::tempdir().unwrap();
    let plan = Plan { ending: Ending::Unterminated, ..Plan::default() };
    let written = sessions::write(&plan, tmp.path()).unwrap();
    let target = Target::Journal {
        title: written.paths.stem.clone(),
        segment: written.paths.segment.clone(),
        receipts: written.paths.receipts.clone(),
    };
    let mut app = app_of(target, 80, 24);
    let said = shown(&mut app);
    assert!(said.contains("has no pack") && !said.contains("PASS"), "{said}");
    press(&mut app, "] G");
    assert!(shown(&mut app).contains("21 receipts"));
    press(&mut app, "[ [");
    let said = shown(&mut app);
    assert!(said.contains("0 to look at"), "{said}");
    press(&mut app, "v");
    assert!(shown(&mut app).contains("events"));
    press(&mut app, "m v");
    assert!(shown(&mut app).contains("messages") && shown(&mut app).contains("→ request"), "{}", shown(&mut app));
}

/// Whole lines of a file.
fn lines_of(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap().split_inclusive('\n').map(str::to_owned).collect()
}

/// The files of a session that is being recorded: they hold what they are given.
struct Growing {
    _tmp: tempfile::TempDir,
    receipts: (PathBuf, Vec<String>),
    segment: (PathBuf, Vec<String>),
    seconds: i64,
}

impl Growing {
    fn new(calls: u64) -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let plan = Plan { calls, error_every: 5, ..Plan::default() };
        let written = sessions::write(&plan, tmp.path()).unwrap().paths;
        let take = |file: PathBuf| {
            let lines = lines_of(&file);
            fs::write(&file, "").unwrap();
            (file, lines)
        };
        Self { receipts: take(written.receipts), segment: take(written.segment), _tmp: tmp, seconds: 0 }
    }

    fn target(&self) -> Target {
        let (segment, receipts) = (self.segment.0.clone(), self.receipts.0.clone());
        Target::Journal { title: "it lives".to_owned(), segment, receipts }
    }

    /// So many receipts, and four events for each.
    fn grow_to(&self, receipts: usize) {
        fs::write(&self.receipts.0, self.receipts.1[..receipts].concat()).unwrap();
        let events = (4 * receipts).min(self.segment.1.len());
        fs::write(&self.segment.0, self.segment.1[..events].concat()).unwrap();
    }

    /// A second goes by.
    fn second(&mut self, app: &mut App) -> Vec<Effect> {
        self.seconds += 1;
        app.update(Msg::Tick(WallTime::from_millis(crate::tui::testkit::now().millis() + self.seconds * 1000)))
    }

    /// A second goes by, and what it starts is done.
    fn pass(&mut self, app: &mut App) {
        let effects = self.second(app);
        settle(app, effects);
    }
}

/// Number of the selected receipt, and how many the list has.
fn place(app: &App) -> (Option<u64>, u64) {
    let book = app.pack.receipts.as_ref().unwrap();
    (book.selected().map(|l| l.number), book.len())
}

#[test]
fn what_a_session_records_appears_by_itself_and_the_selection_stays_on_its_receipt() {
    let mut session = Growing::new(400);
    session.grow_to(30);
    let mut app = app_of(session.target(), 80, 24);
    press(&mut app, "] j j j");
    assert_eq!(place(&app), (Some(3), 30));
    session.grow_to(200);
    assert_eq!(place(&app), (Some(3), 30));
    session.pass(&mut app);
    assert_eq!(place(&app), (Some(3), 200));
    assert!(shown(&mut app).contains("200 receipts"));
    assert_eq!(app.pack.chain.as_ref().unwrap().lines(), 800);
    assert!(app.pack.chain.as_ref().unwrap().problems().is_empty(), "links hold across what came later");
    // At the end it follows, until one goes up.
    press(&mut app, "G");
    for n in [201, 330] {
        session.grow_to(n);
        session.pass(&mut app);
        assert_eq!(place(&app), (Some(n as u64 - 1), n as u64));
    }
    press(&mut app, "k");
    session.grow_to(331);
    session.pass(&mut app);
    assert_eq!(place(&app), (Some(328), 331));
    // What is being read in full stays, also at the end.
    press(&mut app, "G Enter");
    session.grow_to(340);
    session.pass(&mut app);
    assert_eq!(place(&app), (Some(330), 340));
    press(&mut app, "Esc G");
    // Half a line is none yet.
    let half = &session.receipts.1[340][..50];
    fs::write(&session.receipts.0, session.receipts.1[..340].concat() + half).unwrap();
    session.pass(&mut app);
    assert_eq!(place(&app), (Some(339), 340));
    assert!(shown(&mut app).contains("50 bytes after the last whole line"));
    session.grow_to(402);
    session.pass(&mut app);
    assert_eq!(place(&app), (Some(401), 402));
    assert!(!shown(&mut app).contains("after the last whole line"));
    let problems = |app: &App| app.pack.receipts.as_ref().unwrap().problems().to_vec();
    assert_eq!(problems(&app), problems(&app_of(session.target(), 80, 24)), "as if it was read at once");
}

#[test]
fn a_filter_holds_for_what_comes_later() {
    let mut session = Growing::new(400);
    session.grow_to(100);
    let mut app = app_of(session.target(), 80, 24);
    press(&mut app, "] / 'outcome:err' Enter G");
    let (_, before) = place(&app);
    session.grow_to(402);
    session.pass(&mut app);
    let (selected, after) = place(&app);
    assert!(after > before, "{before} {after}");
    let mut whole = app_of(session.target(), 80, 24);
    press(&mut whole, "] / 'outcome:err' Enter G");
    assert_eq!((selected, after), place(&whole));
    press(&mut app, "Esc");
    assert_eq!(place(&app), (selected, 402));
}

#[test]
fn a_session_is_looked_at_once_a_second_beside_the_screen_and_nothing_new_draws_nothing() {
    let mut session = Growing::new(40);
    session.grow_to(10);
    let mut app = app_of(session.target(), 80, 24);
    press(&mut app, "]");
    app.drawn();
    let effects = session.second(&mut app);
    assert_eq!(effects.len(), 2, "{effects:?}");
    let again = app.update(Msg::Tick(WallTime::from_millis(crate::tui::testkit::now().millis() + 1100)));
    assert_eq!(again.len(), 0, "{again:?}");
    let meanwhile = session.second(&mut app);
    assert_eq!(meanwhile.len(), 0, "one look at a time: {meanwhile:?}");
    settle(&mut app, effects);
    assert!(!app.is_dirty());
    session.grow_to(11);
    session.pass(&mut app);
    assert!(app.is_dirty());
    assert_eq!(place(&app).1, 11);
    // A file that was cut is not shown as if it was not.
    session.grow_to(5);
    session.pass(&mut app);
    assert!(shown(&mut app).contains("shorter than before"));
    press(&mut app, "v");
    assert_eq!(place(&app).1, 5);
    // A pack is finished.
    let (_tmp, dir) = packed(&plan());
    let mut app = opened(&dir);
    press(&mut app, "]");
    assert_eq!(session.second(&mut app).len(), 0);
}

#[test]
fn names_from_outside_are_harmless_at_any_size() {
    let evil = "\u{1b}]52;c;AAAA\u{7}\u{9b}2J\r\n\u{202e}漢字\u{200b}".to_owned();
    let tools = vec![evil, "x".repeat(5000), "é漢".repeat(50)];
    let (_tmp, dir) = packed(&Plan { tools, calls: 12, ..Plan::default() });
    change(&dir.join("receipt_pack.jsonl"), 4, |_| "{\"\u{1b}[31m\u{202e}\": oops".to_owned());
    let mut app = opened(&dir);
    for keys in ["", "j", "n Enter", "Esc ]", "j j j", "Enter", "Esc ]", "j Enter"] {
        press(&mut app, keys);
        for (columns, lines) in [(1, 1), (2, 3), (9, 4), (24, 8), (40, 10), (80, 24), (101, 30), (200, 60)] {
            check(&frame(&mut app, columns, lines));
        }
        let _ = app.update(Msg::Resize(80, 24));
    }
}

/// The calls that a chain tells of, by the fold.
fn folded(segment: &Path) -> State {
    let (mut fold, mut state) = (Fold::default(), State::new(usize::MAX));
    for line in lines_of(segment) {
        state.apply(&fold.event(&serde_json::from_str(&line).unwrap()));
    }
    state
}

#[test]
fn a_stream_a_journal_and_a_pack_have_the_same_calls_on_every_screen() {
    let tmp = tempfile::tempdir().unwrap();
    let plan = Plan { calls: 40, error_every: 7, timeout_every: 9, ..Plan::default() };
    let written = sessions::write(&plan, tmp.path()).unwrap();
    let pack = written.pack();
    let rows = |state: &State| state.rows().cloned().collect::<Vec<_>>();
    let live = rows(&folded(&written.paths.segment));
    assert_eq!(live.len(), 40);
    for (segment, receipts) in [
        (written.paths.segment.clone(), written.paths.receipts.clone()),
        (pack.join("audit_log.jsonl"), pack.join("receipt_pack.jsonl")),
    ] {
        let mut state = State::new(usize::MAX);
        state.read(&segment, &receipts).unwrap();
        assert_eq!(rows(&state), live);
        let listed = lines_of(&receipts);
        let calls = listed.iter().filter_map(|line| match row::read(row::Kind::Receipts, line.as_bytes(), None) {
            row::EvidenceRow::Call(call) => Some(*call),
            _ => None,
        });
        let mut calls: Vec<_> = calls.collect();
        calls.sort_by_key(CallRow::place);
        assert_eq!(calls, live);
        let (mut book, mut before) = (Vec::new(), None);
        for (n, line) in listed.iter().enumerate() {
            book.push(row::problem(row::Kind::Receipts, n as u64, line.as_bytes(), &mut before));
        }
        let problems = live.iter().filter(|call| words::is_problem(call)).count();
        assert_eq!(book.iter().filter(|bad| **bad).count(), problems + 1, "and the end, which is not complete");
    }
}

#[test]
fn a_call_that_runs_in_a_journal_is_shown_as_running() {
    let mut session = Growing::new(400);
    session.grow_to(30);
    pictures("pack-journal-running", &session.target(), "]");
    let mut app = app_of(session.target(), 80, 24);
    assert!(shown(&mut app).contains("running      1 call: "), "{}", shown(&mut app));
    press(&mut app, "] G");
    let call = |app: &App| app.pack.running().0.first().map(|call| (**call).clone());
    let first = call(&app).unwrap();
    assert!(shown(&mut app).contains("… running") && shown(&mut app).contains("30 receipts, 1 running"));
    // The fold gives the same rows as a live stream.
    assert_eq!(folded(&session.segment.0).row(first.invocation_id), Some(&first));
    // The filter holds for it too.
    press(&mut app, "/ 'outcome:err' Enter");
    assert_eq!((call(&app), app.pack.receipts.as_ref().unwrap().len() > 0), (None, true));
    press(&mut app, "Esc / 'outcome:running' Enter");
    assert_eq!((call(&app).as_ref(), place(&app).1), (Some(&first), 0));
    press(&mut app, "Esc");
    // It ends, and another one runs.
    session.grow_to(31);
    session.pass(&mut app);
    assert_ne!(call(&app).unwrap().invocation_id, first.invocation_id);
    // An event that does not read hides no other call.
    session.segment.1[119] = session.segment.1[119].replace("\"v\":1", "\"v\":x");
    session.grow_to(31);
    press(&mut app, "v");
    assert_eq!(app.pack.running().0.len(), 1);
    // With the chain's end nothing runs.
    session.grow_to(402);
    session.pass(&mut app);
    assert_eq!(call(&app), None);
    assert!(!shown(&mut app).contains("running"));
}

#[test]
fn all_messages_of_a_pack_are_listed_and_filtered() {
    let (_tmp, dir) = packed(&plan());
    let mut app = opened(&dir);
    press(&mut app, "m");
    assert_eq!(app.place(), Contexts::CROSSED);
    let seen = shown(&mut app);
    assert!(seen.contains("120 messages") && seen.contains("→ request") && seen.contains("← response"), "{seen}");
    press(&mut app, "G");
    assert!(shown(&mut app).contains("SHA-256"), "{}", shown(&mut app));
    press(&mut app, "/ 'error' Enter");
    let seen = shown(&mut app);
    assert!(seen.contains("! error") && !seen.contains("← response") && seen.contains("of 242"), "{seen}");
    press(&mut app, "Esc");
    assert!(shown(&mut app).contains("120 messages"));
    press(&mut app, "Enter");
    assert!(shown(&mut app).contains("audit_log.jsonl"), "{}", shown(&mut app));
    press(&mut app, "Esc m");
    assert_eq!(app.place(), Contexts::RECEIPTS);
    pictures("pack-messages", &Target::Pack(dir), "m G");
}

#[test]
fn the_calls_of_a_pack_are_a_picture_of_time() {
    let (_tmp, dir) = packed(&plan());
    let mut app = opened(&dir);
    press(&mut app, "t");
    assert_eq!(app.place(), Contexts::TIMELINE);
    let seen = shown(&mut app);
    assert!(seen.contains("all of it") && seen.contains("synthetic      60 ") && seen.contains("not ok"), "{seen}");
    press(&mut app, "m");
    assert_eq!(app.place(), Contexts::CROSSED);
    press(&mut app, "t t");
    assert_eq!(app.place(), Contexts::RECEIPTS);
    pictures("pack-timeline", &Target::Pack(dir), "t");
}

#[test]
fn a_proof_of_what_is_selected_is_written_and_says_what_it_discloses() {
    let (_tmp, dir) = packed(&plan());
    let mut app = opened(&dir);
    press(&mut app, "] P");
    assert!(app.toast().unwrap().text.contains("not a call or an event"), "{:?}", app.toast());
    press(&mut app, "Down P");
    assert!(app.toast().unwrap().text.contains("the pack has no checkpoints"), "{:?}", app.toast());
    let mut pack = forge::small();
    let sealer = forge::Sealer::of(pack.session(), 3, forge::key_k());
    let all = pack.lines(forge::EVENTS).len();
    let lines = pack.sealed_at(&sealer, &[all]);
    pack.set_lines(forge::CHECKPOINTS, &lines);
    pack.sign(&forge::key_k());
    let tmp = tempfile::tempdir().unwrap();
    pack.write(&tmp.path().join("pack"));
    let receipt: serde_json::Value = serde_json::from_str(&pack.lines(forge::RECEIPTS)[1]).unwrap();
    let id = crate::model::ReceiptId::parse(receipt["receipt_id"].as_str().unwrap()).unwrap();
    for (what, discloses) in [(What::Receipt(id), "the receipt, its event"), (What::Event(0), "the event and")] {
        let said = prove::written(&tmp.path().join("pack"), what, tmp.path()).unwrap();
        let (path, words) = said.split_once(" discloses ").unwrap();
        assert!(words.starts_with(discloses), "{said}");
        let proof = Proof::parse(&fs::read(path).unwrap()).unwrap();
        assert_eq!(proof.verify(&[]).unwrap().receipt_line.is_some(), what == What::Receipt(id));
    }
}
