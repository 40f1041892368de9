//! The arguments of a call, parsed for this service.
//!
//! Takes the arguments that the schema room allowed; gives typed values. Promise: a value that fits its type but not
//! its meaning (a negative size, an unknown word) is a refusal, never a default.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use sluice_core::refusal::{Code, Refusal};

/// The longest pattern, in bytes.
const LONGEST_PATTERN: usize = 4096;
/// The largest compiled pattern, in bytes.
const COMPILED: usize = 1 << 20;

/// The encoding of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentEncoding {
    Text,
    /// Base64.
    Binary,
}

/// The arguments of one call.
#[derive(Debug, Clone, Copy)]
pub struct FileArguments<'a>(pub &'a Map<String, Value>);

impl<'a> FileArguments<'a> {
    /// An optional text.
    pub fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// A required text.
    pub fn need(self, name: &str) -> Result<&'a str, Refusal> {
        self.text(name).ok_or_else(|| {
            Refusal::new(Code::SchemaMissingArgument).with_text(&format!("the argument `{name}` is missing"))
        })
    }

    /// A switch; off by default.
    pub fn flag(self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// An optional count.
    pub fn count(self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| odd(name, "a whole number that is not negative")),
        }
    }

    /// An optional list of texts.
    pub fn texts(self, name: &str) -> Option<Vec<&'a str>> {
        self.0.get(name).and_then(Value::as_array).map(|list| list.iter().filter_map(Value::as_str).collect())
    }

    /// The fields of an optional object.
    pub fn object(self, name: &str) -> Option<Self> {
        self.0.get(name).and_then(Value::as_object).map(Self)
    }

    /// The encoding of content in this call.
    pub fn encoding(self) -> Result<ContentEncoding, Refusal> {
        match self.text("encoding") {
            None | Some("utf-8" | "utf8" | "UTF-8") => Ok(ContentEncoding::Text),
            Some("binary" | "base64") => Ok(ContentEncoding::Binary),
            Some(_) => Err(odd("encoding", "`utf-8` or `binary`")),
        }
    }

    /// The content to write, as bytes.
    pub fn content(self) -> Result<Vec<u8>, Refusal> {
        let text = self.need("content")?;
        match self.encoding()? {
            ContentEncoding::Text => Ok(text.as_bytes().to_vec()),
            ContentEncoding::Binary => STANDARD
                .decode(text)
                .map_err(|_| Refusal::new(Code::FilesEncoding).with_text("the content is not base64")),
        }
    }

    /// The pattern of a text search: literal, or an expression if `regex` is set.
    pub fn expression(self) -> Result<regex::Regex, Refusal> {
        let pattern = self.need("pattern")?;
        if pattern.is_empty() || pattern.len() > LONGEST_PATTERN {
            return Err(Refusal::new(Code::FilesPattern).with_text("a pattern has 1 to 4096 bytes"));
        }
        let literal;
        let pattern = if self.flag("regex") {
            pattern
        } else {
            literal = regex::escape(pattern);
            &literal
        };
        let built = regex::RegexBuilder::new(pattern).size_limit(COMPILED).multi_line(true).build();
        built.map_err(|error| Refusal::new(Code::FilesPattern).with_source(error))
    }

    /// An optional pattern of names. With a slash in it, it matches the path from the folder.
    pub fn glob(self, name: &str) -> Result<Option<NameGlob>, Refusal> {
        self.text(name).map(NameGlob::new).transpose()
    }
}

/// A pattern of names.
#[derive(Debug)]
pub struct NameGlob {
    matcher: globset::GlobMatcher,
    whole_way: bool,
}

impl NameGlob {
    fn new(pattern: &str) -> Result<Self, Refusal> {
        if pattern.is_empty() || pattern.len() > LONGEST_PATTERN {
            return Err(Refusal::new(Code::FilesPattern).with_text("a pattern has 1 to 4096 bytes"));
        }
        let built = globset::GlobBuilder::new(pattern).literal_separator(true).build();
        let matcher = built.map_err(|error| Refusal::new(Code::FilesPattern).with_source(error))?.compile_matcher();
        Ok(Self { matcher, whole_way: pattern.contains('/') })
    }

    /// Whether the pattern matches this path from the folder.
    pub fn takes(&self, way: &str) -> bool {
        let name = way.rsplit('/').next().unwrap_or(way);
        self.matcher.is_match(if self.whole_way { way } else { name })
    }
}

/// Encodes bytes as base64.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The refusal of an argument that fits its type but not its meaning.
pub fn odd(name: &str, expected: &str) -> Refusal {
    Refusal::new(Code::SchemaWrongType).with_text(&format!("the argument `{name}` must be {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(value: &Value) -> FileArguments<'_> {
        FileArguments(value.as_object().unwrap())
    }

    #[test]
    fn a_value_that_makes_no_sense_is_refused_and_not_replaced() {
        let value = json!({"limit": -1, "encoding": "latin-1", "content": "ä", "pattern": "(", "regex": true});
        assert_eq!(of(&value).count("limit").unwrap_err().code(), Code::SchemaWrongType);
        assert_eq!(of(&value).encoding().unwrap_err().code(), Code::SchemaWrongType);
        assert_eq!(of(&value).expression().unwrap_err().code(), Code::FilesPattern);
        assert_eq!(of(&value).need("path").unwrap_err().code(), Code::SchemaMissingArgument);
        let value = json!({"encoding": "binary", "content": "ä"});
        assert_eq!(of(&value).content().unwrap_err().code(), Code::FilesEncoding);
    }

    #[test]
    fn patterns_that_could_run_away_are_refused() {
        for pattern in ["(a){1000}{1000}", "(?=a)b", r"(a)\1"] {
            let value = json!({"pattern": pattern, "regex": true});
            assert_eq!(of(&value).expression().unwrap_err().code(), Code::FilesPattern, "{pattern}");
        }
        let value = json!({"pattern": "a.b("});
        assert!(of(&value).expression().unwrap().is_match("xa.b(x"));
        assert!(!of(&value).expression().unwrap().is_match("aab("));
    }

    #[test]
    fn a_pattern_with_a_slash_is_about_the_way_and_one_without_about_the_name() {
        let takes = |pattern: &str, way: &str| NameGlob::new(pattern).unwrap().takes(way);
        assert!(takes("*.md", "a/b.md"));
        assert!(!takes("a/*.md", "a/x/b.md"));
        assert!(takes("a/**/*.md", "a/x/b.md"));
        assert!(!takes("*.md", "b.md.txt"));
    }
}
