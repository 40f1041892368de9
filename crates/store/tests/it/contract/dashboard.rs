//! The dashboard's side of the store: codes, sessions, the flow of writes, and what approvals are about.

use sluice_core::ids::{DashboardSessionId, KeyId, PersonName};
use sluice_core::policy::TargetOrigin;
use sluice_core::target::TracedTarget;
use sluice_core::{ApprovalId, CallId, HoldId, Millis, Tier};
use sluice_store::{
    AccessKeyKind, Admission, AdmissionOutcome, ApprovalSummary, IssueKey, OpenDashboardSession, OperatorRole,
    SignInProof,
};
use sluice_testkit::TestStore;

use super::gate;
use crate::engines::{everywhere, operator, recorded};

/// A credential of ana, as an operator.
fn ana_key(world: &TestStore) -> KeyId {
    let kind = AccessKeyKind::Operator(PersonName::new("ana").unwrap(), OperatorRole::Approver);
    let id = KeyId::mint(world.ids.as_ref());
    let key = IssueKey { id, kind, label: None, hash: [9; 32], expires_at: None, by: operator() };
    world.wait(world.store.issue_key(key)).unwrap().id
}

fn open(world: &TestStore, cookie: u8, proof: SignInProof) -> Option<DashboardSessionId> {
    let id = DashboardSessionId::mint(world.ids.as_ref());
    let session = OpenDashboardSession { id, hash: [cookie; 32], browser: "a browser\n".into(), proof };
    world.wait(world.store.open_dashboard_session(session)).unwrap().map(|_| id)
}

#[test]
fn a_code_signs_in_once_and_only_in_its_time() {
    everywhere(|world| {
        let key = ana_key(world);
        assert!(!world.wait(world.store.was_dashboard_used()).unwrap());
        let make = |code: u8| world.wait(world.store.make_sign_in_code([code; 32], key, operator())).unwrap();
        assert_eq!(make(1), world.now() + Millis::from_mins(10));
        assert!(world.wait(world.store.was_dashboard_used()).unwrap());
        assert_eq!(open(world, 50, SignInProof::Code([7; 32])), None, "nobody made this code");
        assert!(open(world, 51, SignInProof::Code([1; 32])).is_some());
        assert_eq!(open(world, 52, SignInProof::Code([1; 32])), None, "it was used");
        make(2);
        world.clock.advance(Millis::from_mins(10));
        assert_eq!(open(world, 53, SignInProof::Code([2; 32])), None, "it is too late");
        assert_eq!(recorded(world, "dashboard.signed_in"), 1);
    });
}

#[test]
fn a_session_is_found_by_its_cookie_and_ended_by_its_person_or_its_time() {
    everywhere(|world| {
        let key = ana_key(world);
        let find = |cookie: u8| world.wait(world.store.dashboard_session([cookie; 32])).unwrap();
        let listed = || world.wait(world.store.dashboard_sessions(world.now())).unwrap().len();
        let (first, second) = (open(world, 1, SignInProof::Key(key)), open(world, 2, SignInProof::Key(key)));
        let session = find(1).unwrap();
        assert_eq!((session.id, session.key, session.key_hash), (first.unwrap(), key, [9; 32]));
        assert_eq!((session.person.as_str(), session.browser.as_str()), ("ana", "a browser"));
        assert_eq!((find(3), listed()), (None, 2));

        let end = |id: DashboardSessionId, only_of: Option<&str>| {
            world.wait(world.store.end_dashboard_session(id, operator(), only_of.map(str::to_owned)))
        };
        assert!(end(session.id, Some("ben")).is_err(), "ben is told that there is none");
        end(session.id, Some("ana")).unwrap();
        end(session.id, None).unwrap();
        assert_eq!(recorded(world, "dashboard.signed_out"), 1, "ending it again changes nothing");
        assert!(!find(1).unwrap().is_live(world.now()));
        assert_eq!(listed(), 1);

        world.clock.advance(Millis::from_hours(11));
        world.wait(world.store.note_dashboard_use(second.unwrap())).unwrap();
        world.clock.advance(Millis::from_hours(11));
        assert!(find(2).unwrap().is_live(world.now()), "it was used meanwhile");
        world.clock.advance(Millis::from_hours(2));
        assert!(!find(2).unwrap().is_live(world.now()));
        assert_eq!(listed(), 0);
    });
}

#[test]
fn writes_are_counted_by_the_hour_they_were_admitted_in_and_their_state() {
    everywhere(|world| {
        let began = world.now();
        // Ids begin with the time at which they were made.
        let admit = |n: u128, text: &str| {
            let made = u128::try_from(world.now().as_millis()).unwrap() << 80;
            let (call, hold) = (CallId::from_bits(made + n), HoldId::from_bits(made + n));
            world.admit(Admission { call, hold, ..world.mail("clerk", text) });
        };
        admit(1, "one");
        admit(2, "two");
        world.clock.advance(Millis::from_hours(1));
        let second = world.now();
        admit(3, "three");
        let flow = |since| {
            let counts = world.wait(world.store.write_flow(since)).unwrap();
            counts.into_iter().map(|one| (one.hour, one.count)).collect::<Vec<_>>()
        };
        let hour = began.as_millis() / 3_600_000;
        assert_eq!(flow(began), [(hour, 2), (hour + 1, 1)]);
        assert_eq!(flow(second), [(hour + 1, 1)]);
    });
}

#[test]
fn a_list_of_approvals_says_what_each_is_about_in_its_order() {
    everywhere(|world| {
        let target = |value: &str| TracedTarget {
            argument: "to".into(),
            value: value.into(),
            origin: TargetOrigin::New,
            source: None,
            print: None,
        };
        let ask = |text: &str, targets: Vec<TracedTarget>| {
            let wanted = Admission { tier: Tier::ApprovalRequired, targets, ..world.mail("clerk", text) };
            match world.wait(world.store.admit(wanted)).unwrap() {
                AdmissionOutcome::Awaiting { hold, approval, .. } => (hold, approval),
                other => panic!("{other:?}"),
            }
        };
        let (one, first) = ask("one", vec![target("a@x.example"), target("b@x.example")]);
        let (two, second) = ask("two", Vec::new());
        let filed = gate::file(world, gate::wish("a session", "ls")).approval.id;
        let unknown = ApprovalId::from_bits(u128::MAX - 1);
        let about = world.wait(world.store.approval_summaries(vec![second, unknown, filed, first])).unwrap();
        let capability = world.wait(world.store.hold(one)).unwrap().unwrap().action.capability().clone();
        let write = |targets| ApprovalSummary::Write { capability: capability.clone(), targets };
        assert_eq!(about[0], write(Vec::new()));
        assert_eq!(about[1], ApprovalSummary::Forgotten);
        assert!(matches!(&about[2], ApprovalSummary::Request { action_type, .. } if action_type == "exec_cmd"));
        assert_eq!(about[3], write(vec![target("a@x.example"), target("b@x.example")]));
        let targets = world.wait(world.store.targets_of_holds(vec![two, one])).unwrap();
        assert_eq!(targets, [Vec::new(), vec![target("a@x.example"), target("b@x.example")]]);
    });
}
