//! Keys and agents: who may call the gateway as whom, and who decides that.

use sluice_core::ids::KeyId;
use sluice_core::{Actor, AgentName, Millis, PersonName};
use sluice_store::{AccessKey, AccessKeyKind, IssueKey, OperatorRole, RotateKey, StoreError};
use sluice_testkit::TestStore;

use crate::checker;
use crate::engines::{across_restarts, agent, code, everywhere, operator, recorded, with_two_nodes};

fn name(name: &str) -> AgentName {
    AgentName::new(name).unwrap()
}

fn add(world: &TestStore, who: &str) {
    world.wait(world.store.add_agent(name(who), "reads mail".into(), operator())).unwrap();
}

fn of_agent(who: &str) -> AccessKeyKind {
    AccessKeyKind::Agent(name(who))
}

fn new_key(world: &TestStore, kind: AccessKeyKind, byte: u8) -> IssueKey {
    let id = KeyId::mint(world.ids.as_ref());
    IssueKey { id, kind, label: Some("laptop".into()), hash: [byte; 32], expires_at: None, by: operator() }
}

fn issue(world: &TestStore, kind: AccessKeyKind, byte: u8) -> Result<AccessKey, StoreError> {
    world.wait(world.store.issue_key(new_key(world, kind, byte)))
}

fn keys(world: &TestStore) -> Vec<AccessKey> {
    world.wait(world.store.keys()).unwrap()
}

fn generation(world: &TestStore) -> u64 {
    world.wait(world.store.key_generation()).unwrap()
}

#[test]
fn keys_are_kept_as_they_were_issued_and_listed_newest_last() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        add(&world, "clerk");
        let ana = AccessKeyKind::Operator(PersonName::new("ana").unwrap(), OperatorRole::Approver);
        let first = issue(&world, of_agent("clerk"), 1).unwrap();
        place.clock.advance(Millis::from_secs(1));
        let second = issue(&world, ana, 2).unwrap();
        place.clock.advance(Millis::from_secs(1));
        let third = issue(&world, AccessKeyKind::Inbox("orders".into()), 3).unwrap();
        assert_eq!((first.created_by.clone(), second.hash), (operator(), [2; 32]));
        drop(world);
        let world = place.open("gw-1");
        assert!(keys(&world) == [first, second, third]);
        assert_eq!(recorded(&world, "key.issued"), 3);
        world
    });
}

#[test]
fn roles_are_ordered_by_what_they_may() {
    assert!(OperatorRole::Viewer < OperatorRole::Approver && OperatorRole::Approver < OperatorRole::Admin);
}

#[test]
fn a_key_for_an_agent_nobody_knows_is_not_issued() {
    everywhere(|world| {
        assert!(matches!(issue(world, of_agent("ghost"), 1), Err(StoreError::NotFound { what: "agent" })));
        add(world, "clerk");
        world.wait(world.store.remove_agent(name("clerk"), operator())).unwrap();
        assert!(matches!(issue(world, of_agent("clerk"), 1), Err(StoreError::NotFound { what: "agent" })));
        assert!(keys(world).is_empty());
        assert_eq!(recorded(world, "key.issued"), 0);
    });
}

#[test]
fn a_revoked_key_says_since_when_and_by_whom_and_stays_revoked() {
    everywhere(|world| {
        add(world, "clerk");
        let key = issue(world, of_agent("clerk"), 1).unwrap();
        assert!(key.is_live(world.now()));
        world.wait(world.store.revoke_key(key.id, operator())).unwrap();
        let at = world.now();
        world.clock.advance(Millis::from_secs(9));
        let before = generation(world);
        world.wait(world.store.revoke_key(key.id, agent_less())).unwrap();
        let revoked = keys(world).remove(0);
        assert_eq!((revoked.revoked_at, revoked.revoked_by.as_ref()), (Some(at), Some(&operator())));
        assert!(!revoked.is_live(world.now()));
        assert_eq!((recorded(world, "key.revoked"), generation(world)), (1, before), "the second time changes nothing");
        let unknown = world.wait(world.store.revoke_key(KeyId::from_bits(99), operator()));
        assert_eq!(code(unknown), "store.not_found");
    });
}

fn agent_less() -> Actor {
    Actor::Person(PersonName::new("li").unwrap())
}

#[test]
fn a_rotated_key_opens_for_a_while_beside_its_successor_and_never_longer_than_it_would_have() {
    everywhere(|world| {
        add(world, "clerk");
        let end = world.now() + Millis::from_hours(1);
        let old = IssueKey { expires_at: Some(end), ..new_key(world, of_agent("clerk"), 1) };
        let old = world.wait(world.store.issue_key(old)).unwrap();
        let rotate = |old: KeyId, byte: u8, keep: Millis| {
            let new = KeyId::mint(world.ids.as_ref());
            let keep_old_until = world.now() + keep;
            let by = operator();
            let rotation = RotateKey { old, new, hash: [byte; 32], keep_old_until, expires_at: None, by };
            world.wait(world.store.rotate_key(rotation))
        };
        let new = rotate(old.id, 2, Millis::from_hours(24)).unwrap();
        assert_eq!((&new.kind, new.label.as_deref(), new.expires_at), (&old.kind, Some("laptop"), None));
        assert_eq!(keys(world)[0].expires_at, Some(end), "not a minute longer");
        let newer = rotate(new.id, 3, Millis::from_mins(5)).unwrap();
        let list = keys(world);
        let kept = list.iter().find(|key| key.id == new.id).unwrap();
        assert!(
            kept.is_live(world.now() + Millis::from_millis(299_999))
                && !kept.is_live(world.now() + Millis::from_mins(5))
        );
        assert!(newer.is_live(world.now() + Millis::from_hours(999)));
        world.wait(world.store.revoke_key(newer.id, operator())).unwrap();
        assert_eq!(
            code(rotate(newer.id, 4, Millis::from_mins(5))),
            "store.not_found",
            "a revoked key has no successor"
        );
        assert_eq!(recorded(world, "key.rotated"), 2);
    });
}

#[test]
fn the_record_names_keys_and_never_shows_a_hash() {
    everywhere(|world| {
        add(world, "clerk");
        let key = issue(world, of_agent("clerk"), 0xab).unwrap();
        let rotation = RotateKey {
            old: key.id,
            new: KeyId::mint(world.ids.as_ref()),
            hash: [0xcd; 32],
            keep_old_until: world.now(),
            expires_at: None,
            by: operator(),
        };
        world.wait(world.store.rotate_key(rotation.clone())).unwrap();
        let record: String = checker::entries(world).iter().map(|entry| format!("{:?}", entry.fact)).collect();
        assert!(record.contains(&key.id.to_string()) && record.contains(&rotation.new.to_string()));
        for shown in [record, format!("{:?} {key:?} {rotation:?}", keys(world))] {
            assert!(!shown.to_lowercase().contains("abab") && !shown.to_lowercase().contains("cdcd"));
            assert!(!shown.contains("171, 171") && !shown.contains("205, 205"));
        }
    });
}

#[test]
fn no_agent_decides_about_agents_or_keys() {
    everywhere(|world| {
        add(world, "clerk");
        let key = issue(world, of_agent("clerk"), 1).unwrap();
        let (before, by) = (generation(world), agent("clerk"));
        let clerk = || name("clerk");
        let refusals = [
            code(world.wait(world.store.add_agent(name("twin"), String::new(), by.clone()))),
            code(world.wait(world.store.pause_agent(clerk(), by.clone(), "r".into()))),
            code(world.wait(world.store.resume_agent(clerk(), by.clone()))),
            code(world.wait(world.store.remove_agent(clerk(), by.clone()))),
            code(
                world.wait(world.store.issue_key(IssueKey { by: by.clone(), ..new_key(world, of_agent("clerk"), 2) })),
            ),
            code(world.wait(world.store.revoke_key(key.id, by.clone()))),
        ];
        assert_eq!(refusals, ["approval.not_an_approver"; 6]);
        assert_eq!((generation(world), keys(world).len()), (before, 1));
        assert_eq!(world.wait(world.store.agents()).unwrap().len(), 1);
    });
}

#[test]
fn a_removed_agent_has_no_key_left_and_its_name_is_not_given_again() {
    everywhere(|world| {
        add(world, "clerk");
        add(world, "scout");
        issue(world, of_agent("clerk"), 1).unwrap();
        issue(world, of_agent("clerk"), 2).unwrap();
        let other = issue(world, of_agent("scout"), 3).unwrap();
        let hold = world.admit_held("clerk", "hello");
        world.wait(world.store.remove_agent(name("clerk"), operator())).unwrap();
        let live: Vec<_> = keys(world).into_iter().filter(|key| key.is_live(world.now())).collect();
        assert!(live == [other]);
        assert_eq!((recorded(world, "key.revoked"), recorded(world, "agent.removed")), (2, 1));
        assert_eq!(world.state(hold), "cancelled", "its writes that have not left are stopped");
        assert_eq!(code(world.wait(world.store.remove_agent(name("clerk"), operator()))), "store.not_found");
        let again = world.wait(world.store.add_agent(name("clerk"), String::new(), operator()));
        assert_eq!(code(again), "store.conflict");
        assert_eq!(code(world.wait(world.store.add_agent(name("scout"), String::new(), operator()))), "store.conflict");
    });
}

#[test]
fn an_agent_is_paused_until_someone_resumes_it() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        add(&world, "clerk");
        world.wait(world.store.pause_agent(name("clerk"), operator(), "odd mails".into())).unwrap();
        let at = world.now();
        place.clock.advance(Millis::from_secs(5));
        world.wait(world.store.pause_agent(name("clerk"), agent_less(), "again".into())).unwrap();
        drop(world);
        let world = place.open("gw-1");
        let clerk = world.wait(world.store.agents()).unwrap().remove(0);
        assert_eq!((clerk.paused_at, clerk.paused_by), (Some(at), Some(operator())));
        assert_eq!((clerk.note.as_str(), clerk.paused_for.as_deref()), ("reads mail", Some("odd mails")));
        world.wait(world.store.resume_agent(name("clerk"), operator())).unwrap();
        let clerk = world.wait(world.store.agents()).unwrap().remove(0);
        assert_eq!((clerk.paused_at, clerk.paused_by, clerk.paused_for), (None, None, None));
        assert_eq!((recorded(&world, "agent.paused"), recorded(&world, "agent.resumed")), (1, 1));
        assert_eq!(code(world.wait(world.store.resume_agent(name("ghost"), operator()))), "store.not_found");
        world
    });
}

#[test]
fn every_change_of_keys_or_agents_on_one_node_is_seen_by_the_other() {
    with_two_nodes(|one, two| {
        let mut last = generation(two);
        let mut moved = |what: &str| {
            let now = generation(two);
            assert!(now > last, "{what}");
            last = now;
        };
        add(one, "clerk");
        moved("added");
        let key = issue(one, of_agent("clerk"), 1).unwrap();
        moved("issued");
        one.wait(one.store.pause_agent(name("clerk"), operator(), "r".into())).unwrap();
        moved("paused");
        one.wait(one.store.resume_agent(name("clerk"), operator())).unwrap();
        moved("resumed");
        one.wait(one.store.revoke_key(key.id, operator())).unwrap();
        moved("revoked");
        one.wait(one.store.remove_agent(name("clerk"), operator())).unwrap();
        moved("removed");
        one.admit_held("clerk", "hello");
        assert_eq!(generation(two), last, "and by nothing else");
    });
}
