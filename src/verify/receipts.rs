//! Stage `validate_receipts` for packs of ours: every line canonical, typed, in order, unique, its content what its hash says.

use super::{
    claims_tally::Tally,
    escrow,
    finding::Finding,
    notebook::Notebook,
    receipt_line::explain,
    sense,
    source::{HashedLines, ReadMeter, ReadStop},
    words::Stage,
};
use crate::model::pack::RECEIPTS;
use crate::{
    canon,
    model::{
        CallAnomaly, Outcome, PolicyVerdict, ReceiptId, SessionId, WallTime, Word,
        cursor::{hex_of, shown},
        receipt::{Counts, ReceiptView as Receipt},
        redaction::{self, Side},
        schema::{OWN_REDACTED_SCHEMA, OfCall},
    },
};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
};

/// Most receipts in one pack; more belong in rolling packs.
pub const MAX_RECEIPTS: u64 = 10_000_000;

/// Receipt ids seen, in 64 bits each: ours have no more, others are hashed with a secret random key.
#[derive(Default)]
pub struct Ids {
    seen: HashSet<u64, Mixed>,
    key: RandomState,
}

/// The set holds random or hashed bits: they need mixing once, not SipHash.
#[derive(Default, Clone)]
struct Mixed(RandomKey);

#[derive(Clone)]
struct RandomKey(u64);

impl Default for RandomKey {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0u8) | 1)
    }
}

struct MixedHasher {
    key: u64,
    value: u64,
}

impl BuildHasher for Mixed {
    type Hasher = MixedHasher;
    fn build_hasher(&self) -> MixedHasher {
        MixedHasher { key: self.0.0, value: 0 }
    }
}

impl std::hash::Hasher for MixedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(n ^ self.value ^ self.key) * u128::from(self.key);
        self.value = (wide >> 64) as u64 ^ wide as u64;
    }
    fn finish(&self) -> u64 {
        self.value
    }
}

impl Ids {
    /// Takes an id of ours; `false` when it was there.
    pub fn add(&mut self, bits: u64) -> bool {
        self.seen.insert(bits)
    }

    /// Takes any id; `false` when it was there.
    pub fn add_text(&mut self, id: &[u8]) -> bool {
        self.seen.insert(self.key.hash_one(id))
    }
}

/// Where a receipt is.
#[derive(Debug, Clone, Copy)]
pub struct ReceiptPlace {
    /// Line in the file, from 1.
    pub line: u64,
    /// Offset of the line in the file, bytes.
    pub offset: u64,
    /// Index of the receipt, from 0.
    pub index: u64,
    /// SHA-256 of its line, hex digits.
    pub sha256: [u8; 64],
}

/// The receipts of a pack of ours, one by one.
pub struct ReceiptFile {
    lines: HashedLines,
    ids: Ids,
    session: Option<SessionId>,
    /// Lines that were looked at ahead of their event.
    ahead: VecDeque<(Vec<u8>, ReceiptPlace)>,
    current: Vec<u8>,
    was_ahead: bool,
    /// A later version wrote one of the lines: for this one the file ends before it.
    pub newer: bool,
    /// What was read so far.
    pub totals: ReceiptTotals,
}

/// What the receipts amount to.
#[derive(Debug, Clone, Default)]
pub struct ReceiptTotals {
    /// Number of receipts.
    pub count: u64,
    /// Hash of the last line.
    pub head: Option<[u8; 64]>,
    /// Earliest and latest `timestamp`.
    pub span: Option<(WallTime, WallTime)>,
    /// Counts, as far as receipts give them.
    pub counts: Counts,
    /// The policies that judged, as receipts name them: each needs its snapshot.
    pub policies: BTreeSet<String>,
    /// Contents that are not what their hash says, because rules redacted them.
    pub redacted: u64,
}

impl ReceiptFile {
    /// Over the lines of `receipt_pack.jsonl`.
    #[must_use]
    pub fn new(lines: HashedLines, session: Option<SessionId>) -> Self {
        Self {
            lines,
            ids: Ids::default(),
            session,
            ahead: VecDeque::new(),
            current: Vec::new(),
            was_ahead: false,
            newer: false,
            totals: ReceiptTotals::default(),
        }
    }

    /// The next receipt, checked by itself; its second part is `None` where the line is none.
    ///
    /// # Errors
    /// [`ReadStop`].
    pub fn next(
        &mut self,
        notes: &mut Notebook<'_>,
        tally: &mut Tally,
        meter: &mut ReadMeter<'_>,
    ) -> Result<Option<(ReceiptPlace, Option<Receipt<'_>>)>, ReadStop> {
        if let Some((line, place)) = self.ahead.pop_front() {
            self.current = line;
            self.was_ahead = true;
            return Ok(Some((place, Receipt::of_line(&self.current))));
        }
        self.was_ahead = false;
        if self.newer {
            return Ok(None);
        }
        let Some(line) = self.lines.next(meter)? else { return Ok(None) };
        let place = ReceiptPlace {
            line: line.number,
            offset: line.offset,
            index: self.totals.count,
            sha256: hex_of(canon::sha256(line.bytes)),
        };
        self.totals.count += 1;
        self.totals.head = Some(place.sha256);
        let stage = Stage::ValidateReceipts;
        let at = |code, what: String| {
            Finding::new(code, stage, what).file(RECEIPTS).line(place.line, place.offset).receipt(place.index, None)
        };
        if !line.terminated {
            notes.found(at("E_MANIFEST_TAMPER", "the last receipt has no newline: it was cut".into()));
        }
        let receipt = Receipt::of_line(line.bytes);
        match &receipt {
            None => {
                let expected = "the canonical line of a receipt";
                let (finding, newer) = explain(line.bytes).of_line(stage, expected, line.bytes);
                notes.found(finding.file(RECEIPTS).line(place.line, place.offset).receipt(place.index, None));
                if newer {
                    self.newer = true;
                    return Ok(None);
                }
                notes.garbage(line.bytes.len())?;
            }
            Some(r) => {
                let mut check = Check { notes, place, id: r.id() };
                if !self.ids.add(r.id().distinct()) {
                    check.found("E_DUPLICATE_ID", "receipt_id occurs twice", None);
                }
                if r.seq() != place.index {
                    check.found(
                        "E_CHAIN_BROKEN",
                        "seq has a gap or a repetition",
                        Some((place.index.to_string(), r.seq().to_string())),
                    );
                }
                let (session, trace) = r.session();
                let expected = *self.session.get_or_insert(session);
                if session != expected || trace != expected {
                    let found = format!("{session} (trace {trace})");
                    check.found(
                        "E_CHAIN_BROKEN",
                        "the receipt belongs to another session",
                        Some((expected.to_string(), found)),
                    );
                }
                let t = r.timestamp();
                self.totals.span = Some(self.totals.span.map_or((t, t), |(a, b)| (a.min(t), b.max(t))));
                if let Receipt::Call(call) = r {
                    if let Some(hash) = call.policy_hash {
                        name_policy(&mut self.totals.policies, &String::from_utf8_lossy(hash));
                    }
                    if call.policy_hash.is_some() && call.policy_verdict == PolicyVerdict::NoPolicy {
                        check.found("E_MANIFEST_TAMPER", "a policy is named, but there is no verdict of it", None);
                    }
                    if let Some(what) = sense::call(call) {
                        check.found("E_MANIFEST_TAMPER", what, None);
                    }
                    self.totals.counts.call(call.outcome, call.policy_verdict);
                    let may = call.schema_version == OfCall::Redacted;
                    let stands = |side| {
                        move |content: &[u8], hash: &[u8]| {
                            may && redaction::stands_for(content, hash, sense::words(call.anomalies), side)
                        }
                    };
                    let arguments = (call.arguments_content, Some(call.arguments_hash));
                    let redacted = [
                        content(&mut check, "arguments_content", arguments, &stands(Side::Arguments)),
                        content(
                            &mut check,
                            "result_content",
                            (call.result_content, call.result_hash),
                            &stands(Side::Result),
                        ),
                    ];
                    self.totals.redacted(may, redacted.into_iter().map(u64::from).sum(), &mut check);
                }
                self.totals.server(r, &mut check);
                tally.ours(r);
            }
        }
        Ok(Some((place, receipt)))
    }

    /// What they amount to, if all of them could be read.
    #[must_use]
    pub fn totals(&self) -> Option<ReceiptTotals> {
        (!self.newer).then(|| self.totals.clone())
    }

    /// Where the next receipt is, without reading past it.
    ///
    /// # Errors
    /// [`ReadStop`].
    pub fn peek(
        &mut self,
        notes: &mut Notebook<'_>,
        tally: &mut Tally,
        meter: &mut ReadMeter<'_>,
    ) -> Result<Option<ReceiptPlace>, ReadStop> {
        if let Some((_, place)) = self.ahead.front() {
            return Ok(Some(*place));
        }
        let Some((place, _)) = self.next(notes, tally, meter)? else { return Ok(None) };
        self.ahead.push_back((self.lines.last().to_vec(), place));
        Ok(Some(place))
    }

    /// Whether a receipt of this id was read.
    #[must_use]
    pub fn has(&self, id: ReceiptId) -> bool {
        self.ids.seen.contains(&id.distinct())
    }

    /// The line that [`next`](Self::next) gave last.
    #[must_use]
    pub fn last_line(&self) -> Vec<u8> {
        if self.was_ahead { self.current.clone() } else { self.lines.last().to_vec() }
    }

    /// Puts back a receipt that was taken.
    pub fn put_back(&mut self, line: Vec<u8>, place: ReceiptPlace) {
        self.ahead.push_front((line, place));
    }

    /// SHA-256 and length of the file.
    ///
    /// # Errors
    /// [`ReadStop`].
    pub fn finish(self, meter: &mut ReadMeter<'_>) -> Result<(String, u64), ReadStop> {
        self.lines.finish(meter)
    }
}

impl ReceiptTotals {
    /// Counts the contents of a receipt that rules redacted; `may`: its schema says that there are some.
    fn redacted(&mut self, may: bool, contents: u64, check: &mut Check<'_, '_>) {
        self.redacted += contents;
        if may && contents == 0 {
            let what = "no content of the receipt is redacted, but its schema says so";
            check.found("E_MANIFEST_TAMPER", what, None);
        }
    }

    /// What a server recorded itself.
    fn server(&mut self, receipt: &Receipt<'_>, check: &mut Check<'_, '_>) {
        let (policy, wrong) = match receipt {
            Receipt::Requested(r) => {
                let arguments = (raw(r.arguments_content.as_deref()), Some(r.arguments_hash.as_bytes()));
                let may = r.schema_version == OWN_REDACTED_SCHEMA;
                let is_redacted = content(check, "arguments_content", arguments, &|content, hash| {
                    may && redaction::stands_for(content, hash, as_bytes(&r.anomalies), Side::Arguments)
                });
                self.redacted(may, is_redacted.into(), check);
                (None, escrow::requested(r))
            }
            Receipt::Denied(r) => {
                self.counts.call(Outcome::Denied, PolicyVerdict::Denied);
                (r.policy_hash.as_ref(), escrow::denied(r))
            }
            Receipt::Executed(r) => {
                if !r.is_of_task() {
                    self.counts.execution(r.outcome, r.policy_verdict);
                }
                let hash = r.result_hash.as_ref().map(String::as_bytes);
                let may = r.schema_version == OWN_REDACTED_SCHEMA;
                let result = (raw(r.result_content.as_deref()), hash);
                let is_redacted = content(check, "result_content", result, &|content, hash| {
                    may && redaction::stands_for(content, hash, as_bytes(&r.anomalies), Side::Result)
                });
                self.redacted(may, is_redacted.into(), check);
                (r.policy_hash.as_ref(), escrow::executed(r))
            }
            Receipt::Call(_) | Receipt::Start(_) | Receipt::End(_) | Receipt::Gap(_) => return,
        };
        if let Some(hash) = policy {
            name_policy(&mut self.policies, hash);
        }
        if let Some(what) = wrong {
            check.found("E_MANIFEST_TAMPER", what, None);
        }
    }
}

fn as_bytes(words: &[Word<CallAnomaly>]) -> impl Iterator<Item = &[u8]> {
    words.iter().map(|word| word.as_bytes())
}

fn raw(content: Option<&RawValue>) -> Option<&[u8]> {
    content.map(|raw| raw.get().as_bytes())
}

struct Check<'e, 'o> {
    notes: &'e mut Notebook<'o>,
    place: ReceiptPlace,
    id: ReceiptId,
}

impl Check<'_, '_> {
    fn found(&mut self, code: &'static str, what: &str, sides: Option<(String, String)>) {
        let mut f = Finding::new(code, Stage::ValidateReceipts, what)
            .file(RECEIPTS)
            .line(self.place.line, self.place.offset)
            .receipt(self.place.index, Some(self.id.to_string()));
        if let Some((expected, found)) = sides {
            f = f.sides(expected, found);
        }
        self.notes.found(f);
    }
}

/// Policies that are remembered; a session reloads a few.
const MAX_POLICIES: usize = 4096;

/// Takes a policy's hash into a set that stays bounded.
pub fn name_policy(policies: &mut BTreeSet<String>, hash: &str) {
    if policies.len() < MAX_POLICIES && !policies.contains(hash) {
        policies.insert(hash.to_owned());
    }
}

/// Checks that a content has its hash, or that the words of its receipt say what was taken out of it, which is the answer.
fn content(
    check: &mut Check<'_, '_>,
    name: &str,
    (content, hash): (Option<&[u8]>, Option<&[u8]>),
    stands_for: &dyn Fn(&[u8], &[u8]) -> bool,
) -> bool {
    let Some(content) = content else { return false };
    let actual = format!("sha256:{}", canon::sha256_hex(content));
    if hash != Some(actual.as_bytes()) {
        if stands_for(content, hash.unwrap_or_default()) {
            return true;
        }
        let stated = hash.map_or("null".to_owned(), shown);
        check.found("E_MANIFEST_TAMPER", &format!("{name} does not match its hash"), Some((stated, actual)));
    }
    false
}
