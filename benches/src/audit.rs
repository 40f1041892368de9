//! The audit log: durable appends beside the disk's own rate, and verifying beside plain hashing.

mod export;

use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use export::{CHECKPOINT, Exported};
use sluice_core::Span;
use sluice_core::audit::checkpoint::{Signer, origin};
use sluice_core::audit::key::SecretKey;
use sluice_testkit::ids::{SeededEntropy, SplitMix};
use tokio::runtime::Runtime;

use crate::load::{self, Bench, Mails};
use crate::report::{ORDER, Row, Section, Target, figure};
use crate::rounds::{self, Median, Pair, Took, in_turns, median, timed, timed_here};

const ROUNDS: usize = 7;
const ALONE: usize = 150;
const WRITERS: usize = 128;
const EACH: usize = 60;
/// Entries of the long log.
const LONG: u64 = 1_000_000;
/// How many of them, at its beginning, are those of admissions.
const ADMISSIONS: u64 = 51_200;
/// Callers that fill it: enough for full groups.
const FILLERS: usize = 512;
const PROOFS: usize = 1_000;

/// Measures the section.
pub fn measure() -> anyhow::Result<Section> {
    let runtime = load::runtime()?;
    let mut rows = appends(&runtime)?;
    let (more, notes) = long_log(&runtime)?;
    rows.extend(more);
    let how = format!(
        "SQLite. An append is the cheapest use case that leaves one entry (`Store::started`), acknowledged when durable. The disk's \
         own rate is `fdatasync` after overwriting 4 KiB in place, in the same folder. {ROUNDS} rounds. Then a log of {} \
         entries of admissions and starts is filled through the store, exported with a checkpoint every {CHECKPOINT}, and verified.",
        figure(LONG as f64)
    );
    let [_, title, ..] = ORDER;
    Ok(Section { name: "audit", title, how, rows, notes })
}

/// Durable appends: one caller, then many.
fn appends(runtime: &Runtime) -> anyhow::Result<Vec<Row>> {
    let bench = Bench::file()?;
    let folder = bench.folder.as_ref().context("a file has a folder")?;
    let disk = Disk::new(folder.path())?;
    let alone = in_turns(
        ROUNDS,
        || {
            let append = async {
                for _ in 0..ALONE {
                    bench.store.started("bench").await?;
                }
                Ok(())
            };
            Ok(timed(ALONE as u64, || runtime.block_on(append))?.0)
        },
        || disk.syncs(ALONE),
    )?;
    let together =
        in_turns(ROUNDS, || append_together(runtime, &bench, WRITERS, WRITERS * EACH), || disk.syncs(ALONE))?;
    let entries = runtime.block_on(bench.store.logs())?.first().map(|(_, head)| head.size);
    anyhow::ensure!(
        entries == Some(((ROUNDS + 1) * (ALONE + WRITERS * EACH)) as u64),
        "every append left one entry, yet there are {entries:?}"
    );
    Ok(vec![append_row("1 writer", &alone, 0.9), append_row("128 writers", &together, 90.0)])
}

fn append_together(runtime: &Runtime, bench: &Bench, writers: usize, count: usize) -> anyhow::Result<Took> {
    let piles = vec![vec![(); count / writers]; writers];
    let work = |()| {
        let store = Arc::clone(&bench.store);
        async move { Ok(store.started("bench").await?) }
    };
    Ok(timed(count as u64, || load::all_at_once(runtime, piles, work))?.0)
}

fn append_row(who: &str, pair: &Pair, least: f64) -> Row {
    let per_second = |side| format!("{} /s", figure(rounds::of(side, Took::per_second)));
    Row {
        what: format!("durable appends, {who}"),
        ours: per_second(&pair.ours),
        against: "`fdatasync` of 4 KiB in place".into(),
        floor: per_second(&pair.floor),
        ratio: pair.ratio(Took::per_second),
        target: Target::AtLeast(least),
    }
}

/// A file on the same disk, overwritten in place.
struct Disk(File);

impl Disk {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let file = File::create(folder.join("floor"))?;
        file.write_all_at(&[0; 4096 * 64], 0)?;
        file.sync_all()?;
        Ok(Self(file))
    }

    fn syncs(&self, count: usize) -> anyhow::Result<Took> {
        let work = || {
            for round in 0..count {
                self.0.write_all_at(&[u8::try_from(round % 251)?; 4096], 0)?;
                self.0.sync_data()?;
            }
            Ok(())
        };
        Ok(timed(count as u64, work)?.0)
    }
}

/// A long log: filled, exported, verified, and asked for proofs.
fn long_log(runtime: &Runtime) -> anyhow::Result<(Vec<Row>, Vec<String>)> {
    let bench = Bench::file()?;
    let (filled, ()) = timed(LONG, || fill(runtime, &bench))?;
    let admissions = Exported::first(ADMISSIONS, runtime, &bench)?;
    let all = Exported::first(LONG, runtime, &bench)?;
    all.must_refuse_a_changed_byte()?;
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (whole, ()) = timed(LONG, || all.verify(threads))?;
    let proofs = proofs(runtime, &bench)?;
    let length = |exported: &Exported| exported.entries.len() as u64 / exported.size;
    let rows = vec![
        as_asked_for(threads, length(&admissions), &admissions.beside_plain_hashing(threads, ROUNDS)?),
        verify_row("entries of admissions", length(&admissions), &admissions.beside_plain_hashing(1, ROUNDS)?),
        verify_row("short entries", length(&all), &all.beside_plain_hashing(1, 3)?),
        Row {
            what: format!("inclusion proof in {} entries, slowest of {PROOFS}", figure(LONG as f64)),
            ours: format!("{} ms", figure(proofs.high)),
            against: "the time a person does not notice".into(),
            floor: "5 ms".into(),
            ratio: Median { middle: proofs.high / 5.0, low: proofs.low / 5.0, high: proofs.high / 5.0 },
            target: Target::AtMost(1.0),
        },
    ];
    let notes = vec![
        format!(
            "{FILLERS} callers filled the log of {} entries ({} MB exported) in {} s, {} entries/s; {threads} threads verified it in {} s.",
            figure(LONG as f64),
            figure(all.entries.len() as f64 / 1e6),
            figure(filled.wall.as_secs_f64()),
            figure(filled.per_second()),
            figure(whole.wall.as_secs_f64()),
        ),
        format!(
            "A proof is read from the database, hashes of leaves and kept nodes, and folded; median {} ms of processor time. Each was checked under the \
             signed checkpoint. The verifier was checked to refuse the same export with one byte changed.",
            figure(proofs.middle)
        ),
        "A verifier hashes each entry with the hash before it, and two of those into a node of the tree: at least 5 blocks of 64 bytes for a \
         short entry. The shorter the entries, the further it must be from one hash over everything."
            .to_owned(),
    ];
    Ok((rows, notes))
}

/// What a person waits for: the command takes every processor there is.
fn as_asked_for(threads: usize, length: u64, pair: &Pair) -> Row {
    let gigabytes = |side| format!("{} GB/s", figure(rounds::of(side, Took::per_second) / 1e9));
    Row {
        what: format!(
            "verifying an export, as `sluice audit verify` does, on {threads} threads ({length} bytes a line)"
        ),
        ours: gigabytes(&pair.ours),
        against: "plain SHA-256 over the same bytes, on one".into(),
        floor: gigabytes(&pair.floor),
        ratio: pair.ratio(Took::per_second),
        target: Target::AtLeast(0.75),
    }
}

fn verify_row(which: &str, length: u64, pair: &Pair) -> Row {
    let gigabytes = |side| format!("{} GB/s", figure(1.0 / rounds::of(side, Took::cpu_nanos)));
    Row {
        what: format!("verifying an export on 1 thread, {which} ({length} bytes a line)"),
        ours: gigabytes(&pair.ours),
        against: "plain SHA-256 over the same bytes".into(),
        floor: gigabytes(&pair.floor),
        ratio: pair.ratio(|took| 1.0 / took.cpu_nanos()),
        target: Target::None,
    }
}

/// Real admissions first, then starts, because they are cheap to make.
fn fill(runtime: &Runtime, bench: &Bench) -> anyhow::Result<()> {
    let mut mails = Mails::new(Span::from_hours(1));
    let work = |admission| {
        let store = Arc::clone(&bench.store);
        async move { store.admit(admission).await.map(drop).map_err(Into::into) }
    };
    load::all_at_once(runtime, mails.dealt(FILLERS, usize::try_from(ADMISSIONS)? / FILLERS)?, work)?;
    let missing = usize::try_from(LONG - ADMISSIONS)?;
    append_together(runtime, bench, FILLERS, missing / FILLERS * FILLERS)?;
    append_together(runtime, bench, 1, missing % FILLERS)?;
    Ok(())
}

/// Milliseconds of making proofs for entries all over the log; each of them is checked.
fn proofs(runtime: &Runtime, bench: &Bench) -> anyhow::Result<Median> {
    let key = SecretKey::generate(&origin(&bench.node), &SeededEntropy::new(7))?;
    let mut signer = Signer::new(key, &bench.node)?;
    let grown = runtime.block_on(bench.store.grown())?;
    let note = signer.sign(&grown.growth)?;
    runtime.block_on(bench.store.checkpointed(grown, note))?;
    let keys = [signer.key().clone()];
    let mut draws = SplitMix::new(11);
    let times = (0..PROOFS).map(|_| {
        // On SQLite a read happens on the calling thread, so its processor time is all there is.
        let prove = || Ok(runtime.block_on(bench.store.prove(bench.node.clone(), draws.below(LONG)))?);
        let (took, proof) = timed_here(1, prove)?;
        proof.context("a checkpoint covers every entry")?.verify(&keys)?;
        Ok(took.cpu_nanos() / 1e6)
    });
    Ok(median(times.collect::<anyhow::Result<Vec<f64>>>()?))
}
