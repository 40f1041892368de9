//! A connected mailbox behind the gate.
//!
//! Reads are answered from the replica, all but attachments on the calling path; writes are jobs of workers. Promise:
//! no read sends a request to the service; withheld content is neither shown nor forwarded; the bytes of a write are
//! those that were approved.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::mail::query::{self, MailSearchQuery};
use sluice_core::mail::{Mail, MailAddress, MailAttachment};
use sluice_core::nodes::ServiceKind;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Action, Actor, BoxedFuture, CapabilityName, HoldId, ServiceName, UtcMillis};
use sluice_protocol::AttachedFile;
use sluice_store::replica::{
    MOST_HITS, Replica, ReplicaFreshness, ReplicaReader, ReplicaSearch, ReplicaSearchHit, ReplicaSearchOrder,
};

use super::write::{AdapterWritePayload, ConnectionWriter};
use super::{AdapterManifest, ConnectionHandle, ServiceConnections, addressed, apart, attachments, foresight};
use crate::value::put;
use crate::{
    AttachedText, CompletedWrite, LookupOutcome, PreparedWrite, ReadSource, Service, ServiceRead, ServiceSlot,
    WriteError,
};

/// Messages in one answer, unless the call sets another number.
const USUAL: u64 = 20;
/// A capability that the gateway answers itself, although it has the service's name.
const CANCEL: &str = "email.cancel";
/// The only read whose content a worker must screen first.
const ATTACHMENT: &str = "email.attachment";

/// One connected mailbox.
#[derive(Debug)]
pub(super) struct MailService {
    connections: Arc<ServiceConnections>,
    name: ServiceName,
    offers: Vec<CapabilityName>,
}

impl MailService {
    pub fn new(connections: Arc<ServiceConnections>, name: &ServiceName, manifest: &AdapterManifest) -> Self {
        Self { connections, name: name.clone(), offers: manifest.capabilities.clone() }
    }

    fn line(&self) -> Result<Arc<ConnectionHandle>, Refusal> {
        self.connections.known(&self.name).ok_or_else(|| Refusal::new(Code::ExecuteReconnect))
    }

    fn copy(&self) -> Result<Arc<Replica>, Refusal> {
        let line = self.line()?;
        line.copy().ok_or_else(|| line.no_copy())
    }

    async fn answer(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let (copy, arguments) = (self.copy()?, ask.action.arguments());
        match ask.action.capability().as_str() {
            "email.search" => {
                let mut query = query::parse(text(arguments, "query")).map_err(|why| wrong(&why.to_string()))?;
                if let Some(read) = arguments.get("is_read").and_then(Value::as_bool) {
                    query.unread = Some(!read);
                }
                self.list(&copy, query, ReplicaSearchOrder::Ranked, ask).await
            }
            "email.list" => self.list(&copy, MailSearchQuery::default(), ReplicaSearchOrder::Newest, ask).await,
            "email.read" => {
                let id = text(arguments, "message_id");
                let look = || {
                    copy.get(id, ReplicaReader::Agent).map_err(unavailable)?.ok_or_else(|| {
                        let text = "there is no such message in the replica of the mailbox";
                        Refusal::new(Code::StoreNotFound).with_text(text)
                    })
                };
                let mut mail = look()?;
                if !mail.withheld.is_empty() {
                    if !self.connections.let_through(&copy, (&self.name, id), ask.now).await? {
                        return Err(self.connections.withheld(&copy, &self.name, ask, id).await);
                    }
                    mail = look()?;
                }
                Ok(
                    json!({"message": whole(&copy, &mail), "untrusted": true, "freshness": fresh(copy.freshness(), ask.now)}),
                )
            }
            _ => Err(Refusal::new(Code::GatewayUnsupported)),
        }
    }

    /// Messages that match. A message that a person has released since is shown again.
    async fn list(
        &self,
        copy: &Replica,
        mut query: MailSearchQuery,
        order: ReplicaSearchOrder,
        ask: &ServiceRead,
    ) -> Result<Value, Refusal> {
        let arguments = ask.action.arguments();
        let number = |name: &str| match arguments.get(name) {
            None => Ok(None),
            Some(value) => {
                value.as_u64().map(Some).ok_or_else(|| wrong(&format!("`{name}` must be a whole number of 0 or more")))
            }
        };
        if let Some(label) = arguments.get("label").and_then(Value::as_str) {
            query.labels.push(label.to_owned());
        }
        let limit = number("limit")?.unwrap_or(USUAL).clamp(1, MOST_HITS as u64);
        let offset = number("offset")?.unwrap_or(0);
        let search = ReplicaSearch {
            query: &query,
            order,
            limit: usize::try_from(limit).unwrap_or(MOST_HITS),
            offset: usize::try_from(offset).map_err(|_| wrong("`offset` is too large"))?,
            reader: ReplicaReader::Agent,
        };
        let mut found = copy.search(&search).map_err(unavailable)?;
        let mut released = false;
        for hit in found.hits.iter().filter(|hit| hit.withheld) {
            released |= self.connections.let_through(copy, (&self.name, &hit.id), ask.now).await?;
        }
        if released {
            found = copy.search(&search).map_err(unavailable)?;
        }
        let names = copy.labels();
        let messages: Vec<Value> = found.hits.iter().map(|hit| shown(hit, &names)).collect();
        let mut answer = json!({
            "messages": messages, "more": found.more, "untrusted": true, "freshness": fresh(found.freshness, ask.now),
        });
        for (name, count) in [("ranked_over", found.ranked_over), ("looked_at", found.looked_at)] {
            if let Some(count) = count {
                put(&mut answer, name, count);
            }
        }
        Ok(answer)
    }

    async fn attachment(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let context = self.connections.context().map_err(|no| *no.refusal)?;
        attachments::show(&*self.copy()?, &context.intake, &self.name, ask).await
    }

    /// Checks a write for visible errors before anyone is asked to approve it.
    async fn look_ahead(&self, action: &Action) -> Result<(), Refusal> {
        let arguments = action.arguments();
        if action.capability().as_str() == CANCEL {
            text(arguments, "buffer_id").parse::<HoldId>().map_err(|_| Refusal::new(Code::HoldNotFound))?;
        }
        if let Some(no) = apart::not_to_us(&self.connections.context().map_err(|no| *no.refusal)?.config, arguments) {
            return Err(no);
        }
        // SECURITY: an agent must not have a message sent to where it can read it, if it may not read the message here.
        let copy = self.copy()?;
        let passes_on = matches!(action.capability().as_str(), "email.forward" | "email.reply");
        let id = text(arguments, "message_id");
        let about = copy.get(id, ReplicaReader::Agent).map_err(unavailable)?;
        // A message that is not in the replica was not checked, and may be one of the gateway's own.
        if passes_on && about.is_none() {
            let text = "there is no such message in the replica of the mailbox";
            return Err(Refusal::new(Code::StoreNotFound).with_text(text));
        }
        self.can_send(action)?;
        foresight::unknown(&copy, arguments)?;
        let withheld = passes_on && about.is_some_and(|mail| !mail.withheld.is_empty());
        let now = self.connections.deps.clock.now();
        if withheld && !self.connections.let_through(&copy, (&self.name, id), now).await? {
            return Err(Refusal::new(Code::ContentWithheld));
        }
        Ok(())
    }

    /// A mail needs a sender: without the account's own address, none can be written.
    fn can_send(&self, action: &Action) -> Result<(), Refusal> {
        let line = self.line()?;
        let sends = matches!(action.capability().as_str(), "email.send" | "email.reply" | "email.forward");
        let nameless = line.row().account.is_none_or(|account| account.is_empty());
        if sends && nameless && line.manifest.foreign.is_none() {
            let text = "mail cannot be sent: the service does not say which address the connected account has";
            return Err(Refusal::new(Code::ExecuteRefused).with_text(text));
        }
        Ok(())
    }

    fn writer(&self) -> ConnectionWriter<'_> {
        ConnectionWriter { connections: &self.connections, name: &self.name }
    }

    /// A write in the adapter's terms, and its files unless its handle holds them already. If a file is no longer
    /// there, the write ends: nothing else may go out instead.
    fn loaded(&self, hold: &Hold, handle: Option<&str>) -> Result<AdapterWritePayload, WriteError> {
        let mut load = AdapterWritePayload::bare(hold);
        let named = hold.action.arguments().get("attachments").and_then(Value::as_array);
        if handle.is_some() || named.is_none_or(Vec::is_empty) {
            return Ok(load);
        }
        let copy = self.copy().map_err(WriteError::NotDone)?;
        let files = attachments::files(&copy, hold.action.arguments()).map_err(|no| match no.code() {
            Code::StoreNotFound | Code::SchemaWrongType => WriteError::Refused(no),
            _ => WriteError::NotDone(no),
        })?;
        // The contents travel beside the job.
        let blob = |about: &MailAttachment| AttachedFile {
            name: about.name.clone().unwrap_or_else(|| "attachment".into()),
            media_type: about.media_type.clone(),
            bytes: Vec::new(),
        };
        load.write.blobs = files.iter().map(|(about, _)| blob(about)).collect();
        load.files = files.into_iter().map(|(_, bytes)| bytes).collect();
        Ok(load)
    }

    /// Stops a write of the same agent at the same service.
    async fn cancel(&self, hold: &Hold) -> Result<CompletedWrite, WriteError> {
        let not_found = || WriteError::refused(Code::HoldNotFound);
        let id: HoldId = text(hold.action.arguments(), "buffer_id").parse().map_err(|_| not_found())?;
        let context = self.connections.context().map_err(|no| WriteError::NotDone(*no.refusal))?;
        let wanted = context.store.hold(id).await.map_err(|error| WriteError::NotDone(unavailable(error)))?;
        let own = wanted.is_some_and(|wanted| wanted.agent() == hold.agent() && wanted.service == hold.service);
        if !own {
            return Err(not_found());
        }
        let by = Actor::Agent(hold.agent().clone());
        let stopped = context.stop_hold(id, by).await.map_err(|no| WriteError::Refused(*no.refusal))?;
        Ok(cancelled(stopped.id))
    }
}

fn cancelled(id: HoldId) -> CompletedWrite {
    let result = json!({"buffer_id": id, "status": "cancelled"});
    CompletedWrite { receipt: format!("cancelled {id}"), result, after: None, undo_until: None }
}

pub(super) fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn wrong(why: &str) -> Refusal {
    Refusal::new(Code::SchemaWrongType).with_text(why)
}

pub(super) fn unavailable(error: sluice_store::StoreError) -> Refusal {
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).with_source(error)
}

fn labels(ids: &[String], names: &[(String, String)]) -> Vec<String> {
    let name = |id: &String| names.iter().find(|(known, _)| known == id).map_or(id, |(_, name)| name).clone();
    ids.iter().map(name).collect()
}

fn shown(hit: &ReplicaSearchHit, names: &[(String, String)]) -> Value {
    let at = UtcMillis::from_millis(hit.received).to_string();
    json!({
        "message_id": hit.id, "thread_id": hit.thread, "received": at, "from": hit.sender, "subject": hit.subject,
        "snippet": hit.snippet, "labels": labels(&hit.labels, names), "unread": hit.unread,
        "has_attachment": hit.attachment, "withheld": hit.withheld, "ambiguous": hit.ambiguous,
        "authentication": hit.authentication,
    })
}

fn whole(copy: &Replica, mail: &Mail) -> Value {
    let people = |list: &[MailAddress]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
    json!({
        "message_id": mail.id, "thread_id": mail.thread, "received": mail.received_at().to_string(),
        "from": mail.from.as_ref().map(ToString::to_string), "authentication": mail.authentication,
        "ambiguous": mail.ambiguous.as_ref().map(|doubt| &doubt.reasons), "to": people(&mail.to), "cc": people(&mail.cc),
        "subject": mail.subject, "body": mail.text, "labels": labels(&mail.labels, &copy.labels()),
        "attachments": mail.attachments, "size": mail.size, "cut": mail.cut,
    })
}

/// The age of the replica.
fn fresh(freshness: ReplicaFreshness, now: UtcMillis) -> Value {
    let ReplicaFreshness { synced_at, complete, done, total } = freshness;
    let mut said = json!({
        "synced_at": synced_at.map(|at| at.to_string()), "age_s": synced_at.map(|at| now.since(at).as_secs()),
        "complete": complete,
    });
    if let (false, Value::Object(members)) = (complete, &mut said) {
        members.insert("progress".into(), json!({"done": done, "total": total}));
    }
    said
}

impl Service for MailService {
    fn kind(&self) -> ServiceKind {
        ServiceKind::Connected
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Replica
    }

    fn gives_outside_text(&self) -> bool {
        true
    }

    fn can_be_asked(&self) -> bool {
        self.line().is_ok_and(|line| line.state().is_at_work())
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        self.offers.contains(capability)
    }

    fn before_settling<'a>(
        &'a self,
        capability: &CapabilityName,
        arguments: &'a Value,
    ) -> Option<BoxedFuture<'a, Result<(), Refusal>>> {
        // A person may have released a message that nobody has read since: its attachments can be named then.
        let id = arguments.get("message_id").and_then(Value::as_str);
        let id = id.filter(|_| capability.as_str() == "email.forward")?;
        Some(Box::pin(async move {
            let copy = self.copy()?;
            let about = copy.get(id, ReplicaReader::Agent).map_err(unavailable)?;
            if about.is_some_and(|mail| !mail.withheld.is_empty()) {
                self.connections.let_through(&copy, (&self.name, id), self.connections.deps.clock.now()).await?;
            }
            Ok(())
        }))
    }

    fn settle(&self, capability: &CapabilityName, arguments: Value) -> Result<Value, Refusal> {
        let (line, copy) = (self.line()?, self.copy()?);
        let arguments = addressed::settle(&copy, capability.as_str(), arguments, line.row().account.as_deref())?;
        attachments::settle(&copy, capability.as_str(), arguments)
    }

    fn find_stopped_hold(&self, action: &Action) -> Option<HoldId> {
        let cancels = action.capability().as_str() == CANCEL;
        cancels.then(|| text(action.arguments(), "buffer_id").parse().ok()).flatten()
    }

    fn describe_targets(&self, action: &Action) -> Vec<String> {
        self.copy().map(|copy| addressed::described(&copy, action)).unwrap_or_default()
    }

    fn attached_texts(&self, action: &Action) -> Result<Vec<AttachedText>, Refusal> {
        attachments::along(&*self.copy()?, action)
    }

    fn check_feasible<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> BoxedFuture<'a, Result<(), Refusal>> {
        Box::pin(self.look_ahead(action))
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        if ask.action.capability().as_str() == ATTACHMENT {
            return Box::pin(self.attachment(ask));
        }
        // On the calling path: a look into the replica takes less time than handing it to another thread.
        Box::pin(self.answer(ask))
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        Box::pin(async move {
            if hold.action.capability().as_str() == CANCEL {
                return Ok(PreparedWrite::default());
            }
            let load = self.loaded(hold, hold.handle.as_deref())?;
            self.writer().prepare(hold, load).await
        })
    }

    fn reserve<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<ServiceSlot, Refusal>> {
        Box::pin(async move {
            if hold.action.capability().as_str() == CANCEL {
                return Ok(ServiceSlot::Free);
            }
            self.writer().reserve().await
        })
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async move {
            if hold.action.capability().as_str() == CANCEL {
                return self.cancel(hold).await;
            }
            let load = self.loaded(hold, permit.handle())?;
            self.writer().perform(&permit, hold, load).await
        })
    }

    fn look_up<'a>(&'a self, hold: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(async move {
            if hold.action.capability().as_str() == CANCEL {
                // Cancelling twice has the same effect as cancelling once.
                return LookupOutcome::Absent;
            }
            self.writer().look_up(hold).await
        })
    }

    fn difference<'a>(&'a self, done: &'a Hold, before: &'a [u8]) -> BoxedFuture<'a, Vec<String>> {
        Box::pin(async move { self.writer().difference(done, before).await })
    }

    fn can_be_forced_back(&self, done: &Hold) -> bool {
        // With several messages each one is judged for itself: those that somebody changed since are left out.
        !done.action.arguments().contains_key("message_ids")
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
        Box::pin(async move { self.writer().undo(permit, done, before).await })
    }
}
