//! What the operator states about the tools of a mount, and what its server says when something fails.
//!
//! Takes facts of the configuration, error output and errors; gives them to people, and screened words to agents.
//! Promise: a fact takes effect with the next check of the tools; a server's words about a failed call are screened
//! before anyone sees them.

use std::collections::BTreeMap;

use rmcp::service::ServiceError;
use sluice_config::{MountConfig, MountToolFacts};
use sluice_core::refusal::Code;
use sluice_core::{Action, CallId, UtcMillis};
use sluice_store::PinnedTool;

use super::super::facts::ProposedFacts;
use super::super::logs::{MountLogLine, MountLogSource};
use super::super::tools;
use super::super::words::{self, ServerWords};
use super::{MountCallError, MountService, trouble};
use crate::intake::ContentRecipient;

/// How much of a program's error output its state shows, in bytes.
const LAST_WORDS: usize = 4 << 10;

impl MountService {
    /// The settings of the mount, with the facts about its tools as they are now.
    #[must_use]
    pub fn current(&self) -> MountConfig {
        MountConfig { facts: self.facts.read().clone(), ..self.mount.clone() }
    }

    /// Sets the facts about its tools. They take effect with the next check of the tools.
    pub(in crate::mounts) fn state(&self, facts: BTreeMap<String, MountToolFacts>) {
        *self.facts.write() = facts;
    }

    /// What the operator states about a tool.
    #[must_use]
    pub fn facts_of(&self, tool: &str) -> MountToolFacts {
        self.facts.read().get(tool).cloned().unwrap_or_default()
    }

    /// Tools that facts are stated about and that the server does not have.
    #[must_use]
    pub fn facts_without_tool(&self) -> Vec<String> {
        let pins = self.pins.read();
        let is_missing = |tool: &&String| !pins.iter().any(|pin| pin.tool == **tool);
        self.facts.read().keys().filter(is_missing).cloned().collect()
    }

    /// What may be stated about a tool and is not stated yet: a proposal for people.
    #[must_use]
    pub fn proposed_facts(&self, pin: &PinnedTool) -> Option<ProposedFacts> {
        let (definition, ..) = pin.accepted.as_ref()?;
        let definition = serde_json::from_str(definition).ok()?;
        let stated = self.facts_of(&pin.tool);
        let mut proposed = tools::proposed(&self.mount, &definition)?;
        if stated.read.is_some() || pin.read_only.is_some() || stated.hide {
            proposed.facts.read = None;
        }
        proposed.facts.targets.retain(|argument, _| !stated.targets.contains_key(argument));
        (!proposed.facts.is_empty()).then_some(proposed)
    }

    /// The last lines of its log after this number, and how many lines were pushed out so far.
    #[must_use]
    pub fn log_lines(&self, after: u64, most: usize) -> (Vec<MountLogLine>, u64) {
        let logs = self.logs.lock();
        (logs.after(after, most), logs.dropped())
    }

    /// The end of a program's error output, in its own words.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.logs.lock().last_words(LAST_WORDS)
    }

    /// What the server said about a call that failed, screened, and when; as long as the gateway remembers it.
    #[must_use]
    pub fn words_about(&self, call: CallId) -> Option<(String, UtcMillis)> {
        self.logs.lock().words_about(call)
    }

    /// Adds a line of the gateway to its log.
    pub(in crate::mounts) fn log(&self, text: impl Into<String>) {
        self.logs.lock().put(MountLogSource::Gateway, self.deps.clock.now(), text.into());
    }

    /// Adds what its program wrote to its error output. Nothing written means that the program has ended.
    pub(in crate::mounts) fn overhear(&self, bytes: &[u8]) {
        let (now, secrets) = (self.deps.clock.now(), self.deps.intake.secrets());
        let mut logs = self.logs.lock();
        if bytes.is_empty() { logs.finish(now, &secrets) } else { logs.feed(bytes, now, &secrets) }
    }

    /// Why a call failed, with the server's own words as far as they may be shown.
    pub(super) async fn explain(
        &self,
        action: &Action,
        reader: ContentRecipient,
        error: &ServiceError,
    ) -> MountCallError {
        let MountCallError { refusal, left } = trouble(error);
        let call = reader.call;
        // An error is shown at once, not with the answer of the call: there is none.
        let reader = ContentRecipient { notes: None, ..reader };
        let Some(said) = words::of_error(error).filter(|_| refusal.code() == Code::MountFailed) else {
            return MountCallError { refusal, left };
        };
        let mut item = self.incoming(action, said.into_bytes(), reader);
        item.declared = Some("text/plain".into());
        let (text, shown) = match words::screened(&self.deps.intake, &item).await {
            ServerWords::Shown(words) => (format!("{}; the server says: \"{words}\"", refusal.text()), Some(words)),
            ServerWords::Withheld(finding) => {
                (format!("{}; what the server says is withheld as {finding}", refusal.text()), None)
            }
            ServerWords::Unreadable => (format!("{}; what the server says cannot be read", refusal.text()), None),
        };
        if let Some(words) = &shown {
            let (mut logs, now) = (self.logs.lock(), self.deps.clock.now());
            logs.put(MountLogSource::Gateway, now, format!("{call} failed: {words}"));
            logs.remember(call, words.clone(), now);
        }
        MountCallError { refusal: refusal.with_text(&text).with_service_words(shown.as_deref()), left }
    }
}
