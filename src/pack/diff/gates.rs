//! `assay.gates.yaml`: limits on what may differ between two packs. Nothing in it is ignored: what is not understood is an
//! error with its place.

use super::Comparison;
use crate::{
    files,
    numbers::increase_pct,
    pack::verify::{Completeness, Covered, SignerVerdict, VerifyReport},
    yaml::{Error, Node, Place, Scalar, Source},
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path};

/// Bytes of a gates file that are read.
pub const MAX_GATES: u64 = 1 << 20;

/// The limits. An absent one is not judged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gates {
    /// Tools that only B calls and [`allowed_new_tools`](Self::allowed_new_tools) does not name.
    pub max_new_tools: Option<u64>,
    /// Tools that only A calls.
    pub max_gone_tools: Option<u64>,
    /// Calls in B that the policy rejects, refused or only recorded.
    pub max_denied: Option<u64>,
    /// Failed calls in B.
    pub max_errors: Option<u64>,
    /// Calls without a response in B.
    pub max_timeouts: Option<u64>,
    /// Pairs with another result hash.
    pub max_changed_results: Option<u64>,
    /// By how many percent the 95th percentile of all round trips may grow.
    pub p95_increase_pct: Option<f64>,
    /// The same of the median.
    pub p50_increase_pct: Option<f64>,
    /// Both packs are COMPLETE.
    pub require_complete: Option<bool>,
    /// Both packs are PINNED.
    pub require_pinned: Option<bool>,
    /// In B, the least share of requests of a server's own receipts that have an outcome, percent.
    pub min_escrow_coverage_pct: Option<f64>,
    /// Tools that may be new; alone it means that no other may.
    pub allowed_new_tools: Option<Vec<String>>,
}

const KEYS: [&str; 12] = [
    "max_new_tools",
    "max_gone_tools",
    "max_denied",
    "max_errors",
    "max_timeouts",
    "max_changed_results",
    "p95_increase_pct",
    "p50_increase_pct",
    "require_complete",
    "require_pinned",
    "min_escrow_coverage_pct",
    "allowed_new_tools",
];

fn percentage(source: &Source<'_>, node: &Node, key: &str) -> Result<f64, Error> {
    match node.scalar() {
        Some(Scalar::Int(n)) if n >= 0 => Ok(n as f64),
        Some(Scalar::Float(x)) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err(source.expected(node, key, "a percentage of 0 or more")),
    }
}

/// How one gate was judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateResult {
    /// Its key in the file.
    pub gate: &'static str,
    /// What the file allows.
    pub limit: Value,
    /// The measured value; `null` if there is none.
    pub actual: Value,
    /// Whether this gate holds.
    pub passed: bool,
    /// A remark for people; `None` if there is nothing to add.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The results of all gates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateReport {
    /// Whether all gates hold.
    pub passed: bool,
    /// One by one, in the order of this documentation.
    pub results: Vec<GateResult>,
}

impl Gates {
    /// Reads a file.
    ///
    /// # Errors
    /// One that cannot be read, and what [`parse`](Self::parse) says.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let bytes = files::named(path).and_then(|file| files::read_all(file, MAX_GATES));
        Self::parse(&bytes.map_err(|e| Error::file(path, e.to_string()))?, &path.to_string_lossy())
    }

    /// Reads gates from memory; errors give `name` in place of a path.
    ///
    /// # Errors
    /// What is not understood, at its place.
    pub fn parse(text: &[u8], name: &str) -> Result<Self, Error> {
        let source = Source::of(name, text)?;
        let start = Place { line: 1, column: 1, width: 1 };
        let empty = || source.error(start, "it has no gate");
        let root = source.read()?.ok_or_else(empty)?;
        let mut gates = Self::default();
        for (key, value) in source.mapping(&root, "the file")? {
            let name = key.text().unwrap_or_default();
            let count = || source.count(value, name).map(Some);
            let flag = || source.flag(value, name).map(Some);
            match name {
                "max_new_tools" => gates.max_new_tools = count()?,
                "max_gone_tools" => gates.max_gone_tools = count()?,
                "max_denied" => gates.max_denied = count()?,
                "max_errors" => gates.max_errors = count()?,
                "max_timeouts" => gates.max_timeouts = count()?,
                "max_changed_results" => gates.max_changed_results = count()?,
                "p95_increase_pct" => gates.p95_increase_pct = Some(percentage(&source, value, name)?),
                "p50_increase_pct" => gates.p50_increase_pct = Some(percentage(&source, value, name)?),
                "require_complete" => gates.require_complete = flag()?,
                "require_pinned" => gates.require_pinned = flag()?,
                "min_escrow_coverage_pct" => {
                    let share = percentage(&source, value, name)?;
                    if share > 100.0 {
                        return Err(source.expected(value, name, "a percentage from 0 to 100"));
                    }
                    gates.min_escrow_coverage_pct = Some(share);
                }
                "allowed_new_tools" => {
                    let tools = source.sequence(value, name)?.iter();
                    let tools = tools.map(|tool| source.string(tool, name).map(str::to_owned));
                    gates.allowed_new_tools = Some(tools.collect::<Result<_, _>>()?);
                }
                _ => return Err(source.unknown(key, &KEYS)),
            }
        }
        if gates == Self::default() { Err(empty()) } else { Ok(gates) }
    }

    /// Whether the file has this gate.
    #[must_use]
    pub fn has(&self, gate: &str) -> bool {
        match gate {
            "max_denied" => self.max_denied.is_some(),
            "max_errors" => self.max_errors.is_some(),
            "max_timeouts" => self.max_timeouts.is_some(),
            "require_complete" => self.require_complete.is_some(),
            _ => false,
        }
    }

    pub(super) fn judge(&self, c: &Comparison, a: &VerifyReport, b: &VerifyReport) -> GateReport {
        let mut results = Vec::new();
        let allowed: BTreeSet<&str> = self.allowed_new_tools.iter().flatten().map(String::as_str).collect();
        let unexpected: Vec<&str> =
            c.new_tools.iter().map(|t| t.tool.as_str()).filter(|t| !allowed.contains(t)).collect();
        let new_limit = self.max_new_tools.or_else(|| self.allowed_new_tools.as_ref().map(|_| 0));
        let name = if self.max_new_tools.is_some() { "max_new_tools" } else { "allowed_new_tools" };
        let named = |tools: &[&str]| {
            let more = if tools.len() > 10 { ", …" } else { "" };
            (!tools.is_empty()).then(|| format!("{}{more}", tools[..tools.len().min(10)].join(", ")))
        };
        let gone: Vec<&str> = c.gone_tools.iter().map(|t| t.tool.as_str()).collect();
        let counts = [
            (name, new_limit, unexpected.len() as u64, named(&unexpected)),
            ("max_gone_tools", self.max_gone_tools, gone.len() as u64, named(&gone)),
            ("max_denied", self.max_denied, c.totals_b.policy_denied, None),
            ("max_errors", self.max_errors, c.totals_b.errors, None),
            ("max_timeouts", self.max_timeouts, c.totals_b.timeouts, None),
            ("max_changed_results", self.max_changed_results, c.calls.result_changed, None),
        ];
        for (gate, limit, actual, note) in counts {
            if let Some(limit) = limit {
                let passed = actual <= limit;
                results.push(GateResult { gate, limit: json!(limit), actual: json!(actual), passed, note });
            }
        }
        let (old, new) = (&c.latency_a, &c.latency_b);
        results.extend(self.p95_increase_pct.map(|l| latency("p95_increase_pct", l, old.p95_us, new.p95_us)));
        results.extend(self.p50_increase_pct.map(|l| latency("p50_increase_pct", l, old.p50_us, new.p50_us)));
        let complete = [a, b].map(|r| r.completeness);
        let pinned = [a, b].map(|r| r.signer.verdict);
        let wanted = |gate, wanted: Option<bool>, found: [&str; 2], holds: bool| {
            wanted.map(|wanted| GateResult {
                gate,
                limit: json!(wanted),
                actual: json!(holds),
                passed: holds || !wanted,
                note: Some(format!("A is {}, B is {}", found[0], found[1])),
            })
        };
        let is_complete = complete.iter().all(|c| *c == Completeness::Complete);
        let is_pinned = pinned.iter().all(|p| *p == SignerVerdict::Pinned);
        results.extend(wanted(
            "require_complete",
            self.require_complete,
            complete.map(Completeness::as_str),
            is_complete,
        ));
        results.extend(wanted("require_pinned", self.require_pinned, pinned.map(SignerVerdict::as_str), is_pinned));
        results.extend(self.min_escrow_coverage_pct.map(|limit| coverage(limit, b.facts.coverage.as_ref())));
        GateReport { passed: results.iter().all(|r| r.passed), results }
    }
}

/// Where nothing was asked for, nothing is shown.
fn coverage(limit: f64, covered: Option<&Covered>) -> GateResult {
    let share = covered.and_then(|c| c.coverage.ratio()).map(|ratio| ratio * 100.0);
    let note = match covered {
        None => "B is not a recording that a server made of itself".to_owned(),
        Some(covered) => covered.to_string(),
    };
    GateResult {
        gate: "min_escrow_coverage_pct",
        limit: json!(limit),
        // Rounded down: what is not whole is not 100.
        actual: json!(share.map(|pct| (pct * 10.0).floor() / 10.0)),
        passed: share.is_some_and(|pct| pct >= limit),
        note: Some(note),
    }
}

fn latency(gate: &'static str, limit: f64, a: Option<u64>, b: Option<u64>) -> GateResult {
    let actual = increase_pct(a, b);
    let (passed, note) = match (actual, a, b) {
        (Some(pct), ..) if pct.is_finite() => (pct <= limit, None),
        (Some(_), ..) => (false, Some("it was 0 in A".to_owned())),
        (None, None, None) => (true, Some("no call was answered in A or B".to_owned())),
        (None, a, _) => (false, Some(format!("no call was answered in {}", if a.is_none() { "A" } else { "B" }))),
    };
    let actual = actual.filter(|p| p.is_finite()).map(|p| (p * 10.0).round() / 10.0);
    GateResult { gate, limit: json!(limit), actual: json!(actual), passed, note }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_is_of_what_was_asked_for_and_of_nothing_there_is_none() {
        use crate::model::Coverage;
        let of = |requested, executed| Covered {
            coverage: Coverage { requested, executed, open: requested - executed, denied: 0 },
            ..Covered::default()
        };
        let passed = |limit, covered: Option<Covered>| coverage(limit, covered.as_ref()).passed;
        assert!(passed(100.0, Some(of(3, 3))) && passed(66.0, Some(of(3, 2))));
        assert!(!passed(67.0, Some(of(3, 2))) && !passed(0.0, Some(of(0, 0))) && !passed(0.0, None));
        assert_eq!(coverage(100.0, Some(&of(3000, 2999))).actual, json!(99.9));
        let e = Gates::parse(b"min_escrow_coverage_pct: 100.5\n", "g").unwrap_err();
        assert!(e.to_string().contains("from 0 to 100"), "{e}");
    }

    #[test]
    fn every_gate_is_read() {
        let text = "max_new_tools: 0\nmax_gone_tools: 1\nmax_denied: 2\nmax_errors: 3\nmax_timeouts: 4\n\
                    max_changed_results: 5\np95_increase_pct: 20\np50_increase_pct: 12.5\nrequire_complete: true\n\
                    require_pinned: false\nallowed_new_tools: [search, \"日本語\"]\n";
        let g = Gates::parse(text.as_bytes(), "g.yaml").unwrap();
        assert_eq!(
            (g.max_new_tools, g.max_gone_tools, g.max_denied, g.max_errors),
            (Some(0), Some(1), Some(2), Some(3))
        );
        assert_eq!((g.max_timeouts, g.max_changed_results), (Some(4), Some(5)));
        assert_eq!((g.p95_increase_pct, g.p50_increase_pct), (Some(20.0), Some(12.5)));
        assert_eq!((g.require_complete, g.require_pinned), (Some(true), Some(false)));
        assert_eq!(g.allowed_new_tools.unwrap(), ["search", "日本語"]);
    }

    #[test]
    fn nothing_is_ignored_and_every_error_has_its_place() {
        for (text, place, what) in [
            ("max_errors: 1\nmax_eror: 2\n", (2, 1), "unknown key `max_eror`"),
            ("max_errors: 1\nmax_errors: 2\n", (2, 1), "occurs twice"),
            ("max_errors: many\n", (1, 13), "expected a whole number"),
            ("max_errors: \"1\"\n", (1, 13), "expected a whole number"),
            ("max_errors: -1\n", (1, 13), "must be a whole number"),
            ("max_errors: 1.5\n", (1, 13), "must be a whole number"),
            ("max_errors:\n", (1, 11), "nothing, expected a whole number"),
            ("p95_increase_pct: .nan\n", (1, 19), "percentage"),
            ("p95_increase_pct: .inf\n", (1, 19), "percentage"),
            ("p95_increase_pct: -1\n", (1, 19), "percentage"),
            ("p50_increase_pct: -0.5\n", (1, 19), "percentage"),
            ("p50_increase_pct: \"1\"\n", (1, 19), "percentage"),
            ("require_complete: yes please\n", (1, 19), "expected true or false"),
            ("require_complete: yes\n", (1, 19), "expected true or false"),
            ("allowed_new_tools: search\n", (1, 20), "expected a list"),
            ("allowed_new_tools: [1]\n", (1, 21), "expected a string"),
            ("allowed_new_tools: [a, ~]\n", (1, 24), "expected a string"),
            ("max_errors: [1\n", (2, 1), "not YAML"),
            ("max_errors: &a 1\nmax_denied: *a\n", (1, 13), "an anchor"),
            ("max_errors:\t1\n", (1, 12), "a tab"),
            ("max_errors: 1\n---\nmax_errors: 1\n", (2, 1), "a second YAML document"),
            ("- max_errors\n", (1, 1), "expected a mapping"),
            ("", (1, 1), "no gate"),
            ("# none\n", (1, 1), "no gate"),
            ("{}\n", (1, 1), "no gate"),
        ] {
            let e = Gates::parse(text.as_bytes(), "g.yaml").unwrap_err();
            assert!(e.message.contains(what), "{text:?}: {e}");
            assert_eq!((e.line, e.column), (Some(place.0), Some(place.1)), "{text:?}: {e}");
        }
        let e = Gates::parse(b"max_errors: \xff\n", "g.yaml").unwrap_err();
        assert_eq!((e.line, e.column), (Some(1), Some(13)), "{e}");
    }

    #[test]
    fn each_key_is_read_and_none_but_them_is_known() {
        for key in KEYS {
            let value = match key {
                "require_complete" | "require_pinned" => "true",
                "allowed_new_tools" => "[a]",
                _ => "1",
            };
            assert!(Gates::parse(format!("{key}: {value}\n").as_bytes(), "g.yaml").is_ok(), "{key}");
        }
        let e = Gates::parse(b"max_eror: 2\n", "g.yaml").unwrap_err();
        assert_eq!(e.hint.as_deref(), Some("did you mean `max_errors`?"));
    }

    #[test]
    fn a_gate_without_a_number_does_not_pass_for_nothing() {
        assert!(latency("p95_increase_pct", 10.0, Some(100), Some(110)).passed);
        assert!(!latency("p95_increase_pct", 10.0, Some(100), Some(111)).passed);
        assert!(!latency("p95_increase_pct", 10.0, Some(0), Some(1)).passed);
        assert!(!latency("p95_increase_pct", 10.0, None, Some(1)).passed);
        assert!(!latency("p95_increase_pct", 10.0, Some(1), None).passed);
        assert!(latency("p95_increase_pct", 10.0, None, None).passed);
        assert!(latency("p95_increase_pct", 10.0, Some(5), Some(1)).passed);
    }
}
