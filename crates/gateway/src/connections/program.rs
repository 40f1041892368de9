//! A service behind an adapter of others: its reads are asked of it, its writes are jobs like any other's.
//!
//! No copy is kept: such a service has a shape of its own. Promise: nothing its adapter or its service said reaches an
//! agent before it passed the intake, neither the answer of a read nor the result of a write; a write's bytes are those
//! that were approved.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::nodes::ServiceKind;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::Fingerprint;
use sluice_core::{Actor, CapabilityName, ServiceName};

use super::job::{Errand, Given};
use super::manifest::Step;
use super::write::{Load, Writer};
use super::{Connections, Manifest};
use crate::intake::{Cleaned, Incoming, Reader, Taken};
use crate::services::{Ask, Found, Performed, Place, Prepared, ReadSource, Service, Trouble, Work};

/// One service of others.
#[derive(Debug)]
pub(super) struct ProgramService {
    connections: Arc<Connections>,
    name: ServiceName,
    service: ServiceName,
    offers: Vec<CapabilityName>,
}

impl ProgramService {
    pub fn new(connections: Arc<Connections>, name: &ServiceName, manifest: &Manifest) -> Self {
        let (service, offers) = (manifest.service.clone(), manifest.capabilities.clone());
        Self { connections, name: name.clone(), service, offers }
    }

    fn writer(&self) -> Writer<'_> {
        Writer { connections: &self.connections, name: &self.name }
    }

    async fn answer(&self, ask: &Ask) -> Result<Value, Refusal> {
        let line = self.connections.known(&self.name).ok_or_else(|| Refusal::new(Code::ExecuteReconnect))?;
        if !line.state().is_at_work() {
            let text = format!("the connection `{}` is {}", self.name, line.state());
            return Err(Refusal::new(Code::ExecuteReconnect).with_text(&text));
        }
        let capability = ask.action.capability();
        let job = json!({"job": "read", "capability": capability, "arguments": ask.action.arguments()});
        let by = Actor::Agent(ask.action.agent().clone());
        let (capability, step, files) = (capability.as_str(), Step::Look, Vec::new());
        let errand = Errand { capability, by, step, job, copies: false, files };
        let Given { answer, again, .. } =
            self.connections.ask(&line, &errand).await.map_err(|not_given| not_given.refusal)?;
        let given = answer.read_value().map_err(|no| match again {
            Some(again) => no.retry_after(again.since(ask.now)),
            None => no,
        })?;
        let reader = Reader::of(ask);
        self.taken_in(capability, &given, reader).await
    }

    /// What an agent is given of what came from outside: data that says so, or words of ours where it is withheld.
    async fn taken_in(&self, source: &str, given: &Value, reader: Reader) -> Result<Value, Refusal> {
        let gw = self.connections.gateway().map_err(|no| *no.refusal)?;
        let item = Incoming {
            bytes: given.to_string().into_bytes(),
            declared: Some("application/json".into()),
            service: self.service.clone(),
            source: source.to_owned(),
            author: self.name.to_string(),
            at: self.connections.ground.clock.now(),
            beside: None,
            reader: Some(reader),
            enveloped: false,
        };
        let data = match gw.intake.take_in(&item).await? {
            Taken::Clean(Cleaned { withheld: Some(finding), text, .. }) => {
                json!({"withheld": {"finding_id": finding}, "text": text})
            }
            Taken::Clean(Cleaned { value: Some(value), .. }) => value,
            Taken::Clean(_) | Taken::Refused { .. } => return Err(Refusal::new(Code::ContentUnread)),
        };
        Ok(json!({"data": data, "source": format!("service.{}", self.name), "untrusted": true}))
    }

    /// A write that happened stays one, whether or not its adapter's words about it can be read.
    async fn told(&self, hold: &Hold, done: Performed) -> Performed {
        let reader = Reader::of_write(hold);
        let source = hold.action.capability().as_str();
        let result = match self.taken_in(source, &done.result, reader).await {
            Ok(result) => result,
            Err(no) => json!({"unread": no.code().as_str()}),
        };
        Performed { result, ..done }
    }
}

impl Service for ProgramService {
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

    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>> {
        Box::pin(self.answer(ask))
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> Work<'a, Result<Prepared, Trouble>> {
        Box::pin(async move { self.writer().prepare(hold, Load::bare(hold)).await })
    }

    fn reserve<'a>(&'a self, _: &'a Hold) -> Work<'a, Result<Place, Refusal>> {
        Box::pin(async move { self.writer().reserve().await })
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async move {
            let done = self.writer().perform(&permit, hold, Load::bare(hold)).await?;
            Ok(self.told(hold, done).await)
        })
    }

    fn look_up<'a>(&'a self, hold: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Found> {
        Box::pin(async move {
            match self.writer().look_up(hold).await {
                Found::Applied(done) => Found::Applied(self.told(hold, done).await),
                other @ (Found::Absent | Found::Unknown | Found::NotLooked) => other,
            }
        })
    }

    fn present<'a>(&'a self, done: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Fingerprint, Trouble>> {
        Box::pin(async move { self.writer().present(done, before).await })
    }

    fn undo<'a>(&'a self, permit: Permit, done: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async move {
            let undone = self.writer().undo(permit, done, before).await?;
            Ok(self.told(done, undone).await)
        })
    }
}
