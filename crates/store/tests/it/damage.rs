//! Damage: files that were cut, flipped, swapped, filled up or edited are refused, or read as they were.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use sluice_core::audit::SealedAuditEntry;
use sluice_core::hold::Hold;
use sluice_core::ids::{KeyId, MessageId, SecretId, SessionId};
use sluice_core::throttle::ConnectionLimits;
use sluice_core::{AgentName, HoldId, Millis, NodeName};
use sluice_store::{
    AccessKeyKind, Admission, AlertFilter, AttemptOutcome, IssueKey, MessageSeverity, OutboxMessage, SetState,
    StateScope, StatedTask, Store, StoreError, TaskSource,
};
use sluice_testkit::ids::SplitMix;
use sluice_testkit::{CountingIds, ManualClock, TestStore};

use crate::checker;
use crate::contract::{egress, vault};
use crate::engines::{WINDOW, agent, asked, code, operator, refused};

/// The codes a damaged file may be refused with; any other result would be a guess.
const REFUSALS: [&str; 6] =
    ["store.damaged", "store.foreign_file", "store.newer_schema", "store.engine", "store.unavailable", "store.in_use"];

/// Opens a store. A program that another test is just starting holds our locks for a moment; that passes.
fn open(path: &Path) -> Result<Store, StoreError> {
    let try_once = || Store::open_file(path, NodeName::new("gw-1").unwrap(), Arc::new(ManualClock::default()));
    for _ in 0..10_000 {
        match try_once() {
            Err(StoreError::InUse) => std::thread::yield_now(),
            opened => return opened,
        }
    }
    try_once()
}

/// A database with writes in many states.
pub fn furnish(path: &Path) {
    let world = TestStore::file(path);
    for n in 0..4 {
        world.admit_held("clerk", &format!("{n} {}", "long enough to fill a page or two ".repeat(20)));
    }
    asked(&world, "scout", "asked");
    let cancelled = world.admit_held("scout", "cancelled");
    world.wait(world.store.cancel(cancelled, agent("scout"))).unwrap();
    world.admit_held("scribe", "in doubt");
    world.clock.advance(WINDOW);
    let due = world.wait(world.store.due_holds(world.now(), 100)).unwrap();
    let last = due.iter().filter(|hold| hold.agent().as_str() == "scribe").cloned().collect::<Vec<_>>();
    world.wait(world.store.claim(world.claims(&last))).unwrap();
    let hold = world.hold(last[0].id);
    world.arm(&hold).unwrap();
    world.finish(hold.id, hold.epoch, AttemptOutcome::Unclear).unwrap();
    world.admit(Admission { delay: Millis::from_secs(1), ..world.mail("porter", "dead") });
    world.clock.advance(Millis::from_secs(1));
    let due = world.wait(world.store.due_holds(world.now(), 100)).unwrap();
    let last = due.iter().filter(|hold| hold.agent().as_str() == "porter").cloned().collect::<Vec<_>>();
    world.wait(world.store.claim(world.claims(&last))).unwrap();
    world.finish(last[0].id, 1, refused()).unwrap();
    furnish_beside_writes(&world);
    furnish_the_vault(&world);
    checker::check(&world);
}

/// The other data of a gateway, besides writes.
pub fn furnish_beside_writes(world: &TestStore) {
    let (store, clerk) = (&world.store, || AgentName::new("clerk").unwrap());
    world.wait(store.add_agent(clerk(), "reads mail".into(), operator())).unwrap();
    let kind = AccessKeyKind::Agent(clerk());
    let id = KeyId::mint(world.ids.as_ref());
    let key = IssueKey { id, kind, label: None, hash: [7; 32], expires_at: None, by: operator() };
    world.wait(store.issue_key(key)).unwrap();
    let session = SessionId::mint(world.ids.as_ref());
    let task = StatedTask { text: "task".into(), by: TaskSource::Operator(operator()) };
    world.wait(store.open_session(session, clerk(), None, Some(task))).unwrap();
    let set = |shelf: StateScope, value: &str| SetState {
        hold: HoldId::mint(world.ids.as_ref()),
        shelf,
        key: "plan".into(),
        value: value.into(),
        by: clerk(),
        expected: None,
        quota: 1 << 20,
    };
    for shelf in [StateScope::Session(session), StateScope::Persistent(clerk()), StateScope::Shared] {
        world.wait(store.state_set(set(shelf.clone(), "1"))).unwrap();
        world.wait(store.state_set(set(shelf, "2"))).unwrap();
    }
    let body = serde_json::json!({});
    let id = MessageId::mint(world.ids.as_ref());
    let alert = OutboxMessage { id, topic: "agent.alert".into(), severity: MessageSeverity::Warning, body };
    world.wait(store.alert(alert, agent("clerk"))).unwrap();
}

/// A secret, and an egress connection that was used.
pub fn furnish_the_vault(world: &TestStore) {
    vault::begin(world);
    let id = SecretId::mint(world.ids.as_ref());
    for version in 1..=2 {
        world.wait(world.store.put_secret(vault::put(world, "mail/token", version, id))).unwrap();
    }
    egress::take(world, ConnectionLimits::default(), 1);
    egress::heard(world, 429);
}

/// Everything that can be read from a store.
#[derive(Debug, Clone, PartialEq)]
struct StoreContents {
    holds: Vec<Hold>,
    entries: Vec<SealedAuditEntry>,
    verified: bool,
}

fn read(store: &Store) -> Result<StoreContents, StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let holds = store.holds(None, 1_000).await?;
        store.open_approvals(1_000).await?;
        store.freezes().await?;
        store.keys().await?;
        store.secrets().await?;
        store.secret_versions().await?;
        store.egress_states(sluice_core::UtcMillis::from_millis(0)).await?;
        store.agents().await?;
        store.alerts(AlertFilter::default(), None, 1_000).await?;
        store.state_query(StateScope::Shared, String::new(), None, 1_000).await?;
        store.due_messages(sluice_core::UtcMillis::from_millis(i64::MAX), 1_000).await?;
        let (mut entries, mut verified) = (Vec::new(), true);
        for (log, head) in store.logs().await? {
            let sealed = store.entries(log.clone(), 0, 100_000).await?;
            verified &= checker::verify(&log, head, &sealed).is_ok();
            entries.extend(sealed);
        }
        Ok(StoreContents { holds, entries, verified })
    })
}

/// A copy of a database whose gateway was killed, so that its newest pages are only in the log beside it.
fn killed_copy(folder: &Path) -> (PathBuf, StoreContents) {
    let path = folder.join("original.db");
    furnish(&path);
    let store = open(&path).unwrap();
    let world_ids = CountingIds::after(10_000);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for n in 0..5 {
        let mail = sluice_testkit::test_store::mail(&world_ids, "late", &n.to_string());
        runtime.block_on(store.admit(mail)).unwrap();
    }
    let all = read(&store).unwrap();
    assert!(all.verified);
    let copy = folder.join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    // Without the space after the last frame: there is nothing in it to be damaged.
    let mut log = std::fs::read(beside(&path, "-wal")).unwrap();
    let used = log.iter().rposition(|byte| *byte != 0).unwrap();
    log.truncate(32 + (used - 32).div_ceil(4096 + 24) * (4096 + 24));
    std::fs::write(beside(&copy, "-wal"), log).unwrap();
    (copy, all)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_path_buf();
    name.as_mut_os_string().push(suffix);
    name
}

/// Writes these bytes where a database would be.
fn lay(folder: &Path, database: &[u8], log: Option<&[u8]>) -> PathBuf {
    let path = folder.join("damaged.db");
    for suffix in ["-wal", "-shm", ".lock"] {
        drop(std::fs::remove_file(beside(&path, suffix)));
    }
    std::fs::write(&path, database).unwrap();
    if let Some(log) = log {
        std::fs::write(beside(&path, "-wal"), log).unwrap();
    }
    path
}

/// The readable content, or the code it was refused with.
fn outcome(path: &Path) -> Result<StoreContents, &'static str> {
    let found = open(path).and_then(|store| read(&store)).map_err(|error| error.code());
    if let Err(refusal) = &found {
        assert!(REFUSALS.contains(refusal), "{refusal}");
    }
    found
}

#[test]
fn a_truncated_file_is_refused_or_read_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.db");
    furnish(&path);
    let original = read(&open(&path).unwrap()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mut refused = 0;
    for step in 1..40 {
        let length = bytes.len() * step / 40;
        match outcome(&lay(folder.path(), &bytes[..length], None)) {
            Ok(found) => assert!(found == original, "something else was read at {length} of {}", bytes.len()),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 30, "{refused}");
}

#[test]
fn the_file_of_a_stopped_gateway_is_whole_without_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice.db");
    furnish(&path);
    assert!(!beside(&path, "-wal").exists(), "nothing is left beside it");
    let original = read(&open(&path).unwrap()).unwrap();
    let alone = lay(folder.path(), &std::fs::read(&path).unwrap(), None);
    assert!(read(&open(&alone).unwrap()).unwrap() == original && original.holds.len() == 8);
}

#[test]
fn an_emptied_file_is_not_taken_for_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice.db");
    furnish(&path);
    std::fs::write(&path, b"").unwrap();
    assert_eq!(code(open(&path)), "store.damaged");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(code(open(&path)), "store.damaged", "nor a vanished one");
    std::fs::remove_file(beside(&path, ".lock")).unwrap();
    open(&path).unwrap();
}

#[test]
fn a_flipped_bit_is_found_or_changes_nothing_that_is_vouched_for() {
    let folder = tempfile::tempdir().unwrap();
    let (copy, original) = killed_copy(folder.path());
    let (database, log) = (std::fs::read(&copy).unwrap(), std::fs::read(beside(&copy, "-wal")).unwrap());
    let undamaged = outcome(&lay(folder.path(), &database, Some(&log)));
    assert!(undamaged.as_ref() == Ok(&original), "the copy itself is undamaged");
    let actions: BTreeMap<_, _> = original.holds.iter().map(|hold| (hold.id, hold.action.clone())).collect();
    let (mut random, mut refused, mut unverified, mut older, mut unvouched) = (SplitMix::new(7), 0, 0, 0, 0);
    for flip in 0..200 {
        let (mut bytes, mut beside) = (database.clone(), log.clone());
        let place = if flip % 2 == 0 { &mut bytes } else { &mut beside };
        let at = usize::try_from(random.below(place.len() as u64)).unwrap();
        place[at] ^= 1_u8 << random.below(8);
        let found = match outcome(&lay(folder.path(), &bytes, Some(&beside))) {
            Ok(found) => found,
            Err(_) => {
                refused += 1;
                continue;
            }
        };
        for hold in &found.holds {
            assert_eq!(Some(&hold.action), actions.get(&hold.id), "what would be sent is what was admitted");
        }
        if !found.verified {
            unverified += 1;
        } else if found.entries != original.entries {
            // SQLite drops the tail of a log that is not consistent: an older state, complete in itself.
            assert!(original.entries.starts_with(&found.entries), "a changed record verified");
            older += 1;
        } else if found.holds != original.holds {
            unvouched += 1;
        }
    }
    // Columns outside the audit log (times, counts, policy names) have no checksum: counted, not hidden.
    println!("refused {refused}, unverified {unverified}, older {older}, unvouched columns {unvouched}");
    assert!(refused + unverified + older > 10, "flips must have been noticed");
    assert!(unvouched < 20, "{unvouched}");
}

#[test]
fn an_entry_with_any_flipped_bit_never_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice.db");
    furnish(&path);
    let store = open(&path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (log, head) = runtime.block_on(store.logs()).unwrap().remove(0);
    let sealed = runtime.block_on(store.entries(log.clone(), 0, 1_000)).unwrap();
    assert!(checker::verify(&log, head, &sealed).is_ok());
    let mut random = SplitMix::new(3);
    for _ in 0..500 {
        let mut changed = sealed.clone();
        let entry = usize::try_from(random.below(changed.len() as u64)).unwrap();
        let body = &mut changed[entry].body;
        let at = usize::try_from(random.below(body.len() as u64)).unwrap();
        body[at] ^= 1 << random.below(8);
        assert!(checker::verify(&log, head, &changed).is_err());
    }
    for at in 0..sealed.len() {
        let mut missing = sealed.clone();
        missing.remove(at);
        assert!(checker::verify(&log, head, &missing).is_err(), "without entry {at}");
    }
}

#[test]
fn a_file_of_a_newer_release_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice.db");
    furnish(&path);
    edit(&path, &format!("PRAGMA user_version = {}", sluice_store::SCHEMA + 1));
    assert_eq!(code(open(&path)), "store.newer_schema");
}

#[test]
fn a_foreign_file_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("foreign.db");
    edit(&path, "CREATE TABLE recipes (name TEXT); INSERT INTO recipes VALUES ('soup')");
    let before = std::fs::read(&path).unwrap();
    assert_eq!(code(open(&path)), "store.foreign_file");
    assert_eq!(std::fs::read(&path).unwrap(), before, "not even its journal mode changed");
    let mut random = SplitMix::new(1);
    let noise: Vec<u8> = (0..10_000).map(|_| random.draw().to_le_bytes()[0]).collect();
    let noisy = folder.path().join("noise.db");
    std::fs::write(&noisy, &noise).unwrap();
    assert_eq!(code(open(&noisy)), "store.damaged");
    assert_eq!(std::fs::read(&noisy).unwrap(), noise);
}

#[test]
fn a_file_belongs_to_one_gateway_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice.db");
    let first = open(&path).unwrap();
    assert_eq!(code(open(&path)), "store.in_use");
    drop(first);
    open(&path).unwrap();
}

/// Runs statements on a file directly, which nobody should do.
pub fn edit(path: &Path, statements: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(statements).unwrap();
}

#[test]
fn a_row_that_cannot_be_is_never_read_as_something() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice.db");
    furnish(&path);
    let whole = std::fs::read(&path).unwrap();
    let states = sluice_core::hold::diagram::states();
    let mut impossible: Vec<String> = Vec::new();
    // Every state with the columns of every other state, and every column that a state does not have.
    for state in &states {
        impossible.push(format!("UPDATE holds SET state = '{}', approval = NULL, not_before = NULL, claim_node = 'x', \
             lease_until = NULL, since = NULL, rounds = NULL, code = NULL, receipt = NULL, actor = NULL, ended_at = NULL", state.word()));
        impossible
            .push(format!("UPDATE holds SET state = '{}', not_before = 1, since = 1, ended_at = 1", state.word()));
        impossible.push(format!("UPDATE holds SET state = '{}', code = 'x', receipt = 'y'", state.word()));
    }
    impossible.extend(
        [
            "UPDATE holds SET state = 'sent'",
            "UPDATE holds SET state = 'HELD'",
            "UPDATE holds SET tier = 'lenient'",
            "UPDATE holds SET class = 'maybe'",
            "UPDATE holds SET agent = 'scout' WHERE agent = 'clerk'",
            "UPDATE holds SET agent = '../x'",
            "UPDATE holds SET weight = -1",
            "UPDATE holds SET delay = -1",
            "UPDATE holds SET digest = zeroblob(33)",
            "UPDATE holds SET digest = zeroblob(3)",
            "UPDATE holds SET call = zeroblob(15)",
            "UPDATE holds SET rounds = -1 WHERE state = 'in_doubt'",
            "UPDATE holds SET actor = 'robot:x' WHERE state = 'cancelled'",
            "UPDATE contents SET action = zeroblob(10)",
            "UPDATE contents SET action = (SELECT action FROM contents ORDER BY hold LIMIT 1)",
        ]
        .map(str::to_owned),
    );
    for statement in &impossible {
        let path = lay(folder.path(), &whole, None);
        edit(&path, statement);
        let found = outcome(&path).map(|_| "read");
        assert_eq!(found, Err("store.damaged"), "{statement}");
    }
    for statement in [
        "UPDATE approvals SET state = 'approved'",
        "UPDATE approvals SET state = 'maybe'",
        "UPDATE approvals SET answer = '7'",
        "UPDATE approvals SET expires_at = NULL",
        "UPDATE approvals SET decided_by = 'person:ana'",
        "UPDATE approvals SET subject = 'herd'",
        "UPDATE approvals SET items = -1",
        "INSERT INTO freezes VALUES ('galaxy', '', 'person:ana', 'r', 1)",
        "INSERT INTO freezes VALUES ('agent', '..', 'person:ana', 'r', 1)",
        "UPDATE outbox SET severity = 'loud'",
        "UPDATE outbox SET body = '{'",
        "UPDATE nodes SET log_hash = zeroblob(31)",
        "UPDATE nodes SET log_size = -1",
        "UPDATE audit_entries SET hash = zeroblob(31)",
        "UPDATE keys SET kind = 'operator'",
        "UPDATE keys SET role = 'admin'",
        "UPDATE keys SET name = '../x'",
        "UPDATE keys SET hash = zeroblob(31)",
        "UPDATE keys SET revoked_at = 1",
        "UPDATE agents SET name = '../x'",
        "UPDATE agents SET paused_at = 1",
        "UPDATE outbox SET acked_at = 1",
        "UPDATE outbox SET sent_by = 'robot:x'",
        "UPDATE state_items SET name = x'61ff'",
        "UPDATE state_items SET agent = '../x'",
    ] {
        let path = lay(folder.path(), &whole, None);
        edit(&path, statement);
        let found = outcome(&path).map(|_| "read");
        // Only open requests are listed, so one whose row says that it was decided is not read here.
        let unread = statement.starts_with("UPDATE approvals SET state");
        assert!(found == Err("store.damaged") || unread && found.is_ok(), "{statement}: {found:?}");
    }
}

/// A small file system for a test, if this machine allows one.
pub struct TmpfsDisk(tempfile::TempDir);

impl TmpfsDisk {
    pub fn of(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "sluice-test"], folder.path());
        if !mounted {
            sluice_testkit::skip("no separate file system here (needs root and mount)");
        }
        mounted.then_some(Self(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

fn mount(arguments: &[&str], folder: &Path) -> bool {
    Command::new("mount").args(arguments).arg(folder).output().is_ok_and(|run| run.status.success())
}

impl Drop for TmpfsDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.path()).output());
    }
}

#[test]
fn a_full_disk_loses_nothing_acknowledged_and_goes_on_when_there_is_space() {
    let Some(disk) = TmpfsDisk::of("2m") else { return };
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 1200 * 1024]).unwrap();
    let path = disk.path().join("sluice.db");
    let world = TestStore::file(&path);
    let mut acknowledged = Vec::new();
    let mut admit = |world: &TestStore, n: usize| {
        let mail = world.mail(&format!("clerk-{n}"), &format!("{n} {}", "text ".repeat(400)));
        let id = mail.hold;
        world.wait(world.store.admit(mail)).map(|_| acknowledged.push(id)).map_err(|error| error.code())
    };
    let refusal = (0..2_000).find_map(|n| admit(&world, n).err());
    assert_eq!(refusal, Some("store.disk_full"));
    for n in 2_000..2_010 {
        assert_eq!(admit(&world, n), Err("store.disk_full"));
    }
    std::fs::remove_file(&ballast).unwrap();
    for n in 3_000..3_005 {
        assert_eq!(admit(&world, n), Ok(()), "there is space again");
    }
    checker::check(&world);
    let there: Vec<_> = world.wait(world.store.holds(None, 10_000)).unwrap().into_iter().map(|hold| hold.id).collect();
    assert_eq!(there, acknowledged, "exactly what was acknowledged");
    let clock = world.clock.clone();
    drop(world);
    let world = TestStore::reopen(&path, &clock);
    checker::check(&world);
    assert_eq!(world.wait(world.store.holds(None, 10_000)).unwrap().len(), acknowledged.len());
}

#[test]
fn a_read_only_place_is_called_that() {
    let Some(disk) = TmpfsDisk::of("4m") else { return };
    let path = disk.path().join("sluice.db");
    furnish(&path);
    assert!(mount(&["-o", "remount,ro"], disk.path()));
    assert_eq!(code(open(&path)), "store.read_only");
    assert_eq!(code(open(&disk.path().join("new.db"))), "store.read_only");
    assert!(mount(&["-o", "remount,rw"], disk.path()));
    open(&path).unwrap();
}
