//! The audit log: durable appends beside the disk's own rate, and verifying beside plain hashing.

use std::fs::File;
use std::io::BufReader;
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use sluice_core::audit::checkpoint::{Growth, Signer, origin};
use sluice_core::audit::export::{self, Form, Log};
use sluice_core::audit::key::SecretKey;
use sluice_core::audit::tree::{Frontier, Kept, Sparse, inclusion_proof, verify_inclusion};
use sluice_core::audit::verify::{Export, Trust, verify};
use sluice_core::audit::{Hash, Head};
use sluice_core::{NodeName, Span};
use sluice_store::Store;
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
/// Callers that fill it: enough for full groups.
const FILLERS: usize = 512;
/// Entries between two checkpoints.
const CHECKPOINT: u64 = 1_000;
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

/// An export in memory, with what is needed to check it.
struct Exported {
    log: Vec<u8>,
    entries: Vec<u8>,
    checkpoints: Vec<u8>,
    signer: Signer,
    nodes: Vec<Vec<Hash>>,
    root: Hash,
    size: u64,
}

/// A long log: filled, exported, verified, and asked for proofs.
fn long_log(runtime: &Runtime) -> anyhow::Result<(Vec<Row>, Vec<String>)> {
    let bench = Bench::file()?;
    let filled = Instant::now();
    fill(runtime, &bench)?;
    let filled = filled.elapsed().as_secs_f64();
    let exported = export_all(runtime, &bench)?;
    let trust = |threads| Trust {
        key: Some(exported.signer.key().clone()),
        anchors: Vec::new(),
        threads: NonZero::new(threads),
    };
    let check = |threads| {
        let export = Export {
            log: &exported.log,
            entries: exported.entries.as_slice(),
            checkpoints: exported.checkpoints.as_slice(),
        };
        let report = verify(export, &trust(threads))?;
        anyhow::ensure!(report.entries == exported.size, "verified {} of {}", report.entries, exported.size);
        Ok(())
    };
    refuses_a_changed_byte(&exported, &trust(1))?;
    let bytes = exported.entries.len() as u64;
    let hash = || Ok(timed_here(bytes, || Ok(std::hint::black_box(Sha256::digest(&exported.entries))))?.0);
    let single = in_turns(ROUNDS, || Ok(timed(bytes, || check(1))?.0), hash)?;
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (whole, ()) = timed(bytes, || check(threads))?;
    let proofs = proofs(runtime, &bench, &exported)?;
    let gigabytes = |side| format!("{} GB/s", figure(1.0 / rounds::of(side, Took::cpu_nanos)));
    let rows = vec![
        Row {
            what: "verifying an export, 1 thread".into(),
            ours: gigabytes(&single.ours),
            against: "plain SHA-256 over the same bytes".into(),
            floor: gigabytes(&single.floor),
            ratio: single.ratio(|took| 1.0 / took.cpu_nanos()),
            target: Target::AtLeast(0.75),
        },
        Row {
            what: format!("inclusion proof in {} entries, slowest of {PROOFS}", figure(exported.size as f64)),
            ours: format!("{} ms", figure(proofs.high)),
            against: "5 ms".into(),
            floor: "5.00 ms".into(),
            ratio: Median { middle: proofs.high / 5.0, low: proofs.low / 5.0, high: proofs.high / 5.0 },
            target: Target::AtMost(1.0),
        },
    ];
    let notes = vec![
        format!(
            "The log of {} entries ({} MB exported) was filled by {FILLERS} callers in {} s ({} entries/s) and verified with {threads} threads in {} s.",
            figure(exported.size as f64),
            figure(bytes as f64 / 1e6),
            figure(filled),
            figure(exported.size as f64 / filled),
            figure(whole.wall.as_secs_f64()),
        ),
        format!(
            "A proof reads up to 255 leaves from the database and folds them; median {} ms. The verifier was checked to refuse the same export with one byte changed.",
            figure(proofs.middle)
        ),
    ];
    Ok((rows, notes))
}

/// Mostly starts, because they are cheap to make; every twentieth entry is a real admission.
fn fill(runtime: &Runtime, bench: &Bench) -> anyhow::Result<()> {
    let mut mails = Mails::new(Span::from_hours(1));
    let each = usize::try_from(LONG)? / FILLERS / 20;
    for pile in mails.dealt(FILLERS, each)?.chunks(FILLERS) {
        let work = |admission| {
            let store = Arc::clone(&bench.store);
            async move { store.admit(admission).await.map(drop).map_err(Into::into) }
        };
        load::all_at_once(runtime, pile.to_vec(), work)?;
    }
    let there = runtime.block_on(bench.store.logs())?.first().map_or(0, |(_, head)| head.size);
    let missing = usize::try_from(LONG - there)?;
    append_together(runtime, bench, FILLERS, missing / FILLERS * FILLERS)?;
    append_together(runtime, bench, 1, missing % FILLERS)?;
    Ok(())
}

fn export_all(runtime: &Runtime, bench: &Bench) -> anyhow::Result<Exported> {
    let log = &bench.node;
    let key = SecretKey::generate(&origin(log), &SeededEntropy::new(7))?;
    let mut signer = Signer::new(key, log)?;
    let (mut entries, mut checkpoints) = (Vec::new(), Vec::new());
    let (mut head, mut frontier) = (Head::genesis(log), Frontier::new());
    let mut nodes = vec![Vec::new(); 8];
    while let page = runtime.block_on(bench.store.entries(log.clone(), head.size, 10_000))?
        && !page.is_empty()
    {
        for sealed in page {
            anyhow::ensure!(sealed.seq == head.size, "entry {} follows {}", sealed.seq, head.size);
            frontier.append(sealed.hash, |level, _, hash| {
                if let Some(kept) = nodes.get_mut(usize::from(level / 8)) {
                    kept.push(hash);
                }
            });
            head = Head { size: head.size + 1, hash: sealed.hash };
            export::write_entry(&mut entries, &sealed.hash, &sealed.body)?;
            if head.size % CHECKPOINT == 0 {
                let tree = Sparse(InMemory(&nodes));
                let growth = Growth::prove(&tree, signer.last().tree.size, head, frontier.root())?;
                export::write_checkpoint(&mut checkpoints, &signer.sign(&growth)?)?;
            }
        }
    }
    anyhow::ensure!(head.size == LONG, "the log has {} entries", head.size);
    let stated = Log { form: Form::V1, key: signer.key().clone(), log: log.clone(), size: head.size, start: None };
    let log = stated.to_bytes();
    Ok(Exported { log, entries, checkpoints, signer, nodes, root: frontier.root(), size: head.size })
}

/// A verifier that looks at nothing would be fast.
fn refuses_a_changed_byte(exported: &Exported, trust: &Trust) -> anyhow::Result<()> {
    let mut entries = exported.entries.clone();
    let middle = entries.len() / 2;
    let digit = entries.iter().skip(middle).position(u8::is_ascii_digit).context("a digit in the log")?;
    if let Some(byte) = entries.get_mut(middle + digit) {
        *byte = if *byte == b'1' { b'2' } else { b'1' };
    }
    let export = Export {
        log: &exported.log,
        entries: BufReader::new(entries.as_slice()),
        checkpoints: exported.checkpoints.as_slice(),
    };
    anyhow::ensure!(verify(export, trust).is_err(), "a changed log was found to be sound");
    Ok(())
}

/// Kept hashes in memory.
struct InMemory<'a>(&'a [Vec<Hash>]);

impl Kept for InMemory<'_> {
    fn kept(&self, level: u8, range: Range<u64>) -> Option<Vec<Hash>> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.0.get(usize::from(level / 8))?.get(range).map(<[Hash]>::to_vec)
    }
}

/// Leaves from the database, the few hashes above them from memory.
struct FromStore<'a> {
    runtime: &'a Runtime,
    store: &'a Store,
    log: &'a NodeName,
    above: InMemory<'a>,
}

impl Kept for FromStore<'_> {
    fn kept(&self, level: u8, range: Range<u64>) -> Option<Vec<Hash>> {
        if level > 0 {
            return self.above.kept(level, range);
        }
        let count = u32::try_from(range.end - range.start).ok()?;
        let page = self.runtime.block_on(self.store.entries(self.log.clone(), range.start, count)).ok()?;
        Some(page.into_iter().map(|sealed| sealed.hash).collect())
    }
}

/// Milliseconds of making and checking proofs for entries all over the log.
fn proofs(runtime: &Runtime, bench: &Bench, exported: &Exported) -> anyhow::Result<Median> {
    let above = InMemory(&exported.nodes);
    let tree = Sparse(FromStore { runtime, store: &bench.store, log: &bench.node, above });
    let mut draws = SplitMix::new(11);
    let times = (0..PROOFS).map(|_| {
        let at = draws.below(exported.size);
        let leaf = exported.nodes.first().and_then(|leaves| leaves.get(usize::try_from(at).ok()?)).context("a leaf")?;
        let (took, path) = timed(1, || Ok(inclusion_proof(&tree, at, exported.size)?))?;
        verify_inclusion(leaf, at, exported.size, &path, &exported.root)?;
        Ok(took.wall.as_secs_f64() * 1_000.0)
    });
    Ok(median(times.collect::<anyhow::Result<Vec<f64>>>()?))
}
