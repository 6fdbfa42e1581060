//! Arguments as the JSON Schema crate sees them when every look at a value is counted, so that no schema and no
//! arguments make an evaluation run on: an evaluation that looks once too often, or goes too deep in the stack, is
//! stopped there.
//!
//! The crate has no hook for this, but it is generic over how values are represented, and no keyword can judge a value
//! without asking it something.

use super::super::metered_regex::{Patterns, Visits};
use jsonschema::{
    json::{Array, Json, Node, NodeIdentity, Object},
    types::JsonType,
};
use serde_json::{Map, Number, Value};
use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

/// Bytes of stack of an evaluation. Threads here have 2 MiB.
const MAX_STACK: usize = 1 << 20;
/// Bytes of a string that count as one step.
const STRING_STEP: usize = 64;

/// Visits of states of a regular expression that count as one step.
const VISITS_STEP: u64 = 2;
/// Visits that a name may cost every pattern without being counted.
const VISITS_OF_A_NAME: u64 = 4096;

thread_local! {
    static METER: Cell<Meter> = const { Cell::new(Meter { left: 0, price: 1, base: 0 }) };
    /// What members' names are matched against.
    static NAMES: RefCell<Arc<[Patterns]>> = RefCell::new(Arc::from([]));
}

#[derive(Clone, Copy)]
struct Meter {
    left: u64,
    /// What a step costs.
    price: u64,
    /// Where the stack of the evaluation begins.
    base: usize,
}

/// The limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

/// Evaluates with at most `steps` looks at values, each of which counts `price`; `names` are the patterns that
/// members' names are matched against.
///
/// # Errors
/// [`Exhausted`], or whatever else made the evaluation stop.
pub fn within<R>(
    steps: u64,
    price: u64,
    names: &Arc<[Patterns]>,
    evaluate: impl FnOnce() -> R,
) -> Result<R, Exhausted> {
    NAMES.set(Arc::clone(names));
    METER.set(Meter { left: steps, price, base: here() });
    // Stopping loses only what the evaluation made for itself.
    catch_unwind(AssertUnwindSafe(evaluate)).map_err(|_| Exhausted)
}

#[inline(never)]
fn here() -> usize {
    let mark = 0u8;
    std::ptr::from_ref(std::hint::black_box(&mark)) as usize
}

fn spend(steps: usize) {
    let mut meter = METER.get();
    let cost = meter.price.saturating_mul(steps as u64);
    if meter.left < cost || meter.base.abs_diff(here()) > MAX_STACK {
        // No panic: it says nothing, and ends in `within`.
        resume_unwind(Box::new(Exhausted));
    }
    meter.left -= cost;
    METER.set(meter);
}

/// Whether a pattern matches; each step of it counts.
pub fn matches(pattern: &Patterns, text: &str) -> bool {
    let meter = METER.get();
    let all = (meter.left / meter.price).saturating_mul(VISITS_STEP);
    let mut visits = Visits::new(all);
    let found = pattern.first(text, &mut visits);
    let spent = (all - visits.left()).div_ceil(VISITS_STEP);
    spend(usize::try_from(spent).unwrap_or(usize::MAX) + usize::from(found.is_err()));
    found.is_ok_and(|found| found.is_some())
}

/// Counts what the patterns take that the crate matches a name against: as much as they take here.
fn named(name: &str) {
    spend(1 + name.len() / STRING_STEP);
    NAMES.with_borrow(|names| {
        for pattern in names.iter().filter(|p| p.most(name.len()) > VISITS_OF_A_NAME) {
            matches(pattern, name);
        }
    });
}

/// The representation of JSON that the evaluation runs on, which counts its steps.
pub struct Metered;

/// A JSON value, each look at which is counted.
#[derive(Clone, Copy)]
pub struct Looked<'a>(pub &'a Value);

impl Json for Metered {
    type Node<'a> = Looked<'a>;
    type PreparedKey = String;
    type StringBuffer = ();

    const KEYS_PER_LOOKUP: usize = 2;
    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(Looked<'_>) -> T) -> T {
        spend(1 + string.len() / STRING_STEP);
        f(Looked(&Value::String(string.to_owned())))
    }
}

impl<'a> Node<'a, Metered> for Looked<'a> {
    type Object = Members<'a>;
    type Array = Elements<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Members<'a>> {
        spend(1);
        self.0.as_object().map(Members)
    }

    fn as_array(&self) -> Option<Elements<'a>> {
        spend(1);
        self.0.as_array().map(|items| Elements(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str();
        spend(1 + text.map_or(0, str::len) / STRING_STEP);
        text.map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        spend(1);
        self.0.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        spend(1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        spend(1);
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        spend(1);
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        spend(size(self.0));
        jsonschema::json::cmp::equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        spend(size(self.0));
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        spend(1);
        Some(NodeIdentity::new(std::ptr::from_ref(self.0) as usize))
    }
}

/// Steps that a comparison of a value may take.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len() / STRING_STEP,
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => 1 + members.iter().map(|(name, v)| name.len() / STRING_STEP + size(v)).sum::<usize>(),
        _ => 1,
    }
}

/// Iterates over the members of an object.
pub struct Members<'a>(&'a Map<String, Value>);

/// Their names and values, each a step.
pub struct EachMember<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for EachMember<'a> {
    type Item = (&'a str, Looked<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        named(name);
        Some((name, Looked(value)))
    }
}

impl<'a> Object<'a, Metered> for Members<'a> {
    type Node = Looked<'a>;
    type MemberName = &'a str;
    type MembersIter = EachMember<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Looked<'a>> {
        spend(1);
        self.0.get(key).map(Looked)
    }

    fn members(&self) -> EachMember<'a> {
        spend(1);
        EachMember(self.0.iter())
    }
}

/// Iterates over the elements of an array.
pub struct Elements<'a>(&'a [Value]);

/// The same one by one, each a step.
pub struct EachElement<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for EachElement<'a> {
    type Item = Looked<'a>;

    fn next(&mut self) -> Option<Looked<'a>> {
        let value = self.0.next()?;
        spend(1);
        Some(Looked(value))
    }
}

impl<'a> Array<'a, Metered> for Elements<'a> {
    type Node = Looked<'a>;
    type ElementsIter = EachElement<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> EachElement<'a> {
        spend(1);
        EachElement(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        spend(1 + self.0.iter().map(size).sum::<usize>());
        let mut seen = HashSet::with_capacity(self.0.len());
        self.0.iter().all(|value| {
            let mut form = Vec::new();
            write_form(value, &mut form);
            seen.insert(form)
        })
    }
}

/// Writes what is the same for two values if and only if JSON Schema takes them for equal. It is not left
/// to the crate, because a caller could choose values with the same hash.
fn write_form(value: &Value, out: &mut Vec<u8>) {
    let text = |text: &str, out: &mut Vec<u8>| {
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    };
    match value {
        Value::Null => out.push(b'0'),
        Value::Bool(b) => out.push(if *b { b't' } else { b'f' }),
        Value::Number(n) => {
            let float = n.as_f64().unwrap_or_default();
            let whole = n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from));
            // Beyond this every double is a whole number, and none has the type of an integer.
            let whole = whole.or_else(|| (float.fract() == 0.0 && float.abs() < 1e30).then_some(float as i128));
            if let Some(whole) = whole {
                out.push(b'i');
                out.extend_from_slice(&whole.to_le_bytes());
            } else {
                out.push(b'd');
                out.extend_from_slice(&float.to_le_bytes());
            }
        }
        Value::String(s) => {
            out.push(b's');
            text(s, out);
        }
        Value::Array(items) => {
            out.push(b'[');
            for item in items {
                write_form(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            out.push(b'{');
            // In the order of their names: that is how the map has them.
            for (name, value) in members {
                text(name, out);
                write_form(value, out);
            }
            out.push(b'}');
        }
    }
}
