//! The network service: an agent's requests to hosts that an operator opened.
//!
//! Carries out `network.http_request` and `network.credentialed_request`. A request uses the connection that is open to
//! the agent and admits it; egress adds the credential, which is never seen here. Promise: a request that may have left
//! and got no answer has an uncertain outcome and is never repeated; the answer passes the intake and names its source.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, Method};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_config::network::{CredentialPlacement, EgressConnection, EgressUrl, METHODS, is_read};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::{SecretName, SessionId};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, Actor, BoxedFuture, CapabilityName, Clock, Millis};
use sluice_egress::{Egress, EgressError, EgressRequest, EgressResponse};

use super::{CompletedWrite, LookupOutcome, ReadSource, Service, ServiceRead, WriteError};
use crate::intake::{CleanedContent, ContentRecipient, IncomingItem, Intake, IntakeOutcome};
use crate::value::put;

/// The longest text that an agent is given, in bytes.
const LONGEST: usize = 256 * 1024;
/// The longest time a request may take, in seconds: within the deadline of a write.
const SLOWEST: u64 = 45;

/// Requests of agents.
pub struct NetworkService {
    egress: Arc<Egress>,
    intake: Arc<Intake>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for NetworkService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("egress", &self.egress).finish_non_exhaustive()
    }
}

/// A request of an agent.
struct NetworkCall {
    request: EgressRequest,
    target: EgressUrl,
    credential: Option<(SecretName, CredentialPlacement)>,
}

impl NetworkService {
    /// The service over this egress and this intake.
    #[must_use]
    pub fn new(egress: Arc<Egress>, intake: Arc<Intake>, clock: Arc<dyn Clock>) -> Self {
        Self { egress, intake, clock }
    }

    fn route(&self, action: &Action) -> Result<(NetworkCall, Arc<EgressConnection>), Refusal> {
        let wanted = NetworkCall::read(action)?;
        let route = self.egress.route(action.agent(), &wanted.request.method, &wanted.target);
        Ok((wanted, route.map_err(EgressError::refusal)?))
    }

    async fn make(&self, hold: &Hold, permit: Permit) -> Result<CompletedWrite, WriteError> {
        // The permit is spent by this one request, whatever the result.
        drop(permit);
        let (wanted, connection) = self.route(&hold.action).map_err(WriteError::Refused)?;
        let NetworkCall { request, target, credential } = wanted;
        let (read, asked) = (is_read(&request.method), request.url.clone());
        let started = self.clock.since_boot();
        let capability = hold.action.capability().as_str();
        let by = Actor::Agent(hold.agent().clone());
        let answered = match credential {
            Some(named) => self.egress.request_with(&connection, Some(named), (capability, by), request).await,
            None => self.egress.request(&connection, capability, by, request).await,
        };
        let answer = self.without_secrets(answered.map_err(|no| WriteError::from_egress(no, read))?);
        let took = self.clock.since_boot().as_millis().saturating_sub(started.as_millis());
        let receipt = format!("{} {}", answer.status, target.host());
        let result = self.shown(hold, &answer, (&target, &asked), took).await;
        Ok(CompletedWrite { receipt, result, after: None, undo_until: None })
    }

    /// Removes secrets of the vault from the headers and address of an answer, whichever request carried them. The body
    /// passes the intake, which does the same.
    fn without_secrets(&self, mut answer: EgressResponse) -> EgressResponse {
        let secrets = self.intake.secrets();
        let texts = answer.headers.iter_mut().flat_map(|(name, value)| [name, value]).chain([&mut answer.url]);
        for text in texts {
            if let Some(clean) = secrets.scrub_text(text) {
                *text = clean;
            }
        }
        answer
    }

    /// The part of an answer that an agent is given: only content that passed the intake, with its source. The request
    /// was made in any case, so an error here does not undo it.
    async fn shown(
        &self,
        hold: &Hold,
        answer: &EgressResponse,
        (target, asked): (&EgressUrl, &str),
        took: u64,
    ) -> Value {
        let mut shown = json!({
            "status_code": answer.status,
            "headers": {},
            "body": null,
            "body_bytes": answer.body.len(),
            "body_sha256": sluice_core::hex::encode(&Sha256::digest(&answer.body)),
            "truncated": false,
            "duration_ms": took,
            "url": asked,
            "provenance": {"origin": "outside", "host": target.host(), "trusted": false},
        });
        let mut lines: Vec<String> = answer.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        // The server chooses the address of a redirect, so text in it is screened too.
        if answer.url != asked {
            lines.push(format!("url: {}", answer.url));
        }
        let kind = answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let item = IncomingItem {
            bytes: answer.body.to_vec(),
            declared: kind.map(|(_, value)| value.clone()),
            service: hold.service.clone(),
            source: target.host().to_owned(),
            author: target.host().to_owned(),
            at: self.clock.now(),
            beside: Some(lines.join("\n")),
            reader: Some(ContentRecipient::of_write(hold)),
            enveloped: false,
        };
        match self.intake.take_in(&item).await {
            Ok(IntakeOutcome::Clean(cleaned)) => {
                let text = cleaned.text.as_str();
                let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                put(&mut shown, "body", text.get(..end).unwrap_or_default());
                put(&mut shown, "truncated", end < text.len());
                if let (Some(note), Some(provenance)) = (charset_note(&cleaned), shown.get_mut("provenance")) {
                    put(provenance, "charset", note);
                }
                if let Some(finding) = cleaned.withheld {
                    put(&mut shown, "withheld", json!({"finding_id": finding}));
                } else {
                    let headers: serde_json::Map<String, Value> =
                        answer.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
                    put(&mut shown, "headers", headers);
                    put(&mut shown, "url", answer.url.as_str());
                }
            }
            Ok(IntakeOutcome::Refused { code }) => put(&mut shown, "body_refused", code),
            Err(no) => {
                let (host, code) = (target.host(), no.code().as_str());
                let cause = std::error::Error::source(&no).map(ToString::to_string).unwrap_or_default();
                tracing::warn!(host, code, cause, "an answer of {host} is not given: {no}");
                put(&mut shown, "body_refused", code);
            }
        }
        shown
    }
}

/// A note for the agent on how bytes were decoded as text.
fn charset_note(cleaned: &CleanedContent) -> Option<&'static str> {
    let noted = |rule: &str| cleaned.notes.iter().any(|note| note.rule == rule);
    if noted("charset.broken") {
        return Some("bytes that could not be read were replaced");
    }
    noted("charset.guessed").then_some("the character set is a guess: none was declared, and it is not UTF-8")
}

impl NetworkCall {
    fn read(action: &Action) -> Result<Self, Refusal> {
        let arguments = action.arguments();
        let wrong = |text: &str| Refusal::new(Code::SchemaWrongType).with_text(text);
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let url = text("url").unwrap_or_default().to_owned();
        let target = EgressUrl::parse(&url).map_err(|why| EgressError::Url(why).refusal())?;
        let method = text("method").unwrap_or("GET");
        let method = METHODS.into_iter().find(|known| known.as_str() == method);
        let method = method.ok_or_else(|| wrong("method is GET, HEAD, POST, PUT, PATCH or DELETE"))?;
        let mut headers = Vec::new();
        for (name, value) in arguments.get("headers").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().ok_or_else(|| wrong("a header's value is a text"))?;
            headers.push((name.clone(), value.to_owned()));
        }
        let timeout = match arguments.get("timeout").map(Value::as_u64) {
            None => None,
            Some(Some(secs @ 1..=300)) => Some(Millis::from_secs(secs.min(SLOWEST))),
            Some(_) => return Err(wrong("timeout is between 1 and 300 seconds")),
        };
        let credential = match action.capability().as_str() {
            "network.credentialed_request" => Some(named(action)?),
            _ => None,
        };
        let body = Bytes::from(text("body").unwrap_or_default().to_owned());
        let follow = arguments.get("follow_redirects").and_then(Value::as_bool).unwrap_or(true);
        Ok(Self { request: EgressRequest { method, url, headers, body, follow, timeout }, target, credential })
    }
}

/// The secret that an agent names, and its placement.
fn named(action: &Action) -> Result<(SecretName, CredentialPlacement), Refusal> {
    let arguments = action.arguments();
    let name = arguments.get("secret_name").and_then(Value::as_str).unwrap_or_default();
    let name = SecretName::new(name).map_err(|_| Refusal::new(Code::SchemaBadName))?;
    let wrong = || {
        let text = "credential_placement is {type: header or query, name, format}, where format ends with {secret}";
        Refusal::new(Code::SchemaWrongType).with_text(text)
    };
    let Some(placement) = arguments.get("credential_placement") else { return Ok((name, CredentialPlacement::Bearer)) };
    let text = |key: &str| placement.get(key).and_then(Value::as_str);
    let known =
        |(key, value): (&String, &Value)| ["type", "name", "format"].contains(&key.as_str()) && value.is_string();
    if !placement.as_object().is_some_and(|map| map.iter().all(known)) {
        return Err(wrong());
    }
    let format = text("format").unwrap_or("{secret}");
    let prefix = format.strip_suffix("{secret}").filter(|prefix| !prefix.contains("{secret}")).ok_or_else(wrong)?;
    let placement = match (text("type").unwrap_or("header"), text("name")) {
        ("header", header) => {
            let header = HeaderName::from_bytes(header.unwrap_or("authorization").as_bytes()).map_err(|_| wrong())?;
            let given = text("name").is_some() || text("format").is_some();
            let prefix = if given { prefix.to_owned() } else { "Bearer ".into() };
            CredentialPlacement::Header { name: header, prefix }
        }
        ("query", Some(pair)) if prefix.is_empty() && !pair.is_empty() => {
            CredentialPlacement::Query { name: pair.to_owned() }
        }
        _ => return Err(wrong()),
    };
    Ok((name, placement))
}

fn method_of(action: &Action) -> Method {
    let text = action.arguments().get("method").and_then(Value::as_str).unwrap_or("GET");
    METHODS.into_iter().find(|method| method.as_str() == text).unwrap_or(Method::POST)
}

impl Service for NetworkService {
    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Outside
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        ["network.http_request", "network.credentialed_request"].contains(&capability.as_str())
    }

    fn check_feasible<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> BoxedFuture<'a, Result<(), Refusal>> {
        Box::pin(std::future::ready(self.route(action).map(drop)))
    }

    /// Requests can carry data out, so none of them counts as a read.
    fn read<'a>(&'a self, _: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(std::future::ready(Err(Refusal::new(Code::GatewayUnsupported))))
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(self.make(hold, permit))
    }

    /// A read changed nothing, so it may be repeated. The outcome of any other request is unknown here.
    fn look_up<'a>(&'a self, hold: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        let read = is_read(&method_of(&hold.action));
        Box::pin(std::future::ready(if read { LookupOutcome::Absent } else { LookupOutcome::Unknown }))
    }
}
