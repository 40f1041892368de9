//! Views of the reasons why a person is asked, and of agents in observe mode.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::approval::reason::ApprovalReason;

/// One reason why a person is asked.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReasonView {
    /// A stable code, such as `policy.rule` or `batch.window`.
    pub code: String,
    /// The rule that asked, as file and line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The whole reason on one line for people.
    pub words: String,
}

impl From<&ApprovalReason> for ReasonView {
    fn from(reason: &ApprovalReason) -> Self {
        Self { code: reason.code.clone(), rule: reason.rule.clone(), words: reason.describe() }
    }
}

/// An agent whose calls are judged and recorded, and not stopped.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ObservingView {
    /// The name of the agent.
    pub agent: String,
    /// When observe mode ends.
    pub until: String,
    /// Observed capabilities with effects outside the gateway.
    pub leaving: Vec<String>,
}
