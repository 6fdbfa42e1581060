//! Stage `validate_schema`: the manifest, before anything else.

use super::{
    finding::Finding,
    manifest::{MAX_MANIFEST, Parsed, Refused},
    notebook::Notebook,
    options::VerifyError,
    report::PackFacts,
    source::{OpenProblem, PackDir, ReadMeter, ReadStop},
    words::Stage,
};
use crate::model::{
    pack::{MANIFEST, Manifest, pretty},
    reading::TooNew,
};

/// Reads the manifest; `None` if it does not read.
///
/// # Errors
/// [`VerifyError`]: it is not there, or cannot be read.
pub fn schema(
    notes: &mut Notebook<'_>,
    dir: &PackDir,
    meter: &mut ReadMeter<'_>,
) -> Result<Option<Parsed>, VerifyError> {
    let stage = Stage::ValidateSchema;
    let tampered = |text: String| Finding::new("E_MANIFEST_TAMPER", stage, text).file(MANIFEST);
    let whole = match dir.read_whole(MANIFEST, MAX_MANIFEST, meter) {
        Ok(Ok(whole)) => whole,
        Ok(Err(ReadStop::Cancelled)) => return Err(VerifyError::Cancelled),
        Ok(Err(ReadStop::Io(source))) | Err(OpenProblem::Io(source)) => {
            return Err(VerifyError::Io { path: dir.path().join(MANIFEST), source });
        }
        Ok(Err(ReadStop::TooLong | ReadStop::Garbage)) => {
            notes.found(tampered(format!("the manifest is longer than {} MiB", MAX_MANIFEST >> 20)));
            return Ok(None);
        }
        Err(OpenProblem::Missing) => {
            return Err(VerifyError::NotAPack { dir: dir.path().to_owned(), why: format!("it has no {MANIFEST}") });
        }
        Err(OpenProblem::Special(what)) => {
            notes.found(tampered(format!("{MANIFEST} is {what}, not a plain file")));
            return Ok(None);
        }
    };
    notes.facts.pack_manifest_sha256 = Some(whole.sha256);
    let parsed = match Parsed::read(&whole.bytes) {
        Ok(parsed) => parsed,
        Err(Refused::Wrong(problems)) => {
            for (path, what) in problems {
                notes.found(tampered(format!("manifest schema validation failed: {path}: {what}")));
            }
            return Ok(None);
        }
        Err(Refused::TooNew(newer)) => {
            too_new(notes, &newer);
            return Ok(None);
        }
    };
    too_new(notes, &parsed.newer);
    let pretty = pretty(&parsed.manifest).unwrap_or_default();
    if notes.is_newer() {
        // Its form on disk is its builder's affair; what is signed is its canonical form.
    } else if parsed.manifest.is_ours() {
        if whole.bytes != pretty {
            let at = pretty.iter().zip(&whole.bytes).take_while(|(a, b)| a == b).count();
            let mut f = tampered("the bytes of the manifest are not those that its builder writes".into());
            f.offset = Some(at as u64);
            notes.found(f);
        }
    } else if whole.bytes.strip_suffix(b"\n").unwrap_or(&whole.bytes) != pretty {
        notes
            .warnings
            .push("the formatting of the manifest is not its builder's; the signature covers only its meaning".into());
    }
    Ok(Some(parsed))
}

fn too_new(notes: &mut Notebook<'_>, newer: &[TooNew]) {
    for newer in newer {
        notes.found(Finding::too_new(Stage::ValidateSchema, newer).file(MANIFEST));
    }
}

/// Takes what the manifest says.
pub fn facts(f: &mut PackFacts, m: &Manifest) {
    let a = &m.attestation;
    f.pack_id = Some(m.pack_id.clone());
    f.run_id = Some(a.run_id.clone());
    f.pack_root_sha256 = Some(m.pack_root_sha256.clone());
    f.mode = Some(a.mode.clone());
    f.policy_hash = Some(a.policy_hash.clone());
    f.claim_set_id = Some(m.claim_set_id.clone());
    f.claim_set_hash = Some(m.claim_set_hash.clone());
    f.claim_check = Some(a.claim_check.clone());
    f.timestamp_start = Some(a.timestamp_start.clone());
    f.timestamp_end = Some(a.timestamp_end.clone());
    f.built_by = Some(a.verifier_version.clone());
    f.ci_binding = a.ci_binding.clone().flatten().and_then(|ci| serde_json::to_value(ci).ok());
}
