//! Faults planted on purpose, to show that the checks would find them.
//!
//! They are part of this driver and bypass the store with their own SQL; the product has no switch for any of them.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};
use sluice_core::audit::{AuditFact, AuditHash, ChainHead};
use sluice_core::hold::Hold;
use sluice_core::{Actor, Clock as _, HoldId, Ids as _, UtcMillis};
use sluice_store::Store;
use sluice_testkit::SeededIds;
use sluice_testkit::crash_state::{AcknowledgedWrites, LastingClock};

use crate::DriverParams;
use crate::kill_points::KillPoints;

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedFault {
    /// At the start, everything that was running is simply done again.
    NaiveRescue,
    /// The row says `done` in one transaction, the audit log in the next.
    AuditAfterCommit,
    /// Admissions are acknowledged before they are on disk.
    SyncOff,
}

impl PlantedFault {
    pub fn named(word: &str) -> Self {
        match word {
            "naive_rescue" => Self::NaiveRescue,
            "audit_after_commit" => Self::AuditAfterCommit,
            "sync_off" => Self::SyncOff,
            _ => panic!("there is no plant called `{word}`"),
        }
    }
}

const RESCUE: &str = "UPDATE holds SET state = 'ready', version = version + 1, not_before = admitted_at, \
     claim_node = NULL, claim_life = NULL, lease_until = NULL WHERE state IN ('preparing', 'armed')";

/// Treats interrupted writes as not done: no uncertain outcome, no lookup, no person.
pub fn rescue_naively(store: &str) {
    if store.starts_with("postgres://") {
        on_server(store, RESCUE);
    } else if Path::new(store).exists() {
        // A process that ended before its first commit has left no tables.
        drop(open(store).execute(RESCUE, []));
    }
}

fn on_server(url: &str, statement: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(async {
        let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap_or_else(|error| panic!("no connection: {error}"));
        let asked = async {
            // As above: there may be no tables yet.
            drop(client.batch_execute(statement).await);
            drop(client);
        };
        let ((), _) = tokio::join!(asked, connection);
    });
}

/// Writes `done` to the row first, and to the audit log later.
pub fn finish_and_record_later(asked: &DriverParams, hold: &Hold, now: UtcMillis, points: &KillPoints) {
    let mut connection = open(&asked.store);
    points.before("finish");
    let moved = connection.execute(
        "UPDATE holds SET state = 'done', version = version + 1, claim_node = NULL, claim_life = NULL, lease_until = NULL, \
         receipt = 'service', ended_at = ?2 WHERE id = ?1 AND state = 'armed'",
        params![hold.id.bits().to_be_bytes(), now.as_millis()],
    );
    assert!(moved.is_ok_and(|rows| rows == 1), "the plant did not take");
    points.after("row");
    let recorded = record(&mut connection, asked, hold.id, now);
    recorded.unwrap_or_else(|error| panic!("the plant did not record: {error}"));
    points.after("finish");
}

fn record(connection: &mut Connection, asked: &DriverParams, hold: HoldId, now: UtcMillis) -> rusqlite::Result<()> {
    let node = asked.node.as_str();
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let version: u32 =
        tx.query_row("SELECT version FROM holds WHERE id = ?1", [hold.bits().to_be_bytes()], |row| row.get(0))?;
    let mut head = tx.query_row("SELECT log_size, log_hash FROM nodes WHERE node = ?1", [node], |row| {
        Ok(ChainHead { size: u64::from(row.get::<_, u32>(0)?), hash: AuditHash(row.get(1)?) })
    })?;
    let mut fact = AuditFact::new("hold.done", Actor::Node(asked.node.clone())).with("move", "complete");
    fact = fact.with("version", version);
    (fact.hold, fact.from, fact.to) = (Some(hold), Some("armed".into()), Some("done".into()));
    let sealed = head.seal(&asked.node, now, &fact);
    tx.execute(
        "INSERT INTO audit_entries (log, seq, hash, body) VALUES (?1, ?2, ?3, ?4)",
        params![node, small(sealed.seq), sealed.hash.0, sealed.body],
    )?;
    tx.execute(
        "UPDATE nodes SET log_size = ?2, log_hash = ?3 WHERE node = ?1",
        params![node, small(head.size), head.hash.0],
    )?;
    tx.commit()
}

/// Acknowledges writes that are not on disk yet.
pub fn admit_without_sync(asked: &DriverParams) {
    let clock = LastingClock::resume(&asked.folder);
    let made = Store::open_file(Path::new(&asked.store), asked.node.clone(), std::sync::Arc::new(clock.clock.clone()));
    drop(made.unwrap_or_else(|error| panic!("no database: {error}")));
    let (connection, mut acks) = (open(&asked.store), AcknowledgedWrites::resume(&asked.folder));
    let off = connection.pragma_update(None, "synchronous", "OFF");
    off.unwrap_or_else(|error| panic!("sync stays on: {error}"));
    let ids = SeededIds::new(asked.seed);
    for number in 0..asked.work.writes {
        let hold = HoldId::from_bits(ids.mint());
        let text = format!("{hold} {}", clock.clock.now());
        let kept = connection.execute("INSERT INTO meta (name, value) VALUES (?1, ?2)", [hold.to_string(), text]);
        kept.unwrap_or_else(|error| panic!("not even written: {error}"));
        acks.note("admitted", number, hold);
    }
}

/// The logs of these tests are short.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn open(path: &str) -> Connection {
    let connection = Connection::open(path).unwrap_or_else(|error| panic!("no second connection: {error}"));
    let patient = connection.busy_timeout(Duration::from_secs(5));
    patient.unwrap_or_else(|error| panic!("no patience: {error}"));
    connection
}
