//! `sluice audit`: show the record, export it, and verify it with nothing but files.

mod against;
mod exporting;
mod search;
mod source;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sluice_core::NodeName;
use sluice_core::audit::checkpoint::origin;
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::Note;
use sluice_core::audit::prove::Proof;
use sluice_core::audit::verify::{Export, Report, Trust, VerifyError, verify};
use sluice_core::audit::{Entry, Head, Sealed};

use self::against::Anchors;
use self::source::{Log, Source};
use crate::client::Reach;
use crate::export::ExportFiles;
use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;
use crate::visible::line;

/// Largest key or note that is read.
const SMALL_FILE: u64 = 1 << 20;

/// Show the record, export it, and verify it with nothing but files
#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Verify an export, a proof, or the record as the gateway or a database has it
    Verify(Verify),
    /// Show entries
    Show(Show),
    /// Print the public key a log is checked with
    Key(Key),
    /// Write a log out as three plain files that verify anywhere
    Export(exporting::ExportTo),
    /// Write the proof that one entry was signed: a small file that verifies without the rest
    Prove(Prove),
}

impl Audit {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Verify(verify) => verify.run(&self.reach, screen),
            Verb::Show(show) => show.run(&self.reach, screen),
            Verb::Key(key) => key.run(&self.reach, screen),
            Verb::Export(export) => export.run(&self.reach, screen),
            Verb::Prove(prove) => prove.run(&self.reach, screen),
        }
    }
}

/// Verify an export, a proof, or the record as the gateway or a database has it.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice audit verify\n  sluice audit verify --export ./export --key audit.pub\n  \
    sluice audit verify --proof entry-42.proof --key audit.pub\n  sluice audit verify --data ./data\n  \
    sluice audit verify --against letter.eml --key audit.pub"
)]
pub(crate) struct Verify {
    /// A folder with log.json, entries.jsonl and checkpoints.txt
    #[arg(long, value_name = "DIR", conflicts_with_all = ["proof", "data"])]
    export: Option<PathBuf>,
    /// The proof of one entry
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    proof: Option<PathBuf>,
    /// A data folder (sluice.db) or a database file, instead of what the gateway says
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// File with the log's public key, learnt when the log was made: sluice audit key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// File with a signed checkpoint kept elsewhere; may be given several times
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// Checkpoints kept elsewhere to compare with: a letter, the checkpoints file, the state file, or the text of a
    /// checkpoint itself; may be given several times
    #[arg(long, value_name = "FILE|CHECKPOINT", conflicts_with = "proof")]
    against: Vec<String>,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Verify {
    fn run(self, reach: &Reach, screen: &Screen) -> Result<Exit, Failure> {
        let kept: Vec<Vec<Note>> = self.against.iter().map(|named| against::kept(named)).collect::<Result<_, _>>()?;
        let mut trust = Trust {
            key: self.key.as_deref().map(read_key).transpose()?,
            anchors: self.checkpoint.iter().map(|path| read_note(path)).collect::<Result<_, _>>()?,
            threads: None,
        };
        match (&self.export, &self.proof) {
            (Some(folder), _) => {
                trust.anchors.extend(of_export(folder, &kept.concat())?);
                verify_export(folder, &trust, self.json, screen)
            }
            (None, Some(file)) => verify_proof(file, &trust, self.json, screen),
            (None, None) => {
                trust.anchors.extend(kept.concat());
                verify_record(&source::open(reach, self.data.as_deref(), screen)?, &trust, self.json, screen)
            }
        }
    }
}

/// The checkpoints that are of the exported log.
fn of_export(folder: &Path, kept: &[Note]) -> Result<Vec<Note>, Failure> {
    let log = read_small(&ExportFiles::of(folder).log)?;
    // One that cannot be read is reported by the verifier itself.
    let Ok(log) = sluice_core::audit::export::Log::parse(&log) else { return Ok(Vec::new()) };
    let own = against::of_log(kept, &log.log);
    match (own.is_empty(), kept.is_empty()) {
        (true, false) => Err(none_of(log.log.as_ref())),
        (_, _) => Ok(own),
    }
}

fn none_of(logs: &str) -> Failure {
    Failure::new(Exit::NotVerified, format!("none of the checkpoints is of {logs} (audit.other_log)"))
        .why("a checkpoint names its log in its first line")
        .hint("is it of this gateway, and of this node?")
}

fn verify_export(folder: &Path, trust: &Trust, json: bool, screen: &Screen) -> Result<Exit, Failure> {
    let files = ExportFiles::of(folder);
    let log = read_small(&files.log)?;
    let entries = BufReader::with_capacity(1 << 20, open(&files.entries)?);
    let checkpoints = BufReader::new(open(&files.checkpoints)?);
    match verify(Export { log: &log, entries, checkpoints }, trust) {
        Ok(report) => {
            show_report(&report, json, screen)?;
            Ok(Exit::Ok)
        }
        Err(VerifyError::Read(error)) => Err(unreadable(folder, &error)),
        Err(error) => {
            if json {
                let fault = error.fault().map(|fault| {
                    serde_json::json!({"seq": fault.seq, "last": fault.last, "expected": fault.expected,
                        "found": fault.found, "covered": fault.covered, "what": fault.what})
                });
                screen.json(&serde_json::json!({"verified": false, "code": error.code(), "fault": fault}))?;
            }
            Err(Failure::new(Exit::NotVerified, format!("the log does not verify ({})", error.code()))
                .why(error.to_string())
                .hint("keep this copy and compare it with another export; docs/audit.md says what each kind means"))
        }
    }
}

fn show_report(report: &Report, json: bool, screen: &Screen) -> Result<(), Failure> {
    if json {
        return Ok(screen.json(&serde_json::json!({
            "verified": true, "log": report.log, "entries": report.entries, "first": report.first,
            "covered": report.covered, "uncovered": report.uncovered, "checkpoints": report.checkpoints,
            "head": report.head, "root": report.tree.root, "key": report.key.to_string(),
            "key_known": report.key_known, "anchored": report.anchored,
        }))?);
    }
    screen.line(format_args!("log          {}", report.log))?;
    screen.line(format_args!("entries      {} (from #{})", report.entries, report.first))?;
    screen.line(format_args!("signed       {} entries under {} checkpoints", report.covered, report.checkpoints))?;
    if report.uncovered > 0 {
        screen
            .line(format_args!("not signed   {} entries after the last checkpoint: chained only", report.uncovered))?;
    }
    screen.line(format_args!("head         {}", report.head))?;
    screen.line(format_args!("key          {}", report.key))?;
    if let Some(anchored) = report.anchored {
        screen.line(format_args!("anchored     the first {anchored} entries are those of a checkpoint you kept"))?;
    }
    if report.key_known {
        screen.line("verified: every signed entry is what was signed with the key you named")?;
    } else {
        screen.line("consistent: the export agrees with itself")?;
        screen.note("no key was named, so whoever made this export may have made the key too; use --key with what `sluice audit key` \
             printed when the log began");
    }
    Ok(())
}

fn verify_proof(file: &Path, trust: &Trust, json: bool, screen: &Screen) -> Result<Exit, Failure> {
    let Some(key) = &trust.key else {
        return Err(Failure::new(Exit::Usage, "a proof is checked against a key")
            .hint("name it: --key FILE; the gateway prints it: sluice audit key"));
    };
    let not_proven = |error: sluice_core::audit::prove::ProofError| {
        Failure::new(Exit::NotVerified, format!("the proof does not hold ({})", error.code())).why(error.to_string())
    };
    let proof = Proof::parse(&read_small(file)?).map_err(not_proven)?;
    let proven = proof.verify(std::slice::from_ref(key)).map_err(not_proven)?;
    if json {
        screen.json(&serde_json::json!({"verified": true, "entry": proven.entry, "hash": proven.hash}))?;
    } else {
        screen.line(format_args!("entry #{} of {}", proven.entry.seq, proven.entry.log))?;
        screen.line(sentence(&proven.entry))?;
        screen
            .line(format_args!("verified: it is among the {} entries that were signed", proven.checkpoint.tree.size))?;
    }
    Ok(Exit::Ok)
}

/// Walks the chain of every log, past the checkpoints that were kept elsewhere.
fn verify_record(source: &Source, trust: &Trust, json: bool, screen: &Screen) -> Result<Exit, Failure> {
    let (mut shown, mut compared, mut names) = (Vec::new(), 0, Vec::new());
    for Log { name, head, key, is_own } in source.logs()? {
        let named = trust.key.as_ref().filter(|named| named.name() == origin(&name));
        let key = named.or(key.as_ref());
        let mut anchors = Anchors::new(&name, &trust.anchors, key, "a checkpoint kept elsewhere")?;
        let last = last_checkpoint(source, &name)?.filter(|_| key.is_some());
        let mut signed = Anchors::new(&name, last.as_slice(), key, "its last checkpoint in the record")?;
        let size = walk(source, &name, head, &mut [&mut anchors, &mut signed])?;
        compared += anchors.count();
        let from = match (named, key, is_own) {
            (Some(_), _, _) => "named",
            (None, Some(_), true) => "this_node",
            (None, Some(_), false) => "its_node",
            (None, None, _) => "unknown",
        };
        shown.push(serde_json::json!({
            "log": name, "entries": size, "head": head.hash, "anchored": anchors.agreed(), "signed": signed.agreed(),
            "key": key.map(ToString::to_string), "key_from": from,
        }));
        if !json {
            screen.line(format_args!("{name}: {size} entries, each linked to the one before, up to {}", head.hash))?;
        }
        if !json && signed.agreed() > 0 {
            let whose = match from {
                "named" => "the key you named",
                "this_node" => "the key of the node that was asked",
                _ => "the key that its node gave the others",
            };
            screen.line(format_args!("{name}: the first {} are signed with {whose}", signed.agreed()))?;
        }
        if !json && anchors.count() > 0 {
            let (agreed, count) = (anchors.agreed(), anchors.count());
            screen.line(format_args!("{name}: the first {agreed} are those of {count} checkpoints kept elsewhere"))?;
        }
        names.push(name.to_string());
    }
    if compared < trust.anchors.len() {
        return Err(none_of(&names.join(", ")));
    }
    if json {
        screen.json(&serde_json::json!({"verified": true, "logs": shown, "compared": compared}))?;
    } else if compared == 0 {
        screen.note("the chain holds; to check it with a key you noted elsewhere: sluice audit export, then verify --export DIR --key FILE");
    } else if trust.key.is_none() {
        screen
            .note("no key was named; the one beside the record was used, which whoever changed the record can change");
    }
    Ok(Exit::Ok)
}

/// The checkpoint of a log in the record that covers most.
fn last_checkpoint(source: &Source, log: &NodeName) -> Result<Option<Note>, Failure> {
    let (mut after, mut last) = (0, None);
    loop {
        let page = source.checkpoints(log, after)?;
        let Some((size, note)) = page.into_iter().last() else { return Ok(last) };
        (after, last) = (size, Some(note));
    }
}

fn walk(source: &Source, log: &NodeName, head: Head, anchors: &mut [&mut Anchors]) -> Result<u64, Failure> {
    let broken = |seq: u64, why: &str| {
        Failure::new(Exit::NotVerified, format!("entry #{seq} of {log} does not fit (audit.changed)"))
            .why(why.to_owned())
            .hint("stop the gateway and keep the file; an export and an older checkpoint show since when")
    };
    let mut reached = Head::genesis(log);
    loop {
        let page = source.entries(log, reached.size, u32::MAX)?;
        if page.is_empty() {
            break;
        }
        for entry in page {
            if entry.seq != reached.size {
                return Err(broken(reached.size, "it is missing"));
            }
            let hash = sluice_core::audit::leaf(&reached.hash, &entry.body);
            if hash != entry.hash {
                return Err(broken(entry.seq, "its hash is not the hash of its content and the entry before"));
            }
            anchors.iter_mut().try_for_each(|anchors| anchors.push(reached, hash))?;
            reached = Head { size: entry.seq + 1, hash };
        }
    }
    if reached != head && reached.size <= head.size {
        return Err(broken(reached.size, "the log ends before its head"));
    }
    anchors.iter_mut().try_for_each(|anchors| anchors.finish(reached))?;
    Ok(reached.size)
}

/// Where the record is read, and which log of it.
#[derive(Debug, Args)]
struct Which {
    /// A data folder (sluice.db) or a database file, instead of what the gateway says
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Which log, if it is not this gateway's own
    #[arg(long)]
    log: Option<NodeName>,
}

impl Which {
    fn open(&self, reach: &Reach, screen: &Screen) -> Result<(Source, Log), Failure> {
        let source = source::open(reach, self.data.as_deref(), screen)?;
        let log = source.pick(self.log.as_ref())?;
        Ok((source, log))
    }
}

/// Show entries.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice audit show\n  sluice audit show 42 --json\n  sluice audit show --data ./data\n  \
    sluice audit show --agent clerk --capability 'email.*' --since 2d\n  \
    sluice audit show --target 18c1f2a9d0e34b57"
)]
pub(crate) struct Show {
    /// Only this entry
    seq: Option<u64>,
    #[command(flatten)]
    which: Which,
    /// How many of the latest entries
    #[arg(long, default_value = "20")]
    last: u32,
    #[command(flatten)]
    search: search::Search,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Show {
    fn run(self, reach: &Reach, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("seq");
        if self.search.is_asked() {
            if self.seq.is_some() {
                return Err(Failure::new(Exit::Usage, "an entry is named by its number, or searched for; not both"));
            }
            return self.search.run(&source::open(reach, self.which.data.as_deref(), screen)?, self.json, screen);
        }
        let (source, log) = self.which.open(reach, screen)?;
        let (mut from, end) = match self.seq {
            Some(seq) => (seq, seq.saturating_add(1)),
            None => (log.head.size.saturating_sub(u64::from(self.last)), log.head.size),
        };
        let mut shown = 0_u64;
        while from < end {
            let most = u32::try_from(end - from).unwrap_or(u32::MAX);
            let page = source.entries(&log.name, from, most)?;
            let Some(last) = page.last() else { break };
            from = last.seq + 1;
            for sealed in &page {
                shown += 1;
                let entry = read_entry(sealed)?;
                if self.json {
                    screen.json(&serde_json::json!({"seq": sealed.seq, "hash": sealed.hash, "entry": entry}))?;
                } else {
                    screen.line(format_args!("#{:<6} {}  {}", entry.seq, entry.at, sentence(&entry)))?;
                }
            }
        }
        match (shown, self.seq) {
            (0, Some(seq)) => Err(Failure::new(Exit::NotFound, format!("{} has no entry #{seq}", log.name))
                .why(format!("it has {} entries", log.head.size))),
            _ => Ok(Exit::Ok),
        }
    }
}

/// Print the public key a log is checked with.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice audit key > audit.pub\n  sluice audit key --data ./data")]
pub(crate) struct Key {
    #[command(flatten)]
    which: Which,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Key {
    fn run(self, reach: &Reach, screen: &Screen) -> Result<Exit, Failure> {
        let (_, log) = self.which.open(reach, screen)?;
        let key = log.key.ok_or_else(|| no_key(&log.name))?;
        if self.json {
            screen.json(&serde_json::json!({"log": log.name, "key": key.to_string()}))?;
        } else {
            screen.line(&key)?;
            if !log.is_own {
                screen.note(format_args!("{} is another node's log: {}", log.name, AS_TOLD));
            }
            screen
                .note("keep it where whoever runs this gateway cannot change it: it is what exports are checked with");
        }
        Ok(Exit::Ok)
    }
}

/// What a key of another node's log is worth.
const AS_TOLD: &str =
    "the key is the one that node gave the others in the database; sluice audit key there says whether it is";

fn no_key(log: &NodeName) -> Failure {
    Failure::new(Exit::NotFound, format!("the public key of {log} is not known here"))
        .why("the node that writes a log has its key")
        .hint("ask that node (sluice audit key), or read `keys/audit.pub` in its data folder")
}

/// Write the proof that one entry was signed.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice audit prove 42 > entry-42.proof")]
pub(crate) struct Prove {
    /// Which entry
    seq: u64,
    #[command(flatten)]
    which: Which,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Prove {
    fn run(self, reach: &Reach, screen: &Screen) -> Result<Exit, Failure> {
        let (source, log) = self.which.open(reach, screen)?;
        let proof = source.prove(&log.name, self.seq)?;
        let proof = proof.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("no checkpoint of {} covers entry #{}", log.name, self.seq))
                .why(format!("the log has {} entries; the latest wait for the next checkpoint", log.head.size))
        })?;
        if self.json {
            screen.json(&serde_json::json!({"log": log.name, "seq": self.seq, "proof": proof}))?;
        } else {
            screen.raw(proof.as_bytes())?;
        }
        Ok(Exit::Ok)
    }
}

/// An entry as a sentence.
pub(super) fn sentence(entry: &Entry) -> String {
    let fact = &entry.fact;
    // SECURITY: what a log contains must not steer the terminal it is shown on, nor imitate another field.
    let mut words = format!("{} {}", line(&fact.actor.to_string()), line(&fact.kind));
    let mut add = |name: &str, value: String| words.push_str(&format!(" {name}={value}"));
    fact.detail.iter().filter(|(name, _)| *name != "move").for_each(|(name, value)| add(&line(name), line(value)));
    if let Some(from) = &fact.from {
        add("from", line(from));
    }
    if let Some(code) = &fact.code {
        add("code", line(code));
    }
    if let Some(hold) = fact.hold {
        add("hold", hold.to_string());
    }
    if let Some(approval) = fact.approval {
        add("approval", approval.to_string());
    }
    words
}

fn read_entry(sealed: &Sealed) -> Result<Entry, Failure> {
    serde_json::from_slice(&sealed.body).map_err(|_| {
        Failure::new(Exit::NotVerified, format!("entry #{} cannot be read (audit.malformed)", sealed.seq))
            .hint("sluice audit verify --data PATH says where the chain breaks")
    })
}

pub(crate) fn read_key(path: &Path) -> Result<VerifierKey, Failure> {
    let text = String::from_utf8_lossy(&read_small(path)?).into_owned();
    text.trim().parse().map_err(|error: sluice_core::audit::key::KeyError| {
        Failure::new(Exit::Usage, format!("`{}` is not a public key ({})", path.display(), error.code()))
            .why(error.to_string())
            .hint("a public key is one line: name+id+base64")
    })
}

fn read_note(path: &Path) -> Result<Note, Failure> {
    Note::parse(&read_small(path)?).map_err(|error| {
        Failure::new(Exit::Usage, format!("`{}` is not a signed checkpoint ({})", path.display(), error.code()))
            .why(error.to_string())
    })
}

fn read_small(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let file = open(path)?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, SMALL_FILE), &mut bytes)
        .map_err(|error| unreadable(path, &error))?;
    Ok(bytes)
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let exit = if error.kind() == std::io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failed };
    Failure::new(exit, format!("cannot read `{}`", path.display())).why(io_words(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::Actor;
    use sluice_core::audit::Fact;

    #[test]
    fn an_entry_cannot_steer_the_terminal() {
        let actor = Actor::Node(NodeName::new("gw").unwrap());
        let fact = Fact::new("hold.held", actor).with("note", "\u{1b}[2J\u{202e}\u{2066}done");
        let entry =
            Entry { at: sluice_core::Timestamp::default(), fact, log: NodeName::new("gw").unwrap(), seq: 0, v: 1 };
        let shown = sentence(&entry);
        assert!(shown.contains("note=\\u{1b}[2J\\u{202e}\\u{2066}done"), "{shown}");
    }
}
