//! The JSON Schema of policy files, for editors. The engine checks more than a schema can say.

/// JSON Schema (draft 2020-12) of `org.yaml` and `agents/<name>.yaml`.
pub const SCHEMA: &str = include_str!("../../../../policies/schema.json");
