//! Sections: one struct per topic, each field with its type, default, bounds and meaning, declared once.
//!
//! From them the macro generates the struct, its default, its reader, its part of the JSON Schema and its
//! lines of the manual. Promise: none of these can disagree with another.

use serde_json::{Map, Value, json};

use super::reader::ConfigReader;

/// One key, for the schema and the manual.
#[derive(Debug, Clone)]
pub(crate) struct ConfigField {
    /// The name of the key inside its section.
    pub(crate) name: &'static str,
    pub(crate) shape: Value,
    pub(crate) default: Value,
    /// The default as text, if it depends on the machine.
    pub(crate) by: Option<&'static str>,
    pub(crate) meaning: String,
}

/// One section of the configuration.
pub(crate) trait ConfigSection: Sized + Default {
    /// The key of the section; empty for the keys at the top.
    const NAME: &'static str;
    /// The description of the section.
    fn meaning() -> String;
    /// The keys of the section.
    fn fields() -> Vec<ConfigField>;
    /// Reads the section from the layers.
    fn read(reader: &mut ConfigReader<'_>) -> Self;
    /// The values, as people and machines see them.
    fn shown(&self) -> Vec<(String, Value)>;
}

/// The full name of a key: `limits` and `body` as `limits.body`.
pub(crate) fn key(section: &str, field: &str) -> String {
    if section.is_empty() { field.to_owned() } else { format!("{section}.{field}") }
}

/// The lines of a doc comment as one text.
pub(crate) fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// The properties of a section as JSON Schema.
pub(crate) fn properties(fields: &[ConfigField]) -> Map<String, Value> {
    let property = |field: &ConfigField| {
        let mut shape = field.shape.clone();
        if let Value::Object(map) = &mut shape {
            map.insert("description".into(), json!(field.meaning));
            if field.by.is_none() && !field.default.is_null() {
                map.insert("default".into(), field.default.clone());
            }
        }
        (field.name.to_owned(), shape)
    };
    fields.iter().map(property).collect()
}

macro_rules! section {
    (
        $(#[doc = $doc:literal])*
        $name:ident at $key:literal {
            $(
                $(#[doc = $field_doc:literal])*
                $field:ident : $type:ty = $default:expr $(; within $range:expr)? $(=> $by:literal)?
            ),* $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( $(#[doc = $field_doc])* pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl $crate::section::ConfigSection for $name {
            const NAME: &'static str = $key;

            fn meaning() -> String {
                $crate::section::joined(&[$($doc),*])
            }
            fn fields() -> Vec<$crate::section::ConfigField> {
                let default = Self::default();
                vec![$( $crate::section::ConfigField {
                    name: stringify!($field),
                    shape: <$type as $crate::setting::Setting>::shape(),
                    default: $crate::setting::Setting::shown(&default.$field),
                    by: None$(.or(Some($by)))?,
                    meaning: $crate::section::joined(&[$($field_doc),*]),
                } ),*]
            }
            fn read(reader: &mut $crate::reader::ConfigReader<'_>) -> Self {
                let default = Self::default();
                Self { $( $field: {
                    let key = $crate::section::key($key, stringify!($field));
                    let value = reader.take::<$type>(&key);
                    $( let value = value.filter(|value| reader.check(&key, value, &$range)); )?
                    value.unwrap_or(default.$field)
                } ),* }
            }
            fn shown(&self) -> Vec<(String, serde_json::Value)> {
                vec![$( (
                    $crate::section::key($key, stringify!($field)),
                    $crate::setting::Setting::shown(&self.$field),
                ) ),*]
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "description": <Self as $crate::section::ConfigSection>::meaning(),
                    "type": ["object", "null"],
                    "additionalProperties": false,
                    "properties": $crate::section::properties(
                        &<Self as $crate::section::ConfigSection>::fields()),
                })
            }
        }
    };
}
pub(crate) use section;
