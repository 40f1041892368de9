//! Views of why a person is asked, and of agents in observe mode.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::approval::reason::AskReason;

/// One reason why a person is asked.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReasonView {
    /// Stable code, such as `policy.rule` or `batch.window`.
    pub code: String,
    /// The rule that asked, as file and line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// All of it on one line for people.
    pub words: String,
}

impl From<&AskReason> for ReasonView {
    fn from(reason: &AskReason) -> Self {
        Self { code: reason.code.clone(), rule: reason.rule.clone(), words: reason.words() }
    }
}

/// An agent whose calls are judged and recorded, and not stopped.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ObservingView {
    /// The agent.
    pub agent: String,
    /// When it ends by itself.
    pub until: String,
    /// Capabilities that leave the house and are included.
    pub leaving: Vec<String>,
}
