//! What the gateway's own services remember: messages between agents, planned calls, and numbers about an agent.

mod activity;
mod comms;
mod schedules;

pub use activity::AgentActivity;
pub use comms::{AgentMessage, MESSAGES_WAITING, MessagePriority, NewAgentMessage};
pub(crate) use schedules::cancel_all_of;
pub use schedules::{NewSchedule, SCHEDULES_OF_AGENT, Schedule, ScheduleRun, ScheduleState};
