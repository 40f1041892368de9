//! What a worker reports of content that it read: the screening of one item, and the facts of a reply.
//!
//! Takes the results of the stages; gives the JSON of a report. Promise: a report holds positions, scores and names of
//! rules and never the content itself, except the person's own words in a reply; the gateway applies its own limits to
//! it.

use serde::{Deserialize, Serialize};

/// The report of `content.clean`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ContentCleanReport {
    /// A stage refused the item.
    Refused(ContentRefusal),
    /// The item passed all stages. Its text is the first attachment, its JSON value the second.
    Clean(ContentCleanFacts),
}

/// A stage refused an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentRefusal {
    /// The code of the refusal.
    pub refused: String,
}

/// What the stages found in an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentCleanFacts {
    /// The highest score, from 0 to 1.
    pub score: f32,
    /// How many findings there are.
    pub found: u64,
    /// The heaviest findings.
    pub findings: Vec<ContentStageNote>,
    /// Whether the item is JSON, so that its value is attached.
    pub json: bool,
}

/// A finding of a stage. Never content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentStageNote {
    /// The stage.
    pub stage: String,
    /// The rule.
    pub rule: String,
    /// How the text was carried.
    pub carrier: String,
    /// Where it begins in the text, in bytes.
    pub start: u64,
    /// Where it ends in the text, in bytes.
    pub end: u64,
    /// Its score, from 0 to 1.
    pub score: f32,
}

/// The report of `mail.reply`: the fields of a mail that matter for an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyMailFacts {
    /// Every address in its `From` header.
    pub from: Vec<String>,
    /// How many `From` headers it has.
    pub from_headers: usize,
    /// Every recipient address.
    pub to: Vec<String>,
    /// How many `To` headers it has.
    pub to_headers: usize,
    /// How many `Subject` headers it has.
    pub subject_headers: usize,
    /// Whether a program wrote it.
    pub automatic: bool,
    /// Everything in it that looks like the id of an approval.
    pub ids: Vec<String>,
    /// The person's own words.
    pub words: String,
    /// What the mail holds in addition to those words.
    pub rest: String,
    /// Whether it has a plain text part.
    pub has_text: bool,
    /// Whether the text was written exactly as it reads.
    pub exact: bool,
    /// Names of the TXT records needed to judge it.
    pub names: Vec<String>,
    /// `pass`, or the code of what is missing; `None` if the mail was not judged.
    pub proof: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_json_of_a_screening_report_is_pinned() {
        let note = ContentStageNote {
            stage: "injection".into(),
            rule: "r".into(),
            carrier: "plain".into(),
            start: 1,
            end: 2,
            score: 0.5,
        };
        let facts = ContentCleanFacts { score: 0.5, found: 1, findings: vec![note], json: false };
        let text = r#"{"found":1,"findings":[{"carrier":"plain","end":2,"rule":"r","score":0.5,"stage":"injection","start":1}],"json":false,"score":0.5}"#;
        let clean = ContentCleanReport::Clean(facts);
        let written = serde_json::to_value(&clean).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(text).unwrap());
        assert_eq!(serde_json::from_value::<ContentCleanReport>(written).unwrap(), clean);
        let refused = ContentCleanReport::Refused(ContentRefusal { refused: "too_large".into() });
        assert_eq!(serde_json::to_value(&refused).unwrap(), json!({"refused": "too_large"}));
        assert_eq!(serde_json::from_value::<ContentCleanReport>(json!({"refused": "too_large"})).unwrap(), refused);
    }

    #[test]
    fn a_report_that_names_a_refusal_is_never_clean() {
        let both = json!({"refused": "x", "score": 0.0, "found": 0, "findings": [], "json": false});
        assert!(matches!(serde_json::from_value(both).unwrap(), ContentCleanReport::Refused(_)));
        let odd = json!({"refused": 5, "score": 0.0, "found": 0, "findings": [], "json": false});
        assert!(serde_json::from_value::<ContentCleanReport>(odd).is_err());
    }
}
