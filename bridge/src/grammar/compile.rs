//! Text of a grammar to a matcher at its beginning. Texts come from anybody: their size, nesting and
//! cost are limited, and what cannot be held to is refused with the reason.

use crate::grammar::ends::all_end;
use crate::grammar::matcher::{reason, Matcher};
use crate::grammar::tokens::Tokens;
use crate::grammar::{gbnf, schema};
use llguidance::api::TopLevelGrammar;
use std::sync::Arc;

const MOST_TEXT: usize = 1 << 20;
const MOST_CHOICES: usize = 10_000;
const MOST_RULES: usize = 1_500;
const MOST_NESTING: usize = 250;
/// The crate's compilers recurse over rules and groups; with the limits above this is plenty.
const STACK: usize = 256 << 20;
const NO_END: &str = "no text fits it, or a part of it leads into texts that never end";
const ONLY_EMPTY: &str = "only the empty text fits it";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    JsonSchema,
    JsonObject,
    Regex,
    Choice,
    Lark,
    Gbnf,
}

pub fn compile(tokens: &Arc<Tokens>, kind: Kind, text: &str) -> Result<Matcher, String> {
    if text.len() > MOST_TEXT {
        return Err(format!("it has {} bytes, at most {MOST_TEXT} are taken", text.len()));
    }
    // On a thread of its own for its stack; it is waited for.
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("grammar".into())
            .stack_size(STACK)
            .spawn_scoped(scope, || compile_here(tokens, kind, text))
            .map_err(|e| format!("no thread to compile it on: {e}"))?
            .join()
            .unwrap_or_else(|_| Err("internal error while compiling it".to_string()))
    })
}

fn compile_here(tokens: &Arc<Tokens>, kind: Kind, text: &str) -> Result<Matcher, String> {
    let grammar = match kind {
        Kind::JsonSchema => TopLevelGrammar::from_json_schema(schema::prepare(text)?),
        Kind::JsonObject => TopLevelGrammar::from_json_schema(schema::any_object()),
        Kind::Regex => TopLevelGrammar::from_lark(format!("start: /{}/", expression(text)?)),
        Kind::Choice => TopLevelGrammar::from_lark(choice(text)?),
        Kind::Lark => {
            check_lark(text)?;
            TopLevelGrammar::from_lark(with_schemas(text)?)
        }
        Kind::Gbnf => {
            let resolve = |name: &str| tokens.engine.token_to_id(name);
            TopLevelGrammar::from_lark(gbnf::to_lark(text, &resolve)?)
        }
    };
    let parser = tokens.factory()?.create_parser(grammar).map_err(|e| explain(&reason(format!("{e:#}"))))?;
    if !all_end(parser.parser.grammar()) {
        return Err(NO_END.to_string());
    }
    let mut matcher = Matcher::new(llguidance::Matcher::new(Ok(parser)), tokens.clone());
    // What allows nothing at all is found here, not in the middle of a request.
    let mut words = vec![0; matcher.words()];
    let mut probe = matcher.duplicate();
    let state = probe.mask(&mut words).map_err(|e| match e.as_str() {
        "NoExtensionBias" => NO_END.to_string(),
        _ => explain(&e),
    })?;
    if state.complete {
        return Err(ONLY_EMPTY.to_string());
    }
    matcher.state()?;
    Ok(matcher)
}

/// In the words of somebody who did not write the crate.
fn explain(message: &str) -> String {
    let told = [
        ("oneOf constraints are not supported", "\"oneOf\" whose options may overlap cannot be held to: make them \
          exclude each other (by a \"const\" property, or by type), or use \"anyOf\""),
        ("initial lexer configuration (grammar) too big", "it is too large or too costly to compile: simplify its \
          patterns and repetitions"),
        ("lexer error: too many states", "it is too large or too costly to compile: simplify its patterns and \
          repetitions"),
        ("CSymIdx out of range", "it is too large: it has too many parts"),
        ("Default retriever", "it refers to another document: only references inside the schema are followed"),
    ];
    match told.iter().find(|(theirs, _)| message.contains(theirs)) {
        Some((_, ours)) => ours.to_string(),
        None => message.strip_prefix("panic: ").map_or(message.to_string(), |panic| {
            format!("it cannot be compiled ({panic})")
        }),
    }
}

/// The expression matches the whole text, so that anchors around it say nothing new.
fn expression(text: &str) -> Result<String, String> {
    check_expression(text)?;
    let mut inner = text.strip_prefix('^').unwrap_or(text);
    if let Some(rest) = inner.strip_suffix('$') {
        let escapes = rest.bytes().rev().take_while(|b| *b == b'\\').count();
        inner = if escapes % 2 == 0 { rest } else { inner };
    }
    let inner = if check_expression(inner).is_ok() { inner } else { text };
    if inner.is_empty() {
        return Err(ONLY_EMPTY.to_string());
    }
    Ok(llguidance::regex_to_lark(inner, ""))
}

/// The reason in one line.
pub fn check_expression(text: &str) -> Result<(), String> {
    regex_syntax::Parser::new().parse(text).map(|_| ()).map_err(|e| {
        let told = e.to_string();
        told.rsplit("error: ").next().unwrap_or(&told).trim().to_string()
    })
}

/// text: a JSON array of strings.
fn choice(text: &str) -> Result<String, String> {
    let choices: Vec<String> =
        serde_json::from_str(text).map_err(|e| format!("the choices are not a JSON array of strings: {e}"))?;
    if choices.is_empty() {
        return Err("there is nothing to choose from".to_string());
    }
    if choices.len() > MOST_CHOICES {
        return Err(format!("it has {} choices, at most {MOST_CHOICES} are taken", choices.len()));
    }
    if choices.iter().any(String::is_empty) {
        return Err("one of the choices is empty".to_string());
    }
    let quoted: Vec<String> = choices.iter().map(|choice| literal(choice)).collect();
    Ok(format!("start: CHOICE\nCHOICE: {}\n", quoted.join(" | ")))
}

/// As Lark writes it.
pub fn literal(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default().replace('\u{7f}', "\\u007f")
}

/// Limits what the crate's parser recurses over.
fn check_lark(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut rules) = (0, 0usize, 0usize);
    while at < bytes.len() {
        if let Some(end) = end_of_quoted(bytes, at) {
            at = end;
            continue;
        }
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'~' => depth += 1, // "not" nests as well
            b'\n' => {
                if bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic) {
                    depth = 0;
                }
            }
            b':' => rules += 1,
            _ => {}
        }
        if depth > MOST_NESTING {
            return Err(format!("it is nested more than {MOST_NESTING} deep"));
        }
        at += 1;
    }
    if rules > MOST_RULES {
        return Err(format!("it has more than {MOST_RULES} rules"));
    }
    if text.contains("x-guidance") {
        return Err("\"x-guidance\" is not taken: it could loosen the grammar".to_string());
    }
    Ok(())
}

/// The schemas in a grammar are held to as those that stand alone, white space between parts included.
fn with_schemas(text: &str) -> Result<String, String> {
    const MARK: &str = "%json";
    let bytes = text.as_bytes();
    let (mut out, mut from, mut at) = (String::new(), 0, 0);
    while at < bytes.len() {
        if let Some(end) = end_of_quoted(bytes, at) {
            at = end;
            continue;
        }
        at += 1;
        if !bytes[at - 1..].starts_with(MARK.as_bytes()) {
            continue;
        }
        let begin = at - 1 + MARK.len();
        let mut values = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<serde_json::Value>();
        // What is no JSON is the crate's to complain of.
        if let Some(Ok(value)) = values.next() {
            let prepared = schema::prepare_value(value).map_err(|e| format!("{MARK}: {e}"))?;
            out.push_str(&text[from..begin]);
            out.push_str(&format!(" {prepared}"));
            at = begin + values.byte_offset();
            from = at;
        }
    }
    out.push_str(&text[from..]);
    Ok(out)
}

/// Where a comment, a text or an expression that begins here ends: behind it.
fn end_of_quoted(bytes: &[u8], begin: usize) -> Option<usize> {
    let quote = bytes[begin];
    if quote == b'#' || bytes[begin..].starts_with(b"//") {
        return Some(end_of_line(bytes, begin));
    }
    if quote != b'"' && quote != b'/' {
        return None;
    }
    let mut at = begin + 1;
    while at < bytes.len() && bytes[at] != quote && bytes[at] != b'\n' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    Some((at + usize::from(bytes.get(at) == Some(&quote))).min(bytes.len()))
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn tokens() -> Arc<Tokens> {
        // One token for each byte.
        let vocab: Vec<String> = (0..=255u8)
            .map(|byte| {
                let chars = crate::vocab::ByteChars::new();
                format!("{}:{byte}", serde_json::to_string(&chars.to_text(&[byte])).unwrap())
            })
            .collect();
        let text = format!(
            r#"{{"added_tokens":[{{"id":256,"content":"<end>","special":true}}],"pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}},"decoder":{{"type":"ByteLevel"}},"model":{{"type":"BPE","vocab":{{{}}},"merges":[]}}}}"#,
            vocab.join(",")
        );
        let engine = json::build(&text).unwrap();
        Arc::new(Tokens::new(Arc::new(engine), 260).unwrap())
    }

    fn fits(tokens: &Arc<Tokens>, kind: Kind, grammar: &str, text: &str) -> bool {
        let mut matcher = compile(tokens, kind, grammar).unwrap_or_else(|e| panic!("{grammar}: {e}"));
        let mut words = vec![0; matcher.words()];
        for byte in text.bytes() {
            matcher.mask(&mut words).unwrap();
            if words[byte as usize / 32] >> (byte % 32) & 1 == 0 {
                return false;
            }
            matcher.consume(&[byte as u32]).unwrap();
        }
        matcher.state().unwrap().accepting
    }

    fn refused(kind: Kind, grammar: &str) -> String {
        match compile(&tokens(), kind, grammar) {
            Ok(_) => panic!("taken: {grammar}"),
            Err(error) => error,
        }
    }

    #[test]
    fn kinds() {
        let t = tokens();
        assert!(fits(&t, Kind::Choice, r#"["yes","no","ye\u007f\"s"]"#, "yes"));
        assert!(fits(&t, Kind::Choice, r#"["yes","no","ye\u007f\"s"]"#, "ye\u{7f}\"s"));
        assert!(!fits(&t, Kind::Choice, r#"["yes","no"]"#, "ye"));
        assert!(fits(&t, Kind::Regex, "^[0-9]{2,3}/(a|b)$", "12/b"));
        assert!(!fits(&t, Kind::Regex, "a|b", "ab"));
        assert!(fits(&t, Kind::Regex, r"a\$", "a$"));
        assert!(fits(&t, Kind::Lark, "start: \"a\" x\nx: /[0-9]+/\n", "a12"));
        assert!(fits(&t, Kind::JsonObject, "", r#"{"a": [1, null, {"b":"c"}]}"#));
        assert!(!fits(&t, Kind::JsonObject, "", "[1]"));
        assert!(fits(&t, Kind::JsonSchema, r#"{"type":"integer"}"#, "-12"));
    }

    #[test]
    fn gbnf() {
        let t = tokens();
        let json = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws # list
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;
        assert!(fits(&t, Kind::Gbnf, json, "{\"a\": [1, -2.5e3, \"\\u00fc\u{fc}\"],\n\t\"b\":{}}"));
        assert!(!fits(&t, Kind::Gbnf, json, "{\"a\": [1,]}"));
        assert!(!fits(&t, Kind::Gbnf, json, "[]"));
        // Without recursion: exactly, also where a terminal has to stop early.
        assert!(fits(&t, Kind::Gbnf, "root ::= a \"b\"\na ::= [a-z]+", "xbb"));
        assert!(fits(&t, Kind::Gbnf, "root ::= . [^a] \"\\U0001F600\"?", "\u{1F600}b\u{1F600}"));
        assert!(fits(&t, Kind::Gbnf, "root ::= (\"a\" |\n \"b\"){2,3} \"c\"{2} \"d\"{,1} \"e\"{1,}", "abacce"));
        assert!(fits(&t, Kind::Gbnf, "root ::= \"(\" root \")\" | ws\nws ::= \" \"*", "((  ))"));
        assert!(fits(&t, Kind::Gbnf, "root ::= \"(\" root \")\" | ws\nws ::= \" \"*", "(())"));
    }

    #[test]
    fn refusals() {
        let cases = [
            (Kind::JsonSchema, r#"{"properties":{"a":{"not":{}}}}"#, "/properties/a: unsupported keyword \"not\""),
            (Kind::JsonSchema, r##"{"$defs":{"a/b":{"if":true}},"$ref":"#/$defs/a~1b"}"##, "/$defs/a~1b: unsupported keyword"),
            (Kind::JsonSchema, r##"{"$ref":"#/$defs/x"}"##, "leads nowhere"),
            (Kind::JsonSchema, r#"{"$ref":"https://example.com/s"}"#, "another document"),
            (Kind::JsonSchema, r#"{"x-guidance":{"lenient":true}}"#, "x-guidance"),
            (Kind::JsonSchema, r#"{"format":"phone"}"#, "/format: want a format"),
            (Kind::JsonSchema, r#"{"oneOf":[{"minimum":1},{"maximum":3}]}"#, "oneOf"),
            (Kind::JsonSchema, r#"{"type":"strin"}"#, "/type: want one of"),
            (Kind::JsonSchema, r#"{"type":"integer","minimum":5,"maximum":4}"#, "minimum"),
            (Kind::JsonSchema, r#"{"pattern":"(?=a)"}"#, "look-around"),
            (Kind::JsonSchema, "false", "false"),
            (Kind::JsonSchema, "{", "not JSON"),
            (Kind::JsonSchema, r##"{"$ref":"#"}"##, "no text fits"),
            (Kind::Regex, "(", "unclosed group"),
            (Kind::Regex, "", "empty"),
            (Kind::Regex, "a(?!b)", "look-around"),
            (Kind::Choice, "[]", "nothing to choose"),
            (Kind::Choice, "[1]", "array of strings"),
            (Kind::Lark, "begin: \"a\"", "no start rule"),
            (Kind::Lark, "start: x", "unknown name"),
            (Kind::Gbnf, "root ::= \"a", "line 1: a text that does not end"),
            (Kind::Gbnf, "root ::= x", "used and not defined"),
            (Kind::Gbnf, "main ::= \"a\"", "no rule \"root\""),
            (Kind::Gbnf, "root ::= \"a\"\nroot ::= \"b\"", "twice"),
            (Kind::Gbnf, "root ::= <think>", "no token"),
            (Kind::Gbnf, "root ::= root", "no text fits"),
            (Kind::Gbnf, "root ::= \"\"", "empty text"),
        ];
        for (kind, grammar, want) in cases {
            let error = refused(kind, grammar);
            println!("{grammar}: {error}");
            assert!(error.contains(want), "{grammar}: {error}, want {want}");
        }
    }

    #[test]
    fn hostile() {
        let many = |text: &str, n: usize| text.repeat(n);
        let chain = |n: usize, f: &dyn Fn(usize) -> String| (0..n).map(f).collect::<String>();
        let cases = [
            (Kind::JsonSchema, many(r#"{"items":"#, 100_000)),
            (Kind::JsonSchema, format!("{}{{}}{}", many(r#"{"items":"#, 120), many("}", 120))),
            (Kind::JsonSchema, format!(r#"{{"enum":[{}1]}}"#, many("[],", 200_000))),
            (Kind::JsonSchema, r#"{"type":"string","pattern":"(a*)*(b|c){0,100000}d{3,99999999}"}"#.to_string()),
            (Kind::JsonSchema, r#"{"type":"array","minItems":100000000,"items":{"type":"array","minItems":1000000}}"#.to_string()),
            (Kind::JsonSchema, format!(r#"{{"allOf":[{}true]}}"#, many(r#"{"anyOf":[{"minimum":1},{"maximum":2},{"type":"string"},{"type":"null"}]},"#, 40))),
            (Kind::Regex, many("(", 500_000)),
            (Kind::Regex, format!("{}a{}", many("(", 200), many("){0,1000}", 200))),
            (Kind::Regex, "((((.*a){50}.*b){50}.*c){50}.*)&".to_string()),
            (Kind::Lark, format!("start: {}", many("(", 500_000))),
            (Kind::Lark, format!("start: {}\"a\"", many("~", 500_000))),
            (Kind::Lark, format!("start: a0\n{}", chain(50_000, &|i| format!("a{i}: a{}\n", i + 1)))),
            (Kind::Lark, format!("start: a0\n{}a1400: \"x\"\n", chain(1_400, &|i| format!("a{i}: a{} \"y\"?\n", i + 1)))),
            (Kind::Lark, format!("start: A0\n{}A1400: \"x\"\n", chain(1_400, &|i| format!("A{i}: A{} \"y\"?\n", i + 1)))),
            (Kind::Gbnf, format!("root ::= {}", many("(", 500_000))),
            (Kind::Gbnf, format!("root ::= \"a\"{}", many("?", 500_000))),
            (Kind::Gbnf, format!("root ::= a0\n{}a1400 ::= \"x\"\n", chain(1_400, &|i| format!("a{i} ::= a{} \"y\"?\n", i + 1)))),
            (Kind::Gbnf, "root ::= ((((\"a\"{2000}){2000}){2000}){2000}){2000} root?".to_string()),
            (Kind::Choice, format!("[{}\"a\"]", many("\"bb\",", 300_000))),
        ];
        let t = tokens();
        for (kind, text) in cases {
            let begin = std::time::Instant::now();
            let said = match compile(&t, kind, &text) {
                Ok(_) => "taken".to_string(),
                Err(error) => error,
            };
            let took = begin.elapsed().as_secs_f64();
            println!("{:.60} ({}): {took:.3} s: {said}", text, text.len());
            assert!(took < 30.0, // on a machine that has other things to do
                "{:.60}: {took} s", text);
        }
    }

    #[test]
    fn schemas_in_grammars() {
        let t = tokens();
        let lark = "start: \"%json [\" call // %json {\ncall: %json {\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],\"additionalProperties\":false} \"!\"\n";
        assert!(fits(&t, Kind::Lark, lark, "%json [{\"a\": 12}!"));
        assert!(fits(&t, Kind::Lark, lark, "%json [{\n  \"a\":12}!"));
        assert!(!fits(&t, Kind::Lark, lark, "%json [{\t\"a\":12}!"));
        assert!(!fits(&t, Kind::Lark, lark, "%json [{  \"a\":12}!"));
        let unsupported = refused(Kind::Lark, "start: %json {\"properties\":{\"a\":{\"not\":{}}}}\n");
        assert!(unsupported.contains("/properties/a: unsupported keyword \"not\""), "{unsupported}");
        assert!(refused(Kind::Lark, "start: %json {\"type\":").contains("json"));
    }

    #[test]
    fn moves() {
        let t = tokens();
        let mut matcher = compile(&t, Kind::JsonSchema, r#"{"type":"object","properties":{"name":{"const":"abc"}},"required":["name"],"additionalProperties":false}"#).unwrap();
        matcher.consume(&[b'{' as u32, b'"' as u32]).unwrap();
        let forced = matcher.forced().unwrap();
        assert_eq!(forced, "name\"".bytes().map(u32::from).collect::<Vec<_>>());
        let mut other = matcher.duplicate();
        other.consume(&forced).unwrap();
        assert_eq!(matcher.forced().unwrap(), forced);
        other.rollback(2).unwrap();
        assert_eq!(other.forced().unwrap(), &forced[forced.len() - 2..]);
        assert!(other.consume(&[b'x' as u32]).is_err());
        other.consume(&forced[forced.len() - 2..]).unwrap();
        other.consume(&[b':' as u32]).unwrap();
        assert_eq!(matcher.forced().unwrap(), forced);
    }
}
