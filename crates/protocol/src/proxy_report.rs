//! What a worker reports of a proxy's task, and of the tool definitions of a third-party server.
//!
//! Takes what the stages left of an answer; gives the JSON of a report. Promise: a report is a claim. The gateway checks
//! the data against the schema again, and reads proposals within its own limits.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The report of `proxy.run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum ProxyRunReport {
    /// The service refused the request with a status of the 400 range.
    Refused {
        /// The service's own words, screened.
        #[serde(default)]
        said: Option<String>,
    },
    /// The answer looks like an attack. Nothing of it is given.
    Injection {
        /// How many findings there are.
        #[serde(default)]
        findings: u64,
        /// The size and the hash of the answer.
        seen: ProxyAnswerMeasure,
    },
    /// The answer passed all stages.
    Clean {
        /// What the schema allows of the answer.
        data: Value,
        /// How many findings there are.
        findings: u64,
        /// The size and the hash of the answer.
        seen: ProxyAnswerMeasure,
        /// What to keep of it, as proposals; `null` without a lasting account.
        proposals: Value,
        /// Whether bytes that are not UTF-8 were replaced.
        replaced: bool,
    },
}

impl ProxyRunReport {
    /// How many findings it claims.
    #[must_use]
    pub const fn findings(&self) -> u64 {
        match self {
            Self::Refused { .. } => 0,
            Self::Injection { findings, .. } | Self::Clean { findings, .. } => *findings,
        }
    }
}

/// The size and the hash of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyAnswerMeasure {
    /// Its size in bytes.
    pub answer_bytes: usize,
    /// The beginning of its hash, in hex.
    pub answer_hash: String,
}

/// The report of `mount.definitions`. What is left of each document is attached, in the same order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountDefinitionsReport {
    /// One verdict for each document.
    pub verdicts: Vec<DefinitionVerdict>,
}

/// The verdict of the stages on one document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum DefinitionVerdict {
    /// It passed.
    Pass {
        /// The rules that matched without weight.
        #[serde(default)]
        rules: Vec<String>,
    },
    /// It looks like an attack, and is not given back.
    Withheld {
        /// The rules that matched.
        #[serde(default)]
        rules: Vec<String>,
    },
    /// It cannot be read.
    Refused {
        /// The code of the refusal.
        #[serde(default)]
        rules: Vec<String>,
    },
    /// A verdict that nobody knows: a refusal.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_json_of_a_proxys_report_is_pinned() {
        let seen = ProxyAnswerMeasure { answer_bytes: 7, answer_hash: "00".into() };
        let measured = json!({"answer_bytes": 7, "answer_hash": "00"});
        for (report, json) in [
            (ProxyRunReport::Refused { said: None }, json!({"verdict": "refused", "said": null})),
            (ProxyRunReport::Refused { said: Some("no".into()) }, json!({"verdict": "refused", "said": "no"})),
            (
                ProxyRunReport::Injection { findings: 2, seen: seen.clone() },
                json!({"verdict": "injection", "findings": 2, "seen": measured}),
            ),
            (
                ProxyRunReport::Clean {
                    data: json!({"a": 1.5}),
                    findings: 0,
                    seen,
                    proposals: json!([]),
                    replaced: true,
                },
                json!({"verdict": "clean", "data": {"a": 1.5}, "findings": 0, "seen": measured, "proposals": [],
                    "replaced": true}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&report).unwrap(), json);
            assert_eq!(serde_json::from_value::<ProxyRunReport>(json).unwrap(), report);
        }
        assert!(serde_json::from_value::<ProxyRunReport>(json!({"verdict": "fine", "data": 1})).is_err());
    }

    #[test]
    fn the_json_of_a_verdict_is_pinned_and_an_unknown_one_passes_nothing() {
        let rules = vec!["r".to_owned()];
        for (verdict, word) in [
            (DefinitionVerdict::Pass { rules: rules.clone() }, "pass"),
            (DefinitionVerdict::Withheld { rules: rules.clone() }, "withheld"),
            (DefinitionVerdict::Refused { rules }, "refused"),
        ] {
            let json = json!({"verdict": word, "rules": ["r"]});
            assert_eq!(serde_json::to_value(&verdict).unwrap(), json);
            assert_eq!(serde_json::from_value::<DefinitionVerdict>(json).unwrap(), verdict);
        }
        let unknown = json!({"verdict": "fine", "rules": []});
        assert_eq!(serde_json::from_value::<DefinitionVerdict>(unknown).unwrap(), DefinitionVerdict::Unknown);
    }
}
