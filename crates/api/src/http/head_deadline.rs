//! Limits how long the head of a request may take to arrive.
//!
//! Takes a connection; gives the same with a deadline that runs from the first byte of a head until it is complete, and
//! from the opening of the connection for the first one. Promise: a head that arrives byte by byte is cut off at the
//! deadline, and a connection that is idle between two requests is not: a person may take their time. The time since
//! the last byte is known, so that an idle connection can make place for another.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Sleep, Timer as _};
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use sluice_core::Millis;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// What is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadPhase {
    /// A head that has begun, or the first one.
    Head,
    /// The rest of a request whose head is complete, or nothing while it is answered.
    Request,
    /// Nothing: the next request may come at any time.
    Nothing,
}

/// The part of a request that a connection is at, and the time of its last byte.
#[derive(Debug, Clone)]
pub(super) struct HeadProgress(Arc<Mutex<(HeadPhase, Instant)>>);

impl Default for HeadProgress {
    fn default() -> Self {
        Self(Arc::new(Mutex::new((HeadPhase::Head, Instant::now()))))
    }
}

impl HeadProgress {
    /// Records that a head is complete.
    pub fn arrived(&self) {
        self.set(HeadPhase::Request);
    }

    /// Records that the request is answered: the next head is expected.
    pub fn expected(&self) {
        self.set(HeadPhase::Nothing);
    }

    /// When the last byte passed over the connection.
    pub fn quiet_since(&self) -> Instant {
        self.0.lock().1
    }

    fn set(&self, reading: HeadPhase) {
        self.0.lock().0 = reading;
    }

    fn get(&self) -> HeadPhase {
        self.0.lock().0
    }

    fn passed(&self) {
        self.0.lock().1 = Instant::now();
    }
}

/// A connection with a deadline for heads.
pub(super) struct HeadDeadlineStream<S> {
    inner: S,
    limit: Millis,
    head: HeadProgress,
    /// The deadline; it runs while a head is read.
    deadline: Option<Pin<Box<dyn Sleep>>>,
}

impl<S> HeadDeadlineStream<S> {
    pub fn new(inner: S, limit: Millis, head: HeadProgress) -> Self {
        Self { inner, limit, head, deadline: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadDeadlineStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, into);
        if into.filled().len() > before {
            self.head.passed();
            if self.head.get() == HeadPhase::Nothing {
                self.head.set(HeadPhase::Head);
            }
        }
        if self.head.get() != HeadPhase::Head {
            self.deadline = None;
            return read;
        }
        let limit = self.limit.as_duration();
        let deadline = self.deadline.get_or_insert_with(|| TokioTimer::new().sleep(limit));
        match (deadline.as_mut().poll(cx), &read) {
            // Bytes that arrived in time are read, even if this is called after the deadline.
            (Poll::Ready(()), Poll::Pending) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the head of the request did not arrive in time",
            ))),
            _ => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadDeadlineStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.head.passed();
        Pin::new(&mut self.inner).poll_write(cx, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.head.passed();
        Pin::new(&mut self.inner).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
