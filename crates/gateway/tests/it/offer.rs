//! Services that come and go while the gate is open.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_core::capability::{Capability, Catalogue};
use sluice_core::hold::{Hold, Permit};
use sluice_core::refusal::Code;
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{BoxedFuture, CapabilityName, ServiceName};
use sluice_gateway::corridor::CallOutcome;
use sluice_services::{CompletedWrite, LookupOutcome, PreparedWrite, ReadSource, Service, ServiceRead, WriteError};

use crate::test_gateway::{TestGateway, TestGatewayPlan};

/// Answers every read with what it was asked.
struct EchoTestService;

impl Service for EchoTestService {
    fn offers(&self, capability: &CapabilityName) -> bool {
        capability.as_str().starts_with("parrot.")
    }
    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }
    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, sluice_core::refusal::Refusal>> {
        Box::pin(async { Ok(Value::Object(ask.action.arguments().clone())) })
    }
    fn prepare<'a>(&'a self, _: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        Box::pin(async { Ok(PreparedWrite::default()) })
    }
    fn perform<'a>(
        &'a self,
        _: Permit,
        _: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async { Err(WriteError::Unclear) })
    }
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(async { LookupOutcome::Unknown })
    }
    fn current_fingerprint<'a>(
        &'a self,
        _: &'a Hold,
        _: &'a [u8],
    ) -> BoxedFuture<'a, Result<ObjectFingerprint, WriteError>> {
        Box::pin(async { Err(WriteError::Unclear) })
    }
    fn undo<'a>(&'a self, _: Permit, _: &'a Hold, _: &'a [u8]) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async { Err(WriteError::Unclear) })
    }
    fn discard_undo_data<'a>(&'a self, _: &'a [u8]) -> BoxedFuture<'a, ()> {
        Box::pin(async {})
    }
}

fn parrot() -> ServiceName {
    ServiceName::new("parrot").unwrap()
}

fn capabilities(text: &str) -> Vec<Capability> {
    Catalogue::from_yaml(text).unwrap().iter().cloned().collect()
}

const SAY: &str = "- {name: parrot.say, effect: read, summary: Says it., params: [{name: word, kind: text}]}";

#[tokio::test]
async fn a_service_can_come_and_go_and_the_rules_know_it_at_once() {
    let agent = "rules:\n  - {capability: parrot.say, conditions: {word_in: [hush]}, tier: blocked}\n";
    let house = TestGateway::new(TestGatewayPlan { agent: agent.into(), ..TestGatewayPlan::default() }).await;
    let no = house.call("parrot.say", json!({"word": "hello"})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::SchemaUnknownCapability);
    house.gw.offer(parrot(), Arc::new(EchoTestService), capabilities(SAY)).await.unwrap();
    let answer = house.call("parrot.say", json!({"word": "hello"})).await.unwrap();
    let CallOutcome::Done { result, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(result, json!({"word": "hello"}));
    let no = house.call("parrot.say", json!({"word": "hush"})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::PolicyBlocked);
    assert!(house.gw.catalogue.offered().iter().any(|spec| spec.name.as_str() == "parrot.say"));
    assert!(house.gw.withdraw(&parrot()).await);
    let no = house.call("parrot.say", json!({"word": "hello"})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::GatewayUnsupported);
    assert!(!house.gw.withdraw(&parrot()).await);
}

#[tokio::test]
async fn a_name_that_is_taken_changes_nothing() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let thief = "- {name: system.time, service: parrot, effect: read, summary: Lies.}";
    assert!(house.gw.offer(parrot(), Arc::new(EchoTestService), capabilities(thief)).await.is_err());
    assert!(matches!(house.call("system.time", json!({})).await.unwrap(), CallOutcome::Done { .. }));
    let stranger = "- {name: cat.say, effect: read, summary: Meows.}";
    assert!(house.gw.offer(parrot(), Arc::new(EchoTestService), capabilities(stranger)).await.is_err());
    assert_eq!(house.call("parrot.say", json!({})).await.unwrap_err().refusal.code(), Code::SchemaUnknownCapability);
}

#[tokio::test]
async fn what_a_capability_says_of_itself_only_makes_the_default_stricter() {
    let careful = "- {name: parrot.say, effect: read, summary: Says it., usual: approval_required}\n\
                   - {name: parrot.sing, effect: read, summary: Sings., usual: approval_required}";
    let agent = "rules:\n  - {capability: parrot.sing, tier: autonomous}\n";
    let house = TestGateway::new(TestGatewayPlan { agent: agent.into(), ..TestGatewayPlan::default() }).await;
    house.gw.offer(parrot(), Arc::new(EchoTestService), capabilities(careful)).await.unwrap();
    let answer = house.call("parrot.say", json!({})).await.unwrap();
    assert!(matches!(answer, CallOutcome::Awaiting { .. }), "{answer:?}");
    assert!(matches!(house.call("parrot.sing", json!({})).await.unwrap(), CallOutcome::Done { .. }));
}
