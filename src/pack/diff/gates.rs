//! `assay.gates.yaml`: limits on what may differ between two packs. Nothing in it is ignored: what is not understood is an
//! error with its place.

use super::Comparison;
use crate::{
    numbers::increase_pct,
    pack::verify::{Completeness, SignerVerdict, VerifyReport},
};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io::Read as _,
    path::{Path, PathBuf},
};

/// Bytes of a gates file that are read.
pub const MAX_GATES: u64 = 1 << 20;

/// The limits. An absent one is not judged.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gates {
    /// Tools that only B calls and [`allowed_new_tools`](Self::allowed_new_tools) does not name.
    #[serde(default, deserialize_with = "given")]
    pub max_new_tools: Option<u64>,
    /// Tools that only A calls.
    #[serde(default, deserialize_with = "given")]
    pub max_gone_tools: Option<u64>,
    /// Calls in B that the policy rejects, refused or only recorded.
    #[serde(default, deserialize_with = "given")]
    pub max_denied: Option<u64>,
    /// Failed calls in B.
    #[serde(default, deserialize_with = "given")]
    pub max_errors: Option<u64>,
    /// Calls without a response in B.
    #[serde(default, deserialize_with = "given")]
    pub max_timeouts: Option<u64>,
    /// Pairs with another result hash.
    #[serde(default, deserialize_with = "given")]
    pub max_changed_results: Option<u64>,
    /// By how many percent the 95th percentile of all round trips may grow.
    #[serde(default, deserialize_with = "percent")]
    pub p95_increase_pct: Option<f64>,
    /// The same of the median.
    #[serde(default, deserialize_with = "percent")]
    pub p50_increase_pct: Option<f64>,
    /// Both packs are COMPLETE.
    #[serde(default, deserialize_with = "given")]
    pub require_complete: Option<bool>,
    /// Both packs are PINNED.
    #[serde(default, deserialize_with = "given")]
    pub require_pinned: Option<bool>,
    /// Tools that may be new; alone it means that no other may.
    #[serde(default, deserialize_with = "names")]
    pub allowed_new_tools: Option<Vec<String>>,
}

/// An empty value is a limit that somebody forgot, not one that is absent.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

fn percent<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    let value = f64::deserialize(d)?;
    if value.is_finite() && value >= 0.0 {
        Ok(Some(value))
    } else {
        Err(de::Error::custom("expected a percentage of 0 or more"))
    }
}

fn names<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<String>>, D::Error> {
    Ok(Some(Vec::<Name>::deserialize(d)?.into_iter().map(|n| n.0).collect()))
}

/// A string, and no number or truth value that YAML would also take for one.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Name;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the name of a tool, in quotes if it could be something else")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Name, E> {
                Ok(Name(text.to_owned()))
            }
        }
        d.deserialize_any(Visitor)
    }
}

/// A gates file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {what}", .path.display(), .place.map(|(l, c)| format!(":{l}:{c}")).unwrap_or_default())]
pub struct GatesError {
    /// Which file.
    pub path: PathBuf,
    /// Line and column, from 1.
    pub place: Option<(usize, usize)>,
    /// What is wrong.
    pub what: String,
}

/// How one gate was judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateResult {
    /// Its key in the file.
    pub gate: &'static str,
    /// What the file allows.
    pub limit: Value,
    /// What was found; `null` when there is no number for it.
    pub actual: Value,
    /// Whether it holds.
    pub passed: bool,
    /// More in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// All gates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateReport {
    /// Whether all hold.
    pub passed: bool,
    /// One by one, in the order of this documentation.
    pub results: Vec<GateResult>,
}

impl Gates {
    /// Reads a file.
    ///
    /// # Errors
    /// [`GatesError`].
    pub fn load(path: &Path) -> Result<Self, GatesError> {
        let error = |place, what: String| GatesError { path: path.to_owned(), place, what };
        let file = crate::files::named(path).map_err(|e| error(None, e.to_string()))?;
        let mut text = Vec::new();
        file.take(MAX_GATES + 1).read_to_end(&mut text).map_err(|e| error(None, e.to_string()))?;
        if text.len() as u64 > MAX_GATES {
            return Err(error(None, format!("it is longer than {} MiB", MAX_GATES >> 20)));
        }
        let text = String::from_utf8(text).map_err(|_| error(None, "it is not UTF-8".to_owned()))?;
        Self::parse(&text).map_err(|(place, what)| error(place, what))
    }

    /// Reads YAML text; an error has its line and column, from 1, where there is a place to point at.
    ///
    /// # Errors
    /// What is wrong.
    #[allow(clippy::type_complexity)]
    pub fn parse(text: &str) -> Result<Self, (Option<(usize, usize)>, String)> {
        let gates: Self = serde_yaml::from_str(text).map_err(|e| {
            let place = e.location().map(|l| (l.line(), l.column()));
            let what = e.to_string();
            let what = what.rsplit_once(" at line ").map_or(what.as_str(), |(what, _)| what);
            // For a key that is there twice the parser names the place of the mapping.
            let place = if what.starts_with("duplicate") { place_of(text, what).or(place) } else { place };
            (place, what.to_owned())
        })?;
        if gates == Self::default() {
            return Err((Some((1, 1)), "there is no gate in it".to_owned()));
        }
        Ok(gates)
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
        GateReport { passed: results.iter().all(|r| r.passed), results }
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

/// Where a key that is there twice stands for the last time.
fn place_of(text: &str, what: &str) -> Option<(usize, usize)> {
    let key = what.split('`').nth(1)?;
    let here = |line: &str| line.trim_start().strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'));
    let (n, line) = text.lines().enumerate().filter(|(_, line)| here(line)).last()?;
    Some((n + 1, line.len() - line.trim_start().len() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_is_read() {
        let text = "max_new_tools: 0\nmax_gone_tools: 1\nmax_denied: 2\nmax_errors: 3\nmax_timeouts: 4\n\
                    max_changed_results: 5\np95_increase_pct: 20\np50_increase_pct: 12.5\nrequire_complete: true\n\
                    require_pinned: false\nallowed_new_tools: [search, \"日本語\"]\n";
        let g = Gates::parse(text).unwrap();
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
            ("max_errors: 1\nmax_eror: 2\n", (2, 1), "unknown field `max_eror`"),
            ("max_errors: 1\nmax_errors: 2\n", (2, 1), "duplicate"),
            ("max_errors: many\n", (1, 13), "invalid type"),
            ("max_errors: \"1\"\n", (1, 13), "invalid type"),
            ("max_errors: -1\n", (1, 13), "invalid"),
            ("max_errors: 1.5\n", (1, 13), "invalid type"),
            ("max_errors:\n", (1, 12), "invalid type"),
            ("p95_increase_pct: .nan\n", (1, 19), "percentage"),
            ("p95_increase_pct: -1\n", (1, 19), "percentage"),
            ("require_complete: yes please\n", (1, 19), "invalid type"),
            ("allowed_new_tools: search\n", (1, 20), "invalid type"),
            ("allowed_new_tools: [1]\n", (1, 21), "invalid type"),
            ("max_errors: [1\n", (1, 13), "invalid type"),
            ("- max_errors\n", (1, 1), "invalid type"),
            ("", (1, 1), ""),
            ("{}\n", (1, 1), "no gate"),
        ] {
            let (found, said) = Gates::parse(text).unwrap_err();
            assert!(said.contains(what), "{text:?}: {said}");
            assert!(found.is_some(), "{text:?}: {said}");
            assert_eq!(found.map(|p| p.0), Some(place.0), "{text:?}: {said} {found:?}");
        }
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
