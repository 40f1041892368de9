//! The live catalogue: the capabilities that can be called while the gateway runs.
//!
//! Takes services that are added and removed at run time (a proxy, a connected account, a mounted server) with the
//! capabilities they bring; gives the catalogue that schema, policy and doors read. Promise: a new capability can be
//! called only after the rules were read again with it, so none is judged by rules that do not know it.

use std::sync::Arc;

use parking_lot::RwLock;
use sluice_core::ServiceName;
use sluice_core::capability::{Capability, Catalogue};
use sluice_core::refusal::{Code, Refusal};

use crate::{CallError, Service, ServiceContext, Services, policies};

/// The catalogue in force.
#[derive(Debug)]
pub struct LiveCatalogue {
    current: RwLock<CatalogueSnapshot>,
}

#[derive(Debug)]
struct CatalogueSnapshot {
    known: Arc<Catalogue>,
    offered: Arc<Vec<Capability>>,
    /// Counts how often the offered capabilities changed.
    version: u64,
}

impl LiveCatalogue {
    /// Starts with every known capability; none is offered yet.
    #[must_use]
    pub fn new(known: Catalogue) -> Self {
        Self { current: RwLock::new(CatalogueSnapshot { known: Arc::new(known), offered: Arc::default(), version: 0 }) }
    }

    /// Every capability that a call may name.
    #[must_use]
    pub fn known(&self) -> Arc<Catalogue> {
        Arc::clone(&self.current.read().known)
    }

    /// The capabilities that this gateway carries out, by name.
    #[must_use]
    pub fn offered(&self) -> Arc<Vec<Capability>> {
        Arc::clone(&self.current.read().offered)
    }

    /// Grows when the offered capabilities change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.current.read().version
    }

    /// Replaces the catalogue and notes which service carries out each capability.
    pub fn replace(&self, known: Arc<Catalogue>, services: &Services) {
        let offered: Vec<Capability> = known.iter().filter(|spec| services.of(spec).is_some()).cloned().collect();
        let mut current = self.current.write();
        let version = current.version + u64::from(*current.offered != offered);
        *current = CatalogueSnapshot { known, offered: Arc::new(offered), version };
    }
}

impl ServiceContext {
    /// Adds a service with its capabilities. What it offered before is replaced.
    ///
    /// # Errors
    /// When a name is taken, or the rules cannot be used with the new capabilities; then nothing changed.
    pub async fn offer(
        &self,
        name: ServiceName,
        service: Arc<dyn Service>,
        list: Vec<Capability>,
    ) -> Result<(), CallError> {
        let _turn = self.signals.reloading.lock().await;
        let mut next = Catalogue::clone(&self.catalogue.known());
        next.remove(&name);
        for capability in list {
            if capability.service() != name {
                return Err(Refusal::new(Code::GatewayInternal).into());
            }
            next.add(capability).map_err(|error| CallError::with_text(Code::SchemaBadName, &error.to_string()))?;
        }
        let next = Arc::new(next);
        policies::load(&self.policy, &self.config.policies, &next)?;
        self.services.put(name, service);
        self.catalogue.replace(next, &self.services);
        self.signals.events.notify_written();
        Ok(())
    }

    /// Removes a service permanently: its capabilities are no longer carried out, and their names are no longer known.
    /// If the rules cannot be read without these names at the moment, the names stay until they can.
    pub async fn retire(&self, name: &ServiceName) {
        let _turn = self.signals.reloading.lock().await;
        self.services.take(name);
        let mut next = Catalogue::clone(&self.catalogue.known());
        next.remove(name);
        let next = Arc::new(next);
        let next = match policies::load(&self.policy, &self.config.policies, &next) {
            Ok(_) => next,
            Err(no) => {
                tracing::warn!("the names of {name} stay known: the rules cannot be read now: {}", no.refusal);
                self.catalogue.known()
            }
        };
        self.catalogue.replace(next, &self.services);
        self.signals.events.notify_written();
    }

    /// Removes a service. Its capabilities stay known, so that rules that name them stay valid, but nothing
    /// carries them out. Held writes for it wait.
    pub async fn withdraw(&self, name: &ServiceName) -> bool {
        let _turn = self.signals.reloading.lock().await;
        let was = self.services.take(name).is_some();
        self.catalogue.replace(self.catalogue.known(), &self.services);
        self.signals.events.notify_written();
        was
    }
}
