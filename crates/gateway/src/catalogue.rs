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
}

impl LiveCatalogue {
    /// Starts with everything known; nothing is offered yet.
    #[must_use]
    pub fn new(known: Catalogue) -> Self {
        Self { current: RwLock::new(Current { known: Arc::new(known), offered: Arc::default() }) }
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

    /// Takes a catalogue, and notes who carries what out.
    pub(crate) fn replace(&self, known: Arc<Catalogue>, services: &Services) {
        let offered = known.iter().filter(|spec| services.of(spec).is_some()).cloned().collect();
        let next = Current { known, offered: Arc::new(offered) };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next;
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
