//! The anchor channel: what witnesses that the caller trusts have signed of a log, against the log that there is.

use super::{
    finding::{FORK, Finding, ROLLBACK},
    tlog_policy::Policy,
    words::Stage,
};
use crate::{
    model::{WallTime, checkpoint::read_any},
    text::counted,
    tree::Hash,
};
use serde::Serialize;

/// Anchors that are judged; of more, the last ones.
pub(super) const MAX_ANCHORS: usize = 256;

/// The channel, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AnchorVerdict {
    /// The caller trusts nobody: what is present is not evaluated, and counts for nothing.
    #[default]
    NotEvaluated,
    /// Too few of those whom the caller trusts have signed anything of it.
    Unanchored,
    /// Enough of them have.
    Anchored,
    /// What is there is not what they have signed.
    Invalid,
    /// They have signed more than there is.
    Rollback,
    /// They have signed something else.
    Fork,
}

impl AnchorVerdict {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotEvaluated => "NOT_EVALUATED",
            Self::Unanchored => "UNANCHORED",
            Self::Anchored => "ANCHORED",
            Self::Invalid => "INVALID",
            Self::Rollback => "ROLLBACK",
            Self::Fork => "FORK",
        }
    }
}

/// Whom a caller trusts, and what it demands.
#[derive(Debug, Clone, Default)]
pub struct AnchorOptions {
    /// The witnesses that count, and how many it takes.
    pub policy: Option<Policy>,
    /// Anchors that are kept elsewhere: the bytes of their files.
    pub kept: Vec<Vec<u8>>,
    /// There must be one.
    pub is_required: bool,
    /// Its time must be before this one.
    pub before: Option<WallTime>,
}

impl AnchorOptions {
    /// Whether the caller trusts anybody.
    #[must_use]
    pub const fn has_trust(&self) -> bool {
        self.policy.is_some()
    }
}

/// What the channel comes to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AnchorReport {
    /// In one word.
    pub verdict: AnchorVerdict,
    /// Anchors that are present.
    pub present: u64,
    /// Lines of the ledger that the anchor covers which counts: of a ledger the largest one, else the earliest. Null without one.
    pub size: Option<u64>,
    /// The earliest time by which enough witnesses had signed it.
    pub not_after: Option<WallTime>,
    /// Of a session: it began after this time, since it begins with a hash of what enough witnesses signed then.
    pub not_before: Option<WallTime>,
    /// The witnesses that signed it, as the policy names them.
    pub witnesses: Vec<String>,
    /// Why others do not count.
    pub problems: Vec<String>,
}

impl AnchorReport {
    /// Whether those whom the caller trusts have signed less, or something else.
    #[must_use]
    pub const fn is_contradicted(&self) -> bool {
        matches!(self.verdict, AnchorVerdict::Rollback | AnchorVerdict::Fork)
    }
}

/// What is known of a log at some size.
pub(super) enum Known {
    /// It never had this name.
    OtherLog,
    /// It has fewer lines.
    Fewer,
    /// This is the root of so many lines.
    Root(Hash),
}

/// What a note that witnesses signed means for what is judged.
pub(super) enum Found {
    /// It is about that.
    Fits,
    /// It is about something else.
    Other(String),
    /// It contradicts that.
    Contradicts(AnchorVerdict, Finding),
}

/// Size that a note states.
pub(super) fn size_of(note: &str) -> Option<u64> {
    stated(note).map(|(_, size, _)| size)
}

fn stated(note: &str) -> Option<(&str, u64, Hash)> {
    read_any(&note[..=note.rfind("\n\n")?])
}

/// Seconds since 1970 as a time.
pub(super) fn time(seconds: u64) -> WallTime {
    WallTime::from_millis(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
}

/// Anchors, one after the other.
pub(super) struct Judging<'p> {
    policy: &'p Policy,
    /// In seconds since 1970.
    now: u64,
    /// Of several that count, the earliest decides, and not the largest.
    prefers_earliest: bool,
    report: AnchorReport,
    is_invalid: bool,
    contradicted: Option<AnchorVerdict>,
    said: Vec<Finding>,
}

impl<'p> Judging<'p> {
    /// Nothing was judged yet.
    pub(super) fn new(policy: &'p Policy, now: WallTime, prefers_earliest: bool) -> Self {
        Self {
            policy,
            now: u64::try_from(now.millis() / 1000).unwrap_or(0),
            prefers_earliest,
            report: AnchorReport { verdict: AnchorVerdict::Unanchored, ..AnchorReport::default() },
            is_invalid: false,
            contradicted: None,
            said: Vec::new(),
        }
    }

    /// Why something does not count.
    pub(super) fn problem(&mut self, what: impl Into<String>) {
        let (what, problems) = (what.into(), &mut self.report.problems);
        if problems.len() < MAX_ANCHORS && !problems.contains(&what) {
            problems.push(what);
        }
    }

    /// Something is there that is not what anybody signed.
    pub(super) fn invalid(&mut self, what: impl Into<String>) {
        self.is_invalid = true;
        self.problem(what);
    }

    /// The latest time before which not enough of those who signed a note can have known it.
    pub(super) fn before(&mut self, note: &str) {
        let judged = self.policy.judge(note, self.now);
        judged.wrong.into_iter().for_each(|what| self.invalid(what));
        match judged.from.map(time) {
            None => self.problem("too few signed the anchor that the session began after"),
            from => self.report.not_before = self.report.not_before.max(from),
        }
    }

    /// A note of so many lines; what it means is asked only if somebody signed it who counts.
    pub(super) fn note(&mut self, note: &str, size: u64, found: &mut dyn FnMut(&str) -> Found) {
        let judged = self.policy.judge(note, self.now);
        judged.wrong.into_iter().for_each(|what| self.invalid(what));
        if judged.cosigned.is_empty() {
            return;
        }
        let by: Vec<String> = judged.cosigned.into_iter().map(|signed| signed.witness).collect();
        let names = by.join(", ");
        match found(&names) {
            Found::Fits => {}
            Found::Other(what) => return self.invalid(what),
            Found::Contradicts(verdict, finding) => {
                if self.contradicted != Some(AnchorVerdict::Fork) {
                    self.contradicted = Some(verdict);
                }
                return self.said.push(finding);
            }
        }
        if !self.policy.accepts_log(note) {
            return self.problem("the policy does not name the log that signed an anchor");
        }
        let Some(since) = judged.since.map(time) else {
            let lines = counted(size, "line");
            return self.problem(format!("of those who count, only {names} signed the first {lines}"));
        };
        let report = &mut self.report;
        let is_better = match (self.prefers_earliest, report.size, report.not_after) {
            (true, _, Some(earliest)) => since < earliest,
            (false, Some(largest), _) => size >= largest,
            _ => true,
        };
        if is_better {
            report.verdict = AnchorVerdict::Anchored;
            (report.size, report.not_after, report.witnesses) = (Some(size), Some(since), by);
        }
    }

    /// What it comes to, and what contradicts it.
    pub(super) fn done(mut self) -> (AnchorReport, Vec<Finding>) {
        if self.report.verdict != AnchorVerdict::Anchored && self.is_invalid {
            self.report.verdict = AnchorVerdict::Invalid;
        }
        self.report.verdict = self.contradicted.unwrap_or(self.report.verdict);
        (self.report, self.said)
    }
}

/// Judges anchors of a log.
pub(super) fn judge(
    notes: &[String],
    policy: &Policy,
    now: WallTime,
    log: &dyn Fn(&str, u64) -> Known,
) -> (AnchorReport, Vec<Finding>) {
    let mut judging = Judging::new(policy, now, false);
    for note in notes {
        let Some((origin, size, root)) = stated(note) else {
            judging.invalid("an anchor is not the checkpoint of a log");
            continue;
        };
        judging.note(note, size, &mut |names: &str| {
            let lines = counted(size, "line");
            let (verdict, code, what) = match log(origin, size) {
                Known::OtherLog => return Found::Other(format!("an anchor is one of the log {origin}")),
                Known::Root(there) if there == root => return Found::Fits,
                Known::Fewer => {
                    let what = format!("{names} signed that it had {lines}, and it has fewer: lines were removed");
                    (AnchorVerdict::Rollback, ROLLBACK, what)
                }
                Known::Root(_) => {
                    (AnchorVerdict::Fork, FORK, format!("the first {lines} are not those that {names} signed"))
                }
            };
            let finding = Finding::new(code, Stage::VerifyChain, what).file("log/checkpoint");
            Found::Contradicts(verdict, finding.sides(note, "no such checkpoint"))
        });
    }
    judging.done()
}

/// Demands that are not met; `of`: what must be anchored.
pub(super) fn demands(options: &AnchorOptions, report: &AnchorReport, of: &str) -> Vec<String> {
    let is_anchored = report.verdict == AnchorVerdict::Anchored;
    let mut unmet = Vec::new();
    if options.is_required && !is_anchored {
        unmet.push(format!("an anchor is required, and {of} is {}", report.verdict.as_str()));
    }
    if let Some(before) = options.before
        && (!is_anchored || report.not_after.is_none_or(|at| at >= before))
    {
        let at = report.not_after.map_or_else(|| "it is not".to_owned(), |at| format!("it was by {at}"));
        unmet.push(format!("{of} must have been anchored before {before}, and {at}"));
    }
    unmet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checkpoint::text_of;
    use assay_evidence::note::WitnessKey;
    use ed25519_dalek::{Signer as _, SigningKey};

    const NOW: u64 = 2_000_000_000;

    fn witness(n: u8) -> (SigningKey, WitnessKey) {
        let key = SigningKey::from_bytes(&[n; 32]);
        let public = key.verifying_key().to_bytes();
        (key, WitnessKey::new(&format!("w{n}.example"), public).unwrap())
    }

    fn line(n: u8, text: &str, time: u64, stated: u64) -> String {
        let (key, named) = witness(n);
        named.line(stated, &key.sign(WitnessKey::message(text, time).as_bytes()).to_bytes())
    }

    fn policy() -> Policy {
        let text = format!("witness a {}\nwitness b {}\ngroup g all a b\nquorum g\n", witness(1).1, witness(2).1);
        Policy::parse(text.as_bytes()).unwrap()
    }

    /// A log `l` of ten lines; the root of n lines is n times 32.
    fn judged(notes: &[String]) -> (AnchorReport, usize) {
        let known = |origin: &str, size: u64| match (origin, size) {
            ("l", 0..=10) => Known::Root([size as u8; 32]),
            ("l", _) => Known::Fewer,
            _ => Known::OtherLog,
        };
        let (report, said) = judge(notes, &policy(), time(NOW), &known);
        (report, said.len())
    }

    fn signed(text: &str, by: &[(u8, u64)]) -> String {
        format!("{text}\n{}", by.iter().map(|(n, time)| line(*n, text, *time, *time)).collect::<Vec<_>>().concat())
    }

    #[test]
    fn the_largest_anchor_that_enough_have_signed_counts() {
        let at = |size: u8| text_of("l", size.into(), &[size; 32]);
        let both = |size, one, two| signed(&at(size), &[(1, one), (2, two)]);
        let (report, said) = judged(&[both(4, 100, 90), both(8, 120, 130), signed(&at(9), &[(1, 140)]), both(3, 1, 1)]);
        assert_eq!((report.verdict, report.size, said), (AnchorVerdict::Anchored, Some(8), 0));
        assert_eq!(report.not_after, Some(WallTime::from_millis(130_000)));
        assert_eq!((report.witnesses.len(), report.problems.len()), (2, 1));
        let unmet = |required, before: Option<i64>| {
            let before = before.map(WallTime::from_millis);
            demands(&AnchorOptions { is_required: required, before, ..AnchorOptions::default() }, &report, "the ledger")
                .len()
        };
        assert_eq!((unmet(true, None), unmet(true, Some(130_001)), unmet(true, Some(130_000))), (0, 0, 1));
        let (none, _) = judged(&[]);
        assert_eq!(none.verdict, AnchorVerdict::Unanchored);
        let both =
            AnchorOptions { is_required: true, before: Some(WallTime::from_millis(0)), ..AnchorOptions::default() };
        assert_eq!(demands(&both, &none, "the ledger").len(), 2);
    }

    #[test]
    fn a_cosignature_of_anything_else_does_not_count() {
        use AnchorVerdict::{Fork, Invalid, Rollback, Unanchored};
        let text = text_of("l", 4, &[4; 32]);
        let with = |below: String| format!("{text}\n{}{below}", line(2, &text, 90, 90));
        let (key, named) = witness(1);
        let plain = assay_evidence::note::Key::new(named.name(), *named.public()).unwrap();
        let plain = plain.note("", &key.sign(text.as_bytes()).to_bytes())[1..].to_owned();
        for (what, note, expected) in [
            ("time changed", with(line(1, &text, 100, 101)), Invalid),
            ("time 0", with(line(1, &text, 0, 0)), Invalid),
            ("time 2^63", with(line(1, &text, 1 << 63, 1 << 63)), Invalid),
            ("in the future", with(line(1, &text, NOW + 3600, NOW + 3600)), Invalid),
            ("of another root", with(line(1, &text_of("l", 4, &[5; 32]), 100, 100)), Invalid),
            ("of another size", with(line(1, &text_of("l", 5, &[4; 32]), 100, 100)), Invalid),
            ("of another origin", with(line(1, &text_of("m", 4, &[4; 32]), 100, 100)), Invalid),
            ("another log", signed(&text_of("m", 4, &[4; 32]), &[(1, 1), (2, 2)]), Invalid),
            ("a signature without time", with(plain), Unanchored),
            ("by a stranger", with(line(3, &text, 100, 100)), Unanchored),
            ("nothing", "nothing".to_owned(), Invalid),
            ("more than there is", signed(&text_of("l", 11, &[4; 32]), &[(1, 1)]), Rollback),
            ("something else", signed(&text_of("l", 4, &[5; 32]), &[(2, 1)]), Fork),
        ] {
            let (report, said) = judged(std::slice::from_ref(&note));
            let is_contradicted = matches!(expected, Rollback | Fork);
            assert_eq!((report.verdict, said), (expected, usize::from(is_contradicted)), "{what}: {report:?}");
            // Beside a good one it takes nothing away, but for a contradiction.
            let (beside, _) = judged(&[signed(&text, &[(1, 5), (2, 6)]), note]);
            let both = if is_contradicted { expected } else { AnchorVerdict::Anchored };
            assert_eq!(beside.verdict, both, "{what}");
        }
    }
}
