//! Tools of mounted servers and their pins.

use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName};
use sluice_store::{
    AlertFilter, MessageSeverity, PinnedTool, SeenTool, ToolEffectClaim, ToolReviewReason, definition_digest,
};
use sluice_testkit::TestStore;

use crate::engines::{across_restarts, code, everywhere, operator, recorded};

fn seen(tool: &str, definition: &str) -> SeenTool {
    SeenTool { tool: tool.into(), definition: definition.into(), suspicious: false }
}

fn note(world: &TestStore, n: u128, list: &[SeenTool]) -> Vec<PinnedTool> {
    world.wait(world.store.record_mount_tools("git", list.to_vec(), MessageId::from_bits(n))).unwrap()
}

fn why(pins: &[PinnedTool], tool: &str) -> Option<ToolReviewReason> {
    pins.iter().find(|pin| pin.tool == tool).unwrap().waiting.as_ref().map(|(_, why, _)| *why)
}

fn alerts(world: &TestStore) -> usize {
    let filter = AlertFilter { open_only: true, severity_at_least: MessageSeverity::Warning, agent: None };
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
            (Some(ToolReviewReason::Changed), None, Some(ToolReviewReason::New))
        );
        assert_eq!((recorded(world, "mount.changed"), alerts(world)), (1, 1));
        // The same definitions again are not new.
        assert_eq!(note(world, 3, &[seen("status", "{\"a\":2}"), seen("push", "{}")]).len(), 3);
        assert_eq!((recorded(world, "mount.changed"), alerts(world)), (1, 1));
        // A definition that keeps changing while it waits is stored, and people are not notified again.
        assert_eq!(
            why(&note(world, 5, &[seen("status", "{\"a\":3}"), seen("push", "{}")]), "status"),
            Some(ToolReviewReason::Changed)
        );
        assert_eq!((recorded(world, "mount.changed"), alerts(world)), (2, 1));
        // Back to the accepted definition: nothing waits.
        assert_eq!(why(&note(world, 4, &[seen("status", "{\"a\":1}")]), "status"), None);
        assert_eq!(world.wait(world.store.mount_tools("other")).unwrap(), []);
    });
}

#[test]
fn what_looks_like_an_attack_waits_even_at_first() {
    everywhere(|world| {
        let evil = SeenTool { suspicious: true, ..seen("evil", "{\"e\":1}") };
        let pins = note(world, 1, &[seen("status", "{}"), evil]);
        assert_eq!((why(&pins, "status"), why(&pins, "evil")), (None, Some(ToolReviewReason::Suspicious)));
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
            world.wait(world.store.accept_mount("git", tools, ToolEffectClaim::Unsaid, by))
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
        assert_eq!(why(&note(&world, 2, &[seen("status", "{\"a\":2}")]), "status"), Some(ToolReviewReason::Changed));
        world
    });
}

#[test]
fn a_tool_reads_only_by_a_persons_word_and_a_change_takes_it_back() {
    everywhere(|world| {
        let first = note(world, 1, &[seen("status", "{\"a\":1}")]);
        assert!(first[0].read_only.is_none(), "the server's word is not enough");
        let accept = |text: &str, effects: ToolEffectClaim, by: Actor| {
            let tools = vec![("status".to_owned(), definition_digest(text))];
            world.wait(world.store.accept_mount("git", tools, effects, by))
        };
        let reads = || world.wait(world.store.mount_tools("git")).unwrap()[0].read_only.clone().map(|(by, _)| by);
        let agent = Actor::Agent(AgentName::new("clerk").unwrap());
        assert_eq!(code(accept("{\"a\":1}", ToolEffectClaim::ReadOnly, agent)), "approval.not_an_approver");
        assert_eq!(code(accept("{\"a\":9}", ToolEffectClaim::ReadOnly, operator())), "store.conflict");
        assert_eq!(reads(), None);
        accept("{\"a\":1}", ToolEffectClaim::ReadOnly, operator()).unwrap();
        assert_eq!(reads().as_deref(), Some("operator:olga"));
        assert_eq!((recorded(world, "mount.read_only"), recorded(world, "mount.accepted")), (1, 0));
        // The same definition again: the mark stays. A different one, even for a moment: the mark is removed.
        assert!(note(world, 2, &[seen("status", "{\"a\":1}")])[0].read_only.is_some());
        assert!(note(world, 3, &[seen("status", "{\"a\":2}")])[0].read_only.is_none());
        assert!(note(world, 4, &[seen("status", "{\"a\":1}")])[0].read_only.is_none());
        assert_eq!(reads(), None);
        // A waiting definition is accepted as a write unless the same decision says otherwise.
        note(world, 5, &[seen("status", "{\"a\":2}")]);
        accept("{\"a\":2}", ToolEffectClaim::Unsaid, operator()).unwrap();
        assert_eq!(reads(), None);
        note(world, 6, &[seen("status", "{\"a\":3}")]);
        accept("{\"a\":3}", ToolEffectClaim::ReadOnly, operator()).unwrap();
        assert!(reads().is_some());
        accept("{\"a\":3}", ToolEffectClaim::Write, operator()).unwrap();
        assert_eq!((reads(), recorded(world, "mount.writes")), (None, 1));
        assert_eq!(code(accept("{\"a\":3}", ToolEffectClaim::Unsaid, operator())), "store.not_found");
    });
}
