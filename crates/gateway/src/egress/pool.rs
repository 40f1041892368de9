//! Open lines, kept for the next request to the same place.
//!
//! Takes lines whose last answer was read to its end; gives one that is still open. Promise: a line serves only the
//! connection, host and port it was made for; a write is never sent on a line that was idle long enough for the
//! other side to be hanging up.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use sluice_core::Span;
use sluice_core::ids::ConnectionName;
use tokio::task::JoinSet;

use super::no::{EgressNo, Failed, Phase, What};
use super::wire::{Line, Meter};

/// Lines kept per place.
const KEPT: usize = 8;
/// How long a line is kept.
const KEEP: Span = Span::from_secs(30);
/// How long a line may have been idle for a write.
const FRESH: Span = Span::from_secs(1);
/// The largest head of an answer.
const HEAD: usize = 64 * 1024;
/// Most headers of an answer.
const HEADERS: usize = 100;

/// What a line is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub connection: ConnectionName,
    pub host: String,
    pub port: u16,
    pub tls: bool,
}

/// A line with someone at the other end.
pub(super) struct Open {
    pub sender: SendRequest<Full<Bytes>>,
    pub meter: Meter,
}

/// Lines nobody uses at the moment.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<HashMap<Place, Vec<(Open, Span)>>>,
    /// What moves bytes on each line; ends with it.
    drivers: Mutex<JoinSet<()>>,
}

impl Pool {
    /// A line that is still open, if there is one that will do.
    pub(super) fn take(&self, place: &Place, is_read: bool, now: Span) -> Option<Open> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = idle.get_mut(place)?;
        let limit = if is_read { KEEP } else { FRESH };
        while let Some((open, since)) = lines.pop() {
            let age = Span::from_millis(now.as_millis().saturating_sub(since.as_millis()));
            if !open.sender.is_closed() && age <= limit {
                return Some(open);
            }
        }
        None
    }

    /// Keeps a line.
    pub(super) fn keep(&self, place: Place, open: Open, now: Span) {
        if open.sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = idle.entry(place).or_default();
        if lines.len() < KEPT {
            lines.push((open, now));
        }
    }

    /// Lets go of the lines of a connection: what it may reach has changed.
    pub(super) fn let_go(&self, connection: &ConnectionName) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|place, _| place.connection != *connection);
    }

    /// Lets go of lines that were idle too long. Gives how many places are left.
    pub(super) fn sweep(&self, now: Span) -> usize {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|_, lines| {
            lines.retain(|(open, since)| {
                !open.sender.is_closed() && now.as_millis().saturating_sub(since.as_millis()) <= KEEP.as_millis()
            });
            !lines.is_empty()
        });
        idle.len()
    }

    /// Puts a fresh line to use.
    pub(super) async fn start(&self, line: Line, meter: Meter) -> Result<Open, EgressNo> {
        let handshake = hyper::client::conn::http1::Builder::new()
            .max_buf_size(HEAD)
            .max_headers(HEADERS)
            .handshake::<_, Full<Bytes>>(TokioIo::new(line))
            .await;
        let closed = Failed { phase: Phase::Connect, what: What::Closed, sent: false };
        let (sender, driver) = handshake.map_err(|_| closed)?;
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        while drivers.try_join_next().is_some() {}
        drivers.spawn(async move {
            // How it ended is said by the request it was for.
            let _ended = driver.await;
        });
        Ok(Open { sender, meter })
    }
}
