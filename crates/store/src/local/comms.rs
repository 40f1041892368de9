//! Messages between agents, and the channels they follow.
//!
//! Takes a message and its recipients; gives each recipient the messages that wait for it. Promise: a message is
//! identified by its write, so that sending it twice delivers it once. The messages that wait for an agent are bounded
//! in number and time. The audit log holds the sender, the recipients and the length, never the text.

use sluice_core::audit::AuditFact;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, HoldId, Millis, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// Most messages that wait for one agent.
pub const MESSAGES_WAITING: u32 = 1_000;
/// How long a message waits.
const KEPT: Millis = Millis::from_hours(7 * 24);
/// Most channels that one agent follows.
const CHANNELS: u32 = 100;

const SENT: &str = "SELECT recipient FROM agent_messages WHERE id = ?1 ORDER BY recipient";
const WAITING: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM agent_messages \
     WHERE recipient = ?1 AND taken_at IS NULL AND until > ?2";
const PUT: &str = "INSERT INTO agent_messages \
     (recipient, id, sender, channel, message, priority, tainted, sent_at, until) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const NEXT: &str = "SELECT id, sender, channel, message, priority, tainted, sent_at FROM agent_messages \
     WHERE recipient = ?1 AND taken_at IS NULL AND until > ?2 AND COALESCE(channel, '') = COALESCE(?3, channel, '') \
     ORDER BY priority, id LIMIT ?4";
const TAKE: &str = "UPDATE agent_messages SET taken_at = ?3 WHERE recipient = ?1 AND id = ?2 AND taken_at IS NULL";
const FOLLOW: &str = "INSERT INTO agent_channels (channel, agent, since) VALUES (?1, ?2, ?3) \
     ON CONFLICT (channel, agent) DO NOTHING";
const FOLLOWED: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM agent_channels WHERE agent = ?1 AND channel <> ?2";
const FOLLOWERS: &str = "SELECT agent FROM agent_channels WHERE channel = ?1 ORDER BY agent";

/// How urgent a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessagePriority {
    /// Delivered before all others.
    High,
    /// Delivered in order.
    Normal,
    /// Delivered after all others.
    Low,
}

impl MessagePriority {
    /// The word that agents use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }

    const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::High),
            1 => Some(Self::Normal),
            2 => Some(Self::Low),
            _ => None,
        }
    }
}

/// A message to be sent.
#[derive(Clone)]
pub struct SendAgentMessage {
    /// The write that sends it.
    pub hold: HoldId,
    /// The agent that sends it.
    pub sender: AgentName,
    /// The agents it is for.
    pub recipients: Vec<AgentName>,
    /// The channel it is sent to, if any.
    pub channel: Option<String>,
    /// The text.
    pub text: String,
    /// How urgent it is.
    pub priority: MessagePriority,
    /// Whether the sender had read suspicious content.
    pub tainted: bool,
}

/// A message that waits for an agent.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentMessage {
    /// Its id: that of the write that sent it.
    pub id: MessageId,
    /// The agent that sent it.
    pub sender: AgentName,
    /// The channel it was sent to, if any.
    pub channel: Option<String>,
    /// The text.
    pub text: String,
    /// How urgent it is.
    pub priority: MessagePriority,
    /// Whether the sender had read suspicious content.
    pub tainted: bool,
    /// When it was sent.
    pub sent_at: UtcMillis,
}

impl std::fmt::Debug for AgentMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentMessage").field("id", &self.id).field("sender", &self.sender).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SendAgentMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewAgentMessage")
            .field("hold", &self.hold)
            .field("sender", &self.sender)
            .finish_non_exhaustive()
    }
}

impl UseCase for SendAgentMessage {
    /// The agents that received it.
    type Out = Vec<AgentName>;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<AgentName>, StoreError> {
        let before = unit.rows(SENT, params![self.hold]).await?;
        if !before.is_empty() {
            return before.into_iter().map(|row| row.of("agent_messages").parsed()).collect();
        }
        let now = unit.now;
        let mut reached = Vec::new();
        for recipient in &self.recipients {
            let row = unit.row(WAITING, params![recipient, now]).await?;
            let waiting: u32 = row.ok_or(StoreError::NotFound { what: "message" })?.of("agent_messages").count()?;
            if waiting < MESSAGES_WAITING {
                reached.push(recipient.clone());
            }
        }
        // A full inbox does not stop delivery to the others; if all are full, the sender is told.
        if reached.is_empty() && !self.recipients.is_empty() {
            return Err(StoreError::Quota);
        }
        let (number, tainted) = (self.priority.number(), u32::from(self.tainted));
        for recipient in &reached {
            let channel = self.channel.as_deref();
            let mut row = params![recipient, self.hold, &self.sender, channel, self.text.as_str()];
            row.extend(params![number, tainted, now, now + KEPT]);
            unit.write(PUT, row);
        }
        let names: Vec<&str> = reached.iter().map(AgentName::as_str).collect();
        let fact = AuditFact::new("message.sent", Actor::Agent(self.sender.clone()));
        let mut fact = fact.with("to", names.join(" ")).with("bytes", self.text.len());
        fact.hold = Some(self.hold);
        unit.record(fact);
        Ok(reached)
    }
}

struct ListAgentMessages {
    agent: AgentName,
    channel: Option<String>,
    limit: u32,
    now: UtcMillis,
}

impl StoreQuery for ListAgentMessages {
    /// The next messages, and how many wait in all.
    type Out = (Vec<AgentMessage>, u32);

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let params = params![&self.agent, self.now, self.channel.as_deref(), self.limit];
        let next = tx.rows(NEXT, &params).await?.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let all = tx.rows(WAITING, &params![&self.agent, self.now]).await?.into_iter().next();
        Ok((next, all.map_or(Ok(0), |row| row.of("agent_messages").count())?))
    }
}

struct TakeAgentMessages {
    agent: AgentName,
    ids: Vec<MessageId>,
}

impl UseCase for TakeAgentMessages {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        for id in &self.ids {
            unit.write(TAKE, params![&self.agent, *id, now]);
        }
        let fact = AuditFact::new("message.taken", Actor::Agent(self.agent.clone()));
        unit.record(fact.with("messages", self.ids.len()));
        Ok(())
    }
}

struct FollowChannel {
    hold: HoldId,
    agent: AgentName,
    channel: String,
}

impl UseCase for FollowChannel {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let row = unit.row(FOLLOWED, params![&self.agent, self.channel.as_str()]).await?;
        let others: u32 = row.map_or(Ok(0), |row| row.of("agent_channels").count())?;
        if others >= CHANNELS {
            return Err(StoreError::Quota);
        }
        let now = unit.now;
        unit.write(FOLLOW, params![self.channel.as_str(), &self.agent, now]);
        let mut fact = AuditFact::new("channel.followed", Actor::Agent(self.agent.clone()));
        fact.hold = Some(self.hold);
        unit.record(fact);
        Ok(())
    }
}

struct ListChannelFollowers(String);

impl StoreQuery for ListChannelFollowers {
    type Out = Vec<AgentName>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<AgentName>, StoreError> {
        let rows = tx.rows(FOLLOWERS, &params![self.0.as_str()]).await?;
        rows.into_iter().map(|row| row.of("agent_channels").parsed()).collect()
    }
}

fn decode(row: SqlRow) -> Result<AgentMessage, StoreError> {
    let mut row = row.of("agent_messages");
    let (id, sender, channel, text) = (row.bits()?, row.parsed()?, row.maybe_text()?, row.text()?);
    let priority = MessagePriority::from_number(row.count()?).ok_or_else(|| row.impossible("an unknown priority"))?;
    let tainted = row.int()? != 0;
    let id = MessageId::from_bits(id);
    Ok(AgentMessage { id, sender, channel, text, priority, tainted, sent_at: row.time()? })
}

impl Store {
    /// Sends a message to agents. Gives the agents that received it; an agent with a full inbox does not.
    ///
    /// # Errors
    /// When no agent received it, because all inboxes are full.
    pub async fn send_message(&self, message: SendAgentMessage) -> Result<Vec<AgentName>, StoreError> {
        self.submit(message).await
    }

    /// The messages that wait for an agent, the most urgent first, then the oldest; and how many wait in all.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn messages_for(
        &self,
        agent: AgentName,
        channel: Option<String>,
        limit: u32,
        now: UtcMillis,
    ) -> Result<(Vec<AgentMessage>, u32), StoreError> {
        self.ask(ListAgentMessages { agent, channel, limit, now }).await
    }

    /// Records that an agent has taken messages: they are not delivered again.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn take_messages(&self, agent: AgentName, ids: Vec<MessageId>) -> Result<(), StoreError> {
        self.submit(TakeAgentMessages { agent, ids }).await
    }

    /// Makes an agent follow a channel. Doing it again changes nothing.
    ///
    /// # Errors
    /// When it follows too many.
    pub async fn follow_channel(&self, hold: HoldId, agent: AgentName, channel: String) -> Result<(), StoreError> {
        self.submit(FollowChannel { hold, agent, channel }).await
    }

    /// The agents that follow a channel, by name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn channel_followers(&self, channel: String) -> Result<Vec<AgentName>, StoreError> {
        self.ask(ListChannelFollowers(channel)).await
    }
}
