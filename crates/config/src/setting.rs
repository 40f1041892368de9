//! Setting types: how a value is read from the file, from the environment or a flag, and how it is shown.
//!
//! Takes a node or a text; gives a typed value or an error. Promise: a value is either
//! read in full or refused with what was expected; nothing is guessed.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};
use sluice_core::ids::SecretName;
use sluice_core::policy::SourcePosition;
use sluice_core::policy::reading::{YamlKey, YamlNode, YamlValue, closest, escape};
use sluice_core::{AgentName, Millis, NodeName, PersonName};

use super::size::ByteSize;

/// An error of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingError {
    /// The place, if it is inside the value.
    pub(crate) place: Option<SourcePosition>,
    /// What was found and what was expected: the text that follows the name of the key.
    pub(crate) message: String,
    /// The next step for the user.
    pub(crate) hint: Option<String>,
}

impl SettingError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The innermost place wins.
    pub(crate) fn at(mut self, place: SourcePosition) -> Self {
        self.place.get_or_insert(place);
        self
    }

    /// A key that a map does not have. `has` lists those that it has: "files has read and write".
    pub(crate) fn unknown_key(key: &YamlKey, has: &str, known: &[&str]) -> Self {
        let bad = Self::new(format!("has no key `{}`: {has}", escape(&key.text))).at(key.place);
        let close = closest(&key.text, known.iter().copied());
        Self { hint: close.map(|close| format!("did you mean `{close}`?")), ..bad }
    }

    /// The same error for the map that has this key: the name of the key comes first.
    pub(crate) fn inside(self, key: &YamlKey, value: &YamlNode) -> Self {
        Self { message: format!("{}: {}", key.text, self.message), ..self }.at(value.place)
    }

    /// An error such as "must be a duration such as `30s`, not `soon`".
    pub(crate) fn expected(what: &str, found: &str) -> Self {
        Self::new(format!("must be {what}, not `{}`", escape(found)))
    }
}

/// A type of value that a key can hold.
pub(crate) trait Setting: Sized {
    /// What is expected, as text.
    const WHAT: &'static str;

    /// Reads a text of the environment or a flag, or an unquoted word of the file. Relative paths start at `base`.
    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError>;

    /// Reads a node of the file.
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        match &node.kind {
            YamlValue::Text(text) => Self::from_text(text, base),
            YamlValue::Integer(number) => Self::from_text(&number.to_string(), base),
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::List(_) | YamlValue::Map(_) => {
                Err(Self::not(node))
            }
        }
    }

    /// The value as people and machines see it. Never a secret.
    fn shown(&self) -> Value;

    /// JSON Schema of the values that the file may hold.
    fn shape() -> Value;

    /// The error for the wrong kind of node.
    fn not(node: &YamlNode) -> SettingError {
        SettingError::new(format!("must be {}, not {}", Self::WHAT, node.noun()))
    }
}

/// Values with a minimum and a maximum.
pub(crate) trait BoundedSetting: Setting + PartialOrd {
    /// Checks the bounds.
    fn within(&self, range: &RangeInclusive<Self>) -> Result<(), SettingError> {
        if range.contains(self) {
            return Ok(());
        }
        let words = |value: &Self| word(&value.shown());
        Err(SettingError::new(format!(
            "must lie between {} and {}, not `{}`",
            words(range.start()),
            words(range.end()),
            words(self)
        )))
    }
}

impl BoundedSetting for u32 {}
impl BoundedSetting for Millis {}
impl BoundedSetting for ByteSize {}

/// A shown value as one word or line.
#[must_use]
pub fn word(value: &Value) -> String {
    match value {
        Value::Null => "not set".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) if list.is_empty() => "none".into(),
        Value::Object(map) if map.is_empty() => "none".into(),
        Value::Array(list) => list.iter().map(word).collect::<Vec<_>>().join(", "),
        Value::Object(map) => map.iter().map(|(k, v)| format!("{k}: {}", word(v))).collect::<Vec<_>>().join(", "),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

impl Setting for u32 {
    const WHAT: &'static str = "a whole number";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        text.parse().map_err(|_| SettingError::expected(Self::WHAT, text))
    }
    fn from_node(node: &YamlNode, _: &Path) -> Result<Self, SettingError> {
        match node.kind {
            YamlValue::Integer(number) => {
                Self::try_from(number).map_err(|_| SettingError::expected(Self::WHAT, &number.to_string()))
            }
            _ => Err(Self::not(node)),
        }
    }
    fn shown(&self) -> Value {
        json!(self)
    }
    fn shape() -> Value {
        json!({"type": "integer", "minimum": 0})
    }
}

impl Setting for bool {
    const WHAT: &'static str = "true or false";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        text.parse().map_err(|_| SettingError::expected(Self::WHAT, text))
    }
    fn from_node(node: &YamlNode, _: &Path) -> Result<Self, SettingError> {
        if let YamlValue::Bool(truth) = node.kind { Ok(truth) } else { Err(Self::not(node)) }
    }
    fn shown(&self) -> Value {
        json!(self)
    }
    fn shape() -> Value {
        json!({"type": "boolean"})
    }
}

impl Setting for Millis {
    const WHAT: &'static str = "a duration such as `30s`, `10m`, `24h` or `7d`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        Self::from_words(text).ok_or_else(|| SettingError::expected(Self::WHAT, text))
    }
    fn shown(&self) -> Value {
        let millis = self.as_millis();
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
        // One day reads better in hours: 24h, but 7d.
        let fits = |unit: u64| millis >= unit && millis.is_multiple_of(unit) && (unit < 86_400_000 || millis > unit);
        let (unit, name) = units.into_iter().find(|(unit, _)| fits(*unit)).unwrap_or((1, "ms"));
        if millis == 0 { json!("0s") } else { json!(format!("{}{name}", millis / unit)) }
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"})
    }
}

impl Setting for SocketAddr {
    const WHAT: &'static str = "an address and a port such as `127.0.0.1:7420`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let bad = |_| {
            let bad = SettingError::expected(Self::WHAT, text);
            if text.starts_with("localhost") { bad.hint("write 127.0.0.1 for localhost") } else { bad }
        };
        text.parse().map_err(bad)
    }
    fn shown(&self) -> Value {
        json!(self.to_string())
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": ":[0-9]+$"})
    }
}

impl Setting for PathBuf {
    const WHAT: &'static str = "a path";

    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        if text.is_empty() || text.contains('\0') {
            return Err(SettingError::expected(Self::WHAT, text));
        }
        if text.starts_with('~') {
            return Err(SettingError::expected("an absolute path, or one relative to the folder of the file", text)
                .hint("write the folder in full; only a shell expands `~`"));
        }
        Ok(clean(&base.join(text)))
    }
    fn shown(&self) -> Value {
        json!(self.display().to_string())
    }
    fn shape() -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

/// Without `.` and doubled slashes. `..` stays, because its meaning depends on links.
pub(crate) fn clean(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

macro_rules! names {
    ($($name:ty, $what:literal;)*) => {$(
        impl Setting for $name {
            const WHAT: &'static str = $what;

            fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
                Self::new(text).map_err(|why| SettingError::expected(Self::WHAT, text).hint(why.to_string()))
            }
            fn shown(&self) -> Value {
                json!(self.as_str())
            }
            fn shape() -> Value {
                json!({"type": "string", "minLength": 1, "maxLength": Self::MAX})
            }
        }
    )*};
}

names! {
    NodeName, "a node's name";
    AgentName, "an agent's name";
    PersonName, "a person's name";
    SecretName, "a secret's name";
}

impl<T: Setting> Setting for Option<T> {
    const WHAT: &'static str = T::WHAT;

    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        T::from_text(text, base).map(Some)
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        T::from_node(node, base).map(Some)
    }
    fn shown(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::shown)
    }
    fn shape() -> Value {
        T::shape()
    }
}

impl<T: Setting> Setting for Vec<T> {
    const WHAT: &'static str = "a list";

    /// A list, separated by commas.
    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        text.split(',').map(|item| T::from_text(item.trim(), base)).collect()
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::List(items) = &node.kind else {
            return Err(Self::not(node).hint(format!("each item is {}", T::WHAT)));
        };
        items.iter().map(|item| T::from_node(item, base).map_err(|bad| bad.at(item.place))).collect()
    }
    fn shown(&self) -> Value {
        Value::Array(self.iter().map(T::shown).collect())
    }
    fn shape() -> Value {
        json!({"type": "array", "items": T::shape()})
    }
}

/// An enum whose values are plain words.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$word_doc])* $variant),* }

        impl $name {
            /// The word in the file.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }

        impl $crate::setting::Setting for $name {
            const WHAT: &'static str = concat!("one of", $(" `", $word, "`",)*);

            fn from_text(text: &str, _: &std::path::Path) -> Result<Self, $crate::setting::SettingError> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => {
                        let bad = $crate::setting::SettingError::expected(Self::WHAT, text);
                        let close = sluice_core::policy::reading::closest(text, [$($word),*]);
                        Err(match close { Some(close) => bad.hint(format!("did you mean `{close}`?")), None => bad })
                    }
                }
            }
            fn shown(&self) -> serde_json::Value { serde_json::json!(self.as_str()) }
            fn shape() -> serde_json::Value { serde_json::json!({"enum": [$($word),*]}) }
        }
    };
}
pub(crate) use choice;

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T: Setting>(text: &str) -> Result<T, SettingError> {
        T::from_text(text, Path::new("/etc/sluice"))
    }

    #[test]
    fn a_duration_has_a_unit_and_prints_as_it_was_written() {
        for good in ["0s", "250ms", "90s", "30s", "10m", "1h", "24h", "7d"] {
            assert_eq!(word(&text::<Millis>(good).unwrap().shown()), good);
        }
        assert_eq!(word(&text::<Millis>("60s").unwrap().shown()), "1m");
        for bad in ["", "30", "s", "-1s", "1.5h", "30 s", "30S", "1w", "99999999999999999999s", "9999999999999999d"] {
            assert!(text::<Millis>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_relative_path_begins_at_its_base() {
        assert_eq!(text::<PathBuf>("./data").unwrap(), Path::new("/etc/sluice/data"));
        assert_eq!(text::<PathBuf>("/var//lib/./x").unwrap(), Path::new("/var/lib/x"));
        assert!(text::<PathBuf>("~/data").unwrap_err().hint.is_some());
        assert!(text::<PathBuf>("").is_err());
    }

    #[test]
    fn a_name_of_a_host_is_no_address_to_listen_on() {
        assert!(text::<SocketAddr>("localhost:7420").unwrap_err().hint.unwrap().contains("127.0.0.1"));
        assert!(text::<SocketAddr>("127.0.0.1").is_err());
        assert_eq!(text::<SocketAddr>("[::1]:7420").unwrap().to_string(), "[::1]:7420");
    }
}
