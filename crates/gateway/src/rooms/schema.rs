//! Schema: whether the call is one of ours, and exactly what it would do.
//!
//! Takes `Known`, gives `Checked` with the canonical action. Promise: from here on nothing reads what the
//! agent sent; paths are already the ones that will be opened, so that policy judges what happens.

use serde_json::Value;
use sluice_core::capability::{Capability, Catalogue, Effect, EffectClass, ParamKind, service_of};
use sluice_core::policy::reading::closest;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, CapabilityName, ServiceName, Span, Tier};

use super::identity::{Known, Mode};
use super::{observe, policy};
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
    let spec = known_by_name
        .get(&name)
        .ok_or_else(|| gw.mounts.starting(&name).map_or_else(|| unknown(&known_by_name, &name), No::from))?;
    let account = known.wish().account.clone();
    let arguments = match settled(gw, spec, &known, arguments.clone()).await {
        Ok(arguments) => arguments,
        // Where the rules refuse it as well, theirs is the reason that is shown.
        Err(no) => return Err(blocked_instead(gw, spec, &known, arguments).await.unwrap_or(no)),
    };
    let action = Action::new(spec, agent, account, arguments).map_err(|error| refuse(&error))?;
    let action = action.with_spawn(known.spawn_options().cloned());
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

/// The refusal for a name nobody knows, with the nearest one that is known.
fn unknown(known: &Catalogue, name: &CapabilityName) -> No {
    let refusal = Refusal::new(Code::SchemaUnknownCapability);
    let names = known.iter().map(|spec| spec.name.as_str());
    match closest(name.as_str(), names) {
        Some(close) => {
            refusal.with_hint(&format!("did you mean `{close}`? list what there is: agent.capabilities")).into()
        }
        None => refusal.into(),
    }
}

/// Arguments in the form in which they are judged and carried out.
async fn settled(gw: &Gateway, spec: &Capability, known: &Known, arguments: Value) -> Result<Value, No> {
    let name = &spec.name;
    let service = gw.services.of(spec);
    if known.wish().mode != Mode::Check && service.is_none() {
        // One that is not up yet will be: nobody is told never to ask again.
        if let Some(starting) = gw.services.starting(&spec.service()) {
            return Err(starting.into());
        }
        let text = format!("`{name}` is known, but nothing on this gateway carries it out{}", how_to_enable(name));
        return Err(No::saying(Code::GatewayUnsupported, &text));
    }
    let arguments = settle_paths(gw, spec, known, arguments)?;
    let Some(service) = service else { return Ok(arguments) };
    if let Some(first) = service.before_settling(name, &arguments) {
        first.await?;
    }
    Ok(service.settle(name, arguments)?)
}

/// What an operator configures so that a capability is carried out, where configuration is all that is missing.
fn how_to_enable(name: &CapabilityName) -> &'static str {
    match name.as_str().split('.').next() {
        Some("git") => "; an operator can switch it on: `git.enabled: true` and a folder in `filesystem.roots`",
        Some("process") => {
            "; an operator can switch it on: programs in `process.programs` and a folder in `filesystem.roots`"
        }
        _ => "",
    }
}

/// What the rules say to a call that cannot be made anyhow, if they block it.
async fn blocked_instead(gw: &Gateway, spec: &Capability, known: &Known, arguments: Value) -> Option<No> {
    let account = known.wish().account.clone();
    let action = Action::new(spec, known.agent().clone(), account, arguments).ok()?;
    let action = action.with_spawn(known.spawn_options().cloned());
    let writes = spec.effect == Effect::Write;
    let opinion = policy::opinion(gw, &action, known.session(), (writes, None)).await.ok()?;
    let is_blocked = opinion.tier == Tier::Blocked && !observe::covers(gw, &action, &opinion);
    is_blocked.then(|| policy::blocked(&action, &opinion, known.call()))
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

pub(super) fn refuse(error: &sluice_core::action::ActionError) -> No {
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
