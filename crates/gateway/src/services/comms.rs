//! Messages between agents: `comms.send`, `comms.broadcast`, `comms.subscribe`, `comms.receive`.
//!
//! Takes words of one agent; gives them to others. Promise: what another agent wrote is outside text for whoever reads it:
//! it passes the intake, is marked with who wrote it, and brings the taint of its writer along.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::{MessageId, SessionId};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, AgentName, CapabilityName, ServiceName};
use sluice_store::{AgentMessage, MessagePriority, NewAgentMessage, Store, StoreError};

use super::{Ask, Found, Performed, ReadSource, Service, Trouble, Work};
use crate::intake::{Incoming, Intake, Reader, Taken, nameless};
use crate::value::put;

/// The longest message, in characters.
const LONGEST: usize = 16_000;
/// The longest name of a channel.
const LONGEST_CHANNEL: usize = 64;
/// Most messages in one answer.
const PAGE: u64 = 50;
/// Why a session is tainted that read a message of a tainted agent.
const TAINT: &str = "comms.tainted";

/// Messages between agents.
#[derive(Debug)]
pub struct Comms {
    store: Arc<Store>,
    intake: Arc<Intake>,
}

/// A message that an agent wants to send.
struct Outgoing {
    to: Recipients,
    channel: Option<String>,
    text: String,
    priority: MessagePriority,
}

/// Whom a message is for.
enum Recipients {
    One(AgentName),
    /// Everybody whose name fits, among those who follow the channel if one is named.
    Fitting(Option<String>),
}

impl Comms {
    /// On this store; what agents read of each other passes this way in.
    #[must_use]
    pub fn new(store: Arc<Store>, intake: Arc<Intake>) -> Self {
        Self { store, intake }
    }

    /// Whom a message reaches.
    async fn recipients(&self, sender: &AgentName, message: &Outgoing) -> Result<Vec<AgentName>, Refusal> {
        let all = self.store.agents().await.map_err(refuse)?;
        let present = all.into_iter().filter(|agent| agent.removed_at.is_none()).map(|agent| agent.name);
        let mut others: Vec<AgentName> = present.filter(|name| name != sender).collect();
        match &message.to {
            Recipients::One(name) if others.contains(name) => Ok(vec![name.clone()]),
            Recipients::One(name) => {
                let text = format!("there is no other agent `{name}`");
                Err(Refusal::new(Code::StoreNotFound).with_text(&text))
            }
            Recipients::Fitting(pattern) => {
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

    async fn send(&self, hold: &Hold, permit: Permit) -> Result<Performed, Trouble> {
        let sender = hold.agent().clone();
        if verb(&hold.action) == "subscribe" {
            let channel = channel_of(hold.action.arguments()).map_err(Trouble::Refused)?;
            let channel = channel.ok_or_else(|| Trouble::refused(Code::SchemaMissingArgument))?;
            self.store.follow_channel(permit.hold(), sender, channel.clone()).await.map_err(trouble)?;
            let result = json!({"channel": channel, "subscription_id": format!("{channel}:{}", hold.agent())});
            return Ok(Performed { receipt: "subscribed".into(), result, after: None, undo_until: None });
        }
        let message = Outgoing::read(&hold.action).map_err(Trouble::Refused)?;
        let recipients = self.recipients(&sender, &message).await.map_err(Trouble::Refused)?;
        let (wanted, id) = (recipients.len(), MessageId::from_bits(permit.hold().bits()));
        let tainted = self.store.any_tainted(sender.clone()).await.map_err(trouble)?;
        let Outgoing { channel, text, priority, .. } = message;
        let new = NewAgentMessage { hold: permit.hold(), sender, recipients, channel, text, priority, tainted };
        let reached = self.store.send_message(new).await.map_err(trouble)?;
        let mut result = json!({"message_id": id, "status": "queued", "delivery_count": reached.len()});
        if reached.len() < wanted {
            put(&mut result, "not_reached", wanted - reached.len());
        }
        if let (Some(to), "send") = (reached.first(), verb(&hold.action)) {
            put(&mut result, "to", to.as_str());
        }
        let receipt = format!("queued for {} agents", reached.len());
        Ok(Performed { receipt, result, after: None, undo_until: None })
    }

    async fn receive(&self, ask: &Ask) -> Result<Value, Refusal> {
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
            // Only now: what could not be screened waits on.
            let ids = messages.iter().map(|message| message.id).collect();
            self.store.take_messages(agent.clone(), ids).await.map_err(refuse)?;
        }
        Ok(json!({"messages": shown, "remaining": waiting.saturating_sub(taken)}))
    }

    /// One message as its reader is given it.
    async fn shown(&self, ask: &Ask, message: &AgentMessage) -> Result<Value, Refusal> {
        let item = Incoming {
            bytes: message.text.clone().into_bytes(),
            declared: Some("text/plain; charset=utf-8".into()),
            service: ServiceName::new("comms").map_err(|_| Refusal::new(Code::GatewayInternal))?,
            source: format!("message {}", message.id),
            author: format!("agent {}", message.sender),
            at: ask.now,
            beside: message.channel.clone(),
            reader: Some(Reader::of(ask)),
            enveloped: false,
        };
        let mut shown = json!({
            "message_id": message.id, "from": message.sender, "channel": message.channel, "message": null,
            "priority": message.priority.as_str(), "sent_at": message.sent_at.to_string(), "untrusted": true,
        });
        match self.intake.take_in(&item).await? {
            Taken::Clean(cleaned) => {
                put(&mut shown, "message", cleaned.text);
                if let Some(finding) = cleaned.withheld {
                    put(&mut shown, "withheld", json!({"finding_id": finding}));
                }
            }
            Taken::Refused { code } => put(&mut shown, "message_refused", code),
        }
        if message.tainted {
            // Whoever reads it has read what its writer had read, at second hand.
            put(&mut shown, "tainted", true);
            let session = ask.session.unwrap_or_else(|| nameless(ask.action.agent()));
            self.store.taint_session(session, TAINT.to_owned()).await.map_err(refuse)?;
        }
        Ok(shown)
    }
}

impl Outgoing {
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
                Recipients::One(name.map_err(|_| Refusal::new(Code::SchemaBadName))?)
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
                Recipients::Fitting(pattern.and_then(Value::as_str).map(str::to_owned))
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

/// Whether a name fits a pattern in which `*` stands for anything at the end or the beginning.
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
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).because(error)
}

fn trouble(error: StoreError) -> Trouble {
    let no = refuse(error);
    match no.code() {
        Code::StateQuota => Trouble::Refused(no.with_text("too much waits for them; they have to receive it first")),
        Code::StoreNotFound => Trouble::Refused(no),
        _ => Trouble::NotDone(no),
    }
}

impl Service for Comms {
    fn is_local(&self) -> bool {
        true
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        ["comms.send", "comms.broadcast", "comms.subscribe", "comms.receive"].contains(&capability.as_str())
    }

    fn foresee<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async move {
            if verb(action) == "subscribe" {
                return channel_of(action.arguments()).map(drop);
            }
            let message = Outgoing::read(action)?;
            self.recipients(action.agent(), &message).await.map(drop)
        })
    }

    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>> {
        Box::pin(self.receive(ask))
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(self.send(hold, permit))
    }

    /// Sending it again is sending it once.
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Found> {
        Box::pin(std::future::ready(Found::Absent))
    }
}
