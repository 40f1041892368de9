//! How much agents may do within a day before a person is asked.

use sluice_core::batch::Window;
use sluice_core::budget::BudgetLimits;
use sluice_core::{ServiceName, Span};

use super::section::section;

const LIMIT: std::ops::RangeInclusive<u32> = 0..=1_000_000;
/// Services of the gateway itself: what they change stays on this machine.
const LOCAL: [&str; 3] = ["filesystem", "alerts", "state"];
/// How long questions about checks are remembered.
const CHECKS: Span = Span::from_mins(10);

section! {
    /// How much may happen within 24 hours without a person, however slowly it comes; more waits for one. Writes are weighed
    /// as for `batch`; services that are `off` there are not counted here either, and what a person approves one by one is
    /// not counted.
    Budgets at "budgets" {
        /// The most that one agent does at one account: a connected service or a mounted server. 0 asks about every write.
        writes_per_account: u32 = 200; within LIMIT,
        /// The most that one agent does at one service of the gateway itself, such as the files.
        writes_per_local_service: u32 = 2000; within LIMIT,
        /// The most that all agents together do at accounts.
        writes_per_gateway: u32 = 2000; within LIMIT,
        /// The most different targets that one agent reaches which are neither asked for nor known.
        new_targets_per_agent: u32 = 30; within LIMIT,
        /// The most questions that checks of one agent (`mode: check`, hooks) put to people within ten minutes. A check
        /// beyond is refused with `check.flood` and a time.
        questions_from_checks: u32 = 60; within 1..=1_000_000,
    }
}

impl Budgets {
    /// The limits of a write at this service.
    #[must_use]
    pub fn limits_at(&self, service: &ServiceName) -> BudgetLimits {
        let is_local = LOCAL.contains(&service.as_str());
        BudgetLimits {
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

    /// The window of questions about checks.
    #[must_use]
    pub fn checks(&self) -> Window {
        Window { limit: self.questions_from_checks, span: CHECKS }
    }
}
