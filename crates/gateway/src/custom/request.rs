//! A custom capability that is carried out by an HTTP request through egress.

use bytes::Bytes;
use serde_json::{Map, Value};
use sluice_core::custom::request::Beside;
use sluice_core::custom::{CustomCapability, DeclaredRequest, RequestTemplate};
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, Actor, CapabilityName};

use super::answer::{self, Origin, Said};
use super::service::{key_of, print, service_of, unfit};
use super::{CustomGround, method};
use crate::egress::{Answer, Connection, EgressNo, Request, Target, is_read};
use crate::intake::Reader;
use crate::services::{Ask, Found, Performed, Trouble};

/// One declared request with its way out.
pub(super) struct RequestWay<'a> {
    pub ground: &'a CustomGround,
    pub name: &'a CapabilityName,
    pub file: &'a CustomCapability,
    pub request: &'a DeclaredRequest,
    pub connection: &'a Connection,
}

impl RequestWay<'_> {
    /// Whether these arguments give a request.
    pub fn check(&self, arguments: &Map<String, Value>) -> Result<(), Refusal> {
        let beside = Beside { key: Some("call"), kept: Map::new() };
        let filled = self.file.filled((self.request, &self.request.request), arguments, &beside);
        filled.map(drop).map_err(|no| unfit(&no))
    }

    async fn send(
        &self,
        template: &RequestTemplate,
        (action, beside): (&Action, &Beside<'_>),
    ) -> Result<Answer, Trouble> {
        let filled = self.file.filled((self.request, template), action.arguments(), beside).map_err(|no| {
            // Nothing was sent, and nothing will be: the same arguments give the same answer.
            Trouble::Refused(unfit(&no))
        })?;
        let mut headers = filled.headers;
        if let (Some(header), Some(key)) = (&self.request.idempotency_header, beside.key) {
            headers.push((header.to_ascii_lowercase(), key.to_owned()));
        }
        let method = method(filled.method);
        let read = is_read(&method);
        let body = Bytes::from(filled.body.unwrap_or_default());
        let request = Request { method, url: filled.url, headers, body, follow: false, timeout: None };
        let by = Actor::Agent(action.agent().clone());
        let sent = self.ground.egress.request(self.connection, self.name.as_str(), by, request).await;
        sent.map_err(|no: EgressNo| no.trouble(read))
    }

    fn host(&self) -> String {
        Target::parse(&self.request.base_url).map(|target| target.host().to_owned()).unwrap_or_default()
    }

    /// What the agent is told of an answer, and its JSON value.
    async fn shown(&self, answer: &Answer, reader: Option<Reader>) -> Result<(Value, Value), Refusal> {
        let (service, host) = (service_of(self.name)?, self.host());
        let origin = Origin { service: &service, place: ("host", &host), reader };
        Ok(self.ground.shown(Said::of_answer(answer), origin).await)
    }

    pub async fn answer(&self, ask: &Ask) -> Result<Value, Refusal> {
        let beside = Beside::default();
        let answer = self.send(&self.request.request, (&ask.action, &beside)).await.map_err(refusal_of)?;
        Ok(self.shown(&answer, Some(Reader::of(ask))).await?.0)
    }

    pub async fn carry_out(&self, hold: &Hold, permit: Permit) -> Result<Performed, Trouble> {
        let key = key_of(permit.hold());
        let beside = Beside { key: Some(&key), kept: Map::new() };
        let answer = self.send(&self.request.request, (&hold.action, &beside)).await?;
        answer::outcome_of(answer.status)?;
        let shown = self.shown(&answer, Some(Reader::of_write(hold))).await;
        // It was done, whatever becomes of what is told about it.
        let (shown, value) = shown.unwrap_or_default();
        let kept = self.file.kept_of(&value);
        // What is needed to take it back may be missing in the answer; then it can only be said that it cannot be.
        let back = self.request.rollback.as_ref().map(|rollback| rollback.template());
        let beside = Beside { key: Some(&key), kept: kept.clone() };
        let can_go_back =
            back.is_some_and(|back| self.file.filled((self.request, &back), hold.action.arguments(), &beside).is_ok());
        let after = can_go_back.then(|| print("applied", hold.id));
        let receipt = answer::receipt(&answer.status.to_string(), &self.host(), &kept);
        Ok(Performed { receipt, result: shown, after, undo_until: None })
    }

    pub async fn find(&self, hold: &Hold) -> Found {
        let Some(lookup) = &self.request.lookup else {
            // Made again with the same key, or to the same end: the service takes it once.
            return if self.file.is_repeatable() { Found::Absent } else { Found::Unknown };
        };
        let key = key_of(hold.id);
        let beside = Beside { key: Some(&key), kept: Map::new() };
        let answer = match self.send(&lookup.template(), (&hold.action, &beside)).await {
            Ok(answer) if Found::is_no_time(answer.status) => return Found::NotLooked,
            Ok(answer) => answer,
            Err(trouble) => return Found::not_given(&refusal_of(trouble)),
        };
        let Ok((shown, value)) = self.shown(&answer, None).await else { return Found::Unknown };
        let is_there = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            Value::Bool(true) | Value::Number(_) => true,
        };
        let applied = |shown| found_there("200", &self.host(), shown);
        match (answer.status, lookup.applied.as_deref()) {
            (404, _) => Found::Absent,
            (200..=299, Some(place)) if value.pointer(place).is_some_and(is_there) => applied(shown),
            // An answer that could not be read says nothing.
            (200..=299, Some(_)) if value.is_null() => Found::Unknown,
            (200..=299, Some(_)) => Found::Absent,
            (200..=299, None) => applied(shown),
            _ => Found::Unknown,
        }
    }

    pub async fn take_back(&self, permit: Permit, done: &Hold, before: &[u8]) -> Result<Performed, Trouble> {
        let impossible = || Trouble::refused(Code::RollbackNotPossible);
        let template: RequestTemplate = serde_json::from_slice(before).map_err(|_| impossible())?;
        let HoldState::Done { receipt, .. } = &done.state else { return Err(impossible()) };
        // The key is that of the write that takes back, so that the service tells the two apart.
        let key = key_of(permit.hold());
        let beside = Beside { key: Some(&key), kept: answer::kept_in(receipt) };
        let answer = self.send(&template, (&done.action, &beside)).await?;
        answer::outcome_of(answer.status)?;
        let (shown, _) = self.shown(&answer, None).await.unwrap_or_default();
        let receipt = answer::receipt(&answer.status.to_string(), &self.host(), &Map::new());
        Ok(Performed { receipt, result: shown, after: None, undo_until: None })
    }
}

/// A write that was found. What its answer would have told is lost, so that it cannot be taken back.
pub(super) fn found_there(how: &str, place: &str, shown: Value) -> Found {
    let receipt = answer::receipt(how, place, &Map::new());
    Found::Applied(Performed { receipt, result: shown, after: None, undo_until: None })
}

fn refusal_of(trouble: Trouble) -> Refusal {
    match trouble {
        Trouble::NotDone(no) | Trouble::Refused(no) => no,
        Trouble::Unclear | Trouble::UnclearSaying(_) => Refusal::new(Code::EgressNoAnswer),
    }
}
