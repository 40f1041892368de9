//! A target of a write, as doors show it.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::target::TracedTarget;

/// A target of a write.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetView {
    /// The argument that holds it.
    pub argument: String,
    /// The value in the write.
    pub value: String,
    /// `asked` for by the user, `known`, `seen` in outside text, or `new`.
    pub origin: String,
    /// The outside text in which it was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl From<TracedTarget> for TargetView {
    fn from(traced: TracedTarget) -> Self {
        let origin = traced.origin.as_str().into();
        Self { argument: traced.argument, value: traced.value, origin, source: traced.source }
    }
}
