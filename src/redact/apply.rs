//! One value, looked through: what rules match is replaced by their placeholder.

use super::{
    MAX_VALUE, Rules, What,
    texts::{Search, TooLong},
};
use crate::{
    canon,
    model::{
        line::member,
        redaction::{self, Side},
    },
    record::redact::{NotApplied, Redacted},
};
use std::{borrow::Cow, collections::BTreeSet, fmt::Write as _};

/// A pointer's rule, and the steps that are still to go.
type Way<'r> = (usize, &'r [String]);

/// What rules leave of a value.
pub(super) fn value(rules: &Rules, side: Side, bytes: &[u8]) -> Result<Option<Redacted>, NotApplied> {
    let pointers = rules.all.iter().enumerate().filter(|(_, rule)| rule.is_for(side));
    let ways = pointers.filter_map(|(n, rule)| match &rule.what {
        What::Pointer(steps) => Some((n, steps.as_slice())),
        What::Member(_) | What::Regex(_) => None,
    });
    walked(rules, side, bytes, &ways.collect::<Vec<_>>())
}

/// What they leave of a whole message; pointers lead from its arguments, its result or its error.
pub(super) fn message(rules: &Rules, bytes: &[u8]) -> Result<Option<Vec<u8>>, NotApplied> {
    if canon::kind(bytes) != Some(canon::Kind::Object) {
        return Err(NotApplied);
    }
    let (side, roots): (_, &[&[&str]]) = match member(bytes, "method") {
        Some(_) => (Side::Arguments, &[&["params", "arguments"]]),
        None => (Side::Result, &[&["result"], &["error"]]),
    };
    let mut ways = Vec::new();
    for (n, rule) in rules.all.iter().enumerate().filter(|(_, rule)| rule.is_for(side)) {
        let What::Pointer(steps) = &rule.what else { continue };
        ways.extend(
            roots.iter().map(|root| (n, root.iter().map(|step| (*step).to_owned()).chain(steps.clone()).collect())),
        );
    }
    let ways: Vec<(usize, Vec<String>)> = ways;
    let ways: Vec<Way<'_>> = ways.iter().map(|(n, steps)| (*n, steps.as_slice())).collect();
    Ok(walked(rules, side, bytes, &ways)?.map(|redacted| redacted.value))
}

/// Whether a regular expression matches in a text, or nobody can tell.
pub(super) fn touches(rules: &Rules, side: Side, text: &str) -> bool {
    let search = rules.texts[side as usize].as_ref().map(|texts| texts.search(text.len()));
    search.is_some_and(|mut search| search.places(text).map_or(true, |places| !places.is_empty()))
}

fn walked(rules: &Rules, side: Side, bytes: &[u8], ways: &[Way<'_>]) -> Result<Option<Redacted>, NotApplied> {
    if bytes.len() > MAX_VALUE {
        return Err(NotApplied);
    }
    let canonical = canon::canonicalize(bytes).map_err(|_| NotApplied)?;
    let search = rules.texts[side as usize].as_ref().map(|texts| texts.search(canonical.len()));
    let mut walk = Walk { rules, side, search, used: BTreeSet::new(), out: Vec::with_capacity(canonical.len()) };
    walk.value(&canonical, ways)?;
    if walk.used.is_empty() {
        return Ok(None);
    }
    // Names of members may have changed: they have another order, and must still be different.
    let value = canon::canonicalize(&walk.out).map_err(|_| NotApplied)?;
    let rules = walk.used.iter().map(|n| rules.all[*n].name.clone()).collect();
    Ok((value != canonical).then_some(Redacted { value, rules }))
}

struct Walk<'r> {
    rules: &'r Rules,
    side: Side,
    search: Option<Search<'r>>,
    /// Rules that took something out.
    used: BTreeSet<usize>,
    out: Vec<u8>,
}

impl Walk<'_> {
    fn value(&mut self, json: &[u8], ways: &[Way<'_>]) -> Result<(), NotApplied> {
        if let Some((rule, _)) = ways.iter().find(|(_, rest)| rest.is_empty()) {
            self.replace(*rule);
            return Ok(());
        }
        match json.first() {
            Some(b'{') => {
                self.out.push(b'{');
                for (n, member) in canon::members(json).map_err(|_| NotApplied)?.enumerate() {
                    let member = member.map_err(|_| NotApplied)?;
                    let name = member.key.ok_or(NotApplied)?;
                    if n > 0 {
                        self.out.push(b',');
                    }
                    self.text(&name)?;
                    self.out.push(b':');
                    self.member(&name, &json[member.value], &below(ways, &name))?;
                }
                self.out.push(b'}');
            }
            Some(b'[') => {
                self.out.push(b'[');
                for (n, element) in canon::elements(json).map_err(|_| NotApplied)?.enumerate() {
                    if n > 0 {
                        self.out.push(b',');
                    }
                    let below = if ways.is_empty() { Vec::new() } else { below(ways, &n.to_string()) };
                    self.value(&json[element.map_err(|_| NotApplied)?], &below)?;
                }
                self.out.push(b']');
            }
            Some(b'"') => self.text(&canon::decode_string(json).ok_or(NotApplied)?)?,
            Some(b'-' | b'0'..=b'9') => {
                let number = std::str::from_utf8(json).map_err(|_| NotApplied)?;
                match self.redacted(number)? {
                    Some(text) => self.string(&text),
                    None => self.out.extend_from_slice(json),
                }
            }
            _ => self.out.extend_from_slice(json),
        }
        Ok(())
    }

    /// The value of a member, whose name may say that it is secret.
    fn member(&mut self, name: &str, json: &[u8], ways: &[Way<'_>]) -> Result<(), NotApplied> {
        let is_secret = matches!(json.first(), Some(b'"' | b'-' | b'0'..=b'9')) && json != b"\"\"";
        let plain =
            || name.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect::<String>();
        let plain = if is_secret { plain() } else { String::new() };
        let named = self.rules.all.iter().position(|rule| {
            is_secret && rule.is_for(self.side) && matches!(&rule.what, What::Member(member) if *member == plain)
        });
        match named.filter(|_| ways.iter().all(|(_, rest)| !rest.is_empty())) {
            Some(rule) => {
                self.replace(rule);
                Ok(())
            }
            None => self.value(json, ways),
        }
    }

    fn text(&mut self, text: &str) -> Result<(), NotApplied> {
        let left = self.redacted(text)?;
        self.string(left.as_deref().unwrap_or(text));
        Ok(())
    }

    /// A text with placeholders where rules match; `None` where none does.
    fn redacted(&mut self, text: &str) -> Result<Option<String>, NotApplied> {
        let Some(search) = &mut self.search else { return Ok(None) };
        let places = search.places(text).map_err(|TooLong| NotApplied)?;
        if places.is_empty() {
            return Ok(None);
        }
        let (mut out, mut at) = (String::new(), 0);
        for (place, rule) in places {
            let _ = write!(out, "{}{}", &text[at..place.start], redaction::placeholder(&self.rules.all[rule].name));
            self.used.insert(rule);
            at = place.end;
        }
        out.push_str(&text[at..]);
        Ok(Some(out))
    }

    fn replace(&mut self, rule: usize) {
        self.used.insert(rule);
        self.string(&redaction::placeholder(&self.rules.all[rule].name));
    }

    fn string(&mut self, text: &str) {
        self.out.extend_from_slice(serde_json::Value::from(Cow::Borrowed(text)).to_string().as_bytes());
    }
}

/// The ways that lead on through a member or an element of this name.
fn below<'r>(ways: &[Way<'r>], name: &str) -> Vec<Way<'r>> {
    let on = ways.iter().filter_map(|(rule, steps)| {
        let (step, rest) = steps.split_first()?;
        (step == "*" || step == name).then_some((*rule, rest))
    });
    on.collect()
}
