//! Tests of the vault as a whole: its database, its key, and access to values.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use sluice_core::{AgentName, NodeName, PersonName};
use sluice_testkit::clock::ManualClock;
use sluice_testkit::ids::{CountingIds, SeededEntropy};

use super::*;

/// A folder with a database and a key file.
struct TestVaultFolder {
    folder: tempfile::TempDir,
    clock: ManualClock,
    seed: u64,
}

impl TestVaultFolder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: ManualClock::default(), seed: 1 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn database(&self) -> PathBuf {
        self.path("sluice.db")
    }

    fn key(&self) -> RootKeySource {
        RootKeySource::File(self.path("root.key"))
    }

    fn private(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    async fn open_with(&mut self, source: RootKeySource, before: Option<RootKeySource>) -> Result<Vault, VaultError> {
        self.seed += 1;
        let world = GatewayDeps {
            clock: Arc::new(self.clock.clone()),
            ids: Arc::new(CountingIds::after(self.seed * 1_000_000)),
            entropy: Arc::new(SeededEntropy::new(self.seed)),
            release: "0.0.0",
        };
        let clock = Arc::new(self.clock.clone());
        let store = Store::open_file(&self.database(), NodeName::new("gw").unwrap(), clock).unwrap();
        Vault::open(Arc::new(store), &world, source, before).await
    }

    async fn open(&mut self) -> Vault {
        let source = self.key();
        self.open_with(source, None).await.unwrap_or_else(|error| panic!("{error}"))
    }
}

fn name(text: &str) -> SecretName {
    SecretName::new(text).unwrap()
}

fn web() -> ConnectionName {
    ConnectionName::new("web").unwrap()
}

fn ana() -> Actor {
    Actor::Operator(PersonName::new("ana").unwrap())
}

fn value(text: &str, host: Option<&str>) -> NewSecretValue {
    let scope = host.map(|host| SecretScope::new(vec!["network.*".into()], &[host.to_owned()]).unwrap());
    NewSecretValue { value: SecretValue::new(text.into()), kind: None, scope, overlap: Millis::from_mins(10) }
}

async fn take(vault: &Vault, secret: &str, capability: &str, host: &str) -> Result<Vec<u8>, VaultError> {
    let by = Actor::Agent(AgentName::new("clerk").unwrap());
    let (connection, hosts) = (web(), [host.to_owned()]);
    let wanted = SecretUse { capability, connection: &connection, hosts: &hosts, by };
    Ok(vault.take(&name(secret), &wanted).await?.expose().to_vec())
}

#[tokio::test]
async fn a_secret_is_there_after_a_restart_and_only_for_its_scope() {
    let mut place = TestVaultFolder::new();
    let vault = place.open().await;
    vault.set(&name("crm"), value("hunter2hunter2", Some("api.crm.example")), ana()).await.unwrap();
    drop(vault);
    let vault = place.open().await;
    let got = take(&vault, "crm", "network.http_request", "api.crm.example").await.unwrap();
    assert_eq!(got, b"hunter2hunter2");
    for (capability, host) in [("email.send", "api.crm.example"), ("network.http_request", "evil.example")] {
        assert!(matches!(take(&vault, "crm", capability, host).await, Err(VaultError::OutOfScope)));
    }
    assert!(matches!(take(&vault, "none", "network.http_request", "a.example").await, Err(VaultError::Unknown)));
}

#[tokio::test]
async fn a_new_value_is_used_at_once_and_the_old_one_is_known_for_a_while() {
    let mut place = TestVaultFolder::new();
    let vault = place.open().await;
    vault.set(&name("crm"), value("the-old-value", Some("a.example")), ana()).await.unwrap();
    let row = vault.set(&name("crm"), value("the-new-value", None), ana()).await.unwrap();
    assert_eq!(row.version, 2);
    assert_eq!(take(&vault, "crm", "network.http_request", "a.example").await.unwrap(), b"the-new-value");
    assert_eq!(vault.live().await.unwrap_or_else(|error| panic!("{error}")).len(), 2);
    place.clock.advance(Millis::from_mins(11));
    assert_eq!(vault.live().await.unwrap_or_else(|error| panic!("{error}")).len(), 1);
    vault.revoke(&name("crm"), ana()).await.unwrap();
    assert!(matches!(take(&vault, "crm", "network.http_request", "a.example").await, Err(VaultError::Unknown)));
    assert!(vault.live().await.unwrap_or_else(|error| panic!("{error}")).is_empty());
}

#[tokio::test]
async fn what_is_too_short_to_keep_out_of_answers_is_refused() {
    let vault = TestVaultFolder::new().open().await;
    for bad in ["", "short"] {
        assert!(matches!(vault.set(&name("x"), value(bad, Some("a.example")), ana()).await, Err(VaultError::Wrong(_))));
    }
    assert!(matches!(vault.set(&name("x"), value("long-enough", None), ana()).await, Err(VaultError::Wrong(_))));
}

/// An attacker with the database but without the key could write these rows.
#[tokio::test]
async fn rows_that_were_swapped_or_widened_do_not_open() {
    let wide = SecretScope::new(vec!["network.*".into()], &["evil.example".to_owned()]).unwrap().text();
    for tampering in 0..4 {
        let mut place = TestVaultFolder::new();
        let vault = place.open().await;
        let a = vault.set(&name("a"), value("value-of-a", Some("a.example")), ana()).await.unwrap();
        vault.set(&name("b"), value("value-of-b", Some("b.example")), ana()).await.unwrap();
        let sealed = |secret: &'static str| async {
            let found = vault.store.secret(name(secret)).await.unwrap().unwrap();
            found.1.into_iter().next().unwrap()
        };
        let (own, other) = (sealed("a").await, sealed("b").await);
        let put = PutSecret {
            name: name("a"),
            id: a.id,
            kind: a.kind,
            scope: a.scope,
            version: 2,
            root: own.root.clone(),
            wrapped: own.wrapped.clone(),
            sealed: own.sealed.clone(),
            keep_old_until: place.clock.now(),
            by: ana(),
        };
        let put = match tampering {
            0 => PutSecret { wrapped: other.wrapped, sealed: other.sealed, ..put },
            1 => PutSecret { sealed: other.sealed, ..put },
            2 => PutSecret { scope: wide.clone(), ..put },
            _ => put,
        };
        vault.store.put_secret(put).await.unwrap();
        for host in ["a.example", "evil.example", "b.example"] {
            let got = take(&vault, "a", "network.http_request", host).await;
            assert!(matches!(got, Err(VaultError::Tampered | VaultError::OutOfScope)), "{tampering}: {host}");
        }
    }
}

#[tokio::test]
async fn the_database_alone_shows_nothing() {
    let mut place = TestVaultFolder::new();
    let vault = place.open().await;
    vault.set(&name("crm"), value("CANARY-hunter2-CANARY", Some("a.example")), ana()).await.unwrap();
    drop(vault);
    for entry in fs::read_dir(place.folder.path()).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"CANARY"));
    }
}

#[tokio::test]
async fn another_key_than_the_one_that_sealed_it_opens_nothing() {
    let mut place = TestVaultFolder::new();
    drop(place.open().await);
    let stranger = place.private("other.key", &format!("sgk_{}", "ab".repeat(32)));
    let other = place.open_with(RootKeySource::File(stranger), None).await;
    assert!(other.is_err_and(|error| error.to_string().contains("not the one that sealed this vault")));
    fs::remove_file(place.path("root.key")).unwrap();
    let source = place.key();
    assert!(place.open_with(source, None).await.is_err(), "no second first key is made");
    assert!(!place.path("root.key").exists());
}

#[tokio::test]
async fn a_new_root_key_takes_the_place_of_the_old() {
    let mut place = TestVaultFolder::new();
    let vault = place.open().await;
    vault.set(&name("crm"), value("hunter2hunter2", Some("a.example")), ana()).await.unwrap();
    let (old, before) = (vault.fingerprint(), fs::read(place.path("root.key")).unwrap());
    assert_ne!(vault.rekey(ana()).await.unwrap(), old);
    assert_eq!(take(&vault, "crm", "network.x", "a.example").await.unwrap(), b"hunter2hunter2");
    assert_ne!(fs::read(place.path("root.key")).unwrap(), before);
    drop(vault);
    let vault = place.open().await;
    assert_eq!(take(&vault, "crm", "network.x", "a.example").await.unwrap(), b"hunter2hunter2");
    drop(vault);
    // Interrupted between the commit and the rename of the new file.
    fs::rename(place.path("root.key"), place.path("root.key.next")).unwrap();
    place.private("root.key", std::str::from_utf8(&before).unwrap());
    let vault = place.open().await;
    assert_eq!(take(&vault, "crm", "network.x", "a.example").await.unwrap(), b"hunter2hunter2");
    assert!(!place.path("root.key.next").exists());
}

#[tokio::test]
async fn a_key_file_is_left_for_a_passphrase_and_for_a_credential() {
    let mut place = TestVaultFolder::new();
    let vault = place.open().await;
    vault.set(&name("crm"), value("hunter2hunter2", Some("a.example")), ana()).await.unwrap();
    drop(vault);
    let phrase = RootKeySource::Passphrase(place.private("phrase", "correct horse battery staple\n"));
    let old = place.key();
    let vault = place.open_with(phrase.clone(), Some(old)).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(take(&vault, "crm", "network.x", "a.example").await.unwrap(), b"hunter2hunter2");
    assert!(matches!(vault.rekey(ana()).await, Err(VaultError::Wrong(_))), "a passphrase is not made by a gateway");
    drop(vault);
    fs::remove_file(place.path("root.key")).unwrap();
    let vault = place.open_with(phrase.clone(), None).await.unwrap_or_else(|error| panic!("{error}"));
    drop(vault);
    let credential = RootKeySource::Credential(place.private(CREDENTIAL, &format!("sgk_{}\n", "cd".repeat(32))));
    drop(place.open_with(credential.clone(), Some(phrase)).await.unwrap_or_else(|error| panic!("{error}")));
    let vault = place.open_with(credential, None).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(take(&vault, "crm", "network.x", "a.example").await.unwrap(), b"hunter2hunter2");
}

#[tokio::test]
async fn a_secret_that_does_not_open_hides_no_other_from_the_leak_scan() {
    let mut place = TestVaultFolder::new();
    let vault = place.open().await;
    for secret in ["a", "b", "c"] {
        vault.set(&name(secret), value(&format!("value-of-{secret}"), Some("a.example")), ana()).await.unwrap();
    }
    spoil(&vault, &place, "b").await;
    let live = vault.live().await.unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<&str> = live.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
}

/// Puts a version into the database that does not open as what it claims to be.
async fn spoil(vault: &Vault, place: &TestVaultFolder, secret: &str) {
    let (row, sealed) = vault.store.secret(name(secret)).await.unwrap().unwrap();
    let own = sealed.into_iter().next().unwrap();
    let put = PutSecret {
        name: row.name,
        id: row.id,
        kind: row.kind,
        scope: row.scope,
        version: 2,
        root: own.root,
        wrapped: own.wrapped,
        sealed: own.sealed,
        keep_old_until: place.clock.now(),
        by: ana(),
    };
    vault.store.put_secret(put).await.unwrap();
}

async fn withhold(vault: &Vault, place: &TestVaultFolder, id: u128) -> FindingId {
    let id = FindingId::from_bits(id);
    let finding = sluice_store::WithheldFinding {
        id,
        found_at: place.clock.now(),
        service: sluice_core::ServiceName::new("gmail").unwrap(),
        source: "a mail".into(),
        author: "mallory".into(),
        agent: None,
        session: None,
        call: None,
        score: 900,
        threshold: 500,
        notes: "[]".into(),
        bytes: 9,
        hash: [7; 32],
        content: vault.seal_withheld(id, b"what it says").unwrap_or_else(|error| panic!("{error}")),
        released: None,
        until: place.clock.now() + Millis::from_hours(72),
    };
    vault.store.withhold(finding, sluice_core::ids::MessageId::from_bits(id.bits())).await.unwrap();
    id
}

async fn withheld_opens(vault: &Vault, id: FindingId) -> bool {
    let found = vault.store.finding(id).await.unwrap().unwrap();
    vault.open_withheld(id, &found.content).is_ok_and(|content| content == b"what it says")
}

/// Does every step of a key change up to its commit, and none after it.
async fn cut_off_after_the_commit(vault: &Vault, to: &RootKey) {
    let from = vault.fingerprint();
    let salt = vault.store.vault_root().await.unwrap().unwrap().salt;
    let proof = to.proof(vault.entropy.as_ref()).unwrap();
    let to = VaultRoot { root: to.fingerprint(), salt, proof };
    vault.store.rekey_vault(RekeyVault { from, to, wrapped: Vec::new(), by: ana() }).await.unwrap();
}

#[tokio::test]
async fn withheld_items_follow_a_key_whose_change_was_cut_off_after_its_commit() {
    let mut place = TestVaultFolder::new();
    let vault = place.open().await;
    let id = withhold(&vault, &place, 1).await;
    assert!(withheld_opens(&vault, id).await);
    let to = RootKey::generate(&SeededEntropy::new(77));
    root::write(&place.path("root.key.next"), &to).unwrap();
    cut_off_after_the_commit(&vault, &to).await;
    drop(vault);
    let vault = place.open().await;
    assert_eq!(vault.fingerprint(), to.fingerprint());
    assert!(withheld_opens(&vault, id).await, "the old key is gone from the disk: this was the last chance");
    assert!(!place.path("root.key.next").exists());
    // The same by changing the kind of key, with the old one still configured.
    let phrase = RootKeySource::Passphrase(place.private("phrase", "correct horse battery staple\n"));
    let salt = vault.store.vault_root().await.unwrap().unwrap().salt;
    let to = phrase.read(&salt).unwrap_or_else(|why| panic!("{why}"));
    cut_off_after_the_commit(&vault, &to).await;
    drop(vault);
    let old = place.key();
    let vault = place.open_with(phrase, Some(old)).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(withheld_opens(&vault, id).await);
}

#[tokio::test]
async fn the_only_copy_of_the_key_in_force_is_never_removed() {
    let mut place = TestVaultFolder::new();
    let vault = place.open().await;
    vault.set(&name("crm"), value("hunter2hunter2", Some("a.example")), ana()).await.unwrap();
    let before = fs::read(place.path("root.key")).unwrap();
    let now = vault.rekey(ana()).await.unwrap();
    // As if the new file could not be renamed.
    fs::rename(place.path("root.key"), place.path("root.key.next")).unwrap();
    place.private("root.key", std::str::from_utf8(&before).unwrap());
    // The next change fails early: something in the vault does not open.
    spoil(&vault, &place, "crm").await;
    assert!(matches!(vault.rekey(ana()).await, Err(VaultError::Tampered)));
    drop(vault);
    let vault = place.open().await;
    assert_eq!(vault.fingerprint(), now);
}
