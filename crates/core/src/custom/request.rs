//! Makes a request from a declared request and a call's arguments.
//!
//! Promise: an argument fills the place it was declared for and nothing else. It is a JSON value in the body, one
//! percent-encoded part of the path, or one percent-encoded value of the query; host, method, headers and the number of
//! parts of the path are those of the file, whatever the arguments are.

use serde_json::{Map, Value};

use super::{CustomCapability, DeclaredRequest, RequestTemplate};
use crate::proxy::{FillError, ProxyMethod, TemplatePiece, encode, fill, fill_json, pieces, plain};

/// The place that stands for the idempotency key of the write.
pub const KEY: &str = "call.key";
/// Prefix of the places that stand for values of `keep`.
pub const ANSWER: &str = "answer.";
/// Longest value of an answer that is kept, in bytes.
const LONGEST_KEPT: usize = 200;

/// A request that is ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilledRequest {
    /// Its method.
    pub method: ProxyMethod,
    /// The whole address.
    pub url: String,
    /// Headers of the file, and the type of the body.
    pub headers: Vec<(String, String)>,
    /// JSON, if it has a body.
    pub body: Option<Vec<u8>>,
}

/// Values that fill places, apart from the arguments.
#[derive(Debug, Clone, Default)]
pub struct TemplateContext<'a> {
    /// The idempotency key of the write.
    pub key: Option<&'a str>,
    /// Values of the answer that were kept, by name.
    pub kept: Map<String, Value>,
}

impl CustomCapability {
    /// Checks the arguments of a call.
    ///
    /// # Errors
    /// When one is unknown, missing or of another shape.
    pub fn check_arguments(&self, arguments: &Map<String, Value>) -> Result<(), FillError> {
        for (name, value) in arguments {
            let argument = self.arguments.get(name).ok_or_else(|| FillError::Unknown(name.clone()))?;
            if !argument.allows(value) {
                return Err(FillError::Shape(name.clone()));
            }
        }
        let missing = self.arguments.iter().find(|(name, argument)| {
            let is_given = arguments.contains_key(name.as_str());
            argument.required && !is_given
        });
        missing.map_or(Ok(()), |(name, _)| Err(FillError::Missing(name.clone())))
    }

    /// All values that can fill a place: the checked arguments of a call, and those apart from them.
    pub(super) fn values(
        &self,
        arguments: &Map<String, Value>,
        beside: &TemplateContext<'_>,
    ) -> Result<Map<String, Value>, FillError> {
        self.check_arguments(arguments)?;
        let mut values = arguments.clone();
        values.extend(beside.key.map(|key| (KEY.to_owned(), key.into())));
        values.extend(beside.kept.iter().map(|(name, value)| (format!("{ANSWER}{name}"), value.clone())));
        Ok(values)
    }

    /// One of its requests for these arguments.
    ///
    /// # Errors
    /// When an argument is unknown, missing, of another shape, or would change where the request goes.
    pub fn fill_request(
        &self,
        (declared, template): (&DeclaredRequest, &RequestTemplate),
        arguments: &Map<String, Value>,
        beside: &TemplateContext<'_>,
    ) -> Result<FilledRequest, FillError> {
        let values = self.values(arguments, beside)?;
        let mut url = declared.base_url.trim_end_matches('/').to_owned();
        fill_path(&template.path, &values, &mut url)?;
        let mut sign = '?';
        for (name, text) in &template.query {
            let pieces = pieces(text);
            let absent =
                |piece: &TemplatePiece<'_>| matches!(piece, TemplatePiece::Place(name) if !values.contains_key(*name));
            if pieces.iter().any(absent) {
                continue;
            }
            url.push(sign);
            sign = '&';
            encode(name, &mut url);
            url.push('=');
            encode(&fill(&pieces, &values), &mut url);
        }
        let body = template.body.as_ref().and_then(|body| fill_json(body, &values));
        let mut headers: Vec<(String, String)> =
            template.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
        if body.is_some() {
            headers.push(("content-type".into(), "application/json".into()));
        }
        let body = body.map(|body| body.to_string().into_bytes());
        Ok(FilledRequest { method: template.method, url, headers, body })
    }

    /// The values of an answer that later requests need; those it does not have in a usable form are left out.
    #[must_use]
    pub fn extract_kept_values(&self, answer: &Value) -> Map<String, Value> {
        let usable = |value: &Value| match value {
            Value::String(text) => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~:@".contains(&b);
                !text.is_empty() && text.len() <= LONGEST_KEPT && text.bytes().all(plain)
            }
            Value::Number(_) => true,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        };
        self.keep
            .iter()
            .filter_map(|(name, place)| Some((name.clone(), answer.pointer(place)?.clone())))
            .filter(|(_, value)| usable(value))
            .collect()
    }
}

fn fill_path(template: &str, values: &Map<String, Value>, url: &mut String) -> Result<(), FillError> {
    for piece in pieces(template) {
        match piece {
            TemplatePiece::Literal(text) => url.push_str(text),
            TemplatePiece::Place(name) => {
                let value = values.get(name).ok_or_else(|| FillError::Missing(name.to_owned()))?;
                let bad = || FillError::Path(name.to_owned());
                if value.is_array() || value.is_object() || value.is_null() {
                    return Err(bad());
                }
                let value = plain(value);
                // A part of a path that is empty or dots leads elsewhere on many servers.
                if value.is_empty() || value.bytes().all(|b| b == b'.') || value.contains(['/', '\\', '\0']) {
                    return Err(bad());
                }
                encode(&value, url);
            }
        }
    }
    Ok(())
}
