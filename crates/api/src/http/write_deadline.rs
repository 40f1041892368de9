//! Limits how long a connection may take to receive its answers.
//!
//! Takes the two ends of a connection; gives the same with a deadline for writing, and reports whether and since when
//! the other side is behind. Promise: a connection that does not receive its answers within the limit ends with an
//! error, even if it reads byte by byte; one that does is never cut off, however long it stays.

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

/// Since when the other side has unread data.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteBacklog(Arc<Mutex<Option<Instant>>>);

impl WriteBacklog {
    /// Since when there is a backlog.
    pub fn since(&self) -> Option<Instant> {
        *self.0.lock()
    }

    fn begin(&self) {
        self.0.lock().get_or_insert_with(Instant::now);
    }

    fn end(&self) {
        *self.0.lock() = None;
    }
}

/// A connection with a deadline for writing.
pub(super) struct WriteDeadlineStream<S> {
    inner: S,
    limit: Millis,
    backlog: WriteBacklog,
    /// The deadline: from the first write that was not accepted at once until everything written was accepted.
    deadline: Option<Pin<Box<dyn Sleep>>>,
}

impl<S> WriteDeadlineStream<S> {
    pub fn new(inner: S, limit: Millis, backlog: WriteBacklog) -> Self {
        Self { inner, limit, backlog, deadline: None }
    }

    /// Records a backlog. Returns an error once it has lasted too long.
    fn behind(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.backlog.begin();
        let limit = self.limit.as_duration();
        let deadline = self.deadline.get_or_insert_with(|| TokioTimer::new().sleep(limit));
        match deadline.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::TimedOut, "the answer was not taken in time")),
            Poll::Pending => Ok(()),
        }
    }

    /// Updates the state after a write of so many bytes. A partly accepted write does not end a backlog.
    fn wrote(
        &mut self,
        cx: &mut Context<'_>,
        offered: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(taken)) if *taken >= offered => {}
            Poll::Ready(Ok(_)) | Poll::Pending => self.behind(cx)?,
            Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteDeadlineStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteDeadlineStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, from);
        self.wrote(cx, from.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, from);
        self.wrote(cx, from.iter().map(|piece| piece.len()).sum(), written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// The writer flushes once nothing is left to write: then everything was accepted.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        match &flushed {
            Poll::Ready(Ok(())) => {
                self.deadline = None;
                self.backlog.end();
            }
            Poll::Pending => self.behind(cx)?,
            Poll::Ready(Err(_)) => {}
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        if shut.is_pending() {
            self.behind(cx)?;
        }
        shut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{interval, timeout};

    const LIMIT: Millis = Millis::from_millis(200);
    const TICK: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn what_is_not_taken_in_time_ends_the_connection_even_if_it_drips() {
        for drips in [false, true] {
            let (mut far, near) = duplex(64);
            let backlog = WriteBacklog::default();
            let mut paced = WriteDeadlineStream::new(near, LIMIT, backlog.clone());
            let writing = async {
                let written = timeout(Duration::from_secs(30), paced.write_all(&[7; 1 << 20])).await;
                (written.expect("it ends").map_err(|error| error.kind()), backlog.since().is_some())
            };
            let taking = async {
                let mut tick = interval(TICK);
                loop {
                    tick.tick().await;
                    if drips {
                        far.read_u8().await.unwrap();
                    }
                }
            };
            tokio::select! {
                ended = writing => assert_eq!(ended, (Err(io::ErrorKind::TimedOut), true), "{drips}"),
                () = taking => {}
            }
        }
    }

    #[tokio::test]
    async fn a_connection_that_takes_what_it_is_given_stays_as_long_as_it_likes() {
        let (mut far, near) = duplex(64);
        let backlog = WriteBacklog::default();
        let mut paced = WriteDeadlineStream::new(near, LIMIT, backlog.clone());
        let (mut taken, mut tick, began) = ([0; 256], interval(TICK), Instant::now());
        while began.elapsed() < LIMIT.as_duration() * 3 {
            let write = async {
                paced.write_all(&[7; 256]).await.unwrap();
                paced.flush().await.unwrap();
            };
            let take = async {
                tick.tick().await;
                far.read_exact(&mut taken).await.unwrap();
            };
            tokio::join!(write, take);
            assert!(backlog.since().is_none(), "everything was taken");
        }
    }
}
