//! The lock-out: an address that keeps failing to sign in has to wait.
//!
//! Promise: a guess costs time; nobody on this machine is ever locked out, so that an attacker from elsewhere cannot lock
//! out the operator at the console; the memory it takes is bounded.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use sluice_core::{Millis, UtcMillis};

/// Failures after which an address has to wait.
const FAILURES: u32 = 10;
/// The period in which failures count, and how long an address waits.
const PERIOD: Millis = Millis::from_mins(10);
/// Addresses that are remembered.
const MOST: usize = 4096;

/// The addresses that failed lately.
#[derive(Debug, Default)]
pub(crate) struct SignInLockout(Mutex<HashMap<IpAddr, (u32, UtcMillis)>>);

impl SignInLockout {
    /// How long this address has to wait, if it does.
    pub(crate) fn wait(&self, peer: IpAddr, now: UtcMillis) -> Option<Millis> {
        if is_local(peer) {
            return None;
        }
        let (failures, last) = self.0.lock().get(&peer).copied()?;
        let gone = now.since(last);
        (failures >= FAILURES && gone < PERIOD)
            .then(|| Millis::from_millis(PERIOD.as_millis().saturating_sub(gone.as_millis())))
    }

    /// Notes a failure.
    pub(crate) fn failed(&self, peer: IpAddr, now: UtcMillis) {
        if is_local(peer) {
            return;
        }
        let mut known = self.0.lock();
        if known.len() >= MOST {
            known.retain(|_, (_, last)| now.since(*last) < PERIOD);
        }
        if known.len() >= MOST && !known.contains_key(&peer) {
            return;
        }
        let (failures, last) = known.entry(peer).or_insert((0, now));
        if now.since(*last) >= PERIOD {
            *failures = 0;
        }
        (*failures, *last) = (failures.saturating_add(1), now);
    }

    /// Forgets the failures of an address that has signed in.
    pub(crate) fn succeeded(&self, peer: IpAddr) {
        self.0.lock().remove(&peer);
    }
}

fn is_local(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_keeps_failing_waits_and_this_machine_never_does() {
        let lockout = SignInLockout::default();
        let (far, near) = ("203.0.113.7".parse().unwrap(), "::ffff:127.0.0.1".parse().unwrap());
        let now = UtcMillis::from_millis(1_000_000);
        for _ in 0..FAILURES {
            assert_eq!(lockout.wait(far, now), None);
            lockout.failed(far, now);
            lockout.failed(near, now);
        }
        assert_eq!(lockout.wait(far, now), Some(PERIOD));
        assert_eq!(lockout.wait(near, now), None, "this machine");
        assert_eq!(lockout.wait("203.0.113.8".parse().unwrap(), now), None, "another address");
        assert_eq!(lockout.wait(far, now + PERIOD), None);
        lockout.failed(far, now + PERIOD);
        assert_eq!(lockout.wait(far, now + PERIOD), None, "the count began again");
    }
}
