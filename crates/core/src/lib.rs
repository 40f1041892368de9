//! The domain types of Sluicegate and its decisions.
//!
//! Pure: no IO, no async, no clock and no randomness of its own. A call is frozen into an
//! [`action`], judged by policy into a [`tier`] with reasons, perhaps put to a person, held,
//! released, recorded. Every other crate uses these types and takes these decisions from here.
#![warn(missing_docs)]

pub mod action;
pub mod actor;
pub mod approval;
pub mod audit;
pub mod backoff;
pub mod backup;
pub mod batch;
pub mod budget;
pub mod capability;
pub mod certificate;
pub mod clock;
pub mod connection;
pub mod crash;
pub mod cron;
pub mod custom;
pub mod deps;
pub mod grace;
pub mod hex;
pub mod hold;
pub mod ids;
pub mod json;
pub mod lane;
pub mod lookup_schedule;
pub mod mail;
pub mod nodes;
pub mod pace;
pub mod policy;
pub mod proxy;
pub mod read_trace;
pub mod recipients;
pub mod recovery;
pub mod refusal;
pub mod rollback;
pub mod service_status;
pub mod shell;
pub mod target;
pub mod throttle;
pub mod tier;
pub mod timekeeping;

pub use action::{Action, Digest};
pub use actor::Actor;
pub use clock::{Clock, ClockJump, Millis, UtcMillis};
pub use deps::{BoxedFuture, GatewayDeps};
pub use ids::{AgentName, ApprovalId, CallId, CapabilityName, Entropy, HoldId, Ids, NodeName, PersonName, ServiceName};
pub use tier::Tier;
