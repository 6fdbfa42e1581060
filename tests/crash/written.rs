//! What version 0.1 wrote is still read: the files in `tests/data/v0.1`.

use assay::{files::Lock, live::protocol::RunCard, model::sha256_hex};
use assay_support::rig::{Rig, files, rig, until};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write as _,
    os::unix::{
        fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

const DEAD: &str = "c9f1596ddc2e96e9";
const ENDED: &str = "7994b7787dfa35c3";
/// How marks and memories name the directory that these files were written in.
const WRITTEN_IN: &str = r#"{"dev":65024,"ino":10011660,"path":"/tmp/assay-0.1/audit"}"#;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for path in files(from, |n| n != ".gitattributes") {
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::write(&to, fs::read(&path).unwrap()).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// A capture from its bytes that are not zero.
fn capture(text: &Path, to: &Path) {
    let text = fs::read_to_string(text).unwrap();
    let file = fs::File::create_new(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o600)).unwrap();
    for line in text.lines() {
        let (at, bytes) = line.split_once(' ').unwrap();
        match at {
            "len" => file.set_len(bytes.parse().unwrap()).unwrap(),
            at => file.write_all_at(&hex::decode(bytes).unwrap(), at.parse().unwrap()).unwrap(),
        }
    }
}

/// The files as if they had been written in this rig.
fn written() -> Rig {
    let (rig, data) = (rig!(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v0.1"));
    copy(&data.join("audit"), &rig.audit);
    copy(&data.join("home"), &rig.root.join("home"));
    let run = rig.root.join("run/assay");
    fs::create_dir(&run).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
    for ring in files(&data.join("run"), |n| n.ends_with(".ring.txt")) {
        capture(&ring, &run.join(ring.file_stem().unwrap()));
    }
    // What names the directory by its numbers names this one.
    let audit = rig.audit.canonicalize().unwrap();
    let meta = audit.metadata().unwrap();
    let here = format!(r#"{{"dev":{},"ino":{},"path":{}}}"#, meta.dev(), meta.ino(), json!(audit));
    let home = rig.root.join("home");
    for path in ["sessions", "ledgers"].iter().flat_map(|dir| files(&home.join(dir), |_| true)) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(WRITTEN_IN));
        fs::write(path, text.replace(WRITTEN_IN, &here)).unwrap();
    }
    let memory = files(&home.join("ledgers"), |_| true).remove(0);
    let name = &sha256_hex(audit.to_str().unwrap().as_bytes())[..32];
    fs::rename(memory, home.join("ledgers").join(format!("{name}.json"))).unwrap();
    rig
}

fn document(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{out:?}"))
}

fn pack(rig: &Rig, digits: &str) -> String {
    let found = files(&rig.audit.join("packs"), |n| n.ends_with(digits));
    found[0].to_str().unwrap().to_owned()
}

#[test]
fn a_dead_session_is_recovered_from_its_card_mark_segment_receipts_surface_and_captures() {
    let rig = written();
    let out = rig.recover();
    let said = document(&out);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert_eq!(said["rolled_back"], Value::Null);
    let [session] = &said["sessions"].as_array().unwrap()[..] else { panic!("{said}") };
    assert_eq!(
        (&session["session_id"], &session["verified"], &session["calls"]),
        (&json!(format!("mcp_{DEAD}")), &json!(true), &json!(2))
    );
    // Half a message was in the capture, and nowhere else.
    assert!(session["notes"].to_string().contains("24 bytes of unfinished messages were in the capture"), "{said}");
    let doc: Value =
        serde_json::from_slice(&fs::read(Path::new(&pack(&rig, DEAD)).join("session.json")).unwrap()).unwrap();
    assert!(doc["surface_hash"].is_string() && doc["client_info"]["name"] == "client", "{doc}");
    assert_eq!(files(&rig.root.join("run/assay"), |_| true), Vec::<PathBuf>::new(), "captures go with the recovery");
    for digits in [DEAD, ENDED] {
        let report = document(&rig.run(&["verify-pack", "--json", &pack(&rig, digits)]));
        let complete = if digits == ENDED { "COMPLETE" } else { "INCOMPLETE" };
        assert_eq!(
            (&report["integrity_verdict"], &report["completeness_verdict"]),
            (&json!("PASS"), &json!(complete)),
            "{report}"
        );
    }
    let again = rig.recover();
    assert_eq!((document(&again)["sessions"].as_array().unwrap().len(), again.status.code()), (0, Some(0)));
}

#[test]
fn a_ledger_that_lacks_what_is_remembered_is_said() {
    let rig = written();
    let ledger = rig.audit.join("audit/ledger.jsonl");
    let text = fs::read_to_string(&ledger).unwrap();
    fs::write(&ledger, text.split_inclusive('\n').take(2).collect::<String>()).unwrap();
    assert!(document(&rig.recover())["rolled_back"].as_str().unwrap().contains("line 2 of hash"));
}

#[test]
fn packs_and_journals_are_read() {
    let rig = written();
    let ended = pack(&rig, ENDED);
    let audit = rig.audit.to_str().unwrap();
    let text = |args: &[&str], code: i32| {
        let out = rig.run(args);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {out:?}");
        String::from_utf8([out.stdout, out.stderr].concat()).unwrap()
    };
    assert!(text(&["verify-pack", &ended], 0).contains("PASS"));
    assert!(text(&["open", "--plain", &ended], 0).contains("PASS"));
    assert!(
        text(&["open", "--plain", "--audit-dir", audit, &format!("mcp_{DEAD}")], 3)
            .contains("only a pack can be verified")
    );
    assert!(text(&["explain", &ended], 0).contains("echo"));
    assert!(text(&["diff", &ended, &ended], 0).contains("echo"));
    let calls = |args: &[&str], code| {
        let doc: Value = serde_json::from_str(&text(args, code)).unwrap();
        let problems = doc["problems"].as_array().or(doc["history"]["problems"].as_array()).map_or(0, Vec::len);
        (doc["total"]["calls"].as_u64().or(doc["calls"].as_u64()), problems)
    };
    assert_eq!(calls(&["analyze", "--json", &ended], 0), (Some(1), 0));
    let policy = rig.root.join("p.yaml");
    fs::write(&policy, "version: \"1\"\ndefault: deny\n").unwrap();
    assert_eq!(calls(&["policy", "dry-run", policy.to_str().unwrap(), "--against", audit, "--json"], 1), (Some(2), 0));
    // Of the directory that the history knows it says that it is not there, and keeps what it holds.
    assert_eq!(calls(&["analyze", "--history", "--json"], 0), (Some(1), 1));
    // The journal of the dead session has the call that ended.
    assert_eq!(calls(&["analyze", "--audit-dir", audit, "--json"], 0), (Some(3), 1));
}

/// Its lock and its socket lived with its proxy: here the test holds both, and greets with what the card says.
#[test]
fn a_run_card_and_the_greeting_of_its_stream_are_read() {
    let rig = written();
    let run = rig.root.join("run/assay");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v0.1/run").join(format!("{DEAD}.json"));
    let card = run.join(format!("{DEAD}.json"));
    let text = fs::read_to_string(data).unwrap();
    fs::write(&card, &text).unwrap();
    let held = fs::File::open(&card).unwrap();
    assert!(matches!(assay::files::try_lock(&held).unwrap(), Lock::Taken));
    let listener = UnixListener::bind(card.with_extension("sock")).unwrap();
    let session: RunCard = serde_json::from_str(&text).unwrap();
    let hello = json!({
        "event": "hello", "protocol": 1, "session": session, "cursor": 0, "chain_head": null, "oldest": 0,
        "totals": {"started": 0, "finished": 0, "denied": 0, "errors": 0, "timeouts": 0},
    });
    let mut watch = rig.program(&["watch", "--plain"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    writeln!(stream, "{hello}").unwrap();
    let mut asked = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(&stream), &mut asked).unwrap();
    assert!(asked.contains(DEAD), "{asked}");
    fs::remove_file(&card).unwrap();
    drop((stream, listener, held));
    until("the end", || watch.try_wait().unwrap());
    let out = watch.wait_with_output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.starts_with(&format!("mcp_{DEAD}  echo (echo 1) with client 1  /tmp/assay-0.1/audit")), "{said}");
    assert_eq!(String::from_utf8(out.stderr).unwrap(), "");
}
