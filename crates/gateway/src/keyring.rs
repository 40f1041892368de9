//! The keyring: every credential, in memory, by the hash of its text.
//!
//! Takes the rows of the store; gives the owner of a token by its hash. Promise: the ring is replaced
//! as a whole and never by an older one, so a key that was revoked on this node stops working before the revocation is
//! answered. On a database that several nodes share, [`Keyring::follow`] checks before each decision whether another
//! node changed anything: a revocation holds on every node when it is answered.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, UtcMillis};
use sluice_store::{AccessKey, Agent, ObserveMode, Store, StoreError};
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;

/// All credentials.
#[derive(Debug, Default)]
pub struct Keyring {
    ring: ArcSwap<KeyringSnapshot>,
    /// Held while an unknown credential is looked up: guessing keys takes one connection at most.
    unknown: Mutex<()>,
}

#[derive(Debug, Default)]
struct KeyringSnapshot {
    /// Whether the credentials have been read.
    loaded: bool,
    seen: u64,
    keys: HashMap<[u8; 32], Arc<AccessKey>>,
    agents: HashMap<AgentName, Agent>,
}

impl Keyring {
    /// Reads all credentials again if any changed.
    ///
    /// # Errors
    /// When the database cannot be read; the old ring stays.
    pub async fn refresh(&self, store: &Store) -> Result<(), StoreError> {
        let had = self.ring.load().seen;
        let seen = store.key_generation().await?;
        if seen == self.ring.load().seen && seen != 0 {
            return Ok(());
        }
        let keys = store.keys().await?.into_iter().map(|key| (key.hash, Arc::new(key))).collect();
        let agents = store.agents().await?.into_iter().map(|agent| (agent.name.clone(), agent)).collect();
        let read = Arc::new(KeyringSnapshot { loaded: true, seen, keys, agents });
        // SECURITY: several readers run at once, and the slowest must not restore what a faster one has replaced. The
        // number is lower than the number known before the read only if the database was restored from a backup.
        let went_back = seen < had;
        self.ring.rcu(|now| if now.seen > seen && !went_back { Arc::clone(now) } else { Arc::clone(&read) });
        Ok(())
    }

    /// Takes over the changes of other nodes before a decision. Costs one small read on a database that several
    /// nodes share, and nothing on a database of one node.
    ///
    /// # Errors
    /// When the database cannot be read. SECURITY: in that case nothing may be decided with the old ring.
    pub async fn follow(&self, store: &Store) -> Result<(), StoreError> {
        if store.is_shared() { self.refresh(store).await } else { Ok(()) }
    }

    /// Like [`Keyring::follow`], before something is done for this agent; on a database of one node only when the agent
    /// is unknown.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn follow_for(&self, agent: &AgentName, store: &Store) -> Result<(), StoreError> {
        if store.is_shared() || !self.knows(agent) { self.refresh(store).await } else { Ok(()) }
    }

    /// Like [`Keyring::follow`], for a credential that is not known here and may have been created on another node a
    /// moment ago. Lookups wait for each other.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn look_for_unknown(&self, store: &Store) -> Result<(), StoreError> {
        let _turn = self.unknown.lock().await;
        self.follow(store).await
    }

    /// The key with this hash, if it is valid now.
    ///
    /// # Errors
    /// Why it is not valid.
    pub fn find(&self, hash: &[u8; 32], now: UtcMillis) -> Result<Arc<AccessKey>, Code> {
        let ring = self.ring.load();
        // A valid key is never refused as unknown while no keys have been read.
        if !ring.loaded {
            return Err(Code::GatewayStarting);
        }
        let key = ring.keys.get(hash).ok_or(Code::IdentityUnknown)?;
        // The table lookup compared the bytes; compare once more in constant time, as the rule requires.
        if !bool::from(key.hash.ct_eq(hash)) {
            return Err(Code::IdentityUnknown);
        }
        if key.revoked_at.is_some() {
            return Err(Code::IdentityRevoked);
        }
        if key.expires_at.is_some_and(|end| now >= end) {
            return Err(Code::IdentityExpired);
        }
        if let Some(name) = key.kind.agent() {
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
    pub fn observing(&self, agent: &AgentName, now: UtcMillis) -> Option<ObserveMode> {
        let ring = self.ring.load();
        let mode = ring.agents.get(agent).filter(|agent| agent.removed_at.is_none())?.observing.clone();
        mode.filter(|mode| now < mode.until)
    }

    /// Every agent.
    #[must_use]
    pub fn agents(&self) -> Vec<AgentName> {
        let ring = self.ring.load();
        ring.agents.values().filter(|agent| agent.removed_at.is_none()).map(|agent| agent.name.clone()).collect()
    }

    /// Whether an agent with this name exists.
    #[must_use]
    pub fn knows(&self, agent: &AgentName) -> bool {
        self.ring.load().agents.get(agent).is_some_and(|agent| agent.removed_at.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_called_unknown_before_the_keys_were_read() {
        let keyring = Keyring::default();
        let found = keyring.find(&[7; 32], UtcMillis::default()).map(|_| ());
        assert_eq!(found, Err(Code::GatewayStarting));
    }
}
