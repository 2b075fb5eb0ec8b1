//! Python's ways where minijinja has its own: printing of floats, JSON, methods, tests, formatting.

use crate::template::Time;
use crate::rewrite;
use minijinja::value::{
    from_args, Enumerator, Kwargs, Object, ObjectRepr, Rest, ValueKind, ValueOrKwargs,
};
use minijinja::{filters, Environment, Error, ErrorKind, State, Value};
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

pub fn add_to(env: &mut Environment<'static>) {
    env.add_test("sequence", is_sequence);
    env.add_test("iterable", is_iterable);
    env.add_filter(rewrite::ITERATE, iterate);
    env.add_filter(rewrite::SHALLOW, shallow);
    env.add_filter(rewrite::PERCENT, percent);
    env.add_filter(rewrite::ESCAPE, escape);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("map", map);
    env.add_filter("select", select);
    env.add_filter("reject", reject);
    env.add_filter("selectattr", selectattr);
    env.add_filter("rejectattr", rejectattr);
    env.add_filter("truncate", truncate);
    env.add_filter("wordcount", minijinja_contrib::filters::wordcount);
    env.add_test("callable", is_callable);
    env.add_global("dict", Value::from_function(dict));
}

/// Functions and macros are the only values of ours that are neither data nor collections.
fn is_callable(value: &Value) -> bool {
    value.kind() == ValueKind::Plain
}

/// Cuts a text that is longer than `length` by more than `leeway` characters, at a space unless
/// `killwords`; `end` counts.
fn truncate(text: &str, given: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let pick = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        match given.get(at) {
            Some(value) => Ok(Some(value.clone())),
            None => named.get(name),
        }
    };
    let number = |value: Option<Value>, otherwise: usize| match value {
        Some(value) => usize::try_from(value),
        None => Ok(otherwise),
    };
    let length = number(pick(0, "length")?, 255)?;
    let killwords = pick(1, "killwords")?.is_some_and(|value| value.is_true());
    let end = pick(2, "end")?.map_or_else(|| "...".to_string(), |value| value.to_string());
    let leeway = number(pick(3, "leeway")?, 5)?;
    named.assert_all_used()?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text.to_string());
    }
    let room = length.saturating_sub(end.chars().count());
    let kept: String = text.chars().take(room).collect();
    let kept = match kept.rfind(' ') {
        Some(space) if !killwords => &kept[..space],
        _ => &kept,
    };
    Ok(format!("{kept}{end}"))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// The number when it is a float.
pub fn float(value: &Value) -> Option<f64> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        f64::try_from(value.clone()).ok()
    } else {
        None
    }
}

/// repr(float): the shortest digits that read back, with an exponent from 1e16 and below 1e-4.
pub fn print_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_string();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_string();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

/// json.dumps
pub struct Json {
    pub out: String,
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item: String,
    pub key: String,
    pub sort_keys: bool,
}

impl Default for Json {
    fn default() -> Self {
        Json {
            out: String::new(),
            ensure_ascii: false,
            indent: None,
            item: ", ".to_string(),
            key: ": ".to_string(),
            sort_keys: false,
        }
    }
}

const MOST_NESTING: usize = 200;

impl Json {
    pub fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MOST_NESTING {
            return Err(invalid("tojson: nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.text(value.as_str().unwrap_or_default()),
            ValueKind::Seq => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            // Slices and the like are lazy here and lists there; generators are not.
            ValueKind::Iterable if value.downcast_object_ref::<Generator>().is_none() => {
                self.list(value, depth)?
            }
            kind => return Err(invalid(format!("Object of type {kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut any = false;
        for item in value.try_iter()? {
            if any {
                self.out.push_str(&self.item.clone());
            }
            any = true;
            self.line(depth + 1);
            self.write(&item, depth + 1)?;
        }
        if any {
            self.line(depth);
        }
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        for (i, key) in keys.iter().enumerate() {
            if i > 0 {
                self.out.push_str(&self.item.clone());
            }
            self.line(depth + 1);
            match key.kind() {
                ValueKind::String => self.text(key.as_str().unwrap_or_default()),
                ValueKind::None => self.text("null"),
                ValueKind::Bool => self.text(if key.is_true() { "true" } else { "false" }),
                ValueKind::Number => self.text(&number(key)),
                kind => return Err(invalid(format!("keys must be str, not {kind}"))),
            }
            self.out.push_str(&self.key.clone());
            self.write(&value.get_item(key)?, depth + 1)?;
        }
        if !keys.is_empty() {
            self.line(depth);
        }
        self.out.push('}');
        Ok(())
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                // Noncharacters pass: they are ours (see conversation.rs).
                '\u{fdd0}'..='\u{fdef}' => self.out.push(c),
                c if c < ' ' || (self.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn number(value: &Value) -> String {
    match float(value) {
        Some(x) if x.is_nan() => "NaN".to_string(),
        Some(x) if x.is_infinite() => if x < 0.0 { "-Infinity" } else { "Infinity" }.to_string(),
        Some(x) => print_float(x),
        None => value.to_string(),
    }
}

/// Whatever has a length and can be indexed.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
}

/// Nothing lazy is looked into: that would use it up.
fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable | ValueKind::Undefined
    )
}

fn iterate(value: Value) -> Result<Value, Error> {
    match value.is_none() {
        true => Err(invalid("'NoneType' object is not iterable")),
        false => Ok(value),
    }
}

const MOST_DEPTH: usize = 100; // of values that are kept

/// Refuses values nested without end; lazy slices become lists.
fn shallow(state: &State, value: Value) -> Result<Value, Error> {
    let lazy = value.kind() == ValueKind::Iterable
        && value.downcast_object_ref::<Generator>().is_none();
    let value = match lazy {
        true => Value::from(value.try_iter()?.collect::<Vec<_>>()),
        false => value,
    };
    let mut seen = 0;
    check_depth(&value, 0, &mut seen)?;
    state.consume_fuel(seen / 8)?;
    Ok(value)
}

fn check_depth(value: &Value, depth: usize, seen: &mut u64) -> Result<(), Error> {
    if depth > MOST_DEPTH {
        return Err(invalid("a value is nested too deeply"));
    }
    *seen += 1;
    match value.kind() {
        ValueKind::Seq => {
            for item in value.try_iter()? {
                check_depth(&item, depth + 1, seen)?;
            }
        }
        // What came in as JSON is known to be shallow.
        ValueKind::Map if value.downcast_object_ref::<crate::conversation::Dict>().is_none() => {
            for key in value.try_iter()? {
                check_depth(&value.get_item(&key)?, depth + 1, seen)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// "%s" % operand
fn percent(pattern: &str, _sign: &str, operand: Value) -> Result<String, Error> {
    let args: Vec<Value> = match operand.is_tuple() {
        true => operand.try_iter()?.collect(),
        false => vec![operand],
    };
    minijinja::formatting::format(minijinja::formatting::FormatStyle::Printf, pattern, &args)
}

/// The operand of Markup + operand.
fn escape(value: Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value);
    }
    let text = value.as_str().ok_or_else(|| invalid("can only concatenate str to Markup"))?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    Ok(Value::from_safe_string(out))
}

/// What some filters give: items that can be gone through once, without length or JSON form.
#[derive(Debug)]
struct Generator {
    items: Vec<Value>,
    spent: AtomicBool,
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.spent.swap(true, Ordering::Relaxed) {
            true => Enumerator::Empty,
            false => Enumerator::Values(self.items.clone()),
        }
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }
    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

fn generator(items: Vec<Value>) -> Value {
    Value::from_object(Generator { items, spent: AtomicBool::new(false) })
}

type More = Rest<ValueOrKwargs>;
type Name<'a> = Cow<'a, str>;

fn map(state: &mut State, value: Value, args: More) -> Result<Value, Error> {
    filters::map(state, value, args).map(generator)
}

fn select(state: &mut State, v: Value, test: Option<Name>, args: More) -> Result<Value, Error> {
    filters::select(state, v, test, args).map(generator)
}

fn reject(state: &mut State, v: Value, test: Option<Name>, args: More) -> Result<Value, Error> {
    filters::reject(state, v, test, args).map(generator)
}

fn selectattr(
    state: &mut State,
    value: Value,
    attr: Name,
    test: Option<Name>,
    args: More,
) -> Result<Value, Error> {
    filters::selectattr(state, value, attr, test, args).map(generator)
}

fn rejectattr(
    state: &mut State,
    value: Value,
    attr: Name,
    test: Option<Name>,
    args: More,
) -> Result<Value, Error> {
    filters::rejectattr(state, value, attr, test, args).map(generator)
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.downcast_object_ref::<Generator>().is_some() {
        return Err(invalid("object of type 'generator' has no len()"));
    }
    filters::length(value)
}

fn dict(positional: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let mut pairs = Vec::new();
    for value in positional.iter() {
        if value.kind() == ValueKind::Map {
            for key in value.try_iter()? {
                pairs.push((key.clone(), value.get_item(&key)?));
            }
        } else {
            for pair in value.try_iter()? {
                pairs.push((pair.get_item_by_index(0)?, pair.get_item_by_index(1)?));
            }
        }
    }
    for name in kwargs.args() {
        pairs.push((Value::from(name), kwargs.peek(name)?));
    }
    Ok(Value::from_pairs(pairs))
}

fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Methods that pycompat has not.
pub fn method(value: &Value, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    match value.kind() {
        ValueKind::String => text_method(value.as_str()?, name, args),
        ValueKind::Map if name == "copy" => Some(Ok(value.clone())),
        ValueKind::Seq if name == "index" => Some(index(value, args)),
        ValueKind::Seq if name == "copy" => Some(Ok(value.clone())),
        _ => None,
    }
}

fn index(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (Value,) = from_args(args)?;
    let found = list.try_iter()?.position(|item| item == wanted);
    found.map(Value::from).ok_or_else(|| invalid(format!("{wanted} is not in list")))
}

fn text_method(text: &str, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match name {
        "strip" | "lstrip" | "rstrip" => strip(text, name, args),
        "split" | "rsplit" => split(text, name, args),
        "partition" | "rpartition" => partition(text, name, args),
        "removeprefix" => from_args(args)
            .map(|(prefix,): (&str,)| Value::from(text.strip_prefix(prefix).unwrap_or(text))),
        "removesuffix" => from_args(args)
            .map(|(suffix,): (&str,)| Value::from(text.strip_suffix(suffix).unwrap_or(text))),
        "casefold" => Ok(Value::from(text.to_lowercase())),
        "swapcase" => Ok(Value::from(
            text.chars()
                .flat_map(|c| -> Vec<char> {
                    if c.is_uppercase() {
                        c.to_lowercase().collect()
                    } else {
                        c.to_uppercase().collect()
                    }
                })
                .collect::<String>(),
        )),
        "zfill" | "ljust" | "rjust" | "center" => pad(text, name, args),
        "index" | "rindex" => from_args(args).and_then(|(part,): (&str,)| {
            let at = if name == "index" { text.find(part) } else { text.rfind(part) };
            at.map(|at| Value::from(text[..at].chars().count()))
                .ok_or_else(|| invalid("substring not found"))
        }),
        "isdecimal" => {
            Ok(Value::from(!text.is_empty() && text.chars().all(|c| crate::unicode::is_class(c, 2))))
        }
        "isdigit" => {
            Ok(Value::from(!text.is_empty() && text.chars().all(|c| crate::unicode::is_class(c, 3))))
        }
        "expandtabs" => Ok(Value::from(text.replace('\t', "        "))),
        _ => return None,
    })
}

/// Python's white space includes U+001C to U+001F.
fn strip(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (chars,): (Option<&str>,) = from_args(args)?;
    let gone = |c: char| match chars {
        Some(chars) => chars.contains(c),
        None => is_space(c),
    };
    let mut rest = text;
    if name != "rstrip" {
        rest = rest.trim_start_matches(gone);
    }
    if name != "lstrip" {
        rest = rest.trim_end_matches(gone);
    }
    Ok(Value::from(rest))
}

fn split(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (sep, most, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let sep = match sep {
        Some(sep) => Some(sep),
        None => kwargs.get::<Option<Value>>("sep")?,
    };
    let most = match most {
        Some(most) => most,
        None => kwargs.get::<Option<i64>>("maxsplit")?.unwrap_or(-1),
    };
    kwargs.assert_all_used()?;
    let pieces = if most < 0 { usize::MAX } else { most as usize + 1 };
    let sep = match &sep {
        Some(sep) if !sep.is_none() => {
            let sep = sep.as_str().ok_or_else(|| invalid("must be str or None"))?;
            if sep.is_empty() {
                return Err(invalid("empty separator"));
            }
            Some(sep)
        }
        _ => None,
    };
    let parts: Vec<&str> = match (sep, name == "rsplit") {
        (Some(sep), false) => text.splitn(pieces, sep).collect(),
        (Some(sep), true) => {
            let mut parts: Vec<&str> = text.rsplitn(pieces, sep).collect();
            parts.reverse();
            parts
        }
        (None, false) => split_spaces(text, pieces),
        (None, true) => rsplit_spaces(text, pieces),
    };
    Ok(Value::from(parts.into_iter().map(Value::from).collect::<Vec<_>>()))
}

fn split_spaces(text: &str, pieces: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if parts.len() + 1 >= pieces {
            parts.push(rest);
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    parts
}

fn rsplit_spaces(text: &str, pieces: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if parts.len() + 1 >= pieces {
            parts.push(rest);
            break;
        }
        let begin = rest.char_indices().rev().find(|(_, c)| is_space(*c));
        let begin = begin.map_or(0, |(i, c)| i + c.len_utf8());
        parts.push(&rest[begin..]);
        rest = rest[..begin].trim_end_matches(is_space);
    }
    parts.reverse();
    parts
}

fn partition(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (sep,): (&str,) = from_args(args)?;
    if sep.is_empty() {
        return Err(invalid("empty separator"));
    }
    let parts = match (name, text.split_once(sep), text.rsplit_once(sep)) {
        ("partition", Some((head, tail)), _) => [head, sep, tail],
        ("rpartition", _, Some((head, tail))) => [head, sep, tail],
        ("partition", ..) => [text, "", ""],
        _ => ["", "", text],
    };
    let parts: Vec<Value> = parts.into_iter().map(Value::from).collect();
    Ok(Value::from(minijinja::value::Tuple::from(parts)))
}

fn pad(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let fill = if name == "zfill" { "0" } else { fill.unwrap_or(" ") };
    if fill.chars().count() != 1 {
        return Err(invalid("The fill character must be exactly one character long"));
    }
    let width = width.clamp(0, 1 << 20) as usize;
    let count = text.chars().count();
    let room = width.saturating_sub(count);
    if name == "zfill" {
        let (sign, digits) = match text.chars().next() {
            Some('+' | '-') => text.split_at(1),
            _ => ("", text),
        };
        return Ok(Value::from(format!("{sign}{}{digits}", fill.repeat(room))));
    }
    let left = match name {
        "ljust" => 0,
        "rjust" => room,
        _ => room / 2 + (room & width & 1),
    };
    Ok(Value::from(format!("{}{text}{}", fill.repeat(left), fill.repeat(room - left))))
}

/// datetime.now().strftime(format): the C library's, without a time zone.
pub fn strftime(format: &str, time: &Time) -> String {
    let mut plain = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match c {
            '\0' => {}
            '%' => match chars.next() {
                Some('z' | 'Z') => {}
                Some('f') => plain.push_str("000000"),
                Some(other) => plain.extend(['%', other]),
                None => plain.push_str("%%"),
            },
            c => plain.push(c),
        }
    }
    if plain.is_empty() {
        return plain;
    }
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    parts.tm_year = time.year - 1900;
    parts.tm_mon = (time.month - 1).clamp(0, 11);
    parts.tm_mday = time.day;
    parts.tm_hour = time.hour;
    parts.tm_min = time.minute;
    parts.tm_sec = time.second;
    parts.tm_wday = time.weekday.clamp(0, 6);
    parts.tm_yday = time.yearday;
    plain.push('\0');
    let mut out = vec![0u8; plain.len() * 32 + 64];
    let size = unsafe { c_strftime(&mut out, plain.as_bytes(), &parts) };
    out.truncate(size);
    String::from_utf8_lossy(&out).into_owned()
}

unsafe fn c_strftime(out: &mut [u8], format: &[u8], time: &libc::tm) -> usize {
    extern "C" {
        fn strftime(out: *mut u8, most: usize, format: *const u8, time: *const libc::tm) -> usize;
    }
    strftime(out.as_mut_ptr(), out.len(), format.as_ptr(), time)
}
