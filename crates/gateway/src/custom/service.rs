//! Custom capabilities as a service behind the gate.
//!
//! Promise: a write is carried out only while its declaration is the one that was judged and approved; what may have
//! happened is done again only where the declaration says that it happens once, and otherwise is looked up or left to
//! a person.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_core::custom::{CustomCapability, CustomWay};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::nodes::ServiceKind;
use sluice_core::proxy::FillError;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::Fingerprint;
use sluice_core::{Action, CapabilityName, HoldId, ServiceName};

use super::program::ProgramWay;
use super::request::RequestWay;
use super::{CustomGround, DeclaredCapability, OpenWay};
use crate::services::{Ask, Found, Performed, Prepared, ReadSource, Service, Trouble, Work};

/// All custom capabilities of a gateway.
#[derive(Debug)]
pub struct CustomService {
    declared: BTreeMap<CapabilityName, DeclaredCapability>,
    ground: CustomGround,
}

/// How one capability is carried out, with everything that takes.
enum Way<'a> {
    Request(RequestWay<'a>),
    Program(ProgramWay<'a>),
}

impl CustomService {
    pub(super) fn new(declared: BTreeMap<CapabilityName, DeclaredCapability>, ground: CustomGround) -> Self {
        Self { declared, ground }
    }

    fn way(&self, name: &CapabilityName) -> Result<Way<'_>, Refusal> {
        let found = self.declared.get_key_value(name).ok_or_else(|| Refusal::new(Code::GatewayUnsupported))?;
        let (name, DeclaredCapability { file, way }) = found;
        let ground = &self.ground;
        match (&file.way, way) {
            (CustomWay::Request(request), OpenWay::Request(connection)) => {
                Ok(Way::Request(RequestWay { ground, name, file, request, connection }))
            }
            (CustomWay::Program(own), OpenWay::Program(reach)) => {
                Ok(Way::Program(ProgramWay { ground, name, file, own, reach }))
            }
            (CustomWay::Request(_), OpenWay::Program(_)) | (CustomWay::Program(_), OpenWay::Request(_)) => {
                Err(Refusal::new(Code::GatewayInternal))
            }
        }
    }

    /// The declaration that an action was judged by. Another one than that carries nothing out.
    fn judged(&self, action: &Action) -> Result<Way<'_>, Refusal> {
        let name = action.capability();
        let digest = self.declared.get(name).map(|declared| declared.file.digest.as_str());
        // What follows the digest says which files of a program there were; that is compared where they are read.
        let judged_by = action.definition().and_then(|definition| definition.split(':').next());
        if digest.is_some() && digest != judged_by {
            let text = format!("the declaration of `{name}` has changed since the call was made; make it again");
            return Err(Refusal::new(Code::ExecuteRefusedMismatch).with_text(&text));
        }
        self.way(name)
    }

    async fn carry_out(&self, hold: &Hold, permit: Permit) -> Result<Performed, Trouble> {
        match self.judged(&hold.action).map_err(Trouble::Refused)? {
            Way::Request(way) => way.carry_out(hold, permit).await,
            Way::Program(way) => way.carry_out(hold, permit).await,
        }
    }

    async fn find(&self, hold: &Hold) -> Found {
        match self.judged(&hold.action) {
            Ok(Way::Request(way)) => way.find(hold).await,
            Ok(Way::Program(way)) => way.find(hold).await,
            Err(_) => Found::Unknown,
        }
    }

    /// What taking a write back needs, as the file says it now.
    fn prepared(&self, hold: &Hold) -> Result<Prepared, Trouble> {
        let content = match self.judged(&hold.action).map_err(Trouble::Refused)? {
            Way::Request(way) => way.request.rollback.as_ref().map(|rollback| serde_json::to_vec(&rollback.template())),
            Way::Program(way) => way.own.rollback.as_ref().map(|rollback| serde_json::to_vec(&rollback.template())),
        };
        let Some(content) = content else { return Ok(Prepared::default()) };
        let content = content.map_err(|_| Trouble::refused(Code::GatewayInternal))?;
        Ok(Prepared { handle: None, before: Some((content, print("before", hold.id))) })
    }
}

/// The idempotency key of a write: the same for each attempt, and no other write's.
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

/// A print that stands for what the service has: it shows nothing of its state, so the print only tells before from after.
pub(super) fn print(word: &str, hold: HoldId) -> Fingerprint {
    Fingerprint::of(format!("{word} {hold}").as_bytes())
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
                Way::Request(way) => way.check(given)?,
                Way::Program(way) => way.check(given)?,
            }
        }
        Ok(arguments)
    }

    fn described(&self, action: &Action) -> Vec<String> {
        action.found().to_vec()
    }

    fn foresee<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> Work<'a, Result<(), Refusal>> {
        Box::pin(std::future::ready(self.judged(action).map(drop)))
    }

    /// What a program is run with and the files that are run: an approval covers them.
    fn found<'a>(&'a self, action: &'a Action) -> Work<'a, Result<Vec<String>, Refusal>> {
        Box::pin(async move {
            match self.judged(action)? {
                Way::Request(_) => Ok(Vec::new()),
                Way::Program(way) => way.found(action).await,
            }
        })
    }

    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>> {
        Box::pin(async move {
            match self.judged(&ask.action)? {
                Way::Request(way) => way.answer(ask).await,
                Way::Program(way) => way.answer(ask).await,
            }
        })
    }

    /// Keeps the request or the command that takes the write back, as the file says it now.
    fn prepare<'a>(&'a self, hold: &'a Hold) -> Work<'a, Result<Prepared, Trouble>> {
        Box::pin(std::future::ready(self.prepared(hold)))
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(self.carry_out(hold, permit))
    }

    fn look_up<'a>(&'a self, hold: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Found> {
        Box::pin(self.find(hold))
    }

    /// The service is not asked how it stands, so that nobody can say what changed since: the person who takes it back
    /// is told so by the documentation of the declaration.
    fn present<'a>(&'a self, done: &'a Hold, _: &'a [u8]) -> Work<'a, Result<Fingerprint, Trouble>> {
        Box::pin(std::future::ready(Ok(print("applied", done.id))))
    }

    fn undo<'a>(&'a self, permit: Permit, done: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async move {
            match self.way(done.action.capability()).map_err(Trouble::Refused)? {
                Way::Request(way) => way.take_back(permit, done, before).await,
                Way::Program(way) => way.take_back(permit, done, before).await,
            }
        })
    }
}
