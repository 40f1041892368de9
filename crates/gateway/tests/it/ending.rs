//! A gateway that cannot go on ends, instead of standing there half at work.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::Span;
use sluice_gateway::{Lost, Phase, loops};
use tokio::sync::watch;

use super::house::{House, Plan};

#[tokio::test]
async fn a_loop_that_breaks_off_takes_the_gateway_with_it() {
    let house = House::new(Plan::default()).await;
    let (tell, told) = watch::channel(false);
    let watched = async {
        // The loops begin; then the release loop sees the clock jump, and wants an id to tell people.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        house.run_out_of_ids();
        house.clock.jump(house.gw.now() + Span::from_hours(5));
        let lost = tokio::time::timeout(Duration::from_secs(20), house.gw.lost()).await;
        assert_eq!(lost, Ok(Lost::Loop));
        assert_eq!(house.gw.phase(), Phase::Stopping, "nothing new is taken");
        tell.send_replace(true);
    };
    let all = async { tokio::join!(loops::run(Arc::clone(&house.gw), told), watched) };
    tokio::time::timeout(Duration::from_secs(40), all).await.expect("the other loops end when told");
}
