//! Origin: where the targets of a call come from.
//!
//! Takes `Checked`, gives `Sourced`: each target of a write is `asked` (in the user's task), `known` (configured, or
//! approved before for the same family of capability and role of argument), `seen` (in outside text the session was
//! shown) or `new`. Promise: no model and no guess; a target is compared whole; what outside text says can make a target
//! `seen`, never more.

use sluice_core::Action;
use sluice_core::capability::Effect;
use sluice_core::policy::Origin;
use sluice_core::target::{Family, Target, Text, Traced, of_capability, of_unknown};
use sluice_store::Session;

use super::schema::Checked;
use crate::intake::nameless;
use crate::services::ReadSource;
use crate::{Gateway, No};

/// A call of which it is known where its targets come from.
#[derive(Debug)]
pub struct Sourced {
    checked: Checked,
    targets: Vec<Traced>,
    traced: bool,
}

/// Looks where the targets of a call come from. Those of a read that leaves the machine count as those of a write: what
/// it names can carry something out. Those of a read that stays here are looked at only if a rule asks.
///
/// # Errors
/// When what the session was shown cannot be read.
pub(crate) async fn trace(gw: &Gateway, checked: Checked) -> Result<Sourced, No> {
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
    Ok(Sourced { checked, targets, traced })
}

/// The targets of an action, each with its origin.
///
/// # Errors
/// When what the session was shown cannot be read.
pub async fn of(gw: &Gateway, action: &Action, session: Option<&Session>) -> Result<Vec<Traced>, No> {
    let (family, found) = {
        let known = gw.catalogue.known();
        let spec = known.get(action.capability());
        let family = Family::of(action.capability(), spec, action.arguments());
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
    (family, found): (Option<&Family>, Vec<Target>),
) -> Result<Vec<Traced>, No> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let agent = action.agent();
    let task = session.and_then(|session| session.task.as_deref()).map(Text::new);
    let mut origins: Vec<Option<(Origin, Option<String>)>> = found
        .iter()
        .map(|target| {
            let asked = task.as_ref().is_some_and(|task| task.holds(target));
            let configured = || is_configured(gw, action, target);
            if asked { Some((Origin::Asked, None)) } else { configured().then_some((Origin::Known, None)) }
        })
        .collect();
    if origins.iter().any(Option::is_none) {
        let open = || found.iter().zip(&origins).filter(|(_, origin)| origin.is_none());
        let prints: Vec<String> = open().filter_map(|(target, _)| target.print(agent, family)).collect();
        let approved = gw.store.known_targets(agent.clone(), prints).await?;
        let id = session.map_or_else(|| nameless(agent), |session| session.id);
        let observed = gw.store.observed(id).await?;
        for (target, origin) in found.iter().zip(&mut origins).filter(|(_, origin)| origin.is_none()) {
            let print = target.print(agent, family);
            let met = || observed.iter().find(|(_, met)| met.has(target, id.bits())).map(|(source, _)| source.clone());
            *origin = Some(match print {
                Some(print) if approved.contains(&print) => (Origin::Known, None),
                _ => met().map_or((Origin::New, None), |source| (Origin::Seen, Some(source))),
            });
        }
    }
    let traced = found
        .iter()
        .zip(origins)
        .map(|(target, origin)| target.traced(agent, family, origin.unwrap_or((Origin::New, None))));
    Ok(traced.collect())
}

/// Whether an operator wrote it down: as a known target, or as a folder that is open to the agent.
fn is_configured(gw: &Gateway, action: &Action, target: &Target) -> bool {
    if gw.config.sessions.known.iter().any(|known| target.is(known.as_str())) {
        return true;
    }
    let files = action.capability().as_str().starts_with("filesystem.");
    files && gw.config.filesystem.roots.iter().any(|root| target.is(&format!("{}/", root.path.display())))
}

impl Sourced {
    pub(crate) fn checked(&self) -> &Checked {
        &self.checked
    }
    pub(crate) fn targets(&self) -> &[Traced] {
        &self.targets
    }
    /// Whether its targets were looked at.
    pub(crate) fn is_traced(&self) -> bool {
        self.traced
    }
    pub(crate) fn into_parts(self) -> (Checked, Vec<Traced>) {
        (self.checked, self.targets)
    }
}
