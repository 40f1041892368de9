//! `sluice audit show` with filters: finds which agent did what, when, and to which object.

use clap::Args;
use serde_json::Value;
use sluice_core::audit::AuditEntry;
use sluice_core::policy::CapabilityPattern;
use sluice_core::{AgentName, Clock as _};
use sluice_store::AuditEntryFilter;

use super::source::{AuditLogSource, of_store};
use super::{describe_entry, read_entry};
use crate::client::{ApiRequest, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::system::SystemClock;
use crate::time_args::{MomentArg, since};

/// Most entries of each log that are searched in a database file.
const BOUND: u64 = 1_000_000;
/// Most entries that are requested from the gateway at once.
const PAGE: usize = 500;

/// The search filters.
#[derive(Debug, Args)]
pub(crate) struct AuditSearchArgs {
    /// Only entries about this agent and its writes
    #[arg(long)]
    agent: Option<AgentName>,
    /// Only this capability, or `email.*` for all that begin with `email.`
    #[arg(long)]
    capability: Option<String>,
    /// Only entries since this time: `2h`, `7d`, or a date and time
    #[arg(long, value_parser = since)]
    since: Option<MomentArg>,
    /// Only entries before this time: `2h`, `7d`, or a date and time
    #[arg(long, value_parser = since)]
    until: Option<MomentArg>,
    /// Only entries about exactly this id, path, key, address or search text
    #[arg(long)]
    target: Option<String>,
    /// Most entries to show; default: 100 if there is another filter, 20 otherwise
    #[arg(long)]
    pub(super) limit: Option<u32>,
}

/// Most entries that are shown if there is a filter and no `--limit`.
const LIMIT: u32 = 100;

/// One entry that was found.
struct AuditSearchMatch {
    log: String,
    hash: String,
    entry: AuditEntry,
}

impl AuditSearchArgs {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(LIMIT) as usize
    }

    /// Whether any filter is set. A limit alone selects nothing.
    pub(super) fn is_asked(&self) -> bool {
        let Self { agent, capability, since, until, target, limit: _ } = self;
        agent.is_some() || capability.is_some() || since.is_some() || until.is_some() || target.is_some()
    }

    pub(super) fn run(
        &self,
        source: &AuditLogSource,
        json: bool,
        screen: &CommandConsole,
    ) -> Result<CommandExit, CliError> {
        let (found, complete) = match source {
            AuditLogSource::Gateway(client) => self.search_gateway(client)?,
            AuditLogSource::File(file) => {
                let filter = self.filter()?;
                let found = file.runtime.block_on(file.store.search_record(filter)).map_err(of_store)?;
                let read = |(log, sealed): &(sluice_core::NodeName, sluice_core::audit::SealedAuditEntry)| {
                    let entry = read_entry(sealed)?;
                    Ok(AuditSearchMatch { log: log.to_string(), hash: sealed.hash.to_string(), entry })
                };
                (found.entries.iter().map(read).collect::<Result<Vec<_>, CliError>>()?, found.next.is_none())
            }
        };
        // The oldest first, as in the audit log.
        for AuditSearchMatch { log, hash, entry } in found.iter().rev() {
            if json {
                screen.json(&serde_json::json!({"log": log, "seq": entry.seq, "hash": hash, "entry": entry}))?;
            } else {
                screen.line(format_args!("#{:<6} {}  {}", entry.seq, entry.at, describe_entry(entry)))?;
            }
        }
        if found.is_empty() {
            screen.note("no entries match");
        }
        if !complete {
            screen.note("there may be older entries that match: raise --limit, or set --until");
        }
        Ok(CommandExit::Ok)
    }

    /// Searches through the gateway, page by page.
    fn search_gateway(&self, client: &crate::client::GatewayClient) -> Result<(Vec<AuditSearchMatch>, bool), CliError> {
        let now = SystemClock.now();
        let (mut found, mut cursor): (Vec<AuditSearchMatch>, Option<String>) = (Vec::new(), None);
        loop {
            let left = self.limit().saturating_sub(found.len()).min(PAGE);
            if left == 0 {
                return Ok((found, false));
            }
            let ask = ApiRequest::get("/v1/audit/search")
                .with("agent", self.agent.as_ref())
                .with("capability", self.capability.as_ref())
                .with("since_ms", self.since.map(|since| since.at(now).as_millis()))
                .with("until_ms", self.until.map(|until| until.at(now).as_millis()))
                .with("target", self.target.as_ref())
                .with("limit", Some(left))
                .with("cursor", cursor.as_ref());
            let page = client.send(&ask)?;
            for one in entries(&page) {
                let entry = one.get("entry").cloned().and_then(|entry| serde_json::from_value(entry).ok());
                let garbled = || {
                    CliError::new(CommandExit::Failed, "the gateway's response is not understood")
                        .hint("sluice version")
                };
                let entry = entry.ok_or_else(garbled)?;
                found.push(AuditSearchMatch {
                    log: text_field(one, "log").to_owned(),
                    hash: text_field(one, "hash").to_owned(),
                    entry,
                });
            }
            match page.get("next_cursor").and_then(Value::as_str) {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok((found, true)),
            }
        }
    }

    fn filter(&self) -> Result<AuditEntryFilter, CliError> {
        let now = SystemClock.now();
        let bad = |why: &str| CliError::new(CommandExit::Usage, "`--capability` cannot be used").why(why);
        Ok(AuditEntryFilter {
            agent: self.agent.clone(),
            capability: self.capability.as_deref().map(CapabilityPattern::new).transpose().map_err(bad)?,
            since: self.since.map(|since| since.at(now)),
            until: self.until.map(|until| until.at(now)),
            target: self.target.clone(),
            query_hash: None,
            before: None,
            limit: self.limit(),
            bound: BOUND,
        })
    }
}
