//! `sluice audit show` with filters: which agent did what, when, and to which object.

use clap::Args;
use serde_json::Value;
use sluice_core::audit::Entry;
use sluice_core::policy::Pattern;
use sluice_core::{AgentName, Clock as _};
use sluice_store::RecordFilter;

use super::source::{Source, of_store};
use super::{read_entry, sentence};
use crate::client::{Ask, entries, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::span::{Since, since};
use crate::system::SystemClock;

/// How many entries of each log of a file are looked at.
const BOUND: u64 = 1_000_000;
/// Most entries that are asked of the gateway at once.
const PAGE: usize = 500;

/// What is searched for.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Only what this agent did, and what became of its writes
    #[arg(long)]
    agent: Option<AgentName>,
    /// Only this capability, or `email.*` for all that begin so
    #[arg(long)]
    capability: Option<String>,
    /// Only entries since then: `2h`, `7d`, or a moment
    #[arg(long, value_parser = since)]
    since: Option<Since>,
    /// Only entries before then: `2h`, `7d`, or a moment
    #[arg(long, value_parser = since)]
    until: Option<Since>,
    /// Only about this id, path, key, address or searched text, as a whole
    #[arg(long)]
    target: Option<String>,
    /// Most entries that are found
    #[arg(long, default_value = "100")]
    limit: usize,
}

/// One entry that was found.
struct Found {
    log: String,
    hash: String,
    entry: Entry,
}

impl Search {
    /// Whether anything is searched for.
    pub(super) fn is_asked(&self) -> bool {
        let Self { agent, capability, since, until, target, limit: _ } = self;
        agent.is_some() || capability.is_some() || since.is_some() || until.is_some() || target.is_some()
    }

    pub(super) fn run(&self, source: &Source, json: bool, screen: &Screen) -> Result<Exit, Failure> {
        let (found, complete) = match source {
            Source::Gateway(client) => self.asked(client)?,
            Source::File(file) => {
                let filter = self.filter()?;
                let found = file.runtime.block_on(file.store.search_record(filter)).map_err(of_store)?;
                let read = |(log, sealed): &(sluice_core::NodeName, sluice_core::audit::Sealed)| {
                    let entry = read_entry(sealed)?;
                    Ok(Found { log: log.to_string(), hash: sealed.hash.to_string(), entry })
                };
                (found.entries.iter().map(read).collect::<Result<Vec<_>, Failure>>()?, found.next.is_none())
            }
        };
        // The oldest first, as the record itself is shown.
        for Found { log, hash, entry } in found.iter().rev() {
            if json {
                screen.json(&serde_json::json!({"log": log, "seq": entry.seq, "hash": hash, "entry": entry}))?;
            } else {
                screen.line(format_args!("#{:<6} {}  {}", entry.seq, entry.at, sentence(entry)))?;
            }
        }
        if found.is_empty() {
            screen.note("nothing on record fits");
        }
        if !complete {
            screen.note("there may be older entries that fit: raise --limit, or name a moment with --until");
        }
        Ok(Exit::Ok)
    }

    /// Asks the gateway, page by page.
    fn asked(&self, client: &crate::client::Client) -> Result<(Vec<Found>, bool), Failure> {
        let now = SystemClock.now();
        let (mut found, mut cursor): (Vec<Found>, Option<String>) = (Vec::new(), None);
        loop {
            let left = self.limit.saturating_sub(found.len()).min(PAGE);
            if left == 0 {
                return Ok((found, false));
            }
            let ask = Ask::get("/v1/audit/search")
                .with("agent", self.agent.as_ref())
                .with("capability", self.capability.as_ref())
                .with("since_ms", self.since.map(|since| since.at(now).as_millis()))
                .with("until_ms", self.until.map(|until| until.at(now).as_millis()))
                .with("target", self.target.as_ref())
                .with("limit", Some(left))
                .with("cursor", cursor.as_ref());
            let page = client.ask(&ask)?;
            for one in entries(&page) {
                let entry = one.get("entry").cloned().and_then(|entry| serde_json::from_value(entry).ok());
                let garbled =
                    || Failure::new(Exit::Failed, "the gateway's answer makes no sense").hint("sluice version");
                let entry = entry.ok_or_else(garbled)?;
                found.push(Found { log: text(one, "log").to_owned(), hash: text(one, "hash").to_owned(), entry });
            }
            match page.get("next_cursor").and_then(Value::as_str) {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok((found, true)),
            }
        }
    }

    fn filter(&self) -> Result<RecordFilter, Failure> {
        let now = SystemClock.now();
        let bad = |why: &str| Failure::new(Exit::Usage, "`--capability` cannot be used").why(why);
        Ok(RecordFilter {
            agent: self.agent.clone(),
            capability: self.capability.as_deref().map(Pattern::new).transpose().map_err(bad)?,
            since: self.since.map(|since| since.at(now)),
            until: self.until.map(|until| until.at(now)),
            target: self.target.clone(),
            query_hash: None,
            before: None,
            limit: self.limit,
            bound: BOUND,
        })
    }
}
