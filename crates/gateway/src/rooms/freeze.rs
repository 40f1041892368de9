//! Freeze: while a scope is frozen, nothing in it is allowed and nothing in it leaves the machine.
//!
//! Takes `ApprovalCheckedCall`, gives `UnfrozenCall`, which reads, checks and holds take. Promise: once a freeze has returned, on any
//! node, no read that leaves the machine is started, no check is answered as allowed and no write is admitted in its
//! scope. Reads of the gateway's own state, of opened folders and of local replicas continue.

use sluice_core::capability::Effect;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::{AgentName, ServiceName};
use sluice_services::{CallError, ReadSource, Service};
use sluice_store::{Store, StoreError};

use super::approval::ApprovalCheckedCall;
use crate::Gateway;

/// The kind of a call's effect, for freezes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezeEffectKind {
    /// A read of the gateway's own state or of an opened folder.
    LocalRead,
    /// A read of the local replica of a connected service.
    ReplicaRead,
    /// A read that leaves the machine, or passes its arguments to a third-party program.
    OutsideRead,
    /// A write.
    Write,
    /// A check whether a local read would be allowed.
    CheckedLocalRead,
    /// A check whether any other known call would be allowed.
    Check,
    /// A check whether the caller may use a tool of its own.
    Custom,
}

impl FreezeEffectKind {
    /// All kinds. A kind that is missing here is also missing in the match of [`Self::is_allowed_while_frozen`].
    pub const ALL: [Self; 7] = [
        Self::LocalRead,
        Self::ReplicaRead,
        Self::OutsideRead,
        Self::Write,
        Self::CheckedLocalRead,
        Self::Check,
        Self::Custom,
    ];

    /// Whether a call of this kind continues while its scope is frozen.
    #[must_use]
    pub const fn is_allowed_while_frozen(self) -> bool {
        match self {
            Self::LocalRead | Self::ReplicaRead | Self::CheckedLocalRead => true,
            Self::OutsideRead | Self::Write | Self::Check | Self::Custom => false,
        }
    }
}

/// A call that no freeze covers.
#[derive(Debug)]
pub struct UnfrozenCall {
    asked: ApprovalCheckedCall,
    kind: FreezeEffectKind,
}

/// Refuses a call that is frozen.
///
/// # Errors
/// The freeze that covers the call, or the error from reading the freezes.
pub(crate) async fn stop(gw: &Gateway, asked: ApprovalCheckedCall) -> Result<UnfrozenCall, CallError> {
    let kind = kind_of(gw, &asked);
    match kind {
        FreezeEffectKind::LocalRead | FreezeEffectKind::ReplicaRead | FreezeEffectKind::CheckedLocalRead => {}
        // Read from the store each time: a freeze of another node applies from the moment it returned there.
        FreezeEffectKind::OutsideRead => {
            let checked = asked.checked();
            let free = gw.store.refuse_if_frozen(checked.known().agent().clone(), checked.service().clone()).await;
            match free {
                // A connection that is paused by itself reports that when it is asked.
                Ok(()) | Err(StoreError::Braked { .. }) => {}
                Err(frozen) => return Err(frozen.into()),
            }
        }
        FreezeEffectKind::Check | FreezeEffectKind::Custom => {
            let checked = asked.checked();
            refuse(&gw.store, checked.known().agent(), checked.service()).await?;
        }
        // The transaction that admits a write checks for freezes itself: nothing can come between that check and the
        // entry.
        FreezeEffectKind::Write => {}
    }
    Ok(UnfrozenCall { asked, kind })
}

/// The effect kind of a call.
fn kind_of(gw: &Gateway, asked: &ApprovalCheckedCall) -> FreezeEffectKind {
    let checked = asked.checked();
    let capability = checked.action().capability();
    if capability.as_str().starts_with("custom:") {
        return FreezeEffectKind::Custom;
    }
    let source = match checked.effect() {
        Effect::Write => None,
        // A read that no service here answers counts as an outside read.
        Effect::Read => gw.services.read_source(checked.service(), capability),
    };
    match (asked.only_checks(), checked.effect(), source) {
        (true, Effect::Read, Some(ReadSource::OwnState | ReadSource::Replica)) => FreezeEffectKind::CheckedLocalRead,
        (true, _, _) => FreezeEffectKind::Check,
        (false, Effect::Write, _) => FreezeEffectKind::Write,
        (false, Effect::Read, Some(ReadSource::OwnState)) => FreezeEffectKind::LocalRead,
        (false, Effect::Read, Some(ReadSource::Replica)) => FreezeEffectKind::ReplicaRead,
        (false, Effect::Read, Some(ReadSource::Outside) | None) => FreezeEffectKind::OutsideRead,
    }
}

/// Refuses calls of this agent at this service while a freeze covers them.
///
/// # Errors
/// The freeze, with the operator's text, or the error from reading the freezes.
pub async fn refuse(store: &Store, agent: &AgentName, service: &ServiceName) -> Result<(), CallError> {
    Ok(store.refuse_if_frozen(agent.clone(), service.clone()).await?)
}

/// Whether a freeze keeps work for a write from leaving the machine: looking at its object, preparing it, looking it
/// up. A service that stays on this machine is not affected.
///
/// # Errors
/// When the freezes cannot be read.
pub(crate) async fn is_blocked_by_freeze(gw: &Gateway, hold: &Hold, service: &dyn Service) -> Result<bool, CallError> {
    if service.reads_from(hold.action.capability()) == ReadSource::OwnState {
        return Ok(false);
    }
    match gw.store.refuse_if_frozen(hold.agent().clone(), hold.service.clone()).await {
        Ok(()) => Ok(false),
        Err(StoreError::Frozen { .. }) => Ok(true),
        // A connection that is paused by itself reports that when it is asked.
        Err(StoreError::Braked { .. }) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// Refuses, while a freeze covers it, to allow a caller to carry out its own action, even if a person has approved it
/// or is about to.
///
/// # Errors
/// The freeze, with the operator's text, or the error from reading the freezes.
pub(crate) async fn refuse_if_frozen(store: &Store, hold: &Hold) -> Result<(), CallError> {
    if !sluice_services::is_elsewhere(&hold.action) {
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

impl UnfrozenCall {
    pub(crate) fn asked(&self) -> &ApprovalCheckedCall {
        &self.asked
    }

    /// The service that must not be frozen when the answer is recorded; nothing for a call that continues during a
    /// freeze.
    pub(crate) fn unless_frozen(&self) -> Option<ServiceName> {
        (!self.kind.is_allowed_while_frozen()).then(|| self.asked.checked().service().clone())
    }

    pub(crate) fn into_asked(self) -> ApprovalCheckedCall {
        self.asked
    }
}
