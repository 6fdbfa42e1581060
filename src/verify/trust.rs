//! Stage `signer_trust`, and the other demands that a caller makes of an authentic pack.

use super::{
    notebook::Notebook,
    options::VerifyOptions,
    time::parse_date_time,
    words::{Claims, Completeness, SignerVerdict},
};
use crate::model::pack::{Manifest, NO_CLAIMS};
use crate::{lock::Lock, model::sha256_hex};

/// How far in the future a pack may end: clocks differ (assay's tolerance).
const MAX_FUTURE_HOURS: f64 = 24.0;

/// Whether the key in the pack is one that the caller named. The key matters by its fingerprint, recomputed; its name in
/// the pack means nothing.
#[must_use]
pub fn signer(options: &VerifyOptions, fingerprint: Option<&str>) -> SignerVerdict {
    let locked = options.lock.as_ref().and_then(|l| l.allowed_signers.as_ref());
    if options.signers.is_empty() && locked.is_none() {
        return SignerVerdict::Unpinned;
    }
    let Some(fingerprint) = fingerprint else { return SignerVerdict::Untrusted };
    let named = |list: &[String]| list.iter().any(|f| f.eq_ignore_ascii_case(fingerprint));
    let pinned = (options.signers.is_empty() || named(&options.signers)) && locked.is_none_or(|l| named(l));
    if pinned { SignerVerdict::Pinned } else { SignerVerdict::Untrusted }
}

/// Adds every demand that is not met.
pub(super) fn demands(
    notes: &mut Notebook<'_>,
    m: &Manifest,
    signer: SignerVerdict,
    claims: Claims,
    evaluated: bool,
    completeness: Completeness,
) {
    let options = notes.options;
    let newer = notes.is_newer();
    let cards = !options.cards.is_empty() || options.lock.as_ref().is_some_and(|l| !l.cards.is_empty());
    if options.strict && signer == SignerVerdict::Unpinned {
        notes.unmet.push("the signer is UNPINNED: the pack verifies only against the key inside it".into());
    }
    match completeness {
        Completeness::Incomplete => notes.unmet.push("the session is INCOMPLETE".into()),
        Completeness::Unterminated => notes.unmet.push("the session is UNTERMINATED".into()),
        Completeness::Complete | Completeness::NotEvaluated => {}
    }
    match claims {
        Claims::HonestFail if evaluated || options.require_claim_pass => {
            notes.unmet.push("the claims are not satisfied (HONEST_FAIL)".into());
        }
        Claims::NotEvaluated if newer && (options.require_claim_pass || cards) => {
            notes.unmet.push("the claims were not evaluated, because a later version wrote part of the pack".into());
        }
        Claims::NotEvaluated if options.require_claim_pass => {
            notes.unmet.push("claims must pass, but none were evaluated: name cards with --cards or --lock".into());
        }
        _ => {}
    }
    if let Some(lock) = &options.lock {
        // That nothing was evaluated is said once.
        locked(notes, lock, m, evaluated || newer && !lock.cards.is_empty());
    }
    age(notes, m);
    ci_run(notes, m);
}

/// Which CI run built the pack is what the signer says; only the demand is judged here.
fn ci_run(notes: &mut Notebook<'_>, m: &Manifest) {
    let expected = notes.options.expected_commit_sha.as_deref();
    let built = m.attestation.ci_binding.as_ref().and_then(Option::as_ref);
    match (built, expected) {
        (None, None) if !notes.options.require_ci_binding => {}
        (None, _) => notes.unmet.push("the pack does not say which CI run built it (no ci_binding)".into()),
        (Some(ci), Some(sha)) if ci.commit_sha != sha => {
            notes.unmet.push(format!("the pack was built at commit {}, not {sha}", ci.commit_sha));
        }
        (Some(_), _) => {}
    }
}

/// A pack that attests no claims is judged by those of the lock, which are evaluated here. One that attests claims must
/// attest the lock's.
fn locked(notes: &mut Notebook<'_>, lock: &Lock, m: &Manifest, evaluated: bool) {
    notes.unmet.extend(lock.problems.iter().map(|p| format!("lock: {p}")));
    let mut same = |field: &str, expected: &str, found: &str| {
        if expected != found {
            notes.unmet.push(format!("lock mismatch: {field}: expected {expected}, found {found}"));
        }
    };
    same("pack_format_version", &lock.pack_format_version, &m.attestation.pack_format_version);
    if !evaluated || m.claim_set_hash != sha256_hex(NO_CLAIMS.as_bytes()) {
        same("claim_set_hash", &lock.claim_set_hash, &m.claim_set_hash);
    }
}

fn age(notes: &mut Notebook<'_>, m: &Manifest) {
    let end = parse_date_time(&m.attestation.timestamp_end);
    let Some(end) = end else { return };
    let hours = (notes.options.now.millis() - end.millis()) as f64 / 3_600_000.0;
    if let Some(max) = notes.options.max_age_hours
        && hours > max
    {
        notes.unmet.push(format!("the pack is too old: {hours:.2} h, at most {max:.2} h"));
    }
    if hours < -MAX_FUTURE_HOURS {
        notes.unmet.push(format!("the pack's last receipt is {:.2} h in the future", -hours));
    }
    let until = m.attestation.valid_until.clone().flatten().and_then(|t| parse_date_time(&t));
    if until.is_some_and(|t| t < notes.options.now) {
        let text = "the pack is past its valid_until".to_owned();
        let list = if notes.options.check_expiry { &mut notes.unmet } else { &mut notes.warnings };
        list.push(text);
    }
    if let Some(by) = m.attestation.superseded_by.clone().flatten() {
        notes.warnings.push(format!("the pack says that it is superseded by {by}"));
    }
}
