//! The way in: six stages, each of which takes what only the one before it can make.
//!
//! Takes `Raw` and a plan, gives `Clean` or a refusal. Promise: nothing reaches an agent that has not
//! passed all six, and nothing said about the sender reaches the fourth.

pub mod encoding;
pub mod html;
pub mod injection;
mod json;
pub mod output;
pub mod schema;
pub mod size;

pub use output::{Clean, Envelope, Place};
pub use schema::Schema;
pub use size::{Kind, Limits, Raw, Strings, TOOL_DEFINITION, TOOL_RESULT};

use serde_json::Value;

use crate::finding::Refused;

/// What to do with an item: limits, the shape it must have, and where it goes.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub limits: Limits,
    /// The schema that JSON must follow.
    pub schema: Option<Schema>,
    /// What a schema says of the strings of JSON: which are HTML (`format: html`, `contentMediaType: text/html`) and keep
    /// sanitised markup. Markup in the others becomes text. Nothing is checked against it.
    pub shape: Option<Value>,
    /// What the text is escaped for.
    pub place: Place,
    /// Provenance; without it the bare text comes out.
    pub envelope: Option<Envelope>,
}

/// Bytes from outside become clean content.
///
/// # Errors
/// The refusal of the stage that would not let the content through.
pub fn clean(raw: Raw<'_>, plan: &Plan) -> Result<Clean, Refused> {
    let bounded = size::bound(raw, &plan.limits)?;
    let text = encoding::read_as(bounded, plan.shape.as_ref());
    let defused = html::defuse(text, plan.place);
    let screened = injection::screen(defused);
    let shaped = schema::shape(screened, plan.schema.as_ref(), &plan.limits)?;
    Ok(output::render(shaped, plan.place, plan.envelope.as_ref()))
}
