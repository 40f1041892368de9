//! The crowd at a listener: counts connections, in total and per peer, and decides which one is closed when there is no
//! free place.
//!
//! Takes connections; gives each a place or none. Promise: at the main listener a connection above the limit, in total
//! or of one peer, is told to come back later, unless another one does not read its answers or has been idle for a
//! while: then that one is closed instead. The stop listener always accepts the new connection and closes the idle one
//! that connected first: a client that only holds connections open, such as an agent in a loop, keeps nobody from
//! stopping things.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluice_core::Millis;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::head_deadline::HeadProgress;
use super::route::ListenerLane;
use super::write_deadline::WriteBacklog;

/// How long a closed connection may take to free its place.
const SOON: Millis = Millis::from_secs(1);
/// How long a connection must have unread answers before its place can be given to another.
const STALLED: Millis = Millis::from_secs(1);

/// How long a connection must be idle before its place can be given to another. Streams are never idle that long.
const QUIET: Millis = Millis::from_secs(30);

/// All connections at a listener.
#[derive(Debug)]
pub(super) struct ConnectionAdmission {
    places: Arc<Semaphore>,
    lane: ListenerLane,
    most: usize,
    most_of_a_peer: usize,
    peers: Arc<Mutex<HashMap<IpAddr, usize>>>,
    /// The connections, oldest first.
    inside: VecDeque<AdmittedConnection>,
}

#[derive(Debug)]
struct AdmittedConnection {
    task: AbortHandle,
    busy: BusyCounter,
    backlog: WriteBacklog,
    head: HeadProgress,
    peer: IpAddr,
}

/// A place at a listener. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    _permit: OwnedSemaphorePermit,
    peer: IpAddr,
    peers: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut peers = self.peers.lock();
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
pub(super) struct BusyCounter(Arc<AtomicUsize>);

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct BusyGuard(BusyCounter);

impl BusyCounter {
    /// Marks a complete request: it is being answered until the returned value is dropped.
    pub fn begin(&self) -> BusyGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        BusyGuard(self.clone())
    }

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionAdmission {
    pub fn new(lane: ListenerLane, most: usize, most_of_a_peer: usize) -> Self {
        let places = Arc::new(Semaphore::new(most));
        Self { places, lane, most, most_of_a_peer, peers: Arc::default(), inside: VecDeque::new() }
    }

    /// A place for a peer, if one is free or can be freed.
    pub async fn place(&mut self, peer: IpAddr) -> Option<ConnectionSlot> {
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

    /// Adds a connection that has a place.
    pub fn entered(
        &mut self,
        task: AbortHandle,
        (busy, backlog, head): (BusyCounter, WriteBacklog, HeadProgress),
        peer: IpAddr,
    ) {
        if self.inside.len() > self.most {
            self.forget_gone();
        }
        self.inside.push_back(AdmittedConnection { task, busy, backlog, head, peer: one_peer(peer) });
    }

    /// Whether a peer has reached its limit. The stop lane has no limit per peer.
    fn has_enough_of(&self, peer: IpAddr) -> bool {
        let peers = self.peers.lock();
        self.lane == ListenerLane::Main && peers.get(&peer).is_some_and(|count| *count >= self.most_of_a_peer)
    }

    fn taken(&self, permit: OwnedSemaphorePermit, peer: IpAddr) -> Option<ConnectionSlot> {
        let mut peers = self.peers.lock();
        *peers.entry(peer).or_default() += 1;
        Some(ConnectionSlot { _permit: permit, peer, peers: Arc::clone(&self.peers) })
    }

    /// Closes the connection among these that can best be spared, and waits a moment until it is gone. `None` if none
    /// of them can be closed.
    async fn send_away(&mut self, among: impl Fn(&AdmittedConnection) -> bool) -> Option<()> {
        self.forget_gone();
        let position = match self.lane {
            ListenerLane::Main => {
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
            ListenerLane::Stop => self.inside.iter().position(|inside| among(inside) && inside.busy.is_idle())?,
        };
        self.inside.remove(position)?.task.abort();
        // The task is gone, and its place free, once the runtime has dropped it.
        tokio::task::yield_now().await;
        Some(())
    }

    fn forget_gone(&mut self) {
        self.inside.retain(|inside| !inside.task.is_finished());
    }
}

/// What counts as one peer: an IPv4 address, or the network of an IPv6 address, which one host can own as a whole.
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
        let mut crowd = ConnectionAdmission::new(ListenerLane::Main, 4, 3);
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
