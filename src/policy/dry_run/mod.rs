//! What a policy would have done to calls that were recorded.
//!
//! A [`Run`] is fed sessions and their calls, from packs, journals or anywhere else, and has a [`DryRunReport`] at any
//! time. [`run`] feeds one from [`Source`]s. Where arguments were not stored, rules for tools decide and rules for
//! arguments say unknown; nothing is guessed.

mod report;
mod source;

pub use report::{Counted, DryRunReport, Example, RuleRow, SCHEMA, ToolRow};
pub use source::{Source, SourceError, sources};

use super::{Arguments, Call, Decision, Evaluator, Policy, Reason, Surroundings, Verdict, names::NameSet};
use crate::model::WallTime;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};

/// Examples that are kept of each rule.
const EXAMPLES: usize = 3;
/// Tools, and rules, that are counted by name; the rest together.
const MAX_ROWS: usize = 10_000;
/// The row of the rest.
const REST: &str = "(others)";
/// Problems that are kept.
const MAX_PROBLEMS: usize = 1000;

/// A call as it was recorded.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// Name of the tool.
    pub tool: &'a str,
    /// Whether `tool` is all of the name as it was sent.
    pub verbatim: bool,
    /// Its arguments, as far as they were stored.
    pub arguments: Arguments<'a>,
    /// Whether the policy of then denied it, enforced or not.
    pub denied: bool,
    /// Its receipt, for the examples.
    pub receipt_id: &'a str,
    /// When the request was seen.
    pub at: Option<WallTime>,
}

/// What recorded sessions are read into.
pub trait Visit {
    /// A session begins; `false` when its calls are not wanted.
    fn session(&mut self, id: &str, started: Option<WallTime>) -> bool;
    /// The session's beginning, as it says itself.
    fn started(&mut self, at: WallTime);
    /// A call of the session.
    fn call(&mut self, call: &Recorded<'_>);
    /// Something could not be read.
    fn problem(&mut self, what: String);
}

impl Visit for Run {
    fn session(&mut self, id: &str, started: Option<WallTime>) -> bool {
        self.begin(id, started)
    }

    fn started(&mut self, at: WallTime) {
        self.started = Some(at);
    }

    fn call(&mut self, call: &Recorded<'_>) {
        self.judge(call);
    }

    fn problem(&mut self, what: String) {
        if self.report.problems.len() < MAX_PROBLEMS {
            self.report.problems.push(what);
        }
    }
}

/// What a policy does to recorded calls, call by call.
pub struct Run {
    policy: Arc<Policy>,
    around: Arc<Surroundings>,
    evaluator: Evaluator,
    session: String,
    started: Option<WallTime>,
    report: DryRunReport,
    tools: BTreeMap<String, ToolRow>,
    rules: BTreeMap<(String, Reason), RuleRow>,
    seen: BTreeSet<String>,
    /// Entries of denylist, allowlist and constraints that name a tool that was called.
    named: [BTreeSet<u32>; 3],
}

impl Run {
    /// A run that has judged nothing yet.
    #[must_use]
    pub fn new(policy: Arc<Policy>, around: Arc<Surroundings>) -> Self {
        let report = DryRunReport::new(&policy);
        Self {
            evaluator: Evaluator::new(Arc::clone(&policy), Arc::clone(&around)),
            policy,
            around,
            session: String::new(),
            started: None,
            report,
            tools: BTreeMap::new(),
            rules: BTreeMap::new(),
            seen: BTreeSet::new(),
            named: Default::default(),
        }
    }

    /// A session begins: budgets count from zero. `false` when this session was fed already and is to be left out.
    pub fn begin(&mut self, id: &str, started: Option<WallTime>) -> bool {
        if !self.seen.insert(id.to_owned()) {
            self.report.sessions_twice += 1;
            return false;
        }
        id.clone_into(&mut self.session);
        self.started = started;
        self.evaluator = Evaluator::new(Arc::clone(&self.policy), Arc::clone(&self.around));
        self.report.sessions += 1;
        true
    }

    /// Judges a call of the session.
    pub fn judge(&mut self, call: &Recorded<'_>) -> Decision {
        self.started = self.started.or(call.at);
        let elapsed = match (self.started, call.at) {
            (Some(start), Some(at)) => {
                Duration::from_millis(u64::try_from(at.millis() - start.millis()).unwrap_or_default())
            }
            _ => Duration::ZERO,
        };
        let decision = if call.verbatim {
            self.evaluator.decide(&Call { tool: call.tool, arguments: call.arguments }, elapsed)
        } else {
            Decision {
                verdict: Verdict::Unknown,
                reason: Reason::ArgumentsNotStored,
                rule: "tool name".to_owned(),
                message: "the tool name was not recorded as it was sent".to_owned(),
                unseen: Vec::new(),
            }
        };
        self.count(call, &decision);
        decision
    }

    fn count(&mut self, call: &Recorded<'_>, decision: &Decision) {
        let one = Counted::of(decision.verdict, call.denied);
        self.report.total.add(one);
        self.report.judged_by_hash += u64::from(matches!(call.arguments, Arguments::NotStored));
        if call.verbatim && !self.tools.contains_key(call.tool) {
            for (named, (set, _)) in self.named.iter_mut().zip(sets(&self.policy)) {
                named.extend(set.all(call.tool).unwrap_or_default());
            }
        }
        let full = self.tools.len() >= MAX_ROWS && !self.tools.contains_key(call.tool);
        let tool = if full { REST } else { call.tool };
        if !self.tools.contains_key(tool) {
            self.tools.insert(tool.to_owned(), ToolRow::new(tool));
        }
        if let Some(row) = self.tools.get_mut(tool) {
            row.counts.add(one);
        }
        let key = (decision.rule.clone(), decision.reason);
        let full = self.rules.len() >= MAX_ROWS && !self.rules.contains_key(&key);
        let key = if full { (REST.to_owned(), decision.reason) } else { key };
        let row = self.rules.entry(key).or_insert_with_key(|(rule, reason)| RuleRow::new(rule, *reason));
        row.counts.add(one);
        // Of what changes the first examples are kept, of the rest none is needed.
        if row.examples.len() < EXAMPLES && (one.newly_denied + one.newly_allowed + one.unknown) > 0 {
            row.examples.push(Example {
                session_id: self.session.clone(),
                receipt_id: call.receipt_id.to_owned(),
                tool: call.tool.to_owned(),
                at: call.at,
                message: decision.message.clone(),
            });
        }
    }

    /// What was found so far; rules and tools that change most come first.
    #[must_use]
    pub fn report(&self) -> DryRunReport {
        let mut report = self.report.clone();
        report.tools = self.tools.values().cloned().collect();
        report.rules = self.rules.values().cloned().collect();
        if report.total.calls > 0 {
            for (named, (set, word)) in self.named.iter().zip(sets(&self.policy)) {
                let missing = set.texts().iter().enumerate().filter(|(n, _)| !named.contains(&(*n as u32)));
                report.unmatched.extend(missing.map(|(n, text)| match word {
                    "constraints" | "tools.constraints" => format!("{word}.{text}"),
                    _ => format!("{word}[{n}] ({text})"),
                }));
            }
        }
        report.tools.sort_by_key(|row| std::cmp::Reverse(row.counts.weight()));
        report.rules.sort_by_key(|row| std::cmp::Reverse(row.counts.weight()));
        report
    }
}

/// The sets of names of a policy, and how the file calls them.
fn sets(policy: &Policy) -> [(&NameSet, &'static str); 3] {
    let (rules, words) = (policy.rules(), policy.rules().words());
    [(&rules.deny, words.deny), (&rules.allow, words.allow), (&rules.constrained, words.constraints)]
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DryRunProgress {
    /// Bytes of receipts read.
    pub done_bytes: u64,
    /// Bytes of receipts to read in all.
    pub total_bytes: u64,
}

/// Judges everything in `sources`. `progress` is called every few MiB with the run, whose [`Run::report`] then says
/// what was found so far; when it breaks, the run ends and `None` is returned.
pub fn run(
    policy: Arc<Policy>,
    around: Arc<Surroundings>,
    sources: &[Source],
    progress: &mut dyn FnMut(&Run, DryRunProgress) -> ControlFlow<()>,
) -> Option<DryRunReport> {
    let mut run = Run::new(policy, around);
    read(sources, &mut run, progress).is_continue().then(|| run.report())
}

/// Reads everything in `sources` until `progress` breaks.
pub fn read<V: Visit>(
    sources: &[Source],
    into: &mut V,
    progress: &mut dyn FnMut(&V, DryRunProgress) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let total_bytes = sources.iter().map(Source::bytes).sum();
    let mut done_bytes = 0;
    sources.iter().try_for_each(|source| source.read(into, &mut done_bytes, total_bytes, progress))
}
