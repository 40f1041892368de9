//! Services that come and go while the gate is open.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_core::capability::{Capability, Catalogue};
use sluice_core::hold::{Hold, Permit};
use sluice_core::refusal::Code;
use sluice_core::rollback::Fingerprint;
use sluice_core::{CapabilityName, ServiceName};
use sluice_gateway::corridor::Answer;
use sluice_gateway::services::{Ask, Found, Performed, Prepared, ReadSource, Service, Trouble, Work};

use crate::house::{House, Plan};

/// Answers every read with what it was asked.
struct Echo;

impl Service for Echo {
    fn offers(&self, capability: &CapabilityName) -> bool {
        capability.as_str().starts_with("parrot.")
    }
    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }
    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, sluice_core::refusal::Refusal>> {
        Box::pin(async { Ok(Value::Object(ask.action.arguments().clone())) })
    }
    fn prepare<'a>(&'a self, _: &'a Hold) -> Work<'a, Result<Prepared, Trouble>> {
        Box::pin(async { Ok(Prepared::default()) })
    }
    fn perform<'a>(&'a self, _: Permit, _: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async { Err(Trouble::Unclear) })
    }
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Found> {
        Box::pin(async { Found::Unknown })
    }
    fn present<'a>(&'a self, _: &'a Hold, _: &'a [u8]) -> Work<'a, Result<Fingerprint, Trouble>> {
        Box::pin(async { Err(Trouble::Unclear) })
    }
    fn undo<'a>(&'a self, _: Permit, _: &'a Hold, _: &'a [u8]) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async { Err(Trouble::Unclear) })
    }
    fn forget<'a>(&'a self, _: &'a [u8]) -> Work<'a, ()> {
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
    let house = House::new(Plan { agent: agent.into(), ..Plan::default() }).await;
    let no = house.call("parrot.say", json!({"word": "hello"})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::SchemaUnknownCapability);
    house.gw.offer(parrot(), Arc::new(Echo), capabilities(SAY)).await.unwrap();
    let answer = house.call("parrot.say", json!({"word": "hello"})).await.unwrap();
    let Answer::Done { result, .. } = answer else { panic!("{answer:?}") };
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
    let house = House::new(Plan::default()).await;
    let thief = "- {name: system.time, service: parrot, effect: read, summary: Lies.}";
    assert!(house.gw.offer(parrot(), Arc::new(Echo), capabilities(thief)).await.is_err());
    assert!(matches!(house.call("system.time", json!({})).await.unwrap(), Answer::Done { .. }));
    let stranger = "- {name: cat.say, effect: read, summary: Meows.}";
    assert!(house.gw.offer(parrot(), Arc::new(Echo), capabilities(stranger)).await.is_err());
    assert_eq!(house.call("parrot.say", json!({})).await.unwrap_err().refusal.code(), Code::SchemaUnknownCapability);
}

#[tokio::test]
async fn what_a_capability_says_of_itself_only_makes_the_default_stricter() {
    let careful = "- {name: parrot.say, effect: read, summary: Says it., usual: approval_required}\n\
                   - {name: parrot.sing, effect: read, summary: Sings., usual: approval_required}";
    let agent = "rules:\n  - {capability: parrot.sing, tier: autonomous}\n";
    let house = House::new(Plan { agent: agent.into(), ..Plan::default() }).await;
    house.gw.offer(parrot(), Arc::new(Echo), capabilities(careful)).await.unwrap();
    let answer = house.call("parrot.say", json!({})).await.unwrap();
    assert!(matches!(answer, Answer::Awaiting { .. }), "{answer:?}");
    assert!(matches!(house.call("parrot.sing", json!({})).await.unwrap(), Answer::Done { .. }));
}
