//! Secrets: who sets them, what is stored of them, and what is recorded about them.

use sluice_core::Millis;
use sluice_core::ids::{ConnectionName, MessageId, SecretId, SecretName};
use sluice_store::{PutSecret, RekeyVault, SealedSecretVersion, SecretRow, StoreError, VaultRoot};
use sluice_testkit::TestStore;

use crate::checker;
use crate::engines::{across_restarts, agent, code, everywhere, messages, operator, recorded, with_two_nodes};

pub fn name(text: &str) -> SecretName {
    SecretName::new(text).unwrap()
}

fn root(text: &str) -> VaultRoot {
    VaultRoot { root: text.into(), salt: vec![1; 16], proof: vec![2; 40] }
}

pub fn begin(world: &TestStore) {
    world.wait(world.store.begin_vault(root("r1"))).unwrap();
}

pub fn put(world: &TestStore, secret: &str, version: u64, id: SecretId) -> PutSecret {
    PutSecret {
        name: name(secret),
        id,
        kind: "api_key".into(),
        scope: r#"{"hosts":["a.example"]}"#.into(),
        version,
        root: "r1".into(),
        wrapped: vec![3; 73],
        sealed: vec![4; 60],
        keep_old_until: world.now() + Millis::from_mins(10),
        by: operator(),
    }
}

fn set(world: &TestStore, secret: &str, version: u64, id: SecretId) -> Result<SecretRow, StoreError> {
    world.wait(world.store.put_secret(put(world, secret, version, id)))
}

fn id(world: &TestStore) -> SecretId {
    SecretId::mint(world.ids.as_ref())
}

fn versions(world: &TestStore, secret: &str) -> Vec<SealedSecretVersion> {
    world.wait(world.store.secret(name(secret))).unwrap().map(|(_, versions)| versions).unwrap_or_default()
}

#[test]
fn a_secret_is_kept_sealed_across_a_restart_and_listed_by_name() {
    across_restarts(|place| {
        let world = place.open("gw-1");
        begin(&world);
        let (b, a) = (id(&world), id(&world));
        let first = set(&world, "b", 1, b).unwrap();
        set(&world, "a", 1, a).unwrap();
        drop(world);
        let world = place.open("gw-1");
        let all = world.wait(world.store.secrets()).unwrap();
        assert_eq!(all.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(all[1], first);
        let kept = versions(&world, "b");
        assert_eq!((kept.len(), kept[0].wrapped.clone(), kept[0].until), (1, vec![3; 73], None));
        assert_eq!(world.wait(world.store.vault_root()).unwrap(), Some(root("r1")));
        assert_eq!((recorded(&world, "secret.set"), recorded(&world, "vault.began")), (2, 1));
        world
    });
}

#[test]
fn the_old_version_is_deleted_when_its_overlap_is_over() {
    everywhere(|world| {
        begin(world);
        let id = id(world);
        set(world, "key", 1, id).unwrap();
        set(world, "key", 2, id).unwrap();
        assert_eq!(versions(world, "key").len(), 2);
        world.clock.advance(Millis::from_mins(10));
        world.wait(world.store.sweep_secrets()).unwrap();
        assert_eq!(versions(world, "key").iter().map(|one| one.version).collect::<Vec<_>>(), [2]);
        assert_eq!(recorded(world, "secret.rotated"), 1);
    });
}

#[test]
fn a_version_sealed_for_another_moment_is_refused() {
    everywhere(|world| {
        assert_eq!(code(set(world, "key", 1, id(world))), "state.conflict", "there is no root key yet");
        begin(world);
        let own = id(world);
        set(world, "key", 1, own).unwrap();
        assert_eq!(code(set(world, "key", 1, own)), "state.conflict");
        assert_eq!(code(set(world, "key", 3, own)), "state.conflict");
        assert_eq!(code(set(world, "key", 2, id(world))), "state.conflict", "another secret's id");
        let put = PutSecret { root: "r0".into(), ..put(world, "key", 2, own) };
        assert_eq!(code(world.wait(world.store.put_secret(put))), "state.conflict");
        assert_eq!(versions(world, "key").len(), 1);
    });
}

#[test]
fn revoking_destroys_every_version_and_a_new_value_revives_the_name() {
    everywhere(|world| {
        begin(world);
        let id = id(world);
        set(world, "key", 1, id).unwrap();
        set(world, "key", 2, id).unwrap();
        let before = world.wait(world.store.vault_generation()).unwrap();
        for _ in 0..2 {
            world.wait(world.store.revoke_secret(name("key"), operator())).unwrap();
        }
        assert!(versions(world, "key").is_empty());
        assert_eq!(recorded(world, "secret.revoked"), 1);
        assert_eq!(world.wait(world.store.vault_generation()).unwrap(), before + 1);
        let (row, _) = world.wait(world.store.secret(name("key"))).unwrap().unwrap();
        assert_eq!(row.revoked.map(|(_, by)| by), Some(operator()));
        assert_eq!(set(world, "key", 3, id).unwrap().revoked, None);
        assert_eq!(code(world.wait(world.store.revoke_secret(name("other"), operator()))), "store.not_found");
    });
}

#[test]
fn no_agent_changes_the_vault() {
    everywhere(|world| {
        begin(world);
        let put = PutSecret { by: agent("clerk"), ..put(world, "key", 1, id(world)) };
        assert_eq!(code(world.wait(world.store.put_secret(put))), "approval.not_an_approver");
        set(world, "key", 1, id(world)).unwrap();
        assert_eq!(
            code(world.wait(world.store.revoke_secret(name("key"), agent("clerk")))),
            "approval.not_an_approver"
        );
        let rekey = RekeyVault { from: "r1".into(), to: root("r2"), wrapped: Vec::new(), by: agent("clerk") };
        assert_eq!(code(world.wait(world.store.rekey_vault(rekey))), "approval.not_an_approver");
    });
}

#[test]
fn rewrapping_is_all_or_nothing() {
    everywhere(|world| {
        begin(world);
        let (a, b) = (id(world), id(world));
        set(world, "a", 1, a).unwrap();
        set(world, "b", 1, b).unwrap();
        let rekey = |wrapped| RekeyVault { from: "r1".into(), to: root("r2"), wrapped, by: operator() };
        let one = vec![(a, 1, vec![9; 73])];
        assert_eq!(code(world.wait(world.store.rekey_vault(rekey(one)))), "state.conflict", "one is missing");
        assert_eq!(versions(world, "a")[0].root, "r1");
        let both = vec![(a, 1, vec![9; 73]), (b, 1, vec![8; 73])];
        world.wait(world.store.rekey_vault(rekey(both.clone()))).unwrap();
        assert_eq!((versions(world, "a")[0].root.as_str(), versions(world, "b")[0].wrapped[0]), ("r2", 8));
        assert_eq!(code(world.wait(world.store.rekey_vault(rekey(both)))), "state.conflict", "done already");
        assert_eq!(recorded(world, "vault.rekeyed"), 1);
    });
}

#[test]
fn two_nodes_begin_one_vault_and_see_each_others_changes() {
    with_two_nodes(|one, two| {
        assert_eq!(one.wait(one.store.begin_vault(root("r1"))).unwrap().root, "r1");
        assert_eq!(two.wait(two.store.begin_vault(root("r2"))).unwrap().root, "r1", "the first one counts");
        let before = two.wait(two.store.vault_generation()).unwrap();
        set(one, "key", 1, id(one)).unwrap();
        assert!(two.wait(two.store.vault_generation()).unwrap() > before);
    });
}

#[test]
fn a_use_and_a_wish_for_a_new_value_are_on_record_by_name() {
    everywhere(|world| {
        begin(world);
        set(world, "key", 1, id(world)).unwrap();
        let connection = ConnectionName::new("web").unwrap();
        let used = world.store.record_secret_use(
            name("key"),
            connection,
            "network.credentialed_request".into(),
            agent("clerk"),
        );
        world.wait(used).unwrap();
        let entry = checker::entries(world).into_iter().find(|entry| entry.fact.kind == "secret.used").unwrap();
        assert_eq!((entry.fact.detail["secret"].as_str(), entry.fact.detail["connection"].as_str()), ("key", "web"));
        let message = MessageId::mint(world.ids.as_ref());
        let clerk = agent("clerk");
        for _ in 0..2 {
            let asked = world.store.ask_rotation(message, name("key"), "expiring".into(), clerk.clone());
            world.wait(asked).unwrap();
        }
        let told = messages(world, "secret.rotation_asked");
        assert_eq!((told.len(), told[0].body["secret"].as_str()), (1, Some("key")));
        let asked = |entry: &sluice_core::audit::AuditEntry| entry.fact.kind == "secret.rotation_asked";
        assert_eq!(checker::entries(world).iter().filter(|entry| asked(entry)).count(), 1, "asked once");
        let missing = world.store.ask_rotation(message, name("none"), "expiring".into(), clerk);
        assert_eq!(code(world.wait(missing)), "store.not_found");
    });
}
