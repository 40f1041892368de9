//! Admission of writes: hold, content, audit entry, counters and idempotency key, compared with one bare row.

use std::sync::Arc;

use sluice_core::Millis;
use sluice_store::AdmissionOutcome;
use tokio::runtime::Runtime;

use crate::floor::{FloorRows, postgres, sqlite};
use crate::load::{self, BenchStore, MailAdmissions};
use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{self, PairedRounds, RunTimes, in_turns, timed};

const WRITERS: usize = 64;
const EACH: usize = 100;
const ROUNDS: usize = 7;

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let runtime = load::runtime()?;
    let mut notes = vec![
        "A row of the floor has as many bytes as the action and the audit entry of an admission together; the other \
         rows of an admission (state, counter, key) come on top."
            .to_owned(),
        "The target is about writes that are simply held. Those that people are told of leave a message as well, in the same transaction; \
         that has a row of its own. Before that row was there, all figures had the message in them."
            .to_owned(),
    ];
    let floor = "group-committed inserts of one row";
    let pair = on_sqlite(&runtime, MailAdmissions::new(Millis::from_hours(1)))?;
    let mut rows = vec![rate("SQLite", floor, &pair), processor("SQLite", &pair)];
    let told = on_sqlite(&runtime, MailAdmissions::new(Millis::from_hours(1)).told())?;
    rows.push(ReportLine { target: RatioTarget::None, ..rate("each with a message to people, SQLite", floor, &told) });
    match on_postgres(&runtime)? {
        Some(pair) => {
            rows.push(rate("PostgreSQL", "inserts of one row on 64 connections", &pair));
            rows.push(processor("PostgreSQL, without the server's share", &pair));
        }
        None => notes.push("PostgreSQL was not measured: there was no server.".into()),
    }
    let how = format!(
        "`Store::admit` by {WRITERS} callers at once, {} admissions in each of {ROUNDS} rounds: it looks at key, freezes and \
         batch window, then writes hold, content, audit entry, counter and key in one durable transaction.",
        WRITERS * EACH
    );
    let [title, ..] = ORDER;
    Ok(ReportSection { name: "store", title, how, rows, notes })
}

fn on_sqlite(runtime: &Runtime, mails: MailAdmissions) -> anyhow::Result<PairedRounds> {
    let bench = BenchStore::file()?;
    let beside = load::folder()?;
    let floor = sqlite::SqliteFloor::rows(&beside.path().join("floor.db"))?;
    let door = floor.door()?;
    let mut rows = FloorRows::new(load::payload(&bench, runtime)?);
    let pair = in_turns(ROUNDS, ours(runtime, &bench, mails), || {
        let piles = rows.dealt(WRITERS, EACH);
        let work = |row| {
            let door = door.clone();
            async move { door.insert(row).await }
        };
        Ok(timed(count(), || load::all_at_once(runtime, piles, work))?.0)
    })?;
    drop(door);
    floor.close()?;
    Ok(pair)
}

fn on_postgres(runtime: &Runtime) -> anyhow::Result<Option<PairedRounds>> {
    let Some(bench) = BenchStore::server()? else { return Ok(None) };
    let Some(floor) = runtime.block_on(postgres::PostgresFloor::rows(WRITERS))? else { return Ok(None) };
    let mut rows = FloorRows::new(load::payload(&bench, runtime)?);
    let pair = in_turns(ROUNDS, ours(runtime, &bench, MailAdmissions::new(Millis::from_hours(1))), || {
        let piles = rows.dealt(WRITERS, EACH).into_iter().enumerate().map(|(caller, pile)| {
            let inserter = floor.inserter(caller)?;
            Ok(pile.into_iter().map(|row| (Arc::clone(&inserter), row)).collect())
        });
        let piles = piles.collect::<anyhow::Result<Vec<Vec<_>>>>()?;
        let work = |(inserter, row): (Arc<postgres::FloorInserter>, _)| async move { inserter.insert(row).await };
        Ok(timed(count(), || load::all_at_once(runtime, piles, work))?.0)
    })?;
    Ok(Some(pair))
}

/// One round of ours. Each admission must have become a hold: a refusal would be cheap.
fn ours(runtime: &Runtime, bench: &BenchStore, mut mails: MailAdmissions) -> impl FnMut() -> anyhow::Result<RunTimes> {
    move || {
        let piles = mails.dealt(WRITERS, EACH)?;
        let work = |admission| {
            let store = Arc::clone(&bench.store);
            async move {
                let admitted = store.admit(admission).await?;
                anyhow::ensure!(matches!(admitted, AdmissionOutcome::Held { .. }), "not held but {admitted:?}");
                Ok(())
            }
        };
        Ok(timed(count(), || load::all_at_once(runtime, piles, work))?.0)
    }
}

const fn count() -> u64 {
    (WRITERS * EACH) as u64
}

fn rate(engine: &str, against: &str, pair: &PairedRounds) -> ReportLine {
    let per_second = |side| format!("{} /s", figure(rounds::of(side, RunTimes::per_second)));
    ReportLine {
        what: format!("admissions, {engine}"),
        ours: per_second(&pair.ours),
        against: against.into(),
        floor: per_second(&pair.floor),
        ratio: pair.ratio(RunTimes::per_second),
        target: RatioTarget::AtLeast(0.5),
    }
}

/// Processor time, for information: a slow disk hides it.
fn processor(engine: &str, pair: &PairedRounds) -> ReportLine {
    let micros = |side| format!("{} µs", figure(rounds::of(side, RunTimes::cpu_nanos) / 1_000.0));
    ReportLine {
        what: format!("processor time for each, {engine}"),
        ours: micros(&pair.ours),
        against: "the same".into(),
        floor: micros(&pair.floor),
        ratio: pair.ratio(RunTimes::cpu_nanos),
        target: RatioTarget::None,
    }
}
