//! Judging calls.

use super::{
    Policy,
    constraints::{hosts, metered_regex::Visits, paths, patterns, schema, walk::WalkError},
    model::{Constraint, Default},
    names::{Unusable, fold},
};
use crate::{
    model::{CallAnomaly, PolicyReason as Reason},
    text::{counted, either},
};
use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

/// Tool names whose rules, and whose calls, are remembered one by one.
const MAX_NAMES: usize = 16_384;
/// Bytes of a tool's name that globs are matched against.
pub(super) const MAX_TOOL: usize = 64 << 10;

/// What a policy needs to know about the machine that it is applied on.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The server's working directory, absolute.
    pub cwd: PathBuf,
    /// The home of the server's user.
    pub home: Option<PathBuf>,
    /// Where names are resolved.
    pub dns: Dns,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn here(dns: Dns) -> Self {
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Self { cwd, home: crate::paths::home(), dns }
    }
}

pub use hosts::Dns;

/// A tool call, as the policy judges it.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Name of the tool.
    pub tool: &'a str,
    /// The arguments of the call.
    pub arguments: Arguments<'a>,
}

/// The arguments of a call.
#[derive(Debug, Clone, Copy)]
pub enum Arguments<'a> {
    /// The JSON of `params.arguments`.
    Raw(&'a [u8]),
    /// There are none, which is judged as `{}`.
    Absent,
    /// They were not recorded: rules that need them give [`Verdict::Unknown`].
    NotStored,
}

/// What a policy says of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It may be made.
    Allowed,
    /// It is denied.
    Denied,
    /// Only the arguments would tell, and they were not recorded.
    Unknown,
}

impl Verdict {
    /// The verdict in lower case: `allowed`, `denied` or `unknown`.
    #[cfg(test)]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
        }
    }
}

/// What a policy decides about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What the policy says about the call.
    pub verdict: Verdict,
    /// Why, as a machine-readable code.
    pub reason: Reason,
    /// The rule in the file: `denylist[2] (db.*)`, `constraints.read_file.allowed_paths`, `default`.
    pub rule: String,
    /// The reason, as text for people. Of the arguments it has no more than the host or path in question.
    pub message: String,
    /// What could not be seen at the time: `redirects_not_seen`, `dns_after_check`, `names_not_resolved`,
    /// `symlink_after_check`.
    pub unseen: Vec<CallAnomaly>,
}

/// Names among the arguments of a call on which its verdict depends.
pub struct UnresolvedNames(hosts::Names);

/// What came of the names.
pub struct Hosts(hosts::Found);

impl UnresolvedNames {
    /// Resolves them; blocks for that, but no longer than [`hosts::PATIENCE`].
    #[must_use]
    pub fn resolve(self) -> Hosts {
        Hosts(self.0.resolve(hosts::PATIENCE))
    }
}

/// Applies a policy to the calls of one session.
#[derive(Debug)]
pub struct Evaluator {
    policy: Arc<Policy>,
    around: Arc<Surroundings>,
    /// What the lists say of a name.
    known: HashMap<Box<str>, Arc<Listed>>,
    counts: Counts,
}

/// What the lists say of a tool, whatever its arguments are.
#[derive(Debug, Default)]
struct Listed {
    deny: Option<u32>,
    resembles: Option<String>,
    constraints: Vec<u32>,
    /// The rule as it is named.
    allow: Option<String>,
    unusable: bool,
}

/// Number of calls that were allowed, and of those for which it is not known.
#[derive(Debug, Clone, Copy, core::default::Default)]
struct Count {
    allowed: u64,
    unknown: u64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.unknown += other.unknown;
    }

    /// Whether one more call is within `max`: `None` when it depends on what is not known.
    fn within(self, max: u64) -> Option<bool> {
        if self.allowed >= max {
            Some(false)
        } else if self.allowed + self.unknown >= max {
            None
        } else {
            Some(true)
        }
    }
}

#[derive(Debug, core::default::Default)]
struct Counts {
    total: Count,
    by_tool: HashMap<Box<str>, Count>,
    /// Of tools beyond [`MAX_NAMES`]; after a reload these count against every constraint.
    others: Count,
    /// By number of the constraint.
    by_constraint: Vec<Count>,
}

impl Evaluator {
    /// For a session that begins.
    #[must_use]
    pub fn new(policy: Arc<Policy>, around: Arc<Surroundings>) -> Self {
        let mut new = Self { policy, around, known: HashMap::new(), counts: Counts::default() };
        new.count_constraints();
        new
    }

    /// Judges by another policy from now on; what was counted stays counted.
    pub fn reload(&mut self, policy: Arc<Policy>) {
        self.policy = policy;
        self.known.clear();
        self.count_constraints();
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    fn count_constraints(&mut self) {
        let rules = &self.policy.rules;
        let mut by_constraint = vec![self.counts.others; rules.constraints.len()];
        for (tool, count) in &self.counts.by_tool {
            // What cannot be compiled denies every call anyway.
            for n in rules.constrained.all(tool).unwrap_or_default() {
                by_constraint[n as usize].add(*count);
            }
        }
        self.counts.by_constraint = by_constraint;
    }

    /// Whether the policy has a rule for this name: one that has the name itself, or one that restricts it by a pattern.
    pub fn names(&mut self, tool: &str) -> bool {
        let listed = self.listed(tool);
        let Listed { deny, resembles, constraints, unusable, .. } = &*listed;
        let is_restricted = deny.is_some() || resembles.is_some() || !constraints.is_empty() || *unusable;
        is_restricted || self.policy.rules.allow.names(tool)
    }

    /// Judges a call `elapsed` after the session began, and counts it when it is allowed.
    ///
    /// Never panics, and blocks no longer than names may take to resolve ([`hosts::PATIENCE`]).
    pub fn decide(&mut self, call: &Call<'_>, elapsed: Duration) -> Decision {
        let mut hosts = None;
        loop {
            match self.decide_unless_names(call, elapsed, hosts.as_ref()) {
                Ok(decision) => return decision,
                Err(names) => hosts = Some(names.resolve()),
            }
        }
    }

    /// The same without waiting for names: if the verdict depends on them, nothing is counted yet. Who resolved them asks
    /// again, with what came of it; meanwhile other calls can be judged.
    ///
    /// # Errors
    /// The names. Never, if `hosts` is given.
    pub fn decide_unless_names(
        &mut self,
        call: &Call<'_>,
        elapsed: Duration,
        hosts: Option<&Hosts>,
    ) -> Result<Decision, UnresolvedNames> {
        let policy = Arc::clone(&self.policy);
        let listed = self.listed(call.tool);
        let mut judge = Judge {
            policy: &policy,
            around: &self.around,
            counts: &self.counts,
            hosts,
            unresolved: None,
            unseen: Vec::new(),
        };
        let mut decision = judge.judge(call, &listed, elapsed);
        if let Some(names) = judge.unresolved {
            return Err(UnresolvedNames(names));
        }
        decision.unseen = judge.unseen;
        decision.unseen.sort_unstable_by_key(|word| word.as_str());
        decision.unseen.dedup();
        match decision.verdict {
            Verdict::Allowed => self.count(call.tool, &listed, Count { allowed: 1, unknown: 0 }),
            Verdict::Unknown => self.count(call.tool, &listed, Count { allowed: 0, unknown: 1 }),
            Verdict::Denied => {}
        }
        Ok(decision)
    }

    fn count(&mut self, tool: &str, listed: &Listed, one: Count) {
        self.counts.total.add(one);
        for n in &listed.constraints {
            self.counts.by_constraint[*n as usize].add(one);
        }
        if let Some(count) = self.counts.by_tool.get_mut(tool) {
            count.add(one);
        } else if self.counts.by_tool.len() < MAX_NAMES {
            self.counts.by_tool.insert(tool.into(), one);
        } else {
            self.counts.others.add(one);
        }
    }

    fn listed(&mut self, tool: &str) -> Arc<Listed> {
        if tool.len() > MAX_TOOL {
            return Arc::default();
        }
        if let Some(listed) = self.known.get(tool) {
            return Arc::clone(listed);
        }
        let listed = Arc::new(list(&self.policy, tool).unwrap_or(Listed { unusable: true, ..Listed::default() }));
        if self.known.len() == MAX_NAMES {
            self.known.clear();
        }
        // A name of a megabyte is not a tool's.
        if tool.len() <= 1024 {
            self.known.insert(tool.into(), Arc::clone(&listed));
        }
        listed
    }
}

fn list(policy: &Policy, tool: &str) -> Result<Listed, Unusable> {
    let rules = &policy.rules;
    let deny = rules.deny.first(tool)?;
    let constraints = rules.constrained.all(tool)?;
    let allow = rules.allow.first(tool)?.map(|n| format!("{}[{n}] ({})", rules.words().allow, rules.allow.text(n)));
    // Who writes a name out means it.
    let meant = deny.is_some() || rules.allow.names(tool) || rules.constrained.names(tool);
    let mut resembles = None;
    if !meant {
        let folded = fold(tool);
        if let Some(n) = rules.deny.resembles(&folded)? {
            resembles = Some(format!("{}[{n}] ({})", rules.words().deny, rules.deny.text(n)));
        } else if let Some(n) = rules.constrained.resembles(&folded)?.filter(|n| !constraints.contains(n)) {
            resembles = Some(format!("{}.{}", rules.words().constraints, rules.constrained.text(n)));
        }
    }
    Ok(Listed { deny, resembles, constraints, allow, unusable: false })
}

/// A call that is being judged.
struct Judge<'a> {
    policy: &'a Policy,
    around: &'a Surroundings,
    counts: &'a Counts,
    /// What came of the names among the arguments, if that is known.
    hosts: Option<&'a Hosts>,
    /// Names on which the verdict depends.
    unresolved: Option<hosts::Names>,
    unseen: Vec<CallAnomaly>,
}

fn denied(reason: Reason, rule: String, message: String) -> Decision {
    Decision { verdict: Verdict::Denied, reason, rule, message, unseen: Vec::new() }
}

impl Judge<'_> {
    fn judge(&mut self, call: &Call<'_>, listed: &Listed, elapsed: Duration) -> Decision {
        let rules = &self.policy.rules;
        let words = rules.words();
        let tool = || shown(call.tool);
        if listed.unusable {
            let message = "a rule for tool names is too big to apply".to_owned();
            return denied(Reason::RuleUnusable, "policy".to_owned(), message);
        }
        if call.tool.len() > MAX_TOOL {
            let message = format!("a tool name of more than {} KiB", MAX_TOOL >> 10);
            return denied(Reason::ArgumentsTooCostly, "policy".to_owned(), message);
        }
        if let Some(n) = listed.deny {
            let rule = format!("{}[{n}] ({})", words.deny, rules.deny.text(n));
            return denied(Reason::Denylist, rule, format!("the tool {} is on the denylist", tool()));
        }
        if let Some(rule) = &listed.resembles {
            let message = format!("the tool name {} could be mistaken for one that this rule names", tool());
            return denied(Reason::Lookalike, rule.clone(), message);
        }
        let mut unknown = None;
        for n in &listed.constraints {
            let Some(constraint) = rules.constraints.get(*n as usize) else { continue };
            match self.constraint(*n as usize, constraint, call) {
                None => {}
                Some(decision) if decision.verdict == Verdict::Unknown => unknown = unknown.or(Some(decision)),
                Some(decision) => return decision,
            }
        }
        let allowed = if let Some(rule) = &listed.allow {
            (Reason::Allowlist, rule.clone(), "the tool is on the allowlist".to_owned())
        } else if rules.default == Default::Deny {
            let message = format!("the tool {} is not on the allowlist", tool());
            return denied(Reason::NotInAllowlist, words.default.to_owned(), message);
        } else {
            (Reason::Default, words.default.to_owned(), "the default allows every tool that no rule denies".to_owned())
        };
        match self.budget(elapsed) {
            Some(decision) if decision.verdict == Verdict::Denied => return decision,
            Some(decision) => unknown = unknown.or(Some(decision)),
            None => {}
        }
        let (reason, rule, message) = allowed;
        unknown.unwrap_or(Decision { verdict: Verdict::Allowed, reason, rule, message, unseen: Vec::new() })
    }

    fn budget(&self, elapsed: Duration) -> Option<Decision> {
        let budget = self.policy.rules.budget;
        if let Some(max) = budget.max_wall_time.filter(|max| elapsed > *max) {
            let message = format!("the session has run for more than {} s", max.as_secs());
            return Some(denied(Reason::BudgetTime, "budget.max_wall_time_sec".to_owned(), message));
        }
        let max = budget.max_tool_calls?;
        let message = format!("the session has used up its {}", counted(max, "tool call"));
        limit(self.counts.total.within(max), Reason::BudgetCalls, "budget.max_tool_calls".to_owned(), message)
    }

    fn constraint(&mut self, n: usize, c: &Constraint, call: &Call<'_>) -> Option<Decision> {
        let at = |key: &str| format!("{}.{}.{key}", self.policy.rules.words().constraints, c.key);
        let mut unknown = None;
        if let Some(max) = c.max_calls {
            let count = self.counts.by_constraint.get(n).copied().unwrap_or_default();
            let message = format!(
                "{} may have {}, and {} used up",
                shown(&c.key),
                counted(max, "call"),
                either(max, "it is", "they are")
            );
            match limit(count.within(max), Reason::MaxCalls, at("max_calls"), message) {
                Some(decision) if decision.verdict == Verdict::Denied => return Some(decision),
                decision => unknown = decision,
            }
        }
        let key = c.needs_arguments()?;
        let json = match call.arguments {
            Arguments::Raw(json) => json,
            Arguments::Absent => b"{}",
            Arguments::NotStored => {
                let decision = Decision {
                    verdict: Verdict::Unknown,
                    reason: Reason::ArgumentsNotStored,
                    rule: at(key),
                    message: "the arguments were not recorded".to_owned(),
                    unseen: Vec::new(),
                };
                return unknown.or(Some(decision));
            }
        };
        self.arguments(c, json, &at).unwrap_or_else(|wrong| Some(wrong.decision(at(key)))).or(unknown)
    }

    fn arguments(
        &mut self,
        c: &Constraint,
        json: &[u8],
        at: &dyn Fn(&str) -> String,
    ) -> Result<Option<Decision>, Wrong> {
        if let Some(schema) = &c.schema {
            if json.len() > schema::MAX_ARGUMENTS {
                return Err(Wrong::TooCostly);
            }
            let value = serde_json::from_slice(json).map_err(|_| Wrong::Unreadable)?;
            match schema.check(&value, json.len())? {
                schema::Validity::Satisfied => {}
                schema::Validity::TooCostly => return Err(Wrong::TooCostly),
                schema::Validity::Fails(keyword) => {
                    let at_keyword = keyword.map_or_else(String::new, |k| format!(", at {}", shown(&k)));
                    let message = format!("the arguments do not satisfy the schema{at_keyword}");
                    return Ok(Some(denied(Reason::Arguments, at("arguments"), message)));
                }
            }
        }
        if let Some(patterns) = &c.patterns {
            match patterns.find(patterns.compile()?, json, &mut Visits::of(json.len()))? {
                patterns::Found::Nothing => {}
                patterns::Found::TooCostly => return Err(Wrong::TooCostly),
                patterns::Found::Pattern(n) => {
                    let rule = format!("{}[{n}]", at("deny_patterns"));
                    let message = "a string in the arguments matches a pattern that is denied".to_owned();
                    return Ok(Some(denied(Reason::DenyPatterns, rule, message)));
                }
            }
        }
        if let Some(rules) = &c.paths {
            let place = paths::Place { cwd: &self.around.cwd, home: self.around.home.as_deref() };
            match rules.check(json, place)? {
                paths::Found::Nothing => {}
                paths::Found::Allowed => self.unseen.push(CallAnomaly::SymlinkAfterCheck),
                paths::Found::Denied(d) => {
                    return Ok(Some(denied(Reason::AllowedPaths, at("allowed_paths"), d.message)));
                }
            }
        }
        if c.hosts {
            match self.hosts(json)? {
                hosts::Found::Nothing => {}
                hosts::Found::Public { resolved, unresolved } => {
                    self.unseen.push(CallAnomaly::RedirectsNotSeen);
                    self.unseen.extend(resolved.then_some(CallAnomaly::DnsAfterCheck));
                    self.unseen.extend(unresolved.then_some(CallAnomaly::NamesNotResolved));
                }
                hosts::Found::Denied(message) => {
                    return Ok(Some(denied(Reason::DenyPrivateHosts, at("deny_private_hosts"), message)));
                }
                hosts::Found::Unresolved(message) => {
                    return Ok(Some(denied(Reason::HostUnresolved, at("deny_private_hosts"), message)));
                }
            }
        }
        Ok(None)
    }

    fn hosts(&mut self, json: &[u8]) -> Result<hosts::Found, Wrong> {
        if let Some(Hosts(found)) = self.hosts {
            return Ok(found.clone());
        }
        match hosts::look(json, &self.around.dns)? {
            hosts::Look::Done(found) => Ok(found),
            hosts::Look::Names(names) => {
                self.unresolved = Some(names);
                Err(Wrong::NotYetKnown)
            }
        }
    }
}

/// A constraint that cannot be judged, which denies.
enum Wrong {
    /// Names have to be resolved first; this is no verdict.
    NotYetKnown,
    Unreadable,
    TooCostly,
    Unusable,
}

impl From<WalkError> for Wrong {
    fn from(_: WalkError) -> Self {
        Self::Unreadable
    }
}

impl From<Unusable> for Wrong {
    fn from(_: Unusable) -> Self {
        Self::Unusable
    }
}

impl Wrong {
    fn decision(self, rule: String) -> Decision {
        match self {
            Self::Unreadable => {
                let message = "the arguments are not JSON that can be read unambiguously".to_owned();
                denied(Reason::ArgumentsUnreadable, rule, message)
            }
            Self::TooCostly => {
                let message = "the arguments are too long or too complex for this rule".to_owned();
                denied(Reason::ArgumentsTooCostly, rule, message)
            }
            Self::NotYetKnown => denied(Reason::HostUnresolved, rule, "the names are not resolved yet".to_owned()),
            Self::Unusable => denied(Reason::RuleUnusable, rule, "the rule is too big to apply".to_owned()),
        }
    }
}

fn limit(within: Option<bool>, reason: Reason, rule: String, message: String) -> Option<Decision> {
    match within {
        Some(true) => None,
        Some(false) => Some(denied(reason, rule, message)),
        None => Some(Decision {
            verdict: Verdict::Unknown,
            reason,
            rule,
            message: "whether earlier calls count depends on arguments that were not recorded".to_owned(),
            unseen: Vec::new(),
        }),
    }
}

/// A name as a message may quote it.
fn shown(text: &str) -> String {
    crate::text::fit(&crate::text::visible(text), 100).into_owned()
}
