//! Decisions about what a server offers, made by another process than the one under test.

use assay::{
    approvals::store::{self, Contents, Draft},
    model::surface::{Approver, Decision, Facet, Facets, Identity, Item, Pin},
    pack::keys::{Signer, SignerId},
    paths::AuditDir,
};
use serde_json::Value;
use std::{fs, path::Path};

/// Decides about a tool of the server that the audit directory has a decision about already.
pub fn decide(audit: &Path, decision: Decision, tool: &str) {
    let dir = AuditDir::at(audit);
    let item = Item::of(Facet::Tools, tool.as_bytes(), &[]).unwrap();
    let lines = fs::read_to_string(audit.join("surface/approvals.jsonl")).unwrap();
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let text = |name: &str| first[name].as_str().unwrap().to_owned();
    let hash = item.hash.to_string();
    let contents = Contents::from([(store::hex_of(&hash).unwrap().to_owned(), item.content.clone())]);
    let draft = Draft {
        approver: Approver { auth: "local_user".into(), name: "test".into(), via: "cli".into() },
        changes: Vec::new(),
        changes_hash: None,
        contexts: Vec::new(),
        decision,
        facets: Facets::default(),
        items: vec![Pin { facet: Facet::Tools, hash, name: item.name }],
        reason: None,
        root: None,
        rules_hash: None,
        server: Identity { endpoint: text("endpoint"), id: text("server_id") },
    };
    let signer = Signer::from_seed(SignerId::parse("test").unwrap(), &[7; 32]);
    store::append(&dir, &contents, |chain| draft.signed(chain, &signer)).unwrap();
}
