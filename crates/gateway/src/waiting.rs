//! Who waits for a held write, or a question, to move.
//!
//! A waiter is woken when this node moves the write, and looks by itself every half second for moves of
//! other nodes: the wake is a hint, the row is the truth.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Everyone who waits.
#[derive(Debug)]
pub(crate) struct Waiting<K: Copy + Eq + Hash> {
    by_hold: Mutex<HashMap<K, Arc<Notify>>>,
}

impl<K: Copy + Eq + Hash> Default for Waiting<K> {
    fn default() -> Self {
        Self { by_hold: Mutex::default() }
    }
}

/// One who waits; leaves the list when dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a, K: Copy + Eq + Hash> {
    waiting: &'a Waiting<K>,
    hold: K,
    notify: Arc<Notify>,
}

impl<K: Copy + Eq + Hash> Waiting<K> {
    /// Starts waiting. Look at the row after this and before [`Waiter::woken`], so that no move is missed.
    pub fn on(&self, hold: K) -> Waiter<'_, K> {
        let mut by_hold = self.by_hold.lock().unwrap_or_else(PoisonError::into_inner);
        let notify = Arc::clone(by_hold.entry(hold).or_default());
        Waiter { waiting: self, hold, notify }
    }

    /// A write has moved.
    pub fn wake(&self, hold: K) {
        let by_hold = self.by_hold.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notify) = by_hold.get(&hold) {
            notify.notify_waiters();
        }
    }
}

impl<K: Copy + Eq + Hash> Waiter<'_, K> {
    /// A future that ends with the next wake after this call.
    pub fn woken(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl<K: Copy + Eq + Hash> Drop for Waiter<'_, K> {
    fn drop(&mut self) {
        let mut by_hold = self.waiting.by_hold.lock().unwrap_or_else(PoisonError::into_inner);
        // Two: the list's and ours. Nobody else waits.
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
        let waiting = Waiting::default();
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
        assert_eq!(waiting.by_hold.lock().unwrap().len(), 1);
        drop(two);
        assert!(waiting.by_hold.lock().unwrap().is_empty());
    }
}
