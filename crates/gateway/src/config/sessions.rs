//! Sessions of agents.

use sluice_core::{AgentName, Span};

use super::section::section;

section! {
    /// Sessions of agents.
    Sessions at "sessions" {
        /// Agents whose client may state what the user asked for. What an agent's client says is believed only here,
        /// because it widens what counts as asked.
        task_from: Vec<AgentName> = Vec::new(),
        /// How long a session lasts.
        ttl: Span = Span::from_hours(24); within Span::from_mins(1)..=Span::from_hours(31 * 24),
    }
}
