//! Somebody cuts, replaces or removes the files of a session while it is recorded.

use crate::rig::{Client, INITIALIZE, Rig, call, files, until};
use assay::pack::verify::{self, Completeness, Integrity, VerifyOptions};
use std::{fs, ops::ControlFlow, path::Path};

fn cut(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

fn empty(path: &Path) {
    fs::OpenOptions::new().write(true).truncate(true).open(path).unwrap();
}

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

fn replace(path: &Path) {
    let text = fs::read(path).unwrap();
    fs::write(path.with_extension("new"), text).unwrap();
    fs::rename(path.with_extension("new"), path).unwrap();
}

fn append(path: &Path) {
    use std::io::Write as _;
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"{}\n").unwrap();
}

fn meddled(dir: &str, how: fn(&Path)) {
    let rig = Rig::new();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=3).map(|i| call(i, "echo", i))));
    rig.await_events(13);
    let before: Vec<_> = rig.segments();
    let file = files(&rig.audit.join(dir), |name| name.ends_with(".jsonl") && name != "ledger.jsonl").remove(0);
    client.send(&call(4, "hang", 0));
    rig.await_events(15);
    how(&file);
    let new = until("another segment", || rig.segments().into_iter().find(|s| !before.contains(s)));
    until("the warning", || client.said().contains("another segment is begun").then_some(()));
    assert!(client.said().contains(file.to_str().unwrap()), "{}", client.said());
    client.converse((5..8).map(|i| call(i, "echo", i)));
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    // What is left of the first session may be recovered, or be named as damaged.
    rig.recover();
    let name = new.file_name().unwrap().to_str().unwrap().replacen("segment", "proof_pack", 1);
    let pack = rig.audit.join("packs").join(name.trim_end_matches(".jsonl"));
    let receipts = fs::read_to_string(pack.join("receipt_pack.jsonl")).unwrap();
    assert_eq!(receipts.matches("\"mcp_tool_call\"").count(), 4, "three calls, and the one in flight");
    assert!(receipts.contains("evidence_damaged"));
    let report = verify::verify(&pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.integrity, Integrity::Pass, "{pack:?}: {:?}", report.errors);
    assert_eq!(report.completeness, Completeness::Incomplete);
}

#[test]
fn files_that_are_changed_while_they_are_written_are_noticed_and_another_segment_is_begun() {
    type How = (&'static str, fn(&Path));
    let how: [How; 5] =
        [("cut", cut), ("emptied", empty), ("removed", remove), ("replaced", replace), ("appended to", append)];
    for dir in ["audit", "receipts"] {
        for (word, how) in how {
            eprintln!("{dir} {word}");
            meddled(dir, how);
        }
    }
}
