//! `proxy.spawn` as a capability that is offered while there are proxies.
//!
//! Promise: it carries nothing out. The room `sluice_gateway::rooms::spawn` replaces it with the operation before anything is
//! carried out; a call that arrives here all the same is refused.

use std::sync::Arc;

use serde_json::Value;
use sluice_core::hold::{Hold, Permit};
use sluice_core::nodes::ServiceKind;
use sluice_core::proxy::spawn;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{BoxedFuture, CapabilityName, ServiceName};

use super::SecurityProxies;
use crate::CallError;
use crate::ServiceContext;
use crate::{CompletedWrite, ReadSource, Service, ServiceRead, Services, WriteError};

/// Stands for the spawns of all proxies.
#[derive(Debug)]
struct ProxySpawnService;

impl Service for ProxySpawnService {
    fn kind(&self) -> ServiceKind {
        ServiceKind::Proxy
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        capability.as_str() == spawn::CAPABILITY
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Outside
    }

    fn read<'a>(&'a self, _: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(std::future::ready(Err(Refusal::new(Code::GatewayUnsupported))))
    }

    fn perform<'a>(
        &'a self,
        _: Permit,
        _: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(std::future::ready(Err(WriteError::refused(Code::GatewayUnsupported))))
    }
}

/// The service that `proxy.spawn` is listed under.
fn service() -> Option<ServiceName> {
    CapabilityName::new(spawn::CAPABILITY).ok().map(|name| sluice_core::capability::service_of(&name))
}

/// Offers spawns if there is a proxy, while the gateway opens.
pub fn open(proxies: &SecurityProxies, services: &Services) {
    if let Some(name) = service().filter(|_| !proxies.all().is_empty()) {
        services.put(name, Arc::new(ProxySpawnService));
    }
}

/// Offers spawns if there is a proxy now, and withdraws them if there is none.
///
/// # Errors
/// When the rules cannot be read with it.
pub(super) async fn follow(context: &ServiceContext) -> Result<(), CallError> {
    let Some(name) = service() else { return Ok(()) };
    let is_offered = context.services.for_service(&name).is_ok();
    let catalogue = context.catalogue.known();
    let spec = catalogue.iter().find(|spec| spec.name.as_str() == spawn::CAPABILITY).cloned();
    match (context.proxies.all().is_empty(), is_offered, spec) {
        (false, false, Some(spec)) => context.offer(name, Arc::new(ProxySpawnService), vec![spec]).await,
        (true, true, _) => {
            context.withdraw(&name).await;
            Ok(())
        }
        _ => Ok(()),
    }
}
