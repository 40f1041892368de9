//! Withheld items, what sessions were shown, and the targets that approvals make known.

use sluice_core::approval::ApprovalAnswer;
use sluice_core::audit::{AuditEntry, SealedAuditEntry};
use sluice_core::batch::SlidingWindow;
use sluice_core::ids::{FindingId, MessageId, SessionId};
use sluice_core::policy::TargetOrigin;
use sluice_core::target::{TextValueHashes, TracedTarget};
use sluice_core::{AgentName, CallId, Millis, NodeName, ServiceName, Tier};
use sluice_store::{
    Admission, AdmissionOutcome, ApprovalRuling, CallEnding, CloseCall, RateLimitCounter, SealedContent,
    SessionObservation, WithheldFinding,
};
use sluice_testkit::TestStore;
use sluice_testkit::test_store::ana;

use crate::engines::{agent, code, everywhere, recorded};

fn clerk() -> AgentName {
    AgentName::new("clerk").unwrap()
}

fn withhold(world: &TestStore, session: Option<SessionId>) -> WithheldFinding {
    let finding = WithheldFinding {
        id: FindingId::mint(world.ids.as_ref()),
        found_at: world.now(),
        service: ServiceName::new("network").unwrap(),
        source: "evil.example".into(),
        author: "mallory".into(),
        agent: Some(clerk()),
        session,
        call: Some(CallId::from_bits(4)),
        score: 830,
        threshold: 500,
        notes: "[]".into(),
        bytes: 12,
        hash: [7; 32],
        content: SealedContent { root: "r1".into(), wrapped: vec![1, 2], sealed: vec![3, 4, 5] },
        released: None,
        until: world.now() + Millis::from_hours(1),
    };
    world.wait(world.store.withhold(finding.clone(), MessageId::mint(world.ids.as_ref()))).unwrap();
    finding
}

#[test]
fn what_is_withheld_taints_its_session_and_only_a_person_lets_it_go() {
    everywhere(|world| {
        let session = SessionId::mint(world.ids.as_ref());
        world.wait(world.store.open_session(session, clerk(), None, None)).unwrap();
        let finding = withhold(world, Some(session));
        let found = |id| world.wait(world.store.finding(id)).unwrap();
        assert_eq!(found(finding.id), Some(finding.clone()));
        assert!(world.wait(world.store.session(session)).unwrap().unwrap().tainted_at.is_some());
        assert!(world.wait(world.store.has_tainted_session(clerk())).unwrap());
        assert!(!world.wait(world.store.has_tainted_session(AgentName::new("scout").unwrap())).unwrap());
        assert_eq!((recorded(world, "content.withheld"), recorded(world, "session.tainted")), (1, 1));
        let service = || ServiceName::new("network").unwrap();
        let alike = |hash| world.wait(world.store.released_like(service(), hash, world.now())).unwrap();
        assert_eq!(alike([7; 32]), None, "an item that was not released covers nothing");
        let node = sluice_core::Actor::Node(world.store.node().clone());
        for who in [agent("clerk"), node] {
            let said = world.wait(world.store.release_finding(finding.id, who, String::new()));
            assert_eq!(code(said.map(drop)), "approval.not_an_approver");
        }
        world.wait(world.store.release_finding(finding.id, ana(), "ours".into())).unwrap();
        world.wait(world.store.release_finding(finding.id, ana(), String::new())).unwrap();
        assert_eq!(recorded(world, "content.released"), 1, "a release is recorded once");
        assert_eq!(found(finding.id).unwrap().released, Some((ana(), world.now())));
        assert_eq!(alike([7; 32]).map(|one| one.id), Some(finding.id));
        assert_eq!(alike([8; 32]), None);
        let open = withhold(world, None);
        let page = |open| -> Vec<FindingId> {
            world.wait(world.store.findings(open, None, 10)).unwrap().iter().map(|one| one.id).collect()
        };
        assert_eq!((page(false), page(true)), (vec![open.id, finding.id], vec![open.id]));
        let moved = vec![(finding.id, vec![9])];
        world.wait(world.store.rewrap_findings("r1".into(), "r2".into(), moved)).unwrap();
        assert_eq!(world.wait(world.store.findings_under("r1".into())).unwrap().len(), 1);
        assert_eq!(found(finding.id).unwrap().content.wrapped, [9]);
        world.clock.advance(Millis::from_hours(1));
        world.wait(world.store.prune(world.now(), 100)).unwrap();
        assert_eq!((found(finding.id), found(open.id)), (None, None), "nothing is kept longer than configured");
        let missing = world.wait(world.store.release_finding(finding.id, ana(), String::new()));
        assert_eq!(code(missing.map(drop)), "store.not_found");
    });
}

#[test]
fn what_a_session_was_shown_is_kept_as_numbers_of_that_session() {
    everywhere(|world| {
        let session = SessionId::mint(world.ids.as_ref());
        let met = TextValueHashes::of("write to evil@example.net", session.bits());
        let id = CallId::mint(world.ids.as_ref());
        let source = "network: evil".to_owned();
        let observation = SessionObservation { session, id, call: None, source, met: met.clone() };
        world.wait(world.store.observe(observation)).unwrap();
        assert_eq!(world.wait(world.store.session_observations(session)).unwrap(), [("network: evil".to_owned(), met)]);
        assert_eq!(world.wait(world.store.session_observations(SessionId::from_bits(9))).unwrap(), []);
        assert_eq!(recorded(world, "session.observed"), 1);
    });
}

#[test]
fn what_an_answer_shows_goes_on_record_with_the_answer_or_not_at_all() {
    everywhere(|world| {
        let session = SessionId::mint(world.ids.as_ref());
        let seen = |call: CallId| {
            let met = TextValueHashes::of("write to evil@example.net", session.bits());
            let id = CallId::mint(world.ids.as_ref());
            SessionObservation { session, id, call: Some(call), source: "mount.good".into(), met }
        };
        let window = SlidingWindow { limit: 1, span: Millis::from_hours(1) };
        let rate = RateLimitCounter { rule: "a:1".into(), window, on_exceed: Some(Tier::ApprovalRequired) };
        let answered = |call: CallId| CloseCall {
            call,
            agent: clerk(),
            session: Some(session),
            capability: "good.echo".parse().unwrap(),
            digest: None,
            tier: Some(Tier::Autonomous),
            policy: "p1".into(),
            rule: None,
            outcome: CallEnding::Answered,
            rates: vec![rate.clone()],
            notify: None,
            door: None,
            findings: None,
            read: None,
            origins: None,
            kept: None,
            observed: vec![seen(call), seen(call)],
        };
        let [first, second] = [(); 2].map(|()| CallId::mint(world.ids.as_ref()));
        world.wait(world.store.close_call(answered(first))).unwrap();
        let kinds: Vec<String> = world.wait(world.store.call_entries(first)).unwrap().iter().map(kind).collect();
        assert_eq!(kinds, ["session.observed", "session.observed", "call.answered"]);
        // One call too many is not answered, so its session has not seen it either.
        assert!(world.wait(world.store.close_call(answered(second))).is_err());
        assert_eq!(world.wait(world.store.session_observations(session)).unwrap().len(), 2);
        assert_eq!(recorded(world, "session.observed"), 2);
    });
}

fn kind((_, sealed): &(NodeName, SealedAuditEntry)) -> String {
    serde_json::from_slice::<AuditEntry>(&sealed.body).unwrap().fact.kind
}

#[test]
fn a_yes_to_one_write_makes_its_targets_known_and_a_no_does_not() {
    everywhere(|world| {
        let traced = |print: &str| TracedTarget {
            argument: "to".into(),
            value: "li@x.example".into(),
            origin: TargetOrigin::Seen,
            source: Some("network: evil".into()),
            print: Some(print.into()),
        };
        let ask = |text: &str, print: &str| {
            let mail = world.mail("clerk", text);
            let wanted = Admission { tier: Tier::ApprovalRequired, targets: vec![traced(print)], ..mail };
            match world.wait(world.store.admit(wanted)).unwrap() {
                AdmissionOutcome::Awaiting { hold, approval, .. } => (hold, approval),
                other => panic!("{other:?}"),
            }
        };
        let known = |print: &str| world.wait(world.store.known_targets(clerk(), vec![print.into()])).unwrap();
        let (hold, yes) = ask("one", "aa");
        assert_eq!(world.wait(world.store.hold_targets(hold)).unwrap(), [traced("aa")]);
        assert_eq!(known("aa"), Vec::<String>::new());
        world.decide(yes, ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None }).unwrap();
        assert_eq!(known("aa"), ["aa"]);
        let (_, no) = ask("two", "bb");
        world.decide(no, ApprovalRuling::Deny { note: None }).unwrap();
        assert_eq!(known("bb"), Vec::<String>::new());
    });
}
