//! Rules that were in force: each time they came, also when they came back.

use sluice_core::Span;

use crate::engines::{everywhere, operator, recorded};

#[test]
fn rules_that_come_back_are_a_new_line_of_the_history() {
    everywhere(|world| {
        let load = |version: &str| {
            let sources = format!("{{\"org.yaml\":\"# {version}\"}}");
            world.wait(world.store.policy_loaded(version.into(), sources, operator())).unwrap();
        };
        let history = || -> Vec<_> {
            let lines = world.wait(world.store.policy_history(10)).unwrap();
            lines.into_iter().map(|line| (line.version, line.sources, line.at)).collect()
        };
        let line = |version: &str, at| (version.to_owned(), format!("{{\"org.yaml\":\"# {version}\"}}"), at);
        let first = world.now();
        load("a");
        // Within the same moment they stay in order.
        load("b");
        world.clock.advance(Span::from_secs(1));
        load("a");
        assert_eq!(history(), [line("a", world.now()), line("b", first), line("a", first)]);
        assert_eq!(world.wait(world.store.policy("a")).unwrap().unwrap().at, world.now());
        assert_eq!(recorded(world, "policy.loaded"), 3);
    });
}
