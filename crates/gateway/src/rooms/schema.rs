//! Schema: whether the call is one of ours, and exactly what it would do.
//!
//! Takes `Known`, gives `Checked` with the canonical action. Promise: from here on nothing reads what the
//! agent sent; paths are already the ones that will be opened, so that policy judges what happens.

use serde_json::Value;
use sluice_core::capability::{Capability, Effect, EffectClass, ParamKind, service_of};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, ServiceName, Span};

use super::identity::{Known, Mode};
use crate::{Gateway, No};

/// A call that is well-formed.
#[derive(Debug)]
pub struct Checked {
    known: Known,
    action: Action,
    effect: Effect,
    class: EffectClass,
    service: ServiceName,
    object_key: Option<String>,
    delay: Span,
    weight: u32,
}

/// Checks a call against the catalogue and freezes its action.
///
/// # Errors
/// When the capability is unknown or not offered here, or its arguments are not what it takes.
pub(crate) async fn check(gw: &Gateway, mut known: Known) -> Result<Checked, No> {
    let name = known.wish().capability.clone();
    let only_checks = known.wish().mode == Mode::Check;
    let arguments = known.take_arguments();
    let agent = known.agent().clone();
    if name.as_str().starts_with("custom:") {
        if !only_checks {
            let text = format!(
                "the gateway cannot carry out `{name}`; only `mode: check` is possible for tools it does not know"
            );
            return Err(No::saying(Code::GatewayUnsupported, &text).about(known.call()));
        }
        let action = Action::custom(name.clone(), agent, arguments).map_err(|error| refuse(&error))?;
        return Ok(Checked {
            known,
            action,
            effect: Effect::Write,
            class: EffectClass::Opaque,
            service: service_of(&name),
            object_key: None,
            delay: Span::ZERO,
            weight: 1,
        });
    }
    let known_by_name = gw.catalogue.known();
    let spec = known_by_name.get(&name).ok_or_else(|| No::new(Code::SchemaUnknownCapability))?;
    if !only_checks && gw.services.of(spec).is_none() {
        let text = format!("`{name}` is known, but nothing on this gateway carries it out");
        return Err(No::saying(Code::GatewayUnsupported, &text));
    }
    let arguments = settle_paths(gw, spec, &known, arguments)?;
    let arguments = match gw.services.of(spec) {
        Some(service) => {
            if let Some(first) = service.before_settling(&name, &arguments) {
                first.await?;
            }
            service.settle(&name, arguments)?
        }
        None => arguments,
    };
    let account = known.wish().account.clone();
    let action = Action::new(spec, agent, account, arguments).map_err(|error| refuse(&error))?;
    let delay = gw.config.delay_for(&name, Span::from_secs(spec.delay_s));
    Ok(Checked {
        effect: spec.effect,
        class: spec.class.unwrap_or(EffectClass::Absolute),
        service: spec.service(),
        object_key: spec.object_key(action.account(), action.arguments()),
        delay: if spec.effect == Effect::Read { Span::ZERO } else { delay },
        weight: sluice_core::batch::weigh(spec, action.arguments()),
        known,
        action,
    })
}

/// Rewrites paths to the form in which they are judged and opened.
fn settle_paths(gw: &Gateway, spec: &Capability, known: &Known, mut arguments: Value) -> Result<Value, No> {
    let Some(files) = gw.services.files_for(spec) else { return Ok(arguments) };
    let Value::Object(map) = &mut arguments else { return Ok(arguments) };
    for param in spec.params_of(ParamKind::Path) {
        if let Some(Value::String(path)) = map.get_mut(&param.name) {
            *path = files.normalise(known.agent(), path)?;
        }
    }
    Ok(arguments)
}

fn refuse(error: &sluice_core::action::ActionError) -> No {
    let code = Code::from_code(error.code()).unwrap_or(Code::GatewayInternal);
    Refusal::new(code).with_text(&error.to_string()).into()
}

impl Checked {
    pub fn known(&self) -> &Known {
        &self.known
    }
    pub fn action(&self) -> &Action {
        &self.action
    }
    pub fn effect(&self) -> Effect {
        self.effect
    }
    pub fn class(&self) -> EffectClass {
        self.class
    }
    pub fn service(&self) -> &ServiceName {
        &self.service
    }
    pub fn object_key(&self) -> Option<&str> {
        self.object_key.as_deref()
    }
    pub fn delay(&self) -> Span {
        self.delay
    }
    pub fn weight(&self) -> u32 {
        self.weight
    }
    pub fn only_checks(&self) -> bool {
        self.known.wish().mode == Mode::Check
    }
    pub fn into_action(self) -> (Known, Action) {
        (self.known, self.action)
    }
}
