//! Tools of mounted servers: which definition of each was accepted, and which one waits for a person.
//!
//! Promise: the first definitions of a server are pinned completely, byte for byte. A definition that differs from the
//! pin, is added later, or looks like an attack waits. An acceptance is bound to the digest of what was shown, and is
//! recorded with the person who gave it.

use sha2::{Digest as _, Sha256};
use sluice_core::audit::AuditFact;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, HoldId, ServiceName, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::hold_interventions::CancelServiceHolds;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const OF_MOUNT: &str = "SELECT tool, accepted, accepted_by, accepted_at, waiting, reason, since, read_only_by, read_only_at \
     FROM mount_tools WHERE mount = ?1 ORDER BY tool";
const FIRST: &str =
    "INSERT INTO mount_tools (mount, tool, accepted, accepted_by, accepted_at) VALUES (?1, ?2, ?3, ?4, ?5)";
const WAITS: &str = "INSERT INTO mount_tools (mount, tool, waiting, reason, since) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (mount, tool) DO UPDATE SET waiting = excluded.waiting, reason = excluded.reason, \
     since = excluded.since, read_only_by = NULL, read_only_at = NULL";
const CAME_BACK: &str =
    "UPDATE mount_tools SET waiting = NULL, reason = NULL, since = NULL WHERE mount = ?1 AND tool = ?2";
const ACCEPT: &str = "UPDATE mount_tools SET accepted = waiting, accepted_by = ?3, accepted_at = ?4, waiting = NULL, \
     reason = NULL, since = NULL, read_only_by = NULL, read_only_at = NULL WHERE mount = ?1 AND tool = ?2";
const READ_ONLY: &str = "UPDATE mount_tools SET read_only_by = ?3, read_only_at = ?4 WHERE mount = ?1 AND tool = ?2";

/// Why a definition waits for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolReviewReason {
    /// It differs from the accepted one.
    Changed,
    /// It was added after the others were pinned.
    New,
    /// It looks like an attack on agents.
    Suspicious,
}

impl ToolReviewReason {
    const ALL: [Self; 3] = [Self::Changed, Self::New, Self::Suspicious];

    /// The word in rows and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::New => "new",
            Self::Suspicious => "suspicious",
        }
    }
}

/// A definition that a server gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenTool {
    /// The server's name for the tool.
    pub tool: String,
    /// The whole definition as canonical JSON.
    pub definition: String,
    /// Whether it looks like an attack on agents.
    pub suspicious: bool,
}

/// The state of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedTool {
    /// The server's name for the tool.
    pub tool: String,
    /// The accepted definition, with who accepted it and when.
    pub accepted: Option<(String, String, UtcMillis)>,
    /// The waiting definition, why it waits and since when.
    pub waiting: Option<(String, ToolReviewReason, UtcMillis)>,
    /// Who accepted that the tool only reads, and when. It holds for the accepted definition; a change ends it.
    pub read_only: Option<(String, UtcMillis)>,
}

/// What a person says about the effect of the tools they accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolEffectClaim {
    /// Nothing: an accepted tool counts as a write.
    #[default]
    Unsaid,
    /// They only read.
    ReadOnly,
    /// They write, even if they were accepted as read-only before.
    Write,
}

/// The digest by which a definition is accepted: SHA-256 of its canonical JSON, in hex.
#[must_use]
pub fn definition_digest(definition: &str) -> String {
    Sha256::digest(definition.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct RecordMountTools {
    mount: String,
    seen: Vec<SeenTool>,
    message: MessageId,
}

impl UseCase for RecordMountTools {
    type Out = Vec<PinnedTool>;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<PinnedTool>, StoreError> {
        let (now, mount, by) = (unit.now, self.mount.as_str(), unit.actor());
        let mut pins = pinned(unit.rows(OF_MOUNT, params![mount]).await?)?;
        let at_first = pins.is_empty();
        let (mut began, mut waits, mut news) = (Vec::new(), Vec::new(), 0_usize);
        for seen in &self.seen {
            let (tool, definition) = (seen.tool.as_str(), seen.definition.as_str());
            let known = pins.iter_mut().find(|pin| pin.tool == seen.tool);
            let accepted = known.as_ref().and_then(|pin| pin.accepted.as_ref());
            let waiting = known.as_ref().and_then(|pin| pin.waiting.as_ref());
            if accepted.is_some_and(|(text, ..)| text == definition) {
                if waiting.is_some() {
                    unit.write_one(CAME_BACK, params![mount, tool]);
                }
                known.into_iter().for_each(|pin| pin.waiting = None);
                continue;
            }
            if at_first && !seen.suspicious {
                unit.write_one(FIRST, params![mount, tool, definition, by.to_string().as_str(), now]);
                began.push(tool);
                let accepted = Some((seen.definition.clone(), by.to_string(), now));
                pins.push(PinnedTool { tool: seen.tool.clone(), accepted, waiting: None, read_only: None });
                continue;
            }
            if waiting.is_some_and(|(text, ..)| text == definition) {
                continue;
            }
            let why = match (seen.suspicious, accepted.is_some()) {
                (true, _) => ToolReviewReason::Suspicious,
                (false, true) => ToolReviewReason::Changed,
                (false, false) => ToolReviewReason::New,
            };
            unit.write_one(WAITS, params![mount, tool, definition, why.as_str(), now]);
            // A definition that keeps changing while it waits is not new: people are notified once.
            news += usize::from(waiting.is_none());
            waits.push(
                serde_json::json!({"tool": tool, "reason": why.as_str(), "digest": definition_digest(definition)}),
            );
            let waiting = Some((seen.definition.clone(), why, now));
            match known {
                Some(pin) => (pin.waiting, pin.read_only) = (waiting, None),
                None => pins.push(PinnedTool { tool: seen.tool.clone(), accepted: None, waiting, read_only: None }),
            }
        }
        if !began.is_empty() {
            let digest = definition_digest(&self.seen.iter().map(|seen| seen.definition.as_str()).collect::<String>());
            let fact = AuditFact::new("mount.pinned", by.clone()).with("mount", mount).with("tools", began.len());
            unit.record(fact.with("digest", digest));
        }
        if !waits.is_empty() {
            let shown = waits.get(..waits.len().min(20)).unwrap_or_default().to_vec();
            let fact = AuditFact::new("mount.changed", by).with("mount", mount).with("tools", waits.len());
            unit.record(fact.with("first", serde_json::Value::Array(shown.clone())));
            if news == 0 {
                return Ok(pins);
            }
            let text = format!(
                "{} of `{mount}` waiting for review: run `sluice mounts diff {mount}`",
                if waits.len() == 1 { "one tool".to_owned() } else { format!("{} tools", waits.len()) }
            );
            let body = serde_json::json!({"mount": mount, "tools": shown, "text": text});
            let message = OutboxMessage {
                id: self.message,
                topic: "mount.changed".into(),
                severity: MessageSeverity::Warning,
                body,
            };
            outbox::put(unit, &message);
        }
        Ok(pins)
    }
}

struct AcceptMountTools {
    mount: String,
    tools: Vec<(String, String)>,
    effects: ToolEffectClaim,
    by: Actor,
}

impl UseCase for AcceptMountTools {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        // SECURITY: an agent that uses a tool must not decide that the tool may change.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let (now, mount) = (unit.now, self.mount.as_str());
        let pins = pinned(unit.rows(OF_MOUNT, params![mount]).await?)?;
        for (tool, digest) in &self.tools {
            let missing = || StoreError::NotFound { what: "definition that waits" };
            let pin = pins.iter().find(|pin| pin.tool == *tool).ok_or_else(missing)?;
            let (text, why) = match (&pin.waiting, &pin.accepted, self.effects) {
                (Some((text, why, _)), ..) => (text, Some(why.as_str())),
                // A definition accepted earlier can be marked as read-only, or no longer so.
                (None, Some((text, ..)), ToolEffectClaim::ReadOnly | ToolEffectClaim::Write) => (text, None),
                (None, _, _) => return Err(missing()),
            };
            // The accepted definition must be the one that was shown.
            if definition_digest(text) != *digest {
                return Err(StoreError::Conflict);
            }
            let fact = |kind: &str| {
                let fact = AuditFact::new(kind, self.by.clone()).with("mount", mount).with("tool", tool);
                fact.with("digest", digest)
            };
            if let Some(why) = why {
                unit.write_one(ACCEPT, params![mount, tool.as_str(), self.by.to_string().as_str(), now]);
                unit.record(fact("mount.accepted").with("reason", why));
            }
            let by = self.by.to_string();
            match self.effects {
                ToolEffectClaim::Unsaid => {}
                ToolEffectClaim::ReadOnly => {
                    unit.write_one(READ_ONLY, params![mount, tool.as_str(), by.as_str(), now]);
                    unit.record(fact("mount.read_only"));
                }
                ToolEffectClaim::Write => {
                    let (nobody, never): (Option<&str>, Option<UtcMillis>) = (None, None);
                    unit.write_one(READ_ONLY, params![mount, tool.as_str(), nobody, never]);
                    unit.record(fact("mount.writes"));
                }
            }
        }
        Ok(())
    }
}

/// How the mounts changed when the configuration was reloaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountsChange {
    /// New ones.
    pub added: Vec<String>,
    /// Mounts with changed settings.
    pub changed: Vec<String>,
    /// Removed mounts.
    pub removed: Vec<String>,
}

struct RecordMountsChange(MountsChange, Actor);

impl UseCase for RecordMountsChange {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let Self(MountsChange { added, changed, removed }, by) = self;
        let fact = AuditFact::new("mounts.reloaded", by.clone()).with("added", added.join(" "));
        unit.record(fact.with("changed", changed.join(" ")).with("removed", removed.join(" ")));
        Ok(())
    }
}

struct ListMountTools(String);

impl StoreQuery for ListMountTools {
    type Out = Vec<PinnedTool>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<PinnedTool>, StoreError> {
        pinned(tx.rows(OF_MOUNT, &params![self.0.as_str()]).await?)
    }
}

fn pinned(rows: Vec<SqlRow>) -> Result<Vec<PinnedTool>, StoreError> {
    rows.into_iter().map(decode).collect()
}

fn decode(row: SqlRow) -> Result<PinnedTool, StoreError> {
    let mut row = row.of("mount_tools");
    let (tool, text, by, at) = (row.text()?, row.maybe_text()?, row.maybe_text()?, row.maybe_time()?);
    let accepted = match (text, by, at) {
        (Some(text), Some(by), Some(at)) => Some((text, by, at)),
        (None, ..) => None,
        _ => return Err(row.impossible("an accepted definition without a person or time")),
    };
    let (text, word, since) = (row.maybe_text()?, row.maybe_text()?, row.maybe_time()?);
    let waiting = match (text, word, since) {
        (Some(text), Some(word), Some(since)) => {
            let why = ToolReviewReason::ALL.into_iter().find(|why| why.as_str() == word);
            Some((text, why.ok_or_else(|| row.impossible("an unknown reason"))?, since))
        }
        (None, ..) => None,
        _ => return Err(row.impossible("a definition that waits without a reason")),
    };
    let read_only = match (row.maybe_text()?, row.maybe_time()?) {
        (Some(by), Some(at)) => Some((by, at)),
        (None, None) => None,
        _ => return Err(row.impossible("a read-only tool without a person or time")),
    };
    Ok(PinnedTool { tool, accepted, waiting, read_only })
}

impl Store {
    /// Compares a server's definitions with the accepted ones. Gives the state of every tool of the server, including
    /// tools it no longer names.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn record_mount_tools(
        &self,
        mount: &str,
        seen: Vec<SeenTool>,
        message: MessageId,
    ) -> Result<Vec<PinnedTool>, StoreError> {
        self.submit(RecordMountTools { mount: mount.into(), seen, message }).await
    }

    /// Accepts waiting definitions, each by the digest of what was shown, and records what a person says about their
    /// effects. With such a statement, a tool may also be one that was accepted before.
    ///
    /// # Errors
    /// When one does not wait, has changed, or the caller is not a person; then none is accepted.
    pub async fn accept_mount(
        &self,
        mount: &str,
        tools: Vec<(String, String)>,
        effects: ToolEffectClaim,
        by: Actor,
    ) -> Result<(), StoreError> {
        self.submit(AcceptMountTools { mount: mount.into(), tools, effects, by }).await
    }

    /// Records that mounts were added, removed or changed while the gateway ran, and who did it.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn record_mounts_change(&self, change: MountsChange, by: Actor) -> Result<(), StoreError> {
        self.submit(RecordMountsChange(change, by)).await
    }

    /// Stops all writes of a mount that have not started, because the mount was removed.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn cancel_mount(&self, service: ServiceName, by: Actor) -> Result<Vec<HoldId>, StoreError> {
        let ended = self.submit(CancelServiceHolds { service, by, code: "mount.removed" }).await?;
        Ok(ended.cancelled)
    }

    /// The state of every tool of a mount.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn mount_tools(&self, mount: &str) -> Result<Vec<PinnedTool>, StoreError> {
        self.ask(ListMountTools(mount.into())).await
    }
}
