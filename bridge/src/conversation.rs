//! From a conversation in OpenAI's form to what a template sees, and to the prompt.
//!
//! Special tokens that stand in the conversation are text. Before rendering they are broken by a
//! character that no text may hold (a Unicode noncharacter); after it that character is taken out and
//! the places are handed on as cuts, over which no special token reaches. So what the template wrote
//! itself stays special.

use crate::added::AddedTokens;
use crate::template::{on_own_stack, Failure, Template, Time};
use minijinja::value::{Enumerator, Object, ObjectExt, ObjectRepr};
use minijinja::{Error, State, Value};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

#[derive(serde::Deserialize)]
pub struct Request {
    pub messages: Vec<Json>,
    #[serde(default)]
    pub tools: Vec<Json>,
    #[serde(default)]
    pub extra: Map<String, Json>,
    /// bos_token and the like, which the template may write as special tokens.
    #[serde(default)]
    pub special: Map<String, Json>,
    pub add_generation_prompt: bool,
}

pub struct Prompt {
    pub text: String,
    /// Byte positions over which no special token reaches, ascending.
    pub cuts: Vec<u32>,
}

/// In what form arguments of tool calls are shown.
#[derive(Clone, Copy, PartialEq)]
enum Arguments {
    Objects,
    Texts,
}

const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

impl Request {
    pub fn parse(json: &str) -> Result<Request, String> {
        let mut request: Request = serde_json::from_str(json).map_err(|e| e.to_string())?;
        for message in &mut request.messages {
            let Json::Object(fields) = message else {
                return Err("a message is no object".to_string());
            };
            *fields = tidy(std::mem::take(fields));
        }
        Ok(request)
    }

    fn has_calls(&self) -> bool {
        self.messages.iter().any(|m| m["tool_calls"].as_array().is_some_and(|c| !c.is_empty()))
    }

    /// All texts from outside.
    fn visit<'a>(&'a self, seen: &mut dyn FnMut(&'a str)) {
        self.messages.iter().chain(&self.tools).for_each(|json| visit(json, seen));
        for (key, value) in &self.extra {
            seen(key);
            visit(value, seen);
        }
    }
}

/// Empty fields are left out (templates handle a missing one, not a null), and reasoning goes under
/// the names that templates know.
fn tidy(fields: Map<String, Json>) -> Map<String, Json> {
    let fields: Map<String, Json> = fields.into_iter().filter(|(_, v)| !v.is_null()).collect();
    let Some(reasoning) = REASONING.iter().find_map(|name| fields.get(*name).cloned()) else {
        return fields;
    };
    let mut out = Map::new();
    out.insert("thinking".to_string(), reasoning.clone());
    out.extend(fields);
    out.insert("reasoning_content".to_string(), reasoning);
    out
}

fn visit<'a>(json: &'a Json, seen: &mut dyn FnMut(&'a str)) {
    match json {
        Json::String(text) => seen(text),
        Json::Array(items) => items.iter().for_each(|item| visit(item, seen)),
        Json::Object(fields) => fields.iter().for_each(|(key, value)| {
            seen(key);
            visit(value, seen);
        }),
        _ => {}
    }
}

/// A JSON object as Python's dict: an attribute is a method before it is an entry.
#[derive(Debug)]
pub struct Dict {
    entries: Value,
    /// Of arguments that came as text: set when they are printed as they are, for then the template
    /// wanted the text.
    printed: Option<Arc<AtomicBool>>,
}

const METHODS: [&str; 5] = ["get", "items", "keys", "values", "copy"];

impl Object for Dict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.entries.as_object()?.get_value(key)
    }
    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        match METHODS.contains(&key) {
            true => Some(Value::from_object(Method { of: self.entries.clone(), name: key.to_string() })),
            false => self.entries.as_object()?.get_value_by_str(key),
        }
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|this| match this.entries.try_iter() {
            Ok(keys) => Box::new(keys),
            Err(_) => Box::new(std::iter::empty()),
        })
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.entries.len()
    }
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(printed) = &self.printed {
            printed.store(true, Ordering::Relaxed);
        }
        fmt::Debug::fmt(&self.entries, f)
    }
}

/// A method that was not called yet.
#[derive(Debug)]
struct Method {
    of: Value,
    name: String,
}

impl Object for Method {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        self.of.call_method(state, &self.name, args)
    }
    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

/// Breaks special tokens in texts from outside.
struct Guard<'a> {
    tokens: &'a AddedTokens,
    sentinel: char,
    /// Tokens left whole in messages of the assistant (see Renderer::guarded).
    spared: BTreeSet<u32>,
}

impl Guard<'_> {
    fn apply<'t>(&self, text: &'t str, spare: bool) -> Cow<'t, str> {
        let mut breaks: Vec<usize> = Vec::new();
        self.tokens.each_special(text, |id, begin| {
            if !(spare && self.spared.contains(&id)) {
                breaks.push(begin + text[begin..].chars().next().map_or(1, char::len_utf8));
            }
        });
        if breaks.is_empty() {
            return Cow::Borrowed(text);
        }
        breaks.sort_unstable();
        breaks.dedup();
        let mut out = String::with_capacity(text.len() + breaks.len() * 3);
        let mut last = 0;
        for at in breaks {
            out.push_str(&text[last..at]);
            out.push(self.sentinel);
            last = at;
        }
        out.push_str(&text[last..]);
        Cow::Owned(out)
    }
}

fn dict(
    entries: impl IntoIterator<Item = (Value, Value)>,
    printed: Option<Arc<AtomicBool>>,
) -> Value {
    Value::from_object(Dict { entries: Value::from_pairs(entries), printed })
}

struct Converter<'a> {
    guard: Option<&'a Guard<'a>>,
    arguments: Arguments,
    printed: Arc<AtomicBool>,
    spare: bool,
}

impl Converter<'_> {
    fn text(&self, text: &str) -> Value {
        match self.guard {
            Some(guard) => Value::from(guard.apply(text, self.spare).as_ref()),
            None => Value::from(text),
        }
    }

    fn value(&self, json: &Json) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(v) => Value::from(*v),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(v), _) => Value::from(v),
                (_, Some(v)) => Value::from(v),
                _ => Value::from(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => self.text(text),
            Json::Array(items) => Value::from(items.iter().map(|v| self.value(v)).collect::<Vec<_>>()),
            Json::Object(fields) => self.object(fields),
        }
    }

    fn object(&self, fields: &Map<String, Json>) -> Value {
        dict(fields.iter().map(|(key, value)| (self.text(key), self.value(value))), None)
    }

    fn message(&mut self, message: &Json) -> Value {
        let Json::Object(fields) = message else {
            return self.value(message);
        };
        self.spare = fields.get("role").and_then(Json::as_str) == Some("assistant");
        let pairs: Vec<(Value, Value)> = fields
            .iter()
            .map(|(key, value)| {
                let value = match value {
                    Json::Array(calls) if key == "tool_calls" => {
                        Value::from(calls.iter().map(|call| self.call(call)).collect::<Vec<_>>())
                    }
                    other => self.value(other),
                };
                (self.text(key), value)
            })
            .collect();
        self.spare = false;
        dict(pairs, None)
    }

    /// A tool call, or the function inside it.
    fn call(&self, call: &Json) -> Value {
        let Json::Object(fields) = call else {
            return self.value(call);
        };
        let pairs = fields.iter().map(|(key, value)| {
            let value = match (key.as_str(), value) {
                ("function", Json::Object(_)) => self.call(value),
                ("arguments", _) => self.arguments(value),
                _ => self.value(value),
            };
            (self.text(key), value)
        });
        dict(pairs, None)
    }

    fn arguments(&self, value: &Json) -> Value {
        match (self.arguments, value) {
            (Arguments::Objects, Json::String(text)) => {
                let parsed: Option<Map<String, Json>> = match text.trim().is_empty() {
                    true => Some(Map::new()),
                    false => serde_json::from_str(text).ok(),
                };
                match parsed {
                    Some(fields) => dict(
                        fields.iter().map(|(key, value)| (self.text(key), self.value(value))),
                        Some(self.printed.clone()),
                    ),
                    None => self.text(text),
                }
            }
            (Arguments::Texts, Json::Object(_) | Json::Array(_)) => {
                let mut writer = crate::python::Json::default();
                match writer.write(&self.value(value), 0) {
                    Ok(()) => Value::from(writer.out),
                    Err(_) => self.value(value),
                }
            }
            _ => self.value(value),
        }
    }
}

struct Renderer<'a> {
    template: &'a Template,
    request: &'a Request,
    now: &'a Time,
    size: usize,
}

impl Renderer<'_> {
    /// The text, and whether parsed arguments were printed as they are.
    fn once(&self, guard: Option<&Guard>, arguments: Arguments) -> Result<(String, bool), Failure> {
        let printed = Arc::new(AtomicBool::new(false));
        let mut converter = Converter { guard, arguments, printed: printed.clone(), spare: false };
        let request = self.request;
        let mut pairs: Vec<(Value, Value)> = Vec::new();
        for (key, value) in &request.special {
            let plain = Converter { guard: None, ..converter };
            pairs.push((Value::from(key.as_str()), plain.value(value)));
            converter = plain;
            converter.guard = guard;
        }
        for (key, value) in &request.extra {
            pairs.push((Value::from(key.as_str()), converter.value(value)));
        }
        let mut put = |name: &str, value: Value| pairs.push((Value::from(name), value));
        let messages: Vec<Value> = request.messages.iter().map(|m| converter.message(m)).collect();
        put("messages", Value::from(messages));
        put("tools", match request.tools.is_empty() {
            true => Value::from(()),
            false => Value::from(request.tools.iter().map(|t| converter.value(t)).collect::<Vec<_>>()),
        });
        if !request.extra.contains_key("documents") {
            put("documents", Value::from(()));
        }
        put("add_generation_prompt", Value::from(request.add_generation_prompt));
        let text = self.template.render(Value::from_pairs(pairs), self.now, self.size)?;
        Ok((text, printed.load(Ordering::Relaxed)))
    }

    /// Arguments of tool calls as objects; as text when the template cannot do with objects.
    fn with_arguments(&self, guard: Option<&Guard>) -> Result<String, Failure> {
        let objects = self.once(guard, Arguments::Objects);
        if !self.request.has_calls() || matches!(objects, Ok((_, false))) {
            return objects.map(|done| done.0);
        }
        match (objects, self.once(guard, Arguments::Texts)) {
            (_, Ok((text, _))) => Ok(text),
            (Ok((text, _)), _) => Ok(text),
            (Err(failure), _) => Err(failure),
        }
    }

    fn guarded(&self, tokens: &AddedTokens) -> Result<Prompt, Failure> {
        let mut used = BTreeSet::new(); // special tokens that stand in the conversation
        self.request.visit(&mut |text| tokens.each_special(text, |id, _| {
            used.insert(id);
        }));
        let whole = self.with_arguments(None)?;
        if used.is_empty() {
            return Ok(Prompt { text: whole, cuts: Vec::new() });
        }
        let mut guard = Guard { tokens, sentinel: self.free_sentinel(), spared: BTreeSet::new() };
        let broken = self.with_arguments(Some(&guard)).map(|text| self.finish(&text, &guard));
        if broken.as_ref().is_ok_and(|prompt| prompt.text == whole) {
            return broken;
        }
        // The template looks for such a token itself, say the end of the thoughts in an earlier answer.
        // In messages of the assistant, who wrote it, it may stay whole; elsewhere it stays text.
        let mut tries: Vec<BTreeSet<u32>> = used.iter().map(|id| BTreeSet::from([*id])).collect();
        tries.truncate(16);
        tries.push(used);
        for spared in tries {
            guard.spared = spared;
            let prompt = self.with_arguments(Some(&guard)).map(|text| self.finish(&text, &guard));
            if prompt.as_ref().is_ok_and(|prompt| prompt.text == whole) {
                return prompt;
            }
        }
        broken
    }

    /// A noncharacter that the conversation does not hold.
    fn free_sentinel(&self) -> char {
        let mut seen = BTreeSet::new();
        self.request.visit(&mut |text| {
            seen.extend(text.chars().filter(|c| ('\u{fdd0}'..='\u{fdef}').contains(c)));
        });
        ('\u{fdd0}'..='\u{fdef}').find(|c| !seen.contains(c)).unwrap_or('\u{fdd0}')
    }

    fn finish(&self, text: &str, guard: &Guard) -> Prompt {
        let mut prompt = Prompt { text: String::with_capacity(text.len()), cuts: Vec::new() };
        for (i, part) in text.split(guard.sentinel).enumerate() {
            if i > 0 {
                prompt.cuts.push(prompt.text.len() as u32);
            }
            prompt.text.push_str(part);
        }
        prompt.cuts.dedup();
        prompt
    }
}

/// The prompt of a conversation; with the special tokens of a vocabulary, these are kept apart from
/// the same characters in the conversation.
pub fn render(
    template: &Template,
    request_json: &str,
    now: &Time,
    tokens: Option<&AddedTokens>,
) -> Result<Prompt, Failure> {
    let request = Request::parse(request_json)
        .map_err(|message| Failure { message, refused: false })?;
    let renderer = Renderer { template, request: &request, now, size: request_json.len() };
    on_own_stack(|| match tokens {
        Some(tokens) => renderer.guarded(tokens),
        None => renderer.with_arguments(None).map(|text| Prompt { text, cuts: Vec::new() }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::added::AddedToken;

    const NOW: Time = Time {
        year: 2026, month: 1, day: 1, hour: 0, minute: 0, second: 0, weekday: 4, yearday: 0,
    };

    fn tokens() -> AddedTokens {
        let list = ["<s>", "<|end|>", "</think>"].iter().enumerate().map(|(id, text)| AddedToken {
            id: id as u32,
            content: text.to_string(),
            special: true,
            ..Default::default()
        });
        AddedTokens::new(list.collect()).unwrap()
    }

    fn prompt(template: &str, request: &str) -> Result<Prompt, String> {
        let template = Template::new(template).map_err(|f| f.message)?;
        render(&template, request, &NOW, Some(&tokens())).map_err(|f| f.message)
    }

    #[test]
    fn tokens_of_the_user_are_cut() {
        let template = "{{ bos_token }}{% for m in messages %}{{ m.content }}<|end|>{% endfor %}";
        let request = r#"{"messages": [{"role": "user", "content": "a<|end|>b<s>"}],
            "special": {"bos_token": "<s>"}, "add_generation_prompt": true}"#;
        let made = prompt(template, request).unwrap();
        assert_eq!(made.text, "<s>a<|end|>b<s><|end|>");
        assert_eq!(made.cuts, [5, 13]);
    }

    #[test]
    fn templates_still_find_what_they_look_for() {
        let template = "{% for m in messages %}{{ m.role }}:{{ m.content.split('</think>')[-1] }}<|end|>{% endfor %}";
        let request = r#"{"messages": [{"role": "assistant", "content": "x</think>y<|end|>"}],
            "add_generation_prompt": true}"#;
        let made = prompt(template, request).unwrap();
        assert_eq!(made.text, "assistant:y<|end|><|end|>");
        assert_eq!(made.cuts, [12]);
    }

    #[test]
    fn attributes_are_methods_first() {
        let template = "{% for k, v in tools[0].p.items() %}{{ k }}:{{ v.items is mapping }},{{ v['items'] is mapping }},{{ v.get('items').t }},{{ 'items' in v }};{% endfor %}";
        let request = r#"{"messages": [], "tools": [{"p": {"a": {"items": {"t": 1}}, "b": {}}}],
            "add_generation_prompt": true}"#;
        let made = prompt(template, request).unwrap();
        assert_eq!(made.text, "a:False,True,1,True;b:False,False,,False;");
    }

    const CALL: &str = r#"{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant",
        "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f",
        "arguments": "{\"city\":\"Zürich\",\"n\":2}"}}]}, {"role": "tool", "tool_call_id": "c1",
        "content": "ok"}], "add_generation_prompt": false}"#;

    #[test]
    fn arguments_in_the_form_the_template_needs() {
        let a = "{% for tc in messages[1].tool_calls %}{% set a = tc.function.arguments %}{% if a is mapping %}{% for k, v in a|items %}{{ k }}={{ v|tojson }};{% endfor %}{% endif %}{% endfor %}";
        assert_eq!(prompt(a, CALL).unwrap().text, "city=\"Zürich\";n=2;");
        let text = r#"{"city":"Zürich","n":2}"#;
        for b in [
            "{{ 'ARGS:' + messages[1].tool_calls[0].function.arguments }}",
            "{{ 'ARGS:' ~ messages[1].tool_calls[0].function.arguments }}",
            "ARGS:{{ messages[1].tool_calls[0].function.arguments }}",
            "ARGS:{{ messages[1].tool_calls[0].function.arguments|string }}",
        ] {
            assert_eq!(prompt(b, CALL).unwrap().text, format!("ARGS:{text}"), "{b}");
        }
        let c = "{{ messages[1].role + (messages[1].content or '') }}";
        assert_eq!(prompt(c, CALL).unwrap().text, "assistant");
        let json = "{{ messages[1].tool_calls[0].function.arguments|tojson }}";
        assert_eq!(prompt(json, CALL).unwrap().text, r#"{"city": "Zürich", "n": 2}"#);
        for bad in [r#""not json""#, r#""""#, "3", "[1]"] {
            let request = CALL.replace(r#""{\"city\":\"Zürich\",\"n\":2}""#, bad);
            for template in [a, json, c] {
                let _ = prompt(template, &request);
            }
        }
    }
}
