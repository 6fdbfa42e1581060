//! The anchor channel of a pack: what witnesses that the caller trusts have signed of the ledger's lines about it
//! (docs/formats.md, "Anchors of a pack").

use super::{
    anchor::{AnchorOptions, AnchorReport, AnchorVerdict, Found, Judging},
    ed25519::verify_ed25519,
    finding::{FORK, Finding},
    options::VerifyError,
    proof::{HEAD, InTree, in_tree},
    source::{PackDir, ReadMeter, ReadStop},
    tlog_policy::Policy,
    words::Stage,
};
use crate::{
    model::{
        LedgerKind, LedgerLine, SessionDoc, WallTime,
        event::hash_of_line,
        ledger::{LedgerMembers, LogName, MAX_LINE},
        line::text,
        pack::{ANCHORS, MANIFEST, UNSIGNED},
        reading::{self, Reading},
    },
    text::counted,
};
use assay_evidence::note::{self, Key};
use std::collections::BTreeSet;

/// Anchors of a pack that are read.
pub const MAX_ANCHORS: usize = 64;
/// Bytes of one.
const MAX_ANCHOR: usize = 1 << 20;

/// Whether an anchor is of the pack with this manifest, and enough have signed it; `now` in seconds since 1970.
#[must_use]
pub fn counts(anchor: &[u8], manifest: &str, policy: &Policy, now: u64) -> bool {
    let is_of_it = |found: &InTree| found.line.pack_manifest_sha256.as_deref() == Some(manifest);
    in_tree(anchor).is_ok_and(|found| is_of_it(&found) && policy.judge(&found.note, now).since.is_some())
}

/// The pack that anchors are to be of.
pub(super) struct Subject<'a> {
    /// SHA-256 of its manifest.
    pub manifest: &'a str,
    /// Its session, where it has one that reads.
    pub session: Option<&'a SessionDoc>,
    /// The public key that signed it.
    pub key: Option<[u8; 32]>,
}

/// Judges the anchors of a pack: those in it, and those that the caller has. Gives what contradicts the pack as well.
///
/// # Errors
/// [`VerifyError::Cancelled`].
pub(super) fn judge(
    dir: &PackDir,
    options: &AnchorOptions,
    now: WallTime,
    subject: &Subject<'_>,
    meter: &mut ReadMeter<'_>,
) -> Result<(AnchorReport, Vec<Finding>), VerifyError> {
    let anchors = dir.sub(UNSIGNED).and_then(|unsigned| unsigned.sub(ANCHORS));
    let (mut names, mut count) = (BTreeSet::new(), 0);
    let listed = anchors.as_ref().map(|anchors| {
        anchors.visit(&mut |entry| {
            count += 1;
            names.insert(entry.name);
            if names.len() > MAX_ANCHORS {
                names.pop_last();
            }
        })
    });
    let present = count + options.kept.len() as u64;
    let Some(policy) = &options.policy else {
        return Ok((AnchorReport { present, ..AnchorReport::default() }, Vec::new()));
    };
    let mut judging = Judging::new(policy, now, true);
    if matches!(listed, Some(Err(_) | Ok(false))) || count > MAX_ANCHORS as u64 {
        judging.problem(format!("of the pack's anchors only {} are read", counted(names.len() as u64, "file")));
    }
    for name in &names {
        match anchors.as_ref().map(|anchors| anchors.read_whole(name, MAX_ANCHOR, meter)) {
            Some(Ok(Ok(whole))) => one(&mut judging, &whole.bytes, subject, true),
            Some(Ok(Err(ReadStop::Cancelled))) => return Err(VerifyError::Cancelled),
            _ => judging.invalid("an anchor is no plain file of at most 1 MiB"),
        }
    }
    for kept in &options.kept {
        one(&mut judging, kept, subject, false);
    }
    let (mut report, said) = judging.done();
    report.present = present;
    Ok((report, said))
}

/// One anchor. One that is kept elsewhere may be of another pack: then it says nothing.
fn one(judging: &mut Judging<'_>, bytes: &[u8], subject: &Subject<'_>, is_in_pack: bool) {
    let wrong = if bytes.starts_with(HEAD.as_bytes()) {
        match in_tree(bytes) {
            Ok(found) => sealed(judging, &found, subject),
            Err(e) => Err(format!("an anchor does not hold: {e}")),
        }
    } else {
        run(bytes, subject).map(|note| judging.before(&note))
    };
    match wrong {
        Ok(()) => {}
        Err(what) if is_in_pack => judging.invalid(what),
        Err(what) => judging.problem(what),
    }
}

/// The ledger's line about the pack, in a tree that witnesses have signed.
fn sealed(judging: &mut Judging<'_>, found: &InTree, subject: &Subject<'_>) -> Result<(), String> {
    let InTree { line, origin, lines, note } = found;
    if line.kind != LedgerKind::PackSealed {
        return Err("an anchor is of another line of the ledger than that of a pack".to_owned());
    }
    let manifest = line.pack_manifest_sha256.as_deref().unwrap_or_default();
    if manifest == subject.manifest {
        judging.note(note, *lines, &mut |_: &str| Found::Fits);
        return Ok(());
    }
    // Anybody can have witnesses sign a ledger that says anything. It must be one of the key that signed this pack.
    let holds = |key: &[u8], text: &[u8], signature: &[u8]| verify_ed25519(key, text, signature).is_ok();
    let key = subject.key.filter(|_| LogName::is_one(origin)).and_then(|key| Key::new(origin, key));
    let is_same_signer = key.is_some_and(|key| note::open(note, &key, &holds).is_ok());
    let is_same_session = subject.session.is_some_and(|doc| line.session_id == Some(doc.session_id));
    if !is_same_signer || !is_same_session {
        return Err("an anchor is of another pack".to_owned());
    }
    judging.note(note, *lines, &mut |names: &str| {
        let what = format!("{names} signed a ledger of the same key that names another pack of this session");
        let finding = Finding::new(FORK, Stage::VerifySignature, what).file(MANIFEST);
        Found::Contradicts(AnchorVerdict::Fork, finding.sides(manifest, subject.manifest))
    });
    Ok(())
}

/// The lines of the ledger from one that holds an anchor to the one that the session begins with. Gives that anchor.
fn run(bytes: &[u8], subject: &Subject<'_>) -> Result<String, String> {
    let none = || "an anchor is no proof, nor lines of a ledger that begin with what witnesses signed".to_owned();
    let lines = bytes.strip_suffix(b"\n").ok_or_else(none)?;
    let (mut note, mut prev) = (None, None);
    for line in lines.split(|b| *b == b'\n') {
        let members = LedgerMembers::of_line(line).filter(|_| line.len() <= MAX_LINE).ok_or_else(none)?;
        let hash = hash_of_line(line).filter(|hash| text(members.hash).as_deref() == Some(hash.as_str()));
        let follows = prev.is_none() || text(members.prev_hash).as_deref() == prev.as_deref();
        if !follows || hash.is_none() {
            return Err("lines of a ledger before the session are not one chain".to_owned());
        }
        if prev.is_none() {
            let Reading::Readable(first) = reading::read::<LedgerLine>(line) else { return Err(none()) };
            note = first.anchored.filter(|_| first.kind == LedgerKind::Anchored).map(|anchored| anchored.checkpoint);
        }
        prev = hash;
    }
    let note = note.ok_or_else(none)?;
    if prev.is_none() || prev.as_deref() != subject.session.map(|doc| doc.ledger_hash.as_str()) {
        return Err("the lines of a ledger do not lead to the beginning of this session".to_owned());
    }
    Ok(note)
}
