//! What must be true of an audit directory after a recovery.

use crate::rig::{Client, Rig, files, journal};
use assay::{
    model::{
        AuditEvent, Detail, EventKind, GENESIS, LedgerKind, LedgerLine, SessionDoc, event::hash_of_line, sha256_hex,
    },
    pack::verify::{self, Completeness, Integrity, VerifyOptions},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// What the two peers received, whole lines of it.
#[derive(Default)]
pub struct Crossed {
    pub client: Vec<u8>,
    pub server: Vec<u8>,
    /// Evidence was damaged since: receipts and events need not agree.
    pub damaged: bool,
}

impl Crossed {
    /// When both peers have ended.
    pub fn of(rig: &Rig, client: &Client) -> Self {
        Self { client: client.got(), server: fs::read(rig.server_log()).unwrap(), damaged: false }
    }

    /// Whatever it was: evidence was damaged.
    pub fn damaged() -> Self {
        Self { damaged: true, ..Self::default() }
    }
}

/// One session after recovery.
#[derive(Debug)]
pub struct Session {
    pub events: Vec<AuditEvent>,
    pub receipts: Vec<Value>,
    pub doc: SessionDoc,
    pub completeness: Completeness,
    pub pack: PathBuf,
}

impl Session {
    pub fn count(&self, kind: EventKind) -> usize {
        self.events.iter().filter(|e| e.event == kind).count()
    }
}

/// Modes of everything below `dir`, times and SHA-256 of its files.
pub fn tree(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for path in files(&dir, |_| true) {
            let meta = fs::symlink_metadata(&path).unwrap();
            use std::os::unix::fs::MetadataExt as _;
            if meta.is_dir() {
                todo.push(path.clone());
                all.insert(path, format!("{:o}", meta.mode()));
            } else if !meta.is_file() {
                // The socket of a proxy that was killed.
                all.insert(path, format!("{:o}", meta.mode()));
            } else {
                let text = sha256_hex(&fs::read(&path).unwrap());
                all.insert(path, format!("{:o} {}.{} {text}", meta.mode(), meta.mtime(), meta.mtime_nsec()));
            }
        }
    }
    all
}

/// Sessions whose chain has its end, with what it says of completeness.
pub fn ended(rig: &Rig) -> HashMap<PathBuf, bool> {
    let end = |path: &PathBuf| {
        let text = fs::read(journal(path)).unwrap();
        let line = text.strip_suffix(b"\n")?.rsplit(|b| *b == b'\n').next()?;
        let event: AuditEvent = serde_json::from_slice(line).ok()?;
        match event.detail {
            Detail::ChainEnd(end) => Some(end.complete),
            _ => None,
        }
    };
    rig.segments().into_iter().filter_map(|p| end(&p).map(|complete| (p, complete))).collect()
}

/// Recovers twice, and checks everything that holds for any directory after any crash.
pub fn recovered(rig: &Rig, crossed: &Crossed) -> Vec<Session> {
    let before = ended(rig);
    let out = rig.recover();
    if !rig.audit.join("audit").is_dir() {
        assert!(crossed.client.is_empty() && crossed.server.is_empty(), "messages crossed and nothing is there");
        return Vec::new();
    }
    let said = || format!("{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(0), "{}", said());
    settled(rig);
    let sessions = sessions(rig);
    for session in &sessions {
        let segment = rig.audit.join("audit").join(segment_of(&session.pack));
        match before.get(&segment) {
            Some(complete) => assert_eq!(session.doc.session_complete, *complete),
            None => {
                assert!(!session.doc.session_complete);
                assert_eq!(session.doc.end_reason, "crashed");
                assert!(!session.doc.recovery_notes.is_empty());
            }
        }
    }
    evidence(&sessions, crossed);
    sessions
}

/// Nothing temporary is left, and another recovery changes nothing.
pub fn settled(rig: &Rig) {
    let before = tree(&rig.audit);
    let again = rig.recover();
    assert_eq!(again.status.code(), Some(0), "{}", String::from_utf8_lossy(&again.stdout));
    let document: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(document["sessions"], serde_json::json!([]));
    let after = tree(&rig.audit);
    assert_eq!(before, after, "the second recovery changed something");
    assert_eq!(files(&rig.audit.join("live"), |_| true), Vec::<PathBuf>::new());
    assert_eq!(files(&rig.root.join("run/assay"), |_| true), Vec::<PathBuf>::new());
    let packs = files(&rig.audit.join("packs"), |name| !name.starts_with("proof_pack_"));
    assert_eq!(packs, Vec::<PathBuf>::new(), "left in packs/");
}

fn segment_of(pack: &Path) -> String {
    let name = pack.file_name().unwrap().to_str().unwrap();
    format!("{}.jsonl", name.replacen("proof_pack", "segment", 1))
}

/// Reads everything: one chain in the ledger, whole segments, a verified pack for each.
pub fn sessions(rig: &Rig) -> Vec<Session> {
    let ledger = ledger(rig);
    let segments = rig.segments();
    let by_kind = |kind| {
        let names: Vec<String> = ledger.iter().filter(|l| l.kind == kind).map(|l| l.segment.clone()).collect();
        let set: BTreeSet<String> = names.iter().cloned().collect();
        assert_eq!(set.len(), names.len(), "a segment twice in the ledger");
        set
    };
    let names: BTreeSet<String> =
        segments.iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let starts = by_kind(LedgerKind::SegmentStart);
    assert!(starts.is_subset(&names), "the ledger knows segments that are not there: {starts:?} {names:?}");
    assert_eq!(by_kind(LedgerKind::SegmentEnd), names);
    segments.iter().map(|path| session(rig, path, &ledger)).collect()
}

/// The ledger, its chain checked.
pub fn ledger(rig: &Rig) -> Vec<LedgerLine> {
    let text = fs::read(rig.audit.join("audit/ledger.jsonl")).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with(b"\n"));
    let mut head = GENESIS.to_owned();
    let mut all = Vec::new();
    for line in text.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let parsed: LedgerLine = serde_json::from_slice(line).unwrap();
        assert_eq!((parsed.ledger_seq, &parsed.prev_hash), (all.len() as u64, &head));
        assert_eq!(hash_of_line(line), Some(parsed.hash.clone()));
        head.clone_from(&parsed.hash);
        all.push(parsed);
    }
    all
}

/// The events of a segment, their chain checked.
pub fn events(path: &Path) -> Vec<AuditEvent> {
    let text = fs::read(journal(path)).unwrap();
    assert!(text.ends_with(b"\n"), "{path:?} does not end with a line");
    let mut all: Vec<AuditEvent> = Vec::new();
    for line in text.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let event: AuditEvent = serde_json::from_slice(line).unwrap();
        assert_eq!(hash_of_line(line), Some(event.hash.clone()));
        if let Some(last) = all.last() {
            assert_eq!((event.event_seq, &event.prev_hash), (last.event_seq + 1, &last.hash), "{path:?}");
        }
        all.push(event);
    }
    all
}

fn session(rig: &Rig, segment: &Path, ledger: &[LedgerLine]) -> Session {
    let events = events(segment);
    let last = events.last().unwrap();
    assert_eq!(last.event, EventKind::ChainEnd, "{segment:?}");
    let name = segment.file_name().unwrap().to_str().unwrap();
    let end = ledger.iter().find(|l| l.segment == name && l.kind == LedgerKind::SegmentEnd).unwrap();
    assert_eq!((&end.segment_hash, end.event_count), (&last.hash, events.len() as u64));
    let pack = rig.audit.join("packs").join(name.replacen("segment", "proof_pack", 1).trim_end_matches(".jsonl"));
    let doc: SessionDoc = serde_json::from_slice(&fs::read(pack.join("session.json")).unwrap()).unwrap();
    assert_eq!(end.complete, Some(doc.session_complete));
    let report = verify::verify(&pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.integrity, Integrity::Pass, "{pack:?}: {:?}", report.errors);
    if !doc.session_complete {
        assert_ne!(report.completeness, Completeness::Complete);
        assert!(!report.completeness_reasons.is_empty());
    }
    let receipts = fs::read(pack.join("receipt_pack.jsonl")).unwrap();
    let receipts = receipts.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    let receipts: Vec<Value> = receipts.map(|l| serde_json::from_slice(l).unwrap()).collect();
    assert_eq!(receipts.len() as u64, doc.receipt_count);
    Session { events, receipts, doc, completeness: report.completeness, pack }
}

/// Everything that a peer received is there, once, and every call has one receipt.
pub fn evidence(sessions: &[Session], crossed: &Crossed) {
    let mut found: HashMap<(EventKind, &str), usize> = HashMap::new();
    let mut calls = BTreeSet::new();
    for event in sessions.iter().flat_map(|s| &s.events) {
        let Some(sha256) = &event.wire_sha256 else { continue };
        let direction = event.direction.unwrap().as_str();
        let key = match event.event {
            EventKind::RequestReceived | EventKind::ResponseReceived => (event.event, format!("{direction} {sha256}")),
            _ => continue,
        };
        *found.entry((key.0, Box::leak(key.1.into_boxed_str()))).or_default() += 1;
        if event.event == EventKind::RequestReceived && event.method.as_deref() == Some("tools/call") {
            assert!(calls.insert(event.invocation_id.unwrap().to_string()), "a call twice");
        }
    }
    assert!(found.values().all(|n| *n == 1), "a message twice");
    for (direction, bytes) in [("server_to_client", &crossed.client), ("client_to_server", &crossed.server)] {
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        for line in bytes[..whole].split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            let Some(kind) = recorded(line) else { continue };
            let key = format!("{direction} {}", sha256_hex(line));
            let shown = String::from_utf8_lossy(&line[..line.len().min(120)]);
            assert!(
                found.contains_key(&(kind, key.as_str())),
                "{direction}: received and not in the evidence: {shown}"
            );
        }
    }
    let mut receipted = BTreeSet::new();
    for receipt in sessions.iter().flat_map(|s| &s.receipts).filter(|r| r["type"] == "mcp_tool_call") {
        assert!(receipted.insert(receipt["invocation_id"].as_str().unwrap().to_owned()), "two receipts for a call");
    }
    if !crossed.damaged {
        assert_eq!(receipted, calls);
    }
}

/// The event that a message must have; `None` for what is not recorded.
fn recorded(line: &[u8]) -> Option<EventKind> {
    let message: Value = serde_json::from_slice(line).unwrap();
    match (message["method"].as_str(), &message["id"]) {
        (Some("tools/call" | "sampling/createMessage"), _) => Some(EventKind::RequestReceived),
        (Some(_), _) | (None, Value::Null) => None,
        // The answer to `initialize`, which is not recorded.
        (None, id) if *id == 0 => None,
        (None, _) => Some(EventKind::ResponseReceived),
    }
}
