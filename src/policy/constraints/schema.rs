//! `arguments`: a JSON Schema that the arguments must validate against. Nothing is fetched: a `$ref` stays in the file.

mod lint;
mod metered;

pub use lint::{MAX_CHAIN, MAX_SCHEMAS, MAX_TARGETS, MAX_WIDTH, Wrong};

use super::super::names::Unusable;
use jsonschema::{PatternOptions, Validator};
use metered::{Looked, Metered};
use serde_json::Value;
use std::sync::OnceLock;

/// Bytes of arguments that a schema judges.
pub const MAX_ARGUMENTS: usize = 16 << 20;
/// Looks at values that one judgement may take, and how many more for each byte of the arguments.
pub const STEPS: u64 = 1 << 20;
/// See [`STEPS`].
pub const STEPS_PER_BYTE: u64 = 8;
/// Looks that finding out what to say of arguments may take: there are many ways not to satisfy a schema.
const STEPS_OF_WORDS: u64 = 20_000;

/// A schema, compiled when first needed.
#[derive(Debug)]
pub struct Schema {
    json: Value,
    price: u64,
    format: Option<String>,
    compiled: OnceLock<Result<Validator<Metered>, Wrong>>,
}

/// What a schema says of arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// They satisfy it.
    Satisfied,
    /// They do not; the keyword, as a JSON pointer into the schema, where it is cheap to know.
    Fails(Option<String>),
    /// They are too long, or it takes too much to find out.
    TooCostly,
}

impl Schema {
    /// A schema.
    ///
    /// # Errors
    /// What is wrong with it, as far as it shows without compiling.
    pub fn new(json: Value) -> Result<Self, Wrong> {
        let linted = lint::lint(&json);
        if let Err(e) = jsonschema::meta::validate(&json) {
            let (pointer, what) = (e.instance_path().to_string(), e.to_string());
            // What is said here is said better there.
            let better = linted.err().filter(|wrong| wrong.pointer == pointer || wrong.pointer == "/$schema");
            return Err(better.unwrap_or(Wrong { pointer, what, hint: None }));
        }
        let seen = linted?;
        let price = 1 + seen.patterns as u64 / 16;
        Ok(Self { json, price, format: seen.format, compiled: OnceLock::new() })
    }

    /// Where `format` stands first, as a JSON pointer.
    #[must_use]
    pub fn format(&self) -> Option<&str> {
        self.format.as_deref()
    }

    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(&self) -> Result<&Validator<Metered>, Wrong> {
        self.compiled
            .get_or_init(|| {
                // The linear-time engine: a pattern in a schema must not be a way to stop the proxy.
                jsonschema::options_for::<Metered>()
                    .with_pattern_options(PatternOptions::regex().size_limit(4 << 20))
                    .should_validate_formats(false)
                    .build(&self.json)
                    .map_err(|e| Wrong { pointer: e.schema_path().to_string(), what: e.to_string(), hint: None })
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    /// What it says of arguments that took `bytes` as JSON.
    ///
    /// # Errors
    /// The schema cannot be used.
    pub fn check(&self, arguments: &Value, bytes: usize) -> Result<Outcome, Unusable> {
        let validator = self.compile().map_err(|_| Unusable)?;
        let steps = STEPS + STEPS_PER_BYTE * bytes as u64;
        match metered::within(steps, self.price, || validator.is_valid(Looked(arguments))) {
            Ok(true) => Ok(Outcome::Satisfied),
            Ok(false) => {
                let words = || validator.validate(Looked(arguments)).err().map(|e| e.schema_path().to_string());
                Ok(Outcome::Fails(metered::within(STEPS_OF_WORDS, self.price, words).unwrap_or_default()))
            }
            Err(_) => Ok(Outcome::TooCostly),
        }
    }
}
