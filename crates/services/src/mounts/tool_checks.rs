//! Requests to check the tools of a mounted server, and which of them a finished check answers.
//!
//! Promise: a request is answered only by a check that began after it. A check that was under way has read the
//! acceptances before the request, so its result may be older than what the caller just changed.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

/// The checks of one server: how many were requested, and how many of these requests were answered.
pub(super) struct ToolChecks {
    requested: AtomicU64,
    wake: Notify,
    answered: watch::Sender<u64>,
}

/// A check that has begun. It answers the requests made until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ToolCheckRound(u64);

impl ToolChecks {
    pub fn new() -> Self {
        Self { requested: AtomicU64::new(0), wake: Notify::new(), answered: watch::Sender::new(0) }
    }

    /// Requests a check. Gives the first round that answers it.
    pub fn request(&self) -> ToolCheckRound {
        let round = ToolCheckRound(self.requested.fetch_add(1, Ordering::SeqCst) + 1);
        self.wake.notify_one();
        round
    }

    /// Completes once a check was requested.
    pub async fn requested(&self) {
        self.wake.notified().await;
    }

    /// Begins a check: call this before anything is read.
    pub fn begin(&self) -> ToolCheckRound {
        ToolCheckRound(self.requested.load(Ordering::SeqCst))
    }

    /// Ends a check.
    pub fn finish(&self, round: ToolCheckRound) {
        self.answered.send_modify(|answered| *answered = round.0.max(*answered));
    }

    /// Completes once a check that began after this request has ended.
    pub async fn until_answered(&self, request: ToolCheckRound) {
        let mut answered = self.answered.subscribe();
        // The sender is in `self`: it cannot be gone.
        let _ended = answered.wait_for(|answered| *answered >= request.0).await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::ToolChecks;

    /// Whether this future is complete after one poll.
    fn is_ready(future: impl Future<Output = ()>) -> bool {
        matches!(pin!(future).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
    }

    #[test]
    fn a_check_that_was_under_way_does_not_answer_a_later_request() {
        let checks = ToolChecks::new();
        let under_way = checks.begin();
        let request = checks.request();
        checks.finish(under_way);
        assert!(!is_ready(checks.until_answered(request)), "this check had read the acceptances before the request");
        assert!(is_ready(checks.requested()), "the server is checked again");
        let next = checks.begin();
        assert!(!is_ready(checks.until_answered(request)), "it has not ended");
        checks.finish(next);
        assert!(is_ready(checks.until_answered(request)));
    }

    #[test]
    fn one_check_answers_every_request_before_it_and_a_slow_one_takes_nothing_back() {
        let checks = ToolChecks::new();
        let slow = checks.begin();
        let requests = [checks.request(), checks.request()];
        checks.finish(checks.begin());
        checks.finish(slow);
        assert!(requests.into_iter().all(|request| is_ready(checks.until_answered(request))));
        assert!(is_ready(checks.requested()));
        assert!(!is_ready(checks.requested()), "two requests wake it once");
    }
}
