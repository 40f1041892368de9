//! Searching the audit log: filters, pages, bounds; and the content of a connection that ended.

use serde_json::json;
use sluice_core::ids::SessionId;
use sluice_core::policy::CapabilityPattern;
use sluice_core::read_trace::{ReadTrace, keyed_hash};
use sluice_core::{AgentName, CallId, CapabilityName, Millis};
use sluice_store::{AuditEntryFilter, CallEnding, CloseCall, ListSessionReads};
use sluice_testkit::TestStore;

use crate::engines::everywhere;

const KEY: [u8; 32] = [3; 32];

/// Records a read that returned these ids.
fn read(world: &TestStore, agent: &str, capability: &str, ids: &[&str]) -> CallId {
    let name: CapabilityName = capability.parse().unwrap();
    let items: Vec<_> = ids.iter().map(|id| json!({"id": id, "text": "CANARY"})).collect();
    let arguments = json!({"query": "salary"});
    let trace = ReadTrace::of(&KEY, &name, arguments.as_object().unwrap(), &json!({"items": items}));
    let case = CloseCall {
        call: CallId::mint(world.ids.as_ref()),
        agent: AgentName::new(agent).unwrap(),
        session: Some(SessionId::from_bits(5)),
        capability: name,
        digest: None,
        tier: None,
        policy: "p1".into(),
        rule: None,
        outcome: CallEnding::Answered,
        rates: Vec::new(),
        notify: None,
        door: None,
        findings: None,
        origins: None,
        kept: None,
        observed: Vec::new(),
        read: Some(trace),
    };
    let call = case.call;
    world.wait(world.store.close_call(case)).unwrap();
    world.clock.advance(Millis::from_secs(1));
    call
}

fn filter() -> AuditEntryFilter {
    AuditEntryFilter { limit: 100, bound: 10_000, ..AuditEntryFilter::default() }
}

fn found(world: &TestStore, filter: AuditEntryFilter) -> Vec<CallId> {
    let found = world.wait(world.store.search_record(filter)).unwrap();
    let calls = found.entries.iter().map(|(_, sealed)| {
        let entry: sluice_core::audit::AuditEntry = serde_json::from_slice(&sealed.body).unwrap();
        assert!(!String::from_utf8_lossy(&sealed.body).contains("CANARY"), "content is on record");
        entry.fact.call
    });
    calls.flatten().collect()
}

#[test]
fn the_record_is_searched_by_agent_capability_time_and_target() {
    everywhere(|world| {
        let start = world.now();
        let one = read(world, "clerk", "email.search", &["m1", "m2"]);
        let two = read(world, "clerk", "email.read", &["m2"]);
        let three = read(world, "scout", "email.read", &["m3"]);
        let middle = start + Millis::from_millis(500);
        let agent = |name: &str| Some(AgentName::new(name).unwrap());
        assert_eq!(found(world, AuditEntryFilter { agent: agent("clerk"), ..filter() }), [two, one]);
        assert_eq!(found(world, AuditEntryFilter { agent: agent("nobody"), ..filter() }), []);
        let capability = |text: &str| Some(CapabilityPattern::new(text).unwrap());
        assert_eq!(found(world, AuditEntryFilter { capability: capability("email.read"), ..filter() }), [three, two]);
        assert_eq!(found(world, AuditEntryFilter { capability: capability("email.*"), ..filter() }), [three, two, one]);
        let target = |text: &str| Some(text.to_owned());
        assert_eq!(found(world, AuditEntryFilter { target: target("m2"), ..filter() }), [two, one]);
        assert_eq!(found(world, AuditEntryFilter { target: target("m"), ..filter() }), [], "a target is a whole id");
        let query_hash = Some(keyed_hash(&KEY, b"salary"));
        let salary = AuditEntryFilter { target: target("salary"), query_hash, ..filter() };
        assert_eq!(found(world, salary), [three, two, one]);
        let email = || AuditEntryFilter { capability: capability("email.*"), ..filter() };
        assert_eq!(found(world, AuditEntryFilter { since: Some(middle), ..email() }), [three, two]);
        assert_eq!(found(world, AuditEntryFilter { until: Some(middle), ..email() }), [one]);
        // A write is found by its agent and by its target, and so are its later entries.
        let hold = world.admit_held("clerk", "hello");
        let all =
            world.wait(world.store.search_record(AuditEntryFilter { target: target(&hold.to_string()), ..filter() }));
        assert!(!all.unwrap().entries.is_empty());
    });
}

#[test]
fn pages_of_a_search_follow_each_other_and_a_bound_is_said() {
    everywhere(|world| {
        let calls: Vec<CallId> = (0..5).map(|n| read(world, "clerk", "email.read", &[&format!("m{n}")])).collect();
        let email =
            || AuditEntryFilter { capability: Some(CapabilityPattern::new("email.*").unwrap()), limit: 2, ..filter() };
        let (mut before, mut seen) = (None, Vec::new());
        loop {
            let page = world.wait(world.store.search_record(AuditEntryFilter { before, ..email() })).unwrap();
            seen.extend(page.entries.iter().map(|(_, sealed)| sealed.seq));
            let Some(next) = page.next else { break };
            before = Some(next.to_string().parse().unwrap());
        }
        assert_eq!(seen.len(), calls.len(), "each once: {seen:?}");
        assert!(seen.is_sorted_by(|one, other| one > other), "{seen:?}");
        let whole = world.wait(world.store.search_record(AuditEntryFilter { limit: 100, ..email() })).unwrap();
        assert!(whole.is_all && whole.next.is_none());
    });
}

#[test]
fn a_session_has_its_own_reads_and_a_nameless_one_those_that_name_none() {
    everywhere(|world| {
        let since = world.now();
        let call = read(world, "clerk", "email.read", &["m1"]);
        let which = |bits: u128, is_nameless| ListSessionReads {
            session: SessionId::from_bits(bits),
            agent: AgentName::new("clerk").unwrap(),
            is_nameless,
            since,
            bound: 10_000,
        };
        let (reads, is_all) = world.wait(world.store.session_reads(which(5, false))).unwrap();
        assert_eq!((reads.len(), reads[0].call, is_all), (1, call, true));
        assert_eq!(reads[0].read.as_ref().unwrap().ids, ["m1"]);
        assert!(
            world.wait(world.store.session_reads(which(6, true))).unwrap().0.is_empty(),
            "it names another session"
        );
    });
}
