//! Policies that were in force: every activation is listed, also of a policy that comes back.

use sluice_core::Millis;

use crate::engines::{everywhere, operator, recorded};

#[test]
fn rules_that_come_back_are_a_new_line_of_the_history() {
    everywhere(|world| {
        let load = |version: &str| {
            let sources = format!("{{\"org.yaml\":\"# {version}\"}}");
            world.wait(world.store.record_policy_loaded(version.into(), sources, operator())).unwrap();
        };
        let history = || -> Vec<_> {
            let lines = world.wait(world.store.policy_history(10)).unwrap();
            lines.into_iter().map(|line| (line.version, line.sources, line.at)).collect()
        };
        let line = |version: &str, at| (version.to_owned(), format!("{{\"org.yaml\":\"# {version}\"}}"), at);
        let first = world.now();
        load("a");
        // Activations within the same moment stay in order.
        load("b");
        world.clock.advance(Millis::from_secs(1));
        load("a");
        assert_eq!(history(), [line("a", world.now()), line("b", first), line("a", first)]);
        assert_eq!(world.wait(world.store.policy("a")).unwrap().unwrap().at, world.now());
        assert_eq!(recorded(world, "policy.loaded"), 3);
    });
}

#[test]
fn a_text_is_kept_once_and_goes_when_it_was_out_of_force_for_its_time() {
    everywhere(|world| {
        let day = Millis::from_hours(24);
        let load = |version: &str| {
            let sources = format!("{{\"org.yaml\":\"# {version}\"}}");
            world.wait(world.store.record_policy_loaded(version.into(), sources, operator())).unwrap();
        };
        let forget = |limit| world.wait(world.store.forget_policies(world.now(), day, limit)).unwrap();
        let is_there = |version: &str| world.wait(world.store.policy(version)).unwrap().is_some();
        for version in ["a", "b", "a", "b", "c"] {
            load(version);
        }
        world.clock.advance(Millis::from_hours(23));
        assert_eq!(forget(10), 0, "replaced less than its time ago");
        load("b");
        world.clock.advance(Millis::from_hours(2));
        // Four lines were replaced 25 hours ago; the line of `c` two hours ago.
        let ahead = world.now() + Millis::from_hours(1_000);
        assert_eq!(
            world.wait(world.store.forget_policies(ahead, day, 10)).unwrap(),
            4,
            "only what is over by the store's clock"
        );
        assert_eq!(forget(10), 1, "the text of `a`");
        assert!(!is_there("a") && is_there("b") && is_there("c"));
        world.clock.advance(Millis::from_hours(10_000));
        while forget(1) > 0 {}
        assert!(is_there("b") && !is_there("c"), "rules in force stay, however old they are");
        load("c");
        assert!(is_there("c"), "and what went may come back");
        assert_eq!(world.wait(world.store.policy_history(10)).unwrap().len(), 2);
    });
}
