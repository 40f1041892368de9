//! The state of agents: values they store.

use sluice_core::ids::SessionId;
use sluice_core::{AgentName, HoldId, Millis};
use sluice_store::{LONGEST_VALUE, SetState, StateChanged, StateItem, StateScope, StoreError};
use sluice_testkit::TestStore;

use crate::checker;
use crate::engines::{across_restarts, agent, code, everywhere, operator, recorded, with_two_nodes};

fn clerk() -> AgentName {
    AgentName::new("clerk").unwrap()
}

fn own() -> StateScope {
    StateScope::Persistent(clerk())
}

fn session(world: &TestStore) -> SessionId {
    let id = SessionId::mint(world.ids.as_ref());
    world.wait(world.store.open_session(id, clerk(), None, None)).unwrap();
    id
}

fn setting(world: &TestStore, shelf: &StateScope, key: &str, value: &str) -> SetState {
    SetState {
        hold: HoldId::mint(world.ids.as_ref()),
        shelf: shelf.clone(),
        key: key.into(),
        value: value.into(),
        by: clerk(),
        expected: None,
        quota: 1 << 30,
    }
}

fn apply(world: &TestStore, set: SetState) -> Result<StateChanged, StoreError> {
    world.wait(world.store.state_set(set))
}

fn set(world: &TestStore, shelf: &StateScope, key: &str, value: &str) -> StateChanged {
    apply(world, setting(world, shelf, key, value)).unwrap()
}

fn delete(world: &TestStore, hold: HoldId, key: &str, expected: Option<u64>) -> Result<Option<StateItem>, StoreError> {
    world.wait(world.store.state_delete(hold, own(), key.into(), clerk(), expected))
}

fn new_hold(world: &TestStore) -> HoldId {
    HoldId::mint(world.ids.as_ref())
}

fn get(world: &TestStore, shelf: &StateScope, key: &str, version: Option<u64>) -> Option<StateItem> {
    world.wait(world.store.state_get(shelf.clone(), key.into(), version)).unwrap()
}

fn value(world: &TestStore, shelf: &StateScope, key: &str) -> Option<String> {
    get(world, shelf, key, None).map(|item| item.value)
}

fn listed(world: &TestStore, shelf: &StateScope, prefix: &str, after: Option<&str>, limit: u32) -> Vec<String> {
    let items = world.wait(world.store.state_list(shelf.clone(), prefix.into(), after.map(Into::into), limit));
    items.unwrap().into_iter().map(|item| item.key).collect()
}

#[test]
fn what_is_set_is_there_after_a_restart_with_its_version_and_times() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        let first = world.now();
        assert_eq!(set(&world, &own(), "plan", "1"), StateChanged { version: 1, previous: None });
        place.clock.advance(Millis::from_secs(5));
        let changed = set(&world, &own(), "plan", r#"{"a":2}"#);
        assert_eq!((changed.version, changed.previous.unwrap().value.as_str()), (2, "1"));
        drop(world);
        let world = place.open("gw-1");
        let item = get(&world, &own(), "plan", None).unwrap();
        assert_eq!((item.value.as_str(), item.version, item.size), (r#"{"a":2}"#, 2, 11));
        assert_eq!((item.created_at, item.updated_at, item.by), (first, world.now(), clerk()));
        assert_eq!(get(&world, &own(), "plan", Some(1)).unwrap().value, "1");
        assert_eq!(get(&world, &own(), "plan", Some(3)), None);
        assert_eq!(get(&world, &own(), "other", None), None);
        world
    });
}

#[test]
fn shelves_do_not_see_each_other() {
    everywhere(|world| {
        let (one, two) = (StateScope::Session(session(world)), StateScope::Session(session(world)));
        let theirs = StateScope::Persistent(AgentName::new("scout").unwrap());
        let shelves = [one, two, own(), theirs, StateScope::Shared];
        for (n, shelf) in shelves.iter().enumerate() {
            assert_eq!(value(world, shelf, "k"), None);
            set(world, shelf, "k", &n.to_string());
        }
        for (n, shelf) in shelves.iter().enumerate() {
            assert_eq!(value(world, shelf, "k"), Some(n.to_string()));
            assert_eq!(world.wait(world.store.state_usage(shelf.clone())).unwrap(), 2);
        }
    });
}

#[test]
fn the_same_write_twice_changes_nothing_the_second_time_and_answers_the_same() {
    everywhere(|world| {
        set(world, &own(), "k", "0");
        let first = setting(world, &own(), "k", "1");
        let answer = apply(world, first.clone()).unwrap();
        assert_eq!(apply(world, first.clone()).unwrap(), answer);
        let gone = new_hold(world);
        let deleted = delete(world, gone, "k", None).unwrap();
        assert_eq!(deleted.as_ref().map(|item| item.value.as_str()), Some("1"));
        assert_eq!(delete(world, gone, "k", None).unwrap(), deleted);
        set(world, &own(), "k", "3");
        assert_eq!(apply(world, first).unwrap(), answer, "no matter what came after it");
        assert_eq!(delete(world, gone, "k", None).unwrap(), deleted);
        assert_eq!(value(world, &own(), "k").as_deref(), Some("3"));
        assert_eq!((recorded(world, "state.set"), recorded(world, "state.deleted")), (3, 1));
    });
}

#[test]
fn the_same_clearing_twice_spares_what_came_in_between() {
    everywhere(|world| {
        let id = session(world);
        let shelf = StateScope::Session(id);
        let clear = |hold| world.wait(world.store.state_clear(hold, id)).unwrap();
        let (empty, full) = (new_hold(world), new_hold(world));
        assert_eq!(clear(empty), 0);
        set(world, &shelf, "a", "1");
        set(world, &shelf, "b", "2");
        assert_eq!(clear(empty), 0, "it has been carried out");
        assert_eq!(clear(full), 2);
        assert_eq!(listed(world, &shelf, "", None, 9), [""; 0]);
        set(world, &shelf, "a", "3");
        assert_eq!(clear(full), 2);
        assert_eq!(value(world, &shelf, "a").as_deref(), Some("3"));
        let unknown = world.wait(world.store.state_clear(new_hold(world), SessionId::from_bits(9)));
        assert_eq!(code(unknown), "store.not_found");
    });
}

#[test]
fn nobody_writes_over_a_version_they_have_not_seen() {
    everywhere(|world| {
        let expecting = |expected| SetState { expected, ..setting(world, &StateScope::Shared, "k", "x") };
        let current = |answer: Result<StateChanged, StoreError>| match answer {
            Err(StoreError::VersionConflict { current }) => current,
            other => panic!("{other:?}"),
        };
        assert_eq!(current(apply(world, expecting(Some(1)))), 0);
        assert_eq!(apply(world, expecting(Some(0))).unwrap().version, 1);
        assert_eq!(current(apply(world, expecting(Some(0)))), 1);
        assert_eq!(apply(world, expecting(Some(1))).unwrap().version, 2);
        assert_eq!(code(apply(world, expecting(Some(1)))), "state.conflict");
        set(world, &own(), "k", "1");
        assert_eq!(code(delete(world, new_hold(world), "k", Some(2))), "state.conflict");
        assert!(delete(world, new_hold(world), "k", Some(1)).unwrap().is_some());
        assert_eq!(delete(world, new_hold(world), "k", None).unwrap(), None);
        let again = setting(world, &own(), "k", "2");
        let again = apply(world, SetState { expected: Some(0), ..again }).unwrap();
        assert_eq!(
            (again.version, again.previous),
            (3, None),
            "a deleted value is not there, and never version 1 again"
        );
    });
}

#[test]
fn of_two_nodes_that_expect_one_version_one_wins() {
    with_two_nodes(|one, two| {
        for round in 0..10_u64 {
            let expecting = |world| SetState { expected: Some(round), ..setting(world, &StateScope::Shared, "k", "x") };
            let (mine, theirs) = (expecting(one), expecting(two));
            let answers = std::thread::scope(|scope| {
                let mine = scope.spawn(|| apply(one, mine));
                [apply(two, theirs), mine.join().unwrap()]
            });
            let won = answers.iter().filter(|answer| answer.is_ok()).count();
            let lost = answers.iter().filter(|a| matches!(a, Err(StoreError::VersionConflict { .. }))).count();
            assert_eq!((won, lost), (1, 1), "{answers:?}");
        }
    });
}

#[test]
fn a_shelf_holds_its_quota_and_not_a_byte_more() {
    everywhere(|world| {
        let sized =
            |key: &str, bytes: usize| SetState { quota: 100, ..setting(world, &own(), key, &"1".repeat(bytes)) };
        apply(world, sized("a", 49)).unwrap();
        assert_eq!(code(apply(world, sized("b", 50))), "state.quota");
        apply(world, sized("b", 49)).unwrap();
        assert_eq!(world.wait(world.store.state_usage(own())).unwrap(), 100);
        apply(world, sized("a", 20)).unwrap();
        assert_eq!(code(apply(world, sized("c", 29))), "state.quota");
        apply(world, sized("c", 28)).unwrap();
        delete(world, new_hold(world), "b", None).unwrap();
        assert_eq!(world.wait(world.store.state_usage(own())).unwrap(), 50, "a deleted value takes no room");
        let longest = "1".repeat(LONGEST_VALUE);
        set(world, &StateScope::Shared, "long", &longest);
        assert_eq!(value(world, &StateScope::Shared, "long"), Some(longest.clone()));
        assert_eq!(
            code(apply(world, setting(world, &StateScope::Shared, "longer", &format!("{longest}1")))),
            "state.quota"
        );
    });
}

#[test]
fn as_many_versions_can_be_seen_as_the_shelf_keeps() {
    everywhere(|world| {
        for (shelf, kept) in [(StateScope::Session(session(world)), 1), (StateScope::Shared, 20), (own(), 100)] {
            for n in 1..=kept + 3 {
                set(world, &shelf, "k", &n.to_string());
            }
            let history = |limit| world.wait(world.store.state_history(shelf.clone(), "k".into(), limit)).unwrap();
            let versions: Vec<u64> = history(1_000).iter().map(|item| item.version).collect();
            assert_eq!(versions, (4..=kept + 3).rev().collect::<Vec<_>>());
            assert_eq!(history(1_000).last().unwrap().value, "4");
            assert_eq!(history(1).len(), 1);
            assert_eq!(get(world, &shelf, "k", Some(3)), None);
            assert_eq!(get(world, &shelf, "k", Some(4)).unwrap().value, "4");
        }
        delete(world, new_hold(world), "k", None).unwrap();
        assert_eq!(value(world, &own(), "k"), None);
        let left = world.wait(world.store.state_history(own(), "k".into(), 2)).unwrap();
        assert_eq!(
            left.iter().map(|item| item.version).collect::<Vec<_>>(),
            [103, 102],
            "a deleted value is not shown"
        );
    });
}

#[test]
fn a_prefix_means_its_characters_and_nothing_else() {
    everywhere(|world| {
        let keys = ["a%", "a%b", "a_c", "abc", "b", "a\\", "A%", "ä", "a%\u{10ffff}", "a&"];
        keys.iter().for_each(|key| drop(set(world, &own(), key, "1")));
        set(world, &StateScope::Shared, "a%shared", "1");
        assert_eq!(listed(world, &own(), "a%", None, 99), ["a%", "a%b", "a%\u{10ffff}"]);
        assert_eq!(listed(world, &own(), "a_", None, 99), ["a_c"]);
        assert_eq!(listed(world, &own(), "a\\", None, 99), ["a\\"]);
        assert_eq!(listed(world, &own(), "ä", None, 99), ["ä"]);
        assert_eq!(listed(world, &own(), "%", None, 99), [""; 0]);
        let mut sorted = keys.map(str::to_owned);
        sorted.sort();
        assert_eq!(listed(world, &own(), "", None, 99), sorted, "by bytes on every engine");
        assert_eq!(listed(world, &own(), "", Some(&sorted[3]), 2), sorted[4..6]);
        let query = world.wait(world.store.state_query(own(), "a%".into(), None, 2)).unwrap();
        let rest = world.wait(world.store.state_query(own(), "a%".into(), Some(query[0].key.clone()), 2)).unwrap();
        assert!(rest.iter().all(|item| item.key > query[0].key), "{rest:?}");
        assert_eq!(
            query.iter().map(|item| (item.key.as_str(), item.value.as_str())).collect::<Vec<_>>(),
            [("a%", "1"), ("a%b", "1")]
        );
        let list = world.wait(world.store.state_list(own(), "b".into(), None, 9)).unwrap();
        assert_eq!((list[0].value.as_str(), list[0].size), ("", 2));
    });
}

#[test]
fn taking_a_change_back_makes_a_new_version_and_never_hides_a_newer_one() {
    everywhere(|world| {
        set(world, &own(), "k", "1");
        let changed = set(world, &own(), "k", "2");
        let back = |hold, item: Option<StateItem>, expected| {
            world.wait(world.store.state_put_back(hold, own(), "k".into(), item, expected))
        };
        set(world, &own(), "k", "3");
        assert_eq!(code(back(new_hold(world), changed.previous.clone(), Some(2))), "state.conflict");
        assert_eq!(value(world, &own(), "k").as_deref(), Some("3"));
        let hold = new_hold(world);
        let answer = back(hold, changed.previous.clone(), Some(3)).unwrap();
        assert_eq!((answer.version, value(world, &own(), "k").as_deref()), (4, Some("1")));
        assert_eq!(back(hold, changed.previous, Some(3)).unwrap(), answer, "the second time changes nothing");
        let deleted = delete(world, new_hold(world), "k", None).unwrap();
        assert_eq!(code(back(new_hold(world), deleted.clone(), Some(4))), "state.conflict");
        back(new_hold(world), deleted, None).unwrap();
        assert_eq!(value(world, &own(), "k").as_deref(), Some("1"));
        back(new_hold(world), None, Some(6)).unwrap();
        assert_eq!(value(world, &own(), "k"), None, "there was nothing before");
        assert_eq!(recorded(world, "state.put_back"), 3);
    });
}

#[test]
fn the_record_knows_neither_names_nor_values() {
    everywhere(|world| {
        let item = set(world, &own(), "salary of Li", r#""ninety""#);
        set(world, &own(), "salary of Li", "2");
        delete(world, new_hold(world), "salary of Li", None).unwrap();
        let record: String = checker::entries(world).iter().map(|entry| format!("{:?}", entry.fact)).collect();
        assert!(record.contains("\"key_bytes\": \"12\"") && record.contains("key_hash"), "{record}");
        let shown = format!("{record}{item:?}{:?}", get(world, &own(), "salary of Li", Some(1)));
        assert!(!shown.contains("salary") && !shown.contains("ninety"));
    });
}

#[test]
fn what_an_ended_session_remembered_is_forgotten_and_nothing_else_is() {
    everywhere(|world| {
        let (ended, open) = (session(world), session(world));
        for id in [ended, open] {
            set(world, &StateScope::Session(id), "k", "1");
            set(world, &StateScope::Session(id), "k", "2");
        }
        set(world, &own(), "k", "1");
        set(world, &own(), "gone", "1");
        delete(world, new_hold(world), "gone", None).unwrap();
        world.wait(world.store.end_session(ended, agent("clerk"))).unwrap();
        let prune = || world.wait(world.store.prune(world.now(), 100)).unwrap();
        assert_eq!(prune(), 1);
        assert_eq!(value(world, &StateScope::Session(ended), "k"), None);
        assert_eq!(value(world, &StateScope::Session(open), "k").as_deref(), Some("2"));
        assert_eq!(set(world, &own(), "gone", "2").version, 3, "versions go on counting");
        delete(world, new_hold(world), "gone", None).unwrap();
        world.clock.advance(Millis::from_hours(30 * 24));
        assert_eq!(prune(), 1);
        assert_eq!(set(world, &own(), "gone", "3").version, 1, "long forgotten");
        set(world, &own(), "gone", "4");
        assert_eq!(value(world, &own(), "k").as_deref(), Some("1"));
        world.wait(world.store.end_session(open, operator())).unwrap();
    });
}
