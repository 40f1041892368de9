//! The routing score: how much an operation gains from running in a security proxy, from 0 to 100.
//!
//! Takes a declaration; gives points with their reasons. Promise: the same declaration always has the same score, every
//! point has a sentence, and the score decides nothing. It is advice: below [`NEEDS_PROXY`] a plain request is enough.

use std::fmt;

use serde_json::Value;

use super::{Proxy, ProxyArgumentKind, ProxyMethod, ProxyOperation, ProxyOutput, ProxyTrust};

/// From this score on, a security proxy is worth its cost.
pub const NEEDS_PROXY: u8 = 30;
/// Texts up to this many characters are names and ids; longer ones can hold instructions.
const SHORT: u64 = 64;
/// From this size on, an answer counts as large, in kilobytes.
const LARGE_KB: u32 = 1024;

/// One reason of a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScoreReason {
    /// How much it adds.
    pub points: u8,
    /// Why, in a few words.
    pub text: &'static str,
}

/// How much a task gains from isolation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutingScore {
    /// From 0 to 100.
    pub score: u8,
    /// The reasons of the score. Their sum may be more than 100.
    pub reasons: Vec<ScoreReason>,
}

impl RoutingScore {
    /// Whether a security proxy is worth its cost.
    #[must_use]
    pub const fn needs_proxy(&self) -> bool {
        self.score >= NEEDS_PROXY
    }
}

impl fmt::Display for RoutingScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/100", self.score)?;
        for (place, reason) in self.reasons.iter().enumerate() {
            write!(f, "{}{} +{}", if place == 0 { ": " } else { ", " }, reason.text, reason.points)?;
        }
        if self.needs_proxy() { Ok(()) } else { write!(f, " (needs no proxy: a plain request is enough)") }
    }
}

impl Proxy {
    /// The score of one operation.
    #[must_use]
    pub fn routing_score(&self, operation: &ProxyOperation) -> RoutingScore {
        let text = match operation.output {
            // A summary contains no text of the service.
            ProxyOutput::Summary => None,
            ProxyOutput::Data => operation.answer.as_ref().and_then(longest_text),
        };
        let long_argument = operation.arguments.values().any(|argument| {
            argument.kind == ProxyArgumentKind::Text
                && argument.choices.is_empty()
                && argument.max.is_none_or(|max| max > SHORT)
        });
        let parts = [
            match self.trust {
                ProxyTrust::Acquaintance => (30, "the service is hardly known"),
                ProxyTrust::Friend => (15, "the service is known"),
                ProxyTrust::Ally => (5, "the service is well known"),
            },
            (if self.allow_addresses.is_empty() { 10 } else { 0 }, "the host is outside one's own network"),
            match operation.method {
                ProxyMethod::Get => (0, ""),
                ProxyMethod::Post | ProxyMethod::Put | ProxyMethod::Patch => (20, "it changes something"),
                ProxyMethod::Delete => (25, "it deletes something"),
            },
            (if self.credential.is_some() { 10 } else { 0 }, "a credential is sent along"),
            match text {
                Some(longest) if longest > SHORT => (20, "answers hold free text"),
                Some(_) => (8, "answers hold short texts"),
                None => (0, ""),
            },
            (if self.limits().answer_kb >= LARGE_KB { 5 } else { 0 }, "answers are large"),
            (if self.identity.is_some() { 10 } else { 0 }, "a lasting account is at stake"),
            (if long_argument { 5 } else { 0 }, "text of the agent leaves"),
        ];
        let reasons: Vec<ScoreReason> = parts
            .into_iter()
            .filter(|(points, _)| *points > 0)
            .map(|(points, text)| ScoreReason { points, text })
            .collect();
        let total: u32 = reasons.iter().map(|reason| u32::from(reason.points)).sum();
        RoutingScore { score: u8::try_from(total.min(100)).unwrap_or(100), reasons }
    }

    /// The score of the operation that gains most from a proxy.
    #[must_use]
    pub fn highest_score(&self) -> Option<RoutingScore> {
        self.operations.values().map(|operation| self.routing_score(operation)).max_by_key(|found| found.score)
    }
}

/// The longest text that a schema allows, in characters. `None` where it allows none.
fn longest_text(schema: &Value) -> Option<u64> {
    let (mut waiting, mut longest) = (vec![schema], None);
    while let Some(next) = waiting.pop() {
        match next {
            Value::Object(fields) => {
                let fixed = fields.contains_key("enum") || fields.contains_key("const");
                let is_text = match fields.get("type") {
                    Some(Value::String(kind)) => kind == "string",
                    Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
                    _ => false,
                };
                if is_text && !fixed {
                    let most = fields.get("maxLength").and_then(Value::as_u64).unwrap_or(u64::MAX);
                    longest = longest.max(Some(most));
                }
                waiting.extend(fields.values());
            }
            Value::Array(items) => waiting.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::super::tests::moltbook;
    use super::*;

    #[test]
    fn a_stranger_with_an_account_scores_high_and_a_service_of_ones_own_needs_no_proxy() {
        let proxy = moltbook();
        let (feed, reply) =
            (proxy.routing_score(&proxy.operations["feed"]), proxy.routing_score(&proxy.operations["reply"]));
        assert_eq!((feed.score, reply.score), (80, 93), "{feed} {reply}");
        assert_eq!(proxy.highest_score(), Some(reply));
        let mut own = moltbook();
        (own.trust, own.credential, own.identity) = (ProxyTrust::Ally, None, None);
        own.allow_addresses = vec!["10.0.0.0/8".into()];
        let mut read = own.operations["feed"].clone();
        read.output = ProxyOutput::Summary;
        let score = own.routing_score(&read);
        assert_eq!((score.score, score.needs_proxy()), (5, false), "{score}");
        assert!(score.to_string().contains("a plain request is enough"), "{score}");
    }

    #[test]
    fn each_part_adds_its_points_and_the_sum_ends_at_100() {
        let proxy = moltbook();
        let score = |change: &dyn Fn(&mut Proxy)| {
            let mut changed = proxy.clone();
            change(&mut changed);
            changed.routing_score(&changed.operations["feed"]).score
        };
        let usual = score(&|_| {});
        assert_eq!(score(&|proxy| proxy.trust = ProxyTrust::Friend), usual - 15);
        assert_eq!(score(&|proxy| proxy.trust = ProxyTrust::Ally), usual - 25);
        assert_eq!(score(&|proxy| proxy.allow_addresses = vec!["10.0.0.0/8".into()]), usual - 10);
        assert_eq!(score(&|proxy| proxy.credential = None), usual - 10);
        assert_eq!(score(&|proxy| proxy.identity = None), usual - 10);
        assert_eq!(score(&|proxy| proxy.operations.get_mut("feed").unwrap().output = ProxyOutput::Summary), usual - 20);
        let large =
            |proxy: &mut Proxy| proxy.limits = Some(super::super::ProxyLimits { answer_kb: 2048, ..proxy.limits() });
        assert_eq!(score(&large), usual + 5);
        assert_eq!(score(&|proxy| proxy.operations.get_mut("feed").unwrap().method = ProxyMethod::Post), 100);
        assert_eq!(score(&|proxy| proxy.operations.get_mut("feed").unwrap().method = ProxyMethod::Delete), 100);
    }

    #[test]
    fn words_of_a_fixed_list_are_no_free_text() {
        let text = |schema: Value| longest_text(&schema);
        assert_eq!(text(serde_json::json!({"type": "object", "properties": {"a": {"type": "integer"}}})), None);
        assert_eq!(text(serde_json::json!({"type": "string", "enum": ["a", "b"]})), None);
        assert_eq!(text(serde_json::json!({"type": ["string", "null"], "maxLength": 9})), Some(9));
        let nested = serde_json::json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}});
        assert_eq!(text(nested), Some(u64::MAX));
    }
}
