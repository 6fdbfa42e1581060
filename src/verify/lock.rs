//! The verifier lock file `assay.lock` of assay-ai: which cards, which signers, which formats a repository accepts.
//!
//! Its version bounds are of assay-ai, whose contract this verifier implements as of [`CONTRACT`]: a lock that asks for a
//! newer contract, or for one from before a major version that it excludes, is not met. Card and claim set hashes are
//! recomputed; a lock that has drifted from the cards known here is not met either, and says so.

use super::claims::{Card, card, claim_set_hash};
use crate::{
    canon,
    model::{reading::TooNew, sha256_hex, version},
};
use serde_json::Value;
use std::io;

/// The version of assay-ai whose pack contract and cards are implemented here.
pub const CONTRACT: &str = "1.23.0";
/// The only version of the lock format.
pub const LOCK_VERSION: &str = "1.0";
/// A lock file is small.
const MAX_BYTES: u64 = 1 << 20;

const REQUIRED: [&str; 8] = [
    "lock_version",
    "assay_version_min",
    "pack_format_version",
    "run_cards",
    "run_cards_composite_hash",
    "claim_set_hash",
    "exit_contract",
    "signer_policy",
];

/// A lock file that was read and is of its documented form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// `pack_format_version` that a pack must have.
    pub pack_format_version: String,
    /// Fingerprints that may sign; `None` when any may.
    pub allowed_signers: Option<Vec<String>>,
    /// Ids of the locked cards.
    pub cards: Vec<String>,
    /// Flattened claim set hash that a pack built with these cards attests.
    pub claim_set_hash: String,
    /// What about the lock does not fit this verifier; each an unmet demand.
    pub problems: Vec<String>,
}

/// A lock file that is none.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It cannot be read.
    #[error("cannot read the lock file: {0}")]
    Io(#[from] io::Error),
    /// It is not of the form.
    #[error("invalid lock file: {0}")]
    Invalid(String),
    /// It is of a later version.
    #[error(transparent)]
    TooNew(TooNew),
}

impl Lock {
    /// Reads a lock file that is open.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn read(file: impl io::Read) -> Result<Self, LockError> {
        use io::Read as _;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        Self::parse(&bytes)
    }

    /// Reads the text of a lock file. Members that are not known are ignored, as assay-ai does.
    ///
    /// # Errors
    /// [`LockError::Invalid`].
    pub fn parse(bytes: &[u8]) -> Result<Self, LockError> {
        let invalid = LockError::Invalid;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(invalid(format!("longer than {MAX_BYTES} bytes")));
        }
        let anomalies = canon::scan(bytes).map_err(|e| invalid(e.to_string()))?;
        if !anomalies.is_empty() {
            return Err(invalid(anomalies.to_string()));
        }
        let doc: Value = serde_json::from_slice(bytes).map_err(|e| invalid(e.to_string()))?;
        // A later version may have other fields.
        let version = doc["lock_version"].as_str().unwrap_or_default();
        if let Some(e) = version::newer_text("lock file", version, LOCK_VERSION) {
            return Err(LockError::TooNew(e));
        }
        let missing: Vec<&str> = REQUIRED.into_iter().filter(|f| doc.get(f).is_none()).collect();
        if !missing.is_empty() {
            return Err(invalid(format!("missing required fields: {}", missing.join(", "))));
        }
        let text = |field: &str| -> Result<String, LockError> {
            let text = doc[field].as_str().filter(|t| !t.is_empty());
            text.map(str::to_owned).ok_or_else(|| LockError::Invalid(format!("{field} is not text")))
        };
        let version = text("lock_version")?;
        if version != LOCK_VERSION {
            return Err(invalid(format!("lock_version {version} is unknown, expected {LOCK_VERSION}")));
        }
        let mut problems = Vec::new();
        versions(&doc, &mut problems)?;
        for code in ["0", "1", "2"] {
            if doc["exit_contract"].get(code).is_none() {
                problems.push(format!("exit_contract lacks code {code}"));
            }
        }
        let claim_set_hash = text("claim_set_hash")?;
        let cards = cards(&doc, &claim_set_hash, &mut problems)?;
        Ok(Self {
            pack_format_version: text("pack_format_version")?,
            allowed_signers: signers(&doc)?,
            cards,
            claim_set_hash,
            problems,
        })
    }
}

fn signers(doc: &Value) -> Result<Option<Vec<String>>, LockError> {
    let policy = &doc["signer_policy"];
    match policy["mode"].as_str() {
        Some("any") => Ok(None),
        Some("allowlist") => {
            let list = policy["allowed_fingerprints"].as_array();
            let list =
                list.ok_or_else(|| LockError::Invalid("signer_policy.allowed_fingerprints is not a list".into()))?;
            let of = |v: &Value| {
                v.as_str().filter(|f| f.len() == 64 && f.bytes().all(|b| b.is_ascii_hexdigit())).map(str::to_owned)
            };
            let list: Option<Vec<String>> = list.iter().map(of).collect();
            list.map(Some)
                .ok_or_else(|| LockError::Invalid("signer_policy names a fingerprint that is not a SHA-256".into()))
        }
        _ => Err(LockError::Invalid(format!("signer_policy.mode is {}, expected any or allowlist", policy["mode"]))),
    }
}

fn versions(doc: &Value, problems: &mut Vec<String>) -> Result<(), LockError> {
    let read = |field: &str| -> Result<Option<[u64; 3]>, LockError> {
        match doc.get(field) {
            None => Ok(None),
            Some(v) => v
                .as_str()
                .and_then(release)
                .map(Some)
                .ok_or_else(|| LockError::Invalid(format!("{field} is {v}, which is not a version"))),
        }
    };
    let ours = release(CONTRACT).unwrap_or_default();
    if let Some(min) = read("assay_version_min")?
        && ours < min
    {
        problems.push(format!(
            "it requires assay {} or newer; this verifier implements {CONTRACT}",
            doc["assay_version_min"]
        ));
    }
    if let Some(max) = read("assay_version_max")?
        && ours >= max
    {
        problems.push(format!(
            "it excludes assay {} and newer; this verifier implements {CONTRACT}",
            doc["assay_version_max"]
        ));
    }
    Ok(())
}

/// The release part of a version: up to three numbers; what PEP 440 puts after them (`rc1`, `.dev0`, `+local`) is left
/// out.
fn release(version: &str) -> Option<[u64; 3]> {
    let mut out = [0; 3];
    for (i, part) in version.split('.').take(3).enumerate() {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        if digits == 0 {
            return (i > 0).then_some(out);
        }
        out[i] = part[..digits].parse().ok()?;
        if digits < part.len() {
            break;
        }
    }
    Some(out)
}

fn cards(doc: &Value, flat: &str, problems: &mut Vec<String>) -> Result<Vec<String>, LockError> {
    let list = doc["run_cards"].as_array().ok_or_else(|| LockError::Invalid("run_cards is not a list".into()))?;
    let mut known: Vec<Card> = Vec::new();
    let mut ids = Vec::new();
    for entry in list {
        let id = entry["id"].as_str().ok_or_else(|| LockError::Invalid("a run card has no id".into()))?;
        ids.push(id.to_owned());
        let Some(card) = card(id) else {
            problems.push(format!("this verifier does not know run card {id:?}"));
            continue;
        };
        let locked = entry["claim_set_hash"].as_str().unwrap_or_default();
        let actual = card.claim_set_hash();
        if locked != actual {
            problems.push(format!("run card {id} has drifted: locked {locked}, here {actual}"));
        }
        known.push(card);
    }
    if known.len() == list.len() && !known.is_empty() {
        let composite: Vec<String> = known.iter().map(Card::claim_set_hash).collect();
        let composite = sha256_hex(serde_json::json!(composite).to_string().as_bytes());
        if doc["run_cards_composite_hash"].as_str() != Some(&composite) {
            problems.push(format!("run_cards_composite_hash has drifted: here {composite}"));
        }
        let actual = claim_set_hash(&known);
        if flat != actual {
            problems.push(format!("claim_set_hash has drifted: locked {flat}, here {actual}"));
        }
    }
    Ok(ids)
}
