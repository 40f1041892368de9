//! What can be asked, while the gate is open.
//!
//! Takes services that come and go (a proxy, a connected account, a mounted server) with the capabilities
//! they bring; gives the catalogue that schema, policy and doors read. Promise: a new capability can be
//! asked for only after the rules were read again with it, so none is ever judged by rules that do not know it.

use std::sync::{Arc, PoisonError, RwLock};

use sluice_core::ServiceName;
use sluice_core::capability::{Capability, Catalogue};
use sluice_core::refusal::{Code, Refusal};

use crate::services::{Service, Services};
use crate::{Gateway, No, policies};

/// The catalogue in force.
#[derive(Debug)]
pub struct LiveCatalogue {
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Current {
    known: Arc<Catalogue>,
    offered: Arc<Vec<Capability>>,
    /// Counts how often what is offered became another.
    version: u64,
}

impl LiveCatalogue {
    /// Starts with everything known; nothing is offered yet.
    #[must_use]
    pub fn new(known: Catalogue) -> Self {
        Self { current: RwLock::new(Current { known: Arc::new(known), offered: Arc::default(), version: 0 }) }
    }

    /// Everything a call may name.
    #[must_use]
    pub fn known(&self) -> Arc<Catalogue> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).known)
    }

    /// What this gateway carries out, by name.
    #[must_use]
    pub fn offered(&self) -> Arc<Vec<Capability>> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).offered)
    }

    /// Grows when what is offered becomes another.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.current.read().unwrap_or_else(PoisonError::into_inner).version
    }

    /// Takes a catalogue, and notes who carries what out.
    pub(crate) fn replace(&self, known: Arc<Catalogue>, services: &Services) {
        let offered: Vec<Capability> = known.iter().filter(|spec| services.of(spec).is_some()).cloned().collect();
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let version = current.version + u64::from(*current.offered != offered);
        *current = Current { known, offered: Arc::new(offered), version };
    }
}

impl Gateway {
    /// Puts a service behind the gate, with what can be asked of it. What it offered before is replaced.
    ///
    /// # Errors
    /// When a name is taken, or the rules cannot be used with the new capabilities; then nothing changed.
    pub async fn offer(&self, name: ServiceName, service: Arc<dyn Service>, list: Vec<Capability>) -> Result<(), No> {
        let _turn = self.reloading.lock().await;
        let mut next = Catalogue::clone(&self.catalogue.known());
        next.remove(&name);
        for capability in list {
            if capability.service() != name {
                return Err(Refusal::new(Code::GatewayInternal).into());
            }
            next.add(capability).map_err(|error| No::saying(Code::SchemaBadName, &error.to_string()))?;
        }
        let next = Arc::new(next);
        policies::load(self, &self.config.policies, &next)?;
        self.services.put(name, service);
        self.catalogue.replace(next, &self.services);
        self.events.wrote();
        Ok(())
    }

    /// Takes a service away for good: nobody carries out what it brought, and nothing here has those names any more.
    /// Where the rules cannot be read without them at the moment, the names stay until they can.
    pub(crate) async fn retire(&self, name: &ServiceName) {
        let _turn = self.reloading.lock().await;
        self.services.take(name);
        let mut next = Catalogue::clone(&self.catalogue.known());
        next.remove(name);
        let next = Arc::new(next);
        let next = match policies::load(self, &self.config.policies, &next) {
            Ok(_) => next,
            Err(no) => {
                tracing::warn!("the names of {name} stay known: the rules cannot be read now: {}", no.refusal);
                self.catalogue.known()
            }
        };
        self.catalogue.replace(next, &self.services);
        self.events.wrote();
    }

    /// Takes a service away. Its capabilities stay known, so that rules that name them stay valid; nobody
    /// carries them out. Held writes for it wait.
    pub async fn withdraw(&self, name: &ServiceName) -> bool {
        let _turn = self.reloading.lock().await;
        let was = self.services.take(name).is_some();
        self.catalogue.replace(self.catalogue.known(), &self.services);
        self.events.wrote();
        was
    }
}
