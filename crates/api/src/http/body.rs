//! The body of a request as the type its handler takes.
//!
//! Takes JSON; gives the typed value, or the name of the wrong field. Promise: a body is an object with named
//! fields, and never a list of values in the order of the fields. Errors name fields and kinds, never values.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use serde_json::Value;
use sluice_core::refusal::{Code, Refusal};
use sluice_services::CallError;

/// Reads a body.
///
/// # Errors
/// When it does not have the form that the handler takes.
pub(super) fn read<T: DeserializeOwned>(body: Value) -> Result<T, CallError> {
    let wrong = |text: &str| CallError::from(Refusal::new(Code::SchemaWrongType).with_text(text));
    if !body.is_object() {
        return Err(wrong("the body of this request is an object with named fields"));
    }
    // Bodies are small, and the copy is only used to report an error.
    let copy = body.clone();
    serde_json::from_value(body).map_err(|error| wrong(&said::<T>(&copy, &error.to_string())))
}

/// A field that is an object, never a list of its values.
pub(super) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(reader: D) -> Result<Option<T>, D::Error> {
    match Value::deserialize(reader)? {
        Value::Null => Ok(None),
        value @ Value::Object(_) => serde_json::from_value(value).map(Some).map_err(D::Error::custom),
        _ => Err(D::Error::custom("invalid type: something else, expected an object with named fields")),
    }
}

/// The error of the JSON reader, with the field and without the value.
fn said<T: DeserializeOwned>(body: &Value, error: &str) -> String {
    let cut = error.split(", expected").next().unwrap_or(error);
    if !cut.starts_with("invalid value") && !cut.starts_with("invalid type") && !cut.starts_with("invalid length") {
        return error.to_owned();
    }
    let expected = error.split_once(", expected").map_or("", |(_, rest)| rest);
    let name = culprit::<T>(body, &[]).map_or_else(|| "a field of the request".to_owned(), |name| format!("`{name}`"));
    format!("{name} is not valid: expected{expected}")
}

/// The field that cannot be read, found by reading each one alone.
fn culprit<T: DeserializeOwned>(body: &Value, path: &[&str]) -> Option<String> {
    let fields = path.iter().try_fold(body, |value, key| value.get(key))?.as_object()?;
    for key in fields.keys() {
        let path: Vec<&str> = path.iter().copied().chain([key.as_str()]).collect();
        let alone = only(body, &path)?;
        let Err(error) = serde_json::from_value::<T>(alone) else { continue };
        let error = error.to_string();
        // A missing field was already named; what is left to find is a wrong kind.
        if error.starts_with("invalid") {
            let plain = |key: &&str| key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let inner = if path.len() < 4 { culprit::<T>(body, &path) } else { None };
            return inner.or_else(|| path.iter().all(plain).then(|| path.join(".")));
        }
    }
    None
}

/// The body with only this field.
fn only(body: &Value, path: &[&str]) -> Option<Value> {
    let value = path.iter().try_fold(body, |value, key| value.get(key))?.clone();
    Some(path.iter().rev().fold(value, |value, key| Value::Object([((*key).to_owned(), value)].into_iter().collect())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Body {
        name: String,
        #[serde(default)]
        count: Option<u32>,
        #[serde(default, deserialize_with = "object")]
        place: Option<Place>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Place {
        #[serde(default)]
        street: Option<String>,
    }

    #[test]
    fn what_is_wrong_is_said_with_its_field_and_without_its_value() {
        let said = |body: Value| read::<Body>(body).unwrap_err().refusal.to_string();
        for (body, text) in [
            (json!({"name": "a", "count": "s3cret"}), "`count` is not valid: expected u32"),
            (json!({"name": 4_711}), "`name` is not valid: expected a string"),
            (json!({"name": "a", "place": {"street": 4_711}}), "`place.street` is not valid: expected a string"),
            (json!({"count": 1}), "missing field `name`"),
            (json!({"name": "a", "place": ["s3cret"]}), "`place` is not valid: expected an object with named fields"),
            (json!(["a", 1]), "the body of this request is an object with named fields"),
            (json!("a"), "the body of this request is an object with named fields"),
        ] {
            assert_eq!(said(body.clone()), text, "{body}");
        }
        assert!(read::<Body>(json!({"name": "a", "count": 3, "place": {"street": "x"}})).is_ok());
    }
}
