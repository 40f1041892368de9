//! The audit log: durable appends compared with the disk's own rate, and verification compared with plain hashing.

mod export;

use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use export::{CHECKPOINT, ExportedLog};
use sluice_core::Millis;
use sluice_core::audit::checkpoint::{CheckpointSigner, origin};
use sluice_core::audit::key::SecretKey;
use sluice_testkit::ids::{SeededEntropy, SplitMix};
use tokio::runtime::Runtime;

use crate::load::{self, BenchStore, MailAdmissions};
use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{self, MedianRange, PairedRounds, RunTimes, in_turns, median, timed, timed_here};

const ROUNDS: usize = 7;
const ALONE: usize = 150;
const WRITERS: usize = 128;
const EACH: usize = 60;
/// Entries of the long log.
const LONG: u64 = 1_000_000;
/// How many of them, at its beginning, come from admissions.
const ADMISSIONS: u64 = 51_200;
/// Callers that fill it: enough for full groups.
const FILLERS: usize = 512;
const PROOFS: usize = 1_000;

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
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
    Ok(ReportSection { name: "audit", title, how, rows, notes })
}

/// Durable appends: one caller, then many.
fn appends(runtime: &Runtime) -> anyhow::Result<Vec<ReportLine>> {
    let bench = BenchStore::file()?;
    let folder = bench.folder.as_ref().context("a file has a folder")?;
    let disk = DiskFile::new(folder.path())?;
    let alone = in_turns(
        ROUNDS,
        || {
            let append = async {
                for _ in 0..ALONE {
                    bench.store.record_start("bench").await?;
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

fn append_together(runtime: &Runtime, bench: &BenchStore, writers: usize, count: usize) -> anyhow::Result<RunTimes> {
    let piles = vec![vec![(); count / writers]; writers];
    let work = |()| {
        let store = Arc::clone(&bench.store);
        async move { Ok(store.record_start("bench").await?) }
    };
    Ok(timed(count as u64, || load::all_at_once(runtime, piles, work))?.0)
}

fn append_row(who: &str, pair: &PairedRounds, least: f64) -> ReportLine {
    let per_second = |side| format!("{} /s", figure(rounds::of(side, RunTimes::per_second)));
    ReportLine {
        what: format!("durable appends, {who}"),
        ours: per_second(&pair.ours),
        against: "`fdatasync` of 4 KiB in place".into(),
        floor: per_second(&pair.floor),
        ratio: pair.ratio(RunTimes::per_second),
        target: RatioTarget::AtLeast(least),
    }
}

/// A file on the same disk, overwritten in place.
struct DiskFile(File);

impl DiskFile {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let file = File::create(folder.join("floor"))?;
        file.write_all_at(&[0; 4096 * 64], 0)?;
        file.sync_all()?;
        Ok(Self(file))
    }

    fn syncs(&self, count: usize) -> anyhow::Result<RunTimes> {
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

/// A long log: filled, exported, verified, and queried for proofs.
fn long_log(runtime: &Runtime) -> anyhow::Result<(Vec<ReportLine>, Vec<String>)> {
    let bench = BenchStore::file()?;
    let (filled, ()) = timed(LONG, || fill(runtime, &bench))?;
    let admissions = ExportedLog::first(ADMISSIONS, runtime, &bench)?;
    let all = ExportedLog::first(LONG, runtime, &bench)?;
    all.must_refuse_a_changed_byte()?;
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (whole, ()) = timed(LONG, || all.verify(threads))?;
    let proofs = proofs(runtime, &bench)?;
    let length = |exported: &ExportedLog| exported.entries.len() as u64 / exported.size;
    let rows = vec![
        as_asked_for(threads, length(&admissions), &admissions.beside_plain_hashing(threads, ROUNDS)?),
        verify_row("entries of admissions", length(&admissions), &admissions.beside_plain_hashing(1, ROUNDS)?),
        verify_row("short entries", length(&all), &all.beside_plain_hashing(1, 3)?),
        ReportLine {
            what: format!("inclusion proof in {} entries, slowest of {PROOFS}", figure(LONG as f64)),
            ours: format!("{} ms", figure(proofs.high)),
            against: "the time a person does not notice".into(),
            floor: "5 ms".into(),
            ratio: MedianRange { middle: proofs.high / 5.0, low: proofs.low / 5.0, high: proofs.high / 5.0 },
            target: RatioTarget::AtMost(1.0),
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

/// The time a person waits for: the command uses all processors.
fn as_asked_for(threads: usize, length: u64, pair: &PairedRounds) -> ReportLine {
    let gigabytes = |side| format!("{} GB/s", figure(rounds::of(side, RunTimes::per_second) / 1e9));
    ReportLine {
        what: format!(
            "verifying an export, as `sluice audit verify` does, on {threads} threads ({length} bytes a line)"
        ),
        ours: gigabytes(&pair.ours),
        against: "plain SHA-256 over the same bytes, on one".into(),
        floor: gigabytes(&pair.floor),
        ratio: pair.ratio(RunTimes::per_second),
        target: RatioTarget::AtLeast(0.75),
    }
}

fn verify_row(which: &str, length: u64, pair: &PairedRounds) -> ReportLine {
    let gigabytes = |side| format!("{} GB/s", figure(1.0 / rounds::of(side, RunTimes::cpu_nanos)));
    ReportLine {
        what: format!("verifying an export on 1 thread, {which} ({length} bytes a line)"),
        ours: gigabytes(&pair.ours),
        against: "plain SHA-256 over the same bytes".into(),
        floor: gigabytes(&pair.floor),
        ratio: pair.ratio(|took| 1.0 / took.cpu_nanos()),
        target: RatioTarget::None,
    }
}

/// Real admissions first, then starts, because they are cheap.
fn fill(runtime: &Runtime, bench: &BenchStore) -> anyhow::Result<()> {
    let mut mails = MailAdmissions::new(Millis::from_hours(1));
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

/// Milliseconds to make proofs for entries all over the log; each proof is verified.
fn proofs(runtime: &Runtime, bench: &BenchStore) -> anyhow::Result<MedianRange> {
    let key = SecretKey::generate(&origin(&bench.node), &SeededEntropy::new(7))?;
    let mut signer = CheckpointSigner::new(key, &bench.node)?;
    let grown = runtime.block_on(bench.store.prepare_checkpoint())?;
    let note = signer.sign(&grown.growth)?;
    runtime.block_on(bench.store.keep_checkpoint(grown, note))?;
    let keys = [signer.key().clone()];
    let mut draws = SplitMix::new(11);
    let times = (0..PROOFS).map(|_| {
        // On SQLite a read runs on the calling thread, so its processor time is the whole cost.
        let prove = || Ok(runtime.block_on(bench.store.prove(bench.node.clone(), draws.below(LONG)))?);
        let (took, proof) = timed_here(1, prove)?;
        proof.context("a checkpoint covers every entry")?.verify(&keys)?;
        Ok(took.cpu_nanos() / 1e6)
    });
    Ok(median(times.collect::<anyhow::Result<Vec<f64>>>()?))
}
