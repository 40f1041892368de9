//! Queue limits of paced services: whether one more write can still leave in time.
//!
//! Takes the count of waiting writes, from the database about once a second and from admissions in between; gives a
//! refusal with a retry time if an agent's queue would take too long. Promise: an agent is refused before its queue is
//! too long, measured by its own share of the pace: other agents make its share smaller but its queue no longer.

use std::collections::HashMap;

use parking_lot::Mutex;
use sluice_core::pace::PaceRate;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{AgentName, Millis, ServiceName};

/// The shortest wait that is advised.
const SHORTEST: Millis = Millis::from_secs(1);

/// Waiting writes by service and agent.
#[derive(Debug, Default)]
pub struct WaitingQueues(Mutex<HashMap<ServiceName, HashMap<AgentName, u64>>>);

impl WaitingQueues {
    /// Sets the counts that the database reports.
    pub(crate) fn replace_counts(&self, counts: Vec<(ServiceName, AgentName, u64)>) {
        let mut queues: HashMap<ServiceName, HashMap<AgentName, u64>> = HashMap::new();
        for (service, agent, count) in counts {
            queues.entry(service).or_default().insert(agent, count);
        }
        *self.0.lock() = queues;
    }

    /// Counts one more waiting write.
    pub(crate) fn add_one(&self, service: &ServiceName, agent: &AgentName) {
        let mut queues = self.0.lock();
        *queues.entry(service.clone()).or_default().entry(agent.clone()).or_default() += 1;
    }

    /// Refuses a write that would leave later than `longest` from now at its agent's share of the pace.
    pub(crate) fn admit(
        &self,
        (service, agent): (&ServiceName, &AgentName),
        rate: Option<PaceRate>,
        longest: Millis,
    ) -> Result<(), Refusal> {
        let Some(rate) = rate else { return Ok(()) };
        let queues = self.0.lock();
        let Some(agents) = queues.get(service) else { return Ok(()) };
        let own = agents.get(agent).copied().unwrap_or_default();
        let others = agents.iter().filter(|(name, count)| *name != agent && **count > 0).count();
        let wait = rate.time_for(own.saturating_mul(others as u64 + 1));
        if wait <= longest {
            return Ok(());
        }
        let text = format!(
            "{own} writes of this agent wait for `{service}` and take {} min at its share of {rate}; limit: {} min",
            wait.as_secs() / 60,
            longest.as_secs() / 60
        );
        let after = Millis::from_millis(wait.as_millis() - longest.as_millis()).max(SHORTEST);
        Err(Refusal::new(Code::HoldQueueFull).with_text(&text).retry_after(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_refused_by_its_own_queue_and_its_share_and_never_by_the_queue_of_another() {
        let (mail, notes) = (ServiceName::new("mail").unwrap(), ServiceName::new("notes").unwrap());
        let [flood, clerk] = ["flood", "clerk"].map(|name| AgentName::new(name).unwrap());
        let (rate, longest) = (PaceRate::from_words("10/s"), Millis::from_mins(10));
        let queues = WaitingQueues::default();
        let admits = |agent: &AgentName| queues.admit((&mail, agent), rate, longest).map_err(|no| no.retry());
        queues.replace_counts(vec![(mail.clone(), flood.clone(), 6_000)]);
        assert_eq!(admits(&flood), Ok(()), "exactly ten minutes");
        queues.add_one(&mail, &flood);
        assert_eq!(admits(&flood), Err(sluice_core::refusal::RetryAdvice::After(SHORTEST)));
        assert_eq!(admits(&clerk), Ok(()), "another agent waits for its own writes alone");
        // Two agents take turns, so that each has half of the pace.
        queues.replace_counts(vec![(mail.clone(), flood.clone(), 3_600), (mail.clone(), clerk.clone(), 1)]);
        assert_eq!(admits(&flood), Err(sluice_core::refusal::RetryAdvice::After(Millis::from_mins(2))));
        assert_eq!(admits(&clerk), Ok(()));
        assert!(queues.admit((&mail, &flood), None, longest).is_ok(), "what is not paced has no queue");
        assert!(queues.admit((&notes, &flood), rate, longest).is_ok(), "another service has another queue");
    }
}
