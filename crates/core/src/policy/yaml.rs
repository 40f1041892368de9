//! Parses YAML into a tree in which every node has its place in the file.
//!
//! Takes the text of one file; gives its only document and its comments. Promise: one reading. A repeated
//! key, an alias, a tag, a second document and deep nesting are refused, so that what a person
//! reads at a line is what the engine reads there, and a small file cannot expand into a large one.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

use super::fault::{FaultCollector, SourcePosition};
use super::suggest::escape;

/// Nested lists and maps.
const DEPTH: usize = 32;

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlNode {
    /// Where it begins.
    pub place: SourcePosition,
    /// Line on which it ends.
    pub last_line: u32,
    /// Written with brackets or braces.
    pub flow: bool,
    /// Its kind and value.
    pub kind: YamlValue,
}

/// The kind and value of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum YamlValue {
    /// No value.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Number(f64),
    /// Any other word or line.
    Text(String),
    /// A list.
    List(Vec<YamlNode>),
    /// Keys and values, in the order of the file.
    Map(Vec<(YamlKey, YamlNode)>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlKey {
    /// Its place.
    pub place: SourcePosition,
    /// Its text.
    pub text: String,
}

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlComment {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// The comment from the `#` on, without trailing blanks.
    pub text: String,
    /// It is alone on its line.
    pub alone: bool,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct YamlDocument {
    /// `None` if the file is empty.
    pub root: Option<YamlNode>,
    /// Its comments, in order.
    pub comments: Vec<YamlComment>,
}

/// Parses a file. Problems go to `faults`; `None` if the text is not YAML at all.
pub fn parse(text: &str, faults: &mut FaultCollector<'_>) -> Option<YamlDocument> {
    let options = serde_saphyr::granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_comments: true,
        max_buffered_comment_events: 100_000,
        flow_nesting_limit: DEPTH,
        block_nesting_limit: DEPTH,
    };
    let mut builder =
        YamlTreeBuilder { faults, text, stack: Vec::new(), document: YamlDocument::default(), documents: 0 };
    for step in Parser::new_from_str_with_options(text, options) {
        match step {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => {
                let mark = error.marker();
                let place = SourcePosition { line: number(mark.line()), column: number(mark.col() + 1), width: 1 };
                let code = builder.faults.family().syntax;
                builder.faults.error(place, code, format!("not readable as YAML: {}", escape(&error.info())));
                return None;
            }
        }
    }
    Some(builder.document)
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A list or map that is not closed yet.
struct OpenYamlNode {
    node: YamlNode,
    /// The key that waits for its value, in a map.
    key: Option<YamlKey>,
    seen: HashSet<String>,
}

struct YamlTreeBuilder<'b, 't, 'f> {
    faults: &'b mut FaultCollector<'f>,
    text: &'t str,
    stack: Vec<OpenYamlNode>,
    document: YamlDocument,
    documents: usize,
}

impl YamlTreeBuilder<'_, '_, '_> {
    fn take(&mut self, event: Event<'_>, span: Span) {
        let place = place_of(&span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents == 2 {
                    let code = self.faults.family().syntax;
                    self.faults.error(place, code, "a second document starts here").why("a file is one document");
                }
            }
            Event::Comment(text, _) => {
                let before = span.start.byte_offset().and_then(|end| self.text.get(..end)).unwrap_or_default();
                let alone = before.bytes().rev().take_while(|b| *b != b'\n').all(|b| b.is_ascii_whitespace());
                let text = format!("#{}", text.trim_end());
                self.document.comments.push(YamlComment { line: place.line, column: place.column, text, alone });
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.no_aliases(place);
                self.put(scalar(place, &span, YamlValue::Null));
            }
            Event::Scalar(value, style, anchor, tag) => {
                self.plain_only(place, anchor, tag.is_some());
                let in_key_position = matches!(
                    self.stack.last(),
                    Some(OpenYamlNode { node: YamlNode { kind: YamlValue::Map(_), .. }, key: None, .. })
                );
                // A key is always a text, even if it looks like another kind.
                let kind = if style == ScalarStyle::Plain && !in_key_position {
                    resolve(&value)
                } else {
                    YamlValue::Text(value.into_owned())
                };
                self.put(scalar(place, &span, kind));
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.plain_only(place, anchor, tag.is_some());
                self.open(place, style, YamlValue::List(Vec::new()));
            }
            Event::MappingStart(style, anchor, tag) => {
                self.plain_only(place, anchor, tag.is_some());
                self.open(place, style, YamlValue::Map(Vec::new()));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(mut open) = self.stack.pop() {
                    if open.node.flow {
                        open.node.last_line = number(span.end.line());
                    }
                    self.put(open.node);
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, place: SourcePosition, style: StructureStyle, kind: YamlValue) {
        let flow = style == StructureStyle::Flow;
        self.stack.push(OpenYamlNode {
            node: YamlNode { place, last_line: place.line, flow, kind },
            key: None,
            seen: HashSet::new(),
        });
    }

    /// Adds a finished node to its parent.
    fn put(&mut self, node: YamlNode) {
        let Some(open) = self.stack.last_mut() else {
            if self.documents <= 1 {
                self.document.root = Some(node);
            }
            return;
        };
        open.node.last_line = open.node.last_line.max(node.last_line);
        match (&mut open.node.kind, open.key.take()) {
            (YamlValue::List(items), _) => items.push(node),
            (YamlValue::Map(entries), Some(key)) => entries.push((key, node)),
            (YamlValue::Map(_), None) => {
                let text = match node.kind {
                    YamlValue::Text(text) => text,
                    _ => {
                        let code = self.faults.family().key;
                        self.faults.error(node.place, code, "a key must be a single word");
                        String::new()
                    }
                };
                if !open.seen.insert(text.clone()) && !text.is_empty() {
                    let code = self.faults.family().duplicate_key;
                    self.faults
                        .error(node.place, code, format!("the key `{}` is given twice", escape(&text)))
                        .why("it would be unclear which of the two counts");
                }
                open.key = Some(YamlKey { place: node.place, text });
            }
            _ => {}
        }
    }

    fn plain_only(&mut self, place: SourcePosition, anchor: usize, tagged: bool) {
        if anchor != 0 {
            self.no_aliases(place);
        }
        if tagged {
            let family = self.faults.family();
            self.faults.error(place, family.syntax, format!("tags (`!name`) are not part of {}", family.language));
        }
    }

    fn no_aliases(&mut self, place: SourcePosition) {
        let family = self.faults.family();
        self.faults
            .error(place, family.alias, format!("anchors and aliases are not part of {}", family.language))
            .why("a value must be readable where it stands")
            .hint("write the value out");
    }
}

fn place_of(span: &Span) -> SourcePosition {
    let width = if span.start.line() == span.end.line() { span.len().max(1) } else { 1 };
    SourcePosition { line: number(span.start.line()), column: number(span.start.col() + 1), width: number(width) }
}

fn scalar(place: SourcePosition, span: &Span, kind: YamlValue) -> YamlNode {
    YamlNode { place, last_line: number(span.end.line()).max(place.line), flow: false, kind }
}

/// Whether an unquoted word is read as the same text.
pub(crate) fn reads_as_text(text: &str) -> bool {
    matches!(resolve(text), YamlValue::Text(_))
}

/// The kind of an unquoted word: YAML 1.2, without its octal, hexadecimal and non-finite numbers.
fn resolve(text: &str) -> YamlValue {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return YamlValue::Null,
        "true" | "True" | "TRUE" => return YamlValue::Bool(true),
        "false" | "False" | "FALSE" => return YamlValue::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    // `0123` means 123 to some parsers and 83 to others: it stays a text, and no number is expected to be one.
    let leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    if leading_zero || !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return YamlValue::Text(text.to_owned());
    }
    if let Ok(integer) = text.parse() {
        return YamlValue::Integer(integer);
    }
    let numeric =
        digits.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b)) && digits.contains(['.', 'e', 'E']);
    match text.parse::<f64>() {
        Ok(double) if numeric && double.is_finite() => YamlValue::Number(double),
        _ => YamlValue::Text(text.to_owned()),
    }
}

impl YamlNode {
    /// A node without a value.
    pub(crate) const fn null(place: SourcePosition) -> Self {
        Self { place, last_line: place.line, flow: false, kind: YamlValue::Null }
    }

    /// Its kind in words, for messages.
    #[must_use]
    pub const fn noun(&self) -> &'static str {
        match self.kind {
            YamlValue::Null => "nothing",
            YamlValue::Bool(_) => "true or false",
            YamlValue::Integer(_) | YamlValue::Number(_) => "a number",
            YamlValue::Text(_) => "a text",
            YamlValue::List(_) => "a list",
            YamlValue::Map(_) => "a map",
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            YamlValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_number(&self) -> Option<f64> {
        match self.kind {
            // Exact up to 2^53, like all numbers an agent can send.
            YamlValue::Integer(integer) => Some(integer as f64),
            YamlValue::Number(double) => Some(double),
            _ => None,
        }
    }

    /// The same value as strict JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match &self.kind {
            YamlValue::Null => Value::Null,
            YamlValue::Bool(truth) => Value::Bool(*truth),
            YamlValue::Integer(integer) => Value::Number((*integer).into()),
            YamlValue::Number(double) if double.fract() == 0.0 && double.abs() < 9e15 => {
                Value::Number((*double as i64).into())
            }
            YamlValue::Number(double) => Number::from_f64(*double).map_or(Value::Null, Value::Number),
            YamlValue::Text(text) => Value::String(text.clone()),
            YamlValue::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            YamlValue::Map(entries) => Value::Object(
                entries.iter().map(|(key, node)| (key.text.clone(), node.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<YamlDocument>, Vec<super::super::fault::FileFault>) {
        let mut faults = FaultCollector::new("f.yaml", text);
        let document = parse(text, &mut faults);
        (document, faults.into_list())
    }

    #[test]
    fn every_node_knows_its_line_and_column() {
        let (document, faults) = read("rules:\n  - capability: email.send # why\n    conditions: {limit_lt: 5}\n");
        assert!(faults.is_empty(), "{faults:?}");
        let document = document.unwrap();
        let YamlValue::Map(top) = document.root.unwrap().kind else { panic!() };
        let YamlValue::List(rules) = &top[0].1.kind else { panic!() };
        let YamlValue::Map(rule) = &rules[0].kind else { panic!() };
        assert_eq!((rule[0].0.place.line, rule[0].0.place.column), (2, 5));
        assert_eq!((rule[0].1.place.line, rule[0].1.place.column, rule[0].1.place.width), (2, 17, 10));
        let YamlValue::Map(conditions) = &rule[1].1.kind else { panic!() };
        assert_eq!((conditions[0].0.place.line, conditions[0].0.place.column), (3, 18));
        assert_eq!(conditions[0].1.kind, YamlValue::Integer(5));
        assert_eq!(document.comments, [YamlComment { line: 2, column: 28, text: "# why".into(), alone: false }]);
    }

    #[test]
    fn a_text_with_two_readings_is_refused() {
        for (text, code) in [
            ("a: 1\na: 2\n", "policy.duplicate_key"),
            ("a: &x 1\nb: *x\n", "policy.alias"),
            ("a: *missing\n", "policy.alias"),
            ("a: !secret 1\n", "policy.syntax"),
            ("--- a\n--- b\n", "policy.syntax"),
            ("%YAML 1.1\n---\na: 1\n", "policy.syntax"),
            ("? [a]\n: 1\n", "policy.key"),
            ("a: [1", "policy.syntax"),
        ] {
            let (_, faults) = read(text);
            assert!(faults.iter().any(|fault| fault.code == code), "{text}: {faults:?}");
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_unfolds() {
        let mut bomb = String::from("a0: &a0 [x]\n");
        for n in 1..40 {
            let refs = vec![format!("*a{}", n - 1); 9].join(",");
            bomb.push_str(&format!("a{n}: &a{n} [{refs}]\n"));
        }
        let (_, faults) = read(&bomb);
        assert!(
            faults.iter().all(|fault| matches!(fault.code, "policy.alias" | "policy.many_problems"))
                && faults.len() > 40
        );
        let (document, faults) = read(&"[".repeat(100_000));
        assert!(document.is_none() && faults.len() == 1);
        let nested = (0..1000).map(|n| format!("{}a:\n", " ".repeat(n))).collect::<String>();
        assert!(read(&nested).0.is_none());
    }

    #[test]
    fn only_unquoted_words_are_numbers_and_truths() {
        for (text, kind) in [
            ("5", YamlValue::Integer(5)),
            ("-5", YamlValue::Integer(-5)),
            ("1.5", YamlValue::Number(1.5)),
            ("1e3", YamlValue::Number(1000.0)),
            ("\"5\"", YamlValue::Text("5".into())),
            ("0123", YamlValue::Text("0123".into())),
            ("0x10", YamlValue::Text("0x10".into())),
            ("yes", YamlValue::Text("yes".into())),
            (".inf", YamlValue::Text(".inf".into())),
            ("08:00", YamlValue::Text("08:00".into())),
            ("true", YamlValue::Bool(true)),
            ("~", YamlValue::Null),
        ] {
            let (document, _) = read(text);
            assert_eq!(document.unwrap().root.unwrap().kind, kind, "{text}");
        }
    }
}
