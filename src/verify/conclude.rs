//! The end of a verification: channels are decided, and the report is written.

use super::{
    anchor,
    notebook::Notebook,
    report::{Signer, VerifyReport},
    trust,
    words::{Claims, Completeness, Integrity, SignerVerdict, Stage},
};
use crate::{claims::ClaimSetResult, model::pack::Manifest};

/// Decides the four channels, and writes the report.
pub fn finish(
    mut notes: Notebook<'_>,
    signer: SignerVerdict,
    manifest: Option<&Manifest>,
    completeness: Completeness,
    completeness_reasons: Vec<String>,
    claim_results: Option<ClaimSetResult>,
    signer_id: Option<&str>,
) -> VerifyReport {
    notes.settle();
    let integrity = match (notes.failed(), notes.is_newer()) {
        (true, _) => Integrity::Tampered,
        (false, true) => Integrity::Unsupported,
        (false, false) => Integrity::Pass,
    };
    let claims = match (&claim_results, integrity, notes.facts.claim_check.as_deref()) {
        (_, Integrity::Tampered | Integrity::Unsupported, _) => Claims::NotEvaluated,
        (Some(r), ..) => {
            if r.passed {
                Claims::Pass
            } else {
                Claims::HonestFail
            }
        }
        // A builder that says of its own evidence that it is not enough is believed; one that says that it is, is not.
        (None, _, Some("FAIL")) => Claims::HonestFail,
        (None, ..) => Claims::NotEvaluated,
    };
    if claims == Claims::NotEvaluated && notes.facts.claim_check.as_deref() == Some("PASS") {
        let set = notes.facts.claim_set_id.as_deref().unwrap_or_default();
        let text = format!(
            "the builder says that its claims ({set}) hold; nothing was evaluated here: name cards with --cards"
        );
        notes.warnings.push(text);
    }
    if let Some(m) = manifest {
        trust::demands(&mut notes, m, signer, claims, claim_results.is_some(), completeness);
    }
    notes.unmet.extend(anchor::demands(&notes.options.anchors, &notes.anchor, "the pack"));
    let extra = notes.is_open().then(|| "the pack has entries that are not listed".to_owned());
    let whole = matches!(completeness, Completeness::Incomplete | Completeness::Unterminated);
    let whole = whole.then(|| format!("{completeness}: {}", completeness_reasons.first().map_or("", String::as_str)));
    let trusted = match signer {
        SignerVerdict::Untrusted => Some("signed by a key that was not pinned".to_owned()),
        SignerVerdict::Unpinned if notes.options.strict => Some("no key was pinned".to_owned()),
        _ => None,
    };
    let stages = Stage::ALL.map(|stage| {
        let unmet = match stage {
            Stage::ValidatePaths => extra.clone(),
            Stage::SessionCompleteness => whole.clone(),
            Stage::SignerTrust => trusted.clone(),
            _ => None,
        };
        notes.stage(stage, unmet)
    });
    VerifyReport {
        stages: stages.to_vec(),
        errors: [notes.take_findings(), notes.contradictions].concat(),
        errors_omitted: notes.omitted,
        warnings: notes.warnings,
        integrity,
        completeness,
        completeness_reasons,
        crashed: notes.crashed,
        claims,
        claim_results,
        signer: Signer { verdict: signer, fingerprint: notes.fingerprint, signer_id: signer_id.map(str::to_owned) },
        anchor: notes.anchor,
        unmet: notes.unmet,
        facts: notes.facts,
        memory: None,
        verified_at: notes.options.now,
    }
}
