//! The walls of the house: rooms know what docs/architecture.md lets them know, and no files need each other in a circle.
//!
//! What a file needs is read from its paths: `use`, `crate::`, `super::`, `self::`, and names that were imported. A name that
//! is re-exported counts as the file that it comes from. A file may use its own folder's `mod.rs`: that is what the files of a
//! folder share. What is for tests alone is left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// A path of names from the root of the crate.
type Names = Vec<String>;

/// One file of `src`.
#[derive(Default)]
struct Module {
    tokens: Vec<String>,
    children: BTreeSet<String>,
    /// Imported names and what they stand for.
    aliases: BTreeMap<String, Names>,
    /// Paths in the code, and paths of imports.
    used: BTreeSet<Names>,
}

/// Words and signs, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let literal = r##"(?s)//[^\n]*|/\*.*?\*/|\br#".*?"#|\bb?r"[^"]*"|"(?:\\.|[^"\\])*"|'(?:\\[^']+|\\'|[^'\\])'"##;
    // An attribute names a function in quotes.
    let text = regex::Regex::new(r#"with = "([^"]+)""#).unwrap().replace_all(text, "($1)");
    let bare = regex::Regex::new(literal).unwrap().replace_all(&text, " ").into_owned();
    regex::Regex::new(r"^|\w+|::|\S").unwrap().find_iter(&bare).map(|m| m.as_str().to_owned()).collect()
}

/// Where the item that starts here ends: behind its `;` or its block.
fn item_end(tokens: &[String], start: usize) -> usize {
    let mut depth = 0;
    for (n, t) in tokens.iter().enumerate().skip(start) {
        match t.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(t.as_str(), ";" | "}") {
            return n + 1;
        }
    }
    tokens.len()
}

/// The leaves of a tree of names, each with the name that it gets here; where the tree ends.
fn tree(tokens: &[String], mut at: usize, mut path: Names, leaves: &mut Vec<(Names, String)>) -> usize {
    loop {
        match tokens[at].as_str() {
            "{" => {
                at += 1;
                while tokens[at] != "}" {
                    at = tree(tokens, at, path.clone(), leaves);
                    at += usize::from(tokens[at] == ",");
                }
                return at + 1;
            }
            "self" if !path.is_empty() => {}
            name => path.push(name.to_owned()),
        }
        at += 1;
        let goes_on = |t: &String| t == "{" || t == "*" || t.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if tokens.get(at).is_none_or(|t| t != "::") || !tokens.get(at + 1).is_some_and(goes_on) {
            break;
        }
        at += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if tokens.get(at).is_some_and(|t| t == "as") {
        name.clone_from(&tokens[at + 1]);
        at += 2;
    }
    leaves.push((path, name));
    at
}

type House = BTreeMap<Names, Module>;

/// The packages that the house is made of beside its own, and the room that each is. The files of the first are rooms themselves.
const MEMBERS: [(&str, Option<&str>); 2] = [("evidence", None), ("verify", Some("verify"))];

/// Where a package that code names by its crate stands in the house.
fn place(name: &str) -> Option<Names> {
    let (_, room) = MEMBERS.iter().find(|(member, _)| name.strip_prefix("assay_") == Some(member))?;
    Some(room.iter().map(|name| (*name).to_owned()).collect())
}

/// Reads a file and the files that it declares.
fn read(house: &mut House, file: &Path, root: &[String], here: Names) {
    let mut module = Module { tokens: tokens(&fs::read_to_string(file).unwrap()), ..Module::default() };
    let folder = match file.file_stem().unwrap().to_str().unwrap() {
        "mod" | "lib" => file.parent().unwrap().to_owned(),
        _ => file.with_extension(""),
    };
    while let Some(at) = module.tokens.windows(7).position(|w| w.concat() == "#[cfg(test)]") {
        let end = item_end(&module.tokens, at + 7);
        module.tokens.drain(at..end);
    }
    let declared = module.tokens.windows(3).filter(|w| w[0] == "mod" && w[2] == ";").map(|w| w[1].clone());
    module.children = declared.collect();
    for child in &module.children {
        let path = [folder.join(format!("{child}.rs")), folder.join(child).join("mod.rs")];
        read(house, path.iter().find(|p| p.exists()).unwrap(), root, [&here[..], std::slice::from_ref(child)].concat());
    }
    paths(&mut module, root, &here);
    house.insert(here, module);
}

/// Finds the paths of a module that lead to files of the house; `root` is where its package stands in it.
fn paths(module: &mut Module, root: &[String], here: &Names) {
    let tokens = std::mem::take(&mut module.tokens);
    let (mut at, mut inline, mut depth) = (1, Vec::new(), 0);
    let (mut shared, mut words) = (Vec::new(), BTreeSet::new());
    let mut inside = Vec::new();
    while at < tokens.len() {
        let word = tokens[at].as_str();
        match word {
            "mod" if tokens[at + 2] == "{" => inline.push(depth),
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inline.pop_if(|d| *d == depth);
            }
            _ => {}
        }
        let import = word == "use";
        let first = at + usize::from(import);
        let path = tokens.get(first + 1).is_some_and(|t| t == "::") && !matches!(tokens[at - 1].as_str(), "::" | ".");
        if !path {
            words.insert(word.to_owned());
            at += 1;
            continue;
        }
        let public = import && matches!(tokens[at - 1].as_str(), "pub" | ")");
        let mut leaves = Vec::new();
        at = tree(&tokens, first, Names::new(), &mut leaves);
        for (path, name) in leaves {
            let member = place(&path[0]);
            let ups = path.iter().take_while(|s| *s == "super").count();
            let path = match path[0].as_str() {
                "crate" => [root, &path[1..]].concat(),
                _ if member.is_some() => [&member.unwrap_or_default()[..], &path[1..]].concat(),
                // Within a module that stands in this file, the first step leads to this file.
                "super" => {
                    let left = here.len() - ups.saturating_sub(inline.len()).min(here.len());
                    [&here[..left], &path[ups..]].concat()
                }
                "self" => [&here[..], &path[1..]].concat(),
                _ => {
                    inside.push((path.clone(), import));
                    if import && !module.children.contains(&path[0]) {
                        continue;
                    }
                    [&here[..], &path[..]].concat()
                }
            };
            if import {
                module.aliases.insert(name.clone(), path.clone());
            }
            if public {
                shared.push((name, path))
            } else {
                module.used.insert(path);
            }
        }
    }
    words.extend(inside.iter().map(|(path, _)| path[0].clone()));
    // What is only handed on is no need of the one who hands it on.
    module.used.extend(shared.into_iter().filter(|(name, _)| words.contains(name)).map(|(_, path)| path));
    module.tokens = tokens;
}

/// The file that a path leads to, if it names something in it.
fn owner(house: &House, path: &[String], steps: usize) -> Option<Names> {
    let mut here = Names::new();
    for (n, name) in path.iter().enumerate() {
        let module = &house[&here];
        if module.children.contains(name) {
            here.push(name.clone());
            continue;
        }
        return match module.aliases.get(name) {
            Some(to) if steps > 0 => owner(house, &[&to[..], &path[n + 1..]].concat(), steps - 1),
            _ => Some(here),
        };
    }
    None
}

/// Every file, by its path of modules.
static HOUSE: LazyLock<House> = LazyLock::new(|| {
    let mut house = House::new();
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    read(&mut house, &top.join("src/lib.rs"), &[], Names::new());
    for (name, room) in MEMBERS {
        let place = place(&format!("assay_{name}")).unwrap();
        let mut member = House::new();
        read(&mut member, &top.join("src").join(name).join("lib.rs"), &place, place.clone());
        let root = member.remove(&place).unwrap();
        house.get_mut([].as_slice()).unwrap().children.extend(room.map(str::to_owned));
        let own = house.entry(place).or_default();
        own.children.extend(root.children);
        own.aliases.extend(root.aliases);
        house.extend(member);
    }
    house
});

/// What each file needs.
static ARROWS: LazyLock<BTreeMap<Names, BTreeSet<Names>>> = LazyLock::new(|| {
    let needs = |(here, module): (&Names, &Module)| {
        let needed = module.used.iter().filter_map(|path| owner(&HOUSE, path, 9)).filter(|o| !here.starts_with(o));
        (here.clone(), needed.collect())
    };
    HOUSE.iter().map(needs).collect()
});

/// Everything that can be reached along arrows.
fn reached<'a, N: Ord>(arrows: &'a BTreeMap<N, BTreeSet<N>>, from: &'a N) -> BTreeSet<&'a N> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(here) = next.pop() {
        next.extend(arrows.get(here).into_iter().flatten().filter(|n| seen.insert(*n)));
    }
    seen
}

/// What an auditor has to read and build, and no more: the verifier, its claims, and lock files.
fn is_verifier(file: &[String]) -> bool {
    file.first().is_some_and(|room| room == "verify")
}

#[test]
fn the_verifier_needs_nothing_but_itself_and_the_rooms_of_the_format() {
    let mut files = 0;
    for (file, needed) in ARROWS.iter().filter(|(file, _)| is_verifier(file)) {
        files += 1;
        for other in needed.iter().filter(|other| !is_verifier(other)) {
            let room = other.first().map(String::as_str);
            assert!(
                matches!(
                    room,
                    Some("canon" | "lines" | "model" | "note" | "numbers" | "plain" | "text" | "tiles" | "tree")
                ),
                "{} needs {}",
                file.join("::"),
                other.join("::")
            );
        }
    }
    assert!(files > 30, "the verifier is not where it is looked for: {files} files");
}

#[test]
fn no_files_need_each_other_in_a_circle() {
    let arrows = &*ARROWS;
    let mut said = Vec::new();
    for file in arrows.keys().filter(|f| reached(arrows, f).contains(f)) {
        let back = |n: &&Names| reached(arrows, n).contains(file);
        let tied: Vec<String> = arrows[file].iter().filter(back).map(|n| n.join("::")).collect();
        said.push(format!("{} needs {}", file.join("::"), tied.join(", ")));
    }
    assert!(said.is_empty(), "circles:\n{}", said.join("\n"));
}

/// Files that open, make, lock or rename files and directories by themselves, and why `files` does not do it for them.
const DOORS: [(&str, &str); 7] = [
    ("cli::archive", "reads an archive that a user named, and fills a new directory that only it knows"),
    ("demo::tamper", "changes a copy of a pack that the demo has just built, in a directory of its own"),
    ("live::server", "a socket has its permissions only once it is bound"),
    ("proxy::client", "reads what /proc says of the client"),
    ("sys::fd", "changes flags of descriptors that are open, and opens /dev/null and terminals"),
    ("sys::process", "reads what /proc says of processes"),
    (
        "verify::source",
        "opens what lies below a pack: an auditor's program has no room of ours but those of the format",
    ),
];

/// Calls that open, make, lock or rename: a word, or the words of a path.
const DOOR_CALLS: [&str; 23] = [
    "DirBuilder",
    "File::create",
    "File::create_new",
    "File::open",
    "FlockOperation",
    "OFlags",
    "O_NOFOLLOW",
    "OpenOptions",
    "flock",
    "fs::copy",
    "fs::create_dir",
    "fs::create_dir_all",
    "fs::hard_link",
    "fs::mkdir",
    "fs::mkdirat",
    "fs::read",
    "fs::read_to_string",
    "fs::rename",
    "fs::renameat",
    "fs::set_permissions",
    "fs::write",
    "renameat_with",
    "unix::fs::symlink",
];

#[test]
fn files_are_opened_made_locked_and_renamed_in_one_room_but_for_a_few_that_are_named() {
    let calls: Vec<Vec<String>> = DOOR_CALLS.iter().map(|call| tokens(&format!(" {call}"))[1..].to_vec()).collect();
    let has_door = |module: &Module| {
        let one = |call: &Vec<String>| module.tokens.windows(call.len()).any(|w| w == call);
        calls.iter().zip(DOOR_CALLS).filter(|(call, _)| one(call)).map(|(_, name)| name).collect::<Vec<_>>()
    };
    let own = |file: &[String]| matches!(file.first().map(String::as_str), Some("files" | "plain"));
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (file, module) in HOUSE.iter().filter(|(file, _)| !own(file)) {
        found.entry(file.join("::")).or_default().extend(has_door(module));
    }
    found.retain(|_, calls| !calls.is_empty());
    let named: BTreeSet<String> = DOORS.iter().map(|(file, _)| (*file).to_owned()).collect();
    let new: Vec<_> = found.iter().filter(|(file, _)| !named.contains(*file)).collect();
    assert!(new.is_empty(), "let src/files.rs do it, or name the file in DOORS and say why:\n{new:#?}");
    let gone: Vec<_> = named.iter().filter(|file| !found.contains_key(*file)).collect();
    assert!(gone.is_empty(), "no longer needed in DOORS: {gone:?}");
}

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md")).unwrap()
}

/// The names in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn rooms_use_what_the_page_says_and_only_what_stands_below_them() {
    let page = page();
    let rows = page.lines().skip_while(|l| !l.starts_with("| room |")).skip(2).take_while(|l| l.starts_with('|'));
    let mut said = BTreeMap::new();
    let mut above = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        let room = quoted(cells[1]).next().unwrap().trim_end_matches(".rs").trim_end_matches('/').to_owned();
        above.insert(room.clone());
        let uses: BTreeSet<String> = quoted(cells[4]).map(str::to_owned).collect();
        assert!(uses.is_disjoint(&above), "{room} uses what stands above it");
        said.insert(room, uses);
    }
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, needed) in &*ARROWS {
        let Some(room) = file.first() else { continue };
        let others = needed.iter().filter_map(|n| n.first()).filter(|n| *n != room).cloned();
        used.entry(room.clone()).or_default().extend(others);
    }
    let rooms: BTreeSet<&String> = used.keys().chain(said.keys()).collect();
    let wrong = rooms.into_iter().filter(|room| said.get(*room) != used.get(*room));
    let row = |room: &String| {
        format!("{room} uses `{}`", used.get(room).into_iter().flatten().cloned().collect::<Vec<_>>().join("`, `"))
    };
    let wrong: Vec<String> = wrong.map(row).collect();
    assert!(wrong.is_empty(), "docs/architecture.md says otherwise:\n{}", wrong.join("\n"));
}

#[test]
fn the_page_names_every_thread() {
    let page = page();
    let named: BTreeSet<&str> = quoted(&page).collect();
    let name = regex::Regex::new(r#"\.name\("([^"]+)"|"(assay-[a-z0-9]+)""#).unwrap();
    let mut found = 0;
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders: Vec<PathBuf> = ["proxy", "live", "policy", "tui"].iter().map(|room| src.join(room)).collect();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if path.is_dir() {
                folders.extend(Some(path).filter(|p| !p.ends_with("tests")));
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for name in name.captures_iter(&text).filter_map(|c| c.get(1).or(c.get(2))).map(|m| m.as_str()) {
                found += 1;
                assert!(named.contains(name), "docs/architecture.md does not name {name} of {}", path.display());
            }
        }
    }
    assert!(found >= 10, "the names of threads are not where they are looked for");
}

/// Lines of evidence are read by what the model makes of their lists of members, and by nothing else.
#[test]
fn no_file_has_a_reader_of_its_own_for_receipts_events_or_ledger_lines() {
    use assay::model::{AuditEvent, LedgerLine, ToolCall};
    // What other documents have, too.
    let common = [
        "at",
        "detail",
        "direction",
        "event",
        "hash",
        "kind",
        "method",
        "meta",
        "note",
        "outcome",
        "schema_version",
        "seq",
        "type",
        "v",
    ];
    let ours = AuditEvent::MEMBERS.iter().chain(ToolCall::MEMBERS).chain(LedgerLine::MEMBERS);
    let ours: BTreeSet<&str> = ours.copied().filter(|name| !common.contains(name)).collect();
    let indexed = regex::Regex::new(r#"\["([a-z0-9_]+)"\]"#).unwrap();
    let derived = regex::Regex::new(r"(?s)derive\([^)]*Deserialize[^)]*\)\]\s*(?:#\[[^\n]*\s*)*(?:pub(?:\([a-z]+\))? )?struct (\w+)[^;{]*\{(.*?)\n\s*\}").unwrap();
    let member = regex::Regex::new(r"(?m)^\s*(?:pub )?(?:r#)?([a-z0-9_]+):").unwrap();
    // The calls and messages that the live protocol tells have the members of receipts and events; cards, run cards and what a
    // verifier remembers name their session, requests and lock files of surfaces their server.
    let others = [
        "approvals/lockfile.rs",
        "approvals/request.rs",
        "live/content.rs",
        "live/message.rs",
        "live/protocol.rs",
        "live/row.rs",
        "record/card.rs",
        "record/mark.rs",
        "record/rollback.rs",
        "verify/state.rs",
    ];
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut found, mut files) = (vec![src.clone()], Vec::new(), 0);
    while let Some(path) = folders.pop() {
        if path.is_dir() {
            folders.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            continue;
        }
        let name = path.strip_prefix(&src).unwrap().to_str().unwrap();
        let spared = name.starts_with("evidence/model/") || name.contains("oracle") || others.contains(&name);
        if spared || !name.ends_with(".rs") || name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        files += 1;
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let by_index = indexed.captures_iter(text).map(|c| c.get(1).unwrap().as_str());
        let by_struct = derived.captures_iter(text).map(|c| c.get(2).unwrap().as_str());
        let by_struct = by_struct.flat_map(|body| member.captures_iter(body).map(|c| c.get(1).unwrap().as_str()));
        found.extend(by_index.chain(by_struct).filter(|m| ours.contains(m)).map(|m| format!("{name} reads {m}")));
    }
    assert!(files > 200, "the sources are not where they are looked for: {files} files");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn paths_are_read_from_all_ways_to_write_them() {
    let mut module = Module {
        tokens: tokens(
            "use crate::{a::{self, B as C, d::*}, e}; pub use super::f::G; mod i; mod tests { use super::H; }\n\
             fn x() { self::i::j(); C::new(); \"crate::no\"; /* crate::no */ e::k::<u8>() } // crate::no\n\
             #[serde(with = \"super::l::m\")] fn y(_: &'static str, _: char) { '\\''; '{' }",
        ),
        children: BTreeSet::from(["i".to_owned()]),
        ..Module::default()
    };
    paths(&mut module, &[], &vec!["r".to_owned(), "s".to_owned()]);
    let used: Vec<String> = module.used.iter().map(|p| p.join("::")).collect();
    for path in ["a", "a::B", "a::d::*", "e", "r::s::i::j", "r::s::C::new", "r::s::e::k", "r::l::m", "r::s::H"] {
        assert!(used.contains(&path.to_owned()), "{path} in {used:?}");
    }
    assert!(!used.iter().any(|p| p.contains("no") || p.ends_with('G')), "{used:?}");
}
