//! Formats a policy file in one style.
//!
//! Takes a file; gives the same file with two-space indentation, quotes only where needed, at most one
//! blank line in a row, and every comment where it was. Promise: the meaning is unchanged, or there is
//! no output: the result is parsed and compared first.

use std::fmt::Write as _;

use super::fault::{FaultCollector, FileFault};
use super::yaml::{self, YamlComment, YamlDocument, YamlKey, YamlNode, YamlValue};

/// Longest line a bracketed list or map may have before it is spread over several.
const WIDTH: usize = 120;

/// Why a file was not formatted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFormatError {
    /// The file itself has errors.
    #[error("the file has errors")]
    Faulty(Vec<FileFault>),
    /// The result would have another meaning. A defect of the formatter, found in time.
    #[error("formatting would change what the file means")]
    Unsafe,
}

/// Formats one file.
///
/// # Errors
/// When the text is not a readable policy document.
pub fn format(name: &str, text: &str) -> Result<String, PolicyFormatError> {
    let document = read(name, text)?;
    let mut writer = YamlFormatter {
        out: String::with_capacity(text.len()),
        blank: blank_lines(text),
        comments: document.comments.iter().peekable(),
        fresh: true,
    };
    if let Some(root) = &document.root {
        writer.block(root, 0, u32::MAX);
    }
    writer.comments_before(u32::MAX, 0);
    let out = writer.out;
    let again = read(name, &out).map_err(|_| PolicyFormatError::Unsafe)?;
    if same_meaning(&document, &again) { Ok(out) } else { Err(PolicyFormatError::Unsafe) }
}

fn read(name: &str, text: &str) -> Result<YamlDocument, PolicyFormatError> {
    let mut faults = FaultCollector::new(name, text);
    let document = yaml::parse(text, &mut faults);
    if faults.failed() {
        return Err(PolicyFormatError::Faulty(faults.into_list()));
    }
    document.ok_or(PolicyFormatError::Unsafe)
}

fn same_meaning(left: &YamlDocument, right: &YamlDocument) -> bool {
    let value = |document: &YamlDocument| document.root.as_ref().map(shape);
    let comments = |document: &YamlDocument| document.comments.iter().map(|c| c.text.clone()).collect::<Vec<_>>();
    value(left) == value(right) && comments(left) == comments(right)
}

/// The tree without places: what JSON would keep, and also the order of keys.
fn shape(node: &YamlNode) -> String {
    match &node.kind {
        YamlValue::List(items) => format!("[{}]", items.iter().map(shape).collect::<Vec<_>>().join(",")),
        YamlValue::Map(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, node)| format!("{:?}:{}", key.text, shape(node))).collect();
            format!("{{{}}}", entries.join(","))
        }
        scalar => format!("{scalar:?}"),
    }
}

fn blank_lines(text: &str) -> Vec<bool> {
    text.lines().map(|line| line.trim().is_empty()).collect()
}

struct YamlFormatter<'d> {
    out: String,
    /// Whether a source line, counted from 0, is blank.
    blank: Vec<bool>,
    comments: std::iter::Peekable<std::slice::Iter<'d, YamlComment>>,
    /// Nothing was written since a container was opened: no blank line goes here.
    fresh: bool,
}

impl YamlFormatter<'_> {
    /// A list or map over several lines. `until` is the source line of what follows it.
    fn block(&mut self, node: &YamlNode, indent: usize, until: u32) {
        match &node.kind {
            // An empty one has no lines of its own: it stays in its brackets, as a scalar does.
            YamlValue::Map(entries) if !entries.is_empty() => {
                for (n, (key, value)) in entries.iter().enumerate() {
                    let next = entries.get(n + 1).map_or(until, |(key, _)| key.place.line);
                    self.entry(key, value, indent, next);
                }
            }
            YamlValue::List(items) if !items.is_empty() => {
                for (n, item) in items.iter().enumerate() {
                    let next = items.get(n + 1).map_or(until, |item| item.place.line);
                    self.item(item, indent, next);
                }
            }
            _ => {
                self.start(node.place.line, indent);
                self.out.push_str(&one_line(node));
                self.finish(node.last_line);
            }
        }
        if indent > 0 {
            self.inner_comments(until, indent);
        }
    }

    fn entry(&mut self, key: &YamlKey, value: &YamlNode, indent: usize, next: u32) {
        self.start(key.place.line, indent);
        self.entry_here(key, value, indent, next);
    }

    /// `key: value` from where the line stands.
    fn entry_here(&mut self, key: &YamlKey, value: &YamlNode, indent: usize, next: u32) {
        self.out.push_str(&text(&key.text, true));
        self.out.push(':');
        if self.fits(value, indent + key.text.len() + 2) {
            let shown = match &value.kind {
                YamlValue::Null => String::new(),
                YamlValue::Text(value) => format!(" {}", text(value, false)),
                _ => format!(" {}", one_line(value)),
            };
            self.out.push_str(&shown);
            self.finish(value.last_line.max(key.place.line));
        } else {
            self.finish(key.place.line);
            self.fresh = true;
            self.block(value, indent + 2, next);
        }
    }

    fn item(&mut self, item: &YamlNode, indent: usize, next: u32) {
        if self.fits(item, indent + 2) {
            self.start(item.place.line, indent);
            let _ = write!(self.out, "- {}", one_line(item));
            self.finish(item.last_line);
            return;
        }
        match &item.kind {
            YamlValue::Map(entries) => {
                for (n, (key, value)) in entries.iter().enumerate() {
                    let after = entries.get(n + 1).map_or(next, |(key, _)| key.place.line);
                    if n == 0 {
                        self.start(key.place.line, indent);
                        self.out.push_str("- ");
                        self.entry_here(key, value, indent + 2, after);
                    } else {
                        self.entry(key, value, indent + 2, after);
                    }
                }
                self.inner_comments(next, indent + 2);
            }
            // A list in a list is not useful in a policy; lines of its own keep it readable all the same.
            _ => {
                self.start(item.place.line, indent);
                self.out.push_str("-\n");
                self.fresh = true;
                self.block(item, indent + 2, next);
            }
        }
    }

    /// Whether a value stays on its line: a scalar, an empty value, or a short bracketed one without inner comments.
    fn fits(&mut self, node: &YamlNode, column: usize) -> bool {
        match &node.kind {
            YamlValue::List(items) if items.is_empty() => true,
            YamlValue::Map(entries) if entries.is_empty() => true,
            YamlValue::List(_) | YamlValue::Map(_) => {
                let commented = self.comments.clone().any(|comment| {
                    comment.line >= node.place.line
                        && (comment.line < node.last_line || (comment.alone && comment.line == node.last_line))
                });
                node.flow && !commented && column + one_line(node).chars().count() <= WIDTH
            }
            _ => true,
        }
    }

    /// Comments and at most one blank line, then the indentation of a new line.
    fn start(&mut self, line: u32, indent: usize) {
        self.comments_before(line, indent);
        self.gap(line);
        let _ = write!(self.out, "{:indent$}", "");
        self.fresh = false;
    }

    /// The comment at the end of the source line, if any, and the end of the output line.
    fn finish(&mut self, line: u32) {
        if let Some(comment) = self.comments.next_if(|comment| !comment.alone && comment.line == line) {
            let _ = write!(self.out, " {}", comment.text);
        }
        self.out.push('\n');
    }

    fn comments_before(&mut self, line: u32, indent: usize) {
        while let Some(comment) = self.comments.next_if(|comment| comment.line < line) {
            self.gap(comment.line);
            let _ = writeln!(self.out, "{:indent$}{}", "", comment.text);
            self.fresh = false;
        }
    }

    /// Comments that close a block: those indented at least as deep as it.
    fn inner_comments(&mut self, until: u32, indent: usize) {
        while let Some(comment) =
            self.comments.next_if(|comment| comment.alone && comment.line < until && comment.column > indent as u32)
        {
            self.gap(comment.line);
            let _ = writeln!(self.out, "{:indent$}{}", "", comment.text);
        }
    }

    fn gap(&mut self, line: u32) {
        let blank = (line as usize).checked_sub(2).and_then(|n| self.blank.get(n)).copied().unwrap_or(false);
        if blank && !self.fresh {
            self.out.push('\n');
        }
    }
}

/// A value on one line.
fn one_line(node: &YamlNode) -> String {
    match &node.kind {
        YamlValue::Null => "null".into(),
        YamlValue::Bool(truth) => truth.to_string(),
        YamlValue::Integer(integer) => integer.to_string(),
        YamlValue::Number(double) => format!("{double:?}"),
        YamlValue::Text(value) => text(value, true),
        YamlValue::List(items) => format!("[{}]", items.iter().map(one_line).collect::<Vec<_>>().join(", ")),
        YamlValue::Map(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, node)| format!("{}: {}", text(&key.text, true), one_line(node))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// A text, quoted unless it reads the same without. `bracketed`: it may stand between brackets.
fn text(value: &str, bracketed: bool) -> String {
    if is_plain(value) && !(bracketed && value.contains(',')) {
        return value.to_owned();
    }
    // JSON quoting is YAML double quoting; its library escapes what a parser must not take literally.
    let mut quoted = String::from("\"");
    for c in value.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if super::suggest::is_unsafe(c) && (c as u32) < 0x1_0000 => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c if super::suggest::is_unsafe(c) => {
                let _ = write!(quoted, "\\U{:08x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether a text without quotes is the same text. Patterns with a star are quoted for readability.
fn is_plain(value: &str) -> bool {
    let starts_well = value.starts_with(|c: char| c.is_alphanumeric() || "/_.".contains(c));
    let inner = value.chars().all(|c| c.is_alphanumeric() || " /_.:,@+-=%&'()?;".contains(c));
    let colon = value.contains(": ") || value.contains(":,") || value.ends_with(':');
    let blanks = value.ends_with(' ') || value.contains("  ");
    starts_well && inner && !colon && !blanks && value.len() <= 200 && yaml::reads_as_text(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MESSY: &str = "# head\n\n\ndefaults:   {tier:   notify}   # all\noverrides:\n# first\n- capability: 'email.send'\n  tier:    approval_required\n\n\n  # inner\n  conditions:\n      recipients_within: [ 'corp.org',\n         \"b.org\" ]\n- {capability: \"*\", tier: \"notify\"} # end\n  # closing\n\n# tail\n";

    #[test]
    fn a_messy_file_becomes_canonical() {
        let expected = "# head\n\ndefaults: {tier: notify} # all\noverrides:\n  # first\n  - capability: email.send\n    tier: approval_required\n\n    # inner\n    conditions:\n      recipients_within: [corp.org, b.org]\n  - {capability: \"*\", tier: notify} # end\n  # closing\n\n# tail\n";
        assert_eq!(format("f", MESSY).unwrap(), expected);
        assert_eq!(format("f", expected).unwrap(), expected);
    }

    #[test]
    fn texts_that_look_like_something_else_keep_their_quotes() {
        for (source, expected) in [
            ("a: 'true'\n", "a: \"true\"\n"),
            ("a: \"12\"\n", "a: \"12\"\n"),
            ("a: '08:00'\n", "a: 08:00\n"),
            ("a: 'x # y'\n", "a: \"x # y\"\n"),
            ("a: 'x: y'\n", "a: \"x: y\"\n"),
            ("a: '*'\n", "a: \"*\"\n"),
            ("a: ''\n", "a: \"\"\n"),
            ("a: |\n  one\n  two\n", "a: \"one\\ntwo\\n\"\n"),
            ("a: 1e3\n", "a: 1000.0\n"),
            ("a:\n", "a:\n"),
        ] {
            assert_eq!(format("f", source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn a_faulty_file_is_refused() {
        assert!(matches!(format("f", "a: 1\na: 2\n"), Err(PolicyFormatError::Faulty(_))));
        assert!(matches!(format("f", "a: [\n"), Err(PolicyFormatError::Faulty(_))));
    }

    fn node() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![
            "[a-z]{1,6}",
            "[a-z.*:# '\"/-]{0,8}".prop_map(|text| serde_json::to_string(&text).unwrap()),
            "-?[0-9]{1,4}",
            Just("true".to_owned()),
            Just("null".to_owned()),
            "[a-z]{1,4}".prop_map(|text| format!("'{text}'")),
        ];
        scalar.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
                prop::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(|entries| {
                    let entries: Vec<String> = entries.iter().map(|(k, v)| format!("{k}:  {v}")).collect();
                    format!("{{{}}}", entries.join(","))
                }),
            ]
        })
    }

    #[test]
    fn an_empty_document_stays_as_it_is() {
        for text in ["[]", "{}", "# only a remark\n{}", ""] {
            let once = format("f", text).unwrap();
            assert_eq!(format("f", &once), Ok(once.clone()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatting_keeps_meaning_and_comments_and_is_idempotent(
            entries in prop::collection::btree_map("[a-z]{1,5}", prop::collection::vec((node(), any::<bool>(), any::<bool>(), 0..3_usize), 1..4), 1..4),
        ) {
            let mut source = String::new();
            for (key, items) in &entries {
                source.push_str(&format!("{key}:   # of {key}\n"));
                for (value, comment, gap, shape) in items {
                    if *gap { source.push_str("\n\n"); }
                    if *comment { source.push_str("   # note\n"); }
                    match shape {
                        0 => source.push_str(&format!(" -   {value}\n")),
                        1 => source.push_str(&format!(" -  k: {value}   # right\n    l: x\n")),
                        _ => source.push_str(&format!(" -  k:\n      - {value}\n      # in\n      - y\n    # under\n")),
                    }
                }
            }
            // `format` compares the meaning itself and answers `Unsafe` when it changed.
            let once = format("f", &source);
            prop_assert!(once.is_ok(), "{}\n{:?}", source, once);
            let once = once.unwrap();
            prop_assert_eq!(format("f", &once).unwrap(), once.clone(), "{}", source);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-z:#\\[\\]{}'\"\n ,*&!|>-]{0,80}") {
            if let Ok(once) = format("f", &text) {
                prop_assert_eq!(format("f", &once), Ok(once.clone()), "{}", text);
            } else {
                prop_assert!(!matches!(format("f", &text), Err(PolicyFormatError::Unsafe)), "{}", text);
            }
        }
    }
}
