//! A simulated service that counts what really happened and never forgets: the oracle.
//!
//! Takes requests of the four effect classes; answers as services do, badly at times, with every
//! fault drawn from a seed. Promise: what it says about the past ([`Provider::effects`]) is the truth,
//! whatever it replied and whatever its index shows.

use std::collections::BTreeMap;

use sluice_core::capability::EffectClass;
use sluice_core::{Digest, HoldId, Span};

use crate::ids::SplitMix;

/// The service. Time is the simulation's own, not any node's.
#[derive(Debug)]
pub struct Provider {
    random: SplitMix,
    faulty: bool,
    slowest_index: Span,
    effects: BTreeMap<HoldId, Vec<Effect>>,
    objects: BTreeMap<String, Vec<HoldId>>,
    handles: BTreeMap<String, Handle>,
}

/// Something that really happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    /// When.
    pub at: Span,
    /// The bytes that made it happen.
    pub digest: Digest,
    /// When a search finds it.
    pub findable_at: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handle {
    Inert,
    Consumed,
}

/// A write as it arrives.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Our id for it, where the service has a place for one.
    pub hold: HoldId,
    /// What the service offers.
    pub class: EffectClass,
    /// The bytes.
    pub digest: Digest,
    /// The handle to consume.
    pub handle: Option<&'a str>,
    /// The object it sets.
    pub object: Option<&'a str>,
}

/// What the caller gets to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It happened.
    Done,
    /// Refused before anything happened; later may do.
    Later,
    /// Refused before anything happened, for good.
    Never,
    /// The service failed somewhere inside (500), perhaps after the effect.
    Broken,
    /// No reply at all.
    Silence,
    /// The handle is not there any more.
    Gone,
}

/// What a look shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It is there.
    There,
    /// It is not, or not yet.
    NotThere,
    /// The look failed, or there is no place to look.
    Unavailable,
}

impl Provider {
    /// With these faults. Its index lags by up to `slowest_index`.
    #[must_use]
    pub fn new(seed: u64, slowest_index: Span) -> Self {
        Self {
            random: SplitMix::new(seed),
            faulty: true,
            slowest_index,
            effects: BTreeMap::new(),
            objects: BTreeMap::new(),
            handles: BTreeMap::new(),
        }
    }

    /// From now on it answers at once and truly.
    pub fn heal(&mut self) {
        self.faulty = false;
    }

    /// Creates an inert handle, unless the service has a bad moment.
    pub fn create_handle(&mut self) -> Option<String> {
        if self.faulty && self.random.below(20) == 0 {
            return None;
        }
        let name = format!("draft-{}", self.handles.len() + 1);
        self.handles.insert(name.clone(), Handle::Inert);
        Some(name)
    }

    /// A write arrives. Gives the reply and how long it takes to come.
    pub fn perform(&mut self, request: &Request<'_>, now: Span) -> (Reply, Span) {
        if let (EffectClass::ConsumeOnce, Some(handle)) = (request.class, request.handle)
            && self.handles.get(handle) != Some(&Handle::Inert)
        {
            return (Reply::Gone, Span::ZERO);
        }
        let prompt = Span::from_millis(self.random.below(2_000));
        if !self.faulty {
            self.happen(request, now);
            return (Reply::Done, prompt);
        }
        let deadline = Span::from_secs(20);
        match self.random.below(100) {
            0..10 => (Reply::Later, prompt),
            10..14 => (Reply::Never, prompt),
            14..24 => (Reply::Silence, deadline),
            24..38 => {
                self.happen(request, now);
                (Reply::Silence, deadline)
            }
            38..42 => (Reply::Broken, prompt),
            42..48 => {
                self.happen(request, now);
                (Reply::Broken, prompt)
            }
            48..55 => {
                self.happen(request, now);
                (Reply::Done, Span::from_secs(60 + self.random.below(240)))
            }
            _ => {
                self.happen(request, now);
                (Reply::Done, prompt)
            }
        }
    }

    /// Looks for a write as a reconciler can.
    pub fn look(&mut self, request: &Request<'_>, now: Span) -> Sight {
        if self.faulty && self.random.below(6) == 0 {
            return Sight::Unavailable;
        }
        let there = match request.class {
            EffectClass::Absolute => {
                self.objects.get(&object(request)).and_then(|all| all.last()) == Some(&request.hold)
            }
            EffectClass::ConsumeOnce => {
                request.handle.and_then(|handle| self.handles.get(handle)) == Some(&Handle::Consumed)
            }
            EffectClass::Findable => self.effects(request.hold).iter().any(|effect| effect.findable_at <= now),
            EffectClass::Opaque => return Sight::Unavailable,
        };
        if there { Sight::There } else { Sight::NotThere }
    }

    /// What really happened for a held write.
    #[must_use]
    pub fn effects(&self, hold: HoldId) -> &[Effect] {
        self.effects.get(&hold).map_or(&[], Vec::as_slice)
    }

    /// Every held write for which something happened.
    pub fn touched(&self) -> impl Iterator<Item = HoldId> {
        self.effects.keys().copied()
    }

    /// Who set each object, in order, repeats included.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &[HoldId])> {
        self.objects.iter().map(|(name, setters)| (name.as_str(), setters.as_slice()))
    }

    fn happen(&mut self, request: &Request<'_>, now: Span) {
        let lag = Span::from_millis(self.random.below(self.slowest_index.as_millis() + 1));
        let effect = Effect { at: now, digest: request.digest, findable_at: now + lag };
        self.effects.entry(request.hold).or_default().push(effect);
        match (request.class, request.handle) {
            (EffectClass::ConsumeOnce, Some(handle)) => {
                self.handles.insert(handle.to_owned(), Handle::Consumed);
            }
            (EffectClass::Absolute, _) => self.objects.entry(object(request)).or_default().push(request.hold),
            (EffectClass::ConsumeOnce | EffectClass::Findable | EffectClass::Opaque, _) => {}
        }
    }
}

fn object(request: &Request<'_>) -> String {
    request.object.map_or_else(|| request.hold.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Provider {
        let mut provider = Provider::new(1, Span::from_secs(300));
        provider.heal();
        provider
    }

    fn request(class: EffectClass, handle: Option<&str>) -> Request<'_> {
        Request { hold: HoldId::from_bits(1), class, digest: Digest::of(b"x"), handle, object: None }
    }

    #[test]
    fn a_handle_is_consumed_once_and_everything_else_counts_every_time() {
        let mut provider = healthy();
        let handle = provider.create_handle().unwrap();
        let once = request(EffectClass::ConsumeOnce, Some(&handle));
        assert_eq!(provider.look(&once, Span::ZERO), Sight::NotThere);
        assert_eq!(provider.perform(&once, Span::ZERO).0, Reply::Done);
        assert_eq!(provider.perform(&once, Span::ZERO).0, Reply::Gone);
        assert_eq!(provider.look(&once, Span::ZERO), Sight::There);
        assert_eq!(provider.effects(once.hold).len(), 1);
        let opaque = request(EffectClass::Opaque, None);
        provider.perform(&opaque, Span::ZERO);
        assert_eq!(provider.effects(opaque.hold).len(), 2);
    }

    #[test]
    fn an_index_that_lags_shows_an_absence_that_is_none() {
        let mut provider = healthy();
        let marked = request(EffectClass::Findable, None);
        provider.perform(&marked, Span::ZERO);
        let findable_at = provider.effects(marked.hold).first().unwrap().findable_at;
        assert!(findable_at > Span::ZERO, "this seed lags");
        assert_eq!(provider.look(&marked, Span::ZERO), Sight::NotThere);
        assert_eq!(provider.look(&marked, findable_at), Sight::There);
    }

    #[test]
    fn every_fault_is_drawn_and_silence_comes_with_and_without_an_effect() {
        let (mut replies, mut silent_effects, mut slow) = (Vec::new(), [0, 0], false);
        let mut provider = Provider::new(3, Span::ZERO);
        for bits in 0..400 {
            let hold = HoldId::from_bits(bits);
            let write = Request { hold, ..request(EffectClass::Opaque, None) };
            let (reply, after) = provider.perform(&write, Span::ZERO);
            let happened = provider.effects(hold).len();
            assert!(reply != Reply::Done || happened == 1);
            assert!(!matches!(reply, Reply::Later | Reply::Never) || happened == 0);
            if reply == Reply::Silence {
                silent_effects[happened] += 1;
            }
            slow |= after > Span::from_secs(60);
            replies.push(reply);
        }
        for reply in [Reply::Done, Reply::Later, Reply::Never, Reply::Broken, Reply::Silence] {
            assert!(replies.contains(&reply), "{reply:?}");
        }
        assert!(silent_effects.iter().all(|&count| count > 0) && slow);
    }
}
