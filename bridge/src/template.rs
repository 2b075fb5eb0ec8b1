//! Chat templates: minijinja with the environment that Hugging Face's templates are written for.

use crate::python;
use crate::rewrite::rewrite;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{escape_formatter, Environment, Error, ErrorKind, Output, State, Value};
use minijinja_contrib::pycompat;
use std::fmt;
use std::io::Write;

const NAME: &str = "chat";
/// Templates are compiled and run on a stack of our own, whatever thread asks: what the bounds below
/// allow was measured to need a sixth of it.
const STACK: usize = 64 << 20;
/// Work allowed for one prompt; a unit is an instruction or 64 bytes of data. The size of the
/// conversation is added.
const FUEL: u64 = 4_000_000;
const MOST_OUTPUT: usize = 256 << 20;
const MOST_RECURSION: usize = 300;
/// The name under which the time of the rendering reaches strftime_now.
const NOW: &str = "__now__";

pub struct Template {
    env: Environment<'static>,
}

/// Why a template gave no text.
pub struct Failure {
    pub message: String,
    /// By raise_exception: the message is the template's own.
    pub refused: bool,
}

#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// Local time, split up.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Time {
    pub year: i32,
    pub month: i32, // 1 to 12
    pub day: i32,
    pub hour: i32,
    pub minute: i32,
    pub second: i32,
    pub weekday: i32, // 0: Sunday
    pub yearday: i32, // 0: 1 January
}

impl Template {
    pub fn new(source: &str) -> Result<Template, Failure> {
        on_own_stack(|| Self::compile(source))
    }

    fn compile(source: &str) -> Result<Template, Failure> {
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|e| failure(&e))?;
        let mut env = Environment::new();
        env.set_syntax(syntax);
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_recursion_limit(MOST_RECURSION);
        env.set_unknown_method_callback(method);
        env.set_formatter(print);
        env.add_function("raise_exception", raise_exception);
        env.add_function("strftime_now", strftime_now);
        env.add_filter("tojson", tojson);
        python::add_to(&mut env);
        // As the reference: any line end is one.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let source = rewrite(&source).map_err(|message| Failure { message, refused: false })?;
        env.add_template_owned(NAME, source).map_err(|e| failure(&e))?;
        Ok(Template { env })
    }

    /// `input_size`: bytes of the conversation, which the bounds grow with.
    pub fn render(&self, context: Value, now: &Time, input_size: usize) -> Result<String, Failure> {
        let now = Value::from_pairs([(NOW, Value::from(encode_time(now)))]);
        let context = minijinja::value::merge_maps([context, now]);
        let mut env = self.env.clone();
        env.set_fuel(Some(FUEL + 4 * input_size as u64));
        let mut out = Bounded(Vec::new());
        env.get_template(NAME)
            .and_then(|template| template.render_captured_to(context, &mut out).map(|_| ()))
            .map_err(|e| failure(&e))?;
        String::from_utf8(out.0).map_err(|e| Failure { message: e.to_string(), refused: false })
    }
}

/// Runs `body` on a thread with a known stack. Panics come back as panics.
pub fn on_own_stack<R: Send>(body: impl FnOnce() -> Result<R, Failure> + Send) -> Result<R, Failure> {
    std::thread::scope(|scope| {
        let started = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body);
        match started.map(|thread| thread.join()) {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(Failure { message: format!("no thread can be started for it (too little memory, or too many processes): {error}"), refused: false }),
        }
    })
}

struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + data.len() > MOST_OUTPUT {
            return Err(std::io::Error::other("the prompt is too long"));
        }
        self.0.extend_from_slice(data);
        Ok(data.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn failure(error: &Error) -> Failure {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(refusal) = inner.downcast_ref::<Refusal>() {
            return Failure { message: refusal.0.clone(), refused: true };
        }
        source = inner.source();
    }
    let what = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "takes too long; it may loop for ever".to_string(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let message = match error.line() {
        Some(line) => format!("line {line}: {what}"),
        None => what,
    };
    Failure { message, refused: false }
}

fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match python::float(value) {
        Some(number) => out.write_str(&python::print_float(number)).map_err(Error::from),
        None => escape_formatter(out, state, value),
    }
}

/// Methods of Python's types: those that pycompat lacks or has otherwise, then pycompat's.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match python::method(value, name, args) {
        Some(result) => result,
        None => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn raise_exception(message: Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refusal(message)))
}

fn encode_time(time: &Time) -> String {
    let Time { year, month, day, hour, minute, second, weekday, yearday } = time;
    format!("{year} {month} {day} {hour} {minute} {second} {weekday} {yearday}")
}

fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    let now = state.lookup(NOW).map(|v| v.to_string()).unwrap_or_default();
    let parts: Vec<i32> = now.split(' ').filter_map(|part| part.parse().ok()).collect();
    let [year, month, day, hour, minute, second, weekday, yearday] = parts[..] else {
        return Err(Error::new(ErrorKind::InvalidOperation, "strftime_now: no time"));
    };
    let time = Time { year, month, day, hour, minute, second, weekday, yearday };
    Ok(python::strftime(format, &time))
}

fn tojson(value: &Value, positional: Rest<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let mut positional = positional.iter().cloned();
    let mut argument = |name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.next() {
            Some(value) => Some(value),
            None => kwargs.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|v| !v.is_none()))
    };
    let ensure_ascii = argument("ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = argument("indent")?;
    let separators = argument("separators")?;
    let sort_keys = argument("sort_keys")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let indent = match indent {
        Some(text) if text.kind() == ValueKind::String => Some(text.to_string()),
        Some(width) => Some(" ".repeat(i64::try_from(width)?.clamp(0, 1 << 10) as usize)),
        None => None,
    };
    let (item, key) = match separators {
        Some(pair) => {
            (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string())
        }
        None => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
    };
    let mut writer = python::Json { out: String::new(), ensure_ascii, indent, item, key, sort_keys };
    writer.write(value, 0)?;
    Ok(writer.out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Time = Time {
        year: 2026, month: 7, day: 4, hour: 12, minute: 5, second: 9, weekday: 6, yearday: 184,
    };

    fn render(source: &str, context: &str) -> Result<String, String> {
        let context: serde_json::Value = serde_json::from_str(context).unwrap();
        let template = Template::new(source).map_err(|f| f.message)?;
        template.render(serde_json::from_value(context).unwrap(), &NOON, 0).map_err(|f| f.message)
    }

    fn ok(source: &str, context: &str) -> String {
        render(source, context).unwrap()
    }

    #[test]
    fn white_space_of_blocks() {
        let messages = r#"{"messages": [{"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]}"#;
        let source = "{% for m in messages %}\n    {% if m.role == 'user' %}\nU:{{ m.content }}\n    {% endif %}\n{% endfor %}\nEND";
        assert_eq!(ok(source, messages), "U:a\nU:c\nEND");
    }

    #[test]
    fn helpers() {
        assert_eq!(ok("{{ strftime_now('%Y-%m-%d %H:%M|%d %b %Y|%A %j %z%Z%%') }}", "{}"),
            "2026-07-04 12:05|04 Jul 2026|Saturday 185 %");
        assert_eq!(ok("{% generation %}x{% endgeneration %}", "{}"), "x");
        assert_eq!(ok("a\n {%- generation +%}\nx\n{%- endgeneration -%}\n b", "{}"), "a\nxb");
        assert_eq!(ok("{%- set x = 1 -%}{%- for i in range(3) -%}{%- set x = x + 1 -%}{%- endfor -%}{{ x }}", "{}"), "1");
        let messages = r#"{"messages": [{"content": "a"}, {"content": "b"}]}"#;
        assert_eq!(ok("{{ messages[1:][0].content }}|{{ messages[-1]['content'] }}|{{ 'abc'[::-1] }}|{{ 'a,b'.split(',')[1] }}|{{ none is none }}|{{ nope is defined }}", messages),
            "b|b|cba|b|True|False");
        let refused = Template::new("{{ raise_exception('no ' ~ 1) }}").ok().unwrap()
            .render(Value::from(()), &NOON, 0).err().unwrap();
        assert!(refused.refused);
        assert_eq!(refused.message, "no 1");
    }

    #[test]
    fn python_ways() {
        let context = r#"{"none": null, "list": [3, 1, 2], "d": {"b": 1, "a": 2}}"#;
        let same = [
            ("{{ 'x' is sequence }}{{ none is iterable }}{{ d is sequence }}", "TrueFalseTrue"),
            ("{{ '%s-%d' % ('a', 3) }}|{{ '%5.2f|' % 3.14159 }}|{{ '%s' % d }}", "a-3| 3.14||{'b': 1, 'a': 2}"),
            ("{{ '{} {x}'.format(1, x='y') }}", "1 y"),
            ("{{ list|map('string')|join('+') }}", "3+1+2"),
            ("{{ 'a'|safe + '<b>' + '\"'|safe }}", "a&lt;b&gt;\""),
            ("{{ ' a\u{1c}'.strip() }}|{{ 'a b  c'.split() }}|{{ 'a,b,c'.rsplit(',', 1) }}", "a|['a', 'b', 'c']|['a,b', 'c']"),
            ("{{ 'k=v=w'.partition('=') }}{{ 'ab'.removeprefix('a') }}{{ '7'.zfill(3) }}", "('k', '=', 'v=w')b007"),
            ("{{ [1, 'a', none, true, 1.5, {'k': (1,)}] }}", "[1, 'a', None, True, 1.5, {'k': (1,)}]"),
            ("{% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}{% for k in d|dictsort %}{{ k[0] }}{% endfor %}", "b1a2ab"),
            ("{{ list[::-1] }}{{ list[-2:] }}{{ list[:1] + list[2:] }}{{ 'abc'[1] }}", "[2, 1, 3][1, 2][3, 2]b"),
            ("{% macro m(x, y='d') %}{{ x }}{{ y }}{{ caller() if caller }}{% endmacro %}{{ m(1) }}{% call m(2, y=3) %}c{% endcall %}", "1d23c"),
            ("{% set ns = namespace(a=1) %}{% for i in list if i > 1 %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}", "6"),
            ("{% for i in list %}{% if loop.first %}{% continue %}{% endif %}{{ loop.index }}{{ i }}{% if i == 1 %}{% break %}{% endif %}{% endfor %}", "21"),
            ("{{ nope }}{{ nope|default('x') }}{{ nope is none }}{{ (nope or 'y') ~ 1 ~ none ~ true }}", "xFalsey1NoneTrue"),
            ("{{ 7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ 1 < 2 }}", "3 2 3.5 8 True"),
        ];
        for (source, want) in same {
            assert_eq!(ok(source, context), want, "{source}");
        }
        for refused in [
            "{% for x in none %}{% endfor %}", "{{ list|map('string')|tojson }}", "{{ list|map('string')|length }}",
            "{{ 'a' + 1 }}", "{{ 'a' + d }}", "{{ nope.x }}", "{{ 'a' + nope }}", "{{ list.append(1) }}", "{{ d.pop('a') }}",
            "{{ none|length }}", "{{ x|nofilter }}", "{% include 'x' %}",
        ] {
            assert!(render(refused, context).is_err(), "{refused}");
        }
    }

    #[test]
    fn json_and_floats() {
        let context = r#"{"x": {"b": [1, 2.0, 1e22, null, true, "é\"\n\u0001"], "a": {}, "c": []}}"#;
        assert_eq!(ok("{{ x|tojson }}", context),
            r#"{"b": [1, 2.0, 1e+22, null, true, "é\"\n\u0001"], "a": {}, "c": []}"#);
        assert_eq!(ok("{{ x|tojson(indent=2, sort_keys=true, ensure_ascii=true) }}", context),
            "{\n  \"a\": {},\n  \"b\": [\n    1,\n    2.0,\n    1e+22,\n    null,\n    true,\n    \"\\u00e9\\\"\\n\\u0001\"\n  ],\n  \"c\": []\n}");
        assert_eq!(ok("{{ [1,2]|tojson(separators=(',', ':')) }}", context), "[1,2]");
        assert_eq!(ok("{{ 1.0 }} {{ 1e16 }} {{ 0.00001 }} {{ 123456.75 }}", "{}"), "1.0 1e+16 1e-05 123456.75");
        assert!(render("{{ nope|tojson }}", "{}").is_err());
    }

    #[test]
    fn bounds() {
        assert!(render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "{}").unwrap_err().contains("too long"));
        assert!(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}").is_err());
        assert!(render("{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}", "{}").is_err());
        assert!(render("{% if %}", "{}").unwrap_err().starts_with("line 1"));
    }
}
