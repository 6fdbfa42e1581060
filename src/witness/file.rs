//! Files in packs what witnesses have signed of the ledger's lines about them (docs/formats.md, "Anchors of a pack").

use crate::{
    model::{
        LedgerKind, LedgerLine,
        ledger::{LedgerMembers, entry},
        line::text,
        pack::{ANCHORS, MANIFEST, UNSIGNED},
        reading::{self, Reading},
        sha256_hex,
    },
    pack::verify::{
        pack_anchor::{self, MAX_ANCHORS},
        proof::of_ledger,
        tlog_policy::Policy,
    },
    paths::AuditDir,
    record::log::{self, LogError},
    tree::{Nodes, leaf},
};
use std::{collections::HashMap, io, path::Path};

/// Bytes of a manifest, and of an anchor, that are read.
const MAX_READ: u64 = 4 << 20;
/// Bytes of the lines of a ledger that a pack gets.
const MAX_RUN: usize = 1 << 20;

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Filed {
    /// Packs that have an anchor now, and had none that counts.
    pub packs: u64,
    /// Why others have none.
    pub problems: Vec<String>,
}

/// Gives each pack that the first lines of a ledger name an anchor, unless it has one that counts: the proof that its line stands in
/// the tree of a note that witnesses signed. `now` in seconds since 1970.
///
/// # Errors
/// The ledger cannot be read. That a pack cannot be written to is none.
pub fn to_packs(dir: &AuditDir, policy: &Policy, note: &str, size: u64, now: u64) -> Result<Filed, LogError> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    log::each(dir, &mut |n, line| lines.extend((n < size).then(|| line.to_vec())))?;
    let nodes = Nodes::of(lines.iter().map(|line| leaf(&entry(line))).collect());
    let mut filed = Filed::default();
    let (mut anchor, mut starts) = (None, HashMap::new());
    for (n, bytes) in lines.iter().enumerate() {
        let members = LedgerMembers::of_line(bytes).unwrap_or_default();
        let kind = text(members.kind).unwrap_or_default();
        let is = |other: LedgerKind| kind == other.as_str();
        if is(LedgerKind::SegmentStart)
            && let Some(session) = text(members.session_id)
        {
            starts.insert(session.into_owned(), anchor.map(|anchor| anchor..n));
        }
        let is_wanted = is(LedgerKind::Anchored) || is(LedgerKind::PackSealed);
        let Some(Reading::Readable(line)) = is_wanted.then(|| reading::read::<LedgerLine>(bytes)) else { continue };
        if let Some(anchored) = &line.anchored {
            anchor = policy.judge(&anchored.checkpoint, now).from.map(|_| n).or(anchor);
            continue;
        }
        let Ok(path) = nodes.inclusion(n as u64) else { continue };
        let proof = of_ledger(bytes, n as u64, path, note);
        let run = line.session_id.and_then(|session| starts.get(&session.to_string()).cloned().flatten());
        let run = run.map(|run| lines[run].iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect());
        match one(dir, policy, &line, proof.as_bytes(), run, now) {
            Ok(is_new) => filed.packs += u64::from(is_new),
            Err(e) => filed.problems.push(format!("{}: {e}", line.segment)),
        }
    }
    Ok(filed)
}

/// Whether a pack got its anchor: one that is not there, or not the one that the line names, gets none.
fn one(
    dir: &AuditDir,
    policy: &Policy,
    line: &LedgerLine,
    proof: &[u8],
    run: Option<Vec<u8>>,
    now: u64,
) -> io::Result<bool> {
    let (Some(paths), Some(sealed)) = (dir.session_of_segment(&line.segment), &line.pack_manifest_sha256) else {
        return Ok(false);
    };
    let files = dir.files();
    let manifest = match files.read(&paths.pack.join(MANIFEST), MAX_READ) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        read => sha256_hex(&read?),
    };
    let anchors = paths.pack.join(UNSIGNED).join(ANCHORS);
    let there = files.names(&anchors)?;
    let counts = |name: &std::ffi::OsString| {
        let read = files.read(&anchors.join(name), MAX_READ);
        read.is_ok_and(|bytes| pack_anchor::counts(&bytes, sealed, policy, now))
    };
    if manifest != *sealed || there.iter().any(counts) {
        return Ok(false);
    }
    if there.len() + 2 > MAX_ANCHORS {
        return Err(io::Error::other(format!("its pack has {} anchors, and more are not read", there.len())));
    }
    files.make_dir(&anchors)?;
    let keep = |extension: &str, bytes: &[u8]| {
        let path = anchors.join(format!("{}.{extension}", sha256_hex(bytes)));
        files.replace(Path::new(&anchors.join(".new")), &path, bytes, true)
    };
    if let Some(run) = run.filter(|run| run.len() <= MAX_RUN) {
        keep("jsonl", &run)?;
    }
    keep("tlog-proof", proof)?;
    Ok(true)
}
