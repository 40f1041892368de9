//! A simulated service that counts what really happened and never forgets.
//!
//! Takes requests of the four effect classes; answers like real services, sometimes badly, with every fault drawn from
//! a seed. Promise: its account of the past ([`SimulatedProvider::effects`]) is the truth, no matter what it replied and what
//! its index shows.

use std::collections::BTreeMap;

use sluice_core::capability::EffectClass;
use sluice_core::{Digest, HoldId, Millis};

use crate::ids::SplitMix;

/// The service. Its time is that of the simulation, not of any node.
#[derive(Debug)]
pub struct SimulatedProvider {
    random: SplitMix,
    faulty: bool,
    slowest_index: Millis,
    effects: BTreeMap<HoldId, Vec<ProviderEffect>>,
    objects: BTreeMap<String, Vec<HoldId>>,
    handles: BTreeMap<String, ProviderHandleState>,
}

/// An effect that really happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderEffect {
    /// When it happened.
    pub at: Millis,
    /// The digest of the bytes that caused it.
    pub digest: Digest,
    /// When a search can find it.
    pub findable_at: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProviderHandleState {
    Inert,
    Consumed,
}

/// A write as the service receives it.
#[derive(Debug, Clone)]
pub struct ProviderRequest<'a> {
    /// Our id for it, where the service has a place for one.
    pub hold: HoldId,
    /// The effect class that the service offers.
    pub class: EffectClass,
    /// The digest of the bytes.
    pub digest: Digest,
    /// The handle to consume.
    pub handle: Option<&'a str>,
    /// The object it sets.
    pub object: Option<&'a str>,
}

/// The reply that the caller receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderReply {
    /// It happened.
    Done,
    /// Refused before anything happened; a retry may succeed.
    Later,
    /// Refused permanently before anything happened.
    Never,
    /// The service failed internally (500), perhaps after the effect.
    Broken,
    /// No reply at all.
    Silence,
    /// The handle no longer exists.
    Gone,
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderLookup {
    /// The write was found.
    There,
    /// The write was not found, or not yet.
    NotThere,
    /// The lookup failed, or there is no place to look it up.
    Unavailable,
}

impl SimulatedProvider {
    /// A service with faults from this seed. Its index lags by up to `slowest_index`.
    #[must_use]
    pub fn new(seed: u64, slowest_index: Millis) -> Self {
        Self {
            random: SplitMix::new(seed),
            faulty: true,
            slowest_index,
            effects: BTreeMap::new(),
            objects: BTreeMap::new(),
            handles: BTreeMap::new(),
        }
    }

    /// Ends all faults: from now on it answers at once and correctly.
    pub fn heal(&mut self) {
        self.faulty = false;
    }

    /// Creates a handle that has no effect yet, unless a fault prevents it.
    pub fn create_handle(&mut self) -> Option<String> {
        if self.faulty && self.random.below(20) == 0 {
            return None;
        }
        let name = format!("draft-{}", self.handles.len() + 1);
        self.handles.insert(name.clone(), ProviderHandleState::Inert);
        Some(name)
    }

    /// Receives a write. Gives the reply and how long it takes to arrive.
    pub fn perform(&mut self, request: &ProviderRequest<'_>, now: Millis) -> (ProviderReply, Millis) {
        if let (EffectClass::ConsumeOnce, Some(handle)) = (request.class, request.handle)
            && self.handles.get(handle) != Some(&ProviderHandleState::Inert)
        {
            return (ProviderReply::Gone, Millis::ZERO);
        }
        let prompt = Millis::from_millis(self.random.below(2_000));
        if !self.faulty {
            self.happen(request, now);
            return (ProviderReply::Done, prompt);
        }
        let deadline = Millis::from_secs(20);
        match self.random.below(100) {
            0..10 => (ProviderReply::Later, prompt),
            10..14 => (ProviderReply::Never, prompt),
            14..24 => (ProviderReply::Silence, deadline),
            24..38 => {
                self.happen(request, now);
                (ProviderReply::Silence, deadline)
            }
            38..42 => (ProviderReply::Broken, prompt),
            42..48 => {
                self.happen(request, now);
                (ProviderReply::Broken, prompt)
            }
            48..55 => {
                self.happen(request, now);
                (ProviderReply::Done, Millis::from_secs(60 + self.random.below(240)))
            }
            _ => {
                self.happen(request, now);
                (ProviderReply::Done, prompt)
            }
        }
    }

    /// Looks a write up, as a reconciler can.
    pub fn look(&mut self, request: &ProviderRequest<'_>, now: Millis) -> ProviderLookup {
        if self.faulty && self.random.below(6) == 0 {
            return ProviderLookup::Unavailable;
        }
        let there = match request.class {
            EffectClass::Absolute => {
                self.objects.get(&object(request)).and_then(|all| all.last()) == Some(&request.hold)
            }
            EffectClass::ConsumeOnce => {
                request.handle.and_then(|handle| self.handles.get(handle)) == Some(&ProviderHandleState::Consumed)
            }
            EffectClass::Findable => self.effects(request.hold).iter().any(|effect| effect.findable_at <= now),
            EffectClass::Opaque => return ProviderLookup::Unavailable,
        };
        if there { ProviderLookup::There } else { ProviderLookup::NotThere }
    }

    /// The effects that really happened for a held write.
    #[must_use]
    pub fn effects(&self, hold: HoldId) -> &[ProviderEffect] {
        self.effects.get(&hold).map_or(&[], Vec::as_slice)
    }

    /// Every held write that had an effect.
    pub fn touched(&self) -> impl Iterator<Item = HoldId> {
        self.effects.keys().copied()
    }

    /// Which writes set each object, in order, including repeats.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &[HoldId])> {
        self.objects.iter().map(|(name, setters)| (name.as_str(), setters.as_slice()))
    }

    fn happen(&mut self, request: &ProviderRequest<'_>, now: Millis) {
        let lag = Millis::from_millis(self.random.below(self.slowest_index.as_millis() + 1));
        let effect = ProviderEffect { at: now, digest: request.digest, findable_at: now + lag };
        self.effects.entry(request.hold).or_default().push(effect);
        match (request.class, request.handle) {
            (EffectClass::ConsumeOnce, Some(handle)) => {
                self.handles.insert(handle.to_owned(), ProviderHandleState::Consumed);
            }
            (EffectClass::Absolute, _) => self.objects.entry(object(request)).or_default().push(request.hold),
            (EffectClass::ConsumeOnce | EffectClass::Findable | EffectClass::Opaque, _) => {}
        }
    }
}

fn object(request: &ProviderRequest<'_>) -> String {
    request.object.map_or_else(|| request.hold.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> SimulatedProvider {
        let mut provider = SimulatedProvider::new(1, Millis::from_secs(300));
        provider.heal();
        provider
    }

    fn request(class: EffectClass, handle: Option<&str>) -> ProviderRequest<'_> {
        ProviderRequest { hold: HoldId::from_bits(1), class, digest: Digest::of(b"x"), handle, object: None }
    }

    #[test]
    fn a_handle_is_consumed_once_and_everything_else_counts_every_time() {
        let mut provider = healthy();
        let handle = provider.create_handle().unwrap();
        let once = request(EffectClass::ConsumeOnce, Some(&handle));
        assert_eq!(provider.look(&once, Millis::ZERO), ProviderLookup::NotThere);
        assert_eq!(provider.perform(&once, Millis::ZERO).0, ProviderReply::Done);
        assert_eq!(provider.perform(&once, Millis::ZERO).0, ProviderReply::Gone);
        assert_eq!(provider.look(&once, Millis::ZERO), ProviderLookup::There);
        assert_eq!(provider.effects(once.hold).len(), 1);
        let opaque = request(EffectClass::Opaque, None);
        provider.perform(&opaque, Millis::ZERO);
        assert_eq!(provider.effects(opaque.hold).len(), 2);
    }

    #[test]
    fn an_index_that_lags_shows_an_absence_that_is_none() {
        let mut provider = healthy();
        let marked = request(EffectClass::Findable, None);
        provider.perform(&marked, Millis::ZERO);
        let findable_at = provider.effects(marked.hold).first().unwrap().findable_at;
        assert!(findable_at > Millis::ZERO, "this seed lags");
        assert_eq!(provider.look(&marked, Millis::ZERO), ProviderLookup::NotThere);
        assert_eq!(provider.look(&marked, findable_at), ProviderLookup::There);
    }

    #[test]
    fn every_fault_is_drawn_and_silence_comes_with_and_without_an_effect() {
        let (mut replies, mut silent_effects, mut slow) = (Vec::new(), [0, 0], false);
        let mut provider = SimulatedProvider::new(3, Millis::ZERO);
        for bits in 0..400 {
            let hold = HoldId::from_bits(bits);
            let write = ProviderRequest { hold, ..request(EffectClass::Opaque, None) };
            let (reply, after) = provider.perform(&write, Millis::ZERO);
            let happened = provider.effects(hold).len();
            assert!(reply != ProviderReply::Done || happened == 1);
            assert!(!matches!(reply, ProviderReply::Later | ProviderReply::Never) || happened == 0);
            if reply == ProviderReply::Silence {
                silent_effects[happened] += 1;
            }
            slow |= after > Millis::from_secs(60);
            replies.push(reply);
        }
        for reply in [
            ProviderReply::Done,
            ProviderReply::Later,
            ProviderReply::Never,
            ProviderReply::Broken,
            ProviderReply::Silence,
        ] {
            assert!(replies.contains(&reply), "{reply:?}");
        }
        assert!(silent_effects.iter().all(|&count| count > 0) && slow);
    }
}
