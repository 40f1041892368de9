//! Alerts from agents to people.
//!
//! An alert of an agent is a message like any other of the outbox, quoted as the agent's words. Promise: an
//! agent sees and acknowledges only its own.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::{MessageId, SessionId};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, Actor, BoxedFuture, CapabilityName};
use sluice_store::{AlertFilter, MessageSeverity, OutboxMessage, Store, StoreError};

use super::{CompletedWrite, LookupOutcome, ReadSource, Service, ServiceRead, WriteError};

/// The longest message, in characters.
const LONGEST: usize = 4_000;

/// Alerts to people.
#[derive(Debug)]
pub struct AlertsService {
    store: Arc<Store>,
}

impl AlertsService {
    /// Alerts on this store.
    #[must_use]
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    async fn list(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let arguments = ask.action.arguments();
        let open_only = match arguments.get("status").and_then(Value::as_str) {
            None | Some("all") => false,
            Some("open") => true,
            Some(_) => return Err(Refusal::new(Code::SchemaWrongType).with_text("status is `open` or `all`")),
        };
        let limit = arguments.get("limit").and_then(Value::as_u64).unwrap_or(50).clamp(1, 200);
        let filter = AlertFilter {
            open_only,
            severity_at_least: MessageSeverity::Info,
            agent: Some(ask.action.agent().clone()),
        };
        let limit = u32::try_from(limit).unwrap_or(50);
        let found = self.store.alerts(filter, None, limit).await.map_err(refuse)?;
        let alerts: Vec<Value> = found.iter().map(as_json).collect();
        Ok(json!({"alerts": alerts, "total": alerts.len()}))
    }

    async fn act(&self, hold: &Hold, permit: Permit) -> Result<CompletedWrite, WriteError> {
        let by = Actor::Agent(hold.agent().clone());
        // The message gets its id from the write, so that a repeated send is the same message.
        let own = MessageId::from_bits(permit.hold().bits());
        let (receipt, result) = match verb(&hold.action) {
            "send" => {
                let message = self.message(&hold.action, own).map_err(WriteError::Refused)?;
                self.store.alert(message, by).await.map_err(trouble)?;
                (own.to_string(), json!({"alert_id": own}))
            }
            "acknowledge" => {
                let id = alert_id(&hold.action).map_err(WriteError::Refused)?;
                self.store.acknowledge(id, by).await.map_err(trouble)?;
                (id.to_string(), json!({"alert_id": id, "acknowledged": true}))
            }
            _ => return Err(WriteError::refused(Code::GatewayUnsupported)),
        };
        Ok(CompletedWrite { receipt, result, after: None, undo_until: None })
    }

    fn message(&self, action: &Action, id: MessageId) -> Result<OutboxMessage, Refusal> {
        let arguments = action.arguments();
        let text = arguments.get("message").and_then(Value::as_str).unwrap_or_default();
        if text.is_empty() || text.chars().count() > LONGEST {
            return Err(Refusal::new(Code::SchemaWrongType).with_text("a message has 1 to 4000 characters"));
        }
        let severity = match arguments.get("severity").and_then(Value::as_str).unwrap_or("info") {
            "info" => MessageSeverity::Info,
            "warning" => MessageSeverity::Warning,
            "critical" => MessageSeverity::Critical,
            _ => {
                let text = "severity is `info`, `warning` or `critical`";
                return Err(Refusal::new(Code::SchemaWrongType).with_text(text));
            }
        };
        let body = json!({"agent": action.agent(), "words": text, "context": arguments.get("context")});
        Ok(OutboxMessage { id, topic: "alert.agent".into(), severity, body })
    }
}

/// An alert as agents and operators see it.
#[must_use]
pub fn as_json(alert: &sluice_store::StoredAlert) -> Value {
    json!({
        "alert_id": alert.message.id,
        "topic": alert.message.topic,
        "severity": alert.message.severity.as_str(),
        "body": alert.message.body,
        "created_at": alert.created_at.to_string(),
        "sent_by": alert.sent_by,
        "acknowledged_by": alert.acknowledged.as_ref().map(|(by, _)| by),
        "acknowledged_at": alert.acknowledged.as_ref().map(|(_, at)| at.to_string()),
    })
}

impl Service for AlertsService {
    fn is_local(&self) -> bool {
        true
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        ["alerts.send", "alerts.list", "alerts.acknowledge"].contains(&capability.as_str())
    }

    fn check_feasible<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> BoxedFuture<'a, Result<(), Refusal>> {
        Box::pin(std::future::ready(match verb(action) {
            "send" => self.message(action, MessageId::from_bits(0)).map(drop),
            _ => alert_id(action).map(drop),
        }))
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(self.list(ask))
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(self.act(hold, permit))
    }

    /// A repeat has no further effect.
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(std::future::ready(LookupOutcome::Absent))
    }
}

fn verb(action: &Action) -> &str {
    action.capability().as_str().rsplit('.').next().unwrap_or_default()
}

fn alert_id(action: &Action) -> Result<MessageId, Refusal> {
    let text = action.arguments().get("alert_id").and_then(Value::as_str).unwrap_or_default();
    text.parse().map_err(|_| Refusal::new(Code::SchemaBadName))
}

fn refuse(error: StoreError) -> Refusal {
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).with_source(error)
}

fn trouble(error: StoreError) -> WriteError {
    let no = refuse(error);
    match no.code() {
        Code::StoreNotFound => WriteError::Refused(no),
        _ => WriteError::NotDone(no),
    }
}
