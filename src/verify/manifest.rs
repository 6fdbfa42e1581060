//! `pack_manifest.json`: assay's schema, checked to the letter, and the bytes that its signature covers.
//!
//! The signature covers the RFC 8785 form of the parsed manifest, so assay-ai accepts any formatting of the file. A pack of
//! ours has exactly one: what its builder writes ([`pretty`](crate::model::pack::pretty)). Any other bytes are a finding there
//! and a warning in a pack that has another builder.

use super::time::parse_date_time;
use crate::{
    canon,
    model::{
        cursor,
        pack::{Attestation, FINGERPRINT_VERSION, MANIFEST_VERSION, Manifest, PACK_VERSION, SIGNATURE_SCOPE},
        reading::TooNew,
        version,
    },
};
use std::ops::Range;

/// Largest manifest that is read. Nobody has vouched for it yet, and a pack lists a handful of files.
pub const MAX_MANIFEST: usize = 4 << 20;
/// Most files that a manifest lists.
pub const MAX_FILES: usize = 10_000;
/// Problems of a manifest that are named one by one.
const MAX_PROBLEMS: usize = 100;

/// A manifest that is of the schema, with the RFC 8785 form of what was read.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The manifest that was read.
    pub manifest: Manifest,
    /// Versions in it that are above those that are read, while all else is of the schema.
    pub newer: Vec<TooNew>,
    canonical: Vec<u8>,
}

/// What is wrong with a member: its path, and what.
pub type Problem = (String, String);

/// Why a manifest does not read.
#[derive(Debug)]
pub enum Refused {
    /// Everything that is not of the schema.
    Wrong(Vec<Problem>),
    /// Its schema is a later one: it cannot be judged.
    TooNew(Vec<TooNew>),
}

impl Parsed {
    /// Reads and checks a manifest.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn read(bytes: &[u8]) -> Result<Self, Refused> {
        let wrong = |what: String| Refused::Wrong(vec![("(root)".to_owned(), what)]);
        let anomalies = canon::scan(bytes).map_err(|e| wrong(format!("not JSON: {e}")))?;
        if !anomalies.is_empty() {
            return Err(wrong(format!("not unambiguous JSON: {anomalies}")));
        }
        let newer = newer(bytes);
        let root = |what: String| if newer.is_empty() { wrong(what) } else { Refused::TooNew(newer.clone()) };
        // Typed before anything else is built: input that does not fit the schema costs time only in proportion to its
        // length.
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(|e| root(e.to_string()))?;
        let canonical = canon::canonicalize(bytes).map_err(|e| root(e.to_string()))?;
        // serde reads an array where it expects a struct; the schema does not.
        let typed = serde_json::to_vec(&manifest).ok().and_then(|text| canon::canonicalize(&text).ok());
        if typed.as_ref() != Some(&canonical) {
            return Err(root("a member that must be an object is not an object".to_owned()));
        }
        let problems = check(&manifest);
        if problems.is_empty() {
            return Ok(Self { manifest, newer, canonical });
        }
        Err(if newer.is_empty() { Refused::Wrong(problems) } else { Refused::TooNew(newer) })
    }

    /// The RFC 8785 form of the manifest without its signature and root: what is signed.
    #[must_use]
    pub fn signed_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.canonical.len());
        out.push(b'{');
        for (key, whole, _) in self.members() {
            if matches!(&*key, "signature" | "pack_root_sha256") {
                continue;
            }
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(&self.canonical[whole]);
        }
        out.push(b'}');
        out
    }

    /// The RFC 8785 form of the attestation.
    #[must_use]
    pub fn attestation_bytes(&self) -> &[u8] {
        self.members().find(|(key, ..)| key == "attestation").map_or(&[], |(.., value)| &self.canonical[value])
    }

    /// Names of the members, and where each member (with its name) and its value begin.
    fn members(&self) -> impl Iterator<Item = (String, Range<usize>, Range<usize>)> + '_ {
        canon::members(&self.canonical)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|m| Some((m.key?.into_owned(), m.key_range.start..m.value.end, m.value)))
    }
}

/// The versions in a manifest that are above those that are read, whatever else it holds.
#[must_use]
pub fn newer(json: &[u8]) -> Vec<TooNew> {
    let attestation = version::stated(json, "attestation").unwrap_or_default();
    [
        version::newer("pack (pack_version)", json, "pack_version", PACK_VERSION),
        version::newer("manifest (manifest_version)", json, "manifest_version", MANIFEST_VERSION),
        version::newer("pack (pack_format_version)", attestation, "pack_format_version", PACK_VERSION),
        version::newer(
            "attestation (fingerprint_version)",
            attestation,
            "fingerprint_version",
            &FINGERPRINT_VERSION.to_string(),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

struct Check(Vec<Problem>);

impl Check {
    fn that(&mut self, ok: bool, path: &str, what: impl FnOnce() -> String) {
        if !ok && self.0.len() < MAX_PROBLEMS {
            self.0.push((path.to_owned(), what()));
        }
    }

    fn hash(&mut self, path: &str, text: &str) {
        let ok = text.len() == 64 && cursor::is_hex(text.as_bytes());
        self.that(ok, path, || format!("{text:?} is not a SHA-256 in lower-case hex"));
    }

    /// The one version, or a later one: whether it is that was looked at before.
    fn version(&mut self, path: &str, text: &str, known: &str) {
        if version::newer_text("", text, known).is_none() {
            self.one_of(path, text, &[known]);
        }
    }

    fn some(&mut self, path: &str, text: &str) {
        self.that(!text.is_empty(), path, || "empty".to_owned());
    }

    fn token(&mut self, path: &str, text: &str) {
        let ok = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        self.that(ok, path, || format!("{text:?} has characters other than letters, digits, . _ -"));
    }

    fn one_of(&mut self, path: &str, text: &str, allowed: &[&str]) {
        self.that(allowed.contains(&text), path, || format!("{text:?} is not one of {}", allowed.join(", ")));
    }

    fn time(&mut self, path: &str, text: &str) {
        self.that(parse_date_time(text).is_some(), path, || format!("{text:?} is not an RFC 3339 date-time"));
    }
}

fn check(m: &Manifest) -> Vec<Problem> {
    let mut c = Check(Vec::new());
    c.some("pack_id", &m.pack_id);
    // Unknown versions and algorithms are refused, not tried: what is computed never depends on what the pack asks for.
    c.version("pack_version", &m.pack_version, PACK_VERSION);
    c.version("manifest_version", &m.manifest_version, MANIFEST_VERSION);
    c.one_of("hash_alg", &m.hash_alg, &["sha256"]);
    check_attestation(&mut c, &m.attestation);
    for (path, hash) in [
        ("attestation_sha256", &m.attestation_sha256),
        ("suite_hash", &m.suite_hash),
        ("claim_set_hash", &m.claim_set_hash),
        ("signer_pubkey_sha256", &m.signer_pubkey_sha256),
        ("pack_root_sha256", &m.pack_root_sha256),
    ] {
        c.hash(path, hash);
    }
    if let Some(hash) = &m.redaction_policy_sha256 {
        c.hash("redaction_policy_sha256", hash);
    }
    c.some("claim_set_id", &m.claim_set_id);
    c.that(m.files.len() >= 3, "files", || "fewer than 3 entries".into());
    for (path, count) in [("files", m.files.len()), ("expected_files", m.expected_files.len())] {
        c.that(count <= MAX_FILES, path, || format!("{count} entries, more than {MAX_FILES}"));
    }
    for (i, f) in m.files.iter().enumerate() {
        c.hash(&format!("files.{i}.sha256"), &f.sha256);
    }
    c.that(m.expected_files.len() >= 5, "expected_files", || "fewer than 5 entries".into());
    c.some("signer_id", &m.signer_id);
    c.one_of("signature_alg", &m.signature_alg, &["ed25519"]);
    c.one_of("signature_scope", &m.signature_scope, &[SIGNATURE_SCOPE, "JCS(pack_manifest_without_signature)"]);
    c.some("signature", &m.signature);
    c.0
}

fn check_attestation(c: &mut Check, a: &Attestation) {
    c.version("attestation.pack_format_version", &a.pack_format_version, PACK_VERSION);
    c.version("attestation.fingerprint_version", &a.fingerprint_version.to_string(), &FINGERPRINT_VERSION.to_string());
    for (path, text) in [
        ("attestation.pack_id", &a.pack_id),
        ("attestation.run_id", &a.run_id),
        ("attestation.suite_id", &a.suite_id),
        ("attestation.claim_set_id", &a.claim_set_id),
    ] {
        c.some(path, text);
    }
    for (path, hash) in [
        ("attestation.suite_hash", &a.suite_hash),
        ("attestation.policy_hash", &a.policy_hash),
        ("attestation.claim_set_hash", &a.claim_set_hash),
        ("attestation.head_hash", &a.head_hash),
    ] {
        c.hash(path, hash);
    }
    if let Some(Some(hash)) = &a.discrepancy_fingerprint {
        c.hash("attestation.discrepancy_fingerprint", hash);
    }
    c.token("attestation.verifier_version", &a.verifier_version);
    c.one_of("attestation.canon_version", &a.canon_version, &["jcs-rfc8785"]);
    c.one_of("attestation.receipt_integrity", &a.receipt_integrity, &["PASS", "FAIL"]);
    c.one_of("attestation.claim_check", &a.claim_check, &["PASS", "FAIL", "N/A"]);
    c.one_of("attestation.assurance_level", &a.assurance_level, &["L0", "L1", "L2", "L3"]);
    c.one_of("attestation.proof_tier", &a.proof_tier, &["hash-only", "signed-pack", "signed-receipts"]);
    c.one_of("attestation.mode", &a.mode, &["shadow", "enforced", "breakglass"]);
    c.one_of("attestation.head_hash_algorithm", &a.head_hash_algorithm, &["last-receipt-digest-v0"]);
    c.time("attestation.timestamp_start", &a.timestamp_start);
    c.time("attestation.timestamp_end", &a.timestamp_end);
    if let Some(Some(until)) = &a.valid_until {
        c.time("attestation.valid_until", until);
    }
    if let Some(Some(by)) = &a.superseded_by {
        c.some("attestation.superseded_by", by);
    }
    if let Some(Some(ci)) = &a.ci_binding {
        let providers = ["github_actions", "gitlab_ci", "circleci", "jenkins", "local"];
        c.one_of("attestation.ci_binding.provider", &ci.provider, &providers);
        let sha = ci.commit_sha.len() == 40 && cursor::is_hex(ci.commit_sha.as_bytes());
        c.that(sha, "attestation.ci_binding.commit_sha", || format!("{:?} is not a commit", ci.commit_sha));
        for (path, text) in [("run_id", &ci.run_id), ("run_attempt", &ci.run_attempt)] {
            if let Some(text) = text {
                c.some(&format!("attestation.ci_binding.{path}"), text);
            }
        }
    }
}
