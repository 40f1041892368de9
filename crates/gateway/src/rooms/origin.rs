//! Origin: where the targets of a call come from.
//!
//! Takes `CheckedCall`, gives `TracedCall`: each target of a write is `asked` (in the user's task), `known` (configured, or
//! approved before for the same family of capability and role of argument), `seen` (in outside text that the session
//! was shown) or `new`. Promise: no model and no guess; a target is compared as a whole; outside text can make a target
//! `seen`, never more.

use sluice_core::Action;
use sluice_core::capability::Effect;
use sluice_core::policy::TargetOrigin;
use sluice_core::target::{CallTarget, CapabilityFamily, TextValues, TracedTarget, of_capability, of_unknown};
use sluice_services::intake::default_session_id;
use sluice_services::{CallError, ReadSource};
use sluice_store::Session;

use super::schema::CheckedCall;
use crate::Gateway;

/// A call with the origin of its targets.
#[derive(Debug)]
pub struct TracedCall {
    checked: CheckedCall,
    targets: Vec<TracedTarget>,
    traced: bool,
}

/// Finds the origin of a call's targets. Targets of a read that leaves the machine are treated like those of a write,
/// because a name can carry data out. Targets of a local read are traced only if a rule needs it.
///
/// # Errors
/// When the session's list of seen targets cannot be read.
pub(crate) async fn trace(gw: &Gateway, checked: CheckedCall) -> Result<TracedCall, CallError> {
    let traced = match checked.effect() {
        Effect::Write => true,
        Effect::Read => {
            gw.services.read_source(checked.service(), checked.action().capability()) == Some(ReadSource::Outside)
        }
    };
    let targets = match traced {
        true => of(gw, checked.action(), checked.known().session()).await?,
        false => Vec::new(),
    };
    Ok(TracedCall { checked, targets, traced })
}

/// The targets of an action, each with its origin.
///
/// # Errors
/// When the session's list of seen targets cannot be read.
pub async fn of(gw: &Gateway, action: &Action, session: Option<&Session>) -> Result<Vec<TracedTarget>, CallError> {
    let (family, found) = {
        let known = gw.catalogue.known();
        let spec = known.get(action.capability());
        let family = CapabilityFamily::of(action.capability(), spec, action.arguments());
        let found = match spec {
            Some(spec) => of_capability(spec, action.arguments()),
            None => of_unknown(action.arguments()),
        };
        (family, found)
    };
    trace_all(gw, action, session, (family.as_ref(), found)).await
}

async fn trace_all(
    gw: &Gateway,
    action: &Action,
    session: Option<&Session>,
    (family, found): (Option<&CapabilityFamily>, Vec<CallTarget>),
) -> Result<Vec<TracedTarget>, CallError> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let agent = action.agent();
    let task = session.and_then(|session| session.task.as_deref()).map(TextValues::new);
    let mut origins: Vec<Option<(TargetOrigin, Option<String>)>> = found
        .iter()
        .map(|target| {
            let asked = task.as_ref().is_some_and(|task| task.contains_target(target));
            let configured = || is_configured(gw, action, target);
            if asked { Some((TargetOrigin::Asked, None)) } else { configured().then_some((TargetOrigin::Known, None)) }
        })
        .collect();
    if origins.iter().any(Option::is_none) {
        let open = || found.iter().zip(&origins).filter(|(_, origin)| origin.is_none());
        let prints: Vec<String> = open().filter_map(|(target, _)| target.fingerprint(agent, family)).collect();
        let approved = gw.store.known_targets(agent.clone(), prints).await?;
        let id = session.map_or_else(|| default_session_id(agent), |session| session.id);
        let observed = gw.store.session_observations(id).await?;
        for (target, origin) in found.iter().zip(&mut origins).filter(|(_, origin)| origin.is_none()) {
            let print = target.fingerprint(agent, family);
            let met = || observed.iter().find(|(_, met)| met.has(target, id.bits())).map(|(source, _)| source.clone());
            *origin = Some(match print {
                Some(print) if approved.contains(&print) => (TargetOrigin::Known, None),
                _ => met().map_or((TargetOrigin::New, None), |source| (TargetOrigin::Seen, Some(source))),
            });
        }
    }
    let traced = found
        .iter()
        .zip(origins)
        .map(|(target, origin)| target.trace(agent, family, origin.unwrap_or((TargetOrigin::New, None))));
    Ok(traced.collect())
}

/// Whether an operator configured the target: as a known target, or as a folder that is open to the agent.
fn is_configured(gw: &Gateway, action: &Action, target: &CallTarget) -> bool {
    if gw.config.sessions.known.iter().any(|known| target.matches_written(known.as_str())) {
        return true;
    }
    let files = action.capability().as_str().starts_with("filesystem.");
    files && gw.config.filesystem.roots.iter().any(|root| target.matches_written(&format!("{}/", root.path.display())))
}

impl TracedCall {
    pub(crate) fn checked(&self) -> &CheckedCall {
        &self.checked
    }
    pub(crate) fn targets(&self) -> &[TracedTarget] {
        &self.targets
    }
    /// Whether the targets were traced.
    pub(crate) fn is_traced(&self) -> bool {
        self.traced
    }
    pub(crate) fn into_parts(self) -> (CheckedCall, Vec<TracedTarget>) {
        (self.checked, self.targets)
    }
}
