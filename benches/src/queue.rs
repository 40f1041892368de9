//! From due to done: admitted, claimed, armed, performed and finished, compared with a bare claim and complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::try_join_all;
use sluice_core::ids::MessageId;
use sluice_core::{ApprovalId, Clock as _, Ids, Millis};
use sluice_store::{
    Admission, ArmWrite, AttemptOutcome, ClaimDueWrites, ClaimItem, FinishAttempt, PolicyRecheck, Store,
    WriteClaimOutcome,
};
use sluice_testkit::ids::SeededIds;
use tokio::runtime::Runtime;

use crate::floor::{FloorRow, FloorRows, postgres, sqlite};
use crate::load::{self, BenchStore, MailAdmissions, WallClock};
use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{self, MedianRange, PairedRounds, RunTimes, in_turns, timed};

const PRODUCERS: usize = 32;
const EACH: usize = 100;
const GROUP: u32 = 100;
const ROUNDS: usize = 5;
/// What peers with one durable job at a time reached on such a machine (design notes; published figures agree).
const PEERS: f64 = 230.0;

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let runtime = load::runtime()?;
    let mut notes = Vec::new();
    let mut rows = rows("SQLite", &on_sqlite(&runtime)?);
    match on_postgres(&runtime)? {
        Some(pair) => rows.extend(self::rows("PostgreSQL", &pair)),
        None => notes.push("PostgreSQL was not measured: there was no server.".into()),
    }
    notes.push(format!(
        "A job of ours is a held write: admission, claim with a second look, arming, finishing, and five audit entries. The bare one is \
         inserted, marked claimed and marked complete. {} jobs/s is what the best durable queues people use reached end to end with jobs \
         inserted one by one; that figure is from another run, so its ratio is for orientation.",
        figure(PEERS)
    ));
    let how = format!(
        "{PRODUCERS} producers admit {} writes that are due at once, while one release loop takes up to {GROUP} at a time: due, claim, then \
         for all of them at once arm, carry out (nothing), finish. From the first admission to the last finish. {ROUNDS} rounds.",
        PRODUCERS * EACH
    );
    let [_, _, title, ..] = ORDER;
    Ok(ReportSection { name: "queue", title, how, rows, notes })
}

fn rows(engine: &str, pair: &PairedRounds) -> Vec<ReportLine> {
    let per_second = |side| format!("{} /s", figure(rounds::of(side, RunTimes::per_second)));
    let against_peers = rounds::median(pair.ours.iter().map(|took| took.per_second() / PEERS).collect());
    let row = |against: &str, floor: String, ratio: MedianRange, target| ReportLine {
        what: format!("jobs end to end, {engine}"),
        ours: per_second(&pair.ours),
        against: against.into(),
        floor,
        ratio,
        target,
    };
    let bare = "bare claim and complete in groups of 100";
    vec![
        row(bare, per_second(&pair.floor), pair.ratio(RunTimes::per_second), RatioTarget::AtLeast(0.3)),
        row("queues people use", format!("~{} /s", figure(PEERS)), against_peers, RatioTarget::AtLeast(10.0)),
    ]
}

const fn count() -> usize {
    PRODUCERS * EACH
}

fn on_sqlite(runtime: &Runtime) -> anyhow::Result<PairedRounds> {
    let bench = BenchStore::file()?;
    let beside = load::folder()?;
    let floor = sqlite::SqliteFloor::queue(&beside.path().join("floor.db"))?;
    let door = floor.door()?;
    let mut rows = FloorRows::new(load::payload(&bench, runtime)?);
    let pair = in_turns(ROUNDS, ours(runtime, &bench), || {
        let piles = rows.dealt(PRODUCERS, EACH);
        let insert = |row: FloorRow| {
            let door = door.clone();
            async move { door.insert(row).await }
        };
        let release = async {
            let mut done = 0;
            while done < count() {
                let jobs = door.claim(GROUP).await?;
                done += jobs.len();
                // Nothing is due yet: the next claim waits for its commit, so this does not spin.
                if !jobs.is_empty() {
                    door.complete(jobs).await?;
                }
            }
            anyhow::Ok(())
        };
        Ok(timed(count() as u64, || both(runtime, piles, insert, release))?.0)
    })?;
    drop(door);
    floor.close()?;
    Ok(pair)
}

fn on_postgres(runtime: &Runtime) -> anyhow::Result<Option<PairedRounds>> {
    let Some(bench) = BenchStore::server()? else { return Ok(None) };
    let Some(floor) = runtime.block_on(postgres::PostgresFloor::queue(PRODUCERS))? else { return Ok(None) };
    let (claim, complete) = runtime.block_on(floor.steps())?;
    let mut rows = FloorRows::new(load::payload(&bench, runtime)?);
    let pair = in_turns(ROUNDS, ours(runtime, &bench), || {
        let piles = rows.dealt(PRODUCERS, EACH).into_iter().enumerate().map(|(caller, pile)| {
            let inserter = floor.inserter(caller)?;
            Ok(pile.into_iter().map(|row| (Arc::clone(&inserter), row)).collect())
        });
        let piles = piles.collect::<anyhow::Result<Vec<Vec<_>>>>()?;
        let insert =
            |(inserter, row): (Arc<postgres::FloorInserter>, FloorRow)| async move { inserter.insert(row).await };
        let release = async {
            let mut done = 0;
            while done < count() {
                let jobs = floor.claim(&claim, i64::from(GROUP)).await?;
                done += jobs.len();
                if !jobs.is_empty() {
                    floor.complete(&complete, &jobs).await?;
                }
            }
            anyhow::Ok(())
        };
        Ok(timed(count() as u64, || both(runtime, piles, insert, release))?.0)
    })?;
    Ok(Some(pair))
}

/// One round of ours.
fn ours(runtime: &Runtime, bench: &BenchStore) -> impl FnMut() -> anyhow::Result<RunTimes> {
    let mut mails = MailAdmissions::new(Millis::ZERO);
    let ids = SeededIds::new(23);
    move || {
        let piles = mails.dealt(PRODUCERS, EACH)?;
        let admit = |admission: Admission| {
            let store = Arc::clone(&bench.store);
            async move { store.admit(admission).await.map(drop).map_err(Into::into) }
        };
        let done = AtomicUsize::new(0);
        let release = async {
            while done.load(Ordering::Relaxed) < count() {
                step(&bench.store, &ids, &done).await?;
            }
            anyhow::Ok(())
        };
        let (took, ()) = timed(count() as u64, || both(runtime, piles, admit, release))?;
        Ok(took)
    }
}

/// One turn of the release loop.
async fn step(store: &Store, ids: &dyn Ids, done: &AtomicUsize) -> anyhow::Result<()> {
    let due = store.due_holds(WallClock.now(), GROUP).await?;
    if due.is_empty() {
        // In the gateway a timer or a hint wakes the loop; here the producers get the processor.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        return Ok(());
    }
    let item = |hold: &sluice_core::hold::Hold| ClaimItem {
        hold: hold.id,
        version: hold.version,
        recheck: PolicyRecheck::Stands,
        approval: ApprovalId::mint(ids),
        message: MessageId::mint(ids),
    };
    let items = due.iter().map(item).collect();
    let claimed =
        store.claim(ClaimDueWrites { items, lease: Millis::from_secs(60), expiry: Millis::from_hours(1) }).await?;
    let carried_out = claimed.into_iter().map(|claimed| async move {
        let WriteClaimOutcome::Ours(hold) = claimed else { anyhow::bail!("not claimed but {claimed:?}") };
        let (wire, epoch) = (hold.action.digest(), hold.epoch);
        let arming = ArmWrite { hold: hold.id, epoch, wire, handle: None, before: None };
        let _permit = store.arm(arming).await?;
        let outcome =
            AttemptOutcome::Done { receipt: "receipt".into(), after: None, service_until: None, result: None };
        let finished = store
            .finish(FinishAttempt { hold: hold.id, epoch, outcome, service_words: None, message: MessageId::mint(ids) })
            .await?;
        anyhow::ensure!(finished.state.word() == "done", "ended as {}", finished.state.word());
        done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    try_join_all(carried_out).await?;
    Ok(())
}

/// Producers and the release loop in parallel, until both are finished.
fn both<T, F>(
    runtime: &Runtime,
    piles: Vec<Vec<T>>,
    work: impl Fn(T) -> F,
    release: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    runtime.block_on(async {
        let (produced, released) = tokio::join!(load::work_off(piles, work), release);
        produced.and(released)
    })
}
