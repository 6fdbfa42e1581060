//! A pack in words: who, when, what was called, what that proves and what it does not.
//!
//! Explaining is not verifying: nothing here is checked but that it can be read.

use super::{
    calls::{self, Seen},
    tally::{Tally, TallyRow},
    verify::{Covered, Later, later, rely_after_crash, spoiled},
};
use crate::model::pack::{Attestation, DEFAULT_POLICY, MANIFEST, Manifest, RECEIPTS, SESSION, SURFACE};
use crate::model::words::EndReason;
use crate::text::markdown::escape;
use crate::{
    lines::{Lines, MAX_LINE, ReadStop},
    model::{
        SessionDoc, line,
        receipt::{self, CallMembers},
        redaction::{self, Side},
        server::flat,
        surface::{self, State},
    },
    numbers::{counted, duration_if, grouped},
    text::{either, fit, visible, width},
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// Bytes of a manifest or `session.json` that are read.
const MAX_DOC: u64 = 16 << 20;

/// A pack that cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// No directory, or none with a manifest.
    #[error("{dir} is not a proof pack: {why}")]
    NotAPack {
        /// What was to be explained.
        dir: PathBuf,
        /// Why it is none.
        why: String,
    },
    /// One of its files cannot be read or understood.
    #[error("{path}{}: {why}", .line.map(|l| format!(":{l}")).unwrap_or_default())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Which line, from 1.
        line: Option<u64>,
        /// What is wrong.
        why: String,
    },
    /// A later version wrote part of it.
    #[error(transparent)]
    TooNew(#[from] Later),
}

/// What a pack says. All text in it is as it came.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// Id of the pack.
    pub pack_id: String,
    /// Id of the session.
    pub run_id: String,
    /// Who signed, by their own words.
    pub signer_id: String,
    /// SHA-256 of the public key in the manifest.
    pub signer_fingerprint: String,
    /// `shadow`, `enforced`, `breakglass`.
    pub mode: String,
    /// What the builder attested.
    pub receipt_integrity: String,
    /// Time of the earliest receipt.
    pub first_receipt: String,
    /// Time of the latest receipt.
    pub last_receipt: String,
    /// SHA-256 of the policy, unless there was none.
    pub policy_hash: Option<String>,
    /// Where the pack comes from.
    pub built_by: String,
    /// Number of receipts in the pack.
    pub receipts: u64,
    /// Receipts by type.
    pub receipt_types: BTreeMap<String, u64>,
    /// Tool calls by tool, most called first.
    pub tools: Vec<TallyRow>,
    /// The sums over all tools.
    pub total: TallyRow,
    /// What was out of the ordinary, by word.
    pub anomalies: BTreeMap<String, u64>,
    /// Calls by how their definition stood with what was decided; empty where receipts do not say.
    pub surface: BTreeMap<String, u64>,
    /// Calls of which some arguments are in cleartext, and the others as their hashes.
    pub redacted_calls: u64,
    /// How many of the calls that a server was asked for have an outcome; absent where it did not record itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Covered>,
    /// The session as a whole; `null` in a pack of another builder.
    pub session: Option<SessionDoc>,
    /// What a reader may conclude once the pack verifies.
    pub proves: Vec<String>,
    /// What they may not.
    pub does_not_prove: Vec<String>,
}

impl Explanation {
    /// From what a builder holds.
    #[must_use]
    pub fn new(manifest: &Manifest, session: Option<SessionDoc>, tally: &Tally, surface_truncated: bool) -> Self {
        let a = &manifest.attestation;
        let mut does_not_prove = does_not_prove(session.as_ref());
        if surface_truncated {
            does_not_prove.push(format!("All that the server offered: {}.", surface::TRUNCATED));
        }
        let mut proves = proves(a, session.as_ref());
        let judged: u64 = tally.surface().values().sum();
        let approved = tally.surface().get(State::Approved.as_str()).copied().unwrap_or_default();
        if judged > 0 {
            proves.push(format!(
                "Under which definition each call ran, and how that stood with the decisions in the pack: {approved} of {} \
                 approved.",
                counted(judged, "call")
            ));
        }
        if judged > approved {
            does_not_prove
                .push(format!("That somebody had approved what was called: {}.", states(tally.surface()).join(", ")));
        }
        let coverage = tally.accounts.coverage();
        let open = coverage.as_ref().map_or(0, |c| c.coverage.open);
        if open > 0 {
            does_not_prove.push(format!("What became of {}: no receipt says it.", counted(open, "call")));
        }
        if redacted(tally.anomalies()).next().is_some() {
            does_not_prove
                .push("What rules took out of contents before they were stored: only the hashes cover it.".to_owned());
        }
        let default_policy = crate::model::sha256_hex(DEFAULT_POLICY);
        Self {
            pack_id: a.pack_id.clone(),
            run_id: a.run_id.clone(),
            signer_id: manifest.signer_id.clone(),
            signer_fingerprint: manifest.signer_pubkey_sha256.clone(),
            mode: a.mode.clone(),
            receipt_integrity: a.receipt_integrity.clone(),
            first_receipt: a.timestamp_start.clone(),
            last_receipt: a.timestamp_end.clone(),
            policy_hash: (a.policy_hash != default_policy).then(|| a.policy_hash.clone()),
            built_by: format!("{} {}", a.canon_impl, a.verifier_version),
            receipts: tally.receipts(),
            receipt_types: tally.types().clone(),
            tools: tally.rows(),
            total: tally.total(),
            anomalies: tally.anomalies().clone(),
            proves,
            surface: tally.surface().clone(),
            redacted_calls: tally.redacted_calls(),
            coverage,
            does_not_prove,
            session,
        }
    }

    /// Reads a pack, ours or assay-ai's. Writes nothing.
    ///
    /// # Errors
    /// [`ExplainError`].
    pub fn of_pack(dir: &Path) -> Result<Self, ExplainError> {
        let not_a_pack = |why: &str| ExplainError::NotAPack { dir: dir.to_owned(), why: why.to_owned() };
        match std::fs::metadata(dir) {
            Ok(m) if m.is_dir() => {}
            Ok(_) => return Err(not_a_pack("it is not a directory")),
            Err(e) => return Err(not_a_pack(&e.to_string())),
        }
        if let Some(later) = later(dir) {
            return Err(later.into());
        }
        let manifest: Manifest =
            document(&dir.join(MANIFEST))?.ok_or_else(|| not_a_pack("it has no pack_manifest.json"))?;
        let session = document(&dir.join(SESSION))?;
        let tally = tally(&dir.join(RECEIPTS))?;
        let surface = open(&dir.join(SURFACE))
            .and_then(|f| f.metadata().map(|m| surface::file_is_truncated(&f, m.len())))
            .unwrap_or(false);
        Ok(Self::new(&manifest, session, &tally, surface))
    }
}

fn open(path: &Path) -> io::Result<File> {
    crate::files::plain(path)
}

fn document<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, ExplainError> {
    let error = |why: String| ExplainError::File { path: path.to_owned(), line: None, why };
    let file = match open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|e| error(e.to_string()))?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_DOC + 1).read_to_end(&mut bytes).map_err(|e| error(e.to_string()))?;
    if bytes.len() as u64 > MAX_DOC {
        return Err(error(format!("it is longer than {} MiB", MAX_DOC >> 20)));
    }
    // What became of it on its way says more than where it stops being JSON.
    let why = |e: serde_json::Error| spoiled(&bytes).map_or_else(|| e.to_string(), str::to_owned);
    serde_json::from_slice(&bytes).map(Some).map_err(|e| error(why(e)))
}

fn tally(path: &Path) -> Result<Tally, ExplainError> {
    let error = |line: u64, why: String| ExplainError::File { path: path.to_owned(), line: Some(line), why };
    let mut lines = Lines::of(open(path).map_err(|e| error(0, e.to_string()))?);
    let mut tally = Tally::default();
    for number in 1.. {
        let read = match lines.next(&mut ()) {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(ReadStop::TooLong) => {
                return Err(error(number, format!("the line is longer than {} MiB", MAX_LINE >> 20)));
            }
            Err(stop) => return Err(error(number, io::Error::from(stop).to_string())),
        };
        let members = CallMembers::of_line(read.bytes);
        let m = members.ok_or_else(|| error(number, "the line is not a JSON object".to_owned()))?;
        let seen = Seen::of(&m);
        tally.receipt(&seen.kind);
        if seen.is_call() {
            let tool = if m.tool_name.is_some() { &*seen.tool } else { "unnamed" };
            tally.call(tool, calls::word(&seen.outcome), seen.duration_us);
        }
        tally.accounts.receipt(&seen);
        if flat(&seen.kind).is_none() && seen.kind != receipt::TOOL_CALL {
            continue;
        }
        if m.arguments_redacted.is_some_and(|raw| raw != b"null") {
            tally.redacted();
        }
        line::texts(m.anomalies).for_each(|word| tally.anomaly(&word));
        if let Some(state) = line::text(m.surface_state) {
            tally.stood(&state);
        }
    }
    Ok(tally)
}

fn proves(a: &Attestation, session: Option<&SessionDoc>) -> Vec<String> {
    let mut out = vec![
        "Nothing in the pack has changed since it was signed with the key above.".to_owned(),
        format!(
            "There {} exactly {}, in order and without gaps.",
            either(a.n_receipts, "is", "are"),
            counted(a.n_receipts, "receipt")
        ),
    ];
    if let Some(s) = session {
        out.push(format!(
            "Each receipt is bound into a hash chain of {} {} seen on the wire, with the hash of the \
             bytes of every message.",
            counted(s.event_count, "event"),
            either(s.event_count, "that was", "that were")
        ));
        if s.session_complete {
            out.push(
                "The recorder saw the session from its start to its end, and every tool call that passed it has a \
                 receipt."
                    .to_owned(),
            );
        }
    }
    out
}

fn does_not_prove(session: Option<&SessionDoc>) -> Vec<String> {
    let mut out = vec![
        "Who holds the key: compare its fingerprint with one that you got another way.".to_owned(),
        "That the machine that recorded was honest: whoever holds the key can sign anything.".to_owned(),
        "The time: it is the clock of that machine.".to_owned(),
        "What an agent did that did not pass the recorder.".to_owned(),
        "That a server did what it answered, or that an answer is right.".to_owned(),
    ];
    match session {
        None => out.push("Whether the session is all there: the pack does not say.".to_owned()),
        Some(s) if s.end_reason == EndReason::Crashed && s.counts.missed + s.counts.missed_bytes == 0 => {
            out.push(format!("That this is the whole session: {}.", rely_after_crash(&s.recovery_notes)));
        }
        Some(s) if !s.session_complete => {
            out.push(format!("That this is the whole session: the recorder says that it is not ({}).", s.end_reason));
        }
        Some(_) => {}
    }
    out
}

fn peer(p: Option<&receipt::PeerInfo>) -> Option<String> {
    p.map(ToString::to_string)
}

/// How the session was transported, and what a reader has to know of that; `None` over stdio, which is nothing special.
#[must_use]
pub fn transport(s: &SessionDoc) -> Option<String> {
    let http = s.http.as_ref()?;
    let mut all = vec![s.transport.clone(), counted(http.exchanges, "exchange")];
    if http.joined_midway {
        all.push("its client had begun it before the recorder saw it".to_owned());
    }
    if http.client_key_shared {
        all.push("several people may be its client".to_owned());
    }
    Some(all.join(", "))
}

/// How many calls stood in each way.
fn states(all: &BTreeMap<String, u64>) -> Vec<String> {
    all.iter().map(|(state, n)| format!("{} {}", grouped(*n), state.replace('_', " "))).collect()
}

/// The words that say which rules took something out of which contents, and of how many.
fn redacted(anomalies: &BTreeMap<String, u64>) -> impl Iterator<Item = String> {
    let of = |side: Side| {
        anomalies.iter().filter_map(move |(word, n)| {
            let rule = redaction::rules([word.as_bytes()], side).next()?;
            Some(format!("{rule} in the {} of {}", side.as_str(), counted(*n, "call")))
        })
    };
    of(Side::Arguments).chain(of(Side::Result))
}

/// A time of evidence, for people.
pub type Clock<'a> = &'a dyn Fn(&str) -> String;

/// Label and text, for both forms.
fn facts(e: &Explanation, clock: Clock<'_>) -> Vec<(&'static str, String)> {
    let mut out = vec![
        ("Pack", e.pack_id.clone()),
        ("Session", e.run_id.clone()),
        ("Signed by", format!("{}, key {}", e.signer_id, e.signer_fingerprint)),
        ("Receipts", format!("{} from {} to {}", grouped(e.receipts), clock(&e.first_receipt), clock(&e.last_receipt))),
    ];
    if let Some(s) = &e.session {
        let server =
            peer(s.server_info.as_ref()).map_or_else(|| s.server_id.clone(), |p| format!("{} ({p})", s.server_id));
        out.push(("Server", server));
        out.push(("Client", peer(s.client_info.as_ref()).unwrap_or_else(|| "did not name itself".to_owned())));
        out.extend(transport(s).map(|transport| ("Transport", transport)));
        let (from, to) = (clock(&s.started_at.to_string()), clock(&s.ended_at.to_string()));
        out.push(("Recorded", format!("{from} to {to}, recorder {}", s.recorder_version)));
        let complete = if s.session_complete { "complete" } else { "NOT complete" };
        out.push(("Ended", format!("{complete}, {}", s.end_reason)));
        if let Some(previous) = &s.continues {
            out.push(("Continues", previous.to_string()));
        }
        if s.counts.missed + s.counts.missed_bytes > 0 {
            let lost = format!(
                "{}, {} went by unrecorded",
                counted(s.counts.missed, "message"),
                counted(s.counts.missed_bytes, "byte")
            );
            out.push(("Missing", lost));
        }
        out.extend(
            s.clock_steps
                .iter()
                .take(5)
                .map(|c| ("Clock", format!("stepped by {} ms at {}", c.delta_ms, clock(&c.at.to_string())))),
        );
        out.extend(s.recovery_notes.iter().take(20).map(|n| ("Recovery", n.clone())));
    }
    out.push((
        "Mode",
        match e.mode.as_str() {
            "shadow" => "shadow: calls were observed, none was stopped".to_owned(),
            "enforced" => "enforced: the policy could stop calls".to_owned(),
            other => other.to_owned(),
        },
    ));
    out.push(("Policy", e.policy_hash.clone().unwrap_or_else(|| "none".to_owned())));
    if let Some(c) = e.session.as_ref().map(|s| &s.counts).filter(|c| c.policy_denied > 0) {
        let stopped = if c.denied == 0 { "none".to_owned() } else { grouped(c.denied) };
        out.push((
            "Verdicts",
            format!("{} of {} denied, {stopped} of them stopped", grouped(c.policy_denied), counted(c.calls, "call")),
        ));
    }
    if e.redacted_calls > 0 {
        let calls = counted(e.redacted_calls, "call");
        out.push(("Cleartext", format!("arguments that were named, of {calls}; their other arguments are hashes")));
    }
    let redacted: Vec<String> = redacted(&e.anomalies).collect();
    if !redacted.is_empty() {
        out.push((
            "Redacted",
            format!("before it was stored: {}; the hashes are of the originals", redacted.join(", ")),
        ));
    }
    out.extend(e.coverage.as_ref().map(|covered| ("Coverage", covered.to_string())));
    if !e.surface.is_empty() {
        out.push(("Surface", format!("calls by definition: {}", states(&e.surface).join(", "))));
    }
    if e.receipt_integrity != "PASS" {
        out.push(("Warning", "its own builder found damaged receipts".to_owned()));
    }
    if !e.anomalies.is_empty() {
        let words: Vec<_> = e.anomalies.iter().take(20).map(|(w, n)| format!("{w} ×{}", grouped(*n))).collect();
        out.push(("Anomalies", words.join(", ")));
    }
    out
}

const COLUMNS: [&str; 9] = ["Tool", "Calls", "Answered", "Errors", "Denied", "Timeouts", "p50", "p95", "Longest"];

fn cells(row: &TallyRow) -> [String; 8] {
    [
        grouped(row.calls),
        grouped(row.forwarded),
        grouped(row.errors),
        grouped(row.denied),
        grouped(row.timeouts),
        duration_if(row.p50_us),
        duration_if(row.p95_us),
        duration_if(row.max_us),
    ]
}

const HOW: &str = "assay verify-pack --signer FINGERPRINT PACK_DIR";

/// The explanation in Markdown, as it is in `_unsigned/PACK_SUMMARY.md`.
#[must_use]
pub fn markdown(e: &Explanation) -> String {
    let mut out = String::from("# Proof Pack Summary\n\n| | |\n|---|---|\n");
    // What is kept has one zone.
    for (label, text) in facts(e, &str::to_owned) {
        let _ = writeln!(out, "| {label} | {} |", escape(&text));
    }
    out.push_str("\n## What was called\n\n");
    if e.tools.is_empty() {
        out.push_str("No tool was called.\n");
    } else {
        let _ = writeln!(out, "| {} |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|", COLUMNS.join(" | "));
        for (name, row) in named(e) {
            let _ = writeln!(out, "| {} | {} |", escape(name), cells(row).join(" | "));
        }
        out.push_str(
            "\nTimes are round trips on the recorder's monotonic clock; quantiles are rounded up by at most 7 %.\n",
        );
    }
    for (title, lines) in [("What it proves", &e.proves), ("What it does not prove", &e.does_not_prove)] {
        let _ = writeln!(out, "\n## {title}\n");
        for line in lines {
            let _ = writeln!(out, "- {}", escape(line));
        }
    }
    let _ = write!(
        out,
        "\nAll of this holds only if the pack verifies. This page itself is not signed.\n\n## Verify it\n\n```\n{HOW}\n```\n\n\
         assay-ai verifies it too: `pip install assay-ai`, then `assay verify-pack PACK_DIR`.\n"
    );
    out
}

/// The rows with their names, a sum last where there is more than one.
fn named(e: &Explanation) -> Vec<(&str, &TallyRow)> {
    let mut rows: Vec<(&str, &TallyRow)> = Vec::with_capacity(e.tools.len() + 1);
    rows.extend(e.tools.iter().map(|row| match row.tool.as_deref() {
        Some("") => ("(empty name)", row),
        Some(name) => (name, row),
        None => ("(other tools)", row),
    }));
    if rows.len() > 1 {
        rows.push(("all", &e.total));
    }
    rows
}

/// The explanation for a terminal; everything in it is visible text.
#[must_use]
pub fn text(e: &Explanation, dir: &Path, clock: Clock<'_>) -> String {
    let mut out = String::new();
    for (label, text) in facts(e, clock) {
        let _ = writeln!(out, "{label:<10} {}", visible(&text));
    }
    out.push('\n');
    if e.tools.is_empty() {
        out.push_str("No tool was called.\n");
    } else {
        let mut table = vec![COLUMNS.map(str::to_owned).to_vec()];
        for (name, row) in named(e) {
            table.push([vec![fit(&visible(name), 40).into_owned()], cells(row).to_vec()].concat());
        }
        write_table(&mut out, &table);
    }
    for (title, lines) in [("If it verifies, it proves", &e.proves), ("It does not prove", &e.does_not_prove)] {
        let _ = writeln!(out, "\n{title}:");
        for line in lines {
            let _ = writeln!(out, "  - {}", visible(line));
        }
    }
    let _ = writeln!(
        out,
        "\nNothing of this was checked. To check it:\n  assay verify-pack --signer FINGERPRINT {}",
        visible(&dir.display().to_string())
    );
    out
}

/// First column left, the others right.
fn write_table(out: &mut String, table: &[Vec<String>]) {
    let columns = table.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|c| table.iter().map(|row| row.get(c).map_or(0, |t| width(t))).max().unwrap_or(0)).collect();
    for row in table {
        let mut line = String::new();
        for (n, (cell, w)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(w.saturating_sub(width(cell)));
            let _ = if n == 0 { write!(line, "{cell}{pad}") } else { write!(line, "  {pad}{cell}") };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}
