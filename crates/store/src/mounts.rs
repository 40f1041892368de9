//! Tools of mounted servers: which definition of each was accepted, and which one waits for a person.
//!
//! Promise: what a server says at first is pinned whole, byte for byte; whatever differs from the pin, or comes later,
//! or looks like an attack waits; a yes is bound to the digest of what was shown, and is on record with who gave it.

use sha2::{Digest as _, Sha256};
use sluice_core::audit::Fact;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, HoldId, ServiceName, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::outbox::{self, Message, Severity};
use crate::people::CancelService;
use crate::sql::{Row, Tx, params};

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
pub enum WaitsFor {
    /// It differs from the accepted one.
    Changed,
    /// It came after the others were pinned.
    New,
    /// It looks like an attack on agents.
    Suspicious,
}

impl WaitsFor {
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

/// A definition a server gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenTool {
    /// The server's name for it.
    pub tool: String,
    /// Canonical JSON, all of it.
    pub definition: String,
    /// It looks like an attack on agents.
    pub suspicious: bool,
}

/// How one tool stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedTool {
    /// The server's name for it.
    pub tool: String,
    /// The accepted definition, with who accepted it and when.
    pub accepted: Option<(String, String, Timestamp)>,
    /// The one that waits, why and since when.
    pub waiting: Option<(String, WaitsFor, Timestamp)>,
    /// Who accepted that the tool only reads, and when. It holds for the accepted definition; a change ends it.
    pub read_only: Option<(String, Timestamp)>,
}

/// What a person says about the effect of tools they accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effects {
    /// Nothing: a tool that is accepted counts as a write.
    #[default]
    Unsaid,
    /// They only read.
    ReadOnly,
    /// They write, whatever was accepted before.
    Write,
}

/// The digest a definition is accepted by: SHA-256 of its canonical JSON, in hex.
#[must_use]
pub fn definition_digest(definition: &str) -> String {
    Sha256::digest(definition.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Note {
    mount: String,
    seen: Vec<SeenTool>,
    message: MessageId,
}

impl UseCase for Note {
    type Out = Vec<PinnedTool>;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<PinnedTool>, StoreError> {
        let (now, mount, by) = (desk.now, self.mount.as_str(), desk.actor());
        let mut pins = pinned(desk.rows(OF_MOUNT, params![mount]).await?)?;
        let at_first = pins.is_empty();
        let (mut began, mut waits, mut news) = (Vec::new(), Vec::new(), 0_usize);
        for seen in &self.seen {
            let (tool, definition) = (seen.tool.as_str(), seen.definition.as_str());
            let known = pins.iter_mut().find(|pin| pin.tool == seen.tool);
            let accepted = known.as_ref().and_then(|pin| pin.accepted.as_ref());
            let waiting = known.as_ref().and_then(|pin| pin.waiting.as_ref());
            if accepted.is_some_and(|(text, ..)| text == definition) {
                if waiting.is_some() {
                    desk.write_one(CAME_BACK, params![mount, tool]);
                }
                known.into_iter().for_each(|pin| pin.waiting = None);
                continue;
            }
            if at_first && !seen.suspicious {
                desk.write_one(FIRST, params![mount, tool, definition, by.to_string().as_str(), now]);
                began.push(tool);
                let accepted = Some((seen.definition.clone(), by.to_string(), now));
                pins.push(PinnedTool { tool: seen.tool.clone(), accepted, waiting: None, read_only: None });
                continue;
            }
            if waiting.is_some_and(|(text, ..)| text == definition) {
                continue;
            }
            let why = match (seen.suspicious, accepted.is_some()) {
                (true, _) => WaitsFor::Suspicious,
                (false, true) => WaitsFor::Changed,
                (false, false) => WaitsFor::New,
            };
            desk.write_one(WAITS, params![mount, tool, definition, why.as_str(), now]);
            // One that keeps changing while it waits is no news to people: they are told once.
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
            let fact = Fact::new("mount.pinned", by.clone()).with("mount", mount).with("tools", began.len());
            desk.record(fact.with("digest", digest));
        }
        if !waits.is_empty() {
            let shown = waits.get(..waits.len().min(20)).unwrap_or_default().to_vec();
            let fact = Fact::new("mount.changed", by).with("mount", mount).with("tools", waits.len());
            desk.record(fact.with("first", serde_json::Value::Array(shown.clone())));
            if news == 0 {
                return Ok(pins);
            }
            let text = format!(
                "{} of `{mount}` wait for a person: sluice mounts diff {mount}",
                if waits.len() == 1 { "one tool".to_owned() } else { format!("{} tools", waits.len()) }
            );
            let body = serde_json::json!({"mount": mount, "tools": shown, "text": text});
            let message =
                Message { id: self.message, topic: "mount.changed".into(), severity: Severity::Warning, body };
            outbox::put(desk, &message);
        }
        Ok(pins)
    }
}

struct Accept {
    mount: String,
    tools: Vec<(String, String)>,
    effects: Effects,
    by: Actor,
}

impl UseCase for Accept {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        // SECURITY: whoever would use a tool must not be the one who says that it may change.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        let (now, mount) = (desk.now, self.mount.as_str());
        let pins = pinned(desk.rows(OF_MOUNT, params![mount]).await?)?;
        for (tool, digest) in &self.tools {
            let missing = || StoreError::NotFound { what: "definition that waits" };
            let pin = pins.iter().find(|pin| pin.tool == *tool).ok_or_else(missing)?;
            let (text, why) = match (&pin.waiting, &pin.accepted, self.effects) {
                (Some((text, why, _)), ..) => (text, Some(why.as_str())),
                // What was accepted before can be said to read, or no longer to.
                (None, Some((text, ..)), Effects::ReadOnly | Effects::Write) => (text, None),
                (None, _, _) => return Err(missing()),
            };
            // What was shown must be what is accepted.
            if definition_digest(text) != *digest {
                return Err(StoreError::Conflict);
            }
            let fact = |kind: &str| {
                let fact = Fact::new(kind, self.by.clone()).with("mount", mount).with("tool", tool);
                fact.with("digest", digest)
            };
            if let Some(why) = why {
                desk.write_one(ACCEPT, params![mount, tool.as_str(), self.by.to_string().as_str(), now]);
                desk.record(fact("mount.accepted").with("reason", why));
            }
            let by = self.by.to_string();
            match self.effects {
                Effects::Unsaid => {}
                Effects::ReadOnly => {
                    desk.write_one(READ_ONLY, params![mount, tool.as_str(), by.as_str(), now]);
                    desk.record(fact("mount.read_only"));
                }
                Effects::Write => {
                    let (nobody, never): (Option<&str>, Option<Timestamp>) = (None, None);
                    desk.write_one(READ_ONLY, params![mount, tool.as_str(), nobody, never]);
                    desk.record(fact("mount.writes"));
                }
            }
        }
        Ok(())
    }
}

/// What of the mounts became another when the configuration was taken up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountsChange {
    /// New ones.
    pub added: Vec<String>,
    /// Those set up otherwise.
    pub changed: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
}

struct Changed(MountsChange, Actor);

impl UseCase for Changed {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let Self(MountsChange { added, changed, removed }, by) = self;
        let fact = Fact::new("mounts.reloaded", by.clone()).with("added", added.join(" "));
        desk.record(fact.with("changed", changed.join(" ")).with("removed", removed.join(" ")));
        Ok(())
    }
}

struct OfMount(String);

impl Query for OfMount {
    type Out = Vec<PinnedTool>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<PinnedTool>, StoreError> {
        pinned(tx.rows(OF_MOUNT, &params![self.0.as_str()]).await?)
    }
}

fn pinned(rows: Vec<Row>) -> Result<Vec<PinnedTool>, StoreError> {
    rows.into_iter().map(decode).collect()
}

fn decode(row: Row) -> Result<PinnedTool, StoreError> {
    let mut row = row.of("mount_tools");
    let (tool, text, by, at) = (row.text()?, row.maybe_text()?, row.maybe_text()?, row.maybe_time()?);
    let accepted = match (text, by, at) {
        (Some(text), Some(by), Some(at)) => Some((text, by, at)),
        (None, ..) => None,
        _ => return Err(row.impossible("a definition nobody accepted")),
    };
    let (text, word, since) = (row.maybe_text()?, row.maybe_text()?, row.maybe_time()?);
    let waiting = match (text, word, since) {
        (Some(text), Some(word), Some(since)) => {
            let why = WaitsFor::ALL.into_iter().find(|why| why.as_str() == word);
            Some((text, why.ok_or_else(|| row.impossible("an unknown reason"))?, since))
        }
        (None, ..) => None,
        _ => return Err(row.impossible("a definition that waits without a reason")),
    };
    let read_only = match (row.maybe_text()?, row.maybe_time()?) {
        (Some(by), Some(at)) => Some((by, at)),
        (None, None) => None,
        _ => return Err(row.impossible("a tool that reads by nobody's word")),
    };
    Ok(PinnedTool { tool, accepted, waiting, read_only })
}

impl Store {
    /// Holds what a server says against what was accepted. Gives how every tool of it stands, those it no longer names
    /// included.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn note_mount(
        &self,
        mount: &str,
        seen: Vec<SeenTool>,
        message: MessageId,
    ) -> Result<Vec<PinnedTool>, StoreError> {
        self.submit(Note { mount: mount.into(), seen, message }).await
    }

    /// Accepts definitions that wait, each by the digest of what was shown, and takes a person's word on what the tools
    /// do. Where such a word is given, a tool may have been accepted before.
    ///
    /// # Errors
    /// When one does not wait, has become another, or the caller is no person; then none is accepted.
    pub async fn accept_mount(
        &self,
        mount: &str,
        tools: Vec<(String, String)>,
        effects: Effects,
        by: Actor,
    ) -> Result<(), StoreError> {
        self.submit(Accept { mount: mount.into(), tools, effects, by }).await
    }

    /// Writes down that mounts came, went or became others while the gateway ran, and by whose word.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn mounts_changed(&self, change: MountsChange, by: Actor) -> Result<(), StoreError> {
        self.submit(Changed(change, by)).await
    }

    /// Stops everything of a mount that has not started, because the mount is gone.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn cancel_mount(&self, service: ServiceName, by: Actor) -> Result<Vec<HoldId>, StoreError> {
        let ended = self.submit(CancelService { service, by, code: "mount.removed" }).await?;
        Ok(ended.cancelled)
    }

    /// How every tool of a mount stands.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn mount_tools(&self, mount: &str) -> Result<Vec<PinnedTool>, StoreError> {
        self.ask(OfMount(mount.into())).await
    }
}
