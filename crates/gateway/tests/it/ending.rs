//! A gateway that cannot go on ends, instead of standing there half at work.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::Millis;
use sluice_gateway::{FatalGatewayError, GatewayPhase, loops};
use tokio::sync::watch;

use super::test_gateway::{TestGateway, TestGatewayPlan};

#[tokio::test]
async fn a_loop_that_breaks_off_takes_the_gateway_with_it() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let (tell, told) = watch::channel(false);
    let watched = async {
        // The loops begin; then the release loop sees the clock jump, and wants an id to tell people.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        house.run_out_of_ids();
        house.clock.jump(house.gw.now() + Millis::from_hours(5));
        let lost = tokio::time::timeout(Duration::from_secs(20), house.gw.wait_for_failure()).await;
        assert_eq!(lost, Ok(FatalGatewayError::Loop));
        assert_eq!(house.gw.phase(), GatewayPhase::Stopping, "nothing new is taken");
        tell.send_replace(true);
    };
    let all = async { tokio::join!(loops::run(Arc::clone(&house.gw), told), watched) };
    tokio::time::timeout(Duration::from_secs(40), all).await.expect("the other loops end when told");
}
