//! Why a person is asked: the gateway's own reasons, kept with the question from the moment it is put.
//!
//! Takes a stable code, the rule that asked and its author's words; gives one line for people. Promise: a reason is
//! never cut, and it is the one that held when the question was put, whatever the rules say later.

use serde::{Deserialize, Serialize};

use super::card::visible;
use crate::budget::Budget;

/// One reason why a person is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskReason {
    /// Stable code, such as `policy.rule` or `batch.window`.
    pub code: String,
    /// The rule that asked, as file and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Particulars: the words of the rule's author, or the limit that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl AskReason {
    /// A reason that its code says all of.
    #[must_use]
    pub fn new(code: &str) -> Self {
        Self { code: code.to_owned(), rule: None, text: None }
    }

    /// With the rule that asked, as file and line.
    #[must_use]
    pub fn with_rule(self, rule: impl Into<String>) -> Self {
        Self { rule: Some(rule.into()), ..self }
    }

    /// With particulars.
    #[must_use]
    pub fn with_text(self, text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..self }
    }

    /// One line for people, whole.
    #[must_use]
    pub fn words(&self) -> String {
        let rule = self.rule.as_deref().map_or_else(|| "a rule".to_owned(), |rule| format!("rule {}", visible(rule)));
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
            "budget.account" => Budget::Account.reason().to_owned(),
            "budget.gateway" => Budget::Gateway.reason().to_owned(),
            "budget.new_targets" => Budget::NewTargets.reason().to_owned(),
            "hold.revived" => "a person had it tried again".to_owned(),
            other => visible(other),
        };
        match &self.text {
            Some(text) => format!("{words}: {}", visible(text)),
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
        let reason = AskReason::new("policy.rule").with_rule("org.yaml:31").with_text(format!("{long}\n\u{202e}x"));
        assert_eq!(reason.words(), format!("rule org.yaml:31: {long}\\n\\u{{202e}}x"));
        assert_eq!(AskReason::new("batch.window").words(), "too many writes in a short time");
        assert_eq!(AskReason::new("odd\ncode").words(), "odd\\ncode");
        let kept = serde_json::to_string(&reason).unwrap();
        assert_eq!(serde_json::from_str::<AskReason>(&kept).unwrap(), reason);
    }
}
