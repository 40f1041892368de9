//! Who may knock: every credential, in memory, by the hash of its text.
//!
//! Takes the rows of the store; gives, for a token's hash, who it belongs to. Promise: the ring is replaced
//! as a whole, so a key that was revoked here stops working before the revocation is answered, and one that
//! was revoked on another node within a second.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, Timestamp};
use sluice_store::{Agent, Key, KeyKind, Observing, Store, StoreError};
use subtle::ConstantTimeEq as _;

/// All credentials.
#[derive(Debug, Default)]
pub struct Keyring {
    ring: ArcSwap<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    seen: u64,
    keys: HashMap<[u8; 32], Arc<Key>>,
    agents: HashMap<AgentName, Agent>,
}

impl Keyring {
    /// Reads all credentials again if any changed.
    ///
    /// # Errors
    /// When the database cannot be read; the old ring stays.
    pub async fn refresh(&self, store: &Store) -> Result<(), StoreError> {
        let seen = store.keys_changed().await?;
        if seen == self.ring.load().seen && seen != 0 {
            return Ok(());
        }
        let keys = store.keys().await?.into_iter().map(|key| (key.hash, Arc::new(key))).collect();
        let agents = store.agents().await?.into_iter().map(|agent| (agent.name.clone(), agent)).collect();
        self.ring.store(Arc::new(Ring { seen, keys, agents }));
        Ok(())
    }

    /// The key with this hash, if it works now.
    ///
    /// # Errors
    /// Why it does not.
    pub fn find(&self, hash: &[u8; 32], now: Timestamp) -> Result<Arc<Key>, Code> {
        let ring = self.ring.load();
        let key = ring.keys.get(hash).ok_or(Code::IdentityUnknown)?;
        // The table has found it by its bytes; compared once more in constant time, as the rule says.
        if !bool::from(key.hash.ct_eq(hash)) {
            return Err(Code::IdentityUnknown);
        }
        if key.revoked_at.is_some() {
            return Err(Code::IdentityRevoked);
        }
        if key.expires_at.is_some_and(|end| now >= end) {
            return Err(Code::IdentityExpired);
        }
        if let KeyKind::Agent(name) = &key.kind {
            match ring.agents.get(name) {
                Some(agent) if agent.removed_at.is_none() => {}
                Some(_) | None => return Err(Code::IdentityRevoked),
            }
        }
        Ok(Arc::clone(key))
    }

    /// Grows whenever a credential or an agent changes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.ring.load().seen
    }

    /// Whether a person has paused this agent.
    #[must_use]
    pub fn is_paused(&self, agent: &AgentName) -> bool {
        self.ring.load().agents.get(agent).is_some_and(|agent| agent.paused_at.is_some())
    }

    /// The observe mode of an agent, while it lasts.
    #[must_use]
    pub fn observing(&self, agent: &AgentName, now: Timestamp) -> Option<Observing> {
        let ring = self.ring.load();
        let mode = ring.agents.get(agent).filter(|agent| agent.removed_at.is_none())?.observing.clone();
        mode.filter(|mode| now < mode.until)
    }

    /// Every agent there is.
    #[must_use]
    pub fn agents(&self) -> Vec<AgentName> {
        let ring = self.ring.load();
        ring.agents.values().filter(|agent| agent.removed_at.is_none()).map(|agent| agent.name.clone()).collect()
    }

    /// Whether there is such an agent.
    #[must_use]
    pub fn knows(&self, agent: &AgentName) -> bool {
        self.ring.load().agents.get(agent).is_some_and(|agent| agent.removed_at.is_none())
    }
}
