//! `arguments`: a JSON Schema that the arguments must validate against. Nothing is fetched: a `$ref` stays in the file.

mod lint;
mod metered;

pub use lint::{MAX_CHAIN, MAX_SCHEMAS, MAX_TARGETS, MAX_WIDTH, Wrong};

use super::{
    super::names::Unusable,
    metered_regex::{Patterns, Unbuilt},
};
use jsonschema::{Keyword, PatternOptions, ValidationError, Validator, json::Node as _, paths::Location};
use metered::{Looked, Metered};
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

/// Bytes of arguments that a schema judges.
pub const MAX_ARGUMENTS: usize = 16 << 20;
/// Looks at values that one verdict may take, whatever the length of the arguments.
pub const STEPS: u64 = 1 << 20;
/// Looks at values that a verdict may take in addition to [`STEPS`], for each byte of the arguments.
pub const STEPS_PER_BYTE: u64 = 8;
/// Bytes of a compiled pattern.
const PATTERN_LIMIT: usize = 4 << 20;
/// Looks that finding the keyword that failed may take: there are many ways not to satisfy a schema.
const STEPS_OF_WORDS: u64 = 20_000;

/// A schema, compiled when first needed.
#[derive(Debug)]
pub struct Schema {
    json: Value,
    price: u64,
    texts: Vec<(String, String)>,
    names: Vec<(String, String)>,
    format: Option<String>,
    compiled: OnceLock<Result<Compiled, Wrong>>,
}

/// A schema that is ready to judge.
#[derive(Debug)]
pub struct Compiled {
    validator: Validator<Metered>,
    names: Arc<[Patterns]>,
}

/// What a schema says of arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Validity {
    /// The arguments satisfy the schema.
    Satisfied,
    /// They do not; the keyword, as a JSON pointer into the schema, where it is cheap to know.
    Fails(Option<String>),
    /// They are too long, or it takes too much to find out.
    TooCostly,
}

impl Schema {
    /// Checks a schema. It is compiled when it is first needed.
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
        Ok(Self { json, price, texts: seen.texts, names: seen.names, format: seen.format, compiled: OnceLock::new() })
    }

    /// Where `format` is first, as a JSON pointer.
    #[must_use]
    pub fn format(&self) -> Option<&str> {
        self.format.as_deref()
    }

    /// Compiles the schema, once.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(&self) -> Result<&Compiled, Wrong> {
        self.compiled.get_or_init(|| self.compiled()).as_ref().map_err(Clone::clone)
    }

    fn compiled(&self) -> Result<Compiled, Wrong> {
        let mut texts = HashMap::new();
        for (pointer, text) in &self.texts {
            if !texts.contains_key(text) {
                texts.insert(text.clone(), Arc::new(regular(pointer, text)?));
            }
        }
        let names: Result<_, _> = self.names.iter().map(|(pointer, text)| regular(pointer, text)).collect();
        // The linear-time engine, for names; what it may take is counted beside it.
        let validator = jsonschema::options_for::<Metered>()
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_LIMIT))
            .with_keyword("pattern", move |_: &Map<String, Value>, value, _: Location| pattern(&texts, value))
            .should_validate_formats(false)
            .build(&self.json)
            .map_err(|e| Wrong { pointer: e.schema_path().to_string(), what: e.to_string(), hint: None })?;
        Ok(Compiled { validator, names: names? })
    }

    /// What it says of arguments that took `bytes` as JSON.
    ///
    /// # Errors
    /// The schema cannot be used.
    pub fn check(&self, arguments: &Value, bytes: usize) -> Result<Validity, Unusable> {
        let Compiled { validator, names } = self.compile().map_err(|_| Unusable)?;
        let steps = STEPS + STEPS_PER_BYTE * bytes as u64;
        match metered::within(steps, self.price, names, || validator.is_valid(Looked(arguments))) {
            Ok(true) => Ok(Validity::Satisfied),
            Ok(false) => {
                let words = || validator.validate(Looked(arguments)).err().map(|e| e.schema_path().to_string());
                Ok(Validity::Fails(metered::within(STEPS_OF_WORDS, self.price, names, words).unwrap_or_default()))
            }
            Err(_) => Ok(Validity::TooCostly),
        }
    }
}

/// A pattern of a schema, in the syntax that JSON Schema gives it.
fn regular(pointer: &str, text: &str) -> Result<Patterns, Wrong> {
    let wrong = |what: String| Wrong { pointer: pointer.to_owned(), what, hint: None };
    let no_regex =
        || wrong(format!("`{}` is not a regular expression, or uses look-around", crate::text::visible(text)));
    let translated = jsonschema_regex::to_rust_regex(text).map_err(|()| no_regex())?;
    Patterns::new(&[translated], false, PATTERN_LIMIT).map_err(|e| match e {
        Unbuilt::TooBig => wrong(format!("a pattern of more than {} MiB when it is compiled", PATTERN_LIMIT >> 20)),
        Unbuilt::Wrong(_) => no_regex(),
    })
}

fn pattern<'a>(
    known: &HashMap<String, Arc<Patterns>>,
    value: &'a Value,
) -> Result<Box<dyn for<'i> Keyword<'i, Metered>>, ValidationError<'a>> {
    let known = value.as_str().and_then(|text| known.get(text));
    let known = known.ok_or_else(|| ValidationError::custom("a pattern that was not checked"))?;
    Ok(Box::new(Matches(Arc::clone(known))))
}

/// The keyword `pattern`, with its work counted.
struct Matches(Arc<Patterns>);

impl<'i> Keyword<'i, Metered> for Matches {
    fn validate(&self, instance: Looked<'i>) -> Result<(), ValidationError<'i>> {
        let valid = <Self as Keyword<'i, Metered>>::is_valid(self, instance);
        if valid { Ok(()) } else { Err(ValidationError::custom("the pattern does not match")) }
    }

    fn is_valid(&self, instance: Looked<'i>) -> bool {
        instance.as_string().is_none_or(|text| metered::matches(&self.0, &text))
    }
}
