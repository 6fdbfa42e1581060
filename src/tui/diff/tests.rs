use super::{rows::Section, *};
use crate::{
    model::{
        sha256_hex,
        surface::{ChangeKind as SurfaceChange, Facet, Severity},
    },
    pack::diff::{CallChange, CallSide, ChangeKind, Difference, DifferenceKind, SurfaceGroup},
    tui::{
        app::{App, Start},
        msg::Msg,
        testkit::{SIZES, app, assert_frames, check, frame, frame_of_screen, now, press, press_only, settle, text},
    },
};
use assay_support::sessions::{self, Ending, Plan};
use serde_json::json;
use std::{
    path::Path,
    sync::{Arc, Mutex},
};

const POLICY: &str = "version: \"1\"\ndefault: allow\n";

fn pack(dir: &Path, name: &str, plan: &Plan) -> PathBuf {
    let written = sessions::write(plan, dir.join(format!("{name}_audit"))).unwrap();
    let policies = dir.join("policies");
    std::fs::create_dir_all(&policies).unwrap();
    let snapshot = format!("policy_sha256_{}.yaml", sha256_hex(POLICY.as_bytes()));
    std::fs::write(policies.join(snapshot), POLICY).unwrap();
    let built = written.pack_with(plan.policy_hash.is_some().then_some(policies.as_path()));
    let here = dir.join(name);
    std::fs::rename(built, &here).unwrap();
    here
}

fn tools(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

/// A baseline and a worse pack.
fn packs(dir: &Path) -> (PathBuf, PathBuf) {
    let a = tools(&["read_file", "search", "old_tool", "日本語の道具"]);
    let b = tools(&["read_file", "search", "\u{1b}[31mred\u{202e}", "日本語の道具"]);
    let policy_hash = Some(format!("sha256:{}", sha256_hex(POLICY.as_bytes())));
    let baseline = Plan { seed: 1, calls: 40, tools: a, big_result: Some(300), ..Plan::default() };
    let other =
        Plan { seed: 2, calls: 44, tools: b, big_result: Some(300), error_every: 9, policy_hash, ..Plan::default() };
    (pack(dir, "baseline_pack", &baseline), pack(dir, "proof_pack", &other))
}

fn compared(a: &Path, b: &Path) -> Document {
    let options = VerifyOptions { now: now(), ..VerifyOptions::default() };
    let mut document = diff(a, b, &options, None, &mut |_| ControlFlow::Continue(())).unwrap();
    "packs/baseline_pack".clone_into(&mut document.a.path);
    "packs/proof_pack_20260315T113000Z".clone_into(&mut document.b.path);
    document
}

/// A call whose results differ in every way.
fn changed_call() -> CallChange {
    let side = |receipt: &str, outcome: &str, verdict: &str, hash: &str, us| CallSide {
        receipt_id: receipt.to_owned(),
        outcome: outcome.to_owned(),
        policy_verdict: verdict.to_owned(),
        result_hash: Some(format!("sha256:{}", hash.repeat(32))),
        result_is_redacted: false,
        duration_us: Some(us),
    };
    let place = |path: &str, kind, old, new| Difference { path: path.to_owned(), kind, old, new, cut: false };
    CallChange {
        kind: ChangeKind::Changed,
        tool: "list_directory".to_owned(),
        arguments_hash: format!("sha256:{}", "5e".repeat(32)),
        a: Some(side("mtc_00112233445566aa", "forwarded", "allowed", "1a", 12_400)),
        b: Some(side("mtc_8899aabbccddeeff", "denied", "denied", "2b", 31_250)),
        result_differences: vec![
            place(
                "/content/0/text",
                DifferenceKind::Changed,
                Some(json!("README.md\nsrc\nLICENSE")),
                Some(json!("README.md\nsrc\n\u{1b}[2J\u{202e}gpj.exe")),
            ),
            place("/content/1", DifferenceKind::Added, None, Some(json!({"type": "text", "text": "日本語 added"}))),
            place("/structuredContent/a b/total", DifferenceKind::Changed, Some(json!(12)), Some(json!("12"))),
            place("/isError", DifferenceKind::Removed, Some(json!(false)), None),
        ],
        result_differences_omitted: 3,
    }
}

fn worse() -> Document {
    let tmp = tempfile::tempdir().unwrap();
    let (a, b) = packs(tmp.path());
    let mut document = compared(&a, &b);
    document.comparison.as_mut().unwrap().changes.insert(0, changed_call());
    document
}

/// A screen that shows a given document, independent of its job.
fn showing(document: &Document) -> DiffScreen {
    let mut screen = DiffScreen::new(Vec::new());
    screen.compare("none_a".into(), "none_b".into());
    let done = DiffUpdate::Done(Box::new(document.clone()));
    let job = Job::new(screen.ticket.as_ref().unwrap(), "compare", move |teller| teller.tell(done));
    for told in told_by(vec![Effect::Start(job)]) {
        screen.told(told, at(80, 24)).unwrap();
    }
    screen
}

fn told_by(effects: Vec<Effect>) -> Vec<Told> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    for effect in effects {
        let Effect::Start(job) = effect else { panic!("{effect:?}") };
        let ear = Arc::clone(&heard);
        job.run(move |told| {
            ear.lock().unwrap().push(told);
            true
        });
    }
    Arc::into_inner(heard).unwrap().into_inner().unwrap()
}

fn at(columns: u16, lines: u16) -> At {
    At { area: Rect::new(0, 0, columns, lines), now: now() }
}

/// The dashboard with this on its diff screen.
fn dashboard(document: &Document) -> App {
    let mut app = app(Start::default());
    app.diff = showing(document);
    press(&mut app, "4");
    app
}

fn shown(app: &mut App) -> String {
    text(&frame(app, 80, 24))
}

#[test]
fn a_comparison_is_a_picture() {
    let document = worse();
    assert_frames("diff", |columns, lines| {
        let mut app = dashboard(&document);
        press(&mut app, "n n");
        let frame = frame(&mut app, columns, lines);
        check(&frame);
        frame
    });
}

#[test]
fn the_selected_difference_is_a_picture() {
    let document = worse();
    assert_frames("diff-detail", |columns, lines| {
        let mut app = dashboard(&document);
        frame(&mut app, columns, lines);
        press(&mut app, "n n Enter n");
        let frame = frame(&mut app, columns, lines);
        check(&frame);
        frame
    });
}

#[test]
fn tools_and_versions_are_a_picture() {
    let document = worse();
    assert_frames("diff-tools", |columns, lines| {
        let mut app = dashboard(&document);
        frame(&mut app, columns, lines);
        press(&mut app, "G PgUp PgDn k k k k");
        let frame = frame(&mut app, columns, lines);
        check(&frame);
        frame
    });
}

fn tampered(dir: &Path) -> Document {
    let (a, b) = packs(dir);
    let receipts = b.join("receipt_pack.jsonl");
    let lines = std::fs::read_to_string(&receipts).unwrap();
    std::fs::write(&receipts, lines.replacen("read_file", "read_fi\u{202e}e", 1)).unwrap();
    compared(&a, &b)
}

#[test]
fn a_pack_that_does_not_verify_is_a_picture() {
    let tmp = tempfile::tempdir().unwrap();
    let document = tampered(tmp.path());
    assert!(document.comparison.is_none());
    assert_frames("diff-tampered", |columns, lines| {
        let mut app = dashboard(&document);
        press(&mut app, "n");
        let frame = frame(&mut app, columns, lines);
        check(&frame);
        frame
    });
    let mut app = dashboard(&document);
    let lines = shown(&mut app);
    assert!(lines.contains("not compared: B does not verify (TAMPERED)"), "{lines}");
    assert!(lines.contains("NOT COMPARED") && lines.contains("✓ PASS"), "{lines}");
}

#[test]
fn a_comparison_that_runs_is_a_picture_and_escape_stops_it() {
    let mut screen = DiffScreen::new(Vec::new());
    screen.compare("packs/baseline_pack".into(), "packs/proof_pack".into());
    let progress = Progress { stage: Stage::VerifyChain, done_bytes: 450 << 20, total_bytes: 1 << 30 };
    screen.state = State::Running(Side::B, Some(progress));
    assert_frames("diff-running", |columns, lines| frame_of_screen(&screen, columns, lines));

    let tmp = tempfile::tempdir().unwrap();
    let (a, b) = packs(tmp.path());
    let mut app = app(Start::default());
    let effects = app.diff.compare(a, b);
    press_only(&mut app, "4");
    assert!(shown(&mut app).contains("Esc cancels"));
    press_only(&mut app, "Esc");
    assert_eq!(app.shown(), super::super::msg::ScreenId::Diff);
    // The job sees that it was cancelled, and its messages are ignored.
    let told = told_by(effects);
    assert!(matches!(told.last().unwrap().news(), Some(DiffUpdate::Stopped)));
    for told in told {
        app.update(Msg::Told(told));
    }
    assert!(shown(&mut app).contains("was cancelled"));
    let effects = press_only(&mut app, "v");
    assert!(matches!(effects[..], [Effect::Start(_)]));
    settle(&mut app, effects);
    assert!(shown(&mut app).contains("REGRESSION"), "{}", shown(&mut app));
}

#[test]
fn progress_says_which_side_and_that_pairing_came() {
    let tmp = tempfile::tempdir().unwrap();
    let (a, b) = packs(tmp.path());
    let mut screen = DiffScreen::new(Vec::new());
    let effects = screen.compare(a, b);
    let mut sides = Vec::new();
    for told in told_by(effects) {
        if let Some(DiffUpdate::Progress(side, p)) = told.news() {
            sides.push((*side, p.stage));
        }
        screen.told(told, at(80, 20)).unwrap();
    }
    assert_eq!(sides.first(), Some(&(Side::A, Stage::ValidateSchema)));
    assert!(sides.contains(&(Side::B, Stage::ValidateSchema)) && sides.contains(&(Side::B, Stage::SignerTrust)));
    assert!(screen.document().is_some());
}

#[test]
fn what_is_no_pack_says_so() {
    let mut app = app(Start { compare: Some(("no/such".into(), "thing".into())), ..Start::default() });
    let lines = shown(&mut app);
    assert!(lines.contains("no/such is not a proof pack") && lines.contains("not compared"), "{lines}");
    check(&frame(&mut app, 30, 5));
}

#[test]
fn the_next_regression_is_found_and_comes_round() {
    let mut app = dashboard(&worse());
    let mut seen = Vec::new();
    for _ in 0..12 {
        press(&mut app, "n");
        seen.push(app.diff.selected().unwrap());
    }
    assert!(matches!(seen[..2], [DiffRow::Worse(0), DiffRow::Change(0)]), "{seen:?}");
    let first = seen.iter().skip(1).position(|r| *r == seen[0]).unwrap();
    press(&mut app, "N");
    assert_eq!(app.diff.selected().unwrap(), seen[10], "{first}");
    let tmp = tempfile::tempdir().unwrap();
    let same = pack(tmp.path(), "same", &Plan::default());
    let mut app = dashboard(&compared(&same, &same));
    press(&mut app, "n");
    assert!(shown(&mut app).contains("nothing in this list is worse in B"));
}

#[test]
fn a_filter_narrows_calls_and_tools_and_keeps_the_selected_one() {
    let mut app = dashboard(&worse());
    press(&mut app, "n n");
    let selected = app.diff.selected();
    press(&mut app, "/ 'tool:list' Enter");
    assert_eq!(app.diff.selected(), selected);
    let lines = shown(&mut app);
    assert!(lines.contains("1 of 5"), "{lines}");
    assert!(lines.contains("list_directory") && !lines.contains("old_tool"), "{lines}");
    press(&mut app, "/");
    app.update(Msg::Paste(" outcome:nonsense".to_owned()));
    assert!(shown(&mut app).contains("list_directory"), "the last good filter stays");
    press(&mut app, "Esc Esc");
    assert_eq!(app.diff.filter(), Some(""));
    press(&mut app, "/ 'outcome:denied' Enter");
    let lines = shown(&mut app);
    assert!(lines.contains("list_directory") && !lines.contains("  + "), "{lines}");
}

#[test]
fn what_is_copied_is_the_id_the_value_the_path_or_all_of_it() {
    let mut app = dashboard(&worse());
    let mut copied = |keys: &str| match press(&mut app, keys).pop() {
        Some(Effect::Copy { text, .. }) => text,
        other => panic!("{keys}: {other:?}"),
    };
    assert_eq!(copied("n n y"), "mtc_00112233445566aa\nmtc_8899aabbccddeeff");
    assert!(copied("ctrl-y").contains("\"tool\": \"list_directory\""));
    assert_eq!(copied("Enter n Y"), "$.content[0].text");
    assert_eq!(copied("n n Y"), "$.structuredContent['a b'].total");
    assert_eq!(copied("y"), "12\n\"12\"");
    assert_eq!(copied("j y"), "12");
    press(&mut app, "g Y");
    assert!(app.toast().unwrap().text.contains("have a JSON path"));
}

#[test]
fn sections_fold_and_the_detail_opens_and_closes() {
    let mut app = dashboard(&worse());
    let rows = app.diff.rows.len();
    press(&mut app, "z");
    // Not both sessions asked what their servers offer.
    assert_eq!(app.diff.rows.len(), Section::ALL.len() - 1);
    press(&mut app, "z g Enter");
    assert_eq!(app.diff.rows.len(), rows - 4);
    press(&mut app, "g l j j Enter");
    assert!(!shown(&mut app).contains("Changed calls"), "the detail has all of the screen");
    press(&mut app, "Esc");
    assert!(shown(&mut app).contains("Changed calls"));
    press(&mut app, "Tab j j Tab");
    assert_eq!((app.diff.focus, app.diff.detail.at), (Part::First, 2));
    press(&mut app, "j h");
    assert_eq!(app.diff.selected(), Some(DiffRow::Head(Section::Sides)));
}

#[test]
fn what_the_servers_offered_differently_is_listed_by_groups() {
    let mut document = worse();
    let group = |kind, severity, path: &str, names: &[&str], items, after: &str| SurfaceGroup {
        kind,
        severity,
        facet: Some(Facet::Tools),
        path: path.to_owned(),
        before: Some("\"reads\"".to_owned()),
        after: Some(after.to_owned()),
        items,
        names: tools(names),
    };
    document.comparison.as_mut().unwrap().surface = vec![
        group(
            SurfaceChange::TextChanged,
            Severity::High,
            "/description",
            &["read_file", "search"],
            30,
            "\"reads \u{202e}all\"",
        ),
        group(SurfaceChange::Title, Severity::Low, "/title", &["search"], 1, "\"Search\""),
    ];
    let mut app = dashboard(&document);
    press(&mut app, "G k");
    let lines = shown(&mut app);
    assert!(lines.contains("The server's surface  2"), "{lines}");
    assert!(lines.contains("high      text_changed        tools/description read_file, search and "), "{lines}");
    check(&frame(&mut app, 80, 24));
    check(&frame(&mut app, 30, 12));
    press(&mut app, "Enter");
    let lines = shown(&mut app);
    assert!(lines.contains("and 28 more") && lines.contains("\"reads\"") && !lines.contains('\u{202e}'), "{lines}");
    press(&mut app, "Esc / 'tool:read_file' Enter");
    let lines = shown(&mut app);
    assert!(lines.contains("The server's surface  1 of 2"), "{lines}");
}

#[test]
fn clicks_and_the_wheel_go_where_they_point() {
    let mut screen = showing(&worse());
    let wide = at(140, 30);
    screen.click(3, 1, false, wide);
    assert_eq!(screen.selected(), Some(DiffRow::Side(Side::A)));
    screen.click(3, 0, true, wide);
    assert!(screen.folds.has(Section::Sides));
    screen.click(3, 0, true, wide);
    screen.click(3, 1, false, wide);
    screen.wheel(100, 5, 3, wide);
    assert_eq!((screen.detail.at, screen.focus), (3, Part::First));
    screen.click(100, 2, false, wide);
    assert_eq!((screen.detail.at, screen.focus), (1, Part::Second));
    screen.wheel(3, 5, 3, wide);
    assert_eq!(screen.cursor.at, 4);
}

#[test]
fn every_row_has_a_detail_at_every_size() {
    let mut document = worse();
    document.comparison.as_mut().unwrap().changes_omitted = 1_000_000;
    let tmp = tempfile::tempdir().unwrap();
    for document in [document, tampered(tmp.path())] {
        let mut screen = showing(&document);
        for n in 0..screen.rows.len() {
            for (columns, lines) in SIZES.into_iter().chain([(1, 1), (13, 30), (119, 17)]) {
                screen.go(n as u64, at(columns, lines));
                for focus in [Part::First, Part::Second] {
                    screen.focus = focus;
                    check(&frame_of_screen(&screen, columns, lines));
                }
            }
        }
    }
}

#[test]
fn less_complete_is_said_with_its_reasons() {
    let tmp = tempfile::tempdir().unwrap();
    let a = pack(tmp.path(), "a", &Plan::default());
    let b = pack(tmp.path(), "b", &Plan { seed: 2, ending: Ending::Incomplete, ..Plan::default() });
    let mut app = dashboard(&compared(&a, &b));
    let lines = shown(&mut app);
    assert!(lines.contains("! INCOMPLETE") && lines.contains("A is COMPLETE, B is INCOMPLETE"), "{lines}");
}
