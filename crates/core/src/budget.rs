//! Budgets: how much may happen within a day before a person is asked, however slowly it comes.
//!
//! The batch window stops what comes all at once; an agent that stays just below it would never be stopped. Takes what
//! was used within the last day and what a write adds; gives the budget that is exceeded, if one is. Promise: within any
//! 24 hours no more goes out without a person than each budget allows, and no standing approval answers an exceeded one.

use crate::approval::allowance::Escalation;
use crate::batch::{Balance, Window};
use crate::clock::Span;

/// How long a budget remembers.
pub const DAY: Span = Span::from_hours(24);

/// What is counted within a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Budget {
    /// Writes of one agent at one service: a connected account, a mounted server, the files.
    Account,
    /// Writes of all agents at services outside.
    Gateway,
    /// Different targets of one agent that nobody asked for and nobody knows.
    NewTargets,
}

impl Budget {
    /// Every budget, in the order in which they are looked at.
    pub const ALL: [Self; 3] = [Self::Account, Self::Gateway, Self::NewTargets];

    /// The word for it in answers of the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Gateway => "gateway",
            Self::NewTargets => "new_targets",
        }
    }

    /// Why a person is asked, as the record says it.
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
            Self::Account => "this agent has used up what it may do at this account within a day",
            Self::Gateway => "all agents together have used up what they may do within a day",
            Self::NewTargets => "this agent has reached as many new targets as it may within a day",
        }
    }

    /// What it is for standing approvals, none of which answers it.
    #[must_use]
    pub const fn escalation(self) -> Escalation {
        match self {
            Self::Account | Self::Gateway => Escalation::Budget,
            Self::NewTargets => Escalation::Novelty,
        }
    }
}

/// The limits that hold for one write. What has no limit is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetLimits {
    /// Of its agent at its service.
    pub account: Option<u32>,
    /// Of all agents.
    pub gateway: Option<u32>,
    /// Of new targets of its agent.
    pub new_targets: Option<u32>,
}

/// The window a budget is counted in.
#[must_use]
pub const fn window(limit: u32) -> Window {
    Window { limit, span: DAY }
}

/// Whether what is added still fits a budget.
#[must_use]
pub fn fits(limit: u32, used: u32, added: u32) -> bool {
    added == 0 || window(limit).weighing(used, added).balance() == Balance::Fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_of_so_many_lets_exactly_so_many_through() {
        assert!(fits(200, 199, 1) && !fits(200, 200, 1));
        assert!(fits(200, 0, 200) && !fits(200, 1, 200));
        assert!(!fits(0, 0, 1), "a budget of none asks about everything");
        assert!(!fits(u32::MAX - 1, u32::MAX, u32::MAX), "counts do not wrap");
        assert!(fits(30, 30, 0), "what adds nothing is not asked about");
    }

    #[test]
    fn every_budget_has_a_code_of_its_own_and_is_found_by_it() {
        for budget in Budget::ALL {
            assert_eq!(Budget::from_code(budget.code()), Some(budget));
        }
        assert_eq!(Budget::from_code("batch.window"), None);
    }
}
