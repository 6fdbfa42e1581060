//! What the stages of a verification write into.

use super::{
    anchor::AnchorReport,
    finding::{Finding, MAX_FINDINGS, VERSION_UNSUPPORTED},
    options::VerifyOptions,
    report::{PackFacts, StageReport, counts},
    source::ReadStop,
    words::{Stage, StageStatus},
};
use crate::model::pack::{AUDIT_LOG, CHECKPOINTS, MANIFEST, RECEIPTS};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};

/// Bytes of lines that read as nothing, after which a file is not read any further.
const MAX_GARBAGE: u64 = 256 << 20;
/// Bytes of one text in a finding.
const MAX_TEXT: usize = 4096;

/// Everything that stages find on the way. They write into it, and read in it only what was found before them.
pub struct Notebook<'o> {
    /// What the caller demands of the pack.
    pub options: &'o VerifyOptions,
    /// What the pack says.
    pub facts: PackFacts,
    /// SHA-256 of the public key in the pack.
    pub fingerprint: Option<String>,
    /// What others have signed of the pack.
    pub anchor: AnchorReport,
    /// What contradicts it, without being wrong with it.
    pub contradictions: Vec<Finding>,
    /// What is worth knowing, but not wrong.
    pub warnings: Vec<String>,
    /// Demands that are not met.
    pub unmet: Vec<String>,
    /// SHA-256 of JSON files without the newline that ends them.
    pub unterminated: HashMap<String, String>,
    /// Incomplete for no other reason than that the proxy was killed: what a reader may rely on.
    pub crashed: Option<&'static str>,
    garbage: u64,
    findings: Vec<Finding>,
    per_stage: [usize; Stage::ALL.len()],
    /// Findings beyond those that are kept.
    pub omitted: u64,
    first: HashMap<Stage, (&'static str, String)>,
    skipped: HashMap<Stage, String>,
    details: HashMap<Stage, Map<String, Value>>,
    extra: bool,
    /// What a later version wrote: one finding for each document, four for a manifest.
    newer: Vec<Finding>,
}

impl<'o> Notebook<'o> {
    /// A notebook without findings.
    #[must_use]
    pub fn new(options: &'o VerifyOptions) -> Self {
        Self {
            options,
            facts: PackFacts::default(),
            fingerprint: None,
            anchor: AnchorReport::default(),
            contradictions: Vec::new(),
            warnings: Vec::new(),
            unmet: Vec::new(),
            unterminated: HashMap::new(),
            crashed: None,
            garbage: 0,
            findings: Vec::new(),
            per_stage: [0; Stage::ALL.len()],
            omitted: 0,
            first: HashMap::new(),
            skipped: HashMap::new(),
            details: HashMap::new(),
            extra: false,
            newer: Vec::new(),
        }
    }

    /// Takes a finding. Each stage keeps its share, so that one stage's flood does not hide another's reason.
    pub fn found(&mut self, mut finding: Finding) {
        const SHARE: usize = MAX_FINDINGS / Stage::ALL.len();
        for text in [Some(&mut finding.message), finding.expected.as_mut(), finding.found.as_mut()] {
            text.into_iter().for_each(clip);
        }
        if finding.code == VERSION_UNSUPPORTED {
            return self.newer.push(finding);
        }
        self.first.entry(finding.stage).or_insert_with(|| (finding.code, finding.message.clone()));
        let kept = &mut self.per_stage[finding.stage as usize];
        if *kept < SHARE {
            *kept += 1;
            self.findings.push(finding);
        } else {
            self.omitted += 1;
        }
    }

    /// A line of so many bytes reads as nothing.
    ///
    /// # Errors
    /// [`ReadStop::Garbage`]: there were enough of them.
    pub fn garbage(&mut self, line: usize) -> Result<(), ReadStop> {
        self.garbage += line as u64;
        if self.garbage > MAX_GARBAGE { Err(ReadStop::Garbage) } else { Ok(()) }
    }

    /// An unlisted file is in the pack: reported, and not accepted under `--strict`.
    pub fn extra(&mut self, what: String) {
        self.extra = true;
        if self.options.strict {
            self.unmet.push(what);
        } else {
            self.warnings.push(what);
        }
    }

    /// Stages that do not run, and why.
    pub fn skip(&mut self, stages: &[Stage], why: &str) {
        for stage in stages {
            self.skipped.insert(*stage, why.to_owned());
        }
    }

    /// What a stage counted.
    pub fn detail(&mut self, stage: Stage, pairs: &[(&str, u64)]) {
        self.details.insert(stage, counts(pairs));
    }

    /// Whether something is wrong that no later version explains.
    #[must_use]
    pub fn failed(&self) -> bool {
        !self.first.is_empty()
    }

    /// Whether something is wrong with what a stage looks at.
    #[must_use]
    pub fn failed_at(&self, stage: Stage) -> bool {
        self.first.contains_key(&stage)
    }

    /// Whether a later version wrote something of the pack.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        !self.newer.is_empty()
    }

    /// Whether a later version wrote this file of it, or lines of it.
    #[must_use]
    pub fn wrote_later(&self, file: &str) -> bool {
        self.newer.iter().any(|f| f.file.as_deref() == Some(file))
    }

    /// Whether a stage judges nothing that a later version wrote. Its findings then count: a forgery cannot hide behind
    /// the version of another document.
    fn stands(&self, stage: Stage) -> bool {
        let known = |files: &[&str]| !files.iter().any(|file| self.wrote_later(file));
        match stage {
            Stage::ValidateReceipts => known(&[MANIFEST, RECEIPTS]),
            Stage::VerifyChain => known(&[MANIFEST, AUDIT_LOG]),
            Stage::MatchReceiptsToChain => known(&[MANIFEST, RECEIPTS, AUDIT_LOG]),
            Stage::VerifyCheckpoints => known(&[MANIFEST, AUDIT_LOG, CHECKPOINTS]),
            Stage::SessionCompleteness => known(&[MANIFEST]),
            _ => true,
        }
    }

    /// Lets go of what cannot be judged, and says why.
    pub fn settle(&mut self) {
        if !self.is_newer() {
            return;
        }
        let names: BTreeSet<&str> = self.newer.iter().filter_map(|f| f.file.as_deref()).collect();
        let why = format!("not checked: a later version wrote {}", Vec::from_iter(names).join(", "));
        let lost: Vec<Stage> = Stage::ALL.into_iter().filter(|stage| !self.stands(*stage)).collect();
        self.findings.retain(|f| !lost.contains(&f.stage));
        self.first.retain(|stage, _| !lost.contains(stage));
        for stage in lost.into_iter().chain([Stage::SessionCompleteness]) {
            self.details.remove(&stage);
            self.skipped.insert(stage, why.clone());
        }
    }

    /// How a stage ended; `unmet` is a demand of its own that is not met.
    #[must_use]
    pub fn stage(&self, stage: Stage, unmet: Option<String>) -> StageReport {
        let detail = self.details.get(&stage).cloned().unwrap_or_default();
        let newer = self.newer.iter().find(|f| f.stage == stage);
        let (status, code, reason) = if let Some((code, message)) = self.first.get(&stage) {
            (StageStatus::Fail, Some(*code), Some(message.clone()))
        } else if let Some(newer) = newer {
            (StageStatus::Skipped, Some(newer.code), Some(newer.message.clone()))
        } else if let Some(why) = self.skipped.get(&stage) {
            (StageStatus::Skipped, None, Some(why.clone()))
        } else if unmet.is_some() {
            (StageStatus::Fail, None, unmet)
        } else {
            (StageStatus::Ok, None, None)
        };
        StageReport { stage, status, code, reason, detail }
    }

    /// Whether something unlisted that is not accepted is in the pack.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.extra && self.options.strict
    }

    /// All findings, in the order of their stages.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        let mut findings = std::mem::take(&mut self.findings);
        findings.append(&mut self.newer);
        findings.sort_by_key(|f| f.stage);
        findings
    }
}

/// Texts of a pack may be as long as a line; a report is not.
fn clip(text: &mut String) {
    if text.len() > MAX_TEXT {
        let end = text.floor_char_boundary(MAX_TEXT);
        text.truncate(end);
        text.push('…');
        text.shrink_to_fit();
    }
}
