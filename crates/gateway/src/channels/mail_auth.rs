//! Reading a fetched mail: in a worker, with the keys its signatures name.
//!
//! Takes the bytes of a mail; gives the few things that matter about it, and whether its signature holds. The worker
//! has no network: it says which TXT records it needs, they are looked up here, and a second worker judges with them.
//! Promise: not a byte of the mail is read in this process; only names under a sender's domain that somebody we know
//! writes from are looked up; what no worker came back with is not read.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use serde::Deserialize;
use serde_json::json;
use sluice_core::{Span, Timestamp};

use super::Fault;
use crate::services::Work;
use crate::workers::{Alone, End, Job, Limits, Order, Outcome, Workers};

/// The kind of job that reads it.
const KIND: &str = "mail.reply";
/// How long a worker may take.
const SLOWEST: Span = Span::from_secs(5);
/// How long all look-ups for one mail may take.
const LOOKED_UP: Duration = Duration::from_secs(15);
/// Most names that are looked up for one mail.
const MOST_NAMES: usize = 12;
/// Most records of one name, and most bytes of one record, that are handed on.
const MOST_RECORDS: (usize, usize) = (8, 4096);

/// Looks up TXT records.
pub trait Records: Send + Sync + fmt::Debug {
    /// All records of a name; none if there is no such name.
    fn txt<'a>(&'a self, name: &'a str) -> Work<'a, Result<Vec<String>, NoAnswer>>;
}

/// DNS did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("DNS does not answer")]
pub struct NoAnswer;

/// Records from DNS.
pub struct Dns(TokioResolver);

impl fmt::Debug for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dns")
    }
}

impl Dns {
    /// Asks these servers, or those of the machine.
    ///
    /// # Errors
    /// When the machine names none.
    pub fn new(servers: &[SocketAddr]) -> Result<Self, String> {
        let words = |_| "the machine's DNS servers cannot be found: set `email.dns`".to_owned();
        let builder = if servers.is_empty() {
            TokioResolver::builder_tokio().map_err(words)?
        } else {
            let at = |server: &SocketAddr| {
                let mut ways = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
                ways.iter_mut().for_each(|way| way.port = server.port());
                NameServerConfig::new(server.ip(), true, ways.into())
            };
            let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(at).collect());
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        builder.build().map(Self).map_err(words)
    }
}

impl Records for Dns {
    fn txt<'a>(&'a self, name: &'a str) -> Work<'a, Result<Vec<String>, NoAnswer>> {
        Box::pin(async move {
            // With a dot at its end it is this very name and no other of the machine's domain.
            let found = match self.0.txt_lookup(format!("{name}.")).await {
                Ok(found) => found,
                Err(error) if error.is_no_records_found() => return Ok(Vec::new()),
                Err(_) => return Err(NoAnswer),
            };
            let text = |data: &RData| match data {
                RData::TXT(txt) => Some(txt.txt_data.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>()),
                _ => None,
            };
            let all = found.answers().iter().filter_map(|record| text(&record.data));
            Ok(all.filter_map(|bytes| String::from_utf8(bytes).ok()).collect())
        })
    }
}

/// What matters about a mail.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    /// Every address it says it is from.
    pub(super) from: Vec<String>,
    pub(super) from_headers: usize,
    /// Every address it is to.
    pub(super) to: Vec<String>,
    pub(super) to_headers: usize,
    pub(super) subject_headers: usize,
    /// A program wrote it.
    pub(super) automatic: bool,
    /// Everything in it that looks like the id of a question.
    pub(super) ids: Vec<String>,
    /// The person's own words.
    pub(super) words: String,
    /// What the mail holds beside them.
    pub(super) rest: String,
    /// It has a plain text at all.
    pub(super) has_text: bool,
    /// The text was written as it reads.
    pub(super) exact: bool,
    /// Names of the records needed to judge it.
    names: Vec<String>,
    /// `pass`, or the code of what is missing; nothing if it was not judged.
    proof: Option<String>,
}

/// Why a mail was not read.
#[derive(Debug)]
pub(super) enum Unread {
    /// It cannot be: that is what a hostile mail is like.
    Never(&'static str),
    /// Not now: there is no worker.
    Later(Fault),
    /// Not now: DNS does not answer.
    NoKeys(Fault),
}

/// Takes a mail apart. Nothing is looked up.
pub(super) async fn read(workers: &Workers, mail: &[u8], forwarders: &[String]) -> Result<Read, Unread> {
    ask(workers, mail, json!({"forwarders": forwarders})).await
}

/// Judges a mail that was taken apart. Gives nothing if it is what it says, or why it is not.
pub(super) async fn judge(
    workers: &Workers,
    records: &dyn Records,
    (mail, read): (&[u8], &Read),
    (forwarders, now): (&[String], Timestamp),
) -> Result<Option<&'static str>, Unread> {
    let looking = async {
        let mut found = BTreeMap::new();
        for name in read.names.iter().take(MOST_NAMES) {
            let (most, longest) = MOST_RECORDS;
            let mut texts = records.txt(name).await?;
            texts.retain(|text| text.len() <= longest);
            texts.truncate(most);
            found.insert(name.clone(), texts);
        }
        Ok::<_, NoAnswer>(found)
    };
    let silent = || Unread::NoKeys(Fault::Later { after: None, why: "mail: DNS does not answer".into() });
    let found = match tokio::time::timeout(LOOKED_UP, looking).await {
        Ok(Ok(found)) => found,
        Ok(Err(NoAnswer)) | Err(_) => return Err(silent()),
    };
    let seconds = u64::try_from(now.as_millis() / 1000).unwrap_or(0);
    let judged = ask(workers, mail, json!({"forwarders": forwarders, "records": found, "now": seconds})).await?;
    Ok(match judged.proof.as_deref() {
        Some("pass") => None,
        Some(code) => Some(known(code)),
        None => Some("email.unreadable"),
    })
}

/// The codes a worker may give.
const CODES: [&str; 5] = ["email.unsigned", "email.not_aligned", "email.dkim", "email.arc", "email.from_header"];

fn known(code: &str) -> &'static str {
    CODES.into_iter().find(|known| *known == code).unwrap_or("email.unreadable")
}

async fn ask(workers: &Workers, mail: &[u8], payload: serde_json::Value) -> Result<Read, Unread> {
    let job = Job { kind: KIND.into(), payload, attachments: vec![mail.to_vec()] };
    let limits = Limits { wall: SLOWEST, cpu: SLOWEST, ..Limits::default() };
    match workers.run(Order { job, scratch: None, limits: Some(limits), mode: None }, Alone).await {
        Err(error) => {
            let why = format!("mail: no worker reads it ({})", error.code());
            Err(Unread::Later(Fault::Later { after: None, why }))
        }
        Ok((End::CutOff { .. }, _)) => Err(Unread::Never("email.too_slow")),
        Ok((End::Crashed(_), _)) => Err(Unread::Never("email.broke_worker")),
        Ok((End::Clean(done), _)) => match done.report.outcome {
            Outcome::Done(said) => serde_json::from_value(said).map_err(|_| Unread::Never("email.unreadable")),
            Outcome::Failed { .. } => Err(Unread::Never("email.unreadable")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_nobody_knows_is_no_code() {
        assert_eq!(known("email.dkim"), "email.dkim");
        assert_eq!(known("pass; email.dkim"), "email.unreadable");
    }
}
