//! The four verdicts as words, glyphs and roles: the same here and on the pack screen.

use crate::{
    pack::verify::{Claims, Completeness, Integrity, SignerVerdict, VerifyReport},
    tui::theme::{Role, Theme},
};

/// A verdict as it is shown: word, then glyph, then colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// Glyph, and its ASCII replacement.
    pub glyph: (&'static str, &'static str),
    /// The word of the report.
    pub word: &'static str,
    /// What it means.
    pub role: Role,
}

/// The sign for what is good: for UTF-8, for ASCII.
pub const GOOD: (&str, &str) = ("✓", "+");
/// Not as it should be.
pub const BAD: (&str, &str) = ("✗", "x");
/// Worth a look.
pub const LOOK: (&str, &str) = ("!", "!");
/// Nothing to say.
pub const NONE: (&str, &str) = ("–", "-");

impl Word {
    const fn new(glyph: (&'static str, &'static str), word: &'static str, role: Role) -> Self {
        Self { glyph, word, role }
    }

    /// Glyph and word.
    #[must_use]
    pub fn text(&self, theme: Theme) -> String {
        format!("{} {}", theme.glyph(self.glyph.0, self.glyph.1), self.word)
    }
}

/// The word for a verdict on integrity.
#[must_use]
pub const fn integrity(v: Integrity) -> Word {
    match v {
        Integrity::Pass => Word::new(GOOD, v.as_str(), Role::Good),
        Integrity::Tampered => Word::new(BAD, v.as_str(), Role::Bad),
        Integrity::Unsupported => Word::new(LOOK, v.as_str(), Role::Warn),
    }
}

/// The word for a verdict on completeness.
#[must_use]
pub const fn completeness(v: Completeness) -> Word {
    match v {
        Completeness::Complete => Word::new(GOOD, v.as_str(), Role::Good),
        Completeness::Incomplete | Completeness::Unterminated => Word::new(LOOK, v.as_str(), Role::Warn),
        Completeness::NotEvaluated => Word::new(NONE, v.as_str(), Role::Dim),
    }
}

/// The word for a verdict on claims.
#[must_use]
pub const fn claims(v: Claims) -> Word {
    match v {
        Claims::Pass => Word::new(GOOD, v.as_str(), Role::Good),
        Claims::HonestFail => Word::new(BAD, v.as_str(), Role::Bad),
        Claims::NotEvaluated => Word::new(NONE, v.as_str(), Role::Dim),
    }
}

/// The word for a verdict on the signer.
#[must_use]
pub const fn signer(v: SignerVerdict) -> Word {
    match v {
        SignerVerdict::Pinned => Word::new(GOOD, v.as_str(), Role::Good),
        SignerVerdict::Unpinned => Word::new(LOOK, v.as_str(), Role::Warn),
        SignerVerdict::Untrusted => Word::new(BAD, v.as_str(), Role::Bad),
    }
}

/// The four verdicts of one pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdicts {
    /// Are these the bytes that were signed?
    pub integrity: Integrity,
    /// Was the whole session recorded?
    pub completeness: Completeness,
    /// Does the evidence show what the claims demand?
    pub claims: Claims,
    /// How the signer compares with those that the caller named.
    pub signer: SignerVerdict,
}

impl Verdicts {
    /// Of a report.
    #[must_use]
    pub const fn of(report: &VerifyReport) -> Self {
        Self {
            integrity: report.integrity,
            completeness: report.completeness,
            claims: report.claims,
            signer: report.signer.verdict,
        }
    }

    /// All four in one word, the worst of them first.
    #[must_use]
    pub const fn in_one(&self) -> Word {
        match (self.integrity, self.signer, self.completeness) {
            (Integrity::Tampered, ..) => integrity(self.integrity),
            (_, SignerVerdict::Untrusted, _) => signer(self.signer),
            (Integrity::Unsupported, ..) => integrity(self.integrity),
            (_, _, Completeness::Incomplete | Completeness::Unterminated) => completeness(self.completeness),
            _ => match self.claims {
                Claims::HonestFail => claims(self.claims),
                _ => integrity(self.integrity),
            },
        }
    }
}
