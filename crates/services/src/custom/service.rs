//! Custom capabilities as a service behind the gate.
//!
//! Promise: a write is carried out only while its declaration is the one that was judged and approved; a write that may
//! have happened is repeated only where the declaration says that it happens once, and otherwise it is looked up or
//! left to a person.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_core::custom::{CustomCapability, CustomImplementation};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::nodes::ServiceKind;
use sluice_core::proxy::FillError;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Action, BoxedFuture, CapabilityName, HoldId, ServiceName};

use super::program::CustomProgramRunner;
use super::request::CustomRequestRunner;
use super::{CustomBackend, CustomServiceDeps, DeclaredCapability};
use crate::{CompletedWrite, LookupOutcome, PreparedWrite, ReadSource, Service, ServiceRead, WriteError};

/// All custom capabilities of a gateway.
#[derive(Debug)]
pub struct CustomService {
    declared: BTreeMap<CapabilityName, DeclaredCapability>,
    deps: CustomServiceDeps,
}

/// How one capability is carried out, with everything it needs.
enum CustomRunner<'a> {
    Request(CustomRequestRunner<'a>),
    Program(CustomProgramRunner<'a>),
}

impl CustomService {
    pub(super) fn new(declared: BTreeMap<CapabilityName, DeclaredCapability>, deps: CustomServiceDeps) -> Self {
        Self { declared, deps }
    }

    fn way(&self, name: &CapabilityName) -> Result<CustomRunner<'_>, Refusal> {
        let found = self.declared.get_key_value(name).ok_or_else(|| Refusal::new(Code::GatewayUnsupported))?;
        let (name, DeclaredCapability { file, way }) = found;
        let deps = &self.deps;
        match (&file.way, way) {
            (CustomImplementation::Request(request), CustomBackend::Request(connection)) => {
                Ok(CustomRunner::Request(CustomRequestRunner { deps, name, file, request, connection }))
            }
            (CustomImplementation::Program(own), CustomBackend::Program(reach)) => {
                Ok(CustomRunner::Program(CustomProgramRunner { deps, name, file, own, reach }))
            }
            (CustomImplementation::Request(_), CustomBackend::Program(_))
            | (CustomImplementation::Program(_), CustomBackend::Request(_)) => Err(Refusal::new(Code::GatewayInternal)),
        }
    }

    /// The declaration that an action was judged by. A different declaration carries nothing out.
    fn judged(&self, action: &Action) -> Result<CustomRunner<'_>, Refusal> {
        let name = action.capability();
        let digest = self.declared.get(name).map(|declared| declared.file.digest.as_str());
        // The part after the digest names the program's files; they are compared where they are read.
        let judged_by = action.definition().and_then(|definition| definition.split(':').next());
        if digest.is_some() && digest != judged_by {
            let text = format!("the declaration of `{name}` has changed since the call was made; make the call again");
            return Err(Refusal::new(Code::ExecuteRefusedMismatch).with_text(&text));
        }
        self.way(name)
    }

    async fn carry_out(&self, hold: &Hold, permit: Permit) -> Result<CompletedWrite, WriteError> {
        match self.judged(&hold.action).map_err(WriteError::Refused)? {
            CustomRunner::Request(way) => way.carry_out(hold, permit).await,
            CustomRunner::Program(way) => way.carry_out(hold, permit).await,
        }
    }

    async fn find(&self, hold: &Hold) -> LookupOutcome {
        match self.judged(&hold.action) {
            Ok(CustomRunner::Request(way)) => way.find(hold).await,
            Ok(CustomRunner::Program(way)) => way.find(hold).await,
            Err(_) => LookupOutcome::Unknown,
        }
    }

    /// What a rollback of a write needs, as the file says it now.
    fn prepared(&self, hold: &Hold) -> Result<PreparedWrite, WriteError> {
        let content = match self.judged(&hold.action).map_err(WriteError::Refused)? {
            CustomRunner::Request(way) => {
                way.request.rollback.as_ref().map(|rollback| serde_json::to_vec(&rollback.template()))
            }
            CustomRunner::Program(way) => {
                way.own.rollback.as_ref().map(|rollback| serde_json::to_vec(&rollback.template()))
            }
        };
        let Some(content) = content else { return Ok(PreparedWrite::default()) };
        let content = content.map_err(|_| WriteError::refused(Code::GatewayInternal))?;
        Ok(PreparedWrite { handle: None, before: Some((content, marker_fingerprint("before", hold.id))) })
    }
}

/// The idempotency key of a write: the same for each attempt, and unique to the write.
pub(super) fn key_of(hold: HoldId) -> String {
    hold.to_string()
}

pub(super) fn service_of(name: &CapabilityName) -> Result<ServiceName, Refusal> {
    CustomCapability::service_name(name.as_str()).ok_or_else(|| Refusal::new(Code::GatewayInternal))
}

pub(super) fn unfit(no: &FillError) -> Refusal {
    let code = match no {
        FillError::Unknown(_) => Code::SchemaUnknownArgument,
        FillError::Missing(_) => Code::SchemaMissingArgument,
        FillError::Shape(_) | FillError::Path(_) => Code::SchemaWrongType,
    };
    Refusal::new(code).with_text(&no.to_string())
}

/// A fingerprint for a service that shows nothing of its state: it only tells before from after.
pub(super) fn marker_fingerprint(word: &str, hold: HoldId) -> ObjectFingerprint {
    ObjectFingerprint::of(format!("{word} {hold}").as_bytes())
}

impl Service for CustomService {
    fn kind(&self) -> ServiceKind {
        ServiceKind::Custom
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        self.declared.contains_key(capability)
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Outside
    }

    fn settle(&self, capability: &CapabilityName, arguments: Value) -> Result<Value, Refusal> {
        let way = self.way(capability)?;
        if let Value::Object(given) = &arguments {
            match way {
                CustomRunner::Request(way) => way.check(given)?,
                CustomRunner::Program(way) => way.check(given)?,
            }
        }
        Ok(arguments)
    }

    fn describe_targets(&self, action: &Action) -> Vec<String> {
        action.found().to_vec()
    }

    fn check_feasible<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> BoxedFuture<'a, Result<(), Refusal>> {
        Box::pin(std::future::ready(self.judged(action).map(drop)))
    }

    /// The command line of a program and the files that run: an approval covers them.
    fn describe_current_state<'a>(&'a self, action: &'a Action) -> BoxedFuture<'a, Result<Vec<String>, Refusal>> {
        Box::pin(async move {
            match self.judged(action)? {
                CustomRunner::Request(_) => Ok(Vec::new()),
                CustomRunner::Program(way) => way.found(action).await,
            }
        })
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(async move {
            match self.judged(&ask.action)? {
                CustomRunner::Request(way) => way.answer(ask).await,
                CustomRunner::Program(way) => way.answer(ask).await,
            }
        })
    }

    /// Stores the request or the command that undoes the write, as the file says it now.
    fn prepare<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        Box::pin(std::future::ready(self.prepared(hold)))
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(self.carry_out(hold, permit))
    }

    fn look_up<'a>(&'a self, hold: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(self.find(hold))
    }

    /// The service is not asked for its state, so nobody can tell what changed since. The documentation of the
    /// declaration says so to the person who rolls the write back.
    fn current_fingerprint<'a>(
        &'a self,
        done: &'a Hold,
        _: &'a [u8],
    ) -> BoxedFuture<'a, Result<ObjectFingerprint, WriteError>> {
        Box::pin(std::future::ready(Ok(marker_fingerprint("applied", done.id))))
    }

    fn undo<'a>(
        &'a self,
        permit: Permit,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async move {
            match self.way(done.action.capability()).map_err(WriteError::Refused)? {
                CustomRunner::Request(way) => way.take_back(permit, done, before).await,
                CustomRunner::Program(way) => way.take_back(permit, done, before).await,
            }
        })
    }
}
