//! Listening has a floor: whoever answers at once is not asked as fast as the processor can.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluice_gateway::Gateway;
use sluice_gateway::channels::{Channel, Fault, Letter};
use sluice_gateway::loops::outbox::listen;
use sluice_gateway::services::Work;
use tokio::sync::watch;

use crate::house::{House, Plan};

/// A server that has nothing to say and says so at once.
#[derive(Debug, Default)]
struct Hasty {
    asked: AtomicUsize,
}

impl Channel for Hasty {
    fn name(&self) -> &'static str {
        "telegram"
    }

    fn room(&self) -> usize {
        4_000
    }

    fn show<'a>(&'a self, _: &'a Letter) -> Work<'a, Result<String, Fault>> {
        Box::pin(std::future::ready(Ok("1".into())))
    }

    fn edit<'a>(&'a self, _: &'a str, _: &'a str, _: &'a str) -> Work<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn say<'a>(&'a self, _: &'a str, _: Option<&'a str>, _: &'a str) -> Work<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn hear<'a>(&'a self, _: &'a Gateway) -> Work<'a, Result<(), Fault>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_server_that_answers_at_once_is_asked_twice_a_second() {
    let house = House::new(Plan::default()).await;
    let channel = Arc::new(Hasty::default());
    let (stop, stopped) = watch::channel(false);
    let listening = listen(Arc::clone(&house.gw), Arc::clone(&channel) as Arc<dyn Channel>, stopped);
    // Without a floor it would be asked some ten thousand times; however slow the machine is, never more often than this.
    tokio::time::timeout(Duration::from_millis(1_200), listening).await.unwrap_err();
    drop(stop);
    let asked = channel.asked.load(Ordering::SeqCst);
    assert!((1..=3).contains(&asked), "{asked} times in 1.2 seconds");
}
