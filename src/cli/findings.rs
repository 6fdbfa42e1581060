//! What a command of several checks found, for the services that run it: JUnit XML and SARIF 2.1.0.

use super::{out, sarif};
use crate::{
    error::Failure,
    pack::{
        diff::Document,
        verify::{
            Finding, SignerVerdict, StageStatus, VerifyReport,
            request::{OutError, check_out},
        },
    },
    text::visible,
};
use clap::Args;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Where reports for services are written.
#[derive(Debug, Clone, Default, Args)]
pub struct Reports {
    /// Also write a JUnit report to a new file
    #[arg(long, value_name = "FILE.xml")]
    junit: Option<PathBuf>,
    /// Also write what is wrong as SARIF 2.1.0 to a new file
    #[arg(long, value_name = "FILE.sarif")]
    sarif: Option<PathBuf>,
}

/// How one check ended.
enum End {
    Passed,
    /// With what is wrong, one thing a line.
    Failed(String),
    /// With why it was not done.
    Skipped(String),
}

/// One check, by its group and name.
struct Case {
    group: Cow<'static, str>,
    name: String,
    end: End,
}

/// Something wrong, with the file that it is in.
struct Wrong {
    rule: String,
    text: String,
    place: Option<(PathBuf, u64)>,
}

/// All checks of one pack, or of one comparison.
pub struct Suite {
    name: String,
    cases: Vec<Case>,
    wrong: Vec<Wrong>,
}

impl Reports {
    /// Whether any is wanted.
    pub const fn are_wanted(&self) -> bool {
        self.junit.is_some() || self.sarif.is_some()
    }

    /// Says before the work is done whether the files can be written.
    ///
    /// # Errors
    /// A file that exists, or a place inside the pack.
    pub fn check(&self, pack: &Path) -> Result<(), OutError> {
        for (flag, file) in [("--junit", &self.junit), ("--sarif", &self.sarif)] {
            if let Some(file) = file {
                check_out(flag, file, pack)?;
            }
        }
        Ok(())
    }

    /// Writes those that are wanted.
    ///
    /// # Errors
    /// A file that exists, or what the system says.
    pub fn write(&self, command: &str, suites: &[Suite]) -> Result<(), Failure> {
        if let Some(file) = &self.junit {
            out::new_file(file, junit(command, suites)?.as_bytes())?;
        }
        if let Some(file) = &self.sarif {
            out::new_file(file, sarif(command, suites).as_bytes())?;
        }
        Ok(())
    }
}

impl Suite {
    fn new(name: String) -> Self {
        Self { name, cases: Vec::new(), wrong: Vec::new() }
    }

    /// A verification: a case for each stage, each claim and each demand that is not met.
    pub fn of_verification(shown: &Path, report: &VerifyReport) -> Self {
        let mut suite = Self::new(shown.display().to_string());
        for stage in &report.stages {
            let found = report.errors.iter().filter(|e| e.stage == stage.stage).map(in_words).collect::<Vec<_>>();
            let why = || stage.reason.clone().unwrap_or_default();
            let end = match stage.status {
                StageStatus::Ok => End::Passed,
                StageStatus::Skipped => End::Skipped(why()),
                StageStatus::Fail if found.is_empty() => End::Failed(why()),
                StageStatus::Fail => End::Failed(found.join("\n")),
            };
            match end {
                // Only what has no finding is wrong by itself.
                End::Failed(_) if found.is_empty() => suite.decide("stage", stage.stage.as_str(), end),
                _ => suite.case("stage", stage.stage.as_str(), end),
            }
        }
        for finding in &report.errors {
            let place = finding.file.as_ref().map(|file| (shown.join(file), finding.line.unwrap_or(1)));
            suite.wrong.push(Wrong { rule: finding.code.to_owned(), text: finding.message.clone(), place });
        }
        for claim in report.claim_results.iter().flat_map(|all| &all.results) {
            let failed = format!("expected {}, found {}", claim.expected, claim.actual);
            let end = match (claim.passed, report.unmet.is_empty()) {
                (true, _) => End::Passed,
                // Nobody demanded that it holds.
                (false, true) => End::Skipped(failed),
                (false, false) => End::Failed(failed),
            };
            suite.decide(claim.card_id, claim.claim_id, end);
        }
        for demand in &report.unmet {
            suite.decide("demand", demand, End::Failed(demand.clone()));
        }
        suite
    }

    /// A run: how its command ended, and whether anything was recorded; each with what is wrong, if something is.
    pub fn of_run(command: &str, ended: Option<String>, recorded: Option<String>) -> Self {
        let mut suite = Self::new(command.to_owned());
        for (name, wrong) in [("command", ended), ("recorded", recorded)] {
            suite.decide("run", name, wrong.map_or(End::Passed, End::Failed));
        }
        suite
    }

    /// A verification that came to no verdict.
    pub fn of_error(shown: &Path, error: &str) -> Self {
        let mut suite = Self::new(shown.display().to_string());
        suite.decide("pack", "no_verdict", End::Failed(error.to_owned()));
        suite
    }

    /// A comparison: a case for each side, each gate and each regression.
    pub fn of_comparison(document: &Document) -> Self {
        let mut suite = Self::new(format!("{} and {}", document.a.path, document.b.path));
        for (name, side) in [("A", &document.a), ("B", &document.b)] {
            let signer = (side.signer.verdict == SignerVerdict::Untrusted)
                .then(|| "the signing key is not one of the pinned keys".to_owned());
            let found: Vec<String> = side.errors.iter().map(in_words).chain(signer).collect();
            let end = if found.is_empty() { End::Passed } else { End::Failed(found.join("\n")) };
            for finding in &side.errors {
                let place = finding.file.as_ref().map(|f| (Path::new(&side.path).join(f), finding.line.unwrap_or(1)));
                suite.wrong.push(Wrong { rule: finding.code.to_owned(), text: finding.message.clone(), place });
            }
            suite.case("verified", name, end);
        }
        for gate in document.gates.iter().flat_map(|gates| &gates.results) {
            let note = gate.note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
            let failed = || format!("limit {}, found {}{note}", gate.limit, gate.actual);
            suite.decide("gate", gate.gate, if gate.passed { End::Passed } else { End::Failed(failed()) });
        }
        for worse in &document.regressions {
            let end = match worse.judged_by {
                Some(gate) => End::Skipped(format!("{} (decided by {gate})", worse.what)),
                None => End::Failed(worse.what.clone()),
            };
            suite.decide("regression", worse.kind, end);
        }
        suite
    }

    /// Checks of a group by name, each with what is wrong, if something is.
    pub fn of_checks(name: String, group: &str, checks: BTreeMap<String, Option<String>>) -> Self {
        let mut suite = Self::new(name);
        for (name, wrong) in checks {
            let end = wrong.map_or(End::Passed, End::Failed);
            suite.cases.push(Case { group: group.to_owned().into(), name, end });
        }
        suite
    }

    fn case(&mut self, group: &'static str, name: &str, end: End) {
        self.cases.push(Case { group: group.into(), name: name.to_owned(), end });
    }

    /// A case whose failure is itself what is wrong.
    fn decide(&mut self, group: &'static str, name: &str, end: End) {
        if let End::Failed(text) = &end {
            let rule = if group == "demand" { group } else { name };
            self.wrong.push(Wrong { rule: rule.to_owned(), text: text.clone(), place: None });
        }
        self.case(group, name, end);
    }
}

fn in_words(finding: &Finding) -> String {
    let file = finding.file.as_deref().map(|file| format!("{file}: ")).unwrap_or_default();
    let line = finding.line.map(|line| format!("line {line}: ")).unwrap_or_default();
    format!("{}: {file}{line}{}", finding.code, finding.message)
}

/// The JUnit report of a command.
///
/// # Errors
/// None is known; the writer could have some.
pub fn junit(command: &str, suites: &[Suite]) -> Result<String, Failure> {
    let mut report = Report::new(command);
    for suite in suites {
        let mut all = TestSuite::new(visible(&suite.name));
        for case in &suite.cases {
            let status = match &case.end {
                End::Passed => TestCaseStatus::success(),
                End::Skipped(why) => {
                    let mut status = TestCaseStatus::skipped();
                    status.set_message(visible(why));
                    status
                }
                End::Failed(what) => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                    status.set_message(visible(what.lines().next().unwrap_or_default()));
                    status.set_description(out::visible_lines(what));
                    status
                }
            };
            let mut one = TestCase::new(visible(&case.name), status);
            one.set_classname(visible(&case.group));
            all.add_test_case(one);
        }
        report.add_test_suite(all);
    }
    report.to_string().map_err(Failure::failed)
}

fn sarif(command: &str, suites: &[Suite]) -> String {
    let mut rules: BTreeMap<&str, String> = BTreeMap::new();
    let mut results: Vec<Value> = Vec::new();
    for suite in suites {
        for wrong in &suite.wrong {
            rules.entry(&wrong.rule).or_insert_with(|| wrong.rule.replace('_', " "));
            let text = format!("{}: {}", visible(&suite.name), visible(&wrong.text));
            let mut result = json!({"ruleId": wrong.rule, "level": "error", "message": {"text": text}});
            if let Some((file, line)) = &wrong.place {
                result["locations"] = sarif::place(file, usize::try_from(*line).unwrap_or(1), 1);
            }
            results.push(result);
        }
    }
    sarif::log(command, rules.iter().map(|(id, text)| (*id, &**text)), &results)
}
