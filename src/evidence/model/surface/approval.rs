//! A line of `surface/approvals.jsonl`: a signed decision about items (docs/formats.md, "Decisions about surfaces").

use super::{ChangeKind, Context, Facet, Severity};
use crate::{
    canon,
    model::{
        WallTime,
        line::line,
        reading::{self, versioned},
        words::vocabulary,
    },
};
use serde_json::Value;

/// Format version of a decision.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const APPROVAL_VERSION: u32 = 1;

/// `type` of a decision.
pub const APPROVAL_TYPE: &str = "mcp.surface_approval";

/// What comes before the hash in the bytes that are signed.
pub const APPROVAL_CONTEXT: &str = "assay/surface-approval/v1\n";

vocabulary! {
    /// What was decided.
    #[derive(PartialOrd, Ord, Hash)]
    Decision {
        /// A person approved the items.
        Approve = "approve",
        /// A person does not want the items; they are not asked about again.
        Block = "block",
        /// What was decided about the items no longer holds.
        Revoke = "revoke",
        /// The first complete surface became what later ones are compared with; no person saw it.
        FirstUse = "first_use",
    }
}

line! {
    /// One item, and the definition that was decided about. Of `instructions` and `capabilities` the name is empty.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub exact struct Pin {
        /// Where it is.
        facet: Facet,
        /// Its hash.
        hash: String,
        /// Its name.
        name: String,
    }
}

line! {
    /// A change that the approver was shown.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct Change {
        /// Where; null for what is of the server as a whole.
        facet: Option<Facet>,
        /// What kind of change it is.
        kind: ChangeKind,
        /// Name of the item.
        name: String,
        /// How much it matters.
        severity: Severity,
    }
}

line! {
    /// The hash of each facet; null where the server does not offer it.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub exact struct Facets {
        /// Of the capabilities.
        capabilities: Option<String>,
        /// Of the instructions.
        instructions: Option<String>,
        /// Of the prompts.
        prompts: Option<String>,
        /// Of the resource templates.
        resource_templates: Option<String>,
        /// Of the resources.
        resources: Option<String>,
        /// Of the tools.
        tools: Option<String>,
    }
}

line! {
    /// Who decided, as far as the program knows.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct Approver {
        /// How we know who it is: `key`, `token`, `local_user`.
        auth: String,
        /// Their name.
        name: String,
        /// The way it came: `cli`, `tui`, `api`, `ui`, `file`; `proxy` for `first_use`.
        via: String,
    }
}

line! {
    /// The key that signed.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct SignedBy {
        /// SHA-256 of the public key, 64 hex digits.
        fingerprint: String,
        /// Name of the key.
        id: String,
        /// The public key, Base64.
        public_key: String,
    }
}

line! {
    /// One line; on disk it is its RFC 8785 form.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct Approval {
        /// `sap_` and 16 hex digits.
        approval_id: String,
        /// Who decided.
        approver: Approver,
        /// Wall clock.
        at: WallTime,
        /// What changed since the decision before, as the approver was shown.
        changes: Vec<Change>,
        /// Digest of the whole typed difference, with texts.
        changes_hash: Option<String>,
        /// The contexts in which the surface was seen.
        contexts: Vec<Context>,
        /// What was decided.
        decision: Decision,
        /// Digest of the command, or of the URL.
        endpoint: String,
        /// Hash of each facet of the surface that was seen.
        facets: Facets,
        /// SHA-256 of the RFC 8785 form of this line without `hash` and `signature`, 64 hex digits.
        hash: String,
        /// What it is about.
        items: Vec<Pin>,
        /// `hash` of the line before; 64 zeros in the first.
        prev_hash: String,
        /// The decision about this server before this one.
        previous: Option<String>,
        /// Why, in the approver's words.
        reason: Option<String>,
        /// The root that was seen; null if only part of the surface was.
        root: Option<String>,
        /// Digest of the rules in force; null for the defaults.
        rules_hash: Option<String>,
        /// Place in the file, from 0.
        seq: u64,
        /// The id of the server.
        server_id: String,
        /// Ed25519 over `assay/surface-approval/v1`, a line feed and `hash`; Base64.
        signature: String,
        /// Who signed.
        signer: SignedBy,
        /// [`APPROVAL_TYPE`].
        r#type: String,
        /// [`APPROVAL_VERSION`].
        #[serde(deserialize_with = "reading::known::<Approval, _>")]
        v: u32,
    }
}

versioned!(Approval, "decision about a surface", APPROVAL_VERSION);

impl Approval {
    /// The hash that this line must carry.
    ///
    /// # Errors
    /// A value that JSON cannot hold; there is none.
    pub fn expected_hash(&self) -> Result<String, canon::SerializeError> {
        let mut value = serde_json::to_value(self)?;
        if let Value::Object(members) = &mut value {
            members.remove("hash");
            members.remove("signature");
        }
        Ok(canon::sha256_hex(&canon::to_vec(&value)?))
    }

    /// The bytes that are signed: the context and the hash.
    #[must_use]
    pub fn signed_bytes(&self) -> Vec<u8> {
        [APPROVAL_CONTEXT.as_bytes(), self.hash.as_bytes()].concat()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::{GENESIS, reading::Reading};

    pub fn approval(decision: Decision, items: &[(&str, &str)]) -> Approval {
        let pin = |(name, hash): &(&str, &str)| Pin { facet: Facet::Tools, name: (*name).into(), hash: (*hash).into() };
        Approval {
            approval_id: "sap_0123456789abcdef".into(),
            approver: Approver { auth: "local_user".into(), name: "alice".into(), via: "cli".into() },
            at: WallTime::from_millis(1),
            changes: Vec::new(),
            changes_hash: None,
            contexts: vec![Context::default()],
            decision,
            endpoint: "sha256:e".into(),
            facets: Facets::default(),
            hash: GENESIS.into(),
            items: items.iter().map(pin).collect(),
            prev_hash: GENESIS.into(),
            previous: None,
            reason: Some("\"hash\":\"x\",".into()),
            root: None,
            rules_hash: None,
            seq: 0,
            server_id: "files".into(),
            signature: String::new(),
            signer: SignedBy { fingerprint: String::new(), id: "assay-local".into(), public_key: String::new() },
            r#type: APPROVAL_TYPE.into(),
            v: APPROVAL_VERSION,
        }
    }

    #[test]
    fn the_hash_covers_everything_but_itself_and_the_signature() {
        let mut a = approval(Decision::Approve, &[("t", "sha256:1")]);
        let hash = a.expected_hash().unwrap();
        a.hash.clone_from(&hash);
        a.signature = "c2ln".into();
        assert_eq!(a.expected_hash().unwrap(), hash);
        let line = crate::model::to_line(&a).unwrap();
        assert!(canon::is_canonical(&line));
        assert_eq!(reading::read::<Approval>(&line), Reading::Readable(a.clone()));
        for change in [
            |a: &mut Approval| a.items[0].hash.push('2'),
            |a: &mut Approval| a.decision = Decision::Block,
            |a: &mut Approval| a.prev_hash = "1".repeat(64),
            |a: &mut Approval| a.signer.id.push('x'),
        ] {
            let mut other = a.clone();
            change(&mut other);
            assert_ne!(other.expected_hash().unwrap(), hash);
        }
    }
}
