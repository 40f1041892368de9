//! Freeze: while a scope is frozen, nothing of it is allowed and nothing of it leaves the machine.
//!
//! Takes `Asked`, gives `Unfrozen`, which is what reads, checks and holds take. Promise: once a freeze has returned, on
//! whichever node, no read that leaves the machine is started, no check is answered as allowed and no write is admitted
//! in its scope. Reads of the gateway's own state, of opened folders and of local copies go on.

use sluice_core::capability::Effect;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::{AgentName, ServiceName};
use sluice_store::{Store, StoreError};

use super::approval::Asked;
use crate::services::{self, ReadSource, Service};
use crate::{Gateway, No};

/// What a call would do, as far as a freeze is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectKind {
    /// A read of the gateway's own state or of an opened folder.
    LocalRead,
    /// A read of the local copy of a connected service.
    ReplicaRead,
    /// A read that leaves the machine, or hands its arguments to a program of a third party.
    OutsideRead,
    /// A write.
    Write,
    /// A question whether a local read would be allowed.
    CheckedLocalRead,
    /// A question whether anything else that the gateway knows would be allowed.
    Check,
    /// A question whether the caller may use a tool of its own.
    Custom,
}

impl EffectKind {
    /// All of them. A kind that is missing here is missing in the match of [`Self::goes_on`] as well.
    pub const ALL: [Self; 7] = [
        Self::LocalRead,
        Self::ReplicaRead,
        Self::OutsideRead,
        Self::Write,
        Self::CheckedLocalRead,
        Self::Check,
        Self::Custom,
    ];

    /// Whether it goes on while its scope is frozen.
    #[must_use]
    pub const fn goes_on(self) -> bool {
        match self {
            Self::LocalRead | Self::ReplicaRead | Self::CheckedLocalRead => true,
            Self::OutsideRead | Self::Write | Self::Check | Self::Custom => false,
        }
    }
}

/// A call that no freeze stops.
#[derive(Debug)]
pub struct Unfrozen {
    asked: Asked,
    kind: EffectKind,
}

/// Refuses what is frozen.
///
/// # Errors
/// The freeze that covers the call, or why the freezes cannot be read.
pub(crate) async fn stop(gw: &Gateway, asked: Asked) -> Result<Unfrozen, No> {
    let kind = kind_of(gw, &asked);
    match kind {
        EffectKind::LocalRead | EffectKind::ReplicaRead | EffectKind::CheckedLocalRead => {}
        // Read from the store each time: a freeze of another node counts from the moment it returned there.
        EffectKind::OutsideRead => {
            let checked = asked.checked();
            let free = gw.store.refuse_if_frozen(checked.known().agent().clone(), checked.service().clone()).await;
            match free {
                // A connection that stands still by itself says so where it is asked.
                Ok(()) | Err(StoreError::Braked { .. }) => {}
                Err(frozen) => return Err(frozen.into()),
            }
        }
        EffectKind::Check | EffectKind::Custom => {
            let checked = asked.checked();
            refuse(&gw.store, checked.known().agent(), checked.service()).await?;
        }
        // The transaction that admits a write looks by itself: nothing can come between that look and the record.
        EffectKind::Write => {}
    }
    Ok(Unfrozen { asked, kind })
}

/// What a call would do.
fn kind_of(gw: &Gateway, asked: &Asked) -> EffectKind {
    let checked = asked.checked();
    let capability = checked.action().capability();
    if capability.as_str().starts_with("custom:") {
        return EffectKind::Custom;
    }
    let source = match checked.effect() {
        Effect::Write => None,
        // A read that nothing here answers stays out of reach: it is none of ours.
        Effect::Read => gw.services.read_source(checked.service(), capability),
    };
    match (asked.only_checks(), checked.effect(), source) {
        (true, Effect::Read, Some(ReadSource::OwnState | ReadSource::Replica)) => EffectKind::CheckedLocalRead,
        (true, _, _) => EffectKind::Check,
        (false, Effect::Write, _) => EffectKind::Write,
        (false, Effect::Read, Some(ReadSource::OwnState)) => EffectKind::LocalRead,
        (false, Effect::Read, Some(ReadSource::Replica)) => EffectKind::ReplicaRead,
        (false, Effect::Read, Some(ReadSource::Outside) | None) => EffectKind::OutsideRead,
    }
}

/// Refuses what this agent does at this service while it is frozen.
///
/// # Errors
/// The freeze, in the operator's words, or why the freezes cannot be read.
pub(crate) async fn refuse(store: &Store, agent: &AgentName, service: &ServiceName) -> Result<(), No> {
    Ok(store.refuse_if_frozen(agent.clone(), service.clone()).await?)
}

/// Refuses to leave the machine on behalf of a write while it is frozen: looking at its object, preparing it, looking it
/// up. A service that stays here is free to.
///
/// # Errors
/// When the freezes cannot be read.
pub(crate) async fn keeps_in(gw: &Gateway, hold: &Hold, service: &dyn Service) -> Result<bool, No> {
    if service.reads_from(hold.action.capability()) == ReadSource::OwnState {
        return Ok(false);
    }
    match gw.store.refuse_if_frozen(hold.agent().clone(), hold.service.clone()).await {
        Ok(()) => Ok(false),
        Err(StoreError::Frozen { .. }) => Ok(true),
        // A connection that stands still by itself says so where it is asked.
        Err(StoreError::Braked { .. }) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// Refuses to tell a caller that carries its action out itself anything but a no while it is frozen, whether a person has
/// allowed it before or is about to.
///
/// # Errors
/// The freeze, in the operator's words, or why the freezes cannot be read.
pub(crate) async fn hold_back(store: &Store, hold: &Hold) -> Result<(), No> {
    if !services::is_elsewhere(&hold.action) {
        return Ok(());
    }
    match hold.state {
        HoldState::Done { .. }
        | HoldState::AwaitingApproval { .. }
        | HoldState::Held { .. }
        | HoldState::Ready { .. }
        | HoldState::Executing { .. }
        | HoldState::InDoubt { .. } => refuse(store, hold.agent(), &hold.service).await,
        HoldState::NeedsHuman { .. }
        | HoldState::Stale { .. }
        | HoldState::Cancelled { .. }
        | HoldState::Denied { .. }
        | HoldState::Expired { .. }
        | HoldState::Dead { .. }
        | HoldState::Discarded { .. }
        | HoldState::Blocked { .. } => Ok(()),
    }
}

impl Unfrozen {
    pub(crate) fn asked(&self) -> &Asked {
        &self.asked
    }

    /// The service whose freeze must not be in force when the answer is recorded; nothing for what goes on under one.
    pub(crate) fn unless_frozen(&self) -> Option<ServiceName> {
        (!self.kind.goes_on()).then(|| self.asked.checked().service().clone())
    }

    pub(crate) fn into_asked(self) -> Asked {
        self.asked
    }
}
