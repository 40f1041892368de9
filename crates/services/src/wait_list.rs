//! Waiting for a held write or an approval request to change.
//!
//! A waiter is woken when this node changes the write, and checks the row every half second for changes by
//! other nodes: the wake is a hint, the row is the truth.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// All waiters.
#[derive(Debug)]
pub struct WaitList<K: Copy + Eq + Hash> {
    by_hold: Mutex<HashMap<K, Arc<Notify>>>,
}

impl<K: Copy + Eq + Hash> Default for WaitList<K> {
    fn default() -> Self {
        Self { by_hold: Mutex::default() }
    }
}

/// One waiter; leaves the list when dropped.
#[derive(Debug)]
pub struct WaitListEntry<'a, K: Copy + Eq + Hash> {
    waiting: &'a WaitList<K>,
    hold: K,
    notify: Arc<Notify>,
}

impl<K: Copy + Eq + Hash> WaitList<K> {
    /// Starts waiting. Read the row after this and before [`WaitListEntry::woken`], so that no change is missed.
    pub fn on(&self, hold: K) -> WaitListEntry<'_, K> {
        let mut by_hold = self.by_hold.lock();
        let notify = Arc::clone(by_hold.entry(hold).or_default());
        WaitListEntry { waiting: self, hold, notify }
    }

    /// Wakes the waiters of a write that has changed.
    pub fn wake(&self, hold: K) {
        let by_hold = self.by_hold.lock();
        if let Some(notify) = by_hold.get(&hold) {
            notify.notify_waiters();
        }
    }
}

impl<K: Copy + Eq + Hash> WaitListEntry<'_, K> {
    /// A future that ends at the next wake after this call.
    pub fn woken(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl<K: Copy + Eq + Hash> Drop for WaitListEntry<'_, K> {
    fn drop(&mut self) {
        let mut by_hold = self.waiting.by_hold.lock();
        // Two references: the list's and this one. There is no other waiter.
        if Arc::strong_count(&self.notify) <= 2 {
            by_hold.remove(&self.hold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use sluice_core::HoldId;

    #[test]
    fn a_wake_reaches_those_who_wait_and_leaves_nothing_behind() {
        let waiting = WaitList::default();
        let hold = HoldId::from_bits(1);
        let (one, two) = (waiting.on(hold), waiting.on(hold));
        let (mut first, mut second) = (Box::pin(one.woken()), Box::pin(two.woken()));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        waiting.wake(HoldId::from_bits(2));
        assert!((&mut first).now_or_never().is_none());
        waiting.wake(hold);
        assert!((&mut first).now_or_never().is_some() && (&mut second).now_or_never().is_some());
        drop((first, second));
        drop(one);
        assert_eq!(waiting.by_hold.lock().len(), 1);
        drop(two);
        assert!(waiting.by_hold.lock().is_empty());
    }
}
