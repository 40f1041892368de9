//! Witnesses: every signed checkpoint is sent to those who were configured, and their cosignatures are kept.
//!
//! Takes checkpoints that are in the database; sends them as C2SP `tlog-witness` requests with the proof that the log
//! only grew. Promise: nothing but checkpoints and hashes leaves, a cosignature is kept only if the configured key made
//! it, and a witness that has seen a longer or another log than this is reported to people.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, NodeName, Timestamp};
use sluice_store::{Message, Severity, Signed};
use tokio::sync::watch;

use crate::config::Witness;
use crate::loops::tick;
use crate::{Gateway, No};

/// How often it looks whether there is a new checkpoint.
const EVERY: Duration = Duration::from_secs(5);
/// How long a witness that failed is left alone.
const PAUSE: sluice_core::Span = sluice_core::Span::from_mins(1);
/// How long one exchange may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest answer that is read.
const LONGEST: usize = 64 << 10;

/// The witnesses of a gateway at work.
pub struct Witnesses {
    client: reqwest::Client,
    each: Vec<Contact>,
}

/// One witness, and how it went last.
struct Contact {
    witness: Witness,
    /// Not before this time.
    again_at: Timestamp,
    /// What people were told last; not said twice.
    told: Option<String>,
}

impl std::fmt::Debug for Witnesses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witnesses").field("count", &self.each.len()).finish_non_exhaustive()
    }
}

/// Why a witness did not cosign.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    /// It cannot be reached, or says something else than the protocol knows. Tried again.
    Later(String),
    /// It has cosigned another size than we thought.
    Elsewhere(u64),
    /// It holds a record of this log that this log does not grow out of.
    Contradicts(String),
}

impl Witnesses {
    /// Those of the configuration; nothing where there are none.
    ///
    /// # Errors
    /// When there is no TLS.
    pub fn configured(gw: &Gateway) -> Result<Option<Self>, String> {
        let named = &gw.config.audit.witnesses;
        if named.is_empty() {
            return Ok(None);
        }
        // The program installs it too; whoever is first wins, and both are the same.
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
        let contact =
            |witness: &Witness| Contact { witness: witness.clone(), again_at: Timestamp::default(), told: None };
        Ok(Some(Self { client, each: named.iter().map(contact).collect() }))
    }

    /// Sends what is new to each witness that is not left alone.
    ///
    /// # Errors
    /// When the database cannot be read or written. What a witness fails at is put off.
    pub async fn step(&mut self, gw: &Gateway) -> Result<(), No> {
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

/// Sends one checkpoint; once more where the witness names another size than we thought.
async fn submit(
    client: &reqwest::Client,
    gw: &Gateway,
    witness: &Witness,
    (log, last): (&NodeName, &Signed),
    seen: u64,
) -> Result<Result<(), Refused>, No> {
    let mut old = seen;
    for _ in 0..2 {
        if old > last.size {
            let text = format!("it has cosigned {old} entries of log {log}, which has {} signed ones", last.size);
            return Ok(Err(Refused::Contradicts(text)));
        }
        let proof = gw.store.consistency(log.clone(), old, last.size).await?;
        let mut body = format!("old {old}\n");
        proof.iter().for_each(|hash| body.push_str(&format!("{}\n", STANDARD.encode(hash.0))));
        body.push_str(&format!("\n{}", last.note));
        let answer = match exchange(client, witness, body).await {
            Ok(answer) => answer,
            Err(Refused::Elsewhere(size)) if size != old => {
                old = size;
                continue;
            }
            Err(refused) => return Ok(Err(refused)),
        };
        let Some(kept) = witness.key.accepted(&last.note, &answer) else {
            return Ok(Err(Refused::Later("its answer has no cosignature of the configured key".into())));
        };
        let name = witness.key.name().to_owned();
        gw.store.keep_cosignature(log.clone(), name, last.size, kept.line).await?;
        return Ok(Ok(()));
    }
    Ok(Err(Refused::Later("it names another size each time".into())))
}

/// One request and its answer.
async fn exchange(client: &reqwest::Client, witness: &Witness, body: String) -> Result<String, Refused> {
    let later = |why: &str| Refused::Later(why.to_owned());
    let url = format!("{}/add-checkpoint", witness.url.as_str());
    let mut answer = client.post(url).body(body).send().await.map_err(|_| later("it cannot be reached"))?;
    let (status, mut text) = (answer.status().as_u16(), Vec::new());
    while let Some(chunk) = answer.chunk().await.map_err(|_| later("its answer broke off"))? {
        text.extend_from_slice(&chunk);
        if text.len() > LONGEST {
            return Err(later("its answer is too long"));
        }
    }
    let text = String::from_utf8(text).map_err(|_| later("its answer is not a text"))?;
    match status {
        200 => Ok(text),
        409 => match text.trim().parse() {
            Ok(size) => Err(Refused::Elsewhere(size)),
            Err(_) => Err(Refused::Contradicts("it has cosigned another root for the same number of entries".into())),
        },
        422 => Err(Refused::Contradicts("what it has cosigned is not a part of this log".into())),
        404 => Err(later("it does not know this log (404)")),
        403 => Err(later("it has another key for this log (403)")),
        other => Err(Refused::Later(format!("it answered with status {other}"))),
    }
}

/// What a witness holds against us is for people at once; that it cannot be reached is said once.
async fn report(gw: &Gateway, contact: &mut Contact, log: &NodeName, refused: Refused) -> Result<(), No> {
    let name = contact.witness.key.name();
    let (severity, topic, why) = match refused {
        Refused::Later(why) => (Severity::Warning, "witness.failing", why),
        Refused::Elsewhere(size) => {
            (Severity::Critical, "witness.contradicts", format!("it has cosigned another root over {size} entries"))
        }
        Refused::Contradicts(why) => (Severity::Critical, "witness.contradicts", why),
    };
    tracing::warn!("the witness {name} has not cosigned log {log}: {why}");
    if contact.told.as_ref() == Some(&why) {
        return Ok(());
    }
    contact.told = Some(why.clone());
    let text = match severity {
        Severity::Critical => format!(
            "The witness {name} contradicts the record of log {log}: {why}. The database may have been restored or cut: \
             compare with `sluice audit verify --against FILE`."
        ),
        Severity::Info | Severity::Action | Severity::Warning => {
            format!("The witness {name} does not cosign log {log}: {why}.")
        }
    };
    let body = serde_json::json!({"text": text, "witness": name, "log": log});
    let id = MessageId::mint(gw.ids.as_ref());
    let message = Message { id, topic: topic.into(), severity, body };
    gw.store.alert(message, Actor::Node(gw.store.node().clone())).await?;
    gw.letters.notify_one();
    Ok(())
}

/// Runs the loop, where there are witnesses.
pub(crate) async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut witnesses = match Witnesses::configured(&gw) {
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
