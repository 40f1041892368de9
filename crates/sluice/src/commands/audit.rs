//! `sluice audit`: show the audit log, export it, and verify it offline.

mod archived;
mod chain_walk;
mod expected_checkpoints;
mod exporting;
mod search;
mod source;

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sluice_core::NodeName;
use sluice_core::audit::checkpoint::origin;
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::SignedNote;
use sluice_core::audit::prove::AuditEntryProof;
use sluice_core::audit::verify::{VerificationReport, VerifierTrust, VerifyError};
use sluice_core::audit::{AuditEntry, SealedAuditEntry};
use sluice_gateway::archive;

use self::chain_walk::{WalkedAuditLog, walk_current};
use self::source::{AuditLogSource, SourcedAuditLog};
use crate::client::GatewayArgs;
use crate::console::CommandConsole;
use crate::escape::escape_line;
use crate::export::ExportFiles;
use crate::failure::{CliError, CommandExit, describe_io_error};

/// Largest key file or checkpoint file that is read.
const SMALL_FILE: u64 = 1 << 20;

/// Show the audit log, export it, and verify it offline
#[derive(Debug, Args)]
pub(crate) struct AuditCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: AuditSubcommand,
}

#[derive(Debug, Subcommand)]
enum AuditSubcommand {
    /// Verify an export, a proof, an archive, or the audit log of a gateway or a database file
    Verify(AuditVerifyArgs),
    /// Show entries
    Show(AuditShowArgs),
    /// Print the public key of a log
    Key(AuditKeyArgs),
    /// Export a log as three plain files that can be verified anywhere
    Export(exporting::AuditExportArgs),
    /// Write a proof that one entry was signed: a small file that can be verified on its own
    Prove(AuditProveArgs),
}

impl AuditCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        match self.verb {
            AuditSubcommand::Verify(verify) => verify.run(&self.reach, screen),
            AuditSubcommand::Show(show) => show.run(&self.reach, screen),
            AuditSubcommand::Key(key) => key.run(&self.reach, screen),
            AuditSubcommand::Export(export) => export.run(&self.reach, screen),
            AuditSubcommand::Prove(prove) => prove.run(&self.reach, screen),
        }
    }
}

/// Verify an export, a proof, an archive, or the audit log of a gateway or a database file.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice audit verify\n  sluice audit verify --export ./export --key audit.pub\n  \
    sluice audit verify --proof entry-42.proof --key audit.pub\n  sluice audit verify --data ./data\n  \
    sluice audit verify --against letter.eml --key audit.pub\n  \
    sluice audit verify --archive ./data/archive/gateway --key audit.pub"
)]
pub(crate) struct AuditVerifyArgs {
    /// A folder with log.json, entries.jsonl (or entries.jsonl.gz) and checkpoints.txt
    #[arg(long, value_name = "DIR", conflicts_with_all = ["proof", "data", "archive"])]
    export: Option<PathBuf>,
    /// Folder of a log in the archive; all its segments are verified in order
    #[arg(long, value_name = "DIR", conflicts_with_all = ["proof", "data"])]
    archive: Option<PathBuf>,
    /// Proof of one entry
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    proof: Option<PathBuf>,
    /// Data folder (sluice.db) or database file to read, instead of asking the gateway
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// File with the log's public key, saved when the log was created: sluice audit key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// File with a signed checkpoint kept elsewhere; can be repeated
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// Checkpoints kept elsewhere to compare with: an e-mail, the checkpoints file, the state file, or the text of a
    /// checkpoint itself; can be repeated
    #[arg(long, value_name = "FILE|CHECKPOINT", conflicts_with = "proof")]
    against: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl AuditVerifyArgs {
    fn run(self, reach: &GatewayArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let kept: Vec<Vec<SignedNote>> =
            self.against.iter().map(|named| expected_checkpoints::read_checkpoints(named)).collect::<Result<_, _>>()?;
        let mut trust = VerifierTrust {
            key: self.key.as_deref().map(read_key).transpose()?,
            anchors: self.checkpoint.iter().map(|path| read_note(path)).collect::<Result<_, _>>()?,
            threads: None,
        };
        if let Some(folder) = &self.archive {
            return archived::verify(folder, &trust, &kept.concat(), (self.json, screen));
        }
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

/// The checkpoints that belong to the exported log.
fn of_export(folder: &Path, kept: &[SignedNote]) -> Result<Vec<SignedNote>, CliError> {
    let log = read_small(&ExportFiles::of(folder).log)?;
    // One that cannot be read is reported by the verifier itself.
    let Ok(log) = sluice_core::audit::export::AuditExportHeader::parse(&log) else { return Ok(Vec::new()) };
    let own = expected_checkpoints::of_log(kept, &log.log);
    match (own.is_empty(), kept.is_empty()) {
        (true, false) => Err(none_of(log.log.as_ref())),
        (_, _) => Ok(own),
    }
}

fn none_of(logs: &str) -> CliError {
    CliError::new(CommandExit::NotVerified, format!("no checkpoint belongs to {logs} (audit.other_log)"))
        .why("a checkpoint names its log in its first line")
        .hint("check that it comes from this gateway and this node")
}

fn verify_export(
    folder: &Path,
    trust: &VerifierTrust,
    json: bool,
    screen: &CommandConsole,
) -> Result<CommandExit, CliError> {
    match archive::verify_folder(folder, trust) {
        Ok(report) => {
            show_report(&report, json, screen)?;
            Ok(CommandExit::Ok)
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
            Err(CliError::new(CommandExit::NotVerified, format!("the log does not verify ({})", error.code()))
                .why(error.to_string())
                .hint("keep this copy and compare it with another export; docs/audit.md explains each code"))
        }
    }
}

fn show_report(report: &VerificationReport, json: bool, screen: &CommandConsole) -> Result<(), CliError> {
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
    screen
        .line(format_args!("signed       {} entries, covered by {} checkpoints", report.covered, report.checkpoints))?;
    if report.uncovered > 0 {
        screen.line(format_args!(
            "not signed   {} entries after the last checkpoint: hash chain only",
            report.uncovered
        ))?;
    }
    screen.line(format_args!("head         {}", report.head))?;
    screen.line(format_args!("key          {}", report.key))?;
    if let Some(anchored) = report.anchored {
        screen.line(format_args!("anchored     the first {anchored} entries match a checkpoint you kept"))?;
    }
    if report.key_known {
        screen.line("verified: every signed entry matches its signature by the key you gave")?;
    } else {
        screen.line("consistent: the export has no contradictions")?;
        screen.note("no key was given, so the author of this export may have made the key too; use --key with what `sluice audit key` \
             printed when the log was created");
    }
    Ok(())
}

fn verify_proof(
    file: &Path,
    trust: &VerifierTrust,
    json: bool,
    screen: &CommandConsole,
) -> Result<CommandExit, CliError> {
    let Some(key) = &trust.key else {
        return Err(CliError::new(CommandExit::Usage, "a proof needs a public key to be verified")
            .hint("add --key FILE; the gateway prints its key: sluice audit key"));
    };
    let not_proven = |error: sluice_core::audit::prove::ProofError| {
        CliError::new(CommandExit::NotVerified, format!("the proof is not valid ({})", error.code()))
            .why(error.to_string())
    };
    let proof = AuditEntryProof::parse(&read_small(file)?).map_err(not_proven)?;
    let proven = proof.verify(std::slice::from_ref(key)).map_err(not_proven)?;
    if json {
        screen.json(&serde_json::json!({"verified": true, "entry": proven.entry, "hash": proven.hash}))?;
    } else {
        screen.line(format_args!("entry #{} of {}", proven.entry.seq, proven.entry.log))?;
        screen.line(describe_entry(&proven.entry))?;
        screen.line(format_args!("verified: it is one of the {} signed entries", proven.checkpoint.tree.size))?;
    }
    Ok(CommandExit::Ok)
}

/// Verifies the chain of every log, and compares it with checkpoints that were kept elsewhere.
fn verify_record(
    source: &AuditLogSource,
    trust: &VerifierTrust,
    json: bool,
    screen: &CommandConsole,
) -> Result<CommandExit, CliError> {
    let (mut shown, mut compared, mut names) = (Vec::new(), 0, Vec::new());
    for listed in source.logs()? {
        let (log, walked) = walk_current(source, listed, trust, screen)?;
        let SourcedAuditLog { name, head, is_own, .. } = &log;
        let named = trust.key.as_ref().filter(|named| named.name() == origin(name));
        let key = named.or(log.key.as_ref());
        let WalkedAuditLog { size, anchors, signed } = walked;
        compared += anchors.count();
        let from = match (named, key, is_own) {
            (Some(_), _, _) => "named",
            (None, Some(_), true) => "this_node",
            (None, Some(_), false) => "its_node",
            (None, None, _) => "unknown",
        };
        shown.push(serde_json::json!({
            "log": name, "entries": size, "head": head.hash, "anchored": anchors.agreed(), "signed": signed.agreed(),
            "key": key.map(ToString::to_string), "key_from": from, "first": log.first(), "not_compared": anchors.archived(),
        }));
        if !json && log.first() > 0 {
            screen
                .line(format_args!("{name}: the first {} entries are archived, as recorded in the log", log.first()))?;
            screen.note(ARCHIVE_HINT);
        }
        if !json && anchors.archived() > 0 {
            screen.note(format_args!(
                "{} of the checkpoints cover only archived entries and were not compared; compare them with the archive: add \
                 --archive DATA/archive/LOG",
                anchors.archived()
            ));
        }
        if !json {
            screen.line(format_args!("{name}: {size} entries, each linked to the one before, up to {}", head.hash))?;
        }
        if !json && signed.agreed() > 0 {
            let whose = match from {
                "named" => "the key you gave",
                "this_node" => "the key of the node that responded",
                _ => "the key that its node shared with the other nodes",
            };
            screen.line(format_args!("{name}: the first {} are signed with {whose}", signed.agreed()))?;
        }
        if !json && anchors.count() > anchors.archived() {
            let (agreed, count) = (anchors.agreed(), anchors.count() - anchors.archived());
            screen.line(format_args!("{name}: the first {agreed} match {count} checkpoints kept elsewhere"))?;
        }
        names.push(name.to_string());
    }
    if compared < trust.anchors.len() {
        return Err(none_of(&names.join(", ")));
    }
    if json {
        screen.json(&serde_json::json!({"verified": true, "logs": shown, "compared": compared}))?;
    } else if compared == 0 {
        screen.note("the chain is valid; to verify it with a key you keep elsewhere: sluice audit export, then verify --export DIR --key FILE");
    } else if trust.key.is_none() {
        screen
            .note("no key was given; the key beside the database was used, and whoever changed the log could have changed that key too");
    }
    Ok(CommandExit::Ok)
}

/// The hint about verifying archived entries.
const ARCHIVE_HINT: &str = "verify archived entries with: sluice audit verify --archive DATA/archive/LOG --key FILE";

/// Options that select where the audit log is read from, and which log.
#[derive(Debug, Args)]
struct AuditSourceArgs {
    /// Data folder (sluice.db) or database file to read, instead of asking the gateway
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Name of the log; default: this gateway's own
    #[arg(long)]
    log: Option<NodeName>,
}

impl AuditSourceArgs {
    fn open(
        &self,
        reach: &GatewayArgs,
        screen: &CommandConsole,
    ) -> Result<(AuditLogSource, SourcedAuditLog), CliError> {
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
pub(crate) struct AuditShowArgs {
    /// Show only the entry with this number
    seq: Option<u64>,
    #[command(flatten)]
    which: AuditSourceArgs,
    /// Number of latest entries to show
    #[arg(long, default_value = "20")]
    last: u32,
    #[command(flatten)]
    search: search::AuditSearchArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl AuditShowArgs {
    fn run(self, reach: &GatewayArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("seq");
        if self.search.is_asked() {
            if self.seq.is_some() {
                return Err(CliError::new(
                    CommandExit::Usage,
                    "give either an entry number or search filters, not both",
                ));
            }
            return self.search.run(&source::open(reach, self.which.data.as_deref(), screen)?, self.json, screen);
        }
        let (source, log) = self.which.open(reach, screen)?;
        let (mut from, end) = match self.seq {
            Some(seq) => (seq, seq.saturating_add(1)),
            None => (log.head.size.saturating_sub(u64::from(self.search.limit.unwrap_or(self.last))), log.head.size),
        };
        let mut shown = 0_u64;
        while from < end {
            let most = u32::try_from(end - from).unwrap_or(u32::MAX);
            let page = source.entries(&log.name, from, most)?;
            let Some(last) = page.last().filter(|last| last.seq < end) else { break };
            from = last.seq + 1;
            for sealed in &page {
                shown += 1;
                let entry = read_entry(sealed)?;
                if self.json {
                    screen.json(&serde_json::json!({"seq": sealed.seq, "hash": sealed.hash, "entry": entry}))?;
                } else {
                    screen.line(format_args!("#{:<6} {}  {}", entry.seq, entry.at, describe_entry(&entry)))?;
                }
            }
        }
        match (shown, self.seq) {
            (0, Some(seq)) if seq < log.first() => Err(archived_entry(seq, &log)),
            (0, Some(seq)) => Err(CliError::new(CommandExit::NotFound, format!("{} has no entry #{seq}", log.name))
                .why(format!("it has {} entries", log.head.size))),
            _ => Ok(CommandExit::Ok),
        }
    }
}

/// Print the public key of a log.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice audit key > audit.pub\n  sluice audit key --data ./data")]
pub(crate) struct AuditKeyArgs {
    #[command(flatten)]
    which: AuditSourceArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl AuditKeyArgs {
    fn run(self, reach: &GatewayArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let (_, log) = self.which.open(reach, screen)?;
        let key = log.key.ok_or_else(|| no_key(&log.name))?;
        if self.json {
            screen.json(&serde_json::json!({"log": log.name, "key": key.to_string()}))?;
        } else {
            screen.line(&key)?;
            if !log.is_own {
                screen.note(format_args!("{} is another node's log: {}", log.name, AS_TOLD));
            }
            screen.note("keep it where the people who run this gateway cannot change it: exports are verified with it");
        }
        Ok(CommandExit::Ok)
    }
}

/// How far a key of another node's log can be trusted.
const AS_TOLD: &str = "the key comes from the shared database; run sluice audit key on that node to confirm it";

fn no_key(log: &NodeName) -> CliError {
    CliError::new(CommandExit::NotFound, format!("the public key of {log} is not known here"))
        .why("only the node that writes a log has its key")
        .hint("run sluice audit key on that node, or read `keys/audit.pub` in its data folder")
}

/// Write a proof that one entry was signed.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice audit prove 42 > entry-42.proof")]
pub(crate) struct AuditProveArgs {
    /// Number of the entry
    seq: u64,
    #[command(flatten)]
    which: AuditSourceArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl AuditProveArgs {
    fn run(self, reach: &GatewayArgs, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let (source, log) = self.which.open(reach, screen)?;
        if self.seq < log.first() {
            return Err(archived_entry(self.seq, &log));
        }
        let proof = source.prove(&log.name, self.seq)?;
        let proof = proof.ok_or_else(|| {
            CliError::new(CommandExit::NotFound, format!("no checkpoint of {} covers entry #{}", log.name, self.seq))
                .why(format!(
                    "the log has {} entries; the latest are not signed until the next checkpoint",
                    log.head.size
                ))
        })?;
        if self.json {
            screen.json(&serde_json::json!({"log": log.name, "seq": self.seq, "proof": proof}))?;
        } else {
            screen.raw(proof.as_bytes())?;
        }
        Ok(CommandExit::Ok)
    }
}

fn archived_entry(seq: u64, log: &SourcedAuditLog) -> CliError {
    CliError::new(CommandExit::NotFound, format!("entry #{seq} of {} is archived", log.name))
        .why(format!(
            "entries before #{} are in the gateway's archive, in segments named by their entries",
            log.first()
        ))
        .hint("zcat DATA/archive/LOG/SEGMENT/entries.jsonl.gz; docs/audit.md describes the files")
}

/// An entry as a sentence.
pub(super) fn describe_entry(entry: &AuditEntry) -> String {
    let fact = &entry.fact;
    // SECURITY: the content of a log must not steer the terminal it is shown on, nor imitate another field.
    let mut words = format!("{} {}", escape_line(&fact.actor.to_string()), escape_line(&fact.kind));
    let mut add = |name: &str, value: String| words.push_str(&format!(" {name}={value}"));
    fact.detail
        .iter()
        .filter(|(name, _)| *name != "move")
        .for_each(|(name, value)| add(&escape_line(name), escape_line(value)));
    if let Some(from) = &fact.from {
        add("from", escape_line(from));
    }
    if let Some(code) = &fact.code {
        add("code", escape_line(code));
    }
    if let Some(hold) = fact.hold {
        add("hold", hold.to_string());
    }
    if let Some(approval) = fact.approval {
        add("approval", approval.to_string());
    }
    words
}

fn read_entry(sealed: &SealedAuditEntry) -> Result<AuditEntry, CliError> {
    serde_json::from_slice(&sealed.body).map_err(|_| {
        CliError::new(CommandExit::NotVerified, format!("entry #{} cannot be read (audit.malformed)", sealed.seq))
            .hint("find where the chain breaks: sluice audit verify --data PATH")
    })
}

pub(crate) fn read_key(path: &Path) -> Result<VerifierKey, CliError> {
    let text = String::from_utf8_lossy(&read_small(path)?).into_owned();
    text.trim().parse().map_err(|error: sluice_core::audit::key::KeyError| {
        CliError::new(CommandExit::Usage, format!("`{}` is not a public key ({})", path.display(), error.code()))
            .why(error.to_string())
            .hint("a public key is one line: name+id+base64")
    })
}

fn read_note(path: &Path) -> Result<SignedNote, CliError> {
    SignedNote::parse(&read_small(path)?).map_err(|error| {
        CliError::new(CommandExit::Usage, format!("`{}` is not a signed checkpoint ({})", path.display(), error.code()))
            .why(error.to_string())
    })
}

fn read_small(path: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let file = open(path)?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, SMALL_FILE), &mut bytes)
        .map_err(|error| unreadable(path, &error))?;
    Ok(bytes)
}

fn open(path: &Path) -> Result<File, CliError> {
    File::open(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> CliError {
    let exit = if error.kind() == std::io::ErrorKind::NotFound { CommandExit::NotFound } else { CommandExit::Failed };
    CliError::new(exit, format!("cannot read `{}`", path.display())).why(describe_io_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::Actor;
    use sluice_core::audit::AuditFact;

    #[test]
    fn an_entry_cannot_steer_the_terminal() {
        let actor = Actor::Node(NodeName::new("gw").unwrap());
        let fact = AuditFact::new("hold.held", actor).with("note", "\u{1b}[2J\u{202e}\u{2066}done");
        let entry =
            AuditEntry { at: sluice_core::UtcMillis::default(), fact, log: NodeName::new("gw").unwrap(), seq: 0, v: 1 };
        let shown = describe_entry(&entry);
        assert!(shown.contains("note=\\u{1b}[2J\\u{202e}\\u{2066}done"), "{shown}");
    }
}
