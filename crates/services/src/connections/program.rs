//! A service behind a third-party adapter: its reads go to the service, its writes are jobs like any other.
//!
//! There is no replica: such a service has its own shapes. Promise: nothing from its adapter or its service reaches an
//! agent before it has passed the intake, neither the answer of a read nor the result of a write; the bytes of a write
//! are those that were approved.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::nodes::ServiceKind;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Actor, BoxedFuture, CapabilityName, ServiceName};
use sluice_protocol::AdapterJobRequest;

use super::job::{AdapterJob, AdapterJobResult};
use super::manifest::AdapterStep;
use super::write::{AdapterWritePayload, ConnectionWriter};
use super::{AdapterManifest, ServiceConnections};
use crate::intake::{CleanedContent, ContentRecipient, IncomingItem, IntakeOutcome};
use crate::{CompletedWrite, LookupOutcome, PreparedWrite, ReadSource, Service, ServiceRead, ServiceSlot, WriteError};

/// One third-party service.
#[derive(Debug)]
pub(super) struct ThirdPartyAdapterService {
    connections: Arc<ServiceConnections>,
    name: ServiceName,
    service: ServiceName,
    offers: Vec<CapabilityName>,
}

impl ThirdPartyAdapterService {
    pub fn new(connections: Arc<ServiceConnections>, name: &ServiceName, manifest: &AdapterManifest) -> Self {
        let (service, offers) = (manifest.service.clone(), manifest.capabilities.clone());
        Self { connections, name: name.clone(), service, offers }
    }

    fn writer(&self) -> ConnectionWriter<'_> {
        ConnectionWriter { connections: &self.connections, name: &self.name }
    }

    async fn answer(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let line = self.connections.known(&self.name).ok_or_else(|| Refusal::new(Code::ExecuteReconnect))?;
        if !line.state().is_at_work() {
            let text = format!("the connection `{}` is {}", self.name, line.state());
            return Err(Refusal::new(Code::ExecuteReconnect).with_text(&text));
        }
        let capability = ask.action.capability();
        let arguments = ask.action.arguments().clone();
        let job = AdapterJobRequest::Read { capability: capability.clone(), arguments };
        let by = Actor::Agent(ask.action.agent().clone());
        let (capability, step, files) = (capability.as_str(), AdapterStep::Look, Vec::new());
        let assignment = AdapterJob { capability, by, step, job, copies: false, files };
        let AdapterJobResult { answer, again, .. } =
            self.connections.run_job(&line, &assignment).await.map_err(|not_given| not_given.refusal)?;
        let given = answer.read_value().map_err(|no| match again {
            Some(again) => no.retry_after(again.since(ask.now)),
            None => no,
        })?;
        let reader = ContentRecipient::of(ask);
        self.taken_in(capability, &given, reader).await
    }

    /// What an agent gets of content from outside: data with its provenance, or our words where it is withheld.
    async fn taken_in(&self, source: &str, given: &Value, reader: ContentRecipient) -> Result<Value, Refusal> {
        let context = self.connections.context().map_err(|no| *no.refusal)?;
        let item = IncomingItem {
            bytes: given.to_string().into_bytes(),
            declared: Some("application/json".into()),
            service: self.service.clone(),
            source: source.to_owned(),
            author: self.name.to_string(),
            at: self.connections.deps.clock.now(),
            beside: None,
            reader: Some(reader),
            enveloped: false,
        };
        let data = match context.intake.take_in(&item).await? {
            IntakeOutcome::Clean(CleanedContent { withheld: Some(finding), text, .. }) => {
                json!({"withheld": {"finding_id": finding}, "text": text})
            }
            IntakeOutcome::Clean(CleanedContent { value: Some(value), .. }) => value,
            IntakeOutcome::Clean(_) | IntakeOutcome::Refused { .. } => return Err(Refusal::new(Code::ContentUnread)),
        };
        Ok(json!({"data": data, "source": format!("service.{}", self.name), "untrusted": true}))
    }

    /// A write that happened stays done, whether or not the words of its adapter can be read.
    async fn told(&self, hold: &Hold, done: CompletedWrite) -> CompletedWrite {
        let reader = ContentRecipient::of_write(hold);
        let source = hold.action.capability().as_str();
        let result = match self.taken_in(source, &done.result, reader).await {
            Ok(result) => result,
            Err(no) => json!({"unread": no.code().as_str()}),
        };
        CompletedWrite { result, ..done }
    }
}

impl Service for ThirdPartyAdapterService {
    fn kind(&self) -> ServiceKind {
        ServiceKind::Connected
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Outside
    }

    fn can_be_asked(&self) -> bool {
        self.connections.known(&self.name).is_some_and(|line| line.state().is_at_work())
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        self.offers.contains(capability)
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(self.answer(ask))
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        Box::pin(async move { self.writer().prepare(hold, AdapterWritePayload::bare(hold)).await })
    }

    fn reserve<'a>(&'a self, _: &'a Hold) -> BoxedFuture<'a, Result<ServiceSlot, Refusal>> {
        Box::pin(async move { self.writer().reserve().await })
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async move {
            let done = self.writer().perform(&permit, hold, AdapterWritePayload::bare(hold)).await?;
            Ok(self.told(hold, done).await)
        })
    }

    fn look_up<'a>(&'a self, hold: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(async move {
            match self.writer().look_up(hold).await {
                LookupOutcome::Applied(done) => LookupOutcome::Applied(self.told(hold, done).await),
                other @ (LookupOutcome::Absent | LookupOutcome::Unknown | LookupOutcome::NotLooked) => other,
            }
        })
    }

    fn current_fingerprint<'a>(
        &'a self,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<ObjectFingerprint, WriteError>> {
        Box::pin(async move { self.writer().present(done, before).await })
    }

    fn undo<'a>(
        &'a self,
        permit: Permit,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async move {
            let undone = self.writer().undo(permit, done, before).await?;
            Ok(self.told(done, undone).await)
        })
    }
}
