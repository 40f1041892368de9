//! Reading and adding fields of JSON that the gateway built itself, without panicking.

use serde_json::{Map, Value};

/// The value at a pointer (`/fact/kind`), or null.
pub fn at<'v>(value: &'v Value, pointer: &str) -> &'v Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// Adds a field to an object. Any other value becomes an object first.
pub fn put(value: &mut Value, name: &str, field: impl Into<Value>) {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    if let Some(object) = value.as_object_mut() {
        object.insert(name.to_owned(), field.into());
    }
}
