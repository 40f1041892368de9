//! Budgets: how much may happen within a day before a person is asked, even if it is spread over the day.
//!
//! The batch window stops bursts; it never stops an agent that stays just below its limit. Takes what was used
//! within the last day and what a write adds; gives the budget that is exceeded, if one is. Promise: within any
//! 24 hours no more leaves without a person than each budget allows, and no standing approval answers an exceeded one.

use crate::approval::allowance::TierEscalation;
use crate::batch::{SlidingWindow, WindowOutcome};
use crate::clock::Millis;

/// How long a budget remembers.
pub const DAY: Millis = Millis::from_hours(24);

/// What is counted within a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DailyBudget {
    /// Writes of one agent at one service: a connected account, a mounted server, the files.
    Account,
    /// Writes of all agents at services outside.
    Gateway,
    /// Different unknown targets of one agent that nobody asked for.
    NewTargets,
}

impl DailyBudget {
    /// Every budget, in the order in which they are checked.
    pub const ALL: [Self; 3] = [Self::Account, Self::Gateway, Self::NewTargets];

    /// Its name in API answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Gateway => "gateway",
            Self::NewTargets => "new_targets",
        }
    }

    /// Why a person is asked, as a code in the audit log.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Account => "budget.account",
            Self::Gateway => "budget.gateway",
            Self::NewTargets => "budget.new_targets",
        }
    }

    /// The budget with this code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|budget| budget.code() == code)
    }

    /// Why a person is asked, in words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Account => "this agent has used up its daily budget for this account",
            Self::Gateway => "all agents together have used up the daily budget of the gateway",
            Self::NewTargets => "this agent has used up its daily budget for new targets",
        }
    }

    /// The escalation that it is for standing approvals, none of which answers it.
    #[must_use]
    pub const fn escalation(self) -> TierEscalation {
        match self {
            Self::Account | Self::Gateway => TierEscalation::Budget,
            Self::NewTargets => TierEscalation::Novelty,
        }
    }
}

/// The limits for one write. A budget without a limit is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DailyBudgetLimits {
    /// Of its agent at its service.
    pub account: Option<u32>,
    /// Of all agents.
    pub gateway: Option<u32>,
    /// Of new targets of its agent.
    pub new_targets: Option<u32>,
}

/// The window a budget is counted in.
#[must_use]
pub const fn daily_window(limit: u32) -> SlidingWindow {
    SlidingWindow { limit, span: DAY }
}

/// Whether this weight still fits a budget.
#[must_use]
pub fn fits_budget(limit: u32, used: u32, added: u32) -> bool {
    added == 0 || daily_window(limit).check_write(used, added).outcome() == WindowOutcome::Fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_of_so_many_lets_exactly_so_many_through() {
        assert!(fits_budget(200, 199, 1) && !fits_budget(200, 200, 1));
        assert!(fits_budget(200, 0, 200) && !fits_budget(200, 1, 200));
        assert!(!fits_budget(0, 0, 1), "a budget of none asks about everything");
        assert!(!fits_budget(u32::MAX - 1, u32::MAX, u32::MAX), "counts do not wrap");
        assert!(fits_budget(30, 30, 0), "what adds nothing is not asked about");
    }

    #[test]
    fn every_budget_has_a_code_of_its_own_and_is_found_by_it() {
        for budget in DailyBudget::ALL {
            assert_eq!(DailyBudget::from_code(budget.code()), Some(budget));
        }
        assert_eq!(DailyBudget::from_code("batch.window"), None);
    }
}
