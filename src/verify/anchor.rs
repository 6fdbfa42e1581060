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
    /// Anchors that are kept elsewhere.
    pub notes: Vec<String>,
    /// There must be one.
    pub is_required: bool,
    /// Its time must be before this one.
    pub before: Option<WallTime>,
}

/// What the channel comes to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AnchorReport {
    /// In one word.
    pub verdict: AnchorVerdict,
    /// Anchors that are present.
    pub present: u64,
    /// Lines that the largest anchor covers which counts; null without one.
    pub size: Option<u64>,
    /// The earliest time by which enough witnesses had signed it.
    pub not_after: Option<WallTime>,
    /// The witnesses that signed it, as the policy names them.
    pub witnesses: Vec<String>,
    /// Why others do not count.
    pub problems: Vec<String>,
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

/// Size that a note states.
pub(super) fn size_of(note: &str) -> Option<u64> {
    read_any(&note[..=note.rfind("\n\n")?]).map(|(_, size, _)| size)
}

/// Judges anchors of a log. `now` in seconds since 1970.
pub(super) fn judge(
    notes: &[String],
    policy: &Policy,
    now: u64,
    log: &dyn Fn(&str, u64) -> Known,
    said: &mut Vec<Finding>,
) -> AnchorReport {
    let mut report = AnchorReport { verdict: AnchorVerdict::Unanchored, ..AnchorReport::default() };
    let wrong = |what: String, problems: &mut Vec<String>| {
        if problems.len() < MAX_ANCHORS && !problems.contains(&what) {
            problems.push(what);
        }
    };
    let (mut is_invalid, mut contradicted) = (false, None);
    for note in notes {
        let stated = note.rfind("\n\n").and_then(|at| read_any(&note[..=at]));
        let Some((origin, size, root)) = stated else {
            is_invalid = true;
            wrong("an anchor is not the checkpoint of a log".to_owned(), &mut report.problems);
            continue;
        };
        let judged = policy.judge(note, now);
        is_invalid |= !judged.wrong.is_empty();
        judged.wrong.into_iter().for_each(|what| wrong(what, &mut report.problems));
        if judged.cosigned.is_empty() {
            continue;
        }
        let by: Vec<String> = judged.cosigned.into_iter().map(|signed| signed.witness).collect();
        let (lines, names) = (counted(size, "line"), by.join(", "));
        let found = match log(origin, size) {
            Known::OtherLog => {
                is_invalid = true;
                wrong(format!("an anchor is one of the log {origin}"), &mut report.problems);
                continue;
            }
            Known::Fewer => {
                let what = format!("{names} signed that it had {lines}, and it has fewer: lines were removed");
                Some((AnchorVerdict::Rollback, ROLLBACK, what))
            }
            Known::Root(there) if there != root => {
                let what = format!("the first {lines} are not those that {names} signed");
                Some((AnchorVerdict::Fork, FORK, what))
            }
            Known::Root(_) => None,
        };
        if let Some((verdict, code, what)) = found {
            if contradicted != Some(AnchorVerdict::Fork) {
                contradicted = Some(verdict);
            }
            let finding = Finding::new(code, Stage::VerifyChain, what).file("log/checkpoint");
            said.push(finding.sides(note, "no such checkpoint"));
            continue;
        }
        if !policy.accepts_log(note) {
            wrong("the policy does not name the log that signed an anchor".to_owned(), &mut report.problems);
            continue;
        }
        let Some(since) = judged.since else {
            wrong(format!("of those who count, only {names} signed the first {lines}"), &mut report.problems);
            continue;
        };
        if report.size.is_none_or(|largest| largest <= size) {
            let since = i64::try_from(since).unwrap_or(i64::MAX).saturating_mul(1000);
            report.verdict = AnchorVerdict::Anchored;
            report.size = Some(size);
            report.not_after = Some(WallTime::from_millis(since));
            report.witnesses = by;
        }
    }
    if report.verdict != AnchorVerdict::Anchored && is_invalid {
        report.verdict = AnchorVerdict::Invalid;
    }
    report.verdict = contradicted.unwrap_or(report.verdict);
    report
}

/// Demands that are not met.
pub(super) fn demands(options: &AnchorOptions, report: &AnchorReport) -> Vec<String> {
    let is_anchored = report.verdict == AnchorVerdict::Anchored;
    let mut unmet = Vec::new();
    if options.is_required && !is_anchored {
        unmet.push(format!("an anchor is required, and the ledger is {}", report.verdict.as_str()));
    }
    if let Some(before) = options.before
        && (!is_anchored || report.not_after.is_none_or(|at| at >= before))
    {
        let at = report.not_after.map_or_else(|| "it is not".to_owned(), |at| format!("it was by {at}"));
        unmet.push(format!("the ledger must have been anchored before {before}, and {at}"));
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
        let mut said = Vec::new();
        let report = judge(notes, &policy(), NOW, &known, &mut said);
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
            demands(&AnchorOptions { is_required: required, before, ..AnchorOptions::default() }, &report).len()
        };
        assert_eq!((unmet(true, None), unmet(true, Some(130_001)), unmet(true, Some(130_000))), (0, 0, 1));
        let (none, _) = judged(&[]);
        assert_eq!(none.verdict, AnchorVerdict::Unanchored);
        let both =
            AnchorOptions { is_required: true, before: Some(WallTime::from_millis(0)), ..AnchorOptions::default() };
        assert_eq!(demands(&both, &none).len(), 2);
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
