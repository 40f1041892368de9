//! Witnesses: every signed checkpoint is sent to the configured witnesses, and their cosignatures are kept.
//!
//! Takes checkpoints that are in the database; sends them as C2SP `tlog-witness` requests with a consistency proof.
//! Promise: only checkpoints and hashes leave, a cosignature is kept only if the configured key made it, and people are
//! notified if a witness has seen a longer or different log.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sluice_config::WitnessConfig;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, NodeName, UtcMillis};
use sluice_services::CallError;
use sluice_services::timer::tick;
use sluice_store::{MessageSeverity, OutboxMessage, SignedCheckpoint};
use tokio::sync::watch;

use crate::Gateway;

/// How often it checks for a new checkpoint.
const EVERY: Duration = Duration::from_secs(5);
/// How long a witness is not contacted after a failure.
const PAUSE: sluice_core::Millis = sluice_core::Millis::from_mins(1);
/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest answer that is read, in bytes.
const LONGEST: usize = 64 << 10;

/// The witnesses of a running gateway.
pub struct WitnessSubmitter {
    client: reqwest::Client,
    each: Vec<WitnessContact>,
}

/// One witness, and the state of its last request.
struct WitnessContact {
    witness: WitnessConfig,
    /// The earliest time of the next request.
    again_at: UtcMillis,
    /// The last notice to people; it is not repeated.
    told: Option<String>,
}

impl std::fmt::Debug for WitnessSubmitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witnesses").field("count", &self.each.len()).finish_non_exhaustive()
    }
}

/// Why a witness did not cosign.
#[derive(Debug, PartialEq, Eq)]
enum CosignatureError {
    /// It cannot be reached, or its answer does not follow the protocol. Tried again.
    Later(String),
    /// It has cosigned a different size than expected.
    Elsewhere(u64),
    /// It has seen a log that this log does not extend.
    Contradicts(String),
}

impl WitnessSubmitter {
    /// The witnesses of the configuration; nothing if there are none.
    ///
    /// # Errors
    /// When TLS is not available.
    pub fn configured(gw: &Gateway) -> Result<Option<Self>, String> {
        let named = &gw.config.audit.witnesses;
        if named.is_empty() {
            return Ok(None);
        }
        // The program installs it too; the first one wins, and both are the same.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        #[expect(
            clippy::disallowed_methods,
            reason = "the operator's own witnesses: configured hosts that no agent can name, and nothing of an agent is sent"
        )]
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(PATIENCE)
            .build()
            .map_err(|_| "no TLS for witnesses".to_owned())?;
        let contact = |witness: &WitnessConfig| WitnessContact {
            witness: witness.clone(),
            again_at: UtcMillis::default(),
            told: None,
        };
        Ok(Some(Self { client, each: named.iter().map(contact).collect() }))
    }

    /// Sends new checkpoints to each witness that is due.
    ///
    /// # Errors
    /// When the database cannot be read or written. A failure of a witness is retried later.
    pub async fn step(&mut self, gw: &Gateway) -> Result<(), CallError> {
        if gw.recovery.is_suspected() {
            return Ok(());
        }
        for log in gw.store.own_logs() {
            let Some(last) = gw.store.last_checkpoint(log.clone()).await? else { continue };
            for contact in &mut self.each {
                if gw.now() < contact.again_at {
                    continue;
                }
                let name = contact.witness.key.name().to_owned();
                let seen = gw.store.cosigned(log.clone(), name).await?.unwrap_or(0);
                if seen >= last.size {
                    continue;
                }
                match submit(&self.client, gw, &contact.witness, (&log, &last), seen).await? {
                    Ok(()) => contact.told = None,
                    Err(refused) => {
                        contact.again_at = gw.now() + PAUSE;
                        report(gw, contact, &log, refused).await?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Sends one checkpoint, and again if the witness names a different size than expected.
async fn submit(
    client: &reqwest::Client,
    gw: &Gateway,
    witness: &WitnessConfig,
    (log, last): (&NodeName, &SignedCheckpoint),
    seen: u64,
) -> Result<Result<(), CosignatureError>, CallError> {
    let mut old = seen;
    let kept = gw.store.pruned_log(log.clone()).await?.map_or(0, |pruned| pruned.start.frontier.size());
    for _ in 0..2 {
        if old > last.size {
            let text = format!("it has cosigned {old} entries of log {log}, which has {} signed ones", last.size);
            return Ok(Err(CosignatureError::Contradicts(text)));
        }
        if (1..kept).contains(&old) {
            return Ok(Err(CosignatureError::Later(format!(
                "it has cosigned {old} entries, and the first {kept} are archived, so growth from there cannot be proven"
            ))));
        }
        let proof = gw.store.consistency(log.clone(), old, last.size).await?;
        let mut body = format!("old {old}\n");
        proof.iter().for_each(|hash| body.push_str(&format!("{}\n", STANDARD.encode(hash.0))));
        body.push_str(&format!("\n{}", last.note));
        let answer = match exchange(client, witness, body).await {
            Ok(answer) => answer,
            Err(CosignatureError::Elsewhere(size)) if size != old => {
                old = size;
                continue;
            }
            Err(refused) => return Ok(Err(refused)),
        };
        let Some(kept) = witness.key.find_valid_cosignature(&last.note, &answer) else {
            return Ok(Err(CosignatureError::Later("its answer has no cosignature of the configured key".into())));
        };
        let name = witness.key.name().to_owned();
        gw.store.keep_cosignature(log.clone(), name, last.size, kept.line).await?;
        return Ok(Ok(()));
    }
    Ok(Err(CosignatureError::Later("it names a different size each time".into())))
}

/// One request and its answer.
async fn exchange(client: &reqwest::Client, witness: &WitnessConfig, body: String) -> Result<String, CosignatureError> {
    let later = |why: &str| CosignatureError::Later(why.to_owned());
    let url = format!("{}/add-checkpoint", witness.url.as_str());
    let mut answer = client.post(url).body(body).send().await.map_err(|_| later("it cannot be reached"))?;
    let (status, mut text) = (answer.status().as_u16(), Vec::new());
    while let Some(chunk) = answer.chunk().await.map_err(|_| later("its answer ended early"))? {
        text.extend_from_slice(&chunk);
        if text.len() > LONGEST {
            return Err(later("its answer is too long"));
        }
    }
    let text = String::from_utf8(text).map_err(|_| later("its answer is not a text"))?;
    match status {
        200 => Ok(text),
        409 => match text.trim().parse() {
            Ok(size) => Err(CosignatureError::Elsewhere(size)),
            Err(_) => {
                Err(CosignatureError::Contradicts("it has cosigned another root for the same number of entries".into()))
            }
        },
        422 => Err(CosignatureError::Contradicts("the log it has cosigned is not part of this log".into())),
        404 => Err(later("it does not know this log (404)")),
        403 => Err(later("it has another key for this log (403)")),
        other => Err(CosignatureError::Later(format!("it answered with status {other}"))),
    }
}

/// Notifies people at once if a witness contradicts the log, and once if it cannot be reached.
async fn report(
    gw: &Gateway,
    contact: &mut WitnessContact,
    log: &NodeName,
    refused: CosignatureError,
) -> Result<(), CallError> {
    let name = contact.witness.key.name();
    let (severity, topic, why) = match refused {
        CosignatureError::Later(why) => (MessageSeverity::Warning, "witness.failing", why),
        CosignatureError::Elsewhere(size) => (
            MessageSeverity::Critical,
            "witness.contradicts",
            format!("it has cosigned another root over {size} entries"),
        ),
        CosignatureError::Contradicts(why) => (MessageSeverity::Critical, "witness.contradicts", why),
    };
    tracing::warn!("the witness {name} has not cosigned log {log}: {why}");
    if contact.told.as_ref() == Some(&why) {
        return Ok(());
    }
    contact.told = Some(why.clone());
    let text = match severity {
        MessageSeverity::Critical => format!(
            "The witness {name} contradicts audit log {log}: {why}. The database may have been restored or cut: \
             compare with `sluice audit verify --against FILE`."
        ),
        MessageSeverity::Info | MessageSeverity::Action | MessageSeverity::Warning => {
            format!("The witness {name} does not cosign log {log}: {why}.")
        }
    };
    let body = serde_json::json!({"text": text, "witness": name, "log": log});
    let id = MessageId::mint(gw.ids.as_ref());
    let message = OutboxMessage { id, topic: topic.into(), severity, body };
    gw.store.alert(message, Actor::Node(gw.store.node().clone())).await?;
    gw.signals.letters.notify_one();
    Ok(())
}

/// Runs the loop, if there are witnesses.
pub(crate) async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut witnesses = match WitnessSubmitter::configured(&gw) {
        Ok(Some(witnesses)) => witnesses,
        Ok(None) => return,
        Err(why) => return tracing::error!("checkpoints are not sent to witnesses: {why}"),
    };
    let mut failing = false;
    while tick(&mut stop, EVERY, std::future::pending()).await {
        match witnesses.step(&gw).await {
            Ok(()) => failing = false,
            Err(no) if failing => drop(no),
            Err(no) => {
                failing = true;
                tracing::error!(code = no.refusal.code().as_str(), "witnesses are not asked: {}", no.refusal);
            }
        }
    }
}
