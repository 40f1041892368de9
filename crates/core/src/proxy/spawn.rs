//! `proxy.spawn`: one task of a proxy, requested by label and task as an agent spawns a helper.
//!
//! Takes the arguments of a spawn; gives the proxy, the operation, its arguments and the options of the spawn.
//! Promise: a spawn is the call `proxy.<name>.<operation>` with options that only narrow what it gives. There is no model
//! in a proxy, so a task is an operation that the declaration names, and the context is its arguments and nothing else.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Proxy, check};
use crate::action::Action;
use crate::clock::Millis;
use crate::ids::CapabilityName;

/// The capability of a spawn.
pub const CAPABILITY: &str = "proxy.spawn";
/// The optional prefix of the name of a proxy in a label.
const LABEL: &str = "proxy-";
/// The largest `output_schema`, in bytes of JSON.
const SCHEMA: usize = 16 << 10;

/// The options of a spawn. They belong to the frozen action, so that an approval covers them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpawnOptions {
    /// The answer is also checked against this schema, and fields that it does not name are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The longest time the task may take, in minutes. Never longer than declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_minutes: Option<u32>,
}

impl SpawnOptions {
    /// Reads the options of a spawn. `arguments` have the shape that the catalogue gives them.
    ///
    /// # Errors
    /// The fault in them, in words for the caller.
    pub fn read(arguments: &Map<String, Value>, proxy: &Proxy) -> Result<Self, String> {
        let most = proxy.limits().timeout_minutes;
        let timeout_minutes = arguments.get("timeout_minutes").map(|given| {
            let minutes = given.as_u64().and_then(|minutes| u32::try_from(minutes).ok());
            let fits = |minutes: &u32| (1..=most).contains(minutes);
            minutes.filter(fits).ok_or_else(|| {
                format!(
                    "`timeout_minutes` is between 1 and {most}: a spawn can only shorten the time its proxy declares"
                )
            })
        });
        let output_schema = arguments.get("output_schema").cloned();
        if let Some(schema) = &output_schema {
            if schema.to_string().len() > SCHEMA {
                return Err(format!("`output_schema` has at most {SCHEMA} bytes"));
            }
            if let Some(why) = check::schema_flaw(schema) {
                return Err(format!("`output_schema` cannot be used: {why}"));
            }
        }
        Ok(Self { output_schema, timeout_minutes: timeout_minutes.transpose()? })
    }

    /// The time that a task gets.
    #[must_use]
    pub fn wall(&self, proxy: &Proxy) -> Millis {
        let declared = proxy.limits().wall();
        self.timeout_minutes.map_or(declared, |minutes| Millis::from_mins(u64::from(minutes)).min(declared))
    }

    /// Each option with its value, for cards and scans.
    #[must_use]
    pub fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }
}

/// The names a label can mean, the more exact one first: `moltbook` and `proxy-moltbook` are the same proxy.
pub fn names(label: &str) -> impl Iterator<Item = &str> {
    std::iter::once(label).chain(label.strip_prefix(LABEL))
}

/// The label of a proxy, as it appears in answers.
#[must_use]
pub fn label(proxy: &str) -> String {
    format!("{LABEL}{proxy}")
}

/// The proxy and the operation that a capability names.
#[must_use]
pub fn split_capability(capability: &CapabilityName) -> Option<(&str, &str)> {
    capability.as_str().strip_prefix("proxy.")?.split_once('.')
}

/// The arguments of the spawn that an action is, in the one form that rules about `proxy.spawn` test: the label is
/// the bare name of the proxy. `None` for an action that is not a spawn. `capability` is its name without any prefix.
#[must_use]
pub fn arguments(capability: &CapabilityName, action: &Action) -> Option<Map<String, Value>> {
    let (proxy, task) = split_capability(capability)?;
    let mut found = action.spawn()?.fields();
    found.insert("label".into(), proxy.into());
    found.insert("task".into(), task.into());
    found.insert("context".into(), Value::Object(action.arguments().clone()));
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::moltbook;
    use super::*;

    fn read(arguments: Value) -> Result<SpawnOptions, String> {
        SpawnOptions::read(arguments.as_object().unwrap(), &moltbook())
    }

    #[test]
    fn a_spawn_only_shortens_the_time_of_its_proxy() {
        assert_eq!(read(json!({})).unwrap().wall(&moltbook()), Millis::from_mins(5));
        assert_eq!(read(json!({"timeout_minutes": 2})).unwrap().wall(&moltbook()), Millis::from_mins(2));
        assert_eq!(read(json!({"timeout_minutes": 5})).unwrap().wall(&moltbook()), Millis::from_mins(5));
        for bad in [json!(0), json!(6), json!(-1), json!(1.5), json!("2"), json!(u64::MAX), json!(null)] {
            let error = read(json!({"timeout_minutes": bad})).unwrap_err();
            assert!(error.contains("between 1 and 5"), "{error}");
        }
        let kept = SpawnOptions { timeout_minutes: Some(20), output_schema: None };
        assert_eq!(kept.wall(&moltbook()), Millis::from_mins(5), "a declaration that became shorter since counts");
    }

    #[test]
    fn a_schema_without_bounds_or_that_refers_elsewhere_is_refused() {
        let good = json!({"type": "object", "properties": {"posts": {"type": "array", "items": {"type": "string"}}}});
        assert!(read(json!({"output_schema": good})).is_ok());
        let long = json!({"type": "object", "properties": {"a": {"enum": ["x".repeat(SCHEMA)]}}});
        let bad = [
            json!(true),
            json!({}),
            json!({"type": "object"}),
            json!({"type": "array"}),
            json!({"type": "object", "properties": {"a": true}}),
            json!({"type": "object", "properties": {"a": {"$ref": "https://evil.example/s.json"}}}),
            json!({"type": "object", "properties": {}, "additionalProperties": true}),
            long,
        ];
        for bad in bad {
            assert!(read(json!({"output_schema": bad})).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_label_with_and_without_its_beginning_is_the_same_proxy() {
        assert_eq!(names("moltbook").collect::<Vec<_>>(), ["moltbook"]);
        assert_eq!(names("proxy-moltbook").collect::<Vec<_>>(), ["proxy-moltbook", "moltbook"]);
        assert_eq!(label("moltbook"), "proxy-moltbook");
        let name = |text: &str| CapabilityName::new(text).unwrap();
        assert_eq!(split_capability(&name("proxy.moltbook.feed")), Some(("moltbook", "feed")));
        assert_eq!((split_capability(&name("proxy.spawn")), split_capability(&name("email.send"))), (None, None));
    }
}
