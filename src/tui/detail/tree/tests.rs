use super::*;
use crate::tui::testkit::{assert_frames, check, frame_of, keys, text};
use crate::tui::{
    keymap::{self, Contexts, Key},
    testkit::Frame,
};
use proptest::prelude::*;
use serde_json::json;

const PANE: Rect = Rect { x: 0, y: 0, width: 60, height: 12 };

fn press(tree: &mut Tree, text: &str) -> Vec<Effect> {
    let commands = keys(text).into_iter().filter_map(|k| keymap::command(Key::of(&k), Contexts::DIFF));
    commands.flat_map(|c| tree.command(c, PANE).unwrap_or_default()).collect()
}

fn shown(tree: &Tree) -> String {
    text(&picture(tree, PANE.width, PANE.height))
}

fn picture(tree: &Tree, columns: u16, lines: u16) -> Frame {
    frame_of(columns, lines, |pen, area| tree.draw(pen, area, true))
}

fn result() -> Value {
    json!({
        "content": [
            {"type": "text", "text": "first line\nsecond line with \"quotes\" and \u{1b}[31mred\u{1b}[0m, and so on and on \
                                      until it is much longer than any pane is wide, which takes some words\nthird"},
            {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo".repeat(2000)},
        ],
        "isError": false,
        "structuredContent": {"total": 12.5, "none": null, "empty": {}, "list": [], "日本語": "\u{202e}gpj.exe"},
        "rows": (0..100).collect::<Vec<u32>>(),
    })
}

#[test]
fn the_tree_is_a_picture() {
    assert_frames("tree", |columns, lines| {
        let mut tree = Tree::new("result", result());
        let area = Rect::new(0, 0, columns, lines);
        for command in [
            Command::Down,
            Command::Right,
            Command::Down,
            Command::Right,
            Command::Down,
            Command::Enter,
            Command::Down,
            Command::Down,
        ] {
            tree.command(command, area);
        }
        let frame = frame_of(columns, lines, |pen, area| tree.draw(pen, area, true));
        check(&frame);
        frame
    });
}

#[test]
fn left_and_right_fold_and_walk() {
    let mut tree = Tree::new("result", result());
    assert_eq!(tree.len(), 5, "{}", shown(&tree));
    press(&mut tree, "j l");
    assert_eq!((tree.len(), tree.selected_path().as_str()), (7, "$.content"));
    press(&mut tree, "l l l");
    assert_eq!((tree.len(), tree.selected_path().as_str()), (9, "$.content[0].text"), "{}", shown(&tree));
    press(&mut tree, "h h h");
    assert_eq!((tree.len(), tree.selected_path().as_str()), (7, "$.content"));
    press(&mut tree, "h");
    assert_eq!((tree.len(), tree.selected_path().as_str()), (5, "$.content"));
    press(&mut tree, "h");
    assert_eq!(tree.selected_path(), "$");
    assert!(tree.command(Command::Left, PANE).is_none(), "the pane on the left is next");
    press(&mut tree, "Enter");
    assert_eq!(tree.len(), 1);
    press(&mut tree, "Enter");
    assert_eq!(tree.len(), 5);
}

#[test]
fn everything_unfolds_and_folds_at_once_and_the_selected_place_stays() {
    let mut tree = Tree::new("result", result());
    press(&mut tree, "G k");
    let place = tree.selected_path();
    press(&mut tree, "z");
    assert_eq!((tree.len(), tree.selected_path()), (117, place.clone()));
    press(&mut tree, "z");
    assert_eq!((tree.len(), tree.selected_path()), (5, place));
}

#[test]
fn a_long_text_unfolds_into_its_own_lines_and_keeps_its_place_when_the_pane_changes() {
    let mut tree = Tree::new("note", json!({"a": "one\ntwo ␛\u{1b}[2J\n".to_owned() + &"x".repeat(200), "b": 1}));
    press(&mut tree, "j");
    assert!(shown(&tree).contains('…'));
    press(&mut tree, "Enter");
    let lines = shown(&tree);
    assert!(lines.contains("│ one\n") && lines.contains("two ␛␛[2J\n"), "{lines}");
    let wide = tree.len();
    press(&mut tree, "G");
    assert_eq!(tree.selected_path(), "$.b");
    let narrow = Rect { width: 30, ..PANE };
    check(&picture(&tree, 30, 12));
    assert!(text(&picture(&tree, 30, 12)).contains("b: 1"), "a frame before the next command");
    tree.command(Command::CopyPath, narrow);
    assert!(tree.len() > wide && tree.selected_path() == "$.b");
    tree.command(Command::Up, narrow);
    assert_eq!(tree.selected_path(), "$.a");
    tree.command(Command::Left, narrow);
    assert_eq!((tree.len(), tree.selected_path().as_str()), (3, "$.a"));
}

#[test]
fn what_is_copied_is_the_value_itself_its_path_or_the_bytes() {
    let raw: Arc<[u8]> = br#"{"a b":[1,"x\ny"],"a b":[2,"x\ny"]}"#.as_slice().into();
    let mut tree = Tree::of_bytes("arguments", raw);
    press(&mut tree, "j j j");
    let copied = press(&mut tree, "y Y ctrl-y");
    let texts: Vec<&str> = copied
        .iter()
        .map(|e| match e {
            Effect::Copy { text, .. } => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, ["x\ny", "$['a b'][1]", r#"{"a b":[1,"x\ny"],"a b":[2,"x\ny"]}"#]);
}

#[test]
fn a_search_goes_round_and_opens_what_it_finds() {
    let mut tree = Tree::new("result", result());
    assert!(tree.command(Command::Next, PANE).is_none(), "nothing is looked for");
    assert!(tree.search("IMAGE", PANE));
    assert_eq!(tree.selected_path(), "$.content[1].mimeType");
    press(&mut tree, "n");
    assert_eq!(tree.selected_path(), "$.content[1].type");
    press(&mut tree, "n");
    assert_eq!(tree.selected_path(), "$.content[1].mimeType", "round the end");
    press(&mut tree, "N");
    assert_eq!(tree.selected_path(), "$.content[1].type");
    assert!(!tree.search("no such text", PANE));
    assert!(matches!(&press(&mut tree, "n")[..], [Effect::Say(_)]));
    assert!(tree.search("日本", PANE) && shown(&tree).contains("⟨U+202E⟩gpj.exe"));
}

#[test]
fn a_hundred_thousand_elements_cost_no_more_than_what_is_seen() {
    let many = Value::Array((0..100_000).map(|n| json!({"n": n, "s": "text"})).collect());
    let mut tree = Tree::new("result", many);
    assert_eq!(tree.len(), 100_001);
    press(&mut tree, "z G");
    assert_eq!((tree.len(), tree.selected_path().as_str()), (300_001, "$[99999].s"));
    let Body::Json { open: Some(open), .. } = &tree.body else { panic!("no tree") };
    assert_eq!(open.lines(150_000..150_012).len(), 12);
    assert!(shown(&tree).contains("n: 99999"));
}

#[test]
fn what_is_too_long_or_no_json_is_shown_by_its_beginning_and_hash() {
    let long: Arc<[u8]> = format!("[\"{}\"]", "long\u{1b}".repeat(MAX_TREE / 4)).into_bytes().into();
    let bytes = long.len();
    let mut tree = Tree::of_bytes("result", long);
    let lines = shown(&tree);
    assert!(lines.contains("5.0 MiB: more than 4.0 MiB") && lines.contains("sha256:"), "{lines}");
    assert!(lines.contains("long␛long␛") && lines.contains("ctrl-y"), "{lines}");
    assert!(matches!(&press(&mut tree, "G ctrl-y")[..], [Effect::Copy { text, .. }] if text.len() == bytes));
    let broken = Tree::of_bytes("result", b"{\"a\":1,}\xff\x1b".as_slice().into());
    assert!(shown(&broken).contains("not JSON: "), "{}", shown(&broken));
    assert!(shown(&broken).contains("{\"a\":1,}⟨0xFF⟩␛"), "{}", shown(&broken));
    check(&picture(&broken, 9, 4));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_text_at_any_size_is_harmless(
        texts in prop::collection::vec("(\\PC|\n|\t|\u{1b}|\u{202e}|\u{200d}|漢|👩|\u{301}){0,80}", 1..5),
        pressed in prop::collection::vec(prop::sample::select(Command::ALL), 0..20),
        columns in 1u16..100, lines in 1u16..20,
    ) {
        let value = json!({"list": texts, "by name": texts.iter().map(|t| (t.clone(), json!({t: t}))).collect::<Value>()});
        let mut tree = Tree::new(&texts[0], value);
        let area = Rect::new(0, 0, columns, lines);
        tree.search(&texts[0], area);
        for command in pressed {
            tree.command(command, area);
            check(&picture(&tree, columns, lines));
        }
        check(&picture(&tree, 100 - columns.min(99), lines));
    }
}
