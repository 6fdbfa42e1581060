//! For any keys, screen size, and names of tools, servers and packs: no panic, no control sequences for the terminal,
//! no half glyph, and the same frame twice.

use super::{
    app::{App, Start},
    keymap::{Key, TABLE},
    live::tests::Told,
    msg::{Effect, Msg, ScreenId, Target},
    testkit::{self, check, frame, now, press, row, settle},
    theme::{Palette, Theme},
    view,
};
use crate::model::{Outcome, PolicyVerdict, Profile, WallTime};
use assay_support::sessions::{self, Plan};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;
use ratatui::{buffer::Buffer, layout::Rect};
use std::{
    path::PathBuf,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Names that have broken other programs.
const HOSTILE: [&str; 10] = [
    "\u{1b}[2J\u{1b}]52;c;eA==\u{7}",
    "\u{202e}gpj.exe\u{2066}",
    "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字",
    "👩\u{200d}👩\u{200d}👧\u{200d}👦🏳\u{fe0f}\u{200d}🌈",
    "e\u{301}\u{302}\u{303}\u{301}\u{301}",
    "\u{301}\u{9b}31m\r\n\t",
    "ﷺ𒐫\u{3000}\u{a0}\u{115f}\u{3164}",
    "\u{e0041}\u{e0042}\u{feff}\u{ad}",
    "🇩🇪🇩🇪🇩\u{fe0e}✓\u{fe0f}",
    "",
];

/// Two packs of hostile names, the second one changed after it was signed, and one more that is as it was signed.
struct Packs {
    tmp: tempfile::TempDir,
    a: PathBuf,
    b: PathBuf,
    tampered: PathBuf,
}

static PACKS: LazyLock<Packs> = LazyLock::new(|| {
    let tmp = tempfile::tempdir().unwrap();
    let tools = |skip: usize| HOSTILE.iter().skip(skip).filter(|n| !n.is_empty()).map(|n| (*n).to_owned()).collect();
    let pack = |name: &str, plan: &Plan| sessions::packed(plan, tmp.path().join(name));
    let plan = |seed, skip| Plan { seed, tools: tools(skip), calls: 18, big_result: Some(400), ..Plan::default() };
    let a = pack("a\u{202e}漢", &plan(1, 0));
    let b = pack("b\u{1b}[31m", &Plan { error_every: 4, ..plan(2, 2) });
    let tampered = pack("t", &plan(3, 1));
    let receipts = tampered.join("receipt_pack.jsonl");
    let text = std::fs::read_to_string(&receipts).unwrap();
    std::fs::write(&receipts, text.replacen("outcome", "out\u{202e}me", 1)).unwrap();
    Packs { tmp, a, b, tampered }
});

#[derive(Debug, Clone)]
enum Happens {
    Key(KeyEvent),
    Typed(String),
    Pasted(String),
    Mouse(u8, u16, u16),
    Size(u16, u16),
    Call(String, u8),
    Stderr(String),
    Time(i64),
    Show(u8),
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(&HOSTILE[..]).prop_map(str::to_owned),
        "(\\PC|[\u{0}-\u{1f}]|\u{1b}\\[[0-9;]*[mJH]|[\u{200b}-\u{202e}]|[\u{300}-\u{310}]|漢|👩\u{200d}🚀){0,40}",
        any::<String>(),
    ]
}

fn events() -> impl Strategy<Value = Happens> {
    let keys: Vec<KeyEvent> = TABLE
        .iter()
        .flat_map(|b| b.keys)
        .map(|text| {
            let key = Key::parse(text).unwrap();
            KeyEvent::new(key.code, if key.ctrl { KeyModifiers::CONTROL } else { KeyModifiers::NONE })
        })
        .collect();
    let openers: Vec<KeyEvent> = "/ : ? Enter Enter Tab j j n ] z 5 i"
        .split(' ')
        .map(|text| KeyEvent::new(Key::parse(text).unwrap().code, KeyModifiers::NONE))
        .collect();
    let typed = |c: char| KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE);
    prop_oneof![
        6 => prop::sample::select(keys).prop_map(Happens::Key),
        4 => prop::sample::select(openers).prop_map(Happens::Key),
        2 => any::<char>().prop_map(move |c| Happens::Key(typed(c))),
        2 => prop::sample::select(&["tool:漢", "!outcome:forwarded", "ms>1", "\"", "verdict:x", "foll", "a b"][..])
            .prop_map(|t| Happens::Typed(t.to_owned())),
        1 => names().prop_map(Happens::Pasted),
        2 => (0u8..4, 0u16..210, 0u16..70).prop_map(|(kind, x, y)| Happens::Mouse(kind, x, y)),
        3 => (1u16..=200, 1u16..=60).prop_map(|(c, l)| Happens::Size(c, l)),
        1 => (1u16..=12, 1u16..=6).prop_map(|(c, l)| Happens::Size(c, l)),
        2 => (names(), 0u8..6).prop_map(|(name, end)| Happens::Call(name, end)),
        1 => names().prop_map(Happens::Stderr),
        1 => (1i64..100_000).prop_map(Happens::Time),
        2 => (1u8..=5).prop_map(Happens::Show),
    ]
}

/// Number of the next policy file.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A dashboard with something on every screen.
fn filled(server: &str, tool: &str, packs: u8, theme: Theme) -> (App, Told) {
    let p = &*PACKS;
    let (open, other) = match packs % 3 {
        0 => (p.a.clone(), p.b.clone()),
        1 => (p.tampered.clone(), p.b.clone()),
        _ => (p.b.clone(), p.tampered.clone()),
    };
    // A file of its own, for the policy is written by a key.
    let policy = p.tmp.path().join(format!("{}\u{202e}漢.yaml", NEXT.fetch_add(1, Ordering::Relaxed)));
    if packs > 0 {
        let text = format!("version: \"1\"\ndefault: deny\n# {tool}\nallowlist: [{}]\n", serde_json::json!(tool));
        std::fs::write(&policy, text).unwrap();
    }
    let start = Start {
        live: true,
        policy: Some(policy),
        theme,
        open: Some(Target::Pack(open.clone())),
        compare: Some((open, other)),
        ..Start::default()
    };
    let mut app = testkit::app(start);
    // Leaked on purpose: there are few names of sessions and the test is short.
    let mut told = Told::new(1, Box::leak(server.to_owned().into_boxed_str()));
    let hello = told.hello(Some(tool), Profile::Guard);
    hear(&mut app, hello);
    for n in 0..6 {
        call(&mut app, &mut told, n, tool, n as u8);
    }
    press(&mut app, "1");
    (app, told)
}

fn hear(app: &mut App, update: crate::live::client::Update) {
    let effects = app.update(Msg::Live(update));
    settle(app, effects);
}

fn call(app: &mut App, told: &mut Told, n: u64, tool: &str, end: u8) {
    let ms = -30_000 + n as i64 * 100;
    let begins = told.begins(n, tool, ms);
    hear(app, begins);
    let (outcome, verdict) = match end {
        0 => (Outcome::Forwarded, PolicyVerdict::Allowed),
        1 => (Outcome::Denied, PolicyVerdict::Denied),
        2 => (Outcome::Error, PolicyVerdict::NoPolicy),
        3 => (Outcome::Timeout, PolicyVerdict::NoPolicy),
        _ => return,
    };
    let ends = told.ends(n, tool, ms, outcome, verdict, 10u64.pow(u32::from(end) + 2));
    hear(app, ends);
}

fn happen(app: &mut App, told: &mut Told, what: &Happens, n: u64, size: &mut (u16, u16)) {
    let effects = match what {
        Happens::Key(key) => app.update(Msg::Key(*key)),
        Happens::Typed(text) => {
            let press = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE);
            text.chars().flat_map(|c| app.update(Msg::Key(press(c)))).collect()
        }
        Happens::Pasted(text) => app.update(Msg::Paste(text.clone())),
        Happens::Mouse(kind, column, row) => {
            let kind = match kind {
                0 => MouseEventKind::ScrollUp,
                1 => MouseEventKind::ScrollDown,
                2 => MouseEventKind::Down(MouseButton::Left),
                _ => MouseEventKind::Moved,
            };
            let modifiers = KeyModifiers::NONE;
            app.update(Msg::Mouse(MouseEvent { kind, column: *column, row: *row, modifiers }))
        }
        Happens::Size(columns, lines) => {
            *size = (*columns, *lines);
            app.update(Msg::Resize(*columns, *lines))
        }
        Happens::Call(tool, end) => {
            call(app, told, 1000 + n, tool, *end);
            Vec::new()
        }
        Happens::Stderr(line) => app.update(Msg::Live(told.stderr(n, line))),
        Happens::Time(ms) => app.update(Msg::Tick(WallTime::from_millis(now().millis() + ms))),
        Happens::Show(n) => press(app, &n.to_string()),
    };
    settle(app, effects);
}

fn drawn(app: &App, size: (u16, u16)) -> testkit::Frame {
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
    let cursor = view::draw(app, &mut buffer);
    testkit::Frame { buffer, cursor }
}

fn holds(app: &App, size: (u16, u16)) {
    let frame = drawn(app, size);
    check(&frame);
    for y in 0..size.1 {
        let shown = row(&frame.buffer, y);
        assert_eq!(crate::text::width(&shown), usize::from(size.0), "line {y} is {shown:?}");
    }
    assert!(frame == drawn(app, size), "drawn twice, it is another frame");
}

/// `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    ProptestConfig { cases, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn anything_may_happen_at_any_size(
        server in names(), tool in names(), packs in 0u8..3, look in 0u8..4,
        size in (1u16..=200, 1u16..=60),
        events in prop::collection::vec(events(), 1..60),
    ) {
        let palette = if look & 1 == 0 { Palette::Terminal } else { Palette::Colourless };
        let (mut app, mut told) = filled(&server, &tool, packs, Theme { palette, ascii: look & 2 != 0, ..Theme::default() });
        let mut size = size;
        let _ = app.update(Msg::Resize(size.0, size.1));
        holds(&app, size);
        for (n, what) in events.iter().enumerate() {
            happen(&mut app, &mut told, what, n as u64, &mut size);
            holds(&app, size);
        }
        for id in ["1", "2", "3", "4", "5", "6"] {
            press(&mut app, &format!("Esc Esc Esc {id}"));
            holds(&app, size);
        }
    }
}

#[test]
fn every_screen_holds_at_every_small_size_with_every_hostile_name() {
    for (n, name) in HOSTILE.iter().enumerate() {
        let (mut app, _) = filled(name, name, n as u8, Theme::default());
        for id in [ScreenId::Live, ScreenId::Packs, ScreenId::Pack, ScreenId::Diff, ScreenId::Policy, ScreenId::Surface]
        {
            press(
                &mut app,
                match id {
                    ScreenId::Live => "1",
                    ScreenId::Packs => "2",
                    ScreenId::Pack => "3",
                    ScreenId::Diff => "4",
                    ScreenId::Policy => "5",
                    ScreenId::Surface => "6",
                },
            );
            for size in
                (1..30).flat_map(|c| [1, 2, 3, 5, 9].map(|l| (c, l))).chain([(39, 11), (61, 20), (99, 24), (121, 30)])
            {
                let _ = app.update(Msg::Resize(size.0, size.1));
                holds(&app, size);
            }
        }
    }
}

#[test]
fn what_lies_over_wide_glyphs_leaves_no_half_of_one() {
    let (mut app, _) = filled("漢字漢字漢字", "漢字漢字漢字漢字漢字漢字漢字漢字", 0, Theme::default());
    for screen in ["1", "3 Tab ]", "4", "5"] {
        for over in ["?", ":", "/"] {
            press(&mut app, &format!("Esc Esc Esc {screen} {over}"));
            for columns in 2..130 {
                let frame = frame(&mut app, columns, 22);
                check(&frame);
                for y in 0..22 {
                    assert_eq!(crate::text::width(&row(&frame.buffer, y)), usize::from(columns), "{screen} {over}");
                }
            }
        }
    }
}

#[test]
fn leaving_is_the_only_thing_that_every_place_obeys() {
    for place in ["1", "2", "3", "4", "1 /", "1 :", "1 ?", "4 Enter", "3 ]", "5", "5 i", "5 Tab"] {
        let (mut app, _) = filled("server", "tool", 0, Theme::default());
        press(&mut app, place);
        let left = press(&mut app, "ctrl-c");
        assert!(matches!(left[..], [Effect::Leave]), "{place}");
    }
}
