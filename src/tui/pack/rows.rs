//! The verification as lines: stages, verdicts, findings, facts. Every line can be selected and copied.

use super::{PackScreen, State};
use crate::{
    model::SessionDoc,
    numbers::{counted, duration, grouped, size},
    pack::verify::{Finding, Progress, Stage, StageStatus, VerifyReport},
    text::endings,
    tui::{
        packs::{check::percent, words},
        paint::{WRAPPED, clean},
        theme::{Role, Theme},
    },
    zone::Zone,
};

/// A line of pieces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextRow {
    /// What it says; anything may come from outside.
    pub pieces: Vec<(String, Role)>,
    /// The finding it belongs to.
    pub finding: Option<usize>,
    /// The first line of that finding.
    pub first: bool,
    /// What is copied.
    pub value: String,
}

impl TextRow {
    pub(super) fn new(pieces: Vec<(String, Role)>) -> Self {
        Self { pieces, ..Self::default() }
    }

    pub(super) fn text(text: impl Into<String>, role: Role) -> Self {
        let text = text.into();
        Self { value: text.clone(), pieces: vec![(text, role)], ..Self::default() }
    }
}

/// Text in lines of at most `width` columns, broken between words, indented.
pub(super) fn wrapped(text: &str, indent: &str, width: u16, role: Role) -> Vec<TextRow> {
    let room = width.saturating_sub(indent.len() as u16);
    let value = clean(&text.chars().take(WRAPPED).collect::<String>());
    crate::tui::paint::wrapped(text, room)
        .into_iter()
        .map(|line| TextRow { value: value.clone(), ..TextRow::new(vec![(format!("{indent}{line}"), role)]) })
        .collect()
}

/// Columns of a stage's name.
const STAGE: usize = 25;
/// Columns of a fact's name.
const FACT: usize = 13;

/// Stages that read the same files in one pass.
const TOGETHER: [Stage; 4] =
    [Stage::ValidateFileHashes, Stage::ValidateReceipts, Stage::VerifyChain, Stage::MatchReceiptsToChain];

/// The stages, with what is known of each.
#[must_use]
pub(super) fn stages(s: &PackScreen, theme: Theme) -> Vec<TextRow> {
    Stage::ALL
        .iter()
        .map(|stage| match &s.state {
            State::Verified(report) => done(report, *stage, theme),
            State::Running(progress) => running(*progress, *stage, theme),
            _ => TextRow::new(vec![
                (format!("{} {:<STAGE$}", theme.glyph("·", "."), stage.as_str()), Role::Dim),
                ("not run".to_owned(), Role::Dim),
            ]),
        })
        .collect()
}

fn done(report: &VerifyReport, stage: Stage, theme: Theme) -> TextRow {
    let Some(s) = report.stage(stage) else { return TextRow::default() };
    let (glyph, role) = match s.status {
        StageStatus::Ok => (words::GOOD, Role::Good),
        StageStatus::Fail => (words::BAD, Role::Bad),
        StageStatus::Skipped => (words::NONE, Role::Dim),
    };
    let counts: Vec<String> = s
        .detail
        .iter()
        .map(|(name, value)| {
            let value = value.as_u64().map_or_else(|| value.to_string(), grouped);
            format!("{} {value}", name.replace('_', " "))
        })
        .collect();
    let (said, tone) = match (&s.reason, counts.is_empty()) {
        (Some(why), _) => (why.clone(), if s.status == StageStatus::Fail { Role::Bad } else { Role::Dim }),
        (None, false) => (counts.join(", "), Role::Dim),
        (None, true) => (s.status.as_str().to_owned(), Role::Dim),
    };
    let mut row = TextRow::new(vec![
        (format!("{} ", theme.glyph(glyph.0, glyph.1)), role),
        (format!("{:<STAGE$}", stage.as_str()), Role::Text),
        (said.clone(), tone),
    ]);
    row.finding = report.errors.iter().position(|f| f.stage == stage);
    row.value = format!("{stage}: {}, {said}", s.status);
    row
}

fn running(progress: Option<Progress>, stage: Stage, theme: Theme) -> TextRow {
    let at = progress.map_or(Stage::ValidateSchema, |p| p.stage);
    let together = TOGETHER.contains(&at);
    let here = if together { TOGETHER.contains(&stage) } else { stage == at };
    // What is between them in the list is done after all of them.
    let passed = stage < if together { Stage::ValidateFileHashes } else { at };
    let (glyph, said, role) = if here {
        (theme.glyph("▸", ">"), "running", Role::Accent)
    } else if passed {
        // What it found is not known before the end.
        (theme.glyph("·", "."), "read", Role::Text)
    } else {
        (theme.glyph("·", "."), "waiting", Role::Dim)
    };
    TextRow::new(vec![
        (format!("{glyph} "), role),
        (format!("{:<STAGE$}", stage.as_str()), if here { Role::Strong } else { Role::Text }),
        (said.to_owned(), role),
    ])
}

/// The line of the progress bar.
#[must_use]
pub(super) fn progress(p: Option<Progress>, width: u16, theme: Theme) -> String {
    let Some(p) = p else { return "opening…".to_owned() };
    let percent = percent(p);
    let mut text = format!(" {percent} %");
    if width >= 40 {
        text = format!("{text}  {} of {}", size(p.done_bytes), size(p.total_bytes));
    }
    let room = usize::from(width).saturating_sub(text.len() + 2).min(40);
    let full = room * percent as usize / 100;
    let (on, off) = (theme.glyph("█", "#"), theme.glyph("░", "."));
    format!("{}{}{text}", on.repeat(full), off.repeat(room - full))
}

/// Verdicts, findings and facts.
#[must_use]
pub(super) fn lines(s: &PackScreen, width: u16, theme: Theme) -> Vec<TextRow> {
    match &s.state {
        State::Verified(report) => of_report(report, width, theme),
        State::Running(_) => vec![
            TextRow::text("No verdict yet: verification is running.", Role::Strong),
            TextRow::text("Esc stops it. You can look at receipts and chain meanwhile.", Role::Dim),
        ],
        State::Stopped => vec![
            TextRow::text("The verification was stopped: there is no verdict.", Role::Warn),
            TextRow::text("v starts it again.", Role::Dim),
        ],
        State::Failed(why) => {
            let mut out = vec![TextRow::text("! This cannot be verified, so there is no verdict.", Role::Bad)];
            out.extend(wrapped(why, "  ", width, Role::Text));
            out.extend(missing(s, theme));
            out.push(TextRow::text("Receipts and chain are shown as far as they can be read.", Role::Dim));
            out
        }
        State::Journal => journal(s, width, theme),
        State::Empty => vec![TextRow::text("No pack is open. 2 lists them, Enter opens one.", Role::Dim)],
    }
}

/// Files that a pack of a session has, and this one has not.
fn missing(s: &PackScreen, theme: Theme) -> Vec<TextRow> {
    [s.receipts.as_ref(), s.chain.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(|book| {
            let why = book.error()?;
            Some(TextRow::text(format!("{} {why}", theme.glyph("✗", "x")), Role::Bad))
        })
        .collect()
}

fn journal(s: &PackScreen, width: u16, theme: Theme) -> Vec<TextRow> {
    let mut out = vec![TextRow::text("These are the files of a session that has no pack.", Role::Strong)];
    let text = "Nothing is signed, so there is no verdict. The links of the chain are checked as they are read.";
    out.extend(wrapped(text, "", width, Role::Dim));
    out.push(TextRow::default());
    out.extend(missing(s, theme));
    for (name, book) in [("receipts", &s.receipts), ("events", &s.chain)] {
        let Some(book) = book.as_ref().filter(|b| b.error().is_none()) else { continue };
        let more = if book.is_whole() { "" } else { " so far" };
        out.push(fact(name, &format!("{}{more}", grouped(book.lines())), Role::Text));
        if book.torn() > 0 {
            let text =
                format!("{} after the last whole line: it was cut, or is being written", counted(book.torn(), "byte"));
            out.push(fact("torn", &text, Role::Warn));
        }
        if let Some(first) = book.problems().first().filter(|_| name == "events") {
            let text = format!("{} to look at, the first in line {}", book.problems().len(), first + 1);
            out.push(fact("chain", &text, Role::Warn));
        }
    }
    if let Some(running) = s.chain.as_ref().map(super::book::Book::running).filter(|r| r.all > 0) {
        let tools = running.calls.iter().filter_map(|call| call.tool_name.as_deref());
        let text = format!("{}: {}", counted(running.all as u64, "call"), tools.collect::<Vec<_>>().join(", "));
        out.push(fact("running", &text, Role::Accent));
    }
    out.push(fact("events in", &PackScreen::place_of(s.chain.as_ref()), Role::Text));
    out.push(fact("receipts in", &PackScreen::place_of(s.receipts.as_ref()), Role::Text));
    out
}

fn fact(name: &str, value: &str, role: Role) -> TextRow {
    let mut row = TextRow::new(vec![(format!("{name:<FACT$}"), Role::Dim), (value.to_owned(), role)]);
    value.clone_into(&mut row.value);
    row
}

fn head(text: impl Into<String>) -> TextRow {
    TextRow::text(text, Role::Strong)
}

fn of_report(r: &VerifyReport, width: u16, theme: Theme) -> Vec<TextRow> {
    let mut out = verdicts(r, theme);
    let n = r.errors.len() as u64 + r.errors_omitted;
    if n > 0 {
        out.push(TextRow::default());
        out.push(head(counted(n, "finding")));
        for (i, f) in r.errors.iter().enumerate() {
            out.extend(finding(i, f, width, theme));
        }
        if r.errors_omitted > 0 {
            out.push(TextRow::text(format!("and {} more", grouped(r.errors_omitted)), Role::Dim));
        }
    }
    for (title, list, role) in [
        ("Demands that are not met", &r.unmet, Role::Bad),
        ("Not complete because", &r.completeness_reasons, Role::Warn),
        ("Worth knowing", &r.warnings, Role::Warn),
    ] {
        if !list.is_empty() {
            out.push(TextRow::default());
            out.push(head(title));
            out.extend(list.iter().flat_map(|text| wrapped(&format!("- {text}"), "", width, role)));
        }
    }
    out.push(TextRow::default());
    out.extend(facts(r, theme.zone));
    out
}

fn verdicts(r: &VerifyReport, theme: Theme) -> Vec<TextRow> {
    use crate::pack::verify::{Claims, Completeness, Integrity, SignerVerdict};
    let integrity = match r.integrity {
        Integrity::Pass => "nothing has changed since it was signed",
        Integrity::Tampered => "this is not what was signed",
        Integrity::Unsupported if r.signature_holds() => "signature and hashes hold; a later version wrote part of it",
        Integrity::Unsupported => "a later version wrote its manifest; the signature was not checked",
    };
    let completeness = match r.completeness {
        Completeness::Complete => "the session was recorded from start to end",
        Completeness::Incomplete => "the session ended, and something of it is missing",
        Completeness::Unterminated => "the recording stops without an end",
        Completeness::NotEvaluated if r.integrity == Integrity::Unsupported => "it was not checked",
        Completeness::NotEvaluated => "the pack does not say",
    };
    let claims = match (r.claims, &r.claim_results) {
        (_, Some(c)) => format!("{} of {} held", c.n_passed, crate::text::counted(c.n_claims, "claim")),
        (Claims::NotEvaluated, None) => "no claim was evaluated".to_owned(),
        (_, None) => "as the builder attested".to_owned(),
    };
    let signer = match r.signer.verdict {
        SignerVerdict::Pinned => "a key that you named",
        SignerVerdict::Unpinned if r.integrity == Integrity::Unsupported && !r.signature_holds() => {
            "the signer was not checked"
        }
        SignerVerdict::Unpinned => "you have not named that key",
        SignerVerdict::Untrusted => "not a key that you named",
    };
    [
        ("integrity", words::integrity(r.integrity), integrity.to_owned()),
        ("completeness", words::completeness(r.completeness), completeness.to_owned()),
        ("claims", words::claims(r.claims), claims),
        ("signer", words::signer(r.signer.verdict), signer.to_owned()),
    ]
    .into_iter()
    .map(|(name, word, said)| {
        let mut row = TextRow::new(vec![
            (format!("{name:<FACT$}"), Role::Dim),
            (format!("{:<16}", word.text(theme)), word.role),
            (said.clone(), Role::Text),
        ]);
        row.value = format!("{name} {}: {said}", word.word);
        row
    })
    .collect()
}

fn finding(i: usize, f: &Finding, width: u16, theme: Theme) -> Vec<TextRow> {
    let mut place = f.file.clone().unwrap_or_default();
    if let Some(line) = f.line {
        place = format!("{place}:{line}");
    }
    let mut out = vec![TextRow {
        pieces: vec![
            (format!("{} ", theme.glyph("✗", "x")), Role::Bad),
            (format!("{}  ", f.code), Role::Bad),
            (place, Role::Accent),
        ],
        first: true,
        ..TextRow::default()
    }];
    out.extend(wrapped(&f.message, "  ", width, Role::Text));
    for (side, text, role) in [("expected", &f.expected, Role::Good), ("found", &f.found, Role::Bad)] {
        if let Some(text) = text {
            out.push(TextRow::new(vec![(format!("  {side:<9}"), Role::Dim), (text.clone(), role)]));
        }
    }
    let value = format!("{} {}: {}", f.code, f.file.as_deref().unwrap_or_default(), f.message);
    for row in &mut out {
        row.finding = Some(i);
        row.value.clone_from(&value);
    }
    out
}

fn facts(r: &VerifyReport, zone: Zone) -> Vec<TextRow> {
    let f = &r.facts;
    let mut out = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            out.push(fact(name, &value, Role::Text));
        }
    };
    if let Some(doc) = &f.session {
        session(doc, zone, &mut add);
    } else {
        add("run", f.run_id.clone());
        add("began", f.timestamp_start.clone());
        add("ended", f.timestamp_end.clone());
    }
    add("coverage", f.coverage.as_ref().map(ToString::to_string));
    add("receipts", Some(grouped(f.receipt_count)));
    add("events", Some(grouped(f.event_count)).filter(|_| f.event_count > 0));
    add("size", Some(size(f.total_bytes)));
    add("root hash", f.pack_root_sha256.clone());
    add("head hash", f.head_hash.clone());
    add("signer", r.signer.signer_id.clone());
    add("fingerprint", r.signer.fingerprint.clone());
    add("policy", f.policy_hash.clone().filter(|h| !h.is_empty()));
    add("claim set", f.claim_set_id.clone());
    add("mode", f.mode.clone());
    add("built by", f.built_by.clone());
    add("pack id", f.pack_id.clone());
    add("verified", Some(zone.full(r.verified_at)));
    out
}

fn session(doc: &SessionDoc, zone: Zone, add: &mut dyn FnMut(&str, Option<String>)) {
    let said = |p: &Option<crate::model::receipt::PeerInfo>| p.as_ref().map(ToString::to_string);
    add("session", Some(doc.session_id.to_string()));
    let server = said(&doc.server_info).map_or_else(String::new, |p| format!(", which calls itself {p}"));
    add("server", Some(format!("{}{server}", doc.server_id)));
    add("client", said(&doc.client_info).or_else(|| Some("unknown".to_owned())));
    add("transport", crate::pack::explain::transport(doc));
    add("began", Some(zone.full(doc.started_at)));
    add("lasted", Some(format!("{}, {}", duration(doc.ended_mono_us), doc.end_reason)));
    let c = &doc.counts;
    let calls = format!("{}, {}", grouped(c.calls), endings(c.denied, c.errors, c.timeouts));
    add("calls", Some(calls));
}
