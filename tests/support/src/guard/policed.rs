//! A judge that says what a policy says.

use assay::{
    guard::Judge,
    model::PolicyVerdict,
    policy::{Arguments, Call, Evaluator, Verdict},
    record::judgement::{Ruled, Subject},
};
use std::time::Duration;

pub struct Policed(pub Evaluator);

impl Judge for Policed {
    fn judge(&mut self, subject: Subject<'_>, _: u64) -> (Ruled, String) {
        let arguments = subject.arguments.map_or(Arguments::Absent, Arguments::Raw);
        let ruling = self.0.decide(&Call { tool: subject.tool, arguments }, Duration::ZERO);
        let verdict = if ruling.verdict == Verdict::Allowed { PolicyVerdict::Allowed } else { PolicyVerdict::Denied };
        let ruled = Ruled {
            index: None,
            verdict,
            reason: ruling.reason.as_str().into(),
            rule: Some(ruling.rule),
            unseen: Vec::new(),
        };
        (ruled, ruling.message)
    }

    fn begin(&mut self) -> String {
        self.0.policy().hash().to_owned()
    }
}
