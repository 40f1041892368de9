//! Messages between agents: `comms.send`, `comms.broadcast`, `comms.subscribe`, `comms.receive`.
//!
//! Takes messages of one agent; gives them to others. Promise: what another agent wrote is outside text for its reader:
//! it passes the intake, names its author, and brings the taint of its author along.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::{MessageId, SessionId};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, AgentName, BoxedFuture, CapabilityName, ServiceName};
use sluice_store::{AgentMessage, MessagePriority, SendAgentMessage, Store, StoreError};

use super::{CompletedWrite, LookupOutcome, ReadSource, Service, ServiceRead, WriteError};
use crate::intake::{ContentRecipient, IncomingItem, Intake, IntakeOutcome, default_session_id};
use crate::value::put;

/// The longest message, in characters.
const LONGEST: usize = 16_000;
/// The longest name of a channel.
const LONGEST_CHANNEL: usize = 64;
/// The most messages in one answer.
const PAGE: u64 = 50;
/// The taint reason of a session that read a message of a tainted agent.
const TAINT: &str = "comms.tainted";

/// Messages between agents.
#[derive(Debug)]
pub struct CommsService {
    store: Arc<Store>,
    intake: Arc<Intake>,
}

/// A message that an agent wants to send.
struct AgentMessageDraft {
    to: MessageRecipients,
    channel: Option<String>,
    text: String,
    priority: MessagePriority,
}

/// The recipients of a message.
enum MessageRecipients {
    One(AgentName),
    /// Every agent whose name fits, limited to followers of the channel if one is named.
    Fitting(Option<String>),
}

impl CommsService {
    /// Messages on this store; what agents read of each other passes through this intake.
    #[must_use]
    pub fn new(store: Arc<Store>, intake: Arc<Intake>) -> Self {
        Self { store, intake }
    }

    /// The agents that a message reaches.
    async fn recipients(&self, sender: &AgentName, message: &AgentMessageDraft) -> Result<Vec<AgentName>, Refusal> {
        let all = self.store.agents().await.map_err(refuse)?;
        let present = all.into_iter().filter(|agent| agent.removed_at.is_none()).map(|agent| agent.name);
        let mut others: Vec<AgentName> = present.filter(|name| name != sender).collect();
        match &message.to {
            MessageRecipients::One(name) if others.contains(name) => Ok(vec![name.clone()]),
            MessageRecipients::One(name) => {
                let text = format!("there is no other agent `{name}`");
                Err(Refusal::new(Code::StoreNotFound).with_text(&text))
            }
            MessageRecipients::Fitting(pattern) => {
                if let Some(channel) = &message.channel {
                    let followers = self.store.channel_followers(channel.clone()).await.map_err(refuse)?;
                    others.retain(|name| followers.contains(name));
                }
                if let Some(pattern) = pattern {
                    others.retain(|name| fits(pattern, name.as_str()));
                }
                Ok(others)
            }
        }
    }

    async fn send(&self, hold: &Hold, permit: Permit) -> Result<CompletedWrite, WriteError> {
        let sender = hold.agent().clone();
        if verb(&hold.action) == "subscribe" {
            let channel = channel_of(hold.action.arguments()).map_err(WriteError::Refused)?;
            let channel = channel.ok_or_else(|| WriteError::refused(Code::SchemaMissingArgument))?;
            self.store.follow_channel(permit.hold(), sender, channel.clone()).await.map_err(trouble)?;
            let result = json!({"channel": channel, "subscription_id": format!("{channel}:{}", hold.agent())});
            return Ok(CompletedWrite { receipt: "subscribed".into(), result, after: None, undo_until: None });
        }
        let message = AgentMessageDraft::read(&hold.action).map_err(WriteError::Refused)?;
        let recipients = self.recipients(&sender, &message).await.map_err(WriteError::Refused)?;
        let (wanted, id) = (recipients.len(), MessageId::from_bits(permit.hold().bits()));
        let tainted = self.store.has_tainted_session(sender.clone()).await.map_err(trouble)?;
        let AgentMessageDraft { channel, text, priority, .. } = message;
        let new = SendAgentMessage { hold: permit.hold(), sender, recipients, channel, text, priority, tainted };
        let reached = self.store.send_message(new).await.map_err(trouble)?;
        let mut result = json!({"message_id": id, "status": "queued", "delivery_count": reached.len()});
        if reached.len() < wanted {
            put(&mut result, "not_reached", wanted - reached.len());
        }
        if let (Some(to), "send") = (reached.first(), verb(&hold.action)) {
            put(&mut result, "to", to.as_str());
        }
        let receipt = format!("queued for {} agents", reached.len());
        Ok(CompletedWrite { receipt, result, after: None, undo_until: None })
    }

    async fn receive(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let arguments = ask.action.arguments();
        let limit = arguments.get("limit").and_then(Value::as_u64).unwrap_or(10).clamp(1, PAGE);
        let limit = u32::try_from(limit).unwrap_or(10);
        let agent = ask.action.agent();
        let channel = channel_of(arguments)?;
        let found = self.store.messages_for(agent.clone(), channel, limit, ask.now).await.map_err(refuse)?;
        let (messages, waiting) = found;
        let mut shown = Vec::with_capacity(messages.len());
        for message in &messages {
            shown.push(self.shown(ask, message).await?);
        }
        let takes = arguments.get("acknowledge").and_then(Value::as_bool).unwrap_or(true) && !messages.is_empty();
        let taken = if takes { u32::try_from(messages.len()).unwrap_or(u32::MAX) } else { 0 };
        if takes {
            // Marked as read only now: messages that could not be screened stay queued.
            let ids = messages.iter().map(|message| message.id).collect();
            self.store.take_messages(agent.clone(), ids).await.map_err(refuse)?;
        }
        Ok(json!({"messages": shown, "remaining": waiting.saturating_sub(taken)}))
    }

    /// One message in the form that its reader gets.
    async fn shown(&self, ask: &ServiceRead, message: &AgentMessage) -> Result<Value, Refusal> {
        let item = IncomingItem {
            bytes: message.text.clone().into_bytes(),
            declared: Some("text/plain; charset=utf-8".into()),
            service: ServiceName::new("comms").map_err(|_| Refusal::new(Code::GatewayInternal))?,
            source: format!("message {}", message.id),
            author: format!("agent {}", message.sender),
            at: ask.now,
            beside: message.channel.clone(),
            reader: Some(ContentRecipient::of(ask)),
            enveloped: false,
        };
        let mut shown = json!({
            "message_id": message.id, "from": message.sender, "channel": message.channel, "message": null,
            "priority": message.priority.as_str(), "sent_at": message.sent_at.to_string(), "untrusted": true,
        });
        match self.intake.take_in(&item).await? {
            IntakeOutcome::Clean(cleaned) => {
                put(&mut shown, "message", cleaned.text);
                if let Some(finding) = cleaned.withheld {
                    put(&mut shown, "withheld", json!({"finding_id": finding}));
                }
            }
            IntakeOutcome::Refused { code } => put(&mut shown, "message_refused", code),
        }
        if message.tainted {
            // The reader has now indirectly read what the author had read.
            put(&mut shown, "tainted", true);
            let session = ask.session.unwrap_or_else(|| default_session_id(ask.action.agent()));
            self.store.taint_session(session, TAINT.to_owned()).await.map_err(refuse)?;
        }
        Ok(shown)
    }
}

impl AgentMessageDraft {
    fn read(action: &Action) -> Result<Self, Refusal> {
        let arguments = action.arguments();
        let wrong = |text: &str| Refusal::new(Code::SchemaWrongType).with_text(text);
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let message = text("message").unwrap_or_default();
        if message.is_empty() || message.chars().count() > LONGEST {
            return Err(wrong("a message has 1 to 16000 characters"));
        }
        let priority = match text("priority").unwrap_or("normal") {
            "high" => MessagePriority::High,
            "normal" => MessagePriority::Normal,
            "low" => MessagePriority::Low,
            _ => return Err(wrong("priority is `low`, `normal` or `high`")),
        };
        let to = match verb(action) {
            "send" => {
                let name = AgentName::new(text("to").unwrap_or_default());
                MessageRecipients::One(name.map_err(|_| Refusal::new(Code::SchemaBadName))?)
            }
            _ => {
                let filter = arguments.get("filter").and_then(Value::as_object);
                if filter.is_some_and(|filter| filter.keys().any(|key| key != "name_pattern")) {
                    return Err(wrong("filter has `name_pattern` and nothing else"));
                }
                let pattern = filter.and_then(|filter| filter.get("name_pattern"));
                if pattern.is_some_and(|pattern| !pattern.is_string()) {
                    return Err(wrong("`name_pattern` is a text such as `shop-*`"));
                }
                MessageRecipients::Fitting(pattern.and_then(Value::as_str).map(str::to_owned))
            }
        };
        Ok(Self { to, channel: channel_of(arguments)?, text: message.to_owned(), priority })
    }
}

fn channel_of(arguments: &Map<String, Value>) -> Result<Option<String>, Refusal> {
    let Some(channel) = arguments.get("channel").and_then(Value::as_str) else { return Ok(None) };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if channel.is_empty() || channel.len() > LONGEST_CHANNEL || !channel.bytes().all(plain) {
        let text = "a channel has 1 to 64 letters, digits, `-`, `_` and `.`";
        return Err(Refusal::new(Code::SchemaBadName).with_text(text));
    }
    Ok(Some(channel.to_owned()))
}

/// Whether a name fits a pattern, in which `*` at the beginning or end stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(rest), Some(_)) => name.contains(rest.strip_suffix('*').unwrap_or(rest)),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}

fn verb(action: &Action) -> &str {
    action.capability().as_str().rsplit('.').next().unwrap_or_default()
}

fn refuse(error: StoreError) -> Refusal {
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).with_source(error)
}

fn trouble(error: StoreError) -> WriteError {
    let no = refuse(error);
    match no.code() {
        Code::StateQuota => {
            WriteError::Refused(no.with_text("the recipients have too many unread messages; retry later"))
        }
        Code::StoreNotFound => WriteError::Refused(no),
        _ => WriteError::NotDone(no),
    }
}

impl Service for CommsService {
    fn is_local(&self) -> bool {
        true
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        ["comms.send", "comms.broadcast", "comms.subscribe", "comms.receive"].contains(&capability.as_str())
    }

    fn check_feasible<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> BoxedFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            if verb(action) == "subscribe" {
                return channel_of(action.arguments()).map(drop);
            }
            let message = AgentMessageDraft::read(action)?;
            self.recipients(action.agent(), &message).await.map(drop)
        })
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(self.receive(ask))
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(self.send(hold, permit))
    }

    /// A repeat has no further effect.
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(std::future::ready(LookupOutcome::Absent))
    }
}
