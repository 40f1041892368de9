//! Why a person is asked: the gateway's own reasons, stored with the approval request when it is made.
//!
//! Takes a stable code, the rule that asked and its author's words; gives one line for people. Promise: a reason is
//! never cut, and it is the one that held when the request was made, whatever the rules say later.

use serde::{Deserialize, Serialize};

use super::card::escape_invisible;
use crate::budget::DailyBudget;

/// One reason why a person is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalReason {
    /// Stable code, such as `policy.rule` or `batch.window`.
    pub code: String,
    /// The rule that asked, as file and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Details: the words of the rule's author, or the limit that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl ApprovalReason {
    /// A reason that its code describes completely.
    #[must_use]
    pub fn new(code: &str) -> Self {
        Self { code: code.to_owned(), rule: None, text: None }
    }

    /// With the rule that asked, as file and line.
    #[must_use]
    pub fn with_rule(self, rule: impl Into<String>) -> Self {
        Self { rule: Some(rule.into()), ..self }
    }

    /// Adds details.
    #[must_use]
    pub fn with_text(self, text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..self }
    }

    /// One line for people, in full.
    #[must_use]
    pub fn describe(&self) -> String {
        let rule =
            self.rule.as_deref().map_or_else(|| "a rule".to_owned(), |rule| format!("rule {}", escape_invisible(rule)));
        let words = match self.code.as_str() {
            "policy.rule" => rule,
            "policy.default" => "no rule; the default".to_owned(),
            "policy.unknown" => "nobody has described this capability".to_owned(),
            "policy.evaluation" => format!("{rule} could not be evaluated"),
            "policy.rate_limit" => match &self.rule {
                Some(_) => format!("the rate limit of {rule} is used up"),
                None => "a rate limit is used up".to_owned(),
            },
            "policy.stricter" => "the rules became stricter while it waited".to_owned(),
            "session.tainted" => "the agent has read text that looks like an attack".to_owned(),
            "leak.findings" => "it holds personal data of many people".to_owned(),
            "batch.window" => "too many writes in a short time".to_owned(),
            "batch.allowance" => "a standing approval does not answer many writes at once".to_owned(),
            "approval.lapsed" => "an earlier approval was not used in time".to_owned(),
            "approval.amended" => "a person changed it".to_owned(),
            "approval.requested" => "the client asks before it acts".to_owned(),
            "filesystem.not_as_approved" => "its files changed after it was approved".to_owned(),
            "budget.account" => DailyBudget::Account.reason().to_owned(),
            "budget.gateway" => DailyBudget::Gateway.reason().to_owned(),
            "budget.new_targets" => DailyBudget::NewTargets.reason().to_owned(),
            "hold.revived" => "a person asked for another attempt".to_owned(),
            other => escape_invisible(other),
        };
        match &self.text {
            Some(text) => format!("{words}: {}", escape_invisible(text)),
            None => words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_and_whole() {
        let long = "the recipient is new, or the session has read something suspicious ".repeat(30);
        let reason =
            ApprovalReason::new("policy.rule").with_rule("org.yaml:31").with_text(format!("{long}\n\u{202e}x"));
        assert_eq!(reason.describe(), format!("rule org.yaml:31: {long}\\n\\u{{202e}}x"));
        assert_eq!(ApprovalReason::new("batch.window").describe(), "too many writes in a short time");
        assert_eq!(ApprovalReason::new("odd\ncode").describe(), "odd\\ncode");
        let kept = serde_json::to_string(&reason).unwrap();
        assert_eq!(serde_json::from_str::<ApprovalReason>(&kept).unwrap(), reason);
    }
}
