//! YAML read into a tree in which every node knows where it stands.
//!
//! Takes the text of one file; gives its only document and its comments. Promise: one reading. A key
//! given twice, an alias, a tag, a second document and deep nesting are refused, so that what a person
//! reads at a line is what the engine reads there, and a small file cannot unfold into a large one.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

use super::fault::{Faults, Place};
use super::suggest::escape;

/// Nested lists and maps.
const DEPTH: usize = 32;

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// Line on which it ends.
    pub last_line: u32,
    /// Written with brackets or braces.
    pub flow: bool,
    /// What it is.
    pub kind: Kind,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// No value.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Number(f64),
    /// Anything else that is one word or line.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in the order of the file.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Where it stands.
    pub place: Place,
    /// Its text.
    pub text: String,
}

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// From the `#` on, without trailing blanks.
    pub text: String,
    /// Nothing else stands on its line.
    pub alone: bool,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// Nothing if the file is empty.
    pub root: Option<Node>,
    /// Its comments, in order.
    pub comments: Vec<Comment>,
}

/// Reads a file. Problems go to `faults`; nothing is given if the text is not YAML at all.
pub fn parse(text: &str, faults: &mut Faults<'_>) -> Option<Document> {
    let options = serde_saphyr::granit_parser::options! {
        disallow_directives: true,
        emit_unresolved_aliases: true,
        emit_comments: true,
        max_buffered_comment_events: 100_000,
        flow_nesting_limit: DEPTH,
        block_nesting_limit: DEPTH,
    };
    let mut builder = Builder { faults, text, stack: Vec::new(), document: Document::default(), documents: 0 };
    for step in Parser::new_from_str_with_options(text, options) {
        match step {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => {
                let mark = error.marker();
                let place = Place { line: number(mark.line()), column: number(mark.col() + 1), width: 1 };
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
struct Open {
    node: Node,
    /// The key that waits for its value, in a map.
    key: Option<Key>,
    seen: HashSet<String>,
}

struct Builder<'b, 't, 'f> {
    faults: &'b mut Faults<'f>,
    text: &'t str,
    stack: Vec<Open>,
    document: Document,
    documents: usize,
}

impl Builder<'_, '_, '_> {
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
                self.document.comments.push(Comment { line: place.line, column: place.column, text, alone });
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.no_aliases(place);
                self.put(scalar(place, &span, Kind::Null));
            }
            Event::Scalar(value, style, anchor, tag) => {
                self.plain_only(place, anchor, tag.is_some());
                let in_key_position =
                    matches!(self.stack.last(), Some(Open { node: Node { kind: Kind::Map(_), .. }, key: None, .. }));
                // A key is its text, whatever else it looks like.
                let kind = if style == ScalarStyle::Plain && !in_key_position {
                    resolve(&value)
                } else {
                    Kind::Text(value.into_owned())
                };
                self.put(scalar(place, &span, kind));
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.plain_only(place, anchor, tag.is_some());
                self.open(place, style, Kind::List(Vec::new()));
            }
            Event::MappingStart(style, anchor, tag) => {
                self.plain_only(place, anchor, tag.is_some());
                self.open(place, style, Kind::Map(Vec::new()));
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

    fn open(&mut self, place: Place, style: StructureStyle, kind: Kind) {
        let flow = style == StructureStyle::Flow;
        self.stack.push(Open {
            node: Node { place, last_line: place.line, flow, kind },
            key: None,
            seen: HashSet::new(),
        });
    }

    /// Puts a finished node where it belongs.
    fn put(&mut self, node: Node) {
        let Some(open) = self.stack.last_mut() else {
            if self.documents <= 1 {
                self.document.root = Some(node);
            }
            return;
        };
        open.node.last_line = open.node.last_line.max(node.last_line);
        match (&mut open.node.kind, open.key.take()) {
            (Kind::List(items), _) => items.push(node),
            (Kind::Map(entries), Some(key)) => entries.push((key, node)),
            (Kind::Map(_), None) => {
                let text = match node.kind {
                    Kind::Text(text) => text,
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
                        .why("it would be open which of the two counts");
                }
                open.key = Some(Key { place: node.place, text });
            }
            _ => {}
        }
    }

    fn plain_only(&mut self, place: Place, anchor: usize, tagged: bool) {
        if anchor != 0 {
            self.no_aliases(place);
        }
        if tagged {
            let family = self.faults.family();
            self.faults.error(place, family.syntax, format!("tags (`!name`) are not part of {}", family.language));
        }
    }

    fn no_aliases(&mut self, place: Place) {
        let family = self.faults.family();
        self.faults
            .error(place, family.alias, format!("anchors and aliases are not part of {}", family.language))
            .why("a value must be readable where it stands")
            .hint("write the value out");
    }
}

fn place_of(span: &Span) -> Place {
    let width = if span.start.line() == span.end.line() { span.len().max(1) } else { 1 };
    Place { line: number(span.start.line()), column: number(span.start.col() + 1), width: number(width) }
}

fn scalar(place: Place, span: &Span, kind: Kind) -> Node {
    Node { place, last_line: number(span.end.line()).max(place.line), flow: false, kind }
}

/// Whether an unquoted word is taken as the text it is.
pub(crate) fn reads_as_text(text: &str) -> bool {
    matches!(resolve(text), Kind::Text(_))
}

/// What an unquoted word is: YAML 1.2, without its octal, hexadecimal and non-finite numbers.
fn resolve(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" => return Kind::Bool(true),
        "false" | "False" | "FALSE" => return Kind::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    // `0123` means 123 to some readers and 83 to others: it stays a text, and no number is expected to be one.
    let leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    if leading_zero || !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Kind::Text(text.to_owned());
    }
    if let Ok(integer) = text.parse() {
        return Kind::Integer(integer);
    }
    let numeric =
        digits.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b)) && digits.contains(['.', 'e', 'E']);
    match text.parse::<f64>() {
        Ok(double) if numeric && double.is_finite() => Kind::Number(double),
        _ => Kind::Text(text.to_owned()),
    }
}

impl Node {
    /// A node without a value.
    pub(crate) const fn null(place: Place) -> Self {
        Self { place, last_line: place.line, flow: false, kind: Kind::Null }
    }

    /// In words, for messages.
    #[must_use]
    pub const fn noun(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Integer(_) | Kind::Number(_) => "a number",
            Kind::Text(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_number(&self) -> Option<f64> {
        match self.kind {
            // Exact up to 2^53, as everything an agent can send is.
            Kind::Integer(integer) => Some(integer as f64),
            Kind::Number(double) => Some(double),
            _ => None,
        }
    }

    /// The same value as strict JSON would hold it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(truth) => Value::Bool(*truth),
            Kind::Integer(integer) => Value::Number((*integer).into()),
            Kind::Number(double) if double.fract() == 0.0 && double.abs() < 9e15 => {
                Value::Number((*double as i64).into())
            }
            Kind::Number(double) => Number::from_f64(*double).map_or(Value::Null, Value::Number),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Kind::Map(entries) => Value::Object(
                entries.iter().map(|(key, node)| (key.text.clone(), node.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<Document>, Vec<super::super::fault::Fault>) {
        let mut faults = Faults::new("f.yaml", text);
        let document = parse(text, &mut faults);
        (document, faults.into_list())
    }

    #[test]
    fn every_node_knows_its_line_and_column() {
        let (document, faults) = read("rules:\n  - capability: email.send # why\n    conditions: {limit_lt: 5}\n");
        assert!(faults.is_empty(), "{faults:?}");
        let document = document.unwrap();
        let Kind::Map(top) = document.root.unwrap().kind else { panic!() };
        let Kind::List(rules) = &top[0].1.kind else { panic!() };
        let Kind::Map(rule) = &rules[0].kind else { panic!() };
        assert_eq!((rule[0].0.place.line, rule[0].0.place.column), (2, 5));
        assert_eq!((rule[0].1.place.line, rule[0].1.place.column, rule[0].1.place.width), (2, 17, 10));
        let Kind::Map(conditions) = &rule[1].1.kind else { panic!() };
        assert_eq!((conditions[0].0.place.line, conditions[0].0.place.column), (3, 18));
        assert_eq!(conditions[0].1.kind, Kind::Integer(5));
        assert_eq!(document.comments, [Comment { line: 2, column: 28, text: "# why".into(), alone: false }]);
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
            ("5", Kind::Integer(5)),
            ("-5", Kind::Integer(-5)),
            ("1.5", Kind::Number(1.5)),
            ("1e3", Kind::Number(1000.0)),
            ("\"5\"", Kind::Text("5".into())),
            ("0123", Kind::Text("0123".into())),
            ("0x10", Kind::Text("0x10".into())),
            ("yes", Kind::Text("yes".into())),
            (".inf", Kind::Text(".inf".into())),
            ("08:00", Kind::Text("08:00".into())),
            ("true", Kind::Bool(true)),
            ("~", Kind::Null),
        ] {
            let (document, _) = read(text);
            assert_eq!(document.unwrap().root.unwrap().kind, kind, "{text}");
        }
    }
}
