//! Schema: whether the gateway knows the call, and what exactly it would do.
//!
//! Takes `IdentifiedCall`, gives `CheckedCall` with the canonical action. Promise: from here on nothing reads the agent's original
//! text; paths are already those that will be opened, so that policy judges what happens.

use serde_json::Value;
use sluice_core::capability::{Capability, Catalogue, Effect, EffectClass, ParamKind, service_of};
use sluice_core::policy::reading::closest;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, CapabilityName, Millis, ServiceName, Tier};
use sluice_services::CallError;

use super::identity::{CallMode, IdentifiedCall};
use super::{observe, policy};
use crate::Gateway;

/// A call that is well-formed.
#[derive(Debug)]
pub struct CheckedCall {
    known: IdentifiedCall,
    action: Action,
    effect: Effect,
    class: EffectClass,
    service: ServiceName,
    object_key: Option<String>,
    delay: Millis,
    weight: u32,
}

/// Checks a call against the catalogue and freezes its action.
///
/// # Errors
/// When the capability is unknown or not offered here, or its arguments do not fit.
pub(crate) async fn check(gw: &Gateway, mut known: IdentifiedCall) -> Result<CheckedCall, CallError> {
    let name = known.wish().capability.clone();
    let only_checks = known.wish().mode == CallMode::Check;
    let arguments = known.take_arguments();
    let agent = known.agent().clone();
    if name.as_str().starts_with("custom:") {
        if !only_checks {
            let text = format!(
                "the gateway cannot carry out `{name}`; only `mode: check` is possible for tools it does not know"
            );
            return Err(CallError::with_text(Code::GatewayUnsupported, &text).for_call(known.call()));
        }
        let action = Action::custom(name.clone(), agent, arguments).map_err(|error| refuse(&error))?;
        return Ok(CheckedCall {
            known,
            action,
            effect: Effect::Write,
            class: EffectClass::Opaque,
            service: service_of(&name),
            object_key: None,
            delay: Millis::ZERO,
            weight: 1,
        });
    }
    let known_by_name = gw.catalogue.known();
    let spec = known_by_name
        .get(&name)
        .ok_or_else(|| gw.mounts.starting(&name).map_or_else(|| unknown(&known_by_name, &name), CallError::from))?;
    let account = known.wish().account.clone();
    let arguments = match settled(gw, spec, &known, arguments.clone()).await {
        Ok(arguments) => arguments,
        // If the rules block it as well, their reason is the one that is shown.
        Err(no) => return Err(blocked_instead(gw, spec, &known, arguments).await.unwrap_or(no)),
    };
    let action = Action::new(spec, agent, account, arguments).map_err(|error| refuse(&error))?;
    let action = action.with_spawn(known.spawn_options().cloned());
    let delay = gw.config.delay_for(&name, Millis::from_secs(spec.delay_s));
    Ok(CheckedCall {
        effect: spec.effect,
        class: spec.class.unwrap_or(EffectClass::Absolute),
        service: spec.service(),
        object_key: spec.object_key(action.account(), action.arguments()),
        delay: if spec.effect == Effect::Read { Millis::ZERO } else { delay },
        weight: sluice_core::batch::weigh(spec, action.arguments()),
        known,
        action,
    })
}

/// The refusal for an unknown name, with the closest known one.
fn unknown(known: &Catalogue, name: &CapabilityName) -> CallError {
    let refusal = Refusal::new(Code::SchemaUnknownCapability);
    let names = known.iter().map(|spec| spec.name.as_str());
    match closest(name.as_str(), names) {
        Some(close) => refusal.with_hint(&format!("did you mean `{close}`? list all with agent.capabilities")).into(),
        None => refusal.into(),
    }
}

/// The arguments in the form in which they are judged and carried out.
async fn settled(
    gw: &Gateway,
    spec: &Capability,
    known: &IdentifiedCall,
    arguments: Value,
) -> Result<Value, CallError> {
    let name = &spec.name;
    let service = gw.services.of(spec);
    if known.wish().mode != CallMode::Check && service.is_none() {
        // A service that is not up yet will be: its caller is not told to never ask again.
        if let Some(starting) = gw.services.starting(&spec.service()) {
            return Err(starting.into());
        }
        let text = format!("`{name}` is known, but nothing on this gateway carries it out{}", how_to_enable(name));
        return Err(CallError::with_text(Code::GatewayUnsupported, &text));
    }
    let arguments = settle_paths(gw, spec, known, arguments)?;
    let Some(service) = service else { return Ok(arguments) };
    if let Some(first) = service.before_settling(name, &arguments) {
        first.await?;
    }
    Ok(service.settle(name, arguments)?)
}

/// What an operator must configure for a capability, if only configuration is missing.
fn how_to_enable(name: &CapabilityName) -> &'static str {
    match name.as_str().split('.').next() {
        Some("git") => "; an operator can enable it: `git.enabled: true` and a folder in `filesystem.roots`",
        Some("process") => {
            "; an operator can enable it: programs in `process.programs` and a folder in `filesystem.roots`"
        }
        _ => "",
    }
}

/// The refusal of the rules for a call that cannot be made in any case, if they block it.
async fn blocked_instead(
    gw: &Gateway,
    spec: &Capability,
    known: &IdentifiedCall,
    arguments: Value,
) -> Option<CallError> {
    let account = known.wish().account.clone();
    let action = Action::new(spec, known.agent().clone(), account, arguments).ok()?;
    let action = action.with_spawn(known.spawn_options().cloned());
    let writes = spec.effect == Effect::Write;
    let opinion = policy::opinion(gw, &action, known.session(), (writes, None)).await.ok()?;
    let is_blocked = opinion.tier == Tier::Blocked && !observe::covers(gw, &action, &opinion);
    is_blocked.then(|| policy::blocked_error(gw, &action, &opinion, known.call()))
}

/// Rewrites paths to the form in which they are judged and opened.
fn settle_paths(
    gw: &Gateway,
    spec: &Capability,
    known: &IdentifiedCall,
    mut arguments: Value,
) -> Result<Value, CallError> {
    let Some(files) = gw.services.files_for(spec) else { return Ok(arguments) };
    let Value::Object(map) = &mut arguments else { return Ok(arguments) };
    for param in spec.params_of(ParamKind::Path) {
        if let Some(Value::String(path)) = map.get_mut(&param.name) {
            *path = files.normalise(known.agent(), path)?;
        }
    }
    Ok(arguments)
}

pub(super) fn refuse(error: &sluice_core::action::ActionError) -> CallError {
    let code = Code::from_code(error.code()).unwrap_or(Code::GatewayInternal);
    Refusal::new(code).with_text(&error.to_string()).into()
}

impl CheckedCall {
    pub fn known(&self) -> &IdentifiedCall {
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
    pub fn delay(&self) -> Millis {
        self.delay
    }
    pub fn weight(&self) -> u32 {
        self.weight
    }
    pub fn only_checks(&self) -> bool {
        self.known.wish().mode == CallMode::Check
    }
    pub fn into_action(self) -> (IdentifiedCall, Action) {
        (self.known, self.action)
    }
}
