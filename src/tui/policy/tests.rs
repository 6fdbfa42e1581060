use super::*;
use crate::history::list::Places as PackPlaces;
use crate::tui::{
    app::{App, Start},
    live::tests::Told as Session,
    msg::{Msg, ScreenId},
    packs::PacksScreen,
    testkit::{assert_frames, check, frame, now, press, press_only, settle, text},
};
use assay_support::sessions::{self, Ending, Plan, Written};
use std::{fs, os::unix::fs::PermissionsExt as _};

/// Denies one of the three tools of the sessions here, and asks for the arguments of another.
const POLICY: &str = "version: \"1\"\ndefault: allow\n\ndenylist:\n  - search\n\nconstraints:\n  read_file:\n    \
                      allowed_paths: [\"/workspace/**\", \"!**/.env\"]\n";

struct Rig {
    tmp: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Self { tmp: tempfile::tempdir().unwrap() }
    }

    /// With a policy in its file.
    fn with(policy: &str) -> Self {
        let rig = Self::new();
        fs::write(rig.file(), policy).unwrap();
        rig
    }

    fn file(&self) -> PathBuf {
        self.tmp.path().join("assay.mcp-policy.yaml")
    }

    fn audit(&self) -> PathBuf {
        self.tmp.path().join("audit")
    }

    fn session(&self, plan: &Plan) -> Written {
        sessions::write(plan, self.audit()).unwrap()
    }

    fn pack(&self, plan: &Plan) -> PathBuf {
        self.session(plan).pack()
    }

    /// A dashboard that shows the policy, on everything that was recorded, or on this.
    fn app(&self, against: Vec<PathBuf>) -> App {
        let start = Start {
            live: true,
            audit_dir: Some(self.audit()),
            policy: Some(self.file()),
            against: Some(against),
            ..Start::default()
        };
        let (mut app, effects) = App::new(start, 120, 34, now());
        settle(&mut app, effects);
        app
    }

    fn written(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }
}

fn shown(app: &mut App) -> String {
    let frame = frame(app, 120, 34);
    check(&frame);
    text(&frame)
}

fn says(app: &App) -> &str {
    app.toast().map_or("", |t| &t.text)
}

#[test]
fn what_is_typed_is_judged_at_every_key() {
    let rig = Rig::with("version: \"1\"\ndefault: allow\n");
    rig.session(&Plan { calls: 30, ..Plan::default() });
    let mut app = rig.app(vec![]);
    assert_eq!(app.shown(), ScreenId::Policy);
    let before = shown(&mut app);
    assert!(before.contains("no call would be newly denied"), "{before}");
    press(&mut app, "G i 'denylist: [search]'");
    let after = shown(&mut app);
    assert!(after.contains("10 of 30 calls would now be denied"), "{after}");
    assert!(after.contains("denylist[0] (search)"), "{after}");
    assert!(after.contains("yaml  changed"), "{after}");
    // Written only when asked for.
    assert_eq!(rig.written(), "version: \"1\"\ndefault: allow\n");
    press(&mut app, "Esc w");
    assert_eq!(rig.written(), "version: \"1\"\ndefault: allow\ndenylist: [search]");
    assert!(says(&app).starts_with("written: "), "{}", says(&app));
    assert!(app.policy.unsaved().is_none());
    press(&mut app, "u");
    assert!(shown(&mut app).contains("yaml  changed  error at"), "undo brings the text before the last key back");
}

#[test]
fn an_error_stands_under_its_place_and_the_last_good_result_stays() {
    let rig = Rig::with(POLICY);
    rig.session(&Plan { calls: 30, ..Plan::default() });
    let mut app = rig.app(vec![]);
    press(&mut app, "j j i 'allowlst: [x]' Enter");
    let said = shown(&mut app);
    let lines: Vec<&str> = said.lines().collect();
    let at = lines.iter().position(|l| l.contains("allowlst: [x]")).unwrap();
    let column = |line: &str, what: &str| line.find(what).unwrap();
    assert_eq!(column(lines[at + 1], "^^^^^^^^"), column(lines[at], "allowlst"), "{said}");
    assert!(said.contains("allowlist"), "the hint names the key that was meant: {said}");
    assert!(said.contains("From the last text without an error:"), "{said}");
    assert!(said.contains("10 of 30 calls would now be denied"), "{said}");
    // n finds it from anywhere.
    press(&mut app, "Esc G n");
    assert_eq!(app.policy.editor.place(), (3, 1));
}

#[test]
fn a_file_that_is_not_there_begins_as_a_commented_policy() {
    let rig = Rig::new();
    rig.session(&Plan::default());
    let mut app = rig.app(vec![]);
    let said = shown(&mut app);
    assert!(said.contains("yaml  new") && said.contains("# Which tools an agent may call"), "{said}");
    assert!(app.policy.unsaved().is_none(), "nobody has typed anything");
    press(&mut app, "w");
    assert_eq!(rig.written(), STARTER);
    assert_eq!(fs::metadata(rig.file()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn an_error_and_somebody_elses_changes_are_written_over_only_when_asked_twice() {
    let rig = Rig::with(POLICY);
    rig.session(&Plan::default());
    let mut app = rig.app(vec![]);
    press(&mut app, "i 'x' Esc w");
    assert!(says(&app).contains("has an error") && says(&app).contains("w again"), "{}", says(&app));
    assert_eq!(rig.written(), POLICY);
    // Anything else in between is a change of mind.
    press(&mut app, "j w");
    assert_eq!(rig.written(), POLICY);
    press(&mut app, "w");
    assert_eq!(rig.written(), format!("x{POLICY}"));
    press(&mut app, "u");
    fs::write(rig.file(), "of: somebody\n").unwrap();
    press(&mut app, "w");
    assert!(says(&app).contains("changed by somebody else"), "{}", says(&app));
    assert_eq!(rig.written(), "of: somebody\n");
    press(&mut app, "R");
    assert!(says(&app).contains("R again"), "{}", says(&app));
    press(&mut app, "R");
    assert!(shown(&mut app).contains("of: somebody"));
    assert!(app.policy.unsaved().is_none());
    press(&mut app, "u");
    assert!(shown(&mut app).contains("denylist:"), "undo brings the text back");
}

#[test]
fn a_text_that_cannot_be_written_is_not_lost() {
    let rig = Rig::with(POLICY);
    let mut app = rig.app(vec![]);
    press(&mut app, "G i '# more' Esc");
    fs::remove_file(rig.file()).unwrap();
    fs::create_dir(rig.file()).unwrap();
    press(&mut app, "w");
    assert!(says(&app).contains("it is a directory") && says(&app).contains("still here"), "{}", says(&app));
    let (path, text) = app.policy.unsaved().unwrap();
    assert_eq!((path, text), (rig.file().as_path(), format!("{POLICY}# more")));
}

#[test]
fn what_is_no_policy_file_is_not_edited() {
    let rig = Rig::new();
    let bad: [(&[u8], &str); 2] = [(b"\xff\xfe", "not UTF-8"), (&vec![b' '; (1 << 20) + 1], "longer than")];
    for (bytes, why) in bad {
        fs::write(rig.file(), bytes).unwrap();
        let mut app = rig.app(vec![]);
        assert!(shown(&mut app).contains(why), "{why}: {}", shown(&mut app));
        press(&mut app, "i x w");
        assert!(says(&app).contains(why), "{}", says(&app));
        assert_eq!(fs::read(rig.file()).unwrap(), bytes);
    }
}

#[test]
fn line_ends_mode_and_link_of_a_file_stay_as_they_are() {
    let rig = Rig::new();
    let real = rig.tmp.path().join("real.yaml");
    fs::write(&real, "version: \"1\"\r\ndefault: deny\r\n").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, rig.file()).unwrap();
    let mut app = rig.app(vec![]);
    press(&mut app, "G i '# end' Enter Esc w");
    assert_eq!(fs::read_to_string(&real).unwrap(), "version: \"1\"\r\ndefault: deny\r\n# end\r\n");
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(rig.file()).unwrap().is_symlink());
    assert_eq!(fs::read_dir(rig.tmp.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn what_is_selected_elsewhere_is_judged_here() {
    let rig = Rig::with(POLICY);
    let pack = rig.pack(&Plan { calls: 9, ..Plan::default() });
    rig.session(&Plan { calls: 30, seed: 2, ..Plan::default() });
    let mut app = rig.app(vec![]);
    assert!(shown(&mut app).contains("13 of 39 calls would now be denied"), "{}", shown(&mut app));
    assert!(shown(&mut app).contains("against all sessions of"));
    let effects = app.update(Msg::Ask(Effect::Open(Target::Pack(pack.clone()))));
    settle(&mut app, effects);
    assert_eq!(app.shown(), ScreenId::Pack);
    press(&mut app, "5");
    let said = shown(&mut app);
    assert!(said.contains("3 of 9 calls would now be denied"), "{said}");
    assert!(said.contains("against proof_pack_20260315T113000Z"), "{said}");
    press(&mut app, "a");
    assert!(shown(&mut app).contains("13 of 39 calls"), "{}", shown(&mut app));
    press(&mut app, "a o");
    assert_eq!(app.shown(), ScreenId::Pack);
    // From the list of packs it is the one under the cursor.
    app.packs = PacksScreen::new(None, Vec::new()).looking_at(PackPlaces {
        audit_dir: Some(rig.audit()),
        home: Some(rig.tmp.path().join("home")),
        run_dirs: Some(Vec::new()),
        only: false,
    });
    press(&mut app, "2 G 5");
    let said = shown(&mut app);
    assert!(said.contains("of 9 calls") || said.contains("of 30 calls"), "{said}");
}

#[test]
fn calls_that_change_are_listed_with_rule_and_reason() {
    let rig = Rig::with(POLICY);
    let mut app = rig.app(vec![rig.pack(&Plan { calls: 9, ..Plan::default() })]);
    press(&mut app, "Tab n");
    let said = shown(&mut app);
    for what in [
        "would now be denied  3",
        "unknown  3",
        "3 are unknown: their arguments were not stored",
        "the tool search is on the denylist",
        "rule denylist[0] (search) (denylist), line 5",
        "by rule",
        "constraints.read_file.allowed_paths",
        "by tool",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
    let copied = press(&mut app, "y");
    assert!(matches!(&copied[..], [Effect::Copy { text, .. }] if text.starts_with("mtc_")), "{copied:?}");
    // To the rule, and back.
    press(&mut app, "l");
    assert_eq!(app.policy.editor.place(), (5, 1));
    press(&mut app, "Tab");
    // A heading folds; Enter on a call shows all about it.
    press(&mut app, "k Enter");
    assert!(!shown(&mut app).contains("the tool search is on the denylist"));
    press(&mut app, "Enter j Enter");
    assert!(!shown(&mut app).contains("by tool"), "{}", shown(&mut app));
    press(&mut app, "Esc");
    assert!(shown(&mut app).contains("by tool"));
    // Behind the last of the six comes the first.
    let here = app.policy.results.selected();
    press(&mut app, "n n n n n n");
    assert_eq!(app.policy.results.selected(), here);
}

#[test]
fn the_least_that_the_calls_need_is_proposed_and_taken_back() {
    let rig = Rig::with(POLICY);
    rig.session(&Plan { calls: 9, tools: vec!["read_file".into(), "list".into()], ..Plan::default() });
    let mut app = rig.app(vec![]);
    press(&mut app, "p");
    let said = shown(&mut app);
    assert!(said.contains("default: deny") && said.contains("\"read_file\"    # 5 calls"), "{said}");
    assert!(said.contains("no call would be newly denied"), "{said}");
    press(&mut app, "u");
    assert!(app.policy.unsaved().is_none());
    assert!(shown(&mut app).contains("denylist:"));
    press(&mut app, "ctrl-r");
    assert!(shown(&mut app).contains("default: deny"));
}

#[test]
fn a_session_that_lives_is_judged_again_as_calls_come() {
    let rig = Rig::with(POLICY);
    let written = rig.session(&Plan { calls: 6, ending: Ending::Unterminated, ..Plan::default() });
    let target = Target::Journal {
        title: written.doc.session_id.to_string(),
        segment: written.paths.segment.clone(),
        receipts: written.paths.receipts.clone(),
    };
    let mut app = rig.app(vec![]);
    let effects = app.update(Msg::Ask(Effect::Open(target)));
    settle(&mut app, effects);
    press(&mut app, "5");
    assert!(shown(&mut app).contains("2 of 6 calls"), "{}", shown(&mut app));
    // Its file grows; the tick after the news reads it again.
    let line = fs::read_to_string(&written.paths.receipts).unwrap();
    let call = line.lines().rfind(|l| l.contains("\"search\"")).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&written.paths.receipts).unwrap();
    std::io::Write::write_all(&mut file, format!("{call}\n").as_bytes()).unwrap();
    let later = |s: i64| Msg::Tick(WallTime::from_millis(now().millis() + s * 1000));
    let effects = app.update(later(2));
    settle(&mut app, effects);
    assert!(shown(&mut app).contains("2 of 6 calls"), "nothing was heard yet");
    let mut other = Session::new(77, "server");
    let news = other.ends(1, "search", 0, crate::model::Outcome::Forwarded, crate::model::PolicyVerdict::NoPolicy, 10);
    app.update(Msg::Live(news));
    let effects = app.update(later(4));
    assert!(effects.is_empty(), "another session is of no interest");
    let mut this = Session::new(0, "server").of(SessionId::from_bits(written.doc.session_id.bits()));
    let news = this.ends(1, "search", 0, crate::model::Outcome::Forwarded, crate::model::PolicyVerdict::NoPolicy, 10);
    app.update(Msg::Live(news));
    let effects = app.update(later(6));
    settle(&mut app, effects);
    assert!(shown(&mut app).contains("3 of 7 calls"), "{}", shown(&mut app));
}

#[test]
fn keys_while_typing_are_text_and_stale_jobs_are_passed_over() {
    let rig = Rig::with("version: \"1\"\n");
    rig.session(&Plan::default());
    let mut app = rig.app(vec![]);
    // Each key starts a job and stops the one before; only the last one is listened to.
    let effects = press_only(&mut app, "G i 'default: allow'");
    assert!(effects.len() >= 14, "{}", effects.len());
    settle(&mut app, effects);
    let said = shown(&mut app);
    assert!(said.contains("no call would be newly denied"), "{said}");
    // q, 1, :, / and w are letters here; Esc ends it.
    press(&mut app, "Enter '#q1:/w?' Esc");
    assert_eq!(app.shown(), ScreenId::Policy);
    assert!(shown(&mut app).contains("#q1:/w?"));
    press(&mut app, "q");
    assert_eq!(app.shown(), ScreenId::Policy, "the first screen: q leaves");
    press(&mut app, "i");
    app.update(Msg::Paste("\r\nx: 1\r\ny: 2".to_owned()));
    assert!(app.policy.unsaved().unwrap().1.ends_with("#q1:/w?\nx: 1\ny: 2"), "{:?}", app.policy.unsaved());
}

#[test]
fn the_text_is_edited_as_yaml_wants_it() {
    let mut e = Editor::new("a:", Some("a:".to_owned()));
    let type_ = |e: &mut Editor, text: &str| {
        for key in crate::tui::testkit::keys(text) {
            e.key(key);
        }
    };
    type_(&mut e, "End Enter '- b' Enter '- c'");
    assert_eq!(e.text(), "a:\n  - b\n  - c");
    type_(&mut e, "Shift-Tab End Enter Tab 'x'");
    assert_eq!(e.text(), "a:\n  - b\n- c\n  x");
    type_(&mut e, "ctrl-w ctrl-u");
    assert_eq!(e.text(), "a:\n  - b\n- c\n");
    assert!(e.is_modified());
    while e.undo() {}
    assert_eq!(e.text(), "a:");
    assert!(!e.is_modified());
    while e.redo() {}
    assert_eq!(e.text(), "a:\n  - b\n- c\n");
    e.replace("one\ntwo");
    assert_eq!(e.place(), (1, 1));
    e.undo();
    assert_eq!(e.text(), "a:\n  - b\n- c\n");
    assert!(!e.paste("too long", 12) || e.text().len() <= 12);
}

#[test]
fn frames() {
    let rig = Rig::with(POLICY);
    let plan = Plan {
        calls: 312,
        tools: ["read_file", "list_directory", "search", "fetch"].map(str::to_owned).into(),
        ..Plan::default()
    };
    let pack = rig.pack(&plan);
    assert_frames("policy", |columns, lines| {
        let mut app = rig.app(vec![pack.clone()]);
        app.policy.chosen.as_mut().unwrap().0.title = "proof_pack_20260315T113000Z".to_owned();
        frame(&mut app, columns, lines);
        press(&mut app, "Tab n j");
        let shown = frame(&mut app, columns, lines);
        check(&shown);
        shown
    });
    assert_frames("policy-typing", |columns, lines| {
        let mut app = rig.app(vec![pack.clone()]);
        app.policy.chosen.as_mut().unwrap().0.title = "proof_pack_20260315T113000Z".to_owned();
        frame(&mut app, columns, lines);
        press(&mut app, "j j j j j i Enter '  fetch: [\"a*\"' Esc i");
        let shown = frame(&mut app, columns, lines);
        check(&shown);
        shown
    });
    assert_frames("policy-nothing", |columns, lines| {
        let rig = Rig::new();
        let mut app = rig.app(vec![]);
        app.policy.audit_dir = ".assay/mcp".into();
        app.policy.nothing = Some(".assay/mcp: it does not exist".to_owned());
        frame(&mut app, columns, lines)
    });
}
