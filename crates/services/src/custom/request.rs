//! Carries out a custom capability by an HTTP request through egress.

use bytes::Bytes;
use serde_json::{Map, Value};
use sluice_config::network::{EgressConnection, EgressUrl, is_read};
use sluice_core::custom::request::TemplateContext;
use sluice_core::custom::{CustomCapability, DeclaredRequest, RequestTemplate};
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, Actor, CapabilityName};
use sluice_egress::{EgressError, EgressRequest, EgressResponse};

use super::answer::{self, CustomAnswerOrigin, WireCustomAnswer};
use super::service::{key_of, marker_fingerprint, service_of, unfit};
use super::{CustomServiceDeps, method};
use crate::intake::ContentRecipient;
use crate::{CompletedWrite, LookupOutcome, ServiceRead, WriteError};

/// One declared request with its way out.
pub(super) struct CustomRequestRunner<'a> {
    pub deps: &'a CustomServiceDeps,
    pub name: &'a CapabilityName,
    pub file: &'a CustomCapability,
    pub request: &'a DeclaredRequest,
    pub connection: &'a EgressConnection,
}

impl CustomRequestRunner<'_> {
    /// Checks that these arguments give a request.
    pub fn check(&self, arguments: &Map<String, Value>) -> Result<(), Refusal> {
        let beside = TemplateContext { key: Some("call"), kept: Map::new() };
        let filled = self.file.fill_request((self.request, &self.request.request), arguments, &beside);
        filled.map(drop).map_err(|no| unfit(&no))
    }

    async fn send(
        &self,
        template: &RequestTemplate,
        (action, beside): (&Action, &TemplateContext<'_>),
    ) -> Result<EgressResponse, WriteError> {
        let filled = self.file.fill_request((self.request, template), action.arguments(), beside).map_err(|no| {
            // Nothing was sent, and nothing will be: the same arguments give the same result.
            WriteError::Refused(unfit(&no))
        })?;
        let mut headers = filled.headers;
        if let (Some(header), Some(key)) = (&self.request.idempotency_header, beside.key) {
            headers.push((header.to_ascii_lowercase(), key.to_owned()));
        }
        let method = method(filled.method);
        let read = is_read(&method);
        let body = Bytes::from(filled.body.unwrap_or_default());
        let request = EgressRequest { method, url: filled.url, headers, body, follow: false, timeout: None };
        let by = Actor::Agent(action.agent().clone());
        let sent = self.deps.egress.request(self.connection, self.name.as_str(), by, request).await;
        sent.map_err(|no: EgressError| WriteError::from_egress(no, read))
    }

    fn host(&self) -> String {
        EgressUrl::parse(&self.request.base_url).map(|target| target.host().to_owned()).unwrap_or_default()
    }

    /// What the agent gets of an answer, and its JSON value.
    async fn shown(
        &self,
        answer: &EgressResponse,
        reader: Option<ContentRecipient>,
    ) -> Result<(Value, Value), Refusal> {
        let (service, host) = (service_of(self.name)?, self.host());
        let origin = CustomAnswerOrigin { service: &service, place: ("host", &host), reader };
        Ok(self.deps.shown(WireCustomAnswer::of_answer(answer), origin).await)
    }

    pub async fn answer(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let beside = TemplateContext::default();
        let answer = self.send(&self.request.request, (&ask.action, &beside)).await.map_err(refusal_of)?;
        Ok(self.shown(&answer, Some(ContentRecipient::of(ask))).await?.0)
    }

    pub async fn carry_out(&self, hold: &Hold, permit: Permit) -> Result<CompletedWrite, WriteError> {
        let key = key_of(permit.hold());
        let beside = TemplateContext { key: Some(&key), kept: Map::new() };
        let answer = self.send(&self.request.request, (&hold.action, &beside)).await?;
        answer::outcome_of(answer.status)?;
        let shown = self.shown(&answer, Some(ContentRecipient::of_write(hold))).await;
        // The write was done, whatever happens to its answer.
        let (shown, value) = shown.unwrap_or_default();
        let kept = self.file.extract_kept_values(&value);
        // The answer may lack what a rollback needs; then the write cannot be undone, and the answer says so.
        let back = self.request.rollback.as_ref().map(|rollback| rollback.template());
        let beside = TemplateContext { key: Some(&key), kept: kept.clone() };
        let can_go_back = back.is_some_and(|back| {
            self.file.fill_request((self.request, &back), hold.action.arguments(), &beside).is_ok()
        });
        let after = can_go_back.then(|| marker_fingerprint("applied", hold.id));
        let receipt = answer::receipt(&answer.status.to_string(), &self.host(), &kept);
        Ok(CompletedWrite { receipt, result: shown, after, undo_until: None })
    }

    pub async fn find(&self, hold: &Hold) -> LookupOutcome {
        let Some(lookup) = &self.request.lookup else {
            // Sent again with the same key or the same effect: the service applies it once.
            return if self.file.is_repeatable() { LookupOutcome::Absent } else { LookupOutcome::Unknown };
        };
        let key = key_of(hold.id);
        let beside = TemplateContext { key: Some(&key), kept: Map::new() };
        let answer = match self.send(&lookup.template(), (&hold.action, &beside)).await {
            Ok(answer) if LookupOutcome::is_no_time(answer.status) => return LookupOutcome::NotLooked,
            Ok(answer) => answer,
            Err(trouble) => return LookupOutcome::not_given(&refusal_of(trouble)),
        };
        let Ok((shown, value)) = self.shown(&answer, None).await else { return LookupOutcome::Unknown };
        let is_there = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            Value::Bool(true) | Value::Number(_) => true,
        };
        let applied = |shown| found_there("200", &self.host(), shown);
        match (answer.status, lookup.applied.as_deref()) {
            (404, _) => LookupOutcome::Absent,
            (200..=299, Some(place)) if value.pointer(place).is_some_and(is_there) => applied(shown),
            // An answer that could not be read proves nothing.
            (200..=299, Some(_)) if value.is_null() => LookupOutcome::Unknown,
            (200..=299, Some(_)) => LookupOutcome::Absent,
            (200..=299, None) => applied(shown),
            _ => LookupOutcome::Unknown,
        }
    }

    pub async fn take_back(&self, permit: Permit, done: &Hold, before: &[u8]) -> Result<CompletedWrite, WriteError> {
        let impossible = || WriteError::refused(Code::RollbackNotPossible);
        let template: RequestTemplate = serde_json::from_slice(before).map_err(|_| impossible())?;
        let HoldState::Done { receipt, .. } = &done.state else { return Err(impossible()) };
        // The key is that of the write that undoes, so that the service can tell the two apart.
        let key = key_of(permit.hold());
        let beside = TemplateContext { key: Some(&key), kept: answer::kept_in(receipt) };
        let answer = self.send(&template, (&done.action, &beside)).await?;
        answer::outcome_of(answer.status)?;
        let (shown, _) = self.shown(&answer, None).await.unwrap_or_default();
        let receipt = answer::receipt(&answer.status.to_string(), &self.host(), &Map::new());
        Ok(CompletedWrite { receipt, result: shown, after: None, undo_until: None })
    }
}

/// A write that was found. The content of its answer is lost, so it cannot be undone.
pub(super) fn found_there(how: &str, place: &str, shown: Value) -> LookupOutcome {
    let receipt = answer::receipt(how, place, &Map::new());
    LookupOutcome::Applied(CompletedWrite { receipt, result: shown, after: None, undo_until: None })
}

fn refusal_of(trouble: WriteError) -> Refusal {
    match trouble {
        WriteError::NotDone(no) | WriteError::Refused(no) => no,
        WriteError::Unclear | WriteError::UnclearSaying(_) => Refusal::new(Code::EgressNoAnswer),
    }
}
