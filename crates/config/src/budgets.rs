//! Budgets: how much agents may do within a day before a person is asked.

use sluice_core::batch::SlidingWindow;
use sluice_core::budget::DailyBudgetLimits;
use sluice_core::{Millis, ServiceName};

use super::section::section;

const LIMIT: std::ops::RangeInclusive<u32> = 0..=1_000_000;
/// Services of the gateway itself: what they change stays on this machine.
const LOCAL: [&str; 3] = ["filesystem", "alerts", "state"];
/// How long approval requests from checks count.
const CHECKS: Millis = Millis::from_mins(10);

section! {
    /// How much may happen within 24 hours without a person, however slowly; further writes wait for one. Writes are
    /// weighed as for `batch`; services that are `off` there are not counted here either, and a write that a person
    /// approves individually is not counted.
    Budgets at "budgets" {
        /// The most that one agent does at one account: a connected service or a mounted server. 0 asks about every write.
        writes_per_account: u32 = 200; within LIMIT,
        /// The most that one agent does at one service of the gateway itself, such as the files.
        writes_per_local_service: u32 = 2000; within LIMIT,
        /// The most that all agents together do at accounts.
        writes_per_gateway: u32 = 2000; within LIMIT,
        /// The most different targets that one agent reaches and that are neither asked for nor known.
        new_targets_per_agent: u32 = 30; within LIMIT,
        /// The most approval requests that checks of one agent (`mode: check`, hooks) may cause within ten minutes. A
        /// further check is refused with `check.flood` and the time of a retry.
        questions_from_checks: u32 = 60; within 1..=1_000_000,
    }
}

impl Budgets {
    /// The limits of a write at this service.
    #[must_use]
    pub fn limits_at(&self, service: &ServiceName) -> DailyBudgetLimits {
        let is_local = LOCAL.contains(&service.as_str());
        DailyBudgetLimits {
            account: Some(self.account_limit(service.as_str())),
            gateway: (!is_local).then_some(self.writes_per_gateway),
            new_targets: Some(self.new_targets_per_agent),
        }
    }

    /// The limit of one agent at this service.
    #[must_use]
    pub fn account_limit(&self, service: &str) -> u32 {
        if LOCAL.contains(&service) { self.writes_per_local_service } else { self.writes_per_account }
    }

    /// The window in which approval requests from checks count.
    #[must_use]
    pub fn checks(&self) -> SlidingWindow {
        SlidingWindow { limit: self.questions_from_checks, span: CHECKS }
    }
}
