//! A judge that says what a policy says.

use assay::{
    model::PolicyVerdict,
    policy::{Arguments, Call, Evaluator, Verdict},
    record::judge::{Decision, Judge, Subject},
};
use std::time::Duration;

pub struct Policed(pub Evaluator);

impl Judge for Policed {
    fn judge(&mut self, subject: Subject<'_>, _: u64) -> (Decision, String) {
        let arguments = subject.arguments.map_or(Arguments::Absent, Arguments::Raw);
        let said = self.0.decide(&Call { tool: subject.tool, arguments }, Duration::ZERO);
        let verdict = if said.verdict == Verdict::Allowed { PolicyVerdict::Allowed } else { PolicyVerdict::Denied };
        let decision =
            Decision { index: None, verdict, reason: said.reason.into(), rule: Some(said.rule), unseen: Vec::new() };
        (decision, said.message)
    }

    fn names(&mut self, tool: &str) -> bool {
        self.0.names(tool)
    }

    fn begin(&mut self) -> String {
        self.0.policy().hash().to_owned()
    }
}
