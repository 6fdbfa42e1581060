use super::*;
use crate::{
    history,
    live::{
        discovery::tests::run_card,
        protocol::{PackProgress, SessionHead},
        row::Totals,
    },
    model::{WallTime, event::EVENT_VERSION, receipt::SCHEMA_VERSION},
    pack::{
        keys::{Signer, SignerId},
        verify::{Completeness, Integrity, Progress, SignerVerdict, Stage},
    },
    paths::SessionPaths,
    record::mark::Marks,
    tui::{
        app::{App, Start},
        msg::Msg,
        testkit::{assert_frames, check, frame, now, press, settle, text},
    },
};
use assay_support::sessions::{self, Ending, Plan, Written};
use std::fs;

struct Rig {
    tmp: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Self { tmp: tempfile::tempdir().unwrap() }
    }

    fn dir(&self) -> AuditDir {
        AuditDir::at(self.tmp.path().join("audit"))
    }

    /// A session that began so many minutes after the first.
    fn session(&self, minutes: i64, plan: Plan) -> Written {
        let started_ms = now().millis() + minutes * 60_000;
        let plan = Plan { seed: 100 + minutes.unsigned_abs(), started_ms, ..plan };
        sessions::write(&plan, self.dir().root()).unwrap()
    }

    fn packed(&self, minutes: i64, plan: Plan) -> PathBuf {
        self.session(minutes, plan).pack()
    }

    /// Five sessions: sealed, sealed and then changed, incomplete, ended without a pack, died.
    fn five(&self) {
        self.packed(0, Plan { calls: 300, ..Plan::default() });
        let changed = self.packed(17, Plan { calls: 40, ..Plan::default() });
        let file = changed.join("receipt_pack.jsonl");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen("\"seq\":3", "\"seq\":4", 1)).unwrap();
        self.packed(42, Plan { calls: 11, ending: Ending::Incomplete, ..Plan::default() });
        self.session(95, Plan { calls: 3, ..Plan::default() });
        self.remember(&self.session(1500, Plan { calls: 5, ending: Ending::Unterminated, ..Plan::default() }));
    }

    fn paths(&self, written: &Written) -> SessionPaths {
        let name = written.paths.segment.file_name().unwrap().to_str().unwrap();
        self.dir().session_of_segment(name).unwrap()
    }

    /// Leaves the mark of a session that this user's recorder began.
    fn remember(&self, written: &Written) {
        let home = self.tmp.path().join("home");
        crate::paths::create_private_dir(&home).unwrap();
        let id = self.paths(written).id;
        let started = WallTime::from_millis(written.doc.started_at.millis());
        Marks::of(&home).begin(&self.dir(), id, started).unwrap();
    }

    fn places(&self) -> Places {
        let home = self.tmp.path().join("home");
        Places {
            audit_dir: Some(self.dir().root().to_owned()),
            home: Some(home),
            run_dirs: Some(Vec::new()),
            only: false,
        }
    }

    /// A dashboard that shows the packs of this directory, before anything was looked for.
    fn app(&self) -> App {
        let (mut app, _) = App::new(Start::default(), 80, 24, now());
        app.packs = PacksScreen::new(None, Vec::new()).looking_at(self.places());
        app
    }

    /// The same, after everything was found and verified.
    fn looked(&self) -> App {
        let mut app = self.app();
        press(&mut app, "2");
        app
    }

    /// Paths that are the same on every machine, for pictures.
    fn tidy(&self, app: &mut App) {
        let root = self.dir().root().canonicalize().unwrap_or_else(|_| self.dir().root().to_owned());
        let s = &mut app.packs;
        let tidy = |path: &mut PathBuf| {
            if let Ok(rest) = path.strip_prefix(&root) {
                *path = Path::new("/home/ada/work/.assay/mcp").join(rest);
            }
        };
        s.entries.iter_mut().for_each(|e| tidy(&mut e.pack));
        s.checks = std::mem::take(&mut s.checks).into_iter().map(|(mut p, c)| (tidy(&mut p), (p, c)).1).collect();
        s.marked.iter_mut().for_each(tidy);
        s.places.audit_dir = Some("/home/ada/work/.assay/mcp".into());
    }
}

fn shown(app: &mut App) -> String {
    let frame = frame(app, 80, 24);
    check(&frame);
    text(&frame)
}

#[test]
fn a_dead_session_that_was_not_begun_here_is_not_offered_to_recovery() {
    let rig = Rig::new();
    let ours = rig.session(0, Plan { calls: 2, ending: Ending::Unterminated, ..Plan::default() });
    let _ = rig.session(5, Plan { calls: 2, ending: Ending::Unterminated, ..Plan::default() });
    assert_eq!(shown(&mut rig.looked()).matches("died, not yours: left alone").count(), 2);
    rig.remember(&ours);
    let said = shown(&mut rig.looked());
    assert_eq!(said.matches("died, not yours: left alone").count(), 1, "{said}");
    assert_eq!(said.matches("died: assay recover").count(), 1, "{said}");
}

#[test]
fn packs_are_listed_newest_first_with_what_they_verified_to() {
    let rig = Rig::new();
    rig.five();
    let mut app = rig.looked();
    let said = shown(&mut app);
    let at = |what: &str| said.find(what).unwrap_or_else(|| panic!("{what}: {said}"));
    let order = [
        at("died: assay recover"),
        at("ended without a pack"),
        at("! INCOMPLETE"),
        at("✗ TAMPERED"),
        at("✓ PASS     ✓ COMPLETE"),
    ];
    assert!(order.is_sorted(), "{order:?} {said}");
    assert!(said.contains("5 sessions"), "{said}");
    assert_frames("packs", |columns, lines| {
        let mut app = rig.looked();
        press(&mut app, "G m k");
        rig.tidy(&mut app);
        let _ = app.update(Msg::Tick(WallTime::from_millis(now().millis() + 60_000)));
        frame(&mut app, columns, lines)
    });
}

#[test]
fn nothing_is_claimed_before_it_was_computed() {
    let rig = Rig::new();
    rig.packed(0, Plan::default());
    let mut app = rig.app();
    let effects = crate::tui::testkit::press_only(&mut app, "2");
    assert!(shown(&mut app).contains("Looking for packs"));
    // The search runs, the verification that it leads to does not.
    let [Effect::Start(job)] = <[Effect; 1]>::try_from(effects).unwrap() else { panic!() };
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let ear = std::sync::Arc::clone(&heard);
    job.run(move |told| {
        ear.lock().unwrap().push(told);
        true
    });
    let mut later = Vec::new();
    for told in std::mem::take(&mut *heard.lock().unwrap()) {
        later.extend(app.update(Msg::Told(told)));
    }
    let said = shown(&mut app);
    assert!(said.contains("verifying 0 %") && !said.contains("PASS"), "{said}");
    settle(&mut app, later);
    assert!(shown(&mut app).contains("✓ PASS"));
    // Files that changed since are another pack: the old verdict is dropped, and the pack is verified again.
    let pack = app.packs.entries[0].pack.clone();
    fs::write(pack.join("session.json"), "{}").unwrap();
    press(&mut app, "2");
    assert!(shown(&mut app).contains("✗ TAMPERED"));
}

#[test]
fn a_big_pack_waits_for_v_and_esc_stops_it() {
    let rig = Rig::new();
    rig.packed(0, Plan::default());
    let mut app = rig.looked();
    app.packs.entries[0].bytes = 1 << 30;
    app.packs.checks.clear();
    assert!(shown(&mut app).contains("not verified; v verifies"));
    let jobs = crate::tui::testkit::press_only(&mut app, "v");
    assert!(matches!(&jobs[..], [Effect::Start(job)] if job.what.contains("verify")), "{jobs:?}");
    let percent = Progress { stage: Stage::VerifyChain, done_bytes: 30, total_bytes: 100 };
    let pack = app.packs.entries[0].pack.clone();
    app.packs.checks.get_mut(&pack).unwrap().1 = Check::Running(super::percent(percent));
    assert!(shown(&mut app).contains("verifying 30 %"));
    press(&mut app, "Esc");
    assert_eq!(app.shown(), crate::tui::msg::ScreenId::Packs);
    settle(&mut app, jobs);
    let _ = app.update(Msg::Tick(WallTime::from_millis(now().millis() + 60_000)));
    let said = shown(&mut app);
    assert!(said.contains("stopped; v verifies") && !said.contains("PASS"), "{said}");
}

#[test]
fn an_empty_list_says_how_to_record_something() {
    let rig = Rig::new();
    let mut app = rig.looked();
    let said = shown(&mut app);
    assert!(said.contains("assay mcp-proxy --") && said.contains("assay demo"), "{said}");
    assert_frames("packs-empty", |columns, lines| {
        let mut app = rig.looked();
        app.packs.problems.clear();
        rig.tidy(&mut app);
        frame(&mut app, columns, lines)
    });
}

#[test]
fn a_filter_narrows_and_the_selection_stays_on_its_pack() {
    let rig = Rig::new();
    rig.five();
    let mut app = rig.looked();
    press(&mut app, "j j j");
    let selected = app.packs.selected().unwrap().pack.clone();
    let name = app.packs.selected().unwrap().session.clone();
    press(&mut app, &format!("/ 'id:{}' Enter", &name[4..]));
    assert!(shown(&mut app).contains("1 of 5"));
    assert_eq!(app.packs.selected().unwrap().pack, selected);
    press(&mut app, "Esc");
    assert_eq!(app.packs.selected().unwrap().pack, selected);
    press(&mut app, "/ 'server:nobody' Enter");
    assert!(shown(&mut app).contains("No pack matches the filter"));
    press(&mut app, "Esc / 'tool:x'");
    assert!(shown(&mut app).contains("sessions have server:"), "{}", shown(&mut app));
    press(&mut app, "Esc");
    assert!(shown(&mut app).contains("5 sessions"));
}

#[test]
fn packs_open_are_marked_compared_and_copied() {
    let rig = Rig::new();
    rig.five();
    let mut app = rig.looked();
    let warned = |app: &mut App, keys: &str, words: &str| {
        press(app, keys);
        let toast = app.toast().unwrap().text.clone();
        assert!(toast.contains(words), "{keys}: {toast}");
    };
    // Died, ended, incomplete, changed, whole.
    warned(&mut app, "m", "only a pack");
    warned(&mut app, "j j d", "mark the baseline");
    press(&mut app, "m");
    warned(&mut app, "d", "this is the marked pack");
    let (a, b) = (app.packs.entries[2].pack.clone(), app.packs.entries[3].pack.clone());
    assert_eq!(app.packs.marked.as_ref(), Some(&a));
    let effects = app.packs.command(Command::Down, app_at()).unwrap();
    assert!(effects.is_empty());
    let effects = app.packs.command(Command::Compare, app_at()).unwrap();
    assert!(matches!(&effects[..], [Effect::Compare(x, y)] if *x == a && *y == b), "{effects:?}");
    let effects = app.packs.command(Command::Enter, app_at()).unwrap();
    assert!(matches!(&effects[..], [Effect::Open(Target::Pack(p))] if *p == b), "{effects:?}");
    let copied = press(&mut app, "y");
    assert!(matches!(&copied[..], [Effect::Copy { text, .. }] if Path::new(text) == b), "{copied:?}");
    app.packs.command(Command::Top, app_at());
    let effects = app.packs.command(Command::Enter, app_at()).unwrap();
    assert!(matches!(&effects[..], [Effect::Open(Target::Journal { .. })]), "{effects:?}");
    press(&mut app, "n");
    assert_eq!(app.packs.cursor.at, 2, "the next that is not as it should be");
}

fn app_at() -> At {
    At { area: ratatui::layout::Rect::new(0, 1, 80, 22), now: now() }
}

#[test]
fn sessions_that_are_recorded_now_move() {
    let rig = Rig::new();
    let mut app = rig.looked();
    let id = SessionId::from_bits(77);
    let root = rig.dir().root().to_owned();
    let mut session = RunCard { audit_dir: root, ..run_card(id) };
    session.card.server_id = "files".into();
    session.card.started_at = now();
    let totals = Totals { finished: 12, ..Totals::default() };
    let head = SessionHead { chain_head: None, cursor: 0, from: 0, oldest: 0, session, streams: None, totals };
    let line = |line| Msg::Live(Update::Line(Box::new(line)));
    let _ = app.update(line(LiveLine::Session(Box::new(head))));
    let said = shown(&mut app);
    assert!(said.contains("files") && said.contains("… recording") && said.contains("12"), "{said}");
    let progress =
        |state, problems| line(LiveLine::PackProgress(PackProgress { pack: None, problems, session_id: id, state }));
    let _ = app.update(progress(PackState::Sealing, Vec::new()));
    assert!(shown(&mut app).contains("sealing its pack"));
    let _ = app.update(progress(PackState::Failed, vec!["the disk is full".into()]));
    assert!(shown(&mut app).contains("no pack: the disk is full"));
    // A pack that is done is looked for, and verified here before anything is said of it.
    let effects = app.update(progress(PackState::Verified, Vec::new()));
    assert!(matches!(&effects[..], [Effect::Start(job)] if job.what == "look for packs"), "{effects:?}");
}

#[test]
fn sessions_of_other_directories_come_from_the_history() {
    let rig = Rig::new();
    let other = AuditDir::at(rig.tmp.path().join("elsewhere"));
    sessions::write(&Plan { calls: 7, ..Plan::default() }, other.root()).unwrap();
    history::register(&rig.tmp.path().join("home"), other.root()).unwrap();
    let app = rig.looked();
    let [e] = &app.packs.entries[..] else { panic!("{:?}", app.packs.entries) };
    assert_eq!((e.receipts, &*e.server, &e.standing), (Some(9), "synthetic", &Standing::Ended));
    assert!(app.packs.problems.iter().all(|p| p.contains("audit")), "{:?}", app.packs.problems);
}

#[test]
fn a_session_whose_card_is_of_a_later_version_is_too_new_and_not_for_recovery() {
    let rig = Rig::new();
    rig.session(0, Plan { calls: 2, ending: Ending::Unterminated, ..Plan::default() });
    let dir = rig.dir();
    let segments = dir.files().names(&dir.audit()).unwrap();
    let paths = segments.iter().find_map(|name| dir.session_of_segment(name.to_str()?)).unwrap();
    dir.files().make_dir(&dir.live()).unwrap();
    fs::write(&paths.card, "{\"v\":4000}").unwrap();
    let mut app = rig.looked();
    let [e] = &app.packs.entries[..] else { panic!("{:?}", app.packs.entries) };
    let Standing::TooNew(why) = &e.standing else { panic!("{e:?}") };
    assert!(why.contains("too new"), "{why}");
    assert!(!shown(&mut app).contains("assay recover"));
}

#[test]
fn a_session_whose_files_are_of_a_later_version_is_too_new_and_the_others_are_shown() {
    let rig = Rig::new();
    let all = [0, 1, 2, 3].map(|n| {
        let written = rig.session(n, Plan { calls: 2, ending: Ending::Unterminated, ..Plan::default() });
        rig.remember(&written);
        rig.paths(&written)
    });
    let forge = |path: &Path, from: &str, to: &str| {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(from), "{}", path.display());
        fs::write(path, text.replace(from, to)).unwrap();
    };
    // A session that has ended is too new as well.
    let end = format!("{{\"event\":\"chain_end\",\"v\":{}}}\n", EVENT_VERSION + 1);
    fs::write(&all[0].segment, fs::read_to_string(&all[0].segment).unwrap() + &end).unwrap();
    forge(&all[0].segment, "\"v\":1,", &format!("\"v\":\"{EVENT_VERSION}.1\","));
    // If a later version wrote the documents of a pack, only its name is known.
    let pack = rig.packed(9, Plan { calls: 2, ..Plan::default() });
    forge(&pack.join("session.json"), "\"v\":1}", "\"v\":5}");
    forge(&pack.join("pack_manifest.json"), "\"manifest_version\": \"1.0.0\"", "\"manifest_version\": \"1.1.0\"");
    forge(&all[1].receipts, "\"schema_version\":\"3.0\"", "\"schema_version\":\"4.0\"");
    forge(&Marks::of(&rig.tmp.path().join("home")).path(all[2].id), "\"v\":1", "\"v\":4000000000");
    let mut app = rig.looked();
    let why = |n: usize| {
        let e = app.packs.entries.iter().find(|e| e.session == all[n].id.to_string()).unwrap();
        if let Standing::TooNew(why) = &e.standing { why.clone() } else { format!("{:?}", e.standing) }
    };
    let events = format!("audit event is of version {EVENT_VERSION}.1; this assay reads up to {EVENT_VERSION}");
    assert!(why(0).contains(&events), "{}", why(0));
    let receipts = format!("receipt is of version 4.0; this assay reads up to {SCHEMA_VERSION}");
    assert!(why(1).contains(&receipts), "{}", why(1));
    assert!(why(2).contains("session mark is of version 4000000000"), "{}", why(2));
    assert_eq!(why(3), "Died");
    let packed = app.packs.entries.iter().find(|e| e.pack == pack).unwrap();
    assert_eq!((&packed.standing, packed.receipts, &*packed.server), (&Standing::Packed, None, ""));
    assert!(shown(&mut app).contains("left alone: this"));
}

#[test]
fn names_from_outside_are_harmless_at_any_size() {
    let rig = Rig::new();
    rig.five();
    let mut app = rig.looked();
    let evil = "\u{1b}]52;c;AAAA\u{7}\u{9b}2J\r\n\u{202e}漢字\u{200b}";
    for e in &mut app.packs.entries {
        e.server = evil.repeat(200);
        e.session = evil.to_owned();
        e.started = evil.to_owned();
        e.pack = Path::new("/x").join(evil.replace('/', "")).join(e.pack.file_name().unwrap());
    }
    app.packs.problems.push(evil.to_owned());
    let why = Check::Failed(evil.to_owned());
    let first = &app.packs.entries[3];
    app.packs.checks.insert(first.pack.clone(), (first.stamp, why));
    for (columns, lines) in
        [(1, 1), (2, 3), (9, 4), (24, 8), (40, 10), (41, 12), (63, 9), (80, 24), (101, 30), (300, 60)]
    {
        check(&frame(&mut app, columns, lines));
        press(&mut app, "j");
    }
}

#[test]
fn the_worst_verdict_stands_for_all() {
    let v = |integrity, completeness, signer| Verdicts {
        integrity,
        completeness,
        claims: crate::pack::verify::Claims::NotEvaluated,
        signer,
    };
    for (verdicts, word) in [
        (v(Integrity::Tampered, Completeness::NotEvaluated, SignerVerdict::Untrusted), "TAMPERED"),
        (v(Integrity::Pass, Completeness::Incomplete, SignerVerdict::Untrusted), "UNTRUSTED"),
        (v(Integrity::Pass, Completeness::Incomplete, SignerVerdict::Pinned), "INCOMPLETE"),
        (v(Integrity::Pass, Completeness::Complete, SignerVerdict::Unpinned), "PASS"),
    ] {
        assert_eq!(verdicts.in_one().word, word);
    }
}

#[test]
fn a_pack_of_a_later_version_is_too_new_and_not_damaged() {
    use crate::{
        model::pack::{Manifest, pretty},
        pack::sign::sign,
    };
    let rig = Rig::new();
    let pack = rig.packed(0, Plan { calls: 2, ..Plan::default() });
    let path = pack.join("session.json");
    let text = fs::read_to_string(&path).unwrap().replace("\"v\":1}", "\"v\":7}");
    fs::write(&path, &text).unwrap();
    let mut m: Manifest = serde_json::from_slice(&fs::read(pack.join("pack_manifest.json")).unwrap()).unwrap();
    let entry = m.files.iter_mut().find(|f| f.path == "session.json").unwrap();
    entry.sha256 = crate::model::sha256_hex(text.as_bytes());
    let (m, signature) =
        sign(m.attestation, m.files, &Signer::from_seed(SignerId::parse("tester").unwrap(), &sessions::SEED)).unwrap();
    fs::write(pack.join("pack_manifest.json"), pretty(&m).unwrap()).unwrap();
    fs::write(pack.join("pack_signature.sig"), signature).unwrap();
    let said = shown(&mut rig.looked());
    assert!(said.contains("! UNSUPPORTED, too new: session.json is of version 7"), "{said}");
    assert!(!said.contains("TAMPERED") && !said.contains("PASS"), "{said}");
    // A forgery is not hidden by it.
    fs::write(pack.join("verify_transcript.md"), "x").unwrap();
    let said = shown(&mut rig.looked());
    assert!(said.contains("TAMPERED") && !said.contains("UNSUPPORTED"), "{said}");
}
