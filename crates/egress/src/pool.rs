//! Connection pool: open lines that are kept for the next request to the same place.
//!
//! Takes lines whose last answer was read to its end; gives one that is still open. Promise: a line serves only the
//! connection, host and port it was opened for; a write is never sent on a line that was idle so long that the service
//! may be closing it.

use std::collections::HashMap;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sluice_core::Millis;
use sluice_core::ids::ConnectionName;
use tokio::task::JoinSet;

use super::error::{EgressError, ExchangeFailure, ExchangeFault, ExchangePhase};
use super::transport::{ByteMeter, MeteredStream};

/// The number of lines kept per place.
const KEPT: usize = 8;
/// How long a line is kept.
const KEEP: Millis = Millis::from_secs(30);
/// How long a line may have been idle for a write.
const FRESH: Millis = Millis::from_secs(1);
/// The largest head of an answer, in bytes.
const HEAD: usize = 64 * 1024;
/// The most headers of an answer.
const HEADERS: usize = 100;

/// The place that a line leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SenderPoolKey {
    pub connection: ConnectionName,
    pub host: String,
    pub port: u16,
    pub tls: bool,
}

/// An open line.
pub(super) struct PooledSender {
    pub sender: SendRequest<Full<Bytes>>,
    pub meter: ByteMeter,
}

/// The lines that are not in use.
#[derive(Default)]
pub(super) struct SenderPool {
    idle: Mutex<HashMap<SenderPoolKey, Vec<(PooledSender, Millis)>>>,
    /// The tasks that move bytes on each line; they end with the pool.
    drivers: Mutex<JoinSet<()>>,
}

impl SenderPool {
    /// Takes a line that is still open and fit for the request, if there is one.
    pub(super) fn take(&self, place: &SenderPoolKey, is_read: bool, now: Millis) -> Option<PooledSender> {
        let mut idle = self.idle.lock();
        let lines = idle.get_mut(place)?;
        let limit = if is_read { KEEP } else { FRESH };
        while let Some((open, since)) = lines.pop() {
            let age = Millis::from_millis(now.as_millis().saturating_sub(since.as_millis()));
            if !open.sender.is_closed() && age <= limit {
                return Some(open);
            }
        }
        None
    }

    /// Keeps a line.
    pub(super) fn keep(&self, place: SenderPoolKey, open: PooledSender, now: Millis) {
        if open.sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock();
        let lines = idle.entry(place).or_default();
        if lines.len() < KEPT {
            lines.push((open, now));
        }
    }

    /// Closes the lines of a connection whose allow list has changed.
    pub(super) fn drop_connection(&self, connection: &ConnectionName) {
        let mut idle = self.idle.lock();
        idle.retain(|place, _| place.connection != *connection);
    }

    /// Closes lines that were idle too long. Returns how many places are left.
    pub(super) fn sweep(&self, now: Millis) -> usize {
        let mut idle = self.idle.lock();
        idle.retain(|_, lines| {
            lines.retain(|(open, since)| {
                !open.sender.is_closed() && now.as_millis().saturating_sub(since.as_millis()) <= KEEP.as_millis()
            });
            !lines.is_empty()
        });
        idle.len()
    }

    /// Starts using a new line.
    pub(super) async fn start(&self, line: MeteredStream, meter: ByteMeter) -> Result<PooledSender, EgressError> {
        let handshake = hyper::client::conn::http1::Builder::new()
            .max_buf_size(HEAD)
            .max_headers(HEADERS)
            .handshake::<_, Full<Bytes>>(TokioIo::new(line))
            .await;
        let closed = ExchangeFailure { phase: ExchangePhase::Connect, what: ExchangeFault::Closed, sent: false };
        let (sender, driver) = handshake.map_err(|_| closed)?;
        let mut drivers = self.drivers.lock();
        while drivers.try_join_next().is_some() {}
        drivers.spawn(async move {
            // The request that used the line reports how it ended.
            let _ended = driver.await;
        });
        Ok(PooledSender { sender, meter })
    }
}
