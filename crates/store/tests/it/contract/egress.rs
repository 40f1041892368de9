//! Egress connections: counted together, across restarts and nodes.

use sluice_core::Millis;
use sluice_core::ids::ConnectionName;
use sluice_core::throttle::{BreakerConfig, ConnectionLimits, ThrottleReason};
use sluice_store::{EgressQuotaOutcome, RecordServiceReply, TakeEgressQuota, UnusedEgressQuota};
use sluice_testkit::TestStore;

use crate::engines::{across_restarts, agent, code, everywhere, message, messages, operator, recorded, with_two_nodes};

pub fn web() -> ConnectionName {
    ConnectionName::new("web").unwrap()
}

pub fn take(world: &TestStore, limits: ConnectionLimits, wanted: u32) -> EgressQuotaOutcome {
    take_giving_back(world, limits, wanted, None)
}

fn take_giving_back(
    world: &TestStore,
    limits: ConnectionLimits,
    wanted: u32,
    unused: Option<UnusedEgressQuota>,
) -> EgressQuotaOutcome {
    let breaker = BreakerConfig::default();
    let take = TakeEgressQuota { connection: web(), limits, wanted, breaker, unused, message: message(world) };
    world.wait(world.store.take_egress_quota(take)).unwrap()
}

fn granted(world: &TestStore) -> u32 {
    match take(world, ConnectionLimits::default(), 1) {
        EgressQuotaOutcome::Granted { many, .. } => many,
        EgressQuotaOutcome::Refused { .. } => 0,
    }
}

fn stop(world: &TestStore) -> Option<ThrottleReason> {
    match take(world, ConnectionLimits::default(), 1) {
        EgressQuotaOutcome::Granted { .. } => None,
        EgressQuotaOutcome::Refused { stop, .. } => Some(stop),
    }
}

pub fn heard(world: &TestStore, status: u16) {
    let heard = RecordServiceReply {
        connection: web(),
        status: Some(status),
        retry_after: None,
        jitter: 0,
        breaker: BreakerConfig::default(),
        message: message(world),
    };
    world.wait(world.store.record_service_reply(heard)).unwrap();
}

#[test]
fn ten_fit_a_minute_and_a_restart_forgets_none() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        assert_eq!((0..6).map(|_| granted(&world)).sum::<u32>(), 6);
        drop(world);
        let world = place.open("gw-1");
        assert_eq!((0..6).map(|_| granted(&world)).sum::<u32>(), 4);
        let EgressQuotaOutcome::Refused { stop: ThrottleReason::Minute, again: Some(again) } =
            take(&world, ConnectionLimits::default(), 1)
        else {
            panic!("the eleventh went out")
        };
        place.clock.advance(again.since(world.now()));
        assert_eq!(granted(&world), 1, "at the time it was told");
        world
    });
}

#[test]
fn a_hundred_fit_an_hour_and_two_hundred_altogether_until_a_person_looks() {
    everywhere(|world| {
        let mut went = 0;
        for _ in 0..20 {
            went += (0..10).map(|_| granted(world)).sum::<u32>();
            world.clock.advance(Millis::from_secs(61));
        }
        assert_eq!(went, 100);
        world.clock.advance(Millis::from_hours(1));
        for _ in 0..12 {
            went += (0..10).map(|_| granted(world)).sum::<u32>();
            world.clock.advance(Millis::from_secs(61));
        }
        assert_eq!(went, 200);
        world.clock.advance(Millis::from_hours(5));
        assert_eq!(stop(world), Some(ThrottleReason::Burn));
        assert_eq!(stop(world), Some(ThrottleReason::Burn));
        assert_eq!(messages(world, "egress.burned").len(), 1, "people are notified once");
        assert_eq!(code(world.wait(world.store.egress_reset(web(), agent("clerk")))), "approval.not_an_approver");
        world.wait(world.store.egress_reset(web(), operator())).unwrap();
        assert_eq!(granted(world), 1);
        assert_eq!(recorded(world, "egress.reset"), 1);
    });
}

#[test]
fn several_are_granted_at_once_and_all_of_them_are_counted() {
    everywhere(|world| {
        let wide = ConnectionLimits { per_minute: Some(100), per_hour: None, burn: None };
        let many = |wanted| match take(world, wide, wanted) {
            EgressQuotaOutcome::Granted { many, .. } => many,
            EgressQuotaOutcome::Refused { .. } => 0,
        };
        assert_eq!([many(64), many(64), many(64)], [64, 36, 0]);
        let states = world.wait(world.store.egress_states(world.now())).unwrap();
        assert_eq!((states[0].used.minute, states[0].used.burned), (100, 100));
    });
}

#[test]
fn three_refusals_close_the_way_for_all_until_one_request_got_through() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        for _ in 0..3 {
            assert_eq!(granted(&world), 1);
            heard(&world, 429);
        }
        assert!(matches!(stop(&world), Some(ThrottleReason::Open { .. })));
        assert_eq!((messages(&world, "egress.opened").len(), recorded(&world, "egress.opened")), (1, 1));
        drop(world);
        let world = place.open("gw-1");
        place.clock.advance(Millis::from_secs(29));
        assert!(matches!(stop(&world), Some(ThrottleReason::Open { .. })), "a restart opens nothing");
        place.clock.advance(Millis::from_secs(1));
        assert_eq!(granted(&world), 1);
        assert!(matches!(stop(&world), Some(ThrottleReason::Probing { .. })));
        heard(&world, 200);
        assert_eq!(stop(&world), None);
        assert_eq!(recorded(&world, "egress.closed"), 1);
        world
    });
}

#[test]
fn two_nodes_share_one_count_and_one_breaker() {
    with_two_nodes(|one, two| {
        assert_eq!((0..7).map(|_| granted(one)).sum::<u32>(), 7);
        assert_eq!((0..7).map(|_| granted(two)).sum::<u32>(), 3);
        for world in [one, two, one] {
            heard(world, 429);
        }
        assert!(matches!(stop(two), Some(ThrottleReason::Open { .. })));
    });
}

#[test]
fn leave_that_was_not_used_is_given_back_and_what_a_person_reset_is_not_taken_out_again() {
    everywhere(|world| {
        let wide = ConnectionLimits { per_minute: None, per_hour: None, burn: None };
        let used = || {
            let states = world.wait(world.store.egress_states(world.now())).unwrap();
            (states[0].used.minute, states[0].used.hour, states[0].used.burned)
        };
        let EgressQuotaOutcome::Granted { many: 20, taken_at, .. } = take(world, wide, 20) else {
            panic!("nothing is limited")
        };
        assert_eq!(used(), (20, 20, 20), "counted before anything leaves: a crash now counts too many, never too few");
        world.clock.advance(Millis::from_secs(2));
        let unused = Some(UnusedEgressQuota { taken_at, many: 19 });
        assert!(matches!(take_giving_back(world, wide, 1, unused), EgressQuotaOutcome::Granted { many: 1, .. }));
        assert_eq!(used(), (2, 2, 2), "one was made before, one now");
        // A person reset the counts meanwhile: the slot is gone, and nothing can be subtracted from it.
        let EgressQuotaOutcome::Granted { taken_at, .. } = take(world, wide, 20) else { panic!("nothing is limited") };
        world.wait(world.store.egress_reset(web(), operator())).unwrap();
        world.clock.advance(Millis::from_secs(1));
        take(world, wide, 3);
        world.clock.advance(Millis::from_secs(1));
        take_giving_back(world, wide, 1, Some(UnusedEgressQuota { taken_at, many: 19 }));
        assert_eq!(used(), (4, 4, 4), "never fewer than were made");
    });
}

#[test]
fn a_reset_and_a_refusal_keep_what_was_given_back() {
    everywhere(|world| {
        let wide = ConnectionLimits { per_minute: Some(30), per_hour: None, burn: None };
        let EgressQuotaOutcome::Granted { many: 20, taken_at, .. } = take(world, wide, 20) else { panic!("20 of 30") };
        for _ in 0..3 {
            heard(world, 429);
        }
        let refused = take_giving_back(world, wide, 1, Some(UnusedEgressQuota { taken_at, many: 15 }));
        assert!(
            matches!(refused, EgressQuotaOutcome::Refused { stop: ThrottleReason::Open { .. }, .. }),
            "{refused:?}"
        );
        let states = world.wait(world.store.egress_states(world.now())).unwrap();
        assert_eq!((states[0].used.hour, states[0].used.burned), (5, 5));
    });
}
