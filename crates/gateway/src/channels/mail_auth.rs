//! Reading a fetched mail: in a worker, with the keys that its signatures name.
//!
//! Takes the bytes of a mail; gives the few fields that matter, and whether its signature holds. The worker
//! has no network: it says which TXT records it needs, they are looked up here, and a second worker judges with them.
//! Promise: not a byte of the mail is parsed in this process; only names under the domain of a known sender are looked
//! up; a mail that no worker could read is not used.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use sluice_core::{BoxedFuture, Millis, UtcMillis};
use sluice_protocol::MailReplyTask;
pub(super) use sluice_protocol::ReplyMailFacts;
use sluice_services::workers::{
    GatewayWorkers, RefusingWorkerHost, WorkerAssignment, WorkerEnd, WorkerJob, WorkerJobOutcome, WorkerLimits,
};

use super::ChannelError;

/// Longest time that a worker may take.
const SLOWEST: Millis = Millis::from_secs(5);
/// Longest time that all lookups for one mail may take.
const LOOKED_UP: Duration = Duration::from_secs(15);
/// Most names that are looked up for one mail.
const MOST_NAMES: usize = 12;
/// Most records of one name, and most bytes of one record, that are passed on.
const MOST_RECORDS: (usize, usize) = (8, 4096);

/// Looks up TXT records.
pub trait TxtResolver: Send + Sync + fmt::Debug {
    /// All TXT records of a name; empty if the name does not exist.
    fn txt<'a>(&'a self, name: &'a str) -> BoxedFuture<'a, Result<Vec<String>, TxtLookupError>>;
}

/// DNS did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("DNS does not answer")]
pub struct TxtLookupError;

/// TXT records from DNS.
pub struct DnsTxtResolver(TokioResolver);

impl fmt::Debug for DnsTxtResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dns")
    }
}

impl DnsTxtResolver {
    /// Uses these DNS servers, or those of the machine if there are none.
    ///
    /// # Errors
    /// When the machine has no DNS servers.
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

impl TxtResolver for DnsTxtResolver {
    fn txt<'a>(&'a self, name: &'a str) -> BoxedFuture<'a, Result<Vec<String>, TxtLookupError>> {
        Box::pin(async move {
            // The dot at the end makes the name absolute, so that no search domain of the machine is added.
            let found = match self.0.txt_lookup(format!("{name}.")).await {
                Ok(found) => found,
                Err(error) if error.is_no_records_found() => return Ok(Vec::new()),
                Err(_) => return Err(TxtLookupError),
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

/// Why a mail could not be read.
#[derive(Debug)]
pub(super) enum ReplyMailReadError {
    /// It can never be read: it may be hostile.
    Never(&'static str),
    /// It cannot be read now: no worker is available.
    Later(ChannelError),
    /// It cannot be judged now: DNS does not answer.
    NoKeys(ChannelError),
}

/// Parses a mail. Nothing is looked up.
pub(super) async fn read(
    workers: &GatewayWorkers,
    mail: &[u8],
    forwarders: &[String],
) -> Result<ReplyMailFacts, ReplyMailReadError> {
    let task = MailReplyTask { forwarders: forwarders.to_vec(), ..MailReplyTask::default() };
    ask(workers, mail, task).await
}

/// Judges a parsed mail. Returns `None` if its sender is proven, else the code of the reason.
pub(super) async fn judge(
    workers: &GatewayWorkers,
    records: &dyn TxtResolver,
    (mail, read): (&[u8], &ReplyMailFacts),
    (forwarders, now): (&[String], UtcMillis),
) -> Result<Option<&'static str>, ReplyMailReadError> {
    let looking = async {
        let mut found = BTreeMap::new();
        for name in read.names.iter().take(MOST_NAMES) {
            let (most, longest) = MOST_RECORDS;
            let mut texts = records.txt(name).await?;
            texts.retain(|text| text.len() <= longest);
            texts.truncate(most);
            found.insert(name.clone(), texts);
        }
        Ok::<_, TxtLookupError>(found)
    };
    let silent =
        || ReplyMailReadError::NoKeys(ChannelError::Later { after: None, why: "mail: DNS does not answer".into() });
    let found = match tokio::time::timeout(LOOKED_UP, looking).await {
        Ok(Ok(found)) => found,
        Ok(Err(TxtLookupError)) | Err(_) => return Err(silent()),
    };
    let seconds = u64::try_from(now.as_millis() / 1000).unwrap_or(0);
    let task = MailReplyTask { forwarders: forwarders.to_vec(), now: Some(seconds), records: Some(found) };
    let judged = ask(workers, mail, task).await?;
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

async fn ask(workers: &GatewayWorkers, mail: &[u8], task: MailReplyTask) -> Result<ReplyMailFacts, ReplyMailReadError> {
    let job = WorkerJob::of(&task, vec![mail.to_vec()]);
    let limits = WorkerLimits { wall: SLOWEST, cpu: SLOWEST, ..WorkerLimits::default() };
    match workers
        .run(WorkerAssignment { job, scratch: None, limits: Some(limits), mode: None }, RefusingWorkerHost)
        .await
    {
        Err(error) => {
            let why = format!("mail: no worker could read it ({})", error.code());
            Err(ReplyMailReadError::Later(ChannelError::Later { after: None, why }))
        }
        Ok((WorkerEnd::CutOff { .. }, _)) => Err(ReplyMailReadError::Never("email.too_slow")),
        Ok((WorkerEnd::Crashed(_), _)) => Err(ReplyMailReadError::Never("email.broke_worker")),
        Ok((WorkerEnd::Clean(done), _)) => match done.report.outcome {
            WorkerJobOutcome::Done(said) => {
                serde_json::from_value(said).map_err(|_| ReplyMailReadError::Never("email.unreadable"))
            }
            WorkerJobOutcome::Failed { .. } => Err(ReplyMailReadError::Never("email.unreadable")),
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
