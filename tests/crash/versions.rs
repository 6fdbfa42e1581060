//! Formats of a later version: each is named and left alone by whoever meets it, and nothing beside it is lost.

use assay::{
    history::SCHEMA_VERSION,
    model::{SessionId, ledger::LEDGER_VERSION, sha256_hex, surface::SURFACE_VERSION},
    relay::capture,
};
use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, call, files, rig, until},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Output,
};

/// Two sessions of one audit directory whose proxies were killed.
struct Dead {
    rig: Rig,
    /// The one that is forged, by the digits of its id.
    one: String,
    /// The one beside it.
    other: String,
}

impl Dead {
    fn new(flags: &[&str]) -> Self {
        let rig = rig!();
        let known = |rig: &Rig| files(&rig.audit.join("live"), |n| n.ends_with(".json"));
        let mut begun = Vec::new();
        for _ in 0..2 {
            let before = known(&rig);
            let mut client = Client::start(rig.proxy(flags));
            client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=2).map(|i| call(i, "echo", i))));
            client.converse(std::iter::once(r#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#.to_owned()));
            let card = known(&rig).into_iter().find(|path| !before.contains(path)).unwrap();
            let digits = card.file_stem().unwrap().to_str().unwrap().to_owned();
            let of = |dir: &str| files(&rig.audit.join(dir), |n| n.contains(&digits)).pop();
            until("its evidence", || {
                let receipts = fs::read_to_string(of("receipts")?).ok()?;
                (receipts.lines().count() == 3 && of("surface").is_some()).then_some(())
            });
            begun.push((digits, client));
        }
        Client::kill_all(begun.iter_mut().map(|(_, client)| client));
        rig.await_silence();
        let other = begun.pop().unwrap().0;
        Self { one: begun.pop().unwrap().0, other, rig }
    }

    fn of(&self, dir: impl AsRef<Path>, digits: &str, end: &str) -> PathBuf {
        let found = files(&self.rig.root.join(dir), |n| n.contains(digits) && n.ends_with(end));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    fn segment(&self) -> PathBuf {
        let name = |n: &str| n.starts_with("segment_") && n.contains(&self.one);
        files(&self.rig.audit.join("audit"), name).pop().unwrap()
    }

    /// Its checkpoints, which it need not have yet.
    fn checkpoints(&self) -> PathBuf {
        let name = self.segment().file_name().unwrap().to_str().unwrap().replacen("segment", "checkpoints", 1);
        self.rig.audit.join("audit").join(name)
    }

    fn memory(&self) -> PathBuf {
        let path = self.rig.audit.canonicalize().unwrap();
        let name = &sha256_hex(path.to_str().unwrap().as_bytes())[..32];
        self.rig.root.join("home/ledgers").join(format!("{name}.json"))
    }

    /// Every file of the forged session, wherever it lies.
    fn files(&self) -> BTreeMap<PathBuf, String> {
        let mut all = check::tree(&self.rig.root);
        all.retain(|path, _| path.to_str().unwrap().contains(&self.one) && path.is_file());
        // A run card of this version whose proxy is gone is swept, whatever becomes of its session.
        all.remove(&self.rig.root.join("run/assay").join(format!("{}.json", self.one)));
        all
    }
}

fn states(out: &Output) -> Vec<String> {
    let said: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{out:?}"));
    let state = |s: &Value| s["state"].as_str().or(s["end_reason"].as_str()).unwrap().to_owned();
    said["sessions"].as_array().unwrap().iter().map(state).collect()
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{path:?}");
    fs::write(path, text.replace(from, to)).unwrap();
}

/// Writes another version into a document, or into the first or the last of its lines.
fn forge(dead: &Dead, what: &str, v: &str) -> PathBuf {
    let (from, to) = ("\"v\":1", format!("\"v\":{v}"));
    match what {
        "card" => {
            let path = dead.of("audit/live", &dead.one, ".json");
            replace(&path, "\"v\":1}", &format!("\"v\":{v},\"x\":[1]}}"));
            path
        }
        "mark" => {
            let path = dead.of("home/sessions", &dead.one, ".json");
            replace(&path, from, &to);
            path
        }
        "surface" => {
            let path = dead.of("audit/surface", &dead.one, ".json");
            replace(&path, &format!("\"v\":{SURFACE_VERSION}"), &to);
            path
        }
        "first event" | "last event" => {
            let path = dead.segment();
            let text = fs::read_to_string(&path).unwrap();
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            let at = if what == "first event" { 0 } else { lines.len() - 1 };
            lines[at] = lines[at].replace(from, &to);
            // Behind what a later version wrote, nothing is taken for torn.
            fs::write(&path, lines.join("\n") + "\n{\"half").unwrap();
            path
        }
        "checkpoints" => {
            let path = dead.checkpoints();
            let text = fs::read_to_string(&path).unwrap() + &format!("{{\"kind\":\"cosigned\",\"v\":{v}}}\n");
            fs::write(&path, text).unwrap();
            path
        }
        "receipt" => {
            let path = dead.of("audit/receipts", &dead.one, ".jsonl");
            let v = v.trim_matches('"').replace("5.1", "3.5");
            let v = if v.contains('.') { v } else { format!("{v}000.0") };
            replace(&path, "\"schema_version\":\"3.0\"", &format!("\"schema_version\":\"{v}\""));
            path
        }
        "ledger" => {
            let path = dead.rig.audit.join("audit/ledger.jsonl");
            let text = fs::read_to_string(&path).unwrap();
            // The version is the last member of a line; each kind has the lowest that can say it.
            let newer = |line: &str| {
                if !line.contains(&dead.one) {
                    return line.to_owned();
                }
                let (before, version) = line.rsplit_once("\"v\":").unwrap();
                let version: u32 = version.trim_end_matches('}').parse().unwrap();
                assert!(version <= LEDGER_VERSION, "{line}");
                format!("{before}{to}}}")
            };
            fs::write(&path, text.lines().map(|line| newer(line) + "\n").collect::<String>()).unwrap();
            path
        }
        "capture" | "decisions" => {
            let path = dead.of("run/assay", &dead.one, if what == "capture" { "c2s.ring" } else { "dec.ring" });
            let word: u64 = match v {
                "6" => capture::VERSION + 1,
                "\"5.1\"" => 1 << 32 | capture::VERSION,
                v => v.parse().unwrap(),
            };
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(&word.to_le_bytes(), 8).unwrap();
            // A later version may count elsewhere.
            file.write_all_at(&[0; 8], 1024).unwrap();
            path
        }
        other => panic!("{other}"),
    }
}

const FORMATS: [&str; 9] =
    ["card", "mark", "surface", "first event", "last event", "receipt", "ledger", "capture", "checkpoints"];
/// A major and a minor version above those of every format, and one far away.
const LATER: [&str; 3] = ["6", "\"5.1\"", "4000000000"];

/// Recovery names `what` and leaves everything of its session alone; the session beside it is finished. Once the version is
/// what it was, the session is finished, too.
fn left_alone(dead: &Dead, what: &str, v: &str) {
    fs::File::options().append(true).create(true).open(dead.checkpoints()).unwrap();
    let whole: Vec<(PathBuf, Vec<u8>)> = dead.files().into_keys().map(|p| (p.clone(), fs::read(&p).unwrap())).collect();
    let ledger = fs::read_to_string(dead.rig.audit.join("audit/ledger.jsonl")).unwrap();
    let path = forge(dead, what, v);
    let before = dead.files();
    let forged = fs::read(&path).unwrap();
    // A proxy that starts looks for the dead, too.
    let mut client = Client::start(dead.rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()));
    client.await_said("too new");
    client.end();
    assert_eq!(dead.files(), before, "{what} {v}");
    for _ in 0..2 {
        let out = dead.rig.recover();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let (mut said, code) = (states(&out), out.status.code());
        said.retain(|state| state != "crashed");
        assert_eq!((code, said), (Some(2), vec!["too_new".to_owned()]), "{what} {v}: {text}");
        assert!(text.contains("it needs a later assay") && text.contains(path.to_str().unwrap()), "{what} {v}: {text}");
        assert_eq!(dead.files(), before, "{what} {v}");
        assert!(fs::read(&path).unwrap().starts_with(&forged), "{what} {v}");
    }
    let packs = || files(&dead.rig.audit.join("packs"), |_| true).into_iter().map(|p| p.display().to_string());
    assert!(packs().any(|p| p.contains(&dead.other)) && !packs().any(|p| p.contains(&dead.one)), "{what} {v}");
    for (path, bytes) in whole {
        fs::write(path, bytes).unwrap();
    }
    if what == "ledger" {
        // What was appended since hangs on the forged lines; only their version is put back.
        let now = fs::read_to_string(dead.rig.audit.join("audit/ledger.jsonl")).unwrap();
        let rest: String = now.split_inclusive('\n').skip(ledger.lines().count()).collect();
        fs::write(dead.rig.audit.join("audit/ledger.jsonl"), ledger + &rest).unwrap();
    }
    let out = dead.rig.recover();
    assert_eq!((states(&out), out.status.code()), (vec!["crashed".to_owned()], Some(0)), "{what} {v}: {out:?}");
    assert!(packs().any(|p| p.contains(&dead.one)), "{what} {v}");
}

/// `ASSAY_VERSIONS=all` tries every later version of every format, else each format has one of them.
#[test]
fn a_session_of_which_anything_is_of_a_later_version_is_named_and_left_alone() {
    let all = std::env::var("ASSAY_VERSIONS").is_ok_and(|v| v == "all");
    for (n, what) in FORMATS.into_iter().enumerate() {
        for (m, v) in LATER.into_iter().enumerate() {
            if all || n % LATER.len() == m {
                left_alone(&Dead::new(&[]), what, v);
            }
        }
    }
}

#[test]
fn decisions_of_a_guard_of_a_later_version_are_named_and_left_alone() {
    let policy = tempfile::NamedTempFile::new().unwrap();
    fs::write(policy.path(), "version: \"1\"\ndefault: allow\n").unwrap();
    left_alone(&Dead::new(&["--profile", "guard", "--policy", policy.path().to_str().unwrap()]), "decisions", LATER[0]);
}

#[test]
fn a_memory_of_a_ledger_of_a_later_version_is_named_and_not_replaced() {
    for v in LATER {
        let dead = Dead::new(&[]);
        let path = dead.memory();
        replace(&path, "\"v\":1", &format!("\"v\":{v}"));
        let before = fs::read(&path).unwrap();
        let out = dead.rig.recover();
        assert_eq!(
            (states(&out), out.status.code()),
            (["crashed", "crashed", "too_new"].map(str::to_owned).to_vec(), Some(2)),
            "{out:?}"
        );
        let text =
            String::from_utf8(dead.rig.run(&["recover", "--audit-dir", dead.rig.audit.to_str().unwrap()]).stdout)
                .unwrap();
        assert!(text.starts_with("too new: ") && !text.contains("nothing to recover"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn what_a_later_version_finished_in_the_same_directory_needs_nothing() {
    let dead = Dead::new(&[]);
    assert_eq!(dead.rig.recover().status.code(), Some(0));
    dead.rig.as_once();
    // Its events are of a later version, its lines in the ledger are not.
    let segment = dead.segment();
    replace(&segment, "\"v\":1,", "\"v\":\"5.1\",\"w\":0,");
    let before = dead.files();
    let out = dead.rig.recover();
    assert_eq!((states(&out).len(), out.status.code()), (0, Some(0)), "{out:?}");
    // Its lines in the ledger are, too: that is said once, however many sessions there are.
    forge(&dead, "ledger", LATER[0]);
    let out = dead.rig.recover();
    assert_eq!((states(&out), out.status.code()), (vec!["too_new".to_owned()], Some(2)), "{out:?}");
    assert_eq!(dead.files(), before);
}

#[test]
fn captures_that_a_session_of_a_later_version_shares_stay() {
    let dead = Dead::new(&[]);
    // As if the next session of the same process had been written by a later version.
    let card = fs::read_to_string(dead.of("audit/live", &dead.one, ".json")).unwrap();
    let next = dead.rig.audit.join("live/00000000000000aa.json");
    fs::write(&next, card.replace("\"v\":1}", "\"v\":6}")).unwrap();
    let before = dead.files();
    let out = dead.rig.recover();
    let mut said = states(&out);
    said.sort();
    assert_eq!(said, ["crashed", "too_new", "too_new"], "{out:?}");
    assert_eq!(dead.files(), before);
    assert!(next.exists());
}

#[test]
fn a_capture_that_nobody_of_this_version_made_is_not_swept() {
    let rig = rig!();
    let run = rig.root.join("run/assay");
    let session = || {
        let mut client = Client::start(rig.proxy(&[]));
        client.converse(std::iter::once(INITIALIZE.to_owned()));
        client.end();
        assert_eq!(rig.recover().status.code(), Some(0));
    };
    session();
    let word = |n: u64| n.to_le_bytes();
    let ring = |version: u64| [b"ASSAYRNG".to_vec(), word(version).to_vec(), vec![0; 2048]].concat();
    let mut kept = Vec::new();
    for (n, bytes) in [
        ring(capture::VERSION + 1),
        ring(1 << 32 | capture::VERSION),
        ring(u64::MAX),
        [b"ASSAYRN2".to_vec(), vec![0; 2048]].concat(),
    ]
    .into_iter()
    .enumerate()
    {
        let path = run.join(format!("00000000000000b{n}.c2s.ring"));
        // No card leads to it.
        fs::write(run.join(format!("00000000000000b{n}.place")), rig.audit.join("live").to_str().unwrap()).unwrap();
        fs::write(&path, &bytes).unwrap();
        kept.push((path, bytes));
    }
    // Under another name it may lie elsewhere, too.
    let (log, note) = (run.join("00000000000000d1.log"), run.join("00000000000000d1.place"));
    fs::write(&log, "x").unwrap();
    fs::write(&note, "/nowhere").unwrap();
    let (swept, empty) = (run.join("00000000000000c1.c2s.ring"), run.join("00000000000000c2.c2s.ring"));
    fs::write(&swept, ring(5)).unwrap();
    fs::write(&empty, vec![0; 4096]).unwrap();
    session();
    for (path, bytes) in kept {
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert!(path.with_file_name(format!("{}.place", &path.file_name().unwrap().to_str().unwrap()[..16])).exists());
    }
    assert!(log.exists() && note.exists());
    assert!(!swept.exists() && !empty.exists());
}

#[test]
fn readers_of_a_journal_of_a_later_version_say_so_and_count_what_is_beside_it() {
    let dead = Dead::new(&[]);
    assert_eq!(dead.rig.recover().status.code(), Some(0));
    dead.rig.as_once();
    let audit = dead.rig.audit.to_str().unwrap();
    let policy = dead.rig.root.join("p.yaml");
    fs::write(&policy, "version: \"1\"\ndefault: deny\n").unwrap();
    let run = |args: &[&str]| {
        let out = dead.rig.run(args);
        let text = [out.stdout.clone(), out.stderr.clone()].concat();
        (out.status.code(), String::from_utf8(text).unwrap(), serde_json::from_slice::<Value>(&out.stdout))
    };
    let dry_run = ["policy", "dry-run", policy.to_str().unwrap(), "--against", audit, "--json"];
    let calls = |doc: serde_json::Result<Value>| {
        let doc = doc.unwrap();
        doc["total"]["calls"].as_u64().or(doc["calls"].as_u64())
    };
    assert_eq!(calls(run(&dry_run).2), Some(4));
    assert_eq!(calls(run(&["analyze", "--history", "--json"]).2), Some(4));
    for v in ["3.5", "4.0", "99999.7"] {
        let receipts = dead.of("audit/receipts", &dead.one, ".jsonl");
        let whole = fs::read(&receipts).unwrap();
        // A decoy within what was stored says nothing.
        replace(&receipts, "\"schema_version\":\"3.0\"", &format!("\"schema_version\":\"{v}\""));
        replace(&receipts, "\"arguments_content\":null", "\"arguments_content\":{\"schema_version\":\"3.0\"}");
        let before = fs::read(&receipts).unwrap();
        let version =
            format!("this receipt is of version {v}; this assay reads up to {}", assay::model::receipt::SCHEMA_VERSION);
        let (_, text, doc) = run(&dry_run);
        assert!(text.contains(&version), "{text}");
        assert_eq!(calls(doc), Some(2));
        // By its id the session is its pack.
        let (code, text, _) = run(&[&dry_run[..3], &["--against", receipts.to_str().unwrap()]].concat());
        assert!(code == Some(3) && text.contains(&version), "{text}");
        for again in [false, true] {
            let args: &[&str] =
                if again { &["analyze", "--rebuild", "--json"] } else { &["analyze", "--history", "--json"] };
            let (code, text, doc) = run(args);
            assert!(text.contains(&version) && code == Some(0), "{text}");
            // What is indexed of an earlier state stays until the index is made anew.
            assert_eq!(calls(doc), Some(if again { 2 } else { 4 }), "{again}");
        }
        assert_eq!(fs::read(&receipts).unwrap(), before);
        fs::write(&receipts, whole).unwrap();
        assert_eq!(calls(run(&["analyze", "--rebuild", "--json"]).2), Some(4));
    }
    // A session without a pack, by its id.
    let pack = dead.of("audit/packs", &dead.one, "");
    fs::remove_dir_all(pack).unwrap();
    let id = format!("mcp_{}", dead.one);
    SessionId::parse(&id).unwrap();
    let card = dead.rig.audit.join("live").join(format!("{}.json", dead.one));
    fs::write(&card, "{\"v\":6}").unwrap();
    let (code, text, _) = run(&["open", "--plain", "--audit-dir", audit, &id]);
    assert!(code == Some(3) && text.contains("this card is of version 6"), "{text}");
    fs::remove_file(&card).unwrap();
    for v in LATER {
        let segment = dead.segment();
        let whole = fs::read(&segment).unwrap();
        replace(&segment, "\"v\":1,", &format!("\"v\":{v},"));
        let (code, text, _) = run(&["open", "--plain", "--audit-dir", audit, &id]);
        let v = v.trim_matches('"');
        let version = format!(
            "this audit event is of version {v}; this assay reads up to {}",
            assay::model::event::EVENT_VERSION
        );
        assert!(code == Some(3) && text.contains(&version) && !text.contains("assay recover"), "{text}");
        fs::write(&segment, whole).unwrap();
    }
}

#[test]
fn a_history_of_a_later_version_is_named_and_left_alone() {
    for version in [SCHEMA_VERSION + 1, 1 << 16 | SCHEMA_VERSION, i32::MAX.into()] {
        let rig = rig!();
        let session = || {
            let mut client = Client::start(rig.proxy(&[]));
            client.converse(std::iter::once(INITIALIZE.to_owned()));
            client.end();
        };
        session();
        let path = rig.root.join("home/history.sqlite3");
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch(&format!("PRAGMA user_version = {version}; CREATE TABLE more (x); DROP TABLE cells;"))
            .unwrap();
        drop(db);
        let before = fs::read(&path).unwrap();
        for args in [&["analyze", "--history"][..], &["analyze", "--rebuild"], &["analyze", "--audit-dir", "audit"]] {
            let out = rig.run(args);
            let text = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(out.status.code(), Some(3), "{text}");
            let known = format!("reads up to {SCHEMA_VERSION}");
            assert!(text.contains("this history is of version") && text.contains(&known), "{text}");
        }
        // A session that ends is not noted there, and has its pack all the same.
        session();
        assert_eq!(files(&rig.audit.join("packs"), |_| true).len(), 2);
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}
