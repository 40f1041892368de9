//! Tools of mounted servers and their pins.

use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName};
use sluice_store::{AlertFilter, Effects, PinnedTool, SeenTool, Severity, WaitsFor, definition_digest};
use sluice_testkit::World;

use crate::engines::{across_restarts, code, everywhere, operator, recorded};

fn seen(tool: &str, definition: &str) -> SeenTool {
    SeenTool { tool: tool.into(), definition: definition.into(), suspicious: false }
}

fn note(world: &World, n: u128, list: &[SeenTool]) -> Vec<PinnedTool> {
    world.wait(world.store.note_mount("git", list.to_vec(), MessageId::from_bits(n))).unwrap()
}

fn why(pins: &[PinnedTool], tool: &str) -> Option<WaitsFor> {
    pins.iter().find(|pin| pin.tool == tool).unwrap().waiting.as_ref().map(|(_, why, _)| *why)
}

fn alerts(world: &World) -> usize {
    let filter = AlertFilter { open_only: true, severity_at_least: Severity::Warning, agent: None };
    world.wait(world.store.alerts(filter, None, 100)).unwrap().len()
}

#[test]
fn what_is_said_at_first_is_pinned_and_whatever_differs_later_waits() {
    everywhere(|world| {
        let pins = note(world, 1, &[seen("status", "{\"a\":1}"), seen("commit", "{\"b\":1}")]);
        assert!(pins.iter().all(|pin| pin.accepted.is_some() && pin.waiting.is_none()));
        assert_eq!((recorded(world, "mount.pinned"), alerts(world)), (1, 0));
        let pins = note(world, 2, &[seen("status", "{\"a\":2}"), seen("commit", "{\"b\":1}"), seen("push", "{}")]);
        assert_eq!(
            (why(&pins, "status"), why(&pins, "commit"), why(&pins, "push")),
            (Some(WaitsFor::Changed), None, Some(WaitsFor::New))
        );
        assert_eq!((recorded(world, "mount.changed"), alerts(world)), (1, 1));
        // The same again is no news.
        assert_eq!(note(world, 3, &[seen("status", "{\"a\":2}"), seen("push", "{}")]).len(), 3);
        assert_eq!((recorded(world, "mount.changed"), alerts(world)), (1, 1));
        // One that keeps changing while it waits is written down, and people are not told again.
        assert_eq!(
            why(&note(world, 5, &[seen("status", "{\"a\":3}"), seen("push", "{}")]), "status"),
            Some(WaitsFor::Changed)
        );
        assert_eq!((recorded(world, "mount.changed"), alerts(world)), (2, 1));
        // Back to what was accepted: nothing waits.
        assert_eq!(why(&note(world, 4, &[seen("status", "{\"a\":1}")]), "status"), None);
        assert_eq!(world.wait(world.store.mount_tools("other")).unwrap(), []);
    });
}

#[test]
fn what_looks_like_an_attack_waits_even_at_first() {
    everywhere(|world| {
        let evil = SeenTool { suspicious: true, ..seen("evil", "{\"e\":1}") };
        let pins = note(world, 1, &[seen("status", "{}"), evil]);
        assert_eq!((why(&pins, "status"), why(&pins, "evil")), (None, Some(WaitsFor::Suspicious)));
        assert!(pins.iter().find(|pin| pin.tool == "evil").unwrap().accepted.is_none());
    });
}

#[test]
fn a_yes_is_bound_to_what_was_shown_and_is_a_persons() {
    everywhere(|world| {
        note(world, 1, &[seen("status", "{\"a\":1}")]);
        note(world, 2, &[seen("status", "{\"a\":2}")]);
        let accept = |tool: &str, text: &str, by: Actor| {
            let tools = vec![(tool.to_owned(), definition_digest(text))];
            world.wait(world.store.accept_mount("git", tools, Effects::Unsaid, by))
        };
        let agent = Actor::Agent(AgentName::new("clerk").unwrap());
        assert_eq!(code(accept("status", "{\"a\":2}", agent)), "approval.not_an_approver");
        assert_eq!(code(accept("status", "{\"a\":1}", operator())), "store.conflict");
        assert_eq!(code(accept("push", "{}", operator())), "store.not_found");
        accept("status", "{\"a\":2}", operator()).unwrap();
        let pins = world.wait(world.store.mount_tools("git")).unwrap();
        let (text, by, _) = pins[0].accepted.clone().unwrap();
        assert_eq!((text.as_str(), by.as_str(), pins[0].waiting.is_none()), ("{\"a\":2}", "operator:olga", true));
        assert_eq!(recorded(world, "mount.accepted"), 1);
    });
}

#[test]
fn pins_outlive_a_restart() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        note(&world, 1, &[seen("status", "{\"a\":1}")]);
        drop(world);
        let world = place.open("gw-1");
        assert_eq!(why(&note(&world, 2, &[seen("status", "{\"a\":2}")]), "status"), Some(WaitsFor::Changed));
        world
    });
}

#[test]
fn a_tool_reads_only_by_a_persons_word_and_a_change_takes_it_back() {
    everywhere(|world| {
        let first = note(world, 1, &[seen("status", "{\"a\":1}")]);
        assert!(first[0].read_only.is_none(), "the server's word is not enough");
        let accept = |text: &str, effects: Effects, by: Actor| {
            let tools = vec![("status".to_owned(), definition_digest(text))];
            world.wait(world.store.accept_mount("git", tools, effects, by))
        };
        let reads = || world.wait(world.store.mount_tools("git")).unwrap()[0].read_only.clone().map(|(by, _)| by);
        let agent = Actor::Agent(AgentName::new("clerk").unwrap());
        assert_eq!(code(accept("{\"a\":1}", Effects::ReadOnly, agent)), "approval.not_an_approver");
        assert_eq!(code(accept("{\"a\":9}", Effects::ReadOnly, operator())), "store.conflict");
        assert_eq!(reads(), None);
        accept("{\"a\":1}", Effects::ReadOnly, operator()).unwrap();
        assert_eq!(reads().as_deref(), Some("operator:olga"));
        assert_eq!((recorded(world, "mount.read_only"), recorded(world, "mount.accepted")), (1, 0));
        // Said again exactly so: it stays. Said otherwise, even for a moment: it is gone.
        assert!(note(world, 2, &[seen("status", "{\"a\":1}")])[0].read_only.is_some());
        assert!(note(world, 3, &[seen("status", "{\"a\":2}")])[0].read_only.is_none());
        assert!(note(world, 4, &[seen("status", "{\"a\":1}")])[0].read_only.is_none());
        assert_eq!(reads(), None);
        // What waits is accepted as a write unless the same word says otherwise.
        note(world, 5, &[seen("status", "{\"a\":2}")]);
        accept("{\"a\":2}", Effects::Unsaid, operator()).unwrap();
        assert_eq!(reads(), None);
        note(world, 6, &[seen("status", "{\"a\":3}")]);
        accept("{\"a\":3}", Effects::ReadOnly, operator()).unwrap();
        assert!(reads().is_some());
        accept("{\"a\":3}", Effects::Write, operator()).unwrap();
        assert_eq!((reads(), recorded(world, "mount.writes")), (None, 1));
        assert_eq!(code(accept("{\"a\":3}", Effects::Unsaid, operator())), "store.not_found");
    });
}
