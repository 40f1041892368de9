//! Makes a request from a declared request and a call's arguments.
//!
//! Promise: an argument can fill the place it was declared for and nothing else: not another part of the
//! path, not another field of the query or body, not the host.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use super::{ProxyMethod, ProxyOperation, ProxyTaskHistory};

/// A request that is ready to be sent through egress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRequest {
    /// Its method.
    pub method: ProxyMethod,
    /// Path and query after the base, percent-encoded.
    pub target: String,
    /// JSON, if it has a body.
    pub body: Option<Vec<u8>>,
}

/// Why no request could be made from the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// An argument that the operation does not have.
    #[error("there is no argument `{0}`")]
    Unknown(String),
    /// A required argument is missing.
    #[error("`{0}` is missing")]
    Missing(String),
    /// Not of the declared shape.
    #[error("`{0}` is not of the declared shape")]
    Shape(String),
    /// It would change where the request goes.
    #[error("`{0}` cannot stand in a path")]
    Path(String),
}

/// A piece of a text with places.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TemplatePiece<'a> {
    /// As written.
    Literal(&'a str),
    /// The value of an argument.
    Place(&'a str),
}

/// Cuts a text into literals and places. `{` without a name is a literal.
pub(crate) fn pieces(text: &str) -> Vec<TemplatePiece<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let name = after.split_once('}').map(|(name, _)| name).filter(|name| is_place(name));
        let Some(name) = name else {
            // The brace and the text up to the next one stay unchanged.
            let end = before.len() + 1 + after.find('{').unwrap_or(after.len());
            found.push(TemplatePiece::Literal(rest.get(..end).unwrap_or(rest)));
            rest = rest.get(end..).unwrap_or_default();
            continue;
        };
        if !before.is_empty() {
            found.push(TemplatePiece::Literal(before));
        }
        found.push(TemplatePiece::Place(name));
        rest = after.get(name.len() + 1..).unwrap_or_default();
    }
    if !rest.is_empty() {
        found.push(TemplatePiece::Literal(rest));
    }
    found
}

fn is_place(name: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    // `relation.last_post`: one dot, for what is kept.
    name.split_once('.').map_or_else(|| word(name), |(group, rest)| word(group) && word(rest))
}

impl ProxyOperation {
    /// The request for these arguments.
    ///
    /// # Errors
    /// When an argument is unknown, missing, of another shape, or would change where the request goes.
    pub fn request(&self, arguments: &Map<String, Value>) -> Result<ProxyRequest, FillError> {
        self.request_with_history(arguments, &ProxyTaskHistory::default())
    }

    /// The request for these arguments and what the task received.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn request_with_history(
        &self,
        arguments: &Map<String, Value>,
        told: &ProxyTaskHistory,
    ) -> Result<ProxyRequest, FillError> {
        self.judge(arguments)?;
        let mut values = told.placeholder_values(self.draft_of(arguments));
        values.extend(arguments.clone());
        let arguments = &values;
        let mut target = self.fill_path(arguments)?;
        let query = self.fill_query(arguments);
        if !query.is_empty() {
            target.push('?');
            target.push_str(&query);
        }
        let body = self.body.as_ref().and_then(|body| fill_json(body, arguments)).map(|body| body.to_string());
        Ok(ProxyRequest { method: self.method, target, body: body.map(String::into_bytes) })
    }

    fn judge(&self, arguments: &Map<String, Value>) -> Result<(), FillError> {
        for (name, value) in arguments {
            let argument = self.arguments.get(name).ok_or_else(|| FillError::Unknown(name.clone()))?;
            if !argument.allows(value) {
                return Err(FillError::Shape(name.clone()));
            }
        }
        let missing = |(name, argument): &(&String, &super::ProxyArgument)| {
            argument.required && !arguments.contains_key(name.as_str())
        };
        match self.arguments.iter().find(missing) {
            Some((name, _)) => Err(FillError::Missing(name.clone())),
            None => Ok(()),
        }
    }

    fn fill_path(&self, arguments: &Map<String, Value>) -> Result<String, FillError> {
        let mut path = String::new();
        for piece in pieces(&self.path) {
            match piece {
                TemplatePiece::Literal(text) => path.push_str(text),
                TemplatePiece::Place(name) => {
                    let value = arguments.get(name).ok_or_else(|| FillError::Missing(name.to_owned()))?;
                    let value = plain(value);
                    // A part of a path that is empty or dots leads elsewhere on many servers.
                    if value.is_empty() || value.bytes().all(|b| b == b'.') || value.contains(['/', '\\', '\0']) {
                        return Err(FillError::Path(name.to_owned()));
                    }
                    encode(&value, &mut path);
                }
            }
        }
        Ok(path)
    }

    fn fill_query(&self, arguments: &Map<String, Value>) -> String {
        let mut filled: BTreeMap<&str, String> = BTreeMap::new();
        for (name, template) in &self.query {
            let absent = |piece: &TemplatePiece<'_>| matches!(piece, TemplatePiece::Place(name) if !arguments.contains_key(*name));
            let pieces = pieces(template);
            if !pieces.iter().any(absent) {
                filled.insert(name, fill(&pieces, arguments));
            }
        }
        let mut query = String::new();
        for (name, value) in filled {
            if !query.is_empty() {
                query.push('&');
            }
            encode(name, &mut query);
            query.push('=');
            encode(&value, &mut query);
        }
        query
    }
}

pub(crate) fn fill(pieces: &[TemplatePiece<'_>], arguments: &Map<String, Value>) -> String {
    pieces
        .iter()
        .map(|piece| match piece {
            TemplatePiece::Literal(text) => (*text).to_owned(),
            TemplatePiece::Place(name) => arguments.get(*name).map(plain).unwrap_or_default(),
        })
        .collect()
}

/// A body with its places filled. Arguments that a call left out are left out.
pub(crate) fn fill_json(template: &Value, arguments: &Map<String, Value>) -> Option<Value> {
    Some(match template {
        Value::String(text) => match pieces(text).as_slice() {
            [TemplatePiece::Place(name)] => arguments.get(*name)?.clone(),
            pieces => Value::String(fill(pieces, arguments)),
        },
        Value::Array(items) => Value::Array(items.iter().filter_map(|item| fill_json(item, arguments)).collect()),
        Value::Object(fields) => {
            let filled = fields.iter().filter_map(|(name, value)| Some((name.clone(), fill_json(value, arguments)?)));
            Value::Object(filled.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => template.clone(),
    })
}

pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Percent-encodes everything that is not a plain letter, digit or one of `-._~`.
pub(crate) fn encode(text: &str, out: &mut String) {
    const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    out.extend(utf8_percent_encode(text, &ENCODED));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::tests::moltbook;
    use super::*;

    fn with(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!() };
        map
    }

    #[test]
    fn a_request_is_what_was_declared_with_its_places_filled() {
        let proxy = moltbook();
        let feed = proxy.operations["feed"].request(&with(json!({"limit": 5}))).unwrap();
        assert_eq!((feed.target.as_str(), feed.body), ("/feed?kind=newest&limit=5", None));
        let said = json!({"post": "p 1", "author": "ana", "text": "hi \"you\"}", "quiet": true});
        let reply = proxy.operations["reply"].request(&with(said)).unwrap();
        assert_eq!((reply.method, reply.target.as_str()), (ProxyMethod::Post, "/posts/p%201/replies"));
        let body: Value = serde_json::from_slice(&reply.body.unwrap()).unwrap();
        assert_eq!(body, json!({"to": "ana", "text": "@ana: hi \"you\"}", "quiet": true}));
    }

    #[test]
    fn what_a_call_left_out_is_left_out() {
        let said = json!({"post": "1", "author": "ana", "text": "hi"});
        let reply = moltbook().operations["reply"].request(&with(said)).unwrap();
        let body: Value = serde_json::from_slice(&reply.body.unwrap()).unwrap();
        assert_eq!(body, json!({"to": "ana", "text": "@ana: hi"}));
    }

    #[test]
    fn arguments_of_another_shape_are_refused() {
        let proxy = moltbook();
        let feed = |value| proxy.operations["feed"].request(&with(value)).unwrap_err();
        assert_eq!(feed(json!({})), FillError::Missing("limit".into()));
        assert_eq!(feed(json!({"limit": "5"})), FillError::Shape("limit".into()));
        assert_eq!(feed(json!({"limit": 5, "host": "evil"})), FillError::Unknown("host".into()));
        for post in ["..", ".", "", "a/b", "a\\b", "a\0b"] {
            let said = json!({"post": post, "author": "ana", "text": "hi"});
            let no = proxy.operations["reply"].request(&with(said)).unwrap_err();
            assert_eq!(no, FillError::Path("post".into()), "{post:?}");
        }
    }

    #[test]
    fn braces_without_a_name_are_text() {
        assert_eq!(pieces("a {b c} {d}"), [TemplatePiece::Literal("a {b c} "), TemplatePiece::Place("d")]);
        assert_eq!(
            pieces("{{x}}"),
            [TemplatePiece::Literal("{"), TemplatePiece::Place("x"), TemplatePiece::Literal("}")]
        );
        assert_eq!(pieces("{"), [TemplatePiece::Literal("{")]);
    }

    proptest! {
        #[test]
        fn an_argument_never_leaves_its_place(post in ".{1,40}", text in ".{0,200}", author in ".{1,60}") {
            let said = json!({"post": post, "author": author, "text": text});
            if let Ok(request) = moltbook().operations["reply"].request(&with(said)) {
                let middle = request.target.strip_prefix("/posts/").and_then(|rest| rest.strip_suffix("/replies"));
                let middle = middle.expect("the declared path is around it");
                prop_assert!(!middle.contains(['/', '?', '#', '\\']) && middle != "." && middle != "..");
                let body: Value = serde_json::from_slice(&request.body.unwrap()).unwrap();
                prop_assert_eq!(&body["to"], &json!(author));
                prop_assert_eq!(body.as_object().unwrap().len(), 2);
            }
        }
    }
}
