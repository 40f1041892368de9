//! Who may knock: every credential, in memory, by the hash of its text.
//!
//! Takes the rows of the store; gives, for a token's hash, who it belongs to. Promise: the ring is replaced
//! as a whole and never by an older one, so a key that was revoked here stops working before the revocation is
//! answered. On a database that several nodes share, [`Keyring::follow`] asks before each decision whether another
//! node changed anything: a revocation holds on every node when it is answered.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, Timestamp};
use sluice_store::{Agent, Key, Observing, Store, StoreError};
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;

/// All credentials.
#[derive(Debug, Default)]
pub struct Keyring {
    ring: ArcSwap<Ring>,
    /// Held while a credential that is not known here is looked for: whoever guesses keys takes one connection at most.
    unknown: Mutex<()>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Whether the credentials were read at all.
    loaded: bool,
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
        let had = self.ring.load().seen;
        let seen = store.keys_changed().await?;
        if seen == self.ring.load().seen && seen != 0 {
            return Ok(());
        }
        let keys = store.keys().await?.into_iter().map(|key| (key.hash, Arc::new(key))).collect();
        let agents = store.agents().await?.into_iter().map(|agent| (agent.name.clone(), agent)).collect();
        let read = Arc::new(Ring { loaded: true, seen, keys, agents });
        // SECURITY: several read at once, and the slowest must not bring back what a faster one has replaced. The number
        // only falls below what was known before it was read when the database was put back.
        let went_back = seen < had;
        self.ring.rcu(|now| if now.seen > seen && !went_back { Arc::clone(now) } else { Arc::clone(&read) });
        Ok(())
    }

    /// Takes over what other nodes changed, before something is decided. Costs one small read on a database that several
    /// nodes share, and nothing on one that this node has to itself.
    ///
    /// # Errors
    /// When the database cannot be read. SECURITY: nothing may be decided by the old ring then.
    pub async fn follow(&self, store: &Store) -> Result<(), StoreError> {
        if store.is_shared() { self.refresh(store).await } else { Ok(()) }
    }

    /// As [`Keyring::follow`], before something is done for this agent; also on a database of one node if it is not known.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn follow_for(&self, agent: &AgentName, store: &Store) -> Result<(), StoreError> {
        if store.is_shared() || !self.knows(agent) { self.refresh(store).await } else { Ok(()) }
    }

    /// As [`Keyring::follow`], for a credential that is not known here and may have been made on another node a moment
    /// ago. Those who ask wait for each other.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn look_for_unknown(&self, store: &Store) -> Result<(), StoreError> {
        let _turn = self.unknown.lock().await;
        self.follow(store).await
    }

    /// The key with this hash, if it works now.
    ///
    /// # Errors
    /// Why it does not.
    pub fn find(&self, hash: &[u8; 32], now: Timestamp) -> Result<Arc<Key>, Code> {
        let ring = self.ring.load();
        // Nobody is told that a good key is none while no key is known yet.
        if !ring.loaded {
            return Err(Code::GatewayStarting);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_called_unknown_before_the_keys_were_read() {
        let keyring = Keyring::default();
        let found = keyring.find(&[7; 32], Timestamp::default()).map(|_| ());
        assert_eq!(found, Err(Code::GatewayStarting));
    }
}
