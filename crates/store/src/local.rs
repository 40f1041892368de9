//! Data of the gateway's own services: messages between agents, planned calls, and the activity of an agent in numbers.

mod activity;
mod comms;
mod schedules;

pub use activity::AgentActivity;
pub use comms::{AgentMessage, MESSAGES_WAITING, MessagePriority, SendAgentMessage};
pub(crate) use schedules::cancel_all_of;
pub use schedules::{AddSchedule, MoveSchedule, SCHEDULES_OF_AGENT, Schedule, ScheduleState};
