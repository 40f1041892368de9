//! What a schema says about each string of a document: whether it is meant as markup.
//!
//! Takes a schema and the bytes of a JSON text one by one; gives the intent of the next string. Nothing is validated
//! here. Promise: a bounded number of steps for each byte; where the schema says nothing or cannot be followed, the
//! strictest treatment applies.

use serde_json::Value;

/// Deeper structure is not followed.
const DEEPEST: usize = 128;
/// Most branches of a schema that are followed side by side.
const BRANCHES: usize = 16;

/// How markup in a string is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stages) enum MarkupIntent {
    /// Data: it must not hold markup, which becomes text.
    Data,
    /// HTML: harmless markup is kept.
    Html,
    /// Source text, such as a file: markup stays as it was written and is read like any other text.
    Source,
}

/// The schemas of one level.
#[derive(Debug)]
struct SchemaLevel<'s> {
    is_object: bool,
    schemas: Vec<&'s Value>,
    /// The schemas of the next member.
    next: Vec<&'s Value>,
}

/// Follows a document and its schema in parallel.
#[derive(Debug)]
pub(super) struct SchemaWalk<'s> {
    root: Option<&'s Value>,
    otherwise: MarkupIntent,
    levels: Vec<SchemaLevel<'s>>,
    /// The number of levels that are no longer followed.
    beyond: usize,
}

impl<'s> SchemaWalk<'s> {
    pub(super) fn new(root: Option<&'s Value>, otherwise: MarkupIntent) -> Self {
        Self { root, otherwise, levels: Vec::new(), beyond: 0 }
    }

    /// Reads one byte outside of strings.
    pub(super) fn pass(&mut self, sign: u8) {
        if self.root.is_none() {
            return;
        }
        match sign {
            b'{' | b'[' if self.levels.len() >= DEEPEST => self.beyond += 1,
            b'{' | b'[' => {
                let schemas = self.next();
                self.levels.push(SchemaLevel { is_object: sign == b'{', schemas, next: Vec::new() });
            }
            b'}' | b']' if self.beyond > 0 => self.beyond -= 1,
            b'}' | b']' => drop(self.levels.pop()),
            _ => {}
        }
    }

    /// Sets the name of the next member.
    pub(super) fn key(&mut self, name: &str) {
        let Some(root) = self.root else { return };
        let Some(level) = self.levels.last_mut().filter(|_| self.beyond == 0) else { return };
        let of = |schema: &&'s Value| {
            let named = schema.get("properties").and_then(|properties| properties.get(name));
            named.or_else(|| schema.get("additionalProperties"))
        };
        level.next = opened(level.schemas.iter().filter_map(of), root);
    }

    /// The intent of the next string.
    pub(super) fn intent(&self) -> MarkupIntent {
        if self.root.is_none() || self.beyond > 0 {
            return self.otherwise;
        }
        let said: Vec<MarkupIntent> = self.next().into_iter().filter_map(markup_intent_of).collect();
        if said.contains(&MarkupIntent::Html) {
            MarkupIntent::Html
        } else {
            said.first().copied().unwrap_or(self.otherwise)
        }
    }

    /// The schemas of the next value.
    fn next(&self) -> Vec<&'s Value> {
        let Some(root) = self.root else { return Vec::new() };
        match self.levels.last() {
            None => opened(std::iter::once(root), root),
            Some(level) if level.is_object => level.next.clone(),
            Some(level) => opened(level.schemas.iter().filter_map(|schema| schema.get("items")), root),
        }
    }
}

/// Schemas together with those that they refer to and consist of.
fn opened<'s>(schemas: impl Iterator<Item = &'s Value>, root: &'s Value) -> Vec<&'s Value> {
    let mut all: Vec<&Value> = schemas.take(BRANCHES).collect();
    let mut at = 0;
    while let Some(schema) = all.get(at).copied() {
        at += 1;
        let referred = schema.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
        all.extend(referred.and_then(|pointer| root.pointer(pointer)));
        for word in ["allOf", "anyOf", "oneOf"] {
            all.extend(schema.get(word).and_then(Value::as_array).into_iter().flatten());
        }
        all.truncate(BRANCHES);
    }
    all
}

fn markup_intent_of(schema: &Value) -> Option<MarkupIntent> {
    let word = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let (format, media) = (word("format"), word("contentMediaType"));
    if ["html", "text/html", "xhtml"].contains(&format.as_str())
        || ["text/html", "application/xhtml+xml"].contains(&media.as_str())
    {
        return Some(MarkupIntent::Html);
    }
    media.starts_with("text/").then_some(MarkupIntent::Source)
}
