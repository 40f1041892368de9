//! The intake pipeline: six stages, each of which takes what only the one before it can make.
//!
//! Takes `RawContent` and a plan, gives `CleanContent` or a refusal. Promise: nothing reaches an agent that has not passed all six
//! stages, and nothing about the sender reaches the fourth.

pub mod encoding;
pub mod html;
pub mod injection;
mod json;
pub mod output;
pub mod schema;
pub mod size;

pub use output::{CleanContent, OutputContext, ProvenanceEnvelope};
pub use schema::{SafeSchema, SchemaFault, SchemaFaultReason, without_names};
pub use size::{ContentFormat, ContentLimits, JsonStringsKind, RawContent, TOOL_DEFINITION, TOOL_RESULT};

use serde_json::Value;

use crate::finding::ContentError;

/// The plan for an item: its limits, its required shape, and its destination.
#[derive(Debug, Clone, Default)]
pub struct ScreeningPlan {
    pub limits: ContentLimits,
    /// The schema that JSON must follow.
    pub schema: Option<SafeSchema>,
    /// A schema that says which strings of JSON are HTML (`format: html`, `contentMediaType: text/html`) and keep
    /// sanitised markup. Markup in the others becomes text. Nothing is validated against it.
    pub shape: Option<Value>,
    /// The destination that the text is escaped for.
    pub place: OutputContext,
    /// Provenance; without it the bare text is given.
    pub envelope: Option<ProvenanceEnvelope>,
}

/// Turns untrusted bytes into clean content.
///
/// # Errors
/// The refusal of the stage that did not accept the content.
pub fn clean(raw: RawContent<'_>, plan: &ScreeningPlan) -> Result<CleanContent, ContentError> {
    let bounded = size::bound(raw, &plan.limits)?;
    let text = encoding::read_as(bounded, plan.shape.as_ref());
    let defused = html::defuse(text, plan.place);
    let screened = injection::screen(defused);
    let shaped = schema::shape(screened, plan.schema.as_ref(), &plan.limits)?;
    Ok(output::render(shaped, plan.place, plan.envelope.as_ref()))
}
