//! The view of a session.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_store::Session;

/// A session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionView {
    /// The id of the session.
    pub session_id: String,
    /// The agent of the session.
    pub agent: String,
    /// The name of the client program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// When it was opened.
    pub opened_at: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Whether the user's task is known.
    pub has_task: bool,
    /// Whether it was shown content that looked like an attack.
    pub tainted: bool,
}

impl From<&Session> for SessionView {
    fn from(session: &Session) -> Self {
        Self {
            session_id: session.id.to_string(),
            agent: session.agent.to_string(),
            client: session.client.clone(),
            opened_at: session.opened_at.to_string(),
            ended_at: session.ended_at.map(|at| at.to_string()),
            has_task: session.task.is_some(),
            tainted: session.tainted_at.is_some(),
        }
    }
}
