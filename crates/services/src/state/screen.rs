//! The screen between shared values and agents: a value of another agent is outside text for its reader.
//!
//! Takes values and keys with the agent that wrote them; gives what may be shown. Promise: a value or key of another
//! agent that the intake withholds is shown through no capability of this service, and no watch; other values are shown
//! unchanged; an agent's own values are not screened.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use sluice_core::ids::FindingId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{ServiceName, UtcMillis};
use sluice_store::StateItem;

use crate::intake::{CleanedContent, ContentRecipient, IncomingItem, Intake, IntakeOutcome};

/// The most keys that are checked one by one after a finding in all of them together.
const KEYS: usize = 256;

/// The screening of shared values.
#[derive(Debug)]
pub(super) struct StateScreen {
    intake: Arc<Intake>,
}

/// Text of an agent, with its source.
struct AuthoredText<'a> {
    text: String,
    key: Option<&'a str>,
    author: &'a str,
}

impl StateScreen {
    pub fn new(intake: Arc<Intake>) -> Self {
        Self { intake }
    }

    /// The finding under which a value is withheld from its reader; nothing if it may be shown.
    pub async fn value(
        &self,
        reader: &ContentRecipient,
        at: UtcMillis,
        item: &StateItem,
    ) -> Result<Option<FindingId>, Refusal> {
        if item.by == reader.agent {
            return Ok(None);
        }
        let value: Value = serde_json::from_str(&item.value).unwrap_or(Value::Null);
        let mut text = String::new();
        words(&value, &mut text);
        self.judge(reader, at, AuthoredText { text, key: Some(&item.key), author: item.by.as_str() }).await
    }

    /// The keys of other agents that are withheld from a reader.
    pub async fn keys(
        &self,
        reader: &ContentRecipient,
        at: UtcMillis,
        keys: &[&str],
    ) -> Result<HashSet<String>, Refusal> {
        let of = |text: String| AuthoredText { text, key: None, author: "another agent" };
        if keys.is_empty() || self.judge(reader, at, of(keys.join("\n"))).await?.is_none() {
            return Ok(HashSet::new());
        }
        let all = || keys.iter().map(|key| (*key).to_owned()).collect::<HashSet<_>>();
        if keys.len() > KEYS {
            return Ok(all());
        }
        let mut withheld = HashSet::new();
        for key in keys {
            if self.judge(reader, at, of((*key).to_owned())).await?.is_some() {
                withheld.insert((*key).to_owned());
            }
        }
        // A finding in all keys together may be in none of them alone.
        Ok(if withheld.is_empty() { all() } else { withheld })
    }

    async fn judge(
        &self,
        reader: &ContentRecipient,
        at: UtcMillis,
        words: AuthoredText<'_>,
    ) -> Result<Option<FindingId>, Refusal> {
        let item = IncomingItem {
            bytes: words.text.into_bytes(),
            declared: Some("text/plain; charset=utf-8".into()),
            service: ServiceName::new("state").map_err(|_| Refusal::new(Code::GatewayInternal))?,
            source: words.key.map_or_else(|| "keys of shared values".into(), |key| format!("the shared value {key}")),
            author: format!("agent {}", words.author),
            at,
            beside: words.key.map(str::to_owned),
            reader: Some(reader.clone()),
            enveloped: false,
        };
        match self.intake.take_in(&item).await? {
            IntakeOutcome::Clean(CleanedContent { withheld, .. }) => Ok(withheld),
            IntakeOutcome::Refused { code } => {
                let text = format!("the value of another agent cannot be screened ({code}), so it is not shown");
                Err(Refusal::new(Code::ContentUnread).with_text(&text))
            }
        }
    }
}

/// The refusal that names a finding.
pub(super) fn kept_back(finding: FindingId) -> Refusal {
    Refusal::new(Code::ContentWithheld).with_text(&format!(
        "the value of another agent looks like an attack on agents; it is kept back as {finding} until a person \
         releases it (sluice findings release {finding})"
    ))
}

/// Every text of a value, keys included, each on its own line.
fn words(value: &Value, text: &mut String) {
    match value {
        Value::String(line) => {
            text.push_str(line);
            text.push('\n');
        }
        Value::Array(list) => list.iter().for_each(|item| words(item, text)),
        Value::Object(map) => map.iter().for_each(|(key, item)| {
            text.push_str(key);
            text.push('\n');
            words(item, text);
        }),
        Value::Number(number) => {
            text.push_str(&number.to_string());
            text.push('\n');
        }
        Value::Null | Value::Bool(_) => {}
    }
}
