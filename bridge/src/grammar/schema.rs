//! JSON schemas before they are compiled: what cannot be held to is refused, with its place.

use crate::grammar::compile::check_expression;
use crate::grammar::pattern::mend;
use serde_json::{json, Map, Value};
use std::collections::HashSet;

const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

const MOST_OPTIONS: usize = 5_000;
const MOST_PARTS: usize = 100_000;
/// Names of an object that need not be there: all of them may come next at once, and that is what a step
/// costs (tokens.rs, MOST_ITEMS).
const MOST_OPTIONAL: usize = 1_000;

/// Keywords that say something about a value and that nothing here can hold a value to; beside them the
/// value with which they say nothing.
const UNSUPPORTED: [(&str, Option<Value>); 24] = [
    ("$dynamicRef", None),
    ("$recursiveRef", None),
    ("contains", None),
    ("contentSchema", None),
    ("dependencies", None),
    ("dependentRequired", None),
    ("dependentSchemas", None),
    ("disallow", None),
    ("divisibleBy", None),
    ("else", None),
    ("extends", None),
    ("if", None),
    ("maxContains", None),
    ("maximumCanEqual", None),
    ("minContains", None),
    ("minimumCanEqual", None),
    ("not", Some(Value::Bool(false))),
    ("nullable", Some(Value::Bool(false))),
    ("propertyNames", Some(Value::Bool(true))),
    ("then", None),
    ("unevaluatedItems", Some(Value::Bool(true))),
    ("unevaluatedProperties", Some(Value::Bool(true))),
    ("uniqueItems", Some(Value::Bool(false))),
    ("x-guidance", None),
];

/// White space between the parts: none, a space, or a line with its indentation. Unlimited white space
/// is what small models end in.
const WHITE_SPACE: &str = r"\x20|\n[\x20\t]{0,32}";

fn options() -> Value {
    json!({"whitespace_pattern": WHITE_SPACE})
}

pub fn any_object() -> Value {
    json!({"type": "object", "x-guidance": options()})
}

/// The schema as the crate takes it.
pub fn prepare(text: &str) -> Result<Value, String> {
    prepare_value(serde_json::from_str(text).map_err(|e| format!("it is not JSON: {e}"))?)
}

pub fn prepare_value(mut root: Value) -> Result<Value, String> {
    let parts = count(&root);
    if parts > MOST_PARTS {
        return Err(format!("it has {parts} parts, at most {MOST_PARTS} are taken"));
    }
    check(&root)?;
    ready(&mut root);
    match root {
        Value::Bool(true) => Ok(json!({"x-guidance": options()})),
        Value::Bool(false) => Err("false allows nothing".to_string()),
        Value::Object(mut map) => {
            map.insert("x-guidance".to_string(), options());
            Ok(Value::Object(map))
        }
        _ => Err("a schema is an object or a boolean".to_string()),
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

fn check(root: &Value) -> Result<(), String> {
    let mut checker = Checker { root, seen: HashSet::new(), waiting: vec![(String::new(), root)] };
    while let Some((path, schema)) = checker.waiting.pop() {
        checker.schema(&path, schema)?;
    }
    Ok(())
}

struct Checker<'a> {
    root: &'a Value,
    seen: HashSet<String>, // references that were followed
    waiting: Vec<(String, &'a Value)>,
}

fn at(path: &str, what: impl std::fmt::Display) -> String {
    match path {
        "" => what.to_string(),
        _ => format!("{path}: {what}"),
    }
}

fn step(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

impl<'a> Checker<'a> {
    fn schema(&mut self, path: &str, schema: &'a Value) -> Result<(), String> {
        let map = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(map) => map,
            other => return Err(at(path, format!("a schema is an object or a boolean, not {}", shown(other)))),
        };
        for (key, value) in map {
            self.keyword(&step(path, key), key, value, map).map_err(|e| match e.as_str() {
                "" => at(path, format!("unsupported keyword \"{key}\"")),
                _ => e,
            })?;
        }
        Ok(())
    }

    /// An empty error: the keyword is not supported.
    fn keyword(&mut self, path: &str, key: &str, value: &'a Value, map: &'a Map<String, Value>) -> Result<(), String> {
        let wrong = |want: &str| Err(at(path, format!("want {want}, not {}", shown(value))));
        if let Some((_, neutral)) = UNSUPPORTED.iter().find(|(name, _)| *name == key) {
            let neutral = neutral.as_ref() == Some(value);
            // What stands beside a missing "if" or "contains" says nothing.
            let alone = match key {
                "then" | "else" => !map.contains_key("if"),
                "minContains" | "maxContains" => !map.contains_key("contains"),
                _ => false,
            };
            return if neutral || alone { Ok(()) } else { Err(String::new()) };
        }
        match key {
            "properties" | "patternProperties" => match value {
                Value::Object(_) if key == "properties" && optional(map) > MOST_OPTIONAL => Err(at(
                    path,
                    format!(
                        "{} names that are not in \"required\", at most {MOST_OPTIONAL} are taken",
                        optional(map)
                    ),
                )),
                Value::Object(children) => {
                    for (name, child) in children {
                        if key == "patternProperties" {
                            check_expression(name).map_err(|e| at(&step(path, name), e))?;
                        }
                        self.waiting.push((step(path, name), child));
                    }
                    Ok(())
                }
                _ => wrong("an object"),
            },
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => match value {
                Value::Array(children) if !children.is_empty() => {
                    self.all(path, children);
                    Ok(())
                }
                _ => wrong("a list of schemas"),
            },
            "items" | "additionalItems" | "additionalProperties" => {
                match value {
                    Value::Array(children) if key == "items" => self.all(path, children),
                    _ => self.waiting.push((path.to_string(), value)),
                }
                Ok(())
            }
            "$ref" => match value.as_str() {
                Some(reference) => self.reference(path, reference),
                None => wrong("text"),
            },
            "type" => {
                let known = |v: &Value| v.as_str().is_some_and(|t| TYPES.contains(&t));
                let good = known(value) || value.as_array().is_some_and(|a| !a.is_empty() && a.iter().all(known));
                if good { Ok(()) } else { wrong(&format!("one of {} or a list of them", TYPES.join(", "))) }
            }
            "enum" => match value {
                Value::Array(options) if options.len() > MOST_OPTIONS => {
                    Err(at(path, format!("{} values, at most {MOST_OPTIONS} are taken", options.len())))
                }
                Value::Array(options) if !options.is_empty() => Ok(()),
                _ => wrong("a list of values"),
            },
            "format" => match value.as_str() {
                Some(format) if FORMATS.contains(&format) => Ok(()),
                Some(_) => wrong(&format!("a format that is known here ({})", FORMATS.join(", "))),
                None => wrong("text"),
            },
            "pattern" => match value.as_str() {
                Some(text) => check_expression(text).map_err(|e| at(path, e)),
                None => wrong("text"),
            },
            "required" => match value {
                Value::Array(names) if names.iter().all(Value::is_string) => Ok(()),
                _ => wrong("a list of names"),
            },
            "minProperties" | "maxProperties" if has_optional(map) => {
                Err(at(path, "can only be held to where every name of \"properties\" is in \"required\""))
            }
            // Names that nobody wrote down may come twice, which counts once.
            "minProperties" if is_open(map) && value.as_u64() > Some(distinct(map)) => Err(at(
                path,
                format!(
                    "{} different names cannot be promised where names are free: name more in \"required\", or \
                     set \"additionalProperties\" to false",
                    shown(value)
                ),
            )),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                if value.as_u64().is_some() { Ok(()) } else { wrong("a whole number from 0 up") }
            }
            "minimum" | "maximum" => if value.is_number() { Ok(()) } else { wrong("a number") },
            "exclusiveMinimum" | "exclusiveMaximum" => {
                if value.is_number() || value.is_boolean() { Ok(()) } else { wrong("a number") }
            }
            "multipleOf" => {
                if value.as_f64().is_some_and(|n| n > 0.0) { Ok(()) } else { wrong("a number above 0") }
            }
            _ => Ok(()), // says nothing about the value, or is unknown and so an annotation
        }
    }

    fn all(&mut self, path: &str, children: &'a [Value]) {
        for (i, child) in children.iter().enumerate() {
            self.waiting.push((step(path, &i.to_string()), child));
        }
    }

    /// What a reference into this document leads to is looked at too, wherever it stands.
    fn reference(&mut self, path: &str, reference: &str) -> Result<(), String> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Ok(()); // another base: the crate resolves it, or says that it cannot
        };
        if !(pointer.is_empty() || pointer.starts_with('/')) || !self.seen.insert(reference.to_string()) {
            return Ok(());
        }
        let pointer = percent_decoded(pointer);
        if let Some(target) = self.root.pointer(&pointer) {
            self.waiting.push((pointer, target));
            return Ok(());
        }
        // Inside an embedded resource the pointer starts at that resource: the crate will see.
        if has_id(self.root) {
            return Ok(());
        }
        Err(at(path, format!("{reference:?} leads nowhere in this schema")))
    }
}

fn has_optional(map: &Map<String, Value>) -> bool {
    optional(map) > 0
}

/// Names that need not be there.
fn optional(map: &Map<String, Value>) -> usize {
    let required: HashSet<&str> = map
        .get("required")
        .and_then(Value::as_array)
        .map_or_else(HashSet::new, |names| names.iter().filter_map(Value::as_str).collect());
    map.get("properties")
        .and_then(Value::as_object)
        .map_or(0, |named| named.keys().filter(|name| !required.contains(name.as_str())).count())
}

fn is_open(map: &Map<String, Value>) -> bool {
    map.contains_key("patternProperties") || map.get("additionalProperties") != Some(&Value::Bool(false))
}

/// Names that are there in any case, or one when there are any.
fn distinct(map: &Map<String, Value>) -> u64 {
    map.get("required").and_then(Value::as_array).map_or(0, |names| names.len() as u64).max(1)
}

fn has_id(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.contains_key("$id") || map.contains_key("id") || map.values().any(has_id),
        Value::Array(list) => list.iter().any(has_id),
        _ => false,
    }
}

fn percent_decoded(pointer: &str) -> String {
    let bytes = pointer.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| pointer.to_string())
}

/// Makes a checked schema what the crate takes: keywords with the value that says nothing go, for the
/// crate refuses the keyword, and patterns are written so that it reads them as they are meant.
fn ready(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let lone_if = !map.contains_key("if");
            let lone_contains = !map.contains_key("contains");
            map.retain(|key, value| {
                let beside = match key.as_str() {
                    "then" | "else" => lone_if,
                    "minContains" | "maxContains" => lone_contains,
                    _ => false,
                };
                let neutral = UNSUPPORTED
                    .iter()
                    .any(|(name, neutral)| name == key && neutral.as_ref() == Some(value));
                !(neutral || beside)
            });
            for (key, value) in map {
                // Values, and names of properties, are not schemas.
                match key.as_str() {
                    "const" | "enum" | "default" | "examples" => {}
                    "pattern" => {
                        if let Some(mended) = value.as_str().and_then(mend) {
                            *value = Value::String(mended);
                        }
                    }
                    "patternProperties" => {
                        if let Value::Object(children) = value {
                            let old = std::mem::take(children);
                            children.extend(old.into_iter().map(|(name, mut child)| {
                                ready(&mut child);
                                (mend(&name).unwrap_or(name), child)
                            }));
                        }
                    }
                    "properties" | "$defs" | "definitions" => {
                        if let Value::Object(children) = value {
                            children.values_mut().for_each(ready);
                        }
                    }
                    _ => ready(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(ready),
        _ => {}
    }
}
