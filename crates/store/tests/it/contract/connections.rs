//! Connected services: their states, and the consequences.

use serde_json::json;
use sluice_core::ServiceName;
use sluice_core::connection::{ConnectionState, ConnectionStep};
use sluice_core::ids::MessageId;
use sluice_store::{
    AlertFilter, BeginConnection, FreezeTarget, MessageSeverity, MoveConnection, MovedConnection, StoreError,
    WriteClaimOutcome,
};
use sluice_testkit::TestStore;

use crate::engines::{WINDOW, code, everywhere, operator, recorded, service};

fn name(text: &str) -> ServiceName {
    ServiceName::new(text).unwrap()
}

fn begin(world: &TestStore, connection: &str) -> Result<ConnectionState, StoreError> {
    let new = BeginConnection {
        name: name(connection),
        adapter: "gmail".into(),
        service: service("email"),
        account: None,
        endpoints: json!({"api": "https://mail.example.com"}),
        by: operator(),
    };
    world.wait(world.store.begin_connection(new)).map(|row| row.state)
}

fn step(world: &TestStore, connection: &str, step: ConnectionStep, n: u128) -> Result<MovedConnection, StoreError> {
    let account = (step == ConnectionStep::SignedIn).then(|| "me@example.com".to_owned());
    let message = MessageId::from_bits(n);
    let by = operator();
    world.wait(world.store.move_connection(MoveConnection {
        name: name(connection),
        step,
        reason: None,
        account,
        by,
        message,
    }))
}

#[test]
fn one_connection_stands_behind_a_service_and_is_remembered() {
    everywhere(|world| {
        assert_eq!(begin(world, "gmail").unwrap(), ConnectionState::Connecting);
        assert_eq!(code(begin(world, "other")), "store.conflict", "email is taken");
        assert_eq!(begin(world, "gmail").unwrap(), ConnectionState::Connecting, "signing in may be begun again");
        step(world, "gmail", ConnectionStep::SignedIn, 1).unwrap();
        let moved = step(world, "gmail", ConnectionStep::Copied, 2).unwrap();
        assert!(moved.is_new());
        let rows = world.wait(world.store.connections()).unwrap();
        assert_eq!((rows.len(), rows[0].state), (1, ConnectionState::Live));
        assert_eq!(rows[0].account.as_deref(), Some("me@example.com"));
        assert_eq!(rows[0].endpoints["api"], "https://mail.example.com");
        assert_eq!(code(step(world, "nobody", ConnectionStep::Pause, 3)), "store.not_found");
        step(world, "gmail", ConnectionStep::End, 4).unwrap();
        assert_eq!(begin(world, "other").unwrap(), ConnectionState::Connecting, "email is free again");
        assert_eq!(recorded(world, "connection.moved"), 3);
    });
}

#[test]
fn a_refused_credential_freezes_the_service_and_tells_people_once() {
    everywhere(|world| {
        begin(world, "gmail").unwrap();
        step(world, "gmail", ConnectionStep::SignedIn, 1).unwrap();
        assert!(step(world, "gmail", ConnectionStep::Refused, 2).unwrap().is_new());
        assert!(!step(world, "gmail", ConnectionStep::Refused, 3).unwrap().is_new(), "nothing new");
        let alerts = world.wait(world.store.alerts(AlertFilter::default(), None, 10)).unwrap();
        assert_eq!(alerts.len(), 1);
        assert_eq!(alerts[0].message.topic, "connection.needs_reauth");
        assert_eq!(alerts[0].message.severity, MessageSeverity::Critical);
        let frozen = world.wait(world.store.freezes()).unwrap();
        assert_eq!((frozen.len(), &frozen[0].scope), (1, &FreezeTarget::Service(service("email"))));
        step(world, "gmail", ConnectionStep::SignedIn, 4).unwrap();
        assert_eq!(world.wait(world.store.freezes()).unwrap(), [], "signed in again, it goes on");
    });
}

#[test]
fn a_brake_that_a_person_pulled_is_not_let_go_by_a_connection() {
    everywhere(|world| {
        begin(world, "gmail").unwrap();
        step(world, "gmail", ConnectionStep::SignedIn, 1).unwrap();
        let scope = FreezeTarget::Service(service("email"));
        world.wait(world.store.freeze(scope, operator(), "something is odd".into())).unwrap();
        step(world, "gmail", ConnectionStep::Pause, 2).unwrap();
        step(world, "gmail", ConnectionStep::Resume, 3).unwrap();
        let frozen = world.wait(world.store.freezes()).unwrap();
        assert_eq!((frozen.len(), frozen[0].reason.as_str()), (1, "something is odd"));
    });
}

#[test]
fn a_freeze_on_a_service_whose_connection_stands_still_outlives_its_going_on() {
    for (stop, go) in
        [(ConnectionStep::Pause, ConnectionStep::Resume), (ConnectionStep::Refused, ConnectionStep::SignedIn)]
    {
        everywhere(|world| {
            begin(world, "gmail").unwrap();
            step(world, "gmail", ConnectionStep::SignedIn, 1).unwrap();
            step(world, "gmail", stop, 2).unwrap();
            let scope = FreezeTarget::Service(service("email"));
            world.wait(world.store.freeze(scope.clone(), operator(), "stop".into())).unwrap();
            let stands = world.wait(world.store.freezes()).unwrap();
            assert_eq!(stands.iter().filter(|freeze| freeze.brake.is_some()).count(), 1);
            assert_eq!(stands.len(), 2, "one is a person's, one the connection's own");
            step(world, "gmail", go, 3).unwrap();
            let stands = world.wait(world.store.freezes()).unwrap();
            assert_eq!((stands.len(), stands[0].reason.as_str()), (1, "stop"));
            assert_eq!(code(world.wait(world.store.admit(world.mail("clerk", "new")))), "freeze.active");
            world.wait(world.store.unfreeze(scope, operator())).unwrap();
            world.admit_held("clerk", "new");
        });
    }
}

#[test]
fn the_brake_of_a_connection_is_its_own_and_nobody_unfreezes_it() {
    everywhere(|world| {
        begin(world, "gmail").unwrap();
        step(world, "gmail", ConnectionStep::SignedIn, 1).unwrap();
        world.admit_held("clerk", "hello");
        world.clock.advance(WINDOW);
        let listed = world.wait(world.store.due_holds(world.now(), 9)).unwrap();
        step(world, "gmail", ConnectionStep::Pause, 2).unwrap();
        let scope = FreezeTarget::Service(service("email"));
        assert_eq!(code(world.wait(world.store.unfreeze(scope.clone(), operator()))), "service.stopped");
        assert_eq!(code(world.wait(world.store.admit(world.mail("clerk", "new")))), "service.stopped");
        world.wait(world.store.freeze(scope.clone(), operator(), "stop".into())).unwrap();
        assert_eq!(code(world.wait(world.store.admit(world.mail("clerk", "new")))), "freeze.active");
        world.wait(world.store.unfreeze(scope, operator())).unwrap();
        assert_eq!(world.claim_due(), [], "it is not listed");
        let claimed = world.wait(world.store.claim(world.claims(&listed))).unwrap();
        assert_eq!(claimed, [WriteClaimOutcome::Frozen(listed[0].id)], "and no attempt is used up");
        step(world, "gmail", ConnectionStep::Resume, 3).unwrap();
        assert_eq!(world.claim_due().len(), 1);
    });
}

#[test]
fn what_was_ended_begins_anew_as_anybodys_account_and_what_goes_on_keeps_its_own() {
    everywhere(|world| {
        let account = |world: &TestStore| world.wait(world.store.connections()).unwrap()[0].account.clone();
        begin(world, "gmail").unwrap();
        step(world, "gmail", ConnectionStep::SignedIn, 1).unwrap();
        begin(world, "gmail").unwrap();
        assert_eq!(account(world).as_deref(), Some("me@example.com"), "signing in again is for the same account");
        step(world, "gmail", ConnectionStep::End, 2).unwrap();
        begin(world, "gmail").unwrap();
        assert_eq!(account(world), None);
    });
}
