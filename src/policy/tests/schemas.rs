//! `arguments`: what a schema must not say, and what judging by one may cost.

use super::*;
use serde_json::{Value, json};

fn loads(schema: &Value) -> Result<Policy, PolicyError> {
    let policy = format!("version: \"1\"\ndefault: allow\nconstraints:\n  t:\n    arguments: {schema}\n");
    Policy::parse(policy.as_bytes(), "p.yaml")
}

fn reason(schema: &Value, arguments: &str) -> (&'static str, String) {
    let policy = loads(schema).unwrap_or_else(|e| panic!("{schema}\n{e}"));
    let around = Surroundings { cwd: "/".into(), home: None, dns: Dns::Off };
    let mut e = Evaluator::new(Arc::new(policy), Arc::new(around));
    let r = decide(&mut e, "t", Arguments::Raw(arguments.as_bytes()));
    (r.reason.as_str(), r.message)
}

/// Schemas that would let through what their author meant to deny, and what is said.
#[test]
fn what_would_switch_a_constraint_off_is_an_error() {
    let d7 = "http://json-schema.org/draft-07/schema#";
    let cases = [
        (json!({"requird": ["a"]}), "did you mean `required`?"),
        (json!({"Required": ["a"]}), "did you mean `required`?"),
        (json!({"properties": {"q": {"maxlength": 3}}}), "did you mean `maxLength`?"),
        (json!({"nullable": true}), "null"),
        (json!({"whatever": 1}), "x-"),
        // Every place that a schema can be in.
        (json!({"items": {"tipe": "string"}}), "did you mean `type`?"),
        (json!({"prefixItems": [{}, {"tipe": 1}]}), "`tipe`"),
        (json!({"contains": {"tipe": 1}}), "`tipe`"),
        (json!({"unevaluatedItems": {"tipe": 1}}), "`tipe`"),
        (json!({"patternProperties": {"^a/~": {"tipe": 1}}}), "`tipe`"),
        (json!({"additionalProperties": {"tipe": 1}}), "`tipe`"),
        (json!({"unevaluatedProperties": {"tipe": 1}}), "`tipe`"),
        (json!({"propertyNames": {"tipe": 1}}), "`tipe`"),
        (json!({"dependentSchemas": {"a": {"tipe": 1}}}), "`tipe`"),
        (json!({"contentSchema": {"tipe": 1}}), "`tipe`"),
        (json!({"allOf": [{"tipe": 1}]}), "`tipe`"),
        (json!({"anyOf": [{"tipe": 1}]}), "`tipe`"),
        (json!({"oneOf": [{}, {"tipe": 1}]}), "`tipe`"),
        (json!({"not": {"tipe": 1}}), "`tipe`"),
        (json!({"if": {"tipe": 1}}), "`tipe`"),
        (json!({"if": {}, "then": {"tipe": 1}}), "`tipe`"),
        (json!({"if": {}, "else": {"tipe": 1}}), "`tipe`"),
        (json!({"$defs": {"a": {"tipe": 1}}}), "`tipe`"),
        (json!({"definitions": {"a": {"tipe": 1}}}), "`tipe`"),
        (json!({"$schema": d7, "dependencies": {"a": {"tipe": 1}, "b": ["a"]}}), "`tipe`"),
        (json!({"$schema": d7, "items": [{"tipe": 1}]}), "`tipe`"),
        (json!({"$schema": d7, "items": [{}], "additionalItems": {"tipe": 1}}), "`tipe`"),
        // Keywords of another version.
        (json!({"additionalItems": false}), "`items`, next to `prefixItems`"),
        (json!({"dependencies": {"a": ["b"]}}), "dependentRequired"),
        (json!({"items": [{"type": "string"}]}), "prefixItems"),
        (json!({"$schema": d7, "prefixItems": [{}]}), "another version"),
        (json!({"$schema": d7, "dependentRequired": {}}), "another version"),
        (json!({"$schema": "http://json-schema.org/draft-04/schema#", "const": 1}), "another version"),
        (json!({"id": "x"}), "another version"),
        (json!({"$schema": "http://json-schema.org/draft-08/schema#"}), "2020-12"),
        (json!({"$schema": "https://json-schema.org/draft/2020-12"}), "2020-12"),
        (json!({"properties": {"a": {"$schema": d7}}}), "at the top"),
        (json!({"properties": {"a": {"$id": "http://a/b"}}}), "at the top"),
        // Keywords that do nothing where they stand.
        (json!({"then": false}), "has no effect without `if`"),
        (json!({"else": false}), "has no effect without `if`"),
        (json!({"minContains": 1}), "has no effect without `contains`"),
        (json!({"properties": {"q": {"type": "string", "maximum": 3}}}), "it is for type: number"),
        (json!({"properties": {"q": {"type": "integer", "maxLength": 3}}}), "it is for type: string"),
        (json!({"properties": {"q": {"type": ["array", "null"], "required": ["a"]}}}), "it is for type: object"),
        (json!({"$schema": d7, "additionalItems": false, "items": {}}), "without a list"),
        (json!({"$schema": d7, "$ref": "#/definitions/a", "maxLength": 3, "definitions": {"a": {}}}), "`allOf`"),
        // Wrong types.
        (json!({"required": true}), "bad JSON Schema"),
        (json!({"properties": {"q": {"required": true}}}), "bad JSON Schema"),
        (json!({"properties": {"type": "string"}}), "bad JSON Schema"),
        (json!({"properties": {"q": {"maxLength": "3"}}}), "bad JSON Schema"),
        (json!({"properties": {"q": {"exclusiveMinimum": true}}}), "bad JSON Schema"),
        (json!({"properties": {"q": {"format": "emial"}}}), "did you mean `email`?"),
        (json!({"properties": {"q": {"format": "no such"}}}), "unknown format"),
        // References.
        (json!({"$ref": "http://127.0.0.1/x"}), "nothing is fetched"),
        (json!({"$ref": "other.json#/a"}), "nothing is fetched"),
        (json!({"$ref": "#/nowhere"}), "which is not a schema"),
        (json!({"$ref": "#nowhere"}), "which is not a schema"),
        (json!({"$dynamicRef": "#nowhere"}), "which is not a schema"),
        (json!({"$ref": "#/required/0", "required": ["a"]}), "which is not a schema"),
        (json!({"$ref": "#/properties", "properties": {"a": {}}}), "which is not a schema"),
        // What would never end.
        (json!({"$ref": "#"}), "would never end"),
        (json!({"anyOf": [{"type": "string"}, {"$ref": "#"}]}), "would never end"),
        (
            json!({"$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"if": {"$ref": "#/$defs/a"}}}}),
            "would never end",
        ),
        (json!({"$defs": {"a": {"$anchor": "x", "dependentSchemas": {"k": {"$ref": "#x"}}}}}), "would never end"),
        (json!({"$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}]}), "would never end"),
    ];
    let mut wrong = Vec::new();
    for (schema, words) in cases {
        match loads(&schema) {
            Ok(_) => wrong.push(format!("{schema} loads")),
            Err(e) if e.to_string().contains(words) && e.line == Some(5) => {}
            Err(e) => wrong.push(format!("{schema} wants {words}\n{e}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn what_is_right_loads() {
    let d7 = "http://json-schema.org/draft-07/schema#";
    let d4 = "http://json-schema.org/draft-04/schema#";
    for schema in [
        json!({}),
        json!({"type": "object", "x-owner": {"requird": 1}, "properties": {"requird": {"type": "string", "x-y": 1}}}),
        json!({"properties": {"q": {"default": {"tipe": 1}, "enum": [{"tipe": 1}], "const": {"tipe": 1}, "examples": [{"a": 1}]}}}),
        json!({"properties": {"q": {"type": ["string", "null"], "maxLength": 3}, "n": {"type": "integer", "minimum": 1}}}),
        json!({"properties": {"q": {"format": "uri"}, "r": true, "s": false}}),
        json!({"$schema": d7, "properties": {"q": {"$ref": "#/definitions/a", "description": "x"}}, "definitions": {"a": {}}}),
        json!({"$schema": d7, "dependencies": {"a": ["b"]}, "items": [{}], "additionalItems": false}),
        json!({"$schema": d7, "definitions": {"a": {"$id": "#here"}}, "properties": {"x": {"$ref": "#here"}}}),
        json!({"$schema": d4, "id": "http://a/b", "properties": {"q": {"minimum": 1, "exclusiveMinimum": true}}}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true,
            "properties": {"c": {"$recursiveRef": "#"}}}),
        json!({"$id": "http://a/b", "$ref": "http://a/b#/$defs/x%20y~1z", "$defs": {"x y/z": {"$anchor": "k"}}}),
        json!({"$dynamicAnchor": "n", "properties": {"c": {"$dynamicRef": "#n"}}, "unevaluatedProperties": false}),
        json!({"properties": {"c": {"items": {"$ref": "#"}}}, "if": {"required": ["c"]}, "then": {}, "else": {}}),
    ] {
        assert!(loads(&schema).is_ok(), "{schema}\n{}", loads(&schema).unwrap_err());
    }
    let noted = loads(&json!({"properties": {"q": {"format": "uri"}}})).unwrap();
    assert!(noted.notes()[0].text.contains("not checked"), "{:?}", noted.notes());
}

fn nested(depth: usize, name: &str) -> String {
    format!("{}1{}", format!("{{\"{name}\":").repeat(depth), "}".repeat(depth))
}

/// Schemas that go into the value again and again, in every way in which two branches can judge one value.
fn branching() -> Vec<Value> {
    let deeper = json!({"properties": {"a": {"$ref": "#"}}, "required": ["a"]});
    let mut all: Vec<Value> = ["anyOf", "oneOf", "allOf"]
        .into_iter()
        .map(|word| json!({word: [deeper, deeper, deeper, {"type": "string"}]}))
        .collect();
    all.extend([
        json!({"properties": {"a": {"$ref": "#"}}, "patternProperties": {"^a": {"$ref": "#"}, "a$": {"$ref": "#"}}}),
        json!({"not": {"not": deeper}, "if": deeper, "then": deeper, "else": deeper}),
        json!({"dependentSchemas": {"a": deeper}, "properties": {"a": {"$ref": "#"}}}),
        json!({"anyOf": [deeper, deeper], "unevaluatedProperties": {"$ref": "#"}}),
        json!({"$dynamicAnchor": "n", "oneOf": [
            {"properties": {"a": {"$dynamicRef": "#n"}}}, {"additionalProperties": {"$dynamicRef": "#n"}}]}),
        json!({"items": {"$ref": "#"}, "contains": {"$ref": "#"}, "uniqueItems": true}),
        json!({"anyOf": [{"items": {"$ref": "#"}}, {"prefixItems": [{"$ref": "#"}], "unevaluatedItems": {"$ref": "#"}}]}),
    ]);
    all
}

#[test]
fn recursion_ends_within_its_bounds() {
    for schema in branching() {
        let lists = format!("{{\"a\":{}{}}}", "[".repeat(110), "]".repeat(110));
        let top = schema.get("items").is_some() || schema["anyOf"][0].get("items").is_some();
        let schema = if top {
            let mut outer = json!({"$ref": "#/$defs/n", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {}});
            outer["$defs"]["n"] = serde_json::from_str(&schema.to_string().replace("\"#\"", "\"#/$defs/n\"")).unwrap();
            outer
        } else {
            schema
        };
        for arguments in [nested(100, "a"), nested(20, "a"), lists] {
            let started = std::time::Instant::now();
            let (reason, message) = reason(&schema, &arguments);
            assert!(
                ["default", "constraint:arguments", "arguments_too_costly"].contains(&reason),
                "{schema} {reason} {message}"
            );
            // Generous: without a bound it would take longer than anybody waits.
            assert!(started.elapsed() < Duration::from_secs(60), "{schema}");
        }
    }
}

#[test]
fn both_sides_of_the_limits() {
    // Steps: every element takes a look or two, each at every alternative.
    let alternatives: Vec<Value> = (0..200).map(|n| json!({"const": n})).collect();
    let schema = json!({"properties": {"a": {"items": {"anyOf": alternatives}}}});
    let many = |n: usize| format!("{{\"a\":[{}199]}}", "199,".repeat(n));
    assert_eq!(reason(&schema, &many(1000)).0, "default");
    assert_eq!(reason(&schema, &many(100_000)).0, "arguments_too_costly");
    // An honest list of the greatest size.
    let plain = json!({"properties": {"a": {"items": {"type": "integer", "minimum": 0}}}});
    assert_eq!(reason(&plain, &many(300_000)).0, "default");
    // Size.
    let long = |n: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(n - 8));
    let max = crate::policy::constraints::schema::MAX_ARGUMENTS;
    assert_eq!(long(max).len(), max);
    assert_eq!(reason(&json!({}), &long(max)).0, "default");
    assert_eq!(reason(&json!({}), &long(max + 1)).0, "arguments_too_costly");
    // Depth: as deep as arguments may be.
    assert_eq!(
        reason(&json!({"properties": {"a": {"$ref": "#"}}, "additionalProperties": false}), &nested(120, "a")).0,
        "default"
    );
    assert_eq!(reason(&json!({}), &nested(200, "a")).0, "arguments_unreadable");
}

#[test]
fn both_sides_of_the_limits_of_a_schema() {
    use crate::policy::constraints::schema::{MAX_CHAIN, MAX_SCHEMAS, MAX_TARGETS, MAX_WIDTH};
    let chain = |n: usize| {
        let defs: serde_json::Map<String, Value> = (0..n)
            .map(|k| {
                (k.to_string(), if k + 1 == n { json!({}) } else { json!({"$ref": format!("#/$defs/{}", k + 1)}) })
            })
            .collect();
        json!({"$defs": defs})
    };
    assert!(loads(&chain(MAX_CHAIN)).is_ok());
    assert!(loads(&chain(MAX_CHAIN + 1)).is_err());
    let targets = |n: usize| {
        let defs: serde_json::Map<String, Value> = (0..=n)
            .map(|k| {
                let next = json!({"properties": {"a": {"$ref": format!("#/$defs/{}", k + 1)}}});
                (k.to_string(), if k == n { json!({}) } else { next })
            })
            .collect();
        json!({"properties": {"a": {"$ref": "#/$defs/1"}}, "$defs": defs})
    };
    assert_eq!(reason(&targets(MAX_TARGETS), &nested(100, "a")).0, "default");
    assert!(loads(&targets(MAX_TARGETS + 1)).is_err());
    let parts = |n: usize| json!({"properties": (0..n - 1).map(|k| (k.to_string(), json!(true))).collect::<serde_json::Map<_, _>>()});
    assert!(loads(&parts(MAX_SCHEMAS)).is_ok());
    assert!(loads(&parts(MAX_SCHEMAS + 1)).is_err());
    // Doubling at one place: 2^n schemas for one value.
    let doubling = |n: usize, more: Value| {
        let defs: serde_json::Map<String, Value> = (0..=n)
            .map(|k| {
                let twice = json!({"$ref": format!("#/$defs/{}", k + 1)});
                let more = more.clone();
                (
                    k.to_string(),
                    if k == n { json!({}) } else { json!({"allOf": [twice, twice], "unevaluatedProperties": more}) },
                )
            })
            .collect();
        json!({"$ref": "#/$defs/0", "$defs": defs})
    };
    const { assert!(1 << 11 < MAX_WIDTH && 1 << 14 > MAX_WIDTH) };
    assert_eq!(reason(&doubling(4, json!(false)), "{}").0, "default");
    // Each of them asks again what all below it have judged, at every level.
    assert_eq!(reason(&doubling(10, json!(false)), "{}").0, "arguments_too_costly");
    assert!(loads(&doubling(13, json!(false))).unwrap_err().to_string().contains("too many schemas"));
}

/// Generated schemas and arguments: whatever they are, a verdict comes within the steps, and it is that of the crate by
/// itself where that has one in reasonable time.
#[test]
fn any_schema_and_any_arguments() {
    let rounds = std::env::var("ASSAY_SCHEMA_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut judged = 0;
    for _ in 0..rounds {
        let schema = a_schema(&mut random, 3);
        let schema =
            json!({"$defs": {"a": a_schema(&mut random, 2), "b": a_schema(&mut random, 2)}, "allOf": [schema]});
        if loads(&schema).is_err() {
            continue;
        }
        for _ in 0..4 {
            let arguments = json!({"a": a_value(&mut random, 4), "b": a_value(&mut random, 3)});
            let (reason, _) = reason(&schema, &arguments.to_string());
            let plain =
                jsonschema::options().with_pattern_options(jsonschema::PatternOptions::regex()).build(&schema).unwrap();
            let expected = if plain.is_valid(&arguments) { "default" } else { "constraint:arguments" };
            assert!(reason == expected || reason == "arguments_too_costly", "{schema} {arguments} {reason}");
            judged += 1;
        }
    }
    assert!(judged > rounds, "{judged}");
}

fn next(random: &mut u64, below: u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 11) % below
}

fn a_value(r: &mut u64, depth: u64) -> Value {
    match next(r, if depth == 0 { 5 } else { 9 }) {
        0 => json!(null),
        1 => json!(next(r, 2) == 0),
        2 => json!(next(r, 5)),
        3 => json!(next(r, 5) as f64 / 2.0),
        4 => json!(["", "a", "ab", "b1"][next(r, 4) as usize]),
        5 | 6 => (0..next(r, 4)).map(|_| a_value(r, depth - 1)).collect(),
        _ => Value::Object(
            (0..next(r, 3)).map(|n| (["a", "b", "c"][n as usize].to_owned(), a_value(r, depth - 1))).collect(),
        ),
    }
}

fn a_schema(r: &mut u64, depth: u64) -> Value {
    if depth == 0 || next(r, 6) == 0 {
        return match next(r, 8) {
            0 => json!(true),
            1 => json!({"type": (["string", "object", "array", "number"][next(r, 4) as usize])}),
            2 => json!({"const": a_value(r, 1)}),
            3 => json!({"enum": [a_value(r, 1), a_value(r, 0)]}),
            4 => json!({"maxLength": next(r, 3), "minimum": next(r, 3), "uniqueItems": true}),
            5 => json!({"pattern": "^a", "multipleOf": 0.5}),
            6 => json!({"required": ["a"]}),
            _ => json!({"$ref": (["#/$defs/a", "#/$defs/b"][next(r, 2) as usize])}),
        };
    }
    let s = |r: &mut u64| a_schema(r, depth - 1);
    match next(r, 12) {
        0 => json!({"anyOf": [s(r), s(r)]}),
        1 => json!({"oneOf": [s(r), s(r), s(r)]}),
        2 => json!({"allOf": [s(r), s(r)]}),
        3 => json!({"not": s(r)}),
        4 => json!({"if": s(r), "then": s(r), "else": s(r)}),
        5 => json!({"properties": {"a": s(r), "b": s(r)}, "additionalProperties": s(r)}),
        6 => json!({"patternProperties": {"[ab]": s(r)}, "propertyNames": {"maxLength": 3}}),
        7 => json!({"items": s(r), "contains": s(r), "maxContains": 2}),
        8 => json!({"prefixItems": [s(r)], "unevaluatedItems": s(r)}),
        9 => json!({"anyOf": [s(r), {"properties": {"a": s(r)}}], "unevaluatedProperties": s(r)}),
        10 => json!({"dependentSchemas": {"a": s(r)}}),
        _ => json!({"properties": {"a": {"items": s(r)}}, "required": ["a"]}),
    }
}
