//! The replica of a mailbox: 100,000 mails, searched and fetched, compared with bare FTS5 on the same mails.

mod bare;
mod letters;
mod notmuch;

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::time::{ClockId, clock_gettime};
use sluice_adapters::adapter::RawItem;
use sluice_adapters::mime;
use sluice_core::mail::query::{self, MailSearchQuery};
use sluice_store::replica::{
    Replica, ReplicaBatch, ReplicaChange, ReplicaEncryption, ReplicaReader, ReplicaSearch, ReplicaSearchOrder, SealKey,
};

use crate::report::{ORDER, RatioTarget, ReportLine, ReportSection, figure};
use crate::rounds::{self, MedianRange};
use bare::BareMailIndex;
use letters::{LetterGenerator, LetterRandom, received, sender, word};
use notmuch::NotmuchIndex;

/// Number of mails.
const LETTERS: u64 = 100_000;
/// Mails in one page of a sync.
const PAGE: u64 = 50;
/// Mails for the peer: it takes more than twenty times as long for each.
const PEERS: u64 = 5_000;
const ROUNDS: usize = 5;
/// Searches of one kind in one round.
const SEARCHES: u64 = 200;

/// One search, in the form for each side.
struct BenchMailSearch {
    query: MailSearchQuery,
    words: String,
    low: i64,
    high: i64,
}

/// Measures the section.
pub fn measure() -> anyhow::Result<ReportSection> {
    let folder = tempfile::tempdir()?;
    let letters = LetterGenerator::new();
    let (ours, raw_bytes, indexing) = fill(&folder.path().join("ours"), &letters)?;
    let bare = fill_bare(&folder.path().join("bare.db"), &letters)?;
    let mut rows = Vec::new();
    let mut common_p50 = 0.0;
    for (what, asked) in kinds()? {
        let pair = in_turns(&asked, |one| newest(&ours, one), |one| floor(&bare, one))?;
        ensure!(pair.same, "{what}: the two sides did not find the same messages");
        if what == "common word" {
            common_p50 = pair.p50;
        }
        rows.push(pair.row(what, "bare FTS5", RatioTarget::AtMost(1.5)));
    }
    let common = words_of(60..300, "")?;
    let ranked = in_turns(&common, |one| best(&ours, one), |one| Ok(bare.ranked(&one.words)?.len()))?;
    rows.push(ranked.row("common word, ranked", "bare FTS5 `rank`", RatioTarget::AtMost(1.0)));
    rows.push(ReportLine {
        what: "common word, ranked, p99 in ms".into(),
        ours: format!("{} µs p50", figure(ranked.p50)),
        against: "one millisecond".into(),
        floor: "1 ms".into(),
        ratio: rounds::median(ranked.ours_p99.iter().map(|micros| micros / 1000.0).collect()),
        target: RatioTarget::AtMost(1.0),
    });
    let one: Vec<String> = {
        let mut dice = LetterRandom::new(9);
        (0..SEARCHES).map(|_| format!("m{:06}", dice.below(LETTERS))).collect()
    };
    let fetched = in_turns(&one, |id| get(&ours, id), |id| Ok(bare.one(id)?.1.len()))?;
    rows.push(fetched.row("fetch by id, whole", "bare rusqlite", RatioTarget::AtMost(1.5)));
    let size = size_of(&folder.path().join("ours"))?;
    let (sealed, turning) = encrypted(&folder.path().join("ours"), &folder.path().join("sealed"))?;
    for (what, asked) in kinds()?.into_iter().filter(|(what, _)| ["rare word", "common word"].contains(what)) {
        let pair = in_turns(&asked, |one| newest(&sealed, one), |one| newest(&ours, one))?;
        ensure!(pair.same, "{what}: the encrypted copy did not find the same messages");
        rows.push(pair.row(&format!("{what}, encrypted"), "the same in the clear", RatioTarget::AtMost(2.0)));
    }
    let pair = in_turns(&one, |id| get(&sealed, id), |id| get(&ours, id))?;
    rows.push(pair.row("fetch by id, whole, encrypted", "the same in the clear", RatioTarget::AtMost(2.0)));
    let exact = |figure: f64| MedianRange { middle: figure, low: figure, high: figure };
    rows.push(ReportLine {
        what: "size of the copy".into(),
        ours: megabytes(size),
        against: "raw mail".into(),
        floor: megabytes(raw_bytes),
        ratio: exact(size as f64 / raw_bytes as f64),
        target: RatioTarget::AtMost(1.0),
    });
    let per_letter = indexing.as_secs_f64() * 1e6 / LETTERS as f64;
    let mut notes = vec![
        format!("{LETTERS} letters, {} of raw mail; parsing and indexing took {} µs of processor time a letter.", megabytes(raw_bytes), figure(per_letter)),
        format!("Encrypting the whole copy took {} s of processor time.", figure(turning.as_secs_f64())),
        "Both sides show 20 messages; ours with labels, flags and the words found in their place. p99 of 200 different searches a round, on the processor clock.".to_owned(),
    ];
    match peer(folder.path(), &letters, per_letter, common_p50) {
        Ok(more) => {
            rows.extend(more);
            notes.push(format!(
                "notmuch had {PEERS} of the letters, which favours it; a search of its own starts a program."
            ));
        }
        Err(why) => notes.push(format!("notmuch was not measured: {why:#}")),
    }
    let how = format!("Processor time of the calling thread, {SEARCHES} searches of a kind, {ROUNDS} rounds in turns.");
    let [.., title, _] = ORDER;
    Ok(ReportSection { name: "mail", title, how, rows, notes })
}

fn peer(folder: &Path, letters: &LetterGenerator, per_letter: f64, common_p50: f64) -> anyhow::Result<Vec<ReportLine>> {
    let exact = |figure: f64| MedianRange { middle: figure, low: figure, high: figure };
    let (notmuch, spent) = NotmuchIndex::index(folder, letters, PEERS)?;
    let theirs = spent.as_secs_f64() * 1e6 / PEERS as f64;
    let words: Vec<String> = (60..90).map(word).collect();
    let (took, found) = notmuch.search(&words)?;
    ensure!(found >= words.len() * 10, "notmuch found {found} messages only");
    let took = took.as_secs_f64() * 1e6;
    let row = |what: &str, ours: f64, theirs: f64, least: f64| ReportLine {
        what: what.into(),
        ours: format!("{} µs", figure(ours)),
        against: "notmuch".into(),
        floor: format!("{} µs", figure(theirs)),
        ratio: exact(theirs / ours),
        target: RatioTarget::AtLeast(least),
    };
    Ok(vec![
        row("indexing one letter from MIME, times less", per_letter, theirs, 10.0),
        row("common word, p50, times less", common_p50, took, 20.0),
    ])
}

/// The mails of a page, parsed as a worker parses them.
fn page(letters: &LetterGenerator, from: u64) -> (Vec<ReplicaChange>, u64) {
    let mut bytes = 0;
    let changes = (from..(from + PAGE).min(LETTERS)).map(|n| {
        let letter = letters.get(n);
        bytes += letter.raw.len() as u64;
        let (size, raw) = (letter.raw.len() as u64, letter.raw.into_bytes());
        let labels = vec!["INBOX".to_owned()];
        let item = RawItem {
            thread: letter.id.clone(),
            id: letter.id,
            labels,
            received: letter.received * 1000,
            raw,
            cut: false,
            receiver: None,
            size,
        };
        let opened = mime::parse_item(&item);
        let mut mail = opened.mail;
        mail.text = opened.text.unwrap_or_default();
        ReplicaChange::Put(Box::new(mail))
    });
    (changes.collect(), bytes)
}

fn fill(folder: &Path, letters: &LetterGenerator) -> anyhow::Result<(Replica, u64, Duration)> {
    let replica = Replica::open(folder, &ReplicaEncryption::Clear(None)).map_err(|error| anyhow::anyhow!("{error}"))?;
    let (mut raw_bytes, mut spent, mut made) = (0, Duration::ZERO, Duration::ZERO);
    for from in (0..LETTERS).step_by(PAGE as usize) {
        let at = processor();
        let (changes, bytes) = page(letters, from);
        let parsed = processor();
        // The generator's own time is not part of the sync.
        (from..(from + PAGE).min(LETTERS)).for_each(|n| drop(black_box(letters.get(n))));
        made += processor() - parsed;
        raw_bytes += bytes;
        let batch = ReplicaBatch { changes, cursor: from.to_string(), synced_at: None, progress: None };
        let applying = processor();
        replica.apply(&batch).map_err(|error| anyhow::anyhow!("{error}"))?;
        spent += (parsed - at) + (processor() - applying);
    }
    ensure!(replica.count().ok() == Some(LETTERS), "not all letters are in the copy");
    Ok((replica, raw_bytes, spent.saturating_sub(made)))
}

/// The same replica, encrypted, and the time that the conversion took.
fn encrypted(ours: &Path, beside: &Path) -> anyhow::Result<(Replica, Duration)> {
    std::fs::create_dir(beside)?;
    for entry in std::fs::read_dir(ours)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().ends_with("-shm") {
            std::fs::copy(entry.path(), beside.join(entry.file_name()))?;
        }
    }
    let at = processor();
    let sealed = Replica::open(beside, &ReplicaEncryption::Sealed(SealKey::new([7; 32])))
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok((sealed, processor() - at))
}

fn fill_bare(path: &Path, letters: &LetterGenerator) -> anyhow::Result<BareMailIndex> {
    let mut bare = BareMailIndex::open(path)?;
    for from in (0..LETTERS).step_by(1000) {
        let some: Vec<_> = (from..(from + 1000).min(LETTERS)).map(|n| letters.get(n)).collect();
        bare.fill(&some)?;
    }
    bare.settle()?;
    Ok(bare)
}

fn asked(text: &str, words: String) -> anyhow::Result<BenchMailSearch> {
    let query = query::parse(text).map_err(|why| anyhow::anyhow!("{text}: {why}"))?;
    Ok(BenchMailSearch { query, words, low: 0, high: i64::MAX })
}

fn words_of(ranks: std::ops::Range<u64>, second: &str) -> anyhow::Result<Vec<BenchMailSearch>> {
    let mut dice = LetterRandom::new(ranks.start);
    (0..SEARCHES)
        .map(|_| {
            let one = word(ranks.start + dice.below(ranks.end - ranks.start));
            match second {
                "" => asked(&one, one.clone()),
                _ => {
                    let other = word(1_000 + dice.below(4_000));
                    asked(&format!("{one} {other}"), format!("{one} AND {other}"))
                }
            }
        })
        .collect()
}

fn kinds() -> anyhow::Result<Vec<(&'static str, Vec<BenchMailSearch>)>> {
    let mut dice = LetterRandom::new(77);
    let ranges = (0..SEARCHES).map(|_| {
        let (who, n) = (sender(dice.below(letters::SENDERS)), dice.below(LETTERS - 3_000));
        let day = |n: u64| -> anyhow::Result<(String, i64)> {
            let at = jiff::Timestamp::from_second(received(n))?.strftime("%Y-%m-%d").to_string();
            let start: jiff::Timestamp = format!("{at}T00:00:00Z").parse()?;
            Ok((at, start.as_second()))
        };
        let ((after, low), (before, high)) = (day(n)?, day(n + 2_700)?);
        let mut one = asked(&format!("from:{who} after:{after} before:{before}"), format!("sender : {who}"))?;
        (one.low, one.high) = (low, high);
        Ok(one)
    });
    let ranges: anyhow::Result<Vec<BenchMailSearch>> = ranges.collect();
    let newest: anyhow::Result<Vec<BenchMailSearch>> = (0..SEARCHES).map(|_| asked("", String::new())).collect();
    Ok(vec![
        ("rare word", words_of(20_000..100_000, "")?),
        ("common word", words_of(60..300, "")?),
        ("two words", words_of(100..1_000, "and")?),
        ("`from:` and 30 days", ranges?),
        ("newest first", newest?),
    ])
}

fn look(replica: &Replica, one: &BenchMailSearch, order: ReplicaSearchOrder) -> anyhow::Result<usize> {
    let search = ReplicaSearch { query: &one.query, order, limit: 20, offset: 0, reader: ReplicaReader::Agent };
    let found = replica.search(&search).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(black_box(found).hits.len())
}

fn newest(replica: &Replica, one: &BenchMailSearch) -> anyhow::Result<usize> {
    look(replica, one, ReplicaSearchOrder::Newest)
}

fn best(replica: &Replica, one: &BenchMailSearch) -> anyhow::Result<usize> {
    look(replica, one, ReplicaSearchOrder::Ranked)
}

fn floor(bare: &BareMailIndex, one: &BenchMailSearch) -> anyhow::Result<usize> {
    let found = if one.words.is_empty() { bare.newest()? } else { bare.found(&one.words, one.low, one.high)? };
    Ok(black_box(found).len())
}

fn get(replica: &Replica, id: &str) -> anyhow::Result<usize> {
    let mail = replica.get(id, ReplicaReader::Agent).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(black_box(mail.context("a letter is not there")?).text.len())
}

/// Both sides, search by search.
struct SearchComparison {
    p50: f64,
    ours_p99: Vec<f64>,
    floor_p99: Vec<f64>,
    floor_p50: f64,
    same: bool,
}

impl SearchComparison {
    fn row(&self, what: &str, against: &str, target: RatioTarget) -> ReportLine {
        let shown =
            |p50: f64, p99: &[f64]| format!("{} / {} µs", figure(p50), figure(rounds::median(p99.to_vec()).middle));
        ReportLine {
            what: format!("{what}, p50 / p99"),
            ours: shown(self.p50, &self.ours_p99),
            against: against.into(),
            floor: shown(self.floor_p50, &self.floor_p99),
            ratio: rounds::median(
                self.ours_p99.iter().zip(&self.floor_p99).map(|(ours, floor)| ours / floor).collect(),
            ),
            target,
        }
    }
}

fn in_turns<Q>(
    asked: &[Q],
    ours: impl Fn(&Q) -> anyhow::Result<usize>,
    floor: impl Fn(&Q) -> anyhow::Result<usize>,
) -> anyhow::Result<SearchComparison> {
    let (mut p50s, mut ours_p99, mut floor_p50s, mut floor_p99, mut same) = (vec![], vec![], vec![], vec![], true);
    for round in 0..=ROUNDS {
        let (one, other) = if round % 2 == 0 {
            let other = each(asked, &floor)?;
            (each(asked, &ours)?, other)
        } else {
            (each(asked, &ours)?, each(asked, &floor)?)
        };
        same &= one.found == other.found;
        if round > 0 {
            p50s.push(one.p50);
            ours_p99.push(one.p99);
            floor_p50s.push(other.p50);
            floor_p99.push(other.p99);
        }
    }
    let (p50, floor_p50) = (rounds::median(p50s).middle, rounds::median(floor_p50s).middle);
    Ok(SearchComparison { p50, ours_p99, floor_p99, floor_p50, same })
}

struct SearchTimes {
    p50: f64,
    p99: f64,
    found: Vec<usize>,
}

fn each<Q>(asked: &[Q], look: &impl Fn(&Q) -> anyhow::Result<usize>) -> anyhow::Result<SearchTimes> {
    let (mut micros, mut found) = (Vec::with_capacity(asked.len()), Vec::with_capacity(asked.len()));
    for one in asked {
        let at = processor();
        found.push(look(one)?);
        micros.push((processor() - at).as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    let place =
        |part: f64| micros.get(((micros.len() as f64 * part) as usize).min(micros.len().saturating_sub(1))).copied();
    Ok(SearchTimes { p50: place(0.5).unwrap_or(f64::NAN), p99: place(0.99).unwrap_or(f64::NAN), found })
}

fn processor() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

fn size_of(folder: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        sum += entry?.metadata()?.len();
    }
    Ok(sum)
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", figure(bytes as f64 / 1e6))
}
