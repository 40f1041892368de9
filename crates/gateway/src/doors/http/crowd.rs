//! The crowd at a listener: how many connections are inside, how many of one peer, and which one goes when there is no
//! place.
//!
//! Takes connections; gives each a place or none. Promise: at the main listener a connection too many, of all or of one
//! peer, is told to come again, unless one of those inside does not take its answers, or asks nothing for a while: that
//! one goes instead. The one for stopping lets it in, and the connection that has been silent longest goes: whoever only holds connections open, an
//! agent with nothing but a loop included, keeps nobody from stopping things.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::Span;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::head::Head;
use super::pace::Backlog;
use super::route::Lane;

/// How long the place of one that was sent away may take to become free.
const SOON: Span = Span::from_secs(1);
/// How long a connection has not taken its answers before its place can be given to another.
const STALLED: Span = Span::from_secs(1);

/// How long nothing has passed over a connection before its place can be given to another. Streams are never so quiet.
const QUIET: Span = Span::from_secs(30);

/// Everyone at a listener.
#[derive(Debug)]
pub(super) struct Crowd {
    places: Arc<Semaphore>,
    lane: Lane,
    most: usize,
    most_of_a_peer: usize,
    peers: Arc<Mutex<HashMap<IpAddr, usize>>>,
    /// Who is at the listener, the longest there first.
    inside: VecDeque<Inside>,
}

#[derive(Debug)]
struct Inside {
    task: AbortHandle,
    busy: Busy,
    backlog: Backlog,
    head: Head,
    peer: IpAddr,
}

/// A place at a listener, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    peer: IpAddr,
    peers: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = peers.get_mut(&self.peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                peers.remove(&self.peer);
            }
        }
    }
}

/// Whether a connection is being answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<AtomicUsize>);

/// A request on its way to its answer.
#[derive(Debug)]
pub(super) struct AtWork(Busy);

impl Busy {
    /// A request has come in whole; its answer is on its way until this is dropped.
    pub fn begin(&self) -> AtWork {
        self.0.fetch_add(1, Ordering::Relaxed);
        AtWork(self.clone())
    }

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Crowd {
    pub fn new(lane: Lane, most: usize, most_of_a_peer: usize) -> Self {
        let places = Arc::new(Semaphore::new(most));
        Self { places, lane, most, most_of_a_peer, peers: Arc::default(), inside: VecDeque::new() }
    }

    /// A place for a peer, if there is one or one can be made.
    pub async fn place(&mut self, peer: IpAddr) -> Option<Place> {
        let peer = one_peer(peer);
        if self.has_enough_of(peer) {
            self.send_away(|inside| inside.peer == peer).await?;
        }
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return self.taken(permit, peer);
        }
        self.send_away(|_| true).await?;
        let permit = timeout(SOON.as_duration(), Arc::clone(&self.places).acquire_owned()).await.ok()?.ok()?;
        self.taken(permit, peer)
    }

    /// A connection has taken its place.
    pub fn entered(&mut self, task: AbortHandle, (busy, backlog, head): (Busy, Backlog, Head), peer: IpAddr) {
        if self.inside.len() > self.most {
            self.forget_gone();
        }
        self.inside.push_back(Inside { task, busy, backlog, head, peer: one_peer(peer) });
    }

    /// Whoever stops things is not counted by where they come from.
    fn has_enough_of(&self, peer: IpAddr) -> bool {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        self.lane == Lane::Main && peers.get(&peer).is_some_and(|count| *count >= self.most_of_a_peer)
    }

    fn taken(&self, permit: OwnedSemaphorePermit, peer: IpAddr) -> Option<Place> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        *peers.entry(peer).or_default() += 1;
        Some(Place { _permit: permit, peer, peers: Arc::clone(&self.peers) })
    }

    /// Ends the connection among these that least deserves its place, and waits a moment for it to be gone. Nothing if
    /// each of them does.
    async fn send_away(&mut self, among: impl Fn(&Inside) -> bool) -> Option<()> {
        self.forget_gone();
        let position = match self.lane {
            Lane::Main => {
                let now = Instant::now();
                let stalled =
                    self.inside.iter().enumerate().filter(|(_, inside)| among(inside)).filter_map(|(at, inside)| {
                        let since = inside.backlog.since()?;
                        (now.duration_since(since) >= STALLED.as_duration()).then_some((since, at))
                    });
                let stalled = stalled.min();
                let resting = self.inside.iter().enumerate().filter(|(_, one)| among(one) && one.busy.is_idle());
                let quiet = resting.map(|(at, one)| (one.head.quiet_since(), at)).min();
                let quiet = quiet.filter(|(since, _)| now.duration_since(*since) >= QUIET.as_duration());
                stalled.or(quiet)?.1
            }
            Lane::Stop => self.inside.iter().position(|inside| among(inside) && inside.busy.is_idle())?,
        };
        self.inside.remove(position)?.task.abort();
        // Its task is gone once the runtime has dropped it, and its place with it.
        tokio::task::yield_now().await;
        Some(())
    }

    fn forget_gone(&mut self) {
        self.inside.retain(|inside| !inside.task.is_finished());
    }
}

/// What counts as one peer: an IPv4 address, or the network of an IPv6 address, all of which one host can have.
fn one_peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn one_peer_has_its_share_and_leaves_the_rest() {
        let mut crowd = Crowd::new(Lane::Main, 4, 3);
        let mut places = Vec::new();
        for _ in 0..3 {
            places.push(crowd.place(address("192.0.2.1")).await.unwrap());
        }
        assert!(crowd.place(address("192.0.2.1")).await.is_none());
        assert!(crowd.place(address("::ffff:192.0.2.1")).await.is_none(), "the same host");
        let other = crowd.place(address("192.0.2.2")).await;
        assert!(other.is_some());
        assert!(crowd.place(address("192.0.2.3")).await.is_none(), "the listener is full");
        places.pop();
        assert!(crowd.place(address("192.0.2.1")).await.is_some(), "a place that was left is free again");
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        assert_eq!(one_peer(address("2001:db8::1")), one_peer(address("2001:db8::ffff:2")));
        assert_ne!(one_peer(address("2001:db8::1")), one_peer(address("2001:db8:0:1::1")));
        assert_eq!(one_peer(address("::1")), address("::1"));
    }
}
