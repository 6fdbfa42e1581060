//! `arguments`: a JSON Schema that the arguments must validate against. Nothing is fetched: a `$ref` stays in the file.

use super::super::names::Unusable;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use std::sync::OnceLock;

/// A schema, compiled when first needed.
#[derive(Debug)]
pub struct Schema {
    json: Value,
    compiled: OnceLock<Result<Validator, (String, String)>>,
}

impl Schema {
    /// A schema.
    #[must_use]
    pub fn new(json: Value) -> Self {
        Self { json, compiled: OnceLock::new() }
    }

    /// Compiles it.
    ///
    /// # Errors
    /// JSON pointer into the schema, and what is wrong there.
    pub fn compile(&self) -> Result<&Validator, (String, String)> {
        self.compiled
            .get_or_init(|| {
                if let Err(e) = jsonschema::meta::validate(&self.json) {
                    return Err((e.instance_path().to_string(), e.to_string()));
                }
                // The linear-time engine: a pattern in a schema must not be a way to stop the proxy.
                jsonschema::options()
                    .with_pattern_options(PatternOptions::regex().size_limit(4 << 20))
                    .build(&self.json)
                    .map_err(|e| (e.schema_path().to_string(), e.to_string()))
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Whether arguments validate; else where in them they do not, as a JSON pointer.
    ///
    /// # Errors
    /// The schema cannot be used.
    pub fn check(&self, arguments: &Value) -> Result<Result<(), String>, Unusable> {
        let validator = self.compile().map_err(|_| Unusable)?;
        Ok(validator.validate(arguments).map_err(|e| e.schema_path().to_string()))
    }
}
