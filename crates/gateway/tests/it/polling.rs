//! Listening has a floor: whoever answers at once is not asked as fast as the processor can.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluice_core::BoxedFuture;
use sluice_gateway::Gateway;
use sluice_gateway::channels::{ApprovalMessage, Channel, ChannelError};
use sluice_gateway::loops::outbox::listen;
use tokio::sync::watch;

use crate::test_gateway::{TestGateway, TestGatewayPlan};

/// A server that has nothing to say and says so at once.
#[derive(Debug, Default)]
struct HastyTestServer {
    asked: AtomicUsize,
}

impl Channel for HastyTestServer {
    fn name(&self) -> &'static str {
        "telegram"
    }

    fn max_message_chars(&self) -> usize {
        4_000
    }

    fn show<'a>(&'a self, _: &'a ApprovalMessage) -> BoxedFuture<'a, Result<String, ChannelError>> {
        Box::pin(std::future::ready(Ok("1".into())))
    }

    fn edit<'a>(&'a self, _: &'a str, _: &'a str, _: &'a str) -> BoxedFuture<'a, Result<(), ChannelError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn say<'a>(&'a self, _: &'a str, _: Option<&'a str>, _: &'a str) -> BoxedFuture<'a, Result<(), ChannelError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive_answers<'a>(&'a self, _: &'a Gateway) -> BoxedFuture<'a, Result<(), ChannelError>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_server_that_answers_at_once_is_asked_twice_a_second() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let channel = Arc::new(HastyTestServer::default());
    let (stop, stopped) = watch::channel(false);
    let listening = listen(Arc::clone(&house.gw), Arc::clone(&channel) as Arc<dyn Channel>, stopped);
    // Without a floor it would be asked some ten thousand times; however slow the machine is, never more often than this.
    tokio::time::timeout(Duration::from_millis(1_200), listening).await.unwrap_err();
    drop(stop);
    let asked = channel.asked.load(Ordering::SeqCst);
    assert!((1..=3).contains(&asked), "{asked} times in 1.2 seconds");
}
