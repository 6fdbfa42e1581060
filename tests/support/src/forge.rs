//! A pack in memory, and what an attacker can do to it.

use crate::{
    rig::scratch,
    second,
    sessions::{self, Plan, Written},
};
use assay::{
    canon,
    model::{
        LedgerKind, LedgerLine, SessionDoc, SessionId, WallTime,
        checkpoint::{self, Role, text_of},
        event::hash_of_line,
        ledger::entry,
        pack::{self, Attestation, Manifest, pretty},
        sha256_hex, to_line,
    },
    note::Key,
    pack::{
        build,
        keys::{Signer, SignerId},
        report,
        sign::sign,
        verify::{
            Completeness, VerifyOptions, VerifyReport,
            proof::{Proof, of_ledger},
            verify,
        },
    },
    tree::{self, Frontier, Hash, inclusion, leaf},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    path::Path,
    sync::{LazyLock, OnceLock},
};

pub const MANIFEST: &str = "pack_manifest.json";
pub const SIGNATURE: &str = "pack_signature.sig";
pub const RECEIPTS: &str = "receipt_pack.jsonl";
pub const EVENTS: &str = "audit_log.jsonl";
pub const CHECKPOINTS: &str = "checkpoints.jsonl";
pub const SESSION: &str = "session.json";
pub const REPORT: &str = "verify_report.json";
pub const TRANSCRIPT: &str = "verify_transcript.md";

/// The key that the owner pinned.
pub fn key_k() -> Signer {
    Signer::from_seed(SignerId::parse("owner").unwrap(), &[1; 32])
}

/// The attacker's.
pub fn key_e() -> Signer {
    Signer::from_seed(SignerId::parse("owner").unwrap(), &[2; 32])
}

/// Files of a pack by name.
#[derive(Clone)]
pub struct Pack(pub BTreeMap<String, Vec<u8>>);

pub fn recorded(plan: &Plan) -> (tempfile::TempDir, std::path::PathBuf) {
    let tmp = scratch();
    let written = sessions::write(plan, tmp.path().join("audit")).unwrap();
    let dir = seal(&written);
    (tmp, dir)
}

pub fn seal(written: &Written) -> std::path::PathBuf {
    let input = build::Input {
        paths: &written.paths,
        session: &written.doc,
        policies: None,
        surface: None,
        decisions: None,
        signer: &key_k(),
        ci_binding: None,
        now: WallTime::from_millis(written.doc.ended_at.millis() + 1),
    };
    build::build(&input).unwrap().dir
}

/// P: 20 calls, one result of 1 MB with its content stored.
pub fn valid() -> Pack {
    static P: LazyLock<Pack> =
        LazyLock::new(|| Pack::read(&recorded(&Plan { big_result: Some(1 << 20), ..Plan::default() }).1));
    P.clone()
}

/// A pack of another session.
pub fn other() -> Pack {
    static P: LazyLock<Pack> = LazyLock::new(|| Pack::read(&recorded(&Plan { seed: 2, ..Plan::default() }).1));
    P.clone()
}

/// A small pack.
pub fn small() -> Pack {
    static P: OnceLock<Pack> = OnceLock::new();
    P.get_or_init(|| {
        let tools = vec!["t".to_owned()];
        Pack::read(&recorded(&Plan { calls: 1, tools, ..Plan::default() }).1)
    })
    .clone()
}

/// A key of a session, by its seed; and the long-term key that certifies it.
pub struct Sealer {
    session: SessionId,
    secret: Signer,
    pub key: Key,
    pub by: Signer,
}

impl Sealer {
    pub fn of(session: SessionId, seed: u8, by: Signer) -> Self {
        let secret = Signer::from_seed(SignerId::parse("session").unwrap(), &[seed; 32]);
        let key = Key::new(&checkpoint::origin(session), secret.public()).unwrap();
        Self { session, secret, key, by }
    }

    /// The long-term key, as notes name it.
    pub fn signer(&self) -> Key {
        checkpoint::signer(self.by.id().as_str(), self.by.public()).unwrap()
    }

    /// The line of the certified key.
    pub fn certified(&self, role: Role) -> String {
        let (signer, text) = (self.signer(), checkpoint::key_text(self.session, &self.key, role));
        line(checkpoint::key_line(&signer, signer.note(&text, &self.by.sign(text.as_bytes()).unwrap())).unwrap())
    }

    /// The line of a checkpoint.
    pub fn checkpoint(&self, size: u64, root: &Hash) -> String {
        self.signed(&checkpoint::checkpoint_text(self.session, size, root))
    }

    /// The line of a checkpoint with this text.
    pub fn signed(&self, text: &str) -> String {
        line(checkpoint::checkpoint_line(self.key.note(text, &self.secret.sign(text.as_bytes()).unwrap())).unwrap())
    }
}

fn line(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap().trim_end().to_owned()
}

impl Pack {
    /// Id of the session.
    pub fn session(&self) -> SessionId {
        serde_json::from_slice::<SessionDoc>(&self.0[SESSION]).unwrap().session_id
    }

    /// The root of its first events.
    pub fn root(&self, size: usize) -> Hash {
        let hashes = self.lines(EVENTS).into_iter().take(size).map(|line| {
            let mut hash = Hash::default();
            hex::decode_to_slice(hash_of_line(line.as_bytes()).unwrap(), &mut hash).unwrap();
            tree::leaf(&hash)
        });
        hashes.collect::<Frontier>().root()
    }

    /// The checkpoints of a recorder that stated it at these sizes.
    pub fn sealed_at(&self, sealer: &Sealer, sizes: &[usize]) -> Vec<String> {
        let stated = sizes.iter().map(|size| sealer.checkpoint(*size as u64, &self.root(*size)));
        std::iter::once(sealer.certified(Role::Recorder)).chain(stated).collect()
    }

    pub fn read(dir: &Path) -> Self {
        let files = fs::read_dir(dir).unwrap().map(|e| e.unwrap()).filter(|e| e.file_type().unwrap().is_file());
        Self(files.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect())
    }

    pub fn write(&self, dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        for (name, bytes) in &self.0 {
            fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            fs::write(dir.join(name), bytes).unwrap();
        }
    }

    pub fn file(&mut self, name: &str) -> &mut Vec<u8> {
        self.0.get_mut(name).unwrap()
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.0[name].clone()).unwrap()
    }

    pub fn set(&mut self, name: &str, text: impl Into<Vec<u8>>) {
        self.0.insert(name.to_owned(), text.into());
    }

    /// Replaces the first occurrence, which must be there.
    pub fn replace(&mut self, name: &str, from: &str, to: &str) {
        let text = self.text(name);
        assert!(text.contains(from), "{name} has no {from}");
        self.set(name, text.replacen(from, to, 1));
    }

    pub fn lines(&self, name: &str) -> Vec<String> {
        self.text(name).lines().map(str::to_owned).collect()
    }

    pub fn set_lines(&mut self, name: &str, lines: &[String]) {
        self.set(name, lines.iter().map(|l| format!("{l}\n")).collect::<String>());
    }

    /// Changes one line as a value; its new text is canonical.
    pub fn edit(&mut self, name: &str, line: usize, f: impl FnOnce(&mut Value)) {
        let mut lines = self.lines(name);
        let mut value: Value = serde_json::from_str(&lines[line]).unwrap();
        f(&mut value);
        lines[line] = canonical(&value);
        self.set_lines(name, &lines);
    }

    /// Changes a document that is no line; its new text is canonical.
    pub fn edit_document(&mut self, name: &str, f: impl FnOnce(&mut Value)) {
        let mut value: Value = serde_json::from_slice(&self.0[name]).unwrap();
        f(&mut value);
        self.set(name, canonical(&value));
    }

    /// Renumbers and chains the events anew, as an attacker does who knows the format.
    pub fn restamp_events(&mut self) {
        let mut prev: Option<String> = None;
        let lines: Vec<String> = self
            .lines(EVENTS)
            .iter()
            .enumerate()
            .map(|(n, line)| {
                let mut event: Value = serde_json::from_str(line).unwrap();
                event["event_seq"] = n.into();
                if let Some(prev) = &prev {
                    event["prev_hash"] = prev.as_str().into();
                }
                let hash = hash_of_line(canonical(&event).as_bytes()).unwrap();
                event["hash"] = hash.as_str().into();
                prev = Some(hash);
                canonical(&event)
            })
            .collect();
        self.set_lines(EVENTS, &lines);
    }

    /// Renumbers the receipts.
    pub fn renumber_receipts(&mut self) {
        for n in 0..self.lines(RECEIPTS).len() {
            self.edit(RECEIPTS, n, |r| r["seq"] = n.into());
        }
    }

    /// Makes everything agree with the receipts and events that there are: bindings, ends, counts, session.json.
    pub fn make_consistent(&mut self) {
        self.renumber_receipts();
        let receipts: BTreeMap<String, String> = self
            .lines(RECEIPTS)
            .iter()
            .filter_map(|l| {
                let r: Value = serde_json::from_str(l).unwrap();
                Some((r["receipt_id"].as_str()?.to_owned(), sha256_hex(l.as_bytes())))
            })
            .collect();
        let events = self.lines(EVENTS);
        for (n, line) in events.iter().enumerate() {
            let event: Value = serde_json::from_str(line).unwrap();
            let bound = event["detail"]["receipt_id"].as_str().and_then(|id| receipts.get(id)).cloned();
            let (count, total) = (events.len(), self.lines(RECEIPTS).len());
            self.edit(EVENTS, n, |e| {
                if let Some(sha) = bound {
                    e["detail"]["receipt_sha256"] = sha.into();
                }
                if e["event"] == "chain_end" {
                    e["detail"]["events"] = count.into();
                    e["detail"]["receipts"] = (total - 1).into();
                }
            });
        }
        self.restamp_events();
        let hashes: Vec<String> = self
            .lines(EVENTS)
            .iter()
            .map(|l| serde_json::from_str::<Value>(l).unwrap()["hash"].as_str().unwrap().to_owned())
            .collect();
        let (first, last) = (hashes[0].clone(), hashes[hashes.len() - 1].clone());
        let end = self.lines(RECEIPTS).len() - 1;
        self.edit(RECEIPTS, 0, |r| r["chain_head"] = first.as_str().into());
        self.edit(RECEIPTS, end, |r| r["chain_hash"] = last.as_str().into());
        let (count, total) = (hashes.len(), end + 1);
        self.edit(SESSION, 0, |s| {
            s["chain_first"] = first.into();
            s["chain_last"] = last.into();
            s["event_count"] = count.into();
            s["receipt_count"] = total.into();
        });
    }

    /// Puts new hashes into the manifest and signs it.
    pub fn sign(&mut self, signer: &Signer) {
        self.sign_with(signer, |_| ());
    }

    /// The same, with a last change to the manifest before it is signed.
    pub fn sign_with(&mut self, signer: &Signer, change: impl FnOnce(&mut Manifest)) {
        let mut m = self.attested(|_| ());
        let (signed, _) = sign(m.attestation, m.files, signer).unwrap();
        m = signed;
        change(&mut m);
        use base64::Engine as _;
        let signature = signer.sign(&m.signed_bytes().unwrap()).unwrap();
        m.signature = base64::engine::general_purpose::STANDARD.encode(signature);
        self.set(MANIFEST, pretty(&m).unwrap());
        self.set(SIGNATURE, signature);
    }

    /// The same, with a change to what is attested.
    pub fn sign_attesting(&mut self, signer: &Signer, change: impl FnOnce(&mut Attestation)) {
        let m = self.attested(change);
        let (m, signature) = sign(m.attestation, m.files, signer).unwrap();
        self.set(MANIFEST, pretty(&m).unwrap());
        self.set(SIGNATURE, signature);
    }

    /// The manifest over the files as they are, with the report and the transcript that a builder would write to it.
    fn attested(&mut self, change: impl FnOnce(&mut Attestation)) -> Manifest {
        let mut m: Manifest = serde_json::from_slice(&self.0[MANIFEST]).unwrap();
        m.files.retain(|f| self.0.contains_key(&f.path));
        if self.0.contains_key(CHECKPOINTS) && m.file(CHECKPOINTS).is_none() {
            m.files.push(pack::FileEntry { path: CHECKPOINTS.to_owned(), sha256: String::new(), bytes: 0 });
        }
        let receipts = self.lines_lossy(RECEIPTS);
        let a = &mut m.attestation;
        a.n_receipts = receipts.len() as u64;
        a.head_hash = sha256_hex(receipts.last().map_or(b"empty", |l| l.as_slice()));
        let times = receipts.iter().filter_map(|l| serde_json::from_slice::<Value>(l).ok());
        let mut times: Vec<String> = times.filter_map(|r| r["timestamp"].as_str().map(str::to_owned)).collect();
        times.sort();
        if let (Some(first), Some(last)) = (times.first(), times.last()) {
            (a.timestamp_start, a.timestamp_end) = (first.clone(), last.clone());
        }
        change(a);
        let hash = |pack: &Self, m: &mut Manifest| {
            for f in &mut m.files {
                let bytes = &pack.0[&f.path];
                f.sha256 = sha256_hex(bytes);
                f.bytes = bytes.len() as u64;
            }
        };
        hash(self, &mut m);
        self.report(&m);
        hash(self, &mut m);
        m
    }

    /// Writes the builder's report and transcript anew, unless they were attacked themselves.
    fn report(&mut self, m: &Manifest) {
        let strict = |name: &str| canon::scan(&self.0[name]).is_ok_and(|anomalies| anomalies.is_empty());
        let session = serde_json::from_slice(&self.0[SESSION]).ok().filter(|_| strict(REPORT) && strict(SESSION));
        let Some(session) = session else { return };
        let old: Value = serde_json::from_slice(&self.0[REPORT]).unwrap();
        let ended =
            String::from_utf8_lossy(&self.0[EVENTS]).lines().last().is_some_and(|l| l.contains("\"chain_end\""));
        let completeness = match (ended, &session) {
            (false, _) => Completeness::Unterminated,
            (true, SessionDoc { session_complete: true, .. }) => Completeness::Complete,
            (true, _) => Completeness::Incomplete,
        };
        let root = sha256_hex(&pack::canonical(&m.attestation).unwrap());
        let more: Vec<_> =
            m.files.iter().filter(|f| ![RECEIPTS, REPORT, TRANSCRIPT].contains(&&*f.path)).cloned().collect();
        let checked = report::Checked {
            attestation: &m.attestation,
            root: &root,
            session: &session,
            completeness,
            findings: &[],
            finding_count: 0,
            receipts: &m.files[0],
            more: &more,
            at: old["verified_at"].as_str().unwrap(),
        };
        let (report, transcript) = (report::report(&checked).unwrap(), report::transcript(&checked));
        self.set(REPORT, report);
        self.set(TRANSCRIPT, transcript);
    }

    /// Puts another report of the builder into the pack as it is, and signs it.
    pub fn sign_report(&mut self, signer: &Signer, report: String) {
        self.set(REPORT, report);
        let mut m: Manifest = serde_json::from_slice(&self.0[MANIFEST]).unwrap();
        let entry = m.files.iter_mut().find(|f| f.path == REPORT).unwrap();
        (entry.sha256, entry.bytes) = (sha256_hex(&self.0[REPORT]), self.0[REPORT].len() as u64);
        let (m, signature) = sign(m.attestation, m.files, signer).unwrap();
        self.set(MANIFEST, pretty(&m).unwrap());
        self.set(SIGNATURE, signature);
    }

    fn lines_lossy(&self, name: &str) -> Vec<Vec<u8>> {
        self.0[name].split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(<[u8]>::to_vec).collect()
    }
}

pub fn canonical(value: &Value) -> String {
    String::from_utf8(canon::canonicalize(value.to_string().as_bytes()).unwrap()).unwrap()
}

pub fn pinned() -> VerifyOptions {
    VerifyOptions {
        signers: vec![key_k().fingerprint()],
        now: WallTime::from_millis(1_773_600_000_000),
        ..Default::default()
    }
}

pub fn unpinned() -> VerifyOptions {
    VerifyOptions { signers: Vec::new(), ..pinned() }
}

pub fn check(dir: &Path, options: &VerifyOptions) -> VerifyReport {
    let report = check_alone(dir, options);
    second::agrees(dir, options, &report);
    report
}

/// Without the second verifier.
pub fn check_alone(dir: &Path, options: &VerifyOptions) -> VerifyReport {
    verify(dir, options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Verifies, and holds every demand that all attacks share: nothing is written, nothing hidden is shown.
pub fn check_pack(pack: &Pack, options: &VerifyOptions) -> VerifyReport {
    let tmp = scratch();
    let dir = tmp.path().join("p");
    pack.write(&dir);
    let before = tree(&dir);
    let report = check(&dir, options);
    assert_eq!(tree(&dir), before, "the verifier changed something");
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 1, "the verifier made something");
    let document = serde_json::to_string(&report).unwrap();
    assert!(!document.bytes().any(|b| b < 0x20), "a control byte in the report");
    report
}

fn tree(dir: &Path) -> Vec<(std::ffi::OsString, u64, std::time::SystemTime)> {
    let of = |e: fs::DirEntry| {
        let m = fs::symlink_metadata(e.path()).unwrap();
        (e.file_name(), m.len(), m.modified().unwrap())
    };
    let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(|e| of(e.unwrap())).collect();
    all.sort();
    all
}

/// The proof with the ledger's line about the end of the session, as third of five, after these changes; `log` signs.
pub fn in_ledger(
    mut proof: Proof,
    pack: &Pack,
    sealer: &Sealer,
    change: impl FnOnce(&mut LedgerLine),
    log: &str,
    signer: &Signer,
) -> Proof {
    let events = pack.lines(EVENTS).len();
    let mut line = LedgerLine {
        anchored: None,
        at: WallTime::from_millis(0),
        complete: Some(true),
        event_count: events as u64,
        hash: String::new(),
        kind: LedgerKind::SegmentEnd,
        ledger_seq: 2,
        note: None,
        pack_manifest_sha256: None,
        prev_hash: "0".repeat(64),
        pruned: None,
        renewed: None,
        segment: "segment_x.jsonl".to_owned(),
        segment_hash: "0".repeat(64),
        session_id: Some(pack.session()),
        session_key: Some(sha256_hex(sealer.key.public())),
        tree_root: Some(hex::encode(pack.root(events))),
        v: 4,
    };
    change(&mut line);
    line.seal().unwrap();
    let text = to_line(&line).unwrap();
    let leaves: Vec<Hash> = (0..5).map(|n| leaf(&if n == 2 { entry(&text) } else { [n; 32] })).collect();
    let root = |range: std::ops::Range<u64>| {
        leaves[range.start as usize..range.end as usize].iter().copied().collect::<Frontier>().root()
    };
    let path = inclusion(2, 5).unwrap().into_iter().map(root).collect();
    let said = text_of(log, 5, &root(0..5));
    let note = Key::new(log, signer.public()).unwrap().note(&said, &signer.sign(said.as_bytes()).unwrap());
    proof.extra.ledger = Some(of_ledger(&text, 2, path, &note));
    proof.extra.v = 2;
    proof
}
